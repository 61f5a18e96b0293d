"""What a traced function finds outside of its arguments: what changes there is seen by the next call."""

import builtins
import copy
import gc
import json
import pickle
import subprocess
import sys
import types
import weakref

import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.base.errors import EngineError


class Encoder(M.Module):
    def __init__(self):
        self.w, self.k = M.Parameter(wf.ones(3)), 2
        self.parts = {"a": M.ReLU(), "b": M.Tanh()}

    def encode(self, x):
        return x * self.w * self.k if self.training else x * 0

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return x


@pytest.mark.parametrize("how", ["method", "closure"])
def test_methods_of_modules_watch_the_module(how):
    net, x = Encoder(), wf.ones(3)
    encode = net.encode
    traced = wf.trace(net.encode if how == "method" else lambda x: encode(x), strict=True)
    found = [traced(x)[0].item() for _ in range(2)]
    net.k = 5
    found.append(traced(x)[0].item())
    net.w = M.Parameter(wf.full(3, 10.0))
    found.append(traced(x)[0].item())
    net.eval()
    found.append(traced(x)[0].item())
    assert found == [2, 2, 5, 50, 0]


@pytest.mark.parametrize("change", ["delete", "replace", "append"])
def test_containers_of_modules(change):
    net, x = Encoder(), wf.tensor([-1.0, 1.0])
    spare = M.ReLU()
    traced = wf.trace(net, strict=True)
    traced(x), traced(x)
    if change == "delete":
        del net.parts["b"]
    elif change == "replace":
        net.parts["b"] = spare
    else:
        net.parts["c"] = net.parts.pop("a")
    for _ in range(2):
        assert traced(x).numpy().tolist() == net(x).numpy().tolist()
    assert len(traced.programs) == 2


class Plain:
    rate = 3.0

    def __init__(self):
        self.scale, self.shift = 2.0, wf.ones(())
        self.inner = types.SimpleNamespace(sign=1)

    def apply(self, x):
        return self.finish(x * self.scale + self.shift)

    def finish(self, x):
        return x * self.inner.sign * self.rate


def changes_of(thing):
    thing.scale = 5.0
    yield
    thing.shift = wf.zeros(())
    yield
    thing.inner.sign = -1
    yield
    thing.inner = types.SimpleNamespace(sign=7)
    yield
    thing.rate = 0.5
    yield
    thing.finish = lambda x: x
    yield


@pytest.mark.parametrize("how", ["closure", "method", "argument", "default"])
def test_attributes_of_plain_objects(how):
    thing, x = Plain(), wf.ones(2)
    argument = wf.trace(lambda x, thing: thing.apply(x), strict=True)
    traced = {
        "closure": wf.trace(lambda x: thing.apply(x), strict=True),
        "method": wf.trace(thing.apply, strict=True),
        "argument": lambda x: argument(x, thing),
        "default": wf.trace(lambda x, thing=thing: thing.apply(x), strict=True),
    }[how]
    assert [traced(x)[0].item() for _ in range(2)] == [9, 9]
    for _ in changes_of(thing):
        assert traced(x)[0].item() == thing.apply(x)[0].item()


OPTIONS = {"rate": 2.0, "deep": {"n": 3}}
LIST = [1.0, 2.0]
helpers = types.ModuleType("helpers")
helpers.RATE = 4.0
helpers.__file__ = __file__


def scaled(x):
    return x * helpers.RATE


helpers.scaled = scaled


def test_items_and_modules():
    traced = wf.trace(
        lambda x: helpers.scaled(x) * OPTIONS["rate"] + OPTIONS["deep"]["n"] + LIST[-1], strict=True
    )
    x, found = wf.ones(()), []

    def call():
        return traced(x).item()

    assert [call(), call()] == [13, 13]
    try:
        OPTIONS["rate"] = 3.0
        found.append(call())
        OPTIONS["deep"]["n"] = 0
        found.append(call())
        LIST[1] = 0.0
        found.append(call())
        helpers.RATE = 1.0
        found.append(call())
        helpers.scaled = lambda x: x * 10
        found.append(call())
        assert found == [17, 14, 12, 3, 30]
    finally:
        OPTIONS.update(rate=2.0, deep={"n": 3})
        LIST[1], helpers.RATE, helpers.scaled = 2.0, 4.0, scaled


def test_what_a_call_only_counts_is_no_guard():
    thing = types.SimpleNamespace(calls=0, log=[])

    def function(x):
        thing.calls += 1
        thing.log.append("called")
        return x * 2

    traced = wf.trace(function, strict=True)
    for _ in range(4):
        traced(wf.ones(2))
    assert len(traced.programs) == 1


def test_a_function_that_changes_what_it_reads_breaks():
    thing = types.SimpleNamespace(n=0)

    def function(x):
        thing.n = thing.n + 1
        return x * thing.n

    traced = wf.trace(function)
    with pytest.warns(wf.TraceWarning, match="changes variables or attributes"):
        found = [traced(wf.ones(())).item() for _ in range(6)]
    assert found == [1, 2, 3, 4, 5, 6]


