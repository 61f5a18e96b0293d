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
from typing import Any

from weft.base.errors import ShapeError
from weft.base.record import Record
from weft.ops.node import Value
from weft.ops.sizes import NeedsSizes, Size

__all__ = ["Key", "get", "parse", "put"]


class Key(Record):
    """A key for arrays of one shape.

    items: for every dimension an int >= 0 or (start, count, step), None for a new one: the view, of shape `view`, that
    is taken first; whole: it is all of the array. indices: arrays of integers for `axes` of the view, whose dimensions
    come at `position` among the view's other ones. shape: the result's.
    """

    items: tuple[Any, ...]
    view: tuple[int, ...]
    indices: tuple[Any, ...]
    axes: tuple[int, ...]
    position: int
    shape: tuple[int, ...]
    whole: bool

    @property
    def is_basic(self) -> bool:
        """Whether the result is a view."""
        return not self.indices


def parse(key: Any, shape: Sequence[int], nonzero: Callable[[Any], Sequence[Any]] | None = None) -> Key:
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
    places: list[int] = []  # positions in the key of what counts as an index array
    firsts: list[int] = []  # and how many dimensions of the view precede it

    def index(array: Any, size: int) -> None:
        indices.append(array)
        axes.append(len(view))
        items.append((0, size, 1))
        view.append(size)

    dimension = 0
    for place, (kind, value) in enumerate(parts):
        if kind == "ellipsis":
            continue  # the slices it stands for follow
        if kind in ("integer", "array", "mask"):
            places.append(place)
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
    kept = [n for d, n in enumerate(view) if d not in axes]
    together = not places or places[-1] - places[0] == len(places) - 1
    position = firsts[0] if indices and together else 0
    result = (*kept[:position], *points, *kept[position:]) if indices else tuple(view)
    whole = all(item == (0, n, 1) for item, n in zip(items, shape, strict=False)) and len(items) == len(shape)
    return Key(tuple(items), tuple(view), tuple(indices), tuple(axes), position, result, whole)


def _part(item: Any) -> tuple[str, Any]:
    """("new" | "ellipsis" | "slice" | "integer" | "array" | "mask", value)."""
    if item is None:
        return "new", None
    if item is Ellipsis:
        return "ellipsis", None
    if isinstance(item, slice):
        return "slice", item
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
    used = sum(
        {"slice": 1, "integer": 1, "array": 1, "mask": getattr(v, "ndim", 0)}.get(k, 0) for k, v in parts
    )
    if used > ndim:
        raise IndexError(f"index: too many indices: {used} for {ndim} dimensions")
    found = [k for k, (kind, _) in enumerate(parts) if kind == "ellipsis"]
    if len(found) > 1:
        raise IndexError("index: an index can only have one ellipsis ('...')")
    place = found[0] if found else len(parts)
    fill = [("slice", slice(None))] * (ndim - used)
    return [*parts[: place + 1], *fill, *parts[place + 1 :]]


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
    if part.step not in (None, 1):
        raise NeedsSizes(f"a step of {part.step} over {size}")
    start, stop = (
        default if end is None else _inside(end, size)
        for end, default in ((part.start, 0), (part.stop, size))
    )
    return (start, stop - start, 1) if start < stop else (0, 0, 1)


