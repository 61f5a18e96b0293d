"""GradManager, grad, value_and_grad, no_grad, Function, recompute; what is recorded and for how long."""

import collections
import gc
import time

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.errors import DTypeError, ShapeError
from weft.ops.op import Op


def near(x, want):
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-6, atol=1e-6)


# GradManager.


def test_gradients_are_added_to_grad():
    x, w = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    gm = wf.GradManager().attach([x, w])
    assert gm.attached_tensors()[0] is x
    assert x.grad is None
    for k in (1, 2):
        with gm:
            gm.backward((x * w * w).sum())
        near(x.grad, k * np.array([9.0, 16.0]))
        near(w.grad, k * np.array([6.0, 16.0]))
    x.grad = None
    assert x.grad is None
    with pytest.raises(ShapeError, match="shape"):
        x.grad = wf.zeros(3)


def test_only_what_is_attached_and_reached_has_a_gradient():
    x, y, z = (wf.tensor([k + 1.0]) for k in range(3))
    gm = wf.GradManager().attach([x, z])
    with gm:
        loss = (x * y).sum()
        gm.backward(loss)
    near(x.grad, [2.0])
    assert y.grad is None
    assert z.grad is None


def test_given_slopes_and_several_values():
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(x)
    with gm:
        gm.backward(x * x, wf.tensor([1.0, 10.0]))
    near(x.grad, [2.0, 40.0])
    x.grad = None
    with gm:
        gm.backward([x * 2, x * x], [wf.tensor([1.0, 0.0]), wf.tensor([0.0, 1.0])])
    near(x.grad, [2.0, 4.0])
    with gm, pytest.raises(ShapeError, match="shape"):
        gm.backward(x * 2, wf.zeros(3))
    with gm, pytest.raises(ValueError, match="gradients"):
        gm.backward([x * 2, x], [wf.zeros(2)])


def test_callbacks():
    x = wf.tensor([1.0])
    seen = []
    gm = wf.GradManager()
    gm.attach(x, lambda tensor, slope: seen.append((tensor is x, slope.item())))
    gm.attach(x, [lambda _, slope: slope * 2, lambda _, slope: slope + 1])
    with gm:
        gm.backward(x * 5)
    assert seen == [(True, 5.0)]
    near(x.grad, [11.0])


def test_wrong_use():
    gm = wf.GradManager()
    with pytest.raises(TypeError, match="expected tensors"):
        gm.attach([3.0])
    with pytest.raises(DTypeError, match="floating-point"):
        gm.attach(wf.tensor([1]))
    with pytest.raises(RuntimeError, match="does not record"):
        gm.backward(wf.tensor([1.0]))
    with gm, pytest.raises(RuntimeError, match="already"):
        gm.record()


def test_attaching_while_recording():
    x = wf.tensor([2.0])
    with wf.GradManager() as gm:
        gm.attach(x)
        gm.backward(x * x)
    near(x.grad, [4.0])


def test_release_and_exceptions_end_recording():
    x = wf.tensor([2.0])
    gm = wf.GradManager().attach(x)
    gm.record()
    assert x.requires_grad
    gm.release()
    gm.release()
    assert not x.requires_grad
    with pytest.raises(ZeroDivisionError), gm:
        _ = (x * x).item() // 0
    assert not x.requires_grad
    assert not (x * x).requires_grad
    with gm, pytest.raises(ShapeError):
        _ = x + wf.zeros((2, 3)) + wf.zeros(7)
    with gm:
        gm.backward(x * x)
    near(x.grad, [4.0])


def test_backward_ends_recording():
    x = wf.tensor([2.0])
    gm = wf.GradManager().attach(x)
    with gm:
        gm.backward(x * x)
        assert not x.requires_grad
        with pytest.raises(RuntimeError, match="does not record"):
            gm.backward(x * x)


def test_managers_nest_to_third_order():
    x = wf.tensor([2.0])
    third, second, first = (wf.GradManager().attach(x) for _ in range(3))
    with third:
        with second:
            with first:
                y = x * x * x * x
                first.backward(y)
            d1 = x.grad
            near(d1, [32.0])
            x.grad = None
            second.backward(d1)
        d2 = x.grad
        near(d2, [48.0])
        x.grad = None
        third.backward(d2)
    near(x.grad, [48.0])  # 24 x


