"""The methods of arrays that are operators; written by weft.ops.make_stubs."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from weft.base.device import Device
from weft.base.dtype import DType
from weft.arrays.tensor import Tensor

ArrayLike = Tensor | float | np.ndarray[Any, Any] | np.generic  # what Python's operators take
Operand = ArrayLike | list[Any]

T = TypeVar("T")


class Methods(Generic[T]):
    def abs(self, /) -> T:
        """The magnitude of x."""
    def acos(self, /) -> T:
        """The angle in radians, from 0 to pi, whose cosine is x: NaN outside of -1..1."""
    def acosh(self, /) -> T:
        """The inverse of the hyperbolic cosine: NaN below 1."""
    def add(self, b: Operand | T, /) -> T:
        """a + b; for booleans their or."""
    def all(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """Whether all are true along axes."""
    def any(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """Whether at least one is true along axes."""
    def argmax(self, /, axis: int | None=None, *, keepdims: bool=False) -> T:
        """The index of the greatest value along an axis; of equal ones the first, and of NaN the first."""
    def argmin(self, /, axis: int | None=None, *, keepdims: bool=False) -> T:
        """The index of the least value along an axis; of equal ones the first, and of NaN the first."""
    def argsort(self, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> T:
        """The indices that sort x along an axis, the least first; NaN last."""
    def asin(self, /) -> T:
        """The angle in radians, from -pi/2 to pi/2, whose sine is x: NaN outside of -1..1."""
    def asinh(self, /) -> T:
        """The inverse of the hyperbolic sine."""
    def atan(self, /) -> T:
        """The angle in radians, from -pi/2 to pi/2, whose tangent is x."""
    def atan2(self, b: Operand | T, /) -> T:
        """The angle of the point (b, a) in radians, from -pi to pi."""
    def atanh(self, /) -> T:
        """The inverse of the hyperbolic tangent: infinities for -1 and 1, NaN outside."""
    def bitwise_and(self, b: Operand | T, /) -> T:
        """The bits that both a and b have: a & b."""
    def bitwise_invert(self, /) -> T:
        """All bits changed: ~x; for booleans their not."""
    def bitwise_left_shift(self, b: Operand | T, /) -> T:
        """a * 2**b by moving bits to the left: a << b."""
    def bitwise_or(self, b: Operand | T, /) -> T:
        """The bits that a or b has: a | b."""
    def bitwise_right_shift(self, b: Operand | T, /) -> T:
        """floor(a / 2**b) by moving bits to the right: a >> b."""
    def bitwise_xor(self, b: Operand | T, /) -> T:
        """The bits in which a and b differ: a ^ b."""
    def broadcast_to(self, /, shape: int | Sequence[int]) -> T:
        """A view in a larger shape, whose new dimensions repeat the same elements; those cannot be written."""
    def cast(self, /, dtype: DType | str | type[Any]) -> T:
        """The elements as another type, converted as NumPy's astype does."""
    def cbrt(self, /) -> T:
        """The cube root of x, negative for negative numbers."""
    def ceil(self, /) -> T:
        """The least whole number that is at least x."""
    def celu(self, /, alpha: float=1.0) -> T:
        """x where it is positive, else alpha (exp(x / alpha) - 1)."""
    def chunk(self, /, chunks: int, axis: int=0) -> tuple[T, ...]:
        """At most `chunks` views of equal size along an axis, the last one smaller if need be."""
    def clip(self, min: Operand | T | None=None, max: Operand | T | None=None) -> T:
        """x, but at least min and at most max: minimum(maximum(x, min), max)."""
    def copysign(self, b: Operand | T, /) -> T:
        """The magnitude of a with the sign of b."""
    def cos(self, /) -> T:
        """The cosine of x radians: NaN for infinities."""
    def cosh(self, /) -> T:
        """The hyperbolic cosine of x."""
    def count_nonzero(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """How many are not 0 along axes."""
    def cumulative_prod(self, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> T:
        """The product of a row up to each of its elements, with it."""
    def cumulative_sum(self, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> T:
        """The sum of a row up to each of its elements, with it."""
    def diagonal(self, /, offset: int=0, axis1: int=0, axis2: int=1) -> T:
        """A view of the elements at equal indices of two axes, as a new last dimension."""
    def divide(self, b: Operand | T, /) -> T:
        """a / b as real or complex numbers."""
    def elu(self, /, alpha: float=1.0) -> T:
        """x where it is positive, else alpha (exp(x) - 1)."""
    def equal(self, b: Operand | T, /) -> T:
        """Whether a = b."""
    def erf(self, /) -> T:
        """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    def erfc(self, /) -> T:
        """1 - erf(x), exact to the last digits where that is small."""
    def exp(self, /) -> T:
        """e to the power of x."""
    def exp2(self, /) -> T:
        """2 to the power of x."""
    def expand_dims(self, /, axis: int | Sequence[int]=0) -> T:
        """A view with new dimensions of size 1 at these indices of the result's."""
    def expm1(self, /) -> T:
        """exp(x) - 1, exact to the last digits near 0."""
    def flatten(self, /, start_axis: int=0, end_axis: int=-1) -> T:
        """x with the dimensions from start_axis to end_axis as one; a view where strides allow it."""
    def flip(self, /, axis: int | Sequence[int] | None=None) -> T:
        """A view with the elements in reverse order along axes."""
    def floor(self, /) -> T:
        """The greatest whole number that is at most x."""
    def floor_divide(self, b: Operand | T, /) -> T:
        """The greatest whole number that is at most a / b."""
    def fmax(self, b: Operand | T, /) -> T:
        """The larger of a and b; if one is NaN, the other."""
    def fmin(self, b: Operand | T, /) -> T:
        """The smaller of a and b; if one is NaN, the other."""
    def fmod(self, b: Operand | T, /) -> T:
        """a - b * trunc(a / b): what division leaves, with the sign of a."""
    def gelu(self, /, approximate: str='none') -> T:
        """x times the normal distribution's function: x P(X <= x); approximate="tanh" uses its formula by tanh."""
    def glu(self, /, axis: int=-1) -> T:
        """The first half of x along an axis times the sigmoid of its second half."""
    def greater(self, b: Operand | T, /) -> T:
        """Whether a > b."""
    def greater_equal(self, b: Operand | T, /) -> T:
        """Whether a >= b."""
    def hard_sigmoid(self, /) -> T:
        """min(max(x / 6 + 1/2, 0), 1): a sigmoid of three straight pieces."""
    def hard_swish(self, /) -> T:
        """x min(max(x / 6 + 1/2, 0), 1): x times its hard_sigmoid."""
    def hardshrink(self, /, lambd: float=0.5) -> T:
        """x, but 0 within lambd of 0. NaN stays NaN."""
    def hardtanh(self, /, min_val: float=-1.0, max_val: float=1.0) -> T:
        """x, but at least min_val and at most max_val. NaN stays NaN; the gradient at both is 0."""
    def hypot(self, b: Operand | T, /) -> T:
        """sqrt(a**2 + b**2), without overflow on the way."""
    def isclose(self, b: Operand | T, /, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False) -> T:
        """Whether |a - b| <= atol + rtol * |b|."""
    def isfinite(self, /) -> T:
        """Whether x is neither infinite nor NaN."""
    def isinf(self, /) -> T:
        """Whether x is infinite."""
    def isnan(self, /) -> T:
        """Whether x is NaN."""
    def leaky_relu(self, /, negative_slope: float=0.01) -> T:
        """x where it is positive, else negative_slope times x."""
    def lerp(self, b: Operand | T, weight: Operand | T, /) -> T:
        """a + weight * (b - a): from a at weight 0 to b at weight 1, exact at both."""
    def less(self, b: Operand | T, /) -> T:
        """Whether a < b."""
    def less_equal(self, b: Operand | T, /) -> T:
        """Whether a <= b."""
    def log(self, /) -> T:
        """The natural logarithm of x: -inf for 0, NaN for negative numbers."""
    def log10(self, /) -> T:
        """The logarithm of x to the base 10: -inf for 0, NaN for negative numbers."""
    def log1p(self, /) -> T:
        """log(1 + x), exact to the last digits near 0: -inf for -1, NaN below."""
    def log2(self, /) -> T:
        """The logarithm of x to the base 2: -inf for 0, NaN for negative numbers."""
    def log_sigmoid(self, /) -> T:
        """log(1 / (1 + exp(-x))), finite for all finite x."""
    def log_softmax(self, /, axis: int=-1) -> T:
        """x - log(sum(exp(x))) along one axis: the logarithm of softmax, exact where that would be 0."""
    def logaddexp(self, b: Operand | T, /) -> T:
        """log(exp(a) + exp(b)), finite wherever the answer is."""
    def logical_and(self, b: Operand | T, /) -> T:
        """Whether both are true."""
    def logical_not(self, /) -> T:
        """Whether x is false."""
    def logical_or(self, b: Operand | T, /) -> T:
        """Whether at least one is true."""
    def logical_xor(self, b: Operand | T, /) -> T:
        """Whether just one is true."""
    def logsumexp(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """log(sum(exp(x))) along axes; finite wherever the answer is."""
    def masked_fill(self, mask: Operand | T, /, value: float) -> T:
        """x with value where the mask is true."""
    def matmul(self, b: Operand | T, /) -> T:
        """The product of matrices: y[..., i, j] = sum over k of a[..., i, k] b[..., k, j]."""
    def matrix_transpose(self, /) -> T:
        """A view with the last two dimensions exchanged."""
    def max(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """The greatest value along axes; NaN if there is one."""
    def maximum(self, b: Operand | T, /) -> T:
        """The larger of a and b; NaN if one is NaN."""
    def mean(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """The arithmetic mean along axes."""
    def min(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> T:
        """The least value along axes; NaN if there is one."""
    def minimum(self, b: Operand | T, /) -> T:
        """The smaller of a and b; NaN if one is NaN."""
    def mish(self, /) -> T:
        """x tanh(log(1 + exp(x)))."""
    def moveaxis(self, /, source: int | Sequence[int], destination: int | Sequence[int]) -> T:
        """A view with some dimensions moved to other indices, the others in their order."""
    def multiply(self, b: Operand | T, /) -> T:
        """a * b; for booleans their and."""
    def negative(self, /) -> T:
        """-x."""
    def not_equal(self, b: Operand | T, /) -> T:
        """Whether a and b differ."""
    def one_hot(self, /, num_classes: int) -> T:
        """1 at the index that x gives, in a new last dimension, 0 elsewhere."""
    def outer(self, x2: Operand | T, /) -> T:
        """The products of all pairs: y[i, j] = x1[i] x2[j]."""
    def pad(self, /, pad: Sequence[int], mode: str='constant', value: float=0.0) -> T:
        """x with borders: pad[0] before and pad[1] after the last axis, pad[2] and pad[3] the one before, and so on."""
    def permute_dims(self, /, axes: Sequence[int]) -> T:
        """A view with the dimensions in the order of axes."""
    def positive(self, /) -> T:
        """+x: the same numbers."""
    def pow(self, b: Operand | T, /) -> T:
        """a to the power of b."""
    def prelu(self, weight: Operand | T, /) -> T:
        """x where it is positive, else weight times x; a learnt leaky_relu."""
    def prod(self, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> T:
        """The product along axes."""
    def put_along_axis(self, indices: Operand | T, updates: Operand | T, /, axis: int=-1, mode: str='set') -> T:
        """x, but y[..., indices[..., j, ...], ...] is combined with updates[..., j, ...], in the order of j."""
    def reciprocal(self, /) -> T:
        """1 / x."""
    def relu(self, /) -> T:
        """max(x, 0). NaN stays NaN; the gradient at 0 is 0."""
    def relu6(self, /) -> T:
        """min(max(x, 0), 6). NaN stays NaN; the gradient at 0 and 6 is 0."""
    def remainder(self, b: Operand | T, /) -> T:
        """a - b * floor(a / b): what division leaves, with the sign of b."""
    def repeat(self, /, repeats: int, axis: int | None=None) -> T:
        """Every element several times, one after the other."""
    def roll(self, /, shift: int | Sequence[int], axis: int | Sequence[int] | None=None) -> T:
        """The elements moved along axes; what leaves at one end comes in at the other."""
    def round(self, /) -> T:
        """The whole number nearest to x; of two equally near ones the even one."""
    def rsqrt(self, /) -> T:
        """1 / sqrt(x): inf for 0, NaN for negative numbers."""
    def selu(self, /) -> T:
        """1.0507 x where it is positive, else 1.0507 times 1.67326 (exp(x) - 1)."""
    def sigmoid(self, /) -> T:
        """1 / (1 + exp(-x)), exact to the last digits on both sides."""
    def sign(self, /) -> T:
        """-1, 0 or 1 as x is negative, zero or positive; NaN for NaN; of a complex number x / |x|, or 0."""
    def signbit(self, /) -> T:
        """Whether x has a minus sign, as -0.0 has and as NaN may have."""
    def silu(self, /) -> T:
        """x sigmoid(x), also called swish."""
    def sin(self, /) -> T:
        """The sine of x radians: NaN for infinities."""
    def sinh(self, /) -> T:
        """The hyperbolic sine of x."""
    def slice(self, /, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None=None, axes: Sequence[int] | None=None) -> T:
        """A view of the elements from starts to before stops, every steps-th, along axes, as Python's slices take them."""
    def softmax(self, /, axis: int=-1) -> T:
        """exp(x) / sum(exp(x)) along one axis, shifted so that it never overflows."""
    def softplus(self, /, beta: float=1.0, threshold: float=20.0) -> T:
        """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    def softshrink(self, /, lambd: float=0.5) -> T:
        """x brought nearer to 0 by lambd, and 0 within lambd of it. NaN stays NaN."""
    def softsign(self, /) -> T:
        """x / (1 + |x|)."""
    def sort(self, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> T:
        """x sorted along an axis, the least first; NaN last."""
    def split(self, /, sizes: int | Sequence[int], axis: int=0) -> tuple[T, ...]:
        """Views of sizes along an axis, one after the other."""
    def sqrt(self, /) -> T:
        """The square root of x: NaN for negative numbers."""
    def square(self, /) -> T:
        """x * x."""
    def squeeze(self, /, axis: int | Sequence[int]) -> T:
        """A view without these dimensions of size 1."""
    def std(self, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> T:
        """The standard deviation along axes: the square root of the variance."""
    def subtract(self, b: Operand | T, /) -> T:
        """a - b."""
    def sum(self, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> T:
        """The sum along axes."""
    def swapaxes(self, /, axis1: int, axis2: int) -> T:
        """A view with two dimensions exchanged."""
    def take(self, indices: Operand | T, /, axis: int | None=None) -> T:
        """The slices of x at these indices along an axis."""
    def take_along_axis(self, indices: Operand | T, /, axis: int=-1) -> T:
        """y[..., j, ...] = x[..., indices[..., j, ...], ...]: elements chosen along an axis, by an index for each."""
    def tan(self, /) -> T:
        """The tangent of x radians: NaN for infinities."""
    def tanh(self, /) -> T:
        """The hyperbolic tangent of x."""
    def tanhshrink(self, /) -> T:
        """x - tanh(x)."""
    def tensordot(self, x2: Operand | T, /, *, axes: int | Sequence[Sequence[int]]=2) -> T:
        """The sum of products over several axes of both: those of a that are left, then those of b that are left."""
    def threshold(self, /, threshold: float, value: float) -> T:
        """x where it is more than threshold, else value."""
    def tile(self, /, repetitions: Sequence[int]) -> T:
        """x repeated as a whole along each dimension."""
    def topk(self, /, k: int, axis: int=-1, *, largest: bool=True, sorted: bool=True) -> tuple[T, T]:
        """The k greatest elements along an axis, the greatest first, and their indices."""
    def tril(self, /, k: int=0) -> T:
        """The elements on and below the k-th diagonal of the last two dimensions, 0 above it."""
    def triu(self, /, k: int=0) -> T:
        """The elements on and above the k-th diagonal of the last two dimensions, 0 below it."""
    def trunc(self, /) -> T:
        """The whole number nearest to x that is not farther from 0."""
    def unstack(self, /, axis: int=0) -> tuple[T, ...]:
        """The arrays along an axis, without that axis, as views."""
    def var(self, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> T:
        """The variance along axes: the sum of (x - mean)^2, divided by their number less correction."""
    def vecdot(self, x2: Operand | T, /, *, axis: int=-1) -> T:
        """The dot products of vectors along an axis, of x1's complex conjugate with x2."""
    def vector_norm(self, /, axis: int | Sequence[int] | None=None, keepdims: bool=False, ord: float=2) -> T:
        """The ord-norm along axes: the sum of |x|^ord, to the power of 1 / ord."""
    def __neg__(self) -> T: ...
    def __abs__(self) -> T: ...
    def __invert__(self) -> T: ...
    def __pos__(self) -> T: ...
    def __add__(self, other: ArrayLike | T) -> T: ...
    def __radd__(self, other: ArrayLike | T) -> T: ...
    def __sub__(self, other: ArrayLike | T) -> T: ...
    def __rsub__(self, other: ArrayLike | T) -> T: ...
    def __mul__(self, other: ArrayLike | T) -> T: ...
    def __rmul__(self, other: ArrayLike | T) -> T: ...
    def __truediv__(self, other: ArrayLike | T) -> T: ...
    def __rtruediv__(self, other: ArrayLike | T) -> T: ...
    def __floordiv__(self, other: ArrayLike | T) -> T: ...
    def __rfloordiv__(self, other: ArrayLike | T) -> T: ...
    def __mod__(self, other: ArrayLike | T) -> T: ...
    def __rmod__(self, other: ArrayLike | T) -> T: ...
    def __pow__(self, other: ArrayLike | T) -> T: ...
    def __rpow__(self, other: ArrayLike | T) -> T: ...
    def __and__(self, other: ArrayLike | T) -> T: ...
    def __rand__(self, other: ArrayLike | T) -> T: ...
    def __or__(self, other: ArrayLike | T) -> T: ...
    def __ror__(self, other: ArrayLike | T) -> T: ...
    def __xor__(self, other: ArrayLike | T) -> T: ...
    def __rxor__(self, other: ArrayLike | T) -> T: ...
    def __lshift__(self, other: ArrayLike | T) -> T: ...
    def __rlshift__(self, other: ArrayLike | T) -> T: ...
    def __rshift__(self, other: ArrayLike | T) -> T: ...
    def __rrshift__(self, other: ArrayLike | T) -> T: ...
    def __matmul__(self, other: ArrayLike | T) -> T: ...
    def __rmatmul__(self, other: ArrayLike | T) -> T: ...
    def __lt__(self, other: ArrayLike | T) -> T: ...
    def __le__(self, other: ArrayLike | T) -> T: ...
    def __gt__(self, other: ArrayLike | T) -> T: ...
    def __ge__(self, other: ArrayLike | T) -> T: ...
    def __eq__(self, other: object) -> T: ...  # type: ignore[override]
    def __ne__(self, other: object) -> T: ...  # type: ignore[override]
    def __hash__(self) -> int: ...
