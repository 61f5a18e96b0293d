"""What ranks of benchmarks/kvstore.py run, over MPI; rank 0 prints JSON lines {"name": ..., "times": [seconds]}."""

import json
import sys
import time

import numpy as np

import weft as wf
import weft.functional as F
import weft.models as models
import weft.module as M
import weft.optimizer as optim

D = wf.distributed
r, n = D.rank(), D.world_size()


def say(name, times):
    if r == 0:
        print(json.dumps({"name": name, "times": times}), flush=True)


def timed(f, repeats, inner=1):
    f()
    times = []
    for _ in range(repeats):
        D.barrier()
        begin = time.perf_counter()
        for _ in range(inner):
            f()
        times.append((time.perf_counter() - begin) / inner)
    return times


def all_reduces(repeats):
    """Through a store, and by mpi4py on the same buffers, in turn."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    for size in (1 << 10, 1 << 14, 1 << 18, 1 << 20, 4 << 20, 25 << 20, 100 << 20):
        inner = max(1, min(50, (8 << 20) // size))
        x = np.ones(size // 4, "float32")
        y = np.empty_like(x)
        value = wf.tensor(x)
        kv = wf.kvstore.create("dist_sync", bucket_bytes=1 << 30)
        kv.init(0, value)
        out = wf.zeros(value.shape)

        def plain(x=x, y=y):
            comm.Iallreduce(x, y).Wait()

        def store(kv=kv, value=value, out=out):
            kv.pushpull(0, value, out=out)
            out.wait()

        def bare(value=value):
            D.all_reduce(value).wait()

        for _ in range(repeats):
            say(f"mpi4py {size}", timed(plain, 1, inner))
            say(f"all_reduce {size}", timed(bare, 1, inner))
            say(f"store {size}", timed(store, 1, inner))


def network(name):
    wf.random.seed(0)
    rng = np.random.default_rng(r)
    if name == "mlp":
        net = M.Sequential(
            *[M.Sequential(M.Linear(1024, 1024), M.ReLU()) for _ in range(8)], M.Linear(1024, 10)
        )
        x = rng.standard_normal((64, 1024), dtype="float32")
    else:
        net = models.resnet18(10)
        x = rng.standard_normal((4, 3, 112, 112), dtype="float32")
    return net, wf.tensor(x), wf.tensor(rng.integers(0, 10, len(x)))


def steps(name, repeats):
    """A step with exchange, without, and the exchange alone; eager and traced."""
    for traced in (False, True):
        for exchanging in (True, False):
            net, x, y = network(name)
            opt = optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
            gm = wf.GradManager().attach(
                net.parameters(), callbacks=wf.kvstore.all_reduce() if exchanging else None
            )

            def step(x, y, net=net, opt=opt, gm=gm):
                with gm:
                    loss = F.cross_entropy(net(x), y)
                    gm.backward(loss)
                opt.step().clear_grad()
                return loss

            run = wf.trace(step) if traced else step

            def once(run=run, x=x, y=y, net=net):
                run(x, y)
                for p in net.parameters():
                    p.wait()

            once()
            kind = "traced" if traced else "eager"
            say(f"{name} {kind} {'step' if exchanging else 'compute'}", timed(once, repeats))
            if exchanging:
                say(f"{name} {kind} seen", [seen_on_timeline(once) for _ in range(repeats)])
    net, *_ = network(name)
    gradients = [(p, p * 0) for p in reversed(list(net.parameters()))]
    exchange = wf.kvstore.all_reduce()

    def alone():
        for p, g in gradients:
            exchange(p, g)
        for _, g in exchange.finish():
            g.wait()

    say(f"{name} exchange", timed(alone, repeats))


def seen_on_timeline(step):
    """Of the exchange in a step that could be hidden, the share that is not, as the profiler's timeline shows it.

    What could be: all of it, or as much as kernels ran in two thirds of the step, whichever is less.
    """
    D.barrier()
    with wf.tools.profile(memory=False) as p:
        step()
    *_, row = p.exchanges()
    exchange = row["waiting_s"] + row["moving_s"]
    steps = p.recording.steps
    work = [w.name.startswith("exchange") for w in p.recording.work]
    kernels = sum(
        float(s["end"] - s["start"]) * 1e-9
        for s, k in zip(steps, p.recording.step_work, strict=True)
        if not work[k]
    )
    possible = min(exchange, kernels * 2 / 3)
    return max(0.0, 1 - row["hidden"] * exchange / possible)


def compression(repeats):
    """25 million floats to two bits, and a copy of the same traffic."""
    from weft.distributed.compression import make_codec

    x = wf.tensor(np.random.default_rng(0).standard_normal(25_000_000, dtype="float32"))
    codec = make_codec({"type": "2bit", "threshold": 0.5})
    residual = codec.new_residual(x)
    a, b = x.numpy(), np.zeros(25_000_000, "float32")
    if r == 0:
        for _ in range(repeats):
            say("2bit", timed_alone(lambda: codec.encode(x, residual)[0].wait()))
            # gradient and residual are read, the residual written; the bits are a sixteenth of that
            say("2bit bytes", timed_alone(lambda: np.add(a, b, out=b)))


def timed_alone(f):
    f()
    begin = time.perf_counter()
    f()
    return [time.perf_counter() - begin]


if __name__ == "__main__":
    what, repeats = sys.argv[1], int(sys.argv[2])
    if what == "all_reduce":
        all_reduces(repeats)
    elif what == "2bit":
        compression(repeats)
    else:
        steps(what, repeats)
    D.barrier()
