"""Rules of operators on matrices, images, indices, sequences against references and differences.

Every sample of every operator in these modules; see weft.ops.samples. Kernels are compared elsewhere.
"""

import importlib
import itertools
import zlib

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

from weft.base.dtype import as_dtype
from weft.graph.gradient import backward_graph
from weft.graph.graph import graph_of, interpret
from weft.kernels import choices
from weft.ops.families.optimizer import Update
from weft.ops.node import apply, bind, input_value
from weft.ops.op import Op, differentiable
from weft.ops.registry import get, names
from weft.ops.samples import Array
from weft.ops.types import TensorType
from weft.symbol.solvers import solver_of

pytestmark = pytest.mark.daily(3)

MODULES = [
    "matrix",
    "window",
    "convolution",
    "convolution_gradient",
    "indexing",
    "pooling",
    "sorting",
    "random",
    "attention",
    "optimizer",
    "recurrent",
]


def operators():
    for module in MODULES:
        for cls in vars(importlib.import_module(f"weft.ops.families.{module}")).values():
            if (
                isinstance(cls, type)
                and issubclass(cls, Op)
                and cls.registered
                and cls.__module__.endswith(module)
            ):
                yield cls


SAMPLES = [
    pytest.param(cls, sample, id=f"{cls.name}-{k}")
    for cls in operators()
    for k, sample in enumerate(cls.samples())
]
ERRORS = [
    pytest.param(cls, *case, id=f"{cls.name}-{k}")
    for cls in operators()
    for k, case in enumerate(cls.errors())
]


def make(spec, k, dtype=None):
    """The array of a spec, from a seed of its own."""
    rng = np.random.default_rng(zlib.crc32(repr((spec.shape, k)).encode()))
    kind = as_dtype(dtype or spec.dtype or "float32")
    if spec.values is not None:
        return np.array(spec.values, kind.numpy)
    count = int(np.prod(spec.shape, dtype=int))
    if spec.distinct:
        values = rng.permutation(np.linspace(spec.low, spec.high, max(count, 1))[:count]).reshape(spec.shape)
    else:
        values = rng.uniform(spec.low, spec.high, spec.shape)
    if kind.kind == "uint":
        values = np.abs(values)
    return np.asarray(values > 0 if kind.kind == "bool" else values, kind.numpy)


def called(cls, sample, types):
    """The operator's graph; numbers among the operands go in as they are."""
    return graph_of(function_of(cls, sample), types)


def function_of(cls, sample):
    """The operator as a function of the sample's arrays."""

    def function(*values):
        given = iter(values)
        inputs = [next(given) if isinstance(x, Array) else x for x in sample.operands]
        return apply(cls, *bind(cls, inputs, sample.attributes))

    return function


def type_of(array):
    return TensorType(array.shape, as_dtype(array.dtype))


def operand_arrays(sample, dtype=None):
    """dtype: of the operands that have no type of their own."""
    return [make(x, k, x.dtype or dtype) for k, x in enumerate(sample.operands) if isinstance(x, Array)]


@pytest.mark.parametrize(("cls", "sample"), SAMPLES)
def test_infer_against_reference(cls, sample):
    arrays = operand_arrays(sample)
    graph = called(cls, sample, [type_of(a) for a in arrays])
    (node,) = {id(v.node): v.node for v in graph.outputs}.values()
    inputs = [arrays_of(v, graph, arrays) for v in node.inputs]
    made = node.op.reference(*inputs) if cls.reference is not Op.reference else by_parts(node, inputs)
    made = made if isinstance(made, tuple | list) else (made,)
    for value, result in zip(node.outputs, made, strict=True):
        assert value.shape == np.shape(result)
        assert np.can_cast(np.asarray(result).dtype, value.dtype.numpy, "same_kind")


def arrays_of(value, graph, arrays):
    if value is None:
        return None
    for given, array in zip(graph.inputs, arrays, strict=True):
        if value is given:
            return array
    return value.node.value


