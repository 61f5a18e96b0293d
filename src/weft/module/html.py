"""Modules as HTML: a tree that opens and closes, which notebooks show in the place of repr.

>>> import weft.module as M
>>> text = M.Sequential(M.Linear(2, 3), M.ReLU())._repr_html_()
>>> text.count("<details"), "weight f32[3,2]" in text, "9 parameters" in text
(3, True, True)
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

__all__ = ["module_html"]


def module_html(outline: Iterable[tuple[int, str, Any, str]]) -> str:
    """The tree of what weft.module.module.outline gives: parameters and buffers in the module that has them."""
    parts: list[str] = []
    is_open_at = -1  # depth of the last module
    sizes: dict[int, int] = {}  # of parameters, by id
    for depth, label, module, text in outline:
        parts.append("</details>" * (is_open_at - depth + 1))
        is_open_at = depth
        begin = '<details open="">' if depth == 0 else '<details style="margin-left:1.2em">'
        parts.append(f"{begin}<summary><code>{escape(label + text)}</code></summary>")
        for name, is_parameter, x in () if module is None else module.own_state():
            known = "no size yet" if x is None else f"{x.dtype.short}[{','.join(map(str, x.shape))}]"
            parts.append(f'<div style="margin-left:1.2em"><code>{escape(name)} {known}</code></div>')
            if is_parameter and x is not None:
                sizes[id(x)] = x.size
    total = f"<div><code>{sum(sizes.values()):,} parameters</code></div>"
    return "".join([total, *parts, "</details>" * (is_open_at + 1)])
