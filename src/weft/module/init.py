"""First values of parameters, written in place; random ones come from weft.random and follow its seed.

>>> import weft as wf
>>> from weft.module import init
>>> x = wf.zeros((2, 3))
>>> init.ones_(x)
>>> x.sum().item()
6.0
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec

import numpy as np

from weft import _core, random
from weft import functional as F
from weft.arrays.creation import asarray, eye
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.base.name_hints import add_hints as _add_hints
from weft.gradients.gradient import no_grad

__all__ = [
    "bilinear_",
    "constant_",
    "dirac_",
    "eye_",
    "fans",
    "gain",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "without_draws",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


_is_without_draws: ContextVar[bool] = ContextVar("is_without_draws", default=False)
_elements_left: ContextVar[list[int] | None] = ContextVar("elements_left", default=None)
P = ParamSpec("P")


@contextmanager
def without_draws(limit: int | None = None) -> Iterator[None]:
    """Functions of this module that draw do nothing inside; for modules whose parameters are loaded or written next.

    What they would have written stays undefined, and no random stream moves. Holds for the thread that enters it.
    limit: how many elements the parameters of layers that are made inside may have in all; a layer with more raises
    ValueError before its memory is allocated. None: any number.

    >>> import weft as wf
    >>> with without_draws():
    ...     net = wf.module.Linear(1000, 1000)
    >>> _ = net.load_state_dict({"weight": wf.ones((1000, 1000)), "bias": wf.zeros(1000)})
    """
    token, budget = _is_without_draws.set(True), _elements_left.set(None if limit is None else [limit, limit])
    try:
        yield
    finally:
        _elements_left.reset(budget)
        _is_without_draws.reset(token)


def count_elements(shape: int | Sequence[int]) -> None:
    """Count a parameter of this shape, which a layer allocates next; see without_draws."""
    budget = _elements_left.get()
    if budget is not None:
        sizes = (shape,) if isinstance(shape, int) else shape
        budget[0] -= math.prod(sizes)
        if budget[0] < 0:
            raise ValueError(
                f"parameters have more than {budget[1]} elements: one has the shape {tuple(sizes)}"
            )


def _draws(function: Callable[P, None]) -> Callable[P, None]:
    """The function, which does nothing within without_draws."""

    @functools.wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> None:
        if not _is_without_draws.get():
            function(*args, **kwargs)

    return drawn


def _write(x: Tensor, values: Any) -> None:
    with no_grad():
        x[...] = values


def constant_(x: Tensor, value: float) -> None:
    """Fill x with a number.

    >>> import weft as wf
    >>> x = wf.zeros(2)
    >>> constant_(x, 0.5)
    >>> x
    tensor([0.5, 0.5], dtype=float32, device=cpu:0)
    """
    _write(x, value)


def zeros_(x: Tensor) -> None:
    """Fill x with 0."""
    _write(x, 0)


def ones_(x: Tensor) -> None:
    """Fill x with 1."""
    _write(x, 1)


@_draws
def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0) -> None:
    """Uniform over [low, high).

    >>> import weft as wf
    >>> x = wf.zeros(100)
    >>> uniform_(x, -1, 1)
    >>> bool(abs(x.numpy()).max() <= 1)
    True
    """
    _write(x, random.uniform(low, high, x.shape, x.dtype, x.device))


@_draws
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Normally distributed numbers."""
    _write(x, random.normal(mean, std, x.shape, x.dtype, x.device))


@_draws
def trunc_normal_(
    x: Tensor, mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0
) -> None:
    """Normally distributed numbers, of which only those within low ... high come; the bounds are not in units of std.

    By the inverse of the distribution function, found by Newton's method in float64.
    Raises ValueError unless low < high and std > 0.

    >>> import weft as wf
    >>> x = wf.zeros(1000)
    >>> trunc_normal_(x, std=1.0, low=-0.5, high=2.0)
    >>> bool(x.min() >= -0.5), bool(x.max() <= 2)
    (True, True)
    """
    if not low < high or not std > 0:
        raise ValueError(f"trunc_normal_: needs low < high and std > 0, got {low}, {high} and {std}")
    ends = [math.erf((bound - mean) / (std * math.sqrt(2))) for bound in (low, high)]
    share = random.uniform(0.0, 1.0, x.shape, "float64", x.device)
    with no_grad():
        values = _inverse_erf(ends[0] + share * (ends[1] - ends[0])) * (std * math.sqrt(2)) + mean
        _write(x, F.clip(values, low, high).astype(x.dtype))


