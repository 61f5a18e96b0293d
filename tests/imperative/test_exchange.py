"""The same memory in other libraries: no copies, alive while anybody uses it, and nobody sees half an operation."""

import array
import ctypes
import gc
import time
import weakref

import numpy as np
import pytest

import weft as wf
from weft.base.dtype import DTYPES
from weft.base.errors import DTypeError

pytestmark = pytest.mark.processor("arrays share the host's memory with others")

BIG = 1 << 24
"""Elements of an array (64 MiB of float32) whose operations are still pending when the next line runs."""

DLPACK = [dtype for dtype in DTYPES if dtype.name != "bfloat16"]
"""What NumPy takes and gives through DLPack."""

api = ctypes.pythonapi
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@pytest.fixture(autouse=True)
def memory_comes_back():
    """After each test no more memory is in use than before it."""
    before = in_use()
    yield
    end = time.monotonic() + 1
    while in_use() > before and time.monotonic() < end:  # a worker may hold its last operands a moment longer
        gc.collect()
        wf.waitall()
    assert in_use() <= before


def in_use():
    return wf.storage.stats()["in_use_bytes"]


def address(x):
    return x.numpy().ctypes.data


class Producer:
    """An object of another library that offers just what it is given."""

    def __init__(self, make, device=(1, 0)):
        self.make = make
        self.device = device

    def __dlpack__(self, **keywords):
        return self.make(**keywords)

    def __dlpack_device__(self):
        return self.device


def name_of(capsule):
    return api.PyCapsule_GetName(capsule).decode()


def set_code(capsule, code):
    """Writes the code of the element type of a capsule with a version; gives what it was."""
    place = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned") + 52
    before = ctypes.c_uint8.from_address(place).value
    ctypes.c_uint8.from_address(place).value = code
    return before


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]

    def dims(self):
        return tuple(self.shape[: self.ndim]), tuple(self.strides[: self.ndim])


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


READ_ONLY, COPIED = 1, 2


def contents(capsule):
    """The structure in a capsule; only as long as the capsule lives."""
    name = api.PyCapsule_GetName(capsule)
    pointer = api.PyCapsule_GetPointer(capsule, name)
    return ctypes.cast(pointer, ctypes.POINTER(Versioned if b"versioned" in name else Managed)).contents


def example(dtype, shape=(3, 4)):
    return (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(dtype.numpy)


VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "stepped": lambda x: x[::2, 1::2],
    "reversed": lambda x: x[::-1, ::-1],
    "row": lambda x: x[1],
    "number": lambda x: x[1, 2, ...],
    "empty": lambda x: x[:, :0],
    "new axis": lambda x: x[:, None],
}


# --- NumPy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_numpy_arrays_of_tensors_are_the_same_memory(dtype, view):
    x = VIEWS[view](wf.tensor(example(dtype)))
    expected = VIEWS[view](example(dtype))
    for a in (x.numpy(), np.asarray(x), np.array(x, copy=False)):
        assert a.dtype == dtype.numpy
        assert a.tolist() == expected.tolist()
        assert a.flags.writeable
        assert a.flags.aligned
        if a.size:
            assert a.ctypes.data == address(x)
            a[...] = 0
            assert not x.astype("complex128" if x.dtype.is_complex else "float32").numpy().any()
            a[...] = expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_tensors_of_numpy_arrays_are_the_same_memory(dtype, view):
    if dtype.name == "bfloat16" and view == "number":
        pytest.skip("0-d arrays of ml_dtypes offer no memory")
    a = VIEWS[view](example(dtype))
    expected = a.copy()
    x = wf.asarray(a)
    assert (x.shape, x.dtype) == (a.shape, a.dtype)
    assert x.numpy().tolist() == expected.tolist()
    if a.size:
        assert address(x) == a.ctypes.data
        x[...] = 0
        assert not a.astype("complex128" if a.dtype.kind == "c" else "float32").any()
        a[...] = expected
        assert x.numpy().tolist() == expected.tolist()
    made = wf.tensor(a)
    a[...] = 0
    assert made.numpy().tolist() == expected.tolist()


def test_numpy_arrays_keep_the_memory_when_the_tensor_goes():
    x = wf.arange(1000)
    a = x[10:].numpy()
    del x
    gc.collect()
    used = in_use()
    others = [wf.zeros(1000, "int64") for _ in range(20)]
    assert a.tolist() == list(range(10, 1000))
    del others
    b = a[5:]
    del a
    assert in_use() == used
    assert b[0] == 15
    del b
    assert in_use() == used - 8000


