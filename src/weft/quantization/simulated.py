"""Networks that compute in floats what their integers will be: for training (QAT) and after calibration (PTQ)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft import _core, distributed
from weft import functional as F
from weft.arrays.creation import tensor
from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import no_grad
from weft.graph.capture import type_of
from weft.module.module import Module, Parameter
from weft.ops.families.convolution import TransposedConvolution
from weft.ops.families.matrix import Linear, Matmul
from weft.quantization.config import QConfig, as_config, config_of
from weft.quantization.network import Contraction, Network, Networks, Run, state_count
from weft.quantization.recurrent import RecurrentParts, named_parts, run_layers
from weft.recording.recorded_function import is_array
from weft.traces.trace import Trace

__all__ = ["ActivationQuantizer", "Simulated", "WeightQuantizer", "prepare_qat"]


def step_of(low: Any, high: Any, limits: tuple[int, int], symmetric: bool) -> tuple[Any, Any]:
    """The scale and, unless symmetric or never negative, the zero point for a range."""
    least, most = limits
    if symmetric:
        scale = F.maximum(F.maximum(-low, high), 0.0) / float(most)
        return F.where(scale > 0, scale, 1.0), None
    low, high = F.minimum(low, 0.0), F.maximum(high, 0.0)
    scale = (high - low) / float(most - least)
    scale = F.where(scale > 0, scale, 1.0)
    return scale, F.clip(F.round(-low / scale) + float(least), float(least), float(most))


class _Learned(Module):
    """Base: a step that is given by a range, or learned."""

    limits: tuple[int, int]
    config: QConfig
    enabled: bool
    step: Any

    @property
    def is_learned(self) -> bool:
        """Whether the step is a parameter."""
        return self.config.estimator != "straight_through"

    def learn(self, scale: Any, count: int) -> None:
        """Make the step a parameter, beginning with this one; count: of the elements that share it."""
        rule = self.config.estimator
        self.factor = 1.0
        if rule == "learned_step":
            self.step = Parameter(scale)
            self.factor = float((count * self.limits[1]) ** -0.5)
        elif rule == "threshold":
            self.step = Parameter(F.log2(scale * float(1 << self.limits[1].bit_length())))

    def scale(self) -> Any:
        """The step itself, of a learned one."""
        if self.config.estimator == "threshold":
            return F.exp2(F.ceil(self.step) - float(self.limits[1].bit_length()))
        return F.abs(self.step)

    def learned(self, x: Any, dtype: str, axis: int | None) -> Any:
        """x with the learned step, and its gradient."""
        rule: Any = self.config.estimator
        step = F.abs(self.step) if rule == "learned_step" else self.step
        return F.fake_quantize(
            x,
            step,
            axis=axis,
            dtype=dtype,
            low=self.limits[0],
            high=self.limits[1],
            estimator=rule,
            gradient_factor=self.factor,
        )


class ActivationQuantizer(_Learned):
    """Rounds one activation. low, high: buffers with its range; observing: whether batches in training move it.

    With several ranks a batch is that of all of them, and each has to compute it.
    enabled: False leaves the activation as it is. Activations that are never negative are uint8 with zero point 0.
    """

    low: Tensor
    high: Tensor

    def __init__(self, name: str, config: QConfig, low: float, high: float) -> None:
        self.name, self.config = name, config
        self.observing, self.enabled = True, True
        self.is_symmetric = config.symmetric or low >= 0
        self.dtype = "uint8" if low >= 0 or not config.symmetric else "int8"
        self.limits = (0, 255) if self.dtype == "uint8" else (-128, 127)
        self.register_buffer("low", tensor(float(low)))
        self.register_buffer("high", tensor(float(high)))
        if self.is_learned:
            self.learn(step_of(self.low, self.high, self.limits, True)[0], 1)
            self.is_symmetric, self.observing = True, False

    def parameters_of(self) -> tuple[Any, Any]:
        """The scale and the zero point, or None for 0."""
        if self.is_learned:
            return self.scale(), None
        return step_of(self.low, self.high, self.limits, self.is_symmetric)

    def forward(self, x: Any) -> Any:
        if not self.enabled:
            return x
        if self.is_learned:
            return self.learned(x, self.dtype, None)
        if self.training and self.observing:
            self._observe(x)
        scale, zero_point = self.parameters_of()
        return F.fake_quantize(x, scale, zero_point, dtype=self.dtype)

    def _observe(self, x: Any) -> None:
        with no_grad():
            low, high = F.min(x), F.max(x)
            if distributed.world_size() > 1:
                ends = distributed.all_reduce(F.stack([-low, high]), op="max")
                low, high = -ends[0], ends[1]
            if self.config.observer == "ema":
                share = self.config.momentum
                low, high = self.low + share * (low - self.low), self.high + share * (high - self.high)
            else:
                low, high = F.minimum(self.low, low), F.maximum(self.high, high)
            self.low[...] = low
            self.high[...] = high


class WeightQuantizer(_Learned):
    """Rounds a weight, symmetrically: a step for each index along axis (None: one), or for each group of a row.

    correction: what calibrate takes off the result of each channel, a buffer, or None. integers: those that calibrate
    has chosen by data, in the weight's shape, a buffer, or None: the nearest ones.
    """

    correction: Any = None
    integers: Any = None

    def __init__(self, name: str, config: QConfig, weight: Any, axis: int | None) -> None:
        self.name, self.config, self.axis, self.enabled = name, config, axis, True
        self.limits = {8: (-127, 127), 7: (-63, 63), 4: (-8, 7)}[config.weight_bits]
        self.group_size = config.group_size if config.weight_bits == 4 else None
        if self.is_learned:
            scale = self.scale_of_range(self.rows(weight))
            self.learn(scale, int(weight.size) // max(int(scale.size), 1))

    def rows(self, w: Any) -> Any:
        """The weight with a row for each step."""
        if self.group_size is not None:
            return F.reshape(w, shape=(-1, self.group_size))
        return w

    @property
    def row_axis(self) -> int | None:
        return 0 if self.group_size is not None else self.axis

    def scale_of_range(self, rows: Any) -> Any:
        """The step by the largest magnitude."""
        axis = self.row_axis
        others = None if axis is None else tuple(d for d in range(rows.ndim) if d != axis % rows.ndim)
        scale = F.max(F.abs(rows), axis=others) / float(self.limits[1])
        return F.where(scale > 0, scale, 1.0)

    def steps(self, w: Any) -> Any:
        """The steps of a weight."""
        if self.is_learned:
            return self.scale()
        return self.scale_of_range(self.rows(w))

    def along_rows(self, steps: Any, rows: Any) -> Any:
        """The steps in a shape that broadcasts to rows."""
        axis = self.row_axis
        if axis is None:
            return steps
        return F.reshape(steps, shape=tuple(-1 if d == axis % rows.ndim else 1 for d in range(rows.ndim)))

    def quantize(self, w: Any) -> Any:
        """The integers of a weight, in its shape."""
        if self.integers is not None:
            return self.integers
        low, high = self.limits
        q = F.quantize(self.rows(w), self.steps(w), axis=self.row_axis, low=low, high=high)
        return F.reshape(q, shape=w.shape)

    def forward(self, w: Any) -> Any:
        if not self.enabled:
            return w
        rows, (low, high) = self.rows(w), self.limits
        if self.integers is not None:
            whole = F.reshape(F.cast(self.integers, dtype=w.dtype), shape=rows.shape)
            return F.reshape(whole * self.along_rows(self.steps(w), rows), shape=w.shape)
        if self.is_learned:
            y = self.learned(rows, "int8", self.row_axis)
        else:
            y = F.fake_quantize(rows, self.steps(w), axis=self.row_axis, low=low, high=high)
        return F.reshape(y, shape=w.shape)


def as_rows(x: Any) -> tuple[Any, Any]:
    """An activation as rows of its last axis, and the step of each row, by its greatest magnitude."""
    rows = F.reshape(x, shape=(-1, x.shape[-1]))
    scale = F.max(F.abs(rows), axis=1) / 127.0
    return rows, F.where(scale > 0, scale, 1.0)


def channel_axis(contraction: Contraction) -> int | None:
    """The axis of a weight along which the result's channels are; None if there is no such axis."""
    op: Any = contraction.node.op
    if isinstance(op, TransposedConvolution):
        return 1 if op.groups == 1 else None
    return -1 if isinstance(op, Matmul) else 0


