"""Attention's code for threads on the stand-in, against float64 with the whole matrix of scores."""

import itertools

import numpy as np
import pytest
from tests.ops.material.attention import philox_items
from tests.ops.support import SEED

from weft.expr.targets import compile_threads, standin_target
from weft.kernels.gpu.attention import dim_of
from weft.kernels.gpu.attention_passes import LOOPS, AttentionPass, operands_of
from weft.kernels.gpu.attention_tiles import print_pass

from .standin import DeviceFault, gpu, without_barrier
from .support import NUMPY

KINDS = ("y", "dq", "dk", "dv")
TYPES = {"logs": "float32", "means": "float32", "ranges": "int64", "slopes": "float32", "words": "uint64"}
OPTIONS = ("mask", "ranges", "slopes", "words")


class Example:
    """Operands of attention, what they mean in float64, and passes on the stand-in."""

    def __init__(
        self, sizes, dtype="float32", before=-1, after=-1, offset=0, cap=0.0, drop=0.0, options=(), seed=0
    ):
        self.sizes, self.dtype = sizes, dtype
        self.before, self.after, self.offset, self.cap, self.drop = before, after, offset, cap, drop
        b, h, g, n, m, d, e = sizes
        rng = np.random.default_rng(seed)

        def drawn(*shape):
            return rng.standard_normal(shape).astype(NUMPY[dtype])

        self.arrays = {
            "q": drawn(b, h, n, d),
            "k": drawn(b, g, m, d),
            "v": drawn(b, g, m, e),
            "dy": drawn(b, h, n, e),
        }
        if "mask" in options:
            self.arrays["mask"] = rng.random((b, h, n, m)) < 0.8
            self.arrays["mask"][..., 1, :] = False  # a query that sees nothing
        if "numbers" in options:
            self.arrays["mask"] = drawn(b, h, n, m)
        if "ranges" in options:
            first = rng.integers(0, m, (b, h, n))
            self.arrays["ranges"] = np.stack([first, first + rng.integers(0, m, first.shape)], -1)
        if "slopes" in options:
            self.arrays["slopes"] = (rng.random(h) / 8).astype("float32")
        if "words" in options:
            self.arrays["words"] = rng.integers(0, 1 << 63, 2, np.uint64)
        self.options = [name for name in OPTIONS if name in self.arrays]
        self.wanted = self.reference()

    def reference(self):
        b, h, g, n, m, *_ = self.sizes
        q, k, v, dy = (self.arrays[name].astype("float64") for name in ("q", "k", "v", "dy"))
        k, v = (np.repeat(x, h // g, 1) for x in (k, v))
        own, key = np.arange(n)[:, None] + self.offset, np.arange(m)
        raw = q @ k.swapaxes(-1, -2) * 0.25
        scores = np.tanh(raw / self.cap) * self.cap if self.cap else raw
        inner = 1 - (scores / self.cap) ** 2 if self.cap else 1.0
        if "slopes" in self.arrays:
            scores = scores - self.arrays["slopes"][:, None, None] * abs(own - key)
        seen = np.ones((b, h, n, m), bool)
        seen &= (key >= own - self.before) | (self.before < 0)
        seen &= (key <= own + self.after) | (self.after < 0)
        if "ranges" in self.arrays:
            first, last = np.moveaxis(self.arrays["ranges"][..., None, :], -1, 0)
            seen &= (key >= first) & (key < last)
        if (mask := self.arrays.get("mask")) is not None:
            seen &= mask if mask.dtype == bool else True
            scores = scores if mask.dtype == bool else scores + mask.astype("float64")
        scores = np.where(seen, scores, -np.inf)
        most = scores.max(-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(np.isinf(most), 0, most))
        total = powers.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            logs = (np.log(total) + most)[..., 0]
        weights = powers / np.where(total == 0, 1, total)
        kept = self.kept()
        y = weights * kept @ v
        dscores = weights * (dy @ v.swapaxes(-1, -2) * kept - (dy * y).sum(-1, keepdims=True)) * inner

        def summed(x):
            return x.reshape(b, g, h // g, *x.shape[2:]).sum(2)

        return {
            "y": y,
            "logs": logs,
            "dq": dscores @ k * 0.25,
            "dk": summed(dscores.swapaxes(-1, -2) @ q * 0.25),
            "dv": summed((weights * kept).swapaxes(-1, -2) @ dy),
        }

    def kept(self):
        """0 or 1 / (1 - p) for each weight: items by tiles of 64 queries and keys, transposed."""
        if "words" not in self.arrays:
            return 1.0
        b, h, _, n, m, *_ = self.sizes
        rows, columns = -(-n // 64), -(-m // 64)
        items = philox_items(self.arrays["words"], b * h * rows * columns * 4096)
        tiles = items.reshape(b, h, rows, columns, 64, 64).transpose(0, 1, 2, 5, 3, 4)
        bits = tiles.reshape(b, h, rows * 64, columns * 64)[:, :, :n, :m]
        return (bits >= int(self.drop * 2**32)) / (1 - self.drop)

    def run(self, kind, columns=16, is_narrow=True, blocks=3, seed=0, text=None):
        """What a pass gives: its result and what else it stores."""
        names = operands_of(kind, self.options)
        dtypes = {name: TYPES.get(name, self.dtype) for name in names}
        if "mask" in dtypes:
            dtypes["mask"] = "bool" if self.arrays["mask"].dtype == bool else self.dtype
        code = print_pass(AttentionPass(kind, tuple(dtypes.items()), bool(self.cap), columns), is_narrow)
        code = code.replaced(text=text(code.text)) if text else code
        known = self.arrays | {"y": self.wanted["y"], "logs": self.wanted["logs"]}
        known["means"] = (self.wanted["y"] * self.arrays["dy"].astype("float64")).sum(-1)
        results = {"y": ("y", "logs"), "dq": ("dq", "means"), "dk": ("dk",), "dv": ("dv",)}[kind]
        known |= {name: np.full_like(known.get(name, self.wanted.get(name)), np.nan) for name in results}
        arrays = [np.ascontiguousarray(known[name].astype(NUMPY[dtypes[name]])) for name in names]
        strides = [
            [0 if (dim := dim_of(name, loop)) < 0 else array.strides[dim] for loop in LOOPS]
            for name, array in zip(names, arrays, strict=True)
        ]
        b, h, g, n, m, d, e = self.sizes
        numbers = np.array([0.25, self.cap, 0, 0, 0, self.drop]).view(np.int64)
        numbers[2:5] = self.before, self.after, self.offset
        words = [b, h, n, m, d, e, g, 2, *(s for own in strides for s in own), *numbers.tolist()]
        gpu().run(compile_threads(code, standin_target()), code, blocks, arrays, words, seed)
        return {name: x for name, x in zip(names, arrays, strict=True) if name in results}

    def check(self, kind, **how):
        got = self.run(kind, **how)
        want = self.wanted | {"means": (self.wanted["y"] * self.arrays["dy"].astype("float64")).sum(-1)}
        for name, x in got.items():
            right = want[name]
            if name == "logs":
                np.testing.assert_allclose(x.astype("float64"), right, rtol=1e-5, atol=1e-5)
                continue
            size = abs(right).max(initial=0.1)
            within = size * (1e-5 if self.dtype == "float32" else 2e-2)
            assert abs(x.astype("float64") - right).max(initial=0) <= within, (kind, name)
        return got


PLAIN = (2, 2, 2, 70, 80, 20, 17)
EXAMPLES = {
    "plain": lambda: Example(PLAIN),
    "causal": lambda: Example((1, 2, 2, 150, 150, 16, 16), after=0),
    "window": lambda: Example((1, 1, 1, 200, 210, 5, 7), before=20, after=3, offset=9),
    "far behind": lambda: Example((1, 1, 1, 66, 66, 4, 4), after=0, offset=-70),
    "shared": lambda: Example((1, 6, 2, 65, 70, 8, 8)),
    "mask": lambda: Example(PLAIN, options=("mask",)),
    "numbers": lambda: Example(PLAIN, "bfloat16", options=("numbers",)),
    "ranges": lambda: Example((1, 2, 1, 130, 200, 8, 8), options=("ranges",)),
    "slopes": lambda: Example(PLAIN, options=("slopes",), offset=3, after=0),
    "cap": lambda: Example(PLAIN, cap=2.0),
    "dropout": lambda: Example(PLAIN, options=("words",), drop=0.3),
    "all": lambda: Example(
        (1, 4, 2, 130, 140, 24, 20), before=90, after=30, cap=3.0, drop=0.2, options=OPTIONS, offset=2
    ),
    "halves": lambda: Example(PLAIN, "float16", after=0),
    "one": lambda: Example((1, 1, 1, 1, 1, 1, 1)),
    "no keys": lambda: Example((1, 1, 1, 3, 0, 4, 4)),
    "no features": lambda: Example((1, 1, 1, 3, 5, 0, 4)),
}


@pytest.mark.parametrize(
    ("example", "kind"),
    [
        pytest.param(example, kind, marks=[] if (n + SEED) % 8 == 0 else pytest.mark.full)
        for n, (example, kind) in enumerate(itertools.product(EXAMPLES, KINDS))
    ],
)
def test_passes(example, kind):
    trial = EXAMPLES[example]()
    first = trial.check(kind)
    for how in ({"blocks": 1, "seed": 1}, {"blocks": 7, "seed": 2, "is_narrow": False}):
        again = trial.run(kind, **how)
        assert all(first[name].tobytes() == again[name].tobytes() for name in first)  # whatever the order


@pytest.mark.parametrize("columns", [16, 32, 64, 128])
def test_columns_of_a_block(columns):
    """A result of more columns than a block has is computed by several."""
    trial = Example((1, 1, 1, 40, 50, 140, 140))
    for kind in KINDS:
        trial.check(kind, columns=columns)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if (n + SEED) % 4 == 0 else pytest.mark.full) for n, k in enumerate(KINDS)],
)
def test_every_barrier_is_needed(kind):
    """Without any one of them some order of threads gives something else."""
    trial = Example((1, 1, 1, 64, 140, 40, 40), options=("words",), drop=0.1)
    want = trial.run(kind, blocks=1)
    count = len(_barriers(trial, kind))
    assert count >= 4
    for number in range(count):
        for seed in range(1, 20):
            try:
                got = trial.run(kind, blocks=1, seed=seed, text=without_barrier(number))
            except DeviceFault:
                break
            if any(got[name].tobytes() != want[name].tobytes() for name in got):
                break
        else:
            pytest.fail(f"{kind}: nothing shows that barrier {number} of {count} is missing")


def _barriers(trial, kind):
    found = []

    def look(text):
        found.extend(line for line in text.splitlines() if "call void @weft_barrier(" in line)
        return text

    trial.run(kind, text=look)
    return found
