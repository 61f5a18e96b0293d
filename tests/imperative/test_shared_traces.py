"""One traced function, called by several threads at a time; `./dev test --ci thread` looks for races meanwhile."""

import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F


def run_threads(function, count=4):
    """Calls function(k) on so many threads at a time; raises what they have raised."""
    barrier, errors = threading.Barrier(count), []

    def run(k):
        try:
            barrier.wait(30)
            function(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.filterwarnings(
    "ignore:branch:", "ignore:branch. traced"
)  # whose programs go before they run again
def test_threads_that_record_branches_of_one_function():
    """Each threshold is a program of its own; programs come, and go again, while other threads look for theirs."""
    x = wf.ones(4)

    def branch(x, t):
        for k in range(8):
            if t < k:
                return x + k
        return x

    traced = wf.trace(branch, max_entries=4)

    def call(start):
        for i in range(24):
            k = (5 * i + start) % 8
            assert traced(x, k - 0.5)[0].item() == 1 + k

    run_threads(call)


@pytest.mark.parametrize("shapes", [[(8, 8)], [(8, 8), (3, 5), (1, 0), (16, 16)]])
def test_threads_that_share_programs_and_arrays(shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, "f4") for shape in shapes]
    tensors = [wf.tensor(x) for x in arrays]

    @wf.trace
    def step(x, k):
        return F.relu(x @ x.mT + k).sum(axis=0)

    def call(start):
        for i in range(12):
            n = (start + i) % len(arrays)
            x = arrays[n]
            expected = np.maximum(x @ x.T + 0.5, 0).sum(axis=0)
            np.testing.assert_allclose(step(tensors[n], 0.5).numpy(), expected, rtol=1e-4, atol=1e-4)

    run_threads(call)


def test_threads_that_compute_gradients_through_one_traced_function():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 5), "f4")
    weight, given = wf.tensor(rng.standard_normal((5, 3), "f4")), wf.tensor(x)
    traced = wf.trace(lambda w, x: wf.grad(lambda w: (F.tanh(x @ w) ** 2).sum())(w))
    y = np.tanh(x @ weight.numpy())
    expected = x.T @ (2 * y * (1 - y * y))

    def call(_):
        for _ in range(6):
            np.testing.assert_allclose(traced(weight, given).numpy(), expected, rtol=1e-4, atol=1e-5)
            gm = wf.GradManager()
            w = wf.tensor(weight)
            gm.attach([w])
            with gm:
                gm.backward((F.tanh(given @ w) ** 2).sum())
            np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-4, atol=1e-5)

    run_threads(call)


def test_threads_that_defer_and_wait():
    """Lazy blocks of each thread, on arrays that all read."""
    shared = wf.arange(10, dtype="float32")

    def call(k):
        for _ in range(10):
            with wf.lazy():
                y = shared * k + 1
                z = (y * y).sum()
            assert z.item() == ((np.arange(10) * k + 1.0) ** 2).sum()

    run_threads(call)


@pytest.mark.filterwarnings("error")
def test_first_calls_of_two_threads_with_recorded_slices():
    """The thread that waits for the first recording gets its program, with dense copies of its own slices."""
    waits = threading.Event()

    def f(y):
        waits.wait(0.2)  # so that the other thread comes meanwhile
        return y * 2

    traced = wf.trace(f)

    def call(k):
        p = wf.ones((4, 4)) * (k + 1)
        gm = wf.GradManager().attach([p])
        with gm:
            y = traced((p * 1.0)[:, ::2])
            gm.backward(y.sum())
        assert y.tolist() == [[2.0 * (k + 1)] * 2] * 4
        assert p.grad.tolist() == [[2.0, 0.0, 2.0, 0.0]] * 4

    run_threads(call, 2)
