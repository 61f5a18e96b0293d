"""What moves between levels of instructions: a program, a checkpoint in the middle of training, and compiled kernels.

As a program: python work.py WHAT FOLDER does it at the level that WEFT_ISA names, and prints what came out, as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
from weft.executor import background
from weft.expr import compiler

SIZES = (24, 40, 8)


class Run:
    """A network in training, in float32 or with products in bfloat16; dropout draws random numbers."""

    def __init__(self, dtype):
        wf.random.seed(3)
        self.dtype = dtype
        inputs, hidden, outputs = SIZES
        layers = (
            M.Linear(inputs, hidden),
            M.GELU(),
            M.Dropout(0.5),
            M.LayerNorm(hidden),
            M.Linear(hidden, outputs),
        )
        self.net = M.Sequential(*layers)
        rng = np.random.default_rng(7)
        weights = {name: rng.standard_normal(x.shape) / 5 for name, x in self.net.state_dict().items()}
        self.net.load_state_dict({name: w.astype("float32") for name, w in weights.items()})
        self.optimizer = wf.optimizer.AdamW(self.net.parameters(), 0.01)
        self.manager = wf.GradManager().attach(self.net.parameters())
        self.x = wf.asarray(rng.standard_normal((16, inputs)).astype("float32"))
        self.labels = wf.asarray(rng.integers(0, outputs, 16))

    def step(self):
        with self.manager:
            with wf.amp.autocast("bfloat16", enabled=self.dtype == "bfloat16"):
                loss = F.cross_entropy(self.net(self.x), self.labels)
            self.manager.backward(loss)
        self.optimizer.step().clear_grad()
        return loss.item()

    def parts(self):
        return {"net": self.net, "optimizer": self.optimizer}

    def predict(self):
        self.net.eval()
        weights = self.net.astype(self.dtype)
        return wf.trace(lambda x: weights(x).astype("float32"), strict=True), self.x.astype(self.dtype)


def write(folder):
    """Files for `read`, and what it should then give."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        run = Run(dtype)
        run.step(), run.step()
        wf.checkpoint.save(folder / f"{dtype}.checkpoint", **run.parts())
        found[f"{dtype} losses"] = [run.step(), run.step()]
        predict, x = run.predict()
        found[f"{dtype} program"] = predict(x).numpy().tolist()
        predict.export(folder / f"{dtype}.weft")
    return found


def read(folder):
    """The same losses and values, from the files."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        run = Run(dtype)
        wf.checkpoint.load(folder / f"{dtype}.checkpoint", **run.parts())
        found[f"{dtype} losses"] = [run.step(), run.step()]
        program = wf.load_program(folder / f"{dtype}.weft")
        found[f"{dtype} program"] = program(run.x.astype(dtype)).numpy().tolist()
    return found


def kernels(folder):
    """Kernels that are not compiled with the package: their results, and what the cache of objects was used for."""
    x = wf.asarray(np.linspace(-3, 3, 1001, dtype="float32").reshape(7, 143))
    f = wf.trace(lambda x: (F.tanh(x * 1.25 + 0.5) * x).sum(axis=0), strict=True)
    results = [
        f(y).astype("float32").numpy().tolist() for y in (x, x.astype("bfloat16"), x.astype("float16"))
    ]
    background.wait()
    return {"values": results, "counters": compiler.counters}


if __name__ == "__main__":
    what = {"write": write, "read": read, "kernels": kernels}[sys.argv[1]]
    json.dump(what(Path(sys.argv[2])), sys.stdout)
