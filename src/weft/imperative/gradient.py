"""Gradients of what ran: GradManager, grad, value_and_grad, no_grad, Function.

>>> import weft as wf
>>> x = wf.tensor([1., 2.])
>>> gm = wf.GradManager().attach([x])
>>> with gm:
...     loss = (x * x).sum()
...     gm.backward(loss)
>>> x.grad
tensor([2., 4.], dtype=float32, device=cpu:0)

Calls are recorded only while an input wants a gradient. A record is owned by the results it explains, so results that
are dropped free their history.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

from weft import _core
from weft.base.errors import GraphError, ShapeError
from weft.imperative.tensor import Tensor
from weft.ops import registry
from weft.ops.node import Value

__all__ = ["Function", "GradManager", "grad", "no_grad", "recompute", "value_and_grad"]

# By identity; a WeakKeyDictionary would compare tensors with ==, which compares their elements.
_gradients: dict[int, tuple[ref[Tensor], Tensor]] = {}
gradient_table = _gradients  # as programs look it up
_active = 0  # managers and calls of grad that record at present, in all threads


def gradients() -> dict[int, tuple[ref[Tensor], Tensor]]:
    """The tensors that have a grad at present, by id: a weak reference to each, and the gradient."""
    return dict(_gradients)


def gradients_of(tensors: Iterable[Tensor]) -> list[Tensor | None]:
    """The grad of each."""
    if _core.capture() is not None:
        return [_get_grad(x) for x in tensors]
    listed = list(tensors)
    if (scribe := _core.get_scribe()) is not None:
        for x in listed:
            scribe.gradient_read(x)
    return [None if (kept := _gradients.get(id(x))) is None else kept[1] for x in listed]


def forget_gradients(tensors: Iterable[Tensor]) -> None:
    """None of them has a grad any more."""
    if _core.capture() is not None:
        for x in tensors:
            keep_gradient(x, None)
        return
    keys = [id(x) for x in tensors]
    scribe = _core.get_scribe()
    if scribe is not None:
        scribe.set_gradients.update(keys)
    for key in keys:
        _gradients.pop(key, None)


def keep_gradient(x: Tensor, dx: Tensor | None) -> None:
    """Make dx the grad of x; None: it has none."""
    key = id(x)
    if (capture := _core.capture()) is not None:
        capture.set_gradient(x, dx)
        return
    scribe = _core.get_scribe()
    if scribe is not None:
        scribe.set_gradients.add(key)
    if dx is None:
        _gradients.pop(key, None)
    else:
        _gradients[key] = (ref(x, lambda _: _gradients.pop(key, None)), dx)


def _filled_like(x: Any, value: float) -> Any:
    from weft.imperative.creation import full_like

    return registry.function("filled_like")(x, value=value) if isinstance(x, Value) else full_like(x, value)


class GradManager:
    """Records what happens to tensors inside a ``with``, and adds the gradients to their ``grad``.

    attach tensors once, then use it again and again. backward also ends the recording of what it went through.
    Managers nest: gradients that an inner one computes are recorded for the outer one.

    >>> import weft as wf
    >>> w = wf.tensor([3.])
    >>> gm = GradManager()
    >>> _ = gm.attach([w])
    >>> with gm:
    ...     y = w * w * w
    ...     gm.backward(y)
    >>> w.grad.item()
    27.0
    """

    def __init__(self) -> None:
        self._watched: list[Tensor] = []
        self._callbacks: dict[int, list[Callable[[Tensor, Tensor], Tensor | None]]] = {}
        self._leaves: dict[int, Any] | None = None
        self._capture: Any = None  # that it records in; None: on arrays

    def attach(
        self,
        tensors: Tensor | Iterable[Tensor],
        callbacks: Callable[[Tensor, Tensor], Tensor | None]
        | Sequence[Callable[[Tensor, Tensor], Tensor | None]]
        | None = None,
    ) -> GradManager:
        """Want the gradients of these.

        callbacks run before a gradient is added: what callback(tensor, gradient) returns, unless None, takes its place.

        Raises TypeError for anything but tensors, DTypeError if one is not of a floating-point type.
        """
        listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        hooks = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
        for x in listed:
            if not isinstance(x, Tensor):
                raise TypeError(f"attach: expected tensors, got {type(x).__name__}")
            if x.dtype.kind != "float":
                raise _core_dtype_error(x)
            if id(x) not in self._callbacks:
                self._watched.append(x)
                self._callbacks[id(x)] = []
                if self._leaves is not None:
                    self._leaves[id(x)] = _watcher()(x)
            self._callbacks[id(x)].extend(hooks)
        return self

    def attached_tensors(self) -> list[Tensor]:
        """The tensors attached so far."""
        return list(self._watched)

    def record(self) -> None:
        """Begin to record; ``with`` calls it. Raises RuntimeError if it records already."""
        global _active
        if self._leaves is not None:
            raise RuntimeError("record: this GradManager records already")
        self._capture = _core.capture()
        watch = _watcher()
        self._leaves = {id(x): watch(x) for x in self._watched}
        _active += 1

    def release(self) -> None:
        """End recording; ``with`` calls it."""
        global _active
        if self._leaves is None:
            return
        leaves, self._leaves = self._leaves, None
        _active -= 1
        unwatch = _core.unwatch if self._capture is None else self._capture.unwatch
        for x in reversed(self._watched):
            unwatch(x, leaves[id(x)])
        self._capture = None

    def __enter__(self) -> GradManager:
        self.record()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def backward(
        self,
        y: Tensor | Sequence[Tensor] | None = None,
        dy: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of y with respect to every attached tensor to its ``grad``, then end recording.

        dy: the gradient of what is to be minimised with respect to y; by default 1 for every element.
        Raises RuntimeError outside of recording, ShapeError if dy does not have y's shape, ValueError if a value that
        is needed was overwritten, or if y depends on no attached tensor.
        """
        if self._leaves is None:
            raise RuntimeError("backward: this GradManager does not record; use it in a with statement")
        if self._capture is not _core.capture():
            raise GraphError(
                "backward: what is written down as a graph cannot end a recording that began outside"
            )
        ys = [] if y is None else [y] if isinstance(y, Tensor | Value) else list(y)
        dys = [None] * len(ys) if dy is None else [dy] if isinstance(dy, Tensor | Value) else list(dy)
        leaves, capture = self._leaves, self._capture
        if capture is None and ys and self._watched and not any(map(_core.is_tracked, ys)):
            raise ValueError(
                "backward: y depends on none of the attached tensors; was it computed inside of the with statement, "
                "by weft, from tensors that were attached before?"
            )
        nested = _active > 1
        try:
            found = _backward(ys, dys, [leaves[id(x)] for x in self._watched], create_graph=nested)
        finally:
            self.release()
        for x, dx in zip(self._watched, found, strict=True):
            if dx is None:
                continue
            for hook in self._callbacks[id(x)]:
                replaced = hook(x, dx)
                dx = dx if replaced is None else replaced
            before = gradients_of([x])[0]
            if before is not None:
                known = before if capture is None else capture.lift(before)
                dx = _core.below_layers(registry.function("add"), known, dx)
            keep_gradient(x, dx)


