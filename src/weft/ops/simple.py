"""Operators from a function of elements: ``simple_op``.

>>> import weft as wf
>>> @wf.simple_op
... def smoothed(x, *, sigma=1.0):
...     '''|x| - 1 / (2 s) where |x| > 1 / s, else s x^2 / 2, with s = sigma^2.'''
...     s = sigma * sigma
...     return wf.where(abs(x) > 1 / s, abs(x) - 0.5 / s, 0.5 * s * x * x)
>>> smoothed(wf.tensor([-2., 0.5]))
tensor([1.5  , 0.125], dtype=float32, device=cpu:0)
>>> wf.grad(lambda x: smoothed(x, sigma=2.0).sum())(wf.tensor([-2., 0.125]))
tensor([-1. ,  0.5], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, overload

from weft.base.dtype import DType, bool_, float32
from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value, apply, bind, constant, input_value
from weft.ops.op import Input, Op, op
from weft.ops.pointwise import Pointwise, pointwise_gradients, unbroadcast
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType, broadcast_shapes, device_of, promote

__all__ = ["SimpleFunction", "SimpleOp", "simple_op"]

Scalar = e.Scalar
RESOURCES = ("temp_space", "random")
MOST_INPUTS = 21  # beside its result: LoopPattern::kOperands in native/program/loop.h
EQUAL = "equal"
# What a whole array is made one number of, by the names of `reduce`.
REDUCTIONS = ("sum", "mean", "prod", "max", "min")
TUPLES = ("tuple[int, ...]", "tuple[float, ...]")
HINT = (
    "an element has no value before the kernel runs: use wf.where for if, wf.minimum and wf.maximum for min and max, "
    "& | ~ for and, or, not, and wf.exp, wf.tanh, ... for functions of the module math"
)


class SimpleOp(Pointwise, family="simple"):
    """Base of the classes that simple_op makes.

    function: the function of elements. gradient_rule: that of its gradient, or None. shape_rule: the shape that the
    operands are repeated to, from theirs. equal: they must have one shape. resources, in_place: as they were declared.
    """

    function: ClassVar[Callable[..., Any]]
    gradient_rule: ClassVar[Callable[..., Any] | None] = None
    shape_rule: ClassVar[Callable[..., Sequence[int]] | None] = None
    shape_attributes: ClassVar[tuple[str, ...]] = ()
    equal: ClassVar[bool] = False
    resources: ClassVar[tuple[str, ...]] = ()
    in_place: ClassVar[tuple[tuple[int, int], ...]] = ()

    @classmethod
    def make_function(cls) -> Any:
        plain = super().make_function()
        if "random" not in cls.resources:
            return plain
        array_inputs = cls.inputs[:-1]

        def call(*args: Any, **kwargs: Any) -> Any:
            """A call that gives the random numbers, too, is the operator itself: that of a Transformation."""
            arrays = [x for x in args if not isinstance(x, bool | int | float | str | tuple | None)]
            if cls.inputs[-1].name in kwargs or len(arrays) > len(array_inputs):
                return plain(*args, **kwargs)
            operands = [
                x
                for x in (*args[: len(array_inputs)], *(kwargs.get(i.name) for i in array_inputs))
                if x is not None
            ]
            if not operands:
                return plain(*args, **kwargs)  # which says what is missing
            uniform = F.uniform_like(operands)
            # The random numbers are behind the other inputs, and attributes by position behind them.
            if len(args) < len(array_inputs):
                return plain(*args, **kwargs, **{cls.inputs[-1].name: uniform})
            return plain(*args[: len(array_inputs)], uniform, *args[len(array_inputs) :], **kwargs)

        call.__name__ = call.__qualname__ = cls.name
        call.__doc__ = cls.__doc__
        return call

    def scalar(self, *x: Scalar | None) -> Scalar:
        """One element: the function, called with elements and attributes."""
        expression = type(self).function(*x, **self.values())
        if not isinstance(expression, Scalar):
            raise TypeError(f"{self.name}: must return an expression of its elements, got {expression!r}")
        like = next(element for element in x if element is not None)
        return expression if expression.dtype == "bool" else e.cast(expression, like.dtype)

    def trial(self, dtype: str, missing: Sequence[bool]) -> Scalar:
        """The expression for elements of a type. Raises TypeError where it is not defined."""
        numbers = [a.name for a in self.attributes if a.runtime and getattr(self, a.name, None) is not None]
        op: Any = self.with_runtime({name: e.parameter(k, dtype) for k, name in enumerate(numbers)})
        elements = (None if is_missing else e.load(k, dtype) for k, is_missing in enumerate(missing))
        expression: Scalar = op.scalar(*elements)
        if dtype not in e.FLOATS and any(part.op == "div" for part in e.walk(expression)):
            raise TypeError(f"/ of {dtype}")  # is a fraction
        return expression

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        """That of the operands and numbers together; float32 for integers that the function is not defined on."""
        numbers = [kind_of(getattr(self, a.name)) for a in self.attributes if a.runtime]
        common = promote(*(t for t in (*inputs, *numbers) if t is not None))
        if not common.is_floating:
            try:
                self.trial(common.name, [t is None for t in inputs])
            except (TypeError, OverflowError):
                return float32
        return common

    def infer_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        common = self.compute_dtype(*inputs)
        expression = self.trial(common.name, [t is None for t in inputs])
        return (bool_ if expression.dtype == "bool" else common,)

    def infer(self, *inputs: TensorType | None) -> TensorType:
        y = super().infer(*inputs)
        expression = self.trial(y.dtype.name, [t is None for t in inputs])
        if self.equal:
            self._check_equal(inputs)
        if self.shape_rule is None:
            return y.like(dtype=bool_) if expression.dtype == "bool" else y
        named = {i.name: t for i, t in zip(self.inputs, inputs, strict=True) if t is not None}
        attributes = {name: getattr(self, name) for name in self.shape_attributes}
        shape = tuple(self.shape_rule(*(None if t is None else t.shape for t in inputs), **attributes))
        y = y.like(shape, bool_ if expression.dtype == "bool" else None)
        if broadcast_shapes(self.name, {**named, "the shape given": y}) != shape:
            raise self.fail(ShapeError, f"operands do not fit into the shape {shape}", **named)
        return y

    def _check_equal(self, inputs: Sequence[TensorType | None]) -> None:
        named = {i.name: t for i, t in zip(self.inputs, inputs, strict=True) if t is not None and not t.weak}
        for name, t in named.items():
            first, like = next(iter(named.items()))
            if t.shape != like.shape:
                raise self.fail(ShapeError, f"{first} and {name} must have one shape", **named)

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """By the rule that was given, else by symbolic differentiation."""
        *inputs, y, dy = values
        if not y.dtype.is_differentiable:
            return (None,) * len(inputs)
        if self.gradient_rule is None:
            pointwise = pointwise_gradients(self, inputs, y, dy)
            return tuple(
                None if i.name in self.fixed else dx for i, dx in zip(self.inputs, pointwise, strict=True)
            )
        types = [None if x is None else x.type for x in inputs]
        common = self.compute_dtype(*types)
        numbers = {
            a.name: getattr(self, a.name) for a in self.attributes if isinstance(getattr(self, a.name), Value)
        }
        plain = (
            self.with_runtime(dict.fromkeys(numbers, 0.0)) if numbers else self
        )  # the operands have their types
        by_name = {"dy": dy, "y": y} | {i.name: x for i, x in zip(self.inputs, inputs, strict=True)} | numbers
        reads = tuple(name for name in inspect.signature(self.gradient_rule).parameters if name in by_name)
        gradients: list[Any] = []
        for k, x in enumerate(inputs):
            is_fixed = self.inputs[k].name in self.fixed
            if x is None or is_fixed or not x.dtype.is_differentiable or x.type.weak:
                gradients.append(None)
                continue
            dtypes = (*(common for _ in reads), x.dtype)
            operands = [by_name[name] for name in reads]
            dx = F.simple_gradient(*operands, of=plain, wrt=k, reads=reads, dtypes=dtypes)
            gradients.append(unbroadcast(dx, x))
        return tuple(gradients)

    def rule_gradients(self, scope: dict[str, Any]) -> list[Any]:
        """The rule's gradient of each input; scope: what it reads of dy, y, inputs and attributes, by name."""
        assert self.gradient_rule is not None
        parameters = inspect.signature(self.gradient_rule).parameters
        values = {name: scope[name] if name in scope else getattr(self, name) for name in parameters}
        positional = [values.pop(name) for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
        result = type(self).gradient_rule(*positional, **values)  # type: ignore[misc]
        gradients = list(result) if isinstance(result, tuple | list) else [result]
        if len(gradients) != len(self.inputs) or not all(
            isinstance(x, Scalar | int | float | None) for x in gradients
        ):
            raise TypeError(
                f"{self.name}: its gradient must return {_expressions(len(self.inputs))}, got {result!r}"
            )
        return gradients

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        if any(a.default is a.REQUIRED for a in cls.attributes):
            return
        for shape in ((2, 3), (), (0, 4), (33,)):
            yield Sample(*(arrays(shape) for _ in cls.inputs))


@op
class SimpleGradient(Pointwise, public=False):
    """The gradient of a SimpleOp by its rule, with respect to input wrt.

    reads: names of the operands, as the rule has them. dtypes: what those are converted to, then the result's.
    """

    of: object
    wrt: int
    reads: tuple[str, ...]
    dtypes: tuple[DType, ...]

    def scalar(self, *x: Scalar | None) -> Scalar:
        """One element of the gradient."""
        of: Any = self.of
        expression = of.rule_gradients(dict(zip(self.reads, x, strict=True)))[self.wrt]
        dtype = self.dtypes[-1].name
        return (
            e.cast(expression, dtype)
            if isinstance(expression, Scalar)
            else e.constant(expression or 0, dtype)
        )

    def infer(self, *operands: TensorType | None) -> TensorType:
        named = {name: t for name, t in zip(self.reads, operands, strict=True) if t is not None}
        strong = [t for t in named.values() if not t.weak] or [*named.values()]
        return TensorType(broadcast_shapes(self.name, named), self.dtypes[-1], strong[0].device)

    def compute_dtype(self, *operands: TensorType | None) -> DType:
        return self.dtypes[-1]

    def operand_dtypes(self, *operands: TensorType | None) -> tuple[DType, ...]:
        return self.dtypes[:-1]


@op
class UniformLike(Op, family="random", public=False, primitive=True, rule="*x: fixed -> y: promoted()"):
    """Numbers spread evenly over [0, 1), one for each element that the operands are repeated to."""

    def promoted(self, *x: TensorType) -> DType:
        """The operands' type, where it is one of floats."""
        common = promote(*x)
        return common if common.is_floating else float32

    def infer(self, *x: TensorType) -> TensorType:
        (dtype,) = self.match(*x)
        shape = broadcast_shapes(self.name, {f"x{k}": t for k, t in enumerate(x)})
        return TensorType(shape, dtype, device_of(*x))

    def random_numbers(self, *x: TensorType | None) -> tuple[str, DType, Any]:
        y = self.infer(*(t for t in x if t is not None))
        return "uniform", y.dtype, y.size

    def vjp(self, x: Any, dy: Any) -> Any:
        return ([None] * len(x),)


class SimpleReduction(Op, family="simple"):
    """Base of the classes that simple_op makes with `reduce`: what a SimpleOp gives, made one number along some axes.

    elements: that operator. reduce: the function. axis, keepdims: as that function has them, unless shape_rule says the
    result's shape: then axes are those where it has 1, or nothing, and the elements have more.
    """

    elements: ClassVar[type[SimpleOp]]
    reduce: ClassVar[str]
    axis: ClassVar[Any] = None
    keepdims: ClassVar[bool] = False
    shape_rule: ClassVar[Callable[..., Sequence[int]] | None] = None
    shape_attributes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def make_function(cls) -> Any:
        plain = super().make_function()
        if "random" not in cls.elements.resources:
            return plain
        raise TypeError(
            f"{cls.name}: random numbers and reduce do not go together: reduce what the function gives"
        )

    def infer(self, *inputs: TensorType | None) -> TensorType:
        y: TensorType = self.decompose(*(None if t is None else input_value(t) for t in inputs)).type
        return y

    def decompose(self, *inputs: Any) -> Any:
        y = apply(self.elements, *bind(self.elements, inputs, self.values()))
        function = registry.function(self.reduce)
        if self.shape_rule is None:
            return function(y, axis=self.axis, keepdims=self.keepdims)
        attributes = {name: getattr(self, name) for name in self.shape_attributes}
        shape = tuple(self.shape_rule(*(None if x is None else x.shape for x in inputs), **attributes))
        extra = y.ndim - len(shape)
        if extra < 0 or any(n not in (1, m) for n, m in zip(shape, y.shape[extra:], strict=True)):
            raise ShapeError(f"{self.name}: elements of shape {y.shape} do not reduce to the shape {shape}")
        axes = [
            *range(extra),
            *(extra + d for d, n in enumerate(shape) if n == 1 and y.shape[extra + d] != 1),
        ]
        return function(y, axis=tuple(axes)).reshape(shape) if axes else y.reshape(shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        return cls.elements.samples() if cls.shape_rule is None and cls.axis is None else iter(())


class SimpleFunction:
    """What simple_op makes: call it as any function of operators. operator: the class behind it.

    elements: the class of its function of elements, another one where results are reduced.
    """

    def __new__(cls, operator: type[Op], elements: type[SimpleOp]) -> SimpleFunction:
        # A class for each, whose __call__ is the native function: no frame of ours hides the user's line from errors.
        return object.__new__(type("SimpleFunction", (cls,), {"__module__": __name__}))

    def __init__(self, operator: type[Op], elements: type[SimpleOp]) -> None:
        self.operator, self.elements = operator, elements
        self.__name__, self.__doc__, self.__module__ = operator.name, operator.__doc__, operator.__module__
        self.__signature__ = inspect.signature(elements.function)
        self.__wrapped__ = elements.function
        self._publish()

    def _publish(self) -> None:
        op(self.elements)
        if self.operator is not self.elements:
            op(self.operator)
        type(self).__call__ = staticmethod(registry.function_of(self.operator))  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError  # replaced for each

    def __repr__(self) -> str:
        return f"<simple_op {self.__name__}{self.__signature__}>"

    @overload
    def gradient(
        self, rule: Callable[..., Any], /, *, inplace: Sequence[tuple[str, str]] = ()
    ) -> Callable[..., Any]: ...

    @overload
    def gradient(
        self, rule: None = None, /, *, inplace: Sequence[tuple[str, str]] = ()
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...

    def gradient(
        self, rule: Callable[..., Any] | None = None, /, *, inplace: Sequence[tuple[str, str]] = ()
    ) -> Any:
        """Decorator: the gradient of each input's element (one, or a tuple), instead of the derived one.

        The names of its parameters say what it reads, and so what is kept for it: dy, the gradient of the result;
        y, the result, unless an input is called that; inputs; attributes. What it does not name is not kept.
        inplace: (what it reads, input) pairs: the input's gradient may be in the memory of what is read. As for the
        operator itself, the planner finds those, and the pairs are only checked.
        Raises TypeError for any other name, and if it does not return expressions, ValueError for other pairs.

        >>> import weft as wf
        >>> @wf.simple_op
        ... def clipped(x, *, most=1.0):
        ...     return wf.minimum(x, most)
        >>> @clipped.gradient  # straight through
        ... def _(dy):
        ...     return dy
        >>> wf.grad(lambda x: clipped(x).sum())(wf.tensor([0., 9.]))
        tensor([1., 1.], dtype=float32, device=cpu:0)
        """
        if rule is None:
            return lambda rule: self._set_rule(rule, inplace)
        return self._set_rule(rule, inplace)

    def _set_rule(self, rule: Callable[..., Any], inplace: Sequence[tuple[str, str]]) -> Callable[..., Any]:
        cls = self.elements
        names_in_scope = ["dy", "y", *(i.name for i in cls.inputs), *(a.name for a in cls.attributes)]
        reads = [*inspect.signature(rule).parameters]
        for pair in inplace:
            if (
                pair[0] not in reads
                or pair[0] not in names_in_scope
                or pair[1] not in [i.name for i in cls.inputs]
            ):
                raise ValueError(
                    f"{cls.name}: inplace has (what the gradient reads, input) pairs, of {', '.join(reads)} and "
                    f"{', '.join(i.name for i in cls.inputs)}; got {pair}"
                )
        for name, p in inspect.signature(rule).parameters.items():
            if name not in names_in_scope or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise TypeError(
                    f"{cls.name}: its gradient names {name}; there are: {', '.join(dict.fromkeys(names_in_scope))}"
                )
        before, cls.gradient_rule = cls.gradient_rule, staticmethod(rule)
        try:
            if (example := _example(cls)) is not None:
                names = ["dy", "y", *(i.name for i in cls.inputs)]
                _first_defined(
                    cls,
                    lambda dtype: example.rule_gradients({n: e.load(k, dtype) for k, n in enumerate(names)}),
                )
        except BaseException:
            cls.gradient_rule = before
            raise
        self._publish()  # plans have the old gradient
        return rule


@overload
def simple_op(function: Callable[..., Any], /) -> SimpleFunction: ...


@overload
def simple_op(
    *,
    shape: Callable[..., Sequence[int]] | str | None = None,
    resources: Sequence[str] = (),
    inplace: Sequence[tuple[int, int]] = (),
    reduce: str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Callable[[Callable[..., Any]], SimpleFunction]: ...


def simple_op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    shape: Callable[..., Sequence[int]] | str | None = None,
    resources: Sequence[str] = (),
    inplace: Sequence[tuple[int, int]] = (),
    reduce: str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Any:
    """Decorator: makes an operator of a function of elements; with arguments or without.

    The function's positional parameters are the inputs, one with the default None may be missing; keyword-only ones are
    attributes, which calls may also give by position, behind the inputs. It is written with arithmetic, comparisons,
    & | ~, abs and any pointwise function of weft (wf.exp, wf.where, F.gelu, other simple operators). Inputs are
    repeated to one shape and converted to one type; integers that the function is not defined on become float32. An
    attribute that is a number is given to the compiled kernel at each call, so that a new value costs nothing; bools,
    strings, tuples of numbers, and attributes annotated ``int`` are part of the kernel.

    shape: from the inputs' shapes the one that they are repeated to, where it is not the usual one; attributes that are
    part of the kernel are given to it by name, where it has parameters of these names. "equal": the inputs must have
    one shape. reduce: "sum", "mean", "prod", "max" or "min" of the elements, along axis (None: all) and with keepdims
    as those functions have them; or with a shape function to the shape that it gives, along the axes where that has
    size 1 or lacks a dimension. resources: with "random" the last input is not given by callers, but is a random
    number, spread evenly over [0, 1), of the device's stream, for each element; "temp_space" is accepted, and never
    needed. inplace: (input, output) pairs that may share memory; the planner finds those by itself, so this is only
    checked. The gradient is derived, or given: see SimpleFunction.gradient. Made again in the same module (a cell of
    a notebook that runs again), it takes the earlier one's place. Raises TypeError if the function cannot be one of
    elements, or another module has an operator of its name.

    >>> import weft as wf
    >>> @wf.simple_op
    ... def hypotenuse(a, b):
    ...     return wf.sqrt(a * a + b * b)
    >>> hypotenuse(wf.tensor([3., 5.]), 12.)
    tensor([12.369317, 13.      ], dtype=float32, device=cpu:0)
    >>> @wf.simple_op(reduce="mean", shape="equal")
    ... def mean_distance(a, b):
    ...     return abs(a - b)
    >>> mean_distance(wf.tensor([3., 5.]), wf.tensor([4., 8.])).item()
    2.0
    """
    result = (reduce, axis if axis is None or isinstance(axis, int) else tuple(axis), keepdims)
    if function is None:
        return lambda function: _make(function, shape, resources, inplace, *result)
    return _make(function, shape, resources, inplace, *result)


def _make(
    function: Callable[..., Any],
    shape: Callable[..., Sequence[int]] | str | None,
    resources: Sequence[str],
    inplace: Sequence[tuple[int, int]],
    reduce: str | None,
    axis: int | tuple[int, ...] | None,
    keepdims: bool,
) -> SimpleFunction:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise TypeError(f"simple_op: expected a function with a name, got {function!r}")
    if isinstance(shape, str) and shape != EQUAL:
        raise ValueError(f"{name}: shape must be a function or {EQUAL!r}, got {shape!r}")
    if reduce is not None and reduce not in REDUCTIONS:
        raise ValueError(f"{name}: reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if (axis is not None or keepdims) and (reduce is None or callable(shape)):
        raise ValueError(f"{name}: axis and keepdims go with reduce, where no function says the shape")
    inputs, annotations, defaults = _parameters(name, function)
    pairs = tuple((int(a), int(b)) for a, b in inplace)
    if any(not 0 <= a < len(inputs) or b != 0 for a, b in pairs):
        raise ValueError(
            f"{name}: inplace has (input, 0) pairs, input in 0..{len(inputs) - 1}; got {list(inplace)}"
        )
    if unknown := [resource for resource in resources if resource not in RESOURCES]:
        raise ValueError(
            f"{name}: no resource {unknown[0]!r} for functions of elements; there are: {', '.join(RESOURCES)}"
        )
    is_random = "random" in resources
    if is_random and (len(inputs) < 2 or inputs[-1].optional):
        raise TypeError(
            f"{name}: with resources=['random'] the last input is the random number, as in f(x, u): there are only "
            f"{', '.join(map(repr, inputs))}"
        )
    rule = shape if callable(shape) else None
    rule_attributes = () if rule is None else _attributes_of_shape(name, rule, inputs, annotations)

    def scalar(self: SimpleOp, *x: Scalar | None) -> Scalar:
        return SimpleOp.scalar(self, *x)

    content = {
        "__module__": function.__module__,
        "__doc__": inspect.getdoc(function),
        "__annotations__": annotations,
        "name": name,
        "inputs": tuple(inputs),
        "function": staticmethod(function),
        "scalar": scalar,
        "positional": tuple(annotations),
        "fixed": (inputs[-1].name,) if is_random else (),
        "equal": shape == EQUAL,
        "resources": tuple(resources),
        "in_place": pairs,
    }
    shape_rule = {"shape_rule": rule and staticmethod(rule), "shape_attributes": rule_attributes}
    title = "".join(word.capitalize() for word in name.split("_"))
    if reduce is None:
        content |= shape_rule
    else:
        content |= {"name": f"{name}_elements", "public": False, "method": False}
    cls: Any = type(title if reduce is None else f"{title}Elements", (SimpleOp,), {**content, **defaults})
    if (example := _example(cls)) is not None:
        missing = [i.optional for i in cls.inputs]
        if all(missing):
            missing[0] = False
        _first_defined(cls, lambda dtype: example.trial(dtype, missing))
    if reduce is None:
        return SimpleFunction(cls, cls)
    if is_random:
        raise ValueError(
            f"{name}: random numbers and reduce do not go together; reduce what the operator gives"
        )
    shared = {
        key: content[key] for key in ("__module__", "__doc__", "__annotations__", "inputs", "positional")
    }
    parts = {"name": name, "elements": cls, "reduce": reduce, "axis": axis, "keepdims": keepdims}
    return SimpleFunction(type(title, (SimpleReduction,), {**shared, **parts, **shape_rule, **defaults}), cls)


def _parameters(
    name: str, function: Callable[..., Any]
) -> tuple[list[Input], dict[str, str], dict[str, Any]]:
    """A function's inputs, and its attributes' annotations and defaults as the class of an operator has them."""
    inputs: list[Input] = []
    annotations: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"{name}: *{p.name}: the number of inputs must be known")
        if p.kind is not p.KEYWORD_ONLY:
            if p.default not in (p.empty, None):
                raise TypeError(
                    f"{name}: {p.name} has a default; attributes come after *, as in f(x, *, {p})"
                )
            inputs.append(Input(p.name, p.default is None, False))
            continue
        if hasattr(SimpleOp, p.name):
            raise TypeError(
                f"{name}: an attribute cannot be called {p.name}; operators have that name already"
            )
        annotation = p.annotation if isinstance(p.annotation, str) else _annotation_text(p.annotation)
        if annotation in ("int", "bool", "str", *TUPLES):
            annotations[p.name] = annotation
        elif isinstance(p.default, tuple) and all(isinstance(n, int | float) for n in p.default):
            annotations[p.name] = TUPLES[any(isinstance(n, float) for n in p.default)]
        elif isinstance(p.default, bool | str):
            annotations[p.name] = type(p.default).__name__
        elif p.default is None:
            annotations[p.name] = "Runtime[float | None]"
        elif p.default is p.empty or isinstance(p.default, int | float):
            annotations[p.name] = "Runtime[float]"
        else:
            raise TypeError(
                f"{name}: {p.name} must be a number, a bool, a str or a tuple of numbers, got {p.default!r}"
            )
        if p.default is not p.empty:
            defaults[p.name] = p.default
    if not inputs:
        raise TypeError(f"{name}: takes no elements; inputs come before *, as in f(x, *, scale=1.0)")
    if len(inputs) > MOST_INPUTS:
        raise TypeError(f"{name}: has {len(inputs)} inputs; one kernel reads at most {MOST_INPUTS} arrays")
    return inputs, annotations, defaults


def _annotation_text(annotation: Any) -> str:
    if hasattr(annotation, "__args__"):
        return inspect.formatannotation(annotation)
    return getattr(annotation, "__name__", "")


def _attributes_of_shape(
    name: str, shape: Callable[..., Sequence[int]], inputs: Sequence[Input], annotations: dict[str, str]
) -> tuple[str, ...]:
    """The attributes that a function of shapes takes, by name, behind the shapes."""
    names = []
    for p in list(inspect.signature(shape).parameters.values())[len(inputs) :]:
        kind = annotations.get(p.name)
        if kind is None and (p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)):
            continue
        if kind is None or kind.startswith("Runtime"):
            why = "is given at run time; annotate it int" if kind else "is not an attribute"
            raise TypeError(
                f"{name}: shape takes the shapes of the inputs, then attributes by name: {p.name} {why}"
            )
        names.append(p.name)
    return tuple(names)


def _example(cls: type[SimpleOp]) -> SimpleOp | None:
    """An operator to try the function with; None if an attribute that decides about the code has no default."""
    values: dict[str, Any] = {}
    for a in cls.attributes:
        if a.default is a.REQUIRED:
            if not a.runtime:
                return None
            values[a.name] = 1.0
    return cls(**values)


def _first_defined(cls: type[SimpleOp], attempt: Callable[[str], object]) -> None:
    """Try element types until one is accepted. Raises TypeError, that of the first, if none is."""
    first: TypeError | None = None
    for dtype in ("float32", "int64", "bool"):
        try:
            attempt(dtype)
        except (TypeError, OverflowError, AttributeError) as error:
            first = first or (error if isinstance(error, TypeError) else TypeError(str(error)))
        else:
            return
    assert first is not None
    text = str(first)
    raise TypeError(text if " return " in text else f"{cls.name}: {text}\n  hint: {HINT}") from first


def kind_of(value: Any) -> TensorType | None:
    """What a number, or what stands for one, is in promotions."""
    if value is None:
        return None
    if isinstance(value, Value):
        return value.type
    if isinstance(value, Scalar):
        return TensorType((), float32, weak=True) if value.dtype in e.FLOATS else constant(1).type
    return constant(value).type


def _expressions(count: int) -> str:
    return "an expression" if count == 1 else f"{count} expressions, one for each input"
