"""Linear algebra beyond single operators: failures, small matrices at every level, gradients that ignore phases."""

import subprocess
import sys

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core

STANDARD = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
FOURIER = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def random_matrices(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


def test_namespaces_have_what_the_standard_names():
    assert len(STANDARD) == 23
    assert not [name for name in STANDARD if not callable(getattr(wf.linalg, name, None))]
    assert not [name for name in FOURIER if not callable(getattr(wf.fft, name, None))]
    assert {*STANDARD} <= {*wf.linalg.__all__}
    assert {*FOURIER} <= {*wf.fft.__all__}
    with pytest.raises(AttributeError, match="linalg"):
        wf.linalg.choleski  # noqa: B018


def test_results_have_the_names_of_the_standard():
    x = wf.eye(2)
    assert wf.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert wf.linalg.qr(x)._fields == ("Q", "R")
    assert wf.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert wf.linalg.svd(x)._fields == ("U", "S", "Vh")


def test_nothing_is_loaded_before_the_first_call():
    code = (
        "import sys, weft as wf; x = wf.ones((2, 2)); (x + x).sum().item()\n"
        "assert 'numpy.linalg._umath_linalg' not in sys.modules and 'weft.kernels.cpu.linalg' not in sys.modules\n"
        "assert wf.linalg.inv(wf.eye(2)).sum().item() == 2 and wf.fft.fft(x).shape == (2, 2)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("level", ["sse4", "avx2", "avx512"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_matrices_at_every_level(level, dtype):
    """More matrices than lanes, and a part of a group; each pivot is somewhere else."""
    before = _core.set_kernel_isa(level)
    try:
        for n in (1, 4, 9, 32):
            x = random_matrices((19, n, n), dtype, n)
            square = x @ adjoint(x) + n * np.eye(n, dtype=dtype)
            b = random_matrices((19, n, 3), dtype)
            bound = {
                "rtol": 2e-3 if dtype == "float32" else 1e-9,
                "atol": 1e-3 if dtype == "float32" else 1e-9,
            }
            lower = F.cholesky(wf.tensor(square))
            np.testing.assert_allclose(lower.numpy(), np.linalg.cholesky(square), **bound)
            np.testing.assert_allclose(
                F.solve(wf.tensor(square), wf.tensor(b)).numpy(), np.linalg.solve(square, b), **bound
            )
            np.testing.assert_allclose(F.inv(wf.tensor(square)).numpy(), np.linalg.inv(square), **bound)
            p, low, up = F.lu(wf.tensor(x))
            np.testing.assert_allclose((p @ low @ up).numpy(), x, **bound)
            assert abs(low.numpy()).max() <= 1 + 1e-6  # the pivots are the greatest
            y = F.solve_triangular(wf.tensor(square), wf.tensor(b), upper=True)
            np.testing.assert_allclose(
                np.triu(square) @ y.numpy(), b, rtol=bound["rtol"], atol=bound["atol"] * 30
            )
    finally:
        _core.set_kernel_isa(before)


def test_a_matrix_without_a_result_is_named_and_poisons_its_result_only():
    x = np.stack([np.eye(3)] * 40).astype("float32")
    x[17, 1, 1], x[30, 0, 0] = 0, 0
    for call, fact in (
        (lambda a: F.inv(a), "inv: matrix 17 of the 40 of x is singular: pivot 2 of its elimination is 0"),
        (lambda a: F.solve(a, a), "solve: matrix 17 of the 40 of a is singular"),
        (
            lambda a: F.solve_triangular(a, a),
            "matrix 17 of the 40 of a is singular: element 1 of its diagonal",
        ),
        (
            lambda a: F.cholesky(a),
            "cholesky: matrix 17 of the 40 of x is not positive definite: its leading minor",
        ),
        (
            lambda a: F.eigvalsh(a / a[30, 0, 0]),
            "eigh: matrix 0 of the 40 of x has elements that are not finite",
        ),
    ):
        a = wf.tensor(x)
        bad = call(a)
        good = F.det(a)
        with pytest.raises(ValueError, match=fact):
            bad.numpy()
        with pytest.raises(ValueError, match=fact):
            (bad + 1).numpy()
        assert good.numpy()[17] == 0
        assert a.numpy()[0, 0, 0] == 1


def phase_free(name):
    """Functions of decompositions that do not depend on the phases of vectors, with the same in NumPy."""
    weights = random_matrices((4, 4), "complex128", 9)

    def of(lib, x):
        conj, turn = (
            (F.conj, F.matrix_transpose) if lib is wf else (np.conj, lambda v: np.swapaxes(v, -1, -2))
        )
        w = wf.tensor(weights) if lib is wf else weights
        if name == "svd":
            u, s, vh = F.svd(x, full_matrices=False) if lib is wf else np.linalg.svd(x, full_matrices=False)
            first = (u[..., :, :1] @ vh[..., :1, :]) * w[:, : x.shape[-1]]
            return lib.sum(lib.real(first)) + lib.sum(s**3)
        if name == "eigh":
            values, v = F.eigh(x) if lib is wf else np.linalg.eigh((x + adjoint(x)) / 2)
            first = v[..., :, :1] @ conj(turn(v[..., :, :1])) * w
            return lib.sum(lib.real(first)) + lib.sum(values**3)
        values, v = F.eig(x) if lib is wf else np.linalg.eig(x)
        first = v @ (lib.expand_dims(lib.exp(values), axis=-1) * conj(turn(v))) * w
        return lib.sum(lib.real(first))

    return of


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("name", "shape"), [("svd", (4, 4)), ("svd", (4, 3)), ("eigh", (4, 4)), ("eig", (4, 4))]
)
def test_gradients_of_what_does_not_depend_on_phases(name, shape, dtype):
    of = phase_free(name)
    x, direction = random_matrices(shape, dtype, 1), random_matrices(shape, dtype, 2)
    slope = wf.grad(lambda v: of(wf, v))(wf.tensor(x)).numpy()
    h = 1e-5
    want = (of(np, x + h * direction) - of(np, x - h * direction)) / (2 * h)
    got = np.sum(np.real(np.conj(slope) * direction))
    assert np.isclose(got, want, rtol=1e-6), (got, want)


def test_gradients_of_degenerate_cases_are_those_of_the_documentation():
    x = wf.eye(3, dtype="float64")
    assert np.allclose(wf.grad(lambda v: F.svdvals(v).sum())(x).numpy(), np.eye(3))
    assert np.allclose(wf.grad(lambda v: F.eigvalsh(v).sum())(x).numpy(), np.eye(3))
    assert not np.isfinite(wf.grad(lambda v: F.eigh(v)[1][0, 1])(x).numpy()).all()
    singular = wf.tensor(np.diag([1.0, 2.0, 0.0]))
    assert np.allclose(wf.grad(F.det)(singular).numpy(), np.diag([0.0, 0.0, 2.0]))  # by its formula
    with pytest.raises(ValueError, match="is singular"):
        wf.grad(F.det)(wf.tensor(np.diag([1.0, 2.0, 3.0, 0.0]))).numpy()
    with pytest.raises(NotImplementedError, match="mode='reduced' has one"):
        wf.grad(lambda v: F.qr(v, "complete")[0].sum())(wf.ones((3, 2)))


def test_the_hermitian_part_counts():
    x = random_matrices((3, 3), "complex128") + 4 * np.eye(3)
    part = (x + adjoint(x)) / 2
    assert np.allclose(F.cholesky(wf.tensor(x)).numpy(), np.linalg.cholesky(part))
    assert np.allclose(F.eigvalsh(wf.tensor(x)).numpy(), np.linalg.eigvalsh(part))


def test_a_trace_of_a_gaussian_process_has_the_eager_value_and_gradient():
    rng = np.random.default_rng(0)
    x, y = wf.tensor(rng.standard_normal((20, 2))), wf.tensor(rng.standard_normal(20))

    def likelihood(scale):
        distance = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
        lower = F.cholesky(F.exp(-distance / scale**2) + 0.1 * wf.eye(20, dtype="float64"))
        z = F.solve_triangular(lower, y)
        return 0.5 * (z * z).sum() + F.log(wf.linalg.diagonal(lower)).sum()

    both = wf.value_and_grad(likelihood)
    scale = wf.tensor(1.5, dtype="float64")
    eager, traced = both(scale), wf.trace(both)
    for _ in range(3):
        for a, b in zip(eager, traced(scale), strict=True):
            assert np.isclose(a.item(), b.item(), rtol=1e-12)
    h = 1e-6
    slope = (likelihood(scale + h).item() - likelihood(scale - h).item()) / (2 * h)
    assert np.isclose(eager[1].item(), slope, rtol=1e-6)


def test_any_length_and_frequencies_of_transforms():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 97, 128, 1009):
        x = rng.standard_normal(n)
        assert np.allclose(wf.fft.fft(wf.tensor(x)).numpy(), np.fft.fft(x))
        assert np.allclose(wf.fft.irfft(wf.fft.rfft(wf.tensor(x)), n).numpy(), x)
        for d in (1.0, 0.5):
            assert np.allclose(wf.fft.fftfreq(n, d=d, dtype="float64").numpy(), np.fft.fftfreq(n, d))
            assert np.allclose(wf.fft.rfftfreq(n, d=d, dtype="float64").numpy(), np.fft.rfftfreq(n, d))
    with pytest.raises(ValueError, match="fftfreq: n must be at least 1, got 0"):
        wf.fft.fftfreq(0)


