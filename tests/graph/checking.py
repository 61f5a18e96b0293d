"""What a graph gives, computed in several ways, and whether they agree."""

import numpy as np
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype
from weft.executor.planner import make_plan
from weft.graph.graph import Graph, graph_of, reference_of
from weft.graph.passes import PASSES, optimize
from weft.graph.subgraph import Subgraph
from weft.graph.verify import same_interface, verify
from weft.kernels import first_choice
from weft.ops.evaluate import evaluate_loop
from weft.ops.families.epilogue import Epilogue
from weft.ops.families.pooling import MaxPooling
from weft.ops.kernels import Loop
from weft.ops.node import Node, input_value, make_node
from weft.ops.types import TensorType

TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 3e-2, "bfloat16": 2e-1}
NAMES = [each.name for each in PASSES]
EXACT = 0.005  # of those: a last bit, since sums in references depend on where their operands lie in memory
# How passes are chosen: all of them, each alone, all but each.
CHOICES = {
    "all": (),
    **{f"only {name}": tuple(n for n in NAMES if n != name) for name in NAMES},
    **{f"without {name}": (name,) for name in NAMES},
}


def planned(graph, arrays):
    """The outputs by one plan for the whole graph, then the inputs as it leaves them."""
    stable_inputs = Graph(graph.inputs, graph.outputs, graph.writes, range(0, len(arrays), 2))
    plan = make_plan(stable_inputs, "fuzz", exact=True, as_tuple=True)
    given = [wf.tensor(a) for a in arrays]
    if not graph.writes:
        _core.run_plan(plan, given)  # from now on it has prepared what it can
    wf.random.seed(1)
    made = _core.run_plan(plan, given)
    return [t.numpy() for t in made], [t.numpy() for t in given]


def serial(graph, arrays):
    """The outputs by a plan for each node alone, then the inputs after the writes."""
    known = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    wf.random.seed(1)
    for node in graph.nodes:
        if node.op is not None:
            if isinstance(node.op, MaxPooling) and np.isnan(known[id(node.inputs[0])]).any():
                raise UndecidedError(repr(node.op))
            known.update(zip(map(id, node.outputs), alone(node, known), strict=True))
    made = [v.node.value if v.is_constant else known[id(v)] for v in graph.outputs]
    after = list(arrays)
    for output, into in graph.writes.items():
        after[into] = made[output]
    return made, after


def alone(node, known):
    """What a node gives. Arrays made of nothing but numbers are wherever it runs."""
    stand_ins = {
        id(v): input_value(v.type if v.node.device or node.device is None else v.type.on(node.device))
        for v in node.inputs
        if v is not None and not v.is_constant
    }
    inputs = [v if v is None or v.is_constant else stand_ins[id(v)] for v in node.inputs]
    one = Node(node.op, inputs, [v.type for v in node.outputs], node.runtime)
    plan = make_plan(Graph([*stand_ins.values()], one.outputs), "alone", exact=True, as_tuple=True)
    given = [wf.tensor(known[k], device=v.type.device) for k, v in stand_ins.items()]
    return [t.numpy().copy() for t in _core.run_plan(plan, given)]


class UndecidedError(Exception):
    """NaN in a convolution or a maximum over windows: how far it reaches depends on the code (tests/known_gaps.txt)."""


def evaluated(graph, arrays, decided=False):
    """The outputs in NumPy: by the loops of operators that have them, which round as kernels do, else by references.

    decided: raises UndecidedError where kernels may give something else.
    """
    known = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    known |= {id(v): v.node.value for n in graph.nodes for v in n.outputs if v.is_constant}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.op is not None:
                runtime = {name: known[id(v)] for name, v in node.runtime.items()}
                bound = make_node(node.op.with_runtime(runtime), node.inputs)
                given = [None if v is None else known[id(v)] for v in node.inputs]
                if decided and node.op.family == "convolution" and not finite(given):
                    raise UndecidedError(repr(node.op))
                made = evaluated_node(bound, given)
                for name, value, array in zip(node.op.outputs * len(made), node.outputs, made, strict=False):
                    array = np.zeros(value.shape) if name in node.op.opaque else array
                    known[id(value)] = np.asarray(array).astype(value.dtype.numpy).reshape(value.shape)
    return [known[id(v)] for v in graph.outputs]


