"""Linear algebra: the array API standard's extension `linalg`, and what NumPy, SciPy and PyTorch have beside it.

Functions take stacks of matrices, the last two axes, of float32, float64 and complex numbers, on arrays, in traces, in
symbols, under vmap, with gradients of every order. Those of the standard that return several arrays give named tuples.

>>> import weft as wf
>>> a = wf.tensor([[4., 2.], [2., 2.]])
>>> wf.linalg.solve(a, wf.tensor([6., 4.]))
tensor([1., 1.], dtype=float32, device=cpu:0)
>>> wf.linalg.slogdet(a).sign.item()
1.0
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import functional as F
from weft.ops import registry

# Operators that are the standard's functions of linear algebra, too, beside those of the modules named below.
SHARED = ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot", "vector_norm")


class EighResult(NamedTuple):
    """What eigh returns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What qr returns."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """What slogdet returns."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """What svd returns."""

    U: Any
    S: Any
    Vh: Any


def eigh(x: Any, /) -> EighResult:
    """Return the eigenvalues of Hermitian matrices, the least first, and their eigenvectors: weft.functional.eigh.

    >>> import weft as wf
    >>> wf.linalg.eigh(wf.tensor([[2., 0.], [0., 1.]])).eigenvalues
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """
    return EighResult(*F.eigh(x))


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Return the QR decomposition: weft.functional.qr.

    >>> import weft as wf
    >>> wf.linalg.qr(wf.ones((3, 2))).R.shape
    (2, 2)
    """
    return QRResult(*F.qr(x, mode))


def slogdet(x: Any, /) -> SlogdetResult:
    """Return the sign of the determinant and the logarithm of its absolute value: weft.functional.slogdet.

    >>> import weft as wf
    >>> wf.linalg.slogdet(wf.tensor([[-1.]])).sign.item()
    -1.0
    """
    return SlogdetResult(*F.slogdet(x))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Return the singular value decomposition: weft.functional.svd.

    >>> import weft as wf
    >>> wf.linalg.svd(wf.ones((3, 2)), full_matrices=False).U.shape
    (3, 2)
    """
    return SVDResult(*F.svd(x, full_matrices=full_matrices))


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonal of each matrix [..., m, n], `offset` to the right of the main one.

    Source: array API 2024.12, linalg.diagonal.

    >>> import weft as wf
    >>> wf.linalg.diagonal(wf.tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return F.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum of the diagonal of each matrix: weft.functional.matrix_trace, as weft.trace is the tracer.

    Source: array API 2024.12, linalg.trace.

    >>> import weft as wf
    >>> wf.linalg.trace(wf.tensor([[1., 2.], [3., 4.]])).item()
    5.0
    """
    return F.matrix_trace(x, offset=offset, dtype=dtype)


def norm(x: Any, /, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the norm of a vector along one axis, or of a matrix along two.

    x: float or complex [...]; axis: one or two axes, None for all. ord: of a vector a number, of a matrix as
    matrix_norm has it; None: the root of the sum of squares. Raises ValueError for another number of axes with an ord.
    Source: NumPy's linalg.norm.

    >>> import weft as wf
    >>> x = wf.tensor([[3., 0.], [0., 4.]])
    >>> wf.linalg.norm(x).item(), wf.linalg.norm(x, 2).item(), wf.linalg.norm(x, 1, axis=1).tolist()
    (5.0, 4.0, [3.0, 4.0])
    """
    if ord is None or isinstance(axis, int) or (axis is None and x.ndim == 1):
        return F.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis)
    if len(axes) == 1:
        return F.vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ValueError(f"norm: ord={ord!r} needs one axis or two, got {len(axes)}: x has shape {x.shape}")
    y = F.matrix_norm(F.moveaxis(x, axes, (-2, -1)), ord=ord)
    return F.expand_dims(y, axis=tuple(a % x.ndim for a in axes)) if keepdims else y


def cond(x: Any, /, p: Any = None) -> Any:
    """Return the condition number of each matrix: its norm times that of its inverse.

    x: float32, float64 or complex [..., m, n], square unless p is 2 or -2; p: as matrix_norm's ord, None for 2.
    Infinite for a singular matrix if p is 2. Source: NumPy's linalg.cond.

    >>> import weft as wf
    >>> wf.linalg.cond(wf.tensor([[4., 0.], [0., 2.]])).item()
    2.0
    """
    if p in (None, 2, -2):
        s = F.svdvals(x)
        first, last = F.max(s, axis=-1), F.min(s, axis=-1)
        return last / first if p == -2 else first / last
    return F.matrix_norm(x, ord=p) * F.matrix_norm(F.inv(x), ord=p)


def _operators() -> frozenset[str]:
    families = (
        registry.public_names_of(f"weft.ops.families.{name}") for name in ("linalg", "matrix_functions")
    )
    return frozenset(SHARED).union(*families) - {"matrix_trace"}


def __getattr__(name: str) -> Any:
    """The functions that are operators under the same name, which are listed in the index of operators."""
    if name == "__all__":
        return __dir__()
    if name in _operators():
        value = globals()[name] = getattr(F, name)
        return value
    from weft.base.name_hints import missing

    raise missing(__name__, name, __dir__)


def __dir__() -> list[str]:
    return sorted(
        {"EighResult", "QRResult", "SVDResult", "SlogdetResult", "cond", "diagonal", "norm", "trace"}
        | _operators()
    )
