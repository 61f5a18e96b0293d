"""Gradients of eager code: GradManager, grad, value_and_grad, no_grad, Function.

>>> import weft as wf
>>> x = wf.tensor([1., 2.])
>>> gm = wf.GradManager().attach([x])
>>> with gm:
...     loss = (x * x).sum()
...     gm.backward(loss)
>>> x.grad
tensor([2., 4.], dtype=float32, device=cpu:0)

Calls are recorded only while an input requires a gradient. The results own their record, so results that
are dropped free their history.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload
from weakref import ref

from weft import _core
from weft.arrays.tensor import Tensor, differentiated, keep_gradient, note_foreign_gradient
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.base.name_hints import add_name_hints, visible_names
from weft.base.structure import flatten
from weft.ops import registry
from weft.ops.node import Tracer, Value, traced
from weft.recording.dependence import changed, depends_on, state_of

if TYPE_CHECKING:
    from weft.base.typing import Returns

__all__ = ["Function", "GradManager", "grad", "no_grad", "value_and_grad"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Any)  # what a gradient is of; bound, so that a lambda may do anything with it
Hook = Callable[[Tensor, Tensor], "Tensor | None"]

# Of parameters, what every manager calls. By identity; a WeakKeyDictionary would compare tensors with ==, which
# compares their elements.
_hooks: dict[int, tuple[ref[Tensor], Hook]] = {}


class _HasParameters(Protocol):
    def parameters(self) -> Iterable[Tensor]: ...


class _Recordings:
    """How many managers and calls of grad a thread records with at present."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = 0


_of_thread = threading.local()


def recordings_here() -> _Recordings:
    """Of the calling thread."""
    recordings: _Recordings | None = getattr(_of_thread, "recordings", None)
    if recordings is None:
        recordings = _of_thread.recordings = _Recordings()
    return recordings


def gradients_of(tensors: Iterable[Tensor]) -> list[Any]:
    """The grad of each: a tensor, an array of another type, or None."""
    if _core.capture() is not None:
        return [x.grad for x in tensors]
    listed = list(tensors)
    if (recorder := _core.get_recorder()) is not None:
        for x in listed:
            recorder.gradient_read(x)
    gradients: list[Any] = _core.gradients(listed)
    if recorder is not None:
        for dx in gradients:
            note_foreign_gradient(recorder, dx)
    return gradients


def forget_gradients(tensors: Iterable[Tensor]) -> None:
    """None of them has a grad any more."""
    listed = list(tensors)
    if _core.capture() is not None:
        for x in listed:
            keep_gradient(x, None)
        return
    if (recorder := _core.get_recorder()) is not None:
        for x in listed:
            recorder.gradient_set(x)
    _core.forget_gradients(listed)


def set_hook(x: Tensor, hook: Hook | None) -> None:
    """Let every GradManager that x is attached to from now on call hook after its own callbacks; None: no longer."""
    key = id(x)
    if hook is None:
        _hooks.pop(key, None)
    else:
        _hooks[key] = (ref(x, lambda _, hooks=_hooks: hooks.pop(key, None)), hook)  # type: ignore[misc]


def _filled_like(x: Any, value: float) -> Any:
    from weft.arrays.creation import full_like

    is_recorded = isinstance(x, Value | Tracer)
    return registry.function("filled_like")(x, value=value) if is_recorded else full_like(x, value)


