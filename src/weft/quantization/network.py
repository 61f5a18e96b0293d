"""A module's forward as a graph, and where in it numbers are quantized: by operators, not by classes of modules.

A *contraction* is a product of matrices or a convolution. Its weight is the operand that depends on parameters and
buffers alone; its input is followed back through views and maximum pooling, which commute with rounding, to the value
that is quantized for all its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.errors import GraphError
from weft.base.structure import flatten
from weft.gradients.gradient import no_grad
from weft.graph.capture import type_of
from weft.graph.graph import Graph
from weft.ops import registry
from weft.ops.families.activation import Relu, Relu6
from weft.ops.families.arithmetic import Add
from weft.ops.families.convolution import Convolution, TransposedConvolution
from weft.ops.families.joining import Concat
from weft.ops.families.matrix import Linear, Matmul
from weft.ops.families.normalization import BatchNorm
from weft.ops.families.pooling import MaxPooling
from weft.ops.families.recurrent import Recurrent
from weft.ops.families.shape import Viewing
from weft.ops.node import Node, Value
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise
from weft.recording.recorded_function import is_array
from weft.transform.transformed import CapturedFunction

__all__ = ["Contraction", "Network", "Networks", "Run", "called"]

FAMILIES = ("matrix", "convolution", "attention", "recurrent")  # whose operators are products


def state_count(op: Recurrent) -> int:
    """How many states a recurrent layer has."""
    return sum(not spec.variadic for spec in op.inputs) - 1


@dataclass(eq=False)
class Contraction:
    """One product. name: that of the module with its weight; reason: why it cannot be quantized, if so.

    operands: the numbers of the node's inputs that are activations. sources: for each of them the value that is
    quantized. norm: the batch normalization that alone reads its result. addend: the earlier contraction whose result
    is added to this one's, and is read by nothing else: it is rounded, and this one is computed with the sum.
    """

    node: Node
    name: str
    operands: tuple[int, ...] = ()
    sources: tuple[Value, ...] = ()
    norm: Node | None = None
    reason: str = ""
    addend: Contraction | None = None

    @property
    def output(self) -> Value:
        """Its result, with the batch normalization behind it."""
        return (self.node if self.norm is None else self.norm).outputs[0]

    @property
    def has_weight(self) -> bool:
        """Whether the second operand is a weight."""
        return self.operands == (0,)

    def is_recurrent(self) -> bool:
        """Whether it is layers with a state, which have several weights."""
        return isinstance(self.node.op, Recurrent)


class Network:
    """The forward of a module for arguments of one kind.

    contractions: by the id of their node, in order. quantized: names of the values that are quantized, by id: that of
    the first contraction that reads them, and which operand it is.
    """

    def __init__(self, module: Any, args: Sequence[Any]) -> None:
        state = dict(module.named_parameters()) | dict(module.named_buffers())
        self.modes = tuple(m.training for m in module.modules())

        def forward(args: Any, state: Any) -> Any:
            return module.functional_call(state, *args)

        leaves, structure = flatten(((tuple(args), state), {}))
        types = [type_of(x) if is_array(x) else None for x in leaves]
        self._captured = captured = CapturedFunction("quantization", forward, leaves, structure, types)
        if captured.written_captures:
            raise GraphError(
                "quantization: the module writes to arrays that are neither parameters nor buffers"
            )
        self.inputs = captured.inputs
        self.state_names = list(state)
        self._argument_count = len(self.inputs) - len(state)
        self.graph = Graph([*self.inputs, *captured.extra], [*captured.ys, *captured.contents])
        self.readers: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            for v in node.reads:
                self.readers.setdefault(id(v), []).append(node)
        self._outputs = {id(v) for v in self.graph.outputs if v is not None}
        self._varying = self._depend_on(self.inputs[: self._argument_count])
        self._roots = self._parameters_of_values()
        self.contractions: dict[int, Contraction] = {}
        self.quantized: dict[int, str] = {}
        self._find()

    def _depend_on(self, values: Sequence[Value]) -> set[int]:
        """The ids of values that depend on these."""
        result = {id(v) for v in values}
        for node in self.graph.nodes:
            if any(id(v) in result for v in node.reads):
                result.update(id(v) for v in node.outputs)
        return result

    def _parameters_of_values(self) -> dict[int, str]:
        """For values that depend on the state alone the name of the first parameter that they are made of."""
        states = zip(self.inputs[self._argument_count :], self.state_names, strict=True)
        names = {id(v): name for v, name in states}
        for node in self.graph.nodes:
            found = next((names[id(v)] for v in node.reads if id(v) in names), None)
            if found is not None:
                for v in node.outputs:
                    if id(v) not in self._varying:
                        names[id(v)] = found
        return names

    def _find(self) -> None:
        taken: dict[str, int] = {}
        for node in self.graph.nodes:
            if (
                node.op is None
                or node.op.family not in FAMILIES
                or not any(id(v) in self._varying for v in node.reads)
            ):
                continue
            contraction = self._contraction(node)
            number = taken[contraction.name] = taken.get(contraction.name, -1) + 1
            if number:
                contraction.name += f"#{number}"
            self.contractions[id(node)] = contraction
            for source, operand in zip(contraction.sources, contraction.operands, strict=True):
                part = "input" if operand == 0 else "second_input"
                self.quantized.setdefault(id(source), f"{contraction.name}.{part}")
        self._find_addends()

    def _find_addends(self) -> None:
        """Of two contractions whose sum is read, round the result of the first one."""
        firsts: dict[int, Contraction] = {}  # by the id of the sum
        for contraction in self.contractions.values():
            total = self.sum_of(contraction) if contraction.operands else None
            if total is None:
                continue
            first = firsts.setdefault(id(total), contraction)
            if first is not contraction:
                contraction.addend = first
                self.quantized[id(first.output)] = f"{contraction.name}.addend"

    def sum_of(self, contraction: Contraction) -> Node | None:
        """The sum that alone reads a contraction's result, and adds another value of the same shape."""
        v = contraction.output
        readers = self.readers.get(id(v), [])
        if len(readers) != 1 or self.is_output(v) or not isinstance(readers[0].op, Add):
            return None
        a, b = readers[0].inputs
        is_plain = a is not None and b is not None and a is not b and a.type.shape == b.type.shape
        is_plain = is_plain and not isinstance(contraction.node.op, TransposedConvolution)
        return readers[0] if is_plain else None

    def _contraction(self, node: Node) -> Contraction:
        op: Any = node.op
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if isinstance(op, Recurrent):
            weight = node.inputs[1 + state_count(op)]
        root = None if weight is None else self._roots.get(id(weight))
        name = op.name if root is None or "." not in root else root.rpartition(".")[0]
        reason = self._why_not(node)
        if reason or isinstance(op, Recurrent):
            return Contraction(node, name, reason=reason)
        varying = tuple(k for k in (0, 1) if id(node.inputs[k]) in self._varying)
        sources = tuple(self._source(node.inputs[k]) for k in varying)
        return Contraction(node, name, varying, sources, self._norm(node))

    def _why_not(self, node: Node) -> str:
        op: Any = node.op
        if isinstance(op, Recurrent):
            states = 1 + state_count(op)
            is_float = all(v is not None and v.dtype.name == "float32" for v in node.inputs)
            is_whole = all(id(v) not in self._varying for v in node.inputs[states:])
            return (
                ""
                if is_float and is_whole
                else "parameters of other types than float32, or that depend on inputs"
            )
        if not isinstance(op, (Linear, Matmul, Convolution, TransposedConvolution)):
            return f"{op.name} has no integer kernel"
        x, weight = node.inputs[0], node.inputs[1]
        assert x is not None
        assert weight is not None
        if x.dtype.name != "float32" or weight.dtype.name != "float32":
            return f"operands of {x.dtype} and {weight.dtype}; only float32 is quantized"
        if isinstance(op, Matmul) and min(x.ndim, weight.ndim) < 2:
            return "a product with a vector"
        if id(x) not in self._varying:
            return "the first operand is a parameter"
        if isinstance(op, Matmul) and id(weight) not in self._varying and weight.ndim != 2:
            return "a weight of more than 2 dimensions"
        if isinstance(op, Convolution | TransposedConvolution) and id(weight) in self._varying:
            return "the weights of the convolution are no parameters"
        if isinstance(op, TransposedConvolution) and max(op.windows(weight).dilation) > 1:
            return "a transposed convolution with dilation has no integer kernel"
        return ""

    def _source(self, value: Value | None) -> Value:
        """Back through what commutes with rounding to integers."""
        assert value is not None
        while (
            isinstance(value.node.op, (Viewing, MaxPooling))
            and len(value.node.reads) == 1
            and value.index == 0
            and value.node.inputs[0] is not None
        ):
            value = value.node.inputs[0]
        return value

    def _norm(self, node: Node) -> Node | None:
        readers = self.readers.get(id(node.outputs[0]), [])
        if (
            len(readers) != 1
            or id(node.outputs[0]) in self._outputs
            or isinstance(node.op, Matmul | TransposedConvolution)
        ):
            return None
        op, reader = node.op, readers[0]
        channels_last = isinstance(op, Linear) and node.outputs[0].ndim != 2
        if not isinstance(reader.op, BatchNorm) or channels_last or reader.inputs[1] is None:
            return None
        return reader if reader.inputs[0] is node.outputs[0] else None

    def between(self, types: Mapping[str, str]) -> dict[tuple[str, str, str], int]:
        """How often an operator is between the contractions, by its name, its result's type, and why it is of that.

        types: of the values that are rounded, by name. Views, and normalizations in weights, are not counted.
        """
        norms = {id(c.norm) for c in self.contractions.values() if c.norm is not None and not c.reason}
        counts: dict[tuple[str, str, str], int] = {}
        for node in self.graph.nodes:
            op, skipped = node.op, id(node) in self.contractions or id(node) in norms
            if op is None or op.is_mark or skipped or isinstance(op, Viewing):
                continue
            if not any(id(v) in self._varying for v in node.reads):
                continue
            v = node.outputs[0]
            source = self.source_of(v)
            dtype = types.get(self.quantized.get(id(source), ""), "")
            if dtype and (source is not v or isinstance(op, Concat)):
                row = (op.name, dtype, "of integers, as rounding commutes with it")
            elif isinstance(op, Pointwise):
                row = (op.name, v.dtype.name, "pointwise, in a kernel or loop of its neighbours")
            else:
                row = (op.name, v.dtype.name, "no integer kernel")
            counts[row] = counts.get(row, 0) + 1
        return counts

    def is_output(self, value: Value) -> bool:
        """Whether it is a result of the module, or the new content of a buffer."""
        return id(value) in self._outputs

    def arrays_of(self, state: Sequence[Any]) -> dict[int, Any]:
        """The arrays of the state, by the id of the value that stands for each."""
        inputs = self.inputs[self._argument_count :]
        return {id(v): x for v, x in zip(inputs, state, strict=True)}

    # Running it.

    def run(
        self,
        args: Sequence[Any],
        state: Sequence[Any],
        contract: Callable[[Contraction, Run], Any] | None = None,
        quantize: Callable[[str, Any], Any] | None = None,
    ) -> Any:
        """The result, operator by operator. contract: gives a contraction's result in the operator's place.

        quantize(name, x): gives what readers of a quantized value get.
        """
        run = Run()
        for v, x in self._given(args, state):
            run.set(v, self._quantized(v, x, quantize))
        for node in self.graph.nodes:
            if node.op is None:
                if node.value is not None:
                    run.set(node.outputs[0], node.value)
                continue
            if node.op.is_mark and not all(map(run.has, node.reads)):
                continue  # of what an operator has written to its operand
            contraction = self.contractions.get(id(node))
            if contract is None or contraction is None or contraction.reason:
                results = run.call(node)
            else:
                result = contract(contraction, run)
                results = result if isinstance(result, tuple) else (result,)
            for v, x in zip(node.outputs, results, strict=False):
                run.set(v, self._quantized(v, x, quantize))
        self._write(state, run)
        return self.build(run)

    def _given(self, args: Sequence[Any], state: Sequence[Any]) -> list[tuple[Value, Any]]:
        """The inputs with their arrays."""
        leaves = [x for x in flatten(tuple(args))[0] if is_array(x)]
        arrays = [*leaves, *state, *self._captured.captures]
        return list(zip(self.graph.inputs, arrays, strict=True))

    def bind(self, run: Run, args: Sequence[Any], state: Sequence[Any]) -> None:
        """Give the inputs of a run."""
        for v, x in self._given(args, state):
            run.set(v, x)

    def build(self, run: Run) -> Any:
        """The result of the module, of what a run has computed."""
        return self._captured.build([run(v) for v in self._captured.ys])

    def states(self) -> list[tuple[str, Value]]:
        """The parameters and buffers by name, and the values that stand for them."""
        return list(zip(self.state_names, self.inputs[self._argument_count :], strict=True))

    def constants(self, state: Sequence[Any]) -> Run:
        """The values that depend on the state alone."""
        run = Run()
        for (_, v), x in zip(self.states(), state, strict=True):
            run.set(v, x)
        captured = self.graph.inputs[len(self.inputs) :]
        for v, x in zip(captured, self._captured.captures, strict=True):
            run.set(v, x)
        for node in self.graph.nodes:
            if node.op is None:
                if node.value is not None:
                    run.set(node.outputs[0], node.value)
            elif all(map(run.has, node.reads)) and not node.op.random:
                for v, x in zip(node.outputs, run.call(node), strict=False):
                    run.set(v, x)
        return run

    def needed(self, stored: Callable[[Contraction], Sequence[Value] | None]) -> set[int]:
        """The ids of the nodes that the results need.

        stored: for contractions that have what depends on the state alone the values that they read, None for others.
        Such a contraction stands for its batch normalization, too.
        """
        reads = {key: read for key, c in self.contractions.items() if (read := stored(c)) is not None}
        norms = {id(c.norm) for key, c in self.contractions.items() if c.norm is not None and key in reads}
        values = {id(v) for v in self._captured.ys}
        nodes: set[int] = set()
        for node in reversed(self.graph.nodes):
            if not any(id(v) in values for v in node.outputs):
                continue
            if id(node) in norms:
                assert node.inputs[0] is not None
                values.add(id(node.inputs[0]))
                continue
            nodes.add(id(node))
            values.update(id(v) for v in reads.get(id(node), node.reads))
        return nodes

    def _write(self, state: Sequence[Any], run: Run) -> None:
        """Give buffers what forward assigns to them; operators that write their operands have done so already."""
        for k, content in zip(self._captured.written_inputs, self._captured.contents, strict=True):
            source: Any = content
            while source.node.op is not None and source.node.op.is_mark:
                source = source.node.inputs[0]
            if source.node.op is None or source.index not in source.node.written:
                with no_grad():
                    state[k - self._argument_count][...] = run(content)

    def _quantized(self, v: Value, x: Any, quantize: Callable[[str, Any], Any] | None) -> Any:
        name = self.quantized.get(id(v))
        return x if quantize is None or name is None else quantize(name, x)

    def rounded_from(self, value: Value) -> Value | None:
        """The value that is quantized, if this one alone becomes it through ReLU, which commutes with a step."""
        while id(value) not in self.quantized:
            readers = self.readers.get(id(value), [])
            if len(readers) != 1 or self.is_output(value) or not isinstance(readers[0].op, Relu | Relu6):
                return None
            value = readers[0].outputs[0]
        return value

    def source_of(self, value: Value) -> Value:
        """The value that is quantized for readers of this one: itself, or what it is a view or a maximum of."""
        source = self._source(value)
        return source if id(source) in self.quantized else value


