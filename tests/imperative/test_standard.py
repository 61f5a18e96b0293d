"""The array API standard's namespace: inspection, types and constants."""

import ml_dtypes
import numpy as np
import pytest

import weft as wf
from weft.base.dtype import DTYPES

FLOATS = [t for t in DTYPES if t.kind == "float"]
INTEGERS = [t for t in DTYPES if t.kind in ("int", "uint")]


def test_namespace():
    x = wf.ones(2)
    assert x.__array_namespace__() is wf
    assert x.__array_namespace__(api_version=wf.__array_api_version__) is wf
    with pytest.raises(ValueError, match=r"no version '1999\.12'; there are: 2021\.12"):
        x.__array_namespace__(api_version="1999.12")


def test_constants():
    assert (wf.pi, wf.e, wf.inf) == (np.pi, np.e, np.inf)
    assert wf.nan != wf.nan
    assert wf.ones(2)[wf.newaxis].shape == (1, 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_finfo(dtype):
    got, want = wf.finfo(dtype), ml_dtypes.finfo(dtype.numpy)
    for name in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(got, name) == getattr(want, name)
    assert got.dtype is dtype
    assert type(got.max) is float
    assert wf.finfo(wf.ones(1, dtype=dtype)) == got
    with pytest.raises(wf.DTypeError, match="finfo: takes floating-point types, got int32"):
        wf.finfo("int32")


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_iinfo(dtype):
    got, want = wf.iinfo(dtype), np.iinfo(dtype.numpy)
    assert (got.bits, got.max, got.min, got.dtype) == (want.bits, int(want.max), int(want.min), dtype)
    with pytest.raises(wf.DTypeError, match="iinfo: takes integer types, got float32"):
        wf.iinfo(wf.ones(1))


def test_isdtype():
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric")
    for dtype in DTYPES:
        if dtype.name != "bfloat16":
            assert [wf.isdtype(dtype, k) for k in kinds] == [np.isdtype(dtype.numpy, k) for k in kinds]
        assert not wf.isdtype(dtype, "complex floating")
        assert wf.isdtype(dtype, dtype)
        assert wf.isdtype(dtype, (dtype, "complex floating"))
    assert wf.isdtype(wf.bfloat16, "real floating")
    with pytest.raises(TypeError, match="no kind 'float'; there are dtypes and: bool"):
        wf.isdtype(wf.float32, "float")


def test_promotion_is_what_operators_do():
    for a in DTYPES:
        for b in DTYPES:
            x, y = wf.ones(1, dtype=a), wf.ones(1, dtype=b)
            assert wf.result_type(a, b) == wf.result_type(x, b) == wf.where(True, x, y).dtype
            same = {a.kind, b.kind} <= {"int", "uint"} or a.kind == b.kind
            assert wf.can_cast(a, b) == (same and wf.result_type(a, b) == b)
        assert wf.result_type(a, 1) == (wf.ones(1, dtype=a) * 1).dtype if a.kind != "bool" else True
    assert wf.result_type(wf.bool, 1) == wf.int64
    assert wf.result_type("int8", 1.0) == wf.float32
    for nothing in ((), (1, 2.0)):
        with pytest.raises(TypeError, match="at least one array or dtype"):
            wf.result_type(*nothing)


def test_info():
    info = wf.__array_namespace_info__()
    assert info.default_device() is wf.current_device()
    assert info.default_device() in info.devices()
    defaults = info.default_dtypes()
    assert wf.tensor([1.0]).dtype == defaults["real floating"]
    assert wf.tensor([1]).dtype == defaults["integral"]
    assert wf.argmax(wf.ones(2)).dtype == defaults["indexing"]
    assert set(info.dtypes()) == {"bool", *(t.name for t in INTEGERS), "float32", "float64"}
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert info.dtypes(kind="complex floating") == {}
    most = info.capabilities()["max dimensions"]
    assert wf.ones((1,) * most).ndim == most
    with pytest.raises(ValueError, match=str(most)):
        wf.ones((1,) * (most + 1))
