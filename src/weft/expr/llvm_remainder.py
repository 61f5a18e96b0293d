"""The remainder of C's fmod as functions of LLVM IR, exact to the last bit: one for a number, others for vectors.

LLVM has a call of the C library for every element of frem. The functions here reduce |x| by multiples of |y| until less
than |y| is left. A turn takes a quotient q = |x| / d, rounded, of a divisor d = |y| 2^k:

* If q < 2^p, where p is the number of digits of the type, t = trunc(q) is the whole quotient or one more, since whole
  numbers up to 2^p are numbers of the type and rounding is monotonic. So |x| - t d is between -d and d, and a multiple
  of the last digit of d or of x, whichever is less: a number of the type, which one fma gives without rounding.
  Adding d to a negative one is exact for the same reason.
* If not, d becomes larger by the power of two that leaves p - 2 digits of the quotient or more. It stays at most |x|.

Nearly all pairs take one turn. A vector takes turns until all of its elements are less than |y|; a turn leaves those
that are as they are, because their quotient is 0. Infinite x, y = 0 and NaN would never end, and take no part.

Processors without fma: float32 is computed in float64, which holds products of 28 digits of quotient by 24 without
rounding. float64 calls the C library.
"""

from __future__ import annotations

from string import Template
from typing import NamedTuple

__all__ = ["remainder_definitions"]

_LANES = (2, 4, 8, 16)


class _Format(NamedTuple):
    """A type to compute in, of LLVM. digits: of quotients in one turn."""

    kind: str
    word: str
    mantissa: int
    bias: int
    suffix: str
    digits: int


_FLOAT = _Format("float", "i32", 23, 127, "f32", 24)
_DOUBLE = _Format("double", "i64", 52, 1023, "f64", 53)
_DOUBLE_OF_FLOATS = _Format("double", "i64", 52, 1023, "f64", 28)

_BODY = Template("""
define $linkage $outer @$name($outer %x.outer, $outer %y.outer) $attributes {
entry:
  $widened
  %ax = call $v @llvm.fabs.$m($v %x)
  %ay = call $v @llvm.fabs.$m($v %y)
  %finite = fcmp olt $v %ax, $infinity
  %divides = fcmp ogt $v %ay, $zero
  %valid = and $b %finite, %divides
  %smaller = fcmp olt $v %ax, %ay
  %r.first = select $b %valid, $v %ax, $v $zero
  %d.first = select $b %valid, $v %ay, $v $one
  br label %turn
turn:
  %r = phi $v [ %r.first, %entry ], [ %r.next, %turn ]
  %d = phi $v [ %d.first, %entry ], [ %d.next, %turn ]
  %q = fdiv $v %r, %d
  %large = fcmp oge $v %q, $limit
  %t = call $v @llvm.trunc.$m($v %q)
  $reduced
  %negative = fcmp olt $v %left, $zero
  %above = fadd $v %left, %d
  %least = select $b %negative, $v %above, $v %left
  %r.next = select $b %large, $v %r, $v %least
  %q.bits = bitcast $v %q to $w
  %q.exponent = and $w %q.bits, $exponent
  %scale.bits = sub $w %q.exponent, $kept
  %scale = bitcast $w %scale.bits to $v
  %d.scaled = fmul $v %d, %scale
  %d.next = select $b %large, $v %d.scaled, $v %d.first
  %more.each = fcmp oge $v %r.next, %d.first
  $any
  br i1 %more, label %turn, label %done
done:
  %size = select $b %smaller, $v %ax, $v %r.next
  %signed = call $v @llvm.copysign.$m($v %size, $v %x)
  %all = select $b %valid, $v %signed, $v $nan
  $narrowed
}
""")
_ATTRIBUTES = "noinline nounwind willreturn memory(none)"


