"""./dev bench: what is made of results: ratios, bars, reasons, tables, the page, the plot, the plan."""

import importlib.util
import itertools
import re
import sys
import time
import tomllib
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # they are programs, whose modules lie beside them

import _plan  # noqa: E402
import _report  # noqa: E402
import _show  # noqa: E402
import _table  # noqa: E402
import kvstore  # noqa: E402
import workloads  # noqa: E402
from _contest import Arena, Result  # noqa: E402
from _plot import plot  # noqa: E402
from _reasons import FILE, NONE, Reason, reason_of, reasons  # noqa: E402
from _workloads import WORKLOADS, selected  # noqa: E402

# tests/ops is "ops" in a run of all tests
_program = importlib.util.spec_from_file_location("_benchmark_of_operators", BENCHMARKS / "ops.py")
ops = importlib.util.module_from_spec(_program)
_program.loader.exec_module(ops)


def made(ours, theirs, peak=None):
    """A report of the MLP and of the matrix product, each with the seconds of a run."""
    results = [
        Result("mlp-train", "f32", "weft", "traced", runs=[ours, 2 * ours, 3 * ours], others=0.1),
        Result("mlp-train", "f32", "weft", "eager", runs=[4 * ours], dropped="4.0 x weft, traced"),
        Result("mlp-train", "f32", "fake", "way | other", runs=[theirs]),
        Result("mlp-train", "f32", "broken", "way", error="why"),
    ]
    return _report.Report(
        {}, results + ([Result("matmul", "f32", "fake", "way", runs=[peak])] if peak else [])
    )


def row_of(report):
    header, row = _show.summary(report)
    return dict(zip(header, row, strict=True))


FLOPS = WORKLOADS["mlp-train"].flops


