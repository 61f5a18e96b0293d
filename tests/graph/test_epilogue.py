"""Epilogues: their kernels against their decomposition, and which kernels they are."""

import itertools
import zlib

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype
from weft.executor.compile import compile_graph
from weft.executor.planner import make_plan
from weft.graph.graph import Graph, graph_of
from weft.graph.passes import optimize
from weft.graph.passes.epilogues import epilogues
from weft.graph.rewrite import Rewriting, rewrite
from weft.kernels.cpu.epilogue import POST_OPS
from weft.ops import functions as F
from weft.ops.families.epilogue import Epilogue
from weft.ops.node import constant
from weft.ops.registry import get
from weft.ops.types import TensorType

TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}


def arrays_of(shapes, dtype):
    rng = np.random.default_rng(3)
    return [rng.uniform(-1, 1, shape).astype(as_dtype(dtype).numpy) for shape in shapes]


def both(function, shapes, dtype="float32", kernels=1):
    """The outputs without passes, and with them by that many kernels (None: any number)."""
    given = arrays_of(shapes, dtype)
    graph = graph_of(function, [TensorType(shape, as_dtype(dtype)) for shape in shapes])
    plan = compile_graph(graph, "fused")
    steps = [step for step in plan.info.steps if not step.startswith("view")]
    assert kernels is None or len(steps) == kernels, steps
    plain = make_plan(graph, "plain", exact=True, as_tuple=True)
    results = [_core.run_plan(p, [wf.tensor(a) for a in given]) for p in (plain, plan)]
    for want, got in zip(*results, strict=True):
        bound = TOLERANCE[dtype]
        np.testing.assert_allclose(
            got.astype("float32").numpy(), want.astype("float32").numpy(), rtol=bound, atol=bound
        )


STEPS = sorted(cls.name for cls in POST_OPS if len(cls.inputs) == 1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_native_kernels(name, dtype):
    """Every operator that has a name of oneDNN is that."""
    both(lambda x, w: getattr(F, name)(F.linear(x, w)), [(7, 20), (30, 20)], dtype)
    both(lambda x, w: getattr(F, name)(F.conv2d(x, w)), [(2, 4, 5, 5), (8, 4, 3, 3)], dtype)


@pytest.fixture
def team():
    """Two threads, so that kernels of these sizes are divided."""
    before = _core.set_team_size(2)
    yield
    _core.set_team_size(before)


CONVOLVED = {  # shapes of x, of weights, groups
    "2d": ((8, 16, 28, 28), (32, 16, 3, 3), 1),
    "depthwise": ((8, 32, 28, 28), (32, 1, 3, 3), 32),
    "of one element": ((8, 16, 26, 26), (32, 16, 1, 1), 1),
    "1d": ((8, 16, 900), (32, 16, 3), 1),
}


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("joined", ["add", "multiply"])
@pytest.mark.parametrize("case", CONVOLVED)
def test_operands_of_lower_rank_beside_divided_convolutions(case, joined):
    x, w, groups = CONVOLVED[case]
    options = {"groups": groups, "padding": 1 if w[2] == 3 else 0}
    conv, op = F.conv1d if len(x) == 3 else F.conv2d, getattr(F, joined)
    ones = (1,) * (len(x) - 2)
    in_loops = [x[-1:], (32, *x[2:]), (x[0], 1, *ones)]  # oneDNN has only reference code for these
    for other in ((), (1,), (32, *ones), (1, 32, *ones), *in_loops):
        kernels = 2 if other in in_loops else 1
        both(lambda x, w, s: F.relu(op(conv(x, w, **options), s)), [x, w, other], kernels=kernels)
        both(lambda x, w, s: op(s, conv(x, w, **options)), [x, w, other], kernels=kernels)
    both(lambda x, w, s: op(conv(x, w, **options), F.filled_like(s, value=2.0)), [x, w, ()], kernels=None)


def kernels_of(function, shapes, dtype="float32"):
    """The steps of a program, and what those are that are native."""
    graph = graph_of(function, [TensorType(shape, as_dtype(dtype)) for shape in shapes])
    info = compile_graph(graph, "fused").info
    return info.steps, [work for step, work in zip(info.steps, info.work, strict=True) if "native" in step]


def broadcast_shapes(shape):
    """All shapes that broadcast to one."""
    for ones in itertools.product([False, True], repeat=len(shape)):
        full = tuple(1 if one else n for one, n in zip(ones, shape, strict=True))
        yield from (full[k:] for k in range(len(full) + 1) if all(n == 1 for n in full[:k]))


PRODUCTS = {
    "linear": (lambda x, w: F.linear(x, w), [(32, 24), (40, 24)]),
    "linear of rows": (lambda x, w: F.linear(x, w), [(4, 16, 24), (40, 24)]),
    "batched": (F.matmul, [(4, 32, 24), (4, 24, 40)]),
    "small": (F.matmul, [(64, 9, 9), (64, 9, 9)]),
    "of heads": (lambda x, w: F.matmul(x, F.matrix_transpose(w)), [(2, 3, 16, 24), (2, 3, 20, 24)]),
    "gradient": (lambda x, w: F.matmul(F.matrix_transpose(x), w), [(24, 32), (24, 40)]),
    "1d": (lambda x, w: F.conv1d(x, w, padding=1), [(2, 16, 32), (16, 16, 3)]),
    "2d": (lambda x, w: F.conv2d(x, w, padding=1), [(4, 16, 8, 8), (16, 16, 3, 3)]),
    "1x1": (F.conv2d, [(4, 16, 8, 8), (16, 16, 1, 1)]),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=16), [(4, 16, 8, 8), (16, 1, 3, 3)]),
    "groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), [(4, 16, 8, 8), (16, 8, 3, 3)]),
    "odd": (lambda x, w: F.conv2d(x, w, stride=2), [(2, 5, 9, 7), (3, 5, 3, 3)]),
    "3d": (lambda x, w: F.conv3d(x, w, padding=1), [(2, 8, 4, 6, 6), (8, 8, 3, 3, 3)]),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 16, 8, 8), (16, 16, 2, 2)]),
}


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.full)])
@pytest.mark.parametrize("case", PRODUCTS)
def test_no_operand_leads_to_reference_code(case, dtype, request):
    """oneDNN has fast code for some shapes of operands of post-ops only: the others are left to a loop."""
    product, shapes = PRODUCTS[case]
    result = graph_of(product, [TensorType(s, as_dtype(dtype)) for s in shapes]).outputs[0].shape
    operands = list(dict.fromkeys(broadcast_shapes(result)))
    if not request.config.getoption("--full"):
        operands = operands[zlib.crc32(case.encode()) % 5 :: 5]
    for other in operands:
        for function in (
            lambda x, w, s: product(x, w) * s,
            lambda x, w, s: F.relu(F.relu(product(x, w)) + s),
        ):
            steps, kernels = kernels_of(function, [*shapes, other], dtype)
            assert kernels, steps
            assert not any(kernel.is_reference for kernel in kernels), (other, steps)


