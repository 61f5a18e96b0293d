"""cond, while_loop, foreach: against plain Python, as arrays, as operators, and inside of traces."""

import collections

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.functional as F
from weft import _core, control_flow
from weft.base.errors import GraphError
from weft.base.structure import flatten
from weft.executor.control import CondBranch, ForeachLoop, WhileLoop
from weft.graph.graph import graph_of, interpret
from weft.graph.subgraph import Subgraph
from weft.ops.node import input_value
from weft.ops.types import TensorType

MODES = ("eager", "operator", "traced")
RNG = np.random.default_rng(7)
X = wf.tensor(RNG.normal(size=(5, 3)).astype("float32"))
W = wf.tensor(RNG.normal(size=(3, 3)).astype("float32") / 2)
S = wf.tensor(RNG.normal(size=3).astype("float32"))


@pytest.fixture(params=MODES)
def run(request, monkeypatch):
    """function(*args), its control flow done by Python, by operators on arrays, or by a trace that is replayed."""

    def traced(function, *args):
        step = wf.trace(function, strict=True)
        step(*args)
        return step(*args)

    if request.param == "operator":
        monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    plain = lambda function, *args: function(*args)  # noqa: E731
    return traced if request.param == "traced" else plain


def near(got, want, bound=2e-5):
    np.testing.assert_allclose(
        got.numpy() if isinstance(got, wf.Tensor) else got,
        want.numpy() if isinstance(want, wf.Tensor) else want,
        rtol=bound,
        atol=bound,
    )


def rnn(x, s, w=W):
    h = F.tanh(x + s @ w)
    return h * 2, h


def differences(f, x, eps=1e-6):
    """The gradient of f, one number, in float64, by central differences."""
    flat = x.numpy().copy()
    found = np.zeros_like(flat)
    for place in np.ndindex(*flat.shape):
        for sign in (1, -1):
            moved = flat.copy()
            moved[place] += sign * eps
            found[place] += sign * f(wf.tensor(moved)).item() / (2 * eps)
    return found


# foreach


def test_foreach_is_the_loop(run):
    outputs, state = run(lambda x, s: wf.foreach(rnn, x, s), X, S)
    s, want = S, []
    for x in X:
        y, s = rnn(x, s)
        want.append(y.numpy())
    near(outputs, np.stack(want))
    near(state, s)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_foreach_of_few(run, length):
    outputs, state = run(lambda x, s: wf.foreach(rnn, x, s), X[:length], S)
    assert (outputs.shape, outputs.dtype) == ((length, 3), wf.float32)
    s = S
    for k in range(length):
        y, s = rnn(X[k], s)
        near(outputs[k], y)
    near(state, s)


def test_foreach_gradients(run):
    def loss(x, s, w):
        outputs, state = wf.foreach(lambda x, s: rnn(x, s, w), x, s)
        return (outputs * outputs).sum() + (state * 3).sum()

    wide = [a.astype("float64") for a in (X, S, W)]
    found = run(lambda *args: wf.grad(loss, argnums=(0, 1, 2))(*args), *wide)
    for k, slope in enumerate(found):
        near(slope, differences(lambda a, k=k: loss(*wide[:k], a, *wide[k + 1 :]), wide[k]), 1e-6)


@pytest.mark.parametrize("length", [0, 1])
def test_foreach_gradients_of_few(run, length):
    def loss(x, s):
        outputs, state = wf.foreach(rnn, x, s)
        return outputs.sum() + state.sum()

    found = run(lambda *args: wf.grad(loss, argnums=(0, 1))(*args), X[:length].copy(), S)
    assert found[0].shape == (length, 3)
    if not length:
        near(found[1], np.ones(3))


def test_foreach_second_gradient():
    def loss(x):
        outputs, state = wf.foreach(lambda x, s: (x * s, s + x * x), x, S.astype("float64"))
        return (outputs * outputs).sum() + state.sum()

    x = X[:2].astype("float64")
    found = wf.grad(lambda x: (wf.grad(loss)(x) ** 2).sum())(x)
    near(found, differences(lambda x: (wf.grad(loss)(x) ** 2).sum(), x), 1e-4)


def test_foreach_on_structures(run):
    Pair = collections.namedtuple("Pair", "left right")

    def step(data, state):
        x, k = data["x"], data["k"]
        total, count = state
        total = total + x * k.astype("float32")
        return Pair(total, [x, k + 1]), (total, count + 1)

    k = wf.arange(5)
    pair, (total, count) = run(
        lambda x, k: wf.foreach(step, {"x": x, "k": k}, (wf.zeros(3), wf.tensor(0))), X, k
    )
    assert type(pair) is Pair
    near(pair.left, np.cumsum(X.numpy() * np.arange(5)[:, None], 0))
    near(pair.right[0], X)
    assert pair.right[1].numpy().tolist() == [1, 2, 3, 4, 5]
    near(total, (X.numpy() * np.arange(5)[:, None]).sum(0))
    assert count.item() == 5


