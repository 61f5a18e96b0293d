"""detect_anomaly(): the operation that makes NaN fails, eager or in the middle of a program.

>>> import weft as wf
>>> with wf.tools.detect_anomaly():
...     y = wf.log(wf.tensor([1., -1.]))
...     y.wait()
Traceback (most recent call last):
    ...
weft.base.errors.EngineError: log: FloatingPointError: log: the result f32[2] holds 1 NaN and 0 infinite elements, ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from weft import _core
from weft.engine import default_engine

__all__ = ["detect_anomaly"]


def _count_non_finite() -> Callable[[str, int], Any]:
    from weft.kernels.gpu.non_finite import count_non_finite  # not before a GPU is watched

    return count_non_finite


_core.register(count_non_finite=_count_non_finite)


class detect_anomaly(contextlib.ContextDecorator):  # its public name
    """Inside, every kernel looks at its results, and fails if one holds NaN; also a decorator.

    infinite: infinite elements count, too; masks of attention are infinite on purpose. What waits for the result
    raises EngineError with the operator, the line of the code, where the first NaN is, and what the kernel read, so
    that NaN in inputs is distinguished from NaN that was made. It holds for the whole process, eager calls and steps of
    traced functions and executors alike. Each result is read once more; entering and leaving wait for pending
    operations.

    >>> import weft as wf
    >>> @wf.tools.detect_anomaly()
    ... def fine(x):
    ...     return wf.exp(x).sum().item()
    >>> fine(wf.zeros(3))
    3.0
    """

    def __init__(self, infinite: bool = False) -> None:
        self._mode = 2 if infinite else 1
        self._previous_modes: list[int] = []

    def __enter__(self) -> detect_anomaly:
        default_engine().wait_for_all()
        self._previous_modes.append(_core.watch_nan(self._mode))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            default_engine().wait_for_all()
        except Exception:
            if error is None:  # else it is most likely the same one
                raise
        finally:
            _core.watch_nan(self._previous_modes.pop())
