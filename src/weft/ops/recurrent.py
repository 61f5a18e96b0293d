"""Recurrent layers over sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from weft import _core
from weft.base.dtype import as_dtype, bfloat16, float32, uint8
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.indexing import zeros_like
from weft.ops.kernels import Native
from weft.ops.node import constant
from weft.ops.offers import is_offered
from weft.ops.op import Op, op
from weft.ops.oracle import np
from weft.ops.samples import Sample, arrays
from weft.ops.shapes import Partial
from weft.ops.types import TensorType, promote

Geometry = tuple[str, tuple[int, ...], tuple[int, ...]]


class Recurrent(Op):
    """Base of layers with weights for every layer and direction: w_ih, w_hh, b_ih, b_hh, one after the other."""

    family: ClassVar[str] = "recurrent"
    method: ClassVar[bool] = False
    gates: ClassVar[int] = 4
    learnable = ("parameters",)
    bidirectional: bool = False
    hidden_size: int | None = None
    num_layers: int | None = None

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

    def peer(self, torch: Any, x: Any, *given: Any) -> Any:
        kind, states = self.name, len(self.inputs) - 2
        if "nonlinearity" in self.values():
            kind += f"_{self.values()['nonlinearity']}"
        state = given[:states] if states > 1 else given[0]
        layers = self.layers(given[states:])
        return getattr(torch, kind)(
            x, state, given[states:], True, layers, 0.0, False, self.bidirectional, False
        )


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
    opaque = ("workspace",)

    def infer(self, x: TensorType, h0: TensorType, c0: TensorType, *parameters: TensorType) -> Any:
        size = self.check_parameters(x, {"h0": h0, "c0": c0}, parameters)
        common = promote(x, h0, c0, *parameters)
        y = x.like((*x.shape[:2], size * self.directions), common)
        layers = self.layers(parameters)
        workspace = x.like((self.workspace_bytes(x, y, layers),), uint8)
        return y, h0.like(dtype=common), c0.like(dtype=common), workspace

    def workspace_bytes(self, x: TensorType, y: TensorType, layers: int) -> int:
        """What the native kernel leaves for the gradient's."""
        if not is_native(x, y) or not hasattr(_core, "onednn_lstm"):
            return 0
        bidirectional = self.bidirectional
        return _core.onednn_lstm_workspace(
            row_major(x), row_major(y), layers=layers, bidirectional=bidirectional
        )

    def kernels(
        self, x: TensorType, h0: TensorType, c0: TensorType, *parameters: TensorType
    ) -> Iterator[Native]:
        if not is_native(x, h0, c0, *parameters):
            return
        layers = self.layers(parameters)

        def make(inputs: Sequence[Geometry], outputs: Sequence[Any]) -> Any:
            training = outputs[3] is not None
            return _core.onednn_lstm(
                inputs[0], outputs[0], layers=layers, bidirectional=self.bidirectional, training=training
            )

        yield Native(make, contiguous=tuple(range(3 + len(parameters))), optional=(3,))

    def decompose(self, x: Any, h0: Any, c0: Any, *parameters: Any) -> Any:
        forward = _forward(self, x, h0, c0, parameters)
        last = [steps[-1].after for _, steps in forward]
        y = _outputs([steps for _, steps in forward[-self.directions :]])
        hn, cn = (F.stack([state[which] for state in last], axis=0) for which in (0, 1))
        size = self.workspace_bytes(x.type, y.type, self.layers(parameters))
        return y, hn, cn, F.broadcast_to(constant(0, uint8), shape=(size,))

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
        slopes = (zeros_like(v) if d is None else d for v, d in ((y, dy), (hn, dhn), (cn, dcn)))
        return F.lstm_gradient(
            x, h0, c0, y, hn, cn, workspace, *slopes, *parameters, bidirectional=self.bidirectional
        )

    def reference(self, x: Any, h0: Any, c0: Any, *parameters: Any) -> Any:
        last_h, last_c = [], []
        dtype = np.result_type(x, h0, c0, *parameters)
        first = x
        for layer in range(self.layers(parameters)):
            made = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                w, u, b, d = parameters[4 * k : 4 * k + 4]
                h, c = h0[k], c0[k]
                steps = range(len(x)) if direction == 0 else range(len(x) - 1, -1, -1)
                outputs = np.zeros((*x.shape[:2], h.shape[-1]), dtype)
                for t in steps:
                    gates = x[t] @ w.T + b + h @ u.T + d
                    i, f, g, o = np.split(gates, 4, axis=-1)
                    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
                    h = _sigmoid(o) * np.tanh(c)
                    outputs[t] = h
                made.append(outputs)
                last_h.append(h)
                last_c.append(c)
            x = np.concatenate(made, axis=-1)
        size = self.workspace_bytes(_type(first), _type(x), self.layers(parameters))
        return x, np.stack(last_h), np.stack(last_c), np.zeros(size, np.uint8)

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


