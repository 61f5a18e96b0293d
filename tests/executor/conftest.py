"""Graphs of networks, which the benchmarks plan, too."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def networks():
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "_networks.py"
    spec = importlib.util.spec_from_file_location("networks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
