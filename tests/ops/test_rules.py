"""Every operator's rules against each other: meaning, inference, gradients and errors, from its samples."""

import math
from pathlib import Path

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError
from weft.graph.gradient import backward_graph, joint_graph
from weft.graph.graph import graph_of, interpret
from weft.kernels import choices
from weft.ops import get, index
from weft.ops.evaluate import evaluate_loop
from weft.ops.kernels import Loop, Parts, View
from weft.ops.make_index import index_of_modules, render
from weft.ops.node import Value, input_value
from weft.ops.op import Op, differentiable
from weft.ops.registry import function, names
from weft.ops.samples import Array
from weft.ops.sizes import NeedsSizes, input_size
from weft.ops.types import TensorType

from .support import TOLERANCE, made, normal, specs, widened

pytestmark = [
    pytest.mark.daily(3),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # divisions by zero in references are meant
]

OPERATORS = [get(name) for name in names()]
PUBLIC = [cls for cls in OPERATORS if cls.public]
every_public = pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.name)
DTYPES = ("float32", "float64", "bfloat16", "int32", "uint8", "bool", "complex64", "complex128")


def graph_of_sample(cls, sample, types):
    """The graph of one call; types are those of the sample's arrays, in order."""

    def call(*values):
        left = list(values)

        def operand(o):
            if isinstance(o, list | tuple):
                return [operand(x) for x in o]
            return left.pop(0) if isinstance(o, Array) else o

        return function(cls.name)(*(operand(o) for o in sample.operands), **sample.attributes)

    return graph_of(call, types)


def cases(cls, dtypes=DTYPES):
    """(sample, dtype, arrays, graph) for every dtype that the operator takes."""
    rng = np.random.default_rng(7)
    for sample in cls.samples():
        for dtype in sample.dtypes or dtypes:
            if sample.dtypes and dtype not in dtypes:
                continue
            arrays = [made(a, dtype, rng) for a in specs(sample)]
            types = [TensorType(a.shape, as_dtype(a.dtype)) for a in arrays]
            try:
                graph = graph_of_sample(cls, sample, types)
            except DTypeError:
                continue
            yield sample, dtype, arrays, graph


def node_of(cls, graph):
    return next((n for n in graph.nodes if n.op is not None and type(n.op) is cls), None)


def node_arrays(node, graph, arrays):
    known = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    return [None if v is None else v.node.value if v.is_constant else known[id(v)] for v in node.inputs]


def exactly(cls, values):
    """Floats as float64, as the references want them; all numbers, where they are computed as floats."""
    return [widened(cls, v) for v in values]


def assert_near(got, want, dtype, factor, what):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, what
    kind = as_dtype(got.dtype)
    if kind.is_inexact:
        bound, wide = TOLERANCE[kind.name] * factor, np.complex128 if kind.is_complex else np.float64
        got, want = got.astype(wide), want.astype(wide)
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=what)


def listed(results):
    return list(results) if isinstance(results, tuple | list) else [results]


@every_public
def test_documentation(cls):
    text = cls.__doc__ or ""
    assert text.split("\n")[0].endswith((".", ":", ";")) or ":" in text.split("\n")[0] or "\n\n" in text
    for part in ("Returns", "Source", ">>> "):
        assert part in text, f"{cls.name}: no {part!r} in its docstring"
    for a in cls.attributes:
        assert a.name in text, f"{cls.name}: {a.name} is not documented"


def zip_names(op, outputs, results):
    """(name, output, result) for each result; outputs of any number have no names."""
    names = op.outputs if len(op.outputs) == len(outputs) else [""] * len(outputs)
    return zip(names, outputs, results, strict=False)


@every_public
def test_samples(cls):
    assert list(cls.samples()), "no samples"
    assert sum(1 for _ in cases(cls)) > 0, "no sample could be run"


