"""Tests on another device than the processor: WEFT_TEST_DEVICE=gpu:0 ./dev test PATHS.

Arrays are made there, since it is the current device of each test. Where there is no driver, the stand-in takes its
place. A test that fails because an operator has no kernel there, as the error says, counts as a gap:
tests/device/test_gaps.py lists those operators. One that is marked processor(reason) is left out.
"""

import contextlib
import ctypes
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEVICE = os.environ.get("WEFT_TEST_DEVICE", "")
NO_KERNEL = re.compile(r"^(\w+): (no kernel for these operands|there is no kernel for \w+:\d+)")


def standin():
    """The path of the stand-in for a GPU's driver."""
    return Path(os.environ.get("WEFT_GPU_STANDIN") or ROOT / "build/native-plain/libweft_standin_gpu.so")


def choose_driver():
    """Has gpu devices be the stand-in's where there is no driver."""
    if not DEVICE.startswith("gpu") or os.environ.get("WEFT_GPU_DRIVER"):
        return
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        os.environ["WEFT_GPU_DRIVER"] = str(standin())


def gap_of(error):
    """The operator that has no kernel, if that is what an error says; else ""."""
    if not isinstance(error, NotImplementedError | RuntimeError):
        return ""
    found = NO_KERNEL.match(str(error))
    return found[1] if found else ""


def current_device():
    """A context in which the device of the tests is the current one, for threads, which begin on cpu:0."""
    if not DEVICE:
        return contextlib.nullcontext()
    import weft as wf

    return wf.device(DEVICE)


@pytest.fixture(autouse=True)
def _on_the_device(request):
    if not DEVICE:
        yield
        return
    if mark := request.node.get_closest_marker("processor"):
        pytest.skip(f"the processor's own: {mark.args[0]}")
    with current_device():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Arrays that modules make when they are imported are there, too."""
    with current_device():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except Exception as error:
        if DEVICE and (name := gap_of(error)):
            pytest.xfail(f"{name}: no kernel on {DEVICE}")
        raise