def test_foreach_without_state_or_output(run):
    squares, state = run(lambda x: wf.foreach(lambda x, _: (x * x, ()), x, ()), X)
    near(squares, X.numpy() ** 2)
    assert state == ()
    outputs, state = run(lambda x: wf.foreach(lambda x, s: ((), s + x), x, wf.zeros(3)), X)
    assert outputs == ()
    near(state, X.numpy().sum(0))


def test_states_that_change_places(run):
    outputs, (a, b) = run(lambda x: wf.foreach(lambda x, s: (s[0], (s[1], x)), x, (S, S * 2)), X)
    near(outputs[2:], X[:3])
    near(a, X[3])
    near(b, X[4])


def test_what_lies_elsewhere_and_otherwise(run):
    """Captured arrays; data and arrays that are not row-major memory."""
    table = W.T
    x = wf.tensor(RNG.normal(size=(3, 5)).astype("float32")).T
    outputs, state = run(lambda x: wf.foreach(lambda x, s: (x @ table + 1, s + x[::-1]), x, S[::-1]), x)
    near(outputs, x.numpy() @ table.numpy() + 1)
    near(state, S.numpy()[::-1] + x.numpy()[:, ::-1].sum(0))


def test_foreach_in_foreach(run):
    def outer(row, total):
        prefix, last = wf.foreach(lambda v, s: (s + v * total, s + v), row, row[0] * 0)
        return prefix, total + last

    def loss(x):
        prefix, total = wf.foreach(outer, x, x[0, 0] * 0 + 1)
        return (prefix * prefix).sum() + total

    total, want = 1.0, 0.0
    for row in X.numpy():
        s = 0.0
        for v in row:
            want += (s + v * total) ** 2
            s += v
        total += s
    near(run(loss, X), want + total, 1e-4)
    slope = run(wf.grad(loss), X.astype("float64"))
    near(slope, differences(loss, X.astype("float64")), 1e-4)


def test_cond_in_foreach(run):
    def step(x, s):
        y = wf.cond(x.sum() > 0, lambda a: F.tanh(a) + s, lambda a: a * s * 2, x)
        return y, s + y

    def loss(x):
        outputs, state = wf.foreach(step, x, x[0] * 0.5)
        return (outputs * state).sum()

    s, outputs = X.numpy()[0] * 0.5, []
    for x in X.numpy():
        y = np.tanh(x) + s if x.sum() > 0 else x * s * 2
        s = s + y
        outputs.append(y)
    near(run(loss, X), (np.stack(outputs) * s).sum(), 1e-4)
    near(run(wf.grad(loss), X.astype("float64")), differences(loss, X.astype("float64")), 1e-4)


def test_products_and_images_inside(run):
    """Kernels of oneDNN, with scratch memory and orders of dimensions of their own."""
    images = wf.tensor(RNG.normal(size=(3, 2, 4, 6, 6)).astype("float32"))
    weight = wf.tensor(RNG.normal(size=(4, 4, 3, 3)).astype("float32") / 6)

    def loss(images, weight):
        outputs, state = wf.foreach(
            lambda x, s: (F.softmax(x + s, axis=1), F.relu(F.conv2d(x + s, weight, padding=1))),
            images,
            wf.zeros((2, 4, 6, 6)),
        )
        return (outputs * outputs).sum() + state.sum()

    def plain(images, weight):
        s, total = wf.zeros((2, 4, 6, 6)), 0
        for x in F.unstack(images):
            total = total + (F.softmax(x + s, axis=1) ** 2).sum()
            s = F.relu(F.conv2d(x + s, weight, padding=1))
        return total + s.sum()

    near(run(loss, images, weight), plain(images, weight), 1e-4)
    for a, b in zip(
        run(wf.grad(loss, argnums=(0, 1)), images, weight),
        wf.grad(plain, argnums=(0, 1))(images, weight),
        strict=True,
    ):
        near(a, b, 1e-3)


def test_large_slices_are_split_among_the_team(run):
    x = wf.tensor(RNG.normal(size=(3, 1 << 18)).astype("float32"))
    outputs, state = run(lambda x: wf.foreach(lambda x, s: (F.exp(x) + s, s + 1), x, x[0] * 0), x)
    near(outputs, np.exp(x.numpy()) + np.arange(3)[:, None], 1e-4)
    near(state[:3], [3, 3, 3])


# cond


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(run, sign):
    def f(x):
        return wf.cond(x.sum() * sign > 0, lambda a: (a * 2, a.sum()), lambda a: (a + W[0], a.max()), x)

    x = X[0] * 0 + 1
    first, second = run(f, x)
    want = (x * 2, x.sum()) if sign > 0 else (x + W[0], x.max())
    near(first, want[0])
    near(second, want[1])
    near(
        run(wf.grad(lambda x: f(x)[0].sum() + f(x)[1]), x),
        wf.grad(lambda x: ((x * 2).sum() + x.sum()) if sign > 0 else ((x + W[0]).sum() + x.max()))(x),
    )


