"""Array types of others: which one an operator asks, what it gets, and what becomes of calls that all decline."""

from typing import ClassVar

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import ops
from weft.ops import registry
from weft.ops.op import Op, op


class Wrapped(ops.ArrayMethods):
    """Holds a value, and notes the operators that it was asked for."""

    seen: ClassVar[list] = []

    def __init__(self, value):
        self.value = value

    @property
    def shape(self):
        return self.value.shape

    @property
    def dtype(self):
        return self.value.dtype

    def __weft_function__(self, op, args, attributes):
        Wrapped.seen.append((type(self).__name__, op.name))
        made = op(*(x.value if isinstance(x, Wrapped) else x for x in args))
        return tuple(map(type(self), made)) if isinstance(made, tuple) else type(self)(made)


class Other(Wrapped):
    """A subclass: asked first."""


class Primitives(Wrapped):
    """Has rules for primitives only."""

    def __weft_function__(self, op, args, attributes):
        if not op.primitive:
            return NotImplemented
        return super().__weft_function__(op, args, attributes)


class Declining(ops.ArrayMethods):
    shape, dtype = (2,), wf.float32
    asked: ClassVar[list] = []

    def __weft_function__(self, op, args, attributes):
        type(self).asked.append(type(self).__name__)
        return NotImplemented


class Urgent(Declining):
    __weft_priority__ = 5


class Stranger:
    """Of no relation to the others, without the mixin."""

    def __init__(self, name="stranger"):
        self.name = name

    def __weft_function__(self, op, args, attributes):
        return f"{self.name}: {op.name}", args, attributes


@pytest.fixture(autouse=True)
def nothing_seen():
    Wrapped.seen.clear()
    Declining.asked.clear()


X = wf.tensor([1.0, 2.0])


def test_functions_methods_and_operators_ask_the_type():
    w = Wrapped(X)
    made = [
        F.exp(w),
        w.exp(),
        -w,
        w + 1,
        1 + w,
        X + w,
        w + X,
        w @ w,
        2**w,
        w < 1,
        w < X,
        X.maximum(w),
        F.add(X, b=w),
    ]
    assert all(type(m) is Wrapped for m in made)
    assert [name for _, name in Wrapped.seen] == [
        *("exp", "exp", "negative", "add", "add", "add", "add", "matmul", "pow", "less"),
        *("less", "maximum", "add"),
    ]
    np.testing.assert_array_equal((X - w * 3).value.numpy(), [-2, -4])
    np.testing.assert_array_equal((np.float32(3) * w).value.numpy(), [3, 6])
    np.testing.assert_array_equal((np.ones(2, "float32") + w).value.numpy(), [2, 3])


def test_it_gets_the_operator_its_inputs_and_its_attributes():
    text, args, attributes = F.softmax(Stranger(), axis=1)
    assert (text, attributes) == ("stranger: softmax", {"axis": 1})
    s = Stranger()
    _, args, attributes = F.linear(X, s, None)
    assert args[0] is X
    assert args[1] is s
    assert args[2] is None
    _, args, attributes = F.concat([X, s, X], axis=-1)
    assert len(args) == 3
    assert attributes["axis"] == -1
    _, args, attributes = F.layer_norm(s, 2, eps=0.5)  # its positional arguments have an order of their own
    assert (args, attributes) == ((s, None, None), {"normalized_shape": (2,), "eps": 0.5})
    _, args, attributes = F.dropout(s, p=0.25)
    assert attributes == {"p": 0.25, "training": True}
    text, args, _ = F.einsum("i,i->", X, s)
    assert args[-1] is s


def test_wrong_calls_are_refused_before_anyone_is_asked():
    for call in (
        lambda: F.softmax(Wrapped(X), axes=1),
        lambda: F.softmax(Wrapped(X), axis="first"),
        lambda: F.add(Wrapped(X)),
        lambda: F.add(Wrapped(X), 1, 2, 3),
    ):
        with pytest.raises(TypeError):
            call()
    assert Wrapped.seen == []
    with pytest.raises(TypeError, match=r"cannot be written to a Tensor in place|Wrapped"):
        X[:] = Wrapped(X)


def test_a_subclass_is_asked_before_its_base_and_each_type_once():
    assert type(Wrapped(X) + Other(X)) is Other
    assert Wrapped.seen == [("Other", "add")]
    assert type(F.concat([Wrapped(X), Wrapped(X), Other(X)])) is Other
    with pytest.raises(TypeError, match="exp: Declining declined it, and as a primitive"):
        F.exp(Declining())
    Declining.asked.clear()
    with pytest.raises(TypeError, match="add: Urgent and Declining declined it"):
        Declining() + Urgent()
    assert Declining.asked == ["Urgent", "Declining"]


