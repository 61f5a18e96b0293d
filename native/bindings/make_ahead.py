"""Compile the commonest generated kernels while the package is built: python make_ahead.py FOLDER [LEVEL...]

Writes LEVEL.o for each level and table.cpp into FOLDER; see weft.executor.aot. Runs before there is a native module.
"""

import importlib
import sys
import types
from pathlib import Path


def main(folder: str, *levels: str) -> None:
    try:
        importlib.import_module("llvmlite.binding")
    except ImportError as error:
        sys.exit(
            f"weft: cannot compile kernels, which the build does with llvmlite: {error}\n"
            "It is listed in pyproject.toml's build-system.requires: pip install llvmlite"
        )
    # An editable installation has a finder that knows where modules were when it was made. Python's own are classes.
    sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
    # The package without its __init__, which loads oneDNN, and with nothing in the native module that is to be built.
    package = types.ModuleType("weft")
    package.__path__ = [str(Path(__file__).resolve().parents[2] / "src" / "weft")]
    sys.modules["weft"] = package
    package._core = sys.modules["weft._core"] = types.ModuleType("weft._core")
    package._core.register = lambda **hooks: None
    importlib.import_module("weft.executor.aot").write(Path(folder), levels)


if __name__ == "__main__":
    main(*sys.argv[1:])
