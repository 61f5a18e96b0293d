"""ONNX's operators that make arrays of files and of words, on the host: they wait for their operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.data.images import decode
from weft.interop.onnx.calls import Call, Known, converts, numbers
from weft.interop.onnx.elementwise import text


@converts("ImageDecoder")
def image_decoder(call: Call, content: Any) -> Known:
    """The picture of a file's bytes, u8[h, w, c]."""
    channels = text(call.get("pixel_format", "RGB"))
    if channels not in ("RGB", "BGR", "Grayscale"):
        raise call.fail(f"pixel_format {channels!r} is not supported")
    picture = decode(
        numbers(call, content).astype(np.uint8).tobytes(), "L" if channels == "Grayscale" else "RGB"
    )
    return Known(picture[..., ::-1] if channels == "BGR" else picture)


@converts("TfIdfVectorizer")
def tf_idf(call: Call, x: Any) -> Known:
    """How often each sequence of numbers of a pool occurs in a row, with up to max_skip_count numbers left out."""
    if call.get("pool_int64s") is None:
        raise call.fail("texts are not supported")
    rows = numbers(call, x)
    columns, weights = call.get("ngram_indexes"), call.get("weights")
    known = _pool(call)
    result = np.zeros((*rows.shape[:-1], max(columns) + 1), np.float32)
    flat = result.reshape(-1, result.shape[-1])
    for counts, row in zip(flat, rows.reshape(len(flat), -1), strict=True):
        for sequence in _sequences(call, row.tolist()):
            if sequence in known:
                counts[columns[known[sequence]]] += 1
    mode = text(call.get("mode"))
    if mode != "TF":
        factors = np.ones(result.shape[-1], np.float32)
        if weights is not None:
            factors[list(columns)] = weights
        result = (result if mode == "TFIDF" else (result > 0)) * factors
    return Known(result.astype(np.float32))


def _pool(call: Call) -> dict[tuple[int, ...], int]:
    """The number of each sequence of the pool, which has those of one number first, then those of two, ..."""
    pool, starts = call.get("pool_int64s"), [*call.get("ngram_counts")]
    known: dict[tuple[int, ...], int] = {}
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(start, end, length):
            known[tuple(pool[at : at + length])] = len(known)
    return known


def _sequences(call: Call, row: list[int]) -> list[tuple[int, ...]]:
    """The sequences of a row of all lengths, with steps of 1 to max_skip_count + 1 between their numbers."""
    found: list[tuple[int, ...]] = []
    for length in range(call.get("min_gram_length"), call.get("max_gram_length") + 1):
        for step in range(1, call.get("max_skip_count") + 2 if length > 1 else 2):
            starts = range(len(row) - (length - 1) * step)
            found += [tuple(row[start + k * step] for k in range(length)) for start in starts]
    return found
