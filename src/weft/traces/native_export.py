"""Traced programs as folders that run without Python, for weft/weft.h: docs/design/native_export.md.

>>> import os, tempfile, weft as wf
>>> w = wf.tensor([2., 3.])
>>> f = wf.trace(lambda x: x * w)
>>> _ = f(wf.ones(2))
>>> with tempfile.TemporaryDirectory() as folder:
...     f.export(folder, target="native")
...     sorted(name.split(".")[0] for name in os.listdir(folder))
['code', 'plan', 'weights']
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import _core
from weft.arrays.creation import zeros
from weft.arrays.serialization import save
from weft.arrays.tensor import Tensor
from weft.base.device import cpu
from weft.base.errors import GraphError
from weft.base.structure import Structure, flatten
from weft.executor.buffers import row_major
from weft.executor.compile import compile_graph
from weft.executor.control import Control
from weft.expr.compiler import LEVELS, compile_together, key_of, write_whole
from weft.expr.llvm import print_kernel
from weft.graph.graph import Graph
from weft.kernels import without
from weft.kernels.cpu.matrix import BLAS_TYPES
from weft.traces.traced import Described, Traced

if TYPE_CHECKING:
    from weft._core import Find

__all__ = ["arguments_of", "export_native", "has_shapes"]

WEIGHTS = "weights.safetensors"
FLOAT = "float64"  # of numbers among the arguments: arrays without dimensions

Arguments = tuple[list[Any], Structure]  # leaves, arrays as Described
Shapes = Mapping[str, Sequence[int]]


def export_native(
    path: str | os.PathLike[str], name: str, function: Callable[..., Any], programs: Sequence[Traced]
) -> None:
    """Write programs of exact sizes for the level of instructions that this process uses.

    The folder is made if it is not there; what it has for other levels stays, and has to be of the same weights. Raises
    GraphError for programs that depend on Python objects, NotImplementedError for what the native runtime lacks.
    """
    folder = Path(path)
    weights = _Weights(name, function)
    with without("blas"):  # loops multiply what BLAS would, whose library is Python's
        variants = [_Variant(name, function, program, weights) for program in programs]
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / WEIGHTS, weights.contents)
    offsets, weights_bytes = _offsets(folder / WEIGHTS)
    placed = [
        ((key, x.dtype, list(x.shape)), weights.strides[key], offsets[key], number in weights.written)
        for number, (key, x) in enumerate(weights.tensors.items())
    ]
    level = _core.isa()[1]
    texts: dict[str, str] = {}

    def symbol_of(compile_pattern: Any, *pattern: Any) -> str:
        kernel = compile_pattern.__self__.kernel(*pattern)
        text = print_kernel(kernel)
        symbol = f"loop_{key_of(text, kernel.name):016x}"
        texts[symbol] = text.replace(f"@{kernel.name}(", f"@{symbol}(", 1)
        return symbol

    def plans_with(code: bytes) -> bytes:
        described = [(v.plan, v.arguments, v.inputs, v.numbers, v.results) for v in variants]
        file: bytes = _core.exported_plans(name, level, code, weights_bytes, placed, described, symbol_of)
        return file

    plans_with(b"")  # collects the texts
    empty = "define void @nothing() {\n  ret void\n}\n"
    code = compile_together(list(texts.values()) or [empty], LEVELS[level])
    write_whole(folder / f"code.{level}.o", code)
    write_whole(folder / f"plan.{level}", plans_with(code))


def _has(graph: Graph, dtypes: Collection[str]) -> bool:
    """Whether anything in a graph, or in its loops and branches, is of such a type."""
    values = [*graph.inputs, *(y for node in graph.nodes for y in node.outputs)]
    if any(v.type.dtype.name in dtypes for v in values):
        return True
    bodies = (body for node in graph.nodes if isinstance(node.op, Control) for body in node.op.bodies())
    return any(_has(body.graph, dtypes) for body in bodies)


class _Weights:
    """The arrays that programs find outside of their arguments, by the names that the folder gives them."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.tensors = name, dict[str, Tensor]()
        self.contents: dict[str, Tensor] = {}  # with dimensions in the order of memory
        self.strides: dict[str, list[int]] = {}
        self.written: set[int] = set()  # by number
        self._names: dict[int, str] = {}  # by id
        self._numbers: dict[int, int] = {}
        self.look_at(function, "")
        self.look_at(getattr(function, "__self__", None), "")
        for key, x in _closure(function).items():
            self.look_at(x, key)

    def look_at(self, owner: Any, name: str) -> None:
        """Note the names of what may become a weight."""
        if isinstance(owner, Tensor):
            self._names.setdefault(id(owner), name)
        elif hasattr(owner, "named_parameters") and hasattr(owner, "named_buffers"):
            for key, x in (*owner.named_parameters(), *owner.named_buffers()):
                self._names.setdefault(id(x), key)

    def add(self, find: Find, shape: Sequence[int], strides: Sequence[int]) -> int:
        """The number of a program's input that is no argument. Raises NotImplementedError."""
        if find.kind != "object" or not isinstance(find.what, Tensor):
            raise NotImplementedError(
                f"export: {self.name} computes with parts of its arguments, or in Python"
            )
        x = find.what
        if find.window is not None or tuple(x.shape) != tuple(shape):
            raise NotImplementedError(
                f"export: {self.name} reads a part of an array that is no argument; copy it first"
            )
        if id(x) in self._numbers:
            return self._numbers[id(x)]
        order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))  # as it is in memory
        dense = [0] * x.ndim
        for d, stride in zip(order, row_major(tuple(shape[d] for d in order)), strict=True):
            dense[d] = stride
        if any(n > 1 and s != t for n, s, t in zip(shape, dense, strides, strict=True)):
            raise NotImplementedError(
                f"export: {self.name} reads an array with gaps, {x.dtype}{x.shape}; copy it first"
            )
        base = key = self._names.get(id(x), f"weight{len(self.tensors)}")
        while key in self.tensors:
            key = f"{base}.{len(self.tensors)}"
        number = self._numbers[id(x)] = len(self.tensors)
        self.tensors[key], self.strides[key] = x, dense
        self.contents[key] = x.permute_dims(order)
        return number


