"""wf.load tells formats by content and reads weights of other frameworks; files that are not what they say are errors.

Files are written by hand (writers.py), and by PyTorch, safetensors and gguf where these are installed.
"""

import io
import json
import pickle
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from tests.interop import writers
from tests.interop.writers import Call, Name

import weft as wf
from weft.base.errors import DTypeError
from weft.interop import mxnet, pickled, pytorch
from weft.interop.gguf_blocks import BLOCKS

W = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([True, False, True])
FILE_ERRORS = (wf.FileFormatError, DTypeError)


def load(tmp_path, content, **options):
    """What a file has; a new one each time, because tensors are over the mapping of theirs."""
    path = tmp_path / f"file{len(list(tmp_path.iterdir()))}"
    path.write_bytes(content)
    return wf.load(path, **options)


def npz(compress=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, **arrays)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def state():
    """Two tensors of one storage, a transposed one, and others, in containers."""
    shared, other = writers.storage("0", W), writers.storage("1", B)
    return {
        "w": writers.tensor(shared, (3, 4)),
        "transposed": writers.tensor(shared, (4, 3), (1, 4)),
        "part": writers.tensor(shared, (2,), (1,), offset=5),
        "list": [writers.tensor(other, (3,)), ("text", 2, 2.5, None)],
        "0d": writers.tensor(writers.storage("2", np.array(7)), ()),
        "empty": writers.tensor(writers.storage("3", np.zeros(0, np.float32)), (0, 5)),
    }


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("write", [writers.torch_archive, writers.torch_legacy], ids=["archive", "legacy"])
def test_a_file_of_torch_save_has_its_structure_and_shares_memory(tmp_path, write, mmap):
    loaded = load(tmp_path, write(state()), mmap=mmap)
    assert list(loaded) == ["w", "transposed", "part", "list", "0d", "empty"]
    assert np.array_equal(loaded["w"].numpy(), W)
    assert np.array_equal(loaded["transposed"].numpy(), W.T)
    assert loaded["part"].tolist() == [5.0, 6.0]
    assert loaded["list"][0].tolist() == [True, False, True]
    assert loaded["list"][1] == ("text", 2, 2.5, None)
    assert loaded["0d"].item() == 7
    assert loaded["0d"].shape == ()
    assert loaded["empty"].shape == (0, 5)
    loaded["w"][0, 1] = 100.0
    assert loaded["transposed"][1, 0].item() == 100.0


def test_parameters_ordered_dictionaries_and_python_2_are_read(tmp_path):
    shared = writers.storage("0", W)
    parameter = Call(
        Name("torch._utils", "_rebuild_parameter"), writers.tensor(shared, (3, 4)), True, OrderedDict()
    )
    ordered = Call(Name("collections", "OrderedDict"), [["a", parameter]], state={"_metadata": OrderedDict()})
    loaded = load(tmp_path, writers.torch_archive(ordered))
    assert list(loaded) == ["a"]
    assert loaded["a"].shape == (3, 4)


HOSTILE_PICKLES = {
    "a call of os.system": Call(Name("os", "system"), "true"),
    "a call of eval": Call(Name("builtins", "eval"), "1"),
    "a class of its own": Call(Name("argparse", "Namespace")),
    "a function itself": {"f": Name("torch._utils", "_rebuild_tensor_v2")},
    "a tensor without storage": Call(
        Name("torch._utils", "_rebuild_tensor_v2"), 1, 0, (2,), (1,), False, None
    ),
    "a tensor beyond its storage": writers.tensor(writers.storage("0", W), (13,)),
    "a tensor beyond by strides": writers.tensor(writers.storage("0", W), (2, 2), (100, 1)),
    "a negative size": writers.tensor(writers.storage("0", W), (-2,), (1,)),
    "a negative offset": writers.tensor(writers.storage("0", W), (2,), (1,), offset=-1),
    "a shape that is no tuple": Call(
        Name("torch._utils", "_rebuild_tensor_v2"), writers.storage("0", W), 0, 5, 1
    ),
    "too few arguments": Call(Name("torch._utils", "_rebuild_tensor_v2")),
}


