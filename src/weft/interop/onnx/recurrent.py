"""ONNX's recurrent layers: weft's where they compute the same, else a loop over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import functional as F
from weft.arrays.creation import arange, zeros
from weft.interop.onnx.calls import Call, Known, converts, tensor
from weft.interop.onnx.elementwise import text

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
USUAL = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # i o f c -> i f c o; z r h -> r z n

# name -> (defaults of alpha and beta, or fewer where it takes fewer; the function)
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Any]]] = {
    "relu": ((), F.relu),
    "tanh": ((), F.tanh),
    "sigmoid": ((), F.sigmoid),
    "softsign": ((), F.softsign),
    "softplus": ((), F.softplus),
    "leakyrelu": ((0.01,), lambda x, a: F.leaky_relu(x, negative_slope=a)),
    "thresholdedrelu": ((1.0,), lambda x, a: F.where(x > a, x, 0.0).astype(x.dtype)),
    "elu": ((1.0,), lambda x, a: F.elu(x, alpha=a)),
    "affine": ((1.0, 0.0), lambda x, a, b: x * a + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: F.tanh(x * b) * a),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: F.clip(x * a + b, 0.0, 1.0)),
}


class Layer(NamedTuple):
    """One direction: its parameters, [gates*h, c], [gates*h, h], [gates*h] twice, [3*h] or None, and activations."""

    w: Any
    r: Any
    w_bias: Any
    r_bias: Any
    peepholes: Any
    activations: Sequence[Callable[[Any], Any]]
    is_reversed: bool


@converts("LSTM", "GRU", "RNN")
def recurrent(call: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *more: Any) -> Any:
    x, w, r, b = tensor(x), tensor(w), tensor(r), tensor(b)
    h, count, is_lstm = int(r.shape[-1]), int(w.shape[0]), call.operator == "LSTM"
    given_states, peepholes = more[: 1 + is_lstm], tensor(more[2]) if len(more) > 2 else None
    batch_first = bool(call.get("layout", 0))
    x = F.swapaxes(x, 0, 1) if batch_first else x
    states = []
    for k in range(1 + is_lstm):
        state = tensor(given_states[k]) if k < len(given_states) else None
        if state is None:
            state = zeros((count, x.shape[1], h), dtype=x.dtype)
        elif batch_first:
            state = F.swapaxes(state, 0, 1)
        states.append(state)
    if isinstance(lengths, Known) and (lengths.array == x.shape[0]).all():
        lengths = None
    bias = zeros((count, 2 * GATES[call.operator] * h), dtype=x.dtype) if b is None else b
    run = as_layer if lengths is None and peepholes is None and is_usual(call, count) else by_steps
    y, last = run(call, x, w, r, bias, states, tensor(lengths), peepholes)  # y: [t, n, directions * h]
    y = F.permute_dims(y.reshape((*y.shape[:2], count, h)), (0, 2, 1, 3))
    if batch_first:
        y, last = F.permute_dims(y, (2, 0, 1, 3)), [F.swapaxes(s, 0, 1) for s in last]
    return (y, *last)


def names_of_activations(call: Call, count: int) -> list[str]:
    return [text(f).lower() for f in call.get("activations") or USUAL[call.operator] * count]


def is_usual(call: Call, count: int) -> bool:
    """Whether weft's layer computes the same."""
    names = names_of_activations(call, count)
    if call.get("clip") or call.get("input_forget", 0):
        return False
    if call.operator == "GRU" and not call.get("linear_before_reset", 0):
        return False
    return names == USUAL[call.operator] * count or (call.operator == "RNN" and set(names) == {"relu"})


def as_layer(
    call: Call, x: Any, w: Any, r: Any, b: Any, states: Sequence[Any], lengths: Any, peepholes: Any
) -> tuple[Any, list[Any]]:
    """The layer by weft's operator."""
    gates, h, count = GATES[call.operator], int(r.shape[-1]), int(w.shape[0])

    def ordered(m: Any) -> Any:
        return F.concat(*[m[k * h : (k + 1) * h] for k in ORDER[call.operator]], axis=0)

    parameters = []
    for d in range(count):
        halves = b[d, : gates * h], b[d, gates * h :]
        parameters += [ordered(w[d, :]), ordered(r[d, :]), *map(ordered, halves)]
    is_reversed = text(call.get("direction", "forward")) == "reverse"
    extra = {"nonlinearity": names_of_activations(call, count)[0]} if call.operator == "RNN" else {}
    function: Any = {"LSTM": F.lstm, "GRU": F.gru, "RNN": F.rnn}[call.operator]
    x = F.flip(x, axis=0) if is_reversed else x
    y, *last = function(x, *states, *parameters, bidirectional=count == 2, **extra)
    return F.flip(y, axis=0) if is_reversed else y, last


