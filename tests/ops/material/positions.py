"""What tests know of the operators of weft.ops.families.positions."""

import itertools

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.positions import PackedRanges, RotaryEmbedding
from weft.ops.samples import Array, Sample, arrays


@material(RotaryEmbedding)
class _:
    def reference(self, x, positions=None, frequencies=None):
        """As a product of complex numbers."""
        width = x.shape[-1] if self.features is None else self.features
        positions = (np.arange(x.shape[-2]) if positions is None else positions) + self.offset
        if frequencies is None:
            frequencies = self.base ** (-2 * np.arange(width // 2) / max(width, 1))
        turn = np.exp(1j * positions[..., None] * frequencies)
        part, y = x[..., :width], np.array(x)
        if self.layout == "halves":
            pairs = (part[..., : width // 2] + 1j * part[..., width // 2 :]) * turn
            y[..., :width] = np.concatenate([pairs.real, pairs.imag], axis=-1)
        else:
            pairs = (part[..., ::2] + 1j * part[..., 1::2]) * turn
            y[..., :width:2], y[..., 1:width:2] = pairs.real, pairs.imag
        return y

    @classmethod
    def samples(cls):
        for layout in ("halves", "interleaved"):
            yield Sample(arrays((2, 3, 6)), layout=layout)
            yield Sample(
                arrays((3, 5)),
                Array((3,), values=(4, 0, 9), dtype="int32"),
                base=50.0,
                features=4,
                layout=layout,
            )
        yield Sample(arrays((3, 4)), offset=7)
        yield Sample(arrays((0, 4)))
        places = Array((3,), values=(4, 0, 9), dtype="int32")
        yield Sample(arrays((2, 3, 4)), places, Array((2,), values=(0.5, 0.125)))

    @classmethod
    def errors(cls):
        yield ShapeError, "3 features cannot be rotated in pairs", Sample(arrays((2, 3)))
        yield ShapeError, "at least 2 dimensions", Sample(arrays((4,)))
        yield ValueError, "layout must be", Sample(arrays((2, 4)), layout="thirds")
        places = Array((2,), values=(4, 0), dtype="int32")
        yield ShapeError, "2 pairs", Sample(arrays((2, 4)), places, arrays((3,)))
        yield DTypeError, "rotary_embedding", Sample(arrays((2, 4)), arrays((2,)))


@material(PackedRanges)
class _:
    def reference(self, query_starts, key_starts=None):
        keys = query_starts if key_starts is None else key_starts
        ranges = np.zeros((self.size, 2), np.int64)
        for k, (start, stop) in enumerate(itertools.pairwise(query_starts)):
            ranges[start:stop] = keys[k], keys[k + 1]
        return ranges

    @classmethod
    def samples(cls):
        starts = Array((4,), values=(0, 2, 2, 5), dtype="int32")
        yield Sample(starts, size=7)
        yield Sample(starts, Array((4,), values=(1, 4, 9, 11), dtype="int64"), size=4)
        yield Sample(Array((1,), values=(0,), dtype="int64"), size=2)

    @classmethod
    def errors(cls):
        yield ShapeError, "1 dimension", Sample(Array((2, 2), values=((0, 1), (2, 3)), dtype="int64"), size=3)
        yield DTypeError, "packed_ranges", Sample(arrays((3,)), size=3)
