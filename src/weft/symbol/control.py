"""Control flow on symbols: the functions become symbols themselves, attributes of one node each.

A function is called once, with variables; what it reads of its surroundings, symbols and the parameters that operators
make themselves, becomes inputs of the node. When types are known, the node is lowered by the same functions that
control flow on arrays and values has (weft.imperative.control), gradients and random numbers included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from weft.base.device import Device
from weft.base.dtype import DType, bool_
from weft.base.errors import GraphError, ShapeError
from weft.base.structure import Structure, flatten
from weft.graph.own_gradient import checked, with_gradient
from weft.imperative import control
from weft.ops.node import Value
from weft.ops.op import Op, attribute_type
from weft.ops.shapes import Partial
from weft.ops.types import TensorType
from weft.symbol.assumptions import learn
from weft.symbol.compose import Outputs, single
from weft.symbol.inference import Inference
from weft.symbol.names import attributes, named
from weft.symbol.node import Entry, Operand, SymbolNode, check_names, ordered, user_line

__all__ = ["CONTROL", "Body", "SymbolControl", "compose_control"]


@attribute_type
class Body:
    """A function as a symbol: entries, and the names of the variables that it is called with, in order."""

    __slots__ = ("entries", "inputs")

    def __init__(self, entries: Sequence[Entry], inputs: Sequence[str]) -> None:
        self.entries, self.inputs = tuple(entries), tuple(inputs)
        nodes = ordered(self.entries)
        check_names(nodes)
        for node in nodes:
            if node.op is None and node.name not in self.inputs:
                raise GraphError(f"symbol: a function inside reads {node.name!r}, which it is not given")
            if node.states():
                raise GraphError(
                    f"{node.op!r}: writes one of its inputs, which functions of control flow on symbols cannot"
                )
        if not entries or len(set(self.inputs)) != len(self.inputs):
            raise GraphError("symbol: a function inside needs outputs, and inputs of different names")

    def inference(
        self, shapes: Mapping[str, Any], dtypes: Mapping[str, DType | None], device: Device | None = None
    ) -> Inference:
        """What is known inside, of inputs of which this is known; not all of them need be read."""
        read = {node.name for node in ordered(self.entries) if node.op is None}
        return Inference(
            self.entries,
            {name: shape for name, shape in shapes.items() if name in read},
            {name: dtype for name, dtype in dtypes.items() if name in read},
            device,
        )

    def __repr__(self) -> str:
        return (
            f"<{', '.join(self.inputs)} -> {', '.join(node.output_names()[k] for node, k in self.entries)}>"
        )


class SymbolControl(Op):
    """Base. slices: how many inputs of bodies are slices of the node's; all inputs of a body follow `first` others.

    No registered operators: their meaning is the interpreter's that lowers symbols.
    """

    public: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    first: ClassVar[int] = 0
    slices: int = 0

    def bodies(self) -> list[Body]:
        """The functions; the last one gives the outputs."""
        raise NotImplementedError

    def lowered(self, run: Callable[[Body, Sequence[Value]], list[Value]], x: Sequence[Value]) -> list[Value]:
        """The outputs from the inputs; run: what a body gives."""
        raise NotImplementedError

    def stacked(self) -> int:
        """The number of the first output that is stacked."""
        return len(self.bodies()[-1].entries)

    def check_count(self, count: int) -> None:
        for body in self.bodies():
            if len(body.inputs) != count - self.first:
                raise GraphError(
                    f"{self.name}: {count - self.first} inputs for a function of {len(body.inputs)}"
                )

    def count_outputs(self, count: int) -> int:
        self.check_count(count)
        return len(self.bodies()[-1].entries)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        self.check_count(len(x))
        length = x[0].shape[0] if self.slices else 0
        types = [t.like(t.shape[1:]) if k < self.slices else t for k, t in enumerate(x[self.first :])]
        found: list[TensorType] = []
        for body in self.bodies():
            given = dict(zip(body.inputs, types, strict=True))
            inner = body.inference(
                {n: t.shape for n, t in given.items()}, {n: t.dtype for n, t in given.items()}
            )
            inner.run()
            found = []
            for k, entry in enumerate(body.entries):
                made = inner.type_of(entry)
                if made is None:
                    raise self.fail(ShapeError, "not enough is known of its inputs")
                found.append(made.like((length, *made.shape)) if k >= self.stacked() else made)
        return tuple(found)

    def tell(self, known: Inference, node: SymbolNode) -> None:
        """What the bodies say of the node's inputs and outputs, and these of the bodies' values."""
        given = node.inputs[self.first :]
        lengths = [s[0] for x in given[: self.slices] if (s := known.shape_of(x)) and s[0] is not None]
        length = lengths[0] if lengths else None
        for body in self.bodies():
            inner = self.inside(known, node, body)
            inner.settle()
            while learn(inner):
                pass
            variables = {each.name: each for each in inner.nodes if each.op is None}
            for k, (name, x) in enumerate(zip(body.inputs, given, strict=True)):
                if name in variables and isinstance(x, tuple):
                    shape = inner.shape_of((variables[name], 0))
                    known.tell_shape(*x, _row(length, shape) if k < self.slices else shape)
                    known.tell_dtype(*x, inner.dtype_of((variables[name], 0)))
            self.tell_outputs(known, node, inner, body, length)

    def inside(self, known: Inference, node: SymbolNode, body: Body) -> Inference:
        shapes: dict[str, Partial] = {}
        dtypes = {}
        for k, (name, x) in enumerate(zip(body.inputs, node.inputs[self.first :], strict=True)):
            shape = known.shape_of(x)
            if k < self.slices and shape is not None:
                if not shape:
                    raise self.fail(ShapeError, "sequences need a first axis")
                shape = shape[1:]
            shapes[name], dtypes[name] = shape, known.dtype_of(x)
        return body.inference(shapes, dtypes, known.device)

    def tell_outputs(
        self, known: Inference, node: SymbolNode, inner: Inference, body: Body, length: int | None
    ) -> None:
        for k, entry in enumerate(body.entries):
            shape = inner.shape_of(entry)
            known.tell_shape(node, k, _row(length, shape) if k >= self.stacked() else shape)
            known.tell_dtype(node, k, inner.dtype_of(entry))


def _row(length: int | None, shape: Partial) -> Partial:
    return None if shape is None else (length, *shape)


class SymbolCond(SymbolControl):
    """then or otherwise of all inputs but the first, the predicate."""

    name: ClassVar[str] = "symbol_cond"
    first: ClassVar[int] = 1
    then: Body
    otherwise: Body

    def check(self) -> None:
        if len(self.then.entries) != len(self.otherwise.entries) or self.slices:
            raise GraphError(f"{self.name}: the branches have different outputs")

    def bodies(self) -> list[Body]:
        return [self.then, self.otherwise]

    def tell(self, known: Inference, node: SymbolNode) -> None:
        if isinstance(predicate := node.inputs[0], tuple):
            known.tell_shape(*predicate, ())
            known.tell_dtype(*predicate, bool_)
        super().tell(known, node)

    def lowered(self, run: Callable[[Body, Sequence[Value]], list[Value]], x: Sequence[Value]) -> list[Value]:
        rest = x[1:]
        return list(control.cond(x[0], *(lambda body=body: tuple(run(body, rest)) for body in self.bodies())))


class SymbolWhile(SymbolControl):
    """The body's outputs as long as the condition of them holds; they are the first inputs."""

    name: ClassVar[str] = "symbol_while"
    condition: Body
    body: Body
    limit: int | None = None

    def check(self) -> None:
        if len(self.condition.entries) != 1 or len(self.body.entries) > len(self.body.inputs) or self.slices:
            raise GraphError(f"{self.name}: needs one condition, and a state for each output of the body")

    def bodies(self) -> list[Body]:
        return [self.condition, self.body]

    def tell_outputs(
        self, known: Inference, node: SymbolNode, inner: Inference, body: Body, length: int | None
    ) -> None:
        if body is self.body:
            super().tell_outputs(known, node, inner, body, length)
            _same(known, node, 0)

    def lowered(self, run: Callable[[Body, Sequence[Value]], list[Value]], x: Sequence[Value]) -> list[Value]:
        count = len(self.body.entries)
        rest = x[count:]

        def step(*state: Value) -> Any:
            made = run(self.body, [*state, *rest])
            return made[0] if count == 1 else tuple(made)

        found = control.while_loop(
            lambda *state: run(self.condition, [*state, *rest])[0],
            step,
            *x[:count],
            max_iterations=self.limit,
        )
        return [found] if count == 1 else list(found)


