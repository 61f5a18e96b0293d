"""What arrays will do and do not yet: each of these is in tests/known_gaps.txt until it works."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F


def test_arrays_are_indices():
    x = wf.arange(6)
    assert x[np.array([4, 0])].numpy().tolist() == [4, 0]
    assert x[[1, 2]].numpy().tolist() == [1, 2]


def test_masks_are_indices():
    x = wf.arange(4)
    assert x[np.array([True, False, False, True])].numpy().tolist() == [0, 3]


def test_comparison_is_elementwise():
    assert (wf.arange(3) == wf.arange(3)).numpy().all()


def test_arithmetic_on_tensors():
    assert (wf.arange(3) + wf.arange(3)).numpy().tolist() == [0, 2, 4]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nan_in_a_maximum_over_windows(dtype):
    x = wf.tensor(np.array([[[[1, np.nan], [2, 3]]]])).astype(dtype)
    assert np.isnan(F.max_pool2d(x, 2).item())


@pytest.mark.processor(
    "elsewhere transposed convolutions are loops that multiply the padding, too: NaN times 0 is NaN"
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_reaches_no_further_than_its_products(dtype):
    weight = np.ones((1, 1, 2, 2))
    weight[0, 0, 0, 0] = np.nan
    y = F.conv_transpose2d(wf.ones((1, 1, 2, 2), dtype), wf.tensor(weight, dtype), stride=2).numpy()[0, 0]
    assert np.isnan(y).tolist() == [[i % 2 == 0 and j % 2 == 0 for j in range(4)] for i in range(4)]


def test_gradients_of_writing_through_a_view():
    def f(x):
        y = x * 2
        y[0] += x[1]  # that is: a view of y, written in place
        return (y * y).sum()

    assert wf.grad(f)(wf.tensor([1.0, 3.0])).numpy().tolist() == [20.0, 34.0]


def test_gradients_of_assigning_a_view_of_itself():
    def f(x):
        y = x * 2
        y[1:] = y[:-1]
        return (y * y).sum()

    assert wf.grad(f)(wf.tensor([1.0, 3.0])).numpy().tolist() == [16.0, 0.0]


class Doubling(wf.operator.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0].numpy() * 2)


class DoublingProperty(wf.operator.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, *_):
        return Doubling()


def test_vmap_of_an_operator_that_calls_python():
    wf.operator.register("test_gaps_doubling")(DoublingProperty)
    double = wf.operator.test_gaps_doubling
    assert double(wf.ones(2)).numpy().tolist() == [2, 2]
    assert wf.vmap(double)(wf.ones((3, 2))).shape == (3, 2)
