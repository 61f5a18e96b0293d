"""Tensors by themselves: what they print, default to, refuse, iterate, hash, pickle, copy and move between devices."""

import copy
import gc
import math
import operator
import pickle
import threading
import weakref

import numpy as np
import pytest

import weft as wf
from weft.base.dtype import DTYPES, as_dtype
from weft.base.errors import DeviceError, DTypeError, ShapeError

BIG = 1 << 22
"""Elements of an array that takes long enough to be still on its way when the next line runs."""


def refuses(kind, text, call, *arguments, **keywords):
    with pytest.raises(kind) as caught:
        call(*arguments, **keywords)
    assert type(caught.value) is kind
    assert str(caught.value) == text.replace("cpu:0", str(wf.as_device(None)))


# --- printing ---------------------------------------------------------------------------------------------

REPRS = {
    "tensor(1.5, dtype=float32, device=cpu:0)": lambda: wf.tensor(1.5),
    "tensor(3, dtype=int64, device=cpu:0)": lambda: wf.tensor(3),
    "tensor(True, dtype=bool, device=cpu:0)": lambda: wf.tensor(True),
    "tensor([ True, False], dtype=bool, device=cpu:0)": lambda: wf.tensor([True, False]),
    "tensor([1.5, 2.5], dtype=bfloat16, device=cpu:0)": lambda: wf.tensor([1.5, 2.5], "bfloat16"),
    "tensor([nan, inf], dtype=float16, device=cpu:0)": lambda: wf.tensor([math.nan, math.inf], "float16"),
    "tensor([], dtype=float32, device=cpu:0)": lambda: wf.zeros(0),
    "tensor([], shape=(0, 3), dtype=float32, device=cpu:0)": lambda: wf.zeros((0, 3)),
    "tensor([0, 1], dtype=int8, device=cpu:1)": lambda: wf.arange(2, dtype="int8", device="cpu:1"),
    "tensor([[0, 1],\n        [2, 3]], dtype=int64, device=cpu:0)": lambda: wf.arange(4).reshape(2, 2),
    "tensor([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int64, device=cpu:0)": lambda: wf.arange(2000),
    "tensor([3, 2, 1], dtype=int64, device=cpu:0)": lambda: wf.arange(4)[:0:-1],
}


@pytest.mark.parametrize("text", REPRS)
def test_repr_shows_values_type_and_device(text):
    expected = text.replace("cpu:0", str(wf.as_device(None)))
    assert repr(REPRS[text]()) == expected
    assert str(REPRS[text]()) == expected


def test_format_with_a_specification_formats_the_number_of_a_0_d_tensor():
    assert f"{wf.tensor(1.5):.3f}" == "1.500"
    assert f"{wf.tensor(7):>3d}" == "  7"
    assert f"{wf.tensor(1.5)}" == f"tensor(1.5, dtype=float32, device={wf.as_device(None)})"


# --- defaults ---------------------------------------------------------------------------------------------


@pytest.mark.processor("cpu:0 is the current device")
def test_new_tensors_are_float32_on_cpu_0_unless_asked():
    for x in (wf.empty(2), wf.zeros(2), wf.ones(2), wf.linspace(0, 1, 3), wf.eye(2), wf.tensor([1.0])):
        assert x.dtype is wf.float32
        assert x.device is wf.cpu(0)
    for x in (wf.arange(3), wf.tensor([1]), wf.full(2, 1)):
        assert x.dtype is wf.int64
    assert wf.full(2, True).dtype is wf.bool
    assert wf.full(2, 1.0).dtype is wf.float32
    assert wf.arange(3.0).dtype is wf.float32


def test_full_takes_the_type_of_numpys_numbers():
    for value in (np.float32(2.5), np.float64(2.5), np.int8(3), np.bool_(True), np.uint64(2**63)):
        x = wf.full(2, value)
        assert x[1].item() == value.item()