class Simulated(Module):
    """A module whose products compute with rounded numbers: what prepare_qat and calibrate give, and convert takes.

    module: the network itself, whose parameters are trained. weights, activations: the quantizers, by name; names: of
    all layers; sources: names of the activations that each reads; addends: of the other layer's result that is added to
    its own; reasons: why layers are left in floats. A batch
    normalization behind a convolution or linear layer is part of its weight: the product is rounded with the running
    statistics, and normalized with those of training.
    """

    def __init__(
        self, module: Module, config: QConfig, overrides: Mapping[str, QConfig | str | None], what: str
    ) -> None:
        self.module, self.config, self.overrides, self.what = module, config, dict(overrides), what
        self.weights: dict[str, Any] = {}  # WeightQuantizer, or RecurrentParts with several
        self.activations: dict[str, ActivationQuantizer] = {}
        self.reasons: dict[str, str] = {}
        self.names: tuple[str, ...] = ()
        self.sources: dict[str, tuple[str, ...]] = {}
        self.addends: dict[str, str] = {}
        self.is_begun = False
        self._networks = Networks()

    def observe(self, enabled: bool = True) -> Simulated:
        """Whether batches of training move the ranges of activations; learned steps have none. Returns the module."""
        for quantizer in self.activations.values():
            quantizer.observing = enabled and not quantizer.is_learned
        return self

    def round(self, enabled: bool = True) -> Simulated:
        """Whether layers compute with rounded numbers, but for those that stay in floats. Returns the module."""
        self.round_only(self.quantized_names() if enabled else ())
        return self

    def steps(self) -> list[Tensor]:
        """The steps that are learned. Give them to Adam as a group with a smaller rate: it moves each number by the
        rate, and a weight's step is a hundredth of its weights."""
        return [q.step for q in self.modules() if isinstance(q, _Learned) and q.is_learned]

    def quantized_names(self) -> list[str]:
        """The names of the layers that are quantized."""
        return [name for name in self.names if name not in self.reasons]

    def round_only(self, names: Iterable[str]) -> None:
        """Switch on the quantizers of these layers, and no others."""
        chosen = set(names)
        for name, quantizer in self.weights.items():
            quantizer.enabled = name in chosen
        read = {source for name in chosen for source in self.sources.get(name, ())}
        read.update(self.addends[name] for name in chosen if name in self.addends)
        for name, activation in self.activations.items():
            activation.enabled = name in read

    def network(self, args: Sequence[Any]) -> Network:
        """The network for arguments like these."""
        leaves = flatten(tuple(args))[0]
        kinds = tuple(type_of(x) if is_array(x) else x for x in leaves)
        modes = tuple(m.training for m in self.module.modules())
        return self._networks.get((kinds, modes), self.module, args)

    def latest(self) -> Network:
        """The network of the last arguments."""
        return self._networks.all()[-1]

    def evaluated(self) -> Network:
        """The network of the last arguments, for prediction."""
        for network in reversed(self._networks.all()):
            if not any(network.modes):
                return network
        raise ValueError(f"{self.what}: the module was never called in eval()")

    def state(self) -> list[Any]:
        """The arrays of the module, as networks take them."""
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        return list(named.values())

    def begin(
        self, network: Network, ranges: Mapping[str, tuple[float, float]], weights: Mapping[str, Any]
    ) -> None:
        """Make the quantizers. ranges: of activations; weights: with their batch normalization, by contraction."""
        unmatched = set(self.overrides)
        self.names = tuple(c.name for c in network.contractions.values())
        for contraction in network.contractions.values():
            config, reason = self._choice(contraction, unmatched)
            if config is None:
                self.reasons[contraction.name] = reason
                continue
            if contraction.is_recurrent():
                self.weights[contraction.name] = _recurrent_quantizers(
                    contraction, config, weights[contraction.name]
                )
            if contraction.has_weight:
                axis = channel_axis(contraction) if config.per_channel else None
                self.weights[contraction.name] = WeightQuantizer(
                    contraction.name, config, weights[contraction.name], axis
                )
            if config.activation_bits is None or config.dynamic:
                continue
            self.sources[contraction.name] = tuple(network.quantized[id(s)] for s in contraction.sources)
            rounded = self.sources[contraction.name]
            addend = contraction.addend
            if addend is not None and addend.name in self.sources:
                self.addends[contraction.name] = network.quantized[id(addend.output)]
                rounded = (*rounded, self.addends[contraction.name])
            for source in rounded:
                if source not in self.activations:
                    self.activations[source] = ActivationQuantizer(source, config, *ranges[source])
        if unmatched:
            names = ", ".join(c.name for c in network.contractions.values())
            raise ValueError(
                f"{self.what}: overrides {', '.join(map(repr, sorted(unmatched)))} match no layer; there are: {names}"
            )
        self.is_begun = True
        self.train(self.training)

    def _choice(self, contraction: Contraction, unmatched: set[str]) -> tuple[QConfig | None, str]:
        config = config_of(contraction.name, self.config, self.overrides, self.what)
        for pattern in list(unmatched):
            if config_of(contraction.name, self.config, {pattern: None}, self.what) is None:
                unmatched.discard(pattern)
        if contraction.reason:
            return None, contraction.reason
        if config is None:
            return None, "excluded by overrides"
        op: Any = contraction.node.op
        if contraction.is_recurrent() and not (config.dynamic or config.activation_bits is None):
            return (
                None,
                "states have no range that is known beforehand; dynamic=True, or weights alone, quantizes the layer",
            )
        if config.activation_bits is None:
            weights: list[Any] = [contraction.node.inputs[1]]
            if contraction.is_recurrent():
                parameters = contraction.node.inputs[1 + state_count(op) :]
                weights = [w for w, _ in named_parts(op, parameters).values()]
            elif not isinstance(op, Linear) or not contraction.has_weight:
                return None, "weights alone are quantized in linear and recurrent layers only"
            for weight in weights:
                if config.weight_bits == 4 and weight.shape[1] % config.group_size:
                    return None, f"rows of {weight.shape[1]} are not groups of {config.group_size}"
        elif config.dynamic:
            if not contraction.is_recurrent() and not (
                isinstance(op, Linear | Matmul) and contraction.has_weight
            ):
                return None, "activations have steps of their own rows in linear layers only"
        elif not contraction.has_weight and not config.symmetric:
            return None, "products of two activations need symmetric=True"
        return config, ""

    def forward(self, *args: Any) -> Any:
        if not self.is_begun:
            self._observe_first(args)
        network = self.network(args)
        return network.run(args, self.state(), self.contract, self.quantize)

    def _observe_first(self, args: Sequence[Any]) -> None:
        if (
            _core.capture() is not None
            or _core.get_recorder() is not None
            or not all(type(x) is _core.Tensor for x in flatten(tuple(args))[0])
        ):
            raise RuntimeError(
                f"{self.what}: the first call finds the ranges of activations, and cannot be traced\n"
                "  hint: give example= to prepare_qat, or call the module once before"
            )
        modes = [(m, m.training) for m in self.module.modules()]
        self.module.eval()
        try:
            with no_grad():
                network = self.network(args)
                ranges: dict[str, tuple[float, float]] = {}

                def observe(name: str, x: Any) -> Any:
                    ranges[name] = (F.min(x).item(), F.max(x).item())
                    return x

                weights: dict[str, Any] = {}

                def contract(contraction: Contraction, run: Run) -> Any:
                    weights[contraction.name] = weights_of(contraction, run)
                    return run.call(contraction.node)

                network.run(args, self.state(), contract, observe)
                self.begin(network, ranges, weights)
        finally:
            for m, mode in modes:
                m.training = mode

    def quantize(self, name: str, x: Any) -> Any:
        """For Network.run: a quantized value."""
        quantizer = self.activations.get(name)
        return x if quantizer is None else quantizer(x)

    def _recur(self, op: Any, quantizers: Any, operands: Sequence[Any]) -> Any:
        """Recurrent layers with rounded weights, inputs and states."""
        states = 1 + state_count(op)
        named = named_parts(op, operands[states:])
        rounded = {name: (quantizers.parts[name](w), bias) for name, (w, bias) in named.items()}
        round_input = rounded_rows if quantizers.config.dynamic else lambda x: x
        return run_layers(op, operands[:states], lambda name, x: F.linear(round_input(x), *rounded[name]))

    def contract(self, contraction: Contraction, run: Run) -> Any:
        """For Network.run: a product with its rounded weight."""
        quantizer = self.weights.get(contraction.name)
        node = contraction.node
        op: Any = node.op
        if quantizer is None or (contraction.is_recurrent() and not quantizer.enabled):
            return run.call(node)
        if contraction.is_recurrent():
            return self._recur(op, quantizer, [run(v) for v in node.inputs])
        x = run(node.inputs[0])
        if quantizer.config.dynamic and quantizer.enabled:
            x = rounded_rows(x)
        w, factor = folded(contraction, run)
        bias = run(node.inputs[2]) if len(node.inputs) > 2 else None
        y = op(x, quantizer(w), None) if len(node.inputs) > 2 else op(x, quantizer(w))
        y = y if factor is None else y / along_channels(factor, y, node)
        y = y if bias is None else y + along_channels(bias, y, node)
        if quantizer.enabled and quantizer.correction is not None:
            y = y - along_channels(quantizer.correction, y, node)
        return y


