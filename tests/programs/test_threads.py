"""Eight threads use one traced function and one eager network at once."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M

THREADS, CALLS = 8, 20


@pytest.mark.parametrize("lazy", [False, True])
def test_one_traced_function_and_one_network(lazy, in_threads):
    net = M.Sequential(M.Linear(4, 16), M.GELU(), M.Linear(16, 3))

    def f(x, scale, n):
        y = x * scale
        y[0] = n
        return wf.grad(lambda t: F.logsumexp(net(t), axis=1).sum())(y), y[1:]

    traced = wf.trace(f, strict=True, lazy=lazy)
    rng = np.random.default_rng(0)
    arrays = [wf.tensor(rng.standard_normal((5 + k % 3, 4), "float32")) for k in range(THREADS)]
    wanted = [[y.numpy() for y in f(x, 0.5 * k, k % 2)] for k, x in enumerate(arrays)]
    outputs = [net(x).numpy() for x in arrays]

    def work(k):
        for _ in range(CALLS):
            found = traced(arrays[k], 0.5 * k, k % 2)
            for y, expected in zip(found, wanted[k], strict=True):
                np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(net(arrays[k]).numpy(), outputs[k], rtol=1e-5, atol=1e-6)

    in_threads(work, range(THREADS))
    assert len(traced.programs) == 6  # three sizes, two numbers


def test_writes_of_one_traced_function(in_threads):
    """Each call is as a whole before or after each other one, also where Python runs to be written down."""
    total, count = wf.zeros(()), wf.zeros(())

    @wf.trace(strict=True)
    def add(x):
        count[...] = count + 1
        total[...] = total + x.sum()

    def work(k):
        for n in range(CALLS):
            add(wf.ones(2 + n // 8) * k)

    in_threads(work, range(THREADS))
    assert count.item() == THREADS * CALLS
    assert total.item() == sum(2 + n // 8 for n in range(CALLS)) * sum(range(THREADS))


def test_lazy_evaluation_in_threads(in_threads):
    rng = np.random.default_rng(0)
    arrays = [wf.tensor(rng.standard_normal((3, 4), "float32")) for _ in range(THREADS)]
    wanted = [float((x.numpy() ** 2).sum()) for x in arrays]

    def work(k):
        for _ in range(CALLS):
            with wf.lazy():
                y = (arrays[k] * arrays[k]).sum()
            assert y.item() == pytest.approx(wanted[k], rel=1e-5)

    in_threads(work, range(THREADS))


def test_gradients_of_other_threads_are_not_written_down(in_threads):
    def work(k):
        w = wf.full((2,), float(k))
        gm = wf.GradManager().attach([w])

        @wf.trace(strict=True)
        def run(x):
            with gm:
                gm.backward((w * w * x).sum())
            dw, w.grad = w.grad, None
            return dw

        for n in range(CALLS):
            assert run(wf.ones(2) * n).numpy().tolist() == [2.0 * k * n] * 2
        assert len(run.programs) == 1

    in_threads(work, range(THREADS))
