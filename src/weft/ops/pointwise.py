"""The family of pointwise operators: one scalar function, broadcast over the operands.

>>> from weft.ops.registry import get
>>> issubclass(get("exp"), Pointwise)
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weft.base.dtype import DType, as_dtype, bool_, float32
from weft.base.errors import DTypeError
from weft.base.typing import Any, ClassVar
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, pointwise_loop
from weft.ops.node import apply, bind, constant
from weft.ops.op import Op, op
from weft.ops.registry import cached
from weft.ops.types import TensorType, broadcast_shapes, device_of, is_one, promote

__all__ = [
    "Float",
    "Pointwise",
    "PointwiseGradient",
    "cast_to",
    "conj",
    "loads",
    "pointwise_gradients",
    "unbroadcast",
]

Scalar = e.Scalar


class Pointwise(Op, family="pointwise", primitive=True):
    """Base: a class gives scalar(x, y, ...) on elements of one type, that which the operands are promoted to.

    takes: kinds of dtypes it accepts ("bool", "int", "uint", "float", "complex"). result: "same", "bool", "real": the
    type of a complex number's parts, or "float": integers and booleans are computed as float32. The gradient is derived
    from the scalar function unless vjp is given; `smooth` False: it is zero wherever there is one (rounding,
    comparisons).
    """

    takes: ClassVar[tuple[str, ...]] = ("bool", "int", "uint", "float")
    result: ClassVar[str] = "same"
    smooth: ClassVar[bool] = True

    def scalar(self, *x: Any) -> Scalar:
        """The value of one element."""
        raise NotImplementedError

    @classmethod
    def signature_rule(cls) -> Callable[..., Any] | None:
        return None if cls.scalar.__qualname__ == "Pointwise.scalar" else cls.scalar

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        """The type that is computed in, which the operands are converted to."""
        common = promote(*[t for t in inputs if t is not None])
        if self.result == "float" and not common.is_inexact:
            return float32
        return common

    def operand_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        """The type that each operand is converted to."""
        return (self.compute_dtype(*inputs),) * len(inputs)

    def infer(self, *inputs: TensorType | None) -> TensorType:
        named = {i.name: t for i, t in zip(self.inputs, inputs, strict=True) if t is not None}
        common = self.compute_dtype(*inputs)
        if common.kind not in self.takes:
            accepted = [word for kind, word in _KINDS.items() if kind in self.takes]
            raise self.fail(DTypeError, f"takes {' and '.join(accepted)}", **named)
        shape = broadcast_shapes(self.name, named)
        dtype = bool_ if self.result == "bool" else common.real if self.result == "real" else common
        return TensorType(shape, dtype, device_of(*named.values()))

    def infer_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...] | None:
        """Those of single elements."""
        return (
            self.infer(
                *(None if t is None else TensorType((), t.dtype, t.device, t.weak) for t in inputs)
            ).dtype,
        )

    def kernels(self, *inputs: TensorType | None) -> Iterator[Loop]:
        numbers: list[Any] = []
        yield pointwise_loop(inputs, [self.element(inputs, numbers)], numbers)

    def element(self, inputs: Sequence[TensorType | None], numbers: list[Any]) -> Scalar:
        """The value of one element of operands of these types; Runtime attributes are added to numbers."""
        op = self._with_parameters(numbers, self.compute_dtype(*inputs).name)
        value: Scalar = op.scalar(*loads(inputs, self.operand_dtypes(*inputs)))
        return value

    def _with_parameters(self, numbers: list[Any], dtype: str) -> Any:
        """The operator with its Runtime attributes as parameters, in the type of the computation."""
        values: dict[str, Any] = {}
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            if attribute.runtime and value is not None and not isinstance(value, bool | int | float):
                numbers.append(value)
                values[attribute.name] = e.parameter(len(numbers) - 1, e.COMPLEX.get(dtype, dtype))
        return self.with_runtime(values) if values else self

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return apply(type(self), inputs, {a.name: getattr(self, a.name) for a in self.attributes})

    @classmethod
    def on_elements(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scalar:
        inputs, attributes = bind(cls, args, kwargs)
        op: Any = cls(**attributes)
        types = [None if x is None else _element_type(cls, x) for x in inputs]
        op.infer(*types)  # is it defined on these
        value: Scalar = op.scalar(
            *(
                None if x is None else e.cast(x, to.name) if isinstance(x, Scalar) else e.constant(x, to.name)
                for x, to in zip(inputs, op.operand_dtypes(*types), strict=True)
            )
        )
        return value

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """dy times the derivative of the scalar function, summed over what was repeated."""
        *inputs, y, dy = values
        if not self.smooth or self.result == "bool" or not dy.dtype.is_differentiable:
            return (None,) * len(inputs)
        return pointwise_gradients(self, inputs, y, dy)


def _element_type(cls: type[Op], x: Any) -> TensorType:
    if isinstance(x, Scalar):
        return TensorType((), as_dtype(x.dtype))
    if isinstance(x, bool | int | float):
        return constant(x).type
    raise TypeError(f"{cls.name}: expected an element or a number, got {type(x).__name__}")


def loads(inputs: Sequence[TensorType | None], dtypes: Sequence[DType]) -> list[Scalar | None]:
    """The operands' elements converted to these types, None where one is missing."""
    return [
        None if t is None else load_as(k, t, dtype.name)
        for k, (t, dtype) in enumerate(zip(inputs, dtypes, strict=True))
    ]


