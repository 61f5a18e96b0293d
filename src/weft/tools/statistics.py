"""summary(): per layer of a module its output, parameters, arithmetic, memory and share of the time.

>>> import weft as wf
>>> import weft.module as M
>>> print(wf.tools.summary(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)), wf.ones((3, 4))))
layer         class       output    parameters   MAC  FLOP  activations
...
"""

from __future__ import annotations

import csv
import io
import os
import threading
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import no_grad
from weft.gradients.transformation import Transformation
from weft.module.module import Module
from weft.ops.types import TensorType
from weft.tools import flops
from weft.tools.profiling import profile
from weft.tools.wrapping import wrap

__all__ = ["Layer", "Summary", "summary"]

WIDEST = 46


class Layer(NamedTuple):
    """A module in a call: path "" is the whole. All numbers include what is below it.

    output: shapes of its tensors. parameters, trainable: elements, each counted once. multiply_adds: of products, what
    the literature calls MAC; flops: all arithmetic. activations: bytes of its output; parameter_bytes: of its
    parameters. share: of the time in kernels; None if it was not measured. calls: how often it ran.
    """

    path: str
    kind: str
    output: tuple[tuple[int, ...], ...]
    parameters: int
    multiply_adds: int
    flops: int
    activations: int
    parameter_bytes: int
    share: float | None
    calls: int

    @property
    def depth(self) -> int:
        """The number of modules that contain it."""
        return self.path.count(".") + 1 if self.path else 0


class Summary:
    """The result of summary(): layers in the order of the tree, the first is the whole module."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)

    @property
    def total(self) -> Layer:
        """The whole module."""
        return self.layers[0]

    def __getitem__(self, path: str) -> Layer:
        """The layer of a path. Raises KeyError, with the paths there are."""
        for layer in self.layers:
            if layer.path == path:
                return layer
        raise KeyError(f"{path!r}; there are: {', '.join(layer.path for layer in self.layers[1:])}")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The layers by path."""
        return {layer.path: layer._asdict() for layer in self.layers}

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The layers as CSV with a header; also written to a file, if one is given."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(Layer._fields)
        for layer in self.layers:
            writer.writerow(
                [_shapes(layer.output) if k == "output" else v for k, v in layer._asdict().items()]
            )
        if path is not None:
            Path(path).write_text(text.getvalue())
        return text.getvalue()

    def __str__(self) -> str:
        """A table, with the totals below."""
        timed = self.total.share is not None
        heads = ["layer", "class", "output", "parameters", "MAC", "FLOP", "activations"] + ["time"] * timed
        rows = [
            [
                "  " * layer.depth + (layer.path.rpartition(".")[2] or "(all)"),
                layer.kind,
                _shapes(layer.output)[:WIDEST],
                f"{layer.parameters:,}",
                _amount(layer.multiply_adds),
                _amount(layer.flops),
                _bytes(layer.activations),
                *([f"{layer.share:.1%}"] if layer.share is not None else []),
            ]
            for layer in self.layers
        ]
        wide = [max(len(row[k]) for row in [heads, *rows]) for k in range(len(heads))]

        def line(row: list[str]) -> str:
            cells = zip(row, wide, strict=True)
            return "  ".join(f"{c:{w}}" if k < 3 else f"{c:>{w}}" for k, (c, w) in enumerate(cells))

        lines = [line(row) for row in (heads, *rows)]
        t = self.total
        lines.insert(1, "-" * len(lines[0]))
        lines += [
            "-" * len(lines[0]),
            f"{t.parameters:,} parameters ({_bytes(t.parameter_bytes)}), {_amount(t.multiply_adds)} MAC, "
            f"{_amount(t.flops)} FLOP, {_bytes(self.activation_bytes)} of results",
        ]
        return "\n".join(line.rstrip() for line in lines)

    @property
    def activation_bytes(self) -> int:
        """Of the results of all modules that have none below them."""
        paths = [layer.path for layer in self.layers]
        leaves = [
            layer
            for layer in self.layers
            if not any(p != layer.path and (p.startswith(f"{layer.path}.") or not layer.path) for p in paths)
        ]
        return sum(layer.activations for layer in leaves)


def _shapes(output: Sequence[Sequence[int]]) -> str:
    return " ".join(f"[{','.join(map(str, shape))}]" for shape in output)