def test_tensors_keep_the_numpy_array_when_its_name_goes():
    a = np.arange(1000)
    reference = weakref.ref(a)
    x = wf.asarray(a)
    view = x[10:]
    del a, x
    gc.collect()
    assert reference() is not None
    assert view.numpy().tolist() == list(range(10, 1000))
    del view
    assert reference() is None


def test_tensors_of_numpy_arrays_take_no_memory():
    before = in_use()
    x = wf.asarray(np.zeros(10_000))
    assert in_use() == before
    assert np.asarray(x.numpy()).base is not None
    y = wf.asarray(x.numpy())
    assert address(y) == address(x)
    assert in_use() == before


def test_numpys_read_only_arrays_cannot_be_written():
    a = np.arange(6.0).reshape(2, 3)
    a.flags.writeable = False
    for x in (wf.asarray(a), wf.from_dlpack(a), wf.asarray(np.broadcast_to(np.zeros(1), (2, 3)))):
        for view in (x, x[0], x.T, x[:1, ::2], x.reshape(-1)):
            with pytest.raises(ValueError, match="read-only memory of another library; write to a copy"):
                view[...] = 1
            with pytest.raises(ValueError, match="read-only memory"):
                view[...] = view.copy()
            assert not view.numpy().flags.writeable
        x.copy()[...] = 1
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_numpy_arrays_of_repeated_elements_are_read_only():
    assert not wf.broadcast_to(wf.zeros(3), (2, 3)).numpy().flags.writeable
    assert wf.broadcast_to(wf.zeros((1, 3)), (1, 3)).numpy().flags.writeable


def test_numpy_functions_take_tensors():
    x = wf.arange(6).reshape(2, 3)
    assert np.add(x, 1).numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.sum(x) == 15
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(x), x.numpy())
    with pytest.raises(ValueError, match="copy"):
        np.array(x, dtype=np.float32, copy=False)


def test_arrays_that_cannot_be_shared_are_copied():
    swapped = np.arange(3, dtype=">i4")
    unaligned = np.zeros(25, np.uint8)[1:].view(np.int64)
    record = np.zeros(3, [("a", "i4"), ("b", "i2")])["a"]
    for a in (swapped, unaligned, record):
        x = wf.asarray(a)
        assert x.dtype == a.dtype.newbyteorder("=")
        assert x.numpy().tolist() == a.tolist()
        a[0] = 7
        assert x[0].item() == 0
        with pytest.raises(ValueError, match="copy=False"):
            wf.asarray(a, copy=False)
    for a in (
        np.array(["a"]),
        np.array([None]),
        np.array([1], "M8[s]"),
        np.zeros(2, "i4,i4"),
    ):
        with pytest.raises(DTypeError):
            wf.asarray(a)


def test_numpys_numbers_become_tensors():
    for number in (
        np.float32(2.5),
        np.int8(-3),
        np.bool_(True),
        np.array(4, np.uint16),
        *example(wf.bfloat16, (2,)),
    ):
        x = wf.tensor(number)
        assert (x.shape, x.dtype) == ((), number.dtype)
        assert x.item() == number


# --- the buffer protocol ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DLPACK, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_buffers_describe_the_same_memory(dtype, view):
    x, a = VIEWS[view](wf.tensor(example(dtype))), VIEWS[view](example(dtype))
    with memoryview(x) as m:
        assert (m.shape, m.ndim, m.itemsize, m.nbytes) == (a.shape, a.ndim, a.itemsize, a.nbytes)
        if a.size:
            assert np.asarray(m).ctypes.data == address(x)
        assert np.asarray(m).tolist() == a.tolist()
        assert m.tobytes() == a.tobytes()
        assert m.c_contiguous == a.flags.c_contiguous or not a.size


def test_buffers_keep_the_memory():
    gc.collect()  # what earlier tests left
    before = in_use()
    m = memoryview(wf.arange(1000))
    gc.collect()
    assert in_use() == before + 8000
    assert m[999] == 999
    m.release()
    assert in_use() == before


def test_buffers_of_writable_memory_are_writable():
    """NumPy and others take a buffer as it comes, without asking for a writable one."""
    x = wf.arange(6).reshape(2, 3)
    with memoryview(x) as m:
        assert not m.readonly
        m[1, 2] = 9
    assert x[1, 2].item() == 9