def by_parts(node, inputs):
    types = [None if v is None else v.type for v in node.inputs]
    if node.op.decompose(*(None if t is None else input_value(t) for t in types)) is NotImplemented:
        raise NotImplementedError
    graph = graph_of(node.op.decompose, types)
    return interpret(graph, [a for a in inputs if a is not None])


@pytest.mark.parametrize(("cls", "sample"), [p for p in SAMPLES if p.values[0].decompose is not Op.decompose])
def test_decomposition_against_reference(cls, sample):
    if cls.reference is Op.reference:
        pytest.skip("its meaning is the decomposition")
    arrays = operand_arrays(sample, "float64")
    graph = called(cls, sample, [type_of(a) for a in arrays])
    (node,) = {id(v.node): v.node for v in graph.outputs}.values()
    inputs = [arrays_of(v, graph, arrays) for v in node.inputs]
    made = node.op.reference(*inputs)
    try:
        parts = by_parts(node, inputs)
    except NotImplementedError:
        pytest.skip("has a native kernel for all such operands, and no decomposition")
    for value, one, other in zip(
        node.outputs, made if isinstance(made, tuple) else (made,), parts, strict=True
    ):
        assert np.shape(one) == np.shape(other) == value.shape
        np.testing.assert_allclose(np.asarray(other, float), np.asarray(one, float), rtol=1e-6, atol=1e-6)


def gradients(function, arrays, rng):
    """By vjp and by central differences, of a random sum of the outputs."""
    types = [type_of(a) for a in arrays]
    graph = graph_of(function, types)
    values = interpret(graph, arrays)
    floats = [v.dtype.kind == "float" for v in graph.outputs]
    slopes = [rng.standard_normal(np.shape(y)) for y, f in zip(values, floats, strict=True) if f]
    wanted = [t.dtype.kind == "float" for t in types]
    backward = backward_graph(graph, wanted, floats)
    found = interpret(backward, [*arrays, *values, *slopes])
    numeric = []
    step = 1e-6
    for k, array in enumerate(arrays):
        if not wanted[k]:
            continue
        slope = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            ends = []
            for h in (step, -step):
                moved = array.copy()
                moved[place] += h
                made = [
                    y
                    for y, f in zip(
                        interpret(graph, [*arrays[:k], moved, *arrays[k + 1 :]]), floats, strict=True
                    )
                    if f
                ]
                ends.append(sum(np.sum(s * np.asarray(y, float)) for s, y in zip(slopes, made, strict=True)))
            slope[place] = (ends[0] - ends[1]) / (2 * step)
        numeric.append(slope)
    return found, numeric, backward, [*arrays, *values, *slopes]


@pytest.mark.parametrize(
    ("cls", "sample"),
    [p for p in SAMPLES if differentiable(p.values[0]) and p.values[1].gradient],
)
def test_gradient_against_differences(cls, sample):
    arrays = operand_arrays(sample, "float64")
    if not any(a.dtype.kind == "f" for a in arrays):
        pytest.skip("no operand has a gradient")

    found, numeric, _, _ = gradients(function_of(cls, sample), arrays, np.random.default_rng(0))
    specs = itertools.chain(cls.inputs, itertools.repeat(cls.inputs[-1]))  # the last one may be several
    given = [spec.name for spec, x in zip(specs, sample.operands, strict=False) if isinstance(x, Array)]
    of_floats = [name for name, a in zip(given, arrays, strict=True) if a.dtype.kind == "f"]
    for name, one, other in zip(of_floats, found, numeric, strict=True):
        if name in cls.fixed:
            assert one is None or not np.any(one)
            continue
        one = np.zeros(other.shape) if one is None else one
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * sample.tolerance)


@pytest.mark.parametrize(("cls", "error", "words", "sample"), ERRORS)
def test_error(cls, error, words, sample):
    arrays = operand_arrays(sample)
    with pytest.raises(error) as caught:
        called(cls, sample, [type_of(a) for a in arrays])
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{cls.name}: ")


