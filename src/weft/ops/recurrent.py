"""Recurrent layers over sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from weft.base.dtype import DType, as_dtype, float16, float32, uint8
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.indexing import zeros_like
from weft.ops.loops import scan, scan_gradient
from weft.ops.matrix import flat_rows
from weft.ops.node import constant, make_node
from weft.ops.op import Op, op
from weft.ops.oracle import np
from weft.ops.pointwise import cast_to
from weft.ops.samples import Sample, arrays
from weft.ops.shapes import Partial
from weft.ops.types import TensorType, promote


class _Values:
    """What cells are made of, on Values."""

    sigmoid = staticmethod(lambda x: F.sigmoid(x))
    tanh = staticmethod(lambda x: F.tanh(x))
    relu = staticmethod(lambda x: F.relu(x))

    @staticmethod
    def parts(x: Any, count: int) -> list[Any]:
        size = x.shape[-1] // count
        return [F.basic_index(x, items=((0, x.shape[0], 1), (k * size, size, 1))) for k in range(count)]


class _Arrays:
    """The same on NumPy arrays."""

    sigmoid = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    tanh = staticmethod(lambda x: np.tanh(x))
    relu = staticmethod(lambda x: np.maximum(x, 0))
    parts = staticmethod(lambda x, count: np.split(x, count, axis=-1))


class _Direction(NamedTuple):
    """One direction of one layer: its inputs x, its parameters, its first states, and the states before each step."""

    x: Any
    parameters: Sequence[Any]
    first: Sequence[Any]
    before: Sequence[Any]


class Recurrent(Op):
    """Base of layers with weights for every layer and direction: w_ih, w_hh, b_ih, b_hh, one after the other.

    A class gives cell(). The inputs' part of all steps is one product; a step is left with the product of its state,
    and is planned once, whatever the length (weft.ops.loops). So is a step back.
    """

    family: ClassVar[str] = "recurrent"
    dtype_rule: ClassVar[str] = "x: float, h0: float, c0: float, parameters: float -> promote"
    method: ClassVar[bool] = False
    gates: ClassVar[int] = 4
    learnable = ("parameters",)
    bidirectional: bool = False
    hidden_size: int | None = None
    num_layers: int | None = None

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        """The next states, the output first, from W_ih x + b_ih, W_hh h + b_hh and the states.

        ops: _Values or _Arrays.
        """
        raise NotImplementedError

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def solve_shapes(
        self, inputs: Sequence[Partial], outputs: Sequence[Partial]
    ) -> tuple[list[Partial], list[Partial]]:
        parameters = len(inputs) - sum(not spec.variadic for spec in self.inputs)
        state = f"[{parameters // 4},n,hidden_size]"
        rule = f"x[t,n,c], h0{state}, c0{state} -> y[t,n,{self.directions}*hidden_size], hn{state}, cn{state}"
        return self.solve_rule(rule, inputs, outputs)

    def learnable_parts(self) -> tuple[str, ...]:
        return tuple(
            f"l{layer}{'_reverse' * direction}_{what}"
            for layer in range(self.num_layers or 1)
            for direction in range(self.directions)
            for what in ("w_ih", "w_hh", "b_ih", "b_hh")
        )

    def learnable_types(self, *inputs: TensorType | None) -> dict[str, TensorType]:
        x = inputs[0]
        if x is None or self.hidden_size is None or x.ndim != 3:
            return {}
        h, rows = self.hidden_size, self.gates * self.hidden_size
        found: dict[str, TensorType] = {}
        for k, name in enumerate(self.learnable_parts()):
            inner = x.shape[2] if k < 4 * self.directions else h * self.directions
            found[name] = x.like(((rows, inner), (rows, h), (rows,), (rows,))[k % 4])
        return found

    def layers(self, parameters: Sequence[Any]) -> int:
        return len(parameters) // (4 * self.directions)

    def check_parameters(
        self, x: TensorType, states: dict[str, TensorType], parameters: Sequence[TensorType]
    ) -> int:
        """Raises ShapeError unless all fit together; returns h."""
        given = {"x": x, **states}
        self.require_floats(**given, **{f"parameter{k}": t for k, t in enumerate(parameters)})
        if x.ndim != 3:
            raise self.fail(ShapeError, "x needs 3 dimensions, [t, n, c]", **given)
        if isinstance(x.shape[0], int) and x.shape[0] < 1:
            raise self.fail(ShapeError, "x needs at least one step", **given)
        if not parameters or len(parameters) % (4 * self.directions):
            what = f"{4 * self.directions} of each layer"
            raise self.fail(ShapeError, f"{len(parameters)} parameters, not {what}", **given)
        layers = self.layers(parameters)
        hidden = parameters[1].shape[-1]
        for what, hint, is_so in (
            ("hidden_size", self.hidden_size, hidden),
            ("num_layers", self.num_layers, layers),
        ):
            if hint is not None and hint != is_so:
                raise self.fail(ShapeError, f"{what} is {hint}, not {is_so}", **given)
        for name, t in states.items():
            state = (layers * self.directions, x.shape[1], hidden)
            if t.shape != state:
                raise self.fail(ShapeError, f"{name} needs the shape {state}", **given)
        for k in range(layers * self.directions):
            inputs = x.shape[2] if k < self.directions else hidden * self.directions
            rows = self.gates * hidden
            for t, wanted, name in zip(
                parameters[4 * k : 4 * k + 4],
                ((rows, inputs), (rows, hidden), (rows,), (rows,)),
                ("w_ih", "w_hh", "b_ih", "b_hh"),
                strict=True,
            ):
                if t.shape != wanted:
                    raise self.fail(
                        ShapeError,
                        f"{name} of layer {k // self.directions} needs the shape {wanted}",
                        **{name: t},
                    )
        return int(hidden)

    def own_parameters(self, parameters: Sequence[Any], k: int) -> Sequence[Any]:
        """Those of one layer and direction, counted over all."""
        return parameters[4 * k : 4 * k + 4]

    def run(
        self, x: Any, states: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[_Direction]]:
        """The outputs of each layer, the last states, and the directions of all layers one after the other."""
        outputs: list[Any] = []
        last: list[Sequence[Any]] = []
        directions: list[_Direction] = []
        for layer in range(self.layers(parameters)):
            made = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                w_ih, w_hh, b_ih, b_hh = own = self.own_parameters(parameters, k)
                first = [_one(s, k) for s in states]
                inputs = F.linear(x, w_ih, b_ih)
                end, (y, *before) = scan(_Step(self), [inputs], first, [w_hh, b_hh], direction > 0)
                made.append(y)
                last.append(end)
                directions.append(_Direction(x, own, first, before))
            x = F.concat(made, axis=-1) if len(made) > 1 else made[0]
            outputs.append(x)
        return outputs, [F.stack(each, axis=0) for each in zip(*last, strict=True)], directions

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
                own = directions[k]
                dfirst, cotangents, below = self.step_back(
                    own,
                    self._part(dy, direction, own),
                    [None if d is None else _one(d, k) for d in dlast],
                    direction > 0,
                )
                parameters[k], first[k] = cotangents, dfirst
                dx = _sum(dx, below)
        order = range(len(directions))
        dstates = [F.stack([first[k][s] for k in order], axis=0) for s in range(len(dlast))]
        return (dx, *dstates, *(cotangent for k in order for cotangent in parameters[k]))

    def _part(self, dy: Any, direction: int, own: _Direction) -> Any:
        """What is a direction's of the gradient of its layer's outputs."""
        if dy is None or not self.bidirectional:
            return dy
        size = own.first[0].shape[-1]
        return F.basic_index(dy, items=(*((0, n, 1) for n in dy.shape[:2]), (direction * size, size, 1)))

    def step_back(
        self, own: _Direction, dy: Any, dlast: Sequence[Any], reverse: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """One direction back: the gradients of its first states, of its parameters, and of its inputs."""
        w_ih, w_hh, b_ih, b_hh = own.parameters
        dinputs, *dfirst, dw_hh, db_hh = scan_gradient(
            _Step(self),
            [F.linear(own.x, w_ih, b_ih)],
            own.before,
            own.first,
            [w_hh, b_hh],
            dlast,
            [dy, *(None for _ in own.first)],
            reverse,
        )
        rows = flat_rows(dinputs)
        dw_ih = F.matmul(F.matrix_transpose(rows), flat_rows(own.x))
        return dfirst, [dw_ih, dw_hh, F.sum(rows, axis=0), db_hh], F.matmul(dinputs, w_ih)

    def run_reference(
        self, x: Any, states: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The outputs of each layer, and the last states, of NumPy arrays, step by step."""
        dtype = np.result_type(x, *states, *parameters)
        outputs, last = [], []
        for layer in range(self.layers(parameters)):
            made = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                w_ih, w_hh, b_ih, b_hh = self.own_parameters(parameters, k)
                now: Sequence[Any] = [s[k] for s in states]
                y = np.zeros((*x.shape[:2], now[0].shape[-1]), dtype)
                steps = range(len(x))
                for t in reversed(steps) if direction else steps:
                    now = self.cell(_Arrays, x[t] @ w_ih.T + b_ih, now[0] @ w_hh.T + b_hh, *now)
                    y[t] = now[0]
                made.append(y)
                last.append(now)
            x = np.concatenate(made, axis=-1)
            outputs.append(x)
        return outputs, [np.stack(each) for each in zip(*last, strict=True)]

    def peer(self, torch: Any, x: Any, *given: Any) -> Any:
        kind, states = self.name, len(self.inputs) - 2
        if "nonlinearity" in self.values():
            kind += f"_{self.values()['nonlinearity']}"
        state = given[:states] if states > 1 else given[0]
        layers = self.layers(given[states:])
        return getattr(torch, kind)(
            x, state, given[states:], True, layers, 0.0, False, self.bidirectional, False
        )


