"""Fork: the engine comes to rest first; the child has a working, idle engine, and so has the parent still."""

import os
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

HEAD = """\
    import multiprocessing, os, sys, threading, time, traceback, warnings
    from concurrent.futures import Future
    from weft.engine import Engine, default_engine
    warnings.simplefilter("ignore")

    def work(e, n=50):
        # Pushes and waits; True if all went well.
        w, ran = e.new_variable(), []
        for i in range(n):
            e.push(lambda rc, i=i: ran.append(i), mutate_vars=[w], queue=("compute", "io", "priority")[i % 3])
            e.push_async(lambda rc, on_complete: on_complete(), const_vars=[w])
        e.wait_for_var(w, timeout_s=20)
        e.wait_for_all(timeout_s=20)
        return ran == list(range(n)) and w.version == n

    def forked(in_child):
        # Runs in_child in a forked process and returns its exit status.
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = 0 if in_child() else 2
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    engine = Engine(kind={kind!r}, workers=2)
    v = engine.new_variable()
"""

KINDS = ["threaded", "naive"]


def program(kind, body):
    return textwrap.dedent(HEAD).format(kind=kind) + textwrap.dedent(body)


@pytest.fixture(params=KINDS)
def fork(request, script):
    def run(body, expect_stdout, **options):
        options["env"] = {"WEFT_FORK_TIMEOUT_S": "20", **options.get("env", {})}
        return script(program(request.param, body), expect_stdout=expect_stdout, **options)

    run.kind = request.param
    return run


def test_fork_before_any_work(fork):
    fork("print(forked(lambda: work(engine)), work(engine))", "0 True")


def test_fork_after_work(fork):
    fork(
        """
    work(engine)
    print(forked(lambda: work(engine)), work(engine), forked(lambda: work(engine)), work(engine))
    """,
        "0 True 0 True",
    )


def test_fork_with_work_pending(fork):
    """What can finish is finished before the fork, so parent and child see it done."""
    fork(
        """
    ran = []
    for i in range(200):
        engine.push(lambda rc, i=i: (time.sleep(0.0005), ran.append(i)), mutate_vars=[v])
    def child():
        engine.wait_for_var(v, timeout_s=20)
        return ran == list(range(200)) and v.version == 200 and work(engine)
    print(forked(child))
    engine.wait_for_var(v)
    print(ran == list(range(200)), work(engine))
    """,
        "0\nTrue True",
    )


def test_fork_many_times(fork):
    fork(
        """
    statuses = []
    for i in range(20):
        for _ in range(30):
            engine.push(lambda rc: None, mutate_vars=[v])
        statuses.append(forked(lambda: v.version == 30 * (i + 1) and work(engine, 10)))
    engine.wait_for_var(v)
    print(statuses == [0] * 20, v.version)
    """,
        "True 600",
    )


def test_fork_of_a_fork(fork):
    fork(
        """
    work(engine)
    def grandchild():
        return work(engine)
    def child():
        return work(engine) and forked(grandchild) == 0 and work(engine)
    print(forked(child), work(engine))
    """,
        "0 True",
    )


def test_fork_child_that_exits_in_the_ordinary_way(fork):
    """The child runs its own atexit functions and destructors, with work of its own pending."""
    fork(
        """
    work(engine)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        for _ in range(50):
            engine.push(lambda rc: time.sleep(0.0005), mutate_vars=[v])
        w = Engine(workers=2).new_variable()
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), work(engine))
    """,
        "3 True",
    )


def test_fork_with_an_asynchronous_function_pending(fork):
    """It goes on in the parent; in the child, where nobody can complete it, it has failed."""
    fork(
        """
    kept = []
    engine.push_async(lambda rc, on_complete: kept.append(on_complete), mutate_vars=[v], name="download")
    while not kept:
        time.sleep(0.001)
    w = engine.new_variable()
    engine.push(lambda rc: None, const_vars=[v], mutate_vars=[w])
    def child():
        for it in (v, w):
            try:
                engine.wait_for_var(it, timeout_s=20)
            except TimeoutError:
                raise
            except Exception as error:
                if type(error).__name__ != "EngineError": raise
            else:
                return False
        engine.clear_error(v)
        engine.push(lambda rc: None, mutate_vars=[v])
        engine.wait_for_var(v, timeout_s=20)
        return work(engine)
    print(forked(child))
    kept.pop()()
    engine.wait_for_all(timeout_s=20)
    print(v.version, w.version, work(engine))
    """,
        "0\n1 1 True",
    )


