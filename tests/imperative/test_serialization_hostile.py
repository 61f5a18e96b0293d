"""Files from strangers: load returns what they hold, or says in one clear error what is wrong with them."""

import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.arrays import serialization
from weft.arrays.serialization import FileFormatError, load_metadata
from weft.arrays.serialization import load_safetensors as load
from weft.base.errors import DTypeError

try:
    import safetensors  # the oracle, where it is installed
except ImportError:
    safetensors = None


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype="U8", shape=(1,), offsets=(0, 1), **more):
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


def two(first, second, size):
    """Two byte tensors at these offsets in data of this size."""
    header = {
        name: {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
        for name, (begin, end) in {"a": first, "b": second}.items()
    }
    return file_of(header, bytes(size))


GOOD = b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'

HOSTILE = {
    "empty": (b"", "0 bytes are too few"),
    "seven bytes": (b"\0" * 7, "7 bytes are too few"),
    "no header": (struct.pack("<Q", 0), "not a JSON object"),
    "header beyond the end": (struct.pack("<Q", 9) + b"{}", "a header of 9 bytes in a file of 10"),
    "header too long": (struct.pack("<Q", 100_000_001) + b"{}", "more than 100000000"),
    "header of 2^64 bytes": (b"\xff" * 8 + b"{}", "more than 100000000"),
    "not UTF-8": (file_of(b'{"\xff":1}'), "not UTF-8 at byte 2"),
    "not JSON": (file_of(b"{nonsense}"), "not JSON"),
    "cut JSON": (file_of(b'{"x":'), "not JSON"),
    "two objects": (file_of(b"{}{}"), "not JSON"),
    "NUL padding": (file_of(b"{}\0\0"), "not JSON"),
    "space in front": (file_of(b" {}"), "begins with"),
    "byte order mark": (file_of(b"\xef\xbb\xbf{}"), "begins with"),
    "pickle": (pickle.dumps({"x": [1.0] * 100}), "is not a safetensors file"),
    "array": (file_of(b"[]"), "not a JSON object"),
    "text": (file_of(b'"x"'), "not a JSON object"),
    "key twice": (file_of(b"{" + GOOD + b"," + GOOD + b"}", b"."), "key 'x' twice"),
    "field twice": (file_of(b'{"x":{"dtype":"U8","dtype":"U8"}}'), "key 'dtype' twice"),
    "metadata twice": (file_of(b'{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' twice"),
    "metadata key twice": (file_of(b'{"__metadata__":{"a":"","a":""}}'), "key 'a' twice"),
    "deep arrays": (file_of(b'{"x":' + b"[" * 200_000), "too deep"),
    "deep objects": (file_of(b'{"x":' * 200_000), "too deep"),
    "deep but closed": (file_of(b'{"x":' + b"[" * 90 + b"]" * 90 + b"}"), "exactly the keys"),
    "integer of many digits": (file_of(b'{"x":' + b"9" * 100_000 + b"}"), "not JSON"),
    "lone surrogate in a name": (file_of(b'{"\\ud800":{}}'), "lone surrogate"),
    "lone surrogate in metadata": (file_of(b'{"__metadata__":{"a":"\\udfff"}}'), "lone surrogate"),
    "metadata null": (file_of({"__metadata__": None}), "__metadata__ is None"),
    "metadata list": (file_of({"__metadata__": ["a"]}), "not an object"),
    "metadata number": (file_of({"__metadata__": {"a": 1}}), "has 1 at 'a', not text"),
    "tensor null": (file_of({"x": None}), "exactly the keys"),
    "tensor list": (file_of({"x": ["U8", [1], [0, 1]]}), "exactly the keys"),
    "unknown field": (file_of(one(extra=1), b"."), "exactly the keys dtype, shape, data_offsets"),
    "missing field": (file_of({"x": {"dtype": "U8", "shape": [1]}}), "exactly the keys"),
    "dtype number": (file_of(one(dtype=8), b"."), "dtype 8, not text"),
    "dtype list": (file_of(one(dtype=["U8"]), b"."), "not text"),
    "shape number": (file_of(one(shape=1), b"."), "shape 1, not integers"),
    "shape of true": (file_of(one(shape=[True]), b"."), r"shape \[True\], not integers"),
    "shape of float": (file_of(one(shape=[1.0]), b"."), r"shape \[1.0\]"),
    "shape of text": (file_of(one(shape=["1"]), b"."), "not integers"),
    "shape of NaN": (file_of(b'{"x":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}'), "not integers"),
    "shape negative": (file_of(one(shape=[-1]), b"."), "not integers from 0"),
    "shape of two negatives": (file_of(one(shape=[-1, -1]), b"."), "not integers from 0"),
    "2^60 elements": (file_of(one(shape=[2**60]), b"."), f"takes {2**60} bytes"),
    "2^64 elements": (file_of(one(shape=[2**32, 2**32], offsets=(0, 0))), "more than"),
    "product overflows to fit": (file_of(one(shape=[2**63, 2, 2, 5], offsets=(0, 0))), "more than"),
    "huge beside a zero": (file_of(one(shape=[0, 2**62, 2**62], offsets=(0, 0))), "more than"),
    "a long shape": (file_of(one(shape=[2] * 1_000_000), b"."), "more than"),
    "size differs": (file_of(one(dtype="F32", shape=[1], offsets=(0, 3)), b"..."), r"F32\[1\] takes 4 bytes"),
    "offsets of three": (file_of(one(offsets=(0, 1, 1)), b"."), "not .begin, end"),
    "offsets of none": (file_of(one(offsets=()), b"."), "not .begin, end"),
    "offsets null": (file_of(one(offsets=None), b"."), "not .begin, end"),
    "offsets of true": (file_of(one(offsets=(False, True)), b"."), "not .begin, end"),
    "offsets negative": (file_of(one(offsets=(-1, 0)), b"."), "not .begin, end"),
    "offsets reversed": (file_of(one(offsets=(1, 0)), b"."), "not .begin, end"),
    "beyond the end": (file_of(one(shape=[2], offsets=(0, 2)), b"."), "ends at 2, of 1 bytes"),
    "2^60 bytes beyond": (file_of(one(shape=[2**60], offsets=(0, 2**60)), b"."), "ends at"),
    "hole in front": (file_of(one(offsets=(1, 2)), b".."), "begins at 1, not 0: leaves a hole"),
    "hole between": (two((0, 1), (2, 3), 3), "begins at 2, not 1: leaves a hole"),
    "overlap": (two((0, 2), (1, 3), 3), "begins at 1, not 2: overlaps"),
    "the same bytes twice": (two((0, 2), (0, 2), 2), "begins at 0, not 2: overlaps"),
    "bytes left": (file_of(one(), b".."), "take 1 of 2 bytes"),
    "bytes without tensors": (file_of({}, b"."), "take 0 of 1 bytes"),
    "bool of 2": (file_of(one(dtype="BOOL"), b"\2"), "bytes other than 0 and 1"),
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_bad_file_is_refused_with_its_path_and_the_fact(tmp_path, content, message, mmap):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        load(path, mmap=mmap)
    assert str(caught.value).startswith(f"load: {str(path)!r}: ")
    assert len(str(caught.value)) < 700 + len(str(path))


@pytest.mark.parametrize("code", ["F8_E8M0", "F6_E2M3", "F4", "C128", "u8", "", "U8 "])
def test_an_element_type_that_weft_lacks_is_a_dtype_error_with_the_name_of_the_tensor(tmp_path, code):
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(one(dtype=code), b"."))
    with pytest.raises(DTypeError, match=rf"tensor 'x' is '{code}'; weft reads BOOL, I8"):
        load(path)
    assert load_metadata(path) == {}


def test_a_folder_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, fact in [
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "no regular"),
        ("/dev/zero", "no regular"),
    ]:
        for read in (load, load_metadata):
            with pytest.raises(FileFormatError, match=fact):
                read(path)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load(tmp_path / "none.safetensors")


def test_every_cut_of_a_file_is_refused(tmp_path):
    path = tmp_path / "cut.safetensors"
    content = file_of(one(shape=[40], offsets=(0, 40)), bytes(40))
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(FileFormatError):
            load(path)
    path.write_bytes(content + b".")
    with pytest.raises(FileFormatError, match="take 40 of 41"):
        load(path)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with open(path, "rb") as file, pytest.raises(FileFormatError, match="cut to 5 bytes"):
        serialization.read_at(file.fileno(), 0, 6, "load")


def test_bools_are_checked_beyond_the_first_piece():
    data = bytearray(3 << 20)
    serialization.check_bools(data, 1, (3 << 20) - 1, "x")
    data[-1] = 255
    with pytest.raises(FileFormatError, match="other than 0 and 1"):
        serialization.check_bools(data, 1, (3 << 20) - 1, "x")
    serialization.check_bools(data, 1, (3 << 20) - 2, "x")


def test_hostile_sizes_allocate_nothing(tmp_path):
    names = ["header of 2^64 bytes", "2^60 elements", "2^64 elements", "2^60 bytes beyond", "a long shape"]
    for number, name in enumerate(names):
        (tmp_path / f"{number}").write_bytes(HOSTILE[name][0])
    with open(tmp_path / "sparse", "wb") as file:  # a terabyte to look at, none of it there
        file.write(file_of({}))
        file.truncate(1 << 40)
    code = """
        import os, resource, sys
        from weft.arrays.serialization import FileFormatError, load_safetensors as load
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (192 << 20),) * 2)
        for name in sorted(os.listdir(sys.argv[1])):
            for mmap in (True, False):
                try:
                    load(os.path.join(sys.argv[1], name), mmap=mmap)
                except FileFormatError:
                    print(name)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [name for name in sorted(os.listdir(tmp_path)) for _ in range(2)]


# ---- Mutations of valid files, and headers from parts ----------------------------------------------------------------


def valid_file():
    described = [
        ("layer.weight", "float32", (2, 3)),
        ("layer.bias", "bfloat16", (3,)),
        ("steps", "int64", ()),
        ("none", "uint16", (0, 4)),
        ("mask", "bool", (5,)),
    ]
    entries = serialization.lay_out(described)
    data = bytes(range(50, 50 + entries[-1].begin)) + b"\0\1\1\0\1"
    return serialization.build_header(entries, {"format": "pt", "note": "schön"}) + data


VALID = valid_file()
HEADER_END = 8 + struct.unpack("<Q", VALID[:8])[0]
TELLING = b'0123456789-+.eE"{}[]:, \\u\0\xff\x80tfn'

position = st.integers(0, HEADER_END)
mutation = st.one_of(
    st.tuples(st.just("set"), position, st.sampled_from(TELLING)),
    st.tuples(st.just("set"), position, st.integers(0, 255)),
    st.tuples(st.just("insert"), position, st.binary(max_size=4)),
    st.tuples(st.just("delete"), position, st.integers(1, 8)),
    st.tuples(st.just("cut"), st.integers(0, len(VALID)), st.none()),
    st.tuples(st.just("length"), st.integers(0, 2**64 - 1) | st.integers(0, 2 * len(VALID)), st.none()),
)


def mutate(content, mutations):
    changed = bytearray(content)
    for kind, at, what in mutations:
        if kind == "set" and at < len(changed):
            changed[at] = what
        elif kind == "insert":
            changed[at:at] = what
        elif kind == "delete":
            del changed[at : at + what]
        elif kind == "cut":
            del changed[at:]
        elif kind == "length":
            changed[:8] = struct.pack("<Q", at)
    return bytes(changed)


def check_one(content, mmap):
    """Either what loads is what the file holds, by the word of safetensors too, or it is refused."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            loaded = load(file.name, mmap=mmap)
        except (FileFormatError, DTypeError):
            return
        ours = {name: (tuple(t.shape), bytes(t.contiguous().memory())) for name, t in loaded.items()}
    length = 8 + struct.unpack("<Q", content[:8])[0]
    assert b"".join(data for _, data in ours.values()) == content[length:]
    if safetensors is not None and b"-0" not in content:  # JSON's other zero, which it takes for a float
        theirs = safetensors.deserialize(content)
        assert {name: (tuple(each["shape"]), bytes(each["data"])) for name, each in theirs} == ours


def test_the_file_that_is_mutated_is_valid():
    check_one(VALID, True)
    assert len(serialization.parse_header(VALID[8:HEADER_END], "")[0]) == 5


@settings(max_examples=400, deadline=None)
@given(st.lists(mutation, min_size=1, max_size=3), st.booleans())
def test_a_mutated_file_loads_as_what_it_holds_or_is_refused(mutations, mmap):
    check_one(mutate(VALID, mutations), mmap)


number = st.sampled_from([0, 1, 2, 3, 4, 8, 2**31, 2**63, 2**64, 10**30, -1, 1.0, True, None, "1"])
small = st.integers(0, 4)
described = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "BOOL", "F16", "F32", "I64", "F8_E4M3", "F8_E8M0", "", 3, None])
        | st.just("U8"),
        "shape": st.lists(small, max_size=3) | st.lists(number, max_size=3) | number,
        "data_offsets": st.tuples(small, small) | st.lists(number, max_size=3),
    },
    optional={"extra": number},
)
headers = st.dictionaries(
    st.sampled_from(["a", "b", "__metadata__", "ü", "\ud800"]), described | number, max_size=3
)


@settings(max_examples=300, deadline=None)
@given(headers, st.sampled_from([b"", b"\0", b"\1\0", b"\0\1\1\0", bytes(8)]), st.booleans())
def test_a_header_from_parts_loads_as_what_it_holds_or_is_refused(header, data, mmap):
    check_one(file_of(header, data), mmap)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_are_refused_or_an_empty_file(content, with_length):
    check_one(file_of(content) if with_length else content, True)
