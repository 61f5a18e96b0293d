"""In which order the native core runs the loops of rows: along the elements of the arrays that have the most."""

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.ops.functions as F

pytestmark = pytest.mark.processor("the order in which its threads run loops")


def drawn(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def repeated(a):
    """The vector as a column that repeats along the rows: strides of 1 and 0."""
    return F.broadcast_to(F.expand_dims(a, axis=1), shape=(70, 80))


@pytest.mark.parametrize(
    ("function", "inner"),
    [
        (lambda x: F.flip(x, axis=1) + 1, "ru"),
        (lambda x: F.flip(x, axis=1) + x, "ruu"),
        (lambda x: F.sum(F.flip(x, axis=1) * x, axis=1), "ruz"),
        (lambda x: F.flip(x, axis=0) + 1, "uu"),
    ],
)
def test_elements_one_before_the_other(patterns, function, inner):
    assert patterns(function, drawn(70, 80))[0] == (False, inner)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, x: F.sum(repeated(a) * x, axis=1),
        lambda a, x: F.sum(F.expand_dims(a, axis=1) * x, axis=1, keepdims=True),
        lambda a, x: x - F.mean(repeated(a) + x, axis=1, keepdims=True),
    ],
)
def test_a_number_for_each_row_does_not_decide(patterns, function):
    """It is the first operand and its elements are neighbours from row to row, but x has the rows."""
    ((lanes, inner),) = patterns(function, drawn(70), drawn(70, 80))
    assert not lanes
    assert "a" not in inner


def test_a_row_that_repeats_does_not_decide(patterns):
    """Both axes make up the row; the loop in which x's elements are neighbours is the inner one."""
    found = patterns(lambda b, x: F.sum(b * x), drawn(80), drawn(70, 80))
    assert all("a" not in inner for _, inner in found)


def test_columns_run_side_by_side(patterns):
    ((lanes, inner),) = patterns(lambda x: F.sum(x * 3.0, axis=0), drawn(70, 80))
    assert lanes
    assert "a" not in inner


def test_columns_beside_a_number_for_each_row(patterns):
    ((lanes, inner),) = patterns(lambda a, x: F.sum(repeated(a) * x, axis=0), drawn(70), drawn(70, 80))
    assert lanes
    assert "a" not in inner


def test_the_first_operand_decides_between_equals(patterns):
    """x's elements are neighbours from row to row, y's along the rows: one of them is scattered in any order."""
    ((lanes, _),) = patterns(
        lambda x, y: F.sum(F.permute_dims(x, (1, 0)) * y, axis=1), drawn(80, 70), drawn(70, 80)
    )
    assert lanes


@pytest.mark.parametrize("traced", [False, True])
def test_results_are_row_major_beside_what_is_repeated(traced):
    """A row that is repeated says nothing of an order; written column by column a result takes ten times as long."""
    x = wf.ones((20, 30), "float32")
    row, column = F.broadcast_to(wf.ones(30), shape=x.shape), F.broadcast_to(wf.ones((20, 1)), shape=x.shape)
    for function in (
        lambda: row * x,
        lambda: column * x,
        lambda: row + 1,
        lambda: column * x.T.copy().T + x,
        lambda: wf.vjp(lambda v: F.max(v, axis=0), x)[1](wf.ones(30))[0],
        lambda: wf.vjp(lambda v: F.sum(v, axis=1), x)[1](wf.ones(20))[0] * 2,
    ):
        assert (wf.trace(function) if traced else function)().strides == (30 * 4, 4)
