"""What functions may do, by each way to record them: the same results and effects as eagerly, or an entry in REFUSED.

A feature is a function of an array [4, 3]; a mechanism makes another program of it, which runs eagerly and recorded.
"""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.base.structure import flatten

X = np.arange(12, dtype="float32").reshape(4, 3) / 7 + 0.25


class CapturedEnvironment:
    """What features find elsewhere; made for each run."""

    def __init__(self):
        self.w = wf.tensor([1.0, 2.0, 3.0])
        self.part = self.w[1:]
        self.mean, self.var = wf.zeros(3), wf.ones(3)
        self.count = 0

    def arrays(self):
        return [self.w, self.part, self.mean, self.var]


# Features: functions of (surroundings, x).


def in_place(_, x):
    y = x * 2
    y += x
    y *= y
    return y


def to_argument(_, x):
    x += 1
    return x * 2


def to_part_of_argument(_, x):
    x[0] = x[1] * 3
    x[:, 1] -= 0.5
    return x.sum()


def items(_, x):
    y = x * 2
    y[0] = 5
    y[:, 1] = x[:, 0]
    y[[0, 1]] = x[1]
    y[-1, ::2] += x[0, 0]
    return y


def through_views(_, x):
    y = x + 1
    y.T[0] = 1
    y.reshape(-1)[3:5] = 0
    row = y[1]
    row *= 2
    y[::-1][0] = row
    return y, row


def views_see_writes(_, x):
    y = x * 1
    view, columns, flat = y[1:], y.T, F.flatten(y)
    y += 1
    y[1] = 0
    return view, columns * 2, flat


def view_of_argument(_, x):
    row = x[1]
    x *= 2
    row += 1
    return x + 0, row * 1


def reshaped_copy(_, x):
    y = x * 1
    flat = y.T.reshape(-1)  # a copy: no strides show it
    y += 1
    return flat, y


def captured(s, x):
    s.w += x[0]
    s.w[1] = 7
    return s.w * x[1]


def captured_through_a_view(s, x):
    s.w *= 2
    s.part += x[0, 0]
    return s.w + x[0], s.part * 1


def detached(_, x):
    y = x * 3
    z = y.detach()
    y += 1
    return z, y


def exchanged(_, x):
    y = x * 1
    y[0], y[1] = y[1] * 1, y[0] * 1
    return y


def same_content_two_arrays(_, x):
    y = x * 2
    z = wf.zeros(x.shape[1:])
    z[...] = y[0]
    y[0] = 9
    z += 1
    return y, z


def draws(_, x):
    return x + wf.random.uniform(0, 1, (3,)), F.dropout(x, 0.5, training=True)


def statistics(s, x):
    return F.batch_norm(x.reshape(-1, 3), s.mean, s.var, training=True)


def gradient(_, x):
    return wf.grad(lambda t: (t * t * t).sum())(x)


def gradient_of_writes(s, x):
    def loss(t):
        y = t * 2
        y += t
        y[0] = t[1] * s.w
        y[1:, 0] = y[1:, 1] + t[0, 0]
        return (y * y).sum()

    return wf.grad(loss)(x)


def without_gradient(_, x):
    def loss(t):
        y = t * 2
        with wf.no_grad():
            y *= 3
        return (y * t).sum()

    return wf.grad(loss)(x)


def recomputed(_, x):
    def inner(t):
        y = t * 2
        y += 1
        return y * t

    return wf.recompute(inner, x)


class Own(wf.Function):
    def forward(self, x):
        y = x * 2
        y[0] = 1
        return y

    def backward(self, dy):
        dx = dy * 3
        dx[0] = 0
        return dx


def custom_vjp(_, x):
    return wf.grad(lambda t: (Own()(t) * t).sum())(x)


def manager(s, x):
    gm = wf.GradManager().attach([s.w])
    with gm:
        gm.backward((s.w * s.w * x[0]).sum())
    found, s.w.grad = s.w.grad, None
    return found


def numbers(_, x):
    return x * x.shape[1], x.shape[1], None, (x.ndim, "text")


def branch(_, x):
    def then(t):
        t += 1
        return t * 2

    y = x * 1
    z = wf.cond(x[0, 0] > 0, then, lambda t: t, y)
    return y, z


def loop(_, x):
    total = wf.zeros(3)

    def body(row, s):
        s += row
        row *= 2
        return s * 1, s

    outputs, last = wf.foreach(body, x, total)
    return outputs, last, total


def while_loop(_, x):
    y = x * 1

    def body(k, t):
        t *= 2
        return k + 1, t

    return wf.while_loop(lambda k, t: k < 3, body, wf.tensor(0), y, max_iterations=4)[1], y