def _inside(end: Any, size: Any) -> Any:
    """Where an end of a slice is, between 0 and size."""
    place = end + size if end < 0 else end
    return 0 if place < 0 else size if place > size else place


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
        sizes = {shape[d] for shape in shapes if len(shape) >= -d} - {1}
        if len(sizes) > 1:
            raise IndexError(
                f"index: shapes of index arrays do not fit together: {', '.join(map(str, shapes))}"
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def get(x: Any, key: Key, lift: Callable[[Any], Any] = lambda array: array) -> Any:
    """x[key] by operators. lift: makes of an index array what the operators take."""
    from weft.ops import functions as F

    seen = x if key.whole else F.basic_index(x, items=key.items)
    if key.is_basic:
        return seen
    return F.index_get(seen, *map(lift, key.indices), axes=key.axes, position=key.position)


def put(
    x: Any, key: Key, value: Any, mode: str = "set", lift: Callable[[Any], Any] = lambda array: array
) -> tuple[Any, bool]:
    """What x[key] = value writes, and where: (new content, whether it is that of the key's view, not of x).

    For a basic key the value itself is the new content of the view, to be broadcast and converted; else index_put's
    result is that of the view (of x where the view is all of it).
    Raises ShapeError if the value does not fit.
    """
    from weft.ops import functions as F

    given = getattr(value, "shape", ())
    check_fits(key, given)
    if len(given) > len(key.shape):
        value = F.reshape(value, shape=given[len(given) - len(key.shape) :])
    if key.is_basic:
        return value, True
    seen = x if key.whole else F.basic_index(x, items=key.items)
    made = F.index_put(seen, value, *map(lift, key.indices), axes=key.axes, position=key.position, mode=mode)
    return made, not key.whole


def check_fits(key: Key, shape: Sequence[int]) -> None:
    """Raises ShapeError unless a value of this shape can be assigned: leading sizes of 1 are allowed, as in NumPy."""
    given = tuple(shape)
    while len(given) > len(key.shape) and given[0] == 1:
        given = given[1:]
    fits = len(given) <= len(key.shape) and all(
        n in (m, 1) for n, m in zip(reversed(given), reversed(key.shape), strict=False)
    )
    if not fits:
        raise ShapeError(f"index: a value of shape {tuple(shape)} does not fit the shape {key.shape}")


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
        return _subscript_value(x, key)
    return get(x, parse(key, x.shape, _true_places), _as_index)


def assign(x: Any, key: Any, value: Any) -> None:
    """x[key] = value by operators.

    >>> import weft as wf
    >>> x = wf.zeros(4)
    >>> x[[0, 3]] = wf.tensor([1., 2.])
    >>> x
    tensor([1., 0., 0., 2.], dtype=float32, device=cpu:0)
    """
    from weft import _core
    from weft.imperative.creation import asarray
    from weft.ops import registry

    if _core.capture() is not None:  # it is written each time that the function runs
        _assign_value(x, key, value)
        return
    found = parse(key, x.shape, _true_places)
    if not isinstance(value, bool | int | float | _core.Tensor):
        value = asarray(value, _type_for(value, x), x.device)
    given = getattr(value, "shape", ())
    check_fits(found, given)
    if len(given) > len(found.shape):
        value = registry.function("reshape")(value, given[len(given) - len(found.shape) :])
    recorded = _core.by_operators(x) or (isinstance(value, _core.Tensor) and _core.by_operators(value))
    if found.is_basic:
        if found.whole and not recorded:
            x[...] = value
        else:
            _core.call_into(registry.function("basic_put"), x, (x, value), {"items": found.items})
        return
    put = registry.function("index_put")
    where = {"axes": found.axes, "position": found.position}
    indices = tuple(map(_as_index, found.indices))
    if found.whole:
        _core.call_into(put, x, (x, value, *indices), where)
        return
    seen = registry.function("basic_index")(x, items=found.items)
    if recorded:
        made = put(seen, value, *indices, **where)
        del seen  # a view of x: with another one alive, no gradient sees what is written
        _core.call_into(registry.function("basic_put"), x, (x, made), {"items": found.items})
    else:
        _core.call_into(put, seen, (seen, value, *indices), where)


def _type_for(value: Any, x: Any) -> Any:
    """Integers in lists have to fit the type of integers that they are written to, as single ones have."""
    return x.dtype if isinstance(value, list | tuple) and x.dtype.is_integer else None


def _as_index(array: Any) -> Any:
    from weft import _core
    from weft.imperative.creation import asarray

    return array if isinstance(array, _core.Tensor) else asarray(array)


def _true_places(mask: Any) -> Sequence[Any]:
    """The index arrays of a mask's true elements; waits for it."""
    from weft import _core

    if not isinstance(mask, _core.Tensor):
        return _nonzero(mask)
    count = _core.empty((), "int64", mask.device)
    _core.run_kernel(_core.kernel_count_nonzero(), [mask, count])
    places = _core.empty((mask.ndim, count.item()), "int64", mask.device)
    _core.run_kernel(_core.kernel_nonzero(), [mask, places.T])
    return [places[d] for d in range(mask.ndim)]


# Of Values in graphs.


def _subscript_value(x: Any, key: Any) -> Any:
    """x[key] of a value in a graph."""
    return get(x, parse(key, x.shape, _unknown_places), _as_index_of_value)


def _unknown_places(mask: Any) -> Sequence[Any]:
    if isinstance(mask, Value):
        raise TypeError("index: how many elements of a mask are true is not known in a graph; use where")
    return _true_places(mask)


def _assign_value(x: Any, key: Any, value: Any) -> None:
    """x[key] = value of an array or a value while a function is recorded."""
    from weft import _core
    from weft.imperative.creation import asarray
    from weft.ops import registry

    capture = _core.capture()
    if capture is None:
        raise TypeError("x[key] = value: a value in a graph is written only while a function is recorded")
    found = parse(key, x.shape, _unknown_places)
    if not isinstance(value, bool | int | float | _core.Tensor | Value):
        value = asarray(value, _type_for(value, x))
    given = getattr(value, "shape", ())
    check_fits(found, given)
    if len(given) > len(found.shape):
        value = registry.function("reshape")(value, given[len(given) - len(found.shape) :])
    basic_put, basic_index = registry.function("basic_put"), registry.function("basic_index")
    if found.is_basic:
        capture.assign(x, basic_put(x, value, items=found.items))
        return
    where = {"axes": found.axes, "position": found.position}
    seen = x if found.whole else basic_index(x, items=found.items)
    made = registry.function("index_put")(seen, value, *map(_as_index_of_value, found.indices), **where)
    capture.assign(x, made if found.whole else basic_put(x, made, items=found.items))


def _as_index_of_value(array: Any) -> Any:
    return array if isinstance(array, Value) else _as_index(array)


setattr(Value, "__getitem__", _subscript_value)  # noqa: B010 - declared there it would import upwards
setattr(Value, "__setitem__", _assign_value)  # noqa: B010
