"""What tests know of the operators of weft.ops.families.reduction."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError
from weft.ops.families.reduction import (
    All,
    Any_,
    CountNonzero,
    DivideByCount,
    ExtremePosition,
    ExtremeReduction,
    Logsumexp,
    Max,
    Mean,
    Min,
    Prod,
    Quantifier,
    Reduction,
    SpreadReduction,
    Std,
    Sum,
    Var,
    VectorNorm,
)
from weft.ops.kernels import highest, lowest
from weft.ops.samples import Array, Sample, arrays
from weft.ops.types import normalize_axes


def rows_of(op, x):
    """A PyTorch tensor with the axes of a reduction as its last one, and the shape of the result.

    PyTorch takes no axes to mean all of them, and some of its functions take but one.
    """
    axes = normalize_axes(op.name, op.axis, x.ndim)
    left = [d for d in range(x.ndim) if d not in axes]
    rows = x.permute(*left, *axes).flatten(len(left)) if axes else x[..., None]
    return rows, [1 if d in axes else n for d, n in enumerate(x.shape) if op.keepdims or d not in axes]


@material(Reduction)
class _:
    def torch_reference(self, torch, x):
        rows, shape = rows_of(self, x)
        return self.peer_of_rows(torch, rows).reshape(shape)

    def peer_of_rows(self, torch, rows):
        """The same along the last axis."""
        return getattr(torch, self.name)(rows, dim=-1)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4), distinct=True))
        for axis in (0, -1, (0, 2), (), None):
            for keepdims in (False, True):
                yield Sample(arrays((2, 3, 4), distinct=True), axis=axis, keepdims=keepdims)
        yield Sample(arrays((), distinct=True))

    @classmethod
    def errors(cls):
        yield IndexError, f"{cls.name}: axis 2", Sample(arrays((2, 3)), axis=2)
        if any(a.name == "axis" and "tuple" in a.accepts for a in cls.attributes):
            yield ValueError, f"{cls.name}: an axis is named twice", Sample(arrays((2, 3)), axis=(0, -2))


@material(Sum)
class _:
    def reference(self, x):
        dtype = None if self.dtype is None else self.dtype.numpy
        return np.sum(x, axis=self.axis, keepdims=self.keepdims, dtype=dtype)

    def peer_of_rows(self, torch, rows):
        dtype = None if self.dtype is None else getattr(torch, self.dtype.name)
        return torch.sum(rows, dim=-1, dtype=dtype)

    @classmethod
    def samples(cls):
        yield from super(Sum, cls).samples()
        yield Sample(arrays((2, 3)), axis=1, dtype="float64")
        yield Sample(arrays((2, 3)), axis=1, dtype="int64", gradient=False)
        yield Sample(arrays((0, 3)), axis=0)


@material(Prod)
class _:
    def reference(self, x):
        dtype = None if self.dtype is None else self.dtype.numpy
        return np.prod(x, axis=self.axis, keepdims=self.keepdims, dtype=dtype)

    def peer_of_rows(self, torch, rows):
        dtype = None if self.dtype is None else getattr(torch, self.dtype.name)
        return torch.prod(rows, dim=-1, dtype=dtype)

    @classmethod
    def samples(cls):
        yield from super(Prod, cls).samples()
        yield Sample(arrays((0, 3)), axis=0)
        yield Sample(arrays((2, 3)), dtype="float64")
        yield Sample(arrays((2, 3)), dtype="int8", gradient=False)


@material(Mean)
class _:
    @classmethod
    def errors(cls):
        yield from super(Mean, cls).errors()
        yield DTypeError, "mean: takes floating-point", Sample(arrays((2,), dtype="int32"))

    def reference(self, x):
        return np.mean(x, axis=self.axis, keepdims=self.keepdims)


@material(ExtremeReduction)
class _:
    def peer_of_rows(self, torch, rows):
        return getattr(torch, f"a{self.name}")(rows, dim=-1)


@material(Max)
class _:
    def reference(self, x):
        return np.max(x, axis=self.axis, keepdims=self.keepdims, initial=lowest(as_dtype(x.dtype).name))


@material(Min)
class _:
    def reference(self, x):
        last = True if x.dtype == bool else highest(as_dtype(x.dtype).name)
        return np.min(x, axis=self.axis, keepdims=self.keepdims, initial=last)


@material(Quantifier)
class _:
    @classmethod
    def samples(cls):
        yield from super(Quantifier, cls).samples()
        yield Sample(arrays((0, 3)), axis=0)
        yield Sample(arrays((3, 2), dtype="bool"), axis=1)


@material(Any_)
class _:
    def reference(self, x):
        return np.any(x, axis=self.axis, keepdims=self.keepdims)


@material(All)
class _:
    def reference(self, x):
        return np.all(x, axis=self.axis, keepdims=self.keepdims)


@material(CountNonzero)
class _:
    def reference(self, x):
        return np.count_nonzero(np.asarray(x), axis=self.axis, keepdims=self.keepdims)


@material(ExtremePosition)
class _:
    def reference(self, x):
        return getattr(np, self.name)(x, axis=self.axis, keepdims=self.keepdims)

    @classmethod
    def samples(cls):
        for axis in (0, -1, None):
            for keepdims in (False, True):
                yield Sample(arrays((2, 3, 4)), axis=axis, keepdims=keepdims)
        yield Sample(arrays(()))


@material(SpreadReduction)
class _:
    def peer_of_rows(self, torch, rows):
        return getattr(torch, self.name)(rows, dim=-1, correction=self.correction)

    @classmethod
    def samples(cls):
        for axis, keepdims in ((0, False), (-1, True), ((0, 2), False), (None, False)):
            for correction in (0, 1, 0.5):
                yield Sample(arrays((2, 3, 4)), axis=axis, keepdims=keepdims, correction=correction)

    @classmethod
    def errors(cls):
        yield from super(SpreadReduction, cls).errors()
        yield DTypeError, f"{cls.name}: takes floating-point", Sample(arrays((2,), dtype="int32"))


@material(Var)
class _:
    def reference(self, x):
        return np.var(x, axis=self.axis, keepdims=self.keepdims, ddof=self.correction)


@material(Std)
class _:
    def reference(self, x):
        return np.std(x, axis=self.axis, keepdims=self.keepdims, ddof=self.correction)


@material(Logsumexp)
class _:
    def reference(self, x):
        keepdims = self.keepdims
        axis = self.axis
        return np.logaddexp.reduce(x, axis=axis, keepdims=keepdims)

    @classmethod
    def samples(cls):
        for sample in super(Logsumexp, cls).samples():
            if (
                not isinstance(sample.attributes.get("axis", 0), tuple)
                and sample.attributes.get("axis", 0) is not None
            ):
                yield sample
        inf = float("inf")
        rows = ((-inf, -inf), (-inf, 1.0), (inf, 1.0), (1000.0, 1000.0))
        yield Sample(Array((4, 2), values=rows), axis=1, gradient=False)

    @classmethod
    def errors(cls):
        yield from super(Logsumexp, cls).errors()
        yield DTypeError, "logsumexp: takes floating-point", Sample(arrays((2,), dtype="int32"))


@material(VectorNorm)
class _:
    def reference(self, x):
        axes = normalize_axes(self.name, self.axis, np.ndim(x))
        if not axes:
            return np.abs(x) if self.ord else (np.asarray(x) != 0) * 1.0
        rows = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*np.delete(np.shape(x), axes), -1)
        found = np.linalg.norm(rows, self.ord, axis=-1)
        return np.expand_dims(found, axes) if self.keepdims else found

    def peer_of_rows(self, torch, rows):
        return torch.linalg.vector_norm(rows, self.ord, dim=-1)

    @classmethod
    def samples(cls):
        yield from super(VectorNorm, cls).samples()
        for ord in (0, 1, 3, 2.5, float("inf"), float("-inf")):
            yield Sample(arrays((2, 3), distinct=True), axis=1, ord=ord)

    @classmethod
    def errors(cls):
        yield from super(VectorNorm, cls).errors()
        yield DTypeError, "vector_norm: takes floating-point", Sample(arrays((2,), dtype="int32"))


@material(DivideByCount)
class _:
    def reference(self, a, x):
        remaining = np.prod([x.shape[axis] for axis in self.axis]) - self.correction
        return a / (remaining if remaining > 0 else np.nan)