def test_rows():
    report = made(0.1, 0.08, peak=2 * 2048**3 / (FLOPS / 0.0005))
    assert row_of(report) == {
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
    rows = {tuple(row[1:3]): row for row in _show.details(report)}
    assert rows["weft", "traced"][3:9] == ["1000", "2000", "us", "100%", "3", "1.25"]
    assert rows["weft", "eager"][-1] == "left out after 1 run: 4.0 x weft, traced"
    assert rows["broken", "way"][-1] == "why"
    assert _show.closing(made(0.07, 0.08)) == "1 bars hold, 0 do not, in 1 run"
    assert _show.closing(_report.Report({}, made(1, 1).results[:2])) == "0 bars hold, 0 do not"


def test_a_bar_holds_only_in_all_runs():
    good, bad, failed = made(0.07, 0.1), made(0.1, 0.1), made(0.07, 0.1)
    for each in failed.results[:2]:
        each.runs, each.error = [], "ended"
    assert row_of(_report.combined([good, good]))["holds"] == "yes"
    several = _report.combined([good, bad, made(0.08, 0.1)])
    assert (row_of(several)["ratio"], row_of(several)["holds"]) == ("0.70, 1.00, 0.80", "NO")
    assert _show.closing(several) == "0 bars hold, 1 do not, in 3 runs"
    assert row_of(_report.combined([good, failed]))["ratio"] == "0.70, failed"
    assert row_of(_report.combined([good, failed]))["holds"] == "NO"
    assert row_of(failed)["weft"] == "failed"
    # The best peer of each run counts, and every way has a ratio in each.
    assert [row[8] for row in _show.details(several) if row[1] == "fake"] == ["1.00, 1.00, 1.00"]
    assert several.of("mlp-train", "f32")[-1].run == 3


def test_memory_is_that_of_the_way_that_is_documented():
    def memory(side, variant, peak):
        held = {"imported": 100, "built": 150, "peak": 100 + peak, "steady": 120}
        return Result("resnet50-train-memory", "f32", side, variant, memory=held)

    results = [memory("weft", "eager", 1), memory("weft", "traced lazily", 60), memory("fake", "way", 100)]
    row = row_of(_report.Report({}, results))
    assert (row["weft"], row["ratio"], row["holds"]) == ("60 (traced lazily)", "0.60", "yes")


def test_files_of_parts_and_of_runs_are_one_report():
    first, second = made(0.1, 0.2, peak=0.5), made(0.1, 0.2, peak=0.4)
    first.facts, second.facts = ({"date": day, "cores": 2} for day in ("Monday", "Tuesday"))
    for each in second.results[:-1]:
        each.workload = "lstm-train"
    whole = _report.combined([first, second])
    assert whole.facts == {"date": "Monday; Tuesday", "cores": 2}
    assert [row.name for row in whole.rows()] == ["lstm-train f32", "mlp-train f32"]
    assert [len(row.outcomes()) for row in whole.rows()] == [1, 1]
    assert [each.run for each in whole.of("matmul", "f32")] == [1, 2]
    assert [each.run for each in _report.combined([whole, whole]).of("mlp-train", "f32")[::4]] == [1, 2]
    assert _show.closing(_report.combined([whole, first])) == "2 bars hold, 0 do not, in 1 to 2 runs"


def test_a_row_that_misses_has_a_reason_or_says_that_it_has_none(monkeypatch, capsys):
    report = made(0.1, 0.08, peak=2 * 2048**3 / (FLOPS / 0.0005))
    text, _ = _show.misses(report)["mlp-train f32"]
    assert text == "1.25; the bar is 0.90, which takes 69% of the peak"
    monkeypatch.setattr(_show, "reasons", lambda program: {})
    assert f"- `mlp-train f32`: {text}. **{NONE}**" in _show.section(report, "page.svg")
    known = {"mlp-train f32": Reason("Too small.", "design/planner.md#replay")}
    monkeypatch.setattr(_show, "reasons", lambda program: known)
    assert f"{text}. Too small. ([profile](design/planner.md#replay))" in _show.section(report, "page.svg")
    _show.show(report)
    assert (
        f"mlp-train f32 misses: {text}. Too small. (docs/design/planner.md#replay)" in capsys.readouterr().out
    )
    assert "Too small" not in _show.section(made(0.07, 0.08), "page.svg")

    rows = [_table.Row("slow", "us", bar=1, times=[2.0]), _table.Row("quick", "us", bar=1, times=[0.5])]
    monkeypatch.setattr(
        _table, "reasons", lambda program: {"slow": Reason("Far away.", "x.md#y"), "quick": None}
    )
    _table.show("slice", rows)
    shown = capsys.readouterr().out
    assert "slow misses: Far away. (docs/x.md#y)" in shown
    assert "quick misses" not in shown
    assert "1 bars hold, 1 do not\n" in shown
    monkeypatch.setattr(_table, "reasons", lambda program: {})
    assert _table.misses("slice", rows) == {"slow": None}
    _table.show("slice", rows)
    shown = capsys.readouterr().out
    assert f"slow misses: {NONE}" in shown
    assert "1 bars hold, 1 do not, 1 of these without a reason" in shown


def test_a_reason_is_of_a_row_of_an_operator_or_of_a_class():
    def row(name, peer, ours_us, others_us):
        return _table.RatioRow(name, f"x {peer}", bar=1.1, times=[ours_us * 1e-6], others=[others_us * 1e-6])

    known = {
        "calls": Reason("A call.", "x.md#y", rows="*, small, forward", beside="numpy", within_us=1.5),
        "flip, a copy": Reason("All.", "x.md#y"),
        "flip, a copy, large": Reason("Large.", "x.md#y"),
    }
    whys = [
        ("flip, a copy, small, gradient", "jax jit", 9, "All."),
        ("flip, a copy, large, forward", "jax jit", 9, "Large."),
        ("abs, small, forward", "numpy", 2, "A call."),
        ("abs, large, forward", "numpy", 2, None),
        ("abs, small, forward", "torch eager", 2, None),
        ("fft, small, forward", "numpy", 20, None),
        ("flip, small, forward", "jax jit", 9, None),
    ]
    for name, peer, ours_us, why in whys:
        reason = reason_of(known, row(name, peer, ours_us, 1))
        assert (reason.why if reason else None) == why, name
    assert reason_of(known, _table.Row("abs, small, forward", "x numpy", bar=1, times=[2.0])) is None


def test_rows_that_were_written_are_loaded_and_shown_by_operator(tmp_path):
    rows = [
        _table.RatioRow("geometric mean of all", "x the fastest peer", bar=0.6, times=[0.5], others=[1.0]),
        _table.RatioRow("abs, small, forward", "x numpy", bar=1.1, times=[2e-6], others=[1e-6], note="eager"),
        _table.RatioRow("abs, large, gradient", "x jax jit", bar=1.1, times=[1e-6], others=[2e-6]),
    ]
    _table.write(tmp_path / "rows.json", {"cores": 2}, "ops", rows)
    facts, loaded = _table.load(tmp_path / "rows.json")
    assert (facts, loaded) == ({"cores": 2}, rows)
    head, mean, line = ops.by_operator(loaded)
    assert head[1:] == ["small, forward", "small, gradient", "large, forward", "large, gradient"]
    assert mean == ["geometric mean of all", "0.5", "", "", ""]
    assert line == ["abs", "**2.00** numpy", "", "", "0.50 jax"]
    assert all(mark in ops.PAGE.read_text() for mark in _table.marks("ops"))


def test_a_row_of_an_operator_stays_where_the_other_side_ends(tmp_path):
    import slice as slice_rows

    program = "import sys; sys.path.insert(0, {!r}); from _side import serve; serve({{'sum': lambda: {}}})"
    sides = []
    for name, sample in (("ours", "lambda: 2e-6"), ("other", "lambda: sys.exit(3)")):
        (tmp_path / f"{name}.py").write_text(program.format(str(BENCHMARKS), sample))
        sides.append(slice_rows.Side(sys.executable, tmp_path / f"{name}.py"))
    rows = [slice_rows.ratio_row("sum", 1.1, "us", *sides, "sum", 2) for _ in range(2)]
    for side in sides:
        side.close()
    assert [(row.minimum, row.bar, row.note) for row in rows] == [
        (2.0, None, "other.py: ended with status 3")
    ] * 2


def test_a_side_is_stopped_while_it_is_not_asked(tmp_path):
    """So that threads that spin after a call take no core from the side whose turn is next."""
    import slice as slice_rows

    lines = [
        f"import sys, threading, time; sys.path.insert(0, {str(BENCHMARKS)!r})",
        "from _side import serve",
        "def spin():",
        "    while True: pass",
        "def sample():",
        "    threading.Thread(target=spin, daemon=True).start()",
        "    return 1.0",
        "serve({'spins': lambda: sample, 'cpu': lambda: time.process_time})",
    ]
    (tmp_path / "spins.py").write_text("\n".join(lines))
    side = slice_rows.Side(sys.executable, tmp_path / "spins.py")
    assert side.seconds("spins") == 1.0
    state = Path(f"/proc/{side.process.pid}/stat")
    end = time.monotonic() + 10
    while state.read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
    before = side.seconds("cpu")
    time.sleep(0.2)
    assert side.seconds("cpu") - before < 0.1
    side.close()


def sections(page):
    """Anchors of its headings, as they are made from their words."""
    words = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in words}


