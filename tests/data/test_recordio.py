"""RecordIO: bytes, damage, parts, indices, full disks."""

import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft.data as data
from weft import _core
from weft.data import recordio
from weft.data.recordio import (
    MAGIC,
    IndexedRecordReader,
    IndexedRecordWriter,
    IRHeader,
    RecordError,
    RecordReader,
    RecordWriter,
    encode,
)


def write(path, contents):
    with RecordWriter(path) as writer:
        return [writer.write(each) for each in contents]


def contents_of(seed, count):
    """Random contents, of which many have the magic number, aligned or not, in a row, at the ends."""
    rng = np.random.default_rng(seed)
    pieces = [MAGIC, b"", b"abcd", b"xyz", MAGIC[:2], rng.bytes(5), b"\0" * 4]
    return [b"".join(pieces[k] for k in rng.integers(0, 7, rng.integers(0, 9))) for _ in range(count)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0a23d7ce 00000000"),
        (b"abcde", "0a23d7ce 05000000 61626364 65000000"),
        (MAGIC, "0a23d7ce 00000020 0a23d7ce 00000060"),
        (
            b"abcd" + MAGIC + b"efgh" + MAGIC + b"ij" + MAGIC + b"kl",
            "0a23d7ce 04000020 61626364 0a23d7ce 04000040 65666768 0a23d7ce 08000060 696a0a23 d7ce6b6c",
        ),
        (b"a" + MAGIC, "0a23d7ce 05000000 610a23d7 ce000000"),
        (MAGIC * 2, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
    ],
)
def test_bytes(content, words):
    assert encode(content) == bytes.fromhex(words)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read(tmp_path, seed):
    contents = contents_of(seed, 300)
    offsets = write(tmp_path / "a.rec", contents)
    reader = RecordReader(tmp_path / "a.rec")
    assert list(reader) == contents
    assert reader.offsets().tolist() == offsets
    reader.reset()
    for content, offset in zip(contents, offsets, strict=True):
        assert reader.tell() == offset
        assert reader.read() == content
        assert reader.read_at(offset) == content
    assert reader.read() is None
    reader.seek(offsets[7])
    assert pickle.loads(pickle.dumps(reader)).read() == contents[7]
    with RecordWriter(tmp_path / "a.rec", append=True) as writer:
        writer.write(b"more")
    assert list(RecordReader(tmp_path / "a.rec")) == [*contents, b"more"]


def test_large_records(tmp_path):
    contents = [bytes([k]) * (300_000 * k) for k in range(12)]
    write(tmp_path / "a.rec", contents)
    assert list(RecordReader(tmp_path / "a.rec")) == contents
    assert recordio.MAX_PART_BYTES == 2**29 - 1


