"""Warnings that name the user's line."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["warn_at_users_line"]

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def warn_at_users_line(text: str) -> None:
    """Give a UserWarning at the innermost line outside of weft.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_at_users_line("the data is float64")
    >>> caught[0].message
    UserWarning('the data is float64')
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    warnings.warn_explicit(text, UserWarning, frame.f_code.co_filename, frame.f_lineno)
