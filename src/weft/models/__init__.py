"""Models to read, to train and to measure: short files of modules, and frozen values that say how large they are.

>>> import weft as wf
>>> from weft import models
>>> net = models.GPT(models.GPTConfig(layers=2, width=16, heads=2, vocabulary=50, context=8))
>>> net(wf.zeros((1, 5), dtype="int64")).shape
(1, 5, 50)
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.models.bert import *  # noqa: F403
from weft.models.classic import *  # noqa: F403
from weft.models.convnext import *  # noqa: F403
from weft.models.densenet import *  # noqa: F403
from weft.models.efficientnet import *  # noqa: F403
from weft.models.generation import *  # noqa: F403
from weft.models.generative import *  # noqa: F403
from weft.models.gpt import *  # noqa: F403
from weft.models.gpt2 import *  # noqa: F403
from weft.models.inception import *  # noqa: F403
from weft.models.llama import *  # noqa: F403
from weft.models.lstm import *  # noqa: F403
from weft.models.mlp import *  # noqa: F403
from weft.models.mobilenet import *  # noqa: F403
from weft.models.pretrained import *  # noqa: F403
from weft.models.resnet import *  # noqa: F403
from weft.models.resnet_v2 import *  # noqa: F403
from weft.models.shufflenet import *  # noqa: F403
from weft.models.squeezenet import *  # noqa: F403
from weft.models.ssd import *  # noqa: F403
from weft.models.swin import *  # noqa: F403
from weft.models.translation import *  # noqa: F403
from weft.models.unet import *  # noqa: F403
from weft.models.vit import *  # noqa: F403

_add_hints(globals())