def test_norms_and_condition_numbers():
    x = random_matrices((2, 3, 3), "float64")
    for ord, axis in ((None, None), (2, (1, 2)), ("fro", (0, 1)), (1, 0), (float("inf"), (2, 1))):
        for keepdims in (False, True):
            got = wf.linalg.norm(wf.tensor(x), ord, axis, keepdims=keepdims)
            assert np.allclose(got.numpy(), np.linalg.norm(x, ord, axis, keepdims))
    for p in (None, 1, -2, "fro"):
        assert np.allclose(wf.linalg.cond(wf.tensor(x), p).numpy(), np.linalg.cond(x, p))
    with pytest.raises(ValueError, match="needs one axis or two, got 3"):
        wf.linalg.norm(wf.tensor(x), 2)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_products_of_matrices_that_lie_anyhow(dtype):
    """Rows, columns, parts, reversed and repeated ones: against NumPy, into results that lie in columns, too."""
    rng = np.random.default_rng(0)

    def drawn(lead, rows, columns):
        shape = *lead, rows + 2, 2 * columns + 3
        x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
        x = x.astype(dtype)
        way = rng.integers(6)
        if way == 0:  # in columns
            return np.ascontiguousarray(x[..., :rows, :columns].swapaxes(-1, -2)).swapaxes(-1, -2)
        if way == 1:
            return x[..., 1 : rows + 1, :columns]
        if way == 2:
            return x[..., :rows, : 2 * columns : 2]
        if way == 3:
            return x[..., :rows, columns - 1 :: -1]
        if way == 4:
            return np.broadcast_to(x[..., :1, :columns], (*lead, rows, columns))
        return np.ascontiguousarray(x[..., :rows, :columns])

    for k in range(120):
        m, n = (int(size) for size in rng.integers(1, 40, 2))
        terms = int(rng.integers(4, 40))
        leads = [((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (5,)), ((7,), ())][k % 5]
        a, b = drawn(leads[0], m, terms), drawn(leads[1], terms, n)
        wanted = a @ b
        scale = 1e-5 if dtype == "complex64" else 1e-13
        for x, y in ((wf.asarray(a), wf.asarray(b)), (wf.asarray(a.copy()), wf.asarray(b.copy()))):
            np.testing.assert_allclose(wf.matmul(x, y).numpy(), wanted, rtol=0, atol=scale * 40)
            into = wf.zeros((*wanted.shape[:-2], n, m), dtype=dtype)
            into.mT[...] = wf.matmul(x, y)
            np.testing.assert_allclose(into.mT.numpy(), wanted, rtol=0, atol=scale * 40)
    start = wf.asarray(drawn((), 30, 40).copy())
    step = wf.trace(lambda x: wf.grad(lambda x: wf.real(wf.sum(x @ x.mT) + wf.sum(x.mT @ x)))(x))
    np.testing.assert_allclose(
        step(start).numpy(), wf.grad(lambda x: wf.real(wf.sum(x @ x.mT) + wf.sum(x.mT @ x)))(start).numpy()
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_triangular_equations_of_matrices_that_lie_anyhow(dtype):
    rng = np.random.default_rng(1)

    def draw(*shape):
        return (rng.standard_normal(shape) + (1j if dtype[0] == "c" else 0)).astype(dtype)

    for k in range(24):
        n, columns = 33 + k, 1 + 7 * (k % 5)
        a, b = draw(n, n) + 9 * np.eye(n), draw(n, columns)
        upper = bool(k % 2)
        wanted = np.linalg.solve(np.triu(a) if upper else np.tril(a), b)
        for x in (wf.asarray(a), wf.asarray(a.T.copy()).mT, wf.asarray(np.repeat(a, 2, 1))[:, ::2]):
            for y in (wf.asarray(b), wf.asarray(b.T.copy()).mT):
                got = wf.linalg.solve_triangular(x, y, upper=upper)
                np.testing.assert_allclose(got.numpy(), wanted, rtol=0, atol=1e-9)
