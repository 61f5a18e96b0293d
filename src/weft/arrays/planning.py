"""Plans single calls: functions of operators call it for operands that they have no plan for.

The native function object calls plan_call once for each new key, and the tape plan_backward once for each plan and set
of inputs whose gradients are wanted; from then on native code replays.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import _core
from weft.arrays.tensor import element_strides
from weft.base.typing import Any
from weft.executor.planner import PlanInfo, make_plan, row_major
from weft.graph.graph import Graph
from weft.ops.node import Node, Value, constant, input_value
from weft.ops.op import Op
from weft.ops.shapes import is_dense
from weft.ops.sizes import NeedsSizes, extent, input_size
from weft.ops.types import TensorType

__all__ = ["plan_backward", "plan_call", "plan_recording"]


FEW_NODES = 4  # inputs among them: gradients of larger graphs are worth the passes
MANY_NODES = 30  # gradients of one operator with more are, where they read at indices
ALIGNED, EXTENTS, EXACT = "aligned", "extents", "exact"


def plan_call(op: Op, operands: list[Any], runtime: dict[str, Any], scope: str, records: bool) -> Any:
    """The plan of one operator on these operands: arrays, Python numbers, or None for those that are missing.

    scope: which sizes it is for. ALIGNED: all of this pattern, where operands have a common size or 1 in each
    dimension, counted from the last. EXTENTS: all of this pattern, which says where sizes are 0 or 1 and which of them
    are equal. EXACT: these. For the others the result is None if a rule has to know the sizes. records: its gradient
    will be computed. Raises what the operator's rules raise.
    """
    exact = scope == EXACT
    values = _values(operands, scope)
    numbers = {name: constant_like(x) for name, x in runtime.items() if x is not None}
    missing = {name: None for name, x in runtime.items() if x is None}
    try:
        bound_op = op.with_runtime({**numbers, **missing}) if runtime else op
        types = bound_op.infer(*(None if v is None else v.type for v in values))
        if not isinstance(types, TensorType) and not all(isinstance(t, TensorType) for t in types):
            raise TypeError(
                f"{op.name}: infer must return a TensorType or a tuple of them, got {types!r}; "
                "x.like(shape, dtype) makes one"
            )
        node = Node(
            op.with_runtime(missing) if missing else op,
            values,
            (types,) if isinstance(types, TensorType) else tuple(types),
            numbers,
        )
        inputs = [v for v in values if v is not None]
        visible = len(node.outputs) - op.hidden
        writes = _writes(op, node)
        # Hidden outputs are for gradients, and the new content of what is written.
        planned = [k for k in range(len(node.outputs)) if k < visible or records or k in writes]
        number_of = {k: number for number, k in enumerate(planned)}
        graph = Graph(
            [*inputs, *numbers.values()],
            [node.outputs[k] for k in planned],
            {number_of[k]: number for k, number in writes.items()},
        )
        plan = make_plan(
            graph,
            op.name,
            [element_strides(x) for x in operands if exact and isinstance(x, _core.Tensor)],
            visible=visible,
            exact=exact,
            as_tuple=op.outputs[:1] != () and op.outputs[0].startswith("*"),
            is_one_step=scope == EXTENTS,
        )
        if records and not exact and any(v.dtype.is_differentiable for v in node.outputs[:visible]):
            # Its gradient must hold for all sizes, too, and the gradient of that.
            has_cotangent = [k < visible for k in range(len(planned))]
            needs_gradient = _differentiable(plan.info.graph)
            backward = plan_backward(plan.info, needs_gradient, has_cotangent)
            if backward is not None:
                plan.info.checked_gradient = needs_gradient, has_cotangent, backward
                _check_sizes_of_gradient(backward.info.graph)
        return plan
    except NeedsSizes:
        if exact:
            raise
        return None
    except Exception as problem:
        if not exact:  # once more, so that the message has the sizes
            plan_call(op, operands, runtime, EXACT, records)
        elif not isinstance(problem, NeedsSizes):
            _show_operands(op, problem, values)
        raise


def _differentiable(graph: Graph) -> list[bool]:
    """Of each array that a graph reads, whether it has gradients."""
    return [v.dtype.is_differentiable for v in graph.inputs if not v.type.weak]


def _check_sizes_of_gradient(graph: Graph) -> None:
    """Raise NeedsSizes if a rule that differentiates the graph has to know its sizes. Other errors wait for that."""
    from weft.graph.gradient import backward_graph

    has_cotangent = [v is not None and v.dtype.is_differentiable for v in graph.outputs]
    try:
        backward_graph(graph, [v.dtype.is_differentiable for v in graph.inputs], has_cotangent)
    except NeedsSizes:
        raise
    except Exception:  # raised again where that gradient is wanted
        pass


def _show_operands(op: Op, problem: Exception, values: list[Value | None]) -> None:
    """Add the operands to the message of an operator's rule, if it shows none of them."""
    text = problem.args[0] if len(problem.args) == 1 else None
    types = [None if v is None else v.type for v in values]
    if not isinstance(text, str) or not text.startswith(f"{op.name}: ") or isinstance(problem, KeyError):
        return
    if any(t is not None and str(t) in text for t in types):
        return
    names = [spec.name for spec in op.inputs if not spec.variadic]
    names += [f"{op.inputs[-1].name}{k}" for k in range(len(types) - len(names))] if op.inputs else []
    listed = ", ".join(f"{name} is {t}" for name, t in zip(names, types, strict=False) if t is not None)
    fact, *rest = text.split("\n")
    problem.args = ("\n".join([f"{fact}: {listed}" if listed else fact, *rest]),)


