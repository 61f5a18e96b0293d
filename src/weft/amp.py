"""Automatic mixed precision: products in a half type, sums and parameters in float32.

>>> import weft as wf
>>> x, w = wf.ones((2, 4)), wf.ones((3, 4))
>>> with wf.amp.autocast(dtype="bfloat16"):
...     y = wf.linear(x, w)
...     loss = wf.mean(y)
>>> y.dtype, loss.dtype
(bfloat16, float32)
"""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import ref

from weft import _core
from weft.base.dtype import DType, as_dtype, float32
from weft.imperative.transformation import Transformation
from weft.ops import registry
from weft.ops.op import Op

__all__ = ["FULL", "HALF", "autocast"]

# Families of operators (Op.family). Products are what half types make fast, and kernels add them up in float32.
HALF = frozenset({"matrix", "convolution", "attention", "recurrent"})
# One number stands for many elements here: a half type would keep three digits of it. Normalizations need no place:
# their kernels compute in float32 whatever x is, and parameters and statistics stay what they are.
FULL = frozenset({"reduction", "loss"})


class autocast(Transformation):  # its public name
    """Inside, float32 operands of products become `dtype`; half ones of reductions and losses become float32.

    dtype: "bfloat16" or "float16". enabled=False: nothing is converted, also where this stands inside of another one.
    Other operators take what comes, by the rules of promotion; float64 is never touched, nor are inputs that an
    operator writes. What a float32 tensor was converted to is kept as long as the tensor and the context last, and is
    made anew after a write to it. Gradients have the types of what they belong to: those of weights are float32.
    Raises ValueError for another dtype.

    >>> import weft as wf
    >>> @wf.amp.autocast()
    ... def model(x, w):
    ...     return wf.relu(x @ w)
    >>> x, w = wf.ones((2, 3)), wf.ones((3, 3))
    >>> model(x, w).dtype, wf.grad(lambda w: wf.sum(model(x, w)))(w).dtype
    (bfloat16, float32)
    """

    kind: ClassVar[str] = "amp"
    only_one: ClassVar[bool] = True

    def __init__(self, dtype: DType | str = "bfloat16", enabled: bool = True) -> None:
        self.dtype, self.enabled = as_dtype(dtype), enabled
        if not _is_half(self.dtype):
            raise ValueError(f"autocast: dtype must be bfloat16 or float16, got {self.dtype}")
        self._made: dict[int, tuple[Any, Any, Any]] = {}  # by id: the tensor, its state, what it became

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        types = [getattr(x, "dtype", None) for x in args]
        if not self.enabled or any(t is not None and t.kind == "float" and t.itemsize > 4 for t in types):
            return op(*args)
        wanted = self.dtype if op.family in HALF else float32 if op.family in FULL else None
        if wanted is None:
            return op(*args)
        written = op.written(len(args))
        return op(
            *(
                self._convert(x, wanted)
                if t is not None and t.kind == "float" and t is not wanted and k not in written
                else x
                for k, (x, t) in enumerate(zip(args, types, strict=True))
            )
        )

    def trace_key(self) -> Any:
        return (type(self), self.dtype, self.enabled)

    def _convert(self, x: Any, dtype: DType) -> Any:
        cast = registry.function("cast")
        # What is written down has to show where its arrays come from.
        if not isinstance(x, _core.Tensor) or dtype is float32 or _core.get_scribe() is not None:
            return cast(x, dtype=dtype)
        state = _core.state_of(x)
        known = self._made.get(id(x))
        if known is not None and known[0]() is x and known[1] == state:
            return known[2]
        made = cast(x, dtype=dtype)
        key, kept = id(x), self._made
        kept[key] = (ref(x, lambda _: kept.pop(key, None)), state, made)
        return made

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._made.clear()


def _is_half(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.itemsize == 2
