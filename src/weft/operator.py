"""Operators whose kernels are Python functions on whole arrays: OperatorProperty says what one is, Operator computes.

>>> import numpy as np
>>> import weft as wf
>>> @wf.operator.register("clamped")
... class ClampedProperty(wf.operator.OperatorProperty):
...     def __init__(self, most=1.0):
...         self.most = most
...     def declare_backward_dependency(self, out_grad, in_data, out_data):
...         return [*out_grad, *in_data]
...     def create_operator(self, device):
...         return Clamped(self.most)
>>> class Clamped(wf.operator.Operator):
...     def __init__(self, most):
...         self.most = most
...     def forward(self, ctx, in_data, req, out_data, aux):
...         self.assign(out_data[0], req[0], np.minimum(in_data[0].numpy(), self.most))
...     def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
...         self.assign(in_grad[0], req[0], out_grad[0].numpy() * (in_data[0].numpy() < self.most))
>>> x = wf.tensor([0.5, 3.])
>>> wf.operator.clamped(x, most=2.0), wf.grad(lambda x: wf.operator.clamped(x, most=2.0).sum())(x)
(tensor([0.5, 2. ], dtype=float32, device=cpu:0), tensor([1., 0.], dtype=float32, device=cpu:0))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from weft import _core, random
from weft._core import RunContext
from weft.base.device import Device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import DeviceError, GraphError, ShapeError
from weft.engine import default_engine
from weft.imperative.creation import empty, zeros
from weft.imperative.tensor import Tensor
from weft.ops import registry
from weft.ops.op import Op, op
from weft.ops.types import TensorType

__all__ = ["Context", "Operator", "OperatorProperty", "register"]

P = TypeVar("P", bound="type[OperatorProperty]")
Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
DTypes = Sequence[DType | None]


@dataclass(frozen=True)
class Context:
    """What a kernel is told of its run.

    is_train: a gradient may be asked for. requested: the resources, in the order of their request: for "temp_space" a
    function (shape, dtype="float32") that makes a NumPy array to work with; for "random" a numpy.random.Generator,
    decided by the device's seed and the order of calls.
    """

    is_train: bool
    run_context: RunContext
    requested: tuple[Any, ...]


class Operator:
    """Kernels. They run on the engine's threads; arrays are tensors: numpy() shows their memory, without waiting.

    What else they keep in self lasts from forward to backward. req has one of "null" (do not write), "write", "inplace"
    (write; an input has the same memory) and "add" for each result.
    """

    def forward(
        self, ctx: Context, in_data: list[Tensor], req: list[str], out_data: list[Tensor], aux: list[Tensor]
    ) -> None:
        """Write out_data; aux may be written, too."""
        raise NotImplementedError(f"{type(self).__name__}: no forward")

    def backward(
        self,
        ctx: Context,
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        req: list[str],
        in_grad: list[Any],
        aux: list[Tensor],
    ) -> None:
        """Write in_grad. Arrays that declare_backward_dependency left out are None, and so are gradients not wanted."""
        raise NotImplementedError(f"{type(self).__name__}: no backward")

    def assign(self, dst: Tensor | None, req: str, src: Any) -> None:
        """Write src into dst as req says. Raises ValueError for another word.

        >>> y = empty(2)
        >>> Operator().assign(y, "write", [1., 2.])
        >>> Operator().assign(y, "add", 1.)
        >>> y
        tensor([2., 3.], dtype=float32, device=cpu:0)
        """
        if req not in ("null", "write", "inplace", "add"):
            raise ValueError(f"assign: req must be 'null', 'write', 'inplace' or 'add', got {req!r}")
        if req == "null" or dst is None:
            return
        memory = dst.numpy()
        memory[...] = memory + src if req == "add" else src


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
        """The parameters by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def infer_shape(self, in_shapes: list[Any]) -> tuple[Shapes, Shapes, Shapes]:
        """Shapes of inputs, outputs and auxiliary states from the inputs' as far as known; None: not known."""
        return in_shapes, [in_shapes[0]] * self.num_outputs(), []

    def infer_type(self, in_types: list[Any]) -> tuple[DTypes, DTypes, DTypes]:
        """Element types, as infer_shape; by default all are the first known one."""
        known = next((t for t in in_types if t is not None), None)
        names = self.list_arguments(), self.list_outputs(), self.list_auxiliary_states()
        inputs, outputs, aux = ([known] * len(each) for each in names)
        return [t or known for t in in_types] or inputs, outputs, aux

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
        """(input, output) pairs that may be the same memory; a hint."""
        return []

    def backward_inplace_option(
        self, out_grad: list[int], in_data: list[int], out_data: list[int], in_grad: list[int]
    ) -> list[tuple[int, int]]:
        """(read, written) pairs that may be the same memory; a hint."""
        return []

    def create_operator(self, device: Device) -> Operator:
        """The kernels, for one call."""
        raise NotImplementedError(f"{type(self).__name__}: no create_operator")


