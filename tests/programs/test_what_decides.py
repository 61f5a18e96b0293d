"""For what a program is made, what is an input of it, and what makes another one."""

import math

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M

FACTOR = 2


def programs_after(traced, *calls):
    """How many programs there are after each of these calls."""
    found = []
    for args in calls:
        traced(*args)
        found.append(len(traced.programs))
    return found


def test_arguments():
    x, y = wf.ones(3), wf.ones((3, 4))
    traced = wf.trace(lambda x, option=None: x * 2, max_entries=20)
    assert programs_after(traced, (x,), (wf.zeros(3),), (y,), (x.astype("float64"),), (x,)) == [1, 1, 2, 3, 3]
    assert programs_after(traced, (y.T,), (x, 1), (x, 1.0), (x, True), (x, "s"), (x, None)) == [
        4,
        5,
        6,
        7,
        8,
        9,
    ]


def test_structures():
    x = wf.ones(3)
    traced = wf.trace(lambda d: d)
    calls = ({"a": x}, {"a": x}, {"b": x}, [x], (x,), [x, x], {"a": [x]})
    assert programs_after(traced, *((d,) for d in calls)) == [1, 1, 2, 3, 4, 5, 6]


def test_objects_count_by_identity_and_slices_by_value():
    class Option:
        pass

    x, a, b = wf.ones(4), Option(), Option()
    traced = wf.trace(lambda x, o: x * 2)
    assert programs_after(traced, (x, a), (x, a), (x, b), (x, "word"), (x, "wo" + "rd"[:2])) == [
        1,
        1,
        2,
        3,
        3,
    ]
    cut = wf.trace(lambda x, part: x[part])
    assert programs_after(cut, (x, slice(0, 2)), (x, slice(0, 2)), (x, slice(0, 3))) == [1, 1, 2]
    assert cut(x, slice(None, None, 2)).shape == (2,)


def test_which_arguments_share_memory():
    def run(x, y):
        x += 1
        return y * 1

    traced = wf.trace(run, strict=True)
    for _ in range(2):
        x, y = wf.zeros(3), wf.zeros(3)
        assert traced(x, y).sum().item() == 0.0
        assert traced(x, x).sum().item() == 6.0
        assert traced(y, y[:]).sum().item() == 3.0
        assert traced(x, x[1:]).sum().item() == 6.0
        assert traced(x, x[:2]).sum().item() == 8.0
    assert len(traced.programs) == 4  # an array and all of it are the same


def test_floats_are_inputs():
    traced = wf.trace(lambda x, a: (x * a if isinstance(a, float) else x, a * 2 - 1), strict=True)
    for a in (0.5, 1.5, -2.0, math.inf):
        y, b = traced(wf.ones(2), a)
        assert (y[0].item(), b) == (a, a * 2 - 1)
        assert type(b) is float
    assert len(traced.programs) == 1


def test_what_python_learns_of_a_float_is_a_guard():
    traced = wf.trace(lambda x, a: x * a if a > 1 else x + a, strict=True)
    x = wf.ones(2)
    calls = [(a, traced(x, a)[0].item()) for a in (2.0, 2.0, 0.5, 0.5, 2.0)]
    assert calls == [(2.0, 2.0), (2.0, 2.0), (0.5, 1.5), (0.5, 1.5), (2.0, 2.0)]
    assert traced(x, 7.0)[0].item() == 7.0
    assert len(traced.programs) == 2  # what was learnt is that it is greater than one
    root = wf.trace(lambda x, a: x * math.sqrt(a), strict=True)
    assert [root(x, a)[0].item() for a in (4.0, 9.0, 4.0)] == [2.0, 3.0, 2.0]
    assert len(root.programs) == 2


