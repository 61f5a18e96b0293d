"""Options and the list of known gaps, for all tests."""

import gc
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")
    parser.addoption("--native", action="store_true", help="a missing native test program fails")


def known_gaps():
    """Test id -> reason, from tests/known_gaps.txt."""
    lines = (ROOT / "tests" / "known_gaps.txt").read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return dict(pairs)


def pytest_collection_modifyitems(config, items):
    gaps = known_gaps()
    for item in items:
        if item.nodeid in gaps:
            item.add_marker(pytest.mark.xfail(reason=gaps[item.nodeid], strict=True))
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="long: runs with ./dev test --full"))


def pytest_collection_finish():
    """Thousands of tests are millions of objects, which every gc.collect() of a test would walk through."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """End the engines of the tests here, so that nothing is written after the closing line."""
    from weft import _core

    _core.shut_down_engines(5.0)
