"""What the profiler records, and what becomes of it: tables, steps, exports, reports of programs that fail."""

import csv
import json
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
from weft import _core
from weft.engine import Engine
from weft.tools import flops
from weft.tools.__main__ import tools
from weft.tools.allocations import allocations_of, by_line, in_use, peak
from weft.tools.profiling import Profile
from weft.tools.recording import OPERATION, STEP, Exchange, ProcessRecording, StepWork
from weft.tools.timeline_events import events_of, steps_of


class Net(M.Module):
    def __init__(self):
        self.first, self.second = M.Linear(16, 32), M.Linear(32, 4)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def lanes(p, kind):
    return [lane for lane in p.events.lanes if lane.kind == kind]


def details(p, kind):
    events = p.events
    return [events.details[k] for lane in lanes(p, kind) for k in events.detail[lane.first : lane.last]]


def test_operations_kernels_and_their_pushes():
    a, b = wf.ones((16, 32)), wf.ones((32, 8))
    a @ b
    with wf.tools.profile() as p:
        for _ in range(5):
            c = a @ b
        c.wait()
    assert [d.name for d in details(p, "operation")] == 5 * ["matmul"]
    kernels = details(p, "kernel")
    assert [d.name for d in kernels] == 5 * ["matmul"]
    assert {d.shapes for d in kernels} == {"f32[16,32], f32[32,8], f32[16,8]"}
    assert {d.flops for d in kernels} == {2 * 16 * 32 * 8}
    assert {d.bytes for d in kernels} == {4 * (16 * 32 + 32 * 8 + 16 * 8)}
    assert all("test_profiler.py:" in d.where for d in kernels)
    events = p.events
    for lane in lanes(p, "kernel"):
        for k in range(lane.first, lane.last):
            operation = events.parent[k]
            push = events.parent[operation]
            assert events.details[events.detail[operation]].kind == "operation"
            assert events.details[events.detail[push]].kind == "push"
            assert events.start[push] <= events.start[operation] <= events.start[k]
            end = events.start[operation] + events.seconds[operation]
            assert events.start[k] + events.seconds[k] <= end
    [row] = p.table()
    assert (row["operator"], row["calls"], row["share"]) == ("matmul", 5, 1.0)
    assert row["flop_s"] == pytest.approx(5 * 2 * 16 * 32 * 8 / row["seconds"])
    [lane] = [lane for lane in events.lanes if lane.kind == "kernel"]
    assert row["least_s"] == pytest.approx(5 * events.self_seconds[lane.first : lane.last].min())
    assert row["least_s"] < row["seconds"]


def test_modules_of_eager_and_traced_calls():
    net, x = Net(), wf.ones((3, 16))
    traced = wf.trace(net)
    net(x), traced(x)
    with wf.tools.profile() as p:
        net(x)
    assert {row["module"] for row in p.table("module")} == {"Net", "Net.first", "Net.second"}
    assert {d.name for d in details(p, "module")} == {"Net", "Net.first", "Net.second"}
    with wf.tools.profile() as p:
        traced(x).wait()
    assert {row["module"] for row in p.table("module")} >= {"Net.first", "Net.second"} - {"Net.first"}
    assert "Module.__call__" in M.Module.__call__.__qualname__, "recording leaves the class as it was"


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_belong_to_the_modules_of_their_calls(traced):
    net = Net()
    manager = wf.GradManager().attach(net.parameters())

    def step(x):
        with manager:
            loss = (net(x) ** 2).sum()
            manager.backward(loss)
        return loss

    run, x = wf.trace(step) if traced else step, wf.ones((5, 16))
    run(x), run(x)
    with wf.tools.profile() as p:
        run(x).wait()
    products = [(d.name.split(",")[0], d.module) for d in details(p, "kernel")]
    products = sorted(each for each in products if each[0] in ("linear", "matmul"))
    # forward and the gradient of each weight; the gradient of the second layer's input
    assert [name for name, module in products if module in ("Net.first", "Net")] == ["linear", "matmul"]
    assert [name for name, module in products if module == "Net.second"] == ["linear", "matmul", "matmul"]
    assert len(products) == 5
    relu = [d.module for d in details(p, "kernel") if "where" in d.name]
    assert relu == ["Net"]
    assert _core.recording_context() == 0


