"""Arrays and what happens to them at once: Tensor, making them, saving them."""

from __future__ import annotations

from weft import _core
from weft.base.typing import Any


def _plan_call(*arguments: Any) -> Any:
    from weft.imperative.planning import plan_call

    return plan_call(*arguments)


def _plan_backward(*arguments: Any) -> Any:
    from weft.imperative.planning import plan_backward

    return plan_backward(*arguments)


def _plan_recording(*arguments: Any) -> Any:
    from weft.imperative.planning import plan_recording

    return plan_recording(*arguments)


_core.set_planner(_plan_call)
_core.set_backward_planner(_plan_backward)
_core.set_recording_planner(_plan_recording)
