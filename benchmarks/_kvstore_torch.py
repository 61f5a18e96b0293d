"""PyTorch's ranks for benchmarks/kvstore.py: gloo on loopback, one thread. Arguments: what, repeats, rank, file."""

import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

what, repeats, rank, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)


def say(name, times):
    if rank == 0:
        print(json.dumps({"name": name, "times": times}), flush=True)


def timed(f, repeats, inner=1):
    f()
    times = []
    for _ in range(repeats):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(inner):
            f()
        times.append((time.perf_counter() - begin) / inner)
    return times


def block(channels, out, stride):
    """ResNet's basic block."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            same = channels == out and stride == 1
            self.down = (
                None
                if same
                else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            )

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (x if self.down is None else self.down(x)))

    return Block()


def network():
    if what == "mlp":
        layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8)]
        return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(64, 1024)
    sizes = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *(block(*s) for s in sizes), *head), torch.randn(4, 3, 112, 112)


if what == "all_reduce":
    for size in (1 << 10, 1 << 14, 1 << 18, 1 << 20, 4 << 20, 25 << 20, 100 << 20):
        x = torch.ones(size // 4)
        say(f"gloo {size}", timed(lambda: dist.all_reduce(x), repeats, max(1, min(50, (8 << 20) // size))))  # noqa: B023
else:
    net, x = network()
    net = nn.parallel.DistributedDataParallel(net)
    y = torch.randint(0, 10, (len(x),))
    opt = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step():
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()

    step()
    say(f"{what} gloo step", timed(step, repeats))
dist.barrier()
dist.destroy_process_group()
