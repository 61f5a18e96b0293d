"""WEFT_AUTOTUNE: kernels are chosen by measuring, each candidate once, and remembered on disk."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.executor import tuning
from weft.executor.planner import make_plan
from weft.expr import scalar as e
from weft.graph.graph import graph_of
from weft.kernels import choices, kernel
from weft.ops import Op, op
from weft.ops.kernels import Native, pointwise_loop
from weft.ops.types import TensorType

CALLS = []


def slow(inputs, outputs):
    def run(x, y):
        CALLS.append("slow")
        import time

        time.sleep(0.02)
        y[0].numpy()[...] = x[0].numpy() * 2

    return _core.kernel_python(run, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def registered():
    @op
    class TunedTwiceOfTests(Op):
        """2 x, by a slow kernel that is offered first, and a loop."""

        primitive = True

        def infer(self, x):
            return x.like()

        def kernels(self, x):
            yield pointwise_loop([x], [e.load(0, x.dtype.name) * 2])

    @kernel(TunedTwiceOfTests)
    def twice(op, x):
        yield Native(slow)
        yield Native(lambda inputs, outputs: None)  # takes nothing


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    tuning.forget()
    del CALLS[:]
    return tmp_path


def plan(shape=(4, 5), name="program"):
    graph = graph_of(lambda x: wf.functional.tuned_twice_of_tests(x), [TensorType(shape, wf.float32)])
    return make_plan(graph, name, exact=True)


def counted(function):
    before = dict(tuning.counters)
    function()
    return {name: n - before[name] for name, n in tuning.counters.items()}


def test_off_by_default(own_cache):
    assert counted(plan) == {"lookups": 0, "measured": 0, "from_disk": 0, "in_memory": 0}
    assert plan().info.steps == ["native TunedTwiceOfTests()"]
    assert not list(own_cache.rglob("choice-*"))


@pytest.mark.processor("its candidates are NumPy's")
def test_candidates_are_timed_once_and_the_quickest_is_taken(own_cache, monkeypatch):
    monkeypatch.setenv("WEFT_AUTOTUNE", "1")
    assert len(list(choices(wf.ops.get("tuned_twice_of_tests")(), [TensorType((4, 5), wf.float32)]))) == 3
    made = []
    # The second candidate does not take these operands: the loop behind it is timed in its place, too.
    assert counted(lambda: made.append(plan())) == {
        "lookups": 1,
        "measured": 3,
        "from_disk": 0,
        "in_memory": 0,
    }
    assert "native" not in made[0].info.steps[0]
    assert CALLS == ["slow"] * tuning.RUNS
    x = wf.tensor(np.arange(20.0, dtype="float32").reshape(4, 5))
    (y,) = _core.run_plan(made[0], [x])
    np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())
    assert counted(plan) == {"lookups": 1, "measured": 0, "from_disk": 0, "in_memory": 1}
    assert counted(lambda: plan((4, 6)))["measured"] == 3  # other sizes are another question
    (file, _) = own_cache.rglob("choice-*.json")
    assert json.loads(file.read_text())["choice"] in (1, 2)
    tuning.forget()
    assert counted(plan) == {"lookups": 1, "measured": 0, "from_disk": 1, "in_memory": 0}


def test_a_broken_file_is_measured_again(own_cache, monkeypatch):
    monkeypatch.setenv("WEFT_AUTOTUNE", "1")
    plan()
    (file,) = own_cache.rglob("choice-*.json")
    for text in ("", "{}", '{"choice": 9}', '{"choice": "1"}', "[1]"):
        file.write_text(text)
        tuning.forget()
        assert counted(plan) == {"lookups": 1, "measured": 3, "from_disk": 0, "in_memory": 0}


PROGRAM = """
import weft as wf, numpy as np
from weft.executor import tuning
x, w = wf.ones((1, 3, 8, 8)), wf.ones((4, 3, 3, 3))
net = wf.trace(lambda x: wf.functional.max_pool2d(wf.functional.conv2d(x, w), 2).sum())
assert float(net(x)) == 27 * 4 * 9, float(net(x))
print(tuning.counters)
"""


def test_a_second_process_reads_from_disk(own_cache, monkeypatch):
    """max_pool2d offers two kernels; what a process has measured others take."""
    monkeypatch.setenv("WEFT_AUTOTUNE", "1")
    found = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True
        )
        found.append(eval(run.stdout.strip().splitlines()[-1]))
    assert found[0]["measured"] >= 2
    assert found[0]["from_disk"] == 0
    assert found[1]["measured"] == 0
    assert found[1]["from_disk"] >= 1
