"""The engine's header: programs in C and C++ compile with all warnings, and do what their texts say."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft import info

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "c"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
FLAGS = [*info.c_flags().split(), *info.library_flags().split()]


def run(*words, status=0):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def compiled(tmp_path):
    def compile_it(source, *words):
        compiler = "gcc" if source.suffix == ".c" else "g++"
        if shutil.which(compiler) is None:
            pytest.skip(f"there is no {compiler}")
        program = tmp_path / source.stem
        run(compiler, *words, *WARNINGS, source, "-o", program, *FLAGS)
        return program

    return compile_it


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "missing.txt", "c.txt")]
    for path, text in zip(paths, ("one two", "", None, "three\n four  five\n"), strict=True):
        if text is not None:
            path.write_text(text)
    return paths


def test_words_are_counted_in_c(compiled, files):
    done = run(compiled(EXAMPLES / "word_count.c", "-std=c11"), *files, status=1)
    a, b, missing, c = files
    assert done.stdout.splitlines() == [f"{a}: 2", f"{b}: 0", f"{missing}: cannot be read", f"{c}: 3"]
    assert done.stderr == f"word_count: {missing}: cannot be read\n"


def test_checksums_in_cpp(compiled, files):
    done = run(compiled(EXAMPLES / "checksums.cpp", "-std=c++20"), *files, status=1)
    sums = [
        f"{path}: {sum(path.read_bytes())}" if path.exists() else f"{path}: cannot be read" for path in files
    ]
    assert done.stdout.splitlines() == sums


def test_the_header_is_plain_c(compiled, tmp_path):
    source = tmp_path / "version.c"
    source.write_text(
        "#include <weft/engine.h>\nint main(void) { return weft_engine_version() != WEFT_ENGINE_VERSION; }\n"
    )
    run(compiled(source, "-std=c99"))


def test_the_library_needs_no_python():
    """Nor does it export anything but what the header names."""
    library = Path(info.library_flags().split()[0].removeprefix("-L")) / "libweft_engine.so.1"
    needed = run("readelf", "-d", library).stdout
    assert "python" not in needed
    assert "dnnl" not in needed
    header = (Path(info.c_flags().removeprefix("-I")) / "weft" / "engine.h").read_text()
    declared = re.findall(r"WEFT_API [^;]*?(weft_\w+)\(", header)
    exported = [
        line.split()[-1].split("@")[0]
        for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()
    ]
    assert sorted(set(exported) - {"WEFT_1"}) == sorted(declared)