class GradManager:
    """Records what happens to tensors inside a ``with``, and adds the gradients to their ``grad``.

    attach tensors once, then use it again and again. backward also ends the recording of what it went through.
    Managers nest: gradients that an inner one computes are recorded for the outer one.

    >>> import weft as wf
    >>> w = wf.tensor([3.])
    >>> gm = GradManager()
    >>> _ = gm.attach([w])
    >>> with gm:
    ...     y = w * w * w
    ...     gm.backward(y)
    >>> w.grad.item()
    27.0
    """

    def __init__(self) -> None:
        self._watched: list[Tensor] = []
        self._callbacks: dict[int, list[Hook]] = {}
        self._leaves: dict[int, Any] | None = None
        self._recordings: _Recordings | None = None  # of the thread that records
        self._capture: Any = None  # that it records in; None: on arrays
        recorder = _core.get_recorder()
        self._created_in = None if recorder is None else ref(recorder)

    def attach(
        self,
        tensors: Tensor | Iterable[Tensor] | _HasParameters,
        callbacks: Hook | Sequence[Hook] | None = None,
    ) -> GradManager:
        """Want the gradients of these: a tensor, several, or the parameters of a module.

        callbacks run before a gradient is added: what callback(tensor, gradient) returns, unless None, takes its place.
        They are called as soon as a gradient is final, while others are still computed. A callback with a method
        finish() may put its work off: finish is called once after all gradients of a backward, also of one that
        raises, and returns pairs (tensor, gradient), whose gradients take the places of what the callback was given;
        None: the tensor gets none. Such callbacks come after the others. A method attached(tensor) is called here.

        Raises TypeError for anything else, DTypeError if one is not of a floating-point type.
        """
        listed = _tensors_of(tensors)
        hooks = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
        for x in listed:
            if type(x) is not Tensor:
                raise TypeError(f"attach: expected tensors, or one module, got {type(x).__name__}")
            if not x.dtype.is_differentiable:
                raise DTypeError(
                    f"attach: only floating-point tensors have gradients: x is {_core.describe(x)}"
                )
            if id(x) not in self._callbacks:
                self._watched.append(x)
                self._callbacks[id(x)] = [_hooks[id(x)][1]] if id(x) in _hooks else []
                if self._leaves is not None:
                    self._leaves[id(x)] = _watcher()(x)
            of_x = self._callbacks[id(x)]
            # What exchanges gradients comes last, whichever was known first.
            of_x[:] = sorted([*of_x, *hooks], key=lambda hook: hasattr(hook, "finish"))
            for hook in of_x:
                if (attached := getattr(hook, "attached", None)) is not None:
                    attached(x)
        changed()
        return self

    def __weft_state__(self) -> Any:
        """What programs depend on: the attached tensors, and their callbacks."""
        return state_of((self._watched, list(self._callbacks.values())))

    def attached_tensors(self) -> list[Tensor]:
        """The attached tensors."""
        return list(self._watched)

    def record(self) -> None:
        """Begin to record; ``with`` calls it. Raises RuntimeError if it records already."""
        if self._leaves is not None:
            raise RuntimeError("record: this GradManager records already")
        if self._created_in is None or self._created_in() is not _core.get_recorder():
            depends_on(self)  # one that each call makes is always the same
        self._capture = _core.capture()
        watch = _watcher()
        self._leaves = {id(x): watch(x) for x in self._watched}
        self._recordings = recordings_here()
        self._recordings.active += 1

    def release(self) -> None:
        """End recording; ``with`` calls it."""
        if self._leaves is None:
            return
        leaves, self._leaves = self._leaves, None
        if self._recordings is not None:
            self._recordings.active -= 1
        unwatch = _core.unwatch if self._capture is None else self._capture.unwatch
        for x in reversed(self._watched):
            unwatch(x, leaves[id(x)])
        self._capture = None

    def __repr__(self) -> str:
        state = ", recording" if self._leaves is not None else ""
        return f"GradManager({len(self._watched)} tensors attached{state})"

    def __enter__(self) -> GradManager:
        self.record()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def backward(
        self, y: Tensor | Sequence[Tensor], dy: Tensor | Sequence[Tensor | None] | None = None
    ) -> None:
        """Add the gradient of y with respect to every attached tensor to its ``grad``, then end recording.

        y: a tensor, or a list or tuple of them. dy: the gradient of what is to be minimised with respect to y, of y's
        shape; it is converted to y's dtype; by default 1 for every element.
        Raises RuntimeError outside of recording, TypeError if y or dy is anything else, ShapeError if dy does not have
        y's shape, DeviceError if it is on another device, ValueError if nothing of y was recorded, if a value that
        is needed was overwritten, or if there are not as many dy as y.
        """
        if self._leaves is None:
            raise RuntimeError(
                "backward: this GradManager does not record: it is called once, inside of its with statement; "
                "for several results give a list of them"
            )
        if self._capture is not _core.capture():
            raise GraphError(
                "backward: what is written down as a graph cannot end a recording that began outside"
            )
        ys = _listed("y", y)
        dys = [None] * len(ys) if dy is None else _listed("dy", dy)
        leaves, capture = self._leaves, self._capture
        if capture is None and self._watched and not any(map(_core.is_tracked, ys)):
            description = ", ".join(map(_core.describe, ys)) or "None"
            raise ValueError(
                f"backward: nothing of y was recorded: y is {description}\n"
                "  hint: compute it inside of the with, from attached tensors, by weft's functions"
            )
        nested = recordings_here().active > 1
        watched = self._watched
        hooks = {key: of_x for key, of_x in self._callbacks.items() if of_x}
        run = _Run(watched, hooks) if hooks else None
        # Gradients that are recorded in turn are what they are only once recording has ended.
        early = run.gradient if run is not None and capture is None and not nested else None
        tracked = [leaves[id(x)] for x in watched]
        try:
            try:
                gradients = backward_of(ys, dys, tracked, create_graph=nested, on_final=early)
            finally:
                self.release()
            if run is not None:
                for k, dx in enumerate(gradients):
                    if dx is not None:
                        run.gradient(k, dx)
        finally:
            if run is not None:
                run.finish()
        if run is not None:
            gradients = [run.final.get(id(x)) for x in watched]
        for x, dx, before in zip(watched, gradients, gradients_of(watched), strict=True):
            if dx is None:
                continue
            if before is not None:
                previous = before if capture is None else capture.lift(before)
                dx = _core.below_layers(registry.function("add"), previous, dx)
            keep_gradient(x, dx)


