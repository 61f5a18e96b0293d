"""A plot of ratios as SVG: for each workload what weft takes, beside the best peer, its bar and its aim."""

from html import escape

from _report import Report
from _show import listed

ROW, TOP, LEFT, SCALE = 26, 46, 230, 330  # pixels; SCALE of a ratio of 1
LARGEST = 1.6  # longer bars are cut, with their number beside them
COLORS = {True: "#3a7d44", False: "#c1440e", None: "#5b7089"}


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def _line(x: float, y0: float, y1: float, color: str, width: float, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0}" y2="{y1}" stroke="{color}" stroke-width="{width}"{dashes}/>'


def plot(report: Report) -> str:
    """A bar is the run that is worst for weft, which decides; dots are all runs."""
    rows = []
    for row in report.rows():
        outcomes = row.outcomes()
        if ratios := [outcome.ratio for outcome in outcomes if outcome.ratio is not None]:
            rows.append((row, ratios))
    height, width = TOP + ROW * len(rows) + 14, LEFT + SCALE * LARGEST + 220
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width:.0f}" height="{height}" fill="#fff"/>',
        _text(
            LEFT,
            18,
            "weft / best peer, the worst run and each: less is better. Lines: the bar (black), the aim (grey).",
        ),
        _line(LEFT + SCALE, TOP - 12, height - 10, "#888", 1, "4 3"),
    ]
    for k, (row, ratios) in enumerate(rows):
        y, other = TOP + ROW * k, row.whole.other
        assert other
        length = SCALE * min(max(ratios), LARGEST)
        parts.append(_text(LEFT - 8, y + 13, row.name, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 8}" fill="{COLORS[row.holds()]}"/>'
        )
        for ratio in ratios:
            x = LEFT + SCALE * min(ratio, LARGEST)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y + (ROW - 8) / 2:.1f}" r="2.5" fill="#fff" stroke="#333"/>'
            )
        parts.append(_text(LEFT + length + 8, y + 13, f"{listed(ratios)}  of {other.side}", color="#111"))
        if goal := row.goal:
            for limit, mark in ((goal.bar, "#000"), (goal.aim, "#999")):
                parts.append(_line(LEFT + SCALE * limit, y - 3, y + ROW - 5, mark, 2))
    return "\n".join([*parts, "</svg>"]) + "\n"
