"""from_pretrained: the networks of this package with the configuration and the weights of a folder of transformers."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.arrays.serialization import FileFormatError
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.interop.weights import load
from weft.models.bert import Bert, BertConfig, BertForMaskedLM
from weft.models.gpt2 import GPT2, GPT2Config
from weft.models.llama import Llama, LlamaConfig, RopeScaling
from weft.models.resnet import Basic, Bottleneck, ResNet, ResNetConfig
from weft.models.vit import ViT, ViTConfig
from weft.module import Module, init

__all__ = ["from_pretrained"]

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
MAX_CONFIG_BYTES = 10_000_000


class Fields:
    """The fields of a config.json. Raises FileFormatError, a ValueError, for a value that the network does not have."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
        try:
            values = json.loads(text) if len(text) <= MAX_CONFIG_BYTES else None
        except (ValueError, RecursionError) as error:
            raise self.fail(f"not JSON: {error}") from None
        if not isinstance(values, dict):
            raise self.fail(f"not a JSON object of at most {MAX_CONFIG_BYTES} bytes")
        self.values: dict[str, Any] = values

    def fail(self, fact: str) -> FileFormatError:
        """The error to raise."""
        return FileFormatError(f"from_pretrained: {self.path!r}: {fact}")

    def require(self, **accepted: Any) -> None:
        """Raises FileFormatError if a field has another value than these; the first one is that of a missing field."""
        for name, choices in accepted.items():
            choices = choices if isinstance(choices, tuple) else (choices,)
            value = self.values.get(name, choices[0])
            if value not in choices:
                raise self.fail(f"{name}={value!r} is not supported, only {' or '.join(map(repr, choices))}")

    def of(self, cls: type, **others: Any) -> Any:
        """A configuration of the fields that have the same names there, and others.

        null is the default, unless it is a value of the configuration's own.
        """
        same = {f.name: self.values[f.name] for f in dataclasses.fields(cls) if f.name in self.values}
        nullable = {f.name for f in dataclasses.fields(cls) if "None" in str(f.type)}
        same = {name: x for name, x in same.items() if x is not None or name in nullable}
        try:
            return cls(**same | others)
        except (TypeError, ValueError, AttributeError) as error:
            raise self.fail(str(error)) from None

    def labels(self) -> int:
        """The number of classes."""
        names = self.values.get("id2label")
        return len(names) if isinstance(names, dict) else int(self.values.get("num_labels") or 2)


