"""Products of matrices and what is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.dtype import DType
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Row, to_accumulation
from weft.ops.op import Op, op
from weft.ops.pointwise import conj, unbroadcast
from weft.ops.sizes import Size
from weft.ops.types import TensorType, broadcast_shapes, normalize_axes, promote

NUMBERS = ("int", "uint", "float", "complex")


def is_matrix_float(*types: TensorType | None) -> bool:
    """Whether libraries of matrix products may compute with these: all of one type, a float of at most 32 bits.

    >>> from weft.base.dtype import float32, float64
    >>> is_matrix_float(TensorType((), float32), None), is_matrix_float(TensorType((), float64))
    (True, False)
    """
    names = {t.dtype.name for t in types if t is not None}
    return len(names) == 1 and names <= {"float16", "bfloat16", "float32"}


def is_one_row(x: TensorType) -> bool:
    """Whether x is one vector, whatever its leading dimensions: its product with a matrix is bound by memory.

    A loop over the matrix then reads as fast as memory gives, on all threads and without a packed copy; what is done to
    the result joins it.

    >>> from weft.base.dtype import float32
    >>> is_one_row(TensorType((1, 1, 5), float32)), is_one_row(TensorType((2, 5), float32))
    (True, False)
    """
    return all(is_one(n) for n in x.shape[:-1])


FEW_TERMS, FEW_TERMS_OF_TINY, FEW_TERMS_OF_VECTORS = 3, 8, 6


def is_sum_of_few(a: TensorType, b: TensorType) -> bool:
    """Whether a product of matrices is quickest as a sum of element-wise products, one for each inner index.

    Outer products and those with up to 3 terms; of many tiny matrices, or of many matrices with vectors, more.

    >>> from weft.base.dtype import float32
    >>> shapes = [((4, 4), (9, 4, 4)), ((9, 4, 4), (4, 4)), ((9, 1), (1, 9)), ((9, 1, 6), (9, 6, 9))]
    >>> [is_sum_of_few(TensorType(a, float32), TensorType(b, float32)) for a, b in shapes]
    [True, False, True, True]
    """
    if min(a.ndim, b.ndim) < 2 or not isinstance(a.shape[-1], int):
        return False
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if k <= FEW_TERMS:
        return k > 0
    if b.ndim == 2:  # one product of all rows of a
        return False
    if is_one(m) or is_one(n):
        return k <= FEW_TERMS_OF_VECTORS
    return all(isinstance(size, int) and size <= FEW_TERMS_OF_TINY for size in (m, k, n))


def is_by_a_vector(a: TensorType, b: TensorType) -> bool:
    """Whether a product is that of one matrix or of many with one vector each: dot products, bound by memory.

    >>> from weft.base.dtype import float32
    >>> shapes = [((9, 8), (8,)), ((7, 9, 8), (7, 8, 1)), ((8,), (8, 9)), ((9, 8), (8, 9))]
    >>> [is_by_a_vector(TensorType(a, float32), TensorType(b, float32)) for a, b in shapes]
    [True, True, False, False]
    """
    return b.ndim == 1 or is_one(b.shape[-1])


def is_one(n: Any) -> bool:
    return isinstance(n, int) and n == 1


def cast_all(values: Sequence[Any]) -> list[Any]:
    """Values converted to the type they are promoted to; None stays."""
    common = promote(*(v.type for v in values if v is not None))
    return [v if v is None or v.dtype is common else F.cast(v, dtype=common) for v in values]


def recast(function: Any, values: Sequence[Any], **attributes: Any) -> Any:
    """The same on operands of one type that kernels surely take: 16-bit floats as float32; None if they are of such.

    For decompositions of what has kernels for operands of one type only.
    """
    common = promote(*(v.type for v in values if v is not None))
    wide = common.accumulation if common.is_floating else common
    if all(v is None or v.dtype is wide for v in values):
        return None
    result = function(*(None if v is None else F.cast(v, dtype=wide) for v in values), **attributes)
    return F.cast(result, dtype=common)


def are_halves(*types: TensorType | None) -> bool:
    """Whether all are 16-bit floats of one type.

    >>> from weft.base.dtype import bfloat16, float16
    >>> x, y = TensorType((), float16), TensorType((), bfloat16)
    >>> are_halves(x, None, x), are_halves(x, y)
    (True, False)
    """
    return is_matrix_float(*types) and all(t.dtype.bits == 16 for t in types if t is not None)


class Product(Op, family="matrix"):
    """Base of operators on numbers whose operands are promoted."""

    def promoted(self, **operands: TensorType) -> TensorType:
        """A type with the result's dtype and device. Raises DTypeError for booleans."""
        common = promote(*operands.values())
        if common.kind not in NUMBERS:
            raise self.fail(DTypeError, "takes numbers", **operands)
        return next(iter(operands.values())).like(dtype=common)


