"""The rules of operators (weft.ops.rules) against what their operators compute, and rules of a test's own."""

import random

import pytest
from tests.ops.support import OPERATORS

import weft as wf
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.ops import registry
from weft.ops.op import Op, parameters
from weft.ops.rules import parse, solve
from weft.ops.shapes import Contradiction
from weft.ops.sizes import NeedsSizes, extent
from weft.ops.types import TensorType

RULED = [cls for cls in map(registry.get, registry.names()) if cls.rule]


class Mix(
    Op, rule="x[...,k]: float, w[k,*r]?: int|float, *rest[k] -> y[...,*r,2*k]: promote, z[1,n^2]: int32"
):
    """An operator that is only inferred."""

    n: tuple[int, ...] = (3, 4)


class Wide(Op, rule="x[groups*c,s^rank]: number -> y[c,*spread()]: accumulation(x), m: dtype or x"):
    """Sizes that a method computes, a product, an attribute's dtype."""

    groups: int = 2
    rank = 2
    dtype: object = None

    def spread(self, x):
        return tuple(3 * n for n in x.shape[1:])


def t(*shape, dtype="float32"):
    return TensorType(shape, as_dtype(dtype))


@pytest.mark.parametrize("cls", RULED, ids=lambda cls: cls.name)
def test_a_rule_names_the_inputs_of_the_operators_methods(cls):
    names = [spec.name for spec in cls.inputs]
    for method in ("infer", "decompose", "kernels"):
        rule = getattr(cls, method)
        if rule is not getattr(Op, method) and parameters(rule) and not parameters(rule)[0].variadic:
            assert [spec.name for spec in parameters(rule)] == names, method
    assert set(cls.learnable) <= set(names)


def test_what_a_rule_says():
    y, z = Mix().infer(t(5, 1, 7), t(7, 6), t(7), t(7))
    assert (y.shape, y.dtype.name, z.shape, z.dtype.name) == ((5, 1, 6, 14), "float32", (1, 3, 4), "int32")
    assert [repr(spec) for spec in Mix.inputs] == ["x", "w=None", "*rest"]
    assert Mix.outputs == ("y", "z")
    assert Wide().infer_dtypes(t(dtype="float16")) == (as_dtype("float32"), as_dtype("float16"))
    with pytest.raises(NotImplementedError, match="does not say the shape of m"):
        Wide().infer(t(4, 2, 3))
    assert Wide().match(t(4, 2, 3)) == (as_dtype("float32"),) * 2


@pytest.mark.parametrize(
    ("operands", "error", "words"),
    [
        ((t(5, 7), t(6, 6)), ShapeError, "mix: x has 7 k, w expects 6: x is f32[5,7]@cpu:0, w is f32[6,6]"),
        ((t(5, 7), t(7), t(6)), ShapeError, "x has 7 k, rest expects 6"),
        ((t(), t(7)), ShapeError, "x needs at least 1 dimension, [...,k], it has 0"),
        ((t(5, 7), t(7, 2), t(7, 7)), ShapeError, "rest needs 1 dimension, [k], it has 2"),
        ((t(5, 7, dtype="int32"), t(7)), DTypeError, "takes floating-point types as x"),
        ((t(5, 7), t(7, dtype="bool")), DTypeError, "takes integers or floating-point types as w"),
    ],
)
def test_errors(operands, error, words):
    with pytest.raises(error) as caught:
        Mix().infer(*operands)
    assert words in str(caught.value)


def test_products():
    with pytest.raises(ShapeError, match=r"wide: x has 5 c, not a multiple of groups=2"):
        Wide().match(t(5, 1, 1))
    n = extent(0, 0)
    assert Wide(groups=1).match(TensorType((n, 2, 3), as_dtype("int8")))[0].name == "int8"
    with pytest.raises(NeedsSizes):
        Wide(groups=3).match(TensorType((n, 2, 3), as_dtype("float32")))


@pytest.mark.parametrize(
    "text",
    ["x", "x ->", "x[n -> y", "x: real -> y", "2x -> y", "x[n]: learned -> y", "x[n]]: float -> y"],
)
def test_texts_that_are_no_rules(text):
    with pytest.raises(ValueError, match="no rule of an operator"):
        parse(text)


