"""A second kind of device, which counts and runs on the processor: what of weft is for processors only would show here.

It is added by public means alone: a name, streams, kernels registered for it, the kernels of its loops.
"""

import pickle

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core, kernels
from weft.base.errors import DeviceError, EngineError
from weft.kernels import choices, kernel, registered
from weft.kernels.devices import add_device_kind
from weft.ops import registry
from weft.ops.families.matrix import Matmul
from weft.ops.kernels import Native
from weft.ops.registry import get
from weft.ops.types import TensorType

rng = np.random.default_rng(0)
A, B = rng.standard_normal((5, 6), "float32"), rng.standard_normal((6, 4), "float32")
contexts = []  # of the kind's own kernel, as it ran
loops = []  # whose kernels the kind was asked for


def stream(index, queue):
    return 1000 * (index + 1) + ["compute", "wide", "copy", "io", "priority"].index(queue)


def multiply(inputs, outputs, context):
    contexts.append((str(context.device), context.stream, context.queue, str(inputs[0].device)))
    a, b = (x.numpy() for x in inputs)
    outputs[0].numpy()[...] = a @ b


def loop(code):
    loops.append(code.name)
    return code.native()


@pytest.fixture(scope="module", autouse=True)
def toy():
    kind = add_device_kind("toy", stream=stream, loops=loop)

    @kernel(Matmul, device="toy", provider="example", when=lambda op, a, b: a.ndim == b.ndim == 2)
    def matmul(op, a, b):
        yield Native(
            lambda inputs, outputs: _core.kernel_python(multiply, len(inputs), len(outputs), context=True)
        )

    yield kind
    wf.waitall()
    del kernels._TABLE[Matmul, "toy"]


def change(toy, action):
    """What an action adds to the kind's counters."""
    wf.waitall()
    before = toy.counters()
    action()
    wf.waitall()
    return {name: count - before[name] for name, count in toy.counters().items() if count != before[name]}


def test_devices_of_the_kind(toy):
    assert toy(1) is wf.Device("toy", 1) is wf.as_device("toy:1")
    assert str(toy()) == "toy:0"
    assert toy(1).kind == "toy"
    assert pickle.loads(pickle.dumps(toy(3))) is toy(3)
    assert add_device_kind("toy", stream=stream, loops=loop) is toy
    with pytest.raises(DeviceError, match=r"cannot read 'tpu:0'; accepted are .*'toy'"):
        wf.as_device("tpu:0")
    with pytest.raises(ValueError, match="lower-case letters, digits and underscores, got 'Toy 2'"):
        add_device_kind("Toy 2")


@pytest.mark.processor("cpu:0 is the current device")
def test_arrays_on_it(toy):
    there = toy(0)
    for x, want in (
        (wf.zeros((2, 3), device=there), np.zeros((2, 3))),
        (wf.full((2,), 7, device="toy:0"), np.full(2, 7)),
        (wf.arange(4, device=there), np.arange(4)),
        (wf.tensor([[1.0, 2.0]], device=there), [[1, 2]]),
        (wf.asarray(A, device=there), A),
    ):
        assert x.device is there
        np.testing.assert_array_equal(x.numpy(), want)
    with wf.device("toy:1"):
        x = wf.ones(3)
    assert x.device is toy(1)
    assert "toy:1" in repr(x)
    with pytest.raises((DeviceError, EngineError), match="toy:64 has no memory; toy:0 to toy:63 have"):
        wf.ones(2, device="toy:64")
    with pytest.raises(DeviceError, match="gpu:0 is not available"):
        wf.ones(2, device="gpu")


def test_it_has_pools_of_its_own(toy):
    there, here = wf.storage.stats("toy:2"), wf.storage.stats("cpu:2")
    x = wf.zeros((1 << 16,), device="toy:2")
    x.wait()
    assert wf.storage.stats("toy:2")["in_use_bytes"] >= there["in_use_bytes"] + (4 << 16)
    assert wf.storage.stats("cpu:2")["in_use_bytes"] == here["in_use_bytes"]


