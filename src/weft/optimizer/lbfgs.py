"""L-BFGS: steps along what the last gradients tell of the curvature, for functions without noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from weft import functional as F
from weft.arrays.creation import zeros, zeros_like
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import gradients_of, no_grad
from weft.optimizer.group import Option, ParameterGroup
from weft.optimizer.optimizer import Optimizer

__all__ = ["LBFGS"]

CURVATURE = 1e-10  # the least s y for which a pair is kept


class _Point(NamedTuple):
    """Where a search along the direction has looked: the rate, the loss, its slope, the gradient."""

    rate: float
    loss: float
    slope: float
    gradient: Tensor


class LBFGS(Optimizer):
    """Newton's method with an inverse Hessian that is estimated from the last steps s and changes of the gradient y.

    step(closure) does up to max_iter iterations. closure() computes the loss, its gradients (GradManager.backward), and
    returns the loss; the optimizer sets grad to None before each call. It is called until the greatest magnitude of the
    gradient is at most tolerance_grad, a step or the loss's change is below tolerance_change, or max_eval calls.
    line_search: None, steps of lr; or "strong_wolfe", for rates that lower both the loss and its slope enough. step
    waits for numbers of the device. All parameters form one group on one device. Options: lr, history_size.
    Raises ValueError for several groups, TypeError for a step without a closure.
    Source: Liu, Nocedal 1989; Nocedal, Wright 2006, Numerical optimization, algorithms 7.4, 7.5, 3.5 and 3.6.

    >>> import weft as wf
    >>> w = wf.tensor([-1., 2.], dtype="float64")
    >>> opt = LBFGS([w], line_search="strong_wolfe")
    >>> gm = wf.GradManager().attach([w])
    >>> def closure():
    ...     with gm:
    ...         loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
    ...         gm.backward(loss)
    ...     return loss
    >>> for _ in range(3):
    ...     _ = opt.step(closure)
    >>> bool(abs(w - 1).max() < 1e-4)                          # Rosenbrock's function is least at (1, 1)
    True
    """

    roles = ("s", "y", "d", "g")
    totals: ClassVar[Mapping[str, float]] = {"count": 0.0, "rate": 0.0}
    elementwise = False
    options: ClassVar[Mapping[str, Option]] = {"lr": Option(1.0), "history_size": Option(100.0, 1.0)}

    def __init__(
        self,
        params: Iterable[Tensor | Mapping[str, Any]],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search: str | None = None,
    ) -> None:
        if line_search not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search must be None or 'strong_wolfe', got {line_search!r}")
        self.max_iter = max_iter
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self.line_search = line_search
        super().__init__(params, lr=lr, history_size=history_size)

    def check_options(self, group: ParameterGroup) -> None:
        devices = sorted({str(p.device) for each in (*self.param_groups, group) for p in each.params})
        if self.param_groups or len(devices) > 1:
            raise ValueError(
                f"LBFGS: takes one group of parameters on one device, got {len(self.param_groups) + 1} "
                f"on {', '.join(devices)}"
            )

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        dtype = "float64" if parameter.dtype == "float64" else "float32"
        rows = (int(self._defaults["history_size"]),) if role in ("s", "y") else ()
        return zeros((*rows, *parameter.shape), dtype=dtype, device=parameter.device)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:
        """Up to max_iter iterations; returns the loss that the first call of closure gave."""
        if closure is None:
            raise TypeError("LBFGS: step takes a closure, which computes the loss and its gradients")
        return _Iterations(self, closure).run()


class _Iterations:
    """What one step does: iterations on all parameters as one vector."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Tensor]) -> None:
        (self.group,) = optimizer.param_groups
        (self.step_group,) = self.group.step_groups
        self.optimizer, self.closure = optimizer, closure
        self.calls = 0
        self._read()

    @no_grad()
    def _read(self) -> None:
        """The state as vectors: pairs of steps and changes, the last direction and gradient."""
        parameters, state = self.step_group.parameters, self.step_group.state
        self.dtype = state["g"][0].dtype
        self.position = _flat([p.astype(self.dtype) for p in parameters])
        count = int(self.step_group.totals["count"].item())
        steps, changes = (F.concat([x.reshape(x.shape[0], -1) for x in state[role]], axis=1) for role in "sy")
        self.pairs = [(steps[k].copy(), changes[k].copy()) for k in range(count)]
        self.direction, self.gradient = _flat(state["d"]), _flat(state["g"])
        self.rate = self.step_group.totals["rate"].item()

    @no_grad()
    def _write(self) -> None:
        state, totals = self.step_group.state, self.step_group.totals
        for role, vector in (("d", self.direction), ("g", self.gradient)):
            for x, part in zip(state[role], self._parts(vector), strict=True):
                x[...] = part
        for k, pair in enumerate(self.pairs):
            for role, vector in zip("sy", pair, strict=True):
                for x, part in zip(state[role], self._parts(vector), strict=True):
                    x[k] = part
        totals["count"][...], totals["rate"][...] = float(len(self.pairs)), self.rate

    def _parts(self, vector: Tensor) -> list[Tensor]:
        parts, begin = [], 0
        for p in self.step_group.parameters:
            parts.append(vector[begin : begin + p.size].reshape(p.shape))
            begin += p.size
        return parts

    @no_grad()
    def _move(self, origin: Tensor, rate: float) -> None:
        """To a place along the direction."""
        self.position = position = origin + rate * self.direction
        for p, part in zip(self.step_group.parameters, self._parts(position), strict=True):
            p[...] = part.astype(p.dtype)

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        """The loss and the gradient where the parameters are."""
        self.calls += 1
        self.optimizer.clear_grad()
        loss = self.closure()
        parameters = self.step_group.parameters
        gradients = gradients_of(parameters)
        if all(g is None for g in gradients):
            raise ValueError(
                "LBFGS: step: no parameter has a gradient\n  hint: closure() calls GradManager.backward"
            )
        for p, g in zip(parameters, gradients, strict=True):
            if not isinstance(g, Tensor | None):
                self.optimizer.check_rows(p, g)
        with no_grad():
            pairs = zip(parameters, gradients, strict=True)
            dense = [zeros_like(p) if g is None else g for p, g in pairs]
            return loss.detach(), _flat([g.astype(self.dtype) for g in dense])

    def run(self) -> Tensor:
        """All iterations; the first loss."""
        optimizer = self.optimizer
        first_loss, gradient = self._evaluate()
        loss = first_loss.item()
        for iteration in range(optimizer.max_iter):
            if _greatest(gradient) <= optimizer.tolerance_grad:
                break
            is_first = self.step_group.step.item() == 0
            self._turn(gradient, is_first)
            slope = _dot(gradient, self.direction)
            if slope > -optimizer.tolerance_change:
                break
            rate = self.group["lr"] * (min(1.0, 1 / _total(gradient)) if is_first else 1.0)
            before, is_last = loss, iteration == optimizer.max_iter - 1
            if optimizer.line_search:
                point = self._search(_Point(0.0, loss, slope, gradient), rate)
                self.rate, loss, gradient = point.rate, point.loss, point.gradient
            else:
                self.rate = rate
                self._move(self.position, rate)
                if not is_last:
                    value, gradient = self._evaluate()
                    loss = value.item()
            length = self.rate * _greatest(self.direction)
            if is_last or self.calls >= optimizer.max_eval or length <= optimizer.tolerance_change:
                break
            if abs(loss - before) < optimizer.tolerance_change or not math.isfinite(loss):
                break
        self._write()
        return first_loss

    @no_grad()
    def _turn(self, gradient: Tensor, is_first: bool) -> None:
        """A new direction: minus the estimated inverse Hessian times the gradient, by two loops over the pairs."""
        scale = 1.0
        self.step_group.step += 1
        if not is_first:
            change, step = gradient - self.gradient, self.rate * self.direction
            curvature = _dot(change, step)
            if curvature > CURVATURE:
                self.pairs.append((step, change))
                del self.pairs[: -int(self.group["history_size"])]
            if self.pairs:
                newest_step, newest_change = self.pairs[-1]
                scale = _dot(newest_step, newest_change) / _dot(newest_change, newest_change)
        self.gradient = gradient
        direction, weights = -gradient, []
        for step, change in reversed(self.pairs):
            weights.append(F.sum(step * direction) / F.sum(step * change))
            direction = direction - weights[-1] * change
        direction = direction * scale
        for step, change in self.pairs:
            weight = weights.pop() - F.sum(change * direction) / F.sum(step * change)
            direction = direction + weight * step
        self.direction = direction

    def _search(self, begin: _Point, rate: float) -> _Point:
        """A rate that fulfils the strong Wolfe conditions, or the best found; the parameters are there afterwards."""
        origin = self.position

        def at(rate: float) -> _Point:
            self._move(origin, rate)
            loss, gradient = self._evaluate()
            return _Point(rate, loss.item(), _dot(gradient, self.direction), gradient)

        found = _strong_wolfe(at, begin, rate, self.optimizer.max_eval)
        self._move(origin, found.rate)
        return found


