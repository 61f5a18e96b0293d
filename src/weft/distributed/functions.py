"""Collectives as functions with gradients; of one rank they are the identity.

>>> import weft as wf
>>> wf.distributed.all_reduce(wf.tensor([1., 2.]))
tensor([1., 2.], dtype=float32, device=cpu:0)

Every rank must call the same ones in the same order, with the same shapes and types; a rank that does not is an error,
DistributedError, on all of them. Calls return at once, as operations do. In traced functions an exchange is two steps
of the program, and the steps between them overlap with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import _core
from weft.arrays.creation import zeros
from weft.base.errors import ShapeError
from weft.distributed.collective import LARGE_BYTES, SMALL_BYTES, check_numbers, push_exchange, type_text
from weft.distributed.transport import AllGather, AllReduce, AllToAll, Broadcast, Receive, ReduceScatter, Send
from weft.distributed.world import world
from weft.gradients.gradient import Function
from weft.ops import registry

__all__ = ["all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "recv", "reduce_scatter", "send"]

OPS = ("sum", "mean", "max", "min", "prod")


def _exchange_one(
    text: str, exchange: Any, x: Any, shape: Sequence[int] | None = None, inline_bytes: int = SMALL_BYTES
) -> Any:
    kind = (tuple(x.shape if shape is None else shape), x.dtype, x.device)
    return push_exchange(text, exchange, [x], [kind], inline_bytes=inline_bytes).outputs()[0]


class _AllReduce(Function):
    def __init__(self, op: str) -> None:
        self.op = op

    def forward(self, x: Any) -> Any:
        y = _exchange_one(
            f"all_reduce {self.op} {type_text(x)}", AllReduce(op=self.op), x, inline_bytes=LARGE_BYTES
        )
        if self.op in ("max", "min"):
            self.is_extreme = registry.function("equal")(x, y)
        return y

    def backward(self, dy: Any) -> Any:
        if self.op == "prod":
            raise NotImplementedError("all_reduce: the product has no gradient; use exp(all_reduce(log(x)))")
        op = "sum" if self.op in ("max", "min") else self.op
        dx = _exchange_one(f"all_reduce gradient {op} {type_text(dy)}", AllReduce(op=op), dy)
        return dx * self.is_extreme.astype(dx.dtype) if self.op in ("max", "min") else dx


def all_reduce(x: Any, /, op: str = "sum") -> Any:
    """The sum of all ranks' x, on every rank; op: "sum", "mean", "max", "min" or "prod".

    x: numbers of any shape, the same on all ranks. Its gradient is the sum (mean) of all ranks' gradients; of "max" and
    "min" it goes to the elements that are the extreme. 16-bit floats are added in float32, the mean of integers is an
    error. Raises ValueError for another op, DTypeError for bools.
    """
    check_numbers("all_reduce", x)
    if op not in OPS:
        raise ValueError(f"all_reduce: op must be one of {', '.join(map(repr, OPS))}, got {op!r}")
    if op == "mean" and not x.dtype.is_floating:
        raise ValueError(f"all_reduce: the mean of {x.dtype} is not {x.dtype}; use op='sum'")
    return _copy(x) if world().size == 1 else _AllReduce(op)(x)


def _copy(x: Any) -> Any:
    """x as a result of its own."""
    return x + zeros((), dtype=x.dtype, device=x.device) if x.dtype.is_floating else _core.copy_of(x)


class _AllGather(Function):
    def forward(self, x: Any) -> Any:
        return _exchange_one(
            f"all_gather {type_text(x)}", AllGather(), x, (x.shape[0] * world().size, *x.shape[1:])
        )

    def backward(self, dy: Any) -> Any:
        text = f"all_gather gradient {type_text(dy)}"
        return _exchange_one(text, ReduceScatter(), dy, (dy.shape[0] // world().size, *dy.shape[1:]))


def all_gather(x: Any, /) -> Any:
    """All ranks' x behind each other along the first axis: [n, ...] gives [n world_size, ...].

    Its gradient is the sum of all ranks' gradients of this rank's part. Raises ShapeError if x has no axis.
    """
    if not x.shape:
        raise ShapeError("all_gather: x needs an axis, got one of shape ()")
    return _copy(x) if world().size == 1 else _AllGather()(x)


class _ReduceScatter(Function):
    def forward(self, x: Any) -> Any:
        shape = (x.shape[0] // world().size, *x.shape[1:])
        return _exchange_one(f"reduce_scatter {type_text(x)}", ReduceScatter(), x, shape)

    def backward(self, dy: Any) -> Any:
        shape = (dy.shape[0] * world().size, *dy.shape[1:])
        return _exchange_one(f"reduce_scatter gradient {type_text(dy)}", AllGather(), dy, shape)


def reduce_scatter(x: Any, /) -> Any:
    """This rank's part, along the first axis, of the sum of all ranks' x: [n world_size, ...] gives [n, ...].

    Raises ShapeError if the first axis cannot be divided. Its gradient is all ranks' gradients behind each other.
    """
    check_numbers("reduce_scatter", x)
    size = world().size
    if not x.shape or x.shape[0] % size:
        raise ShapeError(
            f"reduce_scatter: the first axis of {type_text(x)} is not a multiple of {size} ranks"
        )
    return _copy(x) if size == 1 else _ReduceScatter()(x)


class _Broadcast(Function):
    def __init__(self, root: int) -> None:
        self.root = root

    def forward(self, x: Any) -> Any:
        return _exchange_one(f"broadcast from {self.root} {type_text(x)}", Broadcast(root=self.root), x)

    def backward(self, dy: Any) -> Any:
        dx = _exchange_one(f"broadcast gradient {type_text(dy)}", AllReduce(op="sum"), dy)
        return dx if world().rank == self.root else dx * 0


def broadcast(x: Any, /, root: int = 0) -> Any:
    """The root's x, on every rank; the others give an x of the same shape and type. The root's gradient is all ranks'.

    Raises ValueError for a rank that there is not.
    """
    _check_rank("broadcast", "root", root)
    return _copy(x) if world().size == 1 else _Broadcast(root)(x)


class _AllToAll(Function):
    def forward(self, x: Any) -> Any:
        return _exchange_one(f"all_to_all {type_text(x)}", AllToAll(), x)

    def backward(self, dy: Any) -> Any:
        return _exchange_one(f"all_to_all gradient {type_text(dy)}", AllToAll(), dy)


def all_to_all(x: Any, /) -> Any:
    """Part k of this rank's x goes to rank k; gives what all ranks have sent here, by rank. Parts are equal, of axis 0.

    Raises ShapeError if the first axis cannot be divided. Its gradient goes back the same way.
    """
    size = world().size
    if not x.shape or x.shape[0] % size:
        raise ShapeError(f"all_to_all: the first axis of {type_text(x)} is not a multiple of {size} ranks")
    return _copy(x) if size == 1 else _AllToAll()(x)


class _Send(Function):
    def __init__(self, to: int, tag: int) -> None:
        self.to, self.tag = to, tag

    def forward(self, x: Any) -> Any:
        self.shape, self.dtype, self.device = tuple(x.shape), x.dtype, x.device
        text = f"send to {self.to} {type_text(x)}"
        return _exchange_one(text, Send(self.to, 2 * self.tag, type_text(x)), x, ())

    def backward(self, dy: Any) -> Any:
        kind = (self.shape, self.dtype, self.device)
        expected = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        exchange = Receive(self.to, 2 * self.tag + 1, expected)
        return push_exchange(f"receive the gradient of send to {self.to}", exchange, [dy], [kind]).outputs()[
            0
        ]


def send(x: Any, /, to: int, tag: int = 0) -> Any:
    """Send x to another rank, which calls recv; gives a 0 that depends on what was sent: add it to the loss.

    Its gradient is what recv's output had there: backward receives it, so both ranks must call backward.
    Raises ValueError for a rank that is none or this one.
    """
    _check_rank("send", "to", to, other=True)
    return _Send(to, tag)(x)


class _Recv(Function):
    def __init__(self, source: int, tag: int) -> None:
        self.source, self.tag = source, tag

    def forward(self, like: Any) -> Any:
        exchange = Receive(self.source, 2 * self.tag, type_text(like))
        return _exchange_one(f"recv from {self.source} {type_text(like)}", exchange, like)

    def backward(self, dy: Any) -> Any:
        exchange = Send(self.source, 2 * self.tag + 1, type_text(dy))
        return dy * 0 + _exchange_one(f"send the gradient of recv from {self.source}", exchange, dy, ())


def recv(like: Any, /, source: int, tag: int = 0) -> Any:
    """Receive what another rank sends by send(x, to=this rank): an array like `like`. Sends of a tag keep their order.

    If like is recorded, the output is, and backward sends its gradient to the source; like's own gradient is zero.
    Raises ValueError for a rank that is none or this one; if x has another shape or type, DistributedError on both.
    """
    _check_rank("recv", "source", source, other=True)
    return _Recv(source, tag)(like)


def _check_rank(name: str, what: str, number: int, other: bool = False) -> None:
    size, rank = world().size, world().rank
    if not isinstance(number, int) or not 0 <= number < size or (other and number == rank):
        which = f" other than its own, {rank}" if other else ""
        raise ValueError(f"{name}: {what} must be a rank of 0..{size - 1}{which}, got {number!r}")


def barrier() -> None:
    """Wait until every rank has come here, and all exchanges before have ended.

    Raises EngineError if ranks do not call it at the same place of their order.
    """
    if world().size > 1:
        push_exchange("barrier", None, [], fence=True).result()
