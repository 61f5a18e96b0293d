"""What tests know of the operators of weft.ops.families.creation."""

import numpy as np
from tests.ops.material import material

from weft.ops.families.creation import Full, Stepped
from weft.ops.samples import Sample


@material(Full)
class _:
    def reference(self):
        return np.full(self.shape, self.value, self.dtype.numpy)

    @classmethod
    def samples(cls):
        yield Sample(shape=(2, 3), value=1.5)
        yield Sample(shape=(), value=-3, dtype="int8")
        yield Sample(shape=(0, 2), value=True, dtype="bool")


@material(Stepped)
class _:
    def reference(self):
        kind = np.float64 if self.dtype.is_floating else np.int64
        steps = self.start + np.arange(self.shape[0], dtype=kind) * self.step
        column = steps.astype(self.dtype.numpy).reshape(-1, *(1,) * (len(self.shape) - 1))
        return np.broadcast_to(column, self.shape).copy()

    @classmethod
    def samples(cls):
        yield Sample(shape=(4,))
        yield Sample(shape=(3, 2), start=1.5, step=-0.25, dtype="float32")
        yield Sample(shape=(0,), dtype="int8")
