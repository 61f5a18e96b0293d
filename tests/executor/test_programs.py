"""Programs of many steps: what they compute, return and write, against the references of the operators."""

import random

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.ops.functions as F
from weft import _core
from weft.base.dtype import as_dtype, float32
from weft.executor.planner import make_plan
from weft.graph.graph import Graph, interpret
from weft.ops.node import constant, input_value
from weft.ops.types import TensorType


def typed(*shape, dtype=float32):
    return TensorType(shape, dtype, wf.as_device(None))


def given(*shape, dtype=float32, name="x"):
    return input_value(typed(*shape, dtype=dtype), name)


def run(graph, arrays, check=True):
    """The outputs of the plan on NumPy arrays, which come back as what is in the inputs afterwards."""
    tensors = [wf.tensor(a) for a in arrays]
    strides = [tuple(s // t.itemsize for s in t.strides) for t in tensors]
    plan = make_plan(graph, "test", strides, exact=True, as_tuple=True)
    outputs = [t.numpy() for t in _core.run_plan(plan, tensors)]
    after = [t.numpy() for t in tensors]
    if check:
        verify(graph, arrays, outputs, after)
    return plan, outputs, after


def verify(graph, arrays, outputs, after):
    with np.errstate(all="ignore"):
        wanted = interpret(graph, [a.copy() for a in arrays])
    wanted = [w for w in wanted if w is not None]
    assert len(outputs) == len(wanted)
    contents = [a.copy() for a in arrays]
    for j, i in graph.writes.items():
        contents[i] = np.asarray(wanted[j], arrays[i].dtype)
    for j, (y, w) in enumerate(zip(outputs, wanted, strict=True)):
        np.testing.assert_allclose(y, w, rtol=2e-4, atol=2e-4, err_msg=f"output {j} of\n{graph}")
    for i, (x, w) in enumerate(zip(after, contents, strict=True)):
        np.testing.assert_allclose(x, w, rtol=2e-4, atol=2e-4, err_msg=f"input {i} after\n{graph}")


def arange(*shape, dtype="float32"):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape) + 1


# What leaves, and what is written.


def test_an_input_is_an_output():
    x = given(3)
    run(Graph([x], [x, x, x + 1]), [arange(3)])


def test_constants_are_outputs():
    x = given(3)
    run(Graph([x], [x + 1, constant(2.5, float32), constant(True)]), [arange(3)])


def test_swap():
    x, y = given(3), given(3)
    run(Graph([x, y], [y, x], {0: 0, 1: 1}), [arange(3), arange(3) * 10])


def test_swap_of_what_is_computed():
    x, y = given(3), given(3)
    run(Graph([x, y], [y * 2, x * 3], {0: 0, 1: 1}), [arange(3), arange(3) * 10])


def test_an_input_is_written_into_another():
    x, y = given(3), given(3)
    run(Graph([x, y], [y], {0: 0}), [arange(3), arange(3) * 10])


def test_an_input_becomes_what_it_is():
    x = given(3)
    run(Graph([x], [x, x + 1], {0: 0}), [arange(3)])


def test_the_old_content_leaves():
    x, y = given(2, 3), given(2, 3)
    run(Graph([x, y], [x, y + 1], {1: 0}), [arange(2, 3), arange(2, 3) * 10])
    run(Graph([x], [F.reshape(x, (-1,)), -x], {1: 0}), [arange(2, 3)])


def test_the_old_content_is_read_after_it_was_written():
    x = given(4)
    new = F.exp(x)
    run(Graph([x], [new, F.cumulative_sum(new) + x], {0: 0}), [arange(4) / 10])


def test_views_of_what_is_written():
    x = given(2, 3)
    run(Graph([x], [F.permute_dims(x, (1, 0)), x * 2, F.reshape(x, (3, 2)) @ x], {1: 0}), [arange(2, 3)])
    square = given(3, 3)
    run(Graph([square], [F.permute_dims(square, (1, 0))], {0: 0}), [arange(3, 3)])


def test_one_value_is_written_twice_and_leaves():
    x, y = given(3), given(3)
    z = x + y
    run(Graph([x, y], [z, z, z], {0: 0, 1: 1}), [arange(3), arange(3)])


def test_the_same_value_leaves_as_itself_and_as_views():
    x = given(2, 3)
    z = F.exp(x)
    run(Graph([x], [F.reshape(z, (6,)), z, F.permute_dims(z, (1, 0)), z]), [arange(2, 3) / 9])


def test_views_of_what_leaves_in_the_order_of_an_input():
    x, weights = given(2, 3), given(6)
    z = F.exp(x)
    graph = Graph([x, weights], [z, F.sum(F.reshape(z, (6,)) * weights)])
    tensor = wf.tensor(np.ascontiguousarray((arange(2, 3) / 9).T)).T
    plan = make_plan(graph, "test", [(1, 2), (1,)], exact=True, as_tuple=True)
    y, total = _core.run_plan(plan, [tensor, wf.tensor(arange(6) - 1)])
    wanted = np.exp(arange(2, 3) / 9)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(total.numpy(), (wanted.ravel() * np.arange(6)).sum(), rtol=1e-5)


def test_no_elements_and_no_dimensions():
    x, y = given(0, 3), given()
    graph = Graph([x, y], [x + y, F.sum(x, axis=0), F.exp(y), F.sum(x) + y, F.reshape(x, (3, 0))])
    run(graph, [np.zeros((0, 3), "float32"), np.float32(2)])


def test_more_operands_than_a_loop_takes():
    inputs = [given(5) for _ in range(60)]
    total = inputs[0]
    for x in inputs[1:]:
        total = total * 0.5 + x
    plan, *_ = run(Graph(inputs, [total]), [arange(5) + k for k in range(60)])
    assert len(plan.info.steps) < 8


def test_a_long_chain():
    x = given(7)
    y = x
    for k in range(3000):
        y = y * 0.999 + (0.001 if k % 2 else -0.001)
    plan, *_ = run(Graph([x], [y]), [arange(7)])
    assert len(plan.info.steps) < 50


def test_a_long_chain_of_views_and_products():
    x = given(4, 4)
    y = x
    for _ in range(200):
        y = F.permute_dims(y @ x, (1, 0)) * 0.1
    plan, *_ = run(Graph([x], [y]), [np.eye(4, dtype="float32") * 10])
    assert plan.info.memory_report().arena_bytes <= 4 * 64


def test_several_dtypes():
    x, n, b = given(3), given(3, dtype=as_dtype("int32")), given(3, dtype=as_dtype("bool"))
    h = F.cast(x, "float16") * 3
    graph = Graph([x, n, b], [h, F.cast(h, "float64") + n, F.where(b, x, n), F.sum(b), F.cast(n, "bool")])
    run(graph, [arange(3) / 7, arange(3, dtype="int32"), np.array([True, False, True])])


def test_several_outputs_with_none():
    x = given(3)
    tensors = [wf.tensor(arange(3))]
    plan = make_plan(Graph([x], [None, x + 1, None]), "test", exact=True, as_tuple=True)
    (y,) = _core.run_plan(plan, tensors)
    np.testing.assert_allclose(y.numpy(), arange(3) + 1)


# Random programs.


class Writer:
    """Writes a random graph of small arrays."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        shapes = [(3, 4), (4,), (3, 1), (3, 4), (4, 3), (2, 3, 4)]
        self.inputs = [given(*shape) for shape in shapes]
        self.values = list(self.inputs)

    def pick(self, condition=lambda v: True):
        found = [v for v in self.values if condition(v)]
        return self.random.choice(found[-8:] if self.random.random() < 0.7 else found)

    def step(self):
        r = self.random
        x = self.pick()
        axis = r.randrange(x.ndim) if x.ndim else None
        kind = r.choice(
            [
                "unary",
                "binary",
                "binary",
                "scale",
                "reduce",
                "reduce",
                "keep",
                "norm",
                "softmax",
                "view",
                "view",
                "join",
                "part",
                "matmul",
            ]
        )
        if kind == "unary":
            return r.choice([F.tanh, F.sin, F.abs, F.negative, F.sigmoid])(x)
        if kind == "binary":
            y = self.pick(lambda v: broadcast(v.shape, x.shape))
            return r.choice([F.add, F.multiply, F.subtract, F.maximum])(x, y) * 0.5
        if kind == "scale":
            return x * r.uniform(-1, 1) + 0.25
        if kind == "reduce":
            return r.choice([F.sum, F.max, F.mean])(x, axis=axis) * 0.5
        if kind == "keep":
            return x - r.choice([F.mean, F.max])(x, axis=axis, keepdims=True)
        if kind == "norm" and x.ndim:
            apart = x - F.mean(x, axis=axis, keepdims=True)
            return apart * F.rsqrt(F.mean(apart * apart, axis=axis, keepdims=True) + 1.0)
        if kind == "softmax" and x.ndim:
            powers = F.exp(x - F.max(x, axis=axis, keepdims=True))
            return powers / F.sum(powers, axis=axis, keepdims=True)
        if kind == "view" and x.ndim:
            if r.random() < 0.5:
                return F.reshape(x, (-1,)) if r.random() < 0.5 else F.expand_dims(x, axis=axis)
            return F.permute_dims(x, tuple(r.sample(range(x.ndim), x.ndim)))
        if kind == "join" and x.ndim:
            return F.concat([x, self.pick(lambda v: v.shape == x.shape)], axis=axis)
        if kind == "part" and x.ndim and x.shape[axis] > 1:
            return F.flip(x, axis=axis)
        if kind == "matmul" and x.ndim == 2:
            return (x @ F.permute_dims(x, (1, 0))) * 0.2
        return F.square(F.tanh(x))

    def graph(self, count):
        while len(self.values) < len(self.inputs) + count:
            value = self.step()
            if value.type.size <= 400 and value.ndim <= 4:
                self.values.append(value)
        outputs = self.random.sample(self.values, self.random.randrange(1, 8))
        writes = {}
        for j, value in enumerate(outputs):
            targets = [
                i for i, x in enumerate(self.inputs) if x.shape == value.shape and i not in writes.values()
            ]
            if targets and self.random.random() < 0.7:
                writes[j] = self.random.choice(targets)
        return Graph(self.inputs, outputs, writes)


def broadcast(a, b):
    return all(n in (m, 1) or m == 1 for n, m in zip(reversed(a), reversed(b), strict=False))


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    graph = Writer(seed).graph(5 + seed)
    rng = np.random.default_rng(seed)
    run(graph, [rng.normal(size=x.shape).astype("float32") for x in graph.inputs])
