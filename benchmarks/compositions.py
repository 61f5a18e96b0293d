"""What kernels of row operators gain over the compositions that they mean: traced programs, in turn, shortest of many.

    ./dev bench compositions [--quick] [--only NAME] [--json FILE]

Each row is an operator by its own loop and gradient, over what it decomposes to: below 1, what is written by hand
wins. `loops` is how many steps the two programs have. An operator whose rows are all near 1 needs none of its own.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _table import RatioRow, introduce, show, write

import weft as wf
import weft.functional as F
from weft.ops.foreign import decomposed
from weft.ops.registry import get

SHAPE = (1024, 1024)


def case(name, **attributes):
    op = get(name)(**attributes)
    return lambda *x: getattr(F, name)(*x, **attributes), lambda *x: decomposed(op, x)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, SHAPE[-1], weight, bias, eps=1e-5)


def layer_norm_composed(x, weight, bias):
    return decomposed(get("layer_norm")(normalized_shape=SHAPE[-1], eps=1e-5), [x, weight, bias])


def rms_norm(x, weight):
    return F.rms_norm(x, SHAPE[-1], weight, eps=1e-5)


def rms_norm_composed(x, weight):
    return decomposed(get("rms_norm")(normalized_shape=SHAPE[-1], eps=1e-5), [x, weight])


CASES = {
    "softmax": (*case("softmax"), 0),
    "log_softmax": (*case("log_softmax"), 0),
    "logsumexp": (*case("logsumexp", axis=-1), 0),
    "var": (*case("var", axis=-1), 0),
    "layer_norm": (layer_norm, layer_norm_composed, 2),
    "rms_norm": (rms_norm, rms_norm_composed, 1),
}


def trained(function):
    """The function and its gradient with respect to all operands, under a slope that is not constant."""

    def step(cotangent, *operands):
        return wf.value_and_grad(lambda *o: (function(*o) * cotangent).sum(), tuple(range(len(operands))))(
            *operands
        )

    return step


def seconds_of(run):
    start = time.perf_counter()
    run()
    wf.waitall()
    return time.perf_counter() - start


def measure(name, training, repeats):
    operator, composed, parameters = CASES[name]
    rng = np.random.default_rng(0)
    operands = [wf.tensor(rng.standard_normal(SHAPE, "float32"))]
    operands += [wf.tensor(rng.standard_normal(SHAPE[-1], "float32")) for _ in range(parameters)]
    if training:
        result = operator(*operands)
        cotangent = wf.tensor(rng.standard_normal(result.shape, "float32"))
        runs = [wf.trace(trained(f), strict=True) for f in (operator, composed)]
        operands = [cotangent, *operands]
    else:
        runs = [wf.trace(f, strict=True) for f in (operator, composed)]
    for _ in range(3):
        for run in runs:
            run(*operands)
    wf.waitall()
    row = RatioRow(f"{name}{' with gradient' if training else ''}, own / composed", "x", bar=1.0)
    for _ in range(repeats):
        for run, times in zip(runs, (row.times, row.others), strict=True):
            times.append(seconds_of(lambda run=run: run(*operands)))
    loops = [len(run.programs[0].plan.info.steps) for run in runs]
    row.note = f"{min(row.others) * 1e6:.0f} us composed, loops {loops[0]} / {loops[1]}"
    return row


def main():
    parser = argparse.ArgumentParser(description="benchmark of row operators beside their compositions")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--only", metavar="NAME", help="operators whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    names = [name for name in CASES if (arguments.only or "") in name]
    repeats = 3 if arguments.quick else 60
    table = [measure(name, training, repeats) for name in names for training in (False, True)]
    show("compositions", table)
    if arguments.json:
        write(arguments.json, facts, "compositions", table)


if __name__ == "__main__":
    main()