def plan_backward(info: PlanInfo, needs_gradient: list[bool], has_cotangent: list[bool]) -> Any:
    """The plan of the gradients of a plan's arrays, or None if all are zero.

    needs_gradient: for each array; has_cotangent: for each output, whether its gradient comes in. Inputs of the plan:
    the arrays, the outputs, and those gradients.
    """
    from weft.graph.gradient import backward_graph, reaching  # not before the first gradient

    if info.checked_gradient[:2] == (needs_gradient, has_cotangent):
        plan, info.checked_gradient = info.checked_gradient[2], ()
        return plan
    graph = info.graph
    flags = iter(needs_gradient)
    input_needs = [False if v.type.weak else next(flags) for v in graph.inputs]
    outputs = [v for v in graph.outputs if v is not None]
    backward = backward_graph(graph, input_needs, has_cotangent)
    results = iter(backward.outputs)
    gradients = [bool(needs) and next(results) is not None for needs in needs_gradient]
    if not any(gradients):
        return None
    nonzero = [v for v in backward.outputs if v is not None]
    backward = optimized = Graph(backward.inputs, nonzero)
    operators = sum(node.op is not None for node in graph.nodes)
    is_program = info.exact and operators > 1 and len(graph.nodes) > FEW_NODES
    if is_program or (info.exact and len(backward.nodes) > MANY_NODES and _reads_at_indices(backward)):
        from weft.graph.passes import optimize  # calls of most operators do without

        optimized = optimize(backward)
    strides: tuple[Any, ...] = ()
    if info.exact:  # gradients must have the outputs' strides; others are copied before
        with_strides = zip(outputs, info.output_strides, strict=True)
        differentiated = [pair for pair, flag in zip(with_strides, has_cotangent, strict=True) if flag]
        cotangents = (s if is_dense(v.shape, s) else row_major(v.shape) for v, s in differentiated)
        strides = (*info.strides, *info.output_strides, *cotangents)
    plan = make_plan(optimized, f"{info.name} gradient", strides, gradients=gradients, exact=info.exact)
    if optimized is not backward:
        plan.info.graph = backward  # with what its own gradient needs
    if is_program:
        plan.is_of_many()
        reached = reaching(graph, input_needs)
        plan.have_history([v.node in reached for v in outputs])
    return plan


