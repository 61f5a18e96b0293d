"""Datasets of files, caches, text."""

import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pytest

import weft.data as data
from weft.data import images, text


def test_image_folder(tmp_path):
    pytest.importorskip("PIL")
    for name, colour in (("b", 10), ("a", 200)):
        (tmp_path / name / "deep").mkdir(parents=True)
        for k in range(2):
            image = np.full((4 + k, 5, 3), colour, np.uint8)
            (tmp_path / name / "deep" / f"{k}.png").write_bytes(images.encode(image, ".png"))
    (tmp_path / "a" / "notes.txt").write_text("no picture")
    dataset = data.ImageFolder(tmp_path)
    assert dataset.classes == ["a", "b"]
    assert [(x.shape, int(x[0, 0, 0]), label) for x, label in (dataset[k] for k in range(4))] == [
        ((4, 5, 3), 200, 0),
        ((5, 5, 3), 200, 0),
        ((4, 5, 3), 10, 1),
        ((5, 5, 3), 10, 1),
    ]
    bad = tmp_path / "a" / "x.jpg"
    bad.write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"x\.jpg: decode: 6 bytes that are not a picture"):
        data.ImageFolder(tmp_path)[2]
    (tmp_path / "c").mkdir()
    with pytest.raises(FileNotFoundError, match="has no pictures in folders"):
        data.ImageFolder(tmp_path / "c")


def test_a_folder_that_vanishes(tmp_path):
    pytest.importorskip("PIL")
    (tmp_path / "a").mkdir()
    for k in range(8):
        (tmp_path / "a" / f"{k}.png").write_bytes(images.encode(np.zeros((2, 2, 3), np.uint8), ".png"))
    for mode in ("thread", "process"):
        dataset = data.ImageFolder(tmp_path)
        (tmp_path / "a").rename(tmp_path / "gone")
        with data.DataLoader(dataset, num_workers=2, mode=mode) as loader:
            with pytest.raises(FileNotFoundError) as caught:
                list(loader)
            assert caught.value.sample_index == 0
        (tmp_path / "gone").rename(tmp_path / "a")


def test_one_percent_of_corrupt_pictures(tmp_path):
    """By default the loader raises with the index; a dataset that leaves them out says so by its length."""
    pytest.importorskip("PIL")
    path = tmp_path / "a.rec"
    with data.recordio.IndexedRecordWriter(path) as writer:
        for k in range(100):
            content = images.encode(np.full((8, 8, 3), k, np.uint8))
            content = content[:40] if k == 57 else content
            writer.write(data.recordio.pack(data.recordio.IRHeader(0, float(k), k, 0), content))
    dataset = data.RecordDataset(path, decode="image")
    for options in ({}, {"num_workers": 2}, {"num_workers": 2, "mode": "process"}):
        with data.DataLoader(dataset, batch_size=10, **options) as loader:
            with pytest.raises(ValueError, match="are not a picture") as caught:
                list(loader)
            assert caught.value.sample_index == 57
    records = data.MapStream(data.RecordStream(path), readable, keep=None)
    kept = data.MapStream(records, lambda sample: sample, keep=lambda sample: sample is not None)
    labels = [int(label) for _, labels in data.DataLoader(kept, batch_size=9) for label in labels]
    assert labels == [k for k in range(100) if k != 57]


def readable(record):
    try:
        return data.recordio.decode_image(record)
    except ValueError:
        return None


