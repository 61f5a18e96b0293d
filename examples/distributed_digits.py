"""Trains a network on digits with one process or several: the same script, the same network.

    python examples/distributed_digits.py                                      alone
    python -m weft.launch -n 2 examples/distributed_digits.py                  two ranks over MPI
    python -m weft.launch -n 2 --kv dist_sync_ps examples/distributed_digits.py    two workers and two servers on Ray
    python -m weft.launch -n 2 --kv dist_async examples/distributed_digits.py      the same without waiting

Every step takes one batch of 32 images, which the ranks divide. So alone, over MPI and with synchronous servers the
parameters are the same up to rounding. So are the losses alone and over MPI; with servers the first worker shows those
of its own images, as workers exchange nothing with each other. After every epoch rank 0 writes a checkpoint; started
again, training goes on from there, with any number of ranks and either engine.

    [--epochs 6] [--out build/distributed] [--fresh] [--eager] [--compression 2bit]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.base import flags

D = wf.distributed
OUT = Path(__file__).resolve().parents[1] / "build" / "distributed"
BATCH = 32
TRAINED = 45 * BATCH  # images; the others are held out
COMPRESSIONS = {
    "none": None,
    "2bit": {"type": "2bit", "threshold": 0.01},
    "topk": {"type": "topk", "ratio": 0.1},
}


def digits():
    """Images f32[n,1,8,8] in 0..1 and labels i64[n]: those to train on, those held out."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = bunch.images[order, None].astype("float32") / 16
    labels = bunch.target[order].astype("int64")
    return (images[:TRAINED], labels[:TRAINED]), (images[TRAINED:], labels[TRAINED:])


class Net(M.Module):
    """Two convolutions and a linear layer; each image is normalized by itself, so ranks need not ask each other."""

    def __init__(self):
        self.conv1, self.norm1 = M.Conv2d(1, 16, 3, padding=1), M.GroupNorm(4, 16)
        self.conv2, self.norm2 = M.Conv2d(16, 32, 3, padding=1), M.GroupNorm(4, 32)
        self.dense = M.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        h = F.avg_pool2d(F.silu(self.norm1(self.conv1(x))), 2)
        h = F.avg_pool2d(F.silu(self.norm2(self.conv2(h))), 2)
        return self.dense(F.flatten(h, 1))


class Collective:
    """Alone or over MPI: gradients become means over ranks, and each rank updates its own copy."""

    def __init__(self, net, options):
        self.net = D.DataParallel(net, compression=COMPRESSIONS[options.compression])
        self.params = list(net.parameters())
        self.optimizer = optim.SGD(self.params, lr=0.05, momentum=0.9)
        self.manager = wf.GradManager().attach(self.params)
        self.step = self._step if options.eager else wf.trace(self._step)

    def _step(self, images, labels):
        with self.manager:
            loss = F.cross_entropy(self.net(images), labels)
            self.manager.backward(loss)
        self.optimizer.step().clear_grad()
        return D.all_reduce(loss, "mean")

    def save(self, out, values):
        D.save_checkpoint(out / "run.safetensors", values, net=self.net.module, optimizer=self.optimizer)

    def load(self, out):
        return D.load_checkpoint(out / "run.safetensors", net=self.net.module, optimizer=self.optimizer)


class Servers:
    """Parameter servers: workers push gradients, the servers update, workers pull."""

    def __init__(self, net, options):
        self.net, self.params = net, list(net.parameters())
        self.keys = [name for name, _ in net.named_parameters()]
        self.kv = wf.kvstore.create(options.kv, servers=2, big=2000)
        self.kv.init(self.keys, self.params)
        self.optimizer = optim.SGD(self.params, lr=0.05, momentum=0.9)
        self.kv.set_optimizer(self.optimizer)
        if COMPRESSIONS[options.compression]:
            self.kv.set_gradient_compression(COMPRESSIONS[options.compression])
        self.kv.pull(self.keys, self.params)
        self.manager = wf.GradManager().attach(self.params)
        self.gradients = self._gradients if options.eager else wf.trace(self._gradients)

    def _gradients(self, images, labels):
        with self.manager:
            loss = F.cross_entropy(self.net(images), labels)
            self.manager.backward(loss * (1 / self.kv.num_workers))
        found = [p.grad for p in self.params]
        for p in self.params:
            p.grad = None
        return loss, found

    def step(self, images, labels):
        loss, found = self.gradients(images, labels)
        # The layers that the next step needs first have the highest priorities.
        for k in reversed(range(len(self.keys))):
            self.kv.push(self.keys[k], found[k], priority=-k)
        for k in range(len(self.keys)):
            self.kv.pull(self.keys[k], self.params[k], priority=-k)
        return loss

    def save(self, out, values):
        self.kv.barrier()
        self.kv.pull(self.keys, self.params)
        if self.kv.rank == 0:
            wf.checkpoint.save(out / "run.safetensors", values, net=self.net, optimizer=self.optimizer)
        self.kv.barrier()

    def load(self, out):
        raise AssertionError("parameters that were loaded go to the servers by init")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--fresh", action="store_true", help="begin from the start")
    parser.add_argument("--eager", action="store_true", help="operation by operation, not as one program")
    parser.add_argument(
        "--kv", default=flags.get("WEFT_KV"), help="kind of store (default: how the job was started)"
    )
    parser.add_argument("--compression", choices=list(COMPRESSIONS), default="none")
    options = parser.parse_args()
    rank, n = D.rank(), D.world_size()
    if BATCH % n:
        parser.error(f"a batch of {BATCH} images cannot be divided among {n} ranks")
    by_servers = options.kv in ("dist_sync_ps", "dist_async", "dist_ssp")

    D.seed(0, same=True)  # all ranks begin with the same parameters
    net = Net()
    begin, losses = 0, []
    checkpoint = options.out / "run.safetensors"
    found = checkpoint.exists() and not options.fresh
    if found and by_servers:
        plain = optim.SGD(
            net.parameters(), lr=0.05, momentum=0.9
        )  # the servers begin with a momentum of zero
        values = wf.checkpoint.load(checkpoint, random_state=False, net=net, optimizer=plain)
    trainer = (Servers if by_servers else Collective)(net, options)
    if found:
        values = values if by_servers else trainer.load(options.out)
        begin, losses = values["epoch"], values["losses"]
    options.out.mkdir(parents=True, exist_ok=True)

    (images, labels), (held_images, held_labels) = digits()
    sampler = D.RankSampler(data.RandomSampler(TRAINED, seed=1))
    for epoch in range(begin, options.epochs):
        own = np.array(list(sampler.order(epoch))).reshape(-1, BATCH // n)
        total = []
        for rows in own:
            total.append(trainer.step(wf.tensor(images[rows]), wf.tensor(labels[rows])))
        losses.append(float(np.mean([loss.item() for loss in total])))
        trainer.save(options.out, {"epoch": epoch + 1, "losses": losses})
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}", flush=True)
    if rank == 0:
        scores = net(wf.tensor(held_images)).numpy()
        accuracy = float((scores.argmax(1) == held_labels).mean())
        (options.out / "result.json").write_text(
            json.dumps({"losses": losses, "accuracy": accuracy, "ranks": n})
        )
        print(
            f"{accuracy:.1%} of {len(held_labels)} images that were held out are right; {n} ranks, {options.kv}",
            flush=True,
        )


if __name__ == "__main__":
    main()
