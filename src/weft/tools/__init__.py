"""Tools for people: records of what a program does, pages that show them, and commands.

``python -m weft.tools`` lists the commands.

>>> import weft as wf
>>> with wf.tools.profile() as p:
...     y = wf.ones((8, 8)) @ wf.ones((8, 8))
>>> [row["operator"] for row in p.table()]
[...]
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weft.tools.anomaly import detect_anomaly as detect_anomaly
    from weft.tools.event_file import EventWriter as EventWriter
    from weft.tools.graph import draw as draw
    from weft.tools.memory import memory_summary as memory_summary
    from weft.tools.monitor import CSVLogger as CSVLogger
    from weft.tools.monitor import Monitor as Monitor
    from weft.tools.profiling import Profile as Profile
    from weft.tools.profiling import profile as profile
    from weft.tools.recording import mark_step as mark_step
    from weft.tools.statistics import summary as summary

_MODULE_OF = {
    "weft.tools.anomaly": ("detect_anomaly",),
    "weft.tools.event_file": ("EventWriter",),
    "weft.tools.monitor": ("CSVLogger", "Monitor"),
    "weft.tools.graph": ("draw",),
    "weft.tools.memory": ("memory_summary",),
    "weft.tools.profiling": ("Profile", "profile"),
    "weft.tools.recording": ("mark_step",),
    "weft.tools.statistics": ("summary",),
}
_LAZY = {name: module for module, names in _MODULE_OF.items() for name in names}

__all__ = sorted(_LAZY)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            from weft.base.name_hints import missing

            raise missing(__name__, name, lambda: __all__)
        value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