def test_fork_completing_in_the_child_what_the_parent_began(fork):
    """It is refused or ignored there, and does no harm to either."""
    fork(
        """
    kept = []
    engine.push_async(lambda rc, on_complete: kept.append(on_complete), mutate_vars=[v])
    while not kept:
        time.sleep(0.001)
    def child():
        try:
            kept[0]()
        except Exception as error:
            if type(error).__name__ != "EngineError": raise
        kept.clear()
        return work(engine)
    print(forked(child))
    kept.pop()()
    engine.wait_for_var(v, timeout_s=20)
    print(v.version, work(engine))
    """,
        "0\n1 True",
    )


@pytest.mark.parametrize("push", ["push", "push_async"])
def test_fork_waits_for_on_done(fork, push):
    """What waits for a callback, a Future for example, would wait for ever in the child: no thread there calls it."""
    fork(
        f"""
    begun, future, completions = threading.Event(), Future(), []
    def on_done(error):
        begun.set()
        time.sleep(0.2)
        future.set_result(error)
    def push_it():
        {{
            "push": lambda: engine.push(lambda rc: None, mutate_vars=[v], on_done=on_done),
            "push_async": lambda: engine.push_async(
                lambda rc, on_complete: completions.append(on_complete), mutate_vars=[v], on_done=on_done
            ),
        }}[{push!r}]()
        while {push!r} == "push_async" and not completions:
            time.sleep(0.001)
        for on_complete in completions:
            on_complete()
    thread = threading.Thread(target=push_it)
    thread.start()
    begun.wait(20)
    print(forked(lambda: future.done() and future.result() is None and work(engine)), work(engine))
    thread.join()
    """,
        "0 True",
    )


def test_fork_while_a_function_runs_that_does_not_end(script):
    """The wait before the fork is bounded (WEFT_FORK_TIMEOUT_S); in the child that operation has failed."""
    script(
        program(
            "threaded",
            """
    gate, started, w = threading.Event(), threading.Event(), engine.new_variable()
    def fn(rc):
        started.set()
        gate.wait(30)
    engine.push(fn, mutate_vars=[v])
    engine.push(lambda rc: None, const_vars=[v], mutate_vars=[w])
    started.wait()
    def child():
        for it in (v, w):
            try:
                engine.wait_for_var(it, timeout_s=20)
            except TimeoutError:
                raise
            except Exception as error:
                if type(error).__name__ != "EngineError": raise
            else:
                return False
        return work(engine)
    print(forked(child))
    gate.set()
    engine.wait_for_all(timeout_s=20)
    print(v.version, w.version, work(engine))
    """,
        ),
        env={"WEFT_FORK_TIMEOUT_S": "0.3"},
        expect_stdout="0\n1 1 True",
    )


def test_fork_keeps_versions_and_poison(fork):
    fork(
        """
    w = engine.new_variable()
    for _ in range(7):
        engine.push(lambda rc: None, mutate_vars=[w])
    engine.push(lambda rc: 1 / 0, mutate_vars=[v], name="divide")
    def check():
        engine.wait_for_var(w, timeout_s=20)
        try:
            engine.wait_for_var(v, timeout_s=20)
        except Exception as error:
            return (error.operation, type(error.__cause__), w.version) == ("divide", ZeroDivisionError, 7)
    print(forked(check), check())
    """,
        "0 True",
    )


