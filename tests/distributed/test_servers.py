"""Parameter servers on Ray, with workers and servers that are killed or stopped. Long: they run with --full.

WEFT_TEST_SEED: other moments and victims of the kills.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.kvstore.journal import Journal
from weft.kvstore.parameter_server import pieces_of

pytest.importorskip("ray")
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]
SEED = os.environ.get("WEFT_TEST_SEED", "0")


class Job:
    """A running `python -m weft.launch --kv`."""

    def __init__(self, folder, kind, n, program, *args, restarts=0, **env):
        self.folder = folder
        command = [
            sys.executable,
            "-m",
            "weft.launch",
            "-n",
            str(n),
            "--kv",
            kind,
            "--restarts",
            str(restarts),
        ]
        self.output = open(folder / "output", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, str(PROGRAMS / program), kind, str(folder), *map(str, args)],
            cwd=ROOT,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Where the tests run in the background, an interrupt is ignored, which processes inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            env=os.environ
            | {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
            | env,
        )

    def text(self):
        return (self.folder / "output").read_text()

    def until(self, ready, timeout_s=120):
        """What ready() gives as soon as it is true; it fails if the job ends before."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if found := ready():
                return found
            assert self.process.poll() is None, self.text()
            time.sleep(0.02)
        raise AssertionError(self.text())

    def number(self, name):
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return int(text) if text else 0

    def servers(self):
        """Process ids of the servers, by what Ray calls them."""
        found = []
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdigit() and b"ray::Server" in (path / "cmdline").read_bytes():
                    group = os.getsid(int(path.name))
                    if group == self.process.pid or self.is_below(int(path.name)):
                        found.append(int(path.name))
            except (OSError, ProcessLookupError):
                continue
        return found

    def is_below(self, pid):
        """Whether this job's process started it, or one that it started did."""
        while pid > 1:
            if pid == self.process.pid:
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return False

    def end(self, timeout_s=240):
        status = self.process.wait(timeout_s)
        assert status == 0, self.text()
        with np.load(self.folder / "result.npz") as found:
            return [found[name] for name in found.files]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                self.output.close()
                raise AssertionError(f"it did not end:\n{self.text()}") from None
        self.output.close()


@pytest.fixture
def start(tmp_path):
    jobs = []

    def begin(*args, **kwargs):
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(Job(folder, *args, **kwargs))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.stop()


def model(n, steps, compress=None):
    """What synchronous training comes to: mean losses and parameters. Gradients are summed over ranks, momentum 0.5."""
    rng = np.random.default_rng(0)
    dtype = "float32" if compress else "float64"
    x, y = rng.standard_normal((4 * n, 5)).astype(dtype), rng.standard_normal((4 * n, 3)).astype(dtype)
    wf.random.seed(0)
    net = M.Sequential(M.Linear(5, 8, dtype=dtype), M.Tanh(), M.Linear(8, 3, dtype=dtype))
    params = list(net.parameters())
    gm = wf.GradManager().attach(params)
    w = [p.numpy().copy() for p in params]
    momentum = [np.zeros_like(a) for a in w]
    residuals = [[np.zeros(a.size, "float32") for a in w] for _ in range(n)]
    losses = []
    for _ in range(steps):
        sums = [np.zeros_like(a) for a in w]
        losses.append(0.0)
        for k in range(n):
            for p, a in zip(params, w, strict=True):
                p[...] = a
                p.grad = None
            with gm:
                loss = F.mse_loss(net(wf.tensor(x[4 * k : 4 * k + 4])), wf.tensor(y[4 * k : 4 * k + 4]))
                gm.backward(loss)
            losses[-1] += loss.item() / n
            for i, p in enumerate(params):
                g = p.grad.numpy()
                if compress:
                    g = compress(g, residuals[k][i])
                sums[i] = sums[i] + g
        for i, s in enumerate(sums):
            momentum[i] = 0.5 * momentum[i] + s
            w[i] = w[i] - 0.1 * momentum[i]
    return losses, w


def two_bits(g, residual):
    residual += g.reshape(-1)
    t = np.float32(0.02)
    sent = np.where(residual >= t, t, np.where(residual <= -t, -t, np.float32(0)))
    residual -= sent
    return sent.reshape(g.shape)


