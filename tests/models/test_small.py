"""Every model at a small size: what it returns, eager and traced; its training; its state; caches; sizes of others."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.optimizer as optim
from weft import models

from .small import BERT, LLAMA, SMALL


@pytest.fixture(autouse=True)
def seeded():
    before = wf.random.get_state()
    wf.random.seed(1)
    yield
    wf.random.set_state(before)


def example(case):
    rng = np.random.default_rng(0)
    if case.is_text:
        return wf.tensor(rng.integers(0, 50, case.inputs))
    return wf.tensor(rng.standard_normal(case.inputs, dtype="float32"))


def first(y):
    return y[0] if isinstance(y, tuple) else y


@pytest.mark.daily(8)
@pytest.mark.parametrize("name", SMALL)
def test_traced_as_eager(name):
    case = SMALL[name]
    net = case.build().eval()
    x = example(case)
    y = first(net(x))
    assert y.shape == case.outputs
    traced = wf.trace(lambda x: first(net(x)), strict=True)
    for _ in range(2):
        np.testing.assert_allclose(traced(x).numpy(), y.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.daily(8)
@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_is_trained(name):
    """All gradients are there and finite, and none of all parameters is left out."""
    case = SMALL[name]
    net = case.build()
    gm = wf.GradManager().attach(net.parameters())
    with gm:
        y = net(example(case))
        loss = sum(((part - 0.5) ** 2).mean() for part in (y if isinstance(y, tuple) else (y,)))
        gm.backward(loss)
    for key, p in net.named_parameters():
        assert p.grad is not None, key
        assert np.isfinite(p.grad.numpy()).all(), key


@pytest.mark.daily(8)
@pytest.mark.parametrize("name", SMALL)
def test_the_state_is_loaded_by_another(name):
    case = SMALL[name]
    net, other = case.build().eval(), case.build().eval()
    other.load_state_dict({key: x.numpy() for key, x in net.state_dict().items()})
    x = example(case)
    np.testing.assert_array_equal(first(other(x)).numpy(), first(net(x)).numpy())


@pytest.mark.daily(8)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama-3", "gpt2", "bert", "vit", "convnext", "swin"])
def test_other_types(name, dtype):
    case = SMALL[name]
    net = case.build().eval()
    x = example(case)
    y = first(net(x)).numpy()
    net.astype(dtype)
    narrow = first(net(x if case.is_text else x.astype(dtype)))
    assert str(narrow.dtype) == dtype
    tolerance = {"float64": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    np.testing.assert_allclose(narrow.astype("float32").numpy(), y, atol=tolerance * max(1, abs(y).max()))


@pytest.mark.parametrize("name", ["llama", "llama-3", "gpt2"])
def test_a_text_in_parts_gives_what_it_gives_whole(name):
    """One program for every length behind the first call; in batches; capacity for more."""
    net = SMALL[name].build().eval()
    tokens = wf.tensor(np.random.default_rng(0).integers(0, 50, (3, 9)))
    whole = net(tokens).numpy()
    caches = net.cache(3, 12)
    step = wf.trace(lambda tokens: net(tokens, caches))
    for _ in range(2):
        parts = [step(tokens[:, :4])] + [step(tokens[:, k : k + 1]) for k in range(4, 9)]
        np.testing.assert_allclose(F.concat(parts, axis=1).numpy(), whole, rtol=1e-4, atol=1e-5)
        assert caches[0].length.item() == 9
        for cache in caches:
            cache.reset()
    assert len(step.programs) == 2


def test_a_full_cache_raises():
    net = models.Llama(models.LlamaConfig(**LLAMA)).eval()
    caches = net.cache(1, 4)
    net(wf.zeros((1, 4), dtype="int64"), caches)
    with pytest.raises(IndexError):
        net(wf.zeros((1, 1), dtype="int64"), caches).numpy()


def test_padding_changes_nothing():
    net = models.Bert(models.BertConfig(**BERT)).eval()
    tokens = wf.tensor([[3, 1, 4]])
    padded = wf.tensor([[3, 1, 4, 0, 0]])
    y, pooled = net(padded, padded != 0)
    expected, expected_pooled = net(tokens)
    np.testing.assert_allclose(y[:, :3].numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pooled.numpy(), expected_pooled.numpy(), rtol=1e-4, atol=1e-5)


def test_tied_weights_load_under_both_names():
    net = SMALL["llama-3"].build()
    state = {key: x.numpy() + 1 for key, x in net.state_dict().items()}
    assert "lm_head.weight" not in state
    net.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})
    other = SMALL["llama-3"].build()
    other.load_state_dict({"lm_head.weight" if "embed" in key else key: x for key, x in state.items()})
    for key, x in net.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[key].numpy(), x.numpy(), err_msg=key)


def test_sizes_that_do_not_fit_are_refused():
    for make, text in (
        (
            lambda: models.LlamaConfig(hidden_size=10, num_attention_heads=3),
            "hidden_size=10 must be divisible",
        ),
        (lambda: models.LlamaConfig(num_attention_heads=4, num_key_value_heads=3), "num_key_value_heads=3"),
        (lambda: models.GPT2Config(n_embd=10, n_head=3), "n_embd=10 must be divisible by n_head=3"),
        (
            lambda: models.BertConfig(hidden_size=10, num_attention_heads=3),
            "hidden_size=10 must be divisible",
        ),
        (lambda: models.ViTConfig(image_size=10, patch_size=3), "image_size=10 must be divisible"),
        (lambda: models.SqueezeNet("2.0"), "version must be '1.0' or '1.1', got '2.0'"),
        (lambda: models.efficientnet_b(8), "size must be 0 to 7, got 8"),
        (lambda: models.Generator(size=24), "a power of two from 8 on, got 24"),
        (lambda: models.ShuffleNetV2((1,), (2, 3)), "needs 3 numbers of channels, got 2"),
    ):
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(wf.ShapeError, match="images are 16 x 16"):
        SMALL["vit"].build()(wf.zeros((1, 3, 16, 20)))


def test_translation_learns_to_copy():
    config = models.TranslationConfig(8, None, 16, 2, 1, 1, 32, dropout=0.0)
    net = models.TranslationTransformer(config)
    assert len({id(net.source.weight), id(net.target.weight), id(net.head.weight)}) == 1
    opt = optim.Adam(net.parameters(), lr=0.01)
    gm = wf.GradManager().attach(net.parameters())
    texts = wf.random.randint(1, 8, (16, 5))
    begun = F.concat([wf.zeros((16, 1), dtype="int64"), texts[:, :-1]], axis=1)

    @wf.trace(strict=True)
    def step():
        with gm:
            loss = F.cross_entropy(net(texts, begun).reshape(-1, 8), texts.reshape(-1))
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = [step().item() for _ in range(80)]
    assert losses[-1] < losses[0] / 4
    mask = wf.ones((16, 5)) > 0
    np.testing.assert_allclose(
        net(texts, begun, mask).numpy(), net(texts, begun).numpy(), rtol=1e-4, atol=1e-5
    )


def test_a_critic_with_its_penalty():
    """The gradient of the penalty is one of second order; it is that of differences."""
    critic = models.Critic(4, 3, 8)
    real, drawn = wf.random.normal(shape=(2, 3, 8, 8)), wf.random.normal(shape=(2, 3, 8, 8))
    critic.astype("float64")
    real, drawn = real.astype("float64"), drawn.astype("float64")
    weight = critic.layers[0].weight

    def penalty():
        wf.random.seed(3)
        return models.gradient_penalty(critic, real, drawn)

    gm = wf.GradManager().attach(critic.parameters())
    with gm:
        gm.backward(penalty())
    direction = np.random.default_rng(0).standard_normal(weight.shape)
    expected, values = (weight.grad.numpy() * direction).sum(), []
    before = weight.numpy().copy()
    for sign in (1, -1):
        weight[...] = before + sign * 1e-5 * direction
        values.append(penalty().item())
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(expected, rel=1e-4)


def test_inception():
    """Its least image; the second classifier's logits come in training alone."""
    net = models.InceptionV3(classes=3)
    x = wf.random.normal(shape=(1, 3, 75, 75))
    assert net.eval()(x).shape == (1, 3)
    assert net.AuxLogits is not None


