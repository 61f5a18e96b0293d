"""The graph viewer: what is shown of programs, symbols and modules, and the page in a browser."""

import json
import xml.etree.ElementTree as xml

import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym
from weft.base.dtype import float32
from weft.graph.graph import graph_of
from weft.graph.text import to_json
from weft.ops.types import TensorType
from weft.tools import graph
from weft.tools.page import fill_template

from . import browser


class Net(M.Module):
    def __init__(self):
        self.body = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU())
        self.head = M.Linear(8, 2)

    def forward(self, x):
        return self.head(F.mean(self.body(x), axis=(2, 3)))


def document(*args, **shapes):
    [program] = graph.programs_of(*args, **shapes)
    return graph._document(program)


def test_modules_types_and_layouts():
    made = document(Net().eval(), wf.ones((2, 3, 8, 8)))
    first, last = made["stages"][0], made["stages"][-1]
    modules = {n["name"]: n["module"] for n in first["nodes"] if n["module"]}
    assert modules["conv2d"] == "Net.body.0"
    assert modules["linear"] == "Net.head"
    assert modules["mean"] == "Net"
    assert first["name"] == "as written"
    assert all(s["reason"] for s in made["stages"][1:])
    assert first["operators"] == sum(n["kind"] not in ("input", "output") for n in first["nodes"])
    labels = {label for _, _, label in last["edges"]}
    assert any(label.startswith("f32[2,8,6,6]") and label.endswith("nhwc") for label in labels)
    numbers = {n["step"] for n in last["nodes"] if n["step"] is not None}
    assert numbers <= set(range(len(made["steps"])))
    assert numbers
    for a, b, _ in last["edges"]:
        assert 0 <= a < len(last["nodes"])
        assert 0 <= b < len(last["nodes"])


def test_running_statistics_belong_to_their_module():
    made = document(Net(), wf.ones((2, 3, 8, 8)))  # as it is trained
    first, last = made["stages"][0], made["stages"][-1]
    outside = {n["name"] for n in first["nodes"] if n["own"] is None and not n["module"]}
    assert outside == {"x0", "result 0"}
    for stage in (first, last):
        written = [n["module"] for n in stage["nodes"] if n["name"].startswith("into")]
        assert written == ["Net.body.1"] * 2


def test_a_training_step_keeps_modules_and_writes():
    net = M.Sequential(M.Linear(4, 3), M.ReLU())
    manager = wf.GradManager().attach(net.parameters())
    optimizer = wf.optimizer.SGD(net.parameters(), lr=0.1)

    @wf.trace
    def step(x):
        with manager:
            loss = F.sum(net(x))
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    x = wf.ones((2, 4))
    step(x), step(x)
    [program] = graph.programs_of(step)
    made = graph._document(program)
    names = [n["name"] for n in made["stages"][0]["nodes"]]
    assert sum(name.startswith("into ") for name in names) >= 2
    assert {"Sequential.0", "Sequential.1"} <= {n["module"] for n in made["stages"][0]["nodes"]}


def test_symbols(tmp_path, capsys):
    x = sym.var("data")
    y = F.relu(F.linear(x, out_features=3, name="fc1"))
    made = document(y, data=(2, 5))
    assert {"data", "fc1_weight", "fc1_bias"} <= {n["name"] for n in made["stages"][0]["nodes"]}
    y.save(tmp_path / "net.json")
    out = tmp_path / "net.svg"
    assert (
        graph.main([str(tmp_path / "net.json"), "--shape", "data=2,5", "--out", str(out), "--no-open"]) == 0
    )
    xml.parse(out)
    assert str(out) in capsys.readouterr().out
    assert y.plot(tmp_path / "p.svg", data=(2, 5)) == (tmp_path / "p.svg").read_text()
    y.print_summary(data=(2, 5))
    printed = capsys.readouterr().out
    assert "18 parameters" in printed
    assert "[2,3]" in printed
    y.print_summary()
    assert "of unknown shape" in capsys.readouterr().out


