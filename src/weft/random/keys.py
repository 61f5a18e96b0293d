"""Keys, from which random numbers follow, and generators, which hand out keys."""

from __future__ import annotations

import operator
from typing import Any

from weft import _core
from weft.arrays.creation import tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import uint64
from weft.ops import functions as F
from weft.ops.families.random import RandomIntegers
from weft.random.streams import filled

__all__ = ["Generator", "fold_in", "key", "split"]

STREAM = 2**63  # of keys made of seeds; devices' streams are 0, 1, ...


def key(seed: int | None = None, device: Device | str | None = None) -> Tensor:
    """Return a key, uint64[2]: of a seed, or one drawn from the device's stream.

    Everything that is drawn with a key follows from it and the parameters: a key is to be used once, and split before
    where more is drawn. In a trace and in vmap it is an array like any other; a batch of keys draws different numbers
    for each example. Raises ValueError if seed is not in 0..2**64-1.
    Source: Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3.

    >>> a = key(7)
    >>> a.shape, a.dtype
    ((2,), uint64)
    >>> from weft.random import uniform
    >>> bool((uniform(shape=3, key=a) == uniform(shape=3, key=a)).all())
    True
    """
    if seed is None:
        return filled(RandomIntegers, _core.random_integers, 0, 2**63 - 1, 2, uint64, device)
    seed = operator.index(seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"key: seed must be in 0..2**64-1, got {seed}")
    return tensor([seed, STREAM], dtype="uint64", device=device)


def split(key: Any, count: int = 2) -> Any:
    """Return `count` keys, uint64[count, 2], independent of each other and of all that is drawn with the key.

    key: uint64[2]. Raises DTypeError or ShapeError for another array.

    >>> from weft.random import key
    >>> first, second = split(key(0))
    >>> first.shape, bool((first != second).any())
    ((2,), True)
    """
    return F.key_split(key, count=count)


def fold_in(key: Any, number: Any) -> Any:
    """Return a key that follows from a key and an integer, such as the number of a step: uint64[2].

    Raises DTypeError unless number is an integer, or a 0-d array of integers.

    >>> from weft.random import key
    >>> bool((fold_in(key(0), 1) != fold_in(key(0), 2)).any())
    True
    """
    return F.key_fold(key, number)


class Generator:
    """A stream of random numbers of its own, beside those of the devices: what its k-th call draws follows from its
    seed.

    Give it as `key` of functions of weft.random. state: uint64[3], a key and the number of keys that it has handed out,
    written in place, so that a traced function goes on where the last call ended; save and copy it as any array.
    Not to be used by several threads at once.

    >>> from weft.random import normal
    >>> generator = Generator(3)
    >>> a, b = (normal(shape=2, key=generator) for _ in range(2))
    >>> bool((a != b).all()), bool((normal(shape=2, key=Generator(3)) == a).all())
    (True, True)
    """

    def __init__(self, seed: int | None = None, device: Device | str | None = None) -> None:
        self.state = zeros(3, dtype="uint64", device=device)
        self.state[:2] = key(seed, device)

    def next_key(self) -> Tensor:
        """Return a key that this generator has not handed out before.

        >>> bool((Generator(0).next_key() == Generator(0).next_key()).all())
        True
        """
        made = fold_in(self.state[:2], self.state[2])
        self.state[2:] += 1
        return made

    def __repr__(self) -> str:
        return f"Generator(device={self.state.device})"
