"""weft's side of benchmarks/ops.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from _operators import arrays_of, function_of, serve

import weft as wf
import weft.functional as F


def waited(function, inputs):
    def run() -> None:
        outputs = function(*inputs)
        for y in outputs if isinstance(outputs, tuple | list) else (outputs,):
            y.wait()

    return run


def prepare(operator, size, what, way):
    arrays = arrays_of(operator, size)
    inputs = [wf.tensor(a) for a in arrays]
    function = function_of(operator, "weft", {"wf": wf, "F": F}, arrays)
    if what == "gradient":
        forward, count = function, operator.differentiable

        def function(dy, *data):
            _, pull = wf.vjp(lambda *x: forward(*x, *data[count:]), *data[:count])
            return pull(dy)

        inputs.insert(0, wf.ones_like(forward(*inputs)))

    return waited(wf.trace(function) if way == "traced" else function, inputs)


if __name__ == "__main__":
    serve(prepare)
