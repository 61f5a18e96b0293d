"""The line of the user's program that runs, for errors and warnings."""

from __future__ import annotations

import os
import sys
import warnings

from weft.base.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["is_users", "users_line", "warn_at_users_line"]

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def is_users(file: str) -> bool:
    """Whether code of this file is the user's, not weft's."""
    return not file.startswith(_PACKAGE)


def _users_frame() -> FrameType:
    """The innermost frame outside of weft."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_line() -> str:
    """``file:line`` of the innermost frame outside of weft."""
    frame = _users_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_at_users_line(text: str) -> None:
    """Give a UserWarning at the innermost line outside of weft.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_at_users_line("the data is float64")
    >>> caught[0].message
    UserWarning('the data is float64')
    """
    frame = _users_frame()
    warnings.warn_explicit(text, UserWarning, frame.f_code.co_filename, frame.f_lineno)
