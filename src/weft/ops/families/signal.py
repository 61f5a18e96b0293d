"""Signals: short-time Fourier transforms and their inverse, integrals by trapezoids, interpolation between points."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.cumulative import shifted
from weft.ops.families.fourier import complex_of
from weft.ops.families.reduction import window
from weft.ops.families.window import Windows, windows_of
from weft.ops.op import op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, normalize_axes


class ShortTime(Composed, family="fourier"):
    """Base: frames of n_fft elements, hop_length apart; a window of win_length is in the middle of each.

    normalized: divided by the root of n_fft; onesided: only the frequencies 0 ... n_fft / 2.
    """

    n_fft: int
    hop_length: int | None = None
    win_length: int | None = None
    center: bool = True
    normalized: bool = False

    def check(self) -> None:
        if self.n_fft < 1 or (self.hop_length is not None and self.hop_length < 1):
            raise ValueError(
                f"{self.name}: n_fft and hop_length must be at least 1, got {self.n_fft} and {self.hop_length}"
            )
        if self.win_length is not None and not 1 <= self.win_length <= self.n_fft:
            raise ValueError(f"{self.name}: win_length must be in 1..{self.n_fft}, got {self.win_length}")

    def complex_result(self, x: TensorType, *_: TensorType | None) -> DType:
        """The dtype of transforms."""
        return complex_of(x.dtype)

    def real_result(self, x: TensorType, *_: TensorType | None) -> DType:
        """The dtype of signals."""
        return x.dtype.real

    @property
    def hop(self) -> int:
        """How far frames are apart."""
        return self.hop_length or max(self.n_fft // 4, 1)

    def full_window(self, x: Any, weights: Any) -> Any:
        """The window [n_fft], zeros around it; ones if there is none."""
        length = self.win_length or self.n_fft
        if weights is None:
            weights = F.filled_like(F.sum(window(x, x.ndim - 1, 0, 1)), value=1.0)
            weights = F.broadcast_to(weights, shape=(length,))
        elif tuple(weights.shape) != (length,):
            raise self.fail(ShapeError, f"window must be [{length}]", window=weights.type)
        before = (self.n_fft - length) // 2
        after = self.n_fft - length - before
        return F.pad(weights, pad=(before, after)) if before or after else weights


@op
class Stft(
    ShortTime,
    rule="x: float32|float64, window?: float -> y: complex_result()",
    positional=(
        "x",
        "n_fft",
        "hop_length",
        "win_length",
        "window",
        "center",
        "pad_mode",
        "normalized",
        "onesided",
    ),
):
    """The Fourier transforms of the frames of signals, each multiplied by a window (short-time Fourier transform).

    x: float32 or float64 [..., l]; window: float[win_length], None for ones; n_fft: the size of a frame; hop_length:
    how far frames are apart, by default n_fft // 4; win_length: of the window, by default n_fft, in the middle of the
    frame. center: frames have their middle at multiples of hop_length, x is padded by n_fft // 2 as pad's pad_mode
    says; normalized: divided by the root of n_fft; onesided: the frequencies 0 ... n_fft // 2 alone. Returns the
    complex dtype [..., frequencies, frames]. Raises ShapeError if no frame fits, ValueError for attributes out of
    range.
    Source: PyTorch's stft; Allen, Rabiner 1977, A unified approach to short-time Fourier analysis and synthesis.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.stft(wf.ones(8), 4, center=False)
    tensor([[4.+0.j, 4.+0.j, 4.+0.j, 4.+0.j, 4.+0.j],
            [0.+0.j, 0.+0.j, 0.+0.j, 0.+0.j, 0.+0.j],
            [0.+0.j, 0.+0.j, 0.+0.j, 0.+0.j, 0.+0.j]], dtype=complex64, device=cpu:0)
    """

    pad_mode: str = "reflect"
    onesided: bool = True

    def decompose(self, x: Any, window: Any = None) -> Any:
        if x.ndim < 1:
            raise self.fail(ShapeError, "x needs a dimension", x=x.type)
        lead, length = x.shape[:-1], x.shape[-1]
        weights = self.full_window(x, window)
        rows = F.reshape(x, shape=(-1, 1, length)) if length else F.reshape(x, shape=(0, 1, 0))
        if self.center:
            edge = self.n_fft // 2
            rows = F.pad(rows, pad=(edge, edge), mode=self.pad_mode)
        frames = Windows((self.n_fft,), (self.hop,), (0,), (0,), (1,))
        (count,) = frames.number(rows.shape[-1:])
        if count < 1:
            raise self.fail(ShapeError, f"no frame of {self.n_fft} fits", x=x.type)
        parts = windows_of(rows, frames, (count,)) * cast_to(weights, x.dtype)
        norm = "ortho" if self.normalized else "backward"
        transform = F.rfft if self.onesided else F.fft
        y = transform(parts, axis=-1, norm=norm)
        y = F.permute_dims(F.reshape(y, shape=(-1, count, y.shape[-1])), axes=(0, 2, 1))
        return F.reshape(y, shape=(*lead, *y.shape[1:]))


@op
class Istft(
    ShortTime,
    rule="x: complex, window?: float -> y: real_result()",
    positional=(
        "x",
        "n_fft",
        "hop_length",
        "win_length",
        "window",
        "center",
        "normalized",
        "onesided",
        "length",
    ),
):
    """The signals whose short-time Fourier transforms are nearest to x: the inverse of stft.

    x: complex[..., frequencies, frames]; window, n_fft, hop_length, win_length, center, normalized, onesided: as
    stft's; length: of the result, by default as far as frames reach; it is cut or padded with zeros. Frames are
    multiplied by the window, added where they overlap, and divided by the sum of the squares of the windows there;
    where that is 0 the result is 0. Returns float[..., length]. Raises ShapeError for another number of frequencies.
    Source: PyTorch's istft; Griffin, Lim 1984, Signal estimation from modified short-time Fourier transform.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.istft(F.stft(wf.tensor([1., 2., 3., 4., 5., 6.]), 4), 4)
    tensor([1., 2., 3., 4., 5., 6.], dtype=float32, device=cpu:0)
    """

    onesided: bool = True
    length: int | None = None

    def decompose(self, x: Any, window: Any = None) -> Any:
        frequencies = self.n_fft // 2 + 1 if self.onesided else self.n_fft
        if x.ndim < 2 or x.shape[-2] != frequencies or 0 in x.shape:
            raise self.fail(ShapeError, f"x must be [..., {frequencies}, frames] and not empty", x=x.type)
        lead, count = x.shape[:-2], x.shape[-1]
        spectra = F.permute_dims(F.reshape(x, shape=(-1, frequencies, count)), axes=(0, 2, 1))
        norm = "ortho" if self.normalized else "backward"
        if self.onesided:
            frames = F.irfft(spectra, n=self.n_fft, axis=-1, norm=norm)
        else:
            frames = F.real(F.ifft(spectra, axis=-1, norm=norm))
        weights = cast_to(self.full_window(frames, window), frames.dtype)
        total = self.n_fft + self.hop * (int(count) - 1)

        def added(v: Any) -> Any:
            """Frames [b, frames, n_fft] where they belong, [b, total]."""
            columns = F.permute_dims(v, axes=(0, 2, 1))
            image = F.fold(columns, output_size=(1, total), kernel_size=(1, self.n_fft), stride=(1, self.hop))
            return F.reshape(image, shape=(v.shape[0], total))

        weight = added(F.broadcast_to(F.square(weights), shape=(1, count, self.n_fft)))
        is_read = weight > 1e-11
        y = F.where(is_read, added(frames * weights) / F.where(is_read, weight, 1), 0)
        start = self.n_fft // 2 if self.center else 0
        end = total - start if self.length is None else start + self.length
        kept = min(end, total)
        y = F.slice(y, starts=(start,), stops=(kept,), axes=(1,))
        y = F.pad(y, pad=(0, end - kept)) if end > kept else y
        return F.reshape(y, shape=(*lead, y.shape[1]))


class Trapezoids(
    Composed,
    family="statistics",
    rule="y: float, x?: float -> z: promote",
    positional=("y", "x", "dx", "axis"),
):
    """Base: the areas between neighbours along an axis."""

    dx: float = 1.0
    axis: int = -1

    def areas(self, y: Any, x: Any) -> tuple[Any, int]:
        """[..., n - 1, ...], and the axis."""
        (axis,) = normalize_axes(self.name, self.axis, y.ndim)
        n = y.shape[axis]
        if n < 1:
            raise self.fail(ShapeError, f"axis {axis} is empty", y=y.type)
        pairs = [window(y, axis, k, n - 1) for k in (0, 1)]
        heights = (pairs[0] + pairs[1]) * 0.5
        if x is None:
            return heights * self.dx, axis
        if x.ndim == 1 and x.shape[0] == n:
            x = F.reshape(x, shape=(-1,) + (1,) * (y.ndim - 1 - axis))
        elif x.shape != y.shape:
            raise self.fail(ShapeError, f"x must be [{n}] or have y's shape", y=y.type, x=x.type)
        along = axis - y.ndim + x.ndim
        return heights * (window(x, along, 1, n - 1) - window(x, along, 0, n - 1)), axis


@op
class Trapezoid(Trapezoids):
    """The integral of samples along an axis by the trapezoidal rule.

    y: float[..., n, ...]; x: where the samples are, [n] or of y's shape; without it they are dx apart. Returns the
    promoted dtype without the axis. Raises ShapeError if shapes do not fit, IndexError for an axis out of range.
    Source: NumPy's trapezoid.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.trapezoid(wf.tensor([1., 2., 3.]), wf.tensor([0., 1., 3.])).item()
    6.5
    """

    def decompose(self, y: Any, x: Any = None) -> Any:
        areas, axis = self.areas(y, x)
        return F.sum(areas, axis=axis)


@op
class CumulativeTrapezoid(Trapezoids):
    """The integrals of samples along an axis up to each sample behind the first, by the trapezoidal rule.

    y: float[..., n, ...]; x: where the samples are, [n] or of y's shape; without it they are dx apart. Returns the
    promoted dtype [..., n - 1, ...]. Raises ShapeError if shapes do not fit, IndexError for an axis out of range.
    Source: PyTorch's cumulative_trapezoid.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cumulative_trapezoid(wf.tensor([1., 2., 3.])).tolist()
    [1.5, 4.0]
    """

    def decompose(self, y: Any, x: Any = None) -> Any:
        areas, axis = self.areas(y, x)
        return F.cumulative_sum(areas, axis=axis)


@op
class Interp(
    Composed, family="statistics", rule="x: float, xp[points]: float, fp[points]: float -> y: promote"
):
    """The function that is linear between points, at places x.

    x: float[...]; xp: float[n], ascending, fp: float[n], the points; before the first and behind the last, left and
    right, by default the first and the last of fp. NaN stays. Returns the promoted type in x's shape. Raises ShapeError
    if sizes differ or there is no point.
    Source: NumPy's interp.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.interp(wf.tensor([0.5, 9.]), wf.tensor([0., 1., 2.]), wf.tensor([0., 10., 40.]))
    tensor([ 5., 40.], dtype=float32, device=cpu:0)
    """

    left: float | None = None
    right: float | None = None

    def decompose(self, x: Any, xp: Any, fp: Any) -> Any:
        n = xp.shape[0]
        if n < 1:
            raise self.fail(ShapeError, "there are no points", xp=xp.type)
        right = F.clip(F.searchsorted(xp, x, side="right"), min(1, n - 1), n - 1)
        at = right - 1 if n > 1 else right
        x0, x1, y0, y1 = (F.take(v, i, axis=0) for v in (xp, fp) for i in (at, right))
        width = x1 - x0
        is_flat = F.equal(width, 0)
        y = y0 + (y1 - y0) * F.where(is_flat, 0, (x - x0) / F.where(is_flat, 1, width))
        first, last = (window(v, 0, k, 1) for v in (xp,) for k in (0, n - 1))
        ends = [
            window(fp, 0, k, 1) if end is None else end for k, end in ((0, self.left), (n - 1, self.right))
        ]
        y = F.where(x < first, ends[0], F.where(x > last, ends[1], y))
        return F.where(F.isnan(x), x, y)


@op
class Logcumsumexp(Composed, family="cumulative", rule="x: float -> y: x", positional=("axis",)):
    """The logarithm of the sum of exp of a row's elements up to each: log(exp(x[0]) + ... + exp(x[i])).

    x: float[..., n, ...]; axis: which n. No sum overflows. Returns x's type. Raises IndexError if the axis is out of
    range.
    Source: PyTorch's logcumsumexp.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.logcumsumexp(wf.tensor([1000., 1000.]))
    tensor([1000.    , 1000.6932], dtype=float32, device=cpu:0)
    """

    axis: int = -1

    def decompose(self, x: Any) -> Any:
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        y, distance, n = cast_to(x, x.dtype.accumulation), 1, int(x.shape[axis])
        while distance < n:  # each element is of so many, up to the row's beginning
            y = F.logaddexp(y, shifted(y, axis, -distance, -float("inf")))
            distance *= 2
        return cast_to(y, x.dtype)


__all__ = ["CumulativeTrapezoid", "Interp", "Istft", "Logcumsumexp", "Stft", "Trapezoid"]
