"""How many arithmetic operations an operator takes, by hand-checkable rules.

Products (families matrix, convolution, attention, recurrent) are counted in multiply-adds, which the literature calls
MAC: each is 2 FLOP. Everything else counts one FLOP for each arithmetic operation of the loop that computes it, as it
is written in the operator's kernel; exp and the like count as one. Copies, views, comparisons of types and memory are
free.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> a = TensorType((3, 4), float32)
>>> of_graph(graph_of(lambda x, y: F.exp(x @ y), [a, TensorType((4, 5), float32)]))
Count(multiply_adds=60, others=15)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from weft.executor.control import Control
from weft.expr import scalar as e
from weft.expr.kernel import Once, Reduction, parts
from weft.graph.graph import Graph, graph_of
from weft.kernels import choices
from weft.ops import registry
from weft.ops.families.epilogue import Epilogue
from weft.ops.kernels import Loop, Several
from weft.ops.op import Op

__all__ = ["PRODUCTS", "Count", "of_graph", "of_loop", "of_node", "of_work"]

PRODUCTS = frozenset({"matrix", "convolution", "attention", "recurrent"})  # families of operators
FREE = frozenset({"shape", "view", "creation", "indexing", "device"})
LEAVES = frozenset({"load", "load_at", "constant", "parameter", "result", "index", "cast", "bitcast"})


class Count(NamedTuple):
    """Multiply-adds of products, and other arithmetic operations."""

    multiply_adds: int = 0
    others: int = 0

    @property
    def flops(self) -> int:
        """All arithmetic: a multiply-add is two."""
        return 2 * self.multiply_adds + self.others

    def __add__(self, other: Any) -> Count:
        return Count(self.multiply_adds + other.multiply_adds, self.others + other.others)


def _size(type: Any) -> int:
    return math.prod(type.shape)


def _bias_additions(x: Sequence[Any], y: Sequence[Any]) -> int:
    return _size(y[0]) if len(x) > 2 and x[2] is not None else 0


def _dot(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    rank = max(t.ndim for t in x[:2])
    shapes = [(1,) * (rank - t.ndim) + tuple(t.shape) for t in x[:2]]
    return Count(math.prod(max(pair) if min(pair) else 0 for pair in zip(*shapes, strict=True)))


def _convolution(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    return Count(_size(y[0]) * math.prod(x[1].shape[1:]), _bias_additions(x, y))


def _transposed_convolution(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    return Count(_size(x[0]) * math.prod(x[1].shape[1:]), _bias_additions(x, y))


Rule = Callable[[Any, Sequence[Any], Sequence[Any]], Count]  # operator, types of inputs and outputs
_rules: dict[str, Rule] = {
    "matmul": lambda op, x, y: Count(_size(y[0]) * x[0].shape[-1]),
    "bilinear": lambda op, x, y: Count(
        _size(y[0]) * x[0].shape[-1] * (x[1].shape[-1] + 1), _bias_additions(x[1:], y)
    ),
    "linear": lambda op, x, y: Count(_size(y[0]) * x[0].shape[-1], _bias_additions(x, y)),
    "outer": lambda op, x, y: Count(_size(y[0])),
    **dict.fromkeys(("vecdot", "sum_of_products"), _dot),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    "convolution_input_gradient": lambda op, x, y: Count(_size(x[0]) * math.prod(x[1].shape[1:])),
    "convolution_weight_gradient": lambda op, x, y: Count(_size(x[1]) * math.prod(y[0].shape[1:])),
}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def decorate(rule: Rule) -> Rule:
        _rules.update(dict.fromkeys(names, rule))
        return rule

    return decorate


@_rule("scaled_dot_product_attention")
def _attention(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    """All pairs of positions count, masked or not; 4 operations for each score: scale, maximum, exp, sum."""
    q, k, v = x[:3]
    pairs = math.prod(q.shape[:-1]) * k.shape[-2]
    return Count(pairs * (q.shape[-1] + v.shape[-1]), 4 * pairs)


@_rule("scaled_dot_product_attention_gradient")
def _attention_gradient(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    """The scores again, then the gradients of scores, q, k (the width of q) and v (that of v)."""
    types = [t for t in x if t is not None]
    q, k, v = types[1:4]
    pairs = math.prod(q.shape[:-1]) * k.shape[-2]
    return Count(pairs * (3 * q.shape[-1] + 2 * v.shape[-1]), 6 * pairs)


def _weights(types: Sequence[Any]) -> list[Any]:
    return [t for t in types if t is not None and t.ndim == 2]


@_rule("lstm", "gru", "rnn")
def _recurrent(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    """At every step each weight is used once for each sample; 8 operations for each gate."""
    steps = x[0].shape[0] * x[0].shape[1]
    weights = _weights(x[1:])
    return Count(steps * sum(map(_size, weights)), 8 * steps * sum(t.shape[0] for t in weights) // 2)


@_rule("lstm_gradient")
def _recurrent_gradient(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    """For each product of the layer two: the gradients of its operands."""
    steps = x[0].shape[0] * x[0].shape[1]
    return Count(2 * steps * sum(map(_size, _weights(y))))


@_rule("epilogue")
def _epilogue(op: Any, x: Sequence[Any], y: Sequence[Any]) -> Count:
    operands = x[: op.count]
    return of_operator(op.of, operands, y) + Count(0, len(op.steps) * _size(y[0]))


def of_loop(loop: Loop, size: int, rows: int | None = None) -> int:
    """The arithmetic operations of a loop over `size` positions in so many rows."""
    total = 0
    for stage in loop.stages:
        times = rows if isinstance(stage, Once) and rows is not None else size
        values = [(part, part.value) for part in parts(stage)]
        nodes = {id(node) for _, value in values for node in e.walk(value) if node.op not in LEAVES}
        total += times * (len(nodes) + sum(isinstance(part, Reduction) for part, _ in values))
    return total


def of_operator(op: Op, inputs: Sequence[Any], outputs: Sequence[Any]) -> Count:
    """Of an operator on inputs of these types (None: missing), whose sizes are numbers."""
    rule = _rules.get(op.name)
    if rule is not None:
        return rule(op, inputs, outputs)
    if op.family in FREE:
        return Count()
    if op.family == "pooling" and (window := getattr(op, "kernel_size", None)) is not None:
        taps = window if isinstance(window, int) else math.prod(window)
        spatial = len(outputs[0].shape) - 2 if isinstance(window, int) else 1
        return Count(0, _size(outputs[0]) * taps**spatial)
    choice = next((each for each in choices(op, inputs) if isinstance(each, Loop | Several)), None)
    loops = [choice] if isinstance(choice, Loop) else []
    if isinstance(choice, Several):
        loops = [part for part, _, _ in choice.parts if isinstance(part, Loop)]
    if loops:
        types = [t for t in (*inputs, *outputs) if t is not None]
        size = max((_size(t) for t in types), default=0)
        rows = _size(outputs[0]) if any(loop.axes for loop in loops) else None
        return Count(0, sum(of_loop(loop, size, rows) for loop in loops))
    if type(op).decompose is not Op.decompose:
        count = _count_decomposed(op, inputs)
        if count is not None:
            return count
    return Count(0, max((_size(t) for t in (*inputs, *outputs) if t is not None), default=0))


def _count_decomposed(op: Op, inputs: Sequence[Any]) -> Count | None:
    try:
        graph = graph_of(op.decompose, list(inputs))
    except (NotImplementedError, AttributeError, TypeError):  # what decompose reads is not there
        return None
    return of_graph(graph)


def of_node(node: Any) -> Count:
    """Of a node of a graph whose sizes are numbers."""
    return of_operator(
        node.bound(),
        [None if v is None else v.type for v in node.inputs],
        [v.type for v in node.outputs],
    )


def of_nodes(nodes: Iterable[Any]) -> Count:
    """The sum over the nodes that are operators."""
    total = Count()
    for node in nodes:
        if node.op is not None:
            total += of_node(node)
    return total


def of_graph(graph: Graph) -> Count:
    """Of one run of a graph, as it is written; passes may make it less."""
    return of_nodes(graph.nodes)


def of_work(work: Any, operands: Sequence[tuple[str, Sequence[int]]]) -> int:
    """The FLOP of one run of a step of a program: a weft.executor.plan_info.Work, on operands of (dtype, sizes)."""
    largest = max((math.prod(sizes) for _, sizes in operands), default=0)
    if work.loops:
        return sum(
            of_loop(loop, math.prod(shape) if _is_fixed(shape) else largest, _rows(loop, shape))
            for loop, shape in work.loops
        )
    total = 0
    for node in work.nodes:
        if isinstance(node.op, Control):  # its steps are work of their own
            continue
        types = [v.type for v in (*node.inputs, *node.outputs) if v is not None]
        if node.op is not None and all(_is_fixed(t.shape) for t in types):
            total += of_node(node).flops
        elif node.op is not None and len(types) == len(operands) and len(work.nodes) == 1:
            fixed_types = iter(t.like(tuple(sizes)) for t, (_, sizes) in zip(types, operands, strict=True))
            inputs = [None if v is None else next(fixed_types) for v in node.inputs]
            total += of_operator(node.bound(), inputs, list(fixed_types)).flops
        elif node.op is not None and node.op.family not in FREE:
            total += largest
    return total


def _is_fixed(shape: Iterable[Any]) -> bool:
    return all(isinstance(n, int) for n in shape)


def _rows(loop: Loop, shape: Sequence[Any]) -> int | None:
    if not loop.axes or not _is_fixed(shape):
        return None
    return math.prod(n for d, n in enumerate(shape) if d not in loop.axes)


def counted() -> frozenset[str]:
    """The operators of products that have a rule of their own; for tests.

    >>> "conv2d" in counted()
    True
    """
    return frozenset(name for name in _rules if registry.find(name) is not None) | {Epilogue.name}