class PropertyOp(Op):
    """Base of the operators behind properties. params: those of the property, by name."""

    family: ClassVar[str] = "custom"
    method: ClassVar[bool] = False
    prop: ClassVar[Callable[..., OperatorProperty]]
    params: object = ()

    def infer(self, *x: TensorType) -> Any:
        prop = self.prop(**dict(self.params))  # type: ignore[call-overload]
        outputs, _ = inferred(self.name, prop, [t.shape for t in x], [t.dtype for t in x])
        types = tuple(TensorType(shape, dtype, x[0].device) for shape, dtype in outputs)
        return types[0] if len(types) == 1 else types

    def kernels(self, *x: TensorType | None) -> Iterator[Any]:
        raise GraphError(f"{self.name}: its kernels are Python functions, which graphs cannot hold yet")

    @classmethod
    def make_function(cls) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            return _call(cls, args, kwargs)

        function.__name__ = function.__qualname__ = cls.name
        function.__doc__ = cls.__doc__
        return function


def register(name: str) -> Callable[[P], P]:
    """Class decorator: the operator of an OperatorProperty, as ``wf.operator.name`` and ``weft.functional.name``.

    Its function takes the inputs and auxiliary states by position or name, and the property's parameters by name. Only
    arrays can be given, at present: in graphs it raises GraphError. Raises TypeError for a name that is taken.
    """
    if not name.isidentifier():
        raise TypeError(f"register: expected a name, got {name!r}")

    def decorate(cls: P) -> P:
        content = {"__module__": cls.__module__, "__doc__": inspect.getdoc(cls), "name": name, "prop": cls}
        op(type(cls.__name__, (PropertyOp,), content))
        return cls

    return decorate


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in registry.names() and issubclass(registry.get(name), PropertyOp):
        return registry.function(name)
    raise AttributeError(f"weft.operator: no operator {name!r} is registered")


def inferred(
    name: str, prop: OperatorProperty, shapes: list[Any], dtypes: list[Any]
) -> tuple[list[Any], int]:
    """(shape, dtype) of each output, and the number of inputs before auxiliary states. Raises ShapeError, TypeError."""
    names, states = prop.list_arguments(), prop.list_auxiliary_states()
    if len(shapes) != len(names) + len(states):
        raise TypeError(f"{name}: takes {', '.join([*names, *states])}, got {len(shapes)} arrays")
    count = len(names)
    ins, outs, aux = prop.infer_shape(shapes[:count])
    for each, wanted, given in zip([*names, *states], [*ins, *aux], shapes, strict=True):
        if wanted is None or tuple(wanted) != given:
            raise ShapeError(f"{name}: {each} must have shape {wanted}, got {given}")
    if len(outs) != prop.num_outputs() or None in outs:
        raise ShapeError(
            f"{name}: infer_shape gave {list(outs)} for the outputs {', '.join(prop.list_outputs())}"
        )
    types = [as_dtype(t) for t in prop.infer_type(dtypes[:count])[1]]
    return [(tuple(shape or ()), dtype) for shape, dtype in zip(outs, types, strict=True)], count


