"""vmap, vjp, jvp, linearize, jacobian, hessian: what they give, and that they nest in any order."""

import copy
import functools
import gc
import itertools
import weakref

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft import _core
from weft.base.errors import DTypeError, GraphError, ShapeError


def near(got, want, bound=1e-5):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), bound, bound)


def rows(*shape, seed=0, dtype="float32"):
    return wf.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def cubes(x):
    return (x * x * x).sum()


@pytest.fixture
def x():
    return rows(4, 3)


# vmap.


def test_axes(x):
    y = rows(3, 4, seed=1)
    near(wf.vmap(lambda a, b: a * b, in_axes=(0, 1))(x, y), x.numpy() * y.numpy().T)
    near(wf.vmap(lambda a, b: a * b, in_axes=(0, -1), out_axes=1)(x, y), (x.numpy() * y.numpy().T).T)
    near(wf.vmap(lambda a, b: a + b, in_axes=(0, None))(x, y[:, 0]), x.numpy() + y.numpy()[:, 0])
    near(wf.vmap(lambda a, *, b: a + b)(x, b=x), 2 * x.numpy())
    both = wf.vmap(lambda d: {"sum": d["a"] + d["b"][0]}, in_axes=({"a": 0, "b": None},))
    near(both({"a": x, "b": [y[:, 0]]})["sum"], x.numpy() + y.numpy()[:, 0])


def test_results_that_are_the_same_for_all(x):
    w = rows(3, seed=2)
    a, b = wf.vmap(lambda a: (a, w), out_axes=(0, None))(x)
    assert a.shape == (4, 3)
    assert b.shape == (3,)
    a, b = wf.vmap(lambda a: (a, w), out_axes=(1, 0))(x)
    assert a.shape == (3, 4)
    assert b.shape == (4, 3)
    near(wf.vmap(lambda a: 1.5)(x), np.full(4, 1.5))
    assert not wf.shares_memory(wf.vmap(lambda a: a)(x), x)
    assert wf.vmap(lambda a: (a, None))(x)[1] is None


def test_axis_size_and_no_examples():
    assert wf.vmap(lambda: wf.zeros(2), axis_size=3)().shape == (3, 2)
    assert wf.vmap(lambda a: a.sum())(wf.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "in_axes has 2 entries for 1", lambda x: wf.vmap(cubes, in_axes=(0, 0))(x)),
        (ValueError, "there is an array", lambda x: wf.vmap(cubes, in_axes=((0,),))(x)),
        (IndexError, "axis 2 is out of range", lambda x: wf.vmap(cubes, in_axes=2)(x)),
        (ShapeError, "sizes differ, 4 != 3", lambda x: wf.vmap(F.add, in_axes=(0, 1))(x, x)),
        (ValueError, "axis_size is not given", lambda x: wf.vmap(cubes, in_axes=None)(x)),
        (ValueError, "out_axes is None", lambda x: wf.vmap(cubes, out_axes=None)(x)),
        (IndexError, "out_axes 1 is out of range", lambda x: wf.vmap(cubes, out_axes=1)(x)),
        (ValueError, "randomness must be", lambda x: wf.vmap(cubes, randomness="other")),
        (TypeError, "takes a function", lambda x: wf.vmap(3)),
        (TypeError, "is not known before it is computed", lambda x: wf.vmap(lambda a: a * float(a.sum()))(x)),
        (TypeError, "must give arrays", lambda x: wf.vmap(lambda a: "text")(x)),
    ],
)
def test_errors_of_vmap(x, error, words, call):
    with pytest.raises(error, match=words):
        call(x)


def test_it_is_planned_once(x):
    calls = []

    def f(a, n):
        calls.append(n)
        return a * n

    many = wf.vmap(f, in_axes=(0, None))
    many(x, 2)
    many(x, 2)
    before = _core.operator_counters()["planner_calls"]
    near(many(rows(4, 3, seed=5), 2), 2 * rows(4, 3, seed=5).numpy())
    wf.vmap(lambda a: a * 2)(x)  # another function, which records the same graph
    assert calls == [2, 2, 2]  # no cache: each call runs it
    assert _core.operator_counters()["planner_calls"] == before
    traced = wf.trace(many)
    near(traced(x, 2), 2 * x.numpy())
    near(traced(x, 2), 2 * x.numpy())
    assert len(calls) == 4


def test_floats_of_a_call_are_inputs(x):
    many = wf.vmap(lambda a, n: a * n + (1 if n > 0 else 2), in_axes=(0, None))
    near(many(x, 2.0), 2 * x.numpy() + 1)
    before = _core.operator_counters()["planner_calls"]
    near(many(x, 3.5), 3.5 * x.numpy() + 1)
    assert _core.operator_counters()["planner_calls"] == before
    near(many(x, -1.0), -x.numpy() + 2)
    assert wf.linearize(lambda a: (a * 2, 1.5), x[0], has_aux=True)[2] == 1.5
    traced = wf.trace(lambda a, n: many(a, n * 2))
    near(traced(x, 2.0), 4 * x.numpy() + 1)
    near(traced(x, 3.0), 6 * x.numpy() + 1)


