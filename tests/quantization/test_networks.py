"""Networks: observers, training with rounded numbers, calibration, conversion to integers, reports, wrong use."""

import copy
from xml.etree import ElementTree

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.quantization as Q
from weft.ops.families.quantization import IntegerConv2d, IntegerLinear

# A sum of floats may be on the other side of a half than the sum of integers; then an activation differs by a step.
ALIKE = 3e-3


class Net(M.Module):
    """Convolutions with and without batch normalization, a residual, pooling and a head."""

    def __init__(self):
        self.stem = M.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = M.BatchNorm2d(8)
        self.block = M.Conv2d(8, 8, 3, padding=1)
        self.head = M.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.relu(self.block(x) + x)
        return self.head(x.reshape(x.shape[0], -1))


class Attend(M.Module):
    """Products of two activations."""

    def __init__(self):
        self.q, self.k = M.Linear(8, 8), M.Linear(8, 8)

    def forward(self, x):
        scores = F.softmax(self.q(x) @ self.k(x).swapaxes(-1, -2), axis=-1)
        return scores @ x


def net(seed=0):
    wf.random.seed(seed)
    made = Net()
    with wf.no_grad():  # statistics that are not those of the beginning
        made.norm.running_mean[...] = 0.3
        made.norm.running_var[...] = 2.0
        made.norm.bias[...] = 0.1
    return made


def images(n=6, seed=1):
    return wf.tensor(np.random.default_rng(seed).normal(size=(n, 1, 8, 8)).astype(np.float32))


def distance(a, b):
    return (F.max(F.abs(a - b)) / F.max(F.abs(b))).item()


# Observers.


def test_ranges():
    data = [np.array([-1.0, 3.0]), np.array([-2.0, 1.0])]
    found = {}
    for method in ("min_max", "ema", "percentile", "kl", "l2"):
        observer = Q.make_observer(method, "layer", momentum=0.5)
        for x in data:
            observer.update(x)
        found[method] = observer.range()
    assert found["min_max"] == (-2, 3)
    assert found["ema"] == (-1.5, 2)
    for method in ("percentile", "kl", "l2"):
        low, high = found[method]
        assert -2.01 <= low <= 0 <= high <= 3.01


@pytest.mark.parametrize("search", ["percentile", "kl", "l2"])
def test_searches_leave_outliers_out(search):
    """Against a search one range after the other: the squared error of the range is near the least."""
    rng = np.random.default_rng(0)
    x = np.append(np.abs(rng.normal(size=200_000)), [40.0])
    observer = Q.Histogram("layer", search=search)
    for part in np.array_split(x, 7):
        observer.update(part)
    low, high = observer.range(levels=16)
    assert low == 0
    assert 1 < high < 12

    def error(high):
        step = high / 15
        return ((np.clip(np.round(x / step), 0, 15) * step - x) ** 2).sum()

    if search == "l2":
        assert error(high) < 1.1 * min(error(h) for h in np.linspace(0.5, 40, 400))


def test_zeros_of_relu_do_not_narrow_the_range():
    x = np.maximum(np.random.default_rng(0).normal(size=100_000), 0)
    ranges = []
    for data in (x, x[x > 0]):
        observer = Q.Histogram("layer", search="kl")
        observer.update(data)
        ranges.append(observer.range())
    assert ranges[0] == ranges[1]
    assert ranges[0][1] > 3
    zeros = Q.Histogram("layer", search="kl")
    zeros.update(np.zeros(4))
    assert zeros.range()[1] < 1e-6


def test_a_histogram_grows():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=5000) * k for k in (1, 3, 2)]
    observer = Q.Histogram("layer", search="percentile", percentile=90)
    for part in parts:
        observer.update(part)
    assert observer.counts.sum() == pytest.approx(15000)
    want = np.percentile(np.concatenate(parts), [5, 95])
    np.testing.assert_allclose(observer.range(), want, atol=0.03)


# Training.


