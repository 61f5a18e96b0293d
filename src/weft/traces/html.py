"""Traced functions as HTML, which notebooks show in the place of repr: their programs, each with its graph.

>>> import weft as wf
>>> f = wf.trace(lambda x: wf.exp(x) + 1)
>>> y = f(wf.ones(2))
>>> text = f._repr_html_()
>>> "1 program" in text, text.count("<svg"), "Exp" in text
(True, 1, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from weft.graph.drawing import MAX_SHOWN_NODES, graph_svg

__all__ = ["trace_html"]


def trace_html(name: str, programs: Sequence[Any]) -> str:
    """A line with the function and the number of programs; each program: its inputs, its drawing, bytes of its plan."""
    count = f"{len(programs)} program{'' if len(programs) == 1 else 's'}"
    parts = [f"<div><code>{escape(name)}: {count if programs else 'not called yet'}</code>"]
    for k, program in enumerate(programs):
        graph = program.graph
        inputs = ", ".join(str(value.type) for value in graph.inputs[:8])
        more = f", {len(graph.inputs) - 8} more" if len(graph.inputs) > 8 else ""
        summary = f"{k}: {len(graph.nodes)} operators of {inputs}{more}"
        is_small = len(graph.nodes) <= MAX_SHOWN_NODES
        picture = graph_svg(graph) if is_small else f"<pre>{escape(str(graph))}</pre>"
        memory = f"<pre>{escape(str(program.memory_report()))}</pre>"
        is_open = ' open=""' if k == len(programs) - 1 else ""
        parts.append(
            f"<details{is_open}><summary><code>{escape(summary)}</code></summary>{picture}{memory}</details>"
        )
    return "".join([*parts, "</div>"])
