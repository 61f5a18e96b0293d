"""benchmark: how long a call takes, and how sure that is."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.engine import default_engine

__all__ = ["Benchmark", "benchmark"]

LEAST_S = 1e-3  # of one measurement: shorter calls are measured several at a time


class Benchmark(NamedTuple):
    """Seconds of one call: least, median, and quartiles of `runs` measurements of `calls` calls each."""

    least_s: float
    median_s: float
    low_s: float
    high_s: float
    runs: int
    calls: int

    def __str__(self) -> str:
        scales = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
        unit, scale = next((u, s) for u, s in scales if self.median_s * s >= 1 or u == "us")
        return (
            f"{self.median_s * scale:.3g} {unit} (least {self.least_s * scale:.3g}, half of {self.runs} runs within "
            f"{self.low_s * scale:.3g} to {self.high_s * scale:.3g})"
        )


def benchmark(
    f: Callable[..., Any], *args: Any, repeat: int = 20, warm_up: int = 3, **kwargs: Any
) -> Benchmark:
    """Measure f(*args, **kwargs), each time until all that it launched is done.

    repeat: measurements; warm_up: calls before them, in which plans are made and kernels compiled. Calls that take less
    than a millisecond are measured several at a time. Of a machine that does other things the least time says most.
    Raises ValueError unless repeat is at least 1.

    >>> import weft as wf
    >>> benchmark(wf.exp, wf.ones(10), repeat=5).least_s > 0
    True
    """
    if repeat < 1 or warm_up < 0:
        raise ValueError(f"benchmark: repeat must be at least 1 and warm_up 0, got {repeat} and {warm_up}")
    engine = default_engine()

    def measured(calls: int) -> float:
        engine.wait_for_all()
        start = time.perf_counter()
        result: Any = None
        for _ in range(calls):
            result = f(*args, **kwargs)
        for x in flatten(result)[0]:
            if isinstance(x, Tensor):
                x.wait()
        engine.wait_for_all()
        return (time.perf_counter() - start) / calls

    for _ in range(warm_up):
        measured(1)
    calls = max(1, math.ceil(LEAST_S / max(measured(1), 1e-9)))
    seconds = sorted(measured(calls) for _ in range(repeat))
    low, _, high = statistics.quantiles(seconds, n=4) if repeat > 1 else seconds * 3
    return Benchmark(seconds[0], statistics.median(seconds), low, high, repeat, calls)
