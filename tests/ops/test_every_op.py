"""Every public operator, called as users call it: made from the registry, for every sample and every dtype it takes.

Without --full a part of the cases runs, another one every day (WEFT_TEST_SEED fixes which); and where the whole suite
is asked for, of most tests a fifth.
"""

import math
import operator

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.arrays.planning import ALIGNED, plan_call
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.kernels import choices
from weft.ops.node import BINARY_METHODS
from weft.ops.op import Op, differentiable
from weft.ops.pointwise import Pointwise
from weft.ops.registry import function

from .support import (
    LAYOUTS,
    OPERATORS,
    assert_near,
    called,
    case_of,
    cases,
    floats,
    in_reference_form,
    listed,
    made,
    normal,
    repeated,
    slope_along,
    some,
    specs,
    tensors,
    total,
    weights_of,
)

pytestmark = [
    pytest.mark.daily(5),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # divisions by zero in references are meant
]
every_operator = pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
DIFFERENTIABLE = [cls for cls in OPERATORS if differentiable(cls)]
every_differentiable = pytest.mark.parametrize("cls", DIFFERENTIABLE, ids=lambda cls: cls.name)


def assert_is(case, got, want=None, dtype=None):
    """What a call gave against inference and the reference."""
    for y, t in zip(got, case.types(), strict=True):
        assert (y.shape, y.dtype) == (t.shape, t.dtype), f"{case!r}: gave {_core.describe(y)}, inferred {t}"
    if case.random:
        return
    want = case.want() if want is None else want
    for y, w in zip(in_reference_form(case, got, want), want, strict=True):
        assert_near(y, w, case.sample.tolerance, repr(case), dtype or case.dtype)


def assert_same(got, want, what):
    for a, b in zip(got, want, strict=True):
        pair = [x.numpy() if x.dtype.is_complex else x.astype("float64").numpy() for x in (a, b)]
        np.testing.assert_array_equal(*pair, err_msg=what)


@every_operator
@pytest.mark.daily(1)
def test_value(cls, request):
    """Against the reference; again, by the plan that is there now."""
    found = some(request, f"value {cls.name}", cases(cls), 8)
    assert found, "no sample could be run"
    for case in found:
        x = tensors(case.arrays)
        got = case.call(x)
        assert_is(case, got)
        before = _core.operator_counters()
        again = case.call(x)
        after = _core.operator_counters()
        assert after["planner_calls"] == before["planner_calls"], f"{case!r}: planned twice"
        assert after["misses"] == before["misses"], f"{case!r}: no plan was found"
        if not case.random:
            assert_same(again, got, repr(case))


@every_operator
def test_through_a_layer(cls, request):
    """A transformation gets the call as one operator and its inputs, and op(*args) is that call again."""

    class Layer(wf.Transformation):
        def emit(self, op, args):
            calls.append((op, args))
            return op(*args)

    for case in some(request, f"layer {cls.name}", cases(cls), 3):
        calls = []
        plain = case.call(tensors(case.arrays))
        with Layer():
            got = case.call(tensors(case.arrays))
        assert calls[0][0].name == cls.name
        assert len(calls[0][1]) == len(case.node.inputs)
        for y, p in zip(got, plain, strict=True):
            assert (y.shape, y.strides, y.dtype) == (p.shape, p.strides, p.dtype)
        if not case.random:
            assert_same(got, plain, repr(case))


@every_operator
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(cls, layout, request):
    for case in some(request, f"{layout} {cls.name}", cases(cls), 2):
        laid = [LAYOUTS[layout](a) for a in case.arrays]
        for x, a in zip(laid, case.arrays, strict=True):
            assert x.numpy().tobytes() == a.tobytes()  # the layout itself is right
        assert_is(case, case.call(laid))


@every_operator
def test_strides_of_zero(cls, request):
    for case in some(request, f"repeated {cls.name}", cases(cls), 4):
        if case.node.op.writes_by_index(len(case.node.inputs)):
            continue  # what is written has one place for each element
        wide = [repeated(a) if a.ndim and a.size else wf.tensor(a) for a in case.arrays]
        plain = [x.numpy().copy() for x in wide]
        assert_is(case, case.call(wide), case.want(plain))