SUMS = [
    ((9, 4, 4), (9, 4, 4)),
    ((9, 5, 5), (9, 5, 1)),
    ((9, 1, 6), (9, 6, 8)),
    ((9, 1), (1, 9)),
    ((2, 7, 4, 2), (7, 2, 4)),
    ((4, 4), (9, 4, 4)),
    ((9, 8, 6), (9, 6, 7)),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shapes", SUMS)
def test_products_with_few_terms_join_the_loop_after_them(shapes, dtype):
    a, b = arrays_of(shapes, dtype)
    x = [array.astype("float32") for array in (a, b)]
    steps, kernels = kernels_of(lambda a, b: F.relu(F.matmul(a, b) * 2.0), shapes, dtype)
    assert not kernels
    assert len(steps) == 1
    traced = wf.trace(lambda a, b: F.relu(F.matmul(a, b) * 2.0))
    got = traced(wf.tensor(a), wf.tensor(b)).astype("float32").numpy()
    np.testing.assert_allclose(
        got, np.maximum(x[0] @ x[1] * 2, 0), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("case", ["linear of rows", "of heads", "2d", "depthwise"])
def test_the_first_steps_stay_in_the_kernel(case):
    """Of the steps of an epilogue a loop does the first one that only slow code takes, and those after it."""
    product, shapes = PRODUCTS[case]
    result = graph_of(product, [TensorType(s, as_dtype("float32")) for s in shapes]).outputs[0].shape
    gate = (result[0], *[1] * (len(result) - 1))

    def function(x, w, r, s):
        return F.tanh(F.relu(product(x, w) + r) * s)

    steps, kernels = kernels_of(function, [*shapes, result, gate])
    assert len(kernels) == 1
    assert len(steps) == 2
    assert "Add" in steps[0]
    assert "Relu" in steps[0]
    assert steps[1] == "loop Multiply(); Tanh()"
    both(function, [*shapes, result, gate], kernels=2)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bias_residual_and_relu(dtype):
    shapes = [(2, 8, 6, 6), (8, 8, 3, 3), (8,), (2, 8, 6, 6)]
    both(lambda x, w, b, r: F.relu(F.conv2d(x, w, b, padding=1) + r), shapes, dtype)
    both(lambda x, w, b: F.relu(F.matmul(x, w) + b) * b, [(3, 5, 4), (4, 6), (6,)], dtype)


def test_operands_that_lie_otherwise():
    both(
        lambda x, w, r: F.relu(F.conv2d(x, w, padding=1) + F.permute_dims(r, (3, 2, 1, 0))),
        [(2, 8, 6, 6), (8, 8, 3, 3), (6, 6, 8, 2)],
    )
    both(lambda x, w, r: F.matmul(x, w) + F.matrix_transpose(r), [(5, 4), (4, 6), (6, 5)])


def test_batch_norm_of_convolutions_is_one_primitive():
    def block(x, w, mean, var, weight, bias):
        return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, F.abs(var), weight, bias))

    shapes = [(2, 3, 6, 6), (8, 3, 3, 3), *[(8,)] * 4]
    graph = graph_of(block, [TensorType(shape, as_dtype("float32")) for shape in shapes])
    steps = compile_graph(graph, "block").info.steps
    assert sum(step.startswith("native") for step in steps) == 1
    kernels = sum(not step.startswith("view") for step in steps)
    assert kernels <= 3, "the rest is a factor and a summand for each channel"
    both(block, shapes, kernels=kernels)