def is_native(*types: TensorType) -> bool:
    """Whether the native core has layers of these, at this level: all float32 or bfloat16, and nothing empty."""
    kind = types[0].dtype
    return (
        is_offered("lstm")
        and kind in (float32, bfloat16)
        and all(t.dtype is kind for t in types)
        and all(n for t in types for n in t.shape)
    )


def row_major(t: TensorType) -> Geometry:
    strides: list[int] = []
    step = 1
    for n in reversed(t.shape):
        strides.insert(0, step)
        step *= int(n)
    return t.dtype.name, tuple(int(n) for n in t.shape), tuple(strides)


def _type(array: Any) -> TensorType:
    return TensorType(array.shape, as_dtype(array.dtype))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _one(x: Any, k: int) -> Any:
    """x[k]."""
    return F.basic_index(x, items=(k, *((0, n, 1) for n in x.shape[1:])))


class _Step(NamedTuple):
    """One step of one direction of an lstm's layer: its place in time, its gates, its states before and after."""

    t: int
    gates: tuple[Any, ...]  # i, f, g, o
    before: tuple[Any, Any]  # h, c
    after: tuple[Any, Any]


def _lstm_steps(x: Any, h: Any, c: Any, parameters: Sequence[Any], reverse: bool) -> list[_Step]:
    """One direction of one layer: the inputs' part of all steps at once, then step by step."""
    w_ih, w_hh, b_ih, b_hh = parameters
    inputs = F.linear(x, w_ih, b_ih + b_hh)
    size = h.shape[-1]
    found: list[_Step] = []
    times = range(int(x.shape[0]))
    for t in reversed(times) if reverse else times:
        gates = _one(inputs, t) + F.linear(h, w_hh)
        i, f, g, o = (
            F.basic_index(gates, items=((0, gates.shape[0], 1), (k * size, size, 1))) for k in range(4)
        )
        i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
        before = h, c
        c = f * c + i * g
        h = o * F.tanh(c)
        found.append(_Step(t, (i, f, g, o), before, (h, c)))
    return found


def _forward(
    op: Recurrent, x: Any, h0: Any, c0: Any, parameters: Sequence[Any]
) -> list[tuple[Any, list[_Step]]]:
    """The inputs and the steps of all layers and directions of an lstm."""
    found: list[tuple[Any, list[_Step]]] = []
    for layer in range(op.layers(parameters)):
        numbers = range(layer * op.directions, (layer + 1) * op.directions)
        for k in numbers:
            own = parameters[4 * k : 4 * k + 4]
            found.append((x, _lstm_steps(x, _one(h0, k), _one(c0, k), own, k > numbers[0])))
        x = _outputs([found[k][1] for k in numbers])
    return found


def _outputs(directions: Sequence[Sequence[_Step]]) -> Any:
    """A layer's y: the directions' beside each other."""
    made = [_in_time(steps, (step.after[0] for step in steps)) for steps in directions]
    return F.concat(made, axis=-1) if len(made) > 1 else made[0]


def _in_time(steps: Sequence[_Step], values: Iterable[Any]) -> Any:
    """[t, ...] of one value for each step."""
    placed = {step.t: value for step, value in zip(steps, values, strict=True)}
    return F.stack([placed[t] for t in range(len(steps))], axis=0)


def _lstm_layer_gradient(
    x: Any, steps: Sequence[_Step], parameters: Sequence[Any], dy: Any, dh: Any, dc: Any
) -> tuple[Any, Any, Any, list[Any]]:
    """dx, dh0, dc0 and the parameters' gradients of one direction of one layer, step by step back."""
    w_ih, w_hh, *_ = parameters
    slopes = []
    for step in reversed(steps):
        (i, f, g, o), top = step.gates, F.tanh(step.after[1])
        dh = dh + _one(dy, step.t)
        dc = dc + dh * o * (1 - top * top)
        parts = (
            dc * g * i * (1 - i),
            dc * step.before[1] * f * (1 - f),
            dc * i * (1 - g * g),
            dh * top * o * (1 - o),
        )
        slopes.append(F.concat(parts, axis=-1))
        dh, dc = F.matmul(slopes[-1], w_hh), dc * f
    every = _in_time(steps, reversed(slopes))
    rows, before = (_rows(v) for v in (every, _in_time(steps, (step.before[0] for step in steps))))
    along = F.matrix_transpose(rows)
    bias = F.sum(rows, axis=0)
    return F.matmul(every, w_ih), dh, dc, [F.matmul(along, _rows(x)), F.matmul(along, before), bias, bias]


