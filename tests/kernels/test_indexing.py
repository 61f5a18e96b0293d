"""Reading and writing at computed places, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import weft as wf
import weft.functional
from weft import _core

from .support import ALL, FLOATS, layouts, random, run, strided_like

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
MODES = ["set", "add", "max", "min"]


def same(a, b):
    assert a.dtype == b.dtype
    wide = a.dtype.name == "bfloat16"
    np.testing.assert_array_equal(a.astype(np.float32) if wide else a, b.astype(np.float32) if wide else b)


def indices(shape, size, name="int64", seed=0):
    low = 0 if name.startswith("u") else -size
    return np.asarray(np.random.default_rng(seed).integers(low, size, shape)).astype(name)


CASES = [((5, 7, 3), 1, 11), ((5, 7, 3), 2, 2), ((5, 7, 3), 0, 6), ((4, 900), 1, 1500), ((900, 4), 0, 1500),
         ((30,), 0, 5), ((30,), -1, 0), ((3, 1), 0, 4)]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_take_along_axis(name):
    for shape, axis, count in CASES:
        size = list(shape)
        size[axis] = count
        at = indices(size, shape[axis])
        for x, i in zip(layouts(random(shape, name)), layouts(at), strict=True):
            for y in (np.empty(size, x.dtype), strided_like(size, x.dtype)):
                run(_core.kernel_take_along_axis(axis), x, i, y)
                same(y, np.take_along_axis(x, at, axis))


@pytest.mark.parametrize("name", INTEGERS)
def test_types_of_indices(name):
    x = random((5, 100), "float32")
    at = indices((5, 700), 100, name)
    y = np.empty(at.shape, np.float32)
    run(_core.kernel_take_along_axis(1), x, at, y)
    same(y, np.take_along_axis(x, at.astype(np.int64), 1))
    y = np.empty((5, 5, 700), np.float32)
    run(_core.kernel_index_get([1], 1), x, at, y)
    same(y, x[:, at.astype(np.int64)])


def test_take_along_axis_of_scalars_and_broadcast_arrays():
    y = np.zeros(())
    run(_core.kernel_take_along_axis(0), np.array(3.0), np.array(-1), y)
    assert y == 3
    x, at = random((6, 4), "float32"), np.broadcast_to(indices((3, 1), 6), (3, 4))
    y = np.empty((3, 4), np.float32)
    run(_core.kernel_take_along_axis(0), x, at, y)
    same(y, np.take_along_axis(x, at, 0))
    one = np.broadcast_to(x[:, :1], x.shape)
    run(_core.kernel_take_along_axis(0), one, at, y)
    same(y, np.take_along_axis(one, at, 0))


def plus(a, b):
    if a.dtype == bool:
        return a | b
    return a + b


def combine(old, new, mode):
    with np.errstate(all="ignore"):
        if mode == "set":
            return new
        if mode == "add":
            return np.asarray(plus(old, new)).astype(old.dtype)
        if old.dtype.name in FLOATS and (np.isnan(old) or np.isnan(new)):
            return old.dtype.type(np.nan)
        return max(old, new) if mode == "max" else min(old, new)


def scattered(x, at, updates, axis, mode):
    """One element after another."""
    y = x.copy()
    for place in np.ndindex(at.shape):
        to = list(place)
        to[axis] = at[place]
        y[tuple(to)] = combine(y[tuple(to)], updates[place], mode)
    return y


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ALL)
def test_scatter(name, mode):
    for shape, axis, count in [
        ((5, 7, 3), 1, 11),
        ((5, 7, 3), 2, 4),
        ((5, 7, 3), 0, 6),
        ((9,), 0, 30),
        ((9,), -1, 0),
    ]:
        size = list(shape)
        size[axis] = count
        at = indices(size, shape[axis], seed=4)
        updates = random(size, name, 5, few=True)
        for x, i, v in zip(
            layouts(random(shape, name, 6, few=True)), layouts(at), layouts(updates), strict=True
        ):
            wanted = scattered(x, at, updates, axis, mode)
            for y in (np.empty(shape, x.dtype), strided_like(shape, x.dtype)):
                run(_core.kernel_scatter(axis, mode), x, i, v, y)
                same(y, wanted)
            run(_core.kernel_scatter(axis, mode), x, i, v, x)
            same(x, wanted)


def test_sums_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    at, updates = rng.integers(-50, 50, 100_000), rng.normal(size=100_000).astype(np.float32)
    wanted = np.zeros(50, np.float32)
    np.add.at(wanted, at, updates)
    rows, gradient = rng.integers(0, 30, 3000), rng.normal(size=(3000, 300)).astype(np.float32)
    summed = np.zeros((30, 300), np.float32)
    np.add.at(summed, rows, gradient)
    narrow = np.zeros((30, 5), np.float32)
    np.add.at(narrow, rows, gradient[:, :5])

    def in_tables(shape, at, updates):
        """Eight runs of the updates, each added up by itself."""
        tables = np.zeros((8, *shape), np.float32)
        for table, *one_run in zip(tables, np.split(at, 8), np.split(updates, 8), strict=True):
            np.add.at(table, *one_run)
        return np.add.accumulate(tables)[-1]

    before = _core.set_team_size(1)
    try:
        for threads in (1, 2, 3, 8):
            _core.set_team_size(threads)
            y = np.zeros(50, np.float32)
            run(_core.kernel_scatter(0, "add"), y, at, updates, y)
            same(y, wanted)
            y = np.ones(50, np.float32)
            run(_core.kernel_index_put([0], 0, "add"), np.zeros_like(y), at, updates, y)
            same(y, in_tables((50,), at, updates))
            y = np.zeros((30, 300), np.float32)
            run(_core.kernel_index_put([0], 0, "add"), y, rows, gradient, y)
            same(y, in_tables((30, 300), rows, gradient))
            y = np.zeros((30, 5), np.float32)
            run(_core.kernel_index_put([0], 0, "add"), y, rows, gradient[:, :5], y)
            same(y, narrow)
            y = np.zeros((30, 300), np.float32)
            run(
                _core.kernel_scatter(0, "add"), y, np.broadcast_to(rows[:, None], gradient.shape), gradient, y
            )
            same(y, summed)
    finally:
        _core.set_team_size(before)


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", ALL)
def test_many_updates_of_few_elements(name, mode):
    at_once = {"add": np.add, "max": np.maximum, "min": np.minimum}[mode].at
    for x_shape, points, dims in [
        ((3, 7), (2600,), [0]),
        ((2, 3, 5), (16_000,), [1]),
        ((5, 3), (300, 70), [0, 1]),
    ]:
        inner = tuple(n for d, n in enumerate(x_shape) if d > max(dims))
        outer = tuple(n for d, n in enumerate(x_shape) if d < min(dims))
        x, updates = random(x_shape, name, 1, few=True), random(outer + points + inner, name, 2, few=True)
        if mode == "add" and name in FLOATS:  # sums of small integers are exact, whatever their order
            x, updates = (
                np.random.default_rng(3).integers(-1, 2, a.shape).astype(a.dtype) for a in (x, updates)
            )
        at = [indices(points, x_shape[d], seed=d) for d in dims]
        key = (slice(None),) * min(dims) + tuple(at)
        wanted = x.astype(np.float32) if name in FLOATS and name != "float64" else x.copy()
        if mode == "add" and name == "bool":
            np.logical_or.at(wanted, key, updates)
        else:
            at_once(wanted, key, updates.astype(wanted.dtype))
        for y in (np.empty(x.shape, x.dtype), strided_like(x.shape, x.dtype)):
            run(_core.kernel_index_put(dims, min(dims), mode), x, *at, updates, y)
            same(y, wanted.astype(x.dtype))


def test_zeros_keep_their_sign_among_many_updates():
    y = np.full(2, -0.0, np.float32)
    at = np.zeros(20_000, np.int64)
    run(_core.kernel_index_put([0], 0, "add"), y, at, np.full(20_000, -0.0, np.float32), y)
    assert np.signbit(y).all()


def test_updates_of_another_type():
    at = np.zeros(4096, np.int64)
    ones = np.ones(4096, ml_dtypes.bfloat16)
    y = np.zeros(3, np.float32)
    run(_core.kernel_scatter(0, "add"), y, at, ones, y)
    assert y.tolist() == [4096, 0, 0]
    y = np.zeros((3, 2), np.float32)
    run(_core.kernel_index_put([0], 0, "add"), y, at, np.ones((4096, 2), np.float16), y)
    assert y.tolist() == [[4096, 4096], [0, 0], [0, 0]]


# dims of x that are indexed, shape of the indices, position of theirs in the result
GENERAL = [([0], (4,), 0), ([1], (4,), 1), ([2], (2, 3), 2), ([0, 1], (5,), 0), ([1, 2], (5, 2), 1),
           ([0, 2], (6,), 0), ([0, 1, 2], (7,), 0), ([1], (), 1), ([0], (0,), 0), ([2, 3], (3,), 2)]  # fmt: skip


def key_of(dims, arrays, ndim):
    key = [slice(None)] * ndim
    for d, array in zip(dims, arrays, strict=True):
        key[d] = array
    return tuple(key)


def shaped(dims, points, position, shape):
    rest = [n for d, n in enumerate(shape) if d not in dims]
    return [*rest[:position], *points, *rest[position:]]


@pytest.mark.parametrize("name", ALL)
def test_index_get_and_put(name):
    shape = (3, 4, 5, 6)
    for dims, points, position in GENERAL:
        arrays = [indices(points, shape[d], seed=d) for d in dims]
        size = shaped(dims, points, position, shape)
        for x in layouts(random(shape, name, few=True)):
            key = key_of(dims, arrays, 4)
            wanted = x[key]
            assert list(wanted.shape) == size
            for y in (np.empty(size, x.dtype), strided_like(size, x.dtype)):
                run(_core.kernel_index_get(dims, position), x, *arrays, y)
                same(y, wanted)
            values = random(size, name, 9, few=True)
            for v in layouts(values):
                wanted = x.copy()
                wanted[key] = values
                y = strided_like(shape, x.dtype)
                run(_core.kernel_index_put(dims, position), x, *arrays, v, y)
                same(y, wanted)
            if name in ("float32", "int8"):
                wanted = x.copy()
                with np.errstate(invalid="ignore"):
                    np.add.at(wanted, key, values)
                run(_core.kernel_index_put(dims, position, "add"), x, *arrays, values, x)
                same(x, wanted)


def test_broadcast_indices_and_updates():
    x = random((5, 6, 7), "float32")
    i, j = np.broadcast_arrays(np.arange(4)[:, None], np.array([5, 0, -1]))
    y = np.empty((4, 3, 7), np.float32)
    run(_core.kernel_index_get([0, 1], 0), x, i, j, y)
    same(y, x[i, j])
    y = np.empty((4, 3, 6), np.float32)
    run(_core.kernel_index_get([0, 2], 0), x, i, j, y)  # NumPy puts separated indices first as well
    same(y, x[i, :, j])
    wanted = x.copy()
    wanted[i, j] = np.arange(7)
    run(
        _core.kernel_index_put([0, 1], 0),
        x,
        i,
        j,
        np.broadcast_to(np.arange(7, dtype=np.float32), (4, 3, 7)),
        x,
    )
    same(x, wanted)


def test_large_arrays():
    x = random((1000, 200), "float32", few=True)
    rows = indices((5000,), 1000)
    y = np.empty((5000, 200), np.float32)
    run(_core.kernel_index_get([0], 0), x, rows, y)
    same(y, x[rows])
    y = np.empty((200, 5000), np.float32)
    run(_core.kernel_index_get([1], 1), x.T, rows, y)
    same(y, x.T[:, rows])


@pytest.mark.parametrize("bad", [10, -11])
def test_indices_out_of_range(bad):
    at = np.zeros((4, 2000), np.int32)
    at[2, 1500] = bad
    message = f"index {bad} is out of range for axis 1 of size 10"
    x = np.ones((4, 10), np.float32)
    y = np.full((4, 2000), 7, np.float32)
    with pytest.raises(IndexError, match=f"take_along_axis: {message}"):
        run(_core.kernel_take_along_axis(-1), x, at, y)
    assert (y == 7).all()
    z = np.full_like(x, 7)
    with pytest.raises(IndexError, match=f"scatter: {message}"):
        run(_core.kernel_scatter(1), x, at, y, z)
    with pytest.raises(IndexError, match=f"index_put: {message}"):
        run(_core.kernel_index_put([1], 1), x, at[2], np.ones((4, 2000), np.float32), z)
    assert (z == 7).all()
    with pytest.raises(IndexError, match=f"index: {message}"):
        run(_core.kernel_index_get([1], 1), x, at[2], y)


def test_unsigned_indices_do_not_wrap():
    for name, value in [("uint64", 2**64 - 1), ("uint8", 255)]:
        with pytest.raises(IndexError, match=f"index {value} is out of range for axis 0 of size 3"):
            run(_core.kernel_take_along_axis(0), np.ones(3), np.array([value], name), np.ones(1))


def test_nothing_to_index():
    with pytest.raises(IndexError, match="index 0 is out of range for axis 0 of size 0"):
        run(_core.kernel_take_along_axis(0), np.ones(0), np.zeros(1, np.int64), np.ones(1))
    with pytest.raises(ValueError, match="no dimension is indexed"):
        _core.kernel_index_get([], 0)
    with pytest.raises(ValueError, match="mode is one of 'set', 'add', 'max', 'min'; got 'mul'"):
        _core.kernel_scatter(0, "mul")


@pytest.mark.parametrize("name", ["int64", "int32", "uint16"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_many_points_of_one_index_array(name, step):
    """More than are converted at a time, of arrays that lie in any way: offsets of one index array are in no list."""
    n, count = 3001, 5000
    at = np.repeat(indices((count,), n, name), abs(step))[::step]
    for x in (random((n,), "float32"), random((2 * n,), "float32")[::2], random((n,), "float32")[::-1]):
        found = wf.tensor(at)[...] if step == 1 else wf.asarray(at)
        same(wf.asarray(x)[found].numpy(), x[at])
        sums = wf.functional.index_put(
            wf.zeros(n), wf.asarray(np.ones(count, "float32")), found, axes=(0,), position=0, mode="add"
        )
        same(sums.numpy(), np.bincount(at % n if at.dtype.kind == "i" else at, minlength=n).astype("float32"))
    x = random((1, n, 2), "float32")
    same(wf.asarray(x)[:, wf.asarray(at)].numpy(), x[:, at])


def test_an_array_that_is_its_own_index():
    """What is written is not read as an index any more."""
    order = np.random.default_rng(3).permutation(4000)
    x, want = wf.tensor(order), order.copy()
    x[x] = wf.arange(4000)
    want[order.copy()] = np.arange(4000)
    same(x.numpy(), want)
    x, want = wf.tensor(order), order.copy()
    x[:3000][x[1000:] % 3000] = 7
    want[:3000][order[1000:] % 3000] = 7
    same(x.numpy(), want)
