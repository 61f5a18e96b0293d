"""Operators that compute by calling Python: functions on whole arrays, wherever operators go.

On arrays, a call is pushed to the engine as it is. In graphs it is a node: a step that calls Python on arrays of its
own, in the program's order. Its gradient is one more such operator, which is given what was declared and nothing else.

Both are methods of a *worker*, which keeps what it likes from forward to backward. Each call on arrays has one, and so
has each node of a graph, for all its runs: `place` tells them apart, so no two nodes are taken for one.

    worker.forward(context, x, req, y, states)             writes y, and states
    worker.backward(context, dy, x, y, req, dx, states)    writes dx; None stands for what is not wanted or not read

All but the Context are lists, of tensors, whose memory numpy() shows without waiting, or of what is wanted: "write" or
"null".
"""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DType, as_dtype
from weft.base.errors import ShapeError
from weft.engine import default_engine
from weft.imperative.bodies import in_graph, take_words
from weft.imperative.creation import empty, zeros
from weft.imperative.gradient import Function
from weft.imperative.tensor import Tensor
from weft.ops import functions as F
from weft.ops.kernels import Native
from weft.ops.node import input_value, make_node
from weft.ops.op import Op, attribute_type, op
from weft.ops.shapes import Partial
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType

__all__ = ["Context", "Form", "PythonGradient", "PythonOp"]

# Of this process and of files that others have written: none comes twice.
_places = itertools.count(secrets.randbits(61))
_workers: WeakValueDictionary[Any, _Held] = WeakValueDictionary()
_node: Any = functools.cache(_core.operator_function)  # of a class, the function that makes nodes


class Context(NamedTuple):
    """What a function is told of its run.

    is_train: a gradient may be asked for. run_context: the engine's; in graphs its name and device are all that it
    tells. requested: the resources, in the order of their request: for "temp_space" a function (shape, dtype="float32")
    that makes a NumPy array to work with; for "random" a numpy.random.Generator, decided by the device's seed and the
    order of calls.
    """

    is_train: bool
    run_context: Any
    requested: tuple[Any, ...]


class Form(NamedTuple):
    """Names of arguments, and of states, inputs that it writes; how many outputs it has, and how many visible ones."""

    arguments: Sequence[str]
    states: Sequence[str]
    outputs: int
    visible: int


