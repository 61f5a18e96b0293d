"""Types of attributes that accept some values only."""

import pytest

import weft as wf
from weft.ops.op import Attribute, Op, converter_of


def test_literals_accept_their_values_only():
    convert = converter_of("Literal['sum', 'mean', 3] | None")
    assert [convert(value) for value in ("sum", "mean", 3, None)] == ["sum", "mean", 3, None]
    for wrong in ("max", 3.0, True, ("sum",)):
        with pytest.raises(TypeError):
            convert(wrong)
    assert converter_of("tuple[Literal['h', 'w'], ...]")(["w", "h"]) == ("w", "h")


def test_a_wrong_choice_is_named_with_the_accepted_ones():
    class Resized(Op):
        name = "resized_of_tests"
        mode: "Literal['nearest', 'linear']" = "nearest"  # noqa: F821 - read as text

    assert repr(Resized.attributes[0]) == "mode: Literal['nearest', 'linear'] = 'nearest'"
    assert Resized(mode="linear").mode == "linear"
    with pytest.raises(TypeError, match=r"mode must be Literal\['nearest', 'linear'\], got 'cubic'"):
        Resized(mode="cubic")
    assert not hasattr(wf.functional, "resized_of_tests")
    with pytest.raises(TypeError, match=r"attribute mode: .* is not an attribute type; accepted are"):
        Attribute("mode", "Literals['a']", "a")
