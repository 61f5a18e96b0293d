"""Calls and programs on a GPU, counted. test_gpu_programs.py runs this file in processes that have one."""

import os
import re

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import _core
from weft.base.dtype import as_dtype, float32
from weft.base.errors import DeviceError
from weft.executor.planner import make_plan
from weft.expr import threads
from weft.expr.llvm_products import print_products
from weft.expr.llvm_tensor_cores import print_tensor_products
from weft.graph.graph import Graph, graph_of
from weft.kernels import without
from weft.ops import functions as O
from weft.ops.node import constant, input_value
from weft.ops.types import TensorType

from .support import counted, counts

SEED = int(os.environ.get("WEFT_TEST_SEED", "0"))
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _there():
    with wf.device("gpu:0"):
        yield


def numbers(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def test_a_call_is_one_launch_and_nothing_runs_on_the_host():
    x = wf.tensor(numbers(5, 7))
    for call in (lambda: x + x, lambda: F.softmax(x), lambda: x.sum(), lambda: x.T * 2, lambda: x > 0):
        assert counted(call)[1:] == (1, 1, 0)


def test_views_launch_nothing():
    x = wf.tensor(numbers(5, 7))
    before = counts()
    y = x.T[1:3].reshape(2, 5)[::1]
    assert counts()["launches"] == before["launches"]
    assert y.shape == (2, 5)


def on_both(function, *arrays):
    """What a function of values gives on the GPU and on the processor."""
    return [wf.trace(function)(*(wf.tensor(a, device=d) for a in arrays)).numpy() for d in ("gpu:0", "cpu:0")]


def test_numbers_that_are_drawn_by_rejection():
    """Counts and float32 are the processor's bit for bit, float64 to rounding."""
    draws = np.random.default_rng(SEED)
    bits = draws.integers(0, 1 << 63, 300, np.uint64)
    alpha = np.concatenate(
        [draws.random(140) * 3, draws.random(150) * 1000, [0, 1, np.inf, np.nan, -1, 2e5, 1, 9, 9, 9]]
    )
    for dtype in ("float32", "float64"):
        got, want = on_both(lambda a, b: O.gamma_of_bits(a, b, dtype=a.dtype), alpha.astype(dtype), bits)
        np.testing.assert_allclose(got, want, rtol=0 if dtype == "float32" else 1e-14)
        y = np.where(np.isfinite(want), want, 1.0)
        got, want = on_both(lambda a, y: O.gamma_slope(a, y, dtype=a.dtype), alpha.astype(dtype), y)
        np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-11)
    rate = np.concatenate([draws.random(150) * 12, draws.random(147) * 1e4, [0, 10, 1e18]])
    np.testing.assert_array_equal(*on_both(O.poisson_of_bits, rate, bits))
    trials = np.concatenate([draws.integers(0, 50, 200), draws.integers(0, 10**6, 98), [0, 10**18]]).astype(
        "float64"
    )
    p = np.where(np.arange(300) % 50, draws.random(300), np.arange(300) // 50 % 2)
    np.testing.assert_array_equal(*on_both(O.binomial_of_bits, trials, p, bits))


def multinomial_numbers(rows, k, most):
    """Trials, chances (some 0, first, last and between) and bits of rows."""
    draws = np.random.default_rng(k)
    p = draws.random((*rows, k)) ** 3
    p[draws.random(p.shape) < 0.2] = 0
    p[..., k // 2] = 1e-3
    trials = draws.integers(0, most, (*rows, 1)).astype("float64")
    return trials, p, draws.integers(0, 1 << 63, (*rows, 1), np.uint64)


@pytest.mark.parametrize(
    ("rows", "k"), [((), 1), ((), 5), ((40,), 3), ((3, 1, 50), 7), ((2,), 300), ((0,), 4)]
)
def test_multinomial_draws_are_the_processors(rows, k):
    """Few trials and many, so that places in a row's stream become odd; rows, and chances, that are not contiguous."""
    for most in (1, 12, 1000, 10**6):
        trials, p, bits = multinomial_numbers(rows, k, most)
        got, want = on_both(O.multinomial_of_bits, trials, p, bits)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got.sum(-1, keepdims=True), trials)
        for dtype in ("int32", "float32", "float64"):
            few = np.minimum(trials, 10**6)
            np.testing.assert_array_equal(
                *on_both(lambda *x: O.multinomial_of_bits(*x, dtype=as_dtype(dtype)), few, p, bits)  # noqa: B023
            )
    if len(rows) == 1 and rows[0]:
        trials, p, bits = multinomial_numbers(rows, k, 100)

        def of_columns(t, p, b):
            return O.multinomial_of_bits(t, O.swapaxes(p, axis1=0, axis2=1), b)

        np.testing.assert_array_equal(*on_both(of_columns, trials, np.ascontiguousarray(p.T), bits))


def test_multinomial_of_distributions_is_the_processors():
    key = wf.random.key(SEED)
    for n, p in ((20, [0.2, 0.3, 0.5]), ([[3], [1000]], [[0.0, 1.0, 3.0], [1.0, 0.0, 0.0]])):
        found = []
        for device in ("gpu:0", "cpu:0"):
            with wf.device(device):
                call = lambda: wf.random.multinomial(wf.tensor(n), wf.tensor(p), key=key.to_device(device))  # noqa: B023, E731
                found += [call().numpy(), wf.trace(call)().numpy()]
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


def test_draws_of_distributions_without_a_key_are_the_processors():
    """Numbers of Python and arrays without dimensions as parameters; keys are drawn from the device's stream."""

    def draw():
        trials = wf.random.binomial(wf.tensor(20), wf.tensor([0.2, 0.3, 0.5]))
        return (
            trials,
            wf.random.poisson(wf.tensor(3.0), (2,)),
            wf.random.multinomial(trials, wf.tensor([1.0, 2.0])),
        )

    found = []
    for device in ("gpu:0", "cpu:0"):
        with wf.device(device):
            for call in (draw, wf.trace(draw)):
                wf.random.seed(SEED, device=device)
                found.append([y.numpy() for _ in range(3) for y in call()])
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("number", [20, 2.5, True])
def test_numbers_of_python_become_arrays_of_the_device(number):
    """In a traced function, where its content is known, too."""
    for call in (
        lambda: wf.tensor(number),
        lambda: wf.tensor(number) * 2,
        lambda: F.broadcast_to(wf.tensor(number), shape=(3,)),
        lambda: wf.tensor(number) + wf.ones(2) * wf.tensor(number).item(),
    ):
        traced = wf.trace(call, strict=True)
        for got in (call(), traced(), traced()):
            assert str(got.device) == "gpu:0"
            with wf.device("cpu:0"):
                np.testing.assert_array_equal(got.numpy(), call().numpy())


@pytest.mark.parametrize(
    ("name", "numbers", "said"),
    [
        ("poisson_of_bits", ([1.0, -2.0, 1e19],), "poisson: rate must be in [0, 1e18], got -2.000000"),
        (
            "binomial_of_bits",
            ([1.0, 2.5, -1.0], [0.5] * 3),
            "trials must be an integer in [0, 1e18], got 2.500000",
        ),
        ("binomial_of_bits", ([1.0] * 3, [0.5, np.nan, 2.0]), "binomial: p must be in [0, 1], got nan"),
        (
            "multinomial_of_bits",
            ([1.5], [0.5] * 3),
            "multinomial: trials must be an integer in [0, 1e18], got 1.5",
        ),
        (
            "multinomial_of_bits",
            ([1.0], [0.5, -1.0, np.inf]),
            "chances must be finite and at least 0, got -1.0",
        ),
        (
            "multinomial_of_bits",
            ([1.0], [0.5, 1.0, np.inf]),
            "chances must be finite and at least 0, got inf",
        ),
        (
            "multinomial_of_bits",
            ([7.0], [0.0] * 3),
            "multinomial: all chances of a row are 0, and its trials are 7.0",
        ),
    ],
)
def test_parameters_of_distributions_are_checked(name, numbers, said):
    """As on the processor, but found later."""
    for device in ("gpu:0", "cpu:0"):
        arrays = [wf.tensor(np.array(x), device=device) for x in numbers]
        bits = wf.tensor(np.arange(len(numbers[0]), dtype=np.uint64), device=device)
        with pytest.raises(ValueError, match=re.escape(said)):
            wf.trace(getattr(O, name))(*arrays, bits).numpy()


def test_attention_has_no_array_of_scores():
    """One launch, and three for its gradients: none makes an array of scores for another one."""
    q, k, v = (wf.tensor(numbers(1, 2, 200, 8)) for _ in range(3))
    assert counted(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))[1:] == (1, 1, 0)

    @wf.trace
    def gradients(q, k, v):
        return wf.grad(lambda *x: F.scaled_dot_product_attention(*x).sum(), argnums=(0, 1, 2))(q, k, v)

    def call():
        results = gradients(q, k, v)
        results[2].wait()
        return results[0]

    _, launches, _, staged = counted(call)
    assert (launches, staged) == (5, 0)  # attention, its three passes, and what the sum's gradient is


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_matrices_of_all_kinds_of_memory(dtype):
    """Sizes around those that shared memory holds; a launch for all of a stack, and one for what it finds."""
    size = np.dtype(dtype).itemsize
    for n in {int((bytes / size) ** 0.5) + more for bytes in (8 << 10, 40 << 10) for more in (-2, 0, 2)}:
        x = rng.standard_normal((2, n, n)).astype(dtype)
        x += 1j * rng.standard_normal(x.shape) if dtype == "complex128" else 0
        a, b = wf.tensor(x + n * np.eye(n, dtype=dtype), device="gpu:0"), wf.tensor(x, device="gpu:0")
        before = _core.device_kind_counters("gpu")["launches"]
        y = F.solve(a, b[..., :7])
        assert _core.device_kind_counters("gpu")["launches"] == before + 2
        near = {"rtol": 0, "atol": 1e-5 if dtype == "float32" else 1e-13}
        np.testing.assert_allclose((a @ y).numpy() / n, x[..., :7] / n, **near)
        p, lower, upper = F.lu(b)
        np.testing.assert_allclose((p @ lower @ upper).numpy() / n, x / n, **near)
        q, r = F.qr(b.mT)
        np.testing.assert_allclose((q @ r).mT.numpy() / n, x / n, **near)
        lower = F.cholesky(a @ F.conj(a.mT))
        whole = (lower @ F.conj(lower.mT) - a @ F.conj(a.mT)).numpy()
        assert abs(whole).max() < n * n * near["atol"]