def test_cond_by_a_python_boolean(run):
    for flag in (True, False):
        near(
            run(lambda x, flag=flag: wf.cond(flag, lambda a: a + 1, lambda a: a - 1, x), X),
            X + (1 if flag else -1),
        )


def test_cond_gradient_of_what_branches_find(run):
    def f(w):
        return wf.cond(X.sum() > 1e9, lambda: w * 2, lambda: w * w).sum()

    near(run(wf.grad(f), W), 2 * W.numpy())


def test_cond_of_views_and_operands_given_back(run):
    near(run(lambda x: wf.cond(x.sum() > 1e9, lambda a: a, lambda a: a.T.T, x), X), X)


# while_loop


def collatz(n, steps):
    return wf.cond((n % 2).astype("bool"), lambda n: 3 * n + 1, lambda n: n // 2, n), steps + 1


def add_in_place(x):
    x += 1
    return x


GIVEN_BACK = {
    "the operand": lambda x, w: wf.cond(x.sum() > 0, lambda x: x, lambda x: -x, x),
    "a view of it": lambda x, w: wf.cond(x.sum() > 0, lambda x: x[::-1], lambda x: -x, x),
    "what it finds": lambda x, w: wf.cond(x.sum() > 0, lambda: w, lambda: -w),
    "an operand that it writes": lambda x, w: wf.cond(x.sum() > 0, add_in_place, lambda x: -x, x),
    "a state, after no run": lambda x, w: wf.while_loop(lambda x: x.sum() < 0, lambda x: x * 2, x),
    "a state": lambda x, w: wf.while_loop(lambda x, k: k < 2, lambda x, k: (x, k + 1), x, wf.tensor(0))[0],
    "a state that it writes": lambda x, w: wf.while_loop(lambda x: x.sum() < 20, add_in_place, x),
    "a state of foreach": lambda x, w: wf.foreach(lambda s, x: (s * 2, x), w, x)[1],
    "a state of foreach that it writes": lambda x, w: wf.foreach(lambda s, x: (s, add_in_place(x)), w, x)[1],
}


@pytest.mark.parametrize("name", GIVEN_BACK)
def test_results_are_new_arrays(run, name):
    """Also where a function gives an array that was there before: a write to the result changes no other array."""

    def f(x, w):
        y = GIVEN_BACK[name](x, w)
        y += 100.0
        return y

    x, w = wf.tensor([1.0, 2.0, 3.0]), wf.tensor([4.0, 5.0, 6.0])
    plain_x, plain_w = wf.tensor([1.0, 2.0, 3.0]), wf.tensor([4.0, 5.0, 6.0])
    y = run(f, x, w)
    for _ in range(2 if run.__name__ == "traced" else 1):
        expected = GIVEN_BACK[name](plain_x, plain_w) + 100.0
    assert not wf.shares_memory(y, x)
    assert not wf.shares_memory(y, w)
    near(y, expected)
    near(x, plain_x)
    near(w, plain_w)


def test_empty_results_inside_of_no_grad_have_no_history():
    x = wf.zeros((0, 3))
    gm = wf.GradManager().attach([x])
    with gm, wf.no_grad():
        y = wf.cond(wf.tensor(True), lambda x: x, lambda x: x * 2, x)
    assert not _core.is_tracked(y)


def test_results_do_not_share_memory_with_each_other(run):
    def f(x):
        a, b = wf.cond(x.sum() > 0, lambda x: (y := x * 2, y), lambda x: (x, -x), x)
        a += 1
        return a, b

    a, b = run(f, wf.tensor([1.0, 2.0]))
    near(a, [3.0, 5.0])
    near(b, [2.0, 4.0])


def test_while_loop(run):
    n, steps = run(lambda n: wf.while_loop(lambda n, _: n != 1, collatz, n, wf.tensor(0)), wf.tensor(27))
    assert (n.item(), steps.item()) == (1, 111)


def test_one_state_is_not_in_a_tuple(run):
    assert run(lambda x: wf.while_loop(lambda x: x < 100, lambda x: x * 2, x), wf.tensor(3.0)).item() == 192


@pytest.mark.parametrize("limit", [0, 1, 3, 50])
def test_while_loop_with_a_limit(run, limit):
    def f(x):
        return wf.while_loop(
            lambda x, k: x.sum() < 40, lambda x, k: (x * W2, k + 1), x, 0, max_iterations=limit
        )

    W2 = wf.tensor([1.5, 2.0, 1.25])
    x, k = run(f, wf.ones(3))
    want, count = np.ones(3, "float32"), 0
    while want.sum() < 40 and count < limit:
        want, count = want * W2.numpy(), count + 1
    near(x, want)
    assert k.item() == count


@pytest.mark.parametrize("limit", [0, 2, 20])
def test_while_loop_gradient(run, limit):
    def loss(x, w):
        y = wf.while_loop(lambda y: y.sum() < 40, lambda y: F.tanh(y) + y * w, x, max_iterations=limit)
        return (y * y).sum()

    x, w = wf.tensor([1.0, 2.0, 0.5], dtype="float64"), wf.tensor([1.2, 1.1, 1.3], dtype="float64")
    dx, dw = run(wf.grad(loss, argnums=(0, 1)), x, w)
    near(dx, differences(lambda x: loss(x, w), x), 1e-5)
    near(dw, differences(lambda w: loss(x, w), w), 1e-5)


def test_while_loop_gradient_without_a_limit():
    def loss(x):
        return wf.while_loop(lambda y: y.sum() < 40, lambda y: y * 2, x).sum()

    assert wf.grad(loss)(wf.ones(3)).numpy().tolist() == [16, 16, 16]
    with pytest.raises(ValueError, match="needs max_iterations"):
        wf.trace(wf.grad(loss))(wf.ones(3))


# Inside of greater things.


def test_a_whole_training_step_in_a_trace():
    w, plain = W.copy(), W.copy()

    def step(w, x):
        gm = wf.GradManager().attach([w])
        with gm:
            outputs, _ = wf.foreach(lambda x, s: rnn(x, s, w), x, wf.zeros(3))
            loss = (outputs * outputs).mean()
            gm.backward(loss)
        w -= 0.1 * w.grad
        w.grad = None
        return loss

    traced = wf.trace(step, strict=True)
    for _ in range(4):
        near(traced(w, X), step(plain, X))
    near(w, plain)


def test_one_node_in_a_graph():
    def f(x, s):
        return wf.foreach(lambda x, s: (x * s, s + 1), x, s)[0]

    graph = graph_of(f, [TensorType((5, 3), wf.float32), TensorType((3,), wf.float32)])
    (node,) = [n for n in graph.nodes if n.op is not None]
    assert isinstance(node.op, ForeachLoop)
    (found,) = interpret(graph, [X.numpy(), S.numpy()])
    near(f(X, S), found)


def test_the_length_is_no_part_of_the_body():
    bodies = set()
    for length in (2, 3):
        x, s = input_value(TensorType((length, 3), wf.float32)), input_value(TensorType((3,), wf.float32))
        _, state = wf.foreach(lambda x, s: ((), s + x), x, s)
        bodies.add(state.node.op)
    assert len(bodies) == 1


def test_equal_loops_are_planned_once(monkeypatch):
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    call = lambda: wf.foreach(lambda x, s: (x - s, s * 2), X, S)  # noqa: E731
    call()
    before = _core.operator_counters()["planner_calls"]
    call()
    assert _core.operator_counters()["planner_calls"] == before


def test_subgraphs_are_values():
    make = lambda k: Subgraph(graph_of(lambda x: x * k, [TensorType((2,), wf.float32)]))  # noqa: E731
    assert make(2.0) == make(2.0)
    assert hash(make(2.0)) == hash(make(2.0))
    assert make(2.0) != make(2)
    assert make(0.0) != make(-0.0)


def test_layers_see_the_operator_and_what_its_functions_call(monkeypatch):
    names = []

    class Seen(wf.Transformation):
        def emit(self, op, args):
            names.append(op.name)
            return op(*args)

    with Seen():
        wf.foreach(lambda x, s: (F.exp(x), s), X[:2].copy(), ())
    assert [n for n in names if n == "exp"] == ["exp", "exp"]
    names.clear()
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    with Seen():
        wf.foreach(lambda x, s: (F.exp(x), s), X, ())
    assert names == ["exp", "foreach_loop"]


def test_autocast_reaches_into_graphs(run):
    with wf.amp.autocast():
        outputs, _ = run(lambda x: wf.foreach(lambda x, _: (x @ W, ()), x, ()), X)
    assert outputs.dtype is wf.bfloat16


def test_eight_threads_at_once(monkeypatch, in_threads):
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    want = [wf.foreach(rnn, X + k, S)[1].numpy() for k in range(8)]
    found = [None] * 8

    def work(k):
        for _ in range(20):
            found[k] = wf.foreach(rnn, X + k, S)[1].numpy()

    in_threads(work, range(8))
    for a, b in zip(found, want, strict=True):
        near(a, b)


# Errors.


@pytest.fixture(params=["eager", "operator"])
def checked(request, monkeypatch):
    if request.param == "operator":
        monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)


