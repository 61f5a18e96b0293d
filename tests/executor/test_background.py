"""Code of programs that threads make ahead, several of them at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base import flags
from weft.executor import background
from weft.expr import compiler
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.scalar import load

LIMIT_S = 60


@pytest.fixture
def cold(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def misses():
    return _core.program_counters()["loop_misses"]


@pytest.mark.processor("other devices make their code when they are launched")
@pytest.mark.skipif(flags.get("WEFT_ENGINE") == "naive", reason="its calls make their code themselves")
def test_the_second_call_finds_its_code(cold):
    f = wf.trace(lambda x: (F.sin(x) * 3.375 + F.cos(x)).sum(axis=0) / 7.625, lazy=False)
    x = wf.ones((33, 5))
    first = f(x)
    background.wait()
    before = misses()
    assert f(x).numpy().tolist() == first.numpy().tolist()
    assert misses() == before


def test_a_first_call_compiles_what_the_program_runs(cold):
    """And not each operation for itself."""
    f = wf.trace(lambda x: F.tanh(x * 1.21875) - F.sigmoid(x + 4.46875) * x)
    before = misses()
    y = f(wf.ones((7, 9)))
    y.wait()
    background.wait()
    assert misses() - before == 1


def test_threads_are_in_the_compiler_together(cold, monkeypatch):
    """Each waits there for the other: one after the other they would never get on."""
    together = threading.Barrier(2, timeout=LIMIT_S)
    emitted = compiler.emitted

    def waiting(module, machine):
        together.wait()
        return emitted(module, machine)

    monkeypatch.setattr(compiler, "emitted", waiting)
    x = load(0, "float32")
    kernels = [
        Kernel("both", 1, (Operand("float32"),) * 2, (Each((Store(1, x * number),)),))
        for number in (9.40625, 17.40625)
    ]
    with ThreadPoolExecutor(2) as pool:
        assert all(made.address for made in pool.map(compiler.compile_kernel, kernels))


def test_the_one_that_fails_leaves_it_to_the_next(cold, monkeypatch):
    """A thread that waits for another one's code makes it, if the other cannot."""
    tools = compiler._toolchain()
    begun, go_on = threading.Event(), threading.Event()
    compile_text, calls = tools.compile, []

    def failing(text):
        calls.append(text)
        if len(calls) > 1:
            return compile_text(text)
        begun.set()
        assert go_on.wait(LIMIT_S)
        raise MemoryError

    monkeypatch.setattr(tools, "compile", failing)
    x = load(0, "float32")
    kernel = Kernel("next", 1, (Operand("float32"),) * 2, (Each((Store(1, x * 5.28125),)),))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(compiler.compile_kernel, kernel)
        assert begun.wait(LIMIT_S)
        second = pool.submit(compiler.compile_kernel, kernel)
        go_on.set()
        with pytest.raises(MemoryError):
            first.result(LIMIT_S)
        assert second.result(LIMIT_S).address
    assert len(calls) == 2


def test_sizes_share_code(cold):
    """Means over rows of different lengths."""
    x = wf.ones((40, 24))
    f = wf.trace(lambda x: F.mean(x * 1.34375, axis=1))
    f(x).wait()
    before = misses()
    g = wf.trace(lambda x: F.mean(x * 1.34375, axis=1))
    g(wf.ones((40, 56))).wait()
    background.wait()
    assert misses() == before


@pytest.mark.skipif(flags.get("WEFT_ENGINE") == "naive", reason="its calls make their code themselves")
def test_threads_begin_at_the_last_step(monkeypatch):
    """The call that runs the program begins at the first one, so that the two do not wait for each other's code."""
    monkeypatch.setattr(background, "_thread_count", lambda: 1)
    steps = []

    class Plan:
        class info:
            work = ("first", "second", "third")

        def bind_ahead(self, step):
            steps.append(step)
            return True

    background.wait()
    background.make_ahead(Plan())
    background.wait()
    assert steps == [2, 1, 0]
