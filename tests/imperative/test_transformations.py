"""Transformations: what they see, in which order, and that nothing else changes."""

import collections
import gc
import inspect
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.gradients import transformation
from weft.gradients.transformation import ORDER, SEE_OPERATORS, Transformation
from weft.graph.graph import graph_of
from weft.ops import registry
from weft.ops.types import TensorType

DESIGN = Path(__file__).parents[2] / "docs" / "design" / "graphs.md"


class Seen(Transformation):
    """Remembers the operators and what they are called with."""

    def __init__(self):
        self.calls = []

    def emit(self, op, args):
        self.calls.append((op, args))
        return op(*args)

    @property
    def names(self):
        return [op.name for op, _ in self.calls]


def seen(function):
    layer = Seen()
    with layer:
        function()
    return layer.calls


X = wf.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


# What a layer is given.


def test_operator_and_arguments():
    ((op, args),) = seen(lambda: F.softmax(X, axis=0))
    assert op == registry.get("softmax")(axis=0)
    assert args[0] is X
    assert len(args) == 1


CALLS = {
    "slot": (lambda: X + 1, ["add"]),
    "reflected": (lambda: 1 - X, ["subtract"]),
    "unary": (lambda: -X, ["negative"]),
    "comparison": (lambda: X < 2, ["less"]),
    "method": (lambda: X.sum(), ["sum"]),
    "method with attribute": (lambda: X.argmax(axis=1), ["argmax"]),
    "reshape": (lambda: X.reshape(3, 2), ["reshape"]),
    "F.reshape": (lambda: F.reshape(X, (3, 2)), ["reshape"]),
    "permute_dims": (lambda: F.permute_dims(X, (1, 0)), ["permute_dims"]),
    "broadcast_to": (lambda: F.broadcast_to(X, (5, 2, 3)), ["broadcast_to"]),
    "T": (lambda: X.T, ["permute_dims"]),
    "mT": (lambda: X.mT, ["matrix_transpose"]),
    "item": (lambda: X[1], ["basic_index"]),
    "slice": (lambda: X[:, ::2], ["basic_index"]),
    "array index": (lambda: X[[1, 0]], ["index_get"]),
    "iteration": (lambda: list(X), ["basic_index", "basic_index"]),
    "astype": (lambda: X.astype("int32"), ["cast"]),
    "copy": (lambda: X.copy(), ["reshape"]),
    "two outputs": (lambda: F.topk(X, 2), ["topk"]),
    "any number of inputs": (lambda: F.concat([X, X], axis=0), ["concat"]),
    "attribute first": (lambda: F.einsum("ij,kj->ik", X, X), ["einsum"]),
    "optional missing": (lambda: F.linear(X, X), ["linear"]),
    "optional given": (lambda: F.linear(X, X, wf.ones(2)), ["linear"]),
    "by name": (lambda: F.linear(x=X, weight=X), ["linear"]),
    "own order": (lambda: F.clip(X, 2.0, 3.0), ["clip"]),
    "runtime attribute": (lambda: F.leaky_relu(X - 2, negative_slope=0.5), ["subtract", "leaky_relu"]),
}


@pytest.mark.parametrize("case", CALLS)
def test_every_kind_of_call_is_seen_and_means_the_same(case):
    call, names = CALLS[case]
    plain, layer = call(), Seen()
    with layer:
        found = call()
    assert layer.names == names
    for a, b in zip(*(y if isinstance(y, tuple | list) else [y] for y in (plain, found)), strict=True):
        assert a.dtype == b.dtype
        assert a.strides == b.strides
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_one_argument_for_each_input():
    assert seen(lambda: F.linear(X, X))[0][1][2] is None
    ((_, args),) = seen(lambda: F.concat([X, X, X], axis=0))
    assert len(args) == 3
    ((_, args),) = seen(lambda: X * 2)
    assert args[1] == 2


