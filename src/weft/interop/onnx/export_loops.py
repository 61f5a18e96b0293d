"""Loops and views of operators as nodes of ONNX: what operators without a rule of their own are written by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Scan
from weft.interop.onnx.writer import KERNELS, Writer
from weft.ops.kernels import Loop, Parts, Several, View
from weft.ops.node import Node, Value
from weft.ops.shapes import row_major
from weft.ops.sizes import Size

__all__: list[str] = []

SIMPLE = {
    **{name: name.capitalize() for name in ("neg", "abs", "sqrt", "floor", "ceil", "exp", "log", "sigmoid")},
    **{name: name.capitalize() for name in ("add", "sub", "mul", "div", "erf", "tanh", "pow")},
    **{
        f"{a}{name}{h}": f"{a}{name}{h}".capitalize()
        for a in ("", "a")
        for name in ("sin", "cos", "tan")
        for h in ("", "h")
    },
    "product": "Mul",
    "rint": "Round",
    "minimum": "Min",
    "maximum": "Max",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
}
LOGICAL = {"and": "And", "or": "Or", "xor": "Xor", "not": "Not"}
REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
MARK = 40  # bits of a stride that stands for an axis


class _Loop:
    """The state of writing one loop: names of expressions and results, and the space."""

    def __init__(
        self, writer: Writer, node: Node, loop: Loop, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> None:
        self.writer, self.node, self.loop, self.outputs = writer, node, loop, outputs
        self.operands: dict[int, tuple[str, str, Any]] = {}  # number -> name, dtype, shape
        for k, value in enumerate(inputs):
            if value is not None:
                name = writer.read(value)
                assert name is not None
                self.operands[k] = name, value.type.dtype.name, value.shape
        shapes = [shape for _, _, shape in self.operands.values()]
        self.space = _broadcast(shapes) if shapes else outputs[0].shape
        self.results: dict[int, str] = {}
        self.known: dict[e.Scalar, tuple[str, Any]] = {}  # name and shape

    def run(self) -> list[str | None]:
        names: list[str | None] = [None] * len(self.outputs)
        for stage in self.loop.stages:
            if isinstance(stage, Fold):
                for reduction in stage.reductions:
                    self.results[reduction.number] = self.folded(reduction)
            elif isinstance(stage, Scan):
                for reduction in stage.reductions:
                    self.results[reduction.number] = self.scanned(stage, reduction)
            if isinstance(stage, Each | Scan | Once):
                self.known = {}
                for store in stage.stores:
                    k = store.operand - self.loop.inputs
                    names[k] = self.stored(
                        store.operand, self.outputs[k], store.value, isinstance(stage, Once)
                    )
            self.known = {}
        return names

    def stored(self, operand: int, output: Value, value: e.Scalar, is_once: bool) -> str:
        name, shape = self.value(value)
        row = tuple(1 if d in self.loop.axes else n for d, n in enumerate(self.space))
        whole = row if is_once else tuple(self.space)
        if tuple(shape) != whole:
            name = self.writer.add("Expand", name, self.writer.integers(whole))
        dtype = output.type.dtype.name
        name = self.writer.cast(name, value.dtype, dtype)
        self.operands[operand] = name, dtype, whole
        return name if tuple(output.shape) == whole else self.writer.reshaped(name, output.shape)

    def folded(self, reduction: Any) -> str:
        writer, axes = self.writer, self.loop.axes
        name, shape = self.value(reduction.value)
        if tuple(shape) != tuple(self.space):
            name = writer.add("Expand", name, writer.integers(self.space))
        dtype = reduction.value.dtype
        if reduction.op in ("argmax", "argmin"):
            return self.position(reduction, name)
        if not axes:
            return name
        narrow = dtype if dtype not in ("bool", "int8", "int16", "uint8", "uint16") else "int32"
        name = writer.cast(name, dtype, narrow)
        name = writer.add(REDUCTIONS[reduction.op], name, writer.integers(axes), keepdims=1)
        return writer.cast(name, narrow, dtype)

    def position(self, reduction: Any, name: str) -> str:
        """The first largest or smallest; of several axes in their order."""
        writer, axes, space = self.writer, self.loop.axes, self.space
        operator = {"argmax": "ArgMax", "argmin": "ArgMin"}[reduction.op]
        dtype = reduction.value.dtype
        if dtype in ("bool", "int16", "uint16", "uint32", "uint64"):
            name = writer.cast(name, dtype, "int64" if dtype.startswith("uint") else "int32")
        if len(axes) == 1:
            return writer.add(operator, name, axis=axes[0], keepdims=1)
        others = [d for d in range(len(space)) if d not in axes]
        name = writer.add("Transpose", name, perm=[*others, *axes])
        count = math.prod(space[d] for d in axes)
        name = writer.reshaped(name, [*(space[d] for d in others), count])
        name = writer.add(operator, name, axis=len(others), keepdims=0)
        return writer.reshaped(name, [1 if d in axes else n for d, n in enumerate(space)])

    def scanned(self, stage: Scan, reduction: Any) -> str:
        operator, since = {"sum": ("CumSum", 11), "prod": ("CumProd", 26)}.get(reduction.op, (None, 0))
        if operator is None or len(self.loop.axes) != 1:
            raise self.writer.refuse(self.node, f"ONNX has no running {reduction.op}")
        if self.writer.opset < since:
            raise self.writer.refuse(self.node, f"ONNX has a running {reduction.op} from opset {since} on")
        name, _ = self.value(reduction.value)
        axis = self.writer.constant(np.array(self.loop.axes[0], np.int64))
        return self.writer.add(operator, name, axis, reverse=int(stage.reverse))

    # ---- Expressions

    def value(self, root: e.Scalar) -> tuple[str, Any]:
        """The name and shape of an expression."""
        for x in e.walk(root):
            if x not in self.known:
                self.known[x] = self.expression(x)
        return self.known[root]

    def expression(self, x: e.Scalar) -> tuple[str, Any]:
        writer = self.writer
        if x.op == "constant":
            return writer.constant(np.asarray(x.value, _numpy(x.dtype))), ()
        if x.op == "load":
            name, dtype, shape = self.operands[x.value]
            return writer.cast(name, dtype, x.dtype), shape
        if x.op == "result":
            row = tuple(1 if d in self.loop.axes else n for d, n in enumerate(self.space))
            is_scan = any(isinstance(s, Scan) for s in self.loop.stages)
            return self.results[x.value], tuple(self.space) if is_scan else row
        if x.op == "parameter":
            return self.parameter(x)
        if x.op == "index":
            return self.index(x)
        arguments = [self.known[a] for a in x.args]
        shape = _broadcast([s for _, s in arguments])
        return self.operation(x, [name for name, _ in arguments]), shape

    def parameter(self, x: e.Scalar) -> tuple[str, Any]:
        number = self.loop.numbers[x.value]
        if isinstance(number, Value):
            return self.writer.read_as(number, x.dtype), ()
        if isinstance(number, Size):
            return self.writer.cast(self.writer.size(number), "int64", x.dtype), (1,)
        return self.writer.constant(np.asarray(number, _numpy(x.dtype))), ()

    def index(self, x: e.Scalar) -> tuple[str, Any]:
        writer, d = self.writer, x.value
        n, shape = self.space[d], [1] * len(self.space)
        shape[d] = n
        zero, one = (writer.constant(np.array(k, np.int64)) for k in (0, 1))
        limit = writer.reshaped(writer.size(n), ())
        name = writer.reshaped(writer.add("Range", zero, limit, one), shape)
        return writer.cast(name, "int64", x.dtype), tuple(shape)

    def operation(self, x: e.Scalar, a: list[str]) -> str:
        writer, add, dtype = self.writer, self.writer.add, x.dtype
        of = x.args[0].dtype
        if of.startswith("complex") or dtype.startswith("complex"):
            raise writer.refuse(self.node, "ONNX has no complex arithmetic")
        if x.op in LOGICAL:
            return add(LOGICAL[x.op] if of == "bool" else f"Bitwise{LOGICAL[x.op]}", *a)
        if x.op in ("lt", "le", "gt", "ge") and of == "bool":
            a = [writer.cast(name, "bool", "int32") for name in a]
        if x.op in SIMPLE:
            return add(SIMPLE[x.op], *a)
        if x.op == "cast":
            return writer.cast(a[0], of, dtype)
        one = writer.constant(np.asarray(1, _numpy(of)))
        match x.op:
            case "ne":
                return add("Not", add("Equal", *a))
            case "where":
                return add("Where", *a)
            case "fma":
                return add("Add", add("Mul", a[0], a[1]), a[2])
            case "rem":
                return add("Mod", *a, fmod=1)
            case "rsqrt":
                return add("Reciprocal", add("Sqrt", a[0]))
            case "cbrt":
                third = add("Pow", add("Abs", a[0]), writer.constant(np.asarray(1 / 3, _numpy(of))))
                return add("Mul", add("Sign", a[0]), third)
            case "copysign":  # 1 / -0 is negative
                zero = writer.constant(np.asarray(0, _numpy(of)))
                is_zero = add("And", add("Equal", a[1], zero), add("Less", add("Reciprocal", a[1]), zero))
                size = add("Abs", a[0])
                return add("Where", add("Or", add("Less", a[1], zero), is_zero), add("Neg", size), size)
            case "trunc":
                return add("Mul", add("Sign", a[0]), add("Floor", add("Abs", a[0])))
            case "exp2":
                return add("Pow", writer.constant(np.asarray(2, _numpy(of))), a[0])
            case "log2" | "log10":
                factor = 1 / math.log(2 if x.op == "log2" else 10)
                return add("Mul", add("Log", a[0]), writer.constant(np.asarray(factor, _numpy(of))))
            case "expm1":  # (u - 1) x / log u is exact to a few bits where u is rounded (Kahan)
                u = add("Exp", a[0])
                less = add("Sub", u, one)
                exact = add("Div", add("Mul", less, a[0]), add("Log", u))
                minus = add("Neg", one)
                is_far = add("Or", add("Equal", less, minus), add("IsInf", u))
                return add("Where", add("Equal", u, one), a[0], add("Where", is_far, less, exact))
            case "log1p":
                u = add("Add", a[0], one)
                exact = add("Div", add("Mul", add("Log", u), a[0]), add("Sub", u, one))
                is_far = add("Or", add("IsInf", u), add("LessOrEqual", u, add("Sub", one, one)))
                return add("Where", add("Equal", u, one), a[0], add("Where", is_far, add("Log", u), exact))
            case "bitcast" if writer.opset < 26:
                raise writer.refuse(self.node, "ONNX casts bits from opset 26 on")
            case "bitcast":
                return add("BitCast", a[0], to=writer.code(dtype))
            case "shl" | "shr" if of.startswith("uint"):
                return add("BitShift", *a, direction="LEFT" if x.op == "shl" else "RIGHT")
            case "shl" | "shr":
                return self.shifted(x.op, a[0], a[1], of)
            case "atan2":
                return self.atan2(a[0], a[1], of)
        raise writer.refuse(self.node, f"ONNX has nothing for {x.op} of {of}")

    def shifted(self, op: str, x: str, count: str, dtype: str) -> str:
        """A shift of signed integers by one of unsigned ones; to the right -x - 1 is shifted where x is negative."""
        writer, add, wide = self.writer, self.writer.add, "uint64" if dtype == "int64" else "uint32"
        count = writer.cast(count, dtype, wide)
        if op == "shl":
            return writer.cast(
                add("BitShift", writer.cast(x, dtype, wide), count, direction="LEFT"), wide, dtype
            )
        is_negative = add("Less", x, writer.constant(np.asarray(0, _numpy(dtype))))
        size = add("Where", is_negative, add("BitwiseNot", x), x)
        shifted = add("BitShift", writer.cast(size, dtype, wide), count, direction="RIGHT")
        shifted = writer.cast(shifted, wide, dtype)
        return add("Where", is_negative, add("BitwiseNot", shifted), shifted)

    def atan2(self, y: str, x: str, dtype: str) -> str:
        """The angle of (x, y): of y / x, turned by pi on the left; of two infinities or zeros of their signs."""
        add, constant = self.writer.add, self.writer.constant
        zero, one, pi = (constant(np.asarray(n, _numpy(dtype))) for n in (0, 1, math.pi))

        def sign(a: str) -> str:
            is_zero = add("And", add("Equal", a, zero), add("Less", add("Reciprocal", a), zero))
            return add("Where", add("Or", add("Less", a, zero), is_zero), add("Neg", one), one)

        sign_y, sign_x = sign(y), sign(x)
        both = add("And", add("IsInf", y), add("IsInf", x))
        none = add("And", add("Equal", y, zero), add("Equal", x, zero))
        ratio = add(
            "Where",
            both,
            add("Mul", sign_y, sign_x),
            add("Where", none, add("Mul", y, sign_x), add("Div", y, x)),
        )
        turned = add("Where", add("Less", sign_x, zero), add("Mul", sign_y, pi), zero)
        return add("Add", add("Atan", ratio), turned)


def loop(writer: Writer, node: Node, loop: Loop) -> list[str | None] | None:
    """The outputs of an operator that is a loop; None for one that gathers."""
    return None if loop.place is not None else _Loop(writer, node, loop, node.inputs, node.outputs).run()


def several(writer: Writer, node: Node, choice: Several) -> list[str | None]:
    """The outputs of an operator that is several loops."""
    names: list[str | None] = [None] * len(node.outputs)
    for part, inputs, outputs in choice.parts:
        if not isinstance(part, Loop) or part.place is not None:
            raise writer.refuse(node, "there is no rule for it")
        chosen = [node.outputs[k] for k in outputs]
        results = _Loop(writer, node, part, [node.inputs[k] for k in inputs], chosen).run()
        for k, name in zip(outputs, results, strict=True):
            names[k] = name
    return names


def put_together(writer: Writer, node: Node, choice: Parts) -> list[str]:
    """The output of an operator that copies its inputs into windows of the output."""
    y = node.outputs[0]
    if any(isinstance(n, Size) for v in (*node.inputs, y) if v is not None for n in v.shape):
        raise writer.refuse(node, "there is no rule for it with dynamic sizes")
    dtype, count = y.type.dtype.name, math.prod(y.shape)
    fill = choice.fill
    if isinstance(fill, Value):
        if not fill.is_constant:
            raise writer.refuse(node, "there is no rule for it")
        fill = fill.node.value
    start = writer.constant(np.asarray(0 if fill is None else fill, y.type.dtype.numpy))
    name = writer.add("Expand", start, writer.integers([count]))
    for k, see in choice.parts:
        seen, part = see(y.shape, row_major(y.shape)), node.inputs[k]
        if seen is None or part is None:
            raise writer.refuse(node, "there is no rule for it")
        places = writer.constant(_places(*seen).reshape(-1))
        update = writer.add("Expand", writer.read_as(part, dtype), writer.integers(seen[0]))
        flat = writer.reshaped(update, [math.prod(seen[0])])
        name = writer.add("ScatterElements", name, places, flat, axis=0)
    return [writer.reshaped(name, y.shape)]


def _places(shape: Any, strides: Any, offset: Any) -> Any:
    """The places in memory of a view's elements."""
    places = np.full(shape, offset, np.int64)
    for d, stride in enumerate(strides):
        places += (np.arange(shape[d]) * stride).reshape([-1] + [1] * (len(shape) - 1 - d))
    return places


