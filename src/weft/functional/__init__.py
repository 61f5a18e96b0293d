"""The functions of all operators: on arrays, and on the values of graphs.

Made from the operators' classes when they are first used; ``dir(weft.functional)`` lists them.

>>> import weft as wf
>>> import weft.functional as F
>>> F.relu(wf.tensor([-1., 2.]))
tensor([0., 2.], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from weft import imperative as _imperative  # noqa: F401 - so that functions can be planned
from weft.base.typing import Any
from weft.ops import registry as _registry


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    function = _registry.function(name)
    if _registry.is_builtin(name):
        globals()[name] = function
    return function


def __dir__() -> list[str]:
    return _registry.public_names()
