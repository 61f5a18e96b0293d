"""Why rows miss their bars: reasons.toml, which a person edits, read for the tables."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

FILE = Path(__file__).parent / "reasons.toml"
NONE = f"No reason is written down in {FILE.parent.name}/{FILE.name}"


@dataclass(frozen=True)
class Reason:
    """why: a sentence or two. see: the profile, as a page below docs/ and its section.

    rows: of a class of rows, a pattern of their names, as of files; beside: the peer that the class is about;
    within_us: it explains no more than so many microseconds over that peer's time.
    """

    why: str
    see: str
    rows: str = ""
    beside: str = ""
    within_us: float = 0.0

    @property
    def text(self) -> str:
        return f"{self.why} (docs/{self.see})"

    @property
    def markdown(self) -> str:
        return f"{self.why} ([profile]({self.see}))"

    def explains(self, row: "Missed") -> bool:
        """Whether a row is of this class."""
        return (
            fnmatchcase(row.name, self.rows)
            and self.beside in row.unit
            and row.behind_us is not None
            and row.behind_us <= self.within_us
        )


class Missed(Protocol):
    """A row of a table. behind_us: weft's time less the other side's, None where there is no such time."""

    name: str
    unit: str

    @property
    def behind_us(self) -> float | None: ...


def reasons(program: str) -> dict[str, Reason]:
    """Of the rows of a program of this folder, by their names; of workloads "name precision"."""
    tables = tomllib.loads(FILE.read_text())
    return {row: Reason(**reason) for row, reason in tables.get(program, {}).items()}


def reason_of(known: Mapping[str, Reason], row: Missed) -> Reason | None:
    """That of the row's name; else of the longest beginning of it before a comma; else of a class."""
    name = row.name
    while True:
        if name in known:
            return known[name]
        name, comma, _ = name.rpartition(", ")
        if not comma:
            return next((reason for reason in known.values() if reason.rows and reason.explains(row)), None)
