"""What becomes of a traced function's arguments: floats, other libraries' arrays and scalars, empty arrays."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

import weft as wf
import weft.functional as F

VALUES = (0.75, 0.25, -3.5)


def put(s):
    y = wf.zeros(3)
    y[[0, 1]] = [s, 2.0]
    return y


ARRAYS_OF_FLOATS = {
    "tensor": wf.tensor,
    "asarray": wf.asarray,
    "list": lambda s: wf.tensor([s, 1.0]),
    "only_floats": lambda s: wf.tensor([s, s * 0.5]),
    "nested": lambda s: wf.tensor([[s, 1.0], [2, s + 1]]),
    "dtype": lambda s: wf.tensor(s, dtype="float64"),
    "integers": lambda s: wf.tensor([s, 1.0], dtype="int32"),
    "bools": lambda s: wf.tensor([s, 0.0], dtype="bool"),
    "full": lambda s: wf.full((2,), s),
    "advanced": put,
    "computed": lambda s: wf.tensor([s * 2 + 1, -s, abs(s), s**2]),
    "arange": lambda s: wf.arange(s, 3.0),
    "linspace": lambda s: wf.linspace(0.0, s, 3),
}


@pytest.mark.parametrize("lazy", [False, True], ids=["eager_first", "lazy"])
@pytest.mark.parametrize("name", ARRAYS_OF_FLOATS)
def test_arrays_of_float_arguments(name, lazy):
    function = ARRAYS_OF_FLOATS[name]
    traced = wf.trace(function, strict=True, lazy=lazy)
    for s in (*VALUES, *VALUES):
        found, expected = traced(s), function(s)
        assert found.dtype is expected.dtype
        assert found.numpy().tolist() == expected.numpy().tolist()


def test_arrays_of_floats_are_inputs():
    traced = wf.trace(lambda x, s: x * wf.tensor([s, s * 0.5]), strict=True)
    for s in VALUES:
        assert traced(wf.ones(2), s).numpy().tolist() == [s, s / 2]
    assert len(traced.programs) == 1


PYTHON = {
    "sqrt": lambda s: math.sqrt(abs(s)),
    "floor": math.floor,
    "divmod": lambda s: divmod(s, 2),
    "rdivmod": lambda s: divmod(7.0, s),
    "is_integer": lambda s: s.is_integer(),
    "ratio": lambda s: s.as_integer_ratio(),
    "real": lambda s: s.real * 1 + s.imag,
    "hex": lambda s: s.hex(),
    "json": lambda s: json.dumps({"lr": [s]}),
    "format": lambda s: f"{s:.3f} {s!r} {s}",
    "percent": lambda s: f"{s:.2f}",
    "complex": complex,
    "power": lambda s: s**0.5,
    "numpy_function": lambda s: float(np.cos(s)),
    "numpy_array": lambda s: (np.ones(2) * s).tolist(),
    "numpy_list": lambda s: np.array([s, 1.0]).tolist(),
    "numpy_full": lambda s: np.full(2, s).tolist(),
    "numpy_scalar": lambda s: float(np.float64(2.0) * s),
    "copy": lambda s: copy.deepcopy([copy.copy(s)]),
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "equal": lambda s: (s == 0.75, s == "a", s is not None, s in (0.25, 1)),
}


@pytest.mark.parametrize("name", PYTHON)
def test_floats_are_floats_to_python(name):
    function = PYTHON[name]
    traced = wf.trace(lambda x, s: (x * s, function(s)), strict=True)
    for s in (*VALUES, *VALUES):
        y, found = traced(wf.ones(2), s)
        assert found == function(s)
        assert y.numpy().tolist() == [s, s]


def test_the_sign_of_a_zero_and_nan_are_values():
    traced = wf.trace(lambda x, s: x * math.copysign(1, s), strict=True)
    assert [traced(wf.ones(()), s).item() for s in (0.0, -0.0, 0.0)] == [1, -1, 1]
    same = wf.trace(lambda x, s: x if math.isnan(s) else -x, strict=True)
    assert [same(wf.ones(()), s).item() for s in (math.nan, math.nan, 0.0)] == [1, 1, -1]
    assert len(same.programs) == 2


def test_a_float_that_stays_elsewhere_is_a_number_afterwards():
    left = []
    traced = wf.trace(lambda x, s: (left.append(s * 2), x * s)[1])
    traced(wf.ones(2), 0.75)
    (number,) = left
    assert number == 1.5
    assert json.dumps(number) == "1.5"
    assert isinstance(pickle.loads(pickle.dumps(number)), float)
    # In another function's trace it is a constant, not that one's first argument.
    other = wf.trace(lambda x, s: x * number + s, strict=True)
    assert [other(wf.ones(()), s).item() for s in (1.0, 2.0)] == [2.5, 3.5]


def test_libraries_that_refuse_the_number_are_explained():
    from datetime import timedelta

    with pytest.raises(TypeError) as problem:
        wf.trace(lambda x, s: (timedelta(seconds=s), x)[1])(wf.ones(2), 0.5)
    assert any("float(s) is its value" in note for note in problem.value.__notes__)


# Other libraries' arrays.


def test_numpy_arrays_are_inputs():
    traced = wf.trace(lambda a: wf.tensor(a) * 2, strict=True)
    buffer = np.zeros(3, "float32")
    for k in range(4):
        buffer[:] = k
        assert traced(buffer).numpy().tolist() == [2 * k] * 3
        assert traced(np.full(3, k, "float32")).numpy().tolist() == [2 * k] * 3
    assert len(traced.programs) == 1


@pytest.mark.processor("writes the host's memory")
def test_numpy_arrays_in_structures_and_written_to():
    def step(batch, *, scale):
        batch["x"] += scale
        return batch["x"] * batch["y"][0]

    traced = wf.trace(step, strict=True)
    for k in range(3):
        x, y, scale = np.full(2, k, "float32"), np.arange(2.0, dtype="float32") + 3, np.float32(k + 1)
        result = traced({"x": x, "y": [y[0:1], "name"]}, scale=scale)
        assert x.tolist() == [2 * k + 1] * 2
        assert result.numpy().tolist() == [3 * (2 * k + 1)] * 2
    assert len(traced.programs) == 1


@pytest.mark.parametrize("make", [np.float64, np.float32, np.float16])
def test_numpy_floats_are_inputs(make):
    traced = wf.trace(lambda x, s: x * s, strict=True)
    assert [traced(wf.ones(()), make(k)).item() for k in (1.5, 2.5)] == [1.5, 2.5]
    assert len(traced.programs) == 1
    assert traced(wf.ones(2), make(2)).dtype is wf.float32


def test_numpy_integers_and_bools_decide_by_value():
    traced = wf.trace(lambda x, n: x * n if n else -x, strict=True)
    calls = [np.int64(3), np.int64(3), np.int8(3), 3, np.bool_(False)]
    assert [traced(wf.ones(()), n).item() for n in calls] == [3, 3, 3, 3, -1]
    assert len(traced.programs) == 2


def test_arrays_that_cannot_be_inputs_are_refused():
    traced = wf.trace(lambda a: wf.ones(2))
    for a in (np.array([None]), np.array(["a"]), np.complex64(1j)):
        with pytest.raises(TypeError, match="lambda"):
            traced(a)


def test_loaded_programs_take_numpy_arrays(tmp_path):
    traced = wf.trace(lambda a, s: a * s, strict=True)
    traced(np.ones(3, "float32"), np.float32(2))
    traced.export(tmp_path / "p")
    assert wf.load_program(tmp_path / "p")(np.arange(3, dtype="float32"), np.float64(3)).numpy().tolist() == [
        0,
        3,
        6,
    ]


TABLE = np.ones(2, "float32")


class Holder:
    def __init__(self):
        self.table = np.ones(2, "float32")


@pytest.mark.parametrize("kind", ["global", "closure", "attribute"])
def test_captured_numpy_arrays_are_read_at_each_call_and_warned_of_once(kind):
    array, holder = np.ones(2, "float32"), Holder()
    function, array = {
        "global": (lambda x: x + wf.asarray(TABLE), TABLE),
        "closure": (lambda x: x + array, array),
        "attribute": (lambda x: x + wf.tensor(holder.table), holder.table),
    }[kind]
    traced = wf.trace(function, strict=True)

    def call(k):
        array[:] = k
        traced(wf.zeros((3, 2)))
        return traced(wf.zeros(2)).numpy().tolist()

    with pytest.warns(wf.TraceWarning, match="is a NumPy array that is no argument") as caught:
        found = list(map(call, range(3)))
    assert found == [[k, k] for k in range(3)]
    assert [w.filename for w in caught] == [__file__]


def test_captured_arrays_that_are_read_only_need_no_warning():
    array = np.ones(2, "float32")
    array.flags.writeable = False
    traced = wf.trace(lambda x: x + array, strict=True)
    assert [traced(wf.zeros(2)).numpy().tolist() for _ in range(2)] == [[1, 1]] * 2


# Empty arrays.

SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0), (1, 0)]


@pytest.mark.parametrize("lazy", [False, True], ids=["eager_first", "lazy"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_empty_arrays(shape, lazy):
    def function(x):
        y = F.exp(x) * 2 + 1
        y += x
        return y, y.sum(), x, y[..., :1], F.concat([y, y], axis=0)

    traced = wf.trace(function, strict=True, lazy=lazy)
    for _ in range(3):
        x = wf.ones(shape)
        found, expected = traced(x), function(x)
        assert found[2] is x
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert a.numpy().tolist() == b.numpy().tolist()


def test_empty_parts_and_gradients():
    def function(x):
        v = x[:, 1:1]
        v += v
        return F.tanh(v), x * 2

    traced = wf.trace(function, strict=True)
    for _ in range(2):
        a, b = traced(wf.ones((2, 3)))
        assert (a.shape, b.sum().item()) == ((2, 0), 12)
    slope = wf.trace(wf.grad(lambda x: F.exp(x[:0]).sum() + x.sum()), strict=True)
    assert [slope(wf.ones(3)).numpy().tolist() for _ in range(2)] == [[1, 1, 1]] * 2


def test_empty_arrays_in_lazy_blocks():
    with wf.lazy():
        y = F.exp(wf.ones((3, 0))) + wf.ones((3, 1))
        z = wf.ones((2, 2))[:, :0].sum()
        w = wf.ones(2) * 3
    assert (y.shape, z.item(), w.numpy().tolist()) == ((3, 0), 0, [3, 3])


# Lists and dicts.


@pytest.mark.parametrize("lazy", [False, True], ids=["eager_first", "lazy"])
def test_lists_and_dicts_that_a_call_changes(lazy):
    def function(xs, d, s):
        xs.append(s * 2)
        d["n"] = d.get("n", 0) + 1
        d.pop("gone", None)
        xs[0].append("x")
        return d["x"] * s

    traced = wf.trace(function, lazy=lazy)
    inner = []
    xs, d = [inner], {"x": wf.ones(()), "gone": 1}
    with pytest.warns(wf.TraceWarning, match="a list or a dict among the arguments is changed"):
        found = [traced(xs, d, s).item() for s in (0.5, 1.5, 2.5)]
    assert found == [0.5, 1.5, 2.5]
    assert (xs, d["n"], list(d)) == ([["x"] * 3, 1.0, 3.0, 5.0], 3, ["x", "n"])
    assert xs[0] is inner
    assert all(type(x) is float for x in xs[1:])
    with pytest.raises(wf.GraphError, match="a list or a dict"):
        wf.trace(function, strict=True)([[]], {"x": wf.ones(())}, 0.5)
