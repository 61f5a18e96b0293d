"""Options and the list of known gaps, for all tests."""

import contextlib
import gc
import os
import sys
import threading
import zlib
from pathlib import Path

import pytest
from tests.fuzzing import SEED
from tests.on_device import (  # noqa: F401
    _on_the_device,
    choose_driver,
    current_device,
    pytest_make_collect_report,
    pytest_runtest_call,
)

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its threads open files while others count them


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")
    parser.addoption(
        "--levels", action="store_true", help="run the cross-section for a level of instructions, of WEFT_ISA"
    )
    parser.addoption(
        "--native",
        metavar="VARIANTS",
        default="",
        help="the builds of the native tests that run, with commas; a missing one fails",
    )
    parser.addoption(
        "--part", metavar="K/N", type=part, help="run the K-th of N parts of the tests, such as 1/4"
    )


# What says that a level of instructions works: operators, epilogues, counters, preparation, oneDNN, models.
CROSS_SECTION = (
    "tests/executor/test_preparation.py",
    "tests/expr/test_ahead.py",
    "tests/graph/test_epilogue.py",
    "tests/kernels/test_attention.py",
    "tests/examples/test_native_export.py",
    "tests/levels",
    "tests/models/test_counters.py",
    "tests/onednn",
    "tests/ops/test_every_op.py::test_value",
    "tests/ops/test_scopes.py",
)


def pytest_configure(config):
    choose_driver()
    if config.getoption("--levels"):
        config.args = [str(ROOT / path) for path in CROSS_SECTION]


def part(text):
    """(k, n) of "k/n", 1 <= k <= n."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError
    return k, n


def known_gaps():
    """Test id -> reason, from tests/known_gaps.txt."""
    lines = (ROOT / "tests" / "known_gaps.txt").read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return dict(pairs)


def keep_part(config, items):
    """By their names, so that a part is the same at every run, and holds some of every file."""
    k, n = config.getoption("--part")
    others = [item for item in items if zlib.crc32(item.nodeid.encode()) % n != k - 1]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % n == k - 1]


def keep_share(config, items):
    """Of the tests marked daily(n) one in n, by name and date, where the whole suite was asked for."""
    if config.getoption("--full") or not any(
        Path(arg).resolve() in (ROOT, ROOT / "tests") for arg in config.args
    ):
        return

    def is_due(item):
        mark = item.get_closest_marker("daily")
        return mark is None or (zlib.crc32(item.nodeid.encode()) + SEED) % mark.args[0] == 0

    due = [is_due(item) for item in items]
    config.hook.pytest_deselected(items=[item for item, now in zip(items, due, strict=True) if not now])
    items[:] = [item for item, now in zip(items, due, strict=True) if now]


def pytest_collection_modifyitems(config, items):
    if config.getoption("--part"):
        keep_part(config, items)
    keep_share(config, items)
    gaps = known_gaps()
    for item in items:
        if item.nodeid in gaps:
            item.add_marker(pytest.mark.xfail(reason=gaps[item.nodeid], strict=True))
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="long: runs with ./dev test --full"))


@pytest.fixture(autouse=True)
def _no_errors_of_others():
    """What a test leaves failed and unread is not raised in the next one that waits."""
    yield
    tensors = sys.modules.get("weft.arrays.tensor")
    if tensors is not None:
        with contextlib.suppress(Exception):
            tensors.waitall()


@pytest.fixture(scope="session")
def level():
    """The level of instructions that this process uses, as in WEFT_ISA: "sse4", "avx2" or "avx512"."""
    from weft import _core

    return _core.isa()[1]


@pytest.fixture
def in_threads():
    """in_threads(work, arguments): work(argument) for each, in threads that begin together; raises what one raised.

    The device of the tests is the current one there, too.
    """

    def call(work, arguments):
        arguments, errors = list(arguments), []
        together = threading.Barrier(len(arguments))

        def run(argument):
            try:
                together.wait()
                with current_device():
                    work(argument)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(argument,)) for argument in arguments]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    return call


def pytest_collection_finish():
    """Thousands of tests are millions of objects, which every gc.collect() of a test would walk through."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """End the engines of the tests here, so that nothing is written after the closing line."""
    from weft import _core

    _core.shut_down_engines(5.0)
