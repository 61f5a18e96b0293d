"""x[key] and x[key] = value for keys with arrays, lists and masks, against NumPy."""

import warnings

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.functional as F
from weft.arrays.indexing import check_fits, get, parse, put
from weft.base.dtype import as_dtype, float64
from weft.base.errors import DTypeError, ShapeError
from weft.graph.graph import graph_of, interpret
from weft.ops.node import input_value
from weft.ops.types import TensorType

I = np.array  # noqa: E741
MASK = np.arange(12).reshape(3, 4) % 3 == 0

KEYS = [
    # basic
    (),
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(-2, None, 2),
    slice(5, 2),
    slice(2, 0, -5),
    None,
    ...,
    (..., 0),
    (0, ...),
    (1, slice(None), -1),
    (None, 1, None, slice(0, 2)),
    (slice(None), None, ..., None),
    (np.int64(1), np.array(2)),
    # integer arrays
    [0, 2],
    [[0, 1], [2, 0]],
    [],
    I([0, -1]),
    I([[0], [1]]),
    (I([0, 1]), I([1, 3])),
    (I([[0], [1]]), I([1, 3])),
    (slice(None), [0, 2, 2]),
    (slice(None), [0, 2], slice(1, 3)),
    ([0, 1], slice(None), [0, 1]),
    ([0, 1], slice(None), 1),
    (0, slice(None), [0, 1]),
    (0, [0, 1]),
    ([0, 1], 0),
    (slice(None), 0, [0, 1]),
    (slice(None), [0, 1], 0),
    (0, [0, 1], 1),
    (None, [0, 2]),
    ([0, 2], None),
    ([0, 1], None, [1, 2]),
    (slice(None), [0, 1], None, [0, 1]),
    (slice(1, None), ..., [[0, 1]]),
    (slice(None, None, -1), [0, 1], slice(0, 4, 3)),
    (..., [0, 1], [2, 3]),
    (slice(None), [0, 2], ..., 1),
    (slice(None), [0, 1], ..., [2, 3]),
    np.array([0, 2], np.int8),
    np.array([0, 2], np.uint8),
    # masks
    MASK,
    (MASK, 0),
    (MASK, slice(1, 3)),
    (MASK, [0]),
    I([True, False, True]),
    [True, False, True],
    (slice(None), I([True, False, True, False])),
    (I([True, False, True]), slice(None), [0, 1]),
    (I([True, False, True]), I([False, True, True, False])),
    (I([True, False, True]), None, 1),
    np.zeros((3, 4, 5), bool),
    True,
    False,
    (True, 0),
    (0, True),
    (slice(None), True, [0, 1]),
    np.array(True),
]


def as_array(key):
    return np.asarray(key, np.int64)


def run(function, arrays):
    types = [TensorType(a.shape, as_dtype(a.dtype)) for a in arrays]
    return interpret(graph_of(function, types), arrays)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_get(key):
    x = np.arange(60.0).reshape(3, 4, 5)
    want = x[key]
    found = parse(key, x.shape)
    assert found.shape == want.shape
    indices = list(found.indices)

    def function(x, *values):
        given = iter(values)
        return get(x, found, lambda _: next(given))

    (result,) = run(function, [x, *indices])
    np.testing.assert_array_equal(result, want)
    if want.size and not any(isinstance(k, np.ndarray) and k.ndim == 0 for k in _parts(key)):
        assert found.is_basic == np.shares_memory(want, x)  # (0-d arrays are integers here: a view)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_put(key):
    x = np.arange(60.0).reshape(3, 4, 5)
    want = x.copy()
    value = -np.arange(float(x[key].size)).reshape(x[key].shape) - 1
    want[key] = value
    found = parse(key, x.shape)
    result = x.copy()

    def function(x, value, *values):
        given = iter(values)
        return put(x, found, value, lift=lambda _: next(given))[0]

    (new,) = run(function, [x, value, *found.indices])
    in_view = found.is_basic or not found.is_whole
    place = tuple(_numpy_item(i) for i in found.items) if in_view else ...
    result[place] = new
    np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_gradients(key):
    """Of x[key], and of x[key] = v in a recorded array, whatever parts the key has."""
    x, weights = np.arange(60.0).reshape(3, 4, 5), np.linspace(-1, 1, 60).reshape(3, 4, 5)
    part = weights[key]

    def read(x):
        return (x[key] * wf.tensor(part)).sum()

    def written(x, v):
        y = x * 2
        y[key] = v
        return (y * wf.tensor(weights)).sum()

    want = np.zeros_like(x)
    np.add.at(want, key, part)
    np.testing.assert_allclose(wf.grad(read)(wf.tensor(x)).numpy(), want)
    left = 2 * weights
    left[key] = 0
    dx, dv = wf.grad(written, (0, 1))(wf.tensor(x), wf.tensor(x[key]))
    np.testing.assert_allclose(dx.numpy(), left)
    if (
        np.unique(np.arange(60).reshape(x.shape)[key]).size == part.size
    ):  # else the last one stays, and has it all
        np.testing.assert_allclose(dv.numpy(), part)


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