FEATURES = [
    in_place,
    to_argument,
    to_part_of_argument,
    items,
    through_views,
    views_see_writes,
    view_of_argument,
    reshaped_copy,
    captured,
    captured_through_a_view,
    detached,
    exchanged,
    same_content_two_arrays,
    draws,
    statistics,
    gradient,
    gradient_of_writes,
    without_gradient,
    recomputed,
    custom_vjp,
    manager,
    numbers,
    branch,
    loop,
    while_loop,
]


# Mechanisms: (program of a feature, how it is recorded). The program runs eagerly for comparison.


def arrays_of(made):
    """The arrays of a result, for mechanisms that take no others."""
    return [x for x in flatten(made)[0] if hasattr(x, "shape")]


def plain(feature, s):
    return lambda x: feature(s, x)


def in_branch(feature, s):
    return lambda x: wf.cond(
        x[0, 0] > -100, lambda x: arrays_of(feature(s, x)), lambda x: arrays_of(feature(s, x)), x
    )


def in_foreach(feature, s):
    return lambda x: wf.foreach(lambda row, n: (arrays_of(feature(s, row)), n), wf.stack([x, x + 1]), ())[0]


def in_while(feature, s):
    def body(k, x, y):
        return k + 1, x, y + sum(y.astype("float32").sum() for y in arrays_of(feature(s, x)))

    return lambda x: wf.while_loop(
        lambda k, *_: k < 2, body, wf.tensor(0), x, wf.tensor(0.0), max_iterations=2
    )


def in_recompute(feature, s):
    return lambda x: wf.recompute(lambda x: arrays_of(feature(s, x)), x)


def in_function(feature, s):
    class Wrapped(wf.Function):
        def forward(self, x):
            return arrays_of(feature(s, x))

        def backward(self, *dy):
            return dy[0].sum()

    return lambda x: Wrapped()(x)


def differentiated(feature, s):
    """The gradient of a feature on an array of its own, which it may write."""
    return lambda x: wf.grad(lambda t: sum((y * y).sum() for y in floats_of(feature(s, t * 1))))(x)


def differentiated_in_branch(feature, s):
    def loss(t):
        made = wf.cond(
            t[0, 0] > -100, lambda t: floats_of(feature(s, t)), lambda t: floats_of(feature(s, t)), t * 1
        )
        return sum((y * y).sum() for y in made)

    return lambda x: wf.grad(loss)(x)


def differentiated_in_foreach(feature, s):
    def body(t, n):
        return sum((y * y).sum() for y in floats_of(feature(s, t * 1))), n

    return lambda x: wf.grad(lambda t: wf.foreach(body, wf.stack([t, t + 1]), ())[0].sum())(x)


def floats_of(made):
    return [y for y in arrays_of(made) if y.dtype.kind == "float"]


def traced(function):
    return wf.trace(function, strict=True)


def traced_eagerly(function):
    return wf.trace(function, strict=True, lazy=False)


def dynamic(function):
    return wf.trace(function, dynamic={0: 0})


def lazy(function):
    def run(x):
        with wf.lazy():
            return function(x)

    return run


def pulled(function):
    return lambda x: wf.vjp(lambda x: arrays_of(function(x)), x)[0]


MECHANISMS = {
    "trace": (plain, traced),
    "trace, not lazy": (plain, traced_eagerly),
    "lazy": (plain, lazy),
    "dynamic": (plain, dynamic),
    "cond": (in_branch, traced),
    "foreach": (in_foreach, traced),
    "while_loop": (in_while, traced),
    "recompute": (in_recompute, traced),
    "Function": (in_function, traced),
    "dynamic cond": (in_branch, dynamic),
    "dynamic foreach": (in_foreach, dynamic),
    "vjp": (plain, pulled),
}

# What is refused: {(mechanism, feature): what the error says}.
REFUSED = {
    # A gradient is there or is None, which an operator cannot give for one run of a body and not for another.
    ("cond", "manager"): "it sets the grad of an array",
    ("foreach", "manager"): "it sets the grad of an array",
    ("while_loop", "manager"): "it sets the grad of an array",
    ("dynamic cond", "manager"): "it sets the grad of an array",
    ("dynamic foreach", "manager"): "it sets the grad of an array",
    ("vjp", "manager"): "it sets the grad of an array",
    # Nothing is recorded inside of these, on arrays, either.
    ("recompute", "manager"): "nothing of y was recorded",
    ("Function", "manager"): "nothing of y was recorded",
}


