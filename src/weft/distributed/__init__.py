"""Several processes, on one machine or many, that train together: ranks, collectives, data parallelism.

>>> import weft as wf
>>> wf.distributed.rank(), wf.distributed.world_size()
(0, 1)

docs/distributed.md shows how jobs are started; weft.kvstore is the same by keys and with parameter servers.
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.distributed.errors import CollectiveTimeout as CollectiveTimeout
from weft.distributed.errors import DistributedError as DistributedError
from weft.distributed.functions import *  # noqa: F403
from weft.distributed.gradients import GradientExchange as GradientExchange
from weft.distributed.joining import join as join
from weft.distributed.parallel import DataParallel as DataParallel
from weft.distributed.parallel import broadcast_state as broadcast_state
from weft.distributed.running import *  # noqa: F403
from weft.distributed.sharded import ShardedOptimizer as ShardedOptimizer
from weft.distributed.synchronized import *  # noqa: F403
from weft.distributed.world import init as init
from weft.distributed.world import is_first as is_first
from weft.distributed.world import rank as rank
from weft.distributed.world import seed as seed
from weft.distributed.world import world_size as world_size

_add_hints(globals())
