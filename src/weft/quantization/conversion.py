"""From rounded floats to integers: modules whose products are integer kernels."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from weft import functional as F
from weft.arrays.creation import full, tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import no_grad
from weft.graph.capture import type_of
from weft.module.module import UNSAVED_BUFFER, Module
from weft.ops.families.activation import Relu6
from weft.ops.families.arithmetic import Add
from weft.ops.families.convolution import TransposedConvolution
from weft.ops.families.joining import Concat
from weft.ops.families.matrix import Linear, Matmul
from weft.ops.node import Node, Value
from weft.quantization.network import Contraction, Network, Networks, Run, called, state_count
from weft.quantization.recurrent import RecurrentParts, run_layers
from weft.quantization.simulated import (
    ActivationQuantizer,
    Simulated,
    along_channels,
    as_rows,
    folded,
    weights_of,
)
from weft.quantization.transposed import interleaved, phases, repeated
from weft.recording.recorded_function import is_array

__all__ = ["Converted", "convert"]


class Stored(Module):
    """What a converted contraction reads, as buffers.

    weight: integers, of 4 bits in pairs; scale: the product's step for each channel, or those of groups of a weight
    alone; bias: floats, or None. narrow: whether the integers are of 7 bits. reads: "integers" of steps that are
    known; "rows", which are rounded when they are there, each with a step of its own; "floats", of a weight alone.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, weight: Any, scale: Any, bias: Any, reads: str, narrow: bool = False) -> None:
        self.bias: Any = None
        self.reads, self.narrow = reads, narrow
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        if bias is not None:
            self.register_buffer("bias", bias)


class StoredStep(Module):
    """The step of an activation as buffers, and its type. zero_point: an integer in a buffer, or None for 0."""

    scale: Tensor
    zero_point: Tensor | None

    def __init__(self, quantizer: ActivationQuantizer) -> None:
        scale, zero_point = quantizer.parameters_of()
        self.dtype, self.zero_point = quantizer.dtype, None
        self.padding = 0 if zero_point is None else round(zero_point.item())
        self.register_buffer("scale", scale.astype("float32", copy=True))
        if self.padding:
            self.register_buffer("zero_point", tensor(self.padding, dtype=self.dtype))

    def quantize(self, x: Any) -> Any:
        """The integers."""
        return F.quantize(x, self.scale, self.zero_point, dtype=self.dtype)

    def round(self, x: Any) -> Any:
        """The integers of numbers in units of the step."""
        return F.quantize(x, None, self.zero_point, dtype=self.dtype)

    def dequantize(self, q: Any) -> Any:
        """The floats that they stand for."""
        return F.dequantize(q, self.scale, self.zero_point)


