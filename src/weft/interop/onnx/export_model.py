"""Functions, modules, traces and symbols as models of ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.base.users_line import users_line
from weft.graph.capture import Capture, type_of
from weft.graph.recording import Recorder
from weft.interop.onnx import export_control, export_loops, export_quantization, export_rules
from weft.interop.onnx.export_folding import fold, names_read
from weft.interop.onnx.writer import Writer
from weft.module.module import Module
from weft.module.of_symbol import SymbolModule
from weft.ops.node import Node, Value, traced
from weft.ops.sizes import NeedsSizes, Size, SizeGuards, axis_size
from weft.ops.types import TensorType
from weft.symbol.symbol import Symbol
from weft.traces.trace import Trace

__all__ = ["export"]

_RULES = (
    export_control,
    export_loops,
    export_quantization,
    export_rules,
)  # in the tables once they are imported
OLDEST, NEWEST = 18, 26
IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13}
MAX_BYTES = (1 << 31) - (1 << 20)  # of constants in the file itself; protocol buffers end at 2 GiB


def export(
    what: Any,
    args: Sequence[Any] | Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = 21,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
) -> Any:
    """Write what a function computes as a model of ONNX; returns the onnx.ModelProto. Needs the package onnx.

    what: a function of arrays that gives an array or a tuple of them; a trace of one; a module, which is exported as
    in eval(); a symbol. args: arrays, examples of its arguments; for a symbol arrays by the names of its arguments and
    auxiliary states: arguments in inputs, and those without an array, whose shapes and types are inferred, are inputs
    of the model, the others are initializers.
    path: of the file; None: none is written. opset: 18 to 26. inputs, outputs: names, by default x0, x1, ... and
    y0, y1, .... dynamic: name of an input -> axis -> name of its size, which may be any from 2 on when the model runs;
    axes of the same name have the same size. Arrays that the function uses, such as parameters, become initializers,
    by the names of the module's parameters; what follows from them alone is computed now, unless that makes the file
    larger. Initializers of more than 2 GB in all are written to PATH.data beside the file, to which the returned model
    then refers.
    Raises ImportError without onnx; GraphError for an operator that cannot be written, with the user's line, where ONNX
    does not have it for an element type, and where the program depends on the size of a dynamic axis; ValueError for
    opsets, names, axes, and for large constants without a path.
    Source: ONNX, docs/Operators.md and docs/IR.md.

    >>> import weft as wf
    >>> net = wf.module.Linear(3, 2)
    >>> model = wf.interop.onnx.export(net, [wf.ones((2, 3))], dynamic={"x0": {0: "n"}})
    >>> [node.op_type for node in model.graph.node]
    ['Gemm', 'Identity']
    """
    import onnx

    if not OLDEST <= opset <= NEWEST:
        raise ValueError(f"onnx export: opset must be {OLDEST} to {NEWEST}, got {opset}")
    if isinstance(what, Symbol):
        what, args, inputs = _of_symbol(what, args, inputs)
    arrays = [asarray(x) for x in args]
    names = [f"x{k}" for k in range(len(arrays))] if inputs is None else list(inputs)
    if len(names) != len(arrays) or len(set(names)) != len(names):
        raise ValueError(f"onnx export: {len(arrays)} inputs need as many different names, got {names}")
    axes, types = _dynamic_types(dict(zip(names, arrays, strict=True)), dict(dynamic or {}))
    function, parameters, restore = _function(what)
    try:
        writer, results, written = _written(function, parameters, names, types, axes, opset, outputs)
    finally:
        restore()
    infos = [writer.info(name, t) for name, t in zip(names, types, strict=True)]
    result_infos = [writer.info(name, t) for name, t in zip(results, written, strict=True)]
    fold(writer, results)
    read = set(names_read(writer.nodes))
    tensors = [_tensor(onnx, writer, name, x) for name, x in writer.constants.items() if name in read]
    graph = onnx.helper.make_graph(writer.nodes, "weft", infos, result_infos, tensors)
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=IR_VERSIONS[opset],
        producer_name="weft",
    )
    if sum(len(t.raw_data) for t in tensors) > MAX_BYTES:
        if path is None:
            raise ValueError(
                "onnx export: constants of more than 2 GB need a path, to be written beside the file"
            )
        _save_large(onnx, model, os.fspath(path))
        _check(onnx, os.fspath(path))
        return model
    _check(onnx, model)
    if path is not None:
        onnx.save_model(model, os.fspath(path))
    return model


class _Recording(Capture):
    """Notes the user's line of each operator, for errors. Draws are recorded; those that are read are refused."""

    draw = Recorder.draw

    def record(self, node: Node, operands: Sequence[Any] | None = None) -> Sequence[Value]:
        node.where = users_line()
        return super().record(node, operands)


def _of_symbol(
    symbol: Symbol, arrays: Any, inputs: Sequence[str] | None
) -> tuple[SymbolModule, list[Any], list[str]]:
    """The module of a symbol, examples of its inputs, and their names."""
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"onnx export: a symbol takes arrays by the names of its arguments, got {type(arrays).__name__}"
        )
    held = {name: asarray(x) for name, x in arrays.items()}
    arguments = symbol.list_arguments()
    chosen = list(inputs or ())
    missing = [name for name in arguments if name not in held]
    chosen += [name for name in missing if name not in chosen]
    if missing:
        known = {name: x for name, x in held.items() if name in arguments}
        shapes, _, _ = symbol.infer_shape(**{name: tuple(x.shape) for name, x in known.items()})
        dtypes, _, _ = symbol.infer_type(**{name: x.dtype for name, x in known.items()})
        if shapes is None or dtypes is None:
            raise GraphError(f"onnx export: the shapes of {', '.join(missing)} do not follow from the arrays")
        for name, shape, dtype in zip(arguments, shapes, dtypes, strict=True):
            if name in missing:
                held[name] = zeros(shape, dtype=dtype)
    others = {name: x for name, x in held.items() if name not in chosen}
    return SymbolModule(symbol, others, inputs=chosen), [held[name] for name in chosen], chosen