class Scale:
    """Functions that read self.k in ways that no guard sees."""

    def __init__(self):
        self.k = 1.0

    def __call__(self, x):
        return x * self.k

    @property
    def doubled(self):
        return 2 * self.k


def readers(scale, held, named):
    """Functions of x that read what may change, in different ways."""
    yield lambda x: functools.reduce(lambda a, w: a * w, held, x)
    yield lambda x: x * sum(held)
    yield lambda x: x * named.get("w")
    yield lambda x: functools.reduce(lambda a, w: a * w, named.values(), x)
    yield lambda x: (lambda w: x * w)(*held)
    yield scale
    yield lambda x: x * scale.doubled
    yield lambda x: x * getattr(scale, "k")  # noqa: B009


TRANSFORMATIONS = {
    "vmap": lambda f: wf.vmap(f),
    "vjp": lambda f: lambda x: wf.vjp(f, x)[0],
    "linearize": lambda f: lambda x: wf.linearize(f, x)[0],
    "jvp": lambda f: lambda x: wf.jvp(f, (x,), (x,))[0],
    "jacobian": lambda f: lambda x: wf.jacobian(f)(x).sum(axis=1),
}


@pytest.mark.parametrize("way", TRANSFORMATIONS)
def test_each_call_sees_what_the_function_reads_now(way):
    scale, held, named = Scale(), [wf.ones(())], {"w": wf.ones(())}
    x = wf.ones(2)
    runs = [(f, TRANSFORMATIONS[way](f)) for f in readers(scale, held, named)]
    for value in (1.0, 5.0, 7.0):
        scale.k = value
        held[0] = named["w"] = wf.tensor(value)
        for f, run in runs:
            near(run(x), f(x))


def test_a_written_array_is_not_read_as_it_was(x):
    last = wf.zeros(3)

    def f(a):
        last[...] = a
        return a * last.sum().item()

    def g(a):
        made = wf.zeros(3)
        made[0] = a[0]
        return a * float(made.numpy()[0])

    for function in (f, g):
        with pytest.raises((GraphError, TypeError)):
            wf.jvp(function, (x[0],), (x[1],))
    h = lambda a: a * float(last.numpy()[0])  # noqa: E731
    last[...] = 2.0
    near(wf.jvp(h, (x[0],), (x[1],))[0], 2 * x[0].numpy())


def test_residuals_are_of_the_values_that_were_read(x):
    def f(a):
        y = (a * a).sum()
        a[...] = 0.0
        return y

    at = x[0].copy()
    pull = wf.vjp(f, at)[1]
    near(pull(wf.tensor(1.0))[0], 2 * x[0].numpy())
    near(at, np.zeros(3))

    def overwritten(a):
        b = a * 1
        _, pull = wf.vjp(lambda b: (b * b).sum(), b)
        b[...] = 0.0
        return pull(wf.tensor(1.0))[0]

    with pytest.raises(ValueError, match="was overwritten"):
        wf.vmap(overwritten)(x)


def test_what_the_function_finds_is_looked_at_anew(x):
    scale, w = 2.0, wf.tensor([1.0, 2.0, 3.0])
    many = wf.vmap(lambda a: a * w * scale)
    near(many(x), 2 * x.numpy() * [1, 2, 3])
    scale = 3.0
    w[...] = 1.0
    near(many(x), 3 * x.numpy())


def test_an_argument_that_the_function_finds_too():
    w = wf.tensor([1.0, 2.0])
    f = lambda a: (a * w).sum()  # noqa: E731
    for _ in range(2):
        y, dy = wf.jvp(f, (w,), (wf.ones(2),))
        assert (y.item(), dy.item()) == (5.0, 3.0)


def test_a_module_and_its_gradients(x):
    net = M.Linear(3, 2)
    near(wf.vmap(net)(x), net(x))
    gm = wf.GradManager().attach(net.parameters())
    grads = []
    for run in (lambda: (net(x) ** 2).sum(), lambda: wf.vmap(lambda a: (net(a) ** 2).sum())(x).sum()):
        with gm:
            gm.backward(run())
        grads.append(net.weight.grad.numpy().copy())
        net.weight.grad = None
    near(*grads)


# Random numbers.


def draws(f, x, randomness, **axes):
    wf.random.seed(3)
    return np.asarray(wf.vmap(f, randomness=randomness, **axes)(x))


