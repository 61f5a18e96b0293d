"""User code has types: what is right passes a strict type checker, what is wrong does not."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
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
"""
WRONG = {
    "wf.add(x, 'a')": "arg-type",
    "x.sum(axes=0)": "call-arg",
    "F.no_such_operator(x)": "attr-defined",
    "wf.ones(2).no_such_method()": "attr-defined",
    "optim.SGD(lr=0.1)": "call-arg",
    "optim.SGD(net.parameters(), learning_rate=0.1)": "call-arg",
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
