"""Start a script as workers of parameter servers, as tasks of Ray: `python -m weft.launch -n 2 --kv dist_async`."""

from __future__ import annotations

import os
import re
import runpy
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.kvstore.ray_cluster import connect

__all__ = ["run_workers"]

LOGS_S = 1.0  # Ray brings what workers print to this process by looking at their files twice a second


def _run_script(script: Sequence[str]) -> tuple[int, str]:
    """In a process of Ray: the script, or "-m" and a module, as the main program.

    Returns the status it ends with, and the text of sys.exit("text"). The status is 1 where a request to the servers
    has failed whose error nothing has read.
    """
    from weft.kvstore.parameter_server import close_all

    try:
        status, text = _status_of(script)
    finally:
        unread = close_all()
        sys.stdout.flush()
        sys.stderr.flush()
    if status == 0 and unread:
        status, text = 1, f"a request to the servers has failed, and nothing has read its error: {unread[0]}"
    unread.clear()  # Ray's process ends as usual
    return status, text


def _status_of(script: Sequence[str]) -> tuple[int, str]:
    sys.argv = list(script)
    try:
        if script[0] == "-m":
            sys.argv = list(script[1:])
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script[0]).resolve().parent))
            runpy.run_path(script[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return end.code or 0, ""
        return 1, str(end.code)
    return 0, ""


def run_workers(n: int, script: Sequence[str], env: Mapping[str, str], restarts: int = 0) -> int:
    """Run the script on n workers; returns 0 if all of them ended well.

    A worker that dies, as Ray says, is started again up to `restarts` times; else the others go on without it, and the
    job still ends with 0 if at least one worker has come to its end. A worker that raises ends the job.
    """
    ray = connect()
    job = f"weft-{os.getpid()}-{secrets.token_hex(4)}"
    environment = {
        name: value
        for name, value in env.items()
        if name.startswith(("WEFT_", "OMP_")) or name in ("PYTHONPATH", "PATH")
    }
    command = list(script) if script[0] == "-m" else [os.path.abspath(script[0]), *script[1:]]
    task = ray.remote(max_retries=0, num_cpus=0.5, max_calls=1)(_run_script)

    def start(rank: int) -> Any:
        variables = {**environment, "WEFT_RANK": str(rank), "WEFT_WORLD_SIZE": str(n), "WEFT_JOB": job}
        return task.options(name=f"{job}-worker-{rank}", runtime_env={"env_vars": variables}).remote(command)

    running = {start(rank): rank for rank in range(n)}
    restarts_left = dict.fromkeys(range(n), restarts)
    ended, status = 0, 0
    try:
        while running:
            (reference, *_), _ = ray.wait(list(running), num_returns=1)
            rank = running.pop(reference)
            try:
                code, text = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                _end_workers(ray, running)
                sys.stderr.write(f"weft.launch: rank {rank} raised {_cause_text(error)}\n")
                return 1
            except ray.exceptions.RayError as error:
                sys.stderr.write(f"weft.launch: rank {rank} died: {str(error).splitlines()[0]}\n")
                _leave(ray, job, rank)
                if restarts_left[rank]:
                    restarts_left[rank] -= 1
                    running[start(rank)] = rank
                continue
            if code:
                _end_workers(ray, running)
                sys.stderr.write(
                    f"weft.launch: rank {rank} ended with status {code}{': ' if text else ''}{text}\n"
                )
                return code
            ended += 1
        status = 0 if ended else 1
    finally:
        _end_servers(ray, job)
        time.sleep(LOGS_S)
    return status


def _cause_text(error: Any) -> str:
    """What a worker raised, first in one line, then with the lines of the script; without those that started it."""
    cause = getattr(error, "cause", None)
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    if not isinstance(cause, BaseException):
        return text
    lines, is_own = [], False
    for line in text.splitlines()[1:]:
        if line.startswith("  File "):
            is_own = "runpy" in line or os.path.join("kvstore", "workers.py") in line
        if not is_own or not line.startswith("  "):
            lines.append(line)
    return "\n".join([f"{type(cause).__name__}: {cause}", *lines])


def _end_workers(ray: Any, running: Mapping[Any, int]) -> None:
    """End the other workers before the servers go, so that none of them says that it misses these."""
    for reference in running:
        ray.cancel(reference, force=True)


def _servers(ray: Any, job: str) -> list[Any]:
    names = [
        each["name"]
        for each in ray.util.list_named_actors(all_namespaces=True)
        if each["namespace"] == "weft"
    ]
    return [ray.get_actor(name, "weft") for name in names if name.startswith(f"{job}-server-")]


def _leave(ray: Any, job: str, rank: int) -> None:
    ray.get([server.leave.remote(rank) for server in _servers(ray, job)])


def _end_servers(ray: Any, job: str) -> None:
    for server in _servers(ray, job):
        ray.kill(server, no_restart=True)
    shutil.rmtree(os.path.join(tempfile.gettempdir(), job), ignore_errors=True)