def _watcher() -> Callable[[Any], Any]:
    """What makes a tensor a leaf."""
    capture = _core.capture()
    return _core.watch if capture is None else capture.watch


def _core_dtype_error(x: Tensor) -> Exception:
    from weft.base.errors import DTypeError

    return DTypeError(f"attach: only floating-point tensors have gradients: x is {_core.describe(x)}")


def _backward(
    ys: Sequence[Tensor], dys: Sequence[Tensor | None], leaves: Sequence[Any], create_graph: bool
) -> list[Tensor | None]:
    if len(ys) != len(dys):
        raise ValueError(f"backward: {len(ys)} values, but {len(dys)} gradients of them")
    for y, dy in zip(ys, dys, strict=True):
        if dy is not None and dy.shape != y.shape:
            raise ShapeError(f"backward: y has shape {y.shape}, its gradient {dy.shape}")
    if (capture := _core.capture()) is not None:
        slopes = [_filled_like(y, 1.0) if dy is None else dy for y, dy in zip(ys, dys, strict=True)]
        values: list[Any] = capture.gradients(ys, slopes, leaves, create_graph)
        return values
    found: list[Tensor | None] = _core.backward(list(ys), list(dys), list(leaves), create_graph)
    return found


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives f's value, one number, and its gradient with respect to the arguments argnums.

    has_aux: f gives (value, anything); so does the result, as ((value, anything), gradient).
    Raises ShapeError if the value is not one element. Nests to any order.

    >>> import weft as wf
    >>> value, slope = value_and_grad(lambda x: x * x)(wf.tensor(3.))
    >>> value.item(), slope.item()
    (9.0, 6.0)
    """

    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"grad: argnums names an argument twice: {argnums}")

    @functools.wraps(f)
    def compute(*args: Any, **kwargs: Any) -> Any:
        global _active
        inner = list(args)
        leaves = []
        for k in numbers:
            x = inner[k]
            if not isinstance(x, Tensor) and not (isinstance(x, Value) and _core.capture() is not None):
                raise TypeError(f"grad: argument {k} must be a Tensor, got {type(x).__name__}")
            inner[k], leaf = _another(x)
            leaves.append(leaf)
        _active += 1
        try:
            result = f(*inner, **kwargs)
            y = result[0] if has_aux else result
            is_array = isinstance(y, Tensor | Value)
            if not is_array or any(n != 1 for n in y.shape):
                raise ShapeError(f"grad: the function must give one number, got {y.shape if is_array else y}")
            found = _backward([y], [None], leaves, create_graph=_active > 1)
        finally:
            _active -= 1
        slopes = [
            _filled_like(args[k], 0.0) if dx is None else dx for k, dx in zip(numbers, found, strict=True)
        ]
        return result, slopes[0] if isinstance(argnums, int) else tuple(slopes)

    return compute


def _another(x: Any) -> tuple[Any, Any]:
    """The same array as one of its own, and what gradients with respect to it are found by."""
    if (capture := _core.capture()) is not None:
        watched = capture.watch(capture.lift(x))
        return watched, watched
    other = _core.alias(x, keep_past=True)
    return other, _core.watch(other)


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of f, whose value is one number, with respect to the arguments argnums.

    >>> import weft as wf
    >>> cube = lambda x: x * x * x
    >>> grad(cube)(wf.tensor(2.)).item(), grad(grad(cube))(wf.tensor(2.)).item()
    (12.0, 12.0)
    """
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def compute(*args: Any, **kwargs: Any) -> Any:
        result, slopes = both(*args, **kwargs)
        return (slopes, result[1]) if has_aux else slopes

    return compute


