"""trace: run once as Python, then as one program.

>>> import weft as wf
>>> @wf.trace
... def f(x, y):
...     return wf.exp(x) * y + 1
>>> x, y = wf.tensor([0., 1.]), wf.tensor([2., 0.])
>>> f(x, y), f(x, y), len(f.programs)
(tensor([3., 1.], dtype=float32, device=cpu:0), tensor([3., 1.], dtype=float32, device=cpu:0), 1)

The first call with arguments of some kind runs the function and writes down what it does to arrays; later calls run that as
a program, without Python. See docs/design/graphs.md for what an argument's kind is.
"""

from __future__ import annotations

import functools
import threading
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from weft import _core
from weft.base.errors import GraphError
from weft.base.structure import flatten
from weft.imperative.gradient import gradients
from weft.imperative.known_number import KnownNumber, KnownNumbers
from weft.imperative.scribe import CannotWrite, Scribe
from weft.imperative.storages import Geometry
from weft.imperative.surroundings import Surroundings
from weft.imperative.tensor import Tensor
from weft.imperative.traced import Traced, write_up

__all__ = ["Trace", "TraceWarning", "trace"]


class TraceWarning(UserWarning):
    """A traced function keeps running as Python, or keeps being traced anew."""


class Trace:
    """A traced function; see trace."""

    def __init__(self, function: Callable[..., Any], strict: bool, max_entries: int) -> None:
        functools.update_wrapper(self, function)
        self.function, self.strict, self.max_entries = function, strict, max_entries
        self._surroundings = Surroundings(function)
        self._entries: dict[Any, list[Traced | None]] = {}
        self._count = 0
        self._warned = False
        self._lock = threading.RLock()

    @property
    def programs(self) -> list[Any]:
        """What was made so far, the newest last."""
        return [entry for several in self._entries.values() for entry in several if entry is not None]

    def memory_report(self) -> list[Any]:
        """For each program, the bytes of its memory plan by kind."""
        return [entry.memory_report() for entry in self.programs]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"trace({self.function!r})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _core.is_observed():  # part of a greater program
            return self.function(*args, **kwargs)
        call = Call(args, kwargs, self._surroundings.now)
        known = self._entries.get(call.key)
        if known is not None:
            for entry in known:
                if entry is None:  # it cannot be written down
                    return self.function(*args, **kwargs)
                if entry.fits(call):
                    return entry.run(call)
        with self._lock:
            return self._record(call)

    def _record(self, call: Call) -> Any:
        """Run the function, and write it down."""
        floats = KnownNumbers(call.floats)
        scribe = Scribe(self._give_up)
        start = gradients()
        surroundings = self._surroundings.now()
        scribe.start()
        try:
            for leaf in sorted(call.tensors, key=lambda leaf: -leaf.nbytes):
                scribe.met(leaf, _core.geometry(leaf))
            args, kwargs = call.with_numbers(floats)
            result = self.function(*args, **kwargs)
        finally:
            scribe.stop()
        entry = None
        if not scribe.over:
            try:
                entry = write_up(self.__name__, scribe, call, floats, result, start, surroundings)
            except CannotWrite as problem:
                self._give_up(problem)
        self._keep(call.key, entry)
        leaves, structure = flatten(result)
        plain = [leaf.value if isinstance(leaf, KnownNumber) else leaf for leaf in leaves]
        return structure.build(plain)

    def _keep(self, key: Any, entry: Traced | None) -> None:
        self._count += 1
        if self._count > self.max_entries:
            oldest = next(iter(self._entries))
            self._entries[oldest].pop(0)
            if not self._entries[oldest]:
                del self._entries[oldest]
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self.__name__}: traced {self._count} times, for arguments that keep changing; the oldest "
                    f"programs are dropped from now on (max_entries={self.max_entries})",
                    TraceWarning,
                    stacklevel=4,
                )
        self._entries.setdefault(key, []).append(entry)

    def _give_up(self, problem: CannotWrite) -> None:
        text = f"{self.__name__}: {problem.fact}\n  at {problem.where}"
        if self.strict:
            raise GraphError(text)
        hint = "the function keeps running as Python; use where, cond or while_loop, or return the array"
        warnings.warn(f"{text}\n  {hint}", TraceWarning, stacklevel=2)


class Call:
    """One call's arguments, flat; key: what of them decides which program can run."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], surroundings: Callable[[], list[Any]]
    ) -> None:
        self.surroundings = surroundings
        self.leaves, self.structure = flatten((args, dict(sorted(kwargs.items()))))
        self.tensors: list[Tensor] = []
        self.floats: list[float] = []
        parts: list[Any] = []
        seen: dict[int | None, tuple[int, int]] = {}
        for number, leaf in enumerate(self.leaves):
            kind = type(leaf)
            if kind is Tensor:
                x = Geometry(*_core.geometry(leaf))
                # Where it lies counts if it shares memory with an earlier one.
                first, address = seen.setdefault(x.serial, (number, x.address))
                parts.append((x.dtype, x.device, x.shape, x.strides, first, x.address - address))
                self.tensors.append(leaf)
            elif kind is float:
                parts.append(float)
                self.floats.append(leaf)
            elif kind in (int, bool, str, bytes, type(None)):
                parts.append((kind, leaf))
            else:
                parts.append((kind, id(leaf)))  # the entry keeps it
        self.key = (self.structure, tuple(parts))

    def with_numbers(self, floats: KnownNumbers) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with numbers whose origin is known for floats."""
        numbers = iter(floats.numbers)
        made = [next(numbers) if type(leaf) is float else leaf for leaf in self.leaves]
        args, kwargs = self.structure.build(made)
        return args, kwargs


def trace(
    function: Callable[..., Any] | None = None, *, strict: bool = False, max_entries: int = 8
) -> Any:
    """function, run as Python once for each kind of arguments and as a program from then on; also a decorator.

    Arguments may be nested in tuples, lists and dicts. Programs are made for their structure, for sizes, strides and dtypes of
    tensors, and for the values of everything else but floats, which may differ from call to call. Tensors that the function
    finds elsewhere are looked at anew by each call; other things outside of its arguments, and what the function does to
    them, are as they were when it was traced. It may contain backward and the steps of optimizers: writes to tensors and to
    their grad happen at each call.

    strict: raise GraphError, naming the line, if the function looks at values of arrays (float(x), x.numpy(), if x:); else
    such a function keeps running as Python, and a TraceWarning says so. max_entries: programs kept, the oldest are dropped.

    >>> import weft as wf
    >>> w = wf.tensor([1., 2.])
    >>> @wf.trace(strict=True)
    ... def step(x, lr):
    ...     w[...] = w - lr * x
    >>> for lr in (1., .5, .5):
    ...     step(wf.tensor([1., 1.]), lr)
    >>> w, len(step.programs)
    (tensor([-1.,  0.], dtype=float32, device=cpu:0), 1)
    """
    if function is None:
        return functools.partial(trace, strict=strict, max_entries=max_entries)
    return Trace(function, strict, max_entries)


