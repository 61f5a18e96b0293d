"""Code for stacks of matrices on the stand-in, in each kind of memory, against NumPy."""

import functools
import itertools
import re

import numpy as np
import pytest
from tests.ops.material.linalg import lu_of
from tests.ops.support import SEED

from weft.expr.llvm_matrices import MEMORY, shared_bytes
from weft.expr.targets import compile_threads, standin_target
from weft.kernels.gpu.matrix_factors import cholesky_code, lu_code, solve_code, triangular_code
from weft.kernels.gpu.matrix_reflections import qr_code
from weft.kernels.gpu.matrix_rotations import eigh_code, svd_code
from weft.kernels.gpu.matrix_schur import eig_code

from .standin import DeviceFault, gpu, without_barrier

DTYPES = ("float32", "float64", "complex64", "complex128")
STACK = 3
BARRIER = re.compile(r"  call void @weft_barrier")


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def drawn(shape, dtype, seed=0):
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


class Example:
    """Code with one leading loop, its inputs, the sizes of its loops, and what has to hold of its results."""

    def __init__(self, code, inputs, sizes, check):
        self.code, self.inputs, self.sizes, self.check = code, inputs, sizes, check
        self.count = next(iter(inputs.values())).shape[0]

    def fits(self, memory):
        need = sum(shared_bytes(w.dtype, *(self.sizes[loop] for loop in w.loops)) for w in self.code.work)
        return memory == 0 or need <= MEMORY[memory][0]

    def run(self, memory, is_narrow=True, blocks=2, seed=0, text=None):
        code = self.code.code(memory, is_narrow)
        code = code.replaced(text=text(code.text)) if text else code
        loops = [*range(self.code.lead), *self.code.loops]
        sizes = [self.count, *(self.sizes[loop] for loop in self.code.loops)]
        arrays, strides, results = [], [], {}
        for name, dtype, own in self.code.operands:
            array = self.inputs.get(name)
            if array is None:
                array = np.zeros((self.count, *(self.sizes[loop] for loop in own)), dtype)
                array[...] = 77
                results[name] = array
            arrays.append(np.ascontiguousarray(array).copy() if name not in results else array)
            moves = dict(zip([0, *own], arrays[-1].strides, strict=True))
            strides += [moves.get(loop, 0) for loop in loops]
        for work in self.code.scratch:
            shape = (self.count, *(self.sizes[loop] for loop in work.loops))
            arrays.append(np.full(shape, np.nan, work.dtype))
            moves = dict(zip([0, *work.loops], arrays[-1].strides, strict=True))
            strides += [moves.get(loop, 0) for loop in loops]
        gpu().run(compile_threads(code, standin_target()), code, blocks, arrays, [*sizes, *strides], seed)
        return results


def near(got, want, dtype, scale=1.0):
    bound = (3e-5 if np.dtype(dtype).itemsize == (8 if "complex" in dtype else 4) else 1e-12) * scale
    np.testing.assert_allclose(
        got, want, rtol=bound, atol=bound * max(abs(np.asarray(want)).max(initial=0), 1e-300)
    )


def positive(n, dtype):
    x = drawn((STACK, n, n), dtype)
    return (x @ adjoint(x) / max(n, 1) + np.eye(n)).astype(dtype)


def wide(x):
    return x.astype("complex128" if np.iscomplexobj(x) else "float64")


def cholesky(dtype, n, m, is_upper=False):
    x = positive(n, dtype)
    want = np.linalg.cholesky(wide(x))

    def check(got):
        near(got["y"], adjoint(want) if is_upper else want, dtype)
        assert not got["failures"].any()

    skewed = x + (drawn(x.shape, dtype) - adjoint(drawn(x.shape, dtype)))  # the Hermitian part counts
    sizes = {"rows": n, "across": n}
    return Example(cholesky_code(dtype, 1, is_upper), {"x": skewed}, sizes, check)


def triangular(dtype, n, m, is_upper=False, is_unit=False, is_vector=False):
    a = drawn((STACK, n, n), dtype) / max(n, 1) + 2 * np.eye(n).astype(dtype)
    b = drawn((STACK, n) if is_vector else (STACK, n, m), dtype)
    t = np.triu(a, int(is_unit)) if is_upper else np.tril(a, -int(is_unit))
    t = wide(t + np.eye(n) * is_unit)
    want = np.linalg.solve(t, wide(b)[..., None])[..., 0] if is_vector else np.linalg.solve(t, wide(b))

    def check(got):
        near(got["y"], want, dtype)
        assert not got["failures"].any()

    sizes = {"rows": n, "across": n, "columns": m}
    code = triangular_code(dtype, 1, is_vector, is_upper, is_unit)
    return Example(code, {"a": a, "b": b}, sizes, check)


