"""Which exchange goes first, and what goes on beside backward; ends with 0 if all is right. No times are looked at."""

import contextlib
import itertools
import sys
import threading
import time

import numpy as np

import weft as wf
import weft.functional as F
import weft.models as models
import weft.module as M
from weft.base import events
from weft.distributed.collective import push_exchange

D = wf.distributed
r, n = D.rank(), D.world_size()
queue = D.world.world().queue


class Ears:
    """Notes the exchanges that end."""

    def __init__(self):
        self.seen, self.sizes, self.changed = [], [], threading.Condition()

    def exchanged(self, name, where, size_bytes, times_ns, number=0):
        with self.changed:
            self.seen.append((number, name))
            self.sizes.append((number, size_bytes))
            self.changed.notify_all()

    def until(self, text):
        """Wait for an exchange with this in its name."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(text in name for _, name in self.seen), 60), self.seen

    def note(self, *_):
        pass

    def span(self, *_):
        return contextlib.nullcontext()


ears = Ears()
events.listen(ears)


class Plug:
    """An exchange that holds the queue until it is pulled out."""

    def __init__(self):
        self.inside, self.out = threading.Event(), threading.Event()

    def run(self, comm, inputs, outputs, contributors):
        self.inside.set()
        assert self.out.wait(60)


def held(push, count):
    """What ran, in order, when push() has made so many exchanges wait while the queue was held."""
    D.barrier()
    wf.waitall()
    ears.seen.clear()
    plug = Plug()
    free = wf.zeros(2 << 20)  # so large that the queue runs it, not this thread
    over = push_exchange("plug", plug, [free], [])
    assert plug.inside.wait(60)
    push()
    end = time.monotonic() + 60
    while len(queue._numbered.jobs) + len(queue._programs.jobs) < count:
        assert time.monotonic() < end
        time.sleep(0.001)
    plug.out.set()
    over.result()
    wf.waitall()
    return [name for _, name in sorted(ears.seen)]


# Pushes in the order in which backward makes gradients, the last layer first; early layers have the highest priority.
kv = wf.kvstore.create("dist_sync")
keys = list(range(6))
kv.init(keys, [wf.zeros(3) for _ in keys])


def push_backwards():
    for k in reversed(keys):
        kv.push(k, wf.full(3, float(k + r)), priority=-k)


# Which are ready is known when the next one begins: so the first one is that of the program's order.
names = held(push_backwards, len(keys))
assert [name.split(":")[0] for name in names] == [
    "plug",
    "push [5] sum",
    *(f"push [{k}] sum" for k in (0, 1, 2, 3, 4)),
], names
for k in keys:
    np.testing.assert_array_equal(kv.pull(k).numpy(), np.full(3, n * k + sum(range(n)), "float32"))

# Ranks that give other priorities still agree.
names = held(lambda: [kv.push(k, wf.ones(3), priority=k * (-1) ** r) for k in keys], len(keys))
assert len(names) == 7
assert [kv.pull(k).numpy().tolist() for k in keys] == [[n] * 3] * 6
every = D.all_gather(wf.tensor([keys.index(int(name[6])) for name in names[1:]])).numpy().reshape(n, -1)
assert (every == every[0]).all(), every

# One that is late keeps its place before a barrier.
late, gate = wf.zeros(3), threading.Event()
wf.engine.default_engine().push(lambda _: gate.wait(), mutate_vars=[late], name="late", queue="copy")
ears.seen.clear()
first = D.all_reduce(late)
second = [D.all_reduce(wf.ones(3) * k) for k in (1, 2)]
there = threading.Thread(target=D.barrier)
there.start()
gate.set()
assert [y.numpy().tolist() for y in (first, *second)] == [[0] * 3, [n] * 3, [2 * n] * 3]
there.join()
assert max(ears.seen)[1] == "barrier", ears.seen


# The exchange of the last layer's gradients ends in the middle of backward, which waits for it there.
class Until(wf.Function):
    def forward(self, x):
        return x * 1

    def backward(self, dy):
        ears.until("gradients")
        return dy


for size in (1, 1 << 22):  # every gradient alone; large ones alone
    net = M.Sequential(M.Linear(8, 8), M.Linear(8, 8), M.Linear(8, 600_000 if size > 1 else 8))
    gm = wf.GradManager().attach(net.parameters(), callbacks=wf.kvstore.all_reduce(bucket_bytes=size))
    ears.seen.clear()
    with gm:
        h = Until()(net[0](wf.ones((2, 8))))
        gm.backward(net[2](net[1](h)).sum())
    net[0].weight.grad.wait()


# The same of a traced step, by the order of its program: an exchange starts as soon as its gradient is there, and none
# is waited for before backward is over. Of the bytes, what starts before the last kernel of backward can be hidden.
def order_of(net, x, bucket_bytes):
    """The names of a step's kernels in order; the bytes of its exchanges."""
    exchange = wf.kvstore.all_reduce(bucket_bytes=bucket_bytes)
    gm = wf.GradManager().attach(net.parameters(), callbacks=exchange)

    @wf.trace
    def step(x):
        with gm:
            loss = F.mean(net(x) ** 2)
            gm.backward(loss)
        return loss, [p.grad for p in net.parameters()]

    for _ in range(3):
        ears.sizes.clear()
        step(x)[0].item()
        wf.waitall()
    sizes = [size for _, size in sorted(ears.sizes)]
    with wf.tools.profile(memory=False) as p:  # which listens instead of ears
        step(x)[0].item()
        wf.waitall()
    return [p.recording.work[k].name for k in p.recording.step_work], sizes


def check_order(names, sizes, kernels):
    """kernels: words in the names of those that backward mostly consists of."""
    starts = [i for i, name in enumerate(names) if name.startswith("exchange_start")]
    ends = [i for i, name in enumerate(names) if name.startswith("exchange_end")]
    products = [i for i, name in enumerate(names) if any(word in name for word in kernels)]
    assert len(starts) == len(ends) == len(sizes) >= 6, (names, sizes)
    assert min(ends) > max(products), names
    early = sum(size for i, size in zip(starts, sizes, strict=True) if i < max(products))
    assert early >= 0.7 * sum(sizes), (early, sizes, names)
    return starts, products


if "resnet18" in sys.argv:
    names, sizes = order_of(models.resnet18(10), wf.ones((2, 3, 64, 64)), 4 << 20)
    check_order(names, sizes, ("conv", "matmul"))
else:
    net = M.Sequential(*[M.Sequential(M.Linear(64, 64), M.ReLU()) for _ in range(6)], M.Linear(64, 4))
    names, sizes = order_of(net, wf.ones((8, 64)), 64 * 64 * 4)
    starts, products = check_order(names, sizes, ("matmul", "linear"))
    # between two starts lies the backward of a layer, so each but the last has kernels to hide behind
    assert all(any(a < i < b for i in products) for a, b in itertools.pairwise(starts[:6])), names
D.barrier()
print("right", r)