@every_operator
def test_other_sizes(cls, request):
    """A plan for one set of sizes is right for others of the pattern, and is not made again where it need not be."""
    for case in some(request, f"sizes {cls.name}", cases(cls), 4):
        kept = specs(case.sample)
        if not kept or any(a.values is not None or a.dtype for a in kept):
            continue
        rng = np.random.default_rng(1)
        grown = [made(a, case.dtype, rng, [n + 2 if n > 1 else n for n in a.shape]) for a in kept]
        try:
            other = case_of(cls, case.sample, grown, case.dtype)
        except (ShapeError, ValueError, IndexError):
            continue  # the attributes say how large it must be
        fresh = cls.make_function()  # no other test has had a part in its plans
        case.call(tensors(case.arrays), fresh)
        before = _core.operator_counters()["planner_calls"]
        got = other.call(tensors(grown), fresh)
        if _core.operator_counters()["planner_calls"] > before:
            # One kind of operands that needs sizes makes the operator plan for sizes with all of them.
            alike = (c for c in cases(cls) if c.node.op == case.node.op)
            assert not all(map(holds_for_all_sizes, alike)), f"{case!r}: planned again"
        assert_is(other, got)


def holds_for_all_sizes(case):
    """Whether one plan serves all sizes: the operands' sizes fit by broadcasting, and no rule has to know them."""
    try:
        np.broadcast_shapes(*(a.shape for a in case.arrays))
    except ValueError:
        return False
    node = case.node
    given = {id(v): wf.tensor(a) for v, a in zip(case.graph.inputs, case.arrays, strict=True)}
    operands = [None if v is None else v.node.value if v.is_constant else given[id(v)] for v in node.inputs]
    runtime = {a.name: getattr(node.op, a.name) for a in node.op.attributes if a.runtime}
    return plan_call(node.op, operands, runtime, ALIGNED, records=False) is not None


POINTWISE = [cls for cls in OPERATORS if issubclass(cls, Pointwise) and len(cls.inputs) > 1]


@pytest.mark.parametrize("cls", POINTWISE, ids=lambda cls: cls.name)
def test_python_numbers(cls, request):
    """A number on either side takes the arrays' type, as inference says."""
    from weft.ops.samples import Array, Sample

    for case in some(request, f"numbers {cls.name}", cases(cls), 3):
        for k, operand in enumerate(case.sample.operands):
            others = [o for j, o in enumerate(case.sample.operands) if j != k and isinstance(o, Array)]
            if not isinstance(operand, Array) or not others or operand.dtype:
                continue
            arrays = [a for j, a in enumerate(case.arrays) if j != k]
            for number in (True, 1, 1.5):
                operands = [number if j == k else o for j, o in enumerate(case.sample.operands)]
                sample = Sample(*operands, tolerance=case.sample.tolerance, **case.sample.attributes)
                try:
                    one = case_of(cls, sample, arrays, case.dtype)
                except ShapeError:
                    continue  # operands must be of one shape
                if one is None:
                    with pytest.raises(DTypeError):
                        listed(called(cls, sample, tensors(arrays)))
                    continue
                assert_is(one, one.call(tensors(arrays)))


@every_operator
def test_kernels(cls, request):
    """Every choice of kernels that can be had, and the decomposition, give the same."""
    for case in some(request, f"kernels {cls.name}", cases(cls), 3):
        if case.random:
            continue
        want = case.want()
        for number, outputs in each_choice(case, tensors(case.arrays)):
            for y, w in zip(in_reference_form(case, outputs, want), want, strict=False):
                assert_near(y, w, case.sample.tolerance, f"choice {number} of {case!r}", case.dtype)


