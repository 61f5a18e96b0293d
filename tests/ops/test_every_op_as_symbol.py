"""Every public operator composed as a symbol: inferred, saved and loaded, run by an executor like the eager call."""

import re

import numpy as np
import pytest
from tests.on_device import DEVICE

import weft as wf
import weft.symbol as sym
from weft.base.errors import GraphError
from weft.graph.gradient import backward_graph
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.passes import optimize
from weft.graph.placement import devices
from weft.ops.node import input_value
from weft.ops.shapes import Contradiction
from weft.ops.types import TensorType
from weft.symbol.inference import Inference
from weft.symbol.solvers import Solver, solver_class, solver_of

from .support import (
    OPERATORS,
    TOLERANCE,
    assert_near,
    called,
    cases,
    every_second,
    floats,
    in_reference_form,
    some,
    wide,
)
from .test_every_op import DIFFERENTIABLE

pytestmark = pytest.mark.daily(3)
THERE = wf.cpu(1)


def symbol_of(case):
    """The symbol of a sample's call on variables a0, a1, ...; None where it is another call, or cannot be one."""
    variables = [sym.var(f"a{k}") for k in range(len(case.arrays))]
    try:
        symbol = called(case.cls, case.sample, variables)
    except GraphError as error:
        assert "depends on sizes" in str(error)  # noqa: PT017 - how many outputs it has
        return None
    if any(len(case.types()) != len(v.node.outputs) for v in symbol.values):
        return None  # chunk makes fewer pieces of what is too small: GraphError at bind
    more = {*symbol.list_arguments(), *symbol.list_auxiliary_states()} - given(case).keys()
    return None if more else symbol  # not what makes parameters that this sample does without


def first_cases(cls):
    """One for each sample, of float32 where the operator takes it."""
    with np.errstate(all="ignore"):
        found = [case for case in cases(cls, ("float32", "int32", "bool")) if case.arrays]
    return list({repr(case.sample): case for case in reversed(found)}.values())


def given(case):
    return {f"a{k}": wf.tensor(a) for k, a in enumerate(case.arrays)}


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_symbol_is_the_eager_function(cls):
    for case in first_cases(cls):
        symbol = symbol_of(case)
        if symbol is None or case.random:
            continue
        shapes = {name: x.shape for name, x in given(case).items()}
        dtypes = {name: x.dtype for name, x in given(case).items()}
        known = Inference(symbol.values, shapes, dtypes).run()
        types = [known.type_of(e) for e in symbol.values]
        assert [(t.shape, t.dtype) for t in types] == [(t.shape, t.dtype) for t in case.types()], case
        again = sym.from_json(symbol.to_json())
        assert str(again) == str(symbol)
        want = [wide(y) for y in case.call(list(given(case).values()))]
        factor = case.sample.tolerance if DEVICE else 1  # where THERE is a device of another kind
        for result in (symbol.eval(**given(case)), again.eval(THERE, **given(case))):
            for y, expected in zip(in_reference_form(case, result, want), want, strict=True):
                np.testing.assert_allclose(
                    y if isinstance(y, np.ndarray) else wide(y),
                    expected,
                    rtol=1e-5 * factor,
                    atol=1e-6,
                    err_msg=repr(case),
                )