@pytest.mark.usefixtures("checked")
class TestErrors:
    def test_state_changes(self):
        with pytest.raises(
            wf.ShapeError, match=r"foreach: the state was f32\[3\]@[cg]pu:0, and becomes f32\[\]@[cg]pu:0"
        ):
            wf.foreach(lambda x, s: (x, s.sum()), X, S)
        with pytest.raises(
            wf.DTypeError, match=r"while_loop: the state was f32\[3\]@[cg]pu:0, and becomes f64\[3\]"
        ):
            wf.while_loop(lambda s: s.sum() < 1e9, lambda s: s.astype("float64"), wf.ones(3))
        with pytest.raises(TypeError, match=r"foreach: the state was tuple\(\*, \*\), and becomes \*"):
            wf.foreach(lambda x, s: (x, s[0]), X, (S, S))

    def test_predicates(self):
        with pytest.raises(
            wf.DTypeError, match=r"cond: a predicate must be one boolean, got f32\[\]@[cg]pu:0"
        ):
            wf.cond(X.sum(), lambda: X, lambda: X)
        with pytest.raises(
            wf.ShapeError, match=r"cond: a predicate must be one boolean, got bool\[5,3\]@[cg]pu:0"
        ):
            wf.cond(X > 0, lambda: X, lambda: X)
        with pytest.raises(wf.DTypeError, match="while_loop: a predicate must be one boolean"):
            wf.while_loop(lambda x: x, lambda x: x, wf.ones(()))
        with pytest.raises(TypeError, match="cond: a predicate must be one boolean, got str"):
            wf.cond("yes", lambda: X, lambda: X)

    def test_data(self):
        with pytest.raises(wf.ShapeError, match=r"foreach: data needs a first axis: x is f32\[\]@[cg]pu:0"):
            wf.foreach(rnn, X.sum(), S)
        with pytest.raises(wf.ShapeError, match="foreach: lengths of data differ, 5 != 3"):
            wf.foreach(lambda x, s: (x[0], s), (X, W), S)
        with pytest.raises(TypeError, match="foreach: data holds no array"):
            wf.foreach(rnn, (), S)
        with pytest.raises(
            TypeError, match="foreach: takes arrays, numbers, and structures of them, got str"
        ):
            wf.foreach(rnn, X, "zero")

    def test_body(self):
        with pytest.raises(TypeError, match="foreach: body must give a pair"):
            wf.foreach(lambda x, s: x, X, S)
        with pytest.raises(TypeError, match="while_loop: a state must be given"):
            wf.while_loop(lambda: True, lambda: ())
        with pytest.raises(ValueError, match="max_iterations must be at least 0, got -1"):
            wf.while_loop(lambda x: x > 0, lambda x: x, X, max_iterations=-1)

    def test_everything_works_afterwards(self):
        class Broken(Exception):
            pass

        def fails(x, s):
            raise Broken

        with pytest.raises(Broken):
            wf.foreach(fails, X, S)
        assert _core.capture() is None
        near(wf.foreach(rnn, X, S)[0].sum(), sum(rnn_outputs()), 1e-4)


