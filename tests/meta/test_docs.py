"""Every example in the documentation runs: in docstrings of all modules, in README.md and in docs/."""

import doctest
import functools
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
MODULES = sorted(["weft", *(module.name for module in pkgutil.walk_packages(weft.__path__, "weft."))])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(test):
    text = []
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=text.append)
    assert not result.failed, "".join(text)


def examples(name):
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    for test in examples(name):
        run(test)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text().replace("```", "\n")  # an example ends where its block ends
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, path.name, str(path), 0)
    run(test)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is(name):
    doc = importlib.import_module(name).__doc__
    if name != "weft._core":
        assert doc
        assert doc.strip()


@pytest.mark.parametrize("name", [name for name in MODULES if "._" not in name])
def test_every_public_name_is_documented(name):
    module = importlib.import_module(name)
    names = [] if name == "weft" else getattr(module, "__all__", [])
    missing = [
        each for each in names if callable(getattr(module, each)) and not getattr(module, each).__doc__
    ]
    assert not missing


# Design notes: what they name is there.

NOTES = sorted((ROOT / "docs" / "design").glob("*.md"))


@functools.cache
def words_of_code():
    files = [p for part in ("native", "src") for p in (ROOT / part).rglob("*")]
    texts = (p.read_text() for p in files if p.suffix in (".py", ".pyi", ".cpp", ".h"))
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.name)
def test_design_notes_name_files_and_functions_that_exist(path):
    text = path.read_text()
    files = re.findall(r"\b(?:native|src|tests|weft|docs|benchmarks)/[\w/]+\.(?:py|cpp|h)\b", text)
    missing = {f for f in files if not any((ROOT / part / f).exists() for part in ("", "src"))}
    names = re.findall(r"`[^`\n]*?\b([A-Z][a-z]\w*(?:::|\.)[a-z]\w+|_core\.\w+)\b[^`\n]*`", text)
    missing |= {name for name in names if set(re.findall(r"\w+", name)) - words_of_code()}
    assert not missing


def test_the_notes_on_calls_follow_functions_through_their_files():
    """Lines of eager.md's picture: the names on the left are in the file on the right, or in the last one named."""
    picture = (ROOT / "docs/design/eager.md").read_text().split("```")[1]
    file = None
    for line in picture.splitlines():
        found = re.search(r"(?:native|src)/\S+\.(?:cpp|py)", line)
        file = found[0] if found else file
        names = re.findall(r"\b(?:\w+::\w+|[a-z]+_[a-z_]+)\b", line.replace(found[0] if found else "", ""))
        if file and names:
            text = (ROOT / file).read_text()
            assert any(n in text or n.split("::")[-1] in text for n in names), line
