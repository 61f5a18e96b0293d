"""Programs of several devices: parts that run side by side, copies between them, the values of one device."""

import threading

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft import _core
from weft.base import flags
from weft.base.dtype import float32
from weft.base.errors import DeviceError
from weft.executor.planner import make_plan
from weft.graph.graph import Graph, graph_of
from weft.graph.passes import optimize
from weft.graph.placement import devices, partition
from weft.graph.text import from_json, to_json
from weft.graph.verify import verify
from weft.ops import functions as G
from weft.ops.node import input_value
from weft.ops.types import TensorType

pytestmark = pytest.mark.processor("its programs are planned for cpu:0 and cpu:1")

HERE, THERE = wf.cpu(0), wf.cpu(1)
LARGE = 1 << 16  # elements: too many to run on the thread that launches


class Meeting:
    """An observer that holds operations of a name until one runs on each of two devices; met: whether that happened."""

    def __init__(self, name):
        self.name, self.met, self._barrier = name, False, threading.Barrier(2)
        self._first, self._lock = {}, threading.Lock()

    def on_start(self, record):
        if record.operation != self.name or record.queue == "copy":
            return
        with self._lock:
            if record.device in self._first:
                return
            self._first[record.device] = record
        try:
            self._barrier.wait(20)
            self.met = True
        except threading.BrokenBarrierError:
            pass


@pytest.fixture
def meeting():
    engine = wf.engine.default_engine()

    def watch(name):
        observer = Meeting(name)
        engine.add_observer(observer)
        added.append(observer)
        return observer

    added = []
    yield watch
    wf.waitall()
    for observer in added:
        engine.remove_observer(observer)


def chain(x, times=4):
    for _ in range(times):
        x = F.tanh(x @ x) + x.mean(axis=0)
    return x


@pytest.mark.skipif(flags.get("WEFT_ENGINE") == "naive", reason="the naive engine has no workers")
def test_independent_chains_run_at_the_same_time(meeting):
    @wf.trace(strict=True)
    def two_chains(x, y):
        return chain(x), chain(y)

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((256, 256), "float32") / 16 for _ in range(2))
    x, y = wf.tensor(a, device=HERE), wf.tensor(b, device=THERE)
    two_chains(x, y)
    (program,) = two_chains.programs
    assert devices(program.graph) == [HERE, THERE]
    watched = meeting("two_chains")
    got = two_chains(x, y)
    wf.waitall()
    assert watched.met
    assert [z.device for z in got] == [HERE, THERE]
    for z, c in zip(got, (a, b), strict=True):
        np.testing.assert_allclose(z.numpy(), chain(wf.tensor(c)).numpy(), rtol=1e-3, atol=1e-5)


def test_a_part_waits_only_for_what_it_reads():
    traced = wf.trace(lambda x, y: (F.exp(x) + 1, F.exp(y) - 1), strict=True)
    x, y = wf.ones(LARGE), wf.ones(LARGE, device=THERE)
    traced(x, y)
    held = threading.Event()
    wf.engine.default_engine().push(lambda context: held.wait(20), HERE, mutate_vars=[x])
    try:
        slow, quick = traced(x, y)
        assert quick[0].item() == pytest.approx(np.e - 1)  # while x is being written
    finally:
        held.set()
    assert slow[0].item() == pytest.approx(np.e + 1)


def pipeline(x, w, v, there):
    """Micro batches through two stages; the loss of all."""
    losses = []
    for part in (x[:8], x[8:]):
        h = F.relu(part @ w)
        losses.append(F.tanh(h.to_device(there) @ v).square().mean())
    return losses[0] + losses[1]


def step(x, w, v, there):
    with wf.GradManager().attach([w, v]) as manager:
        loss = pipeline(x, w, v, there)
        manager.backward(loss)
    for p in (w, v):
        p -= 0.5 * p.grad
        p.grad = None
    return loss


