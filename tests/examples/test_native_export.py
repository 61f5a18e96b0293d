"""Exported programs, run by a C program: the results are Python's, and bad folders are errors."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as m
from weft import info

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "c" / "run_program.c"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = tmp_path_factory.mktemp("runner") / "run_program"
    flags = [*info.c_flags().split(), *info.program_library_flags().split()]
    subprocess.run(["gcc", *WARNINGS, SOURCE, "-o", program, *flags], check=True)
    return program


def outputs_in_c(runner, folder, arrays, path):
    files = [path / f"input{k}" for k in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        np.ascontiguousarray(array).tofile(file)
    done = subprocess.run([runner, folder, *files], capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def network_of(name):
    """A network and its inputs."""
    numbers = np.random.default_rng(3)
    floats = lambda *shape: numbers.standard_normal(shape).astype("float32")  # noqa: E731
    tokens = lambda *shape: numbers.integers(0, 50, shape)  # noqa: E731
    match name:
        case "mlp":
            return m.Sequential(m.Linear(20, 30), m.ReLU(), m.Linear(30, 5)), [floats(4, 20)]
        case "convolutions":
            layers = [m.Conv2d(3, 8, 3, padding=1), m.BatchNorm2d(8), m.ReLU(), m.MaxPool2d(2)]
            return m.Sequential(*layers, m.Conv2d(8, 6, 3)).eval(), [floats(2, 3, 14, 14)]
        case "lstm":
            lstm = wf.module.LSTM(6, 8)
            return lambda x: lstm(x)[0], [floats(5, 2, 6)]
        case "gpt":
            from weft.models import gpt

            config = gpt.GPTConfig(layers=2, heads=2, width=32, vocabulary=50, context=16)
            return gpt.GPT(config).eval(), [tokens(2, 9)]
        case "arithmetic":
            w = wf.tensor(floats(7, 5)).T  # not row-major
            return (
                lambda x, y: (F.softmax(x @ w) + y, F.sort(x), F.sum(x * x, axis=0).astype("bfloat16")),
                [floats(4, 5), floats(1, 7)],
            )
    raise AssertionError(name)


@pytest.mark.parametrize("name", ["mlp", "convolutions", "lstm", "gpt", "arithmetic"])
def test_results_are_those_of_python(name, runner, tmp_path):
    network, arrays = network_of(name)
    traced = wf.trace(network)
    with wf.no_grad():
        results = traced(*map(wf.tensor, arrays))
        traced.export(tmp_path / "folder", target="native")
        results = traced(*map(wf.tensor, arrays))
    results = results if isinstance(results, tuple) else (results,)
    outputs = outputs_in_c(runner, tmp_path / "folder", arrays, tmp_path)
    expected = b"".join(result.numpy().tobytes() for result in results)
    assert len(outputs) == len(expected)
    offset = 0
    for result in results:
        whole = result.numpy()
        found = np.frombuffer(outputs, whole.dtype, whole.size, offset).reshape(whole.shape)
        np.testing.assert_allclose(found.astype("float64"), whole.astype("float64"), rtol=2e-5, atol=2e-5)
        offset += whole.nbytes


def test_quantized_networks_run_in_c(runner, tmp_path):
    from weft import quantization

    net = m.Sequential(m.Linear(32, 16), m.ReLU(), m.Linear(16, 4))
    array = np.random.default_rng(5).standard_normal((8, 32)).astype("float32")
    quantized = quantization.convert(quantization.calibrate(net, [wf.tensor(array)]))
    traced = wf.trace(quantized)
    with wf.no_grad():
        traced(wf.tensor(array))
        traced.export(tmp_path / "folder", target="native")
        expected = traced(wf.tensor(array)).numpy()
    outputs = outputs_in_c(runner, tmp_path / "folder", [array], tmp_path)
    np.testing.assert_allclose(
        np.frombuffer(outputs, "float32").reshape(expected.shape), expected, rtol=2e-5, atol=2e-5
    )


def in_a_process(body, *words, is_text=True):
    """Runs Python, without weft, that has `library` and `load(folder)` -> (status, program)."""
    path = info.program_library_flags().split()[0].removeprefix("-L")
    head = f"""
import ctypes, sys
library = ctypes.CDLL({path + "/libweft.so.1"!r})
library.weft_last_error.restype = ctypes.c_char_p
class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64))]
def load(folder):
    program = ctypes.c_void_p()
    return library.weft_program_load(str(folder).encode(), ctypes.byref(program)), program
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", head + body, *map(str, words)],
        capture_output=True,
        text=is_text,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "folder"
    w = wf.tensor(np.arange(12, dtype="float32").reshape(4, 3))
    traced = wf.trace(lambda x: F.relu(x @ w))
    traced(wf.ones((2, 4)))
    traced.export(path, target="native")
    return path


