"""The family of pointwise operators: one scalar function, broadcast over the operands.

>>> from weft.ops.registry import get
>>> issubclass(get("exp"), Pointwise)
True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType, as_dtype, bool_, float32
from weft.base.errors import DTypeError
from weft.expr import scalar as e
from weft.expr.functions import derive
from weft.ops import functions as F
from weft.ops.kernels import Loop, pointwise_loop
from weft.ops.op import Attribute, Op, op
from weft.ops.sizes import Size
from weft.ops.types import TensorType, broadcast_shapes, promote

__all__ = ["Pointwise", "unbroadcast"]

Scalar = e.Scalar


class Pointwise(Op):
    """Base: a class gives scalar(x, y, ...) on elements of one type, that which the operands are promoted to.

    takes: kinds of dtypes it accepts ("bool", "int", "uint", "float"). result: "same", "bool", or "float": integers and
    booleans are computed as float32. The gradient is derived from the scalar function unless vjp is given; `smooth`
    False: it is zero wherever there is one (rounding, comparisons).
    """

    family: ClassVar[str] = "pointwise"
    takes: ClassVar[tuple[str, ...]] = ("bool", "int", "uint", "float")
    result: ClassVar[str] = "same"
    smooth: ClassVar[bool] = True

    def scalar(self, *x: Scalar) -> Scalar:
        """The value of one element."""
        raise NotImplementedError

    @classmethod
    def signature_rule(cls) -> Callable[..., Any] | None:
        return None if cls.scalar.__qualname__ == "Pointwise.scalar" else cls.scalar

    def compute_dtype(self, *inputs: TensorType) -> DType:
        """The type that operands are converted to."""
        common = promote(*inputs)
        if self.result == "float" and common.kind != "float":
            return float32
        return common

    def infer(self, *inputs: TensorType) -> TensorType:
        named = dict(zip((i.name for i in self.inputs), inputs, strict=True))
        common = self.compute_dtype(*inputs)
        if common.kind not in self.takes:
            wanted = [word for kind, word in _KINDS.items() if kind in self.takes]
            raise self.fail(DTypeError, f"takes {' and '.join(wanted)}", **named)
        shape = broadcast_shapes(self.name, named)
        device = next((t.device for t in inputs if not t.weak), inputs[0].device)
        return TensorType(shape, bool_ if self.result == "bool" else common, device)

    def kernels(self, *inputs: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        common = self.compute_dtype(*inputs).name
        numbers: list[Any] = []
        bound = self._with_parameters(numbers, common)
        loads = [load_as(k, t, common) for k, t in enumerate(inputs)]
        yield pointwise_loop(inputs, [bound.scalar(*loads)], numbers)

    def _with_parameters(self, numbers: list[Any], dtype: str) -> Any:
        """The operator with its Runtime attributes as parameters, in the type of the computation."""
        values: dict[str, Any] = {}
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            if attribute.runtime and value is not None and not isinstance(value, bool | int | float):
                numbers.append(value)
                values[attribute.name] = e.parameter(len(numbers) - 1, dtype)
        return self.with_runtime(values) if values else self

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """dy times the derivative of the scalar function, summed over what was repeated."""
        count = len(self.inputs)
        inputs, dy = values[:count], values[-1]
        if not self.smooth or self.result == "bool" or dy.dtype.kind != "float":
            return (None,) * count
        gradients = []
        for k, x in enumerate(inputs):
            if x.dtype.kind != "float" or x.type.weak:
                gradients.append(None)
                continue
            full = F.pointwise_gradient(*inputs, dy, of=self, wrt=k)
            gradients.append(unbroadcast(full, x))
        return tuple(gradients)

    # For tests.

    def decompose(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{self.name}: its meaning is its scalar function; see weft.expr.evaluate")


def load_as(operand: int, type: TensorType, dtype: str) -> Scalar:
    """An operand's element in the type of the computation; a Python number is not rounded on its way there."""
    return e.load(operand, dtype) if type.weak else e.cast(e.load(operand, type.dtype.name), dtype)


_KINDS = {"bool": "booleans", "int": "integers", "float": "floating-point types"}


class Float(Pointwise):
    """A pointwise function of real numbers: integers are computed as float32."""

    result: ClassVar[str] = "float"
    takes: ClassVar[tuple[str, ...]] = ("float",)


