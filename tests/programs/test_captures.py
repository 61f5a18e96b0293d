"""Every way in which a function is recorded on Tracers, times every kind of thing that a function may do in it.

What one accepts all accept: constants made inside, arrays and NumPy arrays of closures, elements of what does not
depend on the arguments, what a Tensor answers. The reference is the function itself, on arrays.
"""

import copy
import math
import warnings

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.graph.recording import CannotRecord


class Doubling(wf.Function):
    """y = 2 x, with a backward of its own."""

    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 2


class WithBackward(wf.Function):
    """The identity, whose backward is a function."""

    def __init__(self, function):
        self.function = function

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        return self.function(dy)


def looped(f):
    loop = lambda x: wf.while_loop(lambda n, x: n < 1, lambda n, x: (n + 1, f(x)), wf.tensor(0), x)  # noqa: E731
    return wf.trace(loop)(wf.ones(2))[1]


CAPTURES = {
    "trace": lambda f: wf.trace(f)(wf.ones(2)),
    "dynamic axes": lambda f: wf.trace(f, dynamic={"x": 0})(wf.ones(2)),
    "vmap with dynamic axes": lambda f: wf.trace(lambda x: wf.vmap(f)(x), dynamic={"x": 0})(wf.ones((3, 2)))[
        0
    ],
    "foreach with dynamic axes": lambda f: wf.trace(
        lambda x: wf.foreach(lambda a, s: (f(a), s), x, ()), dynamic={"x": 0}
    )(wf.ones((3, 2)))[0][0],
    "vmap": lambda f: wf.vmap(f)(wf.ones((1, 2)))[0],
    "vjp": lambda f: wf.vjp(f, wf.ones(2))[0],
    "jvp": lambda f: wf.jvp(f, (wf.ones(2),), (wf.ones(2),))[0],
    "linearize": lambda f: wf.linearize(f, wf.ones(2))[0],
    "jacobian": lambda f: wf.jacobian(lambda x: (f(x), f(x)), has_aux=True)(wf.ones(2))[1],
    "hessian": lambda f: wf.jacobian(
        wf.jacobian(lambda x: ((x * x).sum(), f(x)), has_aux=True), has_aux=True
    )(wf.ones(2))[1],
    "grad in vmap": lambda f: wf.vmap(wf.grad(lambda x: (f(x).sum(), f(x)), has_aux=True))(wf.ones((1, 2)))[
        1
    ][0],
    "vmap in trace": lambda f: wf.trace(lambda x: wf.vmap(f)(x))(wf.ones((1, 2)))[0],
    "cond": lambda f: wf.trace(lambda x: wf.cond(x.sum() > 0, f, lambda x: x * 0, x))(wf.ones(2)),
    "cond in vmap": lambda f: wf.vmap(lambda x: wf.cond(x.sum() > 0, f, lambda x: x * 0, x))(wf.ones((1, 2)))[
        0
    ],
    "foreach": lambda f: wf.trace(lambda x: wf.foreach(lambda a, s: (f(a), s), x, ()))(wf.ones((1, 2)))[0][0],
    "while_loop": looped,
    "backward": lambda f: wf.vjp(lambda x: WithBackward(f)(x), wf.ones(2))[1](wf.ones(2))[0],
}

ELEMENTS = np.array([1.0, 2.0], "float32")
FOUND = wf.tensor([3.0, 4.0])


def writes_a_new_array(x):
    y = wf.zeros(2)
    y[0] = x[0]
    y += 1
    return y


def writes_a_copy(x):
    y = x * 1
    y[0] = 5
    y.T[1] = x[0]
    return y


# What needs a number of FOUND, or a copy of what is on the host, now.
READS = {
    "a constant of a NumPy array": lambda x: x + wf.tensor(ELEMENTS),
    "item of a result": lambda x: x * FOUND.sum().item(),
    "a branch": lambda x: x * 2 if FOUND[0] > 1 else x,
    "a float": lambda x: x * float(FOUND[0]),
    "an array of NumPy": lambda x: x + wf.tensor(FOUND.numpy() * 2),
    "a mask": lambda x: x + x[FOUND > 3],
    "a mask that is a constant": lambda x: x + x[wf.tensor([True, False])],
    "an index of Python": lambda x: x + x[int(FOUND[0]) - 3],
    "an index that is a tensor": lambda x: x + x[wf.tensor(1)],
    "math": lambda x: x * math.sqrt(float(wf.tensor(4.0))),
    "nested lists": lambda x: x + wf.tensor(FOUND.tolist()),
    "membership": lambda x: x * (3.0 in FOUND),
    "values that differ": lambda x: x + wf.unique_values(FOUND)[:2],
    "positions": lambda x: x + wf.nonzero(FOUND)[0].astype("float32"),
}
DOES = {
    **READS,
    "a constant of a list": lambda x: x + wf.tensor([1.0, 2.0]),
    "asarray of a NumPy array": lambda x: x + wf.asarray(ELEMENTS),
    "a NumPy array on the right": lambda x: x * ELEMENTS,
    "a NumPy array on the left": lambda x: ELEMENTS * x,
    "a number of NumPy": lambda x: np.float32(2) * x,
    "a function of NumPy": lambda x: np.exp(x),
    "a tensor of the closure": lambda x: x * FOUND,
    "arange": lambda x: x + wf.arange(2).astype("float32"),
    "zeros": lambda x: x + wf.zeros(2) + wf.ones_like(x),
    "writes to a new array": writes_a_new_array,
    "writes to a copy": writes_a_copy,
    "indices": lambda x: x[wf.tensor([1, 0])] + x[[1, 0]],
    "equality": lambda x: (x == x).astype("float32") + (x != x).astype("float32"),
    "copies": lambda x: x.copy() + copy.deepcopy(x) + copy.copy(x),
    "isinstance": lambda x: x if isinstance(x, wf.Tensor) else None,
    "texts": lambda x: (str(x), repr(x), f"{x}", x)[-1],
    "sizes": lambda x: x * x.ndim * len(FOUND),
    "asarray of a list with arrays": lambda x: wf.asarray([x[0], x[1]]),
    "iteration": lambda x: F.stack([v * 2 for v in (x[0], x[1])]),
    "contiguous": lambda x: x.contiguous().to_device(wf.as_device(None)),
    "a Function": lambda x: Doubling()(x),
    "detach": lambda x: x.detach() * 2,
    "no_grad": lambda x: no_grad(x),
    "a gradient": lambda x: wf.grad(lambda t: (t * t).sum())(x),
    "recompute": lambda x: wf.recompute(F.exp, x),
    "cond": lambda x: wf.cond(x.sum() > 100, lambda: x, lambda: x + 1),
    "vmap": lambda x: wf.vmap(lambda t: t * 2)(x),
}


