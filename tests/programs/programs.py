"""All small programs, by name: a function that makes the Case anew."""

import importlib
import pkgutil

from . import small
from .case import PROGRAMS, Call, Case, called

for _module in pkgutil.iter_modules(small.__path__):
    importlib.import_module(f"{small.__name__}.{_module.name}")

__all__ = ["PROGRAMS", "Call", "Case", "called"]
