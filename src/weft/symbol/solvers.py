"""Solvers: what symbols ask of an operator besides its rules for types and values.

Sizes and dtypes from what is known of any operand, in both directions; likely shapes; and names of inputs and outputs.
`Solver` answers by the operator's rule (weft.ops.rules). A subclass with ``@solver(SomeOp)`` answers for that class of
operators and those derived from it, so that a class of an operator says nothing that only symbols read. Solvers raise
Contradiction for sizes that differ, to which inference adds the operator and its place.

>>> from weft.ops.registry import get
>>> solver_of(get("matmul")()).shapes([(2, None), (3, 4)], [None])
([(2, 3), (3, 4)], [(2, 4)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtype import DType
from weft.base.errors import DTypeError
from weft.graph.symbols import SymbolGradient, SymbolNode
from weft.ops import rules
from weft.ops.families.attention import ScaledDotProductAttention, shared_heads_of
from weft.ops.families.cross_entropy import Classes
from weft.ops.families.loss import PointwiseLoss
from weft.ops.families.matrix import Matmul
from weft.ops.families.recurrent import Recurrent
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise
from weft.ops.shapes import Contradiction, Partial, broadcast, merge, split_last
from weft.ops.simple import SimpleOp
from weft.python_op import PythonOp

__all__ = ["Dtypes", "Shapes", "Solver", "names_of_outputs", "solver", "solver_class", "solver_of"]

Shapes = tuple[list[Partial], list[Partial]]  # of inputs, None in the place of a missing one, and of outputs
Dtypes = tuple[list[DType | None], list[DType | None]]


class Solver:
    """The answers for one operator."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        """What is known of all shapes, from what is known of each."""
        return self.by_rule(self.op.rule, inputs, outputs) if self.op.rule else (list(inputs), list(outputs))

    def by_rule(self, rule: str, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        """What a rule says of shapes. Inputs of any number are left as they are."""
        op = self.op
        names = [spec.name for spec in op.inputs if not spec.variadic]
        shapes = dict(zip(names, inputs, strict=False)) | dict(zip(op.outputs, outputs, strict=False))
        try:
            parsed = rules.parse(rule)
            shapes = rules.solve(parsed, {n: getattr(op, n, None) for n in parsed.names}, shapes)
        except Contradiction as wrong:
            raise Contradiction(f"{wrong}: {rule}") from None
        solved = [shapes.get(name, shape) for name, shape in zip(op.outputs, outputs, strict=False)]
        return [*(shapes[name] for name in names), *inputs[len(names) :]], [*solved, *outputs[len(solved) :]]

    def dtypes(self, inputs: Sequence[DType | None], outputs: Sequence[DType | None]) -> Dtypes:
        """What is known of all dtypes, from what is known of each, where the operator demands some."""
        return list(inputs), list(outputs)

    def likely_shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> list[Partial]:
        """Default shapes of inputs that nothing else determines."""
        return list(inputs)

    def learnable_parts(self) -> Sequence[str]:
        """Names of the tensors that a learnable input of any number stands for, as far as the attributes say."""
        return ()

    def input_names(self) -> Sequence[str]:
        """Names of inputs of any number, where variables are made of those that are left out."""
        return ()

    def output_names(self) -> Sequence[str]:
        """Names of the outputs behind the node's; none: as the operator's `outputs` has them."""
        return ()


_solvers: dict[type[Op], type[Solver]] = {Op: Solver}


def solver(cls: type[Op]) -> Callable[[type[Solver]], type[Solver]]:
    """Class decorator: the Solver of a class of operators, and of those derived from it that have none themselves."""

    def register(answers: type[Solver]) -> type[Solver]:
        _solvers[cls] = answers
        return answers

    return register


def solver_class(cls: type[Op]) -> type[Solver]:
    """The solver of a class of operators: its own, or that of the first of its bases that has one."""
    return next(_solvers[base] for base in cls.__mro__ if base in _solvers)


def solver_of(op: Op) -> Solver:
    """The solver of an operator."""
    return solver_class(type(op))(op)


def names_of_outputs(node: SymbolNode) -> list[str]:
    """The names of a node's outputs: a variable's own, ``fc1_output``, or one for each of several."""
    if node.op is None:
        return [node.name]
    op, count = node.resolved(True), len(node.outputs)
    suffixes = solver_of(op).output_names()
    if not suffixes and count == 1:
        suffixes = ["output"]
    elif not suffixes and op.outputs[0].startswith("*"):
        suffixes = [f"output{k}" for k in range(count)]
    return [f"{node.name}_{suffix}" for suffix in (suffixes or op.outputs)[:count]]


@solver(Pointwise)
class PointwiseSolver(Solver):
    """Operands broadcast. Those of which nothing is known have the shape of the result, or of another operand."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        if type(self.op).infer is not Pointwise.infer:  # another shape than the broadcast one
            return list(inputs), list(outputs)
        shapes, output = broadcast(inputs, outputs[0])
        return shapes, [output]

    def likely_shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> list[Partial]:
        likely = next((s for s in (*outputs, *inputs) if s), None)  # () may be a number's
        return [likely if shape is None else shape for shape in inputs]