def rnn_outputs():
    s = S
    for x in X:
        y, s = rnn(x, s)
        yield y.sum().item()


def test_branches_that_differ(monkeypatch):
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    pred = X.sum() > 0
    with pytest.raises(
        wf.ShapeError, match=r"cond: then gives f32\[5,3\]@[cg]pu:0, otherwise f32\[3\]@[cg]pu:0"
    ):
        wf.cond(pred, lambda: X * 1, lambda: X[0] * 1)
    with pytest.raises(wf.DTypeError, match="cond: then gives"):
        wf.cond(pred, lambda: X * 1, lambda: X.astype("int32"))
    with pytest.raises(TypeError, match=r"cond: then gives tuple\(\*, \*\), otherwise \*"):
        wf.cond(pred, lambda: (X, X), lambda: X)


def test_later_outputs_that_differ():
    sizes = iter([1, 2])
    with pytest.raises(
        wf.ShapeError, match=r"foreach: an output was f32\[1\]@[cg]pu:0, and is f32\[2\]@[cg]pu:0"
    ):
        wf.foreach(lambda x, s: (wf.ones(next(sizes)), s), X, S)


def test_truth_in_a_graph_is_not_known(monkeypatch):
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    with pytest.raises(TypeError, match="not known before it is computed; use where or cond"):
        wf.foreach(lambda x, s: (x if x.sum() > 0 else s, s), X, S)
    with pytest.raises(TypeError, match="the number of true elements of a value in a graph is not known"):
        wf.foreach(lambda x, s: (x[x > 0], s), X, S)


# Effects of the functions.


def drops(x):
    return F.dropout(x, 0.5, training=True)


def noisy_loop(x):
    """A loop whose number of runs depends on what it draws, and which draws in its condition, too."""

    def body(s, total):
        s = s + wf.random.uniform(0.5, 1.0, shape=3)
        return s, total + drops(x[0])

    return wf.while_loop(
        lambda s, t: s.sum() + wf.random.uniform() < 9, body, x[1] * 0, x[0], max_iterations=9
    )