@pytest.mark.parametrize("preset", ["min_max", "ema", "lsq", "tqt"])
def test_training(preset):
    """A step moves the loss down, traced as eagerly, and statistics and ranges with it; integers follow."""
    x, losses = images(), {}
    for traced in (False, True):
        q = Q.prepare_qat(net(), preset, example=x)
        optimizer = optim.SGD(q.parameters(), lr=0.02)
        manager = wf.GradManager().attach(list(q.parameters()))

        def step(x, q=q, optimizer=optimizer, manager=manager):
            with manager:
                loss = F.mean((q(x) - 1.0) ** 2)
                manager.backward(loss)
            optimizer.step()
            optimizer.clear_grad()
            return loss

        run = wf.trace(step) if traced else step
        before = q.module.norm.running_mean.numpy().copy()
        losses[traced] = [run(x * 1.5).item() for _ in range(4)]
        assert losses[traced][-1] < losses[traced][0]
        assert np.abs(q.module.norm.running_mean.numpy() - before).max() > 0
        if traced:
            assert len(run.programs) == 1
        moved = q.activations["stem.input"]
        if preset in ("min_max", "ema"):
            assert moved.high.item() > F.max(x).item()
        else:
            assert moved.step.grad is None or moved.step.grad.item() == 0
            assert len(list(q.parameters())) == len(list(q.module.parameters())) + 6
        q.eval()
        assert distance(Q.convert(q)(x), q(x)) < ALIKE
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-3)


def test_batch_norm_is_part_of_the_weight():
    """What is rounded is the weight times the factor; without rounding nothing changes, in both modes."""
    x, module = images(), net()
    want = {}
    for training in (True, False):
        module.train(training)
        want[training] = copy.deepcopy(module)(x)
    q = Q.prepare_qat(module, example=x)
    for quantizer in (*q.weights.values(), *q.activations.values()):
        quantizer.enabled = False
    for training in (False, True):
        q.train(training)
        assert distance(q(x), want[training]) < 1e-5


# Calibration and conversion.


@pytest.mark.parametrize("method", ["min_max", "ema", "percentile", "l2"])
def test_calibration(method):
    x, module = images(64), net().eval()
    want = module(x)
    simulated = Q.calibrate(module, [x[:32], x[32:]], method=method)
    assert distance(simulated(x), want) < (0.3 if method == "ema" else 0.08)
    integers = Q.convert(simulated)
    traced = wf.trace(integers)
    traced(x)
    assert len(traced.programs) == 1  # of the first call already
    assert distance(integers(x), simulated(x)) < ALIKE
    assert distance(traced(x), integers(x)) < ALIKE
    steps = traced.programs[0].plan.info.steps
    for cls, count in ((IntegerConv2d, 2), (IntegerLinear, 1)):
        assert sum(cls.__name__ in text for text in steps) == count
    assert not any("Conv2d(" in text.replace("IntegerConv2d(", "") for text in steps)
    assert integers.size_bytes() < 0.3 * sum(p.size * 4 for p in module.parameters())


@pytest.mark.parametrize("symmetric", [True, False])
def test_zero_points_and_padding(symmetric):
    x, module = images() + 0.5, net().eval()
    simulated = Q.calibrate(module, [x], qconfig=Q.QConfig(symmetric=symmetric))
    integers = Q.convert(simulated)
    assert (integers.steps["stem.input"].padding != 0) == (not symmetric)
    assert distance(integers(x), simulated(x)) < ALIKE
    assert distance(simulated(x), module(x)) < 0.08


def test_products_of_activations():
    wf.random.seed(0)
    module, x = Attend().eval(), wf.random.normal(shape=(2, 5, 8))
    simulated = Q.calibrate(module, [x])
    integers = Q.convert(simulated)
    assert sorted(integers.stored) == ["k", "matmul", "matmul#1", "q"]
    assert distance(integers(x), simulated(x)) < ALIKE
    assert distance(simulated(x), module(x)) < 0.05


def test_weights_alone():
    wf.random.seed(0)
    module = M.Sequential(M.Linear(64, 32), M.GELU(), M.Linear(32, 5, bias=False)).eval()
    for config, bytes_each in ((Q.presets["int4_weight"], 0.5), (Q.QConfig(activation_bits=None), 1)):
        simulated = Q.calibrate(module, [wf.ones((3, 64))], qconfig=config)
        integers = Q.convert(simulated)
        for rows in (1, 7):
            x = wf.random.normal(shape=(rows, 64))
            assert distance(integers(x), simulated(x)) < ALIKE
            assert distance(integers(x), module(x)) < 0.3
        assert integers.stored["0"].weight.size == 64 * 32 * bytes_each


