"""weft: a deep-learning framework in Python with a small native core.

Importing weft loads oneDNN and a few small modules; every other name is imported when it is first used.

>>> import weft as wf
>>> wf.cpu(0)
cpu:0
"""

from __future__ import annotations

import importlib

from weft._preload import preload as _preload
from weft.base import process as _process  # noqa: F401 - in force from here on

# The native core holds this function to the end, and so all modules of weft: Python clears what is still there.
_preload(lambda: __file__.removesuffix("__init__.py"))

TYPE_CHECKING = False  # type checkers take it as true; typing itself would take a third of the import time
if TYPE_CHECKING:
    from typing import Any

    _core: Any  # native; its Python faces carry the types

    from weft import amp as amp
    from weft import checkpoint as checkpoint
    from weft import data as data
    from weft import distributed as distributed
    from weft import engine as engine
    from weft import fft as fft
    from weft import functional as functional
    from weft import interop as interop
    from weft import kvstore as kvstore
    from weft import linalg as linalg
    from weft import metrics as metrics
    from weft import models as models
    from weft import module as module
    from weft import operator as operator
    from weft import ops as ops
    from weft import optimizer as optimizer
    from weft import quantization as quantization
    from weft import random as random
    from weft import sparse as sparse
    from weft import storage as storage
    from weft import symbol as symbol
    from weft import testing as testing
    from weft import tools as tools
    from weft import utils as utils
    from weft.arrays.creation import *  # noqa: F403
    from weft.arrays.data_dependent import *  # noqa: F403
    from weft.arrays.serialization import *  # noqa: F403
    from weft.arrays.standard import *  # noqa: F403
    from weft.arrays.tensor import Tensor as Tensor
    from weft.arrays.tensor import shares_memory as shares_memory
    from weft.arrays.tensor import waitall as waitall
    from weft.base.device import Device as Device
    from weft.base.device import as_device as as_device
    from weft.base.device import cpu as cpu
    from weft.base.device import current_device as current_device
    from weft.base.device import gpu as gpu
    from weft.base.dtype import DType as DType
    from weft.base.dtype import as_dtype as as_dtype
    from weft.base.dtype import bfloat16 as bfloat16
    from weft.base.dtype import bool_ as bool  # noqa: F401
    from weft.base.dtype import complex64 as complex64
    from weft.base.dtype import complex128 as complex128
    from weft.base.dtype import float16 as float16
    from weft.base.dtype import float32 as float32
    from weft.base.dtype import float64 as float64
    from weft.base.dtype import int8 as int8
    from weft.base.dtype import int16 as int16
    from weft.base.dtype import int32 as int32
    from weft.base.dtype import int64 as int64
    from weft.base.dtype import uint8 as uint8
    from weft.base.dtype import uint16 as uint16
    from weft.base.dtype import uint32 as uint32
    from weft.base.dtype import uint64 as uint64
    from weft.base.errors import DeviceError as DeviceError
    from weft.base.errors import DTypeError as DTypeError
    from weft.base.errors import EngineError as EngineError
    from weft.base.errors import EngineErrorGroup as EngineErrorGroup
    from weft.base.errors import GraphError as GraphError
    from weft.base.errors import ShapeError as ShapeError
    from weft.base.structure import tree_leaves as tree_leaves
    from weft.base.structure import tree_map as tree_map
    from weft.control_flow import *  # noqa: F403
    from weft.functional import *  # type: ignore[no-redef,assignment]  # noqa: F403 - those of the same name come first
    from weft.gradients.gradient import *  # noqa: F403
    from weft.gradients.recomputation import recompute as recompute
    from weft.gradients.recovery import clear_errors as clear_errors
    from weft.gradients.transformation import Transformation as Transformation
    from weft.interop.weights import load as load
    from weft.ops.simple import simple_op as simple_op
    from weft.storage.devices import device as device
    from weft.traces.export import load_program as load_program
    from weft.traces.lazy import lazy as lazy
    from weft.traces.trace import TraceWarning as TraceWarning
    from weft.traces.trace import trace as trace
    from weft.transform.derivatives import *  # noqa: F403
    from weft.transform.vmap import vmap as vmap

    __version__: str