def test_index(tmp_path):
    path = tmp_path / "a.rec"
    with IndexedRecordWriter(path) as writer:
        offsets = [writer.write_idx(key, b"%d" % key) for key in (5, 0, 9)]
    lines = (tmp_path / "a.idx").read_text()
    assert lines == f"5\t{offsets[0]}\n0\t{offsets[1]}\n9\t{offsets[2]}\n"
    reader = IndexedRecordReader(path)
    assert (reader.keys, len(reader)) == ([5, 0, 9], 3)
    assert [reader.read_idx(key) for key in (0, 5, 9)] == [b"0", b"5", b"9"]
    reader.seek_idx(9)
    assert reader.read() == b"9"
    with pytest.raises(KeyError):
        reader.read_idx(1)
    (tmp_path / "a.idx").unlink()
    plain = IndexedRecordReader(path)
    assert (list(plain.keys), plain.read_idx(2)) == ([0, 1, 2], b"9")
    with pytest.raises(KeyError):
        plain.read_idx(3)
    (tmp_path / "b.idx").write_text("0\t0\n1 8\n")
    with pytest.raises(ValueError, match="line 2 is not 'key<TAB>offset'"):
        IndexedRecordReader(path, tmp_path / "b.idx")
    (tmp_path / "b.idx").write_text("0\t4\n")
    with pytest.raises(RecordError, match="no record at byte 4: the magic number is missing"):
        IndexedRecordReader(path, tmp_path / "b.idx").read_idx(0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_parts", [1, 2, 3, 7, 40])
def test_parts_have_every_record_once(tmp_path, seed, num_parts):
    contents = contents_of(seed, 120)
    cuts = sorted(np.random.default_rng(seed).integers(0, 120, 2))
    paths = [tmp_path / f"{k}.rec" for k in range(3)]
    for path, begin, end in zip(paths, [0, *cuts], [*cuts, 120], strict=True):
        write(path, contents[begin:end])
    one, streams, single = [], [], []
    for k in range(num_parts):
        dataset = data.RecordDataset(paths, num_parts=num_parts, part_index=k)
        one += [dataset[i] for i in range(len(dataset))]
        streams += data.RecordStream(f"{tmp_path}/*.rec", num_parts=num_parts, part_index=k)
        single += RecordReader(paths[0], num_parts=num_parts, part_index=k)
    assert one == contents
    assert streams == contents
    assert single == contents[: cuts[0]]


def damaged(tmp_path, change):
    contents = [b"%04d" % k * (k + 1) for k in range(6)]
    offsets = write(tmp_path / "a.rec", contents)
    raw = bytearray((tmp_path / "a.rec").read_bytes())
    change(raw, offsets)
    (tmp_path / "a.rec").write_bytes(raw)
    return contents, offsets


def overwrite(position, content):
    def change(raw, offsets):
        begin = offsets[2] + position
        raw[begin : begin + len(content)] = content

    return change


def cut(count):
    def change(raw, offsets):
        del raw[-count:]

    return change


@pytest.mark.parametrize(
    ("change", "bad", "problem"),
    [
        (overwrite(0, b"wxyz"), 2, "the magic number is missing"),
        (overwrite(4, struct.pack("<I", 2 << 29 | 4)), 2, "a part without the first one of its record"),
        (overwrite(4, struct.pack("<I", 1 << 29 | 12)), 2, "the last part of the record is missing"),
        (overwrite(4, struct.pack("<I", 8)), 2, None),  # the next header is in the content
        (overwrite(4, struct.pack("<I", 1 << 20)), 2, "the file ends in the content of a part"),
        (cut(1), 5, "the file ends in the content of a part"),
        (cut(26), 5, "the file ends in the header of a part"),
    ],
)
def test_damage(tmp_path, change, bad, problem):
    contents, offsets = damaged(tmp_path, change)
    path = tmp_path / "a.rec"
    with pytest.raises(RecordError) as caught:
        list(RecordReader(path))
    if problem:
        assert str(caught.value) == f"{path}: no record at byte {offsets[bad]}: {problem}"
        assert caught.value.offset == offsets[bad]
        assert pickle.loads(pickle.dumps(caught.value)).offset == offsets[bad]
    with pytest.raises(RecordError):
        RecordReader(path).offsets()
    reader = RecordReader(path, skip_corrupt=True)
    left = [each for k, each in enumerate(contents) if k != bad]
    found = list(reader)
    assert [each for each in found if each in contents] == left
    assert reader.skipped == 1
    by_one = RecordReader(path, skip_corrupt=True)
    assert list(iter(by_one.read, None)) == found
    assert len(data.RecordDataset(path, skip_corrupt=True)) == len(found)


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_loses_no_other_record(tmp_path, seed):
    rng = np.random.default_rng(seed)
    contents = [rng.bytes(rng.integers(0, 40)) for _ in range(50)]
    offsets = write(tmp_path / "a.rec", contents)
    raw = bytearray((tmp_path / "a.rec").read_bytes())
    hit = int(rng.integers(0, len(raw)))
    raw[hit] ^= int(rng.integers(1, 256))
    (tmp_path / "a.rec").write_bytes(raw)
    at = int(np.searchsorted(offsets, hit, side="right")) - 1
    found = list(RecordReader(tmp_path / "a.rec", skip_corrupt=True))
    before, after = contents[:at], contents[at + 1 :]
    assert found[: len(before)] == before
    length_hit = 4 <= hit - offsets[at] < 8  # a length that became greater takes records with it
    assert length_hit or found[len(found) - len(after) :] == after


def test_empty_and_missing_files(tmp_path):
    write(tmp_path / "a.rec", [])
    assert list(RecordReader(tmp_path / "a.rec")) == []
    assert len(data.RecordDataset(tmp_path / "a.rec")) == 0
    for path, error in ((tmp_path / "b.rec", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error):
            RecordReader(path)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        data.RecordDataset(tmp_path / "x*.rec")
    with pytest.raises(ValueError, match="part_index 2 is not one of num_parts=2"):
        RecordReader(tmp_path / "a.rec", num_parts=2, part_index=2)
    writer = RecordWriter(tmp_path / "a.rec")
    writer.close()
    with pytest.raises(ValueError, match=r"a\.rec is closed"):
        writer.write(b"")


FULL = """
import resource, signal, sys
from weft.data.recordio import IndexedRecordWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_001, 5_000_001))
writer = IndexedRecordWriter(sys.argv[1])
try:
    for k in range(10 ** 6):
        writer.write(b"%08d" % k * 40)
except OSError as error:
    print(error.errno, writer.count)
    print(error.__notes__[0])
    writer.close()
"""


def test_a_full_disk_leaves_whole_records(tmp_path):
    path = tmp_path / "a.rec"
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, note = done.stdout.splitlines()
    count = int(first.split()[1])
    assert count == 5_000_000 // 328
    assert f"has {count} records of this writer, up to byte {count * 328}" in note
    reader = IndexedRecordReader(path)
    assert len(reader) == count
    assert [int(each[:8]) for each in reader] == list(range(count))
    assert reader.read_idx(count - 1)[:8] == b"%08d" % (count - 1)


def test_headers():
    one = recordio.pack(IRHeader(0, 3.0, 7, 1), b"content")
    assert one == struct.pack("<IfQQ", 0, 3.0, 7, 1) + b"content"
    assert recordio.unpack(one) == (IRHeader(0, 3.0, 7, 1), b"content")
    many = recordio.pack(IRHeader(9, np.array([1, 2.5]), 7, 0), b"c")
    assert many == struct.pack("<IfQQff", 2, 0, 7, 0, 1, 2.5) + b"c"
    header, content = recordio.unpack(many)
    assert (header.flag, header.label.tolist(), content) == (2, [1, 2.5], b"c")
    for bad in (b"", many[:30]):
        with pytest.raises(ValueError, match="unpack: "):
            recordio.unpack(bad)


@pytest.mark.parametrize("extension", [".jpg", ".png"])
def test_pictures(extension):
    pytest.importorskip("PIL")
    y, x = np.mgrid[:48, :64]
    picture = np.stack([2 * y, 3 * x, y + x], -1).astype(np.uint8)
    header, found = recordio.unpack_img(recordio.pack_img(IRHeader(0, 1.0, 2, 0), picture, img_fmt=extension))
    assert header == IRHeader(0, 1.0, 2, 0)
    assert np.abs(found.astype(int) - picture).max() <= (8 if extension == ".jpg" else 0)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_datasets_in_workers(tmp_path, mode):
    contents = [b"%d" % k for k in range(40)]
    write(tmp_path / "a.rec", contents)
    for dataset in (data.RecordDataset(tmp_path / "a.rec"), data.RecordStream(tmp_path / "a.rec")):
        with data.DataLoader(dataset, batch_size=7, num_workers=2, mode=mode) as loader:
            assert [each for batch in loader for each in batch] == contents


def test_ten_million_records_are_two_arrays(tmp_path):
    """An index takes 8 bytes a record, an order 4; the short form has 200 thousand."""
    count = 200_000
    with open(tmp_path / "a.idx", "w") as file:
        file.writelines(f"{k}\t{12 * k}\n" for k in range(count))
    (tmp_path / "a.rec").write_bytes(encode(b"abcd") * count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = data.RecordDataset(tmp_path / "a.rec")
    loader = data.DataLoader(dataset, batch_size=1000, shuffle=True, seed=0)
    assert next(iter(loader)) == [b"abcd"] * 1000
    assert dataset._offsets[0].nbytes == 8 * count
    assert loader.batches.sampler.order(0).indices.nbytes == 4 * count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert os.path.getsize(tmp_path / "a.rec") == 12 * count


def test_paths_of_bytes(tmp_path):
    path = os.fsencode(tmp_path / "a.rec")
    with recordio.RecordWriter(path) as writer:
        writer.write(b"abc")
    assert recordio.RecordReader(path).read() == b"abc"


def test_a_file_that_is_cut_under_a_reader(tmp_path):
    """An error, as for any other damage; no signal."""
    path = tmp_path / "a.rec"
    contents = [bytes([k]) * 50_000 for k in range(20)]
    write(path, contents)
    reader = recordio.RecordReader(path)
    assert reader.read() == contents[0]
    dataset = data.RecordDataset(path)
    os.truncate(path, 30_000)
    with pytest.raises(recordio.RecordError, match=r"shorter|cut"):
        list(reader)
    with pytest.raises(recordio.RecordError, match=r"shorter|cut"):
        dataset[15]
    with pytest.raises(recordio.RecordError, match=r"shorter|cut"):
        dataset[0]


def test_other_threads_run_while_a_record_is_read(tmp_path):
    path = tmp_path / "a.rec"
    write(path, [b"x" * (64 << 20)])
    reader = _core.RecordFile(os.fspath(path))
    turns, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0.0002)

    before_s = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        sys.setswitchinterval(100)  # no thread gets a turn that the other one does not give
        for _ in range(5):
            before = turns[0]
            assert len(reader.read(0)[0]) == 64 << 20
            if turns[0] > before:
                break
        else:
            pytest.fail("the reader kept the GIL")
    finally:
        sys.setswitchinterval(before_s)
        stop.set()
        thread.join()


def test_a_scan_of_hostile_bytes_ends_soon(tmp_path):
    """Each begin leads to the same parts, which end nowhere."""
    count = 100_000
    head = b"".join(MAGIC + struct.pack("<I", 1 << 29 | 8 * (count - i - 1)) for i in range(count))
    path = tmp_path / "a.rec"
    path.write_bytes(head + (MAGIC + struct.pack("<I", 2 << 29)) * count)
    reader = recordio.RecordReader(path, skip_corrupt=True)
    begin = time.monotonic()
    assert list(reader) == []
    assert reader.skipped == count
    assert len(_core.RecordFile(os.fspath(path)).scan(0, 16 * count, True)[0]) == 0
    assert time.monotonic() - begin < 60  # it was 500 s
