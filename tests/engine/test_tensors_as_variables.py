"""Tensors stand for their memory wherever the engine takes variables: order, views, errors, versions, lifetime."""

import contextlib
import gc
import os
import threading

import numpy as np
import pytest

import weft as wf
from weft.base.errors import EngineError
from weft.engine import Engine, default_engine

from .support import LIMIT_S, SOON_S, Gate, eventually, line_here

WAYS = ["push", "push_async", "operator", "async operator", "bulk"]


@pytest.fixture
def engine():
    """The engine that tensors belong to; what failed in the test is forgotten."""
    engine = default_engine()
    yield engine
    with contextlib.suppress(EngineError):
        engine.wait_for_all()


@pytest.fixture
def gate(engine):
    gate = Gate()
    yield gate
    gate.open()


def nothing(rc):
    pass


def push(engine, way, fn, **options):
    """Pushes fn(rc) in one of the ways there are."""

    def then_complete(rc, on_complete):
        fn(rc)
        on_complete()

    if way == "push":
        engine.push(fn, **options)
    elif way == "push_async":
        engine.push_async(then_complete, **options)
    elif way == "operator":
        engine.push(engine.new_operator(fn, **options))
    elif way == "async operator":
        engine.push(engine.new_operator(then_complete, **options, is_async=True))
    else:
        with engine.bulk(8):
            engine.push(nothing)
            engine.push(fn, **options)
            engine.push(nothing)


def fail(rc):
    raise ValueError("planned")


def poisoned(engine, shape=(4, 5), name="cause"):
    x = wf.ones(shape)
    engine.push(fail, mutate_vars=[x], name=name)
    return x


def cause_of(x):
    """The operation whose failure reading x raises; None if it does not."""
    try:
        x.wait()
    except EngineError as error:
        return error.operation
    return None


# Order.


@pytest.mark.parametrize("way", WAYS)
def test_functions_and_operations_on_one_tensor_run_in_the_order_of_their_pushes(engine, way):
    x, seen = wf.zeros((10, 10)), []

    def look(rc):
        seen.append(float(x.numpy()[3, 3]))

    def double(rc):
        x.numpy()[...] *= 2

    expected, value = [], 0.0
    for i in range(30):
        x[...] = i
        push(engine, way, double, mutate_vars=[x])
        x[3] = x[4] if i % 2 else -x[3, 3].item()
        push(engine, way, look, const_vars=[x])
        value = 2.0 * i if i % 2 else -2.0 * i
        expected.append(value)
    engine.wait_for_all()
    assert seen == expected
    assert x[3, 3].item() == value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "view",
    [lambda x: x[1:], lambda x: x.T, lambda x: x[2, 3], lambda x: x.reshape(-1), lambda x: x[:0]],
    ids=["rows", "transposed", "element", "flat", "nothing"],
)
def test_views_stand_for_the_whole_memory(engine, gate, way, view):
    """Also those that share no element with what the function touches: the memory is one variable."""
    x = wf.zeros((4, 5))
    push(engine, way, lambda rc: (gate.wait(), x.numpy().fill(3)), mutate_vars=[view(x)])
    gate.wait_until_entered()
    copy = x.copy()
    x[0] = 7
    assert (copy.version, x.version) == (0, 1), "they wait for the function"
    gate.open()
    assert (copy.numpy() == 3).all()
    assert x.numpy()[0].tolist() == [7] * 5
    assert x.numpy()[1].tolist() == [3] * 5
    assert x.version == 3


def test_readers_run_together_and_writers_wait_for_them(engine, make_gate):
    x, seen, gates = wf.ones(100), [], [make_gate() for _ in range(3)]
    for gate in gates:
        engine.push(
            lambda rc, gate=gate: (gate.wait(), seen.append(float(x.numpy()[0]))), const_vars=[x], queue="io"
        )
    for gate in gates:
        gate.wait_until_entered()
    x[...] = 2
    later = x.copy()
    assert x.version == 1
    for gate in gates:
        gate.open()
    assert later.numpy()[0] == 2
    assert seen == [1, 1, 1]


