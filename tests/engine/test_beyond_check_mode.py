"""Beyond: a checking mode that finds operations touching what they did not declare."""

import pytest

from weft.base.errors import EngineError

from .support import LIMIT_S, Signal


def outcome(engine, variable, write):
    try:
        engine.check_access(variable, write=write)
    except EngineError as error:
        return str(error)
    return "allowed"


@pytest.fixture(params=["threaded", "naive"])
def checked(request, make_engine):
    return make_engine(kind=request.param, check=True)


@pytest.mark.parametrize(
    ("declared", "may_read", "may_write"),
    [
        ("const_vars", True, False),
        ("mutate_vars", True, True),
        ("overwrite_vars", None, True),
        (None, False, False),
    ],
)
def test_beyond_check_mode_inside_a_function(checked, declared, may_read, may_write):
    """An overwriting function may write; whether it may read what it wrote is left open."""
    v, other, seen = checked.new_variable(), checked.new_variable(), []

    def fn(rc):
        seen.extend(outcome(checked, v, write) == "allowed" for write in (False, True))

    access = {"mutate_vars": [other]}
    if declared:
        access[declared] = [*access.get(declared, ()), v]
    checked.push(fn, **access)
    checked.wait_for_var(other)
    assert seen[1] is may_write
    assert may_read is None or seen[0] is may_read


def test_beyond_check_mode_names_the_operation(checked):
    v, seen = checked.new_variable(), []
    checked.push(lambda rc: seen.append(outcome(checked, v, True)), const_vars=[v], name="the culprit")
    checked.wait_for_all()
    assert "the culprit" in seen[0]


def test_beyond_check_mode_uncaught_fails_the_operation(checked):
    v, w = checked.new_variable(), checked.new_variable()
    checked.push(lambda rc: checked.check_access(v), mutate_vars=[w])
    with pytest.raises(EngineError) as caught:
        checked.wait_for_var(w)
    assert isinstance(caught.value.__cause__, EngineError)


def test_beyond_check_mode_inside_asynchronous_functions_operators_and_bulks(checked):
    v, w, seen = checked.new_variable(), checked.new_variable(), []

    def fn(rc, on_complete=lambda: None):
        seen.append((outcome(checked, v, False) == "allowed", outcome(checked, w, False) == "allowed"))
        on_complete()

    checked.push_async(fn, const_vars=[v])
    checked.push(checked.new_operator(fn, const_vars=[v]))
    checked.push(checked.new_operator(fn, const_vars=[v], is_async=True))
    with checked.bulk(4):
        checked.push(lambda rc: None, mutate_vars=[w])
        checked.push(fn, const_vars=[v])
    checked.wait_for_all()
    assert seen == [(True, False)] * 4


def test_beyond_check_mode_outside_allows_what_nothing_pending_conflicts_with(checked):
    v = checked.new_variable()
    assert outcome(checked, v, False) == "allowed"
    assert outcome(checked, v, True) == "allowed"
    checked.push(lambda rc: None, mutate_vars=[v])
    checked.wait_for_var(v)
    assert outcome(checked, v, True) == "allowed"


@pytest.mark.parametrize("pending", ["const_vars", "mutate_vars", "overwrite_vars"])
def test_beyond_check_mode_outside_refuses_what_conflicts(checked, pending):
    v, callbacks, started = checked.new_variable(), [], Signal()

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    checked.push_async(fn, **{pending: [v]})
    started.wait_or_fail()
    assert (outcome(checked, v, False) == "allowed") == (pending == "const_vars")
    assert outcome(checked, v, True) != "allowed"
    callbacks.pop()()
    checked.wait_for_var(v, timeout_s=LIMIT_S)
    assert outcome(checked, v, True) == "allowed"


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_beyond_check_mode_off_allows_everything(make_engine, kind):
    engine = make_engine(kind=kind, check=False)
    v, seen = engine.new_variable(), []
    engine.push(lambda rc: seen.append(outcome(engine, v, True)))
    engine.wait_for_all()
    assert seen == ["allowed"]


@pytest.mark.parametrize(("value", "expected"), [("1", "EngineError"), ("0", "allowed"), (None, "allowed")])
def test_beyond_check_mode_follows_the_environment(script, value, expected):
    script(
        """
        from weft.engine import Engine
        engine = Engine()
        v, seen = engine.new_variable(), []
        def fn(rc):
            try:
                engine.check_access(v, write=True)
                seen.append("allowed")
            except Exception as error:
                seen.append(type(error).__name__)
        engine.push(fn, const_vars=[v])
        engine.wait_for_all()
        print(*seen)
        """,
        env={"WEFT_CHECK": value},
        expect_stdout=expected,
    )


def test_beyond_check_mode_finds_the_undeclared_access_of_a_small_program(checked):
    """A cell that checks each access, used by functions of which one forgot to say so."""

    class Cell:
        def __init__(self):
            self.variable, self._value = checked.new_variable(), 0

        @property
        def value(self):
            checked.check_access(self.variable)
            return self._value

        @value.setter
        def value(self, value):
            checked.check_access(self.variable, write=True)
            self._value = value

    a, b, c = Cell(), Cell(), Cell()

    def add(out, x, y):
        def run(rc):
            out.value = x.value + y.value

        return run

    a.value, b.value = 2, 3
    checked.push(add(c, a, b), const_vars=[a.variable, b.variable], mutate_vars=[c.variable], name="declared")
    checked.wait_for_var(c.variable)
    assert c.value == 5
    checked.push(add(c, a, b), const_vars=[a.variable], mutate_vars=[c.variable], name="forgot b")
    with pytest.raises(EngineError) as caught:
        checked.wait_for_var(c.variable)
    assert caught.value.operation == "forgot b"