class _Run:
    """What callbacks make of the gradients of one backward. final: the gradients, by the id of their tensor."""

    def __init__(self, watched: Sequence[Tensor], hooks: dict[int, list[Hook]]) -> None:
        self.watched, self.hooks = watched, hooks
        self.final: dict[int, Tensor | None] = {}

    def gradient(self, k: int, dx: Tensor) -> None:
        """The gradient of the k-th tensor is final; only the first report counts."""
        x = self.watched[k]
        if id(x) in self.final:
            return
        for hook in self.hooks.get(id(x), ()):
            replaced = hook(x, dx)
            dx = dx if replaced is None else replaced
        self.final[id(x)] = dx

    def finish(self) -> None:
        """Let callbacks that put work off do it."""
        unique = {id(hook): hook for of_x in self.hooks.values() for hook in of_x}
        for hook in unique.values():
            finish = getattr(hook, "finish", None)
            if finish is not None:
                self.final.update((id(x), dx) for x, dx in finish())


def _tensors_of(tensors: Any) -> list[Any]:
    """A tensor, several, or a module's parameters."""
    if isinstance(tensors, Tensor):
        return [tensors]
    return list(tensors.parameters() if hasattr(tensors, "parameters") else tensors)


def _listed(name: str, tensors: Any) -> list[Any]:
    """A tensor, or the tensors of a list or tuple; in a list of gradients None is one, too."""
    if isinstance(tensors, Tensor | Value):
        return [tensors]
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            f"backward: {name} must be a Tensor, or a list or tuple of them, got {type(tensors).__name__}"
        )
    for x in tensors:
        if not isinstance(x, Tensor | Value) and not (name == "dy" and x is None):
            raise TypeError(f"backward: {name} holds {type(x).__name__}, expected tensors")
    return list(tensors)


def _watcher() -> Callable[[Any], Any]:
    """What makes a tensor a leaf."""
    capture = _core.capture()
    return _core.watch if capture is None else capture.watch


