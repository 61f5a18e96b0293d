"""Loads the libraries of the extension module before it, and gives it what it needs of weft.base right after.

Two things can only be done before it is loaded. libgomp reads its spin policy once, when it is loaded, so the
environment must hold it at that moment. And libdnnl.so.3 is where its wheel put it, which the extension's own search
path does not cover in every kind of installation; once loaded, the loader finds it by its name.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from weft.base import flags

__all__ = ["GOMP_SPINCOUNT", "find_dnnl", "preload", "register_base"]

GOMP_SPINCOUNT = "1000"
"""How often an idle libgomp thread looks for work before it sleeps; docs/design/threads.md has the reasons."""

_DNNL = "libdnnl.so.3"
_folder: list[Callable[[], str]] = [lambda: ""]


def find_dnnl() -> str | None:
    """The path of libdnnl.so.3: $WEFT_DNNL_LIB, else where the wheel onednn-cpu-gomp put it, else None.

    Reads the wheel's RECORD itself: importing importlib.metadata would take longer than importing weft.
    """
    override = os.environ.get("WEFT_DNNL_LIB")
    if override:
        return override
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if not (name.startswith("onednn_cpu_gomp-") and name.endswith(".dist-info")):
                continue
            with open(os.path.join(folder, name, "RECORD"), encoding="utf-8") as record:
                for line in record:
                    path = os.path.realpath(os.path.join(folder, line.split(",")[0]))
                    if os.path.basename(path) == _DNNL and os.path.exists(path):
                        return path
    return None


def preload(folder: Callable[[], str]) -> None:
    """Load oneDNN, and with it libgomp under GOMP_SPINCOUNT unless the user chose a policy of their own.

    The variable is taken out of the environment again: child processes choose for themselves.
    Raises OSError if $WEFT_DNNL_LIB names a file that cannot be loaded, ValueError if $WEFT_ISA is not a level: native
    code reads that variable by itself, and takes what it does not know for "native".
    folder: gives that of weft's own code, for messages of native code.
    """
    _folder[:] = [folder]
    if os.environ.get("WEFT_ISA"):
        flags.get("WEFT_ISA")
    choose = "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ
    if choose:
        os.environ["GOMP_SPINCOUNT"] = GOMP_SPINCOUNT
    try:
        path = find_dnnl()
        if path is not None:
            ctypes.CDLL(path)
        else:
            _core_loads_its_own()
    except OSError as error:
        if os.environ.get("WEFT_DNNL_LIB"):
            raise OSError(f"WEFT_DNNL_LIB: cannot load oneDNN: {error}") from None
        raise
    finally:
        if choose:
            del os.environ["GOMP_SPINCOUNT"]


def _core_loads_its_own() -> None:
    """With no wheel to look in (oneDNN is vendored, or the system's), importing the extension loads them."""
    try:
        from weft import _core  # noqa: F401
    except ImportError as error:
        if _DNNL in str(error):
            error.add_note(
                f"  {_DNNL} comes with the package onednn-cpu-gomp, below the environment's prefix; "
                "`pip install --target` leaves it out\n"
                "  hint: install into a virtual environment, or set WEFT_DNNL_LIB to the library's path"
            )
        raise


def register_base() -> None:
    """Give the native core what it needs of weft.base.

    Native code imports nothing: each layer registers what it has, here the layers below the core. weft.engine and
    weft.ops, through which the core is reached, call this before anything else.
    """
    from weft import _core
    from weft.base import device, dtype, errors

    _core.register(
        as_device=lambda: device.as_device,
        as_dtype=lambda: dtype.as_dtype,
        current_device=lambda: device.current_device,
        device_error=lambda: errors.DeviceError,
        device_type=lambda: device.Device,
        dtype_error=lambda: errors.DTypeError,
        dtype_type=lambda: dtype.DType,
        dtypes=lambda: dtype.DTYPES,
        engine_error=lambda: errors.EngineError,
        engine_error_group=lambda: errors.EngineErrorGroup,
        ever_scoped=lambda: device._ever_scoped,
        failure_class=lambda: errors.failure_class,
        folder=_folder[0],
        refusal=_refusal,
        shape_error=lambda: errors.ShapeError,
    )


def _refusal() -> object:
    from weft.base.arguments import refusal  # not before an argument does not fit

    return refusal