@every_public
def test_meaning(cls):
    """Inference, loops and decomposition say what the reference says."""
    for sample, dtype, arrays, graph in cases(cls):
        node = node_of(cls, graph)
        op, types = node.op, [None if v is None else v.type for v in node.inputs]
        given = node_arrays(node, graph, arrays)
        expected = None
        if type(op).reference is not Op.reference:
            expected = listed(op.reference(*exactly(cls, given)))
            assert len(expected) == len(node.outputs) - op.hidden or len(expected) == len(node.outputs)
            for name, output, result in zip_names(op, node.outputs, expected):
                if name in op.opaque:
                    continue
                result = np.asarray(result)
                assert output.shape == result.shape, f"{sample} of {dtype}: inferred {output.type}"
                kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
                if result.size and not output.type.dtype.is_inexact:
                    whole = kinds[result.dtype.kind] in (output.type.dtype.kind, "int", "bool")
                    assert whole, f"{sample} of {dtype}: inferred {output.type}, not {result.dtype}"
        loop = next((choice for choice in choices(op, types) if isinstance(choice, Loop)), None)
        ways = []
        if loop is not None:
            outputs = evaluate_loop(loop, given, [v.type.dtype.numpy for v in node.outputs])
            ways.append([np.reshape(a, v.shape) for a, v in zip(outputs, node.outputs, strict=True)])
        stand_ins = [None if t is None else input_value(t) for t in types]
        if type(op).decompose is not Op.decompose and op.decompose(*stand_ins) is not NotImplemented:
            inner = graph_of(op.decompose, types)
            assert [v.type for v in inner.outputs] == [v.type for v in node.outputs], f"{sample} of {dtype}"
            ways.append(interpret(inner, [a for a in given if a is not None]))
        view = next((choice for choice in choices(op, types) if isinstance(choice, View)), None)
        if view is not None:
            ways.append([seen(view.see, given[0], node.outputs[0].shape)])
        parts = next((choice for choice in choices(op, types) if isinstance(choice, Parts)), None)
        if parts is not None:
            ways.append([put_together(parts, given, node.outputs[0])])
        expected = expected or ways[0]
        for way in ways:
            for name, got, want in zip_names(op, way, expected):
                if name in op.opaque:
                    continue
                assert_near(got, want, dtype, sample.tolerance, f"{sample} of {dtype}")


