"""Programs that may depend on more than is guarded, such as a clock: they are recorded again at times, and compared.

A program is doubted where the walk over what its function can reach met something that it cannot follow; see
captured_environment.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from weft import _core
from weft.arrays.tensor import shares_memory
from weft.arrays.traced_float import is_same_number
from weft.base.users_line import users_line
from weft.graph.graph import Graph

if TYPE_CHECKING:
    from weft._core import Find

__all__ = ["Recording", "difference", "is_checked"]

_DOUBT = "it reads something that no guard covers, such as a clock or random numbers of Python"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of objects that each call makes


def is_checked(call: int) -> bool:
    """Whether a doubted program is recorded again at a call: at the 2nd, 8th, 64th, 512th and so on, as natively."""
    return call == 2 or (call.bit_count() == 1 and call.bit_length() % 3 == 1)


@dataclasses.dataclass
class Recording:
    """What a call was recorded as. constants: those of the arrays that Python made of other data; numbers: what a
    call of now gives for those that the graph reads.
    """

    graph: Graph
    arrays: Sequence[Find]
    results: Sequence[Find]
    numbers: Sequence[Any] = ()
    constants: Collection[int] = ()


def difference(former: Recording, other: Recording) -> tuple[str, str] | None:
    """What two recordings of one function compute differently, and where."""
    if (fact := _difference_of_graphs(former.graph, other.graph)) is not None:
        return fact
    for k, (a, b) in enumerate(zip(former.arrays, other.arrays, strict=True)):
        is_constant = k in former.constants and k in other.constants
        if (
            a.kind == b.kind == "object"
            and a.what is not b.what
            and not _are_one_array(a.what, b.what)
            and (not is_constant or _core.memory(a.what) != _core.memory(b.what))
        ):
            return f"input {k} is another array than at an earlier call: {_DOUBT}", users_line()
    if not all(map(is_same_number, former.numbers, other.numbers)):
        return f"a number is another one than at an earlier call: {_DOUBT}", users_line()
    results = [(a.what, b.what) for a, b in zip(former.results, other.results, strict=False)]
    if len(former.results) != len(other.results) or any(
        isinstance(a, int | float | str) and not _is_same(a, b) for a, b in results if type(a) is type(b)
    ):
        return f"a result is another one than at an earlier call: {_DOUBT}", users_line()
    return None


def _difference_of_graphs(former: Graph, graph: Graph) -> tuple[str, str] | None:
    """The first line that differs, and the user's line it is from.

    Graphs of which only objects without a value differ that each call makes, such as bound methods, are the same.
    """
    if former.key == graph.key:
        return None
    texts = [str(each) for each in (former, graph)]
    before, after = (_ADDRESS.sub("", text).splitlines() for text in texts)
    for k, (line, other) in enumerate(itertools.zip_longest(before, after, fillvalue="")):
        if line != other:
            where = graph.nodes[k - 1].where if 0 < k <= len(graph.nodes) else ""
            fact = f"{line.strip()} was recorded at an earlier call, {other.strip()} now: {_DOUBT}"
            return fact, where or users_line()
    if any(_ADDRESS.search(text) for text in texts):
        return None
    return f"an operator or an attribute is another one than at an earlier call: {_DOUBT}", users_line()


def _are_one_array(a: Any, b: Any) -> bool:
    """Whether two tensors are the same elements in the same memory, as those are that are made of a NumPy array."""
    return bool(a.shape == b.shape and a.strides == b.strides and a.dtype is b.dtype and shares_memory(a, b))


def _is_same(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else is_same_number(a, b)
