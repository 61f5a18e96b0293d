"""Exported programs, run by a C program: the results are Python's, and bad folders are errors."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.examples.conftest import SOURCE, WARNINGS
from tests.fuzzing import SEED

import weft as wf
import weft.functional as F
import weft.module as m
from weft import info
from weft.base.errors import GraphError
from weft.kernels.libraries import kernel_of_library, load_library
from weft.ops import Op, op


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


def library_path():
    return info.program_library_flags().split()[0].removeprefix("-L") + "/libweft.so.1"


def results_in_c(folder, calls, path, *words):
    """What the calls give, by native_runner.py: "CALL.RESULT" and "weight.NAME" -> array."""
    arrays = {f"{call}.{k}": x for call, inputs in enumerate(calls) for k, x in enumerate(inputs)}
    np.savez(path / "in.npz", **arrays)
    command = [sys.executable, SOURCE.parents[2] / "tests/examples/native_runner.py", library_path(), folder]
    done = subprocess.run(
        [*map(str, (*command, path / "in.npz", path / "out.npz", *words))], capture_output=True, timeout=100
    )
    assert done.returncode == 0, done.stderr.decode()
    with np.load(path / "out.npz") as found:
        return dict(found)


def test_state_lives_on(tmp_path):
    """Weights that a step changes are changed for the next run; the number is an argument; an argument is written."""
    w, total = wf.tensor(np.ones(3, "float32")), wf.zeros((), dtype="float64")

    def step(x, rate, calls):
        w[...] = w - rate * F.sum(x, axis=0)
        total[...] = total + 1
        calls[...] = calls + 2
        return w * 2, F.sum(w), total

    traced = wf.trace(step)
    numbers = np.random.default_rng(1)
    draw = lambda: [numbers.standard_normal((2, 3)).astype("float32"), np.float64(0.25), np.zeros(2, "int32")]  # noqa: E731
    calls = [draw() for _ in range(4)]
    traced(wf.tensor(calls[0][0]), 0.5, wf.tensor(calls[0][2]))
    before = w.numpy().copy()
    traced.export(tmp_path / "folder", target="native")
    np.testing.assert_array_equal(w.numpy(), before)  # the export has run it on copies
    found = results_in_c(tmp_path / "folder", calls, tmp_path)
    for k, (x, rate, _) in enumerate(calls):
        for j, result in enumerate(traced(wf.tensor(x), float(rate), wf.zeros(2, dtype="int32"))):
            np.testing.assert_allclose(found[f"{k}.{j}"], result.numpy(), rtol=1e-6)
        np.testing.assert_array_equal(found[f"{k}.input2"], [2, 2])
    np.testing.assert_allclose(found["weight.w"], w.numpy(), rtol=1e-6)
    assert found["weight.total"] == 5


@pytest.mark.parametrize("declares", [False, True])
def test_sizes_of_dynamic_axes(declares, tmp_path):
    net = m.Sequential(m.Linear(6, 16), m.ReLU(), m.Linear(16, 3))
    forward = lambda x: net(x) * x.shape[0]  # noqa: E731
    traced = wf.trace(forward, dynamic={"x": 0})
    sizes = (2, 5, 1) if declares else (3, 2)
    numbers = np.random.default_rng(1)
    calls = [[numbers.standard_normal((n, 6)).astype("float32")] for n in sizes]
    with wf.no_grad():
        for (x,) in calls[: 1 if declares else None]:
            traced(wf.tensor(x))
        declared = [{"x": x.shape} for (x,) in calls] if declares else None
        traced.export(tmp_path / "folder", target="native", sizes=declared)
        found = results_in_c(tmp_path / "folder", calls, tmp_path)
        for k, (x,) in enumerate(calls):
            np.testing.assert_allclose(found[f"{k}.0"], traced(wf.tensor(x)).numpy(), rtol=2e-5, atol=2e-5)
    assert {name for name in found if name.startswith("weight.")} == {
        f"weight.{name}" for name, _ in net.named_parameters()
    }
    with pytest.raises(AssertionError, match=r"there is no program for x\[7,6\]; there are x\["):
        results_in_c(tmp_path / "folder", [[np.ones((7, 6), "float32")]], tmp_path)


def test_levels_share_the_weights(level, tmp_path):
    """A folder of two levels has the weights once: kernels prepare them when they load."""
    code = """
