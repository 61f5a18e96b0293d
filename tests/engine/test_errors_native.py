"""Native functions may throw anything; it poisons like a Python exception and never ends the process."""

import pytest

from weft import _core
from weft.base.errors import EngineError
from weft.engine import NativeFunction

testing = _core.testing


@pytest.fixture(params=[False, True], ids=["queued", "cheap"])
def cheap(request):
    return request.param


@pytest.mark.parametrize("how", ["throw_std", "throw_int"])
@pytest.mark.parametrize("queue", ["compute", "wide", "copy", "io", "priority"])
def test_errors_native_exceptions_poison(engine, how, queue, cheap):
    v, w = engine.new_variable(), engine.new_variable()
    fn = NativeFunction(getattr(testing, how), cheap=cheap, name="thrower")
    engine.push(fn, mutate_vars=[v], queue=queue)
    engine.push(pytest.fail, const_vars=[v], mutate_vars=[w])
    for it in (v, w, v):
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(it)
        assert caught.value.operation == "thrower"
        assert caught.value.where
    assert (v.version, w.version) == (1, 0)
    engine.push(NativeFunction(testing.noop, cheap=cheap), overwrite_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 2
    with pytest.raises(EngineError):
        engine.wait_for_all()
    engine.wait_for_all()


def test_errors_native_exceptions_tell_what_they_say(engine, cheap):
    v = engine.new_variable()
    engine.push(NativeFunction(testing.throw_std, cheap=cheap), mutate_vars=[v])
    with pytest.raises(EngineError, match="C\\+\\+ exception"):
        engine.wait_for_var(v)


def test_errors_native_exceptions_of_unknown_type_are_told_as_such(engine, cheap):
    v = engine.new_variable()
    engine.push(NativeFunction(testing.throw_int, cheap=cheap), mutate_vars=[v])
    with pytest.raises(EngineError, match=r"int|unknown"):
        engine.wait_for_var(v)


def test_errors_native_operators_and_bulks(engine, cheap):
    v, w = engine.new_variable(), engine.new_variable()
    engine.push(
        engine.new_operator(NativeFunction(testing.throw_std, cheap=cheap), mutate_vars=[v], name="op")
    )
    with engine.bulk(8):
        engine.push(NativeFunction(testing.noop, cheap=cheap), mutate_vars=[w])
        engine.push(NativeFunction(testing.throw_int, cheap=cheap), mutate_vars=[w], name="part")
        engine.push(NativeFunction(testing.noop, cheap=cheap), mutate_vars=[w])
    for it, name, version in ((v, "op", 1), (w, "part", 2)):
        with pytest.raises(EngineError) as caught:
            engine.wait_for_var(it)
        assert caught.value.operation == name
        assert it.version == version


def test_errors_native_a_skipped_native_function_is_not_called(engine, cheap):
    v = engine.new_variable()
    first = ValueError("first")

    def fail(rc):
        raise first

    engine.push(fail, mutate_vars=[v])
    for _ in range(10):
        engine.push(NativeFunction(testing.throw_int, cheap=cheap), mutate_vars=[v])
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert caught.value.__cause__ is first
    assert v.version == 1
