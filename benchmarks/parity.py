"""Counts the names of torch.nn.functional and torch.nn that weft has, and prints those that it lacks.

Run it where PyTorch is installed, too: ``python benchmarks/parity.py``. Names that end in "_" (in place) or are
arguments here, such as those for the results with indices, count as what they do.
"""

from __future__ import annotations

import inspect

import weft.functional as F
import weft.module as M

FUNCTIONS = {
    "adaptive_max_pool1d_with_indices": "adaptive_max_pool1d_with_indices",
    "celu_": "celu",
    "conv_transpose1d": "conv_transpose1d",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "logsigmoid": "log_sigmoid",
    "upsample": "interpolate",
    "upsample_bilinear": "interpolate",
    "upsample_nearest": "interpolate",
    "multi_head_attention_forward": "scaled_dot_product_attention",
}
MODULES = {"Hardsigmoid": "HardSigmoid", "Hardswish": "HardSwish"}


def functions(torch) -> set[str]:
    """The public functions of torch.nn.functional, without what it imports for itself."""
    found = set()
    for name, value in vars(torch.nn.functional).items():
        is_helper = (getattr(value, "__module__", "") or "").startswith(
            ("torch._jit", "torch.overrides", "typing")
        )
        is_function = callable(value) and not inspect.isclass(value)
        if is_function and not is_helper and not name.startswith(("_", "has_torch", "assert_")):
            found.add(name)
    return found


def modules(torch) -> set[str]:
    """The layers of torch.nn."""
    every = vars(torch.nn).items()
    return {name for name, value in every if inspect.isclass(value) and issubclass(value, torch.nn.Module)}


def report(title: str, wanted: set[str], there: set[str], renamed: dict[str, str]) -> None:
    """Print the numbers and the names that are missing."""

    def has(name: str) -> bool:
        return bool({name, renamed.get(name, name), name.rstrip("_")} & there)

    missing = sorted(name for name in wanted if not has(name))
    print(f"{title}: {len(wanted) - len(missing)} of {len(wanted)}; missing: {', '.join(missing)}")


def main() -> None:
    import torch

    report("torch.nn.functional", functions(torch), set(dir(F)), FUNCTIONS)
    report("torch.nn", modules(torch), set(dir(M)), MODULES)


if __name__ == "__main__":
    main()
