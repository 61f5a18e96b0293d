"""Rules of vmap for control flow and custom gradients; see weft.transform.batching.

A loop is one loop for all examples, whose body is batched. Which of its states differ from example to example is found
by trying: a state that the body makes different from the same ones is different from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtype import int64
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Node, constant, input_value, make_node
from weft.ops.types import TensorType
from weft.transform.batching import Batch, batch, changed, rule

Flags = Sequence[bool]
Inputs = Sequence[Any]


def selected(condition: Any, then: Any, otherwise: Any) -> Any:
    """then where the condition of an example holds, else otherwise; condition: bool[size]."""
    extra = then.ndim - 1
    if extra:
        condition = F.expand_dims(condition, axis=tuple(range(1, extra + 1)))
    return F.where(condition, then, otherwise)


def stacked(values: Sequence[Any]) -> list[Any]:
    """[steps, size, ...] as [size, steps, ...], or the other way round."""
    return [F.swapaxes(v, axis1=0, axis2=1) for v in values]


def settled(
    batch_: Batch, body: Graph, fixed: Flags, states: Flags, constants: Flags
) -> tuple[Graph, list[bool], list[bool]]:
    """The body for all examples, its states' flags, and those of its other outputs.

    fixed: the flags of the inputs before the states.
    """
    flags = list(states)
    while True:
        batched, output_flags = batch_of(batch_, body, [*fixed, *flags, *constants])
        grown = [a or b for a, b in zip(flags, output_flags, strict=False)]
        if grown == flags:
            break
        flags = grown
    outputs = [
        batch_.spread(v, is_batched) if k < len(flags) and flags[k] else v
        for k, (v, is_batched) in enumerate(zip(batched.outputs, output_flags, strict=True))
    ]
    return Graph(batched.inputs, outputs), flags, output_flags[len(flags) :]


@rule("foreach_loop")
def foreach(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """A loop over the same slices, each for all examples; one that counts for each example goes on for the longest."""
    op: Any = node.op
    if op.counted and flags[0]:
        return _counted_differently(batch, node, inputs, flags)
    count = list(inputs[:1]) if op.counted else []
    sequences, states, constants = op.parts(inputs)
    of_sequences, of_states, of_constants = op.parts(flags)
    body, state_flags, item_flags = settled(batch, op.body.graph, of_sequences, of_states, of_constants)
    slices = [stacked([v])[0] if flag else v for v, flag in zip(sequences, of_sequences, strict=True)]
    begin = [
        batch.spread(v, was) if flag else v
        for v, was, flag in zip(states, of_states, state_flags, strict=True)
    ]
    loop = changed(op, body=Subgraph(body))
    outputs = batch.again(node, loop, [*count, *slices, *begin, *constants])
    number = len(states)
    result: list[Any] = list(zip(outputs[:number], state_flags, strict=True))
    stacks = zip(outputs[number:], [*item_flags, *state_flags], strict=True)
    result += [(stacked([v])[0] if flag else v, flag) for v, flag in stacks]
    return result


def _counted_differently(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """The loop of one example for as many slices as the longest takes; those beyond its own count change nothing."""
    op: Any = node.op

    def example(*x: Any) -> Any:
        longest, count, (sequences, states, constants) = x[0], x[1], op.parts(x[1:])
        length = sequences[0].shape[0]
        steps = make_node(
            registry.get("stepped")(shape=(length,), dtype=int64, device=count.device), ()
        ).outputs[0]
        graph = op.body.graph
        index, limit = (input_value(TensorType((), int64, count.device)) for _ in range(2))
        befores = graph.inputs[len(sequences) : len(sequences) + len(states)]
        is_active = F.less(index, limit)
        outputs = [
            F.where(is_active, v, before)
            for v, before in zip(graph.outputs[: len(states)], befores, strict=True)
        ]
        outputs += [
            F.where(is_active, v, F.filled_like(v)) for v in graph.outputs[len(states) :] if v is not None
        ]
        saved = [F.where(is_active, v, F.filled_like(v)) for v in befores]
        body = Graph(
            [*graph.inputs[: len(sequences)], index, *graph.inputs[len(sequences) :], limit],
            [*outputs, *saved],
        )
        loop = changed(op, body=Subgraph(body), sequences=len(sequences) + 1)
        loop_node = make_node(loop, [longest, *sequences, steps, *states, *constants, count])
        return loop_node.outputs[: len(node.outputs)]

    longest = F.max(inputs[0]) if batch.size else inputs[0].sum()
    return batch.through(example, [longest, *inputs], [False, *flags])


@rule("while_loop")
def while_loop(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """A loop until the condition holds for no example; the states of those that have ended stay."""
    op: Any = node.op
    number, size = op.states, batch.size
    states, constants = list(inputs[:number]), list(inputs[number:])
    of_constants = list(flags[number:])
    body, of_states, _ = settled(batch, op.body.graph, [], flags[:number], of_constants)
    condition, (differs,) = batch_of(batch, op.condition.graph, [*of_states, *of_constants])
    while differs and not all(of_states):
        # What ends for some examples only is different from then on.
        body, of_states, _ = settled(batch, op.body.graph, [], [True] * number, of_constants)
        condition, (differs,) = batch_of(batch, op.condition.graph, [*of_states, *of_constants])
    begin = [
        batch.spread(v, was) if flag else v
        for v, was, flag in zip(states, flags[:number], of_states, strict=True)
    ]
    visible = number if op.limit is None else number + 1
    if not differs:
        loop = changed(op, condition=Subgraph(condition), body=Subgraph(body))
        outputs = batch.again(node, loop, [*begin, *constants])
        result: list[Any] = [*zip(outputs[:number], of_states, strict=True)]
        result += [(v, False) for v in outputs[number:visible]]
        stacks = zip(outputs[visible:], of_states, strict=False)
        return result + [(stacked([v])[0] if flag else v, flag) for v, flag in stacks]
    # One more state: how often the body ran for each example.
    (goes_on,) = condition.outputs
    stays = dict(zip(condition.inputs, body.inputs, strict=True))
    (is_active,) = instantiate(condition, [stays[v] for v in condition.inputs])
    assert is_active is not None
    assert goes_on is not None
    device = node.outputs[0].device
    counts = input_value(TensorType((size,), int64, device))
    news = [
        selected(is_active, new, old) for new, old in zip(body.outputs, body.inputs[:number], strict=True)
    ]
    later = body.inputs[number:]
    step = Graph([*body.inputs[:number], counts, *later], [*news, counts + F.cast(is_active, dtype=int64)])
    test = Graph(
        [*condition.inputs[:number], input_value(counts.type), *condition.inputs[number:]], [F.any(goes_on)]
    )
    loop = changed(op, condition=Subgraph(test), body=Subgraph(step), states=number + 1)
    zero = make_node(registry.get("full")(shape=(size,), dtype=int64, device=device), ()).outputs[0]
    outputs = batch.again(node, loop, [*begin, zero, *constants])
    result = [(v, True) for v in outputs[:number]]
    if op.limit is not None:
        result.append((outputs[number], True))
        result += [(v, True) for v in stacked(outputs[number + 2 : number + 2 + number])]
    return result


def batch_of(batch_: Batch, graph: Graph, flags: Flags) -> tuple[Graph, list[bool]]:
    """A graph for the examples of a Batch."""
    return batch(graph, flags, batch_.size, batch_.randomness)


@rule("cond_branch")
def cond(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Both branches and a choice, where the predicate differs from example to example; else the branch for all."""
    op: Any = node.op
    predicate, *operands = inputs
    branches = [batch_of(batch, body.graph, flags[1:]) for body in (op.then, op.otherwise)]
    merged = [
        a or b or flags[0] for a, b in zip(*(output_flags for _, output_flags in branches), strict=True)
    ]
    graphs = [
        Graph(
            graph.inputs,
            [
                batch.spread(v, is_batched) if flag else v
                for v, is_batched, flag in zip(graph.outputs, output_flags, merged, strict=True)
            ],
        )
        for graph, output_flags in branches
    ]
    if not flags[0]:
        branch = changed(op, then=Subgraph(graphs[0]), otherwise=Subgraph(graphs[1]))
        return list(zip(batch.again(node, branch, [predicate, *operands]), merged, strict=True))
    then, otherwise = (instantiate(graph, operands) for graph in graphs)
    return [selected(predicate, a, b) for a, b in zip(then, otherwise, strict=True)]


