"""The gradient through a trace, a loaded program, dynamic axes and control flow is the eager one."""

import itertools
import warnings
import weakref

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.base.errors import GraphError

pytestmark = pytest.mark.daily(2)


class Through(wf.Function):
    """Rounds, and lets the gradient pass, scaled."""

    def forward(self, x, scale):
        self.scale = scale
        return F.round(x)

    def backward(self, dy):
        return dy * self.scale, None


class Identity(wf.Function):
    def forward(self, x):
        return x

    def backward(self, dy):
        dy *= 3
        return F.clip(dy, -1, 1)


class Two(wf.Function):
    def forward(self, x, y):
        with wf.no_grad():
            self.kept = F.exp(x * 0.1)
        return x * y, F.sin(y)

    def backward(self, da, db):
        return da * self.kept, db + da.detach()


def no_grad(w):
    with wf.no_grad():
        c = w * w
        v = c[1:]
        u = w.sum()
    return (c * w).sum() + (v * w[1:] * u).sum()


def detach(w):
    d = w.detach()
    return (d * w).sum() + (d[1:] * w.T[:-1]).sum() + (d.reshape((-1, 1)) * w).mean()


def detach_then_write(w):
    y = w * 2
    d = y.detach()
    d += 1
    return (y * d).sum()


def writes_under_no_grad(w):
    y = w * 2
    with wf.no_grad():
        y *= 10
        y[0] = w[1]
    return (y * y).sum()


def function(w):
    return (Through()(w * 1.3, w[:1] * 2) * w).sum()


def identity(w):
    return (Identity()(w) * w * w).sum()


def two(w):
    a, b = Two()(w * 2, w)
    return (a * a + b).sum()


def function_in_control_flow(w):
    def body(v, s):
        with wf.no_grad():
            q = v * v
        return Identity()(q * v) * v.detach(), s + v.detach() * v

    items, last = wf.foreach(body, w, wf.zeros(()))
    return items.sum() + wf.cond(last > 0, lambda: last * last.detach(), lambda: last)


def inner_gradient_of_what_was_detached(w):
    d = (w * 2).detach()
    return (wf.grad(lambda p: (p * p * F.sin(p)).sum())(d) * w).sum()


def inner_gradient_of_a_view_made_under_no_grad(w):
    with wf.no_grad():
        d = w[1:]
    return (wf.grad(lambda p: (p * p * p).sum())(d) * w[:-1]).sum()


def detach_in_a_body_of_a_body(w):
    def outer(x, h):
        def inner(y, g):
            return g * h.detach() + y, g + h.detach() * y

        items, last = wf.foreach(inner, w, h)
        return items.mean() + h, last * x

    items, last = wf.foreach(outer, w[:3], w.mean())
    return items.sum() + last


def identity_under_no_grad(w):
    with wf.no_grad():
        c = Identity()(w)

    def body(v, s):
        with wf.no_grad():
            q = Identity()(s)
        return v * q, s * v

    items, last = wf.foreach(body, w, w.mean())
    return (c * w).sum() + items.sum() + last


def slopes_that_several_backwards_write(w):
    return ((Identity()(w) + Identity()(w * 2) + w) * wf.tensor([1.0, 0.2, 0.3, 0.4, 0.5])).sum()


def in_order(w):
    return (F.sigmoid(no_grad(F.tanh(w))) * function(w)).sum()


CASES = [
    no_grad,
    detach,
    detach_then_write,
    writes_under_no_grad,
    function,
    identity,
    two,
    function_in_control_flow,
    inner_gradient_of_what_was_detached,
    inner_gradient_of_a_view_made_under_no_grad,
    detach_in_a_body_of_a_body,
    identity_under_no_grad,
    slopes_that_several_backwards_write,
    in_order,
]
W = np.linspace(0.3, 1.7, 5).astype("float32")


def slope(f):
    return wf.grad(lambda w: f(w) * 1.0)(wf.tensor(W)).numpy()


