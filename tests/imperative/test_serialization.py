"""save and load: what goes in comes out, files are those of safetensors, and a path holds old or new, never between."""

import errno
import gc
import os
import stat
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.arrays import serialization
from weft.arrays.creation import zeros
from weft.arrays.serialization import load_metadata, save
from weft.arrays.serialization import load_safetensors as load
from weft.base.device import cpu
from weft.base.errors import DTypeError, EngineError
from weft.engine import default_engine

BYTES = {dtype: size for dtype, (_, size) in serialization._CODE_AND_BYTES.items()}


def tensor(dtype, shape, data):
    return _core.tensor_from_buffer(bytearray(data), 0, shape, dtype, cpu(0))


def some(dtype, *shape, start=0):
    """A tensor of this shape whose bytes count upwards (0 and 1 for bool)."""
    size = BYTES[dtype]
    for each in shape:
        size *= each
    return tensor(dtype, shape, bytes((start + i) % (2 if dtype == "bool" else 251) for i in range(size)))


def plain(tensors):
    return {name: (t.dtype.name, tuple(t.shape), bytes(t.memory())) for name, t in tensors.items()}


def every_dtype():
    return {f"t.{dtype}": some(dtype, 3, 5) for dtype in BYTES}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def kind_of_temporary(request, monkeypatch):
    """Run with files that have no name until they are whole, and with the way where these are not to be had."""
    if not request.param:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)
    return request.param


def only_file_is(path):
    return [each.name for each in path.parent.iterdir()] == [path.name]


# ---- What goes in comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [True, False])
def test_every_dtype_comes_back(path, mmap):
    tensors = every_dtype()
    save(path, tensors)
    assert plain(load(path, mmap=mmap)) == plain(tensors)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1), (7,), (1025, 3)])
def test_every_shape_comes_back(path, shape, mmap):
    tensors = {"x": some("float32", *shape), "y": some("int8", *shape)}
    save(path, tensors)
    assert plain(load(path, mmap=mmap)) == plain(tensors)


@pytest.mark.parametrize("mmap", [True, False])
def test_no_tensors_come_back_as_none(path, mmap):
    save(path, {})
    assert load(path, mmap=mmap) == {}
    assert load_metadata(path) == {}


def test_names_of_any_text_come_back(path):
    tensors = {
        name: some("int8", 2) for name in ["", "a b", "schön", "名前", "😀", 'q"\\/', "\n\0", "x" * 5000]
    }
    save(path, tensors)
    assert plain(load(path)) == plain(tensors)


def test_metadata_comes_back(path):
    metadata = {"format": "pt", "": "", "schön": "😀\n"}
    save(path, {"x": some("int8", 1)}, metadata)
    assert load_metadata(path) == metadata
    assert list(load(path)) == ["x"]


def test_wide_elements_come_first_then_names_in_order(path):
    save(path, {"b": some("int8", 3), "z": some("float64", 1), "a": some("int8", 1), "m": some("float16", 1)})
    assert list(load(path)) == ["z", "m", "a", "b"]


def test_data_begins_at_a_multiple_of_64_and_every_tensor_at_one_of_its_element_size(path):
    for count in range(8):
        save(path, dict(list(every_dtype().items())[count:]), {"k": "v" * count})
        (length,) = struct.unpack("<Q", path.read_bytes()[:8])
        assert (8 + length) % 64 == 0
        with open(path, "rb") as file:
            text, _, data_bytes = serialization.read_header(file.fileno(), "")
        header, _ = serialization.parse_header(text, "")
        for entry in serialization.parse_entries(header, data_bytes, ""):
            assert entry.begin % entry.item_bytes == 0


def test_the_same_tensors_make_the_same_file(path, tmp_path):
    save(path, every_dtype())
    save(tmp_path / "again", dict(reversed(every_dtype().items())))
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


@pytest.mark.parametrize("mmap", [True, False])
def test_tensors_that_other_writers_left_unaligned_come_back(path, mmap):
    header = (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    )
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(9)))
    assert plain(load(path, mmap=mmap)) == {
        "a": ("uint8", (1,), b"\0"),
        "b": ("float32", (2,), bytes(range(1, 9))),
    }


