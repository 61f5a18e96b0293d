"""What tests know of the operators of weft.ops.families.indexed_pooling."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import windows_reference

from weft.base.errors import ShapeError
from weft.ops.families.indexed_pooling import LpPooling, MaxPoolingWithIndices, MaxUnpooling
from weft.ops.kernels import lowest
from weft.ops.samples import Array, Sample, arrays


def patches_of(op, x, value):
    """[n, c, windows..., elements] of x."""
    windows = op.windows(x.shape[2:])
    count = windows.number(x.shape[2:])
    y = windows_reference(x, windows, count, value)
    return y.reshape(*x.shape[:2], *count, int(np.prod(windows.size)))


@material(MaxPoolingWithIndices)
class _:
    def reference(self, x):
        least = lowest(x.dtype.name if x.dtype.name != "bfloat16" else "float32")
        elements = patches_of(self, x, least)
        numbers = np.arange(int(np.prod(x.shape[2:]))).reshape(1, 1, *x.shape[2:])
        numbers = np.broadcast_to(patches_of(self, numbers, -1), elements.shape)
        which = elements.argmax(axis=-1)[..., None]
        return tuple(np.take_along_axis(v, which, -1)[..., 0] for v in (elements, numbers))

    def torch_reference(self, torch, x):
        function = getattr(torch.nn.functional, self.name.removesuffix("_with_indices"))
        windows = (self.kernel_size, self.stride, self.padding, self.dilation)
        return function(x, *windows, self.ceil_mode, return_indices=True)


@material(MaxUnpooling)
class _:
    def reference(self, x, indices):
        sizes = zip(x.shape[2:], self.stride, self.padding, self.kernel_size, strict=True)
        spatial = self.output_size or [(n - 1) * s - 2 * p + k for n, s, p, k in sizes]
        y = np.zeros((*x.shape[:2], int(np.prod(spatial))), x.dtype)
        for n, c in np.ndindex(x.shape[:2]):
            y[n, c, indices[n, c].reshape(-1)] = x[n, c].reshape(-1)
        return y.reshape(*x.shape[:2], *spatial)

    @classmethod
    def samples(cls):
        n = cls.spatial
        x = arrays((1, 2, *(2,) * n))
        places = np.stack([np.random.default_rng(k).permutation(2**n) for k in range(2)])
        indices = Array(x.shape, dtype="int64", values=places.reshape(x.shape))
        yield Sample(x, indices, kernel_size=2)
        yield Sample(x, indices, kernel_size=2, stride=3, padding=1, output_size=(3,) * n)

    @classmethod
    def errors(cls):
        n = cls.spatial
        indices = Array((1, 2, *(3,) * n), dtype="int64")
        yield ShapeError, "shapes differ", Sample(arrays((1, 2, *(2,) * n)), indices, kernel_size=2)


@material(LpPooling)
class _:
    def reference(self, x):
        total = (np.abs(patches_of(self, x, 0)) ** self.norm_type).sum(axis=-1)
        return total ** (1 / self.norm_type)

    def torch_reference(self, torch, x):
        if self.norm_type % 2:
            return NotImplemented  # PyTorch's is of x^p
        if self.spatial == 1:
            return torch.nn.functional.lp_pool1d(
                x, self.norm_type, *self.kernel_size, *self.stride, self.ceil_mode
            )
        function = getattr(torch.nn.functional, self.name)
        return function(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    @classmethod
    def samples(cls):
        x = arrays((2, 2, *(6, 5, 4)[: cls.spatial]), distinct=True)
        yield Sample(x, norm_type=2, kernel_size=2)
        yield Sample(x, norm_type=3, kernel_size=3, stride=2, ceil_mode=True)

    @classmethod
    def errors(cls):
        x = arrays((1, 2, *(4,) * cls.spatial))
        yield ValueError, "padding and dilation", Sample(x, norm_type=2, kernel_size=2, padding=1)
        yield ShapeError, "does not fit x", Sample(x, norm_type=2, kernel_size=5)