class SymbolForeach(SymbolControl):
    """body(slices, states, rest) -> states, items: the last states, items stacked."""

    name: ClassVar[str] = "symbol_foreach"
    body: Body
    states: int = 0

    def check(self) -> None:
        if self.slices < 1 or not 0 <= self.states <= len(self.body.entries):
            raise GraphError(f"{self.name}: needs a sequence, and an output of the body for each state")
        if self.slices + self.states > len(self.body.inputs):
            raise GraphError(f"{self.name}: the function takes {len(self.body.inputs)} inputs")

    def bodies(self) -> list[Body]:
        return [self.body]

    def stacked(self) -> int:
        return self.states

    def tell_outputs(
        self, known: Inference, node: SymbolNode, inner: Inference, body: Body, length: int | None
    ) -> None:
        super().tell_outputs(known, node, inner, body, length)
        _same(known, node, self.slices, self.states)

    def lowered(self, run: Callable[[Body, Sequence[Value]], list[Value]], x: Sequence[Value]) -> list[Value]:
        first, rest = self.slices + self.states, x[self.slices + self.states :]

        def step(slices: Any, states: Any) -> Any:
            made = run(self.body, [*slices, *states, *rest])
            return tuple(made[self.states :]), tuple(made[: self.states])

        items, states = control.foreach(step, tuple(x[: self.slices]), tuple(x[self.slices : first]))
        return [*states, *items]


