"""Every example in the documentation runs: in docstrings of all modules, in README.md and in docs/."""

import doctest
import functools
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft
import weft.functional as F
from weft.kernels import without

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


FOREIGN = sorted((ROOT / "docs" / "coming-from").glob("*.md"))


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_tables_for_users_of_other_libraries_name_what_there_is(path):
    for row in path.read_text().splitlines():
        ours = row.split("|")[2] if row.startswith("| ") else ""
        for names in re.findall(r"`[^`]*?\b(?:wf|weft)((?:\.[A-Za-z_]\w*)+)", ours):
            found = importlib.import_module("weft")
            for name in names[1:].split("."):
                found = (
                    getattr(found, name)
                    if hasattr(found, name)
                    else importlib.import_module(f"{found.__name__}.{name}")
                )
        for method in re.findall(r"\bx\.([a-z_]+)", ours):
            assert hasattr(weft.ones(1), method), row


def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name():
    pages = reference()
    pages.facts = pages.class_facts = lambda x: ()  # planned for each operator; see below
    assert {f"weft.{name}" for name in weft._SUBPACKAGES} <= set(pages.MODULES)
    for name in pages.MODULES:
        module, text = importlib.import_module(name), pages.page(name)
        if name == "weft.functional":
            wanted = weft.ops.registry.public_names()
        else:
            wanted = getattr(module, "__all__", None) or [
                each
                for each, x in vars(module).items()
                if not each.startswith("_") and (getattr(x, "__module__", None) or "").startswith("weft")
            ]
        assert wanted, name
        for each in wanted if name != "weft" else pages.public_names(module):
            if not inspect.ismodule(getattr(module, each)) and callable(getattr(module, each)):
                assert f"\n## {each}\n" in text, f"{name}.{each}"


def facts_in_reference(names):
    pages = reference()
    return {name: "\n".join(pages.facts(name)) for name in names}


def test_the_reference_says_dtypes_gradients_and_devices():
    facts = facts_in_reference(["argmax", "cholesky", "det", "matmul", "matrix_norm", "relu"])
    assert facts["argmax"] == "Dtypes: bool, integers, floats.\nIt has no gradient.\nDevices: cpu, gpu."
    assert facts["matmul"].startswith("Dtypes: integers, floats, complex numbers.\nIts gradient is a rule")
    assert facts["cholesky"].startswith("Dtypes: float32, float64, complex numbers.")
    assert all(facts[name].endswith("Devices: cpu, gpu.") for name in ("det", "matrix_norm"))
    with without("native"):  # kernels of GPUs that are no loops
        facts = facts_in_reference(["det", "matrix_norm"])
    assert facts["det"].endswith("Devices: cpu; `lu_factor` has no kernel for a gpu.")
    assert facts["matrix_norm"].endswith("Devices: cpu, gpu except where it needs `svd`.")
    text = reference().markdown(F.matmul.__doc__)
    assert "```python\n    " not in text  # paragraphs are not taken for code
    assert "Inputs and outputs" in text


def test_the_reference_says_dtypes_and_devices_of_layers_and_optimizers():
    pages = reference()
    pages.plans = lambda name: ((), True)
    for name, base in (("module", weft.module.Module), ("optimizer", weft.optimizer.Optimizer)):
        module = importlib.import_module(f"weft.{name}")
        for each in pages.public_names(module):
            cls = getattr(module, each)
            if inspect.isclass(cls) and issubclass(cls, base) and cls is not base:
                text = " ".join(pages.class_facts(cls))
                assert re.fullmatch(r"Dtypes.* (devices: those of [a-z ]+|Devices: cpu.*)\.", text), each
    line = "Dtypes and gradients: those of `conv2d`, `pad`. Devices: cpu, gpu."
    assert " ".join(pages.class_facts(weft.module.LazyConv2d)) == line
    assert " ".join(pages.class_facts(weft.optimizer.AdamW)).startswith("Dtypes: those of `adam_update`.")
    line = " ".join(pages.class_facts(weft.optimizer.SAM))
    assert line.startswith("Dtypes and devices: those of the optimizer that it has, `abs`, ")
    for cls in (weft.optimizer.MasterWeights, weft.optimizer.AveragedParameters):
        assert " ".join(pages.class_facts(cls)).endswith("arithmetic.")
    assert not [*pages.class_facts(weft.module.Handle)]


@pytest.mark.full
def test_the_reference_says_so_of_every_operator():
    for name, text in facts_in_reference(weft.ops.registry.public_names()).items():
        assert re.fullmatch(r"Dtypes: \w.*\.\nIt.*\nDevices: cpu.*\.", text), (name, text)
        assert ">>>" in getattr(F, name).__doc__, name


def test_the_site_builds_and_is_searched(tmp_path):
    """Strictly: a link or an anchor that leads nowhere, and a page outside of the navigation, are errors.

    Not with --quiet: it drops the warnings that --strict counts.
    """
    pytest.importorskip("mkdocs")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    for wanted in ("clip_grad_norm", "scaled_dot_product_attention", "What a trace guards"):
        assert any(wanted in page["title"] or wanted in page["text"] for page in index), wanted