def test_like_functions_take_shape_type_and_device_of_their_model():
    model = wf.zeros((2, 3), "int16", "cpu:1")
    for x in (wf.empty_like(model), wf.zeros_like(model), wf.ones_like(model), wf.full_like(model, 3)):
        assert (x.shape, x.dtype, x.device) == ((2, 3), wf.int16, wf.cpu(1))
    for x in (
        wf.empty_like(model, "bool", "cpu:0"),
        wf.zeros_like(model, wf.bool, wf.cpu(0)),
        wf.ones_like(model, bool, "cpu"),
        wf.full_like(model, 3, np.bool_, "cpu:0"),
    ):
        assert (x.shape, x.dtype, x.device) == ((2, 3), wf.bool, wf.cpu(0))
    transposed = wf.zeros_like(wf.ones((2, 3)).T)
    assert (transposed.shape, transposed.strides) == ((3, 2), (8, 4))


def test_shapes_are_ints_or_sequences_of_ints():
    for shape in (3, (3,), [3], np.int64(3), np.array([3]), range(3, 4), wf.tensor(3), True + True + True):
        assert wf.empty(shape).shape == (3,)
    assert wf.empty(()).shape == ()
    assert wf.empty([]).shape == ()
    assert wf.empty(shape=(2,), dtype="int8", device="cpu:1").shape == (2,)
    assert all(type(size) is int for size in wf.empty((np.int32(2), True)).shape)


def test_attributes_say_what_numpy_says():
    x, a = wf.zeros((2, 3, 4), "int16")[:, ::-1, 1:], np.zeros((2, 3, 4), np.int16)[:, ::-1, 1:]
    for name in ("shape", "ndim", "size", "itemsize", "nbytes", "strides"):
        assert getattr(x, name) == getattr(a, name)


def test_attributes_are_read_only():
    x = wf.zeros(2)
    for name in ("shape", "dtype", "device", "ndim", "size", "strides", "T", "mT", "version", "other"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)


# --- errors -----------------------------------------------------------------------------------------------


def test_messages_of_views_name_the_operand():
    x = wf.zeros((2, 3))
    refuses(IndexError, "index 5 is out of range for axis 0 of size 2: x is f32[2,3]@cpu:0", lambda: x[5])
    refuses(
        IndexError, "index -4 is out of range for axis 1 of size 3: x is f32[2,3]@cpu:0", lambda: x[0, -4]
    )
    refuses(IndexError, "too many indices: 3 for 2 dimensions: x is f32[2,3]@cpu:0", lambda: x[0, 0, 0])
    refuses(IndexError, "an index can only have a single ellipsis ('...')", lambda: x[..., ...])
    refuses(ValueError, "slice step cannot be zero", lambda: x[::0])
    refuses(ShapeError, "reshape: 6 elements do not fit (4,): x is f32[2,3]@cpu:0", x.reshape, 4)
    refuses(ShapeError, "reshape: 6 elements do not fit (4, -1): x is f32[2,3]@cpu:0", x.reshape, 4, -1)
    refuses(ShapeError, "reshape: more than one size is -1 in (-1, -1)", x.reshape, -1, -1)
    refuses(ShapeError, "reshape: negative size -2 in (-2,)", x.reshape, -2)
    refuses(
        ShapeError, "broadcast_to: x does not fit (3, 3): x is f32[2,3]@cpu:0", wf.broadcast_to, x, (3, 3)
    )
    refuses(
        ShapeError,
        "permute_dims: axes (0, 0) are not a permutation of the 2 of x, f32[2,3]@cpu:0",
        lambda: wf.permute_dims(x, (0, 0)),
    )
    refuses(ShapeError, "mT: needs at least 2 dimensions: x is f32[3]@cpu:0", lambda: x[0].mT)
    refuses(ValueError, "item: only one element can become a number: x is f32[2,3]@cpu:0", x.item)
    text = "the truth value of a tensor with 6 elements is ambiguous: x is f32[2,3]@cpu:0"
    refuses(ValueError, text, lambda: bool(x))
    refuses(TypeError, "len() of a 0-d tensor", len, wf.tensor(1))
    refuses(TypeError, "iteration over a 0-d tensor", iter, wf.tensor(1))
    refuses(TypeError, "elements of a tensor cannot be deleted", operator.delitem, x, 0)