def _rows(x: Any) -> Any:
    """[t, n, k] as [t * n, k]."""
    return F.reshape(x, shape=(x.shape[0] * x.shape[1], x.shape[2]))


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

    def kernels(self, *inputs: TensorType | None) -> Iterator[Native]:
        if not is_offered("lstm_backward"):
            return
        parameters = len(inputs) - 10
        layers = parameters // (4 * self.directions)

        def make(given: Sequence[Geometry], outputs: Sequence[Geometry]) -> Any:
            return _core.onednn_lstm_backward(
                given[0], given[3], layers=layers, bidirectional=self.bidirectional
            )

        last = len(inputs)
        order = (0, 1, 2, *range(10, last), *range(3, 10), *range(last, last + 3 + parameters))
        yield Native(make, order=order, contiguous=tuple(range(last)))

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
        forward = _forward(self, x, h0, c0, parameters)
        slopes: dict[int, tuple[Any, ...]] = {}
        for layer in reversed(range(self.layers(parameters))):
            size = h0.shape[-1]
            total: Any = None
            for direction in range(self.directions):
                k = layer * self.directions + direction
                items = (*((0, n, 1) for n in dy.shape[:2]), (direction * size, size, 1))
                own = F.basic_index(dy, items=items) if self.bidirectional else dy
                slopes[k] = _lstm_layer_gradient(
                    *forward[k], parameters[4 * k : 4 * k + 4], own, _one(dhn, k), _one(dcn, k)
                )
                total = slopes[k][0] if total is None else total + slopes[k][0]
            dy = total
        each = [slopes[k] for k in range(len(slopes))]
        dh0, dc0 = (F.stack([found[number] for found in each], axis=0) for number in (1, 2))
        return dy, dh0, dc0, *(slope for found in each for slope in found[3])


class _Values:
    """What cells are made of, on Values."""

    @staticmethod
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        return F.linear(x, weight, bias)

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

    one = staticmethod(_one)
    stack = staticmethod(lambda x: F.stack(x, axis=0))
    concat = staticmethod(lambda x: F.concat(x, axis=-1))


class _Arrays:
    """The same on NumPy arrays."""

    linear = staticmethod(lambda x, weight, bias: x @ weight.T + bias)
    sigmoid = staticmethod(_sigmoid)
    tanh = staticmethod(lambda x: np.tanh(x))
    relu = staticmethod(lambda x: np.maximum(x, 0))
    parts = staticmethod(lambda x, count: np.split(x, count, axis=-1))
    one = staticmethod(lambda x, k: x[k])
    stack = staticmethod(lambda x: np.stack(x))
    concat = staticmethod(lambda x: np.concatenate(x, axis=-1))


class Simple(Recurrent):
    """Base of layers with one state; a class gives cell()."""

    outputs = ("y", "hn")

    def cell(self, ops: Any, inputs: Any, hidden: Any, h: Any) -> Any:
        """The next state from W_ih x + b_ih, W_hh h + b_hh and h; ops: _Values or _Arrays."""
        raise NotImplementedError

    def infer(self, x: TensorType, h0: TensorType, *parameters: TensorType) -> Any:
        size = self.check_parameters(x, {"h0": h0}, parameters)
        common = promote(x, h0, *parameters)
        return x.like((*x.shape[:2], size * self.directions), common), h0.like(dtype=common)

    def _run(self, ops: Any, x: Any, h0: Any, parameters: Sequence[Any]) -> Any:
        steps = range(int(x.shape[0]))
        last = []
        for layer in range(self.layers(parameters)):
            made = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                w_ih, w_hh, b_ih, b_hh = parameters[4 * k : 4 * k + 4]
                inputs = ops.linear(x, w_ih, b_ih)
                h = ops.one(h0, k)
                found: dict[int, Any] = {}
                for t in reversed(steps) if direction else steps:
                    h = self.cell(ops, ops.one(inputs, t), ops.linear(h, w_hh, b_hh), h)
                    found[t] = h
                made.append(ops.stack([found[t] for t in steps]))
                last.append(h)
            x = ops.concat(made) if len(made) > 1 else made[0]
        return x, ops.stack(last)

    def decompose(self, x: Any, h0: Any, *parameters: Any) -> Any:
        return self._run(_Values, x, h0, parameters)

    def reference(self, x: Any, h0: Any, *parameters: Any) -> Any:
        return self._run(_Arrays, x, h0, parameters)

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

    def cell(self, ops: Any, inputs: Any, hidden: Any, h: Any) -> Any:
        (r, z, n), (hr, hz, hn) = ops.parts(inputs, 3), ops.parts(hidden, 3)
        n = ops.tanh(n + ops.sigmoid(r + hr) * hn)
        z = ops.sigmoid(z + hz)
        return n + z * (h - n)


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

    def cell(self, ops: Any, inputs: Any, hidden: Any, h: Any) -> Any:
        return getattr(ops, self.nonlinearity)(inputs + hidden)


__all__ = ["Gru", "Lstm", "LstmGradient", "Recurrent", "Rnn"]