class Dot(Product, rule="x1, x2 -> y: promote"):
    """Base: the sum of products over axes of the broadcast operands, which the result does not have.

    Floats of 16 bits are summed in float32, float32 in blocks joined in float64; integers wrap.
    """

    def axes(self, ndim: int) -> tuple[int, ...]:
        raise NotImplementedError

    def result_dtype(self, common: DType) -> DType:
        """The result's type where that of the operands is `common`."""
        return common

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        full = broadcast_shapes(self.name, {"x1": x1, "x2": x2})
        axes, promoted = self.axes(len(full)), self.promoted(x1=x1, x2=x2)
        shape = [n for d, n in enumerate(full) if d not in axes]
        return promoted.like(shape, self.result_dtype(promoted.dtype))

    def kernels(self, x1: TensorType, x2: TensorType) -> Iterator[Loop]:
        common = promote(x1, x2)
        row = Row(inputs=2)
        a, b = (to_accumulation(e.cast(e.load(k, t.dtype.name), common.name)) for k, t in enumerate((x1, x2)))
        row.once(0, e.cast(row.dot(a, b), self.result_dtype(common).name))
        yield row.loop(self.axes(max(x1.ndim, x2.ndim)))

    def decompose(self, x1: Any, x2: Any) -> Any:
        common = promote(x1.type, x2.type)
        a, b = (F.cast(F.cast(x, dtype=common), dtype=common.accumulation) for x in (x1, x2))
        total = F.sum(a * b, axis=self.axes(max(x1.ndim, x2.ndim)))
        return F.cast(total, dtype=self.result_dtype(common))

    def vjp(self, x1: Any, x2: Any, dy: Any) -> Any:
        dy = F.expand_dims(dy, axis=self.axes(max(x1.ndim, x2.ndim)))
        return tuple(
            F.cast(unbroadcast(dy * conj(other), x), dtype=x.dtype) if x.dtype.is_differentiable else None
            for x, other in ((x1, x2), (x2, x1))
        )


@op
class Vecdot(Dot):
    """The dot products of vectors along an axis, of x1's complex conjugate with x2.

    x1, x2: numbers, their shapes fit by broadcasting; axis: negative, so that it is the same for both. Returns the
    promoted type, without the axis. Integers wrap.
    Raises ShapeError if sizes differ (also along the axis), IndexError unless both have the axis.
    Source: array API 2024.12, vecdot.

    >>> import weft as wf
    >>> wf.vecdot(wf.tensor([1., 2.]), wf.tensor([3., 4.])).item()
    11.0
    """

    axis: int = -1

    def axes(self, ndim: int) -> tuple[int, ...]:
        return (ndim + self.axis,)

    def kernels(self, x1: TensorType, x2: TensorType) -> Iterator[Loop]:
        if not x1.dtype.is_complex:
            yield from super().kernels(x1, x2)

    def decompose(self, x1: Any, x2: Any) -> Any:
        if x1.dtype.is_complex:
            return F.sum_of_products(F.conj(x1), x2, axis=self.axes(max(x1.ndim, x2.ndim)))
        return super().decompose(x1, x2)

    def vjp(self, x1: Any, x2: Any, dy: Any) -> Any:
        return NotImplemented if x1.dtype.is_complex else super().vjp(x1, x2, dy)

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        if not -min(x1.ndim, x2.ndim) <= self.axis < 0:
            raise self.fail(IndexError, f"both need axis {self.axis}, a negative number", x1=x1, x2=x2)
        if x1.shape[self.axis] != x2.shape[self.axis]:
            fact = f"sizes differ, {x1.shape[self.axis]} != {x2.shape[self.axis]}"
            raise self.fail(ShapeError, fact, x1=x1, x2=x2)
        return super().infer(x1, x2)


