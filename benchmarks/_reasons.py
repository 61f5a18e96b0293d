"""Why rows miss their bars: reasons.toml, which a person edits, read for the tables."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "reasons.toml"
NONE = f"No reason is written down in {FILE.parent.name}/{FILE.name}"


@dataclass(frozen=True)
class Reason:
    """why: a sentence or two. see: the profile, as a page below docs/ and its section."""

    why: str
    see: str

    @property
    def text(self) -> str:
        return f"{self.why} (docs/{self.see})"

    @property
    def markdown(self) -> str:
        return f"{self.why} ([profile]({self.see}))"


def reasons(program: str) -> dict[str, Reason]:
    """Of the rows of a program of this folder, by their names; of workloads "name precision"."""
    tables = tomllib.loads(FILE.read_text())
    return {row: Reason(**reason) for row, reason in tables.get(program, {}).items()}
