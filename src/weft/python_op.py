"""Operators that compute by calling Python functions on whole arrays, in eager calls, graphs and symbols.

On arrays, a call is pushed to the engine as it is. In graphs it is a node: a step that calls Python on arrays of its
own, in the program's order. Its gradient is one more such operator, which is given what was declared and nothing else.

Both are methods of a *worker*, which keeps what it likes from forward to backward. Each call on arrays has one, and so
has each node of a graph, for all its runs: `place` distinguishes them, so no two nodes are taken for one.

    worker.forward(context, x, req, y, states)             writes y, and states
    worker.backward(context, dy, x, y, req, dx, states)    writes dx; None in place of what is not requested or not read

All but the Context are lists, of tensors, whose memory numpy() shows without waiting, or of what is wanted: "write",
"null", in graphs also "inplace" (a result is the same tensor as an operand) and "add" (to what the result holds).
"""

from __future__ import annotations

import functools
import itertools
import math
import secrets
from collections.abc import Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from weft import _core
from weft.arrays.creation import empty, zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device, cpu
from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.engine import default_engine
from weft.gradients.gradient import Function
from weft.ops import functions as F
from weft.ops.attributes import attribute_type
from weft.ops.kernels import Native
from weft.ops.node import input_value, make_node
from weft.ops.op import Op, op
from weft.ops.sizes import NeedsSizes
from weft.ops.types import TensorType
from weft.recording.control_flow_effects import in_graph, take_stream_words
from weft.storage import alloc

__all__ = ["Context", "Form", "PythonGradient", "PythonOp"]

# Of this process and of files that others have written: none comes twice.
_place_numbers = itertools.count(secrets.randbits(61))
_workers: WeakValueDictionary[Any, _SharedWorker] = WeakValueDictionary()
_node: Any = functools.cache(_core.operator_function)  # of a class, the function that makes nodes