import sys
import weft as wf
wf.random.seed(0)
layers = wf.module.Conv2d(64, 64, 3), wf.module.Flatten(), wf.module.Linear(256, 500)
traced = wf.trace(wf.module.Sequential(*layers).eval())
with wf.no_grad():
    traced(wf.ones((1, 64, 4, 4)))
    traced.export(sys.argv[1], target="native")
"""
    sizes = []
    if level == "sse4":
        pytest.skip("there is no level below sse4")
    for each in ("sse4", level):
        subprocess.run(
            [sys.executable, "-c", code, tmp_path], env=os.environ | {"WEFT_ISA": each}, check=True
        )
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert len(list(tmp_path.glob("plan.*"))) == 2
    assert sizes[1] <= 1.3 * sizes[0]


def test_sizes_are_of_the_first_calls_type(tmp_path):
    """Another call may have made a program for such a shape, but of another type."""
    traced = wf.trace(lambda x: x * 2, dynamic={"x": 0})
    traced(wf.ones(2)), traced(wf.ones(5, dtype="float64"))
    traced.export(tmp_path / "folder", target="native", sizes=[{"x": (5,)}])
    x = np.arange(5, dtype="float32")
    np.testing.assert_array_equal(results_in_c(tmp_path / "folder", [[x]], tmp_path)["0.0"], 2 * x)


def test_sizes_need_dynamic_axes(tmp_path):
    traced = wf.trace(lambda x: x + 1)
    traced(wf.ones(2))
    with pytest.raises(ValueError, match="sizes are for target='native' and a trace with dynamic axes"):
        traced.export(tmp_path / "folder", target="native", sizes=[{"x": (3,)}])
    traced = wf.trace(lambda x: x + 1, dynamic={"x": 0})
    traced(wf.ones(2))
    with pytest.raises(ValueError, match="there is no array 'y'; there are x"):
        traced.export(tmp_path / "folder", target="native", sizes=[{"y": (3,)}])
    with pytest.raises(GraphError, match="0 of 1 programs"):
        traced.export(tmp_path / "folder", target="native", sizes=[])


def loops_while(x):
    return wf.while_loop(lambda y: F.sum(y) < 100, lambda y: F.exp(y) + y.T, x, max_iterations=20)


def loops_without_end(x):  # on zeros
    return wf.while_loop(lambda y: F.sum(y) < 100, lambda y: y * 2, x, max_iterations=None)


def branches(x):
    return wf.cond(F.sum(x) > 3, lambda a: F.softmax(F.exp(a) * 2), lambda a: F.sort(a.T) - 1, x)


def scans(x):
    def body(row, state):
        inner = wf.while_loop(lambda s: F.sum(s) < 30, lambda s: s * 2 + 1, state + row, max_iterations=9)
        return inner * row, F.tanh(inner)

    return wf.foreach(body, x, x[0])


@pytest.mark.parametrize("function", [loops_while, loops_without_end, branches, scans])
def test_control_flow(function, tmp_path):
    """All bodies and branches have their code, also those that the export's own run on zeros does not take."""
    traced = wf.trace(function)
    calls = [[np.full((3, 3), value, "float32")] for value in (0.1, 2, 0.5)]
    results = [traced(wf.tensor(x)) for (x,) in calls]
    traced.export(tmp_path / "folder", target="native")
    found = results_in_c(tmp_path / "folder", calls, tmp_path)
    for k, result in enumerate(results):
        for j, each in enumerate(result if isinstance(result, tuple) else (result,)):
            np.testing.assert_allclose(found[f"{k}.{j}"], each.numpy(), rtol=2e-5)


