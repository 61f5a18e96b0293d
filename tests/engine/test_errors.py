"""An exception poisons what the operation would have written; the first cause stays until it is overwritten
or cleared.
"""

import itertools
import subprocess
import sys
import traceback

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, line_here

WAYS = ["sync", "async raised", "on_complete", "operator", "async operator", "bulk"]


def nothing(rc):
    pass


def push_failing(engine, way, error, **where):
    """Pushes a function that fails with error, in one of the ways there are."""

    def fail(rc, on_complete=None):
        raise error

    def complete(rc, on_complete):
        on_complete(error)

    name = {"name": "failing"}
    if way == "sync":
        engine.push(fail, **where, **name)
    elif way == "async raised":
        engine.push_async(fail, **where, **name)
    elif way == "on_complete":
        engine.push_async(complete, **where, **name)
    elif way == "operator":
        engine.push(engine.new_operator(fail, **where, **name))
    elif way == "async operator":
        engine.push(engine.new_operator(complete, **where, is_async=True, **name))
    else:
        with engine.bulk(4):
            engine.push(nothing)
            engine.push(fail, **where, **name)
            engine.push(nothing)


def raised_by(engine, variable, **options):
    """The error that waiting for the variable raises; None if it does not."""
    try:
        engine.wait_for_var(variable, **options)
    except EngineError as error:
        return error
    return None


class Base(BaseException):
    """What except Exception does not catch."""