def test_runtime_attributes_are_in_the_operator():
    for slope in (0.5, 0.25):
        ((op, _),) = seen(lambda slope=slope: F.leaky_relu(X, negative_slope=slope))
        assert op.negative_slope == slope


# Writing.


def test_in_place_operators_are_computed_then_written():
    x, y = X.copy(), X.copy()
    view = x[0]
    layer = Seen()
    with layer:
        x += 10
        x[0] *= 2
        x[1, 1:] = wf.tensor([0.0, 1.0])
        x[[0]] = 7.0
    y += 10
    y[0] *= 2
    y[1, 1:] = wf.tensor([0.0, 1.0])
    y[[0]] = 7.0
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    np.testing.assert_array_equal(view.numpy(), y.numpy()[0])
    assert layer.names[0] == "add"


def test_in_place_gives_the_same_object_and_the_same_errors():
    x = wf.ones(2)
    before = x
    with Seen():
        x += 1
    assert x is before
    whole = wf.ones(2, dtype="int32")
    with Seen(), pytest.raises(wf.DTypeError, match="cannot be written in place"):
        whole += 0.5
    with Seen(), pytest.raises(wf.ShapeError):
        x += wf.ones((3, 2))


def test_what_a_layer_gives_is_what_is_written():
    class Zero(Transformation):
        def emit(self, op, args):
            return args[0] * 0

    x = wf.ones(3)
    with Zero():
        x += 5
    assert x.numpy().tolist() == [0, 0, 0]


def test_recorded_in_place_under_a_layer():
    def f(x):
        y = x * 2
        y += x
        y[0] = 0.0
        return (y * y).sum()

    plain = wf.grad(f)(X)
    with Seen():
        found = wf.grad(f)(X)
    np.testing.assert_allclose(found.numpy(), plain.numpy())


def test_written_inputs_are_written():
    mean, var = wf.zeros(3), wf.ones(3)
    with Seen():
        F.batch_norm(X, mean, var, training=True)
    assert mean.numpy().any()


# The stack.


class Tagged(Transformation):
    def __init__(self, tag, log):
        self.tag, self.log = tag, log

    def emit(self, op, args):
        self.log.append((self.tag, op.name))
        return op(*args)


def test_the_innermost_comes_first_and_calls_go_outwards():
    class Twice(Tagged):
        def emit(self, op, args):
            super().emit(op, args)
            return args[0] * 2 + 1

    log = []
    with Tagged("outer", log), Twice("inner", log):
        y = F.exp(X)
    assert log == [("inner", "exp"), ("outer", "exp"), ("outer", "multiply"), ("outer", "add")]
    np.testing.assert_array_equal(y.numpy(), (X * 2 + 1).numpy())


def test_one_object_may_be_entered_again():
    layer = Seen()
    with layer, layer:
        X + 1
    assert layer.names == ["add", "add"]
    X + 1
    assert len(layer.calls) == 2


def test_entered_inside_emit():
    log = []

    class Outer(Tagged):
        def emit(self, op, args):
            with Tagged("within", log):
                return super().emit(op, args)

    with Outer("outer", log):
        X + 1
    assert log == [("outer", "add"), ("within", "add")]
    assert _core.layers() is None


def test_as_a_decorator():
    layer = Seen()

    @layer
    def double(x):
        return x * 2

    double(X)
    double(X)
    X * 2
    assert layer.names == ["multiply", "multiply"]


def test_kinds_have_an_order_whatever_is_entered_first():
    log = []

    class Amp(Tagged):
        kind = "amp"

    with Amp("amp", log), Tagged("user", log):
        X + 1
    with Tagged("user", log), Amp("amp", log):
        X + 1
    assert [tag for tag, _ in log] == ["user", "amp", "user", "amp"]


def test_of_some_kinds_only_the_innermost_counts():
    log = []

    class Only(Tagged):
        kind = "amp"
        only_one = True

    with Only("outer", log), Tagged("user", log):
        with Only("inner", log):
            X + 1
        X + 1
    assert [tag for tag, _ in log] == ["user", "inner", "user", "outer"]