def finite(arrays):
    return all(np.isfinite(np.asarray(a, np.float64)).all() for a in arrays if a is not None)


def evaluated_node(node, arrays):
    loop = first_choice(node)
    if isinstance(loop, Loop) and any(a is not None for a in arrays):
        return evaluate_loop(loop, arrays, [v.dtype.numpy for v in node.outputs])
    if isinstance(node.op, Epilogue):
        return evaluated(
            graph_of(node.op.decompose, [None if v is None else v.type for v in node.inputs]),
            [a for a in arrays if a is not None],
        )
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    typed = any(
        isinstance(value, Subgraph) for value in node.op.values().values()
    )  # a loop of arrays as they are
    wide = [
        a.astype("float64")
        if isinstance(a, np.ndarray) and as_dtype(a.dtype).kind == "float" and not typed
        else a
        for a in arrays
    ]
    values = [
        v if v is None or v.is_constant else input_value(TensorType(a.shape, as_dtype(a.dtype)))
        for v, a in zip(node.inputs, wide, strict=True)
    ]
    return reference_of(node.op, make_node(node.op, values), wide)


def bounds(graph):
    """How near the outputs have to be, and the inputs afterwards: as the coarsest float that they are made of."""
    known = {}
    for v in (*graph.inputs, *(v for node in graph.nodes for v in node.outputs)):
        exact = v.is_constant or (v.type.weak and v.node.op is None)  # Python's numbers
        own = 0.0 if exact else TOLERANCE.get(v.dtype.name, 0.0)
        above = [known.get(id(x), 0.0) for x in (*v.node.inputs, *v.node.runtime.values()) if x is not None]
        known[id(v)] = max([own, *above])
    outputs = [known[id(v)] for v in graph.outputs]
    inputs = [known[id(v)] for v in graph.inputs]
    for j, i in graph.writes.items():
        inputs[i] = outputs[j]
    return outputs, inputs


def assert_agree(got, want, what, bounds, factor=1.0):
    assert len(got) == len(want), what
    for k, (a, b, bound) in enumerate(zip(got, want, bounds, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{what}, {k}: {a.shape} is not {b.shape}"
        if as_dtype(a.dtype).kind == "float":
            bound *= factor
            a, b = a.astype("float64"), b.astype("float64")
            np.testing.assert_allclose(a, b, rtol=bound, atol=bound, err_msg=f"{what}, {k}")
            zero = (a == 0) & (b == 0)
            if factor <= EXACT:
                np.testing.assert_array_equal(
                    np.signbit(a[zero]), np.signbit(b[zero]), err_msg=f"{what}, {k}: zeros"
                )
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"{what}, {k}")


def check_passes(graph, arrays):
    """Every choice of passes leaves a sound graph that means the same."""
    want = evaluated(graph, arrays)
    verify(graph)
    # Decompositions are what the planner makes, too; but references are rounded otherwise.
    exact = {each.name for each in PASSES if each.exact} - {"decompose"}
    for name, skip in CHOICES.items():
        made = optimize(graph, skip)
        verify(made, name)
        same_interface(graph, made, name)
        if made is not graph:
            factor = EXACT if exact >= {*NAMES} - {*skip} else 1.0
            assert_agree(evaluated(made, arrays), want, name, bounds(graph)[0], factor)


def check_meaning(graph, arrays):
    """One plan gives what the operators mean; for graphs of float64, where rounding does not show."""
    if any(node.op is not None and node.op.random for node in graph.nodes):
        return
    try:
        want = evaluated(graph, arrays, decided=True)
    except UndecidedError:
        return
    assert_agree(planned(optimize(graph), arrays)[0], want, "a plan", bounds(graph)[0], 10.0)


def check_plans(graph, arrays):
    """One plan of the whole graph, as it is and after the passes, gives what a plan for each node does."""
    try:
        want, (of_outputs, of_inputs) = serial(graph, arrays), bounds(graph)
    except UndecidedError:
        return
    for what, one in (("as it is", graph), ("optimized", optimize(graph))):
        got = planned(one, arrays)
        assert_agree(got[0], want[0], f"outputs, {what}", of_outputs)
        assert_agree(got[1], want[1], f"inputs afterwards, {what}", of_inputs)
