"""Control flow and custom gradients on symbols: the functions become graphs of symbols, attributes of one node each.

The operators are those of every graph (weft.executor.control, weft.graph.custom_vjp); here their graphs have partial
types. A function is called once, with variables; what it reads of enclosing scopes, symbols and the parameters that
operators make themselves, becomes inputs of the node. When types are known, the node is lowered by the same functions
that control flow on arrays and values has (weft.control_flow), gradients and random numbers included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from weft import control_flow
from weft.base.dtype import bool_
from weft.base.errors import GraphError, ShapeError
from weft.base.structure import Structure, flatten
from weft.executor.control import CondBranch, Control, ForeachLoop, WhileLoop
from weft.graph.custom_vjp import CustomVjp, listed_gradients, with_gradient
from weft.graph.subgraph import Subgraph
from weft.graph.symbols import SymbolNode, body, is_partial, is_variable, nodes_of, user_line, variable
from weft.ops.node import Value
from weft.ops.op import Op
from weft.ops.shapes import Partial
from weft.symbol.compose import Outputs, constant_array, single
from weft.symbol.defaults import Candidates, add_learnable_types
from weft.symbol.inference import RULES, BodyRule, Inference
from weft.symbol.names import attributes, scoped_name

__all__ = ["LOWERED", "compose_control"]


# Inference: from bodies to a node's inputs and outputs, and back.


def _infer_cond(inference: Inference, node: SymbolNode) -> None:
    op, (predicate, *operands) = node.op, node.inputs
    assert isinstance(op, CondBranch)
    if predicate is not None and is_partial(predicate):
        inference.merge_shape(predicate, ())
        inference.set_dtype(predicate, bool_)
    for subgraph in op.bodies():
        inner = _inside(inference, op, subgraph, operands)
        for value, inner_value in _pairs(node, subgraph):
            inference.merge_shape(value, inner.shape_of(inner_value))
            inference.set_dtype(value, inner.dtype_of(inner_value))


def _infer_while(inference: Inference, node: SymbolNode) -> None:
    op = node.op
    assert isinstance(op, WhileLoop)
    for subgraph in op.bodies():
        inner = _inside(inference, op, subgraph, node.inputs)
    for (value, inner_value), state in zip(_pairs(node, op.body), node.inputs, strict=False):
        inference.merge_shape(value, inner.shape_of(inner_value))
        inference.set_dtype(value, inner.dtype_of(inner_value))
        _same(inference, value, state)


def _infer_foreach(inference: Inference, node: SymbolNode) -> None:
    op = node.op
    assert isinstance(op, ForeachLoop)
    sequences = node.inputs[: op.sequences]
    lengths = [s[0] for v in sequences if (s := inference.shape_of(v)) and s[0] is not None]
    length = lengths[0] if lengths else None
    inner = _inside(inference, op, op.body, node.inputs, op.sequences, length)
    for k, (value, inner_value) in enumerate(_pairs(node, op.body)):
        shape = inner.shape_of(inner_value)
        inference.merge_shape(value, shape if k < op.states else _row(length, shape))
        inference.set_dtype(value, inner.dtype_of(inner_value))
        if k < op.states:
            _same(inference, value, node.inputs[op.sequences + k])


def _infer_custom_vjp(inference: Inference, node: SymbolNode) -> None:
    for value, source in zip(node.outputs, node.inputs, strict=False):
        _same(inference, value, source)


def _operands(node: SymbolNode) -> Iterator[tuple[Subgraph, Sequence[Value | None], int]]:
    """The bodies of control flow with the node's inputs that they read, and how many of those slice by slice."""
    op = node.op
    for subgraph in op.bodies() if isinstance(op, Control) else ():
        slices = op.sequences if isinstance(op, ForeachLoop) else 0
        yield subgraph, node.inputs[len(node.inputs) - len(subgraph.graph.inputs) :], slices


def _inside_of(inference: Inference, node: SymbolNode, value: Value) -> Iterator[tuple[Inference, Value]]:
    for subgraph, operands, slices in _operands(node):
        inner, pairs = _inner(inference, node.op, subgraph, operands, slices)
        yield from ((inner, formal) for _, formal, operand in pairs if operand is value)


