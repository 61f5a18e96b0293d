"""Collectives while some ranks are absent: they have left their loop, and others still have batches (see joining.py).

An absent rank stays in the collectives' order. In the words of an agreement it is neutral, so the others agree as if it
were not there. Once all have agreed and some are absent, every rank learns which; the first that is present describes
the exchange as text, and each absent one makes it again and takes part with arrays that change nobody's result. That
costs three more requests for each collective, and nothing while all are present: whether a rank is absent is one of the
words of each agreement.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.dtype import as_dtype
from weft.distributed.errors import DistributedError
from weft.distributed.transport import Collective

__all__ = ["absent_ranks", "describe", "exchange_of", "receive_text"]


def absent_ranks(comm: Any, is_absent: bool) -> Generator[Any, None, list[int]]:
    """Find out which ranks are absent; all ranks call it."""
    all_flags = np.empty(comm.size, "int64")
    yield comm.Iallgather(np.array([is_absent], "int64"), all_flags)
    return np.flatnonzero(all_flags).tolist()


def receive_text(comm: Any, text: str, root: int) -> Generator[Any, None, str]:
    """The text of a rank, on all of them."""
    data = np.frombuffer(text.encode(), "uint8").copy()
    size = np.array([data.size])
    yield comm.Ibcast(size, root)
    if comm.rank != root:
        data = np.empty(int(size[0]), "uint8")
    yield comm.Ibcast(data, root)
    return data.tobytes().decode()


def describe(
    exchange: Collective | None, inputs: Sequence[Any], outputs: Sequence[Any], absent: Collection[int]
) -> str:
    """The text of which exchange_of makes what absent ranks do. Raises DistributedError with the reason if they
    must not be absent.
    """
    if exchange is None:  # a barrier
        return json.dumps(None)
    if reason := exchange.why_not_without(absent):
        raise DistributedError(reason)
    shapes = [[[as_dtype(x.dtype).name, x.shape] for x in arrays] for arrays in (inputs, outputs)]
    return json.dumps([type(exchange).__name__, dataclasses.asdict(exchange), *shapes])


def exchange_of(text: str, comm: Any, contributors: int) -> Iterator[Any]:
    """An absent rank's part in the exchange that describe has described."""
    if (document := json.loads(text)) is None:
        return iter(())
    name, fields, *shapes = document
    exchange = Collective.kinds[name](**fields)
    inputs, outputs = [
        [np.empty(shape, as_dtype(dtype).numpy) for dtype, shape in arrays] for arrays in shapes
    ]
    for x in inputs:
        exchange.neutral(x)
    return exchange.run(comm, inputs, outputs, contributors)
