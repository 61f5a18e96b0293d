"""Each pass: what it makes of small graphs, as text; and what it must leave alone."""

import textwrap
from importlib import import_module

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype
from weft.executor.compile import compile_graph
from weft.graph.graph import Graph, graph_of, interpret
from weft.graph.passes import PASSES, optimize
from weft.graph.passes.recompute import candidates, rematerialize
from weft.graph.verify import same_interface, verify
from weft.ops import functions as F
from weft.ops.families.basic_index import BasicIndex
from weft.ops.families.creation import Full
from weft.ops.families.epilogue import Epilogue
from weft.ops.families.random import Dropout
from weft.ops.node import constant, input_value, make_node
from weft.ops.registry import get
from weft.ops.types import TensorType

NAMES = [each.name for each in PASSES]
RECOMPUTE = import_module("weft.graph.passes.recompute")  # whose name is also its rule's


def t(*shape, dtype="float32"):
    return TensorType(shape, as_dtype(dtype))


def alone(name, graph):
    """The graph after one pass, verified."""
    verify(graph)
    made = optimize(graph, [other for other in NAMES if other != name])
    verify(made, name)
    same_interface(graph, made, name)
    return made


def golden(name, function, types, text):
    made = alone(name, graph_of(function, types))
    body = str(made).split("\n", 1)[1]
    assert textwrap.dedent(body).strip() == textwrap.dedent(text).strip()


def kept(name, function, types):
    graph = graph_of(function, types)
    assert alone(name, graph) is graph


# The list.


def test_the_order():
    assert len(set(NAMES)) == len(NAMES)
    for k, each in enumerate(PASSES):
        assert set(each.after) <= set(NAMES[:k]), f"{each.name} comes before one of {each.after}"
        assert each.reason
        assert each.rule.__doc__


def test_the_documentation_lists_them(request):
    text = (request.config.rootpath / "docs" / "design" / "passes.md").read_text()
    rows = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")]
    assert rows == NAMES


def test_switches(monkeypatch, capsys):
    graph = graph_of(lambda x: F.exp(x) + F.exp(x) * 1, [t(2)])
    monkeypatch.setenv("WEFT_SKIP_PASSES", "algebraic_simplify,common_subexpressions")
    assert optimize(graph) is graph
    monkeypatch.setenv("WEFT_SKIP_PASSES", "all")
    assert optimize(graph) is graph
    monkeypatch.setenv("WEFT_SKIP_PASSES", "")
    with pytest.raises(ValueError, match=r"no pass cse; there are: algebraic_simplify, assembled, .*, all"):
        optimize(graph, ["cse"])
    monkeypatch.setenv("WEFT_CHECK", "1")
    monkeypatch.setenv("WEFT_DEBUG", "1")
    assert capsys.readouterr().err == ""
    optimize(graph)
    shown = capsys.readouterr().err
    assert "algebraic_simplify: before\ngraph(x0: f32[2]@cpu:0)" in shown
    assert "common_subexpressions: after\n" in shown
    assert "views" not in shown
    monkeypatch.setenv("WEFT_DEBUG", "2")
    optimize(graph)
    shown = capsys.readouterr().err
    assert "algebraic_simplify: Multiply()(f32[2]@cpu:0, i64[]@cpu:0) -> Exp()(f32[2]@cpu:0)" in shown


# Batch normalization.


def test_batch_norm():
    golden(
        "batch_norm",
        lambda x, w, mean, var, b: F.batch_norm(F.conv2d(x, w), mean, var, None, b),
        [t(2, 3, 4, 4), t(5, 3, 1, 1), t(5), t(5), t(5)],
        """
        v0 = Conv2d(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, out_channels=None, kernel_size=None)(x0, x1, None): f32[2,5,4,4]@cpu:0
        v1 = Add()(x3, 1e-05): f32[5]@cpu:0
        v2 = Rsqrt()(v1): f32[5]@cpu:0
        v3 = ExpandDims(axis=(1, 2))(v2): f32[5,1,1]@cpu:0
        v4 = Multiply()(v0, v3): f32[2,5,4,4]@cpu:0
        v5 = Negative()(x2): f32[5]@cpu:0
        v6 = Multiply()(v5, v2): f32[5]@cpu:0
        v7 = Add()(x4, v6): f32[5]@cpu:0
        v8 = ExpandDims(axis=(1, 2))(v7): f32[5,1,1]@cpu:0
        v9 = Add()(v4, v8): f32[2,5,4,4]@cpu:0
        return v9
        """,  # noqa: E501
    )


