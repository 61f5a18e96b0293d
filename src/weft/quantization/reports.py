"""What became of each layer: its precision, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.quantization.conversion import Converted
from weft.quantization.simulated import Simulated

__all__ = ["Report", "Row", "report"]


@dataclass(frozen=True)
class Row:
    """One layer. weight, activation: their types; reason: why they are of these types."""

    layer: str
    weight: str
    activation: str
    reason: str


@dataclass(frozen=True)
class Report:
    """The layers of a quantized module; printed as a table. size_bytes: of a converted one, else None.

    rows: the products. between: operators between them, by name, with how often they are there.
    """

    rows: tuple[Row, ...]
    size_bytes: int | None = None
    between: tuple[Row, ...] = ()

    def __str__(self) -> str:
        table = [("layer", "weight", "activation", "reason")]
        table += [(r.layer, r.weight, r.activation, r.reason) for r in (*self.rows, *self.between)]
        widths = [max(len(line[k]) for line in table) for k in range(3)]
        lines = [
            "  ".join([*(text.ljust(n) for text, n in zip(line, widths, strict=False)), line[3]]).rstrip()
            for line in table
        ]
        if self.size_bytes is not None:
            lines.append(f"{self.size_bytes} bytes")
        return "\n".join(lines)


def report(module: Simulated | Converted) -> Report:
    """Each product of the module, the types that it computes with, and why; then the operators between them.

    module: what prepare_qat, calibrate or convert gave. Views are not listed. Products that Python code computes
    elsewhere (loops, user's kernels) are not listed. Raises TypeError for another module, ValueError for one that was
    never called.

    >>> import weft as wf
    >>> import weft.module as M
    >>> import weft.quantization as Q
    >>> net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
    >>> print(Q.report(Q.calibrate(net, [wf.ones((8, 4))], overrides={"2": None})))
    layer  weight   activation  reason
    0      int8     uint8       min_max
    2      float32  float32     excluded by overrides
    relu   -        float32     pointwise, in a kernel or loop of its neighbours
    """
    if isinstance(module, Converted):
        rows = tuple(_row(module, name) for name in module.names)
        return Report(rows, module.size_bytes(), _between(module.between))
    if not isinstance(module, Simulated):
        raise TypeError(
            f"report: takes what prepare_qat, calibrate or convert gives, got {type(module).__name__}"
        )
    if not module.is_begun:
        raise ValueError(
            "report: the module was never called, so nothing is chosen yet; call it, or give example="
        )
    types = {name: q.dtype for name, q in module.activations.items() if q.enabled}
    rows = tuple(_simulated_row(module, name) for name in module.names)
    return Report(rows, None, _between(module.latest().between(types)))


def _between(counts: Mapping[tuple[str, str, str], int]) -> tuple[Row, ...]:
    """Rows of what Network.between has counted."""
    return tuple(
        Row(f"{name} x{n}" if n > 1 else name, "-", dtype, reason)
        for (name, dtype, reason), n in counts.items()
    )


def _row(module: Converted, name: str) -> Row:
    if name in module.reasons:
        return Row(name, "float32", "float32", module.reasons[name])
    stored = module.stored[name]
    if stored.reads == "floats":
        bits = "int4" if stored.weight.dtype.name == "uint8" else _bits_of(stored)
        return Row(name, bits, "float32", "weights alone")
    weight = _bits_of(stored) if stored.weight.size else "-"
    kernel = "integer kernel" + (", a step for each row" if stored.reads == "rows" else "")
    return Row(name, weight, module.types[name], kernel)


def _bits_of(stored: Any) -> str:
    """Weights of 7 bits are in bytes, too."""
    narrow = any(part.narrow for part in stored.parts.values()) if hasattr(stored, "parts") else stored.narrow
    return "int7" if narrow else "int8"


def _simulated_row(module: Simulated, name: str) -> Row:
    if name in module.reasons:
        return Row(name, "float32", "float32", module.reasons[name])
    weight: Any = module.weights.get(name)
    bits = "-" if weight is None else f"int{weight.config.weight_bits}"
    if weight is not None and weight.config.activation_bits is None:
        return Row(name, bits, "float32", "weights alone")
    if weight is not None and weight.config.dynamic:
        return Row(name, bits, "int8", "dynamic, a step for each row")
    sources = [module.activations[source] for source in module.sources[name]]
    types = ", ".join(dict.fromkeys(q.dtype for q in sources))
    rule = sources[0].config
    return Row(name, bits, types, rule.observer if rule.estimator == "straight_through" else rule.estimator)
