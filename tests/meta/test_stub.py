"""The types of the native module that are checked in are those of the module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_index_of_operators_is_up_to_date():
    from weft.ops import make_index

    index = Path(make_index.__file__).with_name("index.py")
    assert index.read_text() == make_index.render(make_index.index_of_modules()), "./dev stub writes it anew"


def test_stubs_of_operators_are_up_to_date():
    from weft.ops import make_stubs

    for path, text in make_stubs.files().items():
        assert path.read_text() == text, f"{path}: ./dev stub writes it anew"


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="Python 3.12 and newer list __buffer__; the oldest writes the stub"
)
def test_stub_is_up_to_date():
    script = ROOT / "native" / "bindings" / "make_stub.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
