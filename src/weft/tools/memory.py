"""Run a program and show its memory: what is in use, which lines hold it, what is not given back.

    python -m weft.tools.memory [--live] [--out memory.html] [--no-open] script.py arguments
    python -m weft.tools.memory [...] -m module arguments

With --live a page on 127.0.0.1 follows the program while it runs; the file is written at its end in any case. Inside
of a program, watch() does the same, memory_summary() says in words what the pools hold, and mark() and leaks() find
what stays.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import secrets
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft import _core
from weft.storage import stats
from weft.tools.allocations import Allocation, allocations_of, by_line, in_use, peak
from weft.tools.page import as_json, fill_template, part
from weft.tools.profiler import run
from weft.tools.recording import LIMIT, ProcessRecorder, ProcessRecording

__all__ = ["MemoryServer", "MemoryWatch", "main", "mark", "memory_summary", "watch"]

POINTS = 4000  # of a curve
ROWS = 500


def memory_summary(device: Any = None) -> str:
    """The state of the pools of the devices, as text: in use, at the peak, held from the system, and how broken up.

    device: only of this one; by default all that were used. Fragmentation: the share of the unused memory held from
    the system that is not one piece.

    >>> import weft as wf
    >>> x = wf.zeros((1024, 256))
    >>> print(memory_summary("cpu:0"))
    cpu:0
      in use         ... MiB in ... blocks
      ...
    """
    devices = [device] if device is not None else _core.used_devices() or ["cpu:0"]
    lines = []
    for each in devices:
        s = stats(each)
        unused = max(s["reserved_bytes"] - s["in_use_bytes"], 0)
        broken = 1 - min(s["largest_free_bytes"] / unused, 1) if unused else 0.0
        reused = s["reused"] / max(s["allocations"], 1)
        lines += [
            str(each),
            f"  in use         {_mib(s['in_use_bytes'])} in {s['live_blocks']:,} blocks",
            f"  peak           {_mib(s['peak_in_use_bytes'])}",
            f"  held           {_mib(s['reserved_bytes'])} from the system",
            f"  most held      {_mib(s['peak_reserved_bytes'])}",
            f"  unused         {_mib(unused)}, fragmentation {broken:.0%}",
            f"  largest piece  {_mib(s['largest_free_bytes'])}",
            f"  allocations    {s['allocations']:,}, {reused:.0%} of them of memory that was there",
        ]
    return "\n".join(lines)


def _mib(size: int) -> str:
    return f"{size / 2**20:10.2f} MiB"


class MemoryWatch:
    """Watches allocations while it is entered: snapshot(), mark(), leaks(), save(path); see watch."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._recorder = ProcessRecorder(limit=limit)
        self._marks: dict[str, float] = {}
        self._result: ProcessRecording | None = None

    def __enter__(self) -> MemoryWatch:
        global _active
        self._recorder.__enter__()
        _active = self
        return self

    def __exit__(self, *error: Any) -> None:
        global _active
        _active = None
        try:
            self._recorder.__exit__(*error)
        finally:
            self._result = self._recorder.recording

    @property
    def recording(self) -> ProcessRecording:
        """The recording until now, or the whole one."""
        return self._recorder.snapshot() if self._result is None else self._result

    def mark(self, name: str = "") -> str:
        """Remember this moment under a name ("mark 0", ... by default), which is returned."""
        name = name or f"mark {len(self._marks)}"
        self._marks[name] = self._recorder.now_s()
        return name

    @property
    def marks(self) -> dict[str, float]:
        """Seconds of the marks since the beginning."""
        return dict(self._marks)

    def snapshot(self) -> list[Allocation]:
        """The allocations made while watched that are there now, the largest first."""
        return sorted((a for a in allocations_of(self.recording) if a.held), key=lambda a: -a.bytes)

    def leaks(self, first: str = "", last: str = "") -> list[Allocation]:
        """The allocations made after one mark and still there at another one, the largest first.

        first, last: names; by default the first mark and the last one. Raises KeyError for another name, ValueError if
        there are not two marks.
        """
        names = list(self._marks)
        if not (first and last) and len(names) < 2:
            raise ValueError(f"leaks: needs two marks, there are {len(names)}")
        start, end = self._marks[first or names[0]], self._marks[last or names[-1]]
        leaks = [
            a
            for a in allocations_of(self.recording)
            if start <= a.start_s <= end and (a.end_s is None or a.end_s > end)
        ]
        return sorted(leaks, key=lambda a: -a.bytes)

    def save(self, path: str | Path) -> None:
        """Write the page as one HTML file."""
        Path(path).write_text(page(self.document()))

    def document(self, live: bool = False) -> dict[str, Any]:
        """The data of the page."""
        recording = self.recording
        allocations = allocations_of(recording)
        peak_s, peak_bytes, holders = peak(recording, allocations)
        seconds, used_bytes = in_use(recording)
        lines = by_line(allocations)
        held_lines = by_line([a for a in allocations if a.held])
        pools = [stats(device) for device in _core.used_devices() or ["cpu:0"]]
        reserved, now = (sum(s[k] for s in pools) for k in ("reserved_bytes", "in_use_bytes"))
        largest = max(s["largest_free_bytes"] for s in pools)
        unused = max(reserved - now, 0)
        leaks = self.leaks() if len(self._marks) >= 2 else []
        return {
            "program": " ".join(sys.argv),
            "live": live,
            "seconds": recording.seconds,
            "peak": peak_bytes,
            "peak_s": peak_s,
            "curve": _decimate(seconds, used_bytes),
            "marks": [list(item) for item in self._marks.items()],
            "tiles": [
                ("in use", _short(int(used_bytes[-1]))),
                ("most in use", _short(peak_bytes)),
                ("held from the system", _short(reserved)),
                ("fragmentation", f"{1 - min(largest / unused, 1):.0%}" if unused else "0%"),
                ("allocations", f"{len(allocations):,}"),
                ("still there", f"{sum(a.held for a in allocations):,}"),
                ("from before", _short(recording.held_bytes)),
            ],
            "now": [[where, count, total] for where, (count, total, _) in held_lines.items()][:ROWS],
            "peak_holders": [
                [h.name or "(array)", h.bytes, h.shape, h.where, h.module] for h in holders[:ROWS]
            ],
            "lines": [[where, *row] for where, row in list(lines.items())[:ROWS]],
            "leaks": _group_leaks(leaks)[:ROWS],
        }