def each_choice(case, x):
    """(number, outputs) for each choice of the operator's kernels on these tensors, then for its decomposition."""
    node, op = case.node, case.node.op
    offered = list(choices(op, [None if v is None else v.type for v in node.inputs]))
    count = len(offered) + (type(op).decompose is not Op.decompose)
    graph = Graph(case.graph.inputs, node.outputs)
    strides = [tuple(s // t.itemsize for s in t.strides) for t in x]
    for number in range(count):
        try:
            plan = make_plan(
                graph, op.name, strides, len(node.outputs) - op.hidden, exact=True, first_choice=number
            )
        except NotImplementedError:
            continue  # none of the later ones takes these operands
        yield number, _core.run_plan(plan, x)


@every_operator
def test_errors(cls):
    """What must fail does so with the words that it says, and the operator works afterwards."""
    rng = np.random.default_rng(5)
    for error, words, sample in cls.errors():
        x = tensors([made(a, "float32", rng) for a in specs(sample)])
        with pytest.raises(error) as caught:
            called(cls, sample, x)
        assert words in str(caught.value)
    case = next(iter(cases(cls)))
    assert_is(case, case.call(tensors(case.arrays)))


# Gradients.

NARROW = {"float64": "float32", "complex128": "complex64"}


def gradient_cases(cls, request, count):
    if not getattr(cls, "smooth", True):
        return []  # zero, but for jumps
    return [
        case
        for dtype in ("float64", "complex128")
        for case in some(request, f"gradient {dtype} {cls.name}", smooth_cases(cls, dtype), count)
        if weights_of(case) is not None
    ]


def smooth_cases(cls, dtype):
    return (c for c in cases(cls, (dtype,)) if c.sample.gradient and not c.random and floats(c.arrays))


def loss_of(case):
    """The case as a function of its float tensors that gives one number."""
    weights, wanted = weights_of(case), floats(case.arrays)

    def loss(*x):
        every = tensors(case.arrays)
        for k, value in zip(wanted, x, strict=True):
            every[k] = value
        return total(case.call(every), weights)

    return loss, [case.arrays[k] for k in wanted]


def assert_slope(f, gradients, arrays, fixed, what):
    """Gradients against differences of f, a function of tensors that gives one; complex ones along both parts."""
    rng = np.random.default_rng(11)
    steps = [None if k in fixed else normal(rng, a.shape, a.dtype) for k, a in enumerate(arrays)]
    want = slope_along(lambda at: f(*tensors(at)).item(), arrays, steps)
    pairs = zip(gradients, steps, strict=True)
    got = sum(float((g.numpy() * s.conj()).sum().real) for g, s in pairs if s is not None)
    assert math.isclose(got, want, rel_tol=2e-6, abs_tol=2e-6), f"{what}: {got} is not {want}"


def fixed_inputs(case):
    """Numbers, among the float arrays, of inputs that have no gradient by intention."""
    names = [spec.name for spec in case.cls.inputs]
    place = {id(v): names[min(k, len(names) - 1)] for k, v in enumerate(case.node.inputs) if v is not None}
    values = [case.graph.inputs[k] for k in floats(case.arrays)]
    return {k for k, v in enumerate(values) if place[id(v)] in case.cls.fixed}


@every_differentiable
def test_gradient(cls, request):
    for case in gradient_cases(cls, request, 3):
        loss, x = loss_of(case)
        numbers = tuple(range(len(x)))
        gradients = wf.grad(loss, numbers)(*tensors(x))
        assert_slope(loss, gradients, x, fixed_inputs(case), repr(case))


def derived(case, order):
    """The slope of this order of a case's loss along fixed steps, a function of its float tensors; and the tensors."""
    f, x = loss_of(case)
    numbers = tuple(range(len(x)))
    rng = np.random.default_rng(13)
    along = [normal(rng, a.shape, a.dtype) for a in x]

    def slope_of(f):
        def slope(*values):
            steps = [v.astype(t.dtype) for v, t in zip(tensors(along), values, strict=True)]
            return total(wf.grad(f, numbers)(*values), steps)

        return slope

    for _ in range(order):
        f = slope_of(f)
    return f, x


@every_differentiable
@pytest.mark.parametrize("order", [2, 3])
def test_higher_gradients(cls, order, request):
    for case in gradient_cases(cls, request, 1):
        slope, x = derived(case, order - 1)
        gradients = wf.grad(slope, tuple(range(len(x))))(*tensors(x))
        assert_slope(slope, gradients, x, fixed_inputs(case), f"gradient {order} of {case!r}")


@every_differentiable
def test_second_gradient_of_float32(cls, request):
    """By other kernels than in float64, with the same result."""
    for case in gradient_cases(cls, request, 1):
        narrow = [a.astype(NARROW.get(a.dtype.name, a.dtype)) for a in case.arrays]
        other = case_of(cls, case.sample, narrow, NARROW.get(case.dtype, case.dtype))
        if other is None:
            continue  # the sample is for float64 alone
        results = []
        for one in (case, other):
            slope, x = derived(one, 1)
            results.append(wf.grad(slope, tuple(range(len(x))))(*tensors(x)))
        for wide, got in zip(*results, strict=True):
            assert_near(got, wide.numpy(), 20, f"second gradient of {other!r}", "float32")


@every_differentiable
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_of_layouts(cls, layout, request):
    """The gradient does not depend on how the operands lie in memory."""
    for case in gradient_cases(cls, request, 1):
        loss, x = loss_of(case)
        numbers = tuple(range(len(x)))
        want = wf.grad(loss, numbers)(*tensors(x))
        got = wf.grad(loss, numbers)(*(LAYOUTS[layout](a) for a in x))
        for g, w in zip(got, want, strict=True):
            assert_near(g, w.numpy(), 1, f"{case!r}, {layout}")


@every_differentiable
def test_gradient_of_strides_of_zero(cls, request):
    for case in gradient_cases(cls, request, 1):
        if case.node.op.writes_by_index(len(case.node.inputs)):
            continue  # as above
        loss, x = loss_of(case)
        numbers = tuple(range(len(x)))
        wide = [repeated(a) if a.ndim and a.size else wf.tensor(a) for a in x]
        want = wf.grad(loss, numbers)(*tensors([t.numpy().copy() for t in wide]))
        got = wf.grad(loss, numbers)(*wide)
        for g, w in zip(got, want, strict=True):
            assert_near(g, w.numpy(), 1, repr(case))


# In place.

IN_PLACE = {name: getattr(operator, f"i{name}") for name in BINARY_METHODS if hasattr(operator, f"i{name}")}
each_in_place = pytest.mark.parametrize("name", IN_PLACE)


def apart(name, dtype):
    return np.array([[5, 3, 2], [4, 1, 6]], dtype), np.array([[1, 2, 1], [3, 1, 2]], dtype)


def takes(name, x, y):
    try:
        function(BINARY_METHODS[name])(x, y)
    except (DTypeError, ShapeError):
        return False
    return True


@each_in_place
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "plain"])
def test_in_place(name, dtype, layout):
    """The same tensor with the values of x op y; what else shows its memory sees them."""
    a, b = apart(name, dtype)
    if name == "matmul":
        a, b = a @ a.T, b @ b.T
    lay = LAYOUTS.get(layout, wf.tensor)
    if not takes(name, wf.tensor(a), wf.tensor(b)):
        with pytest.raises(DTypeError):
            IN_PLACE[name](lay(a), lay(b))
        return
    want = function(BINARY_METHODS[name])(wf.tensor(a), wf.tensor(b))
    x = lay(a)
    if as_dtype(want.dtype).kind != x.dtype.kind and want.dtype.kind == "float":
        with pytest.raises(DTypeError, match="in place"):
            IN_PLACE[name](x, lay(b))
        np.testing.assert_array_equal(x.numpy(), a)
        return
    view = x[::-1]
    y = IN_PLACE[name](x, lay(b))
    assert y is x
    assert_near(x, want.numpy())
    assert_near(view, want.numpy()[::-1])