@pytest.mark.parametrize("obj", HOSTILE_PICKLES.values(), ids=HOSTILE_PICKLES)
@pytest.mark.parametrize("write", [writers.torch_archive, writers.torch_legacy], ids=["archive", "legacy"])
def test_a_pickle_runs_nothing(tmp_path, obj, write):
    with pytest.raises(wf.FileFormatError, match=r"pickle, byte|storage|itself"):
        load(tmp_path, write(obj))


def test_pickles_cannot_take_memory_or_time_beyond_their_size(tmp_path):
    nested = b"\x80\x02" + b"]" * 300 + b"a" * 299 + b"."
    with pytest.raises(wf.FileFormatError, match="200 deep"):
        load(tmp_path, nested)
    itself = b"\x80\x02]q\0h\0a."
    with pytest.raises(wf.FileFormatError, match="in themselves"):
        load(tmp_path, itself)
    doubling = (
        b"\x80\x04]\x94"
        + b"]\x94("
        + b"h\x00h\x00e"
        + b"".join(b"]\x94(h" + bytes([k]) + b"h" + bytes([k]) + b"e" for k in range(1, 60))
        + b"."
    )
    assert len(load(tmp_path, doubling)) == 2  # 2^60 paths to the innermost list, visited once each
    long_name = b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x."
    with pytest.raises(wf.FileFormatError, match="bytes of"):
        load(tmp_path, long_name)
    copies = b"\x80\x02]q\0(" + b"K\0" * 1000 + b"e0" + b"cbuiltins\nset\nq\1" + b"h\1h\0\x85R0" * 1000 + b"."
    with pytest.raises(wf.FileFormatError, match="calls copy"):
        load(tmp_path, copies)
    far = b"\x80\x02Nr\xff\xff\xff\xff."
    assert load(tmp_path, far) is None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_in_pickles_are_tensors(tmp_path, protocol):
    arrays = {
        "w": W,
        "columns": np.asfortranarray(W),
        "b": B,
        "number": np.float32(2.5),
        "big": W.astype(">f8"),
    }
    loaded = load(tmp_path, pickle.dumps(arrays, protocol))
    for name in ("w", "columns", "b", "big"):
        assert np.array_equal(loaded[name].numpy(), arrays[name]), name
    assert loaded["number"] == 2.5
    with pytest.raises(FILE_ERRORS):
        load(tmp_path, pickle.dumps(np.array([print, None]), protocol))


def test_tensors_of_megengine_are_tensors(tmp_path):
    def mge(kind, x):
        array = Call(
            Name("numpy.core.multiarray", "_reconstruct"),
            Name("numpy", "ndarray"),
            (0,),
            b"b",
            state=(
                1,
                x.shape,
                Call(Name("numpy", "dtype"), "f4", False, True, state=(3, "<", None, None, None, -1, -1, 0)),
                False,
                x.tobytes(),
            ),
        )
        return Call(Name("megengine.tensor", kind), array, None, "xpux", state={})

    content = writers.pickled({"fc.weight": mge("Parameter", W), "x": mge("Tensor", W[0])}, 4)
    loaded = load(tmp_path, content)
    assert np.array_equal(loaded["fc.weight"].numpy(), W)
    assert np.array_equal(loaded["x"].numpy(), W[0])


def test_traced_networks_of_megengine_are_refused_with_what_to_do(tmp_path):
    module = Call(Name("megengine.traced_module.traced_module", "TracedModule"), state={"w": 1})
    for content, fact in (
        (b"MGBS\0\0\0\0" + bytes(64), "megengine.jit.trace dumped"),
        (b"\x20\0\0\0mgv2" + bytes(64), "megengine.jit.trace dumped"),
        (b"\x80\0\0\0\x20\0\0\0mgv2" + bytes(64), "megengine.jit.trace dumped"),
        (writers.pickled(module, 4), "traced_module.TracedModule.*a module of MegEngine"),
    ):
        with pytest.raises(wf.FileFormatError, match=rf"{fact}.*save net.state_dict\(\) with megengine.save"):
            load(tmp_path, content)


