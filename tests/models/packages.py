"""Packages that tests compare with, where they are installed; a test that asks for another one is skipped."""

import contextlib
import functools
import importlib
import re
import sys

import pytest


@functools.cache
def torchvision():
    """The package. Its compiled operators, for CUDA, may not load beside this PyTorch; no classifier uses them."""
    torch = pytest.importorskip("torch")
    while True:
        try:
            return importlib.import_module("torchvision")
        except ModuleNotFoundError:
            pytest.skip("torchvision is not installed")
        except RuntimeError as problem:
            missing = re.fullmatch(r"operator (torchvision::\w+) does not exist", str(problem))
            if missing is None:
                raise
            torch.library.define(missing[1], "(Tensor x) -> Tensor")
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]


def transformers():
    """The package, which imports torchvision if that is there."""
    with contextlib.suppress(pytest.skip.Exception):
        torchvision()
    return pytest.importorskip("transformers")


def timm():
    """The package, which imports torchvision."""
    torchvision()
    return pytest.importorskip("timm")
