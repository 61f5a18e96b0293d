"""Large results that are cheap to compute again where the program needs them late, instead of kept until then.

In a training step nearly all memory is alive when the forward part ends: what gradients will read. A *candidate* is a
value made before that moment and read behind it, whose operator can compute it again from what is there
(Op.recomputed). Its late readers then read a copy made just before them. A loop gets one of its own, which the planner
puts into that loop. Kernels that need it in memory share one, with loops that are near them: one of these stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from weft.expr import scalar as e
from weft.expr.kernel import parts
from weft.graph.graph import Graph, reads_of
from weft.graph.rewrite import Rewriting, first_choice
from weft.ops.kernels import Loop, View
from weft.ops.node import Node, Value

__all__ = ["Candidate", "candidates", "recompute", "recomputing"]

SMALL_SHARE = 1 / 8  # of a value's bytes: what is smaller is not counted among what it is computed from
CHEAP = (
    8  # operations on an element; a function such as exp is never cheap enough to be called again for nothing
)
LATE = 24  # nodes from where a value is made to a reader, or the planner has the loop that makes it make the copy, too
SOON = 12  # nodes between a loop and a kernel that share a copy: likely the planner has the loop store it
LEAVES = ("load", "constant", "parameter", "result", "index", "cast")
NEAR = 4  # pointwise nodes from a reader to one that reads what the value is computed from: likely one loop


class Candidate:
    """A value that may be computed again for its late readers.

    sources: what it is computed from, as far as it is large. size_bytes: what is saved at the peak; 0 if the sources
    are kept for nothing else and are as large. traffic_bytes: what more goes through memory; below 0: less. is_cheap:
    whether it takes but a few operations on each element. late: the readers, of it and of views of it that were made
    early. nodes: how many there are from the value to the first of them.
    """

    __slots__ = ("is_cheap", "late", "nodes", "size_bytes", "sources", "traffic_bytes", "value", "views")

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
    ) -> None:
        self.value, self.late, self.views, self.sources = value, list(late), list(views), list(sources)
        self.size_bytes, self.traffic_bytes, self.is_cheap = size_bytes, traffic_bytes, is_cheap
        self.nodes = nodes


def candidates(graph: Graph) -> list[Candidate]:
    """Those of a graph, in the order of its nodes."""
    lives = _Lives(graph)
    found = (lives.candidate(v) for node in graph.nodes[: lives.peak] for v in node.outputs[:1])
    return [each for each in found if each is not None and each.size_bytes > 0]


def recompute(node: Node, graph: Rewriting) -> Sequence[Value | None] | None:
    """A reader on values computed again, where that saves memory and sends no more bytes through it."""
    if "again" not in graph.notes:
        free = [c for c in candidates(graph.graph) if c.is_cheap and c.traffic_bytes <= 0 and c.nodes > LATE]
        graph.notes["again"] = _Again(free, graph)
    again: _Again = graph.notes["again"]
    return again.reader(node)


def recomputing(chosen: Collection[Candidate]) -> Callable[[Node, Rewriting], Sequence[Value | None] | None]:
    """The rule that computes these again."""

    def rule(node: Node, graph: Rewriting) -> Sequence[Value | None] | None:
        if "again" not in graph.notes:
            graph.notes["again"] = _Again(chosen, graph)
        again: _Again = graph.notes["again"]
        return again.reader(node)

    return rule


class _Again:
    """The copies of one round."""

    def __init__(self, chosen: Collection[Candidate], graph: Rewriting) -> None:
        self.graph = graph
        self.chosen = {id(c.value): c for c in chosen}
        self.late: dict[int, set[int]] = {}  # by id of a reader, those that it reads, by id
        for c in chosen:
            for node in c.late:
                self.late.setdefault(id(node), set()).update((id(c.value), *map(id, c.views)))
        self.place = {id(node): k for k, node in enumerate(graph.graph.nodes)}
        self.kernels = {id(c.value): [n for n in c.late if not _is_loop(n)] for c in chosen}
        self.shared: dict[int, Value] = {}  # copies in memory, by id of the old value

    def reader(self, node: Node) -> Sequence[Value | None] | None:
        late = self.late.get(id(node))
        if late is None:
            return None
        is_loop = _is_loop(node)

        def read(v: Value | None) -> Value | None:
            if v is None or id(v) not in late:
                return None if v is None else self.graph.new(v)
            return self.copy(v) if is_loop and self.has_own(node, v) else self.in_memory(v)

        inputs = [read(v) for v in node.inputs]
        runtime = {name: self.graph.new(v) for name, v in node.runtime.items()}
        return Node(node.op, inputs, [v.type for v in node.outputs], runtime, like=node).outputs

    def has_own(self, loop: Node, value: Value) -> bool:
        """Whether a loop computes the value for itself: no kernel near it wants it in memory."""
        near = (
            abs(self.place[id(n)] - self.place[id(loop)]) <= SOON for n in self.kernels.get(id(value), ())
        )
        return id(value) in self.chosen and not any(near)

    def in_memory(self, value: Value) -> Value:
        """The copy that all share who want it in memory, made where the first one reads it."""
        if id(value) in self.shared:
            return self.shared[id(value)]
        if id(value) in self.chosen:
            made = self.copy(value)
        else:  # a view of one
            node = value.node
            inputs = [
                None if v is None else self.in_memory(v) if k == 0 else self.graph.new(v)
                for k, v in enumerate(node.inputs)
            ]
            runtime = {name: self.graph.new(v) for name, v in node.runtime.items()}
            made = Node(node.op, inputs, [v.type for v in node.outputs], runtime).outputs[0]
        self.shared[id(value)] = made
        return made

    def copy(self, value: Value) -> Value:
        """A copy; before it those of what it is computed from, if that is not kept, either.

        Not recursive: such chains are as long as networks are deep.
        """
        stack = [value]
        while True:
            sources = self.chosen[id(stack[-1])].sources
            missing = [v for v in sources if id(v) in self.chosen and id(v) not in self.shared]
            if missing:
                stack.extend(missing)
                continue
            made = _again(stack[-1], lambda v: self.shared.get(id(v), self.graph.new(v)))
            assert made is not None, "a candidate can be computed again"
            if len(stack) == 1:
                return made
            self.shared[id(stack.pop())] = made


class _Lives:
    """Which values of a graph are alive when, as if every node ran by itself in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {id(node): k for k, node in enumerate(graph.nodes)}
        self.readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(reads_of(node)):
                self.readers.setdefault(id(v), []).append(node)
        lasting = {id(graph.inputs[k].node) for k in graph.lasting}  # and what follows from them, done once
        for node in graph.nodes:
            if node.op is not None and reads_of(node) and all(id(v.node) in lasting for v in reads_of(node)):
                lasting.add(id(node))
        self.lasting = lasting
        self.leaving = {id(v) for v in graph.outputs if v is not None}
        self.last: dict[int, int] = {}  # of the memory of a value, by its id, the place where it is read last
        for node in reversed(graph.nodes):
            for v in node.outputs:
                self.last[id(v)] = max(
                    (self._until(reader) for reader in self.readers.get(id(v), ())),
                    default=self.place[id(node)],
                )
        self.peak = self._peak()

    def _until(self, reader: Node) -> int:
        """Until when a reader needs what it reads: if it is a view of that, as long as the view."""
        own = self.place[id(reader)]
        return max([own, *(self.last[id(v)] for v in reader.outputs)]) if _is_view(reader) else own

    def _peak(self) -> int:
        """Behind which node the most memory is alive."""
        change = [0] * (len(self.graph.nodes) + 1)
        for k, node in enumerate(self.graph.nodes):
            if node.op is None or _is_view(node):
                continue
            for v in node.outputs:
                if id(v) not in self.leaving:
                    change[k] += _bytes(v)
                    change[self.last[id(v)] + 1 if self.last[id(v)] >= k else k] -= _bytes(v)
        live = most = found = 0
        for k, difference in enumerate(change):
            live += difference
            if live > most:
                most, found = live, k
        return found

    def is_kept(self, value: Value, until: int) -> bool:
        """Whether its memory is there at this place anyway."""
        while value.node.op is not None and _is_view(value.node):
            value = value.node.inputs[0]  # type: ignore[assignment]
        return value.node.op is None or id(value) in self.leaving or self.last[id(value)] >= until

    def candidate(self, value: Value) -> Candidate | None:
        node = value.node
        if node.op is None or node.op.random or id(node) in self.lasting or _is_view(node):
            return None
        same = self._early_views(value)
        late = [n for v in same for n in self.readers.get(id(v), ()) if self.place[id(n)] > self.peak]
        late = [n for n in dict.fromkeys(late) if n.place != node.place]  # else it is such a copy
        if not late or any(id(v) in self.leaving for v in same):
            return None
        made = _again(value, lambda v: v)
        if made is None or made.type != value.type:
            return None
        least = _bytes(value) * SMALL_SHARE
        sources = [v for v in dict.fromkeys(_leaves(made, node)) if _bytes(v) > least]
        until = max(map(self._until, late))
        more = sum(_bytes(v) for v in sources if not self.is_kept(v, until))
        inside = [n for n in late if _is_loop(n) and any(v is value for v in n.inputs)]
        traffic = self._traffic(value, inside, len(inside) < len(late), sources)
        is_cheap = _operations(made, node) <= CHEAP
        nodes = min(self.place[id(n)] for n in late) - self.place[id(node)]
        return Candidate(value, late, same[1:], sources, _bytes(value) - more, traffic, is_cheap, nodes)

    def _early_views(self, value: Value) -> list[Value]:
        """The value, and the views of it that are made before the peak."""
        found = [value]
        for v in found:
            for n in self.readers.get(id(v), ()):
                if self.place[id(n)] <= self.peak and n.inputs[0] is v and _is_view(n):
                    found.append(n.outputs[0])
        return found

    def _traffic(self, value: Value, loops: Sequence[Node], is_stored: bool, sources: Sequence[Value]) -> int:
        """Bytes that go through memory more: a copy for the kernels; less: loops read the sources instead."""
        size, own = _bytes(value), sum(map(_bytes, sources))
        more = own + size if is_stored else 0
        for reader in loops:
            passes, found = self._near(reader, sources)
            more += passes * (sum(_bytes(v) for v in sources if id(v) not in found) - size)
        return more

    def _near(self, reader: Node, sources: Sequence[Value]) -> tuple[int, set[int]]:
        """How often the loop that a reader will be part of goes over memory, and which of the sources it reads."""
        wanted, found = {id(v) for v in sources}, set[int]()
        passes, nodes = 1, [reader]
        for _ in range(NEAR):
            for node in nodes:
                found |= wanted & {id(v) for v in reads_of(node)}
                choice = first_choice(node)
                if isinstance(choice, Loop) and choice.axes:
                    passes = max(passes, len(choice.stages))
            nodes = [
                n
                for node in nodes
                if not getattr(first_choice(node), "axes", ())
                for v in node.outputs
                for n in self.readers.get(id(v), ())
                if _is_loop(n)
            ]
        return passes, found


