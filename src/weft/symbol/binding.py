"""Binds symbols to arrays or shapes, given by name or in order, and checks all of them; the result is an executor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor, shares_memory
from weft.base.device import Device, as_device
from weft.base.dtype import DType
from weft.base.errors import DeviceError, DTypeError, GraphError
from weft.ops.shapes import Partial
from weft.symbol.defaults import infer_with_defaults, variable_types
from weft.symbol.executor import Executor
from weft.symbol.inference import Inference
from weft.symbol.placement import Placement
from weft.symbol.plans import Plans

__all__ = ["bind_arrays", "bind_shapes"]

REQUESTS = ("write", "add", "null")


def _requests(plans: Plans, grad_req: str | Mapping[str, str] | Sequence[str]) -> list[str]:
    """The request for each argument's gradient, one of REQUESTS. Raises GraphError."""
    names = plans.arguments
    if isinstance(grad_req, str):
        requests = [grad_req] * len(names)
    elif isinstance(grad_req, Mapping):
        _check_names("grad_req", grad_req, names)
        requests = [grad_req.get(name, "null") for name in names]
    else:
        requests = list(grad_req)
        if len(requests) != len(names):
            raise GraphError(f"bind: grad_req has {len(requests)} words for {len(names)} arguments")
    for word in requests:
        if word not in REQUESTS:
            raise GraphError(f"bind: grad_req must be one of {', '.join(REQUESTS)}, got {word!r}")
    return requests


def _check_names(what: str, entries: Mapping[str, Any], names: Sequence[str]) -> None:
    unknown = [name for name in entries if name not in names]
    if unknown:
        raise GraphError(f"bind: {what}: no {unknown[0]!r}; there are: {', '.join(names) or 'none'}")


def bind_shapes(
    plans: Plans,
    device: Device | str | None,
    grad_req: str | Mapping[str, str] | Sequence[str],
    dtypes: Mapping[str, DType],
    shapes: Mapping[str, Partial],
    groups: Mapping[str, Device | str] | None = None,
    memory_budget: int | float | None = None,
) -> Executor:
    """An executor on new arrays of zeros. See Symbol.simple_bind."""
    where = as_device(device)
    placement = Placement(plans.values, where, groups or {})
    inference = infer_with_defaults(plans.values, shapes, dtypes, where)
    types = variable_types(inference, "simple_bind")

    def new(name: str) -> Tensor:
        t = types[name]
        return zeros(t.shape, t.dtype, placement.variables[name])

    requests = [
        "null" if not types[name].dtype.is_differentiable else request
        for name, request in zip(plans.arguments, _requests(plans, grad_req), strict=True)
    ]
    arrays = [new(name) for name in plans.arguments]
    grads = [None if r == "null" else new(n) for n, r in zip(plans.arguments, requests, strict=True)]
    states = [new(name) for name in plans.states]
    return Executor(plans, placement, arrays, grads, requests, states, memory_budget)


def bind_arrays(
    plans: Plans,
    device: Device | str | None,
    args: Mapping[str, Any] | Sequence[Any] | None,
    args_grad: Mapping[str, Any] | Sequence[Any] | None,
    grad_req: str | Mapping[str, str] | Sequence[str],
    aux_states: Mapping[str, Any] | Sequence[Any] | None,
    groups: Mapping[str, Device | str] | None = None,
    memory_budget: int | float | None = None,
    convert: bool = False,
) -> Executor:
    """An executor on arrays. See Symbol.bind; convert: arrays are what asarray takes, and come in one mapping."""
    where = as_device(device)
    placement = Placement(plans.values, where, groups or {})
    devices = placement.variables
    if convert and isinstance(args, Mapping):
        _check_names("eval", args, [*plans.arguments, *plans.states])
        tensors = {name: asarray(value, device=devices[name]) for name, value in args.items()}
        args = {name: x for name, x in tensors.items() if name in plans.arguments}
        aux_states = {name: x for name, x in tensors.items() if name in plans.states}
    arrays = _by_name("argument", plans.arguments, args, devices)
    states = _by_name("auxiliary state", plans.states, aux_states, devices)
    grads = _gradients(plans, args_grad, devices)
    requested = _requests(plans, grad_req)
    requests = [
        "null" if name not in grads else request
        for name, request in zip(plans.arguments, requested, strict=True)
    ]
    bound = {**arrays, **states}
    Inference(
        plans.values,
        {name: x.shape for name, x in bound.items()},
        {name: x.dtype for name, x in bound.items()},
        where,
    ).run()
    for name, grad in grads.items():
        if (grad.shape, grad.dtype) != (
            arrays[name].shape,
            arrays[name].dtype,
        ) or not grad.dtype.is_differentiable:
            raise DTypeError(
                f"bind: the gradient of {name} must be like it, a floating-point array: {name} is"
                f" {_core.describe(arrays[name])}, its gradient {_core.describe(grad)}"
            )
    _check_apart(
        {name: grads[name] for name, r in zip(plans.arguments, requests, strict=True) if r != "null"}
    )
    requested_grads = [
        None if request == "null" else grads[name]
        for name, request in zip(plans.arguments, requests, strict=True)
    ]
    bound_arrays, bound_states = list(arrays.values()), list(states.values())
    executor = Executor(
        plans, placement, bound_arrays, requested_grads, requests, bound_states, memory_budget
    )
    executor.lacks_args_grad = args_grad is None and set(requested) != {"null"}
    return executor


def _by_name(
    what: str,
    names: Sequence[str],
    arrays: Mapping[str, Any] | Sequence[Any] | None,
    devices: Mapping[str, Device],
) -> dict[str, Tensor]:
    """Arrays in the order of names. Raises GraphError, TypeError, DeviceError."""
    arrays = {} if arrays is None else arrays
    if not isinstance(arrays, Mapping):
        if len(arrays) != len(names):
            raise GraphError(f"bind: {len(arrays)} arrays for {len(names)} {what}s: {', '.join(names)}")
        arrays = dict(zip(names, arrays, strict=True))
    _check_names(f"{what}s", arrays, names)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise GraphError(f"bind: {what} {', '.join(missing)} must be given")
    for name, x in arrays.items():
        _check_array(name, x, devices[name])
    return {name: arrays[name] for name in names}


def _check_array(name: str, x: Any, device: Device) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"bind: {name} must be a Tensor, got {type(x).__name__}")
    if x.device is not device:
        raise DeviceError(f"bind: {name} is on {x.device}, and must be on {device}")


def _check_apart(grads: Mapping[str, Tensor]) -> None:
    """Raise GraphError if gradients are written to the same memory: one of them would be lost."""
    for (one, x), (other, y) in itertools.combinations(grads.items(), 2):
        if shares_memory(x, y):
            raise GraphError(f"bind: the gradients of {one} and {other} share memory")


def _gradients(
    plans: Plans, arrays: Mapping[str, Any] | Sequence[Any] | None, devices: Mapping[str, Device]
) -> dict[str, Tensor]:
    """The arrays for gradients, by the argument's name."""
    if arrays is None:
        return {}
    if not isinstance(arrays, Mapping):
        if len(arrays) != len(plans.arguments):
            raise GraphError(f"bind: args_grad has {len(arrays)} arrays for {len(plans.arguments)} arguments")
        arrays = dict(zip(plans.arguments, arrays, strict=True))
    _check_names("args_grad", arrays, plans.arguments)
    grads = {name: x for name, x in arrays.items() if x is not None}
    for name, x in grads.items():
        _check_array(f"the gradient of {name}", x, devices[name])
    return grads
