"""With the same weights the models compute what the definitions of torchvision, timm and transformers do, in float64.

Names and shapes of their states are the same, too. Where a package is missing, its models are skipped.
"""

import importlib
import re

import numpy as np
import pytest

import weft as wf
from weft import models

from .packages import timm, torchvision, transformers
from .small import BERT, GPT2, LLAMA, SMALL, VIT

pytestmark = pytest.mark.full
IMAGE = (2, 3, 64, 64)


def vision(make):
    return lambda: make(torchvision().models)


def of_timm(name, **sizes):
    return lambda: timm().create_model(name, num_classes=10, **sizes)


def text(architecture, configuration, **sizes):
    def build():
        config = getattr(transformers(), configuration)(**sizes)
        config._attn_implementation = "eager"
        return getattr(transformers(), architecture)(config)

    return build


def mobilenet_v3(tv):
    rows = tv.mobilenetv3._mobilenet_v3_conf("mobilenet_v3_large", width_mult=0.25)[0]
    return tv.MobileNetV3(rows, 16, num_classes=10)


def convnext(tv):
    block = tv.convnext.CNBlockConfig
    return tv.ConvNeXt([block(8, 16, 1), block(16, None, 2)], layer_scale=0.5, num_classes=10)


def efficientnet_b5(tv):
    return tv.efficientnet_b5(num_classes=10)


LLAMA_3 = {
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
# The other's definition; ours, by its name in SMALL or made here; the shape of images, None for text.
PAIRS = {
    "alexnet": (vision(lambda tv: tv.alexnet(num_classes=10)), lambda: models.AlexNet(10), (2, 3, 70, 63)),
    "vgg": (
        vision(lambda tv: tv.vgg11_bn(num_classes=10)),
        lambda: models.vgg11(10, norm=True),
        (1, 3, 40, 33),
    ),
    "squeezenet-1.0": (vision(lambda tv: tv.squeezenet1_0(num_classes=10)), None, (2, 3, 45, 60)),
    "squeezenet-1.1": (vision(lambda tv: tv.squeezenet1_1(num_classes=10)), None, (2, 3, 45, 60)),
    "densenet": (vision(lambda tv: tv.DenseNet(4, (2, 3), 8, num_classes=10)), None, IMAGE),
    "resnet": (
        vision(lambda tv: tv.resnet18(num_classes=10)),
        lambda: models.resnet18(10),
        (2, 3, 65, 50),
    ),
    "mobilenet-v2": (vision(lambda tv: tv.mobilenet_v2(width_mult=0.25, num_classes=10)), None, IMAGE),
    "mobilenet-v3": (vision(mobilenet_v3), None, IMAGE),
    "mobilenet-v3-small": (
        vision(lambda tv: tv.mobilenet_v3_small(num_classes=10)),
        lambda: models.mobilenet_v3_small(10),
        (2, 3, 33, 47),
    ),
    "shufflenet": (
        vision(lambda tv: tv.ShuffleNetV2([2, 3, 2], [8, 16, 32, 64, 64], num_classes=10)),
        None,
        IMAGE,
    ),
    "efficientnet": (
        vision(lambda tv: tv.efficientnet_b1(num_classes=10)),
        lambda: models.efficientnet_b(1, 10),
        (1, 3, 45, 64),
    ),
    "efficientnet-5": (
        vision(efficientnet_b5),
        lambda: models.efficientnet_b(5, 10),
        (1, 3, 33, 33),
    ),
    "convnext": (vision(convnext), None, (2, 3, 40, 32)),
    "swin": (
        vision(lambda tv: tv.SwinTransformer([4, 4], 8, [1, 2], [2, 4], [3, 3], num_classes=10)),
        None,
        (2, 3, 44, 28),
    ),
    "swin-small": (  # one axis is a window
        vision(lambda tv: tv.SwinTransformer([4, 4], 8, [2, 2], [2, 4], [4, 4], num_classes=10)),
        lambda: models.Swin(models.SwinConfig((2, 2), (2, 4), 8, window=4, classes=10)),
        (2, 3, 16, 60),
    ),
    "inception": (
        vision(lambda tv: tv.inception_v3(num_classes=10, init_weights=False)),
        lambda: models.InceptionV3(10),
        (1, 3, 80, 75),
    ),
    "timm-resnet-18": (of_timm("resnet18"), lambda: models.resnet18(10), (2, 3, 65, 50)),
    "timm-resnet-50": (of_timm("resnet50"), lambda: models.resnet50(10), (1, 3, 64, 64)),
    "timm-densenet": (of_timm("densenet121"), lambda: models.densenet121(10), (1, 3, 64, 64)),
    "timm-vit": (
        of_timm("vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3),
        lambda: models.ViT(models.ViTConfig(24, 2, 3, 96, 16, 4, num_labels=10, layer_norm_eps=1e-6)),
        (2, 3, 16, 16),
    ),
    "llama": (text("LlamaForCausalLM", "LlamaConfig", **LLAMA), None, None),
    "llama-3": (
        text("LlamaForCausalLM", "LlamaConfig", **LLAMA, rope_parameters=LLAMA_3, tie_word_embeddings=True),
        None,
        None,
    ),
    "gpt2": (text("GPT2LMHeadModel", "GPT2Config", **GPT2), None, None),
    "bert": (text("BertModel", "BertConfig", **BERT), None, None),
    "bert-masked": (text("BertForMaskedLM", "BertConfig", **BERT), None, None),
    "vit": (text("ViTForImageClassification", "ViTConfig", **VIT, num_labels=10), None, (2, 3, 16, 16)),
}
FLOAT32 = {"llama", "llama-3", "vit"}  # cosines of positions, or softmax, are computed in float32 there


def random_state(state):
    """Values for a state, so that nothing is near 0 and no normalization divides by little."""
    rng, values = np.random.default_rng(0), {}
    for name, x in state.items():
        shape = tuple(x.shape)
        if not x.is_floating_point():
            continue
        if name.endswith("running_var"):
            values[name] = rng.uniform(0.5, 2.0, shape)
        elif len(shape) > 1:
            values[name] = rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1)) * 1.4
        else:
            values[name] = rng.uniform(-0.3, 0.3, shape) + name.endswith("weight")
    return values