def lu(dtype, n, m):
    x = drawn((STACK, n, m), dtype)
    if n > 2 and m > 2:
        x[1, 2], x[2, 1] = x[1, 0], -x[2, 0]  # equal pivots, and a singular matrix
    want = lu_of(wide(x))

    def check(got):
        lower = np.tril(got["lu"], -1)[..., : min(n, m)] + np.eye(n, min(n, m))
        product = lower @ np.triu(got["lu"])[..., : min(n, m), :]
        near(product, np.take_along_axis(x, got["permutation"][..., None], -2), dtype)
        for k in (0, 1, 2) if n <= 9 else (0,):  # rounding decides between others of a large singular one
            assert np.array_equal(got["pivots"][k][: n - 2 if k else n], want[1][k][: n - 2 if k else n])
        near(got["lu"][0], want[0][0], dtype, 30)
        order = np.tile(np.arange(n), (STACK, 1))
        for k, p in np.ndindex(got["pivots"].shape):
            q = got["pivots"][k, p]
            order[k, [p, q]] = order[k, [q, p]]
        assert np.array_equal(order, got["permutation"])

    sizes = {"rows": n, "columns": m, "least": min(n, m)}
    return Example(lu_code(dtype, 1), {"x": x}, sizes, check)


def solve(dtype, n, m, is_vector=False, is_inverse=False):
    a = drawn((STACK, n, n), dtype)
    b = drawn((STACK, n) if is_vector else (STACK, n, m), dtype)

    def check(got):
        y = wide(got["y"])
        sides = wide(b)[..., None] if is_vector else np.eye(n) if is_inverse else wide(b)
        found = wide(a) @ (y[..., None] if is_vector else y)
        size = np.linalg.norm(a, axis=(-2, -1)).max(initial=1) * abs(y).max(initial=1)
        assert abs(found - sides).max(initial=0) <= size * (
            1e-5 if dtype in ("float32", "complex64") else 1e-13
        )
        assert not got["failures"].any()

    inputs = {"x": a} if is_inverse else {"a": a, "b": b}
    sizes = {"rows": n, "across": n, "columns": m}
    return Example(solve_code(dtype, 1, is_vector, is_inverse), inputs, sizes, check)


def qr(dtype, n, m, is_complete=False):
    x = drawn((STACK, n, m), dtype)
    width = n if is_complete else min(n, m)
    want = np.linalg.qr(wide(x), "complete" if is_complete else "reduced")

    def check(got):
        q, r = got["q"], got["r"]
        near(q @ r, x, dtype)
        near(adjoint(q) @ q, np.broadcast_to(np.eye(width), (STACK, width, width)), dtype)
        assert not np.tril(r, -1).any()
        near(r[:, : min(n, m)], want[1][:, : min(n, m)], dtype, 30)  # with LAPACK's signs

    return Example(qr_code(dtype, 1), {"x": x}, {"rows": n, "columns": m, "width": width}, check)


def eigh(dtype, n, m, has_vectors=True):
    x = drawn((STACK, n, n), dtype)
    part = wide(x + adjoint(x)) / 2
    want = np.linalg.eigvalsh(part)

    def check(got):
        near(got["values"], want, dtype)
        assert not got["failures"].any()
        if has_vectors:
            v = wide(got["vectors"])
            near(adjoint(v) @ v, np.broadcast_to(np.eye(n), v.shape), dtype)
            near(v * got["values"][:, None] @ adjoint(v), part, dtype)

    return Example(eigh_code(dtype, 1, has_vectors), {"x": x}, {"rows": n, "across": n}, check)


def svd(dtype, n, m, is_full=False, has_u=True, has_vh=True, rank=None):
    x = drawn((STACK, n, m), dtype)
    if rank is not None:
        x[1] = drawn((n, rank), dtype) @ drawn((rank, m), dtype)
        x[2, :, rank:], x[2, rank:] = 0, 0
    k = min(n, m)
    want = np.linalg.svd(wide(x), compute_uv=False)

    def check(got):
        near(got["s"], want, dtype)
        assert not got["failures"].any()
        for name in ("u", "vh"):
            if name in got:
                v = wide(got[name])
                v = adjoint(v) if name == "vh" else v
                near(adjoint(v) @ v, np.broadcast_to(np.eye(v.shape[-1]), (STACK, *v.shape[-1:] * 2)), dtype)
        if has_u and has_vh:
            near(wide(got["u"])[..., :k] * got["s"][:, None] @ wide(got["vh"])[:, :k], x, dtype)

    left, right = (n, m) if is_full else (k, k)
    sizes = {"rows": n, "columns": m, "least": k, "left": left, "right": right}
    return Example(svd_code(dtype, 1, is_full, has_u, has_vh), {"x": x}, sizes, check)


