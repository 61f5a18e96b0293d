"""Control flow on symbols: against the same functions on arrays, with gradients, inference, and as JSON."""

import json

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.dtype import bool_

RNG = np.random.default_rng(3)
X = wf.tensor(RNG.normal(size=(5, 3)).astype("float32"))
S = wf.tensor(RNG.normal(size=3).astype("float32"))
W = wf.tensor(RNG.normal(size=(3, 3)).astype("float32") / 2)


def rnn(x, s, w):
    def step(x, h):
        h = F.tanh(x + h @ w)
        return (h * 2, x), {"h": h}["h"]

    (doubled, same), last = wf.foreach(step, x, s)
    return doubled + same, last


def powers(x, s, w):
    s, k = wf.while_loop(
        lambda s, k: k.sum() < 9, lambda s, k: (F.tanh(s @ w), k + 1), s, x.sum(axis=0) * 0, max_iterations=6
    )
    return s + 0 * k


def chosen(x, s, w):
    return wf.cond((x > 0).all(), lambda x: x @ w, lambda x: -x + s, x)


def nested(x, s, w):
    return wf.foreach(lambda x, h: (wf.cond(x.sum() > 0, lambda: x * h, lambda: h @ w), h + x), x, s)


def noisy(x, s, w):
    def step(x, h):
        new = F.dropout(h, 0.2, training=True)
        return F.dropout(x, 0.5, training=True) + h @ w, new

    return wf.foreach(step, x, s)


PROGRAMS = [rnn, powers, chosen, nested, noisy]


def symbol_of(function):
    made = function(sym.var("x"), sym.var("s"), sym.var("w"))
    return sym.group(list(made)) if isinstance(made, tuple) else made


def value(function, *args):
    wf.random.seed(2)
    made = function(*args)
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("function", PROGRAMS)
def test_like_arrays(function):
    """Values, gradients, the JSON round trip; what is drawn is what the function draws on Values."""
    symbol = symbol_of(function)
    again = sym.from_json(symbol.to_json())
    assert again.to_json() == symbol.to_json()
    shapes = symbol.infer_shape(x=(5, 3), s=(3,), w=(3, 3))
    assert shapes == again.infer_shape(x=(5, 3), s=(3,), w=(3, 3))
    want = value(function, X, S, W)
    assert shapes[1] == [tuple(y.shape) for y in want]
    slopes = value(wf.grad(lambda *a: sum(y.sum() for y in value(function, *a)), argnums=(0, 1, 2)), X, S, W)
    for each in (symbol, again):
        exe = each.bind(
            None,
            {"x": X, "s": S, "w": W},
            {n: wf.zeros(a.shape) for n, a in zip("xsw", (X, S, W), strict=True)},
        )
        wf.random.seed(2)
        for got, right in zip(exe.forward(is_train=True), want, strict=True):
            np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=2e-5, atol=2e-5)
        exe.backward()
        for name, right in zip("xsw", slopes, strict=True):
            np.testing.assert_allclose(exe.grad_dict[name].numpy(), right.numpy(), rtol=2e-4, atol=2e-5)


def cell():
    def step(x, h):
        h = F.tanh(F.linear(x, out_features=4, name="i") + F.linear(h, out_features=4, name="h"))
        return h, h

    return sym.foreach(step, sym.var("x"), sym.var("h0"))


def test_parameters_of_bodies_and_inference():
    outputs, last = cell()
    assert outputs.list_arguments() == ["x", "h0", "i_weight", "i_bias", "h_weight", "h_bias"]
    arguments, made, _ = outputs.infer_shape(x=(5, 2, 3), h0=(2, 4))
    assert arguments == [(5, 2, 3), (2, 4), (4, 3), (4,), (4, 4), (4,)]
    assert (made, last.infer_shape(x=(5, 2, 3), h0=(2, 4))[1]) == ([(5, 2, 4)], [(2, 4)])
    assert outputs.infer_shape(x=(5, 2, 3)) == (None, None, None)
    assert outputs.infer_type(x="float64")[0] == [wf.float64] * 6
    with pytest.raises(wf.ShapeError, match=r"foreach_loop: 4 != 5, \[2,4\] and \[2,5\]"):
        outputs.infer_shape(x=(5, 2, 3), h0=(2, 5))


def test_the_shape_of_a_branch_says_that_of_operands():
    x = sym.var("x")
    y = sym.cond(
        sym.var("flag"),
        lambda x: F.linear(x, sym.var("w", shape=(5, 3))),
        lambda x: x.sum(axis=1, keepdims=True) + sym.zeros((1, 5)),
        x,
    )
    arguments, outputs, _ = y.infer_shape(x=(2, None))
    assert dict(zip(y.list_arguments(), arguments, strict=True))["x"] == (2, 3)
    assert outputs == [(2, 5)]
    assert y.infer_type(x="float32")[0][0] is bool_


def test_numbers_are_refused():
    with pytest.raises(TypeError, match="foreach: takes symbols and arrays beside other symbols, got int"):
        sym.foreach(lambda x, s: (x, s), sym.var("x"), 0)
    with pytest.raises(TypeError, match="cond: then gives"):
        sym.cond(sym.var("p"), lambda: sym.var("x"), lambda: (sym.var("x"), sym.var("x")))
    with pytest.raises(TypeError, match="while_loop: the state was"):
        sym.while_loop(lambda x: x, lambda x: (x, x), sym.var("x"))
    with pytest.raises(wf.GraphError, match="writes one of its inputs"):
        sym.foreach(lambda x, s: (F.batch_norm(x), s), sym.var("x"), ())


TOTAL = (
    '{"inputs": 1, "outputs": [[0, 0]], "writes": [], "nodes": [{"input": "x", "type": {"shape": [2], "dtype": \
"float32", "device": "cpu:0", "weak": false}}]}'
)


def spoiled(document):
    """Documents that are wrong in one place inside of the loop."""
    node = next(k for k, node in enumerate(document["nodes"]) if node.get("op") == "foreach_loop")
    for change in (
        lambda a: a.update(sequences=0),
        lambda a: a.update(sequences=9),
        lambda a: a.update(states=-1),
        lambda a: a.update(states=7),
        lambda a: a.update(body={"symbol": {"inputs": [], "outputs": [], "nodes": []}}),
        lambda a: a.update(body=3),
        lambda a: a.update(reverse=True),
        lambda a: a.update(counted=True),
        lambda a: a.update(body={"graph": json.loads(TOTAL)}),
        lambda a: a["body"]["symbol"]["inputs"].pop(),
        lambda a: a["body"]["symbol"]["inputs"].append("more"),
        lambda a: a["body"]["symbol"]["inputs"].__setitem__(0, "other"),
        lambda a: a["body"]["symbol"]["outputs"][0].__setitem__(0, 99),
        lambda a: a["body"]["symbol"]["nodes"][-1].update(op="no_such_operator"),
        lambda a: a["body"]["symbol"].update(extra=1),
    ):
        copied = json.loads(json.dumps(document))
        change(copied["nodes"][node]["attributes"])
        yield json.dumps(copied)


def test_hostile_documents():
    text = cell()[0].to_json()
    for broken in spoiled(json.loads(text)):
        with pytest.raises(wf.GraphError, match="from_json"):
            sym.from_json(broken)
