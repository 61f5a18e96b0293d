"""weft/weft.h through ctypes, in a process without weft.

    native_runner.py LIBRARY FOLDER IN.npz OUT.npz [seed=N] [kernels=LIBRARY]

Runs the calls that a file has, arrays named "CALL.INPUT", one after the other, each by the variant for its shapes, and
writes results as "CALL.RESULT", and weights, after the last call, as "weight.NAME".
"""

import ctypes
import sys

import numpy as np

assert "weft" not in sys.modules


class ArrayType(ctypes.Structure):
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
    _fields_ = (("data", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64)))


class Shape(ctypes.Structure):
    _fields_ = (("ndim", ctypes.c_int), ("sizes", ctypes.POINTER(ctypes.c_int64)))


def numbers(values):
    return (ctypes.c_int64 * len(values))(*values)


def described(array):
    strides = [s // array.itemsize for s in array.strides]
    return Array(array.ctypes.data, numbers(strides))


class Program:
    """Errors of the library are RuntimeErrors."""

    def __init__(self, library, folder):
        self.library = library
        self.handle = ctypes.c_void_p()
        self.require(library.weft_program_load(str(folder).encode(), ctypes.byref(self.handle)))

    def require(self, status):
        if status:
            raise RuntimeError(self.library.weft_last_error().decode())

    def types(self, handle, kind):
        found = []
        for k in range(getattr(self.library, f"weft_program_{kind}_count")(handle)):
            found.append(ArrayType(size=ctypes.sizeof(ArrayType)))
            self.require(getattr(self.library, f"weft_program_{kind}")(handle, k, ctypes.byref(found[-1])))
        return found

    def empty(self, array_type):
        name = {"bfloat16": "uint16"}.get(array_type.dtype.decode(), array_type.dtype.decode())
        return np.empty(array_type.shape[: array_type.ndim], name)

    def __call__(self, *inputs):
        shapes = [Shape(x.ndim, numbers(x.shape)) for x in inputs]
        variant = ctypes.c_void_p()
        self.require(
            self.library.weft_program_for_shapes(
                self.handle, (Shape * len(inputs))(*shapes), ctypes.byref(variant)
            )
        )
        outputs = [self.empty(each) for each in self.types(variant, "output")]
        return self.prepared(variant, inputs, outputs)()

    def prepared(self, variant, inputs, outputs):
        """A function that runs the program on these arrays, which it keeps, and returns the outputs."""
        given = (Array * max(len(inputs), 1))(*map(described, inputs))
        wanted = (Array * max(len(outputs), 1))(*map(described, outputs))

        def run(kept=(inputs, outputs)):
            self.require(self.library.weft_program_run(variant, given, wanted))
            return kept[1]

        return run

    def weights(self):
        found = {}
        for k, each in enumerate(self.types(self.handle, "weight")):
            array = self.empty(each)
            self.require(
                self.library.weft_program_read_weight(self.handle, k, ctypes.byref(described(array)))
            )
            found[each.name.decode()] = array
        return found

    def write_weight(self, number, array):
        self.require(
            self.library.weft_program_write_weight(self.handle, number, ctypes.byref(described(array)))
        )


def opened(path):
    library = ctypes.CDLL(path)
    library.weft_last_error.restype = ctypes.c_char_p
    return library


if __name__ == "__main__":
    path, folder, source, target, *words = sys.argv[1:]
    library = opened(path)
    for name, _, value in (word.partition("=") for word in words):
        if name == "seed":
            library.weft_seed(ctypes.c_uint64(int(value)))
        elif library.weft_kernels_load(value.encode()):
            raise SystemExit(library.weft_last_error().decode())
    program = Program(library, folder)
    results = {}
    with np.load(source) as arrays:
        for call in range(len({name.split(".")[0] for name in arrays.files})):
            inputs = []
            while f"{call}.{len(inputs)}" in arrays.files:
                inputs.append(arrays[f"{call}.{len(inputs)}"])
            for k, output in enumerate(program(*inputs)):
                results[f"{call}.{k}"] = output
            for k, array in enumerate(inputs):  # those that are written
                results[f"{call}.input{k}"] = array
    results.update({f"weight.{name}": array for name, array in program.weights().items()})
    np.savez(target, **results)
    library.weft_program_free(program.handle)