@pytest.mark.parametrize("f", CASES)
def test_as_eager(f, tmp_path):
    want = slope(f)
    second = wf.grad(lambda w: (wf.grad(f)(w) * w).sum())(wf.tensor(W)).numpy()
    traced, later, lazy = (
        wf.trace(f, strict=True),
        wf.trace(f, strict=True),
        wf.trace(f, strict=True, lazy=True),
    )
    later(wf.tensor(W))
    for g in (traced, traced, later, lazy, lazy, wf.trace(lambda w: traced(w) + 0)):
        np.testing.assert_allclose(slope(g), want, rtol=1e-5)
        twice = wf.grad(lambda w, g=g: (wf.grad(g)(w) * w).sum())(wf.tensor(W)).numpy()
        np.testing.assert_allclose(twice, second, rtol=1e-4)
    outside = wf.trace(wf.grad(f), strict=True)
    inside = wf.trace(lambda w: wf.grad(traced)(w), strict=True)
    for g in (outside, outside, inside, inside):
        np.testing.assert_allclose(g(wf.tensor(W)).numpy(), want, rtol=1e-5)
    traced.export(tmp_path / "program")
    np.testing.assert_allclose(slope(wf.load_program(tmp_path / "program")), want, rtol=1e-5)


@pytest.mark.parametrize("f", [no_grad, function, identity, two, function_in_control_flow])
def test_dynamic_axes_as_eager(f):
    dynamic = wf.trace(f, dynamic={"w": 0}) if f is not function_in_control_flow else wf.trace(f)
    for _ in range(2):
        np.testing.assert_allclose(slope(dynamic), slope(f), rtol=1e-5)


@pytest.mark.parametrize("lazy", [False, True])
def test_an_array_that_only_backward_is_given(lazy):
    w, slopes = wf.tensor(W), {k: wf.tensor(W * (k + 1)) for k in range(3)}
    gm = wf.GradManager().attach(w)

    def step(x):
        with gm:
            y = w * x
            gm.backward(y, slopes[y.ndim])  # no trace can know which by looking at the code
        dw, w.grad = w.grad, None
        return dw

    traced = wf.trace(step, strict=True, lazy=lazy)
    for x in (wf.tensor(W), wf.tensor(W * 2)):
        np.testing.assert_allclose(traced(x).numpy(), step(x).numpy())
    slopes[1][...] = 1
    np.testing.assert_allclose(traced(x).numpy(), x.numpy())


def test_a_backward_that_writes_leaves_what_the_caller_gave():
    gm, dy = wf.GradManager().attach(w := wf.tensor(W)), wf.ones(5)
    for f in (lambda w: Identity()(w), lambda w: Identity()(w * 2)):
        with gm:
            gm.backward(f(w), dy)
        np.testing.assert_array_equal(dy.numpy(), np.ones(5))


def test_no_gradient_is_none_as_eager():
    f = wf.trace(lambda w: (w * 2, (w * 3).detach()))
    w = wf.tensor(W)
    gm = wf.GradManager().attach(w)
    for _ in range(3):
        with gm:
            y, z = f(w)
            assert (y.requires_grad, z.requires_grad) == (True, False)