def check(job, found, expected, tolerance=1e-12):
    """Parameters, and the mean of the losses of all ranks, against a model."""
    losses, params = expected
    own = np.mean([np.load(path) for path in job.folder.glob("losses-*.npy")], axis=0)
    np.testing.assert_allclose(own, losses, rtol=tolerance)
    for a, b in zip(found, params, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 100)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_synchronous_training_is_training_with_the_whole_batch(start, n, compressed, traced):
    compression = {"type": "2bit", "threshold": 0.02} if compressed else None
    extra = [json.dumps(compression), "traced"] if traced else [json.dumps(compression)]
    job = start("dist_sync_ps", n, "server_training.py", 6, *extra)
    check(job, job.end(), model(n, 6, two_bits if compressed else None), 1e-4 if compressed else 1e-12)


@pytest.mark.parametrize("kind", ["dist_async", "dist_ssp"])
def test_all_pushes_are_committed_once(start, kind):
    job = start(kind, 2, "server_training.py", 10)
    job.end()
    for versions in json.loads((job.folder / "states").read_text()):
        assert set(versions.values()) == {20}


def test_asynchronous_training_is_a_serial_replay_of_the_committed_pushes(start):
    job = start("dist_async", 3, "server_training.py", 10, EVERY="1000000")
    found = job.end()
    count = 0
    for k in range(2):
        parts, momentum = {}, {}
        for header, arrays in Journal(job.folder / "snapshots" / f"server-{k}").records(0):
            key, x = header.get("key"), arrays[0] if arrays else None
            match header["do"]:
                case "init":
                    parts[key], momentum[key] = x, np.zeros_like(x)
                case "push":
                    count += 1
                    momentum[key] = 0.5 * momentum[key] + x
                    parts[key] = parts[key] - 0.1 * momentum[key]
        for i, whole in enumerate(found):
            for piece in pieces_of(f"p{i}", whole.shape, 2, big=20):
                if piece.server == k:
                    np.testing.assert_allclose(parts[f"p{i}"], piece.of(whole), rtol=1e-12)
    assert count == 3 * 10 * 6  # of 4 arrays two are divided


def test_a_push_that_failed_unread_ends_the_job_with_an_error(start):
    job = start("dist_async", 2, "unread.py")
    assert job.process.wait(120) == 1
    assert (
        "rank 0 ended with status 1: a request to the servers has failed, and nothing has read" in job.text()
    )
    assert "\x1b[" not in job.text()


@pytest.mark.parametrize("seed", range(5))
def test_servers_that_are_killed_lose_nothing(start, seed):
    chance = random.Random(f"{seed} {SEED}")
    job = start("dist_sync_ps", 2, "server_training.py", 30)
    job.until(lambda: job.number("step-0") >= 1)
    for _ in range(3):
        target = chance.choice(job.until(job.servers))
        time.sleep(chance.random() * 0.3)
        with_steps = job.number("step-0")
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            continue
        if with_steps < 30:
            job.until(lambda: job.number("step-0") > with_steps or job.number("step-0") == 30)  # noqa: B023
    check(job, job.end(), model(2, 30))
    for versions in json.loads((job.folder / "states").read_text()):
        assert set(versions.values()) == {30}


@pytest.mark.parametrize("kind", ["dist_sync_ps", "dist_async", "dist_ssp"])
@pytest.mark.parametrize("seed", range(3))
def test_workers_go_on_when_one_is_killed(start, kind, seed):
    chance = random.Random(f"{seed} {SEED}")
    job = start(kind, 3, "server_training.py", 25)
    target = chance.randrange(3)
    after = chance.randrange(20)
    job.until(lambda: job.number(f"step-{target}") > after)
    time.sleep(chance.random() * 0.05)
    os.kill(job.number(f"pid-{target}"), signal.SIGKILL)
    job.end()
    assert f"rank {target} died" in job.text()
    for rank in {0, 1, 2} - {target}:
        assert job.number(f"step-{rank}") == 25


