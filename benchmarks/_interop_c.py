"""Exported programs' side of benchmarks/interop.py: the library for C, called by nothing but ctypes."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "examples"))

import numpy as np
from _protocol import Cases, Run, serve
from native_runner import Program, opened

cases = Cases()
library = opened(os.environ["BENCH_LIBRARY"])


def path_of(name: str) -> str:
    return os.path.join(os.environ["BENCH_EXPORTS"], name)


for name in ("resnet50", "gpt"):

    @cases.add(name, "C", precisions=("f32",))
    def infer(variant: str, precision: str, name: str = name) -> Run:
        program = Program(library, path_of(name))
        x, y = (
            [np.zeros_like(program.empty(each)) for each in program.types(program.handle, kind)]
            for kind in ("input", "output")
        )
        return program.prepared(program.handle, x, y)

    @cases.add(f"{name} process", "C", precisions=("f32",))
    def process(variant: str, precision: str, name: str = name) -> Run:
        """A whole process that loads the program and runs it once on zeros."""
        command = [os.environ["BENCH_RUNNER"], path_of(name)]
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    serve("weft, C", "1", cases)