@pytest.mark.parametrize("lazy", [False, True])
def test_a_pipeline_trains_as_on_one_device(lazy):
    rng = np.random.default_rng(1)
    x, w, v = (rng.standard_normal(s, "float32") for s in ((16, 12), (12, 10), (10, 3)))
    found = []
    for there in (HERE, THERE):
        traced = wf.trace(step, strict=True, lazy=lazy)
        params = wf.tensor(w), wf.tensor(v, device=there)
        losses = [traced(wf.tensor(x), *params, there).item() for _ in range(6)]
        assert len(traced.programs) == 1
        found.append((losses, *(p.numpy() for p in params)))
        if there is THERE:
            report = traced.memory_report()[0]
            assert list(report.devices) == [HERE, THERE]
            assert report.passed_bytes == sum(r.passed_bytes for r in report.devices.values()) > 0
            assert "cpu:1:\n" in str(report)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert found[1][0][-1] < found[1][0][0]


def test_eight_threads_use_one_program(in_threads):
    traced = wf.trace(lambda x, w: (F.exp((x * w).to_device(THERE)) * 2).to_device(HERE) + w, strict=True)
    w = wf.full((300, 200), 0.5)

    def work(k):
        for n in range(10):
            x = np.full((300, 200), (k - n) / 4, "float32")
            want = np.exp(x / 2) * 2 + 0.5
            np.testing.assert_allclose(traced(wf.tensor(x), w).numpy(), want, rtol=1e-5)

    in_threads(work, range(8))
    assert len(traced.programs) == 1


def test_two_wide_devices_get_on_with_each_other():
    traced = wf.trace(lambda x, y: (F.softmax(x @ x), F.softmax(y @ y)), strict=True)
    x = wf.random.normal(shape=(512, 512))
    y = x.to_device(THERE)
    for _ in range(10):
        a, b = traced(x, y)
    np.testing.assert_array_equal(a.numpy(), b.numpy())


# What parts do to memory.


def test_what_is_read_late_is_as_it_was():
    # The part on cpu:0 that writes w comes before the one that reads it: it waits for a value from cpu:1.
    def swap(w, x):
        w0 = w * 1
        w[...] = F.exp(w0)
        back = (w0.to_device(THERE) + x).to_device(HERE)
        return back, w0 - back

    x = wf.tensor([1.0, 2.0], device=THERE)
    traced = wf.trace(swap, strict=True)
    for call in (swap, traced, traced, traced):
        w = wf.tensor([0.0, 1.0])
        back, rest = call(w, x)
        np.testing.assert_allclose(back.numpy(), [1, 3])
        np.testing.assert_allclose(rest.numpy(), [-1, -2])
        np.testing.assert_allclose(w.numpy(), np.exp([0, 1]), rtol=1e-6)


def test_an_input_that_lies_where_another_is_written():
    x, y, z = (
        input_value(TensorType((4,), float32, d), n) for d, n in zip((HERE, HERE, THERE), "xyz", strict=True)
    )
    first = G.add(x, 1.0)  # written into x before y, the same memory, is read
    graph = Graph(
        [x, y, z],
        [G.add(y, G.to_device(G.add(z, G.to_device(first, device=THERE)), device=HERE)), first],
        {1: 0},
    )
    verify(graph)
    plan = make_plan(graph, "shared", exact=True, as_tuple=True)
    base = wf.arange(5, dtype="float32")
    made = _core.run_plan(plan, [base[:4], base[1:], wf.ones(4, device=THERE)])
    np.testing.assert_array_equal(made[0].numpy(), [1 + 2, 2 + 3, 3 + 4, 4 + 5])
    np.testing.assert_array_equal(base.numpy(), [1, 2, 3, 4, 4])


def test_results_are_memory_of_their_own():
    traced = wf.trace(lambda x: (x, x.to_device(THERE), x.to_device(THERE).reshape(2, 2)), strict=True)
    x = wf.arange(4, dtype="float32")
    for _ in range(3):
        same, there, view = traced(x)
        assert same is x or same.device is HERE
        view[0, 0] = 9
        assert there[0].item() in (
            0,
            9,
        )  # as eagerly: whether it is a view of the copy is the program's business
        assert x[0].item() == 0


# Where values are.


def test_devices_do_not_mix():
    x, y = wf.ones(2), wf.ones(2, device=THERE)
    for call in (lambda: x + y, lambda: F.concat([y, x]), lambda: wf.trace(lambda: x * y, strict=True)()):
        with pytest.raises(
            DeviceError, match=r"operands on different devices: f32\[2\]@cpu:\d, f32\[2\]@cpu:\d"
        ):
            call()
    with pytest.raises(DeviceError, match="operands on different devices"), wf.lazy():
        x + y
    types = [TensorType((2,), float32, HERE), TensorType((2,), float32, THERE)]
    with pytest.raises(
        DeviceError, match=r"add: operands on different devices: f32\[2\]@cpu:0, f32\[2\]@cpu:1"
    ):
        graph_of(G.add, types)
    with pytest.raises(TypeError, match="to_device: device must be Device, got None"):
        F.to_device(x, None)


