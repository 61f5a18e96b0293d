"""Loops of different lengths on the ranks: steps are those of one process with the batches that are there."""

import contextlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.distributed import world

D = wf.distributed
r, n = D.rank(), D.world_size()
rng = np.random.default_rng(0)
ROWS = 4
X, Y = rng.standard_normal((6, n, ROWS, 5)), rng.standard_normal((6, n, ROWS, 3))


def network(norm=None):
    wf.random.seed(0)
    first = [M.Linear(5, 8, bias=norm is None, dtype="float64")]  # else its gradient is noise
    if norm is not None:
        first.append(norm(8, dtype="float64"))
    return M.Sequential(*first, M.Tanh(), M.Linear(8, 3, dtype="float64"))


def trained(net, batches, make, mode, scope=None):
    """Losses; every parameter, buffer and the optimizer's state afterwards."""
    params = list(net.parameters())
    opt = make(params)
    gm = wf.GradManager().attach(params)

    def step(x, y):
        with gm:
            loss = F.mse_loss(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = {
        "eager": step,
        "traced": wf.trace(step),
        "dynamic": wf.trace(step, dynamic={"x": {0: "b"}, "y": {0: "b"}}),
    }[mode]
    losses = []
    with contextlib.nullcontext() if scope is None else scope(net, opt):
        for x, y in batches:
            losses.append(run(wf.tensor(x), wf.tensor(y)))
    state = {**net.state_dict(), **opt.state_dict()["state"]}
    return [x.item() for x in losses], {k.removeprefix("module."): np.asarray(v) for k, v in state.items()}


def same(found, expected):
    assert found.keys() == expected.keys()
    for k, x in expected.items():
        np.testing.assert_allclose(found[k], x, rtol=1e-12, atol=1e-13, err_msg=k)


def momentum(params):
    return optim.SGD(params, lr=0.1, momentum=0.9)


def adam(params):
    return optim.Adam(params, lr=0.01)


# Which ranks have how many batches; one process has, in each step, the batches that are there.
for counts in ([1, 3, 5, 3][:n], [4, 0, 2, 4][:n], [2] * n, [0] * n):
    for make, mode in ((momentum, "eager"), (adam, "traced"), (adam, "dynamic")):
        for norm, norm_of_whole in ((None, None), (D.SyncBatchNorm, M.BatchNorm1d)):
            present = [[k for k in range(n) if counts[k] > t] for t in range(max(counts))]
            whole = [(np.concatenate(X[t, ks]), np.concatenate(Y[t, ks])) for t, ks in enumerate(present)]
            _, expected = trained(network(norm_of_whole), whole, make, "eager")
            batches = [(X[t, r], Y[t, r]) for t in range(counts[r])]
            _, found = trained(D.DataParallel(network(norm)), batches, make, mode, D.join)
            same(found, expected)
            assert D.all_reduce(wf.tensor([1.0 + r]), "max").item() == n  # and all are in step

# Each collective, by the ranks that are there alone.
ops = {
    "sum": sum,
    "mean": lambda xs: sum(xs) / len(xs),
    "max": max,
    "min": min,
    "prod": lambda xs: np.prod(xs),
}
with D.join():
    for t in range(1 + r):
        there = list(range(t, n))
        for op, reduced in ops.items():
            for dtype in ("float32", "float64", "bfloat16", "int64", "uint8"):
                if op == "mean" and dtype in ("int64", "uint8"):
                    continue
                y = D.all_reduce(wf.tensor([r + 1, r + 2], dtype=dtype), op)
                assert y.astype("float64").numpy().tolist() == [
                    reduced([k + j for k in there]) for j in (1, 2)
                ], (op, dtype)
        gathered = [float(k + 1) if k in there else 0.0 for k in range(n)]
        assert D.all_gather(wf.tensor([r + 1.0])).numpy().tolist() == gathered
        assert D.all_to_all(wf.full(n, r + 1.0)).numpy().tolist() == gathered
        assert D.reduce_scatter(wf.ones(n)).numpy().tolist() == [len(there)]
        assert D.broadcast(wf.tensor([r]), n - 1).item() == n - 1
        assert D.all_reduce(wf.zeros((0, 3))).shape == (0, 3)
        assert D.all_reduce(wf.tensor(2.0)).item() == 2 * len(there)
        large = D.all_reduce(wf.ones(1 << 20), "mean")  # in pieces
        assert large.numpy().min() == large.numpy().max() == 1
        D.barrier()

# What fails in the loop is an error there, and the next one works.
with D.join():
    for t in range(2 * r):
        index = wf.tensor([0, 99 if t == 0 and r == n - 1 else 1])
        y = D.all_reduce(wf.arange(3)[index])
        if t == 0:
            with pytest.raises((wf.EngineError, IndexError)):
                y.numpy()
        else:
            assert y.numpy().tolist() == [0, sum(2 * k > t for k in range(n))]

w = wf.ones(3)
# Where all must be there, all get an error, and are in step afterwards.
kv = wf.kvstore.create("dist_sync")
kv.init("a", wf.zeros(3))
net = M.Linear(3, 1)
sharded = D.ShardedOptimizer(optim.SGD, net.parameters(), lr=0.1)
managed = wf.GradManager().attach(net.parameters())
packed = wf.GradManager().attach(
    [w], callbacks=wf.kvstore.all_reduce(compression={"type": "2bit", "threshold": 0.5})
)


def pushed():
    kv.push("a", wf.ones(3))
    kv.pull("a").numpy()


def updated():
    with managed:
        managed.backward(net(wf.ones((2, 3))).sum())
    sharded.shards[0].grad.numpy()


def compressed():
    with packed:
        packed.backward((w * w).sum())
    w.grad.numpy()


def left_by_others(action):
    with D.join():
        if r == n - 1:
            action()
            wf.waitall()


for action, reason in (
    (pushed, "push zeros"),
    (updated, "each rank updates a part"),
    (compressed, "compression leaves out"),
    (lambda: D.broadcast(wf.tensor([1.0]), 0).numpy(), "that of rank 0"),
    (lambda: kv.init("b", wf.zeros(1)), "all ranks receive it"),
):
    with pytest.raises((D.DistributedError, wf.EngineError), match="collective") as caught:
        left_by_others(action)
    assert reason in str(caught.value) or r < n - 1, caught.value
    assert D.all_reduce(wf.tensor([1.0])).item() == n
    with contextlib.suppress(Exception):
        wf.waitall()
    world.world().failures.clear()  # else the next backward raises them again


# What the loop raises comes out at once; the others are told when the rank does something else.
def interrupted():
    raise KeyError("batch")


with pytest.raises((KeyError, D.DistributedError)):
    left_by_others(interrupted)
if r == n - 1:
    with pytest.raises(wf.EngineError, match="left the loop"):
        D.broadcast(wf.tensor([1.0]), 0).numpy()
D.barrier()

with pytest.raises(TypeError, match="join: int has no state_dict"), D.join(3):
    pass
world.world().failures.clear()
print("right")
