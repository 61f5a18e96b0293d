"""Pictures of programs."""

import xml.etree.ElementTree as xml

import pytest

import weft as wf
import weft.functional as F
from weft.base.dtype import float32
from weft.graph.graph import graph_of
from weft.graph.text import to_json
from weft.ops.types import TensorType
from weft.tools import viz


def pictures(folder):
    return {path.name: xml.parse(path).getroot() for path in folder.glob("*.svg")}


def test_an_exported_program(tmp_path, capsys):
    w = wf.ones((5, 5))

    @wf.trace
    def f(x):
        y = F.relu(x @ w) * 1
        w[...] = w - y.sum()
        return y

    f(wf.ones((2, 5)))
    f.export(tmp_path / "f.weft")
    assert viz.main([str(tmp_path / "f.weft")]) == 0
    folder = tmp_path / "f.viz"
    assert str(folder / "index.html") in capsys.readouterr().out
    drawn = pictures(folder)
    assert len(drawn) > 1  # as written, and after some pass
    text = (folder / "index.html").read_text()
    for word in ("as written", "after algebraic_simplify", "Matmul", "Memory inside", "native", *drawn):
        assert word in text
    assert "into x0" in (folder / "f-0-0.svg").read_text()


def test_a_graph(tmp_path):
    graph = graph_of(lambda x: F.exp(x) + F.exp(x), [TensorType((2, 3), float32)])
    path = tmp_path / "graph.json"
    path.write_text(to_json(graph))
    assert viz.main([str(path), "--out", str(tmp_path / "out")]) == 0
    assert len(pictures(tmp_path / "out")) == 2


def test_other_files(tmp_path):
    path = tmp_path / "x"
    path.write_text("no program")
    with pytest.raises(wf.GraphError, match="no JSON"):
        viz.main([str(path)])
    assert not (tmp_path / "x.viz").exists()