def test_second_order_through_what_a_gradient_does_not_keep():
    """A cube with a hidden square: the square's gradient reads x, which the cube's does not keep."""

    class CubeOfTests(Op):
        outputs, hidden = ("y", "square"), 1

        def infer(self, x):
            return x.like(), x.like()

        def decompose(self, x):
            return x * x * x, x * x

        def vjp(self, x, square, dy, dsquare):
            return dy * square * 3 if dsquare is None else dy * square * 3 + dsquare * x * 2

    cube = CubeOfTests.make_function()
    x = wf.tensor([2.0])
    near(wf.grad(lambda x: cube(x).sum())(x), [12.0])
    with pytest.raises(NotImplementedError, match=r"cube_of_tests: called at .* reads input 0, .*not keep"):
        wf.grad(lambda x: wf.grad(lambda x: cube(x).sum())(x).sum())(x)


def test_a_view_whose_recording_fails_is_counted_out():
    """The Tensor that a failed call has begun shows x's memory no longer, so x can be written in place."""
    is_failing = False

    class TurnedOfTests(Op):
        def infer(self, x, w):
            return x.like(tuple(reversed(x.shape)))

        def decompose(self, x, w):
            return F.permute_dims(x, (1, 0))

        def vjp(self, x, w, y, dy):
            if is_failing:
                raise ValueError("no gradient today")
            return dy.T, None

    turned = TurnedOfTests.make_function()
    x, w = wf.ones((3, 2)), wf.ones((3, 2))
    with wf.GradManager().attach([x, w]):
        turned(x, w)
    is_failing = True
    with wf.GradManager().attach([x]) as manager:
        with pytest.raises(ValueError, match="no gradient today"):
            turned(x, wf.ones((3, 2)))  # another set of gradients, whose plan is made after the launch
        x += 1
        manager.backward(x.sum())
    near(x.grad, np.ones((3, 2)))


def test_gradient_penalty():
    """A loss with a gradient in it, by two managers."""
    x, w = wf.tensor([1.0, 2.0]), wf.tensor([3.0, -1.0])
    outer, inner = wf.GradManager().attach(w), wf.GradManager().attach(x)
    with outer:
        with inner:
            inner.backward((w * x * x).sum())
        outer.backward((x.grad * x.grad).sum())  # (2 w x)^2
    near(w.grad, 8 * np.array([3.0, -1.0]) * np.array([1.0, 4.0]))


# grad and value_and_grad.


def test_argnums_and_aux():
    def f(a, b, scale=1.0):
        return (a * b * scale).sum(), "more"

    a, b = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    da, db = wf.grad(lambda a, b: f(a, b)[0], (0, 1))(a, b)
    near(da, [3, 4])
    near(db, [1, 2])
    near(wf.grad(lambda a, b: f(a, b)[0], 1)(a, b), [1, 2])
    slope, more = wf.grad(f, has_aux=True)(a, b, scale=2.0)
    assert more == "more"
    near(slope, [6, 8])
    (value, more), slope = wf.value_and_grad(f, has_aux=True)(a, b)
    assert (value.item(), more) == (11.0, "more")
    near(slope, [3, 4])
    near(wf.grad(lambda a, b: a.sum(), 1)(a, b), [0, 0])
    assert not a.requires_grad


