"""What may be given to backward, and come back from the backward of a Function; how many operands are recorded."""

import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.errors import DTypeError, ShapeError


def slope_of(dy, w=None):
    """The gradient of w * 2 for the gradient dy of it."""
    w = wf.tensor([1.0, 2.0, 3.0]) if w is None else w
    gm = wf.GradManager().attach(w)
    with gm:
        gm.backward(w * 2, dy)
    return w.grad


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8"])
def test_dy_is_converted_to_the_dtype_of_y(dtype):
    found = slope_of(wf.tensor([1, 2, 3]).astype(dtype))
    assert found.dtype == wf.float32
    assert found.numpy().tolist() == [2.0, 4.0, 6.0]


def test_a_conversion_of_dy_is_differentiated():
    w = wf.tensor([1.0, 2.0, 3.0])
    slope = wf.tensor([1.0, 2.0, 3.0], dtype="float64")
    outer, inner = wf.GradManager().attach(slope), wf.GradManager().attach(w)
    with outer:
        with inner:
            inner.backward(w * 2, slope)
        outer.backward(w.grad)
    assert slope.grad.numpy().tolist() == [2.0, 2.0, 2.0]
    assert slope.grad.dtype == wf.float64


def test_dy_of_another_shape_or_number_or_device_is_refused():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        slope_of(wf.ones(2))
    with pytest.raises(ValueError, match="1 values, but 2 gradients"):
        slope_of([wf.ones(3), wf.ones(3)])
    with pytest.raises(wf.DeviceError, match="cpu:1"):
        slope_of(wf.ones(3, device="cpu:1"))


@pytest.mark.parametrize(
    ("y", "dy"),
    [
        (None, None),
        ("ab", None),
        ({"loss": wf.ones(2)}, None),
        ([wf.ones(2), 3.0], None),
        ([wf.ones(2), [wf.ones(2)]], None),
        (3.0, None),
        (np.ones(2), None),
        (wf.ones(2), [np.ones(2, "f")]),
        (wf.ones(2), 1.0),
        (wf.ones(2), "a"),
    ],
    ids=repr,
)
def test_other_objects_are_refused(y, dy):
    gm = wf.GradManager().attach(wf.ones(2))
    with gm, pytest.raises(TypeError, match=r"backward: .* (got|holds) "):
        gm.backward(y, dy)


def test_lists_and_tuples_of_tensors():
    for made in (list, tuple):
        w = wf.tensor([1.0, 2.0])
        gm = wf.GradManager().attach(w)
        with gm:
            gm.backward(made([w * 2, w * 3]), made([None, wf.ones(2)]))
        assert w.grad.numpy().tolist() == [5.0, 5.0]


class Gives(wf.Function):
    """A function of one or more tensors whose backward gives this."""

    def __init__(self, slope):
        self.slope = slope

    def forward(self, *x):
        return x[0] * 2

    def backward(self, dy):
        return self.slope


def through(slope, *more):
    return wf.grad(lambda x: Gives(slope)(x * 3, *more).sum())(wf.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))


@pytest.mark.parametrize("dtype", ["float64", "float16", "float32"])
def test_floats_that_a_backward_gives_are_converted(dtype):
    assert through(wf.ones(5, dtype=dtype)).numpy().tolist() == [3.0] * 5
    assert through((wf.ones(5, dtype=dtype),)).dtype == wf.float32
    assert through([wf.ones(5, dtype=dtype)]).dtype == wf.float32


@pytest.mark.parametrize(
    ("slope", "error", "match"),
    [
        (wf.ones(2), ShapeError, r"input 0 is f32\[5\].*f32\[2\]"),
        (wf.ones((5, 1)), ShapeError, r"input 0 is f32\[5\].*f32\[5,1\]"),
        (wf.ones(5, dtype="int64"), DTypeError, r"f32\[5\].*i64\[5\]"),
        (wf.ones(5, device="cpu:1"), wf.DeviceError, r"cpu:1"),
        ((wf.ones(5), wf.ones(5)), ValueError, "2 gradients for 1 inputs"),
        ((), ValueError, "0 gradients for 1 inputs"),
        (1.0, TypeError, "got float"),
        ({"x": wf.ones(5)}, TypeError, "got dict"),
        ("abcde", TypeError, "got str"),
        ((np.ones(5),), TypeError, "gradient 0 must be a Tensor or None, got "),
    ],
)
def test_what_a_backward_gives_is_checked(slope, error, match):
    with pytest.raises(error, match=match) as caught:
        through(slope)
    assert "test_gradient_arguments.py" in str(caught.value)


@pytest.mark.parametrize(
    ("slope", "error"),
    [(wf.ones(2), ShapeError), (wf.ones(5, dtype="int64"), DTypeError), (1.0, TypeError), ((), ValueError)],
)
def test_what_a_backward_in_a_trace_gives_is_checked(slope, error):
    step = wf.trace(wf.grad(lambda x: Gives(slope)(x * 3).sum()), lazy=True, strict=True)
    with pytest.raises(error):
        step(wf.ones(5))
    step = wf.trace(
        wf.grad(lambda x: Gives(wf.ones(5, dtype="float64"))(x * 3).sum()), lazy=True, strict=True
    )
    for _ in range(3):
        assert step(wf.ones(5)).numpy().tolist() == [3.0] * 5


