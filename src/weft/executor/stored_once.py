"""Stores values that several passes over a row need in the first pass, for the others to read, where that is cheaper.

Fusion puts expressions into each other, so the loop of softmax's composition would compute exp in the pass of the sum
and again in the pass of the quotient. `store_once` puts a pass in front of the first that needs such a value, which
stores it into an output of the loop: its own, if the value is a result, else one that the last pass writes anyway, at
the same position, after it has read the value. So no memory is added. The argument why that is right:

* nothing outside of the loop reads or writes an output while the loop runs, and no output of a loop with rows shares
  memory with an operand (executor/arena.py and Program::may_write only allow that for elementwise loops);
* the output is written once more, at each position after the last read there: an Each computes all of its values
  before it stores the first one, and it is the last pass that reads the value;
* what is read back has the bits that were stored, as the types are equal.

`cost` decides what is cheaper, in basic operations for each element of a row: docs/design/planner.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from weft.base.cached import cached_property
from weft.base.typing import Any
from weft.executor.buffers import BufferView, is_one, same, same_shape
from weft.executor.loop_code import OUTPUTS
from weft.executor.steps import CALL_WEIGHT
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Reduction, Store, parts, with_parts

__all__ = ["BYTE_COST", "FAR_BYTE_COST", "ROW_BYTES", "store_once"]

ROW_BYTES = 128 << 10  # of a row's arrays that stay in the cache from pass to pass
BYTE_COST = 0.5  # of a byte that is read or written in the cache, in basic operations
FAR_BYTE_COST = 6.0  # of a byte that leaves the cache between store and load: it travels three times
LEAVES = ("load", "load_at", "constant", "parameter", "result", "index")
ATTEMPTS = 8  # values that are tried for a loop: it has few that are expensive and needed twice

Scalar = e.Scalar


def store_once(
    shape: Sequence[Any],
    axes: Sequence[int],
    stages: Sequence[Any],
    inputs: Sequence[BufferView],
    outputs: Sequence[BufferView],
) -> list[Any]:
    """The stages of a loop over a space, so that no expensive value is computed in two of them if it can be stored."""
    best = list(stages)
    if len(shape) - 1 not in axes or sum(isinstance(s, Fold | Each) for s in stages) < 2:
        return best
    loop = _Loop(shape, axes, inputs, outputs)
    if not any(map(loop.may_hold, range(len(outputs)))) or not loop.shares_function(best):
        return best
    while (better := loop.improved(best)) is not None:
        best = better
    return best


class _Loop:
    def __init__(
        self,
        shape: Sequence[Any],
        axes: Sequence[int],
        inputs: Sequence[BufferView],
        outputs: Sequence[BufferView],
    ) -> None:
        self.shape, self.axes, self.inputs, self.outputs = shape, axes, inputs, outputs

    @cached_property
    def is_near(self) -> bool:
        """Whether a row stays in the cache; true where its length is not known."""
        elements = 1
        for axis in self.axes:
            if not isinstance(self.shape[axis], int):
                return True
            elements *= self.shape[axis]
        whole = {p.key: p.type.dtype.itemsize for p in (*self.inputs, *self.outputs) if self.is_whole(p)}
        return elements * sum(whole.values()) <= ROW_BYTES

    def is_whole(self, operand: BufferView) -> bool:
        return same_shape(operand.shape, self.shape)

    def may_hold(self, j: int) -> bool:
        """Whether an output can hold another value until it is written."""
        operand = self.outputs[j]
        return self.is_whole(operand) and not operand.buffer.in_parts and same(operand.strides[-1], 1)

    # Costs.

    def varies(self, node: Scalar, varying: dict[int, bool]) -> bool:
        """Whether a part differs from element to element of a row; varying: whether its operands do, by id."""
        if node.op == "load":
            k = node.value
            operand = self.inputs[k] if k < OUTPUTS else self.outputs[k - OUTPUTS]
            front = len(self.shape) - operand.ndim
            return False in [is_one(operand.shape[axis - front]) for axis in self.axes if axis >= front]
        if node.op in LEAVES:
            return node.op in ("index", "load_at")
        return True in [varying[id(arg)] for arg in node.args]

    def cost(self, stages: Sequence[Any]) -> float:
        """Of all passes, for an element of a row."""
        total, stored = 0.0, Counter[int]()
        for stage in stages:
            if not isinstance(stage, Fold | Each):
                continue
            varying: dict[int, bool] = {}
            for node in e.walk(*(part.value for part in parts(stage))):
                varying[id(node)] = self.varies(node, varying)
                if not varying[id(node)]:
                    continue
                if node.op not in LEAVES:
                    total += CALL_WEIGHT if node.op in e.FUNCTIONS else 1
                elif node.op in ("load", "load_at"):
                    total += BYTE_COST * _bytes_of(node)
            for part in parts(stage):
                if isinstance(part, Store):
                    total += BYTE_COST * _bytes_of(part.value)
                    stored[part.operand] += 1
        if not self.is_near:  # what is stored twice goes through memory twice
            twice = sum(self.outputs[j].type.dtype.itemsize * (count - 1) for j, count in stored.items())
            total += FAR_BYTE_COST * twice
        return total

    def shares_function(self, stages: Sequence[Any]) -> bool:
        """Whether two passes share a function, which a loop seldom does: no other value is worth a search."""
        earlier: set[int] = set()
        for stage in stages:
            if isinstance(stage, Fold | Each):
                calls = {id(n) for n in e.walk(*(part.value for part in parts(stage))) if n.op in e.FUNCTIONS}
                if calls & earlier:
                    return True
                earlier |= calls
        return False

    # Candidates.

    def improved(self, stages: Sequence[Any]) -> list[Any] | None:
        """The stages with one more value stored, if that is cheaper."""
        before = self.cost(stages)
        best: list[Any] | None = None
        for value in self.shared(stages)[:ATTEMPTS]:
            j = self.holder(stages, value)
            if j is not None:
                candidate = _with_stored(stages, value, j)
                if (cost := self.cost(candidate)) < before:
                    best, before = candidate, cost
        return best

    def shared(self, stages: Sequence[Any]) -> list[Scalar]:
        """The values that several passes compute, those made of most operations first."""
        nodes: dict[int, Scalar] = {}
        count: Counter[int] = Counter()
        varying: dict[int, bool] = {}
        for stage in stages:
            if not isinstance(stage, Fold | Each):
                continue
            for node in e.walk(*(part.value for part in parts(stage))):
                nodes[id(node)] = node
                varying[id(node)] = self.varies(node, varying)
                count[id(node)] += 1
        several = [
            node
            for key, node in nodes.items()
            if count[key] > 1 and varying[key] and node.op not in (*LEAVES, "product")
        ]
        return sorted(several, key=lambda node: -sum(1 for _ in e.walk(node)))

    def holder(self, stages: Sequence[Any], value: Scalar) -> int | None:
        """The output that can hold a value: stored by the last pass over the elements alone, of the value's type."""
        last = next((s for s in reversed(stages) if isinstance(s, Each)), None)
        if last is None:
            return None
        stores = Counter(p.operand for s in stages for p in parts(s) if isinstance(p, Store))
        read = {n.value for s in stages for n in e.walk(*(p.value for p in parts(s))) if n.op == "load"}
        free = [
            store
            for store in last.stores
            if stores[store.operand] == 1
            and not store.add
            and OUTPUTS + store.operand not in read
            and store.value.dtype == value.dtype
            and self.may_hold(store.operand)
        ]
        free.sort(key=lambda store: store.value is not value)  # its own output first
        return free[0].operand if free else None


