"""summary(): counts against counts by hand, and against published ones."""

import csv

import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.base.dtype import float32
from weft.models import GPT, GPTConfig, resnet18, resnet50
from weft.ops import registry
from weft.ops.types import TensorType
from weft.tools import flops


def count(name, *shapes, **attributes):
    types = [TensorType(shape, float32) for shape in shapes]
    op = registry.get(name)(**attributes)
    made = op.infer(*types)
    missing = [None] * (len(op.inputs) - len(types))
    return flops.of_operator(op, [*types, *missing], list(made) if isinstance(made, tuple) else [made])


@pytest.mark.parametrize(
    ("found", "multiply_adds"),
    [
        (count("matmul", (2, 3, 4), (4, 5)), 2 * 3 * 4 * 5),
        (count("matmul", (7,), (7,)), 7),
        (count("linear", (6, 4), (3, 4)), 6 * 4 * 3),
        (count("conv2d", (1, 3, 8, 8), (16, 3, 3, 3), padding=1), 8 * 8 * 16 * 27),
        (count("conv2d", (2, 8, 8, 8), (8, 1, 3, 3), groups=8), 2 * 8 * 6 * 6 * 9),
        (count("conv1d", (1, 2, 10), (4, 2, 3), stride=2), 4 * 4 * 6),
        (count("conv_transpose2d", (1, 4, 5, 5), (4, 2, 3, 3)), 4 * 25 * 2 * 9),
        (count("outer", (3,), (5,)), 15),
        (count("vecdot", (3, 5), (5,)), 15),
        (count("exp", (3, 5)), 0),
    ],
)
def test_products_by_hand(found, multiply_adds):
    assert found.multiply_adds == multiply_adds
    assert found.flops == 2 * found.multiply_adds + found.others


def test_others_by_hand():
    assert count("exp", (3, 5)).others == 15
    assert count("add", (3, 5), (5,)).others == 15
    assert count("sum", (4, 6), axis=1).others == 24
    assert count("reshape", (4, 6), shape=(24,)).others == 0
    assert count("max_pool2d", (1, 2, 8, 8), kernel_size=2).others == 2 * 16 * 4


def test_attention_and_lstm_by_hand():
    t = [TensorType(s, float32) for s in ((2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 8))]
    op = registry.get("scaled_dot_product_attention")()
    found = flops.of_operator(op, [*t, None], [TensorType((2, 4, 10, 8), float32)])
    assert found.multiply_adds == 2 * 4 * 10 * 12 * (16 + 8)
    lstm = M.LSTM(5, 7)
    x = wf.ones((3, 2, 5))
    assert wf.tools.summary(lstm, x).total.multiply_adds == 3 * 2 * (28 * 5 + 28 * 7)


class Tiny(M.Module):
    def __init__(self):
        self.block = M.Sequential(M.Conv2d(3, 8, 3, padding=1), M.ReLU())
        self.head = M.Linear(8, 5)
        self.unused = M.Linear(2, 2)

    def forward(self, x):
        return self.head(F.mean(self.block(x), axis=(2, 3)))


def test_layers_and_totals(tmp_path):
    found = wf.tools.summary(Tiny(), wf.ones((2, 3, 6, 6)), time=True)
    assert [layer.path for layer in found.layers] == ["", "block", "block.0", "block.1", "head"]
    assert found["block.0"].multiply_adds == 2 * 8 * 36 * 27
    assert found["block.0"].parameters == 8 * 27 + 8
    assert found["block"].multiply_adds == found["block.0"].multiply_adds
    assert found["head"].multiply_adds == 2 * 8 * 5
    assert found["block.1"].activations == 2 * 8 * 36 * 4
    assert found.total.output == ((2, 5),)
    assert found.total.multiply_adds == found["block"].multiply_adds + found["head"].multiply_adds
    assert found.total.parameters == 8 * 27 + 8 + 45 + 6
    assert found.total.share == pytest.approx(1)
    assert sum(found[p].share for p in ("block", "head")) <= 1 + 1e-9
    assert found["block"].share == pytest.approx(found["block.0"].share + found["block.1"].share)
    assert "[2,8,6,6]" in str(found)
    rows = list(csv.DictReader(found.to_csv(tmp_path / "s.csv").splitlines()))
    assert (tmp_path / "s.csv").exists()
    assert [int(row["flops"]) for row in rows] == [layer.flops for layer in found.layers]
    assert found.to_dict()["head"]["calls"] == 1
    with pytest.raises(KeyError, match=r"block\.0"):
        found["nothing"]
    with pytest.raises(TypeError, match="takes a Module"):
        wf.tools.summary(F.relu, wf.ones(3))


def test_a_module_that_runs_twice_counts_twice():
    layer = M.Linear(4, 4)
    found = wf.tools.summary(M.Sequential(layer, M.ReLU(), layer), wf.ones((1, 4)))
    assert (found["0"].calls, found["0"].multiply_adds, found.total.multiply_adds) == (2, 32, 32)
    assert found.total.parameters == 20


