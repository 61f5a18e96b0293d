"""How a layer is quantized, and ready-made choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from weft import _core

__all__ = ["QConfig", "presets"]

METHODS = ("min_max", "ema", "percentile", "kl", "l2")
ESTIMATORS = ("straight_through", "learned_step", "threshold")


@dataclass(frozen=True)
class QConfig:
    """How layers are quantized; a frozen value.

    weight_bits: 8, 4, or 7, whose products with uint8 are exact and quick on processors without instructions for bytes
    (with symmetric=False, so that all activations are uint8); activation_bits: 8, or None: weights alone. observer:
    where ranges of activations come from: "min_max" of all batches, "ema" (a moving average with the fraction
    momentum), "percentile" (of the values, the percentage percentile lies inside), "kl" or "l2" (the range with the
    least divergence or squared error). estimator: the gradient, as fake_quantize has it. per_channel: a step for each
    output of a weight. group_size: a step for each so many neighbours in a row of a weight of 4 bits. symmetric:
    activations that may be negative are int8 with zero point 0, else uint8 with a zero point. dynamic: each row of the
    input of a linear layer has a step of its own, by its greatest magnitude, which is found when it runs. Raises
    ValueError for other values.

    >>> QConfig(observer="l2").weight_bits
    8
    >>> QConfig(weight_bits=3)
    Traceback (most recent call last):
        ...
    ValueError: QConfig: weight_bits must be one of 8, 7, 4, got 3
    """

    weight_bits: int = 8
    activation_bits: int | None = 8
    observer: str = "min_max"
    estimator: str = "straight_through"
    per_channel: bool = True
    group_size: int = 32
    symmetric: bool = True
    dynamic: bool = False
    momentum: float = 0.1
    percentile: float = 99.99

    def __post_init__(self) -> None:
        for name, choices in (
            ("weight_bits", (8, 7, 4)),
            ("activation_bits", (8, None)),
            ("observer", METHODS),
            ("estimator", ESTIMATORS),
        ):
            value = getattr(self, name)
            if value not in choices:
                accepted = ", ".join(map(str, choices))
                raise ValueError(f"QConfig: {name} must be one of {accepted}, got {value!r}")
        if self.group_size < 2 or self.group_size % 2:
            raise ValueError(f"QConfig: group_size must be even and positive, got {self.group_size}")
        if not 0 < self.momentum <= 1 or not 50 < self.percentile <= 100:
            raise ValueError(
                "QConfig: momentum must be in (0, 1] and percentile in (50, 100], "
                f"got {self.momentum} and {self.percentile}"
            )
        if self.weight_bits == 4 and self.activation_bits is not None:
            raise ValueError(
                "QConfig: weights of 4 bits are for activation_bits=None: kernels compute in floats"
            )
        if self.dynamic and (self.activation_bits is None or self.estimator != "straight_through"):
            raise ValueError(
                "QConfig: dynamic=True is for activation_bits=8 and estimator='straight_through'"
            )

    def replaced(self, **values: Any) -> QConfig:
        """The same with other values.

        >>> QConfig().replaced(observer="ema").observer
        'ema'
        """
        return replace(self, **values)


presets: dict[str, QConfig] = {
    "min_max": QConfig(),
    "ema": QConfig(observer="ema"),
    "lsq": QConfig(estimator="learned_step"),
    "tqt": QConfig(estimator="threshold"),
    "dynamic": QConfig(dynamic=True),
    "int4_weight": QConfig(weight_bits=4, activation_bits=None),
    "seven_bits": QConfig(weight_bits=7, symmetric=False),
}


def adds_bytes() -> bool:
    """Whether the processor, at the level in use, adds products of bytes in 32 bits: VNNI.

    >>> adds_bytes() in (True, False)
    True
    """
    return hasattr(_core, "onednn_adds_bytes") and _core.onednn_adds_bytes()


def as_config(qconfig: QConfig | str | None, what: str) -> QConfig:
    """A QConfig, or the preset of that name; "auto": what is quick at the level in use."""
    if isinstance(qconfig, QConfig):
        return qconfig
    if qconfig is None or qconfig == "auto":
        return presets["min_max" if qconfig is None or adds_bytes() else "seven_bits"]
    if qconfig not in presets:
        raise ValueError(f"{what}: no preset {qconfig!r}; there are auto, {', '.join(presets)}")
    return presets[qconfig]


def config_of(
    name: str, qconfig: QConfig, overrides: Mapping[str, QConfig | str | None], what: str
) -> QConfig | None:
    """The choice for a layer: that of the last pattern that its name matches; None: it stays as it is.

    >>> config_of("block.0.conv", QConfig(), {"block.*": "ema", "*.conv": None}, "prepare_qat") is None
    True
    """
    result: QConfig | None = qconfig
    for pattern, chosen in overrides.items():
        if fnmatchcase(name, pattern):
            result = None if chosen is None else as_config(chosen, what)
    return result
