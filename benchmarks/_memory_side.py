"""One process of memory.py: training steps of one network in weft or PyTorch; prints the peak of its memory as JSON.

python _memory_side.py {weft-eager|weft-traced|torch-eager} NETWORK

Runs on either's interpreter.
"""

import gc
import json
import sys

import numpy as np
from _both_networks import networks, weft_networks

STEPS = 4


def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def weft_step(name, traced, lazy=True):
    import weft as wf
    import weft.functional as F
    from weft import optimizer

    net, shape = weft_networks()[name]()
    update = optimizer.SGD(net.parameters(), lr=0.01, momentum=0.9)
    manager = wf.GradManager().attach(net.parameters())
    draw = np.random.default_rng(0)
    x = wf.asarray(draw.standard_normal(shape, dtype="float32"))
    labels = wf.asarray(np.arange(shape[0]) % 10)

    def step(x, labels):
        with manager:
            loss = F.cross_entropy(net(x), labels)
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    run = wf.trace(step, lazy=lazy) if traced else step
    return lambda: run(x, labels).item()


def torch_step(name):
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(2)

    def upsample(x):
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    net, shape = networks(nn, F, torch.cat, upsample)[name]()
    update = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(shape, dtype="float32"))
    labels = torch.arange(shape[0]) % 10

    def step():
        loss = F.cross_entropy(net(x), labels)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.item()

    return step


def main():
    way, name = sys.argv[1:3]
    if way == "torch-eager":
        import torch

        torch.ones(2).sum().item()
        make = torch_step
    else:
        import weft as wf
        import weft.module
        import weft.optimizer

        wf.ones(2).sum().item()
        make = lambda name: weft_step(name, way != "weft-eager", lazy=way != "weft-traced-eager-first")  # noqa: E731
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    step = make(name)
    peaks, pools = [], []
    for _ in range(STEPS):
        step()
        peaks.append(status("VmHWM") - before)
        if way != "torch-eager":
            from weft import storage

            pools.append(storage.stats()["peak_in_use_bytes"])
    print(json.dumps({"way": way, "network": name, "peak_bytes": peaks, "pool_bytes": pools}))


if __name__ == "__main__":
    main()
