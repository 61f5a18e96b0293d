"""Every public operator under vmap and jvp: made from the registry, as test_every_op is.

What rules give is checked on graphs, by the operators' references; a part of the cases also runs as users call it.
"""

import zlib

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.graph.gradient import gradients
from weft.graph.graph import Graph, interpret
from weft.graph.verify import verify
from weft.ops.node import input_value
from weft.ops.op import differentiable
from weft.ops.registry import get
from weft.transform.batching import Batch, batch
from weft.transform.forward import tangents

from .support import OPERATORS, assert_near, cases, made, some, specs

pytestmark = [
    pytest.mark.daily(3),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # divisions by zero in references are meant
]
every_operator = pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
DIFFERENTIABLE = [cls for cls in OPERATORS if differentiable(cls)]
every_differentiable = pytest.mark.parametrize("cls", DIFFERENTIABLE, ids=lambda cls: cls.name)
EXAMPLES = 7  # no size in any sample


def batches(case):
    """For each array of a case, that of each example; the same arrays again where the sample says what they are."""
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    others = [[made(spec, case.dtype, rng) for spec in specs(case.sample)] for _ in range(EXAMPLES - 1)]
    return [np.stack(each) for each in zip(case.arrays, *others, strict=True)]


def choices(case):
    """Which arrays differ from example to example: all of them, and each by itself."""
    count = len(case.arrays)
    found = [tuple(j == k for j in range(count)) for k in range(count)]
    return list(dict.fromkeys([(True,) * count, *found])) if count else []


def one_dtype(cls):
    """Cases of one dtype for each sample: float32 where it is taken."""
    first = {}
    for case in cases(cls):
        first.setdefault(repr(case.sample), case)
        if case.dtype == "float32":
            first[repr(case.sample)] = case
    return list(first.values())


@every_operator
def test_vmap(cls, request, monkeypatch):
    """Against a loop over the examples, for each choice of the operands that differ; none needs such a loop itself."""

    def one_by_one(self, node, inputs, flags):
        raise AssertionError(f"{node.op.name} is computed for one example after the other")

    monkeypatch.setattr(Batch, "one_by_one", one_by_one)
    for case in some(request, f"vmap {cls.name}", one_dtype(cls), 2):
        if case.random:
            continue
        wide = batches(case)
        for flags in choices(case):
            graph, is_batched = batch(Graph(case.graph.inputs, visible(case)), flags, EXAMPLES)
            verify(graph, cls.name)
            given = [a if flag else a[0] for a, flag in zip(wide, flags, strict=True)]
            with np.errstate(all="ignore"):
                got = interpret(graph, given)
                loop = [
                    interpret(
                        Graph(case.graph.inputs, visible(case)),
                        [a[k] if flag else a for a, flag in zip(given, flags, strict=True)],
                    )
                    for k in range(EXAMPLES)
                ]
            for j, (y, flag) in enumerate(zip(got, is_batched, strict=True)):
                want = np.stack([each[j] for each in loop])
                y = y if flag else np.broadcast_to(y, want.shape)
                assert_near_to(y, want, f"{case!r}, batched {flags}")


def visible(case):
    return case.node.outputs[: len(case.node.outputs) - case.node.op.hidden]


def assert_near_to(y, want, what):
    y, want = (np.asarray(a, np.float64) for a in (y, want))
    assert y.shape == want.shape, what
    np.testing.assert_allclose(y, want, 1e-4, 1e-5, err_msg=what)


@pytest.mark.parametrize("name", ["sort", "take_along_axis", "topk"])
def test_one_by_one(name, monkeypatch):
    """What has no rule is a loop over the examples, with the same gradients."""
    from weft.transform import batching

    monkeypatch.delitem(batching._RULES, name)
    if name == "take_along_axis":  # whose gradient has one
        monkeypatch.delitem(batching._RULES, "put_along_axis", raising=False)
    cls = get(name)
    for case, wanted in derivable(cls):
        inputs, ys = case.graph.inputs, [y for y in visible(case) if y.dtype.kind == "float"]
        dys = [input_value(y.type) for y in ys]
        graph = Graph([*inputs, *dys], [*ys, *gradients(ys, [inputs[k] for k in wanted], dys)])
        wide = batches(case)
        rng = np.random.default_rng(1)
        wide += [rng.normal(size=(EXAMPLES, *y.shape)) for y in ys]
        many, _ = batch(graph, (True,) * len(wide), EXAMPLES)
        assert any(node.op.name == "foreach_loop" for node in many.nodes if node.op)
        loop = [interpret(graph, [a[k] for a in wide]) for k in range(EXAMPLES)]
        for got in (run(many, wide), interpret(many, wide)):
            for j, y in enumerate(got):
                assert_near_to(y, np.stack([each[j] for each in loop]), repr(case))


def derivable(cls):
    """Cases in float64 that have a gradient, with the numbers of the arrays that it is asked of."""
    for case in cases(cls, ("float64",)):
        inputs = case.graph.inputs
        k = [j for j, v in enumerate(inputs) if v.dtype.name == "float64" and j not in fixed(case)]
        if case.sample.gradient and not case.random and k and visible(case)[0].dtype.name == "float64":
            yield case, k


def fixed(case):
    """Numbers of arrays without a gradient: fixed inputs, and what is written."""
    op, inputs = case.node.op, case.node.inputs
    there = {j for j, spec in enumerate(op.inputs) if spec.name in op.fixed} | set(
        op.writes_by_index(len(inputs))
    )
    known = [id(v) for v in case.graph.inputs]
    return {known.index(id(inputs[j])) for j in there if inputs[j] is not None}


