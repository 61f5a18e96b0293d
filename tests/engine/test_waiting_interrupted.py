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


LOOP = """
    import os, signal, sys, threading, time
    import weft as wf
    from weft.engine import Engine

    def endless(k, y):
        return k < 10**12

    first = wf.zeros((), dtype="int64")
    loop = wf.trace(lambda y: wf.while_loop(endless, lambda k, y: (k + 1, y * 1.0), first, y)[1])
"""


def test_ctrl_c_ends_a_loop_of_a_program(script):
    """What is computed after it goes on; that the loop did not end by itself is an error of its result."""
    script(
        LOOP
        + """
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    y = loop(wf.ones(4))
    try:
        y.wait()
    except KeyboardInterrupt:
        print("interrupted")
    try:
        y.wait()
    except wf.engine.EngineError as error:
        print("while_loop after" in str(error), "interrupted" in str(error))
    print((wf.ones(3) + 1).sum().item())
    """,
        expect_stdout="interrupted\nTrue True\n6.0",
    )


def test_ctrl_c_at_the_end_of_a_program_with_an_endless_loop(script):
    """The end waits for what can finish; Ctrl-C says that it need not wait for a loop."""
    script(
        LOOP
        + """
    y = loop(wf.ones(4))
    time.sleep(0.5)
    if os.fork() == 0:
        time.sleep(1.0)
        os.kill(os.getppid(), signal.SIGINT)
        os._exit(0)
    print("ends")
    """,
        expect_stdout="ends",
        limit_s=40,  # not the 60 s that the end waits for what finishes
    )


def test_a_loop_that_ends_soon_is_not_torn_by_ctrl_c(script):
    script(
        """
    import os, signal, threading
    import weft as wf

    first = wf.zeros((), dtype="int64")
    loop = wf.trace(lambda y: wf.while_loop(lambda k, y: k < 300000, lambda k, y: (k + 1, y + 1.0), first, y)[1])
    y = loop(wf.zeros(1))
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        y.wait()
        threading.Event().wait(1)
    except KeyboardInterrupt:
        pass
    print(y.item())
    """,
        expect_stdout="300000.0",
    )
