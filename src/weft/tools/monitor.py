"""Logs of training: numbers in a CSV file, and statistics of internal outputs.

>>> import weft as wf
>>> import weft.module as M
>>> net = M.Sequential(M.Linear(4, 3), M.ReLU())
>>> monitor = Monitor(statistic=lambda x: wf.abs(x).mean()).install(net)
>>> with monitor:
...     y = net(wf.ones((2, 4)))
>>> [(row.step, row.name) for row in monitor.rows]
[(0, 'Sequential.0'), (0, 'Sequential.1'), (0, 'Sequential')]
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import no_grad
from weft.module.module import Handle, Module
from weft.ops import registry
from weft.recording.paths import path_of

__all__ = ["CSVLogger", "Monitor", "MonitorRow"]


class CSVLogger:
    """Numbers by step in a CSV file: a row for each log(), a column for each name, whenever it turns up first.

    An existing log is continued, so a run that goes on from a checkpoint loses none of its rows; append=False begins a
    new one in its place. Raises ValueError for the name "step", or for a file to continue that is not a log.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = CSVLogger(f"{folder}/log.csv")
    ...     log.log(0, loss=0.5)
    ...     log.log(1, loss=0.25, accuracy=0.75)
    ...     print(log.path.read_text(), end="")
    step,loss,accuracy
    0,0.5,
    1,0.25,0.75
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = True) -> None:
        self.path = Path(path)
        self.names: list[str] = []
        self._rows: list[tuple[int, dict[str, float]]] = []
        if append and self.path.exists() and self.path.stat().st_size:
            self._read()
        else:
            self._write_all()

    def _read(self) -> None:
        """The rows of an earlier run."""
        with open(self.path, newline="") as file:
            rows = csv.reader(file)
            step, *self.names = next(rows)
            try:
                if step != "step":
                    raise ValueError(f"its first column is {step!r}, not 'step'")
                for cells in rows:
                    if len(cells) != len(self.names) + 1:
                        break  # the last row, of a program that was killed while it wrote
                    values = zip(self.names, cells[1:], strict=True)
                    self._rows.append((int(cells[0]), {name: float(cell) for name, cell in values if cell}))
            except ValueError as error:
                raise ValueError(
                    f"CSVLogger: {self.path} is not a log to continue: {error}; append=False begins anew"
                ) from None
        self._write_all()

    def log(self, step: int, **values: Any) -> None:
        """Append a row, whole at once; a tensor of one element is waited for."""
        row = {name: float(x.item() if hasattr(x, "item") else x) for name, x in values.items()}
        new_names = [name for name in row if name not in self.names]
        self._rows.append((int(step), row))
        self.names += new_names
        if new_names:
            self._write_all()
        else:
            with open(self.path, "a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(self._cells(self._rows[-1]))

    def _cells(self, row: tuple[int, dict[str, float]]) -> list[Any]:
        return [row[0], *(row[1].get(name, "") for name in self.names)]

    def _write_all(self) -> None:
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        with open(part, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *self.names])
            writer.writerows(map(self._cells, self._rows))
        os.replace(part, self.path)


class MonitorRow(NamedTuple):
    """A statistic of an output: of which step and what."""

    step: int
    name: str
    value: Any


def root_mean_square(x: Tensor) -> Any:
    """The size of a typical element: the norm over the square root of the number."""
    wide = x.astype("float32") if not x.dtype.is_floating or x.dtype.itemsize < 4 else x
    return registry.function("sqrt")(registry.function("mean")(wide * wide))


class Monitor:
    """Statistics of the outputs of modules, or of all internal outputs of an executor, every `interval` steps.

    statistic: of a tensor to a number or a tensor, by default the root of the mean of squares. pattern: a regular
    expression; names that it does not match from their beginning are left out. A step is a ``with`` block, or what is
    between tic() and toc(). Values of modules are computed as the modules run; a traced function replays without them,
    so install on the module and call it directly. Those of an executor come from its forward; while it is looked at,
    nothing is fused over internal outputs.
    Raises ValueError unless interval is at least 1.
    """

    def __init__(
        self,
        interval: int = 1,
        statistic: Callable[[Tensor], Any] = root_mean_square,
        pattern: str = "",
        sort: bool = False,
    ) -> None:
        if interval < 1:
            raise ValueError(f"Monitor: interval must be at least 1, got {interval}")
        self.interval, self.statistic, self.sort = interval, statistic, sort
        self.rows: list[MonitorRow] = []
        self._pattern = re.compile(pattern)
        self._handles: list[Handle] = []
        self._executors: list[Any] = []
        self._step = -1
        self._is_on = False
        self._queue: list[MonitorRow] = []

    def install(self, thing: Any) -> Monitor:
        """Look at a Module and all below it, or at an executor of a symbol; returns the monitor."""
        if isinstance(thing, Module):
            for _, module in thing.named_modules():
                self._handles.append(module.register_forward_hook(self._hook(thing)))
        elif hasattr(thing, "set_monitor_callback"):
            self._executors.append(thing)
        else:
            raise TypeError(f"Monitor: takes a Module or an executor, got {type(thing).__name__}")
        return self

    def remove(self) -> None:
        """Look at nothing any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._executors.clear()

    def _hook(self, root: Module) -> Callable[..., None]:
        def hook(module: Module, args: Any, y: Any) -> None:
            if self._is_on and _core.get_recorder() is None:
                self._add(path_of([root, module] if module is not root else [root]), y)

        return hook

    def _add(self, name: str, y: Any) -> None:
        tensors = [x for x in flatten(y)[0] if type(x) is Tensor]
        for k, x in enumerate(tensors):
            full = name if len(tensors) == 1 else f"{name}[{k}]"
            if self._pattern.match(full):
                with no_grad():
                    self._queue.append(MonitorRow(self._step, full, self.statistic(x)))

    def tic(self) -> None:
        """A step begins."""
        self._step += 1
        self._is_on = self._step % self.interval == 0
        self._queue = []
        for executor in self._executors:
            executor.set_monitor_callback(self._add if self._is_on else None)

    def toc(self) -> list[MonitorRow]:
        """A step ends: its rows, whose values are Python numbers where they have one element."""
        if not self._is_on:
            return []
        for executor in self._executors:
            executor.set_monitor_callback(None)
        self._is_on = False
        rows = [row._replace(value=_plain(row.value)) for row in self._queue]
        if self.sort:
            rows.sort(key=lambda row: row.name)
        self.rows += rows
        return rows

    def toc_print(self) -> None:
        """toc(), and print the rows."""
        for row in self.toc():
            print(f"step {row.step:6}  {row.name:40}  {row.value}")

    def __enter__(self) -> Monitor:
        self.tic()
        return self

    def __exit__(self, *_: object) -> None:
        self.toc()


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item() if value.size == 1 else value.numpy()
    return value


def by_name(rows: Sequence[MonitorRow]) -> dict[str, list[Any]]:
    """The values of each name, in the order of the steps.

    >>> by_name([MonitorRow(0, "a", 1.0), MonitorRow(1, "a", 2.0)])
    {'a': [1.0, 2.0]}
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        values.setdefault(row.name, []).append(row.value)
    return values