@op
class PointwiseGradient(Op):
    """dy times the derivative of a pointwise operator with respect to one operand, by symbolic differentiation."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    of: object
    wrt: int

    def infer(self, *operands: TensorType) -> TensorType:
        *inputs, dy = operands
        return TensorType(dy.shape, inputs[self.wrt].dtype, dy.device)

    def _scalar(self, operands: tuple[TensorType, ...], numbers: list[Any]) -> Scalar:
        *inputs, dy = operands
        of: Any = self.of
        common = of.compute_dtype(*inputs).name
        bound = of._with_parameters(numbers, common)
        variables = [e.load(k, common) for k in range(len(inputs))]
        slope = _slope(bound, tuple(variables), self.wrt)
        places = {
            id(v): load_as(k, t, common)
            for k, (v, t) in enumerate(zip(variables, inputs, strict=True))
        }
        slope = e.substitute(slope, lambda node: places.get(id(node), node))
        upstream = e.cast(e.load(len(inputs), dy.dtype.name), common)
        return e.cast(_product(upstream, slope), inputs[self.wrt].dtype.name)

    def kernels(self, *operands: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        numbers: list[Any] = []
        scalar = self._scalar(operands, numbers)
        yield pointwise_loop(operands, [scalar], numbers)

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """Through the gradient again: the scalar function is dy * f'(x), differentiated as any other."""
        *operands, _, upstream = values
        gradients: list[Any] = []
        for k, x in enumerate(operands):
            if x.dtype.kind != "float" or x.type.weak:
                gradients.append(None)
                continue
            full = F.pointwise_gradient(*operands, upstream, of=_GradientScalar(self), wrt=k)
            gradients.append(unbroadcast(full, x))
        return tuple(gradients)


class _GradientScalar:
    """A PointwiseGradient as something that can be differentiated by PointwiseGradient."""

    def __init__(self, gradient: Any) -> None:
        self.gradient = gradient
        self.name = f"{gradient.of.name}_gradient"

    def compute_dtype(self, *inputs: TensorType) -> DType:
        dtype: DType = self.gradient.of.compute_dtype(*inputs[:-1])
        return dtype

    def _with_parameters(self, numbers: list[Any], dtype: str) -> Any:
        bound = self.gradient.of._with_parameters(numbers, dtype)
        return _Bound(lambda *x: _product(x[-1], _slope(bound, x[:-1], self.gradient.wrt)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GradientScalar) and self.gradient == other.gradient

    def __hash__(self) -> int:
        return hash(self.gradient)

    def __repr__(self) -> str:
        return repr(self.gradient)


class _Bound:
    def __init__(self, scalar: Callable[..., Scalar]) -> None:
        self.scalar = scalar


def _slope(of: Any, variables: tuple[Scalar, ...], wrt: int) -> Scalar:
    """The derivative of a scalar function at these variables, which need not be leaves."""
    leaves = tuple(e.load(900 + k, v.dtype) for k, v in enumerate(variables))
    slope = derive(of.scalar(*leaves), leaves[wrt])
    places = {id(leaf): v for leaf, v in zip(leaves, variables, strict=True)}
    return e.substitute(slope, lambda node: places.get(id(node), node))


def _product(dy: Scalar, slope: Scalar) -> Scalar:
    if slope.op == "constant" and slope.value in (1, -1):
        return dy if slope.value == 1 else -dy
    if slope.op == "neg":
        return -_product(dy, slope.args[0])
    if slope.op == "div" and slope.args[0].op == "constant" and slope.args[0].value == 1:
        return dy / slope.args[1]
    return dy * slope


def unbroadcast(gradient: Any, x: Any) -> Any:
    """The gradient of x from that of its repetition: summed over the dimensions in which x was repeated."""
    extra = gradient.ndim - x.ndim
    axes = tuple(range(extra)) + tuple(
        d + extra for d in range(x.ndim) if _one(x.shape[d]) and not _one(gradient.shape[d + extra])
    )
    if not axes:
        return gradient
    summed = F.sum(gradient, axis=axes, keepdims=True)
    return F.squeeze(summed, axis=tuple(range(extra))) if extra else summed


def _one(size: int | Size) -> bool:
    return isinstance(size, int) and size == 1


__all__ += ["Attribute", "Float", "PointwiseGradient", "as_dtype", "functools"]