class Context(NamedTuple):
    """The context that a function gets of its run.

    is_train: a gradient may be computed later. run_context: the engine's; in graphs it has a name and a device only.
    requested: the resources, in the order of their request: for "temp_space" a function (shape, dtype="float32")
    that makes a NumPy array of undefined content, whose memory comes from the device's pool, or from the host's where
    the host cannot touch the device's, and goes back to it with the array; for "random" a numpy.random.Generator,
    decided by the device's seed and the order of calls.
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
class PythonOp(Op, family="custom", primitive=True, outputs=("*y",)):
    """Base of operators that call Python. Subclasses say what is in the first part, up to make_worker.

    Inputs: arguments, states, two random words for each random resource. Outputs: its own, then states' new content.
    """

    place: int = 0
    training: bool = False

    def form(self) -> Form:
        """Its inputs and outputs."""
        raise NotImplementedError

    def shapes(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Shapes of arguments and states, and of outputs, from the known ones of arguments; None: not known."""
        raise NotImplementedError

    def dtypes(self, arguments: Sequence[DType | None]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Element types of arguments and states, and of outputs, from those of arguments.

        None: not known; of arguments and states: any.
        """
        form = self.form()
        return [None] * (len(form.arguments) + len(form.states)), [arguments[0]] * form.outputs

    def resources(self, shapes: Sequence[Any], backward: bool) -> Sequence[str]:
        """The resources that forward or backward gets, from the arguments' shapes, None where they are not known."""
        return ()

    def backward_reads(self, numbers: range) -> Collection[int]:
        """What backward reads of outputs' gradients, arguments and outputs, which have these numbers in this order."""
        return numbers

    def in_place(self, backward: bool) -> Sequence[tuple[int, int]]:
        """(operand, result) pairs that may be the same memory in graphs.

        forward: arguments, outputs; backward: operands by their numbers in `backward_reads`, results by the argument's.
        """
        return ()

    def input_gradients(self, dy: Sequence[Any], x: Sequence[Any], y: Sequence[Any]) -> Any:
        """The gradients of arguments, made of weft's functions, in the place of a worker's backward; else
        NotImplemented. What `backward_reads` leaves out is None.
        """
        return NotImplemented

    has_custom_vjp: ClassVar[bool] = False  # whether `input_gradients` may give something

    def make_worker(self, device: Device) -> Any:
        """A new worker."""
        raise NotImplementedError

    # Calls.

    @classmethod
    def attributes_of(cls, keywords: dict[str, Any]) -> dict[str, Any]:
        """The attributes that a call means by its keywords that are not arrays."""
        return keywords

    @classmethod
    def make_function(cls) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            """Arguments and states by position or name; name and attr are a symbol's."""
            arrays_by_name = {key: kwargs.pop(key) for key in list(kwargs) if _is_array(kwargs[key])}
            attributes = cls.attributes_of(kwargs) | {"place": next(_place_numbers)}
            node = {key: attributes.pop(key) for key in ("name", "attr") if key in attributes}
            op = cls(**attributes)
            arrays = op.arranged(args, arrays_by_name)
            symbol = next((x for x in arrays if hasattr(x, "__weft_control__")), None)
            missing = [n for n, x in zip(op.argument_names(), arrays, strict=True) if x is None]
            if missing and symbol is None:  # symbols make variables of them
                raise TypeError(f"{cls.name}: {', '.join(missing)} must be given as arrays")
            arrays += op.words(arrays, symbol)
            if symbol is None:
                tracked = (type(x) is Tensor and _core.is_tracked(x) for x in arrays)
                result = cls(**attributes, training=_core.is_recording() and any(tracked))(*arrays)
            else:  # executors say whether they train
                result = _node(cls)(arrays, **attributes, **node)
            return result[0] if isinstance(result, tuple) and len(result) == 1 else result

        call.__name__ = call.__qualname__ = cls.name
        call.__doc__ = cls.__doc__
        return call

    def __call__(self, *inputs: Any) -> Any:
        if _core.layers() is not None and all(type(x) is Tensor for x in inputs):
            result = _core.emit(self, inputs)
            return result if isinstance(result, tuple) else (result,)
        if all(type(x) is Tensor for x in inputs) and not in_graph(inputs):
            return _Call(self)(*inputs)
        return _node(type(self))(list(inputs), **self.values())

    def argument_names(self) -> Sequence[str]:
        """Of arguments and states."""
        return [*self.form().arguments, *self.form().states]

    def output_names(self) -> Sequence[str]:
        """What symbols call the outputs, behind the node's name; none: by their indices."""
        return ()

    def arranged(self, args: Sequence[Any], arrays_by_name: dict[str, Any]) -> list[Any]:
        """Arguments and states in their order, None for one that is missing. Raises TypeError."""
        names = self.argument_names()
        if len(args) > len(names):
            raise TypeError(f"{self.name}: takes {', '.join(names)}, got {len(args)} positional arguments")
        if wrong := [x for x in args if not _is_array(x)]:
            listed = ", ".join(names)
            raise TypeError(f"{self.name}: {listed} must be given as arrays, got {type(wrong[0]).__name__}")
        for key in arrays_by_name:
            if key not in names:
                raise TypeError(f"{self.name}: no argument {key}; there are: {', '.join(names)}")
            if key in names[: len(args)]:
                raise TypeError(f"{self.name}: {key} is given twice")
        return [*args, *(arrays_by_name.get(name) for name in names[len(args) :])]

    def words(self, arrays: Sequence[Any], symbol: Any = None) -> list[Any]:
        """The inputs behind arguments and states. Raises ValueError for a resource that there is not."""
        shapes = [None if symbol is not None else x.shape for x in self.split(arrays)[0]]
        kinds = self.resources(shapes, False)
        if unknown := [kind for kind in kinds if kind not in ("temp_space", "random")]:
            raise ValueError(f"{self.name}: no resource {unknown[0]!r}; there are: temp_space, random")
        return [take_stream_words(arrays, symbol) for kind in kinds if kind == "random"]

    def split(self, inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Arguments, states, words."""
        first, states = len(self.form().arguments), len(self.form().states)
        return inputs[:first], inputs[first : first + states], inputs[first + states :]

    def worker(self, device: Device) -> _SharedWorker:
        """The worker of this place; its users keep it alive."""
        values = [repr(value) for name, value in self.values().items() if name != "training"]
        key = (self.name, device, *values)
        return _workers.get(key) or _workers.setdefault(key, _SharedWorker(self.make_worker(device)))

    def run(
        self, shared_worker: _SharedWorker, run_context: Any, inputs: list[Tensor], outputs: list[Tensor]
    ) -> None:
        """Let a worker do it."""
        x, states, words = self.split(inputs)
        kinds = self.resources([each.shape for each in x], False)
        context = Context(self.training, run_context, _requested(kinds, words, run_context.device))
        self.work(shared_worker.worker, context, x, outputs[: self.form().outputs], states, inputs)

    def work(self, worker: Any, context: Context, x: Any, y: Any, states: Any, inputs: Sequence[Any]) -> None:
        """What it does: a worker's forward. inputs: all of them."""
        worker.forward(context, x, [_request(each, inputs) for each in y], y, states)

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

    def writes_by_index(self, count: int) -> dict[int, int]:
        form = self.form()
        return {len(form.arguments) + k: form.outputs + k for k in range(len(form.states))}

    def infer(self, *x: TensorType) -> Any:
        arguments, states, _ = self.split(x)
        names = [*self.form().arguments, *self.form().states]
        if len(x) < len(names):
            raise TypeError(f"{self.name}: takes {', '.join(names)}, got {len(x)} arrays")
        if any(not isinstance(n, int) for t in x for n in t.shape):
            raise NeedsSizes(repr(self))
        inputs, outputs = self.shapes([t.shape for t in arguments])
        for name, expected, t in zip(names, inputs, (*arguments, *states), strict=True):
            if expected is None or tuple(expected) != t.shape:
                raise ShapeError(f"{self.name}: {name} must have shape {expected}, got {t.shape}")
        _, dtypes = self.checked_dtypes(
            [t.dtype for t in arguments], [t.dtype for t in (*arguments, *states)]
        )
        if unknown := [k for k, dtype in enumerate(dtypes) if dtype is None]:
            raise DTypeError(f"{self.name}: the element type of output {unknown[0]} is None")
        if len(outputs) != self.form().outputs or None in outputs:
            raise ShapeError(f"{self.name}: {self.form().outputs} outputs have the shapes {list(outputs)}")
        device = x[0].device if x else cpu(0)
        types = [
            TensorType(shape, as_dtype(dtype), device) for shape, dtype in zip(outputs, dtypes, strict=True)
        ]
        return *types, *(t.like() for t in states)

    def checked_dtypes(
        self, argument_dtypes: Sequence[DType | None], actual_dtypes: Sequence[DType | None]
    ) -> tuple[list[Any], list[Any]]:
        """Element types of arguments and states, and of outputs. Raises DTypeError for others than are known."""
        inputs, outputs = self.dtypes(argument_dtypes)
        names, count = self.argument_names(), self.form().outputs
        if len(inputs) != len(names) or len(outputs) != count:
            raise DTypeError(
                f"{self.name}: its rule gave {len(inputs)} and {len(outputs)} element types, for "
                f"{', '.join(names)} and {count} outputs"
            )
        input_dtypes = [None if dtype is None else as_dtype(dtype) for dtype in inputs]
        for name, expected, dtype in zip(names, input_dtypes, actual_dtypes, strict=True):
            if expected is not None and dtype is not None and dtype is not expected:
                raise DTypeError(f"{self.name}: {name} must be {expected}, got {dtype}")
        return input_dtypes, [None if dtype is None else as_dtype(dtype) for dtype in outputs]

    def infer_dtypes(self, *inputs: TensorType | None) -> tuple[DType, ...] | None:
        dtypes = [None if t is None else t.dtype for t in inputs]
        arguments, states, _ = self.split(dtypes)
        _, outputs = self.checked_dtypes(arguments, [*arguments, *states])
        return None if None in outputs else tuple(outputs)

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        device = next((t.device for t in x if t is not None), cpu(0))
        run_context = SimpleNamespace(operation=self.label, device=device, stream=None)
        shared_worker = self.worker(device)

        def function(inputs: list[Tensor], outputs: list[Tensor]) -> None:
            self.run(shared_worker, run_context, inputs, outputs)
            for state, content in zip(self.split(inputs)[1], outputs[self.form().outputs :], strict=False):
                content.numpy()[...] = state.numpy()

        pairs, added = tuple(self.shared()), self.added_inputs(len(x))
        shared = [*((i, j, True) for i, j in added), *((i, j, False) for i, j in pairs)]
        yield Native(
            lambda inputs, outputs: _core.kernel_python(function, len(inputs), len(outputs), shared=shared),
            in_place=(*added, *pairs),
            ordered=True,
        )

    def shared(self) -> Sequence[tuple[int, int]]:
        """The pairs of `in_place`, as (input, output) of its node. Raises ValueError for what is not there."""
        form = self.form()
        for i, j in (pairs := self.in_place(False)):
            if not (0 <= i < len(form.arguments) and 0 <= j < form.outputs):
                raise ValueError(f"{self.name}: no (input, output) pair {(i, j)} for {form}")
        return pairs

    def added_inputs(self, count: int) -> tuple[tuple[int, int], ...]:
        """(input, output): outputs that add to an input; count: of inputs."""
        return ()

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        arguments, states, words = self.split(x)
        count = self.form().outputs
        cotangents = [F.filled_like(v) if s is None else s for v, s in zip(y, dy, strict=True)][:count]
        needs_gradient = [v.dtype.is_differentiable for v in arguments]
        operands = [*cotangents, *arguments, *y[:count]]
        gradients = self.custom_gradients(operands)
        if gradients is not NotImplemented:
            return ([*gradients, *[None] * (len(states) + len(words))],)
        # Backward may need nothing of forward but what that left in the worker: it reads an output, to follow it.
        reads_forward = bool(y[count:]) or any(v is not None for v in self.select_read(operands)[-count:])
        after = [] if reads_forward else [y[0]]
        gradients = self.gradient(operands, y[count:], arguments, needs_gradient, after)
        return ([*gradients, *[None] * (len(states) + len(words))],)

    def custom_gradients(self, operands: Sequence[Any]) -> Any:
        """The result of `input_gradients`, checked. operands: of backward."""
        read_operands, count = self.select_read(operands), self.form().outputs
        gradients = self.input_gradients(
            read_operands[:count], read_operands[count:-count], read_operands[-count:]
        )
        if gradients is NotImplemented:
            return gradients
        listed = list(gradients) if isinstance(gradients, list | tuple) else [gradients]
        names = self.form().arguments
        if len(listed) != len(names):
            raise TypeError(f"{self.name}: its gradient gave {len(listed)} results for {', '.join(names)}")
        for name, x, dx in zip(names, operands[count:-count], listed, strict=True):
            if dx is not None and (not hasattr(dx, "shape") or tuple(dx.shape) != tuple(x.shape)):
                shape = getattr(dx, "shape", type(dx).__name__)
                raise ShapeError(f"{self.name}: the gradient of {name} has shape {shape}, not {x.shape}")
        return listed

    def select_read(self, operands: Sequence[Any]) -> list[Any]:
        """Of backward's operands (outputs' gradients, arguments, outputs) those that it reads, None for the others."""
        numbers = set(self.backward_reads(range(len(operands))))
        return [v if k in numbers else None for k, v in enumerate(operands)]

    def gradient(
        self,
        operands: Sequence[Any],
        states: Sequence[Any],
        like: Sequence[Any],
        needs_gradient: Sequence[bool],
        after: Sequence[Any] = (),
    ) -> list[Any]:
        """The gradients of arguments, which are like these; None where none is needed. operands: of backward."""
        operands = self.select_read(operands)
        gradient = PythonGradient(
            of=self,
            given=tuple(v is not None for v in operands),
            wanted=tuple(needs_gradient),
            sizes=tuple(v.shape for v in like),
            types=tuple(v.dtype for v in like),
            training=True,
            after=len(after),
        )
        inputs = [*(v for v in operands if v is not None), *after, *states]
        results = iter(gradient(*inputs, *gradient.words(inputs)))
        return [next(results) if want else None for want in needs_gradient]


@op
class PythonGradient(PythonOp, public=False):
    """Backward of a PythonOp, the one in `of`: the gradients of its arguments that are wanted.

    Inputs: of outputs' gradients, arguments and outputs those that are given; arrays, `after` of them, that it does not
    read but has to wait for; states, as forward left them; words; the arrays that results are added to. sizes, types:
    the arguments'. added: of the results that are wanted, those that are added to what is there.
    """

    of: PythonOp
    given: tuple[bool, ...]
    wanted: tuple[bool, ...]
    sizes: tuple[tuple[int, ...], ...]
    types: tuple[DType, ...]
    after: int = 0
    added: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.of.name} gradient"

    def form(self) -> Form:
        names = [f"x{k}" for k in range(sum(self.given) + self.after)]
        return Form(names, self.of.form().states, sum(self.wanted), sum(self.wanted))

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return 0

    def writes_by_index(self, count: int) -> dict[int, int]:
        return {}  # in graphs; on arrays it may write states, as forward does

    def split(self, inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
        arguments, states, words = super().split(inputs)
        return arguments, states, words[: len(words) - len(self.added)]

    def added_inputs(self, count: int) -> tuple[tuple[int, int], ...]:
        return tuple((count - len(self.added) + k, j) for k, j in enumerate(self.added))

    def shared(self) -> Sequence[tuple[int, int]]:
        inputs, results = _numbers(self.given), _numbers(self.wanted)
        pairs = [(inputs.get(i), results.get(j)) for i, j in self.of.in_place(True)]
        return [(i, j) for i, j in pairs if i is not None and j is not None and j not in self.added]

    def without(self, unread: Sequence[int]) -> PythonGradient | None:
        """Raises nothing: what nothing reads is not requested ("null")."""
        if self.added:
            return None
        results = _numbers(self.wanted)
        wanted = tuple(want and results[k] not in unread for k, want in enumerate(self.wanted))
        return type(self)(**self.values() | {"wanted": wanted})

    def adding(self, output: int) -> PythonGradient | None:
        if output in self.added:
            return None
        return type(self)(**self.values() | {"added": (*self.added, output)})

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        if len(x) < sum(self.given) + self.after + len(self.of.form().states):
            raise TypeError(f"{self.name}: {len(x)} inputs do not fit {self.of!r}")
        device = x[0].device if x else cpu(0)
        results = zip(self.sizes, self.types, self.wanted, strict=True)
        return tuple(TensorType(shape, dtype, device) for shape, dtype, want in results if want)

    def resources(self, shapes: Sequence[Any], backward: bool) -> Sequence[str]:
        return self.of.resources(self.sizes, True)

    def worker(self, device: Device) -> _SharedWorker:
        return self.of.worker(device)

    def work(self, worker: Any, context: Context, x: Any, y: Any, states: Any, inputs: Sequence[Any]) -> None:
        values, results = iter(x), iter(y)
        operands = [next(values) if is_given else None for is_given in self.given]
        dx = [next(results) if want else None for want in self.wanted]
        requests = iter(["add" if k in self.added else _request(each, x) for k, each in enumerate(y)])
        req = [next(requests) if want else "null" for want in self.wanted]
        count = self.of.form().outputs
        worker.backward(context, operands[:count], operands[count:-count], operands[-count:], req, dx, states)

    def gradient(self, *_: Any, **__: Any) -> Any:
        name = self.of.name
        raise NotImplementedError(f"{name}: its gradient is a Python function and has no gradient itself")


class _SharedWorker:
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
        arguments, states, words = op.split(inputs)
        device = x[0].device if x else cpu(0)
        shared_worker = op.worker(device)

        def run(context: _core.RunContext) -> None:
            op.run(shared_worker, context, inputs, outputs)

        default_engine().push(
            run, device, [*arguments, *words], [*states, shared_worker.turn], outputs, name=op.label
        )
        if op.training:
            recorded = [_core.alias(each, keep_past=True) for each in op.split(x)[0]]  # it is no constant
            self.recorded_inputs = [*recorded, *words] if op.has_custom_vjp else []
            self.operands = op.select_read([*[None] * form.outputs, *recorded, *outputs])
            self.like = [value.type for value in op.split(operands)[0]]
            self.needs_gradient = [_core.is_tracked(each) for each in recorded]
            # Kept alive until backward, which gives no gradient for states and words.
            self.shared_worker, self.states, self.undifferentiated = (
                shared_worker,
                states,
                len(states) + len(words),
            )
            self.hidden = types[form.visible :]
        return outputs[: form.visible]

    def backward(self, *dy: Any) -> Any:
        cotangents = [*dy, *(zeros(t.shape, t.dtype, t.device) for t in self.hidden)]
        operands = [*cotangents, *self.operands[len(cotangents) :]]
        if (gradients := self.op.custom_gradients(self.with_history(operands))) is not NotImplemented:
            return *gradients, *[None] * self.undifferentiated
        return *self.op.gradient(operands, self.states, self.like, self.needs_gradient), *[
            None
        ] * self.undifferentiated

    def with_history(self, operands: list[Any]) -> list[Any]:
        """The operands, of which outputs have a history if a gradient that is recorded reads them."""
        count = self.op.form().outputs
        read_outputs = [k for k, y in enumerate(operands[-count:]) if y is not None]
        if not read_outputs or not _core.is_recording() or not self.op.has_custom_vjp:
            return operands
        if self.states or max(read_outputs) >= self.op.form().visible:
            raise NotImplementedError(
                f"{self.op.name}: a gradient of its gradient would run it again, and it has auxiliary states or reads "
                "a hidden output"
            )
        result = self.op(*self.recorded_inputs)
        listed = [result] if isinstance(result, Tensor) else list(result)
        return [*operands[:-count], *(listed[k] if k in read_outputs else None for k in range(count))]


def _is_array(x: Any) -> bool:
    """Whether it is an input of an operator."""
    return isinstance(x, Tensor) or hasattr(x, "__weft_apply__")


def _numbers(flags: Sequence[bool]) -> dict[int, int]:
    """Of those that are set, their number among these."""
    return {k: n for n, k in enumerate(k for k, flag in enumerate(flags) if flag)}


def _request(y: Any, inputs: Sequence[Any]) -> str:
    """What is wanted of a result: in graphs it may be one of the operands."""
    return "inplace" if any(y is x for x in inputs) else "write"


def _requested(kinds: Sequence[str], words: Sequence[Tensor], device: Device) -> tuple[Any, ...]:
    """The resources, of two random words for each that is random."""
    import numpy as np

    memory_device = cpu(0) if _core.hides_memory(device) else device

    def space(shape: Any, dtype: Any = "float32") -> Any:
        kind = np.dtype(as_dtype(dtype).numpy)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        memory: Any = alloc(math.prod(sizes) * kind.itemsize, memory_device)
        return np.ndarray(sizes, kind, buffer=memory)

    keys = iter(words)
    return tuple(
        space
        if kind == "temp_space"
        else np.random.Generator(np.random.Philox(key=next(keys).numpy().tolist()))
        for kind in kinds
    )
