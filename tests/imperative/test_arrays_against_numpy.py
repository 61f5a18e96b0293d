"""Generated programs on tensors and on NumPy's arrays: same values, shapes, strides, sharing and kinds of errors."""

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft as wf
from weft import _core
from weft.base.dtype import DTYPES
from weft.expr.evaluate import to_bfloat16

INTEGERS = [dtype for dtype in DTYPES if dtype.kind in ("int", "uint")]
FLOATS = [dtype for dtype in DTYPES if dtype.kind == "float"]

dtypes = st.sampled_from(DTYPES)
shapes = st.lists(st.integers(0, 4), max_size=6).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def generated(examples):
    """The same cases in each run; how long one takes does not matter."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def random_array(rng, shape, dtype):
    """Values that each type holds: small ones and, for integers, its whole range."""
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind == "float":
        return np.asarray(rng.standard_normal(shape) * 8).astype(dtype.numpy)
    if dtype.kind == "complex":
        parts = random_array(rng, (*shape, 2), dtype.real)
        return parts.view(dtype.numpy)[..., 0]
    info = np.iinfo(dtype.numpy)
    return np.asarray(rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True))


def bits(array):
    """The elements' bytes, so that NaN equals itself and -0 differs from 0."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist()


def is_nan(array):
    with np.errstate(invalid="ignore"):  # ml_dtypes: NaNs that signal
        return np.isnan(array)


def view(array, index):
    """array[index], and a 0-d view where NumPy gives a scalar, which is a copy."""
    got = array[index]
    return (
        got
        if isinstance(got, np.ndarray)
        else array[(*(index if isinstance(index, tuple) else (index,)), ...)]
    )


def same(x, a):
    """Shape, type, all bits, and strides where NumPy's mean something."""
    assert x.shape == a.shape
    assert x.dtype == a.dtype
    assert (x.ndim, x.size, x.itemsize, x.nbytes) == (a.ndim, a.size, a.itemsize, a.nbytes)
    got = x.numpy()
    assert got.dtype == a.dtype
    assert got.shape == a.shape
    assert bits(got) == bits(a)
    if a.size:
        for size, stride, expected in zip(x.shape, x.strides, a.strides, strict=True):
            assert size == 1 or stride == expected
        if not _core.hides_memory(x.device):  # got is x's memory
            assert all(
                stride == s for n, stride, s in zip(a.shape, got.strides, x.strides, strict=True) if n > 1
            )


def both(rng, shape, dtype):
    """A tensor and an array of the same elements in different memory."""
    a = random_array(rng, shape, dtype)
    x = wf.tensor(a)
    assert not np.shares_memory(x.numpy(), a)
    return x, a


# --- creation ---------------------------------------------------------------------------------------------


@generated(120)
@given(shapes, dtypes, st.sampled_from(["zeros", "ones", "empty"]), st.booleans())
def test_zeros_ones_and_empty_are_numpys(shape, dtype, name, like):
    make = getattr(wf, f"{name}_like" if like else name)
    x = make(wf.empty(shape, "int16") if like else shape, dtype)
    a = getattr(np, name)(shape, dtype.numpy)
    if name == "empty":
        x[...] = 1
        a[...] = 1
    same(x, a)


@generated(120)
@given(shapes, dtypes, seeds, st.booleans())
def test_full_is_numpys(shape, dtype, seed, like):
    value = random_array(np.random.default_rng(seed), (), dtype).item()
    x = wf.full_like(wf.empty(shape, "int16"), value, dtype) if like else wf.full(shape, value, dtype)
    same(x, np.full(shape, value, dtype.numpy))


@generated(60)
@given(shapes, dtypes, seeds)
def test_full_of_a_tensor_is_its_element_everywhere(shape, dtype, seed):
    x, a = both(np.random.default_rng(seed), (), dtype)
    same(wf.full(shape, x), np.full(shape, a))