def view(writer: Writer, node: Node, choice: View) -> list[str]:
    """The output of an operator that is a view of its first input.

    Strides that stand for axes tell which part of which axis each axis of the view is: a slice, then an order of axes,
    then new ones. A view that is not of that kind gathers elements by their place.
    """
    (x, *_), y = node.inputs, node.outputs[0]
    assert x is not None
    name = writer.read(x)
    assert name is not None
    marks = tuple(1 << (MARK * (d + 1)) for d in range(x.ndim))
    seen = choice.see(x.shape, marks)
    parts = None if seen is None else _parts(x.shape, *seen)
    if parts is None:
        return [_gathered(writer, node, choice, name)]
    slices, order = parts
    cut = {d: s for d, s in slices.items() if s != (0, x.shape[d], 1)}
    if cut:
        ends = [_end(*s) for s in cut.values()]
        starts, steps = [s[0] for s in cut.values()], [s[2] for s in cut.values()]
        vectors = [writer.integers(numbers) for numbers in (starts, ends, list(cut), steps)]
        name = writer.add("Slice", name, *vectors)
    if order != sorted(order):
        rest = [d for d in range(x.ndim) if d not in order]
        name = writer.add("Transpose", name, perm=[*order, *rest])
    strides: Sequence[Any] = seen[1] if seen is not None else ()
    is_new = [not isinstance(s, Size) and s == 0 for s in strides]
    shape = [1 if new else n for new, n in zip(is_new, y.shape, strict=True)]
    if shape != [slices[d][1] for d in (*order, *(d for d in range(x.ndim) if d not in order))]:
        name = writer.reshaped(name, shape)
    return [name if tuple(shape) == tuple(y.shape) else writer.add("Expand", name, writer.integers(y.shape))]