def test_fused_kernels_name_all_their_steps():
    net, x = wf.trace(lambda x, w: F.relu(F.linear(x, w))), (wf.ones((8, 16)), wf.ones((32, 16)))
    net(*x)
    with wf.tools.profile() as p:
        net(*x).wait()
    assert [row["operator"] for row in p.table()] == ["linear, relu"]
    assert p.recording.work[0].flops == 2 * 8 * 16 * 32 + 8 * 32


def test_operations_inside_of_control_flow_have_rows():
    """Each with its own calls; the loop's row is what the loop itself takes."""

    def step(x, s):
        return F.tanh(x @ w), s + F.cumulative_sum(x, axis=-1)

    w = wf.ones((24, 24))

    @wf.trace
    def f(x, s):
        y, s = wf.foreach(step, x, s)
        _n, s = wf.while_loop(lambda n, s: n < 5, lambda n, s: (n + 1, s.sort()), wf.tensor(0), s)
        return y, wf.cond(s.sum() > 0, lambda: F.softmax(s), lambda: s)

    arguments = wf.ones((7, 3, 24)), wf.zeros((3, 24))
    f(*arguments), f(*arguments)
    with wf.tools.profile() as p:
        f(*arguments)[1].wait()
    rows = {row["operator"]: row for row in p.table()}
    calls = {name: row["calls"] for name, row in rows.items()}
    called = {
        word: sum(n for name, n in calls.items() if word in name)
        for word in ("matmul", "cumulative_sum", "sort", "softmax", "less", "foreach_loop", "cond")
    }
    assert called == {
        "matmul": 7, "cumulative_sum": 7, "sort": 5, "softmax": 1, "less": 6, "foreach_loop": 1, "cond": 1
    }, calls  # fmt: skip
    product = next(work for work in p.recording.work if "matmul" in work.name)
    assert product.flops >= 2 * 3 * 24 * 24
    assert "test_profiler.py" in product.where
    loop = next(work for work in p.recording.work if "foreach" in work.name)
    assert loop.flops == 0
    kernels = [lane for lane in p.events.lanes if lane.kind == "kernel"]
    assert {lane.depth for lane in kernels} == {0, 1}
    whole = sum(row["seconds"] for row in p.table())
    outer = sum(p.events.seconds[lane.first : lane.last].sum() for lane in kernels if lane.depth == 0)
    assert whole == pytest.approx(outer)  # nothing counts twice