ARRAYS = {
    "float32": W,
    "transposed": W.T,
    "big endian": W.astype(">f4"),
    "bool": B,
    "0-d": np.array(5, np.int64),
    "empty": np.zeros((0, 3), np.float16),
    "complex": np.array([1 + 2j]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_of_numpy_are_read(tmp_path, array):
    for loaded in (
        load(tmp_path, npy(array)),
        load(tmp_path, npz(x=array))["x"],
        load(tmp_path, npz(True, x=array))["x"],
        load(tmp_path, npz(x=array), mmap=False)["x"],
    ):
        assert loaded.shape == array.shape
        assert np.array_equal(loaded.numpy(), array)


def test_writing_to_a_loaded_array_leaves_the_file(tmp_path):
    x = load(tmp_path, npy(W))
    x[...] = 0.0
    wf.waitall()
    assert (tmp_path / "file0").read_bytes() == npy(W)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (npy(np.array(["a"])), DTypeError, "dtype '<U1'"),
        (npy(np.zeros(2, "f4,i4")), DTypeError, "dtype"),
        (npy(W)[:-1], wf.FileFormatError, "48 bytes of elements"),
        (npy(W).replace(b"(3, 4)", b"(3,-4)"), wf.FileFormatError, "integers from 0"),
        (npy(W).replace(b"(3, 4), }", b"(10**9,)}"), wf.FileFormatError, "not a dictionary"),
        (npz(x=W).replace(b"(3, 4)", b"(4, 4)"), wf.FileFormatError, "64 bytes of elements"),
        (npz(True, x=W)[:-30], wf.FileFormatError, "not a ZIP"),
        (b"PK\3\4" + bytes(100), wf.FileFormatError, "not a ZIP"),
        (b"", wf.FileFormatError, "0 bytes"),
        (b'{"a": 1}', wf.FileFormatError, "weight_map"),
        (b"GGUF\3\0\0\0" + b"\xff" * 16, wf.FileFormatError, "tensors and"),
        (b"GGUF\0\0\0\3", wf.FileFormatError, "big endian"),
        (struct.pack("<QQQ", 0x112, 0, 2**40), wf.FileFormatError, "arrays, in 24 bytes"),
        (pickle.dumps(W, 4) + b"x", wf.FileFormatError, "behind the pickle"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, content, error, message):
    with pytest.raises(error, match=message) as caught:
        load(tmp_path, content)
    assert str(caught.value).startswith("load: ")


def test_compressed_members_cannot_claim_more_than_they_hold(tmp_path):
    content = npz(True, x=np.zeros(1000, np.float32))
    size = struct.pack("<I", 4128)
    assert content.count(size) == 2
    with pytest.raises(wf.FileFormatError, match="cannot be in"):
        load(tmp_path, content.replace(size, struct.pack("<I", 2**31)))


def test_members_are_checked(tmp_path):
    content = writers.torch_archive(
        {"w": writers.tensor(writers.storage("0", W), (3, 4))}, compression=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(wf.FileFormatError, match="compressed"):
        load(tmp_path, content)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "a/data.pkl", writers.pickled({"w": writers.tensor(writers.storage("0", W), (3, 4))})
        )
    with pytest.raises(wf.FileFormatError, match="no member 'a/data/0'"):
        load(tmp_path, file.getvalue())
    with pytest.raises(wf.FileFormatError, match="TorchScript"):
        load(tmp_path, writers.torch_archive({}, more=[("archive/code/x.py", "")]))


# ---- Shards ----------------------------------------------------------------------------------------------------------


def test_an_index_of_shards_is_read(tmp_path):
    wf.save(tmp_path / "a.safetensors", {"w": wf.tensor(W)})
    (tmp_path / "b.bin").write_bytes(
        writers.torch_archive({"b": writers.tensor(writers.storage("0", B), (3,))})
    )
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"b": "b.bin", "w": "a.safetensors"}}))
    loaded = wf.load(index)
    assert list(loaded) == ["b", "w"]
    assert np.array_equal(loaded["w"].numpy(), W)