def test_random_streams_are_its_own_and_follow_the_seed(toy):
    def draw(device):
        wf.random.seed(5)
        return wf.random.normal(shape=(8,), device=device).numpy()

    np.testing.assert_array_equal(draw("toy:0"), draw("toy:0"))
    assert not np.array_equal(draw("toy:0"), draw("toy:1"))
    assert not np.array_equal(draw("toy:0"), draw("cpu:0"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x),
        lambda x: F.layer_norm(x, 6),
        lambda x: F.gelu(x).sum(axis=0),
        lambda x: F.linear(x, wf.ones((3, 6), device=x.device)),
        lambda x: x.T[1:, ::2] * 2,
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: F.max_pool2d(F.reshape(x, (1, 1, 5, 6)), 2),
        lambda x: F.conv2d(F.reshape(x, (1, 1, 5, 6)), wf.ones((2, 1, 3, 3), device=x.device)),
    ],
    ids=["softmax", "layer_norm", "gelu", "linear", "views", "attention", "pooling", "convolution"],
)
def test_operators_run_on_it_by_loops_views_and_decompositions(toy, function):
    want = function(wf.tensor(A))
    got = []
    counted = change(toy, lambda: got.append(function(wf.tensor(A, device="toy:0"))))
    assert got[0].device is toy(0)
    np.testing.assert_allclose(got[0].numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    assert counted["kernels"] >= 1
    assert set(counted) == {"kernels"}  # and nothing was brought to it or from it


def test_its_own_kernel_runs_there_and_only_there(toy):
    a, b = wf.tensor(A, device="toy:1"), wf.tensor(B, device="toy:1")
    contexts.clear()
    counted = change(toy, lambda: a @ b)
    assert counted == {"kernels": 1}
    assert contexts == [("toy:1", stream(1, contexts[0][2]), contexts[0][2], "toy:1")]
    np.testing.assert_allclose((a @ b).numpy(), A @ B, rtol=1e-5)
    contexts.clear()
    np.testing.assert_allclose((wf.tensor(A) @ wf.tensor(B)).numpy(), A @ B, rtol=1e-5)
    assert contexts == []
    assert [entry.provider for entry in registered(Matmul, "toy")] == ["example"]


def test_kernels_of_processors_are_not_offered(toy):
    x = TensorType((3, 4), wf.float32)
    assert len(list(choices(get("sort")(), [x]))) == 1
    assert list(choices(get("sort")(), [x.on(toy(0))])) == []
    with pytest.raises(
        NotImplementedError, match=r"sort: no kernel .* on toy devices.*kernel\(Sort, device='toy'\)"
    ):
        wf.sort(wf.tensor([2.0, 1.0], device="toy:0"))
    assert F.lstm.__name__ == "lstm"
    workspace = get("lstm")().infer(*lstm_types(toy(0)))[3]
    assert workspace.shape == (0,)  # no kernel leaves anything for a gradient there
    assert get("lstm")().infer(*lstm_types(wf.cpu(0)))[3].shape != (0,)
    window = get("max_pool2d")(kernel_size=2)
    images = TensorType((1, 1, 4, 4), wf.float32)
    assert window.infer(images.on(toy(0)))[1].dtype is wf.int32
    assert window.infer(images)[1].dtype is wf.uint8


def lstm_types(device):
    shapes = [(3, 2, 4), (1, 2, 5), (1, 2, 5), (20, 4), (20, 5), (20,), (20,)]
    return [TensorType(shape, wf.float32).on(device) for shape in shapes]


def test_a_recurrent_layer_trains_there(toy):
    operands = [rng.standard_normal(t.shape, "float32") for t in lstm_types(wf.cpu(0))]
    step = wf.value_and_grad(lambda *o: (F.lstm(*o)[0] ** 2).sum(), tuple(range(7)))
    here, there = (step(*(wf.tensor(o, device=d) for o in operands)) for d in ("cpu:0", "toy:0"))
    for one, other in zip([here[0], *here[1]], [there[0], *there[1]], strict=True):
        assert other.device is toy(0)
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-4, atol=1e-4)


def test_copies_between_kinds_are_counted(toy):
    x = wf.tensor(A)
    there = []
    assert change(toy, lambda: there.append(x.to_device("toy:0"))) == {
        "copies_in": 1,
        "bytes_in": A.nbytes,
        **({"kernels": 1} if copies_by_program(toy) else {}),
    }
    back = change(toy, lambda: there.append(there[0].to_device("cpu:0")))
    assert (back["copies_out"], back["bytes_out"]) == (1, A.nbytes)
    np.testing.assert_array_equal(there[1].numpy(), A)
    among = change(toy, lambda: there[0].to_device("toy:1"))
    assert not {"copies_in", "copies_out"} & set(among)  # of one kind


