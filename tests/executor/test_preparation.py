"""What programs prepare once: packed and folded weights, converted ones; and that every write to them is seen."""

import gc
import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft import _core, storage
from weft.engine import default_engine
from weft.executor.compile import compile_graph
from weft.graph.graph import graph_of
from weft.ops.types import TensorType

HOST_MEMORY = pytest.mark.processor("shares the host's memory")


class Net(M.Module):
    """Convolutions with normalizations, a residual, a layer at the end."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = M.Conv2d(3, 32, 3, padding=1, bias=False), M.BatchNorm2d(32)
        self.second, self.norm2 = M.Conv2d(32, 32, 1), M.BatchNorm2d(32)
        self.last = M.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.norm2(self.second(x)) + x)
        return self.last(wf.mean(x, axis=(2, 3)))


def small_net():
    net = Net()
    rng = np.random.default_rng(0)
    for norm in (net.norm, net.norm2):
        for array, low in (
            (norm.running_mean, -1),
            (norm.running_var, 0.5),
            (norm.weight, 0.5),
            (norm.bias, -1),
        ):
            array[...] = wf.tensor(rng.uniform(low, low + 1, 32).astype("float32"))
    net.eval()
    return net


def images(dtype="float32"):
    return F.cast(
        wf.tensor(np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype("float32")), dtype=dtype
    )


def traced_twice(net, x):
    """A traced form of the network, after its first call, and one as a program."""
    traced = wf.trace(lambda x: net(x), strict=True)
    with wf.no_grad():
        traced(x)
        traced(x).wait()
    return traced


def info_of(traced):
    (program,) = traced.programs
    return program.plan.info


def hoisted_kernels():
    return _core.program_counters()["hoisted"]


def check(traced, net, x, rtol=1e-4):
    with wf.no_grad():
        np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=rtol, atol=rtol)


# Below AVX-512, oneDNN's products take float32 weights as they lie: only those of convolutions are packed.
PACKED_PRODUCTS = {"sse4": 0, "avx2": 0, "avx512": 1}


@pytest.mark.processor("other devices have no kernels that pack, fold or reorder")
def test_weights_are_packed_and_folded_once(level):
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    info = info_of(traced)
    convolutions = [text for text in info.steps if "Conv2d" in text]
    assert len(convolutions) == 2
    assert "Multiply" not in "".join(convolutions)
    assert sum(text == "native pack" for text in info.hoisted) == 2 + PACKED_PRODUCTS[level]
    assert not any("pack" in text for text in info.steps)
    assert info.reorders == 1  # of the images, which come channels first
    before, ran = hoisted_kernels(), _core.onednn_counters()["reorders"]
    check(traced, net, x)
    assert hoisted_kernels() == before
    assert _core.onednn_counters()["reorders"] - ran >= info.reorders


@pytest.mark.processor("other devices have no kernels that pack, fold or reorder")
def test_only_the_ends_are_reordered():
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    before = _core.onednn_counters()["reorders"]
    with wf.no_grad():
        traced(x).wait()
    assert _core.onednn_counters()["reorders"] - before == 1


def write_element(net):
    net.first.weight[0, 0, 0, 0] = 3.0


def write_all(net):
    net.second.bias[...] = wf.ones(32)


def multiply(net):
    net.norm.running_var *= 2


def step_of_optimizer(net):
    parameters = list(net.parameters())
    gm = wf.GradManager().attach(parameters)
    with gm:
        gm.backward(wf.sum(net(images())))
    optim.SGD(parameters, 0.1).step()


def other_program(net):
    @wf.trace
    def write():
        net.last.weight[...] = net.last.weight * 0.5
        net.norm.weight[...] = net.norm.weight + 1

    write()
    write()


def pushed_function(net):
    weight = net.first.weight

    def fill(_):
        weight.numpy()[...] = 0.25

    default_engine().push(fill, mutate_vars=[weight])


def lent_memory(net):
    view = net.second.weight.numpy()
    view *= 2.0


def other_thread(net):
    thread = threading.Thread(target=multiply, args=(net,))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "write",
    [
        write_element,
        write_all,
        multiply,
        step_of_optimizer,
        other_program,
        pytest.param(pushed_function, marks=HOST_MEMORY),
        pytest.param(lent_memory, marks=HOST_MEMORY),
        other_thread,
    ],
)
def test_every_write_is_seen(write):
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    check(traced, net, x)
    with wf.no_grad():
        old = traced(x).numpy().copy()
    write(net)
    with wf.no_grad():
        new = traced(x).numpy()
    assert np.abs(new - old).max() > 1e-3
    check(traced, net, x)
    before = hoisted_kernels()
    check(traced, net, x)
    assert hoisted_kernels() == before
    assert len(traced.programs) == 1


def test_writes_that_have_not_run_yet_are_seen():
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    with wf.no_grad():
        results = []
        for k in range(6):
            net.last.bias[...] = wf.full(10, float(k))
            net.last.weight[...] = net.last.weight * 0.5
            results.append((traced(x), net(x)))
    for found, wanted in results:
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)


@HOST_MEMORY
def test_memory_that_is_lent_is_read_anew_each_time():
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    view = net.first.weight.numpy()
    for factor in (2.0, 0.25):
        view *= factor
        check(traced, net, x)


@pytest.mark.processor("other devices have no kernels that pack, fold or reorder")
def test_only_what_depends_on_a_write_is_made_again():
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    weight = net.second.weight
    weight *= 2
    before = hoisted_kernels()
    check(traced, net, x)
    assert (
        hoisted_kernels() - before == 3
    )  # the scale of its normalization, the weight folded with it, and packing


@pytest.mark.parametrize("skip", ["batch_norm", "epilogues", "preparation", "all"])
def test_the_same_without_passes(skip, monkeypatch):
    net, x = small_net(), images()
    with_all = traced_twice(net, x)
    monkeypatch.setenv("WEFT_SKIP_PASSES", skip)
    without = traced_twice(net, x)
    with wf.no_grad():
        np.testing.assert_allclose(with_all(x).numpy(), without(x).numpy(), rtol=1e-4, atol=1e-4)


def test_no_step_touches_what_is_not_its_own(monkeypatch):
    monkeypatch.setenv("WEFT_CHECK", "1")
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    check(traced, net, x)
    bias = net.norm.bias
    bias += 1  # some of the hoisted steps run, others do not
    check(traced, net, x)


def test_arrays_that_lie_otherwise_are_taken():
    weight = wf.permute_dims(wf.tensor(np.arange(12, dtype="float32").reshape(4, 3)), (1, 0))
    types = [TensorType((3, 4), wf.float32, weight.device)] * 2
    plan = compile_graph(graph_of(lambda w, x: x * F.exp(w), types), "table", stable_inputs=[0])
    assert plan.info.hoisted
    for w in (weight, weight.copy(), weight):
        (found,) = _core.run_plan(plan, [w, wf.ones((3, 4))])
        np.testing.assert_allclose(found.numpy(), np.exp(weight.numpy()), rtol=1e-6)


@pytest.mark.processor("other devices have no kernels that pack, fold or reorder")
def test_memory_is_reported_and_released(level):
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    info = info_of(traced)
    report, packs = info.memory_report(), info.hoisted.count("native pack")
    del info
    weights = 32 * (3 * 9 + 32 + 10 * PACKED_PRODUCTS[level])
    assert 4 * weights <= report.kept_bytes <= 4 * 4 * weights
    assert "kept between runs" in str(report)
    blocks = storage.stats()["live_blocks"]
    del traced
    gc.collect()
    assert blocks - storage.stats()["live_blocks"] >= packs


@pytest.mark.parametrize("whole", [True, False])
def test_training_prepares_nothing(whole):
    net, x = small_net(), images()
    net.train()
    parameters = list(net.parameters())
    gm, optimizer = wf.GradManager().attach(parameters), optim.SGD(parameters, 0.01)

    @wf.trace
    def step(x):
        with gm:
            loss = wf.sum(net(x))
            gm.backward(loss)
        if whole:
            optimizer.step()
            optimizer.clear_grad()
        return loss

    for _ in range(3):
        step(x)
        if not whole:
            optimizer.step()
            optimizer.clear_grad()
    assert not info_of(step).hoisted


@pytest.mark.processor("other devices have no kernels that pack, fold or reorder")
@pytest.mark.parametrize("autocast", [True, False])
def test_half_types_need_no_round_trips(autocast):
    net, x = small_net(), images()
    if autocast:

        def call(x):
            with wf.amp.autocast(dtype="bfloat16"):
                return net(x)
    else:
        x, call = images("bfloat16"), net.astype("bfloat16")
    traced = wf.trace(lambda x: call(x))
    with wf.no_grad():
        wanted = call(x)
        traced(x)
        found = traced(x)
    np.testing.assert_allclose(
        F.cast(found, dtype="float32").numpy(), F.cast(wanted, dtype="float32").numpy(), rtol=0.05, atol=0.05
    )
    info = info_of(traced)
    assert sum("Conv2d" in text for text in info.steps) == 2
    assert not any("BatchNorm" in text for text in info.steps)


def test_eight_threads_use_what_one_of_them_prepares(in_threads):
    net, x = small_net(), images()
    traced = traced_twice(net, x)
    for _ in range(4):
        weight = net.first.weight
        weight *= 1.25
        with wf.no_grad():
            wanted = net(x).numpy()

        def run(wanted):
            with wf.no_grad():
                for _ in range(4):
                    np.testing.assert_allclose(traced(x).numpy(), wanted, rtol=1e-4, atol=1e-4)

        in_threads(run, [wanted] * 8)


def test_results_are_never_what_is_kept():
    w = wf.tensor(np.arange(12, dtype="float32").reshape(3, 4))
    traced = wf.trace(lambda x: (w * 2, wf.exp(x)))
    x = wf.ones(2)
    with wf.no_grad():
        traced(x)
        a, _ = traced(x)
        a += 1
        b, _ = traced(x)
    np.testing.assert_array_equal(b.numpy(), w.numpy() * 2)


def test_what_is_much_larger_than_its_origin_is_not_kept():
    types = [TensorType((1000,), wf.float32), TensorType((1000, 1000), wf.float32)]

    def table(w, x):
        return F.matmul(x, F.exp(F.expand_dims(w, axis=1) + F.expand_dims(w, axis=0)))

    plan = compile_graph(graph_of(table, types), "table", stable_inputs=[0])
    assert plan.info.memory_report().kept_bytes < 1 << 20


# Below AVX-512, oneDNN's products take float32 weights as they are stored; those of half types are converted once.
# Where AVX-512 has no instructions for bfloat16, its products (gemm:jit:bf16) take weights as they are stored, too.
PACKED = {
    "float32": {"sse4": [], "avx2": [], "avx512": ["native pack"]},
    "bfloat16": {name: ["native pack"] for name in ("sse4", "avx2", "avx512")},
}


@pytest.mark.parametrize("dtype", PACKED)
def test_inputs_that_are_written_are_not_stable(dtype, level):
    graph = graph_of(lambda w, x: F.matmul(x, w), [TensorType((64, 64), wf.as_dtype(dtype))] * 2)
    operand = (dtype, (64, 64), (64, 1))
    takes_any = _core.onednn_matmul(operand, operand, operand).implementation.startswith("gemm:jit:bf16")
    hoisted = [] if takes_any else PACKED[dtype][level]
    assert compile_graph(graph, "product", stable_inputs=[0]).info.hoisted == hoisted
    written = type(graph)(graph.inputs, [*graph.outputs, F.negative(graph.inputs[0])], {1: 0})
    assert compile_graph(written, "product", stable_inputs=[0]).info.hoisted == []
