"""Supports random numbers and writes in the functions of control flow, on arrays and in graphs alike.

Random numbers: an operator of control flow takes two words of the stream that is in use, once, whatever its functions
draw. They are the key and the stream of numbers of its own, in which its functions take positions one after the other.
So what follows it draws the same numbers however often a body ran, which is not known when a program is launched.

Writes: a captured array that a function writes is a state of the loop, or a result of the branch, which is written to
the array at the end. So are operands that it writes: those of a branch are captured, too, and those of a loop are
states.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.arrays.creation import empty
from weft.base.device import Device, as_device
from weft.base.dtype import int64
from weft.graph.capture import Capture
from weft.ops import functions as F
from weft.ops.families.creation import Stepped
from weft.ops.families.random import RandomIntegers
from weft.ops.node import Tracer, Value, created, value_of
from weft.ops.op import Op
from weft.ops.sizes import Size
from weft.recording.loop_devices import at_home

__all__ = [
    "applied",
    "in_graph",
    "may_share_memory",
    "positions",
    "separate_stream",
    "take_stream_words",
    "unused_stream_words",
    "write_back",
    "write_back_found",
]


def in_graph(leaves: Sequence[Any]) -> bool:
    """Whether this is written down rather than done: by a trace, as part of another function, or on Values."""
    return _core.get_recorder() is not None or _on_values(leaves)


def _on_values(leaves: Sequence[Any]) -> bool:
    return _core.capture() is not None or any(isinstance(x, Value | Tracer) for x in leaves)


def _device(leaves: Sequence[Any]) -> Device:
    """That of the first array, or Value with a device, among leaves; else the current one."""
    operands = map(value_of, leaves)
    devices = (x.node.device if isinstance(x, Value) else x.device for x in operands if _is_operand(x))
    return next((device for device in devices if device is not None), as_device(None))


def _is_operand(x: Any) -> bool:
    return isinstance(x, _core.Tensor | Value)


@contextlib.contextmanager
def separate_stream(leaves: Sequence[Any]) -> Iterator[None]:
    """Functions that run on arrays draw from a stream that begins here."""
    before = _core.set_random_stream(_core.RandomStream(_device(leaves)))
    try:
        yield
    finally:
        _core.set_random_stream(before)


def take_stream_words(leaves: Sequence[Any], symbol: Any = None) -> Any:
    """The same stream, as an array, for functions that are written down; symbol: they are, with symbols."""
    attributes = {"shape": (2,), "dtype": int64, "low": 0, "high": _core.MOST_WORD}
    if symbol is not None:
        return symbol.__weft_apply__(RandomIntegers, (), attributes)
    if _on_values(leaves):
        return created(RandomIntegers, {**attributes, "device": _device(leaves)})
    return _core.random_integers(0, _core.MOST_WORD, (2,), int64, _device(leaves))


def unused_stream_words() -> Any:
    """For functions that are written down only to see what they give."""
    return empty(2, "int64")


def positions(leaves: Sequence[Any], count: int | None, step: Any) -> Any:
    """0, step, ...: where each of so many runs begins to draw; count None: 0 alone, an array of no dimensions."""
    if _on_values(leaves):
        stride = 1 if isinstance(step, Size) else step
        shape = (1 if count is None else count,)
        row = created(Stepped, {"shape": shape, "step": stride, "device": _device(leaves)})
        row = row if step is stride else F.multiply(row, step)
    else:
        row = _core.stepped(1 if count is None else count, 0, step, int64, _device(leaves))
    return row.reshape(()) if count is None else row


def applied(op: Op, operands: Sequence[Any]) -> Any:
    """The operator on operands; where a graph is being written down, it becomes part of that whatever they are."""
    here = _core.capture()
    op, operands, places = at_home(op, operands)
    results = op(*operands) if here is None else here.applied(op, operands)
    if all(device is None for device in places):
        return results
    given = results if isinstance(results, tuple | list) else (results,)
    return [
        x if device is None else F.to_device(x, device=device)
        for x, device in zip(given, places, strict=True)
    ]


def may_share_memory(x: Any, y: Any) -> bool:
    """Whether arrays outside of a function that is recorded may share memory."""
    x, y = value_of(x), value_of(y)
    if isinstance(x, _core.Tensor) and isinstance(y, _core.Tensor):
        return x is y or bool(_core.shares_memory(x, y))
    here = _core.capture()
    return x is y or (here is not None and here.share_memory(x, y))


def write_back_found(capture: Capture, numbers: Sequence[int], contents: Sequence[Any]) -> None:
    """Writes what functions have written, the contents of those of capture.captures, to where they found it."""
    for k, content in zip(numbers, contents, strict=True):
        write_back(capture, capture.captures[k], content, k in capture.assigned)


def write_back(capture: Capture, target: Any, content: Any, is_assigned: bool = True) -> None:
    """Makes content that of an array outside. is_assigned: written by the program, not an operator: with a gradient."""
    here = _core.capture()
    if here is not None:
        (here.assign if is_assigned else here.write)(target, content)
    elif type(target) is _core.Tensor:
        target[...] = content if is_assigned else _core.alias(content, keep_past=False)
    else:
        capture.refuse(f"a value of a graph is written, {target.type}")
