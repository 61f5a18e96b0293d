"""Random graphs: passes keep their meaning, and one plan gives what plans for their nodes give.

Another part of the seeds every day; WEFT_TEST_SEED fixes which. With --full, ten minutes of them.
"""

import datetime
import os
import time

import pytest

from .checking import check_meaning, check_passes, check_plans
from .generator import DTYPES, random_graph
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
