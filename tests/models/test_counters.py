"""What a step costs in numbers that need no clock, at the true structure of the workloads and small sizes."""

import sys

import pytest

import weft as wf
import weft.functional as F
import weft.optimizer as optim
from weft import _core, models
from weft.engine import default_engine

from .cases import CASES
from .support import Training, build

# The most kernels that a training step may launch: forward, backward and update. A tenth more than there were when this
# was written (489, 547, 276, 327, 25, 38, 21); fewer is better, and the numbers are to follow. Of ResNet-50 54 products
# and their gradients alone are 161.
KERNELS = {
    ("resnet50", "float32"): 540,
    ("resnet50", "bfloat16"): 600,
    ("gpt", "float32"): 304,
    ("gpt", "bfloat16"): 360,
    ("lstm", "float32"): 28,
    ("lstm", "bfloat16"): 42,
    ("mlp", "float32"): 23,
}
WRAPPER = 1  # Python functions entered by a call of a traced function: its own
# Programs launched again: no plan is looked for or made, no loop compiled, no primitive of oneDNN made.
STEADY = ("misses", "planner_calls", "loop_misses", "primitives")


def counters():
    """All native counters; those of oneDNN's primitives under a name of their own."""
    made = _core.onednn_counters()["misses"]
    return _core.operator_counters() | _core.program_counters() | {"primitives": made}


def counted(call, times=3):
    """How far each counter goes on in these calls, and Python functions entered."""
    entered = []
    before = counters()
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code) if event == "call" else None)
    try:
        for _ in range(times):
            call()
    finally:
        sys.setprofile(None)
    wf.waitall()
    after = counters()
    return {name: after[name] - before[name] for name in after} | {"python": len(entered) - times}


@pytest.mark.parametrize(("name", "precision"), KERNELS)
def test_a_step_of_training(name, precision):
    """One launch, so many kernels, nothing planned, made or compiled any more, and no Python inside."""
    run = Training(CASES[name], precision, traced=True)
    run.losses(3)
    x, labels, step = run.x, run.labels, run.step
    spent = counted(lambda: step(x, labels))
    assert len(step.programs) == 1
    assert spent["launches"] == 3
    assert {key: spent[key] for key in STEADY} == dict.fromkeys(STEADY, 0)
    assert spent["python"] <= 3 * WRAPPER
    assert spent["kernels"] <= 3 * KERNELS[name, precision], spent["kernels"] / 3


def test_an_eager_step():
    """Fourteen launches, all known; what Python does between them; and nobody is held back."""
    case = CASES["mlp"]
    net, (x, labels) = build(case), map(wf.asarray, case.data())
    manager = wf.GradManager().attach(net.parameters())
    optimizer = optim.Adam(net.parameters())

    def step():
        with manager:
            manager.backward(F.cross_entropy(net(x), labels))
        optimizer.step().clear_grad()

    step()
    wf.waitall()
    stalls = default_engine().stats()["stalls"]
    spent = counted(step)
    assert spent["launches"] <= 3 * 14
    assert {key: spent[key] for key in STEADY} == dict.fromkeys(STEADY, 0)
    assert spent["python"] <= 3 * 43
    assert default_engine().stats()["stalls"] == stalls


def test_decoding():
    """One program for all positions, which writes each layer's cache in place, one row of each."""
    config = models.GPTConfig(layers=6, width=32, heads=4, vocabulary=64, context=48)
    net = models.GPT(config)
    tokens = wf.random.randint(0, 64, (1, 40))

    @wf.trace(strict=True)
    def step(token, position, cache):
        return wf.argmax(net.decode(token, position, cache), axis=-1), position + 1

    with wf.no_grad():
        cache = net.cache(1)
        token, position = wf.argmax(net.prefill(tokens[:, :8], cache)[:, -1], axis=-1), wf.asarray(8)
        state = [*step(token, position, cache)]
        state = [*step(*state, cache)]
        places = [x.numpy().ctypes.data for x in cache.keys]

        def go():
            state[:] = step(*state, cache)

        spent = counted(go, 20)
    assert len(step.programs) == 1
    assert spent["launches"] == 20
    assert {key: spent[key] for key in STEADY} == dict.fromkeys(STEADY, 0)
    assert spent["python"] <= 20 * WRAPPER
    # Of each layer: two normalizations, four products, two rows written, three of attention. Before and after:
    # positions, two rows of tables, the last normalization, the product, the largest, and the next position.
    assert spent["kernels"] <= 20 * (6 * 11 + 8), spent["kernels"] / 20
    report = step.memory_report()[0]
    assert report.naive_bytes < cache.keys[0].nbytes * 20
    assert [x.numpy().ctypes.data for x in cache.keys] == places
