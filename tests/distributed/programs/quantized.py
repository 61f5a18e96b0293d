"""Ranges of activations are those of all ranks: by calibration, and in quantization-aware training."""

import argparse

import numpy as np

import weft as wf
import weft.module as M
import weft.quantization as Q

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.parse_args()
wf.distributed.init()
rank, size = wf.distributed.rank(), wf.distributed.world_size()
wf.random.seed(0)
net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
everything = [np.random.default_rng(k).normal(size=(50, 4)).astype("float32") * (k + 1) for k in range(size)]
mine, whole = wf.tensor(everything[rank]), np.concatenate(everything)


def ranges(simulated):
    return np.array([(q.low.item(), q.high.item()) for q in simulated.activations.values()])


def same_everywhere(values):
    gathered = wf.distributed.all_gather(wf.tensor(values)).numpy().reshape(size, *values.shape)
    return all(np.array_equal(part, gathered[0]) for part in gathered)


for method in ("min_max", "ema", "percentile", "l2"):
    found = ranges(Q.calibrate(net, [mine], method=method))
    assert same_everywhere(found), method
    if method == "min_max":
        np.testing.assert_array_equal(found[0], [whole.min(), whole.max()])
for preset in ("min_max", "ema"):
    net.train()
    simulated = Q.prepare_qat(net, preset, example=wf.tensor(everything[0]))
    before = ranges(simulated)
    step = wf.trace(simulated)
    for _ in range(2):
        step(mine)
    assert same_everywhere(ranges(simulated)), preset
    assert not np.array_equal(ranges(simulated), before), preset
print("right")