def test_a_backward_may_give_none_and_what_nobody_wants_is_not_looked_at():
    assert through(None).numpy().tolist() == [0.0] * 5
    assert through((wf.ones(5), wf.ones(2)), wf.tensor([1, 2])).numpy().tolist() == [3.0] * 5


def test_another_thread_that_records_does_not_change_this_ones_backward():
    w = wf.tensor([1.0, 2.0])
    inside, done = threading.Event(), threading.Event()

    def record():
        with wf.GradManager().attach(wf.ones(2)):
            inside.set()
            done.wait()

    other = threading.Thread(target=record)
    other.start()
    inside.wait()
    try:
        gm = wf.GradManager().attach(w)
        with gm:
            gm.backward((w * w).sum())
        assert not w.grad.requires_grad
        assert not wf.grad(lambda x: (x * x).sum())(w).requires_grad
    finally:
        done.set()
        other.join()


def test_a_manager_may_end_in_another_thread(in_threads):
    gm = wf.GradManager().attach(wf.ones(2))
    gm.record()
    in_threads(lambda _: gm.release(), [0])
    w = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(w)
    with gm:
        gm.backward((w * w).sum())
    assert not w.grad.requires_grad


# More than 64 operands.


@pytest.mark.parametrize("count", [63, 64, 65, 129, 1000])
@pytest.mark.parametrize("join", [F.stack, F.concat])
def test_gradients_of_many_operands(join, count):
    xs = [wf.tensor([float(k)]) for k in range(count)]
    gm = wf.GradManager().attach(xs)
    with gm:
        gm.backward(
            join(xs), wf.arange(count, dtype="float32").reshape((count, 1) if join is F.stack else count)
        )
    assert [x.grad.item() for x in xs] == list(range(count))


def test_one_recorded_operand_among_many():
    for place in (0, 69):
        xs = [wf.tensor([float(k)]) for k in range(70)]
        gm = wf.GradManager().attach(xs[place])
        with gm:
            gm.backward(F.concat(xs) * wf.arange(70, dtype="float32"))
        assert [None if x.grad is None else x.grad.item() for x in xs] == [
            place if k == place else None for k in range(70)
        ]


def test_second_gradients_of_many_operands():
    xs = [wf.tensor([float(k)]) for k in range(70)]
    outer, inner = wf.GradManager().attach(xs), wf.GradManager().attach(xs)
    with outer:
        with inner:
            y = F.concat(xs)
            inner.backward((y * y * y).sum())
        slopes = [x.grad for x in xs]
        for x in xs:
            x.grad = None
        outer.backward(slopes)
    assert [x.grad.item() for x in xs] == [6.0 * k for k in range(70)]


@pytest.mark.parametrize("count", [80, 467])  # 467: the parameters of ResNet-152
def test_gradients_through_a_traced_function_of_many_parameters(count):
    ps = [wf.tensor([float(k)]) for k in range(count)]
    gm = wf.GradManager().attach(ps)

    @wf.trace
    def forward(x):
        for p in ps:
            x = x + p * p
        return x.sum()

    for _ in range(3):
        with gm:
            gm.backward(forward(wf.ones(1)))
        assert [p.grad.item() for p in ps] == [2.0 * k for k in range(count)]
        for p in ps:
            p.grad = None


def test_a_traced_function_with_many_outputs():
    f = wf.trace(lambda x: [x[k : k + 1] * x[k] for k in range(80)])
    x = wf.arange(80, dtype="float32")
    gm = wf.GradManager().attach(x)
    for _ in range(3):
        with gm:
            ys = f(x)
            gm.backward(ys[70] + ys[79])
        assert x.grad.numpy().nonzero()[0].tolist() == [70, 79]
        x.grad = None


@pytest.mark.parametrize("count", [16, 17, 20, 70])
def test_many_numbers_among_the_operands(count):
    assert F.stack([float(k) for k in range(count)]).numpy().tolist() == list(range(count))
    x = wf.tensor(1.0)
    mixed = F.stack([x, *range(count)])
    assert mixed.numpy().tolist() == [1.0, *range(count)]


@pytest.mark.full
def test_resnet152_traced_and_differentiated_from_outside():
    net = wf.models.resnet152(classes=4)
    net.train()
    gm = wf.GradManager().attach(list(net.parameters()))
    forward = wf.trace(net)
    x = wf.random.normal(shape=(1, 3, 32, 32))
    for _ in range(2):
        with gm:
            gm.backward(forward(x).sum())
        assert all(p.grad is not None for p in net.parameters())
        for p in net.parameters():
            p.grad = None


# The private entry points that these go through.


def test_private_entry_points_check_their_arguments():
    leaf = _core.watch(wf.ones(2))
    y = wf.ones(2) * 2
    for call in (
        lambda: _core.backward([42], [None], [], False),
        lambda: _core.backward([y], [42], [], False),
        lambda: _core.unwatch(42, leaf),
        lambda: _core.record_function([1], [2], print),
        lambda: _core.record_function([y], [2], print),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="2 values"):
        _core.backward([y, y], [None], [], False)
