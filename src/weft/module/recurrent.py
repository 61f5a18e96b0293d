"""Recurrent layers over sequences."""

from __future__ import annotations

from typing import Any, ClassVar

from weft import _core
from weft import functional as F
from weft.arrays.creation import arange, full, zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, float64
from weft.base.errors import ShapeError
from weft.control_flow import foreach
from weft.module.linear import check_dims, hint_at_float64, parameter, uniform_fan_in_
from weft.module.module import Module
from weft.ops import functions as operators

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


class _Recurrent(Module):
    """Base: for every layer and direction weight_ih, weight_hh, bias_ih and bias_hh, named as PyTorch does.

    Without biases there are no such parameters, and the operators are given zeros in their place.
    """

    gates: ClassVar[int]
    function: ClassVar[str]  # of weft.functional
    state_names: ClassVar[tuple[str, ...]] = ("h0",)
    _no_bias: Tensor  # where there are no biases
    repr_attributes = ("input_size", "hidden_size", "num_layers", "bidirectional")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        bias: bool = True,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if num_layers < 1 or not 0 <= dropout <= 1:
            raise ValueError(
                f"{type(self).__name__}: needs at least 1 layer and dropout in 0..1, got {num_layers} and {dropout}"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.has_bias = bias
        if not bias:
            no_bias = zeros(self.gates * hidden_size, dtype=dtype, device=device)
            self.register_buffer("_no_bias", no_bias, persistent=False)
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else self._state_sizes[0] * self._directions
            shapes = self._shapes(inputs)
            for names in self._names(layer):
                for name, (kind, shape) in zip(names, shapes.items(), strict=True):
                    if bias or not kind.startswith("bias"):
                        setattr(self, name, parameter(shape, dtype, device))
        self.reset()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        """Features of each state; the first is the output as well."""
        return (self.hidden_size,) * len(self.state_names)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters of a layer's direction, by the kinds that their names begin with."""
        rows = self.gates * self.hidden_size
        shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, self._state_sizes[0])}
        return {**shapes, "bias_ih": (rows,), "bias_hh": (rows,)}

    def _names(self, layer: int) -> list[list[str]]:
        """The names of a layer's parameters, by direction."""
        kinds = self._shapes(0)
        return [[f"{kind}_l{layer}{end}" for kind in kinds] for end in ("", "_reverse")[: self._directions]]

    def _values(self, names: list[str]) -> list[Tensor]:
        """The parameters of these names; zeros for biases that the layer does not have."""
        if self.has_bias:
            return [getattr(self, name) for name in names]
        return [self._no_bias if name.startswith("bias") else getattr(self, name) for name in names]

    def _parameters_of(self, *layers: int) -> list[Tensor]:
        return [value for layer in layers for names in self._names(layer) for value in self._values(names)]

    def reset(self) -> None:
        """Draw new initial values, uniform within 1 / sqrt(hidden_size)."""
        uniform_fan_in_(self.hidden_size, *self.parameters())

    def _run(
        self, x: Tensor, states: list[Tensor], parameters: list[Tensor], bidirectional: bool
    ) -> tuple[Tensor, ...]:
        y: tuple[Tensor, ...] = getattr(F, self.function)(
            x, *states, *parameters, bidirectional=bidirectional, **self._options
        )
        return y

    @property
    def _options(self) -> dict[str, Any]:
        """Attributes of the operator beside `bidirectional`."""
        return {}

    def _first_states(self, x: Tensor) -> list[Tensor]:
        layers = self.num_layers * self._directions
        if not hasattr(x, "shape"):  # a symbol: n is not known yet
            row = F.sum(x, axis=(0, 2), keepdims=True)
            return [operators.filled_like(F.tile(row, (layers, 1, size))) for size in self._state_sizes]
        shapes = [(layers, x.shape[1], size) for size in self._state_sizes]
        return [zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes]

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        check_dims(self, x, 3)
        self._check_features(x)
        if self.batch_first:
            x = F.swapaxes(x, 0, 1)
        states = self._first_states(x) if state is None else self._listed_states(state)
        if lengths is not None or self._is_stepped:
            y, last = self._direction_by_direction(x, states, lengths)
        elif self.dropout and self.training and self.num_layers > 1:
            y, last = self._layer_by_layer(x, states)
        else:
            parameters = self._parameters_of(*range(self.num_layers))
            y, *last = self._run(x, states, parameters, self.bidirectional)
        if getattr(y, "dtype", None) is float64:
            hint_at_float64(self, x, self._parameters_of(0)[1])
        if self.batch_first:
            y = F.swapaxes(y, 0, 1)
        return y, (tuple(last) if len(self.state_names) > 1 else last[0])

    _is_stepped = False  # whether no operator has all of it

    def _check_features(self, x: Any) -> None:
        """Raise ShapeError unless x has the features that weight_ih takes; a symbol's are not known yet."""
        if hasattr(x, "shape") and isinstance(x.shape[-1], int) and x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: x has {x.shape[-1]} features in its last axis, input_size is "
                f"{self.input_size}: x is {_core.describe(x)}"
            )

    def _listed_states(self, state: Any) -> list[Any]:
        """The states of a call as a list. Raises TypeError if there are more or fewer than the layer has."""
        states = list(state) if isinstance(state, tuple | list) else [state]
        names = self.state_names
        if len(states) != len(names):
            expected = f"a pair ({', '.join(names)}) of arrays" if len(names) > 1 else f"one array {names[0]}"
            shape = f"[{self.num_layers * self._directions}, n, {self.hidden_size}]"
            raise TypeError(
                f"{type(self).__name__}: state must be {expected} of the shape {shape}, got {len(states)} arrays: "
                + ", ".join(map(_core.describe, states))
            )
        return states

    def _layer_by_layer(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """With zeros drawn between the layers."""
        step, ends = self._directions, []
        for layer in range(self.num_layers):
            if layer:
                x = F.dropout(x, self.dropout)
            layer_states = [s[layer * step : (layer + 1) * step] for s in states]
            x, *last = self._run(x, layer_states, self._parameters_of(layer), self.bidirectional)
            ends.append(last)
        return x, [F.concat(list(each), axis=0) for each in zip(*ends, strict=True)]

    def _direction_by_direction(
        self, x: Tensor, states: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Each sequence up to its length, in the other direction from there to its beginning."""
        if lengths is None:
            lengths = full((x.shape[1],), x.shape[0], dtype="int64", device=x.device)
        is_inside = (arange(x.shape[0], device=x.device)[:, None] < lengths)[:, :, None]
        ends = []
        for layer in range(self.num_layers):
            if layer:
                x = F.dropout(x, self.dropout, training=self.training)
            outputs = []
            for direction, names in enumerate(self._names(layer)):
                k = layer * self._directions + direction
                inputs = F.sequence_reverse(x, lengths) if direction else x
                own = [s[k : k + 1] for s in states]
                y, *last = self._until(inputs, own, self._values(names), is_inside, lengths)
                outputs.append(F.sequence_reverse(y, lengths) if direction else y)
                ends.append(last)
            x = F.concat(outputs, axis=-1)
        return x, [F.concat(list(each), axis=0) for each in zip(*ends, strict=True)]

    def _until(
        self,
        x: Tensor,
        states: list[Tensor],
        parameters: list[Tensor],
        is_inside: Tensor,
        lengths: Tensor,
    ) -> tuple[Tensor, ...]:
        """Output, 0 behind the length, and states at the length, of one layer and direction."""
        y, *_ = self._run(x, states, parameters, False)
        return self._ended(y, states[0], is_inside, lengths)

    def _ended(self, y: Tensor, h0: Tensor, is_inside: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """y with 0 behind the lengths, and what it is at the last place of each; h0 where there is none."""
        count = lengths.astype("int64")[None, :, None]
        at_end = F.take_along_axis(y, F.broadcast_to(F.maximum(count - 1, 0), h0.shape), axis=0)
        return F.where(is_inside, y, 0), F.where(count > 0, at_end, h0)


class LSTM(_Recurrent):
    """Layers of long short-term memory: x [t, n, input_size] -> y [t, n, hidden_size], (h, c).

    forward(x, (h0, c0), lengths): states [layers * directions, n, hidden_size], zeros by default; it returns the last
    ones. lengths: int[n], the steps of each sequence, by default t; behind them y is 0, the states are those at the
    last step, where the other direction begins. batch_first: x and y are [n, t, ...]. dropout: the probability of zeros
    between layers, in training. bidirectional: y has both directions, [..., 2 hidden_size]. bias=False: there are no
    biases. proj_size: h becomes weight_hr h, of so many features; it is computed step by step.
    Parameters of layer k: weight_ih_l{k} [4 hidden_size, inputs],
    weight_hh_l{k} [4 hidden_size, hidden_size], bias_ih_l{k}, bias_hh_l{k} [4 hidden_size], gates in the order i, f, g,
    o, and with proj_size weight_hr_l{k} [proj_size, hidden_size]; those of the other direction end with _reverse. See
    weft.functional.lstm.
    Source: Sak, Senior, Beaufays 2014, Long short-term memory based recurrent neural network architectures (proj_size).

    >>> import weft as wf
    >>> y, (h, c) = LSTM(3, 4, num_layers=2, batch_first=True)(wf.zeros((5, 7, 3)))
    >>> y.shape, h.shape, c.shape
    ((5, 7, 4), (2, 5, 4), (2, 5, 4))
    >>> y, (h, c) = LSTM(3, 4, proj_size=2)(wf.ones((7, 2, 3)), lengths=wf.tensor([7, 3]))
    >>> h.shape, c.shape, y[3:, 1].sum().item()
    ((1, 2, 2), (1, 2, 4), 0.0)
    """

    gates = 4
    function = "lstm"
    state_names = ("h0", "c0")

    def __init__(
        self, input_size: int, hidden_size: int, *args: Any, proj_size: int = 0, **keywords: Any
    ) -> None:
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"LSTM: proj_size must be from 0 to {hidden_size - 1}, got {proj_size}")
        self.proj_size = proj_size
        super().__init__(input_size, hidden_size, *args, **keywords)

    @property
    def _is_stepped(self) -> bool:  # type: ignore[override]
        return self.proj_size > 0

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        projection = {"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {}
        return {**super()._shapes(inputs), **projection}

    def _until(
        self,
        x: Tensor,
        states: list[Tensor],
        parameters: list[Tensor],
        is_inside: Tensor,
        lengths: Tensor,
    ) -> tuple[Tensor, ...]:
        if self.proj_size:
            return self._projected(x, states, parameters, is_inside)
        # c stays as it is behind the length: one more input there closes the gate i and opens f, exactly.
        weight, *others = parameters
        outside = 1 - is_inside.astype(x.dtype)
        gate = zeros((self.hidden_size, 1), dtype=weight.dtype, device=weight.device)
        column = F.concat([gate - CLOSED, gate + CLOSED, gate, gate], axis=0)
        parameters = [F.concat([weight, column], axis=1), *others]
        y, _, c = self._run(F.concat([x, outside], axis=-1), states, parameters, False)
        return *self._ended(y, states[0], is_inside, lengths), c

    def _projected(
        self, x: Tensor, states: list[Tensor], parameters: list[Tensor], is_inside: Tensor
    ) -> tuple[Tensor, ...]:
        weight_ih, weight_hh, bias_ih, bias_hh, weight_hr = parameters

        def step(inputs: Any, state: Any) -> Any:
            (from_x, is_here), (h, c) = inputs, state
            i, f, g, o = F.chunk(from_x + F.linear(h, weight_hh, bias_hh), 4, axis=-1)
            next_c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
            next_h = F.linear(F.sigmoid(o) * F.tanh(next_c), weight_hr)
            state = F.where(is_here, next_h, h), F.where(is_here, next_c, c)
            return F.where(is_here, next_h, 0), state

        inputs = (F.linear(x, weight_ih, bias_ih), is_inside)
        y, (h, c) = foreach(step, inputs, tuple(s[0] for s in states))
        return y, h[None], c[None]


CLOSED = 1e4  # sigmoid(-CLOSED) is 0 and sigmoid(CLOSED) is 1 in every type, and float16 has it


class GRU(_Recurrent):
    """Layers of gated recurrent units: x [t, n, input_size] -> y [t, n, hidden_size], h. See LSTM.

    Parameters have 3 hidden_size rows, gates in the order of weft.functional.gru.

    >>> import weft as wf
    >>> y, h = GRU(3, 4, bidirectional=True)(wf.zeros((7, 5, 3)))
    >>> y.shape, h.shape
    ((7, 5, 8), (2, 5, 4))
    """

    gates = 3
    function = "gru"


class RNN(_Recurrent):
    """Layers of plain recurrent units: x [t, n, input_size] -> y [t, n, hidden_size], h. See LSTM.

    nonlinearity: "tanh" or "relu". Raises ValueError for another.

    >>> import weft as wf
    >>> RNN(3, 4)(wf.zeros((7, 5, 3)))[0].shape
    (7, 5, 4)
    """

    gates = 1
    function = "rnn"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        nonlinearity: str = "tanh",
        bias: bool = True,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        made: dict[str, Any] = {"bias": bias, "dtype": dtype, "device": device}
        super().__init__(input_size, hidden_size, num_layers, batch_first, dropout, bidirectional, **made)

    @property
    def _options(self) -> dict[str, Any]:
        return {} if self.nonlinearity == "tanh" else {"nonlinearity": self.nonlinearity}


class _Cell(Module):
    """Base: one step; weight_ih, weight_hh, bias_ih and bias_hh, or biases that are None."""

    gates: ClassVar[int]
    repr_attributes = ("input_size", "hidden_size")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = self.gates * hidden_size
        self.weight_ih = parameter((rows, input_size), dtype, device)
        self.weight_hh = parameter((rows, hidden_size), dtype, device)
        self.bias_ih = parameter(rows, dtype, device) if bias else None
        self.bias_hh = parameter(rows, dtype, device) if bias else None
        self.reset()

    def reset(self) -> None:
        """Draw new initial values, uniform within 1 / sqrt(hidden_size)."""
        uniform_fan_in_(self.hidden_size, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def _state(self, x: Tensor, h: Tensor | None) -> Tensor:
        check_dims(self, x, 2)
        return zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=x.device) if h is None else h

    def _gates(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """What comes from x and what comes from h, [n, gates hidden_size] each."""
        return F.linear(x, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)


class RNNCell(_Cell):
    """One step of a plain recurrent unit: tanh(W_ih x + b_ih + W_hh h + b_hh).

    forward(x, h=None): x [n, input_size], h [n, hidden_size], zeros by default. Returns the new h.

    >>> import weft as wf
    >>> RNNCell(3, 4)(wf.zeros((2, 3))).shape
    (2, 4)
    """

    gates = 1

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        from_x, from_h = self._gates(x, self._state(x, h))
        return F.tanh(from_x + from_h)


class LSTMCell(_Cell):
    """One step of long short-term memory; gates in the order i, f, g, o.

    forward(x, (h, c)=None): x [n, input_size], states [n, hidden_size], zeros by default. Returns the new (h, c).

    >>> import weft as wf
    >>> h, c = LSTMCell(3, 4)(wf.zeros((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._state(x, v) for v in (state or (None, None)))
        from_x, from_h = self._gates(x, h)
        i, f, g, o = F.chunk(from_x + from_h, 4, axis=-1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * F.tanh(c), c


class GRUCell(_Cell):
    """One step of a gated recurrent unit; gates in the order of weft.functional.gru.

    forward(x, h=None): x [n, input_size], h [n, hidden_size], zeros by default. Returns the new h.

    >>> import weft as wf
    >>> GRUCell(3, 4)(wf.zeros((2, 3))).shape
    (2, 4)
    """

    gates = 3

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        h = self._state(x, h)
        (r, z, n), (hr, hz, hn) = (F.chunk(part, 3, axis=-1) for part in self._gates(x, h))
        r, z = F.sigmoid(r + hr), F.sigmoid(z + hz)
        n = F.tanh(n + r * hn)
        return n + z * (h - n)