@every_differentiable
def test_jvp(cls, request):
    """Against finite differences, and against the vjp: <u, J t> is <J^T u, t>."""
    for case, wanted in some(request, f"jvp {cls.name}", derivable(cls), 2):
        ys = [y for y in visible(case) if y.dtype.kind == "float"]
        xs = [case.graph.inputs[k] for k in wanted]
        rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
        directions = [rng.normal(size=case.arrays[k].shape) for k in wanted]
        slopes = [rng.normal(size=y.shape) for y in ys]
        dxs, dys = ([input_value(v.type) for v in values] for values in (xs, ys))
        dots, back = tangents(ys, xs, dxs), gradients(ys, xs, dys)
        inputs = case.graph.inputs
        with np.errstate(all="ignore"):
            forward = interpret(Graph([*inputs, *dxs], dots), [*case.arrays, *directions])
            backward = interpret(Graph([*inputs, *dys], back), [*case.arrays, *slopes])
            step = 1e-6
            ends = [
                interpret(
                    Graph(inputs, ys),
                    [
                        a + sign * step * directions[wanted.index(k)] if k in wanted else a
                        for k, a in enumerate(case.arrays)
                    ],
                )
                for sign in (-1, 1)
            ]
        for y, dot, low, high in zip(ys, forward, *ends, strict=True):
            if not getattr(cls, "smooth", True):
                continue  # samples have places where it jumps
            dot = np.zeros(y.shape) if dot is None else dot
            difference = (np.asarray(high) - np.asarray(low)) / (2 * step)
            np.testing.assert_allclose(dot, difference, 1e-4, 1e-4, err_msg=repr(case))
        left = sum(np.vdot(u, dot) for u, dot in zip(slopes, forward, strict=True) if dot is not None)
        right = sum(np.vdot(dx, t) for dx, t in zip(backward, directions, strict=True) if dx is not None)
        np.testing.assert_allclose(left, right, 1e-9, 1e-9, err_msg=repr(case))


@every_differentiable
def test_gradients_of_batches(cls, request):
    """vmap of the gradient, and the gradient of vmap, against a loop; operands that are the same have the sum."""
    for case, wanted in some(request, f"gradients {cls.name}", derivable(cls), 1):
        ys = [y for y in visible(case) if y.dtype.kind == "float"]
        inputs = case.graph.inputs
        xs = [inputs[k] for k in wanted]
        dys = [input_value(y.type) for y in ys]
        back = Graph([*inputs, *dys], gradients(ys, xs, dys))
        wide = batches(case)
        rng = np.random.default_rng(1)
        slopes = [rng.normal(size=(EXAMPLES, *y.shape)) for y in ys]
        for flags in choices(case):
            given = [a if flag else a[0] for a, flag in zip(wide, flags, strict=True)]

            def example(k, arrays=given, flags=flags):
                return [a[k] if flag else a for a, flag in zip(arrays, flags, strict=True)]

            with np.errstate(all="ignore"):
                loop = [interpret(back, [*example(k), *(s[k] for s in slopes)]) for k in range(EXAMPLES)]
                many, is_batched = batch(back, [*flags, *(True for _ in dys)], EXAMPLES)
                got = interpret(many, [*given, *slopes])
                graph, shown = batch(Graph(inputs, ys), flags, EXAMPLES)
                if not all(shown):
                    continue
                outer = [input_value(y.type) for y in graph.outputs]
                reverse = gradients(graph.outputs, [graph.inputs[k] for k in wanted], outer)
                through = interpret(Graph([*graph.inputs, *outer], reverse), [*given, *slopes])
            for j, k in enumerate(wanted):
                if loop[0][j] is None:
                    continue
                want = np.stack([each[j] for each in loop])
                y = got[j] if is_batched[j] else np.broadcast_to(got[j], want.shape)
                assert_near_to(y, want, f"vmap(grad): {case!r}, batched {flags}")
                whole = want if flags[k] else want.sum(axis=0)
                assert_near_to(through[j], whole, f"grad(vmap): {case!r}, batched {flags}")


def run(graph, arrays):
    """The outputs of a graph, by its program."""
    from weft.executor.compile import compile_graph

    plan = compile_graph(graph, "test")
    made = iter(_core.run_plan(plan, [wf.tensor(a) for a in arrays]))
    return [None if v is None else next(made).numpy() for v in graph.outputs]


def test_programs(request):
    """What rules give, and its gradient, by kernels against references."""
    every = [(cls, k) for cls in OPERATORS for k, _ in enumerate(cls.samples())]
    for cls, number in some(request, "programs", every, 40):
        found = [case for case in one_dtype(cls) if not case.random and case.arrays]
        if number >= len(found):
            continue
        case = found[number]
        ys = [y for y in visible(case) if y.dtype.kind == "float"]
        xs = [v for v in case.graph.inputs if v.dtype.kind == "float"]
        dys = [input_value(y.type) for y in ys]
        has_gradient = differentiable(cls) and case.sample.gradient and xs
        slopes = gradients(ys, xs, dys) if has_gradient else []
        graph = Graph([*case.graph.inputs, *dys], [*visible(case), *(v for v in slopes if v is not None)])
        wide = batches(case)
        rng = np.random.default_rng(1)
        wide += [rng.normal(size=(EXAMPLES, *y.shape)).astype(y.dtype.numpy) for y in ys]
        many, _ = batch(graph, (True,) * len(wide), EXAMPLES)
        with np.errstate(all="ignore"):
            want = interpret(many, wide)
        for y, w in zip(run(many, wide), want, strict=True):
            assert_near(y, w, 20, repr(case), case.dtype)
