"""Programs of thousands of arrays, operations, sizes and containers: nothing is recursive over them."""

import sys
import threading

import numpy as np
import pytest
from tests.on_device import on_the_device

import weft as wf
import weft.functional as F

FRAMES = 150  # of Python, which is what a few calls within weft take


def shallow(function):
    """What the function returns in a thread that has few frames of Python."""
    results = []

    def run():
        try:
            results.append((function(), None))
        except BaseException as problem:
            results.append((None, problem))

    thread, limit = threading.Thread(target=on_the_device(run)), sys.getrecursionlimit()
    sys.setrecursionlimit(max(FRAMES, len_of_stack() + 20))
    try:
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    result, problem = results[0]
    if problem is not None:
        raise problem
    return result


def len_of_stack():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def chain(x, length=400):
    for _ in range(length):
        x = F.sin(x)
    return x


@pytest.fixture(autouse=True, scope="module")
def loaded():
    """What is imported, and compiled, at first use, of which the depth is another matter."""
    chain(wf.ones(2), 1)
    small = [wf.ones(2)] * 2
    wf.trace(wf.concat)(small)
    for f in (wf.trace(wf.grad(lambda x: wf.concat([chain(x, 2)] * 2).sum())), wf.grad(lambda x: x.sum())):
        f(wf.ones(2))
    wf.trace(lambda x: x * x.shape[0], dynamic={"x": 0})(wf.ones(2))


def test_arrays_of_a_concat():
    parts = [wf.full(2 + k % 2, float(k)) for k in range(600)]
    expected = np.concatenate([x.numpy() for x in parts])
    assert np.array_equal(shallow(lambda: wf.concat(parts).numpy()), expected)
    assert np.array_equal(shallow(lambda: wf.trace(lambda p: wf.concat(p))(parts).numpy()), expected)
    f = wf.grad(lambda x: wf.concat([x * k for k in range(300)]).sum())
    assert shallow(lambda: f(wf.ones(2))).numpy().tolist() == [44850.0] * 2


@pytest.mark.parametrize("of", ["eager", "trace", "grad", "trace of grad", "dynamic"])
def test_operations_of_a_chain(of):
    def summed(x):
        return chain(x).sum()

    f = {
        "eager": chain,
        "trace": wf.trace(chain),
        "grad": wf.grad(summed),
        "trace of grad": wf.trace(wf.grad(summed)),
        "dynamic": wf.trace(lambda x: chain(x), dynamic={"x": 0}),
    }[of]
    assert shallow(lambda: f(wf.ones(2))).shape == (2,)


def test_sums_of_dynamic_sizes():
    def total(x):
        n = x.shape[0]
        for _ in range(1500):
            n = n + x.shape[0] * 2 - 1
        for _ in range(40):  # 2 ** 40 terms, of which there are two different ones
            n = (n + n) - n
        assert n > 1500
        return x * 0.0 + n

    f = wf.trace(total, dynamic={"x": 0})
    assert shallow(lambda: f(wf.ones(3))).numpy().tolist() == [7503.0] * 3
    assert shallow(lambda: f(wf.ones(2))).numpy().tolist() == [4502.0] * 2
    assert len(f.programs) == 1


def nested(x, depth=2000):
    for k in range(depth):
        x = ((x,), [x], {"a": x})[k % 3]
    return x


def innermost(tree):
    while isinstance(tree, tuple | list | dict):
        tree = tree["a"] if isinstance(tree, dict) else tree[0]
    return tree


def test_containers_within_containers():
    x = wf.ones(2)
    tree = nested(x)
    f = wf.trace(lambda t: nested(innermost(t) * 2))
    for _ in range(2):
        assert innermost(shallow(lambda: f(tree))).numpy().tolist() == [2.0, 2.0]
    g = wf.trace(lambda y: innermost(tree) * y)
    assert shallow(lambda: g(wf.ones(2))).numpy().tolist() == [1.0, 1.0]
    h = wf.vmap(lambda t: innermost(t) * 2)
    assert shallow(lambda: h(tree)).numpy().tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
def test_containers_that_a_traced_function_changes():
    tree = nested([wf.ones(2)])

    def double(t):
        while not isinstance(t, list) or not isinstance(t[0], wf.Tensor):
            t = t["a"] if isinstance(t, dict) else t[0]
        t[0] = t[0] * 2

    f = wf.trace(double)
    for expected in (2.0, 4.0, 8.0):
        shallow(lambda: f(tree))
        assert innermost(tree).numpy().tolist() == [expected] * 2