def test_a_backward_that_cannot_be_written_down():
    class Looks(wf.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * float(dy.sum())

    f = wf.trace(lambda w: (Looks()(w) * w).sum(), lazy=False)
    first = slope(f)  # the tape has the function itself
    np.testing.assert_allclose(first, slope(lambda w: (Looks()(w) * w).sum()))
    with pytest.raises(GraphError, match=r"Looks: its backward could not be written down.*were looked at"):
        slope(f)
    assert f(wf.tensor(W)).item() == pytest.approx(2 * (W * W).sum(), rel=1e-5)


def test_marks_are_seen_and_cost_nothing():
    f = wf.trace(lambda w: (w.detach() * w).sum())
    plain = wf.trace(lambda w: (w * w).sum())
    for g in (f, plain):
        g(wf.tensor(W))
    assert "StopGradient()" in str(f.programs[0])
    assert f.programs[0].plan.info.steps == plain.programs[0].plan.info.steps


# Results that share memory.


def view_of_an_argument(w):
    return w, w[1:], w.detach()


def view_of_a_result(w):
    y = w * 2
    return y, y[1:], y.detach(), y.reshape((-1, 1))


@pytest.mark.parametrize("f", [view_of_an_argument, view_of_a_result])
def test_views_among_results_have_a_history(f, tmp_path):
    def loss(g):
        return lambda w: sum((x * x * (k + 1)).sum() for k, x in enumerate(g(w)))

    traced = wf.trace(f, strict=True)
    forms = [traced, traced, traced]
    if f is view_of_an_argument:
        traced(wf.tensor(W))
        traced.export(tmp_path / "program")
        forms.append(wf.load_program(tmp_path / "program"))
    for g in forms:
        np.testing.assert_allclose(slope(loss(g)), slope(loss(f)), rtol=1e-5)
    gm = wf.GradManager().attach(w := wf.tensor(W))
    with gm:
        assert [x.requires_grad for x in traced(w)] == [x.requires_grad for x in f(w)]


def test_a_view_of_an_argument_with_gaps():
    traced = wf.trace(lambda w: w[1:])
    traced(wf.tensor(W)[::2])
    with pytest.raises(ValueError, match="gaps in memory"):
        wf.grad(lambda w: traced(w[::2]).sum())(wf.tensor(W))


# What a program writes.


def test_arguments_written_in_place_have_the_history_of_their_content():
    def f(y, w):
        y *= 2
        with wf.no_grad():
            y += w

    def loss(w, f):
        y = w * 3
        f(y, w)
        return (y * y).sum()

    traced = wf.trace(f)
    want = slope(lambda w: loss(w, f))
    for _ in range(3):
        np.testing.assert_allclose(slope(lambda w: loss(w, traced)), want, rtol=1e-5)

    def shared(w):
        y = w * 3
        v = y[1:]
        traced(y, w)
        return v.sum()

    with pytest.raises(ValueError, match="shares its memory"):
        slope(shared)


# Random numbers.


def both(f, x):
    (_, y), dx = wf.value_and_grad(lambda x: (lambda y: (y.sum(), y))(f(x)), has_aux=True)(x)
    return y.numpy(), dx.numpy()


def noisy(x):
    return F.dropout(F.dropout(x, 0.5) * 2, 0.25) * wf.random.uniform(shape=x.shape)


def in_foreach(x):
    return wf.foreach(lambda v, s: (F.dropout(v, 0.5), s), x, ())[0]


@pytest.mark.parametrize("f", [lambda x: F.dropout(x, 0.5), noisy, in_foreach])
def test_random_numbers_are_those_of_the_forward_pass(f, tmp_path):
    """For ones, the gradient of the sum is the result; streams stand where eager calls leave them."""
    x = wf.ones((64, 9))
    wf.random.seed(5)
    want = [both(f, x)[0] for _ in range(3)]
    traced, later = wf.trace(f, strict=True), wf.trace(f, strict=True)
    later(x)
    traced(x)
    traced.export(tmp_path / "program")
    step = wf.trace(lambda x: wf.grad(lambda x: later(x).sum())(x))
    forms = [traced, later, wf.trace(lambda x: later(x) * 1), wf.load_program(tmp_path / "program")]
    if f is not in_foreach:
        forms.append(wf.trace(f, dynamic={0: 0}))
    for g in forms:
        g(x)
        wf.random.seed(5)
        for k in range(3):
            y, dx = both(g, x)
            np.testing.assert_allclose(y, dx, rtol=1e-6)
            np.testing.assert_allclose(y, want[k], rtol=1e-6)
    for _ in range(2):
        step(x)
    wf.random.seed(5)
    for k in range(3):
        np.testing.assert_allclose(step(x).numpy(), want[k], rtol=1e-6)


def test_second_order_of_random_numbers():
    f = wf.trace(lambda x, p: (F.dropout(x, p) ** 3).sum())
    g = lambda x, p: (F.dropout(x, p) ** 3).sum()  # noqa: E731
    x, found = wf.tensor(np.linspace(1, 2, 40)), []
    f(x, 0.5)
    for h in (g, f, f):
        wf.random.seed(2)
        found.append(wf.grad(lambda x, h=h: wf.grad(h)(x, 0.5).sum())(x).numpy())
    np.testing.assert_allclose(found[1], found[0])
    np.testing.assert_allclose(found[2], found[0])


# Regions that are computed again.


def test_recompute_in_a_trace_draws_the_same_numbers():
    block = lambda x: F.dropout(x, 0.5) * wf.random.uniform(shape=x.shape)  # noqa: E731
    nested = lambda x: wf.recompute(block, wf.recompute(block, x) + 0) + wf.recompute(block, x)  # noqa: E731
    w = wf.ones((64, 3))
    gm = wf.GradManager().attach(w)
    for f in (block, nested):

        def step(f=f):
            with gm:
                y = wf.recompute(f, w)
                gm.backward(y.sum())
            slope, w.grad = w.grad, None
            return y, slope

        forward = wf.trace(lambda x, f=f: wf.recompute(f, x))
        found = []
        for g in (
            step,
            wf.trace(step, strict=True),
            wf.trace(step, strict=True, lazy=True),
            lambda t=forward: both(t, w),
        ):
            g()
            g()
            wf.random.seed(4)
            for _ in range(2):
                y, dx = (np.asarray(x) for x in g())
                np.testing.assert_allclose(y, dx, rtol=1e-6)  # of ones
                found.append(y)
        for y in found[2::2]:
            np.testing.assert_allclose(y, found[0], rtol=1e-6)
        for y in found[3::2]:
            np.testing.assert_allclose(y, found[1], rtol=1e-6)


def test_recompute_in_a_trace_keeps_nothing():
    """What the region makes is there once for the result, and once more when the gradient is computed."""
    w = wf.ones((64, 64))

    def chain(x):
        for _ in range(3):
            x = F.tanh(x @ w)
        return x

    @wf.trace(strict=True)
    def step(x):
        return wf.value_and_grad(lambda x: wf.recompute(chain, x).sum())(x)

    x = wf.ones((64, 64)) * 0.5
    np.testing.assert_allclose(step(x)[1].numpy(), wf.grad(lambda x: chain(x).sum())(x).numpy(), rtol=1e-6)
    steps = step.programs[0].plan.info.steps
    assert (
        sum("matmul" in s.lower() or "Vecdot" in s for s in steps) == 3 + 3 + 3
    )  # forward, once more, and gradients


def test_recompute_of_what_the_function_refers_to():
    from weft import module as M

    net = M.Sequential(M.Linear(3, 4), M.Tanh(), M.Linear(4, 2))
    x, scale = wf.ones((5, 3)), wf.tensor(2.0)
    gm = wf.GradManager().attach([*net.parameters(), scale])

    def slopes(f, traced=False):
        def step():
            with gm:
                gm.backward(f().sum())
            found = [p.grad for p in gm.attached_tensors()]
            for p in gm.attached_tensors():
                p.grad = None
            return found

        run = wf.trace(step) if traced else step
        return [[None if g is None else g.numpy() for g in run()] for _ in range(2)][-1]

    want = slopes(lambda: net(x) * scale)
    for f in (
        lambda: wf.recompute(net, x) * scale,
        lambda: wf.recompute(net.forward, x) * scale,
        lambda: wf.recompute(lambda x: net(x) * scale, x),
    ):
        for traced in (False, True):
            for g, h in zip(slopes(f, traced), want, strict=True):
                np.testing.assert_allclose(g, h, rtol=1e-5)

    # A trace that nothing wanted a gradient of when it was written down; and an argument that is found, too.
    later = wf.trace(lambda x: wf.recompute(lambda x: net(x) * scale * x.sum(), x).sum())
    later(x)
    for f in (lambda: later(x), lambda: wf.recompute(lambda x: net(x) * scale * x.sum(), x)):
        for g, h in zip(slopes(f), slopes(lambda: net(x) * scale * x.sum()), strict=True):
            np.testing.assert_allclose(g, h, rtol=1e-5)
    twice = lambda w: wf.recompute(lambda t: t * w, w).sum()  # noqa: E731
    for gradient in (wf.grad(twice), wf.grad(wf.trace(twice)), wf.trace(wf.grad(twice))):
        for _ in range(2):
            np.testing.assert_allclose(gradient(wf.tensor(W)).numpy(), 2 * W, rtol=1e-6)

    repeated, reference = itertools.repeat(scale), weakref.ref(scale)
    for hidden in (
        lambda x: x * next(repeated),
        lambda x: x * reference()[None],
    ):
        with pytest.raises(ValueError, match="refers to a tensor that requires a gradient"):
            slopes(lambda f=hidden: wf.recompute(f, x))
    unseen = wf.trace(lambda x: wf.recompute(lambda x: x * next(repeated), x).sum())
    unseen(x), unseen(x)  # the second call is compared with the first
    with pytest.raises(GraphError, match="refers to a tensor that requires a gradient"):
        slopes(lambda: unseen(x))
    with wf.no_grad():
        wf.recompute(lambda x: x * next(repeated), x)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_recompute_draws_the_same_again(lazy, looks):
    """Also where the values are looked at between forward and backward, so that it is not a program."""

    def region(x):
        return F.dropout(F.tanh(x), 0.5, training=True) * x

    def step(x):
        x = F.dropout(x, 0.25, training=True)
        manager = wf.GradManager().attach([x])
        with manager:
            y = wf.recompute(region, x).sum()
            if looks:
                y.item()
            manager.backward(y)
        return y, x.grad

    x = wf.ones((32, 32)) * 0.5
    traced = wf.trace(step, lazy=lazy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            wf.random.seed(7)
            y, dx = step(x)
            wf.random.seed(7)
            z, dz = traced(x)
            np.testing.assert_array_equal(y.numpy(), z.numpy())
            np.testing.assert_array_equal(dx.numpy(), dz.numpy())


def test_recompute_of_a_traced_call_for_a_gradient_that_is_asked_for_outside():
    w = wf.ones((16, 16)) * 0.1

    def f(x):
        return wf.recompute(lambda x: F.dropout(F.tanh(x @ w), 0.5, training=True), x).sum()

    x, traced = wf.ones((16, 16)), wf.trace(f)
    for _ in range(3):
        wf.random.seed(3)
        plain = wf.grad(f)(x)
        wf.random.seed(3)
        np.testing.assert_allclose(wf.grad(traced)(x).numpy(), plain.numpy(), rtol=1e-6)


def test_gradients_of_gradients_multiply_by_no_zeros():
    """A gradient that nothing asks for is none, rather than an array of zeros that goes through products."""
    w1, w2 = wf.ones((6, 3)), wf.ones((1, 6))
    gm = wf.GradManager().attach([w1, w2])

    @wf.trace
    def step(x):
        with gm:
            slope = wf.grad(lambda x: F.linear(F.tanh(F.linear(x, w1)), w2).sum())(x)
            gm.backward((slope * slope).sum())
        return w1.grad, w2.grad

    step(wf.ones((4, 3)))
    made = [node.op for node in step.programs[0].graph.nodes if node.op is not None]
    assert not [op for op in made if op.name in ("full", "filled_like") and not op.value], made


PARTS = {
    "slice": lambda x: x[:, 1:],
    "reversed": lambda x: x[::-1],
    "repeated": lambda x: F.broadcast_to(x[0], (3, 4)),
    "attached": None,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("dynamic", [None, {"x": 0}])
def test_arguments_with_gaps_keep_their_history(part, dynamic):
    def square(x):
        return x * x

    traced = wf.trace(square, dynamic=dynamic)
    whole = wf.tensor(np.arange(12.0, dtype="float32").reshape(3, 4))
    leaf = whole[:, 1:] if part == "attached" else whole
    gm = wf.GradManager().attach([leaf])
    found = []
    for f in (square, traced, traced, traced):
        leaf.grad = None
        with gm:
            x = leaf if part == "attached" else PARTS[part](leaf * 0.5)
            y = f(x)
            gm.backward(y.sum())
        found.append((y.tolist(), leaf.grad.tolist()))
    assert found[1:] == found[:1] * 3


def test_a_found_array_with_gaps_keeps_its_history():
    weight = wf.tensor(np.arange(12.0, dtype="float32").reshape(3, 4))[:, 1:]
    traced = wf.trace(lambda x: x * weight)
    gm = wf.GradManager().attach([weight])
    for _ in range(3):
        weight.grad = None
        with gm:
            gm.backward(traced(wf.ones((3, 3))).sum())
        assert weight.grad.tolist() == [[1.0] * 3] * 3


SHARED = {
    "itself": lambda w: (w, w),
    "detached": lambda w: (w, w.detach()),
    "detached first": lambda w: (w.detach(), w),
    "a view": lambda w: (w, w[:]),
    "backwards": lambda w: (w[::-1], w),
    "a part": lambda w: (w[:1], w.detach()),
    "another one": lambda w: (w, wf.tensor([5.0, 6.0, 7.0])),
}


@pytest.mark.parametrize("dynamic", [None, {"a": 0, "b": 0}])
def test_arguments_that_share_memory_have_their_own_histories(dynamic):
    def product(a, b):
        return (a * b * b).sum()

    w = wf.tensor([1.0, 2.0, 3.0])
    gm = wf.GradManager().attach([w])

    def gradient(f, given):
        w.grad = None
        with gm:
            y = f(*given(w))
            gm.backward(y)
        return y.item(), w.grad.tolist()

    traced = wf.trace(product, dynamic=dynamic)
    for _ in range(3):
        for name, given in SHARED.items():
            assert gradient(traced, given) == gradient(product, given), name


@pytest.mark.parametrize("dynamic", [None, {0: 0}])
@pytest.mark.parametrize("in_module", [False, True])
def test_found_arrays_that_share_memory_have_their_own_histories(dynamic, in_module):
    class Net(wf.module.Module):
        def __init__(self):
            super().__init__()
            self.w = wf.module.Parameter(wf.tensor([1.0, 2.0]))
            self.fixed = self.w.detach()

        def forward(self, x):
            return (x.sum() * (self.w * 3 + self.fixed * 2)).sum()

    net = Net()
    w, fixed = net.w, net.fixed
    gm = wf.GradManager().attach([w])
    function = net if in_module else (lambda x: (x.sum() * (fixed * 2 + w * 3)).sum())
    traced = wf.trace(function, dynamic=dynamic)
    for _ in range(3):
        w.grad = None
        with gm:
            gm.backward(traced(wf.tensor([5.0, 6.0])))
        assert w.grad.tolist() == [33.0, 33.0]


def test_arguments_that_share_memory_and_are_written():
    """They are written as operations one by one write them, or refused as those are."""

    def add(a, b):
        b += 1
        return (a * 2).sum()

    traced = wf.trace(add)
    for recorded in (False, True, True):
        w, other = wf.tensor([1.0, 2.0]), wf.tensor([1.0, 1.0])
        gm = wf.GradManager().attach([other])
        with gm if recorded else wf.no_grad():
            y = traced(w, w) + other.sum()
        assert (w.tolist(), y.item()) == ([2.0, 3.0], 12.0)


@pytest.mark.parametrize("traced", [False, True])
def test_control_flow_without_gradients_has_none_where_it_gives_its_operands(traced):
    """A loop that does not run, and a branch that gives its operand, inside of no_grad()."""

    def constants(x, s):
        with wf.no_grad():
            a = wf.while_loop(lambda i, h: i < s, lambda i, h: (i + 1, h * 2), wf.zeros(()), x)[1]
            b = wf.cond(x.sum() > s, lambda x: x, lambda x: -x, x)
            _, c = wf.foreach(lambda row, h: (row, h), x, x)
        return (a + b + c + x).sum()

    x = wf.tensor([1.0, 2.0])
    f = wf.trace(constants) if traced else constants
    for s in (-1.0, 1.0, -1.0):
        gm = wf.GradManager().attach([x])
        x.grad = None
        with gm:
            gm.backward(f(x, s))
        assert x.grad.tolist() == [1.0, 1.0]


def test_a_state_that_the_first_call_of_a_training_step_makes_is_found_by_later_calls():
    """Also where the step returns the loss, whose history keeps arrays as well."""
    w, states = wf.ones(2), {}
    gm = wf.GradManager().attach([w])

    @wf.trace
    def step(x):
        with gm:
            loss = (w * x).sum()
            gm.backward(loss)
        total = states.setdefault("total", wf.zeros(2))
        total += w.grad
        w.grad = None
        return loss

    for size in (2, 2, 2, 2):
        step(wf.ones(size))
    assert states["total"].tolist() == [4.0, 4.0]
    assert len(step.programs) == 1


def test_tensors_that_a_custom_gradient_keeps_are_no_state():
    class Scaled(wf.Function):
        def forward(self, x):
            self.kept = x * 2
            return x + 1

        def backward(self, dy):
            return dy * self.kept

    f = wf.trace(lambda x: (Scaled()(x) * 3).sum(), strict=True)
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    for _ in range(4):
        x.grad = None
        with gm:
            gm.backward(f(x))
        assert x.grad.tolist() == [6.0, 12.0]
    assert len(f.programs) == 1


def through_cond(w, v, a, times, first):
    """A branch that uses an array, another one that uses it detached; which of them is found first."""
    detached, whole = (lambda: a * 1 if times else a), (lambda: w * 1 if times else w)
    y = wf.cond(v[0] < 0.1, detached, whole) if first else wf.cond(v[0] >= 0.1, whole, detached)
    return y.sum() + (v * v).sum()


def through_foreach(w, v, a, times, first):
    def body(x, s):
        return (x, s + a * x + w * times) if first else (x, s + w * x + a * times)

    return wf.foreach(body, v, w * 0)[1].sum()


def gradients_of(f, w, v):
    gm = wf.GradManager().attach([w, v])
    for _ in range(2):
        w.grad = v.grad = None
        with gm:
            gm.backward(f(w, v))
    return [wf.zeros_like(x) if x.grad is None else x.grad for x in (w, v)]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("loss", [through_cond, through_foreach])
@pytest.mark.parametrize("chosen", [0.0, 1.0])
@pytest.mark.parametrize("form", ["trace", "dynamic axes", "vjp", "step"])
def test_control_flow_that_finds_an_array_and_the_same_detached(form, chosen, loss, times, first):
    """They are one memory, and have their own gradients."""
    w, v = wf.tensor([1.0, 2.0]), wf.tensor([chosen, 3.0])
    outside = w.detach()

    def f(w, v):
        return loss(w, v, w.detach(), times, first)

    def step():
        gm = wf.GradManager().attach([w, v])
        w.grad = v.grad = None
        with gm:
            gm.backward(loss(w, v, outside, times, first))

    wanted = gradients_of(f, w, v)
    if form == "vjp":
        found = wf.vjp(f, w, v)[1](wf.tensor(1.0))
    elif form == "step":
        traced = wf.trace(step)
        traced()
        traced()
        found = [wf.zeros_like(x) if x.grad is None else x.grad for x in (w, v)]
    else:
        found = gradients_of(wf.trace(f, dynamic={"v": 0} if form == "dynamic axes" else None), w, v)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy())


class Doubled(wf.Function):
    """Gives its operand itself; its gradient is doubled."""

    def forward(self, x):
        return x

    def backward(self, dy):
        return dy * 2


@pytest.mark.parametrize("form", ["lazy step", "step", "trace", "eager"])
@pytest.mark.parametrize("chosen", [0.0, 1.0])
def test_control_flow_that_finds_an_array_and_another_one_of_its_memory(form, chosen):
    """Each has a history of its own."""
    w, v = wf.tensor([1.0, 2.0]), wf.tensor([chosen, 3.0])

    def f(w, v):
        y = Doubled()(w)
        return wf.cond(v[0] < 0.1, lambda x: x, lambda x: y, w).sum() + (v * v).sum()

    gm = wf.GradManager().attach([w, v])

    def step():
        w.grad = v.grad = None
        with gm:
            gm.backward(f(w, v))

    if form == "trace":
        gradients_of(wf.trace(f), w, v)
    elif form == "step":
        traced = wf.trace(step)
        traced()
        traced()
    elif form == "lazy step":
        with wf.lazy():
            step()
    else:
        step()
    assert w.grad.tolist() == ([1.0, 1.0] if chosen == 0.0 else [2.0, 2.0])
    assert v.grad.tolist() == [2 * chosen, 6.0]


def test_a_trace_of_more_launches_than_a_lazy_segment_has(monkeypatch):
    """Its record is not cut: a gradient goes through all of it, in the first call as in the second."""
    monkeypatch.setattr("weft.traces.lazy.LAUNCHES", 5)
    w, v = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 1.0])

    @wf.trace
    def f(w, v):
        y = w * v
        for _ in range(10):
            y = F.sqrt(y * y) * 1.5
        return y.sum()

    def step():
        w.grad = v.grad = None
        with wf.GradManager().attach([w, v]) as gm:
            gm.backward(f(w, v))

    for _ in range(2):
        step()
        np.testing.assert_allclose(w.grad.numpy(), v.numpy() * 1.5**10, rtol=1e-5)
        np.testing.assert_allclose(v.grad.numpy(), w.numpy() * 1.5**10, rtol=1e-5)


