"""The commonest kernels, compiled when the package is built: which they are, and how they become object files.

Operators say for which types theirs are (`Op.aot_dtypes`), and what is compiled is what the planner makes of them.
native/bindings/make_ahead.py calls write() from the build. compile_kernel looks here first: what it finds needs
neither LLVM nor a file, so that a first `a + b` costs no more than printing its kernel.

>>> any("add(x0, x1)" in str(kernel) for kernel in kernels())
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.base.dtype import DType, as_dtype
from weft.executor.loop_code import LoopCode
from weft.executor.planner import copies_of, loops_of
from weft.expr.compiler import MAGIC, compile_together, key_of
from weft.expr.kernel import Kernel, Once
from weft.expr.llvm import print_kernel
from weft.graph.graph import Graph
from weft.ops import registry
from weft.ops.node import constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.sizes import input_size
from weft.ops.types import TensorType

__all__ = ["codes", "kernels", "write"]

NAME = "weft_ahead"
COPIED = ("bool", "int32", "int64", "float32", "float64")
TRANSPOSED = ("int8", "int16", "float32", "float64")  # copied with rows as columns: one type of each size
NUMBERS = (True, 1, 1.0)
SPACE = (input_size(1), input_size(0))


def kernels() -> Iterator[Kernel]:
    """The kernels of all codes, each in the patterns that arrays without gaps give."""
    for code in codes():
        for pattern in _patterns(code):
            yield code.kernel(*pattern)
    for dtype in TRANSPOSED:
        for code in _copies(dtype):
            yield code.kernel(2, 1, False, 0, "cu")


def codes() -> Iterator[LoopCode]:
    """What is compiled: the steps of the operators' calls, and those that the planner adds, copies and fills."""
    for name in registry.names():
        cls = registry.get(name)
        for dtype in cls.aot_dtypes:
            for types in _calls(cls, as_dtype(dtype)):
                yield from _loops(cls(), types)
    for dtype in COPIED:
        yield from _copies(dtype)
    for number in NUMBERS:
        yield from copies_of(input_value(constant(number).type))


def _calls(cls: type[Op], dtype: DType) -> Iterator[Sequence[TensorType]]:
    """The types of an operator's inputs: all of them arrays, and each in turn a Python number."""
    count = len(cls.inputs)
    array = TensorType(SPACE, dtype)
    number = constant(1.0 if dtype.is_floating else 1).type
    yield [array] * count
    for k in range(count if count > 1 else 0):
        yield [number if j == k else array for j in range(count)]


def _loops(op: Op, types: Sequence[TensorType]) -> list[LoopCode]:
    values = [input_value(t, f"x{k}") for k, t in enumerate(types)]
    outputs = make_node(op, values).outputs
    return loops_of(Graph(values, outputs[: len(outputs) - op.hidden]), op.name)


def _copies(dtype: str) -> list[LoopCode]:
    return copies_of(input_value(TensorType(SPACE, as_dtype(dtype))))


def _patterns(code: LoopCode) -> Iterator[tuple[int, int, bool, int, str]]:
    """(rank, row_rank, lanes, tile, inner) as native/program/loop.h has them, of arrays of up to two dimensions.

    Without rows all are contiguous, or one input is a single element. Rows: one or many, of neighbours or of columns.
    """
    inputs, outputs = "u" * code.inputs, "u" * (len(code.dtypes) - code.inputs)
    if not code.row_axes:
        yield 1, 1, False, -1, inputs + outputs
        for k in range(code.inputs if code.inputs > 1 else 0):
            yield 1, 1, False, -1, inputs[:k] + "z" + inputs[k + 1 :] + outputs
        return
    once = {s.operand for stage in code.stages if isinstance(stage, Once) for s in stage.stores}
    stored = "".join("z" if k in once else "u" for k in range(len(outputs)))
    yield 1, 1, False, -1, inputs + stored
    yield 2, 1, False, -1, inputs + stored
    yield 2, 1, True, -1, inputs + outputs


def write(folder: Path, levels: Sequence[str]) -> None:
    """Makes LEVEL.o for every level, a kind of processor as LLVM names it, and their table, table.cpp.

    native/bindings/ahead.cpp reads it. What is there and would not change is left as it is, so that the build has
    nothing to do after it.
    """
    texts: dict[int, str] = {}
    for kernel in kernels():
        text = print_kernel(kernel)
        # Hidden: only the table refers to them.
        hidden = text.replace(f"define void @{kernel.name}(", f"define hidden void @{NAME}(", 1)
        texts[key_of(text, kernel.name)] = hidden
    objects = {level: folder / f"{level}.o" for level in levels}
    table, lines = folder / "table.cpp", _table(sorted(texts), levels)
    if table.exists() and table.read_text() == lines and all(path.exists() for path in objects.values()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for level, path in objects.items():
        sources = [text.replace(f"@{NAME}(", f"@{_symbol(level, key)}(", 1) for key, text in texts.items()]
        path.write_bytes(compile_together(sources, level))
    table.write_text(lines)  # last: it says that the objects are there


def _symbol(level: str, key: int) -> str:
    return f"{NAME}_{level.replace('-', '_')}_{key:016x}"


def _table(keys: Sequence[int], levels: Sequence[str]) -> str:
    lines = [
        f"// Written by weft.executor.aot for {MAGIC.decode().strip()}.",
        '#include "bindings/ahead.h"',
        "",
        'extern "C" {',
        *(
            f'[[gnu::visibility("hidden")]] weft::AheadFunction {_symbol(level, key)};'
            for level in levels
            for key in keys
        ),
        "}",
        "",
        "namespace weft {",
    ]
    entries = []
    for number, level in enumerate(levels):
        rows = ", ".join(f"{{0x{key:016x}u, {_symbol(level, key)}}}" for key in keys)
        lines.append(f"static const AheadKernel level_{number}[] = {{{rows}}};")
        entries.append(f'{{"{level}", level_{number}, {len(keys)}}}, ')
    lines += [
        "",
        f"const AheadLevel ahead_levels[] = {{{''.join(entries)}{{nullptr, nullptr, 0}}}};",
        "}  // namespace weft",
        "",
    ]
    return "\n".join(lines)
