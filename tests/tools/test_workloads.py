"""./dev bench: its protocol and its driver, with sides that compute nothing. What is measured is not looked at."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # they are programs, whose modules lie beside them

import _contest  # noqa: E402
import _environments as environments  # noqa: E402
import _report  # noqa: E402
import workloads  # noqa: E402
from _contest import Arena  # noqa: E402
from _plan import contests  # noqa: E402
from _process import Process, Side, SideError  # noqa: E402
from _show import show  # noqa: E402
from _workloads import WORKLOADS  # noqa: E402

SIDE = f"""
import os, sys, time
sys.path.insert(0, {str(BENCHMARKS / "peers")!r})
from _protocol import Cases, serve
cases = Cases()
SECONDS = {{"slow": 0.004, "far": 0.1}}
@cases.add("mlp-train", "quick", "slow", "far", "broken", "dead", "dies", "hangs", precisions=("f32",))
@cases.add("resnet50-train", "quick", "slow", precisions=("bf16",))
def build(variant, precision):
    if variant == "broken":
        raise ValueError("no such layer\\nmore")
    if variant == "dead":
        print("a library's word", file=sys.stderr, flush=True)
        sys.exit(3)
    print("a library prints")
    held, count = bytearray(1 << 24 if variant == "slow" else 1), 0
    def run():
        nonlocal count
        count += 1
        if variant == "dies" and count == 8:
            os._exit(5)
        if variant == "hangs" and count == 8:
            time.sleep(60)
        time.sleep(SECONDS.get(variant, 0.003))
        return len(held) / 2
    return run
serve("Fake", "1.2", cases)
"""
LIMIT_S = 60


@pytest.fixture
def side(tmp_path):
    program = tmp_path / "side.py"
    program.write_text(SIDE)
    return Side(Path(sys.executable), program)


@pytest.fixture
def cores():
    return sorted(os.sched_getaffinity(0))[:1]


@pytest.fixture
def arena(tmp_path, side, cores):
    programs = {"gone": "import nothing_of_this_name", "chatty": "print('hello', flush=True)"}
    sides = {"weft": side, "fake": side}
    for name, text in programs.items():
        program = tmp_path / f"{name}.py"
        program.write_text(text)
        sides[name] = Side(Path(sys.executable), program)
    sides["nowhere"] = Side(tmp_path / "python", tmp_path / "gone.py")
    return Arena(sides, tmp_path / "logs", cores, {}, turns=4, budget_s=0.005, trial=1, say=lambda text: None)


def parts_of(arena, *names, only=""):
    hellos, missing = arena.hellos()
    return contests(hellos, [WORKLOADS[name] for name in names], only), missing


def measured(arena, parts, runs=1):
    return workloads.measured(arena, parts, lambda: _report.Report({"date": "today"}), runs)


def state(process):
    return Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_side_answers_and_is_stopped_between_answers(tmp_path, side, cores):
    with Process(side, {}, cores, tmp_path / "log", LIMIT_S) as process:
        assert process.hello["name"] == "Fake"
        assert ["mlp-train", "quick", "f32"] in process.hello["cases"]
        assert state(process) == "T"
        answer = process.ask(LIMIT_S, prepare=["mlp-train", "quick", "f32"], warm=2)
        assert answer["result"] == 0.5
        assert len(process.ask(LIMIT_S, sample=0.02)["runs"]) > 1
        assert state(process) == "T"
        assert os.sched_getaffinity(process.process.pid) == set(cores)
        with pytest.raises(SideError, match=r"^ValueError: no such layer$"):
            process.ask(LIMIT_S, prepare=["mlp-train", "broken", "f32"], warm=1)
        slow = process.ask(LIMIT_S, prepare=["mlp-train", "slow", "f32"], warm=1)  # it goes on
        assert slow["seconds"] > 0
    assert process.process.returncode is not None
    assert "a library prints" in (tmp_path / "log").read_text()


def test_a_side_ends_with_its_driver(tmp_path, side):
    driver = f"""
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(BENCHMARKS)!r})
from _process import Process, Side
process = Process(Side(*map(Path, {list(map(str, side))!r})), {{}}, [min(__import__("os").sched_getaffinity(0))],
                  Path({str(tmp_path / "log")!r}), 60)
