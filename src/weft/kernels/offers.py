"""Which native kernels an operator offers at the instruction set level in use.

A native kernel that loses to its operator's decomposition at a level is not offered there. RATIOS holds the
time of the kernel over that of the decomposition in a traced program, on one thread, the geometric mean over the
benchmark's shapes:

    ./dev bench levels --write

measures and writes it. A kernel loses from LIMIT on: planning a decomposition costs time as well, and what is measured
twice differs by some hundredths.
"""

from __future__ import annotations

from weft import _core

__all__ = ["LIMIT", "RATIOS", "is_offered"]

LIMIT = 1.15

RATIOS: dict[str, dict[str, float]] = {
    "attention": {"sse4": 0.37, "avx2": 0.64, "avx512": 0.59},
    "attention_backward": {"sse4": 0.56, "avx2": 0.73, "avx512": 0.60},
    "lstm": {"sse4": 0.76, "avx2": 0.99, "avx512": 1.00},
    "lstm_backward": {"sse4": 0.69, "avx2": 0.81, "avx512": 0.77},
}


def is_offered(kernel: str) -> bool:
    """Whether a kernel of RATIOS is the better way at the level in use; on other architectures, that of sse4 counts.

    >>> is_offered("attention")
    True
    """
    return RATIOS[kernel][_core.isa()[1]] < LIMIT
