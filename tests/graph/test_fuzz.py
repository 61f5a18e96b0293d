"""Random graphs: passes keep their meaning, and one plan gives what plans for their nodes give.

Another part of the seeds every day; WEFT_TEST_SEED fixes which. With --full, ten minutes of them.
"""

import datetime
import os
import time

import numpy as np
import pytest

from weft.base.dtype import as_dtype
from weft.graph.graph import Graph
from weft.ops import functions as F
from weft.ops.node import input_value
from weft.ops.registry import get
from weft.ops.types import TensorType

from .checking import check_meaning, check_passes, check_plans, evaluated
from .generator import DTYPES, domain_of, inside, random_graph
from .shrinking import shrunk

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities and NaN are welcome
# Half types that are merged into another loop are not rounded where they would have been stored.
WHOLE = tuple(name for name in DTYPES if name not in ("float16", "bfloat16"))
CHECKS = {check_passes: DTYPES, check_plans: WHOLE, check_meaning: ("float64", "float64", "int64", "bool")}
SEED = int(os.environ.get("WEFT_TEST_SEED", datetime.date.today().toordinal()))


def fuzz(check, seed):
    graph, arrays = random_graph(seed, CHECKS[check])
    try:
        check(graph, arrays)
    except Exception as error:
        small, given = shrunk(graph, arrays, check)
        shown = "\n".join(f"x{k} = {a.tolist()}" for k, a in enumerate(given))
        raise AssertionError(f"seed {seed}, {check.__name__}:\n{small}\n{shown}") from error


@pytest.mark.parametrize("check", CHECKS)
def test_random_graphs(check):
    for k in range(25):
        fuzz(check, SEED * 1000 + k)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_random_graphs_for_ten_minutes():
    end, seed = time.monotonic() + 600, SEED * 1_000_000
    while time.monotonic() < end:
        for check in CHECKS:
            fuzz(check, seed)
        seed += 1


def test_the_generator_reaches_what_passes_look_for():
    names = set()
    writes = 0
    for seed in range(200):
        graph, _ = random_graph(seed)
        writes += len(graph.writes)
        names |= {node.op.name for node in graph.nodes if node.op is not None}
    assert writes > 20
    assert {"batch_norm", "conv2d", "matmul", "split", "adam_update", "filled_like", "as_strided"} <= names
    assert len(names) > 120


def test_computed_operands_are_inside_of_domains():
    """Away from their ends, where rounding would decide between an infinity and a number."""
    found = 0
    for seed in range(200):
        graph, _ = random_graph(seed)
        for node in graph.nodes:
            for k, value in enumerate(node.inputs if node.op is not None else ()):
                domain = domain_of(type(node.op), k)
                computed = value is not None and value.node.op is not None and value.dtype.is_floating
                if domain is not None and computed:
                    found += 1
                    low, high = domain
                    assert value.node.op.name == "add", node
                    share, middle = value.node.inputs
                    assert share.node.op.name == "multiply", node
                    assert middle.node.value == 0.5 * (low + high)
    assert found > 10


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_atanh_of_what_is_normalized_to_one(name):
    """The layer norm of two constants is -1 and 1, but for rounding, and so infinite is atanh of it."""
    x = input_value(TensorType((2,), as_dtype(name)))
    normalized = F.layer_norm(F.positive(x), 2, eps=0.0)
    arrays = [np.array([-3.0, 5.0]).astype(as_dtype(name).numpy)]
    raw = Graph([x], [F.atanh(normalized)])
    assert not np.isfinite(evaluated(raw, arrays)[0].astype("float64")).all()
    graph = Graph([x], [F.atanh(inside(get("atanh"), 0, normalized))])
    (made,) = evaluated(graph, arrays)
    assert (abs(made.astype("float64")) < 0.6).all()
    if name in WHOLE:
        check_plans(graph, arrays)
    check_passes(graph, arrays)
