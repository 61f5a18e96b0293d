"""Optimizers that look at whole parameters, and L-BFGS, against their formulas in NumPy; averages of parameters."""

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft.base.errors import DTypeError, ShapeError
from weft.distributed import ShardedOptimizer


def ratio(a, b):
    return a / b if a > 0 and b > 0 else 1.0


def lamb(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    d = s["m"] / (1 - betas[0] ** t) / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps) + weight_decay * p
    return p - lr * ratio(np.sqrt((p**2).sum()), np.sqrt((d**2).sum())) * d


def lars(p, g, s, t, lr, momentum=0.9, trust=0.001, eps=1e-8, weight_decay=0.0):
    length, slope = np.sqrt((p**2).sum()), np.sqrt((g**2).sum())
    local = trust * length / (slope + weight_decay * length + eps) if length > 0 and slope > 0 else 1.0
    s["m"] = momentum * s.get("m", 0) + lr * local * (g + weight_decay * p)
    return p - s["m"]


def root_mean_square(x):
    return np.sqrt((x**2).sum() / max(x.size, 1))


def adafactor(p, g, s, t, lr, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0):
    tiny, part = eps[0] or np.finfo(p.dtype).eps, t**beta2_decay

    def mean(name, new):
        s[name] = s.get(name, 0) * (1 - part) + part * new
        return s[name]

    if p.ndim < 2:
        v = mean("v", g * g)
    else:
        row, column = (mean(f"v{axis}", (g * g).mean(axis, keepdims=True)) for axis in (-1, -2))
        v = row * column / np.maximum(row.mean(-2, keepdims=True), tiny)
    u = g / np.sqrt(np.maximum(v, tiny**2))
    rate = max(root_mean_square(p), eps[1]) * min(lr, t**-0.5)
    return p * (1 - lr * weight_decay) - rate / max(1, root_mean_square(u) / d) * u


def muon(p, g, s, t, lr, weight_decay=0.1, momentum=0.95, nesterov=True, eps=1e-7):
    s["m"] = momentum * s.get("m", 0) + (1 - momentum) * g
    d = (1 - momentum) * g + momentum * s["m"] if nesterov else s["m"]
    x = d.reshape(d.shape[0], -1)
    x = x / max(np.linalg.norm(x), eps)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    scale = np.sqrt(max(1, x.shape[0] / max(x.shape[1], 1)))
    return p * (1 - lr * weight_decay) - lr * scale * x.reshape(p.shape)


RULES = {"LAMB": lamb, "LARS": lars, "Adafactor": adafactor, "Muon": muon}
CASES = [
    ("LAMB", {"weight_decay": 0.1}),
    ("LARS", {"weight_decay": 0.1, "trust": 0.1}),
    ("Adafactor", {"weight_decay": 0.1}),
    ("Adafactor", {"eps": (1e-2, 0.5), "d": 0.5}),
    ("Muon", {}),
    ("Muon", {"nesterov": False, "momentum": 0.5}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
MATRICES = ((3, 4), (4, 3), (2, 3, 2))
OTHERS = ((5,), (), (0,))


def test_the_table_has_every_optimizer():
    from weft.optimizer import whole_tensors

    assert {name for name, _ in CASES} == set(whole_tensors.__all__) == set(RULES)


def shapes_of(name):
    return MATRICES if name == "Muon" else (*MATRICES, *OTHERS)


def draws(name, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s) for s in shapes_of(name)]


def train(opt, params, name, steps):
    for t in steps:
        for p, g in zip(params, draws(name, t), strict=True):
            p.grad = wf.tensor(g, dtype=p.dtype)
        opt.step()


@every_case
@pytest.mark.parametrize("sign", [1, -1])
def test_formula(name, options, sign):
    params = [wf.tensor(x) for x in draws(name, 100)]
    params[0][...] = 0.0
    want = [p.numpy().copy() for p in params]
    opt = getattr(optim, name)(params, lr=0.1, maximize=sign < 0, **options)
    states = [{} for _ in params]
    for t in range(1, 6):
        train(opt, params, name, [t])
        gs = draws(name, t)
        want = [
            RULES[name](p, sign * g, s, t, 0.1, **options) for p, g, s in zip(want, gs, states, strict=True)
        ]
    for p, w in zip(params, want, strict=True):
        np.testing.assert_allclose(p.numpy(), w, rtol=1e-9, atol=1e-12)


@every_case
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_state_goes_on_bit_for_bit(name, options, dtype):
    params = [wf.tensor(x, dtype=dtype) for x in draws(name, 100)]
    opt = getattr(optim, name)(params, lr=0.1, **options)
    train(opt, params, name, range(3))
    kept, state = [p.copy() for p in params], opt.state_dict()
    state = {**state, "state": {key: x.copy() for key, x in state["state"].items()}}
    assert {x.dtype.name for x in state["state"].values()} == {"float32", "int64"}
    train(opt, params, name, range(3, 6))
    other = getattr(optim, name)(kept, lr=0.7)
    other.load_state_dict(state)
    train(other, kept, name, range(3, 6))
    for p, q in zip(params, kept, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@every_case
def test_traced_as_eager(name, options):
    results = []
    for wrap in (lambda f: f, wf.trace):
        params = [wf.tensor(x) for x in draws(name, 100)]
        opt = getattr(optim, name)(params, lr=0.1, **options)
        gm = wf.GradManager().attach(params)

        @wrap
        def step(*xs, params=params, opt=opt, gm=gm):
            with gm:
                gm.backward(sum(((p - x) ** 2).sum() for p, x in zip(params, xs, strict=True)))
            opt.step().clear_grad()

        for t in range(4):
            step(*map(wf.tensor, draws(name, t)))
        results.append([p.numpy() for p in params])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_what_needs_whole_parameters_is_refused_where_there_are_parts():
    with pytest.raises(ValueError, match="Muon updates an element by what others of its parameter are"):
        ShardedOptimizer(optim.Muon, [wf.ones((2, 2))])
    with pytest.raises(ShapeError, match=r"Muon: takes matrices, a parameter has the shape \(3,\)"):
        optim.Muon([wf.ones(3)])


class Rosenbrock:
    def __init__(self, dtype="float64", **options):
        self.w = wf.tensor([-1.5, 2.0], dtype=dtype)
        self.v = wf.tensor([[0.5]], dtype=dtype)
        self.opt = optim.LBFGS([self.w, self.v], **options)
        self.gm = wf.GradManager().attach([self.w, self.v])
        self.calls = 0

    def closure(self):
        self.calls += 1
        w, v = self.w, self.v
        with self.gm:
            loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2 + ((v - 3) ** 2).sum()
            self.gm.backward(loss)
        return loss


def test_lbfgs_finds_the_minimum():
    problem = Rosenbrock(line_search="strong_wolfe", history_size=5)
    first = problem.opt.step(problem.closure).item()
    for _ in range(4):
        problem.opt.step(problem.closure)
    assert first == pytest.approx(6.25 + 100 * 0.0625 + 6.25)
    np.testing.assert_allclose(problem.w.numpy(), 1.0, atol=1e-4)
    np.testing.assert_allclose(problem.v.numpy(), 3.0, atol=1e-4)
    assert problem.calls < 80


def test_lbfgs_of_a_quadratic_is_exact_after_as_many_steps_as_dimensions():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 4))
    a = wf.tensor(a @ a.T + np.eye(4))
    x = wf.tensor(rng.standard_normal(4))
    gm, opt = wf.GradManager().attach([x]), optim.LBFGS([x], line_search="strong_wolfe", max_iter=15)

    def closure():
        with gm:
            loss = 0.5 * x @ a @ x
            gm.backward(loss)
        return loss

    opt.step(closure)
    np.testing.assert_allclose(x.numpy(), 0.0, atol=1e-5)


