"""Files with faults: wf.load reads them or raises an error of files, and takes no more memory than they have."""

import random
import resource

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while
from tests.interop import test_weights as weights
from tests.interop import writers

import weft as wf

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
    "rows": lambda: writers.mxnet_sparse(1, weights.W[:2], (4, 4), np.array([1, 3])),
    "compressed rows": lambda: writers.mxnet_sparse(
        2, np.ones(3, np.float32), (2, 3), np.array([0, 1, 3]), np.array([2, 0, 1])
    ),
}
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


def check(kind, seed, path):
    rng = random.Random(seed)
    path.write_bytes(mutated(FILES[kind](), rng))
    text = "load: "
    try:
        loaded = wf.load(path, mmap=rng.random() < 0.5)
    except weights.FILE_ERRORS as error:
        text = str(error)
    else:
        for x in wf.tree_leaves(loaded):
            if isinstance(x, wf.Tensor) and x.size < 1000:
                x.numpy()
    assert text.startswith(("load: ", "torch.load: ", "pickle")), text


@pytest.mark.parametrize("kind", FILES)
def test_mutated_files(tmp_path, kind):
    for seed in seeds(0, 60):
        check(kind, seed, tmp_path / "file")


@pytest.mark.full
@pytest.mark.parametrize("kind", FILES)
def test_many_mutated_files(tmp_path, kind):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds_for_a_while(1, 60.0):
        check(kind, seed, tmp_path / "file")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
