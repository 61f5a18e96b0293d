"""The array API standard's namespace: inspection, types and constants."""

import inspect
from operator import attrgetter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests import coverage

import weft as wf
from weft import _core
from weft.base.dtype import DTYPES
from weft.ops.index import METHODS

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
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating")
    kinds += ("numeric",)
    for dtype in DTYPES:
        if dtype.name != "bfloat16":
            assert [wf.isdtype(dtype, k) for k in kinds] == [np.isdtype(dtype.numpy, k) for k in kinds]
        assert wf.isdtype(dtype, dtype)
        assert wf.isdtype(dtype, (dtype, "bool"))
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
    numbers = {"float32", "float64", "complex64", "complex128"}
    assert set(info.dtypes()) == {"bool", *(t.name for t in INTEGERS), *numbers}
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert wf.tensor([1j]).dtype == defaults["complex floating"]
    most = info.capabilities()["max dimensions"]
    assert wf.ones((1,) * most).ndim == most
    with pytest.raises(ValueError, match=str(most)):
        wf.ones((1,) * (most + 1))


def test_devices(monkeypatch):
    info = wf.__array_namespace_info__()
    gpus = [wf.gpu(k) for k in range(wf.device.count())]
    assert info.devices() == [wf.cpu(0), *gpus] or wf.current_device() not in (wf.cpu(0), *gpus)
    for device in info.devices():
        for dtype in info.dtypes(device=device).values():
            x = wf.zeros(2, dtype=dtype, device=device)
            assert (x.device, x.dtype) == (device, dtype)
    with wf.device("cpu:3"):
        assert wf.cpu(3) in info.devices()
        assert info.default_device() is wf.cpu(3)
    monkeypatch.setattr(_core, "gpu_chips", lambda: ["sm_90", "sm_90"])
    assert [wf.gpu(0), wf.gpu(1)] == [d for d in info.devices() if d.kind == "gpu"]
    assert info.dtypes(device="gpu:1") == info.dtypes()
    for question in (info.dtypes, info.default_dtypes):
        with pytest.raises(
            wf.DeviceError, match=r"device gpu:63 is not available; there are \[cpu:0, gpu:0, gpu"
        ):
            question(device="gpu:63")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool", "bfloat16"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (), (0,), (2, 0)], ids=str)
def test_shapes_that_depend_on_elements(dtype, shape):
    draw = np.random.default_rng(0)
    a = draw.integers(0, 4, shape).astype("int32")
    x = wf.tensor(a).astype(dtype)
    a = x.numpy()
    table = wf.tensor(draw.integers(0, 3, 6).astype("int32")).astype(dtype)
    for invert in (False, True):
        want = np.isin(a.astype("float64"), table.numpy().astype("float64"), invert=invert)
        assert np.array_equal(wf.isin(x, table, invert=invert).numpy(), want)
        assert np.array_equal(wf.isin(x, table[:0], invert=invert).numpy(), np.full(shape, invert))
    unique = wf.unique_all(x)
    values, counts = np.unique(a, return_counts=True)
    assert np.array_equal(unique.values.numpy(), values)
    assert np.array_equal(unique.counts.numpy(), counts)
    assert unique.inverse_indices.shape == x.shape
    assert np.array_equal(values[unique.inverse_indices.numpy()], a)
    assert np.array_equal(a.reshape(-1)[unique.indices.numpy()], values)
    assert np.array_equal(wf.unique_values(x).numpy(), values)
    for part, want in zip(wf.unique_counts(x), (values, counts), strict=True):
        assert np.array_equal(part.numpy(), want)
    assert np.array_equal(wf.unique_inverse(x).inverse_indices.numpy(), unique.inverse_indices.numpy())
    if shape:
        for index, want in zip(wf.nonzero(x), np.nonzero(a), strict=True):
            assert index.dtype is wf.int64
            assert np.array_equal(index.numpy(), want)
    else:
        with pytest.raises(ValueError, match=r"nonzero: x has 0 dimensions"):
            wf.nonzero(x)


def test_nan_is_distinct():
    x = wf.tensor([np.nan, 1.0, np.nan])
    assert wf.unique_counts(x).counts.tolist() == [1, 1, 1]
    assert not wf.isin(x, x)[0].item()
    assert wf.nonzero(x)[0].tolist() == [0, 1, 2]
    with pytest.raises(
        TypeError, match=r"nonzero: x must be a Tensor, got list; weft\.asarray\(x\) makes one"
    ):
        wf.nonzero([1.0])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_differences(n):
    a = np.random.default_rng(n).normal(size=(3, 4))
    x = wf.tensor(a)
    for axis in (-1, 0):
        np.testing.assert_allclose(wf.diff(x, n=n, axis=axis).numpy(), np.diff(a, n=n, axis=axis), atol=1e-12)
    want = np.diff(a, n=n, axis=0, prepend=a[:1], append=a[1:])
    np.testing.assert_allclose(wf.diff(x, n=n, axis=0, prepend=x[:1], append=x[1:]).numpy(), want, atol=1e-12)
    with pytest.raises(ValueError, match="diff: n must be at least 0, got -1"):
        wf.diff(x, n=-1)
    with pytest.raises(wf.ShapeError, match="diff: axis 2 is out of range for x of 2 dimensions"):
        wf.diff(x, axis=2)