@op
class SumOfProducts(Dot, public=False):
    """The sum of x1 * x2 over several axes of their broadcast shape; what products of other types are made of.

    is_wide: 16-bit floats give the float32 that they are summed in.
    """

    axis: tuple[int, ...]
    is_wide: bool = False

    def result_dtype(self, common: DType) -> DType:
        return common.accumulation if self.is_wide and common.is_floating else common

    def axes(self, ndim: int) -> tuple[int, ...]:
        return normalize_axes(self.name, self.axis, ndim)


@op
class Matmul(Product, rule="a, b -> y: promote"):
    """The product of matrices: y[..., i, j] = sum over k of a[..., i, k] b[..., k, j].

    a: numbers [..., m, k] or [k]; b: [..., k, n] or [k]; the leading sizes fit by broadcasting. Returns the promoted
    type [..., m, n], without m or n where a or b is a vector. Floats of at most 32 bits are summed in float32; integers
    wrap, those of int8 in 8 bits (integer_matmul adds them up in int32); with k = 0 all is 0. Raises ShapeError if the
    inner or leading sizes differ or one has no dimensions, DTypeError for booleans.
    Source: array API 2024.12, matmul.

    >>> import weft as wf
    >>> wf.matmul(wf.tensor([[1., 2.], [3., 4.]]), wf.tensor([1., 1.]))
    tensor([3., 7.], dtype=float32, device=cpu:0)
    """

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        if a.ndim == 0 or b.ndim == 0:
            raise self.fail(ShapeError, "needs at least 1 dimension", a=a, b=b)
        inner_a, inner_b = a.shape[-1], b.shape[-min(b.ndim, 2)]
        if inner_a != inner_b:
            problem = self.fail(ShapeError, f"inner sizes differ, {inner_a} != {inner_b}", a=a, b=b)
            fits_b, fits_a = b.ndim == 2 and b.shape[1] == inner_a, a.ndim == 2 and a.shape[0] == inner_b
            advice = "b.T" if fits_b else "a.T" if fits_a else None
            raise ShapeError(f"{problem}\n  hint: {advice} would fit") if advice else problem
        result = self.promoted(a=a, b=b)
        lead = a.shape[:-2] or b.shape[:-2] if min(a.ndim, b.ndim) <= 2 else self._lead(a, b)
        return result.like((*lead, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())))

    def _lead(self, a: TensorType, b: TensorType) -> tuple[Any, ...]:
        try:
            return broadcast_shapes(self.name, {"a": a.like(a.shape[:-2]), "b": b.like(b.shape[:-2])})
        except ShapeError:
            fact = f"leading sizes {a.shape[:-2]} and {b.shape[:-2]} do not fit"
            raise self.fail(ShapeError, fact, a=a, b=b) from None

    def decompose(self, a: Any, b: Any) -> Any:
        if is_sum_of_few(a.type, b.type):
            return sum_of_few(a, b)
        if a.dtype.is_complex or b.dtype.is_complex:
            return _complex_product(a, b)
        cast = recast(F.matmul, (a, b))
        if cast is not None:
            return cast
        columns = F.matrix_transpose(b) if b.ndim > 1 else b
        if a.ndim == 1 or b.ndim == 1:
            return F.vecdot(a, columns)
        return F.vecdot(F.expand_dims(a, axis=-2), F.expand_dims(columns, axis=-3))

    def vjp(self, a: Any, b: Any, dy: Any) -> Any:
        rows = F.expand_dims(a, axis=0) if a.ndim == 1 else a
        columns = F.expand_dims(b, axis=1) if b.ndim == 1 else b
        if b.ndim == 1:
            dy = F.expand_dims(dy, axis=-1)
        if a.ndim == 1:
            dy = F.expand_dims(dy, axis=-2)
        da = db = None
        if a.dtype.is_differentiable:
            da = unbroadcast(F.matmul(dy, F.matrix_transpose(conj(columns))), rows)
            da = F.cast(F.squeeze(da, axis=0) if a.ndim == 1 else da, dtype=a.dtype)
        if b.dtype.is_differentiable and b.ndim == 1 and a.ndim == 2:  # a's rows as they are
            db = F.cast(F.squeeze(F.matmul(F.matrix_transpose(dy), conj(a)), axis=0), dtype=b.dtype)
        elif b.dtype.is_differentiable:
            if columns.ndim == 2 and rows.ndim > 2:  # one product instead of one for each leading index
                rows, dy = flat_rows(rows), flat_rows(dy)
            db = unbroadcast(F.matmul(F.matrix_transpose(conj(rows)), dy), columns)
            db = F.cast(F.squeeze(db, axis=1) if b.ndim == 1 else db, dtype=b.dtype)
        return da, db


