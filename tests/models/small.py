"""Every model of weft.models at a small size, with an input, and the definition of it that others have published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from weft import models

LLAMA = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
GPT2 = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 4}
BERT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 4,
}
SCALED = models.RopeScaling(4.0, 1.0, 4.0, 32)


class Small(NamedTuple):
    """build: makes the model; inputs: a shape of floats, or of tokens below 50 where is_text; outputs: the result's."""

    build: Callable[[], Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_text: bool = False


IMAGE = (2, 3, 32, 32)
TEXT = (2, 7)
SMALL = {
    "llama": Small(lambda: models.Llama(models.LlamaConfig(**LLAMA)), TEXT, (2, 7, 50), True),
    "llama-3": Small(
        lambda: models.Llama(
            models.LlamaConfig(**LLAMA, rope_theta=500.0, rope_scaling=SCALED, tie_word_embeddings=True)
        ),
        TEXT,
        (2, 7, 50),
        True,
    ),
    "gpt2": Small(lambda: models.GPT2(models.GPT2Config(**GPT2)), TEXT, (2, 7, 50), True),
    "bert": Small(lambda: models.Bert(models.BertConfig(**BERT)), TEXT, (2, 7, 16), True),
    "bert-masked": Small(lambda: models.BertForMaskedLM(models.BertConfig(**BERT)), TEXT, (2, 7, 50), True),
    "vit": Small(lambda: models.ViT(models.ViTConfig(**VIT, num_labels=10)), (2, 3, 16, 16), (2, 10)),
    "lenet": Small(models.LeNet, (2, 1, 28, 28), (2, 10)),
    "vgg": Small(lambda: models.VGG((1, 2), 10, norm=True, width=4, hidden=16), IMAGE, (2, 10)),
    "squeezenet-1.0": Small(lambda: models.squeezenet1_0(10), (2, 3, 33, 33), (2, 10)),
    "squeezenet-1.1": Small(lambda: models.squeezenet1_1(10), (2, 3, 33, 33), (2, 10)),
    "resnet": Small(lambda: models.ResNet(models.ResNetConfig((1, 2), width=8, classes=10)), IMAGE, (2, 10)),
    "resnet-v2": Small(
        lambda: models.ResNetV2(models.ResNetConfig((1, 2), width=8, classes=10)), IMAGE, (2, 10)
    ),
    "resnet-v2-basic": Small(
        lambda: models.ResNetV2(models.ResNetConfig((2, 1), False, width=8, classes=10)), IMAGE, (2, 10)
    ),
    "densenet": Small(
        lambda: models.DenseNet(models.DenseNetConfig(4, (2, 3), 8, classes=10)), IMAGE, (2, 10)
    ),
    "mobilenet-v1": Small(lambda: models.MobileNetV1(0.125, 10), IMAGE, (2, 10)),
    "mobilenet-v2": Small(
        lambda: models.MobileNetV2(models.MobileNetV2Config(width=0.25, classes=10)), IMAGE, (2, 10)
    ),
    "mobilenet-v3": Small(
        lambda: models.MobileNetV3(models.MobileNetV3Config(width=0.25, hidden=16, classes=10)),
        IMAGE,
        (2, 10),
    ),
    "shufflenet": Small(lambda: models.ShuffleNetV2((2, 3, 2), (8, 16, 32, 64, 64), 10), IMAGE, (2, 10)),
    "efficientnet": Small(
        lambda: models.EfficientNet(models.EfficientNetConfig(width=0.25, classes=10)), IMAGE, (2, 10)
    ),
    "convnext": Small(
        lambda: models.ConvNeXt(models.ConvNeXtConfig((1, 2), (8, 16), 10, layer_scale=0.5)), IMAGE, (2, 10)
    ),
    "swin": Small(
        lambda: models.Swin(models.SwinConfig((1, 2), (2, 4), 8, window=3, classes=10)),
        (2, 3, 44, 32),
        (2, 10),
    ),
    "unet": Small(lambda: models.UNet(3, 2, (4, 8, 16)), (2, 3, 30, 21), (2, 2, 30, 21)),
    "ssd": Small(lambda: models.SSD(2, width=2), (1, 3, 300, 300), (1, 8732, 3)),
    "vae": Small(lambda: models.VAE(12, 8, 2), (2, 12), (2, 12)),
    "generator": Small(lambda: models.Generator(4, 4, 3, 16), (2, 4), (2, 3, 16, 16)),
    "critic": Small(lambda: models.Critic(4, 3, 16), (2, 3, 16, 16), (2,)),
}