def _inverse_erf(y: Tensor) -> Tensor:
    """The x whose error function is y: Winitzki's approximation, then four steps of Newton's method."""
    y = F.clip(y, -1 + 2.0**-52, 1 - 2.0**-52)
    a = 0.147
    log = F.log1p(-y * y)
    half = 2 / (math.pi * a) + log / 2
    x = F.sign(y) * F.sqrt(F.sqrt(half * half - log / a) - half)
    for _ in range(4):
        x = x - (F.erf(x) - y) * (math.sqrt(math.pi) / 2) * F.exp(x * x)
    return x


def fans(x: Tensor) -> tuple[int, int]:
    """How many inputs an output of this weight has, and how many outputs an input: (fan_in, fan_out).

    x: a weight [out, in, ...]; the sizes behind are those of a convolution's kernel. Raises ShapeError for fewer than
    2 dimensions.

    >>> import weft as wf
    >>> fans(wf.zeros((8, 4, 3, 3)))
    (36, 72)
    """
    if x.ndim < 2:
        raise ShapeError(f"fans: needs a weight of at least 2 dimensions, got shape {x.shape}")
    kernel = math.prod(x.shape[2:])
    return x.shape[1] * kernel, x.shape[0] * kernel


_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """By what a layer's weights are to be larger for what follows: linear, sigmoid, tanh, relu, selu, leaky_relu.

    slope: leaky_relu's. Raises ValueError for another name.

    >>> gain("leaky_relu", slope=1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + slope * slope))
    if nonlinearity not in _GAINS:
        raise ValueError(
            f"gain: no nonlinearity {nonlinearity!r}; there are: leaky_relu, {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def xavier_uniform_(x: Tensor, gain: float = 1.0) -> None:
    """Uniform, with the standard deviation gain sqrt(2 / (fan_in + fan_out)).

    Source: Glorot, Bengio 2010, Understanding the difficulty of training deep feedforward neural networks.
    """
    bound = gain * math.sqrt(6 / max(sum(fans(x)), 1))
    uniform_(x, -bound, bound)


def xavier_normal_(x: Tensor, gain: float = 1.0) -> None:
    """Normal, with the standard deviation gain sqrt(2 / (fan_in + fan_out)); source: xavier_uniform_'s."""
    normal_(x, 0.0, gain * math.sqrt(2 / max(sum(fans(x)), 1)))


def _kaiming_std(x: Tensor, slope: float, mode: str, nonlinearity: str) -> float:
    fan = dict(zip(("fan_in", "fan_out"), fans(x), strict=True))
    if mode not in fan:
        raise ValueError(f"kaiming: mode must be fan_in or fan_out, got {mode!r}")
    return gain(nonlinearity, slope) / math.sqrt(max(fan[mode], 1))


def kaiming_uniform_(
    x: Tensor, slope: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Uniform, with the standard deviation gain(nonlinearity, slope) / sqrt(fan).

    mode: which fan, "fan_in" keeps the size of values, "fan_out" of gradients.
    Source: He, Zhang, Ren, Sun 2015, Delving deep into rectifiers (MSRA).

    >>> import weft as wf
    >>> x = wf.zeros((4, 6))
    >>> kaiming_uniform_(x)
    >>> bool(abs(x.numpy()).max() <= 1)
    True
    """
    bound = math.sqrt(3) * _kaiming_std(x, slope, mode, nonlinearity)
    uniform_(x, -bound, bound)


def kaiming_normal_(
    x: Tensor, slope: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Normal, with the standard deviation gain(nonlinearity, slope) / sqrt(fan); see kaiming_uniform_."""
    normal_(x, 0.0, _kaiming_std(x, slope, mode, nonlinearity))


@_draws
def orthogonal_(x: Tensor, gain: float = 1.0) -> None:
    """A random matrix with orthonormal rows, or columns if there are more rows, times gain; [n, ...] is seen as [n, m].

    Waits for the random numbers and decomposes them in NumPy. Raises ShapeError for fewer than 2 dimensions.
    Source: Saxe, McClelland, Ganguli 2014, Exact solutions to the nonlinear dynamics of learning.

    >>> import numpy as np, weft as wf
    >>> x = wf.zeros((3, 5))
    >>> orthogonal_(x)
    >>> np.allclose(x.numpy() @ x.numpy().T, np.eye(3), atol=1e-6)
    True
    """
    import numpy as np

    if x.ndim < 2:
        raise ShapeError(f"orthogonal_: needs at least 2 dimensions, got shape {x.shape}")
    rows, columns = x.shape[0], math.prod(x.shape[1:])
    flat = random.normal(shape=(max(rows, columns), min(rows, columns)), dtype="float64").numpy()
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diag(r))  # without it the signs would not be evenly spread
    values = (q if rows >= columns else q.T).reshape(x.shape) * gain
    _write(x, asarray(np.ascontiguousarray(values)).astype(x.dtype).to_device(x.device))


