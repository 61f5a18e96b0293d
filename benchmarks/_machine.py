"""The machine that measures: what it is, which cores are used, and whether it does something else meanwhile."""

import os
import platform
import sys
import time
from pathlib import Path

import weft
from weft import _core

sys.path.append(str(Path(__file__).parent / "peers"))
from _protocol import busy_s

CAPS = {  # environments that hold a side to an instruction set level
    "sse4": {
        "WEFT_ISA": "sse4",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "avx2": {
        "WEFT_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "avx512": {
        "WEFT_ISA": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "DNNL_MAX_CPU_ISA": "AVX512_CORE",
    },
}

OTHERS_LIMIT = 0.15  # cores in use by other processes, above which a time is not to be trusted


def machine() -> dict[str, object]:
    about = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in _lines("/proc/cpuinfo"))}
    family = {name: about[name] for name in ("cpu family", "model") if name in about}
    most, level = _core.isa()[:2]
    return {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "cpu": about.get("model name", platform.machine()),
        "family": ", ".join(f"{name} {number}" for name, number in family.items()),
        "level": f"{level} (of the processor: {most})",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "weft": weft.__version__,
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def cores(count: int) -> list[int]:
    """So many cores to measure on, of different physical ones where there are enough."""
    usable = sorted(os.sched_getaffinity(0))
    first: dict[str, int] = {}
    for core in usable:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        first.setdefault(path.read_text() if path.exists() else str(core), core)
    selected = [*first.values(), *(core for core in usable if core not in first.values())][:count]
    if len(selected) < count:
        sys.exit(f"./dev bench: {count} threads need as many cores, there are {len(usable)}")
    return sorted(selected)


def cores_in_use(seconds: float = 0.5) -> float:
    """By other processes, while this one sleeps for so long."""
    (all_before, own_before), start = busy_s(), time.monotonic()
    time.sleep(seconds)
    all_after, own_after = busy_s()
    return max(0.0, (all_after - all_before) - (own_after - own_before)) / (time.monotonic() - start)


def restless(cores_in_use: float) -> str:
    """A warning where other processes use so many cores; "" on a quiet machine."""
    if cores_in_use <= OTHERS_LIMIT:
        return ""
    return f"WARNING: this machine is not quiet, other processes use {cores_in_use:.2g} cores: times will be too long"