def test_buffers_of_bfloat16_are_refused():
    with pytest.raises(BufferError, match="bfloat16 has no format"):
        memoryview(wf.zeros(2, "bfloat16"))


PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES = 0, 1, 4, 8, 24
PyBUF_C, PyBUF_F, PyBUF_ANY = 32 | 24, 64 | 24, 128 | 24


def buffer_is_given(x, flags):
    raw = (ctypes.c_ubyte * 256)()  # larger than any Py_buffer
    try:
        api.PyObject_GetBuffer(ctypes.py_object(x), raw, ctypes.c_int(flags))
    except (BufferError, ValueError):  # NumPy's
        return False
    api.PyBuffer_Release(raw)
    return True


@pytest.mark.parametrize("flags", [PyBUF_SIMPLE, PyBUF_ND, PyBUF_STRIDES, PyBUF_C, PyBUF_F, PyBUF_ANY])
@pytest.mark.parametrize("writable", [0, PyBUF_WRITABLE])
@pytest.mark.parametrize("view", VIEWS)
def test_buffers_are_given_to_those_who_can_read_them_as_numpys(flags, writable, view):
    x, a = VIEWS[view](wf.tensor(example(wf.int32))), VIEWS[view](example(wf.int32))
    assert buffer_is_given(x, flags | writable) == buffer_is_given(a, flags | writable)


def test_buffers_of_read_only_memory_are_not_writable():
    a = np.zeros(3)
    a.flags.writeable = False
    for x in (wf.asarray(a), wf.broadcast_to(wf.zeros(1), 3)):
        assert not buffer_is_given(x, PyBUF_STRIDES | PyBUF_WRITABLE)
        assert memoryview(x).readonly


def test_python_buffers_become_tensors_of_the_same_memory():
    for source in (array.array("i", [1, 2, 3]), bytearray(b"abc"), memoryview(bytearray(b"abc"))):
        x = wf.asarray(source)
        assert x.numpy().tolist() == list(source)
        x[0] = 9
        assert source[0] == 9
        assert address(x) == np.frombuffer(source, np.uint8).ctypes.data
    x = wf.asarray(b"abc")
    assert x.dtype is wf.uint8
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1
    made = wf.tensor(b"abc")
    made[0] = 1
    assert made.numpy().tolist() == [1, 98, 99]


def test_python_buffers_stay_exported_as_long_as_the_tensor_lives():
    source = bytearray(8)
    x = wf.asarray(source)
    with pytest.raises(BufferError):
        source.append(1)
    del x
    source.append(1)


