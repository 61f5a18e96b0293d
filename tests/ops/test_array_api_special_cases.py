"""Special cases of functions of elements in the Python array API standard, those of array_api_special_cases.toml.

The operands are all values of a pool, or all pairs of them. Each function runs eagerly on all, on few and on single
elements, on views with strides, in a trace behind another loop, and with Python numbers as operands.
"""

import itertools
import math
import operator
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").with_stem("array_api_special_cases").read_text())
MAGNITUDES = (0.0, 1e-30, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 1e30, math.inf, math.nan)
VALUES = [math.copysign(x, sign) for x in MAGNITUDES for sign in (1, -1)]
COMPARISONS = {">": operator.gt, "<": operator.lt, "=": operator.eq}
PAIRED = [name for name, entry in TABLE.items() if any("," in case for case in entry.get("real", ()))]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def is_of(condition, x, others):
    """Where the elements of x meet a condition; others: the operands before x."""
    where = np.ones(x.shape, bool)
    for word in condition.replace("not ", "not_").split():
        negated, word = word.startswith("not_"), word.removeprefix("not_")
        if word in WORDS:
            found = WORDS[word](x)
        elif match := re.fullmatch(r"(\|x1\||)([<>=])(-?\d+)", word):
            found = COMPARISONS[match[2]](abs(x) if match[1] else x, float(match[3]))
        elif word in ("x1", "-x1"):
            found = x == (others[0] if word == "x1" else -others[0])
        else:
            found = x == float(word)
        where &= ~found if negated else found
    return where


WORDS = {
    "any": lambda x: np.ones(x.shape, bool),
    "finite": np.isfinite,
    "nonzero": lambda x: np.isfinite(x) & (x != 0),
    "inf": np.isinf,
    "+inf": np.isposinf,
    "-inf": np.isneginf,
    "nan": np.isnan,
    "+nan": lambda x: np.isnan(x) & ~np.signbit(x),
    "-nan": lambda x: np.isnan(x) & np.signbit(x),
    "0": lambda x: x == 0,
    "+0": lambda x: (x == 0) & ~np.signbit(x),
    "-0": lambda x: (x == 0) & np.signbit(x),
    "whole": lambda x: np.isfinite(x) & (x == np.floor(x)),
    "fractional": lambda x: np.isfinite(x) & (x != np.floor(x)),
    "odd": lambda x: np.isfinite(x) & (np.fmod(x, 2) != 0) & (x == np.floor(x)),
}


def is_result(result, got, names):
    """Where elements are what the text of a result says; names: the operands."""
    text = re.sub(r"^([+-]?)0$", r"\g<1>0.0", result.lstrip("±"))
    known = {"pi": math.pi, "inf": math.inf, "nan": math.nan, "abs": abs, "cos": np.cos, "sin": np.sin}
    want = np.broadcast_to(eval(text, known | names), got.shape)  # a text of the table
    is_nan = np.isnan(got)
    if text in ("+nan", "-nan"):
        return is_nan & (np.signbit(got) == (text[0] == "-"))
    if got.dtype == bool:
        return got == want
    with np.errstate(all="ignore"):
        size, wanted = abs(got), abs(want)
        near = (size == wanted) | (abs(size - wanted) <= 8 * np.finfo(got.dtype).eps * wanted)
    has_sign = (np.signbit(got) == np.signbit(want)) | (result[0] == "±")
    return np.where(np.isnan(want), is_nan, near & has_sign)


def failures(cases, operands, results, names, met=()):
    """Cases that do not hold, with the first operands of each; operands match the first case only.

    met: a set to which the cases are added that some operands match.
    """
    met = set() if met == () else met
    names = dict(zip(names, operands, strict=True))
    rest = np.ones(operands[0].shape, bool)
    for case in cases:
        conditions, wanted = (part.split(", ") for part in case.split(" -> "))
        where = rest.copy()
        for k, (condition, x) in enumerate(zip(conditions, operands, strict=True)):
            where &= is_of(condition, x, operands[:k])
        met.update([case] if where.any() else ())
        rest &= ~where
        for want, got in zip(wanted, results, strict=True):
            wrong = where & ~is_result(want, got, names)
            if wrong.any():
                at = np.argmax(wrong)
                yield f"{case}: {[x[at].item() for x in operands]} gives {[y[at].item() for y in results]}"
                break