def test_tensors_come_in_the_order_of_their_data(path):
    header = (
        b'{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    )
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"ab")
    assert list(load(path)) == ["a", "b"]


def test_paths_may_be_text_or_path_objects(path):
    save(str(path), {"x": some("int8", 2)})
    assert plain(load(path)) == plain(load(str(path)))


# ---- Mapping ---------------------------------------------------------------------------------------------------------


@pytest.mark.processor("shares the host's memory")
def test_loading_reads_no_data_before_it_is_used(path):
    fixed = b'{"x":{"dtype":"F32","shape":[67108864],"data_offsets":[0,268435456]}}'
    header = fixed + b" " * (-(8 + len(fixed)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (256 << 20))
    before = resident_bytes()
    loaded = load(path)
    assert resident_bytes() - before < 32 << 20
    assert loaded["x"].shape == (67108864,)


def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_writing_to_a_private_mapping_leaves_the_file_alone(path):
    save(path, {"x": some("uint8", 5000)})
    before = path.read_bytes()
    with open(path, "rb") as file:
        mapped = serialization.map_privately(file.fileno(), len(before))
    mapped[:] = b"\xff" * len(before)
    assert path.read_bytes() == before
    assert mapped[100] == 255


@pytest.mark.parametrize("mmap", [True, False])
def test_loaded_tensors_keep_their_values_when_the_file_is_replaced_or_removed(path, mmap):
    save(path, {"x": some("uint8", 100_000)})
    expected = plain(load(path))
    loaded = load(path, mmap=mmap)
    save(path, {"x": some("uint8", 100_000, start=9)})
    assert plain(loaded) == expected
    path.unlink()
    assert plain(loaded) == expected


def test_a_mapped_file_can_be_saved_to_itself(path):
    tensors = every_dtype()
    save(path, tensors)
    save(path, load(path))
    assert plain(load(path)) == plain(tensors)


@pytest.mark.processor("shares the host's memory")
def test_a_mapping_and_its_descriptor_go_with_the_last_tensor(path):
    save(path, {"x": some("uint8", 5000), "y": some("uint8", 10)})
    before = len(os.listdir("/proc/self/fd"))
    kept = load(path)["y"]
    assert str(path) in maps()
    del kept
    gc.collect()
    assert str(path) not in maps()
    assert len(os.listdir("/proc/self/fd")) == before


def maps():
    with open("/proc/self/maps") as file:
        return file.read()


# ---- The safetensors package -----------------------------------------------------------------------------------------


def test_safetensors_reads_what_save_writes(path):
    safetensors = pytest.importorskip("safetensors")
    tensors = {**every_dtype(), "scalar": some("float64"), "none": some("int16", 0, 4)}
    save(path, tensors, {"made": "by weft"})
    code = {dtype: code for dtype, (code, _) in serialization._CODE_AND_BYTES.items()}
    theirs = {
        name: (each["dtype"], tuple(each["shape"]), bytes(each["data"]))
        for name, each in safetensors.deserialize(path.read_bytes())
    }
    assert theirs == {name: (code[dtype], *rest) for name, (dtype, *rest) in plain(tensors).items()}
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"made": "by weft"}


def test_load_reads_what_safetensors_writes(path):
    numpy = pytest.importorskip("numpy")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = pytest.importorskip("safetensors.numpy")
    arrays = {}
    for dtype in BYTES:
        for shape in [(2, 3), (), (0, 2), (5,)]:
            made = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
            arrays[f"{dtype}{shape}"] = made.astype(getattr(ml_dtypes, dtype, dtype))
    theirs.save_file(arrays, path, {"made": "by safetensors"})
    expected = {name: (each.dtype.name, each.shape, each.tobytes()) for name, each in arrays.items()}
    assert plain(load(path)) == plain(load(path, mmap=False)) == expected
    assert load_metadata(path) == {"made": "by safetensors"}