def _same(known: Inference, node: SymbolNode, first: int, count: int | None = None) -> None:
    """The first outputs have the types of the states, inputs from number `first` on."""
    for k in range(node.count if count is None else count):
        state = node.inputs[first + k]
        known.tell_shape(node, k, known.shape_of(state))
        known.tell_dtype(node, k, known.dtype_of(state))
        if isinstance(state, tuple):
            known.tell_shape(*state, known.shape_of((node, k)))
            known.tell_dtype(*state, known.dtype_of((node, k)))


class SymbolFunction(SymbolControl):
    """The first `count` inputs, whose gradient with respect to those behind them is backward's: see OwnGradient."""

    name: ClassVar[str] = "symbol_function"
    backward: Body
    count: int
    wanted: tuple[bool, ...]

    def check(self) -> None:
        if len(self.backward.entries) != sum(self.wanted) or self.slices or not self.count > 0:
            raise GraphError(f"{self.name}: backward does not give what is wanted")

    def bodies(self) -> list[Body]:
        return [self.backward]

    def count_outputs(self, count: int) -> int:
        if len(self.backward.inputs) != count - len(self.wanted):
            raise GraphError(f"{self.name}: {count} inputs for a function of {len(self.backward.inputs)}")
        return self.count

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        return x[: self.count]

    def tell(self, known: Inference, node: SymbolNode) -> None:
        _same(known, node, 0)

    def lowered(self, run: Callable[[Body, Sequence[Value]], list[Value]], x: Sequence[Value]) -> list[Value]:
        first = self.count + len(self.wanted)

        def backward(*dy: Value) -> list[Value | None]:
            found = iter(run(self.backward, [*dy, *x[first:]]))
            return [next(found) if want else None for want in self.wanted]

        return list(with_gradient(self.name, x[: self.count], x[self.count : first], backward))


CONTROL = {cls.name: cls for cls in (SymbolCond, SymbolWhile, SymbolForeach, SymbolFunction)}


# Composing.


class _Functions:
    """The functions of one node: their variables, and what they find elsewhere."""

    def __init__(self, kind: str, name: str, made: Callable[[Sequence[Entry]], Any]) -> None:
        self.kind, self.name, self.made = kind, name, made
        self.formals: list[SymbolNode] = []
        self.outer: dict[tuple[int, int], tuple[Entry, SymbolNode]] = {}
        self.entries: list[list[Entry]] = []

    def variables(self, what: str, count: int) -> list[Any]:
        """Symbols to call functions with."""
        new = [SymbolNode(None, (), f"{self.name}_{what}{k}", {}) for k in range(count)]
        self.formals += new
        return [self.made([(node, 0)]) for node in new]

    def leaves(self, given: Any) -> tuple[list[Entry], Structure]:
        found, structure = flatten(given)
        return [operand(self.kind, x) for x in found], structure

    def write(self, outputs: Sequence[Entry]) -> None:
        """A function that gives these."""
        inside = {id(node) for node in self.formals}
        new: dict[int, SymbolNode] = {id(node): node for node in self.formals}

        def seen(x: Operand) -> Operand:
            if not isinstance(x, tuple):
                return x
            if id(x[0]) in inside:
                return new[id(x[0])], x[1]
            if (id(x[0]), x[1]) not in self.outer:
                stand_in = x[0]
                if stand_in.op is not None:
                    stand_in = SymbolNode(None, (), f"{self.name}_outer{len(self.outer)}", {})
                self.outer[id(x[0]), x[1]] = x, stand_in
            return self.outer[id(x[0]), x[1]][1], 0

        for node in ordered(outputs):
            if id(node) not in inside and any(id(source) in inside for source, _ in node.entries):
                inside.add(id(node))
                new[id(node)] = node.replaced([seen(x) for x in node.inputs])
        self.entries.append([x for entry in outputs if isinstance(x := seen(entry), tuple)])

    def bodies(self) -> list[Body]:
        inputs = [*self.formals, *(stand_in for _, stand_in in self.outer.values())]
        return [Body(entries, [node.name for node in inputs]) for entries in self.entries]

    def node(self, op: SymbolControl, operands: Sequence[Entry]) -> list[Any]:
        """The outputs of the node, one symbol each."""
        inputs = [*operands, *(entry for entry, _ in self.outer.values())]
        node = SymbolNode(op, inputs, self.name, attributes(None), where=user_line())
        return [self.made([(node, k)]) for k in range(node.count)]


