"""Small helpers for users: benchmark.

>>> import weft as wf
>>> wf.utils.benchmark(lambda: wf.ones((64, 64)) + 1, repeat=3).runs
3
"""

from __future__ import annotations

from weft.base.name_hints import add_hints as _add_hints
from weft.utils.benchmark import Benchmark, benchmark

__all__ = ["Benchmark", "benchmark"]

_add_hints(globals())
