"""Composing symbols: names, variables made by themselves, groups, attributes, substitution, and what is refused."""

import copy
import pickle
import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.errors import GraphError, ShapeError


def net():
    h = F.relu(F.linear(sym.var("data"), out_features=4, name="fc1"), name="act")
    return F.linear(h, out_features=3, name="fc2")


def test_parameters_make_themselves():
    y = net()
    assert y.list_arguments() == ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert y.list_outputs() == ["fc2_output"]
    assert y.list_auxiliary_states() == []
    assert y.name == "fc2"


def test_given_parameters_are_used_and_none_means_none():
    w = sym.var("w")
    y = F.linear(sym.var("x"), w, None, name="fc")
    assert y.list_arguments() == ["x", "w"]
    assert F.linear(sym.var("x"), bias=None, name="fc").list_arguments() == ["x", "fc_weight"]
    assert F.linear(sym.var("x"), bias=sym.var("b"), name="fc").list_arguments() == ["x", "fc_weight", "b"]


def test_running_statistics_are_auxiliary_states():
    y = F.batch_norm(sym.var("x"), name="bn")
    assert y.list_arguments() == ["x", "bn_weight", "bn_bias"]
    assert y.list_auxiliary_states() == ["bn_running_mean", "bn_running_var"]
    given = F.batch_norm(sym.var("x"), sym.var("m"), sym.var("v"), name="bn")
    assert given.list_auxiliary_states() == ["m", "v"]
    plain = F.batch_norm(sym.var("x"), None, None, training=True, name="bn")
    assert plain.list_auxiliary_states() == []
    fixed = F.batch_norm(sym.var("x"), training=False, name="bn")
    assert fixed.list_auxiliary_states() == ["bn_running_mean", "bn_running_var"]


def test_what_is_written_must_be_a_variable():
    x = sym.var("x")
    with pytest.raises(GraphError, match="batch_norm: writes running_mean, which must be a variable"):
        F.batch_norm(x, F.exp(x), sym.var("v"))
    bn = F.batch_norm(x, sym.var("m"), sym.var("v"))
    with pytest.raises(GraphError, match="must be a variable"):
        bn(m=F.exp(sym.var("z")))


def test_parameters_of_any_number():
    y = F.lstm(sym.var("x"), sym.var("h"), sym.var("c"), hidden_size=4, num_layers=2, name="rnn")
    assert len(y) == 3
    assert y.list_outputs() == ["rnn_y", "rnn_hn", "rnn_cn"]
    assert y.list_arguments()[3:] == [
        f"rnn_l{layer}_{what}" for layer in range(2) for what in ("w_ih", "w_hh", "b_ih", "b_hh")
    ]
    assert (
        "rnn_l0_reverse_w_ih"
        in F.gru(sym.var("x"), sym.var("h"), hidden_size=4, bidirectional=True, name="rnn").list_arguments()
    )


def test_every_learnable_operator_composes_with_its_input_alone():
    from weft.ops import registry

    for name in registry.public_names():
        cls = registry.get(name)
        if not cls.learnable:
            continue
        required = [
            s.name for s in cls.inputs if not s.optional and not s.variadic and s.name not in cls.learnable
        ]
        given = {"normalized_shape": 3, "num_groups": 1}
        attributes = {
            a.name: given[a.name] for a in cls.attributes if a.name in given and a.default is a.REQUIRED
        }
        y = getattr(sym, name)(**{each: sym.var(each) for each in required}, **attributes, name="me")
        made = [each for each in y.list_arguments() if each.startswith("me_")]
        assert made, name


def test_automatic_names_count_up():
    with sym.NameScope():
        a, b = F.relu(sym.var("x")), F.relu(sym.var("x"))
        c = a + 1
    assert [a.name, b.name, c.name] == ["relu0", "relu1", "add0"]


def test_name_scopes_are_of_a_thread():
    names = []
    with sym.NameScope("outer_"):
        thread = threading.Thread(target=lambda: names.append(F.relu(sym.var("x"), name="y").name))
        thread.start()
        thread.join()
        names.append(F.relu(sym.var("x"), name="y").name)
    assert names == ["y", "outer_y"]


def test_attributes():
    with sym.AttrScope(stage="1", other="a"), sym.AttrScope(other="b"):
        y = F.linear(sym.var("x", lr_mult="2"), out_features=2, name="fc", attr={"mine": "c"})
    assert y.list_attr() == {"stage": "1", "other": "b", "mine": "c"}
    assert y.attr("mine") == "c"
    assert y.attr("nothing") is None
    found = y.attr_dict()
    assert found["x"] == {"stage": "1", "other": "b", "lr_mult": "2"}
    assert found["fc_weight"]["mine"] == "c"
    with pytest.raises(TypeError, match="attributes are texts"):
        sym.var("x", lr_mult=2)


