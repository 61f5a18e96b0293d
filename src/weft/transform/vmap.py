"""vmap: calls a function of one example on all examples of a batch at once.

>>> import weft as wf
>>> dot = lambda a, b: (a * b).sum()
>>> wf.vmap(dot, in_axes=(0, None))(wf.tensor([[1., 2.], [3., 4.]]), wf.tensor([1., 1.]))
tensor([3., 7.], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from weft.base.errors import ShapeError
from weft.base.structure import Structure, flatten
from weft.graph.capture import type_of
from weft.graph.graph import Graph
from weft.graph.recording import CannotRecord
from weft.ops import functions as F
from weft.ops.node import input_value
from weft.ops.types import TensorType
from weft.recording.recorded_function import is_array
from weft.transform.batching import RANDOMNESS, Batch
from weft.transform.transformed import CapturedFunction, DerivedProgram, Transformed, stored

__all__ = ["vmap"]

P = ParamSpec("P")
R = TypeVar("R")


def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    randomness: str = "different",
) -> Transformed[P, R]:
    """f for every example of a batch at once: what a loop over the examples would give, as one program.

    in_axes: which axis of the arguments has the examples: an int for all arguments, or a tuple with an int, None or a
    nested structure of them for each positional one; None: the argument is the same for all examples. Keyword arguments
    have them along axis 0. Numbers are the same for all. out_axes: where they are in the results, an int or a structure
    of them; None for a result that is the same for all. axis_size: how many examples there are, needed only where no
    argument says so. randomness: "different", every example draws random numbers of its own; "same", all draw the same;
    "error", drawing raises NotImplementedError.

    Results are the loop's up to the rounding of sums. A cond whose predicate differs from example to example computes
    both branches; a while_loop runs until it has ended for all. Arrays that f finds elsewhere are the same for all
    examples; what it writes to them must be the same, too. It may write its arguments. Reads of elements that
    depend on an argument raise TypeError.
    Raises ValueError for in_axes that do not fit, or a result that differs where out_axes is None; ShapeError where
    sizes differ; IndexError for an axis out of range; NotImplementedError for Python operators inside.
    Source: JAX's vmap; randomness as in PyTorch's.

    >>> import weft as wf
    >>> x = wf.tensor([[1., 2.], [3., 4.]])
    >>> wf.vmap(wf.grad(lambda x: (x * x).sum()))(x)
    tensor([[2., 4.],
            [6., 8.]], dtype=float32, device=cpu:0)
    """
    if randomness not in RANDOMNESS:
        raise ValueError(f"vmap: randomness must be one of {', '.join(RANDOMNESS)}, got {randomness!r}")
    if not callable(f):
        raise TypeError(f"vmap: takes a function, got {type(f).__name__}")

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        axes = [
            _checked_axis(k, x, axis)
            for k, (x, axis) in enumerate(zip(leaves, _axes_of_arguments(in_axes, args, kwargs), strict=True))
        ]
        size = _size(leaves, axes, axis_size)
        types = [_example(x, axis) if is_array(x) else None for x, axis in zip(leaves, axes, strict=True)]
        function = CapturedFunction("vmap", f, leaves, structure, types)
        arrays = [(x, axis) for x, axis in zip(leaves, axes, strict=True) if is_array(x)]
        axes_out = _axes_of_results(out_axes, function)

        def make() -> DerivedProgram:
            return _batched(function, arrays, axes_out, Batch(size, randomness))

        batch_types = tuple([(type_of(x).__weft_key__, axis) for x, axis in arrays])
        key = ("vmap", function.key, batch_types, tuple(axes_out), size, randomness)
        results = stored(key, make)([*(x for x, _ in arrays), *function.captures])
        count = len(function.ys)
        function.finish(results[count:])
        return function.build(results[:count])

    return Transformed("vmap", f, run)


def _batched(
    function: CapturedFunction,
    arrays: Sequence[tuple[Any, int | None]],
    axes_out: Sequence[int | None],
    batch: Batch,
) -> DerivedProgram:
    """The function for all examples. arrays: the arguments, with the axis of the examples; axes_out: of the results."""
    size, result_count = batch.size, len(function.ys)
    inputs = [input_value(type_of(x)) for x, _ in arrays]
    batched = [
        F.moveaxis(v, source=axis, destination=0) if axis else v
        for v, (_, axis) in zip(inputs, arrays, strict=True)
    ]
    flags = [axis is not None for _, axis in arrays]
    parts = batch.run(
        Graph([*function.inputs, *function.extra], [*function.ys, *function.contents]),
        [*batched, *function.extra],
        [*flags, *(False for _ in function.extra)],
    )
    outputs = [_placed(*part, axis, size) for part, axis in zip(parts[:result_count], axes_out, strict=True)]
    contents = parts[result_count:]
    _check_written(function, [is_batched for _, is_batched in contents])
    first = len(function.written_captures)
    written_axes = [arrays[k][1] for k in function.written_inputs]
    ends = [
        _written_back(*each, axis, size) for each, axis in zip(contents[first:], written_axes, strict=True)
    ]
    return DerivedProgram(
        "vmap", Graph([*inputs, *function.extra], [*outputs, *(v for v, _ in contents[:first]), *ends])
    )


def _axes_of_arguments(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """The axis of each leaf."""
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        raise ValueError(f"vmap: in_axes has {len(axes)} entries for {len(args)} positional arguments")
    return [*_spread(axes, flatten(args)[1], "in_axes"), *_spread(0, flatten(kwargs)[1], "in_axes")]


def _axes_of_results(out_axes: Any, function: CapturedFunction) -> list[int | None]:
    """The axis of each array of the result."""
    axes = _spread(out_axes, function.structure, "out_axes")
    return [axis for axis, is_array in zip(axes, function.are_results, strict=True) if is_array]


def _check_written(function: CapturedFunction, flags: Sequence[bool]) -> None:
    """Raises CannotRecord where what is written to an array outside differs from example to example."""
    for k, is_batched in zip(function.written_captures, flags, strict=False):
        if is_batched:
            raise CannotRecord(
                "vmap",
                "an array is written that the function finds elsewhere, and what is written differs from example to "
                f"example: {type_of(function.captures[k])}",
            )


def _written_back(v: Any, is_batched: bool, axis: int | None, size: int) -> Any:
    """The content of an argument, with its examples where they are in it."""
    if axis is None and is_batched:
        raise CannotRecord(
            "vmap",
            "an argument is written that is the same for all examples, and what is written differs from example to "
            f"example: {v.type} for {size} of them",
        )
    return _placed(v, is_batched, axis, size)


def _spread(axes: Any, structure: Structure, name: str) -> list[int | None]:
    """The axis of each leaf of a structure; one axis holds for all below it."""
    listed: list[int | None] = []
    waiting = [(axes, structure)]
    while waiting:
        each, below = waiting.pop()
        if each is None or (isinstance(each, int) and not isinstance(each, bool)):
            listed += [each] * below.count()
            continue
        if below.kind is None:
            raise ValueError(f"vmap: {name} has a {type(each).__name__} where there is an array: {each!r}")
        if below.kind is dict:
            if not isinstance(each, dict) or set(each) != set(below.keys):
                raise ValueError(
                    f"vmap: {name} needs the keys {', '.join(map(repr, below.keys))}, got {each!r}"
                )
            each = [each[key] for key in below.keys]
        elif not isinstance(each, tuple | list) or len(each) != len(below.parts):
            raise ValueError(f"vmap: {name} has {each!r} where there is {below!r}")
        waiting += reversed([*zip(each, below.parts, strict=True)])
    return listed


def _checked_axis(k: int, x: Any, axis: int | None) -> int | None:
    """The axis, counted from the first. Raises IndexError, or ValueError for what has no axes."""
    if axis is None or not is_array(x) or type_of(x).weak:
        return None
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"vmap: axis {axis} is out of range: array {k} of the arguments is {type_of(x)}")
    return axis % x.ndim


def _size(leaves: Sequence[Any], axes: Sequence[int | None], axis_size: int | None) -> Any:
    """How many examples there are: an int, or a Size."""
    size = axis_size
    origin = f"axis_size is {axis_size}"
    for k, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
        if axis is None:
            continue
        position = f"array {k} of the arguments is {type_of(x)} with examples along axis {axis}"
        if size is not None and x.shape[axis] != size:
            raise ShapeError(f"vmap: sizes differ, {size} != {x.shape[axis]}: {origin}, {position}")
        size, origin = x.shape[axis], position
    if size is None:
        raise ValueError(
            "vmap: no array among the arguments has an axis of examples, and axis_size is not given"
        )
    return size


def _example(x: Any, axis: int | None) -> TensorType:
    t = type_of(x)
    return t if axis is None else t.like((*t.shape[:axis], *t.shape[axis + 1 :]))


def _placed(v: Any, is_batched: bool, axis: int | None, size: int) -> Any:
    """A result with its examples along an axis."""
    if axis is None:
        if is_batched:
            raise ValueError(
                f"vmap: out_axes is None for a result that differs from example to example: {v.type} for {size} of them"
            )
        return v
    rank = v.ndim if is_batched else v.ndim + 1
    if not -rank <= axis < rank:
        raise IndexError(f"vmap: out_axes {axis} is out of range for a result of {rank} dimensions")
    if not is_batched:
        v = F.broadcast_to(v, shape=(size, *v.shape))
        v = F.reshape(v, shape=v.shape, copy=True)
    return F.moveaxis(v, source=0, destination=axis) if axis % rank else v
