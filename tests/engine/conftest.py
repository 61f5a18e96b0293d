"""Engines that end with the test, gates that open with it, scripts in processes of their own."""

import sys

import pytest

from weft.engine import Engine

from .support import LIMIT_S, Gate, run_script

KINDS = {
    "threaded-1": {"kind": "threaded", "workers": 1},
    "threaded-2": {"kind": "threaded", "workers": 2},
    "threaded-4": {"kind": "threaded", "workers": 4},
    "naive": {"kind": "naive"},
}


@pytest.fixture
def switch_often():
    """Makes Python threads take turns far more often than they would."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def make_engine():
    """Makes engines as Engine does; when the test ends its gates are opened and the engines stopped."""
    made = []

    def make(kind="threaded", workers=2, **options):
        engine = Engine(kind=kind, workers=workers, **options)
        made.append(engine)
        return engine

    make.gates = []
    yield make
    for gate in make.gates:
        gate.open()
    for engine in made:
        if engine.running:
            engine.stop(timeout_s=LIMIT_S)


@pytest.fixture
def make_gate(make_engine):
    def make():
        gate = Gate()
        make_engine.gates.append(gate)
        return gate

    return make


@pytest.fixture
def gate(make_gate):
    return make_gate()


@pytest.fixture(params=KINDS)
def engine(request, make_engine):
    """One engine of each kind, for what is the same in all."""
    return make_engine(**KINDS[request.param])


@pytest.fixture(params=[1, 2, 4], ids="threaded-{}".format)
def threaded(request, make_engine):
    """Threaded engines only."""
    return make_engine(workers=request.param)


@pytest.fixture
def script(tmp_path):
    """Runs a script in a process of its own, see support.run_script."""

    def run(source, **options):
        return run_script(source, tmp_path / "script.py", **options)

    return run


@pytest.fixture
def unraisable(monkeypatch):
    """The exceptions that nobody could catch and that went to sys.unraisablehook."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: seen.append(it.exc_value))
    return seen