RANDOM = {
    "uniform": lambda a: wf.random.uniform(shape=(5,)),
    "normal": lambda a: a.sum() * 0 + wf.random.normal(shape=(5,)),
    "randint": lambda a: wf.random.randint(0, 100, (5,)),
    "permutation": lambda a: wf.random.permutation(8),
    "permutation of": lambda a: wf.random.permutation(a),
    "dropout": lambda a: F.dropout(wf.ones(32), 0.5),
    "dropout of": lambda a: F.dropout(a * 0 + 1, 0.5),
    "bernoulli": lambda a: F.bernoulli(wf.full(32, 0.5)),
    "bernoulli of": lambda a: F.bernoulli(a * 0 + 0.5),
    "in a loop": lambda a: wf.foreach(lambda s, t: (t, t + wf.random.uniform()), a[:4], wf.tensor(0.0))[0],
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers(name):
    """By default every example draws others, in the order of the program; "same": all draw the same."""
    x = rows(6, 32)
    if name == "permutation of":
        x = wf.tensor(np.tile(np.arange(32, dtype="float32"), (6, 1)))
    different = draws(RANDOM[name], x, "different")
    assert all(np.any(different[j] != different[k]) for j, k in itertools.combinations(range(6), 2))
    np.testing.assert_array_equal(draws(RANDOM[name], x, "different"), different)
    same = draws(RANDOM[name], x, "same")
    np.testing.assert_array_equal(same, np.broadcast_to(same[0], same.shape))
    if name.startswith("permutation"):
        np.testing.assert_array_equal(np.sort(different), np.sort(same))
    if name != "in a loop":
        with pytest.raises(NotImplementedError, match="randomness='error'"):
            wf.vmap(RANDOM[name], randomness="error")(x)


def test_gradients_meet_the_numbers_that_were_drawn():
    x = wf.ones((5, 40))
    wf.random.seed(1)
    y = wf.vmap(lambda a: F.dropout(a, 0.5))(x).numpy()
    wf.random.seed(1)
    near(wf.grad(lambda x: wf.vmap(lambda a: F.dropout(a, 0.5).sum())(x).sum())(x), y)
    wf.random.seed(1)
    near(wf.vmap(wf.grad(lambda a: F.dropout(a, 0.5).sum()))(x), y)


# Derivatives.


def test_vjp(x):
    w = rows(3, seed=1)
    y, pull = wf.vjp(lambda a, b: {"p": a * b, "s": a.sum()}, x, w)
    near(y["p"], x.numpy() * w.numpy())
    for _ in range(2):
        da, db = pull({"p": wf.ones((4, 3)), "s": 2.0})
        near(da, np.broadcast_to(w.numpy(), (4, 3)) + 2)
        near(db, x.numpy().sum(0))


def test_vjp_of_integers_and_of_what_is_not_reached(x):
    _, pull = wf.vjp(lambda a, b, k: a.sum() * k, x, x, wf.tensor(3))
    da, db, dk = pull(wf.tensor(1.0))
    near(da, np.full((4, 3), 3.0))
    near(db, np.zeros((4, 3)))
    assert dk is None


def test_has_aux(x):
    _y, pull, aux = wf.vjp(lambda a: (cubes(a), {"n": a.shape[0], "double": 2 * a}), x, has_aux=True)
    assert aux["n"] == 4
    near(aux["double"], 2 * x.numpy())
    near(pull(wf.tensor(1.0))[0], 3 * x.numpy() ** 2)
    assert wf.jvp(lambda a: (a, a.shape), (x,), (x,), has_aux=True)[2] == (4, 3)
    slope, double = wf.jacobian(lambda a: (cubes(a), 2 * a), has_aux=True)(x)
    near(slope, 3 * x.numpy() ** 2)
    near(double, 2 * x.numpy())
    near(wf.hessian(lambda a: (cubes(a), 2 * a), has_aux=True)(x)[1], 2 * x.numpy())


def test_what_pull_needs_must_not_be_overwritten(x):
    w = wf.tensor([1.0, 2.0, 3.0])
    for written in (x, w):
        _, pull = wf.vjp(lambda a: a * a * w, x)
        written += 1.0
        with pytest.raises(ValueError, match="was overwritten"):
            pull(wf.ones((4, 3)))


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (TypeError, "must be arrays", lambda x: wf.vjp(cubes, "text")),
        (TypeError, "expected the structure", lambda x: wf.vjp(cubes, x)[1]((x, x))),
        (ShapeError, "shapes differ", lambda x: wf.vjp(cubes, x)[1](x)),
        (DTypeError, "dtypes differ", lambda x: wf.vjp(cubes, x)[1](wf.tensor(1))),
        (TypeError, "must be given as a tuple", lambda x: wf.jvp(cubes, x, x)),
        (TypeError, "tangents", lambda x: wf.jvp(cubes, (x,), (x, x))),
        (ShapeError, "shapes differ", lambda x: wf.jvp(cubes, (x,), (wf.ones(3),))),
        (ValueError, "mode must be", lambda x: wf.jacobian(cubes, mode="sideways")),
        (ValueError, "argnums", lambda x: wf.jacobian(cubes, argnums=1)(x)),
        (ValueError, "twice", lambda x: wf.jacobian(F.add, argnums=(0, -2))(x, x)),
        (DTypeError, "from floats", lambda x: wf.jacobian(lambda a: a * 2)(wf.tensor([1, 2]))),
        (TypeError, "must give a pair", lambda x: wf.vjp(cubes, x, has_aux=True)),
    ],
)
def test_errors_of_derivatives(x, error, words, call):
    with pytest.raises(error, match=words):
        call(x)


