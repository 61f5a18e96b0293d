"""Quantization of trained networks: ranges from batches, and what makes rounding hurt less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft import distributed
from weft import functional as F
from weft.gradients.gradient import no_grad
from weft.module.module import Module
from weft.ops.families.activation import Relu
from weft.ops.families.convolution import Convolution, TransposedConvolution
from weft.ops.families.matrix import Linear
from weft.ops.families.pooling import AveragePooling, MaxPooling
from weft.ops.node import Value
from weft.quantization.config import METHODS, QConfig, as_config
from weft.quantization.network import Contraction, Network, Run
from weft.quantization.observers import make_observer
from weft.quantization.rounding import SEARCHES, choose_integers
from weft.quantization.sensitivities import Sensitivity
from weft.quantization.simulated import Simulated, module_of, weights_of
from weft.traces.trace import Trace

__all__ = ["calibrate", "equalize", "exclude", "sensitivity"]


def calibrate(
    module: Module | Trace[..., Any],
    batches: Iterable[Any],
    method: str | None = None,
    qconfig: QConfig | str | None = None,
    overrides: Mapping[str, QConfig | str | None] | None = None,
    correct_bias: bool = False,
    rounding: str = "nearest",
) -> Simulated:
    """The module with the ranges of its activations from batches: computes what convert's integers will.

    module: a Module, or wf.trace of one; it is set to eval(). batches: its arguments, one array or a tuple each.
    method: the observer of the QConfig. overrides: as for prepare_qat. correct_bias: the mean error of each channel,
    as far as it comes from the weight, is taken off. rounding: of weights: "nearest"; "gptq", where the error of each
    column is made up for by those that follow; "descent", where each is the best for the others. The latter two look
    at the batches, keep k x k numbers for a layer of k inputs, and are for layers without groups; others are rounded
    to the nearest. Raises TypeError for another callable, ValueError without batches, for values that are not finite,
    and for a layer that no batch reaches.
    Source: Nagel et al. 2021, A white paper on neural network quantization; Frantar et al. 2022, GPTQ; Nagel et al.
    2020, Up or down? Adaptive rounding for post-training quantization.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> net = Q.calibrate(M.Linear(4, 2), [wf.ones((8, 4))], method="l2")
    >>> net(wf.ones((3, 4))).shape, net.activations["linear.input"].dtype
    ((3, 2), 'uint8')
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"calibrate: method must be one of {', '.join(METHODS)}, got {method!r}")
    if rounding not in SEARCHES:
        raise ValueError(f"calibrate: rounding must be one of {', '.join(SEARCHES)}, got {rounding!r}")
    config = as_config(qconfig, "calibrate")
    if method is not None:
        config = config.replaced(observer=method)
    module = module_of(module, "calibrate")
    calls = [x if isinstance(x, tuple) else (x,) for x in batches]
    if not calls:
        raise ValueError(
            "calibrate: batches is empty; give arguments of the module, such as those of a loader"
        )
    module.eval()
    simulated = Simulated(module, config, overrides or {}, "calibrate")
    observers: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    with no_grad():
        for args in calls:
            network = simulated.network(args)
            _observe(simulated, network, args, observers, weights)
        for observer in observers.values():
            observer.synchronize()
        ranges = {name: observer.range() for name, observer in observers.items()}
        simulated.begin(network, ranges, weights)
        simulated.eval()
        for quantizer in simulated.activations.values():
            quantizer.observing = False
        choose_integers(simulated, calls, rounding)
        if correct_bias:
            _correct(simulated, calls)
    return simulated


def _observe(
    simulated: Simulated,
    network: Network,
    args: Sequence[Any],
    observers: dict[str, Any],
    weights: dict[str, Any],
) -> None:
    config = simulated.config

    def observe(name: str, x: Any) -> Any:
        if name not in observers:
            observers[name] = make_observer(config.observer, name, config.momentum, config.percentile)
        observers[name].update(x)
        return x

    def contract(contraction: Contraction, run: Run) -> Any:
        if contraction.name not in weights:
            weights[contraction.name] = weights_of(contraction, run)
        return run.call(contraction.node)

    network.run(args, simulated.state(), contract, observe)


