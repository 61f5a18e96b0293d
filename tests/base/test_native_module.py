"""The built native module as the loader sees it."""

import re
import struct
from pathlib import Path

import pytest

from weft import _core

PT_TLS = 7


def test_threads_variables_are_few():
    """glibc has 1.7 KB for those of all libraries that are loaded late; CMakeLists.txt says why ours are there."""
    content = Path(_core.__file__).read_bytes()
    if content[:4] != b"\x7fELF" or content[4] != 2:
        pytest.skip("no 64-bit ELF file")
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    sizes = [
        struct.unpack_from("<Q", content, at + 40)[0]
        for at in range(offset, offset + size * count, size)
        if struct.unpack_from("<I", content, at)[0] == PT_TLS
    ]
    assert sum(sizes) <= 576, sizes


def test_levels_ask_for_all_that_they_are_compiled_for():
    """Below a level's features code would be illegal, or run as another instruction without a fault, as lzcnt does."""
    native = Path(__file__).parents[2] / "native" / "storage"
    features = re.findall(r'#define WEFT_AVX(?:2|512)_FEATURES.*"(.*?)"', (native / "simd.h").read_text())
    compiled = {name for text in features for name in text.strip(",").split(",")}
    asked = set(re.findall(r'__builtin_cpu_supports\("(.*?)"\)', (native / "isa.cpp").read_text()))
    v3 = {
        "avx",
        "avx2",
        "bmi",
        "bmi2",
        "f16c",
        "fma",
        "lzcnt",
        "movbe",
        "popcnt",
    }  # of the psABI, for GCC's name
    assert {"lzcnt", "avx512vl"} <= compiled
    assert compiled <= asked
    assert "x86-64-v3" in asked
    assert (v3 - {"avx"}) <= asked  # objects that are compiled ahead are for all of it
