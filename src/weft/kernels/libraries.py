"""Kernels of libraries that are not weft's, for operators: weft/kernel.h (docs/c.md).

load_library("./kernels.so")             # adds "example.hypot"
kernel_of_library(Hypot, "example.hypot")
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft import _core
from weft.base.typing import Any
from weft.kernels import kernel
from weft.ops.kernels import Native
from weft.ops.op import Op
from weft.ops.types import TensorType

__all__ = ["kernel_of_library", "load_library"]


def load_library(path: str | os.PathLike[str]) -> list[str]:
    """Load a library of kernels, and give the names of those that it has added.

    A library stays for the life of the process. Raises ValueError, with the reason, if it cannot be loaded or a kernel
    is not as weft/kernel.h says.

    >>> load_library("missing.so")
    Traceback (most recent call last):
        ...
    ValueError: missing.so: missing.so: cannot open shared object file: No such file or directory
    """
    names: list[str] = _core.load_kernels(os.fspath(path))
    return names


def kernel_of_library(cls: type[Op], name: str, *, numbers: Sequence[str] = ()) -> None:
    """Offer a kernel of a library for an operator on the CPU, for operands of the types that it takes.

    For all others the operator does what it decomposes to. numbers: attributes of the operator whose values the kernel
    gets, as float64. What the operator computes by the kernel has to be what it decomposes to: gradients and other
    devices follow from that. Raises ValueError if no library that has been loaded has the kernel, AttributeError if
    the operator has no such attribute.

    >>> from weft.ops.registry import get
    >>> kernel_of_library(get("sort"), "acme.sort")
    Traceback (most recent call last):
        ...
    ValueError: kernel acme.sort: no library that has been loaded has it
    """
    alternatives = frozenset(_core.kernel_alternatives(name))
    if not alternatives:
        raise ValueError(f"kernel {name}: no library that has been loaded has it")
    if missing := [each for each in numbers if each not in cls.__annotations__]:
        raise AttributeError(f"kernel {name}: {cls.name} has no attribute {missing[0]!r}")

    @kernel(cls, provider=name)
    def offer(op: Any, *types: TensorType | None) -> Any:
        def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            given, results = ([x[0] for x in operands if x is not None] for operands in (inputs, outputs))
            signature = f"{','.join(given)}->{','.join(results)}"
            if signature not in alternatives:
                return None
            return _core.kernel_outside(name, signature, len(numbers))

        yield Native(make, exact=False, numbers=tuple((getattr(op, each), "float64") for each in numbers))
