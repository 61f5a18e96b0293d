"""What tests know of the operators of weft.executor.control."""

import numpy as np
from tests.ops.material import material

from weft.executor.control import CondBranch, ForeachLoop, WhileLoop
from weft.graph.graph import interpret
from weft.ops.types import TensorType


@material(ForeachLoop)
class _:
    def reference(self, *x):
        sequences, states, rest = self.parts(x)
        length = len(sequences[0])
        count = min(length, int(x[0])) if self.counted else length
        types = self.infer(*map(type_of, x))
        stacks = [np.zeros(t.shape, t.dtype.numpy) for t in types[self.states :]]
        for p in reversed(range(count)) if self.reverse else range(count):
            for stack, state in zip(stacks[self.items :], states, strict=True):
                stack[p] = state
            made = interpret(self.body.graph, [*(s[p] for s in sequences), *states, *rest])
            states = made[: self.states]
            for stack, item in zip(stacks, made[self.states :], strict=False):
                stack[p] = item
        return (*states, *stacks)


@material(WhileLoop)
class _:
    def reference(self, *x):
        states, rest = list(x[: self.states]), x[self.states :]
        types = self.infer(*map(type_of, x))
        stacks = [np.zeros(t.shape, t.dtype.numpy) for t in types[self.states + 1 :]]
        count = 0
        while count != self.limit and interpret(self.condition.graph, [*states, *rest])[0]:
            for stack, state in zip(stacks, states, strict=False):
                stack[count] = state
            states = interpret(self.body.graph, [*states, *rest])
            count += 1
        return tuple(states) if self.limit is None else (*states, np.asarray(count), *stacks)


@material(CondBranch)
class _:
    def reference(self, predicate, *x):
        chosen = self.then if predicate else self.otherwise
        return tuple(interpret(chosen.graph, x))


def type_of(array):
    """Of a NumPy array."""
    from weft.base.dtype import as_dtype

    return TensorType(np.shape(array), as_dtype(np.asarray(array).dtype))
