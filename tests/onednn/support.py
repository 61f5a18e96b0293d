"""Arrays in any layout, kernels run on them, and how near results must be."""

import ml_dtypes
import numpy as np

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype

BF16 = ml_dtypes.bfloat16
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 2e-3, "int32": 0, "int8": 1, "uint8": 1}


def strides_of(shape, order=None, gap=0):
    """Strides in elements; `order` names dimensions from the outermost, `gap` widens the innermost rows."""
    order = list(order if order is not None else range(len(shape)))
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
        if d == order[-1]:
            step += gap
    return tuple(strides)


def channels_last(shape):
    return strides_of(shape, [0, *range(2, len(shape)), 1])


class Array:
    """An operand: values of a dtype in a layout, in a flat tensor."""

    def __init__(self, values, dtype="float32", strides=None):
        values = np.asarray(values)
        self.dtype, self.shape = dtype, values.shape
        self.strides = strides_of(self.shape) if strides is None else tuple(strides)
        used = [(n, s) for n, s in zip(self.shape, self.strides, strict=True)]
        size = 1 + sum((n - 1) * s for n, s in used)
        flat = np.full(size, 77, as_dtype(dtype).numpy)
        self._view(flat)[...] = values
        self.tensor = wf.tensor(flat, dtype)

    def _view(self, flat):
        steps = [s * flat.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps)

    @property
    def geometry(self):
        return (self.dtype, self.shape, self.strides)

    def numpy(self):
        """The values as they are now, in float64."""
        flat = np.array(self.tensor.numpy())
        return self._view(flat).astype(np.float64)


def empty(shape, dtype="float32", strides=None):
    return Array(np.zeros(shape), dtype, strides)


def values(rng, shape, dtype="float32", scale=1.0):
    """Numbers that the dtype holds exactly."""
    if dtype in ("int8", "uint8"):
        return rng.integers(0 if dtype == "uint8" else -20, 20, shape)
    exact = (rng.standard_normal(shape) * scale).astype(as_dtype(dtype).numpy)
    return exact.astype(np.float64)


def random(rng, shape, dtype="float32", strides=None, scale=1.0):
    return Array(values(rng, shape, dtype, scale), dtype, strides)


def buffer(layout):
    """Memory for a chosen layout."""
    return wf.zeros((layout.bytes,), dtype="uint8")


def run(kernel, *operands):
    assert kernel is not None
    assert getattr(kernel, "operands", len(operands)) == len(operands)  # only kernels of one primitive tell
    _core.run_kernel(kernel, [x.tensor if isinstance(x, Array) else x for x in operands])


def near(got, wanted, dtype="float32", factor=1.0):
    wanted = np.asarray(wanted, np.float64)
    got = got.numpy() if isinstance(got, Array) else got
    assert got.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    worst = float(np.abs(got - wanted).max(initial=0))
    limit = TOLERANCE[dtype] * scale * factor
    assert worst <= limit, f"off by {worst:.3g}, at most {limit:.3g} allowed"
