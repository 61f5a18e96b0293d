"""Calls callables with arguments that mean nothing; a program: python junk.py CALLS NAME...

Names are those of `callables`. What a call is given is written to the file junk.txt before it begins, so that the last
line names the call that ended the process. Arguments are drawn by the types that the stub of the native module
states, half of the time, and else from everything; the draws follow from the names.
"""

import ast
import contextlib
import ctypes
import faulthandler
import functools
import importlib
import inspect
import io
import operator
import os
import pkgutil
import random
import re
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import weft as wf
from weft import _core
from weft.ops import registry

STUB = Path(_core.__file__).parent / "_core.pyi"
# What these are given are addresses of code or memory, or they end what everything else needs. Kernels believe what
# they are given: shapes and types are checked where programs are planned, for which there is no way around in public.
UNSAFE = re.compile(
    r"^_core\.(end_python|shut_down_engines|settle_engines|register|set_array_engine"
    r"|NativeFunction|PyKernel|prebuilt_kernel|set_memory_limit|set_recorder|run_kernel)$"
    r"|engine\.NativeFunction|storage\.set_limit|_preload|info\.main|make_stubs|make_index|\bmain$|__main__"
    r"|\.__(new|init|del|getattribute|setattr|delattr|class|init_subclass|subclasshook)__$"
)
LOG = (
    250  # the number of the log's file: small ones are among the arguments, and Python opens and closes those
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


def native():
    """Name -> (callable, parameters) of everything that the native module has: functions, classes, their members."""
    known, found = stub(), {}
    modules = {"_core": _core, "_core.testing": _core.testing}
    for prefix, module in modules.items():
        for name, target in vars(module).items():
            path = f"{prefix}.{name}"
            if isinstance(target, type):
                found[path] = (target, known.get(f"{path}.__init__", [])[1:])
                found |= members(path, target, known)
            elif callable(target):
                found[path] = (target, known.get(path) or [("x", "object", False)] * 3)
    return found


def members(path, cls, known):
    """Methods of a class, called with a first argument that is often one of its objects; attributes, got and set."""
    found = {}
    for name in dir(cls):
        target, itself = getattr(cls, name, None), ("self", f"self: {cls.__name__}", False)
        if (
            not hasattr(cls, name)
            or (cls is _core.Tensor and name in registry.names() and not registry.is_builtin(name))
            or target is getattr(object, name, None)
            or name in ("__module__", "__doc__", "__dict__")
        ):
            continue
        if callable(target):
            stated = known.get(f"{path}.{name}")
            found[f"{path}.{name}"] = (
                target,
                [itself, *(stated[1:] if stated else [("x", "object", False)] * 2)],
            )
        else:
            found[f"{path}.{name}"] = (operator.attrgetter(name), [itself])
            setter = functools.partial(set_attribute, name)
            found[f"{path}.{name} ="] = (setter, [itself, ("value", "object", False)])
    return found


def set_attribute(name, x, value):
    setattr(x, name, value)


def callables():
    """Name -> (callable, its parameters), of the native module, public modules, and operators."""
    found = {}
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
    found |= native()  # by now tensors have their methods
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
    native = [_core.watch(wf.ones(2)), *NATIVE, *objects()]
    return {"Tensor": tensors, "int": numbers, "Sequence": sequences, "object": others, "native": native}


def objects():
    """New objects of the native classes that may be used up."""
    engine = wf.engine.default_engine()
    return [
        engine.new_variable(),
        engine.new_operator(lambda context: None, mutate_vars=[engine.new_variable()]),
        _core.Replays(),
        _core.NoProgram("record"),
        *(_core.ReplaySpec(plan) for plan in NATIVE if isinstance(plan, _core.Plan)),
        _core.Find.leaf(0),
        _core.Find.object(wf.ones(3)),
        _core.ProgramBuilder("junk", "cpu:0", 1),
        _core.RandomStream("cpu:0"),
        _core.Log(object()),
        _core.SampleRandom(1, 2, 3, 4),
        _core.RecordFile(str(RECORDS)),
        wf.storage.alloc(64),
    ]


def prepare():
    """Fills NATIVE, and writes the file that RecordFile reads."""
    from weft.data.recordio import RecordWriter
    from weft.executor.planner import make_plan
    from weft.graph.graph import graph_of
    from weft.ops.types import TensorType

    types = [TensorType((3, 4), wf.float32)]
    NATIVE.append(make_plan(graph_of(lambda x: x * 2, types), "junk", exact=True))
    with RecordWriter(RECORDS) as writer:
        writer.write(b"12345")
    for name, parameters in stub().items():
        if name.startswith("_core.kernel_") and all(kind in ("int", "bool") for _, kind, _ in parameters):
            with contextlib.suppress(Exception):
                NATIVE.append(getattr(_core, name[6:])(**{p: 0 for p, _, _ in parameters}))
    a, b = ("float32", (64, 64), None), ("float32", (64, 64), "any")
    for kernel in (_core.onednn_matmul(a, a, a), _core.onednn_matmul(a, b, a)):
        NATIVE.extend([kernel, *(x for k in range(3) if (x := kernel.layout(k)) is not None)])
    free = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p).value
    NATIVE.append(_core.NativeFunction(free, 0))
    NATIVE.extend(caught())