def test_jvp_and_linearize(x):
    t = rows(4, 3, seed=7)
    y, dy = wf.jvp(lambda a: (wf.sin(a), a.sum()), (x,), (t,))
    near(y[0], np.sin(x.numpy()))
    near(dy[0], np.cos(x.numpy()) * t.numpy())
    near(dy[1], t.numpy().sum())
    y, push = wf.linearize(lambda a: wf.sin(a), x)
    for scale in (1.0, 2.0):
        near(push(scale * t), scale * np.cos(x.numpy()) * t.numpy())
    assert wf.jvp(lambda a, k: a * k, (2.0, wf.tensor(3)), (1.0, None))[1].item() == 3.0


@pytest.mark.parametrize("mode", [None, "reverse", "forward"])
def test_jacobian(mode):
    a, b = rows(2, 3), rows(3, seed=1)
    ja, jb = wf.jacobian(lambda a, b: {"y": a @ b, "z": b * b}, argnums=(0, 1), mode=mode)(a, b)["y"]
    near(ja, np.einsum("ij,k->ijk", np.eye(2), b.numpy()))
    near(jb, a)
    z = wf.jacobian(lambda a, b: {"y": a @ b, "z": b * b}, argnums=1, mode=mode)(a, b)["z"]
    near(z, np.diag(2 * b.numpy()))
    assert wf.jacobian(lambda a: a.sum(), mode=mode)(wf.tensor(2.0)).shape == ()


def test_hessian():
    x = rows(3, seed=2)
    near(wf.hessian(cubes)(x), np.diag(6 * x.numpy()))
    h = wf.hessian(lambda a, b: (a * a * b).sum(), argnums=(0, 1))(x, 2 * x)
    near(h[0][0], np.diag(4 * x.numpy()))
    near(h[0][1], np.diag(2 * x.numpy()))
    near(h[1][1], np.zeros((3, 3)))


# They nest.


def network(w, a):
    """A function with many kinds of operators."""
    h = F.gelu(F.layer_norm(a @ w, 3))
    return F.log_softmax(h)[0] * h.sum() + wf.logsumexp(w * a.sum())


def test_compositions():
    w, x = rows(4, 3, dtype="float64"), rows(5, 4, seed=1, dtype="float64")
    loop = wf.stack([wf.grad(network)(w, x[k]) for k in range(5)])
    per_example = wf.vmap(wf.grad(network), in_axes=(None, 0))
    near(per_example(w, x), loop, 1e-9)
    near(wf.trace(per_example)(w, x), loop, 1e-9)
    traced = wf.trace(per_example)
    for _ in range(3):
        near(traced(w, x), loop, 1e-9)
    near(wf.vmap(wf.trace(wf.grad(network)), in_axes=(None, 0))(w, x), loop, 1e-9)
    near(wf.grad(lambda w: wf.vmap(lambda a: network(w, a))(x).sum())(w), loop.sum(axis=0), 1e-9)
    near(wf.jacobian(lambda w: wf.vmap(lambda a: network(w, a))(x))(w), loop, 1e-9)
    near(wf.jacobian(lambda w: wf.vmap(lambda a: network(w, a))(x), mode="forward")(w), loop, 1e-9)
    _, pull = wf.vjp(lambda w: wf.vmap(lambda a: network(w, a))(x), w)
    near(wf.vmap(pull)(wf.eye(5, dtype="float64"))[0], loop, 1e-9)
    near(wf.trace(wf.vmap(pull))(wf.eye(5, dtype="float64"))[0], loop, 1e-9)
    t = rows(4, 3, seed=9, dtype="float64")
    _, push = wf.linearize(lambda w: wf.vmap(lambda a: network(w, a))(x), w)
    near(push(t), np.einsum("kij,ij->k", loop.numpy(), t.numpy()), 1e-9)
    near(wf.vmap(lambda a: wf.jvp(lambda w: network(w, a), (w,), (t,))[1])(x), push(t), 1e-9)
    near(wf.vmap(lambda a: wf.jvp(lambda w: network(w, a), (w,), (t,)))(x)[1], push(t), 1e-9)


def test_third_order():
    """All ways to a third derivative give the same."""
    x = rows(3, seed=4, dtype="float64")

    def f(a):
        return (wf.exp(a) * F.softmax(a) * a.sum()).sum()

    want = wf.jacobian(wf.jacobian(wf.jacobian(f)))(x)
    assert want.shape == (3, 3, 3)
    near(wf.jacobian(wf.hessian(f))(x), want, 1e-9)
    near(wf.hessian(wf.grad(f))(x), want, 1e-9)
    near(wf.jacobian(wf.jacobian(wf.grad(f), mode="forward"), mode="reverse")(x), want, 1e-9)
    basis = wf.eye(3, dtype="float64")

    def along(g, t):
        return lambda a: wf.jvp(g, (a,), (t,))[1]

    rows_of = wf.vmap(wf.vmap(lambda s, t: along(along(wf.grad(f), t), s)(x), (0, None)), (None, 0))
    near(rows_of(basis, basis), want, 1e-9)
    pulled = wf.vmap(lambda t: wf.vjp(wf.hessian(f), x)[1](wf.ones((3, 3), dtype="float64") * t)[0])
    near(pulled(wf.ones(2, dtype="float64")), np.stack([want.numpy().sum((0, 1))] * 2), 1e-9)
    near(wf.trace(wf.jacobian(wf.hessian(f)))(x), want, 1e-9)


