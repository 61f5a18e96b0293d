"""Training on parts of batches is training on whole batches; ends with 0 if so."""

import contextlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.distributed import collective

D = wf.distributed
r, n = D.rank(), D.world_size()
STEPS = 4
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((12 * n, 5)), rng.standard_normal((12 * n, 3))
part = slice(12 * r, 12 * r + 12)


def network(dtype="float64"):
    wf.random.seed(0)
    return M.Sequential(
        M.Linear(5, 8, dtype=dtype),
        M.Tanh(),
        M.Linear(8, 8, dtype=dtype),
        M.Tanh(),
        M.Linear(8, 3, dtype=dtype),
    )


def train(net, x, y, traced=False, pieces=1, callbacks=None, pause=contextlib.nullcontext):
    params = list(net.parameters())
    opt = optim.SGD(params, lr=0.1, momentum=0.9)
    gm = wf.GradManager().attach(params, callbacks=callbacks)
    xs, ys = np.split(x, pieces), np.split(y, pieces)

    def step(*arrays):
        total = 0
        for k in range(pieces):
            with pause() if k < pieces - 1 else contextlib.nullcontext(), gm:
                loss = F.mse_loss(net(arrays[k]), arrays[pieces + k]) * (1 / pieces)
                gm.backward(loss)
            total = total + loss
        opt.step().clear_grad()
        return total

    run = wf.trace(step, strict=True) if traced else step
    arrays = [wf.tensor(a) for a in (*xs, *ys)]
    losses = []
    for _ in range(STEPS):
        losses.append(run(*arrays))
    if traced:
        assert len(run.programs) == 1, run.programs
    return [D.all_reduce(loss, "mean").item() for loss in losses], [p.numpy() for p in params]


def check(found, expected, tolerance=1e-13):
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)


# programs give exchanges their own memory: what exchange_end gives is where exchange_start let it be made
moved, end_of = [], collective.ExchangeEnd.on_memory


def watched(step, inputs, outputs):
    moved.extend(x.ctypes.data != y.ctypes.data for x, y in zip(inputs[1:], outputs, strict=False))
    end_of(step, inputs, outputs)


collective.ExchangeEnd.on_memory = watched

whole = train(network(), X, Y)
for traced in (False, True):
    for size in (1, 300, 1 << 22):  # every gradient apart, some together, all together
        net = network()
        if r:
            for p in net.parameters():
                p[...] = 0  # rank 0's count
        parallel = D.DataParallel(net, bucket_bytes=size)
        check(train(parallel, X[part], Y[part], traced), whole)
        assert parallel.exchange.exchanges % (1 if traced else STEPS) == 0
    exchange = wf.kvstore.all_reduce(bucket_bytes=300)
    check(train(network(), X[part], Y[part], traced, callbacks=exchange), whole)
# Calls that a trace records run operator by operator, without a memory plan: the first, which leaves arrays of
# exchanges behind that might have been a state, and the second. The others are programs.
assert 2 * moved.count(False) == (STEPS - 2) * moved.count(True) > 0, moved
collective.ExchangeEnd.on_memory = end_of
parallel = D.DataParallel(network(), bucket_bytes=300)
check(train(parallel, X[part], Y[part], pieces=3, pause=parallel.no_sync), whole)
parallel = D.DataParallel(network(), bucket_bytes=300)
check(train(parallel, X[part], Y[part], pieces=3), whole)  # each piece exchanged: more bytes, the same sums

# buckets go off while backward runs, in the order in which gradients become final
order = []
net = network()
exchange = wf.kvstore.all_reduce(bucket_bytes=1)
close = exchange._close
exchange._close = lambda: (order.append(len(exchange._bucket)), close())[1]
events = []


class Probe(wf.Function):
    def forward(self, x):
        return x * 1

    def backward(self, dy):
        events.append(exchange.exchanges)
        return dy


gm = wf.GradManager().attach(net.parameters(), callbacks=exchange)
with gm:
    h = wf.tensor(X[part])
    for layer in net:
        h = Probe()(layer(h))
    gm.backward(h.sum())
assert events[0] == 0, events
assert events[-1] >= 4, events  # the first layer's gradients came with most of the others exchanged


# the store: dist_sync, with and without compression, against models in NumPy
def model(compress):
    """What all ranks' training comes to, with each rank's gradients computed by weft."""
    net = network("float32")
    params = list(net.parameters())
    gm = wf.GradManager().attach(params)
    w = [p.numpy().copy() for p in params]
    states = [[np.zeros(a.size, "float32") for a in w] for _ in range(n)]
    for _ in range(STEPS):
        for p, a in zip(params, w, strict=True):
            p[...] = a
        gradients = []
        for k in range(n):
            rows = slice(12 * k, 12 * k + 12)
            with gm:
                gm.backward(
                    F.mse_loss(
                        net(wf.tensor(X[rows].astype("float32"))), wf.tensor(Y[rows].astype("float32"))
                    )
                )
            gradients.append([p.grad.numpy().copy() for p in params])
            for p in params:
                p.grad = None
        for i, a in enumerate(w):
            summed = compress([g[i] for g in gradients], [s[i] for s in states])
            w[i] = a - np.float32(0.1) * summed.astype("float32")
    return w