def test_fork_with_operators_observers_and_many_engines(fork):
    fork(
        """
    engines = [Engine(kind=engine.kind, workers=1) for _ in range(5)] + [default_engine()]
    class Observer:
        seen = []
        def on_end(self, record): self.seen.append(record.operation)
    engine.add_observer(Observer())
    op = engine.new_operator(lambda rc: None, mutate_vars=[v], name="op")
    for _ in range(10):
        engine.push(op)
        for e in engines: e.push(lambda rc: None)
    def child():
        engine.push(op)
        engine.wait_for_var(v, timeout_s=20)
        engine.stop(timeout_s=20)
        return v.version == 11 and len(Observer.seen) == 11 and all(work(e, 5) for e in engines)
    print(forked(child))
    engine.push(op)
    print(work(engine), v.version)
    """,
        "0\nTrue 11",
    )


def test_fork_of_a_stopped_engine(fork):
    fork(
        """
    work(engine)
    engine.stop()
    def child():
        assert not engine.running
        engine.start()
        return work(engine)
    print(forked(child), engine.running)
    engine.start()
    print(work(engine))
    """,
        "0 False\nTrue",
    )


def test_fork_child_stops_and_drops_engines(fork):
    fork(
        """
    engines = [Engine(kind=engine.kind, workers=2) for _ in range(3)]
    for e in engines: work(e)
    def child():
        global engine
        engines[0].stop(timeout_s=20)
        engines.clear()
        del globals()["v"]
        engine.stop(timeout_s=20)
        engine.start()
        return work(engine)
    print(forked(child), work(engines[0]))
    """,
        "0 True",
    )


def test_fork_inside_a_bulk(fork):
    """What was collected so far is pushed in the parent once; the child may use its engine."""
    fork(
        """
    ran = []
    with engine.bulk(100):
        for i in range(10):
            engine.push(lambda rc, i=i: ran.append(i), mutate_vars=[v])
        status = forked(lambda: work(engine))
    engine.wait_for_var(v)
    print(status, ran == list(range(10)), work(engine))
    """,
        "0 True True",
    )


def test_fork_inside_an_engine_function(fork):
    """The child is inside that function as well; it may push, and what it pushes runs."""
    fork(
        """
    statuses, done = [], threading.Event()
    def child():
        happened, inner = threading.Event(), engine.new_variable()
        engine.push(lambda rc: happened.set(), mutate_vars=[inner])
        return happened.wait(20)
    def fn(rc):
        statuses.append(forked(child))
        done.set()
    engine.push(fn, mutate_vars=[v])
    print(done.wait(30), statuses)
    engine.wait_for_all(timeout_s=20)
    print(v.version, work(engine))
    """,
        "True [0]\n1 True",
        env={"WEFT_FORK_TIMEOUT_S": "1"},
    )


def test_fork_by_subprocess_inside_an_engine_function(fork):
    """subprocess and friends fork as well, from whichever thread they are called."""
    fork(
        """
    import subprocess
    outputs = []
    def fn(rc):
        command = [sys.executable, "-c", "print(42)"]
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=os.getpid)
        outputs.append(ended.stdout.strip())
    for _ in range(3):
        engine.push(fn, mutate_vars=[v])
    engine.wait_for_all(timeout_s=30)
    print(outputs, work(engine))
    """,
        "['42', '42', '42'] True",
        env={"WEFT_FORK_TIMEOUT_S": "1"},
    )


def test_fork_while_other_threads_push_and_wait(fork):
    fork(
        """
    stop, errors = threading.Event(), []
    def push():
        own = engine.new_variable()
        try:
            while not stop.is_set():
                for _ in range(20):
                    engine.push(lambda rc: None, mutate_vars=[own], const_vars=[v])
                engine.wait_for_var(own, timeout_s=30)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=push) for _ in range(3)]
    for t in threads: t.start()
    statuses = [forked(lambda: work(engine, 10)) for _ in range(15)]
    stop.set()
    for t in threads: t.join()
    print(statuses == [0] * 15, errors, work(engine))
    """,
        "True [] True",
        env={"WEFT_FORK_TIMEOUT_S": "0.2"},
    )


