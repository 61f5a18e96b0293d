"""What tests of exported programs share."""

import shutil
import subprocess
from pathlib import Path

import pytest

from weft import info

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "c" / "run_program.c"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    """examples/c/run_program.c, compiled."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = tmp_path_factory.mktemp("runner") / "run_program"
    flags = [*info.c_flags().split(), *info.program_library_flags().split()]
    subprocess.run(["gcc", *WARNINGS, SOURCE, "-o", program, *flags], check=True)
    return program
