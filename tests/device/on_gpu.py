"""Arrays in memory that the host cannot touch. test_gpu_memory.py runs this file in processes that have a GPU."""

import ctypes
import gc
import io
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.base.errors import DeviceError
from weft.engine import default_engine
from weft.tools.memory import memory_summary

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]
rng = np.random.default_rng(0)


def numbers(shape, dtype="float32"):
    return (rng.standard_normal(shape) * 50).astype(dtype)


def on_gpu(array, device="gpu:0"):
    return wf.tensor(array, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0, 1, 77])
def test_fills(dtype, value):
    x = wf.full((3, 5), value, dtype=dtype, device="gpu:0")
    expected = wf.full((3, 5), value, dtype=dtype)
    assert str(x.device) == "gpu:0"
    assert x.dtype is expected.dtype
    np.testing.assert_array_equal(x.numpy(), expected.numpy())
    x[:, 1:4:2] = 0
    expected[:, 1:4:2] = 0
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


def test_other_ways_to_make_arrays():
    with wf.device("gpu:0"):
        made = {
            "zeros": wf.zeros((2, 3)),
            "ones": wf.ones(4, dtype="int64"),
            "lists": wf.tensor([[1, 2], [3, 4]]),
            "range": wf.arange(10, dtype="float64"),
            "scalar": wf.tensor(0.5),
            "nothing": wf.zeros((0, 3)),
        }
    assert {str(x.device) for x in made.values()} == {"gpu:0"}
    assert made["zeros"].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert made["ones"].tolist() == [1] * 4
    assert made["lists"].tolist() == [[1, 2], [3, 4]]
    assert made["range"].tolist() == list(range(10))
    assert made["scalar"].item() == 0.5
    assert float(made["scalar"]) == 0.5
    assert made["nothing"].numpy().shape == (0, 3)
    assert "0.5" in repr(made["scalar"])


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_numpy_arrays_come_and_go(dtype):
    a = numbers((6, 7), dtype)
    for view in (a, a.T, a[::2, 1:5], a[::-1], a[:0], a[2, 3], a.astype(a.dtype.newbyteorder())):
        x = on_gpu(view)
        np.testing.assert_array_equal(x.numpy(), view)
    x = on_gpu(a)
    copy = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 1
    x[0] = 5
    assert (copy == a).all()
    with pytest.raises(ValueError, match="copy=False"):
        wf.asarray(a, device="gpu:0", copy=False)


def random_view(x, y):
    """The same part of a Tensor and of an array: slices of any step, axes in either order."""
    index = []
    for size in x.shape:
        step = int(rng.choice([1, 1, 2, -1]))
        first, last = sorted(rng.integers(0, size + 1, 2).tolist())
        index.append(slice(first, last, step) if step > 0 else slice(None, None, step))
    x, y = x[tuple(index)], y[tuple(index)]
    return (x.T, y.T) if rng.integers(2) else (x, y)


def test_copies_between_views_of_devices():
    devices = ["cpu:0", "gpu:0", "gpu:1"]
    for trial in range(150):
        types = rng.choice(["float32", "float64", "int32"], 2)
        a, b = numbers((5, 6, 4), types[0]), numbers((5, 6, 4), types[1])
        x = wf.tensor(a, device=devices[trial % 3])
        y = wf.tensor(b, device=devices[int(rng.integers(3))])
        to, expected_to = random_view(x, a)
        fits = tuple(slice(0, size) for size in to.shape)
        if any(size > most for size, most in zip(to.shape, b.shape, strict=True)):
            fits = (slice(0, 1),) * 3
        source, expected_source = y[fits], b[fits]
        to[...] = source
        expected_to[...] = expected_source
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal(y.numpy(), b)


@pytest.mark.parametrize("mebibytes", [4, 17])  # pieces have 4, and there are four
def test_large_copies_take_several_pieces(mebibytes):
    a = rng.integers(0, 256, (mebibytes << 20) + 3, dtype="uint8")
    x = on_gpu(a)
    np.testing.assert_array_equal(x.numpy(), a)
    y = x.to_device("gpu:1")
    assert str(y.device) == "gpu:1"
    np.testing.assert_array_equal(y.to_device("cpu").numpy(), a)
    np.testing.assert_array_equal(x.copy().numpy(), a)