class no_grad(contextlib.ContextDecorator):  # its public name
    """Nothing is recorded inside; also a decorator.

    >>> import weft as wf
    >>> x = wf.tensor([1.])
    >>> gm = wf.GradManager().attach([x])
    >>> with gm, no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __enter__(self) -> None:
        _core.set_recording(False)

    def __exit__(self, *_: object) -> None:
        _core.set_recording(True)


class Function:
    """A function with a gradient of one's own: forward(*x) and backward(*dy), both on tensors.

    Call an instance with tensors, or with symbols; forward may keep what backward needs in self. backward returns a
    gradient for each tensor that forward was given, None for zero.

    >>> import weft as wf
    >>> class Double(Function):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def backward(self, dy):
    ...         return dy * 2
    >>> grad(lambda x: Double()(x))(wf.tensor(1.)).item()
    2.0
    """

    def forward(self, *x: Any) -> Any:
        """The value."""
        raise NotImplementedError(f"{type(self).__name__}: no forward")

    def backward(self, *dy: Any) -> Any:
        """The gradients of forward's tensors."""
        raise NotImplementedError(f"{type(self).__name__}: no backward")

    def __call__(self, *args: Any) -> Any:
        symbol = next((x for x in args if hasattr(x, "__weft_control__")), None)
        if symbol is not None:
            return symbol.__weft_control__("function", self, *args)
        if _core.capture() is not None:
            return self._in_graph(args)
        inputs = [x for x in args if isinstance(x, Tensor)]
        with no_grad():
            result = self.forward(*args)
        outputs = [result] if isinstance(result, Tensor) else list(result)
        if _core.is_recording() and any(_core.is_tracked(x) for x in inputs):
            outputs = [_core.alias(y, keep_past=False) for y in outputs]
            _core.record_function(inputs, outputs, self.backward)
        return outputs[0] if isinstance(result, Tensor) else tuple(outputs)

    def _in_graph(self, args: Sequence[Any]) -> Any:
        """A call in a function that is being written down."""
        from weft.graph.own_gradient import with_gradient

        here = _core.capture()
        xs = [here.lift(x) for x in args if isinstance(x, Tensor) or hasattr(x, "__weft_apply__")]
        result = self.forward(*args)
        ys = [here.lift(y) for y in (result if isinstance(result, tuple | list) else (result,))]
        made = with_gradient(type(self).__name__, ys, xs, self.backward)
        return tuple(made) if isinstance(result, tuple | list) else made[0]