def test_the_order_of_tensors_is_that_of_safetensors(path, tmp_path):
    numpy = pytest.importorskip("numpy")
    theirs = pytest.importorskip("safetensors.numpy")
    arrays = {
        f"{name}{dtype}": numpy.zeros(3, dtype)
        for name in "bca"
        for dtype in ["int8", "float64", "int16", "float32"]
    }
    theirs.save_file(arrays, tmp_path / "theirs")
    save(path, {name: tensor(each.dtype.name, each.shape, each.tobytes()) for name, each in arrays.items()})

    def begins(file_path):
        with open(file_path, "rb") as file:
            text, _, data_bytes = serialization.read_header(file.fileno(), "")
        entries = serialization.parse_entries(serialization.parse_header(text, "")[0], data_bytes, "")
        return {entry.name: entry.begin // 24 for entry in entries if entry.item_bytes == 8}

    assert begins(path) == begins(tmp_path / "theirs")


# ---- Wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (7, "takes tensors in a mapping, a list or a tuple, not int"),
        ([1, 2], r"tensors\['0'\] is of type int, not a tensor"),
        ({1: None}, "names are text, not 1"),
        ({"layer": {"w": None}}, r"tensors\['layer.w'\] is of type NoneType, not a tensor"),
        ({"x": [1.0]}, r"tensors\['x.0'\] is of type float, not a tensor"),
        ({"x": None}, "NoneType"),
    ],
)
def test_other_things_than_named_tensors_are_refused(path, tensors, message):
    with pytest.raises(TypeError, match=message):
        save(path, tensors)
    assert not path.exists()


@pytest.mark.parametrize("metadata", ["text", {"a": 1}, {1: "a"}, {"a": None}, [("a", "b")]])
def test_metadata_other_than_text_is_refused(path, metadata):
    with pytest.raises(TypeError, match="metadata"):
        save(path, {}, metadata)
    assert not path.exists()


def test_the_reserved_name_is_refused(path):
    with pytest.raises(ValueError, match="__metadata__"):
        save(path, {"__metadata__": some("int8", 1)})


@pytest.mark.parametrize("where", ["name", "metadata"])
def test_lone_surrogates_are_refused(path, where):
    with pytest.raises(ValueError, match=r"lone surrogate in .*ud800"):
        save(path, {"\ud800" if where == "name" else "x": some("int8", 1)}, {"k": "\ud800"})
    assert not path.exists()


def test_a_dtype_that_the_format_lacks_is_refused_with_the_name_of_the_tensor():
    with pytest.raises(DTypeError, match="save: tensor 'x' is complex128; files hold bool, int8"):
        serialization.lay_out([("x", "complex128", (1,))])


@pytest.mark.parametrize("mmap", [False, True])
def test_complex128_is_saved_as_pairs_of_floats(path, mmap):
    rng = np.random.default_rng(0)
    arrays = {
        name: (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("complex128")
        for name, shape in (("a", (3, 5)), ("b", ()), ("c", (0, 2)), ("d", (1,)))
    }
    real = {"e": wf.tensor([[1.0, 2.0]], dtype="float64"), "f": wf.tensor([1], dtype="int8")}
    save(path, {name: wf.tensor(x) for name, x in arrays.items()} | real, {"k": "v"})
    assert load_metadata(path) == {"k": "v"}
    again = load(path, mmap=mmap)
    for name, x in arrays.items():
        assert again[name].dtype.name == "complex128"
        np.testing.assert_array_equal(again[name].numpy(), x)
    assert [again[name].dtype.name for name in "ef"] == ["float64", "int8"]
    save(path, {"a": [wf.tensor(arrays["a"]).T]})
    np.testing.assert_array_equal(load(path, mmap=mmap)["a"][0].numpy(), arrays["a"].T)
    with pytest.raises(ValueError, match="is save's own"):
        save(path, {}, {serialization.PAIRS: "[]"})


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '["z"]', '["f"]', '["e"]', '["a","a"]'])
def test_names_of_complex_tensors_that_do_not_fit_are_refused(path, text):
    entries = [serialization.Entry("a", "float64", (2, 2), 0), serialization.Entry("e", "float64", (3,), 32)]
    if text == '["a","a"]':
        assert [e.dtype for e in serialization.paired(entries, text, "load")] == ["complex128", "float64"]
        return
    with pytest.raises(serialization.FileFormatError, match=r"weft\.complex128"):
        serialization.paired(entries, text, "load")