class _Variant:
    """One program as _core.exported_plans takes it."""

    def __init__(self, name: str, function: Callable[..., Any], program: Traced, weights: _Weights) -> None:
        self.name, self.program = name, program
        spec = program.spec
        if spec.guard or spec.effect or any(had for _, had in spec.gradients):
            raise GraphError(
                f"export: {name} depends on Python objects: numbers that it looked at, or gradients"
            )
        for _, key, value in spec.environment:
            if key is not None:
                weights.look_at(value, str(key))
        written = set(program.graph.writes.values())
        leaves, _ = program.example
        names = _names(function, *program.example)
        numbers_of_leaves = {}
        self.arguments: list[tuple[tuple[str, Any, list[int]], bool]] = []
        written_leaves = {spec.arrays[k].what for k in written if spec.arrays[k].kind == "leaf"}
        for k, leaf in enumerate(leaves):
            if not isinstance(leaf, Described) and type(leaf) is not float:
                continue
            numbers_of_leaves[k] = len(self.arguments)
            dtype, shape = (leaf.dtype, list(leaf.shape)) if isinstance(leaf, Described) else (FLOAT, [])
            self.arguments.append(((names[k], dtype, shape), k in written_leaves))
        self.inputs = []
        for k, (find, strides) in enumerate(zip(spec.arrays, program.strides, strict=True)):
            if find.kind == "leaf" and find.window is None:
                self.inputs.append(numbers_of_leaves[find.what])
                continue
            number = weights.add(find, program.graph.inputs[k].shape, strides)
            self.inputs.append(-1 - number)
            if k in written:
                weights.written.add(number)
        if any(find.kind != "leaf" for find in spec.numbers):
            raise NotImplementedError(f"export: {name} computes with its number arguments in Python")
        self.numbers = [numbers_of_leaves[find.what] for find in spec.numbers]
        self.results = [self._result(k, find) for k, find in enumerate(spec.results)]
        self.plan = self._plan(written)
        self._run_on_zeros(written)

    def _result(self, k: int, find: Find) -> tuple[tuple[str, Any, list[int]], bool, int]:
        graph, number = self.program.graph, find.what
        value = graph.outputs[number] if find.kind == "output" else None
        if find.kind in ("leaf", "object"):
            arrays = enumerate(self.program.spec.arrays)
            is_same = (lambda what: what == number) if find.kind == "leaf" else (lambda what: what is number)
            matches = (j for j, x in arrays if x.kind == find.kind and is_same(x.what) and x.window is None)
            number = next(matches, -1)
            value = None if number < 0 else graph.inputs[number]
        if value is None or find.window is not None:
            raise NotImplementedError(
                f"export: {self.name} returns something that is no array that it computed"
            )
        return (f"y{k}", value.type.dtype, list(value.shape)), find.kind != "output", number

    def _plan(self, written: set[int]) -> Any:
        """The program's plan, or one of its own: for a size of dynamic axes, so that weights are prepared once, as for
        exact sizes, and where BLAS may multiply.
        """
        program = self.program
        stable = program.stable_inputs or [
            k for k, find in enumerate(program.spec.arrays) if find.kind == "object" and k not in written
        ]
        if (program.stable_inputs or not stable) and not _has(program.graph, BLAS_TYPES):
            return program.plan
        return compile_graph(program.graph, self.name, program.strides, program.visible, stable_inputs=stable)

    def _run_on_zeros(self, written: set[int]) -> None:
        """Make the code of what is decided when steps run: all of it, on copies of what it writes.

        Raises NotImplementedError before that for a kernel that has no stored form, which zeros may not suit, either.
        """
        _core.exported_plans(self.name, "", b"", 0, [], [(self.plan, [], [], [], [])], lambda *_: "")
        spec, program = self.program.spec, self.program
        arrays = []
        for k, (find, value) in enumerate(zip(spec.arrays, program.graph.inputs, strict=False)):
            x = find.what if find.kind == "object" else _zeros(value.type, program.strides[k])
            arrays.append(x.copy() if find.kind == "object" and k in written else x)
        with _random_numbers_kept():
            _core.visit_plan(self.plan, arrays)


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    state = _core.get_generator(cpu(0))
    try:
        yield
    finally:
        _core.set_generator(cpu(0), *state)