@pytest.mark.parametrize("way", WAYS)
def test_errors_poison_what_the_operation_would_have_written(engine, way):
    read, mutated, overwritten, after = (engine.new_variable() for _ in range(4))
    error = ValueError("planned")
    push_failing(engine, way, error, const_vars=[read], mutate_vars=[mutated], overwrite_vars=[overwritten])
    engine.push(pytest.fail, const_vars=[mutated], mutate_vars=[after])
    assert raised_by(engine, read) is None
    for v in (mutated, overwritten, after):
        raised = raised_by(engine, v)
        assert raised.operation == "failing"
        assert raised.__cause__ is error
    assert [v.version for v in (read, mutated, overwritten, after)] == [0, 1, 1, 0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [Base("base"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(1)],
    ids=lambda e: type(e).__name__,
)
def test_errors_of_every_class_are_caught(make_engine, way, error):
    for kind in ("threaded", "naive"):
        engine = make_engine(kind=kind)
        v = engine.new_variable()
        push_failing(engine, way, error, mutate_vars=[v])
        assert raised_by(engine, v).__cause__ is error


def test_errors_that_cannot_be_printed_do_no_harm(engine):
    class Nasty(Exception):
        def __str__(self):
            raise RuntimeError("no words")

        __repr__ = __str__

    v = engine.new_variable()
    push_failing(engine, "sync", Nasty(), mutate_vars=[v])
    raised = raised_by(engine, v)
    assert isinstance(raised.__cause__, Nasty)
    assert "Nasty" in str(raised)


def test_errors_read_well(engine):
    """operation: what happened, and the line of the push; the original exception with its traceback below."""
    v = engine.new_variable()

    def divide(rc):
        return 1 / 0

    expected = line_here(+1)
    engine.push(divide, mutate_vars=[v], name="divide x")
    raised = raised_by(engine, v)
    assert raised.operation == "divide x"
    assert raised.where.endswith(expected)
    text = str(raised)
    assert text.startswith("divide x: ")
    assert "ZeroDivisionError" in text
    assert "division by zero" in text
    assert expected in text
    told = "".join(traceback.format_exception(raised))
    assert "return 1 / 0" in told
    assert "direct cause" in told


def test_errors_name_the_function_if_the_operation_has_no_name(engine):
    v = engine.new_variable()

    def a_function_without_name(rc):
        raise ValueError

    engine.push(a_function_without_name, mutate_vars=[v])
    assert "a_function_without_name" in raised_by(engine, v).operation


@pytest.mark.parametrize("way", ["push", "push_async", "bulk", "loop"])
def test_errors_name_the_line_that_pushed(engine, way):
    v = engine.new_variable()

    def fail(rc, on_complete=None):
        raise ValueError

    if way == "push":
        expected = line_here(+1)
        engine.push(fail, mutate_vars=[v])
    elif way == "push_async":
        expected = line_here(+1)
        engine.push_async(fail, mutate_vars=[v])
    elif way == "bulk":
        with engine.bulk(10):
            engine.push(nothing)
            expected = line_here(+1)
            engine.push(fail, mutate_vars=[v])
            engine.push(nothing)
    else:
        for i in range(10):
            expected = line_here(+1)
            engine.push(fail if i == 5 else nothing, mutate_vars=[v])
    raised = raised_by(engine, v)
    assert raised.where.endswith(expected)
    assert __file__.rsplit("/", 1)[1] in raised.where


def test_errors_are_raised_by_every_wait(engine):
    v = engine.new_variable()
    error = ValueError("planned")
    push_failing(engine, "sync", error, mutate_vars=[v])
    for i in range(20):
        raised = raised_by(engine, v, writes_only=i % 2 == 0)
        assert raised.__cause__ is error
        assert raised.operation == "failing"


def test_errors_raised_again_and_again_do_not_grow(engine):
    """Each wait raises a fresh exception, so no traceback gets longer and no context chains up."""
    v = engine.new_variable()
    push_failing(engine, "sync", ValueError("planned"), mutate_vars=[v])
    depths, seen = set(), []
    for _ in range(50):
        raised = raised_by(engine, v)
        seen.append(raised)
        depths.add(
            (
                len(list(traceback.walk_tb(raised.__traceback__))),
                len(list(traceback.walk_tb(raised.__cause__.__traceback__))),
            )
        )
    assert len(depths) == 1
    assert len({id(e) for e in seen}) == 50


def test_errors_keep_the_first_cause(engine):
    """Later operations are skipped, so they cannot fail for another reason."""
    v, first = engine.new_variable(), ValueError("first")
    push_failing(engine, "sync", first, mutate_vars=[v])
    for way in WAYS:
        push_failing(engine, way, KeyError("later"), mutate_vars=[v])
    assert raised_by(engine, v).__cause__ is first
    with pytest.raises(EngineError) as caught:
        engine.wait_for_all()
    assert caught.value.__cause__ is first


def test_errors_travel_down_a_chain(engine):
    chain = [engine.new_variable() for _ in range(100)]
    error = ValueError("at the top")
    push_failing(engine, "sync", error, mutate_vars=[chain[0]])
    for before, after in itertools.pairwise(chain):
        engine.push(pytest.fail, const_vars=[before], mutate_vars=[after])
    for v in chain[::10]:
        assert raised_by(engine, v).__cause__ is error
    assert [v.version for v in chain] == [1] + [0] * 99


def test_errors_a_poisoned_variable_keeps_its_own_cause_when_another_comes_by(engine):
    a, b = engine.new_variable(), engine.new_variable()
    first, second = ValueError("a"), ValueError("b")
    push_failing(engine, "sync", first, mutate_vars=[a])
    push_failing(engine, "sync", second, mutate_vars=[b])
    engine.push(pytest.fail, const_vars=[a], mutate_vars=[b])
    assert raised_by(engine, a).__cause__ is first
    assert raised_by(engine, b).__cause__ is second


def test_errors_what_is_inherited_does_not_depend_on_timing(engine):
    """Of several poisoned variables, those read count before those mutated, in the order of declaration."""
    a, b, c = (engine.new_variable() for _ in range(3))
    causes = {v: ValueError(i) for i, v in enumerate((a, b, c))}
    for v in (c, b, a):
        push_failing(engine, "sync", causes[v], mutate_vars=[v])
    for reads, mutates, expected in (([b, a], [c], b), ([a, b], [c], a), ([], [c, a], c), ([a], [a, b], a)):
        out = engine.new_variable()
        engine.push(pytest.fail, const_vars=reads, mutate_vars=[*mutates, out])
        assert raised_by(engine, out).__cause__ is causes[expected]


def test_errors_independent_work_goes_on(engine):
    bad, good = engine.new_variable(), engine.new_variable()
    for _ in range(100):
        push_failing(engine, "sync", ValueError("planned"), mutate_vars=[bad])
        engine.push(nothing, mutate_vars=[good])
    assert raised_by(engine, good) is None
    assert good.version == 100


def test_errors_overwriting_heals(engine):
    v, w = engine.new_variable(), engine.new_variable()
    push_failing(engine, "sync", ValueError("planned"), mutate_vars=[v])
    engine.push(nothing, const_vars=[v], mutate_vars=[w])
    engine.push(nothing, overwrite_vars=[v])
    engine.push(nothing, mutate_vars=[v])
    assert raised_by(engine, v) is None
    assert v.version == 3
    assert raised_by(engine, w) is not None, "what had been skipped stays poisoned"
    engine.push(nothing, const_vars=[v], overwrite_vars=[w])
    assert raised_by(engine, w) is None
    assert w.version == 1


@pytest.mark.parametrize("way", WAYS)
def test_errors_overwriting_that_fails_keeps_the_first_cause(engine, way):
    """Only an overwriting that succeeds takes the first cause away."""
    v, first = engine.new_variable(), ValueError("first")
    push_failing(engine, "sync", first, mutate_vars=[v])
    push_failing(engine, way, ValueError("second"), overwrite_vars=[v])
    assert raised_by(engine, v).__cause__ is first
    assert v.version == 2, "it did run"
    engine.push(nothing, overwrite_vars=[v])
    assert raised_by(engine, v) is None


def test_errors_overwriting_that_is_skipped_keeps_the_first_cause(engine):
    a, v, first = engine.new_variable(), engine.new_variable(), ValueError("first")
    push_failing(engine, "sync", first, mutate_vars=[v])
    push_failing(engine, "sync", ValueError("another"), mutate_vars=[a])
    engine.push(pytest.fail, const_vars=[a], overwrite_vars=[v])
    assert raised_by(engine, v).__cause__ is first
    assert v.version == 1


def test_errors_overwriting_poisons_if_it_fails_or_is_skipped(engine):
    a, v, w = (engine.new_variable() for _ in range(3))
    error = ValueError("planned")
    push_failing(engine, "sync", error, overwrite_vars=[a])
    engine.push(pytest.fail, const_vars=[a], overwrite_vars=[v])
    engine.push(pytest.fail, mutate_vars=[a], overwrite_vars=[w])
    for it in (a, v, w):
        assert raised_by(engine, it).__cause__ is error


def test_errors_overwriting_does_not_run_over_the_poison_of_what_it_reads(engine):
    """Read and overwritten is mutated."""
    v = engine.new_variable()
    push_failing(engine, "sync", ValueError("planned"), mutate_vars=[v])
    engine.push(pytest.fail, const_vars=[v], overwrite_vars=[v])
    engine.push(pytest.fail, mutate_vars=[v], overwrite_vars=[v])
    assert raised_by(engine, v) is not None
    assert v.version == 1


def test_errors_clear_error_makes_the_variable_usable(engine):
    v, w = engine.new_variable(), engine.new_variable()
    push_failing(engine, "sync", ValueError("planned"), mutate_vars=[v, w])
    engine.clear_error(v)
    engine.push(nothing, mutate_vars=[v])
    assert raised_by(engine, v) is None
    assert raised_by(engine, w) is not None
    assert (v.version, w.version) == (2, 1)


def test_errors_clear_error_is_ordered_like_an_operation(threaded, gate):
    """It clears what was pushed before it, and nothing that comes later."""
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    push_failing(threaded, "sync", ValueError("before"), mutate_vars=[v])
    threaded.clear_error(v)
    ran = []
    threaded.push(ran.append, mutate_vars=[v])
    later = ValueError("later")
    push_failing(threaded, "sync", later, mutate_vars=[v])
    gate.open()
    assert raised_by(threaded, v).__cause__ is later
    assert len(ran) == 1


def test_errors_clear_error_on_a_clean_variable_is_harmless(engine):
    v = engine.new_variable()
    assert engine.clear_error(v) is None
    engine.push(nothing, mutate_vars=[v])
    engine.clear_error(v)
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == 1


@pytest.mark.parametrize("queue", ["compute", "wide", "copy", "io", "priority"])
def test_errors_leave_the_workers_alive(make_engine, queue):
    engine = make_engine(workers=1, io_workers=1)
    for _ in range(200):
        engine.push(lambda rc: 1 / 0, queue=queue)
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v], queue=queue)
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert v.version == 1