def test_a_traced_step_waits_once():
    w = wf.tensor(numbers(7, 7))

    @wf.trace
    def step(x):
        for _ in range(4):
            x = F.relu(x @ w) + x
        return x.mean()

    x = wf.tensor(numbers(5, 7))
    result, launches, waits, staged = counted(lambda: step(x))
    assert launches >= 4
    assert (waits, staged) == (1, 0)
    want = x.numpy().astype("float64")
    for _ in range(4):
        want = np.maximum(want @ w.numpy(), 0) + want
    np.testing.assert_allclose(result.item(), want.mean(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_accesses_of_several_elements_wherever_arrays_begin(dtype):
    """Every offset of an array from 16 bytes, all lengths around what a thread has at a time."""
    base = (np.arange(200) % 50).astype(dtype)
    x = wf.tensor(base)
    for first in (0, 1, 2, 3, 4, 8, 15, 16):
        for length in (0, 1, 3, 15, 16, 17, 33, 100):
            part, want = x[first : first + length], base[first : first + length]
            np.testing.assert_array_equal((part + part).numpy(), want + want)
            y = wf.zeros(200, dtype=dtype)
            y[first : first + length] = part + 1
            expected = np.zeros(200, dtype)
            expected[first : first + length] = want + 1
            np.testing.assert_array_equal(y.numpy(), expected)


def test_random_strides_and_reductions():
    """Against NumPy, over views of any order, step and broadcast."""
    for _ in range(60):
        shape = tuple(rng.integers(1, 7, rng.integers(1, 5)).tolist())
        a = numbers(*(2 * n for n in shape), dtype="float64")
        x = wf.tensor(a)
        cut = tuple(slice(int(rng.integers(0, 2)), None, int(rng.integers(1, 3))) for _ in shape)
        order = rng.permutation(len(shape)).tolist()
        x, a = wf.permute_dims(x[cut], order), np.transpose(a[cut], order)
        axes = tuple(int(k) for k in range(a.ndim) if rng.integers(2)) or None
        np.testing.assert_allclose(x.sum(axis=axes).numpy(), a.sum(axes), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal((x * 2 - x[:1]).numpy(), a * 2 - a[:1])
        np.testing.assert_array_equal(x.max(axis=0).numpy(), a.max(0))
        np.testing.assert_array_equal(x.argmax(axis=-1).numpy(), a.argmax(-1))


@pytest.mark.parametrize("length", [1, 31, 33, 1023, 1024, 1025, 5000])
def test_long_rows(length):
    a = numbers(3, length)
    x = wf.tensor(a)
    np.testing.assert_allclose(F.softmax(x).sum(axis=-1).numpy(), 1, rtol=1e-5)
    sums = F.cumulative_sum(x, axis=1)
    np.testing.assert_allclose(sums.numpy(), a.astype("float64").cumsum(1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(x.sum(axis=0).numpy(), a.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose((x.T + 1).T.mean().item(), 1 + a.mean(), rtol=1e-4)


def test_loops_and_conditions_read_what_decides_from_the_device():
    x = wf.tensor([4.0, 4.0])
    assert wf.cond(x.sum() > 3, lambda x: x * 2, lambda x: x, x).tolist() == [8.0, 8.0]
    assert wf.cond(x.sum() > 30, lambda x: x * 2, lambda x: x, x).tolist() == [4.0, 4.0]
    assert wf.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x).tolist() == [64.0, 64.0]
    rows = wf.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sums, last = wf.foreach(lambda row, s: (row.sum() + s, row.sum() + s), rows, wf.tensor(0.0))
    assert sums.tolist() == [3.0, 10.0, 21.0]
    assert last.item() == 21.0


BODIES = {
    "foreach": lambda x: wf.foreach(lambda row, s: (row + wf.random.uniform(shape=2), s), x, ())[0],
    "while_loop": lambda x: wf.while_loop(
        lambda n, _: n < 3, lambda n, x: (n + 1, F.dropout(x, 0.5, training=True)), wf.tensor(0), x
    )[1],
    "cond": lambda x: wf.cond(x.sum() > 0, lambda: x * wf.random.normal(shape=2), lambda: x),
    "permutation": lambda x: wf.foreach(lambda row, s: (wf.random.permutation(row), s), x, ())[0],
    "recompute": lambda x: wf.grad(lambda x: (wf.recompute(lambda x: F.dropout(x, 0.5) * x, x)).sum())(x),
}


@pytest.mark.parametrize("dynamic", [None, {"x": 0}])
@pytest.mark.parametrize("body", BODIES)
def test_bodies_draw_the_numbers_of_the_processor(body, dynamic):
    results = []
    for device in ("cpu:0", "gpu:0"):
        with wf.device(device):
            wf.random.seed(7, device=device)
            traced = wf.trace(BODIES[body], dynamic=dynamic, strict=True)
            x = wf.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            results.append([traced(x).numpy() for _ in range(3)])
    np.testing.assert_array_equal(*results)


def test_a_program_refuses_arrays_of_another_device():
    plan = make_plan(graph_of(lambda x: x + 1, [TensorType((3,), float32)]), "test", exact=True)
    with pytest.raises(DeviceError, match=r"input 0 is planned for cpu:0: it is f32\[3\]@gpu:0"):
        _core.run_plan(plan, [wf.ones(3, device="gpu:0")])
    with pytest.raises(DeviceError, match=r"output 0 is planned for cpu:0: its array is f32\[3\]@gpu:0"):
        _core.run_plan(plan, [wf.ones(3, device="cpu:0")], into=[wf.ones(3, device="gpu:0")])


@pytest.mark.parametrize("then", [lambda x: x, F.exp, lambda x: F.to_device(F.exp(x), "gpu:1")])
def test_programs_that_copy_refuse_arrays_of_another_device(then):
    """Alone, and as parts of a program of several devices."""
    graph = graph_of(lambda x: then(F.to_device(x, "gpu:0")), [TensorType((3,), float32)])
    plan = make_plan(graph, "test", exact=True)
    np.testing.assert_array_equal(
        _core.run_plan(plan, [wf.zeros(3, device="cpu:0")])[0].numpy(), then(wf.zeros(3)).numpy()
    )
    with pytest.raises(DeviceError, match=r"input 0 is planned for cpu:0: it is f32\[3\]@gpu:1"):
        _core.run_plan(plan, [wf.ones(3, device="gpu:1")])


def test_a_number_is_made_where_it_is_copied_to():
    """What is computed from numbers alone has no device: there is nothing to copy."""
    x = input_value(TensorType((2,), float32, wf.gpu(0)), "x")
    plan = make_plan(Graph([x], [F.to_device(constant(2.0), "gpu:0") > x]), "test", exact=True)
    assert _core.run_plan(plan, [wf.tensor([1.0, 3.0], device="gpu:0")])[0].tolist() == [True, False]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_arrays_of_float_arguments_are_made_where_they_are_needed(lazy, dtype):
    with wf.device("gpu:0"):
        f = wf.trace(
            lambda s: (wf.tensor([s, 2, 3], dtype=dtype), wf.full((2, 2), s, dtype=dtype)), lazy=lazy
        )
        f(1.0)
        for value in (3.7, -0.0, 1e-3):
            listed, filled = f(value)
            assert listed.device is filled.device is wf.gpu(0)
            wanted = np.array([value, 2, 3]).astype(dtype)
            np.testing.assert_array_equal(listed.numpy(), wanted)
            assert np.signbit(listed.numpy()[0]) == np.signbit(wanted[0])
            np.testing.assert_array_equal(filled.numpy(), np.full((2, 2), value).astype(dtype))
        assert len(f.programs) == (3 if dtype == "int64" else 1)  # integers of a float are constants


def test_errors_name_the_operator():
    x = wf.tensor([[3.0, 1.0], [1.0, 2.0]])
    factor = wf.trace(lambda x: wf.linalg.cholesky(x))
    said = r"cholesky: no kernel for these operands on gpu devices"
    with without("native"), pytest.raises(NotImplementedError, match=said):
        factor(x)
    assert (x + 1).tolist() == [[4.0, 2.0], [2.0, 3.0]]


@pytest.mark.parametrize("shape", [(7,), (1,), (0,), (50, 3), (4, 0), (300, 2, 2)])
def test_permutations_in_programs_are_the_processors(shape):
    for dtype in ("float32", "int8", "float64"):
        a = numbers(*shape).astype(dtype)
        results = []
        for device in ("cpu:0", "gpu:0"):
            wf.random.seed(5, device=device)
            x = wf.tensor(a, device=device)
            shuffle = wf.trace(lambda x: wf.random.permutation(x.T.T * 1))
            results.append([shuffle(x).numpy() for _ in range(3)])
        for want, got in zip(*results, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dtype", "length"),
    [("float32", 33), ("float16", 5), ("int8", 64), ("uint64", 2), ("bool", 3), ("float64", 1)],
)
def test_sorted_as_on_the_processor(dtype, length):
    """Places of equal elements, NaN and the order of axes, too."""
    a = (rng.standard_normal((3, length, 2)) * 3).round().astype("float32")
    if dtype.startswith("float"):
        a[rng.random(a.shape) < 0.2] = np.nan
    a = (np.abs(a) if dtype in ("uint64", "bool") else a).astype(dtype)
    on_host = wf.tensor(a, device="cpu:0")
    x = wf.tensor(a)
    k = length // 2 + 1
    for call in (
        lambda x: F.argsort(x, axis=1),
        lambda x: F.argsort(x, axis=1, descending=True),
        lambda x: F.sort(x, axis=-2),
        lambda x: F.topk(x, k, axis=1),
        lambda x: F.topk(x, k, axis=1, largest=False),
    ):
        got, want = call(x), call(on_host)
        pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
        for y, z in pairs:
            np.testing.assert_array_equal(y.numpy(), z.numpy())
    line, values = F.sort(wf.tensor(a[0, :, 0])), wf.tensor(a[1, :, 1])
    for side in ("left", "right"):
        want = F.searchsorted(line.to_device("cpu"), values.to_device("cpu"), side=side)
        np.testing.assert_array_equal(F.searchsorted(line, values, side=side).numpy(), want.numpy())


def test_masks_and_what_there_is_to_know_of_a_device():
    x = wf.tensor([3.0, 1.0, 2.0])
    assert x[x > 1].tolist() == [3.0, 2.0]
    x[x > 2] = 0.0
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert (wf.device.count(), wf.device.name(), wf.device.is_available("gpu:2")) == (2, "stand-in", False)
    assert wf.device.is_available("cuda:1")
    wf.device.synchronize("gpu:0")
    assert wf.device.memory()["in_use_bytes"] >= 12
    with pytest.raises(wf.DeviceError, match="the host cannot touch the memory of gpu:0"):
        _core.run_kernel(_core.kernel_count_nonzero(), [x, x])


def test_the_origin_of_a_nan_is_found():
    x = wf.tensor([1.0, -1.0])
    with (
        pytest.raises(
            wf.EngineError, match=r"log: the result f32\[2\] holds 1 NaN .*; it reads f32\[2\] with 0 NaN"
        ),
        wf.tools.detect_anomaly(),
    ):
        F.log(x).wait()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_origin_of_a_nan_is_the_processors(dtype):
    """By the same words, with counts and the first place; no array comes to the host."""
    draws = np.random.default_rng(SEED)
    for shape in ((), (3,), (40, 3), (2, 3, 700)):
        a, b = numbers(*shape), np.asarray(np.abs(numbers(*shape)) + 0.5, "float32")
        for array, value, share in ((a, -np.inf, 0.2), (b, np.nan, 0.1)):
            array[draws.random(shape) < share] = value
        for infinite in (False, True):
            said = []
            for device in ("cpu:0", "gpu:0"):
                x, y = (F.cast(wf.tensor(v, device=device), dtype=dtype) for v in (a, b))
                x, y = (wf.permute_dims(v, range(len(shape))[::-1]) for v in (x, y))
                staged = counts()["staged"]
                try:
                    with wf.tools.detect_anomaly(infinite):
                        (x * y + x).wait()
                    said.append(None)
                except wf.EngineError as error:
                    said.append(str(error).replace(device, ""))
                assert counts()["staged"] == staged
            assert said[0] == said[1]
            is_bad = np.isnan(a * b + a) | (np.isinf(a * b + a) & infinite)
            assert (said[0] is not None) == bool(is_bad.any())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (63,), (65,), (3, 70), (4, 5, 129)])
def test_dropout_and_bernoulli_draw_the_processors_numbers(dtype, shape):
    a = wf.tensor(numbers(*shape), device="cpu:0").astype(dtype)
    chances = wf.tensor(rng.random(shape), device="cpu:0").astype(dtype)
    for draw in (
        lambda x, p: F.dropout(x, 0.3, training=True),
        lambda x, p: F.dropout(x, 1.0, training=True),
        lambda x, p: F.bernoulli(p),
    ):
        results = []
        for device in ("cpu:0", "gpu:0"):
            wf.random.seed(5, device=device)
            results.append(draw(a.to_device(device), chances.to_device(device)).numpy())
        assert results[0].tobytes() == results[1].tobytes()


DRAWS = {
    "uniform": (
        ("float16", "bfloat16", "float32", "float64"),
        lambda s, t: wf.random.uniform(-1.5, 2.0, s, dtype=t),
    ),
    "one number": (("float16", "float32"), lambda s, t: wf.random.uniform(0.25, 0.25, s, dtype=t)),
    "from zero": (("bfloat16", "float32", "float64"), lambda s, t: wf.random.uniform(-1e-3, 0.0, s, dtype=t)),
    "normal": (
        ("float16", "bfloat16", "float32", "float64"),
        lambda s, t: wf.random.normal(0.5, 2.0, s, dtype=t),
    ),
    "integers": (
        ("int8", "uint16", "int32", "int64", "uint64"),
        lambda s, t: wf.random.randint(3, 100, s, dtype=t),
    ),
    "wide": (("int64",), lambda s, t: wf.random.randint(-(2**62), 2**62 + 5, s, dtype=t)),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(), (65,), (3, 70), (4, 5, 29), (0, 3)])
def test_programs_draw_the_processors_numbers(name, shape):
    """float64 normals to rounding, since they take the device's own logarithm, sine and cosine; others bit for bit."""
    dtypes, draw = DRAWS[name]
    for dtype in dtypes:
        results = []
        for device in ("cpu:0", "gpu:0"):
            with wf.device(device):
                wf.random.seed(5, device=device)
                traced = wf.trace(lambda draw=draw, dtype=dtype: (draw(shape, dtype), draw(shape, dtype)))
                results.append([x.numpy() for x in (*traced(), *traced())])
        for want, got in zip(*results, strict=True):
            if (name, dtype) == ("normal", "float64"):
                np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)
            else:
                assert got.tobytes() == want.tobytes()


def test_indices_out_of_range_are_the_processors_errors():
    x, table = wf.tensor(numbers(4, 3)), wf.tensor(numbers(5, 2))
    bad = wf.tensor([[0, 1], [7, -9]])
    before = x.numpy().copy()
    for call, message in (
        (lambda: wf.take(x, bad[1], axis=0), "index 7 is out of range for axis 0 of size 4"),
        (lambda: F.embedding(bad, table), "index 7 is out of range for axis 0 of size 5"),
        (lambda: F.cross_entropy(x, wf.tensor([0, 1, 3, 2])), r"target 3 is none of the 3 classes"),
        (
            lambda: F.put_along_axis(x, wf.tensor([[0, -6, 2]]), 1.0, axis=0),
            "index -6 is out of range for axis 0 of size 4",
        ),
        (lambda: F.bincount(wf.tensor([-1]), length=3), "is out of range for axis 0 of size 3"),
        (lambda: F.segment_sum(x, wf.tensor([0, -1, 0, 1]), 2), "is out of range for axis 0 of size 2"),
    ):
        with pytest.raises(IndexError, match=message):
            call().numpy()
    np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        *((mode, "float32") for mode in ("set", "add", "max", "min")),
        ("set", "complex64"),
        ("add", "complex128"),
    ],
)
def test_repeated_indices_are_combined_in_their_order(mode, dtype):
    """Sums have the processor's order, so its bits."""
    for axes, position, size in (((0,), 0, 200), ((1,), 1, 50), ((0, 2), 0, 100), ((0, 1, 2), 0, 64)):
        a = numbers(3, 4, 5).astype(dtype)
        indices = [rng.integers(-a.shape[d], a.shape[d], size) for d in axes]
        others = [a.shape[d] for d in range(3) if d not in axes]
        updates = numbers(*others[:position], size, *others[position:]).astype(dtype)
        results = []
        for device in ("cpu:0", "gpu:0"):
            x, *i, u = (wf.tensor(v, device=device) for v in (a, *indices, updates))
            y = F.index_put(x, u, *i, axes=axes, position=position, mode=mode)
            results.append(y.numpy())
            np.testing.assert_array_equal(x.numpy(), a)
        assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_rows(dtype):
    """Parts of totals go from thread to thread, and from warp to warp, by themselves."""
    for shape, axis in (((7,), 0), ((40, 70), 0), ((40, 70), 1), ((3, 1000), 1), ((3, 0), 1)):
        a = (1 + 0.02 * (numbers(*shape) + 1j * numbers(*shape))).astype(dtype)
        x = wf.tensor(a)
        close = {"rtol": 2e-4 if dtype == "complex64" else 1e-12}
        np.testing.assert_allclose(F.prod(x, axis=axis).numpy(), np.prod(a, axis=axis), **close)
        np.testing.assert_allclose(F.cumulative_prod(x, axis=axis).numpy(), np.cumprod(a, axis=axis), **close)