def ran(way, feature, is_recorded):
    """Results and effects of three calls: of one size, the same, another."""
    make, record = way
    s = CapturedEnvironment()
    function = make(feature, s)
    function = record(function) if is_recorded else function
    found = []
    wf.random.seed(3)
    for n in (4, 4, 3):
        x = wf.tensor(X[:n])
        made = function(x)
        leaves = flatten(made)[0]
        found += [y.numpy() if hasattr(y, "numpy") else y for y in (*leaves, x, *s.arrays())]
        found.append([None if y.grad is None else y.grad.numpy() for y in s.arrays()])
    return found


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_feature_by_a_mechanism(mechanism, feature):
    if (reason := REFUSED.get((mechanism, feature.__name__))) is not None:
        with pytest.raises((ValueError, NotImplementedError), match=reason):
            ran(MECHANISMS[mechanism], feature, True)
        return
    wanted = ran(MECHANISMS[mechanism], feature, False)
    if mechanism == "vjp":
        wanted = [y for y in wanted if not isinstance(y, int | str) and y is not None]
    for mine, theirs in zip(ran(MECHANISMS[mechanism], feature, True), wanted, strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        elif not isinstance(theirs, list):
            assert mine == theirs


def test_the_table_of_what_is_refused_is_short():
    names = {f.__name__ for f in FEATURES}
    assert all(mechanism in MECHANISMS and feature in names for mechanism, feature in REFUSED)
    assert len(REFUSED) < 10


GRADIENTS = {
    "trace": (differentiated, traced),
    "dynamic": (differentiated, dynamic),
    "foreach": (differentiated_in_foreach, traced),
    "dynamic cond": (differentiated_in_branch, dynamic),
    "dynamic foreach": (differentiated_in_foreach, dynamic),
}
WITH_EAGER_GRADIENTS = [
    to_argument,
    reshaped_copy,
    exchanged,
    same_content_two_arrays,
    draws,
    statistics,
    gradient,
    gradient_of_writes,
    without_gradient,
    recomputed,
    custom_vjp,
]


@pytest.mark.parametrize("feature", WITH_EAGER_GRADIENTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mechanism", GRADIENTS)
def test_a_gradient_by_a_mechanism(mechanism, feature):
    """It is the eager one."""
    make, record = GRADIENTS[mechanism]
    pairs = zip(ran((make, record), feature, True), ran((make, record), feature, False), strict=True)
    for mine, theirs in pairs:
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


# Eager arrays refuse gradients through some of these, because views do not know each other; Values know.
SMOOTH = [
    in_place,
    to_argument,
    to_part_of_argument,
    items,
    through_views,
    views_see_writes,
    view_of_argument,
    reshaped_copy,
    captured,
    captured_through_a_view,
    exchanged,
    same_content_two_arrays,
    branch,
    loop,
    while_loop,
]


def losses(feature, mechanism):
    """The loss of a function of X whose gradient a mechanism gives; each call begins with the same surroundings."""

    def plainly(t):
        s = CapturedEnvironment()
        made = feature(s, t * 1)
        return sum((y * y).sum() for y in floats_of(made))

    return (
        plainly
        if mechanism == "dynamic"
        else lambda t: (
            wf.foreach(lambda t, n: (plainly(t), n), wf.stack([t, t * 2]), ())[0].sum()
            if mechanism == "foreach"
            else wf.cond(t[0, 0] > -100, plainly, plainly, t)
        )
    )


@pytest.mark.parametrize("feature", SMOOTH, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mechanism", ["dynamic", "foreach", "cond"])
def test_a_gradient_is_that_of_differences(mechanism, feature):
    loss = losses(feature, mechanism)
    slope = wf.trace(wf.grad(loss), dynamic={0: 0})(wf.tensor(X)).numpy()
    step = 1 / 64
    for k in np.ndindex(X.shape):
        above, below = X.copy(), X.copy()
        above[k] += step
        below[k] -= step
        wanted = (loss(wf.tensor(above)).item() - loss(wf.tensor(below)).item()) / (2 * step)
        assert slope[k] == pytest.approx(wanted, rel=2e-2, abs=0.1)


def test_numbers_of_earlier_calls_are_not_in_a_recording():
    """The number of the first call, of another type, would not fit these."""
    mask = wf.tensor([False, True, True])
    F.masked_fill(wf.ones(3), mask, -1e9)
    x = wf.tensor([0, 0, 1], dtype="uint64")
    assert F.masked_fill(x, mask, 3).tolist() == [0, 3, 3]
    assert wf.trace(lambda x: F.masked_fill(x, mask, 3))(x).tolist() == [0, 3, 3]
