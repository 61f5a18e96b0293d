"""Every public function first called from four threads at once, in a fresh process with a tiny switch interval.

The calls are the examples of the documentation. First calls import modules, fill tables and make objects that are kept
for ever; what is not made for several threads hangs here, or finds a module that is only half imported.
"""

import doctest
import importlib
import pickle
import pkgutil
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4
LAZY = "weft.traces.lazy"  # failed as the first call, because nothing had set up the memory of arrays
MODULES = sorted(["weft", *(module.name for module in pkgutil.walk_packages(weft.__path__, "weft."))])
# Examples that set what all threads of a process share, or write a file of a fixed name.
SHARED_STATE = re.compile(
    r"seed\(|set_|\bsave\(|export\(|register|os\.|tempfile|open_|close_|memory|profile|naming|counters|@op\b|@op\("
)

PROGRAM = """
import faulthandler, importlib, pickle, sys, threading, traceback, warnings
faulthandler.dump_traceback_later({limit_s}, exit=True)
import weft
examples = pickle.load(sys.stdin.buffer)
warnings.simplefilter("ignore")
sys.displayhook = repr
print = lambda *arguments, **named: [str(each) for each in arguments]
sys.setswitchinterval(1e-6)
failures = []
for name, module, steps in examples:
    together = threading.Barrier({threads})

    def run():
        compiled = [(compile(source, name, "single"), fails) for source, fails in steps]
        together.wait()
        names = {{**vars(importlib.import_module(module)), "__name__": "__main__", "print": print}}
        for code, fails in compiled:
            try:
                exec(code, names)
            except Exception:
                if not fails:
                    failures.append(name + ": " + traceback.format_exc())

    threads = [threading.Thread(target=run) for _ in range({threads})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
sys.stdout.write("".join(failures))
"""


def examples():
    """(name, its module, [(source, whether it raises)]) of each documented object, sorted by name."""
    found = []
    for module in MODULES:
        for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module)):
            steps = [(step.source, step.exc_msg is not None) for step in test.examples]
            # What these two have looked up for others stays in them; its own module has the example.
            borrowed = module in ("weft", "weft.functional") and test.name != module
            if steps and not borrowed and not any(SHARED_STATE.search(source) for source, _ in steps):
                found.append((test.name, module, steps))
    return sorted(found)


def first_calls(batch, tmp_path, limit_s=100):
    """Runs a batch in a fresh process; what its threads raised."""
    program = PROGRAM.format(threads=THREADS, limit_s=limit_s)
    run = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(batch), capture_output=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()


# Each of these hung in a fresh process: the first use of what native code imports.
HANDWRITTEN = {
    "index": "x[[0, 1]]",
    "put": "x[[0]] = 1",
    "cast": "x.astype('int32')",
    "transpose": "import weft; weft.GradManager().attach(x); x.T; x.reshape(1, 4)",
    "tensor": "import weft; weft.tensor([x, x])",
    "sum": "x.sum()",
    "operators": "x @ x; x + 1; -x; x < 2",
    "device": "import weft; weft.zeros(3, device=weft.cpu(0), dtype='float64')",
}


@pytest.mark.parametrize("name", HANDWRITTEN)
def test_first_uses_of_native_code(name, tmp_path):
    steps = [("import weft; x = weft.ones(4)", False), (HANDWRITTEN[name], False)]
    assert first_calls([(name, "builtins", steps)], tmp_path) == ""


