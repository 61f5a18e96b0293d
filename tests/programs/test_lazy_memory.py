"""Lazy evaluation takes no more memory than its operations would, one by one: peaks of the pool's statistics."""

import gc

import pytest

import weft as wf
from weft import storage

pytestmark = pytest.mark.daily(2)

MB = 1 << 20
X_BYTES = 8 * MB


def chain(x):
    y = x
    for k in range(60):
        y = y * 1.01 if k % 2 else y + 1
    return y.sum()


def read_between(x):
    y = x
    for k in range(60):
        y = y * 1.01 if k % 2 else y + 1
        if k == 30 and y[0].item() < 0:
            return y.sum()
    return y.sum()


def some_are_kept(x):
    y, kept = x, []
    for k in range(20):
        y = y + 1
        if k % 5 == 0:
            kept.append(y)
    return sum(z.sum() for z in kept)


def views_of_what_is_gone(x):
    for _ in range(20):
        x = (x + 1).reshape(-1, 2).T.reshape(2, -1)[::-1].reshape(-1)
    return x.sum()


def peak(function, x):
    """Bytes that a call takes at once, over what is there before it; and its result."""
    made = function(x).item()  # programs are made
    wf.waitall()
    gc.collect()  # garbage of other tests would go meanwhile
    storage.reset_peaks()
    before = storage.stats()["in_use_bytes"]
    again = function(x).item()
    wf.waitall()
    assert made == pytest.approx(again, rel=1e-4)  # sums are divided otherwise in programs
    return storage.stats()["peak_in_use_bytes"] - before, made


def lazily(function):
    def run(x):
        with wf.lazy():
            return function(x)

    return run


@pytest.mark.parametrize("function", [chain, read_between, some_are_kept, views_of_what_is_gone])
def test_a_lazy_segment_takes_the_memory_of_its_operations(function):
    x = wf.ones(X_BYTES // 4)
    eager, wanted = peak(function, x)
    lazy, made = peak(lazily(function), x)
    assert made == pytest.approx(wanted, rel=1e-4)
    # What a segment reads stays until it runs: one array that was computed before the read.
    assert lazy <= eager + MB + (X_BYTES if function is read_between else 0)


def test_a_segment_keeps_nothing_until_garbage_is_collected():
    gc.collect()
    wf.waitall()
    before = storage.stats()["in_use_bytes"]
    gc.disable()
    try:
        lazily(read_between)(wf.ones(X_BYTES // 4)).item()
        wf.waitall()
        assert storage.stats()["in_use_bytes"] - before < MB
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
def test_a_function_with_a_graph_break_takes_the_memory_of_its_operations():
    x = wf.ones(X_BYTES // 4)
    eager, wanted = peak(read_between, x)
    traced, made = peak(wf.trace(read_between), x)
    assert made == pytest.approx(wanted, rel=1e-4)
    assert traced <= eager + MB + X_BYTES


def test_what_is_kept_and_gone_by_turns():
    """Memory that returned to the pool serves later results of the same segment, each of which has its own content."""
    x = wf.ones(1 << 16)
    with wf.lazy():
        kept = []
        for k in range(12):
            y = x * k
            z = y + 1
            del y
            kept.append(z * 2)
            del z
        seen = [y[0].item() for y in kept]
    assert seen == [2 * k + 2 for k in range(12)]