def test_to_device():
    a = numbers((4, 5))
    x = wf.tensor(a).to_device("cuda:1")
    assert x.device is wf.gpu(1)
    assert x.to_device(wf.gpu(1)) is x
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(x[1:, ::2].to_device("gpu").numpy(), a[1:, ::2])
    np.testing.assert_array_equal(x[1:, ::2].to_device("cpu").numpy(), a[1:, ::2])


NUMBERS = np.array([[1, 2], [3, 4], [5, 6]], "float32")
OPERANDS = {
    "a list of indices": lambda x: x[[0, 2]],
    "indices of NumPy": lambda x: x[np.array([0, -1])],
    "a mask": lambda x: x[np.array([True, False, True])],
    "an array of NumPy": lambda x: x * np.array([1, 2], "float32") + np.float64(2),
    "on the left": lambda x: np.ones((3, 2), "float32") - x,
    "where": lambda x: wf.where(x > 2, x, np.zeros((3, 2), "float32")),
    "a complex number": lambda x: wf.real(x * 2j * 1j),
    "in a branch": lambda x: wf.cond(
        x.sum() > 0, lambda: x[[0]] * np.array([1, 2], "float32"), lambda: x[:1]
    ),
    "of each example": lambda x: wf.vmap(lambda row: row[[1, 0]] * np.array([1, 2], "float32"))(x),
    "gradient": lambda x: wf.grad(lambda x: (x[[0, 0]] ** 2).sum())(x),
}


@pytest.mark.parametrize("way", [lambda f: f, wf.trace, lambda f: wf.trace(f, dynamic={"x": 0})])
@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_are_no_arrays_go_to_the_device_of_those_beside_them(name, way):
    """While cpu:0 is the current device."""
    f = way(OPERANDS[name])
    x = on_gpu(NUMBERS)
    for _ in range(2):
        y = f(x)
        assert y.device is x.device
        np.testing.assert_array_equal(y.numpy(), OPERANDS[name](wf.tensor(NUMBERS)).numpy())


def test_lists_and_arrays_of_numpy_in_calls():
    for x in (on_gpu(NUMBERS), wf.tensor(NUMBERS)):
        x[[0, 2]] = np.array([7, 8], "float32")
        x[:, 0] = [1.0, 2.0, 3.0]
        assert x.tolist() == [[1, 8], [2, 4], [3, 8]]
        assert wf.take(x, [0, 1], axis=0).tolist() == [[1, 8], [2, 4]]
        assert wf.concat([x, np.ones((1, 2), "float32")]).tolist() == [[1, 8], [2, 4], [3, 8], [1, 1]]


def test_states_of_random_numbers_have_the_devices_that_are_used():
    wf.random.uniform(shape=3, device="gpu:0").wait()
    state = wf.random.get_state()
    first = wf.random.uniform(shape=3, device="gpu:0")
    wf.random.set_state(state)
    assert first.tolist() == wf.random.uniform(shape=3, device="gpu:0").tolist()


