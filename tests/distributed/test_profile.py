"""One page of what all processes of a job did: python -m weft.launch --profile."""

import json
import subprocess
import sys

import pytest

from .conftest import PROGRAMS, ROOT, environment

pytest.importorskip("mpi4py")


def launch(tmp_path, program, *arguments, n=2):
    command = [sys.executable, "-m", "weft.launch", "-n", str(n), "--profile", str(tmp_path / "p.html")]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        env=environment(),
        cwd=ROOT,
        text=True,
        timeout=110,
        capture_output=True,
    )


def data_of(page):
    text = page.read_text()
    begin = text.index('<script type="application/json" id="data">')
    return json.loads(text[text.index(">", begin) + 1 : text.index("</script>", begin)])


def test_a_page_of_all_ranks(tmp_path):
    done = launch(tmp_path, "profiled.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "p.html" in done.stderr
    data = data_of(tmp_path / "p.html")
    assert list(dict.fromkeys(lane["worker"] for lane in data["lanes"])) == ["rank 0", "rank 1"]
    assert [lane["worker"] for lane in data["lanes"] if lane["kind"] == "exchange"] == ["rank 0", "rank 1"]
    for worker in ("rank 0", "rank 1"):
        rows = {row["name"]: row for row in data["exchanges"] if row["worker"] == worker}
        gradients = rows["gradients mean of 4"]
        # every backward exchanges the gradients of two layers, as one bucket: eager and traced
        assert gradients["calls"] == 2 * 3
        assert gradients["bytes"] == 2 * 3 * 4 * (8 * 8 + 8 + 8 * 8 + 8)
        assert gradients["moving_s"] > 0
        assert 0 <= gradients["hidden"] <= 1
        assert rows["all"]["calls"] >= 6
    lines = {d["where"].rpartition("/")[2] for d in data["details"] if d["kind"] == "exchange" and d["bytes"]}
    assert any(line.startswith("profiled.py:") for line in lines)
    assert dict(data["tiles"])["of that beside kernels"].endswith("%")
    assert not list(tmp_path.glob("weft-ranks-*"))


def test_a_rank_that_fails_leaves_the_page(tmp_path):
    done = launch(tmp_path, "profiled.py", str(tmp_path), "fail")
    assert done.returncode != 0
    assert "planned" in done.stderr
    data = data_of(tmp_path / "p.html")
    assert any("planned" in w["text"] for w in data["warnings"])


def test_no_folder_for_the_page(tmp_path):
    done = launch(tmp_path / "nowhere", "profiled.py", str(tmp_path))
    assert done.returncode == 2
    assert "no folder" in done.stderr
