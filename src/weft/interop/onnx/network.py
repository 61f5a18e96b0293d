"""A model of ONNX as a module: its nodes are run one after the other, as calls of weft's functions.

Float initializers are parameters, others buffers. What follows from constants alone is computed when the model is
loaded; what follows from sizes alone is computed on the host when it runs. So a call can be traced, differentiated and
trained as that of any other module.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.interop.onnx import (
    drawn,
    elementwise,
    features,
    layers,
    recurrent,
    regions,
    resizing,
    sequences,
    shapes,
    signals,
)
from weft.interop.onnx.calls import CONVERSIONS, Call, Known, Narrow, numbers, tensor
from weft.interop.onnx.drawn import DRAWN
from weft.interop.onnx.narrow import NARROW, read
from weft.interop.onnx.on_host import ON_HOST
from weft.interop.onnx.room import MAX_STEPS, PER_BYTE, Room, result_size
from weft.interop.source import FileFormatError, short
from weft.module.module import Module, Parameter

__all__ = ["Network", "load", "operators"]

_MODULES = (
    drawn,
    elementwise,
    features,
    layers,
    recurrent,
    regions,
    resizing,
    sequences,
    shapes,
    signals,
)  # their conversions are in the table once they are imported
OLDEST, NEWEST = 7, 28
MAX_DEPTH = 32
_CONTROL = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}  # and their graphs


class Step(NamedTuple):
    """A node. bodies: graphs of control flow, by attribute."""

    call: Call
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: Mapping[str, Graph]


class Graph(NamedTuple):
    """Steps in order. constants: by name; inputs and outputs: names; types: the declared ones of the outputs.

    narrow: numbers of the element types of inputs that weft does not have.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Known | Narrow]
    steps: tuple[Step, ...]
    types: tuple[Any, ...] = ()
    narrow: Mapping[str, int] = {}


def operators() -> list[str]:
    """The names of ONNX's operators that weft reads, sorted.

    >>> "Conv" in operators()
    True
    """
    return sorted({*CONVERSIONS, *_CONTROL})


