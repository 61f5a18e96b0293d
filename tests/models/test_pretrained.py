"""from_pretrained: folders made by hand each day, and those that transformers writes where it is installed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft as wf
from weft import models

from . import packages
from .small import BERT, GPT2, LLAMA, VIT

RESNET = {"embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 2]}
FOLDERS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama-tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**LLAMA, "tie_word_embeddings": True, "attention_bias": True},
    ),
    "llama-3": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "bert": ("BertModel", "BertConfig", BERT),
    "bert-masked": ("BertForMaskedLM", "BertConfig", BERT),
    "bert-both": ("BertForPreTraining", "BertConfig", BERT),
    "vit": ("ViTForImageClassification", "ViTConfig", {**VIT, "num_labels": 5}),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {**RESNET, "num_labels": 5}),
    "resnet-basic": (
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 32], "depths": [1, 2, 1], "layer_type": "basic"},
    ),
}


def write(folder, architecture, fields, weights, name="model.safetensors"):
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **fields}))
    if weights is not None:
        wf.save(str(folder / name), weights)
    return folder


def gpt2_folder(folder, change=lambda weights: weights, **fields):
    net = models.GPT2(models.GPT2Config(**GPT2)).eval()
    write(folder, "GPT2LMHeadModel", {**GPT2, **fields}, change(net.state_dict()))
    return net


@pytest.mark.full
@pytest.mark.parametrize("name", FOLDERS)
def test_folders_of_transformers(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = packages.transformers()
    architecture, configuration, sizes = FOLDERS[name]
    torch.manual_seed(0)
    theirs = getattr(transformers, architecture)(getattr(transformers, configuration)(**sizes)).eval()
    with torch.no_grad():
        for x in theirs.state_dict().values():
            if x.is_floating_point():  # none is a constant, and variances stay positive
                x.copy_(torch.rand_like(x) * 0.2 + 0.9 if x.ndim < 2 else torch.randn_like(x) * 0.2)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    ours = models.from_pretrained(tmp_path)
    rng = np.random.default_rng(0)
    if configuration in ("ViTConfig", "ResNetConfig"):
        x = rng.standard_normal((2, 3, 16, 16)).astype(np.float32)
        expected = theirs(torch.from_numpy(x)).logits
    else:
        x = rng.integers(0, 50, (2, 9))
        expected = theirs(torch.from_numpy(x))
        expected = expected.prediction_logits if name == "bert-both" else expected[0]
    y = ours(wf.asarray(x))
    y = y[0] if isinstance(y, tuple) else y
    expected = expected.detach().numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=2e-4, atol=2e-4 * abs(expected).max())


def test_a_folder_by_hand(tmp_path):
    net = gpt2_folder(tmp_path)
    tokens = wf.tensor([[3, 1, 4]])
    same = models.from_pretrained(tmp_path)
    assert not same.training
    assert same(tokens).tolist() == net(tokens).tolist()
    half = models.from_pretrained(str(tmp_path), dtype="bfloat16", device="cpu")
    assert {x.dtype.name for x in half.parameters()} == {"bfloat16"}
    wf.save(
        str(tmp_path / "model.safetensors"), {k: x.astype("float16") for k, x in net.state_dict().items()}
    )
    assert {x.dtype.name for x in models.from_pretrained(tmp_path).parameters()} == {"float16"}


def test_names_without_the_prefix(tmp_path):
    def bare(weights):
        names = {name: name.removeprefix("transformer.") for name in weights if name != "lm_head.weight"}
        return {**{new: weights[old] for old, new in names.items()}, "h.0.attn.bias": wf.ones((1, 1, 16, 16))}

    net = gpt2_folder(tmp_path, bare)
    tokens = wf.tensor([[3, 1, 4]])
    assert models.from_pretrained(tmp_path)(tokens).tolist() == net(tokens).tolist()


def test_resnet_by_hand(tmp_path):
    net = models.ResNet(models.ResNetConfig((1, 2), True, 8, 3, 2)).eval()
    names = {}
    for name in net.state_dict():
        head, _, rest = name.partition(".")
        if head in ("conv1", "bn1"):
            names[name] = (
                f"resnet.embedder.embedder.{'convolution' if head == 'conv1' else 'normalization'}.{rest}"
            )
        elif head == "fc":
            names[name] = f"classifier.1.{rest}"
        else:
            layer, part, rest = rest.split(".", 2)
            if part == "downsample":
                k, rest = rest.split(".", 1)
                part = f"shortcut.{'convolution' if k == '0' else 'normalization'}"
            else:
                kind = "convolution" if part.startswith("conv") else "normalization"
                part = f"layer.{int(part[-1]) - 1}.{kind}"
            names[name] = f"resnet.encoder.stages.{int(head[-1]) - 1}.layers.{layer}.{part}.{rest}"
    weights = {names[name]: x for name, x in net.state_dict().items()}
    write(tmp_path, "ResNetForImageClassification", RESNET, weights)
    x = wf.random.normal(0, 1, (1, 3, 16, 16))
    assert models.from_pretrained(tmp_path)(x).tolist() == net(x).tolist()


def without(name):
    return lambda weights: {k: x for k, x in weights.items() if k != name}


@pytest.mark.parametrize(
    ("change", "fields", "options", "message"),
    [
        (without("transformer.ln_f.bias"), {}, {}, "missing: transformer.ln_f.bias"),
        (lambda w: {**w, "transformer.more": wf.ones(2)}, {}, {}, "unexpected: transformer.more"),
        (
            lambda w: {**w, "transformer.ln_f.bias": wf.ones(2)},
            {},
            {},
            r"another shape: transformer.ln_f.bias is f32\[2",
        ),
        (lambda w: {**w, "ln_f.bias": wf.ones(16)}, {}, {}, "there twice"),
        (
            dict,
            {"activation_function": "relu"},
            {},
            "activation_function='relu' is not supported, only 'gelu_new'",
        ),
        (dict, {"n_head": 3}, {}, "n_embd=16 must be divisible by n_head=3"),
        (dict, {"n_head": "many"}, {}, "config.json"),
        (dict, {"architectures": ["OPTForCausalLM"]}, {}, "OPTForCausalLM.*only one of Llama"),
        (dict, {"architectures": None}, {}, "architectures=None"),
        (dict, {"quantization_config": {"bits": 4}}, {}, "quantization_config"),
        (dict, {}, {"ignore": ["nothing.*"]}, "'nothing.*' is no weight"),
    ],
)
def test_refusals(change, fields, options, message, tmp_path):
    gpt2_folder(tmp_path, change, **fields)
    with pytest.raises(ValueError, match=message):
        models.from_pretrained(tmp_path, **options)


def test_more_refusals(tmp_path):
    rope = {"rope_parameters": {"rope_type": "yarn"}}
    for architecture, fields, message in (
        ("LlamaForCausalLM", {**LLAMA, **rope}, "rope_type='yarn'"),
        (
            "LlamaForCausalLM",
            {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_type='linear'",
        ),
        (
            "LlamaForCausalLM",
            {**LLAMA, "rope_parameters": {"rope_type": "llama3"}},
            "llama3 without 'factor'",
        ),
        ("ResNetForImageClassification", {**RESNET, "hidden_sizes": [32, 48]}, "48"),
        (
            "ResNetForImageClassification",
            {**RESNET, "downsample_in_bottleneck": True},
            "downsample_in_bottleneck=True",
        ),
        ("BertModel", {**BERT, "position_embedding_type": "relative_key"}, "relative_key"),
    ):
        write(tmp_path, architecture, fields, {"x": wf.ones(1)})
        with pytest.raises(ValueError, match=message):
            models.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        models.from_pretrained(tmp_path / "none")
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ValueError, match="not JSON"):
        models.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    write(tmp_path, "BertModel", BERT, None)
    with pytest.raises(FileNotFoundError, match=r"no weights, none of model\.safetensors"):
        models.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("LlamaForCausalLM", {**LLAMA, "vocab_size": 10**12}),
        ("LlamaForCausalLM", {**LLAMA, "num_hidden_layers": 10**9}),
        ("LlamaForCausalLM", {**LLAMA, "intermediate_size": 10**30}),
        ("LlamaForCausalLM", {**LLAMA, "hidden_size": -16}),
        ("GPT2LMHeadModel", {**GPT2, "n_positions": 10**12}),
        ("BertModel", {**BERT, "max_position_embeddings": 10**12}),
        ("ViTForImageClassification", {**VIT, "image_size": 10**8}),
        ("ResNetForImageClassification", {**RESNET, "num_channels": 10**12}),
    ],
)
def test_a_configuration_of_more_than_the_file_has(architecture, fields, tmp_path):
    write(tmp_path, architecture, fields, {"x": wf.ones(1)})
    with pytest.raises(wf.FileFormatError, match=r"config\.json.*no network of this configuration fits"):
        models.from_pretrained(tmp_path)


def test_left_out_weights(tmp_path):
    net = gpt2_folder(
        tmp_path, lambda weights: {**weights, "score.weight": wf.ones(2), "score.bias": wf.ones(2)}
    )
    tokens = wf.tensor([[3, 1, 4]])
    assert models.from_pretrained(tmp_path, ignore=["score.*"])(tokens).tolist() == net(tokens).tolist()
