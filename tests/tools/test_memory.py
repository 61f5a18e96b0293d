"""The memory tool: snapshots, marks, leaks, its page and its server, which only this machine can read."""

import gc
import http.client
import json
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

import weft as wf
from weft.tools import memory

from . import browser


def test_leaks_between_two_marks():
    kept = []

    def round_of_work(keep):
        x = wf.ones((64, 64)) * 2
        y = x + 1
        y.wait()
        if keep:
            kept.append(y)

    round_of_work(False)
    with memory.watch() as w:
        w.mark("clean")
        for _ in range(5):
            round_of_work(False)
        w.mark("leaking")
        for _ in range(5):
            round_of_work(True)
        w.mark("end")
        live = w.snapshot()
        assert [a.shape for a in live] == 5 * ["f32[64,64]"]
    assert [a for a in w.leaks("clean", "leaking") if a.shape] == []
    found = w.leaks("leaking", "end")
    assert [(a.shape, a.name, a.bytes) for a in found] == 5 * [("f32[64,64]", "add", 64 * 64 * 4)]
    assert all("test_memory.py:" in a.where for a in found)
    [row] = w.document()["leaks"]
    assert row[1:] == [5, 5 * 64 * 64 * 4, "f32[64,64]"]
    with pytest.raises(KeyError):
        w.leaks("nothing", "end")
    with memory.watch() as w, pytest.raises(ValueError, match="two marks"):
        w.leaks()


def test_the_curve_is_what_was_in_use():
    gc.collect()  # what other tests left, which would go meanwhile
    wf.waitall()
    with memory.watch() as w:
        kept = [wf.ones((256, 256)) for _ in range(3)]
        during = w.document(live=True)
        del kept
    after = w.document()
    assert during["live"]
    assert during["curve"][-1][1] - during["curve"][0][1] == 3 * 256 * 256 * 4
    assert after["peak"] - after["curve"][0][1] >= 3 * 256 * 256 * 4
    assert sum(row[2] for row in during["now"]) == 3 * 256 * 256 * 4
    assert {row[2] for row in after["peak_holders"][:3]} == {"f32[256,256]"}
    assert json.loads(json.dumps(after, allow_nan=False)) == json.loads(json.dumps(after))


def test_a_long_curve_keeps_its_peak():
    import numpy as np

    seconds, used = np.arange(50_000) * 1e-6, np.arange(50_000) % 777
    used[31_415] = 5000
    points = memory._decimate(seconds, used)
    assert len(points) <= memory.POINTS
    assert max(b for _, b in points) == 5000
    assert points == sorted(points)


def test_summary():
    x = wf.zeros((512, 512))
    text = wf.tools.memory_summary()
    assert text.startswith("cpu:0\n")
    assert "fragmentation" in text
    assert wf.tools.memory_summary("cpu:0").count("in use") == 1
    assert x.shape == (512, 512)


def test_the_server_gives_the_page_to_this_machine_only():
    with memory.watch() as w, memory.MemoryServer(w) as server:
        x = wf.ones((100, 100))
        address = urlsplit(server.address)
        assert address.hostname == "127.0.0.1"
        with urllib.request.urlopen(server.address, timeout=60) as answer:
            assert answer.read().startswith(b"<!doctype html>")
        with urllib.request.urlopen(server.address + "data.json", timeout=60) as answer:
            data = json.load(answer)
        assert sum(row[2] for row in data["now"]) >= x.nbytes

        def status(method, path, host="127.0.0.1:1"):
            connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=60)
            connection.request(method, path, headers={"Host": host})
            found = connection.getresponse().status
            connection.close()
            return found

        assert status("GET", address.path) == 200
        assert status("GET", "/") == 404
        assert status("GET", "/data.json") == 404
        assert status("GET", address.path + "../../etc/passwd") == 404
        assert status("GET", address.path, "evil.example:80") == 403
        assert status("POST", address.path) == 501
        assert status("PUT", address.path + "data.json") == 501
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.address, timeout=60)


PROGRAM = """
import weft as wf
from weft.tools import memory
kept = []
memory.mark("begin")
for k in range(20):
    kept.append(wf.ones((50, 50)) + k)
memory.mark("end")
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('planned')"])
def test_the_command(tmp_path, end):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM) + end)
    command = [sys.executable, "-m", "weft.tools.memory", "--no-open", "--live", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == (1 if end else 0), done.stderr
    assert "http://127.0.0.1:" in done.stderr
    assert "fragmentation" in done.stderr
    page = (tmp_path / "memory.html").read_text()
    assert "program.py:7" in page
    assert '["begin",' in page


@pytest.mark.skipif(
    browser.find() is None, reason="no Chromium; test_profile_page.py demands one with --full"
)
def test_the_page_and_the_live_page(tmp_path):
    with memory.watch() as w, browser.Page() as page:
        w.mark("a")
        kept = [wf.ones((64, 64)) + k for k in range(4)]
        w.mark("b")
        w.save(tmp_path / "m.html")
        asked = page.open(tmp_path / "m.html")
        page.until("window.weft && weft.ready")
        assert [url for url in asked if not url.startswith("file:")] == []
        page.run("(() => { view.value = 'leaks'; view.onchange(); })()")
        rows = page.run("weft.rows")
        assert sum(r[2] for r in rows if r[3] == "f32[64,64]") == sum(x.nbytes for x in kept)
        with memory.MemoryServer(w) as server:
            page.command("Page.navigate", url=server.address)
            page.until("window.weft && weft.rounds >= 1")
            before = page.run("weft.data().now.reduce((s, r) => s + r[2], 0)")
            kept.append(wf.ones((128, 128)))
            page.until(f"weft.data().now.reduce((s, r) => s + r[2], 0) >= {before + 128 * 128 * 4}")
        assert page.messages == []