# --- DLPack -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 1), (2, 0)], ids=str)
def test_capsules_describe_the_tensor(dtype, view, version):
    x = VIEWS[view](wf.tensor(example(dtype)))
    capsule = x.__dlpack__(max_version=version)
    versioned = version is not None and version[0] >= 1
    assert name_of(capsule) == ("dltensor_versioned" if versioned else "dltensor")
    managed = contents(capsule)
    tensor = managed.tensor
    assert tensor.dims() == (x.shape, tuple(step // x.itemsize for step in x.strides))
    assert (tensor.device_type, tensor.device_id, tensor.lanes, tensor.byte_offset) == (1, 0, 1, 0)
    assert tensor.bits == 8 * dtype.itemsize
    assert tensor.code == {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}[dtype.kind] + 2 * (
        dtype is wf.bfloat16
    )
    if x.size:
        assert tensor.data == address(x)
    if versioned:
        assert (managed.major, managed.flags) == (1, 0)


def test_capsules_nobody_consumes_give_the_memory_back():
    for version in (None, (1, 0)):
        before = in_use()
        capsule = wf.zeros(1000).__dlpack__(max_version=version)
        assert in_use() > before
        del capsule
        assert in_use() == before


def test_capsules_say_what_is_read_only():
    a = np.zeros(3)
    a.flags.writeable = False
    for x in (wf.asarray(a), wf.broadcast_to(wf.zeros(1), 3)):
        assert contents(x.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
        assert not np.from_dlpack(x).flags.writeable
        with pytest.raises(BufferError, match="max_version"):
            x.__dlpack__()
    assert np.from_dlpack(wf.zeros(3)).flags.writeable


def test_capsules_of_copies_say_so():
    x = wf.arange(3)
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    managed = contents(capsule)
    assert managed.flags == COPIED
    assert managed.tensor.data != address(x)
    for copy in (None, False):
        capsule = x.__dlpack__(max_version=(1, 0), copy=copy)
        assert contents(capsule).tensor.data == address(x)
    a = np.from_dlpack(x, copy=True)
    a[0] = 5
    assert x[0].item() == 0
    b = np.from_dlpack(x, copy=False)
    b[0] = 5
    assert x[0].item() == 5


def test_capsules_are_for_the_cpu_and_without_stream():
    x = wf.zeros(3, device="cpu:1")
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x, device="cpu").ctypes.data == address(x)
    contents(x.__dlpack__(dl_device=(1, 0)))
    with pytest.raises(BufferError, match=r"only the cpu, \(1, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream must be None"):
        x.__dlpack__(stream=1)


@pytest.mark.parametrize("version", [None, (1, 0)], ids=str)
def test_capsules_are_consumed_once(version):
    x = wf.arange(3)
    capsule = x.__dlpack__(max_version=version)
    producer = Producer(lambda **_: capsule)
    y = wf.from_dlpack(producer)
    assert address(y) == address(x)
    assert name_of(capsule).startswith("used_")
    with pytest.raises(TypeError, match="nobody has consumed yet"):
        wf.from_dlpack(producer)
    del x
    gc.collect()
    assert y.numpy().tolist() == [0, 1, 2]


def test_capsules_refused_by_the_consumer_stay_whole():
    """A type that weft lacks: the capsule keeps its memory, and may be read by somebody else."""
    a = np.ones(3)
    reference = weakref.ref(a)
    capsules = [a.__dlpack__(max_version=(1, 0))]
    code = set_code(capsules[0], 17)
    with pytest.raises(DTypeError, match="DLPack's code 17 with 64 bits"):
        wf.from_dlpack(Producer(lambda **_: capsules[0]))
    assert name_of(capsules[0]) == "dltensor_versioned"
    set_code(capsules[0], code)
    del a
    b = np.from_dlpack(Producer(lambda **_: capsules[0]))
    assert b.tolist() == [1, 1, 1]
    del b
    capsules.clear()
    assert reference() is None


@pytest.mark.parametrize("dtype", DLPACK, ids=str)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("old", [False, True], ids=["versioned", "old"])
def test_dlpack_goes_both_ways_without_copies(dtype, view, old):
    x = VIEWS[view](wf.tensor(example(dtype)))
    expected = VIEWS[view](example(dtype)).tolist()

    def through(array):
        return Producer(lambda **keywords: array.__dlpack__(**({} if old else keywords)))

    a = np.from_dlpack(through(x))
    assert a.dtype == dtype.numpy
    assert a.tolist() == expected
    assert a.flags.writeable != old  # NumPy's caution: an old capsule cannot say
    y = wf.from_dlpack(through(x.numpy()))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.numpy().tolist() == expected
    if x.size:
        assert a.ctypes.data == address(x) == address(y)
        y[...] = 0
        assert not a.any()


def test_producers_written_before_version_1_are_read():
    a = np.arange(3)

    class Old:
        def __dlpack__(self, stream=None):
            return a.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    x = wf.from_dlpack(Old())
    assert address(x) == a.ctypes.data
    assert address(wf.asarray(Old())) == a.ctypes.data


def test_producers_that_refuse_are_heard():
    def refuse(**_):
        raise BufferError("not mine")

    with pytest.raises(BufferError, match="not mine"):
        wf.from_dlpack(Producer(refuse))
    with pytest.raises(TypeError, match="int has no __dlpack__"):
        wf.from_dlpack(3)
    with pytest.raises(TypeError, match="DLPack capsule"):
        wf.from_dlpack(Producer(lambda **_: 3))


def test_dlpack_lifetimes_end_in_either_order():
    for first in ("tensor", "array"):
        gc.collect()
        wf.waitall()
        before = in_use()
        x = wf.arange(1000)
        a = np.from_dlpack(x)
        if first == "tensor":
            del x
            gc.collect()
            assert a[999] == 999
            del a
        else:
            del a
            assert x[999].item() == 999
            del x
        assert in_use() == before
    for first in ("tensor", "array"):
        a = np.arange(1000)
        reference = weakref.ref(a)
        x = wf.from_dlpack(a)
        if first == "tensor":
            del x
            assert a[999] == 999
            del a
        else:
            del a
            gc.collect()
            assert reference() is not None
            assert x[999].item() == 999
            del x
        assert reference() is None


def test_dlpack_into_a_device_and_as_a_copy():
    a = np.arange(3)
    assert wf.from_dlpack(a, device="cpu:1").device is wf.cpu(1)
    assert address(wf.from_dlpack(a, device="cpu:1")) == a.ctypes.data
    assert address(wf.from_dlpack(a, copy=False)) == a.ctypes.data
    copied = wf.from_dlpack(a, copy=True)
    a[0] = 5
    assert copied[0].item() == 0
    x = wf.zeros(2)
    assert wf.from_dlpack(x, device="cpu:1").device is wf.cpu(1)
    assert wf.from_dlpack(x, copy=True) is not x
    with pytest.raises(ValueError, match="copy=False"):
        wf.from_dlpack(x, device="cpu:1", copy=False)


class ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("borrow_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


def exchange_api():
    pointer = api.PyCapsule_GetPointer(wf.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return ctypes.cast(pointer, ctypes.POINTER(ExchangeApi)).contents


def delete(managed):
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.contents.deleter)(ctypes.addressof(managed.contents))


def test_the_c_exchange_api_lends_and_takes_tensors():
    table = exchange_api()
    assert table.major == 1
    x = wf.arange(6).reshape(2, 3).T

    borrowed = DLTensor()
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))(
        table.borrow_from_object
    )
    assert borrow(x, borrowed) == 0
    assert borrowed.dims() == ((3, 2), (1, 3))
    assert borrowed.data == address(x)

    managed = ctypes.POINTER(Versioned)()
    lend = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(table.managed_from_object)
    assert lend(x, ctypes.addressof(managed)) == 0
    assert managed.contents.tensor.dims() == ((3, 2), (1, 3))

    made = ctypes.c_void_p()
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(table.managed_to_object)
    where = address(x)
    del x
    assert take(managed, ctypes.addressof(made)) == 0
    y = ctypes.cast(made, ctypes.py_object).value
    api.Py_DecRef(ctypes.py_object(y))  # the call gave us one
    assert (y.numpy().tolist(), address(y)) == ([[0, 3], [1, 4], [2, 5]], where)

    with pytest.raises(TypeError, match="expected a Tensor, got int"):
        lend(3, ctypes.addressof(managed))


def test_the_c_exchange_api_allocates():
    table = exchange_api()
    allocate = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(DLTensor), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )(table.allocate)
    told = []
    report = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)(
        lambda context, kind, text: told.append((kind, text))
    )
    before = in_use()
    managed = ctypes.POINTER(Versioned)()
    shape = (ctypes.c_int64 * 2)(30, 40)
    prototype = DLTensor(device_type=1, ndim=2, code=2, bits=32, lanes=1, shape=shape)
    assert allocate(prototype, ctypes.addressof(managed), None, report) == 0
    assert managed.contents.tensor.dims() == ((30, 40), (40, 1))
    assert in_use() == before + 4800
    delete(managed)
    assert in_use() == before
    prototype.code = 5
    assert allocate(prototype, ctypes.addressof(managed), None, report) == -1
    shape[0] = -1
    prototype.code = 2
    assert allocate(prototype, ctypes.addressof(managed), None, report) == -1
    assert len(told) == 2
    stream = ctypes.c_void_p(1)
    current = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(
        table.current_stream
    )
    assert current(1, 0, ctypes.addressof(stream)) == 0
    assert stream.value is None


