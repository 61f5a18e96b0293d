"""Optimizers against their formulas in NumPy; groups, missing gradients, and what a step may not do."""

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft import _core
from weft.base.errors import DTypeError, ShapeError


def sgd(p, g, s, t, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    g = g + weight_decay * p
    if momentum:
        s["m"] = momentum * s.get("m", 0) + (1 - dampening) * g
        g = g + momentum * s["m"] if nesterov else s["m"]
    return p - lr * g


def adam(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    m, v = s["m"] / (1 - betas[0] ** t), s["v"] / (1 - betas[1] ** t)
    return p - lr * m / (np.sqrt(v) + eps)


def adamw(p, g, s, t, lr, weight_decay=0.01, **rest):
    return adam(p, g, s, t, lr, weight_decay=weight_decay, decoupled=True, **rest)


def rmsprop(p, g, s, t, lr, alpha=0.99, eps=1e-8, momentum=0.0, weight_decay=0.0):
    g = g + weight_decay * p
    s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    s["m"] = momentum * s.get("m", 0) + g / (np.sqrt(s["v"]) + eps)
    return p - lr * s["m"]


def adagrad(p, g, s, t, lr, eps=1e-10, weight_decay=0.0):
    g = g + weight_decay * p
    s["v"] = s.get("v", 0) + g * g
    return p - lr * g / (np.sqrt(s["v"]) + eps)


RULES = {"SGD": sgd, "Adam": adam, "AdamW": adamw, "RMSprop": rmsprop, "Adagrad": adagrad}
CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.3}),
    ("RMSprop", {"alpha": 0.5, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"weight_decay": 0.1}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
SHAPES = ((3, 4), (5,), (), (0, 2))


def gradients(step, shapes=SHAPES):
    rng = np.random.default_rng(step)
    return [rng.standard_normal(s) for s in shapes]


def parameters(dtype="float64"):
    return [wf.tensor(g, dtype=dtype) for g in gradients(100)]


def train(opt, params, steps, first=1):
    for t in range(first, first + steps):
        for p, g in zip(params, gradients(t), strict=True):
            p.grad = wf.tensor(g, dtype=p.dtype)
        opt.step()


def test_the_table_has_every_optimizer():
    from weft.optimizer import methods

    assert {name for name, _ in CASES} == set(methods.__all__) == set(RULES)


@every_case
def test_formula(name, options):
    params = parameters()
    want = [p.numpy().copy() for p in params]
    opt = getattr(optim, name)(params, lr=0.1, **options)
    states = [{} for _ in params]
    for t in range(1, 6):
        train(opt, params, 1, t)
        want = [
            RULES[name](p, g, s, t, 0.1, **options)
            for p, g, s in zip(want, gradients(t), states, strict=True)
        ]
    for p, w in zip(params, want, strict=True):
        np.testing.assert_allclose(p.numpy(), w, rtol=1e-12)


@every_case
def test_no_step_waits_or_plans_again(name, options, monkeypatch):
    """What a recorded training step needs: operators on tensors only; steps and rates are not part of any plan."""
    params = parameters("float32")
    opt = getattr(optim, name)(params, lr=0.1, **options)
    train(opt, params, 1)
    wf.waitall()
    grads = [[wf.tensor(g, dtype="float32") for g in gradients(t)] for t in range(5)]

    def fail(self, *args):
        raise AssertionError("waited for a value")

    before = _core.operator_counters()
    with monkeypatch.context() as m:
        for method in ("item", "numpy", "__array__", "wait"):
            m.setattr(wf.Tensor, method, fail)
        for k, each in enumerate(grads):
            for p, g in zip(params, each, strict=True):
                p.grad = g
            opt.param_groups[0]["lr"] = 0.1 / (k + 1)
            opt.step()
    after = _core.operator_counters()
    assert after["planner_calls"] - before["planner_calls"] <= 1  # the assignment to the learning rate
    written = [*params, *opt.state_dict()["state"].values()]
    train(opt, params, 1)
    assert [id(x) for x in written] == [id(x) for x in (*params, *opt.state_dict()["state"].values())]


@every_case
def test_a_state_goes_on_bit_for_bit(name, options, tmp_path):
    params = parameters("float32")
    opt = getattr(optim, name)(params, lr=0.1, **options)
    train(opt, params, 3)
    kept = [p.copy() for p in params]
    state = opt.state_dict()
    wf.save(tmp_path / "state.safetensors", state["state"])
    groups = [dict(group) for group in state["groups"]]
    train(opt, params, 3, 4)

    other = getattr(optim, name)(kept, lr=0.7)
    if name == "SGD":
        other = optim.SGD(kept, **{k: options.get(k, v) for k, v in other.param_groups[0].items()})
    state = {"optimizer": name, "groups": groups, "state": wf.load(tmp_path / "state.safetensors")}
    other.load_state_dict(state)
    train(other, kept, 3, 4)
    for p, q in zip(params, kept, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    assert dict(other.param_groups[0]) == dict(opt.param_groups[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_state_of_16_bit_parameters_is_wide(dtype):
    params = parameters(dtype)
    opt = optim.Adam(params)
    train(opt, params, 3)
    kinds = {k.split(".")[1]: x.dtype.name for k, x in opt.state_dict()["state"].items()}
    assert kinds == {"m": "float32", "v": "float32", "step": "int64"}
    assert params[0].dtype.name == dtype


def test_groups_have_their_own_options():
    a, b = wf.ones(2), wf.ones(2)
    opt = optim.SGD([{"params": [a], "lr": 0.5}, {"params": [b], "weight_decay": 1.0}], lr=0.1)
    for p in (a, b):
        p.grad = wf.ones(2)
    opt.step()
    np.testing.assert_allclose(a.numpy(), 0.5)
    np.testing.assert_allclose(b.numpy(), 1 - 0.1 * 2, rtol=1e-6)
    opt.param_groups[1]["lr"] = 1.0
    opt.step()
    np.testing.assert_allclose(a.numpy(), 0.0)
    np.testing.assert_allclose(b.numpy(), 0.8 - 1.8, rtol=1e-6)
    assert repr(opt).startswith("SGD(1 parameters: lr=0.5, momentum=0.0")


def test_parameters_on_several_devices():
    params = [wf.ones(2), wf.ones(2, device="cpu:1"), wf.ones(3)]
    opt = optim.Adam(params, lr=0.1)
    for _ in range(2):
        for p in params:
            p.grad = wf.ones(p.shape, device=p.device)
        opt.step()
    for p in params:
        np.testing.assert_allclose(p.numpy(), 0.8, rtol=1e-5)


def test_parameters_without_gradients_are_counted_for_themselves():
    """Adam corrects by the number of a parameter's own updates."""
    params = [wf.ones(2, dtype="float64") for _ in range(3)]
    opt = optim.Adam(params, lr=0.1)
    used = [(0,), (0, 1), (0, 1), (1,), (0, 1, 2)]
    want, states, counts = [np.ones(2)] * 3, [{}, {}, {}], [0, 0, 0]
    for step, numbers in enumerate(used):
        opt.clear_grad()
        for k in numbers:
            g = np.full(2, step + k + 1.0)
            params[k].grad = wf.tensor(g)
            counts[k] += 1
            want[k] = adam(want[k], g, states[k], counts[k], 0.1)
        opt.step()
    for p, w in zip(params, want, strict=True):
        np.testing.assert_allclose(p.numpy(), w, rtol=1e-12)
    state = opt.state_dict()["state"]
    assert [int(state[f"{k}.step"]) for k in range(3)] == counts

    other = optim.Adam([p.copy() for p in params], lr=0.1)
    other.load_state_dict(opt.state_dict())
    for o in (opt, other):
        for p in o.param_groups[0].params:
            p.grad = wf.ones(2, dtype="float64")
        o.step()
    for p, q in zip(params, other.param_groups[0].params, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    assert [int(other.state_dict()["state"][f"{k}.step"]) for k in range(3)] == [n + 1 for n in counts]


def test_no_gradients_no_change():
    params = parameters()
    before = [p.numpy().copy() for p in params]
    opt = optim.AdamW(params)
    with pytest.raises(ValueError, match="no parameter has a gradient"):
        opt.step()
    for p, b in zip(params, before, strict=True):
        np.testing.assert_array_equal(p.numpy(), b)
    assert int(opt.state_dict()["state"]["0.step"]) == 0


def test_clear_grad_sets_none():
    params = parameters()
    opt = optim.SGD(params)
    train(opt, params, 1)
    assert opt.clear_grad() is opt
    assert all(p.grad is None for p in params)


def test_gradients_are_only_read():
    """Two parameters may share one gradient's memory, and it may be repeated."""
    a, b = wf.ones((2, 3)), wf.ones((2, 3))
    gm = wf.GradManager().attach([a, b])
    with gm:
        gm.backward((a + b).sum())
    optim.SGD([a, b], lr=0.5, momentum=0.9).step()
    np.testing.assert_array_equal(a.grad.numpy(), np.ones((2, 3)))
    np.testing.assert_allclose(b.numpy(), 0.5)


def test_a_step_inside_of_recording():
    w = wf.tensor([1.0, 2.0])
    gm, opt = wf.GradManager().attach([w]), optim.SGD([w], lr=0.1)
    for _ in range(2):
        with gm:
            gm.backward((w * w).sum())
            opt.step().clear_grad()
    np.testing.assert_allclose(w.numpy(), [0.64, 1.28], rtol=1e-6)


def test_shared_gradient_shapes_must_fit():
    w = wf.ones(3)
    with pytest.raises(ShapeError):
        w.grad = wf.ones(2)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: optim.SGD([]), ValueError, "SGD: no parameters were given"),
        (lambda: optim.SGD(wf.ones(2)), TypeError, "takes several parameters"),
        (lambda: optim.SGD(wf.module.Linear(2, 2)), TypeError, "as net.parameters.. gives, got Linear"),
        (lambda: optim.SGD([1.0]), TypeError, "parameters are tensors, got float"),
        (lambda: optim.SGD([wf.zeros(2, dtype="int64")]), DTypeError, r"can be trained: i64\[2\]"),
        (lambda: optim.SGD([{"params": []}]), ValueError, "a group has no parameters"),
        (lambda: optim.SGD([{"lr": 3}]), TypeError, "with the key 'params'"),
        (
            lambda: optim.SGD([{"params": [wf.ones(1)], "x": 3}]),
            TypeError,
            "no option 'x'; there are: lr, mom",
        ),
        (lambda: optim.SGD([wf.ones(1)], lr=-1), ValueError, "lr must be at least 0.0 and finite, got -1"),
        (lambda: optim.SGD([wf.ones(1)], lr=float("nan")), ValueError, "got nan"),
        (lambda: optim.SGD([wf.ones(1)], lr=10**400), ValueError, "lr must be at least"),
        (lambda: optim.SGD([wf.ones(1)], lr="0.1"), TypeError, "lr must be a number, got '0.1'"),
        (lambda: optim.SGD([wf.ones(1)], nesterov=1), TypeError, "nesterov must be a bool"),
        (lambda: optim.SGD([wf.ones(1)], nesterov=True), ValueError, "nesterov needs momentum"),
        (lambda: optim.Adam([wf.ones(1)], betas=(0.9, 1.0)), ValueError, "must be below 1"),
        (
            lambda: optim.Adam([wf.ones(1)], betas=(0.9, 1.1)),
            ValueError,
            "beta2 must be at least 0.0 and at most 1.0",
        ),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_the_same_parameter_twice():
    w = wf.ones(2)
    with pytest.raises(ValueError, match="given twice"):
        optim.SGD([w, w])
    opt = optim.SGD([w])
    with pytest.raises(ValueError, match="given twice"):
        opt.add_param_group({"params": [w]})
    assert len(opt.param_groups) == 1


def test_options_of_groups():
    group = optim.SGD([wf.ones(2)]).param_groups[0]
    with pytest.raises(KeyError, match="no option 'rate'; there are: lr, momentum"):
        group["rate"] = 1
    with pytest.raises(TypeError, match="cannot be deleted"):
        del group["lr"]
    assert set(group) == {"lr", "momentum", "dampening", "weight_decay", "nesterov"}


def test_momentum_that_comes_later():
    w = wf.ones(2)
    opt = optim.SGD([w])
    opt.param_groups[0]["momentum"] = 0.9
    w.grad = wf.ones(2)
    with pytest.raises(ValueError, match=r"momentum=0\.9 cannot be set now"):
        opt.step()


HOSTILE = {
    "not a mapping": (lambda s: [], "takes what state_dict"),
    "keys": (lambda s: {"groups": []}, "takes what state_dict"),
    "another optimizer": (lambda s: {**s, "optimizer": "SGD"}, "is of the optimizer 'SGD'"),
    "no groups": (lambda s: {**s, "groups": []}, "groups: 0, here 1"),
    "groups of text": (lambda s: {**s, "groups": "ab"}, "groups: str, here 1"),
    "an option less": (lambda s: {**s, "groups": [{"lr": 1.0}]}, "needs exactly the options beta1"),
    "an option of text": (lambda s: {**s, "groups": [{**s["groups"][0], "lr": "1"}]}, "lr must be a number"),
    "an option out of range": (
        lambda s: {**s, "groups": [{**s["groups"][0], "beta1": 2}]},
        "beta1 must be at least",
    ),
    "an option that is NaN": (
        lambda s: {**s, "groups": [{**s["groups"][0], "initial_lr": float("nan")}]},
        "initial_lr must be at least",
    ),
    "another number": (
        lambda s: {**s, "groups": [{**s["groups"][0], "parameters": 9}]},
        "9 parameters, here 4",
    ),
    "tensors that are none": (lambda s: {**s, "state": [1]}, "state is of type list"),
    "missing": (
        lambda s: {**s, "state": {k: x for k, x in s["state"].items() if k != "0.m"}},
        "missing: 0.m",
    ),
    "unexpected": (lambda s: {**s, "state": {**s["state"], "9.m": wf.ones(1)}}, "unexpected: 9.m"),
    "shape": (
        lambda s: {**s, "state": {**s["state"], "1.v": wf.ones(1)}},
        r"1.v is f32\[1\]@cpu:0, here f64\[5\]",
    ),
    "type": (lambda s: {**s, "state": {**s["state"], "1.v": 3}}, "1.v is of type int"),
    "steps": (lambda s: {**s, "state": {**s["state"], "1.step": wf.tensor(-1)}}, "1.step is -1"),
    "steps of floats": (lambda s: {**s, "state": {**s["state"], "1.step": wf.tensor(1.0)}}, "1.step is f32"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_states_change_nothing(case):
    change, words = HOSTILE[case]
    params = parameters()
    opt = optim.Adam(params, lr=0.1)
    train(opt, params, 2)
    good = opt.state_dict()
    before = {k: x.numpy().copy() for k, x in good["state"].items()}
    bad = change({**good, "state": {k: x * 0 + 1 for k, x in good["state"].items()}})
    for load in (opt.check_state_dict, opt.load_state_dict):
        with pytest.raises((ValueError, TypeError), match=words):
            load(bad)
    after = opt.state_dict()
    assert after["groups"] == good["groups"]
    for k, x in before.items():
        np.testing.assert_array_equal(after["state"][k].numpy(), x)