def test_the_updates_loop_is_their_rule():
    """The scalar program of the fused updates, evaluated, against their reference in float64, with Runtime numbers."""
    from weft.expr.evaluate import evaluate
    from weft.expr.kernel import Each

    rng = np.random.default_rng(0)
    for name in [name for name in names() if issubclass(get(name), Update)]:
        cls = get(name)
        made = cls()
        count = len(made.roles())
        arrays = [rng.uniform(0.1, 1, shape) for shape in [()] * len(made.scalars) + [(5,)] * 2 * count]
        (several,) = choices(made, list(map(type_of, arrays)))
        assert len(several.parts) == 2
        assert several.parts[0][0] is several.parts[1][0]  # one kernel for all tensors of a type
        want = made.reference(*arrays)
        for loop, inputs, outputs in several.parts:
            (stage,) = loop.stages
            assert isinstance(stage, Each)
            given = {k: arrays[i] for k, i in enumerate(inputs)}
            for store, output in zip(stage.stores, outputs, strict=True):
                np.testing.assert_allclose(
                    evaluate(store.value, given, loop.numbers), want[output], rtol=1e-12
                )
        assert made.writes_by_index(len(arrays)) == {
            i: o
            for inputs, outputs in made.groups(len(arrays))
            for i, o in zip((inputs[0], *inputs[2:]), outputs, strict=True)
        }


def test_adam_is_adam():
    p, g, m, v = (np.array([x]) for x in (1.0, 0.5, 0.1, 0.2))
    made = get("adam_update")(weight_decay=0.1).reference(0.1, 2, p, g, m, v)
    grad = g + 0.1 * p
    m1, v1 = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
    want = p - 0.1 * (m1 / (1 - 0.9**2)) / (np.sqrt(v1 / (1 - 0.999**2)) + 1e-8)
    for one, other in zip(made, (want, m1, v1), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_learnable_inputs_follow_from_the_attributes():
    x = (8, 6, 5, 4)
    for op, weight, bias in (
        (get("linear")(out_features=7), (7, 4), (7,)),
        (get("linear")(), (None, 4), (None,)),
        (get("conv2d")(out_channels=4, kernel_size=3, groups=2), (4, 3, 3, 3), (4,)),
        (get("conv2d")(out_channels=4), (4, 6, None, None), (4,)),
        (get("conv_transpose2d")(out_channels=4, kernel_size=(2, 3)), (6, 4, 2, 3), (4,)),
    ):
        assert solver_of(op).shapes([x, None, None], [None])[0] == [x, weight, bias]


def test_operands_of_several_types_meet_in_a_kernel():
    """Mixed types are converted and given to the same operator, not to slow loops."""
    bf16, f32 = (TensorType((4, 4), as_dtype(name)) for name in ("bfloat16", "float32"))
    text = str(graph_of(get("matmul")().decompose, [bf16, f32]))
    assert "Cast(dtype=float32)(x0)" in text
    assert "Matmul()" in text
    assert "Vecdot" not in text
    text = str(
        graph_of(get("linear")().decompose, [bf16, bf16, bf16.like((4,))])
    )  # where bfloat16 has no kernel
    assert text.count("Cast(dtype=float32)") == 3
    assert "Linear" in text


def test_what_random_operators_draw():
    x = TensorType((3, 5), as_dtype("float32"))
    assert get("dropout")().random_numbers(x) == ("bits", as_dtype("uint32"), 15)
    assert get("dropout")().random
    assert not get("dropout")(training=False).random
    assert get("random_normal")(shape=(2, 3), dtype="float64").random_numbers() == (
        "normal",
        as_dtype("float64"),
        6,
    )
    (choice,) = choices(get("dropout")(p=0.25), [x])
    assert [value for value, _ in choice.numbers] == ["key", "stream", "offset", 0.25]