# What transformers 5 calls the parts of a ViT in memory, and what they are called in its files, as they were before.
VIT_NAMES = {
    r"^vit\.layers": "vit.encoder.layer",
    r"attention\.([qkv])_proj": lambda match: f"attention.attention.{VECTORS[match[1]]}",
    r"attention\.o_proj": "attention.output.dense",
    r"mlp\.fc1": "intermediate.dense",
    r"mlp\.fc2": "output.dense",
}
VECTORS = {"q": "query", "k": "key", "v": "value"}


# What timm calls the parts of a ViT; its queries, keys and values are one matrix.
TIMM_VIT_NAMES = {
    r"^cls_token": "vit.embeddings.cls_token",
    r"^pos_embed": "vit.embeddings.position_embeddings",
    r"^patch_embed\.proj": "vit.embeddings.patch_embeddings.projection",
    r"^blocks\.(\d+)": r"vit.encoder.layer.\1",
    r"norm1": "layernorm_before",
    r"norm2": "layernorm_after",
    r"attn\.proj": "attention.output.dense",
    r"mlp\.fc1": "intermediate.dense",
    r"mlp\.fc2": "output.dense",
    r"^norm\.": "vit.layernorm.",
    r"^head\.": "classifier.",
}


def timm_vit_state(state):
    found = {}
    for name, x in state.items():
        for pattern, replacement in TIMM_VIT_NAMES.items():
            name = re.sub(pattern, replacement, name)
        if "attn.qkv" not in name:
            found[name] = x
            continue
        for word, part in zip(VECTORS.values(), np.split(x, 3), strict=True):
            found[name.replace("attn.qkv", f"attention.attention.{word}")] = part
    return found


def saved_name(name):
    if name.startswith("vit."):
        for pattern, replacement in VIT_NAMES.items():
            name = re.sub(pattern, replacement, name)
    return name


def first(y):
    if isinstance(y, tuple):
        return y[0]
    for name in ("logits", "last_hidden_state"):
        if hasattr(y, name):
            return getattr(y, name)
    return y


@pytest.mark.parametrize("name", PAIRS)
def test_same_names_and_results(name):
    torch = pytest.importorskip("torch")
    build, make, shape = PAIRS[name]
    other = build().double().eval()
    state = random_state(other.state_dict())
    own = (SMALL[name].build if make is None else make)().astype("float64").eval()
    with torch.no_grad():
        for key, x in other.state_dict().items():
            if key in state:
                x.copy_(torch.from_numpy(state[key]))
    given = {saved_name(key): x.numpy() for key, x in other.state_dict().items()}
    own.load_state_dict(timm_vit_state(given) if name == "timm-vit" else given)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 50, (2, 7)) if shape is None else rng.standard_normal(shape)
    with torch.no_grad():
        expected = first(other(torch.from_numpy(x))).numpy()
    y = first(own(wf.tensor(x))).numpy()
    assert abs(expected).max() > 1e-3
    tolerance = 1e-4 if name in FLOAT32 else 1e-9
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance * abs(expected).max())


def test_ssd():
    """Scores, offsets and anchors are torchvision's. It has no definition of another width, so this is in float32."""
    detection = torchvision().models.detection
    torch = pytest.importorskip("torch")
    other = detection.ssd300_vgg16(weights=None, weights_backbone=None).eval()
    own = models.ssd300().eval()
    state = random_state(other.state_dict())
    with torch.no_grad():
        for key, x in other.state_dict().items():
            x.copy_(torch.from_numpy(state[key]))
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    x = np.random.default_rng(1).standard_normal((1, 3, 300, 300), dtype="float32")
    with torch.no_grad():
        maps = list(other.backbone(torch.from_numpy(x)).values())
        head = other.head(maps)
        images = importlib.import_module("torchvision.models.detection.image_list").ImageList
        (anchors,) = other.anchor_generator(images(torch.from_numpy(x), [(300, 300)]), maps)
    scores, offsets, boxes = (y.numpy() for y in own(wf.tensor(x)))
    for y, expected in ((scores, head["cls_logits"]), (offsets, head["bbox_regression"])):
        expected = expected.numpy()
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-5 * abs(expected).max())
    np.testing.assert_allclose(boxes * 300, anchors.numpy(), rtol=1e-6, atol=1e-4)
