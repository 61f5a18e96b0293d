"""Kernels of weft.ops.families.convolution on processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.dtype import DType
from weft.kernels import kernel
from weft.ops.families.convolution import Convolution
from weft.ops.families.matrix import has_sizes, is_matrix_float
from weft.ops.families.window import Windows
from weft.ops.kernels import CHANNELS_LAST, Native
from weft.ops.types import TensorType


def native_windows(windows: Windows, groups: int) -> dict[str, Any]:
    """Keywords of the native core."""
    return {
        "stride": list(windows.stride),
        "padding": windows.padding,
        "dilation": list(windows.dilation),
        "groups": groups,
    }


def of_any_size(of: str, dtype: DType, keywords: dict[str, Any], layout: str) -> Native:
    """The kernel for all sizes. of: "dst", "src" or "weights", as the native core calls it."""
    # Of a padding that follows from the window's size the numbers are read.
    keywords["padding"] = [(int(low), int(high)) for low, high in keywords["padding"]]
    return Native(
        lambda *_: _core.onednn_convolution_of_any_size(dtype, of=of, **keywords),
        exact=False,
        layouts=(layout,),
    )


@kernel(Convolution, provider="onednn")
def convolution(
    op: Convolution, x: TensorType, weight: TensorType, bias: TensorType | None = None
) -> Iterator[Native]:
    if not is_matrix_float(x, weight, bias):
        return
    keywords = native_windows(op.windows(weight), op.groups)
    if has_sizes(x, weight):
        keywords["bias"] = bias is not None
        yield of_any_size("dst", x.dtype, keywords, CHANNELS_LAST)
        return

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        operand = inputs[2] if bias is not None else None
        return _core.onednn_convolution(inputs[0], inputs[1], outputs[0], bias=operand, **keywords, **options)

    packed = ((1, tuple(range(weight.ndim))),)
    yield Native(make, layouts=(CHANNELS_LAST,), options=("accumulate", "post_ops"), packed=packed)