def eye_(x: Tensor) -> None:
    """1 on the diagonal, 0 elsewhere; x: a matrix, of a linear layer that begins as the identity.

    Raises ShapeError for other than 2 dimensions.

    >>> import weft as wf
    >>> x = wf.zeros((2, 3))
    >>> eye_(x)
    >>> x.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if x.ndim != 2:
        raise ShapeError(f"eye_: needs 2 dimensions: x is {_core.describe(x)}")
    _write(x, eye(*x.shape, dtype=x.dtype, device=x.device))


def dirac_(x: Tensor, groups: int = 1) -> None:
    """1 in the middle of each kernel whose input and output are the same channel of its group, 0 elsewhere.

    x: a convolution's weight [out, in / groups, ...], which then gives its input. Raises ShapeError for less than 3
    dimensions, or if groups does not divide out.
    Source: Zagoruyko, Komodakis 2017, DiracNets: Training very deep neural networks without skip-connections.

    >>> import weft as wf
    >>> x = wf.zeros((2, 2, 3))
    >>> dirac_(x)
    >>> x.tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    if x.ndim < 3 or groups < 1 or x.shape[0] % groups:
        raise ShapeError(f"dirac_: needs a kernel and outputs in {groups} groups: x is {_core.describe(x)}")
    values = np.zeros(x.shape, "float32")
    middle = tuple(size // 2 for size in x.shape[2:])
    of_group = x.shape[0] // groups
    for k in range(x.shape[0]):
        if k % of_group < x.shape[1]:
            values[(k, k % of_group, *middle)] = 1
    _write(x, asarray(values, device=x.device).astype(x.dtype))


@_draws
def sparse_(x: Tensor, sparsity: float, std: float = 0.01) -> None:
    """Normal numbers of which the share `sparsity` of each column, rounded up, is 0; x: a matrix [out, in].

    Raises ShapeError for other than 2 dimensions, ValueError unless sparsity is in 0 ... 1.
    Source: Martens 2010, Deep learning via Hessian-free optimization.

    >>> import weft as wf
    >>> x = wf.ones((10, 3))
    >>> sparse_(x, 0.3)
    >>> (x == 0).sum(axis=0).tolist()
    [3, 3, 3]
    """
    if x.ndim != 2:
        raise ShapeError(f"sparse_: needs 2 dimensions: x is {_core.describe(x)}")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparse_: sparsity must be in 0..1, got {sparsity}")
    zeros = math.ceil(sparsity * x.shape[0])
    order = F.argsort(random.uniform(0.0, 1.0, x.shape, "float32", x.device), axis=0)
    rank = F.argsort(order, axis=0)
    numbers = random.normal(0.0, std, x.shape, "float32", x.device)
    _write(x, F.where(rank < zeros, 0.0, numbers).astype(x.dtype))


def bilinear_(x: Tensor) -> None:
    """Weights of linear interpolation, for transposed convolutions that enlarge images; x: [channels, ..., kh, kw].

    A kernel of size 2 s - s mod 2 with stride s enlarges by s. Raises ShapeError for less than 3 dimensions.
    Source: Long, Shelhamer, Darrell 2014, Fully convolutional networks for semantic segmentation.

    >>> import weft as wf
    >>> x = wf.zeros((1, 1, 4))
    >>> bilinear_(x)
    >>> x.tolist()
    [[[0.25, 0.75, 0.75, 0.25]]]
    """
    if x.ndim < 3:
        raise ShapeError(f"bilinear_: needs at least 3 dimensions: x is {_core.describe(x)}")
    values = np.ones((), "float64")
    for size in x.shape[2:]:
        factor = (size + 1) // 2
        centre = factor - 1 if size % 2 else factor - 0.5
        values = values[..., None] * (1 - abs(np.arange(size) - centre) / factor)
    _write(x, asarray(values.astype("float32"), device=x.device).astype(x.dtype))


_add_hints(globals())