def test_rows_are_exact():
    """A loop with steps rounds as the loops one after the other do."""
    for dtype in ("float32", "float64", "bfloat16"):
        shapes = [(5, 7), (7,), (7,), (5, 7)]
        given = arrays_of(shapes, dtype)
        for function in (
            lambda x, w, b, r: F.relu(F.layer_norm(x, 7, w, b)),
            lambda x, w, b, r: F.gelu(F.rms_norm(x, 7, w) - r),
            lambda x, w, b, r: F.pow(2.0, r * F.softmax(x, axis=0)),
            lambda x, w, b, r: F.tanh(F.batch_norm(x, None, None, w, b, training=True)),
        ):
            graph = graph_of(function, [TensorType(shape, as_dtype(dtype)) for shape in shapes])
            made = optimize(graph)
            assert any(isinstance(n.op, Epilogue) for n in made.nodes), made
            results = [
                _core.run_plan(make_plan(g, "rows", exact=True, as_tuple=True), [wf.tensor(a) for a in given])
                for g in (graph, made)
            ]
            for want, got in zip(*results, strict=True):
                np.testing.assert_array_equal(got.astype("float64").numpy(), want.astype("float64").numpy())


def test_runtime_values():
    """An operator's runtime values are given when it runs, with steps, too."""
    (given,) = arrays_of([(2, 3)], "float32")
    for value in (0.5, 2.0):
        graph = graph_of(
            lambda x, value=value: F.relu(F.layer_norm(x, 3, eps=constant(value))),
            [TensorType((2, 3), as_dtype("float32"))],
        )
        plan = compile_graph(graph, "norm")
        assert len(plan.info.steps) == 1
        (got,) = _core.run_plan(plan, [wf.tensor(given)])
        want = F.relu(F.layer_norm(wf.tensor(given), 3, eps=value))
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_gradients_are_those_of_the_graph_as_written():
    graph = graph_of(lambda x, w: F.relu(F.matmul(x, w)), [TensorType((2, 2), as_dtype("float32"))] * 2)
    assert compile_graph(graph, "product").info.graph is graph


def test_the_decomposition():
    x = TensorType((2, 3), as_dtype("float32"))
    op = Epilogue(of=get("matmul")(), steps=((get("relu")(), 0, 1), (get("subtract")(), 1, 2)))
    graph = graph_of(
        lambda *v: op.decompose(*v)[0], [x, TensorType((3, 2), x.dtype), TensorType((2,), x.dtype)]
    )
    shorter, last = (n for n in graph.nodes if n.op)
    assert (shorter.op.name, len(shorter.op.steps), last.op.name) == ("epilogue", 1, "subtract")
    graph = graph_of(lambda *v: shorter.op.decompose(*v)[0], [v.type for v in shorter.inputs])
    assert [n.op.name for n in graph.nodes if n.op] == ["matmul", "relu"]
    assert isinstance(graph, Graph)
    assert op.infer(x, TensorType((3, 2), x.dtype), TensorType((2,), x.dtype)).shape == (2, 2)


def test_a_chain_of_steps_is_found_in_one_round():
    shapes = [(7, 20), (30, 20), (30,)]
    types = [TensorType(shape, as_dtype("float32")) for shape in shapes]
    graph = graph_of(lambda x, w, b: F.tanh(F.relu(F.linear(x, w) + b)), types)
    made = Rewriting(graph).run(epilogues, None)
    (op,) = [node.op for node in made.nodes if node.op is not None]
    assert isinstance(op, Epilogue)
    assert [step.name for step, _, _ in op.steps] == ["add", "relu", "tanh"]
    assert Rewriting(made).run(epilogues, None) is made


def test_the_plainest_node_does_a_step():
    """Of a product with a step of its own and one without, the latter takes the sum of both."""
    shapes = [(7, 20), (30, 20), (7, 20), (30, 20)]
    types = [TensorType(shape, as_dtype("float32")) for shape in shapes]
    graph = graph_of(lambda x, w, y, v: F.relu(F.linear(x, w)) + F.linear(y, v), types)
    made = rewrite(graph, epilogues)
    steps = [[step.name for step, _, _ in n.op.steps] for n in made.nodes if isinstance(n.op, Epilogue)]
    assert steps == [["relu"], ["add"]]
