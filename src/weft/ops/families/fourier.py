"""Discrete Fourier transforms.

Three operators compute: of complex numbers (Fourier), of real ones (RealFourier) and back to real ones
(RealFromFourier). The functions of the array API standard are made of them, of slices and of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from weft.base.dtype import DType, as_dtype, float32, float64, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.creation import Full, Stepped
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, normalize_axes


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts are of that type, or of float32 for 16-bit floats.

    >>> from weft.base.dtype import float16
    >>> complex_of(float16), complex_of(float64)
    (complex64, complex128)
    """
    return as_dtype("complex128" if dtype.real is float64 else "complex64")


def factor_of(scale: str, size: Any) -> float:
    return {"none": 1.0, "root": 1 / math.sqrt(size), "n": 1 / size}[scale]


def roots_of_unity(x: Any, rows: int, columns: int, n: int, inverse: bool) -> Any:
    """w[j, k] = exp(-2 pi i j k / n), or its conjugate, of x's precision; angles are exact up to their rounding."""

    def numbers(size: int) -> Any:
        return x.__weft_apply__(Stepped, (), {"shape": (size,), "dtype": int64})

    products = F.expand_dims(numbers(rows), axis=1) * F.expand_dims(numbers(columns), axis=0)
    angles = cast_to(F.remainder(products, n), float64) * (2 * math.pi / n)
    w = F.complex(F.cos(angles), F.sin(angles) if inverse else F.negative(F.sin(angles)))
    return cast_to(w, complex_of(x.dtype))


def along_axis(x: Any, matrix: Any, axis: int) -> Any:
    """The product with a matrix along an axis."""
    moved = F.moveaxis(x, source=axis, destination=-1)
    return F.moveaxis(F.matmul(moved, matrix), source=-1, destination=axis)


class FourierTransform(Op, family="fourier", public=False):
    """Base: axes are negative, so that leading ones may be added. scale: the sums times 1, 1 / sqrt(n) or 1 / n, where
    n is the number of points.
    """

    scale: Literal["none", "root", "n"] = "none"


@op
class Fourier(FourierTransform, rule="x[*b]: complex -> y[*b]: x"):
    """The discrete Fourier transform along axes: sums over j of x[j] exp(-2 pi i j k / n); inverse: exp(+...)."""

    axes: tuple[int, ...] = (-1,)
    inverse: bool = False

    def decompose(self, x: Any) -> Any:
        factor = factor_of(self.scale, math.prod(int(x.shape[a]) for a in self.axes))
        y = x
        for axis in self.axes:
            n = int(x.shape[axis])
            y = along_axis(y, roots_of_unity(x, n, n, n, self.inverse), axis)
        return y * factor if factor != 1 else F.positive(y)

    def vjp(self, dy: Any) -> Any:
        return F.fourier(dy, axes=self.axes, inverse=not self.inverse, scale=self.scale)


def end_weights(y: Any, n: int, inner: float) -> Any:
    """[n // 2 + 1] numbers of the type of y's parts: 1 for frequencies that are their own conjugate, else `inner`."""
    count = n // 2 + 1
    k = y.__weft_apply__(Stepped, (), {"shape": (count,), "dtype": int64})
    is_end = F.equal(k, 0) if n % 2 else F.logical_or(F.equal(k, 0), F.equal(k, count - 1))
    return cast_to(F.where(is_end, 1.0, inner), y.dtype.real)


def along(weights: Any, axis: int) -> Any:
    return F.reshape(weights, shape=(-1, *(1,) * (-axis - 1)))