def test_states_of_random_numbers_tell_of_devices_that_were_not_used():
    """Another process goes on where this one would, on GPUs that this one has not touched."""
    code = (
        "import json, sys, weft as wf\n"
        "state, used, seed = json.loads(sys.argv[1])\n"
        "if used: wf.random.uniform(shape=3, device='gpu:1').wait()\n"
        "if seed is not None: wf.random.seed(seed)\n"
        "if state: wf.random.set_state(state)\n"
        "state = wf.random.get_state()\n"
        "print(json.dumps([state, wf.random.uniform(shape=3, device='gpu:1').tolist()]))\n"
    )

    def elsewhere(state=None, used=False, seed=None):
        result = subprocess.run(
            [sys.executable, "-c", code, json.dumps([state, used, seed])],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(result.stdout)

    state, first = elsewhere(seed=5)
    assert elsewhere(state, seed=6)[1] == first
    assert elsewhere(state, used=True, seed=6)[1] == first
    assert elsewhere(seed=6)[1] != first


def test_random_numbers_are_those_of_the_processor():
    wf.random.seed(7)
    wf.random.seed(7, device="gpu:0")
    for draw in (
        lambda **k: wf.random.uniform(-1.0, 2.0, (3, 50), **k),
        lambda **k: wf.random.normal(0.0, 2.0, (77,), **k),
        lambda **k: wf.random.randint(0, 100, (5, 5), **k),
    ):
        np.testing.assert_array_equal(draw(device="gpu:0").numpy(), draw(device="cpu:0").numpy())


def test_files_and_pickles(tmp_path):
    tensors = {"a": on_gpu(numbers((3, 4))), "b": on_gpu(numbers(5).astype("int64"))[1:4], "c": wf.ones(2)}
    wf.save(tmp_path / "x.safetensors", tensors)
    for mapped in (False, True):
        loaded = wf.load(tmp_path / "x.safetensors", device="gpu:1", mmap=mapped)
        for name, x in tensors.items():
            assert str(loaded[name].device) == "gpu:1"
            np.testing.assert_array_equal(loaded[name].numpy(), x.numpy())
    for protocol in (2, 5):
        x = pickle.load(io.BytesIO(pickle.dumps(tensors["a"], protocol)))
        assert str(x.device) == "gpu:0"
        np.testing.assert_array_equal(x.numpy(), tensors["a"].numpy())


def test_memory_comes_back():
    with wf.device("gpu:1"):
        before = _core.memory_stats("gpu:1")
        x = wf.zeros(10 << 20, dtype="uint8")
        wf.waitall()
        assert _core.memory_stats("gpu:1")["in_use_bytes"] == before["in_use_bytes"] + (10 << 20)
        assert "gpu:1\n  in use" in memory_summary()
        del x
        assert _core.memory_stats("gpu:1")["in_use_bytes"] == before["in_use_bytes"]
        _core.trim_memory("gpu:1")
        assert _core.memory_stats("gpu:1")["reserved_bytes"] <= before["reserved_bytes"]


def test_memory_of_the_host_that_streams_have_copied_comes_back():
    def in_use_after_copies():
        for _ in range(300):
            x[:, 3] = [1.0] * 10
        wf.waitall()
        gc.collect()
        return wf.storage.stats("cpu:0")["in_use_bytes"]

    x = wf.zeros((10, 30), device="gpu:0")
    first = in_use_after_copies()
    assert [in_use_after_copies() for _ in range(3)] == [first] * 3


def test_memory_of_the_host_goes_back_without_a_look():
    """A loop that only copies into an array keeps what streams have not passed yet, and no more."""
    x, host = wf.zeros(1 << 18, device="gpu:0"), np.ones(1 << 18, "float32")
    wf.waitall()
    wf.storage.reset_peaks("cpu:0")
    before = wf.storage.stats("cpu:0")["in_use_bytes"]
    for _ in range(60):
        x[...] = wf.tensor(host)
        x.wait()
    assert wf.storage.stats("cpu:0")["peak_in_use_bytes"] <= before + (4 << 20)


def test_memory_of_a_device_that_is_not_asked_for_more():
    """What was dropped while streams used it goes back when the next array is dropped."""
    x = wf.zeros(1 << 18, device="gpu:0")
    kept = [x + k for k in range(20)]
    wf.waitall()
    pool = wf.storage.stats("gpu:0")["in_use_bytes"]
    for k in range(20):
        x += kept[k]  # the stream reads it
        kept[k] = None
    wf.waitall()
    assert wf.storage.stats("gpu:0")["in_use_bytes"] == pool - 20 * (1 << 20)


def test_out_of_memory_loses_nothing():
    x = on_gpu([1.0, 2.0])
    with pytest.raises(MemoryError, match=r"gpu:0: out of memory: .* asked for"):
        wf.zeros(1 << 38, dtype="uint8", device="gpu:0")
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["bool", "int64", "bfloat16", "float32"])
def test_operators_of_python_read_and_write(dtype):
    """With gradients, of views too: what they write is there for what was pushed behind them."""

    class Twice(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0].numpy())
            self.assign(out_data[0], "add", in_data[0].numpy())

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
            self.assign(in_grad[0], req[0], 2 * out_grad[0].numpy())

    @wf.operator.register(f"twice_on_gpus_{dtype}")
    class TwiceProperty(wf.operator.OperatorProperty):
        def create_operator(self, device):
            return Twice()

    twice = getattr(wf.operator, f"twice_on_gpus_{dtype}")
    x = on_gpu(np.arange(6.0).reshape(2, 3)).astype(dtype)
    for operand in (x, x.T, x[:, ::2], x[:0]):
        results = [twice(operand + operand) for _ in range(20)]
        expected = (operand.to_device("cpu") + operand.to_device("cpu")).astype("float32").numpy()
        expected = expected.astype(bool) if dtype == "bool" else 2 * expected
        for y in results:
            assert str(y.device) == "gpu:0"
            np.testing.assert_array_equal((y * y).astype("float32").numpy(), expected * expected)
    if dtype == "float32":
        manager = wf.GradManager().attach([x])
        with manager:
            manager.backward((twice(x) * x).sum())
        np.testing.assert_array_equal(x.grad.numpy(), 4 * x.numpy())