def test_messages_of_assignment_say_why():
    x = wf.zeros((2, 3))
    text = "broadcast_to: x does not fit (3,): x is f32[2]@cpu:0"
    refuses(ShapeError, text, operator.setitem, x, 0, wf.zeros(2))
    fact = "several indices of x refer to the same element (x was broadcast); write to a copy()"
    text = f"fill: {fact}: x is f32[4,3]@cpu:0"
    refuses(ValueError, text, operator.setitem, wf.broadcast_to(x[0], (4, 3)), ..., 1)
    text = text.replace("fill", "copy")
    refuses(ValueError, text, operator.setitem, wf.broadcast_to(x[0], (4, 3)), ..., wf.zeros(3))
    refuses(OverflowError, "300 is out of bounds for int8", operator.setitem, wf.zeros(2, "int8"), 0, 300)
    refuses(OverflowError, "-1 is out of bounds for uint64", operator.setitem, wf.zeros(2, "uint64"), 0, -1)
    with pytest.raises(TypeError):
        operator.setitem(x, 0, None)
    with pytest.raises(TypeError):
        operator.setitem(x, 0, "abc")
    assert not x.numpy().any()


@pytest.mark.processor("shares the host's memory")
def test_messages_of_creation_say_what_was_wrong():
    refuses(ShapeError, "shape: negative size -1 in (2, -1)", wf.empty, (2, -1))
    refuses(TypeError, "empty: a shape is an int or a sequence of ints, got 'a'", wf.empty, "a")
    refuses(TypeError, "zeros: a shape is an int or a sequence of ints, got 1.5", wf.zeros, 1.5)
    refuses(TypeError, "ones: a shape is an int or a sequence of ints, got (1.5,)", wf.ones, (1.5,))
    refuses(TypeError, "empty() needs the argument 'shape'", wf.empty)
    refuses(TypeError, "full() needs the argument 'fill_value'", wf.full, 2)
    refuses(TypeError, "empty() has no argument 'foo'", wf.empty, 1, foo=2)
    refuses(TypeError, "empty() got the argument 'shape' twice", wf.empty, 1, shape=1)
    refuses(TypeError, "empty() takes at most 3 arguments", wf.empty, 1, None, None, None)
    refuses(
        ShapeError, "tensor: lists of different lengths in dimension 1: 2 and 1", wf.tensor, [[1, 2], [3]]
    )
    refuses(ShapeError, "tensor: numbers and lists are mixed in dimension 1", wf.tensor, [[1], 3])
    refuses(ShapeError, "tensor: numbers and lists are mixed in dimension 1", wf.tensor, [1, [3]])
    refuses(ShapeError, "tensor: lists of different lengths in dimension 1: 0 and 1", wf.tensor, [[], [1]])
    refuses(DTypeError, "tensor: expected numbers, got str of <U3", wf.tensor, "abc")
    refuses(DTypeError, "tensor: expected numbers, got dict of object", wf.tensor, {})
    refuses(ValueError, "arange: step must not be 0", wf.arange, 0, 1, 0)
    refuses(ValueError, "linspace: num must be at least 0, got -1", wf.linspace, 0, 1, -1)
    text = "arange: start, stop and step must be finite, got 0, inf, 1"
    refuses(ValueError, text, wf.arange, math.inf)
    text = "asarray: copy=False, but Python numbers and lists have to be copied"
    refuses(ValueError, text, wf.asarray, [1], copy=False)
    text = "asarray: copy=False, but float32@cpu:0 has to become int8@cpu:0"
    refuses(ValueError, text, wf.asarray, wf.zeros(1), "int8", copy=False)
    text = "reshape: copy=False, but this needs a copy: x is f32[3,2]@cpu:0"
    refuses(ValueError, text, wf.reshape, wf.zeros((2, 3)).T, 6, copy=False)


