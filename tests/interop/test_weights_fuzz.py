"""Files with faults are read, or are errors of files, and take no more memory than they have.

Each day's share is other files; --full mutates a million, divided among the formats.
"""

import functools
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.fuzzing import seeds
from tests.interop import test_weights as weights
from tests.interop import writers
from tests.interop.mutations import mutated
from tests.interop.test_mxnet_states import adam, array
from tests.interop.test_mxnet_symbols import small_network

import weft as wf
import weft.functional as F
from weft import info
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
FOLDERS = ("plan", "code")  # of an exported folder; its own process loads them: native_folders.py
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


def step_with_many_kernels():
    """Of loops, oneDNN's kernels, kernels by name, control flow, state and random numbers."""
    layers = [wf.module.Conv2d(2, 4, 3), wf.module.BatchNorm2d(4), wf.module.ReLU(), wf.module.MaxPool2d(2)]
    layers += [wf.module.Flatten(), wf.module.Linear(16, 8), wf.module.LayerNorm(8)]
    net, lstm, total = wf.module.Sequential(*layers).eval(), wf.module.LSTM(8, 4), wf.zeros((8,))

    def double(y):
        return wf.while_loop(lambda s: F.sum(s) < 9, lambda s: s * 2 + 1, y, max_iterations=9)

    def step(x):
        y = net(x)
        total[...] = total + F.sum(y, axis=0)
        z = wf.cond(F.sum(y) > 3, F.exp, double, y)
        rows = wf.foreach(
            lambda row, state: (F.dropout(F.sort(row), 0.5, training=True), state + row), z, total
        )[0]
        taken = F.take(z, F.argmax(z, axis=1), axis=1)
        return F.dropout(rows, 0.5, training=True), lstm(F.reshape(z, (1, -1, 8)))[0], taken, total

    return step


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of two sizes, so that loading runs none of its code, which is trusted; only what it says is not."""
    path = tmp_path_factory.mktemp("exported") / "folder"
    traced = wf.trace(step_with_many_kernels(), dynamic={"x": 0})
    with wf.no_grad():
        traced(wf.ones((2, 2, 6, 6)))
        traced.export(path, target="native", sizes=[{"x": (n, 2, 6, 6)} for n in (2, 3)])
    return path


def check_folders(folder, kind, first, count, work):
    library = info.program_library_flags().split()[0].removeprefix("-L") + "/libweft.so.1"
    words = [library, folder, kind, first, count, work]
    command = [sys.executable, "-m", "tests.interop.native_folders", *map(str, words)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    seed = (work / "seed").read_text().strip() if (work / "seed").exists() else "none"
    assert done.returncode == 0, f"seed {seed}: status {done.returncode}: {done.stderr[-1000:]}"
    assert 0 < int(done.stdout) < count  # some faults are where the file has texts and numbers of any value


@pytest.mark.parametrize("kind", FOLDERS)
def test_mutated_folders(kind, folder, tmp_path):
    check_folders(folder, kind, seeds(0, 1)[0], 500, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_million_mutated_folders(kind, folder, tmp_path):
    count = int(os.environ.get("WEFT_TEST_FILES", share(kind)))
    check_folders(folder, kind, seeds(0, 1)[0] * 100, count, tmp_path)


def share(kind):
    """The number of files of a format, of a million for all."""
    kinds = [*FILES, *FOLDERS]
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
    assert sum(share(kind) for kind in [*FILES, *FOLDERS]) == TOTAL
