"""What tests know of the operators of weft.ops.families.float8: the types of ml_dtypes have the same bits."""

import ml_dtypes
import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError
from weft.ops.families.float8 import LARGEST, FromFloat8, ToFloat8
from weft.ops.samples import Array, Sample, arrays

TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
FLOATS = ("float64", "float32", "float16", "bfloat16")


def encoded(x, format, saturate):
    code = np.asarray(x).astype(TYPES[format]).view(np.uint8)
    sign = np.signbit(np.asarray(x, np.float64))
    beyond = ~np.isnan(x) & ((code & 127) > LARGEST[format])
    if saturate:
        code = np.where(beyond, code & 128 | LARGEST[format], code).astype(np.uint8)
    return np.where(np.isnan(x), sign * 128 + (0x7F if format == "e4m3" else 0x7E), code).astype(np.uint8)


@material(ToFloat8)
class _:
    def reference(self, x):
        return encoded(x, self.format, self.saturate)

    @classmethod
    def samples(cls):
        edges = [
            0.0,
            -0.0,
            448.0,
            464.0,
            464.1,
            -465.0,
            57344.0,
            61439.0,
            61440.0,
            1e30,
            np.inf,
            -np.inf,
            np.nan,
        ]
        halves = np.concatenate(
            [np.arange(-20, 20) * 2.0**-k for k in (4, 10, 17, 20)]
        )  # ties, and denormals
        values = np.concatenate([edges, halves, halves * 1.001]).astype(np.float32)
        for format in TYPES:
            yield Sample(arrays((3, 4), low=-600, high=600), format=format, gradient=False, dtypes=FLOATS)
            for saturate in (True, False):
                every = Array(values.shape, values=values)
                options = {"format": format, "saturate": saturate, "gradient": False}
                yield Sample(every, dtypes=("float32",), **options)
        yield Sample(arrays((0,)), gradient=False)

    @classmethod
    def errors(cls):
        yield TypeError, "format must be", Sample(arrays((3,)), format="e3m4")


@material(FromFloat8)
class _:
    def reference(self, q):
        return np.asarray(q).view(TYPES[self.format]).astype(np.float64)

    @classmethod
    def samples(cls):
        codes = Array((256,), values=np.arange(256, dtype=np.uint8), dtype="uint8")
        for format in TYPES:
            for dtype in FLOATS:
                yield Sample(codes, format=format, dtype=dtype)
        yield Sample(Array((3, 0), low=0, high=9, dtype="uint8"))

    @classmethod
    def errors(cls):
        yield DTypeError, "takes uint8", Sample(Array((3,), low=0, high=9, dtype="int32"))