def _correct(simulated: Simulated, calls: Sequence[Any]) -> None:
    """Take off the mean, over batches and positions, of what the rounding of each weight adds to its result."""
    totals: dict[str, Any] = {}

    def contract(contraction: Contraction, run: Run) -> Any:
        if contraction.is_recurrent():
            return run.call(contraction.node)
        y = run.call(contraction.node)[0]
        if contraction.name in simulated.weights:
            error = simulated.contract(contraction, run) - y
            is_image = isinstance(contraction.node.op, Convolution | TransposedConvolution)
            axis = 1 if is_image else error.ndim - 1
            mean = F.mean(error, axis=tuple(d for d in range(error.ndim) if d != axis))
            totals[contraction.name] = mean + totals.get(contraction.name, 0.0)
        return y

    for args in calls:
        simulated.network(args).run(args, simulated.state(), contract)
    for name, total in totals.items():
        mean = total / float(len(calls))
        if distributed.world_size() > 1:
            mean = distributed.all_reduce(mean, op="mean")
        simulated.weights[name].register_buffer("correction", mean)


def equalize(module: Module, example: Any, rounds: int = 2) -> list[tuple[str, str]]:
    """Give channels between two layers ranges alike, by parameters alone; the module computes the same as before.

    For pairs of a linear or convolution layer, possibly with a batch normalization, and another one that alone reads
    its result, through ReLU and pooling at most: channel i of the first is divided by s_i, and that of the second is
    multiplied. example: an argument of the module, or a tuple of them. rounds: how often all pairs are done. Writes to
    parameters in place; returns the names of the pairs. The module is set to eval().
    Source: Nagel et al. 2019, Data-free quantization through weight equalization and bias correction.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> Q.equalize(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)), wf.ones((1, 4)))
    [('0', '2')]
    """
    module.eval()
    args = example if isinstance(example, tuple) else (example,)
    network = Network(module, args)
    state = list((dict(module.named_parameters()) | dict(module.named_buffers())).values())
    arrays = network.arrays_of(state)
    pairs = list(_pairs(network, arrays))
    with no_grad():
        for _ in range(rounds):
            for first, second in pairs:
                _equalize(first, second, arrays)
    return [(first.name, second.name) for first, second in pairs]


def _pairs(network: Network, arrays: Mapping[int, Any]) -> Iterable[tuple[Contraction, Contraction]]:
    """Layers whose weights are parameters themselves, each the only reader of the one before."""
    for first in network.contractions.values():
        if not _is_layer(first, arrays):
            continue
        value: Value = first.node.outputs[0] if first.norm is None else first.norm.outputs[0]
        while True:
            readers = network.readers.get(id(value), [])
            if len(readers) != 1 or network.is_output(value):
                break
            reader = readers[0]
            second = network.contractions.get(id(reader))
            if second is not None:
                if _is_layer(second, arrays) and type(second.node.op) is type(first.node.op):
                    yield first, second
                break
            if not isinstance(reader.op, Relu | MaxPooling | AveragePooling):
                break
            value = reader.outputs[0]


def _is_layer(contraction: Contraction, arrays: Mapping[int, Any]) -> bool:
    op: Any = contraction.node.op
    if contraction.reason or not contraction.has_weight or not isinstance(op, Linear | Convolution):
        return False
    if isinstance(op, Convolution) and op.groups != 1:
        return False
    operands = [*contraction.node.inputs[1:], *(contraction.norm.inputs[1:] if contraction.norm else ())]
    scaled = contraction.norm is None or contraction.norm.inputs[3] is not None
    return scaled and all(v is None or id(v) in arrays for v in operands)