def by_steps(
    call: Call, x: Any, w: Any, r: Any, b: Any, states: Sequence[Any], lengths: Any, peepholes: Any
) -> tuple[Any, list[Any]]:
    """The layer as a loop, with whatever options it has."""
    count, rows = int(w.shape[0]), int(w.shape[1])
    functions = activations(call, count)
    each = len(functions) // count
    outputs, last = [], []
    for d in range(count):
        layer = Layer(
            w[d, :],
            r[d, :],
            b[d, :rows],
            b[d, rows:],
            None if peepholes is None else peepholes[d, :],
            functions[d * each : (d + 1) * each],
            d == 1 or text(call.get("direction", "forward")) == "reverse",
        )
        y, final = one_direction(call, layer, x, tuple(s[d, :] for s in states), lengths)
        outputs.append(y)
        last.append(final)
    return F.concat(*outputs, axis=-1), [F.stack(*s, axis=0) for s in zip(*last, strict=True)]


def activations(call: Call, count: int) -> list[Callable[[Any], Any]]:
    """The activations in order; those that take alpha or beta consume the lists of the node, one after the other."""
    names = names_of_activations(call, count)
    if unknown := [name for name in names if name not in ACTIVATIONS]:
        raise call.fail(f"activation {unknown[0]!r} is not supported")
    if len(names) != len(USUAL[call.operator]) * count:
        raise call.fail(f"{len(names)} activations, {len(USUAL[call.operator]) * count} expected")
    given = iter(call.get("activation_alpha") or ()), iter(call.get("activation_beta") or ())

    def bound(name: str, clip: float | None) -> Callable[[Any], Any]:
        defaults, function = ACTIVATIONS[name]
        chosen = [next(numbers, default) for numbers, default in zip(given, defaults, strict=False)]
        return lambda x: function(F.clip(x, -clip, clip) if clip else x, *chosen)

    # The cell itself, the input of an LSTM's third activation, is not clipped, as in ONNX Runtime.
    return [
        bound(name, None if call.operator == "LSTM" and k % 3 == 2 else call.get("clip"))
        for k, name in enumerate(names)
    ]


def one_direction(
    call: Call, layer: Layer, x: Any, states: tuple[Any, ...], lengths: Any
) -> tuple[Any, tuple[Any, ...]]:
    """(y of all steps, last states). Steps from lengths on keep the states, and their y is 0.

    A reversed sequence begins at its last step, which is the first that changes the states.
    """
    from weft.control_flow import foreach

    cell: Any = {"LSTM": lstm_cell, "GRU": gru_cell, "RNN": rnn_cell}[call.operator]
    steps = arange(x.shape[0])
    projected = F.linear(x, layer.w, layer.w_bias)
    if layer.is_reversed:
        projected, steps = F.flip(projected, axis=0), F.flip(steps, axis=0)

    def step(slices: Any, before: tuple[Any, ...]) -> Any:
        inputs, k = slices
        after = cell(call, layer, inputs, *before)
        if lengths is None:
            return after[0], after
        goes_on = F.expand_dims(F.less(k, lengths), axis=(-1,))
        after = tuple(F.where(goes_on, new, old) for new, old in zip(after, before, strict=True))
        return F.where(goes_on, after[0], 0.0).astype(x.dtype), after

    y, last = foreach(step, (projected, steps), states)
    return F.flip(y, axis=0) if layer.is_reversed else y, last


def _parts(x: Any, count: int) -> list[Any]:
    return list(F.split(x, sizes=(int(x.shape[-1]) // count,) * count, axis=-1))


def lstm_cell(call: Call, layer: Layer, inputs: Any, h: Any, c: Any) -> tuple[Any, Any]:
    gate, candidate, output = layer.activations
    i, o, f, g = _parts(inputs + F.linear(h, layer.r, layer.r_bias), 4)
    p_i, p_o, p_f = (None,) * 3 if layer.peepholes is None else _parts(layer.peepholes, 3)
    i = gate(i if p_i is None else i + p_i * c)
    f = 1.0 - i if call.get("input_forget", 0) else gate(f if p_f is None else f + p_f * c)
    c = f * c + i * candidate(g)
    o = gate(o if p_o is None else o + p_o * c)
    return o * output(c), c


def gru_cell(call: Call, layer: Layer, inputs: Any, h: Any) -> tuple[Any]:
    gate, candidate = layer.activations
    size = int(h.shape[-1])
    in_z, in_r, in_h = _parts(inputs, 3)
    hidden_z, hidden_r = _parts(F.linear(h, layer.r[: 2 * size], layer.r_bias[: 2 * size]), 2)
    z, reset = gate(in_z + hidden_z), gate(in_r + hidden_r)
    r, bias = layer.r[2 * size :], layer.r_bias[2 * size :]
    hidden = (
        reset * F.linear(h, r, bias) if call.get("linear_before_reset", 0) else F.linear(reset * h, r, bias)
    )
    return ((1.0 - z) * candidate(in_h + hidden) + z * h,)


def rnn_cell(call: Call, layer: Layer, inputs: Any, h: Any) -> tuple[Any]:
    return (layer.activations[0](inputs + F.linear(h, layer.r, layer.r_bias)),)