@solver(SimpleOp)
class SimpleSolver(PointwiseSolver):
    """Operands that must have one shape have it; () may be a number's."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        if not self.op.equal or self.op.shape_rule is not None:
            return super().shapes(inputs, outputs)
        common: Partial = None
        try:
            for shape in (*inputs, *outputs):
                common = merge(common, shape or None)
        except Contradiction as wrong:
            raise Contradiction(f"operands must have one shape: {wrong}") from None
        solved = [common if shape is None else merge(shape, common if shape else None) for shape in inputs]
        return solved, [common if outputs[0] is None else merge(outputs[0], common)]


@solver(PointwiseLoss)
class PointwiseLossSolver(PointwiseSolver):
    """x, the target, and the result that is not reduced have one shape."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        result: Partial = ()
        try:
            shape = merge(inputs[0], inputs[1])
            if self.op.reduction == "none":
                shape = result = merge(shape, outputs[0])
        except Contradiction as wrong:
            raise Contradiction(f"x and target must have the same shape: {wrong}") from None
        return [shape, shape, *inputs[2:]], [result]


@solver(Classes)
class ClassesSolver(Solver):
    """Losses of classes: a target is likely to be the indices of classes, one for each row of x."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        return list(inputs), list(outputs) if self.op.reduction == "none" else [()]

    def likely_shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> list[Partial]:
        x, target, *others = inputs
        if target is None and x:
            axis = min(1, len(x) - 1)
            target = (*x[:axis], *x[axis + 1 :])
        return [x, target, *others]


@solver(Matmul)
class MatmulSolver(Solver):
    """Inner sizes agree, leading ones broadcast; vectors have neither, so ranks must be known."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        a, b = inputs
        y = outputs[0]
        if not a or not b:
            return [a, b], [y]
        inner = merge(a[-1:], (b[-min(len(b), 2)],)) or ()
        rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
        lead, ends = (None, None) if y is None else split_last(y, len(rows) + len(columns))
        m = merge(rows, ends and ends[: len(rows)]) or ()
        n = merge(columns, ends and ends[len(rows) :]) or ()
        (first, second), lead = broadcast([a[:-2], b[:-2]], lead)
        x1, x2 = (*(first or ()), *m, *inner), (*(second or ()), *inner, *n)
        return [x1, x2], [None if lead is None else (*lead, *m, *n)]


@solver(ScaledDotProductAttention)
class AttentionSolver(Solver):
    """By the rule, with the heads of q in the place of those of k and v that several of them share."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        q, k, v, *rest = inputs
        if shared_heads_of(q, k) == 1:
            return super().shapes(inputs, outputs)
        wide = [x if x is None or q is None else (*x[:-3], q[-3], *x[-2:]) for x in (k, v)]
        solved, results = super().shapes([q, *wide, *rest], outputs)
        return [solved[0], k, v, *solved[3:]], results


@solver(Recurrent)
class RecurrentSolver(Solver):
    """The states of all layers and directions by the number of parameters."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        parameters = len(inputs) - sum(not spec.variadic for spec in self.op.inputs)
        state = f"[{parameters // 4},n,hidden_size]"
        results = f"y[t,n,{self.op.directions}*hidden_size], hn{state}, cn{state}"
        return self.by_rule(f"x[t,n,c], h0{state}, c0{state} -> {results}", inputs, outputs)

    def learnable_parts(self) -> Sequence[str]:
        names: Sequence[str] = self.op.parameter_names()
        return names


@solver(SymbolGradient)
class GradientSolver(Solver):
    """Gradients have the shapes of the last inputs."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        first = len(inputs) - len(self.op.names)
        same = [merge(x, y) for x, y in zip(inputs[first:], outputs, strict=True)]
        return [*inputs[:first], *same], same


@solver(PythonOp)
class PythonSolver(Solver):
    """Operators of Python functions say shapes and dtypes themselves; a failure means that they need to know more."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        arguments, _, words = self.op.split(inputs)
        try:
            input_shapes, output_shapes = self.op.shapes(list(arguments))
        except (TypeError, IndexError, AttributeError):
            return list(inputs), list(outputs)
        return [*input_shapes, *words], list(output_shapes)[: self.op.form().visible]

    def dtypes(self, inputs: Sequence[DType | None], outputs: Sequence[DType | None]) -> Dtypes:
        arguments, states, words = self.op.split(inputs)
        try:
            input_dtypes, output_dtypes = self.op.checked_dtypes(list(arguments), [*arguments, *states])
        except DTypeError:
            raise
        except (TypeError, IndexError, AttributeError):
            return list(inputs), list(outputs)
        return [*input_dtypes, *words], output_dtypes[: self.op.form().visible]

    def input_names(self) -> Sequence[str]:
        names: Sequence[str] = self.op.argument_names()
        return names

    def output_names(self) -> Sequence[str]:
        names: Sequence[str] = self.op.output_names()
        return names