def test_batch_norm_that_stays():
    def norm(x, *rest, **more):
        return F.batch_norm(x, *rest, **more)

    types = [t(4, 3), t(5, 3), t(5), t(5)]
    kept("batch_norm", lambda x, w, m, v: norm(F.exp(F.linear(x, w)), m, v), types)
    kept("batch_norm", lambda x, w, m, v: (norm(y := F.linear(x, w), m, v), y), types)
    kept("batch_norm", lambda x, w, m, v: norm(F.linear(x, w), m, v, training=True), types)
    wide = [t(*x.shape, dtype="float64") for x in types]
    kept("batch_norm", lambda x, w, m, v: norm(F.linear(x, w), m, v), wide)
    half = [t(*x.shape, dtype="bfloat16") for x in types]
    kept("batch_norm", lambda x, w, m, v: norm(F.linear(x, w), m, v), half)


# Decompositions.


def test_expand():
    golden(
        "decompose",
        lambda x, y: F.stack([x, y]),
        [t(2), t(2)],
        """
        v0 = ExpandDims(axis=0)(x0): f32[1,2]@cpu:0
        v1 = ExpandDims(axis=0)(x1): f32[1,2]@cpu:0
        v2 = Concat(axis=0)(v0, v1): f32[2,2]@cpu:0
        return v2
        """,
    )
    kept("decompose", lambda x, w: F.softmax(F.matmul(x, w)), [t(2, 5), t(5, 4)])


# Updates.


def test_updates():
    golden(
        "updates",
        lambda lr, *x: F.sgd_update(lr, *x, momentum=0.5),
        [t(), t(2), t(3), t(2), t(3), t(2), t(3)],
        """
        v0, v1 = SgdUpdate(momentum=0.5, dampening=0.0, weight_decay=0.0, with_momentum=True, nesterov=False, maximize=False)(x0, x1, x3, x5): f32[2]@cpu:0, f32[2]@cpu:0
        v2, v3 = SgdUpdate(momentum=0.5, dampening=0.0, weight_decay=0.0, with_momentum=True, nesterov=False, maximize=False)(x0, x2, x4, x6): f32[3]@cpu:0, f32[3]@cpu:0
        return v0, v2, v1, v3
        """,  # noqa: E501
    )
    kept("updates", lambda *x: F.sgd_update(0.1, *x), [t(2), t(2), t(2)])


# Numbers known before.


def test_constants():
    golden(
        "constant_folding",
        lambda x: x * F.exp(F.filled_like(x, value=0.0) + 2 * F.cast(constant(3), dtype="float32")) / 2,
        [t(2, 3)],
        """
        v0 = Multiply()(x0, 403.4288024902344): f32[2,3]@cpu:0
        v1 = Divide()(v0, 2): f32[2,3]@cpu:0
        return v1
        """,
    )


def test_constants_beyond_their_type():
    """They are what a conversion makes of them."""
    x = input_value(t(2, dtype="uint8"))
    graph = Graph([x], [F.relu(constant(-1, as_dtype("uint8"))) * x])
    made = alone("constant_folding", graph)
    assert "255" in str(made)
    plans = [compile_graph(g, "constants", [], 1, as_tuple=True) for g in (graph, made)]
    given = wf.tensor([1, 2], dtype="uint8")
    found = [_core.run_plan(plan, [given])[0].numpy().tolist() for plan in plans]
    assert found == [[255, 254]] * 2


def test_arrays_of_one_number():
    golden(
        "constant_folding",
        lambda x: F.sum(F.reshape(F.filled_like(x, value=1.5), shape=(6,))),
        [t(2, 3)],
        """
        v0 = Full(value=1.5, dtype=float32, shape=(6,), device=cpu:0)(): f32[6]@cpu:0
        v1 = Sum(dtype=None, axis=None, keepdims=False)(v0): f32[]@cpu:0
        return v1
        """,
    )


