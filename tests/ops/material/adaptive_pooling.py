"""What tests know of the operators of weft.ops.families.adaptive_pooling."""

import itertools

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.adaptive_pooling import AdaptiveMaximumWithIndices, AdaptivePooling
from weft.ops.samples import Sample, arrays


def adaptive_windows(spatial, size):
    """(place, window as slices) of each element of the result."""
    for place in itertools.product(*map(range, size)):
        yield (
            place,
            tuple(
                slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip(place, spatial, size, strict=True)
            ),
        )


@material(AdaptivePooling)
class _:
    def reference(self, x):
        fold = np.mean if "avg" in self.name else np.max
        y = np.zeros((*x.shape[:2], *self.output_size), x.dtype)
        for place, window in adaptive_windows(x.shape[2:], self.output_size):
            y[(..., *place)] = fold(x[(..., *window)], axis=tuple(range(2, x.ndim)))
        return y

    @classmethod
    def samples(cls):
        n = cls.spatial
        x = arrays((2, 2, *(6, 5, 4)[:n]), distinct=True)
        yield Sample(x, output_size=(3, 5, 2)[:n])
        yield Sample(x, output_size=1)
        yield Sample(x, output_size=(4, 3, 5)[:n])
        yield Sample(arrays((0, 2, *(4,) * n), distinct=True), output_size=3)

    @classmethod
    def errors(cls):
        n = cls.spatial
        yield ShapeError, f"x needs {n + 2} dimensions", Sample(arrays((2, 3)), output_size=2)
        yield ShapeError, "not empty", Sample(arrays((2, 3, *(0,) * n)), output_size=2)
        yield ValueError, "output_size must be", Sample(arrays((1, 2, *(3,) * n)), output_size=0)


@material(AdaptiveMaximumWithIndices)
class _:
    def reference(self, x):
        spatial = x.shape[2:]
        y = np.zeros((*x.shape[:2], *self.output_size), x.dtype)
        indices = np.zeros(y.shape, np.int64)
        numbers = np.arange(int(np.prod(spatial))).reshape(spatial)
        for place, window in adaptive_windows(spatial, self.output_size):
            elements = x[(..., *window)].reshape(*x.shape[:2], int(np.prod(numbers[window].shape)))
            which = elements.argmax(axis=-1)
            y[(..., *place)] = np.take_along_axis(elements, which[..., None], -1)[..., 0]
            indices[(..., *place)] = numbers[window].reshape(-1)[which]
        return y, indices

    def torch_reference(self, torch, x):
        name = self.name.removesuffix("_with_indices")
        return getattr(torch.nn.functional, name)(x, self.output_size, return_indices=True)
