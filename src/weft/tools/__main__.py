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
    found = {}
    for each in pkgutil.iter_modules(weft.tools.__path__):
        if each.name == "__main__":
            continue
        module = importlib.import_module(f"weft.tools.{each.name}")
        if callable(getattr(module, "main", None)):
            found[each.name] = (module.__doc__ or "").strip().splitlines()[0]
    return found


def main() -> int:
    """Prints the list; returns the exit status."""
    found = tools()
    width = max(map(len, found))
    print("python -m weft.tools.NAME [--help]\n")
    for name, what in found.items():
        print(f"  {name:{width}}  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
