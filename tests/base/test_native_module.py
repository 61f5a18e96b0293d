"""The built native module as the loader sees it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Prints how many libraries with variables in static thread-local storage the loader took before it had no room.
WITHOUT_ROOM = """
import ctypes, pathlib, sys
ctypes.CDLL("libgomp.so.1")  # whose own variables are there, 136 bytes; oneDNN needs it
sizes = {}
for library in sorted(pathlib.Path(sys.argv[1]).glob("*.so")):
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        assert "static TLS" in str(error), error
        sizes["refused"] = sizes.get("refused", 0) + 1
    else:
        sizes["loaded"] = sizes.get("loaded", 0) + 1
assert sizes["refused"] >= 3 and sizes["loaded"] >= 3, sizes

import threading
import weft as wf

x = wf.ones((3, 4))
values = []
def compute():
    with wf.GradManager().attach([x]) as gm:
        y = ((x + 1) * x @ wf.ones((4, 2))).sum()
        gm.backward(y)
    values.append((y.item(), x.grad.sum().item()))
compute()
thread = threading.Thread(target=compute)
thread.start()
thread.join()
print(values)
"""


def test_the_module_needs_no_static_thread_local_storage(tmp_path):
    """glibc has 1.7 KB of it for all libraries that are loaded late, and refuses those that it has no room for."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and ELF")
    model = '__attribute__((tls_model("initial-exec"), aligned(8)))'
    text = f"__thread char room[SIZE] {model}; char *f(void) {{ return room; }}"
    for size in (256, 64, 8):
        library = tmp_path / f"{9 - len(str(size))}-{size}.so"
        command = [compiler, "-shared", "-fPIC", f"-DSIZE={size}", "-o", library, "-xc", "-"]
        subprocess.run(command, input=text, text=True, check=True)
        for copy in range(12):
            shutil.copy(library, tmp_path / f"{library.stem}-{copy}.so")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, tmp_path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(48.0, 72.0), (48.0, 144.0)]"  # gradients are added


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
