"""Files with faults are read, or are errors of files, and take no more memory than they have.

Each day's share is other files; --full mutates a million, divided among the formats.
"""

import functools
import json
import os
import random
import resource

import numpy as np
import pytest
from tests.fuzzing import seeds
from tests.interop import test_weights as weights
from tests.interop import writers
from tests.interop.test_mxnet_states import adam, array
from tests.interop.test_mxnet_symbols import small_network

import weft as wf
from weft.base.errors import GraphError, ShapeError
from weft.interop import mxnet

FILES = {
    "archive": lambda: writers.torch_archive(weights.state()),
    "legacy": lambda: writers.torch_legacy(weights.state()),
    "pickle": lambda: writers.pickled({"a": [1, 2.5, "x", None, (True, b"z")], "b": {"c": []}}, 4),
    "arrays": lambda: __import__("pickle").dumps({"w": weights.W, "b": weights.B}, 4),
    "npy": lambda: weights.npy(weights.W),
    "npz": lambda: weights.npz(w=weights.W, b=weights.B),
    "compressed": lambda: weights.npz(True, w=weights.W, b=weights.B),
    "gguf": lambda: writers.gguf(
        {"w": ((3, 4), 0, weights.W.tobytes()), "q": ((2, 32), 2, weights.blocks(2, 2).tobytes())},
        [("layers", 4, b"\3\0\0\0"), ("general.alignment", 4, b" \0\0\0")],
    ),
    "mxnet": lambda: writers.mxnet_params({"arg:w": weights.W, "aux:n": np.array([3], np.int64)}),
    "safetensors": lambda: safetensors({"w": weights.W, "b": weights.B}),
    "states": lambda: writers.pickled(({0: (array(weights.W), array(weights.W)), 1: None}, adam(7)), 4),
    "symbol": lambda: small_network().encode(),
    "rows": lambda: writers.mxnet_sparse(1, weights.W[:2], (4, 4), np.array([1, 3])),
    "compressed rows": lambda: writers.mxnet_sparse(
        2, np.ones(3, np.float32), (2, 3), np.array([0, 1, 3]), np.array([2, 0, 1])
    ),
    "onnx": lambda: looped().SerializeToString(),
}
TOTAL = 1_000_000
READERS = {
    "onnx": wf.interop.onnx.load,
    "states": mxnet.load_states,
    "symbol": lambda path: mxnet.load(path).symbol,
}
STAGES = ("load: ", "torch.load: ", "pickle", "mxnet.load", "onnx.load")  # how errors begin
SPARE_BYTES = (
    3 << 30
)  # address space for all that a faulty file may ask for: a sparse array becomes at most 2 GiB
NETWORK_ERRORS = {"symbol": GraphError, "onnx": (GraphError, ShapeError, IndexError, TypeError)}
INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)


def mutated(content, rng):
    """The file with a few faults."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.choice(INTERESTING)])
            case 1:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                del data[at : at + rng.choice((1, 4, 8, 100))]
            case 3:
                data[at:at] = data[at : at + rng.choice((1, 4, 8, 100))]
            case 4:
                data[at : at + 8] = rng.choice((2**31 - 1, 2**32, 2**62, 2**63, 2**64 - 1)).to_bytes(
                    8, "little"
                )
            case 5:
                del data[at:]
    return bytes(data)


def safetensors(arrays):
    head, at = {}, 0
    for name, x in arrays.items():
        kind = {"float32": "F32", "float64": "F64", "int64": "I64", "bool": "BOOL"}[x.dtype.name]
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(x.tobytes() for x in arrays.values())


def looped():
    """A model with constants, sizes, a branch and a loop."""
    w = wf.asarray(weights.W)

    def step(row, state):
        return wf.cond(row.sum() > 0, lambda: row @ w, lambda: state * 2), state + 1

    return wf.interop.onnx.export(
        lambda x: wf.foreach(step, x.reshape((-1, x.shape[1])), x[0, :1] * wf.ones(w.shape[1])),
        [wf.ones((4, w.shape[0]))],
        dynamic={"x0": {0: "n"}},
    )


@functools.cache
def content(kind):
    return FILES[kind]()


def check(kind, seed, path):
    rng = random.Random(seed)
    path.write_bytes(mutated(content(kind), rng))
    is_mapped, text = rng.random() < 0.5, STAGES[0]
    try:
        loaded = READERS[kind](path) if kind in READERS else wf.load(path, mmap=is_mapped)
    except weights.FILE_ERRORS as error:
        text = str(error)
    except NETWORK_ERRORS.get(kind, ()):  # of a network that is whole, but not one that weft knows
        return
    else:
        for x in wf.tree_leaves(loaded):
            if isinstance(x, wf.Tensor) and x.size < 1000:
                x.numpy()
    assert text.startswith(STAGES), (seed, text)


@pytest.fixture
def bounded():
    """Address space for little more than there is: what asks for more is a MemoryError, which no test expects."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("kind", FILES)
def test_mutated_files(tmp_path, kind, bounded):
    for seed in seeds(0, 150):
        check(kind, seed, tmp_path / "file")


def share(kind):
    """The number of files of a format, of a million for all."""
    kinds = list(FILES)
    return TOTAL // len(kinds) + (kinds.index(kind) < TOTAL % len(kinds))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", FILES)
def test_a_million_mutated_files(tmp_path, kind, bounded):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = seeds(0, 1)[0] * 100  # of the day, and apart from those of the share
    count = int(os.environ.get("WEFT_TEST_FILES", share(kind)))
    for seed in range(first, first + count):
        check(kind, seed, tmp_path / "file")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_the_formats_share_a_million():
    assert sum(share(kind) for kind in FILES) == TOTAL
