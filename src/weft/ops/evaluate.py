"""What a Loop means, in NumPy: stage after stage over whole arrays. Slow; for tests and constants.

>>> import numpy as np
>>> from weft.ops.kernels import Row
>>> row = Row(inputs=1)
>>> x = e.load(0, "float32")
>>> row.each(x - row.max(x))
>>> evaluate_loop(row.loop((1,)), [np.array([[1, 3], [5, 4]], np.float32)], [np.float32])
[array([[-2.,  0.],
       [ 0., -1.]], dtype=float32)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.expr import scalar as e
from weft.expr.evaluate import evaluate
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan
from weft.ops.kernels import Loop
from weft.ops.shapes import row_major

__all__ = ["evaluate_loop"]


def evaluate_loop(loop: Loop, arrays: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """The outputs, of these NumPy types; those stored Once have size 1 along the loop's axes."""
    inputs = {k: np.asarray(a) for k, a in enumerate(arrays) if a is not None}
    if loop.place is not None:
        return _evaluate_placed(loop, loop.place, [*inputs.values()], dtypes)
    space = np.broadcast_shapes(*(a.shape for a in inputs.values()))
    loads = {k: np.broadcast_to(a, space) for k, a in inputs.items()}
    first = tuple(slice(1) if d in loop.axes else slice(None) for d in range(len(space)))
    row_shape = tuple(1 if d in loop.axes else n for d, n in enumerate(space))
    results: Any = {}
    outputs: list[Any] = [None] * len(dtypes)

    def at_each(value: e.Scalar) -> Any:
        return np.broadcast_to(evaluate(value, loads, loop.numbers, results), space)

    def at_first(value: e.Scalar) -> Any:
        if 0 in space and 0 not in row_shape:  # an empty row: nothing can be loaded
            return np.broadcast_to(evaluate(value, {}, loop.numbers, results), row_shape)
        first_loads = {k: a[first] for k, a in loads.items()}
        return np.broadcast_to(evaluate(value, first_loads, loop.numbers, results), row_shape)

    for stage in loop.stages:
        if isinstance(stage, Fold):
            results |= {r.number: _fold(r, at_each(r.value), loop.axes) for r in stage.reductions}
        elif isinstance(stage, Scan):
            results |= {
                r.number: _scan(r, at_each(r.value), loop.axes, stage.reverse) for r in stage.reductions
            }
        if isinstance(stage, Each | Scan | Once):
            at = at_first if isinstance(stage, Once) else at_each
            for store in stage.stores:
                number = store.operand - loop.inputs
                outputs[number] = at(store.value)
                loads[store.operand] = np.broadcast_to(np.array(outputs[number], dtypes[number]), space)
    return [np.array(output, dtype) for output, dtype in zip(outputs, dtypes, strict=True)]


def _evaluate_placed(loop: Loop, place: Any, arrays: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """The outputs of one Each that gathers: load_at(k, dtype, n) is n elements behind where the loop is in input k."""
    dense = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
    geometries, numbers = place([(a.shape, row_major(a.shape)) for a in dense])
    space = np.broadcast_shapes(*(shape for shape, _ in geometries))
    loads: dict[int, Any] = {}
    for k, (a, (shape, strides)) in enumerate(zip(dense, geometries, strict=True)):
        flat, places = a.reshape(-1), np.arange(a.size)
        step = places.itemsize
        start = np.lib.stride_tricks.as_strided(places, shape, [s * step for s in strides])
        loads[k] = (flat, np.broadcast_to(start, space))

    def at_each(value: e.Scalar) -> Any:
        elements = {k: flat[start] for k, (flat, start) in loads.items()}
        gathered = next(node for node in e.walk(value) if node.op == "load_at")
        offset = evaluate(gathered.args[0], elements, numbers)
        flat, start = loads[gathered.value]
        return np.broadcast_to(flat[start + offset], space)

    (stage,) = loop.stages
    assert isinstance(stage, Each)
    return [np.array(at_each(s.value), t) for s, t in zip(stage.stores, dtypes, strict=True)]


_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _fold(reduction: Reduction, values: Any, axes: tuple[int, ...]) -> Any:
    row_shape = tuple(1 if d in axes else n for d, n in enumerate(values.shape))
    if reduction.op in ("argmax", "argmin"):
        outer = tuple(d for d in range(values.ndim) if d not in axes)
        rows = values.transpose(*outer, *axes).reshape(*(values.shape[d] for d in outer), -1)
        if rows.shape[-1] == 0:
            return np.zeros(row_shape, np.int64)
        return getattr(np, reduction.op)(rows, axis=-1).reshape(row_shape)
    start = np.asarray(reduction.start).astype(values.dtype)
    with np.errstate(all="ignore"):
        return _UFUNCS[reduction.op].reduce(
            values, axis=axes, keepdims=True, dtype=values.dtype, initial=start
        )


def _scan(reduction: Reduction, values: Any, axes: tuple[int, ...], reverse: bool) -> Any:
    assert len(axes) == 1
    ordered = np.flip(values, axes[0]) if reverse else values
    scanned = _UFUNCS[reduction.op].accumulate(ordered, axis=axes[0], dtype=values.dtype)
    return np.flip(scanned, axes[0]) if reverse else scanned
