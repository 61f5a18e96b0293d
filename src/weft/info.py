"""``python -m weft.info [--env] [--cflags] [--libs] [--program-libs]``: what is installed and how it is set.

For bug reports. --env prints only the table of environment switches; --cflags and --libs what a compiler and a linker
of C need for programs that use weft's engine, --program-libs the same as --libs for those that run exported programs
(docs/c.md).
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata

from weft import _core
from weft import engine as _engine  # noqa: F401 - registers element types and errors with native code
from weft.base import flags

__all__ = ["c_flags", "describe", "library_flags", "lower_levels", "main", "program_library_flags"]

_ISA_LEVELS = ("avx512_bf16", "avx512_vnni", "avx512f", "avx2", "sse4_2", "asimd")


def describe() -> str:
    """The report: one line per fact, then the switches that are set.

    >>> print(describe().splitlines()[0].split()[0])
    weft
    """
    model, features = _cpu()
    facts = {
        "weft": f"{_version('weft')} ({os.path.dirname(os.path.abspath(__file__))})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "numpy": _version("numpy"),
        "ml_dtypes": _version("ml_dtypes"),
        "llvmlite": _version("llvmlite"),
        "nanobind-backend": _version("nanobind-backend"),
        "platform": platform.platform(),
        "cpu": model,
        "cpu features": " ".join(name for name in _ISA_LEVELS if name in features) or "unknown",
        "instructions": _instructions(),
        **_by_type(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "oneDNN": f"{'.'.join(map(str, _core.dnnl_version()))} ({_loaded('libdnnl')})",
        "libgomp": _loaded("libgomp"),
        "spin policy": _spin_policy(),
    }
    lines = [f"{name:<18}{value}" for name, value in facts.items()]
    for name in flags.FLAGS:
        if os.environ.get(name):
            lines.append(f"{name:<18} {os.environ[name]}")
    return "\n".join(lines)


def c_flags() -> str:
    """What a compiler needs to find weft/engine.h.

    >>> c_flags().startswith("-I")
    True
    """
    return f"-I{_installed('include')}"


def library_flags() -> str:
    """What a linker needs for programs that use weft/engine.h; they find the library where it lies now.

    >>> library_flags().split()[-1]
    '-l:libweft_engine.so.1'
    """
    return _flags_of("libweft_engine.so.1")


def program_library_flags() -> str:
    """What a linker needs for programs that use weft/weft.h, and with it weft/engine.h.

    >>> program_library_flags().split()[-1]
    '-l:libweft.so.1'
    """
    return _flags_of("libweft.so.1")


def _flags_of(library: str) -> str:
    folder = _installed("lib")
    return f"-L{folder} -Wl,-rpath,{folder} -l:{library}"


def _installed(folder: str) -> str:
    """A folder beside the native module, where packages of weft have it."""
    return os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), folder)


def _instructions() -> str:
    """The level that the processor has and the one used, by the names of $WEFT_ISA."""
    available, active, capped = _core.isa()
    return (
        f"{active} of {available} (WEFT_ISA)"
        if capped
        else f"{active}, and all others that the processor has"
    )


def _by_type() -> dict[str, str]:
    """What computes products of the smaller types here: oneDNN in the type itself, or in float32."""
    shape, strides = (64, 64), (64, 1)
    lines = {}
    for dtype, result in (("bfloat16", "bfloat16"), ("float16", "float16"), ("int8", "int32")):
        operand = (dtype, shape, strides)
        kernel = _core.onednn_matmul(operand, operand, (result, shape, strides))
        way = f"in float32, and rounds once to {result}" if kernel.is_wide else f"in {dtype}"
        lines[dtype] = f"oneDNN computes products {way} ({kernel.implementation}); loops compute in "
        lines[dtype] += "integers" if dtype == "int8" else "float32"
    return lines


def lower_levels() -> tuple[str, ...]:
    """The levels of $WEFT_ISA below the one used, the highest first.

    >>> set(lower_levels()) <= {"avx2", "sse4"}
    True
    """
    levels = ("avx512", "avx2", "sse4")
    return levels[levels.index(_core.isa()[1]) + 1 :]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> tuple[str, set[str]]:
    """Model name and feature words of the processor, from the kernel."""
    model, features = platform.processor() or "unknown", set[str]()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    model = value.strip()
                elif key.strip() in ("flags", "Features"):
                    features = set(value.split())
                    break
    except OSError:
        pass
    return model, features


def _loaded(name: str) -> str:
    """The path of a library of this process; all of them, should it be loaded more than once."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            paths = {line.split(maxsplit=5)[-1].strip() for line in file if f"/{name}" in line}
    except OSError:
        return "unknown"
    return ", ".join(sorted(paths)) or "not loaded"


def _spin_policy() -> str:
    from weft._preload import GOMP_SPINCOUNT

    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        if name in os.environ:
            return f"{name}={os.environ[name]} (environment)"
    return f"GOMP_SPINCOUNT={GOMP_SPINCOUNT} (weft)"


def main(arguments: Sequence[str]) -> int:
    """Print the report, or what the switches ask for; returns the exit status."""
    facts = {
        "--env": flags.render,
        "--cflags": c_flags,
        "--libs": library_flags,
        "--program-libs": program_library_flags,
    }
    if not set(arguments) <= set(facts):
        usage = " ".join(f"[{name}]" for name in facts)
        print(f"usage: python -m weft.info {usage}; got: {' '.join(arguments)}", file=sys.stderr)
        return 2
    print(" ".join(facts[name]() for name in arguments) if arguments else describe())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
