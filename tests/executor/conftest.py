"""Graphs of networks, which the benchmarks plan, too; patterns of the loops that a function runs."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.base.dtype import float32
from weft.executor.loop_code import LoopCode
from weft.executor.planner import make_plan
from weft.graph.graph import graph_of, interpret
from weft.ops.types import TensorType


@pytest.fixture(scope="session")
def networks():
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "_networks.py"
    spec = importlib.util.spec_from_file_location("networks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def patterns(monkeypatch):
    """(lanes, how the operands move) of the loops that a function of arrays runs; its values are the reference's."""
    seen = []
    compile_loop = LoopCode.compile

    def recorded(self, rank, row_rank, lanes, tile, inner, streaming):
        seen.append((lanes, inner))
        return compile_loop(self, rank, row_rank, lanes, tile, inner, streaming)

    monkeypatch.setattr(LoopCode, "compile", recorded)
    monkeypatch.setattr("weft.executor.loop_code._kernels", {})  # a loop that is known has its code already

    def run(function, *arrays):
        graph = graph_of(function, [TensorType(a.shape, float32) for a in arrays])
        tensors = [wf.tensor(a) for a in arrays]
        plan = make_plan(graph, "test", exact=True)
        (found,) = _core.run_plan(plan, tensors)
        np.testing.assert_allclose(found.numpy(), interpret(graph, arrays)[0], rtol=1e-4, atol=1e-5)
        return seen

    return run