def _reads_at_indices(graph: Graph) -> bool:
    """Whether an operator is one that the passes join to the loop that reads it."""
    from weft.graph.passes.gathers import READS

    return any(isinstance(node.op, READS) for node in graph.nodes)


def plan_recording(info: PlanInfo) -> tuple[Any, list[tuple[int, int]]]:
    """For a recorded program of many operators: (the plan that records it, None if it is the same; its writes).

    What a gradient computes again must draw the same numbers, and leave the streams alone. So the plan gives, as hidden
    outputs, the positions of the streams, and draws as a function of those. writes: (output, array) for each array
    whose new content has a history of its own; one that is written where nothing is recorded keeps its old history.
    """
    from weft.executor.compile import compile_graph
    from weft.graph.inner import Rewritten, as_drawn

    graph = info.graph
    arrays = (id(v) for v in graph.inputs if not v.type.weak)
    number_of = {key: number for number, key in enumerate(arrays)}
    writes = []
    for output, number in graph.writes.items():
        value, target = graph.outputs[output], graph.inputs[number]
        assert value is not None
        keeps_history = isinstance(value.node.op, Rewritten) and value.node.inputs[1] is target
        if not keeps_history and target.dtype.is_differentiable:
            writes.append((output, number_of[id(target)]))
    if not any(node.op is not None and node.op.random for node in graph.nodes):
        return None, writes
    replacements: dict[int, Value] = {}
    positions: list[Value] = []
    for node in graph.nodes:
        if node.op is None:
            continue
        inputs = [None if v is None else replacements.get(id(v), v) for v in node.inputs]
        runtime = {name: replacements.get(id(v), v) for name, v in node.runtime.items()}
        new_node = Node(node.op, inputs, [v.type for v in node.outputs], runtime, like=node)
        results: Sequence[Value] = new_node.outputs
        if node.op.random:
            results, position = as_drawn(new_node)
            positions += position
        replacements.update((id(old), v) for old, v in zip(node.outputs, results, strict=True))
    outputs = [None if v is None else replacements.get(id(v), v) for v in graph.outputs]
    recording = Graph(graph.inputs, [*outputs, *positions], graph.writes)
    return compile_graph(recording, info.name, info.strides, info.visible), writes


def _values(operands: Sequence[Any], scope: str) -> list[Value | None]:
    symbols: dict[int, Any] = {0: 0, 1: 1}  # size -> its symbol, or itself
    arrays = 0
    values: list[Value | None] = []
    for k, x in enumerate(operands):
        if not isinstance(x, _core.Tensor):
            values.append(None if x is None else constant_like(x, f"x{k}"))
            continue
        shape: Sequence[Any] = x.shape
        if scope == ALIGNED:
            shape = [1 if n == 1 else input_size(len(shape) - 1 - d) for d, n in enumerate(shape)]
        elif scope == EXTENTS:
            shape = [symbols.setdefault(n, extent(arrays, d)) for d, n in enumerate(shape)]
        values.append(input_value(TensorType(shape, x.dtype, x.device), f"x{k}"))
        arrays += 1
    return values


def constant_like(x: Any, name: str = "number") -> Value:
    """The input for a number that each call brings: of this number's kind, without its value."""
    return input_value(constant(x).type, name)


def _writes(op: Op, node: Node) -> dict[int, int]:
    """Which output becomes the new content of which input, counted without those that are missing."""
    first: dict[int, int] = {}  # by id of an operand
    for k, value in enumerate(v for v in node.inputs if v is not None):
        first.setdefault(id(value), k)
    writes = op.writes_by_index(len(node.inputs)).items()
    return {output: first[id(node.inputs[k])] for k, output in writes if node.inputs[k] is not None}
