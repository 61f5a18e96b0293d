import copy
import pickle
import threading

import pytest

from weft.base.device import Device, as_device, cpu, current_device, device, gpu
from weft.base.errors import DeviceError


def test_equal_devices_are_one_object():
    assert cpu(1) is Device("cpu", 1) is as_device("cpu:1")
    assert cpu(0) != cpu(1) != gpu(1)
    assert len({cpu(0), cpu(0), gpu(0), cpu(1)}) == 3


def test_text_forms():
    assert [repr(as_device(text)) for text in ("cpu", "cpu:3", "gpu", "gpu:2")] == [
        "cpu:0",
        "cpu:3",
        "gpu:0",
        "gpu:2",
    ]
    assert as_device(cpu(2)) is cpu(2)
    assert as_device(None) is current_device()


@pytest.mark.parametrize(
    "value", ["", "tpu", "cpu:", "cpu:x", "cpu:-1", "cpu:1 ", "CPU", "cpu:99999", 0, 1.5, ("cpu", 0)]
)
def test_other_forms_are_refused(value):
    with pytest.raises(DeviceError):
        as_device(value)


def test_the_error_lists_what_is_accepted():
    with pytest.raises(DeviceError, match=r"cannot read 'tpu:0'; accepted are a Device, None .*'cpu:1'"):
        as_device("tpu:0")
    with pytest.raises(DeviceError, match="kinds are cpu, gpu"):
        Device("tpu", 0)


@pytest.mark.parametrize("index", [-1, 65536, 1.0, True, "1", None])
def test_index_is_a_small_integer(index):
    with pytest.raises(DeviceError, match="from 0 to 65535"):
        cpu(index)


def test_immutable():
    with pytest.raises(AttributeError, match="immutable"):
        cpu(0).index = 1
    with pytest.raises(AttributeError, match="immutable"):
        del cpu(0).index
    assert cpu(0).index == 0


def test_copies_are_the_same_object():
    assert pickle.loads(pickle.dumps(cpu(1))) is cpu(1)
    assert copy.copy(gpu(1)) is copy.deepcopy(gpu(1)) is gpu(1)


def test_scopes_nest_and_end():
    assert current_device() is cpu(0)
    with device("cpu:1"):
        with device(cpu(2)) as inner:
            assert current_device() is inner is cpu(2)
        assert current_device() is cpu(1)
    assert current_device() is cpu(0)
    with pytest.raises(KeyError), device("cpu:1"):
        raise KeyError
    assert current_device() is cpu(0)


def test_a_bad_scope_is_refused_at_the_call():
    with pytest.raises(DeviceError):
        device("tpu")


def test_the_current_device_belongs_to_the_thread():
    seen = []
    with device("cpu:1"):
        thread = threading.Thread(target=lambda: seen.append(current_device()))
        thread.start()
        thread.join()
    assert seen == [cpu(0)]


def test_threads_agree_on_the_object():
    barrier = threading.Barrier(8)
    made = []

    def make():
        barrier.wait()
        made.append([cpu(index) for index in range(100, 400)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for devices in made for a, b in zip(devices, made[0], strict=True))
