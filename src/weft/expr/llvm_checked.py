"""Checked kernels, for tests: each load and store of a kernel's function tests its bounds first, and ends the process.

What a function may touch follows from its arguments: of each operand the bytes from the least to the greatest position
of its loops, and its own arrays on the stack. A load may touch any of these, a store only operands that the kernel
writes. An operand with gathered dimensions, whose sizes the function is not given, may be read anywhere. So a wrong
stride, a wrong number of turns, or a vector that reaches beyond a row is found where it happens; without sanitizers,
whose code LLVM would have to put in.

The calls of the test keep LLVM from making vectors of loops: what is checked is what is printed.
"""

from __future__ import annotations

import re

from weft.expr.kernel import Each, Once, Scan
from weft.expr.llvm_function import Function
from weft.expr.scalar import BITS

__all__ = ["check"]

BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "float": 4, "double": 8}
ACCESS = re.compile(r"  (?:%\S+ = (load)|(store)) (<(\d+) x (\w+)>|\w+)[ ,].*?ptr (%[\w.]+)")
ARRAY = re.compile(r"  (%\w+) = alloca \[(\d+) x (\w+)\]")

TEST = """@outside = internal constant [{length} x i8] c"{text}\\0A\\00"
declare i32 @dprintf(i32, ptr, ...)
declare void @abort()
define internal void @check_bounds(ptr %p, i64 %bytes, ptr %ranges, i64 %count) noinline {{
entry:
  %begin = ptrtoint ptr %p to i64
  %end = add i64 %begin, %bytes
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %bad
body:
  %at = shl i64 %k, 1
  %low_at = getelementptr i64, ptr %ranges, i64 %at
  %low = load i64, ptr %low_at
  %high_at = getelementptr i8, ptr %low_at, i64 8
  %high = load i64, ptr %high_at
  %after = icmp uge i64 %begin, %low
  %before = icmp ule i64 %end, %high
  %inside = and i1 %after, %before
  br i1 %inside, label %good, label %latch
latch:
  %next = add i64 %k, 1
  br label %head
good:
  ret void
bad:
  %printed = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @outside, i64 %bytes, ptr %p)
  call void @abort()
  unreachable
}}"""


def check(f: Function, arguments: int) -> None:
    """Makes the function a checked one; arguments: how many of its lines read its arguments."""
    code, f.lines = f.lines[arguments:], f.lines[:arguments]
    written = {
        store.operand
        for stage in f.kernel.stages
        if isinstance(stage, Each | Once | Scan)
        for store in stage.stores
    }
    order = sorted(range(len(f.bases)), key=lambda k: k not in written)
    ranges = [_array_range(f, text) for text in f.arrays]
    writable = len(ranges) + len(written)
    ranges += [_operand_range(f, k) for k in order]
    name = f"%array{len(f.arrays)}"
    f.arrays.append(f"  {name} = alloca [{2 * len(ranges)} x i64], align 64")
    for k, limits in enumerate(ranges):
        for side, limit in enumerate(limits):
            f.lines.append(f"  store i64 {limit}, ptr {f.offset(name, 8 * (2 * k + side))}")
    for line in code:
        access = ACCESS.match(line)
        if access is not None:
            size = BYTES[access[5]] * int(access[4]) if access[4] else BYTES[access[3]]
            count = writable if access[2] else len(ranges)
            f.lines.append(f"  call void @check_bounds(ptr {access[6]}, i64 {size}, ptr {name}, i64 {count})")
        f.lines.append(line)
    text = f"weft: {f.kernel.name}: outside of its operands: %ld bytes at %p"
    f.declared["check_bounds"] = TEST.format(text=text, length=len(text) + 2)


def _array_range(f: Function, text: str) -> tuple[str, str]:
    array = ARRAY.match(text)
    assert array is not None, text
    begin = f.emit(f"ptrtoint ptr {array[1]} to i64")
    return begin, f.emit(f"add i64 {begin}, {int(array[2]) * BYTES[array[3]]}")


def _operand_range(f: Function, k: int) -> tuple[str, str]:
    """From the least to behind the greatest position of the loops, as addresses."""
    operand = f.kernel.operands[k]
    if operand.gathered:
        return "0", "-1"
    low = high = f.emit(f"ptrtoint ptr {f.bases[k]} to i64")
    for side in ("smin", "smax"):
        f.declared[f"llvm.{side}.i64"] = f"declare i64 @llvm.{side}.i64(i64, i64)"
    for size, stride in zip(f.sizes, f.strides[k], strict=True):
        reach = f.emit(f"mul i64 {f.emit(f'sub i64 {size}, 1')}, {stride}")
        low = f.emit(f"add i64 {low}, {f.emit(f'call i64 @llvm.smin.i64(i64 {reach}, i64 0)')}")
        high = f.emit(f"add i64 {high}, {f.emit(f'call i64 @llvm.smax.i64(i64 {reach}, i64 0)')}")
    return low, f.emit(f"add i64 {high}, {max(8, BITS[operand.dtype]) // 8}")