def eig(dtype, n, m, has_vectors=True):
    x = drawn((STACK, n, n), dtype)
    if n > 2:
        x[1] = np.triu(x[1]) * 3
        x[2] = x[2] @ np.diag(np.arange(n) % 3) @ np.linalg.inv(wide(x[2]))  # values several times
    want = np.linalg.eigvals(wide(x))

    def check(got):
        assert not got["failures"].any()
        bound = (3e-4 if dtype in ("float32", "complex64") else 1e-11) * max(n, 1)
        for k in range(STACK):
            left = [*want[k]]
            for value in got["values"][k]:
                best = min(range(len(left)), key=lambda i: abs(left[i] - value))
                assert abs(left.pop(best) - value) <= bound
        if has_vectors:
            v = wide(got["vectors"])
            assert abs(wide(x) @ v - v * got["values"][:, None]).max(initial=0) <= bound
            near((abs(v) ** 2).sum(-2), np.ones((STACK, n)), dtype)

    return Example(eig_code(dtype, 1, has_vectors), {"x": x}, {"rows": n, "across": n}, check)


KINDS = {
    "cholesky": (cholesky, {}),
    "cholesky upper": (cholesky, {"is_upper": True}),
    "triangular": (triangular, {}),
    "triangular upper": (triangular, {"is_upper": True}),
    "triangular unit": (triangular, {"is_upper": True, "is_unit": True}),
    "triangular vector": (triangular, {"is_vector": True}),
    "lu": (lu, {}),
    "solve": (solve, {}),
    "solve vector": (solve, {"is_vector": True}),
    "inverse": (solve, {"is_inverse": True}),
    "qr": (qr, {}),
    "qr complete": (qr, {"is_complete": True}),
    "eigh": (eigh, {}),
    "eigh values": (eigh, {"has_vectors": False}),
    "eig": (eig, {}),
    "eig values": (eig, {"has_vectors": False}),
    "svd": (svd, {}),
    "svd full": (svd, {"is_full": True}),
    "svd values": (svd, {"has_u": False, "has_vh": False}),
    "svd left": (svd, {"has_vh": False}),
    "svd right": (svd, {"has_u": False, "is_full": True}),
    "svd deficient": (svd, {"rank": 2}),
    "svd deficient full": (svd, {"rank": 1, "is_full": True}),
}
SIZES = [(3, 3), (4, 2), (2, 5), (1, 1), (9, 4), (33, 40), (40, 33), (0, 3), (3, 0), (0, 0), (7, 1), (66, 65)]
CASES = list(itertools.product(KINDS, DTYPES))  # four of them every day, all with --full


@functools.cache
def example(kind, dtype, n, m):
    make, options = KINDS[kind]
    return make(dtype, n, m, **options)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [pytest.param(*c, marks=[] if (k + SEED) % 23 == 0 else pytest.mark.full) for k, c in enumerate(CASES)],
)
def test_values(kind, dtype):
    for (n, m), memory in itertools.product(SIZES, range(len(MEMORY))):
        trial = example(kind, dtype, n, m)
        if not trial.fits(memory) or (memory == 0 and n * m > 2000):
            continue
        first = trial.run(memory)
        trial.check(first)
        if n * m > 100:
            continue
        for how in ({"blocks": 1, "seed": SEED + 1}, {"blocks": 7, "seed": SEED + 2, "is_narrow": False}):
            again = trial.run(memory, **how)  # whatever the order
            assert all(first[name].tobytes() == again[name].tobytes() for name in first), (n, m, memory, how)


# Others have the same code, some of which does nothing for their matrices.
WHOLE = [kind for kind in KINDS if kind not in ("svd", "svd left", "svd deficient", "svd deficient full")]
MUTATED = list(itertools.product(WHOLE, range(len(MEMORY) - 1)))  # two of them every day


@pytest.mark.parametrize(
    ("kind", "memory"),
    [pytest.param(*c, marks=[] if (k + SEED) % 19 == 0 else pytest.mark.full) for k, c in enumerate(MUTATED)],
)
def test_every_barrier_is_needed(kind, memory):
    """Without any one of them some order of threads gives something else."""
    trial = KINDS[kind][0]("float64", 9, 12, **KINDS[kind][1])
    assert trial.fits(memory)
    want = trial.run(memory, blocks=1)
    found = []
    trial.run(memory, text=lambda text: found.extend(BARRIER.findall(text)) or text)
    for number in range(len(found)):
        for seed in range(1, 30):
            try:
                got = trial.run(memory, blocks=1, seed=seed, text=without_barrier(number))
            except DeviceFault:
                break
            if any(got[name].tobytes() != want[name].tobytes() for name in got):
                break
        else:
            pytest.fail(f"{kind}: nothing shows that barrier {number} of {len(found)} is missing")


