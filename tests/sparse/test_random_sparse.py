"""Random programs of sparse arrays: each step means what it means for the dense array, eagerly and traced.

Each operator is tried: it gives what the dense one gives, sparse or dense, or refuses by TypeError; and each array is
made with rows stored twice, in any order, and with nothing stored. With --full, ten minutes of them, as
tests/ops/test_random_calls.py says.
"""

import collections

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while
from tests.ops.support import OPERATORS, TOLERANCE

import weft as wf
import weft.functional as F
from weft.base.dtype import DTYPES
from weft.ops.pointwise import Pointwise
from weft.sparse import Csr, RowSparse
from weft.sparse.base import SparseArray

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::weft.traces.trace.TraceWarning")
SIZES = (0, 1, 1, 2, 3, 5, 8)
NUMBERS = [dtype.name for dtype in DTYPES if dtype.kind != "bool"]
POINTWISE = [cls for cls in OPERATORS if issubclass(cls, Pointwise) and not cls.random and not cls.attributes]
UNARY, BINARY = ([cls.name for cls in POINTWISE if len(cls.inputs) == n] for n in (1, 2))


def dense_of(x):
    return x.todense() if isinstance(x, SparseArray) else x


class Drawing:
    """Arrays and steps of one program."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.dtypes = [self.pick(NUMBERS) for _ in range(2)]

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def numbers(self, shape):
        dtype = self.pick(self.dtypes)
        a = self.rng.integers(0 if dtype[0] == "u" else -3, 4, shape) / (2 if dtype[0] in "bfc" else 1)
        if dtype[0] == "c":  # off the axes, on which functions are cut, and zeros have signs
            a = a + 0.125 + 1j * (self.rng.integers(-3, 4, shape) + 0.375)
        return wf.tensor(np.asarray(a)).astype(dtype)

    def sparse(self, kind, shape):
        """Some elements of a matrix, or some rows of an array, which may be there twice."""
        if kind is RowSparse:
            rows = self.rng.integers(0, shape[0], self.pick(SIZES)) if shape[0] else np.zeros(0, "int64")
            return RowSparse(rows, self.numbers((rows.size, *shape[1:])), shape)
        stored = self.rng.random(shape) < self.pick((0.0, 0.3, 1.0))
        indptr = np.concatenate([[0], np.cumsum(stored.sum(1))])
        return Csr(indptr, np.nonzero(stored)[1], self.numbers(int(stored.sum())), shape)

    def step(self, x):
        """(what it is, function of x and of an operand, operand or None)."""
        n, rest = x.shape[0], x.shape[1:]
        is_matrix = x.ndim == 2
        match self.pick(
            ("unary", "unary", "binary", "dense", "number", "sum", "left", "right", "two", "move", "slice")
        ):
            case "unary":
                name = self.pick(UNARY)
                return name, lambda x, y: getattr(F, name)(x), None
            case "binary":
                name = self.pick(("add", "subtract", "multiply", *BINARY))
                return name, lambda x, y: getattr(F, name)(x, y), self.sparse(type(x), x.shape)
            case "dense":
                name = self.pick(("add", "subtract", "multiply", "multiply"))
                shape = x.shape if name != "multiply" else tuple(self.pick((1, k)) for k in x.shape)
                if self.rng.random() < 0.5:
                    return name, lambda x, y: getattr(F, name)(y, x), self.numbers(shape)
                return name, lambda x, y: getattr(F, name)(x, y), self.numbers(shape)
            case "number":
                name, number = self.pick(BINARY), self.pick((2, 3, 0.5))
                return f"{name} {number}", lambda x, y: getattr(F, name)(x, number), None
            case "sum":
                axis, keepdims = self.pick((None, *range(-x.ndim, x.ndim))), bool(self.rng.integers(2))
                return f"sum over {axis}", lambda x, y: F.sum(x, axis=axis, keepdims=keepdims), None
            case "left" if is_matrix:
                shape = self.pick(((rest[0],), (rest[0], 3)))
                return "x @ y", lambda x, y: F.matmul(x, y), self.numbers(shape)
            case "two" if is_matrix:
                y = self.sparse(Csr, (rest[0], self.pick(SIZES)))
                return "x @ y", lambda x, y: F.matmul(x, y), y
            case "right" if is_matrix:
                return (
                    "y @ x",
                    lambda x, y: F.matmul(y, x),
                    self.numbers(self.pick(((n,), (2, n), (2, 3, n)))),
                )
            case "move" if isinstance(x, Csr):
                return "transposed", lambda x, y: x.T, None
        start, stop = sorted(map(int, self.rng.integers(-n - 1, n + 2, 2)))
        return f"rows {start}:{stop}", lambda x, y: x[start:stop], None


def tolerance(x):
    return TOLERANCE.get(x.dtype.name, 0)


def assert_same(got, want, what, coarsest=0):
    """coarsest: the tolerance of what came before, if that is larger than that of the result's dtype."""
    got, want = dense_of(got), dense_of(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), what
    a, b = (
        np.asarray(v.numpy()).astype("complex128" if v.dtype.is_complex else "float64") for v in (got, want)
    )
    bound = 8 * max(coarsest, tolerance(got))
    near = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        near |= abs(a - b) <= bound * (1 + abs(b))
    assert near.all(), f"{what}: {a[~near][:3]} instead of {b[~near][:3]}"