@each_in_place
def test_in_place_on_itself(name):
    """Overlapping operands: as if the other one had been copied before."""
    a = np.array([[5.0, 3, 2], [4, 1, 6], [1, 2, 3]])
    if not takes(name, wf.tensor(a), wf.tensor(a)):
        a = a.astype("int64")
    for see in (lambda x: x, lambda x: x[::-1], lambda x: x.T, lambda x: x[0], lambda x: x[:, 1:2]):
        x = wf.tensor(a)
        if name == "matmul" and see(x).shape != a.shape:
            continue
        want = function(BINARY_METHODS[name])(wf.tensor(a), see(wf.tensor(a)).copy())
        if want.dtype is not x.dtype:
            continue  # 5 // 3 of integers is one, 5 / 3 is none
        IN_PLACE[name](x, see(x))
        assert_near(x, want.numpy(), what=name)


def test_in_place_types_and_sizes():
    x = wf.tensor([1.0, 2.0])
    x += wf.tensor([0.5, 0.25], dtype="float64")  # as wide as x stays
    assert x.dtype is wf.float32
    np.testing.assert_array_equal(x.numpy(), [1.5, 2.25])
    x *= 2
    np.testing.assert_array_equal(x.numpy(), [3, 4.5])
    n = wf.tensor([1, 2])
    with pytest.raises(DTypeError, match="in place"):
        n += 0.5
    with pytest.raises(DTypeError, match="in place"):
        n /= 2
    n += wf.tensor([True, False])
    np.testing.assert_array_equal(n.numpy(), [2, 2])
    with pytest.raises(ShapeError):
        n += wf.zeros((3, 2), "int64")
    with pytest.raises(ShapeError):
        n += wf.zeros(3, "int64")
    repeated_ = wf.broadcast_to(wf.tensor([1.0]), (3,))
    with pytest.raises(ValueError, match="broadcast"):
        repeated_ += 1
    np.testing.assert_array_equal(n.numpy(), [2, 2])
    np.testing.assert_array_equal(repeated_.numpy(), [1, 1, 1])


# Threads.


def test_threads(in_threads):
    """Eight threads that call, plan and compile at once get what one gets."""
    chosen = [cls for k, cls in enumerate(OPERATORS) if k % 8 == 3]
    work = [case for cls in chosen for case in list(cases(cls, ("float32",)))[:2] if not case.random]
    assert work

    def run(first):
        for k in range(len(work)):
            case = work[(k + first) % len(work)]
            assert_is(case, case.call(tensors(case.arrays)))

    in_threads(run, range(0, 56, 7))
