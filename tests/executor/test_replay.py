"""What a replay does: threads, errors, check mode, other geometry than planned."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft as wf
import weft.ops.functions as F
from weft import _core, storage
from weft.base import flags
from weft.base.dtype import float32, int64
from weft.base.errors import EngineErrorGroup
from weft.engine import default_engine
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.ops.node import input_value
from weft.ops.types import TensorType


def given(*shape, dtype=float32):
    return input_value(TensorType(shape, dtype, wf.as_device(None)), "x")


def planned(inputs, outputs, writes=None):
    return make_plan(Graph(inputs, outputs, writes), "program", exact=True, as_tuple=True)


def test_several_threads_replay_one_program(in_threads):
    x = given(40, 30)
    y = x
    for _ in range(6):
        y = F.tanh(F.permute_dims(F.permute_dims(y, (1, 0)) @ y, (1, 0)) * 0.1)
        y = F.sum(y, axis=0) + x
    plan = planned([x], [y])
    arrays = [np.full((40, 30), k / 10, "float32") for k in range(8)]
    wanted = [_core.run_plan(plan, [wf.tensor(a)])[0].numpy() for a in arrays]

    def work(k):
        tensor = wf.tensor(arrays[k])
        for _ in range(60):
            (found,) = _core.run_plan(plan, [tensor])
            np.testing.assert_array_equal(found.numpy(), wanted[k])

    in_threads(work, range(8))


def failing():
    """A program whose second step fails for positions that are not there."""
    x, places = given(5, 4), given(3, dtype=int64)
    h = F.sum(F.exp(x) @ F.permute_dims(x, (1, 0)), axis=1)
    taken = F.take(h, places, axis=0)
    taken.node.where = "model.py:7"
    return planned([x, places], [F.flip(taken, axis=0) * 2, h + 1])


def test_an_error_names_the_step_and_the_line():
    plan = failing()
    x = wf.ones((5, 4))
    good = _core.run_plan(plan, [x, wf.tensor([0, 1, 4])])[0].numpy()
    for _ in range(2):
        results = _core.run_plan(plan, [x, wf.tensor([0, 1, 9])])
        with pytest.raises(Exception, match="9") as caught:
            results[0].numpy()
        text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
        assert "take" in text
        assert "model.py:7" in text
        again = _core.run_plan(plan, [x, wf.tensor([0, 1, 4])])[0].numpy()
        np.testing.assert_array_equal(again, good)
    with pytest.raises(EngineErrorGroup):
        wf.waitall()  # of the results that nobody has looked at
    wf.waitall()


def test_arrays_that_do_not_lie_as_planned():
    """Loops take any strides; the program then finds out what it had known."""
    x = given(4, 4)
    plan = planned([x], [F.permute_dims(F.tanh(x), (1, 0)) + x])
    array = np.arange(16, dtype="float32").reshape(4, 4) / 10
    for tensor in (wf.tensor(array), wf.tensor(array.T.copy()).T, wf.tensor(np.repeat(array, 2, 1))[:, ::2]):
        (y,) = _core.run_plan(plan, [tensor])
        np.testing.assert_allclose(y.numpy(), np.tanh(array).T + array, rtol=1e-6)


def test_an_update_is_written_in_place():
    p, g = given(300), given(300)
    plan = planned([p, g], [p - g * 0.1], {0: 0})
    parameter, gradient = wf.ones((300,)), wf.ones((300,))
    wf.waitall()
    before = storage.stats()["allocations"]
    for _ in range(3):
        _core.run_plan(plan, [parameter, gradient])
    wf.waitall()
    assert storage.stats()["allocations"] == before
    np.testing.assert_allclose(parameter.numpy(), 1 - 0.3, rtol=1e-6)


def test_a_window_of_an_input_is_written():
    x, part = given(4, 6), given(2, 3)
    new = F.put_strided(x, part, shape=(2, 3), strides=(6, 1), offset=7)
    plan = planned([x, part], [new, F.sum(new)], {0: 0})
    array = np.arange(24, dtype="float32").reshape(4, 6)
    tensor = wf.tensor(array)
    total = _core.run_plan(plan, [tensor, wf.full((2, 3), -1.0)])[1]
    array[1:3, 1:4] = -1
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert total.item() == array.sum()


def test_inputs_that_overlap():
    x, y = given(6), given(6)
    plan = planned([x, y], [y * 2, F.cumulative_sum(x)], {0: 0})
    array = np.arange(8, dtype="float32")
    shared = wf.tensor(array)
    found = _core.run_plan(plan, [shared[:6], shared[2:]])[1].numpy()
    np.testing.assert_array_equal(found, np.cumsum(array[:6]))
    np.testing.assert_array_equal(shared.numpy()[:6], array[2:] * 2)


# A step that lies about its output: a native kernel made for a larger array than the planner knows of.
LYING = """
import weft as wf, weft.ops.functions as F
from weft import _core
from weft.base.dtype import float32
from weft.executor import buffers, lowering
from weft.engine import default_engine
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.ops.node import input_value
from weft.ops.types import TensorType