def test_steps_of_rows():
    """Each row of a linear layer's input has a step of its own: no other row changes its result."""
    wf.random.seed(0)
    module = M.Sequential(M.Linear(64, 32), M.GELU(), M.Linear(32, 5, bias=False)).eval()
    x = wf.random.normal(shape=(2, 3, 64)) * wf.tensor([1.0, 100.0, 0.0]).reshape(3, 1)
    simulated = Q.calibrate(module, [x], qconfig="dynamic")
    integers = Q.convert(simulated)
    traced = wf.trace(integers)
    assert not simulated.activations
    assert not integers.steps
    for row in range(3):
        assert distance(simulated(x)[:, row], module(x)[:, row] + 1e-6) < 0.02
    assert distance(integers(x), simulated(x)) < ALIKE
    np.testing.assert_array_equal(integers(x[:, :1]).numpy(), integers(x)[:, :1].numpy())
    assert distance(traced(x), integers(x)) < ALIKE
    assert sum("IntegerLinear" in step for step in traced.programs[0].plan.info.steps) == 2
    assert [(r.weight, r.activation) for r in Q.report(integers).rows] == [("int8", "int8")] * 2
    assert "each row" in Q.report(integers).rows[0].reason
    assert wf.grad(lambda x: simulated(x).sum())(x).shape == x.shape
    convolution = Q.calibrate(net().eval(), [images()], qconfig="dynamic")
    assert "linear layers only" in convolution.reasons["stem"]
    with pytest.raises(ValueError, match="dynamic=True is for activation_bits=8"):
        Q.QConfig(dynamic=True, estimator="learned_step")