DRAWING = {
    "foreach": lambda x: wf.foreach(lambda x, s: (drops(x) + drops(s), drops(s + x)), x, S)[0],
    "of arrays": lambda x: wf.foreach(lambda x, s: (F.bernoulli(wf.full(2, 0.5)) + x[0], s), x, ())[0],
    "normal": lambda x: wf.foreach(lambda x, s: (x + wf.random.normal(1, 2, shape=3), s), x, ())[0],
    "unused": lambda x: wf.foreach(lambda x, s: ([drops(x), drops(x)][1], s), x, ())[0],
    "while": noisy_loop,
    "taken": lambda x: wf.cond(x[0, 0] < 9, lambda: drops(drops(x)), lambda: x * 2),
    "not taken": lambda x: wf.cond(x[0, 0] > 9, lambda: drops(x), lambda: x * 2),
    "nothing": lambda x: wf.cond(x[0, 0] > 9, lambda: x, lambda: x * 2),
    "nested": lambda x: wf.foreach(
        lambda x, s: (wf.cond(x[0] > 0, lambda: drops(x), lambda: drops(x * 2)) + drops(x), s), x, ()
    )[0],
    "gradient": wf.grad(lambda x: wf.foreach(lambda x, s: (drops(x) * s, drops(s)), x, S)[0].sum()),
    "gradient of while": wf.grad(lambda x: noisy_loop(x)[1].sum()),
}


def drawn(function, *args):
    """Its results for one seed, and what is drawn next."""
    wf.random.seed(5)
    made = function(*args)
    made = made if isinstance(made, tuple) else (made,)
    return [a.numpy().tolist() for a in (*made, wf.random.uniform(shape=2))]


@pytest.mark.parametrize("name", DRAWING)
def test_random_numbers_inside(name, monkeypatch):
    """The same numbers eagerly, by operators, and traced; whatever comes after them, too."""
    want = drawn(DRAWING[name], X)
    step = wf.trace(DRAWING[name], strict=True)
    assert [drawn(step, X), drawn(step, X), drawn(step, X)] == [want] * 3
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    assert drawn(DRAWING[name], X) == want


def test_an_exception_gives_the_stream_back():
    def fails(x, s):
        drops(x)
        raise ZeroDivisionError

    wf.random.seed(5)
    with pytest.raises(ZeroDivisionError):
        wf.foreach(fails, X, ())
    after = wf.random.get_state()[str(X.device)]
    drops(X)
    assert wf.random.get_state()[str(X.device)] > after


def norm(x, mean, var):
    return F.batch_norm(x[None], mean, var, training=True)


def assigning(x, mean, var):
    def body(x, s):
        mean[1:] = mean[1:] + x[1:]
        mean[[0]] = x[:1]
        return norm(x, mean, var), s + mean

    return wf.foreach(body, x, wf.zeros(3))


def with_memory(x, mean, var):
    def body(x, s):
        room = wf.zeros(3)
        room[0] += x[0]
        room += s
        return room, room[::-1]

    mean[...] = 5
    return wf.foreach(body, x, mean)


def updating(x, mean, var):
    def body(x, s):
        nonlocal var
        var += x
        norm(x, mean, var)
        return var * 2, s

    return wf.foreach(body, x, ())[0], var


WRITING = {
    "statistics": lambda x, m, v: wf.foreach(lambda x, s: (norm(x, m, v), s), x, ()),
    "assigned": assigning,
    "own memory": with_memory,
    "in place": updating,
    "while": lambda x, m, v: wf.while_loop(
        lambda k: k < 4, lambda k: k + 1 + 0 * norm(x[0] * k, m, v).astype("int64")[0, 0], wf.tensor(0)
    ),
    "branch": lambda x, m, v: wf.cond(x[0, 0] < 9, lambda: norm(x[0], m, v), lambda: x[:1] * m),
    "other branch": lambda x, m, v: wf.cond(x[0, 0] > 9, lambda: norm(x[0], m, v), lambda: x[:1] * m),
    "nested": lambda x, m, v: wf.foreach(
        lambda x, s: (wf.cond(x[0] > 0, lambda: norm(x, m, v), lambda: x[None]), s + m), x, wf.zeros(3)
    ),
    "gradient": lambda x, m, v: wf.grad(
        lambda x: wf.foreach(lambda x, s: (norm(x, m, v), s), x, ())[0].sum()
    )(x),
}


@pytest.mark.parametrize("name", WRITING)
def test_writes_inside(name, monkeypatch):
    """What the functions write has the same content afterwards, however they run."""

    def ran(function):
        mean, var = wf.zeros(3), wf.ones(3)
        found = []
        for _ in range(2):
            made = function(X, mean, var)
            found.append(flatten(made)[0])
        return [a.numpy() for a in (*found[0], *found[1], mean, var)]

    want = ran(WRITING[name])
    for a, b in zip(ran(wf.trace(WRITING[name], strict=True)), want, strict=True):
        near(a, b)
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    for a, b in zip(ran(WRITING[name]), want, strict=True):
        near(a, b)


def test_states_and_aliases_that_bodies_write(monkeypatch):
    """As on arrays: the state that a loop is given, and an array that is read through a view of it."""

    def statistics(x, mean, var):
        wf.foreach(lambda x, s: (norm(x, *s), s), x, (mean, var))
        return mean, var

    def aliases(x, mean, var):
        part = mean[1:]

        def body(x, s):
            mean[...] = x
            return part + 1, s

        return (*wf.foreach(body, x, ()), mean, part)

    for function in (statistics, aliases):
        wanted = [y.numpy() for y in flatten(function(X, wf.zeros(3), wf.ones(3)))[0]]
        with monkeypatch.context() as patch:
            patch.setattr(control_flow, "in_graph", lambda leaves: True)
            for a, b in zip(flatten(function(X, wf.zeros(3), wf.ones(3)))[0], wanted, strict=True):
                near(a, b)


