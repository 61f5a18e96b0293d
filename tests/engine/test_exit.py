"""Interpreter exit with any work pending: no abort, no deadlock, pending work is finished, no leaks are
reported.
"""

import pytest

KINDS = ["threaded", "naive"]

HEAD = """
    import atexit, os, sys, threading, time
    from weft.engine import Engine, NativeFunction, default_engine
    engine = Engine(kind={kind!r}, workers=2)
    v = engine.new_variable()
"""


def run(script, kind, body, **options):
    head = HEAD.format(kind=kind)
    return script(head + body, **{"expect_status": 0, **options})


@pytest.mark.parametrize("kind", KINDS)
def test_exit_finishes_pending_functions(script, kind):
    ended = run(
        script,
        kind,
        """
    ran = []
    def fn(rc):
        time.sleep(0.001)
        ran.append(1)
        if len(ran) == 200:
            os.write(1, b"all 200")
    for _ in range(200):
        engine.push(fn, mutate_vars=[v])
    """,
    )
    assert ended.stdout == "all 200"


@pytest.mark.parametrize("kind", KINDS)
def test_exit_finishes_pending_asynchronous_functions(script, kind):
    run(
        script,
        kind,
        """
    import queue

    started = queue.SimpleQueue()
    def complete():  # on a thread that is there: from Python 3.12 on none can be started at the end
        while True:
            on_complete = started.get()
            time.sleep(0.05)
            on_complete()
    threading.Thread(target=complete, daemon=True).start()
    def fn(rc, on_complete):
        started.put(on_complete)
    for _ in range(5):
        engine.push_async(fn, mutate_vars=[v])
    engine.push(lambda rc: os.write(1, b"after"), const_vars=[v])
    """,
        expect_stdout="after",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_finishes_asynchronous_functions_that_have_started(script, kind):
    run(
        script,
        kind,
        """
    left = list(range(5))
    def fn(rc, on_complete):
        left.pop()
        threading.Timer(0.1, on_complete).start()
    for _ in range(5):
        engine.push_async(fn, const_vars=[v])
    engine.push(lambda rc: os.write(1, b"after"), mutate_vars=[v])
    while left:
        time.sleep(0.001)
    """,
        expect_stdout="after",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_gives_up_asynchronous_functions_that_nobody_completes(script, kind):
    """Those that depend on them never run."""
    run(
        script,
        kind,
        """
    kept = []
    engine.push_async(lambda rc, on_complete: kept.append(on_complete), mutate_vars=[v])
    engine.push(lambda rc: os.write(1, b"must not run"), const_vars=[v])
    engine.push(lambda rc: os.write(1, b"must run"))
    """,
        expect_stdout="must run",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_completing_late_does_no_harm(script, kind):
    """on_complete called by atexit functions, daemon threads and destructors while the process ends."""
    run(
        script,
        kind,
        """
    kept = []
    for _ in range(50):
        v = engine.new_variable()
        engine.push_async(lambda rc, on_complete: kept.append(on_complete), mutate_vars=[v])
    while len(kept) < 50:
        time.sleep(0.001)
    def complete_some():
        for _ in range(5):
            kept.pop()()
    atexit.register(complete_some)
    def forever():
        while kept:
            try:
                kept.pop()()
            except Exception:
                pass
            time.sleep(0.01)
    threading.Thread(target=forever, daemon=True).start()
    class AtTheEnd:
        def __del__(self, kept=kept):
            try:
                kept.pop()()
            except Exception:
                pass
    at_the_end = AtTheEnd()
    """,
    )


def test_exit_waits_for_a_function_that_an_atexit_function_lets_go(script):
    run(
        script,
        "threaded",
        """
    gate = threading.Event()
    def fn(rc):
        gate.wait(20)
        os.write(1, b"finished")
    engine.push(fn, mutate_vars=[v])
    atexit.register(gate.set)
    """,
        expect_stdout="finished",
    )


@pytest.mark.parametrize("how", ["event", "sleep", "input", "loop"])
def test_exit_does_not_hang_on_a_function_that_never_ends(script, how):
    body = {
        "event": "threading.Event().wait()",
        "sleep": "time.sleep(1000)",
        "input": "os.read(os.pipe()[0], 1)",
        "loop": "[0 for _ in iter(int, 1)]",
    }[how]
    run(
        script,
        "threaded",
        f"""
    started = threading.Event()
    def fn(rc):
        started.set()
        {body}
    engine.push(fn, mutate_vars=[v])
    engine.push(lambda rc: os.write(1, b"must not run"), const_vars=[v])
    started.wait()
    """,
        env={"WEFT_EXIT_TIMEOUT_S": "0.5"},
        expect_stdout="",
    )


def test_exit_does_not_hang_on_a_native_function_that_lasts(script):
    run(
        script,
        "threaded",
        """
    from weft import _core
    engine.push(NativeFunction(_core.testing.spin_us, 1000 * 1000 * 1000))
    time.sleep(0.1)
    """,
        env={"WEFT_EXIT_TIMEOUT_S": "0.5"},
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["sync", "async", "bulk", "native", "base", "cleared"])
def test_exit_with_failing_work(script, kind, how):
    """A failure that nobody waited for neither changes the status nor ends the process in another way."""
    body = {
        "sync": "for _ in range(50): engine.push(fail, mutate_vars=[v])",
        "async": "for _ in range(50): engine.push_async(complete, mutate_vars=[v])",
        "bulk": "with engine.bulk(16): [engine.push(fail, mutate_vars=[v]) for _ in range(50)]",
        "native": "for _ in range(50): engine.push(native, overwrite_vars=[v])",
        "base": "for error in (SystemExit(3), KeyboardInterrupt()): engine.push(raising(error))",
        "cleared": "for _ in range(2): engine.push(fail, mutate_vars=[v]); engine.clear_error(v)",
    }[how]
    run(
        script,
        kind,
        f"""
    from weft import _core
    native = NativeFunction(_core.testing.throw_int)
    def raising(error):
        def fail(rc):
            raise error
        return fail
    fail = raising(ValueError("planned"))
    def complete(rc, on_complete):
        on_complete(ValueError("planned"))
    {body}
    """,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "how", ["sys.exit(7)", "raise SystemExit(7)", "atexit.register(print, 'end'); sys.exit(7)"]
)
def test_exit_by_sys_exit_in_the_middle(script, kind, how):
    run(
        script,
        kind,
        f"""
    done = []
    for _ in range(100):
        engine.push(lambda rc: (time.sleep(0.0005), done.append(1)), mutate_vars=[v])
    with engine.bulk(8):
        engine.push(lambda rc: os.write(1, b"done" if len(done) == 100 else b"early"), mutate_vars=[v])
        {how}
    """,
        expect_status=7,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_by_an_uncaught_exception(script, kind):
    ended = run(
        script,
        kind,
        """
    for _ in range(100):
        engine.push(lambda rc: time.sleep(0.0005), mutate_vars=[v])
    engine.push(lambda rc: 1 / 0, mutate_vars=[v])
    engine.wait_for_all()
    """,
        expect_status=1,
    )
    assert "EngineError" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_exit_by_os_exit(script):
    run(
        script,
        "threaded",
        """
    engine.push(lambda rc: threading.Event().wait())
    os._exit(5)
    """,
        expect_status=5,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_from_sys_exit_in_a_function(script, kind):
    """It fails that function, and nothing else."""
    run(
        script,
        kind,
        """
    engine.push(lambda rc: sys.exit(9), mutate_vars=[v])
    try:
        engine.wait_for_var(v)
    except Exception as error:
        print(type(error).__name__, repr(error.__cause__))
    """,
        expect_stdout="EngineError SystemExit(9)",
    )


def test_exit_while_threads_push(script):
    """Ordinary threads are joined first; daemon threads are caught in the middle of whatever they do."""
    run(
        script,
        "threaded",
        """
    def push(n):
        try:
            for _ in range(n):
                engine.push(lambda rc: None, mutate_vars=[v])
                w = engine.new_variable()
                engine.push(lambda rc: None, mutate_vars=[w], const_vars=[v])
                del w
        except Exception:
            pass
    for n in (3000, 3000):
        threading.Thread(target=push, args=(n,)).start()
    for n in (1 << 60, 1 << 60):
        threading.Thread(target=push, args=(n,), daemon=True).start()
    """,
        env={"WEFT_EXIT_TIMEOUT_S": "3"},
    )


@pytest.mark.parametrize("attempt", range(12))
def test_exit_while_threads_wait(script, attempt):
    """Daemon threads come out of their waits while the interpreter ends; it is a race, so often."""
    run(
        script,
        "threaded",
        """
    kept = []
    engine.push_async(lambda rc, on_complete: kept.append(on_complete), mutate_vars=[v])
    def wait(for_all):
        try:
            engine.wait_for_all() if for_all else engine.wait_for_var(v)
        except Exception:
            pass
    for i in range(4):
        threading.Thread(target=wait, args=(i % 2,), daemon=True).start()
    time.sleep(0.1)
    """,
    )


def test_exit_from_a_thread_that_made_the_engine(script):
    run(
        script,
        "threaded",
        """
    def work():
        e = Engine(workers=2)
        for _ in range(100):
            e.push(lambda rc: time.sleep(0.0005))
        default_engine().push(lambda rc: os.write(1, b"done"))
    threading.Thread(target=work).start()
    """,
        expect_stdout="done",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_pushing_in_atexit_functions(script, kind):
    """Those registered after the engine's own run before it, with the engine at work."""
    run(
        script,
        kind,
        """
    def last():
        engine.push(lambda rc: os.write(1, b"ran "), mutate_vars=[v])
        engine.wait_for_var(v)
        os.write(1, b"version %d" % v.version)
    atexit.register(last)
    """,
        expect_stdout="ran version 1",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_using_the_engine_after_its_end_is_refused(script, kind):
    """An atexit function registered before the engine was imported runs after the engine's own."""
    script(
        f"""
        import atexit, os
        def late():
            try:
                engine.push(lambda rc: os.write(1, b"ran"))
                os.write(1, b"accepted")
            except Exception as error:
                os.write(1, type(error).__name__.encode())
        atexit.register(late)
        from weft.engine import Engine
        engine = Engine(kind={kind!r})
        """,
        expect_stdout="EngineError",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_exit_with_everything_held_in_globals_and_cycles(script, kind):
    """Nothing that Python still holds at the end makes nanobind report leaks."""
    ended = run(
        script,
        kind,
        """
    class Holder: pass
    holder = Holder()
    holder.me, holder.engine, holder.v = holder, engine, v
    holder.op = engine.new_operator(lambda rc: holder, mutate_vars=[v], name="op")
    holder.native = NativeFunction(1, keep=holder)
    engine.push(lambda rc: setattr(holder, "rc", rc), mutate_vars=[v])
    engine.push_async(lambda rc, on_complete: setattr(holder, "on_complete", on_complete))
    engine.push(holder.op)
    class Observer:
        def __init__(self): self.engine = engine
        def on_push(self, record): self.record = record
    engine.add_observer(Observer())
    engine.push(lambda rc: 1 / 0, mutate_vars=[holder.v])
    try:
        engine.wait_for_var(v)
    except Exception as error:
        holder.error = error
    default_engine().push(lambda rc: None)
    """,
    )
    assert "leak" not in ended.stderr


def test_exit_after_nothing_at_all(script):
    for source in (
        "import weft.engine",
        "from weft.engine import Engine; Engine()",
        "from weft.engine import Engine; e = Engine()",
    ):
        ended = script(source, expect_stdout="")
        assert ended.stderr == ""


def test_exit_quietly_after_ordinary_work(script):
    ended = script(
        """
        from weft.engine import Engine
        e = Engine(workers=2)
        v = e.new_variable()
        for _ in range(100):
            e.push(lambda rc: None, mutate_vars=[v])
        e.wait_for_all()
        e.stop()
        """,
        expect_stdout="",
    )
    assert ended.stderr == ""


@pytest.mark.parametrize("kind", KINDS)
def test_exit_many_engines_created_and_dropped(script, kind):
    run(
        script,
        kind,
        """
    count = lambda: len(os.listdir("/proc/self/task"))
    before, ran = count(), []
    for i in range(100):
        e = Engine(kind=engine.kind, workers=2)
        w = e.new_variable()
        for _ in range(20):
            e.push(lambda rc: ran.append(1), mutate_vars=[w], queue=("compute", "io")[i % 2])
        if i % 3 == 0:
            e.stop()
        del e, w
    end = time.monotonic() + 30
    while (len(ran) < 2000 or count() > before) and time.monotonic() < end:
        time.sleep(0.01)
    print(len(ran), count() <= before)
    """,
        expect_stdout="2000 True",
    )


def test_exit_many_engines_all_with_work_pending(script):
    run(
        script,
        "threaded",
        """
    engines = [Engine(workers=1) for _ in range(20)]
    lock, left = threading.Lock(), [400]
    def fn(rc):
        time.sleep(0.0005)
        with lock:
            left[0] -= 1
            if left[0] == 0:
                os.write(1, b"all")
    for e in engines:
        for _ in range(20):
            e.push(fn)
    """,
        expect_stdout="all",
    )


def test_exit_an_engine_dropped_with_work_pending_finishes_it(script):
    run(
        script,
        "threaded",
        """
    e, ran = Engine(workers=1), []
    w = e.new_variable()
    for _ in range(100):
        e.push(lambda rc: (time.sleep(0.0005), ran.append(1)), mutate_vars=[w])
    del e, w
    end = time.monotonic() + 30
    while len(ran) < 100 and time.monotonic() < end:
        time.sleep(0.01)
    print(len(ran))
    """,
        expect_stdout="100",
    )


def test_exit_an_engine_dropped_inside_its_own_function(script):
    run(
        script,
        "threaded",
        """
    holder, done = [Engine(workers=2)], threading.Event()
    def fn(rc):
        holder.clear()
        done.set()
    holder[0].push(fn)
    print(done.wait(20))
    """,
        expect_stdout="True",
    )


def test_exit_of_a_subinterpreter_free_thread_pool(script):
    """Pushing from the threads of a pool that is shut down at exit as well."""
    run(
        script,
        "threaded",
        """
    from concurrent.futures import ThreadPoolExecutor
    pool, ran = ThreadPoolExecutor(4), []
    for i in range(100):
        pool.submit(engine.push, lambda rc: ran.append(1), mutate_vars=[v])
    atexit.register(lambda: (engine.wait_for_all(), os.write(1, b"%d" % len(ran))))
    """,
        expect_stdout="100",
    )
