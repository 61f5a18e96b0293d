"""Networks and computations written once for weft and PyTorch, whose few differences a kit has."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


class Kit(NamedTuple):
    """What the two spell differently. asarray(numpy), concat(list, axis), permute(x, axes), roll(x, shifts, axes), zero
    parameters of a shape, solve_lower(factor, b); `linalg` is called alike."""

    M: Any
    F: Any
    linalg: Any
    asarray: Callable
    concat: Callable
    permute: Callable
    roll: Callable
    parameter: Callable
    solve_lower: Callable
    exp: Callable
    log: Callable
    sum: Callable


def drawn(seed: int = 0) -> SimpleNamespace:
    """normal(*shape) float32, integers(limit, *shape) and uniform(low, high, *shape), the same on both sides."""
    rng = np.random.default_rng(seed)
    return SimpleNamespace(
        normal=lambda *shape: rng.standard_normal(shape, dtype=np.float32),
        integers=lambda limit, *shape: rng.integers(0, limit, shape),
        uniform=lambda low, high, *shape: rng.uniform(low, high, shape).astype(np.float32),
    )


def heads_of(kit: Kit, x: Any, heads: int) -> Any:
    """[n, t, c] -> [n, heads, t, c / heads]"""
    n, t, c = x.shape
    return kit.permute(x.reshape((n, t, heads, c // heads)), (0, 2, 1, 3))


def attention_networks(kit: Kit) -> dict[str, Callable]:
    """The builders by name: () -> (module, inputs as NumPy arrays, classes of each output)."""
    M, F = kit.M, kit.F

    class Attention(M.Module):
        def __init__(self, width, heads, causal=False):
            super().__init__()
            self.heads, self.causal = heads, causal
            self.q, self.k, self.v = M.Linear(width, width), M.Linear(width, width), M.Linear(width, width)
            self.out = M.Linear(width, width)

        def forward(self, x, other):
            q, k, v = (
                heads_of(kit, layer(y), self.heads)
                for layer, y in ((self.q, x), (self.k, other), (self.v, other))
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(kit.permute(y, (0, 2, 1, 3)).reshape(x.shape))

    class Expanded(M.Module):
        def __init__(self, width):
            super().__init__()
            self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    class BertLayer(M.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention, self.expanded = Attention(width, heads), Expanded(width)
            self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)

        def forward(self, x):
            x = self.norm1(x + self.attention(x, x))
            return self.norm2(x + self.expanded(x))

    class Bert(M.Module):
        """Devlin et al. 2018, arXiv:1810.04805, small, without dropout: words are guessed."""

        def __init__(self, vocabulary=8192, positions=128, width=512, layers=4, heads=8):
            super().__init__()
            self.words, self.positions = M.Embedding(vocabulary, width), M.Embedding(positions, width)
            self.norm, self.last = M.LayerNorm(width), M.Linear(width, vocabulary)
            self.layers = M.Sequential(*(BertLayer(width, heads) for _ in range(layers)))
            self.places = kit.asarray(np.arange(positions))

        def forward(self, words):
            x = self.norm(self.words(words) + self.positions(self.places))
            return self.last(self.layers(x)).reshape((-1, 8192))

    class DecoderLayer(M.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.own, self.cross = Attention(width, heads, causal=True), Attention(width, heads)
            self.expanded = Expanded(width)
            self.norm1, self.norm2, self.norm3 = (M.LayerNorm(width) for _ in range(3))

        def forward(self, x, memory):
            y = self.norm1(x)
            x = x + self.own(y, y)
            x = x + self.cross(self.norm2(x), memory)
            return x + self.expanded(self.norm3(x))

    class Translation(M.Module):
        """Vaswani et al. 2017, arXiv:1706.03762, small, without dropout."""

        def __init__(self, vocabulary=8192, length=32, width=256, layers=3, heads=8):
            super().__init__()
            self.words, self.positions = M.Embedding(vocabulary, width), M.Embedding(length, width)
            self.encoder = M.Sequential(*(BertLayer(width, heads) for _ in range(layers)))
            self.decoder = M.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
            self.last = M.Linear(width, vocabulary)
            self.places = kit.asarray(np.arange(length))

        def forward(self, source, target):
            memory = self.encoder(self.words(source) + self.positions(self.places))
            x = self.words(target) + self.positions(self.places)
            for layer in self.decoder:
                x = layer(x, memory)
            return self.last(x).reshape((-1, 8192))

    return {
        "bert": lambda: (Bert(), [drawn().integers(8192, 8, 128)], 8192),
        "translation": lambda: (Translation(), list(drawn().integers(8192, 2, 16, 32)), 8192),
        "swin": lambda: (swin(kit), [drawn().normal(4, 3, 224, 224)], 10),
    }


def swin(kit: Kit) -> Any:
    """Liu et al. 2021, arXiv:2103.14030: Swin-T without stochastic depth."""
    M, F = kit.M, kit.F
    window = 7

    def places() -> np.ndarray:
        """Of the bias of each pair of a window's points."""
        at = np.stack(np.meshgrid(*[np.arange(window)] * 2, indexing="ij")).reshape(2, -1)
        apart = at[:, :, None] - at[:, None] + window - 1
        return (apart[0] * (2 * window - 1) + apart[1]).reshape(-1)

    def shift_mask(size: int, shift: int) -> np.ndarray:
        """-100 between points that were not neighbours before the shift: [windows, 1, points, points]."""
        stripes = np.zeros(size, int)
        stripes[-window:-shift], stripes[-shift:] = 1, 2
        region = stripes[:, None] * 3 + stripes
        windows = size // window
        region = region.reshape(windows, window, windows, window).transpose(0, 2, 1, 3)
        region = region.reshape(windows**2, -1)
        return np.where(region[:, None] == region[:, :, None], 0, -100).astype(np.float32)[:, None]

    class Block(M.Module):
        def __init__(self, width, heads, size, shift):
            super().__init__()
            self.heads, self.shift = heads, shift if size > window else 0
            self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
            self.qkv, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
            self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)
            self.table = kit.parameter(((2 * window - 1) ** 2, heads))
            self.places = kit.asarray(places())
            self.mask = kit.asarray(shift_mask(size, shift)) if self.shift else None

        def attention(self, x):
            n, size, _, c = x.shape
            k, points, heads = size // window, window**2, self.heads
            if self.shift:
                x = kit.roll(x, (-self.shift, -self.shift), (1, 2))
            x = kit.permute(x.reshape((n, k, window, k, window, c)), (0, 1, 3, 2, 4, 5))
            qkv = self.qkv(x.reshape((n, k * k, points, c))).reshape((n, k * k, points, 3, heads, c // heads))
            q, key, v = (kit.permute(qkv[:, :, :, i], (0, 1, 3, 2, 4)) for i in range(3))
            bias = kit.permute(self.table[self.places].reshape((points, points, heads)), (2, 0, 1))
            scores = (q * (c // heads) ** -0.5) @ key.mT + bias
            if self.mask is not None:
                scores = scores + self.mask
            y = kit.permute(F.softmax(scores, -1) @ v, (0, 1, 3, 2, 4)).reshape((n, k * k, points, c))
            y = self.out(y).reshape((n, k, k, window, window, c))
            y = kit.permute(y, (0, 1, 3, 2, 4, 5)).reshape((n, size, size, c))
            return kit.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Merged(M.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.less = M.LayerNorm(4 * width), M.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x):
            quarters = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
            return self.less(self.norm(kit.concat(quarters, -1)))

    class Swin(M.Module):
        def __init__(self, width=96, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), size=56):
            super().__init__()
            self.patches, self.first = M.Conv2d(3, width, 4, stride=4), M.LayerNorm(width)
            layers = []
            for stage, depth in enumerate(depths):
                layers += [Merged(width << (stage - 1))] if stage else []
                layers += [
                    Block(width << stage, heads[stage], size >> stage, window // 2 * (k % 2))
                    for k in range(depth)
                ]
            self.layers = M.Sequential(*layers)
            width <<= len(depths) - 1
            self.norm, self.last = M.LayerNorm(width), M.Linear(width, 10)

        def forward(self, x):
            x = self.first(kit.permute(self.patches(x), (0, 2, 3, 1)))
            return self.last(self.norm(self.layers(x)).mean((1, 2)))

    return Swin()


def critics(kit: Kit) -> tuple[Any, Any]:
    """Generator and critic of pictures of 32 x 32: Gulrajani et al. 2017, arXiv:1704.00028."""
    M = kit.M

    def up(inputs, outputs, *more):
        return M.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1), *more

    def down(inputs, outputs):
        return M.Conv2d(inputs, outputs, 4, stride=2, padding=1), M.LeakyReLU(0.2)

    generator = M.Sequential(
        *(M.ConvTranspose2d(100, 256, 4), M.BatchNorm2d(256), M.ReLU()),
        *up(256, 128, M.BatchNorm2d(128), M.ReLU()),
        *up(128, 64, M.BatchNorm2d(64), M.ReLU()),
        *up(64, 3, M.Tanh()),
    )
    critic = M.Sequential(*down(3, 64), *down(64, 128), *down(128, 256), M.Conv2d(256, 1, 4))
    return generator, critic


def likelihood(kit: Kit, x: Any, y: Any, logs: Any) -> Any:
    """Minus the logarithm of the likelihood of y[n] at x[n, d]: a Gaussian process; logs: of scale, length, noise."""
    scale, length, noise = (kit.exp(logs[i]) for i in range(3))
    squares = kit.sum((x[:, None] - x) ** 2, -1)
    covariance = scale * kit.exp(-squares / (2 * length**2)) + noise * kit.asarray(np.eye(x.shape[0]))
    factor = kit.linalg.cholesky(covariance)
    solved = kit.solve_lower(factor, y[:, None])
    return 0.5 * kit.sum(solved**2) + kit.sum(kit.log(kit.linalg.diagonal(factor)))


def kalman(kit: Kit, f: Any, h: Any, q: Any, r: Any, seen: Any) -> Any:
    """The means of states of a batch after all that was seen[t, n, 2, 1]: f[4,4], h[2,4], q[4,4], r[2,2]."""
    mean = kit.asarray(np.zeros((seen.shape[1], 4, 1), np.float32))
    p = kit.asarray(np.tile(np.eye(4, dtype=np.float32), (seen.shape[1], 1, 1)))
    for t in range(seen.shape[0]):
        mean, p = f @ mean, f @ p @ f.mT + q
        gain = p @ h.mT @ kit.linalg.inv(h @ p @ h.mT + r)
        mean = mean + gain @ (seen[t] - h @ mean)
        p = p - gain @ h @ p
    return mean


def chain(kit: Kit, x: Any) -> Any:
    """Eight functions one after the other."""
    for _ in range(2):
        x = kit.F.gelu(kit.exp(kit.F.tanh(kit.exp(-x * x))))
    return x


def routed(kit: Kit, x: Any, gates: Any, first: list, second: list) -> Any:
    """Each row of x[n, c] by the expert of its largest gate, whose rows are picked by masks."""
    which = gates.argmax(-1)
    y = kit.asarray(np.zeros(x.shape, np.float32))
    for expert, (w, v) in enumerate(zip(first, second, strict=True)):
        mask = which == expert
        y[mask] = kit.F.relu(x[mask] @ w) @ v
    return y


SMALL = {"4x4": 4, "16x16": 16}
LINALG = ("solve", "inv", "det", "cholesky")


def positive(size: int, count: int = 100_000) -> np.ndarray:
    """Symmetric matrices with eigenvalues from 1 on."""
    a = drawn().normal(count, size, size)
    return a @ a.swapaxes(1, 2) / size + np.eye(size, dtype=np.float32)


def numbers_of_gaussian_process() -> tuple[np.ndarray, ...]:
    """x[300, 3], y[300], logs[3] in float64."""
    make = drawn()
    return make.normal(300, 3).astype(float), make.normal(300).astype(float), np.array([0.1, 0.2, -2.0])


def numbers_of_kalman() -> tuple[np.ndarray, ...]:
    """f, h, q, r, and 50 measurements of 256 tracks."""
    f, h = np.eye(4, dtype=np.float32), np.eye(2, 4, dtype=np.float32)
    f[0, 2] = f[1, 3] = 0.1
    q, r = np.eye(4, dtype=np.float32) * 0.01, np.eye(2, dtype=np.float32) * 0.1
    return f, h, q, r, drawn().normal(50, 256, 2, 1)


def numbers_of_experts() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x[1024, 256], gates[1024, 8], two weights of each of 8 experts."""
    make = drawn()
    weights = make.normal(8, 256, 1024) / 16, make.normal(8, 1024, 256) / 32
    return make.normal(1024, 256), make.normal(1024, 8), *weights


def grid_of_warp(count: int = 8, size: int = 224) -> np.ndarray:
    """A rotation by 0.1 with a little noise: [count, size, size, 2]."""
    at = np.linspace(-1, 1, size, dtype=np.float32)
    x, y = np.meshgrid(at, at)
    c, s = math.cos(0.1), math.sin(0.1)
    grid = np.stack([c * x - s * y, s * x + c * y], -1)
    return grid + drawn().uniform(-0.02, 0.02, count, size, size, 2)
