"""Pictures of symbols: what stands in them, and that boxes neither overlap nor hide behind edges' direction."""

import re
import xml.etree.ElementTree as ET

import pytest

import weft.functional as F
import weft.symbol as sym
from weft.graph.drawing import Box, Edge, svg


def net():
    x = sym.var("data")
    h = F.relu(F.linear(x, out_features=4, name="fc1"), name="act")
    return F.add(F.linear(h, out_features=4, name="fc2"), h, name="sum")


def test_text():
    assert str(net()).splitlines() == [
        "fc1 = linear(data, fc1_weight, fc1_bias, out_features=4)",
        "act = relu(fc1)",
        "fc2 = linear(act, fc2_weight, fc2_bias, out_features=4)",
        "sum = add(fc2, act)",
        "return sum",
    ]
    conv = F.conv2d(sym.var("x"), out_channels=2, kernel_size=3, stride=2, name="c")
    assert str(conv).splitlines()[0] == (
        "c = conv2d(x, c_weight, c_bias, stride=(2, 2), out_channels=2, kernel_size=(3, 3))"
    )
    best = F.topk(sym.var("x"), 2, name="best")
    assert str(best["best_indices"]).endswith("return best[1]")


def test_dot():
    text = net().to_dot()
    assert text.startswith("digraph symbol {")
    assert "fc1: linear" in text
    assert text.count("->") == 5
    quoted = F.relu(sym.var('a"b\\'), name="y").to_dot()
    assert r'"a\"b\\"' in quoted


def rectangles(root):
    return [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
    ]


def test_svg():
    root = ET.fromstring(net().to_svg(data=(2, 3)))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "fc1: linear" in texts
    assert "[2,4]" in texts
    assert any("weight [4,3]" in t for t in texts)
    assert len(rectangles(root)) == 5


def test_names_cannot_break_out():
    root = ET.fromstring(F.relu(sym.var("<script>&"), name='"y"').to_svg())
    assert "<script>&" in [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_boxes_do_not_overlap_and_lie_within(width):
    boxes = [Box((f"box {k}" * (1 + k % 3),)) for k in range(4 * width)]
    edges = [Edge(k, j) for j in range(len(boxes)) for k in range(j) if (k * 7 + j * 3) % (2 * width) == 1]
    root = ET.fromstring(svg(boxes, edges))
    _, _, right, bottom = map(float, root.get("viewBox").split())
    found = rectangles(root)
    for i, (x, y, w, h) in enumerate(found):
        assert 0 <= x <= right - w + 1
        assert 0 <= y <= bottom - h + 1
        for a, b, c, d in found[:i]:
            assert x + w <= a or a + c <= x or y + h <= b or b + d <= y
    for edge in edges:  # arrows point downwards
        assert found[edge.source][1] < found[edge.target][1]


def test_files(tmp_path):
    net().draw(tmp_path / "net.svg", data=(2, 3))
    net().draw(tmp_path / "net.dot")
    assert (tmp_path / "net.svg").read_text().startswith("<svg")
    assert re.match("digraph", (tmp_path / "net.dot").read_text())
    assert ET.fromstring(svg([], [])) is not None