def weights_of(contraction: Contraction, run: Run) -> Any:
    """The weight with the batch normalization behind it, or all parameters of recurrent layers."""
    if contraction.is_recurrent():
        op: Any = contraction.node.op
        return [run(v) for v in contraction.node.inputs[1 + state_count(op) :]]
    return folded(contraction, run)[0]


def _recurrent_quantizers(
    contraction: Contraction, config: QConfig, parameters: Sequence[Any]
) -> RecurrentParts:
    op: Any = contraction.node.op
    axis = 0 if config.per_channel else None
    return RecurrentParts(
        op, parameters, lambda name, weight, _: WeightQuantizer(name, config, weight, axis), config
    )


def rounded_rows(x: Any) -> Any:
    """An activation whose rows are rounded, each with a step of its own."""
    rows, steps = as_rows(x)
    return F.reshape(F.fake_quantize(rows, steps, axis=0, low=-127), shape=x.shape)


def folded(contraction: Contraction, run: Run) -> tuple[Any, Any]:
    """The weight times the factor of the batch normalization behind it, by running statistics, and that factor."""
    w = run(contraction.node.inputs[1])
    norm: Any = contraction.norm
    if norm is None:
        return w, None
    factor = F.rsqrt(run(norm.inputs[2]) + norm.op.eps)
    if norm.inputs[3] is not None:
        factor = factor * run(norm.inputs[3])
    factor = F.where(F.abs(factor) > 1e-12, factor, 1e-12)
    return w * F.reshape(factor, shape=(-1, *(1,) * (w.ndim - 1))), factor


