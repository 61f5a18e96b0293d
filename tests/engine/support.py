"""What the engine tests share: gates, logs, roots of errors, scripts in processes of their own, leaks."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass

LIMIT_S = 30.0
"""How long anything that must happen may take before a test gives up; never how long a test takes."""

SOON_S = 0.05
"""How long a test watches that something which must not happen does not."""

TROUBLE = ("nanobind: leaked", "Fatal Python error", "terminate called", "Segmentation fault", "core dumped")
"""What no process that uses the engine may ever write."""


class Gate:
    """A door that engine functions wait at until the test opens it; it opens itself by failing, never by
    hanging.
    """

    def __init__(self):
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def open(self):
        self._open.set()

    @property
    def is_open(self):
        return self._open.is_set()

    def wait(self, *_):
        """Called by the function (or pushed as the function itself): says that it is here, then waits."""
        self._entered.release()
        if not self._open.wait(LIMIT_S):
            raise TimeoutError("nobody opened the gate")

    def wait_until_entered(self, limit_s=LIMIT_S):
        """Called by the test: waits until one more function stands at the gate."""
        assert self._entered.acquire(timeout=limit_s), "no function came to the gate"

    def entered_soon(self):
        """True if one more function comes to the gate within a short while; for what must not happen."""
        return self._entered.acquire(timeout=SOON_S)


class Signal(threading.Event):
    """An event that is also a function to push."""

    def __call__(self, *_):
        self.set()

    def wait_or_fail(self):
        assert self.wait(LIMIT_S), "it never happened"


def eventually(condition, limit_s=LIMIT_S):
    """Waits until condition() is true; for facts that no event tells, such as memory having been given
    back.
    """
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        gc.collect()
        time.sleep(0.002)
    return True


def thread_count():
    """Threads of this process, native ones included."""
    return len(os.listdir("/proc/self/task"))


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def line_here(offset=0):
    """'file.py:41' of the line that calls this, plus offset lines."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno + offset}"


def causes_of(error):
    """The original exceptions behind an EngineError or an EngineErrorGroup."""
    if isinstance(error, BaseExceptionGroup):
        return [e.__cause__ for e in error.exceptions]
    return [error.__cause__]


@dataclass
class Ended:
    """How a script ended."""

    status: int
    stdout: str
    stderr: str


def run_script(source, path, *, limit_s=60.0, env=None, expect_status=0, expect_stdout=None):
    """Runs Python source as a process of its own and checks how it ended.

    On a time limit the process is asked for the stacks of its threads and the test fails with them; its
    children die with it. expect_status=None accepts any end but a signal; expect_stdout is compared after
    stripping white space; a variable of env that is None is taken away.
    """
    path.write_text(textwrap.dedent(source))
    changes = {"PYTHONWARNINGS": "ignore::DeprecationWarning", **(env or {})}
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={name: value for name, value in {**os.environ, **changes}.items() if value is not None},
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        stdout, stderr = _stacks_and_end(process)
        raise AssertionError(f"not finished after {limit_s} s\n{stdout}\n{stderr}") from None
    told = f"status {process.returncode}\nstdout:\n{stdout}\nstderr:\n{stderr}"
    assert process.returncode >= 0, f"ended by {signal.Signals(-process.returncode).name}\n{told}"
    assert expect_status is None or process.returncode == expect_status, told
    assert not [words for words in TROUBLE if words in stderr], told
    if expect_stdout is not None:
        assert stdout.strip() == textwrap.dedent(expect_stdout).strip(), told
    return Ended(process.returncode, stdout, stderr)


def _stacks_and_end(process):
    process.send_signal(signal.SIGABRT)
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()
