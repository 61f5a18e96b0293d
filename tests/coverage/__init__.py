"""Inventories of names of other libraries and standards, and the place in weft of each.

A file has a line for each name: `name`, `name place` where it is called otherwise here, or `name -` where weft has
nothing like it; then tests/known_gaps.txt says why. Places are paths below weft. A line with # is a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import weft

# Title, and where names are that have no place in the file.
INVENTORIES = {
    "array_api": ("Python array API standard", ""),
    "torch_functional": ("torch.nn.functional", "functional."),
    "torch_nn": ("torch.nn", "module."),
    "torch_optim": ("torch.optim, its schedules and utilities of torch.nn", "optimizer."),
    "mxnet": ("MXNet's operators", "functional."),
    "gluon": ("Gluon", "module."),
    "megengine": ("MegEngine", "functional."),
}


class Entry(NamedTuple):
    """A name of an inventory, and its place below weft; is_gap: there is nothing like it."""

    name: str
    place: str
    is_gap: bool

    def is_there(self) -> bool:
        """Whether weft has something at the place."""
        try:
            attrgetter(self.place)(weft)
        except AttributeError:
            return False
        return True


def entries(inventory: str) -> Iterator[Entry]:
    """The lines of an inventory's file."""
    base = INVENTORIES[inventory][1]
    for line in (Path(__file__).parent / f"{inventory}.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, *rest = line.split()
            if len(rest) > 1:
                raise ValueError(f"{inventory}.txt: a line has a name and one place, got {line!r}")
            is_gap = rest == ["-"]
            yield Entry(name, base + name if is_gap or not rest else rest[0], is_gap)


def of_torch(torch: object) -> dict[str, set[str]]:
    """The public names of an installed PyTorch, by inventory."""
    import inspect

    nn, functional = attrgetter("nn", "nn.functional")(torch)
    helpers = ("torch._jit", "torch.overrides", "typing")
    is_public = {
        name
        for name, x in vars(functional).items()
        if callable(x)
        and not inspect.isclass(x)
        and not (getattr(x, "__module__", "") or "").startswith(helpers)
        and not name.startswith(("_", "has_torch", "assert_"))
    }
    module = nn.Module
    layers = {name for name, x in vars(nn).items() if inspect.isclass(x) and issubclass(x, module)}
    optim, schedules = attrgetter("optim", "optim.lr_scheduler")(torch)
    classes = {
        name for name, x in vars(optim).items() if inspect.isclass(x) and issubclass(x, optim.Optimizer)
    }
    rates = {
        name
        for name, x in vars(schedules).items()
        if inspect.isclass(x) and x.__module__ == schedules.__name__ and not name.startswith("_")
    }
    return {"torch_functional": is_public, "torch_nn": layers, "torch_optim": classes | rates}