def test_a_tensor_listed_twice_and_through_views_counts_as_written(engine):
    x, ran = wf.zeros(6), []

    def write(rc):
        x.numpy()[0] += 1
        ran.append(x.numpy().flags.writeable)

    engine.push(write, const_vars=[x, x[2:]], mutate_vars=[x.reshape(2, 3), x])
    engine.push(write, const_vars=[x[1:]], overwrite_vars=[x])
    assert x[0].item() == 2
    assert ran == [True, True]
    assert x.version == 3


def test_tensors_and_variables_mix(engine, gate):
    v, x, seen = engine.new_variable(), wf.zeros(3), []
    engine.push(lambda rc: gate.wait(), mutate_vars=[v])
    engine.push(lambda rc: x.numpy().fill(1), const_vars=[v], mutate_vars=[x])
    engine.push(lambda rc: seen.append(x.numpy().tolist()), const_vars=[x], mutate_vars=[v])
    gate.open()
    engine.wait_for_var(v, timeout_s=LIMIT_S)
    assert seen == [[1, 1, 1]]
    assert (x.version, v.version) == (2, 2)


PROGRAM = """
    import weft as wf
    from weft.engine import default_engine

    engine = default_engine()
    x, y, log = wf.zeros((6, 6)), wf.arange(6), []

    def add(rc):
        x.numpy()[1:, ::2] += y.numpy()[:3]

    def turn(rc):
        y.numpy()[...] = y.numpy()[::-1].copy()

    operator = engine.new_operator(add, const_vars=[y], mutate_vars=[x[1:]])
    for i in range(40):
        engine.push(operator)
        x[i % 6] = y
        engine.push(turn, mutate_vars=[y])
        with engine.bulk(5):
            for k in range(7):
                engine.push(add, const_vars=[y], mutate_vars=[x.T])
                y[k % 6] = i
                x[k % 5, 1:] = x[k % 5 + 1, :-1]
        engine.push_async(lambda rc, done: (log.append(float(x.numpy().sum())), done()), const_vars=[x])
        if i == 20:
            engine.push(lambda rc: 1 / 0, mutate_vars=[y], name="divide")
            x[...] = y
            try:
                x.numpy()
            except wf.EngineError as error:
                log.append((error.operation, error.where.rpartition("/")[2]))
            y[...] = 1
            x[...] = y
    engine.push(lambda rc: log.append("end"), const_vars=[y], mutate_vars=[x])
    engine.wait_for_var(x)
    print(log, x.numpy().tolist(), y.numpy().tolist(), x.version, y.version)
    try:
        wf.waitall()
    except wf.EngineError as error:
        print(error.operation)
"""


def test_results_are_those_of_every_engine_and_schedule(script):
    unset = dict.fromkeys(("WEFT_ENGINE", "WEFT_SCHEDULE_SEED", "WEFT_NUM_THREADS", "WEFT_CHECK"))
    ways = [
        {"WEFT_ENGINE": "naive"},
        {"WEFT_NUM_THREADS": "1"},
        {"WEFT_NUM_THREADS": "4"},
        {"WEFT_CHECK": "1"},
        *({"WEFT_SCHEDULE_SEED": str(seed)} for seed in range(6)),
    ]
    ends = [script(PROGRAM, env={**unset, **way}) for way in ways]
    assert len({end.stdout for end in ends}) == 1
    assert "divide" in ends[0].stdout
    assert "'end'" in ends[0].stdout
    assert {end.stderr for end in ends} == {""}


# Errors.


