"""Kernels apart from operators: how they are registered, in which order they are tried, and where they may be named."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft import kernels
from weft.base.device import Device
from weft.base.dtype import float32, float64
from weft.kernels import choices, kernel, registered
from weft.ops.kernels import Loop, Native, View
from weft.ops.op import Op
from weft.ops.registry import get
from weft.ops.types import TensorType

PACKAGE = Path(weft.__file__).parent
X = TensorType((3, 4), float32)


class Doubled(Op):
    """Not registered; has a view, so that something is left when no kernel is taken."""

    public = False

    def infer(self, x):
        return x.like()

    def kernels(self, x):
        yield View(lambda shape, strides: (shape, strides, 0))


class Inheriting(Doubled):
    """Has what its base has."""


class Own(Doubled):
    """Has kernels of its own."""

    def kernels(self, x):
        yield View(lambda shape, strides: None)


@pytest.fixture(autouse=True)
def registrations_end():
    yield
    for key in [key for key in kernels._TABLE if issubclass(key[0], Doubled)]:
        del kernels._TABLE[key]


def native(number):
    return Native(lambda *_: None, numbers=((number, "int64"),))


def tried(op, *types):
    return [c.numbers[0][0] if isinstance(c, Native) else type(c).__name__ for c in choices(op, types)]


def test_registered_kernels_come_in_order_before_the_operators_own():
    kernel(Doubled)(lambda op, x: [native(1), native(2)])
    kernel(Doubled, provider="second", when=lambda op, x: x.dtype is float32)(lambda op, x: [native(3)])
    assert tried(Doubled(), X) == [1, 2, 3, "View"]
    assert tried(Doubled(), X.like(dtype=float64)) == [1, 2, "View"]
    assert [entry.provider for entry in registered(Doubled)] == ["native", "second"]


def test_subclasses_have_the_kernels_of_their_base_unless_they_have_their_own():
    kernel(Doubled)(lambda op, x: [native(1)])
    assert tried(Inheriting(), X) == [1, "View"]
    assert tried(Own(), X) == ["View"]
    kernel(Own)(lambda op, x: [native(2)])
    assert tried(Own(), X) == [2, "View"]


def test_a_kind_of_device_has_its_own_kernels():
    """What is registered for processors is not offered for another kind of device, whose loops are those of all."""
    there = X.on(Device("gpu", 0))
    assert tried(get("sort")(), there) == ["Decomposed"]  # into exchanges, which are loops
    assert [type(c) for c in choices(get("matmul")(), [there, there.like((4, 2))])] == []
    assert [type(c) for c in choices(get("softmax")(), [there])] == [Loop]
    kernel(Doubled, device="gpu")(lambda op, x: [native(7)])
    assert tried(Doubled(), there)[:1] == [7]
    assert [type(c) for c in choices(get("sort")(), [X])] == [Native]


def test_the_device_is_that_of_the_arrays_or_of_the_operator():
    kernel(Doubled, device="gpu")(lambda op, x: [native(1)])
    number = TensorType((), float32, weak=True)
    assert tried(Doubled(), number) == ["View"]
    assert kernels._device_kind(Doubled(), [None, number, X.on(Device("gpu", 1))]) == "gpu"
    assert kernels._device_kind(get("random_normal")(shape=(2,), device="cpu:1"), []) == "cpu"


def test_only_classes_of_operators_have_kernels():
    with pytest.raises(TypeError, match="kernel: takes a class of operators, got 'sort'"):
        kernel("sort")


def test_kernels_are_imported_for_the_family_that_is_planned():
    program = """
import json, sys
import weft as wf
wf.sort(wf.tensor([2.0, 1.0])).wait()
json.dump(sorted(name for name in sys.modules if name.startswith("weft.kernels")), sys.stdout)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=60)
    assert json.loads(done.stdout) == ["weft.kernels", "weft.kernels.cpu", "weft.kernels.cpu.sorting"]


def test_operators_name_no_library_and_no_native_kernel():
    """They are in weft.kernels; operators name neither, not even in comments."""
    found = [
        (path.name, line)
        for path in sorted((PACKAGE / "ops").rglob("*.py"))
        for line, text in enumerate(path.read_text().splitlines(), 1)
        if "onednn" in text.lower() or "_core.kernel" in text
    ]
    assert not found


def test_rules_of_types_ask_no_library():
    """Types are the operators'; what kernels leave for gradients is declared beside them (weft.kernels.residuals)."""
    for path in sorted((PACKAGE / "ops").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "infer":
                names = {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
                assert not {name for name in names if name.startswith("_core.")}, path


def test_every_module_of_kernels_is_one_of_operators():
    """A module of another name would never be imported."""
    for path in (PACKAGE / "kernels" / "cpu").glob("[a-z]*.py"):
        places = [PACKAGE / "ops" / path.name, PACKAGE / "ops" / "families" / path.name]
        assert any(place.exists() for place in places), path
