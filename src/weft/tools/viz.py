"""Pictures of a program: its graph before and after each pass that changes it, its steps, and its memory.

    python -m weft.tools.viz PROGRAM [--out FOLDER]

PROGRAM: a file that Trace.export wrote, or a graph as JSON (weft.graph.text). Writes index.html, which shows all, into
FOLDER (by default beside the program, with the ending .viz), and an SVG for each picture.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from weft.arrays.serialization import FileFormatError
from weft.executor.plan_info import MemoryReport
from weft.executor.planner import make_plan
from weft.graph.drawing import Box, Edge, boxes_of, svg
from weft.graph.graph import Graph
from weft.graph.passes import PASSES
from weft.graph.rewrite import rewrite
from weft.graph.text import from_json
from weft.ops.node import Node
from weft.traces.export import graphs_in

__all__ = ["graph_svg", "main", "memory_svg", "stages"]

LARGEST = 400  # nodes of a graph that is drawn; larger ones are listed only


def graph_svg(graph: Graph) -> str:
    """A graph as SVG: inputs round, operators as boxes, results marked.

    >>> from weft.base.dtype import float32
    >>> from weft.graph.graph import graph_of
    >>> from weft.ops.types import TensorType
    >>> import weft.ops.functions as F
    >>> picture = graph_svg(graph_of(lambda x: F.exp(x) + 1, [TensorType((2,), float32)]))
    >>> [word in picture for word in ("Exp", "f32[2]", "result 0")]
    [True, True, True]
    """
    names = {id(value.node): f"x{k}" for k, value in enumerate(graph.inputs)}

    def box(node: Node) -> Box:
        if node.op is None:
            return Box((names[id(node)], str(node.outputs[0].type)), "input", round=True)
        attributes = ", ".join(f"{k}={v!r}" for k, v in node.op.values().items())
        lines = (type(node.op).__name__, shorten(attributes), shorten(node.where))
        return Box(tuple(line for line in lines if line), node.op.family)

    nodes = [*(v.node for v in graph.inputs), *(node for node in graph.nodes if node.op is not None)]
    boxes, edges = boxes_of(nodes, box, _sizes)
    index = {id(node): k for k, node in enumerate(nodes)}
    for k, output in enumerate(graph.outputs):
        if output is None or id(output.node) not in index:
            continue
        edges.append(Edge(index[id(output.node)], len(boxes), _sizes(output)))
        target = graph.writes.get(k)
        boxes.append(Box((f"result {k}" if target is None else f"into x{target}",), "output", round=True))
    return svg(boxes, edges)


def _sizes(value: Any) -> str:
    return f"[{','.join(map(str, value.shape))}]"


def shorten(text: str, limit: int = 48) -> str:
    """The text, cut off with dots behind so many characters."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def memory_svg(report: MemoryReport) -> str:
    """The blocks of a program's arena: steps from left to right, addresses from top to bottom.

    >>> from weft.executor.plan_info import Lifetime
    >>> report = MemoryReport(64, 64, 64, 64, 64, (Lifetime("exp", 64, 0, 0, 1),))
    >>> memory_svg(report).count("<rect")
    1
    """
    width, height = 900.0, 320.0
    steps = max((life.last for life in report.lifetimes), default=0) + 1
    scale = height / max(report.arena_bytes, 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" font-size="9px">'
    ]
    for k, life in enumerate(report.lifetimes):
        x, w = life.first / steps * width, (life.last - life.first + 1) / steps * width
        y, h = life.offset * scale, max(life.size_bytes * scale, 1.0)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="hsl({k * 47 % 360} 60% 75%)" stroke="#555" stroke-width="0.4">'
            f"<title>{escape(life.text)}: {life.size_bytes} bytes, steps {life.first} to {life.last}</title></rect>"
        )
    return "".join([*parts, "</svg>"])


def stages(graph: Graph) -> list[tuple[str, str, Graph]]:
    """(name, reason, graph): as written, then after each pass that changes it.

    >>> from weft.base.dtype import float32
    >>> from weft.graph.graph import graph_of
    >>> from weft.ops.types import TensorType
    >>> import weft.ops.functions as F
    >>> [name for name, *_ in stages(graph_of(lambda x: F.exp(x) + F.exp(x), [TensorType((2,), float32)]))]
    ['as written', 'after common_subexpressions']
    """
    results = [("as written", "", graph)]
    for each in PASSES:
        changed = rewrite(graph, each.rule)
        if changed is not graph:
            graph = changed
            results.append((f"after {each.name}", each.reason, graph))
    return results


def page(name: str, graph: Graph, strides: Sequence[Any], folder: Path) -> list[str]:
    """The parts of a page on one program; its pictures are written into the folder."""
    parts = [f"<h1>{escape(name)}</h1>"]
    for k, (title, _, stage) in enumerate(stages(graph)):
        parts.append(
            f"<h2>{escape(title)}: {sum(node.op is not None for node in stage.nodes)} operators</h2>"
        )
        if len(stage.nodes) <= LARGEST:
            picture = f"{name}-{k}.svg"
            (folder / picture).write_text(graph_svg(stage))
            parts.append(f'<p><img src="{escape(picture)}"></p>')
        parts.append(f"<details><summary>text</summary><pre>{escape(str(stage))}</pre></details>")
        last = stage
    info = make_plan(last, name, strides, exact=True, as_tuple=True).info
    steps = "\n".join(f"{k:4} {text}" for k, text in enumerate(info.steps))
    parts.append(f"<h2>{len(info.steps)} steps</h2><pre>{escape(steps)}</pre>")
    report = info.memory_report()
    parts.append(f"<h2>Memory inside</h2><pre>{escape(str(report))}</pre>{memory_svg(report)}")
    return parts


def programs_in(path: Path) -> Sequence[tuple[str, Graph, Sequence[Any]]]:
    """(name, graph, strides of its arrays) for each program of a file."""
    try:
        return graphs_in(path)
    except FileFormatError:
        return [(path.stem, from_json(path.read_text()), ())]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.tools.viz", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("program", type=Path, help="a file of Trace.export, or a graph as JSON")
    parser.add_argument("--out", type=Path, help="the folder to write to")
    options = parser.parse_args(arguments)
    folder = options.out or options.program.with_suffix(".viz")
    programs = programs_in(options.program)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [part for program in programs for part in page(*program, folder)]
    text = "\n".join(['<!doctype html><meta charset="utf-8"><title>weft</title>', *parts])
    (folder / "index.html").write_text(text)
    print(f"{folder / 'index.html'}: {len(programs)} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