def _call(cls: type[PropertyOp], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One call on arrays: forward is pushed to the engine, and backward remembered."""
    name = cls.name
    if any(hasattr(x, "__weft_apply__") and not isinstance(x, Tensor) for x in (*args, *kwargs.values())):
        raise GraphError(f"{name}: its kernels are Python functions, which graphs cannot hold yet")
    named = {key: value for key, value in kwargs.items() if isinstance(value, Tensor)}
    prop = cls.prop(**{key: value for key, value in kwargs.items() if key not in named})
    wanted = [*prop.list_arguments(), *prop.list_auxiliary_states()][len(args) :]
    if sorted(wanted) != sorted(named) or not all(isinstance(x, Tensor) for x in args):
        raise TypeError(
            f"{name}: {', '.join(wanted) or 'nothing more'} must be given as arrays, got {sorted(named)}"
        )
    arrays: list[Tensor] = [*args, *(named[each] for each in wanted)]
    made, count = inferred(name, prop, [x.shape for x in arrays], [x.dtype for x in arrays])
    device = arrays[0].device if arrays else Device("cpu", 0)
    if any(x.device is not device for x in arrays):
        raise DeviceError(f"{name}: operands on different devices: {', '.join(map(_core.describe, arrays))}")
    past = [_core.alias(x, keep_past=False) for x in arrays]  # what is kept has no history of its own
    inputs, aux = past[:count], past[count:]
    outputs = [empty(shape, dtype, device) for shape, dtype in made]
    tracked = [
        _core.is_recording() and x.dtype.kind == "float" and _core.is_tracked(x) for x in arrays[:count]
    ]
    operator = prop.create_operator(device)
    shapes = [x.shape for x in inputs]
    drawn, requested = _resources(name, prop.forward_resource(shapes), device)

    def forward(run_context: RunContext) -> None:
        ctx = Context(any(tracked), run_context, requested())
        operator.forward(ctx, inputs, ["write"] * len(outputs), outputs, aux)

    default_engine().push(forward, device, [*inputs, *drawn], aux, outputs, name=name)
    visible = [_core.alias(y, keep_past=False) for y in outputs[: prop.num_visible_outputs()]]
    if any(tracked):
        _core.record_function(
            arrays[:count], visible, _backward(name, prop, operator, tracked, inputs, outputs, aux)
        )
    return visible[0] if len(visible) == 1 else tuple(visible)


def _backward(
    name: str,
    prop: OperatorProperty,
    operator: Operator,
    tracked: list[bool],
    inputs: list[Any],
    outputs: list[Any],
    aux: list[Tensor],
) -> Callable[..., Any]:
    """What the tape calls with the visible outputs' gradients."""
    n, m = len(outputs), len(inputs)
    numbers = list(range(2 * n + m))
    reads = set(prop.declare_backward_dependency(numbers[:n], numbers[n : n + m], numbers[n + m :]))
    kinds = [(x.shape, x.dtype, x.device) for x in inputs]
    hidden = [(y.shape, y.dtype, y.device) for y in outputs[prop.num_visible_outputs() :]]
    saved_in = [x if n + k in reads else None for k, x in enumerate(inputs)]
    saved_out = [y if n + m + k in reads else None for k, y in enumerate(outputs)]
    device = kinds[0][2]

    def backward(*dys: Any) -> Any:
        slopes = [_core.alias(dy, keep_past=False) for dy in dys] + [zeros(*each) for each in hidden]
        slopes = [dy if k in reads else None for k, dy in enumerate(slopes)]
        grads = [empty(*kind) if want else None for kind, want in zip(kinds, tracked, strict=True)]
        req = ["write" if want else "null" for want in tracked]
        drawn, requested = _resources(name, prop.backward_resource([k[0] for k in kinds]), device)

        def run(run_context: RunContext) -> None:
            ctx = Context(True, run_context, requested())
            operator.backward(ctx, slopes, saved_in, saved_out, req, grads, aux)

        reading = [x for x in (*slopes, *saved_in, *saved_out, *drawn) if x is not None]
        written = [g for g in grads if g is not None]
        default_engine().push(run, device, reading, aux, written, name=f"{name} gradient")
        if _core.is_recording() and any(_core.is_tracked(dy) for dy in dys):

            def again(*_: Any) -> Any:
                raise NotImplementedError(
                    f"{name}: its gradient is a Python function and has no gradient itself"
                )

            _core.record_function(list(dys), written, again)
        return tuple(grads)

    return backward


def _resources(
    name: str, kinds: Sequence[str], device: Device
) -> tuple[list[Tensor], Callable[[], tuple[Any, ...]]]:
    """What the kernel has to read for its resources, and a function that makes them when it runs."""
    if unknown := [kind for kind in kinds if kind not in ("temp_space", "random")]:
        raise ValueError(f"{name}: no resource {unknown[0]!r}; there are: temp_space, random")
    drawn = [
        random.randint(0, 2**62, shape=2, dtype="int64", device=device) for kind in kinds if kind == "random"
    ]

    def make() -> tuple[Any, ...]:
        import numpy as np

        keys = iter(drawn)
        return tuple(
            (lambda shape, dtype="float32": np.empty(shape, as_dtype(dtype).numpy))
            if kind == "temp_space"
            else np.random.Generator(np.random.Philox(key=next(keys).numpy().tolist()))
            for kind in kinds
        )

    return drawn, make
