"""./dev bench: its protocol and its driver, with sides that compute nothing. What is measured is not looked at."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # they are programs, whose modules lie beside them

import _report  # noqa: E402
import workloads  # noqa: E402
from _contest import Arena, Process, Result, Side, SideError  # noqa: E402
from _workloads import WORKLOADS, selected  # noqa: E402

SIDE = f"""
import sys, time
sys.path.insert(0, {str(BENCHMARKS / "peers")!r})
from _protocol import Cases, serve
cases = Cases()
@cases.add("mlp-train", "quick", "slow", "broken", "dead", precisions=("f32",))
@cases.add("resnet50-train", "quick", "slow", precisions=("bf16",))
def build(variant, precision):
    if variant == "broken":
        raise ValueError("no such layer\\nmore")
    if variant == "dead":
        print("a library's word", file=sys.stderr, flush=True)
        sys.exit(3)
    print("a library prints")
    held = bytearray(1 << 24 if variant == "slow" else 1)
    def run():
        time.sleep(0.004 if variant == "slow" else 0.001)
        return len(held) / 2
    return run
serve("Fake", "1.2", cases)
"""


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
    gone = tmp_path / "gone.py"
    gone.write_text("import nothing_of_this_name")
    said = []
    sides = {"weft": side, "fake": side, "gone": Side(Path(sys.executable), gone)}
    sides["nowhere"] = Side(tmp_path / "python", gone)
    return Arena(sides, tmp_path / "logs", cores, {}, turns=2, budget_s=0.01, timeout_s=60, say=said.append)


def state(process):
    return Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_side_answers_and_is_stopped_between_answers(tmp_path, side, cores):
    with Process(side, {}, cores, tmp_path / "log", 60) as process:
        assert process.hello["name"] == "Fake"
        assert ["mlp-train", "quick", "f32"] in process.hello["cases"]
        assert state(process) == "T"
        answer = process.ask(prepare=["mlp-train", "quick", "f32"], warm=2)
        assert answer["result"] == 0.5
        assert len(process.ask(sample=0.02)["runs"]) > 1
        assert state(process) == "T"
        assert os.sched_getaffinity(process.process.pid) == set(cores)
        with pytest.raises(SideError, match=r"^ValueError: no such layer$"):
            process.ask(prepare=["mlp-train", "broken", "f32"], warm=1)
        assert process.ask(prepare=["mlp-train", "slow", "f32"], warm=1)["seconds"] > 0  # it goes on
    assert process.process.returncode is not None
    assert "a library prints" in (tmp_path / "log").read_text()


def test_a_side_ends_with_its_driver(tmp_path, side):
    driver = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(BENCHMARKS)!r})
from _contest import Process, Side
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
    with Process(side, {}, cores, tmp_path / "log", 60) as process:
        found = process.ask(memory=["resnet50-train", "slow", "bf16"])
    assert set(found) == {"imported", "built", "peak", "steady"}
    assert found["built"] - found["imported"] > 15
    assert found["peak"] >= found["built"] - 1


@pytest.fixture
def report(arena):
    report = _report.Report({"date": "today"})
    workloads.measure(arena, report, [WORKLOADS["mlp-train"], WORKLOADS["resnet50-train-memory"]], "")
    return report


def test_what_fails_is_a_row_with_its_reason(report, tmp_path, capsys):
    assert report.missing["gone"].startswith("ended with status 1: ModuleNotFoundError: No module named")
    assert "does not start" in report.missing["nowhere"]
    reasons = {(each.side, each.variant): each.error for each in report.of("mlp-train", "f32")}
    assert reasons["fake", "quick"] == reasons["weft", "slow"] == ""
    assert reasons["fake", "broken"] == "ValueError: no such layer"
    assert reasons["fake", "dead"] == "ended with status 3: a library's word"
    assert all(len(each.runs) >= 2 for each in report.of("mlp-train", "f32") if not each.error)
    assert {each.workload for each in report.results} == {"mlp-train", "resnet50-train-memory"}
    _report.show(report)
    shown = capsys.readouterr().out
    assert "ended with status 3" in shown
    assert "bars hold" in shown.splitlines()[-1]

    path = tmp_path / "report.json"
    _report.write_json(path, report)
    again = _report.read_json(path)
    assert [each.side for each in again.results] == [each.side for each in report.results]
    assert [each.error for each in again.results] == [each.error for each in report.results]
    assert json.loads(path.read_text())["missing"] == report.missing


def made(ours, theirs, peak=None):
    """A report of the MLP and of the matrix product, each with the seconds of a run."""
    results = [
        Result("mlp-train", "f32", "weft", "traced", runs=[ours, 2 * ours, 3 * ours]),
        Result("mlp-train", "f32", "weft", "eager", runs=[4 * ours]),
        Result("mlp-train", "f32", "fake", "way | other", runs=[theirs]),
        Result("mlp-train", "f32", "broken", "way", error="why"),
    ]
    return _report.Report(
        {}, results + ([Result("matmul", "f32", "fake", "way", runs=[peak])] if peak else [])
    )


def test_rows():
    flops = WORKLOADS["mlp-train"].flops
    report = made(0.1, 0.08, peak=2 * 2048**3 / (flops / 0.0005))
    header, row = _report.summary(report)
    assert dict(zip(header, row, strict=True)) == {
        "workload": "mlp-train f32",
        "unit": "us",
        "weft": "1000 (traced)",
        "best peer": "800 (fake, way | other)",
        "ratio": "1.25",
        "bar": "0.90",
        "aim": "0.50",
        "holds": "NO",
        "of the peak": "50%",
    }
    rows = _report.details(report)
    assert rows[1][3:8] == ["1000", "2000", "us", "100%", "3"]
    assert [row[-1] for row in rows if row[1] == "broken"] == ["why"]
    assert _report.closing(made(0.07, 0.08)) == "1 bars hold, 0 do not"
    assert _report.closing(_report.Report({}, made(1, 1).results[:2])) == "0 bars hold, 0 do not"


def test_runs_of_parts_are_one_report():
    first, second = made(0.1, 0.2, peak=0.5), made(0.1, 0.2, peak=0.4)
    first.facts, second.facts = ({"date": day, "cores": 2} for day in ("Monday", "Tuesday"))
    for each in second.results[:-1]:
        each.workload = "lstm-train"
    whole = _report.combined([first, second])
    assert whole.facts == {"date": "Monday; Tuesday", "cores": "2"}
    assert [(w.name, p) for w, p in whole.groups()] == [("mlp-train", "f32"), ("lstm-train", "f32")]
    assert whole.of("matmul", "f32")[0].runs == [0.5, 0.4]
    assert _report.cost(_report.combined([made(1, 1), made(2, 2)]).of("mlp-train", "f32")[0]) == 2
    assert len(_report.combined([made(1, 1), made(2, 2)]).results) == 4


def test_the_page_is_written_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{_report.BEGIN}\nstale\n{_report.END}\nafter\n")
    _report.write_page(page, made(0.1, 0.2), "page.svg")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{_report.END}\nafter\n")
    assert "stale" not in text
    assert "(fake, way / other)" in text
    page.write_text("nothing")
    with pytest.raises(ValueError, match=r"page\.md has no lines"):
        _report.write_page(page, made(0.1, 0.2), "page.svg")
    assert _report.BEGIN in workloads.PAGE.read_text()


def test_the_plot_is_a_picture():
    from _plot import plot

    drawn = xml.fromstring(plot(made(0.1, 0.05)))
    assert any(each.text == "2.00  of fake" for each in drawn)


def test_names():
    assert [workload.name for workload in selected("resnet50-infer")] == [
        "resnet50-infer-b16",
        "resnet50-infer-b1",
    ]
    assert [workload.name for workload in selected("resnet50-train")] == ["resnet50-train"]
    assert selected("") == list(WORKLOADS.values())
    assert selected("alexnet") == []


def test_operations_of_a_step():
    images = WORKLOADS["resnet50-infer-b16"].flops / 16
    assert images == pytest.approx(2 * 4.089e9, rel=1e-3)
    assert WORKLOADS["gpt-train"].flops == 12 * WORKLOADS["gpt-prefill"].flops


@pytest.mark.parametrize("program", sorted(BENCHMARKS.glob("peers/*_side.py")), ids=lambda path: path.stem)
def test_every_side_has_an_environment_and_known_workloads(program):
    requirements = program.with_name(program.name.replace("_side.py", ".txt")).read_text().split()
    assert all("==" in line for line in requirements)
    compile(program.read_text(), program.name, "exec")