def _complex_product(a: Any, b: Any) -> Any:
    """By products of the real and imaginary parts: four, or two where one operand is real."""
    part = promote(a.type, b.type).real
    (re, im), (other_re, other_im) = (
        (F.cast(F.real(x), dtype=part), F.cast(F.imag(x), dtype=part))
        if x.dtype.is_complex
        else (F.cast(x, dtype=part), None)
        for x in (a, b)
    )
    if other_im is None:
        return F.complex(F.matmul(re, other_re), F.matmul(im, other_re))
    if im is None:
        return F.complex(F.matmul(re, other_re), F.matmul(re, other_im))
    return F.complex(
        F.matmul(re, other_re) - F.matmul(im, other_im), F.matmul(re, other_im) + F.matmul(im, other_re)
    )


def sum_of_few(a: Any, b: Any) -> Any:
    """The product of matrices as a sum over the inner index, in its order; 16-bit floats are summed in float32."""
    common = promote(a.type, b.type)
    wide = common.accumulation if common.is_floating else common

    def part(x: Any, axis: int, k: int) -> Any:
        return F.cast(F.slice(x, starts=(k,), stops=(k + 1,), axes=(axis,)), dtype=wide)

    terms = [F.multiply(part(a, -1, k), part(b, -2, k)) for k in range(a.shape[-1])]
    return F.cast(functools.reduce(F.add, terms), dtype=common)


def flat_rows(x: Any) -> Any:
    """[..., m, n] as one matrix [... * m, n]."""
    return F.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))


Geometry = tuple[str, tuple[int, ...], Any]


MOST_DIMENSIONS = 12


def has_sizes(*types: TensorType | None) -> bool:
    """Whether the kernel has to serve many sizes: some are Sizes.

    Nor is there one for more than 12 dimensions, the most that libraries have.

    >>> from weft.base.dtype import float32
    >>> from weft.ops.sizes import extent
    >>> has_sizes(TensorType((2, extent(0, 1)), float32)), has_sizes(TensorType((2, 3), float32))
    (True, False)
    """
    if any(t is not None and t.ndim > MOST_DIMENSIONS for t in types):
        return False
    return any(isinstance(n, Size) for t in types if t is not None for n in t.shape)


