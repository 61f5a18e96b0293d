"""What finds a program, a plan or a node by values compares their type and bits, and classes by identity.

Each cache gets pairs of values that Python's == or a text takes for the same, or NaN, which == takes for two.
"""

import math
import struct

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym
from weft.base.exact import exact
from weft.base.structure import flatten
from weft.executor import tuning
from weft.graph.graph import Graph, graph_of
from weft.graph.subgraph import Subgraph
from weft.ops.node import make_node
from weft.ops.op import Op, op
from weft.ops.types import TensorType

OTHER_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]


@op
class ShownOfTests(Op):
    """x times a number that says of which type `value` is; 1 / (x * value) for a zero, whose sign that shows."""

    method = False
    value: object = None

    def infer(self, x):
        return x.like()

    def decompose(self, x):
        factors = {bool: 2.0, int: 3.0, float: 5.0}
        value = self.value
        while isinstance(value, tuple | list):
            value = value[-1]
        if isinstance(value, float) and not value:
            return 1 / (x * value)
        return x * factors[type(value)]


PAIRS = [
    (0.0, -0.0),
    (1, True),
    (1, 1.0),
    (1.0, True),
    ((0.0,), (-0.0,)),
    ((1,), (True,)),
    (((2, 1.0),), ((2, 1),)),
]
X = [2.0, 4.0]


def shown(value):
    """What the operator gives by itself, in NumPy."""
    while isinstance(value, tuple):
        value = value[-1]
    x = np.asarray(X, "f4")
    if isinstance(value, float) and not value:
        return np.copysign(np.inf, value) * np.ones(2)
    return x * {bool: 2, int: 3, float: 5}[type(value)]


def lazily(f, x):
    with wf.lazy():
        y = f(x)
    return y


def with_a_break(f):
    def g(x):
        y = f(x)
        return y * 1 if y.shape[0] and x.sum().item() > 0 else y

    return wf.trace(g)


# How the function of an operator is run: each looks for programs or plans in another table.
WAYS = {
    "eagerly": lambda f, x: f(x),
    "traced": lambda f, x: wf.trace(f)(x),
    "dynamic": lambda f, x: wf.trace(dynamic={"x": 0})(lambda x: f(x))(x),
    "lazily": lazily,
    "broken": pytest.param(
        lambda f, x: with_a_break(f)(x), marks=pytest.mark.filterwarnings("ignore::weft.TraceWarning")
    ),
    "cond": lambda f, x: wf.trace(lambda x: wf.cond(x.sum() > 0, f, lambda x: x, x))(x),
    "foreach": lambda f, x: wf.trace(lambda x: wf.foreach(lambda a, s: (f(a), s), x, ())[0])(x),
    "while_loop": lambda f, x: wf.trace(
        lambda x: wf.while_loop(lambda a, n: n < 1, lambda a, n: (f(a), n + 1), x, wf.zeros((), "int32"))[0]
    )(x),
    "vmap": lambda f, x: wf.vmap(f)(x),
    "vjp": lambda f, x: wf.vjp(f, x)[0],
    "backward": lambda f, x: wf.value_and_grad(lambda x: (f(x).sum(), f(x)), has_aux=True)(x)[0][1],
}


def same(a, b):
    np.testing.assert_array_equal(a.numpy(), np.asarray(b, "f4"))


WAYS_AND_NAMES = [
    pytest.param(*way.values, marks=way.marks, id=name) if not callable(way) else pytest.param(way, id=name)
    for name, way in WAYS.items()
]


@pytest.mark.parametrize("way", WAYS_AND_NAMES)
def test_attributes_of_type_and_bits(way):
    x = wf.tensor(X)
    for pair in PAIRS:
        for value in pair:
            f = lambda x, value=value: F.shown_of_tests(x, value=value)  # noqa: E731
            same(way(f, x), shown(value))
    # Two of them in one program, where equal nodes are one.
    for a, b in PAIRS:
        f = lambda x, a=a, b=b: F.shown_of_tests(x, value=a) - 2 * F.shown_of_tests(x, value=b)  # noqa: E731
        same(way(f, x), shown(a) - 2 * shown(b))