class Converted(Module):
    """A module with integer kernels, as convert gives it; for prediction.

    stored: what each quantized layer reads, by name; steps: of activations. module: the network, whose weights are gone
    where integers are in their places. A call runs operator by operator; in wf.trace the products are one kernel each
    with what follows them.
    """

    def __init__(self, simulated: Simulated) -> None:
        self.stored: dict[str, Any] = {}  # Stored, or RecurrentParts with several
        self.steps: dict[str, StoredStep] = {}
        self.reasons = dict(simulated.reasons)
        self.names, self.types = simulated.names, dict[str, str]()
        self._networks = Networks()
        self._begin(simulated)
        self.training = False

    def _begin(self, simulated: Simulated) -> None:
        network: Network = simulated.evaluated()
        state = simulated.state()
        run = network.constants(state)
        enabled = {name for name, q in simulated.activations.items() if q.enabled}
        for c in network.contractions.values():
            if c.name in self.reasons:
                continue
            weight = simulated.weights.get(c.name)
            reads = "integers"
            if weight is not None and weight.config.activation_bits is None:
                reads = "floats"
            elif weight is not None and weight.config.dynamic:
                reads = "rows"
            names = list(simulated.sources.get(c.name, ())) if reads == "integers" else []
            added = [simulated.addends[c.name]] if c.name in simulated.addends else []
            if (not enabled.issuperset(names + added)) or (weight is not None and not weight.enabled):
                self.reasons[c.name] = "its quantizers are switched off"
                continue
            for name in names + added:
                if name not in self.steps:
                    self.steps[name] = StoredStep(simulated.activations[name])
            self.stored[c.name] = self._store(c, run, weight, names, reads)
            types = [self.steps[name].dtype for name in names]
            other = {"floats": "float32", "rows": "int8"}
            self.types[c.name] = other.get(reads) or ", ".join(dict.fromkeys(types))
        self.module = copy.deepcopy(simulated.module).eval()
        self._drop(network)
        self.between = network.between({name: step.dtype for name, step in self.steps.items()})

    def _store(
        self, c: Contraction, run: Run, weight: Any, names: Sequence[str], reads: str
    ) -> Stored | RecurrentParts:
        narrow = weight is not None and weight.config.weight_bits == 7
        if c.is_recurrent():
            parameters, quantizers = weights_of(c, run), weight.parts

            def part(name: str, w: Any, bias: Any) -> Stored:
                q, steps = quantizers[name].quantize(w), quantizers[name].steps(w)
                if reads == "floats":
                    return _of_weight_alone(q, steps, bias, quantizers[name].group_size)
                return Stored(q.contiguous(), steps.contiguous(), bias, reads, narrow)

            op: Any = c.node.op
            return RecurrentParts(op, parameters, part, weight.config)
        if weight is None:
            first, second = (self.steps[name].scale for name in names)
            return Stored(zeros((0,)), first * second, None, reads)
        w, factor = folded(c, run)
        steps, q = weight.steps(w), weight.quantize(w)
        bias = run(c.node.inputs[2]) if len(c.node.inputs) > 2 else None
        if weight.correction is not None:
            bias = -weight.correction if bias is None else bias - weight.correction
        norm: Any = c.norm
        if norm is not None:
            offset = -run(norm.inputs[1]) if bias is None else bias - run(norm.inputs[1])
            bias = offset * factor
            shift = run(norm.inputs[4])
            bias = bias if shift is None else bias + shift
        if reads == "floats":
            return _of_weight_alone(q, steps, bias, weight.group_size)
        if reads == "rows":
            return Stored(q.contiguous(), steps.contiguous(), bias, reads, narrow)
        if isinstance(c.node.op, TransposedConvolution):
            q = phases(c.node.op, q)
            steps = repeated(c.node.op, steps) if steps.ndim else steps
            bias = None if bias is None else repeated(c.node.op, bias)
        step = self.steps[names[0]]
        scale = steps * step.scale
        if step.padding:
            channel = -1 if isinstance(c.node.op, Matmul) else 0
            axes = tuple(d for d in range(q.ndim) if d != channel % q.ndim)
            shift = F.sum(F.cast(q, dtype="int32"), axis=axes) * step.padding
            shift = F.cast(shift, dtype="float32") * scale
            bias = -shift if bias is None else bias - shift
        return Stored(q.contiguous(), scale, bias, reads, narrow)

    def _drop(self, network: Network) -> None:
        """Put zeros that take no memory into the places of parameters that nothing reads any more."""
        needed = network.needed(self._reads)
        modules = dict(self.module.named_modules())
        for path, v in network.states():
            readers = (r for r in network.readers.get(id(v), []) if id(r) in needed)
            if any(id(r) not in network.contractions or not self._stands_for(network, r) for r in readers):
                continue
            holder, _, name = path.rpartition(".")
            owner = modules[holder]
            old = vars(owner)[name]
            owner._roles[name] = UNSAVED_BUFFER
            object.__setattr__(owner, name, F.broadcast_to(zeros((), dtype=old.dtype), shape=old.shape))

    def _stands_for(self, network: Network, node: Node) -> bool:
        return self._reads(network.contractions[id(node)]) is not None

    def _reads(self, contraction: Contraction) -> Sequence[Value] | None:
        """For Network.needed: what a converted contraction reads; None: it is not converted."""
        stored = self.stored.get(contraction.name)
        if stored is None:
            return None
        x = contraction.node.inputs[0]
        assert x is not None
        if contraction.is_recurrent():
            return self._operands(contraction)
        return contraction.sources if stored.reads == "integers" else (x,)

    def forward(self, *args: Any) -> Any:
        kinds = tuple(type_of(x) if is_array(x) else x for x in flatten(tuple(args))[0])
        network = self._networks.get(kinds, self.module, args)
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        run = _IntegerRun(network, self.steps)
        network.bind(run, args, list(named.values()))
        needed = network.needed(self._reads)
        for node in network.graph.nodes:
            contraction = network.contractions.get(id(node))
            if id(node) not in needed or (node.op is not None and run.follows(node)):
                continue
            if contraction is not None and self._reads(contraction) is not None:
                output, total = contraction.output, network.sum_of(contraction)
                if contraction.is_recurrent():
                    for v, y in zip(node.outputs, self._recur(contraction, run), strict=False):
                        run.set(v, y)
                elif total is None or id(output) in network.quantized:
                    self._set(run, output, contraction)
                else:
                    run.deferred[id(output)] = contraction
            elif isinstance(node.op, Add) and run.defers(node):
                self._add(node, run)
            elif isinstance(node.op, Concat) and run.is_rounded(node.outputs[0]):
                run.concat(node)
            elif node.op is None:
                run.set_constant(node)
            elif run.unit_of(node.inputs[0] if node.inputs else None) is not None:
                run.clip(node)
            else:
                for v, x in zip(node.outputs, run.call(node), strict=False):
                    run.set(v, x)
        return network.build(run)

    def _set(
        self, run: _IntegerRun, v: Value, contraction: Contraction, residual: Value | None = None
    ) -> None:
        """Compute a contraction: in units of the step of its integers, where ReLU alone is between the two."""
        is_integer = self.stored[contraction.name].reads == "integers"
        unit = run.coming_step(v) if is_integer else None
        y = self._contract(contraction, run, residual, unit)
        if unit is None:
            run.set(v, y)
        else:
            run.set_in_units(v, y, unit)

    def _add(self, node: Node, run: _IntegerRun) -> None:
        """A sum with a contraction's result: a residual of integers is added as it is stored, in units of its step."""
        first, second = node.inputs if id(node.inputs[0]) in run.deferred else reversed(node.inputs)
        assert second is not None
        contraction = run.deferred.pop(id(first))
        if id(second) in run.deferred:
            run.set(second, self._contract(run.deferred.pop(id(second)), run))
        if run.is_integer(second) and self.stored[contraction.name].reads == "integers":
            self._set(run, node.outputs[0], contraction, second)
        else:
            run.set(node.outputs[0], self._contract(contraction, run) + run(second))

    def _contract(
        self,
        c: Contraction,
        run: _IntegerRun,
        residual: Value | None = None,
        unit: StoredStep | None = None,
    ) -> Any:
        """A contraction's result, with a residual that is added; in units of a step, if there is one."""
        stored, node = self.stored[c.name], c.node
        op: Any = node.op
        if stored.reads == "floats":
            return self._of_floats(stored, run(node.inputs[0]))
        if stored.reads == "rows":
            return self._of_rows(stored, run(node.inputs[0]), isinstance(op, Linear))
        x = run.integers(node.inputs[0])
        axis = -1
        if not c.has_weight:
            y = F.integer_matmul(x, run.integers(node.inputs[1]))
        elif isinstance(op, Linear):
            y = F.integer_linear(x, stored.weight, narrow=stored.narrow)
        elif isinstance(op, Matmul):
            y = F.integer_matmul(x, stored.weight, narrow=stored.narrow)
        else:
            y, axis = self._convolve(c, x, stored, run), 1
        step = unit if residual is None else run.step_of(residual)
        scale, bias = stored.scale, stored.bias
        if step is not None:
            scale = scale / step.scale
            bias = None if bias is None else bias / step.scale
            if residual is not None and step.padding:
                bias = (0.0 if bias is None else bias) - full(scale.shape, float(step.padding))
        y = F.dequantize(y, scale, axis=axis if scale.ndim else None)
        y = y if bias is None else y + along_channels(bias, y, node)
        if isinstance(op, TransposedConvolution):
            return interleaved(op, y, node.outputs[0].shape[2:])
        if residual is None or step is None:
            return y
        return (y + run.integers(residual)) * (step.scale if unit is None else step.scale / unit.scale)

    def _operands(self, c: Contraction) -> Sequence[Any]:
        """The input and the first states of recurrent layers."""
        op: Any = c.node.op
        return c.node.inputs[: 1 + state_count(op)]

    def _recur(self, c: Contraction, run: _IntegerRun) -> Any:
        """Recurrent layers whose inputs and states are floats, or are rounded when they are there."""
        op: Any = c.node.op
        stored = self.stored[c.name]
        operands = [run(v) for v in self._operands(c)]
        product = self._of_floats if stored.reads == "floats" else self._of_rows
        return run_layers(op, operands, lambda name, x: product(stored.parts[name], x))

    def _of_floats(self, stored: Any, x: Any) -> Any:
        """A linear layer with a weight of integers alone."""
        return F.quantized_linear(x, stored.weight, stored.scale, stored.bias)

    def _of_rows(self, stored: Any, x: Any, is_linear: bool = True) -> Any:
        """A linear layer whose input is rounded when it is there, each row with a step of its own."""
        rows, steps = as_rows(x)
        q = F.quantize(rows, steps, axis=0, low=-127)
        product = F.integer_linear if is_linear else F.integer_matmul
        y = product(q, stored.weight, narrow=stored.narrow)
        y = F.dequantize(y, stored.scale, axis=-1 if stored.scale.ndim else None)
        y = y * F.reshape(steps, shape=(-1, 1))
        y = y if stored.bias is None else y + stored.bias
        return F.reshape(y, shape=(*x.shape[:-1], y.shape[-1]))

    def _convolve(self, c: Contraction, x: Any, stored: Stored, run: _IntegerRun) -> Any:
        op: Any = c.node.op
        weight = stored.weight
        if isinstance(op, TransposedConvolution):
            low = high = tuple(n - 1 for n in weight.shape[2:])
            attributes: dict[str, Any] = {"groups": op.groups, "padding": low}
        else:
            low, high = op.windows(weight)[2:4]
            attributes = op.values()
        padding = run.step_of(c.node.inputs[0]).padding
        if padding and any((*low, *high)):
            pairs = [n for pair in zip(low, high, strict=True) for n in reversed(pair)]
            x = F.pad(x, tuple(reversed(pairs)), value=float(padding))
            attributes["padding"] = 0
        return getattr(F, f"integer_conv{op.spatial}d")(x, weight, narrow=stored.narrow, **attributes)

    def size_bytes(self) -> int:
        """The memory of all numbers that it reads: integers, steps, and what is left in floats."""
        names = (name for name, _ in self.state_dict().items())
        state = self.state_dict()
        return sum(int(state[name].size) * state[name].dtype.itemsize for name in names)


