"""Writing networks as MXNet's files: symbol.json, and .params beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.arrays.creation import asarray
from weft.arrays.replacing import replace_file
from weft.base.errors import GraphError
from weft.graph.capture import Capture, type_of
from weft.interop.mxnet import export_layers, export_rules
from weft.interop.mxnet.writer import Entry, Writer, checked_heads
from weft.interop.mxnet_params import save_params
from weft.module.module import Module
from weft.module.of_symbol import SymbolModule
from weft.ops.node import traced
from weft.ops.shapes import Partial
from weft.symbol.defaults import infer_with_defaults
from weft.symbol.inference import Inference
from weft.symbol.names import NameScope
from weft.symbol.symbol import Symbol, group, var
from weft.traces.trace import Trace

__all__ = ["dumps", "save"]

_RULES = export_layers, export_rules  # in the table once they are imported


def save(
    what: Any,
    arrays: Mapping[str, Any] | None,
    prefix: str | os.PathLike[str],
    *,
    inputs: Sequence[str] = ("data",),
    args: Sequence[Any] | None = None,
    shapes: Mapping[str, Partial] | None = None,
    epoch: int = 0,
) -> tuple[str, str]:
    """Write PREFIX-symbol.json and PREFIX-0000.params, which MXNet 1.x loads; returns the two paths.

    what: a Symbol; a Module; a trace, or a function of arrays. The last three are called with symbols of the names
    `inputs`; parameters keep their names. arrays: by name, for the symbol's parameters and auxiliary states; None:
    those of the module. args: arrays, examples of the inputs: functions that ask for sizes, which symbols do not have,
    are recorded with them, in eval(), and the file is for arrays of these shapes. shapes: of a symbol's inputs, by
    name, for operators that MXNet has only in parts; others are written without. epoch: the number in the name of the
    arrays' file, as mx.model.load_checkpoint has it. Operators that mxnet.load read are written as they were.
    Truth values are numbers there, results that are 0-d have shape (1,), and after training running variances are those
    of n elements, not n - 1.
    Raises GraphError for an operator that MXNet does not have, with its name and the user's line, for shapes that are
    needed, for parameters without an array, and for arrays that nothing reads; DTypeError and ValueError for arrays
    that .params files cannot hold. Source: Apache MXNet 1.9, nnvm/src/pass/saveload_json.cc.

    >>> import os, tempfile, weft as wf
    >>> net = wf.module.Sequential(wf.module.Linear(3, 2), wf.module.ReLU())
    >>> folder = tempfile.mkdtemp()
    >>> paths = wf.interop.mxnet.save(net, None, f"{folder}/net")
    >>> [os.path.basename(path) for path in paths]
    ['net-symbol.json', 'net-0000.params']
    >>> symbol, arrays = wf.interop.mxnet.load(*paths)
    >>> symbol.list_arguments()
    ['data', '0.weight', '0.bias']
    """
    if args is not None:
        return _save_recorded(what, list(inputs), args, prefix, epoch)
    symbol, held = _symbol_of(what, list(inputs))
    by_name = {name: asarray(x) for name, x in (held if arrays is None else arrays).items()}
    text, more = _written(symbol, by_name, shapes or {})
    states = symbol.list_auxiliary_states()
    names = [*symbol.list_arguments(), *states]
    if unknown := [name for name in by_name if name not in names] if arrays is not None else []:
        raise GraphError(f"mxnet.save: nothing reads the array {unknown[0]!r}; there are: {', '.join(names)}")
    if missing := [name for name in states if name not in by_name]:
        raise GraphError(f"mxnet.save: no array for {missing[0]!r}, which the symbol's operators write")
    tagged = {
        f"{'aux' if name in states else 'arg'}:{name}": x
        for name, x in {**by_name, **more}.items()
        if name in names or name in more
    }
    return _files(prefix, epoch, text, tagged)


def _files(prefix: Any, epoch: int, text: str, arrays: Mapping[str, Any]) -> tuple[str, str]:
    start = os.fspath(prefix)
    paths = f"{start}-symbol.json", f"{start}-{epoch:04d}.params"
    save_params(paths[1], arrays)
    replace_file(paths[0], [text.encode()])
    return paths


def _save_recorded(
    what: Any, names: Sequence[str], args: Sequence[Any], prefix: Any, epoch: int
) -> tuple[str, str]:
    """The same for what is recorded with arrays."""
    examples = [asarray(x) for x in args]
    if isinstance(what, Symbol) or len(names) != len(examples):
        raise ValueError(
            f"mxnet.save: args are for functions, one for each of the inputs {list(names)}, got {len(examples)}"
        )
    function = what.function if isinstance(what, Trace) else what
    owner = _owner(function)
    modes = [] if owner is None else [(m, m.training) for _, m in owner.named_modules()]
    capture = Capture("mxnet.save")
    values = [capture.input(type_of(x)) for x in examples]
    try:
        if owner is not None:
            owner.eval()
        recorded = capture.run(lambda: function(*map(traced, values)))
    finally:
        for module, training in modes:
            module.training = training
    if capture.new_contents:
        raise GraphError("mxnet.save: the function writes to arrays outside of it, which MXNet cannot")
    held = {id(x): name for name, x in _arrays_of(owner).items()}
    writer = Writer((), Inference((), {}, {}))
    arrays = {}
    for value, name in zip(values, names, strict=True):
        writer.entries[value] = writer.add_variable(writer.unique(name), {})
    for x, value in zip(capture.captures, capture.capture_inputs, strict=True):
        name = writer.unique(held.get(id(x), "array"))
        arrays[name] = x
        writer.entries[value] = writer.add_variable(name, {})
    heads = checked_heads(list(writer.written(recorded.outputs)))
    states = writer.states()
    arrays |= {name: asarray(x) for name, x in writer.arrays.items()}
    tagged = {f"{'aux' if name in states else 'arg'}:{name}": x for name, x in arrays.items()}
    return _files(prefix, epoch, _document(writer, heads), tagged)


def dumps(symbol: Symbol, shapes: Mapping[str, Partial] | None = None) -> str:
    """The text of a symbol.json. Raises what save does, and GraphError for a symbol with constant arrays."""
    text, more = _written(symbol, {}, shapes or {})
    if more:
        raise GraphError(
            f"mxnet.dumps: {next(iter(more))!r} is an array of its own: save writes these beside it"
        )
    return text


def _symbol_of(what: Any, inputs: list[str]) -> tuple[Symbol, dict[str, Any]]:
    """The symbol of what is to be written, and the arrays of its module."""
    if isinstance(what, Symbol):
        return what, {}
    if isinstance(what, SymbolModule):
        held = {}
        for name, path in what._paths.items():
            x: Any = what
            for part in path:
                x = getattr(x, part)
            held[name] = x
        return what.symbol, held
    function = what.function if isinstance(what, Trace) else what
    with NameScope():
        results: Any = list(leaves(function(*map(var, inputs))))
    if results and all(isinstance(y, Symbol) for y in results):
        results = group(results) if len(results) > 1 else results[0]
    if not isinstance(results, Symbol):
        raise TypeError(
            f"mxnet.save: expected a symbol, a module, a trace or a function of arrays, got {type(what).__name__}, "
            f"which gives {type(results).__name__} for symbols"
        )
    return results, _arrays_of(_owner(function))


def leaves(outputs: Any) -> Iterator[Any]:
    """The outputs of a function in their order, out of tuples and lists."""
    if isinstance(outputs, tuple | list):
        for each in outputs:
            yield from leaves(each)
    elif outputs is not None:
        yield outputs


def _owner(function: Any) -> Module | None:
    """The module that a function is, or is a method of."""
    owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
    return owner if isinstance(owner, Module) else None


def _arrays_of(owner: Module | None) -> dict[str, Any]:
    """The parameters and buffers of a module, by name."""
    return {} if owner is None else {**dict(owner.named_parameters()), **dict(owner.named_buffers())}


def _written(
    symbol: Symbol, arrays: Mapping[str, Any], shapes: Mapping[str, Partial]
) -> tuple[str, dict[str, Any]]:
    """The text of the symbol, and the arrays that it reads beside those of the symbol."""
    names = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    given: dict[str, Any] = {name: x.shape for name, x in arrays.items() if name in names}
    dtypes = {name: arrays[name].dtype for name in given}
    infer = infer_with_defaults if shapes else _certain
    writer = Writer(symbol.values, infer(symbol.values, {**given, **shapes}, dtypes))
    heads = writer.write_symbol(symbol.values)
    return _document(writer, heads), {name: asarray(x) for name, x in writer.arrays.items()}


def _document(writer: Writer, heads: Sequence[Entry]) -> str:
    document = {
        "nodes": writer.nodes,
        "arg_nodes": [k for k, node in enumerate(writer.nodes) if node["op"] == "null"],
        "heads": [[*head, 0] for head in heads],
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    return json.dumps(document, indent=2)


def _certain(*known: Any) -> Inference:
    """Inference without defaults: of shapes that nobody gave nothing is assumed."""
    return Inference(*known).run()