def test_writes_that_graphs_cannot_hold(monkeypatch):
    monkeypatch.setattr(control_flow, "in_graph", lambda leaves: True)
    mean, var = wf.zeros(3), wf.ones(3)
    with pytest.raises(NotImplementedError, match="cannot be recorded: the condition writes an array"):
        wf.while_loop(lambda x: norm(x, mean, var).sum() > 0, lambda x: x, S)

    def part_first(x, s):
        found = part + 1
        mean[...] = x
        return found, s

    def another_state(x, s):
        s += x
        return x, s * 2

    def two_names(x, s):
        s += x
        return x + mean, s

    part = mean[1:]
    with pytest.raises(GraphError, match="shares memory with another one, used before it"):
        wf.foreach(part_first, X, ())
    with pytest.raises(GraphError, match="writes the state that it is given, and gives another array back"):
        wf.foreach(another_state, X, mean)
    with pytest.raises(GraphError, match="whose memory it uses by another name"):
        wf.foreach(two_names, X, mean)
    with pytest.raises(GraphError, match="which becomes another state, too"):
        wf.while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x.__iadd__(1), x), mean, var)
    assert not mean.numpy().any()


def test_recomputation_draws_the_same(run):
    def loss(x):
        out = wf.foreach(lambda x, s: (wf.recompute(lambda t: drops(t) * t, x), s), x, ())[0]
        return out.sum()

    wf.random.seed(4)
    kept = run(loss, X)
    wf.random.seed(4)
    slope = run(wf.grad(loss), X)
    near((slope * X).sum() / 2, kept, 1e-4)


def test_gradients_of_ones_own_inside(run):
    """Functions with a gradient that is not forward's, several outputs, and one of two arguments without a gradient."""

    class Own(wf.Function):
        def forward(self, x, w):
            self.x = x
            return x * w, x + 1

        def backward(self, dy, dz):
            return dy * self.x * 3 + dz, None

    w = wf.ones(3)

    def loss(x):
        def body(row, s):
            y, z = Own()(row, w)
            return y * z, s

        return wf.foreach(body, x, ())[0].sum()

    x = X.numpy()
    near(run(wf.grad(loss), X), 3 * x * (x + 1) + x)
    near(
        run(wf.grad(lambda x: wf.grad(loss)(x).sum()), X), 9 * x + 3, 1e-4
    )  # y and z have gradients of their own

    class Wrong(Own):
        def backward(self, dy, dz):
            return dy

    with pytest.raises(ValueError, match="backward gave 1 gradients for 2 inputs"):
        run(wf.grad(lambda x: wf.foreach(lambda r, s: (Wrong()(r, w)[0], s), x, ())[0].sum()), X)


def test_gradients_taken_inside(run):
    """wf.grad in a body, and a gradient through that."""

    def slopes(x):
        return wf.foreach(lambda x, s: (wf.grad(lambda t: (t**3 * S).sum())(x), s), x, ())[0]

    near(run(slopes, X), 3 * X.numpy() ** 2 * S.numpy(), 1e-4)
    near(run(wf.grad(lambda x: slopes(x).sum()), X), 6 * X.numpy() * S.numpy(), 1e-4)
    picked = run(lambda x: wf.cond(x.sum() > -1e9, wf.grad(lambda t: (t * t).sum()), lambda t: t, x), X)
    near(picked, 2 * X.numpy())


def test_managers_inside_of_graphs_set_no_gradients():
    w = wf.ones(3)
    gm = wf.GradManager().attach([w])

    def body(x, s):
        with gm:
            gm.backward((x * w).sum())
        return x, s

    with pytest.raises(NotImplementedError, match="sets the grad of an array"):
        wf.trace(lambda x: wf.foreach(body, x, ())[0], strict=True)(X)
    assert w.grad is None
    wf.foreach(body, X, ())  # is Python's own loop
    near(w.grad, X.numpy().sum(axis=0))


# Operators by themselves.


def types(*arrays):
    return [TensorType(a.shape, wf.float32) for a in arrays]


def subgraph(function, *shapes):
    return Subgraph(graph_of(function, [TensorType(shape, wf.float32) for shape in shapes]))


@pytest.mark.processor("its graphs are planned for cpu:0")
def test_backwards_and_counted():
    body = subgraph(lambda x, s: (s + x, s), (3,), (3,))
    for reverse in (False, True):
        op = ForeachLoop(body=body, sequences=1, states=1, reverse=reverse, counted=True)
        for count in (0, 2, 5, 9):
            state, items = op(wf.tensor(count), X, S)
            want = op.reference(np.asarray(count), X.numpy(), S.numpy())
            near(state, want[0])
            near(items, want[1])


