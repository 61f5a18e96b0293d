"""Samples put together to a batch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.data.sample_context import context, empty

__all__ = ["Pad", "as_tensors", "collate"]

Join = Callable[[list[Any]], Any]
MAX_DEPTH = 32  # of containers in each other


def collate(samples: Sequence[Any]) -> Any:
    """A batch of samples of one structure: arrays, tensors and numbers become one tensor with a new first dimension.

    Arrays and tensors of other libraries are read through NumPy (`__array__`).
    Tuples, named ones too, lists and dictionaries are put together part by part; text and None stay lists.
    Numbers of Python become float32, int64 or bool, as in weft.tensor. Raises ShapeError for arrays of different
    shapes, TypeError for samples of different structure or other types, ValueError for structures nested more than
    32 deep.

    >>> x, names = collate([(1.5, "a"), (2.5, "b")])
    >>> x, names
    (tensor([1.5, 2.5], dtype=float32, device=cpu:0), ['a', 'b'])
    """
    return as_tensors(stack_samples(samples))


def stack_samples(samples: Sequence[Any], join: Join | None = None, depth: int = 0) -> Any:
    """collate() with NumPy arrays for tensors; join: makes one of a list of arrays; depth: of the containers above."""
    samples = list(samples)
    if not samples:
        raise ValueError("collate: no samples")
    if depth > MAX_DEPTH:
        raise ValueError(f"collate: samples are structures nested more than {MAX_DEPTH} deep")
    first = samples[0]
    if isinstance(first, Tensor):
        if join is None and context.worker is None:
            _same_shapes(samples)
            return F.stack(samples)
        samples = [each.numpy() for each in samples]
        first = samples[0]
    elif hasattr(first, "__array__") and not isinstance(
        first, np.ndarray | np.generic
    ):  # other libraries' arrays
        samples = [np.asarray(each) for each in samples]
        first = samples[0]
    if isinstance(first, np.ndarray | np.generic) and first.dtype.kind in "USO":  # text
        samples = [each.tolist() for each in samples]
        first = samples[0]
    if isinstance(first, np.ndarray | np.generic):
        return (join or _stack)(samples)
    if isinstance(first, bool | int | float):
        return _numbers(samples)
    if first is None or isinstance(first, str | bytes):
        return samples
    if isinstance(first, Mapping):
        if any(not isinstance(each, Mapping) or each.keys() != first.keys() for each in samples):
            raise TypeError(f"collate: samples have other keys than {list(first)}")
        return {key: stack_samples([each[key] for each in samples], join, depth + 1) for key in first}
    if isinstance(first, tuple | list):
        if any(type(each) is not type(first) or len(each) != len(first) for each in samples):
            raise TypeError(f"collate: samples are not all of {len(first)} parts")
        return rebuild_sequence(
            first, [stack_samples(list(parts), join, depth + 1) for parts in zip(*samples, strict=True)]
        )
    raise TypeError(
        "collate: takes arrays, numbers, text and structures of these, not "
        f"{type(first).__module__}.{type(first).__qualname__}"
    )


def _numbers(samples: list[Any]) -> np.ndarray:
    if any(isinstance(each, float) for each in samples):
        return np.array(samples, np.float32)
    return np.array(samples, np.bool_ if all(isinstance(each, bool) for each in samples) else np.int64)


def _stack(samples: list[Any]) -> np.ndarray:
    first = np.asarray(samples[0])
    _same_shapes(samples)
    dtypes = {np.asarray(each).dtype for each in samples}
    dtype = first.dtype if len(dtypes) == 1 else np.result_type(*dtypes)
    return np.stack(samples, out=empty((len(samples), *first.shape), dtype))


def _same_shapes(samples: Sequence[Any]) -> None:
    shapes = dict.fromkeys(np.shape(each) for each in samples)
    if len(shapes) > 1:
        raise ShapeError(f"collate: samples have different shapes: {', '.join(map(str, shapes))}")


class Pad:
    """A collator for arrays of different sizes: each is filled up with `value` to the largest of its batch.

    multiple: sizes are rounded up to a multiple of it. axes: those that may differ; all by default. length: keep these
    sizes instead (raises ShapeError for a longer sample). lengths: also give the sizes along the first padded axis
    before padding, as int64[n]: an array part becomes a pair (padded, lengths).
    Structures and numbers are put together as collate() does.

    >>> import numpy as np
    >>> Pad(value=-1)([np.array([1, 2, 3]), np.array([4])])
    tensor([[ 1,  2,  3],
            [ 4, -1, -1]], dtype=int64, device=cpu:0)
    """

    def __init__(
        self,
        value: float = 0,
        *,
        multiple: int = 1,
        axes: Sequence[int] | None = None,
        length: int | None = None,
        lengths: bool = False,
    ) -> None:
        if operator.index(multiple) < 1:
            raise ValueError(f"Pad: multiple must be at least 1, got {multiple}")
        self.value, self.multiple, self.axes = value, multiple, axes
        self.length, self.lengths = length, lengths

    def __call__(self, samples: Sequence[Any]) -> Any:
        return as_tensors(stack_samples(samples, self._join))

    def _join(self, samples: list[Any]) -> Any:
        arrays = [np.asarray(each) for each in samples]
        ndim = arrays[0].ndim
        if any(each.ndim != ndim for each in arrays):
            raise ShapeError(
                f"Pad: samples have {', '.join(map(str, dict.fromkeys(a.ndim for a in arrays)))} dimensions"
            )
        axes = range(ndim) if self.axes is None else [axis % ndim for axis in self.axes]
        shape = list(arrays[0].shape)
        for axis in range(ndim):
            sizes = [each.shape[axis] for each in arrays]
            if axis in axes:
                longest = max(sizes) if self.length is None else self.length
                if longest < max(sizes):
                    raise ShapeError(
                        f"Pad: a sample has size {max(sizes)} along axis {axis}, length is {longest}"
                    )
                shape[axis] = -(-longest // self.multiple) * self.multiple
            elif len(set(sizes)) > 1:
                raise ShapeError(
                    f"Pad: sizes {sorted(set(sizes))} along axis {axis}, which is not one of axes {list(axes)}"
                )
        batch = empty((len(arrays), *shape), np.result_type(*{each.dtype for each in arrays}))
        batch[...] = self.value
        for row, each in zip(batch, arrays, strict=True):
            row[tuple(map(slice, each.shape))] = each
        if not self.lengths or not ndim:
            return batch
        return batch, np.array([each.shape[next(iter(axes))] for each in arrays], np.int64)


def rebuild_sequence(like: Any, parts: list[Any]) -> Any:
    """Parts as a tuple or list of the kind that `like` is."""
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def as_tensors(batch: Any) -> Any:
    """A batch whose NumPy arrays are tensors of the same memory; in a worker the arrays stay, its loader does this.

    >>> as_tensors((np.ones(2, "float32"), "text"))
    (tensor([1., 1.], dtype=float32, device=cpu:0), 'text')
    """
    return batch if context.worker is not None else map_leaves(batch, asarray, np.ndarray | np.generic)


def map_leaves(batch: Any, function: Callable[[Any], Any], kinds: Any) -> Any:
    """The batch with function(x) for each x of these kinds in it."""
    if isinstance(batch, kinds):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: map_leaves(each, function, kinds) for key, each in batch.items()}
    if isinstance(batch, tuple | list):
        return rebuild_sequence(batch, [map_leaves(each, function, kinds) for each in batch])
    return batch
