"""An attempt to record a call of a traced function: the run of its Python, and what that came to.

An Attempt is a Traced program, a CannotRecord that says why there is none, or one of the classes below. Only
Trace._conclude acts upon it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from typing import Any

from weft.arrays.tensor import Tensor
from weft.arrays.traced_float import TracedFloats
from weft.base.record import Record
from weft.base.structure import Structure, flatten
from weft.graph.recording import CannotRecord
from weft.recording.captured_environment import CapturedEnvironment
from weft.recording.launch_recorder import LaunchRecorder
from weft.traces.traced import Described, Traced, write_up

__all__ = ["Attempt", "Changing", "Incomplete", "MayFindMore", "RecordedRun"]


class Incomplete(Record):
    """The recorder has given up, and said so, while the function ran."""


class MayFindMore(Record):
    """Tensors are left behind that later calls may find, or that contexts of custom gradients keep.

    Where the result has a history, the two cannot be distinguished. So the function is recorded once more: what its
    second call makes, too, is not found by later ones.
    """


class Changing(Record):
    """The call left something behind that later calls will find, so that only they show what is repeated.

    Such as states that are made when they are first needed. A function that does so each time stays Python.
    """


Attempt = Traced | CannotRecord | Incomplete | MayFindMore | Changing


class RecordedRun(Record):
    """A call whose Python has run under a recorder. leaves, of this structure: its arguments.

    changes_environment, changes_containers: whether it changed variables and attributes that it depends on, or lists
    and dicts among its arguments.
    """

    recorder: LaunchRecorder
    leaves: list[Any]
    structure: Structure
    floats: TracedFloats
    environment: CapturedEnvironment
    result: Any
    changes_environment: bool
    changes_containers: bool

    def program(self, name: str, memory_budget: int | float | None, former: Traced | None) -> Traced:
        """The program of what was recorded. former: one that may be the same. Raises CannotRecord."""
        program = write_up(
            name,
            self.recorder,
            self.leaves,
            self.floats,
            self.result,
            self.environment,
            memory_budget,
            former,
        )
        program.example = [Described(x) if isinstance(x, Tensor) else x for x in self.leaves], self.structure
        return program

    @property
    def has_history(self) -> bool:
        """Whether a result is recorded, so that it keeps arrays that it was computed from."""
        return any(x.requires_grad for x in _tensors_in(self.result))

    def lasting_change(self, program: Traced) -> str:
        """What it left behind that later calls will find; "": nothing."""
        if changed_objects := self.recorder.changed():
            names = ", ".join(sorted({type(x).__name__ for x in changed_objects}))
            return f"each call changes attributes, on which it depends, of {names}"
        if self.changes_environment:
            return "each call changes variables or attributes, on which it depends"
        keeps = not self.has_history and self.keeps_arrays(
            program
        )  # a history keeps arrays, too: MayFindMore
        return "each call makes arrays that are kept elsewhere" if keeps else ""

    def keeps_arrays(self, program: Traced, by_tensors: bool = False) -> bool:
        """Whether arrays that it made are kept elsewhere; by_tensors: by Tensors, not by histories."""
        if not self.recorder.keeps_new_arrays(program.result_memory, by_tensors):
            return False
        with self.recorder.unobserved():
            written = [source.tensor for source, _ in self.recorder.written_sources()]
            _settle([*_tensors_in(self.result), *written])
        return self.recorder.keeps_new_arrays(program.result_memory, by_tensors)


def _tensors_in(result: Any) -> list[Tensor]:
    return [x for x in flatten(result)[0] if isinstance(x, Tensor)]


def _settle(tensors: Iterable[Tensor]) -> None:
    """Wait until what was pushed on these is over, and nothing but references keeps memory."""
    for x in tensors:
        with contextlib.suppress(Exception):  # raised again where the array is read
            x.wait()
    gc.collect()
