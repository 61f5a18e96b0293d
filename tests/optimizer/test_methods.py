"""Optimizers against their formulas in NumPy; groups, missing gradients, and what a step may not do."""

import inspect

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


def adam(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False, amsgrad=False):
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    s["v_max"] = np.maximum(s.get("v_max", 0), s["v"])
    m, v = s["m"] / (1 - betas[0] ** t), s["v_max" if amsgrad else "v"] / (1 - betas[1] ** t)
    return p - lr * m / (np.sqrt(v) + eps)


def adamw(p, g, s, t, lr, weight_decay=0.01, **rest):
    return adam(p, g, s, t, lr, weight_decay=weight_decay, decoupled=True, **rest)


def rmsprop(p, g, s, t, lr, alpha=0.99, eps=1e-8, momentum=0.0, weight_decay=0.0, centered=False):
    g = g + weight_decay * p
    s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    s["a"] = alpha * s.get("a", 0) + (1 - alpha) * g
    v = np.maximum(s["v"] - s["a"] ** 2, 0) if centered else s["v"]
    s["m"] = momentum * s.get("m", 0) + g / (np.sqrt(v) + eps)
    return p - lr * s["m"]


def adagrad(p, g, s, t, lr, eps=1e-10, weight_decay=0.0):
    g = g + weight_decay * p
    s["v"] = s.get("v", 0) + g * g
    return p - lr * g / (np.sqrt(s["v"]) + eps)


def adadelta(p, g, s, t, lr, rho=0.9, eps=1e-6, weight_decay=0.0):
    g = g + weight_decay * p
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    d = g * np.sqrt((s.get("u", 0) + eps) / (s["v"] + eps))
    s["u"] = rho * s.get("u", 0) + (1 - rho) * d * d
    return p - lr * d


def adamax(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    g = g + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0), np.abs(g) + eps)
    return p - lr / (1 - betas[0] ** t) * s["m"] / s["u"]


def moments(p, g, s, t, lr, betas, weight_decay, decoupled):
    """The decayed parameter, the gradient, and Adam's means without their bias."""
    p, g = (p * (1 - lr * weight_decay), g) if decoupled else (p, g + weight_decay * p)
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    return p, g, s["m"], s["v"] / (1 - betas[1] ** t)


def nadam(
    p,
    g,
    s,
    t,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    momentum_decay=0.004,
    decoupled_weight_decay=False,
):
    p, g, m, v = moments(p, g, s, t, lr, betas, weight_decay, decoupled_weight_decay)
    mu = [betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in range(1, t + 2)]
    past, through = np.prod(mu[:t]), np.prod(mu)
    return p - lr * (mu[t] * m / (1 - through) + (1 - mu[t - 1]) * g / (1 - past)) / (np.sqrt(v) + eps)


def radam(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled_weight_decay=False):
    p, g, m, v = moments(p, g, s, t, lr, betas, weight_decay, decoupled_weight_decay)
    m, longest = m / (1 - betas[0] ** t), 2 / (1 - betas[1]) - 1
    rho = longest - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if rho <= 5:
        return p - lr * m
    r = np.sqrt((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho))
    return p - lr * r * m / (np.sqrt(v) + eps)


def lion(p, g, s, t, lr, betas=(0.9, 0.99), weight_decay=0.0):
    m = s.get("m", 0)
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p * (1 - lr * weight_decay) - lr * np.sign(betas[0] * m + (1 - betas[0]) * g)


def signum(p, g, s, t, lr, momentum=0.9, weight_decay=0.0, decoupled_weight_decay=False):
    s["m"] = momentum * s.get("m", 0) + (1 - momentum) * (g + weight_decay * p * (not decoupled_weight_decay))
    return p * (1 - lr * weight_decay * decoupled_weight_decay) - lr * np.sign(s["m"])


def asgd(p, g, s, t, lr, decay=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0):
    eta = lr / (1 + decay * lr * (t - 1)) ** alpha
    p = p * (1 - decay * eta) - eta * (g + weight_decay * p)
    s["mean"] = s.get("mean", 0) + (p - s.get("mean", 0)) / max(1, t - 1 - t0)
    return p


def rprop(p, g, s, t, lr, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)):
    same = g * s.get("last", 0)
    factor = np.where(same > 0, etas[1], np.where(same < 0, etas[0], 1.0))
    s["size"] = np.clip(s.get("size", np.full(g.shape, lr)) * factor, *step_sizes)
    s["last"] = np.where(same < 0, 0, g)
    return p - np.sign(s["last"]) * s["size"]


def ftrl(p, g, s, t, lr, l1=0.01, l2=0.0, beta=1.0):
    n = s.get("n", np.zeros(g.shape))
    s["n"] = n + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(n)) / lr * p
    return -np.sign(s["z"]) * np.maximum(np.abs(s["z"]) - l1, 0) / ((beta + np.sqrt(s["n"])) / lr + l2)


def ftml(p, g, s, t, lr, betas=(0.6, 0.999), eps=1e-8, weight_decay=0.0):
    g = g + weight_decay * p
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    before, s["d"] = s.get("d", 0), (1 - betas[0] ** t) / lr * (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps)
    s["z"] = betas[0] * s.get("z", 0) + (1 - betas[0]) * g - (s["d"] - betas[0] * before) * p
    return -s["z"] / s["d"]


