"""Operators: one class each, from which functions, methods, symbols, gradients, documentation and tests are derived.

>>> from weft.ops.op import Op
>>> from weft.ops.registry import get
>>> get("sum")(axis=0)
Sum(dtype=None, axis=0, keepdims=False)

An operator is a frozen value: its class says what it is, its attributes how it is used. Its rules are pure: they
know types and other operators, never data. What a rule is called with is named by its parameters:

    rule = "x[*b,k]: float -> y[*b]: x"   the inputs, and their types and the outputs' (weft.ops.rules)
    infer(x, w, b=None)           the inputs' types -> the outputs' types, where the rule does not say all
    vjp(x, w, y, dy)              inputs, outputs and output gradients, those it names -> a gradient for each input
    kernels(*inputs)              choices of weft.ops.kernels, best first; none taken: decompose
    decompose(x, w, b=None)       the meaning in other operators; every operator has it but primitives
    reference(x, w, b=None)       the meaning in NumPy; read by tests only, as is samples(). Operators of the package
                                  have theirs in tests/ops/material
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence

from weft import _core
from weft.base.cached import cached_property
from weft.base.device import Device
from weft.base.dtype import DType
from weft.base.errors import DTypeError
from weft.base.exact import AS_IS, Key, exact
from weft.base.typing import Any, ClassVar, dataclass_transform
from weft.ops.attributes import Attribute, Runtime, annotation_text, declared, scope_of
from weft.ops.methods import METHODS
from weft.ops.types import TensorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    O = TypeVar("O", bound="type[Op]")  # noqa: E741

__all__ = ["Input", "Op", "Runtime", "differentiable", "op", "parameters"]

VARIADIC = 0x04  # inspect.CO_VARARGS, of a code object's flags
DERIVED = ("attributes", "fixed", "inputs", "learnable", "random", "registered", "stops_gradient")


class Input:
    """One input of an operator: its name, and whether it may be missing or stands for any number of tensors."""

    __slots__ = ("name", "optional", "variadic")

    def __init__(self, name: str, optional: bool, variadic: bool) -> None:
        self.name, self.optional, self.variadic = name, optional, variadic

    def __repr__(self) -> str:
        return f"*{self.name}" if self.variadic else f"{self.name}=None" if self.optional else self.name


def _snake_case(name: str) -> str:
    begins = [
        k
        for k, c in enumerate(name)
        if k and c.isupper() and (name[k - 1].islower() or name[k - 1].isdigit())
    ]
    return "_".join([name[a:b] for a, b in zip([0, *begins], [*begins, None], strict=True)]).lower()


def parameters(rule: Callable[..., Any]) -> tuple[Input, ...]:
    """A rule's parameters behind self, as inputs; from its code, since inspect takes 3 ms to import."""
    while hasattr(rule, "__wrapped__"):
        rule = rule.__wrapped__
    code, count = rule.__code__, rule.__code__.co_argcount
    defaults = rule.__defaults__ or ()
    required = count - len(defaults)
    inputs = [
        Input(name, k >= required and defaults[k - required] is None, False)
        for k, name in enumerate(code.co_varnames[:count])
    ]
    if code.co_flags & VARIADIC:
        inputs.append(Input(code.co_varnames[count + code.co_kwonlyargcount], False, True))
    return tuple(inputs[1:])


