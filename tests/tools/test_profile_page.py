"""The profiler's page in a real browser: it loads by itself, what it shows is what was recorded, it can be used.

Without a Chromium on the machine these tests are marked full, so that everyday's need none; with --full they then
fail.
"""

import json
import zlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.tools.page import page_data
from weft.tools.profiling import Profile
from weft.tools.recording import OPERATION, STEP, ProcessRecording, ProgramFacts, StepWork

from . import browser

pytestmark = [] if browser.find() else [pytest.mark.full]
PAINT_S = 3  # until a million events are seen


@pytest.fixture(scope="module")
def page():
    with browser.Page() as made:
        yield made


@pytest.fixture(scope="module")
def profile():
    net = M.Sequential(M.Linear(16, 32), M.ReLU(), M.Linear(32, 4))
    traced, x = wf.trace(net), wf.ones((8, 16))
    net(x), traced(x)
    with wf.tools.profile() as p:
        for _ in range(4):
            F.softmax(net(x))
            traced(x).wait()
            p.step()
    return p


@pytest.fixture(scope="module")
def file(profile, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "profile.html"
    profile.save(path)
    return path


def opened(page, file):
    asked = page.open(file)
    page.until("window.weft && weft.ready")
    assert page.messages == []
    return asked


def test_it_loads_alone_and_without_errors(page, file):
    asked = opened(page, file)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    for tab in ("tables", "memory", "planning", "steps", "warnings", "timeline"):
        page.run(f"document.getElementById('tab-{tab}').click()")
        assert page.run("document.querySelectorAll('main section.on').length") == 1
        assert page.run(f"document.getElementById('{tab}').classList.contains('on')")
    assert page.messages == []


@pytest.mark.parametrize(("by", "field"), [("operator", "name"), ("module", "module"), ("line", "where")])
def test_tables_show_what_was_recorded(page, file, profile, by, field):
    opened(page, file)
    page.run("weft.show('tables')")
    page.run(f"(() => {{ const s = document.getElementById('by'); s.value = '{field}'; s.onchange(); }})()")
    rows = page.run("weft.rows")
    expected = profile.table(by)
    assert {(r["key"], r["calls"]) for r in rows} == {(r[by], r["calls"]) for r in expected}
    for name, other in (
        ("seconds", "seconds"),
        ("least_s", "least_s"),
        ("share", "share"),
        ("flop_s", "flop_s"),
        ("byte_s", "byte_s"),
    ):
        shown = {r["key"]: r[name] for r in rows}
        for r in expected:
            assert shown[r[by]] == pytest.approx(r[other], rel=1e-4), name  # float32 there
    cells = page.run(
        "[...document.querySelectorAll('#work tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [(c[0].rpartition("/")[2], c[1]) for c in cells] == [
        (r["key"].rpartition("/")[2] or "(not known)", str(r["calls"])) for r in rows
    ]


def test_steps_memory_and_tiles_show_what_was_recorded(page, file, profile):
    opened(page, file)
    assert page.run("document.querySelectorAll('#stepbars i').length") == 4
    page.run("stepa.value = 0, stepb.value = 2, drawSteps()")
    shown = {r["key"]: (r["a"], r["b"]) for r in page.run("weft.diff")}
    for name, a, b in profile.compare_steps(0, 2):
        assert shown[name] == pytest.approx((a, b), rel=1e-4, abs=1e-9)
    page.run("weft.show('memory')")
    data, _ = page_data(profile)
    held = page.run("weft.heldBytes")
    assert held + data["memory"]["held"] == data["memory"]["peak"]
    tiles = dict(
        page.run(
            "[...document.querySelectorAll('.tile')].map(t => [t.children[1].textContent, t.children[0].textContent])"
        )
    )
    assert tiles["kernels"] == f"{len(profile.recording.steps):,}"
    assert tiles["operations"] == f"{len(profile.recording.operations):,}"


def test_the_first_view_is_of_the_last_steps(page, file, profile):
    opened(page, file)
    steps = profile.steps()
    a, b = page.run("weft.view")
    assert steps[0]["end_s"] - (b - a) < a < steps[1]["start_s"]
    assert steps[-1]["end_s"] < b
    page.run("document.getElementById('fit').click()")
    assert page.run("weft.view")[1] >= profile.seconds


def test_names_of_threads_of_workers_are_not_in_the_labels_of_lanes(page, profile, tmp_path):
    files = [tmp_path / f"{k}.raw" for k in range(2)]
    for k, path in enumerate(files):
        profile.dump(path, f"worker {k} of a job")
    Profile.load(*files).save(tmp_path / "both.html")
    del profile.recording.facts["worker"]
    opened(page, tmp_path / "both.html")
    widths = page.run(
        "(() => { pen.font = \"600 11px system-ui, 'DejaVu Sans', sans-serif\";"
        "const text = group => group.slice(0, NAME);"
        "return D.lanes.map(l => [l.kind, pen.measureText(text(groupOf(l))).width, GUTTER]); })()"
    )
    kinds = page.run(
        "(() => { pen.font = \"10px system-ui, 'DejaVu Sans', sans-serif\";"
        "return D.lanes.map(l => pen.measureText(l.kind).width); })()"
    )
    assert all(8 + name + 6 + kind < gutter for (_, name, gutter), kind in zip(widths, kinds, strict=True))


def test_search_zoom_selection_and_flow(page, file, profile):
    opened(page, file)
    box = page.run(
        "(() => { const r = plot.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
    )
    page.run("document.getElementById('search').focus()")
    page.type("softmax")
    found = page.run("weft.found")
    row = next(r for r in profile.table() if r["operator"] == "softmax")
    assert (found["count"], found["seconds"]) == (row["calls"], pytest.approx(row["seconds"], rel=1e-4))
    page.run("document.getElementById('next').click()")
    before = page.run("weft.view")
    page.mouse("mouseWheel", box[0] + 600, box[1] + 100, deltaX=0, deltaY=-240)
    page.until(f"weft.view[1] - weft.view[0] < {(before[1] - before[0]) * 0.9}")
    page.mouse("mousePressed", box[0] + 600, box[1] + 100, button="left", clickCount=1)
    page.mouse("mouseMoved", box[0] + 500, box[1] + 100, button="left", buttons=1)
    page.mouse("mouseReleased", box[0] + 500, box[1] + 100, button="left", clickCount=1)
    moved = page.run("weft.view")
    page.run("document.getElementById('fit').click()")
    assert page.run("weft.view")[1] > moved[1] - moved[0]
    # The flow of a kernel: from its push to its operation, and from there to all of its kernels.
    events = profile.events
    lane = next(lane for lane in events.lanes if lane.kind == "kernel")
    kernel = lane.first
    operation = int(events.parent[kernel])
    page.run(f"weft.select({kernel})")
    flow = page.run("weft.flow")
    assert [int(events.parent[operation]), operation] in flow
    assert [operation, kernel] in flow
    info = page.run("document.getElementById('info').textContent")
    detail = events.details[events.detail[kernel]]
    assert detail.name in info
    assert detail.where.rpartition("/")[2] in info
    assert page.messages == []


def test_a_click_selects_what_is_under_it(page, file, profile):
    opened(page, file)
    page.run("document.getElementById('fit').click()")
    lane = next(lane for lane in profile.events.lanes if lane.kind == "step")
    x, y = page.run(
        "(k => { const r = plot.getBoundingClientRect(), s = (plot.clientWidth - GUTTER) / (view[1] - view[0]); "
        "return [r.x + GUTTER + (E.start[k] + E.seconds[k] / 2 - view[0]) * s, r.y + tops[E.lane[k]] + 6]; })"
        f"({lane.first})"
    )
    page.click(x, y)
    assert page.run("selected") == lane.first
    assert "step 0" in page.run("document.getElementById('info').textContent")


def test_what_is_written_by_others_is_text(page, tmp_path):
    """Names may hold anything; nothing of them is run or ends the data."""
    evil = "</script><img src=x onerror='window.hacked=1'><!--"
    r = ProcessRecording(1.0)
    r.names = ["", evil]
    r.sites = ["", evil]
    r.operations = np.zeros(1, OPERATION)
    r.operations[0] = (1, 10, 20, 400_000_000, 1, 1, 0, 7, 7, 0, 0, 0, 0, 0)
    r.threads = {7: evil}
    r.facts = {"program": evil, "date": "", "cores": 1}
    Profile([r]).save(tmp_path / "p.html")
    opened(page, tmp_path / "p.html")
    for tab in ("tables", "memory", "planning", "steps", "warnings", "timeline"):
        page.run(f"weft.show('{tab}')")
    page.run("weft.select(1)")
    assert page.run("weft.rows[0].key") == evil
    assert not page.run("window.hacked === 1")


def many(count):
    """A recording of `count` kernels of 20 kinds in operations of 50, on two threads."""
    r = ProcessRecording(count * 3e-6)
    operations, kinds = count // 50, 20
    r.names = ["", "step"]
    r.threads = {1: "MainThread", 2: "wide 0", 3: "compute 0"}
    r.facts = {"program": "many.py", "date": "", "cores": 2}
    k = np.arange(operations)
    r.operations = np.zeros(operations, OPERATION)
    r.operations["id"], r.operations["name"], r.operations["push_thread"] = k + 1, 1, 1
    r.operations["run_thread"] = 2 + k % 2
    r.operations["pushed"], r.operations["started"] = k * 150_000, k * 150_000 + 2000
    r.operations["ended"] = k * 150_000 + 149_000
    i = np.arange(count)
    r.steps = np.zeros(count, STEP)
    r.steps["start"] = (i // 50) * 150_000 + 3000 + (i % 50) * 2900
    r.steps["end"] = r.steps["start"] + 2500
    r.steps["operation"], r.steps["thread"] = i // 50 + 1, 2 + (i // 50) % 2
    r.step_work = (i % kinds).astype(np.int64)
    r.work = [StepWork(f"kernel {n}", "many.py:3", "", "f32[8]", 100, "step", 1, n) for n in range(kinds)]
    r.programs = {1: ProgramFacts("step", tuple(f"kernel {n}" for n in range(kinds)), 0, None)}
    return r


def test_a_million_events_are_shown(page, tmp_path):
    p = Profile([many(960_000)])
    p.save(tmp_path / "many.html")
    assert len(p.events) >= 1_000_000 - 20_000 * 2
    opened(page, tmp_path / "many.html")
    assert page.run("weft.drawn") <= 1280 * len(p.events.lanes)  # what is smaller than a pixel is drawn once
    page.run("document.getElementById('search').value = 'kernel 7'")
    page.run("weft.search('kernel 7')")
    assert page.run("weft.found.count") == 48_000
    assert sum(r["calls"] for r in page.run("weft.tally('name', -Infinity, Infinity)")) == 960_000


@pytest.mark.full
def test_a_million_events_are_quick(page, tmp_path):
    Profile([many(1_000_000)]).save(tmp_path / "many.html")
    seconds = []
    for _ in range(3):
        opened(page, tmp_path / "many.html")
        seconds.append(page.run("weft.paintedAt") / 1000)
    assert min(seconds) < PAINT_S


def test_the_columns_are_what_the_document_says(profile):
    data, columns = page_data(profile)
    n, m, a = (data["counts"][name] for name in ("events", "memory", "allocations"))
    assert len(columns) == n * (8 + 4 + 4 + 4 + 4 + 1) + m * 16 + a * 28
    assert json.loads(json.dumps(data, allow_nan=False))["counts"]["events"] == len(profile.events)
    assert zlib.decompress(zlib.compress(columns)) == columns
