"""Shapes and types of symbols: forwards, backwards, from parts; what is assumed; contradictions."""

import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError, GraphError, ShapeError


def shapes(symbol, **given):
    arguments, outputs, states = symbol.infer_shape_partial(**given)
    return dict(
        zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*arguments, *states], strict=True)
    ), [*outputs]


def convnet():
    x = F.conv2d(sym.var("data"), out_channels=4, kernel_size=3, padding=1, name="c1")
    x = F.max_pool2d(F.relu(F.batch_norm(x, name="bn")), 2)
    x = F.linear(F.flatten(x, start_axis=1), out_features=10, name="fc")
    return F.cross_entropy(F.dropout(x, 0.5), sym.var("label"), name="loss")


def test_forward_through_a_network():
    y = convnet()
    arguments, outputs, states = y.infer_shape(data=(8, 3, 6, 6))
    assert arguments == [(8, 3, 6, 6), (4, 3, 3, 3), (4,), (4,), (4,), (10, 36), (10,), (8,)]
    assert outputs == [()]
    assert states == [(4,), (4,)]
    by_order, _, _ = y.infer_shape((8, 3, 6, 6))
    assert by_order == arguments


def test_partly_known_sizes_go_through():
    known, outputs = shapes(convnet(), data=(None, 3, 6, 6))
    assert known["fc_weight"] == (10, 36)
    assert known["label"] == (None,)
    assert outputs == [()]
    known, _ = shapes(convnet(), data=(None, None, None, None))
    assert known["c1_weight"] == (4, None, 3, 3)
    assert known["bn_running_mean"] == (4,)


def test_backwards():
    x, w = sym.var("x"), sym.var("w")
    assert shapes(F.linear(x, w), w=(5, 3))[0]["x"] is None  # any rank
    assert shapes(F.linear(x, w), w=(5, 3), x=(None, None))[0]["x"] == (None, 3)
    assert shapes(F.exp(x) + 1, x=None)[1] == [None]
    declared = F.exp(sym.var("x")) * sym.var("y", shape=(2, 3))
    known, outputs = shapes(declared)
    assert known["x"] == (2, 3)  # assumed: one shape for both
    assert outputs == [(2, 3)]
    conv = F.conv2d(x, w, groups=2)
    assert shapes(conv, w=(6, 3, 3, 3), x=(1, None, 8, None))[0]["x"] == (1, 6, 8, None)
    up = F.conv_transpose2d(x, w, groups=2)
    assert shapes(up, w=(4, 3, 2, 2), x=(1, None, 8, 8))[1] == [(1, 6, 9, 9)]
    norm = F.layer_norm(x, 7, name="n")
    assert shapes(norm, x=(None, None))[0] == {"x": (None, 7), "n_weight": (7,), "n_bias": (7,)}
    table = F.embedding(x, embedding_dim=4, num_embeddings=9, name="e")
    assert shapes(table, x=(2, None)) == ({"x": (2, None), "e_table": (9, 4)}, [(2, None, 4)])
    states = F.lstm(x, sym.var("h"), sym.var("c"), hidden_size=4, num_layers=2, name="l")
    known, outputs = shapes(states, x=(5, 2, 3))
    assert known["h"] == known["c"] == (2, 2, 4)
    assert known["l_l1_w_ih"] == (16, 4)
    assert outputs == [(5, 2, 4), (2, 2, 4), (2, 2, 4)]


def test_products_of_matrices():
    a, b = sym.var("a"), sym.var("b")
    y = F.matmul(a, b)
    assert shapes(y, a=(2, None), b=(3, None)) == ({"a": (2, 3), "b": (3, None)}, [(2, None)])
    assert shapes(y, a=(None, 3), b=(None,)) == ({"a": (None, 3), "b": (3,)}, [(None,)])
    assert shapes(y, a=(None,), b=(5, 4, None))[1] == [(5, None)]
    outer = F.linear(y, sym.var("w"), None)
    known, outputs = shapes(outer, a=(2, None, None), b=(3, None), w=(7, 6))
    assert known == {"a": (2, None, 3), "b": (3, 6), "w": (7, 6)}
    assert outputs == [(2, None, 7)]
    with pytest.raises(ShapeError, match="matmul: 3 != 4"):
        y.infer_shape(a=(2, 3), b=(4, 5))