def _function(what: Any) -> tuple[Callable[..., Any], dict[int, str], Callable[[], None]]:
    """The function that computes it, the names of its parameters by id, and what puts a module's mode back."""
    if isinstance(what, Trace):
        return _function(what.function)
    owner = what if isinstance(what, Module) else getattr(what, "__self__", None)
    if not isinstance(owner, Module):
        return what, {}, lambda: None
    modes = [(module, module.training) for _, module in owner.named_modules()]
    owner.eval()
    names = {id(p): name for name, p in (*owner.named_parameters(), *owner.named_buffers())}

    def restore() -> None:
        for module, training in modes:
            module.training = training

    return what, names, restore


def _dynamic_types(
    arrays: Mapping[str, Tensor], dynamic: Mapping[str, Mapping[int, str]]
) -> tuple[list[Any], list[TensorType]]:
    """The dynamic axes, as (input, axis, name of the size, its number), and the types of the inputs."""
    axes: list[Any] = []
    sizes: dict[str, Size] = {}
    types = []
    if unknown := [name for name in dynamic if name not in arrays]:
        raise ValueError(f"onnx export: dynamic: no input {unknown[0]!r}; the inputs are {', '.join(arrays)}")
    for name, x in arrays.items():
        shape: list[Any] = list(x.shape)
        for axis, size_name in dict(dynamic.get(name, {})).items():
            if not -x.ndim <= axis < x.ndim:
                raise ValueError(f"onnx export: dynamic: axis {axis} is out of range: {name} is {type_of(x)}")
            number = x.shape[axis]
            if number < 2:
                raise ValueError(
                    f"onnx export: dynamic: size {number} of axis {axis} of {name}: give an example from 2 on"
                )
            if size_name not in sizes:
                sizes[size_name] = axis_size(len(axes))
                axes.append((name, axis % x.ndim, size_name, number))
            known = axes[sizes[size_name].args[0]]
            if known[3] != number:
                raise ValueError(f"onnx export: dynamic: {size_name!r} is {known[3]} and {number}")
            shape[axis] = sizes[size_name]
        types.append(TensorType(tuple(shape), x.dtype, x.device))
    return axes, types


def _written(
    function: Callable[..., Any],
    parameters: Mapping[int, str],
    names: Sequence[str],
    types: Sequence[TensorType],
    axes: Sequence[Any],
    opset: int,
    outputs: Sequence[str] | None,
) -> tuple[Writer, list[str], list[TensorType]]:
    """The writer, after the graph of the function was written; the names and types of the outputs."""
    capture = _Recording("onnx export")
    values = [capture.input(t) for t in types]
    guards = SizeGuards([number for *_, number in axes])
    writer = Writer(opset, [(name, axis, size) for name, axis, size, _ in axes])
    try:
        with guards:
            recorded = capture.run(lambda: function(*map(traced, values)))
            if capture.new_contents:
                raise GraphError(
                    "onnx export: the function writes to arrays outside of it, which ONNX cannot"
                )
            for value, name in zip(values, names, strict=True):
                writer.names[value] = writer.name(name)
            for x, value in zip(capture.captures, capture.capture_inputs, strict=True):
                wish = parameters.get(id(x), "array")
                writer.names[value] = writer.constant(np.asarray(x.numpy()), wish)
            written = writer.write(recorded.outputs)
    except NeedsSizes as problem:
        raise GraphError(f"onnx export: the number behind a dynamic size was needed: {problem}") from None
    if guards.comparisons:
        raise GraphError(f"onnx export: the program depends on sizes of dynamic axes: it holds for {guards}")
    wished = [f"y{k}" for k in range(len(written))] if outputs is None else list(outputs)
    if len(wished) != len(written):
        raise ValueError(f"onnx export: {len(written)} outputs need as many names, got {wished}")
    results = [writer.name(name) for name in wished]
    for content, result in zip(written, results, strict=True):
        writer.nodes.append(writer.onnx.helper.make_node("Identity", [content], [result], f"{result}_node"))
    return writer, results, [v.type for v in recorded.outputs]


def _tensor(onnx: Any, writer: Writer, name: str, array: Any) -> Any:
    content = np.ascontiguousarray(array)
    return onnx.TensorProto(
        name=name, dims=array.shape, data_type=writer.code(array.dtype.name), raw_data=content.tobytes()
    )


def _save_large(onnx: Any, model: Any, path: str) -> None:
    """The file, and one of constants beside it, to which the model refers from then on."""
    location = f"{os.path.basename(path)}.data"
    if os.path.exists(f"{path}.data"):
        os.remove(f"{path}.data")  # onnx appends to it
    onnx.save_model(model, path, save_as_external_data=True, location=location, size_threshold=1024)


def _check(onnx: Any, model: Any) -> None:
    """Raises GraphError where operators do not take these element types; model: or the path of its file."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        fact = str(error).replace("\n", " ").strip()
        raise GraphError(
            f"onnx export: the package onnx {onnx.__version__} refuses the model: {fact}"
        ) from None
