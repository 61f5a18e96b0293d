"""User code has types: what is right passes a strict type checker, what is wrong does not."""

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from typing import Any, assert_type

import numpy as np
import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim

x = wf.tensor([[1.0, 2.0]])
y: wf.Tensor = wf.add(x, 1)
z: wf.Tensor = x.sum(axis=0)
w: wf.Tensor = -(2 * x + y @ x.T) / 3 > 1
v: wf.Tensor = F.softmax(x, axis=-1)
a: wf.Tensor = wf.reshape(x, (2, 1)).exp()
t: tuple[wf.Tensor, ...] = wf.split(x, 1)
g: wf.Tensor | None = x.grad
e: wf.Tensor = x == y
n: wf.Tensor = F.add(x, np.ones(2)) * np.float32(2)
m: wf.Tensor = F.linear(x, [[1.0, 2.0]])
i: wf.Tensor = x[0, :1]
o: int = wf.ones((2, 3)).size + wf.zeros(2).size + wf.full(2, 1.5).size + wf.empty(()).size
net = M.Sequential(M.Linear(2, 2), M.ReLU())
first = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
second = optim.Adam(list(net.parameters()), 0.1)
third = optim.AdamW([{"params": net.parameters(), "lr": 0.1}])

class Net(M.Module):
    def __init__(self) -> None:
        self.linear = M.Linear(2, 2)

    def forward(self, x: wf.Tensor) -> tuple[wf.Tensor, int]:
        return assert_type(self.linear(x), wf.Tensor), 1

    @wf.trace
    def step(self, x: wf.Tensor) -> wf.Tensor:
        return x

class Half(wf.Function):
    def forward(self, x: wf.Tensor) -> wf.Tensor:
        return x / 2

@wf.trace
def f(x: wf.Tensor, *, k: float = 1.0) -> tuple[wf.Tensor, int]:
    return x * k, 1

@wf.trace(strict=True, dynamic={"x": 0})
def h(x: wf.Tensor) -> wf.Tensor:
    return x

def loss(x: wf.Tensor, y: float) -> wf.Tensor:
    return x.sum() * y

def aux(parameters: dict[str, wf.Tensor]) -> tuple[wf.Tensor, str]:
    return parameters["a"].sum(), "a"

