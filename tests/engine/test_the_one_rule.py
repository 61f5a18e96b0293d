"""Two functions of which one mutates a common variable run in push order; functions that only read it may
run together.
"""

import random
import threading

from .support import LIMIT_S, Signal


def test_the_one_rule_writers_run_in_push_order(engine):
    v = engine.new_variable()
    seen = []
    for i in range(1000):
        engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v])
    engine.wait_for_var(v)
    assert seen == list(range(1000))


def test_the_one_rule_readers_see_the_writes_before_them_and_none_after(engine):
    v = engine.new_variable()
    cell = [0]
    seen = []

    def write(rc):
        cell[0] += 1

    for i in range(200):
        engine.push(write, mutate_vars=[v])
        for _ in range(3):
            engine.push(lambda rc, i=i: seen.append(cell[0] == i + 1), const_vars=[v])
    engine.wait_for_all()
    assert seen == [True] * 600


def test_the_one_rule_readers_run_at_the_same_time(make_engine):
    engine = make_engine(workers=4)
    v = engine.new_variable()
    together = threading.Barrier(4)
    engine.push(lambda rc: None, mutate_vars=[v])
    for _ in range(4):
        engine.push(lambda rc: together.wait(LIMIT_S), const_vars=[v])
    engine.push(lambda rc: None, mutate_vars=[v])
    engine.wait_for_all()
    assert not together.broken


def test_the_one_rule_a_reader_waits_for_the_writer_before_it(make_engine, gate):
    engine = make_engine(workers=2)
    v = engine.new_variable()
    read = Signal()
    engine.push(gate.wait, mutate_vars=[v])
    engine.push(read, const_vars=[v])
    gate.wait_until_entered()
    assert not read.wait(0.05)
    gate.open()
    read.wait_or_fail()


def test_the_one_rule_a_writer_waits_for_the_readers_before_it(make_engine, make_gate):
    engine = make_engine(workers=3)
    v = engine.new_variable()
    gates = [make_gate(), make_gate()]
    written = Signal()
    for gate in gates:
        engine.push(gate.wait, const_vars=[v])
    engine.push(written, mutate_vars=[v])
    for gate in gates:
        gate.wait_until_entered()
    gates[0].open()
    assert not written.wait(0.05)
    gates[1].open()
    written.wait_or_fail()


def test_the_one_rule_a_reader_does_not_overtake_a_waiting_writer(make_engine, make_gate):
    engine = make_engine(workers=3)
    v = engine.new_variable()
    first, order = make_gate(), []
    engine.push(first.wait, const_vars=[v])
    engine.push(lambda rc: order.append("write"), mutate_vars=[v])
    engine.push(lambda rc: order.append("read"), const_vars=[v])
    first.wait_until_entered()
    first.open()
    engine.wait_for_all()
    assert order == ["write", "read"]


def test_the_one_rule_unrelated_work_overtakes(make_engine, gate):
    engine = make_engine(workers=2)
    v, w = engine.new_variable(), engine.new_variable()
    engine.push(gate.wait, mutate_vars=[v])
    for _ in range(100):
        engine.push(lambda rc: None, mutate_vars=[v])
        engine.push(lambda rc: None, mutate_vars=[w])
    engine.wait_for_var(w, timeout_s=LIMIT_S)
    assert (v.version, w.version) == (0, 100)


def test_the_one_rule_in_place_updates_are_ordinary_operations(engine):
    w = engine.new_variable()
    weight = [0]

    def update(rc):
        before = weight[0]
        weight[0] = before + 1

    for _ in range(500):
        engine.push(update, mutate_vars=[w])
    engine.wait_for_var(w)
    assert weight == [500]
    assert w.version == 500


def test_the_one_rule_listed_twice_counts_once(engine):
    a, b = engine.new_variable(), engine.new_variable()
    for _ in range(10):
        engine.push(lambda rc: None, const_vars=[a, a, a], mutate_vars=[b, b])
    engine.wait_for_all()
    assert (a.version, b.version) == (0, 10)


def test_the_one_rule_read_and_mutated_is_mutated(engine):
    v = engine.new_variable()
    seen = []
    for i in range(100):
        engine.push(lambda rc, i=i: seen.append(i), const_vars=[v], mutate_vars=[v])
        engine.push(lambda rc, i=i: seen.append(i), const_vars=[v, v], overwrite_vars=[v])
        engine.push(lambda rc, i=i: seen.append(i), mutate_vars=[v], overwrite_vars=[v, v])
    engine.wait_for_var(v)
    assert seen == [i for i in range(100) for _ in range(3)]
    assert v.version == 300


def test_the_one_rule_diamonds(engine):
    """source -> two readers -> one that needs both, many times over."""
    top, left, right = (engine.new_variable() for _ in range(3))
    x, y, z = [0], [0], [0]
    seen = []

    for i in range(200):
        engine.push(lambda rc, i=i: x.__setitem__(0, i), mutate_vars=[top])
        engine.push(lambda rc: y.__setitem__(0, x[0] * 2), const_vars=[top], mutate_vars=[left])
        engine.push(lambda rc: z.__setitem__(0, x[0] * 3), const_vars=[top], mutate_vars=[right])
        engine.push(lambda rc, i=i: seen.append((i, y[0] + z[0])), const_vars=[left, right])
    engine.wait_for_all()
    assert sorted(seen) == [(i, 5 * i) for i in range(200)]


def test_the_one_rule_crossing_variables_never_deadlock(engine):
    """Operations that take the same variables in opposite orders."""
    rng = random.Random(0)
    variables = [engine.new_variable() for _ in range(8)]
    for _ in range(2000):
        chosen = rng.sample(variables, 4)
        engine.push(lambda rc: None, const_vars=chosen[:2], mutate_vars=chosen[2:])
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert sum(v.version for v in variables) == 4000


def test_the_one_rule_holds_across_queues_and_devices(engine):
    v = engine.new_variable()
    seen = []
    places = [(q, d) for q in ("compute", "wide", "copy", "io", "priority") for d in ("cpu:0", "cpu:1")]
    for i in range(300):
        queue, device = places[i * 7 % len(places)]
        engine.push(lambda rc, i=i: seen.append(i), device, mutate_vars=[v], queue=queue, priority=i % 5)
    engine.wait_for_var(v)
    assert seen == list(range(300))
