"""Tensor: what arrays are, creating, indexing and saving them; plans of eager calls."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from weft import _core
from weft import storage as _storage  # noqa: F401 - the memory of arrays, which every module here may request
from weft.base.typing import Any


def _from(module: str, name: str, package: str = "weft.arrays") -> Callable[[], Any]:
    """What imports it when it is first needed."""
    return lambda: getattr(importlib.import_module(f"{package}.{module}"), name)


_core.register(
    array_loop=_from("arrays", "array_loop", "weft.kernels.gpu"),
    asarray=_from("creation", "asarray"),
    assign=_from("indexing", "assign"),
    elements_exported=_from("tensor", "elements_exported"),
    of_sizes=_from("creation", "of_sizes"),
    plan_backward=_from("planning", "plan_backward"),
    plan_call=_from("planning", "plan_call"),
    plan_recording=_from("planning", "plan_recording"),
    subscript=_from("indexing", "subscript"),
)