def test_bytes_of_operations_at_indices():
    """What they read and write, not all of the array."""
    x, index, rows = wf.zeros((1000, 16)), wf.tensor([3, 5, 3]), wf.ones((3, 16))

    def write(x):
        x[index] = rows

    row_bytes, index_bytes, flag_bytes = 3 * 16 * 4, 3 * 8, 8
    # Behind the check of the indices a loop reads the table: one row's bytes are counted, however many it reads.
    checked = [index_bytes + flag_bytes, index_bytes + row_bytes // 3 + row_bytes + flag_bytes]
    put, taken = 2 * row_bytes + index_bytes, 16 * (4 + 4 + 8)
    for function, word, eager, traced in (
        (write, "index_put", [put], [put]),
        (lambda x: x[index] + 1, "index_get", [put], checked),
        (
            lambda x: F.take_along_axis(x, wf.zeros((1, 16), dtype="int64"), axis=0),
            "take_along_axis",
            [taken],
            [taken],
        ),
    ):
        for f, expected in ((function, eager), (wf.trace(function), traced)):
            f(x), f(x)
            with wf.tools.profile() as p:
                f(x)
            sizes = [d.bytes for d in details(p, "kernel") if word in d.name or "gather" in d.name]
            assert sizes == expected, (word, sizes)


def test_the_timeline_has_the_pushing_and_the_computing_threads_first():
    """Threads that ran an operation or two come behind those that work all the time."""

    def operations(thread, count, took_ns, pushed_by=1):
        rows = np.zeros(count, OPERATION)
        rows["id"] = np.arange(1, count + 1) + 1000 * thread
        rows["pushed"] = np.arange(count) * 10 * took_ns + 1
        rows["started"] = rows["pushed"] + 5
        rows["ended"] = rows["started"] + took_ns
        rows["run_thread"], rows["push_thread"], rows["worker"] = thread, pushed_by, 0
        return rows

    r = ProcessRecording(1.0)
    r.operations = np.concatenate(
        [
            *(operations(k, 1, 100) for k in range(2, 10)),
            operations(20, 50, 9000),
            operations(21, 80, 900),
            operations(22, 3, 10, pushed_by=21),
        ]
    )
    r.threads = {1: "MainThread", 20: "compute 0", 21: "compute 1"}
    r.marks = [0.2, 0.4, 0.6]
    threads = list(dict.fromkeys(lane.thread for lane in events_of([r]).lanes))
    assert threads[:4] == ["steps", "MainThread", "compute 0", "compute 1"]
    assert len(threads) == 13


def test_planning_tracing_and_compiling_are_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))  # nothing is found on disk

    @wf.trace
    def f(x):
        return wf.exp(x) * wf.sin(x) - wf.tanh(x) / (wf.cos(x) + wf.abs(x))

    with wf.tools.profile() as p:
        f(
            wf.ones((5, 7))
        ).wait()  # operator by operator, with code that the process may have from another test
        f(wf.ones((5, 7))).wait()  # one loop that no other test has
    kinds = {m.kind for m in p.recording.moments}
    assert {"trace", "optimize", "plan", "compile"} <= kinds
    assert all("test_profiler.py" in m.where for m in p.recording.moments if m.kind == "trace")


def test_steps_by_marks_by_batches_and_by_programs():
    x = wf.ones((8, 8))
    with wf.tools.profile() as p:
        for k in range(4):
            for _ in range(k + 1):
                x @ x
            p.step()
    assert [s["name"] for s in p.steps()] == ["step 0", "step 1", "step 2", "step 3"]
    assert [sum(row["calls"] for row in p.table(step=k)) for k in range(4)] == [1, 2, 3, 4]
    assert p.compare_steps(0, 3)[0][0] == "matmul"
    loader = data.DataLoader(data.ArrayDataset(np.ones((12, 4), np.float32)), batch_size=3)
    with wf.tools.profile() as p:
        for batch in loader:
            batch + 1
    assert len(p.steps()) == 4
    assert len([m for m in p.recording.moments if m.kind == "data"]) == 4
    f = wf.trace(lambda x: wf.sum(wf.exp(x @ x)))
    f(x)
    with wf.tools.profile() as p:
        for _ in range(3):
            f(x)
    assert len(steps_of(p.recording)) == 3


def test_memory_by_line_and_at_the_peak():
    with wf.tools.profile() as p:
        a = wf.ones((1000, 256))
        b = a + 1
        b.wait()
        del a
        c = b * 2
        c.wait()
        del b, c
    r = p.recording
    found = allocations_of(r)
    large = [x for x in found if x.bytes == 4 * 256_000]
    assert [x.shape for x in large] == 3 * ["f32[1000,256]"]
    assert [x.name for x in large][1:] == ["add", "multiply"]
    assert all(x.where.rpartition(":")[0].endswith("test_profiler.py") for x in large)
    assert not any(x.held for x in large)
    _, most, holders = peak(r, found)
    assert most >= r.held_bytes + 2 * 4 * 256_000
    assert [h.bytes for h in holders[:2]] == [4 * 256_000] * 2
    seconds, bytes_ = in_use(r)
    assert (np.diff(seconds) >= 0).all()
    assert bytes_[-1] == r.held_bytes + sum(x.bytes for x in found if x.held)
    assert next(iter(by_line(found).values()))[0] >= 1


