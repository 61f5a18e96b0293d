"""Event files, CSV, Monitor and anomaly mode."""

import csv
import struct
import zlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym
from weft.tools import CSVLogger, EventWriter, Monitor, detect_anomaly
from weft.tools.event_file import checksum

# A reader of its own, from the format's description.


def fields(content):
    """{number: [values]} of a message: ints, or bytes."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(content):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value = struct.unpack("<d" if kind == 1 else "<f", content[at : at + size])[0]
            at += size
        else:
            size = varint()
            value = content[at : at + size]
            assert len(value) == size
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def events(path):
    raw, at, found = path.read_bytes(), 0, []
    while at < len(raw):
        [size] = struct.unpack_from("<Q", raw, at)
        assert struct.unpack_from("<I", raw, at + 8)[0] == checksum(raw[at : at + 8])
        content = raw[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", raw, at + 12 + size)[0] == checksum(content)
        found.append(fields(content))
        at += 16 + size
    return found


def values(path):
    """(tag, step, fields) of each value."""
    for event in events(path):
        for summary in event.get(5, []):
            for value in fields(summary)[1]:
                inner = fields(value)
                yield inner[1][0].decode(), event.get(2, [0])[0], inner


def test_checksums_are_those_of_the_standard():
    crc = (checksum(b"\0" * 32) - 0xA282EAD8) & 0xFFFFFFFF
    assert (crc << 15 | crc >> 17) & 0xFFFFFFFF == 0x8A9136AA  # RFC 3720, B.4


def test_scalars_histograms_and_texts(tmp_path):
    with EventWriter(tmp_path / "run") as writer:
        writer.add_scalar("loss", wf.tensor(0.5), 3)
        writer.add_scalars({"a": 1, "b": 2.5}, 4, prefix="x/")
        writer.add_histogram("w", wf.arange(100), 5, bins=10)
        writer.add_histogram("none", [np.nan], 5)
        writer.add_text("note", "**Grüße**", 6)
        path = writer.path
    first = events(path)[0]
    assert first[3] == [b"brain.Event:2"]
    found = {tag: (step, inner) for tag, step, inner in values(path)}
    assert (found["loss"][0], found["loss"][1][2]) == (3, [0.5])
    assert (found["x/a"][1][2], found["x/b"][1][2]) == ([1.0], [2.5])
    histogram = fields(found["w"][1][5][0])
    assert (histogram[1], histogram[2], histogram[3], histogram[4]) == ([0.0], [99.0], [100.0], [4950.0])
    counts = np.frombuffer(histogram[7][0], "<f8")
    assert counts.tolist() == [10.0] * 10
    assert np.frombuffer(histogram[6][0], "<f8")[-1] == 99
    assert fields(found["none"][1][5][0])[3] == [0.0]
    text = found["note/text_summary"][1]
    assert fields(text[8][0])[8] == ["**Grüße**".encode()]
    assert fields(fields(text[9][0])[1][0])[1] == [b"text"]
    with pytest.raises(ValueError, match="closed"):
        writer.add_scalar("loss", 1.0)


def test_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 7), dtype=np.uint8)
    with EventWriter(tmp_path) as writer:
        writer.add_image("u8", pixels, 1)
        writer.add_image("grey", wf.tensor([[0.0, 1.0], [0.5, 9.0]]), 2, layout="hw")
        with pytest.raises(ValueError, match="2 channels"):
            writer.add_image("bad", np.zeros((2, 4, 4)))
        with pytest.raises(ValueError, match="layout"):
            writer.add_image("bad", pixels, layout="x")
        with pytest.raises(ValueError, match="one element"):
            writer.add_scalar("bad", wf.ones(2))
        path = writer.path
    found = {tag: fields(inner[4][0]) for tag, _, inner in values(path)}
    assert (found["u8"][1], found["u8"][2], found["u8"][3]) == ([5], [7], [3])
    assert unpacked(found["u8"][4][0], 5, 7, 3).tolist() == pixels.transpose(1, 2, 0).tolist()
    assert unpacked(found["grey"][4][0], 2, 2, 1)[..., 0].tolist() == [[0, 255], [128, 255]]


def unpacked(png, height, width, channels):
    """The pixels of a PNG whose rows have no filter."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, content = 8, b""
    while at < len(png):
        [size] = struct.unpack_from(">I", png, at)
        kind, part = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size)[0] == zlib.crc32(kind + part)
        content += part if kind == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(content), np.uint8).reshape(height, 1 + width * channels)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, channels)


def test_graphs(tmp_path):
    net = M.Sequential(M.Linear(4, 3), M.ReLU())
    with EventWriter(tmp_path) as writer:
        writer.add_graph(net, wf.ones((2, 4)))
        path = writer.path
    [graph] = [event[4][0] for event in events(path) if 4 in event]
    nodes = [fields(node) for node in fields(graph)[1]]
    names = [node[1][0].decode() for node in nodes]
    assert len(set(names)) == len(names)
    assert "Sequential/Sequential/0/linear" in names
    known = set(names)
    for node in nodes:
        for read in node.get(3, []):
            assert read.decode().split(":")[0] in known


def test_csv(tmp_path):
    log = CSVLogger(tmp_path / "log.csv")
    log.log(0, loss=wf.tensor(0.5))
    log.log(1, loss=0.25, accuracy=1)
    log.log(2, accuracy=2)
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert rows == [
        {"step": "0", "loss": "0.5", "accuracy": ""},
        {"step": "1", "loss": "0.25", "accuracy": "1.0"},
        {"step": "2", "loss": "", "accuracy": "2.0"},
    ]


