"""Functions whose result's shape depends on elements: indices of what is not zero, distinct elements, repetitions.

With `size=` the result has that size, and they are operators (weft.ops.families.sized): part of traces, of vmap, with
gradients. Without it they wait for their operands: in a trace they are a graph break, and they have no gradients.

>>> import weft as wf
>>> wf.nonzero(wf.tensor([0., 2., 3.]))
(tensor([1, 2], dtype=int64, device=cpu:0),)
>>> wf.nonzero(wf.tensor([0., 2., 3.]), size=3, fill_value=-1)
(tensor([ 1,  2, -1], dtype=int64, device=cpu:0),)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import _core
from weft.arrays.creation import asarray, full
from weft.arrays.indexing import true_places
from weft.arrays.tensor import Tensor
from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F

__all__ = [
    "argwhere",
    "flatnonzero",
    "masked_select",
    "nonzero",
    "repeat",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAllResult(NamedTuple):
    """Distinct elements, the index of the first occurrence of each, the index of each element among them, counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements, and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements, and the index of each element among them."""

    values: Tensor
    inverse_indices: Tensor


def argwhere(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Return the indices of the elements that are not zero as rows, int64 [count, dimensions], in row-major order.

    x: any dtype [...]; NaN is not zero. size: the number of rows, of which those behind the last have fill_value, and
    indices that are more are cut off. Raises ValueError for a size below 0.
    Source: NumPy's argwhere; JAX's, for the size.

    >>> import weft as wf
    >>> wf.argwhere(wf.tensor([[1, 0], [0, 2]])).tolist()
    [[0, 0], [1, 1]]
    """
    if size is not None:
        rows: Tensor = F.argwhere(x, size=size, fill_value=fill_value)
        return rows
    return _where("argwhere", x).T


def nonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero, int64 [count] for each dimension, in row-major order.

    x: any dtype [...] of at least one dimension; NaN is not zero. size: the number of indices, of which those behind
    the last are fill_value, and those that are more are cut off. Raises ValueError for 0 dimensions.
    Source: array API 2024.12, nonzero; JAX's, for the size.

    >>> import weft as wf
    >>> [i.tolist() for i in wf.nonzero(wf.tensor([[1, 0], [0, 2]]))]
    [[0, 1], [0, 1]]
    """
    if np.ndim(x) == 0 if not hasattr(x, "ndim") else x.ndim == 0:
        raise ValueError("nonzero: x has 0 dimensions; x.reshape(1) has one")
    if size is not None:
        columns: tuple[Tensor, ...] = tuple(F.unstack(argwhere(x, size=size, fill_value=fill_value), axis=1))
        return columns
    places = _where("nonzero", x)
    return tuple(places[d] for d in range(x.ndim))


def flatnonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Return the indices of the elements that are not zero in x, flattened: int64 [count]; see nonzero.

    Source: NumPy's flatnonzero.

    >>> import weft as wf
    >>> wf.flatnonzero(wf.tensor([[1, 0], [0, 2]])).tolist()
    [0, 3]
    """
    return nonzero(F.reshape(x, shape=(-1,)), size=size, fill_value=fill_value)[0]


def masked_select(x: Any, mask: Any, /, *, size: int | None = None, fill_value: float = 0.0) -> Tensor:
    """Return the elements of x where a mask is true, in row-major order, [count].

    x: any dtype [...]; mask: booleans; both fit by broadcasting. size: the number of elements, of which those behind
    the last are fill_value, and those that are more are cut off. Without it, it is x[mask], which has a gradient, too.
    Raises DTypeError unless the mask is boolean, ShapeError if shapes do not fit.
    Source: PyTorch's masked_select.

    >>> import weft as wf
    >>> wf.masked_select(wf.tensor([1., 2., 3.]), wf.tensor([True, False, True]))
    tensor([1., 3.], dtype=float32, device=cpu:0)
    """
    if size is not None:
        y: Tensor = F.masked_select(x, mask, size=size, fill_value=fill_value)
        return y
    F.masked_fill(x, mask, value=0)  # its errors, for operands that do not fit
    x, mask = F.broadcast_arrays(x, mask)
    y = x[mask]
    return y


def repeat(x: Any, repeats: Any, /, axis: int | None = None, *, size: int | None = None) -> Tensor:
    """Return x with every element, or slice along an axis, several times, one after the other.

    x: [n, ...]; repeats: how often, an int, or integers [n], one for each; axis: along which, None: x is flattened
    first. size: the result's along it, for an array of repeats: more slices are cut off, and the last one is repeated
    further. Without a size an array of repeats is waited for; gradients are those of take. Raises ValueError for a
    number below 0, ShapeError if the repeats do not fit, IndexError if the axis is out of range.
    Source: array API 2024.12, repeat; JAX's total_repeat_length, for the size.

    >>> import weft as wf
    >>> wf.repeat(wf.tensor([1, 2]), 2).tolist(), wf.repeat(wf.tensor([1, 2]), wf.tensor([1, 3])).tolist()
    ([1, 1, 2, 2], [1, 2, 2, 2])
    """
    y: Tensor
    if size is None and not hasattr(repeats, "shape") and not isinstance(repeats, list | tuple):
        y = F.repeat(x, repeats=repeats, axis=axis)
        return y
    if isinstance(repeats, list | tuple | np.ndarray):
        repeats = asarray(repeats, device=getattr(x, "device", None))
    if size is not None:
        y = F.repeat_each(x, repeats, axis=axis, size=size)
        return y
    numbers, _ = _elements("repeat", repeats)
    if numbers.size and numbers.min() < 0:
        raise ValueError(f"repeat: repeats must be at least 0, got {numbers.min()}")
    n = x.size if axis is None else x.shape[axis]
    if numbers.ndim > 1 or numbers.size not in (1, n):
        raise ShapeError(f"repeat: needs {n} repeats, or one: x is {tuple(x.shape)}, repeats {numbers.shape}")
    y = F.repeat_each(x, repeats, axis=axis, size=int(numbers.sum()) * (n if numbers.size != n else 1))
    return y


