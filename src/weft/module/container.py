"""Modules that hold others, and those that compute next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, overload

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module.module import Module

__all__ = [
    "AlphaDropout",
    "Concurrent",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "Flatten",
    "Identity",
    "Lambda",
    "Sequential",
    "Unflatten",
]


class Sequential(Module):
    """Modules, each called with the result of the one before. Given one by one, or as a dictionary with names.

    Raises TypeError for anything but modules. Without any it returns its argument.

    >>> import weft as wf
    >>> import weft.module as M
    >>> net = M.Sequential(M.Linear(4, 3), M.ReLU(), M.Linear(3, 2))
    >>> net(wf.zeros((1, 4))).shape, len(net), net[1]
    ((1, 2), 3, ReLU())
    >>> net[2] = M.Linear(3, 5)
    >>> net[1:]
    Sequential(
      0: ReLU()
      1: Linear(in_features=3, out_features=5)
    )
    >>> M.Sequential({"head": M.Linear(3, 2)})
    Sequential(
      head: Linear(in_features=3, out_features=2)
    )
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        self._layers: dict[str, Module] = {}
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            layers_by_name = dict(layers[0])
        else:
            layers_by_name = {str(k): layer for k, layer in enumerate(layers)}  # type: ignore[misc]
        for name, layer in layers_by_name.items():
            self._add(name, layer)

    def _add(self, name: str, layer: Any) -> None:
        if not isinstance(layer, Module):
            hint = ""
            if isinstance(layer, list | tuple):
                hint = "; a list is given as Sequential(*layers)"
            elif callable(layer):
                hint = "; functions such as relu are modules, too: ReLU()"
            raise TypeError(f"Sequential: takes modules, got {type(layer).__name__} as number {name}{hint}")
        self._layers[name] = layer

    def append(self, layer: Module) -> Sequential:
        """Add a module at the end; returns the whole."""
        self._add(str(len(self._layers)), layer)
        return self

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from self._layers.items()
        yield from ((name, value) for name, value in super()._attributes() if name != "_layers")

    def forward(self, x: Any) -> Any:
        for layer in self._layers.values():
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._layers.values())

    @overload
    def __getitem__(self, k: int) -> Any: ...  # of any class
    @overload
    def __getitem__(self, k: slice) -> Sequential: ...
    def __getitem__(self, k: Any) -> Any:
        layers = list(self._layers.values())[k]
        return Sequential(*layers) if isinstance(k, slice) else layers

    def __setitem__(self, k: int, layer: Module) -> None:
        self._add(list(self._layers)[k], layer)


class Identity(Module):
    """Its argument: in the place of a layer that is left out.

    >>> Identity()(3)
    3
    """

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """Dimensions from start_axis to end_axis as one: of [n, c, h, w] by default [n, c h w].

    >>> import weft as wf
    >>> Flatten()(wf.zeros((2, 3, 4))).shape
    (2, 12)
    """

    repr_attributes = ("start_axis", "end_axis")

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        return F.flatten(x, self.start_axis, self.end_axis)


class Unflatten(Module):
    """One dimension as several: of [n, 12] with axis 1 and sizes (3, 4) [n, 3, 4]; one size may be -1.

    Raises ShapeError, at a call, if the sizes do not multiply to the dimension's.

    >>> import weft as wf
    >>> Unflatten(1, (3, -1))(wf.zeros((2, 12))).shape
    (2, 3, 4)
    """

    repr_attributes = ("axis", "sizes")

    def __init__(self, axis: int, sizes: Sequence[int]) -> None:
        self.axis, self.sizes = axis, tuple(sizes)

    def forward(self, x: Tensor) -> Tensor:
        axis = self.axis % x.ndim
        return F.reshape(x, (*x.shape[:axis], *self.sizes, *x.shape[axis + 1 :]))


class Lambda(Module):
    """A function as a module, to stand among others.

    >>> import weft as wf
    >>> Sequential(Lambda(wf.exp), Lambda(lambda x: x + 1))(wf.zeros(2))
    tensor([2., 2.], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.function(*inputs, **keywords)


class Concurrent(Sequential):
    """Modules beside each other: each is called with the same argument, and the results are joined along an axis.

    >>> import weft as wf
    >>> Concurrent(Identity(), Lambda(wf.exp), axis=1)(wf.zeros((2, 3))).shape
    (2, 6)
    """

    def __init__(self, *layers: Module | Mapping[str, Module], axis: int = -1) -> None:
        super().__init__(*layers)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return F.concat([layer(x) for layer in self], axis=self.axis)


class Dropout(Module):
    """In training zeros with probability p, else x / (1 - p); otherwise x.

    Raises ValueError unless p is in 0 ... 1. See weft.functional.dropout.

    >>> import weft as wf
    >>> Dropout(0.5).eval()(wf.ones(2))
    tensor([1., 1.], dtype=float32, device=cpu:0)
    """

    function: ClassVar[str] = "dropout"
    repr_attributes = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p must be in 0..1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = getattr(F, self.function)(x, self.p, training=self.training)
        return y


class Dropout1d(Dropout):
    """Dropout of whole channels of sequences [n, c, l]. See weft.functional.dropout1d."""

    function = "dropout1d"


class Dropout2d(Dropout):
    """Dropout of whole channels of images [n, c, h, w]. See weft.functional.dropout2d."""

    function = "dropout2d"


class Dropout3d(Dropout):
    """Dropout of whole channels of volumes [n, c, d, h, w]. See weft.functional.dropout3d."""

    function = "dropout3d"


class AlphaDropout(Dropout):
    """Dropout that keeps mean and variance, for networks with SELU. See weft.functional.alpha_dropout."""

    function = "alpha_dropout"


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels [n, c, ...]. See weft.functional.feature_alpha_dropout."""

    function = "feature_alpha_dropout"