@pytest.mark.processor("there is no GPU")
def test_wrong_types_and_devices_list_what_is_accepted():
    for call in (
        lambda: wf.zeros(1, "float8"),
        lambda: wf.zeros(1).astype("q"),
        lambda: wf.full(1, 1, object),
    ):
        with pytest.raises(DTypeError, match=r"accepted are bool, int8, .*float64"):
            call()
    with pytest.raises(DeviceError, match="accepted are a Device"):
        wf.zeros(1, device="tpu:0")
    with pytest.raises(DeviceError, match="gpu:0 is not available"):
        wf.zeros(1, device="gpu")
    with pytest.raises(DeviceError, match="gpu:0 is not available"):
        wf.zeros(1).to_device("gpu:0")
    with pytest.raises(ValueError, match="stream must be None"):
        wf.zeros(1).to_device("cpu:1", stream=1)


def test_functions_refuse_what_is_not_a_tensor_by_name():
    for call, name in (
        (lambda: wf.permute_dims({1}, (0,)), "permute_dims"),
        (lambda: wf.shares_memory(wf.zeros(1), np.zeros(1)), "shares_memory"),
    ):
        with pytest.raises(TypeError, match=f"{name}: expected a Tensor"):
            call()
    for nothing in (None, [None], object(), [object()]):
        with pytest.raises(TypeError, match="tensor: expected numbers"):
            wf.tensor(nothing)


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.processor("shares the host's memory")
def test_sixteen_dimensions_work():
    x, a = wf.arange(2**16).reshape((2,) * 16), np.arange(2**16).reshape((2,) * 16)
    np.testing.assert_array_equal(x.T.copy().numpy(), a.T)
    axes = np.random.default_rng(0).permutation(16).tolist()
    y = wf.permute_dims(x, axes)
    assert y.strides == a.transpose(axes).strides
    np.testing.assert_array_equal(y.astype("int32").numpy(), a.transpose(axes))
    index = (1, slice(None, None, -1)) * 8
    np.testing.assert_array_equal(x[index].copy().numpy(), a[index])
    assert x[(0,) * 16].item() == 0
    assert x[(*(1,) * 16, ...)].item() == 2**16 - 1
    x[...] = x.T
    np.testing.assert_array_equal(x.numpy(), a.T)
    assert wf.zeros(())[(None,) * 16].shape == (1,) * 16
    assert x[(None, 0) * 16].shape == (1,) * 16  # never more than 16 at the end
    assert wf.broadcast_to(wf.ones(()), (1,) * 15 + (2,)).ndim == 16
    nested = 5
    for _ in range(16):
        nested = [nested]
    assert wf.tensor(nested).shape == (1,) * 16
    assert pickle.loads(pickle.dumps(x)).shape == x.shape
    assert memoryview(x).ndim == 16


def test_seventeen_dimensions_are_refused():
    many = (1,) * 17
    nested = 5
    for _ in range(17):
        nested = [nested]
    x = wf.zeros((1,) * 16)
    for call in (
        lambda: wf.empty(many),
        lambda: wf.full(many, 1),
        lambda: x.reshape(many),
        lambda: wf.broadcast_to(x, many),
        lambda: wf.permute_dims(x, range(17)),
        lambda: wf.asarray(np.zeros(many)),
        lambda: wf.from_dlpack(np.zeros(many)),
        lambda: wf.tensor(nested),
    ):
        with pytest.raises(ShapeError, match="16"):
            call()
    with pytest.raises(IndexError, match="more than 16 dimensions"):
        x[None]
    with pytest.raises(IndexError):
        wf.zeros(())[(None,) * 50]