def copies_by_program(toy):
    x = wf.ones(3)
    return "kernels" in change(toy, lambda: x.to_device("toy:3"))


def test_copies_run_on_its_copy_queue():
    records = []

    class Watch:
        def on_start(self, record):
            records.append((str(record.device), record.queue))

    engine, watch = wf.engine.default_engine(), Watch()
    engine.add_observer(watch)
    try:
        wf.ones((3, 5)).to_device("toy:0").wait()
        wf.waitall()
    finally:
        engine.remove_observer(watch)
    assert ("toy:0", "copy") in records


def test_plans_have_the_kind_in_their_key(toy):
    @wf.simple_op
    def tripled_of_kinds(x):
        return 3 * x

    x = wf.tensor(A)
    tripled_of_kinds(x)
    function = registry.function("tripled_of_kinds")
    count = _core.plan_count(function)
    y = tripled_of_kinds(x.to_device("toy:0"))
    assert y.device is toy(0)
    assert _core.plan_count(function) == count + 1
    tripled_of_kinds(x.to_device("toy:0"))
    tripled_of_kinds(x)
    assert _core.plan_count(function) == count + 1


def test_traces_have_the_kind_in_their_key(toy):
    traced = wf.trace(lambda x, w: F.relu(x @ w) * 2, strict=True)
    want = np.maximum(A @ B, 0) * 2
    for device in ("cpu:0", "toy:0", "toy:0", "cpu:0"):
        y = traced(wf.tensor(A, device=device), wf.tensor(B, device=device))
        assert str(y.device) == device
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5)
    assert sorted({str(d) for p in traced.programs for d in devices_of(p)}) == ["cpu:0", "toy:0"]
    assert len(traced.programs) == 2


def devices_of(program):
    from weft.graph.placement import devices

    return devices(program.graph)


def test_a_traced_step_of_two_kinds_trains_as_on_one(toy):
    def step(x, w, v, there):
        with wf.GradManager().attach([w, v]) as manager:
            h = F.relu(x @ w)
            loss = F.tanh(h.to_device(there) @ v).square().mean()
            manager.backward(loss)
        for p in (w, v):
            p -= 0.5 * p.grad
            p.grad = None
        return loss

    v = rng.standard_normal((4, 3), "float32")
    found = []
    for there in (wf.cpu(0), toy(0)):
        traced = wf.trace(step, strict=True)
        parameters = wf.tensor(B), wf.tensor(v, device=there)
        losses = [traced(wf.tensor(A), *parameters, there).item() for _ in range(4)]
        assert len(traced.programs) == 1
        found.append((losses, *(p.numpy() for p in parameters)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.processor("cpu:0 is the current device")
def test_arrays_of_two_kinds_in_one_call_are_refused(toy):
    x = wf.ones((2, 2))
    for call in (lambda y: x + y, lambda y: x @ y, lambda y: F.concat([x, y])):
        with pytest.raises(DeviceError, match=r"cpu:0.*toy:0|toy:0.*cpu:0"):
            call(wf.ones((2, 2), device="toy:0"))


def test_engine_functions_get_its_stream(toy):
    seen = []
    engine = wf.engine.default_engine()
    for queue in ("compute", "copy"):
        engine.push(
            lambda context: seen.append((str(context.device), context.queue, context.stream)),
            "toy:1",
            queue=queue,
        )
    engine.push(lambda context: seen.append(context.stream), "cpu:0")
    engine.wait_for_all()
    assert sorted(s for s in seen if s is not None) == [
        ("toy:1", "compute", stream(1, "compute")),
        ("toy:1", "copy", stream(1, "copy")),
    ]
    assert None in seen


def test_the_kind_makes_the_kernels_of_its_loops(toy):
    loops.clear()
    F.sinh(wf.ones((3, 2)))
    assert loops == []
    F.sinh(wf.ones((3, 2), device="toy:0"))
    assert loops == ["sinh"]
