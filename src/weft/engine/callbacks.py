"""Functions of the user's in the shape the native engine calls them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["OnDeleted"]


class OnDeleted:
    """Calls what was given to delete_variable; it goes by that function's name."""

    __slots__ = ("__qualname__", "_call")

    def __init__(self, call: Callable[[], object]) -> None:
        if not callable(call):
            raise TypeError(
                f"delete_variable: on_deleted must be callable or None, got {type(call).__name__}"
            )
        self._call = call
        self.__qualname__ = f"on_deleted {getattr(call, '__qualname__', type(call).__name__)}"

    def __call__(self, run_context: object) -> None:
        self._call()