@pytest.mark.parametrize("kind", ["dist_sync_ps", "dist_async", "dist_ssp"])
@pytest.mark.parametrize("seed", range(5))
def test_no_push_is_lost_or_applied_twice_however_many_die(start, kind, seed):
    """Of 3 workers and 2 servers one is killed at a random moment, ten times; a counter counts each push.

    That is 55 kills of workers and 95 of servers in all. A killed worker is started again, as another one for the
    servers; not where rounds are synchronous, as it would have fewer of them than the others, so there one dies. Every
    push adds 1 to an element of its own: that must be there once if the push was acknowledged, and at most once if its
    worker died before.
    """
    chance = random.Random(f"{kind} {seed} {SEED}")
    synchronous = kind == "dist_sync_ps"
    targets = ["worker"] + 9 * ["server"] if synchronous else 5 * ["worker", "server"]
    chance.shuffle(targets)
    job = start(kind, 3, "counting.py", restarts=0 if synchronous else 20)
    job.until(lambda: all(job.number(f"step-{rank}") >= 1 for rank in range(3)))

    def acknowledged():
        return sum(len(path.read_text().split()) for path in job.folder.glob("done-*"))

    def kill(what):
        """Kill one of them, which may not be there at the moment: just killed, and not yet started again."""
        while True:
            servers = job.until(job.servers) if what == "server" else []
            pid = chance.choice(servers) if servers else job.number(f"pid-{chance.randrange(3)}")
            time.sleep(chance.random() * 0.3)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                time.sleep(0.05)
                continue
            return

    for what in targets:
        kill(what)
        before = sum(job.number(f"step-{rank}") for rank in range(3))
        job.until(lambda before=before: sum(job.number(f"step-{rank}") for rank in range(3)) > before + 3)
    (job.folder / "stop").write_text(str(max(job.number(f"step-{rank}") for rank in range(3)) + 20))
    (counted,) = job.end()
    sent = [set(map(int, path.read_text().split())) for path in job.folder.glob("sent-*")]
    done = [set(map(int, path.read_text().split())) for path in job.folder.glob("done-*")]
    sent, done = set.union(*sent), set.union(*done)
    assert len(done) == acknowledged() >= 60
    assert set(np.unique(counted)) <= {0.0, 1.0}
    applied = set(np.nonzero(counted)[0].tolist())
    assert done <= applied <= sent


def test_a_worker_that_died_is_started_again(start):
    job = start("dist_async", 2, "server_training.py", 15, restarts=1)
    job.until(lambda: job.number("step-1") > 3)
    os.kill(job.number("pid-1"), signal.SIGKILL)
    job.end()
    assert "rank 1 died" in job.text()
    assert job.number("step-1") == 15


def test_a_cluster_of_one_machine_listens_on_loopback_alone(start):
    """Of all sockets in this network's tables that processes of the job have, none listens on another address."""
    job = start("dist_async", 1, "server_training.py", 2000)
    job.until(lambda: job.number("step-0") > 1)
    sockets = {}
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            link = os.readlink(path)
            if link.startswith("socket:") and job.is_below(int(path.parts[2])):
                sockets[link[8:-1]] = path.parts[2]
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                found.append(words[1].partition(":")[0])
    assert len(found) >= 3
    assert set(found) <= {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}, found


def test_a_stopped_worker_is_named(start):
    job = start("dist_sync_ps", 2, "server_training.py", 2000, WEFT_STALL_S="1")
    job.until(lambda: job.number("step-1") > 1)
    target = job.number("pid-1")
    os.kill(target, signal.SIGSTOP)
    try:
        job.until(lambda: f"pid {target}" in job.text() and "rank 1" in job.text())
        before = job.number("step-0")
    finally:
        os.kill(target, signal.SIGCONT)
    job.until(lambda: job.number("step-0") > before + 1)


def test_a_stopped_server_is_named(start):
    job = start("dist_async", 1, "server_training.py", 2000, WEFT_STALL_S="1")
    job.until(lambda: job.number("step-0") > 1)
    for target in (servers := job.until(job.servers)):
        os.kill(target, signal.SIGSTOP)
    try:
        job.until(lambda: "for server" in job.text())
    finally:
        for target in servers:
            os.kill(target, signal.SIGCONT)
    before = job.number("step-0")
    job.until(lambda: job.number("step-0") > before)