def test_loops_of_loops_in_a_branch(tmp_path):
    traced = wf.trace(lambda x: wf.cond(F.sum(x) > 3, F.exp, lambda y: scans(y)[0], x))
    calls = [[np.full((3, 3), value, "float32")] for value in (0.1, 2)]
    results = [traced(wf.tensor(x)) for (x,) in calls]
    traced.export(tmp_path / "folder", target="native")
    found = results_in_c(tmp_path / "folder", calls, tmp_path)
    for k, result in enumerate(results):
        np.testing.assert_allclose(found[f"{k}.0"], result.numpy(), rtol=2e-5)


def test_random_numbers_in_loops(tmp_path):
    """Each turn of a loop, also of one in a branch, draws where Python's does."""

    def noisy(row, state):
        return F.dropout(row, 0.5, training=True) + wf.random.normal(shape=(8,)), state + row

    def step(x):
        rows = wf.foreach(noisy, x, x[0])[0]
        return rows, wf.cond(F.sum(rows) > 1e9, F.exp, lambda y: wf.foreach(noisy, y, y[0])[0] * 2, x)

    traced, x = wf.trace(step), np.ones((5, 8), "float32")
    traced(wf.tensor(x))
    traced.export(tmp_path / "folder", target="native")
    wf.random.seed(7)
    found = results_in_c(tmp_path / "folder", [[x], [x]], tmp_path, "seed=7")
    for call in range(2):
        for k, expected in enumerate(traced(wf.tensor(x))):
            np.testing.assert_allclose(found[f"{call}.{k}"], expected.numpy(), rtol=1e-6)
    assert abs(found["0.0"] - found["1.0"]).max() > 0.1


def test_products_of_float64_are_loops(tmp_path):
    """In a loop's body, too: BLAS multiplies in Python, whose library it is."""
    w = wf.tensor(np.random.default_rng(0).standard_normal((16, 16)) / 4)
    traced = wf.trace(lambda x: (x @ w, wf.foreach(lambda row, s: (s @ w, s @ w + row), x, w)[0]))
    x = np.random.default_rng(1).standard_normal((16, 16))
    results = traced(wf.tensor(x))
    traced.export(tmp_path / "folder", target="native")
    found = results_in_c(tmp_path / "folder", [[x]], tmp_path)
    for k, y in enumerate(results):
        np.testing.assert_allclose(found[f"0.{k}"], y.numpy(), rtol=1e-9, atol=1e-9)


