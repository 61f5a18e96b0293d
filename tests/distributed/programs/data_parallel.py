"""Training on parts of batches is training on whole batches; ends with 0 if so."""

import contextlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.distributed import collective, gradients, transport
from weft.kvstore import synchronous

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

# large values, which are received where they are stored and pulled to; with small ones between them
kv = wf.kvstore.create("dist_sync", bucket_bytes=40_000)
transport.PART_BYTES = gradients.PART_BYTES = 1 << 12
synchronous.DIRECT_BYTES = 0
sizes = [7_001, 3, 15_000, 5, 200]
firsts = [wf.zeros(size) for size in sizes]
kv.init([f"l{k}" for k in range(5)], firsts)
for step in range(3):
    for priority in (0, 3):
        values = [wf.full(size, float(r + step + k)) for k, size in enumerate(sizes)]
        outs = values if step == 1 else [wf.zeros(size) for size in sizes]
        kv.pushpull([f"l{k}" for k in range(5)], values, out=outs, priority=priority)
    for k, y in enumerate(outs):
        expected = n * (step + k) + sum(range(n))
        assert set(y.numpy().tolist()) == {expected}, (step, k)
        y[...] = -1  # is no concern of the store
        assert set(kv.pull(f"l{k}").numpy().tolist()) == {expected}, (step, k)
    single = wf.zeros(sizes[2])
    kv.pushpull("l2", wf.full(sizes[2], float(r)), out=single)
    assert set(single.numpy().tolist()) == {sum(range(n))}

# buckets of several pieces, in stores and in backward
parts = [wf.full(size, float(r)) for size in (4_000, 7, 3_500, 8_001)]
kv = wf.kvstore.create("dist_sync", bucket_bytes=160_000)
kv.init(keys := list(range(4)), parts)
kv.push(keys, parts)
for x, total in zip(parts, kv.pull(keys), strict=True):
    assert total.shape == x.shape
    assert set(total.numpy().tolist()) == {sum(range(n))}
for size in (transport.COMPUTING_BYTES, 1 << 10):
    gradients.COMPUTING_BYTES = transport.COMPUTING_BYTES = size
    exchange = wf.kvstore.all_reduce(bucket_bytes=60_000)
    for x in parts:
        exchange(x, x)
    for x, dx in exchange.finish():
        assert dx.shape == x.shape
        assert set(dx.numpy().tolist()) == {(n - 1) / 2}

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
store = wf.kvstore.create("dist_sync")
store.init(["c", "d"], [wf.ones((4, 2)), wf.ones((4, 2))])
row = wf.kvstore.RowSparse([1], wf.ones((1, 2)), (4, 2))
fails(lambda: store.push("c" if r else "d", row), "push 'd' numbers of rows")
if r == 0:
    store.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))
fails(lambda: store.push("c", wf.ones((4, 2))) or store.pull("c").numpy(), "rank 0: push ['c'] by SGD sum")
# updates that are left out are not silent: what is pulled behind them, and the next backward, raise the error
store = wf.kvstore.create("dist_sync")
store.init(["c", "d"], [wf.ones(3), wf.ones(3)])
store.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))
for key in "cd" if r else "dc":
    store.push(key, wf.ones(3))
for key in "cd":
    fails(lambda key=key: store.pull(key).numpy(), "ranks disagree")
store.push(["c", "d"], [wf.ones(3), wf.ones(3)])
assert [x.numpy().tolist() for x in store.pull(["c", "d"])] == [[1.0 - n] * 3] * 2


def lose(_):
    raise ValueError("lost data")


for sharded in (False, True):
    layer = M.Linear(2, 2)
    params = list(layer.parameters())
    opt = (
        D.ShardedOptimizer(optim.SGD, params, lr=0.1)
        if sharded
        else optim.SGD(D.DataParallel(layer).parameters(), lr=0.1)
    )
    gm = wf.GradManager().attach(params)

    def step(x, layer=layer, gm=gm, opt=opt):
        with gm:
            gm.backward(layer(x).sum())
        opt.step().clear_grad()

    step(wf.ones((1, 2)))
    before = [p.numpy().copy() for p in params]
    bad = wf.ones((1, 2))
    if r == 0:
        wf.engine.default_engine().push(lose, mutate_vars=[bad], name="load")
    step(bad)
    with contextlib.suppress(wf.EngineError, wf.EngineErrorGroup):
        wf.waitall()
    D.barrier()
    for p, a in zip(params, before, strict=True):
        np.testing.assert_array_equal(p.numpy(), a)
    fails(lambda step=step: step(wf.ones((1, 2))), "lost data")
    step(wf.ones((1, 2)))
    D.barrier()
    assert any((p.numpy() != a).any() for p, a in zip(params, before, strict=True))
kv.init("g", wf.ones(2_000))
out = wf.broadcast_to(wf.ones(1), (2_000,)) if r == 0 else wf.ones(2_000)
fails(
    lambda: kv.pushpull("g", wf.ones(2_000), out=out).numpy(),
    "several indices of x refer to the same element",
)
with pytest.raises(wf.EngineError, match=r"ranks disagree|could not take part"):
    kv.barrier()  # no push of these keys has come since theirs failed
kv.push(["e", "f", "g"], [wf.ones(3), wf.ones(3), wf.ones(2_000)])
kv.barrier()
print("right", r)