def unique_all(x: Any, /, *, size: int | None = None, fill_value: float | None = None) -> UniqueAllResult:
    """Return the distinct elements in ascending order, [m], with indices, inverse indices and counts.

    x: any dtype [...]. values: [m]; indices: int64 [m], of the first occurrence in row-major order; inverse_indices:
    int64 of x's shape; counts: int64 [m]. Every NaN is distinct; zeros of both signs are equal. size: m, whatever the
    elements are: more are cut off, and those behind the last are fill_value, by default the least element, and are
    counted 0 times; then x must not be complex.
    Source: array API 2024.12, unique_all; JAX's unique, for the size.

    >>> import weft as wf
    >>> u = wf.unique_all(wf.tensor([3, 1, 3]))
    >>> u.values.tolist(), u.indices.tolist(), u.inverse_indices.tolist(), u.counts.tolist()
    ([1, 3], [1, 0], [1, 0, 1], [1, 2])
    """
    if size is not None:
        return UniqueAllResult(*F.unique_all(x, size=size, fill_value=fill_value))
    elements, device = _elements("unique_all", x)
    found = np.unique(elements, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values, indices, inverse, counts = found
    parts = (values, indices, inverse.reshape(elements.shape), counts)
    return UniqueAllResult(*(asarray(part, device=device) for part in parts))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: float | None = None) -> UniqueCounts:
    """Return the distinct elements in ascending order and how often each occurs; see unique_all.

    Source: array API 2024.12, unique_counts.

    >>> import weft as wf
    >>> [part.tolist() for part in wf.unique_counts(wf.tensor([3, 1, 3]))]
    [[1, 3], [1, 2]]
    """
    if size is not None:
        found = unique_all(x, size=size, fill_value=fill_value)
        return UniqueCounts(found.values, found.counts)
    if not _is_at_hand(x) or x.dtype.is_complex:
        elements, device = _elements("unique_counts", x)
        values, counts = np.unique(elements, return_counts=True, equal_nan=False)
        return UniqueCounts(asarray(values, device=device), asarray(counts, device=device))
    rows, is_first = _sorted(x)
    first = true_places(is_first)[0]
    ends = F.concat(first[1:], full(first[:1].shape, x.size, dtype=int64, device=x.device))
    return UniqueCounts(rows[first], ends - first)


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: float | None = None) -> UniqueInverse:
    """Return the distinct elements in ascending order and the index of each element among them; see unique_all.

    Source: array API 2024.12, unique_inverse.

    >>> import weft as wf
    >>> values, indices = wf.unique_inverse(wf.tensor([3, 1, 3]))
    >>> values[indices].tolist()
    [3, 1, 3]
    """
    if size is not None:
        found = unique_all(x, size=size, fill_value=fill_value)
        return UniqueInverse(found.values, found.inverse_indices)
    elements, device = _elements("unique_inverse", x)
    values, inverse = np.unique(elements, return_inverse=True, equal_nan=False)
    return UniqueInverse(
        asarray(values, device=device), asarray(inverse.reshape(elements.shape), device=device)
    )


def unique_values(x: Any, /, *, size: int | None = None, fill_value: float | None = None) -> Tensor:
    """Return the distinct elements of x in ascending order, [m]; see unique_all.

    Source: array API 2024.12, unique_values.

    >>> import weft as wf
    >>> wf.unique_values(wf.tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    if size is not None:
        return unique_all(x, size=size, fill_value=fill_value).values
    if not _is_at_hand(x) or x.dtype.is_complex:
        elements, device = _elements("unique_values", x)
        return asarray(np.unique(elements, equal_nan=False), device=device)
    rows, is_first = _sorted(x)
    return rows[is_first]


def _where(function: str, x: Any) -> Any:
    """The indices of the elements that are not zero, int64 [dimensions, count] in row-major order."""
    if _is_at_hand(x):
        return true_places(x)
    elements, device = _elements(function, x)
    return asarray(np.argwhere(elements).T, device=device)


def _sorted(x: Any) -> tuple[Tensor, Tensor]:
    """The elements in ascending order, [n], and which of them differ from the one before."""
    rows = F.sort(F.reshape(x.detach(), shape=(-1,)))
    is_first = F.concat(full(rows[:1].shape, True, device=rows.device), F.not_equal(rows[1:], rows[:-1]))
    return rows, is_first


def _is_at_hand(x: Any) -> bool:
    """Whether operators compute with it now. While a function is recorded, NumPy does, which notes what was read."""
    return isinstance(x, Tensor) and _core.capture() is None


def _elements(function: str, x: Any) -> tuple[np.ndarray, Any]:
    """The elements as NumPy's array, and the device of the results."""
    if isinstance(x, Tensor):
        return x.numpy(), x.device
    if hasattr(x, "__weft_apply__"):
        raise TypeError(f"{function}: the result's shape depends on elements; size= gives it one: x is {x!r}")
    raise TypeError(f"{function}: x must be a Tensor, got {type(x).__name__}; weft.asarray(x) makes one")