def test_operators_of_python_get_memory_and_random_numbers():
    """Memory of the host, which the function can touch."""

    class Scratch(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            space, draws = ctx.requested[0]((2, 3)), ctx.requested[1]
            space[...] = in_data[0].numpy() + draws.integers(3, 4)
            self.assign(out_data[0], req[0], space)

    @wf.operator.register("scratch_on_gpus")
    class ScratchProperty(wf.operator.OperatorProperty):
        def forward_resource(self, in_shapes):
            return ["temp_space", "random"]

        def create_operator(self, device):
            return Scratch()

    a = numbers((2, 3))
    for device in ("gpu:1", "cpu:0"):
        before = wf.storage.stats("cpu:0")["allocations"]
        y = wf.operator.scratch_on_gpus(on_gpu(a, device))
        assert str(y.device) == device
        np.testing.assert_array_equal(y.numpy(), a + 3)
        assert wf.storage.stats("cpu:0")["allocations"] > before


def test_what_cannot_be_done_says_so():
    x = on_gpu([1.0, 2.0])
    with pytest.raises(BufferError, match="on a GPU"):
        memoryview(x)
    with pytest.raises((BufferError, RuntimeError), match="device"):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match=r"__dlpack__: x is on gpu:0; besides, a copy on the cpu"):
        x.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="copy=False gives no copy on the cpu"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ValueError, match="stream is None, -1, 1, 2 or a stream's address; got 0"):
        x.__dlpack__(stream=0)
    with pytest.raises(DeviceError, match="gpu:5 is not available: the driver has 2 devices, gpu:0 to gpu:1"):
        wf.zeros(2, device="gpu:5")
    assert x.tolist() == [1, 2]


