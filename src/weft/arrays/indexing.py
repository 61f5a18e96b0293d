"""Implements x[key] and x[key] = value: a view for the basic parts of a key, index arrays for the others.

>>> import numpy as np
>>> key = parse((slice(1, None), None, [0, 2]), (3, 4))
>>> key.items, key.axes, key.position
(((1, 2, 1), None, (0, 4, 1)), (2,), 2)
>>> key.shape
(2, 1, 2)

A key holds integers, slices, None, Ellipsis, integer arrays and lists, and boolean masks, with NumPy's meaning: the
dimensions of the index arrays, broadcast together, come in place of theirs if all of them (integers count) are side
by side, else first. Pure Python on shapes; no array is read but masks, which `nonzero` does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.base.errors import ShapeError
from weft.base.record import Record
from weft.ops.node import Tracer, Value
from weft.ops.sizes import NeedsSizes, Size

__all__ = ["IndexKey", "get", "parse", "put", "true_places"]


class IndexKey(Record):
    """A key for arrays of one shape.

    items: for every dimension an int >= 0 or (start, count, step), None for a new one: the view, of shape `view`, that
    is taken first; is_whole: it is all of the array. indices: arrays of integers for `axes` of the view, whose
    dimensions come at `position` among the view's other ones. shape: the result's.
    """

    items: tuple[Any, ...]
    view: tuple[int, ...]
    indices: tuple[Any, ...]
    axes: tuple[int, ...]
    position: int
    shape: tuple[int, ...]
    is_whole: bool

    @property
    def is_basic(self) -> bool:
        """Whether the result is a view."""
        return not self.indices


def parse(key: Any, shape: Sequence[int], nonzero: Callable[[Any], Sequence[Any]] | None = None) -> IndexKey:
    """The meaning of a key. nonzero: gives the index arrays of a mask's true elements; by default NumPy's.

    Raises IndexError for too many indices, two Ellipsis, integers out of range, masks of another shape, index arrays
    that do not fit together, or what is not an index at all. Values of index arrays are not looked at.
    """
    parts = [_part(item) for item in (key if isinstance(key, tuple) else (key,))]
    parts = _without_ellipsis(parts, len(shape))
    sizes = iter(shape)
    items: list[Any] = []
    view: list[int] = []
    indices: list[Any] = []
    axes: list[int] = []
    positions: list[int] = []  # positions in the key of what counts as an index array
    firsts: list[int] = []  # and how many dimensions of the view precede it

    def index(array: Any, size: int) -> None:
        indices.append(array)
        axes.append(len(view))
        items.append((0, size, 1))
        view.append(size)

    dimension = 0
    for index_of_part, (kind, value) in enumerate(parts):
        if kind == "ellipsis":
            continue  # the slices it stands for follow
        if kind in ("integer", "array", "mask"):
            positions.append(index_of_part)
            firsts.append(len(view) - len(axes))
        if kind == "new":
            items.append(None)
            view.append(1)
        elif kind == "slice":
            start, count, step = _span(value, next(sizes))
            items.append((start, count, step))
            view.append(count)
        elif kind == "integer":
            items.append(_checked(value, next(sizes), dimension))
        elif kind == "array":
            index(value, next(sizes))
        elif value.shape == ():  # a mask of one element: a new dimension of size 1 or 0
            items.append(None)
            (array,) = _scalar_mask(value)
            indices.append(array)
            axes.append(len(view))
            view.append(1)
        else:
            _check_mask(value, shape[dimension : dimension + value.ndim], dimension)
            for array in (nonzero or _nonzero)(value):
                index(array, next(sizes))
        dimension += {"new": 0, "mask": getattr(value, "ndim", 0)}.get(kind, 1)
    points = _broadcast([tuple(array.shape) for array in indices])
    other_sizes = [n for d, n in enumerate(view) if d not in axes]
    are_adjacent = not positions or positions[-1] - positions[0] == len(positions) - 1
    position = firsts[0] if indices and are_adjacent else 0
    result = (*other_sizes[:position], *points, *other_sizes[position:]) if indices else tuple(view)
    is_whole = len(items) == len(shape) and all(map(_is_whole, items, shape))
    return IndexKey(tuple(items), tuple(view), tuple(indices), tuple(axes), position, result, is_whole)


def _is_whole(item: Any, size: Any) -> bool:
    """Whether an item is all of a dimension; of dynamic sizes for all that they may be."""
    if not isinstance(item, tuple) or any(isinstance(n, Size) for n in item) != isinstance(size, Size):
        return False
    return item == (0, size, 1)


def _part(item: Any) -> tuple[str, Any]:
    """("new" | "ellipsis" | "slice" | "integer" | "array" | "mask", value)."""
    if item is None:
        return "new", None
    if item is Ellipsis:
        return "ellipsis", None
    if isinstance(item, slice):
        return "slice", item
    if isinstance(item, Size):
        return "integer", item
    if isinstance(item, bool):
        return "mask", _array(item)
    if not hasattr(item, "shape"):
        try:
            return "integer", operator.index(item)
        except TypeError:
            item = _array(item)
    kind = _kind(item)
    if kind == "bool":
        return "mask", item
    if kind not in ("int", "uint"):
        raise IndexError(f"index: arrays used as indices must be of integers or booleans, got {item.dtype}")
    if tuple(item.shape) == () and not hasattr(item, "__weft_apply__"):
        return "integer", operator.index(item)
    return "array", item


def _array(item: Any) -> Any:
    """A list, nested lists or a bool as a NumPy array; an empty one has integers."""
    import numpy as np

    try:
        array = np.asarray(item)
    except ValueError as error:
        raise IndexError(f"index: {error}") from None
    if array.size == 0 and isinstance(item, list | tuple):
        return array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(
            "index: only integers, slices, ..., None and arrays of integers or booleans are indices: "
            f"got {type(item).__name__}"
        )
    return array


def _kind(array: Any) -> str:
    from weft.base.dtype import as_dtype

    return as_dtype(array.dtype).kind


def _without_ellipsis(parts: list[tuple[str, Any]], ndim: int) -> list[tuple[str, Any]]:
    """With whole slices behind the Ellipsis, or at the end; it stays: even alone it parts its neighbours."""
    consumed = sum(
        {"slice": 1, "integer": 1, "array": 1, "mask": getattr(v, "ndim", 0)}.get(k, 0) for k, v in parts
    )
    if consumed > ndim:
        raise IndexError(f"index: too many indices: {consumed} for {ndim} dimensions")
    ellipses = [k for k, (kind, _) in enumerate(parts) if kind == "ellipsis"]
    if len(ellipses) > 1:
        raise IndexError("index: an index can only have one ellipsis ('...')")
    position = ellipses[0] if ellipses else len(parts)
    fill = [("slice", slice(None))] * (ndim - consumed)
    return [*parts[: position + 1], *fill, *parts[position + 1 :]]


def _span(part: slice, size: Any) -> tuple[Any, Any, int]:
    if any(isinstance(n, Size) for n in (size, part.start, part.stop)):
        return _span_of_size(part, size)
    start, stop, step = part.indices(size)
    count = max(0, -((start - stop) // step) if step > 0 else -((stop - start) // -step))
    return (start, count, step) if count else (0, 0, 1)


def _span_of_size(part: slice, size: Any) -> tuple[Any, Any, int]:
    """The same where sizes are symbols; NeedsSizes where it is not known whether an end is inside."""
    if part.step == -1 and part.start is None and part.stop is None:
        return size - 1, size, -1
    step = 1 if part.step is None else part.step
    if not isinstance(step, int) or step <= 0:
        raise NeedsSizes(f"a step of {part.step} over {size}")
    start, stop = (
        default if end is None else _inside(end, size)
        for end, default in ((part.start, 0), (part.stop, size))
    )
    if start >= stop:
        return 0, 0, 1
    return start, (stop - start if step == 1 else -((start - stop) // step)), step


def _inside(end: Any, size: Any) -> Any:
    """Where an end of a slice is, between 0 and size."""
    index = end + size if end < 0 else end
    return 0 if index < 0 else size if index > size else index


def _checked(value: int, size: int, dimension: int) -> int:
    if not -size <= value < size:
        raise IndexError(f"index: {value} is out of bounds for dimension {dimension} with size {size}")
    return value + size if value < 0 else value


def _check_mask(mask: Any, shape: Sequence[int], dimension: int) -> None:
    if tuple(mask.shape) != tuple(shape):
        raise IndexError(
            f"index: the mask of shape {tuple(mask.shape)} does not fit the sizes {tuple(shape)} "
            f"from dimension {dimension}"
        )


def _nonzero(mask: Any) -> Sequence[Any]:
    import numpy as np

    return np.nonzero(mask)


def _scalar_mask(mask: Any) -> tuple[Any]:
    import numpy as np

    return (np.zeros(int(bool(mask)), np.int64),)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    result: list[int] = []
    for d in range(-max(map(len, shapes), default=0), 0):
        sizes = [shape[d] for shape in shapes if len(shape) >= -d and shape[d] != 1]
        if any(n != sizes[0] for n in sizes):
            raise IndexError(
                f"index: shapes of index arrays do not fit together: {', '.join(map(str, shapes))}"
            )
        result.append(sizes[0] if sizes else 1)
    return tuple(result)


def get(x: Any, key: IndexKey, lift: Callable[[Any], Any] = lambda array: array) -> Any:
    """x[key] by operators. lift: makes of an index array what the operators take."""
    from weft.ops import functions as F

    view = x if key.is_whole else F.basic_index(x, items=key.items)
    if key.is_basic:
        return view
    return F.index_get(view, *map(lift, key.indices), axes=key.axes, position=key.position)


def put(
    x: Any, key: IndexKey, value: Any, lift: Callable[[Any], Any] = lambda array: array
) -> tuple[Any, bool]:
    """What x[key] = value writes, and where: (new content, whether it is that of the key's view, not of x).

    For a basic key the value itself is the new content of the view, to be broadcast and converted; else index_put's
    result is that of the view (of x where the view is all of it).
    Raises ShapeError if the value does not fit.
    """
    from weft.ops import functions as F

    value_shape = getattr(value, "shape", ())
    check_fits(key, value_shape)
    if len(value_shape) > len(key.shape):
        value = F.reshape(value, shape=value_shape[len(value_shape) - len(key.shape) :])
    if key.is_basic:
        return value, True
    view = x if key.is_whole else F.basic_index(x, items=key.items)
    content = F.index_put(view, value, *map(lift, key.indices), axes=key.axes, position=key.position)
    return content, not key.is_whole


def check_fits(key: IndexKey, shape: Sequence[int]) -> None:
    """Raises ShapeError unless a value of this shape can be assigned: leading sizes of 1 are allowed, as in NumPy."""
    sizes = tuple(shape)
    while len(sizes) > len(key.shape) and sizes[0] == 1:
        sizes = sizes[1:]
    if not _fits(sizes, key.shape):
        raise ShapeError(f"index: a value of shape {tuple(shape)} does not fit the shape {key.shape}")


def _fits(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether an array of these sizes can be repeated to be of this shape."""
    return len(sizes) <= len(shape) and all(
        n in (m, 1) for n, m in zip(reversed(sizes), reversed(shape), strict=False)
    )


def mask_of(x: Any, key: Any, value: Any) -> Any:
    """The mask of a key that is one, of leading axes of x, if value is the same for each of its true elements; or None.

    Then x[key] = value chooses between value and x, and how many elements are true need not be known.
    """
    mask = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if not hasattr(mask, "shape") or _kind(mask) != "bool" or not 1 <= mask.ndim <= x.ndim:
        return None
    if tuple(mask.shape) != tuple(x.shape[: mask.ndim]):
        return None
    return mask if _fits(getattr(value, "shape", ()), x.shape[mask.ndim :]) else None


# Of tensors: what the native type calls for keys that hold arrays, and while it is recorded.


def subscript(x: Any, key: Any) -> Any:
    """x[key] by operators, so that it has a gradient.

    >>> import weft as wf
    >>> wf.arange(6)[[4, 0]]
    tensor([4, 0], dtype=int64, device=cpu:0)
    >>> wf.tensor([1, 2, 3])[wf.tensor([True, False, True])]
    tensor([1, 3], dtype=int64, device=cpu:0)
    """
    from weft import _core

    if _core.capture() is not None:  # a view of what may be written each time that the function runs
        return subscript_value(x, key)
    return get(x, parse(key, x.shape, _true_indices), partial(_as_index, device=x.device))


def assign(x: Any, key: Any, value: Any) -> None:
    """x[key] = value by operators.

    >>> import weft as wf
    >>> x = wf.zeros(4)
    >>> x[[0, 3]] = wf.tensor([1., 2.])
    >>> x
    tensor([1., 0., 0., 2.], dtype=float32, device=cpu:0)
    """
    from weft import _core
    from weft.arrays.creation import asarray
    from weft.ops import registry

    if _core.capture() is not None:  # it is written each time that the function runs
        assign_value(x, key, value)
        return
    if not isinstance(value, bool | int | float | _core.Tensor):
        value = asarray(value, _type_for(value, x), x.device)
    if (mask := mask_of(x, key, value)) is not None:
        _core.call_into(registry.function("masked_put"), x, (x, value, _as_index(mask, x.device)), {})
        return
    parsed = parse(key, x.shape, _true_indices)
    value_shape = getattr(value, "shape", ())
    check_fits(parsed, value_shape)
    if len(value_shape) > len(parsed.shape):
        value = registry.function("reshape")(value, value_shape[len(value_shape) - len(parsed.shape) :])
    recorded = _core.by_operators(x) or (isinstance(value, _core.Tensor) and _core.by_operators(value))
    if parsed.is_basic:
        if parsed.is_whole and not recorded:
            x[...] = value
        else:
            _core.call_into(registry.function("basic_put"), x, (x, value), {"items": parsed.items})
        return
    index_put = registry.function("index_put")
    options = {"axes": parsed.axes, "position": parsed.position}
    indices = tuple(_as_index(array, x.device) for array in parsed.indices)
    if parsed.is_whole:
        _core.call_into(index_put, x, (x, value, *indices), options)
        return
    view = registry.function("basic_index")(x, items=parsed.items)
    if recorded:
        content = index_put(view, value, *indices, **options)
        del view  # a view of x: with another one alive, no gradient sees what is written
        _core.call_into(registry.function("basic_put"), x, (x, content), {"items": parsed.items})
    else:
        _core.call_into(index_put, view, (view, value, *indices), options)


def _type_for(value: Any, x: Any) -> Any:
    """Integers in lists have to fit the type of integers that they are written to, as single ones have."""
    return x.dtype if isinstance(value, list | tuple) and x.dtype.is_integer else None


def _as_index(array: Any, device: Any) -> Any:
    from weft import _core
    from weft.arrays.creation import asarray

    return array if isinstance(array, _core.Tensor) else asarray(array, device=device)


def _true_indices(mask: Any) -> Sequence[Any]:
    """The index arrays of a mask's true elements; waits for it."""
    from weft import _core

    if not isinstance(mask, _core.Tensor):
        return _nonzero(mask)
    places = true_places(mask)
    return [places[d] for d in range(mask.ndim)]


def true_places(mask: Any) -> Any:
    """The indices of an array's elements that are not zero, int64 [dimensions, count]; waits for it."""
    from weft import _core

    if _core.hides_memory(mask.device):
        # How many there are decides what is called next, so the host needs the mask.
        import numpy as np

        from weft.arrays.creation import asarray

        return asarray(np.argwhere(mask.numpy()).T, device=mask.device)
    count = _core.empty((), "int64", mask.device)
    _core.run_kernel(_core.kernel_count_nonzero(), [mask, count])
    places = _core.empty((mask.ndim, count.item()), "int64", mask.device)
    _core.run_kernel(_core.kernel_nonzero(), [mask, places.T])
    return places


# Of Tracers, and of Values in graphs.


def subscript_value(x: Any, key: Any) -> Any:
    """x[key] of a value in a graph."""
    return get(x, parse(key, x.shape, _indices_in_graph), partial(_as_index_of_value, device=x.device))


def _indices_in_graph(mask: Any) -> Sequence[Any]:
    from weft import _core
    from weft.arrays.known_elements import elements_of
    from weft.graph.capture import no_capture

    if isinstance(mask, Tracer | _core.Tensor):
        mask = elements_of(mask, "index: the number of true elements")
    with no_capture():
        return _true_indices(mask)


def assign_value(x: Any, key: Any, value: Any) -> None:
    """x[key] = value of an array or a value while a function is recorded."""
    from weft import _core
    from weft.arrays.creation import asarray
    from weft.ops import functions as F

    capture = _core.capture()
    if capture is None:
        raise TypeError("x[key] = value: a value in a graph is written only while a function is recorded")
    if not isinstance(value, bool | int | float | _core.Tensor | Value):
        value = asarray(value, _type_for(value, x), x.device)
    if (mask := mask_of(x, key, value)) is not None:
        capture.assign(x, F.masked_put(x, value, _as_index_of_value(mask, x.device)))
        return
    parsed = parse(key, x.shape, _indices_in_graph)
    content, is_of_view = put(x, parsed, value, lift=partial(_as_index_of_value, device=x.device))
    content = F.basic_put(x, content, items=parsed.items) if is_of_view else content
    capture.assign(x, content)


def _as_index_of_value(array: Any, device: Any) -> Any:
    return array if isinstance(array, Value | Tracer) else _as_index(array, device)