RULES.update(
    {
        CondBranch: BodyRule(_infer_cond, _inside_of),
        WhileLoop: BodyRule(_infer_while, _inside_of),
        ForeachLoop: BodyRule(_infer_foreach, _inside_of),
        CustomVjp: BodyRule(_infer_custom_vjp, _inside_of),
    }
)

Pairs = list[tuple[int, Value, Value | None]]


def _inner(
    inference: Inference, op: Any, subgraph: Subgraph, operands: Sequence[Value | None], slices: int
) -> tuple[Inference, Pairs]:
    """The inference in a body, and its variables that are read: index, variable, the operand that it stands for."""
    shapes: dict[str, Partial] = {}
    dtypes = {}
    outputs = [v for v in subgraph.graph.outputs if v is not None]
    read = {id(node) for node in nodes_of(outputs)}
    pairs = [
        (k, formal, operand)
        for k, (formal, operand) in enumerate(zip(subgraph.graph.inputs, operands, strict=True))
        if id(formal.node) in read
    ]
    for k, formal, operand in pairs:
        shape = inference.shape_of(operand)
        if k < slices and shape is not None:
            if not shape:
                raise op.fail(ShapeError, "sequences need a first axis")
            shape = shape[1:]
        shapes[formal.node.name], dtypes[formal.node.name] = shape, inference.dtype_of(operand)
    inner = Inference(outputs, shapes, dtypes, inference.device).run()
    candidates = Candidates(inner)
    while add_learnable_types(inner, candidates):
        pass
    return inner, pairs


def _inside(
    inference: Inference,
    op: Control,
    subgraph: Subgraph,
    operands: Sequence[Value | None],
    slices: int = 0,
    length: int | None = None,
) -> Inference:
    """The inference in a body, merged into its operands; slices: how many of these are read slice by slice."""
    inner, pairs = _inner(inference, op, subgraph, operands, slices)
    for k, formal, operand in pairs:
        if operand is not None and is_partial(operand):
            shape = inner.shape_of(formal)
            inference.merge_shape(operand, _row(length, shape) if k < slices else shape)
            inference.set_dtype(operand, inner.dtype_of(formal))
    return inner


def _pairs(node: SymbolNode, subgraph: Subgraph) -> Iterator[tuple[Value, Value]]:
    """The node's outputs with those of a body."""
    return zip(node.outputs, (v for v in subgraph.graph.outputs if v is not None), strict=True)


def _row(length: int | None, shape: Partial) -> Partial:
    return None if shape is None else (length, *shape)


def _same(inference: Inference, value: Value, other: Value | None) -> None:
    """Two values have one type."""
    inference.merge_shape(value, inference.shape_of(other))
    inference.set_dtype(value, inference.dtype_of(other))
    if other is not None and is_partial(other):
        inference.merge_shape(other, inference.shape_of(value))
        inference.set_dtype(other, inference.dtype_of(value))


# Lowering: the outputs from the inputs, by run, which gives what a body gives.

Run = Callable[[Subgraph, Sequence[Value]], list[Value]]


def _lower_cond(op: CondBranch, run: Run, x: Sequence[Value]) -> Sequence[Value]:
    rest = x[1:]
    outputs: Sequence[Value] = control_flow.cond(
        x[0], *(lambda each=each: tuple(run(each, rest)) for each in op.bodies())
    )
    return outputs


def _lower_while(op: WhileLoop, run: Run, x: Sequence[Value]) -> Sequence[Value]:
    rest = x[op.states :]

    def step(*state: Value) -> Any:
        new_state = run(op.body, [*state, *rest])
        return new_state[0] if op.states == 1 else tuple(new_state)

    last_state = control_flow.while_loop(
        lambda *state: run(op.condition, [*state, *rest])[0], step, *x[: op.states], max_iterations=op.limit
    )
    return [last_state] if op.states == 1 else list(last_state)


