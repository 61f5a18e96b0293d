"""The list of all tools: python -m weft.tools."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import weft.tools

__all__ = ["main", "tools"]


def tools() -> dict[str, str]:
    """The name of each command, and what it does: the modules here that have a `main`, by their first lines.

    >>> "profiler" in tools()
    True
    """
    descriptions = {}
    for each in pkgutil.iter_modules(weft.tools.__path__):
        if each.name == "__main__":
            continue
        module = importlib.import_module(f"weft.tools.{each.name}")
        if callable(getattr(module, "main", None)):
            descriptions[each.name] = (module.__doc__ or "").strip().splitlines()[0]
    return descriptions


def main() -> int:
    """Prints the list; returns the exit status."""
    commands = tools()
    width = max(map(len, commands))
    print("python -m weft.tools.NAME [--help]\n")
    for name, description in commands.items():
        print(f"  {name:{width}}  {description}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