class Short(buffers.Buffer):
    size_bytes = 64
lowering.Buffer = Short
x = input_value(TensorType((64, 64), float32))
plan = make_plan(Graph([x], [F.sum(F.permute_dims(F.exp(x) @ x, (1, 0)) @ x)]), "program", exact=True)
print(_core.run_plan(plan, [wf.zeros((64, 64))])[0].numpy())
"""


def test_check_mode_finds_what_a_step_writes_beyond_its_own(monkeypatch):
    monkeypatch.setenv("WEFT_CHECK", "1")
    done = subprocess.run([sys.executable, "-c", LYING], capture_output=True, text=True, timeout=100)
    assert done.returncode
    assert "which is not its own" in done.stderr
    assert "exp" in done.stderr


def test_check_mode_poisons_what_is_given_away(monkeypatch):
    """Whatever is read too late is not a number; right programs give what they always do."""
    x = given(8, 8)
    y = x
    for _ in range(12):
        y = F.permute_dims(F.tanh(y @ x), (1, 0))
    graph = Graph([x], [y, F.sum(y)])
    tensor = wf.tensor(np.eye(8, dtype="float32"))
    plain = make_plan(graph, "plain", exact=True, as_tuple=True)
    monkeypatch.setenv("WEFT_CHECK", "1")
    checked = make_plan(graph, "checked", exact=True, as_tuple=True)
    assert checked.info.memory_report().arena_bytes > plain.info.memory_report().arena_bytes
    for a, b in zip(_core.run_plan(plain, [tensor]), _core.run_plan(checked, [tensor]), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.processor("what other devices run is enqueued by the pushing thread, whatever runs")
@pytest.mark.skipif(flags.get("WEFT_ENGINE") == "naive", reason="the naive engine has no workers")
def test_who_runs_a_brief_loop():
    """The pushing thread while the device is idle, its workers otherwise; nobody can tell by the results."""
    x = wf.ones((256, 256))
    (x + x).wait()  # its code is there
    wf.waitall()
    engine, gate = default_engine(), threading.Event()
    before = engine.stats()["inlined"]
    y = x + x
    assert engine.stats()["inlined"] == before + 1
    blocked = engine.new_variable()
    engine.push(lambda _: gate.wait(30), mutate_vars=[blocked])
    while engine.stats()["running"] == 0:
        time.sleep(0.001)
    try:
        z = x + y
        (x @ x).sum()
        assert engine.stats()["inlined"] == before + 1
    finally:
        gate.set()
    assert np.all(z.numpy() == 3)


def test_threads_that_push_brief_loops_at_once(in_threads):
    x = wf.ones((1024, 1024))

    def work(k):
        y = x * k
        for _ in range(30):
            y = y + 1
        assert y.sum().item() == (k + 30) * 2**20

    in_threads(work, range(4))
