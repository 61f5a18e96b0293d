"""Loops and branches as operators: what they run are graphs, attributes of the operator.

They are made by wf.foreach, wf.while_loop and wf.cond (weft.imperative.control), and by each other's gradients. A
kernel (native/program/control.h) runs the graphs' programs in place: one step of the program around it.

Gradients are loops and branches again. A loop keeps what each run of its body began with, in hidden outputs, and the
gradient goes through these the other way round; inside of a run, what the gradient needs is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from weft import _core
from weft.base.dtype import bool_, int64
from weft.base.errors import DTypeError, ShapeError
from weft.executor.compile import compile_graph
from weft.executor.planner import row_major
from weft.graph.gradient import joint_graph
from weft.graph.graph import Graph
from weft.graph.placement import devices, spans_devices
from weft.graph.rewrite import first_choice
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.kernels import Native
from weft.ops.node import Value, input_value
from weft.ops.op import Op, op
from weft.ops.types import TensorType

__all__ = ["CondBranch", "ForeachLoop", "WhileLoop"]


class Control(Op):
    """Base: operators that run graphs. The last inputs are the same for every run: what functions found elsewhere."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    family: ClassVar[str] = "control"
    outputs: ClassVar[tuple[str, ...]] = ("*y",)

    def check_inputs(self, graph: Graph, types: Sequence[TensorType]) -> None:
        """Raises TypeError unless these are the types that the graph was made for."""
        wanted = [v.type for v in graph.inputs]
        if len(types) != len(wanted):
            raise TypeError(f"{self.name}: {len(types)} inputs for a graph of {len(wanted)}")
        for mine, theirs in zip(types, wanted, strict=True):
            if mine.dtype is not theirs.dtype:
                raise self.fail(DTypeError, f"{theirs} was expected", x=mine)
            if len(mine.shape) != len(theirs.shape) or any(
                n != m for n, m in zip(mine.shape, theirs.shape, strict=True)
            ):
                raise self.fail(ShapeError, f"{theirs} was expected", x=mine)


def has_effects(*bodies: Subgraph) -> bool:
    """Whether one of their kernels has (Native.ordered), as those that call Python functions may have."""
    choices = (first_choice(node) for body in bodies for node in body.graph.nodes)
    return any(isinstance(choice, Native) and choice.ordered for choice in choices)


def program(name: str, subgraph: Subgraph, strides: Sequence[Any]) -> Any:
    """The plan of a subgraph whose inputs have these strides. Raises NotImplementedError for several devices."""
    if spans_devices(subgraph.graph):
        listed = ", ".join(map(str, devices(subgraph.graph)))
        raise NotImplementedError(
            f"{name}: a graph inside another one runs on one device so far, this one on {listed}"
        )
    return compile_graph(subgraph.graph, name, strides)


def is_float(value: Value) -> bool:
    """Whether a value has a gradient."""
    return value.dtype.is_differentiable


def zeros(like: Value) -> Value:
    """A gradient of nothing."""
    made: Value = F.filled_like(like, value=0.0)
    return made