class Borrowed(ctypes.Structure):
    """The beginning of DLPack's managed array."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Library:
    """Another library: it lends an array of float32, and reads one on a stream of its own."""

    def __init__(self, x):
        self.x, self.streams = x, []
        self.driver = ctypes.CDLL(os.environ["WEFT_GPU_DRIVER"])
        self.stream = ctypes.c_void_p()
        context = ctypes.c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), x.device.index) == 0
        assert self.driver.cuCtxSetCurrent(context) == 0
        assert self.driver.cuStreamCreate(ctypes.byref(self.stream), 1) == 0

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        return self.x.__dlpack__(stream=stream, **options)

    def read(self):
        capsule = self.x.__dlpack__(stream=self.stream.value)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.POINTER(Borrowed), (ctypes.py_object, ctypes.c_char_p)
        array = pointer(capsule, b"dltensor").contents
        assert tuple(array.device) == (2, self.x.device.index)
        assert tuple(array.dtype) == (2, 32, 1, 0)
        shape, strides = array.shape[: array.ndim], array.strides[: array.ndim]
        count = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        elements = np.empty(count, "float32")
        address = ctypes.c_uint64(array.data + array.byte_offset)
        to = ctypes.c_void_p(elements.ctypes.data)
        assert self.driver.cuMemcpyDtoHAsync_v2(to, address, ctypes.c_size_t(4 * count), self.stream) == 0
        assert self.driver.cuStreamSynchronize(self.stream) == 0
        return np.lib.stride_tricks.as_strided(elements, shape, [4 * step for step in strides])


@pytest.mark.parametrize("device", ["gpu:0", "gpu:1"])
def test_memory_is_lent_and_taken_over_by_dlpack(device):
    a = numbers((40, 30)).round()
    x = on_gpu(a, device)
    for k in range(20):
        x += 1
        np.testing.assert_array_equal(Library(x[3:, ::2]).read(), (a + k + 1)[3:, ::2])
    a = x.numpy().copy()
    library = Library(x)
    y = wf.from_dlpack(library)
    assert (str(y.device), library.streams) == (device, [library.streams[0]])
    assert library.streams[0] > 2
    x[0] = 5
    a[0] = 5
    np.testing.assert_array_equal((y * 2).numpy(), a * 2)
    y[1] = 7
    a[1] = 7
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(wf.asarray(Library(x[::2])).numpy(), a[::2])
    assert str(wf.asarray(Library(x)).device) == device
    np.testing.assert_array_equal(wf.from_dlpack(Library(x), device="cpu:0").numpy(), a)
    with pytest.raises(ValueError, match="copy=False"):
        wf.from_dlpack(Library(x), device="cpu:0", copy=False)
    other = wf.from_dlpack(Library(x), copy=True)
    x[...] = 0
    np.testing.assert_array_equal(other.numpy(), a)
    np.testing.assert_array_equal(np.from_dlpack(x.to_device("cpu:0")), 0)
    assert wf.from_dlpack(np.arange(3), device=device).tolist() == [0, 1, 2]
    del library, y, x
    gc.collect()


def test_batches_are_on_the_device_before_they_are_asked_for():
    a, labels = numbers((24, 3)), np.arange(24)
    data = wf.data.ArrayDataset(a, labels)
    for workers in (0, 2):
        loader = wf.data.DataLoader(data, batch_size=5, num_workers=workers, device="gpu:0")
        for epoch in range(2):
            batches = list(loader)
            assert len(batches) == 5, epoch
            assert {str(x.device) for batch in batches for x in batch} == {"gpu:0"}
            np.testing.assert_array_equal(np.concatenate([x.numpy() for x, _ in batches]), a)
            np.testing.assert_array_equal(np.concatenate([y.numpy() for _, y in batches]), labels)


def counts(name):
    return _core.device_kind_counters("gpu")[name]


def test_the_device_copies_and_fills_arrays_of_any_strides():
    """By loops of its own, which the host does not wait for."""
    a = numbers((7, 6))
    x, other = on_gpu(a), wf.zeros((7, 12), device="gpu:1")
    x.wait()
    other.wait()
    calls = {
        "transposed": lambda: x.T.copy(),
        "reversed": lambda: x[::-1, ::2].copy(),
        "converted": lambda: x.to_device("gpu:0").T.astype("int32"),
        "range": lambda: wf.arange(5, 17, 3, device="gpu:0"),
        "range of reals": lambda: wf.arange(0.5, 4, 0.25, device="gpu:0"),
        "spaced": lambda: wf.linspace(0, 1, 7, device="gpu:0"),
        "wide": lambda: wf.full((3, 5), 0.3, dtype="float64", device="gpu:0"),
        "strided fill": lambda: fill_strided(wf.zeros((4, 6), dtype="float64", device="gpu:0")),
        "uniform": lambda: wf.random.uniform(shape=(5, 7), device="gpu:0"),
        "normal": lambda: wf.random.normal(shape=(5, 7), device="gpu:0"),
        "integers": lambda: wf.random.randint(-5, 300, shape=(5, 7), device="gpu:0"),
        "permutation": lambda: wf.random.permutation(wf.arange(20, device="gpu:0")),
        "rows": lambda: wf.random.permutation(x),
        "to another": lambda: x.T.to_device("gpu:1"),
        "into a view": lambda: assign(other[:, ::2], x),
    }
    for name, call in calls.items():
        call().wait()
        before = counts("staged"), counts("waits")
        y = call()
        is_waiting = os.environ.get("WEFT_ENGINE") == "naive"  # for each operation, as it should
        after = counts("staged"), before[1] if is_waiting else counts("waits")
        assert after == before, name
        y.wait()
    np.testing.assert_array_equal(calls["transposed"]().numpy(), a.T)
    np.testing.assert_array_equal(calls["reversed"]().numpy(), a[::-1, ::2])
    np.testing.assert_array_equal(calls["to another"]().numpy(), a.T)
    np.testing.assert_array_equal(other[:, ::2].numpy(), a)
    assert counts("staged") == before[0]


def fill_strided(x):
    x[:, ::2] = 0.3
    return x


def assign(x, y):
    x[...] = y
    return x


def made(device):
    """What the device's loops write: numbers of all types."""
    wf.random.seed(7, device=device)
    results = []
    with wf.device(device):
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            results.append(wf.random.uniform(-2, 3, shape=(3, 50), dtype=dtype))
            results.append(wf.linspace(-1, 2, 9, dtype=dtype))
            results.append(wf.arange(-3, 4, 0.5, dtype=dtype))
        results += [wf.random.normal(2, 3, shape=(100,), dtype=d) for d in ("float16", "bfloat16", "float32")]
        for dtype in ("int8", "uint8", "int32", "int64", "uint64"):
            results.append(wf.random.randint(3, 90, shape=(101,), dtype=dtype))
            results.append(wf.arange(3, 90, 7, dtype=dtype))
        results.append(wf.arange(0, -50, -7, dtype="int16"))
        results.append(wf.random.permutation(wf.arange(1000)))
        results.append(wf.random.permutation(wf.tensor(np.arange(60.0).reshape(20, 3))))
        results.append(fill_strided(wf.zeros((4, 6), dtype="complex128")))
    return results


