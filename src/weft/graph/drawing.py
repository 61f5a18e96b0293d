"""Draws graphs and symbols in layers: computes where boxes and edges go, and writes SVG.

The usual steps (Sugiyama, Tagawa, Toda 1981, IEEE Trans. SMC 11(2)): every box is below those it reads; an edge that
passes a layer gets a vertex there; the vertices of a layer are ordered by the positions of their neighbours, and then
pulled towards them.

>>> picture = svg([Box(("x",)), Box(("exp", "y"))], [Edge(0, 1, "[2]")])
>>> picture.startswith("<svg"), "exp" in picture
(True, True)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from weft.graph.graph import Graph
from weft.ops.node import Node, Value

__all__ = ["MAX_SHOWN_NODES", "Box", "Edge", "boxes_of", "graph_svg", "shorten", "svg"]

MAX_SHOWN_NODES = 400  # of a picture that a notebook shows unasked: about a second, and still to be read
CHARACTER, LINE = 6.6, 16.0  # pixels, of the font below
FONT = "12px ui-monospace, monospace"
GAP_X, GAP_Y, MARGIN = 24.0, 44.0, 16.0
SWEEPS = 12


@dataclass(frozen=True)
class Box:
    """One node: lines of text, the first one stressed; kind: a word that decides the colour; round: a variable."""

    lines: tuple[str, ...]
    kind: str = ""
    round: bool = False

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * CHARACTER + 20

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 12


@dataclass(frozen=True)
class Edge:
    """From one box to another, by number; the source comes first. label: a text beside it."""

    source: int
    target: int
    label: str = ""


def boxes_of(
    nodes: Sequence[Node], box: Callable[[Node], Box], label: Callable[[Value], str]
) -> tuple[list[Box], list[Edge]]:
    """A box for each node, and an edge for each value of one that another reads, with its label."""
    index = {id(node): k for k, node in enumerate(nodes)}
    edges = [
        Edge(index[id(value.node)], k, label(value))
        for k, node in enumerate(nodes)
        for value in node.reads
        if id(value.node) in index
    ]
    return [box(node) for node in nodes], edges


@dataclass
class _Vertex:
    """A vertex in a layer: a box, or where an edge passes."""

    layer: int
    width: float
    x: float = 0.0


def svg(boxes: Sequence[Box], edges: Sequence[Edge]) -> str:
    """A picture of the boxes and edges, whose sources come before their targets."""
    vertices, paths = _vertices(boxes, edges)
    layers = _ordered(vertices, paths)
    _pull(vertices, layers, paths)
    heights = [0.0] * len(layers)
    for k, box in enumerate(boxes):
        heights[vertices[k].layer] = max(heights[vertices[k].layer], box.height)
    tops = [MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    left = min((p.x - p.width / 2 for p in vertices), default=0.0) - MARGIN
    width = max((p.x + p.width / 2 for p in vertices), default=0.0) + MARGIN - left
    height = tops[-1] - GAP_Y + MARGIN if heights else MARGIN
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" style="background:#fff; font:{FONT}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
    ]
    middle = [top + h / 2 for top, h in zip(tops, heights, strict=False)]
    for edge, path in zip(edges, paths, strict=True):
        elements.append(_curve(edge, path, vertices, boxes, middle, left))
    for k, box in enumerate(boxes):
        elements.append(_box(box, vertices[k].x - left, middle[vertices[k].layer]))
    return "\n".join([*elements, "</svg>\n"])


def _vertices(boxes: Sequence[Box], edges: Sequence[Edge]) -> tuple[list[_Vertex], list[list[int]]]:
    """A vertex for each box, then those that edges pass; and the vertices along each edge."""
    depth = [0] * len(boxes)
    for edge in sorted(edges, key=lambda e: e.target):
        depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    readers: dict[int, int] = {}
    for edge in edges:  # what reads nothing is drawn right above its first reader
        readers[edge.source] = min(readers.get(edge.source, len(boxes)), depth[edge.target])
    targets = {edge.target for edge in edges}
    for k in range(len(boxes)):
        if k not in targets and k in readers:
            depth[k] = readers[k] - 1
    vertices = [_Vertex(depth[k], box.width) for k, box in enumerate(boxes)]
    paths = []
    for edge in edges:
        path = [edge.source]
        for layer in range(depth[edge.source] + 1, depth[edge.target]):
            path.append(len(vertices))
            vertices.append(_Vertex(layer, 8.0))
        paths.append([*path, edge.target])
    return vertices, paths


def _neighbours(
    vertices: Sequence[_Vertex], paths: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[list[int]]]:
    """The neighbours above and below each vertex."""
    above: list[list[int]] = [[] for _ in vertices]
    below: list[list[int]] = [[] for _ in vertices]
    for path in paths:
        for a, b in itertools.pairwise(path):
            above[b].append(a)
            below[a].append(b)
    return above, below


def _sweeps(
    layers: Sequence[list[int]], above: list[list[int]], below: list[list[int]]
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """The layers from top to bottom with the neighbours above each vertex, then back with those below, and so on."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            yield layer, above if down else below


