"""Kernels chosen by measuring, with WEFT_AUTOTUNE=1: where an operator offers several, a plan of exact sizes takes the
quickest one.

Each candidate is timed once, as the plan of its operator alone on arrays of zeros with the program's strides; the
winner is remembered in this process and in the cache folder, for processes to come. The key holds all that a
measurement depends on: processor, level of instructions, threads, versions, the operator with its attributes, types,
sizes and strides of its operands.

>>> counters["measured"] >= 0
True
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from weft import _core
from weft.base import flags, process
from weft.base.typing import Any
from weft.expr.compiler import cache_folder
from weft.graph.graph import Graph
from weft.kernels import choices
from weft.ops import registry
from weft.ops.kernels import Native, Several
from weft.ops.node import Node, Value, input_value, make_node

__all__ = ["counters", "forget", "preferred"]

# Operators looked up; of their candidates those timed; operators whose winner came from disk, or from this process.
counters = {"asked": 0, "measured": 0, "from_disk": 0, "known": 0}

RUNS = 5  # of each candidate, the first of which prepares it; the least time counts
FORMAT = 1

_known: dict[str, int] = {}
_lock = process.guard(threading.Lock())


def forget() -> None:
    """Forget what this process has measured or read; what is on disk stays."""
    with _lock:
        _known.clear()


Plan = Callable[[Graph, Sequence[Any], int], Any]


def preferred(node: Node, strides: Sequence[Sequence[int] | None], plan: Plan) -> int:
    """The number of the choice that a node of exact sizes is to be lowered with.

    strides: of its inputs, in elements, None where one is missing or a number. plan: gives the plan of a graph, its
    arrays' strides and the choice to take.
    """
    op = node.bound()
    if not flags.get("WEFT_AUTOTUNE") or op.random or node.runtime or op.writes_by_index(len(node.inputs)):
        return 0
    offered = list(choices(op, [None if v is None else v.type for v in node.inputs]))
    if len(offered) < 2 or not any(isinstance(each, Native | Several) for each in offered):
        return 0
    if any(isinstance(each, Native) and each.ordered for each in offered):
        return 0
    key = _key(op, node, strides)
    with _lock:
        counters["asked"] += 1
        found = _known.get(key)
        counters["known"] += found is not None
    if found is None:
        found = _read(key, len(offered))
    if found is None:
        found = _measured(node, strides, len(offered), plan)
        _write(key, found)
    with _lock:
        _known[key] = found
    return found


def _key(op: Any, node: Node, strides: Sequence[Sequence[int] | None]) -> str:
    operands = [None if v is None else str(v.type) for v in node.inputs]
    lying = [None if s is None else list(s) for s in strides]
    facts = [FORMAT, _version(), _core.dnnl_version(), platform.machine(), _processor(), _core.isa()[1]]
    about = [_core.usable_cores(), repr(op), operands, lying]
    return blake2b(json.dumps([*facts, *about]).encode(), digest_size=20).hexdigest()


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
        found = json.loads(path.read_text())["choice"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if type(found) is not int or not 0 <= found < count:
        return None
    with _lock:
        counters["from_disk"] += 1
    return found


def _write(key: str, choice: int) -> None:
    """Whole or not at all; what cannot be written is measured again by the next process."""
    path = _path(key)
    if path is None:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary.write_text(json.dumps({"choice": choice}))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


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
    lying: list[Sequence[int]] = []
    for value, steps in zip(node.inputs, strides, strict=True):
        if value is None or value.is_constant or value.type.weak or steps is None:
            values.append(value)
            continue
        values.append(input_value(value.type))
        arrays.append(_core.zeros(_extent(value.shape, steps), value.dtype, value.device))
        lying.append(steps)
    as_strided = registry.function("as_strided")
    made = make_node(node.bound(), values)
    inputs = [v for v in values if v is not None and v.node.op is None and not v.is_constant]
    shaped = [
        as_strided(x, shape=tuple(v.shape), strides=tuple(steps), offset=0)
        for x, v, steps in zip(arrays, inputs, lying, strict=True)
    ]
    outputs = made.outputs[: len(made.outputs) - node.bound().hidden]
    try:
        candidate = plan(Graph(inputs, outputs), lying, choice)
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
