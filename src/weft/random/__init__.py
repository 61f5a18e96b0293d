"""Random numbers: streams of devices, keys, and distributions.

Numbers depend only on the seed and the order of the calls, or on a key alone, never on threads or devices' speed. Each
device has its own stream. A call reserves its part of the stream at once; the engine computes the numbers later.
Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). Until seed() is called every process differs, forked children included.
After seed() a forked child continues from its parent's state, so that all children draw the same numbers: seed each of
them, for example with ``seed(base + worker)``, where they should differ.

>>> import weft as wf
>>> wf.random.seed(0)
>>> a = wf.random.uniform(shape=3)
>>> wf.random.seed(0)
>>> bool((a.numpy() == wf.random.uniform(shape=3).numpy()).all())
True

Distributions take parameters as numbers or arrays, which fit each other by broadcasting, and `key`: a key, with which
a call gives the same numbers every time, or a Generator; by default numbers come from the stream of the device.

>>> key = wf.random.key(0)
>>> first, second = wf.random.split(key)
>>> bool((wf.random.normal(shape=3, key=first).numpy() != wf.random.normal(shape=3, key=second).numpy()).all())
True
"""

from __future__ import annotations

from weft.base.name_hints import add_hints as _add_hints
from weft.random import distributions as _distributions
from weft.random import keys as _keys
from weft.random import streams as _streams
from weft.random.distributions import *  # noqa: F403
from weft.random.keys import *  # noqa: F403
from weft.random.streams import *  # noqa: F403

__all__ = [*_streams.__all__, *_keys.__all__, *_distributions.__all__]

_add_hints(globals())