@op
class ForeachLoop(Control):
    """body(slices, states, rest) -> (states, items) for every slice of sequences along their first axis.

    Inputs: [count,] sequences, states, rest. Outputs: the last states, items stacked; hidden: for each state what every
    run began with, stacked. reverse: from the last slice to the first. counted: only the first `count` slices, an int64
    array of no dimensions; the rest of what is stacked is zero.
    """

    body: Subgraph
    sequences: int
    states: int
    reverse: bool = False
    counted: bool = False

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return self.states

    @property
    def items(self) -> int:
        """How many outputs are stacked."""
        return len(self.body.graph.outputs) - self.states

    def parts(self, x: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Sequences, states, rest."""
        x = x[1:] if self.counted else x
        first, second = self.sequences, self.sequences + self.states
        return x[:first], x[first:second], x[second:]

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        sequences, states, rest = self.parts(x)
        for t in sequences:
            if t.ndim == 0:
                raise self.fail(ShapeError, "sequences need a first axis", x=t)
            if t.shape[0] != sequences[0].shape[0]:
                raise self.fail(ShapeError, "lengths of sequences differ", x=sequences[0], other=t)
        self.check_inputs(self.body.graph, [*(t.like(t.shape[1:]) for t in sequences), *states, *rest])
        length = sequences[0].shape[0]
        made = self.body.types
        stacked = [t.like((length, *t.shape)) for t in [*made[self.states :], *states]]
        return (*made[: self.states], *stacked)

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        shown = self.states + self.items

        def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            sequences, states, rest = self.parts(inputs)
            strides = [
                *(s[1:] for _, _, s in sequences),
                *(row_major(shape) for _, shape, _ in states),
                *(s for _, _, s in rest),
            ]
            return _core.kernel_foreach(
                program("foreach body", self.body, strides),
                sequences=self.sequences,
                rest=len(rest),
                items=self.items,
                saved=[t is not None for t in outputs[shown:]],
                reverse=self.reverse,
                counted=self.counted,
            )

        hidden = tuple(range(shown, shown + self.states))
        yield Native(make, optional=hidden, ordered=has_effects(self.body))

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        sequences, states, rest = self.parts(x)
        items = y[self.states : self.states + self.items]
        shown = self.states + self.items
        found = backward_loop(
            self.body.graph,
            [*sequences, *y[shown:]],
            states,
            rest,
            dy[: self.states],
            [slope if is_float(v) else None for v, slope in zip(items, dy[self.states : shown], strict=True)],
            dy[shown:],
            not self.reverse,
            x[0] if self.counted else None,
        )
        return ([None, *found] if self.counted else found,)


def backward_loop(
    body: Graph,
    stacked: Sequence[Value],
    states: Sequence[Value],
    rest: Sequence[Value],
    final_slopes: Sequence[Value | None],
    item_slopes: Sequence[Value | None],
    saved_slopes: Sequence[Value | None],
    reverse: bool,
    count: Value | None,
) -> list[Value | None]:
    """The gradients of a loop's sequences, states and rest: a loop in the other direction.

    body: of the loop. stacked: its sequences, then the stacks of what each run began with; slopes: gradients of the
    last states, of stacked items, and of those stacks, None for zero.
    """
    sequences = len(stacked) - len(states)
    wanted = [is_float(v) for v in body.inputs]
    given = [is_float(v) for v in states] + [slope is not None for slope in item_slopes]
    step = joint_graph(body, wanted, given)
    slopes_in = step.inputs[len(body.inputs) :]
    results = iter(step.outputs)
    made = [next(results) if want else None for want in wanted]

    slices, befores = body.inputs[:sequences], body.inputs[sequences : len(stacked)]
    constants = body.inputs[len(stacked) :]
    floats = [k for k, v in enumerate(states) if is_float(v)]
    sums = [k for k, v in enumerate(constants) if is_float(v)]
    running = [input_value(constants[k].type) for k in sums]
    added = {k: input_value(befores[k].type) for k, slope in enumerate(saved_slopes) if slope is not None}

    def gradient(k: int, of: Value) -> Value:
        found = made[k]
        return zeros(of) if found is None else found

    new_states = [gradient(sequences + k, befores[k]) for k in floats]
    new_states = [F.add(v, added[k]) if k in added else v for k, v in zip(floats, new_states, strict=True)]
    for k, total in zip(sums, running, strict=True):
        found = made[len(stacked) + k]
        new_states.append(total if found is None else F.add(total, found))
    wanted_slices = [k for k, v in enumerate(slices) if is_float(v)]
    items = [gradient(k, slices[k]) for k in wanted_slices]
    graph = Graph(
        [
            *slices,
            *befores,
            *slopes_in[len(floats) :],
            *added.values(),
            *slopes_in[: len(floats)],
            *running,
            *constants,
        ],
        [*new_states, *items],
    )
    outer_items = [slope for slope in item_slopes if slope is not None]
    outer_saved = [slope for slope in saved_slopes if slope is not None]
    begin = [zeros(states[k]) if (s := final_slopes[k]) is None else s for k in floats]
    loop = ForeachLoop(
        body=Subgraph(graph),
        sequences=len(stacked) + len(outer_items) + len(outer_saved),
        states=len(floats) + len(sums),
        reverse=reverse,
        counted=count is not None,
    )
    found = loop(
        *([] if count is None else [count]),
        *stacked,
        *outer_items,
        *outer_saved,
        *begin,
        *(zeros(rest[k]) for k in sums),
        *rest,
    )
    gradients: list[Value | None] = [None] * (sequences + len(states) + len(rest))
    for k, slope in zip(floats, found, strict=False):
        gradients[sequences + k] = slope
    for k, slope in zip(sums, found[len(floats) :], strict=False):
        gradients[len(stacked) + k] = slope
    for k, slope in zip(wanted_slices, found[len(floats) + len(sums) :], strict=True):
        gradients[k] = slope
    return gradients


@op
class WhileLoop(Control):
    """While condition(states, rest) gives True, at most `limit` times: body(states, rest) -> states.

    Inputs: states, rest. Outputs: the last states; hidden, where there is a limit: how often the body ran, and for each
    state what every run began with, stacked.
    """

    condition: Subgraph
    body: Subgraph
    states: int
    limit: int | None = None

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return 0 if self.limit is None else 1 + self.states

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        for graph in (self.condition.graph, self.body.graph):
            self.check_inputs(graph, x)
        states = x[: self.states]
        made = tuple(t.like() for t in states)
        if self.limit is None:
            return made
        return (*made, TensorType((), int64, x[0].device), *(t.like((self.limit, *t.shape)) for t in states))

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            states, rest = inputs[: self.states], inputs[self.states :]
            strides = [*(row_major(shape) for _, shape, _ in states), *(s for _, _, s in rest)]
            kept = list(outputs[self.states :]) or [None] * (1 + self.states)
            return _core.kernel_while(
                program("while condition", self.condition, strides),
                program("while body", self.body, strides),
                rest=len(rest),
                limit=-1 if self.limit is None else self.limit,
                counted=kept[0] is not None,
                saved=[t is not None for t in kept[1:]],
            )

        hidden = tuple(range(self.states, self.states + self.hidden))
        yield Native(make, optional=hidden, ordered=has_effects(self.condition, self.body))

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if self.limit is None:
            raise ValueError(
                "while_loop: its gradient inside of a graph needs max_iterations, which bounds the states to be kept"
            )
        states, rest = x[: self.states], x[self.states :]
        first = self.states + 1
        return (
            backward_loop(
                self.body.graph,
                y[first:],
                states,
                rest,
                dy[: self.states],
                [],
                dy[first:],
                True,
                y[self.states],
            ),
        )


@op
class CondBranch(Control):
    """then(x) where the predicate, one boolean, is True, otherwise(x) where it is not; both take all of x."""

    then: Subgraph
    otherwise: Subgraph

    def infer(self, predicate: TensorType, *x: TensorType) -> tuple[TensorType, ...]:
        if predicate.dtype is not bool_ or predicate.shape != ():
            raise self.fail(DTypeError, "the predicate must be one boolean", predicate=predicate)
        for graph in (self.then.graph, self.otherwise.graph):
            self.check_inputs(graph, x)
        return tuple(self.then.types)

    def kernels(self, predicate: TensorType | None, *x: TensorType | None) -> Iterator[Native]:
        def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            strides = [s for _, _, s in inputs[1:]]
            return _core.kernel_cond(
                program("then", self.then, strides),
                program("otherwise", self.otherwise, strides),
                inputs=len(strides),
            )

        yield Native(make, ordered=has_effects(self.then, self.otherwise))

    def vjp(self, predicate: Any, x: Any, dy: Any) -> Any:
        wanted = [is_float(v) for v in x]
        given = [slope is not None for slope in dy]

        def gradient(subgraph: Subgraph) -> Subgraph:
            joint = joint_graph(subgraph.graph, wanted, given)
            floats = [v for v, want in zip(subgraph.graph.inputs, wanted, strict=True) if want]
            found = [zeros(v) if d is None else d for v, d in zip(floats, joint.outputs, strict=True)]
            return Subgraph(Graph(joint.inputs, found))

        branch = CondBranch(then=gradient(self.then), otherwise=gradient(self.otherwise))
        found = iter(branch(predicate, *x, *(slope for slope in dy if slope is not None)))
        return None, [next(found) if want else None for want in wanted]