@generated(150)
@given(
    st.integers(-200, 200), st.integers(-200, 200), st.integers(-50, 50).filter(bool), st.sampled_from(DTYPES)
)
def test_arange_of_ints_is_numpys(start, stop, step, dtype):
    if dtype.kind == "bool":
        dtype = wf.int64
    expected = np.arange(start, stop, step)
    same(wf.arange(start, stop, step), expected)
    same(wf.arange(start, stop, step, dtype), expected.astype(dtype.numpy))


quarters = st.integers(-100, 100).map(lambda n: n / 4)


@generated(150)
@given(quarters, quarters, quarters.filter(bool), st.sampled_from(FLOATS))
def test_arange_of_floats_is_numpys(start, stop, step, dtype):
    """Quarters, which are exact, so that the count cannot depend on how rounding goes."""
    expected = np.arange(start, stop, step, np.float64)
    same(wf.arange(start, stop, step), expected.astype(np.float32))
    same(wf.arange(start, stop, step, dtype), expected.astype(dtype.numpy))


@generated(150)
@given(quarters, quarters, st.integers(0, 40), st.booleans(), st.sampled_from(FLOATS))
def test_linspace_is_numpys(start, stop, num, endpoint, dtype):
    x = wf.linspace(start, stop, num, dtype, endpoint=endpoint)
    expected = np.linspace(start, stop, num, endpoint=endpoint)
    assert x.shape == expected.shape
    assert x.dtype is dtype
    eps = float(ml_dtypes.finfo(dtype.numpy).eps)
    got = x.numpy().astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=eps, atol=eps * max(abs(start), abs(stop)))
    if num:
        assert x[0].item() == np.asarray(start).astype(dtype.numpy)
    if num > 1 and endpoint:
        assert x[-1].item() == np.asarray(stop).astype(dtype.numpy)


@generated(120)
@given(st.integers(0, 7), st.none() | st.integers(0, 7), st.integers(-9, 9), dtypes)
def test_eye_is_numpys(rows, columns, k, dtype):
    same(wf.eye(rows, columns, k=k, dtype=dtype), np.eye(rows, columns, k, dtype.numpy))


# --- views ------------------------------------------------------------------------------------------------


def drawn_index(rng, shape):
    """A basic index of an array of this shape: ints, slices, None, at most one Ellipsis; in range."""
    items = []
    for n in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(0, 4)
        if kind == 0 and n:
            items.append(int(rng.integers(-n, n)))
        elif kind == 1:
            items.append(slice(None, None, int(rng.choice([-1, 1, 2]))))
        else:
            bounds = [None if rng.integers(0, 3) == 0 else int(rng.integers(-n - 2, n + 3)) for _ in "ab"]
            items.append(slice(*bounds, int(rng.choice([1, 1, 2, 3, -1, -1, -2, -3]))))
    if rng.integers(0, 2):
        # What stands behind the Ellipsis indexes the last dimensions, of other sizes.
        at = int(rng.integers(0, len(items) + 1))
        tail = [item if isinstance(item, slice) else slice(None) for item in items[at:]]
        items = [*items[:at], ..., *tail]
    for _ in range(rng.integers(0, 2)):
        items.insert(int(rng.integers(0, len(items) + 1)), None)
    if len(items) == 1 and rng.integers(0, 2):
        return items[0]
    return tuple(items)


def drawn_shape(rng, size):
    """A shape of so many elements, perhaps with one size left as -1."""
    if size == 0:
        return (0,) if rng.integers(0, 2) else (3, 0, 2)
    sizes = []
    while size > 1 and len(sizes) < 5:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        sizes.append(int(rng.choice(divisors)))
        size //= sizes[-1]
    sizes.append(size)
    if rng.integers(0, 3) == 0:
        sizes[int(rng.integers(0, len(sizes)))] = -1
    return tuple(sizes)