def test_a_header_that_no_reader_would_accept_is_not_written(path, monkeypatch):
    monkeypatch.setattr(serialization, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000"):
        save(path, {}, {"k": "v" * 1000})
    assert not path.exists()


# ---- Replacing a file ------------------------------------------------------------------------------------------------


def test_a_new_file_has_the_permissions_of_the_umask(path, kind_of_temporary):
    old = os.umask(0o027)
    try:
        serialization.replace_file(path, [b"new"])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_replaced_file_keeps_its_permissions(path, kind_of_temporary):
    path.write_bytes(b"old")
    path.chmod(0o604)
    serialization.replace_file(path, [b"new"])
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner_where_that_is_allowed(path):
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    serialization.replace_file(path, [b"new"])
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_the_replacement_of_a_private_file_is_never_open_to_others(path, kind_of_temporary, monkeypatch):
    modes = []
    fchmod = os.fchmod

    def recorded_fchmod(fd, mode):
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        fchmod(fd, mode)

    path.write_bytes(b"old")
    path.chmod(0o640)
    monkeypatch.setattr(os, "fchmod", recorded_fchmod)
    serialization.replace_file(path, [b"new"])
    assert modes == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path, kind_of_temporary):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    link.symlink_to("there/target")
    for content in (b"first", b"second"):  # the first time nothing is there
        serialization.replace_file(link, [content])
        assert link.is_symlink()
        assert target.read_bytes() == content
        assert only_file_is(target)


def test_hard_links_keep_the_old_content(path, tmp_path):
    path.write_bytes(b"old")
    os.link(path, tmp_path / "other")
    serialization.replace_file(path, [b"new"])
    assert (path.read_bytes(), (tmp_path / "other").read_bytes()) == (b"new", b"old")


def test_a_folder_or_pipe_in_the_way_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(OSError, match=r"folder|regular"):
            serialization.replace_file(tmp_path / name, [b"new"])
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        serialization.replace_file(tmp_path / "missing" / "x", [b"new"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_write_protected_file_is_refused(path):
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="write-protected"):
        serialization.replace_file(path, [b"new"])
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError(errno.ENOSPC, "no space")])
def test_an_error_half_way_leaves_the_old_file_and_nothing_else(path, kind_of_temporary, error):
    def chunks():
        yield b"new" * 1000
        raise error

    path.write_bytes(b"old")
    with pytest.raises(error if isinstance(error, type) else type(error)):
        serialization.replace_file(path, chunks())
    assert path.read_bytes() == b"old"
    assert only_file_is(path)


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_an_error_of_a_system_call_leaves_the_old_file_and_nothing_else(
    path, kind_of_temporary, step, monkeypatch
):
    def fail(*_args, **_options):
        raise OSError(errno.EIO, "broken")

    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="broken") as caught:
        serialization.replace_file(path, [b"new"])
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert only_file_is(path)


def test_a_failed_tensor_leaves_the_old_file(path):
    path.write_bytes(b"old")
    x, engine = zeros(4), default_engine()
    engine.push(lambda run_context: 1 / 0, mutate_vars=[x], name="divide")
    with pytest.raises(EngineError, match="divide"):
        save(path, {"x": x})
    engine.clear_error(x)
    assert path.read_bytes() == b"old"
    assert only_file_is(path)


def test_data_is_on_disk_before_the_name_and_the_name_before_the_return(path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(fd):
        steps.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"{os.fstat(fd).st_size} bytes")
        fsync(fd)

    def recorded_replace(*args, **options):
        steps.append("replace")
        replace(*args, **options)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    serialization.replace_file(path, [b"new"])
    assert steps == ["3 bytes", "replace", "folder"]


