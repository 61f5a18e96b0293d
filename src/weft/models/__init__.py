"""Models to read, to train and to measure: each is one short file of modules, and a frozen value says how large it is.

>>> import weft as wf
>>> from weft import models
>>> net = models.GPT(models.GPTConfig(layers=2, width=16, heads=2, vocabulary=50, context=8))
>>> net(wf.zeros((1, 5), dtype="int64")).shape
(1, 5, 50)
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.models.gpt import GPT as GPT
from weft.models.gpt import Cache as Cache
from weft.models.gpt import GPTConfig as GPTConfig
from weft.models.lstm import LSTMLanguageModel as LSTMLanguageModel
from weft.models.mlp import MLP as MLP
from weft.models.mobilenet import MobileNetV2 as MobileNetV2
from weft.models.mobilenet import MobileNetV2Config as MobileNetV2Config
from weft.models.mobilenet import mobilenet_v2 as mobilenet_v2
from weft.models.resnet import ResNet as ResNet
from weft.models.resnet import ResNetConfig as ResNetConfig
from weft.models.resnet import resnet18 as resnet18
from weft.models.resnet import resnet34 as resnet34
from weft.models.resnet import resnet50 as resnet50
from weft.models.resnet import resnet101 as resnet101
from weft.models.resnet import resnet152 as resnet152

_add_hints(globals())
