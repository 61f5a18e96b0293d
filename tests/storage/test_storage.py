"""Memory of the devices: counted, limited, given back after its last use, and checked on demand."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import weft as wf
from weft import storage
from weft.base.dtype import DTYPES
from weft.base.errors import DeviceError, EngineError, ShapeError
from weft.engine import default_engine

KIB, MIB = 1 << 10, 1 << 20
LIMIT_S = 30.0
DEVICE = "cpu:9"
"""Where no other test has arrays."""

KEYS = [
    "in_use_bytes",
    "reserved_bytes",
    "peak_in_use_bytes",
    "peak_reserved_bytes",
    "allocations",
    "reused",
    "live_blocks",
    "largest_free_bytes",
]


@pytest.fixture(autouse=True)
def clean():
    """Each test begins and ends with nothing in use on DEVICE, and without a limit."""
    assert eventually(lambda: in_use() == 0)
    storage.trim(DEVICE)
    yield
    storage.set_limit(0, DEVICE)
    assert eventually(lambda: in_use() == 0)


@pytest.fixture
def gate():
    """Something for engine functions to wait for; open at the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def switch_seldom():
    """A Python thread runs until it blocks."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def in_use():
    return storage.stats(DEVICE)["in_use_bytes"]


def eventually(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        gc.collect()
        time.sleep(0.001)
    return True


def run(source, **env):
    """A process of its own, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
        env={**os.environ, "PYTHONWARNINGS": "error", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


# Counting.


def test_stats_are_numbers_of_one_device():
    before, others = storage.stats(DEVICE), storage.stats("cpu:8")
    x = wf.empty(1000, "int8", DEVICE)
    after = storage.stats(wf.cpu(9))
    assert list(after) == KEYS
    assert after["in_use_bytes"] == 1024, "rounded up to 64"
    assert after["live_blocks"] == 1
    assert after["allocations"] == before["allocations"] + 1
    assert storage.stats("cpu:8") == others
    assert storage.stats() == storage.stats("cpu:0")
    del x
    assert storage.stats(DEVICE)["live_blocks"] == 0


def test_stats_know_the_peaks_until_they_are_reset():
    x = wf.empty(MIB, "int8", DEVICE)
    y = wf.empty(3 * MIB, "int8", DEVICE)
    del y
    storage.trim(DEVICE)
    stats = storage.stats(DEVICE)
    assert stats["in_use_bytes"] == MIB
    assert stats["peak_in_use_bytes"] >= 4 * MIB
    assert stats["peak_reserved_bytes"] >= 4 * MIB > stats["reserved_bytes"]
    storage.reset_peaks(DEVICE)
    stats = storage.stats(DEVICE)
    assert stats["peak_in_use_bytes"] == MIB
    assert stats["peak_reserved_bytes"] == stats["reserved_bytes"]
    del x


def test_stats_count_memory_that_was_used_again():
    x = wf.empty(MIB, "int8", DEVICE)
    before = storage.stats(DEVICE)
    del x
    for _ in range(10):
        wf.empty(MIB, "int8", DEVICE)
    after = storage.stats(DEVICE)
    assert after["allocations"] - before["allocations"] == after["reused"] - before["reused"] == 10
    assert after["reserved_bytes"] == before["reserved_bytes"]


def test_stats_largest_free_is_what_needs_nothing_from_the_system():
    x = wf.empty(5 * MIB, "int8", DEVICE)
    del x
    stats = storage.stats(DEVICE)
    assert stats["largest_free_bytes"] >= 5 * MIB
    x = wf.empty(stats["largest_free_bytes"], "int8", DEVICE)
    assert storage.stats(DEVICE)["reserved_bytes"] == stats["reserved_bytes"]
    del x


def test_views_are_one_memory_that_lives_as_long_as_any():
    x = wf.zeros((100, 100), device=DEVICE)
    alone = in_use()
    views = [x[3], x.T, x[::2, ::-1], x.reshape(-1), wf.broadcast_to(x[0], (5, 100))]
    assert in_use() == alone
    del x
    for _ in range(4):
        views.pop()
        assert in_use() == alone
    views.clear()
    assert eventually(lambda: in_use() == 0)


@pytest.mark.parametrize("holder", ["numpy", "memoryview", "dlpack"])
def test_memory_lives_as_long_as_another_librarys_view(holder):
    x = wf.zeros(1000, device=DEVICE)
    if holder == "numpy":
        view = x.numpy()[10:][::2]
    elif holder == "memoryview":
        view = memoryview(x)[5:]
    else:
        view = np.from_dlpack(x)
    del x
    gc.collect()
    assert in_use() > 0
    assert np.asarray(view).sum() == 0
    del view
    assert eventually(lambda: in_use() == 0)


def test_trim_gives_back_what_is_unused_and_only_that():
    x = wf.full(MIB, 7, "int8", DEVICE)
    y = wf.empty(8 * MIB, "int8", DEVICE)
    z = wf.full(MIB, 9, "int8", DEVICE)
    del y
    before = storage.stats(DEVICE)["reserved_bytes"]
    given = storage.trim(DEVICE)
    after = storage.stats(DEVICE)["reserved_bytes"]
    assert given >= 7 * MIB
    assert before - after == given
    assert storage.trim(DEVICE) == 0
    assert (x.numpy() == 7).all()
    assert (z.numpy() == 9).all()
    del x, z


@pytest.mark.parametrize("dtype", [dtype.name for dtype in DTYPES])
def test_memory_is_aligned_to_cache_lines(dtype):
    for shape in ((), 1, 3, (5, 7), 1000, (300, 301)):
        x = wf.empty(shape, dtype, DEVICE)
        assert x.numpy().ctypes.data % 64 == 0


@pytest.mark.parametrize("shape", [0, (0,), (3, 0), (0, 2**40), (2**20, 0, 2**20)])
def test_arrays_without_elements_take_no_memory(shape):
    before = storage.stats(DEVICE)["allocations"]
    x = wf.zeros(shape, device=DEVICE)
    y = x.copy()
    y[...] = 1
    assert y.numpy().shape == x.shape
    assert x.nbytes == 0
    assert storage.stats(DEVICE)["allocations"] == before


# The last use.


@pytest.mark.daily(2)
@pytest.mark.parametrize("mode", ["const_vars", "mutate_vars", "overwrite_vars"])
@pytest.mark.parametrize("queue", ["compute", "io", "wide"])
def test_memory_returns_after_its_last_use_on_the_engine(gate, mode, queue):
    x = wf.empty(10 * KIB, "int8", DEVICE)
    entered = threading.Event()

    def hold(rc):
        entered.set()
        gate.wait(LIMIT_S)

    default_engine().push(hold, DEVICE, queue=queue, **{mode: [x]})
    gone = weakref.ref(x)
    del x
    assert gone() is None
    assert entered.wait(LIMIT_S)
    assert in_use() == 10 * KIB
    gate.set()
    assert eventually(lambda: in_use() == 0)


def test_memory_of_a_chain_of_operations_returns_step_by_step(gate):
    x = wf.ones(10 * KIB, "int8", DEVICE)
    default_engine().push(lambda rc: gate.wait(LIMIT_S), mutate_vars=[x], queue="io")
    for _ in range(5):
        x = x.copy()
    assert in_use() == 60 * KIB
    gate.set()
    assert int(x[-1]) == 1
    assert eventually(lambda: in_use() == 10 * KIB)


def test_memory_of_an_asynchronous_function_returns_when_it_completes():
    x = wf.ones(10 * KIB, "int8", DEVICE)
    completions, started = [], threading.Event()

    def begin(rc, on_complete):
        completions.append(on_complete)
        started.set()

    default_engine().push_async(begin, mutate_vars=[x])
    del x
    assert started.wait(LIMIT_S)
    assert in_use() == 10 * KIB
    completions.pop()()
    assert eventually(lambda: in_use() == 0)


def test_memory_of_an_operator_lives_as_long_as_the_operator():
    engine = default_engine()
    x = wf.ones(10 * KIB, "int8", DEVICE)
    operator = engine.new_operator(lambda rc: None, mutate_vars=[x])
    for _ in range(10):
        engine.push(operator)
    del x
    engine.wait_for_all()
    assert in_use() == 10 * KIB
    del operator
    assert eventually(lambda: in_use() == 0)


def test_memory_of_operations_that_failed_or_were_skipped_returns():
    engine = default_engine()
    x = wf.ones(10 * KIB, "int8", DEVICE)
    engine.push(lambda rc: 1 / 0, mutate_vars=[x])
    y = x.copy()
    y[3:] = x[3:]
    with pytest.raises(EngineError):
        y.wait()
    with pytest.raises(EngineError):
        engine.wait_for_all()
    del x, y
    assert eventually(lambda: in_use() == 0)


@pytest.mark.parametrize(
    "env", [{"WEFT_ENGINE": "naive"}, {"WEFT_SCHEDULE_SEED": "5"}, {"WEFT_CHECK": "1"}], ids=str
)
def test_memory_returns_with_every_engine(env):
    done = run(
        """
        import gc, time
        import weft as wf
        from weft import storage
        from weft.engine import default_engine
        x = wf.ones((100, 300))
        default_engine().push(lambda rc, x=x: x.numpy().sum(), const_vars=[x], overwrite_vars=[y := wf.empty(20)])
        for i in range(50):
            x[1:] = x[:-1].copy()
            z = x.T.copy() if i % 3 else y[::2]
        with default_engine().bulk(4):
            for i in range(20):
                y[:10] = y[10:]
                default_engine().push(lambda rc: None, const_vars=[z], mutate_vars=[x])
        del x, y, z
        default_engine().wait_for_all()
        end = time.monotonic() + 20
        while storage.stats()["in_use_bytes"] and time.monotonic() < end:
            gc.collect()
            time.sleep(0.001)
        print(storage.stats()["in_use_bytes"], storage.stats()["live_blocks"])
        storage.check()
        """,
        **env,
    )
    assert (done.stdout.strip(), done.stderr) == ("0 0", "")


# Limits.


def test_out_of_memory_names_the_sizes_and_changes_nothing():
    storage.set_limit(16 * MIB, DEVICE)
    kept = [wf.empty(4 * MIB, "int8", DEVICE), wf.full(2 * MIB, 3, "int8", DEVICE)]
    wf.waitall()
    before = storage.stats(DEVICE)
    with pytest.raises(
        MemoryError,
        match=r"^cpu:9: out of memory: 12\.0 MiB asked for; 6\.0 MiB in use by 2 blocks, largest 4\.0 MiB; "
        r"\d+\.\d MiB held from the system, limit 16\.0 MiB$",
    ):
        wf.empty(12 * MIB, "int8", DEVICE)
    after = storage.stats(DEVICE)
    for key in ("in_use_bytes", "live_blocks", "allocations", "peak_in_use_bytes"):
        assert after[key] == before[key]
    assert after["reserved_bytes"] <= before["reserved_bytes"]
    assert (kept[1].numpy() == 3).all()
    more = wf.ones(4 * MIB, "int8", DEVICE)
    assert int(more[-1]) == 1
    kept.clear()
    del more


def test_out_of_memory_raised_by_every_way_to_make_an_array():
    storage.set_limit(4 * MIB, DEVICE)
    small = wf.ones(MIB, "int8", DEVICE)
    wf.waitall()
    for make in (
        lambda x: wf.empty(8 * MIB, "int8", DEVICE),
        lambda x: wf.zeros(8 * MIB, "int8", DEVICE),
        lambda x: wf.full(8 * MIB, 2.5, "float64", DEVICE),
        lambda x: wf.arange(8 * MIB, device=DEVICE),
        lambda x: x.astype("float64"),
        lambda x: wf.broadcast_to(x, (100, MIB)).copy(),
        lambda x: wf.random.uniform(shape=8 * MIB, device=DEVICE),
        lambda x: wf.zeros(8 * MIB, "int8").to_device(DEVICE),
    ):
        with pytest.raises(MemoryError, match="cpu:9: out of memory"):
            make(small)
        assert storage.stats(DEVICE)["live_blocks"] == 1
    assert (small.numpy() == 1).all()
    del small


def hold_until(event, x, seen):
    """Pushes a function that holds x until the event, and notes that it ended."""
    entered = threading.Event()

    def hold(rc):
        entered.set()
        event.wait(LIMIT_S)
        seen.append("finished")

    default_engine().push(hold, DEVICE, const_vars=[x], queue="io")
    return entered


def test_an_allocation_waits_once_for_pending_operations_that_hold_memory(gate, switch_seldom):
    """The pending function goes on only when this thread lets go of the GIL, which it does by waiting."""
    storage.set_limit(12 * MIB, DEVICE)
    seen = []
    x = wf.empty(8 * MIB, "int8", DEVICE)
    entered = hold_until(gate, x, seen)
    del x
    assert entered.wait(LIMIT_S)
    gate.set()
    assert seen == []
    y = wf.ones(8 * MIB, "int8", DEVICE)
    assert seen == ["finished"]
    assert int(y[-1]) == 1
    assert storage.stats(DEVICE)["live_blocks"] == 1
    del y


def test_an_allocation_that_waiting_does_not_help_fails_after_it(gate, switch_seldom):
    storage.set_limit(12 * MIB, DEVICE)
    seen = []
    x = wf.empty(8 * MIB, "int8", DEVICE)
    entered = hold_until(gate, x, seen)
    assert entered.wait(LIMIT_S)
    gate.set()
    with pytest.raises(
        MemoryError, match=r"8\.0 MiB asked for; 8\.0 MiB in use by 1 blocks?, largest 8\.0 MiB"
    ):
        wf.empty(8 * MIB, "int8", DEVICE)
    assert seen == ["finished"]
    del x


def test_an_allocation_submits_what_a_bulk_has_collected():
    """Operations not submitted yet hold memory, too."""
    storage.set_limit(12 * MIB, DEVICE)
    with default_engine().bulk(1000):
        x = wf.empty(8 * MIB, "int8", DEVICE)
        default_engine().push(lambda rc: None, DEVICE, const_vars=[x])
        del x
        assert in_use() == 8 * MIB
        y = wf.empty(8 * MIB, "int8", DEVICE)
    assert in_use() == 8 * MIB
    del y


def test_an_allocation_inside_a_function_fails_without_waiting():
    """It would wait for itself."""
    storage.set_limit(4 * MIB, DEVICE)
    x = wf.zeros(10, device=DEVICE)
    default_engine().push(lambda rc: wf.empty(8 * MIB, "int8", DEVICE), mutate_vars=[x], name="greedy")
    with pytest.raises(EngineError) as caught:
        x.wait()
    assert caught.value.operation == "greedy"
    assert isinstance(caught.value.__cause__, MemoryError)
    default_engine().clear_error(x)
    del x, caught


def test_an_allocation_does_not_raise_what_the_operations_it_waits_for_raise(gate):
    storage.set_limit(12 * MIB, DEVICE)
    x, v = wf.empty(8 * MIB, "int8", DEVICE), wf.zeros(3)

    def fail(rc):
        gate.wait(LIMIT_S)
        raise ValueError("planned")

    default_engine().push(fail, DEVICE, const_vars=[x], mutate_vars=[v], queue="io")
    del x
    gate.set()
    y = wf.empty(8 * MIB, "int8", DEVICE)
    with pytest.raises(EngineError, match="planned"):
        v.wait()
    default_engine().clear_error(v)
    del y


@pytest.mark.parametrize("env", [{"WEFT_ENGINE": "naive"}, {"WEFT_SCHEDULE_SEED": "3"}], ids=str)
def test_limits_hold_with_every_engine(env):
    done = run(
        """
        import weft as wf
        from weft import storage
        from weft.engine import default_engine
        storage.set_limit(12 << 20)
        for i in range(30):
            x = wf.zeros(8 << 20, "int8")
            default_engine().push(lambda rc: None, const_vars=[x])
            del x
        x = wf.zeros(8 << 20, "int8")
        try:
            wf.zeros(8 << 20, "int8")
        except MemoryError as error:
            print(str(error).partition(";")[0], storage.stats()["live_blocks"], int(x[-1]))
        """,
        **env,
    )
    assert done.stdout.strip() == "cpu:0: out of memory: 8.0 MiB asked for 1 0"
    assert done.stderr == ""


def test_a_lower_limit_gives_back_what_is_unused_and_leaves_what_is_in_use():
    x = wf.full(4 * MIB, 5, "int8", DEVICE)
    wf.empty(32 * MIB, "int8", DEVICE)
    wf.waitall()
    assert storage.stats(DEVICE)["reserved_bytes"] >= 36 * MIB
    storage.set_limit(MIB, DEVICE)
    assert storage.stats(DEVICE)["reserved_bytes"] <= 8 * MIB
    assert (x.numpy() == 5).all()
    with pytest.raises(MemoryError, match=r"limit 1\.0 MiB"):
        wf.empty(8 * MIB, "int8", DEVICE)
    storage.set_limit(0, DEVICE)
    y = wf.empty(8 * MIB, "int8", DEVICE)
    del x, y


def test_limits_are_those_of_one_device():
    storage.set_limit(MIB, DEVICE)
    x = wf.empty(4 * MIB, "int8", "cpu:8")
    assert x.nbytes == 4 * MIB


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        (2**50, MemoryError),
        (2**61 - 1, MemoryError),
        ((2**20, 2**20, 2**10), MemoryError),
        (2**62, ShapeError),
        ((2**40, 2**40), ShapeError),
        ((0, 2**40, 2**40), ShapeError),
        ((2**31,) * 16, ShapeError),
        (-1, ShapeError),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [wf.empty, wf.zeros, wf.random.uniform], ids=["empty", "zeros", "uniform"])
