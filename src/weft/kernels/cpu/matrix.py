"""Kernels of weft.ops.families.matrix on processors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.matrix import (
    Geometry,
    Linear,
    Matmul,
    has_sizes,
    is_by_a_vector,
    is_matrix_float,
    is_one,
    is_one_row,
    is_sum_of_few,
)
from weft.ops.kernels import ANY, Native
from weft.ops.types import TensorType

BLAS_TYPES = ("float64", "complex64", "complex128")
SMALL_PRODUCT = 8**3  # multiplications; what has less takes less time in loops


@kernel(Matmul, provider="onednn")
def matmul(op: Matmul, a: TensorType, b: TensorType) -> Iterator[Native]:
    if is_empty(a, b) or is_sum_of_few(a, b) or is_by_a_vector(a, b):
        return
    if is_matrix_float(a, b) and has_sizes(a, b):
        yield product_of_sizes(a.dtype.name)
    elif is_matrix_float(a, b):
        packed = ((1, (0, 1)),) if b.ndim == 2 else ()
        yield Native(make_matmul, options=("accumulate", "post_ops"), packed=packed)


def is_blas_product(op: Matmul, a: TensorType, b: TensorType) -> bool:
    """Whether BLAS is to multiply: numbers that oneDNN does not take, in matrices so large that a call pays.

    >>> from weft.base.dtype import complex64, float64
    >>> sizes = [((16, 16), (16, 16)), ((9, 3, 3), (9, 3, 3)), ((99, 99), (99,))]
    >>> [is_blas_product(None, TensorType(a, float64), TensorType(b, float64)) for a, b in sizes]
    [True, False, False]
    """
    if a.dtype is not b.dtype or a.dtype.name not in BLAS_TYPES or min(a.ndim, b.ndim) < 2:
        return False
    if is_empty(a, b) or is_sum_of_few(a, b):
        return False
    if not a.dtype.is_complex and (is_by_a_vector(a, b) or is_one(a.shape[-2])):
        return False
    known = [n for n in (*a.shape[-2:], b.shape[-1]) if isinstance(n, int)]
    return len(known) < 3 or math.prod(known) >= SMALL_PRODUCT


@kernel(Matmul, provider="blas", when=is_blas_product)
def matmul_by_blas(op: Matmul, a: TensorType, b: TensorType) -> Iterator[Native]:
    yield Native(make_product, exact=False, options=("accumulate",))


def make_product(_inputs: Sequence[Geometry], _outputs: Sequence[Geometry], accumulate: bool = False) -> Any:
    """BLAS's product, of the library that NumPy was built with; None if it has none."""
    from weft.kernels.cpu.linalg import (
        load_lapack,
    )  # not before the first one: it loads a family of operators

    try:
        load_lapack()
    except ImportError:  # then loops multiply
        return None
    return _core.kernel_product(accumulate)


def make_matmul(inputs: Sequence[Geometry], outputs: Sequence[Geometry], **options: Any) -> Any:
    """oneDNN's product."""
    return _core.onednn_matmul(*inputs[:2], outputs[0], **options)


def product_of_sizes(dtype: str, transposed: bool = False, bias: bool = False) -> Native:
    """The kernel of a product for all sizes; transposed: the second operand is."""
    return Native(
        lambda *_: _core.onednn_product_of_any_size(dtype, transposed=transposed, bias=bias), exact=False
    )


def is_empty(*types: TensorType | None) -> bool:
    """Whether a size is 0, for which oneDNN has no kernel; Sizes are at least 2.

    >>> from weft.base.dtype import float32
    >>> is_empty(TensorType((2, 0), float32), None), is_empty(TensorType((2, 3), float32))
    (True, False)
    """
    return any(isinstance(n, int) and n == 0 for t in types if t is not None for n in t.shape)


@kernel(Linear, provider="onednn")
def linear(op: Linear, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> Iterator[Native]:
    if not is_matrix_float(x, weight, bias) or is_one_row(x) or is_empty(x, weight):
        return
    if has_sizes(x, weight):
        yield product_of_sizes(x.dtype.name, transposed=True, bias=bias is not None)
    else:
        packed = ((1, (1, 0)),)  # the kernel takes the transpose
        yield Native(make_linear, options=("accumulate", "post_ops"), packed=packed)


def make_linear(inputs: Sequence[Geometry], outputs: Sequence[Geometry], **options: Any) -> Any:
    """oneDNN's product with the weight transposed, and the bias added in the same pass."""
    x, (dtype, w, sw) = inputs[:2]
    weight = (dtype, (w[1], w[0]), sw if sw == ANY else (sw[1], sw[0]))
    return _core.onednn_matmul(x, weight, outputs[0], bias=(*inputs, None)[2], **options)