def test_default_values():
    def function(x, s=2.0, *, t=1.0):
        return x * s + t

    traced, x = wf.trace(function, strict=True), wf.ones(())
    found = [traced(x).item() for _ in range(2)]
    function.__defaults__ = (7.0,)
    found.append(traced(x).item())
    function.__kwdefaults__["t"] = 0.0
    found.append(traced(x).item())
    assert found == [3, 3, 8, 7]


def test_zeros_of_either_sign():
    v = 0.0
    traced, x = wf.trace(lambda x: F.copysign(x, v), strict=True), wf.ones(())
    found = [traced(x).item() for _ in range(2)]
    v = -0.0
    assert [*found, traced(x).item()] == [1, 1, -1]


def test_a_new_global_in_front_of_a_builtin():
    traced, x = wf.trace(lambda x: x * max(1, 2), strict=True), wf.ones(())
    found = [traced(x).item() for _ in range(2)]
    globals()["max"] = lambda a, b: 10
    try:
        found.append(traced(x).item())
    finally:
        del globals()["max"]
    assert [*found, traced(x).item()] == [2, 2, 10, 2]
    assert max is builtins.max


def test_whether_there_is_a_gradient():
    p, x = wf.zeros(2), wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(p)

    @wf.trace(strict=True)
    def update():
        if p.grad is not None:
            p.__isub__(0.5 * p.grad)

    found = []
    for k in range(4):
        if k:
            with gm:
                gm.backward((p * x).sum())
        update()
        p.grad = None
        found.append(p.numpy().tolist())
    assert found == [[-0.5 * k, -1.0 * k] for k in range(4)]
    assert len(update.programs) == 2


def test_an_optimizer_without_gradients_first():
    import weft.optimizer as optim

    p, q = wf.ones(1), wf.ones(1)
    opt = optim.SGD([p, q], lr=0.5)
    step = wf.trace(lambda: opt.step(), strict=True)
    p.grad = wf.ones(1)
    step()
    q.grad = wf.ones(1)
    step(), step()
    assert [p.item(), q.item()] == [-0.5, 0.0]


def test_whether_gradients_are_required():
    p = wf.ones(2)
    gm = wf.GradManager().attach(p)
    traced = wf.trace(lambda p: p * (2 if p.requires_grad else 3), strict=True)
    found = [traced(p)[0].item() for _ in range(2)]
    with gm:
        found.append(traced(p)[0].item())
    found.append(traced(p)[0].item())
    assert found == [3, 3, 2, 3]


@pytest.mark.parametrize("lazy", [False, True], ids=["eager_first", "lazy"])
def test_seeding_inside_happens_at_each_call(lazy):
    traced = wf.trace(lambda x: (wf.random.seed(3), F.dropout(x, 0.5))[1], lazy=lazy)
    with pytest.warns(wf.TraceWarning, match="random numbers are seeded"):
        found = [traced(wf.ones(64)).numpy().tolist() for _ in range(4)]
    assert found.count(found[0]) == 4
    with pytest.raises(wf.GraphError, match="the state of random numbers is looked at"):
        wf.trace(lambda x: (wf.random.get_state(), x)[1], strict=True)(wf.ones(2))


def test_objects_that_hold_their_own_trace_are_collected():
    class Model:
        def __init__(self):
            self.w = wf.ones((10, 10))
            self.f = wf.trace(lambda x: x @ self.w, strict=True)
            self.g = wf.trace(self.step, strict=True)

        def step(self, x):
            return x * self.w

    for _ in range(2):
        model = Model()
        model.f(wf.ones((2, 10))), model.g(wf.ones(10))
        seen = weakref.ref(model)
        del model
        wf.waitall()
        gc.collect()
        assert seen() is None


# Random numbers that nobody seeded.

DRAWS = {
    "dropout": "F.dropout(wf.ones(64), 0.5)",
    "bernoulli": "F.bernoulli(wf.full(64, 0.5))",
    "trace": "wf.trace(lambda x: F.dropout(x, 0.5))(wf.ones(64))",
}


def test_processes_differ_without_a_seed():
    draws = " + ".join(f"{code}.numpy().tolist()" for code in DRAWS.values())
    code = f"import weft as wf, weft.functional as F; print({draws})"
    command = [sys.executable, "-c", code]
    a, b = (json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(2))
    for k in range(len(DRAWS)):
        assert a[64 * k : 64 * k + 64] != b[64 * k : 64 * k + 64]


FORKS = """
import os, weft as wf
def child():
    r, w = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(w, str(wf.random.uniform(shape=4).numpy().tolist()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(r, 999)
wf.random.uniform(shape=1).wait()
free = [child(), child(), str(wf.random.uniform(shape=4).numpy().tolist()).encode()]
wf.random.seed(5)
seeded = [child(), child(), str(wf.random.uniform(shape=4).numpy().tolist()).encode()]
print(len(set(free)), len(set(seeded)))
"""


