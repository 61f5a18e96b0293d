"""Sparse arrays: some rows of an array (RowSparse), and matrices of compressed rows (Csr).

Both hold dense tensors: the values, which have gradients, and where they belong. Operators take them where the result
needs no more than what is stored: products with dense matrices on both sides, functions that keep zeros, sums, products
with dense arrays element by element. Everything else raises TypeError: nothing becomes dense unless todense() says so.

>>> import weft as wf
>>> a = wf.sparse.csr(wf.tensor([[0., 2., 0.], [1., 0., 3.]]))
>>> a, a @ wf.tensor([1., 10., 100.])
(Csr(3 of 6 elements, float32[2, 3]), tensor([ 20., 301.], dtype=float32, device=cpu:0))
>>> (a * 2).todense()
tensor([[0., 4., 0.],
        [2., 0., 6.]], dtype=float32, device=cpu:0)
>>> wf.grad(lambda b: (a @ b).sum())(wf.tensor([1., 10., 100.]))
tensor([1., 2., 3.], dtype=float32, device=cpu:0)
"""

from weft.sparse.csr import Csr as Csr
from weft.sparse.csr import csr as csr
from weft.sparse.csr import from_scipy as from_scipy
from weft.sparse.row_sparse import RowSparse as RowSparse
from weft.sparse.row_sparse import row_sparse as row_sparse

__all__ = ["Csr", "RowSparse", "csr", "from_scipy", "row_sparse"]


def __getattr__(name: str) -> object:
    from weft.base.name_hints import missing

    raise missing(__name__, name, lambda: __all__)
