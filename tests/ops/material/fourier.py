"""What tests know of the operators of weft.ops.families.fourier."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.fourier import (
    AlongAxes,
    AlongAxis,
    Fftshift,
    FourierFunction,
    FrequencyShift,
    Ifftshift,
)
from weft.ops.samples import Sample, arrays


@material(FourierFunction)
class _:
    def reference(self, x):
        function = getattr(np.fft, self.name)
        sizes = {name: getattr(self, name) for name in ("n", "axis", "s", "axes") if hasattr(self, name)}
        if sizes.get("s") is not None and sizes["axes"] is None:
            sizes["axes"] = tuple(range(-len(sizes["s"]), 0))
        return function(x, norm=self.norm, **sizes)


@material(AlongAxis)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 5)))
        yield Sample(arrays((5, 2)), axis=0, n=4, norm="ortho")
        yield Sample(arrays((4,)), n=7, norm="forward")
        yield Sample(arrays((0, 3)))
        yield Sample(arrays((2, 3, 2)), axis=-2, n=1)

    @classmethod
    def errors(cls):
        yield IndexError, "axis 2 is out of range", Sample(arrays((2, 3)), axis=2)
        yield ShapeError, "needs at least 1 point, got 0", Sample(arrays((2, 3)), n=0)
        if cls.name in ("rfft", "ihfft"):
            yield DTypeError, "takes numbers", Sample(arrays((2, 3), dtype="complex64"))


@material(AlongAxes)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 5)))
        yield Sample(arrays((2, 3, 4)), s=(4, 3), axes=(0, 2), norm="ortho")
        yield Sample(arrays((2, 3, 4)), axes=(1, 0), norm="forward")

    @classmethod
    def errors(cls):
        yield IndexError, "axis 2 is out of range", Sample(arrays((2, 3)), axes=(0, 2))
        yield ShapeError, "s has 1 sizes for 2 axes", Sample(arrays((2, 3)), s=(2,), axes=(0, 1))
        yield ShapeError, "needs at least 1 point, got 0", Sample(arrays((2, 3)), s=(2, 0), axes=(0, 1))


@material(FrequencyShift)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((5,)))
        yield Sample(arrays((3, 4)))
        yield Sample(arrays((3, 4)), axes=0)
        yield Sample(arrays((2, 3, 4)), axes=(0, -1))
        yield Sample(arrays(()))

    @classmethod
    def errors(cls):
        yield IndexError, "axis 2 is out of range", Sample(arrays((2, 3)), axes=2)


@material(Fftshift)
class _:
    def reference(self, x):
        return np.fft.fftshift(x, self.axes) if x.ndim else x


@material(Ifftshift)
class _:
    def reference(self, x):
        return np.fft.ifftshift(x, self.axes) if x.ndim else x
