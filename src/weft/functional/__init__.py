"""The functions of all operators: on arrays, and on the values of graphs.

Made from the operators' classes when they are first used; ``dir(weft.functional)`` lists them.

>>> import weft as wf
>>> import weft.functional as F
>>> F.relu(wf.tensor([-1., 2.]))
tensor([0., 2.], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from weft import arrays as _arrays  # noqa: F401 - so that functions can be planned
from weft.base.typing import Any
from weft.functional import drawn as _drawn
from weft.functional import losses as _losses
from weft.functional.drawn import *  # noqa: F403
from weft.functional.losses import *  # noqa: F403
from weft.ops import registry as _registry

# NumPy's and PyTorch's names of functions that have the array API's here.
_ALIASES = {
    "concatenate": "concat",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "ravel": "flatten",
}
_WRITTEN = (*_drawn.__all__, *_losses.__all__)  # functions that are no operators


def is_kept(name: str) -> bool:
    """Whether a name means the same function for ever: not that of a user's operator, which may be made again."""
    return name in _ALIASES or name in _WRITTEN or _registry.is_builtin(name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    operator = _ALIASES.get(name, name)
    cls = _registry.find(operator)
    if cls is None or not cls.public:
        from weft.base.name_hints import missing

        raise missing(__name__, name, __dir__)
    function = _registry.function(operator)
    if is_kept(name):
        globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted([*_registry.public_names(), *_WRITTEN, *_ALIASES])
