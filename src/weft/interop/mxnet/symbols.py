"""Networks of MXNet: symbol.json in all versions of the format becomes a Symbol, .params its arrays.

A file has nodes in the order of computation; each names its operator, its attributes as texts, and the outputs that it
reads. Older files are brought up to date as MXNet does (src/nnvm/legacy_json_util.cc): attributes under "attr" and
"param", hidden keys without underscores, missing auxiliary states, the old meaning of axis in argmax and argmin.
Source: Apache MXNet 1.9, nnvm/src/pass/saveload_json.cc and src/nnvm/legacy_json_util.cc.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft.base.device import Device, as_device
from weft.base.errors import GraphError
from weft.interop import mxnet_params
from weft.interop.mxnet import by_symbols, layers_by_sizes
from weft.interop.mxnet.attributes import Attributes
from weft.interop.mxnet.operators import MXNetOperator
from weft.interop.source import FileFormatError, open_source, short
from weft.symbol import AttrScope, NameScope, Symbol, group, var

__all__ = ["Network", "load", "loads", "operators"]

MAX_BYTES = 500_000_000
MAX_NODES = 1_000_000
# Keys that MXNet writes as __key__ today: of every node, and of variables.
_OF_NODES = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
_HIDDEN = (*_OF_NODES, "dtype", "shape", "init", "storage_type")
_STATES = {"BatchNorm": ("moving_mean", "moving_var"), "BatchNorm_v1": ("moving_mean", "moving_var")}
_DTYPES = {
    "0": "float32",
    "1": "float64",
    "2": "float16",
    "3": "uint8",
    "4": "int32",
    "5": "int8",
    "6": "int64",
}
_INPUTS = {"BatchNorm": 5, "BatchNorm_v1": 5}


class Network(NamedTuple):
    """A network that was read. arrays: by the names of the symbol's arguments and auxiliary states."""

    symbol: Symbol
    arrays: dict[str, Any]


def operators() -> list[str]:
    """The names of MXNet's operators that weft reads, sorted.

    >>> "Convolution" in operators()
    True
    """
    return sorted({*by_symbols.CONVERSIONS, *layers_by_sizes.CONVERSIONS})


def load(
    symbol: str | os.PathLike[str],
    params: str | os.PathLike[str] | None = None,
    device: Device | str | None = None,
) -> Network:
    """A network of MXNet as (symbol, arrays): a symbol.json of any version, and the .params file beside it.

    symbol: as Symbol.save, Module.save_checkpoint and HybridBlock.export write it. params: as these write it; names
    begin with "arg:" and "aux:", or are bare as those of Block.save_parameters. Arrays are on `device` (None: the
    current one); ones that the symbol does not have are left out. Each operator is converted to what it means, also
    where weft's operator of its name means something else; outputs for training (SoftmaxOutput, MakeLoss) have MXNet's
    gradients. The result is bound, trained, saved and made a module (weft.module.SymbolModule) as any other symbol.
    Raises FileFormatError if a file is damaged; GraphError for operators and attributes that weft does not read, with
    the name of the node, and for parameters whose array is missing if params is given; OSError if a file cannot be
    opened. Source: Apache MXNet 1.9.

    >>> import json, tempfile, weft as wf
    >>> nodes = [{"op": "null", "name": "x", "inputs": []},
    ...          {"op": "Activation", "name": "y", "attrs": {"act_type": "relu"}, "inputs": [[0, 0, 0]]}]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]}, file)
    ...     file.flush()
    ...     network = wf.interop.mxnet.load(file.name)
    >>> network.symbol.eval(x=[-1.0, 2.0])
    [tensor([0., 2.], dtype=float32, device=cpu:0)]
    """
    target = as_device(device)
    where = f"mxnet.load: {os.fsdecode(symbol)!r}"
    with open_source(symbol, where, target, False) as source:
        if source.size_bytes > MAX_BYTES:
            raise source.fail(f"{source.size_bytes} bytes are more than {MAX_BYTES}")
        network = _Reader(source.read(0, source.size_bytes, "the symbol"), where).symbol()
    if params is None:
        return Network(network, {})
    where = f"mxnet.load: {os.fsdecode(params)!r}"
    with open_source(params, where, target) as source:
        if source.read(0, min(8, source.size_bytes), "the signature") != mxnet_params.SIGNATURE:
            raise source.fail("is not a file of MXNet's arrays")
        arrays = mxnet_params.read(source)
    if not isinstance(arrays, dict):
        raise FileFormatError(f"{where}: its arrays have no names")
    return Network(network, _of_symbol(network, arrays, where))


