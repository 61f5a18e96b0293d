"""Random operators among others in one program: each run reserves its own positions, and gives what calls give."""

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.base.dtype import DTYPES, float32
from weft.executor.planner import make_plan
from weft.graph.graph import graph_of
from weft.ops import functions as F
from weft.ops.node import make_node
from weft.ops.registry import get
from weft.ops.types import TensorType


def drawn(name, **attributes):
    """A value of an operator that has no inputs."""
    return make_node(get(name)(**attributes), ()).outputs[0]


def program(function, *shapes):
    return make_plan(graph_of(function, [TensorType(shape, float32) for shape in shapes]), "program of tests")


def test_a_program_draws_what_calls_draw():
    def several(x):
        noise = drawn("random_normal", shape=(70, 90), mean=1.0, std=2.0)
        rest = drawn("random_uniform", shape=(5,), low=-1.0, high=3.0, dtype="float64")
        dropped = F.dropout(x, 0.5)
        whole = drawn("random_integers", shape=(3, 4), low=-2, high=9, dtype="int16")
        return x + noise, rest, dropped, whole

    plan = program(several, (70, 90))
    x = wf.ones((70, 90))
    wf.random.seed(3)
    runs = [_core.run_plan(plan, [x]) for _ in range(2)]
    state = wf.random.get_state()["cpu:0"]
    wf.random.seed(3)
    for made in runs:
        want = [
            x + wf.random.normal(1.0, 2.0, (70, 90)),
            wf.random.uniform(-1.0, 3.0, 5, "float64"),
            wf.functional.dropout(x, 0.5),
            wf.random.randint(-2, 9, (3, 4), "int16"),
        ]
        for y, w in zip(made, want, strict=True):
            assert y.dtype is w.dtype
            np.testing.assert_array_equal(y.numpy(), w.numpy())
    assert wf.random.get_state()["cpu:0"] == state
    assert not (runs[0][0].numpy() == runs[1][0].numpy()).all()


@pytest.mark.parametrize("dtype", [d.name for d in DTYPES if d.kind in ("int", "uint", "float")])
def test_every_dtype(dtype):
    name = "random_uniform" if "float" in dtype else "random_integers"
    y = _core.run_plan(
        program(lambda x: drawn(name, shape=(400,), high=7, low=1, dtype=dtype), (1,)), [wf.ones(1)]
    )[0]
    values = y.astype("float64").numpy()
    assert y.dtype.name == dtype
    assert (values.min() >= 1, values.max() < 7, len(np.unique(values)) > 5) == (True, True, True)


def test_types_are_checked():
    with pytest.raises(wf.DTypeError, match="random_integers: dtype must be an integer, got float32"):
        get("random_integers")(shape=(2,), high=3, dtype="float32")
    with pytest.raises(wf.DTypeError, match="random_normal: dtype must be a float, got bool"):
        get("random_normal")(shape=(2,), dtype="bool")
