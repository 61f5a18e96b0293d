"""Rounding of weights that looks at data: integers by which the results of a layer change least.

For rows w of a weight and inputs x the error is (w - q s) H (w - q s)^T with H the sum of x x^T. Both searches are over
columns, all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import distributed
from weft import functional as F
from weft.arrays.creation import tensor
from weft.ops.families.convolution import Convolution
from weft.ops.families.matrix import Linear, Matmul
from weft.quantization.network import Contraction, Run
from weft.quantization.simulated import Simulated, WeightQuantizer, folded

__all__ = ["descend", "feed_forward", "squared_error"]

ROWS = 4096  # at most so many positions of a batch are looked at
SWEEPS = 4
DAMPING = 0.01  # of the mean of H's diagonal, added to it


def squared_error(w: Any, q: Any, steps: Any, hessian: Any) -> float:
    """The squared change of all results.

    >>> squared_error(np.ones((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), np.eye(2))
    2.0
    """
    difference = w - q * steps
    return float(((difference @ hessian) * difference).sum())


def feed_forward(w: Any, steps: Any, hessian: Any, limits: tuple[int, int]) -> Any:
    """Integers column by column, where the error of each column is made up for by those that follow.

    w, steps: f64[n, k]; hessian: f64[k, k]; limits: the least and the greatest integer.
    Source: Frantar et al. 2022, GPTQ.

    >>> feed_forward(np.full((1, 2), 0.4), np.ones((1, 2)), np.ones((2, 2)), (-8, 7))
    array([[0., 1.]])
    """
    k = w.shape[1]
    damped = hessian + np.eye(k) * (DAMPING * max(np.trace(hessian) / k, 1e-12))
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T
    rest, q = w.copy(), np.empty_like(w)
    for j in range(k):
        q[:, j] = np.clip(np.rint(rest[:, j] / steps[:, j]), *limits)
        error = (rest[:, j] - q[:, j] * steps[:, j]) / factor[j, j]
        rest[:, j + 1 :] -= np.outer(error, factor[j, j + 1 :])
    return q


def descend(w: Any, steps: Any, hessian: Any, limits: tuple[int, int]) -> Any:
    """Integers whose columns are in turn made the best for the others, until none changes.

    A row begins with the nearest integers or with those of feed_forward, which are better, and its error never grows.
    w, steps: f64[n, k]; hessian: f64[k, k]; limits: the least and the greatest integer.
    Source: Nagel et al. 2020, Up or down? Adaptive rounding for post-training quantization (the problem).

    >>> descend(np.full((1, 2), 0.4), np.ones((1, 2)), np.ones((2, 2)), (-8, 7))
    array([[0., 1.]])
    """
    starts = [np.clip(np.rint(w / steps), *limits), feed_forward(w, steps, hessian, limits)]
    errors = [(((w - q * steps) @ hessian) * (w - q * steps)).sum(1) for q in starts]
    q = np.where((errors[1] < errors[0])[:, None], starts[1], starts[0])
    diagonal = np.diag(hessian)
    gradient = (w - q * steps) @ hessian
    for _ in range(SWEEPS):
        changed = False
        for j in np.flatnonzero(diagonal > 0):
            best = np.clip(np.rint(q[:, j] + gradient[:, j] / (diagonal[j] * steps[:, j])), *limits)
            move = (best - q[:, j]) * steps[:, j]
            if move.any():
                changed = True
                gradient -= np.outer(move, hessian[j])
                q[:, j] = best
        if not changed:
            break
    return q


SEARCHES = {"nearest": None, "gptq": feed_forward, "descent": descend}


def choose_integers(simulated: Simulated, calls: Sequence[Any], rounding: str) -> None:
    """Give the quantizers of weights the integers that a search finds for these arguments, those of all ranks."""
    search = SEARCHES[rounding]
    if search is None:
        return
    hessians: dict[str, Any] = {}
    weights: dict[str, tuple[Contraction, Any]] = {}

    def contract(c: Contraction, run: Run) -> Any:
        is_product = isinstance(c.node.op, Linear | Matmul | Convolution)
        if c.name in simulated.weights and is_product and getattr(c.node.op, "groups", 1) == 1:
            x = _inputs(c, run(c.node.inputs[0]).numpy())
            hessians[c.name] = x.T @ x + hessians.get(c.name, 0.0)
            weights[c.name] = c, folded(c, run)[0]
        return run.call(c.node)

    for args in calls:
        simulated.network(args).run(args, simulated.state(), contract, simulated.quantize)
    for name, (c, w) in weights.items():
        if distributed.world_size() > 1:
            hessians[name] = distributed.all_reduce(tensor(hessians[name])).numpy()
        quantizer = simulated.weights[name]
        quantizer.register_buffer("integers", _integers(c, quantizer, w, hessians[name], search))


def _integers(c: Contraction, quantizer: WeightQuantizer, w: Any, hessian: Any, search: Any) -> Any:
    is_matrix = isinstance(c.node.op, Matmul)  # [k, n]; other weights are [n, ...]

    def as_rows(x: Any) -> Any:
        x = x.numpy().astype(np.float64)
        return x.T if is_matrix else x.reshape(len(x), -1)

    rows = quantizer.rows(w)
    steps = F.broadcast_to(quantizer.along_rows(quantizer.steps(w), rows), shape=rows.shape)
    q = search(as_rows(w), as_rows(F.reshape(steps, shape=w.shape)), hessian, quantizer.limits)
    return tensor(np.ascontiguousarray((q.T if is_matrix else q).reshape(w.shape)), dtype="int8")


def _inputs(c: Contraction, x: Any) -> Any:
    """The inputs of the product as rows f64[m, k], of which at most ROWS are taken, evenly."""
    op: Any = c.node.op
    if not isinstance(op, Convolution):
        rows = x.reshape(-1, x.shape[-1])
        return rows[:: -(-len(rows) // ROWS)].astype(np.float64)
    weight: Any = c.node.inputs[1]
    windows, spatial = op.windows(weight), x.ndim - 2
    x = np.pad(
        x, ((0, 0), (0, 0), *((int(a), int(b)) for a, b in zip(windows.low, windows.high, strict=True)))
    )
    sizes = [(n - 1) * d + 1 for n, d in zip(weight.shape[2:], windows.dilation, strict=True)]
    views: Any = np.lib.stride_tricks.sliding_window_view(x, sizes, axis=tuple(range(2, x.ndim)))
    views = views[(slice(None), slice(None), *(slice(None, None, s) for s in windows.stride))]
    views = views[(..., *(slice(None, None, d) for d in windows.dilation))]
    views = np.moveaxis(views, 1, 1 + spatial)  # [n, positions..., c, window...]
    count = int(np.prod(views.shape[: 1 + spatial]))
    chosen = np.unravel_index(np.arange(0, count, -(-count // ROWS)), views.shape[: 1 + spatial])
    return views[chosen].reshape(len(chosen[0]), -1).astype(np.float64)
