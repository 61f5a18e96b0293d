"""Layers and models: Module, Parameter, the layers, and initial values in `init`.

>>> import weft as wf
>>> import weft.module as M
>>> net = M.Sequential(M.Conv2d(1, 4, 3), M.ReLU(), M.Flatten(), M.Linear(4 * 6 * 6, 10))
>>> net(wf.zeros((2, 1, 8, 8))).shape
(2, 10)
"""

from weft.module import init as init
from weft.module.adaptive_softmax import *  # noqa: F403
from weft.module.attention import *  # noqa: F403
from weft.module.cells import *  # noqa: F403
from weft.module.container import *  # noqa: F403
from weft.module.conv_recurrent import *  # noqa: F403
from weft.module.convolution import *  # noqa: F403
from weft.module.functions import *  # noqa: F403
from weft.module.images import *  # noqa: F403
from weft.module.lazy import *  # noqa: F403
from weft.module.linear import Bilinear as Bilinear
from weft.module.linear import Embedding as Embedding
from weft.module.linear import EmbeddingBag as EmbeddingBag
from weft.module.linear import Linear as Linear
from weft.module.lists import *  # noqa: F403
from weft.module.losses import *  # noqa: F403
from weft.module.module import Handle as Handle
from weft.module.module import Module as Module
from weft.module.module import Parameter as Parameter
from weft.module.normalization import *  # noqa: F403
from weft.module.of_symbol import SymbolModule as SymbolModule
from weft.module.padding import *  # noqa: F403
from weft.module.parametrization import *  # noqa: F403
from weft.module.recurrent import *  # noqa: F403
from weft.module.transformer import *  # noqa: F403


def __getattr__(name: str) -> object:
    from weft.base.name_hints import missing

    raise missing(__name__, name, lambda: list(globals()))
