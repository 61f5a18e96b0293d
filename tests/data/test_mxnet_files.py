"""Files written here are read by MXNet, and the other way round: with --full, in the environment of the benchmarks."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import weft.data as data
from weft.data import recordio

PYTHON = Path(__file__).resolve().parents[2] / "build" / "peers" / "mxnet" / "bin" / "python"

READS = """
import sys
import mxnet as mx
folder = sys.argv[1]
reader = mx.recordio.MXRecordIO(folder + "/weft.rec", "r")
writer = mx.recordio.MXRecordIO(folder + "/mxnet.rec", "w")
while (record := reader.read()) is not None:
    writer.write(record)
writer.close()
indexed = mx.recordio.MXIndexedRecordIO(folder + "/indexed.idx", folder + "/indexed.rec", "r")
copy = mx.recordio.MXIndexedRecordIO(folder + "/mxnet-indexed.idx", folder + "/mxnet-indexed.rec", "w")
for key in indexed.keys:
    header, content = mx.recordio.unpack(indexed.read_idx(key))
    copy.write_idx(key, mx.recordio.pack(header, content))
copy.close()
header, content = mx.recordio.unpack(mx.recordio.MXRecordIO(folder + "/image.rec", "r").read())
image = mx.image.imdecode(content).asnumpy()
assert (header.label, header.id, image.shape) == (3.0, 5, (32, 48, 3)), (header, image.shape)
print(*image.reshape(-1, 3).mean(0))
it = mx.io.ImageRecordIter(path_imgrec=folder + "/image.rec", data_shape=(3, 32, 48), batch_size=1, mean_r=10, std_g=2)
print(*it.next().data[0].asnumpy().mean((0, 2, 3)))
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    magic = recordio.MAGIC
    pieces = [magic, b"abcd", b"xyz", magic[:2], b"", rng.bytes(9), rng.bytes(5000)]
    contents = [
        b"".join(pieces[k] for k in rng.integers(0, 7, rng.integers(1, 9))) or b"x" for _ in range(500)
    ]
    with recordio.RecordWriter(tmp_path / "weft.rec") as writer:
        for content in contents:
            writer.write(content)
    with recordio.IndexedRecordWriter(tmp_path / "indexed.rec") as writer:
        for k in range(50):
            label = float(k) if k % 2 else np.arange(k + 1, dtype=np.float32)
            writer.write_idx(3 * k, recordio.pack(recordio.IRHeader(0, label, k, 0), contents[k]))
    y, x = np.mgrid[:32, :48]
    image = np.stack([y * 7, x * 5, y + x], -1).astype(np.uint8)
    with recordio.RecordWriter(tmp_path / "image.rec") as writer:
        writer.write(recordio.pack_img(recordio.IRHeader(0, 3.0, 5, 0), image, img_fmt=".png"))
    return tmp_path, contents, image


@pytest.mark.full
def test_bytes_are_mxnets(folder):
    if not PYTHON.exists():
        pytest.skip("no environment of MXNet; ./dev bench data --peers makes it")
    path, contents, image = folder
    done = subprocess.run([PYTHON, "-c", READS, str(path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert (path / "mxnet.rec").read_bytes() == (path / "weft.rec").read_bytes()
    assert (path / "mxnet-indexed.rec").read_bytes() == (path / "indexed.rec").read_bytes()
    assert (path / "mxnet-indexed.idx").read_text() == (path / "indexed.idx").read_text()
    assert list(recordio.RecordReader(path / "mxnet.rec")) == contents
    means, normalised = ([float(word) for word in line.split()] for line in done.stdout.splitlines()[-2:])
    np.testing.assert_allclose(means, image.mean((0, 1)), atol=1e-3)
    it = data.ImageRecordIter(path / "image.rec", (3, 32, 48), 1, mean_r=10, std_g=2)
    np.testing.assert_allclose(it.next().data[0].numpy().mean((0, 2, 3)), normalised, rtol=1e-4)
    it.close()