def _ordered(vertices: Sequence[_Vertex], paths: Sequence[Sequence[int]]) -> list[list[int]]:
    """The vertices of each layer from left to right, so that few edges cross: by the middle of their neighbours."""
    layers: list[list[int]] = [[] for _ in range(max((p.layer for p in vertices), default=-1) + 1)]
    for k, vertex in enumerate(vertices):
        layers[vertex.layer].append(k)
    position = {k: float(i) for layer in layers for i, k in enumerate(layer)}
    for layer, near in _sweeps(layers, *_neighbours(vertices, paths)):
        middle = {
            k: sum(position[n] for n in near[k]) / len(near[k]) if near[k] else position[k] for k in layer
        }
        layer.sort(key=middle.__getitem__)
        position.update({k: float(i) for i, k in enumerate(layer)})
    return layers


def _pull(vertices: Sequence[_Vertex], layers: Sequence[list[int]], paths: Sequence[Sequence[int]]) -> None:
    """Gives every vertex its x: near its neighbours, without touching those beside it."""
    for layer in layers:
        _spread(vertices, layer, dict.fromkeys(layer, 0.0))
    for layer, near in _sweeps(layers, *_neighbours(vertices, paths)):
        targets = {
            k: sum(vertices[n].x for n in near[k]) / len(near[k]) if near[k] else vertices[k].x for k in layer
        }
        _spread(vertices, layer, targets)


def _spread(vertices: Sequence[_Vertex], layer: Sequence[int], targets: dict[int, float]) -> None:
    """Set every x, from left to right, as near to its target as room permits; groups that collide share the error."""
    groups: list[tuple[float, list[float], list[int]]] = []  # left end of the first, offsets, vertices
    for k in layer:
        half = vertices[k].width / 2
        start, offsets, members = targets[k] - half, [half], [k]
        while groups:
            other_start, other_offsets, other_members = groups[-1]
            room = other_offsets[-1] + vertices[other_members[-1]].width / 2 + GAP_X
            if other_start + room <= start:
                break
            groups.pop()
            merged = [*other_offsets, *(room + o for o in offsets)]
            members = [*other_members, *members]
            offsets = merged
            start = sum(targets[m] - o for m, o in zip(members, offsets, strict=True)) / len(members)
        groups.append((start, offsets, members))
    for start, offsets, members in groups:
        for member, offset in zip(members, offsets, strict=True):
            vertices[member].x = start + offset


def _curve(
    edge: Edge,
    path: Sequence[int],
    vertices: Sequence[_Vertex],
    boxes: Sequence[Box],
    middle: Sequence[float],
    left: float,
) -> str:
    points = [(vertices[k].x - left, middle[vertices[k].layer]) for k in path]
    (x, y), (u, v) = points[0], points[-1]
    points[0] = (x, y + boxes[edge.source].height / 2)
    points[-1] = (u, v - boxes[edge.target].height / 2)
    curve = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (a, b), (c, d) in itertools.pairwise(points):
        bend = (d - b) / 2
        curve += f"C{a:.1f} {b + bend:.1f} {c:.1f} {d - bend:.1f} {c:.1f} {d:.1f}"
    element = f'<path d="{curve}" fill="none" stroke="#889" marker-end="url(#tip)"/>'
    if edge.label:
        a, b = points[0]
        element += (
            f'<text x="{a + 5:.1f}" y="{b + 14:.1f}" fill="#667" font-size="10">{escape(edge.label)}</text>'
        )
    return element


def _box(box: Box, x: float, y: float) -> str:
    hue = sum(ord(c) * 37 for c in box.kind) % 360
    fill = f"hsl({hue} 60% 93%)" if box.kind else "#f4f4f6"
    radius = box.height / 2 if box.round else 5
    parts = [
        f'<rect x="{x - box.width / 2:.1f}" y="{y - box.height / 2:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" rx="{radius:.0f}" fill="{fill}" stroke="#99a"/>'
    ]
    for k, line in enumerate(box.lines):
        style = ' font-weight="600"' if k == 0 else ' fill="#556"'
        at = y - box.height / 2 + 6 + (k + 0.78) * LINE
        parts.append(f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="middle"{style}>{escape(line)}</text>')
    return "".join(parts)


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


def _sizes(value: Value) -> str:
    return f"[{','.join(map(str, value.shape))}]"


def shorten(text: str, limit: int = 48) -> str:
    """The text, cut off with dots behind so many characters."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