def caught():
    """What the engine gives functions and observers, and lazy evaluation its recorder."""
    found = []

    class Observer:
        on_start = on_end = staticmethod(found.append)

    engine = wf.engine.Engine(workers=1)
    observer = Observer()
    engine.add_observer(observer)
    engine.push(found.append)
    engine.push_async(lambda context, done: found.extend([context, done]))
    engine.push_async(lambda context, done: (found.append(done), done()))
    while sum(isinstance(x, _core.OnComplete) for x in found) < 2:
        time.sleep(0.001)
    engine.remove_observer(observer)
    found.append(engine)

    class Recorder:
        defers, log = True, None

        def __getattr__(self, name):
            return lambda *arguments: keep(arguments)

    def keep(x):
        if isinstance(x, _core.Held):
            found.append(x)
        elif isinstance(x, list | tuple):
            for item in x:
                keep(item)
        return None

    before = _core.set_recorder(Recorder())
    try:
        with contextlib.suppress(Exception):
            wf.ones(3) * 2
    finally:
        _core.set_recorder(before)
    return found


# Made once: objects of native classes that no call uses up, or that have to be caught.
NATIVE = []
RECORDS = Path("junk.rec")


def is_of(value, name):
    return any(cls.__name__ == name for cls in type(value).__mro__)


def draw(rng, kind, values):
    """A value that could be of this kind, or, every third time, any."""
    every = [v for group in values.values() for v in group]
    if kind.startswith("self: "):
        own = [v for v in every if is_of(v, kind[6:])]
        return rng.choice(own if own and rng.random() < 0.95 else every)
    if rng.random() < 0.33:
        return rng.choice(every)
    if "Sequence" in kind or "list" in kind or "tuple" in kind:
        return rng.choice(values["Sequence"])
    if re.search(r"\bint\b|float|bool", kind):
        return rng.choice(values["int"])
    if kind == "attribute":
        return rng.choice([*values["int"], *values["Sequence"], *values["object"]])
    if re.search(
        r"Plan|Kernel|Leaf|Engine|Variable|Replays|NoProgram|Find|ReplaySpec|ProgramBuilder|Log|Layout|Stream|Operator|Memory",
        kind,
    ):
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


def has_signatures(error):
    """Whether an error is nanobind's own, which lists C++ signatures."""
    with contextlib.suppress(BaseException):
        return "incompatible function arguments" in str(error)
    return False


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
    own = os.open("junk.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(own, LOG)
    with os.fdopen(LOG, "w") as log:
        faulthandler.enable(log)
        for name in names:
            target, parameters = known[name]
            rng = random.Random(name)
            values, lates = pool(), 0
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
                    lates += 1
                    if lates == 3:
                        break
                except BaseException as error:
                    if has_signatures(error):
                        log.write(f"{name}: nanobind's signatures in {error}\n")
                        log.flush()
                        os._exit(3)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    restore()
            with contextlib.suppress(BaseException):
                wf.waitall()
        log.write("done\n")
        log.flush()
    sys.stdout.flush()
    os._exit(0)  # what was made may wait for ever


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
