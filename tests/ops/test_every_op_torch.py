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

from .support import OPERATORS, assert_near, cases, listed, some
from .test_every_op import DIFFERENTIABLE, fixed_inputs, gradient_cases, loss_of, weights_of

torch = pytest.importorskip("torch")

# Functions that PyTorch will rename; numbers that a narrow type does not have.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
OTHER_WORDS = {"axis": "dim", "keepdims": "keepdim"}
REFUSED = (
    TypeError,
    RuntimeError,
    IndexError,
)  # PyTorch's words for operands or arguments that it does not take


def function_of(name):
    """PyTorch's function of this name, or None."""
    places = (torch.nn.functional, torch, torch.special, torch.linalg)
    spellings = (name, name.replace("_", ""))
    return next((getattr(p, n) for n, p in itertools.product(spellings, places) if hasattr(p, n)), None)


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
    known = inspect.signature(f).parameters if inspect.isfunction(f) else OTHER_WORDS
    return {name if name in known else OTHER_WORDS.get(name, name): v for name, v in named.items()}


def by_torch(case, inputs):
    """What PyTorch gives for these of its tensors, in the order of the node's inputs; None if it refuses them."""
    op = case.node.op
    try:
        if type(op).torch_reference is not Op.torch_reference:
            made = op.torch_reference(torch, *inputs)
            return None if made is NotImplemented else listed(made)
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
    return (y.float() if y.dtype is torch.bfloat16 else y).numpy()  # NumPy has no bfloat16 of its own


def torch_inputs(case, arrays):
    """The operands as PyTorch's tensors: those given, and the numbers of the call."""
    given = {id(v): a for v, a in zip(case.graph.inputs, arrays, strict=True)}
    return [
        None if v is None else torch.tensor(v.node.value) if v.is_constant else given[id(v)]
        for v in case.node.inputs
    ]


def comparable(cls, request):
    """Cases of types that both have: floats, or integers where no floats are taken."""
    found = list(cases(cls, ("float64", "float32"))) or list(cases(cls, ("int64",)))
    both = (case for case in found if all(as_dtype(a.dtype).name != "bfloat16" for a in case.arrays))
    return some(request, f"torch {cls.name}", both, 10)


@pytest.mark.parametrize(
    "cls", [cls for cls in OPERATORS if has_torch_reference(cls) and not cls.random], ids=lambda c: c.name
)
def test_value(cls, request):
    compared = 0
    for case in comparable(cls, request):
        want = by_torch(case, torch_inputs(case, [torch.tensor(a) for a in case.arrays]))
        if want is None:
            continue
        compared += 1
        for y, w in zip(case.call([wf.tensor(a) for a in case.arrays]), want, strict=True):
            assert_near(y, array(w), case.sample.tolerance, repr(case), case.dtype)
    assert compared, (
        f"PyTorch refuses every call of {cls.name}: its torch_reference() should say what to call"
    )


@pytest.mark.parametrize(
    "cls", [cls for cls in DIFFERENTIABLE if has_torch_reference(cls)], ids=lambda c: c.name
)
def test_gradient(cls, request):
    for case in gradient_cases(cls, request, 3):
        loss, x = loss_of(case)
        leaves = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in case.arrays]
        made = by_torch(case, torch_inputs(case, leaves))
        if made is None:
            continue
        weights = [w if w is None else torch.tensor(w.numpy()) for w in weights_of(case)]
        total = sum((y * w).sum() for y, w in zip(made, weights, strict=True) if w is not None)
        want = torch.autograd.grad(total, [t for t in leaves if t.requires_grad], allow_unused=True)
        got = wf.grad(loss, tuple(range(len(x))))(*(wf.tensor(a) for a in x))
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            if k not in fixed_inputs(case):
                assert_near(
                    g, np.zeros(g.shape) if w is None else w.numpy(), case.sample.tolerance, repr(case)
                )