def test_what_the_device_makes_is_what_the_processor_makes():
    for there, here in zip(made("gpu:0"), made("cpu:0"), strict=True):
        assert there.dtype is here.dtype
        np.testing.assert_array_equal(there.numpy(), here.numpy())


def test_copies_convert_as_on_the_processor():
    """Between all types, where the type of the result has the number."""
    types = [*DTYPES, "int16", "uint8", "uint32", "complex64", "complex128"]
    for source in types:
        for dtype in types:
            if "complex" in source and "complex" not in dtype:
                continue
            a = wf.tensor(
                [[0, 1, 1], [1, 0, 1]] if "bool" in source else [[0, 1, 77], [3, 100, 2]], dtype=source
            )
            y, expected = wf.zeros((3, 2), dtype=dtype, device="gpu:0"), wf.zeros((3, 2), dtype=dtype)
            y[...] = a.to_device("gpu:0").T
            expected[...] = a.T
            np.testing.assert_array_equal(y.numpy(), expected.numpy(), f"{source} to {dtype}")


def test_what_the_host_did_is_counted():
    """Nothing does but functions of the engine that look at part of an array."""
    x = on_gpu(numbers((4, 4)))
    seen = []
    before = counts("staged")
    x.numpy(), x.T.numpy(), x[::2].tolist()
    assert counts("staged") == before
    engine = default_engine()
    engine.push(lambda _: seen.append(x[:, ::2].numpy()), const_vars=[x])
    engine.wait_for_all()
    assert counts("staged") == before + 1
    np.testing.assert_array_equal(seen[0], x.numpy()[:, ::2])


def test_a_forked_process_has_no_gpu():
    x = on_gpu([1.0])
    child = os.fork()
    if child == 0:
        try:
            wf.zeros(2, device="gpu:0").numpy()
        except DeviceError as error:
            os._exit(7 if "a forked process cannot use GPUs" in str(error) else 8)
        except BaseException:
            os._exit(9)
        os._exit(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert x.tolist() == [1]
