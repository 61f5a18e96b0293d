"""The built native module as the loader sees it."""

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