def test_fork_while_other_threads_create_and_drop(fork):
    """Locks of the engine, and those of its memory, are never left taken in the child."""
    fork(
        """
    stop = threading.Event()
    def churn():
        while not stop.is_set():
            e = Engine(kind=engine.kind, workers=1)
            variables = [e.new_variable() for _ in range(20)]
            op = e.new_operator(lambda rc: None, mutate_vars=variables[:3])
            e.push(op)
            e.stop()
    threads = [threading.Thread(target=churn) for _ in range(2)]
    for t in threads: t.start()
    statuses = [forked(lambda: work(engine, 10) and work(Engine(workers=1), 10)) for _ in range(10)]
    stop.set()
    for t in threads: t.join()
    print(statuses == [0] * 10, work(engine))
    """,
        "True True",
        env={"WEFT_FORK_TIMEOUT_S": "0.2"},
    )


@pytest.mark.parametrize("how", ["Pool", "Process", "concurrent.futures"])
def test_fork_by_multiprocessing(fork, how):
    body = {
        "Pool": """
    with context.Pool(3) as pool:
        print(pool.map(in_child, range(6)) == [True] * 6, work(engine))
    """,
        "Process": """
    queue = context.SimpleQueue()
    processes = [context.Process(target=lambda i=i: queue.put(in_child(i))) for i in range(3)]
    for p in processes: p.start()
    results = [queue.get() for _ in processes]
    for p in processes: p.join()
    print(all(results) and [p.exitcode for p in processes] == [0] * 3, work(engine))
    """,
        "concurrent.futures": """
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        print(list(pool.map(in_child, range(6))) == [True] * 6, work(engine))
    """,
    }[how]
    fork(
        """
    context = multiprocessing.get_context("fork")
    def in_child(i):
        return work(engine) and work(default_engine())
    for _ in range(100):
        engine.push(lambda rc: None, mutate_vars=[v])
    """
        + body,
        "True True",
    )


def test_fork_in_exploration(script):
    script(
        program(
            "threaded",
            """
    e = Engine(workers=2, schedule_seed=3)
    for _ in range(20):
        e.push(lambda rc: None)
    print(forked(lambda: work(e)), work(e))
    """,
        ),
        expect_stdout="0 True",
    )


def test_fork_at_a_thread_that_uses_no_engine(script):
    """A process that has the package loaded but no engine."""
    script(
        """
        import os, weft.engine
        pid = os.fork()
        if pid == 0:
            e = weft.engine.Engine(workers=2)
            v = e.new_variable()
            e.push(lambda rc: None, mutate_vars=[v])
            e.wait_for_var(v, timeout_s=20)
            os._exit(10 + v.version)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
        expect_stdout="11",
    )


def test_fork_while_another_thread_computes_a_cached_property(script):
    """That of functools has a lock before Python 3.12, which a child would wait for."""
    script(
        HEAD.format(kind="threaded")
        + """
    from weft.base.cached import cached_property
    class Slow:
        started, go = threading.Event(), threading.Event()
        @cached_property
        def value(self):
            self.started.set()
            self.go.wait(20)
            return 1
    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    Slow.started.wait()
    def in_child():
        Slow.go.set()
        return Slow().value == 1
    print(forked(in_child))
    Slow.go.set()
    thread.join()
    """,
        expect_stdout="0",
    )


def test_nothing_uses_the_cached_property_of_functools():
    import weft

    root = os.path.dirname(weft.__file__)
    files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    for file in files:
        if file.endswith(".py") and not file.endswith("base/cached.py"):
            with open(file, encoding="utf-8") as source:
                text = source.read()
            assert "@functools.cached_property" not in text, file
            assert (
                "import cached_property" not in text or "weft.base.cached import cached_property" in text
            ), file


def test_fork_while_another_thread_traces(script):
    """The child may call the same traced function: the lock of it is not held there."""
    script(
        HEAD.format(kind="threaded")
        + """
    import weft as wf
    started, go = threading.Event(), threading.Event()
    @wf.trace
    def f(x):
        started.set()
        go.wait(20)
        return x * 2
    thread = threading.Thread(target=f, args=(wf.ones(3),))
    thread.start()
    started.wait()
    def in_child():
        go.set()
        done = []
        child = threading.Thread(target=lambda: done.append(f(wf.ones(3)).sum().item()), daemon=True)
        child.start()
        child.join(15)
        return done == [6.0]
    print(forked(in_child))
    go.set()
    thread.join()
    """,
        expect_stdout="0",
    )