class SineOfNumpy(wf.Function):
    """Computes with another library, forward and backward."""

    def forward(self, x):
        self.x = x
        return wf.asarray(np.sin(x.numpy()))

    def backward(self, dy):
        return wf.asarray(np.cos(self.x.numpy()) * dy.numpy())


class Selects(wf.Function):
    """Its result is an array of NumPy that does not depend on its input, or shares no history with it."""

    def forward(self, x):
        return wf.asarray(np.array([1.0, 2.0], "float32"))

    def backward(self, dy):
        return dy * 3


@pytest.mark.parametrize("lazy", [False, True], ids=["eager_first", "lazy"])
@pytest.mark.parametrize("of", [SineOfNumpy, Selects])
def test_functions_of_other_libraries_in_traces(of, lazy):
    def loss(w):
        return (of()(w * 2) * w).sum()

    def step():
        with gm:
            gm.backward(loss(w))
        found, w.grad = w.grad, None
        return found

    w = wf.tensor([0.5, -1.5])
    gm = wf.GradManager().attach(w)
    value, gradient = loss(w), step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced_loss, traced_step = wf.trace(loss, lazy=lazy), wf.trace(step, lazy=lazy)
        for _ in range(3):
            np.testing.assert_allclose(traced_loss(w).numpy(), value.numpy(), rtol=1e-6)
            np.testing.assert_allclose(traced_step().numpy(), gradient.numpy(), rtol=1e-6)
            np.testing.assert_allclose(wf.grad(traced_loss)(w).numpy(), gradient.numpy(), rtol=1e-6)
