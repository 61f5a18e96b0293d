"""Values and Nodes, on which operators' rules are written: a Node applies an operator to Values. Immutable; no data.

>>> from weft.base.dtype import float32
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> x = input_value(TensorType((2, 3), float32), "x")
>>> (x * 2 + x).type
f32[2,3]@cpu:0
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from weft import _core
from weft.base.device import Device
from weft.base.dtype import DType, bool_, float32, int64
from weft.base.errors import DeviceError, DTypeError
from weft.base.typing import Any
from weft.ops import registry
from weft.ops.op import Input, Op
from weft.ops.sizes import Size
from weft.ops.types import TensorType

__all__ = [
    "ArrayFace",
    "Node",
    "Tracer",
    "Value",
    "add_operators",
    "apply",
    "constant",
    "created",
    "input_value",
    "method_of",
    "set_tracer_type",
    "traced",
    "value_of",
]


_orders = itertools.count()


class Node:
    """An operator applied to values.

    inputs: None where an optional one is missing; runtime: Values of Runtime attributes, for which the operator has 0;
    reads: the values among both, once for each time. op is None for what is given
    from outside: inputs (of a name) and constants (of a value). order: its number in the order of the program, in which
    side effects such as random numbers happen; a node that replaces another takes over its order. where: the user's
    line, as ``file:line``, for errors of late operations; empty if it is not known.
    device: where it runs, which is the device of its inputs unless the operator has a fixed one; None for numbers and
    what is computed from nothing else: those are computed wherever they are read.
    Raises DeviceError for inputs on different devices.
    """

    __slots__ = (
        "_written",
        "choice",
        "device",
        "inputs",
        "name",
        "op",
        "order",
        "outputs",
        "reads",
        "runtime",
        "value",
        "where",
    )

    choice: Any  # the result of weft.graph.rewrite.first_choice, once it was called
    _written: frozenset[int]

    def __init__(
        self,
        op: Op | None,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType],
        runtime: dict[str, Value] | None = None,
        name: str = "",
        value: Any = None,
        like: Node | None = None,
    ) -> None:
        self.op = op.without_numbers(runtime) if op is not None and runtime else op
        self.inputs, self.runtime = tuple(inputs), runtime or {}
        self.reads = self._read_values()
        self.name, self.value = name, value
        self.order: int = next(_orders) if like is None else like.order
        self.where: str = "" if like is None else like.where
        device = self.device = self._run_device(types)
        outputs = []
        for k, t in enumerate(types):
            outputs.append(Value(self, k, t if device is None or t.device is device else t.on(device)))
        self.outputs = tuple(outputs)

    def _run_device(self, types: Sequence[TensorType]) -> Device | None:
        if self.op is None:
            return None if self.value is not None or types[0].weak else types[0].device
        common = None
        for value in self.inputs:
            device = None if value is None else value.node.device
            if common is None or device is None:
                common = common or device
            elif device is not common:
                listed = ", ".join(repr(v.type) for v in self.inputs if v is not None)
                raise DeviceError(
                    f"{self.op.name}: operands on different devices: {listed}; x.to_device(device) copies"
                )
        return self.op.fixed_device() or common

    @property
    def written(self) -> frozenset[int]:
        """The outputs, by index, that are the new content of an input; an update of all parameters has thousands."""
        try:
            return self._written
        except AttributeError:
            writes = {} if self.op is None else self.op.writes_by_index(len(self.inputs))
            self._written = frozenset(writes.values())
            return self._written

    def _read_values(self) -> tuple[Value, ...]:
        if not self.runtime and None not in self.inputs:
            return self.inputs  # type: ignore[return-value]
        return tuple([v for v in (*self.inputs, *self.runtime.values()) if v is not None])

    def reading(self, new: Callable[[Value], Value]) -> Node:
        """The same node on other values: new gives for each value that it reads one of the same type and device."""
        copy = object.__new__(Node)
        copy.op, copy.name, copy.value = self.op, self.name, self.value
        copy.order, copy.where, copy.device = self.order, self.where, self.device
        copy.inputs = tuple([None if v is None else new(v) for v in self.inputs])
        copy.runtime = {name: new(v) for name, v in self.runtime.items()} if self.runtime else {}
        copy.reads = copy._read_values()
        copy.outputs = tuple([Value(copy, v.index, v.type) for v in self.outputs])
        if hasattr(self, "choice"):
            copy.choice = self.choice
        return copy

    def operand_types(self, device: Device | None = None) -> list[TensorType | None]:
        """The types of the inputs where the node runs, None for one that is missing: what kernels are chosen by.

        A value of no device is computed there, too. device: of the program, where a node without operands runs.
        """
        device = self.device or device
        return [
            None
            if v is None
            else v.type
            if device is None or v.node.device is not None
            else v.type.on(device)
            for v in self.inputs
        ]

    def bound(self) -> Op:
        """The operator with the Values of its Runtime attributes in their places."""
        assert self.op is not None
        return self.op.with_runtime(dict(self.runtime)) if self.runtime else self.op

    def __repr__(self) -> str:
        if self.op is None:
            return self.name or repr(self.value)
        return f"{self.op!r}({', '.join('None' if v is None else repr(v.type) for v in self.inputs)})"


class ArrayFace:
    """Methods of arrays that are not operators of these names, by operators; name= and attr= are a symbol's."""

    __slots__ = ()

    @property
    def mT(self) -> Any:
        """Matrices with rows and columns exchanged, as an array's."""
        return registry.function("matrix_transpose")(self)

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        """As an array's."""
        if shape:
            keywords["shape"] = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return registry.function("reshape")(self, **keywords)

    def astype(self, dtype: Any, *, copy: bool = True, **keywords: Any) -> Any:
        """As an array's, always of new elements."""
        return registry.function("cast")(self, dtype=dtype, **keywords)