READS = {
    "numpy": lambda x: x.numpy(),
    "wait": lambda x: x.wait(),
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x[0, 0]),
    "bool": lambda x: bool(x[0, 0]),
    "repr": repr,
    "str": str,
    "format": lambda x: f"{x}",
    "memory": lambda x: x.memory(),
    "memoryview": memoryview,
    "numpy.asarray": np.asarray,
    "numpy.from_dlpack": np.from_dlpack,
    "view": lambda x: x.T[1:].numpy(),
    "copy": lambda x: x.copy().numpy(),
    "chain": lambda x: x.copy().T.astype("int8").copy()[1].reshape(2, 2).copy().numpy(),
    "other device": lambda x: x.to_device("cpu:1").numpy(),
    "permutation": lambda x: wf.random.permutation(x).numpy(),
    "wait_for_var": lambda x: default_engine().wait_for_var(x),
    "writes_only": lambda x: default_engine().wait_for_var(x, writes_only=True),
    "wait_for_var of a view": lambda x: default_engine().wait_for_var(x[1:]),
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_poisoned_tensor_raises_its_first_cause_each_time(engine, name):
    x = wf.ones((4, 5))
    expected = line_here(+1)
    engine.push(fail, mutate_vars=[x], name="cause")
    engine.push(fail, mutate_vars=[x], name="later")
    for _ in range(3):
        with pytest.raises(EngineError, match=r"(?s)cause: .*planned") as caught:
            READS[name](x)
        assert caught.value.operation == "cause"
        assert caught.value.where.endswith(expected)
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["mutate_vars", "overwrite_vars"])
def test_a_function_that_fails_poisons_what_it_would_have_written(engine, way, mode):
    x, y, read = wf.ones(3), wf.ones(3), wf.ones(3)
    push(engine, way, fail, const_vars=[read], name="cause", **{mode: [x[1:], y]})
    assert (cause_of(x), cause_of(y), cause_of(read)) == ("cause", "cause", None)


def test_what_comes_of_a_poisoned_tensor_is_skipped(engine):
    x, ran = poisoned(engine), []
    y, v = wf.zeros(4), engine.new_variable()
    engine.push(lambda rc: ran.append(1), const_vars=[x.T], mutate_vars=[y, v])
    assert cause_of(y) == "cause"
    with pytest.raises(EngineError):
        engine.wait_for_var(v)
    assert ran == []
    assert (y.version, v.version) == (1, 0)


@pytest.mark.parametrize(
    "assign",
    [
        lambda x: x.__setitem__(..., 0),
        lambda x: x.__setitem__(slice(None), 0),
        lambda x: x.T.__setitem__(..., 0),
        lambda x: x.reshape(-1).__setitem__(slice(None, None, -1), 0),
        lambda x: x.__setitem__(..., wf.zeros((4, 5), dtype="int8")),
        lambda x: x.__setitem__(..., wf.zeros(5)),
        lambda x: x[None, ..., None].__setitem__(..., 0),
        lambda x: default_engine().push(lambda rc: x.numpy().fill(0), overwrite_vars=[x]),
        lambda x: default_engine().push(lambda rc: x.numpy().fill(0), overwrite_vars=[x[1:]]),
    ],
    ids=[
        "...",
        ":",
        "transposed",
        "reversed",
        "tensor",
        "broadcast",
        "new axes",
        "function",
        "function's view",
    ],
)
def test_assigning_the_whole_cures(engine, assign):
    x = poisoned(engine)
    copy = x.copy()
    assign(x)
    assert (x.numpy() == 0).all()
    assert cause_of(copy) == "cause", "what had been made of it stays poisoned"


@pytest.mark.parametrize(
    "assign",
    [
        lambda x: x.__setitem__(0, 0),
        lambda x: x.__setitem__((0, 0), 0),
        lambda x: x.__setitem__((slice(None), slice(1, None)), 0),
        lambda x: x.__setitem__((slice(None), slice(None, None, 2)), 0),
        lambda x: x.__setitem__(slice(0, 0), 0),
        lambda x: x.__setitem__(..., x[::-1]),
        lambda x: x.__setitem__(..., x.copy()),
        lambda x: default_engine().push(nothing, mutate_vars=[x]),
        lambda x: default_engine().push(nothing, const_vars=[x], overwrite_vars=[x]),
    ],
    ids=["row", "element", "columns", "every second", "nothing", "itself", "its copy", "mutating", "reading"],
)
def test_assigning_a_part_or_what_comes_of_itself_does_not_cure(engine, assign):
    x = poisoned(engine)
    assign(x)
    assert cause_of(x) == "cause"


