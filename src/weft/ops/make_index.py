"""Writes index.py: which module defines which operator. Run by ``./dev stub``; a test compares.

>>> "relu" in index_of_modules()
True
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import weft.ops


def index_of_modules() -> dict[str, str]:
    """The operators that the package's modules define, found by importing them all."""
    from weft.ops.op import Op

    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(weft.ops.__path__, "weft.ops."):
        if module.name.rpartition(".")[2] in ("index", "make_index"):
            continue
        names = vars(importlib.import_module(module.name)).values()
        for cls in names:
            if (
                isinstance(cls, type)
                and issubclass(cls, Op)
                and cls.__module__ == module.name
                and cls.registered
            ):
                found[cls.name] = module.name
    return dict(sorted(found.items()))


def render(index: dict[str, str]) -> str:
    """The text of index.py."""
    lines = [
        '"""Which module defines which operator; written by weft.ops.make_index."""',
        "",
        "MODULE_OF: dict[str, str] = {",
        *(f'    "{name}": "{module}",' for name, module in index.items()),
        "}",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("index.py").write_text(render(index_of_modules()))
