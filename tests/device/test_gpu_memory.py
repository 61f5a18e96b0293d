"""GPUs as a kind of device, behind the stand-in for the driver: its memory is none that the host can touch."""

import pytest

from .support import run, standin_path


@pytest.fixture(scope="module")
def standin():
    return standin_path()


@pytest.mark.parametrize("seed", ["1", *(pytest.param(s, marks=pytest.mark.full) for s in "02345678")])
def test_arrays(standin, seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu.py",
                 WEFT_GPU_DRIVER=standin, WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "switch", [{"WEFT_ENGINE": "naive"}, {"WEFT_SCHEDULE_SEED": "5"}], ids=["naive", "explore"]
)
def test_arrays_on_other_engines(standin, switch):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu.py",
                 "-k", "copies_between or to_device or fills", WEFT_GPU_DRIVER=standin, **switch)  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("/nowhere/libcuda.so", r"gpu:0 is not available: there is no driver: /nowhere/libcuda.so"),
        ("libm.so.6", r"gpu:0 is not available: the driver libm.so.6 has no function cuInit"),
    ],
)
def test_without_a_driver(driver, expected):
    program = "import weft as wf\nprint(wf.ones(1) + 1)\nwf.ones(1, device='gpu:0')"
    result = run("-c", program, WEFT_GPU_DRIVER=driver)
    assert "DeviceError" in result.stderr
    assert expected in result.stderr
    assert "2." in result.stdout


def test_the_driver_is_opened_when_a_gpu_is_used(standin):
    program = """
import weft as wf
maps = lambda: open("/proc/self/maps").read()
(wf.ones(3) + 1).numpy()
assert "standin_gpu" not in maps()
assert repr(wf.gpu(0)) == "gpu:0" and wf.Device("gpu", 1)
assert "standin_gpu" not in maps()
wf.ones(3, device="cuda")
assert "standin_gpu" in maps()
"""
    result = run("-c", program, WEFT_GPU_DRIVER=standin)
    assert result.returncode == 0, result.stderr


def test_the_host_cannot_touch_the_memory(standin):
    program = """
import ctypes, weft as wf
from weft import _core
wf.ones(1).wait()
x = _core.allocate_memory(64, "gpu:0")
print("touching", flush=True)
ctypes.string_at(x.address, 1)
"""
    result = run("-c", program, WEFT_GPU_DRIVER=standin)
    assert result.stdout == "touching\n"
    assert result.returncode == -11


def test_states_of_random_numbers_have_gpus_that_are_seeded_but_not_used(standin):
    program = """
import weft as wf
gpus = lambda: {name: state for name, state in wf.random.get_state().items() if name.startswith("gpu:")}
assert gpus() == {}
wf.random.seed(5, device="gpu:1")
state = wf.random.get_state()
assert gpus() == {"gpu:1": (5, 0, 0)}
wf.random.seed(1)
assert gpus() == {}
wf.random.set_state(state)
assert gpus() == {"gpu:1": (5, 0, 0)}
drawn = wf.random.uniform(shape=3, device="gpu:1").tolist()
assert list(gpus()) == ["gpu:1"] and gpus()["gpu:1"] != (5, 0, 0)
wf.random.seed(5, device="cpu:1")
assert drawn == wf.random.uniform(shape=3, device="cpu:1").tolist()
"""
    result = run("-c", program, WEFT_GPU_DRIVER=standin)
    assert result.returncode == 0, result.stderr
