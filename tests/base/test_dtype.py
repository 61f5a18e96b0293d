"""The table of element types against NumPy and ml_dtypes, its predicates, and the native core's copy of it."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.dtype import DTYPES, as_dtype
from weft.expr import scalar as e
from weft.ops.types import TensorType

NATIVE = Path(__file__).resolve().parents[2] / "native" / "tensor"


def test_the_native_table_is_written_from_this_one():
    spec = importlib.util.spec_from_file_location("make_dtypes", NATIVE / "make_dtypes.py")
    make_dtypes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_dtypes)
    assert (NATIVE / "dtype_table.h").read_text() == make_dtypes.render(), "./dev stub writes it"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_the_table_says_is_what_numpy_says(dtype):
    same = dtype.numpy
    assert dtype.itemsize == same.itemsize
    assert dtype.bits == 8 * same.itemsize
    kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
    if dtype.is_floating:
        info = ml_dtypes.finfo(same)
        assert (dtype.digits, dtype.max_exponent) == (info.nmant + 1, info.maxexp - 1)
    elif dtype.is_integer:
        assert 2**dtype.digits - 1 == np.iinfo(same).max
    if dtype != "bfloat16":
        assert kinds[same.kind] == dtype.kind
        if dtype.is_complex:  # NumPy writes the code of the buffer protocol, and does not read it
            assert memoryview(np.ones(2, same)).format == dtype.format
            assert (dtype.digits, dtype.max_exponent) == (dtype.real.digits, dtype.real.max_exponent)
        else:
            assert np.dtype(dtype.format) == same
        assert _core.from_buffer(memoryview(np.ones(2, same))).dtype is dtype
    x = wf.zeros(2, dtype=dtype)
    assert _core.describe(x) == repr(TensorType((2,), dtype)) == f"{dtype.short}[2]@cpu:0"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_predicates(dtype):
    assert dtype.is_floating == (dtype.kind == "float")
    assert dtype.is_integer == (dtype.kind in ("int", "uint"))
    assert dtype.is_inexact == (dtype.is_floating or dtype.is_complex)
    assert dtype.is_differentiable == dtype.is_inexact
    assert dtype.is_complex == (dtype.kind == "complex") == (dtype.real is not dtype)
    assert sum((dtype.is_floating, dtype.is_integer, dtype.is_complex, dtype == "bool")) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_are_computed_in_the_accumulation_type(dtype):
    wide = dtype.accumulation
    assert wide.accumulation is wide
    assert wide.digits >= dtype.digits
    assert wide.is_floating == dtype.is_floating
    assert wide.bits >= 32 or dtype.is_integer


def test_the_expression_compiler_has_the_same_types():
    assert set(e.BITS) == {t.name for t in DTYPES}
    assert tuple(t.name for t in DTYPES if t.is_floating) == e.FLOATS
    assert all(e.BITS[t.name] == t.bits for t in DTYPES if t != "bool")


@pytest.mark.parametrize("ndim", [0, 1, 2, 15, 16])
def test_plans_of_each_type_rank_and_device_are_different_ones(ndim):
    """A key that dropped a bit of the type, of the rank or of the device would find the plan of another call."""
    for device in ("cpu:0", "cpu:1", "cpu:32"):
        for dtype in DTYPES:
            x = wf.ones((1,) * ndim, dtype=dtype, device=device)
            y = F.where(True, x, x)
            assert (y.dtype, y.ndim, str(y.device)) == (dtype, ndim, device)


def test_a_dtype_cannot_be_changed():
    for name in ("bits", "is_floating", "name"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(as_dtype("int8"), name, 0)
