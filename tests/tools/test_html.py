"""What notebooks show of tensors, modules, symbols, graphs and traces: well-formed, bounded, and with what counts."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym


def parsed(text):
    return ElementTree.fromstring(f"<all>{text}</all>")


def cells(x):
    return ["".join(cell.itertext()) for cell in parsed(x._repr_html_()).iter("td")]


def test_a_table_of_elements():
    text = (wf.arange(6).reshape(2, 3) * 0.5)._repr_html_()
    assert [cell.text for cell in parsed(text).iter("td")] == ["0.", "0.5", "1.", "1.5", "2.", "2.5"]
    assert [cell.text for cell in parsed(text).iter("th")] == [None, "0", "1", "2", "0", "1"]
    assert "tensor float32[2, 3] cpu:0" in text


def test_long_axes_are_cut():
    x = wf.arange(10_000).reshape(100, 100)
    shown = cells(x)
    assert len(shown) == 11 * 13 + 1  # with the column left out of the heads
    assert shown.count("…") == 13 + 10 + 1
    assert "9999" in shown
    assert "5050" not in shown
    assert len(x._repr_html_()) < 10_000
    assert len(cells(wf.arange(1000))) == 14


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 2, 2)])
def test_other_shapes_are_written_as_repr_has_them(shape):
    text = wf.ones(shape)._repr_html_()
    assert np.array2string(np.ones(shape, np.float32), separator=", ") in text
    parsed(text)


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "complex64", "int8", "float16"])
def test_all_kinds_of_elements(dtype):
    assert len(cells(wf.ones((2, 2)).astype(dtype))) == 4


def test_a_tree_of_modules():
    net = M.Sequential(M.Linear(4, 3), M.Sequential(M.BatchNorm1d(3), M.ReLU()), M.LazyLinear(2))
    tree = parsed(net._repr_html_())
    assert [each.text for each in tree.iter("code")] == [
        "21 parameters",
        "Sequential()",
        "0: Linear(in_features=4, out_features=3)",
        "weight f32[3,4]",
        "bias f32[3]",
        "1: Sequential()",
        *[each.text for each in tree.iter("code")][6:],
    ]
    assert "weight no size yet" in net._repr_html_()
    assert len(list(tree.iter("details"))) == 6


def test_what_repr_has_of_modules():
    """Both come from one walk."""

    class Above(M.Module):
        def __init__(self):
            self.inner = M.Linear(1, 1)
            self.inner.above = self

    net = Above()
    assert repr(net) == "Above(\n  inner: Linear(in_features=1, out_features=1\n    above: ...\n  )\n)"
    parsed(net._repr_html_())
    deep = M.ReLU()
    for _ in range(3000):
        deep = M.Sequential(deep)
    assert repr(deep).count("\n") == 6000
    assert deep._repr_html_().count("<details") == 3001


def test_symbols_and_graphs_are_drawn():
    y = F.relu(F.linear(sym.var("x"), out_features=3, name="<fc>"), name="act")
    texts = "".join("".join(each.itertext()) for each in parsed(y._repr_svg_()).iter())
    assert "<fc>" in texts
    for _ in range(500):
        y = F.exp(y)
    assert y._repr_svg_() is None


def test_traces_show_their_programs():
    f = wf.trace(lambda x: F.exp(x).sum())
    assert "not called yet" in f._repr_html_()
    f(wf.ones(3)), f(wf.ones((2, 2)))
    tree = parsed(f._repr_html_())
    assert len(list(tree.iter("details"))) == 2
    assert "2 programs" in f._repr_html_()
    assert "shared: the arena" in f._repr_html_()
    dynamic = wf.trace(lambda x: F.exp(x).sum(), dynamic={"x": 0})
    dynamic(wf.ones(3)), dynamic(wf.ones(5))
    assert "1 program" in dynamic._repr_html_()
    parsed(dynamic._repr_html_())

    def long(x):
        for _ in range(450):
            x = F.sin(x)
        return x

    f = wf.trace(long)
    f(wf.ones(2))
    assert "<svg" not in f._repr_html_()
    parsed(f._repr_html_())
