"""Derivatives of functions: vjp, jvp, linearize, jacobian, hessian.

>>> import weft as wf
>>> y, pull = wf.vjp(lambda x: x * x, wf.tensor([1., 2.]))
>>> wf.vmap(pull)(wf.eye(2))[0]
tensor([[2., 0.],
        [0., 4.]], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

from weft import _core
from weft.arrays.creation import asarray
from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.base.structure import Structure, flatten
from weft.graph.capture import type_of
from weft.graph.gradient import gradients
from weft.graph.graph import Graph
from weft.graph.split import split
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value, input_value, make_node
from weft.ops.types import TensorType
from weft.recording.recorded_function import is_array, materialized
from weft.transform.batching import Batch
from weft.transform.forward import tangents as tangents_of
from weft.transform.transformed import CapturedFunction, DerivedProgram, Transformed, stored

__all__ = ["hessian", "jacobian", "jvp", "linearize", "vjp"]

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")


class _Linear:
    """What is computed of a function when its gradients or tangents come, of residuals and of these.

    structure, types: of the gradients or tangents, of which only floats are read. build: the result from the program's
    outputs.
    """

    def __init__(
        self,
        program: DerivedProgram,
        structure: Structure,
        types: Sequence[TensorType],
        build: Callable[[Sequence[Any]], Any],
    ) -> None:
        self.program, self._structure, self._types, self._build = program, structure, list(types), build

    @property
    def name(self) -> str:
        return self.program.name

    def __call__(self, residuals: Sequence[Any], operands: Any) -> Any:
        """The result for what has come. Raises TypeError or ShapeError for what does not fit."""
        cotangents, structure = flatten(operands)
        if structure != self._structure:
            raise TypeError(f"{self.name}: expected the structure {self._structure}, got {structure}")
        fitted = [_fitted(self.name, s, t) for s, t in zip(cotangents, self._types, strict=True)]
        return self._build(self.program([*residuals, *(s for s in fitted if s is not None)]))


class _AtPoint:
    """The linear function that vjp or linearize gives: of the gradient of the result, or of the arguments' tangents."""

    def __init__(self, later: _Linear, residuals: Sequence[Any]) -> None:
        self._later, self._residuals = later, residuals
        self._versions = [_version(x) for x in residuals]

    def __call__(self, *operands: Any) -> Any:
        if [_version(x) for x in self._residuals] != self._versions:
            raise ValueError(
                f"{self._later.name}: an array that is needed was overwritten since the function was called"
            )
        return self._later(self._residuals, operands)

    def __repr__(self) -> str:
        return f"<{self._later.name}>"


def _version(x: Any) -> int:
    """How often the memory of an array was written, or is in the functions that are being written down."""
    capture = _core.capture()
    written = 0 if capture is None else capture.count_writes(x)
    return written + (int(_core.write_count(x)) if type(x) is _core.Tensor else 0)


def _differentiable(t: TensorType) -> bool:
    return t.dtype.is_differentiable and not t.weak


def _converted(x: Any) -> Any:
    """Numbers and other libraries' arrays as arrays, anything else as it is."""
    is_convertible = isinstance(x, bool | int | float) or hasattr(x, "__array_interface__")
    return asarray(x) if is_convertible and not is_array(x) else x


def _fitted(name: str, s: Any, t: TensorType) -> Any:
    """A gradient or a tangent in the type that it must have; None where it is of an integer."""
    if not _differentiable(t):
        return None
    if isinstance(s, bool | int | float):
        s = asarray(s, dtype=t.dtype)
    s = _converted(s)
    if not is_array(s):
        raise TypeError(f"{name}: expected an array of type {t}, got {type(s).__name__}")
    if not s.dtype.is_differentiable:
        raise DTypeError(f"{name}: dtypes differ: expected {t}, got {type_of(s)}")
    if tuple(s.shape) != tuple(t.shape):
        raise ShapeError(f"{name}: shapes differ: expected {t}, got {type_of(s)}")
    return s if s.dtype is t.dtype else F.cast(s, dtype=t.dtype)


def _primals(name: str, args: Any) -> tuple[Any, ...]:
    """The arguments with arrays for numbers. Raises TypeError for anything else."""
    if not isinstance(args, tuple | list):
        raise TypeError(f"{name}: arguments must be given as a tuple, got {type(args).__name__}")
    leaves, structure = flatten(tuple(args))
    arrays = [_converted(x) for x in leaves]
    for x in arrays:
        if not is_array(x):
            raise TypeError(
                f"{name}: arguments must be arrays, or structures of them, got {type(x).__name__}"
            )
    primals: tuple[Any, ...] = structure.build(arrays)
    return primals


def _zeros(t: TensorType) -> Any:
    full = registry.get("full")(shape=t.shape, dtype=t.dtype, device=t.device)
    return make_node(full, ()).outputs[0]


