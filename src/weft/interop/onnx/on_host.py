"""ONNX's operators in NumPy, for what follows from sizes and constants alone, so that calls can be traced.

They are those that exporters compute shapes with; of others with known inputs, weft's operators are run and waited for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.interop.onnx.calls import Call

__all__ = ["ON_HOST"]


def _axes(call: Call, axes: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in (call.get("axes", ()) if axes is None else axes.ravel()))


def _squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    return np.squeeze(x, _axes(call, axes) or None)


def _unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    return np.expand_dims(x, _axes(call, axes))


def _slice(call: Call, x: Any, *inputs: Any) -> Any:
    if inputs:
        starts, ends, axes, steps = ([*inputs, None, None])[:4]
    else:
        starts, ends, axes, steps = (
            np.array(call.get("starts")),
            np.array(call.get("ends")),
            call.get("axes"),
            None,
        )
    key = [slice(None)] * x.ndim
    for k, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else int(steps[k])
        end = int(ends[k])
        key[int(axis)] = slice(int(starts[k]), None if step < 0 and end < -x.shape[int(axis)] else end, step)
    return x[tuple(key)]


def _divide(call: Call, a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.abs(a) // np.abs(b)
    return (quotient * np.sign(a) * np.sign(b)).astype(a.dtype) if a.dtype.kind == "i" else quotient


def _reduced(function: Any, call: Call, x: Any, axes: Any = None) -> Any:
    chosen = _axes(call, axes)
    if not chosen and call.get("noop_with_empty_axes", 0):
        return x
    return function(x, axis=chosen or None, keepdims=bool(call.get("keepdims", 1)), dtype=x.dtype)


ON_HOST: dict[str, Callable[..., Any]] = {
    "Gather": lambda call, x, places: np.take(x, places, axis=call.get("axis", 0)),
    "Concat": lambda call, *x: np.concatenate(x, axis=call.get("axis", 1)),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Add": lambda call, a, b: a + b,
    "Sub": lambda call, a, b: a - b,
    "Mul": lambda call, a, b: a * b,
    "Div": _divide,
    "Mod": lambda call, a, b: np.fmod(a, b) if call.get("fmod", 0) else np.mod(a, b),
    "Neg": lambda call, a: -a,
    "Floor": lambda call, a: np.floor(a),
    "Ceil": lambda call, a: np.ceil(a),
    "Equal": lambda call, a, b: a == b,
    "Less": lambda call, a, b: a < b,
    "Greater": lambda call, a, b: a > b,
    "Not": lambda call, a: ~a,
    "And": lambda call, a, b: a & b,
    "Or": lambda call, a, b: a | b,
    "Where": lambda call, condition, a, b: np.where(condition, a, b),
    "Max": lambda call, *x: functools.reduce(np.maximum, x),
    "Min": lambda call, *x: functools.reduce(np.minimum, x),
    "Identity": lambda call, x: x,
    "ReduceProd": functools.partial(_reduced, np.prod),
    "ReduceSum": functools.partial(_reduced, np.sum),
}
