"""Arrays by keys that several workers share: push adds up what they have, pull gives what became of it.

>>> import weft as wf
>>> kv = wf.kvstore.create("local")
>>> kv.init("w", wf.zeros(2))
>>> kv.push("w", [wf.ones(2), wf.ones(2)])
>>> kv.pull("w")
tensor([2., 2.], dtype=float32, device=cpu:0)

docs/distributed.md has the kinds and how jobs are started.
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.distributed.gradients import all_reduce_callback as all_reduce
from weft.kvstore.base import KVStore as KVStore
from weft.kvstore.base import create as create
from weft.kvstore.base import kinds as kinds
from weft.kvstore.base import register as register
from weft.kvstore.local import LocalStore as LocalStore
from weft.sparse import RowSparse as RowSparse

__all__ = ["KVStore", "LocalStore", "RowSparse", "all_reduce", "create", "kinds", "register"]

_add_hints(globals())