def test_two_types_of_no_relation_from_left_to_right_or_by_priority():
    w, s = Wrapped(X), Stranger()
    assert F.add(s, w)[0] == "stranger: add"
    assert w + s is not None
    assert Wrapped.seen[-1] == ("Wrapped", "add")  # w is asked first: it calls F.add(X, s), which s answers

    class First(Stranger):
        __weft_priority__ = 1

    assert F.add(w, First("first"))[0] == "first: add"
    assert F.add(Declining(), s)[0] == "stranger: add"  # the first declines
    assert Declining.asked == ["Declining"]


def test_nested_types_unwrap_one_after_the_other():
    nested = Wrapped(Other(X))
    made = F.exp(nested)
    assert type(made) is Wrapped
    assert type(made.value) is Other
    np.testing.assert_allclose(made.value.value.numpy(), np.exp([1, 2]), rtol=1e-6)
    assert Wrapped.seen == [("Wrapped", "exp"), ("Other", "exp")]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x, axis=0),
        lambda x: F.layer_norm(x, 2, eps=0.5),
        lambda x: F.std(x, axis=0, correction=1),
        lambda x: F.logsumexp(x),
        lambda x: F.einsum("i,j->ij", x, x),
        lambda x: F.cosine_similarity(x, x * 2, axis=0),
        lambda x: F.split(x, 1)[1],
    ],
)
def test_what_is_declined_is_decomposed(function):
    got = function(Primitives(X))
    assert type(got) is Primitives
    np.testing.assert_allclose(got.value.numpy(), function(X).numpy(), rtol=1e-5)
    assert len(Wrapped.seen) > 1


def test_a_decomposition_needs_a_shape_and_does_not_run_for_ever():
    class Shapeless:
        def __weft_function__(self, op, args, attributes):
            return NotImplemented

    with pytest.raises(TypeError, match="softmax: to be decomposed, a Shapeless needs shape and dtype"):
        F.softmax(Shapeless())

    @op
    class TurnsInCircles(Op):
        public = False

        def infer(self, x):
            return x.like()

        def decompose(self, x):
            return registry.function("turns_in_circles")(x)

    with pytest.raises(TypeError, match="turns_in_circles: decomposes to itself"):
        TurnsInCircles()(Primitives(X))


def test_transformations_see_what_it_does_with_its_tensors():
    class Names(wf.Transformation):
        def __init__(self):
            self.names = []

        def emit(self, op, args):
            self.names.append((op.name, *(type(x).__name__ for x in args)))
            return op(*args)

    with Names() as seen:
        F.softmax(Wrapped(X))
        F.std(Primitives(X))
    assert seen.names[0] == ("softmax", "Tensor")
    assert ("sqrt", "Tensor") in seen.names
    assert not any("Wrapped" in name or "Primitives" in name for name in seen.names)
    with wf.amp.autocast(dtype="bfloat16"):
        assert (Wrapped(wf.ones((2, 2))) @ Wrapped(wf.ones((2, 2)))).dtype is wf.bfloat16


def energy(v):
    w = Primitives(v)
    return F.std(w * w).value + F.sum(w.exp()).value


def test_gradients_traces_and_maps_go_through():
    def plain(v):
        return F.std(v * v) + F.sum(v.exp())

    x = wf.tensor([0.5, 1.0, 2.0])
    want = wf.grad(plain)(x).numpy()
    np.testing.assert_allclose(wf.grad(energy)(x).numpy(), want, rtol=1e-5)
    traced = wf.trace(energy, strict=True)
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), plain(x).numpy(), rtol=1e-6)
    assert len(traced.programs) == 1
    np.testing.assert_allclose(wf.grad(traced)(x).numpy(), want, rtol=1e-5)
    rows = F.stack([x, x * 2])
    np.testing.assert_allclose(
        wf.vmap(energy)(rows).numpy(), [plain(x).numpy(), plain(x * 2).numpy()], rtol=1e-5
    )
    _, tangent = wf.jvp(energy, (x,), (wf.ones(3),))
    np.testing.assert_allclose(tangent.numpy(), want.sum(), rtol=1e-5)


def test_bodies_of_control_flow_are_written_down_through_it():
    def body(x, state):
        new = (Primitives(state) * 2 + x).value
        return F.std(Primitives(new)).value, new

    xs = wf.tensor([[1.0, 2.0], [3.0, 5.0]])
    for run in (wf.foreach, wf.trace(lambda *a: wf.foreach(*a), strict=True)):
        items, state = run(body, xs, wf.zeros(2))
        np.testing.assert_allclose(state.numpy(), [5, 9])
        np.testing.assert_allclose(items.numpy(), [np.std([1, 2]), np.std([5, 9])], rtol=1e-6)
    chosen = wf.cond(wf.tensor(True), lambda: (Wrapped(X) + 1).value, lambda: X)
    np.testing.assert_array_equal(chosen.numpy(), [2, 3])
