"""Updates of some rows of a parameter, which touch nothing else."""

from __future__ import annotations

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad
from weft.optimizer.group import StepGroup
from weft.optimizer.optimizer import Optimizer
from weft.sparse import RowSparse

__all__ = ["lazy_update"]


def lazy_update(optimizer: Optimizer, stored: Tensor, gradient: RowSparse) -> None:
    """One update of the rows that a gradient has, and of their state; the other rows stay as they are.

    optimizer: of stored alone, whose update treats elements one by one. So momentum, averages and weight decay of a row
    pause while it has no gradient; the number of the step counts all updates. Raises ValueError for another optimizer.

    >>> import weft as wf
    >>> w = wf.zeros((3, 1))
    >>> opt = wf.optimizer.SGD([w], lr=0.5)
    >>> lazy_update(opt, w, wf.sparse.RowSparse([2], wf.tensor([[4.]]), (3, 1)))
    >>> w[:, 0]
    tensor([ 0.,  0., -2.], dtype=float32, device=cpu:0)
    """
    if not optimizer.elementwise:
        raise ValueError(
            f"{type(optimizer).__name__} updates an element by what others of its parameter are, and a gradient of "
            "some rows has not all of them; accepted are optimizers that treat elements one by one, such as AdamW"
        )
    distinct = gradient.distinct()
    if not distinct.rows.size:
        return
    (group,) = optimizer.param_groups
    (step_group,) = group.step_groups
    indices = distinct.indices.to_device(stored.device)
    with no_grad():
        optimizer.count(group, step_group, None)
        rows = F.take(stored, indices, axis=0)
        state = {
            role: [F.take(s, indices, axis=0) for s in arrays] for role, arrays in step_group.state.items()
        }
        part = StepGroup([rows], state, step_group.step, step_group.totals)
        optimizer.update(group, part, [distinct.values.to_device(stored.device)])
        stored[indices] = rows
        for role, (updated,) in state.items():
            step_group.state[role][0][indices] = updated
