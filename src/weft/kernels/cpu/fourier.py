"""Kernels of weft.ops.families.fourier on processors: weft's own for short lines, else NumPy's (pocketfft).

NumPy gives the interpreter's lock back while it computes, so the engine's other workers and the user's threads go on.
See docs/design/linalg.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.fourier import Fourier, RealFourier, RealFromFourier, factor_of
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


def in_lanes(axes: tuple[int, ...], make: Callable[[list[int]], Any]) -> Native:
    """weft's own kernel make(points along the axes); none for few long lines, which leave lanes idle, and for
    numbers of points that it does not take.
    """

    def kernel_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        shapes = [shape for _, shape, _ in (inputs[0], outputs[0])]
        sizes = [max(shape[axis] for shape in shapes) for axis in axes]
        is_short = max(sizes) <= ONE_LINE or min(math.prod(shape) for shape in shapes) >= LINES * max(sizes)
        return make(sizes) if is_short and all(map(_core.fourier_takes, sizes)) else None

    return Native(kernel_of)


ONE_LINE, LINES = 2048, 4


@kernel(Fourier, provider="weft")
def fourier(op: Fourier, x: TensorType) -> Iterator[Native]:
    def make(sizes: list[int]) -> Any:
        return _core.kernel_fourier(op.axes, sizes, op.inverse, factor_of(op.scale, math.prod(sizes)))

    yield in_lanes(op.axes, make)
    yield by_numpy(functools.partial(_fourier, op.axes, op.inverse, op.scale))


def _fourier(axes: tuple[int, ...], inverse: bool, scale: str, x: Any, y: Any) -> None:
    from numpy import fft

    if inverse:
        fft.ifftn(x, axes=axes, norm=INVERSE[scale], out=y)
    else:
        fft.fftn(x, axes=axes, norm=FORWARD[scale], out=y)


@kernel(RealFourier, provider="weft")
def real_fourier(op: RealFourier, x: TensorType) -> Iterator[Native]:
    def compute(x: Any, y: Any) -> None:
        from numpy import fft

        fft.rfft(x, axis=op.axis, norm=FORWARD[op.scale], out=y)

    yield in_lanes(
        (op.axis,), lambda n: _core.kernel_real_fourier(op.axis, n[0], False, factor_of(op.scale, n[0]))
    )
    yield by_numpy(compute)


@kernel(RealFromFourier, provider="weft")
def real_from_fourier(op: RealFromFourier, x: TensorType) -> Iterator[Native]:
    def compute(x: Any, y: Any) -> None:
        from numpy import fft

        fft.irfft(x, op.n, axis=op.axis, norm=INVERSE[op.scale], out=y)

    yield in_lanes(
        (op.axis,), lambda n: _core.kernel_real_fourier(op.axis, n[0], True, factor_of(op.scale, n[0]))
    )
    yield by_numpy(compute)
