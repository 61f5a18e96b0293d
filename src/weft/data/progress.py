"""Progress of an epoch: samples per second, the share of the time that the loop waited for data, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["progress"]

UPDATE_INTERVAL_S = 0.1


def progress(loader: Any, description: str = "", *, file: Any = None) -> Iterator[Any]:
    """The loader's batches, with a line of progress on the terminal: by rich or tqdm where installed, else plain.

    The line has samples (batches, for what is not a DataLoader) a second, the share of the loop's time that was spent
    waiting for batches, and the time left where the length is known. Where `file`, by default sys.stderr, is no
    terminal, nothing is printed.

    >>> import weft.data as data
    >>> [len(batch) for batch in progress(data.DataLoader([1, 2, 3], batch_size=2))]
    [2, 1]
    """
    file = sys.stderr if file is None else file
    if not getattr(file, "isatty", bool)():
        yield from loader
        return
    try:
        total = len(loader)
    except TypeError:
        total = None
    show = (
        _rich(description, total, file) or _tqdm(description, total, file) or _plain(description, total, file)
    )
    stats = getattr(loader, "stats", None)
    initial = (stats.samples, stats.waited_s) if stats is not None else (0, 0.0)
    begin = last_update = time.perf_counter()
    count = 0
    try:
        for batch in loader:
            yield batch
            count += 1
            now = time.perf_counter()
            if now - last_update >= UPDATE_INTERVAL_S or count == total:
                last_update = now
                show(count, rates(stats, initial, count, now - begin))
    finally:
        show(count, None)


def rates(stats: Any, initial: tuple[int, float], batches: int, elapsed_s: float) -> str:
    """1234 samples/s, waiting 3 %"""
    if stats is None:
        return f"{batches / elapsed_s:.0f} batches/s"
    samples, waited_s = stats.samples - initial[0], stats.waited_s - initial[1]
    return f"{samples / elapsed_s:.0f} samples/s, waiting {100 * waited_s / elapsed_s:.0f} %"


def _rich(description: str, total: int | None, file: Any) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, TextColumn("{task.fields[rates]}"), console=Console(file=file), transient=False)
    task = bar.add_task(description, total=total, rates="")
    bar.start()

    def show(count: int, text: str | None) -> None:
        if text is None:
            bar.update(task, completed=count)
            bar.stop()
        else:
            bar.update(task, completed=count, rates=text)

    return show


def _tqdm(description: str, total: int | None, file: Any) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    bar = tqdm(total=total, desc=description, file=file)

    def show(count: int, text: str | None) -> None:
        bar.update(count - bar.n)
        if text is None:
            bar.close()
        else:
            bar.set_postfix_str(text)

    return show


def _plain(description: str, total: int | None, file: Any) -> Any:
    begin = time.perf_counter()

    def show(count: int, text: str | None) -> None:
        if text is None:
            file.write("\n")
        else:
            remaining = ""
            if total is not None and count:
                remaining = f", {(time.perf_counter() - begin) / count * (total - count):.0f} s left"
            position = f"{count}" if total is None else f"{count}/{total}"
            file.write(f"\r{description} {position} {text}{remaining}  ".lstrip())
        file.flush()

    return show
