"""Memory without a shape: handles of the pool, and memory that processes share."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import weakref

import numpy as np
import pytest

import weft as wf
from weft import storage
from weft.engine import Engine, default_engine

DEVICE = "cpu:11"
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def clean():
    yield
    gc.collect()
    assert storage.stats(DEVICE)["in_use_bytes"] == 0


def test_a_handle():
    memory = storage.alloc(1000, DEVICE)
    assert (memory.size_bytes, memory.device, memory.freed) == (1000, wf.cpu(11), False)
    assert memory.address % 64 == 0
    assert storage.stats(DEVICE)["in_use_bytes"] == 1024
    array = np.frombuffer(memory, "int16")
    array[:] = 3
    assert array.ctypes.data == memory.address
    assert bytes(memoryview(memory)[:4]) == b"\3\0\3\0"
    with pytest.raises(BufferError, match="free: 1 buffers show the memory"):
        storage.free(memory)
    del array
    storage.free(memory)
    assert (memory.freed, memory.address) == (True, 0)
    assert storage.stats(DEVICE)["in_use_bytes"] == 0
    with pytest.raises(ValueError, match="free: the memory has been freed already"):
        memory.free()
    with pytest.raises(BufferError, match="Memory: it has been freed"):
        memoryview(memory)
    with pytest.raises(ValueError, match="the memory has been freed"):
        default_engine().push(lambda rc: None, const_vars=[memory])


def test_memory_is_reused_and_ends_with_its_last_reference():
    first = storage.alloc(1 << 20, DEVICE)
    address = first.address
    storage.free(first)
    again = storage.alloc(1 << 20, DEVICE)
    assert again.address == address
    gone = weakref.ref(again)
    view = memoryview(again)
    del again
    assert gone() is not None  # the view keeps it
    del view
    assert gone() is None
    assert storage.stats(DEVICE)["in_use_bytes"] == 0


def test_direct_free_gives_back_to_the_system():
    memory = storage.alloc(8 << 20, DEVICE)
    memoryview(memory)[:] = bytes(8 << 20)
    before = storage.stats(DEVICE)["reserved_bytes"]
    storage.direct_free(memory)
    assert storage.stats(DEVICE)["reserved_bytes"] <= before - (8 << 20)


def test_sizes_and_errors():
    assert storage.alloc(0, DEVICE).size_bytes == 0
    assert bytes(storage.alloc(0, DEVICE)) == b""
    with pytest.raises(ValueError, match="size_bytes must be at least 0, got -1"):
        storage.alloc(-1)
    with pytest.raises(TypeError):
        storage.alloc(1.5)
    with pytest.raises(TypeError, match=r"free: expected a Memory made by alloc\(\), got Tensor"):
        storage.free(wf.ones(2))
    storage.set_limit(1 << 20, DEVICE)
    try:
        with pytest.raises(MemoryError, match="cpu:11: out of memory"):
            storage.alloc(2 << 20, DEVICE)
    finally:
        storage.set_limit(0, DEVICE)


def test_the_engine_keeps_what_it_uses():
    gate, seen = threading.Event(), []

    def use(rc):
        assert gate.wait(LIMIT_S)
        seen.append(storage.stats(DEVICE)["in_use_bytes"])

    memory = storage.alloc(64, DEVICE)
    engine = default_engine()
    if engine.kind == "naive":
        gate.set()
    engine.push(use, mutate_vars=[memory])
    engine.push(lambda rc: seen.append("after"), const_vars=[memory])
    if engine.kind != "naive":
        storage.free(memory)  # the operations still use it
    gate.set()
    wf.waitall()
    assert seen == [64, "after"]
    with Engine(workers=1) as other, pytest.raises(wf.EngineError, match="another engine"):
        other.push(lambda rc: None, const_vars=[storage.alloc(8, DEVICE)])


def _other_process(name, connection):
    memory = storage.attach_shared(name)
    array = np.frombuffer(memory.buffer, "int64")
    connection.send(array.sum())
    array[:] = 7
    connection.send("written")
    connection.recv()


def test_processes_share_memory():
    memory = storage.alloc_shared(80)
    array = np.frombuffer(memory.buffer, "int64")
    assert array.tolist() == [0] * 10
    array[:] = range(10)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_other_process, args=(memory.name, there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == 45
        assert here.recv() == "written"
        assert array.tolist() == [7] * 10
        x = wf.asarray(array)  # no copy
        array[0] = 1
        assert x[0].item() == 1
        del x
    finally:
        here.send("end")
        process.join(60)
    assert process.exitcode == 0
    del array
    memory.free()
    assert memory.freed
    with pytest.raises(ValueError, match="it has been freed"):
        memory.buffer  # noqa: B018


def test_shared_memory_is_found_only_while_it_is_held():
    memory = storage.alloc_shared(16)
    name, again = memory.name, pickle.loads(pickle.dumps(memory))
    memoryview(again.buffer)[:4] = b"abcd"
    assert bytes(memory.buffer[:4]) == b"abcd"
    view = memory.buffer
    with pytest.raises(BufferError):
        memory.free()
    view.release()
    memory.free()
    assert bytes(again.buffer[:4]) == b"abcd"  # it lives as long as one holds it
    with pytest.raises(ValueError, match="is not held any more"):
        storage.attach_shared(name)
    for wrong in ("", "1.2", "../../etc/passwd", 7, None):
        with pytest.raises(ValueError, match="is not a name of shared memory"):
            storage.attach_shared(wrong)
    with pytest.raises(ValueError, match="at least 0"):
        storage.alloc_shared(-1)
    assert bytes(storage.alloc_shared(0).buffer) == b""


def test_a_killed_process_leaves_nothing():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        memory = storage.alloc_shared(4096)
        os.write(write, memory.name.encode())
        signal.pause()
        os._exit(0)
    os.close(write)
    name = os.read(read, 200).decode()
    os.close(read)
    held = storage.attach_shared(name)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert held.size_bytes == 4096
    with pytest.raises(ValueError, match="is not held any more"):
        storage.attach_shared(name)