def llama(fields: Fields, names: Iterable[str]) -> Module:
    fields.require(hidden_act="silu")
    rope = dict(fields.values.get("rope_scaling") or {}) | dict(fields.values.get("rope_parameters") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    scaling = None
    if kind == "llama3":
        try:
            scaling = RopeScaling(**{f.name: rope[f.name] for f in dataclasses.fields(RopeScaling)})
        except KeyError as error:
            raise fields.fail(f"rope_parameters of llama3 without {error}") from None
    elif kind != "default":
        raise fields.fail(f"rope_type={kind!r} is not supported, only 'default' or 'llama3'")
    if rope.get("partial_rotary_factor", fields.values.get("partial_rotary_factor", 1.0)) != 1.0:
        raise fields.fail("partial_rotary_factor is not supported unless it is 1")
    base = float(rope.get("rope_theta", fields.values.get("rope_theta", LlamaConfig.rope_theta)))
    return Llama(fields.of(LlamaConfig, rope_theta=base, rope_scaling=scaling))


def gpt2(fields: Fields, names: Iterable[str]) -> Module:
    fields.require(
        activation_function=("gelu_new", "gelu_pytorch_tanh"),
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
        tie_word_embeddings=True,
    )
    return GPT2(fields.of(GPT2Config))


def _bert_config(fields: Fields) -> BertConfig:
    fields.require(
        hidden_act="gelu", is_decoder=False, add_cross_attention=False, position_embedding_type="absolute"
    )
    config: BertConfig = fields.of(BertConfig)
    return config


def bert(fields: Fields, names: Iterable[str]) -> Module:
    return Bert(_bert_config(fields), pooler=any(name.startswith("pooler.") for name in names))


def masked_bert(fields: Fields, names: Iterable[str]) -> Module:
    fields.require(tie_word_embeddings=True)
    return BertForMaskedLM(_bert_config(fields))


def vit(fields: Fields, names: Iterable[str]) -> Module:
    fields.require(hidden_act="gelu")
    return ViT(fields.of(ViTConfig, num_labels=fields.labels()))


def resnet(fields: Fields, names: Iterable[str]) -> Module:
    fields.require(
        hidden_act="relu",
        layer_type=("bottleneck", "basic"),
        downsample_in_first_stage=False,
        downsample_in_bottleneck=False,
    )
    read = fields.values.get
    sizes, depths = read("hidden_sizes", [256, 512, 1024, 2048]), read("depths", [3, 4, 6, 3])
    is_bottleneck = read("layer_type", "bottleneck") == "bottleneck"
    width = read("embedding_size", 64)
    first = width * (Bottleneck if is_bottleneck else Basic).expansion
    if list(sizes) != [first * 2**k for k in range(len(depths))]:
        raise fields.fail(
            f"hidden_sizes={sizes} is not supported for embedding_size={width} and {len(depths)} stages, only "
            f"{first} and twice as many in each later stage"
        )
    return ResNet(ResNetConfig(tuple(depths), is_bottleneck, width, read("num_channels", 3), fields.labels()))


@dataclasses.dataclass(frozen=True)
class Architecture:
    """How the folders of an architecture of transformers are read.

    build: the network, from the fields and the names of the weights. names: patterns of the file's names and what is
    in their places here, one after the other. unused: patterns of weights of parts that the network does not have.
    """

    build: Callable[[Fields, Iterable[str]], Module]
    names: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]] = ()
    unused: Sequence[str] = ()

    def name(self, name: str) -> str:
        """The name here of a weight in the file."""
        for pattern, replacement in self.names:
            name = re.sub(pattern, replacement, name)
        return name


OLD_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
GPT2_FOLDER = Architecture(gpt2, ((r"^(?!transformer\.|lm_head\.)", "transformer."),))
MASKED_BERT = Architecture(masked_bert, OLD_NORMS, (r"bert\.pooler\..*", r"cls\.seq_relationship\..*"))
ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(llama, (), (r".*\.rotary_emb\.inv_freq",)),
    "GPT2LMHeadModel": GPT2_FOLDER,
    "GPT2Model": GPT2_FOLDER,
    "BertModel": Architecture(bert, ((r"^bert\.", ""), *OLD_NORMS), (r"cls\..*",)),
    "BertForMaskedLM": MASKED_BERT,
    "BertForPreTraining": MASKED_BERT,
    "ViTForImageClassification": Architecture(vit),
    "ResNetForImageClassification": Architecture(
        resnet,
        (
            (r"^resnet\.embedder\.embedder\.convolution\.", "conv1."),
            (r"^resnet\.embedder\.embedder\.normalization\.", "bn1."),
            (r"^resnet\.encoder\.stages\.(\d+)\.layers\.", lambda m: f"layer{int(m[1]) + 1}."),
            (r"\.layer\.(\d+)\.convolution\.", lambda m: f".conv{int(m[1]) + 1}."),
            (r"\.layer\.(\d+)\.normalization\.", lambda m: f".bn{int(m[1]) + 1}."),
            (r"\.shortcut\.convolution\.", ".downsample.0."),
            (r"\.shortcut\.normalization\.", ".downsample.1."),
            (r"^classifier\.1\.", "fc."),
        ),
    ),
}