def failures(make, x, memory, **options):
    """What code stores of matrices of which it says why they have no result."""
    trial = make("float64", *x.shape[1:], **options)
    trial.inputs["x" if "x" in trial.inputs else "a"], trial.count = x, len(x)
    if "b" in trial.inputs:
        trial.inputs["b"] = np.ones((len(x), *trial.inputs["b"].shape[1:]))
    return trial.run(memory)["failures"].tolist()


@pytest.mark.parametrize("memory", range(len(MEMORY)))
def test_failures(memory):
    x = np.stack([np.eye(5)] * 4)
    x[1, 3, 3], x[2, 1, 1], x[3, 4, 4] = 0, 0, -1
    x[2, 4, 4] = 0
    assert failures(cholesky, x, memory) == [0, 4, 2, 5]
    assert failures(triangular, x, memory) == [0, 4, 2, 0]
    assert failures(triangular, x, memory, is_upper=True) == [0, 4, 2, 0]
    assert failures(triangular, x, memory, is_upper=True, is_unit=True) == [0, 0, 0, 0]
    assert failures(solve, x, memory) == [0, 4, 2, 0]
    assert failures(solve, x, memory, is_inverse=True) == [0, 4, 2, 0]
    x[0, 2, 1], x[1, 0, 0] = np.nan, np.inf
    assert failures(eigh, x, memory) == [1, 1, 0, 0]
    assert failures(svd, x, memory) == [1, 1, 0, 0]
    assert failures(eig, x, memory) == [1, 1, 0, 0]
    assert failures(cholesky, x[:1], memory) == [3]


def test_pivots_beside_nan():
    """NaN is greater than nothing, and nothing than a NaN that is there first, as in LAPACK's search."""
    trial = lu("float64", 5, 5)
    x = drawn((2, 5, 5), "float64")
    x[0, 0, 0] = x[1, 3, 0] = np.nan
    trial.inputs["x"], trial.count = x, 2
    others = [0, 1, 2, 4]
    assert trial.run(1)["pivots"][:, 0].tolist() == [0, others[np.argmax(abs(x[1, others, 0]))]]


SCALES = {
    "huge": (1e300, 1e38),
    "tiny": (1e-300, 1e-38),
    "least": (5e-324, 1e-45),
}


@pytest.mark.parametrize("memory", range(len(MEMORY)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", SCALES)
def test_sizes_of_elements(scale, dtype, memory):
    """Roots of squares neither overflow nor underflow; the least numbers round to whole ones."""
    unit = SCALES[scale][dtype == "float32"]
    whole = np.round(drawn((1, 6, 6), "float64") * 4)
    exact = np.random.default_rng(3).integers(-9, 9, (1, 6, 6)) * 1.0
    for make, options, name in ((qr, {}, "r"), (svd, {}, "s"), (eigh, {}, "values")):
        trial = make(dtype, 6, 6, **options)
        x = (exact if scale == "least" else whole / 16).astype("longdouble") * unit
        trial.inputs["x"], trial.count = x.astype(dtype), 1
        got = trial.run(memory)[name]
        with np.errstate(all="ignore"):
            part = (trial.inputs["x"].astype("longdouble") / np.longdouble(unit)).astype("float64")
            found = (got.astype("longdouble") / np.longdouble(unit)).astype("float64")
        want = {
            "r": lambda part=part: np.linalg.qr(part)[1],
            "s": lambda part=part: np.linalg.svd(part, compute_uv=False),
            "values": lambda part=part: np.linalg.eigvalsh((part + part.swapaxes(-1, -2)) / 2),
        }[name]()
        bound = 6 if scale == "least" else abs(want).max() * (1e-5 if dtype == "float32" else 1e-13)
        assert abs(found - want).max() <= bound, (name, found, want)


def test_small_singular_values_are_accurate():
    """Those of a product of a matrix with orthogonal columns and a diagonal one, in relation to themselves."""
    trial = svd("float64", 8, 6)
    basis = np.linalg.qr(drawn((8, 6), "float64"))[0]
    sizes = 10.0 ** -np.arange(0, 36, 6)
    trial.inputs["x"] = (basis * sizes)[None]
    trial.count = 1
    np.testing.assert_allclose(trial.run(1)["s"][0], sizes, rtol=1e-13)
