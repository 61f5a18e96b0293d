"""Workers: the same batches for any number and mode, and what happens when they raise, end or hang."""

import contextlib
import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import worker_cases as cases

import weft as wf
import weft.data as data
from weft.data import processes

MODES = ["thread", "process"]


def plain(batch):
    if isinstance(batch, dict):
        return {key: plain(each) for key, each in batch.items()}
    if isinstance(batch, tuple | list):
        return [plain(each) for each in batch]
    return batch.numpy().tolist() if isinstance(batch, wf.Tensor) else batch


def children():
    """Processes whose parent is this one."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in path.read_text().split()}


def files():
    """Open files, by what they are."""
    kinds = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            kinds.append(re.sub(r"\d+", "", os.readlink(f"/proc/self/fd/{name}")))
    return Counter(kinds)


@contextlib.contextmanager
def nothing_left():
    """No process, thread, file descriptor or shared memory stays."""
    gc.collect()
    before = children(), files(), shared()
    yield
    gc.collect()
    assert children() <= before[0]
    assert not files() - before[1]
    assert shared() <= before[2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weft-data")]


def shared():
    """Named shared memory, of which loaders make none; other programs may."""
    return {name for name in os.listdir("/dev/shm") if "weft" in name or name.startswith("psm_")}


# -- the same batches --


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [cases.Noisy, cases.Text, cases.Tensors])
def test_batches_do_not_depend_on_workers(make, mode):
    options = {"batch_size": 4, "seed": 5}
    if make is cases.Text:
        options["transform"] = cases.double_with_noise
    else:
        options["shuffle"] = True
    here = data.DataLoader(make(), **options)
    want = [[plain(batch) for batch in here] for _ in range(2)]
    for workers in (1, 3):
        with nothing_left():
            with data.DataLoader(make(), **options, num_workers=workers, mode=mode) as loader:
                assert [[plain(batch) for batch in loader] for _ in range(2)] == want
            del loader


def test_global_generators_of_processes_follow_the_batch():
    def drawn(workers):
        with data.DataLoader(
            cases.Globals(), batch_size=5, seed=2, num_workers=workers, mode="process"
        ) as loader:
            return [plain(batch) for batch in loader]

    assert drawn(1) == drawn(2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [cases.Noisy, cases.Text])
def test_going_on_in_the_middle(make, mode):
    def loader(**options):
        extra = {"transform": cases.double_with_noise} if make is cases.Text else {"shuffle": True}
        return data.DataLoader(make(), batch_size=4, num_workers=2, mode=mode, **extra, **options)

    with loader(seed=3) as one, loader(seed=4) as two:
        batches = iter(one)
        for _ in range(3):
            next(batches)
        state = one.state_dict()
        want = [plain(batch) for batch in batches] + [plain(batch) for batch in one]
        for _ in range(2):  # a second time over batches that are still ahead
            two.load_state_dict(state)
            assert [plain(batch) for batch in two] + [plain(batch) for batch in two] == want
            next(iter(two))
        two.load_state_dict(state)
        assert two.state_dict() == state


@pytest.mark.parametrize("mode", MODES)
def test_batches_stay_when_the_loader_has_gone(mode):
    with nothing_left():
        loader = data.DataLoader(cases.Noisy(), batch_size=5, num_workers=2, mode=mode)
        batches = list(loader)
        loader.close()
        del loader
        got = np.concatenate([batch["row"].numpy() for batch in batches])
        np.testing.assert_array_equal(got, cases.Noisy().table)
        del batches, got


def test_slots_return_when_batches_are_dropped():
    with data.DataLoader(cases.Noisy(400), batch_size=4, num_workers=2, mode="process") as loader:
        for batch in loader:
            row = batch["row"][1].numpy()  # a view of a view
            del batch
            want = row.copy()
            del row
            assert want.shape == (100,)
        assert loader._pool._next_slot <= 20  # of 100 batches; how many are on their way depends on threads
        held = [batch["row"] for batch in loader]
        assert loader._pool._next_slot >= 100
        np.testing.assert_array_equal(np.concatenate([x.numpy() for x in held]), cases.Noisy(400).table)
        del held


def test_a_batch_does_not_change_while_it_is_held():
    with data.DataLoader(cases.Noisy(200), batch_size=4, num_workers=1, mode="process") as loader:
        batches = iter(loader)
        kept = next(batches)["row"][2]
        want = kept.numpy().copy()
        for _ in batches:
            pass
        np.testing.assert_array_equal(kept.numpy(), want)


def test_arrays_of_datasets_are_in_memory_once():
    dataset = data.ArrayDataset(np.zeros((2000, 4000), "float32"))  # 32 MB
    with data.DataLoader(dataset, batch_size=10, num_workers=3, mode="process") as loader:
        for _ in loader:
            pass
        for worker in loader._pool._workers:
            text = Path(f"/proc/{worker.pid}/smaps_rollup").read_text()
            private_kb = sum(int(kb) for kb in re.findall(r"Private_\w+:\s+(\d+)", text))
            assert private_kb < 25_000


def test_empty_and_odd_batches():
    odd = [(np.zeros((0, 3)), np.float32(2), None, "text", b"bytes", True, 3, 2.5)] * 3
    one = data.DataLoader(odd, batch_size=2)
    with data.DataLoader(odd, batch_size=2, num_workers=2, mode="process") as two:
        assert [plain(batch) for batch in one] == [plain(batch) for batch in two]


def test_worker_info():
    assert data.worker_info() is None
    with data.DataLoader(
        list(range(6)), transform=lambda k: data.worker_info().workers, num_workers=2
    ) as loader:
        assert [int(x) for x in loader] == [2] * 6


@pytest.mark.parametrize("mode", MODES)
def test_copies_to_a_device(mode):
    with data.DataLoader(cases.Noisy(), batch_size=4, num_workers=2, mode=mode, device="cpu:1") as loader:
        batches = list(loader)
        assert {str(batch["row"].device) for batch in batches} == {"cpu:1"}
        np.testing.assert_array_equal(
            np.concatenate([batch["row"].numpy() for batch in batches]), cases.Noisy().table
        )


def test_batches_of_threads_are_operations_of_the_io_queue():
    class Observer:
        def __init__(self):
            self.seen = []

        def on_end(self, record):
            if record.operation == "load batch":  # one row of tables
                self.seen.append((record.queue, record.error))

    engine, observer = wf.engine.default_engine(), Observer()
    engine.add_observer(observer)
    try:
        with data.DataLoader(cases.Noisy(20), batch_size=5, num_workers=2) as loader:
            list(loader)
        engine.wait_for_all()
    finally:
        engine.remove_observer(observer)
    assert observer.seen == [("io", None)] * 4


def test_statistics_and_persistence():
    with nothing_left():
        loader = data.DataLoader(
            cases.Noisy(50), batch_size=10, num_workers=2, mode="process", persistent=False
        )
        before = children()
        assert len(list(loader)) == 5
        assert children() == before
        assert (loader.stats.batches, loader.stats.samples) == (5, 50)
        assert 0 < loader.stats.waited_s <= loader.stats.total_s
        assert len(list(loader)) == 5


# -- errors --


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, cases.unpicklable])
def test_an_exception_names_worker_and_sample(mode, kind):
    with nothing_left():
        loader = data.DataLoader(cases.Failing(kind), batch_size=4, num_workers=2, mode=mode)
        with pytest.raises(
            RuntimeError if kind is cases.unpicklable and mode == "process" else Exception
        ) as caught:
            list(loader)
        error = caught.value
        if isinstance(kind, type):
            assert isinstance(error, kind)
        text = str(error) + "\n".join(getattr(error, "__notes__", ()))
        assert "the value is bad" in text
        assert "sample 13" in text
        assert re.search(r"worker (thread )?\d", text)
        assert error.sample_index == 13
        if mode == "process":
            assert "in __getitem__" in text  # the worker's own traceback
        del error, caught, loader


def test_without_workers_the_sample_is_named_too():
    with pytest.raises(ValueError, match="the value is bad") as caught:
        list(data.DataLoader(cases.Failing(), batch_size=4))
    assert "while loading sample 13, in batch 3 of epoch 0" in caught.value.__notes__


def test_what_cannot_be_pickled():
    with nothing_left():
        loader = data.DataLoader([1, 2], transform=lambda x: x, num_workers=1, mode="process")
        with pytest.raises(TypeError, match=r"can be pickled.*or use mode='thread'"):
            next(iter(loader))
        del loader


@pytest.mark.parametrize("stage", ["unpickle", "getitem", "exit", "hang", "pickle"])
def test_a_worker_that_ends_is_named(tmp_path, stage):
    dataset = cases.Deadly(tmp_path, {stage: [0 if stage == "unpickle" else 4]})
    with nothing_left():
        loader = data.DataLoader(
            dataset, batch_size=4, num_workers=2, mode="process", collator=dataset.collate, timeout_s=2
        )
        with pytest.raises(data.WorkerError) as caught:
            list(loader)
        how = {"exit": "ended with status 7", "hang": "did not finish batch 1"}.get(
            stage, "was killed by SIGKILL"
        )
        what = "before it was ready" if stage == "unpickle" else "batch 1 of epoch 0 (samples 4, 5, 6, 7)"
        assert re.match(r"DataLoader: worker \d \(process \d+\) ", str(caught.value))
        assert how in str(caught.value)
        assert what in str(caught.value)
        del loader, caught


def test_a_batch_that_always_ends_its_worker():
    with nothing_left():
        loader = data.DataLoader(cases.AlwaysEnding(), num_workers=2, mode="process", on_error="restart")
        with pytest.raises(data.WorkerError, match=r"ended with status 3 .*and so did 2 workers before it"):
            list(loader)
        del loader


def test_a_hung_thread_is_named_and_replaced():
    release = threading.Event()
    loader = data.DataLoader(cases.Sleeping(release), num_workers=2, timeout_s=0.3)
    try:
        with pytest.raises(data.WorkerError, match=r"worker thread \d did not finish batch 3"):
            list(loader)
    finally:
        release.set()
    release.clear()
    with data.DataLoader(
        cases.Sleeping(release), num_workers=2, timeout_s=0.3, on_error="restart", batch_size=2
    ) as loader:
        threading.Timer(0.5, release.set).start()
        assert [plain(batch) for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def schedule(rng, folder, size):
    """A plan of ends at random stages; hangs are rare, they take time."""
    for path in Path(folder).iterdir():
        path.unlink()
    plan = {}
    for batch in rng.sample(range(size // 3), rng.randint(1, 3)):  # a batch that ends 3 workers raises
        stage = rng.choices(cases.STAGES, [1, 3, 3, 3, 3, 2, 0.3])[0]
        plan.setdefault(stage, set()).add(0 if stage == "unpickle" else 3 * batch + rng.randrange(3))
    Path(folder, "plan").write_text(repr(plan))
    return plan


def run_schedules(folder, numbers, killing):
    dataset = cases.Deadly(folder)
    options = {"batch_size": 3, "num_workers": 2, "mode": "process", "on_error": "restart", "timeout_s": 1}
    want = [list(range(k, k + 3)) for k in range(0, 24, 3)]
    with nothing_left():
        with data.DataLoader(
            dataset, transform=dataset.transform, collator=dataset.collate, **options
        ) as loader:
            for number in numbers:
                rng = random.Random(number)
                plan = schedule(rng, folder, 24)
                kill_at = rng.randrange(8) if killing and number % 4 == 0 else -1
                batches = []
                for k, batch in enumerate(loader):
                    batches.append(plain(batch))
                    if k == kill_at:  # from outside, whatever it is doing; sometimes what forks workers
                        pool = loader._pool
                        pids = [worker.pid for worker in pool._workers if worker.pid]
                        pids += [pool._nursery.pid] if number % 8 == 0 else []
                        with contextlib.suppress(ProcessLookupError):
                            for pid in rng.sample(pids, min(1, len(pids))):  # none while both are replaced
                                os.kill(pid, signal.SIGKILL)
                assert batches == want, (number, plan)
        del loader, batch  # which holds its slot


def test_twenty_schedules_of_ends(tmp_path):
    run_schedules(tmp_path, range(20), killing=True)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_two_hundred_schedules_of_ends(tmp_path):
    run_schedules(tmp_path, range(20, 220), killing=True)


# -- ends of the whole program --

PROGRAM = """
import os, signal, sys
sys.path.append({folder!r})
import worker_cases as cases
import weft.data as data
if __name__ == "__main__":
    loader = data.DataLoader(cases.{make}, num_workers=2, mode={mode!r}, **{options!r})
    for batch in loader:
        pids = [worker.pid for worker in loader._pool._workers] if {mode!r} == "process" else ""
        nursery = loader._pool._nursery.pid if pids else ""
        print(f"batch {{int(batch)}} {{pids}} {{nursery}}\\n", end="", flush=True)  # one write
        {inside}
