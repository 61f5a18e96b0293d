"""Iterators in MXNet's style."""

import threading

import numpy as np
import pytest

import weft as wf
import weft.data as data
from weft.data import images, recordio


def values(iterator):
    return [(batch.data[0].numpy().tolist(), batch.pad) for batch in iterator]


def test_ndarray_iter():
    x = np.arange(5.0)
    it = data.NDArrayIter(x, 10 * x, batch_size=2)
    assert values(it) == [([0, 1], 0), ([2, 3], 0), ([4, 0], 1)]
    assert values(it) == []
    it.reset()
    assert it.iter_next()
    assert it.getlabel()[0].numpy().tolist() == [0, 10]
    assert it.getdata()[0].shape == (2,)
    assert (it.getpad(), it.getindex().tolist()) == (0, [0, 1])
    assert values(data.NDArrayIter(x, batch_size=2, last_batch_handle="discard")) == [
        ([0, 1], 0),
        ([2, 3], 0),
    ]
    roll = data.NDArrayIter(x, batch_size=2, last_batch_handle="roll_over")
    epochs = []
    for _ in range(3):
        epochs.append([v for v, _ in values(roll)])
        roll.reset()
    assert epochs == [[[0, 1], [2, 3]], [[4, 0], [1, 2], [3, 4]], [[0, 1], [2, 3]]]
    roll.hard_reset()
    assert values(roll)[0] == ([0, 1], 0)