def _short(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def _group_leaks(leaks: Sequence[Allocation]) -> list[list[Any]]:
    """(line, allocations, bytes, shape), the most bytes first."""
    counts = Counter((a.where, a.shape) for a in leaks)
    total: Counter[tuple[str, str]] = Counter()
    for a in leaks:
        total[a.where, a.shape] += a.bytes
    return [[where, counts[where, shape], size, shape] for (where, shape), size in total.most_common()]


def _decimate(seconds: Any, used_bytes: Any) -> list[tuple[float, int]]:
    """At most POINTS points of a curve, with the highest of those that share one."""
    if len(seconds) <= POINTS:
        return list(zip(seconds.tolist(), used_bytes.tolist(), strict=True))
    edges = np.linspace(0, len(seconds), POINTS // 2 + 1).astype(int)
    points = sorted(
        {int(a + np.argmax(used_bytes[a:b])) for a, b in itertools.pairwise(edges) if b > a}
        | {int(b - 1) for b in edges[1:]}
    )
    return [(float(seconds[k]), int(used_bytes[k])) for k in points]


def page(document: dict[str, Any]) -> str:
    """The page that shows a document."""
    return fill_template(
        "memory.html", STYLE=part("style.css"), DATA=as_json(document), SCRIPT=part("memory.js")
    )


_active: MemoryWatch | None = None


def watch(limit: int = LIMIT) -> MemoryWatch:
    """Watch memory inside ``with``: eager calls and programs alike.

    limit: most events that are kept. Raises RuntimeError at the entry if the process is recorded already.

    >>> import weft as wf
    >>> from weft.tools import memory
    >>> kept = []
    >>> with memory.watch() as w:
    ...     before = w.mark()
    ...     for _ in range(3):
    ...         kept.append(wf.ones((100, 100)) + 1)
    ...     after = w.mark()
    >>> [(a.shape, a.name) for a in w.leaks()][:1], len(w.leaks())
    ([('f32[100,100]', 'add')], 3)
    """
    return MemoryWatch(limit)


def mark(name: str = "") -> None:
    """Set a mark in the watch that is entered; nothing happens where none is.

    >>> mark("epoch 1")
    """
    if _active is not None:
        _active.mark(name)


class MemoryServer:
    """Shows a watch in a browser while it goes on: a page on 127.0.0.1 under a random path, which can only be read."""

    def __init__(self, watched: MemoryWatch) -> None:
        token = secrets.token_urlsafe(16)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = (self.headers.get("Host") or "").rpartition(":")[0]
                if host not in ("127.0.0.1", "localhost"):  # another site's name that leads here
                    self.send_error(403)
                elif self.path == f"/{token}/":
                    self._answer(page(watched.document(live=True)), "text/html; charset=utf-8")
                elif self.path == f"/{token}/data.json":
                    self._answer(as_json(watched.document(live=True)), "application/json")
                else:
                    self.send_error(404)

            def _answer(self, text: str, kind: str) -> None:
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="weft memory", daemon=True)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/{token}/"

    def __enter__(self) -> MemoryServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: the program's own."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.tools.memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--live", action="store_true", help="also show a page while the program runs")
    parser.add_argument("--out", type=Path, metavar="FILE", default=Path("memory.html"), help="the report")
    parser.add_argument("--no-open", action="store_true", help="only print where the report is")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help="most events")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if not options.module and not Path(options.program).is_file():
        parser.error(f"there is no file {options.program}")
    watched = MemoryWatch(options.limit)
    if options.live:
        with MemoryServer(watched) as server:
            print(server.address, file=sys.stderr, flush=True)
            if not options.no_open:
                webbrowser.open(server.address)
            status = run(watched, options.program, options.arguments, options.module)
    else:
        status = run(watched, options.program, options.arguments, options.module)
    watched.save(options.out)
    print(f"{memory_summary()}\n{options.out.resolve()}", file=sys.stderr)
    if not (options.no_open or options.live):
        webbrowser.open(options.out.resolve().as_uri())
    return status


if __name__ == "__main__":
    from weft.tools import memory  # the module that programs import, so that mark() finds the watch

    sys.exit(memory.main())