def test_absurd_sizes_are_refused_and_take_nothing(make, shape, error):
    state = wf.random.get_state()
    before, pushed = storage.stats(DEVICE), default_engine().stats()["pushed"]
    with pytest.raises(error, match="cpu:9: out of memory" if error is MemoryError else "^shape: "):
        make(shape=shape, device=DEVICE)
    after = storage.stats(DEVICE)
    assert after == {
        **before,
        "reserved_bytes": after["reserved_bytes"],
        "largest_free_bytes": after["largest_free_bytes"],
    }
    assert default_engine().stats()["pushed"] == pushed
    assert wf.random.get_state() == state


def test_devices_and_numbers_that_are_none_are_refused():
    for function in (storage.stats, storage.trim, storage.reset_peaks, storage.check):
        with pytest.raises(DeviceError, match="gpu:0"):
            function("gpu:0")
        with pytest.raises(DeviceError, match="cpu:64"):
            function("cpu:64")
    with pytest.raises(ValueError, match=r"^set_limit: size_bytes must be at least 0, got -1$"):
        storage.set_limit(-1)
    with pytest.raises(TypeError):
        storage.set_limit("1 GB")


# Checking.

FIND = """
    import ctypes, os, sys
    import weft as wf
    from weft import storage

    def address(x):
        return x.numpy().ctypes.data

    def check(device=None):
        sys.stderr.flush()
        try:
            storage.check(device)
        except wf.EngineError as error:
            print(error, file=sys.stderr)
        else:
            print("clean", file=sys.stderr)
"""


