"""Kernels of weft.ops.families.fourier on processors: NumPy's, which are pocketfft in C++.

NumPy gives the interpreter's lock back while it computes, so the engine's other workers and the user's threads go on.
See docs/design/linalg.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.fourier import Fourier, RealFourier, RealFromFourier
from weft.ops.kernels import Native
from weft.ops.types import TensorType

# What NumPy's names of norms multiply sums with: those of its forward functions, and of its inverse ones.
FORWARD: dict[str, Any] = {"none": "backward", "root": "ortho", "n": "forward"}
INVERSE: dict[str, Any] = {"none": "forward", "root": "ortho", "n": "backward"}


class _Memory:
    """An operand of a program, for NumPy: address, dtype, shape, strides in bytes."""

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        from numpy import dtype as as_numpy

        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": as_numpy(dtype).str,
            "shape": shape,
            "strides": strides,
        }


def by_numpy(compute: Callable[[Any, Any], None]) -> Native:
    """The kernel compute(x, y) on NumPy arrays that show the operands."""

    def run(inputs: list[Any], outputs: list[Any]) -> None:
        from numpy import asarray

        y = asarray(_Memory(*outputs[0]))
        if y.size:
            compute(asarray(_Memory(*inputs[0])), y)

    return Native(lambda *_: _core.kernel_python(run, 1, 1, memory=True), exact=False)


@kernel(Fourier, provider="numpy")
def fourier(op: Fourier, x: TensorType) -> Iterator[Native]:
    yield by_numpy(functools.partial(_fourier, op.axes, op.inverse, op.scale))


def _fourier(axes: tuple[int, ...], inverse: bool, scale: str, x: Any, y: Any) -> None:
    from numpy import fft

    if inverse:
        fft.ifftn(x, axes=axes, norm=INVERSE[scale], out=y)
    else:
        fft.fftn(x, axes=axes, norm=FORWARD[scale], out=y)


@kernel(RealFourier, provider="numpy")
def real_fourier(op: RealFourier, x: TensorType) -> Iterator[Native]:
    def compute(x: Any, y: Any) -> None:
        from numpy import fft

        fft.rfft(x, axis=op.axis, norm=FORWARD[op.scale], out=y)

    yield by_numpy(compute)


@kernel(RealFromFourier, provider="numpy")
def real_from_fourier(op: RealFromFourier, x: TensorType) -> Iterator[Native]:
    def compute(x: Any, y: Any) -> None:
        from numpy import fft

        fft.irfft(x, op.n, axis=op.axis, norm=INVERSE[op.scale], out=y)

    yield by_numpy(compute)
