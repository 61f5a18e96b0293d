"""ONNX's sequences and optional values: a sequence is a list, and an optional value without element is None.

They are Python's objects while the network runs, so their lengths are known. A conversion gives a list in a tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import functional as F
from weft.interop.onnx.calls import Call, Known, converts, numbers, tensor


def _list(call: Call, x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise call.fail(f"takes a sequence, got {type(x).__name__}")
    return x


def _position(call: Call, x: Any, count: int) -> int:
    """Of an index from the front or the back, in 0..count-1."""
    k = int(numbers(call, x).ravel()[0])
    if not -count <= k < count:
        raise call.fail(f"position {k} is out of range of {count} elements")
    return k % count


@converts("SequenceConstruct")
def construct(call: Call, *x: Any) -> Any:
    return (list(x),)


@converts("SequenceEmpty")
def empty(call: Call) -> Any:
    return ([],)


@converts("SequenceInsert")
def insert(call: Call, sequence: Any, x: Any, position: Any = None) -> Any:
    y = list(_list(call, sequence))
    y.insert(len(y) if position is None else _position(call, position, len(y) + 1), x)
    return (y,)


@converts("SequenceErase")
def erase(call: Call, sequence: Any, position: Any = None) -> Any:
    y = list(_list(call, sequence))
    del y[-1 if position is None else _position(call, position, len(y))]
    return (y,)


@converts("SequenceAt")
def at(call: Call, sequence: Any, position: Any) -> Any:
    y = _list(call, sequence)
    return (y[_position(call, position, len(y))],)


@converts("SequenceLength")
def length(call: Call, sequence: Any) -> Any:
    return Known(np.array(len(_list(call, sequence)), np.int64))


@converts("ConcatFromSequence")
def concat(call: Call, sequence: Any) -> Any:
    parts = [tensor(x) for x in _list(call, sequence)]
    return (F.stack if call.get("new_axis", 0) else F.concat)(*parts, axis=call.get("axis"))


@converts("SplitToSequence")
def split(call: Call, x: Any, sizes: Any = None) -> Any:
    x, axis = tensor(x), call.get("axis", 0)
    n = int(x.shape[axis])
    if sizes is None:
        parts = F.split(x, sizes=(1,) * n, axis=axis)
        return ([*parts] if call.get("keepdims", 1) else [F.squeeze(part, axis=(axis,)) for part in parts],)
    chosen = numbers(call, sizes)
    if chosen.ndim == 0:
        step = int(chosen)
        if step < 1:
            raise call.fail(f"split must be at least 1, got {step}")
        chosen = np.array([min(step, n - k) for k in range(0, n, step)])
    return ([*F.split(x, sizes=tuple(int(k) for k in chosen), axis=axis)],)


@converts("Optional")
def optional(call: Call, x: Any = None) -> Any:
    return (x,)


@converts("OptionalHasElement")
def has_element(call: Call, x: Any = None) -> Any:
    return Known(np.array(x is not None))


@converts("OptionalGetElement")
def get_element(call: Call, x: Any = None) -> Any:
    if x is None:
        raise call.fail("the optional value has no element")
    return (x,)