def test_through_shared_parameters():
    """What one use of a variable says is known at the other."""
    w = sym.var("w")
    y = sym.group([F.linear(sym.var("a"), w, None), F.linear(sym.var("b"), w, None, out_features=3)])
    known, _ = shapes(y, a=(2, 7), b=(None, None))
    assert known == {"a": (2, 7), "w": (3, 7), "b": (None, 7)}


def test_broadcasting():
    x, y = sym.var("x"), sym.var("y")
    assert shapes(x + y, x=(2, 1), y=(3,))[1] == [(2, 3)]
    assert shapes(x + y, x=(None, 5), y=(None, 1))[1] == [(None, 5)]
    assert shapes(x + y, x=(None, 1), y=(None, 1))[1] == [(None, 1)]
    assert shapes(x + 1.0, x=(4,))[1] == [(4,)]
    with pytest.raises(ShapeError, match="sizes 2 and 3 do not fit"):
        (x + y).infer_shape(x=(2,), y=(3,))


def test_not_enough_is_no_error():
    y = F.matmul(sym.var("x"), sym.var("w"))
    assert y.infer_shape(x=(2, 3)) == (None, None, None)
    assert y.infer_shape_partial(x=(2, 3)) == ([(2, 3), None], [None], [])
    assert sym.var("x").infer_shape() == (None, None, None)
    assert F.reshape(sym.var("x"), shape=(-1, 2)).infer_shape_partial() == ([None], [None], [])
    with pytest.raises(
        GraphError, match="simple_bind: the shape of the variable 'w' cannot be inferred, only"
    ):
        y.simple_bind(x=(2, 3))


def test_contradictions_name_the_node_and_the_sizes():
    y = F.linear(sym.var("x"), sym.var("w"), out_features=4, name="fc1")
    with pytest.raises(
        ShapeError,
        match=r"linear: weight has 5 out_features, out_features is 4(.|\n)*in fc1, made at .*\.py:\d+",
    ):
        y.infer_shape(x=(2, 3), w=(5, 3))
    with pytest.raises(ShapeError, match=r"x has 3 in_features, weight expects 7(.|\n)*in fc1"):
        y.infer_shape(x=(2, 3), w=(4, 7))
    with pytest.raises(ShapeError, match="x was declared otherwise: 2 != 3"):
        F.exp(sym.var("x", shape=(2,))).infer_shape(x=(3,))
    with pytest.raises(ShapeError, match=r"x needs 4 dimensions, .*, it has 3(.|\n)*in c"):
        F.conv2d(sym.var("x"), out_channels=2, kernel_size=3, name="c").infer_shape(x=(1, 2, 3))
    with pytest.raises(IndexError, match=r"axis 3(.|\n)*in s"):
        F.softmax(sym.var("x"), axis=3, name="s").infer_shape(x=(2, 2))
    assert F.exp(sym.var("x")).infer_shape(x=(2,))[1] == [(2,)]


def test_what_is_given_must_be_there_and_sensible():
    y = F.exp(sym.var("x"))
    with pytest.raises(GraphError, match="no variable 'z'; there are: x"):
        y.infer_shape(z=(2,))
    with pytest.raises(GraphError, match="x is given twice"):
        y.infer_shape((2,), x=(2,))
    with pytest.raises(GraphError, match="2 given for the 1 arguments"):
        y.infer_shape((2,), (2,))
    with pytest.raises(TypeError, match="sizes and None"):
        y.infer_shape(x=(2.0,))


def test_zero_is_a_size():
    assert F.exp(sym.var("x")).infer_shape(x=(0, 3))[1] == [(0, 3)]


def test_types_without_shapes():
    y = convnet()
    arguments, outputs, states = y.infer_type(data="float16")
    assert [str(t) for t in arguments] == [*["float16"] * 3, *["float32"] * 2, *["float16"] * 2, "int64"]
    assert [str(t) for t in outputs] == ["float16"]
    assert [str(t) for t in states] == ["float32", "float32"]  # statistics of half types
    assert y.infer_type()[0][0] is wf.float32
    x = sym.var("x")
    for z in (x.reshape(3, -1), x.reshape(5, 7).mT, F.chunk(x, 3), F.broadcast_to(x, (3, 5))):
        assert set(z.infer_type(x="int8")[1]) == {wf.int8}


