"""Every example in the documentation runs: in docstrings of all modules, in README.md and in docs/."""

import doctest
import importlib
import pkgutil
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