def _flat(tensors: list[Tensor]) -> Tensor:
    return F.concat([x.reshape(-1) for x in tensors])


@no_grad()
def _dot(a: Tensor, b: Tensor) -> float:
    return float(F.sum(a * b).item())


@no_grad()
def _greatest(x: Tensor) -> float:
    return float(F.max(F.abs(x)).item())


@no_grad()
def _total(x: Tensor) -> float:
    return float(F.sum(F.abs(x)).item())


def _strong_wolfe(
    at: Callable[[float], _Point], begin: _Point, rate: float, calls: int, c1: float = 1e-4, c2: float = 0.9
) -> _Point:
    """Nocedal, Wright: a bracket is found by going further (3.5), then made smaller by cubics (3.6)."""

    def is_low(point: _Point) -> bool:
        return point.loss <= begin.loss + c1 * point.rate * begin.slope

    def is_flat(point: _Point) -> bool:
        return abs(point.slope) <= -c2 * begin.slope

    low, high, last = begin, None, begin
    for _ in range(max(calls, 1)):
        point = at(rate)
        if high is None:
            if not math.isfinite(point.loss) or not is_low(point) or (last.rate and point.loss >= last.loss):
                low, high = last, point
            elif is_flat(point):
                return point
            elif point.slope >= 0:
                low, high = point, last
            else:
                low = last = point
                rate *= 2
                continue
        elif not math.isfinite(point.loss) or not is_low(point) or point.loss >= low.loss:
            high = point
        elif is_flat(point):
            return point
        else:
            if point.slope * (high.rate - low.rate) >= 0:
                high = low
            low = point
        width = abs(high.rate - low.rate)
        if width * abs(begin.slope) < 1e-16:
            break
        rate = _between(low, high)
    return low


def _between(low: _Point, high: _Point) -> float:
    """The minimum of the cubic through both, kept off the ends; the middle where there is none."""
    width = high.rate - low.rate
    middle = low.rate + width / 2
    if not math.isfinite(high.loss) or not math.isfinite(high.slope):
        return middle
    bend = low.slope + high.slope - 3 * (low.loss - high.loss) / (low.rate - high.rate)
    square = bend * bend - low.slope * high.slope
    if square < 0:
        return middle
    root = math.copysign(math.sqrt(square), width)
    divisor = high.slope - low.slope + 2 * root
    if divisor == 0:
        return middle
    rate = high.rate - width * (high.slope + root - bend) / divisor
    least, greatest = sorted((low.rate + 0.1 * width, high.rate - 0.1 * width))
    return min(max(rate, least), greatest) if math.isfinite(rate) else middle
