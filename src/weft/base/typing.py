"""What annotations need of the module typing, without importing it.

Type checkers see typing's own names. When code runs, annotations are text that is not evaluated, so these names need
only exist; importing typing, and re and enum with it, takes 5 ms, where arrays and a first sum of them take 13.

>>> from weft.base.typing import Any, ClassVar
"""

from __future__ import annotations

from types import GenericAlias

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any as Any
    from typing import ClassVar as ClassVar
    from typing import Literal as Literal
    from typing import Protocol, TypeVar
    from typing import dataclass_transform as dataclass_transform

    R = TypeVar("R", covariant=True)

    class Returns(Protocol[R]):
        """What has a forward that returns R: a call of it returns R as well."""

        @property
        def forward(self) -> Callable[..., R]: ...

else:
    Any = object

    class ClassVar:
        __class_getitem__ = classmethod(GenericAlias)

    class Literal:
        __class_getitem__ = classmethod(GenericAlias)

    def dataclass_transform(**_: object) -> object:
        return lambda cls: cls