def _lower_foreach(op: ForeachLoop, run: Run, x: Sequence[Value]) -> Sequence[Value]:
    sequences, before, rest = op.parts(x)

    def step(slices: Any, states: Any) -> Any:
        outputs = run(op.body, [*slices, *states, *rest])
        return tuple(outputs[op.states :]), tuple(outputs[: op.states])

    items, states = control_flow.foreach(step, tuple(sequences), tuple(before))
    return [*states, *items]


def _lower_custom_vjp(op: CustomVjp, run: Run, x: Sequence[Value]) -> Sequence[Value]:
    first = op.count + len(op.wanted)

    def backward(*dy: Value) -> list[Value | None]:
        gradients = iter(run(op.backward, [*dy, *x[first:]]))
        return [next(gradients) if want else None for want in op.wanted]

    return with_gradient(op.name, x[: op.count], x[op.count : first], backward)


LOWERED: dict[type[Op] | None, Callable[[Any, Run, Sequence[Value]], Sequence[Value]]] = {
    CondBranch: _lower_cond,
    WhileLoop: _lower_while,
    ForeachLoop: _lower_foreach,
    CustomVjp: _lower_custom_vjp,
}


# Composing.


# Node.order of the first node of the function that is being composed.
_began: ContextVar[int] = ContextVar("weft_functions_began", default=0)


def check_assigned(value: Value) -> None:
    """Raise GraphError if a function that is being composed assigns to a symbol from outside of it."""
    if value.node.order < _began.get():
        raise GraphError(
            f"symbol: a function assigns elements of {value.node.name}, which is not its own: give it as an operand or"
            " a state"
        )


class _Functions:
    """The functions of one node: their variables, and the outer values that they use."""

    def __init__(self, kind: str, name: str, make_symbol: Callable[[Sequence[Value]], Any]) -> None:
        self.kind, self.name, self.make_symbol = kind, name, make_symbol
        self.formals: list[Value] = []
        self.outer: dict[int, tuple[Value, Value]] = {}
        self.outputs: list[list[Value]] = []

    def variables(self, what: str, count: int) -> list[Any]:
        """Symbols to call functions with."""
        variables = [variable(f"{self.name}_{what}{k}") for k in range(count)]
        self.formals += variables
        return [self.make_symbol([value]) for value in variables]

    def leaves(self, arguments: Any) -> tuple[list[Value], Structure]:
        leaves, structure = flatten(arguments)
        return [operand(self.kind, x) for x in leaves], structure

    def write(self, outputs: Sequence[Value]) -> None:
        """Add a function with these outputs."""
        inner_values = {id(value): value for value in self.formals}  # by id of the old ones
        inside = {id(value.node) for value in self.formals}

        def inner(x: Value | None) -> Value | None:
            if x is None or not is_partial(x) or id(x) in inner_values:
                return x if x is None else inner_values.get(id(x), x)
            if id(x) not in self.outer:
                stand_in = x if is_variable(x) else variable(f"{self.name}_outer{len(self.outer)}")
                self.outer[id(x)] = x, stand_in
            return self.outer[id(x)][1]

        for node in nodes_of(outputs):
            if id(node) not in inside and any(id(v.node) in inside for v in node.sources):
                inside.add(id(node))
                copy = node.replaced([inner(v) for v in node.inputs])
                inner_values.update((id(a), b) for a, b in zip(node.outputs, copy.outputs, strict=True))
        self.outputs.append([x for value in outputs if (x := inner(value)) is not None])

    def bodies(self) -> list[Subgraph]:
        inputs = [*self.formals, *(stand_in for _, stand_in in self.outer.values())]
        return [body(outputs, [value.node.name for value in inputs]) for outputs in self.outputs]

    def node(self, op: Op, operands: Sequence[Value]) -> list[Any]:
        """The outputs of the node, one symbol each."""
        inputs = [*operands, *(value for value, _ in self.outer.values())]
        node = SymbolNode(op, inputs, self.name, attributes(None), where=user_line())
        return [self.make_symbol([value]) for value in node.outputs]