@pytest.mark.parametrize("shard", ["../a.safetensors", "/etc/passwd", "", "..", 3, "index.json"])
def test_shards_are_files_beside_the_index(tmp_path, shard):
    wf.save(tmp_path / "a.safetensors", {"w": wf.tensor(W)})
    folder = tmp_path / "folder"
    folder.mkdir()
    index = folder / "index.json"
    index.write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(wf.FileFormatError, match=r"not a file beside|another index"):
        wf.load(index)


# ---- Floats of 8 bits ------------------------------------------------------------------------------------------------


def test_floats_of_8_bits_are_read_exactly(tmp_path):
    text = json.dumps(
        {
            "a": {"dtype": "F8_E4M3", "shape": [256], "data_offsets": [0, 256]},
            "b": {"dtype": "F8_E5M2", "shape": [256], "data_offsets": [256, 512]},
        }
    ).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(range(256)) * 2
    loaded = load(tmp_path, content)
    codes = wf.arange(256).astype("uint8")
    for name, format in (("a", "e4m3"), ("b", "e5m2")):
        assert loaded[name].dtype is wf.float16
        expected = wf.functional.from_float8(codes, format).numpy()
        assert np.array_equal(loaded[name].numpy().astype(np.float32), expected, equal_nan=True)


# ---- GGUF ------------------------------------------------------------------------------------------------------------