@pytest.mark.parametrize(
    "compute",
    [
        lambda a: -a,
        lambda a: abs(a),
        lambda a: a + 1,
        lambda a: 1 - a,
        lambda a: a * a,
        lambda a: 3 / a,
        lambda a: a // 2,
        lambda a: 7 % a,
        lambda a: a**2,
        lambda a: 2**a,
    ],
)
def test_arithmetic_with_floats(compute):
    traced = wf.trace(lambda x, a: (x * compute(a), compute(a)), strict=True)
    for a in (1.25, 2.5, 0.75):
        y, b = traced(wf.ones(1, dtype="float64"), a)
        assert b == compute(a)
        assert y.item() == pytest.approx(compute(a))
    assert len(traced.programs) == 1


@pytest.mark.parametrize(
    "learn", [int, bool, round, str, "{:.1f}".format, hash, float, lambda a: a == 1.5, math.floor]
)
def test_ways_to_learn_a_float(learn):
    seen = []

    def run(x, a):
        seen.append(learn(a))
        return x * 2

    traced = wf.trace(run, strict=True)
    for a in (1.5, 1.5, 0.0):
        traced(wf.ones(1), a)
    assert seen == [learn(1.5), learn(0.0)]


def test_variables_of_a_closure():
    scale = 2.0

    def run(x):
        return x * scale

    traced = wf.trace(run, strict=True)
    x = wf.ones(1)
    found = [traced(x).item(), traced(x).item()]
    scale = 3.0
    found += [traced(x).item(), traced(x).item()]
    scale = 2.0
    found.append(traced(x).item())
    assert found == [2.0, 2.0, 3.0, 3.0, 2.0]
    assert len(traced.programs) == 2


def test_globals(monkeypatch):
    traced = wf.trace(lambda x: x * FACTOR, strict=True)
    x = wf.ones(1)
    assert [traced(x).item(), traced(x).item()] == [2.0, 2.0]
    monkeypatch.setitem(globals(), "FACTOR", 5)
    assert [traced(x).item(), traced(x).item()] == [5.0, 5.0]


def test_arrays_of_a_closure_are_looked_at_anew():
    w = wf.ones(2)
    traced = wf.trace(lambda x: x * w, strict=True)
    x = wf.ones(2)
    traced(x)
    w[...] = 4
    assert traced(x).numpy().tolist() == [4.0, 4.0]
    assert len(traced.programs) == 1
    w = wf.zeros(2)  # another one
    assert traced(x).numpy().tolist() == [0.0, 0.0]


def test_modes_of_modules():
    net = M.Sequential(M.Linear(4, 4), M.BatchNorm1d(4), M.Dropout(0.5))
    traced = wf.trace(lambda x: net(x), strict=True)
    x = wf.random.normal(0, 1, (8, 4))

    def agrees():
        state = {name: v.copy() for name, v in net.state_dict().items()}
        wf.random.seed(3)
        found = traced(x).numpy()
        after = {name: v.numpy().copy() for name, v in net.state_dict().items()}
        net.load_state_dict(state)
        wf.random.seed(3)
        np.testing.assert_allclose(found, net(x).numpy(), rtol=1e-4, atol=1e-5)
        for name, v in net.state_dict().items():
            np.testing.assert_allclose(after[name], v.numpy(), rtol=1e-5, atol=1e-6)

    agrees(), agrees()
    net.eval()
    agrees(), agrees()
    assert len(traced.programs) == 2
    net.train()
    agrees()
    assert len(traced.programs) == 2


def test_replaced_parameters():
    net = M.Linear(2, 2, bias=False)
    traced = wf.trace(lambda x: net(x), strict=True)
    x = wf.ones((1, 2))
    traced(x), traced(x)
    net.weight = M.Parameter(wf.ones((2, 2)))
    for _ in range(2):
        assert traced(x).numpy().tolist() == [[2.0, 2.0]]
    net.weight[...] = 3
    assert traced(x).numpy().tolist() == [[6.0, 6.0]]
    assert len(traced.programs) == 2


def test_hooks():
    net = M.Linear(2, 2)
    traced = wf.trace(lambda x: net(x), strict=True)
    x = wf.ones((1, 2))
    plain = [traced(x).numpy(), traced(x).numpy()][1]
    with net.register_forward_hook(lambda module, args, y: y * 2):
        for _ in range(2):
            np.testing.assert_allclose(traced(x).numpy(), plain * 2, rtol=1e-6)
    np.testing.assert_allclose(traced(x).numpy(), plain, rtol=1e-6)


