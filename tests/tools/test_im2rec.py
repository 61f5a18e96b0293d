"""The tool that makes RecordIO files of pictures."""

import subprocess
import sys

import numpy as np
import pytest

import weft.data as data
from weft.data import images, recordio
from weft.tools import im2rec

pytest.importorskip("PIL")


@pytest.fixture
def pictures(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for k in range(5):
            image = np.full((30, 40 + k, 3), 100 if name == "cat" else 200, np.uint8)
            (tmp_path / "in" / name / f"{k}.png").write_bytes(images.encode(image, ".png"))
    return tmp_path


def run(*arguments):
    return im2rec.main([str(each) for each in arguments])


def test_lists_and_records(pictures):
    prefix, root = pictures / "all", pictures / "in"
    assert run(prefix, root, "--list", "--recursive") == 0
    entries = im2rec.read_list(pictures / "all.lst")
    assert sorted(index for index, *_ in entries) == list(range(10))
    assert {(labels[0], path.split("/")[0]) for _, labels, path in entries} == {(0.0, "cat"), (1.0, "dog")}
    assert [index for index, *_ in entries] != list(range(10))
    assert run(prefix, root, "--resize", 20, "--num-thread", 3, "--quality", 90) == 0
    reader = recordio.IndexedRecordReader(pictures / "all.rec")
    assert list(reader.keys) == [index for index, *_ in entries]
    for index, labels, _ in entries:
        header, image = recordio.unpack_img(reader.read_idx(index))
        assert (header.id, header.label, image.shape[0]) == (index, labels[0], 20)
        assert abs(int(image[5, 5, 0]) - (200 if labels[0] else 100)) < 4
    dataset = data.RecordDataset(pictures / "all.rec", decode="image")
    assert [label for _, label in (dataset[k] for k in range(10))] == [labels[0] for _, labels, _ in entries]


def test_shards_labels_and_bytes_as_they_are(pictures):
    prefix, root = pictures / "some", pictures / "in"
    (pictures / "some.lst").write_text("".join(f"{k}\t{k}\t0.5\tcat/{k}.png\n" for k in range(5)))
    assert run(prefix, root, "--shards", 2, "--pass-through") == 0
    dataset = data.RecordDataset(str(pictures / "some-*.rec"))
    for k in range(5):
        header, content = recordio.unpack(dataset[k])
        assert header.label.tolist() == [k, 0.5]
        assert content == (root / "cat" / f"{k}.png").read_bytes()
    assert run(prefix, root, "--center-crop", "--encoding", ".png", "--color", 0) == 0
    header, image = recordio.unpack_img(recordio.RecordReader(pictures / "some.rec").read(), "L")
    assert image.shape == (30, 30, 1)


def test_parts_of_lists(pictures):
    prefix, root = pictures / "p", pictures / "in"
    assert (
        run(prefix, root, "--list", "--recursive", "--no-shuffle", "--train-ratio", 0.5, "--test-ratio", 0.2)
        == 0
    )
    sizes = {path.name: len(im2rec.read_list(path)) for path in pictures.glob("p*.lst")}
    assert sizes == {"p_test.lst": 2, "p_train.lst": 5, "p_val.lst": 3}
    assert run(prefix, root) == 0
    assert {path.name for path in pictures.glob("p*.rec")} == {"p_test.rec", "p_train.rec", "p_val.rec"}


def test_what_cannot_be_read(pictures, capsys):
    (pictures / "in" / "cat" / "2.png").write_bytes(b"broken")
    prefix, root = pictures / "all", pictures / "in"
    (pictures / "all.lst").write_text("".join(f"{k}\t0\tcat/{k}.png\n" for k in range(6)))
    assert run(prefix, root) == 1
    errors = capsys.readouterr().err
    assert "cat/2.png: decode: 6 bytes that are not a picture" in errors
    assert "cat/5.png: [Errno 2]" in errors
    assert "2 pictures were left out" in errors
    assert list(recordio.IndexedRecordReader(pictures / "all.rec").keys) == [0, 1, 3, 4]
    with pytest.raises(ValueError, match="are not a picture"):
        run(prefix, root, "--strict")
    (pictures / "all.lst").write_text("0\t0\ta.png\nx\n")
    with pytest.raises(ValueError, match=r"all\.lst:2: needs an index"):
        run(prefix, root)
    assert run(pictures / "none", pictures / "in", "--list") == 1


def test_as_a_program(pictures):
    command = [
        sys.executable,
        "-m",
        "weft.tools.im2rec",
        pictures / "x",
        pictures / "in",
        "--list",
        "--recursive",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