def test_absurd_shapes_are_refused_with_their_numbers():
    for shape in ((2**40, 2**40), (2**63 - 1,), (2**31, 2**31, 2), (2**40, 0, 2**40)):
        with pytest.raises(ShapeError, match="has more elements than memory can"):
            wf.empty(shape)
        with pytest.raises(ShapeError):
            wf.broadcast_to(wf.zeros(()), shape)
    with pytest.raises(ShapeError):
        wf.zeros(0).reshape(0, 2**40, 2**40)
    with pytest.raises(OverflowError):
        wf.empty(2**64)
    before = wf.storage.stats()
    with pytest.raises(MemoryError, match="out of memory"):
        wf.empty(2**60, "int8")
    after = wf.storage.stats()
    assert after["in_use_bytes"] == before["in_use_bytes"]
    assert after["reserved_bytes"] <= before["reserved_bytes"]
    assert wf.empty((2**40, 0)).size == 0
    assert wf.broadcast_to(wf.zeros(()), 2**58).nbytes == 2**60


# --- one object -------------------------------------------------------------------------------------------


def test_iteration_gives_views_of_the_first_dimension():
    x = wf.arange(6).reshape(3, 2)
    rows = list(x)
    assert [row.numpy().tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]
    rows[1][0] = 9
    assert x[1, 0].item() == 9
    assert len(x) == 3
    assert list(wf.zeros((0, 3))) == []
    assert [value.item() for value in wf.arange(3)] == [0, 1, 2]
    *_, third = x
    assert third[1].item() == 5


def test_iteration_can_go_backwards():
    assert [value.item() for value in reversed(wf.arange(3))] == [2, 1, 0]


def test_one_element_becomes_a_python_number():
    for shape in ((), (1,), (1, 1, 1)):
        assert int(wf.full(shape, 2.9)) == 2
        assert float(wf.full(shape, 2)) == 2.0
        assert type(float(wf.full(shape, 2))) is float
        assert bool(wf.full(shape, 0.5)) is True
        assert bool(wf.full(shape, -0.0)) is False
        assert bool(wf.full(shape, math.nan)) is True
    assert operator.index(wf.tensor(2)) == 2
    assert "abc"[wf.tensor(1, "uint8")] == "b"
    assert wf.arange(5)[wf.tensor(1) : wf.tensor(3)].shape == (2,)
    assert wf.arange(5)[wf.tensor(3)].item() == 3
    for other in (wf.tensor(2.0), wf.tensor([2]), wf.tensor(True)):
        with pytest.raises(TypeError, match="only 0-d integer tensors can be used as an index"):
            operator.index(other)
    with pytest.raises(ValueError, match="NaN"):
        int(wf.tensor(math.nan))
    with pytest.raises(OverflowError):
        int(wf.tensor(math.inf))


def test_tensors_are_hashed_by_identity():
    x, y = wf.zeros(2), wf.zeros(2)
    assert hash(x) == object.__hash__(x)
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2


def test_tensors_have_weak_references_that_end_with_them():
    x = wf.zeros(2)
    reference = weakref.ref(x)
    ended = []
    weakref.finalize(x, ended.append, 1)
    view = x[:1]
    assert reference() is x
    del x
    assert reference() is None
    assert ended == [1]
    assert view.item() == 0
    assert not gc.is_tracked(view)  # it holds no Python object, so no cycle can go through it


def test_tensors_cannot_be_made_by_their_type_or_subclassed():
    with pytest.raises(TypeError, match="cannot create"):
        wf.Tensor()
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (wf.Tensor,), {})


