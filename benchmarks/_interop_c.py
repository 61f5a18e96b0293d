"""Exported programs' side of benchmarks/interop.py: the library for C, called by nothing but ctypes."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from _protocol import Cases, Run, serve

cases = Cases()
library = ctypes.CDLL(os.environ["BENCH_LIBRARY"])
library.weft_last_error.restype = ctypes.c_char_p


class Type(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("item_bytes", ctypes.c_size_t),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("is_written", ctypes.c_int),
    )


class Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("strides", ctypes.c_void_p))


def require(status: int) -> None:
    if status:
        raise RuntimeError(library.weft_last_error().decode())


def memory_for(find, program) -> ctypes.Array:
    """Fresh zeros for the only input or output."""
    kind = Type(size=ctypes.sizeof(Type))
    require(find(program, 0, ctypes.byref(kind)))
    count = kind.item_bytes
    for d in range(kind.ndim):
        count *= kind.shape[d]
    return (ctypes.c_double * (count // 8 + 1))()


def path_of(name: str) -> str:
    return os.path.join(os.environ["BENCH_EXPORTS"], name)


for name in ("resnet50", "gpt"):

    @cases.add(name, "C", precisions=("f32",))
    def infer(variant: str, precision: str, name: str = name) -> Run:
        program = ctypes.c_void_p()
        require(library.weft_program_load(path_of(name).encode(), ctypes.byref(program)))
        data = [
            memory_for(find, program) for find in (library.weft_program_input, library.weft_program_output)
        ]
        x, y = (Array(ctypes.addressof(each)) for each in data)

        def run() -> None:
            require(library.weft_program_run(program, ctypes.byref(x), ctypes.byref(y)))
            assert data

        return run

    @cases.add(f"{name} process", "C", precisions=("f32",))
    def process(variant: str, precision: str, name: str = name) -> Run:
        """A whole process that loads the program and runs it once on zeros."""
        command = [os.environ["BENCH_RUNNER"], path_of(name)]
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    serve("weft, C", "1", cases)
