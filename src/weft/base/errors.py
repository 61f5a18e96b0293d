"""The errors weft raises. Each is also one of Python's own, for code that does not refer to weft.

A message reads ``operation: the fact with its numbers: every operand in short form``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft.base.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeVar

    C = TypeVar("C", bound=Callable[..., Any])

__all__ = [
    "DTypeError",
    "DeviceError",
    "EngineError",
    "EngineErrorGroup",
    "GraphError",
    "ShapeError",
    "names_keywords",
]


class ShapeError(ValueError):
    """Shapes do not fit an operation, or each other.

    >>> raise ShapeError("matmul: inner sizes differ, 128 != 10: a is f32[32,128], b is f32[10,128]")
    Traceback (most recent call last):
        ...
    weft.base.errors.ShapeError: matmul: inner sizes differ, 128 != 10: a is f32[32,128], b is f32[10,128]
    """


class DTypeError(TypeError):
    """An element type is unknown, or an operation does not take it.

    >>> raise DTypeError("bitwise_and: takes integers and booleans, x is f32[4]@cpu")
    Traceback (most recent call last):
        ...
    weft.base.errors.DTypeError: bitwise_and: takes integers and booleans, x is f32[4]@cpu
    """


class DeviceError(RuntimeError):
    """A device is not present, or operands are on different devices.

    >>> raise DeviceError("add: operands on different devices: a is f32[2]@cpu:0, b is f32[2]@cpu:1")
    Traceback (most recent call last):
        ...
    weft.base.errors.DeviceError: add: operands on different devices: a is f32[2]@cpu:0, b is f32[2]@cpu:1
    """


class GraphError(ValueError):
    """A graph, or a file that holds one, is malformed or requests what it cannot have.

    >>> raise GraphError("bind: no array for the argument 'fc1_weight'; given: data")
    Traceback (most recent call last):
        ...
    weft.base.errors.GraphError: bind: no array for the argument 'fc1_weight'; given: data
    """


class EngineError(RuntimeError):
    """An operation on the engine failed, or the engine was used wrongly.

    operation: the name of the operation that failed first; empty when no single operation is meant.
    where: the line that pushed it, ``"file.py:41"``; empty when unknown.
    For a failed operation ``__cause__`` is the exception that its function raised.

    >>> from weft.engine import Engine
    >>> engine = Engine()
    >>> total = engine.new_variable()
    >>> engine.push(lambda run_context: 1 / 0, mutate_vars=[total], name="divide")
    >>> try:
    ...     engine.wait_for_var(total)
    ... except EngineError as error:
    ...     print(error.operation, type(error.__cause__).__name__)
    divide ZeroDivisionError
    >>> engine.clear_error(total)
    >>> engine.stop()
    """

    operation: str
    where: str

    def __init__(self, message: str = "", *, operation: str = "", where: str = "") -> None:
        super().__init__(message)
        self.operation = operation
        self.where = where


@functools.cache
def failure_class(kind: type[BaseException]) -> type[EngineError]:
    """The class of EngineErrors for kernels that fail with this kind of error: it can be caught as both.

    >>> late = failure_class(IndexError)
    >>> late.__name__, issubclass(late, EngineError), issubclass(late, IndexError)
    ('LateIndexError', True, True)
    """
    if not issubclass(kind, Exception) or issubclass(EngineError, kind):
        return EngineError
    try:
        return type(
            f"Late{kind.__name__}", (EngineError, kind), {"__doc__": f"An EngineError and {kind.__name__}."}
        )
    except TypeError:  # classes with memory of their own, as OSError's
        return EngineError


class EngineErrorGroup(EngineError, ExceptionGroup[Exception]):
    """Several operations failed for different causes; ``exceptions`` holds an EngineError for each.

    ``except EngineError`` catches it whole. operation and where are those of the first.
    Raises ValueError if exceptions is empty, TypeError if it holds anything but exceptions.

    >>> try:
    ...     raise EngineErrorGroup("2 operations failed", [EngineError("a"), EngineError("b")])
    ... except* EngineError as group:
    ...     print([str(error) for error in group.exceptions])
    ['a', 'b']
    """

    def __new__(cls, message: str, exceptions: Sequence[Exception]) -> EngineErrorGroup:
        return ExceptionGroup.__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception]) -> None:
        BaseExceptionGroup.__init__(self, message, exceptions)
        first = self.exceptions[0]
        self.operation = getattr(first, "operation", "")
        self.where = getattr(first, "where", "")

    def derive(self, exceptions: Sequence[Exception]) -> EngineErrorGroup:  # type: ignore[override]
        """The same group around other exceptions; split() and subgroup() call it."""
        return EngineErrorGroup(self.message, exceptions)


def names_keywords(target: C) -> C:
    """Decorator of a class or function: a TypeError for a keyword that it does not take lists those that it takes.

    >>> @names_keywords
    ... class Loader:
    ...     def __init__(self, dataset, *, num_workers=0):
    ...         pass
    >>> Loader([], workers=2)
    Traceback (most recent call last):
        ...
    TypeError: Loader: no argument workers; there are: dataset, num_workers; did you mean num_workers?
    """
    if not isinstance(target, type):
        return _naming(target, target.__name__, 0)
    initializer = vars(target).get("__init__")
    if initializer is not None:
        target.__init__ = _naming(initializer, target.__name__, 1)  # type: ignore[misc]
    return target


def _public_owner(instance: Any, owner: str) -> str:
    """The name of a class, for a private base the one of the public class next to it that the instance is of."""
    names = [cls.__name__ for cls in type(instance).__mro__]
    public = [name for name in names[: names.index(owner)] if not name.startswith("_")]
    return public[-1] if owner.startswith("_") and public else owner


def _naming(function: Any, owner: str, first: int) -> Any:
    """The function with the better error; first: the index of the first parameter that callers pass."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as problem:
            before, _, text = str(problem).partition("() ")
            if before != function.__qualname__:
                raise
            name = _public_owner(args[0], owner) if first else owner
            _, _, keyword = text.partition("got an unexpected keyword argument ")
            if not keyword:
                if name == owner:
                    raise
                raise TypeError(f"{name}: {text}") from None
            from weft.base.keywords import unknown_keyword  # not before the first mistake

            raise TypeError(unknown_keyword(function, name, first, keyword.split("'")[1])) from None

    return call
