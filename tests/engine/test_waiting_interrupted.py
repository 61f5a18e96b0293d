"""Ctrl-C ends a wait and a push that is held back; the engine works on."""

import pytest

SCRIPT = """
    import os, signal, sys, threading
    from weft.engine import Engine

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
    engine = Engine(kind={kind!r}, workers=1)
    v, callbacks, started = engine.new_variable(), [], threading.Event()

    def fn(rc, on_complete):
        callbacks.append(on_complete)
        started.set()

    engine.push_async(fn, mutate_vars=[v])
    started.wait()
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        {wait}
        print("returned")
    except KeyboardInterrupt:
        print("interrupted")
    callbacks.pop()()
    engine.wait_for_var(v)
    engine.wait_for_all()
    engine.stop()
    print(v.version)
"""


@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.parametrize(
    "wait",
    [
        "engine.wait_for_var(v)",
        "engine.wait_for_var(v, writes_only=True)",
        "engine.wait_for_all()",
        "engine.wait_for_all(100)",
        "engine.stop()",
    ],
)
def test_waiting_ends_with_ctrl_c(script, kind, wait):
    script(SCRIPT.format(kind=kind, wait=wait), expect_stdout="interrupted\n1")


def test_waiting_runs_signal_handlers_that_do_not_raise(script):
    """A signal handler in Python runs during the wait, which then goes on."""
    script(
        """
        import os, signal, threading
        from weft.engine import Engine

        engine = Engine(workers=1)
        v, callbacks = engine.new_variable(), []
        engine.push_async(lambda rc, on_complete: callbacks.append(on_complete), mutate_vars=[v])

        def handler(number, frame):
            print("handled")
            callbacks.pop()()

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        engine.wait_for_var(v)
        print(v.version)
        """,
        expect_stdout="handled\n1",
    )


def test_waiting_for_room_ends_with_ctrl_c(script):
    """A push that back-pressure holds back is interrupted as well."""
    script(
        """
        import os, signal, threading
        from weft.engine import Engine

        signal.signal(signal.SIGINT, signal.default_int_handler)
        engine = Engine(workers=1, max_pending=10)
        gate = threading.Event()
        ran = []
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            engine.push(lambda rc: gate.wait())
            for i in range(100):
                engine.push(lambda rc, i=i: ran.append(i))
            print("pushed all")
        except KeyboardInterrupt:
            print("interrupted", i < 20)
        gate.set()
        engine.wait_for_all()
        engine.push(lambda rc: print("works"))
        engine.stop()
        """,
        expect_stdout="interrupted True\nworks",
    )
