"""Recomputes large, cheap results where the program needs them late, instead of keeping them until then.

In a training step nearly all memory is alive when the forward part ends: what gradients will read. A *candidate* is a
value made before that moment and read behind it, whose operator can compute it again from what is there
(Op.recomputed). Its late readers then read a copy made just before them. A loop gets one of its own, which the planner
puts into that loop. Kernels that need it in memory share one, with loops that are near them: one of these stores it.

Where that is not enough for a memory budget, any value may be a candidate, whose node runs a second time: see segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from weft.expr import scalar as e
from weft.expr.kernel import parts
from weft.graph.graph import Graph
from weft.graph.inner import as_drawn
from weft.graph.rewrite import Rewriting
from weft.kernels import first_choice
from weft.ops.kernels import Loop, View
from weft.ops.node import Node, Value
from weft.ops.op import Op

__all__ = [
    "Candidate",
    "Lives",
    "candidates",
    "is_view",
    "recompute",
    "rematerialize",
    "size_bytes_of",
]

SMALL_SHARE = 1 / 8  # of a value's bytes: what is smaller is not counted among what it is computed from
CHEAP = 8  # operations on an element; a function such as exp is never cheap enough to be called again
LATE = 24  # nodes from where a value is made to a reader, or the planner has the loop that makes it make the copy, too
SOON = 12  # nodes between a loop and a kernel that share a copy: likely the planner has the loop store it
LEAVES = ("load", "constant", "parameter", "result", "index", "cast")
NEAR = 4  # pointwise nodes from a reader to one that reads what the value is computed from: likely one loop


class Candidate:
    """A value that may be computed again for its late readers.

    sources: what it is computed from, as far as it is large. size_bytes: what is saved at the peak; 0 if the sources
    are kept for nothing else and are as large. traffic_bytes: what more goes through memory; below 0: less. is_cheap:
    whether it takes but a few operations on each element. late: the readers, of it and of views of it that were made
    early. nodes: how many there are from the value to the first of them. runs_again: its node runs a second time,
    instead of an expression that loops could take.
    """

    __slots__ = (
        "is_cheap",
        "late",
        "nodes",
        "runs_again",
        "size_bytes",
        "sources",
        "traffic_bytes",
        "value",
        "views",
    )

    def __init__(
        self,
        value: Value,
        late: Sequence[Node],
        views: Sequence[Value],
        sources: Sequence[Value],
        size_bytes: int,
        traffic_bytes: int,
        is_cheap: bool,
        nodes: int,
        runs_again: bool = False,
    ) -> None:
        self.value, self.late, self.views, self.sources = value, list(late), list(views), list(sources)
        self.size_bytes, self.traffic_bytes, self.is_cheap = size_bytes, traffic_bytes, is_cheap
        self.nodes, self.runs_again = nodes, runs_again


def candidates(graph: Graph) -> list[Candidate]:
    """The candidates of a graph, in the order of its nodes."""
    lives = Lives(graph)
    values = (lives.candidate(v) for node in graph.nodes[: lives.peak] for v in node.outputs[:1])
    return [each for each in values if each is not None and each.size_bytes > 0]


def recompute(node: Node, graph: Rewriting) -> Sequence[Value | None] | None:
    """A reader on values computed again, where that saves memory and sends no more bytes through it."""
    if "copies" not in graph.notes:
        cheap = [c for c in candidates(graph.graph) if c.is_cheap and c.traffic_bytes <= 0 and c.nodes > LATE]
        graph.notes["copies"] = _Copies(cheap, graph)
    copies: _Copies = graph.notes["copies"]
    return copies.reader(node)


def rematerialize(graph: Graph, candidates: Collection[Candidate]) -> Graph:
    """The graph in which late readers of these candidates read what is computed again."""
    rewriting = Rewriting(graph)
    copies = _Copies(candidates, rewriting)
    return rewriting.run(lambda node, _: copies.rewritten(node), None)


class _Copies:
    """The copies of candidates that one round makes."""

    def __init__(self, candidates: Collection[Candidate], graph: Rewriting) -> None:
        self.graph = graph
        self.candidates = {id(c.value): c for c in candidates}
        self.late: dict[int, set[int]] = {}  # by id of a reader, those that it reads, by id
        for c in candidates:
            for node in c.late:
                self.late.setdefault(id(node), set()).update((id(c.value), *map(id, c.views)))
        self.index = {id(node): k for k, node in enumerate(graph.graph.nodes)}
        self.kernels = {id(c.value): [n for n in c.late if not is_loop(n)] for c in candidates}
        self.shared: dict[int, Value] = {}  # copies in memory, by id of the old value
        # By id, of candidates and of views of these: whether they are the former.
        self.is_candidate = dict.fromkeys(self.candidates, True)
        if any(c.runs_again for c in candidates):
            for node in graph.graph.nodes:
                if node.op is not None and node.inputs and is_view(node):
                    source = node.inputs[0]
                    if source is not None and id(source) in self.is_candidate:
                        self.is_candidate.update((id(v), False) for v in node.outputs)
        else:
            self.is_candidate.update((id(v), False) for c in candidates for v in c.views)
        self.random = {id(c.value.node) for c in candidates if c.runs_again and c.value.node.op.random}  # type: ignore[union-attr]
        # By id of a random node: the operator that is a function of a position, and that.
        self.positions: dict[int, tuple[Op, Sequence[Value]]] = {}

    def rewritten(self, node: Node) -> Sequence[Value | None] | None:
        """The new outputs of a node: of a reader of what is computed again; of one whose numbers are drawn again."""
        copies = self.reader(node)
        if copies is None and id(node) in self.random:
            return self.with_position(node)
        return copies

    def with_position(self, node: Node) -> Sequence[Value]:
        """A random node as a function of a position in the stream, so that it can draw the same again."""
        outputs, position = as_drawn(node.reading(self.graph.new))
        op = outputs[0].node.op
        assert op is not None
        self.positions[id(node)] = op, position
        return outputs

    def reader(self, node: Node) -> Sequence[Value | None] | None:
        late = self.late.get(id(node))
        if late is None:
            return None
        in_loop = is_loop(node)

        def read(v: Value | None) -> Value | None:
            if v is None or id(v) not in late:
                return None if v is None else self.graph.new(v)
            return self.copy(v) if in_loop and self.has_own(node, v) else self.in_memory(v)

        inputs = [read(v) for v in node.inputs]
        runtime = {name: self.graph.new(v) for name, v in node.runtime.items()}
        return Node(node.op, inputs, [v.type for v in node.outputs], runtime, like=node).outputs

    def has_own(self, loop: Node, value: Value) -> bool:
        """Whether a loop computes the value for itself: no kernel near it reads it from memory."""
        candidate = self.candidates.get(id(value))
        if candidate is None or candidate.runs_again:
            return False
        near = (
            abs(self.index[id(n)] - self.index[id(loop)]) <= SOON for n in self.kernels.get(id(value), ())
        )
        return not any(near)

    def in_memory(self, value: Value) -> Value:
        """The copy that all readers share that need it in memory, made where the first one reads it."""
        self.make_shared([value])
        return self.shared[id(value)]

    def copy(self, value: Value) -> Value:
        """A copy for one reader; before it those of what it is computed from, if that is not kept, either."""
        self.make_shared(self.missing(value))
        return self.copies_of(value)[0][1]

    def make_shared(self, values: Sequence[Value]) -> None:
        """Copies of these, and of what they are computed from. Not recursive: networks are deep."""
        stack = list(values)
        while stack:
            value = stack[-1]
            if id(value) in self.shared:
                stack.pop()
                continue
            missing = self.missing(value)
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self.shared.update((id(old), new) for old, new in self.copies_of(value))

    def missing(self, value: Value) -> list[Value]:
        """The values that have to be computed again before this one, which is computed from them."""
        candidate = self.candidates.get(id(value))
        sources = value.node.reads if candidate is None else candidate.sources
        return [v for v in sources if id(v) in self.is_candidate and id(v) not in self.shared]

    def read(self, value: Value) -> Value:
        copy = self.shared.get(id(value))
        return self.graph.new(value) if copy is None else copy

    def copies_of(self, value: Value) -> list[tuple[Value, Value]]:
        """Values of the old graph, the first of which is this one, and what is computed again for them."""
        node, candidate = value.node, self.candidates.get(id(value))
        if candidate is not None and not candidate.runs_again:
            expression = _recomputed(value, self.read)
            assert expression is not None, "a candidate can be computed again"
            return [(value, expression)]
        op, position = self.positions.get(id(node), (node.op, ()))
        inputs = [None if v is None else self.read(v) for v in node.inputs]
        runtime = {name: self.read(v) for name, v in node.runtime.items()}
        new_node = Node(op, [*inputs, *position], [v.type for v in node.outputs], runtime)
        pairs = list(zip(node.outputs, new_node.outputs, strict=True))
        first = pairs.pop(value.index)
        return [first, *(pair for pair in pairs if id(pair[0]) in self.candidates)]


class Lives:
    """Which values of a graph are alive when, as if every node ran by itself in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.index = {id(node): k for k, node in enumerate(graph.nodes)}
        self.views = {id(node) for node in graph.nodes if is_view(node)}
        self.readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.reads):
                self.readers.setdefault(id(v), []).append(node)
        # Stable inputs, and the nodes that follow from them, which are computed once.
        stable_nodes = {id(graph.inputs[k].node) for k in graph.stable_inputs}
        for node in graph.nodes:
            if node.op is not None and node.reads and all(id(v.node) in stable_nodes for v in node.reads):
                stable_nodes.add(id(node))
        self.stable_nodes = stable_nodes
        self.leaving = {id(v) for v in graph.outputs if v is not None}
        self.last: dict[int, int] = {}  # by id of a value: the index of the last node that reads its memory
        self.until: dict[int, int] = {}  # by id of a node: until when it needs what it reads
        for node in reversed(graph.nodes):
            index = end = self.index[id(node)]
            for v in node.outputs:
                last = self.last.setdefault(id(v), index)
                if id(node) in self.views:
                    end = max(end, last)
            self.until[id(node)] = end
            for v in node.reads:
                if self.last.get(id(v), -1) < end:
                    self.last[id(v)] = end
        self.peak = self._peak()

    def _peak(self) -> int:
        """The index of the node behind which the most memory is alive."""
        change = [0] * (len(self.graph.nodes) + 1)
        for k, node in enumerate(self.graph.nodes):
            if node.op is None or id(node) in self.views:
                continue
            for v in node.outputs:
                if id(v) not in self.leaving:
                    size, last = size_bytes_of(v), self.last[id(v)]
                    change[k] += size
                    change[last + 1 if last >= k else k] -= size
        live = most = peak = 0
        for k, difference in enumerate(change):
            live += difference
            if live > most:
                most, peak = live, k
        return peak

    def is_kept(self, value: Value, until: int) -> bool:
        """Whether its memory is there until this index anyway."""
        while value.node.op is not None and id(value.node) in self.views:
            value = value.node.inputs[0]  # type: ignore[assignment]
        return value.node.op is None or id(value) in self.leaving or self.last[id(value)] >= until

    def candidate(self, value: Value) -> Candidate | None:
        node = value.node
        if node.op is None or node.op.random or id(node) in self.stable_nodes or id(node) in self.views:
            return None
        with_views = self._early_views(value)
        late = [n for v in with_views for n in self.readers.get(id(v), ()) if self.index[id(n)] > self.peak]
        late = [n for n in dict.fromkeys(late) if n.order != node.order]  # else it is such a copy
        if not late or any(id(v) in self.leaving for v in with_views):
            return None
        copy = _recomputed(value, lambda v: v)
        if copy is None or copy.type != value.type:
            return None
        least = size_bytes_of(value) * SMALL_SHARE
        sources = [v for v in dict.fromkeys(_leaves(copy, node)) if size_bytes_of(v) > least]
        until = max(self.until[id(n)] for n in late)
        more = sum(size_bytes_of(v) for v in sources if not self.is_kept(v, until))
        inside = [n for n in late if is_loop(n) and any(v is value for v in n.inputs)]
        traffic = self._traffic(value, inside, len(inside) < len(late), sources)
        is_cheap = _operations(copy, node) <= CHEAP
        nodes = min(self.index[id(n)] for n in late) - self.index[id(node)]
        return Candidate(
            value, late, with_views[1:], sources, size_bytes_of(value) - more, traffic, is_cheap, nodes
        )

    def any_candidate(self, value: Value) -> Candidate:
        """A value to be computed again whatever it takes: by an expression if there is one, else by its node."""
        node = value.node
        views = self._early_views(value)
        late = [n for v in views for n in self.readers.get(id(v), ()) if self.index[id(n)] > self.peak]
        copy = None if value.index else _recomputed(value, lambda v: v)
        size, nothing = size_bytes_of(value), (0, False, 0)
        if copy is not None and copy.type == value.type and _operations(copy, node) <= CHEAP:
            outputs = {*map(id, node.outputs)}
            sources = [v for v in dict.fromkeys(_leaves(copy, node)) if id(v) not in outputs]
            return Candidate(value, list(dict.fromkeys(late)), views[1:], sources, size, *nothing)
        return Candidate(
            value, list(dict.fromkeys(late)), views[1:], node.reads, size, *nothing, runs_again=True
        )

    def _early_views(self, value: Value) -> list[Value]:
        """The value, and the views of it that are made before the peak."""
        views = [value]
        for v in views:
            for n in self.readers.get(id(v), ()):
                if self.index[id(n)] <= self.peak and n.inputs[0] is v and id(n) in self.views:
                    views.append(n.outputs[0])
        return views

    def _traffic(self, value: Value, loops: Sequence[Node], is_stored: bool, sources: Sequence[Value]) -> int:
        """Bytes that go through memory more: a copy for the kernels; less: loops read the sources instead."""
        size, source_bytes = size_bytes_of(value), sum(map(size_bytes_of, sources))
        more = source_bytes + size if is_stored else 0
        for reader in loops:
            passes, shared_sources = self._near(reader, sources)
            more += passes * (sum(size_bytes_of(v) for v in sources if id(v) not in shared_sources) - size)
        return more

    def _near(self, reader: Node, sources: Sequence[Value]) -> tuple[int, set[int]]:
        """How often the loop that a reader will be part of goes over memory, and which of the sources it reads."""
        source_ids, shared_sources = {id(v) for v in sources}, set[int]()
        passes, nodes = 1, [reader]
        for _ in range(NEAR):
            for node in nodes:
                shared_sources |= source_ids & {id(v) for v in node.reads}
                choice = first_choice(node)
                if isinstance(choice, Loop) and choice.axes:
                    passes = max(passes, len(choice.stages))
            nodes = [
                n
                for node in nodes
                if not getattr(first_choice(node), "axes", ())
                for v in node.outputs
                for n in self.readers.get(id(v), ())
                if is_loop(n)
            ]
        return passes, shared_sources


