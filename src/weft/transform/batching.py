"""Turns a graph for one example into a graph for a batch of examples; vmap calls it.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> one = graph_of(lambda x, w: F.sum(x * w, axis=0), [TensorType((3,), float32), TensorType((3,), float32)])
>>> many, is_batched = batch(one, [True, False], 5)
>>> [v.type for v in many.inputs], [v.type for v in many.outputs], is_batched
([f32[5,3]@cpu:0, f32[3]@cpu:0], [f32[5]@cpu:0], [True])

A value that differs from example to example is *batched*: it has one more axis, the first, for the examples. All other
values are computed once. Each node with a batched input is rewritten by the first of these that applies:

1. the rule that is registered for the operator (weft.transform.rules): operators with native kernels, control flow,
   random numbers;
2. element-wise operators are applied to the batched operands, whose ranks are aligned;
3. what has a loop, a view or parts for its kernel gets the same with one more axis (weft.transform.batched);
4. what decomposes is decomposed, and these rules are applied to the parts;
5. any other operator is run on one example after the other, as one loop. `one_by_one` names these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.graph.graph import Graph, graph_of
from weft.graph.subgraph import Subgraph
from weft.kernels import choices
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.kernels import Loop, Native, Parts, Several, View
from weft.ops.node import Node, Value, input_value, make_node
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise, PointwiseGradient
from weft.ops.types import TensorType

__all__ = ["RANDOMNESS", "Batch", "batch", "changed", "rule"]

RANDOMNESS = ("different", "same", "error")

Rule = Callable[["Batch", Node, list[Any], list[bool]], Any]
_RULES: dict[str | type[Op], Rule] = {}


def rule(*operators: str | type[Op]) -> Callable[[Rule], Rule]:
    """Decorator: the rule for operators, by their names, so that they need not be imported, or for all of a class.

    It is called with the Batch, the node, the node's inputs in the batched graph (None where the node has none), and
    for each whether it is batched. It gives the node's outputs, hidden ones too: Values, which are all batched, or
    pairs (Value, is_batched). NotImplemented: the rules for all operators apply.
    """

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(operators, function))
        return function

    return register


def rule_of(op: Op) -> Rule | None:
    """The rule that is registered for an operator: for its name, else for the nearest of its classes."""
    return next((_RULES[key] for key in (op.name, *type(op).__mro__) if key in _RULES), None)


def batch(
    graph: Graph, flags: Sequence[bool], size: int, randomness: str = "different"
) -> tuple[Graph, list[bool]]:
    """The graph for `size` examples, and for each of its outputs whether it is batched.

    flags: which inputs differ from example to example; these have a first axis of that size. randomness: "different":
    every example draws numbers of its own; "same": all draw the same; "error": NotImplementedError for drawing.
    Raises NotImplementedError for an operator that has no rule.
    """
    inputs = [
        input_value(v.type.like((size, *v.shape)), v.node.name) if flag else v
        for v, flag in zip(graph.inputs, flags, strict=True)
    ]
    outputs = Batch(size, randomness).run(graph, inputs, flags)
    return Graph(inputs, [value for value, _ in outputs]), [flag for _, flag in outputs]


def changed(op: Op, **attributes: Any) -> Op:
    """The operator with other attributes, in their normal form."""
    return op.with_runtime({**op.values(), **attributes})


class Batch:
    """Rewrites graphs for a number of examples. size: that number."""

    def __init__(self, size: int, randomness: str = "different") -> None:
        self.size, self.randomness = size, randomness

    def run(
        self, graph: Graph, inputs: Sequence[Value], flags: Sequence[bool]
    ) -> list[tuple[Value | None, bool]]:
        """The graph's outputs for these inputs, and for each whether it is batched; flags: of the inputs."""
        batched = {old: (new, flag) for old, new, flag in zip(graph.inputs, inputs, flags, strict=True)}
        for node in graph.nodes:
            if node.op is None:
                value = node.outputs[0]
                batched.setdefault(value, (value, False))
                continue
            pairs = [(None, False) if v is None else batched[v] for v in node.inputs]
            runtime = {name: batched[v] for name, v in node.runtime.items()}
            outputs: Sequence[tuple[Any, bool]]
            if any(flag for _, flag in runtime.values()):
                outputs = self.of_numbers(node, pairs, runtime)
            else:
                numbers = {name: value for name, (value, _) in runtime.items()}
                outputs = self.node(node, [v for v, _ in pairs], [flag for _, flag in pairs], numbers)
            batched.update((old, pair) for old, pair in zip(node.outputs, outputs, strict=True))
        return [(None, False) if v is None else batched[v] for v in graph.outputs]

    def of_numbers(
        self,
        node: Node,
        inputs: Sequence[tuple[Any, bool]],
        runtime: Mapping[str, tuple[Value, bool]],
    ) -> Sequence[tuple[Any, bool]]:
        """The outputs of a node whose Runtime attributes differ from example to example.

        The formula of a decomposition takes any array. A loop takes one number for all elements, so that it is an
        operand of the batched one. Raises NotImplementedError for operators with neither.
        """
        op = node.op
        assert op is not None
        numbers = {name: input_value(v.type) for name, v in node.runtime.items()}
        stand_ins = [None if v is None or v.is_constant else input_value(v.type) for v in node.inputs]
        parts: Any = NotImplemented
        if type(op).decompose is not Op.decompose:
            operands = [v if s is None else s for s, v in zip(stand_ins, node.inputs, strict=True)]
            parts = op.with_runtime(dict(numbers)).decompose(*operands)
        if parts is NotImplemented:
            types = [None if v is None else v.type for v in node.inputs]
            choice = next(choices(op.with_runtime(dict(numbers)), types), None)
            if isinstance(choice, Loop | Several):
                return self.loop_of_numbers(node, choice, inputs, runtime)
            if not isinstance(choice, Parts) or len(numbers) != 1:
                raise _number_differs(op)
            parts = _filled(op, next(iter(numbers.items())), stand_ins)
        results = parts if isinstance(parts, tuple | list) else (parts,)
        graph = Graph([*(s for s in stand_ins if s is not None), *numbers.values()], results)
        pairs = [pair for s, pair in zip(stand_ins, inputs, strict=True) if s is not None]
        pairs += [runtime[name] for name in numbers]
        return self.run(graph, [v for v, _ in pairs], [flag for _, flag in pairs])

    def loop_of_numbers(
        self,
        node: Node,
        choice: Loop | Several,
        inputs: Sequence[tuple[Any, bool]],
        runtime: Mapping[str, tuple[Value, bool]],
    ) -> Sequence[tuple[Any, bool]]:
        """As of_numbers, of an operator that is computed by loops."""
        wide = [(self.spread(v, flag), v is not None) for v, flag in inputs]
        for pairs in (inputs, wide):  # rows have to be batched
            values, flags = [v for v, _ in pairs], [flag for _, flag in pairs]
            outputs = self.by_kernel(node, choice, values, flags, runtime)
            if outputs is not None:
                batched = [(v, True) for v in outputs]
                self.check(node, batched)
                return batched
        assert node.op is not None
        raise _number_differs(node.op)

    def node(
        self, node: Node, inputs: list[Any], flags: list[bool], runtime: dict[str, Value]
    ) -> Sequence[tuple[Value, bool]]:
        """The outputs of a node."""
        op = node.op
        assert op is not None
        if not any(flags) and not op.random:
            return [(value, False) for value in self.again(node, op, inputs, runtime)]
        if runtime and any(runtime[name] is not value for name, value in node.runtime.items()):
            node = Node(op, node.inputs, [v.type for v in node.outputs], runtime, like=node)
        outputs: Any = NotImplemented
        if (special := rule_of(op)) is not None:
            outputs = special(self, node, inputs, flags)
        elif op.random:
            raise NotImplementedError(f"vmap: {op.name}: no rule for what it draws")
        if outputs is NotImplemented:
            outputs = self.derived(node, inputs, flags)
        pairs = [pair if isinstance(pair, tuple) else (pair, True) for pair in outputs]
        self.check(node, pairs)
        return pairs

    def check(self, node: Node, pairs: Sequence[tuple[Any, bool]]) -> None:
        """That outputs have the types that they must have; only a wrong rule fails here."""
        for (value, is_batched), old in zip(pairs, node.outputs, strict=True):
            shape = (self.size, *old.shape) if is_batched else old.shape
            if value.shape != shape or value.dtype is not old.dtype:
                raise AssertionError(f"vmap: {node.op!r} of {old.type} came out as {value.type}")

    def again(
        self, node: Node, op: Op, inputs: Sequence[Any], runtime: dict[str, Value] | None = None
    ) -> tuple[Value, ...]:
        """The outputs of an operator on these inputs, in the place of a node."""
        return make_node(op, inputs, node.runtime if runtime is None else runtime, like=node).outputs

    # What rules are written with.

    def spread(self, value: Any, is_batched: bool) -> Any:
        """The value batched, as a view that repeats it if it is not."""
        if is_batched or value is None:
            return value
        if value.type.weak:
            value = F.cast(value, dtype=value.dtype)
        return F.broadcast_to(value, shape=(self.size, *value.shape))

    def spread_all(self, inputs: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        """All of them batched; missing ones stay."""
        return [self.spread(v, flag) for v, flag in zip(inputs, flags, strict=True)]

    def aligned(self, value: Any, is_batched: bool, rank: int) -> Any:
        """The value so that it broadcasts with others whose examples have this rank."""
        if not is_batched or value.ndim == rank + 1:
            return value
        return F.expand_dims(value, axis=tuple(range(1, rank + 2 - value.ndim)))

    def example_indices(self, rank: int) -> Any:
        """The number of each example, int64[size, 1, ...] with `rank` ones."""
        row = registry.get("stepped")(shape=(self.size,), dtype=int64)
        return F.reshape(make_node(row, ()).outputs[0], shape=(self.size, *(1,) * rank))

    def through(
        self, function: Callable[..., Any], inputs: Sequence[Any], flags: Sequence[bool]
    ) -> list[tuple[Any, bool]]:
        """What a function of one example's inputs gives for all: for rules that are a few other operators."""
        types = [
            None if v is None else v.type.like(v.shape[1:]) if flag else v.type
            for v, flag in zip(inputs, flags, strict=True)
        ]
        graph = graph_of(function, types)
        pairs = [(v, f) for v, f in zip(inputs, flags, strict=True) if v is not None]
        return [
            (v, f) for v, f in self.run(graph, [v for v, _ in pairs], [f for _, f in pairs]) if v is not None
        ]

    # What holds for all operators.

    def derived(self, node: Node, inputs: Sequence[Any], flags: Sequence[bool]) -> Sequence[Any]:
        """The outputs of a node by its operator's family, kernel or decomposition."""
        op = node.op
        assert op is not None
        if isinstance(op, Pointwise | PointwiseGradient) or op.is_mark:
            outputs = self.elementwise(node, inputs, flags)
            if outputs is not None:
                return outputs
        bound = node.bound()
        types = [None if v is None else v.type for v in node.inputs]
        choice = next(choices(bound, types), None)
        if isinstance(choice, Loop | View | Parts | Several):
            outputs = self.by_kernel(node, choice, inputs, flags)
            if outputs is not None:
                return outputs
        if isinstance(choice, Native) and choice.ordered:
            raise NotImplementedError(
                f"vmap: {op.name}: calls Python, which would have to be called for each example"
            )
        if type(op).decompose is not Op.decompose:
            stand_ins = [None if v is None or v.is_constant else input_value(v.type) for v in node.inputs]
            parts = bound.decompose(
                *(v if s is None else s for s, v in zip(stand_ins, node.inputs, strict=True))
            )
            if parts is not NotImplemented:
                results = parts if isinstance(parts, tuple | list) else (parts,)
                graph = Graph([s for s in stand_ins if s is not None], results)
                variables = [k for k, s in enumerate(stand_ins) if s is not None]
                return self.run(graph, [inputs[k] for k in variables], [flags[k] for k in variables])
        return self.one_by_one(node, inputs, flags)

    def elementwise(self, node: Node, inputs: Sequence[Any], flags: Sequence[bool]) -> Sequence[Value] | None:
        """The operator on operands that broadcast to the batch; None for one that gives something else (losses)."""
        op = node.op
        assert op is not None
        rank = max(v.ndim for v in node.inputs if v is not None)
        operands = [
            v if v is None else self.aligned(v, flag, rank) for v, flag in zip(inputs, flags, strict=True)
        ]
        try:
            outputs = self.again(node, op, operands)
        except ShapeError:  # it needs operands of one shape
            wide = self.spread_all(inputs, flags)
            outputs = self.again(node, op, [v if v is None else self.aligned(v, True, rank) for v in wide])
        return outputs if outputs[0].shape == (self.size, *node.outputs[0].shape) else None

    def by_kernel(
        self,
        node: Node,
        choice: Any,
        inputs: Sequence[Any],
        flags: Sequence[bool],
        runtime: Mapping[str, tuple[Value, bool]] | None = None,
    ) -> Sequence[Value] | None:
        """The outputs by the node's kernel with one more axis; None where that cannot be had.

        runtime: the Runtime attributes, where some differ from example to example; whether they do. choice: of Loops.
        """
        op = node.op
        assert op is not None
        operands, batched = list(inputs), list(flags)
        if isinstance(choice, View) and not batched[0]:  # all others only lend their shape
            operands[0], batched[0] = self.spread(operands[0], False), True
        ranks: list[int | None] = [None] * len(operands)  # of the space that operands broadcast in
        if isinstance(choice, Loop | Several):
            single = (choice, tuple(range(len(operands))), tuple(range(len(node.outputs))))
            for part, reads, writes in choice.parts if isinstance(choice, Several) else (single,):
                if not isinstance(part, Loop) or (part.axes and not any(batched[k] for k in reads)):
                    return None
                values = [node.inputs[k] for k in reads]
                rank = _rank(values if part.axes else [*values, *(node.outputs[k] for k in writes)])
                if any(ranks[k] not in (None, rank) for k in reads):
                    return None
                ranks = [rank if k in reads else other for k, other in enumerate(ranks)]
        elif isinstance(choice, Parts):
            output = node.outputs[0].shape
            for k, see in choice.parts:  # what is copied broadcasts to its part of the output
                view = see(output, (0,) * len(output))
                ranks[k] = len(view[0]) if view is not None else None
        example_ranks = [
            v.ndim if flag and v is not None else -1 for v, flag in zip(node.inputs, batched, strict=True)
        ]
        operands = [
            v if v is None or rank is None else self.aligned(v, flag, rank)
            for v, flag, rank in zip(operands, batched, ranks, strict=True)
        ]
        for value, is_batched in (runtime or {}).values():
            example_ranks.append(0 if is_batched else -1)
            operands.append(self.aligned(value, is_batched, max(rank or 0 for rank in ranks)))
        wrapped = registry.get("batched")(
            of=op, size=self.size, ranks=tuple(example_ranks), numbers=tuple(runtime or ())
        )
        return self.again(node, wrapped, operands, None if runtime is None else {})

    def one_by_one(self, node: Node, inputs: Sequence[Any], flags: Sequence[bool]) -> Sequence[Value]:
        """The outputs by a loop over the examples."""
        op = node.op
        assert op is not None
        if any(not v.is_constant for v in node.runtime.values()):
            raise NotImplementedError(
                f"vmap: {op.name}: a number that is given at run time, in a loop over examples"
            )
        slices: list[Value] = []
        constants: list[Value] = []
        sequences: list[Any] = []
        shared: list[Any] = []
        stand_ins: list[Any] = []
        for old, new, flag in zip(node.inputs, inputs, flags, strict=True):
            if old is None or (old.is_constant and not flag):
                stand_ins.append(old)
                continue
            value = new if flag or not new.type.weak else F.cast(new, dtype=new.dtype)
            stand_ins.append(input_value(TensorType(old.shape, old.dtype, old.type.device)))
            (slices if flag else constants).append(stand_ins[-1])
            (sequences if flag else shared).append(value)
        body = Graph([*slices, *constants], self.again(node, op, stand_ins))
        loop = registry.get("foreach_loop")(body=Subgraph(body), sequences=len(slices), states=0)
        return self.again(node, loop, [*sequences, *shared], {})


def _filled(op: Op, number: tuple[str, Value], inputs: Sequence[Any]) -> Any:
    """An operator that copies inputs to parts of its output, and fills the rest with a number, here any array."""
    name, fill = number
    plain = op.with_runtime({name: 0})
    ones = [None if x is None else F.cast(F.filled_like(x, value=1), dtype="bool") for x in inputs]
    is_copied = make_node(plain, ones).outputs[0]
    copied = make_node(plain, inputs).outputs[0]
    return F.where(is_copied, copied, F.cast(fill, dtype=copied.dtype))


def _number_differs(op: Op) -> NotImplementedError:
    return NotImplementedError(
        f"vmap: {op.name}: a number that is given at run time differs from example to example"
    )


def _rank(values: Any) -> int:
    return max((v.ndim for v in values if v is not None), default=0)