def test_what_was_there_before_is_given_back_in_the_record():
    a = wf.ones((1000, 256))
    a.wait()
    with wf.tools.profile() as p:
        b = wf.ones((1000, 128))
        b.wait()
        del a
        c = wf.ones((10, 10))
        c.wait()
    r = p.recording
    assert r.held_bytes >= 4 * 256_000
    assert len(r.held) > 0
    seconds, bytes_ = in_use(r)
    assert bytes_[0] == r.held_bytes
    assert bytes_.max() == r.held_bytes + 4 * 128_000
    assert bytes_[-1] <= r.held_bytes - 4 * 128_000 + 448
    assert peak(r)[1] == bytes_.max()
    assert len(seconds) == len(r.memory) + 1
    del b, c


def test_exchanges_are_shown_with_what_ran_beside_them():
    r = ProcessRecording(10.0)
    r.steps = np.zeros(3, STEP)
    r.steps["start"], r.steps["end"] = [0, 2e9, 6e9], [1e9, 5e9, 9e9]
    r.step_work = np.array([0, 0, 1])
    r.work = [
        StepWork("matmul", "net.py:3", "", "", 0, "f", 5, 0),
        StepWork("exchange_end", "net.py:4", "", "", 0, "f", 5, 1),
    ]
    r.exchanges = [
        Exchange("gradients mean", "float32[8]", "net.py:9", 32, 1, 0.5, 3.0, 4.0, 6.0),
        Exchange("gradients mean", "float32[4]", "net.py:9", 16, 2, 0.5, 6.0, 6.0, 8.0),
        Exchange("barrier", "", "net.py:10", 0, 3, 0.5, 8.0, 9.0, 9.0),
    ]
    p = Profile([r])
    gradients, barrier, every = p.exchanges()
    assert (gradients["calls"], gradients["bytes"], gradients["waiting_s"], gradients["moving_s"]) == (
        2,
        48,
        1,
        4,
    )
    assert gradients["hidden"] == pytest.approx(2 / 5)  # 3..5 of 3..8; waiting for it is not computing
    assert (barrier["name"], barrier["hidden"]) == ("barrier", 0)
    assert (every["name"], every["calls"], every["hidden"]) == ("all", 3, pytest.approx(2 / 6))
    [lane] = lanes(p, "exchange")
    shown = [p.events.details[k] for k in p.events.detail[lane.first : lane.last]]
    assert [d.name for d in shown] == [
        "wait for gradients mean",
        "gradients mean",
        "gradients mean",
        "wait for barrier",
        "barrier",
    ]
    assert [d.bytes for d in shown] == [0, 32, 16, 0, 0]
    assert p.events.start[lane.first : lane.last].tolist() == [3, 4, 6, 8, 9]
    assert sum(row["calls"] for row in p.table()) == 3  # exchanges are not kernels
    r.marks = [5.0, 10.0]
    assert [row["calls"] for row in p.exchanges(step=0)] == [1]
    assert [row["calls"] for row in p.exchanges(step=1)] == [1, 1, 2]


def test_machines_without_a_common_clock_meet_in_collectives():
    def of(host, begin_ns, times):
        r = ProcessRecording(10.0)
        r.facts = {"host": host, "begin_ns": begin_ns, "worker": host}
        r.exchanges = [Exchange("x", "", "", 4, k, 0.0, t - 0.1, t, t + 0.1) for k, t in times.items()]
        return r

    a, b = of("a", 5_000, {1: 2.0, 2: 3.0, 3: 4.0}), of("b", 77_000_000_000, {2: 1.0, 3: 2.0, 4: 3.0})
    starts = {lane.worker: Profile([a, b]).events.start[lane.first] for lane in Profile([a, b]).events.lanes}
    assert starts["b"] == pytest.approx(0.9 + 2.0)
    b.facts["host"] = "a"
    assert Profile([a, b]).events.start[-1] > 70
    assert Profile([a, b]).seconds > 70


