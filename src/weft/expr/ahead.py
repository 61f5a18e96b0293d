"""The commonest kernels, compiled when the package is built: their list, and how they become object files.

native/bindings/make_ahead.py calls write() from the build. compile_kernel looks here first: what it finds needs neither
LLVM nor a file, so that a first `a + b` costs no more than printing its kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from weft.expr.compiler import compile_together, key_of
from weft.expr.functions import expand
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import Scalar, call, load, maximum, parameter, result

__all__ = ["kernels", "write"]

NAME = "weft_ahead"


def kernels() -> Iterator[Kernel]:
    """Elementwise arithmetic, comparisons, some functions, copies, fills, sums and maxima; along one loop.

    Transposed copies of types of four sizes, two loops.

    With operands one after the other, or one of them a scalar ("zero").
    """
    both = [("unit", "unit"), ("unit", "zero"), ("zero", "unit")]
    for dtype in ("float32", "float64", "int64"):
        x, y = load(0, dtype), load(1, dtype)
        for value in (x + y, x - y, x * y, x / y):
            for inner in both:
                yield _pointwise(value, dtype, inner)
    for dtype in ("float32", "int64"):
        x, y = load(0, dtype), load(1, dtype)
        for value in (x < y, x <= y, x > y, x >= y, x == y, x != y):
            for inner in both[:2]:
                yield _pointwise(value, dtype, inner)
    x = load(0, "float32")
    for value in (
        maximum(x, 0),
        -x,
        abs(x),
        *(call(name, x) for name in ("sqrt", "exp", "log", "tanh", "sigmoid")),
    ):
        yield _pointwise(value, "float32", ["unit"])
    for dtype in ("bool", "int32", "int64", "float32", "float64"):
        yield _pointwise(load(0, dtype), dtype, ["unit"])
        yield _pointwise(parameter(0, dtype), dtype, [])
    for dtype in ("int8", "int16", "float32", "float64"):  # transposed copies
        operands = Operand(dtype, "cross"), Operand(dtype)
        yield Kernel(NAME, 2, operands, (Each((Store(1, load(0, dtype)),)),), cross=0)
    for op, start in (("sum", 0.0), ("max", float("-inf"))):
        for rank in (1, 2):
            stages = (Fold((Reduction(0, op, x, start),)), Once((Store(1, result(0, "float32")),)))
            yield Kernel(NAME, rank, (Operand("float32"), Operand("float32", "zero")), stages)


def _pointwise(value: Scalar, dtype: str, inner: list[str] | tuple[str, ...]) -> Kernel:
    known: dict[str, Literal["unit", "zero"]] = {"unit": "unit", "zero": "zero"}
    operands = (*(Operand(dtype, known[how]) for how in inner), Operand(value.dtype))
    return Kernel(NAME, 1, operands, (Each((Store(len(inner), expand(value)),)),))


def write(folder: Path, levels: tuple[str, ...]) -> None:
    """Makes LEVEL.o for every level, a kind of processor as LLVM names it, and the table of what is in them.

    The table is table.cpp, for native/bindings/ahead.cpp.
    """
    texts = {key_of(text, NAME): text for text in map(print_kernel, kernels())}
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["// Written by weft.expr.ahead.", '#include "bindings/ahead.h"', "", 'extern "C" {']
    tables = []
    for level in levels:
        prefix = f"{NAME}_{level.replace('-', '_')}"
        names = {key: f"{prefix}_{key:016x}" for key in sorted(texts)}
        # Hidden: only the table knows them.
        renamed = [
            texts[key].replace(f"define void @{NAME}(", f"define hidden void @{names[key]}(", 1)
            for key in names
        ]
        (folder / f"{level}.o").write_bytes(compile_together(renamed, level))
        lines += [f'[[gnu::visibility("hidden")]] weft::AheadFunction {name};' for name in names.values()]
        rows = ", ".join(f"{{0x{key:016x}u, {name}}}" for key, name in names.items())
        tables += [f"static const AheadKernel {prefix}[] = {{{rows}}};"]
    lines += ["}", "", "namespace weft {", *tables, ""]
    entries = [f'{{"{level}", {NAME}_{level.replace("-", "_")}, {len(texts)}}}' for level in levels]
    lines.append(f"const AheadLevel ahead_levels[] = {{{', '.join([*entries, '{nullptr, nullptr, 0}'])}}};")
    lines += ["}  // namespace weft", ""]
    (folder / "table.cpp").write_text("\n".join(lines))
