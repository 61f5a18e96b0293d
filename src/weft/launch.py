"""Start a script on several processes of this machine, or of those of an MPI job.

    python -m weft.launch -n 2 train.py ARGS                  MPI: kinds dist_sync, weft.distributed
    python -m weft.launch -n 2 --kv dist_async train.py ARGS  Ray: dist_sync_ps, dist_async, dist_ssp
    python -m weft.launch -n 2 --profile p.html train.py ARGS the same, and a page of what all processes did

With MPI this is `mpiexec -n 2 python train.py ARGS`, with the mpiexec of the environment's own MPI (package mpich or
openmpi) where there is one, else the one on PATH; --hosts and what --mpi holds go to it. With Ray the processes are
tasks of the cluster of RAY_ADDRESS, or of one that is started on this machine. Each process gets its share of the
cores. The same script runs alone by `python train.py`; -m takes the name of a module instead of a script.
docs/distributed.md describes how machines join.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main", "mpi_command"]

# mpiexec ends all ranks at once when one was killed. Behind this shell it learns of that some seconds later, so that
# the other ranks of the host, which look at each other's processes, can say which one has died.
GUARD = ("sh", "-c", '"$@"; status=$?; [ $status -le 128 ] || sleep 5; exit $status', "weft")
LEFT_S = 0.5  # of another job between the making of a shared file and its mapping
RAY_KINDS = ("dist_sync_ps", "dist_async", "dist_ssp")


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.launch", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("-n", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--kv", default="dist_sync", metavar="KIND", help="kind of store, which determines how to start"
    )
    parser.add_argument("--hosts", help="MPI: names of machines, with commas; mpiexec starts processes there")
    parser.add_argument(
        "--restarts", type=int, default=0, help="Ray: how often a worker that died is started again"
    )
    parser.add_argument("--mpi", default="", help="MPI: further arguments of mpiexec, in quotes")
    parser.add_argument(
        "--threads", type=int, help="threads of each process (default: its share of the cores)"
    )
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="write the profiler's page of all processes there"
    )
    parser.add_argument(
        "--prefix", action="store_true", help="MPI: write the rank before each line (Ray always does)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    if options.n < 1:
        parser.error(f"-n must be at least 1, got {options.n}")
    return options


def environment(n: int, threads: int | None, kind: str) -> dict[str, str]:
    """What each process sees: its share of the cores, unless that is set already."""
    share = str(threads or max(1, (os.cpu_count() or 1) // n))
    variables = dict(os.environ)
    for name in ("WEFT_NUM_THREADS", "OMP_NUM_THREADS"):
        if threads or name not in variables:
            variables[name] = share
    variables["WEFT_KV"] = kind
    return variables


def mpi_command(n: int, hosts: str | None = None, more: str = "", prefix: bool = False) -> list[str]:
    """The command that starts n processes. prefix: lines begin with the rank.

    Raises FileNotFoundError if there is no mpiexec.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise FileNotFoundError("no mpiexec: pip install weft[dist], which brings MPICH and mpi4py")
    command = [mpiexec, "-n", str(n)]
    if _is_open_mpi(mpiexec):
        command.append("--oversubscribe")
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--allow-run-as-root")
        command += ["--host", hosts] if hosts else []
        command += ["--tag-output"] if prefix else []
    else:
        command += ["-hosts", hosts] if hosts else []
        command += ["-prepend-rank"] if prefix else []
    return command + more.split()


def _is_open_mpi(command: str) -> bool:
    version = subprocess.run([command, "--version"], capture_output=True, text=True)
    return "Open MPI" in version.stdout or "open-mpi" in version.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Start the script; returns the status to end with."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    if not options.module and not Path(options.script).exists():
        sys.stderr.write(f"weft.launch: no script {options.script!r}\n")
        return 2
    script = [*(["-m"] if options.module else []), options.script, *options.args]
    try:
        return run(options, script)
    except KeyboardInterrupt:  # all processes have ended
        sys.stderr.write("weft.launch: interrupted\n")
        return 130


def run(options: argparse.Namespace, script: list[str]) -> int:
    """Run a script on all processes, with a profile if one is wanted; returns the status to end with."""
    if options.profile is None:
        return start(options, script)
    if not options.profile.resolve().parent.is_dir():
        sys.stderr.write(f"weft.launch: no folder {options.profile.parent} for the profile\n")
        return 2
    # Beside the page: a folder that all machines of a job see, if they see that one.
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", dir=options.profile.resolve().parent) as folder:
        if not options.module:
            script[0] = os.path.abspath(script[0])
        status = start(options, ["-m", "weft.tools.profiler", "--rank-folder", folder, *script])
        return write_profile(options.profile, Path(folder), options.n) or status


def start(options: argparse.Namespace, script: Sequence[str]) -> int:
    """Run what follows `python` on all processes; returns the status to end with."""
    env = environment(options.n, options.threads, options.kv)
    if options.kv in RAY_KINDS:
        from weft.kvstore.workers import run_workers

        return run_workers(options.n, script, env, options.restarts)
    try:
        command = mpi_command(options.n, options.hosts, options.mpi, options.prefix)
    except FileNotFoundError as error:
        sys.stderr.write(f"weft.launch: {error}\n")
        return 2
    began_s, before = time.time(), shared_files()
    try:
        return subprocess.run([*command, *GUARD, sys.executable, *script], env=env).returncode
    finally:
        remove_shared_files(shared_files() - before, began_s)


def shared_files() -> set[Path]:
    """The shared memory of MPICH's jobs on this machine."""
    return set(Path("/dev/shm").glob("mpich_shm_*"))


def remove_shared_files(files: set[Path], began_s: float) -> None:
    """Remove what a job that began then has left: MPICH does so only where all ranks end well.

    Files of other users, and those that a process has open or mapped, belong to other jobs.
    """
    time.sleep(LEFT_S if files else 0)  # another job maps its own as soon as it has made it
    own = set()
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_uid == os.getuid() and began_s <= status.st_ctime <= time.time() - LEFT_S / 2:
                own.add(path)
    for maps in Path("/proc").glob("[0-9]*/maps") if own else ():
        with contextlib.suppress(OSError):
            text = maps.read_text()
            own = {path for path in own if str(path) not in text}
    for path in own:
        path.unlink(missing_ok=True)


def write_profile(page: Path, folder: Path, n: int) -> int:
    """One page of what the ranks have left in a folder; returns 0, or 1 if there is nothing."""
    from weft.tools.profiling import Profile  # which takes longer to import than to start the job

    files = [path for k in range(n) if (path := folder / f"rank-{k}.raw").exists()]
    if not files:
        sys.stderr.write("weft.launch: no process has left a profile\n")
        return 1
    profile = Profile.load(*files)
    profile.save(page)
    missing = f", of {len(files)} of {n} processes" if len(files) < n else ""
    sys.stderr.write(f"{profile}\n{page.resolve()}{missing}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