@pytest.mark.daily(8)
@pytest.mark.parametrize("cls", DIFFERENTIABLE, ids=lambda cls: cls.name)
def test_gradients_are_written_or_added(cls, request):
    """By request: "write" takes no notice of what was there, "add" adds to it, in the arrays given, as they lie."""
    taken = (
        c for c in cases(cls, tuple(TOLERANCE)) if c.sample.gradient and not c.random and floats(c.arrays)
    )
    of_each = {case.dtype: case for case in taken}
    for case in some(request, f"requests {cls.name}", of_each.values(), 1):
        symbol = symbol_of(case)
        kinds = [t.dtype.kind == "float" for t in case.types()]
        if symbol is None or not any(kinds):
            continue
        slopes = [wf.ones(t.shape, t.dtype) if k else None for t, k in zip(case.types(), kinds, strict=True)]
        states = symbol.list_auxiliary_states()
        wanted = {f"a{k}": case.arrays[k] for k in floats(case.arrays) if f"a{k}" not in states}
        written = {name: every_second(np.full_like(a, np.nan)) for name, a in wanted.items()}
        added = {name: wf.tensor(np.full_like(a, 3)) for name, a in wanted.items()}
        for word, gradients in (("write", written), ("add", added)):
            arrays = given(case)
            aux = {name: arrays.pop(name) for name in states}
            exe = symbol.bind(None, arrays, gradients, dict.fromkeys(wanted, word), aux)
            exe.forward(is_train=True)
            exe.backward(slopes)
        for name, dx in written.items():
            assert_near(added[name], wide(dx) + 3, 1, f"{name} of {case!r}", case.dtype)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_partial_inference_is_true(cls):
    """What is inferred from less is what is there."""
    rng = np.random.default_rng(0)
    for case in first_cases(cls):
        symbol = symbol_of(case)
        if symbol is None:
            continue
        truth = {name: x.shape for name, x in given(case).items()}
        dtypes = {name: x.dtype for name, x in given(case).items()}
        outputs = [tuple(t.shape) for t in case.types()]
        for _ in range(4):
            less = {
                name: None if rng.random() < 0.3 else tuple(n if rng.random() < 0.6 else None for n in shape)
                for name, shape in truth.items()
            }
            known = Inference(symbol.values, less, dtypes).run()
            found = {n.name: known.shape_of(n.outputs[0]) for n in known.nodes if n.op is None}
            pairs = [(found[name], truth[name]) for name in truth]
            pairs += [(known.shape_of(e), shape) for e, shape in zip(symbol.values, outputs, strict=True)]
            for part, whole in pairs:
                assert part is None or len(part) == len(whole), (case, less, part, whole)
                assert part is None or all(a in (None, b) for a, b in zip(part, whole, strict=True)), (
                    case,
                    less,
                    part,
                    whole,
                )


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_rules_of_dtypes_say_what_infer_says(cls):
    """For every dtype that a sample takes; the rule gets the types of elements, so that it cannot read shapes."""
    with np.errstate(all="ignore"):
        found = list(cases(cls, ("float16", "float32", "float64", "int8", "int32", "uint8", "bool")))
    for case in found:
        node = case.node
        if not node.inputs:
            continue
        elements = [
            None if v is None else TensorType((), v.dtype, v.type.device, v.type.weak) for v in node.inputs
        ]
        dtypes = node.op.infer_dtypes(*elements)
        assert dtypes, f"{cls.name} has no rule of dtypes"
        shown = [v.dtype for v in node.outputs[: len(node.outputs) - node.op.hidden]]
        assert [dtypes[min(k, len(dtypes) - 1)] for k in range(len(shown))] == shown, case


RULED = [cls for cls in OPERATORS if cls.rule and solver_class(cls) is Solver]


@pytest.mark.parametrize("cls", RULED, ids=lambda cls: cls.name)
def test_rules_of_sizes_say_what_infer_says(cls):
    for case in first_cases(cls):
        op = case.node.op
        inputs = [None if v is None else v.shape for v in case.node.inputs]
        outputs = [t.shape for t in case.types()]
        solve = solver_of(op).shapes
        found = solve(inputs, outputs)
        assert [s for s, v in zip(found[0], case.node.inputs, strict=True) if v is not None] == [
            s for s in inputs if s is not None
        ]
        assert found[1] == outputs
        for k, shape in enumerate(outputs):  # a wrong rank is noticed where the rule names the output
            wrong = list(outputs)
            wrong[k] = (*shape, 1, 1)
            if solve(inputs, [None] * len(outputs))[1][k] is None:
                continue
            with pytest.raises(Contradiction, match=re.escape(op.rule)):
                solve(inputs, wrong)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_it_stays_on_the_device_of_its_operands(cls):
    for case in first_cases(cls)[:1]:
        values = [input_value(v.type if v.type.weak else v.type.on(THERE)) for v in case.graph.inputs]
        graph = Graph(values, instantiate(case.graph, values))
        homes = {node.op.fixed_device() for node in graph.nodes if node.op is not None} - {None}
        assert {*devices(optimize(graph))} <= {THERE, *homes}, case
        floats = [v.dtype.kind == "float" and not v.type.weak for v in values]
        try:
            backward = backward_graph(graph, floats, [v.dtype.kind == "float" for v in graph.outputs])
        except NotImplementedError:
            continue
        made = [v for v in backward.outputs if v is not None]
        assert all(v.device is THERE for v in made), case
        assert {*devices(optimize(Graph(backward.inputs, made)))} <= {THERE, *homes}, case