def test_ssd_learns_an_object():
    """What multibox_target says of one box and its class is found again by detect()."""
    wf.random.seed(0)
    net = models.SSD(classes=3, width=4)
    x = wf.random.normal(shape=(1, 3, 300, 300))
    labels = wf.tensor([[[2.0, 0.2, 0.3, 0.6, 0.8]]])
    opt, gm = optim.Adam(net.parameters(), lr=3e-3), wf.GradManager().attach(net.parameters())
    losses = []
    for _ in range(30):
        with gm:
            scores, offsets, anchors = net(x)
            shares = F.swapaxes(scores, 1, 2)
            options = {"negative_ratio": 3.0, "variances": (0.1, 0.1, 0.2, 0.2)}
            goals, mask, classes = F.multibox_target(anchors[None], labels, shares.detach(), **options)
            of_classes = F.cross_entropy(shares, classes.astype("int64"), ignore_index=-1)
            apart = (offsets.reshape(1, -1) - goals) * mask
            loss = of_classes + (apart * apart).sum() / mask.sum()
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    best = net.eval().detect(x)[0, 0].numpy()
    assert best[0] == 2
    np.testing.assert_allclose(best[2:], [0.2, 0.3, 0.6, 0.8], atol=0.06)


# Numbers of parameters, as published with the definitions.
COUNTS = {
    "alexnet": (models.AlexNet, 61100840),
    "vgg16": (models.vgg16, 138357544),
    "vgg11 with norm": (lambda: models.vgg11(norm=True), 132868840),
    "inception_v3": (models.InceptionV3, 27161264),
    "resnet50": (models.resnet50, 25557032),
    "densenet121": (models.densenet121, 7978856),
    "densenet161": (models.densenet161, 28681000),
    "mobilenet_v1": (models.MobileNetV1, 4231976),
    "squeezenet1_0": (models.squeezenet1_0, 1248424),
    "squeezenet1_1": (models.squeezenet1_1, 1235496),
    "shufflenet_v2_x2_0": (models.shufflenet_v2_x2_0, 7393996),
    "efficientnet_b5": (lambda: models.efficientnet_b(5), 30389784),
    "convnext_tiny": (models.convnext_tiny, 28589128),
    "swin_t": (models.swin_t, 28288354),
    "unet": (lambda: models.UNet(3, 2), 31037698),
    "ssd300": (models.ssd300, 35641826),
    "vit": (models.ViT, 86567656),
    "bert": (models.Bert, 109482240),
    "gpt2": (models.GPT2, 124439808),
}


@pytest.mark.full
@pytest.mark.parametrize("name", COUNTS)
def test_number_of_parameters(name):
    make, count = COUNTS[name]
    assert sum(p.size for p in make().parameters()) == count
