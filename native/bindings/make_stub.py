"""Write src/weft/_core.pyi, the types of the native module, from the module itself; --check only compares.

python native/bindings/make_stub.py [--check]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

STUB = Path(__file__).resolve().parents[2] / "src" / "weft" / "_core.pyi"


def generate() -> str:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "_core.pyi"
        command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "weft._core", "-o", str(made)]
        subprocess.run(command, check=True)
        # Addresses of functions for tests; a stub of its own would make _core a package to type checkers.
        return made.read_text().replace(
            "from weft._core import testing as testing", "from types import ModuleType"
        ) + ("\ntesting: ModuleType\n")


if __name__ == "__main__":
    text = generate()
    if "--check" not in sys.argv:
        STUB.write_text(text)
    elif STUB.read_text() != text:
        sys.exit(f"{STUB} is not what the module says; ./dev stub writes it anew")
