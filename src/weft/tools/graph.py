"""Show a program, a symbol or a module as an interactive picture: modules, passes, kernels, layouts, memory.

    python -m weft.tools.graph PROGRAM [--out FILE] [--no-open]

PROGRAM: a file of Trace.export, a graph as JSON (weft.graph.text) or a symbol as JSON (Symbol.save). FILE: .html for
the page, which needs no network; .svg for a picture of the graph as it is after all passes.
"""

from __future__ import annotations

import argparse
import html
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.arrays.serialization import FileFormatError
from weft.base.device import cpu
from weft.base.dtype import float32
from weft.base.errors import GraphError
from weft.executor.buffers import row_major
from weft.executor.lowering import Lowering
from weft.executor.plan_info import MemoryReport
from weft.executor.planner import make_plan
from weft.graph.drawing import graph_svg, shorten
from weft.graph.graph import Graph
from weft.graph.passes import PASSES
from weft.graph.rewrite import rewrite
from weft.graph.text import from_json
from weft.module.module import Module
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType
from weft.symbol.lower import lower
from weft.symbol.placement import Placement
from weft.symbol.symbol import Symbol, load
from weft.tools.page import as_json, fill_template, part
from weft.traces.export import graphs_in
from weft.traces.trace import Trace, trace

__all__ = ["draw", "graph_page", "main"]

Program = tuple[str, Graph, Sequence[Any]]  # name, graph as it was written, strides of its arrays


def programs_of(thing: Any, *inputs: Any, **shapes: Any) -> list[Program]:
    """The programs of a traced function, a module or function called with inputs, a symbol with shapes, or a Graph.

    Raises TypeError for anything else, GraphError for a traced function that was not called.
    """
    if isinstance(thing, Graph):
        return [("graph", thing, ())]
    if isinstance(thing, Symbol):
        return [_of_symbol(thing, shapes)]
    if isinstance(thing, Module) or (callable(thing) and not isinstance(thing, Trace)):
        if not inputs:
            raise TypeError(
                f"graph: {type(thing).__name__} is shown by what it does: give the inputs of a call"
            )
        traced = trace(thing if not isinstance(thing, Module) else lambda *args: thing(*args))
        traced.name = type(thing).__name__ if isinstance(thing, Module) else traced.name
        traced(*inputs)
        return programs_of(traced)
    if not isinstance(thing, Trace):
        raise TypeError(
            f"graph: takes a traced function, a Module or function with inputs, or a Symbol, got {type(thing).__name__}"
        )
    programs = [
        (f"{thing.name} {k}" if len(thing.programs) > 1 else thing.name, each.graph, each.strides)
        for k, each in enumerate(thing.programs)
        if hasattr(each, "graph")
    ]
    if not programs:
        raise GraphError(f"graph: {thing.name} has no program of exact sizes: call it first")
    return programs


def _of_symbol(symbol: Symbol, shapes: dict[str, Any]) -> Program:
    arguments, _, states = symbol.infer_shape(**shapes)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    types = {
        name: TensorType(tuple(shape), float32)
        for name, shape in zip(names, [*arguments, *states], strict=True)
    }
    lowered = lower(symbol.values, types, False, Placement(symbol.values, cpu(0), {}))
    outputs = [lowered[value] for value in symbol.values]
    return (
        symbol.name,
        Graph([*(lowered.inputs[name] for name in names), *lowered.constants.values()], outputs),
        (),
    )


def _document(program: Program) -> dict[str, Any]:
    name, graph, strides = program
    versions = stages(graph)
    last = versions[-1][2]
    steps, step_of, memory = _steps(name, last, strides)
    layouts = _layouts(name, last, strides)
    return {
        "name": name,
        "steps": steps,
        "memory": memory,
        "start": 0,
        "stages": [
            {
                "name": title,
                "reason": reason,
                "operators": sum(node.op is not None for node in stage.nodes),
                "text": str(stage),
                **_picture(stage, step_of if stage is last else {}, layouts if stage is last else {}),
            }
            for title, reason, stage in versions
        ],
    }


def _steps(name: str, graph: Graph, strides: Sequence[Any]) -> tuple[list[str], dict[int, int], str]:
    """The kernels of a graph's plan as text; for each node, by id, the kernel that does its work; its memory."""
    try:
        info = make_plan(graph, name, strides, exact=True, as_tuple=True).info
    except (NeedsSizes, NotImplementedError):
        return [], {}, ""
    kernel_of = {id(node): k for k, work in enumerate(info.work) for node in work.nodes}
    report = info.memory_report()
    memory = f"<pre class=mono>{html.escape(str(report))}</pre>{memory_svg(report)}"
    return [*info.hoisted, *info.steps], kernel_of, memory