def test_random_numbers_are_those_of_a_seed(tmp_path):
    traced = wf.trace(lambda x: F.dropout(x, 0.5, training=True) + wf.random.normal(shape=(64,)))
    x = np.ones(64, "float32")
    traced(wf.tensor(x))
    wf.random.seed(11)
    state = wf.random.get_state()
    traced.export(tmp_path / "folder", target="native")
    assert wf.random.get_state() == state
    found = results_in_c(tmp_path / "folder", [[x], [x]], tmp_path, "seed=11")
    np.testing.assert_array_equal(found["0.0"], traced(wf.tensor(x)).numpy())
    np.testing.assert_array_equal(found["1.0"], traced(wf.tensor(x)).numpy())


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """examples/c/kernels.c, compiled and loaded, with an operator of its kernel."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    flags = ["-shared", "-fPIC", "-O2", *info.c_flags().split()]
    subprocess.run(["gcc", *WARNINGS, *flags, SOURCE.with_name("kernels.c"), "-lm", "-o", path], check=True)

    @op
    class ScaledHypot(Op):
        """scale * sqrt(x^2 + y^2)."""

        rule = "x[*s]: float, y[*s]: float -> z[*s]: promote"
        scale: float = 1.0

        def decompose(self, x, y):
            return F.sqrt(x * x + y * y) * self.scale

    assert load_library(path) == ["example.hypot"]
    kernel_of_library(ScaledHypot, "example.hypot", numbers=["scale"])
    return path


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_kernels_from_outside(dtype, kernels, tmp_path):
    """They compute what the operator decomposes to: of float16, which the library does not take, it is that."""
    numbers = np.random.default_rng(2)
    x, y = (numbers.standard_normal((4, 3)).astype(dtype) for _ in range(2))
    function = lambda x, y: F.scaled_hypot(x, y, scale=2.0) + 1  # noqa: E731
    for a, b in ((x, y), (x.T, y.T), (x[::2], y[::2]), (x[:0], y[:0])):
        found = function(wf.tensor(a), wf.tensor(b)).numpy()
        np.testing.assert_allclose(found, np.hypot(a, b) * 2 + 1, rtol=2e-3 if dtype == "float16" else 1e-6)
    traced = wf.trace(function)
    expected = traced(wf.tensor(x), wf.tensor(y))
    traced.export(tmp_path / "folder", target="native")
    if dtype == "float16":
        return
    slope = wf.grad(lambda x, y: F.sum(F.scaled_hypot(x, y)))(wf.tensor(x), wf.tensor(y))
    np.testing.assert_allclose(slope.numpy(), x / np.hypot(x, y), rtol=1e-5)
    found = results_in_c(tmp_path / "folder", [[x, y]], tmp_path, f"kernels={kernels}")
    np.testing.assert_allclose(found["0.0"], expected.numpy(), rtol=1e-6)
    with pytest.raises(
        AssertionError, match=r"kernel example\.hypot: no library that has been loaded has it"
    ):
        results_in_c(tmp_path / "folder", [[x, y]], tmp_path)


WRONG_KERNELS = {
    '.name = "a b", .device = "cpu", .dtypes = "float32->float32", .run = run': "'a b': a name has letters",
    '.name = "a", .device = "gpu", .dtypes = "float32->float32", .run = run': "device is 'gpu', supported is 'cpu'",
    '.name = "a", .device = "cpu", .dtypes = "float32->float33", .run = run': "'float33' is no dtype",
    '.name = "a", .device = "cpu", .dtypes = "float32", .run = run': "'float32' has no -> between",
    '.name = "a", .device = "cpu", .dtypes = "float32->", .run = run': "has no output",
    '.name = "a", .device = "cpu", .dtypes = "float32->float32"': "run is NULL",
    '.name = "a", .device = "cpu", .run = run': "dtypes is NULL",
}


def test_wrong_kernels_are_errors(kernels, tmp_path):
    cases = "".join(
        f'if (strcmp(getenv("CASE"), "{k}") == 0) {{ const weft_kernel kernel = {{.size = sizeof kernel, {case}}};'
        " return registry->add(registry, &kernel); }\n"
        for k, case in enumerate(WRONG_KERNELS)
    )
    source = tmp_path / "wrong.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <weft/kernel.h>\n"
        "static int run(const weft_kernel_call* call, void* data) { (void)data; return call->fail(call, 0); }\n"
        f"int weft_kernels(weft_registry* registry) {{ {cases} (void)run; (void)registry; return 7; }}\n"
    )
    path = tmp_path / "wrong.so"
    command = ["gcc", *WARNINGS, "-shared", "-fPIC", *info.c_flags().split(), source, "-o", path]
    subprocess.run(command, check=True)
    code = "import os, sys, pytest\nfrom weft.kernels.libraries import load_library\n"
    code += f"for k, text in enumerate({[*WRONG_KERNELS.values(), 'weft_kernels returned 7']!r}):\n"
    code += "    os.environ['CASE'] = str(k)\n"
    code += "    with pytest.raises(ValueError) as error: load_library(sys.argv[1])\n"
    code += "    assert text in str(error.value), (text, str(error.value))\n"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    with pytest.raises(ValueError, match="there is one for float32,float32->float32 already"):
        load_library(kernels)
    with pytest.raises(ValueError, match="it has no function weft_kernels"):
        load_library("libm.so.6")


def in_a_process(body, *words, is_text=True, **flags):
    """Runs Python, without weft, that has `library` and `load(folder)` -> (status, program); flags: environment."""
    head = f"""