def _function(dtype: str, form: _Format, fma: bool, lanes: int) -> str:
    """The definition for a number, or for a vector of lanes, and what it declares."""
    name = _name(dtype, lanes)
    v, w, b, outer = (
        f"<{lanes} x {kind}>" if lanes else kind
        for kind in (form.kind, form.word, "i1", {"float32": "float", "float64": "double"}[dtype])
    )
    m = f"v{lanes}{form.suffix}" if lanes else form.suffix

    def constant(value: int, word: bool = False) -> str:
        kind = form.word if word else form.kind
        text = str(value) if word else f"bitcast ({form.word} {value} to {form.kind})"
        return f"splat ({kind} {text})" if lanes else text

    def power(k: int) -> str:
        return constant(form.bias + k << form.mantissa)

    wide = v != outer
    widened = [f"%{n} = {'fpext' if wide else 'select i1 true,'} {outer} %{n}.outer" for n in "xy"]
    if wide:
        widened = [f"{line} to {v}" for line in widened]
    else:
        widened = [f"{line}, {v} %{n}.outer" for line, n in zip(widened, "xy", strict=True)]
    reduced = (
        [f"%minus = fneg {v} %t", f"%left = call {v} @llvm.fma.{m}({v} %minus, {v} %d, {v} %r)"]
        if fma
        else [f"%product = fmul {v} %t, %d", f"%left = fsub {v} %r, %product"]
    )
    any_more = (
        f"%more = call i1 @llvm.vector.reduce.or.v{lanes}i1({b} %more.each)"
        if lanes
        else "%more = select i1 true, i1 %more.each, i1 false"
    )
    narrowed = [f"%short = fptrunc {v} %all to {outer}", f"ret {outer} %short"] if wide else [f"ret {v} %all"]
    variants = ",".join(f"_ZGV_LLVM_N{n}vv_{_name(dtype, 0)}({_name(dtype, n)})" for n in _LANES)
    exponent = (2 * form.bias + 1) << form.mantissa
    return (
        _BODY.substitute(
            name=name,
            linkage="internal",
            attributes=_ATTRIBUTES + ("" if lanes else f' "vector-function-abi-variant"="{variants}"'),
            outer=outer,
            v=v,
            w=w,
            b=b,
            m=m,
            widened="\n  ".join(widened),
            reduced="\n  ".join(reduced),
            any=any_more,
            narrowed="\n  ".join(narrowed),
            infinity=constant(exponent),
            nan=constant(exponent | 1 << form.mantissa - 1),
            zero=constant(0),
            one=power(0),
            limit=power(form.digits),
            exponent=constant(exponent, word=True),
            kept=constant(form.digits - 2 << form.mantissa, word=True),
        )
        + "".join(
            f"declare {result} @llvm.{op}.{m}({', '.join([v] * n)})\n"
            for op, result, n in (
                ("fabs", v, 1),
                ("trunc", v, 1),
                ("copysign", v, 2),
                *([("fma", v, 3)] if fma else []),
            )
        )
        + (f"declare i1 @llvm.vector.reduce.or.v{lanes}i1({b})\n" if lanes else "")
    )


def remainder_definitions(text: str, fma: bool, vectors: bool) -> str:
    """The definitions of the functions remainder_float32 and remainder_float64 that a kernel calls.

    fma: the processor has the instruction. vectors: LLVM is to make vectors of loops that call them; it finds the
    functions for these by an attribute.
    """
    parts = []
    for dtype, form in (("float32", _FLOAT if fma else _DOUBLE_OF_FLOATS), ("float64", _DOUBLE)):
        if f"@{_name(dtype)}(" not in text:
            continue
        if dtype == "float64" and not fma:
            parts.append(_BY_LIBRARY)
            continue
        parts += [_function(dtype, form, fma, n) for n in (0, *(_LANES if vectors else ()))]
    if not vectors or not any("vector.reduce" in part for part in parts):
        return _joined(text, parts)
    used = [
        f"ptr @{_name(d, n)}" for d in _OUTER for n in _LANES if any(f"@{_name(d, n)}(" in p for p in parts)
    ]
    # LLVM would delete them before it looks for them.
    return _joined(text, parts) + (
        f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}], "
        'section "llvm.metadata"\n'
    )


_OUTER = {"float32": "float", "float64": "double"}
_BY_LIBRARY = """
define internal double @remainder_float64(double %x, double %y) alwaysinline nounwind {
  %r = frem double %x, %y
  ret double %r
}
"""


def _name(dtype: str, lanes: int = 0) -> str:
    return f"remainder_{dtype}" + (f"_x{lanes}" if lanes else "")


def _joined(text: str, parts: list[str]) -> str:
    """The parts without declarations that the text or another part has, which LLVM refuses."""
    lines = "\n".join(parts).splitlines()
    declared = dict.fromkeys(line for line in lines if line.startswith("declare "))
    for line in text.splitlines():
        declared.pop(line, None)
    return "\n".join([*(line for line in lines if not line.startswith("declare ")), *declared, ""])