def is_alike(x):
    """Whether zeros that are not stored stay zeros of the dense array: nothing infinite is multiplied with them.

    Nor is a -0 stored, which is 0 in the dense array, and has another angle.
    """
    if not np.isfinite(dense_of(x).numpy().astype("complex128")).all():
        return False
    stored = x.values.numpy().astype("complex128") if isinstance(x, SparseArray) else np.zeros(0)
    return not any(((parts == 0) & np.signbit(parts)).any() for parts in (stored.real, stored.imag))


def or_refusal(call):
    try:
        return call()
    except (TypeError, NotImplementedError) as refusal:
        return refusal


def run(seed, counts):
    draw = Drawing(seed)
    kind = draw.pick((Csr, RowSparse))
    shape = tuple(draw.pick(SIZES) for _ in range(2 if kind is Csr else draw.pick((1, 2, 2, 3))))
    x = draw.sparse(kind, shape)
    text = f"seed {seed}: {x!r} of {dense_of(x).tolist()}"
    coarsest = 0  # rows that are listed twice are added after a later conversion
    for _ in range(int(draw.rng.integers(1, 6))):
        coarsest = max(coarsest, tolerance(x))
        name, function, y = draw.step(x)
        text += f"\n{name} {y!r}"
        found = or_refusal(lambda function=function, x=x, y=y: function(x, y))
        if isinstance(found, Exception):
            assert isinstance(found, wf.DTypeError) or "sparse operands" in str(found), f"{text}\n{found}"
            counts["refused"] += 1
            continue
        counts[name.split()[0]] += 1
        assert_same(found, function(dense_of(x), None if y is None else dense_of(y)), text, coarsest)
        compare_programs(x, y, function, text, coarsest)
        if not isinstance(found, SparseArray) or not is_alike(found):
            return
        x = found


def compare_programs(x, y, function, text, coarsest):
    """Traced, and the gradients with respect to what is stored, those of the dense computation."""

    def value(values, of):
        return dense_of(function(of(x.with_values(values)), y if y is None else of(y)))

    want = value(x.values, dense_of)
    if not (want.dtype.is_inexact and x.dtype.is_inexact and is_alike(want)):
        return

    def loss(of):
        return lambda values: F.sum(F.square(F.abs(value(values, of))).astype("float64"))

    got, wanted = (wf.grad(loss(of))(x.values) for of in (lambda v: v, dense_of))
    if is_alike(wanted):
        assert_same(got, wanted, f"{text}\ngradient", coarsest)
    if isinstance(x, Csr) and y is None:
        traced = wf.trace(lambda values: value(values, lambda v: v))
        for _ in range(2):
            assert_same(traced(x.values), want, f"{text}\ntraced", coarsest)


def test_random_programs_of_sparse_arrays():
    counts = collections.Counter()
    for seed in seeds(0, 12):
        run(seed, counts)
    assert counts.total() > counts["refused"] > 0


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_random_programs_of_sparse_arrays_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        run(seed, counts)
    print(counts.total(), "steps", counts)


@pytest.mark.parametrize("kind", [Csr, RowSparse])
def test_unsigned_integers_are_converted_before_they_are_negated(kind):
    values, dense = wf.tensor([1, 2], dtype="uint8"), wf.tensor([[0.5], [-3.0]])
    a = Csr([0, 1, 2], [0, 0], values, (2, 1)) if kind is Csr else RowSparse([0, 1], values[:, None], (2, 1))
    b = a.with_values(a.values.astype("float32") + 2)
    assert F.subtract(dense, a).tolist() == [[-0.5], [-5.0]]
    assert F.subtract(b, a).todense().tolist() == [[2.0], [2.0]]
    assert F.subtract(a, dense.astype("float64")).tolist() == [[0.5], [5.0]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.astype("float32"),
        lambda x: F.cast(x, dtype="int32"),
        lambda x: x * 0.5,
        lambda x: F.sum(x, axis=0),
        lambda x: F.sum(x, axis=1),
        lambda x: x + wf.ones((3, 2)),
        lambda x: x * wf.full((3, 2), 3, dtype="int32"),
        lambda x: x @ wf.ones((2, 2)),
        lambda x: wf.ones((2, 3)) @ x,
        lambda x: x + RowSparse([1], wf.ones((1, 2)), (3, 2)),
        lambda x: x * RowSparse([1], wf.ones((1, 2)), (3, 2)),
    ],
)
def test_rows_of_integers_stored_twice_wrap_before_they_are_converted(function):
    x = RowSparse([1, 0, 1], wf.tensor([[100, 1], [2, 3], [100, 127]], dtype="int8"), (3, 2))
    got, want = dense_of(function(x)), dense_of(function(x.todense()))
    assert got.dtype == want.dtype
    assert got.tolist() == want.tolist()
