"""wait_for_all reports each cause once: one as EngineError, several as EngineErrorGroup."""

import itertools

import pytest

import weft
from weft.base.errors import EngineError, EngineErrorGroup

from .support import LIMIT_S, causes_of


def nothing(rc):
    pass


def fail_with(error):
    def fail(rc):
        raise error

    return fail


def reported(engine):
    """The causes that wait_for_all reports now."""
    try:
        engine.wait_for_all(timeout_s=LIMIT_S)
    except EngineError as error:
        return causes_of(error)
    return []


def test_errors_wait_for_all_reports_one_cause_as_engine_error(engine):
    v, error = engine.new_variable(), ValueError("planned")
    engine.push(fail_with(error), mutate_vars=[v], name="failing")
    with pytest.raises(EngineError) as caught:
        engine.wait_for_all()
    assert not isinstance(caught.value, EngineErrorGroup)
    assert caught.value.operation == "failing"
    assert caught.value.__cause__ is error
    engine.wait_for_all()


def test_errors_wait_for_all_reports_several_causes_as_a_group(engine):
    errors = [ValueError(i) for i in range(5)]
    for i, error in enumerate(errors):
        engine.push(fail_with(error), mutate_vars=[engine.new_variable()], name=f"op{i}")
    with pytest.raises(EngineErrorGroup) as caught:
        engine.wait_for_all()
    group = caught.value
    assert isinstance(group, EngineError)
    assert isinstance(group, ExceptionGroup)
    assert all(type(e) is EngineError for e in group.exceptions)
    assert {e.operation: e.__cause__ for e in group.exceptions} == {f"op{i}": e for i, e in enumerate(errors)}
    engine.wait_for_all()


def test_errors_wait_for_all_reports_of_base_exceptions_too(engine):
    errors = [KeyboardInterrupt(), SystemExit(1), ValueError()]
    for error in errors:
        engine.push(fail_with(error))
    with pytest.raises(EngineErrorGroup) as caught:
        engine.wait_for_all()
    assert {id(e) for e in causes_of(caught.value)} == {id(e) for e in errors}


def test_errors_wait_for_all_groups_can_be_split(engine):
    for error in (ValueError("one"), KeyError("two")):
        engine.push(fail_with(error), name=type(error).__name__)
    seen = []
    try:
        engine.wait_for_all()
    except* EngineError as group:
        seen += [e.operation for e in group.exceptions]
    assert sorted(seen) == ["KeyError", "ValueError"]


def test_errors_wait_for_all_reports_a_failure_that_nothing_was_to_be_written_by(engine):
    error = ValueError("planned")
    engine.push(fail_with(error))
    assert reported(engine) == [error]
    assert reported(engine) == []


def test_errors_wait_for_all_reports_a_cause_once_however_far_it_spread(engine):
    error = ValueError("planned")
    variables = [engine.new_variable() for _ in range(20)]
    engine.push(fail_with(error), mutate_vars=variables[:3])
    for before, after in itertools.pairwise(variables):
        engine.push(nothing, const_vars=[before], mutate_vars=[after])
    assert reported(engine) == [error]
    assert reported(engine) == []
    with pytest.raises(EngineError):
        engine.wait_for_var(variables[-1])


def test_errors_wait_for_all_is_independent_of_wait_for_var(engine):
    v, error = engine.new_variable(), ValueError("planned")
    engine.push(fail_with(error), mutate_vars=[v])
    for _ in range(3):
        with pytest.raises(EngineError):
            engine.wait_for_var(v)
    assert reported(engine) == [error]
    assert reported(engine) == []
    with pytest.raises(EngineError) as caught:
        engine.wait_for_var(v)
    assert caught.value.__cause__ is error


def test_errors_wait_for_all_does_not_report_what_was_cleared(engine):
    v, w, seen, hidden = (
        engine.new_variable(),
        engine.new_variable(),
        ValueError("seen"),
        ValueError("cleared"),
    )
    engine.push(fail_with(hidden), mutate_vars=[v])
    engine.push(fail_with(seen), mutate_vars=[w])
    engine.clear_error(v)
    assert reported(engine) == [seen]


def test_errors_wait_for_all_reports_what_was_overwritten(engine):
    """Overwriting gives a good value, but nobody has said that the failure was expected."""
    v, error = engine.new_variable(), ValueError("planned")
    engine.push(fail_with(error), mutate_vars=[v])
    engine.push(nothing, overwrite_vars=[v])
    engine.wait_for_var(v)
    assert reported(engine) == [error]


def test_errors_wait_for_all_reports_what_was_deleted(engine):
    v, error = engine.new_variable(), ValueError("planned")
    engine.push(fail_with(error), mutate_vars=[v])
    engine.delete_variable(v)
    assert reported(engine) == [error]


def test_errors_wait_for_all_reports_only_failures_since_the_last(engine):
    for i in range(5):
        error = ValueError(i)
        engine.push(fail_with(error), mutate_vars=[engine.new_variable()])
        assert reported(engine) == [error]


def test_errors_wait_for_all_reports_asynchronous_failures(engine):
    error = OSError("late")
    engine.push_async(lambda rc, on_complete: on_complete(error), mutate_vars=[engine.new_variable()])
    assert reported(engine) == [error]


def test_errors_wait_for_all_reports_the_failures_of_a_bulk_one_by_one(engine):
    errors = [ValueError(i) for i in range(4)]
    with engine.bulk(16):
        for error in errors:
            engine.push(fail_with(error), mutate_vars=[engine.new_variable()])
            engine.push(nothing)
    assert {id(e) for e in reported(engine)} == {id(e) for e in errors}


def test_errors_wait_for_all_of_one_engine_reports_nothing_of_another(engine, make_engine):
    other, error = make_engine(workers=1), ValueError("planned")
    other.push(fail_with(error))
    engine.push(nothing)
    assert reported(engine) == []
    assert reported(other) == [error]


def test_errors_wait_for_all_after_a_time_limit_reports_all_the_same(engine):
    error, callbacks = ValueError("planned"), []
    engine.push_async(lambda rc, on_complete: callbacks.append(on_complete))
    engine.push(fail_with(error))
    with pytest.raises(TimeoutError):
        engine.wait_for_all(timeout_s=0.05)
    callbacks.pop()()
    assert reported(engine) == [error]


def test_errors_are_found_in_the_package():
    assert weft.EngineError is EngineError
    assert weft.EngineErrorGroup is EngineErrorGroup
