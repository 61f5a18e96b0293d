"""Collectives, their gradients, and what happens when ranks differ; ends with 0 if all is right."""

import numpy as np
import pytest

import weft as wf
from weft.distributed import transport

D = wf.distributed
r, n = D.rank(), D.world_size()


def values(rank, shape=(n, 2), dtype="float32"):
    return (np.arange(np.prod(shape)).reshape(shape) + 10 * rank).astype(dtype)


def raises(f, *texts):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many kinds
        f()
    for text in texts:
        assert text in str(caught.value)


every = [values(k) for k in range(n)]
x = wf.tensor(values(r))
same = np.testing.assert_array_equal

# values
for dtype in ("float64", "float32", "int64", "int8", "uint16"):
    t = wf.tensor(values(r, dtype=dtype))
    same(D.all_reduce(t).numpy(), sum(values(k, dtype=dtype) for k in range(n)))
    same(D.all_reduce(t, "max").numpy(), values(n - 1, dtype=dtype))
    same(D.all_reduce(t, "min").numpy(), values(0, dtype=dtype))
for dtype in ("float16", "bfloat16"):
    t = wf.tensor(values(r)).astype(dtype)
    assert D.all_reduce(t).dtype is t.dtype
    same(D.all_reduce(t).astype("float32").numpy(), sum(every))
    same(D.reduce_scatter(t).astype("float32").numpy(), sum(every)[r : r + 1])
same(D.all_reduce(x, "prod").numpy(), np.prod(every, 0))
np.testing.assert_allclose(D.all_reduce(x, "mean").numpy(), np.mean(every, 0), rtol=1e-6)
same(D.all_gather(x).numpy(), np.concatenate(every))
same(D.reduce_scatter(x).numpy(), sum(every)[r : r + 1])
same(D.broadcast(x, root=n - 1).numpy(), every[n - 1])
same(D.all_to_all(x).numpy(), np.concatenate([e[r : r + 1] for e in every]))
same(D.all_reduce(x.T[::-1]).numpy(), sum(every).T[::-1])  # any strides
same(D.all_reduce(wf.zeros((0, 3))).numpy(), np.zeros((0, 3)))
same(D.all_reduce(wf.tensor(2.0)).numpy(), 2.0 * n)
same(D.all_gather(x > 12).numpy(), np.concatenate(every) > 12)

# arrays that are reduced in pieces, of sizes that no number of pieces divides
transport.PART_BYTES = 1 << 12
for size in (10_003, 3_001):
    long = (np.arange(size) % 1000).astype("float32")
    t = wf.tensor(long + r)
    same(D.all_reduce(t).numpy(), n * long + sum(range(n)))
    np.testing.assert_allclose(D.all_reduce(t, "mean").numpy(), long + (n - 1) / 2, rtol=1e-6)
    same(D.all_reduce(wf.tensor(long % 8).astype("float16")).astype("float32").numpy(), n * (long % 8))

# gradients: of the sum over ranks of w_r . f(x_0, ...)_r, against NumPy
w = [np.cos(np.arange(2 * n * n).reshape(n * n, 2) + k).astype("float32") for k in range(n)]


def slope(f, rows):
    return wf.grad(lambda t: (f(t) * wf.tensor(w[r][:rows])).sum())(x).numpy()


np.testing.assert_allclose(slope(D.all_reduce, n), sum(k[:n] for k in w), rtol=1e-5)
np.testing.assert_allclose(slope(lambda t: D.all_reduce(t, "mean"), n), sum(k[:n] for k in w) / n, rtol=1e-5)
np.testing.assert_allclose(
    slope(lambda t: D.all_reduce(t, "max"), n), sum(k[:n] for k in w) * (r == n - 1), rtol=1e-5
)
np.testing.assert_allclose(slope(D.all_gather, n * n), sum(k[n * r : n * r + n] for k in w), rtol=1e-5)
np.testing.assert_allclose(slope(D.reduce_scatter, 1), np.concatenate([k[:1] for k in w]), rtol=1e-6)
np.testing.assert_allclose(slope(lambda t: D.broadcast(t, 1), n), sum(k[:n] for k in w) * (r == 1), rtol=1e-5)
np.testing.assert_allclose(slope(D.all_to_all, n), np.concatenate([k[r : r + 1] for k in w]), rtol=1e-6)

# two ranks; large messages in both directions at once must not wait for each other
big = wf.full(300_000, float(r))
right, left = (r + 1) % n, (r - 1) % n
sent = D.send(big, to=right)
same(D.recv(wf.zeros(300_000), source=left).numpy(), np.full(300_000, left, "float32"))
assert sent.item() == 0
gm = wf.GradManager().attach([x])
with gm:
    if r == 0:
        loss = D.send(x * 2, to=1).sum()
    elif r == 1:
        loss = (D.recv(x, source=0) ** 2).sum()
    else:
        loss = x.sum() * 0
    gm.backward(loss)
if r == 0:
    same(x.grad.numpy(), 2 * 2 * 2 * every[0])


# in one program, with what lies between
@wf.trace(strict=True)
def traced(t):
    a = D.all_reduce(t * 2)
    b = D.all_gather(t + 1)
    return a + 1, b, D.reduce_scatter(a)


for _ in range(3):
    a, b, c = traced(x)
    same(a.numpy(), 2 * sum(every) + 1)
    same(b.numpy(), np.concatenate(every) + 1)
    same(c.numpy(), 2 * n * sum(every)[r : r + 1])
assert len(traced.programs) == 1

# ranks that differ: an error on every rank, which says what each meant and where; the next exchange is right again
here = "collectives.py:"
raises(lambda: D.all_reduce(wf.zeros(3 + r)).numpy(), "ranks disagree", "float32[3]", "float32[4]", here)
raises(
    lambda: D.all_reduce(wf.zeros(3, dtype=("float32", "float64", "int8")[r])).numpy(),
    "float32[3]",
    "float64[3]",
)
raises(
    lambda: (D.all_reduce(x) if r else D.broadcast(x)).numpy(),
    "rank 0: broadcast from 0",
    "rank 1: all_reduce",
)
raises(lambda: D.all_reduce(x, "max" if r else "sum").numpy(), "all_reduce sum", "all_reduce max")
raises(lambda: D.broadcast(x, root=min(r, 1)).numpy(), "broadcast from 0", "broadcast from 1")
raises((lambda: D.barrier()) if r else (lambda: D.all_gather(x).numpy()), "barrier", "all_gather")
bad = wf.zeros(3)
if r == 0:

    def fail(_):
        raise ValueError("lost data")

    wf.engine.default_engine().push(fail, mutate_vars=[bad], name="load")
raises(lambda: D.all_reduce(bad).numpy(), "lost data")
if r < 2:
    other = 1 - r
    raises(
        lambda: D.send(wf.zeros(4), to=1).numpy() if r == 0 else D.recv(wf.zeros(5), source=0).numpy(),
        "float32[4]",
        "float32[5]",
    )
same(D.all_reduce(x).numpy(), sum(every))
for wrong in (lambda: D.broadcast(x, root=n), lambda: D.send(x, to=r), lambda: D.all_reduce(x, "median")):
    raises(wrong)
raises(lambda: D.reduce_scatter(wf.zeros(n + 1)), "is not a multiple of")
raises(lambda: D.all_reduce(wf.zeros(2) > 0), "takes numbers, got bool")
D.barrier()
print("right", r)
