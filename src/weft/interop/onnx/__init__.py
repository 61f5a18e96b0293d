"""Models of ONNX: read as modules. Reading needs the package onnx, which the extra weft[onnx] installs."""

from weft.base.name_hints import add_hints as _add_hints
from weft.interop.onnx.export_model import export as export
from weft.interop.onnx.network import Network as Network
from weft.interop.onnx.network import load as load
from weft.interop.onnx.network import operators as operators

_add_hints(globals())