def found(body, **env):
    """What a program that misuses memory writes to stderr."""
    source = textwrap.dedent(FIND) + textwrap.dedent(body)
    return run(source, **{"WEFT_CHECK": "1", **env}).stderr.splitlines()


ONE = "check: 1 writes outside of arrays or after their release; stderr names them"


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (-1, "before its start, first at offset -1"),
        (-64, "before its start, first at offset -64"),
        (40, "after its end, first at offset 40"),
        (63, "after its end, first at offset 63"),
        (100, "after its end, first at offset 100"),
    ],
)
def test_check_finds_a_write_outside_of_an_array_and_tells_once(offset, what):
    lines = found(
        f"""
        x = wf.zeros(10)
        check()
        ctypes.memset(address(x) + {offset}, 7, 1)
        check()
        check()
        """
    )
    assert lines[0] == "clean"
    assert lines[1].startswith("cpu:0: block 0x")
    assert lines[1].endswith(f" of 40 bytes: written {what}")
    assert lines[2:] == [ONE, "clean"]


def test_check_finds_a_write_into_released_memory():
    lines = found(
        """
        x = wf.zeros(1000, device="cpu:2")
        released = address(x)
        del x
        check("cpu:2")
        ctypes.memset(released + 5, 1, 3)
        check()
        check("cpu:2")
        check("cpu:2")
        """
    )
    assert lines[:2] == ["clean", "clean"], "the write lies on another device than cpu:0"
    assert lines[2].startswith("cpu:2: block 0x")
    assert lines[2].endswith(" of 3.9 KiB: written after its release, first at offset 5")
    assert lines[3:] == [ONE, "clean"]


