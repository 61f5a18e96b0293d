"""`import weft` imports nothing heavy: the standard library, weft and the backend of its binding."""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
import {module}
seconds = time.perf_counter() - start
json.dump([seconds, sorted(set(sys.modules) - before)], sys.stdout)
"""
ALLOWED = {*sys.stdlib_module_names, "weft", "nanobind_backend"}
HEAVY = {
    "asyncio",
    "concurrent",
    "ctypes.util",
    "importlib.metadata",
    "inspect",
    "multiprocessing",
    "unittest",
    "email",
}


@pytest.mark.parametrize("module", ["weft", "weft.engine"])
def test_nothing_heavy(module):
    run = [sys.executable, "-c", PROGRAM.format(module=module)]
    seconds, loaded = json.loads(subprocess.run(run, stdout=subprocess.PIPE, check=True, timeout=60).stdout)
    print(f"import {module}: {seconds * 1e3:.1f} ms, {len(loaded)} modules")
    assert {name for name in loaded if name.split(".")[0] not in ALLOWED} == set()
    if module == "weft":
        assert HEAVY & set(loaded) == set()


FIRST_RESULT = """
import json, sys
before = set(sys.modules)
import weft as wf
a = wf.tensor([[1.0, 2.0]])
(a + a).wait()
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""
SLOW = {
    *("dataclasses", "enum", "hashlib", "heapq", "inspect", "llvmlite", "numpy", "pathlib", "re", "typing"),
    *("numbers", "weakref"),
}
# What plans of several steps need, of exact sizes, of functions, gradients, devices; and traces.
LATER = {
    *(
        f"weft.executor.{name}"
        for name in (
            "arena",
            "fusion",
            "memory",
            "order",
            "preparation",
            "multi_device",
            "budget",
            "stored_once",
        )
    ),
    *("weft.expr.functions", "weft.expr.derivative", "weft.graph.gradient", "weft.ops.families.placement"),
    "weft.arrays.traced_float",
}


def test_a_first_result_needs_nothing_slow():
    """Each of them would take a millisecond or more: weft.base has record.py and typing.py instead."""
    run = [sys.executable, "-c", FIRST_RESULT]
    environment = os.environ | {"WEFT_ISA": "native"}  # kernels are compiled ahead for AVX2 and AVX-512
    done = subprocess.run(run, stdout=subprocess.PIPE, check=True, timeout=60, env=environment)
    loaded = set(json.loads(done.stdout))
    assert {name for name in loaded if name.split(".")[0] not in ALLOWED} == set()
    assert SLOW & loaded == set()
    assert LATER & loaded == set()
    assert sum(name.split(".")[0] == "weft" for name in loaded) <= 61


ALL_OPERATORS = """
import sys
from weft.ops import registry
for name in registry.names():
    registry.get(name)
print("numpy" in sys.modules, "llvmlite" in sys.modules)
"""


def test_operators_need_no_numpy():
    """Their references do, when they are read; the build imports operators where there is none."""
    run = [sys.executable, "-c", ALL_OPERATORS]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_every_lent_name_is_there():
    import weft

    assert all(hasattr(weft, name) for name in [*weft.__all__, "__version__"])
    assert set(weft.__all__) <= set(dir(weft))
    with pytest.raises(AttributeError, match="weft has no 'nothing'"):
        weft.nothing  # noqa: B018


def test_the_names_type_checkers_see_are_the_ones_lent():
    import weft

    branch = next(
        node for node in ast.parse(Path(weft.__file__).read_text()).body if isinstance(node, ast.If)
    )
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname for node in imports for alias in node.names if alias.asname}
    for node in imports:
        if node.names[0].name == "*" and node.module != "weft.functional":
            names |= set(importlib.import_module(node.module).__all__)
    assert names == set(weft.__all__)


@pytest.mark.parametrize("chosen", [{}, {"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "passive"}])
def test_the_spin_policy_is_set_unless_chosen_and_not_inherited(chosen):
    from weft._preload import GOMP_SPINCOUNT

    code = (
        "import os, weft; print('inherits', sorted({'GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'} & set(os.environ)))"
    )
    plain = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=plain | {"OMP_DISPLAY_ENV": "verbose"} | chosen,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = {"": GOMP_SPINCOUNT, "GOMP_SPINCOUNT": "77", "OMP_WAIT_POLICY": "0"}["".join(chosen)]
    assert f"GOMP_SPINCOUNT = '{expected}'" in run.stderr
    assert run.stdout.strip() == f"inherits {sorted(chosen)}"


def test_a_level_that_is_none_is_an_error_at_import():
    """Native code reads WEFT_ISA by itself, and would take what it cannot read for the processor's own level."""
    run = subprocess.run(
        [sys.executable, "-c", "import weft"],
        env=os.environ | {"WEFT_ISA": "avx3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    wanted = "ValueError: WEFT_ISA: cannot read 'avx3'; accepted: sse4 or avx2 or avx512 or native"
    assert run.stderr.splitlines()[-1] == wanted


ONEDNN_IN_USE = (
    "import weft as wf; wf.ones((99, 99)) @ wf.ones((99, 99)); "
    "print({line.split()[-1] for line in open('/proc/self/maps') if 'libdnnl' in line})"
)


def test_onednn_lies_beside_the_module():
    from weft import _core

    done = subprocess.run([sys.executable, "-c", ONEDNN_IN_USE], capture_output=True, text=True, timeout=60)
    library = (Path(_core.__file__).parent / "libdnnl.so.3").resolve()
    assert done.stdout.strip() == repr({str(library)}), done.stderr


def test_another_onednn(tmp_path):
    from weft import _core

    def run(path):
        environment = os.environ | {"WEFT_DNNL_LIB": str(path)}
        return subprocess.run(
            [sys.executable, "-c", ONEDNN_IN_USE], env=environment, capture_output=True, text=True, timeout=60
        )

    other = tmp_path / "libdnnl.so.3"
    shutil.copy(Path(_core.__file__).parent / "libdnnl.so.3", other)
    assert run(other).stdout.strip() == repr({str(other)})
    failed = run(tmp_path / "missing.so")
    assert failed.returncode == 1
    assert "OSError: WEFT_DNNL_LIB: cannot load oneDNN: " in failed.stderr
