"""Networks and arrays of Apache MXNet: read as symbols and tensors, and written.

>>> import weft as wf
>>> "SoftmaxOutput" in wf.interop.mxnet.operators()
True
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.interop.mxnet.saving import dumps as dumps
from weft.interop.mxnet.saving import save as save
from weft.interop.mxnet.symbols import Network as Network
from weft.interop.mxnet.symbols import load as load
from weft.interop.mxnet.symbols import loads as loads
from weft.interop.mxnet.symbols import operators as operators
from weft.interop.mxnet_params import save_params as save_params
from weft.interop.mxnet_states import OptimizerStates as OptimizerStates
from weft.interop.mxnet_states import load_states as load_states
from weft.interop.mxnet_states import restore as restore

_add_hints(globals())