"""


def program(make="Noisy()", mode="process", inside="pass", **options):
    text = PROGRAM.format(
        folder=str(Path(__file__).parent), make=make, mode=mode, options=options, inside=inside
    )
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def gone(pids, limit_s=30):
    end = time.monotonic() + limit_s
    left = set(pids)
    while left and time.monotonic() < end:
        left = {pid for pid in left if Path(f"/proc/{pid}").exists() and state(pid) != "Z"}
        time.sleep(0.01)
    return not left


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def pids_of(line):
    return [int(number) for number in re.findall(r"\d+", line.split("[", 1)[1])]


def test_kill_of_the_program_ends_its_workers():
    with program("Blocking()") as process:
        lines = [process.stdout.readline() for _ in range(6)]
        pids = pids_of(next(line for line in reversed(lines) if line.startswith("batch")))
        assert len(pids) == 3
        process.kill()
        assert gone(pids)


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_ends_everything(mode):
    with program("Blocking()", mode) as process:
        lines = [process.stdout.readline() for _ in range(6)]
        pids = pids_of(next(line for line in reversed(lines) if "[" in line)) if mode == "process" else []
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert "KeyboardInterrupt" in errors
    assert "worker" not in errors.replace("worker_cases", "").replace("_workers", "") or mode == "thread"
    assert gone(pids)


@pytest.mark.parametrize("mode", MODES)
def test_a_program_may_end_in_the_middle(mode):
    with program("Failing(bad=-1)", mode, inside="sys.exit(5) if int(batch) == 3 else None") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (5, "")
    assert mode == "thread" or gone(pids_of(output.splitlines()[-1]))


def test_a_main_module_without_guard(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import weft.data as data\n"
        "class Own(data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, k): return k\n"
        "GUARD\n"
        "    print([int(x) for x in data.DataLoader(Own(), num_workers=2, mode='process')])\n"
    )
    text = path.read_text()
    path.write_text(text.replace("GUARD", "if True:"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert "if __name__ == '__main__'" in done.stderr
    path.write_text(text.replace("GUARD", "if __name__ == '__main__':"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3]\n", "")


def test_a_forked_child_has_workers_of_its_own():
    with data.DataLoader(list(range(4)), num_workers=1, mode="process") as loader:
        assert [int(x) for x in loader] == [0, 1, 2, 3]
        pid = os.fork()
        if pid == 0:
            status = 1
            with contextlib.suppress(BaseException):
                status = 0 if [int(x) for x in loader] == [0, 1, 2, 3] else 2
                loader.close()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [int(x) for x in loader] == [0, 1, 2, 3]


def test_memory_that_cannot_be_had(monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with nothing_left():
        loader = data.DataLoader(cases.Noisy(), num_workers=1, mode="process")
        monkeypatch.setattr(processes._nursery.os, "posix_fallocate", refuse)
        with pytest.raises(TypeError, match="No space left"):
            next(iter(loader))
        del loader


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_that_divides_itself_among_workers_gives_all_samples(mode):
    with data.DataLoader(cases.Dividing(), batch_size=3, num_workers=2, mode=mode) as loader:
        assert [int(x) for batch in loader for x in batch.numpy()] == list(range(20))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_exceptions_arrive_as_what_they_are(mode, workers):
    loader = data.DataLoader(cases.Raising("own"), num_workers=workers, mode=mode)
    with pytest.raises(cases.Own, match=r"out of paper \(7\)") as caught:
        list(loader)
    assert caught.value.sample_index == 2
    loader = data.DataLoader(cases.Raising("stop"), num_workers=workers, mode=mode)
    with pytest.raises(RuntimeError, match="loading a sample raised StopIteration") as caught:
        list(loader)
    assert caught.value.sample_index == 2
    loader.close()


def test_batches_beyond_a_share_of_the_file_descriptors_are_copied(monkeypatch):
    monkeypatch.setattr(processes.resource, "getrlimit", lambda _: (64, 64))
    with nothing_left():
        loader = data.DataLoader(cases.Noisy(60), num_workers=1, mode="process")
        before = sum(files().values())
        held = list(loader)
        assert sum(files().values()) - before < 40
        assert [int(batch["k"][0]) for batch in held] == list(range(60))
        assert [int(batch["row"][0, 0]) for batch in held] == list(range(0, 6000, 100))
        del held
        loader.close()


@pytest.mark.parametrize("on_error", ["restart", "raise"])
def test_a_nursery_that_is_killed_before_it_is_ready(monkeypatch, on_error):
    begin, started = subprocess.Popen, []

    def killed(*args, **kwargs):
        started.append(begin(*args, **kwargs))
        if len(started) == 1:
            started[0].kill()
            started[0].wait()
        return started[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", killed)
    with data.DataLoader(cases.Noisy(4), num_workers=1, mode="process", on_error=on_error) as loader:
        if on_error == "restart":
            assert len(list(loader)) == 4
        else:
            with pytest.raises(data.WorkerError, match="was killed by SIGKILL before it was ready"):
                list(loader)
