"""Calls of custom operators on arrays: their functions are pushed to the engine as they are.

What they are in graphs: weft.imperative.custom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft import _core
from weft._core import RunContext
from weft.base.device import Device
from weft.base.dtype import as_dtype, int64
from weft.base.errors import DeviceError, ShapeError
from weft.engine import default_engine
from weft.imperative.creation import empty, zeros
from weft.imperative.tensor import Tensor

__all__ = ["Context", "call_on_arrays", "inferred", "no_second_gradient", "resources"]


@dataclass(frozen=True)
class Context:
    """What a kernel is told of its run.

    is_train: a gradient may be asked for. requested: the resources, in the order of their request: for "temp_space" a
    function (shape, dtype="float32") that makes a NumPy array to work with; for "random" a numpy.random.Generator,
    decided by the device's seed and the order of calls. run_context: the engine's; in graphs the operator's name is all
    that it tells.
    """

    is_train: bool
    run_context: Any
    requested: tuple[Any, ...]


def inferred(name: str, prop: Any, shapes: list[Any], dtypes: list[Any]) -> tuple[list[Any], int]:
    """(shape, dtype) of each output, and the number of inputs before auxiliary states. Raises ShapeError, TypeError."""
    names, states = prop.list_arguments(), prop.list_auxiliary_states()
    if len(shapes) != len(names) + len(states):
        raise TypeError(f"{name}: takes {', '.join([*names, *states])}, got {len(shapes)} arrays")
    count = len(names)
    ins, outs, aux = prop.infer_shape(shapes[:count])
    for each, wanted, given in zip([*names, *states], [*ins, *aux], shapes, strict=True):
        if wanted is None or tuple(wanted) != given:
            raise ShapeError(f"{name}: {each} must have shape {wanted}, got {given}")
    if len(outs) != prop.num_outputs() or None in outs:
        raise ShapeError(
            f"{name}: infer_shape gave {list(outs)} for the outputs {', '.join(prop.list_outputs())}"
        )
    types = [as_dtype(t) for t in prop.infer_type(dtypes[:count])[1]]
    return [(tuple(shape or ()), dtype) for shape, dtype in zip(outs, types, strict=True)], count


def call_on_arrays(name: str, prop: Any, arrays: Sequence[Tensor]) -> Any:
    """Forward is pushed to the engine, and backward remembered, both of one Operator."""
    made, count = inferred(name, prop, [x.shape for x in arrays], [x.dtype for x in arrays])
    device = arrays[0].device if arrays else Device("cpu", 0)
    if any(x.device is not device for x in arrays):
        raise DeviceError(f"{name}: operands on different devices: {', '.join(map(_core.describe, arrays))}")
    past = [_core.alias(x, keep_past=False) for x in arrays]  # what is kept has no history of its own
    inputs, aux = past[:count], past[count:]
    outputs = [empty(shape, dtype, device) for shape, dtype in made]
    tracked = [
        _core.is_recording() and x.dtype.kind == "float" and _core.is_tracked(x) for x in arrays[:count]
    ]
    operator = prop.create_operator(device)
    shapes = [x.shape for x in inputs]
    drawn, requested = resources(name, prop.forward_resource(shapes), device)

    def forward(run_context: RunContext) -> None:
        ctx = Context(any(tracked), run_context, requested())
        operator.forward(ctx, inputs, ["write"] * len(outputs), outputs, aux)

    default_engine().push(forward, device, [*inputs, *drawn], aux, outputs, name=name)
    visible = [_core.alias(y, keep_past=False) for y in outputs[: prop.num_visible_outputs()]]
    if any(tracked):
        _core.record_function(
            arrays[:count], visible, _backward(name, prop, operator, tracked, inputs, outputs, aux)
        )
    return visible[0] if len(visible) == 1 else tuple(visible)


def _backward(
    name: str,
    prop: Any,
    operator: Any,
    tracked: list[bool],
    inputs: list[Any],
    outputs: list[Any],
    aux: list[Tensor],
) -> Callable[..., Any]:
    """What the tape calls with the visible outputs' gradients."""
    n, m = len(outputs), len(inputs)
    numbers = list(range(2 * n + m))
    reads = set(prop.declare_backward_dependency(numbers[:n], numbers[n : n + m], numbers[n + m :]))
    kinds = [(x.shape, x.dtype, x.device) for x in inputs]
    hidden = [(y.shape, y.dtype, y.device) for y in outputs[prop.num_visible_outputs() :]]
    saved_in = [x if n + k in reads else None for k, x in enumerate(inputs)]
    saved_out = [y if n + m + k in reads else None for k, y in enumerate(outputs)]
    device = kinds[0][2]

    def backward(*dys: Any) -> Any:
        slopes = [_core.alias(dy, keep_past=False) for dy in dys] + [zeros(*each) for each in hidden]
        slopes = [dy if k in reads else None for k, dy in enumerate(slopes)]
        grads = [empty(*kind) if want else None for kind, want in zip(kinds, tracked, strict=True)]
        req = ["write" if want else "null" for want in tracked]
        drawn, requested = resources(name, prop.backward_resource([k[0] for k in kinds]), device)

        def run(run_context: RunContext) -> None:
            ctx = Context(True, run_context, requested())
            operator.backward(ctx, slopes, saved_in, saved_out, req, grads, aux)

        reading = [x for x in (*slopes, *saved_in, *saved_out, *drawn) if x is not None]
        written = [g for g in grads if g is not None]
        default_engine().push(run, device, reading, aux, written, name=f"{name} gradient")
        if _core.is_recording() and any(_core.is_tracked(dy) for dy in dys):

            def again(*_: Any) -> Any:
                raise no_second_gradient(name)

            _core.record_function(list(dys), written, again)
        return tuple(grads)

    return backward


def resources(
    name: str, kinds: Sequence[str], device: Device
) -> tuple[list[Tensor], Callable[[], tuple[Any, ...]]]:
    """What the kernel has to read for its resources, and a function that makes them when it runs."""
    check_resources(name, kinds)
    drawn = [
        _core.random_integers(0, _core.MOST_WORD, (2,), int64, device) for kind in kinds if kind == "random"
    ]

    return drawn, lambda: requested(kinds, drawn)


def check_resources(name: str, kinds: Sequence[str]) -> None:
    """Raises ValueError for resources that there are not."""
    if unknown := [kind for kind in kinds if kind not in ("temp_space", "random")]:
        raise ValueError(f"{name}: no resource {unknown[0]!r}; there are: temp_space, random")


def requested(kinds: Sequence[str], drawn: Sequence[Tensor]) -> tuple[Any, ...]:
    """The resources, of two random words for each that is random."""
    import numpy as np

    keys = iter(drawn)
    return tuple(
        (lambda shape, dtype="float32": np.empty(shape, as_dtype(dtype).numpy))
        if kind == "temp_space"
        else np.random.Generator(np.random.Philox(key=next(keys).numpy().tolist()))
        for kind in kinds
    )


def no_second_gradient(name: str) -> NotImplementedError:
    """To be raised."""
    return NotImplementedError(f"{name}: its gradient is a Python function and has no gradient itself")
