"""Functions whose result's shape depends on elements: indices of what is not zero, distinct elements.

They wait for their operand, and NumPy computes them: in a trace they are a graph break. They have no gradients.

>>> import weft as wf
>>> wf.nonzero(wf.tensor([0., 2., 3.]))
(tensor([1, 2], dtype=int64, device=cpu:0),)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor

__all__ = ["nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
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


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero, int64 [count] for each dimension, in row-major order.

    x: any dtype [...] of at least one dimension; NaN is not zero. Raises ValueError for 0 dimensions.
    Source: array API 2024.12, nonzero.

    >>> import weft as wf
    >>> [i.tolist() for i in wf.nonzero(wf.tensor([[1, 0], [0, 2]]))]
    [[0, 1], [0, 1]]
    """
    elements, device = _elements("nonzero", x)
    if elements.ndim == 0:
        raise ValueError("nonzero: x has 0 dimensions; x.reshape(1) has one")
    return tuple(asarray(index, device=device) for index in np.nonzero(elements))


def unique_all(x: Any, /) -> UniqueAll:
    """Return the distinct elements in ascending order, [m], with indices, inverse indices and counts.

    x: any dtype [...]. values: [m]; indices: int64 [m], of the first occurrence in row-major order; inverse_indices:
    int64 of x's shape; counts: int64 [m]. Every NaN is distinct; zeros of both signs are equal.
    Source: array API 2024.12, unique_all.

    >>> import weft as wf
    >>> u = wf.unique_all(wf.tensor([3, 1, 3]))
    >>> u.values.tolist(), u.indices.tolist(), u.inverse_indices.tolist(), u.counts.tolist()
    ([1, 3], [1, 0], [1, 0, 1], [1, 2])
    """
    elements, device = _elements("unique_all", x)
    found = np.unique(elements, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values, indices, inverse, counts = found
    parts = (values, indices, inverse.reshape(elements.shape), counts)
    return UniqueAll(*(asarray(part, device=device) for part in parts))


def unique_counts(x: Any, /) -> UniqueCounts:
    """Return the distinct elements in ascending order and how often each occurs; see unique_all.

    Source: array API 2024.12, unique_counts.

    >>> import weft as wf
    >>> [part.tolist() for part in wf.unique_counts(wf.tensor([3, 1, 3]))]
    [[1, 3], [1, 2]]
    """
    elements, device = _elements("unique_counts", x)
    values, counts = np.unique(elements, return_counts=True, equal_nan=False)
    return UniqueCounts(asarray(values, device=device), asarray(counts, device=device))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Return the distinct elements in ascending order and the index of each element among them; see unique_all.

    Source: array API 2024.12, unique_inverse.

    >>> import weft as wf
    >>> values, indices = wf.unique_inverse(wf.tensor([3, 1, 3]))
    >>> values[indices].tolist()
    [3, 1, 3]
    """
    elements, device = _elements("unique_inverse", x)
    values, inverse = np.unique(elements, return_inverse=True, equal_nan=False)
    return UniqueInverse(
        asarray(values, device=device), asarray(inverse.reshape(elements.shape), device=device)
    )


def unique_values(x: Any, /) -> Tensor:
    """Return the distinct elements of x in ascending order, [m]; see unique_all.

    Source: array API 2024.12, unique_values.

    >>> import weft as wf
    >>> wf.unique_values(wf.tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    elements, device = _elements("unique_values", x)
    return asarray(np.unique(elements, equal_nan=False), device=device)


def _elements(function: str, x: Any) -> tuple[np.ndarray, Any]:
    """The elements as NumPy's array, and the device of the results."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: x must be a Tensor, got {type(x).__name__}; weft.asarray(x) makes one")
    return x.numpy(), x.device
