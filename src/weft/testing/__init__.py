"""Helpers for tests of programs that use weft: nearness of arrays, gradients against differences, whole operators.

>>> import weft as wf
>>> wf.testing.assert_close(wf.tensor([1., 2.]), [1., 2.])
>>> wf.testing.check_gradient(wf.tanh, wf.tensor([0.5, -1.]))
"""

from __future__ import annotations

from weft.base.name_hints import add_hints as _add_hints
from weft.testing.close import assert_close
from weft.testing.gradients import check_gradient
from weft.testing.operators import check_operator

__all__ = ["assert_close", "check_gradient", "check_operator"]

_add_hints(globals())