def test_parts_that_together_are_the_whole_do_not_cure(engine):
    x = poisoned(engine)
    x[:2] = 0
    x[2:] = 0
    assert cause_of(x) == "cause"


def test_a_whole_assignment_that_is_skipped_or_fails_does_not_cure(engine):
    x, y = poisoned(engine, name="first"), poisoned(engine, name="second")
    x[...] = y
    assert cause_of(x) == "first"
    engine.push(fail, overwrite_vars=[x], name="third")
    assert cause_of(x) == "first"


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:]], ids=["itself", "a view"])
def test_clear_error_gives_back_what_is_there(engine, view):
    x = wf.full((4, 5), 3)

    def half(rc):
        x.numpy()[:2] = 9
        raise ValueError("planned")

    engine.push(half, mutate_vars=[x])
    before = x.copy()
    engine.clear_error(view(x))
    after = x.copy()
    assert after.numpy()[:, 0].tolist() == [9, 9, 3, 3]
    assert cause_of(before) is not None
    assert cause_of(x) is None
    engine.clear_error(before)
    assert before.shape == (4, 5)
    assert cause_of(before) is None


def test_an_error_is_told_once_by_waitall(engine):
    with contextlib.suppress(EngineError):
        wf.waitall()
    x = poisoned(engine)
    with pytest.raises(EngineError) as caught:
        wf.waitall()
    assert caught.value.operation == "cause"
    wf.waitall()
    assert cause_of(x) == "cause"


# Waiting.


def test_wait_for_var_waits_for_readers_unless_only_writes_matter(engine, gate):
    x = wf.ones(4)
    engine.push(gate.wait, const_vars=[x], queue="io")
    gate.wait_until_entered()
    engine.wait_for_var(x, writes_only=True, timeout_s=LIMIT_S)
    engine.wait_for_var(x[:2], writes_only=True, timeout_s=LIMIT_S)
    x.wait()
    assert x[0].item() == 1
    with pytest.raises(TimeoutError):
        engine.wait_for_var(x, timeout_s=SOON_S)
    gate.open()
    engine.wait_for_var(x, timeout_s=LIMIT_S)


def test_wait_for_var_with_writes_only_waits_for_the_writer(engine, gate):
    x = wf.ones(4)
    engine.push(gate.wait, mutate_vars=[x], queue="io")
    gate.wait_until_entered()
    with pytest.raises(TimeoutError):
        engine.wait_for_var(x, writes_only=True, timeout_s=SOON_S)
    gate.open()
    engine.wait_for_var(x, writes_only=True, timeout_s=LIMIT_S)
    assert x.version == 2


def test_numpy_waits_for_readers_because_it_may_be_written(engine, gate):
    x, seen = wf.ones(4), []
    engine.push(lambda rc: (gate.wait(), seen.append(x.numpy().sum())), const_vars=[x], queue="io")
    gate.wait_until_entered()
    threading.Timer(SOON_S, gate.open).start()
    x.numpy()[...] = 5
    assert seen == [4]


# Versions and lifetime.


def test_versions_count_the_operations_and_functions_that_wrote(engine):
    x = wf.empty((3, 4))
    assert x.version == 0
    steps = [
        (lambda: x.__setitem__(..., 1), 1),
        (lambda: x.__setitem__(1, x[2]), 1),
        (lambda: x.copy(), 0),
        (lambda: engine.push(nothing, const_vars=[x]), 0),
        (lambda: engine.push(nothing, mutate_vars=[x, x[1:]]), 1),
        (lambda: engine.push(nothing, const_vars=[x], overwrite_vars=[x.T]), 1),
        (lambda: push(engine, "bulk", nothing, mutate_vars=[x]), 1),
        (lambda: push(engine, "push_async", nothing, mutate_vars=[x]), 1),
        (lambda: push(engine, "operator", nothing, mutate_vars=[x]), 1),
        (lambda: x.__setitem__(slice(0, 0), 1), 0),
        (lambda: engine.push(fail, mutate_vars=[x]), 1),
        (lambda: x.__setitem__(0, 1), 0),  # skipped
        (lambda: x.__setitem__(..., 1), 1),
        (lambda: engine.clear_error(x), 0),
    ]
    expected = 0
    for number, (step, more) in enumerate(steps):
        step()
        with contextlib.suppress(EngineError):
            engine.wait_for_var(x)
        expected += more
        assert (number, x.version, x[1:].version, x.T.version) == (number, *[expected] * 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["const_vars", "mutate_vars", "overwrite_vars"])