class _Typed(ArrayFace):
    """What is known of an array by its type."""

    __slots__ = ()

    type: Any

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def size(self) -> Any:
        return self.type.size

    @property
    def device(self) -> Device:
        return self.type.device

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self.type.shape[0])  # raises NeedsSizes where it is a symbol

    @property
    def T(self) -> Any:
        return registry.function("permute_dims")(self, axes=tuple(reversed(range(self.ndim))))

    def __getattr__(self, name: str) -> Any:
        """The operators that are methods of arrays."""
        method = method_of(self, name)
        if method is None:
            raise AttributeError(f"a value in a graph has no attribute {name!r}")
        return method

    def __weft_apply__(self, op: type[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function does that is called with it: see bind for its arguments."""
        inputs, attributes = bind(op, args, kwargs)
        return apply(op, inputs, attributes)


class Value(_Typed):
    """One output of a Node. It is equal to itself only, and has no content: it may be a key of tables.

    Rules of operators are written on Values: Python's operators make nodes. What a user's function holds in the place
    of an array while it is recorded is a Tracer.
    """

    __slots__ = ("index", "node", "type")

    __array_ufunc__ = None  # numbers of NumPy leave their operators to it

    def __init__(self, node: Node, index: int, type: TensorType) -> None:
        self.node, self.index, self.type = node, index, type

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(
            f"the elements of a value in a graph are not known before it is computed: x is {self.type}\n"
            "  hint: use weft's functions; those of other libraries read elements"
        )

    @property
    def is_constant(self) -> bool:
        return self.node.op is None and self.node.value is not None

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth of a value in a graph is not known before it is computed; use where or cond: "
            f"x is {self.type}"
        )

    def __repr__(self) -> str:
        return f"{self.node!r}[{self.index}]" if len(self.node.outputs) > 1 else repr(self.node)


class Tracer(_Typed):
    """What a function that is recorded holds in the place of an array.

    value: the one that it was made for. The array's content while a function is recorded is what `lift` of the Capture
    says: it may have been written. What operators give of Tracers are Tracers. This class has what follows from
    operators, weft.arrays.tracer the rest of a Tensor's face.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> TensorType:
        return self.value.type

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return repr(self.value)


_tracer_type: type[Tracer] = Tracer


def set_tracer_type(cls: type[Tracer]) -> type[Tracer]:
    """Let recorded functions be given Tracers of this class."""
    global _tracer_type
    _tracer_type = cls
    return cls


def traced(x: Any) -> Any:
    """A Tracer for a Value, and for each of a tuple or list; anything else as it is."""
    if isinstance(x, Value):
        return _tracer_type(x)
    return type(x)(map(traced, x)) if type(x) in (tuple, list) else x


def value_of(x: Any) -> Any:
    """The Value of a Tracer; anything else as it is."""
    return x.value if isinstance(x, Tracer) else x


# Python's operators and the operators they mean; weft.Tensor has the same ones in native code.
UNARY_METHODS = {
    "__neg__": "negative",
    "__abs__": "abs",
    "__invert__": "bitwise_invert",
    "__pos__": "positive",
}
BINARY_METHODS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "matmul": "matmul",
}
COMPARISON_METHODS = {
    "__lt__": "less",
    "__le__": "less_equal",
    "__gt__": "greater",
    "__ge__": "greater_equal",
}


EQUALITY_METHODS = {"__eq__": "equal", "__ne__": "not_equal"}


def add_operators(
    cls: type, accepts: Callable[[Any], bool] = lambda other: True, equality: bool = False
) -> None:
    """Give a class Python's operators of arrays.

    accepts: those of two operands give NotImplemented unless the other one is accepted; equality: also == and !=.
    """

    def unary(name: str) -> Any:
        return lambda self: registry.function(name)(self)

    def binary(name: str) -> Any:
        return lambda self, other: registry.function(name)(self, other) if accepts(other) else NotImplemented

    def reflected(name: str) -> Any:
        return lambda self, other: registry.function(name)(other, self) if accepts(other) else NotImplemented

    for method, name in UNARY_METHODS.items():
        setattr(cls, method, unary(name))
    for method, name in BINARY_METHODS.items():
        setattr(cls, f"__{method}__", binary(name))
        setattr(cls, f"__r{method}__", reflected(name))
    for method, name in {**COMPARISON_METHODS, **(EQUALITY_METHODS if equality else {})}.items():
        setattr(cls, method, binary(name))


def _add_in_place_operators() -> None:
    def in_place(name: str) -> Any:
        def method(self: Any, other: Any) -> Any:
            result = registry.function(name)(self, other)
            if self.type.weak:  # a number
                return result
            check_in_place(name, result, self)
            self[...] = result
            return self

        return method

    for method, name in BINARY_METHODS.items():
        setattr(Tracer, f"__i{method}__", in_place(name))


def check_in_place(name: str, result: Any, x: Any) -> None:
    """Raises DTypeError where what an operator made cannot be written to x, as of arrays."""

    def rank(dtype: DType) -> int:
        return 0 if dtype is bool_ else 1 if dtype.is_integer else 2

    if rank(result.dtype) > rank(x.dtype):
        raise DTypeError(f"{name}: the result, {result.dtype}, cannot be written in place: x is {x.type}")


add_operators(Value)
add_operators(Tracer, equality=True)
_add_in_place_operators()


def method_of(x: Any, name: str) -> Any:
    """The operator of that name as a method of x, None if there is none that is a method of arrays."""
    cls = None if name.startswith("_") else registry.find(name)
    if cls is None or not (cls.public and cls.method):
        return None
    return functools.partial(registry.function(name), x)


def input_value(type: TensorType, name: str = "x") -> Value:
    """A Value that is given from outside."""
    return Node(None, (), (type,), name=name).outputs[0]


def constant(value: bool | int | float | Size, dtype: DType | None = None) -> Value:
    """A number; without a dtype a weak one, as Python's numbers are.

    >>> constant(2.0).type.weak
    True
    """
    kind = bool_ if isinstance(value, bool) else int64 if isinstance(value, int | Size) else float32
    return Node(None, (), (TensorType((), dtype or kind, weak=dtype is None),), value=value).outputs[0]


def _missing(cls: type[Op], spec: Input) -> Any:
    """The placeholder of an input that a call does not have."""
    if spec.optional:
        return None
    raise TypeError(f"{cls.name}: {spec.name} must be given")


def bind(
    cls: type[Op],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    missing: Callable[[type[Op], Input], Any] = _missing,
) -> tuple[list[Any], dict[str, Any]]:
    """A call's arguments as the inputs and the attributes of an operator.

    Positional arguments are cls.prefix if there is one, then the inputs in order and the attributes of cls.positional,
    or just cls.positional where it names inputs, too. Inputs may be named. Any number of inputs come as a list, before
    attributes, or one by one. missing: the placeholder of inputs that are not given, by default None where they are
    optional.
    Raises TypeError where they do not fit.
    """
    inputs: list[Any] = []
    positional = list(args)
    keywords = dict(kwargs)
    if cls.prefix and cls.prefix not in keywords and positional:
        keywords[cls.prefix] = positional.pop(0)
    attributes = cls.positional
    if [spec for spec in cls.inputs if spec.name in attributes]:
        if len(positional) > len(attributes):
            raise TypeError(f"{cls.name}: takes {len(attributes)} positional arguments, got {len(args)}")
        for name, value in zip(attributes, positional, strict=False):
            if name in keywords:
                raise TypeError(f"{cls.name}: {name} is given twice")
            keywords[name] = value
        positional, attributes = [], ()
    for spec in cls.inputs:
        if spec.variadic:
            if positional and isinstance(positional[0], list | tuple):
                inputs.extend(positional.pop(0))
            else:
                inputs.extend(positional)
                positional = []
        elif positional:
            inputs.append(positional.pop(0))
        elif spec.name in keywords:
            inputs.append(keywords.pop(spec.name))
        else:
            inputs.append(missing(cls, spec))
    for attribute in attributes:
        if positional:
            if attribute in keywords:
                raise TypeError(f"{cls.name}: {attribute} is given twice")
            keywords[attribute] = positional.pop(0)
    if positional:
        raise TypeError(
            f"{cls.name}: takes {len(cls.inputs) + len(cls.positional)} positional arguments, got {len(args)}"
        )
    return inputs, keywords


def apply(cls: type[Op], inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """The operator applied to Values, Tracers and numbers: its visible outputs, one alone not in a tuple.

    They are Tracers if an operand is one. Raises what the operator's checks and infer raise.
    """
    is_traced = _tracer_type in map(type, inputs) or _tracer_type in map(type, attributes.values())
    if is_traced:
        inputs = [*map(value_of, inputs)]
        attributes = {name: value_of(value) for name, value in attributes.items()}
    capture = _core.capture()  # see weft.graph.capture
    arguments = inputs
    if capture is not None:
        inputs = [capture.lift(value) for value in inputs]
        attributes = {name: capture.lift(value) for name, value in attributes.items()}
    inputs, attributes = _fitted(cls, inputs, attributes)
    runtime = {
        a.name: attributes[a.name]
        for a in cls.attributes
        if a.runtime and isinstance(attributes.get(a.name), Value)
    }
    op = cls(**attributes)
    if runtime:
        op = op.without_numbers(runtime)
    node = make_node(op, [_lift(cls, value) for value in inputs], runtime)
    outputs = node.outputs if capture is None else capture.record(node, arguments)
    visible = tuple(outputs[: len(outputs) - op.hidden])
    visible = tuple(map(_tracer_type, visible)) if is_traced else visible
    return visible[0] if len(visible) == 1 and not op.outputs[0].startswith("*") else visible


def unrecorded(rule: Callable[..., Any], *values: Any) -> Any:
    """What a rule gives for values that are only asked for their types: no function that is recorded gets its nodes."""
    capture = _core.capture()
    _core.set_capture(None)
    try:
        return rule(*values)
    finally:
        _core.set_capture(capture)


def created(cls: type[Op], attributes: dict[str, Any]) -> Any:
    """What an operator without operands gives: a Tracer while a function is recorded, else a Value."""
    capture = _core.capture()
    return apply(cls, (), attributes) if capture is None else capture.__weft_apply__(cls, (), attributes)


def _fitted(
    cls: type[Op], inputs: Sequence[Any], attributes: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Numbers that the operator writes to its first input, as its type takes them."""
    x = inputs[0] if cls.fitted and inputs else None
    if not isinstance(x, Value) or x.type.weak or not x.dtype.is_integer:
        return inputs, attributes

    def fit(name: str, value: Any) -> Any:
        is_number = name in cls.fitted and isinstance(value, bool | int | float)
        return _core.fitted_number(value, x.dtype) if is_number else value

    names = [spec.name for spec in cls.inputs]
    return [fit(name, value) for name, value in zip(names, inputs, strict=False)] + list(
        inputs[len(names) :]
    ), {name: fit(name, value) for name, value in attributes.items()}


def make_node(
    op: Op, inputs: Sequence[Value | None], runtime: dict[str, Value] | None = None, like: Node | None = None
) -> Node:
    """A Node of the operator, its types inferred; like: the node that it replaces, if any."""
    types_of_inputs = [None if value is None else value.type for value in inputs]
    for t in types_of_inputs:
        if t is not None and t.storage != "dense":
            op.require_storage(types_of_inputs)
    types = op.infer(*types_of_inputs)
    return Node(op, inputs, (types,) if isinstance(types, TensorType) else tuple(types), runtime, like=like)


def _lift(cls: type[Op], value: Any) -> Value | None:
    if value is None or isinstance(value, Value):
        return value
    if isinstance(value, bool | int | float | Size):
        return constant(value)
    raise TypeError(
        f"{cls.name}: expected a Value or a number beside other Values, got {type(value).__name__}"
    )
