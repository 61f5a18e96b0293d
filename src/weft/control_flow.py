"""Control flow that depends on data, with gradients: cond, while_loop, foreach.

On arrays they are Python's own `if`, `while` and `for`. Where a graph is being made (a trace, lazy evaluation, a
function called with Values) they become one operator each, whose functions are written down once
(weft.executor.control).

>>> import weft as wf
>>> total, last = wf.foreach(lambda x, sum: (sum + x, sum + x), wf.tensor([1., 2., 3.]), wf.tensor(0.))
>>> total, last.item()
(tensor([1., 3., 6.], dtype=float32, device=cpu:0), 6.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from weft import _core
from weft.arrays import tracer as tracer  # so that recorded functions hold arrays
from weft.arrays.creation import asarray, empty
from weft.base.dtype import bool_
from weft.base.errors import DTypeError, ShapeError
from weft.base.structure import Structure, flatten, tree_leaves, tree_map
from weft.executor.control import CondBranch, ForeachLoop, WhileLoop
from weft.gradients.gradient import is_recorded
from weft.graph.capture import Capture, type_of
from weft.graph.recording import is_newer, memory_mark
from weft.ops import functions as F
from weft.ops.node import Value, traced
from weft.recording.control_flow_effects import (
    applied,
    in_graph,
    may_share_memory,
    positions,
    separate_stream,
    take_stream_words,
    unused_stream_words,
    write_back,
    write_back_found,
)

__all__ = ["associative_scan", "cond", "foreach", "while_loop"]

Array = _core.Tensor | Value
R = TypeVar("R")
T = TypeVar("T")


def cond(pred: Any, then: Callable[..., R], otherwise: Callable[..., R], *operands: Any) -> R:
    """then(*operands) if pred is True, else otherwise(*operands).

    pred: one boolean, a tensor or Python's. Both functions take the same operands, arrays or structures of them, may
    use arrays of enclosing scopes, and give arrays, or structures of them; in a graph both are written down, and
    have to give the same structure of the same types. They may write operands and arrays that they find. Results are
    new arrays, copies where a function gives an array that was there before. The gradient is that of the branch taken.
    Raises ShapeError or DTypeError if pred is not one boolean; TypeError, ShapeError or DTypeError if branches of a
    graph differ; NotImplementedError for what a graph cannot hold.

    >>> import weft as wf
    >>> halve = lambda x: wf.cond(x.sum() > 10, lambda x: x / 2, lambda x: x, x)
    >>> halve(wf.tensor([8., 4.])), halve(wf.tensor([4., 2.]))
    (tensor([4., 2.], dtype=float32, device=cpu:0), tensor([4., 2.], dtype=float32, device=cpu:0))
    """
    if (symbol := _symbol([pred, *operands])) is not None:
        return symbol.__weft_control__("cond", pred, then, otherwise, *operands)
    leaves, structure = _arrays("cond", operands)
    if isinstance(pred, bool):
        return (then if pred else otherwise)(*operands)
    _check_predicate("cond", pred)
    if not in_graph([pred, *leaves]):
        mark = memory_mark()
        with separate_stream([pred, *leaves]):
            return _as_in_graph((then if pred else otherwise)(*operands), mark)
    return _cond_in_graph(pred, leaves, structure, (then, otherwise))


def while_loop(
    condition: Callable[..., Any], body: Callable[..., Any], *state: Any, max_iterations: int | None = None
) -> Any:
    """state = body(*state) as long as condition(*state) is True: the last state.

    state: arrays or structures of them, at least one; body gives as many, of the same structure and types; one alone
    not in a tuple. condition gives one boolean. max_iterations: the loop ends after so many, whatever the condition;
    in a graph it is also what a gradient needs, because it bounds the states that are kept. A body of a graph that
    writes the state it is given must give that array back. Results are new arrays, as those of cond.
    Raises TypeError, ShapeError or DTypeError if the state changes its structure or types, or condition does not give
    one boolean; ValueError for a gradient in a graph without max_iterations; NotImplementedError as cond.

    >>> import weft as wf
    >>> wf.while_loop(lambda x: x < 100, lambda x: x * 2, wf.tensor(3.)).item()
    192.0
    """
    if not state:
        raise TypeError("while_loop: a state must be given")
    if max_iterations is not None and max_iterations < 0:
        raise ValueError(f"while_loop: max_iterations must be at least 0, got {max_iterations}")
    if (symbol := _symbol(state)) is not None:
        return symbol.__weft_control__("while_loop", condition, body, *state, max_iterations=max_iterations)
    leaves, structure = _arrays("while_loop", state)

    def step(leaves: Sequence[Any]) -> Any:
        result = body(*structure.build(leaves))
        return (result,) if len(state) == 1 else result

    if in_graph(leaves):
        leaves = _while_in_graph(condition, step, leaves, structure, max_iterations)
    else:
        mark = memory_mark()
        with separate_stream(leaves):
            leaves = _as_in_graph(_while_on_arrays(condition, step, leaves, structure, max_iterations), mark)
    result = structure.build(leaves)
    return result[0] if len(state) == 1 else result


def foreach(body: Callable[[Any, T], tuple[R, T]], data: Any, state: T) -> tuple[R, T]:
    """For every slice of data along the first axis: output, state = body(slice, state); (stacked outputs, last state).

    data, state, output: arrays or structures of them (data not an empty one, state may be ``()``); all of data have
    the same length, and state keeps its structure and types. Outputs are as they are when body returns. Without any
    slice, they have the length 0 and state is what it was. In a graph body is written down once, whatever the length;
    one that writes the state it is given must give that array back. Results are new arrays, as those of cond.
    Raises ShapeError for data without a first axis or of different lengths; TypeError, ShapeError or DTypeError if
    the state changes its structure or types, or in later outputs; NotImplementedError as cond.

    >>> import weft as wf
    >>> x = wf.tensor([[1., 2.], [3., 4.]])
    >>> means, _ = wf.foreach(lambda x, _: (x.mean(), ()), x, ())
    >>> means
    tensor([1.5, 3.5], dtype=float32, device=cpu:0)
    """
    if (symbol := _symbol([data, state])) is not None:
        outputs_and_state: tuple[Any, Any] = symbol.__weft_control__("foreach", body, data, state)
        return outputs_and_state
    sequences, data_structure = _arrays("foreach", data)
    states, structure = _arrays("foreach", state)
    _length(sequences)

    def step(slices: Sequence[Any], states: Sequence[Any]) -> tuple[Any, Any]:
        result = body(data_structure.build(slices), structure.build(states))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError("foreach: body must give a pair, the output and the new state")
        return result

    if in_graph([*sequences, *states]):
        return _foreach_in_graph(step, sequences, states, structure)
    mark = memory_mark()
    with separate_stream([*sequences, *states]):
        result = _as_in_graph(_foreach_on_arrays(step, sequences, states, structure), mark)
        return cast(tuple[Any, Any], result)


def _as_in_graph(results: Any, mark: int) -> Any:
    """The results as a graph gives them: arrays of their own, and inside of no_grad() without history.

    mark: memory that is not newer was there before; what a function gives of it is copied.
    """
    stops = is_recorded() and not _core.is_recording()
    memory: set[int] = set()
    arrays = []
    leaves, structure = flatten(results)
    for x in leaves:
        if type(x) is _core.Tensor:
            y = _unshared(x, mark, memory)
            memory.add(_core.geometry(y)[0])
            x = _core.alias(y, keep_past=False) if stops and _core.is_tracked(y) else y
        arrays.append(x)
    return structure.build(arrays)


def _unshared(x: Any, mark: int, memory: set[int]) -> Any:
    """The array, or a copy where its memory was there before the mark or is that of others, by serial."""
    serial = _core.geometry(x)[0]
    return x if not x.size or (is_newer(serial, mark) and serial not in memory) else x.copy()


def _while_on_arrays(
    condition: Callable[..., Any],
    step: Callable[..., Any],
    leaves: list[Any],
    structure: Structure,
    limit: int | None,
) -> list[Any]:
    count = 0
    while count != limit and _check_predicate("while_loop", condition(*structure.build(leaves))):
        leaves = _next_state("while_loop", leaves, structure, step(leaves))
        count += 1
    return leaves


def _foreach_on_arrays(
    step: Callable[..., Any], sequences: list[Any], states: list[Any], structure: Structure
) -> tuple[Any, Any]:
    if not _length(sequences):
        capture = Capture("foreach", unused_stream_words())
        outputs, output_structure, *_ = _write_step(capture, step, sequences, states, structure)
        stacks = [empty((0, *v.shape), v.dtype, v.type.device) for v in outputs]
        return output_structure.build(stacks), structure.build(states)
    items_of_runs: list[list[Any]] = []  # what each run of the body gives
    first: Structure | None = None
    for slices in zip(*(F.unstack(x, axis=0) for x in sequences), strict=True):
        mark = _core.last_serial()
        output, new = step(slices, states)
        states = _next_state("foreach", states, structure, new)
        items, structure_of_items = _arrays("foreach", output)
        first = first or structure_of_items
        _check_same(
            "foreach",
            "an output was",
            first,
            (items_of_runs or [items])[0],
            "and is",
            structure_of_items,
            items,
        )
        memory = {_core.geometry(x)[0] for x in states}
        items_of_runs.append([_unshared(x, mark, memory) for x in items])
    assert first is not None
    stacked = [F.stack(stack, axis=0) for stack in zip(*items_of_runs, strict=True)]
    return first.build(stacked), structure.build(states)


def _foreach_in_graph(
    step: Callable[..., Any], sequences: list[Any], states: list[Any], structure: Structure
) -> tuple[Any, Any]:
    leaves = [*sequences, *states]
    capture = Capture("foreach", take_stream_words(leaves))
    data = list(sequences)
    outputs, output_structure, inputs, new_states, changed = _write_step(
        capture, step, sequences, states, structure
    )
    written_slices = capture.written(inputs[: len(data)])
    for k in written_slices:
        _check_alone(capture, data[k], [*(x for j, x in enumerate(data) if j != k), *states])
    slices, befores = inputs[: len(sequences)], inputs[len(sequences) :]
    if capture.drew:
        slices = [*slices, capture.position]
        sequences = [*sequences, positions(leaves, _length(sequences), capture.blocks)]
    written_captures = list(capture.new_contents)
    befores = [*befores, *(capture.capture_inputs[k] for k in written_captures)]
    count = len(befores)
    op = ForeachLoop(
        body=capture.subgraph(
            [*slices, *befores],
            [*new_states, *capture.new_contents.values(), *outputs, *written_slices.values()],
        ),
        sequences=len(sequences),
        states=count,
    )
    captures = [capture.captures[k] for k in written_captures]
    results = applied(op, [*sequences, *states, *captures, *capture.other_captures(written_captures)])
    write_back_found(capture, written_captures, results[len(states) : count])
    items = results[count : count + len(outputs)]
    for k, end in zip(written_slices, results[count + len(outputs) :], strict=True):
        write_back(capture, data[k], end)
    return output_structure.build(items), structure.build(_write_states(capture, changed, states, results))


def _write_step(
    capture: Capture,
    step: Callable[..., Any],
    sequences: Sequence[Any],
    states: Sequence[Any],
    structure: Structure,
) -> tuple[list[Value], Structure, list[Value], list[Value], list[int]]:
    """foreach's body on Values: outputs and their structure, the inputs, the new states, which of them are written."""
    types = [type_of(x) for x in sequences]
    slices = [capture.input(t.like(t.shape[1:])) for t in types]
    befores = [capture.input(type_of(x)) for x in states]
    recorded = capture.run(lambda: step([*map(traced, slices)], [*map(traced, befores)]))
    output_structure, new_structure = recorded.structure.parts
    count = output_structure.count()
    outputs, news = recorded.outputs[:count], recorded.outputs[count:]
    _check_same("foreach", "the state was", structure, befores, "and becomes", new_structure, news)
    changed = _written_states(capture, befores, recorded.leaves[count:], states)
    return outputs, output_structure, [*slices, *befores], news, changed


