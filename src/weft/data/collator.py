"""Samples put together to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft.base.errors import ShapeError
from weft.imperative.creation import asarray, tensor
from weft.imperative.tensor import Tensor

__all__ = ["as_tensors", "collate"]


def collate(samples: Sequence[Any]) -> Any:
    """A batch of samples of one structure: arrays, tensors and numbers become one tensor with a new first dimension.

    Tuples, named ones too, lists and dictionaries are put together part by part; text and None stay lists. Numbers of
    Python become float32, int64 or bool, as in weft.tensor. Raises ShapeError for arrays of different shapes, TypeError
    for samples of different structure or other types.

    >>> x, names = collate([(1.5, "a"), (2.5, "b")])
    >>> x, names
    (tensor([1.5, 2.5], dtype=float32, device=cpu:0), ['a', 'b'])
    """
    samples = list(samples)
    if not samples:
        raise ValueError("collate: no samples")
    first = samples[0]
    if isinstance(first, Tensor):
        _same_shapes(samples)
        return F.stack(samples)
    if isinstance(first, np.ndarray | np.generic):
        _same_shapes(samples)
        return asarray(np.stack(samples))
    if isinstance(first, bool | int | float):
        return tensor(samples)
    if first is None or isinstance(first, str | bytes):
        return samples
    if isinstance(first, Mapping):
        if any(not isinstance(each, Mapping) or each.keys() != first.keys() for each in samples):
            raise TypeError(f"collate: samples have other keys than {list(first)}")
        return {key: collate([each[key] for each in samples]) for key in first}
    if isinstance(first, tuple | list):
        if any(type(each) is not type(first) or len(each) != len(first) for each in samples):
            raise TypeError(f"collate: samples are not all of {len(first)} parts")
        return rebuilt(first, [collate(list(parts)) for parts in zip(*samples, strict=True)])
    raise TypeError(
        f"collate: takes arrays, numbers, text and structures of these, not {type(first).__name__}"
    )


def _same_shapes(samples: Sequence[Any]) -> None:
    shapes = dict.fromkeys(np.shape(each) for each in samples)
    if len(shapes) > 1:
        raise ShapeError(f"collate: samples have different shapes: {', '.join(map(str, shapes))}")


def rebuilt(like: Any, parts: list[Any]) -> Any:
    """Parts as a tuple or list of the kind that `like` is."""
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def as_tensors(batch: Any) -> Any:
    """A batch whose NumPy arrays are tensors of the same memory.

    >>> as_tensors((np.ones(2, "float32"), "text"))
    (tensor([1., 1.], dtype=float32, device=cpu:0), 'text')
    """
    if isinstance(batch, np.ndarray | np.generic):
        return asarray(batch)
    if isinstance(batch, Mapping):
        return {key: as_tensors(each) for key, each in batch.items()}
    if isinstance(batch, tuple | list):
        return rebuilt(batch, [as_tensors(each) for each in batch])
    return batch