@attribute_type
class PythonOp(Op):
    """Base of operators that call Python. Subclasses say what is in the first part, up to make_worker.

    Inputs: arguments, states, two random words for each random resource. Outputs: its own, then states' new content.
    """

    primitive: ClassVar[bool] = True
    family: ClassVar[str] = "custom"
    method: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ("*y",)
    place: int = 0
    training: bool = False

    def form(self) -> Form:
        """Its inputs and outputs."""
        raise NotImplementedError

    def shapes(self, known: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Shapes of arguments and states, and of outputs, from what is known of arguments; None: not known."""
        raise NotImplementedError

    def dtypes(self, known: Sequence[DType]) -> Sequence[Any]:
        """Element types of the outputs from those of arguments."""
        return [known[0]] * self.form().outputs

    def resources(self, shapes: Sequence[Any], backward: bool) -> Sequence[str]:
        """The resources that forward or backward gets, from the arguments' shapes, None where they are not known."""
        return ()

    def reads(self, numbers: range) -> Collection[int]:
        """What backward reads of outputs' gradients, arguments and outputs, which have these numbers in this order."""
        return numbers

    def make_worker(self, device: Device) -> Any:
        """A new worker."""
        raise NotImplementedError

    # Calls.

    @classmethod
    def attributes_of(cls, keywords: dict[str, Any]) -> dict[str, Any]:
        """The attributes that a call means by its keywords that are no arrays."""
        return keywords

    @classmethod
    def make_function(cls) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            """Arguments and states by position or name; name and attr are a symbol's."""
            named = {key: kwargs.pop(key) for key in list(kwargs) if _is_array(kwargs[key])}
            attributes = cls.attributes_of(kwargs) | {"place": next(_places)}
            node = {key: attributes.pop(key) for key in ("name", "attr") if key in attributes}
            op = cls(**attributes)
            wanted = [*op.form().arguments, *op.form().states][len(args) :]
            if sorted(wanted) != sorted(named) or not all(map(_is_array, args)):
                missing = ", ".join(wanted) or "nothing more"
                raise TypeError(f"{cls.name}: {missing} must be given as arrays, got {sorted(named)}")
            arrays = [*args, *(named[each] for each in wanted)]
            symbol = next((x for x in arrays if hasattr(x, "__weft_control__")), None)
            arrays += op.words(arrays, symbol)
            if symbol is None:
                tracked = (isinstance(x, Tensor) and _core.is_tracked(x) for x in arrays)
                made = cls(**attributes, training=_core.is_recording() and any(tracked))(*arrays)
            else:  # executors say whether they train
                made = _node(cls)(arrays, **attributes, **node)
            return made[0] if isinstance(made, tuple) and len(made) == 1 else made

        call.__name__ = call.__qualname__ = cls.name
        call.__doc__ = cls.__doc__
        return call

    def __call__(self, *inputs: Any) -> Any:
        if all(isinstance(x, Tensor) for x in inputs) and not in_graph(inputs):
            return _Call(self)(*inputs)
        return _node(type(self))(list(inputs), **self.values())

    def words(self, arrays: Sequence[Any], symbol: Any = None) -> list[Any]:
        """The inputs behind arguments and states. Raises ValueError for a resource that there is not."""
        shapes = [None if symbol is not None else x.shape for x in self.split(arrays)[0]]
        kinds = self.resources(shapes, False)
        if unknown := [kind for kind in kinds if kind not in ("temp_space", "random")]:
            raise ValueError(f"{self.name}: no resource {unknown[0]!r}; there are: temp_space, random")
        return [take_words(arrays, symbol) for kind in kinds if kind == "random"]

    def split(self, inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Arguments, states, words."""
        first, states = len(self.form().arguments), len(self.form().states)
        return inputs[:first], inputs[first : first + states], inputs[first + states :]

    def worker(self, device: Device) -> _Held:
        """The worker of this place; whoever uses it keeps it."""
        values = [repr(value) for name, value in self.values().items() if name != "training"]
        key = (self.name, device, *values)
        return _workers.get(key) or _workers.setdefault(key, _Held(self.make_worker(device)))

    def run(self, held: _Held, run_context: Any, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Let a worker do it."""
        x, states, words = self.split(inputs)
        kinds = self.resources([each.shape for each in x], False)
        context = Context(self.training, run_context, _requested(kinds, words))
        self.work(held.worker, context, x, outputs[: self.form().outputs], states)

    def work(self, worker: Any, context: Context, x: Any, y: Any, states: Any) -> None:
        """What it does: a worker's forward."""
        worker.forward(context, x, ["write"] * len(y), y, states)

    @property
    def label(self) -> str:
        """What errors and timelines call it."""
        return self.name

    # Rules.

    @property
    def hidden(self) -> int:  # type: ignore[override]
        form = self.form()
        return form.outputs - form.visible + len(form.states)

    def count_outputs(self, count: int) -> int:
        return self.form().visible

    def written(self, count: int) -> dict[int, int]:
        form = self.form()
        return {len(form.arguments) + k: form.outputs + k for k in range(len(form.states))}

    def infer(self, *x: TensorType) -> Any:
        given, states, _ = self.split(x)
        names = [*self.form().arguments, *self.form().states]
        if len(x) < len(names):
            raise TypeError(f"{self.name}: takes {', '.join(names)}, got {len(x)} arrays")
        if any(not isinstance(n, int) for t in x for n in t.shape):
            raise NeedsSizes(repr(self))
        inputs, outputs = self.shapes([t.shape for t in given])
        for name, wanted, t in zip(names, inputs, (*given, *states), strict=True):
            if wanted is None or tuple(wanted) != t.shape:
                raise ShapeError(f"{self.name}: {name} must have shape {wanted}, got {t.shape}")
        if len(outputs) != self.form().outputs or None in outputs:
            raise ShapeError(f"{self.name}: {self.form().outputs} outputs have the shapes {list(outputs)}")
        device = x[0].device if x else cpu(0)
        dtypes = map(as_dtype, self.dtypes([t.dtype for t in given]))
        types = [TensorType(shape, dtype, device) for shape, dtype in zip(outputs, dtypes, strict=True)]
        return *types, *(t.like() for t in states)

    def infer_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...]:
        given = self.split(inputs)[0]
        return tuple(map(as_dtype, self.dtypes([t.dtype for t in given])))

    def solve_shapes(
        self, inputs: Sequence[Partial], outputs: Sequence[Partial]
    ) -> tuple[list[Partial], list[Partial]]:
        given, _, words = self.split(inputs)
        try:
            known, found = self.shapes(list(given))
        except (TypeError, IndexError, AttributeError):  # it needs to know more
            return list(inputs), list(outputs)
        return [*known, *words], list(found)[: self.form().visible]

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        device = next((t.device for t in x if t is not None), cpu(0))
        run_context = SimpleNamespace(operation=self.label, device=device, stream=None)
        held = self.worker(device)

        def function(inputs: list[Tensor], outputs: list[Tensor]) -> None:
            self.run(held, run_context, inputs, outputs)
            for state, new in zip(self.split(inputs)[1], outputs[self.form().outputs :], strict=False):
                new.numpy()[...] = state.numpy()

        yield Native(
            lambda inputs, outputs: _core.kernel_python(function, len(inputs), len(outputs)), ordered=True
        )

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        given, states, words = self.split(x)
        count = self.form().outputs
        slopes = [F.filled_like(v) if s is None else s for v, s in zip(y, dy, strict=True)][:count]
        wanted = [v.dtype.is_differentiable for v in given]
        known = [*slopes, *given, *y[:count]]
        # Backward may need nothing of forward but what that left in the worker: it reads an output, to follow it.
        reads_forward = bool(y[count:]) or any(v is not None for v in self.kept(known)[-count:])
        after = [] if reads_forward else [y[0]]
        found = self.gradient(known, y[count:], given, wanted, after)
        return ([*found, *[None] * (len(states) + len(words))],)

    def kept(self, known: Sequence[Any]) -> list[Any]:
        """Of outputs' gradients, arguments and outputs those that backward reads, None in the place of others."""
        reads = set(self.reads(range(len(known))))
        return [v if k in reads else None for k, v in enumerate(known)]

    def gradient(
        self,
        known: Sequence[Any],
        states: Sequence[Any],
        like: Sequence[Any],
        wanted: Sequence[bool],
        after: Sequence[Any] = (),
    ) -> list[Any]:
        """The gradients of arguments, which are like these, None where they are not wanted. known: as kept's."""
        known = self.kept(known)
        gradient = PythonGradient(
            of=self,
            given=tuple(v is not None for v in known),
            wanted=tuple(wanted),
            sizes=tuple(v.shape for v in like),
            types=tuple(v.dtype for v in like),
            training=True,
            after=len(after),
        )
        inputs = [*(v for v in known if v is not None), *after, *states]
        found = iter(gradient(*inputs, *gradient.words(inputs)))
        return [next(found) if want else None for want in wanted]


@op
class PythonGradient(PythonOp):
    """Backward of a PythonOp, the one in `of`: the gradients of its arguments that are wanted.

    Inputs: of outputs' gradients, arguments and outputs those that are given; arrays, `after` of them, that it does not
    read but has to wait for; states, as forward left them. sizes, types: the arguments'.
    """

    public: ClassVar[bool] = False
    of: PythonOp
    given: tuple[bool, ...]
    wanted: tuple[bool, ...]
    sizes: tuple[tuple[int, ...], ...]
    types: tuple[DType, ...]
    after: int = 0

    @property
    def label(self) -> str:
        return f"{self.of.name} gradient"

    def form(self) -> Form:
        names = [f"x{k}" for k in range(sum(self.given) + self.after)]
        return Form(names, self.of.form().states, sum(self.wanted), sum(self.wanted))

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return 0

    def written(self, count: int) -> dict[int, int]:
        return {}  # in graphs; on arrays it may write states, as forward does

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        if len(x) < sum(self.given) + self.after + len(self.of.form().states):
            raise TypeError(f"{self.name}: {len(x)} inputs do not fit {self.of!r}")
        device = x[0].device if x else cpu(0)
        found = zip(self.sizes, self.types, self.wanted, strict=True)
        return tuple(TensorType(shape, dtype, device) for shape, dtype, want in found if want)

    def resources(self, shapes: Sequence[Any], backward: bool) -> Sequence[str]:
        return self.of.resources(self.sizes, True)

    def worker(self, device: Device) -> _Held:
        return self.of.worker(device)

    def work(self, worker: Any, context: Context, x: Any, y: Any, states: Any) -> None:
        values, results = iter(x), iter(y)
        known = [next(values) if is_given else None for is_given in self.given]
        dx = [next(results) if want else None for want in self.wanted]
        req = ["write" if want else "null" for want in self.wanted]
        count = self.of.form().outputs
        worker.backward(context, known[:count], known[count:-count], known[-count:], req, dx, states)

    def gradient(self, *_: Any, **__: Any) -> Any:
        name = self.of.name
        raise NotImplementedError(f"{name}: its gradient is a Python function and has no gradient itself")


class _Held:
    """A worker, and a variable of the engine: its functions take turns, also where no array says so."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.turn = worker, default_engine().new_variable()


class _Call(Function):
    """An operator on arrays: forward is pushed to the engine, and so is backward, an operator on arrays as well."""

    def __init__(self, op: PythonOp) -> None:
        self.op = op

    def forward(self, *x: Tensor) -> list[Tensor]:
        op, form = self.op, self.op.form()
        operands = [input_value(TensorType(each.shape, each.dtype, each.device)) for each in x]
        types = [y.type for y in make_node(op, operands).outputs[: form.outputs]]
        inputs = [_core.alias(each, keep_past=False) for each in x]  # what functions see has no history
        outputs = [empty(t.shape, t.dtype, t.device) for t in types]
        given, states, words = op.split(inputs)
        device = x[0].device if x else cpu(0)
        held = op.worker(device)

        def run(context: _core.RunContext) -> None:
            op.run(held, context, inputs, outputs)

        default_engine().push(run, device, [*given, *words], [*states, held.turn], outputs, name=op.label)
        if op.training:
            past = [_core.alias(each, keep_past=True) for each in op.split(x)[0]]  # it is no constant
            self.known = op.kept([*[None] * form.outputs, *past, *outputs])
            self.like = [value.type for value in op.split(operands)[0]]
            self.wanted = [_core.is_tracked(each) for each in past]
            self.held, self.states, self.others = held, states, len(states) + len(words)
            self.hidden = types[form.visible :]
        return outputs[: form.visible]

    def backward(self, *dy: Any) -> Any:
        slopes = [*dy, *(zeros(t.shape, t.dtype, t.device) for t in self.hidden)]
        known = [*slopes, *self.known[len(slopes) :]]
        return *self.op.gradient(known, self.states, self.like, self.wanted), *[None] * self.others


def _is_array(x: Any) -> bool:
    """Whether it is an input of an operator."""
    return isinstance(x, Tensor) or hasattr(x, "__weft_apply__")


def _requested(kinds: Sequence[str], words: Sequence[Tensor]) -> tuple[Any, ...]:
    """The resources, of two random words for each that is random."""
    import numpy as np

    keys = iter(words)
    return tuple(
        (lambda shape, dtype="float32": np.empty(shape, as_dtype(dtype).numpy))
        if kind == "temp_space"
        else np.random.Generator(np.random.Philox(key=next(keys).numpy().tolist()))
        for kind in kinds
    )