def test_nested_vmap_with_arrays_of_the_outer_one():
    a, b = rows(4, 3), rows(5, 3, seed=1)
    pairs = wf.vmap(lambda p: wf.vmap(lambda q: (p * q).sum())(b))
    near(pairs(a), a.numpy() @ b.numpy().T)


def test_control_flow(x):
    def f(a):
        return wf.cond(a.sum() > 0, lambda a: a * 2, lambda a: a - 1, a)

    near(wf.vmap(f)(x), wf.stack([f(x[k]) for k in range(4)]))
    near(
        wf.vmap(wf.grad(lambda a: (f(a) * a).sum()))(x),
        wf.stack([wf.grad(lambda a: (f(a) * a).sum())(x[k]) for k in range(4)]),
    )

    def g(a):
        return wf.while_loop(
            lambda s, n: (s * s).sum() < 40, lambda s, n: (s * 1.5, n + 1), a, wf.tensor(0), max_iterations=20
        )

    s, n = wf.vmap(g)(x)
    assert len(set(n.numpy().tolist())) > 1  # examples end at different times
    for k in range(4):
        want = g(x[k])
        near(s[k], want[0])
        assert n[k].item() == want[1].item()
    slope = wf.grad(lambda a: g(a)[0].sum())
    near(wf.vmap(slope)(x), wf.stack([slope(x[k]) for k in range(4)]))
    near(wf.grad(lambda x: wf.vmap(lambda a: g(a)[0].sum())(x).sum())(x), wf.vmap(slope)(x))
    t = rows(4, 3, seed=3)
    forward = wf.vmap(lambda a, t: wf.jvp(lambda a: g(a)[0], (a,), (t,))[1])(x, t)
    near(forward, wf.vmap(slope)(x).numpy() * t.numpy())

    def h(a):
        return wf.foreach(lambda e, s: (s * e, s + e * s), a, wf.tensor(1.0))

    ys, last = wf.vmap(h)(x)
    for k in range(4):
        near(ys[k], h(x[k])[0])
        near(last[k], h(x[k])[1])
    slope = wf.grad(lambda a: h(a)[0].sum() + h(a)[1])
    near(wf.vmap(slope)(x), wf.stack([slope(x[k]) for k in range(4)]))
    near(
        wf.jvp(lambda a: h(a)[0].sum() + h(a)[1], (x[0],), (t[0],))[1],
        (slope(x[0]) * t[0]).sum(),
    )


def test_a_while_loop_without_a_bound_has_a_tangent():
    f = lambda a: wf.while_loop(lambda s: s < 100.0, lambda s: s * s, a)  # noqa: E731
    y, dy = wf.jvp(f, (wf.tensor(3.0),), (wf.tensor(1.0),))
    assert (y.item(), dy.item()) == (6561.0, 8 * 3.0**7)


class TenTimes(wf.Function):
    """Squares, and a gradient that shows where it comes from."""

    def forward(self, a):
        self.a = a
        return a * a

    def backward(self, dy):
        return dy * self.a * 20


def test_custom_gradients(x):
    f = lambda a: TenTimes()(a).sum()  # noqa: E731
    near(wf.vmap(wf.grad(f))(x), 20 * x.numpy())
    near(wf.grad(lambda x: wf.vmap(f)(x).sum())(x), 20 * x.numpy())
    w = rows(3, seed=1)
    near(
        wf.grad(lambda w: wf.vmap(lambda a: (TenTimes()(w) * a).sum())(x).sum())(w),
        20 * w.numpy() * x.numpy().sum(0),
    )
    near(wf.jvp(f, (w,), (wf.ones(3),))[1], 20 * w.numpy().sum())
    near(wf.jacobian(f)(w), 20 * w.numpy())


def test_what_has_no_gradient(x):
    def f(a):
        with wf.no_grad():
            held = a * a
        return (held * a).sum() + (a.detach() * a).sum()

    want = x.numpy() ** 2 + x.numpy()
    near(wf.vmap(wf.grad(f))(x), want)
    near(wf.vmap(lambda a: wf.vjp(f, a)[1](wf.tensor(1.0))[0])(x), want)
    near(wf.jacobian(f)(x[0]), want[0])
    near(wf.jvp(f, (x[0],), (wf.ones(3),))[1], want[0].sum())
    with wf.no_grad():
        near(wf.jacobian(f)(x[0]), want[0])


def test_recompute(x):
    f = lambda a: wf.recompute(cubes, a)  # noqa: E731
    near(wf.vmap(wf.grad(f))(x), 3 * x.numpy() ** 2)
    near(wf.hessian(f)(x[0]), np.diag(6 * x[0].numpy()))