def test_arrays_that_give_the_shape_stay():
    golden(
        "constant_folding",
        lambda x, y: F.sum(x * F.filled_like(y, value=1.0)),
        [t(3), t(2, 3)],
        """
        v0 = Full(value=1.0, dtype=float32, shape=(2, 3), device=cpu:0)(): f32[2,3]@cpu:0
        v1 = Multiply()(x0, v0): f32[2,3]@cpu:0
        v2 = Sum(dtype=None, axis=None, keepdims=False)(v1): f32[]@cpu:0
        return v2
        """,
    )


def test_sums_of_losses_are_not_one_element():
    """A loss is pointwise before it is summed: its size counts."""
    golden(
        "constant_folding",
        lambda x: F.mse_loss(F.filled_like(x, value=1.5), 2.0, reduction="sum"),
        [t(2, 3)],
        """
        v0 = Full(value=1.5, dtype=float32, shape=(2, 3), device=cpu:0)(): f32[2,3]@cpu:0
        v1 = MseLoss(reduction='sum')(v0, 2.0): f32[]@cpu:0
        return v1
        """,
    )


def test_nothing_but_numbers():
    """The runtime value is not known, all operands are."""
    beta = TensorType((), as_dtype("float32"), weak=True)
    golden(
        "constant_folding",
        lambda x, b: x + F.softplus(F.relu(constant(1.0)), beta=b),
        [t(2), beta],
        """
        v0 = Softplus(beta=0.0, threshold=20.0)(1.0, beta=x1): f32[]@cpu:0
        v1 = Add()(x0, v0): f32[2]@cpu:0
        return v1
        """,
    )


def test_constants_do_not_lose_random_numbers():
    x = input_value(t(2))
    dropped = make_node(Dropout(), [x]).outputs[0]
    graph = Graph([x], [F.exp(x) * F.filled_like(dropped, value=1.0)])
    made = alone("constant_folding", graph)
    assert "Dropout" in str(made)


# Arithmetic.

SAME = [
    (lambda x: x * 1, "float32"),
    (lambda x: 1.0 * x, "float16"),
    (lambda x: x * True, "bool"),
    (lambda x: x / 1, "bfloat16"),
    (lambda x: x**1, "int32"),
    (lambda x: x + -0.0, "float32"),
    (lambda x: 0 + x, "int64"),
    (lambda x: x - 0, "float32"),
    (lambda x: x | 0, "int8"),
    (lambda x: x & -1, "int16"),
    (lambda x: x ^ 0, "uint8"),
    (lambda x: x << 0, "int32"),
    (lambda x: F.negative(-x), "float32"),
    (lambda x: +x, "float32"),
    (lambda x: ~~x, "uint16"),
    (lambda x: F.logical_not(F.logical_not(x)), "bool"),
    (lambda x: F.maximum(x, x), "float32"),
    (lambda x: F.where(True, x, x + 1), "float32"),
    (lambda x: F.where(0, x + 1, x), "float32"),
    (lambda x: F.where(x, x, x), "float32"),
    (lambda x: F.cast(x, dtype="float32"), "float32"),
    (lambda x: F.cast(F.cast(x, dtype="float64"), dtype="float32"), "float32"),
    (lambda x: F.cast(F.cast(x, dtype="float32"), dtype="uint8"), "uint8"),
]


@pytest.mark.parametrize(("function", "dtype"), SAME)
def test_algebra_finds_what_changes_nothing(function, dtype):
    made = alone("algebraic_simplify", graph_of(lambda x: F.sum(function(x)), [t(3, dtype=dtype)]))
    assert [n.op.name for n in made.nodes if n.op] == ["sum"]


CHANGES = [
    (lambda x: x + 0, "float32"),  # -0
    (lambda x: x + 0.0, "float32"),
    (lambda x: x - -0.0, "float32"),
    (lambda x: x * 0, "float32"),  # NaN
    (lambda x: x - x, "float32"),
    (lambda x: x / x, "float32"),
    (lambda x: F.where(F.equal(x, x), x, 0.0), "float32"),
    (lambda x: x * 1.0, "int32"),  # a float
    (lambda x: x * 1, "bool"),
    (lambda x: x + F.filled_like(F.expand_dims(x, axis=0), value=0), "int32"),  # another shape
    (lambda x: F.logical_not(F.logical_not(x)), "int32"),
    (lambda x: F.cast(F.cast(x, dtype="float16"), dtype="float32"), "float32"),
    (lambda x: F.cast(F.cast(x, dtype="float64"), dtype="int32"), "float32"),  # out of range
    (lambda x: F.cast(F.cast(x, dtype="bool"), dtype="int32"), "int32"),
    (lambda x: x**0.5, "float32"),  # of -inf
    (lambda x: F.ceil(F.floor(x)), "float32"),
]