@op
class Linear(
    Product,
    rule="x[*b,in_features]: float, weight[out_features,in_features]: learnable float, "
    "bias[out_features]?: learnable float -> y[*b,out_features]: promote",
):
    """x W^T + b: a layer whose outputs are linear in its inputs.

    x: float[..., k]; weight: float[n, k]; bias: float[n] or None. Returns the promoted type, [..., n].
    out_features: n, for symbols, which make the weight and the bias themselves. Raises ShapeError if sizes differ.
    Source: Rosenblatt 1958, The perceptron.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.linear(wf.tensor([1., 2.]), wf.tensor([[3., 4.]]), wf.tensor([0.5]))
    tensor([11.5], dtype=float32, device=cpu:0)
    """

    channel_axis = -1
    out_features: int | None = None

    def decompose(self, x: Any, weight: Any, bias: Any = None) -> Any:
        if is_matrix_float(x.type, weight.type, None if bias is None else bias.type) and is_one_row(x.type):
            y = F.vecdot(F.expand_dims(x, axis=-2), weight)
            return y if bias is None else y + bias
        cast = recast(F.linear, (x, weight, bias))
        if cast is not None:
            return cast
        y = F.matmul(x, F.matrix_transpose(weight))
        return y if bias is None else y + bias

    def vjp(self, x: Any, weight: Any, bias: Any, dy: Any) -> Any:
        rows, cotangents = flat_rows(x), flat_rows(dy)
        db = None if bias is None else F.cast(F.sum(cotangents, axis=0), dtype=bias.dtype)
        return (
            F.cast(F.matmul(dy, weight), dtype=x.dtype),
            F.cast(F.matmul(F.matrix_transpose(cotangents), rows), dtype=weight.dtype),
            db,
        )


@op
class Outer(Product, rule="x1[m], x2[n] -> y[m,n]: promote to number|complex"):
    """The products of all pairs: y[i, j] = x1[i] x2[j].

    x1: numbers [m]; x2: numbers [n]. Returns the promoted type [m, n]. Raises ShapeError unless both are vectors.
    Source: array API 2024.12, linalg.outer.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.outer(wf.tensor([1, 2]), wf.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]], dtype=int64, device=cpu:0)
    """

    def decompose(self, x1: Any, x2: Any) -> Any:
        return F.expand_dims(x1, axis=1) * x2


@op
class Tensordot(Product, rule="x1, x2 -> y: promote"):
    """The sum of products over several axes of both: those of a that are left, then those of b that are left.

    x1, x2: numbers; axes: how many of x1's last and x2's first dimensions, or two tuples that pair them. Returns the
    promoted type. Raises ShapeError if paired sizes differ, IndexError if an axis is out of range.
    Source: array API 2024.12, tensordot.

    >>> import weft as wf
    >>> wf.tensordot(wf.ones((2, 3, 4)), wf.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """

    axes: int | tuple[tuple[int, ...], ...] = 2

    def check(self) -> None:
        if isinstance(self.axes, int):
            if self.axes < 0:
                raise ValueError(f"{self.name}: axes must be at least 0, got {self.axes}")
        elif len(self.axes) != 2 or len(self.axes[0]) != len(self.axes[1]):
            raise ValueError(f"{self.name}: axes must be two tuples of equal length, got {self.axes}")

    def _pairs(self, x1: TensorType, x2: TensorType) -> tuple[list[int], list[int]]:
        if isinstance(self.axes, int):
            if self.axes > min(x1.ndim, x2.ndim):
                raise self.fail(ShapeError, f"the operands have fewer than {self.axes} axes", x1=x1, x2=x2)
            pairs = (tuple(range(-self.axes, 0)), tuple(range(self.axes)))
        else:
            pairs = (self.axes[0], self.axes[1])
        first, second = (
            [normalize_axes(self.name, a, t.ndim)[0] for a in axes]
            for axes, t in zip(pairs, (x1, x2), strict=True)
        )
        if len(set(first)) != len(first) or len(set(second)) != len(second):
            raise self.fail(ValueError, f"an axis is named twice in {self.axes}", x1=x1, x2=x2)
        for i, j in zip(first, second, strict=True):
            if x1.shape[i] != x2.shape[j]:
                fact = f"sizes differ, {x1.shape[i]} of axis {i} != {x2.shape[j]} of axis {j}"
                raise self.fail(ShapeError, fact, x1=x1, x2=x2)
        return first, second

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        first, second = self._pairs(x1, x2)
        left = [n for d, n in enumerate(x1.shape) if d not in first]
        right = [n for d, n in enumerate(x2.shape) if d not in second]
        return self.promoted(x1=x1, x2=x2).like((*left, *right))

    def decompose(self, x1: Any, x2: Any) -> Any:
        first, second = self._pairs(x1.type, x2.type)
        left = [d for d in range(x1.ndim) if d not in first]
        right = [d for d in range(x2.ndim) if d not in second]
        m, k = (math.prod(x1.shape[d] for d in dims) for dims in (left, first))
        n = math.prod(x2.shape[d] for d in right)
        a = F.reshape(F.permute_dims(x1, axes=(*left, *first)), shape=(m, k))
        b = F.reshape(F.permute_dims(x2, axes=(*second, *right)), shape=(k, n))
        shape = (*(x1.shape[d] for d in left), *(x2.shape[d] for d in right))
        return F.reshape(F.matmul(a, b), shape=shape)


