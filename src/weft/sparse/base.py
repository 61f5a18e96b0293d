"""What sparse arrays have in common: their form, and how operators come to their rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from weft import _core
from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.graph.graph import definition_of
from weft.ops import functions as F
from weft.ops.foreign import ArrayMethods
from weft.ops.node import constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType, promote

__all__ = ["SparseArray", "accumulated", "add_rows", "index_array", "put_rows", "rule"]

Rule = Callable[[Any, tuple[Any, ...]], Any]  # of an operator and its inputs


class SparseArray(ArrayMethods):
    """Base: shape, values (a tensor of what is stored), and the rules of operators by name, of each class its own."""

    storage: ClassVar[str]
    rules: ClassVar[dict[str, Rule]]
    shape: tuple[int, ...]
    values: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.rules = {}

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @property
    def device(self) -> Any:
        """Where the values are."""
        return self.values.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, zeros included."""
        return math.prod(self.shape)

    @property
    def type(self) -> TensorType:
        """Shape, dtype, device and storage, as errors show them."""
        return TensorType(self.shape, self.dtype, self.device, storage=self.storage)

    def parts(self) -> dict[str, Any]:
        """The dense tensors that it is made of, by their names in the constructor."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Of all that is stored."""
        return sum(int(part.nbytes) for part in self.parts().values())

    def __weft_parts__(self) -> tuple[str, tuple[int, ...], dict[str, Any]]:
        """What weft.save writes."""
        return self.storage, self.shape, self.parts()

    def with_values(self, values: Any) -> Any:
        """The same places with other values."""
        raise NotImplementedError

    def astype(self, dtype: Any) -> Any:
        """The same places with values of another dtype."""
        places = self.convertible(as_dtype(dtype))
        return places.with_values(F.cast(places.values, dtype=dtype))

    def is_aligned(self, other: Any) -> bool:
        """Whether another array stores the same places in the same order, as far as is known without reading them."""
        raise NotImplementedError

    def todense(self) -> Any:
        """The whole array, a tensor, with a gradient to the values."""
        raise NotImplementedError

    def distinct(self) -> Any:
        """The same with each place stored once."""
        return self

    def convertible(self, dtype: Any) -> Any:
        """What may be converted to a dtype as it is stored: integers are added up before, in the dtype they wrap in."""
        is_exact = self.dtype.is_integer or self.dtype.kind == "bool"
        return self.distinct() if is_exact and dtype != self.dtype else self

    def __weft_function__(self, op: Op, args: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        if isinstance(op, Pointwise) and (result := _pointwise(self, op, args)) is not None:
            return result
        rule = self.rules.get(op.name)
        result = NotImplemented if rule is None else rule(op, args)
        if result is not NotImplemented:
            return result
        is_composed = not op.primitive and not isinstance(op, Pointwise)
        if rule is None and is_composed and type(op).decompose is not Op.decompose:
            return NotImplemented  # of what it decomposes to, each part is asked for
        listed = ", ".join(
            str(x.type) if isinstance(x, SparseArray) else str(getattr(x, "type", None) or type(x).__name__)
            for x in args
        )
        raise TypeError(
            f"{op.name}: has no rule for these sparse operands: {listed}\n  hint: todense() makes a dense array of one"
        )


def rule(cls: type[SparseArray], *names: str) -> Callable[[Rule], Rule]:
    """Decorator: a class's rule for operators of these names; it may give NotImplemented."""

    def register(function: Rule) -> Rule:
        cls.rules.update(dict.fromkeys(names, function))
        return function

    return register


def _pointwise(self: SparseArray, op: Pointwise, args: tuple[Any, ...]) -> Any:
    """The function of what is stored, if it is 0 of zeros: of arrays that store the same places, and numbers."""
    arrays = [x for x in args if x is not None and not isinstance(x, bool | int | float)]
    if not all(isinstance(x, SparseArray) and self.is_aligned(x) for x in arrays):
        return None
    dtype = _dtype_of_zeros(op, args)
    if dtype is None:
        return None
    if len(arrays) > 1 or not _is_linear(op):
        arrays = [x.distinct() for x in arrays]
    arrays = [x.convertible(dtype) for x in arrays]
    values = iter([x.values for x in arrays])
    operands = [next(values) if isinstance(x, SparseArray) else x for x in args]
    return arrays[0].with_values(op(*operands))


def _is_linear(op: Pointwise) -> bool:
    """Whether f(a) + f(b) is f(a + b), so that places may be stored several times."""
    return op.name in ("conj", "divide", "imag", "multiply", "negative", "positive", "real")


def _dtype_of_zeros(op: Pointwise, args: tuple[Any, ...]) -> Any:
    """The dtype of an operator's result, if it is 0 of zeros and of the numbers among its arguments; else None."""
    values = [
        None
        if x is None
        else input_value(TensorType((), x.dtype))
        if isinstance(x, SparseArray)
        else constant(x)
        for x in args
    ]
    node = make_node(op, values)
    zeros_of = [
        None if v is None else v.node.value if v.is_constant else np.zeros((), v.type.dtype.numpy)
        for v in values
    ]
    with np.errstate(all="ignore"):
        (result,) = definition_of(op, node, zeros_of)
    return node.outputs[0].type.dtype if np.all(result == 0) else None


def index_array(name: str, indices: Any, device: Any) -> Any:
    """Indices as an int64 tensor of one dimension. Raises DTypeError for others than integers."""
    if not hasattr(indices, "__weft_apply__") and not isinstance(indices, Tensor):
        host = np.asarray(indices)
        indices = host.astype("int64") if host.size == 0 else host
        if indices.dtype.kind not in "iu":
            raise DTypeError(f"{name} must be integers, got {indices.dtype}")
        indices = asarray(indices.reshape(-1).astype("int64"), device=device)
    if not indices.dtype.is_integer:
        raise DTypeError(f"{name} must be integers, got {indices.dtype}")
    if indices.ndim != 1:
        raise ShapeError(f"{name} need one dimension, and are {tuple(indices.shape)}")
    return indices if indices.dtype.name == "int64" else F.cast(indices, dtype="int64")


def accumulated(x: Any, *others: Any) -> tuple[Any, Any]:
    """The dtype that arrays are promoted to, and the one that its sums are computed in."""
    kind = promote(*(TensorType((), v.dtype) for v in (x, *others)))
    return kind, kind.accumulation


def put_rows(updates: Any, rows: Any, count: int, axis: int = 0) -> Any:
    """Slices of updates added up along an axis, those of equal row numbers together, to `count` of them."""
    shape = (*updates.shape[:axis], count, *updates.shape[axis + 1 :])
    start = zeros(shape, dtype=updates.dtype, device=updates.device)
    return F.index_put(start, updates, rows, axes=(axis,), position=axis, mode="add")


def add_rows(x: Any, rows: Any, updates: Any) -> None:
    """x[rows] += updates in place, where the updates of equal row numbers add up."""
    _core.call_into(F.index_put, x, (x, updates, rows), {"axes": (0,), "position": 0, "mode": "add"})
