"""The profile as one HTML file: the page in weft/tools/pages, its data as JSON, and the events as packed columns.

The columns are arrays of numbers one after the other (pages/profile.js has the order), deflated and in base64: a
million events take some 10 MB, and a browser has unpacked them in a fraction of a second.
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib.resources import files
from typing import Any

import numpy as np

from weft.tools.allocations import allocations_of, by_line, in_use, peak
from weft.tools.peaks import machine_peaks
from weft.tools.timeline_events import BY, exchange_rows, steps_of

__all__ = ["fill_template", "profile_page"]

LEVEL = 1  # of compression: faster than the disk
HOLDERS = ("name", "shape", "where", "module")
LARGEST = 3  # blocks of a program's arena that are named


def part(name: str) -> str:
    """A file of weft/tools/pages.

    >>> part("style.css").startswith(":root")
    True
    """
    return files("weft.tools").joinpath("pages", name).read_text(encoding="utf-8")


def fill_template(template: str, **parts: str) -> str:
    """A page with its parts: each name is in the template as a comment, as in /*DATA*/."""
    text = part(template)
    for name, content in parts.items():
        text = text.replace(f"/*{name}*/", content, 1)
    return text


def as_json(value: Any) -> str:
    """JSON that can be in a script element.

    >>> print(as_json("</script>"))
    "\\u003c/script>"
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def profile_page(profile: Any) -> str:
    """The page of a weft.tools.profiling.Profile."""
    data, columns = page_data(profile)
    return fill_template(
        "profile.html",
        STYLE=part("style.css"),
        DATA=as_json(data),
        COLUMNS=base64.b64encode(zlib.compress(columns, LEVEL)).decode(),
        SCRIPT=part("profile.js"),
    )


def page_data(profile: Any) -> tuple[dict[str, Any], bytes]:
    """The data of the page: the JSON document, and the columns."""
    events, recording = profile.events, profile.recording
    allocations = allocations_of(recording)
    peak_s, peak_bytes, _ = peak(recording, allocations)
    seconds, used_bytes = in_use(recording)
    holders: dict[tuple[str, ...], int] = {}
    numbers = [
        holders.setdefault(tuple(getattr(a, field) for field in HOLDERS), len(holders)) for a in allocations
    ]
    last = profile.seconds
    columns = b"".join(
        np.ascontiguousarray(array, kind).tobytes()
        for array, kind in (
            (events.start, np.float64),
            (seconds, np.float64),
            (used_bytes, np.float64),
            ([a.start_s for a in allocations], np.float64),
            ([np.inf if a.end_s is None else a.end_s for a in allocations], np.float64),
            ([a.bytes for a in allocations], np.float64),
            (events.seconds, np.float32),
            (events.self_seconds, np.float32),
            (events.detail, np.uint32),
            (events.parent, np.int32),
            (numbers, np.uint32),
            (events.counts, np.uint8),
        )
    )
    data = {
        "facts": recording.facts,
        "seconds": last,
        "tiles": _tiles(profile, peak_bytes),
        "peaks": machine_peaks(),
        "by": BY,
        "details": [d._asdict() for d in events.details],
        "lanes": [lane._asdict() for lane in events.lanes],
        "counts": {"events": len(events), "memory": len(seconds), "allocations": len(allocations)},
        "steps": [{"name": s.name, "start": s.start_s, "end": s.end_s} for s in steps_of(recording)],
        "moments": [
            {"kind": m.kind, "name": m.name, "where": m.where, "start": m.start_s, "end": m.end_s}
            for m in recording.moments
            if m.kind not in ("module", "data")
        ],
        "exchanges": profile.exchanges(),
        "warnings": [w._asdict() for w in profile.warnings()],
        "memory": {
            "peak": peak_bytes,
            "peak_s": peak_s,
            "held": recording.held_bytes,
            "lines": [[where, *row] for where, row in list(by_line(allocations).items())[:200]],
        },
        "holders": [dict(zip(HOLDERS, key, strict=True)) for key in holders],
        "programs": _programs(profile),
    }
    return data, columns


def _tiles(profile: Any, peak_bytes: int) -> list[tuple[str, str]]:
    rows = profile.events.table("kind").values()
    busy = sum(work.seconds for work in rows)
    flops = sum(work.flops for work in rows)
    operations = sum(len(r.operations) for r in profile.recordings)
    kernels = sum(len(r.steps) for r in profile.recordings)
    plans = sum(m.kind in ("plan", "compile", "trace") for r in profile.recordings for m in r.moments)
    waits = sum(float((r.waits["end"] - r.waits["start"]).sum()) for r in profile.recordings) * 1e-9
    tiles = [
        ("recorded", _seconds(profile.seconds)),
        ("in kernels, all threads", _seconds(busy)),
        ("of that, GFLOP/s", f"{flops / max(busy, 1e-12) * 1e-9:.1f}"),
        ("operations", f"{operations:,}"),
        ("kernels", f"{kernels:,}"),
        ("plans, traces, compilations", f"{plans:,}"),
        ("Python waited", _seconds(waits)),
        ("most memory", f"{peak_bytes / 2**20:.1f} MiB"),
    ]
    rows = [rows[-1] for r in profile.recordings if (rows := exchange_rows(r))]
    if rows:
        seconds = [row.waiting_s + row.moving_s for row in rows]
        hidden = sum(row.hidden * s for row, s in zip(rows, seconds, strict=True)) / max(sum(seconds), 1e-12)
        tiles += [("exchange", _seconds(sum(seconds))), ("of that beside kernels", f"{hidden:.0%}")]
    return tiles


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def _programs(profile: Any) -> list[dict[str, Any]]:
    programs = []
    for r in profile.recordings:
        for program in r.programs.values():
            report = program.report
            if report is None or len(program.steps) < 2:
                continue
            largest = sorted(report.lifetimes, key=lambda life: -life.size_bytes)[:LARGEST]
            programs.append(
                {
                    "name": program.name,
                    "steps": len(program.steps),
                    "arena": report.arena_bytes,
                    "live": report.largest_live_bytes,
                    "naive": report.naive_bytes,
                    "kept": report.kept_bytes,
                    "largest": "; ".join(
                        f"{life.type.split('@')[0]} {life.text[:40]} {life.where.rpartition('/')[2]}"
                        for life in largest
                    ),
                }
            )
    return sorted(programs, key=lambda program: -program["arena"])
