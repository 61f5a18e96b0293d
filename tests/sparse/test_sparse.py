"""Sparse arrays against the dense ones that they mean, and against SciPy's."""

import numpy as np
import pytest
from scipy import sparse as scipy_sparse

import weft as wf
import weft.functional as F
from weft.sparse import Csr, RowSparse, csr, from_scipy, row_sparse

RNG = np.random.default_rng(5)


def matrix(n=5, m=4, density=0.4, dtype="float32"):
    x = RNG.standard_normal((n, m)) * (RNG.random((n, m)) < density)
    x = np.round(x * 4) if np.dtype(dtype).kind == "i" else x
    return x.astype(dtype)


def near(found, want, dtype="float32"):
    tolerance = 1e-12 if dtype in ("float64", "complex128") else 1e-5
    np.testing.assert_allclose(found.numpy(), want, rtol=tolerance, atol=tolerance)


SHAPES = [(5, 4), (1, 3), (3, 1), (0, 4), (4, 0), (7, 7)]


@pytest.mark.parametrize("make", [csr, row_sparse])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_products_sums_and_functions_are_those_of_the_dense_array(make, shape, dtype):
    x = matrix(*shape, dtype="float64").astype(dtype)
    x = x * (1 + 2j) if dtype == "complex64" else x
    x = x.astype(dtype)
    a = make(wf.tensor(x))
    assert (a.shape, a.dtype.name, a.ndim) == (shape, dtype, 2)
    np.testing.assert_array_equal(a.todense().numpy(), x)
    b = matrix(shape[1], 3, 1).astype(dtype)
    left = matrix(2, shape[0], 1).astype(dtype)
    right = a @ wf.tensor(b)
    near(right if make is csr else right.todense(), x @ b, dtype)
    near(wf.tensor(left) @ a, left @ x, dtype)
    vector = a @ wf.tensor(b[:, 0])
    near(vector if make is csr else vector.todense(), x @ b[:, 0], dtype)
    near(wf.tensor(left[0]) @ a, left[0] @ x, dtype)
    for axis in (None, 0, 1, -1, (0, 1)):
        for keepdims in (False, True):
            total = a.sum(axis=axis, keepdims=keepdims)
            total = total if isinstance(total, wf.Tensor) else total.todense()
            near(total, x.sum(axis=axis, keepdims=keepdims), dtype)
    near((a * 3).todense(), x * 3, dtype)
    near((-a).todense(), -x, dtype)
    near((2 * a + a).todense(), x * 3, dtype)
    near(F.square(a).todense(), x * x, dtype)
    y = matrix(*shape, density=1).astype(dtype)
    near((a * wf.tensor(y)).todense(), x * y, dtype)
    near((wf.tensor(y[:1]) * a).todense(), x * y[:1] if shape[0] else x, dtype)
    near((a * wf.tensor(y[:, :1])).todense(), x * y[:, :1] if shape[1] else x, dtype)
    near(a + wf.tensor(y), x + y, dtype)
    near(wf.tensor(y) - a, y - x, dtype)
    near(a - wf.tensor(y), x - y, dtype)


@pytest.mark.parametrize("make", [csr, row_sparse])
def test_two_sparse_arrays(make):
    for _ in range(8):
        n, m = RNG.integers(1, 7, 2)
        x, y = matrix(n, m), matrix(n, m)
        a, b = make(wf.tensor(x)), make(wf.tensor(y))
        near((a + b).todense(), x + y)
        near((a - b).todense(), x - y)
        near((a * b).todense(), x * y)
    with pytest.raises(wf.ShapeError, match="shapes differ"):
        make(wf.tensor(matrix(2, 3))) + make(wf.tensor(matrix(3, 2)))


def test_rows_listed_twice_are_added_up_before_functions_that_are_not_linear():
    g = RowSparse([3, 1, 3], wf.tensor([[1.0], [2.0], [4.0]]), (5, 1))
    assert F.square(g).todense()[:, 0].tolist() == [0, 4, 0, 25, 0]
    assert (g * g).todense()[:, 0].tolist() == [0, 4, 0, 25, 0]
    assert (g * 2).todense()[:, 0].tolist() == [0, 4, 0, 10, 0]
    assert g.retain([3, 0, 3]).values[:, 0].tolist() == [5, 0, 5]
    assert g[1:4:2].todense()[:, 0].tolist() == [2, 5]