RULES = {
    "SGD": sgd,
    "Adam": adam,
    "AdamW": adamw,
    "RMSprop": rmsprop,
    "Adagrad": adagrad,
    "Adadelta": adadelta,
    "Adamax": adamax,
    "NAdam": nadam,
    "RAdam": radam,
    "Lion": lion,
    "Signum": signum,
    "ASGD": asgd,
    "Rprop": rprop,
    "Ftrl": ftrl,
    "FTML": ftml,
}
CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.1}),
    ("Adam", {"betas": (0.5, 0.5), "amsgrad": True}),
    ("AdamW", {"weight_decay": 0.3}),
    ("RMSprop", {"alpha": 0.5, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"alpha": 0.5, "centered": True}),
    ("Adagrad", {"weight_decay": 0.1}),
    ("Adadelta", {"rho": 0.5, "eps": 0.01, "weight_decay": 0.1}),
    ("Adamax", {"betas": (0.5, 0.8), "weight_decay": 0.1}),
    ("NAdam", {}),
    ("NAdam", {"momentum_decay": 1.0, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.5, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"betas": (0.5, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Lion", {"weight_decay": 0.3}),
    ("Signum", {"momentum": 0.5, "weight_decay": 0.1}),
    ("Signum", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"decay": 0.3, "t0": 2, "weight_decay": 0.1}),
    ("Rprop", {"etas": (0.4, 1.5), "step_sizes": (0.05, 0.2)}),
    ("Ftrl", {"l1": 0.3, "l2": 0.2}),
    ("FTML", {"weight_decay": 0.1}),
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


@pytest.mark.parametrize("name", RULES)
def test_maximize(name):
    up, down = parameters(), parameters()
    a, b = (getattr(optim, name)(each, lr=0.1, maximize=each is up) for each in (up, down))
    for t in range(3):
        for p, q, g in zip(up, down, gradients(t), strict=True):
            p.grad, q.grad = wf.tensor(-g), wf.tensor(g)
        a.step()
        b.step()
    for p, q in zip(up, down, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@pytest.mark.parametrize("option", ["amsgrad", "centered"])
def test_tensors_that_come_later(option):
    w = wf.ones(2)
    opt = optim.Adam([w]) if option == "amsgrad" else optim.RMSprop([w])
    opt.param_groups[0][option] = True
    w.grad = wf.ones(2)
    with pytest.raises(ValueError, match=f"{option}=True cannot be set now"):
        opt.step()


def test_nadams_product_is_of_a_parameters_own_updates():
    params = [wf.ones(2, dtype="float64") for _ in range(2)]
    opt = optim.NAdam(params, lr=0.1)
    want, states, counts = [np.ones(2)] * 2, [{}, {}], [0, 0]
    for step, numbers in enumerate([(0,), (0, 1), (1,), (0, 1)]):
        opt.clear_grad()
        for k in numbers:
            g = np.full(2, step + k + 1.0)
            params[k].grad = wf.tensor(g)
            counts[k] += 1
            want[k] = nadam(want[k], g, states[k], counts[k], 0.1)
        opt.step()
    other = optim.NAdam([p.copy() for p in params], lr=0.1)
    other.load_state_dict(opt.state_dict())
    for k, p in enumerate(other.param_groups[0].params):
        np.testing.assert_allclose(p.numpy(), want[k], rtol=1e-12)
        p.grad = wf.ones(2, dtype="float64")
        want[k] = nadam(want[k], np.ones(2), states[k], counts[k] + 1, 0.1)
    other.step()
    for p, w in zip(other.param_groups[0].params, want, strict=True):
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

    structure = ("momentum", "nesterov", "amsgrad", "centered")  # which tensors there are
    other = getattr(optim, name)(kept, lr=0.7, **{k: v for k, v in options.items() if k in structure})
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
    assert set(group) == {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"}


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
    "an option less": (lambda s: {**s, "groups": [{"lr": 1.0}]}, "needs exactly the options amsgrad, beta1"),
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


def test_states_from_before_an_option():
    w = wf.ones(2)
    opt, other = optim.Adam([w], lr=0.1), optim.Adam([wf.ones(2)], maximize=True)
    state = opt.state_dict()
    older = {name: value for name, value in state["groups"][0].items() if name not in ("amsgrad", "maximize")}
    other.load_state_dict({**state, "groups": [older]})
    assert dict(other.param_groups[0]) == dict(opt.param_groups[0])


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


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Lion", "Rprop", "Signum", "FTML"])
def test_options_of_a_group_make_an_optimizer_as_servers_do(name):
    """Options have names of their own where an argument gives several: betas is beta1 and beta2."""
    cls = getattr(optim, name)
    group = cls([wf.zeros(2)], 0.25).param_groups[0]
    again = cls([wf.zeros(2)], **dict(group)).param_groups[0]
    assert dict(again) == dict(group)
    assert again["lr"] == 0.25


def test_arguments_are_positions_and_names():
    by_position = optim.Adam([wf.zeros(2)], 0.1, (0.5, 0.75), 1e-3)
    by_name = optim.Adam(params=[wf.zeros(2)], eps=1e-3, betas=[0.5, 0.75], lr=0.1)
    assert dict(by_position.param_groups[0]) == dict(by_name.param_groups[0])
    arguments = inspect.signature(optim.AdamW).parameters
    assert list(arguments) == ["params", "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"]
    assert [arguments[name].default for name in ("betas", "weight_decay")] == [(0.9, 0.999), 0.01]
    assert not hasattr(optim.SGD([wf.zeros(2)]), "lr")
    for arguments, options, words in (
        ((0.1,), {"lr": 0.1}, "Adam: lr given twice"),
        ((0.1,) * 9, {}, "Adam: takes 7 arguments by position, got 10"),
        ((), {"betas": 0.9}, "Adam: betas takes 2 numbers, beta1, beta2, got 0.9"),
        ((), {"beta": (0.9, 0.9)}, "Adam: no argument beta; .*; did you mean betas"),
    ):
        with pytest.raises(TypeError, match=words):
            optim.Adam([wf.zeros(2)], *arguments, **options)