def test_check_looks_when_memory_is_released():
    lines = found(
        """
        x = wf.zeros(10)
        ctypes.memset(address(x) + 40, 7, 1)
        del x
        check()
        """
    )
    assert len(lines) == 2
    assert lines[0].endswith(": written after its end, first at offset 40")
    assert lines[1] == "clean"


def test_check_looks_at_the_end_of_the_process():
    lines = found(
        """
        x, y = wf.zeros(10), wf.zeros(3, device="cpu:5")
        released = wf.zeros(1000)
        inside = address(released)
        del released
        for wrong in (address(x) - 1, address(y) + 12, inside):
            ctypes.memset(wrong, 7, 1)
        """
    )
    told = sorted((line.partition(": block")[0], line.partition(": written ")[2]) for line in lines)
    assert told == [
        ("cpu:0", "after its release, first at offset 0"),
        ("cpu:0", "before its start, first at offset -1"),
        ("cpu:5", "after its end, first at offset 12"),
    ]


def test_check_finds_a_write_of_an_engine_function_outside_of_its_array():
    lines = found(
        """
        from weft.engine import default_engine
        x = wf.zeros(10)
        where = address(x)
        default_engine().push(lambda rc: ctypes.memset(where, 0, 48), mutate_vars=[x])
        x.wait()
        check()
        """
    )
    assert lines[0].endswith(": written after its end, first at offset 40")
    assert lines[1] == ONE