def load_as(operand: int, type: TensorType, dtype: str) -> Scalar:
    """An operand's element in the type of the computation; a Python number is not rounded on its way there."""
    return e.cast(e.load(operand, e.COMPLEX.get(dtype, dtype) if type.weak else type.dtype.name), dtype)


_KINDS = {"bool": "booleans", "int": "integers", "float": "floating-point types", "complex": "complex types"}


class Float(Pointwise, result="float", takes=("float",)):
    """A pointwise function of real numbers: integers are computed as float32."""


@op
class PointwiseGradient(Op, primitive=True, public=False):
    """dy times the derivative of a pointwise operator with respect to one operand, by symbolic differentiation.

    Operands: those of the operator, its result, dy, then the Values of its Runtime attributes named by `runtime`; what
    the derivative does not read is None. dtypes: those that the operands are converted to, that of the computation,
    and that of the result. missing: the operands that the operator itself did not get.
    """

    of: object
    wrt: int
    dtypes: tuple[DType, ...]
    runtime: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()

    def infer(self, *operands: TensorType | None) -> TensorType:
        named = {f"x{k}": t for k, t in enumerate(operands) if t is not None}
        dy = operands[self.count + 1]
        assert dy is not None
        return TensorType(broadcast_shapes(self.name, named), self.dtypes[-1], dy.device)

    @property
    def count(self) -> int:
        """How many operands the operator has."""
        return len(self.dtypes) - 2

    def compute_dtype(self, *operands: TensorType | None) -> DType:
        return self.dtypes[-2]

    def operand_dtypes(self, *operands: TensorType | None) -> tuple[DType, ...]:
        common = self.dtypes[-2]
        return (*self.dtypes[:-2], common, common, *(common for _ in self.runtime))

    def reads(self) -> set[int]:
        """The operands that the derivative needs."""
        leaves, *derivatives = _derivative(self)
        nodes = {id(node) for node in e.walk(*(d for d in derivatives if d is not None))}
        return {k for k, leaf in enumerate(leaves) if id(leaf) in nodes}

    def scalar(self, *x: Scalar | None) -> Scalar:
        """One element, of operands converted to operand_dtypes."""
        leaves, derivative, by_conjugate = _derivative(self)
        operands = {id(leaf): v for leaf, v in zip(leaves, x, strict=True) if v is not None}
        dy = x[self.count + 1]
        assert dy is not None

        def factor(part: Scalar) -> Scalar:
            value = e.substitute(part, lambda node: operands.get(id(node), node))
            return e.cast(value, dy.dtype)  # another type if `of` is a gradient of a narrower operand

        dx = None if _is_constant(derivative, 0) else _product(dy, e.conj(factor(derivative)))
        if by_conjugate is not None:
            term = _product(e.conj(dy), factor(by_conjugate))
            dx = term if dx is None else dx + term
        assert dx is not None
        return e.cast(dx, self.dtypes[-1].name)

    def kernels(self, *operands: TensorType | None) -> Iterator[Loop]:
        yield pointwise_loop(operands, [self.scalar(*loads(operands, self.operand_dtypes()))])

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """As of any other pointwise operator; its scalar function is dy times the derivative."""
        *operands, y, dy = values
        return pointwise_gradients(self, operands, y, dy)


