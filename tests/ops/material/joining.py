"""What tests know of the operators of weft.ops.families.joining."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.joining import (
    MODES,
    Chunk,
    Concat,
    Pad,
    Pieces,
    Repeat,
    Roll,
    Split,
    Stack,
    Tile,
    Unstack,
)
from weft.ops.samples import Sample, arrays


@material(Concat)
class _:
    def reference(self, *x):
        return np.concatenate(x, axis=self.axis)

    @classmethod
    def samples(cls):
        yield Sample([arrays((2, 3)), arrays((1, 3)), arrays((0, 3))])
        yield Sample([arrays((2, 3)), arrays((2, 2))], axis=-1)
        yield Sample([arrays((2, 3)), arrays((2,))], axis=None)
        yield Sample([arrays((2, 3)), arrays((2, 3), dtype="int32")], axis=1)
        yield Sample([arrays((2,))])

    @classmethod
    def errors(cls):
        yield ShapeError, "concat: sizes 3 and 2 of axis 1 differ", Sample([arrays((2, 3)), arrays((2, 2))])
        yield ShapeError, "concat: arrays need the same number of", Sample([arrays((2, 3)), arrays((3,))])
        yield IndexError, "concat: axis 2", Sample([arrays((2, 3))], axis=2)


@material(Stack)
class _:
    def reference(self, *x):
        return np.stack(x, axis=self.axis)

    @classmethod
    def samples(cls):
        for axis in (0, 1, -1):
            yield Sample([arrays((2, 3)), arrays((2, 3)), arrays((2, 3))], axis=axis)
        yield Sample([arrays(()), arrays(())])

    @classmethod
    def errors(cls):
        yield ShapeError, "stack: needs arrays of one shape", Sample([arrays((2, 3)), arrays((3,))])
        yield IndexError, "stack: axis 3", Sample([arrays((2, 3))], axis=3)


@material(Pieces)
class _:
    def reference(self, x):
        starts = np.cumsum(self.sizes_of(np.shape(x)[self.axis]))
        return tuple(np.split(x, starts[:-1], axis=self.axis)) if len(starts) else ()


@material(Split)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((5, 2)), 2)
        yield Sample(arrays((2, 5)), (1, 0, 4), axis=-1)
        yield Sample(arrays((0, 5)), 2)

    @classmethod
    def errors(cls):
        yield ShapeError, "split: sizes (1, 2) do not add up to 5", Sample(arrays((5,)), (1, 2))
        yield ValueError, "split: sizes must be positive", Sample(arrays((5,)), 0)
        yield IndexError, "split: axis 1", Sample(arrays((5,)), 2, 1)


@material(Chunk)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((5, 2)), 2)
        yield Sample(arrays((2, 5)), chunks=4, axis=1)
        yield Sample(arrays((0,)), 2)

    @classmethod
    def errors(cls):
        yield ValueError, "chunk: chunks must be at least 1", Sample(arrays((5,)), 0)


@material(Unstack)
class _:
    def reference(self, x):
        return tuple(np.moveaxis(x, self.axis, 0))

    def torch_reference(self, torch, x):
        return torch.unbind(x, self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 2)))
        yield Sample(arrays((3, 2)), axis=-1)

    @classmethod
    def errors(cls):
        yield IndexError, "unstack: axis 1", Sample(arrays((5,)), axis=1)


@material(Pad)
class _:
    def reference(self, x):
        if self.mode == "constant":
            return np.pad(x, self._widths(np.ndim(x)), constant_values=self.value)
        mode = {"replicate": "edge", "circular": "wrap"}.get(self.mode, self.mode)
        return np.pad(x, self._widths(np.ndim(x)), mode=mode)

    def torch_reference(self, torch, x):
        mode = "replicate" if self.mode == "edge" else self.mode
        lead = (
            len(self.pad) // 2 + 1 - x.ndim if mode != "constant" else 0
        )  # it wants channels before what it mirrors
        y = torch.nn.functional.pad(
            x[(None,) * lead], self.pad, mode, self.value if mode == "constant" else None
        )
        return y[(0,) * lead]

    @classmethod
    def samples(cls):
        for mode in MODES:
            yield Sample(arrays((3, 4)), (1, 2), mode=mode)
            yield Sample(arrays((3, 4)), (2, 0, 1, 2), mode=mode)
            yield Sample(arrays((3, 4)), (), mode=mode)
        yield Sample(arrays((2, 3)), pad=(1, 1), value=1)
        yield Sample(arrays((0, 2)), (1, 1, 2, 0))

    @classmethod
    def errors(cls):
        yield ValueError, "pad: mode must be one of", Sample(arrays((2,)), (1, 1), mode="mirror")
        yield ValueError, "pad: pad holds two sizes", Sample(arrays((2,)), (1,))
        yield ShapeError, "pad: 4 sizes for 1 dimensions", Sample(arrays((2,)), (1, 1, 1, 1))
        yield ShapeError, "reflect needs size 3 of axis 0", Sample(arrays((2,)), (2, 0), mode="reflect")


@material(Roll)
class _:
    def reference(self, x):
        return np.roll(x, self.shift, self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), 1)
        yield Sample(arrays((2, 3)), -4, axis=1)
        yield Sample(arrays((2, 3)), (1, 2), axis=(0, -1))
        yield Sample(arrays((2, 3)), 1, axis=(0, 1))
        yield Sample(arrays((0, 3)), 1, axis=0)

    @classmethod
    def errors(cls):
        yield IndexError, "roll: axis 2", Sample(arrays((2, 3)), 1, axis=2)
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (1, 2, 3), axis=(0, 1))


@material(Tile)
class _:
    def reference(self, x):
        return np.tile(x, self.repetitions)

    @classmethod
    def samples(cls):
        for repetitions in ((2,), (2, 1, 3), (), (0, 2)):
            yield Sample(arrays((2, 3)), repetitions)

    @classmethod
    def errors(cls):
        yield ValueError, "tile: repetitions must be at least 0", Sample(arrays((2,)), (-1,))


@material(Repeat)
class _:
    def reference(self, x):
        return np.repeat(x, self.repeats, self.axis)

    def torch_reference(self, torch, x):
        return torch.repeat_interleave(x, self.repeats, self.axis)

    @classmethod
    def samples(cls):
        for axis in (None, 0, -1):
            yield Sample(arrays((2, 3)), 2, axis=axis)
        yield Sample(arrays((2, 3)), 0, axis=1)
        yield Sample(arrays(()), 3)

    @classmethod
    def errors(cls):
        yield ValueError, "repeat: repeats must be at least 0", Sample(arrays((2,)), -1)
        yield IndexError, "repeat: axis 1", Sample(arrays((2,)), 1, axis=1)
