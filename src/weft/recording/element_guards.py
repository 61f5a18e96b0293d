"""Elements that decided something while a function was recorded: guards of its program.

>>> import weft as wf
>>> w = wf.tensor([1., 2.])
>>> guards = ElementGuards()
>>> guards.add(lambda: w.sum())
>>> w[...] = wf.tensor([2., 1.])
>>> guards.hold()
True
>>> w[0] = 5
>>> guards.hold()
False
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _core
from weft.arrays.tensor import Tensor

__all__ = ["ElementGuards"]


class ElementGuards:
    """What was read of arrays outside, with the elements that it had: exactly, by their bits.

    Elements are compared, not counts of writes: libraries that share memory write without weft, and what is read is
    often a small result of large arrays. A check waits for the arrays, as the function would.
    """

    def __init__(self) -> None:
        self._reads: list[tuple[Callable[[], Tensor], bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._reads)

    def add(self, find: Callable[[], Tensor]) -> None:
        """What find gives is read now."""
        self._reads.append((find, _bits(find())))

    def hold(self) -> bool:
        """Whether everything that was read has the elements that it had."""
        return all(_bits(find()) == bits for find, bits in self._reads)


def _bits(x: Tensor) -> bytes:
    return bytes(_core.memory(x if _core.is_contiguous(x) else _core.copy_of(x)))
