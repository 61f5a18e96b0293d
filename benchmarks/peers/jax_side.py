"""JAX's side: whole steps under jit, images with channels last, states donated."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _protocol import Cases, Run, serve
from jax import lax

random = np.random.default_rng(0)
cases = Cases()

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, CONTEXT = 6, 512, 8, 2048, 8192, 256
HEAD = WIDTH // HEADS


def normal(*shape: int, scale: float = 1.0):
    return jnp.asarray(random.standard_normal(shape, dtype=np.float32) * np.float32(scale))


def integers(limit: int, *shape: int):
    return jnp.asarray(random.integers(0, limit, shape, dtype=np.int32))


def cast(tree, precision: str):
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    return jax.tree.map(lambda x: x.astype(dtype), tree)


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), labels[..., None], -1)
    return -picked.mean()


def linear(x, layer):
    weight, bias = layer
    return x @ weight + bias


def linear_layer(inputs: int, outputs: int, scale: float):
    return normal(inputs, outputs, scale=scale), jnp.zeros(outputs)


# -- updates: of one array, from its gradient and its own state; step is the number of updates before ----------


def sgd(rate: float):
    return (), lambda step, p, g: (p - rate * g,)


def momentum(rate: float):
    def update(step, p, g, v):
        v = 0.9 * v + g
        return p - rate * v, v

    return (jnp.zeros_like,), update


def adam(rate: float, decay: float = 0.0):
    def update(step, p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        corrected = (m / (1 - 0.9 ** (step + 1))) / (jnp.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
        return p * (1 - rate * decay) - rate * corrected, m, v

    return (jnp.zeros_like, jnp.zeros_like), update


def training(loss_of: Callable, parameters, extra, data: tuple, optimizer) -> Callable:
    """loss_of(parameters, extra, *data) -> loss, new extra. A call makes a step and gives loss and state, unwaited."""
    makers, update = optimizer

    def step(count, parameters, states, extra):
        (loss, extra), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, extra, *data)
        news = jax.tree.map(lambda *x: update(count, *x), parameters, gradients, *states)
        parameters, *states = jax.tree.transpose(jax.tree.structure(parameters), None, news)
        return (count + 1, parameters, states, extra), loss

    step = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    state = [(jnp.float32(0), parameters, [jax.tree.map(make, parameters) for make in makers], extra)]

    def run():
        state[0], loss = step(*state[0])
        return loss, state[0]

    return run


def ending(step: Callable) -> Run:
    def run() -> float:
        loss, state = step()
        jax.block_until_ready(state)
        return float(loss)

    return run


# -- ResNet-50 -------------------------------------------------------------------------------------------------


def conv_layer(inputs: int, outputs: int, kernel: int):
    """Parameters and running statistics of a convolution and its batch norm."""
    weight = normal(kernel, kernel, inputs, outputs, scale=(2 / (kernel * kernel * inputs)) ** 0.5)
    return (weight, jnp.ones(outputs), jnp.zeros(outputs)), (jnp.zeros(outputs), jnp.ones(outputs))


STRIDES = [2 if stage and not k else 1 for stage, count in enumerate((3, 4, 6, 3)) for k in range(count)]


def resnet50():
    """(parameters, statistics); of blocks: three convolutions, and one in the shortcut where the sizes change."""
    layers, channels = [[conv_layer(3, 64, 7)]], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for k in range(count):
            sizes = [(channels, middle, 1), (middle, middle, 3), (middle, 4 * middle, 1)]
            sizes += [] if k else [(channels, 4 * middle, 1)]
            layers.append([conv_layer(*size) for size in sizes])
            channels = 4 * middle
    parameters, statistics = ([[layer[k] for layer in block] for block in layers] for k in range(2))
    return (parameters, linear_layer(2048, 1000, 0.01)), statistics


def conv_norm(x, layer, running, stride: int, train: bool):
    weight, scale, shift = layer
    pad = weight.shape[0] // 2
    names = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=names)
    mean, var = running
    if train:
        wide = y.astype(jnp.float32)
        mean = wide.mean((0, 1, 2))
        var = jnp.square(wide).mean((0, 1, 2)) - mean * mean
        running = tuple(0.9 * old + 0.1 * new for old, new in zip(running, (mean, var), strict=True))
    mean, var, scale, shift = cast((mean, var, scale, shift), "f32")
    factor = scale * lax.rsqrt(var + 1e-5)
    return y * factor.astype(y.dtype) + (shift - mean * factor).astype(y.dtype), running


def resnet_logits(parameters, statistics, x, train: bool):
    blocks, head = parameters
    new = []

    def norm(x, block: int, k: int, stride: int = 1):
        y, running = conv_norm(x, blocks[block][k], statistics[block][k], stride, train)
        new.append(((block, k), running))
        return y

    x = jax.nn.relu(norm(x, 0, 0, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for block, stride in enumerate(STRIDES, 1):
        shortcut = norm(x, block, 3, stride) if len(blocks[block]) > 3 else x
        y = jax.nn.relu(norm(x, block, 0))
        y = jax.nn.relu(norm(y, block, 1, stride))
        x = jax.nn.relu(norm(y, block, 2) + shortcut)
    running = dict(new)
    statistics = [[running[b, k] for k in range(len(layers))] for b, layers in enumerate(blocks)]
    return linear(x.mean((1, 2)), head), statistics


for batch in (1, 16):

    @cases.add(f"resnet50-infer-b{batch}", "jit")
    def resnet50_infer(variant: str, precision: str, batch: int = batch) -> Run:
        net, x = cast(resnet50(), precision), cast(normal(batch, 224, 224, 3), precision)
        forward = jax.jit(lambda net, x: resnet_logits(*net, x, train=False)[0])
        return lambda: jax.block_until_ready(forward(net, x))


@cases.add("resnet50-train", "jit")
def resnet50_train(variant: str, precision: str) -> Run:
    parameters, statistics = resnet50()

    def loss_of(parameters, statistics, x, labels):
        net, x = cast(parameters, precision), cast(x, precision)
        logits, statistics = resnet_logits(net, statistics, x, train=True)
        return cross_entropy(logits, labels), statistics

    data = (normal(16, 224, 224, 3), integers(1000, 16))
    return ending(training(loss_of, parameters, statistics, data, momentum(0.01)))


# -- GPT -------------------------------------------------------------------------------------------------------


def norm_layer():
    return jnp.ones(WIDTH), jnp.zeros(WIDTH)


def gpt():
    sizes = {
        "qkv": (WIDTH, 3 * WIDTH),
        "project": (WIDTH, WIDTH),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }
    blocks = [
        {
            "norm1": norm_layer(),
            "norm2": norm_layer(),
            **{name: linear_layer(*sizes[name], 0.02) for name in sizes},
        }
        for _ in range(LAYERS)
    ]
    tables = {
        "tokens": normal(VOCABULARY, WIDTH, scale=0.02),
        "positions": normal(CONTEXT, WIDTH, scale=0.02),
    }
    return {**tables, "blocks": blocks, "norm": norm_layer()}


def layer_norm(x, layer):
    scale, shift = layer
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale + shift


def attention(q, k, v, mask):
    scores = jnp.einsum("nhqd,nhkd->nhqk", q, k).astype(jnp.float32) * HEAD**-0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)).astype(v.dtype)
    return jnp.einsum("nhqk,nhkd->nhqd", weights, v)


def gpt_logits(net, tokens, positions, mask, attend):
    """attend(number of the block, q, k, v) -> what is attended."""
    n, t = tokens.shape
    x = net["tokens"][tokens] + positions
    for number, block in enumerate(net["blocks"]):
        qkv = linear(layer_norm(x, block["norm1"]), block["qkv"]).reshape(n, t, 3, HEADS, HEAD)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        attended = attention(q, *attend(number, k, v), mask)
        x = x + linear(attended.transpose(0, 2, 1, 3).reshape(n, t, WIDTH), block["project"])
        hidden = jax.nn.gelu(linear(layer_norm(x, block["norm2"]), block["up"]), approximate=True)
        x = x + linear(hidden, block["down"])
    return layer_norm(x, net["norm"]) @ net["tokens"].T


def causal_logits(net, tokens):
    length = tokens.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))
    return gpt_logits(net, tokens, net["positions"][:length], mask, lambda number, k, v: (k, v))


@cases.add("gpt-train", "jit")
def gpt_train(variant: str, precision: str) -> Run:
    def loss_of(parameters, extra, tokens, targets):
        return cross_entropy(causal_logits(cast(parameters, precision), tokens), targets), extra

    data = (integers(VOCABULARY, 4, CONTEXT), integers(VOCABULARY, 4, CONTEXT))
    return ending(training(loss_of, gpt(), (), data, adam(3e-4, 0.01)))


@cases.add("gpt-prefill", "jit")
def gpt_prefill(variant: str, precision: str) -> Run:
    net, tokens, forward = cast(gpt(), precision), integers(VOCABULARY, 1, CONTEXT), jax.jit(causal_logits)
    return lambda: jax.block_until_ready(forward(net, tokens))


@cases.add("gpt-decode", "jit")
def gpt_decode(variant: str, precision: str) -> Run:
    def decode(net, token, position, cache):
        new = []

        def attend(number, k, v):
            pairs = zip(cache[number], (k, v), strict=True)
            new.append([lax.dynamic_update_slice(old, x, (0, 0, position, 0)) for old, x in pairs])
            return new[-1]

        mask = (jnp.arange(CONTEXT) <= position)[None, None, None]
        logits = gpt_logits(net, token, net["positions"][position], mask, attend)
        return logits.argmax(-1), new

    decode = jax.jit(decode, donate_argnums=3)
    net = cast(gpt(), precision)
    caches = [cast([[normal(1, HEADS, CONTEXT, HEAD) for _ in "kv"] for _ in range(LAYERS)], precision)]
    positions = [jnp.int32(k) for k in range(CONTEXT - 64, CONTEXT)]

    def run() -> int:
        token = jnp.zeros((1, 1), jnp.int32)
        for position in positions:
            token, caches[0] = decode(net, token, position, caches[0])
        return int(token[0, 0])

    return run


# -- LSTM and MLP ----------------------------------------------------------------------------------------------


@cases.add("lstm-train", "jit and scan")
def lstm_train(variant: str, precision: str) -> Run:
    vocabulary, width = 10000, 650
    layers = [(normal(width, 4 * width, scale=0.04), *linear_layer(width, 4 * width, 0.04)) for _ in range(2)]
    net = (normal(vocabulary, width), layers, linear_layer(width, vocabulary, 0.04))

    def cell(recurrent, state, gates):
        h, c = state
        i, f, g, o = jnp.split(gates + h @ recurrent, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss_of(parameters, extra, tokens, targets):
        table, layers, head = cast(parameters, precision)
        x = table[tokens]
        for recurrent, *gates in layers:
            zero = jnp.zeros_like(x[0])
            _, x = lax.scan(lambda state, y, r=recurrent: cell(r, state, y), (zero, zero), linear(x, gates))
        return cross_entropy(linear(x, head), targets), extra

    data = (integers(vocabulary, 35, 20), integers(vocabulary, 35, 20))
    return ending(training(loss_of, net, (), data, sgd(0.1)))


@cases.add("mlp-train", "jit", precisions=("f32",))
def mlp_train(variant: str, precision: str) -> Run:
    net = [linear_layer(n, m, 0.05) for n, m in ((784, 256), (256, 128), (128, 10))]

    def loss_of(parameters, extra, x, labels):
        *hidden, last = parameters
        for layer in hidden:
            x = jax.nn.relu(linear(x, layer))
        return cross_entropy(linear(x, last), labels), extra

    step = training(loss_of, net, (), (normal(32, 784), integers(10, 32)), adam(1e-3))

    def run() -> None:
        for _ in range(100):
            _, state = step()
        jax.block_until_ready(state)

    return run


@cases.add("matmul", "jit")
def matmul(variant: str, precision: str) -> Run:
    a, b = cast((normal(2048, 2048), normal(2048, 2048)), precision)
    product = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(product(a, b))


if __name__ == "__main__":
    serve("JAX", jax.__version__, cases)
