"""Symbols as modules: what takes modules (training loops, quantization, data parallelism) takes them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.module.module import Module, Parameter
from weft.ops.node import Value

if TYPE_CHECKING:
    from weft.symbol import Symbol

__all__ = ["SymbolModule"]


class SymbolModule(Module):
    """A symbol, with arrays for its parameters, as a module; its call runs one operator after the other.

    arrays: by name, for the auxiliary states, which become buffers, and for all arguments but the inputs, which become
    parameters if they are floats; tensors are shared, not copied. inputs: the names of the arguments that a call gets,
    in its order; by default those without an array. Variables that composing made for an operator's node ("fc_weight"
    of "fc") are attributes of a module of the node's name (fc.weight), and "a.b" is attribute b of module a; others are
    attributes of this one.
    A call gives an array, or a tuple where the symbol has several outputs; training is the module's.
    Raises GraphError for names that are missing or unknown, and for gradients inside of the symbol.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> import weft.symbol as sym
    >>> y = F.relu(F.linear(sym.var("x"), out_features=2, name="fc"))
    >>> net = SymbolModule(y, {"fc_weight": wf.ones((2, 3)), "fc_bias": wf.zeros(2)})
    >>> [name for name, _ in net.named_parameters()]
    ['fc.weight', 'fc.bias']
    >>> net(wf.ones((1, 3)))
    tensor([[3., 3.]], dtype=float32, device=cpu:0)
    """

    def __init__(
        self, symbol: Symbol, arrays: Mapping[str, Any], inputs: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        chosen = [name for name in arguments if name not in arrays] if inputs is None else list(inputs)
        held = [name for name in (*arguments, *states) if name not in chosen]
        for what, names, there in (
            ("arrays", arrays, [*arguments, *states]),
            ("inputs", chosen, arguments),
            ("no array for", held, list(arrays)),
        ):
            unknown = [name for name in names if name not in there]
            if unknown:
                raise GraphError(
                    f"SymbolModule: {what}: {unknown[0]!r}; there are: {', '.join(there) or 'none'}"
                )
        self.symbol, self.inputs = symbol, tuple(chosen)
        self._paths: dict[str, tuple[str, ...]] = {}
        owners = dict(_owners(symbol))
        for name in held:
            *within, attribute = self._paths[name] = owners.get(name) or tuple(name.split("."))
            home: Module = self
            for part in within:
                if part not in vars(home):
                    setattr(home, part, Module())
                home = getattr(home, part)
            x = asarray(arrays[name])
            if name in states or not x.dtype.is_differentiable:
                home.register_buffer(attribute, x)
            else:
                setattr(home, attribute, Parameter(x))

    def tensor_of(self, name: str) -> Tensor:
        """The parameter or buffer of a variable of the symbol. Raises KeyError for inputs and unknown names.

        >>> import weft as wf
        >>> import weft.functional as F
        >>> import weft.symbol as sym
        >>> y = F.linear(sym.var("x"), out_features=2, bias=False, name="fc")
        >>> net = SymbolModule(y, {"fc_weight": wf.ones((2, 3))})
        >>> net.tensor_of("fc_weight") is net.fc.weight
        True
        """
        x: Any = self
        for part in self._paths[name]:
            x = getattr(x, part)
        return x

    def forward(self, *args: Any) -> Any:
        from weft.symbol.eager_run import run_operators  # loaded by whoever has a symbol

        if len(args) != len(self.inputs):
            raise TypeError(
                f"SymbolModule: takes {len(self.inputs)} arrays ({', '.join(self.inputs)}), got {len(args)}"
            )
        bound = dict(zip(self.inputs, args, strict=True))
        bound |= {name: self.tensor_of(name) for name in self._paths}
        results = run_operators(self.symbol.values, bound, self.training, lambda node: None)
        return results[0] if len(results) == 1 else tuple(results)


def _owners(symbol: Symbol) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of a variable, where it is) for those that are named after the node that reads them."""
    for node in symbol.get_internals().values:
        owner = node.node
        for v in owner.inputs:
            if (
                isinstance(v, Value)
                and v.node.op is None
                and (v.node.name or "").startswith(f"{owner.name}_")
            ):
                suffix = v.node.name[len(owner.name) + 1 :]
                if suffix.isidentifier() and owner.name.isidentifier():
                    yield v.node.name, (owner.name, suffix)
