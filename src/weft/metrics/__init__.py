"""Metrics: numbers about a model, over many batches.

update() adds a batch without waiting for it, compute() returns the current value, reset() starts over.

>>> import weft as wf
>>> accuracy = wf.metrics.Accuracy()
>>> accuracy.update(wf.tensor([[0.1, 0.9], [0.8, 0.2]]), wf.tensor([1, 1]))
>>> accuracy.compute()
0.5
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.metrics.classification import *  # noqa: F403
from weft.metrics.metric import *  # noqa: F403

_add_hints(globals())
