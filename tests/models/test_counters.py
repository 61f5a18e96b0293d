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

# The most that a training step, forward, backward and update, may come to: kernels, reorders (copies into a layout that
# oneDNN wants: of weights, which change, and of their gradients), KiB of results inside of the program, in the memory
# that they share. Up to a tenth more than there was: 500, 556, 276, 327, 25, 38, 21 kernels; 100, 96,
# 0, 0, 10, 10, 0 reorders; of ResNet-50 54 products and their gradients alone are 161 kernels. Fewer are better, and
# the numbers are to follow.
LIMITS = {
    ("resnet50", "float32"): (538, 110, 12650),
    ("resnet50", "bfloat16"): (600, 105, 9530),
    ("gpt", "float32"): (304, 0, 985),
    ("gpt", "bfloat16"): (360, 0, 675),
    ("lstm", "float32"): (28, 11, 109),
    ("lstm", "bfloat16"): (42, 11, 90),
    ("mlp", "float32"): (23, 0, 1050),
}
# Likewise of a network without gradients: kernels and reorders (57, 56, 51, 51; 3, 2, 0, 0). ResNet-50 has 54 products
# and two poolings; images come channels first.
FORWARD = {
    ("resnet50", "float32"): (60, 3),
    ("resnet50", "bfloat16"): (60, 3),
    ("gpt", "float32"): (56, 0),
    ("gpt", "bfloat16"): (56, 0),
}
WRAPPER = 1  # Python functions entered by a call of a traced function: its own
# Programs launched again: no plan is looked for or made, no loop compiled, no primitive of oneDNN made.
STEADY = ("misses", "planner_calls", "loop_misses", "primitives")


def counters():
    """All native counters; those of oneDNN under names of their own."""
    dnn = _core.onednn_counters()
    own = {"primitives": dnn["misses"], "reorders": dnn["reorders"]}
    return _core.operator_counters() | _core.program_counters() | own


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


@pytest.mark.parametrize(("name", "precision"), LIMITS)
def test_a_step_of_training(name, precision):
    """One launch, so many kernels, reorders and bytes, nothing planned, made or compiled any more, no Python inside."""
    kernels, reorders, kib = LIMITS[name, precision]
    run = Training(CASES[name], precision, traced=True)
    run.losses(3)
    x, labels, step = run.x, run.labels, run.step
    spent = counted(lambda: step(x, labels))
    assert len(step.programs) == 1
    assert spent["launches"] == 3
    assert {key: spent[key] for key in STEADY} == dict.fromkeys(STEADY, 0)
    assert spent["python"] <= 3 * WRAPPER
    assert spent["kernels"] <= 3 * kernels, spent["kernels"] / 3
    assert spent["reorders"] <= 3 * reorders, spent["reorders"] / 3
    assert step.memory_report()[0].arena_bytes <= kib << 10


@pytest.mark.parametrize(("name", "precision"), FORWARD)
def test_a_prediction(name, precision):
    """Weights are packed, and normalizations folded, before: nothing of that is left."""
    kernels, reorders = FORWARD[name, precision]
    net, x = build(CASES[name]).eval(), wf.asarray(CASES[name].data()[0])
    if precision == "bfloat16":
        net.astype(precision)
        x = x.astype(precision) if x.dtype.kind == "float" else x
    predict = wf.trace(lambda x: net(x), strict=True)
    with wf.no_grad():
        for _ in range(3):
            predict(x).wait()
        spent = counted(lambda: predict(x))
    assert spent["launches"] == 3
    assert {key: spent[key] for key in STEADY} == dict.fromkeys(STEADY, 0)
    assert spent["hoisted"] == 0
    assert spent["kernels"] <= 3 * kernels, spent["kernels"] / 3
    assert spent["reorders"] <= 3 * reorders, spent["reorders"] / 3


def test_a_first_call():
    """Python functions entered while a step is recorded and planned: 59,900 in a fresh process, fewer in this one."""
    net = models.MLP((784, 256, 128, 10))
    manager, optimizer = wf.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), 1e-3)

    @wf.trace
    def step(x, labels):
        with manager:
            manager.backward(F.cross_entropy(net(x), labels))
        optimizer.step().clear_grad()

    x, labels = wf.ones((32, 784)), wf.arange(32) % 10
    assert counted(lambda: step(x, labels), times=1)["python"] <= 60_000


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
    assert spent["python"] <= 3 * 53
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