def _zeros(array_type: Any, strides: Sequence[int]) -> Tensor:
    """Zeros with these strides, none of which is negative."""
    shape = array_type.shape
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
    x: Tensor = _core.window(zeros(extent, dtype=array_type.dtype), 0, shape, strides)
    return x


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function has of enclosing ones, by name."""
    found = {}
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # of a cell that is empty
            found[name] = cell.cell_contents
    return found


def _names(function: Callable[..., Any], leaves: Sequence[Any], structure: Structure) -> list[str]:
    """A name for each leaf: of its parameter, with its number where the argument has several."""
    args, kwargs = structure.build(list(range(len(leaves))))
    signature = inspect.signature(getattr(function, "forward", function))  # of a module
    parameters = [name for name, p in signature.parameters.items() if p.kind is not p.VAR_POSITIONAL]
    names = [""] * len(leaves)
    positional = [(parameters[k] if k < len(parameters) else f"x{k}", x) for k, x in enumerate(args)]
    for name, argument in (*positional, *kwargs.items()):
        numbers = flatten(argument)[0]
        for k, number in enumerate(numbers):
            names[number] = name if len(numbers) == 1 else f"{name}.{k}"
    return names


def arguments_of(function: Callable[..., Any], example: Arguments, shapes: Shapes) -> tuple[Any, Any]:
    """Positional and named arguments like those of a call, zeros, of which some arrays have other shapes.

    shapes: by the names of exported arguments. Raises ValueError for a name that is no array argument's.
    """
    leaves, structure = example
    names = _names(function, leaves, structure)
    arrays = {n for n, leaf in zip(names, leaves, strict=True) if isinstance(leaf, Described)}
    if unknown := [name for name in shapes if name not in arrays]:
        raise ValueError(
            f"export: sizes: there is no array {unknown[0]!r}; there are {', '.join(sorted(arrays))}"
        )
    args, kwargs = structure.build(
        [
            zeros(tuple(shapes.get(n, leaf.shape)), dtype=leaf.dtype, device=leaf.device)
            if isinstance(leaf, Described)
            else leaf
            for n, leaf in zip(names, leaves, strict=True)
        ]
    )
    return args, kwargs


def has_shapes(program: Traced, args: Any, kwargs: Any) -> bool:
    """Whether a program is for arrays of the types and shapes of these arguments."""
    expected = [(leaf.dtype, leaf.shape) for leaf in program.example[0] if isinstance(leaf, Described)]
    arrays = [x for x in flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    return expected == [(x.dtype.name, x.shape) for x in arrays]


def _offsets(path: Path) -> tuple[dict[str, int], int]:
    """Where each tensor of a safetensors file is, and the file's size."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    return {
        name: 8 + size + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"
    }, path.stat().st_size
