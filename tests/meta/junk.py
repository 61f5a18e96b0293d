"""Calls callables with arguments that mean nothing; a program: python junk.py CALLS NAME...

Names are those of `callables`. What a call is given is written to the file junk.txt before it begins, so that the last
line names the call that ended the process. Arguments are drawn by the types that the stub of the native module
states, half of the time, and else from everything; the draws follow from the names.
"""

import ast
import contextlib
import faulthandler
import importlib
import inspect
import io
import pkgutil
import random
import re
import resource
import signal
import sys
import warnings
from pathlib import Path

import numpy as np

import weft as wf
from weft import _core

STUB = Path(_core.__file__).parent / "_core.pyi"
# What these are given are addresses of code or memory, or they end what everything else needs. Kernels believe what
# they are given: shapes and types are checked where programs are planned, for which there is no way around in public.
UNSAFE = re.compile(
    r"_core\.(end_python|shut_down_engines|settle_engines|set_planner|set_backward_planner|set_array_engine"
    r"|NativeFunction|PyKernel|prebuilt_kernel|testing|set_memory_limit|set_scribe|run_kernel|set_known_number_type)\b"
    r"|engine\.NativeFunction|_preload|info\.main|make_stubs|make_index|\bmain$|__main__"
)
SECONDS = 3.0  # for one call; one that waits for what never comes is given up


def stub():
    """Dotted name -> (parameter, annotation) of each function and method of the native module."""
    path = STUB if STUB.exists() else Path(wf.__file__).parent / "_core.pyi"
    found = {}

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                a = node.args
                found[prefix + node.name] = [
                    (p.arg, ast.unparse(p.annotation) if p.annotation else "object", p in a.kwonlyargs)
                    for p in [*a.posonlyargs, *a.args, *a.kwonlyargs]
                ]

    walk(ast.parse(path.read_text()).body, "_core.")
    return found


def callables():
    """Name -> (callable, its parameters), of the native module, public modules, and operators."""
    found = {}
    for name, parameters in stub().items():
        target = _core
        with contextlib.suppress(AttributeError):
            for part in name.split(".")[1:]:
                target = getattr(target, part)
            found[name] = (target, parameters)
    for info in pkgutil.walk_packages(wf.__path__, "weft."):
        if "._" in info.name:
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", []):
            target = getattr(module, name, None)
            if callable(target):
                found[f"{info.name}.{name}"] = (target, parameters_of(target))
    for name in wf.ops.registry.public_names():
        cls = wf.ops.registry.get(name)
        inputs = [(i.name, "Tensor", False) for i in cls.inputs]
        named = [(a.name, "attribute", True) for a in cls.attributes]
        found[f"functional.{name}"] = (getattr(wf.functional, name), inputs + named)
    return {name: found[name] for name in sorted(found) if not UNSAFE.search(name)}


def parameters_of(target):
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return [("x", "object", False)] * 3
    return [
        (p.name, str(p.annotation), p.kind is p.KEYWORD_ONLY)
        for p in parameters
        if p.kind is not p.VAR_KEYWORD
    ]


def pool():
    """Kind -> values, made anew so that what one call broke does not count for the next."""
    x = wf.arange(12, dtype="float32").reshape(3, 4)
    tensors = [
        x,
        x[:, ::2],
        x.T,
        x[1:2, 3],
        wf.zeros((0, 3)),
        wf.tensor(2.5),
        wf.ones(3, dtype="int64"),
        wf.ones((2, 3), dtype="bool"),
    ]
    tensors += [
        wf.ones((1, 2, 5, 5)),
        wf.ones((2, 2, 3, 3), dtype="float16"),
        wf.arange(7, dtype="int8"),
        wf.ones(4, dtype="float64"),
    ]
    numbers = [0, 1, -1, 2, 3, 7, 64, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, True]
    sequences = [
        [],
        [1],
        (0, 1),
        [3, 4],
        (-1,),
        [2**40],
        [[1, 2], [3]],
        [x, x],
        (x,),
        [None],
        ["a"],
        [1.5, x],
        (0,) * 20,
    ]
    others = [
        None,
        1.5,
        float("nan"),
        float("inf"),
        -0.0,
        1j,
        "",
        "float32",
        "cpu:0",
        "cpu:99",
        "gpu:0",
        "sum",
        b"",
        b"12345678",
    ]
    others += [
        object(),
        int,
        print,
        lambda *_: None,
        lambda *a: a[0] if a else None,
        {},
        {"a": x},
        {1: [x]},
        slice(None),
        Ellipsis,
    ]
    others += [
        np.ones(3),
        np.float32(2),
        wf.float32,
        wf.int64,
        wf.cpu(0),
        wf.symbol.var("v"),
        Exception("e"),
        iter([1]),
    ]
    leaf = _core.watch(wf.ones(2))
    f = wf.trace(lambda x: x * 2)
    f(x)
    engine = wf.engine.default_engine()
    plan = PLANS[0]
    native = [
        leaf,
        plan,
        engine,
        engine.new_variable(),
        _core.Replays(),
        *KERNELS,
        _core.RandomStream("cpu:0"),
    ]
    return {"Tensor": tensors, "int": numbers, "Sequence": sequences, "object": others, "native": native}


