"""What an operator of a user's says by infer is compared with what its other rules make, once for each plan."""

import pytest

import weft as wf
import weft.functional as F
from weft.expr import scalar as e
from weft.ops import Op, op
from weft.ops.kernels import View, pointwise_loop


def make(name, infer, decompose=None, kernels=None):
    content = {"name": name, "infer": infer, "__module__": __name__, "primitive": decompose is None}
    content |= {"decompose": decompose} if decompose else {}
    content |= {"kernels": kernels} if kernels else {}
    op(type("Made", (Op,), content))
    return getattr(F, name)


def test_decomposition_of_another_shape():
    f = make("wrong_shape_of_tests", lambda self, x: x.like(), lambda self, x: F.sum(x, axis=0))
    with pytest.raises(
        wf.ShapeError, match=r"wrong_shape_of_tests: infer says f32\[2,3\].*, decompose computes"
    ):
        f(wf.ones((2, 3)))
    with pytest.raises(wf.ShapeError, match="wrong_shape_of_tests: infer says"):
        wf.trace(lambda x: f(x) * 2)(wf.ones((2, 3))).numpy()


def test_decomposition_of_another_type():
    f = make(
        "wrong_type_of_tests",
        lambda self, x: x.like(dtype=wf.float64),
        lambda self, x: F.exp(x),
    )
    with pytest.raises(
        wf.DTypeError, match=r"wrong_type_of_tests: infer says f64\[2\].*, decompose computes f32"
    ):
        f(wf.ones(2))


def test_another_number_of_outputs():
    f = make("wrong_count_of_tests", lambda self, x: x.like(), lambda self, x: (x, x))
    with pytest.raises(
        wf.ShapeError, match="wrong_count_of_tests: infer says 1 output, decompose computes 2"
    ):
        f(wf.ones(2))


def test_a_loop_that_stores_another_type():
    f = make(
        "wrong_loop_of_tests",
        lambda self, x: x.like(),
        kernels=lambda self, x: iter([pointwise_loop([x], [e.load(0, x.dtype.name) > 0])]),
    )
    with pytest.raises(
        wf.DTypeError, match=r"wrong_loop_of_tests: infer says f32\[2\].*, its loop stores bool"
    ):
        f(wf.ones(2))


def test_a_view_of_another_shape():
    f = make(
        "wrong_view_of_tests",
        lambda self, x: x.like(),
        kernels=lambda self, x: iter([View(lambda shape, strides: (shape[1:], strides[1:], 0))]),
    )
    with pytest.raises(wf.ShapeError, match=r"wrong_view_of_tests: infer says .*, its view is f32"):
        f(wf.ones((2, 3)))


def test_right_ones_are_taken_for_all_sizes():
    f = make(
        "right_of_tests",
        lambda self, x: x.like((x.shape[0], x.shape[0])),
        lambda self, x: F.matmul(x, x.mT),
    )
    for n in (1, 2, 5):
        assert f(wf.ones((n, 3))).shape == (n, n)
