"""Kernels of weft.ops.families.linalg on processors: small matrices in vectors, others by LAPACK.

The library is the one that NumPy was built with, which is found by the symbols of NumPy's module. It is called by
native code, without the interpreter's lock. See docs/design/linalg.md.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.linalg import Cholesky, Eig, Eigh, Inv, LuFactor, Qr, Solve, SolveTriangular, Svd
from weft.ops.kernels import Native
from weft.ops.types import TensorType

# In the order of native/kernels/lapack.h, and what those of complex numbers are called where that differs.
ROUTINES = ("potrf", "getrf", "getrs", "getri", "trsm", "gelqf", "orglq", "gesdd", "syevd", "geev", "gemm")
COMPLEX = {"orglq": "unglq", "syevd": "heevd"}
# What builds of LAPACK append and prepend to names; "64" means integers of 8 bytes.
SPELLINGS = (("scipy_", "_64_"), ("", "_64_"), ("scipy_", "_"), ("", "_"))


@functools.cache
def load_lapack() -> None:
    """Give the native core the addresses of LAPACK's routines. Raises ImportError if NumPy has no LAPACK.

    >>> load_lapack()
    >>> _core.has_lapack()
    True
    """
    from numpy.linalg import _umath_linalg

    library = ctypes.CDLL(_umath_linalg.__file__)  # its symbols and those of the libraries that it needs
    names = [
        letter + (COMPLEX.get(name, name) if letter in "cz" else name)
        for letter in "sdcz"
        for name in ROUTINES
    ]
    for prefix, suffix in SPELLINGS:
        try:
            functions = [getattr(library, f"{prefix}{name}{suffix}") for name in names]
        except AttributeError:
            continue
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        _core.set_lapack(addresses, 8 if "64" in suffix else 4)
        return
    spelled = ", ".join(f"{prefix}dpotrf{suffix}" for prefix, suffix in SPELLINGS)
    raise ImportError(
        f"weft.linalg: NumPy's {_umath_linalg.__file__} shows no LAPACK: it has none of {spelled}\n"
        "  hint: NumPy's wheels from PyPI and Debian's python3-numpy have one"
    )


def offered(make: Any, optional: tuple[int, ...] = ()) -> Native:
    """The kernel make(outputs), for all sizes; LAPACK is loaded with the first one."""

    def kernel_of(_: Sequence[Any], outputs: Sequence[Any]) -> Any:
        load_lapack()
        return make(outputs)

    return Native(kernel_of, exact=False, optional=optional)


@kernel(Cholesky, provider="lapack")
def cholesky(op: Cholesky, x: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_cholesky(op.upper))


@kernel(LuFactor, provider="lapack")
def lu_factor(op: LuFactor, x: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_lu_factor())


@kernel(Solve, provider="lapack", when=lambda op, a, b: a.dtype is b.dtype)
def solve(op: Solve, a: TensorType, b: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_solve(b.ndim == 1))


@kernel(SolveTriangular, provider="lapack", when=lambda op, a, b: a.dtype is b.dtype)
def solve_triangular(op: SolveTriangular, a: TensorType, b: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_solve_triangular(op.upper, op.unit, b.ndim == 1))


@kernel(Inv, provider="lapack")
def inverse(op: Inv, x: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_inverse())


@kernel(Qr, provider="lapack")
def qr(op: Qr, x: TensorType) -> Iterator[Native]:
    yield offered(lambda _: _core.kernel_qr())


@kernel(Svd, provider="lapack")
def svd(op: Svd, x: TensorType) -> Iterator[Native]:
    def make(outputs: Sequence[Any]) -> Any:
        return _core.kernel_svd(op.full_matrices, outputs[0] is not None, outputs[2] is not None)

    yield offered(make, (0, 2))


@kernel(Eigh, provider="lapack")
def eigh(op: Eigh, x: TensorType) -> Iterator[Native]:
    yield offered(lambda outputs: _core.kernel_eigh(outputs[1] is not None), (1,))


@kernel(Eig, provider="lapack")
def eig(op: Eig, x: TensorType) -> Iterator[Native]:
    yield offered(lambda outputs: _core.kernel_eig(outputs[1] is not None), (1,))