def test_writes(x):
    count = wf.tensor(0.0)

    def f(a):
        count[...] = count + 1
        return a * count

    near(wf.vmap(f)(x), x)
    assert count.item() == 1.0
    last = wf.zeros(3)

    def g(a):
        last[...] = a
        return a

    with pytest.raises(NotImplementedError, match="differs from example to example"):
        wf.vmap(g)(x)
    near(wf.jvp(g, (x[0],), (x[1],))[1], x[1])
    near(last, x[0])


def test_refusals(x):
    w = rows(3)

    def sets(a):
        w.grad = wf.zeros(3)
        return a

    with pytest.raises(NotImplementedError, match="sets the grad"):
        wf.vmap(sets)(x)
    with pytest.raises((GraphError, AttributeError, TypeError)):
        wf.vmap(lambda a: a.numpy())(x)
    with pytest.raises(ValueError, match="max_iterations"):
        wf.vjp(lambda a: wf.while_loop(lambda s: s.sum() < 9, lambda s: s + 1, a), x[0])


def test_what_a_function_keeps_alive_ends_with_it(x):
    def once(use):
        big = wf.ones(1000)
        use(lambda a: (a * big[:3]).sum())
        return weakref.ref(big)

    for use in (
        lambda f: wf.vjp(f, x[0])[1](1.0),
        lambda f: wf.jvp(f, (x[0],), (x[0],)),
        lambda f: wf.vmap(f)(x),
        lambda f: wf.hessian(f)(x[0]),
    ):
        found = once(use)
        gc.collect()
        assert found() is None


def test_derivatives_are_planned_once(x):
    calls = []

    def f(a):
        calls.append(a)
        return cubes(a)

    planned = []
    for k in range(3):
        near(wf.vjp(f, x[k])[1](wf.tensor(1.0))[0], 3 * x[k].numpy() ** 2)
        wf.jvp(f, (x[k],), (x[k],))
        planned.append(_core.operator_counters()["planner_calls"])
    assert planned[0] == planned[1] == planned[2]
    assert len(calls) == 6


def test_a_wrapper_is_another_function(x):
    f = lambda a: a * 2  # noqa: E731
    assert wf.jvp(f, (x,), (x,))[0].shape == (4, 3)

    @functools.wraps(f)
    def g(a):
        return f(a).sum()

    assert wf.jvp(g, (x,), (x,))[0].shape == ()
    assert wf.jvp(f, (x,), (x,))[0].shape == (4, 3)


def test_programs_with_examples_are_files(x, tmp_path):
    g = wf.trace(
        wf.vmap(
            wf.grad(lambda a: (F.softmax(a) * F.layer_norm(a, 3) * F.sort(a) * wf.cumulative_sum(a)).sum())
        )
    )
    want = g(x)
    near(g(x), want)
    g.export(tmp_path / "program")
    near(wf.load_program(tmp_path / "program")(x), want, 0)


def test_mixed_precision_and_layers_see_the_function(x):
    seen = []

    class Log(wf.Transformation):
        def emit(self, op, args):
            seen.append(op.name)
            return op(*args)

    with Log():
        wf.vmap(lambda a: F.relu(a) + 1)(x)
    assert seen == ["relu", "add"]
    product = wf.vmap(lambda a, w: a @ w, in_axes=(0, None))
    w = wf.ones((3, 2))
    with wf.amp.autocast():
        assert product(x, w).dtype == wf.bfloat16
    assert product(x, w).dtype == wf.float32


def test_vmap_and_loops_inside_of_each_other_and_of_traces(x):
    within = wf.trace(
        lambda x: wf.foreach(lambda r, t: (wf.vmap(lambda e: e * t)(r), t + 1), x, wf.tensor(1.0))[0]
    )
    around = wf.trace(
        lambda x: wf.vmap(lambda r: wf.foreach(lambda s, t: (s * t, t + s), r, wf.tensor(1.0))[1])(x)
    )
    for _ in range(2):
        near(within(x), x.numpy() * np.arange(1, 5)[:, None])
        near(around(x), 1 + x.numpy().sum(1))


def test_methods(x):
    class Layer:
        def __init__(self):
            self.w = wf.tensor([1.0, 2.0, 3.0])

        def __call__(self, a):
            return (a * self.w).sum()

    layer = Layer()
    near(wf.vmap(layer)(x), x.numpy() @ [1, 2, 3])
    layer.w = wf.ones(3)
    near(wf.vmap(layer)(x), x.numpy().sum(1))
    near(wf.jacobian(layer)(x[0]), np.ones(3))