def test_arrays_made_inside():
    def made(x):
        with wf.device(THERE):
            noise = wf.random.uniform(shape=(3,)) + wf.zeros(3)
            steps = wf.arange(3) * 2
        return x.to_device(THERE) + noise + steps, wf.random.normal(shape=(2,))

    traced, found = wf.trace(made, strict=True), []
    for call in (made, traced):
        wf.random.seed(3)
        found.append([[y.numpy() for y in call(wf.ones(3))] for _ in range(3)])
    wf.random.seed(3)
    with wf.lazy():
        listed = [made(wf.ones(3)) for _ in range(3)]
    found.append([[y.numpy() for y in each] for each in listed])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(traced.programs) == 1


def test_a_trace_depends_on_the_current_device():
    traced = wf.trace(lambda: wf.ones(2) + 1, strict=True)
    for _ in range(2):
        assert traced().device is HERE
        with wf.device(THERE):
            assert traced().device is THERE
    assert len(traced.programs) == 2


def test_gradients_are_copied_back():
    x = wf.tensor([1.0, 2.0])
    for transformed in (lambda f: f, wf.trace):
        slope = transformed(wf.grad(lambda t: (F.exp(t.to_device("cpu:1")) * 2).sum()))
        for _ in range(2):
            got = slope(x)
            assert got.device is HERE
            np.testing.assert_allclose(got.numpy(), 2 * np.exp([1, 2]), rtol=1e-6)
    second = wf.grad(lambda t: wf.grad(lambda u: (u.to_device("cpu:1") ** 3).sum())(t).sum())
    np.testing.assert_allclose(second(x).numpy(), [6, 12])


def test_a_gradient_that_is_zero_is_where_its_value_is():
    x = wf.tensor([3.0, 1.0, 2.0], device=THERE)
    with wf.GradManager().attach([x]) as manager:
        first = F.split(x * 2, (1, 2))[0]
        manager.backward(first.sum())
    np.testing.assert_array_equal(x.grad.numpy(), [2, 0, 0])


def test_the_text_of_a_graph_keeps_devices():
    graph = graph_of(
        lambda x: G.to_device(G.exp(G.to_device(x, device="cpu:1")), device="cpu:0"),
        [TensorType((2,), float32)],
    )
    again = from_json(to_json(graph))
    assert str(again) == str(graph)
    assert devices(again) == [THERE, HERE]


def test_parts():
    def two_stages(x, w):
        sums = [G.exp(G.to_device(G.multiply(x, k), device="cpu:1")) for k in (2.0, 3.0)]
        return G.add(G.to_device(G.add(*sums), device="cpu:0"), w)

    types = [TensorType((2,), float32)] * 2
    listed = [
        f"{part.device} "
        + " ".join(type(node.op).__name__ for node in part.graph.nodes if node.op is not None)
        for part in partition(optimize(graph_of(two_stages, types)))
    ]
    assert listed == [
        "cpu:0 Multiply",
        "cpu:1 ToDevice",
        "cpu:0 Multiply",  # need not wait until the first copy is made, nor that for this
        "cpu:1 ToDevice",
        "cpu:1 Exp",
        "cpu:1 Exp Add",
        "cpu:0 ToDevice",
        "cpu:0 Add",
    ]


# Errors.


def test_an_error_names_the_step_and_spares_other_devices():
    traced = wf.trace(lambda x, k, y: (F.take(x, k.to_device(THERE), axis=0) + 1, y * 2), strict=True)
    x, y = wf.arange(4, dtype="float32", device=THERE), wf.ones(2)
    good = wf.tensor([1, 2])
    traced(x, good, y)
    wrong, fine = traced(x, wf.tensor([1, 7]), y)
    assert fine.numpy().tolist() == [2, 2]
    with pytest.raises(IndexError) as raised:
        wrong.numpy()
    assert "take in <lambda>" in str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
    assert traced(x, good, y)[0].numpy().tolist() == [2, 3]
    with pytest.raises(IndexError):  # reported once, and not in a later test
        wf.waitall()


