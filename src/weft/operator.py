"""Operators whose kernels are Python functions on whole arrays: OperatorProperty says what one is, Operator computes.

>>> import weft as wf
>>> class Doubled(wf.operator.Operator):
...     def forward(self, ctx, in_data, req, out_data, aux):
...         self.assign(out_data[0], req[0], 2 * in_data[0].numpy())
>>> @wf.operator.register("doubled")
... class DoubledProperty(wf.operator.OperatorProperty):
...     def create_operator(self, device):
...         return Doubled()
>>> wf.operator.doubled(wf.tensor([0.5, 3.]))
tensor([1., 6.], dtype=float32, device=cpu:0)

What such an operator is in calls, graphs and gradients: weft.python_op.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, TypeVar

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.cached import cached_property
from weft.base.device import Device
from weft.base.dtype import DType
from weft.ops import registry
from weft.ops.op import op
from weft.python_op import Context, Form, PythonOp

__all__ = ["Context", "Operator", "OperatorProperty", "register"]

P = TypeVar("P", bound="type[OperatorProperty]")
Inferred = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]  # of inputs, outputs and auxiliary states


class Operator:
    """Kernels. They run on the engine's threads on lists of tensors, whose memory numpy() shows without waiting.

    What they keep in self lasts from forward to backward; in a graph, until its node runs again. req says of each
    result "null" (do not write), "write", "inplace" (write; an input has the same memory) or "add".
    """

    def forward(self, ctx: Context, in_data: Any, req: Any, out_data: Any, aux: Any) -> None:
        """Write out_data; aux may be written, too."""
        raise NotImplementedError(f"{type(self).__name__}: no forward")

    def backward(
        self, ctx: Context, out_grad: Any, in_data: Any, out_data: Any, req: Any, in_grad: Any, aux: Any
    ) -> None:
        """Write in_grad. What declare_backward_dependency left out is None, and so are gradients that are not wanted.

        aux is as forward left it; in graphs it is only to be read.
        """
        raise NotImplementedError(f"{type(self).__name__}: no backward")

    def assign(self, dst: Tensor | None, req: str, src: Any) -> None:
        """Write src into dst as req says. Raises ValueError for another word.

        >>> from weft.arrays.creation import empty
        >>> y = empty(2)
        >>> Operator().assign(y, "write", [1., 2.])
        >>> Operator().assign(y, "add", 1.)
        >>> y
        tensor([2., 3.], dtype=float32, device=cpu:0)
        """
        if req not in ("null", "write", "inplace", "add"):
            raise ValueError(f"assign: req must be 'null', 'write', 'inplace' or 'add', got {req!r}")
        if req != "null" and dst is not None:
            _assign(dst, dst.numpy() + src if req == "add" else src)


def _assign(dst: Tensor, src: Any) -> None:
    """dst[...] = src, at once, although an engine function may be running."""
    if not _core.hides_memory(dst.device):
        dst.numpy()[...] = src
        return
    import numpy as np

    elements = np.empty(dst.shape, dst.dtype.numpy)
    elements[...] = src
    _core.write_now(dst, elements.reshape(-1).view(np.uint8))


class OperatorProperty:
    """What an operator is, for given parameters: those of __init__. Override what differs from these defaults."""

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of arrays that kernels read and write, without gradients; callers give them after the inputs."""
        return []

    def num_outputs(self) -> int:
        """How many outputs forward writes."""
        return len(self.list_outputs())

    def num_visible_outputs(self) -> int:
        """How many of them callers get; the first ones."""
        return self.num_outputs()

    def get_params(self) -> dict[str, Any]:
        """The parameters by name. Calls take them as they are, or their str()."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def infer_shape(self, in_shapes: list[Any]) -> Inferred:
        """Shapes of inputs, outputs and auxiliary states from the inputs' as far as known; None: not known.

        Calls whose shapes differ raise ShapeError; in symbols, variables get what is said of them here.
        """
        return in_shapes, [in_shapes[0]] * self.num_outputs(), []

    def infer_type(self, in_types: list[Any]) -> Inferred:
        """Element types, as infer_shape; by default inputs have theirs, and all else is of the first known one.

        Calls whose types differ raise DTypeError; None, of an input or auxiliary state: any.
        """
        first = next((t for t in in_types if t is not None), None)
        rest = [first] * self.num_outputs(), [first] * len(self.list_auxiliary_states())
        return [t or first for t in in_types], *rest

    def forward_resource(self, in_shapes: list[Any]) -> list[str]:
        """Resources that forward gets: "temp_space", "random"."""
        return []

    def backward_resource(self, in_shapes: list[Any]) -> list[str]:
        """Resources that backward gets."""
        return []

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """Which of these arrays, given as numbers, backward reads. The others are not kept."""
        return [*out_grad, *in_data, *out_data]

    def forward_inplace_option(self, in_data: list[int], out_data: list[int]) -> list[tuple[int, int]]:
        """(input, output) pairs, of the numbers given, that may be the same memory: a hint for graphs.

        Where an input is not needed afterwards, forward then gets one tensor in both places, and req "inplace".
        """
        return []

    def backward_inplace_option(
        self, out_grad: list[int], in_data: list[int], out_data: list[int], in_grad: list[int]
    ) -> list[tuple[int, int]]:
        """(read, written) pairs, of the numbers given, that may be the same memory: a hint for graphs.

        in_grad are the numbers behind all others. What is read must be declared in declare_backward_dependency.
        """
        return []

    def gradient(self, out_grad: list[Any], in_data: list[Any], out_data: list[Any]) -> Any:
        """The gradients of the inputs, computed by weft's functions, in the place of Operator.backward.

        Such a gradient is part of a graph like any other: it is fused, runs without Python, and has gradients itself.
        What declare_backward_dependency leaves out is None. None among the results: zero. NotImplemented, the
        default: the gradient is Operator.backward.

        >>> import weft as wf
        >>> class Cube(wf.operator.Operator):
        ...     def forward(self, ctx, in_data, req, out_data, aux):
        ...         self.assign(out_data[0], req[0], in_data[0].numpy() ** 3)
        >>> @wf.operator.register("cube_by_hand")
        ... class CubeProperty(wf.operator.OperatorProperty):
        ...     def gradient(self, out_grad, in_data, out_data):
        ...         return [3 * in_data[0] ** 2 * out_grad[0]]
        ...     def create_operator(self, device):
        ...         return Cube()
        >>> cube = wf.operator.cube_by_hand
        >>> wf.grad(wf.grad(lambda x: cube(x)))(wf.tensor(2.0)).item()
        12.0
        """
        return NotImplemented

    def create_operator(self, device: Device) -> Operator:
        """The kernels, for one call."""
        raise NotImplementedError(f"{type(self).__name__}: no create_operator")


class PropertyOp(PythonOp):
    """The operator of a property with params, its parameters by name. Its worker is the property's Operator."""

    make_property: ClassVar[Callable[..., OperatorProperty]]
    params: object = ()

    @cached_property
    def prop(self) -> OperatorProperty:
        params: Any = self.params
        return type(self).make_property(**dict(params))

    @classmethod
    def attributes_of(cls, keywords: dict[str, Any]) -> dict[str, Any]:
        declared = inspect.signature(cls.make_property).parameters
        reserved = {"name", "attr"} - set(declared)
        params = tuple(
            (key, _parameter(cls.name, declared.get(key), value))
            for key, value in keywords.items()
            if key not in reserved
        )
        return {"params": params, **{key: keywords[key] for key in reserved if key in keywords}}

    def form(self) -> Form:
        names = self.prop.list_arguments(), self.prop.list_auxiliary_states()
        return Form(*names, self.prop.num_outputs(), self.prop.num_visible_outputs())

    def shapes(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        inputs, outputs, states = self.prop.infer_shape(list(arguments))
        return [*inputs, *states], outputs

    def dtypes(self, arguments: Sequence[DType | None]) -> tuple[Sequence[Any], Sequence[Any]]:
        inputs, outputs, states = self.prop.infer_type(list(arguments))
        return [*inputs, *states], outputs

    def output_names(self) -> Sequence[str]:
        return self.prop.list_outputs()

    def resources(self, shapes: Sequence[Any], backward: bool) -> Sequence[str]:
        return (self.prop.backward_resource if backward else self.prop.forward_resource)(list(shapes))

    def backward_reads(self, numbers: range) -> Collection[int]:
        each, count = list(numbers), self.prop.num_outputs()
        return self.prop.declare_backward_dependency(each[:count], each[count:-count], each[-count:])

    def in_place(self, backward: bool) -> Sequence[tuple[int, int]]:
        inputs, outputs = len(self.prop.list_arguments()), self.prop.num_outputs()
        if not backward:
            numbers = list(range(inputs)), [inputs + k for k in range(outputs)]
            return [(a, b - inputs) for a, b in self.prop.forward_inplace_option(*numbers)]
        each = list(range(2 * outputs + 2 * inputs))
        read_count, first = 2 * outputs + inputs, 2 * outputs + inputs
        pairs = self.prop.backward_inplace_option(
            each[:outputs],
            each[outputs : outputs + inputs],
            each[outputs + inputs : read_count],
            each[first:],
        )
        return [(a, b - first) for a, b in pairs]

    def input_gradients(self, dy: Sequence[Any], x: Sequence[Any], y: Sequence[Any]) -> Any:
        return self.prop.gradient(list(dy), list(x), list(y))

    @property
    def has_custom_vjp(self) -> bool:  # type: ignore[override]
        return type(self.prop).gradient is not OperatorProperty.gradient

    def make_worker(self, device: Device) -> Operator:
        return self.prop.create_operator(device)


def _parameter(operation: str, declared: inspect.Parameter | None, value: Any) -> Any:
    """A property's parameter, converted from text where __init__ says, or its default shows, that it is none."""
    if declared is None or not isinstance(value, str):
        return value
    annotation = declared.annotation
    type_text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    kinds = set(re.findall(r"\w+", type_text)) if annotation is not declared.empty else set()
    if not kinds and declared.default is not declared.empty and declared.default is not None:
        kinds = {type(declared.default).__name__}
    if not kinds & {"int", "float", "bool", "tuple", "list"} or "str" in kinds:
        return value
    try:
        parsed = {"true": True, "false": False}.get(value.lower(), _NOTHING)
        parsed = ast.literal_eval(value) if parsed is _NOTHING else parsed
    except (ValueError, SyntaxError):
        parsed = _NOTHING
    if isinstance(parsed, list):
        parsed = tuple(parsed)
    if isinstance(parsed, bool | int) and kinds == {"bool"}:
        return bool(parsed)
    if isinstance(parsed, int) and not isinstance(parsed, bool) and "float" in kinds and "int" not in kinds:
        return float(parsed)
    fits = kinds | ({"tuple"} if "list" in kinds else set())
    if parsed is _NOTHING or not (type(parsed).__name__ in fits or (parsed is None and "None" in kinds)):
        raise TypeError(
            f"{operation}: {declared.name} must be {type_text or kinds.pop()}, got the text {value!r}"
        )
    return parsed


_NOTHING = object()


def register(name: str) -> Callable[[P], P]:
    """Class decorator: the operator of an OperatorProperty, as ``wf.operator.name`` and ``weft.functional.name``.

    Its function takes inputs and auxiliary states by position or name, and the property's parameters by name. Reading a
    graph with it from a file needs the registration. Raises TypeError for a name that is taken.
    """
    if not name.isidentifier():
        raise TypeError(f"register: expected a name, got {name!r}")

    def decorate(cls: P) -> P:
        content = {"__module__": cls.__module__, "__doc__": inspect.getdoc(cls)}
        op(type(cls.__name__, (PropertyOp,), {**content, "name": name, "make_property": cls}))
        return cls

    return decorate


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in registry.names() and issubclass(registry.get(name), PropertyOp):
        return registry.function(name)
    raise AttributeError(f"weft.operator has no {name!r}, and no operator of this name is registered")
