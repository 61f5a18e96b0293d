"""Registers: how a program computes sizes, strides and offsets from those of its inputs; and parameters of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dtype import DType, as_dtype
from weft.base.errors import ShapeError
from weft.base.typing import Any
from weft.ops.kernels import KEY
from weft.ops.node import Value
from weft.ops.sizes import COMPUTED, Size

__all__ = ["Registers", "Slots"]


class Registers:
    """The register of every number, and what the native core fills them with."""

    def __init__(self) -> None:
        self.by_size: dict[Any, int] = {}
        self.constants: list[tuple[int, int]] = []
        self.loads: list[tuple[str, int, int, int]] = []
        self.computes: list[tuple[str, int, int, int]] = []

    def register(self, size: Any) -> int:
        """The register that holds an int or a Size."""
        is_size = type(size) is Size
        key = (is_size, id(size) if is_size else size)
        if key not in self.by_size:
            parts = size.parts(self.has) if is_size else ()
            for part in parts:
                if not self.has(part):
                    self.add_size(part)
            if not is_size:
                self.add_constant(size)
        return self.by_size[key]

    def has(self, size: Size) -> bool:
        """Whether a size has a register."""
        return (True, id(size)) in self.by_size

    def add_size(self, size: Size) -> None:
        if size.op in COMPUTED:
            first, second = map(self.register, size.args)
        number = self.by_size[(True, id(size))] = len(self.by_size)
        if size.op in ("extent", "stride"):
            self.loads.append((size.op, number, *size.args))
        elif size.op == "dim":
            self.loads.append(("size", number, 0, size.args[0]))
        else:
            self.computes.append((size.op, number, first, second))

    def add_constant(self, value: int) -> None:
        if not -(2**63) <= value < 2**63:
            raise ShapeError(f"shape: a size or stride of {value} does not fit 64 bits")
        number = self.by_size[(False, value)] = len(self.by_size)
        self.constants.append((number, int(value)))


class Slots:
    """Parameters of kernels: constants, registers, numbers of the call, random positions.

    numbers: of the host's numbers among a graph's inputs, by id.
    """

    def __init__(self, registers: Registers, numbers: Mapping[int, int]) -> None:
        self.registers, self.numbers = registers, numbers
        self.slots: list[tuple[str, DType, Any]] = []
        self.randoms: list[Any] = []

    def add(self, numbers: Sequence[tuple[Any, str]], draws: Any = None) -> int:
        """Adds consecutive parameters, (Value, Size or number, dtype name) each; returns the first one's index.

        draws: () -> what a random operator draws.
        """
        first = len(self.slots)
        for value, dtype in numbers:
            if isinstance(value, str):
                if value == KEY:
                    kind, drawn, count = draws()
                    self.randoms.append((kind, drawn, self.registers.register(count), len(self.slots)))
                self.slots.append(("random", as_dtype(dtype), 0))
            else:
                self.slots.append(self.slot(value, as_dtype(dtype)))
        return first

    def slot(self, value: Any, dtype: DType) -> tuple[str, DType, Any]:
        if isinstance(value, Value):
            if not value.is_constant:
                return ("number", dtype, self.numbers[id(value)])
            value = value.node.value
        if isinstance(value, float):
            return ("constant", dtype, value)
        return ("register", dtype, self.registers.register(value if isinstance(value, Size) else int(value)))