# --- pickling and copying ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pickles_come_back(protocol, dtype):
    for x in (
        wf.arange(24).reshape(2, 3, 4).astype(dtype),
        wf.arange(24).astype(dtype).reshape(4, 6).T[::-1, 1:],
        wf.tensor(1, dtype),
        wf.zeros((2, 0, 3), dtype),
        wf.zeros(0, dtype),
        wf.ones(2, dtype, "cpu:1"),
        wf.broadcast_to(wf.tensor([1, 0], dtype), (3, 2)),
    ):
        y = pickle.loads(pickle.dumps(x, protocol))
        assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
        assert y.numpy().tobytes() == x.numpy().tobytes()
        y[...] = 0
        assert not wf.shares_memory(x, y)


@pytest.mark.processor("shares the host's memory")
def test_pickles_of_protocol_5_can_leave_the_memory_outside():
    x = wf.arange(BIG)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(data) < 1000
    assert [buffer.raw().nbytes for buffer in buffers] == [x.nbytes]
    assert np.frombuffer(buffers[0].raw(), np.int64).ctypes.data == x.numpy().ctypes.data
    y = pickle.loads(data, buffers=[bytearray(buffers[0].raw())])
    buffers[0].release()
    np.testing.assert_array_equal(y.numpy(), np.arange(BIG))
    y[0] = 5
    assert x[0].item() == 0