def test_lbfgs_goes_on_from_a_state():
    one, other = (Rosenbrock(max_iter=4, history_size=3, line_search="strong_wolfe") for _ in range(2))
    for _ in range(3):
        one.opt.step(one.closure)
    other.opt.load_state_dict(one.opt.state_dict())
    other.w[...], other.v[...] = one.w, one.v
    for _ in range(2):
        for each in (one, other):
            each.opt.step(each.closure)
        np.testing.assert_array_equal(one.w.numpy(), other.w.numpy())


def test_lbfgs_refuses():
    w = wf.ones(2)
    with pytest.raises(TypeError, match="takes a closure"):
        optim.LBFGS([w]).step()
    with pytest.raises(ValueError, match="one group of parameters on one device, got 2"):
        optim.LBFGS([{"params": [w]}, {"params": [wf.ones(1)]}])
    with pytest.raises(ValueError, match="on cpu:0, cpu:1"):
        optim.LBFGS([w, wf.ones(1, device="cpu:1")])
    with pytest.raises(ValueError, match="line_search must be None or 'strong_wolfe'"):
        optim.LBFGS([w], line_search="wolfe")
    with pytest.raises(ValueError, match="no parameter has a gradient"):
        optim.LBFGS([w]).step(lambda: wf.tensor(1.0))


@pytest.mark.parametrize("decay", [0.9, 0.0, 1.0, None])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("wrap", [lambda f: f, wf.trace])
def test_averages(decay, dtype, wrap):
    params = [wf.tensor([1.0, 2.0], dtype=dtype), wf.tensor(3.0, dtype=dtype)]
    average = optim.AveragedParameters(params, decay)
    values = []

    @wrap
    def step():
        for p in params:
            p += 1
        average.update()

    for _ in range(5):
        step()
        values.append(params[0].numpy().astype("float64"))
    want = values[0]
    for x in values[1:]:
        want = x if decay == 0 else want if decay == 1 else want * 0.9 + 0.1 * x
    want = np.mean(values, axis=0) if decay is None else want
    np.testing.assert_allclose(average.averages[0].numpy(), want, rtol=1e-6)
    before = params[0].numpy().copy()
    with average.applied():
        np.testing.assert_allclose(params[0].numpy().astype("float64"), want, rtol=1e-2)
    np.testing.assert_array_equal(params[0].numpy(), before)
    other = optim.AveragedParameters(params, decay)
    other.load_state_dict(average.state_dict())
    for each in (average, other):
        each.update()
    np.testing.assert_array_equal(average.averages[0].numpy(), other.averages[0].numpy())


def test_averages_refuse():
    with pytest.raises(ValueError, match="decay must be at least 0 and at most 1"):
        optim.AveragedParameters([wf.ones(1)], 1.5)
    with pytest.raises(DTypeError, match="averages floating-point tensors, got int64"):
        optim.AveragedParameters([wf.zeros(1, dtype="int64")])
    average = optim.AveragedParameters([wf.ones(2)])
    with pytest.raises(ValueError, match="0 averages, here 1"):
        average.load_state_dict({"averages": {}, "count": 1})
    with pytest.raises(ValueError, match=r"average 0 has the shape \(3,\), here \(2,\)"):
        average.load_state_dict({"averages": {"0": wf.ones(3)}, "count": 1})
