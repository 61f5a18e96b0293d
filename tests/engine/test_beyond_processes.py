"""What a program may do to its process without a hang or lost work: fork, signals, exit, refused threads, quotas."""

import os
import shutil
import subprocess
import textwrap

import pytest

from weft import _core

# pthread_create fails while $NO_THREADS names a file that exists.
NO_THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
typedef int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  const char *switched = getenv("NO_THREADS");
  if (switched && access(switched, F_OK) == 0) return EAGAIN;
  return ((create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
}
"""


@pytest.fixture(scope="module")
def no_threads(tmp_path_factory):
    """The environment of a process that gets no thread while the file of the second result exists."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("no_threads")
    (folder / "refuse.c").write_text(NO_THREADS)
    library, switch = folder / "refuse.so", folder / "refused"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, folder / "refuse.c", "-ldl", "-pthread"], check=True
    )
    return {"LD_PRELOAD": str(library), "NO_THREADS": str(switch)}


def test_a_parallel_region_runs_without_a_thread(script, no_threads):
    script(
        """
        import os, weft as wf
        open(os.environ["NO_THREADS"], "w").close()
        print(wf.ones(4_000_000).sum().item(), wf.ones((2000, 2000)).sum(axis=0).max().item())
        """,
        env={**no_threads, "WEFT_ENGINE": "naive", "WEFT_NUM_THREADS": "4"},
        expect_status=0,
        expect_stdout="4000000.0 2000.0",
    )


def test_a_wait_for_work_that_gets_no_thread_raises_and_can_be_repeated(script, no_threads):
    script(
        """
        import os, weft as wf
        from weft.base.errors import EngineError
        from weft.engine import Engine
        engine = Engine()
        a, b, ran = engine.new_variable(), engine.new_variable(), []
        switch = os.environ["NO_THREADS"]
        open(switch, "w").close()
        engine.push(lambda rc: ran.append("wide"), mutate_vars=[a], queue="wide")
        engine.push(lambda rc: ran.append("compute"), mutate_vars=[b], queue="compute")
        try:
            engine.wait_for_all()
        except EngineError as error:
            print("refuses to start a thread" in str(error), ran)
        os.remove(switch)
        engine.wait_for_all(timeout_s=60)
        print(sorted(ran))
        """,
        env=no_threads,
        expect_status=0,
        expect_stdout="True []\n['compute', 'wide']",
    )


def test_code_is_made_before_a_region_begins(script, tmp_path):
    """Making it takes the GIL, which the thread that waits for the region's end may hold."""
    script(
        """
        import weft as wf
        print(wf.ones(4_000_003).sum().item(), (wf.ones(4_000_000) * 2).max().item())
        """,
        env={"WEFT_ENGINE": "naive", "WEFT_NUM_THREADS": "4", "WEFT_CACHE_DIR": str(tmp_path)},
        expect_status=0,
        expect_stdout="4000003.0 2.0",
    )


@pytest.mark.parametrize(
    "call",
    [
        "import weft.random",
        "_core.seed_all(3)",
        "_core.get_generator('cpu:0')",
        "_core.set_generator('cpu:0', 1, 2, 3)",
    ],
)
def test_functions_that_wait_give_up_the_gil(script, tmp_path, call):
    script(
        f"""
        import weft as wf
        from weft import _core
        x = wf.ones(4_000_000); wf.waitall()
        with wf.lazy():
            y = x.sum()
            {call}
        print(y.item())
        """,
        env={"WEFT_CACHE_DIR": str(tmp_path)},
        expect_status=0,
        expect_stdout="4000000.0",
    )


def test_an_interrupt_while_code_is_made_is_neither_lost_nor_the_operations_failure(script, tmp_path):
    """A handler runs on the main thread; it would run inside of the compiler, which the operation calls."""
    script(
        """
        import os, signal
        import weft as wf, weft.functional as F
        from weft.expr import compiler
        made = compiler.compile_kernel
        pushed = []
        def interrupted(kernel):
            if pushed:
                pushed.clear()
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): pass  # a main thread would run the handler here
            return made(kernel)
        compiler.compile_kernel = interrupted
        for f in (F.asinh, F.mish, F.selu):
            w = wf.ones((3, 4))
            pushed.append(True)
            try:
                w -= f(w) * 0.1
                w.wait()
                while pushed: pass
                for _ in range(1000): pass
                print("lost")
            except KeyboardInterrupt:
                print("raised", w.numpy().shape)
        """,
        env={"WEFT_CACHE_DIR": str(tmp_path)},
        expect_status=0,
        expect_stdout="raised (3, 4)\n" * 3,
    )


