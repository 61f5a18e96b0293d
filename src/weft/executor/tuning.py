"""Kernels chosen by measuring, with WEFT_AUTOTUNE=1: where an operator offers several, a plan of exact sizes takes the
quickest one.

Each candidate is timed once, as the plan of its operator alone on arrays of zeros with the program's strides; the
winner is remembered in this process and in the cache folder, for processes to come. The key holds all that a
measurement depends on: processor, level of instructions, threads, versions, the operator with its attributes and a
digest of the classes behind it, types, sizes and strides of its operands.

>>> counters["measured"] >= 0
True
"""

from __future__ import annotations

import contextlib
import json
import platform
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from types import CellType, CodeType, FunctionType

from weft import _core
from weft.base import flags, process
from weft.base.typing import Any
from weft.expr.compiler import cache_folder, write_whole
from weft.graph.graph import Graph
from weft.graph.subgraph import classes_in
from weft.kernels import choices
from weft.ops import registry
from weft.ops.kernels import Native, Several
from weft.ops.node import Node, Value, input_value, make_node
from weft.ops.op import Op

__all__ = ["counters", "forget", "preferred"]

# Operators looked up; of their candidates those timed; operators whose winner came from disk, or from this process.
counters = {"lookups": 0, "measured": 0, "from_disk": 0, "in_memory": 0}

RUNS = 5  # of each candidate, the first of which prepares it; the least time counts
FORMAT = 2

_choices: dict[str, int] = {}
_lock = process.guard(threading.Lock())


def forget() -> None:
    """Forget what this process has measured or read; what is on disk stays."""
    with _lock:
        _choices.clear()


Plan = Callable[[Graph, Sequence[Any], int], Any]


def preferred(node: Node, strides: Sequence[Sequence[int] | None], plan: Plan) -> int:
    """The index of the choice that a node of exact sizes is to be lowered with.

    strides: of its inputs, in elements, None where one is missing or a number. plan: gives the plan of a graph, its
    arrays' strides and the choice to take.
    """
    op = node.bound()
    if not flags.get("WEFT_AUTOTUNE") or op.random or node.runtime or op.writes_by_index(len(node.inputs)):
        return 0
    offered = list(choices(op, node.operand_types(), node.device))
    if len(offered) < 2 or not any(isinstance(each, Native | Several) for each in offered):
        return 0
    if any(isinstance(each, Native) and each.ordered for each in offered):
        return 0
    key = _key(op, node, strides)
    with _lock:
        counters["lookups"] += 1
        choice = _choices.get(key)
        counters["in_memory"] += choice is not None
    if choice is None:
        choice = _read(key, len(offered))
    if choice is None:
        choice = _measured(node, strides, len(offered), plan)
        _write(key, choice)
    with _lock:
        _choices[key] = choice
    return choice


def _key(op: Any, node: Node, strides: Sequence[Sequence[int] | None]) -> str:
    operands = [None if v is None else str(v.type) for v in node.inputs]
    steps = [None if s is None else list(s) for s in strides]
    facts = [FORMAT, _version(), _core.dnnl_version(), platform.machine(), _processor(), _core.isa()[1]]
    about = [_core.usable_cores(), repr(op), operands, steps]
    definitions = sorted({definition(cls) for cls in classes_in(op)})
    return blake2b(json.dumps([*facts, *about, definitions]).encode(), digest_size=20).hexdigest()


@registry.cached(maxsize=1024)
def definition(cls: type[Op]) -> str:
    """A digest of what a class says: the texts of operators have the names of their classes, which several may have.

    >>> from weft.ops.registry import get
    >>> definition(get("exp")) == definition(get("log"))
    False
    """
    classes = [base for base in cls.__mro__ if issubclass(base, Op) and base is not Op]
    described = [(base.__module__, base.__qualname__, _described(dict(vars(base)))) for base in classes]
    return blake2b(repr(described).encode(), digest_size=20).hexdigest()


def _described(value: Any) -> str:
    """The same text for the same value in each process: functions by their code and the plain values around it."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return _described((value.__code__, value.__defaults__, cells))
    if isinstance(value, CodeType):
        return _described((value.co_code, value.co_names, value.co_varnames, value.co_consts))
    if isinstance(value, classmethod | staticmethod):
        return _described(value.__func__)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_described, value))})"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_described, value)))}}}"
    if isinstance(value, dict):
        return _described([(name, item) for name, item in value.items() if name != "__weakref__"])
    is_plain = value is None or isinstance(value, int | float | str | bytes)
    return repr(value) if is_plain else type(value).__qualname__


def _version() -> str:
    from importlib import metadata

    return metadata.version("weft")


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _path(key: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"choice-{key}.json"


def _read(key: str, count: int) -> int | None:
    path = _path(key)
    if path is None:
        return None
    try:
        choice = json.loads(path.read_text())["choice"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if type(choice) is not int or not 0 <= choice < count:
        return None
    with _lock:
        counters["from_disk"] += 1
    return choice


def _write(key: str, choice: int) -> None:
    """What cannot be written is measured again by the next process."""
    path = _path(key)
    if path is not None:
        write_whole(path, json.dumps({"choice": choice}).encode())


def _measured(node: Node, strides: Sequence[Sequence[int] | None], count: int, plan: Plan) -> int:
    """The quickest candidate; measured on a thread of its own, where nothing is recorded or put off."""
    times: list[float] = []

    def run() -> None:
        for k in range(count):
            times.append(_time(node, strides, k, plan))

    worker = threading.Thread(target=run, name="weft autotune")
    worker.start()
    worker.join()
    return min(range(len(times)), key=times.__getitem__) if times else 0


def _time(node: Node, strides: Sequence[Sequence[int] | None], choice: int, plan: Plan) -> float:
    """The least time of a candidate, in seconds; infinite for one that cannot be had."""
    values: list[Value | None] = []
    arrays: list[Any] = []
    array_strides: list[Sequence[int]] = []
    for value, steps in zip(node.inputs, strides, strict=True):
        if value is None or value.is_constant or value.type.weak or steps is None:
            values.append(value)
            continue
        values.append(input_value(value.type))
        arrays.append(_core.zeros(_extent(value.shape, steps), value.dtype, value.device))
        array_strides.append(steps)
    as_strided = registry.function("as_strided")
    new_node = make_node(node.bound(), values)
    inputs = [v for v in values if v is not None and v.node.op is None and not v.is_constant]
    shaped = [
        as_strided(x, shape=tuple(v.shape), strides=tuple(steps), offset=0)
        for x, v, steps in zip(arrays, inputs, array_strides, strict=True)
    ]
    outputs = new_node.outputs[: len(new_node.outputs) - node.bound().hidden]
    try:
        candidate = plan(Graph(inputs, outputs), array_strides, choice)
    except NotImplementedError:
        return float("inf")
    with _lock:
        counters["measured"] += 1
    best = float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        for result in _core.run_plan(candidate, shaped):
            result.wait()
        best = min(best, time.perf_counter() - begin)
    return best


def _extent(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """How many elements an array with these strides spans."""
    if any(n == 0 for n in shape):
        return (0,)
    return (1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)),)
