"""Cells made of cells: one behind the other, with dropout, residuals and zoneout, and over whole sequences.

A cell takes x and its state and returns the new state, whose only or first array is the result; those here return
(result, state), as the state has more or the result is another array. They take each other and LSTMCell and its like.
"""

from __future__ import annotations

from typing import Any

from weft import functional as F
from weft.arrays.creation import ones_like, zeros_like
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.base.structure import tree_leaves, tree_map
from weft.control_flow import foreach
from weft.module.module import Module

__all__ = [
    "BidirectionalCell",
    "DropoutCell",
    "ResidualCell",
    "SequentialRNNCell",
    "UnrolledCell",
    "VariationalDropoutCell",
    "ZoneoutCell",
]


class _Composite(Module):
    """Base of cells that return (result, state)."""


def _step(cell: Module, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The result and the new state of any cell."""
    if isinstance(cell, _Composite):
        y, state = cell(x, state)
        return y, state
    state = cell(x, state)
    return (state[0] if isinstance(state, tuple | list) else state), state


def _probability(owner: Module, **values: float) -> None:
    for name, p in values.items():
        if not 0 <= p <= 1:
            raise ValueError(f"{type(owner).__name__}: {name} must be in 0..1, got {p}")
        setattr(owner, name, p)


class SequentialRNNCell(_Composite):
    """Cells one behind the other: each takes the result of the one before.

    forward(x, states=None): states: a tuple with the state of each cell, None for zeros. Returns (result, states).

    >>> import weft as wf
    >>> from weft.module import DropoutCell, GRUCell, LSTMCell
    >>> y, states = SequentialRNNCell(LSTMCell(3, 4), DropoutCell(0.5), GRUCell(4, 5))(wf.zeros((2, 3)))
    >>> y.shape, len(states)
    ((2, 5), 3)
    """

    def __init__(self, *cells: Module) -> None:
        if not cells:
            raise ValueError("SequentialRNNCell: needs at least one cell")
        self.cells = list(cells)

    def forward(self, x: Tensor, states: Any = None) -> tuple[Tensor, tuple[Any, ...]]:
        states = (None,) * len(self.cells) if states is None else states
        if len(states) != len(self.cells):
            raise ValueError(
                f"SequentialRNNCell: {len(self.cells)} cells need as many states, got {len(states)}"
            )
        new = []
        for cell, state in zip(self.cells, states, strict=True):
            x, state = _step(cell, x, state)
            new.append(state)
        return x, tuple(new)


class DropoutCell(_Composite):
    """Dropout between cells, without a state: forward(x, state=()) returns (dropout(x), ()). See functional.dropout.

    >>> import weft as wf
    >>> DropoutCell(1.0)(wf.ones(2))
    (tensor([0., 0.], dtype=float32, device=cpu:0), ())
    """

    repr_attributes = ("p",)
    p: float

    def __init__(self, p: float = 0.5) -> None:
        _probability(self, p=p)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, tuple[()]]:
        return F.dropout(x, self.p, training=self.training), ()


class ResidualCell(_Composite):
    """x + the result of a cell: forward(x, state=None) returns (result, state), the cell's own state.

    Source: Wu et al. 2016, Google's neural machine translation system.

    >>> import weft as wf
    >>> from weft.module import RNNCell
    >>> y, h = ResidualCell(RNNCell(3, 3))(wf.ones((2, 3)))
    >>> bool((y == h + 1).all())
    True
    """

    def __init__(self, cell: Module) -> None:
        self.cell = cell

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = _step(self.cell, x, state)
        return x + y, state


class ZoneoutCell(_Composite):
    """A cell whose states and results stay in training what they were before, each element with a probability.

    states, outputs: the probabilities. forward(x, state=None): state is (the cell's state, the last result), zeros by
    default. Returns (result, state). In evaluation nothing stays, as in MXNet; the source takes expectations there.
    Raises ValueError for probabilities outside of 0..1.
    Source: Krueger et al. 2016, Zoneout: regularizing RNNs by randomly preserving hidden activations.

    >>> import weft as wf
    >>> from weft.module import GRUCell
    >>> y, (h, last) = ZoneoutCell(GRUCell(3, 4), states=1.0)(wf.ones((2, 3)))
    >>> h.tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    repr_attributes = ("states", "outputs")
    states: float
    outputs: float

    def __init__(self, cell: Module, states: float = 0.0, outputs: float = 0.0) -> None:
        _probability(self, states=states, outputs=outputs)
        self.cell = cell

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        old, last = (None, None) if state is None else state
        y, new = _step(self.cell, x, old)
        old = tree_map(zeros_like, new) if old is None else old
        last = zeros_like(y) if last is None else last
        if self.training and self.states:
            new = tree_map(lambda a, b: self._kept(a, b, self.states), new, old)
        if self.training and self.outputs:
            y = self._kept(y, last, self.outputs)
        return y, (new, y)

    @staticmethod
    def _kept(new: Tensor, old: Tensor, p: float) -> Tensor:
        """old with probability p, else new."""
        return F.where(F.dropout(ones_like(new), p) > 0, new, old)


class VariationalDropoutCell(_Composite):
    """A cell with dropout whose zeros are the same at every step of a sequence.

    inputs, states, outputs: the probabilities of zeros in x, in the first array of the state before a step, and in the
    result. forward(x, state=None): state is (the cell's state, the factors drawn at the first step); None begins a new
    sequence. Returns (result, state). Raises ValueError for probabilities outside of 0..1.
    Source: Gal, Ghahramani 2015, A theoretically grounded application of dropout in recurrent neural networks.

    >>> import weft as wf
    >>> from weft.module import RNNCell
    >>> cell = VariationalDropoutCell(RNNCell(3, 4), outputs=0.5)
    >>> y, state = cell(wf.ones((2, 3)))
    >>> z, state = cell(wf.ones((2, 3)), state)
    >>> bool(((y == 0) == (z == 0)).all())
    True
    """

    repr_attributes = ("inputs", "states", "outputs")
    inputs: float
    states: float
    outputs: float

    def __init__(self, cell: Module, inputs: float = 0.0, states: float = 0.0, outputs: float = 0.0) -> None:
        _probability(self, inputs=inputs, states=states, outputs=outputs)
        self.cell = cell

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        inner, (of_x, of_state, of_y) = (None, ((), (), ())) if state is None else state
        if not self.training:
            y, inner = _step(self.cell, x, inner)
            return y, (inner, (of_x, of_state, of_y))
        if self.inputs:
            of_x = self._factors(x, self.inputs) if isinstance(of_x, tuple) else of_x
            x = x * of_x
        if self.states and inner is not None:
            first = tree_leaves(inner)[0]
            of_state = self._factors(first, self.states) if isinstance(of_state, tuple) else of_state
            inner = tree_map(lambda x: x * of_state if x is first else x, inner)
        y, inner = _step(self.cell, x, inner)
        if self.states and isinstance(of_state, tuple):  # what was before were zeros
            of_state = self._factors(tree_leaves(inner)[0], self.states)
        if self.outputs:
            of_y = self._factors(y, self.outputs) if isinstance(of_y, tuple) else of_y
            y = y * of_y
        return y, (inner, (of_x, of_state, of_y))

    @staticmethod
    def _factors(x: Tensor, p: float) -> Tensor:
        return F.dropout(ones_like(x), p)


class UnrolledCell(Module):
    """A cell over sequences: x [t, n, ...] -> results [t, n, ...] and the last state.

    cell: any; forward(x, state=None, is_reversed=False): is_reversed: from the last step to the first one. Raises
    ShapeError for sequences without steps.

    >>> import weft as wf
    >>> from weft.module import LSTMCell
    >>> y, (h, c) = UnrolledCell(LSTMCell(3, 4))(wf.zeros((7, 2, 3)))
    >>> y.shape, h.shape
    ((7, 2, 4), (2, 4))
    """

    def __init__(self, cell: Module) -> None:
        self.cell = cell

    def forward(self, x: Tensor, state: Any = None, is_reversed: bool = False) -> tuple[Tensor, Any]:
        if x.ndim < 2 or x.shape[0] == 0:
            raise ShapeError(f"UnrolledCell: x [t, n, ...] needs at least one step, has the shape {x.shape}")
        x = F.flip(x, axis=0) if is_reversed else x
        first, state = _step(self.cell, x[0], state)  # which makes the states that are left open
        y = F.expand_dims(first, axis=0)
        if x.shape[0] > 1:
            others, state = foreach(lambda each, state: _step(self.cell, each, state), x[1:], state)
            y = F.concat([y, others], axis=0)
        return (F.flip(y, axis=0) if is_reversed else y), state


class BidirectionalCell(Module):
    """Two cells over sequences, one in each direction: x [t, n, ...] -> both results, one behind the other, and states.

    forward(x, states=None): states: a pair, None for zeros. Returns (results [t, n, a + b], the pair of last states).
    Raises ShapeError for sequences without steps.
    Source: Schuster, Paliwal 1997, Bidirectional recurrent neural networks.

    >>> import weft as wf
    >>> from weft.module import GRUCell
    >>> BidirectionalCell(GRUCell(3, 4), GRUCell(3, 5))(wf.zeros((7, 2, 3)))[0].shape
    (7, 2, 9)
    """

    def __init__(self, forward_cell: Module, backward_cell: Module) -> None:
        self.forward_cell, self.backward_cell = UnrolledCell(forward_cell), UnrolledCell(backward_cell)

    def forward(self, x: Tensor, states: Any = None) -> tuple[Tensor, tuple[Any, Any]]:
        before, after = (None, None) if states is None else states
        y, before = self.forward_cell(x, before)
        z, after = self.backward_cell(x, after, is_reversed=True)
        return F.concat([y, z], axis=-1), (before, after)