def test_names_and_shapes():
    it = data.NDArrayIter({"a": wf.zeros((4, 2)), "b": np.zeros((4, 3), "int32")}, np.zeros(4), 2)
    assert [(d.name, d.shape, np.dtype(d.dtype).name) for d in it.provide_data] == [
        ("a", (2, 2), "float32"),
        ("b", (2, 3), "int32"),
    ]
    assert it.provide_label[0].name == "softmax_label"
    two = data.NDArrayIter([np.zeros(4), np.zeros(4)], batch_size=2)
    assert [d.name for d in two.provide_data] == ["_0_data", "_1_data"]
    assert "data [(2, 2), (2, 3)]" in repr(it.next())
    assert data.DataDesc.get_batch_axis("TNC") == 1
    for make, words in (
        (lambda: data.NDArrayIter([np.zeros(3), np.zeros(4)], batch_size=1), r"have lengths \[3, 4\]"),
        (lambda: data.NDArrayIter(np.zeros(3), batch_size=4), "batch_size 4 for 3 samples"),
        (lambda: data.NDArrayIter(np.zeros(3), last_batch_handle="x"), "must be 'pad'"),
        (lambda: data.NDArrayIter(np.zeros(3)).getdata(), "there is no batch before"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_shuffle_follows_the_framework():
    wf.random.seed(1)
    it = data.NDArrayIter(np.arange(50), batch_size=50, shuffle=True)
    first = values(it)
    it.reset()
    second = values(it)
    wf.random.seed(1)
    again = data.NDArrayIter(np.arange(50), batch_size=50, shuffle=True)
    assert first == values(again) != second


def test_files(tmp_path):
    (tmp_path / "x.csv").write_text("1,2,3,4\n5,6,7,8\n9,10,11,12\n")
    (tmp_path / "y.csv").write_text("1\n2\n3\n")
    it = data.CSVIter(tmp_path / "x.csv", (2, 2), tmp_path / "y.csv", batch_size=2)
    batches = list(it)
    assert batches[1].data[0].numpy().tolist() == [[[9, 10], [11, 12]], [[1, 2], [3, 4]]]
    assert (batches[1].label[0].numpy().tolist(), batches[1].pad) == ([3, 1], 1)
    last = list(data.CSVIter(tmp_path / "x.csv", (4,), batch_size=2, round_batch=False))[-1]
    assert (last.data[0].numpy()[0].tolist(), last.pad) == ([9, 10, 11, 12], 1)  # delivered, as by MXNet
    with pytest.raises(ValueError, match=r"rows of 4 numbers do not have the shape \(3,\)"):
        data.CSVIter(tmp_path / "x.csv", (3,))
    (tmp_path / "x.svm").write_text("1 0:5\n2 1:6\n")
    for part in (2, 5, -1):
        with pytest.raises(ValueError, match=f"LibSVMIter: part_index {part} is not one of num_parts=2"):
            data.LibSVMIter(tmp_path / "x.svm", (3,), num_parts=2, part_index=part)
    (tmp_path / "empty.svm").write_text("")
    with pytest.raises(ValueError, match=r"empty\.svm: it has no rows"):
        data.LibSVMIter(tmp_path / "empty.svm", (3,))
    batch = data.LibSVMIter(tmp_path / "x.svm", (3,), batch_size=2).next()
    assert batch.data[0].numpy().tolist() == [[5, 0, 0], [0, 6, 0]]
    assert batch.label[0].numpy().tolist() == [1, 2]
    from test_files import write_idx

    write_idx(tmp_path / "images", np.full((5, 28, 28), 128, np.uint8))
    write_idx(tmp_path / "labels", np.arange(5, dtype=np.uint8))
    it = data.MNISTIter(tmp_path / "images", tmp_path / "labels", batch_size=2, seed=1)
    batches = list(it)
    assert (len(batches), batches[0].data[0].shape, float(batches[0].data[0].max())) == (
        2,
        (2, 1, 28, 28),
        0.5,
    )
    flat = data.MNISTIter(tmp_path / "images", tmp_path / "labels", 5, shuffle=False, flat=True).next()
    assert flat.data[0].shape == (5, 784)
    assert flat.label[0].numpy().tolist() == [0, 1, 2, 3, 4]


def test_resize_iter():
    it = data.ResizeIter(data.NDArrayIter(np.arange(4.0), batch_size=2), 5)
    want = [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]
    for _ in range(2):
        assert [v for v, _ in values(it)] == want
        it.reset()


def test_prefetching_iter():
    def make():
        return data.NDArrayIter(np.arange(6.0), np.arange(6.0), batch_size=2)

    it = data.PrefetchingIter([make(), make()], [{"data": "one"}, {"data": "two"}])
    assert [d.name for d in it.provide_data] == ["one", "two"]
    for _ in range(3):
        batches = list(it)
        assert [[x.numpy().tolist() for x in batch.data] for batch in batches] == [
            [[k, k + 1], [k, k + 1]] for k in (0, 2, 4)
        ]
        assert list(it) == []
        it.reset()
    it.next()
    it.reset()  # in the middle
    assert len(list(it)) == 3
    it.close()
    uneven = data.PrefetchingIter([make(), data.NDArrayIter(np.arange(4.0), batch_size=2)])
    with pytest.raises(ValueError, match="different numbers of batches"):
        list(uneven)
    uneven.close()

    class Failing(data.DataIter):
        def next(self):
            raise OSError("disk")

    failing = data.PrefetchingIter(Failing(1))
    with pytest.raises(OSError, match="disk"):
        failing.next()
    failing.close()
    for thread in threading.enumerate():
        if thread.name.startswith("weft-data-prefetch"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def records(tmp_path):
    """20 pictures, each of one colour 10 * k, 40 x 48, label k; PNG, so that pixels stay exact."""
    pytest.importorskip("PIL")
    path = tmp_path / "a.rec"
    with recordio.IndexedRecordWriter(path) as writer:
        for k in range(20):
            image = np.full((40, 48, 3), 10 * k, np.uint8)
            image[:, :5] = 255  # mirrored pictures are known by it
            writer.write(recordio.pack_img(recordio.IRHeader(0, float(k), k, 0), image, img_fmt=".png"))
    return path


def test_image_record_iter(records):
    it = data.ImageRecordIter(records, (3, 32, 32), 8, mean_r=5.0, std_g=2.0, preprocess_threads=2)
    assert it.provide_data[0] == ("data", (8, 3, 32, 32), np.float32, "NCHW")
    for _ in range(2):
        batches = list(it)
        assert [batch.pad for batch in batches] == [0, 0, 4]
        labels = [int(x) for batch in batches for x in batch.label[0]]
        assert labels == [*range(20), 0, 1, 2, 3]
        x = batches[1].data[0].numpy()
        assert x.shape == (8, 3, 32, 32)
        np.testing.assert_allclose(x[2, :, 3, 9], [95, 50, 100])  # picture 10
        it.reset()
    it.close()
    assert [b.pad for b in data.ImageRecordIter(records, (3, 32, 32), 8, round_batch=False)] == [0, 0, 4]
    parts = [data.ImageRecordIter(records, (1, 8, 8), 1, num_parts=3, part_index=k) for k in range(3)]
    assert [int(batch.label[0]) for part in parts for batch in part] == list(range(20))
    pixels = data.ImageRecordIter(records, (3, 40, 48), 2, dtype="uint8", mirror=True).next().data[0].numpy()
    assert pixels.dtype == np.uint8
    assert (pixels[1, :, :, -5:] == 255).all()
    assert (pixels[1, :, :, :-5] == 10).all()


def test_augmentation_of_records_does_not_depend_on_threads_and_goes_on(records):
    options = {
        "shuffle": True,
        "rand_crop": True,
        "rand_mirror": True,
        "max_rotate_angle": 20,
        "max_shear_ratio": 0.1,
        "brightness": 0.2,
        "contrast": 0.2,
        "saturation": 0.2,
        "pca_noise": 0.1,
        "pad": 2,
        "resize": 36,
        "seed": 4,
    }

    def epochs(threads, count=2):
        it = data.ImageRecordIter(records, (3, 30, 30), 6, preprocess_threads=threads, **options)
        found = []
        for _ in range(count):
            found.append([batch.data[0].numpy().tobytes() for batch in it])
            it.reset()
        it.close()
        return found

    want = epochs(1)
    assert epochs(3) == want
    assert want[0] != want[1]
    it = data.ImageRecordIter(records, (3, 30, 30), 6, preprocess_threads=2, **options)
    it.next(), it.next()
    other = data.ImageRecordIter(records, (3, 30, 30), 6, preprocess_threads=2, **options)
    other.load_state_dict(it.state_dict())
    assert [batch.data[0].numpy().tobytes() for batch in other] == want[0][2:]
    for each in (it, other):
        each.close()


@pytest.mark.parametrize(
    "options",
    [{"random_resized_crop": True, "min_random_area": 0.3, "max_aspect_ratio": 0.25}, {"resize": 64}],
)
def test_pictures_are_made_to_fit(records, options):
    it = data.ImageRecordIter(records, (3, 50, 50), 4, **options)
    assert it.next().data[0].shape == (4, 3, 50, 50)
    it.close()


def test_detection(tmp_path):
    pytest.importorskip("PIL")
    path = tmp_path / "a.rec"
    with recordio.IndexedRecordWriter(path) as writer:
        for k in range(4):
            image = np.zeros((40, 80, 3), np.uint8)
            image[10:20, 60:80] = 255
            label = np.array([2, 5] + [k, 0.75, 0.25, 1.0, 0.5] * (1 + k % 2), np.float32)
            writer.write(recordio.pack_img(recordio.IRHeader(0, label, k, 0), image, img_fmt=".png"))
    for size in (1, 2):  # of one width, whichever records a batch has
        narrow = data.ImageDetRecordIter(path, (3, 20, 20), size)
        assert narrow.provide_label[0].shape == (size, 16)
        assert {tuple(batch.label[0].shape) for batch in narrow} == {(size, 16)}
        narrow.close()
    it = data.ImageDetRecordIter(path, (3, 20, 20), 4, rand_mirror=True, seed=3, preprocess_threads=1)
    batch = it.next()
    assert batch.data[0].shape == (4, 3, 20, 20)
    labels = batch.label[0].numpy()
    assert labels.shape == (4, 16)
    assert labels[0, :6].tolist() == [3, 20, 20, 7, 2, 5]
    assert labels[1, :6].tolist() == [3, 20, 20, 12, 2, 5]
    assert (labels[0, 11:] == -1).all()
    mirrored = 0
    for k in range(4):
        x0, y0, x1, y1 = (labels[k, 7:11] * 20).round().astype(int)
        mirrored += x0 == 0
        inside = batch.data[0].numpy()[k, 0, y0:y1, x0:x1]
        assert inside.mean() > 200
        assert labels[k, 6] == k
    assert 0 < mirrored < 4
    it.close()
    with recordio.IndexedRecordWriter(path) as writer:
        writer.write(recordio.pack_img(recordio.IRHeader(0, 1.0, 5, 0), np.zeros((4, 4, 3), np.uint8)))
    with pytest.raises(ValueError, match="record 5 has no label for detection"):
        data.ImageDetRecordIter(path, (3, 4, 4), 1).next()


def test_what_does_not_fit(records, tmp_path):
    for make, words in (
        (lambda: data.ImageRecordIter(records, (2, 8, 8), 1), "1 or 3 channels"),
        (lambda: data.ImageRecordIter(records, (8, 8), 1), "is .channels, height, width"),
        (lambda: data.ImageRecordIter(records, (3, 0, 8), 1), "is .channels, height, width"),
        (lambda: data.ImageRecordIter(records, (3, 8, 8), 0), "batch_size must be at least 1, got 0"),
        (lambda: data.ImageRecordIter(records, (3, 8, 8), 1, std_r=0), "std_r, std_g, std_b are not 0"),
        (lambda: data.ImageRecordIter(records, (3, 8, 8), 1, dtype="float64"), "dtype must be"),
        (lambda: data.ImageRecordIter(records, (3, 8, 8), 1, inter_method=7), "inter_method must be one of"),
        (
            lambda: data.ImageRecordIter(records, (3, 8, 8), 1, label_width=2).next(),
            "has 1 labels, label_width is 2",
        ),
        (
            lambda: data.ImageRecordIter(records, (3, 8, 8), 1, num_parts=900, part_index=899),
            "has no records in part",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(TypeError):
        data.ImageRecordIter(records, (3, 8, 8), 1, mean_img="mean.bin")
    bad = tmp_path / "b.rec"
    with recordio.RecordWriter(bad) as writer:
        writer.write(recordio.pack(recordio.IRHeader(0, 1.0, 0, 0), b"no picture"))
    with pytest.raises(ValueError, match="are not a picture") as caught:
        data.ImageRecordIter(bad, (3, 8, 8), 1).next()
    assert caught.value.sample_index == 0
    assert images.EXTENSIONS