def _dense(values: Sequence[Any], like: Sequence[Value]) -> list[Any]:
    """The values, zeros where there is none."""
    return [_zeros(x.type) if v is None else materialized(v) for v, x in zip(values, like, strict=True)]


class _Parts:
    """A function in two programs: what is computed at once, and what is computed of residuals later.

    later: values of the function's graph and of `later_inputs`. The first program ends with the residuals that it
    makes; `kept` are the indices of its operands that are residuals, too.
    """

    def __init__(
        self, name: str, function: CapturedFunction, later: Sequence[Any], later_inputs: Sequence[Value]
    ) -> None:
        inputs = [*function.inputs, *function.extra]
        results = [*function.ys, *function.extra_outputs]
        overwritten = [inputs[k] for k in function.written_inputs]
        overwritten += [function.extra[k] for k in function.written_captures]
        saved, second = split(results, later, overwritten)
        later_nodes = set(Graph([], second).nodes)
        self.kept = [k for k, v in enumerate(inputs) if v.node in later_nodes]
        self.first = DerivedProgram(name, Graph(inputs, [*results, *saved.values()]))
        self.second = DerivedProgram(
            name, Graph([*saved, *(inputs[k] for k in self.kept), *later_inputs], second)
        )


def _at_point(
    function: CapturedFunction,
    parts: _Parts,
    operands: Sequence[Any],
    has_aux: bool,
    later: _Linear,
) -> Any:
    """(y, the linear function), and the second result where there is one. operands: the leaves of the arguments."""
    operands = [*operands, *function.captures]
    outputs = parts.first(operands)
    count, end = len(function.ys), len(function.ys) + len(function.extra_outputs)
    aux = function.finish(outputs[count:end])
    y = function.build(outputs[:count])
    push = _AtPoint(later, [*outputs[end:], *(operands[k] for k in parts.kept)])
    return (y, push, aux) if has_aux else (y, push)


@overload
def vjp(
    f: Callable[..., R], *x: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    f: Callable[..., tuple[R, Aux]], *x: Any, has_aux: Literal[True]
) -> tuple[R, Callable[[Any], tuple[Any, ...]], Aux]: ...
def vjp(f: Callable[..., Any], *x: Any, has_aux: bool = False) -> Any:
    """(y, pull): f(*x), and the function from a gradient of y to the gradients of all of x, a tuple.

    x: arrays, or structures of them; y: an array or a structure. pull takes dy, of y's structure and shapes; it gives
    zeros for what y does not depend on, and None for integers. It may be called any number of times, also under vmap.
    has_aux: f gives (y, anything), and so (y, pull, anything) is given.
    Raises TypeError for arguments that are not arrays. pull raises TypeError, ShapeError or DTypeError for a dy that
    does not fit, and ValueError if an array that it reads was written in the meantime.
    Source: JAX's vjp.

    >>> import weft as wf
    >>> y, pull = wf.vjp(lambda a, b: a * b, wf.tensor([1., 2.]), wf.tensor([3., 4.]))
    >>> pull(wf.tensor([1., 0.]))[0]
    tensor([3., 0.], dtype=float32, device=cpu:0)
    """

    args = _primals("vjp", x)
    leaves, structure = flatten((args, {}))
    function = CapturedFunction("vjp", f, leaves, structure, [type_of(x) for x in leaves], has_aux)
    floats = [_differentiable(v.type) for v in function.inputs]

    def make() -> _Parts:
        ys = [y for y in function.ys if _differentiable(y.type)]
        dys = [input_value(y.type) for y in ys]
        xs = [v for v in function.inputs if _differentiable(v.type)]
        return _Parts("vjp", function, _dense(gradients(ys, xs, dys), xs), dys)

    shape = flatten(args)[1]

    def build(arrays: Sequence[Any]) -> Any:
        cotangents = iter(arrays)
        return shape.build([next(cotangents) if flag else None for flag in floats])

    parts = stored(("vjp", function.key), make)
    structure_of_dy = flatten((function.build(function.ys),))[1]
    later = _Linear(parts.second, structure_of_dy, [y.type for y in function.ys], build)
    return _at_point(function, parts, leaves, has_aux, later)


@overload
def linearize(
    f: Callable[..., R], *x: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    f: Callable[..., tuple[R, Aux]], *x: Any, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Aux]: ...
