"""NumPy's side of benchmarks/ops.py, in weft's environment."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import numpy as np
from _operators import arrays_of, function_of, serve


def prepare(operator, size, what, way):
    inputs = arrays_of(operator, size)
    function = function_of(operator, "numpy", {"np": np}, inputs)
    return lambda: function(*inputs)


if __name__ == "__main__":
    serve(prepare)