def named(k, name, method=False):
    """Registers an operator x * k under this name; the name of its class is always the same."""
    cls = type(
        "FactorOfTests",
        (Op,),
        {
            "name": name,
            "method": method,
            "infer": lambda self, x: x.like(),
            "decompose": lambda self, x: x * k,
            "__annotations__": {},
        },
    )
    return op(cls)


@pytest.mark.parametrize("way", WAYS_AND_NAMES)
def test_classes_of_one_name(way):
    x = wf.tensor(X)
    named(2.0, "factor_two_of_tests"), named(5.0, "factor_five_of_tests")
    same(way(lambda x: F.factor_two_of_tests(x), x), [4, 8])
    same(way(lambda x: F.factor_five_of_tests(x), x), [10, 20])
    same(way(lambda x: F.factor_two_of_tests(x) + F.factor_five_of_tests(x), x), [14, 28])


@pytest.mark.parametrize("way", WAYS_AND_NAMES)
def test_an_operator_that_is_made_again(way):
    x = wf.tensor(X)
    for k in (2.0, 6.0, 2.0):
        named(k, "factor_of_tests")
        same(way(lambda x: F.factor_of_tests(x), x), [2 * k, 4 * k])


def test_keys():
    pairs = [*PAIRS, (float("nan"), OTHER_NAN), ({1: 0}, {True: 0}), ([0.0], (0.0,)), (0j, -0j), ("1", b"1")]
    pairs += [(slice(1), slice(True)), (np.float32(0.0), np.float32(-0.0)), (0.0, np.float64(0.0))]
    pairs += [({0.0}, {-0.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (int, float)]
    for a, b in pairs:
        for wrap in (lambda v: v, lambda v: (v,), lambda v: [{"k": (v,)}]):
            assert exact(wrap(a)) == exact(wrap(a))
            assert exact(wrap(a)) != exact(wrap(b))
            assert hash(exact(wrap(a))) == hash(exact(wrap(a)))
    assert exact(float("nan")) == exact(float("nan"))
    assert flatten({1: 0})[1] != flatten({True: 0})[1]


def test_keys_of_graphs():
    types = [TensorType((2,), wf.float32)]

    def key(function):
        return graph_of(function, types).key

    assert key(lambda x: x * 2.0) == key(lambda x: x * 2.0)
    assert key(lambda x: x * 0.0) != key(lambda x: x * -0.0)
    assert key(lambda x: x + 1) != key(lambda x: x + True)
    assert key(lambda x: x * math.nan) == key(lambda x: x * math.nan)
    assert key(lambda x: [x, x + 1]) != key(lambda x: [x + 1, x])
    graph = graph_of(lambda x: x + 1, types)
    assert graph.key != Graph(graph.inputs, graph.outputs, {0: 0}).key
    assert graph.key != Graph(graph.inputs, graph.outputs, stable_inputs=[0]).key
    first, second = named(2.0, "key_one_of_tests"), named(2.0, "key_two_of_tests")
    graphs = [graph_of(lambda x, c=c: make_node(c(), [x]).outputs[0], types) for c in (first, second, first)]
    assert str(graphs[0]) == str(graphs[1])
    assert [g.key == graphs[0].key for g in graphs] == [True, False, True]
    assert len({Subgraph(g) for g in graphs}) == 2


class Scaled(M.Module):
    def __init__(self, z):
        self.z = z

    def forward(self, x):
        z = self.z
        while isinstance(z, dict | list | tuple):
            z = next(iter(z)) if isinstance(z, dict) else z[0]
        return 1 / (x * z) if isinstance(z, float) else x * {int: 3, bool: 2}[type(z)]


@pytest.mark.parametrize(
    ("a", "b"), [*PAIRS[:2], ([0.0], [-0.0]), ({1: 0}, {True: 0}), ([{1: 0}], [{True: 0}])]
)
def test_states_of_modules(a, b):
    net, x = Scaled(a), wf.tensor(X)
    traced = wf.trace(net)
    for value in (a, b, a):
        net.z = value
        same(traced(x), net(x).numpy())


def test_memory_budgets_of_symbols():
    x = sym.var("x")
    y = sym.sum(sym.exp(sym.exp(x)))
    signatures = [
        y.bind(wf.as_device(None), {"x": wf.ones(4)}, memory_budget=budget)._signature
        for budget in (1, 1.0, 1)
    ]
    assert [each == signatures[0] for each in signatures] == [True, False, True]


def test_tuning_knows_classes_of_one_name():
    keys = []
    for k in (2.0, 6.0, 2.0):
        operator = named(k, "tuned_of_tests")()
        graph = graph_of(lambda x, o=operator: make_node(o, [x]).outputs[0], [TensorType((2,), wf.float32)])
        keys.append(tuning._key(operator, graph.nodes[-1], [(1,)]))
    assert keys[0] == keys[2] != keys[1]


@op
class OuterOfTests(Op):
    method = False

    def infer(self, x):
        return x.like()

    def decompose(self, x):
        return F.renewed_of_tests(x) + 1


class TestAnOperatorThatIsMadeAgain:
    """Programs and plans that were made before it, and do not name its class, find the new one by its name."""

    CALLS = {  # noqa: RUF012
        "traced": wf.trace(lambda x: F.renewed_of_tests(x)),
        "method": wf.trace(lambda x: x.renewed_of_tests()),
        "dynamic": wf.trace(lambda x: F.renewed_of_tests(x), dynamic={"x": 0}),
        "vmap": wf.vmap(lambda x: F.renewed_of_tests(x)),
        "vmap, inside": wf.vmap(lambda x: F.outer_of_tests(x) - 1),
        "jvp": lambda x: wf.jvp(lambda x: F.renewed_of_tests(x), (x,), (x,))[0],
        "inside": lambda x: F.outer_of_tests(x) - 1,
        "traced, inside": wf.trace(lambda x: F.outer_of_tests(x) - 1),
        "cond, inside": wf.trace(
            lambda x: wf.cond(x.sum() > 0, lambda x: F.outer_of_tests(x) - 1, lambda x: x, x)
        ),
        "lazily, inside": lambda x: lazily(lambda x: F.outer_of_tests(x) - 1, x),
    }

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_by_its_name(self, call):
        x = wf.tensor(X)
        for k in (2.0, 6.0, 3.0):
            named(k, "renewed_of_tests", method=True)
            for _ in range(2):
                same(call(x), [2 * k, 4 * k])

    def test_in_a_symbol(self):
        x, symbol = wf.tensor(X), F.outer_of_tests(sym.var("x"))
        bound = None
        for k in (2.0, 6.0):
            named(k, "renewed_of_tests", method=True)
            bound = bound or symbol.bind(wf.as_device(None), {"x": x})
            same(bound.forward()[0], [2 * k + 1, 4 * k + 1])

    def test_by_a_variable(self):
        """A program is made again only for what it may have found by name."""
        x, made = wf.tensor(X), []

        @wf.trace
        def traced(x):
            made.append(None)
            return own(x) + 1

        for k in (2.0, 3.0):
            own = wf.simple_op(calls_of_tests(2.0))
            for _ in range(3):
                wf.simple_op(calls_of_tests(k))  # which no one looks up
                same(traced(x), [5, 9])
        assert len(made) == 2


def calls_of_tests(k):
    def own_of_tests(x):
        return x * k

    return own_of_tests


def test_rules_of_vmap_are_of_classes():
    """A user's operator whose class is called like a base class of weft's with a rule has nothing of that rule."""

    @op
    class Transform(Op):
        name = "transform_of_tests"
        method = False

        def infer(self, x):
            return x.like(())

        def decompose(self, x):
            return F.sum(x)

    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert wf.vmap(F.transform_of_tests)(x).tolist() == [3.0, 7.0]
