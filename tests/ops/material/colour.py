"""What tests know of the operators of weft.ops.families.colour."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.colour import CvtColor
from weft.ops.samples import Array, Sample, arrays

TO_YUV = np.array([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]])
FROM_YUV = np.array([[1, 0, 1.14], [1, -0.395, -0.581], [1, 2.032, 0]])


@material(CvtColor)
class _:
    def reference(self, x):
        before, after = self.mode.split("2")
        is_byte = x.dtype == np.uint8
        middle = np.array([0, 1, 1]) * (128 if is_byte else 0.5)
        y = x.astype("float64")
        y = y[..., ::-1] if before == "BGR" else np.repeat(y, 3, -1) if before == "GRAY" else y
        if before == "YUV":
            y = (y - middle) @ FROM_YUV.T
        if after in ("YUV", "GRAY"):
            y = y @ TO_YUV.T
            y = y + middle if after == "YUV" else y[..., :1]
        y = y[..., ::-1] if after == "BGR" else y
        return np.clip(np.round(y), 0, 255).astype("uint8") if is_byte else y

    @classmethod
    def samples(cls):
        for mode in ("RGB2GRAY", "BGR2YUV", "YUV2BGR", "RGB2BGR"):
            yield Sample(arrays((2, 3, 3)), mode=mode)
        yield Sample(arrays((2, 2, 1)), mode="GRAY2RGB")
        pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3))
        for mode in ("BGR2GRAY", "RGB2YUV", "YUV2RGB"):
            yield Sample(Array((4, 5, 3), dtype="uint8", values=pixels), mode=mode)

    @classmethod
    def errors(cls):
        yield ShapeError, "takes 3 channels", Sample(arrays((2, 4)), mode="RGB2GRAY")
        yield ValueError, "mode must be one of", Sample(arrays((2, 3)), mode="GRAY2YUV")
        yield DTypeError, "floats and uint8", Sample(arrays((2, 3), dtype="uint16"), mode="RGB2GRAY")