def test_short_writes_and_short_reads_are_continued(path, monkeypatch):
    write, preadv = os.write, os.preadv
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:5]], at))
    tensors = every_dtype()
    save(path, tensors)
    assert plain(load(path, mmap=False)) == plain(tensors)


def test_writing_copies_nothing(path):
    data = memoryview(bytearray(32 << 20))
    tracemalloc.start()
    try:
        serialization.replace_file(path, [data])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size == 32 << 20
    assert peak < 1 << 20


# ---- Processes that end, and disks that are full ---------------------------------------------------------------------


def run(code, *arguments, timeout=30):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_limit_on_the_size_of_files_leaves_the_old_one(path):
    save(path, {"x": some("uint8", 10)})
    before = path.read_bytes()
    out = run(
        """
        import errno, resource, signal, sys
        from weft.arrays import serialization
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            serialization.replace_file(sys.argv[1], [bytes(60_000), bytes(60_000)])
        except OSError as error:
            print(errno.errorcode[error.errno])
        """,
        path,
    )
    assert out == "EFBIG\n"
    assert path.read_bytes() == before
    assert only_file_is(path)


def test_a_full_disk_leaves_the_old_file_and_can_be_saved_to_again(tmp_path, kind_of_temporary):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "weft-test", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    try:
        path = tmp_path / "model.safetensors"
        save(path, {"x": some("uint8", 1000)})
        before = path.read_bytes()
        with pytest.raises(OSError, match="No space left"):
            save(path, {"x": tensor("uint8", (2 << 20,), bytes(2 << 20))})
        assert path.read_bytes() == before
        assert only_file_is(path)
        save(path, {"x": tensor("uint8", (700_000,), bytes(700_000))})
        assert load(path)["x"].shape == (700_000,)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


KILLING = """
    import os, random, signal, sys, time
    from weft.arrays import serialization

    path, named = sys.argv[1], sys.argv[2] == "named"
    if named:
        os.O_TMPFILE = os.O_DIRECTORY

    def whole(value):  # 2 MB of one value, in pieces
        entries = serialization.lay_out([("x", "uint8", (2_000_000,))])
        return [serialization.build_header(entries, {}), *[bytes([value]) * 100_000] * 20]

    versions = [whole(value) for value in range(4)]
    contents = {b"".join(version) for version in versions}
    serialization.replace_file(path, versions[0])
    seen, kills, last, longest = set(), 0, None, 0.03
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        child = os.fork()
        if not child:
            while True:
                serialization.replace_file(path, random.choice(versions))
        time.sleep(random.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        with open(path, "rb") as file:
            now = file.read()
        assert now in contents, len(now)
        if now == last:  # a slow disk: give it longer
            longest = min(longest * 1.3, 0.5)
        seen.add(now)
        last = now
    assert kills > 1 and len(seen) > 1, (kills, len(seen))
    print(len(os.listdir(os.path.dirname(path))) - 1, kills)
"""


@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_after_a_kill_in_the_middle_of_a_save_the_file_is_whole(path, kind):
    leftovers, kills = map(int, run(KILLING, path, kind, 2.5).split())
    assert len(load(path)["x"].memory()) == 2_000_000
    if kind == "nameless":  # a kill can still fall between its name and its place
        assert leftovers <= 1 + kills // 5


def test_of_concurrent_savers_one_wins_whole_and_readers_see_only_whole_files(path):
    out = run(
        """
        import os, sys
        from weft.arrays import serialization

        path = sys.argv[1]
        contents = [bytes([value]) * 1_000_000 for value in range(4)]
        serialization.replace_file(path, contents[:1])
        children = []
        for content in contents:
            child = os.fork()
            if not child:
                for _ in range(15):
                    serialization.replace_file(path, [content])
                os._exit(0)
            children.append(child)
        reads = 0
        while children:
            with open(path, "rb") as file:
                assert file.read() in contents
            reads += 1
            done, status = os.waitpid(-1, os.WNOHANG)
            if done:
                assert status == 0
                children.remove(done)
        assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
        print(reads)
        """,
        path,
    )
    assert int(out) > 1