_MODULE_OF = {
    "weft.base.device": ("Device", "as_device", "cpu", "current_device", "gpu"),
    "weft.storage.devices": ("device",),
    "weft.base.dtype": (
        "DType",
        "as_dtype",
        "bfloat16",
        "complex64",
        "complex128",
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    "weft.base.errors": (
        "DTypeError",
        "DeviceError",
        "EngineError",
        "EngineErrorGroup",
        "GraphError",
        "ShapeError",
    ),
    "weft.base.structure": ("tree_leaves", "tree_map"),
    "weft.control_flow": ("associative_scan", "cond", "foreach", "while_loop"),
    "weft.arrays.creation": (
        "arange",
        "asarray",
        "empty",
        "empty_like",
        "eye",
        "from_dlpack",
        "full",
        "full_like",
        "linspace",
        "ones",
        "ones_like",
        "tensor",
        "zeros",
        "zeros_like",
    ),
    "weft.arrays.data_dependent": (
        "argwhere",
        "flatnonzero",
        "masked_select",
        "nonzero",
        "repeat",
        "unique_all",
        "unique_counts",
        "unique_inverse",
        "unique_values",
    ),
    "weft.transform.derivatives": ("hessian", "jacobian", "jvp", "linearize", "vjp"),
    "weft.transform.vmap": ("vmap",),
    "weft.gradients.gradient": ("Function", "GradManager", "grad", "no_grad", "value_and_grad"),
    "weft.gradients.recomputation": ("recompute",),
    "weft.traces.export": ("load_program",),
    "weft.traces.lazy": ("lazy",),
    "weft.arrays.serialization": ("FileFormatError", "load_metadata", "save"),
    "weft.interop.weights": ("load",),
    "weft.arrays.standard": (
        "__array_api_version__",
        "__array_namespace_info__",
        "astype",
        "broadcast_shapes",
        "can_cast",
        "diff",
        "e",
        "finfo",
        "iinfo",
        "inf",
        "isdtype",
        "isin",
        "nan",
        "newaxis",
        "pi",
        "result_type",
    ),
    "weft.gradients.recovery": ("clear_errors",),
    "weft.arrays.tensor": ("Tensor", "shares_memory", "waitall"),
    "weft.traces.trace": ("TraceWarning", "trace"),
    "weft.gradients.transformation": ("Transformation",),
    "weft.ops.simple": ("simple_op",),
}
_LAZY = {name: module for module, names in _MODULE_OF.items() for name in names}
_SUBPACKAGES = (
    "amp",
    "checkpoint",
    "data",
    "distributed",
    "engine",
    "fft",
    "functional",
    "interop",
    "kvstore",
    "linalg",
    "metrics",
    "models",
    "module",
    "operator",
    "ops",
    "optimizer",
    "quantization",
    "random",
    "sparse",
    "storage",
    "symbol",
    "testing",
    "tools",
    "utils",
)

__all__ = sorted([*_LAZY, *_SUBPACKAGES, "bool"])


if not TYPE_CHECKING:  # with it, a type checker would believe in every name

    def __getattr__(name: str) -> object:
        if name in _LAZY:
            value = getattr(importlib.import_module(_LAZY[name]), name)
        elif name == "bool":  # the array API's name; in its own module it would hide Python's
            value = importlib.import_module("weft.base.dtype").bool_
        elif name in _SUBPACKAGES:
            value = importlib.import_module(f"weft.{name}")
        elif name == "__version__":
            value = importlib.import_module("importlib.metadata").version("weft")
        elif name.startswith("_"):  # `from weft import _core` reads an attribute before it imports the module
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        elif name in (functions := importlib.import_module("weft.functional")).__dir__():
            value = getattr(functions, name)
            if not functions.is_kept(name):
                return value  # a user's, who may make it again
        else:
            name_hints = importlib.import_module("weft.base.name_hints")
            raise name_hints.missing("weft", name, __dir__) from None
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__, *importlib.import_module("weft.functional").__dir__(), "__version__"})
