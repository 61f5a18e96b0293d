"""Numbers among the arguments of a traced function, which stay inputs of the recorded program.

Arithmetic with them is computed again at each call. Where Python has to know something of one (a comparison, int(), its
value for math.sqrt, NumPy or json) that becomes part of what the trace was made for. Once the trace is written, those
that are still referenced somewhere are plain numbers.

They cannot be a subclass of float: C code reads the value of such an object where no method sees it, so a trace would
be frozen at its first value. Of an object that is not a float C code calls ``__float__``, which is seen.

>>> lr = TracedFloats([0.5]).numbers[0]
>>> (lr * 2 + 1).value
2.0
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable, Sequence

from weft import _core
from weft.base.typing import TYPE_CHECKING, Any

__all__ = ["TracedFloat", "TracedFloats", "compute_of", "is_same_number"]

Compute = Callable[[Sequence[float]], Any]


class TracedFloats:
    """The floats among a call's arguments, and what was computed from them. guards: (compute, value) that must hold."""

    def __init__(self, values: Sequence[float]) -> None:
        if values:
            _patch_json()
        self.values = list(values)
        self.computes: dict[int, Compute] = {}
        self.guards: list[tuple[Compute, Any]] = []
        self._created: list[TracedFloat] = []
        self.numbers = [self.make(value, operator.itemgetter(k)) for k, value in enumerate(values)]

    def make(self, value: Any, compute: Compute) -> TracedFloat:
        """A number that compute finds from the arguments."""
        origin = len(self.computes) + 1
        self.computes[origin] = compute
        self._created.append(TracedFloat(self, value, origin))
        return self._created[-1]

    def close(self) -> None:
        """The trace is written: numbers that are still referenced are what they are from now on."""
        for number in self._created:
            number.owner, number.origin = None, 0
        self._created.clear()


class TracedFloat:
    """One number: its value now, and its origin. owner: None once its trace is written."""

    __slots__ = ("__weakref__", "origin", "owner", "value")

    def __init__(self, owner: TracedFloats | None, value: Any, origin: int) -> None:
        self.owner, self.value, self.origin = owner, value, origin

    # isinstance() sees a float, as untraced code does; C code does not, so it reads the value with __float__.
    __class__ = property(lambda _: float)

    def learn(self, function: Callable[..., Any], *others: Any) -> Any:
        """function(value, *others), which from now on is part of what the trace is for."""
        result = function(self.value, *map(_value, others))
        if self.owner is not None:
            mine, theirs = compute_of(self), [compute_of(other) for other in others]
            guard = lambda values: function(mine(values), *(compute(values) for compute in theirs))  # noqa: E731
            self.owner.guards.append((guard, result))
        return result

    def settle(self) -> Any:
        """The value, which from now on is part of what the trace is for."""
        return self.learn(_value)

    def derive(self, function: Callable[..., Any], *operands: Any) -> Any:
        """function of operands, of which this number is one: a number that is computed again at each call."""
        result = function(*map(_value, operands))
        owner = next((x.owner for x in operands if type(x) is TracedFloat and x.owner is not None), None)
        if owner is None:
            return result
        computes = [compute_of(each) for each in operands]
        compute = lambda values: function(*(find(values) for find in computes))  # noqa: E731
        if isinstance(result, float | int):
            return owner.make(result, compute)
        owner.guards.append((compute, result))  # such as (-1.0) ** 0.5
        return result

    def __float__(self) -> float:
        return self.learn(float)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _is_number(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _is_number(other) else NotImplemented

    # Python's operators follow below the class.

    if TYPE_CHECKING:

        def _binary(self, other: Any) -> Any: ...

        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _binary

    @property
    def real(self) -> TracedFloat:
        return self

    @property
    def imag(self) -> float:
        return 0.0

    def conjugate(self) -> TracedFloat:
        """The number itself."""
        return self

    def __copy__(self) -> TracedFloat:
        return self

    def __deepcopy__(self, memo: Any) -> TracedFloat:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return float, (float(self),)

    # NumPy: arrays are made of the value, functions computed of it.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.settle(), dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        operands = [x.settle() if isinstance(x, TracedFloat) else x for x in inputs]
        return getattr(ufunc, method)(*operands, **kwargs)


def _value(number: Any) -> Any:
    return number.value if type(number) is TracedFloat else number


def compute_of(number: Any) -> Compute:
    """Finds the number from the arguments."""
    if type(number) is TracedFloat and number.owner is not None:
        return number.owner.computes[number.origin]
    value = _value(number)
    return lambda _: value


def is_same_number(a: Any, b: Any) -> bool:
    """Whether they cannot be distinguished: of one type, zeros of one sign, NaN like NaN.

    >>> is_same_number(0.0, -0.0), is_same_number(math.nan, math.nan), is_same_number(1, 1.0)
    (False, True, False)
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return bool(a == b)


def _derived(function: Callable[..., Any], reflected: bool = False) -> Any:
    def method(self: TracedFloat, *others: Any) -> Any:
        if not all(_is_number(other) for other in others):
            return NotImplemented
        return self.derive(function, *((*others, self) if reflected else (self, *others)))

    return method


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float)  # what TracedFloats claim to be, too


def _compared(function: Callable[..., Any]) -> Any:
    def method(self: TracedFloat, other: Any) -> Any:
        if not isinstance(other, numbers.Number):
            return NotImplemented
        return self.learn(function, other)

    return method


def _learned(function: Callable[..., Any]) -> Any:
    def method(self: TracedFloat, *others: Any) -> Any:
        return self.learn(function, *others)

    return method


for _name in ("neg", "pos", "abs"):
    setattr(TracedFloat, f"__{_name}__", _derived(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(TracedFloat, f"__{_name}__", _derived(getattr(operator, _name)))
    setattr(TracedFloat, f"__r{_name}__", _derived(getattr(operator, _name), reflected=True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(TracedFloat, f"__{_name}__", _compared(getattr(operator, _name)))
for _function in (
    float,
    int,
    bool,
    complex,
    math.trunc,
    math.floor,
    math.ceil,
    round,
    repr,
    str,
    format,
    hash,
):
    setattr(TracedFloat, f"__{_function.__name__}__", _learned(_function))
for _name in ("is_integer", "as_integer_ratio", "hex"):
    setattr(TracedFloat, _name, _learned(getattr(float, _name)))


@functools.cache
def _patch_json() -> None:
    """json's encoder recognizes floats by their C type, and calls ``default`` for anything else."""
    from json import JSONEncoder

    refuse = JSONEncoder.default

    @functools.wraps(refuse)
    def default(self: JSONEncoder, o: Any) -> Any:
        return float(o) if type(o) is TracedFloat else refuse(self, o)

    JSONEncoder.default = default  # type: ignore[method-assign]


_core.register(traced_float_type=lambda: TracedFloat)
