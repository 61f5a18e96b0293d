"""Tensors as HTML, which notebooks show in the place of repr.

>>> import weft as wf
>>> wf.ones((2, 3))._repr_html_().count("<td>")
6
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

__all__ = ["tensor_html"]

EDGE_ROWS, EDGE_COLUMNS = 5, 6  # shown at each end of an axis that has more than twice as many
GAP = "<td>…</td>"


def tensor_html(x: Any, values: np.ndarray[Any, Any]) -> str:
    """A line with shape, dtype and device, and the elements, those in the middle of long axes left out.

    x: the tensor; values: its elements. One or two dimensions are a table with indices, others are written as repr has
    them.
    """
    head = f"tensor {x.dtype}[{', '.join(map(str, x.shape))}] {x.device}"
    return f"<div><code>{escape(head)}</code>{_elements(values)}</div>"


def _elements(values: np.ndarray[Any, Any]) -> str:
    if values.ndim not in (1, 2) or not values.size:
        return f"<pre>{escape(np.array2string(values, separator=', '))}</pre>"
    rows = values.reshape(-1, values.shape[-1])
    row_numbers, column_numbers = (
        _shown(n, edge) for n, edge in zip(rows.shape, (EDGE_ROWS, EDGE_COLUMNS), strict=True)
    )
    part = rows[np.ix_([k for k in row_numbers if k >= 0], [k for k in column_numbers if k >= 0])]
    texts = iter(_texts(part))
    lines = ["".join(["<th></th>", *(f"<th>{k}</th>" if k >= 0 else GAP for k in column_numbers)])]
    for k in row_numbers:
        cells = [GAP if min(k, c) < 0 else f"<td>{escape(next(texts))}</td>" for c in column_numbers]
        head = "" if values.ndim == 1 else k if k >= 0 else "…"
        lines.append("".join([f"<th>{head}</th>", *cells]))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _shown(size: int, edge: int) -> Sequence[int]:
    """The indices of an axis that are shown, and -1 for those left out."""
    return range(size) if size <= 2 * edge else [*range(edge), -1, *range(size - edge, size)]


def _texts(values: np.ndarray[Any, Any]) -> list[str]:
    """The elements in row-major order, with digits as NumPy writes them together."""
    text = np.array2string(
        values.reshape(-1), separator="\n", threshold=sys.maxsize, max_line_width=sys.maxsize
    )
    return [line.strip() for line in text[1:-1].split("\n")]