def _numpy_item(item):
    if not isinstance(item, tuple):
        return item
    start, count, step = item
    stop = start + count * step
    return slice(start, stop if stop >= 0 else None, step) if count else slice(0, 0)


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("shape", [(3, 4, 5), (4,), (), (3, 0)])
def test_the_same_keys_are_wrong(key, shape):
    x = np.zeros(shape)
    try:
        want = x[key].shape
    except IndexError:
        want = None
    if want is None:
        found = None
        try:
            found = parse(key, shape)
        except IndexError as error:
            assert str(error).startswith("index: ")  # noqa: PT017
        if found is not None:  # only the values of index arrays were out of range
            assert found.indices
    else:
        assert parse(key, shape).shape == want


def test_random_keys():
    rng = np.random.default_rng(0)
    x = np.arange(120.0).reshape(2, 3, 4, 5)
    for _ in range(400):
        key, used = [], 0
        points = tuple(rng.integers(1, 3, rng.integers(0, 3)))
        while used < 4 and rng.random() < 0.8:
            size = x.shape[used]
            match rng.integers(6):
                case 0:
                    key.append(int(rng.integers(-size, size)))
                case 1:
                    start, stop = rng.integers(-size - 1, size + 2, 2)
                    step = int(rng.choice([-2, -1, 1, 2]))
                    key.append(slice(int(start), int(stop), step))
                case 2:
                    key.append(None)
                    continue
                case 3:
                    key.append(rng.random(size) < 0.5)
                    if points not in ((), (1,)):
                        key.pop()
                        continue
                    if key[-1].sum() != 1:
                        key[-1][:] = False
                        key[-1][0] = True
                case 4:
                    key.append(rng.integers(-size, size, points))
                case 5:
                    if not any(k is ... for k in key):
                        key.append(...)
                    break
            used += 1
        key = tuple(key)
        want = x[key]
        found = parse(key, x.shape)
        assert found.shape == want.shape, key

        def function(x, *values, found=found):
            given = iter(values)
            return get(x, found, lambda _: next(given))

        (result,) = run(function, [x, *map(as_array, found.indices)])
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((0, 0, 0, 0), "too many indices: 4 for 3"),
        (3, "3 is out of bounds for dimension 0 with size 3"),
        ((0, -5), "-5 is out of bounds for dimension 1 with size 4"),
        ((..., ...), "only have one ellipsis"),
        (1.5, "only integers, slices"),
        ("a", "only integers, slices"),
        (np.zeros(3), "must be of integers or booleans, got float64"),
        (np.zeros((3, 3), bool), "the mask of shape (3, 3) does not fit the sizes (3, 4) from dimension 0"),
        ((0, np.zeros(3, bool)), "does not fit the sizes (4,) from dimension 1"),
        (([0, 1], [0, 1, 2]), "do not fit together: (2,), (3,)"),
        ([[0], [1, 2]], "index: "),
    ],
    ids=str,
)
def test_errors(key, words):
    with pytest.raises(IndexError) as caught:
        parse(key, (3, 4, 5))
    assert words in str(caught.value)


