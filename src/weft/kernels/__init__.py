"""Kernels of operators, apart from their meaning: registered for a kind of device, tried in order.

An operator's class (weft.ops) says what it means; its loops and views follow from that on every device. What is
quicker on one kind of device is registered here, in ``weft/kernels/KIND/FAMILY.py`` for the operators of
``weft/ops/FAMILY.py``, which is imported when one of them is planned for such a device for the first time:

    @kernel(Argsort)
    def argsort(op, x):
        yield Native(lambda *_: _core.kernel_sort(...), exact=False)

A registered function is called with the operator and the types of its inputs, None for a missing one, and yields
choices of weft.ops.kernels, best first; where it yields none, the next one is tried, and at last the operator itself. A
Native choice declares what it needs: layouts of its operands, what it may overwrite, parameters, packed operands.

>>> from weft.base.dtype import float32
>>> from weft.ops.registry import get
>>> from weft.ops.types import TensorType
>>> x = TensorType((3, 4), float32)
>>> [type(choice).__name__ for choice in choices(get("sort")(), [x])]
['Native']
>>> [type(choice).__name__ for choice in choices(get("exp")(), [x])]
['Loop']
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence

from weft.base.device import Device
from weft.base.record import Record
from weft.base.typing import Any
from weft.ops import registry
from weft.ops.node import Node
from weft.ops.op import Op, set_declared_residuals
from weft.ops.sizes import are_guarded
from weft.ops.types import TensorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "Registered",
    "choices",
    "first_choice",
    "kernel",
    "left_out",
    "loop_kernel",
    "registered",
    "residuals",
    "without",
]

OPERATORS = "weft.ops."


class Registered(Record):
    """One entry: offers(op, *types) gives choices; provider: the library or the code that runs; when: see `kernel`."""

    offers: Callable[..., Any]
    provider: str
    when: Callable[..., bool] | None = None
    storages: tuple[str, ...] = ("dense",)


_TABLE: dict[tuple[type[Op], str], list[Registered]] = {}
_RESIDUALS: dict[tuple[type[Op], str], Callable[..., Sequence[TensorType]]] = {}
LOOPS: dict[str, Callable[[Any], Any]] = {}  # of kinds of devices that do not run the processor's code
_LOADED: set[tuple[str, str]] = set()  # (kind of device, module of operators) whose kernels are in the table
_LEFT_OUT = threading.local()  # names: the providers that `without` leaves out in this thread
_FAMILIES: dict[str, frozenset[str]] = {}  # kind of device -> the modules that there are


def kernel(
    cls: type[Op],
    *,
    device: str = "cpu",
    provider: str = "native",
    when: Callable[..., bool] | None = None,
    storages: tuple[str, ...] = ("dense",),
) -> Callable[[F], F]:
    """Function decorator: registers what offers kernels of an operator on a kind of device, behind those there are.

    when(op, *types): whether it may be tried; without it, always. Kernels of a class are those of its subclasses, too,
    unless these have their own. storages: of inputs, all of which have one of these.
    Raises TypeError if cls is not a class of operators.

    >>> from weft.ops.registry import get
    >>> kernel(get("sort"), device="example")(lambda op, x: ()) is not None
    True
    >>> _ = _TABLE.pop((get("sort"), "example"))
    """
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise TypeError(f"kernel: takes a class of operators, got {cls!r}")

    def register(offers: F) -> F:
        _TABLE.setdefault((cls, device), []).append(Registered(offers, provider, when, storages))
        if (device, cls.__module__) in _LOADED:  # else nobody has asked for its kernels
            registry.empty_caches()
        return offers

    return register


def residuals(cls: type[Op], *, device: str = "cpu") -> Callable[[F], F]:
    """Function decorator: declares what the kernels of an operator leave for those of its gradient.

    The function is called with the operator, the standard types of its residuals (Op.residual_types) and the types of
    its inputs, and gives the types of what is left instead, one for each. It holds for subclasses, too.
    Raises TypeError if cls is not a class of operators or has no residuals.

    >>> from weft.ops.registry import get
    >>> residuals(get("relu"))
    Traceback (most recent call last):
        ...
    TypeError: residuals: relu has no residuals; its class lists them
    """
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise TypeError(f"residuals: takes a class of operators, got {cls!r}")
    if not cls.residuals:
        raise TypeError(f"residuals: {cls.name} has no residuals; its class lists them")

    def register(declare: F) -> F:
        _RESIDUALS[cls, device] = declare
        return declare

    return register


def _declared(
    op: Op, standard: Sequence[TensorType], types: Sequence[TensorType | None]
) -> Sequence[TensorType]:
    device = _device_kind(op, types)
    for base in type(op).__mro__[:-1]:
        _load(base.__module__, device)
        declare = _RESIDUALS.get((base, device))
        if declare is not None:
            return declare(op, standard, *types)
    return standard


set_declared_residuals(_declared)


def registered(cls: type[Op], device: str = "cpu") -> Sequence[Registered]:
    """The entries of an operator's class for a kind of device, in the order that they are tried.

    >>> from weft.ops.registry import get
    >>> [[entry.provider for entry in registered(get("matmul"), kind)] for kind in ("cpu", "gpu")]
    [['onednn', 'blas'], ['native']]
    """
    for base in cls.__mro__:
        if (device, base.__module__) not in _LOADED:
            _load(base.__module__, device)
        entries = _TABLE.get((base, device))
        if entries is not None:
            return entries
        if base is Op or "kernels" in vars(base):  # its own loops take the place of what it would inherit
            break
    return ()


def choices(op: Op, types: Sequence[TensorType | None], device: Device | None = None) -> Iterator[Any]:
    """The kernels that an operator may run with on inputs of these types, best first.

    device: where it runs; None: the device of its first input. An input that a decomposition makes from nothing has no
    device of its own, so a caller that has the operator's node or program names the device.
    A copy from one kind of device to another may be the work of either: the kind other than cpu is tried first.
    """
    stored = {t.storage for t in types if t is not None}
    missing = getattr(_LEFT_OUT, "names", ())
    for kind in _device_kinds(op, types, device):
        for entry in registered(type(op), kind):
            if entry.provider in missing:
                continue
            if stored <= {*entry.storages} and (entry.when is None or entry.when(op, *types)):
                yield from entry.offers(op, *types)
    yield from op.kernels(*types)


@contextlib.contextmanager
def without(provider: str) -> Iterator[None]:
    """While it holds, this library or code offers no kernels in this thread: decompositions take their place.

    >>> from weft.base.dtype import float64
    >>> from weft.ops.registry import get
    >>> matrices = [TensorType((9, 9), float64)] * 2
    >>> with without("blas"):
    ...     left = [*choices(get("matmul")(), matrices)]
    >>> len(left), len([*choices(get("matmul")(), matrices)])
    (0, 1)
    """
    before = getattr(_LEFT_OUT, "names", frozenset[str]())
    _LEFT_OUT.names = before | {provider}
    try:
        yield
    finally:
        _LEFT_OUT.names = before


def left_out() -> tuple[str, ...]:
    """The providers that `without` leaves out in this thread: what is kept of kernels has it in its key."""
    return tuple(sorted(getattr(_LEFT_OUT, "names", ())))


def first_choice(node: Node) -> Any:
    """The best kernel that the operator of a node offers, without its runtime values; None if it has none."""
    if node.op is None:
        return None
    if getattr(_LEFT_OUT, "names", None):
        return next(choices(node.op, tuple(node.operand_types()), node.device), None)
    try:
        return node.choice
    except AttributeError:
        types = tuple(node.operand_types())
        find = _first.__wrapped__ if are_guarded() else _first  # which would keep what these sizes answered
        node.choice = find(node.op, types, node.device)
        return node.choice


@registry.cached(maxsize=8192)
def _first(op: Op, types: tuple[TensorType | None, ...], device: Device | None) -> Any:
    return next(choices(op, types, device), None)


def loop_kernel(device: Device, code: Any) -> Any:
    """The kernel of a loop on a device: what its kind makes of the code, else the processor's."""
    make = LOOPS.get(device.kind)
    if make is not None:
        return make(code)
    return code.for_threads() if device.kind == "gpu" else code.native()