def backward_of(
    ys: Sequence[Tensor],
    dys: Sequence[Tensor | None],
    leaves: Sequence[Any],
    create_graph: bool,
    on_final: Callable[[int, Tensor], None] | None = None,
) -> list[Tensor | None]:
    """The gradients of leaves, None where they are zero; create_graph: they are recorded, too."""
    if len(ys) != len(dys):
        raise ValueError(f"backward: {len(ys)} values, but {len(dys)} gradients of them")
    for y, dy in zip(ys, dys, strict=True):
        if not isinstance(y, Tensor | Value) or not isinstance(dy, Tensor | Value | None):
            raise TypeError(f"backward: expected tensors, got {type(y).__name__} and {type(dy).__name__}")
        if dy is not None and dy.shape != y.shape:
            raise ShapeError(f"backward: y has shape {y.shape}, its gradient {dy.shape}")
        if dy is None and y.dtype.is_complex:
            raise DTypeError(
                f"backward: gradients start from real numbers, got {y.dtype}\n"
                "  hint: real(y) or abs(y) is one; or give dy"
            )
    dys = [
        dy if dy is None or dy.dtype is y.dtype else registry.function("cast")(dy, dtype=y.dtype)
        for y, dy in zip(ys, dys, strict=True)
    ]
    if (capture := _core.capture()) is not None:
        cotangents = [_filled_like(y, 1.0) if dy is None else dy for y, dy in zip(ys, dys, strict=True)]
        values: list[Any] = capture.gradients(ys, cotangents, leaves, create_graph)
        return values
    gradients: list[Tensor | None] = _core.backward(list(ys), list(dys), list(leaves), create_graph, on_final)
    return gradients


def recorded_backward(
    ys: Sequence[Tensor], dys: Sequence[Tensor | None], leaves: Sequence[Any]
) -> list[Tensor | None]:
    """The gradients of recorded results with respect to what _core.watch gave, None where they are zero everywhere."""
    return backward_of(
        [y for y in ys if _core.is_tracked(y)],
        [dy for y, dy in zip(ys, dys, strict=True) if _core.is_tracked(y)],
        leaves,
        create_graph=False,
    )


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # 0 is an int as well; the first that fits counts
    f: Callable[Concatenate[A, P], R], argnums: Literal[0] = 0, has_aux: bool = False
) -> Callable[Concatenate[Any, P], tuple[R, A]]: ...
@overload
def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int], has_aux: bool = False
) -> Callable[P, tuple[R, Any]]: ...
def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives f's value, one number, and its gradient with respect to the arguments argnums.

    Such an argument is an array or a number, or a dict, list or tuple of them, nested as needed; NumPy's arrays and
    Python's floats become Tensors, which f gets. The gradient has the same structure, and None for None and for arrays
    of integers and booleans. has_aux: f gives (value, anything); so does the result, as ((value, anything), gradient).
    Raises ShapeError if the value is not one element, TypeError or ValueError for argnums that name no positional
    argument, no arrays, or one twice, DTypeError for an argument without any floating-point array. Nests to any order.
    Inside of no_grad, and of what recompute runs first, the gradient is the same; the results have no history there.

    >>> import weft as wf
    >>> value, cotangent = value_and_grad(lambda x: x * x)(wf.tensor(3.))
    >>> value.item(), cotangent.item()
    (9.0, 6.0)
    >>> value_and_grad(lambda p: p["a"] * p["b"])({"a": 2., "b": wf.tensor(3.)})[1]["a"].item()
    3.0
    """
    if not callable(f):
        raise TypeError(
            f"grad: takes a function, got {type(f).__name__}; backward of a result is GradManager's"
        )

    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(isinstance(k, int) for k in numbers):
        raise TypeError(
            f"grad: argnums must be the index of a positional argument, or several, got {argnums!r}"
        )
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"grad: argnums names an argument twice: {argnums}")

    @functools.wraps(f)
    def compute(*args: Any, **kwargs: Any) -> Any:
        inner = list(args)
        if not all(-len(args) <= k < len(args) for k in numbers):
            raise TypeError(f"grad: argnums {argnums} of {len(args)} positional arguments")
        if len({k % len(args) for k in numbers}) < len(numbers):
            raise ValueError(f"grad: argnums {argnums} names an argument twice")
        is_outside = _core.is_recording()
        arguments = [_Argument(k, inner[k], keep_past=is_outside) for k in numbers]
        for k, argument in zip(numbers, arguments, strict=True):
            inner[k] = argument.value
        leaves = [leaf for argument in arguments for leaf in argument.leaves]
        recordings = recordings_here()
        recordings.active += 1
        before = _core.swap_recording_off(0)
        differentiated.depth += 1
        try:
            result = f(*inner, **kwargs)
            y = result[0] if has_aux else result
            is_array = isinstance(y, Tensor | Value)
            if not is_array or any(n != 1 for n in y.shape):
                raise ShapeError(
                    f"grad: the function must give one number, got {y.shape if is_array else y}\n"
                    "  hint: sum() or mean() makes one; jacobian differentiates several"
                )
            gradients = backward_of([y], [None], leaves, create_graph=is_outside and recordings.active > 1)
        finally:
            differentiated.depth -= 1
            _core.swap_recording_off(before)
            recordings.active -= 1
        if not is_outside:
            result = _without_history(result)
        remaining = iter(gradients)
        cotangents = [argument.gradient(remaining) for argument in arguments]
        return result, cotangents[0] if isinstance(argnums, int) else tuple(cotangents)

    return compute


class _Argument:
    """An argument of grad. value: what the function gets; leaves: by which its arrays' gradients are found."""

    __slots__ = ("_arrays", "_structure", "leaves", "value")

    def __init__(self, number: int, x: Any, keep_past: bool) -> None:
        parts, self._structure = flatten(x)
        converted = [_array_in(number, x, part) for part in parts]
        self._arrays = [part if _has_gradient(part) else None for part in converted]
        if all(part is None for part in self._arrays):
            found = ", ".join(_description(part) for part in converted if part is not None) or "no array"
            raise DTypeError(
                f"grad: only floating-point arrays have gradients: argument {number} holds {found}"
            )
        self.leaves = []
        for k, array in enumerate(self._arrays):
            if array is not None:
                converted[k], leaf = _new_leaf(array, keep_past)
                self.leaves.append(leaf)
        self.value = self._structure.build(converted)

    def gradient(self, gradients: Iterator[Any]) -> Any:
        """The next gradients, in the argument's structure; zeros for what has no influence on the value."""

        def of(array: Any) -> Any:
            dx = next(gradients)
            return _filled_like(array, 0.0) if dx is None else dx

        return self._structure.build([None if array is None else of(array) for array in self._arrays])


