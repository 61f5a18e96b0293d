"""Weights and models of other frameworks: files that weft reads, and networks that become symbols and modules.

weft.load reads weights in all formats (weft.interop.weights); weft.interop.mxnet reads networks. Nothing here is loaded
with weft, and nothing of a file is ever run.

>>> import weft as wf
>>> wf.interop.mxnet.__name__
'weft.interop.mxnet'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.interop import gguf as gguf
    from weft.interop import mxnet as mxnet
    from weft.interop import onnx as onnx
    from weft.interop import weights as weights

__all__ = ["gguf", "mxnet", "onnx", "weights"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    from weft.base.name_hints import missing

    raise missing(__name__, name, __dir__)


def __dir__() -> list[str]:
    return __all__