@pytest.mark.parametrize(("function", "dtype"), CHANGES)
def test_algebra_leaves_what_changes_something(function, dtype):
    kept("algebraic_simplify", lambda x: F.sum(function(x)), [t(3, dtype=dtype)])


def test_algebra_finds_simpler_ones():
    golden(
        "algebraic_simplify",
        lambda x: (
            F.pow(x, 2.0),
            x**-1,
            F.cast(F.cast(F.cast(x, dtype="float64"), dtype="float64"), dtype="float16"),
        ),
        [t(2)],
        """
        v0 = Multiply()(x0, x0): f32[2]@cpu:0
        v1 = Reciprocal()(x0): f32[2]@cpu:0
        v2 = Cast(dtype=float16)(x0): f16[2]@cpu:0
        return v0, v1, v2
        """,
    )
    golden(
        "algebraic_simplify",
        lambda x: F.relu(F.relu(F.abs(F.abs(F.floor(F.floor(x)))))),
        [t(2)],
        """
        v0 = Floor()(x0): f32[2]@cpu:0
        v1 = Abs()(v0): f32[2]@cpu:0
        v2 = Relu()(v1): f32[2]@cpu:0
        return v2
        """,
    )


# Views.


def test_views():
    golden(
        "views",
        lambda x: (
            F.permute_dims(F.swapaxes(x, 0, 2), (2, 0, 1)),
            F.reshape(F.flatten(F.expand_dims(x, axis=0)), shape=(4, 6)),
            F.exp(F.squeeze(F.expand_dims(x, axis=1), axis=1)),
            F.exp(F.slice(F.flip(F.flip(x)), (0,), (9,))),
            F.exp(F.dropout(x, training=False)),
            F.as_strided(x, shape=(4, 2, 3), strides=(1, 12, 4)),
            F.as_strided(x, shape=(24,), strides=(1,)),
        ),
        [t(2, 3, 4)],
        """
        v0 = PermuteDims(axes=(0, 2, 1))(x0): f32[2,4,3]@cpu:0
        v1 = Reshape(shape=(4, 6), copy=None)(x0): f32[4,6]@cpu:0
        v2 = Exp()(x0): f32[2,3,4]@cpu:0
        v3 = Exp()(x0): f32[2,3,4]@cpu:0
        v4 = Exp()(x0): f32[2,3,4]@cpu:0
        v5 = PermuteDims(axes=(2, 0, 1))(x0): f32[4,2,3]@cpu:0
        v6 = Reshape(shape=(24,), copy=None)(x0): f32[24]@cpu:0
        return v0, v1, v2, v3, v4, v5, v6
        """,
    )


def test_assembled():
    """What a projection of queries, keys and values has as its gradient: written once, as products read it."""

    every = ((0, 2, 1), (0, 4, 1), (0, 5, 1), (0, 6, 1))

    def thirds(q, k, v, whole):
        parts = [F.view_gradient(x, whole, of=BasicIndex(items=(n, *every))) for n, x in enumerate((q, k, v))]
        return F.reshape(F.permute_dims(parts[2] + parts[1] + parts[0], (1, 3, 0, 2, 4)), shape=(10, 72))

    golden(
        "assembled",
        thirds,
        [t(2, 4, 5, 6)] * 3 + [t(3, 2, 4, 5, 6)],
        """
        v0 = Assemble(shape=(10, 72), sizes=((2, 4, 5, 6), (2, 4, 5, 6), (2, 4, 5, 6)), \
strides=((360, 6, 72, 1), (360, 6, 72, 1), (360, 6, 72, 1)), offsets=(48, 24, 0))(x2, x1, x0): f32[10,72]@cpu:0
        return v0
        """,
    )
    golden(
        "assembled",
        lambda x, y: F.pad(x, (0, 3)) + F.pad(y, (4, 0)),
        [t(2, 3), t(2, 2)],
        """
        v0 = Assemble(shape=(2, 6), sizes=((2, 3), (2, 2)), strides=((6, 1), (6, 1)), \
offsets=(0, 4))(x0, x1): f32[2,6]@cpu:0
        return v0
        """,
    )


