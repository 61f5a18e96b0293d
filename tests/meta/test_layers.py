"""Imports go down: the table of layers, and a check of every import below src/weft against it.

Read from the syntax tree, so that imports in functions and under TYPE_CHECKING count as well. The native core imports
nothing of weft: what it asks of Python is registered (native/bindings/hooks.h). Below the bindings no file knows
Python.
"""

import ast
import re
import textwrap
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "weft"

# Lowest first. The names of one row are siblings: they know the rows below, not each other.
LAYERS = [
    ["base"],
    ["_core"],
    ["_preload"],
    ["engine"],
    ["storage"],
    ["expr"],
    ["ops"],
    ["kernels"],
    ["graph"],
    ["executor"],
    ["arrays"],
    ["recording"],
    ["gradients"],
    ["transform"],
    ["control_flow", "python_op", "traces"],
    ["functional", "random", "symbol"],
    ["fft", "linalg", "sparse"],
    [
        "module",
        "optimizer",
        "data",
        "metrics",
        "checkpoint",
        "amp",
        "operator",
    ],
    ["distributed"],  # data parallelism is for modules and optimizers
    ["quantization"],  # of modules; statistics of all ranks
    ["kvstore"],
    ["interop"],  # files and networks of other frameworks
    ["models"],
    ["tools", "testing", "utils", "info"],
    ["launch"],  # starts programs, and tools that look at them
    [""],  # weft/__init__.py: lends every name and is imported by nobody
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}

# (importing module, imported module): why it may.
EXCEPTIONS: dict[tuple[str, str], str] = {}


NATIVE = SOURCE.parents[1] / "native"
# Texts of the bindings that begin with the package's name, and import nothing.
NAMES = {
    "weft.Tensor": "the name of the type",
    "weft.memory": "the name of a capsule",
    "weft.functional": "the __module__ of operators' functions",
    "weft._core": "the module itself, in errors",
}