def test_grad_refuses():
    with pytest.raises(ShapeError, match="one number"):
        wf.grad(lambda x: x)(wf.zeros(2))
    for wrong, name in (("2.0", "str"), ([wf.ones(1), "a"], "str in a list"), ({"x": {1}}, "set in a dict")):
        with pytest.raises(TypeError, match=f"argument 0 must be an array or a float, .* got {name}$"):
            wf.grad(lambda x: x)(wrong)
    for wrong, held in (
        (wf.tensor([1]), r"i64\[1\]@(c|g)pu:0"),
        ({"n": 1, "f": True}, r"i64\[\].*, bool\[\].*"),
        ([], "no array"),
    ):
        with pytest.raises(
            DTypeError, match=f"only floating-point arrays have gradients: argument 0 holds {held}$"
        ):
            wf.grad(lambda x: x.sum())(wrong)
    with pytest.raises(
        TypeError, match="argnums must be the index of a positional argument, or several, got 'x'"
    ):
        wf.grad(lambda x: x, argnums="x")
    with pytest.raises(TypeError, match=r"got Linear\n  hint: give dict\(module.named_parameters"):
        wf.grad(lambda net: net(wf.ones(2)).sum())(wf.module.Linear(2, 2))
    with pytest.raises(ZeroDivisionError):
        wf.grad(lambda x: 1 // 0)(wf.zeros(()))
    assert wf.grad(lambda x: x * x)(wf.tensor(3.0)).item() == 6


def test_grad_nests():
    f = lambda x: F.sin(x) * x  # noqa: E731
    x = wf.tensor(0.7, dtype="float64")
    one, two, three = wf.grad(f), wf.grad(wf.grad(f)), wf.grad(wf.grad(wf.grad(f)))
    c, s = np.cos(0.7), np.sin(0.7)
    near(one(x), c * 0.7 + s)
    near(two(x), -s * 0.7 + 2 * c)
    near(three(x), -c * 0.7 - 3 * s)
    assert not x.requires_grad


def test_grad_inside_a_manager():
    x = wf.tensor(3.0)
    gm = wf.GradManager().attach(x)
    with gm:
        gm.backward(
            wf.grad(lambda t: t * t * x)(x)
        )  # of the first argument alone: 2 x x, of which the slope is 4 x
    near(x.grad, 12.0)


# no_grad, detach.


def test_no_grad():
    x = wf.tensor([1.0])

    @wf.no_grad()
    def plain(t):
        return t * 2

    with wf.GradManager().attach(x) as gm:
        with wf.no_grad(), wf.no_grad():
            assert not (x * 2).requires_grad
        assert not plain(x).requires_grad
        with pytest.raises(KeyError), wf.no_grad():
            raise KeyError
        assert (x * 2).requires_grad
        gm.backward(x * plain(x) + x.detach() * x)
    near(x.grad, [3.0])


# Function and recompute.


def test_function():
    class Scaled(wf.Function):
        def forward(self, x, k, y):
            self.k = k
            return x * k, y + x

        def backward(self, dx, dy):
            return dx * 100 + dy, dy * 7

    def f(x, y):
        a, b = Scaled()(x, 3.0, y)
        return (a + b).sum()

    x, y = wf.tensor([1.0, 2.0]), wf.tensor([0.0, 0.0])
    dx, dy = wf.grad(f, (0, 1))(x, y)
    near(dx, [101, 101])
    near(dy, [7, 7])
    a, _ = Scaled()(x, 3.0, y)
    near(a, [3, 6])
    assert not a.requires_grad


def test_function_unused_output_and_wrong_counts():
    class Two(wf.Function):
        def forward(self, x):
            return x * 2, x * 3

        def backward(self, da, db):
            near(db, [0.0, 0.0])
            return da * 2

    near(wf.grad(lambda x: Two()(x)[0].sum())(wf.zeros(2)), [2, 2])

    class Wrong(wf.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy, dy

    with pytest.raises(ValueError, match="2 gradients for 1"):
        wf.grad(lambda x: Wrong()(x).sum())(wf.zeros(2))

    class Raises(wf.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        wf.grad(lambda x: Raises()(x).sum())(wf.zeros(2))
    with pytest.raises(NotImplementedError, match="no forward"):
        wf.Function()(wf.zeros(1))


def test_function_second_order():
    class Square(wf.Function):
        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            return dy * self.x * 2

    near(wf.grad(wf.grad(lambda x: Square()(x)))(wf.tensor(3.0)), 2.0)


def test_recompute():
    calls = []

    def f(x, w):
        calls.append(1)
        return F.tanh(x * w)

    x, w = wf.tensor([0.5, 1.0]), wf.tensor([2.0, 3.0])
    want = wf.grad(lambda x, w: f(x, w).sum(), (0, 1))(x, w)
    calls.clear()
    got = wf.grad(lambda x, w: wf.recompute(f, x, w).sum(), (0, 1))(x, w)
    assert len(calls) == 2
    for g, h in zip(got, want, strict=True):
        near(g, h.numpy())


def test_recompute_draws_the_same_numbers():
    x = wf.ones((64,))
    wf.random.seed(3)
    seen = []

    def f(x):
        y = F.dropout(x, 0.5)
        seen.append(y.detach().numpy().copy())
        return y.sum()

    slope = wf.grad(lambda x: wf.recompute(f, x))(x)
    assert len(seen) == 2
    np.testing.assert_array_equal(seen[0], seen[1])
    near(slope, seen[0])


def test_recompute_second_order():
    f = lambda x: x * x * x  # noqa: E731
    near(wf.grad(wf.grad(lambda x: wf.recompute(f, x)))(wf.tensor(2.0)), 12.0)


# What was overwritten.


def test_saved_values_that_were_overwritten():
    x, w = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    gm = wf.GradManager().attach(x)
    with gm:
        y = x * w  # used here
        w += 1  # overwritten here
        with pytest.raises(ValueError, match=r"multiply.*input 1.*overwritten") as caught:
            gm.backward(y)
    text = str(caught.value)
    assert text.count("test_gradient.py:") == 2, text
    lines = [int(part.split("test_gradient.py:")[1].split()[0].rstrip(":")) for part in text.split("\n")[1:3]]
    assert lines[1] == lines[0] + 1
    with gm:
        gm.backward(x * w)
    near(x.grad, [4.0, 5.0])


@pytest.mark.parametrize("change", ["output", "item", "view"])
def test_other_ways_to_overwrite(change):
    x = wf.tensor([1.0, 2.0])
    with wf.GradManager().attach(x) as gm:
        y = F.exp(x)  # its gradient reads y
        if change == "output":
            with wf.no_grad():
                y *= 2
        elif change == "item":
            with wf.no_grad():
                y[0] = 5
        else:
            with wf.no_grad():
                y[1:][...] = 7
        with pytest.raises(ValueError, match=r"output 0.*overwritten"):
            gm.backward(y.sum())


def test_what_no_gradient_reads_may_be_overwritten():
    x, b = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    with wf.GradManager().attach(x) as gm:
        y = x + b
        b += 1
        gm.backward(y * 3)
    near(x.grad, [3.0, 3.0])


# In-place updates of what is recorded, and views.


def test_in_place_on_a_recorded_tensor():
    x = wf.tensor([1.0, 2.0])
    with wf.GradManager().attach(x) as gm:
        y = x * 3
        y += x
        y *= 2
        gm.backward(y.sum())
    near(x.grad, [8.0, 8.0])


def test_in_place_that_needs_the_old_value():
    """y *= z reads the old y for z's gradient: right, or refused."""
    x = wf.tensor([1.0, 2.0])
    with wf.GradManager().attach(x) as gm:
        y = x * 3
        try:
            y *= x
            gm.backward(y.sum())
        except ValueError as error:
            assert "overwritten" in str(error)  # noqa: PT017
            return
    near(x.grad, 6 * np.array([1.0, 2.0]))


def right_or_refused(update, want):
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(x)
    with gm:
        try:
            gm.backward(update(x))
        except (ValueError, RuntimeError) as error:
            assert "in place" in str(error) or "overwritten" in str(error) or "view" in str(error)  # noqa: PT017
            return
    near(x.grad, want)


def test_in_place_through_a_view():
    """Writing to a view of a recorded tensor changes it: the gradient knows, or there is an error."""

    def update(x):
        y = x * 3
        v = y[0:1]
        v *= 10
        return y.sum()

    right_or_refused(update, [30.0, 3.0])


def test_in_place_under_a_view():
    def update(x):
        y = x * 3
        v = y[0:1]
        y *= 10
        return v.sum()

    right_or_refused(update, [30.0, 0.0])


def test_assigning_to_items():
    def update(x):
        y = x * 3
        y[0] = 1.0
        return y.sum()

    right_or_refused(update, [0.0, 3.0])


def test_assigning_a_recorded_value():
    def update(x):
        y = wf.zeros(2)
        y[0:1] = x[1:2] * 5
        return y.sum()

    right_or_refused(update, [0.0, 5.0])


def test_in_place_on_a_leaf():
    """The optimizer's case: parameters are changed between recordings."""
    w = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(w)
    for _ in range(3):
        w.grad = None
        with gm:
            gm.backward((w * w).sum())
        w -= 0.25 * w.grad
    near(w, np.array([1.0, 2.0]) / 8)


VIEWS = {
    "slice": lambda x: x[1:],
    "backwards": lambda x: x[::-1],
    "new_axis": lambda x: x[:, None],
    "reshape_method": lambda x: x.reshape(3, 1),
    "reshape": lambda x: wf.reshape(x, (3, 1)),
    "broadcast_to": lambda x: wf.broadcast_to(x, (2, 3)),
    "permute_dims": lambda x: wf.permute_dims(wf.broadcast_to(x, (2, 3)), (1, 0)),
    "T": lambda x: wf.broadcast_to(x, (2, 3)).T,
    "copy": lambda x: x.copy(),
    "contiguous": lambda x: x.contiguous(),
    "astype": lambda x: x.astype("float64"),
    "array": lambda x: x[wf.tensor([2, 0, 0])],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_and_conversions_have_gradients(view):
    x = wf.tensor([1.0, 2.0, 3.0])
    weights = None

    def f(t):
        nonlocal weights
        y = view(t)
        if weights is None:
            weights = wf.tensor(np.arange(1, y.size + 1).reshape(y.shape).astype(y.dtype.numpy))
        return (y * weights).sum()

    got = wf.grad(f)(x)
    want = [f(wf.tensor(np.eye(3, dtype="float32")[k])).item() for k in range(3)]  # it is linear
    near(got, want)


# How long history lives.


def live_blocks():
    gc.collect()
    wf.waitall()
    return wf.storage.stats()["live_blocks"]


def settles_at(count, limit_s=5.0):
    """Workers let go of their last operands a moment after they can be waited for."""
    end = time.monotonic() + limit_s
    while live_blocks() > count:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.processor("counts the blocks of cpu:0")
def test_unused_results_free_their_history():
    x = wf.ones((64, 64))
    with wf.GradManager().attach(x):
        F.exp(x)
        before = live_blocks()
        y = F.exp(x)
        for _ in range(50):
            y = F.tanh(y * y)
        assert live_blocks() >= before + 50  # tanh's gradient reads its result, and so on
        del y
        assert settles_at(before)


def test_backward_frees_what_it_went_through():
    x = wf.ones((64, 64))
    F.tanh(x)
    before = live_blocks()
    with wf.GradManager().attach(x) as gm:
        y = x
        for _ in range(50):
            y = F.tanh(y * y)
        gm.backward(y)
    del gm
    x.grad = None
    assert settles_at(before + 1)  # y itself
    del y
    assert settles_at(before)


def test_long_chains():
    x = wf.tensor([1.0])
    with wf.GradManager().attach(x) as gm:
        y = x
        for _ in range(100_000):
            y = y + x
        gm.backward(y)
    near(x.grad, [100_001.0])
    del y
    with wf.GradManager().attach(x):
        y = x
        for _ in range(100_000):
            y = y * 1
        del y  # unused: goes without a walk on the stack


# Threads.


def test_threads(in_threads):
    def run(k):
        for _ in range(20):
            x = wf.tensor([float(k), 2.0])
            gm = wf.GradManager().attach(x)
            with gm:
                gm.backward((x * x * x).sum())
            near(x.grad, 3 * np.array([k, 2.0]) ** 2)
            near(wf.grad(wf.grad(lambda t: t * t * t))(wf.tensor(float(k))), 6.0 * k)
            with wf.no_grad():
                assert not _core.is_recording()

    in_threads(run, range(8))
    assert _core.is_recording()


# Structures of arguments.


def test_grad_of_structures():
    p = {
        "w": np.ones(3, np.float32),
        "rate": 2.0,
        "none": None,
        "steps": wf.tensor(3),
        "l": [wf.ones(2), (wf.ones(1),)],
    }

    def f(p, x):
        return (p["w"] * x).sum() * p["rate"] + p["l"][0].sum() * p["steps"]

    def check(dp):
        assert list(dp) == list(p)
        near(dp["w"], [2, 2, 2])
        near(dp["rate"], 3)
        assert dp["none"] is None
        assert dp["steps"] is None
        near(dp["l"][0], [3, 3])
        near(dp["l"][1][0], [0])

    x = wf.ones(3)
    check(wf.grad(f)(p, x))
    value, (dp, dx) = wf.value_and_grad(f, argnums=(0, -1))(p, x)
    check(dp)
    near(dx, [2, 2, 2])
    assert value.item() == 12
    dp, aux = wf.grad(lambda p: (f(p, x), "aux"), has_aux=True)(p)
    check(dp)
    assert aux == "aux"
    near(wf.grad(lambda p: (wf.grad(f)(p, x)["w"] ** 2).sum())(p)["rate"], 12)
    arrays = wf.tree_map(wf.asarray, p)
    check(wf.trace(wf.grad(f))({**arrays}, x))
    del arrays["none"]
    per_example = wf.vmap(wf.grad(f), in_axes=(None, 0))(arrays, wf.ones((4, 3)))
    assert per_example["l"][0].shape == (4, 2)
    near(per_example["rate"], [3, 3, 3, 3])


def test_grad_of_numbers_and_numpy():
    assert wf.grad(lambda x: x * x)(3.0).item() == 6
    a = np.array([1.0, 2.0])
    slope = wf.grad(lambda x: (x * x).sum())(a)
    assert slope.dtype is wf.float64
    near(slope, [2, 4])
    assert wf.vjp(lambda x: x * x, a)[1](a)[0].numpy().tolist() == [2, 8]
    assert wf.jvp(lambda x: x * x, (a,), (a,))[1].numpy().tolist() == [2, 8]


def test_tree_map():
    Pair = collections.namedtuple("Pair", "a b")
    tree = {"x": Pair(1, [2, 3]), "y": (4, None)}
    other = {"y": (40, 50), "x": Pair(10, [20, 30])}
    assert wf.tree_map(lambda a, b: a + b, tree, other) == {"x": Pair(11, [22, 33]), "y": (44, None)}
    assert wf.tree_leaves(tree) == [1, 2, 3, 4]
    assert wf.tree_map(lambda x: x, 5) == 5
    for wrong, error, words in (
        ({"x": Pair(1, [2]), "y": (4, 5)}, ValueError, r"differ at \['x'\]\[1\]: 2 and 1 items"),
        ({"x": Pair(1, [2, 3])}, ValueError, r"differ: keys \['x', 'y'\] and \['x'\]"),
        ({"x": [1, [2, 3]], "y": (4, 5)}, TypeError, r"expected a Pair at \['x'\], got list"),
    ):
        with pytest.raises(error, match=words):
            wf.tree_map(lambda a, b: a, tree, wrong)


# NumPy inside of a function that grad differentiates.


HOST_MEMORY = pytest.mark.processor("shares the host's memory")


@pytest.mark.parametrize(
    "export",
    [
        lambda w: w.numpy(),
        np.asarray,
        np.linalg.norm,
        pytest.param(lambda w: np.array(memoryview(w)), marks=HOST_MEMORY),
    ],
    ids=["numpy()", "asarray", "norm", "memoryview"],
)
def test_numpy_inside_of_grad_warns_once(export, monkeypatch):
    monkeypatch.setattr("weft.arrays.tensor._warned_lines", set())

    def f(w):
        return (w * wf.asarray(export(w))).sum()

    with pytest.warns(
        UserWarning, match=r"gives an array to NumPy; .*\n  at .*test_gradient.py:\d+\n  hint: "
    ) as caught:
        wf.grad(f)(wf.ones(2))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    wf.grad(f)(wf.ones(2))  # not again


def test_what_numpy_may_see_inside_of_grad():
    class Doubled(wf.Function):
        def forward(self, x):
            return wf.asarray(x.numpy() * 2)

        def backward(self, dy):
            return dy * 2

    def f(w):
        constant = w.detach().numpy().max() + w.tolist()[0] + w[0].item()
        with wf.no_grad():
            constant += w.numpy()[0]
        assert "tensor" in repr(w)
        return (Doubled()(w) * float(constant)).sum()

    assert wf.grad(f)(wf.ones(2)).numpy().tolist() == [8, 8]
    w = wf.ones(2)
    with wf.GradManager().attach(w):
        (w * 2).numpy()  # a manager's steps log


def test_requires_grad_cannot_be_set():
    with pytest.raises(
        AttributeError, match=r"cannot be set\n  hint: attach to a weft.GradManager what is trained"
    ):
        wf.ones(2).requires_grad = True


def test_attaching_a_module():
    net = wf.module.Linear(2, 1)
    gm = wf.GradManager().attach(net)
    with gm:
        gm.backward(net(wf.ones((3, 2))).sum())
    assert net.weight.grad.numpy().tolist() == [[3, 3]]
    with pytest.raises(TypeError, match="attach: expected tensors, or one module, got Linear"):
        gm.attach([net])
