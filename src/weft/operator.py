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
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.base.device import Device
from weft.base.dtype import DType
from weft.imperative.custom import CustomOp
from weft.imperative.custom_call import Context
from weft.imperative.tensor import Tensor
from weft.ops import registry
from weft.ops.op import op

__all__ = ["Context", "Operator", "OperatorProperty", "register"]

P = TypeVar("P", bound="type[OperatorProperty]")
Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
DTypes = Sequence[DType | None]


class Operator:
    """Kernels. They run on the engine's threads; arrays are tensors: numpy() shows their memory, without waiting.

    What else they keep in self lasts from forward to backward; in a graph, whose nodes have one Operator each, until
    the node runs again. req has one of "null" (do not write), "write", "inplace" (write; an input has the same memory)
    and "add" for each result.
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

        >>> from weft.imperative.creation import empty
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


def register(name: str) -> Callable[[P], P]:
    """Class decorator: the operator of an OperatorProperty, as ``wf.operator.name`` and ``weft.functional.name``.

    Its function takes the inputs and auxiliary states by position or name, and the property's parameters by name. In
    graphs it is a node; a graph that is read from a file needs the registration. Raises TypeError for a name that is
    taken.
    """
    if not name.isidentifier():
        raise TypeError(f"register: expected a name, got {name!r}")

    def decorate(cls: P) -> P:
        content = {"__module__": cls.__module__, "__doc__": inspect.getdoc(cls), "name": name, "prop": cls}
        op(type(cls.__name__, (CustomOp,), content))
        return cls

    return decorate


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in registry.names() and issubclass(registry.get(name), CustomOp):
        return registry.function(name)
    raise AttributeError(f"weft.operator: no operator {name!r} is registered")