def plain(gradients, states):
    return sum(gradients)


def two_bits(gradients, states):
    total = 0
    for g, s in zip(gradients, states, strict=True):
        s += g.reshape(-1)
        sent = np.where(s >= 0.05, np.float32(0.05), np.where(s <= -0.05, np.float32(-0.05), np.float32(0)))
        s -= sent
        total = total + sent.reshape(g.shape)
    return total


def greatest(gradients, states):
    total = 0
    for g, s in zip(gradients, states, strict=True):
        s += g.reshape(-1)
        chosen = np.argsort(-np.abs(s), kind="stable")[: max(1, -(-s.size // 10))]
        sent = np.zeros_like(s)
        sent[chosen] = s[chosen]
        s[chosen] = 0
        total = total + sent.reshape(g.shape)
    return total


def halves(gradients, states):
    return sum(g.astype("float16").astype("float32") for g in gradients).astype("float16")


COMPRESSIONS = [
    (None, plain),
    ({"type": "2bit", "threshold": 0.05}, two_bits),
    ({"type": "topk", "ratio": 0.1}, greatest),
    ({"type": "fp16"}, halves),
]
for parameters, compress in COMPRESSIONS:
    expected = model(compress)
    for traced in (False, True):
        net = network("float32")
        params = list(net.parameters())
        keys = list(range(len(params)))
        kv = wf.kvstore.create("dist_sync", bucket_bytes=300)
        assert (kv.rank, kv.num_workers) == (r, n)
        kv.init(keys, params)
        kv.set_optimizer(optim.SGD(params, lr=0.1))
        if parameters:
            kv.set_gradient_compression(parameters)
        gm = wf.GradManager().attach(params)

        def step(x, y, net=net, kv=kv, keys=keys, params=params, gm=gm):
            with gm:
                gm.backward(F.mse_loss(net(x), y))
            kv.push(keys, [p.grad for p in params])
            kv.pull(keys, params)
            for p in params:
                p.grad = None

        run = wf.trace(step, strict=True) if traced else step
        for _ in range(STEPS):
            run(wf.tensor(X[part].astype("float32")), wf.tensor(Y[part].astype("float32")))
        for p, a in zip(params, expected, strict=True):
            np.testing.assert_allclose(
                p.numpy(), a, rtol=2e-4, atol=2e-6, err_msg=f"{parameters} traced {traced}"
            )

# The same of exchanges with compression: what they keep of each gradient outlives the call that a trace records.
for parameters in ({"type": "2bit", "threshold": 0.05}, {"type": "topk", "ratio": 0.1}):
    found = []
    for traced, by_callback in ((False, False), (True, False), (True, True)):
        net = network("float32")
        exchange = wf.kvstore.all_reduce(compression=parameters, bucket_bytes=300) if by_callback else None
        parallel = net if by_callback else D.DataParallel(net, compression=parameters, bucket_bytes=300)
        data = (X[part].astype("float32"), Y[part].astype("float32"))
        found.append(train(parallel, *data, traced, callbacks=exchange))
    for each in found[1:]:
        check(each, found[0], 1e-5)

# rows
kv = wf.kvstore.create("dist_sync")
kv.init("e", wf.ones((10, 2)))
kv.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))
rows = [[0, 3], [3, 4, 4], [9]][r]
kv.push("e", wf.kvstore.RowSparse(rows, wf.full((len(rows), 2), 1.0 + r), (10, 2)))
model_rows = np.ones((10, 2), "float32")
for k in range(n):
    np.subtract.at(model_rows, [[0, 3], [3, 4, 4], [9]][k], 1.0 + k)
np.testing.assert_array_equal(kv.pull("e").numpy(), model_rows)


# hostile calls of a store
def fails(f, text):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many kinds
        (f(), wf.waitall())
    assert text in str(caught.value)


fails(lambda: kv.push("nix" if r == 0 else "e", wf.ones((10, 2))), "no key 'nix'")
kv = wf.kvstore.create("dist_sync")
kv.init("e", wf.ones((10, 2)))
fails(lambda: kv.push("e", wf.ones((10, 2) if r else (2, 10))), "has shape (10, 2), the value (2, 10)")
kv = wf.kvstore.create("dist_sync")
kv.init(["e", "f"], [wf.ones(3), wf.ones(3)])
fails(lambda: kv.push("f" if r else "e", wf.ones(3)) or kv.pull("f").numpy(), "push ['f']")
fails(lambda: kv.init("e", wf.ones(3)), "is initialised already")
kv.barrier()
print("right", r)
