"""Recurrent layers whose products are convolutions, for sequences of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.control_flow import foreach
from weft.module.linear import check_dims, parameter, uniform_fan_in_
from weft.module.module import Module

__all__ = [
    "ConvGRUCell1d",
    "ConvGRUCell2d",
    "ConvGRUCell3d",
    "ConvLSTM1d",
    "ConvLSTM2d",
    "ConvLSTM3d",
    "ConvLSTMCell1d",
    "ConvLSTMCell2d",
    "ConvLSTMCell3d",
    "ConvRNNCell1d",
    "ConvRNNCell2d",
    "ConvRNNCell3d",
]


class _ConvCell(Module):
    """Base: one step; weights [gates hidden, channels, k...] of x and of h, which keep the image's size."""

    gates: ClassVar[int]
    states: ClassVar[int]
    ndim: ClassVar[int]
    repr_attributes = ("in_channels", "hidden_channels", "kernel_size")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        kernel_size: int | Sequence[int] = 3,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        kernel = (kernel_size,) * self.ndim if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(kernel) != self.ndim or any(size < 1 or size % 2 == 0 for size in kernel):
            raise ValueError(
                f"{type(self).__name__}: needs {self.ndim} odd sizes of kernels, got {kernel_size}"
            )
        self.in_channels, self.hidden_channels, self.kernel_size = in_channels, hidden_channels, kernel
        rows = self.gates * hidden_channels
        self.weight_ih = parameter((rows, in_channels, *kernel), dtype, device)
        self.weight_hh = parameter((rows, hidden_channels, *kernel), dtype, device)
        self.bias_ih = parameter(rows, dtype, device) if bias else None
        self.bias_hh = parameter(rows, dtype, device) if bias else None
        self.reset()

    def reset(self) -> None:
        """Draw new initial values, uniform within 1 / sqrt(hidden_channels times the kernel's size)."""
        fan_in = self.weight_hh[0].size
        uniform_fan_in_(fan_in, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = [size // 2 for size in self.kernel_size]
        y: Tensor = getattr(F, f"conv{self.ndim}d")(x, weight, bias, padding=padding)
        return y

    def _first_states(self, x: Tensor) -> tuple[Tensor, ...]:
        """Zeros for x [n, c, ...]."""
        shape = (x.shape[0], self.hidden_channels, *x.shape[2:])
        return tuple(zeros(shape, dtype=x.dtype, device=x.device) for _ in range(self.states))


class _ConvLSTMCell(_ConvCell):
    gates, states = 4, 2

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        check_dims(self, x, self.ndim + 2)
        return self._step(self._convolved(x, self.weight_ih, self.bias_ih), *(state or self._first_states(x)))

    def _step(self, from_x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        gates = from_x + self._convolved(h, self.weight_hh, self.bias_hh)
        i, f, g, o = F.chunk(gates, 4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * F.tanh(c), c


class ConvLSTMCell1d(_ConvLSTMCell):
    """One step of a convolutional LSTM over sequences [n, c, l]; see ConvLSTMCell2d."""

    ndim = 1


class ConvLSTMCell2d(_ConvLSTMCell):
    """One step of long short-term memory whose products are convolutions; gates in the order i, f, g, o.

    forward(x, (h, c)=None): x [n, in_channels, height, width], states [n, hidden_channels, height, width], zeros by
    default. Returns the new (h, c). kernel_size: odd, so that images keep their size. Raises ValueError for others,
    ShapeError for other dimensions.
    Source: Shi et al. 2015, Convolutional LSTM network: A machine learning approach for precipitation nowcasting,
    without its products of c and the gates.

    >>> import weft as wf
    >>> h, c = ConvLSTMCell2d(3, 4)(wf.zeros((2, 3, 5, 6)))
    >>> h.shape, c.shape
    ((2, 4, 5, 6), (2, 4, 5, 6))
    """

    ndim = 2


class ConvLSTMCell3d(_ConvLSTMCell):
    """One step of a convolutional LSTM over volumes [n, c, d, h, w]; see ConvLSTMCell2d."""

    ndim = 3


class _ConvLSTM(_ConvLSTMCell):
    def forward(  # type: ignore[override]
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        check_dims(self, x, self.ndim + 3)
        steps, n, *rest = x.shape
        flat = F.reshape(x, (steps * n, *rest))
        from_x = self._convolved(flat, self.weight_ih, self.bias_ih)  # of all steps at once

        def step(each: Any, state: Any) -> Any:
            state = self._step(each, *state)
            return state[0], state

        inputs = F.reshape(from_x, (steps, n, *from_x.shape[1:]))
        h, c = state or self._first_states(x[0])
        return foreach(step, inputs, (h, c))


class ConvLSTM1d(_ConvLSTM):
    """A convolutional LSTM of sequences [t, n, c, l]; see ConvLSTM2d."""

    ndim = 1


class ConvLSTM2d(_ConvLSTM):
    """A convolutional LSTM: x [t, n, in_channels, height, width] -> y [t, n, hidden_channels, height, width], (h, c).

    forward(x, (h, c)=None): states as those of ConvLSTMCell2d, whose parameters it has; it returns the last ones.

    >>> import weft as wf
    >>> y, (h, c) = ConvLSTM2d(3, 4)(wf.zeros((7, 2, 3, 5, 6)))
    >>> y.shape, h.shape
    ((7, 2, 4, 5, 6), (2, 4, 5, 6))
    """

    ndim = 2


class ConvLSTM3d(_ConvLSTM):
    """A convolutional LSTM of volumes [t, n, c, d, h, w]; see ConvLSTM2d."""

    ndim = 3


class _ConvGRUCell(_ConvCell):
    gates, states = 3, 1

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        check_dims(self, x, self.ndim + 2)
        h = self._first_states(x)[0] if h is None else h
        from_x = self._convolved(x, self.weight_ih, self.bias_ih)
        from_h = self._convolved(h, self.weight_hh, self.bias_hh)
        (r, z, n), (hr, hz, hn) = (F.chunk(part, 3, axis=1) for part in (from_x, from_h))
        r, z = F.sigmoid(r + hr), F.sigmoid(z + hz)
        n = F.tanh(n + r * hn)
        return n + z * (h - n)


class ConvGRUCell1d(_ConvGRUCell):
    """One step of a convolutional GRU over sequences [n, c, l]; see ConvGRUCell2d."""

    ndim = 1


class ConvGRUCell2d(_ConvGRUCell):
    """One step of a gated recurrent unit whose products are convolutions; gates in the order of GRUCell's.

    forward(x, h=None): x [n, in_channels, height, width], h [n, hidden_channels, height, width]. Returns the new h.
    Source: Ballas, Yao, Pal, Courville 2015, Delving deeper into convolutional networks for learning video
    representations.

    >>> import weft as wf
    >>> ConvGRUCell2d(3, 4)(wf.zeros((2, 3, 5, 6))).shape
    (2, 4, 5, 6)
    """

    ndim = 2


class ConvGRUCell3d(_ConvGRUCell):
    """One step of a convolutional GRU over volumes [n, c, d, h, w]; see ConvGRUCell2d."""

    ndim = 3


class _ConvRNNCell(_ConvCell):
    gates, states = 1, 1

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        check_dims(self, x, self.ndim + 2)
        h = self._first_states(x)[0] if h is None else h
        from_x = self._convolved(x, self.weight_ih, self.bias_ih)
        return F.tanh(from_x + self._convolved(h, self.weight_hh, self.bias_hh))


class ConvRNNCell1d(_ConvRNNCell):
    """One step of a plain convolutional recurrent unit over sequences [n, c, l]; see ConvRNNCell2d."""

    ndim = 1


class ConvRNNCell2d(_ConvRNNCell):
    """One step of a plain recurrent unit whose products are convolutions: tanh(conv(x) + conv(h)).

    forward(x, h=None): x [n, in_channels, height, width], h [n, hidden_channels, height, width], zeros by default.
    Returns the new h. kernel_size: odd, so that images keep their size. Raises ValueError for others, ShapeError for
    other dimensions.
    Source: MXNet's Conv2DRNNCell.

    >>> import weft as wf
    >>> ConvRNNCell2d(3, 4)(wf.zeros((2, 3, 5, 6))).shape
    (2, 4, 5, 6)
    """

    ndim = 2


class ConvRNNCell3d(_ConvRNNCell):
    """One step of a plain convolutional recurrent unit over volumes [n, c, d, h, w]; see ConvRNNCell2d."""

    ndim = 3
