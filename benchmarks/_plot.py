"""A plot of ratios as SVG: for each workload what weft takes, beside the best peer, its bar and its aim."""

from html import escape

from _report import Report, cost, goal_of, holds, split

ROW, TOP, LEFT, SCALE = 26, 46, 230, 330  # pixels; SCALE of a ratio of 1
LARGEST = 1.6  # longer bars are cut, with their number beside them
COLORS = {True: "#3a7d44", False: "#c1440e", None: "#5b7089"}


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def _line(x: float, y0: float, y1: float, color: str, width: float, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0}" y2="{y1}" stroke="{color}" stroke-width="{width}"{dashes}/>'


def plot(report: Report) -> str:
    rows = []
    for workload, precision in report.groups():
        results = report.of(workload.name, precision)
        ours, other = split(results)
        if ours and other:
            rows.append((workload, precision, results, other, cost(ours) / cost(other)))
    height, width = TOP + ROW * len(rows) + 14, LEFT + SCALE * LARGEST + 220
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width:.0f}" height="{height}" fill="#fff"/>',
        _text(LEFT, 18, "weft / best peer: less is better. Short lines: the bar (black), the aim (grey)."),
        _line(LEFT + SCALE, TOP - 12, height - 10, "#888", 1, "4 3"),
    ]
    for k, (workload, precision, results, other, ratio) in enumerate(rows):
        y = TOP + ROW * k
        length = SCALE * min(ratio, LARGEST)
        color = COLORS[holds(workload, precision, results)]
        parts.append(_text(LEFT - 8, y + 13, f"{workload.name} {precision}", "end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 8}" fill="{color}"/>')
        parts.append(_text(LEFT + length + 6, y + 13, f"{ratio:.2f}  of {other.side}", color="#111"))
        if goal := goal_of(workload, precision):
            for limit, mark in ((goal.bar, "#000"), (goal.aim, "#999")):
                parts.append(_line(LEFT + SCALE * limit, y - 3, y + ROW - 5, mark, 2))
    return "\n".join([*parts, "</svg>"]) + "\n"