def test_types_are_chosen_by_what_reads_a_variable():
    assert F.embedding(sym.var("i"), num_embeddings=3, embedding_dim=2).infer_type()[0][0] is wf.int64
    assert (sym.var("a") & sym.var("b")).infer_type()[0] == [wf.int64, wf.int64]
    assert F.matmul(sym.var("a"), sym.var("b")).infer_type(a="float64")[1] == [wf.float64]
    assert (sym.var("a") + 1).infer_type(a="int8")[1] == [wf.int8]
    assert (sym.var("a") / 2).infer_type(a="int8")[1] == [wf.float32]
    assert F.cast(sym.var("a"), dtype="float16").infer_type()[1] == [wf.float16]


def test_types_are_not_tried_out_on_shapes(monkeypatch):
    """Without shapes no operator is asked for its outputs' types, only for their dtypes."""
    from weft.symbol import inference

    monkeypatch.setattr(inference, "infer", lambda op, types: pytest.fail(f"{op!r} was asked"))
    known, outputs, _ = F.topk(F.take(sym.var("x"), sym.var("i")), 2).infer_type(x="float16")
    assert (known, outputs) == ([wf.float16, wf.int64], [wf.float16, wf.int64])
    assert F.sum(sym.var("x")).infer_type(x="int8")[1] == [wf.int64]
    assert (sym.var("x", dtype="int8") / 2 > 1).infer_type()[1] == [as_dtype("bool")]


def test_types_of_what_bodies_read():
    """A variable has the dtype that its reader inside of a function takes."""
    rows, _ = sym.foreach(
        lambda i, s: (F.embedding(i, sym.var("table")), s), sym.var("indices"), sym.var("state")
    )
    known = dict(zip(rows.list_arguments(), rows.infer_type(table="float64")[0], strict=True))
    assert known["indices"] is wf.int64


def test_declared_types_come_first():
    w = sym.var("w", dtype="float64")
    y = F.linear(sym.var("x"), w, None, out_features=2)
    assert y.infer_type(x="float32") == ([wf.float32, wf.float64], [wf.float64], [])
    with pytest.raises(DTypeError, match=r"takes floating-point(.|\n)*in"):
        F.softmax(sym.var("x", dtype="int32")).infer_shape(x=(2,))


def test_gradients_have_the_shapes_of_their_variables():
    y = F.linear(sym.var("x"), out_features=2, name="fc")
    dw, dx = y.grad(["fc_weight", "x"])
    assert dw.infer_shape(x=(4, 3))[1] == [(2, 3)]
    assert dx.infer_type(x="float64")[1] == [wf.float64]


def test_a_deep_network_is_inferred_in_reasonable_steps(monkeypatch):
    """Every operator is asked a few times, not once for each variable."""
    from weft.symbol import inference

    asked = []
    whole = inference.Inference.visit
    monkeypatch.setattr(
        inference.Inference, "visit", lambda self, node: (asked.append(node), whole(self, node))
    )
    y = sym.var("x")
    for k in range(60):
        y = F.relu(F.linear(y, out_features=8, name=f"fc{k}"))
    y.infer_shape(x=(2, 3))
    assert len(asked) < 10 * 120


@pytest.mark.parametrize("given", [{}, {"x0": (2, 3)}], ids=["without shapes", "with one shape"])
def test_work_is_linear_in_the_nodes(monkeypatch, given):
    """Each default is followed by a look at the nodes that it concerns, not at all of them."""
    from weft.symbol import defaults, inference

    looks = [0]

    def counted(method):
        def call(*args, **kwargs):
            looks[0] += 1
            return method(*args, **kwargs)

        return call

    monkeypatch.setattr(inference.Inference, "visit", counted(inference.Inference.visit))
    monkeypatch.setattr(defaults, "learnable_variables", counted(defaults.learnable_variables))
    monkeypatch.setattr(inference.Inference, "dtype_of", counted(inference.Inference.dtype_of))

    def work(count):
        y = sym.var("x0")
        for k in range(count):
            y = F.linear(F.relu(y), out_features=3, name=f"fc{k}") * sym.var(f"s{k}")
        looks[0] = 0
        y.infer_shape_partial(**given)
        return looks[0]

    few, many = work(10), work(40)
    assert many < 4.5 * few
