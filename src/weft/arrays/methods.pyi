"""The methods of arrays that are operators; written by weft.ops.make_stubs."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from weft.base.device import Device
from weft.base.dtype import DType
from weft.arrays.tensor import Tensor

ArrayLike = Tensor | float | np.ndarray[Any, Any] | np.generic  # what Python's operators take
Operand = ArrayLike | list[Any]


class Methods:
    def abs(self, /) -> Tensor:
        """The magnitude of x."""
    def acos(self, /) -> Tensor:
        """The angle in radians, from 0 to pi, whose cosine is x: NaN outside of -1..1."""
    def acosh(self, /) -> Tensor:
        """The inverse of the hyperbolic cosine: NaN below 1."""
    def add(self, b: Operand, /) -> Tensor:
        """a + b; for booleans their or."""
    def all(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """Whether all are true along axes."""
    def any(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """Whether at least one is true along axes."""
    def argmax(self, /, axis: int | None=None, *, keepdims: bool=False) -> Tensor:
        """The index of the greatest value along an axis; of equal ones the first, and of NaN the first."""
    def argmin(self, /, axis: int | None=None, *, keepdims: bool=False) -> Tensor:
        """The index of the least value along an axis; of equal ones the first, and of NaN the first."""
    def argsort(self, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> Tensor:
        """The indices that sort x along an axis, the least first; NaN last."""
    def asin(self, /) -> Tensor:
        """The angle in radians, from -pi/2 to pi/2, whose sine is x: NaN outside of -1..1."""
    def asinh(self, /) -> Tensor:
        """The inverse of the hyperbolic sine."""
    def atan(self, /) -> Tensor:
        """The angle in radians, from -pi/2 to pi/2, whose tangent is x."""
    def atan2(self, b: Operand, /) -> Tensor:
        """The angle of the point (b, a) in radians, from -pi to pi."""
    def atanh(self, /) -> Tensor:
        """The inverse of the hyperbolic tangent: infinities for -1 and 1, NaN outside."""
    def bitwise_and(self, b: Operand, /) -> Tensor:
        """The bits that both a and b have: a & b."""
    def bitwise_invert(self, /) -> Tensor:
        """All bits changed: ~x; for booleans their not."""
    def bitwise_left_shift(self, b: Operand, /) -> Tensor:
        """a * 2**b by moving bits to the left: a << b."""
    def bitwise_or(self, b: Operand, /) -> Tensor:
        """The bits that a or b has: a | b."""
    def bitwise_right_shift(self, b: Operand, /) -> Tensor:
        """floor(a / 2**b) by moving bits to the right: a >> b."""
    def bitwise_xor(self, b: Operand, /) -> Tensor:
        """The bits in which a and b differ: a ^ b."""
    def broadcast_to(self, /, shape: int | Sequence[int]) -> Tensor:
        """A view in a larger shape, whose new dimensions repeat the same elements; those cannot be written."""
    def cast(self, /, dtype: DType | str | type[Any]) -> Tensor:
        """The elements as another type, converted as NumPy's astype does."""
    def cbrt(self, /) -> Tensor:
        """The cube root of x, negative for negative numbers."""
    def ceil(self, /) -> Tensor:
        """The least whole number that is at least x."""
    def celu(self, /, alpha: float=1.0) -> Tensor:
        """x where it is positive, else alpha (exp(x / alpha) - 1)."""
    def chunk(self, /, chunks: int, axis: int=0) -> tuple[Tensor, ...]:
        """At most `chunks` views of equal size along an axis, the last one smaller if need be."""
    def clip(self, min: Operand | None=None, max: Operand | None=None) -> Tensor:
        """x, but at least min and at most max: minimum(maximum(x, min), max)."""
    def copysign(self, b: Operand, /) -> Tensor:
        """The magnitude of a with the sign of b."""
    def cos(self, /) -> Tensor:
        """The cosine of x radians: NaN for infinities."""
    def cosh(self, /) -> Tensor:
        """The hyperbolic cosine of x."""
    def count_nonzero(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """How many are not 0 along axes."""
    def cumulative_prod(self, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
        """The product of a row up to each of its elements, with it."""
    def cumulative_sum(self, /, axis: int | None=None, *, dtype: DType | str | type[Any] | None=None, include_initial: bool=False, reverse: bool=False) -> Tensor:
        """The sum of a row up to each of its elements, with it."""
    def diagonal(self, /, offset: int=0, axis1: int=0, axis2: int=1) -> Tensor:
        """A view of the elements at equal indices of two axes, as a new last dimension."""
    def divide(self, b: Operand, /) -> Tensor:
        """a / b as real or complex numbers."""
    def elu(self, /, alpha: float=1.0) -> Tensor:
        """x where it is positive, else alpha (exp(x) - 1)."""
    def equal(self, b: Operand, /) -> Tensor:
        """Whether a = b."""
    def erf(self, /) -> Tensor:
        """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    def erfc(self, /) -> Tensor:
        """1 - erf(x), exact to the last digits where that is small."""
    def exp(self, /) -> Tensor:
        """e to the power of x."""
    def exp2(self, /) -> Tensor:
        """2 to the power of x."""
    def expand_dims(self, /, axis: int | Sequence[int]=0) -> Tensor:
        """A view with new dimensions of size 1 at these indices of the result's."""
    def expm1(self, /) -> Tensor:
        """exp(x) - 1, exact to the last digits near 0."""
    def flatten(self, /, start_axis: int=0, end_axis: int=-1) -> Tensor:
        """x with the dimensions from start_axis to end_axis as one; a view where strides allow it."""
    def flip(self, /, axis: int | Sequence[int] | None=None) -> Tensor:
        """A view with the elements in reverse order along axes."""
    def floor(self, /) -> Tensor:
        """The greatest whole number that is at most x."""
    def floor_divide(self, b: Operand, /) -> Tensor:
        """The greatest whole number that is at most a / b."""
    def fmax(self, b: Operand, /) -> Tensor:
        """The larger of a and b; if one is NaN, the other."""
    def fmin(self, b: Operand, /) -> Tensor:
        """The smaller of a and b; if one is NaN, the other."""
    def fmod(self, b: Operand, /) -> Tensor:
        """a - b * trunc(a / b): what division leaves, with the sign of a."""
    def gelu(self, /, approximate: str='none') -> Tensor:
        """x times the normal distribution's function: x P(X <= x); approximate="tanh" uses its formula by tanh."""
    def glu(self, /, axis: int=-1) -> Tensor:
        """The first half of x along an axis times the sigmoid of its second half."""
    def greater(self, b: Operand, /) -> Tensor:
        """Whether a > b."""
    def greater_equal(self, b: Operand, /) -> Tensor:
        """Whether a >= b."""
    def hard_sigmoid(self, /) -> Tensor:
        """min(max(x / 6 + 1/2, 0), 1): a sigmoid of three straight pieces."""
    def hard_swish(self, /) -> Tensor:
        """x min(max(x / 6 + 1/2, 0), 1): x times its hard_sigmoid."""
    def hardshrink(self, /, lambd: float=0.5) -> Tensor:
        """x, but 0 within lambd of 0. NaN stays NaN."""
    def hardtanh(self, /, min_val: float=-1.0, max_val: float=1.0) -> Tensor:
        """x, but at least min_val and at most max_val. NaN stays NaN; the gradient at both is 0."""
    def hypot(self, b: Operand, /) -> Tensor:
        """sqrt(a**2 + b**2), without overflow on the way."""
    def isclose(self, b: Operand, /, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False) -> Tensor:
        """Whether |a - b| <= atol + rtol * |b|."""
    def isfinite(self, /) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isinf(self, /) -> Tensor:
        """Whether x is infinite."""
    def isnan(self, /) -> Tensor:
        """Whether x is NaN."""
    def leaky_relu(self, /, negative_slope: float=0.01) -> Tensor:
        """x where it is positive, else negative_slope times x."""
    def lerp(self, b: Operand, weight: Operand, /) -> Tensor:
        """a + weight * (b - a): from a at weight 0 to b at weight 1, exact at both."""
    def less(self, b: Operand, /) -> Tensor:
        """Whether a < b."""
    def less_equal(self, b: Operand, /) -> Tensor:
        """Whether a <= b."""
    def log(self, /) -> Tensor:
        """The natural logarithm of x: -inf for 0, NaN for negative numbers."""
    def log10(self, /) -> Tensor:
        """The logarithm of x to the base 10: -inf for 0, NaN for negative numbers."""
    def log1p(self, /) -> Tensor:
        """log(1 + x), exact to the last digits near 0: -inf for -1, NaN below."""
    def log2(self, /) -> Tensor:
        """The logarithm of x to the base 2: -inf for 0, NaN for negative numbers."""
    def log_sigmoid(self, /) -> Tensor:
        """log(1 / (1 + exp(-x))), finite for all finite x."""
    def log_softmax(self, /, axis: int=-1) -> Tensor:
        """x - log(sum(exp(x))) along one axis: the logarithm of softmax, exact where that would be 0."""
    def logaddexp(self, b: Operand, /) -> Tensor:
        """log(exp(a) + exp(b)), finite wherever the answer is."""
    def logical_and(self, b: Operand, /) -> Tensor:
        """Whether both are true."""
    def logical_not(self, /) -> Tensor:
        """Whether x is false."""
    def logical_or(self, b: Operand, /) -> Tensor:
        """Whether at least one is true."""
    def logical_xor(self, b: Operand, /) -> Tensor:
        """Whether just one is true."""
    def logsumexp(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """log(sum(exp(x))) along axes; finite wherever the answer is."""
    def masked_fill(self, mask: Operand, /, value: float) -> Tensor:
        """x with value where the mask is true."""
    def matmul(self, b: Operand, /) -> Tensor:
        """The product of matrices: y[..., i, j] = sum over k of a[..., i, k] b[..., k, j]."""
    def matrix_transpose(self, /) -> Tensor:
        """A view with the last two dimensions exchanged."""
    def max(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """The greatest value along axes; NaN if there is one."""
    def maximum(self, b: Operand, /) -> Tensor:
        """The larger of a and b; NaN if one is NaN."""
    def mean(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """The arithmetic mean along axes."""
    def min(self, /, axis: int | Sequence[int] | None=None, *, keepdims: bool=False) -> Tensor:
        """The least value along axes; NaN if there is one."""
    def minimum(self, b: Operand, /) -> Tensor:
        """The smaller of a and b; NaN if one is NaN."""
    def mish(self, /) -> Tensor:
        """x tanh(log(1 + exp(x)))."""
    def moveaxis(self, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """A view with some dimensions moved to other indices, the others in their order."""
    def multiply(self, b: Operand, /) -> Tensor:
        """a * b; for booleans their and."""
    def negative(self, /) -> Tensor:
        """-x."""
    def not_equal(self, b: Operand, /) -> Tensor:
        """Whether a and b differ."""
    def one_hot(self, /, num_classes: int) -> Tensor:
        """1 at the index that x gives, in a new last dimension, 0 elsewhere."""
    def outer(self, x2: Operand, /) -> Tensor:
        """The products of all pairs: y[i, j] = x1[i] x2[j]."""
    def pad(self, /, pad: Sequence[int], mode: str='constant', value: float=0.0) -> Tensor:
        """x with borders: pad[0] before and pad[1] after the last axis, pad[2] and pad[3] the one before, and so on."""
    def permute_dims(self, /, axes: Sequence[int]) -> Tensor:
        """A view with the dimensions in the order of axes."""
    def positive(self, /) -> Tensor:
        """+x: the same numbers."""
    def pow(self, b: Operand, /) -> Tensor:
        """a to the power of b."""
    def prelu(self, weight: Operand, /) -> Tensor:
        """x where it is positive, else weight times x; a learnt leaky_relu."""
    def prod(self, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> Tensor:
        """The product along axes."""
    def put_along_axis(self, indices: Operand, updates: Operand, /, axis: int=-1, mode: str='set') -> Tensor:
        """x, but y[..., indices[..., j, ...], ...] is combined with updates[..., j, ...], in the order of j."""
    def reciprocal(self, /) -> Tensor:
        """1 / x."""
    def relu(self, /) -> Tensor:
        """max(x, 0). NaN stays NaN; the gradient at 0 is 0."""
    def relu6(self, /) -> Tensor:
        """min(max(x, 0), 6). NaN stays NaN; the gradient at 0 and 6 is 0."""
    def remainder(self, b: Operand, /) -> Tensor:
        """a - b * floor(a / b): what division leaves, with the sign of b."""
    def repeat(self, /, repeats: int, axis: int | None=None) -> Tensor:
        """Every element several times, one after the other."""
    def roll(self, /, shift: int | Sequence[int], axis: int | Sequence[int] | None=None) -> Tensor:
        """The elements moved along axes; what leaves at one end comes in at the other."""
    def round(self, /) -> Tensor:
        """The whole number nearest to x; of two equally near ones the even one."""
    def rsqrt(self, /) -> Tensor:
        """1 / sqrt(x): inf for 0, NaN for negative numbers."""
    def selu(self, /) -> Tensor:
        """1.0507 x where it is positive, else 1.0507 times 1.67326 (exp(x) - 1)."""
    def sigmoid(self, /) -> Tensor:
        """1 / (1 + exp(-x)), exact to the last digits on both sides."""
    def sign(self, /) -> Tensor:
        """-1, 0 or 1 as x is negative, zero or positive; NaN for NaN; of a complex number x / |x|, or 0."""
    def signbit(self, /) -> Tensor:
        """Whether x has a minus sign, as -0.0 has and as NaN may have."""
    def silu(self, /) -> Tensor:
        """x sigmoid(x), also called swish."""
    def sin(self, /) -> Tensor:
        """The sine of x radians: NaN for infinities."""
    def sinh(self, /) -> Tensor:
        """The hyperbolic sine of x."""
    def slice(self, /, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None=None, axes: Sequence[int] | None=None) -> Tensor:
        """A view of the elements from starts to before stops, every steps-th, along axes, as Python's slices take them."""
    def softmax(self, /, axis: int=-1) -> Tensor:
        """exp(x) / sum(exp(x)) along one axis, shifted so that it never overflows."""
    def softplus(self, /, beta: float=1.0, threshold: float=20.0) -> Tensor:
        """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    def softshrink(self, /, lambd: float=0.5) -> Tensor:
        """x brought nearer to 0 by lambd, and 0 within lambd of it. NaN stays NaN."""
    def softsign(self, /) -> Tensor:
        """x / (1 + |x|)."""
    def sort(self, /, axis: int=-1, *, descending: bool=False, stable: bool=True) -> Tensor:
        """x sorted along an axis, the least first; NaN last."""
    def split(self, /, sizes: int | Sequence[int], axis: int=0) -> tuple[Tensor, ...]:
        """Views of sizes along an axis, one after the other."""
    def sqrt(self, /) -> Tensor:
        """The square root of x: NaN for negative numbers."""
    def square(self, /) -> Tensor:
        """x * x."""
    def squeeze(self, /, axis: int | Sequence[int]) -> Tensor:
        """A view without these dimensions of size 1."""
    def std(self, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> Tensor:
        """The standard deviation along axes: the square root of the variance."""
    def subtract(self, b: Operand, /) -> Tensor:
        """a - b."""
    def sum(self, /, axis: int | Sequence[int] | None=None, *, dtype: DType | str | type[Any] | None=None, keepdims: bool=False) -> Tensor:
        """The sum along axes."""
    def swapaxes(self, /, axis1: int, axis2: int) -> Tensor:
        """A view with two dimensions exchanged."""
    def take(self, indices: Operand, /, axis: int | None=None) -> Tensor:
        """The slices of x at these indices along an axis."""
    def take_along_axis(self, indices: Operand, /, axis: int=-1) -> Tensor:
        """y[..., j, ...] = x[..., indices[..., j, ...], ...]: elements chosen along an axis, by an index for each."""
    def tan(self, /) -> Tensor:
        """The tangent of x radians: NaN for infinities."""
    def tanh(self, /) -> Tensor:
        """The hyperbolic tangent of x."""
    def tanhshrink(self, /) -> Tensor:
        """x - tanh(x)."""
    def tensordot(self, x2: Operand, /, *, axes: int | Sequence[Sequence[int]]=2) -> Tensor:
        """The sum of products over several axes of both: those of a that are left, then those of b that are left."""
    def threshold(self, /, threshold: float, value: float) -> Tensor:
        """x where it is more than threshold, else value."""
    def tile(self, /, repetitions: Sequence[int]) -> Tensor:
        """x repeated as a whole along each dimension."""
    def topk(self, /, k: int, axis: int=-1, *, largest: bool=True, sorted: bool=True) -> tuple[Tensor, Tensor]:
        """The k greatest elements along an axis, the greatest first, and their indices."""
    def tril(self, /, k: int=0) -> Tensor:
        """The elements on and below the k-th diagonal of the last two dimensions, 0 above it."""
    def triu(self, /, k: int=0) -> Tensor:
        """The elements on and above the k-th diagonal of the last two dimensions, 0 below it."""
    def trunc(self, /) -> Tensor:
        """The whole number nearest to x that is not farther from 0."""
    def unstack(self, /, axis: int=0) -> tuple[Tensor, ...]:
        """The arrays along an axis, without that axis, as views."""
    def var(self, /, axis: int | Sequence[int] | None=None, *, correction: float=0, keepdims: bool=False) -> Tensor:
        """The variance along axes: the sum of (x - mean)^2, divided by their number less correction."""
    def vecdot(self, x2: Operand, /, *, axis: int=-1) -> Tensor:
        """The dot products of vectors along an axis, of x1's complex conjugate with x2."""
    def vector_norm(self, /, axis: int | Sequence[int] | None=None, keepdims: bool=False, ord: float=2) -> Tensor:
        """The ord-norm along axes: the sum of |x|^ord, to the power of 1 / ord."""
    def __neg__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __add__(self, other: ArrayLike) -> Tensor: ...
    def __radd__(self, other: ArrayLike) -> Tensor: ...
    def __sub__(self, other: ArrayLike) -> Tensor: ...
    def __rsub__(self, other: ArrayLike) -> Tensor: ...
    def __mul__(self, other: ArrayLike) -> Tensor: ...
    def __rmul__(self, other: ArrayLike) -> Tensor: ...
    def __truediv__(self, other: ArrayLike) -> Tensor: ...
    def __rtruediv__(self, other: ArrayLike) -> Tensor: ...
    def __floordiv__(self, other: ArrayLike) -> Tensor: ...
    def __rfloordiv__(self, other: ArrayLike) -> Tensor: ...
    def __mod__(self, other: ArrayLike) -> Tensor: ...
    def __rmod__(self, other: ArrayLike) -> Tensor: ...
    def __pow__(self, other: ArrayLike) -> Tensor: ...
    def __rpow__(self, other: ArrayLike) -> Tensor: ...
    def __and__(self, other: ArrayLike) -> Tensor: ...
    def __rand__(self, other: ArrayLike) -> Tensor: ...
    def __or__(self, other: ArrayLike) -> Tensor: ...
    def __ror__(self, other: ArrayLike) -> Tensor: ...
    def __xor__(self, other: ArrayLike) -> Tensor: ...
    def __rxor__(self, other: ArrayLike) -> Tensor: ...
    def __lshift__(self, other: ArrayLike) -> Tensor: ...
    def __rlshift__(self, other: ArrayLike) -> Tensor: ...
    def __rshift__(self, other: ArrayLike) -> Tensor: ...
    def __rrshift__(self, other: ArrayLike) -> Tensor: ...
    def __matmul__(self, other: ArrayLike) -> Tensor: ...
    def __rmatmul__(self, other: ArrayLike) -> Tensor: ...
    def __lt__(self, other: ArrayLike) -> Tensor: ...
    def __le__(self, other: ArrayLike) -> Tensor: ...
    def __gt__(self, other: ArrayLike) -> Tensor: ...
    def __ge__(self, other: ArrayLike) -> Tensor: ...
    def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __hash__(self) -> int: ...
