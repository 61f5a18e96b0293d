"""Executors: symbols bound to arrays, run forward and backward.

>>> import weft as wf, weft.functional as F, weft.symbol as sym
>>> net = F.linear(sym.var("x"), out_features=1, name="fc")
>>> exe = net.simple_bind(x=(2, 3))
>>> exe.arg_dict["fc_weight"][...] = 1
>>> exe.forward(is_train=True, x=wf.ones((2, 3)))[0].shape
(2, 1)
>>> exe.backward()
>>> exe.grad_dict["fc_weight"]
tensor([[2., 2., 2.]], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays.creation import asarray, ones, zeros
from weft.arrays.tensor import Tensor
from weft.base import process
from weft.base.errors import GraphError, ShapeError
from weft.gradients.gradient import no_grad
from weft.ops.shapes import Partial
from weft.ops.types import TensorType
from weft.symbol.defaults import infer_with_defaults, variable_types
from weft.symbol.eager_run import EagerRun
from weft.symbol.inference import Inference
from weft.symbol.placement import Placement
from weft.symbol.plans import Forward, Plans, PlanSignature, size_bytes

__all__ = ["Executor", "refuse_recorded"]

Callback = Callable[[str, Tensor], object]


def refuse_recorded(operation: str, arrays: Mapping[str, Any]) -> None:
    """Raise GraphError for an array whose gradient would end in an executor."""
    for name, x in arrays.items() if _core.is_recording() else ():
        if isinstance(x, Tensor) and _core.is_tracked(x):
            raise GraphError(
                f"{operation}: {name} is being recorded, and gradients do not go through executors: "
                f"use backward() of the executor, or give {name}.detach()"
            )


def _keep(gradient: Tensor, dx: Tensor | None, request: str) -> None:
    """Write dx, or add it, to the array that holds a gradient; None is zero."""
    if request == "add":
        if dx is not None:
            gradient[...] = gradient + dx
    else:
        gradient[...] = 0 if dx is None else dx


class Executor:
    """A symbol on arrays; made by Symbol.bind and simple_bind.

    arg_arrays, grad_arrays, aux_arrays: the arrays, in the order of the symbol's lists; None where there is no gradient
    to compute. outputs: what the last forward gave. Between forward and backward the arrays must stay as they are.

    An executor does one thing at a time: calls from several threads follow each other. Threads that work side by side
    bind the symbol once each, with as many shared arrays as they like: plans are shared, inner memory comes from pools.
    """

    def __init__(
        self,
        plans: Plans,
        placement: Placement,
        arrays: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        requests: Sequence[str],
        states: Sequence[Tensor],
        memory_budget: int | float | None = None,
    ) -> None:
        self._plans, self._placement, self.device = plans, placement, placement.device
        self._memory_budget = memory_budget
        self.arg_arrays, self.grad_arrays, self.aux_arrays = list(arrays), list(gradients), list(states)
        self.grad_req = dict(zip(plans.arguments, requests, strict=True))
        self._constants = [each.on(self.device) for each in plans.constants]
        self.lacks_args_grad = False  # gradients were requested, and bind had no arrays to write them to
        self.outputs: list[Tensor] = []
        self._signature = PlanSignature(
            tuple(TensorType(x.shape, x.dtype, x.device) for x in (*arrays, *states)),
            tuple(_strides(x) for x in (*arrays, *states)),
            tuple(requests),
            tuple(None if g is None else _strides(g) for g in gradients),
            placement.key,
            memory_budget,
        )
        self._saved: list[Tensor] | None = None
        self._eager_run: EagerRun | None = None  # the last forward, under transformations
        self._saved_monitored = False
        self._callback: Callback | None = None
        self._monitor_all = False
        self._lock = process.lock_of(self)
        self._ones: dict[int, Tensor] = {}

    def __repr__(self) -> str:
        return f"<Executor of {self._plans.name} on {self.device}>"

    # Running.

    def forward(self, is_train: bool = False, **arrays: Any) -> list[Tensor]:
        """Compute the outputs; arrays (or what weft.asarray takes) are copied into the arguments of these names first.

        is_train: for operators that leave open whether they are training; auxiliary states are updated, and backward
        may follow. Raises GraphError for names that are not there, ShapeError for other shapes.
        Under transformations, operators run one by one, as if they were called, so that each is seen.
        """
        refuse_recorded("forward", {**self.arg_dict, **arrays})
        with self._lock:
            with no_grad():
                hint = "; reshape() makes another executor"
                for name, value in arrays.items():
                    _put("forward", "argument", self.arg_dict, name, value, hint)
            self._saved = self._eager_run = None  # their memory may serve the next run
            if _core.layers() is not None:
                return self._forward_eagerly(is_train)
        with self._lock, no_grad():
            monitored = self._callback is not None
            forward_plan = self._plans.forward(self._signature, is_train, monitored)
            operands = [*self.arg_arrays, *self.aux_arrays, *self._constants]
            results = _core.run_plan(forward_plan.plan, operands)
            self.outputs = [results[k] for k in forward_plan.outputs]
            if is_train:
                self._saved, self._saved_monitored = [results[k] for k in forward_plan.saved], monitored
            if self._callback is not None:
                self._report(self._callback, [(name, results[k]) for name, k in forward_plan.named])
            return self.outputs

    def backward(self, out_grads: Tensor | Sequence[Tensor | None] | None = None) -> None:
        """Compute the gradients of the arguments, and write them or add them to grad_arrays.

        out_grads: the gradients of the outputs, None for ones, as for losses. What forward computed is computed again
        only where a memory budget requires it.
        Raises RuntimeError unless forward(is_train=True) came before, GraphError if bind was called without
        args_grad, ShapeError for other shapes.
        """
        with self._lock:
            if self._eager_run is not None:
                return self._backward_eagerly(self._eager_run, out_grads)
        with self._lock, no_grad():
            if self.lacks_args_grad:
                raise GraphError(
                    "backward: no argument has an array for its gradient: give bind args_grad={name: array}, or use "
                    f"simple_bind; arguments are {', '.join(self.grad_req)}"
                )
            if self._saved is None:
                raise RuntimeError("backward: forward(is_train=True) must come first")
            strides = [_strides(x) for x in self._saved]
            plan = self._plans.backward(self._signature, self._saved_monitored, strides)
            if plan is None:
                return
            operands = [*self.arg_arrays, *self.aux_arrays, *self._constants]
            gradients = [g for g in self.grad_arrays if g is not None]
            _core.run_plan(plan, [*operands, *self._saved, *self._cotangents(out_grads), *gradients])

    def _forward_eagerly(self, is_train: bool) -> list[Tensor]:
        if self._callback is not None:
            raise GraphError("forward: a monitor and transformations see the same: use one of them")
        needs_gradient = [g is not None for g in self.grad_arrays]
        with contextlib.nullcontext() if is_train else no_grad():
            run = EagerRun(
                self._plans, self._placement, self.arg_arrays, self.aux_arrays, needs_gradient, is_train
            )
        self._eager_run = run if is_train else None
        self.outputs = run.outputs
        return self.outputs

    def _backward_eagerly(self, run: EagerRun, out_grads: Tensor | Sequence[Tensor | None] | None) -> None:
        gradients = run.gradients(_core.below_layers(self._cotangents, out_grads))
        with no_grad():
            for (name, g), dx in zip(self.grad_dict.items(), gradients, strict=True):
                if g is not None:
                    _core.below_layers(_keep, g, dx, self.grad_req[name])

    def _cotangents(self, out_grads: Tensor | Sequence[Tensor | None] | None) -> list[Tensor]:
        grads = (
            [out_grads] if isinstance(out_grads, Tensor) else list(out_grads or [None] * len(self.outputs))
        )
        if len(grads) != len(self.outputs):
            raise ShapeError(f"backward: {len(grads)} gradients for {len(self.outputs)} outputs")
        cotangents = []
        for k, (cotangent, y, name) in enumerate(zip(grads, self.outputs, self._plans.outputs, strict=True)):
            if not y.dtype.is_differentiable:
                continue
            if cotangent is None:
                if k not in self._ones:
                    self._ones[k] = ones(y.shape, y.dtype, y.device)
                cotangent = self._ones[k]
            if not isinstance(cotangent, Tensor):
                cotangent = asarray(cotangent, y.dtype, y.device)
            if (
                cotangent.shape != y.shape
                or cotangent.dtype is not y.dtype
                or cotangent.device is not y.device
            ):
                raise ShapeError(
                    f"backward: the gradient of {name} must be like it, {_core.describe(y)}: it is"
                    f" {_core.describe(cotangent)}"
                )
            cotangents.append(cotangent.contiguous())
        return cotangents

    # Looking at it.

    @property
    def arg_dict(self) -> dict[str, Tensor]:
        """The arguments by name."""
        return dict(zip(self._plans.arguments, self.arg_arrays, strict=True))

    @property
    def grad_dict(self) -> dict[str, Tensor | None]:
        """The arguments' gradients by name, None where none is computed."""
        return dict(zip(self._plans.arguments, self.grad_arrays, strict=True))

    @property
    def aux_dict(self) -> dict[str, Tensor]:
        """The auxiliary states by name."""
        return dict(zip(self._plans.states, self.aux_arrays, strict=True))

    @property
    def output_dict(self) -> dict[str, Tensor]:
        """The outputs of the last forward by name."""
        return dict(zip(self._plans.outputs, self.outputs, strict=False))

    def set_monitor_callback(self, callback: Callback | None, monitor_all: bool = False) -> None:
        """Call this with the name and value of every operator's output, in order, after each forward.

        monitor_all: also of arguments and auxiliary states, first. None: no longer. The results are the same, but
        nothing is fused over what is looked at. Raises TypeError for what cannot be called.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"set_monitor_callback: expected a function or None, got {callback!r}")
        with self._lock:
            self._callback, self._monitor_all = callback, monitor_all

    def _report(self, callback: Callback, named: Sequence[tuple[str, Tensor]]) -> None:
        if self._monitor_all:
            for name, array in (*self.arg_dict.items(), *self.aux_dict.items()):
                callback(name, array)
        for name, array in named:
            callback(name, array)

    def memory_report(self) -> dict[str, int]:
        """Bytes by purpose: the bound arrays, and for training: outputs, what is kept for backward, temporary space.

        Temporary space is that of the plan that needs most; running plans take it from the device's pool. Prepared are
        packed parameters, which prediction without gradients keeps.
        """
        with self._lock:
            forward, plans = self._step_plans()
            graph = forward.plan.info.graph
            saved = set(forward.saved) - set(forward.outputs)
            return {
                "arguments": sum(x.nbytes for x in self.arg_arrays),
                "gradients": sum(g.nbytes for g in self.grad_arrays if g is not None),
                "auxiliary states": sum(x.nbytes for x in self.aux_arrays),
                "constants": sum(x.nbytes for x in self._constants),
                "outputs": sum(size_bytes(graph.outputs[k].type) for k in set(forward.outputs)),
                "kept for backward": sum(size_bytes(graph.outputs[k].type) for k in saved),
                "temporary": max(plan.info.memory_report().arena_bytes for plan in plans),
                "prepared": sum(plan.info.memory_report().kept_bytes for plan in plans),
            }

    def _step_plans(self) -> tuple[Forward, list[Any]]:
        """Forward, and the plans of one step: for training if there are gradients."""
        training = any(g is not None for g in self.grad_arrays)
        forward = self._plans.forward(self._signature, training, False)
        if not training:
            return forward, [forward.plan]
        kept_strides = [forward.plan.info.output_strides[k] for k in forward.saved]
        return forward, [forward.plan, self._plans.backward(self._signature, False, kept_strides)]

    def debug_str(self) -> str:
        """A text about its programs: graphs, kernels and memory."""
        lines = []
        for plan in self._step_plans()[1]:
            lines += [f"{plan.name}:", str(plan.info.graph), "steps:"]
            lines += [f"  {step}" for step in plan.info.steps]
        return "\n".join([*lines, *(f"{what}: {size} bytes" for what, size in self.memory_report().items())])

    # Others from it.

    def copy_params_from(
        self,
        arg_params: Mapping[str, Any],
        aux_params: Mapping[str, Any] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy these arrays into the arguments and auxiliary states of the same names.

        Raises GraphError for other names unless they are allowed, ShapeError for other shapes.
        """
        with self._lock, no_grad():
            for kind, arrays, params in (
                ("argument", self.arg_dict, arg_params),
                ("auxiliary state", self.aux_dict, aux_params or {}),
            ):
                for name, value in params.items():
                    if name in arrays or not allow_extra_params:
                        _put("copy_params_from", kind, arrays, name, value)

    def reshape(self, **shapes: Partial) -> Executor:
        """An executor for other shapes of some arguments, which shares memory with this one.

        Arrays whose shape stays are the same; those that become smaller are parts of the old memory, those that become
        larger are new. Raises what simple_bind raises.

        >>> import weft.symbol as sym
        >>> exe = (sym.var("x") * sym.var("w")).simple_bind(x=(4, 3), w=(3,))
        >>> small = exe.reshape(x=(2, 3))
        >>> small.arg_dict["w"] is exe.arg_dict["w"], small.forward()[0].shape
        (True, (2, 3))
        """
        plans = self._plans
        arrays = {**self.arg_dict, **self.aux_dict}
        dtypes = {name: x.dtype for name, x in arrays.items()}
        inference = Inference(plans.values, shapes, dtypes, self.device).run()
        known_shapes = dict(shapes)
        for node in inference.nodes:  # what the new shapes leave open stays as it was, if it may
            if node.op is None and inference.type_of(node.outputs[0]) is None:
                more_shapes = {**known_shapes, node.name: arrays[node.name].shape}
                with contextlib.suppress(ShapeError):
                    Inference(plans.values, more_shapes, dtypes, self.device).run()
                    known_shapes = more_shapes
        types = variable_types(
            infer_with_defaults(plans.values, known_shapes, dtypes, self.device), "reshape"
        )
        args = [_resized(x, types[n]) for n, x in self.arg_dict.items()]
        states = [_resized(x, types[n]) for n, x in self.aux_dict.items()]
        grads = [None if g is None else _resized(g, types[n]) for n, g in self.grad_dict.items()]
        requests = list(self.grad_req.values())
        return Executor(plans, self._placement, args, grads, requests, states, self._memory_budget)


def _put(caller: str, kind: str, arrays: Mapping[str, Tensor], name: str, value: Any, hint: str = "") -> None:
    """Copy a value into the known array of that name; kind: what such arrays are, for messages."""
    if name not in arrays:
        raise GraphError(f"{caller}: no {kind} {name!r}; there are: {', '.join(arrays) or 'none'}")
    array = arrays[name]
    content = asarray(value, device=array.device)
    if content.shape != array.shape:
        raise ShapeError(f"{caller}: {name} has the shape {array.shape}, got {content.shape}{hint}")
    array[...] = content.astype(array.dtype)


def _strides(x: Tensor) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def _resized(x: Tensor, t: TensorType) -> Tensor:
    """x itself, a part of its memory in another shape, or new zeros."""
    if x.shape == t.shape:
        return x
    size = int(t.size)
    if size <= x.size and x.contiguous() is x:
        return x.reshape(-1)[:size].reshape([int(n) for n in t.shape])
    return zeros(t.shape, x.dtype, x.device)