def real_failures(name, operands, got):
    yield from failures(TABLE[name].get("real", ()), operands, [got], ["x1", "x2"][: len(operands)])


def complex_failures(name, z, got):
    """Of the parts, also of those that the function's symmetries lead to."""
    entry, operands, results = TABLE[name], [z.real, z.imag], [got.real, got.imag]
    if got.dtype.kind != "c":
        results = [got]
    if base := entry.get("like"):  # f(x) is g(1j * x), or -1j times that
        if base == "log":
            results = [y * math.log(int(name.removeprefix("log"))) for y in results]
        else:
            operands = [-z.imag, z.real]
            results = results if name == "cos" else [-got.imag, got.real]
        entry = TABLE[base]
    cases, symmetry = entry.get("complex", ()), entry.get("symmetry", ())
    signs = [(1, 1, 1, 1)]
    if "conj" in symmetry:
        signs += [(1, -1, 1, -1)]
    if "odd" in symmetry or "even" in symmetry:
        out = -1 if "odd" in symmetry else 1
        signs += [(-a, -b, out * re, out * im) for a, b, re, im in signs]
    for a, b, *factors in signs:
        xs = [operands[0] * a, operands[1] * b]
        ys = [y if factor == 1 else -y for factor, y in zip(factors, results, strict=False)]
        yield from failures(cases, xs, ys, "ab")


def pool(dtype, count):
    """All values, or all tuples of count of them, as arrays."""
    with np.errstate(over="ignore"):
        return [
            np.array(column, dtype) for column in zip(*itertools.product(VALUES, repeat=count), strict=True)
        ]


def complex_pool(dtype, name):
    """All pairs of values as parts; of angles only those that sin and cos take (tests/known_gaps.txt)."""
    re, im = pool("float32" if dtype == "complex64" else "float64", 2)
    entry = TABLE[name]
    turned = "like" in entry and entry["like"] != "log"
    cases = TABLE[entry["like"]]["complex"] if turned else entry.get("complex", ())
    if any("sin(" in case for case in cases):
        kept = ~((abs(re if turned else im) > 2.0**30) & np.isfinite(re if turned else im))
        re, im = re[kept], im[kept]
    z = np.empty(re.shape, dtype)
    z.real, z.imag = re, im
    return z


def ways(function, arrays):
    """(what it is, the function's elements) of each way to compute it."""
    n = len(arrays[0])
    tensors = [wf.tensor(a) for a in arrays]
    yield "eager", function(*tensors)
    yield "17 elements", F.concat([function(*(x[k : k + 17] for x in tensors)) for k in range(0, n, 17)])
    yield "single elements", F.stack([function(*(x[k] for x in tensors)) for k in range(n)])
    strided = [wf.tensor(np.stack([a, a * 0 + 1], 1)[::-1].copy())[::-1, 0] for a in arrays]
    yield "strided", function(*strided)
    keep = wf.ones(n, dtype="bool")
    traced = wf.trace(lambda keep, *xs: function(*(F.where(keep, x, F.flip(x, axis=0)) for x in xs)))
    for _ in range(2):
        yield "traced", traced(keep, *tensors)


@pytest.mark.parametrize("name", TABLE)
def test_real_numbers(name):
    cases = TABLE[name].get("real", ())
    for dtype in ("float32", "float64") if cases else ():
        arrays = pool(dtype, 2 if name in PAIRED else 1)
        for way, got in ways(getattr(wf, name), arrays):
            assert got.dtype.name in (dtype, "bool")
            assert not [*real_failures(name, arrays, got.numpy())], (dtype, way)


@pytest.mark.parametrize("name", PAIRED)
def test_python_numbers_beside_arrays(name):
    function, (values,) = getattr(wf, name), pool("float32", 1)
    x = wf.tensor(values)
    for number in values.tolist():
        same = np.full_like(values, number)
        for operands, got in (([values, same], function(x, number)), ([same, values], function(number, x))):
            assert got.dtype.name in ("float32", "bool")
            assert not [*real_failures(name, operands, got.numpy())], number