class Network(Module):
    """A model of ONNX. inputs, outputs: their names; a call takes arrays in the order of inputs, or by name.

    forward returns a tensor, or a tuple where the model has several outputs. Made by weft.interop.onnx.load.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._held: dict[str, str] = {}
        for name, constant in graph.constants.items():
            if isinstance(constant, Known) and constant.array.dtype.kind in "fV" and constant.array.size > 1:
                attribute = "".join(c if c.isalnum() else "_" for c in name)
                while hasattr(self, attribute) or not attribute.isidentifier():
                    attribute = f"p_{attribute}"
                setattr(self, attribute, Parameter(constant.tensor))
                self._held[name] = attribute

    def forward(self, *args: Any, **named: Any) -> Any:
        if len(args) > len(self.inputs):
            raise TypeError(
                f"onnx: takes {len(self.inputs)} arrays ({', '.join(self.inputs)}), got {len(args)}"
            )
        values: dict[str, Any] = dict(self.graph.constants)
        for name, attribute in self._held.items():
            values[name] = getattr(self, attribute)
        given = {**dict(zip(self.inputs, args, strict=False)), **named}
        for name in self.inputs:
            if name in given:
                values[name] = _given(given[name], self.graph.narrow.get(name))
            elif name not in values:
                raise TypeError(f"onnx: no array for {name!r}; the inputs are {', '.join(self.inputs)}")
        if unknown := [name for name in given if name not in self.inputs]:
            raise TypeError(f"onnx: no input {unknown[0]!r}; the inputs are {', '.join(self.inputs)}")
        results = run(self.graph, values)
        results = [[tensor(y) for y in x] if isinstance(x, list) else tensor(x) for x in results]
        return results[0] if len(results) == 1 else tuple(results)


def _given(x: Any, code: int | None) -> Any:
    """An argument: an array, a list of arrays for a sequence, None for an optional value without element."""
    if x is None:
        return None
    if code is not None:
        return read(x, code)
    return [asarray(y) for y in x] if isinstance(x, list) else asarray(x)


def run(graph: Graph, values: dict[str, Any]) -> list[Any]:
    """The outputs of a graph; values: those of its inputs, constants, and of graphs around it."""
    for step in graph.steps:
        inputs = [values[name] if name else None for name in step.inputs]
        for name, value in zip(step.outputs, outputs_of(step, inputs, values), strict=False):
            if name:
                values[name] = value
    return [values[name] for name in graph.outputs]


def outputs_of(step: Step, inputs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
    """What a node gives: on the host if all that it reads is known there."""
    call = step.call
    if call.operator == "If":
        return run_if(step, inputs, values)
    if call.operator == "Loop":
        return run_loop(step, inputs, values)
    if call.operator == "Scan":
        return run_scan(step, inputs, values)
    is_known = call.operator not in DRAWN and all(x is None or isinstance(x, Known) for x in inputs)
    try:
        is_exact = all(x.is_exact for x in inputs if isinstance(x, Known))
        if is_known and is_exact and inputs and call.operator in ON_HOST:
            with np.errstate(all="ignore"):
                known = ON_HOST[call.operator](call, *[None if x is None else x.array for x in inputs])
            return [Known(np.asarray(known))]
        result = CONVERSIONS[call.operator](call, *inputs)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        if isinstance(error, GraphError):
            raise
        if isinstance(error, AttributeError) and any(x is None for x in inputs):
            raise GraphError(f"{call.operator} {call.name!r}: an input that it needs is left out") from error
        error.add_note(f"in {call.operator} {call.name!r} of a model of ONNX, opset {call.opset}")
        raise
    results = list(result) if isinstance(result, tuple | list) else [result]
    if is_known:
        results = [
            Known(np.asarray(x.numpy()), x) if isinstance(x, Tensor) and x.size <= 1 << 20 else x
            for x in results
        ]
    return results


def run_if(step: Step, inputs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
    """The branch that the condition chooses; waits for the condition."""
    branch = step.bodies["then_branch" if numbers(step.call, inputs[0]).ravel()[0] else "else_branch"]
    return run(branch, {**values, **branch.constants})


def run_loop(step: Step, inputs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
    """The loop, its steps one after the other; waits for the condition of each."""
    body = step.bodies["body"]
    limit, condition, *states = inputs
    count = None if limit is None else int(numbers(step.call, limit).ravel()[0])
    goes_on = True if condition is None else bool(numbers(step.call, condition).ravel()[0])
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(states) :]]
    k = 0
    while goes_on and (count is None or k < count):
        known = Known(np.array(k, np.int64))
        given = dict(zip(body.inputs, [known, Known(np.array(True)), *states], strict=False))
        goes_on_value, *results = run(body, {**values, **body.constants, **given})
        goes_on = bool(numbers(step.call, goes_on_value).ravel()[0])
        states = results[: len(states)]
        for rows, row in zip(scanned, results[len(states) :], strict=True):
            rows.append(tensor(row))
        k += 1
    types = body.types[1 + len(states) :]
    return [
        *states,
        *(stacked(step.call, rows, type) for rows, type in zip(scanned, types, strict=True)),
    ]


def run_scan(step: Step, inputs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
    """The scan as wf.foreach, one operator in a trace. Before opset 9 each row of the batch is scanned for itself."""
    from weft import functional as F

    call, body = step.call, step.bodies["body"]
    count = call.get("num_scan_inputs")
    if call.opset >= 9:
        return _scanned(call, body, [tensor(x) for x in inputs], count, values)
    if inputs[0] is not None:
        raise call.fail("sequence_lens are not supported")
    batched = [tensor(x) for x in inputs[1:]]
    rows = [
        _scanned(call, body, [x[k, ...] for x in batched], count, values) for k in range(batched[0].shape[0])
    ]
    return [F.stack(*column, axis=0) for column in zip(*rows, strict=True)]


def _scanned(
    call: Call, body: Graph, inputs: Sequence[Any], count: int, values: dict[str, Any]
) -> Sequence[Any]:
    from weft import functional as F
    from weft.control_flow import foreach

    states, sequences = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    items = len(body.outputs) - len(states)

    def options(name: str, length: int) -> Any:
        return call.get(name) or [0] * length

    turned = options("directions" if call.opset < 9 else "scan_input_directions", count)
    axes = options("scan_input_axes", count)
    sequences = [F.moveaxis(x, axis, 0) for x, axis in zip(sequences, axes, strict=True)]
    sequences = [F.flip(x, axis=0) if turn else x for x, turn in zip(sequences, turned, strict=True)]

    def each(slices: Any, before: Any) -> Any:
        given = dict(zip(body.inputs, [*before, *slices], strict=True))
        results = [tensor(x) for x in run(body, {**values, **body.constants, **given})]
        return tuple(results[len(states) :]), tuple(results[: len(states)])

    stacks, last = foreach(each, tuple(sequences), tuple(states))
    turned, axes = options("scan_output_directions", items), options("scan_output_axes", items)
    stacks = [F.flip(x, axis=0) if turn else x for x, turn in zip(stacks, turned, strict=True)]
    return [*last, *(F.moveaxis(x, 0, axis) for x, axis in zip(stacks, axes, strict=True))]


def stacked(call: Call, rows: Sequence[Any], type: Any) -> Any:
    """The scanned output of a loop; without steps it is empty, of the declared type, where unknown sizes are 0."""
    from weft import functional as F

    if rows:
        return F.stack(*rows, axis=0)
    if not type.HasField("tensor_type") or not type.tensor_type.HasField("shape"):
        raise call.fail("a loop without steps, whose body does not declare the shape of a scanned output")
    declared = type.tensor_type
    sizes = [max(0, each.dim_value) for each in declared.shape.dim]
    return zeros((0, *sizes), dtype=elementwise.dtype_of(call, declared.elem_type))


# ---- From protocol buffers -------------------------------------------------------------------------------------------


class _Reader:
    """Reads one ModelProto."""

    def __init__(self, model: Any, folder: str, where: str) -> None:
        import onnx

        self.onnx, self.model, self.folder, self.where = onnx, model, folder, where
        self.opsets = self.opsets_of(model)  # of the function that is read; of the model outside of functions
        self.types: dict[str, Any] | None = None  # of values, once they are asked for
        self.functions = {(each.domain, each.name): each for each in model.functions}
        self.room, self.count = Room(model.ByteSize()), 0  # of nodes

    def opsets_of(self, proto: Any) -> dict[str, int]:
        """The opset of each domain that a model or a function imports; a model that names none has the first."""
        opsets = {each.domain or "ai.onnx": each.version for each in proto.opset_import} or {"ai.onnx": 1}
        opset = opsets.get("ai.onnx", OLDEST)
        if not OLDEST <= opset <= NEWEST:
            raise GraphError(f"{self.where}: opset {opset} of ai.onnx; weft reads {OLDEST} to {NEWEST}")
        return opsets

    def graph(self, proto: Any, depth: int = 0) -> Graph:
        if depth > MAX_DEPTH:
            raise FileFormatError(f"{self.where}: graphs are in each other more than {MAX_DEPTH} deep")
        constants = {each.name: self.known(each) for each in proto.initializer}
        if proto.sparse_initializer:
            raise GraphError(f"{self.where}: sparse initializers are not supported")
        steps: list[Step] = []
        for k, node in enumerate(proto.node):
            steps += self.steps(node, k, depth)
        inputs = tuple(each.name for each in proto.input if depth or each.name not in constants)
        outputs = tuple(each.name for each in proto.output)
        types = tuple(each.type for each in proto.output)
        codes = {each.name: each.type.tensor_type.elem_type for each in proto.input}
        narrow = {name: code for name, code in codes.items() if code in NARROW}
        return folded(Graph(inputs, outputs, constants, tuple(steps), types, narrow), self.room)

    def steps(self, node: Any, k: int, depth: int) -> list[Step]:
        self.count += 1
        if self.count > MAX_STEPS:
            raise FileFormatError(f"{self.where}: more than {MAX_STEPS} nodes, with those of functions")
        name = node.name or f"{node.op_type}{k}"
        domain = node.domain or "ai.onnx"
        if (node.domain, node.op_type) in self.functions:
            function, outer = self.functions[node.domain, node.op_type], self.opsets
            self.opsets = self.opsets_of(function) if function.opset_import else outer
            try:
                return self.inlined(node, function, depth)
            finally:
                self.opsets = outer
        where = f"{self.where}: node {name!r}: operator {node.op_type} of {domain}"
        opset = self.opsets.get(domain)
        if opset is None:
            raise GraphError(f"{where}, of which the model imports no opset")
        if domain != "ai.onnx" or (node.op_type not in CONVERSIONS and node.op_type not in _CONTROL):
            inlined = self.expanded(node, depth) if domain == "ai.onnx" else None
            if inlined is not None:
                return inlined
            raise GraphError(f"{where}, opset {opset}, is not supported")
        attributes, bodies = {}, {}
        for attribute in node.attribute:
            value = self.onnx.helper.get_attribute_value(attribute)
            if isinstance(value, self.onnx.GraphProto):
                bodies[attribute.name] = self.graph(value, depth + 1)
            elif isinstance(value, self.onnx.TensorProto):
                attributes[attribute.name] = self.known(value)
            else:
                attributes[attribute.name] = value
        call = Call(name, node.op_type, attributes, opset, len(node.output))
        return [Step(call, tuple(node.input), tuple(node.output), bodies)]

    def expanded(self, node: Any, depth: int) -> list[Step] | None:
        """The steps of an operator that ONNX defines in others."""
        try:
            schema: Any = self.onnx.defs.get_schema(node.op_type, self.opsets["ai.onnx"], "")
        except Exception:
            return None
        function = schema.function_body if schema.has_function else self.typed_function(schema, node)
        if function is None:
            return None
        defaults = {
            name: attribute.default_value
            for name, attribute in schema.attributes.items()
            if attribute.default_value.name
        }
        return self.inlined(node, function, depth, defaults)

    def typed_function(self, schema: Any, node: Any) -> Any:
        """The function of an operator that depends on the types of its inputs; None if there is none."""
        if not schema.has_context_dependent_function:
            return None
        if self.types is None:
            inferred = self.onnx.shape_inference.infer_shapes(self.model).graph
            self.types = {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
            for each in inferred.initializer:
                self.types[each.name] = self.onnx.helper.make_tensor_type_proto(each.data_type, each.dims)
        if any(name and name not in self.types for name in node.input):
            return None
        types = [self.types[name].SerializeToString() if name else b"" for name in node.input]
        body = schema.get_context_dependent_function(node.SerializeToString(), types)
        function = self.onnx.FunctionProto()
        function.ParseFromString(body)
        return function if function.node else None

    def inlined(
        self, node: Any, function: Any, depth: int, defaults: Mapping[str, Any] | None = None
    ) -> list[Step]:
        """The nodes of a function, under names of this call. defaults: attributes that the node leaves out."""
        if depth > MAX_DEPTH:
            raise FileFormatError(f"{self.where}: functions call each other more than {MAX_DEPTH} deep")
        prefix = f"{node.name or node.output[0]}/{depth}/"
        names = dict(zip(function.input, node.input, strict=False)) | dict(
            zip(function.output, node.output, strict=False)
        )
        names |= dict.fromkeys(function.input[len(node.input) :], "")
        given = dict(defaults or {}) | {each.name: each for each in getattr(function, "attribute_proto", ())}
        given |= {each.name: each for each in node.attribute}
        steps = []
        for k, inner in enumerate(function.node):
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.name = f"{prefix}{inner.name or inner.op_type}{k}"
            rename(copy, names, prefix)
            del copy.attribute[:]
            for attribute in inner.attribute:
                if attribute.ref_attr_name:
                    if attribute.ref_attr_name in given:
                        copy.attribute.add().CopyFrom(given[attribute.ref_attr_name])
                        copy.attribute[-1].name = attribute.name
                else:
                    copy.attribute.add().CopyFrom(attribute)
                    rename_graph(copy.attribute[-1].g, names, prefix)
            steps += self.steps(copy, k, depth + 1)
        return steps

    def known(self, proto: Any) -> Known | Narrow:
        """The elements of a TensorProto; of bfloat16 the array is float32."""
        array = self.array(proto)
        if proto.data_type in NARROW:
            return read(array, proto.data_type)
        if proto.data_type != self.onnx.TensorProto.BFLOAT16:
            return Known(array)
        wide = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return Known(wide, asarray(wide).astype("bfloat16"))

    def array(self, proto: Any) -> np.ndarray[Any, Any]:
        """The elements of a TensorProto, which may be in a file beside the model's."""
        if proto.data_type not in elementwise.DTYPES and proto.data_type not in NARROW:
            kinds = self.onnx.TensorProto.DataType
            is_kind = proto.data_type in kinds.values()
            kind = kinds.Name(proto.data_type) if is_kind else f"type {proto.data_type}"
            raise GraphError(
                f"{self.where}: tensor {short(proto.name)} is of {kind}, which weft does not have"
            )
        where = f"{self.where}: tensor {short(proto.name)}"
        if proto.data_location == self.onnx.TensorProto.EXTERNAL:
            entries = {each.key: each.value for each in proto.external_data}
            location = entries.get("location", "")
            path = os.path.realpath(os.path.join(self.folder, location))  # links are followed, then compared
            if not self.folder or not location or not path.startswith(os.path.join(self.folder, "")):
                place = "not in the folder of the model"
                raise FileFormatError(f"{where} is in {short(location)}, {place}")
            self.check_window(where, path, entries)
        item_bytes = 4 if proto.data_type in NARROW else 8
        if not self.room.take(math.prod(max(0, n) for n in proto.dims), item_bytes):
            fact = f"constants take more than {PER_BYTE} times the files"
            raise FileFormatError(f"{where} of {short(str(list(proto.dims)))}: {fact}")
        try:
            return np.asarray(self.onnx.numpy_helper.to_array(proto, self.folder))
        except (ValueError, TypeError, OSError) as error:
            raise FileFormatError(f"{where}: {error}") from None

    def check_window(self, where: str, path: str, entries: Mapping[str, str]) -> None:
        """Raises FileFormatError for bytes that a file beside the model's does not have."""
        try:
            size_bytes = os.path.getsize(path)
            start = int(entries.get("offset", 0))
            length = int(entries.get("length", size_bytes - start))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{where}: {error}") from None
        if start < 0 or length < 0 or start + length > size_bytes:
            fact = f"{length} bytes from {start} on of a file of {size_bytes}"
            raise FileFormatError(f"{where} is {fact}")
        self.room.add_file(path, size_bytes)


