"""What reading a model may take: memory in proportion to its files, so that a small file cannot ask for much.

Constants that a file has are counted before they are read. What follows from constants alone is computed while a model
is loaded only where the size of the result is known beforehand (result_size) and there is room for it; else each call
computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.interop.onnx.calls import Call
from weft.interop.onnx.elementwise import BINARY, UNARY

__all__ = ["MAX_STEPS", "PER_BYTE", "Room", "result_size"]

FREE_BYTES, PER_BYTE = 64 << 20, 16
MAX_STEPS = (
    1 << 20
)  # nodes, after functions were replaced by what they are made of: those may call each other
ITEM_BYTES = 8


class Room:
    """The bytes that constants may take yet: 16 times those of the files, and 64 MiB."""

    def __init__(self, file_bytes: int) -> None:
        self.left = FREE_BYTES + PER_BYTE * file_bytes
        self._files: set[str] = set()

    def add_file(self, path: str, size_bytes: int) -> None:
        """A file of constants beside the model's, once."""
        if path not in self._files:
            self._files.add(path)
            self.left += PER_BYTE * size_bytes

    def take(self, count: int, item_bytes: int = ITEM_BYTES) -> bool:
        """Whether so many elements have room, which is theirs from now on."""
        if count * item_bytes > self.left:
            return False
        self.left -= count * item_bytes
        return True


def _first(call: Call, x: Any, *more: Any) -> int:
    return int(x.size)


def _broadcast(call: Call, *x: Any) -> int:
    return math.prod(np.broadcast_shapes(*(a.shape for a in x if a is not None)))


def _product(call: Call, *x: Any) -> int:
    """At most each element of the one with each of the other."""
    a, b = x[:2]
    inner = max(1, a.shape[-1] if a.ndim else 1)
    return int(a.size * b.size // inner)


def _numbers(x: Any) -> list[int]:
    return [int(n) for n in x.ravel()]


def _gathered(call: Call, x: Any, indices: Any) -> int:
    axis = call.get("axis", 0)
    return int(indices.size * x.size // max(1, x.shape[axis]))


def _gathered_points(call: Call, x: Any, indices: Any) -> int:
    rest = x.shape[call.get("batch_dims", 0) + indices.shape[-1] :]
    return math.prod(indices.shape[:-1]) * math.prod(rest)


def _range(call: Call, start: Any, limit: Any, delta: Any) -> int:
    return max(0, math.ceil((limit.item() - start.item()) / delta.item()))


def _expanded(call: Call, x: Any, target: Any) -> int:
    return math.prod(max(n, 1) for n in _numbers(target)) * int(x.size)


def _padded(call: Call, x: Any, pads: Any = None, *more: Any) -> int:
    widths = call.get("pads") if pads is None else _numbers(pads)
    axes = more[1] if len(more) > 1 and more[1] is not None else np.arange(x.ndim)
    sizes = list(x.shape)
    for k, axis in enumerate(_numbers(axes)):
        sizes[axis] += max(0, widths[k]) + max(0, widths[k + len(axes)])
    return math.prod(sizes)


_LIKE_FIRST = """
    Cast CastLike Clip Compress CumProd CumSum Dropout EyeLike Flatten GatherElements Gelu Elu Selu Celu HardSigmoid
    Hardmax IsInf LeakyRelu LogSoftmax LpNormalization ReverseSequence ScatterElements Scatter ScatterND Shrink Slice
    Softmax Split Squeeze Swish ThresholdedRelu TopK Transpose Trilu Unsqueeze Reshape Identity Unique ArgMax ArgMin
    ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp
    DepthToSpace SpaceToDepth
"""
_BROADCAST = "Div Pow Mod BitShift Sum Max Min Mean Where PRelu QuantizeLinear DequantizeLinear"
_SIZES: dict[str, Callable[..., int]] = {
    **dict.fromkeys((*_LIKE_FIRST.split(), *UNARY), _first),
    **dict.fromkeys((*_BROADCAST.split(), *BINARY), _broadcast),
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger"), _product),
    "Constant": lambda call: 0,  # the file has it
    "Shape": lambda call, x: x.ndim,
    "Size": lambda call, x: 1,
    "Concat": lambda call, *x: sum(a.size for a in x),
    "ConstantOfShape": lambda call, shape: math.prod(_numbers(shape)),
    "Expand": _expanded,
    "Gather": _gathered,
    "GatherND": _gathered_points,
    "NonZero": lambda call, x: x.ndim * x.size,
    "OneHot": lambda call, indices, depth, values: indices.size * int(depth.ravel()[0]),
    "Pad": _padded,
    "Range": _range,
    "Tile": lambda call, x, repeats: x.size * math.prod(_numbers(repeats)),
    "MelWeightMatrix": lambda call, bins, length, *more: int(bins) * (int(length) // 2 + 1),
}


def result_size(call: Call, arrays: Sequence[Any]) -> int | None:
    """How many elements a result of known arrays has at most; None where only computing it tells."""
    if call.operator not in _SIZES:
        return None
    try:
        return _SIZES[call.operator](call, *arrays)
    except (AttributeError, TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return 0  # operands that the conversion refuses
