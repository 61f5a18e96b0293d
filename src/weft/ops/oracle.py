"""NumPy for references: imported when the first one is read, which only tests do.

>>> np.add(1, 2).item()
3
"""

from __future__ import annotations

from weft.base.typing import Any

__all__ = ["np"]


class _NumPy:
    def __getattr__(self, name: str) -> Any:
        import numpy

        return getattr(numpy, name)


np: Any = _NumPy()
