"""The record of what the engine ran, and the counters."""

import json
import re
import threading

import pytest

import weft as wf
from weft.engine import Engine
from weft.tools.counters import Counting
from weft.tools.timeline import Timeline


def test_spans_and_the_file(tmp_path):
    with Engine(workers=2) as engine:
        a, b = engine.new_variable(), engine.new_variable()
        with Timeline(engine) as timeline:
            engine.push(lambda run_context: None, mutate_vars=[a], name="first")
            engine.push(
                lambda run_context: None, const_vars=[a], mutate_vars=[b], name="second", queue="wide"
            )
            engine.push(lambda run_context: None, mutate_vars=[b], name="first")
        engine.push(lambda run_context: None, mutate_vars=[b], name="afterwards")
        engine.wait_for_all()
    assert [span.operation for span in timeline.spans] == ["first", "second", "first"]
    assert all(span.pushed_s <= span.start_s <= span.end_s for span in timeline.spans)
    assert all(x.end_s <= y.start_s for x, y in zip(timeline.spans, timeline.spans[1:], strict=False))
    assert timeline.spans[1].thread == "wide 0"
    assert timeline.totals()["first"][0] == 2
    assert str(timeline).splitlines()[0].split() == ["operation", "count", "total", "ms", "share"]

    timeline.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in spans] == ["first", "second", "first"]
    assert named[spans[1]["tid"]] == "wide 0"
    assert all(event["dur"] >= 0 and event["args"]["waited_us"] >= 0 for event in spans)


def test_what_failed_is_skipped_or_shown():
    def fail(run_context):
        raise ValueError("no")

    def record(timeline):
        a = engine.new_variable()
        with timeline:
            engine.push(fail, mutate_vars=[a], name="fails")
            engine.push(lambda run_context: None, const_vars=[a], name="skipped")

    with Engine(workers=1) as engine:
        timeline = Timeline(engine)
        with pytest.raises(wf.EngineError, match="fails"):
            record(timeline)
    assert list(timeline.totals()) == ["fails"]


def test_operations_of_the_pushing_thread_have_its_name():
    a = wf.ones((4, 4))
    with Timeline() as timeline:
        (a + a).wait()
    assert [(span.operation, span.thread) for span in timeline.spans] == [
        ("add", threading.current_thread().name)
    ]


def test_counters_of_a_traced_function():
    f = wf.trace(lambda x: wf.exp(x) * 2)
    x = wf.ones((3, 5))
    f(x), f(x)
    with Counting() as counting:
        f(x)
    assert counting.counts == {"launches": 1, "kernels": 1}


def test_steps_of_a_traced_function(tmp_path):
    f = wf.trace(lambda x: wf.sum(wf.exp(x @ x) + 1))
    x = wf.ones((64, 64))
    f(x), f(x)
    with Timeline(steps=True) as timeline:
        for _ in range(3):
            f(x)
    names = [step.name for step in timeline.steps]
    count = len(f.programs[0].plan.info.steps)
    assert len(names) == 3 * count
    assert [step.number for step in timeline.steps] == 3 * list(range(count))
    product = timeline.steps[0]
    assert "matmul" in product.name
    assert product.bytes == 3 * 64 * 64 * 4
    assert "test_timeline.py" in product.where
    for step in timeline.steps:
        around = [
            span for span in timeline.spans if span.start_s <= step.start_s and step.end_s <= span.end_s
        ]
        assert [(span.thread, span.device) for span in around] == [(step.thread, step.device)]
    totals = timeline.step_totals()
    assert sum(count for count, _, _ in totals.values()) == len(names)
    assert re.search(r"^step +count  total ms  share    GB/s$", str(timeline), re.MULTILINE)

    timeline.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum("bytes" in event["args"] for event in events if event["ph"] == "X") == len(names)


def test_steps_of_eager_calls_and_of_any_size():
    f = wf.trace(lambda x: wf.exp(x @ wf.permute_dims(x, (1, 0))), dynamic={"x": [0]})
    a = wf.ones((4, 4))
    f(a), a + a
    with Timeline(steps=True) as timeline:
        (a + a).wait()
        f(a).wait()
    assert timeline.steps[0].name == "add"
    assert timeline.steps[0].bytes == 3 * 16 * 4
    assert [step.name for step in timeline.steps[1:]] == ["matmul", "exp"]
    assert {step.operation for step in timeline.steps[1:]} == {"<lambda>"}


def test_steps_are_recorded_by_one_at_a_time():
    a = wf.ones((4, 4))
    with Timeline(steps=True) as timeline, pytest.raises(RuntimeError, match="another one records steps"):
        Timeline(steps=True).__enter__()
    assert timeline.steps == []
    with Timeline() as without:
        (a + a).wait()
    assert without.steps == []
    with Timeline(steps=True) as again:
        (a + a).wait()
    assert len(again.steps) == 1


def test_steps_in_eight_threads():
    f = wf.trace(lambda x: wf.exp(x @ x))
    x = wf.ones((32, 32))
    f(x), f(x).wait()

    def work():
        for _ in range(50):
            f(x).wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    with Timeline(steps=True) as timeline:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(timeline.steps) == 400 * len(f.programs[0].plan.info.steps)