import ctypes, sys
library = ctypes.CDLL({library_path()!r})
library.weft_last_error.restype = ctypes.c_char_p
class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64))]
def load(folder):
    program = ctypes.c_void_p()
    return library.weft_program_load(str(folder).encode(), ctypes.byref(program)), program
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", head + body, *map(str, words)],
        env=os.environ | flags,
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


def compiled_run(command, *words):
    compiler, *_ = command
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    subprocess.run([str(word) for word in command], check=True, timeout=100)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_program_in_cpp(folder, tmp_path):
    flags = [*info.c_flags().split(), *info.program_library_flags().split()]
    source, program = SOURCE.with_name("classify.cpp"), tmp_path / "classify"
    files = [tmp_path / f"{k}.bin" for k in range(3)]
    for file, values in zip(files, ([0, 0, 0, 0, 1, 0, 0, -1], [1] * 8, [1]), strict=True):
        np.array(values, "float32").tofile(file)
    command = ["g++", "-std=c++17", *WARNINGS[1:], source, "-o", program, *flags]
    lines = compiled_run(command, program, folder, *files)
    assert lines == [f"{files[0]}: 0", f"{files[1]}: 2", f"{files[2]}: there are no 8 numbers to read"]


@pytest.mark.daily(4)
@pytest.mark.parametrize("language", ["rust", "java", "go"])
def test_programs_in_other_languages(language, folder, tmp_path):
    place, program = Path(library_path()).parent, tmp_path / "run_program"
    source = lambda name: SOURCE.with_name(name)  # noqa: E731
    if language == "rust":
        link = ["-L", place, "-l", "dylib:+verbatim=libweft.so.1", "-C", f"link-arg=-Wl,-rpath,{place}"]
        lines = compiled_run(["rustc", source("run_program.rs"), "-o", program, *link], program, folder)
    elif language == "java":
        java = [Path("/usr/lib/jvm").glob("*/bin/java"), [shutil.which("java") or "java"]]
        newest = max((path for paths in java for path in paths), key=java_version)
        if java_version(newest) < 22:
            pytest.skip("there is no Java 22")
        run = [newest, "--enable-native-access=ALL-UNNAMED", source("RunProgram.java"), library_path()]
        lines = compiled_run([newest, "--version"], *run, folder)
    else:
        build = ["env", f"CGO_CFLAGS={info.c_flags()}", f"CGO_LDFLAGS={info.program_library_flags()}"]
        if shutil.which("go") is None:
            pytest.skip("there is no go")
        lines = compiled_run(
            [*build, "go", "build", "-o", program, source("run_program.go")], program, folder
        )
    numbers = [float(x) for line in lines for x in re.findall(r"[\d.]+", line)]
    assert numbers == [18, 22, 26] * 2


def java_version(path):
    if shutil.which(path) is None:
        return 0
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    return int((re.findall(r"\d+", done.stdout) or [0])[0])


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