def _end(start: Any, count: Any, step: int) -> Any:
    end = start + count * step
    return end if step > 0 or end >= 0 else -(1 << 62)


def _parts(shape: Any, sizes: Any, strides: Any, offset: Any) -> tuple[dict[int, Any], list[int]] | None:
    """(start, count, step) of each axis, and the axes in the order of the view; None for another kind of view."""
    if not all(isinstance(s, int) for s in (*strides, offset)):
        return None
    slices: dict[int, Any] = {}
    order: list[int] = []
    for n, stride in zip(sizes, strides, strict=True):
        if stride == 0:
            continue
        d = (abs(stride).bit_length() - 1) // MARK - 1
        step = stride >> (MARK * (d + 1)) if d >= 0 else 0
        if d < 0 or d in slices or step << (MARK * (d + 1)) != stride:
            return None
        slices[d] = (0, n, step)
        order.append(d)
    for d in range(len(shape)):
        start = (offset >> (MARK * (d + 1))) & ((1 << MARK) - 1)
        _, count, step = slices.get(d, (0, 1, 1))
        slices[d] = start, count, step
    if any(isinstance(n, int) and n == 0 for n in sizes):
        return None
    return (slices, order) if sum(s[0] << (MARK * (d + 1)) for d, s in slices.items()) == offset else None


def _gathered(writer: Writer, node: Node, choice: View, name: str) -> str:
    (x, *_), y = node.inputs, node.outputs[0]
    assert x is not None
    if any(isinstance(n, Size) for n in (*x.shape, *y.shape)):
        raise writer.refuse(node, "this view of dynamic sizes has no rule")
    seen = choice.see(x.shape, row_major(x.shape))
    if seen is None:
        raise writer.refuse(node, "this view has no rule")
    flat = writer.reshaped(name, [math.prod(x.shape)])
    return writer.reshaped(writer.add("Gather", flat, writer.constant(_places(*seen)), axis=0), y.shape)


def _broadcast(shapes: Sequence[Any]) -> tuple[Any, ...]:
    rank = max(map(len, shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if isinstance(n, Size) or n != 1:
                result[d] = n
    return tuple(result)


def _numpy(dtype: str) -> Any:
    from weft.base.dtype import as_dtype

    return as_dtype(dtype).numpy


KERNELS |= {Loop: loop, Several: several, Parts: put_together, View: view}
