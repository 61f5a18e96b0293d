"""The peak rates of this machine, measured: a profile compares kernels with them."""

from __future__ import annotations

import functools
import time

from weft.arrays.creation import ones
from weft.gradients.gradient import no_grad

__all__ = ["machine_peaks"]

SIZE = 768  # of a product of matrices
ELEMENTS = 8 << 20
RUNS = 4


@functools.cache
def machine_peaks() -> tuple[float, float]:
    """(FLOP/s, bytes/s): of a product of float32 matrices, and of a sum that reads and writes main memory.

    Each is the best of a few runs, so what else the machine does makes them smaller, never larger. Takes some 0.2 s.

    >>> min(machine_peaks()) > 0
    True
    """
    a, x = ones((SIZE, SIZE)), ones(ELEMENTS)

    def best(work: object, run: object) -> float:
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            run().wait()  # type: ignore[operator]
            seconds.append(time.perf_counter() - start)
        return float(work) / min(seconds)  # type: ignore[arg-type]

    with no_grad():
        return best(2 * SIZE**3, lambda: a @ a), best(8 * ELEMENTS, lambda: x + 1)