def modules():
    """Dotted name -> path of every module, "weft" included."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, text, *, is_package, known):
    """(line, module of weft) for every import in a module's text, however it is written."""

    def resolve(base, member):
        """`from base import member` means the submodule where there is one; the native one counts."""
        full = f"{base}.{member}"
        return full if full in known or full == "weft._core" else base

    for node in ast.walk(ast.parse(text)):
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if is_package else name.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *([node.module] if node.module else [])])
            targets = [resolve(base, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            constant = node.args and isinstance(node.args[0], ast.Constant)
            if called in ("import_module", "__import__") and constant:
                targets = [node.args[0].value]
        for target in targets:
            if target == "weft" or target.startswith("weft."):
                yield node.lineno, target


def layer(module):
    return [*module.split("."), ""][1]


def complaint(name, line, target):
    """What is wrong with this import, or None."""
    above, below = layer(name), layer(target)
    if below not in RANK:
        return f"{name}:{line}: {target} is in no layer; add it to LAYERS"
    if above == below or (name, target) in EXCEPTIONS or RANK[below] < RANK[above]:
        return None
    direction = "sideways" if RANK[below] == RANK[above] else "upwards"
    return (
        f"{name}:{line} imports {target}: {direction}, from layer {above or 'weft'!r} to {below or 'weft'!r}"
    )


def check(sources):
    """All complaints about {module: (text, is_package)}."""
    found = []
    for name, (text, is_package) in sources.items():
        if layer(name) not in RANK:
            found.append(f"{name} is in no layer; add it to LAYERS")
            continue
        lines = imports(name, text, is_package=is_package, known=sources)
        found += filter(None, (complaint(name, line, target) for line, target in lines))
    return found


def cycle(sources):
    """Modules that import each other in a ring, or None; without the root package, which only lends names."""
    graph = {}
    for name, (text, is_package) in sources.items():
        targets = {target for _, target in imports(name, text, is_package=is_package, known=sources)}
        graph[name] = targets - {"weft", name}
    del graph["weft"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.fixture(scope="module")
def sources():
    return {name: (path.read_text(), path.name == "__init__.py") for name, path in modules().items()}


def test_imports_go_down(sources):
    found = check(sources)
    assert not found, "\n".join(found)


def test_the_picture_of_the_layers_is_this_table():
    """docs/design/README.md: a row of packages for each row of LAYERS, the highest first."""
    page = (SOURCE.parents[1] / "docs" / "design" / "README.md").read_text()
    picture = page.split("## Layers")[1].split("```")[1]
    rows = [line.split("  ")[0].split() for line in picture.strip("\n").splitlines()]
    shown = [["" if name == "weft" else name for name in row] for row in rows]
    assert shown == [sorted(row) for row in reversed(LAYERS)]


def test_no_cycles(sources):
    assert cycle(sources) is None


def test_every_exception_is_used(sources):
    used = {
        (name, target)
        for name, (text, is_package) in sources.items()
        for _, target in imports(name, text, is_package=is_package, known=sources)
    }
    assert set(EXCEPTIONS) <= used


def test_base_needs_only_the_standard_library_and_numpy(sources):
    import sys

    allowed = {*sys.stdlib_module_names, "numpy", "ml_dtypes", "weft"}
    for name, (text, _) in sources.items():
        if layer(name) == "base":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Import):
                    assert {alias.name.split(".")[0] for alias in node.names} <= allowed, name
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    assert node.module.split(".")[0] in allowed, name


def named_by(text):
    """The modules of weft that the strings of C++ code name, and what is imported by any other string."""
    code = re.sub(r"//.*", "", text)
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', code)
    found = [name for each in strings for name in re.findall(r"^weft(?:\.\w+)*(?=$|[^\w'])", each)]
    imports = re.findall(r"(?:import_|PyImport_\w+)\s*\(([^)]*)\)", code)
    return {name for name in found if name not in NAMES} | {each for each in imports if "weft" in each}


def test_the_native_core_imports_nothing_of_weft():
    sources_of_bindings = sorted((NATIVE / "bindings").glob("*.[ch]*"))
    found = {path.name: names for path in sources_of_bindings if (names := named_by(path.read_text()))}
    assert found == {}
    used = {name for path in sources_of_bindings for name in NAMES if f'"{name}' in path.read_text()}
    assert used == set(NAMES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('static constinit Imported find("weft.ops.registry", "function");', {"weft.ops.registry"}),
        ('nb::module_::import_("weft.base.errors").attr(type)', {"weft.base.errors", '"weft.base.errors"'}),
        ('own("weft", "__file__")', {"weft"}),
        ('PyImport_ImportModule("weft.engine")', {"weft.engine", '"weft.engine"'}),
        ('nb::str module("weft.functional");', set()),
        ('m.doc() = "weft\'s native core";  // "weft.base"', set()),
    ],
)
def test_the_check_of_bindings_itself(text, found):
    assert named_by(text) == found


def test_only_the_bindings_know_python():
    found = [
        f"{path.relative_to(NATIVE)}: {line}"
        for path in sorted(NATIVE.rglob("*.[ch]*"))
        if path.relative_to(NATIVE).parts[0] != "bindings" and path.suffix != ".pyc"
        for line in path.read_text().splitlines()
        if re.match(r'\s*#\s*include\s*[<"](Python\.h|nanobind|bindings/)', line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import weft.graph",
        "from weft.graph import Node",
        "from weft import graph",
        "from ..graph import Node",
        "import weft",
        "from weft import Tensor",
        "def f():\n    import weft.graph",
        "if TYPE_CHECKING:\n    from weft.graph import Node",
        "import importlib\nimportlib.import_module('weft.graph')",
        "from weft.storage import Pool",
    ],
)
def test_the_check_itself(text):
    tree = {
        "weft": ("", True),
        "weft.engine": (textwrap.dedent(text), True),
        "weft.engine.face": ("from ..base import errors\nfrom weft import _core\nfrom . import parts", False),
        "weft.graph": ("", True),
    }
    if text.startswith("from .."):
        tree["weft.engine"], tree["weft.engine.x"] = ("", True), (text, False)
    assert len(check(tree)) == 1, check(tree)


def test_the_cycle_check_itself():
    ring = {
        "weft": ("", True),
        "weft.graph.a": ("from . import b", False),
        "weft.graph.b": ("import weft.graph.a", False),
    }
    assert set(cycle(ring)) == {"weft.graph.a", "weft.graph.b"}