def _description(x: Any) -> str:
    return str(x.type) if isinstance(x, Value | Tracer) else str(_core.describe(x))


def _has_gradient(x: Any) -> bool:
    return x is not None and bool(x.dtype.is_differentiable)


def _array_in(number: int, argument: Any, x: Any) -> Any:
    """A part of an argument of grad as an array; None stays."""
    if x is None or isinstance(x, Tensor) or (isinstance(x, Value) and _core.capture() is not None):
        return x
    if isinstance(x, bool | int | float) or hasattr(x, "__array_interface__"):
        from weft.arrays.creation import asarray

        return asarray(x)
    inside = "" if x is argument else f" in a {type(argument).__name__}"
    hint = ""
    if hasattr(x, "functional_call"):
        hint = "\n  hint: give dict(module.named_parameters()) and call module.functional_call, or use a GradManager"
    raise TypeError(
        f"grad: argument {number} must be an array or a float, or a dict, list or tuple of them, "
        f"got {type(x).__name__}{inside}{hint}"
    )


def _without_history(result: Any) -> Any:
    """The same results without the history that the enclosing recording has of them."""
    leaves, structure = flatten(result)
    return structure.build(
        [_core.alias(x, keep_past=False) if type(x) is Tensor and _core.is_tracked(x) else x for x in leaves]
    )


def _new_leaf(x: Any, keep_past: bool = True) -> tuple[Any, Any]:
    """An alias of the array, and the leaf by which gradients with respect to it are found."""
    if (capture := _core.capture()) is not None:
        watched = capture.watched_alias(x)
        return traced(watched), watched
    alias = _core.alias(x, keep_past=keep_past)
    return alias, _core.watch(alias)