def test_forked_children_differ_unless_their_parent_was_seeded():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "1"]


def test_gradients_that_were_there_before_a_step_that_clears_them():
    import weft.optimizer as optim

    p = wf.zeros(1)
    gm, opt = wf.GradManager().attach(p), optim.SGD([p], lr=1.0)

    @wf.trace(strict=True)
    def step(x):
        with gm:
            gm.backward((p * x).sum())
        opt.step().clear_grad()

    step(wf.ones(1)), step(wf.ones(1))
    p.grad = wf.full(1, 10.0)
    step(wf.ones(1)), step(wf.ones(1))
    assert p.item() == -14
    assert len(step.programs) == 2


@pytest.mark.parametrize("order", ["fhf", "hhff", "fhfhfh"])
def test_updates_are_counted_where_gradients_are_missing_now_and_then(order):
    import weft.optimizer as optim

    def train(convert):
        a, b = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
        opt = optim.Adam([a, b], lr=0.05)

        def step_of(gm):
            def step():
                with gm:
                    gm.backward((a * a).sum() + (b * b * b).sum() + (a * b).sum())
                opt.step().clear_grad()

            return convert(step)

        steps = {
            "f": step_of(wf.GradManager().attach([a, b])),
            "h": step_of(wf.GradManager().attach([b])),  # a is frozen
        }
        for kind in order:
            steps[kind]()
        state = opt.state_dict()["state"]
        return [a.tolist(), b.tolist()], [state["0.step"].item(), state["1.step"].item()]

    eager, traced = train(lambda f: f), train(lambda f: wf.trace(f, strict=True))
    assert traced[1] == eager[1] == [order.count("f"), len(order)]
    assert [x for row in traced[0] for x in row] == pytest.approx([x for row in eager[0] for x in row])


def test_tensors_that_are_attached_later():
    a, c = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    gm = wf.GradManager().attach([a])

    @wf.trace(strict=True)
    def step():
        with gm:
            gm.backward((a * a).sum() + (a * c).sum())

    step(), step()
    assert c.grad is None
    gm.attach([c])
    step()
    assert c.grad.tolist() == [1, 2]
    a.grad = c.grad = None
    gm.attach([c], callbacks=lambda x, dx: dx * 10)
    step()
    assert (a.grad.tolist(), c.grad.tolist()) == ([5, 8], [10, 20])


def test_a_manager_that_each_call_makes():
    a = wf.tensor([1.0, 2.0])

    @wf.trace(strict=True)
    def step(x):
        y = x * 2
        gm = wf.GradManager().attach([a, y])
        with gm:
            gm.backward((a * a * y).sum())
        return y.grad

    for k in range(3):
        a.grad = None
        assert step(wf.full(2, float(k))).tolist() == [1, 4]
        assert a.grad.tolist() == [4 * k, 8 * k]
    assert len(step.programs) <= 2


class Steps(M.Module):
    def __init__(self):
        self.w, self.k, self.act = M.Parameter(wf.ones(2)), 2.0, F.relu
        self.step = wf.trace(self.forward)

    def forward(self, x):
        return self.act(x * self.w * self.k)


@wf.trace
def decorated(x):
    return x + 1


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_copies_of_modules_that_hold_traces(way):
    net = Steps()
    x = wf.ones(2)
    net.step(x)
    other = way(net)
    other.k, other.w[...] = 3.0, 5.0
    assert other.step(x).tolist() == [15, 15]
    assert net.step(x).tolist() == [2, 2]
    assert len(other.step.programs) == len(net.step.programs) == 1
    assert other.act is F.relu
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps([len, F.exp, [].append]))[:2] == [len, F.exp]


def test_gradients_of_tensors_that_are_gone():
    from weft.recording.launch_recorder import LaunchRecorder

    w = wf.ones(2)
    recorder = LaunchRecorder()
    for _ in range(100):
        x = w.detach()
        recorder.gradient_set(x)
        key = id(x)
        del x
        y = w.detach()
        if id(y) == key:
            break
    else:
        pytest.skip("no object was made at the place of another one")
    recorder.gradient_read(y)
    assert key in recorder.read_gradients


def test_interrupts_do_not_wait_for_what_was_recorded():
    kept, w, is_interrupted = [], wf.ones(3), [True]

    def step(x):
        y = x * 2
        kept.append(y)
        w[...] = w + y
        if is_interrupted[0]:
            raise KeyboardInterrupt
        return y + 1

    traced = wf.trace(step)
    with pytest.raises(KeyboardInterrupt):
        traced(wf.ones(3))
    assert w.tolist() == [1, 1, 1]
    with pytest.raises(EngineError, match="was ended by KeyboardInterrupt"):
        kept[0].numpy()
    kept.clear()
    is_interrupted[0] = False
    with pytest.warns(wf.TraceWarning, match="kept elsewhere"):
        assert [traced(wf.ones(3)).tolist() for _ in range(3)] == [[3, 3, 3]] * 3
    assert w.tolist() == [7, 7, 7]