def no_grad(x):
    with wf.no_grad():
        return x * 3


# With the reason.
REFUSED = {
    ("backward", "cond"): "draws random numbers, which this function cannot",
}


@pytest.mark.parametrize("name", DOES)
@pytest.mark.parametrize("kind", CAPTURES)
def test_a_recorded_function_does(kind, name):
    expected = DOES[name](wf.ones(2)).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wf.TraceWarning)  # of NumPy arrays of the closure
        if (kind, name) in REFUSED:
            with pytest.raises(CannotRecord, match=REFUSED[kind, name]):
                CAPTURES[kind](lambda x: DOES[name](x))
            return
        y = CAPTURES[kind](lambda x: DOES[name](x))
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)


def with_results(f):
    """f for derivatives: one number, and f's result beside it."""
    return lambda *args: ((args[0] * 1).sum(), f(*args))


# Calls with several arguments.
CALLS = {
    "trace": lambda f, *args: wf.trace(f)(*args),
    "dynamic axes": lambda f, *args: wf.trace(f, dynamic={0: 0})(*args),
    "vmap": lambda f, *args: wf.vmap(f, in_axes=None, out_axes=None, axis_size=1)(*args),
    "vjp": lambda f, *args: wf.vjp(with_results(f), *args, has_aux=True)[2],
    "jvp": lambda f, *args: wf.jvp(with_results(f), args, args, has_aux=True)[2],
    "linearize": lambda f, *args: wf.linearize(with_results(f), *args, has_aux=True)[2],
    "jacobian": lambda f, *args: wf.jacobian(with_results(f), has_aux=True)(*args)[1],
}


def writes_what_it_was_given(x):
    x += 1
    return x * 2


def writes_a_reshaped_argument(x):
    y = x.reshape(-1)
    y += 1
    return x * 1


def writes_a_flat_argument(x):
    y = x.reshape(-1)
    y += 1
    return y * 1 + x.sum()


def writes_one_of_two(x, y):
    x += 1
    return x * 2 + y


ARRAY = np.arange(6, dtype="float32").reshape(2, 3)
# Arguments, and functions that write them; with what the error says where that is refused.
WRITTEN = {
    "one": (lambda: (wf.tensor(ARRAY),), writes_what_it_was_given),
    "a slice": (lambda: (wf.tensor(ARRAY)[:, ::2],), writes_what_it_was_given),
    "transposed": (lambda: (wf.tensor(ARRAY).T,), writes_what_it_was_given),
    "reshaped": (lambda: (wf.tensor(ARRAY),), writes_a_reshaped_argument),
    "flat": (lambda: (wf.tensor(ARRAY),), writes_a_flat_argument),
    "transposed and reshaped": (lambda: (wf.tensor(ARRAY).T,), writes_a_reshaped_argument),
    "two": (lambda: (wf.tensor(ARRAY), wf.tensor(ARRAY)), writes_one_of_two),
}
UNDECIDED = "a view or a copy, as strides have it"
REFUSED_CALLS = {(kind, "transposed and reshaped"): UNDECIDED for kind in CALLS if kind not in ("trace",)}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("kind", CALLS)
def test_arguments_that_are_written(kind, name):
    """Results, and the arguments afterwards, are those of the function on arrays."""
    make, function = WRITTEN[name]
    expected_arguments, arguments = make(), make()
    expected = function(*expected_arguments)
    if (kind, name) in REFUSED_CALLS:
        with pytest.raises(CannotRecord, match=REFUSED_CALLS[kind, name]):
            CALLS[kind](function, *arguments)
        return
    np.testing.assert_array_equal(CALLS[kind](function, *arguments).numpy(), expected.numpy())
    for mine, theirs in zip(arguments, expected_arguments, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