def test_functions_that_write():
    """vmap of functions that write their arguments and what they compute, against a loop over the examples."""

    def run(x, y):
        x += y
        z = x * 2
        z[0] = x[1]
        z.reshape(-1)[1:] *= y
        return z

    def looped(x, y):
        return wf.stack([run(a, b) for a, b in zip(wf.unstack(x), wf.unstack(y), strict=True)])

    x, y = wf.random.normal(shape=(4, 3)), wf.random.normal(shape=(4,))
    for axes in (0, (1, 0)):
        own, other = x.copy(), x.copy()
        made = wf.vmap(run, in_axes=axes)(own if axes == 0 else own.T.copy(), y)
        np.testing.assert_allclose(made.numpy(), looped(other, y).numpy(), rtol=1e-6)
        if axes == 0:
            np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=1e-6)
    with pytest.raises(GraphError, match="differs from example to example"):
        wf.vmap(run, in_axes=(None, 0))(x[0], y)
    at = x.copy()
    wf.vjp(lambda x: run(x, y[0]), at)
    np.testing.assert_allclose(at.numpy(), (x + y[0]).numpy(), rtol=1e-6)


GRADIENTS_INSIDE = {
    "vmap": lambda g, x: wf.vmap(g)(x[None])[0],
    "jvp": lambda g, x: wf.jvp(g, (x,), (x,))[0],
    "vjp": lambda g, x: wf.vjp(g, x)[0],
    "linearize": lambda g, x: wf.linearize(g, x)[0],
    "foreach": lambda g, x: wf.trace(lambda x: wf.foreach(lambda row, s: (g(row), s), x[None], ())[0])(x)[0],
    "cond": lambda g, x: wf.trace(lambda x: wf.cond(x.sum() > -9, g, g, x))(x),
    "dynamic": lambda g, x: wf.trace(g, dynamic={0: 0})(x),
}


@pytest.mark.parametrize("way", GRADIENTS_INSIDE)
@pytest.mark.parametrize("write", ["fill", "add", "element"])
def test_gradients_inside_are_of_the_values_that_were_read(way, write):
    def f(x):
        y = F.sin(x)
        z = y * x
        if write == "fill":
            y[...] = 0
        elif write == "add":
            y += 1
        else:
            y[0] = 7.0
        return z.sum()

    x = rows(3, dtype="float64")
    near(GRADIENTS_INSIDE[way](wf.grad(f), x), wf.grad(lambda x: (F.sin(x) * x).sum())(x), 1e-12)


def test_gradients_inside_are_arrays_of_their_own():
    def f(x):
        a, b = wf.grad(lambda a, b: (a + b).sum(), (0, 1))(x, x)
        a += 1
        return a, b

    a, b = wf.vmap(f)(wf.zeros((2, 3)))
    near(a, np.full((2, 3), 2.0))
    near(b, np.ones((2, 3)))


def test_managers_in_dynamic_traces_use_the_values_that_were_read():
    w = wf.tensor(0.7)
    gm = wf.GradManager().attach(w)

    @wf.trace(dynamic={0: 0})
    def step(x):
        with gm:
            y = F.sin(w * x)
            z = y * y
            y[...] = 0
            gm.backward(z.sum())
        gradient, w.grad = w.grad, None
        return gradient

    x = rows(3)
    near(step(x), wf.grad(lambda w: (F.sin(w * x) ** 2).sum())(w))


# What a function that is recorded holds, and constants.

ARRAYS = np.array([2.0, 3.0], "float32")
HELD = wf.tensor([2.0, 3.0])