def test_python_operators_and_numbers():
    x, y = sym.var("x"), sym.var("y")
    z = (2 * x - y / 4) ** 2 + (-x) % 3
    a, b = wf.tensor([1.0, 2.0]), wf.tensor([4.0, 8.0])
    want = (2 * a - b / 4) ** 2 + (-a) % 3
    assert bool((z.eval(x=a, y=b)[0] == want).all())
    for compare in (x < y, x <= y, x > y, x >= y, x == y, x != y):
        assert len(compare.eval(x=a, y=b)) == 1
    assert bool((x == y).eval(x=a, y=a)[0].all())
    assert hash(x) != hash(y)
    for each in (np.float32(2) * x, x * np.float32(2), np.int64(2) * x):
        assert each.eval(x=a)[0].numpy().tolist() == [2.0, 4.0]
    with pytest.raises(TypeError, match="truth of a symbol"):
        bool(x < y)
    with pytest.raises(TypeError):
        x + [1]  # noqa: RUF005


def test_methods_are_the_operators():
    x = sym.var("x")
    y = x.reshape(shape=(2, 3)).sum(axis=0)
    assert y.eval(x=wf.ones(6))[0].shape == (3,)
    z = x.reshape(3, -1).mT.astype("float16", name="half")
    assert (z.name, z.infer_shape(x=(6,))[1], z.infer_type(x="int8")[1]) == ("half", [(2, 3)], [wf.float16])
    assert x.reshape((2, 3)).infer_shape(x=(6,))[1] == [(2, 3)]
    assert {"sum", "reshape", "infer_shape"} <= set(dir(x))
    assert "linear" not in dir(x)
    with pytest.raises(AttributeError, match="Symbol has no 'no_such_thing'"):
        _ = x.no_such_thing


def test_operators_of_the_module():
    assert sym.relu(sym.var("x"), name="r").name == "r"
    assert "relu" in dir(sym)
    with pytest.raises(AttributeError):
        _ = sym.no_such_operator
    assert (sym.ones((2,)) + sym.full((2,), 2.0)).eval()[0].numpy().tolist() == [3.0, 3.0]


def test_outputs_by_number_and_name():
    y = F.topk(sym.var("x"), 2, name="best")
    assert y.list_outputs() == ["best_y", "best_indices"]
    values, indices = y
    assert values.list_outputs() == ["best_y"]
    assert y["best_indices"].list_outputs() == indices.list_outputs() == y[-1].list_outputs()
    with pytest.raises(IndexError):
        y[2]
    with pytest.raises(GraphError, match="no output 'other'; there are: best_y, best_indices"):
        y["other"]
    with pytest.raises(GraphError, match="takes one output"):
        y[0:1]
    with pytest.raises(GraphError, match="takes one output"):
        F.relu(y)


def test_variadic_inputs_take_all_outputs():
    y = F.concat([sym.var("a"), F.chunk(sym.var("b"), 2, axis=0)], axis=0)
    result = y.eval(a=wf.zeros(1), b=wf.tensor([1.0, 2.0]))[0]
    assert result.numpy().tolist() == [0.0, 1.0, 2.0]


def test_how_many_outputs_must_be_known():
    with pytest.raises(GraphError, match="unstack: how many outputs it has depends on sizes"):
        F.unstack(sym.var("x"))
    rows = F.unstack(sym.var("x", shape=(3, None)), name="rows")
    assert rows.list_outputs() == ["rows_output0", "rows_output1", "rows_output2"]
    assert len(F.unstack(F.exp(sym.var("x", shape=(3, 2))).T)) == 2
    again = sym.from_json(sym.group([rows[0] + rows[2]]).to_json())
    assert again.eval(x=[[1.0], [2.0], [3.0]])[0].item() == 4.0
    with pytest.raises(GraphError, match="makes 4 outputs, not the 3"):
        rows(x=sym.var("z")).infer_shape(z=(4, 2))
    parts = sym.var("x", shape=(5,)).split(2)
    assert [y.numpy().tolist() for y in parts.eval(x=np.arange(5))] == [[0, 1], [2, 3], [4]]
    assert len(sym.var("x").split([2, 3])) == 2
    pieces = F.chunk(sym.var("x"), 4, name="pieces")
    with pytest.raises(GraphError, match="makes 3 outputs, not the 4"):
        pieces.infer_shape(x=(5,))


def test_internals_and_children():
    y = net()
    internals = y.get_internals()
    assert internals.list_outputs() == [
        "data", "fc1_weight", "fc1_bias", "fc1_output", "act_output", "fc2_weight", "fc2_bias", "fc2_output",
    ]  # fmt: skip
    assert internals["fc1_output"].list_arguments() == ["data", "fc1_weight", "fc1_bias"]
    assert y.get_children().list_outputs() == ["act_output", "fc2_weight", "fc2_bias"]
    assert sym.var("x").get_children() is None


def test_groups():
    y = net()
    both = sym.group([y, y.get_internals()["act_output"]])
    assert both.list_outputs() == ["fc2_output", "act_output"]
    assert len(both) == 2
    assert "group" in both.name
    with pytest.raises(GraphError, match="at least one"):
        sym.group([])
    with pytest.raises(TypeError, match="expected symbols"):
        sym.group([1])
    with pytest.raises(GraphError, match="choose by"):
        both.attr("x")


