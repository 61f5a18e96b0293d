"""NativeFunction: a C function void f(void* data) by its address; runs without the GIL."""

import ctypes
import gc
import threading
import weakref

import pytest

from weft import _core
from weft.engine import NativeFunction

from .support import LIMIT_S, eventually

testing = _core.testing
SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture(params=[False, True], ids=["queued", "cheap"])
def cheap(request):
    return request.param


def test_native_functions_get_their_data(engine, cheap):
    seen = []
    callback = SIGNATURE(seen.append)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    for data in (0, 1, 12345, (1 << 63) + 7):
        engine.push(NativeFunction(address, data, cheap=cheap), mutate_vars=[(v := engine.new_variable())])
        engine.wait_for_var(v)
    assert seen == [None, 1, 12345, (1 << 63) + 7]


def test_native_functions_of_a_c_library(engine, cheap):
    buffer = ctypes.create_string_buffer(b"3 1 2", 64)
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.strlen, ctypes.c_void_p).value
    v = engine.new_variable()
    engine.push(NativeFunction(address, ctypes.addressof(buffer), cheap=cheap, keep=buffer), const_vars=[v])
    engine.wait_for_all()


def test_native_functions_run_without_the_gil(make_engine):
    """While one spins, Python threads go on: their progress is counted, not timed."""
    engine = make_engine(workers=1)
    v, ticks = engine.new_variable(), 0
    engine.push(NativeFunction(testing.spin_us, 200_000), mutate_vars=[v])
    while v.version == 0 and ticks < 10_000_000:
        ticks += 1
    assert v.version == 1
    assert ticks > 1000


def test_native_functions_run_at_the_same_time_as_each_other(make_engine):
    """Two that wait for each other, with nothing but their memory in common."""
    engine = make_engine(workers=2)
    together = threading.Barrier(2)
    callback = SIGNATURE(lambda _: together.wait(LIMIT_S))
    fn = NativeFunction(ctypes.cast(callback, ctypes.c_void_p).value, keep=callback)
    engine.push(fn)
    engine.push(fn)
    engine.wait_for_all(timeout_s=LIMIT_S)
    assert not together.broken


def test_native_functions_have_names(engine, cheap):
    fn = NativeFunction(testing.throw_std, cheap=cheap, name="own name")
    v, w = engine.new_variable(), engine.new_variable()
    engine.push(fn, mutate_vars=[v])
    engine.push(fn, mutate_vars=[w], name="name of the push")
    names = []
    for it in (v, w):
        with pytest.raises(RuntimeError) as caught:
            engine.wait_for_var(it)
        names.append(caught.value.operation)
    assert names == ["own name", "name of the push"]


def test_native_functions_keep_what_they_need(threaded, gate):
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    v = threaded.new_variable()
    threaded.push(gate.wait, mutate_vars=[v])
    threaded.push(NativeFunction(testing.noop, keep=thing), mutate_vars=[v])
    del thing
    gc.collect()
    assert alive() is not None
    gate.open()
    threaded.wait_for_var(v)
    threaded.stop()
    assert eventually(lambda: alive() is None)


def test_native_functions_in_operators_and_bulks(engine, cheap):
    v = engine.new_variable()
    op = engine.new_operator(NativeFunction(testing.noop, cheap=cheap), mutate_vars=[v])
    with engine.bulk(8):
        for _ in range(50):
            engine.push(op)
            engine.push(NativeFunction(testing.noop, cheap=cheap), mutate_vars=[v])
    engine.wait_for_var(v)
    assert v.version == 100


def test_native_functions_refuse_address_0():
    with pytest.raises(ValueError, match="address"):
        NativeFunction(0)


@pytest.mark.parametrize("address", [-1, "0x1", None, 1.5, 1 << 64])
def test_native_functions_refuse_what_is_no_address(address):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        NativeFunction(address)


def test_native_functions_cannot_be_asynchronous(engine):
    for use in (
        lambda: engine.push_async(NativeFunction(testing.noop)),
        lambda: engine.new_operator(NativeFunction(testing.noop), is_async=True),
    ):
        with pytest.raises(TypeError, match="async"):
            use()
