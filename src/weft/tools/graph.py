"""Show a program, a symbol or a module as an interactive picture: modules to open and close, passes, kernels, layouts.

    python -m weft.tools.graph PROGRAM [--out FILE] [--no-open]

PROGRAM: a file of Trace.export, a graph as JSON (weft.graph.text) or a symbol as JSON (Symbol.save). FILE: .html for
the page, which needs no network; .svg for a picture of the graph as it is after all passes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.base.device import cpu
from weft.base.dtype import float32
from weft.base.errors import GraphError
from weft.executor.buffers import row_major
from weft.executor.lowering import Lowering
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.graph.passes import PASSES
from weft.graph.rewrite import rewrite
from weft.imperative.serialization import FileFormatError
from weft.imperative.trace import Trace, trace
from weft.module.module import Module
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType
from weft.symbol.lower import lower
from weft.symbol.placement import Placement
from weft.symbol.symbol import Symbol, load
from weft.tools.page import as_json, filled, part
from weft.tools.viz import graph_svg, programs_in

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
    found = [
        (f"{thing.name} {k}" if len(thing.programs) > 1 else thing.name, each.graph, each.strides)
        for k, each in enumerate(thing.programs)
        if hasattr(each, "graph")
    ]
    if not found:
        raise GraphError(f"graph: {thing.name} has no program of exact sizes: call it first")
    return found


def _of_symbol(symbol: Symbol, shapes: dict[str, Any]) -> Program:
    given, _, states = symbol.infer_shape(**shapes)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    types = {
        name: TensorType(tuple(shape), float32) for name, shape in zip(names, [*given, *states], strict=True)
    }
    made = lower(symbol.values, types, False, Placement(symbol.values, cpu(0), {}))
    outputs = [made[value] for value in symbol.values]
    return (symbol.name, Graph([made.inputs[name] for name in names], outputs), ())


def stages_of(graph: Graph) -> list[tuple[str, str, Graph]]:
    """(name, reason, graph): as written, then after each pass that changes it."""
    found = [("as written", "", graph)]
    for each in PASSES:
        changed = rewrite(graph, each.rule)
        if changed is not graph:
            graph = changed
            found.append((f"after {each.name}", each.reason, graph))
    return found


def _document(program: Program) -> dict[str, Any]:
    name, graph, strides = program
    stages = stages_of(graph)
    last = stages[-1][2]
    steps, step_of = _steps(name, last, strides)
    layouts = _layouts(name, last, strides)
    return {
        "name": name,
        "steps": steps,
        "start": 0,
        "stages": [
            {
                "name": title,
                "reason": reason,
                "operators": sum(node.op is not None for node in stage.nodes),
                "text": str(stage),
                **_picture(stage, step_of if stage is last else {}, layouts if stage is last else {}),
            }
            for title, reason, stage in stages
        ],
    }


def _steps(name: str, graph: Graph, strides: Sequence[Any]) -> tuple[list[str], dict[int, int]]:
    """The kernels of a graph's plan as text, and for each node, by id, the kernel that does its work."""
    try:
        info = make_plan(graph, name, strides, exact=True, as_tuple=True).info
    except (NeedsSizes, NotImplementedError):
        return [], {}
    of = {id(node): k for k, work in enumerate(info.work) for node in work.nodes}
    return [*info.hoisted, *info.steps], of


