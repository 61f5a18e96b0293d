"""Records: fields in order, defaults, refusals, and that nothing changes them."""

import pickle
from typing import ClassVar

import pytest

from weft.base.record import Record


class Span(Record):
    start: int
    step: int = 1
    unit: ClassVar[str] = "s"

    def check(self):
        if self.step == 0:
            raise ValueError("span: step must not be 0")


class Named(Span):
    name: str = ""


def test_fields_come_in_order_behind_those_of_the_base():
    assert repr(Named(3, 2, "a")) == "Named(start=3, step=2, name='a')"
    assert repr(Named(3, name="a")) == "Named(start=3, step=1, name='a')"
    assert Span(3).step == 1
    assert Span.unit == "s"


@pytest.mark.parametrize(
    ("values", "named", "fact"),
    [
        ((), {}, "start is missing"),
        ((), {"step": 2}, "start is missing"),
        ((1, 2, 3), {}, "takes 2 values, got 3"),
        ((1,), {"start": 1}, "start is given twice"),
        ((1,), {"stop": 1}, "has no stop"),
        ((1,), {"unit": "m"}, "has no unit"),
    ],
)
def test_what_does_not_fit_is_refused(values, named, fact):
    with pytest.raises(TypeError, match=f"Span: {fact}; fields are start, step"):
        Span(*values, **named)


def test_check_sees_the_fields():
    with pytest.raises(ValueError, match="step must not be 0"):
        Span(1, step=0)


def test_nothing_changes_one():
    span = Span(1)
    for change in (lambda: setattr(span, "start", 2), lambda: delattr(span, "start")):
        with pytest.raises(AttributeError, match="Span is immutable: cannot"):
            change()
    assert span.start == 1


def test_two_are_never_equal_but_copies_can_be_made():
    assert Span(1) != Span(1)
    assert len({Span(1), Span(1)}) == 2
    assert repr(Span(1, 2).replaced(step=3)) == "Span(start=1, step=3)"
    assert repr(pickle.loads(pickle.dumps(Span(1, 2)))) == "Span(start=1, step=2)"