def add(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def test_tar_shards(tmp_path):
    array = io.BytesIO()
    np.save(array, np.arange(3))
    for shard in range(3):
        with tarfile.open(
            tmp_path / f"{shard}.tar{'.gz' if shard == 1 else ''}", "w:gz" if shard == 1 else "w"
        ) as tar:
            for k in range(4):
                add(tar, f"some/{shard}{k}.cls", b"%d" % k)
                add(tar, f"some/{shard}{k}.meta.json", json.dumps({"k": k}).encode())
                add(tar, f"some/{shard}{k}.x.npy", array.getvalue())
                add(tar, f"some/{shard}{k}.txt", "é".encode())
    stream = data.TarStream(str(tmp_path / "*.tar*"))
    samples = list(stream)
    assert [sample["__key__"] for sample in samples] == [f"some/{s}{k}" for s in range(3) for k in range(4)]
    first = samples[1]
    assert (first["cls"], first["meta.json"], first["txt"]) == (1, {"k": 1}, "é")
    assert first["x.npy"].tolist() == [0, 1, 2]
    parts = [
        [each["__key__"] for each in data.TarStream(str(tmp_path / "*.tar*"), num_parts=2, part_index=k)]
        for k in (0, 1)
    ]
    assert sorted(parts[0] + parts[1]) == [sample["__key__"] for sample in samples]
    shuffled = data.TarStream(str(tmp_path / "*.tar*"), shuffle_shards=True, decode=None)
    orders = [[each["__key__"] for each in shuffled.iterate(epoch)] for epoch in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1
    with data.DataLoader(stream, batch_size=5, num_workers=2, mode="process") as loader:
        assert [key for batch in loader for key in batch["__key__"]] == [each["__key__"] for each in samples]
    raw = (tmp_path / "0.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(raw[:1000])
    with pytest.raises(ValueError, match=r"cut\.tar is damaged"):
        list(data.TarStream(tmp_path / "cut.tar"))


def test_tables_and_lines(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\n1,2.5,0\n3,4,1\n")
    x, y = data.CSVDataset(tmp_path / "a.csv", labels=-1, skip_rows=1)[0]
    assert (x.tolist(), int(y), x.dtype.name, y.dtype.name) == ([1, 2.5], 0, "float32", "int64")
    assert data.CSVDataset(tmp_path / "a.csv", skip_rows=1)[1].tolist() == [3, 4, 1]
    with pytest.raises(ValueError, match=r"a\.csv:1: column 0: could not convert string to float: 'a'"):
        data.CSVDataset(tmp_path / "a.csv")
    (tmp_path / "a.svm").write_text("1 0:2 2:3  # words\n\n-1 1:0.5\n")
    x, y = data.read_libsvm(tmp_path / "a.svm", 3)
    assert (x.tolist(), y.tolist()) == ([[2, 0, 3], [0, 0.5, 0]], [1, -1])
    assert len(data.LibSVMDataset(tmp_path / "a.svm", 3)) == 2
    (tmp_path / "empty.svm").write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"empty\.svm: it has no rows"):
        data.read_libsvm(tmp_path / "empty.svm", 3)
    for line, words in (("1 3:1", "index 3 is not one of 3 columns"), ("x 1:1", "could not convert")):
        (tmp_path / "b.svm").write_text("1 0:1\n" + line)
        with pytest.raises(ValueError, match=rf"b\.svm:2: .*{words}"):
            data.read_libsvm(tmp_path / "b.svm", 3)
    for content, lines in (("", []), ("one", ["one"]), ("é\r\n\nthree\n", ["é", "", "three"])):
        (tmp_path / "a.txt").write_bytes(content.encode())
        assert list(data.TextLines(tmp_path / "a.txt")) == lines
    dataset = data.TextLines(tmp_path / "a.txt")
    with data.DataLoader(dataset, batch_size=2, num_workers=1, mode="process") as loader:
        assert list(loader) == [["é", ""], ["three"]]


def write_idx(path, array):
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_mnist_and_cifar(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", pictures)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.arange(6, dtype=np.uint8))
    x, y = data.MNIST(tmp_path)[3]
    np.testing.assert_array_equal(x[:, :, 0], pictures[3])
    assert y == 3
    with pytest.raises(FileNotFoundError, match="t10k-images"):
        data.MNIST(tmp_path, train=False)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03abc")
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 1]) + struct.pack(">I", 9))
    with pytest.raises(ValueError, match="do not hold an array"):
        data.MNIST(tmp_path, train=False)
    planes = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32), np.uint8)
    (tmp_path / "test_batch.bin").write_bytes(
        b"".join(bytes([k + 4]) + planes[k].tobytes() for k in range(2))
    )
    x, y = data.CIFAR10(tmp_path, train=False)[1]
    np.testing.assert_array_equal(x, planes[1].transpose(1, 2, 0))
    assert y == 5
    (tmp_path / "test.bin").write_bytes(bytes([1, 77]) + planes[0].tobytes())
    assert data.CIFAR100(tmp_path, train=False)[0][1] == 77
    (tmp_path / "test.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="3 bytes are not a multiple of 3074"):
        data.CIFAR100(tmp_path, train=False)


class Counted(data.Dataset):
    def __init__(self):
        self.calls = []

    def __len__(self):
        return 5

    def __getitem__(self, k):
        self.calls.append(k)
        return np.full((3, k), k, np.float32), f"name {k}", k


@pytest.mark.parametrize("on_disk", [False, True])
def test_caches(tmp_path, on_disk):
    source = Counted()
    cached = data.CacheDataset(source, tmp_path / "cache" if on_disk else None)
    for _ in range(2):
        for k in (3, 0, -1, 1, 2):
            x, name, number = cached[k]
            assert (x.tolist(), name, number) == ([[k % 5] * (k % 5)] * 3, f"name {k % 5}", k % 5)
    assert sorted(source.calls) == (
        [0, 1, 2, 3, 4] if on_disk else [-1, 0, 1, 2, 3] if -1 in source.calls else [0, 1, 2, 3, 4]
    )
    with pytest.raises(IndexError, match="index 5 is not one of 5"):
        cached[5]
    if on_disk:
        assert [path.name for path in tmp_path.iterdir()] == ["cache"]
        again = Counted()
        assert data.CacheDataset(again, tmp_path / "cache")[4][1] == "name 4"
        assert again.calls == [0, 2, 4]  # compared with what is there
        assert data.CacheDataset(again, tmp_path / "cache", check=False)[1][1] == "name 1"
        assert again.calls == [0, 2, 4]
        with pytest.raises(ValueError, match="has 5 samples, the dataset 3"):
            data.CacheDataset([1, 2, 3], tmp_path / "cache")
        (tmp_path / "other").write_bytes(b"x" * 64)
        with pytest.raises(ValueError, match="is not a cache"):
            data.CacheDataset([1], tmp_path / "other")


def test_a_cache_that_fails_leaves_no_file(tmp_path):
    def fail(k):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        data.CacheDataset(data.MapDataset([1, 2], fail), tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


def test_zip_map_split():
    both = data.ZipDataset(data.ArrayDataset([1, 2, 3]), ["a", "b", "c"])
    assert (len(both), both[2][1]) == (3, "c")
    with pytest.raises(ValueError, match=r"have sizes \[1, 2\]"):
        data.ZipDataset([1], [1, 2])
    parts = data.split(list(range(10)), [0.5, 0.3, 0.2], seed=1)
    assert [len(part) for part in parts] == [5, 3, 2]
    assert sorted(part[k] for part in parts for k in range(len(part))) == list(range(10))
    assert [len(part) for part in data.split(list(range(10)), [4, 1])] == [4, 1]
    with pytest.raises(ValueError, match=r"split: sizes \[8, 3\] of 10"):
        data.split(list(range(10)), [8, 3])
    assert list(data.MapStream([1, 2, 3], lambda x: x * 2, keep=lambda x: x != 2)) == [2, 6]


def test_vocabulary():
    vocabulary = text.Vocabulary.of([["b", "a", "b"], ["c"]], size=4)
    assert vocabulary.tokens == ["<pad>", "<unk>", "b", "a"]
    assert vocabulary.encode(["a", "c", "b"]) == [3, 1, 2]
    assert vocabulary.decode([2, 0]) == ["b", "<pad>"]
    strict = text.Vocabulary(["x", "y"], unknown=None)
    assert (strict["y"], len(strict)) == (1, 2)
    with pytest.raises(KeyError):
        strict["z"]
    with pytest.raises(ValueError, match="a token occurs twice"):
        text.Vocabulary(["x", "x"], unknown=None)
    assert text.Vocabulary.of([["b", "a", "b"]], least=2, special=()).tokens == ["b"]
    assert text.from_bytes(text.to_bytes("naïve ☃")) == "naïve ☃"


def test_language_model_pieces():
    pieces = text.Bptt(np.arange(23), batch_size=2, length=4)
    rows = np.concatenate([pieces[k][0] for k in range(len(pieces))], axis=1)
    np.testing.assert_array_equal(rows, [np.arange(10), np.arange(11, 21)])
    for k in range(len(pieces)):
        x, y = pieces[k]
        np.testing.assert_array_equal(x + 1, y)
    assert [pieces[k][0].shape for k in range(3)] == [(2, 4), (2, 4), (2, 2)]
    with pytest.raises(ValueError, match="less than 2 for each of 3 rows"):
        text.Bptt([1, 2, 3], 3, 1)
    with pytest.raises(IndexError):
        pieces[3]


def test_tokenizers_models():
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = text.Tokenizer(model)
    assert (tokenizer.encode("a b x").tolist(), len(tokenizer)) == ([0, 1, 2], 3)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("without", [(), ("rich",), ("rich", "tqdm")])
def test_progress(without, monkeypatch):
    import sys

    for name in without:
        monkeypatch.setitem(sys.modules, name, None)
    out = Terminal()
    loader = data.DataLoader(list(range(10)), batch_size=2)
    assert [len(batch) for batch in data.progress(loader, "epoch 1", file=out)] == [2] * 5
    assert "5/5" in out.getvalue()
    assert "samples/s, waiting" in out.getvalue()
    silent = io.StringIO()
    list(data.progress(loader, file=silent))
    assert silent.getvalue() == ""
    out = Terminal()
    list(data.progress(iter([1, 2]), file=out))
    assert out.getvalue()


def test_samplers():
    weighted = data.WeightedSampler([1, 0, 3], count=8000, seed=1)
    counts = np.bincount(list(weighted.order(0)), minlength=3)
    assert counts[1] == 0
    assert abs(counts[2] / 8000 - 0.75) < 0.03
    assert weighted.order(3) == data.WeightedSampler([1, 0, 3], count=8000, seed=1).order(3)
    for bad in ([-1, 2], [0, 0], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="weights must be finite"):
            data.WeightedSampler(bad)
    for uneven, sizes in (("pad", [4, 4, 4]), ("drop", [3, 3, 3]), ("keep", [4, 3, 3])):
        parts = [data.ShardedSampler(data.RandomSampler(10, seed=0), 3, k, uneven) for k in range(3)]
        orders = [list(part.order(2)) for part in parts]
        assert [len(order) for order in orders] == sizes == [len(part) for part in parts]
        together = [k for order in orders for k in order]
        assert len(set(together)) == (9 if uneven == "drop" else 10)
    assert list(data.ShardedSampler(data.SequentialSampler(1), 4, 3).order(0)) == [0]
    with pytest.raises(ValueError, match="part_index 3 is not one of 3 parts"):
        data.ShardedSampler(data.SequentialSampler(3), 3, 3)
    lengths = np.random.default_rng(0).integers(1, 100, 103)
    buckets = data.BucketSampler(lengths, 8, boundaries=[20, 50], seed=3)
    batches = list(buckets.order(1))
    assert len(batches) == len(buckets)
    assert sorted(k for batch in batches for k in batch) == list(range(103))
    assert all(len(set(np.digitize(lengths[batch], [20, 50]))) == 1 for batch in batches)
    assert batches == list(buckets.order(1)) != list(buckets.order(2))
    short = data.BucketSampler(lengths, 8, seed=3, drop_last=True)
    assert {len(batch) for batch in short.order(0)} == {8}
    assert len(list(short.order(0))) == len(short)
    loader = data.DataLoader(
        list(lengths), data.InfiniteSampler(data.RandomSampler(103, seed=1)), batch_size=50
    )
    with pytest.raises(TypeError, match="has no length"):
        len(loader)
    batches = iter(loader)
    first = [next(batches).numpy().tolist() for _ in range(5)]
    state = loader.state_dict()
    rest = [next(batches).numpy().tolist() for _ in range(3)]
    loader.load_state_dict(state)
    again = iter(loader)
    assert [next(again).numpy().tolist() for _ in range(3)] == rest
    assert [*first[0], *first[1]] == [
        int(lengths[k]) for k in list(data.RandomSampler(103, seed=1).order(0))[:100]
    ]
    with data.DataLoader(list(range(103)), buckets, num_workers=2) as loader:
        assert [batch.numpy().tolist() for batch in loader] == list(buckets.order(0))


def test_padding():
    padded, lengths = data.Pad(lengths=True, multiple=4)([np.arange(3), np.arange(5)])
    assert (padded.shape, lengths.numpy().tolist()) == ((2, 8), [3, 5])
    pictures = [np.ones((2, 3, 1)), np.ones((4, 2, 1))]
    assert data.Pad(axes=[0, 1])(pictures).shape == (2, 4, 3, 1)
    batch = data.Pad(value=-1)([{"x": np.arange(2), "y": 1}, {"x": np.arange(1), "y": 2}])
    assert batch["x"].numpy().tolist() == [[0, 1], [0, -1]]
    with pytest.raises(ValueError, match="a sample has size 5 along axis 0, length is 4"):
        data.Pad(length=4)([np.arange(5)])
    with pytest.raises(ValueError, match=r"sizes \[1, 2\] along axis 1"):
        data.Pad(axes=[0])([np.ones((1, 1)), np.ones((1, 2))])
    for mode in ("thread", "process"):
        sequences = [np.arange(k) for k in range(1, 9)]
        with data.DataLoader(
            sequences, batch_size=3, collator=data.Pad(), num_workers=2, mode=mode
        ) as loader:
            assert [batch.shape for batch in loader] == [(3, 3), (3, 6), (2, 8)]


def test_shards_that_are_damaged_or_cut_off(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for k in range(4):
            add(tar, f"{k}.cls", b"%d" % k)
    content = bytearray(path.read_bytes())
    assert len(list(data.TarStream(path))) == 4
    content[1024 + 148] ^= 1  # the checksum of the second header
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.tar is damaged: the header at byte"):
        list(data.TarStream(path))
    path.write_bytes(content[:1024])
    with pytest.raises(ValueError, match=r"a\.tar is damaged: it ends at byte 1024 without an end mark"):
        list(data.TarStream(path))
    with pytest.raises(ValueError, match="part 1 of 2 has no shard: there are 1"):
        data.TarStream(path, num_parts=2, part_index=1)


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("1,2\n3,4\n", {"labels": 5}, "no column 5 for labels: it has 2"),
        ("1,2\n3,nan\n", {"labels": 1}, r":2: column 1: nan is not of type int64"),
        ("1,2\n\n3,1.7\n", {"labels": 1}, r":3: column 1: 1.7 is not of type int64"),
        ("1,2\n#3,4\n", {}, r":2: column 0: could not convert string to float: '#3'"),
        ("1,2\n3,4,5\n", {}, r":2: 3 columns, the lines before have 2"),
        ("1,2\n3,300\n", {"labels": 1, "label_dtype": np.uint8}, r":2: column 1: 300 is not of type uint8"),
        ("\n", {}, "it has no rows"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, content, options, words):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises((ValueError, IndexError), match=rf"a\.csv.*{words}"):
        data.CSVDataset(tmp_path / "a.csv", **options)


def test_integers_of_tables_are_exact(tmp_path):
    (tmp_path / "a.csv").write_text(f"{2**53 + 1},{2**62 + 1},1.0\n")
    _, y = data.CSVDataset(tmp_path / "a.csv", labels=[1, 2])[0]
    assert y.tolist() == [2**62 + 1, 1]
    (tmp_path / "b.csv").write_text(f"{2**53 + 1}\n")
    assert data.CSVDataset(tmp_path / "b.csv", dtype=np.int64)[0].tolist() == [2**53 + 1]


def test_a_cache_of_other_content_and_one_that_is_damaged(tmp_path):
    path = tmp_path / "cache"
    first = data.MapDataset(range(9), lambda k: np.full(50, k))
    data.CacheDataset(first, path)
    with pytest.raises(ValueError, match="sample 0 is not that of the dataset"):
        data.CacheDataset(data.MapDataset(range(9), lambda k: np.full(50, k + 1)), path)
    noisy = data.MapDataset(range(9), lambda k: data.rng().random(3))
    data.CacheDataset(noisy, tmp_path / "noisy")
    data.CacheDataset(noisy, tmp_path / "noisy")  # what data.rng() draws is the same again
    content = bytearray(path.read_bytes())
    place = content.index(np.full(50, 5).tobytes())
    content[place + 9] ^= 64
    path.write_bytes(content)
    cached = data.CacheDataset(first, path)
    assert cached[4][0] == 4
    with pytest.raises(ValueError, match="sample 5 is damaged"):
        cached[5]


def test_pictures_of_16_bits_and_of_too_many_pixels(monkeypatch):
    pillow = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    values = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    pillow.fromarray(values).save(out, "PNG")
    for mode in ("L", "RGB"):
        assert (images.decode(out.getvalue(), mode)[:, :, 0] == values >> 8).all()
    out = io.BytesIO()
    pillow.fromarray(np.zeros((2, 2), np.float32)).save(out, "TIFF")
    with pytest.raises(ValueError, match="its pixels have 32 bits"):
        images.decode(out.getvalue())
    monkeypatch.setenv("WEFT_MAX_PICTURE_PIXELS", "99")
    for extension in (".jpg", ".png"):
        content = images.encode(np.zeros((10, 10, 3), np.uint8), extension)
        for decode in (images.decode, images.decode_in_scratch):
            with pytest.raises(ValueError, match="picture of 10 x 10 has more than 99 pixels"):
                decode(content)


def test_a_picture_that_says_it_is_huge_is_refused_before_it_is_decoded(monkeypatch):
    jpeg = pytest.importorskip("simplejpeg")
    content = bytearray(images.encode(np.zeros((8, 8, 3), np.uint8), ".jpg"))
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", 20000, 20000)
    monkeypatch.setattr(jpeg, "decode_jpeg", lambda *_, **__: pytest.fail("decoded"))
    for decode in (images.decode, images.decode_in_scratch):
        with pytest.raises(ValueError, match="20000 x 20000 has more than 89478485 pixels"):
            decode(bytes(content))