def _input_kinds(types: Sequence[TensorType | None]) -> dict[str, None]:
    return dict.fromkeys([t.device.kind for t in types if t is not None and not t.weak])


def _device_kind(op: Op, types: Sequence[TensorType | None]) -> str:
    device = op.fixed_device()
    return device.kind if device is not None else next(iter(_input_kinds(types)), "cpu")


def _device_kinds(op: Op, types: Sequence[TensorType | None], device: Device | None) -> Sequence[str]:
    """The kinds whose kernels may be taken, in the order in which they are tried."""
    fixed, input_kinds = op.fixed_device(), _input_kinds(types)
    if fixed is None:
        return (device.kind if device is not None else next(iter(input_kinds), "cpu"),)
    kind = fixed.kind
    input_kinds.pop(kind, None)
    return sorted((kind, *input_kinds), key=lambda name: (name == "cpu", name != kind))


def _load(operators: str, device: str) -> None:
    """Import the module of kernels for a module of operators, where there is one."""
    if operators.startswith(OPERATORS):
        families = _FAMILIES.get(device)
        if families is None:
            folder = os.path.join(os.path.dirname(__file__), device)
            names = os.listdir(folder) if os.path.isdir(folder) else []
            families = _FAMILIES[device] = frozenset(n[:-3] for n in names if n.endswith(".py"))
        family = operators.rpartition(".")[2]
        if family in families:
            __import__(f"{__name__}.{device}.{family}")  # waits for a thread that is importing it
    _LOADED.add((device, operators))