def test_sums_that_stay():
    x, y = t(2, 3), t(2, 2)
    kept("assembled", lambda x, y: F.pad(x, (0, 3)) + F.pad(y, (2, 2)), [x, y])  # an element is in both
    kept("assembled", lambda x, y: F.pad(x, (0, 3), value=1) + F.pad(y, (4, 0)), [x, y])
    kept("assembled", lambda x, y: (F.pad(x, (0, 3)), F.pad(x, (0, 3)) + y), [x, t(2, 6)])
    two = lambda x, y: (z := F.pad(x, (0, 3)), z + F.pad(y, (4, 0)))  # noqa: E731
    kept("assembled", two, [x, y])


def test_views_that_stay():
    def two(x):
        return (
            F.reshape(F.permute_dims(x, (1, 0)), shape=(6,)),  # a copy
            F.permute_dims(F.slice(x, (1,), (2,)), (1, 0)),
            F.broadcast_to(F.expand_dims(x, axis=0), (4, 2, 3)),
            F.reshape(F.reshape(x, shape=(6,), copy=False), shape=(3, 2), copy=False),  # must be none
        )

    kept("views", two, [t(2, 3)])


# Common parts.


def test_common():
    golden(
        "common_subexpressions",
        lambda x, p: (
            F.leaky_relu(x, negative_slope=p) + F.leaky_relu(x, negative_slope=p) * F.leaky_relu(x),
            F.softmax(x * 2) + F.softmax(x * 2) + F.softmax(x * 2.0),
        ),
        [t(2), TensorType((), as_dtype("float32"), weak=True)],
        """
        v0 = LeakyRelu(negative_slope=0.0)(x0, negative_slope=x1): f32[2]@cpu:0
        v1 = LeakyRelu(negative_slope=0.01)(x0): f32[2]@cpu:0
        v2 = Multiply()(v0, v1): f32[2]@cpu:0
        v3 = Add()(v0, v2): f32[2]@cpu:0
        v4 = Multiply()(x0, 2): f32[2]@cpu:0
        v5 = Softmax(axis=-1)(v4): f32[2]@cpu:0
        v6 = Add()(v5, v5): f32[2]@cpu:0
        v7 = Multiply()(x0, 2.0): f32[2]@cpu:0
        v8 = Softmax(axis=-1)(v7): f32[2]@cpu:0
        v9 = Add()(v6, v8): f32[2]@cpu:0
        return v3, v9
        """,
    )


def test_random_numbers_are_not_common():
    kept("common_subexpressions", lambda x: F.dropout(x) + F.dropout(x), [t(2)])
    kept("common_subexpressions", lambda p: F.bernoulli(p) + F.bernoulli(p), [t(2)])


# Contracted.


def test_sums_of_products_are_one_product():
    types = [t(7, 2, 1), t(7, 1, 3)]
    for function in (
        lambda a, b: F.sum(F.matmul(a, b), axis=0),
        lambda a, b: F.mean(F.matmul(a, b), axis=0),
        lambda a, b: F.sum(F.matmul(a, b), axis=(-3,)),
    ):
        graph = graph_of(function, types)
        made = alone("contracted", graph)
        (product,) = (n for n in made.nodes if n.op and n.op.name == "matmul")
        assert product.outputs[0].shape == (2, 3)
        assert all(n.op.name != "sum" for n in made.nodes if n.op)
        rng = np.random.default_rng(0)
        given = [rng.normal(size=(7, 2, 1)).astype("f4"), rng.normal(size=(7, 1, 3)).astype("f4")]
        np.testing.assert_allclose(interpret(made, given)[0], interpret(graph, given)[0], 1e-5)
        assert made.outputs[0].type == graph.outputs[0].type


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: F.sum(F.matmul(a, b), axis=1),
        lambda a, b: F.sum(F.matmul(a, b)),
        lambda a, b: F.sum(y := F.matmul(a, b), axis=0) + y,
        lambda a, b: F.sum(F.matmul(a, F.slice(b, (0,), (1,), axes=(0,))), axis=0),
        lambda a, b: F.max(F.matmul(a, b), axis=0),
        lambda a, b: F.sum(F.matmul(a, b), axis=0, keepdims=True),
    ],
)
def test_products_that_stay(function):
    kept("contracted", function, [t(7, 2, 1), t(7, 1, 3)])


