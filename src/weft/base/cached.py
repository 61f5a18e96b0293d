"""cached_property without a lock.

Before Python 3.12 that of functools has a lock for each property, held while any object's value is computed. A child
that is forked meanwhile by another thread would wait for it for ever.
"""

from __future__ import annotations

from weft.base.typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # named as Python's own
        """A property that is computed once for each object. Threads may compute it at once; all get the first value.

        >>> class Circle:
        ...     radius = 2
        ...     @cached_property
        ...     def area(self):
        ...         print("computed")
        ...         return 3 * self.radius ** 2
        >>> circle = Circle()
        >>> circle.area, circle.area
        computed
        (12, 12)
        """

        def __init__(self, function: Any) -> None:
            self.func = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.func(instance))
