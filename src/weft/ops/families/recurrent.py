"""Recurrent layers over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from weft.base.dtype import DType, float16, float32, uint8
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.indexing import zeros_like
from weft.ops.families.matrix import flat_rows
from weft.ops.loops import scan, scan_gradient
from weft.ops.node import constant, make_node
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, promote


class _Values:
    """What cells are made of, on Values."""

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return F.sigmoid(x)

    @staticmethod
    def tanh(x: Any) -> Any:
        return F.tanh(x)

    @staticmethod
    def relu(x: Any) -> Any:
        return F.relu(x)

    @staticmethod
    def parts(x: Any, count: int) -> list[Any]:
        size = x.shape[-1] // count
        return [F.basic_index(x, items=((0, x.shape[0], 1), (k * size, size, 1))) for k in range(count)]


class _Direction(NamedTuple):
    """One direction of one layer: its inputs x, its parameters, its first states, and the states before each step."""

    x: Any
    parameters: Sequence[Any]
    first: Sequence[Any]
    before: Sequence[Any]


class Recurrent(
    Op,
    family="recurrent",
):
    """Base of layers with weights for every layer and direction: w_ih, w_hh, b_ih, b_hh, one after the other.

    A class gives cell(). The inputs' part of all steps is one product; a step is left with the product of its state,
    and is planned once, whatever the length (weft.ops.loops). So is a step back.
    """

    gates: ClassVar[int] = 4
    bidirectional: bool = False
    hidden_size: int | None = None
    num_layers: int | None = None

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        """The next states, the output first, from W_ih x + b_ih, W_hh h + b_hh and the states.

        ops: the functions that it is made of, such as _Values.
        """
        raise NotImplementedError

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def parameter_names(self) -> tuple[str, ...]:
        """As far as the attributes say how many layers there are."""
        return tuple(
            f"l{layer}{'_reverse' * direction}_{name}"
            for layer in range(self.num_layers or 1)
            for direction in range(self.directions)
            for name in ("w_ih", "w_hh", "b_ih", "b_hh")
        )

    def learnable_types(self, *inputs: TensorType | None) -> dict[str, TensorType]:
        x = inputs[0]
        if x is None or self.hidden_size is None or x.ndim != 3:
            return {}
        h, rows = self.hidden_size, self.gates * self.hidden_size
        types: dict[str, TensorType] = {}
        for k, name in enumerate(self.parameter_names()):
            inner = x.shape[2] if k < 4 * self.directions else h * self.directions
            types[name] = x.like(((rows, inner), (rows, h), (rows,), (rows,))[k % 4])
        return types

    def layers(self, parameters: Sequence[Any]) -> int:
        return len(parameters) // (4 * self.directions)

    def check_parameters(
        self, x: TensorType, states: dict[str, TensorType], parameters: Sequence[TensorType]
    ) -> int:
        """Raises ShapeError unless all fit together; returns h."""
        operands = {"x": x, **states}
        self.require_floats(**operands, **{f"parameter{k}": t for k, t in enumerate(parameters)})
        if x.ndim != 3:
            raise self.fail(ShapeError, "x needs 3 dimensions, [t, n, c]", **operands)
        if isinstance(x.shape[0], int) and x.shape[0] < 1:
            raise self.fail(ShapeError, "x needs at least one step", **operands)
        if not parameters or len(parameters) % (4 * self.directions):
            expected = f"{4 * self.directions} of each layer"
            raise self.fail(ShapeError, f"{len(parameters)} parameters, not {expected}", **operands)
        layers = self.layers(parameters)
        hidden = parameters[1].shape[-1]
        for name, declared, actual in (
            ("hidden_size", self.hidden_size, hidden),
            ("num_layers", self.num_layers, layers),
        ):
            if declared is not None and declared != actual:
                raise self.fail(ShapeError, f"{name} is {declared}, not {actual}", **operands)
        for name, t in states.items():
            state = (layers * self.directions, x.shape[1], hidden)
            if t.shape != state:
                raise self.fail(ShapeError, f"{name} needs the shape {state}", **operands)
        for k in range(layers * self.directions):
            inputs = x.shape[2] if k < self.directions else hidden * self.directions
            rows = self.gates * hidden
            for t, shape, name in zip(
                parameters[4 * k : 4 * k + 4],
                ((rows, inputs), (rows, hidden), (rows,), (rows,)),
                ("w_ih", "w_hh", "b_ih", "b_hh"),
                strict=True,
            ):
                if t.shape != shape:
                    raise self.fail(
                        ShapeError,
                        f"{name} of layer {k // self.directions} needs the shape {shape}",
                        **{name: t},
                    )
        return int(hidden)

    def direction_parameters(self, parameters: Sequence[Any], k: int) -> Sequence[Any]:
        """Those of one layer and direction, counted over all."""
        return parameters[4 * k : 4 * k + 4]

    def run(
        self, x: Any, states: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[_Direction]]:
        """The outputs of each layer, the last states, and the directions of all layers one after the other."""
        outputs: list[Any] = []
        last_states: list[Sequence[Any]] = []
        directions: list[_Direction] = []
        for layer in range(self.layers(parameters)):
            direction_outputs = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                weights = w_ih, w_hh, b_ih, b_hh = self.direction_parameters(parameters, k)
                first = [_item(s, k) for s in states]
                inputs = F.linear(x, w_ih, b_ih)
                end, (y, *before) = scan(_Step(self), [inputs], first, [w_hh, b_hh], direction > 0)
                direction_outputs.append(y)
                last_states.append(end)
                directions.append(_Direction(x, weights, first, before))
            x = F.concat(direction_outputs, axis=-1) if self.bidirectional else direction_outputs[0]
            outputs.append(x)
        return outputs, [F.stack(state, axis=0) for state in zip(*last_states, strict=True)], directions

    def run_back(
        self, directions: Sequence[_Direction], dys: Sequence[Any], dlast: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradients of x, of the first states, and of the parameters.

        dys: for each layer the gradient of its outputs that comes from outside of the layers; dlast: those of the last
        states; None for zero.
        """
        parameters: dict[int, list[Any]] = {}
        first: dict[int, list[Any]] = {}
        dx: Any = None
        for layer in reversed(range(len(dys))):
            dy, dx = _sum(dx, dys[layer]), None
            for direction in range(self.directions):
                k = layer * self.directions + direction
                dfirst, cotangents, dinputs = self.step_back(
                    directions[k],
                    self._part(dy, direction, directions[k]),
                    [None if d is None else _item(d, k) for d in dlast],
                    direction > 0,
                )
                parameters[k], first[k] = cotangents, dfirst
                dx = _sum(dx, dinputs)
        order = range(len(directions))
        dstates = [F.stack([first[k][s] for k in order], axis=0) for s in range(len(dlast))]
        return (dx, *dstates, *(cotangent for k in order for cotangent in parameters[k]))

    def _part(self, dy: Any, index: int, direction: _Direction) -> Any:
        """The part of the gradient of a layer's outputs that belongs to one direction."""
        if dy is None or not self.bidirectional:
            return dy
        size = direction.first[0].shape[-1]
        return F.basic_index(dy, items=(*((0, n, 1) for n in dy.shape[:2]), (index * size, size, 1)))

    def step_back(
        self, direction: _Direction, dy: Any, dlast: Sequence[Any], reverse: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """One direction back: the gradients of its first states, of its parameters, and of its inputs."""
        w_ih, w_hh, b_ih, b_hh = direction.parameters
        dinputs, *dfirst, dw_hh, db_hh = scan_gradient(
            _Step(self),
            [F.linear(direction.x, w_ih, b_ih)],
            direction.before,
            direction.first,
            [w_hh, b_hh],
            dlast,
            [dy, *(None for _ in direction.first)],
            reverse,
        )
        rows = flat_rows(dinputs)
        dw_ih = F.matmul(F.matrix_transpose(rows), flat_rows(direction.x))
        return dfirst, [dw_ih, dw_hh, F.sum(rows, axis=0), db_hh], F.matmul(dinputs, w_ih)


class _Step:
    """One step of a layer; those of equal layers are equal."""

    def __init__(self, layer: Recurrent) -> None:
        self.layer = layer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Step) and self.layer == other.layer

    def __hash__(self) -> int:
        return hash(self.layer)

    def __call__(self, inputs: Any, *operands: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """The next states; the output and the states before. operands: the states, w_hh and b_hh."""
        *states, w_hh, b_hh = operands
        new = self.layer.cell(_Values, inputs, F.linear(states[0], w_hh, b_hh), *states)
        return new, [new[0], *states]


@op
class Lstm(
    Recurrent,
    rule="x: float, h0: float, c0: float, *parameters: learnable float -> "
    "y: promote, hn: promote, cn: promote, workspace: promote",
    hidden=1,
    residuals=("workspace",),
):
    """Layers of long short-term memory: at every step i, f, g, o = x W_ih^T + b_ih + h W_hh^T + b_hh,
    c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c).

    x: float[t, n, c]; h0, c0: [layers * directions, n, h]; parameters: for every layer, and with bidirectional for both
    of its directions, w_ih [4 h, inputs], w_hh [4 h, h], b_ih [4 h], b_hh [4 h], rows in the order i, f, g, o. A layer
    above the first has the outputs below as its inputs, [h * directions]. hidden_size, num_layers: h and how many, for
    symbols, which make the parameters themselves. Returns y [t, n, h * directions], and the
    last hn and cn in the shape of h0.
    Raises ShapeError if shapes do not fit, DTypeError unless all are floats.
    Source: Hochreiter, Schmidhuber 1997; Gers, Schmidhuber, Cummins 2000 (f); the order of gates is PyTorch's.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> h0 = wf.zeros((1, 2, 3))
    >>> F.lstm(wf.ones((5, 2, 4)), h0, h0, wf.ones((12, 4)), wf.ones((12, 3)), wf.ones(12), wf.ones(12))[0].shape
    (5, 2, 3)
    """

    def infer(self, x: TensorType, h0: TensorType, c0: TensorType, *parameters: TensorType) -> Any:
        size = self.check_parameters(x, {"h0": h0, "c0": c0}, parameters)
        common = promote(x, h0, c0, *parameters)
        y = x.like((*x.shape[:2], size * self.directions), common)
        return y, h0.like(dtype=common), c0.like(dtype=common), self.workspace(x, h0, c0, *parameters)

    def workspace(self, *inputs: TensorType) -> TensorType:
        """What a kernel leaves for the gradient's: bytes, none where there is no such kernel."""
        return self.residual_types((inputs[0].like((0,), uint8),), inputs)[0]

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        _, c = states
        i, f, g, o = ops.parts(inputs + hidden, 4)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c

    def decompose(self, x: Any, h0: Any, c0: Any, *parameters: Any) -> Any:
        """Step by step; float16 as float32."""
        inputs = (x, h0, c0, *parameters)
        common = promote(*(v.type for v in inputs))
        work = work_dtype(common)
        if any(v.dtype is not work for v in inputs):
            outputs = make_node(self, [cast_to(v, work) for v in inputs]).outputs
            return (*(cast_to(v, common) for v in outputs[:3]), outputs[3])
        layer_outputs, (hn, cn), _ = self.run(x, (h0, c0), parameters)
        shape = self.workspace(*(v.type for v in inputs)).shape
        return layer_outputs[-1], hn, cn, F.broadcast_to(constant(0, uint8), shape=shape)

    def vjp(
        self,
        x: Any,
        h0: Any,
        c0: Any,
        parameters: Any,
        y: Any,
        hn: Any,
        cn: Any,
        workspace: Any,
        dy: Any,
        dhn: Any,
        dcn: Any,
    ) -> Any:
        if not workspace.shape[0]:
            return NotImplemented
        work = work_dtype(y.dtype)
        cotangents = (zeros_like(v) if d is None else d for v, d in ((y, dy), (hn, dhn), (cn, dcn)))
        gradients = F.lstm_gradient(
            *(cast_to(v, work) for v in (x, h0, c0, y, hn, cn)),
            workspace,
            *(cast_to(v, work) for v in (*cotangents, *parameters)),
            bidirectional=self.bidirectional,
        )
        operands = (x, h0, c0, *parameters)
        return tuple(cast_to(d, v.dtype) for d, v in zip(gradients, operands, strict=True))


def work_dtype(dtype: DType) -> DType:
    """The type in which layers of this one are computed: float32 for float16, whose range cells leave."""
    return float32 if dtype is float16 else dtype


def _item(x: Any, k: int) -> Any:
    """x[k]."""
    return F.basic_index(x, items=(k, *((0, n, 1) for n in x.shape[1:])))


def _promoted(*values: Any) -> list[Any]:
    """Values as their common type."""
    common = promote(*(v.type for v in values))
    return [cast_to(v, common) for v in values]


def _sum(a: Any, b: Any) -> Any:
    """a + b, either of which may be None, which is zero."""
    return b if a is None else a if b is None else a + b


@op
class LstmGradient(Recurrent, public=False, outputs=("*gradient",)):
    """The gradients of an lstm's inputs: x, h0, c0, then the parameters, all of one type."""

    def infer(
        self,
        x: TensorType,
        h0: TensorType,
        c0: TensorType,
        y: TensorType,
        hn: TensorType,
        cn: TensorType,
        workspace: TensorType,
        dy: TensorType,
        dhn: TensorType,
        dcn: TensorType,
        *parameters: TensorType,
    ) -> Any:
        return tuple(t.like() for t in (x, h0, c0, *parameters))

    def decompose(
        self,
        x: Any,
        h0: Any,
        c0: Any,
        y: Any,
        hn: Any,
        cn: Any,
        workspace: Any,
        dy: Any,
        dhn: Any,
        dcn: Any,
        *parameters: Any,
    ) -> Any:
        """All computed again from the inputs, so that the gradient of this goes to them."""
        layers = Lstm(bidirectional=self.bidirectional)
        outputs, _, directions = layers.run(x, (h0, c0), parameters)
        return layers.run_back(directions, [*(None for _ in outputs[1:]), dy], (dhn, dcn))


class Simple(
    Recurrent,
    rule="x: float, h0: float, *parameters: learnable float -> y: promote, hn: promote, below: promote",
    hidden=1,
):
    """Base of layers with one state, which is the output.

    below, for the gradient: the outputs of all layers but the last. With y, they are the states before each step.
    """

    def infer(self, x: TensorType, h0: TensorType, *parameters: TensorType) -> Any:
        size = self.check_parameters(x, {"h0": h0}, parameters)
        y = x.like((*x.shape[:2], size * self.directions), promote(x, h0, *parameters))
        return y, h0.like(dtype=y.dtype), y.like((self.layers(parameters) - 1, *y.shape))

    def decompose(self, x: Any, h0: Any, *parameters: Any) -> Any:
        x, h0, *parameters = _promoted(x, h0, *parameters)  # type: ignore[assignment]
        (*below, y), (hn,), _ = self.run(x, (h0,), parameters)
        empty = F.broadcast_to(constant(0, y.dtype), shape=(0, *y.shape))
        return y, hn, F.stack(below, axis=0) if below else empty

    def vjp(
        self, x: Any, h0: Any, parameters: Any, y: Any, hn: Any, below: Any, dy: Any, dhn: Any, dbelow: Any
    ) -> Any:
        operands = (x, h0, *parameters)
        x, h0, *parameters = _promoted(*operands)
        numbers = range(self.layers(parameters) - 1)
        outputs = [*(_item(below, layer) for layer in numbers), y]
        dys = [*(None if dbelow is None else _item(dbelow, layer) for layer in numbers), dy]
        directions = []
        for layer, layer_output in enumerate(outputs):
            inner = outputs[layer - 1] if layer else x
            for direction in range(self.directions):
                k = layer * self.directions + direction
                first = _item(h0, k)
                before = self._before(layer_output, first, direction)
                directions.append(
                    _Direction(inner, self.direction_parameters(parameters, k), [first], [before])
                )
        gradients = self.run_back(directions, dys, (dhn,))
        return tuple(cast_to(d, v.dtype) for d, v in zip(gradients, operands, strict=True))

    def _before(self, y: Any, first: Any, direction: int) -> Any:
        """The states before each step of a direction, from its layer's outputs."""
        length, size = y.shape[0], first.shape[-1]
        begin = F.expand_dims(first, axis=0)
        if isinstance(length, int) and length == 1:
            return begin
        columns = (direction * size, size, 1) if self.bidirectional else (0, size, 1)
        later = F.basic_index(y, items=((direction, length - 1, 1), (0, y.shape[1], 1), columns))
        return F.concat([later, begin] if direction else [begin, later], axis=0)


@op
class Gru(Simple, gates=3):
    """Layers of gated recurrent units: r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh) of their rows,
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h = (1 - z) n + z h.

    x: float[t, n, c]; h0: [layers * directions, n, h]; parameters: for every layer, and with bidirectional for both of
    its directions, w_ih [3 h, inputs], w_hh [3 h, h], b_ih [3 h], b_hh [3 h], rows in the order r, z, n. A layer above
    the first has the outputs below as its inputs, [h * directions]. hidden_size, num_layers: h and how many, for
    symbols, which make the parameters themselves. Returns y [t, n, h * directions], and the last hn.
    Raises ShapeError if shapes do not fit, DTypeError unless all are floats.
    Source: Cho et al. 2014, Learning phrase representations; r after the product is PyTorch's and cuDNN's form.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> h0 = wf.zeros((1, 2, 3))
    >>> F.gru(wf.ones((5, 2, 4)), h0, wf.ones((9, 4)), wf.ones((9, 3)), wf.ones(9), wf.ones(9))[0].shape
    (5, 2, 3)
    """

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        (h,) = states
        (r, z, n), (hr, hz, hn) = ops.parts(inputs, 3), ops.parts(hidden, 3)
        n = ops.tanh(n + ops.sigmoid(r + hr) * hn)
        z = ops.sigmoid(z + hz)
        return (n + z * (h - n),)


@op
class Rnn(Simple, gates=1):
    """Layers of plain recurrent units: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it.

    x: float[t, n, c]; h0: [layers * directions, n, h]; parameters: for every layer, and with bidirectional for both of
    its directions, w_ih [h, inputs], w_hh [h, h], b_ih [h], b_hh [h]; nonlinearity: "tanh" or "relu". A layer above the
    first has the outputs below as its inputs, [h * directions]. hidden_size, num_layers: h and how many, for symbols,
    which make the parameters themselves. Returns y [t, n, h * directions], and the last hn.
    Raises ShapeError if shapes do not fit, DTypeError unless all are floats, ValueError for another nonlinearity.
    Source: Elman 1990, Finding structure in time.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> h0 = wf.zeros((1, 2, 3))
    >>> F.rnn(wf.ones((5, 2, 4)), h0, wf.ones((3, 4)), wf.ones((3, 3)), wf.ones(3), wf.ones(3))[0].shape
    (5, 2, 3)
    """

    nonlinearity: str = "tanh"

    def check(self) -> None:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"{self.name}: nonlinearity must be 'tanh' or 'relu', got {self.nonlinearity!r}")

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        return (getattr(ops, self.nonlinearity)(inputs + hidden),)


__all__ = ["Gru", "Lstm", "LstmGradient", "Recurrent", "Rnn", "work_dtype"]