RUN_CONVOLUTION = """
status, program = load(sys.argv[1])
assert status == 0, library.weft_last_error()
x, y = (ctypes.c_float * (1024 * 196))(*[1] * (1024 * 196)), (ctypes.c_float * (512 * 196))()
outputs = Array(ctypes.addressof(y), (ctypes.c_int64 * 4)(512 * 196, 1, 512 * 14, 512))  # channels last
assert library.weft_program_run(program, ctypes.byref(Array(ctypes.addressof(x))), ctypes.byref(outputs)) == 0
sys.stdout.buffer.write(bytes(y))
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_layouts_of_another_number_of_threads(threads, tmp_path):
    """For one thread, oneDNN's layout of these weights is larger than for several."""
    traced = wf.trace(m.Conv2d(1024, 512, 1).eval())
    with wf.no_grad():
        expected = traced(wf.ones((1, 1024, 14, 14))).numpy()
        traced.export(tmp_path / "folder", target="native")
    out = in_a_process(RUN_CONVOLUTION, tmp_path / "folder", is_text=False, OMP_NUM_THREADS=threads)
    found = np.frombuffer(out, "float32").reshape(1, 14, 14, 512).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_code_of_loading_leaves_memory(tmp_path):
    """After loading, oneDNN's pages that the process has are those that runs need."""
    traced = wf.trace(m.Conv2d(128, 256, 3).eval())
    with wf.no_grad():
        traced(wf.ones((1, 128, 9, 9)))
        traced.export(tmp_path / "folder", target="native")
    out = in_a_process(
        """
import re
def code():
    parts = re.findall(r"r-xp [^\\n]*libdnnl[^\\n]*\\n(.*?)VmFlags", open("/proc/self/smaps").read(), re.S)
    assert parts
    return sum(int(re.search(r"Rss: *(\\d+)", part)[1]) for part in parts)
before = code()
status, program = load(sys.argv[1])
assert status == 0
print(before, code())
""",
        tmp_path / "folder",
    )
    before, after = map(int, out.split())
    assert after < before / 4, (before, after)


@pytest.fixture(scope="module")
def folder_of_variants(tmp_path_factory):
    """With state, loops and branches, for several sizes."""
    path = tmp_path_factory.mktemp("exported") / "variants"
    net, total = m.Sequential(m.Linear(6, 16), m.ReLU(), m.Linear(16, 3)), wf.zeros((3,))

    def step(x):
        y = net(x)
        total[...] = total + F.sum(y, axis=0)
        double = lambda y: wf.while_loop(lambda s: F.sum(s) < 9, lambda s: s * 2 + 1, y, max_iterations=9)  # noqa: E731
        return wf.cond(F.sum(y) > 3, F.exp, double, y), total

    traced = wf.trace(step, dynamic={"x": 0})
    with wf.no_grad():
        traced(wf.ones((2, 6)))
        traced.export(path, target="native", sizes=[{"x": (n, 6)} for n in (2, 3, 5)])
    return path


@pytest.mark.parametrize("kind", ["folder", "folder_of_variants"])
def test_damaged_folders_are_errors(kind, request, tmp_path):
    """Each byte counts: truncated and changed files, and files that are missing or of another export."""
    folder = request.getfixturevalue(kind)
    body = """
import os, random, shutil
source, work, seed = sys.argv[1:]
draw = random.Random(int(seed))
for name in sorted(os.listdir(source)):
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
    assert in_a_process(body, folder, tmp_path / "work", SEED) == "done\n"


def test_what_cannot_be_exported_says_so(tmp_path):
    cases = [
        (lambda x: (x + 1, "text"), "returns something that is no array"),
        (lambda x: wf.linalg.cholesky(wf.eye(2) * x), "cholesky: its kernel has no form without Python"),
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
    folder = Path(library_path()).parent
    words = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: E731
    assert "python" not in words("readelf", "-d", folder / "libweft.so.1")
    headers = Path(info.c_flags().removeprefix("-I")) / "weft"
    texts = "".join((headers / name).read_text() for name in ("engine.h", "weft.h"))
    declared = re.findall(r"WEFT_API [^;]*?(weft_\w+)\(", texts)
    symbols = words("nm", "-D", "--defined-only", folder / "libweft.so.1").splitlines()
    exported = {line.split()[-1].split("@")[0] for line in symbols} - {"WEFT_1"}
    assert sorted(exported) == sorted(declared)
