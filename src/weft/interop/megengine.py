"""Files of MegEngine: parameters that megengine.save wrote, which are pickles of NumPy's arrays and its own tensors.

Traced networks (.mge, .tm), whose operators are numbered or named by a version of MegEngine, are refused by name.
Source: MegEngine 1.13, megengine.serialization (a pickle of protocol 4), and Tensor.__getnewargs__: the elements, dtype
and device; serializer_oss.cpp and schema_v2.fbs for how dumped graphs begin.
"""

from __future__ import annotations

import numpy as np

from weft.base.typing import Any
from weft.interop.numpy_files import NAMES as NUMPY_NAMES
from weft.interop.numpy_files import PickledArray
from weft.interop.pickled import Rebuilt, read_pickle, replaced
from weft.interop.source import FileFormatError, FileSource

__all__ = ["GRAPH", "GRAPH_2", "read_pickled", "refuse_graph"]

GRAPH = b"MGBS\0\0\0\0"  # a dumped graph, which begins so
GRAPH_2 = b"mgv2"  # one of the second version: a FlatBuffers identifier, behind an offset, or a length and an offset
PARAMETERS = (
    "save net.state_dict() with megengine.save, which weft.load reads, and write the network as a weft module"
)
MODULES = ("megengine.traced_module.", "megengine.module.")


class PickledTensor(Rebuilt):
    """megengine.Tensor in a pickle; parameters of quantization, which its state may have, are refused."""

    def __init__(self, elements: Any, *_: Any) -> None:
        if not isinstance(elements, PickledArray | int | float):
            raise ValueError("a tensor without elements")
        self.elements = elements

    def set_state(self, state: Any) -> None:
        if not isinstance(state, dict) or state.get("qparams") is not None:
            raise ValueError("a tensor with parameters of quantization")


NAMES: dict[str, Any] = {
    **NUMPY_NAMES,
    "megengine.tensor.Tensor": PickledTensor,
    "megengine.tensor.Parameter": PickledTensor,
}


def refuse_graph(source: FileSource) -> Any:
    """Raises FileFormatError for the dump of a traced function: only MegEngine runs it."""
    raise source.fail(f"a graph that megengine.jit.trace dumped, which weft does not read; {PARAMETERS}")


def read_pickled(source: FileSource) -> Any:
    """The object of a pickle, with tensors for the arrays and tensors in it."""
    try:
        value, end = read_pickle(source.view(), source.where, NAMES)
    except FileFormatError as error:
        if any(f"refers to '{module}" in str(error) for module in MODULES):
            raise FileFormatError(
                f"{error}: a module of MegEngine, which weft does not read; {PARAMETERS}"
            ) from None
        raise
    if end != source.size_bytes:
        raise source.fail(f"{source.size_bytes - end} bytes behind the pickle, at byte {end}")

    def tensor(part: Rebuilt) -> Any:
        elements: Any = part.elements if isinstance(part, PickledTensor) else part
        if isinstance(elements, int | float):
            array = np.array(elements, np.float32)
        elif isinstance(elements, PickledArray):
            array = elements.array(source)
        else:
            raise source.fail(f"holds {type(part).__name__} itself")
        return source.tensor_of(array, array.dtype.name, "an array")

    return replaced(value, tensor, source.where)
