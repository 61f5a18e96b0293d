"""Ranges of activations are those of all ranks: by calibration, and in quantization-aware training, which on parts of
batches is that on whole ones."""

import argparse

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
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

# Integers of weights and corrections of biases are those of all data, too.
for rounding in ("gptq", "descent"):
    simulated = Q.calibrate(net, [mine], rounding=rounding, correct_bias=True)
    for quantizer in simulated.weights.values():
        assert same_everywhere(quantizer.integers.numpy()), rounding
        assert same_everywhere(quantizer.correction.numpy()), rounding


def train(x, y, parallel, traced):
    """Losses and parameters of training with learned steps."""
    wf.random.seed(0)
    net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
    simulated = Q.prepare_qat(net, "lsq", example=wf.tensor(everything[0]))
    model = wf.distributed.DataParallel(simulated) if parallel else simulated
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    manager = wf.GradManager().attach(list(model.parameters()))

    def step(x, y):
        with manager:
            manager.backward(F.mse_loss(model(x), y))
        optimizer.step().clear_grad()

    run = wf.trace(step) if traced else step
    for _ in range(4):
        run(wf.tensor(x), wf.tensor(y))
    return [p.numpy() for p in simulated.parameters()]


targets = np.tanh(whole[:, :2])
rows = slice(50 * rank, 50 * rank + 50)
expected = train(whole, targets, parallel=False, traced=False)
for traced in (False, True):
    found = train(whole[rows], targets[rows], parallel=True, traced=traced)
    assert len(found) == 8
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
print("right")
