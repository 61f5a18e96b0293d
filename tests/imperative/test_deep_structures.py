"""Modules and containers nested deeper than Python's calls can be: they work, or an error says what the limit is."""

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.module as M
from weft.base.exact import Same, exact
from weft.recording.dependence import objects_in, state_of

DEPTH = 2000


class Nest(M.Module):
    """A module in a module; forward is a loop, since calls of Python are limited."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.scale = inner, 1.0

    def forward(self, x):
        m = self
        while isinstance(m, Nest):
            m = m.inner
        return m(x) * self.scale


@pytest.fixture(scope="module")
def deep():
    net = M.Linear(2, 2)
    for _ in range(DEPTH):
        net = Nest(net)
    return net


def nested(leaf):
    tree = leaf
    for k in range(DEPTH):
        tree = [tree] if k % 3 else ({"a": tree} if k % 2 else (tree,))
    return tree


def leaf_of(tree):
    while isinstance(tree, list | tuple | dict):
        tree = tree["a"] if isinstance(tree, dict) else tree[0]
    return tree


def test_nested_modules(deep):
    x = wf.ones((1, 2))
    path = "inner." * DEPTH
    assert [name for name, _ in deep.named_parameters()] == [path + "weight", path + "bias"]
    assert len([*deep.modules()]) == DEPTH + 1
    state = deep.state_dict()
    assert list(state) == [path + "weight", path + "bias"]
    assert not any(deep.load_state_dict(state))
    before = deep(x).numpy()
    np.testing.assert_array_equal(deep.eval().train().functional_call(state, x).numpy(), before)
    assert repr(deep).count("Nest(\n") == DEPTH
    gm = wf.GradManager().attach(deep)
    with gm:
        gm.backward(deep(x).sum())
    assert all(p.grad is not None for p in deep.parameters())


def test_nested_modules_in_traces(deep):
    x = wf.ones((1, 2))
    traced = wf.trace(deep, strict=True)
    want = deep(x).numpy()
    for _ in range(2):
        np.testing.assert_array_equal(traced(x).numpy(), want)
    deep.scale = 2.0
    np.testing.assert_array_equal(traced(x).numpy(), 2 * want)
    assert len(traced.programs) == 2


def test_modules_that_refer_to_each_other():
    """repr shows each once, and classes may have their own."""

    class Own(M.Module):
        def __repr__(self):
            return "Own\n(two lines)"

    class Pair(M.Module):
        def __init__(self):
            super().__init__()
            self.layers = [M.ReLU(), {"a": Own()}]
            self.back = Nest(self)

        def extra_repr(self):
            return "k=1"

    pair = Pair()
    assert repr(pair) == (
        "Pair(k=1\n  layers.0: ReLU()\n  layers.1.a: Own\n  (two lines)\n"
        "  back: Nest(\n    inner: ...\n  )\n)"
    )
    assert [name for name, _ in pair.named_modules()] == ["", "layers.0", "layers.1.a", "back"]


def test_nested_attributes_of_modules():
    class Holder(M.Module):
        def __init__(self, value):
            super().__init__()
            self.tree = nested(value)

        def forward(self, x):
            return x * leaf_of(self.tree)

    holder = Holder(2.0)
    traced = wf.trace(holder, strict=True)
    assert [traced(wf.ones(())).item() for _ in range(2)] == [2, 2]
    holder.tree = nested(3.0)
    assert traced(wf.ones(())).item() == 3
    assert len([*Holder(M.ReLU()).named_modules()]) == 2
    holder.tree = [1]
    holder.tree.append(holder.tree)
    with pytest.raises(RecursionError, match="more than 10000 deep, or one that contains itself"):
        holder.state_dict()


def test_states_of_nested_containers():
    first, again, other = nested(1.0), nested(1.0), nested(-1.0)
    assert state_of(first) == state_of(again)
    assert hash(exact(first)) == hash(exact(again))
    assert state_of(first) != state_of(other)
    x = wf.ones(())
    assert [*objects_in(state_of(nested(x)))] == [x]
    assert [*objects_in((Same(x), frozenset({Same(x)})))] == [x, x]
    mine = [1]
    mine.append(mine)
    with pytest.raises(RecursionError, match="more than 10000 deep, or one that contains itself"):
        state_of(mine)


def test_keys_of_containers_tell_how_they_are_nested():
    values = [[], [[]], [[], []], [[[]]], [1, [2]], [[1], 2], [[1, 2]], [1, 2], (1, 2), (1, (2,)), [{}]]
    values += [
        {1: 2},
        {1: [2]},
        [{1: 2}],
        [1, {2: 3}],
        {1: {2: 3}},
        [(list, 2)],
        [list, 2],
        {"a": 1},
        ["a", 1],
    ]
    keys = [exact(value) for value in values]
    assert len({*keys}) == len(values)
    assert keys == [exact(value) for value in values]


def test_axes_of_nested_arguments():
    tree = nested(wf.tensor(np.arange(6.0).reshape(2, 3)))
    axes = wf.tree_map(lambda _: 1, tree)
    got = wf.vmap(lambda t: leaf_of(t).sum(), in_axes=(axes,))(tree)
    np.testing.assert_array_equal(got.numpy(), [3, 5, 7])


def test_samples_that_are_nested_too_deep():
    with pytest.raises(ValueError, match="samples are structures nested more than 32 deep"):
        data.collate([nested(1.0)] * 2)
