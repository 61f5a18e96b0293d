"""Adding an operator: one class in a module gives the function, the method, the gradient and the tests."""

import importlib
import sys
import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.base.dtype import float32
from weft.graph.graph import graph_of
from weft.ops import Op, op
from weft.ops.registry import public_names
from weft.ops.types import TensorType

from . import test_rules

TEXT = '''
"""Operators of somebody else."""

import numpy as np

import weft.functional as F
from weft.ops import Op, Runtime, op
from weft.ops.samples import Sample, arrays


@op
class CentredOfTests(Op):
    """(x - mean(x)) * gain + y along one axis.

    x: float[..., n, ...]; y: float, as x, or None: 0; axis: which n; gain: a number, given when it runs. Returns x's
    shape. Raises DTypeError for integers.
    Source: these tests.

    >>> import weft as wf
    """

    axis: int = -1
    gain: Runtime[float] = {gain}
    positional = ("axis",)

    def infer(self, x, y=None):
        self.require_floats(x=x, y=y)
        return x.like()

    def decompose(self, x, y=None):
        z = (x - F.mean(x, axis=self.axis, keepdims=True)) * self.gain
        return z if y is None else z + y

    def reference(self, x, y=None):
        z = (x - np.mean(x, axis=self.axis, keepdims=True)) * self.gain
        return z if y is None else z + y

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)))
        yield Sample(arrays((3, 4)), arrays((3, 4)), axis=0, gain=0.5)

    @classmethod
    def errors(cls):
        yield TypeError, "floating-point", Sample(arrays((2,), dtype="int32"))
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write_and_import(gain=1.0):
        (tmp_path / "operators_of_tests.py").write_text(TEXT.replace("{gain}", str(gain)))
        importlib.invalidate_caches()
        sys.modules.pop("operators_of_tests", None)
        return importlib.import_module("operators_of_tests")

    yield write_and_import
    sys.modules.pop("operators_of_tests", None)


def test_one_class_gives_everything(module):
    cls = module().CentredOfTests
    x = np.arange(6.0).reshape(2, 3)
    want = x - x.mean(axis=1, keepdims=True)

    # Names.
    assert "centred_of_tests" in wf.ops.list()
    assert wf.ops.get("centred_of_tests") is cls
    assert "centred_of_tests" in dir(F)
    assert wf.centred_of_tests is F.centred_of_tests

    # The function, by position and by name, and the method.
    t = wf.tensor(x)
    np.testing.assert_allclose(F.centred_of_tests(t).numpy(), want)
    np.testing.assert_allclose(F.centred_of_tests(t, None, 0).numpy(), x - x.mean(axis=0))
    np.testing.assert_allclose(F.centred_of_tests(x=t, y=t, gain=2).numpy(), 2 * want + x)
    np.testing.assert_allclose(t.centred_of_tests(axis=-1, gain=3.0).numpy(), 3 * want)

    # Documentation and errors.
    assert F.centred_of_tests.__doc__.startswith("(x - mean(x)) * gain + y along one axis.")
    assert F.centred_of_tests.__text_signature__ == "(x, y=None, axis=-1, *, gain=1.0)"
    with pytest.raises(wf.DTypeError, match=r"centred_of_tests: takes floating-point types: x is i64\[2\]"):
        F.centred_of_tests(wf.tensor([1, 2]))
    with pytest.raises(TypeError, match="no argument axes; there are: x, y, axis, gain"):
        F.centred_of_tests(t, axes=1)

    # The gradient, to any order, and the value in a graph.
    weights = wf.tensor(np.arange(6.0).reshape(2, 3) ** 2)
    dx = wf.grad(lambda x: (F.centred_of_tests(x, gain=2.0) * weights).sum())(t)
    w = weights.numpy()
    np.testing.assert_allclose(dx.numpy(), 2 * (w - w.mean(axis=1, keepdims=True)), atol=1e-12)
    graph = graph_of(lambda x: F.centred_of_tests(x * 2, axis=0), [TensorType((2, 3), float32)])
    assert repr(graph.outputs[0].type) == "f32[2,3]@cpu:0"


GENERATED = [
    check
    for name, check in vars(test_rules).items()
    if name.startswith("test_")
    and any(mark.name == "parametrize" and mark.args[0] == "cls" for mark in getattr(check, "pytestmark", []))
    and check.__code__.co_argcount == 1
]


@pytest.mark.parametrize("check", GENERATED, ids=lambda check: check.__name__)
def test_the_generated_tests_take_it(module, check):
    check(module().CentredOfTests)


def test_there_are_generated_tests():
    assert len(GENERATED) >= 4


def test_made_again(module):
    x = wf.tensor([1.0, 3.0])
    for gain in (1.0, 5.0):
        module(gain)
        for call in (F.centred_of_tests, wf.centred_of_tests):
            assert call(x).numpy().tolist() == [-gain, gain]
        assert x.centred_of_tests().numpy().tolist() == [-gain, gain]


def test_a_name_that_is_taken():
    with pytest.raises(
        TypeError, match=r"operator 'relu': weft\.ops\.families\.activation has one of that name"
    ):

        @wf.ops.op
        class Relu(wf.ops.Op):
            def infer(self, x):
                return x


def test_names_while_other_threads_define_operators():
    """Looking names up goes over all operators while another thread adds one."""
    stop = threading.Event()

    def define():
        for k in range(50):
            content = {"__annotations__": {}, "infer": lambda self, x: x, "decompose": lambda self, x: x}
            op(type(f"Threaded{k}", (Op,), content))
        stop.set()

    thread = threading.Thread(target=define)
    thread.start()
    while not stop.is_set():
        assert "exp" in public_names()
    thread.join()