def _recomputed(value: Value, read: Callable[[Value], Value]) -> Value | None:
    """A value computed again from what read gives for what its node reads; None if its operator does not say how."""
    node = value.node
    assert node.op is not None
    op = node.op.with_runtime({k: read(v) for k, v in node.runtime.items()}) if node.runtime else node.op
    inputs = [None if v is None else read(v) for v in node.inputs]
    copy: Value | None = op.recomputed(inputs, [None, *(read(v) for v in node.outputs[1:])])
    return copy


def _leaves(result: Value, node: Node) -> list[Value]:
    """The values that a computation reads: inputs of the node, and its other outputs."""
    boundary = {*map(id, node.reads), *map(id, node.outputs)}
    return [v for v in _within(result, boundary) if id(v) in boundary]


def _operations(result: Value, node: Node) -> int:
    """How many operations a computation does on an element; a function is many."""
    boundary = {*map(id, node.reads), *map(id, node.outputs)}
    loops = [first_choice(v.node) for v in _within(result, boundary) if id(v) not in boundary]
    return sum(operations_of(loop) for loop in loops if isinstance(loop, Loop))


def operations_of(loop: Loop) -> int:
    """How many operations a loop does on an element; a function is many."""
    roots = [s.value for stage in loop.stages for s in parts(stage)]
    return sum(_instructions(part) for root in roots for part in e.walk(root))


def _instructions(part: e.Scalar) -> int:
    return CHEAP + 1 if part.op in e.FUNCTIONS else part.op not in LEAVES


def _within(result: Value, boundary: Collection[int]) -> list[Value]:
    """The values that a computation consists of, down to known ones, by id, and with those."""
    values, stack, seen = [], [result], set[int]()
    while stack:
        v = stack.pop()
        if id(v) not in seen:
            seen.add(id(v))
            values.append(v)
            if id(v) not in boundary:
                stack.extend(v.node.reads)
    return values


def size_bytes_of(value: Value) -> int:
    """The memory of a value; numbers have none."""
    return 0 if value.type.weak else int(value.type.size) * value.dtype.itemsize


def is_loop(node: Node) -> bool:
    return isinstance(first_choice(node), Loop)


def is_view(node: Node) -> bool:
    """Whether the output of a node is a view of its first input."""
    return isinstance(first_choice(node), View)
