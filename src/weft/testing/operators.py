"""check_operator: everything that follows from an operator's class, checked on its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.dtype import as_dtype
from weft.gradients.transformation import Transformation
from weft.ops import registry
from weft.ops.op import Op, differentiable
from weft.ops.samples import Array, Sample
from weft.testing.close import assert_close
from weft.testing.gradients import check_gradient
from weft.traces.trace import trace

__all__ = ["check_operator"]

DTYPES = ("float32",)


def check_operator(
    cls: type[Op] | str,
    *,
    samples: Iterable[Sample] | None = None,
    reference: Callable[..., Any] | None = None,
    order: int = 1,
) -> int:
    """Check an operator on samples; returns how many calls were checked.

    samples: weft.ops.samples.Sample objects, by default those of the class's `samples`. reference: a function of the
    operator, which has the attributes, and of NumPy arrays, that gives the value; by default the class's `reference`.
    Without one the value is not compared.

    For each sample: the value is that of the reference, shape and dtype are what `infer` says, a traced function gives
    the same bits, and, where it is differentiable, gradients are those of differences in float64; order=2: second
    ones, too.
    Raises AssertionError that names the sample, ValueError if there are no samples or the class is not registered.

    >>> from weft.ops.samples import Sample, arrays
    >>> calls = [Sample(arrays((2, 3))), Sample(arrays((4,)), axis=0, dtypes=("float32", "float64"))]
    >>> check_operator("log_softmax", samples=calls, order=2)
    3
    """
    op: Any = registry.get(cls) if isinstance(cls, str) else cls
    if not (isinstance(op, type) and issubclass(op, Op) and op.registered):
        raise ValueError(f"check_operator: takes a registered operator or its name, got {cls!r}")
    checked = 0
    if reference is None and op.reference is not Op.reference:
        reference = op.reference
    for number, sample in enumerate(op.samples() if samples is None else samples):
        for dtype in sample.dtypes or DTYPES:
            random = np.random.default_rng(number)
            operands = [_operand(each, dtype, random) for each in sample.operands]
            try:
                _check(op, sample, operands, reference, order)
            except AssertionError as problem:
                raise AssertionError(f"check_operator: {op.name}, {sample!r}, {dtype}: {problem}") from None
            checked += 1
    if not checked:
        raise ValueError(
            f"check_operator: {op.name} has no samples; give samples=[Sample(...), ...], or the class a samples()"
        )
    return checked


class _CallRecording(Transformation):
    """Records calls: the operator with its attributes, and its inputs."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __enter__(self) -> _CallRecording:
        super().__enter__()
        return self

    def emit(self, op: Any, args: tuple[Any, ...]) -> Any:
        self.calls.append((op, args))
        return op(*args)


def _operand(operand: Any, dtype: str, random: Any) -> Any:
    if isinstance(operand, list | tuple):
        return [_operand(each, dtype, random) for each in operand]
    if not isinstance(operand, Array):
        return operand
    kind = as_dtype(operand.dtype or dtype)
    if operand.values is not None:
        return asarray(np.asarray(operand.values).astype(kind.numpy))
    size = int(np.prod(operand.shape))
    if operand.distinct:
        step = (operand.high - operand.low) / max(size, 1)  # nor are those of two operands the same
        values = operand.low + step * (random.permutation(size) + random.uniform())
    else:
        values = random.uniform(operand.low, operand.high, size)
    return asarray(np.asarray(values).reshape(operand.shape).astype(kind.numpy))


def _check(
    op: Any, sample: Sample, operands: list[Any], reference: Callable[..., Any] | None, order: int
) -> None:
    function = registry.function(op.name)

    def call(*arrays: Any) -> Any:
        return function(*arrays, **sample.attributes)

    with _CallRecording() as recording:
        result = call(*operands)
    outputs = result if isinstance(result, tuple) else (result,)
    bound_op, inputs = recording.calls[0]
    if reference is not None and not op.random:
        operands_of_reference = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
        expected = reference(bound_op, *operands_of_reference)
        for y, w in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=False):
            rtol, atol = (1e-2, 1e-2) if y.dtype.itemsize == 2 else (2e-5 * sample.tolerance,) * 2
            assert_close(y, np.asarray(w), rtol=rtol, atol=atol, equal_nan=True)
    if not op.random and not bound_op.writes_by_index(len(inputs)):
        traced_function = trace(call)
        traced_function(*operands)
        traced = traced_function(*operands)
        for y, t in zip(outputs, traced if isinstance(traced, tuple) else (traced,), strict=True):
            assert_close(t, y, rtol=1e-6, atol=1e-6, equal_nan=True)
    floats = [x for x in operands if isinstance(x, Tensor) and x.dtype.is_differentiable]
    is_smooth = differentiable(op) and sample.gradient and not op.random
    if is_smooth and floats and any(y.dtype.is_differentiable for y in outputs):
        check_gradient(call, *operands, order=order, rtol=1e-3 * sample.tolerance, atol=1e-5)