def check_names(graph: Graph, where: str, around: frozenset[str] = frozenset()) -> None:
    """Raises FileFormatError for a value that is read before it is there. around: the values of graphs around."""
    names = {*around, *graph.inputs, *graph.constants}
    for step in graph.steps:
        for name in step.inputs:
            if name and name not in names:
                reader = f"{step.call.operator} {short(step.call.name)}"
                raise FileFormatError(
                    f"{where}: {reader} reads {short(name)}, which nothing computes before it"
                )
        for attribute in _CONTROL.get(step.call.operator, ()):
            if attribute not in step.bodies:
                raise FileFormatError(
                    f"{where}: {step.call.operator} {short(step.call.name)} has no {attribute}"
                )
            check_names(step.bodies[attribute], where, frozenset(names))
        names.update(step.outputs)
    if missing := [name for name in graph.outputs if name not in names]:
        raise FileFormatError(f"{where}: nothing computes the output {short(missing[0])}")


def rename(node: Any, names: Mapping[str, str], prefix: str) -> None:
    """Give the values of a node, and of graphs in it, their names in the call of a function."""
    for fields in (node.input, node.output):
        for at, name in enumerate(fields):
            if name:
                fields[at] = names.get(name, prefix + name)
    for attribute in node.attribute:
        rename_graph(attribute.g, names, prefix)