def pointwise_gradients(of: Any, inputs: Sequence[Any], y: Any, dy: Any) -> tuple[Any, ...]:
    """The gradient of each operand of a pointwise operator; None where there is none."""
    numbers = {a.name: getattr(of, a.name) for a in of.attributes if a.runtime}
    runtime = {name: v for name, v in numbers.items() if v is not None and not isinstance(v, int | float)}
    types = [None if x is None else x.type for x in inputs]
    dtypes = (*of.operand_dtypes(*types), of.compute_dtype(*types))
    plain = of.with_runtime(dict.fromkeys(runtime, 0.0)) if runtime else of
    gradients: list[Any] = []
    for k, x in enumerate(inputs):
        if x is None or not x.dtype.is_differentiable or x.type.weak:
            gradients.append(None)
            continue
        attributes = {
            "of": plain,
            "wrt": k,
            "dtypes": (*dtypes, x.dtype),
            "runtime": tuple(runtime),
            "missing": tuple(j for j, v in enumerate(inputs) if v is None),
        }
        gradient = PointwiseGradient(**attributes)
        _, derivative, by_conjugate = _derivative(gradient)
        if _is_constant(derivative, 0) and by_conjugate is None:
            gradients.append(None)
            continue
        if _is_constant(derivative, 1) and by_conjugate is None and dy.dtype is x.dtype:
            gradients.append(unbroadcast(dy, x))
            continue
        reads = gradient.reads()
        operands = [*inputs, y, dy, *runtime.values()]
        needed = [v if j in reads or v is dy else None for j, v in enumerate(operands)]
        gradients.append(unbroadcast(F.pointwise_gradient(*needed, **attributes), x))
    return tuple(gradients)


@cached(maxsize=4096)
def _derivative(gradient: PointwiseGradient) -> tuple[tuple[Scalar, ...], Scalar, Scalar | None]:
    """Leaves for all operands, and the derivative in them; by the operator's result where that saves an operand.

    Third: the derivative with respect to the conjugate of a complex operand, unless it is 0.
    """
    from weft.expr.derivative import conjugate_derivatives, derive  # not before the first gradient

    of: Any = gradient.of
    count = gradient.count
    leaves = tuple(e.load(900 + k, dtype.name) for k, dtype in enumerate(gradient.operand_dtypes()))
    op = of.with_runtime(dict(zip(gradient.runtime, leaves[count + 2 :], strict=True)))
    value = op.scalar(*(None if k in gradient.missing else leaves[k] for k in range(count)))
    leaf = leaves[gradient.wrt]
    by_conjugate = None
    if leaf.dtype in e.COMPLEX:
        by_leaf, by_conjugate = conjugate_derivatives(value, leaf)
        if by_conjugate is not None and value.dtype in e.FLOATS:  # both terms are the same
            by_leaf, by_conjugate = None, by_conjugate * 2
        derivative = e.constant(0, leaf.dtype) if by_leaf is None else by_leaf
    else:
        derivative = derive(value, leaf)
    roots = (derivative, *(() if by_conjugate is None else (by_conjugate,)))
    result = e.cast(leaves[count], value.dtype)
    by_result = [e.substitute(root, lambda node: result if node is value else node) for root in roots]
    before, after = ({id(node) for node in e.walk(*each)} for each in (roots, by_result))
    saves = any(id(leaf) in before and id(leaf) not in after for leaf in leaves[:count])
    best = by_result if saves else roots
    return leaves, best[0], best[1] if len(best) > 1 else None


def _is_constant(x: Scalar, value: float) -> bool:
    return x.op == "constant" and x.value == value


def _product(dy: Scalar, derivative: Scalar) -> Scalar:
    if _is_constant(derivative, 1) or _is_constant(derivative, -1):
        return dy if derivative.value == 1 else -dy
    if derivative.op == "neg":
        return -_product(dy, derivative.args[0])
    if derivative.op == "div" and _is_constant(derivative.args[0], 1):
        return dy / derivative.args[1]
    return dy * derivative


def unbroadcast(gradient: Any, x: Any) -> Any:
    """The gradient of x from that of its repetition: summed over the dimensions in which x was repeated."""
    extra = gradient.ndim - x.ndim
    axes = tuple(range(extra)) + tuple(
        d + extra for d in range(x.ndim) if is_one(x.shape[d]) and not is_one(gradient.shape[d + extra])
    )
    if extra < 0 or any(
        not is_one(n) and is_one(m) for n, m in zip(x.shape, gradient.shape[extra:], strict=True)
    ):
        return F.broadcast_like(gradient, x)  # it is the same for every element
    if not axes:
        return gradient
    summed = F.sum(gradient, axis=axes, keepdims=True)
    return F.squeeze(summed, axis=tuple(range(extra))) if extra else summed


def conj(value: Any) -> Any:
    """The complex conjugate of a value: itself, if it is real."""
    return F.conj(value) if value.dtype.is_complex else value


def cast_to(value: Any, dtype: DType) -> Any:
    """The value in that type: itself, if it is of it."""
    return value if value.dtype is dtype else F.cast(value, dtype=dtype)