def test_several_engines_and_threads():
    with Engine(workers=2) as engine, wf.tools.profile([engine]) as p:
        v = engine.new_variable()

        def push():
            for _ in range(10):
                engine.push(lambda run_context: None, mutate_vars=[v], name="mine")

        thread = threading.Thread(target=push, name="pusher")
        thread.start()
        thread.join()
    assert [d.name for d in details(p, "operation")] == 10 * ["mine"]
    assert {lane.thread for lane in lanes(p, "push")} == {"pusher"}
    assert {row["operator"]: row["calls"] for row in p.table()} == {"mine": 10}
    assert all(np.diff(p.events.start[x.first : x.last]).min(initial=0) >= 0 for x in p.events.lanes)


def test_it_is_recorded_by_one_at_a_time_and_nothing_stays():
    x = wf.ones((4, 4))
    with wf.tools.profile(), pytest.raises(RuntimeError, match="recorded already"):
        wf.tools.profile().__enter__()
    x @ x
    with wf.tools.profile() as p:
        pass
    assert len(p.recording.operations) == 0
    assert p.table() == []
    assert _core.close_recorder() is None
    with pytest.raises(RuntimeError, match="has not ended"):
        wf.tools.profile().table()
    with pytest.raises(ValueError, match="operator, module, line"):
        p.table("nothing")


def test_a_limit_counts_what_it_leaves_out():
    x = wf.ones((4, 4))
    with wf.tools.profile(memory=False, limit=5) as p:
        for _ in range(8):
            x + x
    assert len(p.recording.operations) == 5
    assert p.recording.dropped == 3
    assert [w.kind for w in p.warnings()] == ["gaps"]


def test_what_the_block_raises_is_kept_and_raised():
    x = wf.ones((4, 4))
    p = wf.tools.profile()

    def fail():
        x @ x
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), p:
        fail()
    assert [w.kind for w in p.warnings()] == ["error"]
    assert "ZeroDivisionError" in p.warnings()[0].text
    assert "test_profiler.py" in p.warnings()[0].where
    assert p.table()[0]["operator"] == "matmul"


def test_a_failed_operation_is_raised_and_kept():
    def fail(run_context):
        raise ValueError("planned")

    with Engine(workers=1) as engine:
        p = wf.tools.profile([engine])
        with pytest.raises(wf.EngineError, match="planned"), p:
            engine.push(fail, mutate_vars=[engine.new_variable()], name="fails")
    assert p.recording.operations["failed"].tolist() == [1]
    assert p.warnings()[0].kind == "error"


def test_exports(tmp_path):
    f = wf.trace(lambda x: wf.sum(wf.exp(x @ x)))
    x = wf.ones((16, 16))
    f(x)
    with wf.tools.profile() as p:
        for _ in range(3):
            f(x)
    p.to_chrome(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(p.events)
    starts, ends = ([e for e in events if e["ph"] == kind] for kind in "sf")
    assert len(starts) == len(ends) == 3
    assert {e["id"] for e in starts} == {e["id"] for e in ends}
    for begin, end in zip(starts, ends, strict=True):
        assert begin["ts"] <= end["ts"]
        assert any(e["ts"] == end["ts"] and e["tid"] == end["tid"] and e["cat"] == "operation" for e in spans)
    p.to_csv(tmp_path / "t.csv", by="line")
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [float(row["seconds"]) for row in rows] == [row["seconds"] for row in p.table("line")]
    assert "matmul" in str(p)


def run(tmp_path, program, *options):
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "weft.tools.profiler", "--no-open", *options, "program.py", "7"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)


