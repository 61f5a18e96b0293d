"""What is synchronized, divided or written once; ends with 0 if all is right."""

import math
import sys

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.data import RandomSampler, SequentialSampler

D = wf.distributed
r, n = D.rank(), D.world_size()
folder = sys.argv[1]
rng = np.random.default_rng(0)
SIZES = [3, 5, 4][:n]  # of the ranks' batches
begin = sum(SIZES[:r])
part = slice(begin, begin + SIZES[r])
close = lambda a, b, tolerance=1e-12: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731

# batch normalization: values, gradients and running statistics are those of the whole batch
for shape in ((sum(SIZES), 4), (sum(SIZES), 4, 2, 3)):
    x, dy = rng.standard_normal(shape) + 5, rng.standard_normal(shape)
    kind = M.BatchNorm1d if len(shape) == 2 else M.BatchNorm2d
    whole = kind(4, dtype="float64")
    layers = M.Sequential(kind(4, dtype="float64"))
    D.SyncBatchNorm.convert(layers)
    assert type(layers[0]) is D.SyncBatchNorm
    found = []
    for layer, rows in ((whole, slice(None)), (layers[0], part)):
        for p, value in ((layer.weight, 1.5), (layer.bias, 0.5)):
            p[...] = value
        given = wf.tensor(x[rows])
        gm = wf.GradManager().attach([given, layer.weight, layer.bias])
        with gm:
            y = layer(given)
            gm.backward(y, wf.tensor(dy[rows]))
        found.append(
            (y, given.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var)
        )
    (y, dx, dw, db, mean, var), (own_y, own_dx, own_dw, own_db, own_mean, own_var) = found
    close(own_y.numpy(), y.numpy()[part], 1e-10)
    close(own_dx.numpy(), dx.numpy()[part], 1e-10)
    close(D.all_reduce(own_dw).numpy(), dw.numpy(), 1e-10)
    close(D.all_reduce(own_db).numpy(), db.numpy(), 1e-10)
    close(own_mean.numpy(), mean.numpy())
    close(own_var.numpy(), var.numpy())
    layers.eval()
    whole.eval()
    close(layers(wf.tensor(x[part])).numpy(), whole(wf.tensor(x[part])).numpy())

# clipping by the norm of parts
values = rng.standard_normal((n, 6))
for ord in (1.0, 2.0, 3.0, math.inf):
    w, whole = wf.zeros(6, dtype="float64"), wf.zeros((n, 6), dtype="float64")
    w.grad, whole.grad = wf.tensor(values[r]), wf.tensor(values)
    total, expected = D.clip_grad_norm([w], 0.5, ord, sharded=True), optim.clip_grad_norm([whole], 0.5, ord)
    close(total.item(), expected.item())
    close(w.grad.numpy(), whole.grad.numpy()[r])

# divided optimizers: the same parameters as the plain ones, eager and traced; states for any number of ranks
X, Y = rng.standard_normal((6 * n, 3)), rng.standard_normal((6 * n, 2))
rows = slice(6 * r, 6 * r + 6)


def network():
    wf.random.seed(1)
    return M.Sequential(M.Linear(3, 7, dtype="float64"), M.Tanh(), M.Linear(7, 2, dtype="float64"))


def train(net, opt, x, y, steps, traced=False):
    gm = wf.GradManager().attach(net.parameters())

    def step(x, y):
        with gm:
            gm.backward(F.mse_loss(net(x), y))
        opt.step().clear_grad()

    run = wf.trace(step, strict=True) if traced else step
    for _ in range(steps):
        run(wf.tensor(x), wf.tensor(y))


for make, options in ((optim.Adam, {"lr": 0.05}), (optim.SGD, {"lr": 0.1, "momentum": 0.9})):
    plain = network()
    reference = make(plain.parameters(), **options)
    train(plain, reference, X, Y, 3)
    state = reference.state_dict()
    middle = [p.numpy().copy() for p in plain.parameters()]
    saved = {key: value.numpy().copy() for key, value in state["state"].items()}
    train(plain, reference, X, Y, 3)
    for traced in (False, True):
        for size in (1, 1 << 20):
            net = network()
            opt = D.ShardedOptimizer(make, net.parameters(), bucket_bytes=size, **options)
            assert sum(s.size for s in opt.shards) <= 58 / n + 8
            train(net, opt, X[rows], Y[rows], 3, traced)
            own = opt.state_dict()
            assert own["groups"] == state["groups"], (own["groups"], state["groups"])
            assert own["state"].keys() == saved.keys()
            for key, value in saved.items():
                close(own["state"][key].numpy(), value)
            D.save_checkpoint(f"{folder}/{make.__name__}", {"step": 3}, net=net, opt=opt)
            train(net, opt, X[rows], Y[rows], 3, traced)
            for p, q in zip(net.parameters(), plain.parameters(), strict=True):
                close(p.numpy(), q.numpy())
    # on from the file: divided, and undivided
    for divided in (True, False):
        net = network()
        opt = (
            D.ShardedOptimizer(make, net.parameters(), lr=0.9)
            if divided
            else make(net.parameters(), lr=0.9, **{k: v for k, v in options.items() if k != "lr"})
        )
        if divided and make is optim.SGD:
            opt = D.ShardedOptimizer(make, net.parameters(), **options)
        assert D.load_checkpoint(f"{folder}/{make.__name__}", net=net, opt=opt) == {"step": 3}
        for p, q in zip(net.parameters(), middle, strict=True):
            close(p.numpy(), q)
        if divided:
            train(net, opt, X[rows], Y[rows], 3)
        else:
            train(net, opt, X, Y, 3)
        for p, q in zip(net.parameters(), plain.parameters(), strict=True):
            close(p.numpy(), q.numpy())

# gradients added up in pieces
net, plain = network(), network()
opt, reference = (
    D.ShardedOptimizer(optim.SGD, net.parameters(), lr=0.1),
    optim.SGD(plain.parameters(), lr=0.1),
)
train(plain, reference, X, Y, 1)
gm = wf.GradManager().attach(net.parameters())
half = (slice(6 * r, 6 * r + 3), slice(6 * r + 3, 6 * r + 6))
with opt.no_sync(), gm:
    gm.backward(F.mse_loss(net(wf.tensor(X[half[0]])), wf.tensor(Y[half[0]])) * 0.5)
with gm:
    gm.backward(F.mse_loss(net(wf.tensor(X[half[1]])), wf.tensor(Y[half[1]])) * 0.5)
opt.step().clear_grad()
for p, q in zip(net.parameters(), plain.parameters(), strict=True):
    close(p.numpy(), q.numpy())

# samples: every one once, none on two ranks
for sampler in (SequentialSampler(4 * n), RandomSampler(4 * n, seed=3)):
    own = wf.tensor(list(D.RankSampler(sampler).order(1)))
    every = D.all_gather(own).numpy()
    assert sorted(every.tolist()) == list(range(4 * n))
assert (
    len(list(D.RankSampler(SequentialSampler(4 * n + 1))))
    == len(D.RankSampler(SequentialSampler(4 * n + 1)))
    == 5
)
assert len(list(D.RankSampler(SequentialSampler(4 * n + 1), drop_last=True))) == 4

# random numbers
D.seed(7, same=True)
same = D.all_gather(wf.random.normal(shape=(1,))).numpy()
D.seed(7)
other = D.all_gather(wf.random.normal(shape=(1,))).numpy()
assert len(set(same.tolist())) == 1, same
assert len(set(other.tolist())) == n, other
D.barrier()
print("right", r)