def test_reasons_are_of_rows_that_are_there_and_lead_to_sections():
    import slice as slice_rows

    bars = {f"{each.name} {precision}" for each in WORKLOADS.values() for precision in each.goals}
    named = {**slice_rows.AGAINST_TORCH, **slice_rows.ALONE, **slice_rows.FRESH}
    cases = itertools.product(ops.every(), ops.SIZES, ops.KINDS)
    operators = {", ".join(case[:length]) for case in cases for length in (1, 2, 3)}
    rows = {"workloads": bars, "slice": set(named), "ops": operators}
    for program, known in tomllib.loads(FILE.read_text()).items():
        assert (BENCHMARKS / f"{program}.py").exists()
        single = {name for name, reason in reasons(program).items() if not reason.rows}
        assert not single - rows.get(program, known.keys())
        for reason in reasons(program).values():
            page, _, section = reason.see.partition("#")
            assert section in sections(ROOT / "docs" / page), reason.see


def test_a_machine_that_was_not_quiet_and_a_peer_that_was_not_there_are_said():
    report = made(0.07, 0.08)
    assert _show.disturbance(report) == ""
    report.results[0].others = 0.5
    report.missing["mxnet"] = "no such version"
    first, second = _show.warnings(report)
    assert "during 1 of 1 measurements other processes used more than 0.15 cores, 0.5 at most" in first
    assert "these did not: mxnet, broken, way in mlp-train f32." in second
    section = _show.section(report, "page.svg")
    assert f"**{first}**" in section
    assert f"**{second}**" in section
    assert "did not run: no such version" in _show.markdown(_show.details(report))


def test_the_page_is_written_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    begin, end = _show.marks("avx512")
    page.write_text(f"before\n{begin}\nstale\n{end}\nafter\n")
    _show.write_page(page, made(0.1, 0.2), "page.svg")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "stale" not in text
    assert "(fake, way / other)" in text
    page.write_text("nothing")
    with pytest.raises(ValueError, match=r"page\.md has no lines"):
        _show.write_page(page, made(0.1, 0.2), "page.svg")
    for level in ("avx512", "avx2"):
        assert all(mark in workloads.PAGE.read_text() for mark in _show.marks(level))


