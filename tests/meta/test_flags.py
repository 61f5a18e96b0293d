"""The table of environment switches is complete: the sources read what it holds and nothing else."""

import ast
import re
from pathlib import Path

from weft.base import flags

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "src" / "weft" / "base" / "flags.py"
NAME = re.compile(r"\bWEFT_[A-Z0-9_]+")


def python_names(path):
    """Names in string literals that are not docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from NAME.findall(node.value)


def native_names(path):
    """Names in string literals; macros of that form are not switches."""
    for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', path.read_text()):
        yield from NAME.findall(literal)


def used():
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        if path != TABLE:
            found.update(python_names(path))
    for pattern in ("*.cpp", "*.h"):
        for path in (ROOT / "native").rglob(pattern):
            if "standin" not in path.relative_to(ROOT).parts:  # only in tests
                found.update(native_names(path))
    return found


def test_every_switch_that_is_read_is_in_the_table():
    assert used() - set(flags.FLAGS) == set()


def test_every_switch_in_the_table_is_read():
    assert set(flags.FLAGS) - used() == set()


def test_the_documentation_holds_the_table():
    assert flags.render() in (ROOT / "docs" / "environment.md").read_text()
