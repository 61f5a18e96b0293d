"""Ray, as far as parameter servers need it: joining or starting a cluster, and actors for servers."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import sys
from typing import Any

from weft.base import flags

__all__ = ["connect", "job_name", "server_actors", "the_ray"]


def the_ray() -> Any:
    """The module ray. Raises ImportError that says what to install."""
    # No warning about missing accelerators.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # equal lines of several workers are lines of each
    if not sys.stdout.isatty():
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")  # no escape codes in files
    try:
        import ray
    except ImportError as error:
        raise ImportError("parameter servers run on Ray: pip install weft[dist]") from error
    return ray


def job_name() -> str:
    """The name that servers of this job have in the cluster: WEFT_JOB, or one of this process alone."""
    return flags.get("WEFT_JOB") or _process_job()


@functools.cache
def _process_job() -> str:
    return f"weft-{os.getpid()}-{secrets.token_hex(4)}"


def connect() -> Any:
    """Join the cluster of RAY_ADDRESS, or start one of this machine, on loopback, that ends with this process."""
    ray = the_ray()
    if not ray.is_initialized():
        options: dict[str, Any] = {"namespace": "weft", "include_dashboard": False, "log_to_driver": True}
        if not os.environ.get("RAY_ADDRESS"):
            _stay_on_loopback(ray)
            # Without limits of its own: a server or worker mostly waits, and one machine may have few cores.
            options |= {"_node_ip_address": "127.0.0.1", "num_cpus": max(os.cpu_count() or 1, 16)}
        ray.init(**options)
        atexit.register(ray.shutdown)
    return ray


def _stay_on_loopback(ray: Any) -> None:
    """Let the processes of a cluster of this machine listen on 127.0.0.1 alone.

    On Linux Ray replaces the address of the loopback device by that of the network, unless clusters of several machines
    are switched off.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # for the processes that it starts
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # it may have been imported before


def server_actors(job: str, count: int, arguments: tuple[Any, ...], folder: str | None) -> list[Any]:
    """Handles of the job's servers, which the first worker starts. They are restarted as often as they die."""
    ray = connect()
    from weft.kvstore.server import Server

    actor_class = ray.remote(num_cpus=0.1, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)(Server)
    # A server waits for each update: on its own thread, it need not wake another one for that.
    own_engine = {"env_vars": {"WEFT_ENGINE": os.environ.get("WEFT_ENGINE", "naive")}}
    mode, workers, every, staleness, sync = arguments
    servers = []
    for k in range(count):
        server_folder = None if folder is None else os.path.join(folder, f"server-{k}")
        actor = actor_class.options(
            name=f"{job}-server-{k}",
            namespace="weft",
            get_if_exists=True,
            lifetime="detached",
            runtime_env=own_engine,
        )
        servers.append(actor.remote(mode, workers, server_folder, every, staleness, sync))
    return servers
