"""Values of operators as one level of instructions gives them, by this process or by another one.

As a program: python levels.py FULL FILE writes them into FILE, at the level that WEFT_ISA names.
"""

import pickle
import sys
import zlib
from pathlib import Path

import numpy as np

import weft as wf

if __package__:
    from .support import OPERATORS, SEED, cases, tensors
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.ops.support import OPERATORS, SEED, cases, tensors

DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "bool")


def selected(cls, full):
    """Cases by name: all of them, or two of each operator, of other types and samples every day."""
    found = {f"{number} {case!r}": case for number, case in enumerate(cases(cls, DTYPES))}
    if full or len(found) <= 2:
        return found
    rng = np.random.default_rng([SEED, zlib.crc32(f"levels {cls.name}".encode())])
    names = list(found)
    return {names[k]: found[names[k]] for k in sorted(rng.choice(len(names), 2, replace=False))}


def every(full):
    """Name -> case, of all operators."""
    return {name: case for cls in OPERATORS for name, case in selected(cls, full).items()}


def values(case):
    """What a call gives, as NumPy's arrays; the same random numbers in every process."""
    wf.random.seed(5)
    return [y.numpy() for y in case.call(tensors(case.arrays))]


def main(full, path):
    found = {name: values(case) for name, case in every(full == "full").items()}
    Path(path).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