# Symbols.


def two_groups():
    with sym.AttrScope(device_group="first"):
        h = F.relu(F.batch_norm(F.linear(sym.var("x"), out_features=5, name="fc1"), name="bn"))
    with sym.AttrScope(device_group="second"):
        y = F.tanh(F.linear(h, out_features=3, name="fc2"))
    return sym.group([y.sum(), h])


def run(exe, rng):
    for array in exe.arg_dict.values():
        array[...] = rng.standard_normal(array.shape, "float32")
    exe.aux_dict["bn_running_var"][...] = 1
    made = exe.forward(is_train=True)
    exe.backward()
    arrays = {**exe.output_dict, **exe.grad_dict, **exe.aux_dict}
    return made, {name: a.numpy() for name, a in arrays.items()}


def test_symbols_of_two_groups():
    net = sym.from_json(two_groups().to_json())  # which keeps them
    placed = {"first": "cpu:0", "second": "cpu:1"}
    exe = net.simple_bind(x=(4, 6), group_devices=placed)
    where = {name: array.device for name, array in {**exe.arg_dict, **exe.aux_dict}.items()}
    assert {name for name, device in where.items() if device is THERE} == {"fc2_weight", "fc2_bias"}
    made, got = run(exe, np.random.default_rng(0))
    assert [y.device for y in made] == [THERE, HERE]
    assert exe.grad_dict["fc2_weight"].device is THERE
    want = run(net.simple_bind(x=(4, 6)), np.random.default_rng(0))[1]
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    small = exe.reshape(x=(2, 6))
    assert small.arg_dict["fc2_weight"] is exe.arg_dict["fc2_weight"]
    assert small.forward()[0].device is THERE
    args = {**exe.arg_dict, "fc2_bias": wf.zeros(3)}
    with pytest.raises(DeviceError, match="bind: fc2_bias is on cpu:0, and must be on cpu:1"):
        net.bind(args=args, aux_states=exe.aux_dict, group_devices=placed)
    with pytest.raises(wf.GraphError, match="bind: no device_group 'third'; there are: first, second"):
        net.simple_bind(x=(4, 6), group_devices={"third": "cpu:1"})


def test_symbols_copied_by_hand():
    x, w = sym.var("x"), sym.var("w")
    exe = (F.to_device(x * 2, "cpu:1") * w).simple_bind(x=(2,), w=(2,))
    assert [a.device for a in exe.arg_arrays] == [HERE, THERE]
    exe.arg_dict["w"][...] = 3
    assert exe.forward(is_train=True, x=[1.0, 2.0])[0].numpy().tolist() == [6, 12]
    exe.backward()
    assert exe.grad_dict["x"].numpy().tolist() == [6, 6]
    assert exe.grad_dict["x"].device is HERE


# Graphs inside of others.


def accumulate(there):
    """A body whose state goes to the other device and back, beside work here."""

    def body(item, total):
        away = F.tanh(total.to_device(there) + item.to_device(there) * 2)
        back = (away @ away).to_device(total.device)
        return F.exp(-back * back), back + total * 0.5

    return body


def numbers_of_loop():
    x = np.linspace(-1, 1, 6 * 9, dtype="float32").reshape(6, 3, 3)
    total, items = np.zeros((3, 3), "float32"), []
    for item in x:
        away = np.tanh(total + item * 2)
        back = away @ away
        items.append(np.exp(-back * back))
        total = back + total * 0.5
    return x, np.stack(items), total


@pytest.mark.parametrize("there", [THERE, wf.cpu(2)])
def test_a_loop_over_several_devices(there):
    x, items, last = numbers_of_loop()
    traced = wf.trace(lambda x: wf.foreach(accumulate(there), x, wf.zeros((3, 3))), strict=True)
    for _ in range(3):
        got = traced(wf.tensor(x))
        np.testing.assert_allclose(got[0].numpy(), items, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[1].numpy(), last, rtol=1e-5, atol=1e-6)
        assert got[0].device is got[1].device is HERE
    eager = wf.foreach(accumulate(there), wf.tensor(x), wf.zeros((3, 3)))
    np.testing.assert_allclose(eager[1].numpy(), last, rtol=1e-5, atol=1e-6)