class _FromRule:
    """A class variable that the rule says, which is parsed when the variable is first read."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name, self.read = name, read

    def __get__(self, op: Any, cls: type[Op]) -> Any:
        from weft.ops.rules import parse

        value = self.read(parse(cls.rule))
        setattr(cls, self.name, value)
        return value


_from_rule: dict[str, Any] = {
    "inputs": _FromRule(
        "inputs", lambda rule: tuple(Input(x.name, x.optional, x.variadic) for x in rule.inputs)
    ),
    "outputs": _FromRule(
        "outputs", lambda rule: tuple(("*" if y.variadic else "") + y.name for y in rule.outputs)
    ),
    "learnable": _FromRule(
        "learnable", lambda rule: tuple(x.name for x in rule.inputs if "learnable" in x.words)
    ),
    "fixed": _FromRule("fixed", lambda rule: tuple(x.name for x in rule.inputs if "fixed" in x.words)),
    "stops_gradient": _FromRule(
        "stops_gradient", lambda rule: bool(rule.inputs) and all("fixed" in x.words for x in rule.inputs)
    ),
}


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Op:
    """Base of all operators. See the module for the rules that a class may give.

    Class variables are given as keywords of the class (``class Exp(Op, family="elementary")``) or in its body:

    rule: its inputs and outputs with their shapes and dtypes, in the language of weft.ops.rules.
    name: its public name, by default the class's in snake case. family: a word for lists and documentation.
    outputs: names of the outputs, by which a vjp refers to them; the last `hidden` of them are not returned to callers.
    ("*y",) declares a variadic output: infer determines the number, callers receive a tuple, and a vjp receives lists,
    with None for gradients that are zero. Read it from an instance, not from the class: it may depend on attributes.
    positional: attributes that may be given by position after the inputs; if it names an input, it is the whole order.
    prefix: the attribute given before the inputs (einsum's equation).
    channel_axis: where a result is linear in the inputs weight[c, ...] and bias[c] together, its axis of size c.
    An attribute called training is left open by symbols that do not set it; executors do.
    storages: the kinds of storage of inputs that its rules take, of weft.ops.types.STORAGES.
    writes: inputs that the operator writes, with the output that has their new content (running statistics).
    is_mark: only gradients need it; its value is its first input.
    ranges: the least and the greatest value of Runtime attributes, checked at every call.
    fitted: inputs and Runtime attributes whose numbers are written to the first input: they are cut to integers where
    it has integers, and OverflowError is raised for those that its type cannot hold.
    residuals: the last outputs, hidden ones, as far as they are there for the kernels of the gradient; residual_types
    gives their types.
    aot_dtypes: the dtypes of inputs for which its kernels are compiled with the package, for what nearly all programs
    use.
    primitive: it means what its kernels compute, and has no decomposition; every other operator has one. A subclass is
    primitive, too, unless it gives a decomposition.
    method: it is also a method of arrays; of the package's operators those that weft.ops.methods names are. public:
    users see it; the others are what gradients and plans are made of.

    Derived, and no keywords: inputs and attributes; of the words in the rule learnable, inputs that a symbol makes by
    itself, as variables to be trained (learnable_types says how), and fixed, those that have no gradient though they
    are of floats; stops_gradient: all are fixed; random: the class has random_numbers.
    """

    rule: ClassVar[str] = ""
    name: ClassVar[str] = ""
    family: ClassVar[str] = ""
    outputs: ClassVar[tuple[str, ...]] = ("y",)
    hidden: ClassVar[int] = 0
    fitted: ClassVar[tuple[str, ...]] = ()
    residuals: ClassVar[tuple[str, ...]] = ()
    aot_dtypes: ClassVar[tuple[str, ...]] = ()
    positional: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[str | None] = None
    channel_axis: ClassVar[int | None] = None
    storages: ClassVar[tuple[str, ...]] = ("dense",)
    writes: ClassVar[dict[str, str]] = {}
    is_mark: ClassVar[bool] = False
    is_merged: ClassVar[bool] = False  # several operators as one node; people are shown the parts
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}
    primitive: ClassVar[bool] = False
    method: ClassVar[bool] = False
    public: ClassVar[bool] = True

    # Derived.
    registered: ClassVar[bool] = False  # by the decorator op
    inputs: ClassVar[tuple[Input, ...]] = ()
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    learnable: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    stops_gradient: ClassVar[bool] = False
    random: ClassVar[bool] = False

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__()
        for name, value in declared.items():
            if name in DERIVED or not hasattr(super(cls, cls), name):
                raise TypeError(
                    f"{cls.__name__}: operators declare no {name!r}; weft.ops.Op lists what they do"
                )
            setattr(cls, name, value)
        scope = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
        attributes = [
            Attribute(name, text, getattr(cls, name, Attribute.REQUIRED), scope_of(annotation, scope))
            for name, annotation in cls.__annotations__.items()
            if not (text := annotation_text(annotation)).startswith("ClassVar")
        ]
        inherited = [a for a in cls.attributes if a.name not in {mine.name for mine in attributes}]
        cls.attributes = (*attributes, *inherited)
        cls.registered = False
        if "decompose" in cls.__dict__ and "primitive" not in cls.__dict__:
            cls.primitive = False
        if "random_numbers" in cls.__dict__ and "random" not in cls.__dict__:
            cls.random = True
        if "name" not in cls.__dict__:
            cls.name = _snake_case(cls.__name__)
        if "method" not in cls.__dict__:
            cls.method = cls.name in METHODS or not cls.__module__.startswith("weft.")
        signature = cls.signature_rule()
        if isinstance(signature, str):
            for name, derived in _from_rule.items():
                if name not in cls.__dict__ and (name == "inputs" or "rule" in cls.__dict__):
                    setattr(cls, name, derived)
        elif signature is not None and "inputs" not in cls.__dict__:
            cls.inputs = parameters(signature)

    @classmethod
    def documentation(cls) -> str:
        """The documentation of the operator's function: its signature, as Python reads it, and the class's text.

        As it is written: inspect.getdoc takes the indentation away.
        """
        attributes = {a.name: a for a in cls.attributes}

        def declaration(a: Attribute) -> str:
            if a.default is Attribute.REQUIRED:
                return a.name
            # Python reads literals in signatures only.
            return f"{a.name}={a.default.name if isinstance(a.default, DType) else a.default!r}"

        inputs = {
            i.name: ("*" if i.variadic else "") + i.name + ("=None" if i.optional else "") for i in cls.inputs
        }
        if any(name in inputs for name in cls.positional):
            parts = [
                inputs[name] if name in inputs else declaration(attributes[name]) for name in cls.positional
            ]
        else:
            parts = [cls.prefix] if cls.prefix else []
            parts += inputs.values()
            if parts and not any(i.variadic or i.optional for i in cls.inputs):
                parts.append("/")
            parts += [declaration(attributes[name]) for name in cls.positional]
        keywords = [declaration(a) for a in cls.attributes if a.name not in (*cls.positional, cls.prefix)]
        if keywords:
            parts += ([] if any(p.startswith("*") for p in parts) else ["*"]) + keywords
        text = cls.__doc__ or ""
        indentation = text[len(text.rstrip(" ")) :]  # of its last line, as all lines have
        types = f"\n\n{indentation}Inputs and outputs: ``{cls.rule}``." if cls.rule else ""
        return f"{cls.name}({', '.join(parts)})\n--\n\n{text}{types}"

    @classmethod
    def method_signature(cls) -> str:
        """The signature of the operator's method, as Python reads it: the first operand is the array itself."""
        signature = cls.documentation().partition("\n--\n")[0]
        name, _, rest = signature.removesuffix(")").partition("(")
        first, _, rest = rest.partition(", ")
        parts = ["$self", *([] if "/" in rest.split(", ") else ["/"]), *([first] if first[0] == "*" else [])]
        return f"{name}({', '.join([*parts, *([rest] if rest else [])])})"

    @classmethod
    def make_function(cls) -> Any:
        """The function that users call."""
        return _core.operator_function(cls)

    @classmethod
    def has_fixed_plans(cls) -> bool:
        """Whether no user's operator can be part of it: it is the package's, and no attribute holds operators."""
        from weft.ops import registry

        holders = ("object", *declared)
        return registry.is_builtin(cls.name) and not any(
            word in a.accepts for a in cls.attributes for word in holders
        )

    @classmethod
    def signature_rule(cls) -> Callable[..., Any] | str | None:
        """What names the inputs: the class's rule, or the method whose parameters they are, by default its infer."""
        for base in cls.__mro__:
            if vars(base).get("rule"):
                return cls.rule
            if "infer" in vars(base) and base is not Op:
                return cls.infer
        return None

    def __init__(self, **attributes: Any) -> None:
        for attribute in self.attributes:
            if attribute.name in attributes:
                value = attributes.pop(attribute.name)
                if not attribute.runtime or isinstance(value, int | float):
                    try:
                        value = attribute.convert(value)
                    except (TypeError, ValueError) as error:
                        if isinstance(error, DTypeError):
                            raise
                        raise TypeError(
                            f"{self.name}: {attribute.name} must be {attribute.accepts}, got {value!r}"
                        ) from None
            elif attribute.default is Attribute.REQUIRED:
                raise TypeError(f"{self.name}: {attribute.name} must be given: {attribute!r}")
            else:
                value = attribute.default
            low, high = self.ranges.get(attribute.name, (-math.inf, math.inf))
            if attribute.name in self.ranges and isinstance(value, int | float) and not low <= value <= high:
                raise ValueError(f"{self.name}: {attribute.name} must be in {low}..{high}, got {value!r}")
            object.__setattr__(self, attribute.name, value)
        if attributes:
            accepted = ", ".join(map(repr, self.attributes)) or "none"
            raise TypeError(f"{self.name}: no attribute {', '.join(attributes)}; there are: {accepted}")
        self.check()

    def check(self) -> None:
        """Raises ValueError or TypeError for attributes that can never be right; the default accepts all."""

    def set(self, name: str, value: Any) -> None:
        """For check(): put an attribute into its normal form."""
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot set {name}")

    def values(self) -> dict[str, Any]:
        """The attributes by name.

        >>> from weft.ops.registry import get
        >>> get("softmax")(axis=1).values()
        {'axis': 1}
        """
        return {a.name: getattr(self, a.name) for a in self.attributes}

    @cached_property
    def __weft_key__(self) -> Key:
        """The class, which may have been made again under its name, and the exact attributes (weft.base.exact)."""
        values = [getattr(self, a.name) for a in self.attributes]
        return Key((type(self), *[v if type(v) in AS_IS else exact(v) for v in values]))

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.__weft_key__ == other.__weft_key__)

    def __hash__(self) -> int:
        return hash(self.__weft_key__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{k}={v!r}' for k, v in self.values().items()])})"

    def with_runtime(self, values: dict[str, Any]) -> Op:
        """The operator with other Runtime attributes; in rules they are the values that stand for them."""
        op: Op = object.__new__(type(self))
        for a in self.attributes:
            object.__setattr__(op, a.name, values.get(a.name, getattr(self, a.name)))
        return op

    def without_numbers(self, runtime: dict[str, Any]) -> Op:
        """The operator of a node that has Values of these attributes: the same one whatever they are."""
        return self.with_runtime({name: 0.0 if v.dtype.is_floating else 0 for name, v in runtime.items()})

    def runtime_names(self) -> tuple[str, ...]:
        """The names of its Runtime attributes, which are given when it runs.

        >>> from weft.ops.registry import get
        >>> get("dropout")().runtime_names()
        ('p',)
        """
        return tuple(a.name for a in self.attributes if a.runtime)

    def __call__(self, *inputs: Any) -> Any:
        """The operator applied to its inputs, all of them: what the call of its function gives that means it.

        None stands for an input that is missing; of any number of inputs, each counts.

        >>> import weft as wf
        >>> from weft.ops.registry import get
        >>> get("softmax")(axis=0)(wf.tensor([1., 1.]))
        tensor([0.5, 0.5], dtype=float32, device=cpu:0)
        """
        from weft.ops import registry

        if len(inputs) == 1 and isinstance(inputs[0], tuple) and len(self.inputs) != 1:
            raise TypeError(f"{self.name}: takes its inputs one by one, got a tuple; call op(*args)")
        function, attributes = registry.function(self.name), self.values()
        names = [spec.name for spec in self.inputs]
        if any(name in self.positional for name in names):  # the order of a call is another one
            return function(**dict(zip(names, inputs, strict=True)), **attributes)
        if self.inputs and self.inputs[-1].variadic:
            before = len(names) - 1
            return function(*inputs[:before], list(inputs[before:]), **attributes)
        return function(*inputs, **attributes)

    # Rules.

    # With (*inputs: Any, **unused: Any) type checkers take a rule of any parameters: they name what it reads.

    def infer(self, *inputs: Any, **unused: Any) -> Any:
        """The outputs' types, by default those that the rule gives: one TensorType or a tuple.

        Raises ShapeError, DTypeError.
        """
        from weft.ops import rules

        return rules.infer(self, inputs)

    def match(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        """For infer: checks the inputs' types by the rule, and returns the outputs' dtypes.

        Raises ShapeError, DTypeError.
        """
        from weft.ops import rules

        return rules.match(self, inputs)

    def infer_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...] | None:
        """The outputs' dtypes, the last one for all further outputs, by the inputs' types, whose shapes are not read.

        None where the class does not say: then they are known with the shapes. Raises DTypeError.
        """
        from weft.ops import rules

        return rules.infer_dtypes(self, inputs) if self.rule else None

    def residual_types(
        self, standard: Sequence[TensorType], inputs: Sequence[TensorType | None]
    ) -> tuple[TensorType, ...]:
        """For infer: the types of the operator's residuals where its inputs are.

        standard: what its decomposition computes, such as the logarithms of attention's sums. The kernels of one kind
        of device may leave something else for those of the gradient, of a type that is declared beside them
        (weft.kernels.residuals): an index of another width, a workspace whose size only a library defines.

        >>> from weft.base.dtype import uint8
        >>> from weft.ops.registry import get
        >>> get("relu")().residual_types([TensorType((0,), uint8)], [])
        (u8[0]@cpu:0,)
        """
        return tuple(_residual_rules[0](self, standard, inputs)) if _residual_rules else tuple(standard)

    def fixed_device(self) -> Device | None:
        """The device that it runs on, whatever its inputs'; None, the default: where they are."""
        return None

    def vjp(self, *values: Any, **unused: Any) -> Any:
        """A gradient for each input, None for those that have none; one alone need not be in a tuple.

        Return NotImplemented to differentiate the decomposition instead. This is also what happens in operators that
        define decompose and no vjp.
        """
        raise NotImplementedError(f"{self.name}: has no gradient")

    def kernels(self, *inputs: Any, **unused: Any) -> Iterator[Any]:
        """Choices for these inputs, best first."""
        return iter(())

    def decompose(self, *inputs: Any, **unused: Any) -> Any:
        """Express this operator in terms of others; NotImplemented if these attributes always have a kernel.

        In operators without a vjp the gradient is that of the decomposition.
        """
        raise NotImplementedError(f"{self.name}: no kernel for these operands, and no decomposition")

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The first output once more, by pointwise operators on the inputs and the other outputs: the same bits.

        For programs that compute a large result again rather than keep it. None: that is not so cheap.
        """
        return None

    def reference(self, *inputs: Any, **unused: Any) -> Any:
        """The same in NumPy."""
        raise NotImplementedError(f"{self.name}: no reference")

    def learnable_types(self, *inputs: TensorType | None) -> dict[str, TensorType]:
        """Types of learnable inputs, as far as the others and the attributes say; for symbols that make them."""
        return {}

    def count_outputs(self, count: int) -> int | None:
        """How many outputs callers get, given the number of inputs; None if that depends on sizes."""
        return (
            None if self.outputs[:1] and self.outputs[0].startswith("*") else len(self.outputs) - self.hidden
        )

    def without(self, unread: Sequence[int]) -> Op | None:
        """On the same inputs, the operator that gives the other outputs only; None: there is none."""
        return None

    def adding(self, output: int) -> Op | None:
        """The operator that adds this output to one more input, its last one; None: there is none."""
        return None

    def writes_by_index(self, count: int) -> dict[int, int]:
        """Map the index of each input that is written to the index of the output with its new content.

        count: the number of inputs.
        """
        names = [spec.name for spec in self.inputs]
        return {names.index(name): self.outputs.index(output) for name, output in self.writes.items()}

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        """For random operators: the numbers of one run, as (kind, dtype, count); kind: as native/storage/random.h.

        The planner reserves that much of the device's stream for each run; a kernel finds the reservation in its
        parameters, in the place of weft.ops.kernels.KEY, STREAM and OFFSET among its numbers.
        """
        raise NotImplementedError(f"{self.name}: is random, and does not say how much it draws")

    @classmethod
    def samples(cls) -> Iterator[Any]:
        """weft.ops.samples.Sample objects that tests run, such as weft.testing.check_operator."""
        return iter(())

    @classmethod
    def on_elements(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function on expressions of elements (weft.expr.scalar), for simple_op; pointwise ones only."""
        raise TypeError(f"{cls.name}: takes whole arrays; functions of elements can use only pointwise ones")

    @property
    def shown(self) -> str:
        """The name of what a user called, for errors and profiles: of an operator that a pass has put there, its."""
        return self.name

    # Helpers for rules.

    def fail(self, error: type[Exception], fact: str, **operands: TensorType | None) -> Exception:
        """error(``name: fact: operand is type, ...``), to be raised.

        >>> from weft.base.errors import ShapeError
        >>> from weft.ops.registry import get
        >>> get("relu")().fail(ShapeError, "sizes differ, 2 != 3")
        ShapeError('relu: sizes differ, 2 != 3')
        """
        listed = ", ".join(f"{key} is {t}" for key, t in operands.items() if t is not None)
        return error(f"{self.name}: {fact}{': ' + listed if listed else ''}")

    def require_storage(self, types: Sequence[TensorType | None]) -> None:
        """Raise TypeError if an input is stored in a way that the operator has no rule for.

        >>> from weft.base.dtype import float32
        >>> from weft.ops.registry import get
        >>> get("exp")().require_storage([TensorType((2, 3), float32, storage="csr")])
        Traceback (most recent call last):
            ...
        TypeError: exp: has no rule for csr storage; it takes dense: x is f32[2,3]csr@cpu:0
        """
        names = [spec.name for spec in self.inputs]
        for k, t in enumerate(types):
            if t is not None and t.storage not in self.storages:
                name = names[k] if k < len(names) else f"input{k}"
                accepted = ", ".join(self.storages)
                raise self.fail(
                    TypeError, f"has no rule for {t.storage} storage; it takes {accepted}", **{name: t}
                )

    def require_order(self, **operands: TensorType | None) -> None:
        """Raise DTypeError if an operand is of complex numbers, which have no order."""
        if any(t is not None and t.dtype.is_complex for t in operands.values()):
            raise self.fail(DTypeError, "complex numbers have no order", **operands)

    def require_floats(self, **operands: TensorType | None) -> None:
        """Raise DTypeError unless all operands are of floating-point types."""
        wrong = [name for name, t in operands.items() if t is not None and not t.dtype.is_floating]
        if wrong:
            problem = self.fail(DTypeError, "takes floating-point types", **operands)
            raise DTypeError(f"{problem}\n  hint: {wrong[0]}.astype('float32') converts it")


_residual_rules: list[Callable[..., Sequence[TensorType]]] = []


def set_declared_residuals(declared: Callable[..., Sequence[TensorType]]) -> None:
    """declared(op, standard types, input types) -> the residuals' types; set by weft.kernels, which is above."""
    _residual_rules[:] = [declared]


def differentiable(cls: type[Op]) -> bool:
    """Whether an operator has a gradient rule, its own or its family's.

    >>> from weft.ops.registry import get
    >>> differentiable(get("exp")), differentiable(get("argmax"))
    (True, False)
    """
    return cls.vjp is not Op.vjp or cls.decompose is not Op.decompose


def op(cls: O) -> O:
    """Class decorator: registers an operator under its name.

    Raises TypeError if an operator of that name is registered by another module, or if the class has no infer, or
    neither a `decompose` nor the declaration `primitive = True`.

    >>> @op
    ... class Nothing(Op):
    ...     def infer(self, x):
    ...         return x
    Traceback (most recent call last):
        ...
    TypeError: operator 'nothing': class Nothing has no decompose; give its meaning in other operators, or declare \
primitive = True if it has none
    """
    from weft.ops import registry

    if cls.signature_rule() is None:
        raise TypeError(
            f"{cls.__name__}: has no infer; define infer(self, x), which takes the types of the inputs and returns "
            "those of the outputs"
        )
    if not cls.primitive and cls.decompose is Op.decompose:
        registry.check_name(cls)
        raise TypeError(
            f"operator {cls.name!r}: class {cls.__name__} has no decompose; give its meaning in other operators, or "
            "declare primitive = True if it has none"
        )
    registry.register(cls)
    cls.registered = True
    return cls