def rename_graph(graph: Any, names: Mapping[str, str], prefix: str) -> None:
    """The same for all nodes of a graph, its inputs, outputs and constants."""
    for node in graph.node:
        rename(node, names, prefix)
    for described in (*graph.input, *graph.output, *graph.initializer):
        described.name = names.get(described.name, prefix + described.name)


def folded(graph: Graph, room: Room) -> Graph:
    """The graph without the steps that constants alone decide, while there is room; their outputs are constants."""
    constants, steps = dict(graph.constants), []
    values: dict[str, Any] = {name: value for name, value in constants.items() if name not in graph.inputs}
    for step in graph.steps:
        is_open = step.call.operator in (*_CONTROL, *DRAWN)
        if is_open or not all(name in values or not name for name in step.inputs):
            steps.append(step)
            continue
        inputs = [values[name] if name else None for name in step.inputs]
        arrays = [x.array if isinstance(x, Known) else tensor(x) for x in inputs]
        size = result_size(step.call, arrays)
        if size is None or not room.take(size * len(step.outputs)):
            steps.append(step)
            continue
        results = outputs_of(step, inputs, values)
        if not all(isinstance(x, Known) for x in results):
            steps.append(step)
            continue
        values.update({name: x for name, x in zip(step.outputs, results, strict=False) if name})
    read = {name for step in steps for name in step.inputs} | set(graph.outputs)
    has_bodies = any(step.bodies for step in steps)
    kept = {name: x for name, x in {**constants, **values}.items() if has_bodies or name in read}
    return graph._replace(constants=kept, steps=tuple(steps))


