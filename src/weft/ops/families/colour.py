"""Images in other colours, channels last."""

from __future__ import annotations

import itertools
from typing import Any

from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed, weighted_sum
from weft.ops.families.sampling_grid import component
from weft.ops.op import op
from weft.ops.pointwise import cast_to

GRAY = (0.299, 0.587, 0.114)
# Rows give y, u, v of r, g, b, and r, g, b of y, u, v, where u and v have the middle of the range added.
TO_YUV = (GRAY, (-0.147, -0.289, 0.436), (0.615, -0.515, -0.1))
FROM_YUV = ((1.0, 0.0, 1.14), (1.0, -0.395, -0.581), (1.0, 2.032, 0.0))
CHANNELS = {"RGB": 3, "BGR": 3, "YUV": 3, "GRAY": 1}
MODES = tuple(f"{a}2{b}" for a, b in itertools.permutations(CHANNELS, 2) if {a, b} != {"GRAY", "YUV"})


@op
class CvtColor(Composed, family="image", rule="x: number -> y: x", positional=("mode",)):
    """Images in other colours: "RGB2GRAY", "BGR2GRAY", "GRAY2RGB", "GRAY2BGR", "RGB2BGR", "BGR2RGB", "RGB2YUV", ...

    x: floats or uint8 [..., c], c = 3 or 1 channels on the last axis; mode: from RGB, BGR, GRAY or YUV to another one,
    but not between GRAY and YUV. Gray is 0.299 r + 0.587 g + 0.114 b; y is gray, u = 0.492 (b - y) and v = 0.877 (r -
    y), to three digits, plus the middle: 0.5, or 128 of uint8, which is computed in float32, rounded, and cut at 0 and
    255. Returns x's dtype [..., c']. Raises ShapeError for another number of channels, ValueError for another mode,
    DTypeError for other integers.
    Source: ITU-R BT.601, in OpenCV's numbers; MegEngine's cvt_color.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cvt_color(wf.tensor([[255, 0, 0]], dtype="uint8"), "RGB2GRAY")
    tensor([[76]], dtype=uint8, device=cpu:0)
    """

    mode: str

    def check(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"{self.name}: mode must be one of {', '.join(MODES)}, got {self.mode!r}")

    def decompose(self, x: Any) -> Any:
        before, after = self.mode.split("2")
        if x.ndim < 1 or x.shape[-1] != CHANNELS[before]:
            raise self.fail(
                ShapeError, f"{self.mode} takes {CHANNELS[before]} channels on the last axis", x=x.type
            )
        is_byte = x.dtype.name == "uint8"
        if not is_byte and not x.dtype.is_floating:
            raise self.fail(DTypeError, "takes floats and uint8", x=x.type)
        parts = [component(x, k) for k in range(CHANNELS[before])]
        if "GRAY" not in (before, after) and "YUV" not in (before, after):
            return F.stack(parts[::-1], axis=-1)
        if before == "GRAY":
            return F.stack(parts * 3, axis=-1)
        wide = [F.cast(v, dtype="float32") if is_byte else cast_to(v, x.dtype.accumulation) for v in parts]
        y = self.mixed(wide, before, after, 128.0 if is_byte else 0.5)
        if is_byte:
            y = F.clip(F.round(y), 0.0, 255.0)
        return cast_to(y, x.dtype)

    def mixed(self, parts: list[Any], before: str, after: str, middle: float) -> Any:
        """Gray, or three channels that are sums of three."""
        if before == "YUV":
            y, u, v = parts
            parts = [
                weighted_sum(list(zip(row, (y, u - middle, v - middle), strict=True))) for row in FROM_YUV
            ]
            return F.stack(parts[::-1] if after == "BGR" else parts, axis=-1)
        parts = parts[::-1] if before == "BGR" else parts
        rows = (GRAY,) if after == "GRAY" else TO_YUV
        sums = [weighted_sum(list(zip(row, parts, strict=True))) for row in rows]
        return F.stack([sums[0], *(v + middle for v in sums[1:])], axis=-1)


__all__ = ["CvtColor"]
