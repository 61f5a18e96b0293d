"""What tests know of the operators of weft.ops.families.attention."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.attention import CausalMask, ScaledDotProductAttention
from weft.ops.samples import Sample, arrays


@material(CausalMask)
class _:
    def reference(self, scores):
        return np.where(np.tri(*scores.shape[-2:]) > 0, scores, self.value)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), value=0.0)


@material(ScaledDotProductAttention)
class _:
    def reference(self, q, k, v, mask=None):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * self.factor(q)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        if self.is_causal:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
        top = np.max(scores, axis=-1, keepdims=True)
        powers = np.exp(scores - np.where(np.isinf(top), 0, top))
        total = powers.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            logs = (np.log(total) + np.where(np.isinf(top), 0, top))[..., 0]
        y = np.matmul(powers / np.where(total == 0, 1, total), v)
        return y, np.broadcast_to(logs, y.shape[:-1])

    def torch_reference(self, torch, q, k, v, mask=None):
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

    @classmethod
    def errors(cls):
        q, k, v = arrays((1, 2, 3, 4)), arrays((1, 2, 5, 4)), arrays((1, 2, 5, 2))
        yield ShapeError, "q has 4 features, k expects 2", Sample(q, v, v)
        yield ShapeError, "k has 5 keys, v expects 3", Sample(q, k, q)
        yield ShapeError, "the mask does not fit", Sample(q, k, v, arrays((2, 1, 1, 3, 5)))