def test_the_declared_order():
    assert list(ORDER) == ["user", "amp", "gradient", "trace", "interpreter"]
    assert all(ORDER.values())
    assert tuple(ORDER)[: len(SEE_OPERATORS)] == SEE_OPERATORS
    text = " ".join(DESIGN.read_text().split())
    stack = "user's transformations (innermost `with` first) - automatic mixed precision - gradient (the native tape)"
    assert f"{stack} - trace or lazy - interpreter" in text
    with pytest.raises(TypeError, match="kind must be one of 'user', 'amp', 'gradient', got 'trace'"):
        type("Wrong", (Transformation,), {"kind": "trace"})


def test_a_layer_sees_the_call_before_the_tape_does():
    """What is rewritten is differentiated as rewritten: the gradient layer is below the user's."""

    class Straight(Transformation):
        def emit(self, op, args):
            return args[0] if op.name == "round" else op(*args)

    def f(x):
        return (F.round(x) * x).sum()

    with Straight():
        found = wf.grad(f)(X)
    np.testing.assert_array_equal(found.numpy(), 2 * X.numpy())


# Errors, threads, life.


def test_exceptions_leave_the_stack_as_it_was():
    class Fails(Transformation):
        def emit(self, op, args):
            raise KeyError(op.name)

    layer = Seen()
    with layer:
        with Fails(), pytest.raises(KeyError, match="exp"):
            F.exp(X)
        X + 1
    assert layer.names == ["add"]
    with pytest.raises(KeyError), layer, Fails():
        X + 1
    assert _core.layers() is None


def test_errors_of_operators_pass_through():
    with Seen(), pytest.raises(wf.ShapeError, match="matmul"):
        F.matmul(X, X)
    with Seen(), pytest.raises(TypeError, match="softmax: no argument sideways"):
        F.softmax(X, sideways=1)
    with Seen(), pytest.raises(TypeError, match="add: expected a Tensor or a number, got str"):
        F.add(X, "text")
    with Seen(), pytest.raises(TypeError):
        X + "text"


def test_forgetting_to_return_is_an_error():
    class Forgets(Transformation):
        def emit(self, op, args):
            op(*args)

    with Forgets(), pytest.raises(TypeError, match=r"Forgets.emit: gave None for Add\(\)"):
        X + 1


def test_left_in_another_order():
    a, b = Seen(), Seen()
    a.__enter__()
    b.__enter__()
    with pytest.raises(RuntimeError, match="before what was entered later"):
        a.__exit__(None, None, None)
    b.__exit__(None, None, None)
    a.__exit__(None, None, None)
    assert _core.layers() is None
    with pytest.raises(RuntimeError, match="Seen: left by another thread"):
        a.__exit__(None, None, None)


def test_a_layer_belongs_to_the_thread_that_entered_it():
    layer, inside, outside = Seen(), [], threading.Event()

    def other():
        inside.append(_core.layers())
        X * 3
        with layer:
            X - 1
        inside.append(_core.layers())

    with layer:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        X + 1
    assert not outside.is_set()
    assert inside == [None, None]
    assert layer.names == ["subtract", "add"]


def test_eight_threads_at_once(in_threads):
    counts = [0] * 8

    def work(k):
        layer = Seen()
        with layer:
            y = X
            for _ in range(50):
                y = y + k
        counts[k] = len(layer.calls)
        np.testing.assert_array_equal(y.numpy(), X.numpy() + 50 * k)

    in_threads(work, range(8))
    assert counts == [50] * 8


def test_nothing_is_kept():
    layer = Seen()
    with layer:
        X + 1
    alive = weakref.ref(layer)
    del layer
    gc.collect()
    assert alive() is None


# Beside gradients, planning and graphs.


