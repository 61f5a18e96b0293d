import pickle

import pytest

from weft.base.errors import DeviceError, DTypeError, EngineError, EngineErrorGroup, GraphError, ShapeError


@pytest.mark.parametrize(
    ("error", "python_error"),
    [
        (ShapeError, ValueError),
        (DTypeError, TypeError),
        (DeviceError, RuntimeError),
        (GraphError, ValueError),
        (EngineError, RuntimeError),
        (EngineErrorGroup, EngineError),
        (EngineErrorGroup, ExceptionGroup),
    ],
)
def test_each_error_is_one_of_pythons(error, python_error):
    assert issubclass(error, python_error)


def errors():
    return [
        EngineError("a failed", operation="a", where="x.py:1"),
        EngineError("b failed", operation="b", where="x.py:2"),
    ]


def test_engine_error_carries_its_operation_and_line():
    error = errors()[0]
    assert (str(error), error.operation, error.where) == ("a failed", "a", "x.py:1")
    assert (EngineError("stopped").operation, EngineError("stopped").where) == ("", "")


def test_a_group_is_both_an_engine_error_and_a_group():
    group = EngineErrorGroup("2 operations failed", errors())
    assert (group.message, group.operation, group.where) == ("2 operations failed", "a", "x.py:1")
    assert str(group) == "2 operations failed (2 sub-exceptions)"
    assert group.exceptions[1].operation == "b"


def test_except_star_splits_a_group():
    caught = []
    mixed = EngineErrorGroup("2 operations failed", [*errors(), ShapeError("c")])
    try:
        raise mixed
    except* EngineError as group:
        caught.append(group)
    except* ShapeError as group:
        caught.append(group)
    assert caught == [mixed]  # the group itself is an EngineError, so except* takes it whole

    match, rest = mixed.split(ShapeError)
    assert isinstance(match, EngineErrorGroup)
    assert isinstance(rest, EngineErrorGroup)
    assert [type(error) for error in match.exceptions] == [ShapeError]
    assert [error.operation for error in rest.exceptions] == ["a", "b"]


def test_a_group_keeps_traceback_notes_and_cause_when_split():
    cause = KeyError("k")
    try:
        raise EngineErrorGroup("m", errors()) from cause
    except EngineErrorGroup as error:
        error.add_note("a note")
        part = error.subgroup(lambda each: getattr(each, "operation", None) == "b")
    assert part.__cause__ is cause
    assert part.__notes__ == ["a note"]
    assert part.operation == "b"


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(errors()[0]))
    assert (str(error), error.operation, error.where) == ("a failed", "a", "x.py:1")
    group = pickle.loads(pickle.dumps(EngineErrorGroup("m", errors())))
    assert type(group) is EngineErrorGroup
    assert (group.message, group.operation, [each.where for each in group.exceptions]) == (
        "m",
        "a",
        ["x.py:1", "x.py:2"],
    )


@pytest.mark.parametrize(
    ("exceptions", "error"), [([], ValueError), ([1], (TypeError, ValueError)), (None, TypeError)]
)
def test_a_group_needs_exceptions(exceptions, error):
    with pytest.raises(error):
        EngineErrorGroup("m", exceptions)