def test_errors_of_a_wrong_number_of_arguments(engine):
    v, w = engine.new_variable(), engine.new_variable()
    engine.push(lambda: None, mutate_vars=[v])
    engine.push_async(lambda rc: None, mutate_vars=[w])
    for it in (v, w):
        assert isinstance(raised_by(engine, it).__cause__, TypeError)


def test_errors_are_the_same_in_both_kinds(make_engine):
    """A small program with every way to fail; each kind tells the same story."""
    stories = []
    for kind in ("threaded", "naive"):
        engine = make_engine(kind=kind)
        variables = [engine.new_variable() for _ in range(12)]
        for i, way in enumerate(WAYS):
            push_failing(engine, way, ValueError(way), mutate_vars=[variables[i]])
            engine.push(nothing, const_vars=[variables[i]], mutate_vars=[variables[i + 6]])
        story = []
        for v in variables:
            raised = raised_by(engine, v)
            story.append((raised.operation, str(raised), raised.where, str(raised.__cause__), v.version))
        stories.append(story)
    assert stories[0] == stories[1]


def test_an_error_that_on_done_leaves_unreported_is_reported_at_the_end():
    program = """
from weft.engine import default_engine
for answer in (None, False, True):
    default_engine().push(lambda c: 1 / 0, name=f"op {answer}", on_done=lambda error, answer=answer: answer)
"""
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True)
    assert "raised anywhere: op False: ZeroDivisionError" in done.stderr
    assert done.stderr.count("raised anywhere") == 1


def test_an_error_that_is_raised_while_on_done_runs_is_not_reported_at_the_end():
    """The results are ready before on_done is called; what it answers takes back no other thread's raise."""
    program = """
import threading
from weft.base.errors import EngineError
from weft.engine import Engine
engine, is_raised = Engine(kind="threaded"), threading.Event()
v = engine.new_variable()
engine.push(lambda c: 1 / 0, mutate_vars=[v], on_done=lambda error: not is_raised.wait(60))
try:
    engine.wait_for_var(v)
except EngineError:
    is_raised.set()
"""
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