def _written_states(
    capture: Capture, befores: Sequence[Value], news: Sequence[Any], states: Sequence[Any]
) -> list[int]:
    """Which of the states that it is given a body writes, as arrays that are the state in each run.

    The array that a loop begins with is the state in all runs if the body gives it back. Else the first run would write
    another array than the others. Nor may another name of it be among what the body uses: it would be read as it was.
    """
    changed = list(capture.written(befores))
    for k in changed:
        if not capture.is_same(news[k], befores[k]):
            capture.refuse("the body writes the state that it is given, and gives another array back")
        others = [state for j, state in enumerate(news) if j != k]
        if any(capture.share_memory(state, befores[k]) for state in others):
            capture.refuse("the body writes the state that it is given, which becomes another state, too")
        _check_alone(capture, states[k], [state for j, state in enumerate(states) if j != k])
    return changed


def _check_alone(capture: Capture, x: Any, others: Sequence[Any]) -> None:
    """Raise CannotRecord if an array that a body writes as what it is given is used by another name, too."""
    if any(may_share_memory(x, other) for other in [*capture.captures, *others]):
        capture.refuse(
            f"the body writes what it is given, whose memory it uses by another name, too: {type_of(x)}"
        )


def _write_states(
    capture: Capture, changed: Sequence[int], states: Sequence[Any], results: Sequence[Any]
) -> list[Any]:
    """The last states. Those that the body writes are written to the arrays that the loop began with, too."""
    for k in changed:
        write_back(capture, states[k], results[k])
    return list(results[: len(states)])