def seen(see, array, shape):
    """What a View shows, by its shape, strides and offset."""
    array = np.array(array, order="C")
    found = see(array.shape, tuple(s // array.itemsize for s in array.strides))
    if found is None:
        return np.reshape(array, shape)
    sizes, strides, offset = found
    flat = array.reshape(-1)[offset:] if array.size else array.reshape(-1)
    return np.lib.stride_tricks.as_strided(flat, sizes, [s * array.itemsize for s in strides])


def put_together(parts, given, output):
    result = np.full(output.shape, 99 if parts.fill is None else parts.fill).astype(output.type.dtype.numpy)
    strides = tuple(s // result.itemsize for s in result.strides)
    for number, see in parts.parts:
        shape, steps, offset = see(result.shape, strides)
        if math.prod(shape):
            flat = result.reshape(-1)[offset:]
            target = np.lib.stride_tricks.as_strided(flat, shape, [s * result.itemsize for s in steps])
            target[...] = np.asarray(given[number]).astype(result.dtype)
    return result


def directional(graph, arrays, floats, gradients, weights, rng):
    """The slope of sum(outputs * weights) in a random direction: by finite differences, and by the gradients."""
    steps = [normal(rng, a.shape, a.dtype) if f else None for a, f in zip(arrays, floats, strict=True)]

    def total(h):
        moved = [a if s is None else a + h * s for a, s in zip(arrays, steps, strict=True)]
        results = interpret(graph, moved)
        return sum(
            np.sum(r * np.conj(w)).real for r, w in zip(results, weights, strict=True) if w is not None
        )

    h = 1e-4
    want = (8 * (total(h) - total(-h)) - (total(2 * h) - total(-2 * h))) / (12 * h)
    by_rule = [s for s in steps if s is not None]
    got = sum(np.sum(g * np.conj(s)).real for g, s in zip(gradients, by_rule, strict=True) if g is not None)
    return got, want


def assert_one_space(graph):
    """The inputs of every loop broadcast with each other: what only lends its sizes is not an operand of a loop."""
    for node in graph.nodes:
        if node.op is None:
            continue
        types = [None if v is None else v.type for v in node.inputs]
        for choice in choices(node.op, types):
            if isinstance(choice, Loop):
                np.broadcast_shapes(*(t.shape for t in types if t is not None))


def gradient_case(fixed, graph, arrays, sample, rng, joint):
    floats = [v.type.dtype.is_inexact for v in graph.inputs]
    floats = [is_float and id(v) not in fixed for is_float, v in zip(floats, graph.inputs, strict=True)]
    given = [v is not None and v.type.dtype.is_inexact for v in graph.outputs]
    if not any(floats) or not any(given):
        return None
    results = interpret(graph, arrays)
    weights = [normal(rng, r.shape, r.dtype) if f else None for r, f in zip(results, given, strict=True)]
    dys = [w for w in weights if w is not None]
    if joint:
        backward = joint_graph(graph, floats, given)
        return backward, [*arrays, *dys]
    backward = backward_graph(graph, floats, given)
    assert_one_space(backward)
    gradients = interpret(backward, [*arrays, *results, *dys])
    got, want = directional(graph, arrays, floats, gradients, weights, rng)
    assert math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-7), (
        f"{sample}: {got} is not {want}\n{graph}\n{backward}"
    )
    return None


SMOOTH = [cls for cls in PUBLIC if differentiable(cls) and getattr(cls, "smooth", True)]


@pytest.mark.parametrize("cls", SMOOTH, ids=lambda cls: cls.name)
def test_gradient(cls):
    """Against finite differences, and its own gradient too."""
    rng = np.random.default_rng(3)
    second = 0
    for sample, _, arrays, graph in cases(cls, ("float64", "complex128")):
        if not sample.gradient:
            continue
        node = node_of(cls, graph)
        fixed = {id(v) for spec, v in zip(cls.inputs, node.inputs, strict=False) if spec.name in cls.fixed}
        gradient_case(fixed, graph, arrays, sample, rng, joint=False)
        if second < 4:
            found = gradient_case(fixed, graph, arrays, sample, rng, joint=True)
            if found is not None and any(v is not None for v in found[0].outputs):
                again, more = found
                again.outputs = tuple(again.outputs)
                kept = [v for v in again.outputs if v is not None]
                gradient_case(fixed, type(again)(again.inputs, kept), more, sample, rng, joint=False)
                second += 1


@every_public
def test_errors(cls):
    rng = np.random.default_rng(5)
    for error, words, sample in cls.errors():
        arrays = [made(a, "float32", rng) for a in specs(sample)]
        with pytest.raises(error) as caught:
            graph_of_sample(cls, sample, [TensorType(a.shape, as_dtype(a.dtype)) for a in arrays])
        assert words in str(caught.value)


SYMBOLIC = ("pointwise", "arithmetic", "elementary", "comparison", "activation", "reduction")


SIZES_IN_GRADIENT = {"cumulative_prod", "prod"}  # products of all other elements, by doubling or as rows


@pytest.mark.parametrize("cls", [cls for cls in PUBLIC if cls.family in SYMBOLIC], ids=lambda cls: cls.name)
def test_sizes_given_later(cls):
    """One plan for all sizes: no rule asks for a number, the gradient's neither."""
    for sample, _, arrays, _ in cases(cls, ("float32",)):
        shapes = [a.shape for a in arrays]
        if len(set(shapes)) != 1 or len(shapes[0]) < 2 or 1 in shapes[0] or sample.attributes.get("dtype"):
            continue
        rank = len(shapes[0])
        types = [
            TensorType([input_size(rank - 1 - d) for d in range(rank)], as_dtype(a.dtype)) for a in arrays
        ]
        graph = graph_of_sample(cls, sample, types)
        floats = [v.type.dtype.is_inexact for v in graph.inputs]
        given = [v is not None and v.type.dtype.is_inexact for v in graph.outputs]
        plan_all(graph)
        if not differentiable(cls) or not any(given):
            return
        if cls.name in SIZES_IN_GRADIENT:
            with pytest.raises(NeedsSizes):
                backward_graph(graph, floats, given)
        else:
            plan_all(backward_graph(graph, floats, given))
        return


def plan_all(graph):
    for node in graph.nodes:
        if node.op is not None:
            types = [None if v is None else v.type for v in node.inputs]
            if next(choices(node.op, types), None) is None:
                plan_all(graph_of(node.op.decompose, types))


def test_values_are_not_kept_that_a_gradient_does_not_read():
    x = TensorType((2,), as_dtype("float32"))
    for name, reads in (("exp", "y"), ("add", ""), ("multiply", "ab"), ("tanh", "y"), ("relu", "y")):
        cls = get(name)
        graph = graph_of(lambda *v, name=name: function(name)(*v), [x] * len(cls.inputs))
        backward = backward_graph(graph, [True] * len(graph.inputs), [True])
        inputs = [spec.name for spec in cls.inputs]
        used = {id(v) for n in backward.nodes for v in n.inputs}
        found = "".join(
            word for word, v in zip([*inputs, "y"], backward.inputs, strict=False) if id(v) in used
        )
        assert found == reads, name


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("leaky_relu", ("negative_slope",)),
        ("softplus", ("beta", "threshold")),
        ("smooth_l1_loss", ("beta",)),
        ("var", ("correction",)),
        ("layer_norm", ("eps",)),
    ],
)
def test_attributes_given_later(name, attributes):
    """Values of Runtime attributes reach the kernel and the gradient's, and are not part of any operator."""
    cls = get(name)
    x, number = TensorType((3, 4), as_dtype("float64")), TensorType((), as_dtype("float64"))
    count = len([spec for spec in cls.inputs if not spec.optional])
    fixed = {"normalized_shape": 4} if name == "layer_norm" else {}

    def call(*values):
        given = dict(zip(attributes, values[count:], strict=True))
        return function(name)(*values[:count], **given, **fixed)

    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((3, 4)) for _ in range(count)]
    numbers = [0.25, 1.5][: len(attributes)]
    static = graph_of(
        lambda *v: function(name)(*v, **dict(zip(attributes, numbers, strict=True)), **fixed), [x] * count
    )
    later = graph_of(call, [x] * count + [number] * len(attributes))
    for given in ((static, arrays), (later, [*arrays, *(np.asarray(n) for n in numbers)])):
        graph, operands = given
        results = interpret(graph, operands)
        backward = backward_graph(graph, [True] * count + [False] * (len(operands) - count), [True])
        found = interpret(backward, [*operands, *results, *(np.ones_like(r) for r in results)])
        if graph is static:
            want = results + found
        else:
            for got, expected in zip(results + found, want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
            nodes = [*graph.nodes, *backward.nodes]
            kept = [v for n in nodes if n.op is not None for v in n.op.values().values()]
            assert not any(isinstance(v, Value) for v in kept)


def test_normalization_for_all_sizes():
    n = input_size(1)
    x, c = TensorType((n, 8), as_dtype("float32")), TensorType((8,), as_dtype("float32"))
    for call, types in (
        (lambda x, w, b: function("layer_norm")(x, 8, w, b), [x, c, c]),
        (lambda x, w: function("rms_norm")(x, 8, w), [x, c]),
        (lambda x, m, v, w, b: function("batch_norm")(x, m, v, w, b, training=True), [x, c, c, c, c]),
        (lambda x, m, v, w, b: function("batch_norm")(x, m, v, w, b), [x, c, c, c, c]),
        (lambda x, t: function("cross_entropy")(x, t), [x, TensorType((n,), as_dtype("int64"))]),
        (lambda x, t: function("mse_loss")(x, t), [x, x]),
    ):
        graph = graph_of(call, types)
        plan_all(graph)
        plan_all(backward_graph(graph, [True] * len(types), [True]))


def test_index_is_what_the_modules_define():
    assert Path(index.__file__).read_text() == render(index_of_modules())