def blocks(kind, count, seed=0):
    """Random blocks; scales are finite and not large."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (count, BLOCKS[kind].size_bytes), dtype=np.uint8)
    scales = {
        2: [0],
        3: [0, 2],
        6: [0],
        7: [0, 2],
        8: [0],
        10: [80, 82],
        11: [108],
        12: [0, 2],
        13: [0, 2],
        14: [208],
    }
    for at in scales[kind]:
        data[:, at : at + 2] = rng.normal(0, 0.1, (count, 1)).astype(np.float16).view(np.uint8)
    return data


def test_plain_tensors_and_metadata_of_gguf_are_read(tmp_path):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    metadata = [
        ("general.name", 8, text("net")),
        ("layers", 4, struct.pack("<I", 3)),
        ("scale", 6, struct.pack("<f", 0.5)),
        ("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        ("numbers", 9, struct.pack("<IQ", 5, 2) + struct.pack("<2i", -1, 2)),
    ]
    tensors = {"w": ((3, 4), 0, W.tobytes()), "h": ((4,), 1, W[0].astype(np.float16).tobytes())}
    path = tmp_path / "net.gguf"
    path.write_bytes(writers.gguf(tensors, metadata))
    loaded = wf.load(path)
    assert np.array_equal(loaded["w"].numpy(), W)
    assert loaded["h"].dtype is wf.float16
    assert wf.interop.gguf.load_metadata(path) == {
        "general.name": "net",
        "layers": 3,
        "scale": 0.5,
        "tokens": ["a", "b"],
        "numbers": [-1, 2],
    }


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: BLOCKS[kind].name)
def test_blocks_of_gguf_are_dequantized(tmp_path, kind):
    block = BLOCKS[kind]
    data = blocks(kind, 6)
    (x,) = load(tmp_path, writers.gguf({"x": ((3, 2 * block.elements), kind, data.tobytes())})).values()
    assert x.shape == (3, 2 * block.elements)
    gguf = pytest.importorskip("gguf")
    expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(kind))
    assert np.array_equal(x.numpy().ravel(), expected.ravel())


def test_a_block_of_each_simple_kind_by_hand(tmp_path):
    half = np.array([0.5, -1.0], np.float16)
    nibbles = np.arange(16, dtype=np.uint8) | (np.arange(16, dtype=np.uint8)[::-1] << 4)
    low, high = np.arange(16), np.arange(16)[::-1]
    both = np.concatenate([low, high])
    bits = np.array([0xFFFF0000], np.uint32)  # of the upper 16 elements
    fifth = np.repeat([0, 16], 16)
    cases = {
        2: (half[:1].tobytes() + nibbles.tobytes(), 0.5 * (both - 8)),
        3: (half.tobytes() + nibbles.tobytes(), 0.5 * both - 1.0),
        6: (half[:1].tobytes() + bits.tobytes() + nibbles.tobytes(), 0.5 * (both + fifth - 16)),
        7: (half.tobytes() + bits.tobytes() + nibbles.tobytes(), 0.5 * (both + fifth) - 1.0),
        8: (half[:1].tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes(), 0.5 * np.arange(-16, 16)),
    }
    for kind, (content, expected) in cases.items():
        x = load(tmp_path, writers.gguf({"x": ((32,), kind, content)}))["x"]
        assert np.array_equal(x.numpy(), expected), BLOCKS[kind].name


def test_types_of_gguf_that_are_not_read_are_named(tmp_path):
    with pytest.raises(DTypeError, match="IQ4_NL"):
        load(tmp_path, writers.gguf({"x": ((32,), 20, bytes(18))}))
    with pytest.raises(wf.FileFormatError, match="whole blocks"):
        load(tmp_path, writers.gguf({"x": ((31,), 2, bytes(18))}))
    with pytest.raises(wf.FileFormatError, match="tensor 'x' takes bytes"):
        load(tmp_path, writers.gguf({"x": ((2**40, 32), 2, bytes(18))}))


# ---- MXNet -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_arrays_of_mxnet_are_read_in_all_versions(tmp_path, version):
    arrays = {"arg:w": W, "aux:n": np.array([3], np.int64), "h": W[:1].astype(np.float16)}
    loaded = load(tmp_path, writers.mxnet_params(arrays, version))
    assert list(loaded) == list(arrays)
    assert all(np.array_equal(loaded[name].numpy(), x) for name, x in arrays.items())


def test_sparse_arrays_of_mxnet_are_dense_ones(tmp_path):
    rows = np.array([[1, 2], [3, 4]], np.float32)
    (x,) = load(tmp_path, writers.mxnet_sparse(1, rows, (4, 2), np.array([1, 3])))
    assert x.tolist() == [[0, 0], [1, 2], [0, 0], [3, 4]]
    values = np.array([1, 2, 3], np.float32)
    (x,) = load(tmp_path, writers.mxnet_sparse(2, values, (2, 3), np.array([0, 1, 3]), np.array([2, 0, 1])))
    assert x.tolist() == [[0, 0, 1], [2, 3, 0]]
    for content in (
        writers.mxnet_sparse(1, rows, (4, 2), np.array([1, 4])),
        writers.mxnet_sparse(1, rows, (4, 2), np.array([-1, 0])),
        writers.mxnet_sparse(2, values, (2, 3), np.array([0, 1, 3]), np.array([2, 0, 3])),
        writers.mxnet_sparse(2, values, (2, 3), np.array([0, 4, 3]), np.array([2, 0, 1])),
        writers.mxnet_sparse(2, values, (2**20, 2**20), np.array([0, 1, 3]), np.array([2, 0, 1])),
    ):
        with pytest.raises(wf.FileFormatError, match="array 0"):
            load(tmp_path, content)


def test_faults_that_random_changes_found(tmp_path):
    floats = writers.mxnet_sparse(1, np.ones((1, 2), np.float32), (4, 2), np.array([1]))
    int64, float64 = struct.pack("<ii", 6, 1), struct.pack("<ii", 1, 1)
    assert floats.count(int64) == 1
    with pytest.raises(wf.FileFormatError, match="indices of float64"):
        load(tmp_path, floats.replace(int64, float64))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x", b"")
    nameless = bytearray(file.getvalue())
    at = nameless.index(b"PK\1\2")
    nameless[at + 28] = 0  # the length of the name in the directory
    del nameless[at + 46]
    nameless[-10:-6] = struct.pack("<I", 46)
    with pytest.raises(wf.FileFormatError, match="archive"):
        load(tmp_path, bytes(nameless))
    with pytest.raises(wf.FileFormatError, match="load: holds a PickledStorage outside of a tensor"):
        pickled.replaced({"s": [pytorch.PickledStorage("0", "float32", 1)]}, lambda part: part, "load")


def test_arrays_are_written_as_mxnet_does(tmp_path):
    arrays = {"arg:w": wf.tensor(W), "aux:n": wf.tensor([3]), "transposed": wf.tensor(W).T}
    mxnet.save_params(tmp_path / "a.params", arrays)
    loaded = wf.load(tmp_path / "a.params")
    assert all(np.array_equal(loaded[name].numpy(), x.numpy()) for name, x in arrays.items())
    example = bytes.fromhex(
        "1201000000000000 0000000000000000 0100000000000000"
        "c9fa93f9 00000000 02000000 0200000000000000 0200000000000000"
        "01000000 00000000 00000000 0000803f 0000803f 0000803f 0000803f 0100000000000000 0100000000000000 77"
    )
    mxnet.save_params(tmp_path / "b.params", {"w": wf.ones((2, 2))})
    assert (tmp_path / "b.params").read_bytes() == example
    with pytest.raises(ValueError, match="shape"):
        mxnet.save_params(tmp_path / "c.params", {"w": wf.tensor(1.0)})
    with pytest.raises(DTypeError, match="bfloat16"):
        mxnet.save_params(tmp_path / "c.params", {"w": wf.ones(2, dtype="bfloat16")})


# ---- Files of the frameworks themselves ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_archive", [True, False])
def test_what_torch_saves_is_loaded(tmp_path, is_archive):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Conv2d(2, 4, 3))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(5, 3)) if False else net[0](torch.zeros(5, 3)).sum().backward()
    optimizer.step()
    saved = {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "lr": 0.1,
        "half": torch.ones(3).half(),
        "bfloat16": torch.ones(3).bfloat16(),
        "complex": torch.ones(2) * 1j,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "strided": torch.arange(12.0).reshape(3, 4)[:, ::2],
        "expanded": torch.ones(1).expand(4),
        "uint16": torch.ones(2, dtype=torch.uint16),
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "dtype": torch.float32,
    }
    if is_archive:
        saved["float8"] = torch.arange(-3, 3).to(torch.float8_e4m3fn)
    path = tmp_path / "checkpoint.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=is_archive)
    loaded = wf.load(path)
    assert loaded.keys() == saved.keys()
    for name, x in saved["model"].items():
        assert np.array_equal(loaded["model"][name].numpy(), x.numpy()), name
    assert loaded["optimizer"]["param_groups"][0]["lr"] == 1e-3
    assert np.array_equal(
        loaded["optimizer"]["state"][0]["exp_avg"].numpy(), saved["optimizer"]["state"][0]["exp_avg"].numpy()
    )
    assert loaded["bfloat16"].dtype is wf.bfloat16
    assert loaded["complex"].tolist() == [1j, 1j]
    assert np.array_equal(loaded["strided"].numpy(), saved["strided"].numpy())
    assert loaded["expanded"].tolist() == [1.0] * 4
    assert (loaded["epoch"], loaded["lr"], loaded["size"]) == (3, 0.1, (1, 2))
    if is_archive:
        assert loaded["float8"].tolist() == [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0]


def test_a_whole_module_of_torch_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "net.pt")
    with pytest.raises(wf.FileFormatError, match=r"refers to 'torch\.nn\.modules\.linear\.Linear'"):
        wf.load(tmp_path / "net.pt")
