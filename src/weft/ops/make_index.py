"""Writes index.py: which module defines which operator. Run by ``./dev stub``; a test compares.

>>> "relu" in index_of_modules()
True
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from weft.ops import index
from weft.ops.op import Op


def index_of_modules() -> dict[str, type[Op]]:
    """The operators that the package's modules define, by name, found by importing them all.

    Those of other layers, too (control flow, functions of Python): a file that is read may name any of them.
    """
    classes: dict[str, type[Op]] = {}
    before = dict(index.MODULE_OF)
    index.MODULE_OF.clear()  # what it says may be about to change
    for module in pkgutil.walk_packages([str(Path(__file__).parents[1])], "weft."):
        if module.name.rpartition(".")[2] in ("index", "make_index", "make_stubs"):
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(cls, type)
                and issubclass(cls, Op)
                and cls.__module__ == module.name
                and cls.registered
            ):
                classes[cls.name] = cls
    index.MODULE_OF.update(before)
    return dict(sorted(classes.items()))


def render(operators: dict[str, type[Op]]) -> str:
    """The text of index.py."""
    elsewhere = {name: cls for name, cls in operators.items() if not cls.__module__.startswith("weft.ops.")}
    operators = {name: cls for name, cls in operators.items() if name not in elsewhere}
    internal = [name for name, cls in operators.items() if not cls.public]
    methods = [name for name, cls in operators.items() if cls.public and cls.method]
    return "\n".join(
        [
            '"""Which module defines which operator; written by weft.ops.make_index."""',
            "",
            "MODULE_OF: dict[str, str] = {",
            *(f'    "{name}": "{cls.__module__}",' for name, cls in operators.items()),
            "}",
            "",
            "# Those of other layers, which are found by name only.",
            "ELSEWHERE: dict[str, str] = {",
            *(f'    "{name}": "{cls.__module__}",' for name, cls in elsewhere.items()),
            "}",
            "",
            "# Not for users: what gradients and plans are made of.",
            "INTERNAL: frozenset[str] = frozenset(",
            "    {",
            *(f'        "{name}",' for name in internal),
            "    }",
            ")",
            "",
            "# Also methods of arrays, with their signatures.",
            "METHODS: dict[str, str] = {",
            *(f'    "{name}": "{operators[name].method_signature()}",' for name in methods),
            "}",
            "",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("index.py").write_text(render(index_of_modules()))