def loads(text: str | bytes) -> Symbol:
    """The symbol of a symbol.json that is a text. Raises what load does."""
    return _Reader(text, "mxnet.loads").symbol()


def _of_symbol(symbol: Symbol, arrays: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arrays by the symbol's names."""
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    by_name = {}
    for name, x in arrays.items():
        bare = name[4:] if name[:4] in ("arg:", "aux:") else name
        if bare in by_name:
            raise FileFormatError(f"{where}: two arrays are called {short(bare)}")
        by_name[bare] = x
    missing = [name for name in symbol.list_auxiliary_states() if name not in by_name]
    if missing:
        raise GraphError(f"{where}: no array for {missing[0]!r}, which the symbol's operators write")
    return {name: by_name[name] for name in names if name in by_name}


class _Node(NamedTuple):
    """One node of a file."""

    op: str
    name: str
    attributes: dict[str, str]
    inputs: list[tuple[int, int]]


class _Reader:
    """Converts one file."""

    def __init__(self, text: str | bytes, where: str) -> None:
        self.where = where
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"not JSON: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
            raise self.damaged("JSON without nodes, which is not a symbol")
        if len(document["nodes"]) > MAX_NODES:
            raise self.damaged(f"{len(document['nodes'])} nodes are more than {MAX_NODES}")
        self.document = document
        self.version = self._version()
        self.nodes = [self._node(k, each) for k, each in enumerate(document["nodes"])]
        self.outputs: list[list[Symbol]] = []
        self.variables: dict[int, Symbol] = {}

    def damaged(self, fact: str) -> FileFormatError:
        return FileFormatError(f"{self.where}: {fact}")

    def _version(self) -> int:
        attributes = self.document.get("attrs")
        version = attributes.get("mxnet_version") if isinstance(attributes, dict) else None
        if version is None:
            return 800
        match version:
            case ["int", int() as number]:
                return number
        raise self.damaged(f"mxnet_version is {short(version)}")

    def _node(self, k: int, described: Any) -> _Node:
        about = f"nodes[{k}]"
        if not isinstance(described, dict):
            raise self.damaged(f"{about} is {short(described)}, not an object")
        op, name, inputs = (described.get(key) for key in ("op", "name", "inputs"))
        if not isinstance(op, str) or not isinstance(name, str) or not isinstance(inputs, list):
            raise self.damaged(f"{about} does not have op, name and inputs")
        if described.get("subgraphs"):
            raise GraphError(f"{self.where}: {about}: {op} {name!r}: control flow is not supported")
        attributes: dict[str, str] = {}
        for key in ("param", "attr", "attrs"):
            part = described.get(key) or {}
            if not isinstance(part, dict) or not all(isinstance(v, str) for v in part.values()):
                raise self.damaged(f"{about}.{key} is not an object of texts")
            attributes |= part
        entries = []
        for entry in inputs:
            if (
                not isinstance(entry, list)
                or len(entry) not in (2, 3)
                or not all(type(n) is int for n in entry)
            ):
                raise self.damaged(f"{about} reads {short(entry)}, not [node, output]")
            if not 0 <= entry[0] < k or entry[1] < 0:
                raise self.damaged(f"{about} reads {short(entry)}, not a node before it")
            entries.append((entry[0], entry[1]))
        return _Node(op, name, attributes, entries)

    def symbol(self) -> Symbol:
        """The symbol of the file's heads."""
        for k, node in enumerate(self.nodes):
            user = {key: text for key, text in self._hidden(node).items() if key != "__init__"}
            automatic = f"{node.name}_" if node.name else f"node{k}_"  # so that names stay apart
            with AttrScope(**user), NameScope(automatic=automatic):
                self.outputs.append(self._variable(node) if node.op == "null" else self._operator(k, node))
        heads = self.document.get("heads")
        if not isinstance(heads, list) or not heads:
            raise self.damaged(f"heads are {short(heads)}")
        chosen = []
        for head in heads:
            match head:
                case [int() as k, int() as output, *_] if 0 <= k < len(self.nodes) and output >= 0:
                    chosen.append(self._output(k, output, "heads"))
                case _:
                    raise self.damaged(f"heads has {short(head)}, not [node, output]")
        return group(chosen) if len(chosen) > 1 else chosen[0]

    def _output(self, k: int, output: int, reader: str) -> Symbol:
        if output >= len(self.outputs[k]):
            node = self.nodes[k]
            raise GraphError(
                f"{self.where}: {reader} reads output {output} of {node.op} {node.name!r}, of which weft has "
                f"{len(self.outputs[k])}"
            )
        return self.outputs[k][output]

    def _hidden(self, node: _Node) -> dict[str, str]:
        """The attributes that are no operator's, with their keys of today: __lr_mult__ and so on."""
        result = {}
        for key, text in node.attributes.items():
            if key.startswith("__") and key.endswith("__"):
                result[key] = text
            elif key in _HIDDEN and node.op == "null":
                result[f"__{key}__"] = text
        return result

    def _variable(self, node: _Node) -> list[Symbol]:
        hidden = self._hidden(node)
        a = Attributes(hidden, f"{self.where}: variable {node.name!r}")
        shape = a.sizes("__shape__", None)
        if shape is not None:
            shape = tuple(n if n > 0 else None for n in shape) or None
        dtype = hidden.get("__dtype__")
        if dtype in ("-1", "None"):
            dtype = None
        if dtype is not None:
            dtype = _DTYPES.get(dtype, dtype)
        return [var(node.name, shape=shape, dtype=dtype, init=hidden.get("__init__"))]

    def _operator(self, k: int, node: _Node) -> list[Symbol]:
        about = f"{self.where}: {node.op} {node.name!r}"
        inputs = [self._output(*entry, about) for entry in node.inputs]
        if (
            node.op in _STATES and len(inputs) == _INPUTS[node.op] - 2
        ):  # before version 0.9 states were not in files
            inputs += [var(f"{node.name}_{state}") for state in _STATES[node.op]]
        texts = self._texts(node)
        a = Attributes(texts, about)
        name = node.name or f"{node.op.lower()}{k}"
        if node.op == "amp_multicast":
            raise a.fail("is not supported; save the symbol with remove_amp_cast=True")
        if node.op in by_symbols.CONVERSIONS:
            try:
                result = by_symbols.CONVERSIONS[node.op](a, name, *inputs)
            except TypeError as error:
                raise GraphError(f"{about}: with {len(inputs)} inputs: {error}") from error
            except ValueError as error:  # a GraphError already says where
                raise error if isinstance(error, GraphError) else GraphError(f"{about}: {error}") from error
            a.require_all_read()
        elif node.op in layers_by_sizes.CONVERSIONS:
            count = layers_by_sizes.OUTPUTS[node.op](a) if node.op in layers_by_sizes.OUTPUTS else 1
            settings = tuple(sorted(texts.items()))
            op = {"operator": node.op, "settings": settings, "count": count, "name": name}
            result = inputs[0].__weft_apply__(MXNetOperator, tuple(inputs), op)
        else:
            raise GraphError(f"{about}: no operator of weft is known for it")
        return list(result)

    def _texts(self, node: _Node) -> dict[str, str]:
        """The operator's own attributes, as the latest version has them."""
        texts = {
            key: text
            for key, text in node.attributes.items()
            if not key.startswith("__") and not any(key == h or key.endswith(f"_{h}") for h in _OF_NODES)
        }
        if node.op in ("argmax", "argmin") and self.version < 905 and texts.get("axis") == "-1":
            del texts["axis"]
        return texts
