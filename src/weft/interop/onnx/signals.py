"""ONNX's operators on signals; complex numbers are pairs along the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray
from weft.interop.onnx.calls import Call, Known, converts, numbers, tensor
from weft.interop.onnx.elementwise import DTYPES


def _spectrum(x: Any, n: int, axis: int, inverse: bool, onesided: bool) -> Any:
    """The transform of [..., 1 or 2] along an axis."""
    if x.shape[-1] == 1 and not inverse:  # half of it, of which the other half is a mirror image
        y = F.rfft(x[..., 0], n=n, axis=axis)
        if not onesided:
            image = F.slice(y, starts=(1,), stops=(n - n // 2,), axes=(axis,))
            y = F.concat(y, F.conj(F.flip(image, axis=axis)), axis=axis)
        return F.view_as_real(y)
    values = x[..., 0] if x.shape[-1] == 1 else F.complex(x[..., 0], x[..., 1])
    y = (F.ifft if inverse else F.fft)(values, n=n, axis=axis)
    if onesided:
        y = F.slice(y, starts=(0,), stops=(n // 2 + 1,), axes=(axis,))
    return F.view_as_real(y)


@converts("DFT")
def dft(call: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    x = tensor(x)
    chosen = call.get("axis", 1) if call.opset < 20 else -2 if axis is None else int(numbers(call, axis))
    chosen = chosen % x.ndim
    is_real = bool(call.get("inverse", 0) and call.get("onesided", 0))
    whole = 2 * (int(x.shape[chosen]) - 1) if is_real else int(x.shape[chosen])
    n = whole if length is None else int(numbers(call, length))
    if is_real:
        return F.expand_dims(F.irfft(F.complex(x[..., 0], x[..., 1]), n=n, axis=chosen), axis=-1)
    return _spectrum(x, n, chosen, bool(call.get("inverse", 0)), bool(call.get("onesided", 0)))


@converts("STFT")
def stft(call: Call, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    x, window, hop = tensor(x), tensor(window), int(numbers(call, step))
    n = int(numbers(call, length)) if length is not None else int(window.shape[0])
    x = F.expand_dims(x, axis=-1) if x.ndim == 2 else x
    count = (int(x.shape[1]) - n) // hop + 1
    places = np.arange(count)[:, None] * hop + np.arange(n)
    frames = F.take(x, asarray(places.reshape(-1)), axis=1).reshape((x.shape[0], count, n, x.shape[2]))
    if window is not None:
        frames = frames * window.reshape((-1, 1))
    return _spectrum(frames, n, 2, False, bool(call.get("onesided", 1)))


@converts("MelWeightMatrix")
def mel_weight_matrix(call: Call, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Known:
    """Triangles over the bins of a spectrum, whose corners are equally far apart in mel."""
    count, n, frequency = (int(numbers(call, v)) for v in (bins, length, rate))
    first, last = (2595 * np.log10(1 + float(numbers(call, v)) / 700) for v in (low, high))
    mel = first + np.arange(count + 2) * ((last - first) / (count + 2))
    corners = ((n + 1) * (700 * (np.power(10, mel / 2595) - 1)) // frequency).astype(int)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rows = np.arange(n // 2 + 1)[:, None]
    rise, fall = middle - left, right - middle
    weights = np.where(rise == 0, rows == middle, (rows - left) / np.where(rise == 0, 1, rise))
    weights = np.where((rows < left) | (rows > middle), 0.0, weights)
    falling = (rows >= middle) & (rows < right)
    weights = np.where(falling, (right - rows) / np.where(fall == 0, 1, fall), weights)
    dtype = DTYPES.get(call.get("output_datatype", 1))
    if dtype is None:
        raise call.fail(f"data type {call.get('output_datatype')} is not supported")
    return Known(weights.astype(dtype))
