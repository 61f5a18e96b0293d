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

import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import _core
from weft.arrays.creation import zeros
from weft.arrays.serialization import save
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.base.structure import Structure, flatten
from weft.executor.buffers import row_major
from weft.expr.compiler import LEVELS, compile_together, key_of, write_whole
from weft.expr.llvm import print_kernel
from weft.traces.export import Described
from weft.traces.traced import Traced

if TYPE_CHECKING:
    from weft._core import Find

__all__ = ["export_native"]

WEIGHTS = "weights.safetensors"


def export_native(
    path: str | os.PathLike[str],
    name: str,
    function: Callable[..., Any],
    run: Callable[..., Any],
    programs: Sequence[Any],
) -> None:
    """Write the one program of a traced function for the level of instructions that this process uses.

    run: the traced function. The folder is made if it is not there; what it has for other levels stays, and has to be
    of the same weights. Raises GraphError, or NotImplementedError for what the native runtime lacks.
    """
    if len(programs) != 1 or not isinstance(programs[0], Traced):
        raise GraphError(
            f"export: {name}: a native folder holds one program of exact sizes, there are"
            f" {len(programs)}{'' if len(programs) != 1 else ' with dynamic axes'}: trace one kind of call"
        )
    program = programs[0]
    spec = program.spec
    if spec.guard or spec.effect or any(had for _, had in spec.gradients):
        raise GraphError(f"export: {name} depends on Python objects: numbers that it looked at, or gradients")
    if spec.numbers:
        raise GraphError(f"export: {name} takes Python numbers: pass arrays of no dimensions instead")
    if program.graph.writes:
        raise NotImplementedError(f"export: {name} changes arrays, which native programs cannot do yet")
    weights: dict[str, Tensor] = {}
    names = _names(function, *program.example)
    inputs = [
        _input(name, find, value.type, strides, names, weights)
        for find, value, strides in zip(spec.arrays, program.graph.inputs, program.strides, strict=True)
    ]
    results = _results(name, program)
    _run_on_zeros(program, run)  # makes the code of what is decided when a step runs
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / WEIGHTS, weights)
    offsets, weights_bytes = _offsets(folder / WEIGHTS)
    placed = [(*x[:4], offsets[x[4]] if x[4] is not None else -1) for x in inputs]
    level = _core.isa()[1]
    texts: dict[str, str] = {}

    def symbol_of(compile_pattern: Any, *pattern: Any) -> str:
        kernel = compile_pattern.__self__.kernel(*pattern)
        text = print_kernel(kernel)
        symbol = f"loop_{key_of(text, kernel.name):016x}"
        texts[symbol] = text.replace(f"@{kernel.name}(", f"@{symbol}(", 1)
        return symbol

    def plan_with(code: bytes) -> bytes:
        plan: bytes = _core.exported_plan(
            program.plan, level, code, weights_bytes, placed, results, symbol_of
        )
        return plan

    plan_with(b"")  # collects the texts
    empty = "define void @nothing() {\n  ret void\n}\n"
    code = compile_together(list(texts.values()) or [empty], LEVELS[level])
    write_whole(folder / f"code.{level}.o", code)
    write_whole(folder / f"plan.{level}", plan_with(code))


def _run_on_zeros(program: Traced, run: Callable[..., Any]) -> None:
    """Run the program on arguments of the kinds of its first call."""
    leaves, structure = program.example
    args, kwargs = structure.build(
        [
            zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device) if isinstance(leaf, Described) else leaf
            for leaf in leaves
        ]
    )
    for result in flatten(run(*args, **kwargs))[0]:
        if isinstance(result, Tensor):
            result.numpy()


def _names(function: Callable[..., Any], leaves: Sequence[Any], structure: Structure) -> list[str]:
    """A name for each leaf: of its parameter, with its number where the argument has several."""
    args, kwargs = structure.build(list(range(len(leaves))))
    parameters = list(inspect.signature(function).parameters) if callable(function) else []
    names = [""] * len(leaves)
    positional = [(parameters[k] if k < len(parameters) else f"x{k}", x) for k, x in enumerate(args)]
    for name, argument in (*positional, *kwargs.items()):
        numbers = flatten(argument)[0]
        for k, number in enumerate(numbers):
            names[number] = name if len(numbers) == 1 else f"{name}.{k}"
    return names


def _input(
    name: str,
    find: Find,
    value_type: Any,
    strides: Sequence[int],
    names: Sequence[str],
    weights: dict[str, Tensor],
) -> tuple[str, Any, list[int], list[int], str | None]:
    """(name, dtype, shape, strides, name of the weight) of an input; None: an argument."""
    shape, dtype = list(value_type.shape), value_type.dtype
    if find.kind == "leaf" and find.window is None:
        return names[find.what], dtype, shape, list(strides), None
    if find.kind != "object" or not isinstance(find.what, Tensor):
        raise NotImplementedError(f"export: {name} computes with parts of its arguments, or in Python")
    x = find.what
    if find.window is not None or tuple(x.shape) != tuple(shape):
        raise NotImplementedError(
            f"export: {name} reads a part of an array that is no argument; copy it first"
        )
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))  # as it is in memory
    key = f"weight{len(weights)}"
    weights[key] = x.permute_dims(order)
    dense = [0] * x.ndim
    for d, stride in zip(order, row_major(tuple(shape[d] for d in order)), strict=True):
        dense[d] = stride
    if any(n > 1 and s != t for n, s, t in zip(shape, dense, strides, strict=True)):
        raise NotImplementedError(
            f"export: {name} reads an array with gaps, {x.dtype}{x.shape}; copy it first"
        )
    return key, dtype, shape, list(strides), key


def _results(name: str, program: Traced) -> list[tuple[str, int, Any, list[int]]]:
    results = []
    for k, find in enumerate(program.spec.results):
        if find.kind != "output" or find.window is not None:
            raise NotImplementedError(f"export: {name} returns something that is no array that it computed")
        value = program.graph.outputs[find.what]
        assert value is not None
        results.append((f"y{k}", find.what, value.type.dtype, list(value.type.shape)))
    return results


def _offsets(path: Path) -> tuple[dict[str, int], int]:
    """Where each tensor of a safetensors file is, and the file's size."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    return {
        name: 8 + size + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"
    }, path.stat().st_size
