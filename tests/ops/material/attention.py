"""What tests know of the operators of weft.ops.families.attention."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.attention import ScaledDotProductAttention
from weft.ops.samples import Array, Sample, arrays


def philox_items(key, count):
    """The first items of 32 bits of a key's stream: Philox4x32-10 by its definition, in NumPy."""
    group, lane = np.divmod(np.arange((count + 63) // 64 * 16, dtype=np.uint64), np.uint64(16))
    position, low, half = group * np.uint64(16) + lane, np.uint64(0xFFFFFFFF), np.uint64(32)
    x = [
        position & low,
        position >> half,
        *(np.broadcast_to(w, position.shape) for w in (key[1] & low, key[1] >> half)),
    ]
    k = [key[0] & low, key[0] >> half]
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [(q >> half) ^ x[1] ^ k[0], q & low, (p >> half) ^ x[3] ^ k[1], p & low]
        k = [(w + np.uint64(s)) & low for w, s in zip(k, (0x9E3779B9, 0xBB67AE85), strict=True)]
    words = np.stack(x, -1).reshape(-1, 16, 2, 2).transpose(0, 2, 1, 3)  # group, half, lane, word
    return words.reshape(-1)[:count]


def kept_weights(op, key, shape):
    """0 or 1 / (1 - p), by items of 32 bits that are numbered by tiles, written with loops over tiles."""
    *lead, n, m = shape
    tiles = -(-n // 64), -(-m // 64)
    count = int(np.prod(lead)) * tiles[0] * tiles[1] * 4096
    items = philox_items(key, count).reshape(-1, *tiles, 64, 64)  # head, row tile, key tile, key, row
    whole = items.transpose(0, 1, 4, 2, 3).reshape(-1, tiles[0] * 64, tiles[1] * 64)[:, :n, :m]
    return np.where(whole.reshape(shape) >= np.floor(op.dropout * 2**32), 1 / (1 - op.dropout), 0)


@material(ScaledDotProductAttention)
class _:
    def reference(self, q, k, v, mask=None, ranges=None, slopes=None, key=None):
        shared = q.shape[-3] // k.shape[-3] if q.ndim > 2 and k.ndim > 2 and k.shape[-3] != 1 else 1
        k, v = (np.repeat(x, shared, axis=-3) if shared > 1 else x for x in (k, v))
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * self.factor(q)
        if self.soft_cap:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
        n, m = scores.shape[-2:]
        own, keys = np.arange(n)[:, None] + self.offset, np.arange(m)
        if slopes is not None:
            scores = scores - slopes[:, None, None] * np.abs(own - keys)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        before, after = self.window or (-1, -1)
        seen = np.ones((n, m), bool)
        seen &= (before == -1) | (keys >= own - before)
        seen &= (after == -1) | (keys <= own + after)
        seen &= (keys <= own) | (not self.is_causal)
        if ranges is not None:
            seen = seen & (keys >= ranges[..., :1]) & (keys < ranges[..., 1:])
        scores = np.where(seen, scores, -np.inf)
        top = np.max(scores, axis=-1, keepdims=True)
        powers = np.exp(scores - np.where(np.isinf(top), 0, top))
        total = powers.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            logs = (np.log(total) + np.where(np.isinf(top), 0, top))[..., 0]
        weights = powers / np.where(total == 0, 1, total)
        y = np.matmul(weights if key is None else weights * kept_weights(self, key, weights.shape), v)
        return y, np.broadcast_to(logs, y.shape[:-1])

    def torch_reference(self, torch, q, k, v, mask=None, *options):
        if any(o is not None for o in options) or self.window or self.offset or self.soft_cap:
            return NotImplemented
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.is_causal, scale=self.scale
        )

    @classmethod
    def samples(cls):
        q, k, v = arrays((2, 2, 3, 4)), arrays((2, 2, 5, 4)), arrays((2, 2, 5, 2))
        yield Sample(q, k, v)
        yield Sample(q, k, v, is_causal=True)
        yield Sample(q, k, v, arrays((3, 5), dtype="bool"), scale=0.3)
        yield Sample(q, k, v, arrays((2, 2, 3, 5)))
        yield Sample(arrays((2, 3, 4)), arrays((2, 5, 4)), arrays((2, 5, 4)))
        yield Sample(arrays((2, 2, 3, 4)), arrays((1, 5, 4)), arrays((1, 5, 4)))
        shared = arrays((2, 4, 3, 4)), arrays((2, 2, 5, 4)), arrays((2, 2, 5, 2))
        yield Sample(*shared, is_causal=True, offset=2)
        yield Sample(*shared, window=(1, 2), soft_cap=0.7)
        ranges = Array((3, 2), values=((0, 2), (1, 4), (2, 3)), dtype="int64")
        yield Sample(q, k, v, None, ranges, Array((2,), values=(0.3, 0.6)))
        key = Array((2,), values=(5, 7), dtype="uint64")
        yield Sample(q, k, v, None, None, None, key, dropout=0.375)  # exact: programs get it as a float32

    @classmethod
    def errors(cls):
        q, k, v = arrays((1, 2, 3, 4)), arrays((1, 2, 5, 4)), arrays((1, 2, 5, 2))
        yield ShapeError, "q has 4 features, k expects 2", Sample(q, v, v)
        yield ShapeError, "k has 5 keys, v expects 3", Sample(q, k, q)
        yield ShapeError, "the mask does not fit", Sample(q, k, v, arrays((2, 1, 1, 3, 5)))
        yield (
            ShapeError,
            "sizes 3 and 4 in dimension -2 do not fit",
            Sample(q, k, v, None, Array((4, 2), values=((0, 1),) * 4, dtype="int64")),
        )
        yield ShapeError, "one element for each head", Sample(q, k, v, None, None, arrays((3,)))
        yield ShapeError, "a key is uint64", Sample(q, k, v, None, None, None, arrays((2,)))
        yield ValueError, "window is", Sample(q, k, v, window=(1, -2))
        yield ValueError, "dropout must be in", Sample(q, k, v, dropout=1.5)
        yield ShapeError, "k and v differ in heads", Sample(arrays((1, 4, 3, 4)), k, arrays((1, 1, 5, 2)))