def test_resnets():
    """4.09 and 1.81 GMAC for 224 x 224: He et al. 2016 with the stride in the 3 x 3 convolution, as all count them."""
    x = wf.ones((1, 3, 224, 224))
    found = wf.tools.summary(resnet50().eval(), x).total
    assert round(found.multiply_adds * 1e-9, 2) == 4.09
    assert found.parameters == 25_557_032
    found = wf.tools.summary(resnet18().eval(), x).total
    assert round(found.multiply_adds * 1e-9, 2) == 1.81
    assert found.parameters == 11_689_512


def mobile_net():
    """MobileNetV2: Sandler et al. 2018, table 2."""

    def layer(i, o, size=1, stride=1, groups=1, active=True):
        conv = M.Conv2d(i, o, size, stride=stride, padding=size // 2, groups=groups, bias=False)
        return [conv, M.BatchNorm2d(o), *([M.ReLU6()] if active else [])]

    class Block(M.Module):
        def __init__(self, i, o, stride, widen):
            wide = i * widen
            first = layer(i, wide) if widen > 1 else []
            self.body = M.Sequential(
                *first, *layer(wide, wide, 3, stride, wide), *layer(wide, o, active=False)
            )
            self.adds = stride == 1 and i == o

        def forward(self, x):
            return x + self.body(x) if self.adds else self.body(x)

    parts, i = layer(3, 32, 3, 2), 32
    for widen, o, count_, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for k in range(count_):
            parts.append(Block(i, o, stride if k == 0 else 1, widen))
            i = o
    parts += layer(320, 1280)

    class Net(M.Module):
        def __init__(self):
            self.features, self.head = M.Sequential(*parts), M.Linear(1280, 1000)

        def forward(self, x):
            return self.head(F.mean(self.features(x), axis=(2, 3)))

    return Net()


def test_mobile_net():
    found = wf.tools.summary(mobile_net().eval(), wf.ones((1, 3, 224, 224))).total
    assert round(found.multiply_adds * 1e-9, 2) == 0.30
    assert found.parameters == 3_504_872


class VisionTransformer(M.Module):
    """ViT-Ti/16: Touvron et al. 2021, table 1: 192 wide, 12 layers, 3 heads."""

    class Block(M.Module):
        def __init__(self, width, heads):
            self.heads = heads
            self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
            self.qkv, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
            self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

        def forward(self, x):
            n, t, c = x.shape
            qkv = F.reshape(self.qkv(self.norm1(x)), (n, t, 3, self.heads, c // self.heads))
            q, k, v = (F.permute_dims(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(F.reshape(F.permute_dims(y, (0, 2, 1, 3)), (n, t, c)))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    def __init__(self, width=192, layers=12, heads=3, patches=196):
        self.patch = M.Conv2d(3, width, 16, stride=16)
        self.token = M.Parameter(wf.zeros((1, 1, width)))
        self.place = M.Parameter(wf.zeros((1, patches + 1, width)))
        self.blocks = [self.Block(width, heads) for _ in range(layers)]
        self.norm, self.head = M.LayerNorm(width), M.Linear(width, 1000)

    def forward(self, x):
        y = F.permute_dims(F.flatten(self.patch(x), 2), (0, 2, 1))
        y = F.concat([F.broadcast_to(self.token, (x.shape[0], 1, y.shape[2])), y], axis=1) + self.place
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)[:, 0])


def test_vision_transformer():
    """By hand: patches, 12 blocks of 12 c^2 t + 2 t^2 c, head. 1.26 GMAC, and 5.72 million parameters."""
    c, t = 192, 197
    hand = 196 * c * 768 + 12 * (12 * c * c * t + 2 * t * t * c) + c * 1000
    found = wf.tools.summary(VisionTransformer().eval(), wf.ones((1, 3, 224, 224))).total
    assert found.multiply_adds == hand
    assert found.parameters == 5_717_416


def test_a_language_model_by_hand():
    config = GPTConfig()
    net = GPT(config)
    tokens = wf.zeros((2, 8), dtype="int64")
    found = wf.tools.summary(net, tokens)
    weights = sum(p.size for name, p in net.named_parameters() if p.ndim == 2)
    assert found.total.parameters == sum(p.size for p in net.parameters())
    assert 0 < found.total.multiply_adds <= 16 * weights + 100 * 16 * 8 * config.width * config.layers


def test_a_profile_that_begins_or_ends_meanwhile_takes_nothing_away():
    """Both wrap the calls of modules; what remains in the end is the class's own method."""
    own = vars(M.Module)["__call__"]
    profile = wf.tools.profile(memory=False)

    class Observed(M.Module):
        def forward(self, x):
            (profile.__exit__ if profile in begun else profile.__enter__)(*([None] * 3 if begun else ()))
            begun.append(profile)
            return x * 2

    begun = []
    wf.tools.summary(Observed(), wf.ones(3))
    assert vars(M.Module)["__call__"] is not own  # the profile's
    wf.tools.summary(Observed(), wf.ones(3))
    assert vars(M.Module)["__call__"] is own

    def inside():
        with wf.tools.profile(memory=False):
            wf.tools.summary(M.ReLU(), wf.ones(3))

    inside()
    assert vars(M.Module)["__call__"] is own