def test_pickles_hold_only_the_elements_of_a_view():
    x = wf.zeros(BIG)
    for protocol in (2, 5):
        assert len(pickle.dumps(x[5:10], protocol)) < 1000
        assert len(pickle.dumps(x[:: BIG // 4], protocol)) < 1000


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, wf.Tensor.copy, wf.tensor], ids=lambda f: f.__name__
)
def test_copies_have_memory_of_their_own(copier):
    x = wf.arange(6).reshape(2, 3).T
    y = copier(x)
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    assert y.strides == (16, 8)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    x[...] = 0
    assert y.numpy().sum() == 15


def test_deepcopy_keeps_one_tensor_one():
    x = wf.ones(2)
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first is not x


def test_what_needs_no_copy_is_the_tensor_itself():
    x = wf.ones((2, 3))
    assert x.contiguous() is x
    assert x.astype("float32", copy=False) is x
    assert x.to_device(x.device) is x
    assert wf.asarray(x) is x
    assert wf.from_dlpack(x) is x
    assert x.astype("float32") is not x
    assert not wf.shares_memory(x, x.astype("float32"))
    assert not wf.shares_memory(x, x.T.contiguous())


# --- sequences --------------------------------------------------------------------------------------------


def values(x):
    return x.numpy().tolist()


def test_arange_counts_in_every_direction():
    assert values(wf.arange(3)) == [0, 1, 2]
    assert values(wf.arange(2, 5)) == [2, 3, 4]
    assert values(wf.arange(5, 2)) == []
    assert values(wf.arange(5, 2, -2)) == [5, 3]
    assert values(wf.arange(0, 5, 5)) == [0]
    assert values(wf.arange(0, 6, 5)) == [0, 5]
    assert values(wf.arange(-3)) == []
    assert values(wf.arange(0)) == []
    assert values(wf.arange(0, -1, -1)) == [0]
    assert values(wf.arange(1, 0, -0.25)) == [1, 0.75, 0.5, 0.25]
    assert values(wf.arange(2**62, 2**62 + 2)) == [2**62, 2**62 + 1]
    assert values(wf.arange(2**63 - 2, 2**63 - 1)) == [2**63 - 2]
    assert values(wf.arange(-(2**63), -(2**63) + 2)) == [-(2**63), -(2**63) + 1]
    assert wf.arange(0, 10**6, 7).size == len(range(0, 10**6, 7))
    assert wf.arange(5, dtype="bfloat16").dtype is wf.bfloat16


def test_arange_of_ints_beyond_int64_is_refused():
    for start in (2**63, 2**70, -(2**63) - 2):
        for dtype in (None, "uint64", "int64"):
            with pytest.raises(OverflowError, match="does not fit int64"):
                wf.arange(start, start + 2, dtype=dtype)


def test_arange_takes_numpys_numbers_as_pythons():
    assert wf.arange(np.int64(3)).dtype is wf.int64
    assert values(wf.arange(np.float32(1), 3)) == [1, 2]


def test_arange_of_absurd_length_is_refused():
    for stop in (2**62, 2**63 - 1, 2**64, 1e30):
        with pytest.raises((MemoryError, ShapeError, OverflowError)):
            wf.arange(stop)


def test_arange_of_nan_is_refused():
    for bounds in ((math.nan,), (0, math.nan), (0, 1, math.nan), (-math.inf, 0)):
        with pytest.raises(ValueError, match="must be finite"):
            wf.arange(*bounds)


def test_linspace_ends_exactly_at_its_stop():
    assert values(wf.linspace(0, 1, 5)) == [0, 0.25, 0.5, 0.75, 1]
    assert values(wf.linspace(0, 1, 4, endpoint=False)) == [0, 0.25, 0.5, 0.75]
    assert values(wf.linspace(3, 5, 1)) == [3]
    assert values(wf.linspace(3, 5, 0)) == []
    assert values(wf.linspace(2, 2, 3)) == [2, 2, 2]
    assert values(wf.linspace(1, -1, 3)) == [1, 0, -1]
    for num in (3, 7, 11, 100, 1001):
        assert wf.linspace(0.1, 0.7, num, "float64")[-1].item() == 0.7


def test_linspace_of_an_integer_type_is_refused():
    for dtype in ("int64", "uint8", "bool"):
        with pytest.raises(DTypeError, match=f"linspace: dtype must be a float, got {dtype}"):
            wf.linspace(-3, 3, 5, dtype)


def test_numbers_beyond_64_bits_become_floats_where_floats_are_wanted():
    assert wf.tensor([2**70], "float64").item() == 2.0**70
    assert wf.full((), -(2**70), "float32").item() == -(2.0**70)


def test_ranges_long_enough_for_many_threads_are_right():
    n = 3_000_001
    np.testing.assert_array_equal(wf.arange(n).numpy(), np.arange(n))
    np.testing.assert_array_equal(wf.arange(n, dtype="int8").numpy(), np.arange(n).astype(np.int8))
    np.testing.assert_array_equal(
        wf.arange(0, n / 4, 0.25, "float64").numpy(), np.arange(0, n / 4, 0.25, np.float64)
    )


# --- devices ----------------------------------------------------------------------------------------------


def test_devices_moved_to_see_work_that_was_pending():
    for _ in range(5):
        x = wf.zeros(BIG)
        x[...] = 1
        y = x.to_device("cpu:1")
        x[...] = 2  # must not be seen by y
        z = y.to_device(x.device)
        y[...] = 3  # must not be seen by z
        assert (x.device, y.device, z.device) == (wf.as_device(None), wf.cpu(1), wf.as_device(None))
        assert (z.numpy() == 1).all()
        assert (y.numpy() == 3).all()
        assert (x.numpy() == 2).all()


def test_devices_differ_in_assignment_too():
    x, y = wf.zeros((3, BIG // 3)), wf.ones(BIG // 3, device="cpu:1")
    x[1] = y
    y[...] = 5
    assert x.device is wf.as_device(None)
    assert values(x[:, -1]) == [0, 1, 0]
    x[::2] = y
    assert values(x[:, 7]) == [5, 1, 5]


def test_devices_have_memory_of_their_own():
    before = wf.storage.stats("cpu:1")["in_use_bytes"]
    x = wf.zeros(1000, device="cpu:1")
    assert wf.storage.stats("cpu:1")["in_use_bytes"] >= before + 4000
    del x
    wf.waitall()
    assert wf.storage.stats("cpu:1")["in_use_bytes"] == before


def test_devices_of_a_block_are_the_default_of_every_creation():
    outside = wf.as_device(None)
    model = wf.zeros(2)
    array = np.zeros(3)
    with wf.device("cpu:1"):
        made = [
            wf.empty(2),
            wf.zeros(2),
            wf.ones(2),
            wf.full(2, 1),
            wf.arange(2),
            wf.linspace(0, 1, 2),
            wf.eye(2),
            wf.tensor([1]),
            wf.tensor(model),
            wf.asarray(array),
            wf.from_dlpack(array),
            wf.tensor(array),
            wf.asarray([1.0, np.float32(2)]),
        ]
        like = [wf.zeros_like(model), model.copy(), model[:1], model.astype("int8"), wf.asarray(model)]
        there = wf.zeros(2, device="cpu:0")
        with wf.device("cpu:2"):
            inner = wf.zeros(2)
        again = wf.zeros(2)
    expected = [wf.cpu(1)] * len(made)
    expected[8] = outside  # a tensor stays where it is
    assert [x.device for x in made] == expected
    assert {x.device for x in like} == {outside}
    assert (there.device, inner.device, again.device) == (wf.cpu(0), wf.cpu(2), wf.cpu(1))
    assert wf.zeros(2).device is outside


def test_devices_of_a_block_are_those_of_its_thread():
    seen = []
    with wf.device("cpu:1"):
        thread = threading.Thread(target=lambda: seen.append(wf.zeros(1).device))
        thread.start()
        thread.join()
    assert seen == [wf.cpu(0)]


# --- element types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_equal_their_names_and_numpys_types(dtype):
    assert dtype is getattr(wf, dtype.name)
    assert dtype == dtype.name
    assert dtype == dtype.numpy
    assert dtype.numpy == dtype
    assert dtype == dtype.numpy.type
    assert as_dtype(dtype.name) is as_dtype(dtype.numpy) is as_dtype(dtype.numpy.type) is dtype
    assert dtype.itemsize == dtype.numpy.itemsize
    assert [other for other in DTYPES if other == dtype] == [dtype]
    assert [other for other in DTYPES if other == dtype.name] == [dtype]
    assert dtype not in ("float8", None, 3, object())
    assert {dtype: 1}[dtype.name] == 1
    assert hash(dtype) == hash(dtype.name)
    assert repr(dtype) == dtype.name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_are_one_object_each_through_pickles_and_copies(dtype):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(dtype, protocol)) is dtype
    assert copy.copy(dtype) is copy.deepcopy(dtype) is dtype
    with pytest.raises(AttributeError, match="immutable"):
        dtype.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        del dtype.name


def test_dtypes_of_python_are_weft_defaults():
    assert as_dtype(float) is wf.float32
    assert as_dtype(int) is wf.int64
    assert as_dtype(bool) is wf.bool
    assert as_dtype(complex) is as_dtype(np.complex64) is wf.complex64
    assert as_dtype(np.float64) is wf.float64
    for other in ("f4", "double", object, np.longdouble, np.dtype("S3"), np.dtype("M8[s]"), None, 3):
        with pytest.raises(DTypeError, match="accepted are"):
            as_dtype(other)


# --- versions ---------------------------------------------------------------------------------------------


def version(x):
    x.wait()
    return x.version


def test_versions_count_what_wrote_the_memory_through_any_view():
    x = wf.empty((2, 3))
    assert version(x) == 0
    x[...] = 1
    assert version(x) == 1
    x[0] = 2
    y = x.T[1:]
    assert version(x) == version(y) == 2
    y[...] = x.T[:2]  # they overlap
    assert version(x) == 3
    for reading in (
        x.copy,
        x.numpy,
        x.item if x.size == 1 else x.wait,
        lambda: repr(x),
        lambda: x.astype("int8"),
    ):
        reading()
    assert version(x) == version(y) == 3
    assert version(x.copy()) == 1


def test_versions_stay_where_nothing_was_written():
    x = wf.zeros(4)
    x[2:2] = 5
    x[...] = x
    with pytest.raises(OverflowError):
        wf.zeros(2, "int8")[0] = 300
    with pytest.raises(ShapeError):
        x[...] = [1, 2]
    assert version(x) == 1
