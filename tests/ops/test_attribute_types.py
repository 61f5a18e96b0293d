"""Types of attributes that accept some values only."""

import pytest

import weft as wf
from weft.ops.attributes import Attribute, attribute_type, converter_of
from weft.ops.op import Op


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


def test_an_attribute_type_is_the_class_that_its_name_has_where_the_operator_is_defined():
    def mode():
        @attribute_type
        class Mode:
            pass

        return Mode

    def operator(number, annotation):
        body = {
            "name": f"of_a_mode{number}_of_tests",
            "__annotations__": {"m": annotation, "several": "int | None"},
        }
        return type("OfAMode", (Op,), body | {"several": None, "__module__": __name__})

    first = mode()
    old = operator(1, "Mode | None")
    second = mode()
    new = operator(2, "Mode | None")
    evaluated = operator(3, first | None)
    for cls, own, other in ((old, first, second), (new, second, first), (evaluated, first, second)):
        m = own()
        assert cls(m=m).m is m
        assert cls(m=None).m is None
        with pytest.raises(TypeError, match=r"m must be Mode \| None, got <"):
            cls(m=other())
    globals()["Mode"] = first  # of this module, another library's is the last one
    try:
        assert operator(4, "tuple[Mode, ...]")(m=[first()])
    finally:
        del globals()["Mode"]
