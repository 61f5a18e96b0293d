"""Short rows: the loop over rows becomes vectors, with constant steps from row to row and in a row."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F

ROWS = 700  # more than from where rows are taken side by side, and no multiple of a vector


def softmax(a):
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


OF_ROWS = {
    "sum": (lambda x: F.sum(x, axis=-1), lambda a: a.sum(-1)),
    "product": (lambda x: F.prod(x, axis=-1), lambda a: a.prod(-1)),
    "max": (lambda x: F.max(x, axis=-1), lambda a: a.max(-1)),
    "argmin": (lambda x: F.argmin(x, axis=-1), lambda a: a.argmin(-1)),
    "any": (lambda x: F.any(x > 0, axis=-1), lambda a: (a > 0).any(-1)),
    "cumulative sum": (lambda x: F.cumulative_sum(x, axis=-1), lambda a: a.cumsum(-1)),
    "softmax": (lambda x: F.softmax(x, axis=-1), softmax),
    "variance": (lambda x: F.var(x, axis=-1), lambda a: a.var(-1)),
}
OF_FLOATS = ("softmax", "variance")
LAYOUTS = {
    "whole": lambda a: a,
    "part": lambda a: np.concatenate([a, a], axis=-1)[:, : a.shape[1]],
    "far apart": lambda a: np.concatenate([a] * 9, axis=-1)[:, : a.shape[1]],
    "every second": lambda a: np.repeat(a, 2, axis=-1)[:, ::2],
    "backward": lambda a: a[:, ::-1],
    "columns": lambda a: np.asfortranarray(a),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("name", OF_ROWS)
def test_against_numpy(name, dtype, layout):
    ours, numpys = OF_ROWS[name]
    if name in OF_FLOATS and not dtype.startswith("float"):
        pytest.skip("of floats")
    rng = np.random.default_rng(len(name))
    for length in (1, 2, 3, 5, 8, 9):
        a = rng.integers(-3, 4, (ROWS, length)).astype(dtype)
        a[:3] = 0
        if dtype.startswith("float") and name != "argmin":
            a[5] = np.nan
        given = LAYOUTS[layout](a)
        want = numpys(given.astype("float64") if dtype.startswith("float") else given)
        x = wf.tensor(np.ascontiguousarray(given)) if layout == "whole" else strided(given)
        found = ours(x).numpy()
        if np.asarray(want).dtype.kind == "f":
            np.testing.assert_allclose(
                found.astype("float64"), want, rtol=3e-3 if dtype == "float16" else 2e-6
            )
        else:
            np.testing.assert_array_equal(found, want)


def strided(a):
    """a as a view with the same strides."""
    base = a
    while base.base is not None:
        base = base.base
    whole = wf.tensor(np.ascontiguousarray(base) if base.flags.c_contiguous else np.ascontiguousarray(base.T))
    whole = whole if base.flags.c_contiguous else whole.T
    if base.shape == a.shape and base.strides == a.strides:
        return whole
    if a.strides[1] < 0:
        return whole[:, ::-1]
    step = a.strides[1] // a.itemsize
    return whole[:, : a.shape[1] * step : step]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_matrices_by_vectors(length):
    rng = np.random.default_rng(length)
    a = rng.standard_normal((ROWS, length, length)).astype("float32")
    v = rng.standard_normal((ROWS, length)).astype("float32")
    want = np.einsum("nij,nj->ni", a, v)
    x, y = wf.tensor(a), wf.tensor(v)
    np.testing.assert_allclose((x @ y[..., None])[..., 0].numpy(), want, rtol=1e-5, atol=1e-6)
    fused = wf.trace(lambda x, y: F.relu(F.sum(x * y[:, None, :], axis=-1) + 1.5))
    np.testing.assert_allclose(fused(x, y).numpy(), np.maximum(want + 1.5, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.processor("patterns of its loops")
def test_steps_are_constants(patterns):
    x = np.ones((ROWS, 7), "float32")
    column, row, matrices = (np.ones(shape, "float32") for shape in ((ROWS, 1), (7,), (ROWS, 4, 3)))
    patterns(lambda x: F.sum(F.exp(x) * 3.25, axis=-1), x)
    patterns(lambda x, c: x * 2.25 - c, x, column)
    patterns(lambda x, r: x * 2.25 - r, x, row)
    found = patterns(lambda m, v: m * 2.25 - v, matrices, np.ones((ROWS, 1, 3), "float32"))
    assert [moves for _, moves in found] == ["Hu7BA", "HuH7BAB", "HzH7BBB", "MDM3BBB"]


@pytest.mark.processor("patterns of its loops")
@pytest.mark.parametrize("shape", [(64, 3), (ROWS, 9), (3, ROWS)])
def test_few_rows_and_long_ones_stay_as_they_are(patterns, shape):
    patterns(lambda x: F.sum(F.sinh(x) * 1.75, axis=-1), np.ones(shape, "float32"))
    found = patterns(lambda x, c: F.sinh(x) - c, np.ones(shape, "float32"), np.ones((shape[0], 1), "float32"))
    assert not any(letter.isupper() for _, inner in found for letter in inner)


BESIDE = {
    "column": lambda a: a[:, :1],
    "row": lambda a: a[0],
    "columns first": lambda a: np.asfortranarray(a),
    "every second": lambda a: np.repeat(a, 2, axis=-1)[:, ::2],
    "backward": lambda a: a[:, ::-1],
    "diagonal": lambda a: np.repeat(a, a.shape[1], axis=1)[:, :: a.shape[1]],
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64", "complex64"])
def test_elements_with_others_beside_them(dtype, beside):
    """Sums are exact; both results of a kernel, and one that is written over an operand."""
    rng = np.random.default_rng(7)
    both = wf.trace(lambda x, y: (x * 2 + y, x - y))
    for length in (1, 2, 3, 5, 8, 9):
        a, b = (rng.integers(0, 60, (ROWS, length)).astype(dtype) for _ in range(2))
        other = BESIDE[beside](b)
        y = wf.tensor(other) if other.ndim == 1 or other.shape[1] != length else strided(other)
        x = wf.tensor(a)
        for found, want in zip(both(x, y), (a * 2 + other, a - other), strict=True):
            np.testing.assert_array_equal(found.numpy(), want)
        np.testing.assert_array_equal((y + x).numpy(), other + a)
        x += y
        np.testing.assert_array_equal(x.numpy(), a + other)


@pytest.mark.parametrize("count", [700, 70_000])  # on one thread, and on all
@pytest.mark.parametrize("dtype", ["float32", "uint8", "bfloat16", "bool", "complex128"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
def test_pixels_and_planes(channels, dtype, count):
    rng = np.random.default_rng(channels)
    pixels = rng.integers(0, 2, (2, count, channels))
    x = wf.tensor(pixels).astype(dtype)
    planes = x.mT.copy()
    np.testing.assert_array_equal(planes.astype("complex128").numpy(), pixels.swapaxes(1, 2))
    again = planes.mT.copy()
    np.testing.assert_array_equal(again.astype("complex128").numpy(), pixels)
    if dtype not in ("bool", "complex128"):
        mean = wf.tensor(np.arange(channels)).astype(dtype)
        prepared = wf.trace(lambda x, mean: x.mT.astype("float32") / 4 - mean[:, None])
        np.testing.assert_array_equal(
            prepared(x, mean).numpy(), (pixels / 4 - np.arange(channels)).swapaxes(1, 2)
        )


@pytest.mark.parametrize("length", [2, 3, 8])
def test_more_than_registers_hold(length):
    """So many operations on a row that it is not written out."""
    rng = np.random.default_rng(length)
    a, b = rng.uniform(0.5, 1.5, (ROWS, length)), rng.uniform(0.5, 1.5, (ROWS, 1))
    function = wf.trace(lambda x, y: sum(F.tanh(x * k + y) * F.sin(x / k) for k in range(1, 9)))
    want = sum(np.tanh(a * k + b) * np.sin(a / k) for k in range(1, 9))
    np.testing.assert_allclose(function(wf.tensor(a), wf.tensor(b)).numpy(), want, rtol=1e-12)


def test_gradients_of_short_rows():
    x, s = wf.ones((ROWS, 3)), wf.full((ROWS, 1), 2.0)
    dx, ds = wf.grad(lambda x, s: (x * s * 3).sum(), argnums=(0, 1))(x, s)
    np.testing.assert_array_equal(dx.numpy(), np.full((ROWS, 3), 6.0))
    np.testing.assert_array_equal(ds.numpy(), np.full((ROWS, 1), 9.0))


def test_complex_rows():
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((ROWS, 3)) + 1j * rng.standard_normal((ROWS, 3))).astype("complex64")
    np.testing.assert_allclose(F.sum(wf.tensor(a), axis=-1).numpy(), a.sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(F.prod(wf.tensor(a), axis=-1).numpy(), a.prod(-1), rtol=1e-5, atol=1e-6)