def test_functions_registered_at_exit_after_the_import_may_use_arrays(script):
    script(
        """
        import atexit, weft as wf
        atexit.register(lambda: print((w * 2).numpy()))
        w = wf.ones(3)
        """,
        expect_status=0,
        expect_stdout="[2. 2. 2.]",
    )


def test_a_fork_waits_for_modules_that_other_threads_import(script, tmp_path):
    """The child would inherit the lock of a module whose importing thread it does not have."""
    package = tmp_path / "slow"
    package.mkdir()
    (package / "slow.py").write_text(
        textwrap.dedent("""
        import sys, time
        sys.begun.set()
        sys.go_on.wait(0.5)
        value = 7
        """)
    )
    script(
        """
        import os, sys, threading
        import weft as wf
        wf.__path__.append(os.environ["SLOW"])
        sys.begun, sys.go_on = threading.Event(), threading.Event()
        def use():
            import weft.slow
        thread = threading.Thread(target=use); thread.start()
        sys.begun.wait()
        pid = os.fork()
        if pid == 0:
            import weft.slow
            (wf.ones((5, 5)) @ wf.ones((5, 5))).sum().item()
            os._exit(weft.slow.value)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        thread.join()
        """,
        env={"SLOW": str(package)},
        expect_status=0,
        expect_stdout="7",
    )


def test_forks_beside_threads_that_use_everything_first(script, tmp_path):
    script(
        """
        import os, threading
        import weft as wf
        def use():
            x = wf.random.normal(shape=(50, 50))
            for _ in range(10):
                x = wf.functional.softmax((x @ x) * 0.01, axis=0)
            x.wait()
        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                (wf.ones((50, 50)) @ wf.ones((50, 50))).sum().item()
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        for thread in threads: thread.join()
        """,
        env={"WEFT_CACHE_DIR": str(tmp_path)},
        expect_status=0,
        expect_stdout="0\n0\n0",
    )


CORES = (
    "import weft as wf; from weft import _core; from weft.engine import default_engine; wf.ones(3).wait(); "
)
WIDTHS = CORES + "print(_core.usable_cores(), default_engine().workers, _core.set_team_size(1))"


def test_one_variable_bounds_workers_and_parallel_regions(script):
    script(WIDTHS, env={"WEFT_NUM_THREADS": "3"}, expect_status=0, expect_stdout="3 3 3")


def test_the_affinity_mask_bounds_workers_and_parallel_regions(script):
    one = min(os.sched_getaffinity(0))
    narrow = f"import os; os.sched_setaffinity(0, [{one}]); "
    script(narrow + WIDTHS, env={"WEFT_NUM_THREADS": None}, expect_status=0, expect_stdout="1 1 1")


def test_control_groups_bound_cores_and_memory(tmp_path):
    for group, quota, memory in (
        ("", "max 100000", "max"),
        ("a", "150000 100000", "max"),
        ("a/b", "max 100000", "4096"),
    ):
        folder = tmp_path / "v2" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(quota + "\n")
        (folder / "memory.max").write_text(memory + "\n")
    bounds = _core.testing.control_group_bounds
    assert bounds(str(tmp_path / "v2"), "0::/a/b\n") == (1.5, 4096)
    assert bounds(str(tmp_path / "v2"), "0::/a\n") == (1.5, 0)
    assert bounds(str(tmp_path / "v2"), "0::/elsewhere\n") == (0, 0)
    first = {
        "cpu/c/cpu.cfs_quota_us": "200000",
        "cpu/c/cpu.cfs_period_us": "100000",
        "memory/m/memory.limit_in_bytes": "123",
    }
    for name, text in first.items():
        (tmp_path / "v1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "v1" / name).write_text(text + "\n")
    membership = "3:memory:/m\n2:cpu,cpuacct:/c\n"
    assert bounds(str(tmp_path / "v1"), membership) == (2, 123)
    (tmp_path / "v1/cpu/c/cpu.cfs_quota_us").write_text("-1\n")
    assert bounds(str(tmp_path / "v1"), membership) == (0, 123)
    assert bounds(str(tmp_path / "none"), "") == (0, 0)