def drawn_view(rng, x, a):
    """One more view of both, the same one."""
    kind = rng.integers(0, 8)
    if kind == 0:
        return x.T, a.T
    if kind == 1 and a.ndim >= 2:
        return x.mT, np.swapaxes(a, -1, -2)
    if kind == 2:
        axes = [int(axis) - a.ndim * int(rng.integers(0, 2)) for axis in rng.permutation(a.ndim)]
        return wf.permute_dims(x, axes), a.transpose(axes)
    if kind == 3 and a.ndim < 5:
        shape = tuple(rng.integers(0, 4, rng.integers(0, 2)))
        shape += tuple(int(rng.integers(1, 4)) if n == 1 else n for n in a.shape)
        return wf.broadcast_to(x, shape), np.broadcast_to(a, shape)
    if kind == 4:
        shape = drawn_shape(rng, a.size)
        y, b = x.reshape(shape), a.reshape(shape)
        if a.size:
            assert wf.shares_memory(x, y) == np.shares_memory(a, b)
        return y, b
    index = drawn_index(rng, a.shape)
    return x[index], view(a, index)


@generated(250)
@given(shapes, dtypes, seeds)
def test_chains_of_views_are_numpys(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, dtype)
    for _ in range(rng.integers(1, 7)):
        x, a = drawn_view(rng, x, a)
        if a.ndim > 8 or a.size > 5000:
            break
        same(x, a)
        same(x.copy(), a.copy())
        same(x.contiguous(), np.array(a, order="C"))


@generated(200)
@given(st.lists(st.integers(1, 5), max_size=5).map(tuple), seeds)
def test_reshape_of_strided_arrays_copies_when_numpys_does(shape, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, wf.int32)
    axes = tuple(map(int, rng.permutation(a.ndim)))
    index = tuple(slice(None, None, int(rng.choice([1, 1, -1, 2]))) for _ in shape)
    x, a = wf.permute_dims(x, axes)[index], view(a.transpose(axes), index)
    wanted = drawn_shape(rng, a.size)
    y, b = x.reshape(wanted), a.reshape(wanted)
    assert wf.shares_memory(x, y) == np.shares_memory(a, b)
    same(y, b)
    forced = wf.reshape(x, wanted, copy=True)
    assert not wf.shares_memory(x, forced)
    same(forced, np.ascontiguousarray(b).reshape(b.shape))
    if np.shares_memory(a, b):
        assert wf.shares_memory(x, wf.reshape(x, wanted, copy=False))
    else:
        with pytest.raises(ValueError, match="copy=False"):
            wf.reshape(x, wanted, copy=False)


@generated(200)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), seeds)
def test_shares_memory_never_misses_and_is_right_for_views_of_one_array(shape, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, wf.int16)
    pairs = []
    for _ in "ab":
        index = drawn_index(rng, a.shape)
        pairs.append((x[index], view(a, index)))
    (y, b), (z, c) = pairs
    assert wf.shares_memory(y, z) == np.shares_memory(b, c)


# --- assignment -------------------------------------------------------------------------------------------


def drawn_value(rng, shape, dtype):
    """What is assigned to an array of this shape and type, for both sides."""
    kind = rng.integers(0, 4)
    if kind == 0:
        number = random_array(rng, (), dtype).item()
        return number, number
    other = dtype if kind == 1 else DTYPES[rng.integers(0, len(DTYPES))]
    if other.kind == "float" and dtype.kind in ("int", "uint"):
        other = dtype
    if other.kind == "complex" and dtype.kind != "complex":
        other = dtype  # what would lose imaginary parts is refused
    small = shape[rng.integers(0, len(shape) + 1) :]
    small = tuple(1 if rng.integers(0, 4) == 0 else n for n in small)
    value = random_array(rng, small, other)
    return (wf.tensor(value), value) if kind < 3 else (value, value)


