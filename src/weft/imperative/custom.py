"""Custom operators in graphs: nodes whose kernels call Python.

A node is one place of a program, with an Operator of its own (weft.operator) for all its runs, forward and backward:
`place` tells places apart, so that no two calls are taken for one, and a gradient finds the Operator of its forward.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from weft import _core
from weft.base.device import cpu
from weft.base.errors import DTypeError
from weft.imperative.bodies import in_graph, take_words
from weft.imperative.custom_call import (
    Context,
    call_on_arrays,
    check_resources,
    inferred,
    no_second_gradient,
    requested,
)
from weft.imperative.tensor import Tensor
from weft.ops import functions as F
from weft.ops.kernels import Native
from weft.ops.op import Op, op
from weft.ops.shapes import Partial
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType

__all__ = ["CustomGradient", "CustomOp"]

# Of this process and of files that others have written: none comes twice.
_places = itertools.count(secrets.randbits(61))
_operators: WeakValueDictionary[Any, Any] = WeakValueDictionary()


class CustomOp(Op):
    """Base of the operators behind properties. params: those of the property, by name; place: see the module.

    Inputs: arguments, auxiliary states, two random words for each random resource. Outputs: the property's, then the
    new content of auxiliary states.
    """

    family: ClassVar[str] = "custom"
    method: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    prop: ClassVar[Callable[..., Any]]
    params: object = ()
    place: int = 0
    training: bool = False

    def of_params(self) -> Any:
        """The property with the parameters."""
        params: Any = self.params
        return type(self).prop(**dict(params))

    def operator(self) -> Any:
        """The one of this place; whoever uses it keeps it."""
        key = (self.name, self.params, self.place)
        found = _operators.get(key)
        if found is None:
            found = _operators[key] = self.of_params().create_operator(cpu(0))
        return found

    @property
    def hidden(self) -> int:  # type: ignore[override]
        prop = self.of_params()
        count: int = prop.num_outputs() - prop.num_visible_outputs() + len(prop.list_auxiliary_states())
        return count

    def written(self, count: int) -> dict[int, int]:
        prop = self.of_params()
        first, outputs = len(prop.list_arguments()), prop.num_outputs()
        return {first + k: outputs + k for k in range(len(prop.list_auxiliary_states()))}

    def count_outputs(self, count: int) -> int:
        found: int = self.of_params().num_visible_outputs()
        return found

    def infer(self, *x: TensorType) -> Any:
        prop = self.of_params()
        count = len(prop.list_arguments()) + len(prop.list_auxiliary_states())
        arrays = x[:count]
        if any(not isinstance(n, int) for t in arrays for n in t.shape):
            raise NeedsSizes(repr(self))
        made, first = inferred(self.name, prop, [t.shape for t in arrays], [t.dtype for t in arrays])
        device = x[0].device if x else cpu(0)
        return *(TensorType(shape, dtype, device) for shape, dtype in made), *(
            t.like() for t in arrays[first:]
        )

    def solve_shapes(
        self, inputs: Sequence[Partial], outputs: Sequence[Partial]
    ) -> tuple[list[Partial], list[Partial]]:
        prop = self.of_params()
        count = len(prop.list_arguments())
        try:
            ins, outs, aux = prop.infer_shape(list(inputs[:count]))
        except (TypeError, IndexError, AttributeError):  # it needs to know more
            return list(inputs), list(outputs)
        visible = list(outs)[: prop.num_visible_outputs()]
        return [*ins, *aux, *inputs[count + len(aux) :]], visible

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        prop, operator = self.of_params(), self.operator()
        first, count = len(prop.list_arguments()), prop.num_outputs()
        states = len(prop.list_auxiliary_states())
        kinds = prop.forward_resource([t.shape for t in x[:first] if t is not None])

        def forward(inputs: list[Tensor], outputs: list[Tensor]) -> None:
            given, aux, drawn = inputs[:first], inputs[first : first + states], inputs[first + states :]
            context = Context(self.training, about(self.name), requested(kinds, drawn))
            operator.forward(context, given, ["write"] * count, outputs[:count], aux)
            for state, new in zip(aux, outputs[count:], strict=True):
                new.numpy()[...] = state.numpy()

        yield calling(forward)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        prop = self.of_params()
        arguments, count = len(prop.list_arguments()), prop.num_outputs()
        numbers = list(range(2 * count + arguments))
        reads = set(
            prop.declare_backward_dependency(
                numbers[:count], numbers[count : count + arguments], numbers[count + arguments :]
            )
        )
        slopes = [F.filled_like(v) if s is None else s for v, s in zip(y, dy, strict=True)][:count]
        aux = y[count:]  # as forward left them
        known = [*slopes, *x[:arguments], *y[:count]]
        wanted = tuple(v.dtype.kind == "float" for v in x[:arguments])
        given = tuple(k in reads for k in numbers)
        gradient = CustomGradient(of=self, given=given, wanted=wanted)
        like = [v for v, want in zip(x, wanted, strict=False) if want]
        found = iter(
            gradient(*(v for v, is_given in zip(known, given, strict=True) if is_given), *aux, *like)
        )
        return ([next(found) if want else None for want in wanted] + [None] * (len(x) - arguments),)

    @classmethod
    def make_function(cls) -> Any:
        function = super().make_function()

        def call(*args: Any, **kwargs: Any) -> Any:
            named = {key: kwargs.pop(key) for key in list(kwargs) if is_array(kwargs[key])}
            own = {
                key: kwargs.pop(key)
                for key in ("name", "attr")
                if key in kwargs and key not in params_of(cls)
            }
            prop = cls.prop(**kwargs)
            wanted = [*prop.list_arguments(), *prop.list_auxiliary_states()][len(args) :]
            if sorted(wanted) != sorted(named) or not all(map(is_array, args)):
                missing = ", ".join(wanted) or "nothing more"
                raise TypeError(f"{cls.name}: {missing} must be given as arrays, got {sorted(named)}")
            arrays = [*args, *(named[each] for each in wanted)]
            if all(isinstance(x, Tensor) for x in arrays) and not in_graph(arrays):
                return call_on_arrays(cls.name, prop, arrays)
            attributes: dict[str, Any] = {"params": tuple(kwargs.items()), "place": next(_places)} | own
            symbol = next((x for x in arrays if hasattr(x, "__weft_control__")), None)
            shapes = [None if symbol is not None else x.shape for x in arrays[: len(prop.list_arguments())]]
            kinds = prop.forward_resource(shapes)
            check_resources(cls.name, kinds)
            arrays += [take_words(arrays, symbol) for kind in kinds if kind == "random"]
            if symbol is None:  # else executors say whether they train
                tracked = (isinstance(x, Tensor) and _core.is_tracked(x) for x in arrays)
                attributes["training"] = _core.is_recording() and any(tracked)
            made = function(arrays, **attributes)
            return made[0] if isinstance(made, tuple) and len(made) == 1 else made

        call.__name__ = call.__qualname__ = cls.name
        call.__doc__ = cls.__doc__
        return call


@op
class CustomGradient(Op):
    """Backward of a custom operator, the one in `of`: the gradients of its arguments that are wanted.

    Inputs: of outputs' gradients, arguments and outputs those that are given, auxiliary states, then what the wanted
    gradients are like.
    """

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    family: ClassVar[str] = "custom"
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    of: object
    given: tuple[bool, ...]
    wanted: tuple[bool, ...]

    def check(self) -> None:
        if not isinstance(self.of, CustomOp):
            raise TypeError(f"{self.name}: of must be a custom operator, got {self.of!r}")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        states = len(self.custom().of_params().list_auxiliary_states())
        if len(x) != sum(self.given) + states + sum(self.wanted):
            raise self.fail(DTypeError, f"{len(x)} inputs do not fit what is given and wanted")
        return tuple(t.like() for t in x[sum(self.given) + states :])

    def custom(self) -> CustomOp:
        assert isinstance(self.of, CustomOp)
        return self.of

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        of = self.custom()
        prop, operator = of.of_params(), of.operator()
        count, arguments, states = (
            prop.num_outputs(),
            len(prop.list_arguments()),
            len(prop.list_auxiliary_states()),
        )
        kinds = prop.backward_resource([t.shape for t in x if t is not None])
        if "random" in kinds:
            raise NotImplementedError(f"{of.name}: its gradient draws random numbers, which a graph's cannot")

        def backward(inputs: list[Tensor], outputs: list[Tensor]) -> None:
            values, results = iter(inputs), iter(outputs)
            known = [next(values) if is_given else None for is_given in self.given]
            aux = list(itertools.islice(values, states))
            grads = [next(results) if want else None for want in self.wanted]
            req = ["write" if want else "null" for want in self.wanted]
            operator.backward(
                Context(True, about(of.name), requested(kinds, [])),
                known[:count],
                known[count : count + arguments],
                known[count + arguments :],
                req,
                grads,
                aux,
            )

        yield calling(backward)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        raise no_second_gradient(self.custom().name)


def calling(function: Callable[[list[Tensor], list[Tensor]], None]) -> Native:
    """The kernel that calls a function with tensors."""
    return Native(
        lambda inputs, outputs: _core.kernel_python(function, len(inputs), len(outputs)), ordered=True
    )


def about(name: str) -> Any:
    """In the place of the engine's context."""
    return SimpleNamespace(operation=name, device=cpu(0), stream=None)


def is_array(x: Any) -> bool:
    """Whether it is an input of an operator."""
    return isinstance(x, Tensor) or hasattr(x, "__weft_apply__")


def params_of(cls: type[CustomOp]) -> Sequence[str]:
    """The names of the property's parameters."""
    import inspect

    return list(inspect.signature(cls.prop).parameters)