@pytest.mark.processor("its graphs are planned for cpu:0")
def test_references_of_the_others():
    then, otherwise = subgraph(lambda x: x * 2, (3,)), subgraph(lambda x: x - 1, (3,))
    branch = CondBranch(then=then, otherwise=otherwise)
    for flag in (True, False):
        near(branch(wf.tensor(flag), S)[0], branch.reference(np.asarray(flag), S.numpy())[0])
    loop = WhileLoop(
        condition=subgraph(lambda x: x.sum() < 50, (3,)),
        body=subgraph(lambda x: x * 2, (3,)),
        states=1,
        limit=4,
    )
    near(loop(wf.ones(3))[0], loop.reference(np.ones(3, "float32"))[0])


@pytest.mark.processor("its graphs are planned for cpu:0")
def test_wrong_inputs_of_the_operators():
    op = ForeachLoop(body=subgraph(lambda x, s: (s + x, s), (3,), (3,)), sequences=1, states=1)
    with pytest.raises(
        wf.ShapeError, match=r"foreach_loop: f32\[3\]@[cg]pu:0 was expected: x is f32\[4\]@[cg]pu:0"
    ):
        op(wf.ones((2, 4)), S)
    with pytest.raises(wf.DTypeError, match="foreach_loop: "):
        op(X, S.astype("float64"))
    with pytest.raises(TypeError, match="1 inputs for a graph of 2"):
        op(X)


CELLS = {
    "product": lambda x, h, w, b: wf.tanh(x + h @ w + b),
    "used twice": lambda x, h, w, b: wf.tanh(x @ w + h @ w + b),
    "transposed": lambda x, h, w, b: wf.tanh(x + h @ w.T + b),
    "on the other side": lambda x, h, w, b: wf.tanh(x + (w @ h.T).T + b),
    "linear": lambda x, h, w, b: wf.tanh(x + F.linear(h, w, b)),
    "of itself": lambda x, h, w, b: wf.tanh(x + h @ (w @ w) + b * b),
    "pointwise, too": lambda x, h, w, b: wf.tanh(x + h * w[0] + b + h @ w),
    "in halves": lambda x, h, w, b: wf.tanh(x + wf.concat([h @ w[:, :4], h @ w[:, 4:]], axis=1)),
    "converted": lambda x, h, w, b: wf.tanh(
        x + (h.astype("float64") @ w.astype("float64")).astype("float32")
    ),
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("n", [2, 40])
@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_weights_in_loops(name, n):
    """Products that are done for all runs at once (of few rows) or added up (of many); loops that end early, too."""
    cell, rng = CELLS[name], np.random.default_rng(1)
    x, h, w, b = (
        wf.tensor(rng.standard_normal(shape).astype("float32") * 0.3)
        for shape in ((7, n, 8), (n, 8), (8, 8), (8,))
    )

    def by_hand(x, h, w, b):
        outputs = []
        for row in x:
            h = cell(row, h, w, b)
            outputs.append(h)
        return wf.stack(outputs), h

    def loop(x, h, w, b):
        return wf.foreach(lambda x, h: (cell(x, h, w, b),) * 2, x, h)

    def first_five(x, h, w, b):
        def body(t, h, total):
            h = cell(x[0], h, w, b)
            return t + 1, h, total + h

        _, last, total = wf.while_loop(
            lambda t, *_: t < 5, body, wf.tensor(0), h, wf.zeros((n, 8)), max_iterations=9
        )
        return total, last

    def loss(f, *operands):
        y, last = f(*operands)
        return (y * y).sum() + (last * last * last).sum()

    def second(f):
        return wf.grad(lambda w: (wf.grad(lambda x: loss(f, x, h, w, b))(x) ** 2).sum())

    def compare(mine, want):
        for a, c in zip(mine, want, strict=True):
            scale = max(1, np.abs(c.numpy()).max())
            np.testing.assert_allclose(a.numpy() / scale, c.numpy() / scale, atol=3e-5)

    for written, eager in ((loop, by_hand), (first_five, first_five)):
        every = [
            wf.value_and_grad(lambda *operands, f=f: loss(f, *operands), argnums=(0, 1, 2, 3))
            for f in (written, eager)
        ]
        traced = wf.trace(every[0])
        traced(x, h, w, b)
        (value, slopes), (want_value, want) = traced(x, h, w, b), every[1](x, h, w, b)
        compare([value, *slopes], [want_value, *want])
    compare([wf.trace(second(loop))(w)], [second(by_hand)(w)])


def test_arrays_of_one_element_with_other_strides():
    @wf.trace
    def powers(x, start):
        return wf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h * x), wf.zeros(()), start)[1]

    column = wf.tensor([[2.0, 5.0], [3.0, 5.0]])[:, :1]
    start = wf.tensor([4.0])
    for x in (column[0], column[1], wf.tensor([2.0])):
        assert powers(x, start).item() == 4 * x.item() ** 3