def prepare():
    from weft.executor.planner import make_plan
    from weft.graph.graph import graph_of
    from weft.ops.types import TensorType

    types = [TensorType((3, 4), wf.float32)]
    PLANS.append(make_plan(graph_of(lambda x: x * 2, types), "junk", exact=True))
    for name, parameters in stub().items():
        if name.startswith("_core.kernel_") and all(kind in ("int", "bool") for _, kind, _ in parameters):
            with contextlib.suppress(Exception):
                KERNELS.append(getattr(_core, name[6:])(**{p: 0 for p, _, _ in parameters}))


PLANS, KERNELS = [], []


def draw(rng, kind, values):
    """A value that could be of this kind, or, every third time, any."""
    every = [v for group in values.values() for v in group]
    if rng.random() < 0.33:
        return rng.choice(every)
    if "Sequence" in kind or "list" in kind or "tuple" in kind:
        return rng.choice(values["Sequence"])
    if re.search(r"\bint\b|float|bool", kind):
        return rng.choice(values["int"])
    if kind == "attribute":
        return rng.choice([*values["int"], *values["Sequence"], *values["object"]])
    if re.search(r"Plan|Kernel|Leaf|Engine|Variable|Replays|Log|Layout|Stream|Operator", kind):
        return rng.choice(values["native"])
    if "Tensor" in kind or kind in ("object", "handle"):
        return rng.choice([*values["Tensor"], *values["object"], *values["Sequence"]])
    return rng.choice(every)


def restore():
    """What a call may have left on this thread."""
    _core.set_layers(None)
    _core.set_capture(None)
    _core.set_random_stream(None)
    for _ in range(5):
        if not _core.is_recording():
            _core.set_recording(True)


class Late(BaseException):
    """A call took too long."""


def late(*_):
    raise Late


def main(calls, names):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 38, 1 << 38))
    _core.set_memory_limit("cpu:0", 1 << 28)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    known = callables()
    prepare()
    with open("junk.txt", "w") as log:
        faulthandler.enable(log)
        for name in names:
            target, parameters = known[name]
            rng = random.Random(name)
            values = pool()
            for k in range(calls):
                if k % 25 == 24:
                    values = pool()
                count = len(parameters) if rng.random() < 0.7 else rng.randrange(len(parameters) + 2)
                chosen = [*parameters, ("more", "object", False)][:count]
                positional = [draw(rng, kind, values) for _, kind, keyword in chosen if not keyword]
                named = {
                    p: draw(rng, kind, values)
                    for p, kind, keyword in chosen
                    if keyword and rng.random() < 0.7
                }
                log.write(f"{name} call {k}: {[type(v).__name__ for v in positional]} {sorted(named)}\n")
                log.flush()
                try:
                    signal.setitimer(signal.ITIMER_REAL, SECONDS)
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                        made = target(*positional, **named)
                        repr(made) if isinstance(made, wf.Tensor) else None
                except Late:
                    break
                except BaseException:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    restore()
            with contextlib.suppress(BaseException):
                wf.waitall()
        log.write("done\n")
        log.flush()
    sys.stdout.flush()
    import os

    os._exit(0)  # what was made may wait for ever


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
