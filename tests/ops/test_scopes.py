"""Plans of one operator for many sizes: those that a rule can serve, and what becomes of wrong calls."""

import numpy as np
import pytest
from tests.ops.support import assert_near

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.errors import ShapeError


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def planned(call):
    """How often the planner was asked."""
    before = _core.operator_counters()["planner_calls"]
    call()
    wf.waitall()
    return _core.operator_counters()["planner_calls"] - before


def drawn(rng, *shape, dtype="float32"):
    return wf.tensor(rng.standard_normal(shape), dtype=dtype)


CASES = {  # the shapes of operands for three sizes
    "matrices": lambda m, k, n: ((m, k), (k, n)),
    "a batch": lambda m, k, n: ((5, m, k), (k, n)),
    "batches": lambda m, k, n: ((5, 1, m, k), (4, k, n)),
    "a row": lambda m, k, n: ((k,), (k, n)),
    "a column": lambda m, k, n: ((m, k), (k,)),
    "one row": lambda m, k, n: ((1, k), (k, n)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_products_of_new_sizes_are_not_planned(rng, case, dtype):
    def product(m, k, n):
        a, b = (drawn(rng, *shape, dtype=dtype) for shape in CASES[case](m, k, n))
        count = planned(lambda: a @ b)
        wide = [x.astype("float32").numpy() for x in (a, b)]
        assert_near((a @ b).astype("float32"), wide[0] @ wide[1], dtype=dtype)
        return count

    product(7, 9, 11)
    assert [product(*sizes) for sizes in ((6, 8, 12), (13, 40, 2), (2, 3, 9))] == [0, 0, 0]


def test_sizes_that_are_equal_have_a_plan_of_their_own(rng):
    a = [drawn(rng, n, n) for n in (6, 7, 8)]
    a[0] @ a[0]
    assert planned(lambda: a[1] @ a[1]) == 0
    for x in a:
        assert_near(x @ x, x.numpy() @ x.numpy())


@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_new_sizes_with_gradients(rng, bias):
    def step(batch, k, n):
        x, w, b = drawn(rng, batch, k), drawn(rng, n, k), drawn(rng, n)
        given = [x, w, b] if bias else [x, w]
        with wf.GradManager().attach(given) as manager:
            y = F.linear(*given)
            manager.backward(y, wf.ones_like(y))
        ones = np.ones((batch, n), "float32")
        wanted = [ones @ w.numpy(), ones.T @ x.numpy(), ones.sum(0)]
        for found, want in zip(given, wanted, strict=False):
            assert_near(found.grad, want)

    step(5, 7, 9)
    step(3, 4, 6)
    assert planned(lambda: step(6, 8, 11)) == 0


ODD = {
    "repeated rows": lambda x: F.broadcast_to(x[:1], x.shape),
    "repeated columns": lambda x: F.broadcast_to(x[:, :1], x.shape),
    "backwards": lambda x: F.flip(x, axis=0),
    "every second": lambda x: F.concat([x, x], axis=1)[:, ::2],
    "transposed": lambda x: F.permute_dims(F.permute_dims(x, (1, 0)).contiguous(), (1, 0)),
}


@pytest.mark.parametrize("first", ODD)
@pytest.mark.parametrize("second", ODD)
def test_operands_that_lie_oddly(rng, first, second):
    a, b = ODD[first](drawn(rng, 6, 10)), ODD[second](drawn(rng, 10, 8))
    assert_near(a @ b, a.numpy() @ b.numpy())
    repeated = F.broadcast_to(a, (3, 6, 10))
    assert_near(repeated @ b, repeated.numpy() @ b.numpy())
    out = wf.zeros((16, 6))[::2].T  # what it is written to
    out[...] = a @ b
    assert_near(out, a.numpy() @ b.numpy())


def test_a_wrong_call_changes_nothing_for_right_ones(rng):
    a, b, c = drawn(rng, 14, 15), drawn(rng, 15, 16), drawn(rng, 17, 18)
    a @ b
    for _ in range(2):
        with pytest.raises(ShapeError, match="inner sizes differ, 15 != 17: a is f32\\[14,15\\]"):
            a @ c
    assert planned(lambda: drawn(rng, 19, 20) @ drawn(rng, 20, 21)) == 0


def test_operands_of_other_kinds_do_not_decide(rng):
    """Products of integers and of nothing have no plan for all sizes: floats keep theirs."""
    wf.ones((22, 23), dtype="int32") @ wf.ones((23, 24), dtype="int32")
    drawn(rng, 22, 0) @ drawn(rng, 0, 24)
    drawn(rng, 22, 23) @ drawn(rng, 23, 24)
    assert planned(lambda: drawn(rng, 25, 26) @ drawn(rng, 26, 27)) == 0
    assert planned(lambda: wf.ones((22, 23), dtype="int32") @ wf.ones((23, 24), dtype="int32")) == 0


def test_empty_products_beside_others(rng):
    for m, k, n in ((4, 0, 3), (0, 5, 3), (4, 5, 3), (2, 3, 0)):
        a, b = drawn(rng, m, k), drawn(rng, k, n)
        assert_near(a @ b, a.numpy() @ b.numpy())


def test_traces_of_products(rng):
    traced = wf.trace(lambda a, b: F.relu(a @ b) @ b.T)
    for m, k, n in ((4, 5, 6), (7, 8, 9)):
        a, b = drawn(rng, m, k), drawn(rng, k, n)
        for _ in range(2):
            assert_near(traced(a, b), np.maximum(a.numpy() @ b.numpy(), 0) @ b.numpy().T)


CONVOLUTIONS = {
    "plain": {},
    "stride and padding": {"stride": 2, "padding": 1},
    "dilation": {"dilation": 2, "padding": (2, 1)},
    "same": {"padding": "same"},  # which follows from the window's size
    "bias": {},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_new_sizes(rng, case, dtype):
    def gradients(w, b, *shape):
        x = drawn(rng, *shape, dtype=dtype)
        given = [x, w] if b is None else [x, w, b]
        with wf.GradManager().attach(given) as manager:
            y = F.conv2d(*given, **CONVOLUTIONS[case])
            manager.backward(y, wf.ones_like(y))
        return [y, *(t.grad for t in given)], x

    w = drawn(rng, 6, 4, 3, 2, dtype=dtype)
    b = drawn(rng, 6, dtype=dtype) if case == "bias" else None
    gradients(w, b, 7, 4, 9, 10)
    other = drawn(rng, 7, 5, 3, 2, dtype=dtype)
    others = drawn(rng, 7, dtype=dtype) if case == "bias" else None
    count = planned(lambda: gradients(other, others, 8, 5, 11, 13))
    assert count == 0 or case == "same"

    for t in (w, b):
        if t is not None:
            t.grad = None
    found, x = gradients(w, b, 7, 4, 11, 13)
    wide = [t.astype("float64") for t in ([x, w] if b is None else [x, w, b])]
    with wf.GradManager().attach(wide) as manager:
        y = F.conv2d(*wide, **CONVOLUTIONS[case])
        manager.backward(y, wf.ones_like(y))
    for mine, want in zip(found, [y, *(t.grad for t in wide)], strict=True):
        assert_near(mine.astype("float64"), want.numpy(), dtype=dtype)


def test_images_smaller_than_the_window(rng):
    """The plan is for all sizes, and the message has these."""
    w = drawn(rng, 6, 4, 3, 3)
    assert F.conv2d(drawn(rng, 2, 4, 8, 9), w).shape == (2, 6, 6, 7)
    for size in (2, 1):
        with pytest.raises(ShapeError, match=rf"does not fit x with its padding: x is f32\[2,4,{size},9\]"):
            F.conv2d(drawn(rng, 2, 4, size, 9), w)
    assert F.conv2d(drawn(rng, 2, 4, 3, 3), w).shape == (2, 6, 1, 1)
    with pytest.raises(ShapeError, match="channels"):
        F.conv2d(drawn(rng, 2, 5, 8, 9), w)
    assert planned(lambda: F.conv2d(drawn(rng, 2, 4, 11, 12), w)) == 0


IMAGES = {
    "backwards": lambda x: F.flip(x, axis=2),
    "repeated": lambda x: F.broadcast_to(x[:1], x.shape),
    "repeated columns": lambda x: F.broadcast_to(x[..., :1], x.shape),
    "every second": lambda x: F.concat([x, x], axis=3)[..., ::2],
    "channels last": lambda x: F.permute_dims(F.permute_dims(x, (0, 2, 3, 1)).copy(), (0, 3, 1, 2)),
}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("window", IMAGES)
def test_images_that_lie_oddly(rng, image, window):
    x, w = IMAGES[image](drawn(rng, 3, 4, 7, 6)), IMAGES[window](drawn(rng, 5, 4, 3, 2))
    want = F.conv2d(x.astype("float64"), w.astype("float64")).numpy()
    assert_near(F.conv2d(x, w), want)