def _layouts(name: str, graph: Graph, strides: Sequence[Any]) -> dict[int, str]:
    """Strides of arrays that are not row-major, by id of the value."""
    try:
        lowering = Lowering(graph, name, strides, exact=True)
        lowering.run()
    except (NeedsSizes, NotImplementedError):
        return {}
    layouts = {}
    for node in graph.nodes:
        for value in node.outputs:
            view = lowering.views.get(id(value))
            if view is not None and tuple(view.strides) != row_major(value.shape):
                layouts[id(value)] = _order(value.shape, view.strides)
    return layouts


def _order(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The layout in a word: for images of 4 dimensions nhwc is what others call channels last."""
    if any(s == 0 for n, s in zip(shape, strides, strict=True) if n > 1):
        return "repeated"
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    if order == list(range(len(shape))):
        return "with gaps"
    letters = {3: "ncw", 4: "nchw", 5: "ncdhw"}.get(len(shape), "abcdefghijklmnop")
    return "".join(letters[d] for d in order)


def _picture(graph: Graph, step_of: dict[int, int], layouts: dict[int, str]) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[int, int, str]] = []
    box_of: dict[int, int] = {}

    def add(name: str, kind: str, lines: list[str], **facts: Any) -> int:
        texts: dict[str, Any] = dict.fromkeys(("module", "where", "attributes", "device"), "")
        empty = {**texts, "types": [], "step": None, "own": None}
        nodes.append({"name": name, "kind": kind, "lines": lines, **empty, **facts})
        return len(nodes) - 1

    def label(value: Any) -> str:
        text = str(value.type).split("@")[0]
        return f"{text} {layouts[id(value)]}" if id(value) in layouts else text

    for k, value in enumerate(graph.inputs):
        name = value.node.name if not value.node.name.startswith("x") else f"x{k}"
        box_of[id(value)] = add(name, "input", [name, label(value)], types=[str(value.type)])
    for node in graph.nodes:
        if node.op is None:
            continue
        attributes = ", ".join(f"{k}={v!r}" for k, v in node.op.values().items())
        lines = [node.op.name, *([shorten(attributes, 40)] if attributes else [])]
        box = add(
            node.op.name,
            node.op.family or "other",
            lines,
            module=getattr(node.where, "module", ""),
            where=str(node.where),
            attributes=attributes,
            types=[label(v) for v in node.outputs],
            step=step_of.get(id(node)),
            device=str(node.device or ""),
        )
        edges += [(box_of[id(v)], box, label(v)) for v in node.reads if id(v) in box_of]
        box_of.update(dict.fromkeys(map(id, node.outputs), box))
    for k, output in enumerate(graph.outputs):
        if output is None or id(output) not in box_of:
            continue
        target = graph.writes.get(k)
        name = f"result {k}" if target is None else f"into x{target}"
        box = add(name, "output", [name], types=[str(output.type)])
        edges.append((box_of[id(output)], box, label(output)))
    _place_in_modules(graph, nodes, edges)
    _fold(graph, box_of, nodes)
    return {"nodes": nodes, "edges": edges}


def _place_in_modules(graph: Graph, nodes: list[dict[str, Any]], edges: list[tuple[int, int, str]]) -> None:
    """Give boxes without a module that of what they belong to, so that a closed module holds its running statistics.

    An operator that a transformation has added belongs to what it reads, a written array to what is written there, an
    array that several operators of one module alone read to that. The boxes are in an order in which each comes behind
    what it reads, but for inputs, which come first.
    """
    sources: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for begin, end, _ in edges:
        sources.setdefault(end, []).append(begin)
        readers.setdefault(begin, []).append(end)
    names = {f"into x{target}": f"x{target}" for target in graph.writes.values()}
    for k, node in enumerate(nodes):
        is_written = node["kind"] == "output" and node["name"] in names
        if not node["module"] and (is_written or node["kind"] not in ("input", "output")):
            node["module"] = max(
                (nodes[source]["module"] for source in sources.get(k, ())), key=len, default=""
            )
    for k, node in enumerate(nodes):
        if node["kind"] == "input" and (node["name"] in names.values() or len(readers.get(k, ())) > 1):
            modules = {nodes[reader]["module"] for reader in readers.get(k, ())}
            node["module"] = modules.pop() if len(modules) == 1 else ""


def _fold(graph: Graph, box_of: dict[int, int], nodes: list[dict[str, Any]]) -> None:
    """Inputs that one operator reads, not in the first place, are its own: parameters, mostly."""
    readers: dict[int, set[int]] = {}
    for node in graph.nodes:
        for k, value in enumerate(node.reads):
            if node.op is not None and id(value) in box_of:
                reader = box_of[id(node.outputs[0])]
                readers.setdefault(id(value), set()).update({reader} if k else {reader, -1})
    result_ids = {id(v) for v in graph.outputs}
    for value in graph.inputs:
        reader_boxes = readers.get(id(value), set())
        if len(reader_boxes) == 1 and id(value) not in result_ids:
            nodes[box_of[id(value)]]["own"] = next(iter(reader_boxes))


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
            f"<title>{html.escape(life.text)}: {life.size_bytes} bytes, steps {life.first} to {life.last}</title>"
            "</rect>"
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


def graph_page(programs: Sequence[Program]) -> str:
    """The page that shows programs."""
    data = as_json({"programs": [_document(program) for program in programs]})
    return fill_template("graph.html", STYLE=part("style.css"), DATA=data, SCRIPT=part("graph.js"))


def draw(thing: Any, *inputs: Any, path: str | os.PathLike[str] = "graph.html", **shapes: Any) -> Path:
    """Write a picture of a traced function, of a Module or function called with inputs, or of a Symbol with shapes.

    path: ends in .html for the interactive page, in .svg for one picture, of the first program after all passes.
    Returns the path. Raises ValueError for another ending, what programs_of raises.

    >>> import tempfile, weft as wf
    >>> import weft.module as M
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(M.Sequential(M.Linear(4, 3), M.ReLU()), wf.ones((2, 4)), path=f"{folder}/net.html").name
    'net.html'
    """
    target = Path(path)
    if target.suffix not in (".html", ".svg"):
        raise ValueError(f"draw: path must end in .html or .svg, got {str(target)!r}")
    programs = programs_of(thing, *inputs, **shapes)
    write(target, programs)
    return target


def write(target: Path, programs: Sequence[Program]) -> None:
    """Write the page, or the picture of the first program."""
    if target.suffix == ".svg":
        target.write_text(graph_svg(stages(programs[0][1])[-1][2]))
    else:
        target.write_text(graph_page(programs))


def programs_in(path: Path) -> Sequence[tuple[str, Graph, Sequence[Any]]]:
    """(name, graph, strides of its arrays) for each program of a file."""
    try:
        return graphs_in(path)
    except FileFormatError:
        return [(path.stem, from_json(path.read_text()), ())]


def read(path: Path, shapes: dict[str, Any] | None = None) -> list[Program]:
    """The programs of a file; shapes: of a symbol's variables. Raises FileFormatError or GraphError for other files."""
    try:
        return list(programs_in(path))
    except (GraphError, FileFormatError) as problem:
        try:
            symbol = load(path)
        except GraphError:
            raise problem from None
        return [_of_symbol(symbol, shapes or {})]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.tools.graph", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "program", type=Path, help="a file of Trace.export, of Symbol.save, or a graph as JSON"
    )
    parser.add_argument("--out", type=Path, help="what to write, .html or .svg (beside the program, .html)")
    parser.add_argument("--no-open", action="store_true", help="only print where the page is")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=N,N",
        help="of a symbol's variable; may be repeated",
    )
    options = parser.parse_args(arguments)
    try:
        parts = (each.partition("=") for each in options.shape)
        shapes = {name: tuple(int(n) for n in sizes.split(",") if n) for name, _, sizes in parts}
    except ValueError:
        parser.error(f"--shape takes name=sizes, such as data=8,32; got {' '.join(options.shape)}")
    if not options.program.is_file():
        parser.error(f"there is no file {options.program}")
    target = options.out or options.program.with_suffix(".html")
    if target.suffix not in (".html", ".svg"):
        parser.error(f"--out must end in .html or .svg, got {target}")
    write(target, read(options.program, shapes))
    print(target.resolve())
    if not options.no_open:
        webbrowser.open(target.resolve().as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(main())