class Printed:
    """How many kernels of products were printed."""

    def __init__(self, monkeypatch):
        self.count = 0

        self.tensor_cores = 0

        def count(f):
            self.count += 1
            return print_products(f)

        def count_tensor(f):
            self.tensor_cores += 1
            return print_tensor_products(f)

        monkeypatch.setattr(threads, "print_products", count)
        monkeypatch.setattr(threads, "print_tensor_products", count_tensor)


def matrix(device, values, is_turned, is_cut):
    """The matrices on a device: stored transposed, or every second row of a larger array."""
    if is_turned:
        return wf.tensor(np.ascontiguousarray(np.swapaxes(values, -1, -2)), device=device).mT
    if is_cut:
        return wf.tensor(np.repeat(values, 2, axis=-2), device=device)[..., ::2, :]
    return wf.tensor(values, device=device)


def test_random_products(monkeypatch):
    """Of every type, batched, broadcast, transposed and strided, with what follows them, beside the processor."""
    printed = Printed(monkeypatch)
    draws = np.random.default_rng(SEED)
    for dtype in ("float32", "float32", "float64", "float16", "bfloat16", "int32", "uint8", "complex64"):
        m, n, k = (int(x) for x in draws.integers([16, 16, 8], [90, 90, 70]))
        shapes = [(m, k), (k, n)]
        if draws.random() < 0.5:
            shapes = [(int(draws.choice([1, 3])), m, k), (int(draws.choice([1, 3])), k, n)]
        values = [
            draws.integers(0 if dtype == "uint8" else -4, 5, shape).astype("float32") for shape in shapes
        ]
        turned, cut = draws.random(2) < 0.4, draws.random(2) < 0.3
        results = []
        for device in ("gpu:0", "cpu:0"):
            a, b = (matrix(device, *each) for each in zip(values, turned, cut, strict=True))
            if dtype != "float32":
                a, b = (F.cast(x, dtype=dtype) for x in (a, b))
            results.append([(a @ b).numpy()])
            if dtype in ("float32", "float64", "int32"):
                results[-1].append(F.relu(a @ b + b[..., :1, :]).numpy())
        for got, want in zip(*results, strict=True):
            np.testing.assert_array_equal(got, want)
    assert printed.count >= 3
    assert printed.tensor_cores >= 1