CONSTANTS = {
    "tensor of NumPy's": lambda x: x * wf.tensor(ARRAYS)[0],
    "asarray of NumPy's": lambda x: x * wf.asarray(ARRAYS, dtype="float32")[0],
    "item": lambda x: x * HELD[0].item(),
    "float": lambda x: x * float(HELD.sum()),
    "numpy": lambda x: x * (HELD + 1).numpy()[0],
    "NumPy's function": lambda x: x * np.asarray(HELD * 2)[1],
    "if": lambda x: x * 2 if HELD[1] > HELD[0] else x,
    "mask": lambda x: x * HELD[HELD > 2][0],
    "mask that is held": lambda x, mask=HELD > 2: x * HELD[mask][0],
    "tolist": lambda x: sum(x * v for v in HELD[None][0].tolist()),
    "iteration": lambda x: sum(x * float(v) for v in HELD),
    "index": lambda x: x * [5.0, 7.0][wf.argmax(HELD)],
    "format": lambda x: x * float(f"{HELD.sum():.1f}"),
    "in": lambda x: x * (2 if 3.0 in HELD else 1),
    "inside": lambda x: wf.vmap(lambda a: a * float(HELD.sum()))(x),
    "in a loop": lambda x: wf.foreach(lambda a, s: (a * float(HELD.sum()), s), x, ())[0],
}
WAYS = {
    "vmap": lambda f, x: wf.vmap(f)(x[None])[0],
    "jvp": lambda f, x: wf.jvp(f, (x,), (x,))[0],
    "vjp": lambda f, x: wf.vjp(f, x)[0],
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("way", WAYS)
def test_constants_are_read(way, name):
    f, x = CONSTANTS[name], wf.tensor([1.0, -2.0])
    near(WAYS[way](f, x), f(x))


def test_what_depends_on_an_argument_is_not_read(x):
    for read in (float, bool, lambda a: a.item(), lambda a: a.tolist(), lambda a: [1, 2][a.astype("int32")]):
        with pytest.raises(TypeError, match="depends on the arguments of the function"):
            wf.vmap(lambda a, read=read: a * read((a * HELD[0]).sum()))(x)
    with pytest.raises(TypeError, match="depends on the arguments"):
        wf.vmap(lambda a: wf.vmap(lambda b: b * float(a.sum()))(wf.ones(2)))(x)
    with pytest.raises(TypeError, match="depends on the arguments"):
        wf.trace(lambda a: a * float(a.sum()), dynamic={0: 0})(x)


def test_content_that_is_known_is_read_after_a_write(x):
    held = wf.tensor([1.0, 2.0])

    def f(a):
        held[0] = 5.0
        return a * float(held.sum())

    near(wf.vmap(f)(x), 7 * x.numpy())
    near(held, [5.0, 2.0])


ANSWERS = {
    "isinstance": lambda x: x * 2 if isinstance(x, wf.Tensor) else x * 3,
    "match": lambda x: {True: x * 2, False: x * 3}[isinstance(x, wf.Tensor | int)],
    "copy": lambda x: x.copy() + 0,
    "copy.copy": lambda x: copy.copy(x) * 1,
    "copy.deepcopy": lambda x: copy.deepcopy({"x": x})["x"] * 1,
    "contiguous": lambda x: x.contiguous() * 1,
    "asarray": lambda x: wf.asarray(x) * 1,
    "asarray as": lambda x: wf.asarray(x, dtype="float64") * 1,
    "tensor": lambda x: wf.tensor(x),
    "tensor of a list": lambda x: wf.tensor([x[1], x[0]]),
    "requires_grad": lambda x: x * 2 if x.requires_grad else x * 1,
    "nbytes": lambda x: x * x.nbytes,
    "itemsize": lambda x: x * x.itemsize,
    "to_device": lambda x: x.to_device("cpu:0") * 1,
    "np.sin": lambda x: np.sin(x),
    "np.add": lambda x: np.add(np.ones((2, 3), "float32"), x),
    "array + x": lambda x: np.ones((2, 3), "float32") + x,
    "shares_memory": lambda x: x * (2 if wf.shares_memory(x, x[0]) and not wf.shares_memory(x, x + 1) else 3),
    "write to a copy": lambda x: wrote(x.copy()),
    "parameter": lambda x: module_of(x).w * 2,
}


def wrote(x):
    x[0] = 5.0
    return x


def module_of(x):
    module = M.Module()
    module.w = M.Parameter(x)
    return module


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("way", [*WAYS, "dynamic", "foreach"])
def test_what_a_recorded_function_holds_answers_as_a_tensor(way, name):
    ways = WAYS | {
        "dynamic": lambda f, x: wf.trace(f, dynamic={"x": 0})(x),
        "foreach": lambda f, x: wf.trace(lambda x: wf.foreach(lambda a, s: (f(a), s), x[None], ())[0])(x)[0],
    }
    f, x = ANSWERS[name], rows(2, 3)
    if way == "dynamic" and name in ("tensor of a list", "np.add", "array + x"):  # sizes that are fixed
        return
    got = ways[way](f, x)
    want = f(x)
    assert got.dtype is want.dtype
    near(got, want)


def test_what_has_no_memory_yet_says_so(x):
    for name in ("strides", "version", "memory"):
        with pytest.raises(TypeError, match=f"{name}: an array of a function that is recorded has no memory"):
            wf.vmap(lambda a, name=name: getattr(a, name))(x)


def test_requires_grad_inside_of_a_gradient(x):
    f = wf.grad(lambda a: (a * (2 if a.requires_grad else 1)).sum())
    near(wf.vmap(f)(x), np.full((4, 3), 2.0))


def test_numbers_given_at_run_time_may_differ_from_example_to_example(x):
    eps = wf.tensor([0.1, 1.0, 2.0, 3.0])
    got = wf.vmap(lambda a, e: F.layer_norm(a, 3, eps=e))(x, eps)
    near(got, wf.stack([F.layer_norm(x[k], 3, eps=eps[k].item()) for k in range(4)]))
    got = wf.vmap(wf.grad(lambda a, e: (F.layer_norm(a, 3, eps=e) * a).sum()))(x, eps)
    of = lambda k: wf.grad(lambda a: (F.layer_norm(a, 3, eps=eps[k].item()) * a).sum())(x[k])  # noqa: E731
    near(got, wf.stack([of(k) for k in range(4)]))


def test_derivatives_of_the_gradients_of_an_operator_that_becomes_several():
    """What a batched operator becomes is ordered where the operator was, before what its parts read."""
    x = wf.tensor(np.linspace(0.2, 0.9, 6).reshape(3, 2))

    def second(cumulated):
        gradient = wf.grad(lambda x: (cumulated(x) ** 2).sum())
        return wf.jvp(gradient, (x,), (wf.cos(x),))[1].numpy()

    want = second(lambda x: wf.cumulative_prod(x, axis=1))
    np.testing.assert_allclose(second(wf.vmap(wf.cumulative_prod)), want, rtol=1e-12)