def _while_in_graph(
    condition: Callable[..., Any],
    step: Callable[..., Any],
    leaves: list[Any],
    structure: Structure,
    limit: int | None,
) -> list[Any]:
    capture = Capture("while_loop", take_stream_words(leaves))
    values = [capture.input(type_of(x)) for x in leaves]
    held = [*map(traced, values)]
    predicate = capture.run(lambda: condition(*structure.build(held))).outputs[0]
    _check_predicate("while_loop", predicate)
    if capture.new_contents or capture.written(values):
        capture.refuse("the condition writes an array; only the body of a loop can")
    news, new_structure, next_leaves = capture.run(lambda: step(held))
    changed = _written_states(capture, values, news, leaves)
    _check_same("while_loop", "the state was", structure, values, "and becomes", new_structure, next_leaves)
    written_captures = list(capture.new_contents)
    befores = [*values, *(capture.capture_inputs[k] for k in written_captures)]
    afters = [*next_leaves, *capture.new_contents.values()]
    states = [*leaves, *(capture.captures[k] for k in written_captures)]
    if capture.drew:
        befores.append(capture.position)
        afters.append(F.add(capture.position, capture.blocks))
        states.append(positions(leaves, None, capture.blocks))
    op = WhileLoop(
        condition=capture.subgraph(befores, [predicate]),
        body=capture.subgraph(befores, afters),
        states=len(states),
        limit=limit,
    )
    results = applied(op, [*states, *capture.other_captures(written_captures)])
    write_back_found(capture, written_captures, results[len(leaves) : len(leaves) + len(written_captures)])
    return _write_states(capture, changed, leaves, results)