@pytest.mark.full
@pytest.mark.parametrize("name", PAIRED)
def test_python_numbers_in_traces(name):
    """Passes know some numbers, such as powers of 2 and products with 1."""
    function, (values,) = getattr(wf, name), pool("float32", 1)
    x = wf.tensor(values)
    for number in values.tolist():
        same = np.full_like(values, number)
        for operands, traced in (
            ([values, same], lambda x, number=number: function(x, number)),
            ([same, values], lambda x, number=number: function(number, x)),
        ):
            got = wf.trace(traced)(x)
            assert not [*real_failures(name, operands, got.numpy())], number


@pytest.mark.parametrize("name", [n for n, entry in TABLE.items() if {"complex", "like"} & {*entry}])
def test_complex_numbers(name):
    for dtype in ("complex64", "complex128"):
        z = complex_pool(dtype, name)
        for way, got in ways(getattr(wf, name), [z]):
            assert not [*complex_failures(name, z, got.numpy())], (dtype, way)


@pytest.mark.parametrize("name", [n for n, entry in TABLE.items() if entry.get("parts")])
def test_parts_of_complex_numbers(name):
    """Each part by itself."""
    count = 2 if name in PAIRED else 1
    parts = [p[:: 97 if count == 2 else 1] for p in pool("float64", 2 * count)]
    arrays = []
    for re_, im in zip(parts[:count], parts[count:], strict=True):
        arrays.append(np.empty(re_.shape, "complex128"))
        arrays[-1].real, arrays[-1].imag = re_, im
    got = getattr(wf, name)(*map(wf.tensor, arrays)).numpy()
    for part in (np.real, np.imag):
        assert not [*real_failures(name, [part(a) for a in arrays], part(got))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_that_are_nan(dtype):
    values = [1.0, -math.inf, math.nan]
    for x, low, high in itertools.product(values, (None, 0.0, math.nan), (None, 2.0, math.nan)):
        want = math.nan if any(v is not None and math.isnan(v) for v in (x, low, high)) else x
        want = want if math.isnan(want) or low is None else max(want, low)
        tensor = wf.full(17, x, dtype=dtype)
        for bound in (lambda b: b, lambda b: None if b is None else wf.tensor(b, dtype=dtype)):
            np.testing.assert_array_equal(wf.clip(tensor, bound(low), bound(high)).numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_reductions_with_nan_and_of_nothing(dtype):
    is_real = dtype.startswith("float")
    names = ("sum", "prod", "mean", *(("max", "min", "std", "var") if is_real else ()))
    for n, name in itertools.product((1, 2, 17, 1000), names):
        for at in {0, n // 2, n - 1}:
            a = np.ones(n, dtype)
            a[at] = math.nan
            reduced, x = getattr(wf, name), wf.tensor(a)
            for call in (reduced, wf.trace(lambda x, reduced=reduced: reduced(x * x))):
                assert np.isnan(call(x).numpy()).all(), (name, n, at)
            assert wf.all(x).item()
            assert wf.count_nonzero(x).item() == n
            if is_real:
                assert wf.argmax(x).item() == wf.argmin(x).item() == at
    for shape in ((0,), (3, 0), (0, 3)):
        nothing = wf.zeros(shape, dtype=dtype)
        for axis in (None, *range(len(shape))):
            kept = np.zeros(shape, dtype).sum(axis=axis).shape
            if not (axis is None or shape[axis] == 0):
                continue
            for name, want in {"sum": 0, "prod": 1, "mean": math.nan, "all": True, "any": False}.items():
                got = getattr(wf, name)(nothing, axis=axis).numpy()
                np.testing.assert_array_equal(got, np.full(kept, want))
    for n, correction in ((0, 0), (1, 1), (2, 2), (2, 3.5), (17, 17)) if is_real else ():
        for name in ("std", "var"):
            got = getattr(wf, name)(wf.arange(n, dtype=dtype), correction=correction)
            assert math.isnan(got.item()), (name, n, correction)


def test_complex_numbers_are_equal_where_their_parts_are():
    z = complex_pool("complex64", "abs")
    pairs = z[:, None], z[None, :]
    same = (pairs[0].real == pairs[1].real) & (pairs[0].imag == pairs[1].imag)
    a, b = map(wf.tensor, pairs)
    np.testing.assert_array_equal(wf.equal(a, b).numpy(), same)
    np.testing.assert_array_equal(wf.not_equal(a, b).numpy(), ~same)
