"""What a function with dynamic axes reads of arrays outside is a guard: other elements make another graph."""

import warnings

import numpy as np
import pytest

import weft as wf
from weft.graph.recording import CannotRecord

W = wf.tensor([3.0, 4.0])
HOST = np.array([1.0, 2.0], "float32")
REVERSED = HOST[::-1]
COUNT = wf.tensor(0)
LINEAR = wf.trace(lambda x: x * float(W[0]), dynamic={"x": 0})


def counting(x):
    return x * 2 if COUNT.item() % 2 else x


def writes_behind(x):
    y = x * float(W[0])
    W[...] = W + 1
    return y


HOST_MEMORY = pytest.mark.processor("writes the host's memory")

# A function, and what changes between its calls: (function, change(k)).
CASES = {
    "an element": (lambda x: x * float(W[0]), lambda k: W.__setitem__(..., float(k))),
    "a result": (lambda x: x * W.sum().item(), lambda k: W.__setitem__(..., float(k))),
    "a branch": (lambda x: x if W[0] > 1 else x * 5, lambda k: W.__setitem__(..., float(k))),
    "a mask": (lambda x: x + W[W > 1].sum(), lambda k: W.__setitem__(..., float(k))),
    "an index": (lambda x: x * W[int(W[0]) % 2], lambda k: W.__setitem__(0, float(k))),
    "a list": (lambda x: x + wf.tensor(W.tolist())[0], lambda k: W.__setitem__(..., float(k))),
    "memory that NumPy shares": (lambda x: x * float(W[0]), lambda k: W.numpy().__setitem__(0, 7.0 + k)),
    "a copy of a NumPy array": (lambda x: x + wf.tensor(HOST)[0], lambda k: HOST.__setitem__(0, k)),
    "a reversed NumPy array": (lambda x: x + wf.tensor(REVERSED)[1], lambda k: REVERSED.__setitem__(1, k)),
    "a counter": (counting, lambda k: COUNT.__setitem__(..., k)),
    "vmap": (lambda x: wf.vmap(lambda t: t * float(W[0]))(x), lambda k: W.__setitem__(..., float(k))),
    "cond": (
        lambda x: wf.cond(x.sum() > 0, lambda x: x * float(W[0]), lambda x: x, x),
        lambda k: W.__setitem__(..., float(k)),
    ),
    "foreach": (
        lambda x: wf.foreach(lambda a, s: (a * float(W.sum()), s), x, ())[0],
        lambda k: W.__setitem__(..., float(k)),
    ),
    "a traced function inside": (lambda x: LINEAR(x) * 2, lambda k: W.__setitem__(..., float(k))),
    "its own writes": (writes_behind, lambda k: None),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=HOST_MEMORY) if "shares" in name else name for name in CASES]
)
def test_a_read_is_a_guard(name):
    function, change = CASES[name]
    traced = wf.trace(lambda x: function(x), dynamic={"x": 0})
    for k in range(4):
        for x in (wf.ones(2 + k), wf.full(2 + k, 3.0)):
            before = W.copy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", wf.TraceWarning)  # of NumPy arrays of the closure
                y = traced(x)
            W[...] = before
            np.testing.assert_array_equal(y.numpy(), function(x).numpy())
        change(k)


def test_the_same_elements_are_the_same_graph():
    traced = wf.trace(lambda x: x if W.sum() > 1 else x * 5, dynamic={"x": 0})
    for k in range(2, 6):
        W[...] = float(k)
        traced(wf.ones(k))
    assert len(traced.programs) == 1


def reads_what_it_wrote(x):
    W[...] = W + 1
    return x * float(W[0])


def writes_on_the_host(x):
    W.numpy()[0] += 1
    return x * float(W[0])


def reads_a_gradient(x):
    return x * float(W.grad[0])


REFUSED = {
    reads_what_it_wrote: "elements are read of an array that the function has written",
    writes_on_the_host: "elements that it reads are written",
    reads_a_gradient: "elements are read of a grad",
}


@pytest.mark.parametrize(
    "function",
    [reads_what_it_wrote, pytest.param(writes_on_the_host, marks=HOST_MEMORY), reads_a_gradient],
)
def test_what_a_guard_cannot_hold(function):
    W.grad = wf.ones(2)
    try:
        with pytest.raises(CannotRecord, match=REFUSED[function]):
            wf.trace(function, dynamic={"x": 0})(wf.ones(3))
    finally:
        W.grad = None


def test_sizes_of_vmap():
    """One graph for all numbers of examples but 1, which broadcasts."""
    w = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    gradients = wf.vmap(wf.grad(lambda w, t: wf.softmax(t @ w, axis=0)[0]), in_axes=(None, 0))
    traced = wf.trace(lambda x: gradients(w, x), dynamic={"x": 0})
    for n in (2, 5, 1, 3):
        x = wf.arange(2 * n, dtype="float32").reshape(n, 2)
        np.testing.assert_allclose(traced(x).numpy(), gradients(w, x).numpy(), rtol=1e-6)
    assert len(traced.programs) == 2