def test_monitor_of_modules():
    net = M.Sequential(M.Linear(4, 4), M.ReLU())
    seen = []
    monitor = Monitor(
        interval=2, statistic=lambda x: seen.append(x.shape) or x.sum(), pattern=r".*\.1"
    ).install(net)
    x = wf.ones((2, 4))
    for _ in range(4):
        with monitor:
            y = net(x)
        net(x)  # outside of a step: not looked at
    assert [(row.step, row.name) for row in monitor.rows] == [(0, "Sequential.1"), (2, "Sequential.1")]
    assert monitor.rows[0].value == pytest.approx(y.sum().item())
    assert seen == [(2, 4)] * 2
    monitor.remove()
    with monitor:
        net(x)
    assert len(monitor.rows) == 2
    with pytest.raises(ValueError, match="interval"):
        Monitor(interval=0)
    with pytest.raises(TypeError, match="got int"):
        Monitor().install(3)


def test_monitor_of_executors(capsys):
    y = F.relu(F.linear(sym.var("x"), out_features=2, name="fc"), name="act")
    executor = y.simple_bind(wf.cpu(0), x=(3, 4))
    for array in executor.arg_arrays:
        array[...] = 1.0
    monitor = Monitor(interval=2, sort=True).install(executor)
    for _ in range(3):
        monitor.tic()
        executor.forward()
        monitor.toc_print()
    assert [(row.step, row.name) for row in monitor.rows] == [
        (step, name) for step in (0, 2) for name in ("act_output", "fc_output")
    ] or [(row.step, row.name.split("_")[0]) for row in monitor.rows] == [
        (step, name) for step in (0, 2) for name in ("act", "fc")
    ]
    assert {row.value for row in monitor.rows} == {5.0}
    assert capsys.readouterr().out.count("step ") == 4


# Anomaly mode.


def fails(f, *args, infinite=False):
    with pytest.raises(wf.EngineError) as caught, detect_anomaly(infinite):
        f(*args)
    return str(caught.value)


def test_eager_nan_is_found_at_its_line():
    text = fails(lambda x: (wf.log(x) + 1).wait(), wf.tensor([[1.0, 2.0], [3.0, -1.0]]))
    assert "log: the result f32[2,2] holds 1 NaN and 0 infinite elements, the first at (1, 1)" in text
    assert "reads f32[2,2] with 0 NaN and 0 infinite" in text
    assert "test_logging.py" in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_all_floats_and_strides(dtype):
    x = wf.tensor([[4.0, -1.0], [9.0, 1.0], [1.0, 1.0]]).astype(dtype)
    assert "holds 1 NaN" in fails(lambda: wf.sqrt(x.T).wait())
    assert wf.sqrt(wf.abs(x)).numpy().shape == (3, 2)


def test_the_operation_in_a_program():
    w = wf.tensor([1.0, -4.0, 9.0])

    @wf.trace
    def f(x):
        y = x @ x
        z = wf.sqrt(w * y[0])
        return (F.softmax(z) @ y).sum()

    good = wf.ones((3, 3))
    w[...] = 1.0
    f(good), f(good).wait()
    before = f(good).item()
    w[...] = wf.tensor([1.0, -4.0, 9.0])
    text = fails(lambda: f(good).item())
    assert "sqrt" in text
    assert "in f" in text
    assert "test_logging.py" in text
    w[...] = 1.0
    with detect_anomaly():
        assert f(good).item() == before


def test_in_a_gradient():
    x = wf.tensor([0.0, 1.0])

    def step():
        return wf.grad(lambda x: wf.sum(wf.sqrt(x) * 0.0))(x).wait()

    step()
    assert "gradient" in fails(step)


def test_infinite_elements_on_request():
    x = wf.tensor([0.0, 1.0])
    with detect_anomaly():
        (1 / x).wait()
    assert "0 NaN and 1 infinite" in fails(lambda: (1 / x).wait(), infinite=True)


def test_nan_that_came_in_is_said_to_have():
    text = fails(lambda: (wf.tensor([np.nan, 1.0]) * 2).wait())
    assert "reads f32[2] with 1 NaN" in text


def test_nothing_stays():
    @detect_anomaly()
    def f():
        with detect_anomaly(True):
            pass
        return wf.exp(wf.zeros(2))

    f()
    assert np.isnan(wf.log(wf.tensor([-1.0])).numpy()).all()


def test_a_log_that_is_there_is_continued(tmp_path):
    path = tmp_path / "log.csv"
    log = CSVLogger(path)
    log.log(0, loss=0.5)
    log.log(1, loss=0.25)
    with open(path, "a") as file:
        file.write("2")  # killed while it wrote
    log = CSVLogger(path)
    log.log(2, loss=0.125, accuracy=1.0)
    assert path.read_text() == "step,loss,accuracy\n0,0.5,\n1,0.25,\n2,0.125,1.0\n"
    CSVLogger(path, append=False).log(0, loss=1.0)
    assert path.read_text() == "step,loss\n0,1.0\n"
    path.write_text("epoch;loss\n1;2\n")
    with pytest.raises(ValueError, match="is not a log to continue"):
        CSVLogger(path)
    assert path.read_text() == "epoch;loss\n1;2\n"
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv"]
