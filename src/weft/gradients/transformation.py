"""Transformations: user-defined layers that calls of operators pass through.

>>> import weft as wf
>>> class Names(wf.Transformation):
...     def emit(self, op, args):
...         print(op)
...         return op(*args)
>>> x = wf.tensor([1., 2.])
>>> with Names():
...     y = wf.softmax(x[None] + 1, axis=0)
BasicIndex(items=(None, (0, 2, 1)))
Add()
Softmax(axis=0)

`ORDER` is the stack that a call goes down. The first kinds see operators and are Transformations; those below see
plans, and are native: the tape (native/bindings/tape.cpp), the recording of launches, and the launch itself. A layer of
kind "gradient" takes the tape's place for the calls that it sees (weft.gradients.below_gradient).
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, ClassVar, Self

from weft import _core

__all__ = ["ORDER", "Transformation", "trace_keys"]

# From above. A layer calls those below it, never those above, and never skips one.
ORDER: dict[str, str] = {
    "user": "sees the operators as the program calls them",
    "amp": "sets dtypes after user layers have run, so gradients are those of the converted operators",
    "gradient": "records operators as rewritten above; the operators of the backward pass are below it",
    "trace": "records launches of plans: forward, backward and update of a training step alike",
    "interpreter": "runs plans",
}
SEE_OPERATORS = ("user", "amp", "gradient")


class Transformation(contextlib.ContextDecorator):
    """Sees the calls of operators inside ``with``, on the thread that entered it: override emit. Also a decorator.

    kind: its place in ORDER; among layers of one kind the innermost ``with`` comes first. "user"; "amp"; "gradient":
    just below the recording of gradients, so that it sees the operators that are computed, of backward, too, and what
    it makes of a call has the gradient of the call. only_one: the innermost of its kind is the only one that counts.

    >>> import weft as wf
    >>> class Doubled(wf.Transformation):
    ...     def emit(self, op, args):
    ...         match op.name, args:
    ...             case "add", (x, y) if x is y:
    ...                 return x * 2
    ...         return op(*args)
    >>> x = wf.tensor(3.)
    >>> with Doubled():
    ...     print((x + x).item())
    6.0
    """

    kind: ClassVar[str] = "user"
    only_one: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.kind not in SEE_OPERATORS:
            raise TypeError(
                f"{cls.__name__}: kind must be one of {', '.join(map(repr, SEE_OPERATORS))}, got {cls.kind!r}"
            )

    def emit(self, op: Any, args: tuple[Any, ...]) -> Any:
        """What a call gives. ``op(*args)`` passes it on, as do all calls made here, to the next layer out.

        op: the operator, a frozen value with all its attributes (weft.ops.Op). args: its inputs, one for each: tensors
        or numbers, None where an optional one is missing; the inputs of a variadic one are listed flat. The result is
        what the call gives, a tuple where the operator has several outputs. For ``x += y`` and ``x[key] = value`` it
        is then written to x.
        """
        return op(*args)

    def trace_key(self) -> Any:
        """What a program that was recorded under this depends on: itself; override where others mean the same."""
        return self

    def _emit_below(self, op: Any, args: tuple[Any, ...]) -> Any:
        """emit, of a layer below the gradient: what the call is recorded as is the operator itself."""
        from weft.gradients.below_gradient import emit_below

        return emit_below(self.emit, (self._emit_below, _core.layers()), op, args)

    def __enter__(self) -> Self:
        before = _core.layers()
        _entered.stack.append((self, before))
        _core.set_layers(_with(self, before))
        return self

    def __exit__(self, *_: object) -> None:
        if not _entered.stack or _entered.stack[-1][0] is not self:
            raise RuntimeError(
                f"{type(self).__name__}: left by another thread than entered it, or before what was entered later"
            )
        _core.set_layers(_entered.stack.pop()[1])


class _Entered(threading.local):
    """What this thread is inside of, the innermost last, with the layers before it was entered."""

    def __init__(self) -> None:
        self.stack: list[tuple[Transformation, Any]] = []


_entered = _Entered()


def trace_keys() -> tuple[Any, ...]:
    """Of this thread's layers: programs recorded under others are other programs."""
    keys, layers = [], _core.layers()
    while layers is not None:
        emit, layers = layers
        keys.append(emit.__self__.trace_key())
    return tuple(keys)


def _with(layer: Transformation, layers: Any) -> Any:
    """The layers with one more at its place; each is (emit, those below)."""
    emit = layer._emit_below if layer.kind == "gradient" else layer.emit
    if layers is None:
        return (emit, None)
    first = layers[0].__self__
    if SEE_OPERATORS.index(layer.kind) > SEE_OPERATORS.index(first.kind):
        return (layers[0], _with(layer, layers[1]))
    if layer.only_one and first.kind == layer.kind:
        return _with(layer, layers[1])
    return (emit, layers)
