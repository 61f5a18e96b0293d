"""Run a program and show what it did, in a browser.

    python -m weft.tools.profiler [--out report.html] [--no-open] [--chrome t.json] [--csv t.csv] script.py arguments
    python -m weft.tools.profiler [...] -m module arguments
    python -m weft.tools.profiler --join [--out report.html] a.raw b.raw

The report is one HTML file, which needs no network. It is written also where the program fails, is interrupted, or
calls sys.exit; the command then ends with the program's status. --join shows several processes on one timeline, from
the files that each wrote with --raw. python -m weft.launch --profile FILE does that for the processes that it starts.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.distributed.world import known_rank
from weft.tools.profiling import Profile, profile

__all__ = ["main"]


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.tools.profiler",
        description=(__doc__ or "").splitlines()[0],
        epilog="The program is given with its arguments, which the options above must precede.",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the report (profile.html)", default=None)
    parser.add_argument("--no-open", action="store_true", help="only print where the report is")
    parser.add_argument("--chrome", type=Path, metavar="FILE", help="also write trace events for Perfetto")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table of operators")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="also write the recording, for --join")
    parser.add_argument(
        "--worker", default="", metavar="NAME", help="a name for this process in joined reports"
    )
    parser.add_argument(
        "--join", action="store_true", help="run nothing: PROGRAM and arguments are files of --raw"
    )
    parser.add_argument("--rank-folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--no-memory", action="store_true", help="do not record allocations")
    parser.add_argument("--limit", type=int, default=4_000_000, metavar="N", help="most events (4000000)")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: the program's own."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    page = options.out or Path("profile.html")
    if options.join:
        try:
            p = Profile.load(options.program, *options.arguments)
        except (ValueError, OSError) as problem:
            parser.error(str(problem))
        write(p, page, options.chrome, options.csv)
        if not options.no_open:
            webbrowser.open(page.resolve().as_uri())
        return 0
    if not options.module and not Path(options.program).is_file():
        parser.error(f"there is no file {options.program}")
    p = profile(memory=not options.no_memory, limit=options.limit)
    status = run(p, options.program, options.arguments, options.module)
    if options.rank_folder is not None:  # weft.launch joins what all ranks write there
        k = known_rank()
        p.dump(options.rank_folder / f"rank-{k}.raw", f"rank {k}")
        return status
    write(p, page, options.chrome, options.csv)
    if options.raw is not None:
        p.dump(options.raw, options.worker)
    if not options.no_open:
        webbrowser.open(page.resolve().as_uri())
    return status


def run(p: Any, program: str, arguments: Sequence[str], module: bool = False) -> int:
    """Run a script or a module as __main__ inside of ``with p``; returns its exit status."""
    saved = sys.argv[:], sys.path[:]
    sys.argv = [program, *arguments]
    sys.path[0] = os.getcwd() if module else str(Path(program).resolve().parent)
    try:
        with p:
            if module:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[:] = saved
    return 0


def write(p: Profile, page: Path, chrome: Path | None = None, table: Path | None = None) -> None:
    """Write the reports, and say so on stderr."""
    p.save(page)
    lines = [str(page.resolve())]
    if chrome is not None:
        p.to_chrome(chrome)
        lines.append(str(chrome.resolve()))
    if table is not None:
        p.to_csv(table)
        lines.append(str(table.resolve()))
    print(f"{p}\n" + "\n".join(lines), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
