"""Every public operator that PyTorch has, too, against it: values and gradients. Skipped where it is not installed.

PyTorch's function is the one of the operator's name, called with the same arguments; where there is none, or it takes
others, the operator's torch_reference() says what to call. Without --full a part of the cases runs, another one
every day.
"""

import inspect
import itertools

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
from weft.base.dtype import as_dtype
from weft.ops.op import Op

from .support import OPERATORS, assert_near, cases, floats, listed, some
from .test_every_op import DIFFERENTIABLE, fixed_inputs, gradient_cases, loss_of, weights_of

torch = pytest.importorskip("torch")

# Functions that PyTorch will rename; numbers that a narrow type does not have.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
OTHER_WORDS = {"axis": "dim", "axes": "dim", "keepdims": "keepdim"}
READ_EVERYWHERE = {"axis", "keepdims"}  # by PyTorch's functions that are not written in Python
REFUSED = (
    TypeError,
    RuntimeError,
    IndexError,
)  # PyTorch's words for operands or arguments that it does not take


def function_of(name):
    """PyTorch's function of this name, or None."""
    places = (torch.nn.functional, torch.linalg, torch.fft, torch, torch.special)
    spellings = itertools.product((name, name.replace("_", "")), places)
    return next((f for n, p in spellings if callable(f := getattr(p, n, None))), None)


def has_torch_reference(cls):
    return cls.torch_reference is not Op.torch_reference or function_of(cls.name) is not None


def ways(op, inputs):
    """(positional, named) arguments that a function of the operator's name may take: as it calls them itself."""
    needed = [v for v, spec in zip(inputs, op.inputs, strict=False) if not (spec.optional or spec.variadic)]
    if op.inputs and op.inputs[-1].variadic:
        needed.append(list(inputs[len(needed) :]))
    optional = {s.name: v for v, s in zip(inputs, op.inputs, strict=False) if s.optional}
    given = {name: v for name, v in op.values().items() if v is not None}
    defaults = {a.name: a.default for a in op.attributes}
    changed = {name: v for name, v in given.items() if v != defaults[name]}
    present = {name: v for name, v in optional.items() if v is not None}
    yield needed, optional | given
    yield needed, present | given
    yield needed, present | changed
    order = [name for name in op.positional if name in given]
    while order and order[-1] not in changed:
        order.pop()
    rest = {name: v for name, v in changed.items() if name not in order}
    yield [*needed, *(given[name] for name in order)], present | rest


def renamed(f, named):
    """With PyTorch's words for what it calls otherwise."""
    known = inspect.signature(f).parameters if inspect.isfunction(f) else READ_EVERYWHERE
    return {name if name in known else OTHER_WORDS.get(name, name): v for name, v in named.items()}


def by_torch(case, inputs):
    """What PyTorch gives for these of its tensors, in the order of the node's inputs.

    None if it refuses them, NotImplemented if the operator's torch_reference() says that it has no such function.
    """
    op = case.node.op
    try:
        if type(op).torch_reference is not Op.torch_reference:
            outputs = op.torch_reference(torch, *inputs)
            return outputs if outputs is NotImplemented else listed(outputs)
        f = function_of(op.name)
        refused = None
        for positional, named in ways(op, inputs):
            try:
                return listed(f(*positional, **renamed(f, named)))
            except TypeError as error:
                refused = error
        raise refused
    except REFUSED:
        return None


def array(y):
    return (y.float() if y.dtype is torch.bfloat16 else y).numpy(
        force=True
    )  # NumPy has no bfloat16 of its own


def torch_inputs(case, arrays):
    """The operands as PyTorch's tensors: those given, and the numbers of the call."""
    given = {id(v): a for v, a in zip(case.graph.inputs, arrays, strict=True)}
    return [
        None if v is None else torch.tensor(v.node.value) if v.is_constant else given[id(v)]
        for v in case.node.inputs
    ]


def of_both(found):
    """The cases of types that NumPy has, so that both sides read them."""
    return [c for c in found if all(as_dtype(a.dtype).name != "bfloat16" for a in c.arrays)]


def comparable(cls, request):
    """Cases of floating-point and complex types, or of integers where the operator takes no others."""
    found = list(cases(cls, ("float64", "float32", "complex128"))) or list(cases(cls, ("int64",)))
    return some(request, f"torch {cls.name}", of_both(found), 10)


def answered(cls, answers):
    """Those of (case, what PyTorch gives, ...) that can be compared, of which there must be some."""
    found = [answer for answer in answers if isinstance(answer[1], list)]
    if answers and all(answer[1] is NotImplemented for answer in answers):
        pytest.skip(f"PyTorch has no {cls.name} of this meaning")
    assert found or not answers, (
        f"PyTorch refuses every call of {cls.name}: its torch_reference() should say what to call"
    )
    return found


@pytest.mark.parametrize(
    "cls", [cls for cls in OPERATORS if has_torch_reference(cls) and not cls.random], ids=lambda c: c.name
)
def test_value(cls, request):
    chosen = comparable(cls, request)
    assert chosen
    answers = [(c, by_torch(c, torch_inputs(c, [torch.tensor(a) for a in c.arrays]))) for c in chosen]
    for case, want in answered(cls, answers):
        for y, w in zip(case.call([wf.tensor(a) for a in case.arrays]), want, strict=True):
            assert_near(y, array(w), case.sample.tolerance, repr(case), case.dtype)


def traced_by_torch(case):
    """(case, what PyTorch gives, {k: the leaf of the k-th float array}); it has no derivatives of some operands."""
    wanted = floats(case.arrays)
    differentiable = [a for k, a in enumerate(wanted) if k not in fixed_inputs(case)]
    for chosen in (differentiable, wanted[:1]):
        operands = [torch.tensor(a, requires_grad=k in chosen) for k, a in enumerate(case.arrays)]
        outputs = by_torch(case, torch_inputs(case, operands))
        if outputs is not None:
            break
    return case, outputs, {wanted.index(k): operands[k] for k in chosen}


def torch_loss(case, outputs):
    """loss_of() for PyTorch's outputs."""
    weights = [w if w is None else torch.tensor(w.numpy()) for w in weights_of(case)]
    sums = [(y * w).sum() for y, w in zip(outputs, weights, strict=True) if w is not None]
    return sum(part.real if part.is_complex() else part for part in sums)


@pytest.mark.parametrize(
    "cls", [cls for cls in DIFFERENTIABLE if has_torch_reference(cls)], ids=lambda c: c.name
)
def test_gradient(cls, request):
    """Of complex operands, too: PyTorch's convention is that of docs/design/complex.md."""
    answers = [traced_by_torch(case) for case in of_both(gradient_cases(cls, request, 3))]
    for case, outputs, leaves in answered(cls, answers):
        loss, x = loss_of(case)
        want = torch.autograd.grad(torch_loss(case, outputs), list(leaves.values()), allow_unused=True)
        got = wf.grad(loss, tuple(range(len(x))))(*(wf.tensor(a) for a in x))
        for k, w in zip(leaves, want, strict=True):
            w = np.zeros(got[k].shape) if w is None else array(w)
            assert_near(got[k], w, case.sample.tolerance, repr(case))