def test_csr_beside_scipy():
    for _ in range(10):
        n, m = RNG.integers(1, 9, 2)
        want = scipy_sparse.random_array((n, m), density=0.4, rng=RNG, format="csr")
        a = from_scipy(want)
        back = a.to_scipy()
        assert (back != want).nnz == 0
        near(a.todense(), want.todense(), "float64")
        near(a.T.todense(), want.T.todense(), "float64")
        near(F.matrix_transpose(a).todense(), want.T.todense(), "float64")
        rows = RNG.integers(-n, n, 4)
        near(a[rows.tolist()].todense(), want[rows].todense(), "float64")
        i, j = sorted(RNG.integers(0, n + 1, 2))
        near(a[i:j].todense(), want[i:j].todense(), "float64")
        near(a[::-1].todense(), want[::-1].todense(), "float64")
    coo = scipy_sparse.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert from_scipy(coo).todense().tolist() == [[0, 3], [3, 0]]


@pytest.mark.parametrize("make", [csr, row_sparse])
def test_gradients_reach_values_and_dense_operands(make):
    x, b, c = matrix(dtype="float64"), matrix(4, 3, 1, "float64"), matrix(2, 5, 1, "float64")
    like = make(wf.tensor(x))

    def loss(values, b, c):
        a = like.with_values(values)
        right = a @ b
        right = right if isinstance(right, wf.Tensor) else right.todense()
        return (
            (right**2).sum()
            + ((c @ a) ** 3).sum()
            + (F.sin(a) * 2).todense().sum()
            + a.sum(axis=0).exp().sum()
        )

    def dense(x, b, c):
        return ((x @ b) ** 2).sum() + ((c @ x) ** 3).sum() + (F.sin(x) * 2).sum() + x.sum(axis=0).exp().sum()

    operands = (wf.tensor(b), wf.tensor(c))
    found = wf.grad(loss, (0, 1, 2))(like.values, *operands)
    want = wf.grad(dense, (0, 1, 2))(wf.tensor(x), *operands)
    read = F.take(want[0], like.indices, axis=0) if make is row_sparse else want[0][like.rows, like.indices]
    for one, other in zip(found, (read, *want[1:]), strict=True):
        near(one, other.numpy(), "float64")
    is_stored = (x != 0) if make is csr else (x != 0).any(axis=1, keepdims=True)
    found = wf.grad(lambda x: F.sin(make(x)).todense().sum())(wf.tensor(x))
    near(found, np.where(is_stored, np.cos(x), 0), "float64")


def test_products_in_traces_are_one_program():
    x = matrix(6, 5)
    a = csr(wf.tensor(x))

    @wf.trace
    def step(values, b):
        made = Csr(a.indptr, a.indices, values, a.shape)
        return (made @ b).sum(), made.T @ wf.ones((6, 1)), (made * made).todense()

    b = matrix(5, 2, 1)
    for _ in range(3):
        total, transposed, squared = step(a.values, wf.tensor(b))
        near(total, (x @ b).sum())
        near(transposed, x.T @ np.ones((6, 1)))
        near(squared, x * x)
    assert step.graph_breaks == 0 if hasattr(step, "graph_breaks") else True


def test_what_would_make_it_dense_is_refused():
    a, r = csr(wf.tensor(matrix())), row_sparse(wf.tensor(matrix()))
    for f in (
        F.exp,
        F.cos,
        F.softmax,
        lambda x: x + 1,
        lambda x: x / 0.0,
        lambda x: F.equal(x, 0),
        F.sort,
    ):
        for x in (a, r):
            with pytest.raises(TypeError, match=rf"sparse operands.*{x.storage}"):
                f(x)
    for f in (F.multiply, F.matmul):
        with pytest.raises(TypeError, match="sparse operands"):
            f(a, r)
    with pytest.raises(TypeError, match="sparse operands"):
        r @ r
    assert isinstance(F.relu(a), Csr)
    assert isinstance(F.clip(a, -1, 1), Csr)