class _Step:
    """One step of a layer; those of equal layers are equal."""

    def __init__(self, layer: Recurrent) -> None:
        self.layer = layer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Step) and self.layer == other.layer

    def __hash__(self) -> int:
        return hash(self.layer)

    def __call__(self, inputs: Any, *given: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """On Values, given the states, w_hh and b_hh: the next states; the output and the states before."""
        *states, w_hh, b_hh = given
        new = self.layer.cell(_Values, inputs, F.linear(states[0], w_hh, b_hh), *states)
        return new, [new[0], *states]


@op
class Lstm(Recurrent):
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

    outputs = ("y", "hn", "cn", "workspace")
    hidden = 1
    residuals = opaque = ("workspace",)

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
        given = (x, h0, c0, *parameters)
        common = promote(*(v.type for v in given))
        work = work_dtype(common)
        if any(v.dtype is not work for v in given):
            made = make_node(self, [cast_to(v, work) for v in given]).outputs
            return (*(cast_to(v, common) for v in made[:3]), made[3])
        outputs, (hn, cn), _ = self.run(x, (h0, c0), parameters)
        shape = self.workspace(*(v.type for v in given)).shape
        return outputs[-1], hn, cn, F.broadcast_to(constant(0, uint8), shape=shape)

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
        given = (cast_to(v, work) for v in (x, h0, c0, y, hn, cn))
        found = F.lstm_gradient(
            *given,
            workspace,
            *(cast_to(v, work) for v in (*cotangents, *parameters)),
            bidirectional=self.bidirectional,
        )
        operands = (x, h0, c0, *parameters)
        return tuple(cast_to(d, v.dtype) for d, v in zip(found, operands, strict=True))

    def reference(self, x: Any, h0: Any, c0: Any, *parameters: Any) -> Any:
        outputs, (hn, cn) = self.run_reference(x, (h0, c0), parameters)
        shape = self.workspace(*map(_type, (x, h0, c0, *parameters))).shape
        return outputs[-1], hn, cn, np.zeros(shape, np.uint8)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def parameters(c: int, h: int, layers: int, directions: int) -> list[Any]:
            found = []
            for k in range(layers * directions):
                inputs = c if k < directions else h * directions
                found += [arrays((4 * h, inputs)), arrays((4 * h, h)), arrays((4 * h,)), arrays((4 * h,))]
            return found

        x = arrays((3, 2, 2))
        yield Sample(x, arrays((1, 2, 3)), arrays((1, 2, 3)), *parameters(2, 3, 1, 1))
        yield Sample(x, arrays((2, 2, 2)), arrays((2, 2, 2)), *parameters(2, 2, 2, 1))
        yield Sample(
            x,
            arrays((4, 2, 2)),
            arrays((4, 2, 2)),
            *parameters(2, 2, 2, 2),
            bidirectional=True,
            gradient=False,
        )

    @classmethod
    def errors(cls) -> Iterator[Any]:
        w = [arrays((12, 2)), arrays((12, 3)), arrays((12,)), arrays((12,))]
        state = arrays((1, 2, 3))
        yield ShapeError, "x needs 3 dimensions", Sample(arrays((3, 2)), state, state, *w)
        yield ShapeError, "at least one step", Sample(arrays((0, 2, 2)), state, state, *w)
        yield ShapeError, "2 parameters, not 4 of each layer", Sample(arrays((3, 2, 2)), state, state, *w[:2])
        yield (
            ShapeError,
            "c0 needs the shape (1, 2, 3)",
            Sample(arrays((3, 2, 2)), state, arrays((1, 1, 3)), *w),
        )
        yield (
            ShapeError,
            "w_ih of layer 0 needs the shape (12, 4)",
            Sample(arrays((3, 2, 4)), state, state, *w),
        )


def work_dtype(dtype: DType) -> DType:
    """The type in which layers of this one are computed: float32 for float16, whose range cells leave."""
    return float32 if dtype is float16 else dtype


def _type(array: Any) -> TensorType:
    return TensorType(array.shape, as_dtype(array.dtype))


def _one(x: Any, k: int) -> Any:
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
class LstmGradient(Recurrent):
    """The gradients of an lstm's inputs: x, h0, c0, then the parameters, all of one type."""

    public: ClassVar[bool] = False
    outputs = ("*gradient",)

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


class Simple(Recurrent):
    """Base of layers with one state, which is the output.

    below, for the gradient: the outputs of all layers but the last. With y, they are the states before each step.
    """

    outputs = ("y", "hn", "below")
    hidden = 1

    def infer(self, x: TensorType, h0: TensorType, *parameters: TensorType) -> Any:
        size = self.check_parameters(x, {"h0": h0}, parameters)
        y = x.like((*x.shape[:2], size * self.directions), promote(x, h0, *parameters))
        return y, h0.like(dtype=y.dtype), y.like((self.layers(parameters) - 1, *y.shape))

    def decompose(self, x: Any, h0: Any, *parameters: Any) -> Any:
        x, h0, *parameters = _promoted(x, h0, *parameters)  # type: ignore[assignment]
        (*below, y), (hn,), _ = self.run(x, (h0,), parameters)
        nothing = F.broadcast_to(constant(0, y.dtype), shape=(0, *y.shape))
        return y, hn, F.stack(below, axis=0) if below else nothing

    def vjp(
        self, x: Any, h0: Any, parameters: Any, y: Any, hn: Any, below: Any, dy: Any, dhn: Any, dbelow: Any
    ) -> Any:
        given = (x, h0, *parameters)
        x, h0, *parameters = _promoted(*given)
        numbers = range(self.layers(parameters) - 1)
        outputs = [*(_one(below, layer) for layer in numbers), y]
        dys = [*(None if dbelow is None else _one(dbelow, layer) for layer in numbers), dy]
        directions = []
        for layer, made in enumerate(outputs):
            inner = outputs[layer - 1] if layer else x
            for direction in range(self.directions):
                k = layer * self.directions + direction
                first = _one(h0, k)
                before = self._before(made, first, direction)
                directions.append(_Direction(inner, self.own_parameters(parameters, k), [first], [before]))
        found = self.run_back(directions, dys, (dhn,))
        return tuple(cast_to(d, v.dtype) for d, v in zip(found, given, strict=True))

    def _before(self, y: Any, first: Any, direction: int) -> Any:
        """The states before each step of a direction, from its layer's outputs."""
        length, size = y.shape[0], first.shape[-1]
        begin = F.expand_dims(first, axis=0)
        if isinstance(length, int) and length == 1:
            return begin
        columns = (direction * size, size, 1) if self.bidirectional else (0, size, 1)
        others = F.basic_index(y, items=((direction, length - 1, 1), (0, y.shape[1], 1), columns))
        return F.concat([others, begin] if direction else [begin, others], axis=0)

    def reference(self, x: Any, h0: Any, *parameters: Any) -> Any:
        (*below, y), (hn,) = self.run_reference(x, (h0,), parameters)
        return y, hn, np.stack(below) if below else np.zeros((0, *y.shape), y.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        g, x = cls.gates, arrays((3, 2, 2))

        def parameters(h: int, inputs: int) -> list[Any]:
            return [arrays((g * h, inputs)), arrays((g * h, h)), arrays((g * h,)), arrays((g * h,))]

        yield Sample(x, arrays((1, 2, 3)), *parameters(3, 2), tolerance=4)
        yield Sample(x, arrays((2, 2, 2)), *parameters(2, 2), *parameters(2, 2), tolerance=4)
        yield Sample(
            x, arrays((2, 2, 2)), *parameters(2, 2), *parameters(2, 2), bidirectional=True, tolerance=4
        )

    @classmethod
    def errors(cls) -> Iterator[Any]:
        g = cls.gates
        w = [arrays((3 * g, 2)), arrays((3 * g, 3)), arrays((3 * g,)), arrays((3 * g,))]
        yield ShapeError, "x needs 3 dimensions", Sample(arrays((3, 2)), arrays((1, 2, 3)), *w)
        yield ShapeError, "h0 needs the shape (1, 2, 3)", Sample(arrays((3, 2, 2)), arrays((1, 1, 3)), *w)


@op
class Gru(Simple):
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

    gates: ClassVar[int] = 3

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        (h,) = states
        (r, z, n), (hr, hz, hn) = ops.parts(inputs, 3), ops.parts(hidden, 3)
        n = ops.tanh(n + ops.sigmoid(r + hr) * hn)
        z = ops.sigmoid(z + hz)
        return (n + z * (h - n),)


@op
class Rnn(Simple):
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

    gates: ClassVar[int] = 1
    nonlinearity: str = "tanh"

    def check(self) -> None:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"{self.name}: nonlinearity must be 'tanh' or 'relu', got {self.nonlinearity!r}")

    def cell(self, ops: Any, inputs: Any, hidden: Any, *states: Any) -> tuple[Any, ...]:
        return (getattr(ops, self.nonlinearity)(inputs + hidden),)


__all__ = ["Gru", "Lstm", "LstmGradient", "Recurrent", "Rnn", "work_dtype"]
