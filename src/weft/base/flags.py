"""The environment switches, in one table, from which all code reads them.

>>> from weft.base import flags
>>> flags.get("WEFT_FORK_TIMEOUT_S")
10.0
"""

from __future__ import annotations

import os
from collections.abc import Callable

from weft.base.record import Record
from weft.base.typing import Any

__all__ = ["FLAGS", "Flag", "get", "render"]


class Flag(Record):
    """One switch: its name, the type it is read as, the value when unset or empty, what it does in one line.

    choices: the accepted texts, if only some are. least: the smallest accepted number.
    """

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    default: bool | int | float | str | None
    doc: str
    choices: tuple[str, ...] = ()
    least: float | None = None

    def read(self, text: str | None) -> Any:
        """The value that text stands for; the default for None and for empty text.

        Raises ValueError if text is not of the flag's type, not one of its choices, or below its least value.

        >>> Flag("WEFT_CHECK", bool, False, "").read("yes")
        Traceback (most recent call last):
            ...
        ValueError: WEFT_CHECK: cannot read 'yes'; accepted: 0 or 1
        """
        if not text:
            return self.default
        if self.type is bool:
            value: Any = {"0": False, "1": True}.get(text)
        elif self.type is str:
            value = text if not self.choices or text in self.choices else None
        else:
            value = _number(self.type, text)
            if value is not None and self.least is not None and not value >= self.least:
                value = None
        if value is None:
            raise ValueError(f"{self.name}: cannot read {text!r}; accepted: {self.accepted}")
        return value

    @property
    def accepted(self) -> str:
        """What the flag takes, in words.

        >>> Flag("WEFT_NUM_THREADS", int, None, "", least=1).accepted
        'an integer of at least 1'
        """
        if self.type is bool:
            return "0 or 1"
        if self.type is str:
            return " or ".join(self.choices) or "any text"
        kind = "an integer" if self.type is int else "a number"
        return kind if self.least is None else f"{kind} of at least {self.least:g}"


def _number(convert: Callable[[str], Any], text: str) -> Any:
    try:
        return convert(text)
    except ValueError:
        return None


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "WEFT_ENGINE",
            str,
            "threaded",
            "kind of the default engine; naive runs each operation during its call, for debugging",
            choices=("threaded", "naive"),
        ),
        Flag(
            "WEFT_NUM_THREADS",
            int,
            None,
            "number of cores to use, for parallel loops and for workers (unset: all that the process may use)",
            least=1,
        ),
        Flag(
            "WEFT_CHECK",
            bool,
            False,
            "find engine functions that use variables which they did not declare, and verify graphs after each pass",
        ),
        Flag(
            "WEFT_CHECK_LOOPS",
            bool,
            False,
            "generated code tests the bounds of each load and store, and ends the process where one is outside",
        ),
        Flag(
            "WEFT_SCHEDULE_SEED",
            int,
            None,
            "run one function at a time, in an allowed order drawn from this seed, to find wrong declarations "
            "(unset: off)",
            least=0,
        ),
        Flag(
            "WEFT_FORK_TIMEOUT_S",
            float,
            10.0,
            "seconds to wait for pending operations before a fork",
            least=0,
        ),
        Flag(
            "WEFT_EXIT_TIMEOUT_S",
            float,
            60.0,
            "seconds to wait for pending operations when the program ends",
            least=0,
        ),
        Flag(
            "WEFT_ISA",
            str,
            "native",
            "highest instruction set that generated code, oneDNN and native kernels use",
            choices=("sse4", "avx2", "avx512", "native"),
        ),
        Flag(
            "WEFT_STALL_S",
            float,
            30.0,
            "seconds after which a process that waits for others prints their ranks",
            least=0.1,
        ),
        Flag(
            "WEFT_COLLECTIVE_TIMEOUT_S",
            float,
            1800.0,
            "seconds after which a collective operation that waits for other processes raises DistributedError",
            least=0.1,
        ),
        Flag(
            "WEFT_MAX_PICTURE_PIXELS",
            int,
            89_478_485,
            "pixels above which a picture is refused before it is decoded; Pillow's own limit applies, too",
            least=1,
        ),
        Flag("WEFT_KV", str, "local", "kind of the key-value store, set by python -m weft.launch --kv"),
        Flag("WEFT_RANK", int, 0, "index of this worker, set by python -m weft.launch --kv", least=0),
        Flag("WEFT_WORLD_SIZE", int, 1, "number of workers, set by python -m weft.launch --kv", least=1),
        Flag("WEFT_JOB", str, None, "name of the job on a Ray cluster, set by python -m weft.launch --kv"),
        Flag(
            "WEFT_GPU_DRIVER",
            str,
            None,
            "path of a library to load in place of the driver of GPUs, libcuda.so.1",
        ),
        Flag(
            "WEFT_DNNL_LIB", str, None, "path of another libdnnl.so.3 to load in place of the installed one"
        ),
        Flag(
            "WEFT_CACHE_DIR",
            str,
            None,
            "folder for compiled kernels (unset: weft in the user's cache folder)",
        ),
        Flag(
            "WEFT_AUTOTUNE",
            bool,
            False,
            "where an operator has several kernels for the same sizes, measure each once, use the fastest, and "
            "remember it in the folder for compiled kernels",
        ),
        Flag(
            "WEFT_DEBUG",
            int,
            0,
            "0: no output; 1: prints graphs before and after each pass that changes them, and kernels that run "
            "oneDNN's slow reference code, and keeps weft's own frames in tracebacks; 2: prints each rewrite, too",
            least=0,
        ),
        Flag(
            "WEFT_SKIP_PASSES",
            str,
            None,
            "names of graph passes to skip, separated by commas; all: every one",
        ),
    )
}


def get(name: str) -> Any:
    """The value of a switch, from the environment as it is now; its default when unset or empty.

    Raises KeyError if there is no such switch, ValueError if its text cannot be read.

    >>> get("WEFT_DEBUG")
    0
    """
    flag = FLAGS.get(name)
    if flag is None:
        raise KeyError(f"no switch {name}; there are: {', '.join(FLAGS)}")
    return flag.read(os.environ.get(name))


def render() -> str:
    """The table of all switches, as Markdown.

    >>> print(render().splitlines()[0])
    | switch | takes | default | what it does |
    """
    rows = ["| switch | takes | default | what it does |", "|---|---|---|---|"]
    for flag in FLAGS.values():
        default = (
            "unset"
            if flag.default is None
            else f"`{int(flag.default) if flag.type is bool else flag.default}`"
        )
        rows.append(f"| `{flag.name}` | {flag.accepted} | {default} | {flag.doc} |")
    return "\n".join(rows)
