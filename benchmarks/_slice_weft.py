"""weft's side of slice.py, and NumPy's sort."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _side import Sample, calls, clock, loop, serve

import weft as wf
import weft.functional as F
from weft import _core

draw = np.random.default_rng(0)


def ready(x: object) -> None:
    """Waits for a tensor, or the last of several."""
    if isinstance(x, tuple):
        x = x[-1]
    if isinstance(x, wf.Tensor):
        x.wait()


def normal(*shape: int) -> Callable[[], wf.Tensor]:
    return lambda: wf.tensor(draw.standard_normal(shape, dtype="float32"))


def row_numbers() -> wf.Tensor:
    return wf.tensor(draw.integers(0, 10000, 10000))


def on_hits(sample: Sample) -> Sample:
    """The sample, which must not plan anything: on a hit there is no Python beyond the call."""

    def checked() -> float:
        before = _core.operator_counters()["planner_calls"]
        seconds = sample()
        assert _core.operator_counters()["planner_calls"] == before, "a hit called the planner"
        return seconds

    return checked


def quick(statement: str):
    return lambda: on_hits(loop(statement, ready, a=wf.ones((4, 4)), b=wf.ones((4, 4))))


def recorded_add() -> Sample:
    a, b = wf.ones((4, 4)), wf.ones((4, 4))
    manager = wf.GradManager().attach([a])
    with manager:
        sample = loop("a + b", ready, a=a, b=b)

    def recorded() -> float:
        with manager:
            return sample()

    return on_hits(recorded)


def whole(function, *makers):
    """One call on random operands."""

    def prepare() -> Sample:
        operands = [make() for make in makers]
        return calls(lambda: function(*operands), ready)

    return prepare


def adam(count: int, size: int):
    from weft.ops import registry

    def prepare() -> Sample:
        update = registry.function("adam_update")
        shape = (size,)
        tensors = [
            wf.tensor(draw.standard_normal(shape, dtype="float32")) if role < 2 else wf.zeros(shape)
            for role in range(4)
            for _ in range(count)
        ]
        steps = itertools.count(1)
        return calls(lambda: update(0.001, next(steps), *tensors), ready)

    return prepare


def attention_gradient() -> Sample:
    q, k, v, dy = (normal(4, 12, 512, 64)() for _ in range(4))
    manager = wf.GradManager().attach([q, k, v])

    def run() -> tuple:
        q.grad = k.grad = v.grad = None
        with manager:
            manager.backward(F.scaled_dot_product_attention(q, k, v), dy)
        return q.grad, k.grad, v.grad

    return calls(run, lambda gradients: [x.wait() for x in gradients])


def mlp(update: bool):
    from weft.ops import registry

    def prepare() -> Sample:
        sizes = (784, 256, 128, 10)
        weights = []
        for n, m in itertools.pairwise(sizes):
            weights += [wf.tensor(draw.standard_normal((m, n), dtype="float32") / n**0.5), wf.zeros((m,))]
        state = [wf.zeros(w.shape) for w in weights + weights]
        manager = wf.GradManager().attach(weights)
        adam_update = registry.function("adam_update")
        steps = itertools.count(1)
        x, labels = normal(32, 784)(), wf.tensor(draw.integers(0, 10, 32))

        def run() -> None:
            for w in weights:
                w.grad = None
            with manager:
                h = x
                for k in range(0, len(weights), 2):
                    h = F.linear(h if k == 0 else F.relu(h), weights[k], weights[k + 1])
                manager.backward(F.cross_entropy(h, labels))
            if update:
                adam_update(0.001, next(steps), *weights, *(w.grad for w in weights), *state)

        return calls(run, lambda _: wf.waitall())

    return prepare


def sort_in_numpy() -> Sample:
    x = draw.standard_normal(MILLION, dtype="float32")
    return calls(lambda: np.sort(x), ready)


def matmul_of_onednn() -> Sample:
    n = 2048
    geometry = ("float32", (n, n), None)
    kernel = _core.onednn_matmul(geometry, geometry, geometry)
    a, b, c = normal(n, n)(), normal(n, n)(), wf.empty((n, n))
    return calls(lambda: _core.run_kernel(kernel, [a, b, c]), lambda _: c.wait())


# -- sizes never seen before --

fresh = itertools.count(65)


def over_a_hit(make: Callable[[int], list], run: Callable[[list], object], count: int = 100):
    """Seconds by which the call on a new size is longer than the same call again, on average of `count` sizes.

    Again: the best of three, so that what disturbs one of them does not look like a gain.
    """

    def prepare() -> Sample:
        run(make(next(fresh)))

        def sample() -> float:
            over = 0.0
            for operands in [make(next(fresh)) for _ in range(count)]:
                start = clock()
                ready(run(operands))
                over += clock() - start
                again = []
                for _ in range(3):
                    start = clock()
                    ready(run(operands))
                    again.append(clock() - start)
                over -= min(again)
            return over / count

        return sample

    return prepare


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growth(make: Callable[[int], list], run: Callable[[list], object], count: int = 10000):
    """Bytes by which the process has grown in the second half of so many new sizes."""

    def prepare() -> Sample:
        def sample() -> float:
            for turn in range(count):
                if turn == count // 2:
                    before = resident_bytes()
                ready(run(make(next(fresh))))
            return max(resident_bytes() - before, 0)

        return sample

    return prepare


def pair(n: int) -> list:
    return [wf.ones((n, 3)), wf.ones((n, 3))]


def add(x: list) -> object:
    return x[0] + x[1]


def product(x: list) -> object:
    return x[0].T @ x[1]


def image(n: int) -> list:
    """Channels last, as results of convolutions are; an image that is not is copied by one more primitive."""
    return [F.permute_dims(wf.ones((1, 8 + n % 100, 8 + n // 100 % 100, 8)), (0, 3, 1, 2))]


def convolution(x: list) -> object:
    return F.conv2d(x[0], window)


def plans_after(function_name: str, make: Callable[[int], list], run: Callable[[list], object], count: int):
    """The number of plans that a function keeps after so many new sizes."""

    def prepare() -> Sample:
        def sample() -> float:
            for _ in range(count):
                ready(run(make(next(fresh))))
            return _core.plan_count(getattr(F, function_name))

        return sample

    return prepare


MILLION = 1 << 20
square = normal(1024, 1024)
window = wf.ones((8, 8, 3, 3))
heads = [normal(4, 12, 512, 64)] * 3

CASES = {
    "a + b": quick("a + b"),
    "a + b, recorded": recorded_add,
    "a.reshape(2, 8)": quick("a.reshape(2, 8)"),
    "a[1:3]": quick("a[1:3]"),
    "a @ b": quick("a @ b"),
    "gelu, tanh": whole(lambda x: F.gelu(x, approximate="tanh"), normal(MILLION)),
    "softmax": whole(F.softmax, square),
    "layer_norm": whole(
        lambda x, w, b: F.layer_norm(x, 1024, w, b), square, lambda: wf.ones((1024,)), normal(1024)
    ),
    "transposed copy": whole(lambda x: x.T.contiguous(), normal(4096, 4096)),
    "sum": whole(lambda x: x.sum(), square),
    "sum, axis 0": whole(lambda x: x.sum(axis=0), square),
    "sum, axis 1": whole(lambda x: x.sum(axis=1), square),
    "Adam, 1 tensor": adam(1, 10_000_000),
    "Adam, 100 tensors": adam(100, 100_000),
    "sort": whole(F.sort, normal(MILLION)),
    "sort in NumPy": sort_in_numpy,
    "matmul 2048": whole(F.matmul, normal(2048, 2048), normal(2048, 2048)),
    "matmul 2048 of oneDNN": matmul_of_onednn,
    "take": whole(lambda table, rows: F.take(table, rows, axis=0), normal(10000, 512), row_numbers),
    "embedding": whole(F.embedding, row_numbers, normal(10000, 512)),
    "cumulative_sum": whole(F.cumulative_sum, normal(MILLION)),
    "topk": whole(lambda x: F.topk(x, 100), normal(MILLION)),
    "conv2d": whole(lambda x, w: F.conv2d(x, w, padding=1), normal(16, 64, 56, 56), normal(64, 64, 3, 3)),
    "attention": whole(F.scaled_dot_product_attention, *heads),
    "attention with gradients": attention_gradient,
    "MLP, forward and backward": mlp(update=False),
    "MLP, training step": mlp(update=True),
    "new size: a + b": over_a_hit(pair, add),
    "new size: sum, axis 1": over_a_hit(pair, lambda x: x[0].sum(axis=1)),
    "new size: reshape": over_a_hit(pair, lambda x: x[0].reshape(3, -1)),
    "new size: permute_dims": over_a_hit(pair, lambda x: F.permute_dims(x[0], (1, 0))),
    "new size: matmul": over_a_hit(pair, product, count=3),
    "new size: conv2d": over_a_hit(image, convolution, count=3),
    "growth: a + b": growth(pair, add),
    "growth: matmul": growth(pair, product),
    "growth: conv2d": growth(image, convolution),
    "plans: a + b": plans_after("add", pair, add, 10000),
    "plans: matmul": plans_after("matmul", pair, product, 3000),
    "plans: conv2d": plans_after("conv2d", image, convolution, 3000),
}

if __name__ == "__main__":
    serve(CASES)