@generated(250)
@given(shapes, dtypes, seeds)
def test_assignment_through_views_is_numpys(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, dtype)
    for _ in range(4):
        y, b = x, a
        for _ in range(rng.integers(0, 3)):
            index = drawn_index(rng, b.shape)
            y, b = y[index], view(b, index)
            if rng.integers(0, 3) == 0:
                y, b = y.T, b.T
        if b.ndim > 8:
            continue
        index = drawn_index(rng, b.shape)
        ours, theirs = drawn_value(rng, b[index].shape, dtype)
        with np.errstate(all="ignore"):
            b[index] = theirs
        y[index] = ours
        same(x, a)


@generated(250)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), dtypes, seeds)
def test_assignment_between_overlapping_views_reads_before_it_writes(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, dtype)
    for _ in range(4):
        target = tuple(
            slice(*sorted(map(int, rng.integers(0, n + 1, 2))), 1)
            if rng.integers(0, 2)
            else slice(None, None, int(rng.choice([1, -1])))
            for n in shape
        )
        wanted = a[target].shape
        source = []
        for n, length in zip(shape, wanted, strict=True):
            start = int(rng.integers(0, n - length + 1))
            piece = slice(start, start + length)
            if length and rng.integers(0, 2):
                piece = slice(start + length - 1, start - 1 if start else None, -1)
            elif rng.integers(0, 5) == 0:
                piece = slice(start, start + 1) if start < n else piece  # broadcast
            source.append(piece)
        source = tuple(source)
        a[target] = a[source].copy()
        x[target] = x[source]
        same(x, a)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shifts_and_flips_of_one_array_onto_itself_read_before_they_write(dtype):
    rng = np.random.default_rng(5)
    for n in (2, 3, 17, 1000, 40_000):
        for to, source in [
            (slice(1, None), slice(None, -1)),
            (slice(None, -1), slice(1, None)),
            (slice(None), slice(None, None, -1)),
            (slice(None, None, -1), slice(None)),
            (slice(0, n // 2), slice(0, 2 * (n // 2), 2)),
            (slice(0, 2 * (n // 2), 2), slice(0, n // 2)),
            (slice(None), slice(0, 1)),
        ]:
            x, a = both(rng, (n,), dtype)
            a[to] = a[source].copy()
            x[to] = x[source]
            same(x, a)


def test_a_square_assigned_its_transpose_is_transposed():
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 64, 700):
        x, a = both(rng, (n, n), wf.float32)
        x[...] = x.T
        same(x, np.ascontiguousarray(a.T))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_assignment_of_a_view_to_itself_changes_nothing(dtype):
    x, a = both(np.random.default_rng(2), (5, 7), dtype)
    for index in (..., 0, slice(1, 4), (slice(None), slice(None, None, -2)), slice(3, 3)):
        x[index] = x[index]
    same(x, a)


@generated(60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), seeds)
def test_assignment_of_what_does_not_fit_raises_and_changes_nothing(shape, seed):
    rng = np.random.default_rng(seed)
    x, a = both(rng, shape, wf.float32)
    axis = int(rng.integers(0, len(shape)))
    wrong = tuple(n + 1 + (n == 0) if i == axis else n for i, n in enumerate(shape))
    if shape[axis] == 1:
        wrong = tuple(3 if i == axis else n for i, n in enumerate(shape))
    value = np.ones(wrong, np.float32)
    for each in (value, wf.tensor(value), value.tolist()):
        with pytest.raises(ValueError, match="fit"):
            x[...] = each
    with pytest.raises(ValueError, match="broadcast"):
        a[...] = value
    same(x, a)


@pytest.mark.parametrize(
    "nested", [1, 2.5, True, [1, 2, 3], [[True], [False]], [[1.5, 2.5, 3.5]], (1, True, 2.5)]
)
def test_numbers_and_nested_lists_are_assigned_as_numpy_does(nested):
    x, a = wf.zeros((2, 3), "float64"), np.zeros((2, 3))
    x[...] = nested
    a[...] = nested
    same(x, a)


# --- conversion -------------------------------------------------------------------------------------------


def special_values(dtype):
    """Edges of this type and of the others, as an array of it."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.kind == "complex":
        numbers = special_values(dtype.real)
        return np.stack([numbers, numbers[::-1]], axis=-1).view(dtype.numpy)[:, 0]
    integers = {0, 1, 2, 3, 7, 100}
    for other in INTEGERS:
        info = np.iinfo(other.numpy)
        for edge in (info.min, info.max, info.max // 2):
            integers |= {edge - 1, edge, edge + 1}
    integers |= {2**k + d for k in (8, 11, 12, 24, 25, 53, 54) for d in (-1, 0, 1)}
    integers |= {-n for n in integers}
    if dtype.kind != "float":
        info = np.iinfo(dtype.numpy)
        return np.array([n for n in sorted(integers) if info.min <= n <= info.max], dtype.numpy)
    numbers = [float(n) for n in sorted(integers)]
    numbers += [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-8,
        6e-8,
        3e-8,
        5.96e-8,
        1e-40,
        65504.0,
    ]
    numbers += [65519.99, 65520.0, 65536.0, 3.4e38, 3.41e38, 1e300, 1e-300, 5e-324, 1 + 2**-9, 1 + 3 * 2**-9]
    with np.errstate(all="ignore"):
        array = np.array(numbers).astype(dtype.numpy)
    if dtype.name in ("float16", "bfloat16"):  # every value there is
        every = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
        return np.concatenate([array, every[~is_nan(every)]])
    return array


def convertible(a, to):
    """Without what C and NumPy leave open: floats that an integer type cannot hold, and NaN."""
    if to.kind in ("float", "complex", "bool") or a.dtype.kind in "iub":
        return a
    info = np.iinfo(to.numpy)
    wide = (
        a.astype(np.longdouble)
        if a.dtype != ml_dtypes.bfloat16
        else a.astype(np.float32).astype(np.longdouble)
    )
    with np.errstate(all="ignore"):
        cut = np.trunc(wide)
        return a[(cut >= np.longdouble(info.min)) & (cut <= np.longdouble(info.max))]


def converted(a, to):
    """NumPy's astype. It rounds float64 to float16 once; float64 goes through float32 to bfloat16."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if to.name == "bfloat16" and a.dtype != to.numpy:
            return to_bfloat16(a)
        return a.astype(to.numpy)


CONVERSIONS = [
    (a, b)
    for a, b in itertools.product(DTYPES, DTYPES)
    if b.is_complex or not a.is_complex or b.kind == "bool"
]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS, ids=str)
def test_conversion_is_numpys(source, target):
    rng = np.random.default_rng(source.code * 13 + target.code)
    a = np.concatenate([special_values(source), random_array(rng, (300,), source)])
    a = convertible(a, target)
    expected = converted(a, target)
    x = wf.tensor(a)
    got = x.astype(target).numpy()
    assert got.dtype == expected.dtype
    numbers = ~is_nan(a) if source.is_inexact else np.ones(len(a), bool)
    assert bits(got[numbers]) == bits(expected[numbers])
    if source.is_inexact and target.is_inexact:
        assert np.isnan(got[~numbers]).all()
    # The other loops: strided on either side, and assignment.
    assert bits(x[::-1].astype(target).numpy()) == bits(got[::-1])
    wide = wf.zeros((len(a), 3), target)
    wide[:, 1] = x
    assert bits(wide.numpy()[:, 1]) == bits(got)
    assert not wide.numpy()[:, ::2].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_survives_copies_of_the_same_type(dtype):
    raw = np.random.default_rng(3).integers(0, 256, 8192, np.uint8)
    if dtype.kind == "bool":
        raw %= 2
    a = raw.view(dtype.numpy)
    x = wf.tensor(a)
    assert bits(x.numpy()) == bits(a)
    assert bits(x.copy().numpy()) == bits(a)
    assert bits(x[::-3].copy().numpy()) == bits(a[::-3])
    square = x[:400].reshape(20, 20).T
    assert bits(square.contiguous().numpy()) == bits(a[:400].reshape(20, 20).T)
    y = wf.empty_like(x)
    y[::-1] = x
    assert bits(y.numpy()) == bits(a[::-1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_go_in_and_out_as_numbers(dtype):
    a = special_values(dtype)[:300]
    if dtype.name == "bfloat16":  # which numbers of Python do not become subnormal
        a = to_bfloat16(a)
    x = wf.empty(a.shape, dtype)
    for i, element in enumerate(a):
        x[i] = element.item() if dtype.name != "bfloat16" else float(element)
    assert bits(x.numpy()[~is_nan(a)]) == bits(a[~is_nan(a)])
    for i, element in enumerate(a):
        got = x[i].item()
        assert type(got) is {"bool": bool, "float": float, "complex": complex}.get(dtype.kind, int)
        assert got == element or (got != got and element != element)
        assert bool(x[i]) == bool(element)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_arrays_are_copied_converted_and_transposed_as_numpys(dtype):
    """Large enough for the team of threads."""
    rng = np.random.default_rng(4)
    x, a = both(rng, (513, 1030), dtype)
    same(x.T.contiguous(), np.ascontiguousarray(a.T))
    same(x[::-1, 3::2].copy(), a[::-1, 3::2].copy())
    for target in (wf.float64, wf.int64):
        if dtype.is_complex or (target.kind == "int" and dtype.kind == "float"):
            continue
        same(x.T.astype(target), np.ascontiguousarray(a.T).astype(target.numpy))


# --- nested lists -----------------------------------------------------------------------------------------


def test_nested_lists_have_the_type_of_the_widest_kind_of_number_in_them():
    for nested, dtype in [
        (True, wf.bool),
        (3, wf.int64),
        (2.5, wf.float32),
        ([True, False], wf.bool),
        ([True, 2], wf.int64),
        ([1, 2.5], wf.float32),
        ([True, 2.5], wf.float32),
        ([[1, 2], [3, 4]], wf.int64),
        ([[1, 2], (3, 4.0)], wf.float32),
        ([], wf.float32),
        ([[], []], wf.float32),
    ]:
        x = wf.tensor(nested)
        assert x.dtype is dtype, nested
        same(x, np.array(nested, dtype.numpy))


@generated(120)
@given(shapes, dtypes, seeds)
def test_nested_lists_go_in_as_numpys_come_out(shape, dtype, seed):
    a = random_array(np.random.default_rng(seed), shape, dtype)
    nested = a.astype(np.float64).tolist() if dtype.name == "bfloat16" else a.tolist()
    if 0 in shape:
        shape = np.array(nested).shape  # lists cannot say what is behind a zero
    same(wf.tensor(nested, dtype), a.reshape(shape))


# --- errors -----------------------------------------------------------------------------------------------

ERRORS = {
    "index too large": lambda x, lib: x[2],
    "index too small": lambda x, lib: x[-3],
    "second index too large": lambda x, lib: x[0, 3],
    "too many indices": lambda x, lib: x[0, 0, 0],
    "two ellipses": lambda x, lib: x[..., ...],
    "float index": lambda x, lib: x[1.5],
    "text index": lambda x, lib: x["a"],
    "slice of floats": lambda x, lib: x[1.5:],
    "slice of text": lambda x, lib: x["a":],
    "step zero": lambda x, lib: x[::0],
    "assign too large": lambda x, lib: x.__setitem__(2, 1),
    "assign misfit": lambda x, lib: x.__setitem__(slice(None), [1, 2]),
    "assign text": lambda x, lib: x.__setitem__(0, "abc"),
    "reshape misfit": lambda x, lib: x.reshape(4),
    "reshape two unknown": lambda x, lib: x.reshape(-1, -1),
    "reshape unknown misfit": lambda x, lib: x.reshape(4, -1),
    "reshape by text": lambda x, lib: x.reshape("a"),
    "reshape by float": lambda x, lib: x.reshape(2.5),
    "reshape unknown and zero": lambda x, lib: x.reshape(0, -1),
    "broadcast misfit": lambda x, lib: lib.broadcast_to(x, (3, 3)),
    "broadcast fewer": lambda x, lib: lib.broadcast_to(x, (3,)),
    "permute twice": lambda x, lib: lib.permute_dims(x, (0, 0)),
    "permute fewer": lambda x, lib: lib.permute_dims(x, (0,)),
    "negative shape": lambda x, lib: lib.zeros((2, -1)),
    "text shape": lambda x, lib: lib.zeros("a"),
    "float shape": lambda x, lib: lib.zeros(1.5),
    "item of many": lambda x, lib: x.item(),
    "truth of many": lambda x, lib: bool(x),
    "truth of none": lambda x, lib: bool(x[:0]),
    "length of a number": lambda x, lib: len(x[0, 0].reshape(())),
    "iteration of a number": lambda x, lib: iter(x[0, 0].reshape(())),
    "int of many": lambda x, lib: int(x),
    "float of many": lambda x, lib: float(x),
    "floats as index": lambda x, lib: range(3)[x[0, 0].reshape(())],
    "linspace of fewer than none": lambda x, lib: lib.linspace(0, 1, -1),
    "uneven lists": lambda x, lib: x.__setitem__(..., [[1, 2, 3], [1]]),
}
ABSENT_IN_NUMPY = (TypeError, ValueError)  # where it raises one and weft the better other


@pytest.mark.parametrize("what", ERRORS)
def test_errors_are_of_numpys_kind(what):
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        ERRORS[what](np.zeros((2, 3)), np)
    kind = next(k for k in (IndexError, ValueError, TypeError) if isinstance(theirs.value, k))
    if what in {"int of many", "float of many", "assign text"}:
        kind = ABSENT_IN_NUMPY
    with pytest.raises(kind):
        ERRORS[what](wf.zeros((2, 3), "float64"), wf)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_that_do_not_fit_are_refused_as_by_numpy(dtype):
    info = np.iinfo(dtype.numpy)
    x, a = wf.zeros(2, dtype), np.zeros(2, dtype.numpy)
    for value in (info.min - 1, info.max + 1, 2**70, -(2**70), 2**64):
        for attempt in (
            lambda value=value: a.__setitem__(0, value),
            lambda value=value: x.__setitem__(0, value),
            lambda value=value: wf.full(2, value, dtype),
            lambda value=value: wf.tensor([0, value], dtype),
        ):
            with pytest.raises(OverflowError):
                attempt()
    for value in (info.min, info.max):
        x[1] = value
        assert x[1].item() == value
    assert x[0].item() == 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_floats_that_integers_cannot_hold_are_refused_as_by_numpy(dtype):
    info = np.iinfo(dtype.numpy)
    x, a = wf.zeros(2, dtype), np.zeros(2, dtype.numpy)
    for value in (float(info.max) * 2 + 2, float(info.min) * 2 - 2, 1e30, -1e30, np.inf, -np.inf, np.nan):
        for attempt in (
            lambda value=value: a.__setitem__(0, value),
            lambda value=value: x.__setitem__(0, value),
            lambda value=value: wf.full(2, value, dtype),
            lambda value=value: wf.tensor([0, value], dtype),
        ):
            with pytest.raises((OverflowError, ValueError)):
                attempt()
    for value in (info.max // 2 + 0.5, 0.9, -0.9, 3.7):
        x[1] = value
        a[1] = value
        same(x, a)


def test_leading_dimensions_of_size_1_of_a_value_are_dropped_as_by_numpy():
    value = np.arange(3.0).reshape(1, 1, 3)
    for index in (0, slice(0, 1), slice(None), ...):
        x, a = wf.zeros((2, 3), "float64"), np.zeros((2, 3))
        a[index] = value
        for each in (value, wf.tensor(value), value.tolist()):
            x[...] = 0
            x[index] = each
            same(x, a)