def load(model: Any) -> Network:
    """A model of ONNX as a module: the path of a .onnx file, or an onnx.ModelProto. Needs the package onnx.

    Opsets 7 to 26 of ai.onnx; functions of the model, and operators that ONNX defines by others, are replaced by what
    they are made of. Elements may be in files beside the model's (external data). Float constants become parameters;
    the module is in training mode as any other, but operators of the model do not depend on that.
    Raises ImportError without onnx; FileFormatError for a damaged file; GraphError for operators, opsets and element
    types that weft does not read, with the name of the node; OSError if a file cannot be opened.
    Source: ONNX, docs/Operators.md and docs/IR.md.
    """
    import onnx

    folder, where = "", "onnx.load"
    if not isinstance(model, onnx.ModelProto):
        path = os.fsdecode(model)
        folder, where = os.path.dirname(os.path.realpath(path)), f"onnx.load: {path!r}"
        try:
            model = onnx.load_model(path, load_external_data=False)
        except OSError:
            raise
        except Exception as error:  # what protocol buffers raise, by version
            raise FileFormatError(f"{where}: not a model of ONNX: {type(error).__name__}: {error}") from None
    if not model.graph.node and not model.graph.output:
        raise FileFormatError(f"{where}: a model without a graph")
    graph = _Reader(model, folder, where).graph(model.graph)
    check_names(graph, where)
    return Network(graph)
