"""What tests know of the operators of weft.ops.families.complex."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.complex import Angle, Complex, Conj, Imag, Polar, Real, ViewAsComplex, ViewAsReal
from weft.ops.samples import Array, Sample, arrays

SHAPES = ((2, 3), (), (0, 4), (17,))


@material(Real)
class _:
    def reference(self, x):
        return np.real(x)

    @classmethod
    def samples(cls):
        for shape in SHAPES:
            yield Sample(arrays(shape))

    @classmethod
    def errors(cls):
        yield DTypeError, "takes integers", Sample(arrays((2,), dtype="bool"))


@material(Imag)
class _:
    def reference(self, x):
        return np.imag(x)

    @classmethod
    def samples(cls):
        yield from Real.samples()


@material(Conj)
class _:
    def reference(self, x):
        return np.conj(x)

    @classmethod
    def samples(cls):
        yield from Real.samples()


@material(Angle)
class _:
    def reference(self, x):
        return np.angle(x)

    @classmethod
    def samples(cls):
        for shape in SHAPES:
            yield Sample(Array(shape, low=0.5, high=2.0))
        yield Sample(arrays((9,)), gradient=False)


@material(Complex)
class _:
    def reference(self, re, im):
        return re + 1j * np.asarray(im)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3,)))
        yield Sample(arrays(()), arrays(()))
        yield Sample(arrays((0, 4)), arrays((0, 4)))
        yield Sample(arrays((5,)), 1.5)
        yield Sample(arrays((4,), dtype="float32"), arrays((4,), dtype="float64"))

    @classmethod
    def errors(cls):
        yield DTypeError, "takes floating-point types", Sample(arrays((2,), dtype="complex64"), arrays((2,)))
        yield ShapeError, "sizes 2 and 3", Sample(arrays((2,)), arrays((3,)))


@material(Polar)
class _:
    def reference(self, magnitude, angle):
        return magnitude * np.exp(1j * np.asarray(angle))

    def torch_reference(self, torch, magnitude, angle):  # whose gradient holds for magnitudes above 0
        return torch.polar(magnitude.abs(), angle) * magnitude.sign()

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3,)))
        yield Sample(arrays(()), arrays(()))
        yield Sample(arrays((0, 4)), arrays((0, 4)))


@material(ViewAsReal)
class _:
    def reference(self, x):
        return np.stack([x.real, x.imag], axis=-1)

    @classmethod
    def samples(cls):
        for shape in SHAPES:
            yield Sample(arrays(shape), dtypes=("complex64", "complex128"))

    @classmethod
    def errors(cls):
        yield DTypeError, "takes complex types", Sample(arrays((2,)))


@material(ViewAsComplex)
class _:
    def reference(self, x):
        return x[..., 0] + 1j * x[..., 1]

    @classmethod
    def samples(cls):
        for shape in SHAPES:
            yield Sample(arrays((*shape, 2)), dtypes=("float32", "float64"))

    @classmethod
    def errors(cls):
        yield DTypeError, "takes float32 or float64", Sample(arrays((2,), dtype="float16"))
        yield ShapeError, "x has size 3, not 2", Sample(arrays((3,)))