class Networks:
    """Networks of a module by the kinds of arguments, the latest 16; no part of what a program depends on."""

    def __init__(self) -> None:
        self._networks: dict[Any, Network] = {}

    def get(self, key: Any, module: Any, args: Sequence[Any]) -> Network:
        """The network of the key; made if there is none."""
        network = self._networks.pop(key, None)
        if network is None:
            network = Network(module, args)
        self._networks[key] = network
        if len(self._networks) > 16:
            del self._networks[next(iter(self._networks))]
        return network

    def all(self) -> list[Network]:
        """Those that are there, the latest last."""
        return list(self._networks.values())

    def __weft_state__(self) -> Any:
        return ()

    def __deepcopy__(self, memo: Any) -> Networks:
        return Networks()


class Run:
    """The values of one run of a network."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}

    def set(self, v: Value, x: Any) -> None:
        """Give a value."""
        self._values[id(v)] = x

    def has(self, v: Value) -> bool:
        """Whether the value is there; results that operators keep to themselves are not."""
        return id(v) in self._values

    def __call__(self, v: Value | None) -> Any:
        return None if v is None else self._values[id(v)]

    def call(self, node: Node) -> tuple[Any, ...]:
        """What a node's operator gives for the values of its operands."""
        runtime = {name: self(v) for name, v in node.runtime.items()}
        op: Any = node.op
        return called(op.with_runtime(runtime) if runtime else op, [self(v) for v in node.inputs])


def called(op: Op, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of an operator that callers get."""
    result = op(*operands) if op.inputs else registry.function(op.name)(**op.values())
    return tuple(result) if isinstance(result, tuple | list) else (result,)
