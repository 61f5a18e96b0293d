"""Traced functions with dynamic axes: one graph, which takes no size for granted."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.base.errors import GraphError, ShapeError

from .running import executions


def attention(x, heads=2):
    batch, length, width = x.shape
    q = x.reshape(batch, length, heads, width // heads).permute_dims(axes=(0, 2, 1, 3))
    weights = F.softmax(q @ q.mT, axis=-1)
    return (weights @ q).permute_dims(axes=(0, 2, 1, 3)).reshape(batch * length, -1) / length


def test_one_graph_for_all_sizes():
    traced = wf.trace(attention, dynamic={"x": (0, 1)})
    rng = np.random.default_rng(0)
    with executions(attention.__code__) as count:
        for shape in ((2, 3, 4), (5, 7, 4), (4, 9, 4), (2, 3, 4)):
            x = wf.tensor(rng.standard_normal(shape, "float32"))
            y = traced(x)
            count[0] -= 1
            np.testing.assert_allclose(y.numpy(), attention(x).numpy(), rtol=1e-5, atol=1e-6)
    assert count[0] == 1
    assert len(traced.programs) == 1
    assert len(traced.programs[0].plans) == 3
    assert traced.memory_report()[0].arena_bytes > 0
    traced(wf.ones((3, 3, 4)))  # both are one symbol
    traced(wf.ones((1, 4, 4)))  # and 1 is none, since it is repeated
    assert len(traced.programs) == 3


def test_a_network_and_its_gradients():
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.Flatten(), M.Linear(64, 5))
    net.eval()
    traced = wf.trace(lambda x: net(x), dynamic={0: 0})
    for n in (2, 3, 6):
        x = wf.random.normal(0, 1, (n, 3, 4, 4))
        np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)
        found = wf.grad(lambda x: (traced(x) ** 2).sum())(x)
        np.testing.assert_allclose(
            found.numpy(), wf.grad(lambda x: (net(x) ** 2).sum())(x).numpy(), rtol=1e-3, atol=1e-4
        )
    net[4].weight[...] = 0  # captured
    np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)
    assert len(traced.programs) == 1


def test_what_calls_depend_on():
    scale = 2.0

    def run(d, y, s, n=1):
        return {
            "sum": d["x"] + y * s * n * scale,
            "given": y,
            "sizes": (d["x"].shape[0] * 2 + 1, d["x"].ndim),
        }

    traced = wf.trace(run, dynamic={"d": 0, "y": -2})
    for n in (2, 5):
        x, y = wf.ones((n, 3)), wf.ones((3, n)).T
        for s in (0.5, 2.5):
            made = traced({"x": x}, y, s)
            assert made["given"] is y
            assert made["sizes"] == (2 * n + 1, 2)
            assert made["sum"].numpy().tolist() == [[1 + 2 * s] * 3] * n
    assert len(traced.programs) == 1
    assert traced({"x": x}, y, 1.0, n=3)["sum"][0, 0].item() == 7.0
    assert traced({"x": x}, wf.ones((1, 3)), 1.0)["sum"][0, 0].item() == 3.0
    assert len(traced.programs) == 3
    scale = 3.0
    assert traced({"x": x}, y, 1.0)["sum"][0, 0].item() == 4.0
    assert len(traced.programs) == 4


def keeps(x):
    net.h = x.sum()
    return x


def hands_out(x):
    return map(abs, x)


net = M.Linear(2, 2)
W = wf.ones(3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x for _ in range(x.shape[0])],
        lambda x: x * [1, 2, 3, 4, 5][x.shape[0]],
        lambda x: x * {4: 1.0}[x.shape[0]],
        lambda x: optim.lr_scheduler.StepLR(optim.SGD([W], lr=1.0), 1).step(),
        lambda x: x * float(x.shape[0]),
        lambda x: x * (x.shape[0] in {4, 5}),
        lambda x: (x, x.shape[0] * 0.5),
        keeps,
        hands_out,
        lambda x: x / len(x),
        lambda x: x.shape[0] / 2,
        lambda x: x * (1 / x.shape[0]),
        lambda x: x / x.shape[0] ** 0.5,
        lambda x: x * wf.tensor(x.shape[0]),
    ],
)
def test_what_would_be_frozen_is_refused(function):
    traced = wf.trace(function, dynamic={0: 0})
    before = W.numpy().copy()
    x = wf.ones((4, 3))
    for _ in range(2):
        with pytest.raises(GraphError, match="dynamic axes"):
            traced(x)
    assert not traced.programs
    assert W.numpy().tolist() == before.tolist()
    assert x.numpy().tolist() == [[1.0] * 3] * 4
    assert wf.trace(lambda x: x * 2, strict=True)(x)[0, 0].item() == 2.0  # and all goes on


TABLE = wf.tensor(np.random.default_rng(3).standard_normal((64, 8), dtype="float32"))


@pytest.mark.parametrize(
    ("function", "graphs"),
    [
        (lambda x: x + TABLE[: x.shape[0]], 1),
        (lambda x: x + wf.take(TABLE, wf.arange(x.shape[0]), axis=0), 1),
        (lambda x: x[: x.shape[0] // 2] * 2, 1),
        (lambda x: x[x.shape[0] // 2], 1),
        (lambda x: x[::2], 1),
        (lambda x: F.topk(x[:, 0], 3)[0], 1),
        (lambda x: x * (x.shape[0] % 2), 1),
        (lambda x: x if x.shape[0] > 5 else -x, 2),
        (lambda x: x[2:] + x[:-2], 2),
        (lambda x: x * max(x.shape[0] - 4, 1), 2),
        (lambda x: wf.zeros((x.shape[0] * 2 - 1, 3)) + wf.full((x.shape[0] * 2 - 1, 1), 0.5), 1),
        (lambda x: wf.eye(x.shape[0]) @ x + wf.eye(x.shape[0], 8, k=1), 1),
        (lambda x: x + wf.arange(1, 2 * x.shape[0], 2)[:, None], 1),
        (lambda x: x + wf.arange(x.shape[0], 0, -1, dtype="float32")[:, None], 1),
        (lambda x: wf.arange(x.shape[0], 2 * x.shape[0]), 1),
        (lambda x: wf.stack([-row for row in x]), 5),
    ],
    ids=[
        "slice of a table",
        "arange",
        "half",
        "row in the middle",
        "every other row",
        "topk",
        "parity",
        "branch",
        "window",
        "max",
        "zeros and full",
        "eye",
        "odd numbers",
        "down",
        "between sizes",
        "loop over rows",
    ],
)
def test_sizes_that_are_compared_are_guards(function, graphs):
    traced = wf.trace(function, dynamic={0: 0})
    for size in (7, 3, 5, 2, 12, 7, 3):
        x = wf.tensor(np.random.default_rng(size).standard_normal((size, 8), dtype="float32"))
        try:
            expected = function(x)
        except ShapeError:
            with pytest.raises(ShapeError):
                traced(x)
            continue
        assert np.array_equal(traced(x).numpy(), expected.numpy()), size
    assert len(traced.programs) == graphs


def test_what_fits_one_size_only_raises_for_others():
    traced = wf.trace(lambda x: F.cross_entropy(x, wf.zeros(4, dtype="int64")), dynamic={0: 0})
    assert traced(wf.ones((4, 3))).shape == ()
    with pytest.raises(ShapeError) as caught:
        traced(wf.ones((5, 3)))
    assert "d0 = 5" in caught.value.__notes__[-1]


def rotated(x):
    """Rotary positions (Su et al. 2021), of pairs of channels that are half of all apart."""
    half = x.shape[-1] // 2
    frequencies = 100.0 ** (wf.arange(half) / -half)
    angles = wf.arange(x.shape[-2])[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return wf.concat([a * F.cos(angles) - b * F.sin(angles), a * F.sin(angles) + b * F.cos(angles)], axis=-1)


def language_model_loss(ids, embedding, positions, qkv, out, kind):
    batch, length = ids.shape
    if length > positions.shape[0]:
        raise ValueError(f"{length} tokens are more than {positions.shape[0]}")
    x = wf.take(embedding, ids.reshape(-1), axis=0).reshape(batch, length, 8)
    if kind == "learned":
        x = x + positions[:length]
    if kind == "taken":
        x = x + wf.take(positions, wf.arange(length), axis=0)
    parts = ((x @ qkv)[..., 8 * k : 8 * k + 8].reshape(batch, length, 2, 4) for k in range(3))
    q, k, v = (wf.permute_dims(y, (0, 2, 1, 3)) for y in parts)
    if kind == "rotary":
        q, k = rotated(q), rotated(k)
    if kind == "taken":
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        mask = (
            wf.tril(wf.ones((length, length))) > 0
            if kind == "rotary"
            else wf.arange(length)[:, None] >= wf.arange(length)
        )
        y = F.softmax(F.where(mask, q @ k.mT / 2.0, -1e9), axis=-1) @ v
    x = x + wf.permute_dims(y, (0, 2, 1, 3)).reshape(batch, length, 8) @ out
    logits = x @ embedding.T
    return F.cross_entropy(logits.reshape(-1, 16), ids.reshape(-1))


@pytest.mark.parametrize("kind", ["learned", "taken", "rotary"])
def test_a_transformer_for_all_lengths(kind):
    drawn = np.random.default_rng(1)
    weights = [
        wf.tensor(0.3 * drawn.standard_normal(s, dtype="float32"))
        for s in [(16, 8), (64, 8), (8, 24), (8, 8)]
    ]

    def step(ids, *weights):
        def loss(*w):
            return language_model_loss(ids, *w, kind)

        return wf.value_and_grad(loss, argnums=(0, 1, 2, 3) if kind != "rotary" else (0, 2, 3))(*weights)

    traced = wf.trace(step, dynamic={"ids": 1})
    for length in (2, 64, 1, 3, 33, 5):
        ids = wf.tensor(drawn.integers(0, 16, (2, length)))
        (loss, gradients), (expected, others) = traced(ids, *weights), step(ids, *weights)
        np.testing.assert_allclose(loss.numpy(), expected.numpy(), rtol=1e-5)
        for a, b in zip(gradients, others, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)
    assert len(traced.programs) == 2  # a length of 1 broadcasts
    if kind == "learned":
        with pytest.raises(ValueError, match="more than 64"):
            traced(wf.zeros((2, 65), "int64"), *weights)


def test_what_values_do_not_have():
    with pytest.raises(TypeError) as caught:
        wf.trace(lambda x: np.asarray(x).sum(), dynamic={0: 0})(wf.ones((4, 3)))
    assert "written down on symbols, with dynamic axes" in caught.value.__notes__[0]


def test_arithmetic_with_sizes():
    traced = wf.trace(
        lambda x: (x.shape[0] * x, x - x.size, (x.size // x.shape[0], -x.shape[0])), dynamic={0: 0}
    )
    for n in (2, 7):
        x = wf.ones((n, 3))
        y, z, numbers = traced(x)
        assert (y[0, 0].item(), z[0, 0].item(), numbers) == (n, 1 - 3 * n, (3, -n))
        assert all(type(k) is int for k in numbers)
    assert len(traced.programs) == 1


def test_wrong_axes():
    def run(x, n):
        return x * n

    with pytest.raises(TypeError, match=r"run has no argument 'y'; it has x, n"):
        wf.trace(run, dynamic={"y": 0})
    with pytest.raises(TypeError, match=r"run has no argument 2"):
        wf.trace(run, dynamic={2: 0})
    with pytest.raises(TypeError, match="axes of 'x' must be integers"):
        wf.trace(run, dynamic={"x": "01"})
    with pytest.raises(ShapeError, match=r"axis 2 is out of range: x is f32\[4,3\]"):
        wf.trace(run, dynamic={"x": 2})(wf.ones((4, 3)), 1)
    with pytest.raises(TypeError, match="n must be an array"):
        wf.trace(run, dynamic={"n": 0})(wf.ones((4, 3)), 1)


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr("weft.traces.dynamic.SIZES", 2)
    traced = wf.trace(lambda x: x + 1, dynamic={0: 0})
    for n in (2, 3, 4, 2, 3):
        assert traced(wf.zeros(n)).numpy().tolist() == [1.0] * n
    assert len(traced.programs) == 1
    assert len(traced.programs[0].plans) == 2


def test_eight_threads(in_threads):
    traced = wf.trace(attention, dynamic={0: (0, 1)})
    arrays = [wf.random.normal(0, 1, (2 + k, 11, 4)) for k in range(8)]
    wanted = [attention(x).numpy() for x in arrays]

    def work(k):
        for n in range(6):
            i = (k + n) % 8
            np.testing.assert_allclose(traced(arrays[i]).numpy(), wanted[i], rtol=1e-5, atol=1e-6)

    in_threads(work, range(8))
    assert len(traced.programs) == 1


def test_floats_are_numbers_that_are_computed_again():
    """As in other traces: arithmetic is done at each call, what Python looks at decides, results are numbers."""

    def run(x, rate):
        big = rate * 2 > 3.0
        return (
            x * (rate / 2) if big else x + rate,
            rate * rate,
            wf.full((2,), rate),
            wf.zeros(2),
            wf.tensor(rate),
        )

    traced = wf.trace(run, dynamic={0: 0})
    for rate in (0.5, 0.25, 2.0, 3.0, 0.5):
        for n in (2, 5):
            mine, theirs = traced(wf.ones(n), rate), run(wf.ones(n), rate)
            assert mine[1] == theirs[1]
            assert type(mine[1]) is float
            for a, b in zip((mine[0], *mine[2:]), (theirs[0], *theirs[2:]), strict=True):
                assert a.numpy().tolist() == b.numpy().tolist()


def test_results_that_the_function_makes_are_new_at_each_call():
    traced = wf.trace(lambda x: (wf.zeros(3), x * 2), dynamic={0: 0})
    first, second = traced(wf.ones(2))[0], traced(wf.ones(2))[0]
    first += 1
    assert second.numpy().tolist() == [0, 0, 0] == traced(wf.ones(3))[0].numpy().tolist()


class Counts:
    def __init__(self):
        self.count = 0


def test_attributes_that_are_changed_once():
    """A call that changes what it depends on is not repeated as a program; the next one is."""
    seen = Counts()

    def run(x):
        if seen.count == 0:
            seen.count = 1
        return x * seen.count

    traced = wf.trace(run, dynamic={0: 0})
    assert [traced(wf.ones(n)).sum().item() for n in (2, 2, 3, 4)] == [2, 2, 3, 4]
    assert len(traced.programs) == 1


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
def test_attributes_that_each_call_changes():
    seen = Counts()

    def run(x):
        seen.count += 1
        return x * seen.count

    traced = wf.trace(run, dynamic={0: 0})
    assert [traced(wf.ones(n))[0].item() for n in (2, 2, 3, 2, 2, 3, 3)] == [1, 2, 3, 4, 5, 6, 7]


def test_arguments_that_share_memory():
    def run(x, y):
        x += 1
        y *= 2
        return x + y

    def called(function, n, same):
        x = wf.ones((n, 3))
        y = x if same else x * 3
        return [function(x, y).numpy().tolist(), x.numpy().tolist(), y.numpy().tolist()]

    traced = wf.trace(run, dynamic={0: 0, 1: 0})
    for n in (2, 4, 4):
        for same in (True, False):
            assert called(traced, n, same) == called(run, n, same)
    x = wf.ones((4, 3))
    with pytest.raises(
        GraphError, match="an argument is written whose memory is used under another name, too"
    ):
        traced(x[1:], x[:-1])
    assert x.numpy().tolist() == [[1.0] * 3] * 4


def test_reshapes_of_an_argument_with_strides():
    """Whether it is a copy is not known where sizes are not: reading is fine, and an error where it is written."""

    def run(x):
        return x.reshape(-1) * 2

    def writes(x):
        row = x.reshape(-1)
        row += 1
        return x * 1

    x = wf.ones((3, 4)).T
    assert wf.trace(run, dynamic={0: 0})(x).numpy().tolist() == [2.0] * 12
    with pytest.raises(GraphError, match="a reshape of another one, a view or a copy"):
        wf.trace(writes, dynamic={0: 0})(x)
    traced = wf.trace(writes, dynamic={0: 0})
    for n in (2, 5):
        assert traced(wf.ones((n, 3))).numpy().tolist() == writes(wf.ones((n, 3))).numpy().tolist()