def _restore(states: dict[str, Any]) -> None:
    for device, (seed, stream, offset) in states.items():
        _core.set_generator(device, seed, stream, offset)


def recompute(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args), of which nothing inside is kept for the gradient: it is computed again when that is asked for.

    Arguments that are tensors have gradients; random numbers come out the same the second time.

    >>> import weft as wf
    >>> grad(lambda x: recompute(lambda t: t * t, x))(wf.tensor(3.)).item()
    6.0
    """
    if _core.capture() is not None or any(hasattr(x, "__weft_control__") for x in args):
        return f(
            *args
        )  # a body that becomes part of a graph keeps nothing inside anyway, a symbol what its plan says
    devices = {str(x.device) for x in args if isinstance(x, Tensor)}
    state = {device: _core.get_generator(device) for device in devices}
    stream = copy.copy(_core.random_stream())  # of control flow that this is inside of

    class Again(Function):
        def forward(self, *x: Any) -> Any:
            return f(*x)

        def backward(self, *dy: Any) -> Any:
            global _active
            now = {device: _core.get_generator(device) for device in devices}
            _restore(state)
            outer = _core.set_random_stream(copy.copy(stream))
            watched = [
                _core.alias(x, keep_past=True) if isinstance(x, Tensor) and x.dtype.kind == "float" else x
                for x in args
            ]
            leaves = [_core.watch(x) for x, a in zip(watched, args, strict=True) if x is not a]
            nested = _core.is_recording()
            _active += 1
            if not nested:
                _core.set_recording(True)
            try:
                y = f(*watched)
                found = iter(_backward([y] if isinstance(y, Tensor) else list(y), list(dy), leaves, nested))
            finally:
                if not nested:
                    _core.set_recording(False)
                _active -= 1
                _core.set_random_stream(outer)
                _restore(now)
            return tuple(
                next(found) if x is not a else None
                for x, a in zip(watched, args, strict=True)
                if isinstance(a, Tensor)
            )

    return Again()(*args)


def _get_grad(self: Tensor) -> Tensor | None:
    """The gradient that GradManagers have added up, None before the first; may be set, or set to None."""
    kept = _gradients.get(id(self))
    found = None if kept is None else kept[1]
    if (capture := _core.capture()) is not None:
        return capture.gradient_of(self, found)
    if (scribe := _core.get_scribe()) is not None:
        scribe.gradient_read(self)
    return found


def _set_grad(self: Tensor, value: Tensor | None) -> None:
    if value is not None and (not isinstance(value, Tensor | Value) or value.shape != self.shape):
        raise ShapeError(f"grad: expected a Tensor of shape {self.shape}")
    keep_gradient(self, value)


def _requires_grad(self: Tensor) -> bool:
    """Whether calls with this tensor are being recorded."""
    tracked = bool(_core.is_tracked(self))
    if (scribe := _core.get_scribe()) is not None:
        scribe.recorded_read(self, tracked)
    return tracked


def _detach(self: Tensor) -> Tensor:
    """The same memory without its history."""
    return _core.alias(self, keep_past=False)


for _name, _value in {
    "grad": property(_get_grad, _set_grad, doc=_get_grad.__doc__),
    "requires_grad": property(_requires_grad),
    "detach": _detach,
}.items():
    setattr(Tensor, _name, _value)
