"""Symbols without inputs: constants and random numbers."""

import numpy as np
import pytest

import weft as wf
import weft.symbol as sym


@pytest.mark.parametrize("args", [(5,), (1, 9, 3), (5, 0, -2), (0,), (3, 1), (0, 1, 0.25), (1.0, 0.0, -0.5)])
def test_arange_is_that_of_arrays(args):
    y, wanted = sym.arange(*args).eval()[0], wf.arange(*args)
    assert (y.dtype, y.tolist()) == (wanted.dtype, wanted.tolist())


@pytest.mark.parametrize("args", [(0, 1, 5), (0.1, 0.7, 7), (2, -1, 2), (3, 4, 1), (3, 4, 0)])
def test_linspace_is_that_of_arrays(args):
    assert sym.linspace(*args).eval()[0].tolist() == wf.linspace(*args).tolist()


@pytest.mark.parametrize(
    ("args", "k"), [((3,), 0), ((2, 4), 1), ((4, 2), -1), ((2, 2), 5), ((0,), 0), ((3, 0), 0)]
)
def test_eye_is_that_of_arrays(args, k):
    y = sym.eye(*args, k=k, dtype="int8").eval()[0]
    np.testing.assert_array_equal(y.numpy(), wf.eye(*args, k=k, dtype="int8").numpy())
    assert y.dtype is wf.int8


@pytest.mark.parametrize(
    ("symbol", "array"),
    [
        (lambda: sym.uniform(1, 3, (2, 3)), lambda: wf.random.uniform(1, 3, (2, 3))),
        (lambda: sym.normal(5, 2, 4, "float64"), lambda: wf.random.normal(5, 2, 4, "float64")),
        (lambda: sym.randint(3, 9, 5, "int32"), lambda: wf.random.randint(3, 9, 5, "int32")),
        (lambda: sym.randint(7), lambda: wf.random.randint(7)),
    ],
)
def test_random_numbers_are_those_of_arrays_and_new_at_each_run(symbol, array):
    executor = sym.from_json((symbol() + sym.var("x", dtype="int8")).to_json()).simple_bind(x=())
    wf.random.seed(3)
    wanted = [array().tolist() for _ in range(3)]
    wf.random.seed(3)
    got = [executor.forward()[0] for _ in range(3)]
    assert [y.tolist() for y in got] == wanted
    assert got[0].dtype is array().dtype


def test_gradients_pass_random_factors():
    executor = (sym.uniform(1, 2, 3) * sym.var("w")).simple_bind(w=(3,))
    executor.arg_dict["w"][...] = 1
    y = executor.forward(is_train=True)[0].tolist()
    executor.backward()
    assert executor.grad_dict["w"].tolist() == y


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: sym.arange(0, 1, 0), ValueError, "arange: step must not be 0"),
        (lambda: sym.linspace(0, 1, -1), ValueError, "linspace: num must be at least 0, got -1"),
        (lambda: sym.normal(0, -1), ValueError, "normal: std must be at least 0, got -1"),
        (lambda: sym.randint(3, 3), ValueError, "randint: low must be less than high, got 3 and 3"),
        (lambda: sym.arange("a"), TypeError, "arange: stop must be a number, got 'a'"),
        (lambda: sym.arange(float("inf")), ValueError, "arange: stop must be finite, got inf"),
        (lambda: sym.linspace(0, 1, 2.5), TypeError, "linspace: num must be an int, got 2.5"),
        (lambda: sym.eye("a"), TypeError, "eye: n_rows must be an int, got 'a'"),
        (lambda: sym.uniform("a"), TypeError, "uniform: low must be a number, got 'a'"),
        (lambda: sym.normal(std=None), TypeError, "normal: std must be a number, got None"),
        (lambda: sym.randint(2.5), TypeError, "randint: high must be an int, got 2.5"),
        (lambda: sym.uniform(dtype="int8"), wf.DTypeError, "dtype must be a float, got int8"),
    ],
)
def test_refusals(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