def test_tensors_dropped_while_pending_keep_their_memory(engine, gate, way, mode):
    device = "cpu:11"
    assert eventually(lambda: wf.storage.stats(device)["live_blocks"] == 0)
    x = wf.zeros((100, 10), device=device)
    address = x.numpy().ctypes.data
    push(engine, way, gate.wait, **{mode: [x[1:].T]})
    del x
    gc.collect()
    gate.wait_until_entered()
    assert wf.storage.stats(device)["live_blocks"] == 1
    other = wf.empty((100, 10), device=device)
    assert other.numpy().ctypes.data != address, "its memory is not given to others"
    del other
    gate.open()
    assert eventually(lambda: wf.storage.stats(device)["live_blocks"] == 0)


def test_a_function_gets_the_tensor_that_its_closure_holds(engine):
    """The function is dropped with its tensors on a worker, and their memory with them."""
    device, sums = "cpu:11", []
    assert eventually(lambda: wf.storage.stats(device)["live_blocks"] == 0)
    for i in range(100):
        x = wf.full(50, i, "int64", device)
        engine.push(lambda rc, x=x: sums.append(int(x.numpy()[-1])), const_vars=[x])
    del x
    engine.wait_for_all()
    assert sorted(sums) == list(range(100))
    assert eventually(lambda: wf.storage.stats(device)["live_blocks"] == 0)


def test_functions_make_and_drop_tensors_of_their_own(engine):
    x, made = wf.arange(1000), []

    def work(rc):
        y = x.copy()
        made.append(y[::-1].copy())
        y[...] = 0

    for _ in range(50):
        engine.push(work, const_vars=[x])
    engine.wait_for_all()
    assert all((y.numpy() == np.arange(1000)[::-1]).all() for y in made)
    assert len(made) == 50


def test_tensors_of_the_process_are_refused_by_another_engine(make_engine):
    x, other = wf.ones(3), make_engine()
    for call in (
        lambda: other.push(nothing, const_vars=[x]),
        lambda: other.push_async(nothing, mutate_vars=[x[1:]]),
        lambda: other.new_operator(nothing, overwrite_vars=[x]),
        lambda: other.wait_for_var(x),
        lambda: other.clear_error(x),
    ):
        with pytest.raises(EngineError, match="another engine"):
            call()
    assert isinstance(other, Engine)
    assert x.numpy().tolist() == [1, 1, 1]


def test_what_is_no_variable_is_refused_before_anything_happens(engine):
    x = wf.ones(3)
    pushed = engine.stats()["pushed"]
    for wrong in (5, None, "x", np.ones(3), [x]):
        with pytest.raises(TypeError, match="const_vars"):
            engine.push(nothing, const_vars=[x, wrong])
    with pytest.raises(TypeError, match="mutate_vars"):
        engine.push(nothing, mutate_vars=[x, 5])
    assert engine.stats()["pushed"] == pushed


