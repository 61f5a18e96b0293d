"""How much each layer's rounding costs, as a mapping, a table and a plot."""

from __future__ import annotations

from html import escape

__all__ = ["Sensitivity"]

ROW, CHARACTER, LENGTH, MARGIN = 22, 7.3, 360.0, 12.0  # pixels
WORSE, BETTER = "#c1440e", "#3a7d44"


class Sensitivity(dict[str, float]):
    """The drop of a measure for each layer, by the layer's name, the largest drop first; a dict.

    Printed as a table; to_svg is the plot, which notebooks show.

    >>> print(Sensitivity({"stem": 0.25, "head": -0.5}))
    layer  drop
    stem   0.25
    head   -0.5
    """

    def __str__(self) -> str:
        width = max(map(len, ("layer", *self)))
        return "\n".join(f"{name:{width}}  {drop}" for name, drop in self._rows(("layer", "drop")))

    def _rows(self, *head: tuple[str, str]) -> list[tuple[str, str]]:
        return [*head, *((name, f"{drop:.4g}") for name, drop in self.items())]

    def to_svg(self) -> str:
        """A bar for each layer, from zero: to the right if the measure drops, to the left if it rises.

        >>> Sensitivity({"stem": 0.25, "head": -0.5}).to_svg().count("<rect")
        2
        """
        low, high = min([0.0, *self.values()]), max([0.0, *self.values()])
        scale = LENGTH / ((high - low) or 1.0)
        left = MARGIN + max(map(len, ("layer", *self))) * CHARACTER + 8
        zero, height = left - low * scale, ROW * (len(self) + 1) + MARGIN
        width = left + LENGTH + 12 * CHARACTER + MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" style="background:#fff; font:12px ui-monospace, monospace">',
            _text(MARGIN, 0, "layer"),
            _text(left, 0, "drop of the measure, this layer alone quantized"),
        ]
        for k, (name, number) in enumerate(self._rows(), 1):
            drop = self[name]
            parts.append(_text(MARGIN, k, name))
            parts.append(
                f'<rect x="{zero + min(drop, 0.0) * scale:.1f}" y="{k * ROW + 4}" width="{abs(drop) * scale:.1f}" '
                f'height="{ROW - 6}" fill="{WORSE if drop > 0 else BETTER}"/>'
            )
            parts.append(_text(zero + max(drop, 0.0) * scale + 6, k, number))
        parts.append(f'<path d="M{zero:.1f} {ROW}V{height:.0f}" stroke="#333"/>')
        return "\n".join([*parts, "</svg>\n"])

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _text(x: float, row: int, text: str) -> str:
    return f'<text x="{x:.1f}" y="{row * ROW + 16}" fill="#222">{escape(text)}</text>'
