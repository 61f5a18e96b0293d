"""Errors that show when a kernel runs: what they are, and the line that they name."""

import contextlib
import inspect

import numpy as np
import pytest
from tests.on_device import DEVICE

import weft as wf
import weft.functional as F


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    with contextlib.suppress(wf.EngineError):
        wf.waitall()


def here():
    """The line that calls."""
    caller = inspect.currentframe().f_back
    return f"{__file__}:{caller.f_lineno}"


@pytest.mark.parametrize("size", [2, 200_000], ids=["run at once", "queued"])
def test_an_index_out_of_range_is_an_index_error(size):
    indices = np.zeros(size, "int64")
    indices[-1] = 5
    x, indices = wf.tensor([1.0, 2.0]), wf.tensor(indices)
    y, line = F.take(x, indices), here()
    with pytest.raises(
        IndexError, match=r"take: IndexError: .*index 5 is out of range for axis 0 of size 2"
    ) as caught:
        y.numpy()
    assert isinstance(caught.value, wf.EngineError)
    assert type(caught.value.__cause__) is IndexError
    assert (caught.value.operation, caught.value.where) == ("take", line)
    with pytest.raises(wf.EngineError):  # every time
        y.numpy()


def test_through_several_operations_it_stays_one():
    y, line = F.take(wf.tensor([1.0, 2.0]), wf.tensor([2])), here()
    with pytest.raises(IndexError) as caught:
        (wf.exp(y) + 1).numpy()
    assert caught.value.where == line


@pytest.mark.parametrize("dtype", ["int8", "int64"])
@pytest.mark.parametrize(
    "call",
    [
        lambda k: F.bincount(k, length=3),
        lambda k: F.bincount(k, wf.ones(2), length=3),
        lambda k: F.segment_sum(wf.ones((2, 2)), k, 3),
        lambda k: F.segment_max(wf.ones(2), k, 3),
        lambda k: F.segment_softmax(wf.ones(2), k, 3),
        wf.trace(lambda k: F.segment_mean(wf.ones(2), k, 3)),
    ],
    ids=["counts", "weighted counts", "sums", "maxima", "softmax", "means"],
)
def test_numbers_of_segments_do_not_count_from_the_end(call, dtype):
    call(wf.tensor([2, 0], dtype=dtype)).numpy()
    for number in (-1, -128, 3):
        with pytest.raises(IndexError, match="is out of range for axis 0 of size 3"):
            call(wf.tensor([number, 0], dtype=dtype)).numpy()


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "uint64"])
@pytest.mark.parametrize(
    "shape", [(4,), (2, 3), (2, 3000 if DEVICE else 70_000)]
)  # of a stand-in not too many blocks
def test_targets_that_are_no_classes(loss, dtype, shape):
    x = wf.ones((shape[0], 3, *shape[1:]))
    target = np.ones(shape, dtype)
    assert np.isfinite(loss(x, wf.tensor(target)).item())
    target.flat[-1] = 3
    with pytest.raises(IndexError, match="target 3 is none of the 3 classes, nor ignore_index, -100"):
        loss(x, wf.tensor(target)).item()
    assert np.isfinite(loss(x, wf.tensor(target), ignore_index=3).item())
    if target.dtype.kind == "i":
        target.flat[-1] = -1  # it does not count from the end
        with pytest.raises(IndexError, match="target -1 is none"):
            loss(x, wf.tensor(target)).item()
        target.flat[-1] = -100
        assert np.isfinite(loss(x, wf.tensor(target)).item())


def test_lines_inside_the_package_are_not_the_users():
    """What Python code of weft does on the way is named by the line that called it."""
    x = wf.ones(3)
    gm = wf.GradManager().attach([x])
    with gm:
        y = x[wf.tensor([0, 2])]  # by operators, in weft/arrays/indexing.py
        gm.backward(y)
    z, line = wf.ones(3), here()
    z[wf.tensor([7])] = 1.0
    with pytest.raises(IndexError) as caught:
        z.numpy()
    file, number = line.rsplit(":", 1)
    assert caught.value.where == f"{file}:{int(number) + 1}"


def test_python_errors_stay_engine_errors():
    """What a function of users raised is the cause; the error itself is nothing but an EngineError."""
    from weft.engine import default_engine

    def fail(run_context):
        raise KeyError("lost")

    engine = default_engine()
    variable = engine.new_variable()
    engine.push(fail, mutate_vars=[variable])
    with pytest.raises(wf.EngineError) as caught:
        engine.wait_for_var(variable)
    assert type(caught.value) is wf.EngineError
    assert isinstance(caught.value.__cause__, KeyError)
