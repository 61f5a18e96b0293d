"""Compression of what is exchanged: 2 bits as MXNet defines them, the greatest elements, 16-bit floats.

>>> import weft as wf
>>> codec = make_codec({"type": "2bit", "threshold": 0.5})
>>> residual = wf.zeros(3)
>>> (packed,) = codec.encode(wf.tensor([0.75, -0.25, -1.]), residual)
>>> packed, residual
(tensor([200,   0,   0,   0], dtype=uint8, device=cpu:0), tensor([ 0.25, -0.25, -0.5 ], dtype=float32, device=cpu:0))
>>> codec.decode([packed], 3)
tensor([ 0.5,  0. , -0.5], dtype=float32, device=cpu:0)

Codecs are operators of weft, so they run on the engine and in traces. encode takes a dense float32 array of one axis,
and what earlier calls have left of it, its residual, which it changes; decode takes what encode gave.
Source of 2bit: Seide et al. 2014, 1-bit stochastic gradient descent, in MXNet's form (gradient_compression-inl.h); of
top-k: Stich et al. 2018, Sparsified SGD with memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft import _core
from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad
from weft.ops import registry
from weft.ops.kernels import Native
from weft.ops.op import Op, op
from weft.ops.types import TensorType
from weft.traces.trace import trace

__all__ = ["CastCodec", "Codec", "TopK", "TwoBit", "make_codec"]

GROUP = 16  # elements in one 4-byte word


class Codec:
    """Base. parameters: what make_codec was given; exact: nothing is lost but what the residual keeps."""

    has_residual = True
    parameters: dict[str, Any]

    def encode(self, x: Tensor, residual: Tensor | None) -> list[Tensor]:
        """The parts to be sent."""
        raise NotImplementedError

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        """An array of so many elements, float32."""
        raise NotImplementedError

    def new_residual(self, x: Tensor) -> Tensor | None:
        """The residual of an array before its first encode."""
        return zeros(x.size, dtype="float32", device=x.device) if self.has_residual else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parameters})"


@op
class TwoBitEncode(
    Op,
    family="custom",
    public=False,
    rule="x[elements]: fixed float32, residual[elements]: float32 -> y[*code_size()]: uint8, rest[elements]: residual",
    hidden=1,
    writes={"residual": "rest"},
):
    """The bits that TwoBit sends of x, uint8[4 ceil(n / 16)]; residual becomes what is left.

    x, residual: float32[n]; threshold: above 0.
    """

    threshold: float

    def code_size(self, x: TensorType, residual: TensorType) -> tuple[Any, ...]:
        """Four bytes for each word of 16 elements."""
        return (4 * -(-x.shape[0] // GROUP),)

    def kernels(self, x: TensorType, residual: TensorType) -> Iterator[Native]:
        yield Native(lambda _, __: _core.kernel_two_bits(self.threshold), in_place=((1, 1),))

    def decompose(self, x: Any, residual: Any) -> Any:
        t = self.threshold
        r = residual + x
        up, down = r >= t, r <= -t
        rest = F.where(up, r - t, F.where(down, r + t, r))
        code = up.astype("uint8") * 3 + down.astype("uint8") * 2
        if missing := -x.shape[0] % GROUP:
            code = F.concat([code, F.broadcast_to(code[:1] * 0, (missing,))])
        four = code.reshape(-1, 4)
        return four[:, 0] * 64 + four[:, 1] * 16 + four[:, 2] * 4 + four[:, 3], rest


class TwoBit(Codec):
    """residual += x; from threshold up it sends +threshold, as bits 11, from -threshold down -threshold, as 10, else 0.

    What it sends is taken from the residual. The first element has the highest two bits of the first byte; 16 elements
    are a word of 4 bytes, and the last word is filled with 0.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        if isinstance(threshold, bool) or not threshold > 0 or not math.isfinite(threshold):
            raise ValueError(f"set_gradient_compression: threshold must be positive, got {threshold!r}")
        self.threshold = float(threshold)
        self.parameters = {"type": "2bit", "threshold": self.threshold}
        self._decode = trace(self._unpacked)

    def _unpacked(self, packed: Tensor) -> Tensor:
        bits = [F.bitwise_and(F.bitwise_right_shift(packed, k), 3) for k in (6, 4, 2, 0)]
        code = F.stack(bits, axis=-1).reshape(-1)
        sign = (code == 3).astype("float32") - (code == 2).astype("float32")
        values: Tensor = sign * self.threshold
        return values

    def encode(self, x: Tensor, residual: Tensor | None) -> list[Tensor]:
        with no_grad():
            return [registry.function("two_bit_encode")(x, residual, threshold=self.threshold)]

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        with no_grad():
            values: Tensor = self._decode(parts[0])
            return values if values.size == size else values[:size]


class TopK(Codec):
    """residual += x; sends the `ratio` elements of greatest magnitude, at least one, and sets them to 0 there."""

    def __init__(self, ratio: float = 0.01) -> None:
        if isinstance(ratio, bool) or not 0 < ratio <= 1:
            raise ValueError(f"set_gradient_compression: ratio must be above 0 and at most 1, got {ratio!r}")
        self.ratio = float(ratio)
        self.parameters = {"type": "topk", "ratio": self.ratio}

    def count(self, size: int) -> int:
        """The number of elements, of so many, that are sent."""
        return min(size, max(1, math.ceil(self.ratio * size)))

    def encode(self, x: Tensor, residual: Tensor | None) -> list[Tensor]:
        assert residual is not None
        with no_grad():
            r = residual + x
            _, indices = F.topk(F.abs(r), self.count(x.size))
            values = F.take(r, indices)
            residual[...] = F.index_put(r, zeros(indices.shape, device=x.device), indices, axes=(0,))
            return [indices, values]

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        indices, values = parts
        with no_grad():
            target = zeros(size, device=values.device)
            y: Tensor = F.index_put(target, values, indices, axes=(0,), mode="add")
            return y


class CastCodec(Codec):
    """x rounded to float16 or bfloat16, without a residual."""

    has_residual = False

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.parameters = {"type": {"float16": "fp16", "bfloat16": "bf16"}[dtype]}

    def encode(self, x: Tensor, residual: Tensor | None) -> list[Tensor]:
        with no_grad():
            return [x.astype(self.dtype)]

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        with no_grad():
            return parts[0].astype("float32")


KINDS: dict[Any, tuple[Any, str | None]] = {
    "2bit": (TwoBit, "threshold"),
    "topk": (TopK, "ratio"),
    "fp16": (lambda: CastCodec("float16"), None),
    "bf16": (lambda: CastCodec("bfloat16"), None),
}


def make_codec(parameters: Mapping[str, Any]) -> Codec:
    """{"type": "2bit", "threshold": 0.5}, {"type": "topk", "ratio": 0.01}, {"type": "fp16"} or {"type": "bf16"}.

    Raises TypeError for anything but a dictionary, ValueError for another type or parameter, or a number out of range.
    """
    if not isinstance(parameters, Mapping):
        raise TypeError(f"set_gradient_compression: takes a dictionary, got {type(parameters).__name__}")
    kind = parameters.get("type")
    if kind not in KINDS:
        raise ValueError(
            f"set_gradient_compression: type must be one of {', '.join(map(repr, KINDS))}, got {kind!r}"
        )
    make, option = KINDS[kind]
    rest = {name: value for name, value in parameters.items() if name != "type"}
    if set(rest) - {option}:
        unknown = ", ".join(sorted(set(rest) - {option}))
        raise ValueError(f"set_gradient_compression: {kind} has no parameter {unknown}")
    codec: Codec = make(**rest)
    return codec
