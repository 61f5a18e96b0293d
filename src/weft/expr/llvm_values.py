"""Operations on values in registers, as instructions of LLVM IR."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection

from weft.expr.llvm_writer import Writer, llvm_type
from weft.expr.scalar import BITS, COMPLEX, FLOATS, UNARY, UNSIGNED

__all__ = [
    "BY_PROCESSOR",
    "binary",
    "cast",
    "combine_vectors",
    "compare",
    "definitions",
    "from_memory",
    "number",
    "splat",
    "to_memory",
    "unary",
]

_BINARY_FLOAT = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "product": "fmul contract",
    "div": "fdiv",
}
_BINARY_INTEGER = ("add", "sub", "mul", "and", "or", "xor", "shl")


def number(value: float | int | bool, dtype: str) -> str:
    """A constant as LLVM writes it; floats rounded to their type."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "bfloat16":
        word = struct.unpack("<I", _packed("<f", value))[0]
        if math.isnan(value):
            return str(0x7FC0)
        return str(((word + 0x7FFF + (word >> 16 & 1)) >> 16) - (1 << 16 if word >> 31 else 0))
    if dtype == "float16":
        return f"0xH{struct.unpack('<H', _packed('<e', value))[0]:04X}"
    if dtype in FLOATS:  # a float is written as the double of the same value
        if dtype == "float32":
            value = struct.unpack("<f", _packed("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype in COMPLEX:
        part, z = COMPLEX[dtype], complex(value)
        return f"{{ {llvm_type(part)} {number(z.real, part)}, {llvm_type(part)} {number(z.imag, part)} }}"
    return str(int(value))


def _packed(code: str, value: float) -> bytes:
    try:
        return struct.pack(code, value)
    except OverflowError:  # rounds to infinity
        return struct.pack(code, math.copysign(math.inf, value))


def from_memory(f: Writer, dtype: str, raw: str) -> str:
    """What was loaded, as a value: any byte but 0 is true."""
    return f.emit(f"icmp ne i8 {raw}, 0") if dtype == "bool" else raw


def to_memory(f: Writer, dtype: str, value: str) -> str:
    """A value as it is stored: bool as a byte."""
    return f.emit(f"zext i1 {value} to i8") if dtype == "bool" else value


def compare(f: Writer, op: str, dtype: str, a: str, b: str) -> str:
    """A comparison; with NaN all but ne are false."""
    kind = llvm_type(dtype)
    if dtype in FLOATS:
        return f.emit(f"fcmp {'une' if op == 'ne' else f'o{op}'} {kind} {a}, {b}")
    sign = "" if op in ("eq", "ne") else "u" if dtype in UNSIGNED or dtype == "bool" else "s"
    return f.emit(f"icmp {sign}{op} {kind} {a}, {b}")


def unary(f: Writer, op: str, dtype: str, a: str) -> str:
    """An operation of UNARY on one value."""
    kind = llvm_type(dtype)
    if op == "neg":
        return f.emit(f"fneg {kind} {a}" if dtype in FLOATS else f"sub {kind} 0, {a}")
    if op == "not":
        return f.emit(f"xor {kind} {a}, {'true' if dtype == 'bool' else -1}")
    if op == "abs" and dtype not in FLOATS:
        if dtype in UNSIGNED or dtype == "bool":
            return a
        f.declared[f"llvm.abs.{kind}"] = f"declare {kind} @llvm.abs.{kind}({kind}, i1)"
        return f.emit(f"call {kind} @llvm.abs.{kind}({kind} {a}, i1 false)")
    if dtype not in FLOATS:
        if op in ("rint", "floor", "ceil", "trunc"):
            return a
        raise NotImplementedError(f"{op} of {dtype}")
    if op not in UNARY:
        raise NotImplementedError(f"{op} has not been expanded: weft.expr.functions.expand does that")
    return f.intrinsic("fabs" if op == "abs" else op, dtype, [a])


def binary(f: Writer, op: str, dtype: str, a: str, b: str) -> str:
    """An operation of BINARY on two values."""
    kind = llvm_type(dtype)
    if op in ("minimum", "maximum"):
        if dtype in FLOATS:
            return f.intrinsic(op, dtype, [a, b])
        letter = "u" if dtype in UNSIGNED or dtype == "bool" else "s"
        return f.intrinsic(f"{letter}{op[:3]}", dtype, [a, b])
    if dtype in FLOATS:
        if op == "copysign":
            return f.intrinsic("copysign", dtype, [a, b])
        if op == "rem":
            return f.emit(f"call {kind} @remainder_{dtype}({kind} {a}, {kind} {b})")
        if op in _BINARY_FLOAT:
            return f.emit(f"{_BINARY_FLOAT[op]} {kind} {a}, {b}")
        raise NotImplementedError(
            f"{op} of {dtype}: not a basic operation; weft.expr.functions.expand writes it in such"
        )
    if op in _BINARY_INTEGER:
        return f.emit(f"{op} {kind} {a}, {b}")
    unsigned = dtype in UNSIGNED or dtype == "bool"
    if op == "shr":
        return f.emit(f"{'lshr' if unsigned else 'ashr'} {kind} {a}, {b}")
    if op in ("div", "rem"):
        if dtype in _QUOTIENTS and f.divides_by_floats and b.startswith("%"):  # else it is a constant
            return _division_by_floats(f, op, dtype, a, b)
        return _integer_division(f, op, dtype, a, b, unsigned)
    raise NotImplementedError(f"{op} of {dtype}")


# A float type whose quotient of two such integers is right once it is truncated: if n is a whole number and n - a / b
# is positive, it is 1 / b or more, so relatively 2^-31 (2^-16), and more than what rounding adds.
_QUOTIENTS = {"int32": "float64", "uint32": "float64"} | dict.fromkeys(
    ("int8", "uint8", "int16", "uint16"), "float32"
)


def _division_by_floats(f: Writer, op: str, dtype: str, a: str, b: str) -> str:
    """As _integer_division, which processors have for single numbers only; vectors of floats can be divided."""
    kind, wide = llvm_type(dtype), _QUOTIENTS[dtype]
    real = llvm_type(wide)
    zero = bad = f.emit(f"icmp eq {kind} {b}, 0")
    if dtype == "int32":  # the least number by -1 would not fit
        minus = f.emit(f"icmp eq i32 {b}, -1")
        bad = f.emit(f"or i1 {zero}, {minus}")
    x, y = (cast(f, value, dtype, wide) for value in (a, b))
    safe = f.emit(f"select i1 {bad}, {real} {number(1, wide)}, {real} {y}")
    to_whole = "fptoui" if dtype == "uint32" else "fptosi"
    quotient = f.emit(f"{to_whole} {real} {f.emit(f'fdiv {real} {x}, {safe}')} to i32")
    if kind != "i32":
        quotient = f.emit(f"trunc i32 {quotient} to {kind}")
    if dtype == "int32":
        quotient = f.emit(f"select i1 {minus}, i32 {f.emit(f'sub i32 0, {a}')}, i32 {quotient}")
    if op == "rem":
        quotient = f.emit(f"sub {kind} {a}, {f.emit(f'mul {kind} {quotient}, {b}')}")
    return f.emit(f"select i1 {zero}, {kind} 0, {kind} {quotient}")


def _integer_division(f: Writer, op: str, dtype: str, a: str, b: str, unsigned: bool) -> str:
    """Truncating. What the processor would trap on has a value: x / 0 = 0, x % 0 = 0, least / -1 = least."""
    kind = llvm_type(dtype)
    zero = f.emit(f"icmp eq {kind} {b}, 0")
    bad = zero
    if not unsigned:
        minus = f.emit(f"icmp eq {kind} {b}, -1")
        bad = f.emit(f"or i1 {zero}, {minus}")
    safe = f.emit(f"select i1 {bad}, {kind} 1, {kind} {b}")
    quotient = f.emit(f"{'u' if unsigned else 's'}{op} {kind} {a}, {safe}")
    if unsigned:
        return f.emit(f"select i1 {zero}, {kind} 0, {kind} {quotient}")
    negated = f.emit(f"sub {kind} 0, {a}") if op == "div" else "0"
    turned = f.emit(f"select i1 {minus}, {kind} {negated}, {kind} {quotient}")
    return f.emit(f"select i1 {zero}, {kind} 0, {kind} {turned}")


def cast(f: Writer, value: str, source: str, target: str) -> str:
    """As native/tensor/convert.h."""
    if source == target:
        return value
    if source in COMPLEX or target in COMPLEX:
        return _cast_of_parts(f, value, source, target)
    if source == "bfloat16":
        wide = f.emit(f"zext i16 {value} to i32")
        return cast(f, f.emit(f"bitcast i32 {f.emit(f'shl i32 {wide}, 16')} to float"), "float32", target)
    if source == "float16":
        return cast(f, f.emit(f"call float @from_float16(half {value})"), "float32", target)
    if target == "bfloat16":
        return _to_bfloat16(f, cast(f, value, source, "float32"))
    if target == "float16" and source not in ("float32", "float64"):
        return cast(f, cast(f, value, source, "float32"), "float32", target)
    a, b = llvm_type(source), llvm_type(target)
    if target == "bool":
        zero = number(0, source)
        return f.emit(f"fcmp une {a} {value}, {zero}" if source in FLOATS else f"icmp ne {a} {value}, 0")
    if source == "float64" and target == "float16":
        return cast(f, _rounded_to_odd(f, value), "float32", target)
    if target == "float16":
        return f.emit(f"call half @to_float16(float {value})")
    if source in FLOATS and target in FLOATS:
        return f.emit(f"{'fpext' if BITS[target] > BITS[source] else 'fptrunc'} {a} {value} to {b}")
    if target in FLOATS:
        return f.emit(
            f"{'uitofp' if source in UNSIGNED or source == 'bool' else 'sitofp'} {a} {value} to {b}"
        )
    if source in FLOATS:
        return _float_to_integer(f, value, source, target)
    if BITS[target] < BITS[source]:
        return f.emit(f"trunc {a} {value} to {b}")
    if BITS[target] == BITS[source]:
        return value
    return f.emit(f"{'zext' if source in UNSIGNED or source == 'bool' else 'sext'} {a} {value} to {b}")


def _cast_of_parts(f: Writer, value: str, source: str, target: str) -> str:
    """From or to complex numbers: the real part, true where a part is not 0, or with an imaginary part of 0."""
    if source not in COMPLEX:
        return f.pair(target, cast(f, value, source, COMPLEX[target]), number(0, COMPLEX[target]))
    re, im = f.part(source, value, 0), f.part(source, value, 1)
    if target in COMPLEX:
        return f.pair(target, *(cast(f, part, COMPLEX[source], COMPLEX[target]) for part in (re, im)))
    if target == "bool":
        truths = [cast(f, part, COMPLEX[source], "bool") for part in (re, im)]
        return f.emit(f"or i1 {truths[0]}, {truths[1]}")
    return cast(f, re, COMPLEX[source], target)


def _rounded_to_odd(f: Writer, value: str) -> str:
    """A float64 as the float32 towards zero, its last bit set if anything was lost: rounding that to a type of at most
    22 bits is rounding the float64 (Boldo and Melquiond 2008). LLVM's own conversion to half calls a library."""
    near = f.emit(f"fptrunc double {value} to float")
    back = f.emit(f"fpext float {near} to double")
    lost = f.emit(f"fcmp une double {back}, {value}")
    sizes = [f.intrinsic("fabs", "float64", [x]) for x in (back, value)]
    away = f.emit(f"fcmp ogt double {sizes[0]}, {sizes[1]}")
    bits = f.emit(f"bitcast float {near} to i32")
    towards_zero = f.emit(f"select i1 {away}, i32 {f.emit(f'add i32 {bits}, -1')}, i32 {bits}")
    sticky = f.emit(f"select i1 {lost}, i32 {f.emit(f'or i32 {towards_zero}, 1')}, i32 {bits}")
    return f.emit(f"bitcast i32 {sticky} to float")


def _to_bfloat16(f: Writer, value: str) -> str:
    f.roundings += 1
    return f.emit(f"call i16 @to_bfloat16(float {value})")


# Functions of kernels that the compiler defines for the processor: (signature, body by an instruction, body without).
# Conversions give the same bits either way, and round to nearest even. To bfloat16, subnormal numbers become zeros, as
# its instruction has it; a NaN becomes a quiet one with the upper digits that it had.
# The bits of a bfloat are taken from its float, at no cost: LLVM 22 aborts on the sign bit of a bitcast from bfloat.
BY_PROCESSOR = {
    "to_bfloat16": (
        "i16 @to_bfloat16(float %x)",
        """
  %short = fptrunc float %x to bfloat
  %long = fpext bfloat %short to float
  %word = bitcast float %long to i32
  %upper = lshr i32 %word, 16
  %bits = trunc i32 %upper to i16
  ret i16 %bits""",
        """
  %word = bitcast float %x to i32
  %upper = lshr i32 %word, 16
  %odd = and i32 %upper, 1
  %bias = add i32 %odd, 32767
  %biased = add i32 %word, %bias
  %rounded = lshr i32 %biased, 16
  %exponent = and i32 %word, 2139095040
  %small = icmp eq i32 %exponent, 0
  %zero = and i32 %upper, 32768
  %finite = select i1 %small, i32 %zero, i32 %rounded
  %nan = or i32 %upper, 64
  %unordered = fcmp uno float %x, %x
  %all = select i1 %unordered, i32 %nan, i32 %finite
  %bits = trunc i32 %all to i16
  ret i16 %bits""",
    ),
    # The digits move to where float32 has them, and a multiplication by 2^112 mends the exponent.
    "from_float16": (
        "float @from_float16(half %x)",
        """
  %wide = fpext half %x to float
  ret float %wide""",
        """
  %bits = bitcast half %x to i16
  %word = zext i16 %bits to i32
  %size = and i32 %word, 32767
  %digits = shl i32 %size, 13
  %small = bitcast i32 %digits to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %infinite = or i32 %digits, 2139095040
  %quiet = or i32 %infinite, 4194304
  %unordered = icmp ugt i32 %size, 31744
  %special = select i1 %unordered, i32 %quiet, i32 %infinite
  %large = icmp ugt i32 %size, 31743
  %all = select i1 %large, i32 %special, i32 %finite
  %minus = and i32 %word, 32768
  %sign = shl i32 %minus, 16
  %signed = or i32 %all, %sign
  %wide = bitcast i32 %signed to float
  ret float %wide""",
    ),
    # Subnormal results: adding 0.5 leaves as many digits as they have. Others: half of the last digit, or a bit less
    # where that digit is even, before the digits beyond it are cut off.
    "to_float16": (
        "half @to_float16(float %x)",
        """
  %short = fptrunc float %x to half
  ret half %short""",
        """
  %word = bitcast float %x to i32
  %size = and i32 %word, 2147483647
  %absolute = bitcast i32 %size to float
  %added = fadd float %absolute, 0.5
  %digits = bitcast float %added to i32
  %subnormal = sub i32 %digits, 1056964608
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %bias = add i32 %odd, -939520001
  %biased = add i32 %size, %bias
  %normal = lshr i32 %biased, 13
  %small = icmp ult i32 %size, 947912704
  %finite = select i1 %small, i32 %subnormal, i32 %normal
  %kept = and i32 %last, 1023
  %nan = or i32 %kept, 32256
  %unordered = icmp ugt i32 %size, 2139095040
  %special = select i1 %unordered, i32 %nan, i32 31744
  %large = icmp ugt i32 %size, 1199570943
  %all = select i1 %large, i32 %special, i32 %finite
  %upper = lshr i32 %word, 16
  %sign = and i32 %upper, 32768
  %signed = or i32 %all, %sign
  %bits = trunc i32 %signed to i16
  %short = bitcast i16 %bits to half
  ret half %short""",
    ),
    # float64 has all digits of the product, so only the sum is rounded, once more than by the instruction.
    "fma_float32": (
        "float @fma_float32(float %x, float %y, float %z)",
        """
  %sum = call float @llvm.fma.f32(float %x, float %y, float %z)
  ret float %sum""",
        """
  %a = fpext float %x to double
  %b = fpext float %y to double
  %c = fpext float %z to double
  %product = fmul double %a, %b
  %sum = fadd double %product, %c
  %rounded = fptrunc double %sum to float
  ret float %rounded""",
    ),
}
_DECLARED = {"fma_float32": "declare float @llvm.fma.f32(float, float, float)\n"}


def definitions(text: str, instructions: Collection[str]) -> str:
    """The definitions of those functions of BY_PROCESSOR and of llvm_remainder that a kernel calls.

    instructions: the names of those that the processor has an instruction for, and "vectors" where LLVM makes vectors.
    """
    functions = "".join(
        f"\ndefine internal {signature} alwaysinline nounwind {{{native if name in instructions else without}\n}}\n"
        + (_DECLARED.get(name, "") if name in instructions else "")
        for name, (signature, native, without) in BY_PROCESSOR.items()
        if f"@{name}(" in text
    )
    if "@remainder_" not in text:
        return functions
    from weft.expr.llvm_remainder import remainder_definitions  # when first needed

    text += functions
    return functions + remainder_definitions(text, "fma_float32" in instructions, "vectors" in instructions)


def _float_to_integer(f: Writer, value: str, source: str, target: str) -> str:
    """Truncated; what does not fit becomes what the processor's conversion to int32 or int64 gives, then wraps."""
    a, b = llvm_type(source), llvm_type(target)
    through = 32 if BITS[target] < 32 or target == "int32" else 64
    if target == "uint64":
        limit = number(2.0**63, source)
        large = f.emit(f"fcmp oge {a} {value}, {limit}")
        less = f.emit(f"fsub {a} {value}, {limit}")
        low = _saturated(f, value, a, 64)
        high = f.emit(f"xor i64 {_saturated(f, less, a, 64)}, {-(2**63)}")
        return f.emit(f"select i1 {large}, i64 {high}, i64 {low}")
    whole = _saturated(f, value, a, through)
    return whole if BITS[target] == through else f.emit(f"trunc i{through} {whole} to {b}")


def _saturated(f: Writer, value: str, kind: str, bits: int) -> str:
    """fptosi where it is defined, the least integer elsewhere."""
    dtype = "float32" if kind == "float" else "float64"
    low, high = number(-(2.0 ** (bits - 1)), dtype), number(2.0 ** (bits - 1), dtype)
    if dtype == "float64" and bits == 32:
        low = number(-(2.0**31) - 1, dtype)
        above = f.emit(f"fcmp ogt {kind} {value}, {low}")
    else:
        above = f.emit(f"fcmp oge {kind} {value}, {low}")
    below = f.emit(f"fcmp olt {kind} {value}, {high}")
    fits = f.emit(f"and i1 {above}, {below}")
    inside = f.emit(f"select i1 {fits}, {kind} {value}, {kind} {number(0, dtype)}")
    whole = f.emit(f"fptosi {kind} {inside} to i{bits}")
    return f.emit(f"select i1 {fits}, i{bits} {whole}, i{bits} {-(2 ** (bits - 1))}")


def combine_vectors(f: Writer, op: str, dtype: str, lanes: int, a: str, b: str) -> str:
    """Vectors combined lane by lane by sum, prod, max or min; of equal ones, zeros of any sign, max and min take a."""
    kind = llvm_type(dtype)
    vector, floating = f"<{lanes} x {kind}>", dtype in FLOATS
    if op in ("sum", "prod"):
        name = ("f" if floating else "") + {"sum": "add", "prod": "mul"}[op]
        return f.emit(f"{name} {vector} {a}, {b}")
    if floating:  # b if it is beyond a or NaN, unless a is NaN
        beyond = f.emit(f"fcmp u{'l' if op == 'max' else 'g'}t {vector} {a}, {b}")
        ordered = f.emit(f"fcmp ord {vector} {a}, {a}")
        is_beyond = f.emit(f"and <{lanes} x i1> {beyond}, {ordered}")
        return f.emit(f"select <{lanes} x i1> {is_beyond}, {vector} {b}, {vector} {a}")
    name = f"llvm.{'u' if dtype in UNSIGNED else 's'}{op}.v{lanes}i{BITS[dtype]}"
    f.declared[name] = f"declare {vector} @{name}({vector}, {vector})"
    return f.emit(f"call {vector} @{name}({vector} {a}, {vector} {b})")


def splat(f: Writer, kind: str, lanes: int, value: str) -> str:
    """A vector with the same value in every lane."""
    one = f.emit(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
    return f.emit(
        f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer"
    )