assert_type(wf.ones(2), wf.Tensor)
assert_type(Net()(x), tuple[wf.Tensor, int])
assert_type(net(x), Any)  # its last layer may be any
assert_type(Net().step(x), wf.Tensor)
assert_type(Half()(x), wf.Tensor)
assert_type(f(x, k=2.0), tuple[wf.Tensor, int])
assert_type(h(x), wf.Tensor)
assert_type(wf.trace(M.Linear(2, 2))(x), wf.Tensor)
assert_type(wf.grad(loss)(x, 2.0), wf.Tensor)
assert_type(wf.grad(aux, has_aux=True)({"a": x}), tuple[dict[str, wf.Tensor], str])
assert_type(wf.value_and_grad(loss)([1.0], 2.0), tuple[wf.Tensor, wf.Tensor])
assert_type(wf.value_and_grad(loss, (0, 1))(x, 2.0), tuple[wf.Tensor, Any])
assert_type(wf.vmap(loss)(x, 2.0), wf.Tensor)
assert_type(wf.vjp(loss, x, 2.0)[0], wf.Tensor)
assert_type(wf.jvp(loss, (x, 2.0), (x, 1.0)), tuple[wf.Tensor, wf.Tensor])
assert_type(wf.recompute(loss, x, 2.0), wf.Tensor)
"""
WRONG = {
    "wf.add(x, 'a')": "arg-type",
    "x.sum(axes=0)": "call-arg",
    "F.no_such_operator(x)": "attr-defined",
    "wf.ones(2).no_such_method()": "attr-defined",
    "optim.SGD(lr=0.1)": "call-arg",
    "optim.SGD(net.parameters(), learning_rate=0.1)": "call-arg",
    "f('a')": "arg-type",
    "h(x, 2)": "call-arg",
    "Net().step()": "call-arg",
    "wf.grad(loss)(x)": "call-arg",
    "wf.vmap(loss)(x, 'a')": "arg-type",
}


def test_types_of_user_code(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "\n".join(WRONG) + "\n")
    options = ["--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    found = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(found) == len(WRONG), done.stdout + done.stderr
    for line, kind in zip(found, WRONG.values(), strict=True):
        assert f"[{kind}]" in line


# The programs of the documentation pass two checkers, at the strictness that such programs are written with.

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEW_OPERATOR = "an operator that the program defines becomes a function and a method when it runs"
CIRCULAR = "whether a call returns is inferred from calls before it, and these from its own result"
KNOWN = {  # what checkers say of right programs: page, part of the line, checkers and the reason
    ("CONTRIBUTING", "F.centred"): ("mypy basedpyright", NEW_OPERATOR),
    ("docs_operators", "rms_scale"): ("mypy basedpyright", NEW_OPERATOR),
    ("docs_operators", "F.affine("): ("mypy basedpyright", NEW_OPERATOR),
    ("docs_operators", "F.std(Quantity("): (
        "mypy basedpyright",
        "functions are typed for tensors; what they give for the program's own type of arrays, that type decides",
    ),
    ("docs_arrays", "np.frombuffer(memory"): (
        "mypy basedpyright",
        "NumPy's types list the classes that have buffers",
    ),
    ("docs_engine", "error.operation for error in group.exceptions"): (
        "mypy basedpyright",
        "a group of exceptions may hold groups, those of the engine do not",
    ),
    ("docs_engine", "== sum("): ("mypy", "it takes the result of == for the type of the sum"),
    ("docs_modules", "parameters, first = step(parameters, x, y)"): ("basedpyright", CIRCULAR),
    ("docs_tutorial", "soft_step(wf.tensor("): ("basedpyright", CIRCULAR),
    ("docs_tutorial", "with Count() as count:"): ("basedpyright", CIRCULAR),
    ("docs_tutorial", "digits."): (
        "basedpyright",
        "scikit-learn's types: load_digits gives a Bunch or a tuple",
    ),
}


def programs(folder):
    """A file for each page that has examples, in which each example stands at its line."""
    for path in PAGES:
        lines = []
        for example in doctest.DocTestParser().get_examples(path.read_text().replace("```", "\n")):
            if example.exc_msg is None:
                lines += [""] * (example.lineno - len(lines)) + example.source.splitlines()
        if lines:
            name = str(path.relative_to(ROOT).with_suffix("")).replace("/", "_").replace("-", "_")
            (folder / f"{name}.py").write_text("\n".join(lines) + "\n")


def mypy(folder):
    (folder / "mypy.ini").write_text(
        f"[mypy]\npython_version = 3.11\nmypy_path = {ROOT / 'src'}\ncache_dir = {ROOT / '.mypy_cache' / 'pages'}\n"
        "ignore_missing_imports = True\ncheck_untyped_defs = True\nallow_redefinition = True\nfollow_imports = silent\n"
        # An empty container needs no type in a short program, and a name may be used for another function.
        "disable_error_code = var-annotated, has-type, no-redef, func-returns-value\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary"]
    done = run(folder, *command, *sorted(path.name for path in folder.glob("*.py")))
    return [found.groups() for found in re.finditer(r"(?m)^(\w+)\.py:(\d+): error: (.*)", done)]


def basedpyright(folder):
    settings = {"typeCheckingMode": "basic", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    ignored = ("MissingImports", "MissingModuleSource", "UnusedExpression", "Redeclaration")
    settings |= {f"report{name}": False for name in ignored}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--level", "error", "--outputjson"]
    report = json.loads(run(folder, *command, "--pythonpath", sys.executable))
    assert report["summary"]["filesAnalyzed"] > 30
    return [
        (Path(each["file"]).stem, each["range"]["start"]["line"] + 1, each["message"])
        for each in report["generalDiagnostics"]
    ]


def run(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110).stdout


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_programs_of_the_documentation(checker, tmp_path):
    programs(tmp_path)
    known = {key for key, (checkers, _) in KNOWN.items() if checker.__name__ in checkers.split()}
    unknown, met = [], set()
    for page, number, message in checker(tmp_path):
        line = (tmp_path / f"{page}.py").read_text().splitlines()[int(number) - 1].strip()
        reasons = {key for key in known if key[0] == page and key[1] in line}
        met |= reasons
        if not reasons:
            unknown.append(f"{page}: {line}\n    {message}")
    assert not unknown, "\n".join(unknown)
    assert met == known, f"no longer said: {known - met}"