def _cond_in_graph(
    pred: Any, leaves: list[Any], structure: Structure, branches: Sequence[Callable[..., Any]]
) -> Any:
    capture = Capture("cond", take_stream_words([pred, *leaves]))
    values = [capture.handle(x) for x in leaves]
    results, writes_of_branches, assigned = [], [], set()
    for branch in branches:
        capture.blocks = 0  # it is the only one that draws
        results.append(capture.run(partial(branch, *structure.build(values))))
        writes_of_branches.append(capture.new_contents)
        assigned |= capture.assigned
    capture.assigned = assigned
    (_, shape, outputs), (_, other_shape, otherwise_outputs) = results
    _check_same("cond", "then gives", shape, outputs, "otherwise", other_shape, otherwise_outputs)
    numbers = sorted({k for each in writes_of_branches for k in each})
    ends = [[each.get(k, capture.capture_inputs[k]) for k in numbers] for each in writes_of_branches]
    position = [capture.position] if capture.drew else []
    operands = [positions([pred, *leaves], None, 1)] if capture.drew else []
    op = CondBranch(
        then=capture.subgraph(position, [*outputs, *ends[0]]),
        otherwise=capture.subgraph(position, [*otherwise_outputs, *ends[1]]),
    )
    branch_results = applied(op, [pred, *operands, *capture.captures])
    write_back_found(capture, numbers, branch_results[len(outputs) :])
    return shape.build(branch_results[: len(outputs)])


def _symbol(arguments: Any) -> Any:
    """A symbol among the leaves, which decides what control flow means, or None."""
    return next((x for x in flatten(arguments)[0] if hasattr(x, "__weft_control__")), None)


def _arrays(name: str, argument: Any) -> tuple[list[Any], Structure]:
    """The arrays of a structure; numbers become arrays. Raises TypeError for anything else."""
    leaves, structure = flatten(argument)
    return [_array(name, x) for x in leaves], structure


def _array(name: str, x: Any) -> Any:
    if isinstance(x, bool | int | float) or hasattr(x, "settle"):
        return asarray(x.settle() if hasattr(x, "settle") else x)
    if not isinstance(x, _core.Tensor | Value):
        raise TypeError(f"{name}: takes arrays, numbers, and structures of them, got {type(x).__name__}")
    return x


def _length(sequences: Sequence[Any]) -> Any:
    """The size of the first axis of all: an int, or a Size, which is at least 2."""
    if not sequences:
        raise TypeError("foreach: data holds no array")
    for x in sequences:
        if x.ndim == 0:
            raise ShapeError(f"foreach: data needs a first axis: x is {type_of(x)}")
        if x.shape[0] != sequences[0].shape[0]:
            raise ShapeError(
                f"foreach: lengths of data differ, {sequences[0].shape[0]} != {x.shape[0]}: "
                f"first is {type_of(sequences[0])}, other is {type_of(x)}"
            )
    return sequences[0].shape[0]