def _bytes_of(value: Scalar) -> int:
    return max(e.BITS[value.dtype] // 8, 1)


def _with_stored(stages: Sequence[Any], value: Scalar, j: int) -> list[Any]:
    """The stages with a pass that stores the value into output j, before the first that needs it."""
    stored = e.load(OUTPUTS + j, value.dtype)

    def read(root: Scalar) -> Scalar:
        return e.substitute(root, lambda part: stored if part is value else part)

    rewritten: list[Any] = []
    is_stored = False
    for stage in stages:
        if not isinstance(stage, Fold | Each):
            rewritten.append(
                stage
            )  # Once reads the first element of a row, which outputs may not have any more
            continue
        needs = any(node is value for part in parts(stage) for node in e.walk(part.value))
        if needs and not is_stored:
            rewritten.append(Each((Store(j, value),)))
            is_stored = True
        if not needs:
            rewritten.append(stage)
            continue
        rest = stage
        if isinstance(stage, Each):  # the value itself is there already
            rest = Each(tuple(s for s in stage.stores if not (s.operand == j and s.value is value)))
        if parts(rest):
            rewritten.append(
                with_parts(
                    rest,
                    lambda r: Reduction(r.number, r.op, read(r.value), r.start),
                    lambda s: Store(s.operand, read(s.value), s.add),
                )
            )
    return rewritten