@op
class Einsum(Product, rule="*x -> y: promote", prefix="equation"):
    """Sums of products by Einstein's convention: einsum("ij,jk->ik", a, b) is the product of matrices.

    equation: a letter for each dimension, the operands separated by commas; "..." stands for leading dimensions that
    fit by broadcasting. Letters not in the result are summed; without "->" the result has those that occur once,
    sorted.
    x: numbers. Returns the promoted type. Two operands at a time are joined, those first whose product takes the fewest
    multiplications. A letter repeated within one operand means its diagonal. Raises ValueError for an equation that
    says nothing, ShapeError if sizes of one letter differ.
    Source: Einstein 1916; NumPy's einsum.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.einsum("ij,j->i", wf.tensor([[1., 2.], [3., 4.]]), wf.tensor([1., 1.]))
    tensor([3., 7.], dtype=float32, device=cpu:0)
    """

    equation: str

    def check(self) -> None:
        self.set("equation", self.equation.replace(" ", ""))
        plain = self.equation.replace("...", "").replace("->", "").replace(",", "")
        if not all(c.isascii() and c.isalpha() for c in plain) or self.equation.count("->") > 1:
            raise ValueError(
                f"{self.name}: the equation {self.equation!r} must consist of letters, ',', '...' and one '->'"
            )

    def _parse(self, x: Sequence[TensorType]) -> tuple[list[str], str, dict[str, Any]]:
        """Letters of each operand and of the result, and the sizes; dimensions of "..." get digits."""
        left, arrow, right = self.equation.partition("->")
        terms = left.split(",")
        if len(terms) != len(x):
            raise ValueError(
                f"{self.name}: {len(x)} operands for {len(terms)} of the equation {self.equation!r}"
            )
        operands = {f"x{k}": t for k, t in enumerate(x)}
        letters, extra = [], 0
        for term, t in zip(terms, x, strict=True):
            count = t.ndim - len(term.replace("...", ""))
            if count < 0 or (count and "..." not in term):
                raise self.fail(ShapeError, f"{term!r} does not fit {t.ndim} dimensions", **operands)
            extra = max(extra, count)
            letters.append(term.replace("...", "".join(chr(0x100 + d) for d in range(count - 1, -1, -1))))
        leading = "".join(chr(0x100 + d) for d in range(extra - 1, -1, -1))
        if not arrow:
            once = [c for c in sorted(set("".join(terms)) - {"."}) if left.count(c) == 1]
            right = "..." * bool(leading) + "".join(once)
        result = right.replace("...", leading)
        sizes: dict[str, Any] = {}
        for term, t in zip(letters, x, strict=True):
            for c, n in zip(term, t.shape, strict=True):
                size = sizes.setdefault(c, n)
                if size != n:
                    if ord(c) < 0x100 or (size != 1 and n != 1):
                        owner = f"of {c!r} " if ord(c) < 0x100 else ""
                        raise self.fail(ShapeError, f"sizes {owner}differ, {size} != {n}", **operands)
                    sizes[c] = n if size == 1 else size
        if len(set(result)) != len(result) or not set(result) <= set(sizes):
            raise ValueError(
                f"{self.name}: the result of {self.equation!r} repeats a letter or has a new one"
            )
        return letters, result, sizes

    def infer(self, *x: TensorType) -> TensorType:
        _, result, sizes = self._parse(x)
        operands = {f"x{k}": t for k, t in enumerate(x)}
        return self.promoted(**operands).like([sizes[c] for c in result])

    def decompose(self, *x: Any) -> Any:
        letters, result, sizes = self._parse([v.type for v in x])
        parts = [_diagonal(value, term) for value, term in zip(cast_all(x), letters, strict=True)]
        while len(parts) > 1:
            i, j = cheapest_pair([term for _, term in parts], sizes)
            second, first = parts.pop(j), parts.pop(i)
            keep = set(result).union(*(term for _, term in parts))
            parts.append(_join(*first, *second, keep))
        value, term = _summed(*parts[0], set(result))
        return F.permute_dims(value, axes=tuple(term.index(c) for c in result))


