"""Memory of a recording: the use over time, the allocations at the peak, and those that were not released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.tools.recording import ProcessRecording

__all__ = ["Allocation", "allocations_of", "by_line", "in_use", "peak"]


class Allocation(NamedTuple):
    """A piece of memory: its purpose, its array's shape ("" if it is not an array), its maker, and when it was
    allocated and released.

    end_s: None if it was still there at the end.
    """

    bytes: int
    shape: str
    name: str
    where: str
    module: str
    start_s: float
    end_s: float | None

    @property
    def held(self) -> bool:
        """Whether it was still there at the end."""
        return self.end_s is None


def allocations_of(recording: ProcessRecording) -> list[Allocation]:
    """All that were made while it was recorded, in order.

    name: the operation that was pushed next by the same line, or ran meanwhile.
    """
    r, memory = recording, recording.memory
    open_rows: dict[tuple[int, int], int] = {}
    ends: dict[int, float] = {}
    columns = (memory[name].tolist() for name in ("address", "device", "is_release", "time"))
    for k, (address, device, release, time) in enumerate(zip(*columns, strict=True)):
        if not release:
            open_rows[address, device] = k
        elif (index := open_rows.pop((address, device), None)) is not None:
            ends[index] = time * 1e-9
    names = _names(recording)
    return [
        Allocation(
            int(row["bytes"]),
            r.shapes[row["shape"]],
            names[k],
            r.sites[row["site"]],
            r.contexts[row["context"]],
            float(row["time"]) * 1e-9,
            ends.get(k),
        )
        for k, row in enumerate(memory)
        if not row["is_release"]
    ]


def _names(recording: ProcessRecording) -> dict[int, str]:
    """For each allocation the operation that it was for."""
    memory, operations = recording.memory, recording.operations
    rows = np.nonzero(memory["is_release"] == 0)[0]
    operations_here = operations[operations["engine"] == 0]
    running = dict(zip(operations_here["id"].tolist(), operations_here["name"].tolist(), strict=True))
    names_by_row: dict[int, str] = {}
    for thread in np.unique(memory["thread"][rows]):
        pushed = operations[operations["push_thread"] == thread]
        times, sites, names = pushed["pushed"], pushed["site"], pushed["name"]
        thread_rows = rows[memory["thread"][rows] == thread]
        following = np.searchsorted(times, memory["time"][thread_rows])
        for k, next_operation in zip(thread_rows.tolist(), following.tolist(), strict=True):
            inside = int(memory["operation"][k])
            if inside in running:
                names_by_row[k] = f"space of {recording.names[running[inside]]}"
            elif next_operation < len(times) and sites[next_operation] == memory["site"][k]:
                names_by_row[k] = recording.names[names[next_operation]]
            else:
                names_by_row[k] = "" if memory["shape"][k] else "temporary space"
    return names_by_row


def in_use(recording: ProcessRecording) -> tuple[Any, Any]:
    """(seconds, bytes): how much was in use after each change, including what was held before the recording."""
    memory = recording.memory
    held_columns = (recording.held[name].tolist() for name in ("address", "device", "bytes"))
    size = {(address, device): size_bytes for address, device, size_bytes in zip(*held_columns, strict=True)}
    change = np.zeros(len(memory), np.int64)
    columns = (memory[name].tolist() for name in ("address", "device", "is_release", "bytes"))
    for k, (address, device, release, size_bytes) in enumerate(zip(*columns, strict=True)):
        if not release:
            size[address, device] = size_bytes
            change[k] = size_bytes
        else:
            change[k] = -size.pop((address, device), 0)
    seconds = np.concatenate([[0.0], memory["time"] * 1e-9])
    return seconds, recording.held_bytes + np.concatenate([[0], np.cumsum(change)])


def peak(
    recording: ProcessRecording, allocations: Sequence[Allocation] | None = None
) -> tuple[float, int, list[Allocation]]:
    """When most was in use, how many bytes, and the allocations that held it, the largest first."""
    seconds, used_bytes = in_use(recording)
    position = int(np.argmax(used_bytes))
    time = float(seconds[position])
    all_allocations = allocations_of(recording) if allocations is None else allocations
    holders = [a for a in all_allocations if a.start_s <= time and (a.end_s is None or a.end_s > time)]
    return time, int(used_bytes[position]), sorted(holders, key=lambda a: -a.bytes)


def by_line(allocations: Sequence[Allocation]) -> dict[str, tuple[int, int, int]]:
    """(allocations, bytes of all, bytes of those still there) by line, the most bytes first."""
    lines: dict[str, tuple[int, int, int]] = {}
    for a in allocations:
        count, total, held_bytes = lines.get(a.where, (0, 0, 0))
        lines[a.where] = (count + 1, total + a.bytes, held_bytes + (a.bytes if a.held else 0))
    return dict(sorted(lines.items(), key=lambda item: -item[1][1]))