def _amount(n: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if n < 1000 or unit == "T":
            return f"{n:.0f}" if unit == "" else f"{n:.2f} {unit}"
        n /= 1000
    return ""


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return ""


class _Counter(Transformation):
    """Counts the arithmetic of every operator for the modules that it runs in."""

    def __init__(self) -> None:
        self.stack: list[int] = []
        self.counts: dict[int, flops.Count] = {}
        self.outputs: dict[int, tuple[tuple[int, ...], ...]] = {}
        self.activations: dict[int, int] = {}
        self.calls: dict[int, int] = {}

    def emit(self, op: Any, args: tuple[Any, ...]) -> Any:
        result = op(*args)
        results = result if isinstance(result, tuple) else (result,)
        inputs = [TensorType(x.shape, x.dtype, x.device) if isinstance(x, Tensor) else None for x in args]
        outputs = [TensorType(y.shape, y.dtype, y.device) for y in results if isinstance(y, Tensor)]
        if inputs and outputs and all(x is None or isinstance(x, Tensor) for x in args):
            count = flops.of_operator(op, inputs, outputs)
        else:  # some operand is a number
            count = flops.Count(0, max((int(prod(t.shape)) for t in outputs), default=0))
        for module in set(self.stack):
            self.counts[module] = self.counts.get(module, flops.Count()) + count
        return result


def summary(module: Module, *inputs: Any, time: bool = False) -> Summary:
    """Run a module once and count: a Summary, with a layer for each module below it that ran.

    inputs: what the module is called with. time: also measure which share of the time in kernels each layer takes, in
    one more run. Nothing is recorded for gradients; the module stays in its mode, and running statistics change if it
    is in training. FLOP and MAC are by the rules of weft.tools.flops.
    Raises TypeError unless module is a Module; what the call raises.

    >>> import weft as wf
    >>> import weft.module as M
    >>> net_summary = summary(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)), wf.ones((3, 4)))
    >>> total = net_summary.total
    >>> total.parameters, total.multiply_adds, net_summary["0"].output
    (58, 144, ((3, 8),))
    """
    if not isinstance(module, Module):
        raise TypeError(f"summary: takes a Module, got {type(module).__name__}")
    counter = _Counter()
    thread = threading.get_ident()

    def counting(call: Any) -> Any:
        def counted(self: Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(self, *args, **kwargs)
            counter.stack.append(id(self))
            try:
                y = call(self, *args, **kwargs)
            finally:
                counter.stack.pop()
            tensors = [x for x in flatten(y)[0] if isinstance(x, Tensor)]
            counter.outputs[id(self)] = tuple(tuple(x.shape) for x in tensors)
            size_bytes = sum(x.nbytes for x in tensors)
            counter.activations[id(self)] = counter.activations.get(id(self), 0) + size_bytes
            counter.calls[id(self)] = counter.calls.get(id(self), 0) + 1
            return y

        return counted

    unwrap = wrap(Module, "__call__", counting)
    try:
        with no_grad(), counter:
            module(*inputs)
    finally:
        unwrap()
    shares = _shares(module, inputs) if time else None
    layers = []
    for path, each in module.named_modules():
        if id(each) not in counter.calls:
            continue
        count = counter.counts.get(id(each), flops.Count())
        parameters = list(each.parameters())
        layers.append(
            Layer(
                path,
                type(each).__name__,
                counter.outputs[id(each)],
                sum(p.size for p in parameters),
                count.multiply_adds,
                count.flops,
                counter.activations[id(each)],
                sum(p.nbytes for p in parameters),
                None if shares is None else shares.get(path, 0.0),
                counter.calls[id(each)],
            )
        )
    return Summary(layers)


def _shares(module: Module, inputs: Sequence[Any]) -> dict[str, float]:
    """For each path the share of the time in kernels of it and all below it."""
    with no_grad():
        module(*inputs)
        with profile(memory=False) as p:
            module(*inputs)
    root = type(module).__name__
    rows = {row["module"].removeprefix(root).removeprefix("."): row["seconds"] for row in p.table("module")}
    whole = sum(rows.values()) or 1.0
    shares: dict[str, float] = {}
    for path, seconds in rows.items():
        parts = path.split(".") if path else []
        for k in range(len(parts) + 1):
            ancestor = ".".join(parts[:k])
            shares[ancestor] = shares.get(ancestor, 0.0) + seconds / whole
    return shares