@pytest.mark.parametrize(
    ("options", "channels"),
    [
        ({"padding": 1}, 5),
        ({"stride": 2, "dilation": 2, "padding": 3}, 5),
        ({"groups": 2, "padding": (0, 2)}, 8),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions_are_products(options, channels, dtype, monkeypatch):
    """And so are their gradients; those of 16-bit floats are for tensor cores."""
    printed = Printed(monkeypatch)
    x = rng.integers(-3, 4, (2, channels, 12, 9)).astype("float32")
    w = rng.integers(-3, 4, (34, channels // options.get("groups", 1), 3, 3)).astype("float32")
    results = []
    for device in ("gpu:0", "cpu:0"):
        inputs = [F.cast(wf.tensor(a, device=device), dtype=dtype) for a in (x, w, np.arange(34) / 4)]
        y, pull = wf.vjp(lambda *x: F.conv2d(*x, **options), *inputs)
        slope = wf.tensor(np.arange(y.size, dtype="float32").reshape(y.shape) % 5, device=device)
        results.append([y.numpy(), *(dx.numpy() for dx in pull(F.cast(slope, dtype=dtype)))])
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
    assert (printed.count if dtype == "float32" else printed.tensor_cores) >= 2


def train(device, is_traced):
    """Losses of some steps of a small network, its dropout included."""
    with wf.device(device):
        wf.random.seed(3, device=device)
        net = M.Sequential(
            M.Conv2d(1, 3, 3), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Dropout(0.2), M.Linear(27, 4)
        )
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        manager = wf.GradManager().attach(net.parameters())

        def step(images, labels):
            with manager:
                loss = F.cross_entropy(net(images), labels)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        step = wf.trace(step) if is_traced else step
        draws = np.random.default_rng(0)
        losses = []
        for _ in range(4):
            images = draws.standard_normal((5, 1, 8, 8)).astype("float32")
            losses.append(step(wf.tensor(images), wf.tensor(draws.integers(0, 4, 5))).item())
        return losses


def test_a_network_trains_as_on_the_processor():
    want = train("cpu:0", False)
    for is_traced in (False, True):
        np.testing.assert_allclose(train("gpu:0", is_traced), want, rtol=1e-5)