print(process.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        process.kill()
    end = time.monotonic() + 30
    while (stat := Path(f"/proc/{pid}/stat")).exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_side_that_does_not_answer(tmp_path, cores):
    program = tmp_path / "sleeps.py"
    program.write_text("import time; time.sleep(60)")
    with pytest.raises(SideError, match=r"no answer in 0\.2 s"):
        Process(Side(Path(sys.executable), program), {}, cores, tmp_path / "log", 0.2)


def test_memory_is_that_of_a_fresh_process(tmp_path, side, cores):
    with Process(side, {}, cores, tmp_path / "log", LIMIT_S) as process:
        found = process.ask(LIMIT_S, memory=["resnet50-train", "slow", "bf16"])
    assert set(found) == {"imported", "built", "peak", "steady"}
    assert found["built"] - found["imported"] > 15
    assert found["peak"] >= found["built"] - 1


def test_what_fails_is_a_row_with_its_reason(arena, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_contest, "SAMPLE_LIMIT_S", 1.0)
    arena.trial = None
    parts, missing = parts_of(arena, "mlp-train", "resnet50-train-memory")
    assert missing["gone"].startswith("ended with status 1: ModuleNotFoundError: No module named")
    assert missing["chatty"] == "answered 'hello', which is not JSON"
    assert "does not start" in missing["nowhere"]
    *_, report = measured(arena, parts)
    report.missing = missing

    found = {(each.side, each.variant): each for each in report.of("mlp-train", "f32")}
    for side in ("weft", "fake"):
        assert found[side, "broken"].error == "ValueError: no such layer"
        assert found[side, "dead"].error == "ended with status 3: a library's word"
        assert found[side, "dies"].error == "ended with status 5: a library prints"
        assert found[side, "hangs"].error == "no answer in 1 s"
        for way in ("quick", "slow"):
            assert not found[side, way].error
            assert len(found[side, way].runs) >= 4
    assert {each.workload for each in report.results} == {"mlp-train", "resnet50-train-memory"}
    assert all(each.memory for each in report.of("resnet50-train-memory", "bf16"))

    show(report)
    shown = capsys.readouterr().out
    for text in ("ended with status 3", "no answer in 1 s", "did not run: does not start"):
        assert text in shown
    assert "these did not: gone, chatty, nowhere, fake, broken in mlp-train f32" in shown
    assert "bars hold" in shown.splitlines()[-1]

    path = tmp_path / "report.json"
    _report.write_json(path, report)
    again = _report.read_json(path)
    assert [each.way for each in again.results] == [each.way for each in report.results]
    assert [each.error for each in again.results] == [each.error for each in report.results]
    assert json.loads(path.read_text())["missing"] == report.missing
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("quiet", [True, False])
def test_who_is_far_behind_is_asked_only_at_first(arena, monkeypatch, quiet):
    monkeypatch.setattr(_contest, "OTHERS_LIMIT", 100.0 if quiet else -1.0)
    parts, _ = parts_of(arena, "mlp-train")
    parts = [
        replace(part, ways=tuple(way for way in part.ways if way[1] in ("far", "quick"))) for part in parts
    ]
    *_, report = measured(arena, parts)
    found = {each.variant: each for each in report.results if each.side == "fake"}
    assert ("x fake, quick" in found["far"].dropped) == quiet
    assert len(found["far"].runs) == (1 if quiet else 4)
    assert not any(each.dropped for each in report.results if each.variant == "quick")


def test_runs_follow_each_other_and_a_stop_keeps_what_is_whole(arena, monkeypatch, tmp_path):
    parts, _ = parts_of(arena, "mlp-train", "resnet50-train-memory", only="quick")
    steps = list(measured(arena, parts, runs=2))
    assert [len(report.results) for report in steps] == [2, 4, 6, 8]
    assert [each.run for each in steps[-1].of("mlp-train", "f32")] == [1, 1, 2, 2]
    assert [each.run for each in steps[1].of("mlp-train", "f32")] == [1, 1]

    memory = WORKLOADS["resnet50-train-memory"]

    def say(text):
        if text.startswith("resnet50-train-memory bf16: fake"):
            raise KeyboardInterrupt

    arena.say = say
    monkeypatch.setattr(workloads, "Arena", lambda *arguments: arena)
    monkeypatch.setattr(sys, "argv", ["workloads.py", "mlp-train", "--only", "quick", "--threads", "1"])
    monkeypatch.setattr(workloads, "selected", lambda name: [WORKLOADS["mlp-train"], memory])
    kept = tmp_path / "kept.json"
    report, whole = workloads.run(workloads.parsed(), kept)
    assert not whole
    assert [each.workload for each in report.results] == ["mlp-train"] * 2
    assert [each.way for each in _report.read_json(kept).results] == ["weft, quick", "fake, quick"]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"side.py" in command]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("#!/bin/sh\necho 'ERROR: no such version'; exit 1", r"venv .* failed: ERROR: no such version"),
        ("#!/bin/sh\nexec sleep 60", r"venv .* did not end in 0\.3 s"),
        (None, r"venv .* did not start"),
    ],
)
def test_an_environment_that_cannot_be_made(tmp_path, monkeypatch, program, reason):
    python = tmp_path / "python"
    if program:
        python.write_text(program)
        python.chmod(0o755)
    (tmp_path / "fake.txt").write_text("fake==1\n")
    for name, value in (("PEERS", tmp_path), ("FOLDER", tmp_path / "build"), ("ROOT", tmp_path)):
        monkeypatch.setattr(environments, name, value)
    monkeypatch.setattr(environments, "INSTALL_LIMIT_S", 0.3 if "exec" in str(program) else 30.0)
    monkeypatch.setattr(sys, "executable", str(python))
    sides, missing = workloads.peers()
    assert sides == {}
    assert set(missing) == {"fake"}
    with pytest.raises(environments.PeerError, match=reason):
        environments.make("fake")


@pytest.mark.parametrize("program", sorted(BENCHMARKS.glob("peers/*_side.py")), ids=lambda path: path.stem)
def test_every_side_has_an_environment_and_known_workloads(program):
    requirements = program.with_name(program.name.replace("_side.py", ".txt")).read_text().split()
    assert all("==" in line for line in requirements)
    compile(program.read_text(), program.name, "exec")
