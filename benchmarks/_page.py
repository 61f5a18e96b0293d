"""Parts of pages of docs/ that benchmarks write: tables between two lines, which are comments there."""

from collections.abc import Sequence
from pathlib import Path


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    lines = [[cell.replace("|", "/") for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put text, with these two lines around it, where they are in a page. Raises ValueError if they are not there."""
    old = page.read_text()
    if begin not in old or end not in old:
        raise ValueError(f"{page.name} has no lines {begin!r} and {end!r} to write between")
    page.write_text(f"{old.split(begin, 1)[0]}{begin}\n{text}\n\n{end}{old.split(end, 1)[1]}")