# Products of one row with a transposed matrix.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((40,), (9, 40)),
        ((1, 40), (9, 40)),
        ((1, 1, 40), (9, 40)),
    ],
)
def test_one_row_by_a_transposed_matrix_is_dot_products(a, b, dtype):
    types = [TensorType(shape, as_dtype(dtype)) for shape in (a, b)]
    graph = graph_of(lambda x, w: F.matmul(x, F.matrix_transpose(w)), types)
    made = alone("row_products", graph)
    assert {n.op.name for n in made.nodes if n.op} <= {"expand_dims", "vecdot"}
    assert made.outputs[0].type == graph.outputs[0].type
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype("f4") for shape in (a, b))
    if dtype == "float32":
        np.testing.assert_allclose(interpret(made, [x, w])[0], x @ np.swapaxes(w, -1, -2), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((2, 40), (9, 40), (1, 0)),  # two rows
        ((3, 1, 40), (9, 40), (1, 0)),  # three rows of one matrix
        ((3, 1, 40), (1, 9, 40), (0, 2, 1)),
        ((3, 1, 40), (3, 9, 40), (0, 2, 1)),  # a row for each matrix
        ((1, 40), (40, 9), (0, 1)),  # not transposed
        ((1, 40), (9, 3, 40), (1, 2, 0)),
    ],
)
def test_other_products_stay(a, b, axes):
    kept("row_products", lambda x, w: F.matmul(x, F.permute_dims(w, axes)), [t(*a), t(*b)])


# Epilogues.


def texts(function, types):
    made = alone("epilogues", graph_of(function, types))
    return [n.op.name if n.op.name != "epilogue" else repr(n.op) for n in made.nodes if n.op]


def test_epilogues_of_products():
    steps = "steps=((Add(), 0, 2), (Relu(), 0, 1), (Multiply(), 1, 2))"
    assert texts(lambda x, w, b, y: y * F.relu(F.matmul(x, w) + b), [t(2, 5), t(5, 4), t(4), t(2, 4)]) == [
        f"Epilogue(of=Matmul(), {steps}, runtime=())"
    ]


def test_epilogues_of_residuals():
    """What is computed after the convolution may be added."""
    found = texts(lambda x, w: F.conv2d(x, w) + F.exp(x), [t(1, 3, 2, 2), t(3, 3, 1, 1)])
    assert found[0] == "exp"
    assert found[1].startswith("Epilogue(of=Conv2d(")
    assert len(found) == 2


def test_epilogues_of_rows():
    eps = TensorType((), as_dtype("float32"), weak=True)
    (found,) = texts(lambda x, w, eps: F.gelu(F.layer_norm(x, 3, w, eps=eps)), [t(2, 3), t(3), eps])
    assert found.endswith("steps=((Gelu(approximate='none'), 0, 1),), runtime=('eps',))")


def test_epilogues_keep_other_outputs():
    found = texts(lambda x: F.relu(F.normalize_along(x, axes=(0,), eps=0.5)[0]), [t(2, 3)])
    assert len(found) == 1

    def statistics(x):
        y, mean, inverse, _ = F.normalize_along(x, axes=(0,), eps=0.5)
        return F.relu(y) + mean, inverse

    found = texts(statistics, [t(2, 3)])
    assert found[0].startswith("Epilogue(of=NormalizeAlong(")
    assert found[1:] == ["add"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (F.relu(y := F.matmul(x, w)), y),  # two want it
        lambda x, w: F.matmul(x, w) * F.expand_dims(x, axis=1),  # another shape
        lambda x, w: F.cast(F.matmul(x, w), dtype="float64"),  # another type
        lambda x, w: F.erf(F.matmul(x, w)),  # what oneDNN has not
        lambda x, w: F.relu(F.matmul(x, F.sum(w, axis=1))),  # a vector
        lambda x, w: F.relu(F.exp(x)),  # the planner's affair
        lambda x, w: F.relu(F.sum(x, axis=0)),
        lambda x, w: F.relu(F.split(x, 2)[0]),
        lambda x, w: F.relu(F.dropout(x)),
    ],
)
def test_epilogues_that_are_none(function):
    kept("epilogues", function, [t(3, 3), t(3, 3)])


# Computed again.


def _late(x, first, kernel, last):
    """first(x) is read at once and, behind where the most is alive, once more."""
    y = first(x)
    return last(kernel(kernel(y)), y)