def operand(name: str, x: Any) -> Entry:
    """Raises TypeError for what is no symbol."""
    if not isinstance(x, Outputs):
        raise TypeError(f"{name}: takes symbols beside other symbols, got {type(x).__name__}")
    return single(name, x)


def compose_control(made: Callable[[Sequence[Entry]], Any], kind: str, *args: Any, **kwargs: Any) -> Any:
    """What wf.cond, wf.while_loop, wf.foreach and a wf.Function give for symbols; made: a symbol of entries."""
    composers: dict[str, Callable[..., Any]] = {
        "cond": _cond,
        "while_loop": _while_loop,
        "foreach": _foreach,
        "function": _function,
    }
    return composers[kind](_Functions(kind, named(None, kind), made), *args, **kwargs)


def _cond(
    functions: _Functions, pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
) -> Any:
    given, structure = functions.leaves(operands)
    formal = functions.variables("x", len(given))
    shapes = []
    for branch in (then, otherwise):
        entries, shape = functions.leaves(branch(*structure.build(formal)))
        functions.write(entries)
        shapes.append(shape)
    if shapes[0] != shapes[1]:
        raise TypeError(f"cond: then gives {shapes[0]}, otherwise {shapes[1]}")
    bodies = functions.bodies()
    op = SymbolCond(then=bodies[0], otherwise=bodies[1])
    return shapes[0].build(functions.node(op, [operand("cond", pred), *given]))


def _while_loop(
    functions: _Functions,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    *state: Any,
    max_iterations: int | None = None,
) -> Any:
    given, structure = functions.leaves(state)
    formal = functions.variables("state", len(given))
    functions.write(functions.leaves(condition(*structure.build(formal)))[0])
    made = body(*structure.build(formal))
    entries, found = functions.leaves((made,) if len(state) == 1 else made)
    if found != structure:
        raise TypeError(f"while_loop: the state was {structure}, and becomes {found}")
    functions.write(entries)
    bodies = functions.bodies()
    op = SymbolWhile(condition=bodies[0], body=bodies[1], limit=max_iterations)
    last = structure.build(functions.node(op, given))
    return last[0] if len(state) == 1 else last


def _foreach(functions: _Functions, body: Callable[..., Any], data: Any, state: Any) -> tuple[Any, Any]:
    sequences, data_structure = functions.leaves(data)
    states, structure = functions.leaves(state)
    if not sequences:
        raise TypeError("foreach: data holds no array")
    slices = functions.variables("slice", len(sequences))
    befores = functions.variables("state", len(states))
    made = body(data_structure.build(slices), structure.build(befores))
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError("foreach: body must give a pair, the output and the new state")
    items, shape = functions.leaves(made[0])
    new, found = functions.leaves(made[1])
    if found != structure:
        raise TypeError(f"foreach: the state was {structure}, and becomes {found}")
    functions.write([*new, *items])
    op = SymbolForeach(body=functions.bodies()[0], slices=len(sequences), states=len(states))
    outputs = functions.node(op, [*sequences, *states])
    return shape.build(outputs[len(states) :]), structure.build(outputs[: len(states)])


def _function(functions: _Functions, function: Any, *args: Any) -> Any:
    xs = [single("function", x) for x in args if isinstance(x, Outputs)]
    ys, structure = functions.leaves(function.forward(*args))
    slopes = functions.variables("slope", len(ys))
    found = checked(type(function).__name__, function.backward(*slopes), len(xs))
    functions.write([operand("function", dx) for dx in found if dx is not None])
    op = SymbolFunction(
        backward=functions.bodies()[0], count=len(ys), wanted=tuple(dx is not None for dx in found)
    )
    return structure.build(functions.node(op, [*ys, *xs]))