def test_the_command(tmp_path):
    done = run(
        tmp_path,
        """
        import sys
        import weft as wf
        assert __name__ == "__main__" and sys.argv[1:] == ["7"]
        x = wf.ones((8, 8))
        print((x @ x).sum().item())
        """,
        "--chrome=t.json",
        "--csv=t.csv",
    )
    assert (done.returncode, done.stdout) == (0, "512.0\n"), done.stderr
    assert "profile.html" in done.stderr
    assert (tmp_path / "profile.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "t.json").read_text())
    assert (tmp_path / "t.csv").read_text().startswith("operator,calls")


@pytest.mark.parametrize(
    ("end", "status", "shown"),
    [
        ("raise ValueError('planned')", 1, "planned"),
        ("import sys; sys.exit(3)", 3, "SystemExit"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("this is no Python", 1, "SyntaxError"),
    ],
)
def test_a_program_that_fails_leaves_a_report(tmp_path, end, status, shown):
    start = "import weft as wf\nx = wf.ones((8, 8))\ny = x @ x\n"
    done = run(tmp_path, start + end, "--out=r.html")
    assert done.returncode == status, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert shown in page
    assert ("matmul" in page) == (shown != "SyntaxError")


def test_a_script_that_is_not_there(tmp_path):
    command = [sys.executable, "-m", "weft.tools.profiler", "nothing.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "there is no file nothing.py" in done.stderr


def test_every_tool_is_listed_and_has_help(capsys):
    import importlib

    from weft.tools.__main__ import main

    assert main() == 0
    listed = capsys.readouterr().out
    for name in tools():
        assert name in listed
        module = importlib.import_module(f"weft.tools.{name}")
        with pytest.raises(SystemExit) as end:
            module.main(["--help"])
        assert end.value.code == 0
        assert f"weft.tools.{name}" in capsys.readouterr().out


def test_every_product_has_a_rule():
    """One that has kernels of its own; what is made of others is counted as these."""
    from weft.kernels import registered
    from weft.ops import registry

    products = [name for name in registry.names() if registry.get(name).family in flops.PRODUCTS]
    for name in products:
        if registered(registry.get(name)):
            assert name in flops.counted(), f"{name}: add a rule to weft/tools/flops.py"
    assert any(registered(registry.get(name)) for name in products)


def test_several_processes_on_one_timeline(tmp_path):
    program = "import weft as wf\nx = wf.ones((16, 16))\nfor _ in range(3):\n    y = x @ x\n"
    for k in range(2):
        done = run(tmp_path, program, f"--raw=r{k}.raw", f"--worker=rank {k}", f"--out=p{k}.html")
        assert done.returncode == 0, done.stderr
    joined = Profile.load(tmp_path / "r1.raw", tmp_path / "r0.raw")
    assert list(dict.fromkeys(lane.worker for lane in joined.events.lanes)) == ["rank 0", "rank 1"]
    assert joined.table()[0]["operator"] in ("matmul", "fill")
    assert next(row["calls"] for row in joined.table() if row["operator"] == "matmul") == 6
    starts = {
        lane.worker: joined.events.start[lane.first] for lane in joined.events.lanes if lane.kind == "kernel"
    }
    assert starts["rank 0"] < starts["rank 1"] < joined.seconds
    command = [sys.executable, "-m", "weft.tools.profiler", "--no-open", "--join", "--out=all.html"]
    done = subprocess.run(
        [*command, "r0.raw", "r1.raw"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "rank 1" in (tmp_path / "all.html").read_text()
    done = subprocess.run([*command, "p0.html"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "holds no recording" in done.stderr


def test_a_recording_comes_back_as_it_was(tmp_path):
    x = wf.ones((8, 8))
    with wf.tools.profile() as p:
        Net()(wf.ones((2, 16)))
        x @ x
        p.step()
    p.dump(tmp_path / "r.raw")
    again = Profile.load(tmp_path / "r.raw")
    for by in ("operator", "module", "line", "shapes"):
        assert again.table(by) == p.table(by)
    assert [tuple(w) for w in again.warnings()] == [tuple(w) for w in p.warnings()]
    assert again.steps() == p.steps()