def along_channels(v: Any, y: Any, node: Any) -> Any:
    """A number for each channel in a shape that broadcasts to the contraction's result."""
    return v if isinstance(node.op, Linear | Matmul) else F.reshape(v, shape=(-1, *(1,) * (y.ndim - 2)))


def module_of(module: Module | Trace[..., Any], what: str) -> Module:
    """The module itself, or the one that is traced; TypeError for anything else."""
    function: Any = module.function if isinstance(module, Trace) else module
    if not isinstance(function, Module):
        hint = (
            "\n  hint: SymbolModule(symbol, arrays) is a module"
            if hasattr(function, "list_arguments")
            else ""
        )
        raise TypeError(
            f"{what}: takes a Module or wf.trace of one, got {type(module).__name__} of {function!r}{hint}"
        )
    return function


def prepare_qat(
    module: Module | Trace[..., Any],
    qconfig: QConfig | str | None = None,
    example: Any = None,
    overrides: Mapping[str, QConfig | str | None] | None = None,
) -> Simulated:
    """The module for quantization-aware training: its products compute with rounded weights and activations.

    qconfig: a QConfig or the name of a preset. example: an argument of the module, or a tuple of them; ranges of
    activations begin with what it gives. Without one they begin with the first call, which cannot be traced; learned
    steps need it, as they are parameters. overrides: choices by patterns of names ("head.*"), later ones first; None
    leaves a layer in floats. The module itself is in the result, and is trained with it. Raises ValueError for
    unknown presets and for patterns that match no layer.
    Source: Jacob et al. 2018, Quantization and training of neural networks for efficient integer-arithmetic-only
    inference.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> net = Q.prepare_qat(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)), example=wf.ones((1, 4)))
    >>> net(wf.ones((3, 4))).shape, sorted(net.activations)
    ((3, 2), ['0.input', '2.input'])
    """
    config = as_config(qconfig, "prepare_qat")
    choices = dict(overrides or {})
    simulated = Simulated(module_of(module, "prepare_qat"), config, choices, "prepare_qat")
    learns = [
        c for c in (config, *choices.values()) if isinstance(c, QConfig) and c.estimator != "straight_through"
    ]
    if example is not None:
        simulated._observe_first(example if isinstance(example, tuple) else (example,))
    elif learns or any(isinstance(c, str) and c in ("lsq", "tqt") for c in choices.values()):
        raise ValueError(
            "prepare_qat: learned steps are parameters, which begin with example=; give an argument"
        )
    return simulated