def _check_predicate(name: str, x: Any) -> Any:
    """x. Raises ShapeError or DTypeError unless it is one boolean."""
    if isinstance(x, bool):
        return x
    if not isinstance(x, _core.Tensor | Value):
        raise TypeError(f"{name}: a predicate must be one boolean, got {type(x).__name__}")
    if x.dtype is not bool_:
        raise DTypeError(f"{name}: a predicate must be one boolean, got {type_of(x)}")
    if x.ndim:
        raise ShapeError(f"{name}: a predicate must be one boolean, got {type_of(x)}")
    return x


def _next_state(name: str, before: Sequence[Any], structure: Structure, new: Any) -> list[Any]:
    leaves, new_structure = _arrays(name, new)
    _check_same(name, "the state was", structure, before, "and becomes", new_structure, leaves)
    return leaves


def _check_same(
    name: str,
    this: str,
    structure: Structure,
    arrays: Sequence[Any],
    that: str,
    other: Structure,
    others: Sequence[Any],
) -> None:
    """Raise TypeError, DTypeError or ShapeError unless structures and types are the same."""
    if structure != other:
        raise TypeError(f"{name}: {this} {structure}, {that} {other}")
    for a, b in zip(arrays, others, strict=True):
        mine, theirs = type_of(a), type_of(b)
        if mine.dtype is not theirs.dtype:
            raise DTypeError(f"{name}: {this} {mine}, {that} {theirs}")
        if mine.shape != theirs.shape:
            raise ShapeError(f"{name}: {this} {mine}, {that} {theirs}")


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, *, reverse: bool = False, axis: int = 0
) -> Any:
    """Combine elements along an axis by an associative function: y[k] = x[0] o x[1] o ... o x[k].

    fn(a, b): takes two equal parts of elems, slices along the axis in order, and gives their combinations, of the same
    types; elems: an array, or a structure of arrays, with n elements along the axis; reverse: y[k] = x[n - 1] o ... o
    x[k]. Returns the same structure. fn is called about 2 log2(n) times on whole slices, instead of n times on
    elements. In a trace these calls are a part of the program; gradients and vmap follow from fn.
    Raises ShapeError if numbers of elements differ, ValueError for a structure without arrays.
    Source: Blelloch 1990, Prefix sums and their applications; JAX's lax.associative_scan.

    >>> import weft as wf
    >>> wf.associative_scan(lambda a, b: a * b, wf.tensor([1., 2., 3., 4.])).tolist()
    [1.0, 2.0, 6.0, 24.0]
    """
    leaves = tree_leaves(elems)
    if not leaves:
        raise ValueError("associative_scan: elems has no arrays")
    sizes = {int(x.shape[axis]) for x in leaves if -x.ndim <= axis < x.ndim}
    if len(sizes) != 1 or not all(-x.ndim <= axis < x.ndim for x in leaves):
        shapes = ", ".join(str(tuple(x.shape)) for x in leaves)
        raise ShapeError(
            f"associative_scan: all arrays need the same size along axis {axis}: shapes are {shapes}"
        )

    def part(tree: Any, start: int, stop: int, step: int = 1) -> Any:
        return tree_map(
            lambda x: F.slice(x, starts=(start,), stops=(stop,), steps=(step,), axes=(axis,)), tree
        )

    def in_turn(even: Any, odd: Any) -> Any:
        """Elements of two arrays, even[0], odd[0], even[1], ...; even may have one more."""
        place, count = axis % even.ndim, odd.shape[axis]
        pairs = F.stack([F.slice(even, starts=(0,), stops=(count,), axes=(axis,)), odd], axis=place + 1)
        shape = (*odd.shape[:place], 2 * count, *odd.shape[place + 1 :])
        rest = F.slice(even, starts=(count,), stops=(even.shape[axis],), axes=(axis,))
        return F.concat([F.reshape(pairs, shape=shape), rest], axis=axis)

    def scan(tree: Any, n: int) -> Any:
        if n < 2:
            return tree
        odd = scan(fn(part(tree, 0, n - 1, 2), part(tree, 1, n, 2)), n // 2)
        first = part(tree, 0, 1)
        if n < 3:
            return tree_map(in_turn, first, odd)
        later = fn(part(odd, 0, (n - 1) // 2), part(tree, 2, n, 2))
        even = tree_map(lambda x, y: F.concat([x, y], axis=axis), first, later)
        return tree_map(in_turn, even, odd)

    def turned(tree: Any) -> Any:
        return tree_map(lambda x: F.flip(x, axis=axis), tree) if reverse else tree

    return turned(scan(turned(elems), sizes.pop()))
