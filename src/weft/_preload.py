"""Loads the extension module and its libraries, and gives it what it needs of weft.base right after.

libgomp reads its spin policy once, when it is loaded, so the environment must hold it at that moment. libdnnl.so.3 lies
beside the extension; another one that $WEFT_DNNL_LIB names is loaded before.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from weft.base import flags

__all__ = ["GOMP_SPINCOUNT", "preload", "register_base"]

GOMP_SPINCOUNT = "1000"
"""How often an idle libgomp thread looks for work before it sleeps; docs/design/threads.md has the reasons."""

_folder: list[Callable[[], str]] = [lambda: ""]


def preload(folder: Callable[[], str]) -> None:
    """Load weft._core, and with it oneDNN and libgomp, under GOMP_SPINCOUNT unless the user chose a policy.

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
        if path := os.environ.get("WEFT_DNNL_LIB"):
            _load(path)
        from weft import _core  # noqa: F401
    finally:
        if choose:
            del os.environ["GOMP_SPINCOUNT"]


def _load(path: str) -> None:
    try:
        ctypes.CDLL(path)  # the loader takes it for every library of its SONAME that is loaded later
    except OSError as error:
        raise OSError(f"WEFT_DNNL_LIB: cannot load oneDNN: {error}") from None


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
