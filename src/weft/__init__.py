"""weft: a deep-learning framework in Python with a small native core.

Importing weft loads oneDNN and a few small modules; every other name is imported when it is first used.

>>> import weft as wf
>>> wf.cpu(0)
cpu:0
"""

from __future__ import annotations

import importlib

from weft._preload import preload as _preload

_preload()

TYPE_CHECKING = False  # type checkers take it as true; typing itself would take a third of the import time
if TYPE_CHECKING:
    from typing import Any

    from weft import engine as engine
    from weft.base.device import Device as Device
    from weft.base.device import as_device as as_device
    from weft.base.device import cpu as cpu
    from weft.base.device import current_device as current_device
    from weft.base.device import device as device
    from weft.base.device import gpu as gpu
    from weft.base.errors import DeviceError as DeviceError
    from weft.base.errors import DTypeError as DTypeError
    from weft.base.errors import EngineError as EngineError
    from weft.base.errors import EngineErrorGroup as EngineErrorGroup
    from weft.base.errors import GraphError as GraphError
    from weft.base.errors import ShapeError as ShapeError

    __version__: str
    _core: Any  # native; its Python faces carry the types

_MODULE_OF = {
    "weft.base.device": ("Device", "as_device", "cpu", "current_device", "device", "gpu"),
    "weft.base.errors": (
        "DTypeError",
        "DeviceError",
        "EngineError",
        "EngineErrorGroup",
        "GraphError",
        "ShapeError",
    ),
}
_LAZY = {name: module for module, names in _MODULE_OF.items() for name in names}
_SUBPACKAGES = ("engine",)

__all__ = sorted([*_LAZY, *_SUBPACKAGES])


if not TYPE_CHECKING:  # with it, a type checker would believe in every name

    def __getattr__(name: str) -> object:
        if name in _LAZY:
            value = getattr(importlib.import_module(_LAZY[name]), name)
        elif name in _SUBPACKAGES:
            value = importlib.import_module(f"weft.{name}")
        elif name == "__version__":
            value = importlib.import_module("importlib.metadata").version("weft")
        else:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