def _again(value: Value, read: Callable[[Value], Value]) -> Value | None:
    """A value computed again from what read gives for what its node reads; None if its operator does not say how."""
    node = value.node
    assert node.op is not None
    op = node.op.with_runtime({k: read(v) for k, v in node.runtime.items()}) if node.runtime else node.op
    inputs = [None if v is None else read(v) for v in node.inputs]
    made: Value | None = op.recomputed(inputs, [None, *(read(v) for v in node.outputs[1:])])
    return made


def _leaves(made: Value, node: Node) -> list[Value]:
    """What a computation reads of what there was before: the inputs of the node, and its other outputs."""
    known = {*map(id, reads_of(node)), *map(id, node.outputs)}
    return [v for v in _within(made, known) if id(v) in known]


def _operations(made: Value, node: Node) -> int:
    """How many operations a computation does on an element; a function is many."""
    known = {*map(id, reads_of(node)), *map(id, node.outputs)}
    loops = [first_choice(v.node) for v in _within(made, known) if id(v) not in known]
    roots = [
        s.value for loop in loops if isinstance(loop, Loop) for stage in loop.stages for s in parts(stage)
    ]
    return sum(_instructions(part) for root in roots for part in e.walk(root))


def _instructions(part: e.Scalar) -> int:
    return CHEAP + 1 if part.op in e.FUNCTIONS else part.op not in LEAVES


def _within(made: Value, known: Collection[int]) -> list[Value]:
    """The values that a computation consists of, down to known ones, by id, and with those."""
    found, stack, seen = [], [made], set[int]()
    while stack:
        v = stack.pop()
        if id(v) not in seen:
            seen.add(id(v))
            found.append(v)
            if id(v) not in known:
                stack.extend(reads_of(v.node))
    return found


def _bytes(value: Value) -> int:
    return 0 if value.type.weak else int(value.type.size) * value.dtype.itemsize


def _is_loop(node: Node) -> bool:
    return isinstance(first_choice(node), Loop)


def _is_view(node: Node) -> bool:
    return isinstance(first_choice(node), View)
