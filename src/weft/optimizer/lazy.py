"""Updates of some rows of a parameter, which touch nothing else."""

from __future__ import annotations

from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad
from weft.optimizer.optimizer import Optimizer
from weft.sparse import RowSparse

__all__ = ["lazy_update"]


def lazy_update(optimizer: Optimizer, stored: Tensor, gradient: RowSparse) -> None:
    """One update of the rows that a gradient has, and of their state; the other rows stay as they are.

    optimizer: of stored alone. It is what optimizer.step() does with a gradient that is a RowSparse, without the
    parameter's grad: momentum, averages and weight decay of a row pause while it has no gradient; the number of the
    step counts all updates that have rows. Raises TypeError for an optimizer without an update of rows.

    >>> import weft as wf
    >>> w = wf.zeros((3, 1))
    >>> opt = wf.optimizer.SGD([w], lr=0.5)
    >>> lazy_update(opt, w, wf.sparse.RowSparse([2], wf.tensor([[4.]]), (3, 1)))
    >>> w[:, 0]
    tensor([ 0.,  0., -2.], dtype=float32, device=cpu:0)
    """
    optimizer.check_rows(stored, gradient)
    gradient = gradient.distinct()
    if not gradient.rows.size:
        return
    (group,) = optimizer.param_groups
    (step_group,) = group.step_groups
    with no_grad():
        optimizer.count(group, step_group, optimizer.witness(step_group, [gradient.values]))
        optimizer.update_rows(group, step_group, 0, gradient)
