"""Loops and branches as operators: what they run are graphs, attributes of the operator.

They are made by wf.foreach, wf.while_loop and wf.cond (weft.control_flow), and by each other's gradients. A
kernel (native/program/control.h) runs the graphs' programs in place: one step of the program around it.

Gradients are loops and branches again. A loop keeps what each run of its body began with, in hidden outputs, and the
gradient goes through these the other way round; inside of a run, what the gradient needs is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft import _core
from weft.base.dtype import bool_, int64
from weft.base.errors import DeviceError, DTypeError, ShapeError
from weft.executor.compile import compile_graph
from weft.executor.planner import row_major
from weft.graph.capture import no_capture
from weft.graph.gradient import joint_graph
from weft.graph.graph import Graph, graph_of
from weft.graph.passes import skipped
from weft.graph.subgraph import Subgraph
from weft.kernels import first_choice, left_out
from weft.ops import functions as F
from weft.ops.families.arithmetic import Add
from weft.ops.families.elementary import Cast
from weft.ops.families.matrix import Matmul
from weft.ops.families.reduction import Sum
from weft.ops.families.shape import MatrixTranspose, Reshape
from weft.ops.kernels import Native
from weft.ops.loops import Step
from weft.ops.node import Value, input_value
from weft.ops.op import Op, op
from weft.ops.registry import cached
from weft.ops.sizes import NeedsSizes, Size
from weft.ops.types import TensorType

__all__ = ["CondBranch", "ForeachLoop", "WhileLoop"]


class Control(Op, family="control", primitive=True, public=False, outputs=("*y",)):
    """Base: operators that run graphs. The last inputs are the same for every run: captured values."""

    def bodies(self) -> list[Subgraph]:
        """The graphs that it runs; the outputs of the last one are those that callers get."""
        raise NotImplementedError

    def count_outputs(self, count: int) -> int:
        """Also raises TypeError for a number of inputs that the graphs do not take; for symbols."""
        first = len(self.inputs) - 1
        for body in self.bodies():
            if len(body.graph.inputs) != count - first:
                raise TypeError(
                    f"{self.name}: {count - first} inputs for a graph of {len(body.graph.inputs)}"
                )
        return len(self.bodies()[-1].graph.outputs)

    def check_inputs(self, graph: Graph, types: Sequence[TensorType]) -> None:
        """Raises TypeError unless these are the types that the graph was made for.

        Inside it may use other devices; what it takes and gives is on the operator's own.
        """
        places = {v.node.device for v in (*graph.inputs, *graph.outputs) if v is not None} - {None}
        if len(places) > 1:
            names = " and ".join(sorted(map(str, places)))
            raise self.fail(
                DeviceError,
                f"what its graph takes and gives must be on one device, got {names}",
                **_short(types),
            )
        if len(types) != len(graph.inputs):
            raise TypeError(f"{self.name}: {len(types)} inputs for a graph of {len(graph.inputs)}")
        for actual, expected in zip(types, (v.type for v in graph.inputs), strict=True):
            if actual.dtype is not expected.dtype:
                raise self.fail(DTypeError, f"{expected} was expected", x=actual)
            if len(actual.shape) != len(expected.shape) or any(
                n != m for n, m in zip(actual.shape, expected.shape, strict=True)
            ):
                raise self.fail(ShapeError, f"{expected} was expected", x=actual)


def _short(types: Sequence[TensorType]) -> dict[str, TensorType]:
    """The first operands, by what errors call them."""
    return {f"x{k}": t for k, t in enumerate(types[:3])}


@cached(maxsize=512)
def has_effects(*bodies: Subgraph) -> bool:
    """Whether one of their kernels has (Native.ordered), as those that call Python functions may have."""
    choices = (first_choice(node) for body in bodies for node in body.graph.nodes)
    return any(isinstance(choice, Native) and choice.ordered for choice in choices)


def program(name: str, subgraph: Subgraph, strides: Sequence[Any]) -> Any:
    """The plan of a subgraph whose inputs have these strides."""
    for value, steps in zip(subgraph.graph.inputs, strides, strict=True):
        if any(isinstance(n, Size) for n in (*value.shape, *(steps or ()))):  # a size of 1 has any stride
            raise NeedsSizes(f"{name}: a graph inside another one is planned for exact sizes")
    lines = tuple(node.where for node in subgraph.graph.nodes)
    facts = lines, _core.isa(), tuple(sorted(skipped())), left_out()
    return planned(subgraph, name, tuple(map(tuple, strides)), *facts)


@cached(maxsize=256)
def planned(subgraph: Subgraph, name: str, strides: tuple[Any, ...], *_: Any) -> Any:
    """The plan of a graph inside of others: one for all of the same text, whatever lengths the loops around it have.

    What else decides about plans is part of the key, the instruction set level, passes and kernels that are left out;
    so are the users' lines, which late errors name.
    """
    return compile_graph(subgraph.graph, name, strides)


def is_float(value: Value) -> bool:
    """Whether a value has a gradient."""
    return value.dtype.is_differentiable


def zeros(like: Value) -> Value:
    """The gradient of a value that the result does not depend on."""
    gradient: Value = F.filled_like(like, value=0.0)
    return gradient


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

    def check(self) -> None:
        inputs, visible = len(self.body.graph.inputs), len(self.body.graph.outputs)
        if self.sequences < 0 or not 0 <= self.states <= visible or self.sequences + self.states > inputs:
            raise TypeError(
                f"{self.name}: {self.sequences} sequences and {self.states} states for a body of {inputs} inputs and"
                f" {visible} outputs"
            )

    def bodies(self) -> list[Subgraph]:
        return [self.body]

    def count_outputs(self, count: int) -> int:
        if self.sequences < 1 or self.reverse or self.counted:
            raise TypeError(
                f"{self.name}: a symbol's loop goes over all slices of at least one sequence, forwards"
            )
        return super().count_outputs(count)

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
        types = self.body.types
        stacked = [t.like((length, *t.shape)) for t in [*types[self.states :], *states]]
        return (*types[: self.states], *stacked)

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        visible = self.states + self.items

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
                saved=[t is not None for t in outputs[visible:]],
                reverse=self.reverse,
                counted=self.counted,
            )

        hidden = tuple(range(visible, visible + self.states))
        yield Native(make, optional=hidden, ordered=has_effects(self.body))

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        sequences, states, rest = self.parts(x)
        items = y[self.states : self.states + self.items]
        visible = self.states + self.items
        gradients = backward_loop(
            self.body,
            [*sequences, *y[visible:]],
            states,
            rest,
            dy[: self.states],
            [
                cotangent if is_float(v) else None
                for v, cotangent in zip(items, dy[self.states : visible], strict=True)
            ],
            dy[visible:],
            not self.reverse,
            x[0] if self.counted else None,
        )
        return ([None, *gradients] if self.counted else gradients,)

    @classmethod
    def scan(
        cls, step: Step, sequences: Sequence[Any], states: Sequence[Any], rest: Sequence[Any], reverse: bool
    ) -> tuple[list[Any], list[Any]]:
        """See weft.ops.loops."""
        body = body_of(step, sequences, states, rest)
        op = cls(body=body, sequences=len(sequences), states=len(states), reverse=reverse)
        outputs = op(*sequences, *states, *rest)
        return list(outputs[: len(states)]), list(outputs[len(states) :])

    @classmethod
    def scan_gradient(
        cls,
        step: Step,
        sequences: Sequence[Any],
        befores: Sequence[Any],
        states: Sequence[Any],
        rest: Sequence[Any],
        dstates: Sequence[Any],
        ditems: Sequence[Any],
        reverse: bool,
    ) -> list[Any]:
        """See weft.ops.loops."""
        body = body_of(step, sequences, states, rest)
        nothing = [None] * len(states)
        return backward_loop(
            body, [*sequences, *befores], states, rest, dstates, ditems, nothing, not reverse, None
        )


def body_of(
    step: Step, sequences: Sequence[Value], states: Sequence[Value], rest: Sequence[Value]
) -> Subgraph:
    """A step of a scan as the body of a loop."""
    slices = [v.type.like(v.shape[1:]) for v in sequences]
    types = (*slices, *(v.type for v in states), *(v.type for v in rest))
    is_dynamic = any(isinstance(n, Size) for t in types for n in t.shape)  # such types are not keys
    return _body_of(step, types) if is_dynamic else _cached_body_of(step, types)


@no_capture()
def _body_of(step: Step, types: tuple[TensorType, ...]) -> Subgraph:
    def function(*values: Value) -> list[Value]:
        states, items = step(*values)
        return [*states, *items]

    return Subgraph(graph_of(function, types))


_cached_body_of = cached(maxsize=256)(_body_of)


def backward_loop(
    body: Subgraph,
    stacked: Sequence[Value],
    states: Sequence[Value],
    rest: Sequence[Value],
    final_cotangents: Sequence[Value | None],
    item_cotangents: Sequence[Value | None],
    saved_cotangents: Sequence[Value | None],
    reverse: bool,
    count: Value | None,
) -> list[Value | None]:
    """The gradients of a loop's sequences, states and rest: a loop in the other direction.

    body: of the loop. stacked: its sequences, then the stacks of what each run began with; cotangents: gradients of the
    last states, of stacked items, and of those stacks, None for zero.
    """
    sequences = len(stacked) - len(states)
    step = backward_step(
        body,
        sequences,
        len(states),
        tuple(cotangent is not None for cotangent in item_cotangents),
        tuple(cotangent is not None for cotangent in saved_cotangents),
    )
    outer_items = [cotangent for cotangent in item_cotangents if cotangent is not None]
    outer_saved = [cotangent for cotangent in saved_cotangents if cotangent is not None]
    begin = [zeros(states[k]) if (s := final_cotangents[k]) is None else s for k in step.states]
    loop = ForeachLoop(
        body=step.body,
        sequences=len(stacked) + len(outer_items) + len(outer_saved),
        states=len(step.states) + len(step.totals),
        reverse=reverse,
        counted=count is not None,
    )
    outputs = loop(
        *([] if count is None else [count]),
        *stacked,
        *outer_items,
        *outer_saved,
        *begin,
        *(zeros(rest[k]) for k in step.totals),
        *rest,
    )
    ends, items = outputs[: len(begin)], outputs[len(begin) + len(step.totals) :]
    totals = outputs[len(begin) : len(begin) + len(step.totals)]
    gradients: list[Value | None] = [None] * (sequences + len(states) + len(rest))
    for k, cotangent in zip(step.states, ends, strict=True):
        gradients[sequences + k] = cotangent
    for k, cotangent in zip(step.totals, totals, strict=True):
        gradients[len(stacked) + k] = cotangent
    for k, cotangent in zip(step.slices, items[: len(step.slices)], strict=True):
        gradients[k] = cotangent

    stacks = [*stacked, *items]
    for k, left, right in step.products:
        product = _product(stacks[left], stacks[right])
        gradients[len(stacked) + k] = _added(gradients[len(stacked) + k], product)
    for k, index in step.sums:
        total = F.sum(stacks[index], axis=(0, 1))
        gradients[len(stacked) + k] = _added(gradients[len(stacked) + k], total)
    return gradients


def _added(a: Value | None, b: Value) -> Value:
    total: Value = b if a is None else F.add(a, b)
    return total


def _product(left: Value, right: Value) -> Value:
    """The sum of left[t]^T right[t] over all t, as one product."""
    first, second = (F.reshape(x, shape=(x.shape[0] * x.shape[1], x.shape[2])) for x in (left, right))
    product: Value = F.matmul(F.matrix_transpose(first), second)
    return product


class BackwardStep(NamedTuple):
    """The body of a loop's backward loop, and what its results are.

    Its states are the cotangents of `states` of the loop, then running sums of the cotangents of `totals` of the
    rest; its items the cotangents of `slices`, then what products and sums read. products: (k, left, right): the
    cotangent of the rest's k is left^T right, computed for all runs together; sums: (k, x): the sum of x's rows.
    What these read is given by its index among what the loop stacks, with the items behind that.
    """

    body: Subgraph
    states: list[int]
    totals: list[int]
    slices: list[int]
    products: list[tuple[int, int, int]]
    sums: list[tuple[int, int]]


@cached(maxsize=512)
@no_capture()
def backward_step(
    body: Subgraph, sequences: int, states: int, items_given: tuple[bool, ...], saved_given: tuple[bool, ...]
) -> BackwardStep:
    """What a run of a loop's body becomes in the loop's gradient.

    The gradient of weights is a sum over all runs. Where a run adds a product of two matrices that are smaller than the
    sum together, these are stacked and multiplied at the end: a product of long matrices instead of many of short ones,
    and the sum is not read and written in each run. So it costs no more memory traffic than adding up.
    """
    graph = body.graph
    stacked = sequences + states
    differentiable = [is_float(v) for v in graph.inputs]
    befores, constants = graph.inputs[sequences:stacked], graph.inputs[stacked:]
    floats = [k for k, v in enumerate(befores) if is_float(v)]
    has_cotangent = [is_float(v) for v in befores] + list(items_given)
    step = joint_graph(graph, differentiable, has_cotangent)
    cotangents_in = step.inputs[len(graph.inputs) :]
    results = iter(step.outputs)
    cotangents_out = [next(results) if is_output else None for is_output in differentiable]
    added = {k: input_value(befores[k].type) for k, is_given in enumerate(saved_given) if is_given}

    def gradient(k: int) -> Value:
        cotangent = cotangents_out[k]
        return zeros(graph.inputs[k]) if cotangent is None else cotangent

    new_states = [gradient(sequences + k) for k in floats]
    new_states = [F.add(v, added[k]) if k in added else v for k, v in zip(floats, new_states, strict=True)]
    slices = [k for k in range(sequences) if differentiable[k]]
    items = [gradient(k) for k in slices]
    indices = {id(v): k for k, v in enumerate(graph.inputs[:stacked])}

    def index(value: Value) -> int:
        """Of a value among what is stacked; it becomes an item if it is not."""
        if id(value) not in indices:
            indices[id(value)] = stacked + len(items)
            items.append(value)
        return indices[id(value)]

    products: list[tuple[int, int, int]] = []
    running: dict[int, Value] = {}  # by number of the rest: what a run adds
    for k, v in enumerate(constants):
        cotangent = cotangents_out[stacked + k]
        if not is_float(v):
            continue
        for term in [] if cotangent is None else _terms(cotangent):
            if (factors := _small_factors(term)) is not None:
                products.append((k, index(factors[0]), index(factors[1])))
            else:
                running[k] = _added(running.get(k), term)
        if cotangent is None:
            running[k] = zeros(v)
    sums: list[tuple[int, int]] = []
    for k, cotangent in list(running.items()):  # of what is stacked already
        source = _summed_rows(cotangent)
        if source is not None and id(source) in indices:
            sums.append((k, indices[id(source)]))
            del running[k]
    totals = [input_value(constants[k].type) for k in running]
    body_inputs = [
        *graph.inputs[:stacked],
        *cotangents_in[len(floats) :],
        *added.values(),
        *cotangents_in[: len(floats)],
        *totals,
        *constants,
    ]
    sums_now = [F.add(total, cotangent) for total, cotangent in zip(totals, running.values(), strict=True)]
    return BackwardStep(
        Subgraph(Graph(body_inputs, [*new_states, *sums_now, *items])),
        floats,
        list(running),
        slices,
        products,
        sums,
    )


def _terms(value: Value) -> list[Value]:
    """The terms of a value that is a sum."""
    stack, terms = [value], []
    while stack:
        term = stack.pop()
        operands = [v for v in term.node.inputs if v is not None]
        if isinstance(term.node.op, Add) and all(v.type == term.type for v in operands):
            stack += reversed(operands)
        else:
            terms.append(term)
    return terms


def _plain(value: Value) -> Value:
    """The value without conversions to its own type, and reshapes to its own shape."""
    while isinstance(value.node.op, Cast | Reshape):
        source = value.node.inputs[0]
        if source is None or source.type != value.type:
            break
        value = source
    return value


def _small_factors(term: Value) -> tuple[Value, Value] | None:
    """(a, b) if the term is a^T b of two matrices that have no more elements than it; None otherwise."""
    product = _plain(term)
    if not isinstance(product.node.op, Matmul):
        return None
    first, second = (None if v is None else _plain(v) for v in product.node.inputs)
    if first is None or second is None or second.type.ndim != 2:
        return None
    if not isinstance(first.node.op, MatrixTranspose) or first.type.ndim != 2:
        return None
    left = first.node.inputs[0]
    assert left is not None
    left = _plain(left)
    if any(v.dtype is not term.dtype or v.is_constant for v in (left, second)):
        return None
    try:
        small = left.type.size + second.type.size <= term.type.size
    except NeedsSizes:  # of a dynamic axis: rows of a batch, as a rule
        small = True
    return (left, second) if small else None


def _summed_rows(value: Value) -> Value | None:
    """x if the value is the sum of the rows of a matrix x; None otherwise."""
    value = _plain(value)
    if not isinstance(value.node.op, Sum) or value.type.ndim != 1:
        return None
    source = value.node.inputs[0]
    if source is None or value.node.op.axis not in (0, (0,)):
        return None
    source = _plain(source)
    return source if source.type.ndim == 2 and source.dtype is value.dtype else None


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

    def check(self) -> None:
        inputs, outputs = len(self.body.graph.inputs), len(self.body.graph.outputs)
        if len(self.condition.graph.outputs) != 1 or not 0 <= self.states == outputs <= inputs:
            raise TypeError(
                f"{self.name}: needs one condition, and a state for each output of the body: there are {self.states}"
                f" states for {outputs} outputs"
            )

    def bodies(self) -> list[Subgraph]:
        return [self.condition, self.body]

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return 0 if self.limit is None else 1 + self.states

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        for graph in (self.condition.graph, self.body.graph):
            self.check_inputs(graph, x)
        states = x[: self.states]
        last = tuple(t.like() for t in states)
        if self.limit is None:
            return last
        return (*last, TensorType((), int64, x[0].device), *(t.like((self.limit, *t.shape)) for t in states))

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            states, rest = inputs[: self.states], inputs[self.states :]
            strides = [*(row_major(shape) for _, shape, _ in states), *(s for _, _, s in rest)]
            saved = list(outputs[self.states :]) or [None] * (1 + self.states)
            return _core.kernel_while(
                program("while condition", self.condition, strides),
                program("while body", self.body, strides),
                rest=len(rest),
                limit=-1 if self.limit is None else self.limit,
                counted=saved[0] is not None,
                saved=[t is not None for t in saved[1:]],
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
                self.body,
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

    def check(self) -> None:
        if len(self.then.graph.outputs) != len(self.otherwise.graph.outputs):
            raise TypeError(f"{self.name}: the branches have different numbers of outputs")

    def bodies(self) -> list[Subgraph]:
        return [self.then, self.otherwise]

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
        differentiable = [is_float(v) for v in x]
        cotangents = [cotangent for cotangent in dy if cotangent is not None]

        def gradient(subgraph: Subgraph) -> Subgraph:
            joint = joint_graph(subgraph.graph, differentiable, [cotangent is not None for cotangent in dy])
            floats = [v for v in subgraph.graph.inputs if is_float(v)]
            dx = [zeros(v) if d is None else d for v, d in zip(floats, joint.outputs, strict=True)]
            return Subgraph(Graph(joint.inputs, dx))

        branch = CondBranch(then=gradient(self.then), otherwise=gradient(self.otherwise))
        dx = iter(branch(predicate, *x, *cotangents))
        return None, [next(dx) if is_float(v) else None for v in x]
