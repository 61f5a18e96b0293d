"""Calls public callables with arguments that mean nothing, and writes those messages to messages.json that show
internals.

A program: python junk_messages.py CALLS. Functions, classes, constructors, and the methods of one object of each of the
commonest classes; draws follow from the names, as in junk.py.
"""

import contextlib
import importlib.util
import io
import json
import os
import random
import re
import signal
import sys
import warnings
from pathlib import Path

import junk
import numpy as np

import weft as wf
from weft import _core

ROOT = Path(__file__).resolve().parents[2]
RESULT = 251  # the number of the result's file: small ones are among the arguments, and calls close those
INTERNALS = re.compile(
    r"incompatible function arguments|invoked with types|nanobind|nb_\w+|PyCapsule|TracedFloat|\bstd::"
)


def objects():
    """Objects of public classes, whose methods are called as well."""
    net = wf.module.Sequential(wf.module.Linear(4, 2), wf.module.BatchNorm1d(2))
    w = wf.ones(3)
    w.grad = wf.ones(3)
    symbol = wf.symbol.var("x") * 2
    traced = wf.trace(lambda x: x + 1)
    traced(w)
    sgd = wf.optimizer.SGD([w], lr=0.1, momentum=0.9)
    return {
        "Tensor": wf.ones((2, 3)),
        "Module": net,
        "Optimizer": sgd,
        "ParameterGroup": sgd.param_groups[0],
        "Schedule": wf.optimizer.lr_scheduler.StepLR(sgd, step_size=2),
        "GradManager": wf.GradManager().attach([w]),
        "Trace": traced,
        "Symbol": symbol,
        "Executor": symbol.simple_bind(x=(2,)),
        "DataLoader": wf.data.DataLoader(wf.data.ArrayDataset(np.ones((5, 2))), batch_size=2),
        "Dataset": wf.data.ArrayDataset(np.ones((5, 2))),
        "Accuracy": wf.metrics.Accuracy(),
        "KVStore": wf.kvstore.create("local"),
        "Autocast": wf.amp.autocast(),
        "GradScaler": wf.amp.GradScaler(),
        "DType": wf.float32,
        "Device": wf.cpu(0),
    }


def methods():
    """Name -> (bound method, its parameters)."""
    found = {}
    for owner, x in objects().items():
        for name in dir(x):
            target = getattr(x, name, None) if not name.startswith("_") else None
            if callable(target):
                found[f"{owner}.{name}"] = (target, junk.parameters_of(target))
        for name in (
            "__getitem__",
            "__setitem__",
            "__call__",
            "__add__",
            "__iadd__",
            "__matmul__",
            "__pow__",
        ):
            if hasattr(x, name):
                found[f"{owner}.{name}"] = (
                    getattr(x, name),
                    [("a", "object", False), ("b", "object", False)],
                )
    return found


def public():
    """The callables that the reference documents."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    modules = {*reference.MODULES, "functional"}
    known = junk.callables()
    return {name: entry for name, entry in known.items() if name.rpartition(".")[0] in modules}


def call(target, positional, named):
    """The message of what the call raises, "" if it raises nothing."""
    try:
        signal.setitimer(signal.ITIMER_REAL, junk.SECONDS)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            target(*positional, **named)
        return ""
    except BaseException as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        junk.restore()


def main(calls):
    os.dup2(os.open("messages.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), RESULT)
    _core.set_memory_limit("cpu:0", 1 << 28)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, junk.late)
    junk.prepare()
    found, count = {}, 0
    entries = {**public(), **methods()}
    for name, (target, parameters) in entries.items():
        rng, values = random.Random(name), junk.pool()
        for _ in range(calls):
            chosen = [*parameters, ("more", "object", False)][: rng.randrange(len(parameters) + 2)]
            positional = [junk.draw(rng, kind, values) for _, kind, keyword in chosen if not keyword]
            named = {p: junk.draw(rng, kind, values) for p, kind, keyword in chosen if keyword}
            if rng.random() < 0.2:
                named["nonsense"] = 1
            text = call(target, positional, named)
            count += bool(text)
            if INTERNALS.search(text):
                found.setdefault(name, text)
    os.write(RESULT, json.dumps({"found": found, "callables": len(entries), "errors": count}).encode())
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
