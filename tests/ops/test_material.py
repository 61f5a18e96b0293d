"""What tests know of operators is here and not in the package; every public operator has samples."""

import ast
from pathlib import Path

import pytest
import tests.ops.material  # noqa: F401  (samples of operators)

import weft
from weft.ops.registry import get, public_names

PACKAGE = Path(weft.__file__).parent
RULES = {"samples", "errors", "reference", "torch_reference"}


@pytest.mark.parametrize("name", public_names())
def test_every_public_operator_has_samples(name):
    assert list(get(name).samples()), f"tests/ops/material: {name} has no samples"


def test_the_package_has_no_samples_of_its_operators():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for cls in ast.walk(ast.parse(path.read_text())):
            if isinstance(cls, ast.ClassDef) and any(ast.unparse(d) == "op" for d in cls.decorator_list):
                own = {f.name for f in cls.body if isinstance(f, ast.FunctionDef)} & RULES
                if own:
                    found.setdefault(str(path.relative_to(PACKAGE)), set()).add(cls.name)
    assert not found