@pytest.mark.parametrize("config", ["dynamic", "int4_weight"])
@pytest.mark.parametrize("cls", [M.LSTM, M.GRU, M.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(cls, bidirectional, config):
    """Weights, inputs and states are bytes; without rounding they are the layers themselves."""
    wf.random.seed(0)
    layers, n = 2, 3
    module = cls(16, 8, num_layers=layers, bidirectional=bidirectional).eval()
    x, h = wf.random.normal(shape=(5, n, 16)), wf.random.normal(shape=(layers * (1 + bidirectional), n, 8))
    args = (x, (h, h * 0.5) if cls is M.LSTM else h)
    types, config = ("int8", "int8"), Q.presets[config]
    if not config.dynamic:
        types, config = ("int4", "float32"), config.replaced(group_size=8)
    simulated = Q.calibrate(module, [args], qconfig=config)
    integers = Q.convert(simulated)
    assert [(r.weight, r.activation) for r in Q.report(integers).rows] == [types]
    assert [(r.weight, r.activation) for r in Q.report(simulated).rows] == [types]
    leaves = [wf.tree_leaves(f(*args)) for f in (module, simulated, integers, wf.trace(integers))]
    for want, rounded, whole, traced in zip(*leaves, strict=True):
        assert 0 < distance(rounded, want) < (0.05 if config.dynamic else 0.3)
        assert distance(whole, rounded) < ALIKE
        assert distance(traced, whole) < ALIKE
    for a, b in zip(wf.tree_leaves(simulated.round(False)(*args)), leaves[0], strict=True):
        assert distance(a, b) < 1e-5
    weights = sum(p.size for p in module.parameters() if p.ndim == 2)
    biases = sum(p.size for p in module.parameters() if p.ndim == 1)
    assert integers.size_bytes() <= weights + 8 * biases  # 4 bits and a step for 8 of them are a byte each


class Joined(M.Module):
    """A residual whose sum is joined with another branch, and a product of that."""

    def __init__(self):
        self.a, self.b, self.c = (M.Conv2d(n, m, 1) for n, m in ((4, 8), (8, 8), (16, 3)))

    def forward(self, x):
        y = F.relu6(self.a(x))
        return self.c(F.concat([F.relu(self.b(y) + y), y], axis=1))


@pytest.mark.parametrize("symmetric", [True, False])
def test_sums_and_concatenations_of_bytes(symmetric):
    """A residual is added as bytes, and parts are rounded where they are made: no loop makes floats of bytes."""
    wf.random.seed(0)
    module, x = Joined().eval(), wf.random.normal(shape=(2, 4, 5, 5))
    simulated = Q.calibrate(module, [x], qconfig=Q.QConfig(symmetric=symmetric))
    integers = Q.convert(simulated)
    traced = wf.trace(integers)
    assert distance(integers(x), simulated(x)) < ALIKE
    assert distance(traced(x), integers(x)) < ALIKE
    steps = traced.programs[0].plan.info.steps
    assert sum("IntegerConv2d" in step for step in steps) == 3
    assert [step for step in steps if step.startswith("loop DequantizeElements(); Add")] == []
    assert not any(step.startswith("loop") and "Add()" in step for step in steps), steps


class Halving(M.Module):
    """A sum of two convolutions, as in blocks that halve the image."""

    def __init__(self):
        self.a, self.b, self.c = (
            M.Conv2d(4, 8, 1, stride=2),
            M.Conv2d(4, 8, 3, 2, padding=1),
            M.Conv2d(8, 3, 1),
        )

    def forward(self, x):
        return self.c(F.relu(self.b(x) + self.a(x)))


@pytest.mark.parametrize("symmetric", [True, False])
def test_both_operands_of_a_sum_are_bytes(symmetric):
    """Of two convolutions that are added the first one's result is rounded; no step divides, or makes floats."""
    wf.random.seed(0)
    module, x = Halving().eval(), wf.random.normal(shape=(2, 4, 8, 8))
    simulated = Q.calibrate(module, [x], qconfig=Q.QConfig(symmetric=symmetric))
    (name,) = simulated.addends.values()
    integers = Q.convert(simulated)
    assert name in integers.steps
    assert distance(simulated(x), module(x)) < 0.05
    assert distance(integers(x), simulated(x)) < ALIKE
    traced = wf.trace(integers)
    assert distance(traced(x), integers(x)) < ALIKE
    steps = traced.programs[0].plan.info.steps
    assert sum("IntegerConv2d" in step for step in steps) == 3
    assert not any(step.startswith("loop") and "Add()" in step for step in steps), steps
    excluded = Q.calibrate(module, [x], overrides={simulated.names[0]: None})
    assert not excluded.addends


def test_seven_bits():
    """What is quick without instructions for bytes: weights from -63 to 63, and uint8."""
    x, module = images(), net().eval()
    simulated = Q.calibrate(module, [x], qconfig="seven_bits")
    integers = Q.convert(simulated)
    assert distance(simulated(x), module(x)) < 0.05
    assert distance(integers(x), simulated(x)) < ALIKE
    rows = Q.report(integers).rows
    assert [(row.weight, row.activation) for row in rows] == [("int7", "uint8")] * 3
    assert max(F.max(F.abs(s.weight.astype("int32"))).item() for s in integers.stored.values()) == 63
    auto = Q.calibrate(module, [x], qconfig="auto")
    assert auto.config == Q.presets["min_max" if wf._core.onednn_adds_bytes() else "seven_bits"]


TRANSPOSED = [
    (M.ConvTranspose2d, (3, 4, 2), {"stride": 2}, (2, 3, 5, 4)),
    (M.ConvTranspose2d, (3, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (2, 3, 5, 4)),
    (M.ConvTranspose2d, (4, 6, (4, 3)), {"stride": (3, 1), "padding": (0, 2), "groups": 2}, (1, 4, 4, 6)),
    (M.ConvTranspose1d, (2, 3, 5), {"stride": 3, "output_padding": 2, "bias": False}, (2, 2, 7)),
    (M.ConvTranspose3d, (2, 2, 2), {"stride": (1, 2, 2)}, (1, 2, 3, 2, 4)),
]


@pytest.mark.parametrize("config", [Q.QConfig(), Q.QConfig(symmetric=False), Q.QConfig(per_channel=False)])
@pytest.mark.parametrize(("cls", "sizes", "attributes", "shape"), TRANSPOSED)
def test_transposed_convolutions(cls, sizes, attributes, shape, config):
    """The interleaved results of plain convolutions of bytes are those of the rounded floats."""
    wf.random.seed(0)
    module, x = cls(*sizes, **attributes).eval(), wf.random.normal(shape=shape) + 0.5
    simulated = Q.calibrate(module, [x], qconfig=config, correct_bias=True)
    integers = Q.convert(simulated)
    assert distance(simulated(x), module(x)) < 0.05
    assert distance(integers(x), simulated(x)) < 1e-5
    traced = wf.trace(integers)
    assert distance(traced(x), integers(x)) < 1e-5
    assert any("IntegerConv" in step for step in traced.programs[0].plan.info.steps)
    assert [row.weight for row in Q.report(integers).rows] == ["int8"]


def test_dilated_transposed_convolutions_stay_in_floats():
    module = M.ConvTranspose2d(2, 2, 2, dilation=2).eval()
    simulated = Q.calibrate(module, [wf.ones((1, 2, 4, 4))])
    assert [row.reason for row in Q.report(simulated).rows] == [
        "a transposed convolution with dilation has no integer kernel"
    ]


def test_saved_and_loaded(tmp_path):
    x, module = images(), net().eval()
    first = Q.convert(Q.calibrate(module, [x]))
    second = Q.convert(Q.calibrate(net(7).eval(), [x]))
    wf.save(tmp_path / "net.safetensors", first.state_dict())
    assert distance(second(x), first(x)) > 0.1
    second.load_state_dict(wf.load(tmp_path / "net.safetensors"))
    np.testing.assert_array_equal(second(x).numpy(), first(x).numpy())


def test_bias_correction():
    """The mean error of each channel, which rounding of the weight adds, is gone."""
    x, module = images(64), M.Sequential(M.Conv2d(1, 8, 3))
    module = module.eval()
    x = F.abs(x)
    plain, corrected = (Q.calibrate(module, [x], correct_bias=flag) for flag in (False, True))
    for quantizer in (*plain.activations.values(), *corrected.activations.values()):
        quantizer.enabled = False
    errors = [F.max(F.abs(F.mean(q(x) - module(x), axis=(0, 2, 3)))).item() for q in (plain, corrected)]
    assert errors[1] < 0.05 * errors[0]
    plain, corrected = (Q.calibrate(module, [x], correct_bias=flag) for flag in (False, True))
    assert distance(Q.convert(corrected)(x), corrected(x)) < ALIKE


def test_equalization():
    """Ranges of channels become alike, the function stays; rounding with one step hurts less."""
    wf.random.seed(0)
    module = M.Sequential(M.Conv2d(1, 8, 3), M.BatchNorm2d(8), M.ReLU(), M.Conv2d(8, 4, 3)).eval()
    with wf.no_grad():
        factors = wf.tensor([100.0, 10.0, 1.0, 0.1, 0.01, 1.0, 5.0, 30.0])
        module[1].weight[...] = factors
        module[3].weight[...] = module[3].weight / factors.reshape(1, -1, 1, 1)
    x, config = images(), Q.QConfig(per_channel=False)
    want = module(x)

    def rounded_weights():
        simulated = Q.calibrate(module, [x], qconfig=config)
        for quantizer in simulated.activations.values():
            quantizer.enabled = False
        return simulated

    before = distance(rounded_weights()(x), want)
    assert Q.equalize(module, x) == [("0", "3")]
    assert distance(module(x), want) < 1e-5
    assert distance(rounded_weights()(x), want) < 0.5 * before


def test_sensitivity():
    x, module = images(), net().eval()
    want = module(x)
    simulated = Q.calibrate(module, [x], overrides={"block": "int4_weight"})
    assert "block" in simulated.reasons  # a convolution has no kernel for weights alone
    drops = Q.sensitivity(simulated, lambda f: -distance(f(x), want))
    assert list(drops) == sorted(drops, key=lambda name: -drops[name])
    assert sorted(drops) == ["head", "stem"]
    assert all(drop > 0 for drop in drops.values())
    assert all(q.enabled for q in simulated.weights.values())
    with pytest.raises(ValueError, match=r"evaluate gives nan with '(stem|head)' alone quantized"):
        Q.sensitivity(
            simulated, lambda f: float("nan") if any(q.enabled for q in f.weights.values()) else 1.0
        )
    assert all(q.enabled for q in simulated.weights.values())


def test_sensitivity_is_a_table_and_a_plot():
    drops = Q.Sensitivity({"a<b": 0.75, "stem": 0.25, "head": -0.25, "same": 0.0})
    assert str(drops).splitlines() == [
        "layer  drop",
        "a<b    0.75",
        "stem   0.25",
        "head   -0.25",
        "same   0",
    ]
    root = ElementTree.fromstring(drops.to_svg())
    assert drops._repr_svg_() == drops.to_svg()
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[2:] == ["a<b", "0.75", "stem", "0.25", "head", "-0.25", "same", "0"]
    bars = [e.attrib for e in root.iter("{http://www.w3.org/2000/svg}rect")]
    widths = [float(bar["width"]) for bar in bars]
    np.testing.assert_allclose(np.array(widths) / sum(widths), [0.6, 0.2, 0.2, 0.0], atol=1e-3)
    ends = [(float(bar["x"]), float(bar["x"]) + width) for bar, width in zip(bars, widths, strict=True)]
    zero = ends[0][0]
    assert (ends[1][0], ends[2][1], ends[3][0]) == (zero, pytest.approx(zero), zero)
    assert 0 < ends[2][0] < zero < ends[0][1] < float(root.get("width"))
    assert len({bar["y"] for bar in bars}) == 4
    assert ElementTree.fromstring(Q.Sensitivity().to_svg()).tag.endswith("svg")


def test_exclusion():
    """Layers stay in floats until the bound holds, in the rounded network and in the integer one."""
    x, module = images(), net().eval()
    want = module(x)
    simulated = Q.calibrate(module, [x])
    measure = lambda f: -distance(f(x), want)  # noqa: E731
    bound = -measure(simulated) * 0.7
    excluded = Q.exclude(simulated, measure, bound)
    assert 0 < len(excluded) < 3
    assert -measure(simulated) <= bound
    integers = Q.convert(simulated)
    assert distance(integers(x), simulated(x)) < ALIKE
    assert sorted([*excluded, *integers.stored]) == ["block", "head", "stem"]
    for made in (simulated, integers):
        assert [row.layer for row in Q.report(made).rows if "excluded" in row.reason] == [
            name for name in ("stem", "block", "head") if name in excluded
        ]
    with pytest.raises(ValueError, match="most must be at least 0"):
        Q.exclude(simulated, measure, -1.0)


class Tied(M.Module):
    """A layer that is used twice, and a product with a transposed parameter."""

    def __init__(self):
        self.a, self.w = M.Linear(8, 8), M.Parameter(wf.random.normal(shape=(8, 8)))

    def forward(self, x):
        return F.relu(self.a(F.relu(self.a(x)))) @ self.w.T


class Grouped(M.Module):
    """Groups, dilation, named padding, normalization behind a linear layer, a dictionary of results."""

    def __init__(self):
        self.c1 = M.Conv1d(4, 8, 3, groups=2, padding=2, dilation=2)
        self.c2 = M.Conv1d(8, 8, 3, groups=8, stride=2, padding="valid")
        self.dense, self.norm = M.Linear(8, 8, bias=False), M.BatchNorm1d(8, affine=False)

    def forward(self, x):
        h = F.mean(F.relu(self.c2(F.silu(self.c1(x)))), axis=-1)
        return {"y": self.norm(self.dense(h)), "h": h}


class Branches(M.Module):
    """Two readers of a convolution before its normalization, a concatenation, a transposed convolution."""

    def __init__(self):
        self.a, self.b = M.Conv2d(3, 4, 3, padding=1), M.Conv2d(3, 4, 1)
        self.norm, self.c, self.up = M.BatchNorm2d(4), M.Conv2d(8, 4, 3), M.ConvTranspose2d(4, 3, 2)

    def forward(self, x):
        y = self.a(x)
        return self.up(self.c(F.concat([F.relu(self.norm(y)), F.sigmoid(self.b(x))], axis=1))) + F.mean(y)


class Sliced(M.Module):
    """One rounding for several readers of parts, two arguments, volumes."""

    def __init__(self):
        self.a, self.b, self.c = M.Linear(6, 6), M.Linear(3, 3), M.Conv3d(2, 3, 2)

    def forward(self, x, v):
        y = self.a(x)
        return self.b(y[..., :3]) + self.b(y[..., 3:]) + F.mean(self.c(v), axis=(2, 3, 4)), 3


@pytest.mark.parametrize("config", [Q.QConfig(), Q.QConfig(symmetric=False), Q.QConfig(per_channel=False)])
@pytest.mark.parametrize(
    ("cls", "shapes"),
    [
        (Tied, [(3, 8)]),
        (Grouped, [(2, 4, 12)]),
        (Branches, [(2, 3, 6, 6)]),
        (Sliced, [(2, 6), (2, 2, 4, 4, 4)]),
    ],
)
def test_however_a_network_is_written(cls, shapes, config):
    wf.random.seed(0)
    module = cls().eval()
    args = tuple(wf.random.normal(shape=shape) for shape in shapes)
    first = lambda f: wf.tree_leaves(f(*args))[0]  # noqa: E731
    simulated = Q.calibrate(module, [args], qconfig=config)
    integers = Q.convert(simulated)
    assert distance(first(simulated), first(module)) < 0.05
    assert distance(first(integers), first(simulated)) < ALIKE
    assert distance(first(wf.trace(integers)), first(integers)) < ALIKE
    assert [row.layer for row in Q.report(integers).rows if row.weight != "int8"] == []


def test_switches():
    """Observers and rounding are switched off and on; what is excluded stays in floats."""
    x, module = images(), net()
    q = Q.prepare_qat(module, "ema", example=x, overrides={"head": None}).train()
    high = q.activations["block.input"].high
    before = high.item()
    q.observe(False)(x * 3)
    assert high.item() == before
    q.observe()(x * 3)
    assert high.item() != before
    q.eval()
    want = module.eval()(x)
    assert distance(q.round(False)(x), want) < 1e-5
    assert distance(q.round()(x), want) > 1e-4
    assert (q.weights["stem"].enabled, list(q.weights)) == (True, ["stem", "block"])
    assert not Q.prepare_qat(net(), "lsq", example=x).observe().activations["stem.input"].observing


def test_traced_modules():
    x, module = images(), net().eval()
    first, second = Q.calibrate(wf.trace(module), [x]), Q.calibrate(module, [x])
    np.testing.assert_array_equal(first(x).numpy(), second(x).numpy())


def test_report():
    x, module = images(), net().eval()
    simulated = Q.calibrate(module, [x], overrides={"he*": None})
    for made in (simulated, Q.convert(simulated)):
        rows = {row.layer: row for row in Q.report(made).rows}
        assert list(rows) == ["stem", "block", "head"]
        assert (rows["stem"].weight, rows["stem"].activation) == ("int8", "int8")
        assert (rows["block"].weight, rows["block"].activation) == ("int8", "uint8")
        assert (rows["head"].weight, rows["head"].reason) == ("float32", "excluded by overrides")
    between = Q.report(simulated).between
    assert [(row.layer, row.activation) for row in between] == [
        ("relu x2", "float32"),
        ("max_pool2d", "uint8"),
        ("add", "float32"),
    ]
    assert "add" in str(Q.report(Q.convert(simulated)))
    wf.random.seed(0)
    attend = Q.report(Q.convert(Q.calibrate(Attend().eval(), [wf.random.normal(shape=(2, 5, 8))])))
    assert ("softmax", "float32", "no integer kernel") in [
        (r.layer, r.activation, r.reason) for r in attend.between
    ]
    lstm = Q.calibrate(M.LSTM(4, 4), [wf.ones((3, 2, 4))])
    assert "dynamic=True, or weights alone" in str(Q.report(lstm))


# Wrong use.


def test_wrong_use():
    x, module = images(), net()
    with pytest.raises(ValueError, match="batches is empty"):
        Q.calibrate(module, [])
    with pytest.raises(ValueError, match="method must be one of min_max"):
        Q.calibrate(module, [x], method="best")
    with pytest.raises(
        TypeError, match=r"calibrate: takes a Module or wf\.trace of one, got Trace of <function"
    ):
        Q.calibrate(wf.trace(lambda x: x), [x])
    with pytest.raises(ValueError, match="no preset 'int2'; there are auto, min_max"):
        Q.prepare_qat(module, "int2")
    with pytest.raises(ValueError, match=r"'conv\*' match no layer; there are: stem, block, head"):
        Q.calibrate(module, [x], overrides={"conv*": None})
    with pytest.raises(ValueError, match="begin with example="):
        Q.prepare_qat(module, "lsq")
    with pytest.raises(ValueError, match=r"stem\.input: .* NaN or infinite"):
        Q.calibrate(module, [x * float("nan")])
    with pytest.raises(ValueError, match=r"its observer has seen no data.*overrides=\{'layer': None\}"):
        Q.MinMax("layer").range()
    with pytest.raises(TypeError, match=r"convert\(calibrate\(module, batches\)\)"):
        Q.convert(module)
    with pytest.raises(ValueError, match="was never called"):
        Q.convert(Q.prepare_qat(module))
    with pytest.raises(RuntimeError, match="give example= to prepare_qat"):
        wf.trace(Q.prepare_qat(module))(x)
    with pytest.raises(ValueError, match="weights of 4 bits are for"):
        Q.QConfig(weight_bits=4)


def test_without_an_example():
    x = images()
    q = Q.prepare_qat(net(), "ema")
    assert q(x).shape == (6, 10)
    assert q.training
    assert q.module.training
    assert sorted(q.activations) == ["block.input", "head.input", "stem.input"]