def test_gradients_of_loops_over_several_devices():
    x = wf.tensor(numbers_of_loop()[0])

    def loss(x, start, there):
        items, last = wf.foreach(accumulate(there), x, start)
        return (items * last).sum()

    start = wf.tensor(np.eye(3, dtype="float32"))
    found = []
    for there in (HERE, THERE):
        slopes = wf.grad(lambda x, s: loss(x, s, there), argnums=(0, 1))  # noqa: B023
        found += [slopes(x, start), wf.trace(slopes)(x, start)]
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_allclose(one.numpy(), another.numpy(), rtol=1e-4, atol=1e-6)


def test_while_and_cond_over_several_devices():
    def double(x, n):
        away = x.to_device(THERE) * 2
        return away.to_device(HERE), n + 1

    def run(x):
        n = wf.tensor(0)
        y, n = wf.while_loop(lambda x, n: x.to_device(THERE).sum() < 100, double, x, n)
        z = wf.cond(y.sum() > 130, lambda y: (y.to_device(THERE) - 1).to_device(HERE), lambda y: y + 1, y)
        return y, n, z

    traced = wf.trace(run, strict=True)
    for _ in range(2):
        for start in (1.0, 3.0):
            y, n, z = traced(wf.full((2,), start))
            value, turns = start, 0
            while 2 * value < 100:
                value, turns = value * 2, turns + 1
            assert (y.tolist(), n.item()) == ([value] * 2, turns)
            assert z.tolist() == [value - 1 if 2 * value > 130 else value + 1] * 2


def test_loops_inside_of_loops_on_another_device():
    def inner(item, total):
        return total, total + (item.to_device(HERE) * 3).to_device(THERE)

    def outer(row, total):
        away = wf.foreach(inner, row.to_device(THERE), wf.zeros((2,), device=THERE))[1]
        return total, total + away.to_device(HERE)

    x = np.arange(24, dtype="float32").reshape(3, 4, 2)
    for transformed in (lambda f: f, wf.trace):
        run = transformed(lambda x: wf.foreach(outer, x, wf.zeros((2,)))[1])
        for _ in range(2):
            np.testing.assert_allclose(run(wf.tensor(x)).numpy(), 3 * x.sum((0, 1)), rtol=1e-6)


def test_an_error_of_a_body_names_its_step():
    def body(item, total):
        return total, total + F.take(item.to_device(THERE), wf.tensor([7], device=THERE)).to_device(HERE)

    traced = wf.trace(lambda x: wf.foreach(body, x, wf.zeros(1))[1], strict=True)
    result = traced(wf.ones((2, 3)))
    with pytest.raises(IndexError, match="index 7 is out of range"):
        result.numpy()


def test_what_bodies_take_and_give_may_be_anywhere():
    """States, items, what is captured, and what a body writes; as eagerly."""
    w, seen = wf.full((2,), 3.0, device=THERE), wf.zeros(2, device=THERE)

    def body(item, state):
        total, away = state
        away = away + item.to_device(THERE) * w
        seen[...] = away
        return away * 2, (total + away.to_device(HERE), away)

    x = wf.tensor(np.arange(8, dtype="float32").reshape(4, 2))
    found = []
    for transformed in (lambda f: f, lambda f: wf.trace(f, strict=True)):
        run = transformed(lambda x: wf.foreach(body, x, (wf.zeros(2), wf.ones(2, device=THERE))))
        for _ in range(2):
            seen[...] = 0
            items, (total, away) = run(x)
            assert [y.device for y in (items, total, away)] == [THERE, HERE, THERE]
            found.append([y.numpy() for y in (items, total, away, seen)])
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, another)

    def last(w):
        add = lambda i, t: (t, t + (i.to_device(THERE) * w).to_device(HERE))  # noqa: E731
        return wf.foreach(add, x, wf.zeros(2))[1].sum()

    slope = wf.grad(last)
    for transformed in (slope, wf.trace(slope, strict=True)):
        got = transformed(w)
        assert got.device is THERE
        np.testing.assert_array_equal(got.numpy(), x.numpy().sum(0))


def test_a_branch_is_taken_where_its_arrays_are():
    def run(x, y):
        return wf.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, y)

    y = wf.ones(2, device=THERE)
    for call in (run, wf.trace(run, strict=True)):
        for sign, want in ((1.0, 2.0), (-1.0, 0.0)):
            got = call(wf.full((2,), sign), y)
            assert got.device is THERE
            assert got.tolist() == [want] * 2
