"""recompute: a part of a function that keeps nothing for its gradient, and runs again when that is computed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.base.structure import flatten
from weft.gradients.gradient import Function, active_recorder, backward_of, recordings_here

__all__ = ["recompute"]

R = TypeVar("R")


def _restore(states: dict[str, Any]) -> None:
    for device, (seed, stream, offset) in states.items():
        _core.set_generator(device, seed, stream, offset)


def recompute(f: Callable[..., R], *args: Any) -> R:
    """f(*args), of which nothing inside is kept for the gradient: it is computed again when that runs.

    Arguments that are tensors have gradients, and so have tensors, and parameters of modules, that f is or refers to by
    its own names; others that require one raise ValueError. Random numbers are the same the second time.

    >>> import weft as wf
    >>> wf.grad(lambda x: recompute(lambda t: t * t, x))(wf.tensor(3.)).item()
    6.0
    """
    recorder = _core.get_recorder()
    if (
        _core.capture() is not None
        or any(hasattr(x, "__weft_control__") for x in args)
        or (
            recorder is not None
            and recorder.differentiable
            and recorder.defers
            and not recorder.notes_regions
        )
    ):
        # A body that becomes part of a graph keeps nothing inside anyway, a symbol what its plan says, and what is put
        # off and has no gradient inside of its program has that of the whole program.
        return f(*args)
    result: R = _Region(f, args)(*args, *_tracked_in(f))
    return result


def _tracked_in(f: Any) -> list[Tensor]:
    """The tensors that f refers to by its names and that require gradients.

    In a trace, whose program may be differentiated later, all that can have one.
    """
    from weft.recording.captured_environment import captured_environment

    names = captured_environment(f).values if callable(f) else []
    objects: list[Any] = [f, getattr(f, "__self__", None), *flatten(names)[0]]
    tensors: list[Any] = []
    for x in objects:
        tensors += x.parameters() if hasattr(x, "named_parameters") else [x]
    # Arguments, too: f may have them in both ways.
    unique = {id(x): x for x in tensors if isinstance(x, Tensor)}
    is_traced = active_recorder() is not None and not _core.is_stopping()
    return [x for x in unique.values() if _core.is_tracked(x) or (is_traced and x.dtype.is_differentiable)]


class _Region(Function):
    """f on the first of the inputs; the others are tensors that f finds by itself."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any]) -> None:
        self.f, self.args, self.count = f, args, len(args)
        self.devices = {str(x.device) for x in args if isinstance(x, Tensor)}
        self.state = {device: _core.get_generator(device) for device in self.devices}
        self.stream = copy.copy(_core.random_stream())  # of control flow that this is inside of
        self.positions: list[Any] = []  # of draws in the graph that is being written down
        self.recorder = None if _core.is_stopping() else active_recorder()
        self.is_put_off = self.recorder is not None and self.recorder.defers
        self.is_recorded = _core.is_recording()

    def forward(self, *x: Any) -> Any:
        self.captured = list(x[self.count :])
        if not self.is_recorded:
            return self.f(*x[: self.count])
        write_counts = [_core.state_of(each)[1] for each in self.captured]
        _core.begin_noting()
        try:
            with contextlib.nullcontext() if self.recorder is None else self.recorder.region(self.positions):
                result = self.f(*x[: self.count])
        finally:
            hidden_inputs = _core.end_noting(list(x))
        if hidden_inputs:
            from weft.gradients.custom_vjp import HIDDEN

            raise ValueError(f"recompute: {HIDDEN}")
        # Tensors that require no gradient now may be written by f.
        self.captured = [
            each
            for each, before in zip(self.captured, write_counts, strict=True)
            if _core.is_tracked(each) or _core.state_of(each)[1] == before
        ]
        return result

    def _inputs(self, args: Sequence[Any]) -> list[Tensor]:
        return [x for x in args[: self.count] if isinstance(x, Tensor)] + self.captured

    def backward(self, *dy: Any) -> Any:
        writer = active_recorder()
        if self.is_put_off and self.positions and writer is not self.recorder:
            raise GraphError(
                "recompute: what drew random numbers in a traced call has its gradient in that call; this one began "
                "later\n  hint: trace(lazy=False)"
            )
        draws = writer is None or not writer.defers
        now = {device: _core.get_generator(device) for device in self.devices} if draws else {}
        if draws:
            _restore(self.state)
        outer = _core.set_random_stream(copy.copy(self.stream))
        is_float = [isinstance(x, Tensor) and x.dtype.is_differentiable for x in self.args]
        watched = [
            self._recomputed_input(x, writer) if is_leaf else x
            for x, is_leaf in zip(self.args, is_float, strict=True)
        ]
        leaves = [_core.watch(x) for x, is_leaf in zip(watched, is_float, strict=True) if is_leaf]
        besides = [_core.watch(x) for x in self.captured]
        nested = _core.is_recording()
        recordings = recordings_here()
        recordings.active += 1
        if not nested:
            _core.set_recording(True)
        try:
            operands = [*watched, *self.captured]
            with contextlib.nullcontext() if writer is None else writer.recomputing(self.positions, operands):
                y = self.f(*watched)
            ys = [y] if isinstance(y, Tensor) else list(y)
            gradients = iter(backward_of(ys, list(dy), [*leaves, *besides], nested))
        finally:
            if not nested:
                _core.set_recording(False)
            recordings.active -= 1
            for x, leaf in zip(reversed(self.captured), reversed(besides), strict=True):
                _core.unwatch(x, leaf)
            _core.set_random_stream(outer)
            if draws:
                _restore(now)
        cotangents = [next(gradients) if tracked else None for tracked in is_float]
        operands = [dx for dx, x in zip(cotangents, self.args, strict=True) if isinstance(x, Tensor)]
        return (*operands, *gradients)

    @staticmethod
    def _recomputed_input(x: Tensor, writer: Any) -> Tensor:
        """An argument as the region takes it the second time."""
        if writer is None:
            return _core.alias(x, keep_past=True)
        copied: Tensor = x.copy()
        writer.begin_recomputation(copied)
        return copied