def linearize(f: Callable[..., Any], *x: Any, has_aux: bool = False) -> Any:
    """(y, push): f(*x), and the function from tangents of x to the tangent of y: jvp for many tangents at one point.

    x: arrays, or structures of them; push takes a tangent for each. has_aux: f gives (y, anything), and so
    (y, push, anything) is given. Raises as vjp does.
    Source: JAX's linearize.

    >>> import weft as wf
    >>> y, push = wf.linearize(lambda x: x * x, wf.tensor([1., 2.]))
    >>> push(wf.tensor([1., 1.]))
    tensor([2., 4.], dtype=float32, device=cpu:0)
    """

    args = _primals("linearize", x)
    leaves, structure = flatten((args, {}))
    function = CapturedFunction("linearize", f, leaves, structure, [type_of(x) for x in leaves], has_aux)

    def make() -> _Parts:
        dxs, dys = _tangents(function)
        return _Parts("linearize", function, dys, [dx for dx in dxs if dx is not None])

    parts = stored(("linearize", function.key), make)
    later = _Linear(parts.second, flatten(args)[1], [v.type for v in function.inputs], function.build)
    return _at_point(function, parts, leaves, has_aux, later)


def _tangents(function: CapturedFunction) -> tuple[list[Any], list[Any]]:
    """Inputs for the tangents of a function's inputs, None for those of integers, and the tangents of its results."""
    dxs = [input_value(v.type) if _differentiable(v.type) else None for v in function.inputs]
    return dxs, _dense(tangents_of(function.ys, function.inputs, dxs), function.ys)


@overload
def jvp(
    f: Callable[..., R], primals: Any, tangents: Any, *, has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, Aux]], primals: Any, tangents: Any, *, has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
def jvp(f: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False) -> Any:
    """(y, dy): f(*primals), and its derivative along the tangents.

    primals: a tuple of arrays, or of structures of them; tangents: one of the same structure, shapes and dtypes; those
    of integers are not read, and may be None. dy has y's structure. has_aux: f gives (y, anything), and so
    (y, dy, anything) is given. The derivative of a Function is that of its backward, which must have a gradient itself.
    Raises TypeError, ShapeError or DTypeError where tangents do not fit primals.
    Source: JAX's jvp, which refuses functions with a custom vjp.

    >>> import weft as wf
    >>> y, dy = wf.jvp(wf.sin, (wf.tensor(0.),), (wf.tensor(2.),))
    >>> y.item(), dy.item()
    (0.0, 2.0)
    """

    args = _primals("jvp", primals)
    if not isinstance(tangents, tuple | list):
        raise TypeError(f"jvp: tangents must be given as a tuple, got {type(tangents).__name__}")
    leaves, structure = flatten(args)
    dots, shape = flatten(tuple(tangents))
    if shape != structure:
        raise TypeError(f"jvp: primals have the structure {structure}, tangents {shape}")
    dots = [_fitted("jvp", s, type_of(x)) for s, x in zip(dots, leaves, strict=True)]
    types = [type_of(x) for x in leaves]
    function = CapturedFunction("jvp", f, leaves, flatten((args, {}))[1], types, has_aux)

    def make() -> DerivedProgram:
        dxs, dys = _tangents(function)
        inputs = [*function.inputs, *(dx for dx in dxs if dx is not None), *function.extra]
        return DerivedProgram("jvp", Graph(inputs, [*function.ys, *dys, *function.extra_outputs]))

    program = stored(("jvp", function.key), make)
    outputs = program([*leaves, *(s for s in dots if s is not None), *function.captures])
    count = len(function.ys)
    aux = function.finish(outputs[2 * count :])
    pair = function.build(outputs[:count]), function.build(outputs[count : 2 * count])
    return (*pair, aux) if has_aux else pair