def test_check_finds_nothing_where_nothing_is_wrong():
    assert (
        found(
            """
            for n in (0, 1, 63, 64, 65, 1000, 100000, 3000000):
                x = wf.zeros(n, "int8")
                x.numpy()[...] = -1
                y = x.astype("float32")
                y[::2] = 3
                if n:
                    memoryview(y)[n - 1] = 7.0
                del x
            wf.random.uniform(shape=(100, 1000)).wait()
            wf.random.permutation(1000).wait()
            storage.check()
            """
        )
        == []
    )


def test_check_does_nothing_without_the_mode():
    assert found("x = wf.zeros(3); ctypes.memset(address(x) + 12, 7, 1); check()", WEFT_CHECK="0") == [
        "clean"
    ]


# Access from engine functions.

READS = {
    "numpy": lambda x: x.numpy(),
    "item": lambda x: x.item(),
    "float": float,
    "int": int,
    "bool": bool,
    "memoryview": memoryview,
    "memory": lambda x: x.memory(),
    "wait": lambda x: x.wait(),
    "repr": repr,
    "numpy.asarray": np.asarray,
    "numpy.from_dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("name", READS)
def test_functions_cannot_read_what_they_did_not_declare(name):
    read, x, done = READS[name], wf.ones(1), wf.zeros(1)

    def peek(rc):
        read(x)

    default_engine().push(peek, mutate_vars=[done], name="peek at x")
    with pytest.raises(EngineError, match="engine function 'peek at x'") as caught:
        done.wait()
    assert caught.value.operation == "peek at x"
    assert "test_storage.py:" in caught.value.where
    assert "declare" in str(caught.value)
    assert isinstance(caught.value.__cause__, EngineError)
    default_engine().clear_error(done)
    assert x.item() == 1


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("mode", ["const_vars", "mutate_vars"])
def test_functions_read_what_they_declared(name, mode):
    read, x, seen = READS[name], wf.ones(1), []
    default_engine().push(lambda rc: seen.append(read(x)), **{mode: [x]})
    wf.waitall()
    assert len(seen) == 1


def test_functions_get_read_only_arrays_of_what_they_declared_to_read():
    x, y, flags = wf.zeros(4), wf.zeros(4), []

    def look(rc):
        flags.extend(t.numpy().flags.writeable for t in (x, y, x[1:], y[1:]))
        flags.extend(memoryview(t).readonly for t in (x, y))
        y.numpy()[1] = 5
        with pytest.raises(ValueError, match="read-only"):
            x.numpy()[0] = 5
        with pytest.raises(TypeError, match="read-only"):
            memoryview(x)[0] = 5.0

    default_engine().push(look, const_vars=[x], mutate_vars=[y])
    assert y.numpy().tolist() == [0, 5, 0, 0]
    assert flags == [False, True, False, True, True, False]
    assert x.numpy().flags.writeable, "outside of functions it is as ever"


def test_functions_that_write_what_they_declared_to_read_fail():
    x, done = wf.zeros(4), wf.zeros(1)

    def scribble(rc):
        x.numpy()[0] = 5

    default_engine().push(scribble, const_vars=[x], mutate_vars=[done])
    with pytest.raises(EngineError, match="read-only") as caught:
        done.wait()
    assert caught.value.operation.endswith("scribble")
    assert x.numpy().tolist() == [0, 0, 0, 0]
    default_engine().clear_error(done)


@pytest.mark.parametrize(
    "env",
    [
        {"WEFT_CHECK": "1"},
        {"WEFT_CHECK": "1", "WEFT_ENGINE": "naive"},
        {"WEFT_ENGINE": "naive"},
        {"WEFT_SCHEDULE_SEED": "2"},
    ],
    ids=str,
)
def test_undeclared_access_is_found_with_every_engine(env):
    done = run(
        """
        import weft as wf
        from weft.engine import default_engine
        x, y, z = wf.ones(3), wf.zeros(1), wf.zeros(1)
        def peek(rc):
            x.numpy()
        default_engine().push(peek, mutate_vars=[y])
        default_engine().push(peek, const_vars=[x], mutate_vars=[z])
        try:
            y.item()
        except wf.EngineError as error:
            print(error.operation, error.where.rpartition(":")[2], "'peek'" in str(error), z.item())
        try:
            wf.waitall()
        except wf.EngineError as error:
            print(error.operation)
        """,
        **env,
    )
    assert done.stdout.splitlines() == ["peek 7 True 0.0", "peek"]
    assert done.stderr == ""