# Memory that NumPy looks at.


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.numpy(),
        lambda x: x.numpy()[3:][::2],
        lambda x: x[5:].numpy(),
        memoryview,
        np.asarray,
        np.from_dlpack,
    ],
    ids=["numpy", "numpy's view", "view", "memoryview", "asarray", "dlpack"],
)
def test_while_others_look_at_the_memory_operations_finish_before_they_return(engine, look):
    """Large ones, too, which otherwise go on when the call has returned."""
    y, x = wf.zeros(2_000_000), wf.ones(2_000_000)
    kept = look(y)
    for i in range(1, 11):
        version = y.version
        x[...] = i
        y[...] = x
        assert y.version == version + 1
        assert np.asarray(kept)[-1] == i
        y[1:] = y[:-1]
        assert y.version == version + 2
        copy = y.copy()
        np.asarray(kept)[...] = -1
        assert copy[-1].item() == i, "who reads has finished, too"


def test_foreign_memory_is_settled_as_long_as_the_tensor_lives(engine):
    array = np.zeros(2_000_000, "float32")
    y = wf.asarray(array)
    for i in range(1, 11):
        y[...] = wf.full(2_000_000, float(i))
        assert array[-1] == i
        assert array[0] == i


def test_memory_that_nobody_looks_at_any_more_is_asynchronous_again(engine, gate):
    x = wf.zeros(1000)
    view = x.numpy()
    del view
    gc.collect()
    engine.push(gate.wait, mutate_vars=[x], queue="io")
    x[...] = 5  # would wait for the gate
    assert x.version == 1
    gate.open()
    assert x[-1].item() == 5


def test_functions_pushed_on_memory_that_others_look_at_keep_their_order(engine):
    """Functions of the user's return at once; the next operation waits for them."""
    x = wf.zeros(1000)
    view = x.numpy()
    for i in range(50):
        engine.push(lambda rc, i=i: x.numpy().fill(i), mutate_vars=[x])
        x[0] = -1
        assert view[0] == -1
        assert view[1] == i


def test_a_poisoned_tensor_that_others_look_at_raises_where_it_is_read(engine):
    x = wf.ones(1000)
    view = x.numpy()
    engine.push(fail, mutate_vars=[x], name="cause")
    x[0] = 3
    y = x.copy()
    assert cause_of(y) == "cause"
    x[...] = 2
    assert (view == 2).all()


# Fork.


@pytest.mark.parametrize("env", [{}, {"WEFT_ENGINE": "naive"}, {"WEFT_CHECK": "1"}], ids=str)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on_with_its_tensors(script, env):
    script(
        """
        import os, sys, warnings
        import weft as wf
        from weft.engine import default_engine
        warnings.simplefilter("ignore")
        engine = default_engine()
        x, big, bad = wf.arange(1000), wf.zeros(2_000_000), wf.ones(3)
        view = x.numpy()
        for i in range(50):
            big[...] = i
            engine.push(lambda rc: x.numpy().__iadd__(1), mutate_vars=[x])
        engine.push(lambda rc: 1 / 0, mutate_vars=[bad], name="divide")
        half = big[::2].astype("float64")

        def work():
            assert x.numpy()[0] == 50 and big[-1].item() == 49 and half[-1].item() == 49
            x[1:] = x[:-1].copy()
            engine.push(lambda rc: x.numpy().__imul__(2), mutate_vars=[x])
            y = big.copy()
            y[...] = wf.broadcast_to(x[:1], (2_000_000,))
            assert y[-1].item() == 100 and x.numpy()[1] == 100 and view[1] == 100
            try:
                bad.numpy()
            except wf.EngineError as error:
                assert error.operation == "divide"
            else:
                raise AssertionError("not poisoned")
            bad[...] = 1
            assert bad.numpy().sum() == 3
            z = wf.zeros(100_000, device="cpu:3")
            z[...] = 4
            assert z.numpy().sum() == 400_000
            wf.storage.check()
            wf.storage.trim()
            return True

        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if work() else 2
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, work())
        """,
        env=env,
        expect_stdout="0 True",
    )


def test_threads_share_a_tensor_through_the_engine(engine, switch_often, in_threads):
    x = wf.zeros(8, "int64")

    def add(rc):
        x.numpy()[...] += 1

    def run(_):
        for _ in range(100):
            engine.push(add, mutate_vars=[x])
            x.copy().wait()

    in_threads(run, range(4))
    assert x.numpy().tolist() == [400] * 8