def test_astype_and_shapes():
    x = wf.tensor([1.7, -1.7])
    assert wf.astype(x, "int8").tolist() == [1, -1]
    assert wf.astype(x, "float32", copy=False) is x
    assert wf.astype(x, "float64", device="cpu:1").device == wf.cpu(1)
    assert wf.broadcast_shapes((3, 1), (0, 1, 4), ()) == np.broadcast_shapes((3, 1), (0, 1, 4), ())
    with pytest.raises(wf.ShapeError, match=r"broadcast_shapes: \(2,\) and \(3,\) do not broadcast"):
        wf.broadcast_shapes((2,), (3,))


def test_python_protocols():
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert 3.0 in x
    assert 5.0 not in x
    quotient, remainder = divmod(x, 2)
    assert (quotient.tolist(), remainder.tolist()) == ([[0, 1], [1, 2]], [[1, 0], [1, 0]])
    assert [part.tolist() for part in divmod(7, wf.tensor([2, 4]))] == [[3, 1], [1, 3]]


def test_methods_have_signatures():
    for name in METHODS:
        method = getattr(wf.Tensor, name)
        parameters = list(inspect.signature(method).parameters)
        assert parameters[0] == "self" or "See weft.functional" not in method.__doc__
    assert str(inspect.signature(wf.ones(1).clip)) == "(min=None, max=None)"
    assert str(inspect.signature(wf.ones(1).sum)) == str(inspect.signature(wf.sum)).replace("x, /, ", "")


def test_functions_have_signatures():
    for name in dir(wf.functional):
        if callable(getattr(wf.functional, name)):
            inspect.signature(getattr(wf.functional, name))
    assert inspect.signature(wf.functional.quantize).parameters["dtype"].default == "int8"


def test_libraries_of_the_standard_find_it_in_recorded_functions():
    """As einops.array_api asks arrays for their module; also where an array is one of a graph."""

    def f(x):
        xp = x.__array_namespace__(api_version="2023.12")
        return xp.permute_dims(x, (1, 0)) + xp.ones_like(xp.permute_dims(x, (1, 0)))

    x = wf.tensor([[1.0, 2.0, 3.0]])
    expected = f(x).numpy()
    np.testing.assert_array_equal(wf.trace(f, strict=True)(x).numpy(), expected)
    np.testing.assert_array_equal(wf.trace(f, dynamic={"x": 1}, strict=True)(x).numpy(), expected)
    np.testing.assert_array_equal(wf.vmap(f)(x[None]).numpy()[0], expected)


def _standard_functions():
    """(path, signature, takes, gives) of the lines of array_api_signatures.txt."""
    lines = (Path(coverage.__file__).parent / "array_api_signatures.txt").read_text().splitlines()
    for line in lines:
        if not line.startswith("#"):
            text, *dtypes = line.split(" | ")
            path, parameters = text.removesuffix(")").split("(", 1)
            yield path, inspect.signature(eval(f"lambda {parameters}: None")), *(dtypes or (None, None))


def test_signatures_are_those_of_the_standard():
    """Every call that the standard allows binds, and the defaults are the same; extensions come with keywords."""
    later = ("isin", "broadcast_shapes")  # of 2025.12
    for path, standard, _, _ in _standard_functions():
        own = inspect.signature(attrgetter(path)(wf))
        parameters = standard.parameters.values()
        own.bind(*(p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)))
        own.bind(
            *(p for p in parameters if p.kind is p.POSITIONAL_ONLY),
            **{p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)},
        )
        own.bind(
            *(p for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty),
            **{p.name: p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty},
        )
        for p in parameters:
            if p.default is not p.empty:
                assert own.parameters[p.name].default == p.default, (path, p.name)
    listed = {path for path, *_ in _standard_functions()}
    functions = {e.place for e in coverage.entries("array_api") if inspect.isroutine(attrgetter(e.place)(wf))}
    assert listed == {name for name in functions if not name.startswith("Tensor.")} - {*later}


KINDS = {
    "any": ("bool", "int", "uint", "float", "complex"),
    "numeric": ("int", "uint", "float", "complex"),
    "real": ("int", "uint", "float"),
    "integer": ("int", "uint"),
    "integer or bool": ("bool", "int", "uint"),
    "floating": ("float", "complex"),
    "real floating": ("float",),
    "complex": ("complex",),
    "bool": ("bool",),
}


def test_dtypes_of_results_are_those_of_the_standard():
    results = {
        "same": lambda dtype: dtype,
        "bool": lambda dtype: wf.bool,
        "parts": lambda dtype: dtype.real,
        "index": lambda dtype: wf.int64,
        "total": lambda dtype: {"int": wf.int64, "uint": wf.uint64}.get(dtype.kind, dtype),
    }
    for path, standard, takes, gives in _standard_functions():
        for dtype in wf.__array_namespace_info__().dtypes().values():
            if takes and dtype.kind in KINDS[takes]:
                arrays = [wf.ones(2, dtype=dtype) for name in standard.parameters if name.startswith("x")]
                assert attrgetter(path)(wf)(*arrays).dtype is results[gives](dtype), (path, dtype)
