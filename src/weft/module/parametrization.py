"""Parameters that are computed from others: weight normalization, spectral normalization, or functions of your own.

>>> import weft.module as M
>>> layer = M.weight_norm(M.Linear(3, 2))
>>> [name for name, _ in layer.named_parameters()]
['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
"""

from __future__ import annotations

from typing import Any

from weft import functional as F
from weft import random
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.gradients.gradient import no_grad
from weft.module.module import PARAMETER, Module, Parameter
from weft.recording.dependence import changed

__all__ = ["parametrize", "remove_parametrization", "spectral_norm", "weight_norm"]


class Parametrization(Module):
    """What a parameter is computed from: one tensor `original`, or several, and steps, each with the last's result."""

    def __init__(self, originals: tuple[Tensor, ...], step: Module) -> None:
        self.count = len(originals)
        for name, x in zip(self._names(), originals, strict=True):
            setattr(self, name, Parameter(x))
        self.steps = [step]

    def _names(self) -> list[str]:
        return ["original"] if self.count == 1 else [f"original{k}" for k in range(self.count)]

    def _attributes(self) -> Any:
        yield from ((str(k), step) for k, step in enumerate(self.steps))

    def forward(self) -> Tensor:
        first, *others = self.steps
        x: Tensor = first(*(getattr(self, name) for name in self._names()))
        for step in others:
            x = step(x)
        return x


def parametrize(module: Any, name: str, step: Module) -> Any:
    """Compute the parameter `name` of a module as step(original) from now on; returns the module.

    step: a module, which may have parameters of its own. With a method right_inverse(value), which returns a tensor or
    a tuple of them, the originals, arguments of step, are such that the parameter keeps its value; else `original` is
    the parameter. A second call adds a step that is given the first one's result. Optimizers train the originals, whose
    names are parametrizations.NAME.original (original0 and so on for several), so make them afterwards. It is computed
    whenever it is read. Raises ValueError if the module has no such parameter, ShapeError if its shape changes.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> import weft.module as M
    >>> class Symmetric(M.Module):
    ...     def forward(self, x):
    ...         return (x + F.matrix_transpose(x)) / 2
    >>> layer = M.parametrize(M.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all())
    True
    """
    already = vars(module).get("parametrizations", {})
    if name in already:
        already[name].steps.append(step)
        changed()
        return module
    if module._roles.get(name) != PARAMETER:
        has = ", ".join(n for n, role in module._roles.items() if role == PARAMETER) or "none"
        raise ValueError(f"parametrize: {type(module).__name__} has no parameter {name!r}; it has: {has}")
    value = vars(module)[name]
    inverse = getattr(step, "right_inverse", None)
    with no_grad():
        originals = value if inverse is None else inverse(value)
        originals = originals if isinstance(originals, tuple) else (originals,)
        result = step(*originals)
    if tuple(result.shape) != tuple(value.shape):
        raise ShapeError(
            f"parametrize: {type(step).__name__} makes the shape {result.shape} of {type(module).__name__}.{name}, "
            f"whose shape is {value.shape}"
        )
    delattr(module, name)
    module.parametrizations = {**already, name: Parametrization(originals, step)}
    return module


