"""Rounding of weights that looks at data: the error against all integers, and of whole networks."""

import itertools

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.quantization as Q
from weft.quantization.rounding import descend, feed_forward, squared_error


def problem(seed, n=3, k=5):
    """Weights, steps, and the sum of x x^T of inputs that go together."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, k)) @ rng.normal(size=(k, k))
    return rng.normal(size=(n, k)), rng.uniform(0.3, 0.9, (n, k)), x.T @ x


def test_the_error_is_near_the_least():
    """Against every choice of rounding up or down; the searches may take other integers, too."""
    sums = np.sum([errors_of(*problem(seed)) for seed in range(20)], axis=0)
    best, base, fed, descended = sums
    assert best < 0.5 * base
    assert fed < best + 0.6 * (base - best)
    assert descended < best + 0.2 * (base - best)


def errors_of(w, steps, hessian):
    """The least error of rounding up or down, and those of the nearest integers, feed_forward and descend."""
    nearest = np.clip(np.rint(w / steps), -8, 7)
    best = 0.0
    for row in range(len(w)):
        lower = np.floor(w[row] / steps[row])
        choices = np.clip(lower + np.array(list(itertools.product((0, 1), repeat=w.shape[1]))), -8, 7)
        best += min(squared_error(w[row : row + 1], q[None], steps[row : row + 1], hessian) for q in choices)
    found = [search(w, steps, hessian, (-8, 7)) for search in (feed_forward, descend)]
    for q in found:
        assert (q == np.rint(q)).all()
        assert q.min() >= -8
        assert q.max() <= 7
    errors = [squared_error(w, q, steps, hessian) for q in (nearest, *found)]
    assert errors[2] <= min(errors[:2])
    return [best, *errors]


def test_inputs_without_values_and_bounds():
    """Columns that no input reaches keep the nearest integers; bounds hold."""
    w, steps, hessian = problem(0)
    hessian[2], hessian[:, 2] = 0, 0
    q = descend(w, steps, hessian, (-1, 1))
    np.testing.assert_array_equal(q[:, 2], np.clip(np.rint(w / steps), -1, 1)[:, 2])
    for search in (feed_forward, descend):
        assert set(np.unique(search(w, steps, np.zeros_like(hessian), (-1, 1)))) <= {-1, 0, 1}


class Layers(M.Module):
    """A strided and dilated convolution, one with groups, a linear layer, and a product with a matrix."""

    def __init__(self):
        self.a = M.Conv2d(2, 8, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2))
        self.norm, self.b = M.BatchNorm2d(8), M.Conv2d(8, 8, 3, groups=4)
        self.c, self.w = M.Linear(8, 16), M.Parameter(wf.random.normal(shape=(16, 4)))

    def forward(self, x):
        y = F.relu(self.b(F.relu(self.norm(self.a(x)))))
        return self.c(F.mean(y, axis=(2, 3))) @ self.w


@pytest.mark.parametrize("rounding", ["gptq", "descent"])
@pytest.mark.parametrize("config", [Q.QConfig(), Q.QConfig(per_channel=False, symmetric=False)])
def test_networks_of_bytes(rounding, config):
    wf.random.seed(0)
    module, x = Layers().eval(), wf.random.normal(shape=(16, 2, 9, 8))
    simulated = Q.calibrate(module, [x], qconfig=config, rounding=rounding)
    nearest = Q.calibrate(module, [x], qconfig=config)
    assert [name for name, q in simulated.weights.items() if q.integers is None] == ["b"]
    for name, q in simulated.weights.items():
        if q.integers is not None:
            moved = q.integers.numpy() != nearest.weights[name].quantize(folded_weight(module, name)).numpy()
            assert moved.mean() < 0.6
    integers = Q.convert(simulated)
    scale = F.max(F.abs(simulated(x)))
    assert (F.max(F.abs(integers(x) - simulated(x))) / scale).item() < 0.02


def folded_weight(module, name):
    if name == "a":
        factor = module.norm.weight * F.rsqrt(module.norm.running_var + module.norm.eps)
        return module.a.weight * factor.reshape(-1, 1, 1, 1)
    return module.w if name == "matmul" else getattr(module, name).weight


def test_patches_are_those_of_the_convolution():
    """Rows of patches times rows of the weight are the convolution."""
    from weft.quantization.rounding import _inputs

    module, x = Layers().eval(), wf.random.normal(shape=(3, 2, 9, 8))
    network = Q.calibrate(module, [x]).network((x,))
    contraction = next(iter(network.contractions.values()))
    rows = _inputs(contraction, x.numpy())
    y = (rows @ module.a.weight.numpy().reshape(8, -1).T + module.a.bias.numpy()).reshape(3, 5, 8, 8)
    np.testing.assert_allclose(y.transpose(0, 3, 1, 2), module.a(x).numpy(), rtol=1e-4, atol=1e-5)


def test_weights_of_4_bits():
    """On inputs that go together the error of results is far less than with the nearest integers."""
    wf.random.seed(0)
    module = M.Sequential(M.Linear(64, 48), M.ReLU(), M.Linear(48, 8)).eval()
    mixing = wf.random.normal(shape=(8, 64))
    x = wf.random.normal(shape=(400, 8)) @ mixing + 0.1 * wf.random.normal(shape=(400, 64))
    want, errors = module(x), {}
    config = Q.QConfig(weight_bits=4, activation_bits=None, group_size=16)
    for rounding in ("nearest", "gptq", "descent"):
        simulated = Q.calibrate(module, [x[:200], x[200:]], qconfig=config, rounding=rounding)
        errors[rounding] = F.mean((simulated(x) - want) ** 2).item()
        integers = Q.convert(simulated)
        assert F.mean((integers(x) - simulated(x)) ** 2).item() < 1e-3 * errors[rounding]
    assert errors["gptq"] < 0.5 * errors["nearest"], errors
    assert errors["descent"] < 0.5 * errors["nearest"], errors


def test_wrong_rounding():
    with pytest.raises(ValueError, match="rounding must be one of nearest, gptq, descent, got 'up'"):
        Q.calibrate(M.Linear(2, 2), [wf.ones((1, 2))], rounding="up")
