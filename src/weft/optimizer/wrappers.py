"""Optimizers around another one: steps from a sharpened point, and weights that are kept in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import forget_gradients, no_grad
from weft.optimizer.group import ParameterGroup
from weft.optimizer.optimizer import Optimizer

__all__ = ["SAM", "MasterWeights"]


class Around:
    """Base: what another optimizer has, but for its step."""

    optimizer: Optimizer

    @property
    def param_groups(self) -> list[ParameterGroup]:
        """Those of the optimizer."""
        return self.optimizer.param_groups

    def clear_grad(self) -> Any:
        """Set the gradients of all parameters to None; returns self."""
        self.optimizer.clear_grad()
        return self

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what state_dict() gave; everything is checked before anything is changed."""
        self.optimizer.load_state_dict(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


class SAM(Around):
    """Sharpness-aware minimization: the optimizer's step with the gradients at the worst point nearby.

    optimizer: any. rho: how far that point is, along the gradients g of all parameters together: p + rho g / |g|; with
    adaptive=True p + rho p^2 g / |p g|, which does not depend on the scale of parameters.
    step(closure): closure() computes the loss and its gradients and returns the loss; it is called twice, and the
    gradients are cleared before each call. Returns the first loss. Raises TypeError without a closure, ValueError
    unless rho is positive.
    Source: Foret, Kleiner, Mobahi, Neyshabur 2020, Sharpness-aware minimization for efficiently improving
    generalization; Kwon, Kim, Park, Choi 2021, ASAM (adaptive).

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> w = wf.tensor([1.0])
    >>> gm = wf.GradManager().attach([w])
    >>> def closure():
    ...     with gm:
    ...         loss = (w * w).sum()
    ...         gm.backward(loss)
    ...     return loss
    >>> SAM(optim.SGD([w], lr=0.1), rho=0.5).step(closure).item()
    1.0
    >>> w                                                                # 1 - 0.1 * 2 * 1.5
    tensor([0.7], dtype=float32, device=cpu:0)
    """

    def __init__(self, optimizer: Optimizer, rho: float = 0.05, adaptive: bool = False) -> None:
        if not rho > 0:
            raise ValueError(f"SAM: rho must be positive, got {rho}")
        self.optimizer, self.rho, self.adaptive = optimizer, rho, adaptive

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:
        """One step; returns the loss before it."""
        if closure is None:
            raise TypeError("SAM: step takes a closure, which computes the loss and its gradients")
        self.clear_grad()
        loss = closure()
        params = [p for group in self.param_groups for p in group.params]
        with no_grad():
            pairs = [(p, g) for p in params if (g := p.grad) is not None]
            before = [(p, p.copy()) for p, _ in pairs]
            self._climb(pairs)
        self.clear_grad()
        try:
            closure()
        finally:
            with no_grad():
                for p, value in before:
                    p[...] = value
        self.optimizer.step()
        return loss

    def _climb(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Bring the parameters, given with their gradients, to the worst point nearby."""
        if not pairs:
            return
        device = pairs[0][0].device
        gradients = [g.astype("float32") if g.itemsize < 4 else g for _, g in pairs]
        scales = [
            F.abs(p).astype(g.dtype) if self.adaptive else None
            for (p, _), g in zip(pairs, gradients, strict=True)
        ]
        scaled = [g if scale is None else g * scale for g, scale in zip(gradients, scales, strict=True)]
        squares = [F.sum(g * g).astype("float64").to_device(device) for g in scaled]
        length = F.sqrt(F.sum(F.stack(squares)))
        factor = F.where(length > 0, self.rho / length, 0.0)
        for (p, _), g, scale in zip(pairs, scaled, scales, strict=True):
            change = g * factor.to_device(p.device).astype(g.dtype)
            p += (change if scale is None else change * scale).astype(p.dtype)


class MasterWeights(Around):
    """An optimizer of float32 copies of 16-bit parameters, so that steps smaller than their rounding add up.

    params: parameters, as net.parameters() gives. make: makes the optimizer of the parameters that it is given, such as
    lambda params: optim.AdamW(params, lr=1e-4). step() gives the copies the parameters' gradients, updates them, and
    rounds them into the parameters; parameters of other types are updated themselves. state_dict() has the copies as
    well. Raises TypeError for anything but tensors.
    Source: Micikevicius et al. 2017, Mixed precision training.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> w = wf.ones(1, dtype="bfloat16")
    >>> opt = MasterWeights([w], lambda params: optim.SGD(params, lr=1e-3))
    >>> for _ in range(10):
    ...     w.grad = wf.ones(1, dtype="bfloat16")
    ...     _ = opt.step().clear_grad()
    >>> w.item(), round(opt.masters[0].item(), 3)                        # 1 - 0.001 is 1 in bfloat16
    (0.98828125, 0.99)
    """

    def __init__(self, params: Iterable[Tensor], make: Callable[[list[Tensor]], Optimizer]) -> None:
        self.params = list(params)
        for p in self.params:
            if not isinstance(p, Tensor):
                raise TypeError(f"MasterWeights: parameters are tensors, got {type(p).__name__}")
        with no_grad():
            self.masters = [p.astype("float32") if p.itemsize < 4 else p for p in self.params]
        self.optimizer = make(self.masters)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Parameters that have a copy, each with it."""
        return (pair for pair in zip(self.params, self.masters, strict=True) if pair[0] is not pair[1])

    def step(self) -> Any:
        """Update the copies and the parameters; returns self."""
        with no_grad():
            for p, master in self._pairs():
                gradient = p.grad
                master.grad = None if gradient is None else gradient.astype("float32")
        self.optimizer.step()
        with no_grad():
            for p, master in self._pairs():
                p[...] = master.astype(p.dtype)
        return self

    def clear_grad(self) -> Any:
        """Set the gradients of all parameters and copies to None; returns self."""
        forget_gradients(self.params)
        return super().clear_grad()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state and the copies."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "masters": {str(k): x for k, x in enumerate(self.masters)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what state_dict() gave. Raises ValueError, before anything is changed, if it does not match."""
        masters = state["masters"]
        shapes = {str(k): x.shape for k, x in enumerate(self.masters)}
        if {key: tuple(x.shape) for key, x in masters.items()} != shapes:
            listed = ", ".join(map(str, shapes.values()))
            raise ValueError(
                f"load_state_dict: MasterWeights: copies of other shapes, here they are {listed}"
            )
        self.optimizer.load_state_dict(state["optimizer"])
        with no_grad():
            for k, (p, master) in enumerate(zip(self.params, self.masters, strict=True)):
                master[...] = masters[str(k)].to_device(master.device)
                if p is not master:
                    p[...] = master.astype(p.dtype)