def test_recompute_for_a_loop(monkeypatch):
    def f(x):
        return _late(x, F.relu, lambda v: F.softmax(v, axis=0), F.multiply)

    kept("recompute", f, [t(64)])  # so soon, the loop that makes it would make the copy, too
    monkeypatch.setattr(RECOMPUTE, "LATE", 0)
    golden(
        "recompute",
        f,
        [t(64)],
        """
        v0 = Relu()(x0): f32[64]@cpu:0
        v1 = Softmax(axis=0)(v0): f32[64]@cpu:0
        v2 = Softmax(axis=0)(v1): f32[64]@cpu:0
        v3 = Relu()(x0): f32[64]@cpu:0
        v4 = Multiply()(v2, v3): f32[64]@cpu:0
        return v4
        """,
    )


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (F.exp, F.multiply),  # functions take time
        (F.relu, F.matmul),  # a kernel wants it in memory
        (
            lambda x: F.relu(F.matmul(x, x)),
            F.multiply,
        ),  # what it is computed from would have to be kept instead
        (lambda x: F.matmul(x, x), F.multiply),
    ],
)
def test_recompute_leaves(first, last, monkeypatch):
    monkeypatch.setattr(RECOMPUTE, "LATE", 0)
    kept("recompute", lambda x: _late(x, first, lambda v: F.softmax(v, axis=0), last), [t(8, 8)])


def test_recompute_for_less_memory():
    """Whatever is wanted for a budget: copies for kernels are shared, views are made of them, chains are followed."""

    def f(x):
        a = F.relu(x)
        b = F.sigmoid(a)
        row = F.reshape(b, shape=(16, 4))
        z = F.matmul(F.matmul(F.reshape(row, shape=(8, 8)), x), x)
        z = F.matmul(F.matmul(z, b), b)
        return F.matmul(F.matmul(z, F.reshape(row, shape=(8, 8))), a)

    graph = graph_of(f, [t(8, 8)])
    made = rematerialize(graph, candidates(graph))
    verify(made)
    names = [node.op.name for node in made.nodes if node.op is not None]
    assert names.count("relu") == names.count("sigmoid") == 2
    late = names.index("sigmoid", names.index("sigmoid") + 1)
    assert names[:late].count("matmul") >= 2
    x = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    np.testing.assert_array_equal(interpret(graph, [x])[0], interpret(made, [x])[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_recomputed_normalizations_have_the_same_bits(dtype):
    types = [t(4, 3, 5, dtype=dtype), t(1, 3, 1, dtype=dtype), t(1, 3, 1, dtype=dtype), t(5, dtype=dtype)]
    x, scale, shift, last = (input_value(each, name) for each, name in zip(types, "xwbl", strict=True))
    nodes = [
        make_node(get("normalize_along")(axes=(0, 2), eps=1e-5), [x, scale, shift]),
        make_node(get("layer_norm")(normalized_shape=5), [x, last, None]),
        make_node(get("rms_norm")(normalized_shape=5), [x, last]),
    ]
    step = (get("relu")(), 0, 1)
    nodes.append(make_node(Epilogue(of=nodes[0].op, steps=(step,), runtime=()), [x, scale, shift]))
    again = [node.op.recomputed(node.inputs, [None, *node.outputs[1:]]) for node in nodes]
    assert [v.type for v in again] == [node.outputs[0].type for node in nodes]
    plan = compile_graph(
        Graph([x, scale, shift, last], [*(node.outputs[0] for node in nodes), *again]), "both"
    )
    rng = np.random.default_rng(0)
    arrays = [wf.asarray(rng.standard_normal(each.shape)).astype(each.dtype) for each in types]
    made = _core.run_plan(plan, arrays)
    for first, second in zip(made[:4], made[4:], strict=True):
        assert first.astype("float64").numpy().tolist() == second.astype("float64").numpy().tolist()


def test_a_loss_of_one_number_keeps_its_shape():
    graph = graph_of(
        lambda x: F.mse_loss(
            make_node(Full(shape=(2, 3), value=1.5, dtype=as_dtype("float32")), ()).outputs[0],
            x,
            reduction="none",
        ),
        [TensorType((2, 3), as_dtype("float64"))],
    )
    assert optimize(graph).outputs[0].shape == (2, 3)