def test_an_exported_program_has_its_kernels_and_its_memory(tmp_path):
    w = wf.ones((5, 5))

    @wf.trace
    def f(x):
        y = F.relu(x @ w) * 1
        w[...] = w - y.sum()
        return y

    f(wf.ones((2, 5)))
    f.export(tmp_path / "f.weft")
    [program] = graph.read(tmp_path / "f.weft")
    made = graph._document(program)
    assert [stage["name"] for stage in made["stages"]][:2] == ["as written", "after algebraic_simplify"]
    assert any("native" in text for text in made["steps"])
    xml.fromstring(made["memory"].partition("</pre>")[2])
    assert "arena" in made["memory"]
    graph.write(tmp_path / "f.svg", [program])
    assert "into x0" in (tmp_path / "f.svg").read_text()


def test_a_graph_as_json(tmp_path):
    written = graph_of(lambda x: F.exp(x) + F.exp(x), [TensorType((2, 3), float32)])
    (tmp_path / "graph.json").write_text(to_json(written))
    assert graph.main([str(tmp_path / "graph.json"), "--no-open"]) == 0
    made = json.loads(
        (tmp_path / "graph.html").read_text().partition('id="data">')[2].partition("</script>")[0]
    )
    assert len(made["programs"][0]["stages"]) == 2


def test_files_and_errors(tmp_path):
    f = wf.trace(lambda x: wf.exp(x) + 1)
    with pytest.raises(wf.GraphError, match="call it first"):
        graph.programs_of(f)
    f(wf.ones(3))
    f.export(tmp_path / "f.weft")
    assert graph.main([str(tmp_path / "f.weft"), "--no-open"]) == 0
    assert (tmp_path / "f.html").read_text().startswith("<!doctype html>")
    assert wf.tools.draw(f, path=tmp_path / "g.svg").exists()
    with pytest.raises(ValueError, match=r"\.html or \.svg"):
        wf.tools.draw(f, path=tmp_path / "g.bmp")
    with pytest.raises(TypeError, match="give the inputs"):
        graph.programs_of(M.ReLU())
    with pytest.raises(TypeError, match="got int"):
        graph.programs_of(3)
    (tmp_path / "bad.json").write_text(json.dumps({"nodes": 3}))
    with pytest.raises(wf.GraphError):
        graph.main([str(tmp_path / "bad.json"), "--no-open"])
    assert "/*" not in fill_template("graph.html", STYLE="", DATA="{}", SCRIPT="").split("<style>")[0]


@pytest.mark.skipif(
    browser.find() is None, reason="no Chromium; test_profile_page.py demands one with --full"
)
def test_the_page(tmp_path):
    wf.tools.draw(Net().eval(), wf.ones((2, 3, 8, 8)), path=tmp_path / "g.html")
    with browser.Page() as page:
        asked = page.open(tmp_path / "g.html")
        page.until("window.weft && weft.ready")
        assert [url for url in asked if not url.startswith("file:")] == []
        whole = page.run("weft.boxes")
        names = {b["lines"][0] for b in whole}
        assert {"conv2d", "linear", "mean"} <= names
        page.run("document.getElementById('close').click()")
        closed = page.run("weft.boxes")
        [group] = [b for b in closed if b["group"]]
        assert (group["group"], group["members"]) == ("Net", page.run("stage().operators"))
        k = next(k for k, b in enumerate(closed) if b["group"])
        page.run(f"weft.click({k})")  # opens it: what is in it directly, and its parts closed
        assert {b["group"] for b in page.run("weft.boxes") if b["group"]} == {"Net.body", "Net.head"}
        page.run("document.getElementById('open').click()")
        assert len(page.run("weft.boxes")) == len(whole)
        page.run("(() => { search.value = 'conv2d'; mark(); })()")
        assert page.run("weft.found") >= 1
        page.run(
            "(() => { search.value = ''; stage_ = document.getElementById('stage'); stage_.value = "
            "stage_.options.length - 1; stageChanged(); const g = document.getElementById('group'); "
            "g.value = 'step'; g.onchange(); document.getElementById('close').click(); })()"
        )
        assert all(b["group"].startswith("kernel ") for b in page.run("weft.boxes") if b["group"])
        drawn = page.run("weft.asSvg()")
        (tmp_path / "page.svg").write_text(drawn)
        assert xml.parse(tmp_path / "page.svg").getroot().tag.endswith("svg")
        assert page.run("weft.asPng().then(blob => blob.size)") > 1000
        before = page.run("weft.view")
        page.mouse("mouseWheel", 500, 400, deltaX=0, deltaY=-200)
        page.until(f"weft.view[2] < {before[2] * 0.9}")
        assert page.messages == []