def operand(name: str, x: Any) -> Value:
    """Raises TypeError for what is neither a symbol nor an array."""
    if isinstance(x, Outputs):
        return single(name, x)
    if isinstance(x, bool | int | float | np.generic):
        raise TypeError(f"{name}: takes symbols and arrays beside other symbols, got {type(x).__name__}")
    return constant_array(name, x)


def compose_control(
    make_symbol: Callable[[Sequence[Value]], Any], kind: str, *args: Any, **kwargs: Any
) -> Any:
    """wf.cond, wf.while_loop, wf.foreach and a wf.Function on symbols; make_symbol: gives a symbol of values."""
    composers: dict[str, Callable[..., Any]] = {
        "cond": _cond,
        "while_loop": _while_loop,
        "foreach": _foreach,
        "function": _function,
    }
    name = scoped_name(None, kind)
    token = _began.set(variable(name).node.order)
    try:
        return composers[kind](_Functions(kind, name, make_symbol), *args, **kwargs)
    finally:
        _began.reset(token)


def _cond(
    functions: _Functions, pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
) -> Any:
    leaves, structure = functions.leaves(operands)
    variables = functions.variables("x", len(leaves))
    shapes = []
    for branch in (then, otherwise):
        outputs, shape = functions.leaves(branch(*structure.build(variables)))
        functions.write(outputs)
        shapes.append(shape)
    if shapes[0] != shapes[1]:
        raise TypeError(f"cond: then gives {shapes[0]}, otherwise {shapes[1]}")
    bodies = functions.bodies()
    op = CondBranch(then=bodies[0], otherwise=bodies[1])
    return shapes[0].build(functions.node(op, [operand("cond", pred), *leaves]))


def _while_loop(
    functions: _Functions,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    *state: Any,
    max_iterations: int | None = None,
) -> Any:
    leaves, structure = functions.leaves(state)
    variables = functions.variables("state", len(leaves))
    functions.write(functions.leaves(condition(*structure.build(variables)))[0])
    new_state = body(*structure.build(variables))
    outputs, new_structure = functions.leaves((new_state,) if len(state) == 1 else new_state)
    if new_structure != structure:
        raise TypeError(f"while_loop: the state was {structure}, and becomes {new_structure}")
    functions.write(outputs)
    bodies = functions.bodies()
    op = WhileLoop(condition=bodies[0], body=bodies[1], states=len(leaves), limit=max_iterations)
    last = structure.build(functions.node(op, leaves))
    return last[0] if len(state) == 1 else last


def _foreach(functions: _Functions, body: Callable[..., Any], data: Any, state: Any) -> tuple[Any, Any]:
    sequences, data_structure = functions.leaves(data)
    states, structure = functions.leaves(state)
    if not sequences:
        raise TypeError("foreach: data holds no array")
    slices = functions.variables("slice", len(sequences))
    state_variables = functions.variables("state", len(states))
    results = body(data_structure.build(slices), structure.build(state_variables))
    if not isinstance(results, tuple) or len(results) != 2:
        raise TypeError("foreach: body must give a pair, the output and the new state")
    items, shape = functions.leaves(results[0])
    new_states, new_structure = functions.leaves(results[1])
    if new_structure != structure:
        raise TypeError(f"foreach: the state was {structure}, and becomes {new_structure}")
    functions.write([*new_states, *items])
    op = ForeachLoop(body=functions.bodies()[0], sequences=len(sequences), states=len(states))
    outputs = functions.node(op, [*sequences, *states])
    return shape.build(outputs[len(states) :]), structure.build(outputs[: len(states)])


def _function(functions: _Functions, function: Any, *args: Any) -> Any:
    xs = [single("function", x) for x in args if isinstance(x, Outputs)]
    ys, structure = functions.leaves(function.forward(*args))
    cotangents = functions.variables("cotangent", len(ys))
    gradients = listed_gradients(type(function).__name__, function.backward(*cotangents), len(xs))
    functions.write([operand("function", dx) for dx in gradients if dx is not None])
    op = CustomVjp(
        backward=functions.bodies()[0], count=len(ys), wanted=tuple(dx is not None for dx in gradients)
    )
    return structure.build(functions.node(op, [*ys, *xs]))