def _of_weight_alone(q: Any, steps: Any, bias: Any, group_size: int | None) -> Stored:
    """What quantized_linear reads: integers of 8 bits, or pairs of 4, with the steps of each row's groups."""
    rows = q.shape[0]
    scale = F.reshape(steps, shape=(rows, -1)) if steps.ndim else F.broadcast_to(steps, shape=(rows, 1))
    packed = F.pack_int4(q, group_size=group_size) if group_size else q.contiguous()
    return Stored(packed, scale.contiguous(), bias, "floats")


class _IntegerRun(Run):
    """The values of a run as floats and as integers, each made of the other when it is first read."""

    def __init__(self, network: Network, steps: Mapping[str, StoredStep]) -> None:
        super().__init__()
        self._network, self._steps = network, steps
        self._integers: dict[int, Any] = {}
        self._units: dict[int, StoredStep] = {}  # of values that are there in units of a step
        self.deferred: dict[
            int, Contraction
        ] = {}  # by the id of their result: computed with the sum that reads it

    def defers(self, node: Node) -> bool:
        """Whether a node reads results of contractions that are not computed yet."""
        return any(id(v) in self.deferred for v in node.inputs)

    def is_integer(self, v: Value | None) -> bool:
        """Whether a value is there as integers."""
        return v is not None and id(v) in self._integers

    def is_rounded(self, v: Value) -> bool:
        """Whether readers get a value's integers."""
        return self._step(v) is not None

    def concat(self, node: Node) -> None:
        """Join integers: each part is rounded where it is made, with the step of the result."""
        v = node.outputs[0]
        parts = [self.step_of(v).quantize(self(part)) for part in node.inputs]
        assert node.op is not None
        self._integers[id(v)] = called(node.op, parts)[0]

    def set(self, v: Value, x: Any) -> None:
        step = self._step(v)
        if step is None:
            super().set(v, x)
        else:
            self._integers[id(v)] = step.quantize(x)

    def coming_step(self, v: Value) -> StoredStep | None:
        """The step of the integers that a value becomes through ReLU alone."""
        rounded = self._network.rounded_from(v)
        return None if rounded is None else self._step(rounded)

    def unit_of(self, v: Value | None) -> StoredStep | None:
        """The step that a value is there in units of."""
        return None if v is None else self._units.get(id(v))

    def set_in_units(self, v: Value, x: Any, unit: StoredStep) -> None:
        """Give a value in units of a step; the integers, if it is the one that is rounded."""
        if self._step(v) is unit:
            self._integers[id(v)] = unit.round(x)
        else:
            super().set(v, x)
            self._units[id(v)] = unit

    def clip(self, node: Node) -> None:
        """ReLU of a value in units of a step."""
        (v,) = node.inputs
        unit = self.unit_of(v)
        assert unit is not None
        y = F.relu(super().__call__(v))
        y = F.minimum(y, 6.0 / unit.scale) if isinstance(node.op, Relu6) else y
        self.set_in_units(node.outputs[0], y, unit)

    def __call__(self, v: Value | None) -> Any:
        if v is not None and not self.has(v):
            super().set(v, self.step_of(v).dequantize(self.integers(v)))
        return super().__call__(v)

    def _step(self, v: Value) -> StoredStep | None:
        return self._steps.get(self._network.quantized.get(id(v), ""))

    def follows(self, node: Node) -> bool:
        """Whether a node's result is made of integers when it is read: a view or a maximum of quantized values."""
        v = node.outputs[0]
        source = self._network.source_of(v)
        return source is not v and self._step(source) is not None

    def step_of(self, v: Value | None) -> StoredStep:
        """The step of a value's integers."""
        assert v is not None
        step = self._step(self._network.source_of(v))
        assert step is not None
        return step

    def integers(self, v: Value | None) -> Any:
        """A value as integers: those of the value behind it, through views and pooling."""
        assert v is not None
        if id(v) not in self._integers:
            node: Node = v.node
            assert node.op is not None
            self._integers[id(v)] = called(node.op, [self.integers(node.inputs[0])])[0]
        return self._integers[id(v)]

    def set_constant(self, node: Node) -> None:
        """Give the number of a constant."""
        if node.value is not None:
            super().set(node.outputs[0], node.value)


def convert(simulated: Simulated) -> Converted:
    """The module with integer kernels, from one that was prepared and trained, or calibrated.

    Its result is that of the simulated module in eval(), but for float32's rounding: sums of integers are exact, so an
    activation near a half may go to the other neighbour. It keeps nothing of the
    simulated module, is for prediction, and is saved by its state_dict. Raises TypeError for another module, ValueError
    for one that was never called.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> net = M.Sequential(M.Linear(64, 64), M.ReLU(), M.Linear(64, 8))
    >>> before = sum(p.size * 4 for p in net.parameters())
    >>> integers = Q.convert(Q.calibrate(net, [wf.ones((16, 64))]))
    >>> integers(wf.ones((2, 64))).shape, integers.size_bytes() / before < 0.3
    ((2, 8), True)
    """
    if not isinstance(simulated, Simulated):
        raise TypeError(
            f"convert: takes what prepare_qat or calibrate gives, got {type(simulated).__name__}\n"
            "  hint: convert(calibrate(module, batches))"
        )
    if not simulated.is_begun:
        raise ValueError(
            "convert: the module was never called, so it has no ranges; call it, or give example="
        )
    with no_grad():
        return Converted(simulated)