def test_the_same_gradients():
    def f(x):
        return (F.softmax(x @ x.T, axis=1) * x[:, :2].sum(axis=0)).sum()

    plain = wf.grad(f)(X)
    layer = Seen()
    with layer:
        found = wf.grad(f)(X)
        second = wf.grad(lambda x: wf.grad(f)(x).sum())(X)
    np.testing.assert_allclose(found.numpy(), plain.numpy())
    np.testing.assert_allclose(second.numpy(), wf.grad(lambda x: wf.grad(f)(x).sum())(X).numpy())


def test_backward_is_below():
    w, gm = wf.ones(3), wf.GradManager()
    gm.attach([w])

    class Double(wf.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 2

    for _ in range(2):  # the second adds to w.grad
        layer = Seen()
        with layer, gm:
            loss = (Double()(w) + w).sum()
            before = len(layer.calls)
            gm.backward(loss)
        assert layer.names == ["multiply", "add", "sum"]
        assert before == len(layer.calls)
    assert w.grad.numpy().tolist() == [6, 6, 6]


def test_planning_is_below():
    """An operator's rules are the same under layers, and are seen neither at the first call nor later."""
    x = wf.ones((2, 3, 5, 7))
    layer = Seen()
    with layer:
        wf.grad(lambda x: F.gelu(F.cosine_similarity(x, x * 2)).sum())(x)
    assert layer.names == ["multiply", "cosine_similarity", "gelu", "sum"]


def test_values_of_graphs_pass_by():
    layer = Seen()
    with layer:
        graph = graph_of(lambda x: F.exp(x) + 1, [TensorType((2,), wf.float32)])
    assert layer.calls == []
    assert len(graph.nodes) == 4


def test_no_layer_costs_no_python():
    X + X
    before = _core.operator_counters()["hits"]
    with Seen():
        X + X
    assert _core.operator_counters()["hits"] == before + 1


# Examples.


def test_counting():
    class Count(wf.Transformation):
        def __init__(self):
            self.counts = collections.Counter()

        def emit(self, op, args):
            self.counts[op.name] += 1
            return op(*args)

    with Count() as count:
        F.relu(F.relu(X) + X)
    assert count.counts == {"relu": 2, "add": 1}


class FindNan(wf.Transformation):
    """Says which operator was the first to give NaN."""

    def emit(self, op, args):
        result = op(*args)
        for y in result if isinstance(result, tuple) else (result,):
            if y.dtype.kind == "float" and F.any(F.isnan(y)):
                raise FloatingPointError(f"{op!r} gave NaN")
        return result


def test_nan_checker():
    with FindNan(), pytest.raises(FloatingPointError, match=r"Log\(\) gave NaN"):
        F.exp(F.log(X - 2))
    with FindNan():
        F.exp(F.log(X))


def test_rewriting():
    class Doubled(wf.Transformation):
        def emit(self, op, args):
            match op.name, args:
                case "add", (x, y) if x is y:
                    return x * 2
            return op(*args)

    layer = Seen()
    with layer, Doubled():
        y = X + X
        X + y
    assert layer.names == ["multiply", "add"]
    np.testing.assert_array_equal(y.numpy(), 2 * X.numpy())


class Lowered(wf.Transformation):
    """Products in bfloat16, everything else as it comes."""

    def emit(self, op, args):
        if op.family not in ("matrix", "convolution"):
            return op(*args)
        lower = (F.cast(x, dtype="bfloat16") if getattr(x, "dtype", None) is wf.float32 else x for x in args)
        return op(*lower)


def test_autocast_by_hand():
    with Lowered():
        assert F.linear(X, X).dtype is wf.bfloat16
        assert F.softmax(X).dtype is wf.float32
    assert len(inspect.getsource(Lowered).splitlines()) < 40


def test_the_machinery_is_small():
    code = inspect.getsource(transformation)
    assert len(code.splitlines()) < 150
    assert not [name for name in registry.public_names() if f'"{name}"' in code.replace('case "add"', "")]