def _layouts(name: str, graph: Graph, strides: Sequence[Any]) -> dict[int, str]:
    """Strides of arrays that are not row-major, by id of the value."""
    try:
        lowering = Lowering(graph, name, strides, exact=True)
        lowering.run()
    except (NeedsSizes, NotImplementedError):
        return {}
    found = {}
    for node in graph.nodes:
        for value in node.outputs:
            view = lowering.views.get(id(value))
            if view is not None and tuple(view.strides) != row_major(value.shape):
                found[id(value)] = _order(value.shape, view.strides)
    return found


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
    number: dict[int, int] = {}

    def add(name: str, kind: str, lines: list[str], **facts: Any) -> int:
        empty: dict[str, Any] = {
            "module": "",
            "where": "",
            "attributes": "",
            "types": [],
            "step": None,
            "device": "",
            "own": None,
        }
        nodes.append({"name": name, "kind": kind, "lines": lines, **empty, **facts})
        return len(nodes) - 1

    def label(value: Any) -> str:
        text = str(value.type).split("@")[0]
        return f"{text} {layouts[id(value)]}" if id(value) in layouts else text

    for k, value in enumerate(graph.inputs):
        name = value.node.name if not value.node.name.startswith("x") else f"x{k}"
        number[id(value)] = add(name, "input", [name, label(value)], types=[str(value.type)])
    for node in graph.nodes:
        if node.op is None:
            continue
        attributes = ", ".join(f"{k}={v!r}" for k, v in node.op.values().items())
        lines = [node.op.name, *([_short(attributes)] if attributes else [])]
        made = add(
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
        edges += [(number[id(v)], made, label(v)) for v in node.reads if id(v) in number]
        number.update(dict.fromkeys(map(id, node.outputs), made))
    for k, output in enumerate(graph.outputs):
        if output is None or id(output) not in number:
            continue
        written = graph.writes.get(k)
        name = f"result {k}" if written is None else f"into x{written}"
        edges.append(
            (number[id(output)], add(name, "output", [name], types=[str(output.type)]), label(output))
        )
    _fold(graph, number, nodes)
    return {"nodes": nodes, "edges": edges}


def _fold(graph: Graph, number: dict[int, int], nodes: list[dict[str, Any]]) -> None:
    """Inputs that one operator reads, not in the first place, are its own: parameters, mostly."""
    readers: dict[int, set[int]] = {}
    for node in graph.nodes:
        for k, value in enumerate(node.reads):
            if node.op is not None and id(value) in number:
                at = number[id(node.outputs[0])]
                readers.setdefault(id(value), set()).update({at} if k else {at, -1})
    leaving = {id(v) for v in graph.outputs}
    for value in graph.inputs:
        read_by = readers.get(id(value), set())
        if len(read_by) == 1 and id(value) not in leaving:
            nodes[number[id(value)]]["own"] = next(iter(read_by))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def graph_page(programs: Sequence[Program]) -> str:
    """The page that shows programs."""
    data = as_json({"programs": [_document(program) for program in programs]})
    return filled("graph.html", STYLE=part("style.css"), DATA=data, SCRIPT=part("graph.js"))


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
        target.write_text(graph_svg(stages_of(programs[0][1])[-1][2]))
    else:
        target.write_text(graph_page(programs))


def read(path: Path, shapes: dict[str, Any] | None = None) -> list[Program]:
    """The programs of a file; shapes: of a symbol's variables. Raises FileFormatError or GraphError for other files."""
    try:
        document = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError):
        return list(programs_in(path))
    try:
        return list(programs_in(path))
    except (GraphError, FileFormatError) as problem:
        if not (isinstance(document, dict) and "nodes" in document):
            raise
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
    given = parser.parse_args(arguments)
    try:
        parts = (each.partition("=") for each in given.shape)
        shapes = {name: tuple(int(n) for n in sizes.split(",") if n) for name, _, sizes in parts}
    except ValueError:
        parser.error(f"--shape takes name=sizes, such as data=8,32; got {' '.join(given.shape)}")
    if not given.program.is_file():
        parser.error(f"there is no file {given.program}")
    target = given.out or given.program.with_suffix(".html")
    if target.suffix not in (".html", ".svg"):
        parser.error(f"--out must end in .html or .svg, got {target}")
    write(target, read(given.program, shapes))
    print(target.resolve())
    if not given.no_open:
        webbrowser.open(target.resolve().as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(main())