def _equalize(first: Contraction, second: Contraction, arrays: Mapping[int, Any]) -> None:
    def parameter(v: Any) -> Any:
        return None if v is None else arrays[id(v)]

    w1, w2 = parameter(first.node.inputs[1]), parameter(second.node.inputs[1])
    norm: Any = first.norm
    factor: Any = 1.0
    if norm is not None:
        factor = F.abs(parameter(norm.inputs[3])) * F.rsqrt(parameter(norm.inputs[2]) + norm.op.eps)
    range1 = F.max(F.abs(w1), axis=tuple(range(1, w1.ndim))) * factor
    range2 = F.max(F.abs(w2), axis=tuple(d for d in range(w2.ndim) if d != 1))
    used = F.logical_and(range1 > 0, range2 > 0)
    scale = F.where(used, F.sqrt(range1 / F.where(used, range2, 1.0)), 1.0)
    scale = F.where(scale > 0, scale, 1.0)
    if norm is not None:
        shrunk = [parameter(norm.inputs[3]), parameter(norm.inputs[4])]
    else:
        bias = parameter(first.node.inputs[2])
        shrunk = [w1, bias]
    for p in shrunk:
        if p is not None:
            p[...] = p / F.reshape(scale, shape=(-1, *(1,) * (p.ndim - 1)))
    w2[...] = w2 * F.reshape(scale, shape=(1, -1, *(1,) * (w2.ndim - 2)))


def sensitivity(simulated: Simulated, evaluate: Callable[[Module], float]) -> Sensitivity:
    """How much a measure drops if one layer alone is quantized, by the layer's name, the largest drop first.

    evaluate: gives the measure for the module that it is called with, such as its accuracy. Layers that are not
    quantized are left out. Returns a dict, which is printed as a table and drawn by its to_svg(). Raises ValueError
    for a measure that is not finite, with the layer's name.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> x, net = wf.ones((8, 4)), M.Linear(4, 2)
    >>> y, simulated = net(x), Q.calibrate(net, [x])
    >>> Q.sensitivity(simulated, lambda f: -abs(f(x) - y).max().item())["linear"] < 0.1
    True
    """
    quantizers = [*simulated.weights.values(), *simulated.activations.values()]
    before = [q.enabled for q in quantizers]
    drops: dict[str, float] = {}
    try:
        simulated.round(False)
        base = _finite(evaluate(simulated), "without rounding")
        for name in simulated.quantized_names():
            simulated.round_only((name,))
            drops[name] = base - _finite(evaluate(simulated), f"with {name!r} alone quantized")
    finally:
        for q, enabled in zip(quantizers, before, strict=True):
            q.enabled = enabled
    return Sensitivity(sorted(drops.items(), key=lambda item: -item[1]))


def _finite(measure: float, when: str) -> float:
    number = float(measure)
    if not math.isfinite(number):
        raise ValueError(f"sensitivity: evaluate gives {number} {when}; it must be finite")
    return number


def exclude(simulated: Simulated, evaluate: Callable[[Module], float], most: float) -> list[str]:
    """Leave layers in floats, the most sensitive first, until a measure has dropped by at most `most`.

    evaluate: as for sensitivity; the drop is that from the network without rounding. Returns the names of the layers;
    report and convert know of them. Raises ValueError if most is negative.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> x, net = wf.random.normal(shape=(8, 4)), M.Linear(4, 2)
    >>> y, simulated = net(x), Q.calibrate(net, [x])
    >>> Q.exclude(simulated, lambda f: -abs(f(x) - y).max().item(), most=0.)
    ['linear']
    """
    if not most >= 0:
        raise ValueError(f"exclude: most must be at least 0, got {most!r}")
    order = list(sensitivity(simulated, evaluate))
    rounded = dict.fromkeys(order)
    quantizers = [*simulated.weights.values(), *simulated.activations.values()]
    before = [q.enabled for q in quantizers]
    simulated.round(False)
    base = float(evaluate(simulated))
    for q, enabled in zip(quantizers, before, strict=True):
        q.enabled = enabled
    excluded: list[str] = []
    while order and base - float(evaluate(simulated)) > most:
        name = order.pop(0)
        excluded.append(name)
        del rounded[name]
        simulated.reasons[name] = f"excluded: the measure dropped by more than {most:g}"
        simulated.round_only(rounded)
    return excluded