def test_the_plot_is_a_picture():
    drawn = xml.fromstring(plot(_report.combined([made(0.1, 0.05), made(0.1, 0.1)])))
    assert any(each.text == "2.00, 1.00  of fake" for each in drawn)
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_how_long_it_will_take(tmp_path):
    arena = Arena({}, tmp_path, [0], {}, turns=8, budget_s=1.0, trial=2, say=lambda text: None)
    ways = (("weft", "traced", ""), ("fake", "way", ""), ("fake", "far", ""))
    part = _plan.Contest(WORKLOADS["mlp-train"], "f32", ways)
    nothing = _plan.estimate_s(part, arena, {})
    assert nothing == 3 * (_plan.START_S + _plan.PREPARE_S + 8)
    before = [
        Result("mlp-train", "f32", *way[:2], runs=[s], prepare_s=1)
        for way, s in zip(ways, (0.1, 3, 10), strict=True)
    ]
    # Behind by more than allowed: asked twice.
    assert _plan.estimate_s(part, arena, _plan.by_way(before)) == 3 * (_plan.START_S + 1) + 8 + 8 * 3 + 2 * 10
    progress = _plan.Progress([10, 30])
    progress.start -= 100
    assert progress.step() == "1 of 2 done in 2 min, about 5 min left"


def test_what_takes_part():
    hello = {
        "version": "1",
        "cases": [["mlp-train", "way", "f32"], ["lstm-train", "a", "bf16"], ["matmul", "way", "f32"]],
    }
    hellos = {"weft": hello, "fake": hello}

    def found(*arguments):
        return [
            (p.workload.name, p.precision, len(p.ways))
            for p in _plan.contests(hellos, WORKLOADS.values(), *arguments)
        ]

    assert found() == [("matmul", "f32", 2), ("lstm-train", "bf16", 2), ("mlp-train", "f32", 2)]
    assert found("", True) == [
        ("matmul", "f32", 2),
        ("mlp-train", "f32", 2),
    ]  # there is no bar for the LSTM's bf16
    assert found("fake way") == [("matmul", "f32", 1), ("mlp-train", "f32", 1)]


def test_rows_are_written_into_a_page(tmp_path, monkeypatch):
    page, (begin, end) = tmp_path / "page.md", _table.marks("toy")
    page.write_text(f"before\n\n{begin}\nold\n\n{end}\n\nafter\n")
    rows = [
        _table.RatioRow("a", "x b", bar=1.5, times=[2.0, 3.0], others=[1.0], note="2 s"),
        _table.Row("c", "us", bar=4, times=[3.0]),
        _table.Row("d", "ms", times=[1.0]),
    ]
    facts = {"cores": 2, "cores_in_use": 0.0}
    for _ in range(2):  # once more: it replaces what it has written
        _table.write_page(page, facts, "toy", rows)
        text = page.read_text()
        assert text.startswith(f"before\n\n{begin}\ncores 2, cores_in_use 0.0\n\n| row |")
        assert text.endswith(f"\n\n{end}\n\nafter\n")
        assert text.count("| a | 2 | 2.5 | 1.5 | **no** | x b; 2 s |") == 1
        assert "| c | 3 | 3 | 4 | yes | us |" in text
        assert "| d | 1 | 1 |  |  | ms |" in text
        assert f"1 bars hold, 1 do not, 1 of these without a reason.\n\n- `a`: **{NONE}**" in text
    page.write_text("nothing")
    with pytest.raises(ValueError, match=r"page\.md has no lines"):
        _table.write_page(page, facts, "toy", rows)
    assert all(mark in kvstore.PAGE.read_text() for mark in _table.marks("kvstore"))


def test_names_and_commands():
    assert [workload.name for workload in selected("resnet50-infer")] == [
        "resnet50-infer-b16",
        "resnet50-infer-b1",
    ]
    assert [workload.name for workload in selected("resnet50-train")] == ["resnet50-train"]
    assert selected("") == list(WORKLOADS.values())
    assert selected("alexnet") == []
    assert workloads.command(["gpt", "--json", "a b", "--peers", "--json=c"]) == "./dev bench gpt --peers"


def test_operations_of_a_step():
    images = WORKLOADS["resnet50-infer-b16"].flops / 16
    assert images == pytest.approx(2 * 4.089e9, rel=1e-3)
    assert WORKLOADS["gpt-train"].flops == 12 * WORKLOADS["gpt-prefill"].flops