def test_replaced_layers():
    net = M.Sequential(M.Linear(2, 2), M.ReLU())
    net.act = M.ReLU()
    traced = wf.trace(lambda x: net.act(x), strict=True)
    x = wf.tensor([-1.0, 1.0])
    assert traced(x).numpy().tolist() == [0.0, 1.0]
    net.act = M.Identity()
    assert traced(x).numpy().tolist() == [-1.0, 1.0]


def test_whether_there_are_gradients():
    w = wf.ones(2)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            gm.backward((w * x).sum())

    traced = wf.trace(run, strict=True)
    x = wf.ones(2)
    found = []
    for _ in range(2):
        for _ in range(3):
            traced(x)
            found.append(w.grad[0].item())
        w.grad = None
    assert found == [1.0, 2.0, 3.0] * 2
    assert len(traced.programs) == 2


def test_states_made_at_the_first_call():
    states = {}

    def run(x):
        if "sum" not in states:
            states["sum"] = wf.zeros(x.shape)
        states["sum"] += x
        return states["sum"] * 1

    traced = wf.trace(run, strict=True)
    assert [traced(wf.ones(1)).item() for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(traced.programs) == 1


def test_methods():
    class Scaler:
        def __init__(self, factor):
            self.factor = wf.full((), factor)

        @wf.trace(strict=True)
        def apply(self, x):
            self.factor += 1
            return x * self.factor

    a, b = Scaler(1.0), Scaler(10.0)
    x = wf.ones(())
    assert [s.apply(x).item() for s in (a, a, b, b, a)] == [2.0, 3.0, 11.0, 12.0, 4.0]
    assert len(Scaler.apply.programs) == 2


def test_nested_traces():
    inner = wf.trace(lambda x: F.exp(x) * 2, strict=True)
    outer = wf.trace(lambda x: inner(x) + inner(x * 2), strict=True)
    x = wf.tensor([0.5])
    wanted = outer.function(x).item()
    inner(x)  # has a program of its own, which the outer one writes down
    for _ in range(3):
        assert outer(x).item() == pytest.approx(wanted)
    assert len(outer.programs) == 1


def test_a_traced_function_inside_of_gradients():
    f = wf.trace(lambda x: (x * x * x).sum(), strict=True)
    x = wf.tensor([1.0, 2.0])
    for _ in range(3):
        np.testing.assert_allclose(wf.grad(f)(x).numpy(), [3.0, 12.0])
        second = wf.grad(lambda t: wf.grad(f)(t).sum())(x)
        np.testing.assert_allclose(second.numpy(), [6.0, 12.0])


def test_memory_report():
    traced = wf.trace(lambda x: F.softmax(x @ x, axis=1), strict=True)
    traced(wf.ones((8, 8)))
    (report,) = traced.memory_report()
    assert report
    assert "Matmul" in str(traced.programs[0])


def halved(x):
    return x / FACTOR


def test_surroundings_of_functions_that_it_calls(monkeypatch):
    scale = 1.0

    def inner(x):
        return halved(x) * scale

    traced = wf.trace(lambda x: inner(x), strict=True)
    x = wf.ones(())
    found = [traced(x).item(), traced(x).item()]
    scale = 3.0
    found.append(traced(x).item())
    monkeypatch.setitem(globals(), "FACTOR", 4)
    found.append(traced(x).item())
    assert found == [0.5, 0.5, 1.5, 0.75]


def test_surroundings_of_comprehensions(monkeypatch):
    traced = wf.trace(lambda xs: [x * FACTOR for x in xs], strict=True)
    assert traced([wf.ones(())])[0].item() == 2.0
    monkeypatch.setitem(globals(), "FACTOR", 4)
    assert traced([wf.ones(())])[0].item() == 4.0