def test_threads_strides_and_wrong_calls(folder):
    out = in_a_process(
        """
import threading
status, program = load(sys.argv[1])
assert status == 0
results = []
def run(k):
    x = (ctypes.c_float * 8)(*[k] * 8)
    y = (ctypes.c_float * 6)()
    strides = (ctypes.c_int64 * 2)(1, 2)  # columns
    for _ in range(50):
        given = Array(ctypes.addressof(x), strides if k % 2 else None)
        assert library.weft_program_run(program, ctypes.byref(given), ctypes.byref(Array(ctypes.addressof(y)))) == 0
        results.append((k, list(y)))
threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
sums = [18, 22, 26]
assert all(y == [k * s for s in sums] * 2 for k, y in results), results[:3]
y = (ctypes.c_float * 6)()
assert library.weft_program_run(program, ctypes.byref(Array()), ctypes.byref(Array(ctypes.addressof(y)))) == 3
print(library.weft_last_error().decode())
assert library.weft_program_run(None, None, None) == 3
assert library.weft_program_input(program, 1, None) == 3
print(library.weft_last_error().decode())
library.weft_program_free(program)
""",
        folder,
    )
    assert out.splitlines() == ["x: data is NULL", "there is no input 1 of 1"]


def test_prepared_weights_leave_memory(tmp_path):
    """Of weights in oneDNN's own layout there is one copy in memory, from the end of loading on."""
    net = m.Conv2d(128, 256, 3).eval()
    traced = wf.trace(net)
    with wf.no_grad():
        expected = traced(wf.ones((1, 128, 9, 9))).numpy()
        traced.export(tmp_path / "folder", target="native")
    out = in_a_process(
        """
status, program = load(sys.argv[1])
assert status == 0
def mapped():
    text = open("/proc/self/smaps").read().split("weights.safetensors\\n")[1]
    return int(text.split("Rss:")[1].split()[0])
print(mapped())
x, y = (ctypes.c_float * (128 * 81))(*[1] * (128 * 81)), (ctypes.c_float * (256 * 49))()
outputs = Array(ctypes.addressof(y), (ctypes.c_int64 * 4)(256 * 49, 1, 256 * 7, 256))  # channels last
assert library.weft_program_run(program, ctypes.byref(Array(ctypes.addressof(x))), ctypes.byref(outputs)) == 0
print(mapped())
sys.stdout.flush()
sys.stdout.buffer.write(bytes(y))
""",
        tmp_path / "folder",
        is_text=False,
    )
    before, after, results = out.split(b"\n", 2)
    size_kib = (tmp_path / "folder" / "weights.safetensors").stat().st_size >> 10
    assert size_kib > 1000
    assert int(before) < size_kib // 8, (before, size_kib)
    assert int(after) < size_kib // 8, (after, size_kib)
    found = np.frombuffer(results, "float32").reshape(1, 7, 7, 256).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_damaged_folders_are_errors(folder, tmp_path):
    """Each byte counts: truncated and changed files, and files that are missing or of another export."""
    body = """
import os, random, shutil
source, work = sys.argv[1:]
draw = random.Random(int(os.environ.get("WEFT_TEST_SEED", "7")))
for name in os.listdir(source):
    content = open(f"{source}/{name}", "rb").read()
    for turn in range(60):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        changed = bytearray(content)
        if turn == 0:
            os.remove(f"{work}/{name}")
        else:
            if turn % 2 or name.startswith("weights"):  # of weights, only the size is checked
                changed = changed[: draw.randrange(len(changed))]
            else:
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            open(f"{work}/{name}", "wb").write(changed)
        status, program = load(work)
        assert status == 3 and not program.value, (name, turn, status)
        assert work.encode() in library.weft_last_error()
print("done")
"""
    assert in_a_process(body, folder, tmp_path / "work") == "done\n"


def test_what_cannot_be_exported_says_so(tmp_path):
    counted = wf.zeros(())

    def counts(x):
        counted[...] = counted + 1
        return x + counted

    def loops(x):
        return wf.while_loop(lambda y: F.sum(y) < 100, lambda y: y * 2, x, max_iterations=20)

    cases = [
        (counts, "changes arrays"),
        (loops, "its kernel has no form without Python"),
        (lambda x: wf.linalg.cholesky(wf.eye(2) + x * 0), "cholesky: its kernel has no form without Python"),
    ]
    for function, text in cases:
        traced = wf.trace(function)
        traced(wf.ones((2, 2)))
        with pytest.raises(NotImplementedError, match=text):
            traced.export(tmp_path / "folder", target="native")
    with pytest.raises(ValueError, match="one of 'graph', 'native'; got 'wasm'"):
        traced.export(tmp_path / "folder", target="wasm")


def test_the_library_needs_no_python():
    """Nor does it export anything but what the headers name."""
    folder = Path(info.program_library_flags().split()[0].removeprefix("-L"))
    words = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: E731
    assert "python" not in words("readelf", "-d", folder / "libweft.so.1")
    headers = Path(info.c_flags().removeprefix("-I")) / "weft"
    texts = "".join((headers / name).read_text() for name in ("engine.h", "weft.h"))
    declared = re.findall(r"WEFT_API [^;]*?(weft_\w+)\(", texts)
    symbols = words("nm", "-D", "--defined-only", folder / "libweft.so.1").splitlines()
    exported = {line.split()[-1].split("@")[0] for line in symbols} - {"WEFT_1"}
    assert sorted(exported) == sorted(declared)