def jacobian(
    f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, *, mode: str | None = None
) -> Transformed[P, Any]:
    """A function that gives all derivatives of f's result with respect to the arguments argnums.

    Of an array y with respect to an array x they are an array of shape (*y.shape, *x.shape). For structures: y's
    structure with, in the place of each array, the structure of the argument; a tuple of these if argnums is one.
    mode: "reverse", one gradient for each element of y, or "forward", one tangent for each element of x, all of them in
    one program. None: the one that takes fewer. has_aux: f gives (y, anything); so does the result, as
    (derivatives, anything).
    Raises ValueError for another mode and for argnums that name no positional argument, or one twice; TypeError for
    what is not an array, DTypeError for integers.
    Source: JAX's jacrev and jacfwd.

    >>> import weft as wf
    >>> wf.jacobian(lambda x: x * x)(wf.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]], dtype=float32, device=cpu:0)
    """
    if mode not in (None, "reverse", "forward"):
        raise ValueError(f"jacobian: mode must be 'reverse', 'forward' or None, got {mode!r}")
    if not callable(f):
        raise TypeError(f"jacobian: takes a function, got {type(f).__name__}")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def run(*args: Any, **kwargs: Any) -> Any:
        positions = _positions("jacobian", numbers, len(args))
        leaves, structure = flatten((args, kwargs))
        types = [type_of(x) if is_array(x) else None for x in leaves]
        function = CapturedFunction("jacobian", f, leaves, structure, types, has_aux)
        arrays = [x for x in leaves if is_array(x)]
        inputs = iter(function.inputs)
        values = [None if t is None else next(inputs) for t in types]
        shapes = [flatten(x)[1] for x in args]
        begins = [sum(shape.count() for shape in shapes[:k]) for k in range(len(args))]
        indices = [begins[k] + j for k in positions for j in range(shapes[k].count())]
        selected = [values[k] for k in indices]
        for v in (*selected, *function.ys):
            if v is None:
                raise TypeError("jacobian: arguments must be arrays, or structures of them")
            if not _differentiable(v.type):
                raise DTypeError(f"jacobian: takes functions from floats to floats, got {v.type}")

        def make() -> DerivedProgram:
            blocks = _blocks(function, selected, mode)
            graph = Graph([*function.inputs, *function.extra], [*blocks, *function.extra_outputs])
            return DerivedProgram("jacobian", graph)

        # Which of the inputs are selected: those before them may be numbers, which are none.
        selected_inputs = tuple(function.inputs.index(v) for v in selected if v is not None)
        program = stored(("jacobian", function.key, selected_inputs, mode), make)
        outputs = program([*arrays, *function.captures])
        aux = function.finish(outputs[len(selected) * len(function.ys) :])
        rows = [outputs[k * len(selected) : (k + 1) * len(selected)] for k in range(len(function.ys))]

        def row(blocks: Sequence[Any]) -> Any:
            remaining = iter(blocks)
            built = [shapes[k].build(remaining) for k in positions]
            return built[0] if isinstance(argnums, int) else tuple(built)

        derivatives = function.build([row(blocks) for blocks in rows])
        return (derivatives, aux) if has_aux else derivatives

    return Transformed("jacobian", f, run)


def _positions(name: str, numbers: Sequence[int], count: int) -> list[int]:
    """argnums, counted from the first."""
    if not all(-count <= k < count for k in numbers):
        raise ValueError(f"{name}: argnums {tuple(numbers)} of {count} positional arguments")
    positions = [k % count for k in numbers]
    if len(set(positions)) < len(positions):
        raise ValueError(f"{name}: argnums names an argument twice: {tuple(numbers)}")
    return positions


def _blocks(function: CapturedFunction, xs: Sequence[Any], mode: str | None) -> list[Any]:
    """The derivatives of each result with respect to each of xs, those of the first result first."""
    ys = function.ys
    reverse = sum(y.size for y in ys) <= sum(x.size for x in xs) if mode is None else mode == "reverse"
    blocks: dict[tuple[int, int], Any] = {}
    for k, seed in enumerate(ys if reverse else xs):
        cotangent = input_value(seed.type)
        parts_of_seed = (
            gradients([seed], xs, [cotangent]) if reverse else tangents_of(ys, [seed], [cotangent])
        )
        dense = _dense(parts_of_seed, xs if reverse else ys)
        # Only the seed differs from example to example, so what it meets is computed once.
        batch, graph = Batch(seed.size), Graph([cotangent], dense)
        is_one = seed.size == 1
        basis = F.filled_like(seed, value=1.0) if is_one else _basis(seed.type)
        parts = batch.run(graph, [basis], [not is_one])
        for j, (value, is_batched) in enumerate(parts):
            rows = batch.spread(value, is_batched)
            if reverse:
                blocks[k, j] = F.reshape(rows, shape=(*seed.shape, *xs[j].shape))
            else:
                columns = F.moveaxis(rows, source=0, destination=-1) if rows.ndim > 1 else rows
                blocks[j, k] = F.reshape(columns, shape=(*ys[j].shape, *seed.shape))
    return [blocks[k, j] for k in range(len(ys)) for j in range(len(xs))]


def _basis(t: TensorType) -> Any:
    """For each element of an array, the array that is 1 there and else 0."""
    row = make_node(registry.get("stepped")(shape=(t.size,), dtype=int64, device=t.device), ()).outputs[0]
    return F.reshape(F.cast(F.one_hot(row, num_classes=t.size), dtype=t.dtype), shape=(t.size, *t.shape))


def hessian(
    f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Transformed[P, Any]:
    """A function that gives all second derivatives of f's result with respect to the arguments argnums.

    It is the forward jacobian of the reverse one; of a number with respect to x: an array of shape
    (*x.shape, *x.shape).
    Structures and errors are those of jacobian, twice.
    Source: JAX's hessian.

    >>> import weft as wf
    >>> wf.hessian(lambda x: (x * x * x).sum())(wf.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float32, device=cpu:0)
    """
    return jacobian(jacobian(f, argnums, has_aux, mode="reverse"), argnums, has_aux, mode="forward")