def from_pretrained(
    folder: str | os.PathLike[str],
    *,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
    ignore: Sequence[str] = (),
) -> Any:
    """The network of a folder that save_pretrained of transformers wrote, with its weights, in evaluation mode.

    folder: has config.json, whose `architectures` says which network it is, and weights, as safetensors or as
    pytorch_model.bin, in one file or in shards with an index. LlamaForCausalLM becomes a Llama; GPT2LMHeadModel and
    GPT2Model a GPT2; BertModel a Bert; BertForMaskedLM and BertForPreTraining (without its second head) a
    BertForMaskedLM; ViTForImageClassification a ViT; ResNetForImageClassification a ResNet.
    dtype: of the parameters; None: that of the weights if they have one, else float32. device: where they are; None:
    the current one. ignore: names of weights in the files that are left out, * for any characters. Nothing is
    downloaded, and no code of the folder is run. `weft.data.text.Tokenizer` reads the folder's tokenizer.json.
    Raises FileFormatError, a ValueError, for another architecture, a value of the configuration that the network does
    not have, and weights that are missing, left over or of another shape; it names them. OSError if a file is missing.

    >>> import json, os, tempfile
    >>> import weft as wf
    >>> from weft import models
    >>> net = models.GPT2(models.GPT2Config(50, 8, n_embd=16, n_layer=1, n_head=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wf.save(os.path.join(folder, "model.safetensors"), net.state_dict())
    ...     with open(os.path.join(folder, "config.json"), "w") as file:
    ...         fields = {"vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ...         json.dump({"architectures": ["GPT2LMHeadModel"], **fields}, file)
    ...     same = models.from_pretrained(folder)
    >>> bool((same(wf.tensor([[3, 1]])) == net.eval()(wf.tensor([[3, 1]]))).all())
    True
    """
    place = os.fsdecode(folder)
    fields = Fields(os.path.join(place, "config.json"))
    architecture = _architecture(fields)
    path = _weight_file(place)
    weights = load(path, "cpu")
    if not isinstance(weights, Mapping) or not all(isinstance(x, Tensor) for x in weights.values()):
        raise FileFormatError(f"from_pretrained: {path!r}: not tensors by name")
    state = _renamed(architecture, weights, ignore, path)
    # All parameters are in the files, tied ones once for two: a configuration that asks for more is not theirs.
    limit = 2 * sum(x.size for x in state.values()) + 1_000_000
    try:
        with init.without_draws(limit):
            net = architecture.build(fields, state)
    except FileFormatError:
        raise
    except (ArithmeticError, AttributeError, MemoryError, TypeError, ValueError) as error:
        raise fields.fail(f"no network of this configuration fits {path!r}: {error}") from None
    if dtype is None:
        types = {x.dtype for x in state.values() if x.dtype.is_floating}
        dtype = types.pop() if len(types) == 1 else "float32"
    net.astype(dtype)
    if device is not None:
        net.to_device(device)
    try:
        net.load_state_dict(state)
    except ValueError as error:
        raise FileFormatError(f"from_pretrained: {path!r}: {error}") from None
    return net.eval()


def _architecture(fields: Fields) -> Architecture:
    """The entry of the architecture that the fields name."""
    fields.require(quantization_config=None)
    names = fields.values.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise fields.fail(f"architectures={names!r} is not supported, only one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def _weight_file(folder: str) -> str:
    """The file of the weights, or their index."""
    for name in WEIGHT_FILES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"from_pretrained: {folder!r}: no weights, none of {', '.join(WEIGHT_FILES)}")


def _renamed(
    architecture: Architecture, weights: Mapping[str, Tensor], ignore: Sequence[str], path: str
) -> dict[str, Tensor]:
    """The weights by their names here, without those that are not used."""
    for pattern in ignore:
        if not fnmatch.filter(weights, pattern):
            raise ValueError(f"from_pretrained: {path!r}: ignore={pattern!r} is no weight")
    state: dict[str, Tensor] = {}
    for name, x in weights.items():
        is_unused = any(re.fullmatch(pattern, name) for pattern in architecture.unused)
        if is_unused or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore):
            continue
        here = architecture.name(name)
        if here in state:
            raise FileFormatError(f"from_pretrained: {path!r}: {name} is there twice, as {here}")
        state[here] = x
    return state