def test_values_that_do_not_fit():
    key = parse(([0, 1],), (3, 4))
    check_fits(key, (2, 4))
    check_fits(key, (1, 1, 4))
    check_fits(key, ())
    for shape in ((3, 4), (2, 2, 4), (2,)):
        with pytest.raises(ShapeError, match="does not fit the shape"):
            check_fits(key, shape)


def test_indices_that_are_values():
    """Index arrays need not be known: only their types are looked at."""
    index = input_value(TensorType((2,), as_dtype("int64")))
    x = input_value(TensorType((3, 4), float64))
    key = parse((slice(None), index), x.shape)
    assert get(x, key).shape == (3, 2)
    scalar = input_value(TensorType((), as_dtype("int64")))
    assert get(x, parse(scalar, x.shape)).shape == (4,)


CHOSEN = [
    (np.float32, (3, 4, 2), (3, 4), 1.5),
    (np.float32, (3, 4, 2), (3,), np.float32([[1], [2], [3], [4]])),
    (np.float32, (3, 4, 2), (3, 4), np.float64([7, 8])),
    (np.int8, (5,), (5,), 2.7),
    (np.bool_, (5,), (5,), 3),
    (np.complex64, (2, 3), (2, 3), 2j),
    (np.float32, (0, 3), (0,), 1),
    (np.float32, (3, 0), (3,), np.float32([1])),
]


@pytest.mark.parametrize(("dtype", "shape", "of_mask", "value"), CHOSEN)
@pytest.mark.parametrize("layout", ["whole", "view"])
def test_values_where_a_mask_is_true(dtype, shape, of_mask, value, layout):
    """In calls, recorded programs and vmap; nothing looks at the mask."""
    rng = np.random.default_rng(0)
    a, mask = rng.uniform(0, 9, shape).astype(dtype), rng.random(of_mask) > 0.5
    want = a.copy()
    want[mask] = value
    given = value if isinstance(value, bool | int | float | complex) else wf.tensor(value)

    def assigned(x, m):
        x = x.copy() if layout == "whole" else F.concat([x, x], axis=0)[: x.shape[0]]
        x[m] = given
        return x

    x, m = wf.tensor(a), wf.tensor(mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a program that could not be recorded
        np.testing.assert_array_equal(assigned(x, m).numpy(), want)
        np.testing.assert_array_equal(assigned(x, mask).numpy(), want)
        traced = wf.trace(assigned)
        for _ in range(2):
            np.testing.assert_array_equal(traced(x, m).numpy(), want)
        both = wf.vmap(assigned)(F.stack([x, x]), F.stack([m, F.logical_not(m)]))
    other = a.copy()
    other[~mask] = value
    np.testing.assert_array_equal(both.numpy(), np.stack([want, other]))


def test_values_where_a_mask_of_the_array_itself_is_true():
    a = np.random.default_rng(1).random((6, 6)) > 0.5
    x, want = wf.tensor(a), a.copy()
    x[x.T] = False
    want[want.T.copy()] = False
    np.testing.assert_array_equal(x.numpy(), want)


def test_gradients_of_values_where_a_mask_is_true():
    x, w = wf.tensor([1.0, 2.0, 3.0]), wf.tensor(5.0)

    def written(x, w):
        y = x * 2
        y[y > 3] = w
        return (y * wf.tensor([1.0, 10.0, 100.0])).sum()

    for function in (wf.grad(written, argnums=(0, 1)), wf.trace(wf.grad(written, argnums=(0, 1)))):
        dx, dw = function(x, w)
        assert dx.tolist() == [2, 0, 0]
        assert dw.item() == 110


def test_a_complex_value_where_a_mask_is_true():
    x = wf.ones(3)
    with pytest.raises(DTypeError, match="x has no imaginary parts"):
        x[x > 0] = 1j
    assert x.tolist() == [1, 1, 1]
