"""Bad input: the right class of error, a message that names what is accepted, and an engine that works on."""

import contextlib
import re

import pytest

import weft
from weft.base.errors import DeviceError, EngineError
from weft.engine import Engine, Operator, RunContext, Variable

from .support import LIMIT_S


def named(value):
    """The value in the name of a test, which is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def nothing(rc):
    pass


@pytest.fixture(autouse=True)
def _works_on(engine):
    """Whatever was refused, the engine works as before, and nothing has been left pending."""
    yield
    v = engine.new_variable()
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert v.version == 1
    assert engine.stats()["pending"] == 0


@pytest.mark.parametrize("fn", [None, 3, "print", object(), [nothing]], ids=named)
def test_arguments_functions_must_be_callable(engine, fn):
    for use in (engine.push, engine.push_async, engine.new_operator):
        with pytest.raises(TypeError, match=r"(?i)callable"):
            use(fn)


def test_arguments_a_function_is_needed(engine):
    for use in (engine.push, engine.push_async, engine.new_operator):
        with pytest.raises(TypeError):
            use()


@pytest.mark.parametrize("name", ["const_vars", "mutate_vars", "overwrite_vars"])
@pytest.mark.parametrize("value", [3, None, "v", [3], [None], ["v"], (object(),), {1: 2}], ids=named)
def test_arguments_variables_must_be_variables(engine, name, value):
    for use in (engine.push, engine.push_async, engine.new_operator):
        with pytest.raises(TypeError, match=r"Variable") as caught:
            use(nothing, **{name: value})
        assert name in str(caught.value)


@pytest.mark.parametrize("name", ["const_vars", "mutate_vars", "overwrite_vars"])
def test_arguments_a_variable_alone_is_no_list(engine, name):
    v = engine.new_variable()
    with pytest.raises(TypeError, match="sequence"):
        engine.push(nothing, **{name: v})


def test_arguments_a_list_that_raises_raises_that(engine):
    def broken():
        yield engine.new_variable()
        raise KeyError("from the list")

    with pytest.raises((KeyError, TypeError)):
        engine.push(nothing, const_vars=broken())


def test_arguments_queues_are_not_none(engine):
    """Only that of an operator may be left open."""
    for use in (engine.push, engine.push_async):
        with pytest.raises((TypeError, ValueError), match="queue"):
            use(nothing, queue=None)
    engine.new_operator(nothing, queue=None)


@pytest.mark.parametrize("queue", ["", "fast", "Compute", 3, b"io"], ids=named)
def test_arguments_queues_are_named(engine, queue):
    for use in (engine.push, engine.push_async, engine.new_operator):
        with pytest.raises((ValueError, TypeError), match=r"compute.*wide.*copy.*io.*priority"):
            use(nothing, queue=queue)


@pytest.mark.parametrize("device", ["tpu", "cpu:x", "cpu:-1", "cpu:1:2", "", "cpu 1"], ids=named)
def test_arguments_devices_have_names(engine, device):
    for use in (engine.push, engine.push_async):
        with pytest.raises((ValueError, DeviceError), match="cpu"):
            use(nothing, device)


@pytest.mark.parametrize("device", [3, 1.5, object(), ["cpu"]], ids=named)
def test_arguments_devices_are_names_or_devices(engine, device):
    with pytest.raises((TypeError, ValueError, DeviceError)):
        engine.push(nothing, device)


def test_arguments_devices_far_out_are_refused_or_work(engine):
    for index in (63, 64, 100, 1 << 31, 1 << 70):
        with contextlib.suppress(ValueError, DeviceError, EngineError, OverflowError):
            engine.push(nothing, f"cpu:{index}")
    engine.wait_for_all(timeout_s=LIMIT_S)


def test_arguments_missing_devices_are_device_errors(engine):
    for device in ("gpu", "gpu:1", weft.gpu(0)):
        with pytest.raises(DeviceError, match="gpu"):
            engine.push(nothing, device)


@pytest.mark.parametrize("priority", ["high", 1.5, None, 1 << 40], ids=named)
def test_arguments_priorities_are_small_integers(engine, priority):
    op = engine.new_operator(nothing)
    for use in (
        lambda: engine.push(nothing, priority=priority),
        lambda: engine.push_async(nothing, priority=priority),
        lambda: engine.push(op, priority=priority),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError), match=r"priority|int"):
            use()


@pytest.mark.parametrize("size", [-1, -(1 << 40), "big", 1.5], ids=named)
def test_arguments_sizes_are_not_negative(engine, size):
    for use in (engine.push, engine.push_async):
        with pytest.raises((TypeError, ValueError), match=r"size_bytes|int"):
            use(nothing, size_bytes=size)


def test_arguments_names_are_text(engine):
    for name in (3, b"name", object()):
        with pytest.raises(TypeError, match=r"name|str"):
            engine.push(nothing, name=name)


def test_arguments_names_may_hold_any_text(engine):
    seen = []
    for name in ("ünïcødé ∑", "with\nline", "x" * 100_000, "%s {}", "\x00"):
        engine.push(
            lambda rc: seen.append(rc.operation), name=name, mutate_vars=[(v := engine.new_variable())]
        )
        engine.wait_for_var(v)
    assert seen == ["ünïcødé ∑", "with\nline", "x" * 100_000, "%s {}", "\x00"]


def test_arguments_on_done_must_be_callable(engine):
    for use in (engine.push, engine.push_async):
        with pytest.raises(TypeError, match="on_done"):
            use(nothing, on_done=3)


def test_arguments_on_deleted_must_be_callable(engine):
    v = engine.new_variable()
    with pytest.raises(TypeError, match="on_deleted"):
        engine.delete_variable(v, 3)
    engine.push(nothing, mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 1, "it has not been deleted"


def test_arguments_misspelt_ones_are_refused(engine):
    for wrong in ("mutable_vars", "reads", "ctx"):
        with pytest.raises(TypeError):
            engine.push(nothing, **{wrong: ()})


def test_arguments_queue_and_what_follows_go_by_name(engine):
    with pytest.raises(TypeError):
        engine.push(nothing, None, (), (), (), 0, "", "compute")


@pytest.mark.parametrize(
    "options",
    [{"const_vars": 1}, {"mutate_vars": 1}, {"overwrite_vars": 1}, {"name": "x"}, {"on_done": nothing}],
    ids=named,
)
def test_arguments_of_an_operator_are_its_own(engine, options):
    """Those given once are not given again."""
    options = {name: [engine.new_variable()] if value == 1 else value for name, value in options.items()}
    op = engine.new_operator(nothing)
    with pytest.raises(TypeError, match="Operator"):
        engine.push(op, **options)


def test_arguments_push_async_takes_no_operator(engine):
    with pytest.raises(TypeError, match="operator"):
        engine.push_async(engine.new_operator(nothing))


@pytest.mark.parametrize("value", [None, 3, "v", object()], ids=named)
def test_arguments_where_one_variable_is_meant(engine, value):
    for use in (engine.wait_for_var, engine.clear_error, engine.delete_variable, engine.check_access):
        with pytest.raises(TypeError, match="Variable"):
            use(value)


@pytest.mark.parametrize("value", [None, 3, nothing], ids=["None", "3", "function"])
def test_arguments_where_an_operator_is_meant(engine, value):
    with pytest.raises(TypeError, match="Operator"):
        engine.delete_operator(value)


@pytest.mark.parametrize("timeout_s", [-1, -0.001, float("nan"), float("-inf")], ids=named)
def test_arguments_time_limits_are_not_negative(engine, timeout_s):
    v = engine.new_variable()
    for use in (
        lambda: engine.wait_for_var(v, timeout_s=timeout_s),
        lambda: engine.wait_for_all(timeout_s),
        lambda: engine.stop(timeout_s),
    ):
        with pytest.raises(ValueError, match="timeout_s"):
            use()


@pytest.mark.parametrize("timeout_s", ["1", [], object()], ids=["str", "list", "object"])
def test_arguments_time_limits_are_numbers(engine, timeout_s):
    with pytest.raises(TypeError):
        engine.wait_for_all(timeout_s)
    with pytest.raises(TypeError):
        engine.wait_for_var(engine.new_variable(), timeout_s=timeout_s)


def test_arguments_an_endless_time_limit_is_none(engine):
    engine.wait_for_all(float("inf"))
    engine.wait_for_var(engine.new_variable(), timeout_s=float("inf"))


def test_arguments_engine_kinds(engine):
    for kind in ("", "Naive", "fast", "explore", None, 3):
        with pytest.raises((ValueError, TypeError)) as caught:
            Engine(kind=kind)
        assert "threaded" in str(caught.value)
        assert "naive" in str(caught.value)


@pytest.mark.parametrize("name", ["workers", "io_workers", "max_pending", "max_pending_bytes"])
@pytest.mark.parametrize("value", [0, -1, -(1 << 70)], ids=named)
def test_arguments_engine_numbers_are_positive(engine, name, value):
    with pytest.raises(ValueError, match=name):
        Engine(**{name: value})


@pytest.mark.parametrize("name", ["workers", "io_workers", "max_pending", "max_pending_bytes"])
@pytest.mark.parametrize("value", ["2", 1.5, [], object], ids=named)
def test_arguments_engine_numbers_are_integers(engine, name, value):
    with pytest.raises(TypeError, match=name):
        Engine(**{name: value})


@pytest.mark.parametrize("name", ["workers", "io_workers"])
def test_arguments_engine_threads_are_not_beyond_reason(engine, name):
    with pytest.raises(ValueError, match=name):
        Engine(**{name: 1 << 40})


def test_arguments_engine_limits_may_be_huge(engine):
    other = Engine(workers=1, max_pending=1 << 40, max_pending_bytes=1 << 60)
    v = other.new_variable()
    other.push(nothing, mutate_vars=[v], size_bytes=1 << 60)
    other.wait_for_var(v, timeout_s=LIMIT_S)
    other.stop()


@pytest.mark.parametrize("seed", ["1", 1.5, object()], ids=["str", "float", "object"])
def test_arguments_engine_seeds_are_integers(engine, seed):
    with pytest.raises(TypeError):
        Engine(schedule_seed=seed)


def test_arguments_engine_seeds_are_for_threaded_engines(engine):
    with pytest.raises(ValueError, match="schedule_seed"):
        Engine(kind="naive", schedule_seed=1)


@pytest.mark.parametrize("cls", [Variable, Operator, RunContext], ids=lambda c: c.__name__)
def test_arguments_handles_are_made_by_the_engine(engine, cls):
    with pytest.raises(TypeError):
        cls()


def test_arguments_foreign_objects_that_lie_about_themselves(engine):
    class Liar:
        __class__ = Variable

    with pytest.raises(TypeError):
        engine.push(nothing, mutate_vars=[Liar()])


def test_arguments_tell_themselves_in_repr(engine):
    v = engine.new_variable()
    op = engine.new_operator(nothing, name="an operator")
    assert engine.kind in repr(engine)
    assert "0" in repr(v)
    assert "an operator" in repr(op)


def test_arguments_too_many_variables_are_refused_or_work(engine):
    v = [engine.new_variable() for _ in range(3)]
    for count in (65_535, 65_536, 70_000):
        with contextlib.suppress(ValueError, EngineError):
            engine.push(nothing, const_vars=v[:1] * count, mutate_vars=v[1:2])
    many = [engine.new_variable() for _ in range(70_000)]
    with contextlib.suppress(ValueError, EngineError):
        engine.push(nothing, mutate_vars=many)
    engine.wait_for_all(timeout_s=LIMIT_S)
