"""What tests know of the operators of weft.ops.families.recurrent."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import as_dtype
from weft.base.errors import ShapeError
from weft.ops.families.recurrent import Lstm, Recurrent, Simple
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType


class NumPyFunctions:
    """What cells are made of, on NumPy arrays."""

    sigmoid = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    tanh = staticmethod(np.tanh)
    relu = staticmethod(lambda x: np.maximum(x, 0))
    parts = staticmethod(lambda x, count: np.split(x, count, axis=-1))


def run_reference(op, x, states, parameters):
    """The outputs of each layer, and the last states, step by step."""
    dtype = np.result_type(x, *states, *parameters)
    layer_outputs, last_states = [], []
    for layer in range(op.layers(parameters)):
        direction_outputs = []
        for direction in range(op.directions):
            k = layer * op.directions + direction
            w_ih, w_hh, b_ih, b_hh = op.direction_parameters(parameters, k)
            state = [s[k] for s in states]
            y = np.zeros((*x.shape[:2], state[0].shape[-1]), dtype)
            steps = range(len(x))
            for t in reversed(steps) if direction else steps:
                state = op.cell(NumPyFunctions, x[t] @ w_ih.T + b_ih, state[0] @ w_hh.T + b_hh, *state)
                y[t] = state[0]
            direction_outputs.append(y)
            last_states.append(state)
        x = np.concatenate(direction_outputs, axis=-1)
        layer_outputs.append(x)
    return layer_outputs, [np.stack(states) for states in zip(*last_states, strict=True)]


def parameter_arrays(gates, c, h, layers=1, directions=1):
    shapes = []
    for k in range(layers * directions):
        inputs = c if k < directions else h * directions
        shapes += [(gates * h, inputs), (gates * h, h), (gates * h,), (gates * h,)]
    return [arrays(shape) for shape in shapes]


@material(Recurrent)
class _:
    def torch_reference(self, torch, x, *inputs):
        kind, states = self.name, len(self.inputs) - 2
        if "nonlinearity" in self.values():
            kind += f"_{self.values()['nonlinearity']}"
        state, parameters = inputs[:states] if states > 1 else inputs[0], inputs[states:]
        layers = self.layers(parameters)
        return getattr(torch, kind)(x, state, parameters, True, layers, 0.0, False, self.bidirectional, False)


@material(Lstm)
class _:
    opaque = ("workspace",)

    def reference(self, x, h0, c0, *parameters):
        outputs, (hn, cn) = run_reference(self, x, (h0, c0), parameters)
        types = [TensorType(v.shape, as_dtype(v.dtype)) for v in (x, h0, c0, *parameters)]
        return outputs[-1], hn, cn, np.zeros(self.workspace(*types).shape, np.uint8)

    @classmethod
    def samples(cls):
        x = arrays((3, 2, 2))
        yield Sample(x, arrays((1, 2, 3)), arrays((1, 2, 3)), *parameter_arrays(4, 2, 3))
        yield Sample(x, arrays((2, 2, 2)), arrays((2, 2, 2)), *parameter_arrays(4, 2, 2, 2))
        state = arrays((4, 2, 2))
        yield Sample(x, state, state, *parameter_arrays(4, 2, 2, 2, 2), bidirectional=True, gradient=False)

    @classmethod
    def errors(cls):
        w = parameter_arrays(4, 2, 3)
        x, state = arrays((3, 2, 2)), arrays((1, 2, 3))
        yield ShapeError, "x needs 3 dimensions", Sample(arrays((3, 2)), state, state, *w)
        yield ShapeError, "at least one step", Sample(arrays((0, 2, 2)), state, state, *w)
        yield ShapeError, "2 parameters, not 4 of each layer", Sample(x, state, state, *w[:2])
        yield ShapeError, "c0 needs the shape (1, 2, 3)", Sample(x, state, arrays((1, 1, 3)), *w)
        fact = "w_ih of layer 0 needs the shape (12, 4)"
        yield ShapeError, fact, Sample(arrays((3, 2, 4)), state, state, *w)


@material(Simple)
class _:
    def reference(self, x, h0, *parameters):
        (*below, y), (hn,) = run_reference(self, x, (h0,), parameters)
        return y, hn, np.stack(below) if below else np.zeros((0, *y.shape), y.dtype)

    @classmethod
    def samples(cls):
        x, state = arrays((3, 2, 2)), arrays((2, 2, 2))
        yield Sample(x, arrays((1, 2, 3)), *parameter_arrays(cls.gates, 2, 3), tolerance=4)
        w = parameter_arrays(cls.gates, 2, 2, 2)
        yield Sample(x, state, *w, tolerance=4)
        w = parameter_arrays(cls.gates, 2, 2, 1, 2)
        yield Sample(x, state, *w, bidirectional=True, tolerance=4)

    @classmethod
    def errors(cls):
        w = parameter_arrays(cls.gates, 2, 3)
        yield ShapeError, "x needs 3 dimensions", Sample(arrays((3, 2)), arrays((1, 2, 3)), *w)
        yield ShapeError, "h0 needs the shape (1, 2, 3)", Sample(arrays((3, 2, 2)), arrays((1, 1, 3)), *w)
