"""Optimizers, learning rates that follow a schedule, and clipping of gradients.

>>> import weft as wf
>>> import weft.optimizer as optim
>>> w = wf.tensor([1., 2.])
>>> opt = optim.SGD([w], lr=0.1)
>>> gm = wf.GradManager().attach([w])
>>> with gm:
...     gm.backward((w * w).sum())
>>> _ = opt.step().clear_grad()
>>> w
tensor([0.8, 1.6], dtype=float32, device=cpu:0)
"""

from weft.optimizer import lr_scheduler as lr_scheduler
from weft.optimizer.averaging import *  # noqa: F403
from weft.optimizer.clipping import *  # noqa: F403
from weft.optimizer.group import ParameterGroup as ParameterGroup
from weft.optimizer.lazy import *  # noqa: F403
from weft.optimizer.lbfgs import *  # noqa: F403
from weft.optimizer.methods import *  # noqa: F403
from weft.optimizer.optimizer import Optimizer as Optimizer
from weft.optimizer.schedule_free import *  # noqa: F403
from weft.optimizer.special import *  # noqa: F403
from weft.optimizer.whole_tensors import *  # noqa: F403
from weft.optimizer.wrappers import *  # noqa: F403


def __getattr__(name: str) -> object:
    from weft.base.name_hints import missing

    raise missing(__name__, name, lambda: list(globals()))
