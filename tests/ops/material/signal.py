"""What tests know of the operators of weft.ops.families.signal: NumPy, one frame at a time."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.signal import CumulativeTrapezoid, Interp, Istft, Logcumsumexp, Stft, Trapezoid
from weft.ops.samples import Array, Sample, arrays

FLOATS = ("float32", "float64")


def window_of(op, weights):
    length = op.win_length or op.n_fft
    before = (op.n_fft - length) // 2
    weights = np.ones(length) if weights is None else weights
    return np.pad(weights, (before, op.n_fft - length - before))


@material(Stft)
class _:
    def reference(self, x, window=None):
        hop, weights = self.hop_length or max(self.n_fft // 4, 1), window_of(self, window)
        if self.center:
            mode = {"replicate": "edge", "circular": "wrap"}.get(self.pad_mode, self.pad_mode)
            x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(self.n_fft // 2,) * 2], mode=mode)
        starts = range(0, x.shape[-1] - self.n_fft + 1, hop)
        frames = np.stack([x[..., k : k + self.n_fft] * weights for k in starts], axis=-2)
        y = (np.fft.rfft if self.onesided else np.fft.fft)(frames, norm="ortho" if self.normalized else None)
        return np.swapaxes(y, -1, -2)

    def torch_reference(self, torch, x, window=None):
        return NotImplemented  # rows of no more than two dimensions

    @classmethod
    def samples(cls):
        yield Sample(arrays((9,)), 4, dtypes=FLOATS)
        yield Sample(arrays((2, 11)), 6, 2, 4, arrays((4,)), dtypes=FLOATS, normalized=True)
        yield Sample(arrays((2, 1, 9)), 5, 3, center=False, onesided=False, dtypes=FLOATS)
        yield Sample(arrays((7,)), 4, 3, pad_mode="constant", dtypes=FLOATS)

    @classmethod
    def errors(cls):
        yield ShapeError, "no frame of 5 fits", Sample(arrays((3,)), 5, center=False)
        yield ShapeError, "window must be [4]", Sample(arrays((9,)), 4, None, None, arrays((3,)))
        yield ValueError, "win_length must be in 1..4", Sample(arrays((9,)), 4, win_length=5)
        yield ValueError, "hop_length must be at least 1", Sample(arrays((9,)), 4, 0)
        yield DTypeError, "", Sample(arrays((9,), dtype="int32"), 4)


@material(Istft)
class _:
    def reference(self, x, window=None):
        hop, weights = self.hop_length or max(self.n_fft // 4, 1), window_of(self, window)
        norm = "ortho" if self.normalized else None
        x = np.swapaxes(x, -1, -2)
        frames = np.fft.irfft(x, self.n_fft, norm=norm) if self.onesided else np.fft.ifft(x, norm=norm).real
        total = self.n_fft + hop * (frames.shape[-2] - 1)
        y, weight = np.zeros((*frames.shape[:-2], total)), np.zeros(total)
        for k in range(frames.shape[-2]):
            y[..., k * hop : k * hop + self.n_fft] += frames[..., k, :] * weights
            weight[k * hop : k * hop + self.n_fft] += weights**2
        y = np.where(weight > 1e-11, y / np.where(weight > 1e-11, weight, 1), 0)
        start = self.n_fft // 2 if self.center else 0
        length = total - 2 * start if self.length is None else self.length
        y = y[..., start : start + length]
        return np.pad(y, [(0, 0)] * (y.ndim - 1) + [(0, length - y.shape[-1])])

    def torch_reference(self, torch, x, window=None):
        return NotImplemented

    @classmethod
    def samples(cls):
        def spectra(*shape):
            return Array(shape, dtype="complex128")

        yield Sample(spectra(3, 4), 4, gradient=False)
        yield Sample(
            spectra(2, 4, 3), 6, 2, 5, Array((5,), low=0.5, dtype="float64"), normalized=True, gradient=False
        )
        yield Sample(spectra(5, 2), 5, 3, center=False, onesided=False, length=11, gradient=False)
        yield Sample(spectra(3, 4), 4, 1, length=2, gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "x must be [..., 3, frames]", Sample(Array((4, 2), dtype="complex64"), 4)


@material(Trapezoid)
class _:
    def reference(self, y, x=None):
        return np.trapezoid(y, x, self.dx, self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((5,)), dx=0.5)
        yield Sample(arrays((2, 5)), arrays((5,)))
        yield Sample(arrays((4, 3)), arrays((4,)), axis=0)
        yield Sample(arrays((4, 3)), arrays((4, 3)), axis=0)
        yield Sample(arrays((2, 1)))

    @classmethod
    def errors(cls):
        yield ShapeError, "x must be [5]", Sample(arrays((2, 5)), arrays((4,)))
        yield IndexError, "axis 2", Sample(arrays((2, 5)), axis=2)


@material(CumulativeTrapezoid)
class _:
    def reference(self, y, x=None):
        y = np.moveaxis(y, self.axis, -1)
        if x is not None and x.ndim > 1:
            x = np.moveaxis(x, self.axis, -1)
        step = self.dx if x is None else np.diff(x)
        return np.moveaxis(np.cumsum((y[..., 1:] + y[..., :-1]) / 2 * step, axis=-1), -1, self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((5,)), dx=0.5)
        yield Sample(arrays((4, 3)), arrays((4,)), axis=0)
        yield Sample(arrays((4, 3)), arrays((4, 3)), axis=0)

    @classmethod
    def errors(cls):
        yield ShapeError, "is empty", Sample(arrays((2, 0)))


@material(Interp)
class _:
    def reference(self, x, xp, fp):
        return np.where(np.isnan(x), np.nan, np.interp(x, xp, fp, self.left, self.right))

    @classmethod
    def samples(cls):
        points = (Array((4,), values=(-1.5, -0.25, 0.75, 1.5)), arrays((4,)))
        yield Sample(Array((2, 5), distinct=True, low=-1.97, high=1.91), *points, dtypes=FLOATS, tolerance=8)
        yield Sample(
            arrays((5,), distinct=True), *points, left=-3.0, right=7.0, dtypes=FLOATS, gradient=False
        )
        yield Sample(Array((3,), values=(0.5, np.nan, 1.5)), *points, dtypes=FLOATS, gradient=False)
        yield Sample(arrays((3,)), Array((1,), values=(0.5,)), arrays((1,)), dtypes=FLOATS, gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "there are no points", Sample(arrays((3,)), arrays((0,)), arrays((0,)))
        yield ShapeError, "points", Sample(arrays((3,)), arrays((2,)), arrays((3,)))


@material(Logcumsumexp)
class _:
    def reference(self, x):
        return np.logaddexp.accumulate(np.asarray(x, np.float64), axis=self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((5,)))
        yield Sample(arrays((3, 7)), 0)
        yield Sample(Array((2, 3), values=((1000.0, 999.0, -1000.0), (-1000.0, 0.0, 1.0))), dtypes=FLOATS)
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls):
        yield IndexError, "axis 1", Sample(arrays((3,)), 1)