@overload
def grad(
    f: Callable[Concatenate[A, P], Any], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> Callable[Concatenate[Any, P], A]: ...
@overload
def grad(
    f: Callable[Concatenate[A, P], tuple[Any, R]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[Concatenate[Any, P], tuple[A, R]]: ...
@overload
def grad(f: Callable[P, Any], argnums: int | Sequence[int], has_aux: bool = False) -> Callable[P, Any]: ...
def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of f, whose value is one number, with respect to the arguments argnums.

    The gradient has the structure, shapes and dtypes of the argument; for several argnums it is a tuple of these.
    has_aux: f returns (value, aux), and the function (gradient, aux). Arguments and errors are value_and_grad's.

    >>> import weft as wf
    >>> cube = lambda x: x * x * x
    >>> grad(cube)(wf.tensor(2.)).item(), grad(grad(cube))(wf.tensor(2.)).item()
    (12.0, 12.0)
    """
    compute_both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def compute(*args: Any, **kwargs: Any) -> Any:
        result, cotangents = compute_both(*args, **kwargs)
        return (cotangents, result[1]) if has_aux else cotangents

    return compute


class no_grad(contextlib.ContextDecorator):  # its public name
    """Nothing is recorded inside; also a decorator.

    >>> import weft as wf
    >>> x = wf.tensor([1.])
    >>> gm = wf.GradManager().attach([x])
    >>> with gm, no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __enter__(self) -> None:
        _core.set_no_grad(True)

    def __exit__(self, *_: object) -> None:
        _core.set_no_grad(False)


class Function:
    """A function with a custom gradient: forward(*x) and backward(*dy), both on tensors.

    Call an instance with tensors, or with symbols; forward may keep what backward needs in self. backward returns a
    gradient for each tensor that forward was given, None for zero.

    >>> import weft as wf
    >>> class Double(Function):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def backward(self, dy):
    ...         return dy * 2
    >>> grad(lambda x: Double()(x))(wf.tensor(1.)).item()
    2.0
    """

    def forward(self, *x: Any) -> Any:
        """The value."""
        raise NotImplementedError(f"{type(self).__name__}: no forward")

    def backward(self, *dy: Any) -> Any:
        """The gradients of forward's tensors."""
        raise NotImplementedError(f"{type(self).__name__}: no backward")

    if TYPE_CHECKING:  # of any arguments, since symbols are taken as well; the result is forward's

        def __call__(self: Returns[R], *args: Any) -> R: ...

    else:

        def __call__(self, *args: Any) -> Any:
            symbol = next((x for x in args if hasattr(x, "__weft_control__")), None)
            if symbol is not None:
                return symbol.__weft_control__("function", self, *args)
            if _core.capture() is not None:
                return self._in_graph(args)
            recorder = None if _core.is_stopping() else active_recorder()
            mark = 0 if recorder is None else _core.last_serial()
            with no_grad():
                result = self.forward(*args)
            inputs = self._inputs(args)
            outputs = [result] if isinstance(result, Tensor) else list(result)
            # What is recorded after a graph break is differentiated as it runs.
            if recorder is not None and recorder.is_complete:
                from weft.gradients.custom_vjp import give_custom_vjp

                outputs = give_custom_vjp(recorder, self, inputs, outputs, mark)
            if _core.is_recording() and any(_core.is_tracked(x) for x in inputs):
                outputs = [_core.alias(y, keep_past=False, is_result=True) for y in outputs]
                _core.record_function(inputs, outputs, self.backward)
            elif not _core.is_recording() or _core.is_stopping():
                # An argument that forward gives back would bring its history along.
                outputs = [
                    _core.alias(y, keep_past=False) if any(y is x for x in inputs) else y for y in outputs
                ]
            return outputs[0] if isinstance(result, Tensor) else tuple(outputs)

    def _inputs(self, args: Sequence[Any]) -> list[Tensor]:
        """The tensors that backward gives gradients for, once forward has run."""
        return [x for x in args if isinstance(x, Tensor)]

    def _in_graph(self, args: Sequence[Any]) -> Any:
        """A call in a function that is being written down."""
        from weft.graph.custom_vjp import with_gradient

        here = _core.capture()
        xs = [here.lift(x) for x in args if isinstance(x, Tensor) or hasattr(x, "__weft_apply__")]
        with no_grad():
            result = self.forward(*args)
        ys = [here.lift(y) for y in (result if isinstance(result, tuple | list) else (result,))]
        outputs = traced(with_gradient(type(self).__name__, ys, xs, self.backward))
        return tuple(outputs) if isinstance(result, tuple | list) else outputs[0]


setattr(Function, "__dir__", visible_names)  # noqa: B010 - of the class and its subclasses
add_name_hints(Function, "Function")


def is_recorded() -> bool:
    """Whether this thread records for some gradient."""
    return recordings_here().active > 0


def active_recorder() -> Any:
    """The recorder of this thread whose program may be differentiated, or None."""
    recorder = _core.get_recorder()
    return recorder if recorder is not None and recorder.differentiable and not recorder.is_over else None