# --- order ------------------------------------------------------------------------------------------------


def through(name, x):
    """x's memory as a NumPy array, in one of the ways there are; the way out waits."""
    if name == "buffer":
        return np.asarray(memoryview(x))
    return {"numpy": x.numpy, "asarray": lambda: np.asarray(x), "dlpack": lambda: np.from_dlpack(x)}[name]()


WAYS = ["numpy", "asarray", "dlpack", "buffer"]


@pytest.mark.parametrize("way", WAYS)
def test_exports_see_what_was_pending(way):
    source = wf.ones(BIG)
    x = wf.zeros(BIG)
    for _ in range(3):
        x[...] = source
        source[...] = x
    x[: BIG // 2] = 2
    a = through(way, x)
    assert (a[0], a[BIG // 2 - 1], a[BIG // 2], a[-1]) == (2, 2, 1, 1)
    assert a.sum(dtype=np.float64) == 1.5 * BIG


@pytest.mark.parametrize("way", WAYS)
def test_exports_that_can_be_written_wait_for_readers(way):
    x = wf.zeros(BIG)
    y = x.copy()
    z = x[::-1].copy()
    a = through(way, x)
    a[...] = 7
    assert not y.numpy().any()
    assert not z.numpy().any()


@pytest.mark.parametrize("way", WAYS)
def test_operations_on_exported_memory_finish_before_the_next_line(way):
    x = wf.zeros(BIG)
    a = through(way, x[-10:])  # of a view: it is the memory that is shared
    x[...] = 1
    assert a[-1] == 1
    x[...] = wf.full(BIG, 2.0)
    assert a[-1] == 2
    x[...] = x[::-1]
    assert a[-1] == 2


def test_operations_on_imported_memory_finish_before_the_next_line():
    for load in (wf.asarray, wf.from_dlpack):
        a = np.zeros(BIG, np.float32)
        x = load(a)
        x[...] = 1
        assert a[-1] == 1
        y = x.copy()
        a[...] = 5
        assert (y.numpy() == 1).all()
        wide = wf.empty((2, BIG))
        wide[...] = x
        a[...] = 6
        assert (wide.numpy() == 5).all()


def test_readers_of_exported_memory_finish_before_the_next_line():
    x = wf.zeros(BIG)
    a = x.numpy()
    y, z = x.copy(), x.to_device("cpu:1")
    a[...] = 5
    assert not y.numpy().any()
    assert not z.numpy().any()


# --- PyTorch ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", [name for name in VIEWS if name != "reversed"])
def test_torch_tensors_of_ours_are_the_same_memory(torch, dtype, view):
    x = VIEWS[view](wf.tensor(example(dtype)))
    t = torch.from_dlpack(x)
    assert t.dtype is getattr(torch, dtype.name)
    assert tuple(t.shape) == x.shape
    assert t.tolist() == VIEWS[view](example(dtype)).tolist()
    if x.size:
        assert tuple(step * x.itemsize for step in t.stride()) == x.strides
        assert t.data_ptr() == address(x)
        t.zero_()
        assert not x.astype("complex128" if x.dtype.is_complex else "float32").numpy().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", [name for name in VIEWS if name not in ("reversed", "number")])
def test_tensors_of_torchs_are_the_same_memory(torch, dtype, view):
    t = VIEWS[view]((torch.arange(12).reshape(3, 4) % 5).to(getattr(torch, dtype.name)))
    for x in (wf.from_dlpack(t), wf.asarray(t)):
        assert x.dtype is dtype
        assert x.shape == tuple(t.shape)
        assert x.numpy().tolist() == t.tolist()
        if x.size:
            assert address(x) == t.data_ptr()
    x[...] = 1
    assert (t == 1).all()
    made = wf.tensor(t)
    t.zero_()
    assert (made.numpy() == 1).all()


def test_torch_and_ours_end_in_either_order(torch):
    for first in ("ours", "torchs"):
        before = in_use()
        x = wf.arange(1000)
        t = torch.from_dlpack(x)[10:]
        if first == "ours":
            del x
            gc.collect()
            assert t[989] == 999
            del t
        else:
            del t
            assert x[999].item() == 999
            del x
        assert in_use() == before
    for first in ("ours", "torchs"):
        t = torch.arange(1000)
        x = wf.from_dlpack(t)
        if first == "torchs":
            del t
            gc.collect()
            assert x.numpy().tolist() == list(range(1000))
        else:
            del x
            assert t[999] == 999


def test_torch_sees_what_was_pending_and_every_later_operation(torch):
    x = wf.zeros(BIG)
    x[...] = wf.full(BIG, 3.0)
    t = torch.from_dlpack(x)
    assert (t == 3).all()
    x[...] = 4
    assert t[-1] == 4
    y = x.copy()
    t.zero_()
    assert (y.numpy() == 4).all()


def test_torchs_variables_of_gradients_are_refused(torch):
    with pytest.raises(BufferError, match="detach"):
        wf.asarray(torch.ones(2, requires_grad=True))
    assert wf.asarray(torch.ones(2, requires_grad=True).detach()).numpy().tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_torchs_types_that_weft_lacks_are_refused(torch):
    for name in ("complex32", "float8_e4m3fn"):
        with pytest.raises(DTypeError):
            wf.from_dlpack(torch.zeros(2).to(getattr(torch, name)))


def test_torchs_expanded_tensors_can_be_read_but_not_written(torch):
    x = wf.from_dlpack(torch.arange(3).expand(2, 3))
    assert x.numpy().tolist() == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(ValueError, match="several indices of x refer to the same element"):
        x[...] = 1