def test_a_sum_of_many_stored_values_does_not_lose_small_ones():
    values = wf.full(5000, 0.1, dtype="float16")
    a = Csr([0, 5000], np.arange(5000), values, (1, 5000))
    assert abs(a.sum(axis=1).item() - 500) < 1
    assert abs((a @ wf.ones(5000, dtype="float16")).item() - 500) < 1


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda v: Csr([0, 1], [0], v, (2, 3)), wf.ShapeError),
        (lambda v: Csr([0, 1, 1], [0, 1], v, (2, 3)), wf.ShapeError),
        (lambda v: Csr([0, 2, 1], [0], v, (2, 3)), ValueError),
        (lambda v: Csr([0, 0, 1], [3], v, (2, 3)), IndexError),
        (lambda v: Csr([0, 2], [1, 1], wf.ones(2), (1, 3)), ValueError),
        (lambda v: Csr([0, 0, 1], [0.5], v, (2, 3)), wf.DTypeError),
        (lambda v: Csr([0, 0, 1], [0], [1.0], (2, 3)), TypeError),
        (lambda v: Csr([0, 0, 1], [0], v, (2, 3)) @ wf.ones(4), wf.ShapeError),
        (lambda v: wf.ones(4) @ Csr([0, 0, 1], [0], v, (2, 3)), wf.ShapeError),
        (lambda v: Csr([0, 0, 1], [0], v, (2, 3))[0], TypeError),
        (lambda v: Csr([0, 0, 1], [0], v, (2, 3))[[2]], IndexError),
        (lambda v: csr(wf.ones(3)), wf.ShapeError),
        (lambda v: RowSparse([0], wf.ones((1, 2)), (4, 2)) @ wf.ones(3), wf.ShapeError),
        (lambda v: RowSparse([0], wf.ones((1, 2)), (4, 2))[0], TypeError),
    ],
)
def test_errors(make, error):
    with pytest.raises(error):
        make(wf.tensor([1.0]))


def test_files_hold_them(tmp_path):
    x = matrix()
    a, r = csr(wf.tensor(x)), row_sparse(wf.tensor(x))
    wf.save(tmp_path / "a", {"a": a, "both": [r, wf.ones(2)]})
    again = wf.load(tmp_path / "a")
    assert (type(again["a"]), type(again["both"][0])) == (Csr, RowSparse)
    near(again["a"].todense(), x)
    near(again["both"][0].todense(), x)
    text = (tmp_path / "a").read_bytes()
    (tmp_path / "b").write_bytes(text.replace(b'\\"csr\\"', b'\\"coo\\"'))
    with pytest.raises(wf.FileFormatError, match="no list, tuple or dictionary"):
        wf.load(tmp_path / "b")
    (tmp_path / "c").write_bytes(text.replace(b'\\"csr\\",[5,4]', b'\\"csr\\",[5,0]'))
    with pytest.raises(wf.FileFormatError, match="parts of a csr array do not fit"):
        wf.load(tmp_path / "c")


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_lazy_updates_of_rows_are_those_of_their_own_parameter(name):
    options = {"lr": 0.1, **({"momentum": 0.9} if name == "SGD" else {})}
    whole, part = wf.tensor(matrix(6, 3, 1)), wf.zeros((2, 3))
    rows = [4, 1]
    part[...] = whole[rows]
    before = whole.numpy().copy()
    a, b = getattr(wf.optimizer, name)([whole], **options), getattr(wf.optimizer, name)([part], **options)
    for _ in range(3):
        g = wf.tensor(matrix(2, 3, 1))
        wf.optimizer.lazy_update(a, whole, RowSparse(rows, g, (6, 3)))
        part.grad = g
        b.step()
    near(whole[rows], part.numpy())
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(whole.numpy()[others], before[others])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bfloat16"])
@pytest.mark.parametrize("sizes", [(5, 7, 4), (0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (20, 9, 30)])
def test_products_of_two_matrices(sizes, dtype):
    """The places are SciPy's; nothing is computed of elements that one of the two does not store."""
    rng = np.random.default_rng(sum(sizes))
    n, k, m = sizes
    dense = [
        (rng.integers(1, 4, shape) * (rng.random(shape) < 0.4)).astype("int64") for shape in ((n, k), (k, m))
    ]
    a, b = (wf.sparse.csr(wf.tensor(x).astype(dtype)) for x in dense)
    product = a @ b
    assert isinstance(product, Csr)
    assert product.dtype.name == dtype
    want = scipy_sparse.csr_array(dense[0]) @ scipy_sparse.csr_array(dense[1])
    assert product.indices.shape == (want.nnz,)
    assert np.array_equal(product.todense().numpy().astype("complex128"), want.toarray())
    with pytest.raises(wf.ShapeError, match="inner sizes differ"):
        a @ wf.sparse.csr(wf.ones((k + 1, 2), dtype=dtype))


def test_a_product_of_two_matrices_has_gradients_to_both():
    a, b = (wf.sparse.csr(wf.tensor(x)) for x in ([[1.0, 2.0], [0.0, 3.0]], [[0.0, 4.0], [5.0, 0.0]]))
    weights = wf.tensor([[1.0, 10.0], [100.0, 1000.0]])

    def loss(x, y):
        return ((a.with_values(x) @ b.with_values(y)).todense() * weights).sum()

    da, db = wf.grad(loss, (0, 1))(a.values, b.values)
    assert da.tolist() == [40.0, 5.0, 500.0]  # weights @ b.T where a stores
    assert db.tolist() == [10.0, 302.0]  # a.T @ weights where b stores