def test_names_must_be_unlike():
    with pytest.raises(GraphError, match=r"two variables are called .x.: made at .*test_composition\.py:"):
        (sym.var("x") + sym.var("x")).list_arguments()
    a = F.linear(sym.var("x"), out_features=2, name="fc")
    b = F.linear(a, out_features=2, name="fc")
    for use in (b.list_arguments, b.infer_shape, b.to_json, b.simple_bind):
        with pytest.raises(GraphError, match="two variables are called 'fc_weight'"):
            use()
    with pytest.raises(GraphError, match="two variables"):
        sym.group([sym.var("x"), sym.var("x")])


def test_substitution():
    y = net()
    x = sym.var("x")
    composed = y(data=F.exp(x), name="head")
    assert composed.name == "head"
    assert composed.list_arguments() == ["x", *y.list_arguments()[1:]]
    assert y.list_arguments()[0] == "data"  # unchanged
    two = sym.group([y(data=x), y(data=x * 2)])  # one network twice, with shared parameters
    assert two.list_arguments() == ["x", *y.list_arguments()[1:]]
    assert y(data=x).list_arguments()[0] == "x"
    assert y(x, sym.var("w")).list_arguments()[:3] == ["x", "w", "fc1_bias"]  # by order
    with pytest.raises(GraphError, match="data is given twice"):
        y(x, data=x)
    with pytest.raises(GraphError, match="6 given for the 5 arguments data, fc1_weight"):
        y(*[x] * 6)
    with pytest.raises(GraphError, match="no variable 'other'; there are: data"):
        y(other=x)
    with pytest.raises(TypeError, match="must be a Symbol"):
        y(data=1)
    with pytest.raises(GraphError, match="takes one output"):
        y(data=sym.group([x, x]))


def test_substitution_under_a_gradient():
    x = sym.var("x")
    dx = (x * x).grad("x")
    z = sym.var("z")
    got = dx(x=z * 3).eval(z=wf.tensor([1.0]))[0]
    assert got.item() == 6.0  # with respect to what stands in its place


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda x: F.linear(x, outfeatures=3),
            TypeError,
            "no argument outfeatures; there are: x, weight",
        ),
        (lambda x: F.linear(data=x, out_features=3), TypeError, "no argument data; there are: x, weight"),
        (lambda x: F.linear(weight=x, out_features=3), TypeError, "x must be given"),
        (lambda x: F.add(x, "1"), TypeError, "add: expected a symbol, a number or an array .*, got str"),
        (lambda x: np.asarray(x), TypeError, "elements of a symbol are not known"),
        (lambda x: x.shape, AttributeError, "Symbol has no 'shape'; use infer_shape"),
        (lambda x: sym.NameScope(3), TypeError, "a prefix is a text, got 3"),
        (lambda x: F.linear(x, out_features=-3).infer_shape(x=(2, 4)), ShapeError, "below 0"),
        (lambda x: F.add(x), TypeError, "must be given"),
        (lambda x: F.relu(x, x), TypeError, "positional arguments"),
        (lambda x: F.relu(x, name=""), TypeError, "a name is a text"),
        (lambda x: F.relu(x, name=3), TypeError, "a name is a text"),
        (lambda x: F.add(x, [0, 0]), TypeError, "got list"),
        (lambda x: F.dropout(x, p=x), TypeError, "p must be a number in a symbol"),
        (lambda x: F.softmax(x, axis=1.5), TypeError, "axis must be int"),
        (lambda x: sym.var(""), TypeError, "a name is a text"),
        (lambda x: sym.var("x", shape=(1, -2)), TypeError, "sizes and None"),
        (lambda x: sym.var("x", init=3), TypeError, "init is a text"),
    ],
)
def test_what_does_not_fit(call, error, words):
    with pytest.raises(error, match=words):
        call(sym.var("x"))
    assert F.relu(sym.var("x")).eval(x=wf.tensor([-1.0]))[0].item() == 0


def test_copies_and_pickles():
    y = net()
    assert copy.copy(y) is y
    assert copy.deepcopy(y) is y
    again = pickle.loads(pickle.dumps(y))
    assert str(again) == str(y)


def test_deep_chains_need_no_recursion():
    x = y = sym.var("x")
    for _ in range(3000):
        y = y + 1
    assert y.list_arguments() == ["x"]
    assert len(y.get_internals()) == 3001
    assert sym.from_json(y.to_json()).list_arguments() == ["x"]
    assert y(x=sym.var("z")).list_arguments() == ["z"]
    assert y.infer_shape(x=(2,))[1] == [(2,)]
    assert repr(x) == "<Symbol x>"


def test_user_operators():
    @wf.simple_op
    def shifted(x, *, by=1.0):
        return x + by

    y = shifted(sym.var("x"), by=2.0, name="s")
    assert y.name == "s"
    assert y.eval(x=wf.tensor([1.0]))[0].item() == 3.0
    assert sym.from_json(y.to_json()).eval(x=wf.tensor([1.0]))[0].item() == 3.0