RULES = (
    "x[*b,k], w[n,k], b[n]? -> y[*b,n]",
    "x[n,g*c,s^2], w[o,c,k^2], b[o]? -> y[n,o,p^2]",
    "q[...,n,d], k[...,m,d], v[...,m,e] -> y[...,n,e]",
    "x[*b,*r], w[*r]? -> y[*b,*r], m[*b]",
)
VALUES = {"g": 2, "r": (3, 2)}


def random_shapes(rule, rng):
    """Shapes that fit a rule."""
    sizes = dict(VALUES)
    runs = {"r": (3, 2)}
    full = [rng.choice((1, 2, 3)) for _ in range(rng.randrange(3))]
    shapes = {}
    for operand in (*rule.inputs, *rule.outputs):
        shape = []
        for dim in operand.dims:
            if dim.text == "...":
                is_output = operand in rule.outputs
                lead = full if is_output else full[rng.randrange(len(full) + 1) :]
                shape += (
                    lead if is_output else [rng.choice((1, n)) if operand.name != "q" else n for n in lead]
                )
            elif dim.run:
                length = dim.rank if isinstance(dim.rank, int) else rng.randrange(3)
                shape += runs.setdefault(dim.run, tuple(rng.randrange(1, 4) for _ in range(length)))
            else:
                size = 1
                for factor in (dim.products or ((dim.name,),))[0]:
                    size *= sizes.setdefault(factor, rng.randrange(1, 5))
                shape.append(size)
        shapes[operand.name] = tuple(shape)
    if "q" in shapes:
        shapes["q"] = (*full, *shapes["q"][-2:])
    return shapes


@pytest.mark.parametrize("text", RULES)
def test_partial_shapes_are_completed_and_never_contradicted(text):
    """What is found of partly known shapes agrees with the shapes that they were taken from."""
    rule, rng = parse(text), random.Random(7)
    for _ in range(300):
        shapes = random_shapes(rule, rng)
        assert solve(rule, VALUES, shapes) == shapes
        partial = {
            name: None if rng.random() < 0.3 else tuple(None if rng.random() < 0.4 else n for n in shape)
            for name, shape in shapes.items()
        }
        solved = solve(rule, VALUES, partial)
        for name, shape in solved.items():
            if shape is not None:
                assert len(shape) == len(shapes[name]), (partial, shapes)
                assert all(n in (None, m) for n, m in zip(shape, shapes[name], strict=True)), (
                    partial,
                    shapes,
                    solved,
                )
            known = partial[name]
            assert known is None or all(m in (None, n) for n, m in zip(shape, known, strict=True))
        assert solve(rule, VALUES, solved) == solved


def test_contradictions():
    rule = parse(RULES[0])
    with pytest.raises(Contradiction, match="x has 4 k, w expects 5"):
        solve(rule, {}, {"x": (2, 4), "w": (None, 5), "b": None, "y": None})
    with pytest.raises(Contradiction, match="y has"):
        solve(rule, {}, {"x": (2, 4), "w": (3, 4), "b": None, "y": (3, 3)})


def test_documented_operators_have_their_rules():
    assert "in_features" in wf.functional.linear.__doc__
    assert all(cls.rule for cls in OPERATORS if cls.name in ("linear", "conv2d", "softmax", "layer_norm"))


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("outer", ((3,), (4,))),
        ("conv1d", ((1, 2, 5), (3, 2, 2))),
        ("conv_transpose1d", ((1, 3, 5), (3, 2, 2))),
    ],
)
def test_products_take_complex_numbers(name, operands):
    types = [t(*shape, dtype="complex64") for shape in operands]
    assert registry.get(name)().infer(*types).dtype is as_dtype("complex64")
    with pytest.raises(DTypeError, match="takes numbers"):
        registry.get(name)().infer(*(t(*shape, dtype="bool") for shape in operands))


def test_tables_may_be_of_any_dtype():
    for dtype in ("complex64", "int8", "bool", "bfloat16"):
        y = registry.get("embedding")().infer(t(2, dtype="int64"), t(4, 3, dtype=dtype))
        assert (y.shape, y.dtype.name) == ((2, 3), dtype)
