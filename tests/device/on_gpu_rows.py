"""Long rows on a GPU, which several blocks share. test_gpu_programs.py runs this file in processes that have one."""

import os

import numpy as np
import pytest

import weft as wf
import weft.functional as F

from .support import counted

SEED = int(os.environ.get("WEFT_TEST_SEED", "0"))
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _there():
    with wf.device("gpu:0"):
        yield


def numbers(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def test_long_rows_are_folded_in_pieces():
    """Where there are too few of them: pieces, what is left of each row, and what these come to."""
    for shape, axis, pieces in [
        ((20000,), None, 3),
        ((3, 20480), 1, 2),
        ((9001, 5), 0, 3),
        ((2, 9000, 3), 1, 3),
        ((3, 8192), 1, 1),
        ((64, 9000), 1, 1),
    ]:
        for dtype in ("float32", "bfloat16", "int32", "complex64"):
            a = np.asarray(rng.integers(-9, 10, shape), "float32")
            x = F.cast(wf.tensor(a), dtype=dtype)
            total, launched, _, staged = counted(lambda: x.sum(axis=axis))  # noqa: B023
            assert (launched, staged) == (pieces, 0), (shape, dtype)
            np.testing.assert_array_equal(
                F.cast(total, dtype="float32").numpy(),
                F.cast(
                    F.cast(wf.tensor(a, device="cpu:0"), dtype=dtype).sum(axis=axis), dtype="float32"
                ).numpy(),
            )
        x = wf.tensor(numbers(*shape))
        np.testing.assert_allclose(
            x.mean(axis=axis).numpy(), x.numpy().mean(axis, dtype="float64"), rtol=1e-5, atol=1e-7
        )
        np.testing.assert_array_equal(x.max(axis=axis).numpy(), x.numpy().max(axis))
        np.testing.assert_array_equal(x[..., ::2].min().numpy(), x.numpy()[..., ::2].min())
        traced = wf.trace(lambda x: F.exp(x).sum(axis=axis) * 2)  # noqa: B023
        for _ in range(2):
            want = np.exp(x.numpy().astype("float64")).sum(axis) * 2
            np.testing.assert_allclose(traced(x).numpy(), want, rtol=1e-5)


SCANNED = [  # shape, axis, launches: the start, pieces, their join, scans of whole pieces and of what is left
    ((20000,), 0, 5),
    ((20480,), 0, 4),
    ((3, 9001), 1, 5),
    ((9001, 5), 0, 5),
    ((2, 9000, 3), 1, 5),
    ((40, 9000), 1, 1),
    ((8192,), 0, 1),
]


@pytest.mark.parametrize(("shape", "axis", "launches"), SCANNED)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_long_rows_are_scanned_in_pieces(shape, axis, launches, op):
    """Integers have the same sums in any order; of products only signs and a few factors are there."""
    scan = getattr(F, f"cumulative_{op}")
    oracle = {
        "sum": np.cumsum,
        "prod": np.cumprod,
        "max": np.maximum.accumulate,
        "min": np.minimum.accumulate,
    }[op]
    for dtype in ("float32", "bfloat16", "int32", "float64", "complex64"):
        if dtype == "complex64" and op != "sum":
            continue
        whole = rng.integers(-2, 3, shape).astype("float32")
        a = np.sign(whole + 0.5) if op == "prod" else whole
        x = F.cast(wf.tensor(a), dtype=dtype)
        y, launched, _, staged = counted(lambda: scan(x, axis=axis))  # noqa: B023
        assert (launched, staged) == (launches, 0)
        want = wf.tensor(oracle(a, axis=axis), device="cpu:0")
        want = F.cast(F.cast(want, dtype=dtype), dtype="float32")
        np.testing.assert_array_equal(F.cast(y, dtype="float32").numpy(), want.numpy())


def test_scans_of_views_the_other_way_round_and_beside_other_work():
    a = numbers(2, 30001)
    x = wf.tensor(a)
    want = np.cumsum(a.astype("float64"), axis=1)
    for _ in range(2):
        got = F.cumulative_sum(x, axis=1).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(got, F.cumulative_sum(x, axis=1).numpy())  # results repeat
    got = F.cumulative_sum(x[:, ::-3], axis=1).numpy()
    np.testing.assert_allclose(got, np.cumsum(a[:, ::-3].astype("float64"), axis=1), rtol=1e-5, atol=1e-3)
    weights = numbers(30001)
    slope = wf.grad(lambda x: (F.cumulative_sum(x, axis=1) * wf.tensor(weights)).sum())  # scans from the end
    want = np.cumsum(np.broadcast_to(weights, a.shape)[:, ::-1].astype("float64"), axis=1)[:, ::-1]
    np.testing.assert_allclose(slope(x).numpy(), want, rtol=1e-5, atol=1e-3)
    traced = wf.trace(lambda x: F.exp(F.cumulative_max(x * 2, axis=1)) + 1)
    for _ in range(2):
        want = np.exp(np.maximum.accumulate(a * 2, axis=1)) + 1
        np.testing.assert_allclose(traced(x).numpy(), want, rtol=1e-5)


def test_sums_that_are_scanned_in_pieces_are_handed_on_in_float64():
    a = np.full(300000, 0.1, "float32")
    got = F.cumulative_sum(wf.tensor(a), axis=0).numpy()
    np.testing.assert_allclose(got, np.cumsum(a.astype("float64")), rtol=1e-6)


def test_scans_keep_nan_from_where_it_is():
    a = numbers(20000)
    a[12345] = np.nan
    for scan, oracle in ((F.cumulative_sum, np.cumsum), (F.cumulative_max, np.maximum.accumulate)):
        got = scan(wf.tensor(a), axis=0).numpy()
        want = oracle(a, axis=0)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(got[:12345], want[:12345], rtol=1e-4, atol=1e-3)


NORMALIZED = [  # launches of a softmax: two folds of whole pieces, what is left of rows, and joins; elements twice
    ((1, 20480), 6),
    ((3, 9001), 8),
    ((40, 9001), 1),
    ((2, 8192), 1),
]


@pytest.mark.parametrize(("shape", "launches"), NORMALIZED)
def test_long_rows_are_normalized_by_several_blocks(shape, launches):
    a = numbers(*shape)
    x = wf.tensor(a)
    y, launched, _, staged = counted(lambda: F.softmax(x, axis=-1))
    assert (launched, staged) == (launches, 0)
    wide = np.exp(a.astype("float64") - a.max(-1, keepdims=True))
    want = wide / wide.sum(-1, keepdims=True)
    np.testing.assert_allclose(y.numpy(), want, rtol=2e-6)
    np.testing.assert_array_equal(y.numpy(), F.softmax(x, axis=-1).numpy())
    np.testing.assert_allclose(F.log_softmax(x, axis=-1).numpy(), np.log(want), rtol=1e-5, atol=1e-5)
    strided = wf.tensor(np.repeat(a, 2, axis=-1))[..., ::2]
    np.testing.assert_array_equal(F.softmax(strided, axis=-1).numpy(), y.numpy())
    columns = wf.tensor(np.ascontiguousarray(a.T))
    np.testing.assert_allclose(F.softmax(columns, axis=0).numpy(), want.T, rtol=2e-6)
    half = F.cast(x, dtype="bfloat16")
    np.testing.assert_allclose(
        F.cast(F.softmax(half * 4, axis=-1), dtype="float32").numpy().sum(-1), 1, rtol=2e-2
    )


@pytest.mark.parametrize("shape", [(1, 20000), (3, 9001)])
def test_norms_of_long_rows_and_their_gradients(shape):
    """As on the processor, and where they are fused with what is around them."""
    a, scale, shift, dy = numbers(*shape), numbers(shape[1]), numbers(shape[1]), numbers(*shape)
    a += 100  # variances of differences, not of squares

    def work(x, w, b, dy):
        def loss(x, w, b):
            y = F.layer_norm(F.tanh(x - 100) + x, shape[1], w, b)
            return (y * dy).sum() + (F.softmax(x * 0.1, axis=-1) * dy).sum()

        return (F.rms_norm(x, shape[1], w), *wf.grad(loss, argnums=(0, 1, 2))(x, w, b))

    results = []
    for device in ("gpu:0", "cpu:0"):
        arrays = [wf.tensor(z, device=device) for z in (a, scale, shift, dy)]
        results.append([y.numpy() for y in work(*arrays)])
        results.append([y.numpy() for y in wf.trace(work)(*arrays)])
    for result in results:
        for got, want in zip(result, results[2], strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