def remove_parametrization(module: Any, name: str) -> Any:
    """Make the parameter an ordinary one again, with the value that it has now; returns the module.

    Raises ValueError if it is not parametrized.

    >>> import weft.module as M
    >>> layer = M.remove_parametrization(M.weight_norm(M.Linear(3, 2)), "weight")
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    already = vars(module).get("parametrizations", {})
    if name not in already:
        raise ValueError(
            f"remove_parametrization: {type(module).__name__} has no parametrization of {name!r}"
        )
    with no_grad():
        value = already[name]().detach()
    rest = {each: part for each, part in already.items() if each != name}
    if rest:
        module.parametrizations = rest
    else:
        del module.parametrizations
    setattr(module, name, Parameter(value))
    return module


class WeightNorm(Module):
    """length direction / |direction|, whose norms are over all axes but one; axis=None: over all.

    >>> import weft as wf
    >>> step = WeightNorm(0)
    >>> step(wf.tensor([[2.]]), wf.tensor([[3., 4.]]))
    tensor([[1.2, 1.6]], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("axis",)

    def __init__(self, axis: int | None = 0) -> None:
        self.axis = axis

    def _norm(self, x: Tensor) -> Tensor:
        kept = None if self.axis is None else self.axis % max(x.ndim, 1)
        axes = tuple(k for k in range(x.ndim) if k != kept)
        return F.sqrt(F.sum(x * x, axis=axes, keepdims=kept is not None)) if axes else F.abs(x)

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / self._norm(direction))

    def right_inverse(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """The lengths, and the value as the direction."""
        return self._norm(value), value.copy()


def weight_norm(module: Any, name: str = "weight", axis: int | None = 0) -> Any:
    """Split a parameter into its length for each index of an axis and its direction; returns the module.

    The parameter becomes length direction / |direction|; length is parametrizations.NAME.original0, direction
    original1, as in PyTorch. axis=None: one length of all. See parametrize.
    Source: Salimans, Kingma 2016, Weight normalization: A simple reparameterization to accelerate training of deep
    neural networks.

    >>> import weft.module as M
    >>> layer = M.Linear(3, 2)
    >>> before = layer.weight.copy()
    >>> bool((abs(M.weight_norm(layer).weight - before) < 1e-6).all())
    True
    """
    return parametrize(module, name, WeightNorm(axis))


class SpectralNorm(Module):
    """x / its greatest singular value, found by power iteration; x is a matrix, of the axis and all others.

    Each call in training makes so many steps of the iteration from the vectors of the call before.
    """

    repr_attributes = ("axis", "steps")
    _u: Tensor
    _v: Tensor

    def __init__(self, x: Tensor, axis: int = 0, steps: int = 1, eps: float = 1e-12) -> None:
        if steps < 1:
            raise ValueError(f"spectral_norm: needs at least 1 step, got {steps}")
        self.axis, self.steps, self.eps = axis % max(x.ndim, 1), steps, eps
        matrix = self._matrix(x)
        for name, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
            vector = random.normal(0.0, 1.0, (size,), "float32", x.device).astype(x.dtype)
            self.register_buffer(name, F.normalize(vector, axis=0, eps=eps))
        with no_grad():
            self._iterate(matrix, 15)

    def _matrix(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            return F.reshape(x, (1, -1))
        return F.flatten(F.moveaxis(x, self.axis, 0), 1)

    def _iterate(self, matrix: Tensor, steps: int) -> None:
        u, v = self._u, self._v
        for _ in range(steps):
            u = F.normalize(matrix @ v, axis=0, eps=self.eps)
            v = F.normalize(F.matrix_transpose(matrix) @ u, axis=0, eps=self.eps)
        self._u[...], self._v[...] = u, v

    def forward(self, x: Tensor) -> Tensor:
        matrix = self._matrix(x)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.steps)
        sigma = F.vecdot(self._u.copy(), matrix @ self._v.copy())
        return x / sigma

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def spectral_norm(
    module: Any, name: str = "weight", axis: int | None = None, steps: int = 1, eps: float = 1e-12
) -> Any:
    """Divide a parameter by its greatest singular value, so that the layer's Lipschitz constant is 1.

    Returns the module. The parameter is a matrix of axis and all others; axis: by default 0, and 1 for transposed
    convolutions. In training each read makes so many steps of a power iteration, whose vectors are buffers. See
    parametrize.
    Source: Miyato, Kataoka, Koyama, Yoshida 2018, Spectral normalization for generative adversarial networks.

    >>> import weft as wf
    >>> import weft.module as M
    >>> layer = M.spectral_norm(M.Linear(3, 2)).eval()
    >>> round(wf.linalg.svdvals(layer.weight)[0].item(), 3)
    1.0
    """
    if axis is None:
        axis = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return parametrize(module, name, SpectralNorm(getattr(module, name), axis, steps, eps))