@rule("custom_vjp")
def custom_vjp(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """The values, with the batched backward.

    All outputs are batched, so that each example has a gradient of its own even where outputs are the same: else what
    one of them sends back would count once for each example of the others.
    """
    op: Any = node.op
    count, number = op.count, len(op.wanted)
    values = batch.spread_all(inputs[:count], flags[:count])
    arguments, residuals = inputs[count : count + number], inputs[count + number :]
    of_residuals = flags[count + number :]
    graph = op.backward.graph
    batched, output_flags = batch_of(batch, graph, [*(True for _ in values), *of_residuals])
    cotangents = []
    differentiable = [k for k, flag in enumerate(op.wanted) if flag]
    for k, cotangent, is_batched in zip(differentiable, batched.outputs, output_flags, strict=True):
        if flags[count + k]:
            cotangents.append(batch.spread(cotangent, is_batched))
        elif is_batched:
            cotangents.append(F.sum(cotangent, axis=0))
        else:
            cotangents.append(F.multiply(cotangent, constant(batch.size)))
    batched_op = changed(op, backward=Subgraph(Graph(batched.inputs, cotangents)))
    return batch.again(node, batched_op, [*values, *arguments, *residuals])


@rule("no_custom_vjp")
def no_custom_vjp(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """The values, still without a gradient."""
    op: Any = node.op
    return batch.again(node, op, [*batch.spread_all(inputs[: op.count], flags), *inputs[op.count :]])