@op
class RealFourier(FourierTransform, rule="x[*b]: float32|float64 -> y: pairs()"):
    """The first n // 2 + 1 numbers of the Fourier transform of real numbers along an axis."""

    axis: int = -1

    def pairs(self, x: TensorType) -> DType:
        return complex_of(x.dtype)

    def infer(self, x: TensorType) -> TensorType:
        (dtype,) = self.match(x)
        shape = list(x.shape)
        shape[self.axis] = int(shape[self.axis]) // 2 + 1
        return x.like(shape, dtype)

    def decompose(self, x: Any) -> Any:
        n = int(x.shape[self.axis])
        y = along_axis(x, roots_of_unity(x, n, n // 2 + 1, n, False), self.axis)
        return y * factor_of(self.scale, n)

    def vjp(self, x: Any, dy: Any) -> Any:
        n = int(x.shape[self.axis])
        halves = dy * along(end_weights(dy, n, 0.5), self.axis)  # it adds conjugates, too
        return F.real_from_fourier(halves, n=n, axis=self.axis, scale=self.scale)


@op
class RealFromFourier(FourierTransform, rule="x[*b]: complex -> y: real()"):
    """The n real numbers with n // 2 + 1 frequencies along an axis: sums of x[k] exp(2 pi i j k / n) and conjugates."""

    n: int
    axis: int = -1

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def infer(self, x: TensorType) -> TensorType:
        (dtype,) = self.match(x)
        shape = list(x.shape)
        if shape[self.axis] != self.n // 2 + 1:
            raise self.fail(ShapeError, f"n={self.n} needs {self.n // 2 + 1} frequencies", x=x)
        shape[self.axis] = self.n
        return x.like(shape, dtype)

    def decompose(self, x: Any) -> Any:
        weighted = x * along(end_weights(x, self.n, 2.0), self.axis)
        matrix = roots_of_unity(x, self.n // 2 + 1, self.n, self.n, True)
        return F.real(along_axis(weighted, matrix, self.axis)) * factor_of(self.scale, self.n)

    def vjp(self, x: Any, dy: Any) -> Any:
        y = F.real_fourier(dy, axis=self.axis, scale=self.scale)
        return y * along(end_weights(y, self.n, 2.0), self.axis)


# The standard's functions.


def resized(x: Any, size: int, axis: int) -> Any:
    """x cut to so many elements along an axis, or with zeros behind them."""
    have = x.shape[axis]
    if have == size:
        return x
    if have > size:
        return F.slice(x, starts=(0,), stops=(size,), axes=(axis,))
    added = list(x.shape)
    added[axis] = size - int(have)
    zeros = x.__weft_apply__(Full, (), {"shape": tuple(added), "value": 0, "dtype": x.dtype})
    return F.concat([x, zeros], axis=axis)


class FourierFunction(Composed, family="fourier", rule="x: number|complex -> y: result()"):
    """Base: norm says which direction divides by the number of points n: "backward" the inverse one, "forward" the
    other one, "ortho" both by sqrt(n).
    """

    norm: Literal["backward", "ortho", "forward"] = "backward"
    inverse: ClassVar[bool] = False

    def result(self, x: TensorType) -> DType:
        return complex_of(x.dtype)

    def scale(self) -> str:
        divides = "backward" if self.inverse else "forward"
        return "root" if self.norm == "ortho" else "n" if self.norm == divides else "none"

    def as_complex(self, x: Any) -> Any:
        return cast_to(x if x.dtype.is_inexact else F.cast(x, dtype=float32), complex_of(x.dtype))

    def as_real(self, x: Any) -> Any:
        return cast_to(x, float64 if x.dtype is float64 else float32)

    def axis_in(self, x: Any, axis: int) -> int:
        """The axis as a negative number."""
        return int(normalize_axes(self.name, axis, x.ndim)[0]) - int(x.ndim)

    def points(self, n: Any, x: Any) -> int:
        if n < 1:
            raise self.fail(ShapeError, f"needs at least 1 point, got {n}", x=x.type)
        return int(n)


class AlongAxis(FourierFunction, positional=("n", "axis")):
    """Base of those along one axis."""

    n: int | None = None
    axis: int = -1


@op
class Fft(AlongAxis):
    """The discrete Fourier transform along an axis: y[k] = sum over j of x[j] exp(-2 pi i j k / n).

    x: numbers [..., m, ...]; n: the number of points, by default m: x is cut, or zeros are appended; norm: "backward"
    for these sums, "ortho" for them divided by sqrt(n), "forward" by n. Returns complex64, for float64 and complex128
    complex128, [..., n, ...]. Raises IndexError if the axis is out of range, ShapeError for n < 1.
    Source: array API 2024.12, fft.fft; Cooley, Tukey 1965.

    >>> import weft as wf
    >>> wf.fft.fft(wf.tensor([1., 0., -1., 0.]))
    tensor([0.+0.j, 2.+0.j, 0.+0.j, 2.+0.j], dtype=complex64, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        axis = self.axis_in(x, self.axis)
        x = resized(self.as_complex(x), self.points(x.shape[axis] if self.n is None else self.n, x), axis)
        return F.fourier(x, axes=(axis,), inverse=self.inverse, scale=self.scale())


@op
class Ifft(Fft, inverse=True):
    """The inverse of fft: y[j] = 1 / n times the sum over k of x[k] exp(2 pi i j k / n).

    x: numbers [..., m, ...]; n: the number of points, by default m: x is cut, or zeros are appended; norm: "forward"
    for sums without the factor, "ortho" for 1 / sqrt(n); axis: the one that is transformed. Returns and raises as fft.
    Source: array API 2024.12, fft.ifft.

    >>> import weft as wf
    >>> wf.real(wf.fft.ifft(wf.tensor([0., 2., 0., 2.]))).tolist()
    [1.0, 0.0, -1.0, 0.0]
    """


@op
class Rfft(AlongAxis, rule="x: number -> y: result()"):
    """The first n // 2 + 1 numbers of the Fourier transform of real numbers; the others are their conjugates.

    x: integers or floats [..., m, ...]; n: the number of points, by default m: x is cut, or zeros are appended; norm:
    as fft. Returns complex64, for float64 complex128, [..., n // 2 + 1, ...]. Raises DTypeError for complex numbers,
    IndexError if the axis is out of range, ShapeError for n < 1.
    Source: array API 2024.12, fft.rfft.

    >>> import weft as wf
    >>> wf.fft.rfft(wf.tensor([1., 0., -1., 0.]))
    tensor([0.+0.j, 2.+0.j, 0.+0.j], dtype=complex64, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        axis = self.axis_in(x, self.axis)
        x = resized(self.as_real(x), self.points(x.shape[axis] if self.n is None else self.n, x), axis)
        return F.real_fourier(x, axis=axis, scale=self.scale())


class ToReal(AlongAxis):
    """Base: frequencies of real numbers, cut or with zeros behind them."""

    def result(self, x: TensorType) -> DType:
        return complex_of(x.dtype).real

    def to_real(self, x: Any) -> Any:
        axis = self.axis_in(x, self.axis)
        n = self.points(2 * (int(x.shape[axis]) - 1) if self.n is None else self.n, x)
        x = resized(x, n // 2 + 1, axis)
        return F.real_from_fourier(x, n=n, axis=axis, scale=self.scale())


@op
class Irfft(ToReal, inverse=True):
    """The inverse of rfft: the n real numbers with these first n // 2 + 1 frequencies.

    x: numbers [..., m, ...], of which the imaginary part of the first, and for even n the last, does not count; n: the
    number of points, by default 2 (m - 1); norm: as ifft. Returns float32, for float64 and complex128 float64,
    [..., n, ...]. Raises IndexError if the axis is out of range, ShapeError for n < 1.
    Source: array API 2024.12, fft.irfft.

    >>> import weft as wf
    >>> wf.fft.irfft(wf.tensor([0., 2., 0.]))
    tensor([ 1.,  0., -1.,  0.], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        return self.to_real(self.as_complex(x))


@op
class Hfft(ToReal):
    """The Fourier transform, n real numbers, of a signal with conjugate symmetry, given n // 2 + 1 numbers of it.

    x: numbers [..., m, ...]; n: the number of points, by default 2 (m - 1); norm: as fft. Returns float32, for float64
    and complex128 float64, [..., n, ...]. Raises IndexError if the axis is out of range, ShapeError for n < 1.
    Source: array API 2024.12, fft.hfft.

    >>> import weft as wf
    >>> wf.fft.hfft(wf.tensor([1., 2., 1.])).tolist()
    [6.0, 0.0, -2.0, 0.0]
    """

    def decompose(self, x: Any) -> Any:
        return self.to_real(F.conj(self.as_complex(x)))


@op
class Ihfft(AlongAxis, inverse=True, rule="x: number -> y: result()"):
    """The inverse of hfft: n // 2 + 1 numbers of a signal with conjugate symmetry, from its real transform.

    x: integers or floats [..., m, ...]; n: the number of points, by default m; axis, norm: as for ifft. Returns
    complex64, for float64 complex128, [..., n // 2 + 1, ...]. Raises as rfft.
    Source: array API 2024.12, fft.ihfft.

    >>> import weft as wf
    >>> wf.real(wf.fft.ihfft(wf.tensor([6., 0., -2., 0.]))).tolist()
    [1.0, 2.0, 1.0]
    """

    def decompose(self, x: Any) -> Any:
        axis = self.axis_in(x, self.axis)
        x = resized(self.as_real(x), self.points(x.shape[axis] if self.n is None else self.n, x), axis)
        return F.conj(F.real_fourier(x, axis=axis, scale=self.scale()))


class AlongAxes(FourierFunction, positional=("s", "axes")):
    """Base of those along several axes."""

    s: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None

    def plan(self, x: Any, halved: bool = False) -> tuple[tuple[int, ...], list[int]]:
        """The axes as negative numbers, and how many points along each; halved: x has the frequencies of real numbers
        along the last one.
        """
        count = x.ndim if self.s is None else len(self.s)
        axes = tuple(range(x.ndim - count, x.ndim)) if self.axes is None else self.axes
        if self.s is not None and len(self.s) != len(axes):
            raise self.fail(ShapeError, f"s has {len(self.s)} sizes for {len(axes)} axes", x=x.type)
        negative = tuple(a - int(x.ndim) for a in normalize_axes(self.name, axes, x.ndim))
        negative = tuple(self.axis_in(x, a) for a in axes) if negative else ()
        if not negative:
            raise self.fail(ShapeError, "needs at least one axis", x=x.type)
        sizes = list(self.s) if self.s is not None else [x.shape[a] for a in negative]
        if self.s is None and halved:
            sizes[-1] = 2 * (int(sizes[-1]) - 1)
        return negative, [self.points(n, x) for n in sizes]


def resized_all(x: Any, sizes: Sequence[int], axes: Sequence[int]) -> Any:
    for n, axis in zip(sizes, axes, strict=True):
        x = resized(x, n, axis)
    return x


@op
class Fftn(AlongAxes):
    """The discrete Fourier transform along several axes.

    x: numbers [...]; s: the numbers of points, by default x's sizes: x is cut, or zeros are appended; axes: by default
    the last len(s) or all; norm: as fft. Returns as fft. Raises IndexError if an axis is out of range, ShapeError if s
    and axes differ in number or a number is below 1.
    Source: array API 2024.12, fft.fftn.

    >>> import weft as wf
    >>> wf.real(wf.fft.fftn(wf.ones((2, 2)))).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """

    def decompose(self, x: Any) -> Any:
        axes, sizes = self.plan(x)
        x = resized_all(self.as_complex(x), sizes, axes)
        return F.fourier(x, axes=axes, inverse=self.inverse, scale=self.scale())


@op
class Ifftn(Fftn, inverse=True):
    """The inverse of fftn.

    x: numbers [...]; s: the numbers of points, by default x's sizes; axes: by default the last len(s) or all; norm: as
    ifft. Returns and raises as fftn.
    Source: array API 2024.12, fft.ifftn.

    >>> import weft as wf
    >>> wf.real(wf.fft.ifftn(wf.ones((2, 2)))).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """


@op
class Rfftn(AlongAxes, rule="x: number -> y: result()"):
    """The Fourier transform of real numbers along several axes; along the last one the first n // 2 + 1 numbers.

    x: integers or floats [...]; s: the numbers of points, by default x's sizes; axes: by default the last len(s) or
    all; norm: as fft. Returns as rfft. Raises DTypeError for complex numbers, and as fftn.
    Source: array API 2024.12, fft.rfftn.

    >>> import weft as wf
    >>> wf.fft.rfftn(wf.ones((2, 4))).shape
    (2, 3)
    """

    def decompose(self, x: Any) -> Any:
        axes, sizes = self.plan(x)
        x = resized_all(self.as_real(x), sizes, axes)
        y = F.real_fourier(x, axis=axes[-1], scale=self.scale())
        return F.fourier(y, axes=axes[:-1], scale=self.scale()) if len(axes) > 1 else y


@op
class Irfftn(AlongAxes, inverse=True):
    """The inverse of rfftn.

    x: numbers [...]; s: the numbers of points of the result, by default x's sizes, of the last axis 2 (m - 1); axes: by
    default the last len(s) or all; norm: as ifft. Returns as irfft. Raises as fftn.
    Source: array API 2024.12, fft.irfftn.

    >>> import weft as wf
    >>> wf.fft.irfftn(wf.fft.rfftn(wf.ones((2, 4)))).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    def result(self, x: TensorType) -> DType:
        return complex_of(x.dtype).real

    def decompose(self, x: Any) -> Any:
        axes, sizes = self.plan(x, halved=True)
        x = resized_all(self.as_complex(x), [*sizes[:-1], sizes[-1] // 2 + 1], axes)
        if len(axes) > 1:
            x = F.fourier(x, axes=axes[:-1], inverse=True, scale=self.scale())
        return F.real_from_fourier(x, n=sizes[-1], axis=axes[-1], scale=self.scale())


@op
class Fft2(Fftn, name="fft2"):
    """The discrete Fourier transform along two axes, by default the last ones: fftn.

    x, s, axes, norm: as for fftn. Returns and raises as fftn.
    Source: NumPy 2, fft.fft2.

    >>> import weft as wf
    >>> wf.fft.fft2(wf.ones((3, 2, 2))).shape
    (3, 2, 2)
    """

    axes: tuple[int, ...] | None = (-2, -1)


@op
class Ifft2(Ifftn, name="ifft2"):
    """The inverse of fft2: ifftn along two axes, by default the last ones.

    x, s, axes, norm: as for ifftn. Returns and raises as ifftn.
    Source: NumPy 2, fft.ifft2.

    >>> import weft as wf
    >>> wf.fft.ifft2(wf.ones((3, 2, 2))).shape
    (3, 2, 2)
    """

    axes: tuple[int, ...] | None = (-2, -1)


@op
class Rfft2(Rfftn, name="rfft2"):
    """The Fourier transform of real numbers along two axes, by default the last ones: rfftn.

    x, s, axes, norm: as for rfftn. Returns and raises as rfftn.
    Source: NumPy 2, fft.rfft2.

    >>> import weft as wf
    >>> wf.fft.rfft2(wf.ones((3, 2, 4))).shape
    (3, 2, 3)
    """

    axes: tuple[int, ...] | None = (-2, -1)


@op
class Irfft2(Irfftn, name="irfft2"):
    """The inverse of rfft2: irfftn along two axes, by default the last ones.

    x, s, axes, norm: as for irfftn. Returns and raises as irfftn.
    Source: NumPy 2, fft.irfft2.

    >>> import weft as wf
    >>> wf.fft.irfft2(wf.ones((3, 2, 3))).shape
    (3, 2, 4)
    """

    axes: tuple[int, ...] | None = (-2, -1)


class FrequencyShift(Composed, family="fourier", rule="x[*s] -> y[*s]: x"):
    """Base: the elements along axes in a circle."""

    axes: int | tuple[int, ...] | None = None
    sign: ClassVar[int] = 1

    def decompose(self, x: Any) -> Any:
        axes = normalize_axes(self.name, self.axes, x.ndim)
        steps = tuple(int(x.shape[a]) // 2 if self.sign > 0 else -(int(x.shape[a]) // 2) for a in axes)
        return F.roll(x, shift=steps, axis=tuple(axes)) if axes else F.positive(x)


@op
class Fftshift(FrequencyShift):
    """The frequency 0 moved from the first place to the middle, along axes.

    x: any dtype [...]; axes: one, several, or None for all. Returns x's shape and dtype. Raises IndexError if an axis
    is out of range.
    Source: array API 2024.12, fft.fftshift.

    >>> import weft as wf
    >>> wf.fft.fftshift(wf.tensor([0, 1, 2, -2, -1])).tolist()
    [-2, -1, 0, 1, 2]
    """


@op
class Ifftshift(FrequencyShift, sign=-1):
    """The frequency 0 moved from the middle to the first place, along axes: the inverse of fftshift.

    x: any dtype [...]; axes: one, several, or None for all. Returns x's shape and dtype. Raises IndexError if an axis
    is out of range.
    Source: array API 2024.12, fft.ifftshift.

    >>> import weft as wf
    >>> wf.fft.ifftshift(wf.tensor([-2, -1, 0, 1, 2])).tolist()
    [0, 1, 2, -2, -1]
    """


__all__ = [
    "Fft",
    "Fft2",
    "Fftn",
    "Fftshift",
    "Fourier",
    "Hfft",
    "Ifft",
    "Ifft2",
    "Ifftn",
    "Ifftshift",
    "Ihfft",
    "Irfft",
    "Irfft2",
    "Irfftn",
    "RealFourier",
    "RealFromFourier",
    "Rfft",
    "Rfft2",
    "Rfftn",
    "complex_of",
]
