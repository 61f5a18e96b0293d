"""Values in registers that are computed with as in Python: each operator emits instructions.

For code that is written for its operands (weft.expr.llvm_matrices), where an expression of weft.expr.scalar for each
step would hide what the steps are. Types are real and complex floats, "int64" and "bool".
"""

from __future__ import annotations

import functools

from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_values import binary, cast, compare, number, unary
from weft.expr.llvm_writer import llvm_type
from weft.expr.scalar import COMPLEX

__all__ = ["Register", "less_product", "where"]


@functools.cache
def _quotient(dtype: str) -> e.Scalar:
    return expand(e.result(0, dtype) / e.result(1, dtype))


class Register:
    """A value of a function that is being written.

    The other operand of an operator is a register of the same type or a number of Python; of * and / also one of the
    type of a complex number's parts. `same` and `differs` compare.
    """

    def __init__(self, f: Function, dtype: str, text: str) -> None:
        self.f, self.dtype, self.text = f, dtype, text

    @property
    def kind(self) -> str:
        """The type as LLVM writes it."""
        return llvm_type(self.dtype)

    def like(self, value: Any) -> Register:
        """A number as a register of this type; a register as it is."""
        if isinstance(value, Register):
            if value.dtype != self.dtype:
                raise TypeError(f"registers of {self.dtype} and {value.dtype}")
            return value
        return Register(self.f, self.dtype, number(value, self.dtype))

    def cast(self, dtype: str) -> Register:
        return Register(self.f, dtype, cast(self.f, self.text, self.dtype, dtype))

    # Parts of complex numbers; of real ones they are the number, and 0.

    @property
    def real(self) -> Register:
        if self.dtype not in COMPLEX:
            return self
        return Register(self.f, COMPLEX[self.dtype], self.f.part(self.dtype, self.text, 0))

    @property
    def imag(self) -> Register:
        if self.dtype not in COMPLEX:
            return self.like(0)
        return Register(self.f, COMPLEX[self.dtype], self.f.part(self.dtype, self.text, 1))

    @property
    def parts(self) -> list[Register]:
        """The real and the imaginary part, or the number alone."""
        return [self.real, self.imag] if self.dtype in COMPLEX else [self]

    def of_parts(self, *parts: Register) -> Register:
        """A number of this type."""
        if self.dtype not in COMPLEX:
            return parts[0]
        return Register(self.f, self.dtype, self.f.pair(self.dtype, parts[0].text, parts[1].text))

    def conj(self) -> Register:
        return self.of_parts(self.real, -self.imag) if self.dtype in COMPLEX else self

    # Arithmetic.

    def _binary(self, op: str, a: Any, b: Any) -> Register:
        a, b = self.like(a), self.like(b)
        if self.dtype in COMPLEX:
            return self.of_parts(*(x._binary(op, x, y) for x, y in zip(a.parts, b.parts, strict=True)))
        return Register(self.f, self.dtype, binary(self.f, op, self.dtype, a.text, b.text))

    def __add__(self, other: Any) -> Register:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Register:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Register:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Register:
        return self._binary("sub", other, self)

    def __neg__(self) -> Register:
        return self.of_parts(
            *(Register(self.f, x.dtype, unary(self.f, "neg", x.dtype, x.text)) for x in self.parts)
        )

    def _scales(self, other: Any) -> bool:
        return isinstance(other, Register) and COMPLEX.get(self.dtype) == other.dtype

    def __mul__(self, other: Any) -> Register:
        if self._scales(other):
            return self.of_parts(*(x * other for x in self.parts))
        if self.dtype not in COMPLEX:
            return self._binary("mul", self, other)
        return Register(
            self.f, self.dtype, self.f.complex_product(self.dtype, self.text, self.like(other).text)
        )

    def __rmul__(self, other: Any) -> Register:
        return self * other

    def __truediv__(self, other: Any) -> Register:
        if self._scales(other):
            return self.of_parts(*(x / other for x in self.parts))
        if self.dtype not in COMPLEX:
            return self._binary("div", self, other)
        f = self.f
        f.results.update({0: self.text, 1: self.like(other).text})
        return Register(f, self.dtype, Values(f, f.bases, [], "0", "")[_quotient(self.dtype)])

    def __rtruediv__(self, other: Any) -> Register:
        return self.like(other) / self

    def sqrt(self) -> Register:
        return Register(self.f, self.dtype, unary(self.f, "sqrt", self.dtype, self.text))

    def __abs__(self) -> Register:
        """Of a real number."""
        return Register(self.f, self.dtype, unary(self.f, "abs", self.dtype, self.text))

    def with_sign_of(self, other: Register) -> Register:
        return self._binary("copysign", self, other)

    # Comparisons and truths.

    def _compare(self, op: str, other: Any) -> Register:
        return Register(self.f, "bool", compare(self.f, op, self.dtype, self.text, self.like(other).text))

    def __lt__(self, other: Any) -> Register:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Register:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Register:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Register:
        return self._compare("ge", other)

    def same(self, other: Any) -> Register:
        """self == other."""
        if self.dtype in COMPLEX:
            x, y = self.like(other), self
            return x.real.same(y.real) & x.imag.same(y.imag)
        return self._compare("eq", other)

    def differs(self, other: Any) -> Register:
        return ~self.same(other)

    def _logical(self, op: str, other: Any) -> Register:
        return Register(
            self.f, self.dtype, self.f.emit(f"{op} {self.kind} {self.text}, {self.like(other).text}")
        )

    def __and__(self, other: Any) -> Register:
        return self._logical("and", other)

    def __or__(self, other: Any) -> Register:
        return self._logical("or", other)

    def __rshift__(self, bits: int) -> Register:
        """Of a number that is not negative."""
        return self._logical("lshr", bits)

    def __invert__(self) -> Register:
        return self._logical("xor", True if self.dtype == "bool" else -1)


def where(condition: Register, a: Register, b: Any) -> Register:
    """a where the condition holds, else b."""
    f, b = a.f, a.like(b)
    text = f.emit(f"select i1 {condition.text}, {a.kind} {a.text}, {a.kind} {b.text}")
    return Register(f, a.dtype, text)


def less_product(x: Register, a: Register, b: Register) -> Register:
    """x - a b, rounded once for each product of real numbers."""
    f = x.f
    if x.dtype in COMPLEX:
        re = less_product(less_product(x.real, a.real, b.real), -a.imag, b.imag)
        im = less_product(less_product(x.imag, a.real, b.imag), a.imag, b.real)
        return x.of_parts(re, im)
    arguments = [(-a).text, b.text, x.text]
    if x.dtype == "float32":
        text = f.emit(f"call float @fma_float32({', '.join(f'float {y}' for y in arguments)})")
        return Register(f, x.dtype, text)
    return Register(f, x.dtype, f.intrinsic("fma", x.dtype, arguments))
