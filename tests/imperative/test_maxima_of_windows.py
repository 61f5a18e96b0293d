"""Which element of a window is the greatest, as tangents and second derivatives read it, in any order of images."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def ordered(x, channels_last):
    """A tensor with these elements, its channels side by side in memory."""
    return wf.tensor(np.moveaxis(x, 1, -1).copy()).moveaxis(-1, 1) if channels_last else wf.tensor(x)


def elements(x, places):
    """Of each window's flat places in its image, the elements."""
    flat = x.reshape(*x.shape[:2], -1)
    return np.take_along_axis(flat, places.reshape(*places.shape[:2], -1), axis=2).reshape(places.shape)


def greatest(x, kernel, stride, dilation):
    """The flat place of each window's greatest element, one window after the other."""
    spatial = x.shape[2:]
    count = [(n - dilation * (kernel - 1) - 1) // stride + 1 for n in spatial]
    places = np.empty((*x.shape[:2], *count), np.int64)
    for at in np.ndindex(*count):
        corner = [i * stride for i in at]
        window = tuple(slice(c, c + dilation * (kernel - 1) + 1, dilation) for c in corner)
        flat = x[(slice(None), slice(None), *window)].reshape(*x.shape[:2], -1)
        inside = np.unravel_index(flat.argmax(-1), (kernel,) * len(spatial))
        index = [c + dilation * i for c, i in zip(corner, inside, strict=True)]
        places[(slice(None), slice(None), *at)] = np.ravel_multi_index(index, spatial)
    return places


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 16, 19])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_tangents(spatial, channels, channels_last):
    rng = np.random.default_rng(channels)
    shape = (2, channels, 7, 6, 5)[: spatial + 2]
    x = rng.permutation(np.arange(np.prod(shape), dtype="float32")).reshape(shape)
    dx = rng.normal(size=shape).astype("float32")
    for kernel, stride, dilation in ((2, 2, 1), (3, 1, 1), (2, 1, 2)):

        def pooled(v, kernel=kernel, stride=stride, dilation=dilation):
            return POOLS[spatial](v, kernel, stride=stride, dilation=dilation)

        def tangent(v, dv, pooled=pooled):
            return wf.jvp(pooled, (v,), (dv,))

        def gradient_of_gradient(v, dv, pooled=pooled):
            y, pull = wf.vjp(pooled, v)
            _, back = wf.vjp(lambda slope: pull(slope)[0], wf.ones_like(y))
            return y, back(dv)[0]

        places = greatest(x, kernel, stride, dilation)
        arrays = [ordered(a, channels_last) for a in (x, dx)]
        for function in (tangent, gradient_of_gradient):
            for way in (function, wf.trace(function, lazy=True)):
                y, dy = way(*arrays)
                np.testing.assert_array_equal(y.numpy(), elements(x, places))
                np.testing.assert_allclose(dy.numpy(), elements(dx, places), rtol=1e-6)
