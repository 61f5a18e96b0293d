"""docs/design/protocols.md lists every way in which a lower layer reaches a higher one."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "protocols.md").read_text()


def source():
    """The text of the package and of the native core."""
    files = [p for folder in ("src/weft", "native") for p in (ROOT / folder).rglob("*")]
    return "\n".join(p.read_text() for p in files if p.suffix in (".py", ".cpp", ".h"))


def test_attributes():
    assert set(re.findall(r"^\| `(__weft_\w+__)`", PAGE, re.MULTILINE)) == set(
        re.findall(r"__weft_\w+?__", source())
    )


def test_hooks():
    hooks = re.findall(r"^  H\((\w+),", (ROOT / "native/bindings/hooks.h").read_text(), re.MULTILINE)
    part = PAGE.partition("## Functions that native code calls")[2].partition("\n## ")[0]
    listed = [
        name
        for row in re.findall(r"^\| .+? \| (`.*) \|$", part, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(listed) == sorted(hooks)


def test_functions_that_a_layer_above_sets():
    """`set_...` functions that a module above calls at import, also as decorators."""
    found = {
        path.relative_to(ROOT / "src/weft").as_posix()
        for path in (ROOT / "src/weft").rglob("*.py")
        if re.search(r"^ *setattr\(Value, |^@?set_\w+(?:\(|$)", path.read_text(), re.MULTILINE)
    }
    assert found == {"arrays/tracer.py", "kernels/__init__.py"}