def test_an_operator_is_found_when_its_module_is_imported_to_the_end():
    """Its class may use what stands below it."""
    program = """if True:
        import threading
        import weft
        import weft.functional as F
        from weft.ops import registry

        register, half, called = registry.register, threading.Event(), threading.Event()
        def register_slowly(cls):
            register(cls)
            if cls.name == "interpolate":
                half.set()
                called.wait(0.5)  # where the other thread's call came through, which it must not
        registry.register = register_slowly
        importing = threading.Thread(target=lambda: F.interpolate)
        importing.start()
        half.wait()
        print(F.interpolate(weft.ones((1, 1, 2)), 4, mode="linear").shape)
        called.set()
        importing.join()
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "(1, 1, 4)\n", run.stderr


def test_arrays_and_values_have_all_their_attributes_from_the_start():
    """Whatever modules are imported later."""
    program = """if True:
        import importlib, pkgutil, weft
        weft.symbol.var("x")
        from weft.ops.node import Value
        first = [set(dir(kind)) for kind in (weft.Tensor, Value)]
        for module in pkgutil.walk_packages(weft.__path__, "weft."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        print([set(dir(kind)) - names for kind, names in zip((weft.Tensor, Value), first)])
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "[set(), set()]\n", run.stderr


def test_some_examples(tmp_path):
    some = [each for each in examples() if zlib.crc32(each[0].encode()) % 24 == 0]
    assert first_calls(some, tmp_path) == ""


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(24))
def test_all_examples(part, tmp_path):
    """One process for each of a third of them; a first call in a process that has called others is less of a first."""
    of_part = [each for each in examples() if zlib.crc32(each[0].encode()) % 24 == part]
    for start in range(0, len(of_part), 4):
        assert first_calls(of_part[start : start + 4], tmp_path) == ""


ALONE = """
import importlib, io, os, pickle, sys, warnings
import weft
examples = pickle.load(sys.stdin.buffer)
warnings.simplefilter("ignore")
for name, module, steps in examples:
    child = os.fork()
    if child == 0:
        report, sys.stdout = sys.stdout, io.StringIO()
        try:
            names = {**vars(importlib.import_module(module)), "__name__": "__main__"}
            for source, fails in steps:
                try:
                    exec(compile(source, name, "single"), names)
                except Exception:
                    if not fails:
                        raise
        except BaseException as error:
            print(f"{name}: {error!r}", file=report, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def alone(some, tmp_path):
    """Runs each example in a process of its own, which has imported weft and the example's module; what they raised."""
    run = subprocess.run(
        [sys.executable, "-c", ALONE], input=pickle.dumps(some), capture_output=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()


def test_some_examples_alone(tmp_path):
    some = [each for each in examples() if zlib.crc32(each[0].encode()) % 32 == 0 or each[0] == LAZY]
    assert len(some) > 10
    assert alone(some, tmp_path) == ""


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_all_examples_alone(tmp_path):
    assert alone(examples(), tmp_path) == ""


# A declaration with an initializer: after "=", or in braces. Functions have "(" after their name.
STATIC = re.compile(
    r"\s+static (?!constexpr|constinit|inline)([\w:<>,*& ]+?)((?:\[\w*\])*)(?: = |(?=\{))(.+)"
)


def test_no_static_of_the_bindings_has_an_initializer_that_runs():
    """It would run under a guard of C++'s, for which a second thread waits while it holds the GIL.

    Constants are not concerned (`constinit` has the compiler say so), nor are `new T` and tables of native functions.
    """
    found = []
    for path in sorted((ROOT / "native" / "bindings").glob("*.[ch]*")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = STATIC.match(line)
            if match is None or match[1].startswith("const TaskType "):
                continue
            if not re.fullmatch(r"new [\w:<>*]+;.*|[\w.]+;.*", match[3]):
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        '  static PyObject* const find = lasting("weft.ops.registry", "function");',
        '  static OperatorFunction& cast = OperatorFunction::named("cast");',
        "  static const std::string folder = [] {",
        '  static Imported find{"a", "b"};',
    ],
)
def test_the_forbidden_forms_are_recognized(line):
    match = STATIC.match(line)
    assert match
    assert not re.fullmatch(r"new [\w:<>*]+;.*|[\w.]+;.*", match[3])


def test_bound_functions_run_within_an_entry():
    """`def` and Class (bindings/python.h) see to it that a function that waits gives the GIL up."""
    bare = re.compile(r"\bm\.def\(|\bnb::class_<|PyModule_AddFunctions")
    found = {
        path.name: bare.findall(path.read_text())
        for path in sorted((ROOT / "native" / "bindings").glob("*.cpp"))
        if bare.search(path.read_text())
    }
    assert found == {"creation.cpp": ["PyModule_AddFunctions"]}  # these are `guarded`, like slots
