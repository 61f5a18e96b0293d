"""What tests know of the operators of weft.ops.families.indexed_pooling."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.window import windows_reference

from weft.base.errors import ShapeError
from weft.ops.families.indexed_pooling import (
    FractionalPooling,
    LpPooling,
    MaxPoolingWithIndices,
    MaxUnpooling,
)
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


@material(FractionalPooling)
class _:
    def begins_of(self, n, o, k, u):
        ratio = (n - k) / max(o - 1, 1)
        return [*(int((i + u) * ratio) - int(u * ratio) for i in range(o - 1)), n - k]

    def reference(self, x, samples):
        sizes = x.shape[2:]
        y = np.zeros((*x.shape[:2], *self.output_size), x.dtype)
        indices = np.zeros(y.shape, "int64")
        numbers = np.arange(int(np.prod(sizes))).reshape(sizes)
        for n, c in np.ndindex(x.shape[:2]):
            each = zip(sizes, self.output_size, self.kernel_size, samples[n, c], strict=True)
            begins = [self.begins_of(*of_axis) for of_axis in each]
            for place in np.ndindex(*self.output_size):
                first = [b[i] for b, i in zip(begins, place, strict=True)]
                window = tuple(slice(a, a + k) for a, k in zip(first, self.kernel_size, strict=True))
                which = np.argmax(x[n, c][window])
                y[(n, c, *place)] = x[n, c][window].reshape(-1)[which]
                indices[(n, c, *place)] = numbers[window].reshape(-1)[which]
        return y, indices

    def torch_reference(self, torch, x, samples):
        if not x.dtype.is_floating_point or x.dtype.itemsize < 4:
            return NotImplemented
        function = getattr(torch.nn.functional, f"fractional_max_pool{self.spatial}d")
        order = samples.to(x.dtype).flip(-1) if self.spatial == 2 else samples.to(x.dtype)
        return function(x, self.kernel_size, self.output_size, return_indices=True, _random_samples=order)

    @classmethod
    def samples(cls):
        d = cls.spatial
        u = Array((2, 2, d), values=np.random.default_rng(d).uniform(0, 1, (2, 2, d)), dtype="float32")
        x = arrays((2, 2, *(7, 6, 5)[:d]), distinct=True)
        yield Sample(x, u, kernel_size=2, output_size=(4, 3, 3)[:d])
        yield Sample(x, u, kernel_size=(3, 2, 2)[:d], output_size=(1, 5, 4)[:d])

    @classmethod
    def errors(cls):
        d = cls.spatial
        x = arrays((1, 2, *(4,) * d))
        yield ShapeError, "do not fit", Sample(x, arrays((1, 2, d)), kernel_size=3, output_size=3)
        yield (
            ShapeError,
            f"samples needs {d} numbers",
            Sample(x, arrays((1, 2, d + 1)), kernel_size=2, output_size=2),
        )