def cheapest_pair(terms: Sequence[str], sizes: dict[str, Any]) -> tuple[int, int]:
    """The two of several operands whose product takes the fewest multiplications; the first two if sizes are open.

    >>> cheapest_pair(["ij", "jk", "k"], {"i": 100, "j": 100, "k": 100})
    (1, 2)
    """
    if len(terms) == 2 or any(isinstance(n, Size) for n in sizes.values()):
        return 0, 1

    def cost(pair: tuple[int, int]) -> int:
        return math.prod(sizes[c] for c in set(terms[pair[0]] + terms[pair[1]]))

    return min(((i, j) for j in range(len(terms)) for i in range(j)), key=cost)


def _diagonal(value: Any, term: str) -> tuple[Any, str]:
    """With each letter once: dimensions of one letter become their diagonal, a view, at the end."""
    for c in term:
        while term.count(c) > 1:
            first = term.index(c)
            second = term.index(c, first + 1)
            value = F.diagonal(value, axis1=first, axis2=second)
            term = "".join(d for k, d in enumerate(term) if k not in (first, second)) + c
    return value, term


def _summed(value: Any, term: str, keep: set[str]) -> tuple[Any, str]:
    """The operand summed over the letters that neither another operand nor the result has."""
    axes = tuple(d for d, c in enumerate(term) if c not in keep)
    if not axes:
        return value, term
    return F.sum(value, axis=axes, dtype=value.dtype), "".join(c for c in term if c in keep)


def _join(a: Any, first: str, b: Any, second: str, keep: set[str]) -> tuple[Any, str]:
    """The product of two operands, summed over the letters that neither another operand nor the result has."""
    a, first = _summed(a, first, keep | set(second))
    b, second = _summed(b, second, keep | set(first))
    shared = [c for c in first if c in second]
    inner = [c for c in shared if c not in keep and _size(a, first, c) == _size(b, second, c)]
    batch = [c for c in shared if c not in inner]
    left, right = [c for c in first if c not in shared], [c for c in second if c not in shared]
    x = F.permute_dims(a, axes=tuple(first.index(c) for c in (*batch, *left, *inner)))
    y = F.permute_dims(b, axes=tuple(second.index(c) for c in (*batch, *inner, *right)))
    m, k, n = (
        math.prod(_size(v, term, c) for c in part)
        for v, term, part in ((a, first, left), (a, first, inner), (b, second, right))
    )
    lead = [(_size(a, first, c), _size(b, second, c)) for c in batch]
    x = F.reshape(x, shape=(*(p for p, _ in lead), m, k))
    y = F.reshape(y, shape=(*(q for _, q in lead), k, n))
    sizes = [
        *(q if p == 1 else p for p, q in lead),
        *(_size(a, first, c) for c in left),
        *(_size(b, second, c) for c in right),
    ]
    product = F.reshape(F.matmul(x, y), shape=tuple(sizes))
    return _summed(product, "".join((*batch, *left, *right)), keep)


def _size(value: Any, term: str, c: str) -> Any:
    return value.shape[term.index(c)]


__all__ = [
    "Dot",
    "Einsum",
    "Linear",
    "Matmul",
    "Outer",
    "SumOfProducts",
    "Tensordot",
    "Vecdot",
]