# Lists and dictionaries in each other.


def same(a, b):
    if isinstance(a, wf.Tensor):
        return isinstance(b, wf.Tensor) and a.dtype is b.dtype and (a.numpy() == b.numpy()).all()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))


NESTED = {
    "list": [wf.ones(2), wf.zeros((), dtype="int8")],
    "tuple": (wf.ones(2), wf.tensor([True])),
    "nested": {"b": [{"w": wf.ones(3)}, (wf.zeros(1), [wf.tensor(5)])], "a": wf.ones(1), "none": {}, "": []},
    "empty list": [],
    "list of lists": [[], [wf.ones(1)], ()],
    "dots": {"a.b": wf.ones(1), "c": {"d.e": wf.zeros(2)}},
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("mmap", [True, False])
def test_nested_ones_come_back_as_they_were(path, name, mmap):
    wf.save(path, NESTED[name], metadata={"step": "7"})
    assert same(NESTED[name], wf.load(path, mmap=mmap))
    assert wf.load_metadata(path) == {"step": "7"}


def test_other_readers_see_flat_names(path):
    safetensors = pytest.importorskip("safetensors.numpy")
    wf.save(path, {"layers": [{"w": wf.ones(3)}, {"w": wf.zeros(2)}]})
    found = safetensors.load_file(path)
    assert {name: x.shape for name, x in found.items()} == {"layers.0.w": (3,), "layers.1.w": (2,)}


def test_flat_files_have_no_structure(path):
    wf.save(path, {"a": wf.ones(1), "b.c": wf.ones(1)})
    assert b"weft.structure" not in Path(path).read_bytes()
    wf.save(path, [wf.ones(1)])
    assert b"weft.structure" in Path(path).read_bytes()


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"a.b": wf.ones(1), "a": {"b": wf.ones(1)}}, ValueError, "two tensors would be called 'a.b'"),
        ({"a": {1: wf.ones(1)}}, TypeError, "names are text, not 1"),
        ({"a": [{"b": {1, 2}}]}, TypeError, r"tensors\['a.0.b'\] is of type set, not a tensor"),
        ({"__metadata__": wf.ones(1)}, ValueError, "keeps the name '__metadata__' for itself"),
    ],
)
def test_nested_ones_that_are_refused(path, tensors, error, message):
    with pytest.raises(error, match=message):
        wf.save(path, tensors)
    assert not Path(path).exists()


def test_containers_in_themselves_and_keys_of_saves_own(path):
    around = []
    around.append(around)
    with pytest.raises(ValueError, match="in more than 32 containers, or in itself"):
        wf.save(path, around)
    with pytest.raises(ValueError, match=r"the metadata 'weft\.structure' is save's own"):
        wf.save(path, {"a": wf.ones(1)}, metadata={"weft.structure": "{}"})


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100000, "is not JSON"),
        ('"0"', "leaves out '1'"),
        ('{"l": ["0", "0"]}', "names '0', of which there is none, or twice"),
        ('{"l": ["0", "1", "2"]}', "names '2'"),
        ('{"x": ["0", "1"]}', "no list, tuple or dictionary of tensors"),
        ('{"l": {"a": "0"}}', "no list, tuple or dictionary"),
        ('{"l": ["0"], "t": ["1"]}', "no list, tuple or dictionary"),
        ('{"l": ["0", 1]}', "no list, tuple or dictionary"),
        ('{"l": ["0", null]}', "no list, tuple or dictionary"),
        ('{"l": ["0", ' + '{"l": [' * 40 + '"1"' + "]}" * 40 + "]}", "no list, tuple or dictionary"),
        ("7", "no list, tuple or dictionary"),
    ],
)
def test_hostile_structures(path, structure, message):
    wf.save(path, {"0": wf.ones(1), "1": wf.ones(1)}, metadata={"weft-structure": structure})
    content = Path(path).read_bytes().replace(b"weft-structure", b"weft.structure")
    Path(path).write_bytes(content)
    with pytest.raises(wf.FileFormatError, match=message):
        wf.load(path)
