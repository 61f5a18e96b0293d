"""Kernels as machine code of this processor: through LLVM, with a cache of objects on disk.

>>> from weft.expr.compiler import compile_kernel
>>> from weft.expr.kernel import Each, Kernel, Operand, Store
>>> from weft.expr.scalar import load
>>> x = load(0, "float32")
>>> twice = Kernel("twice", 1, (Operand("float32"),) * 2, (Each((Store(1, x + x),)),))
>>> compile_kernel(twice).address > 0
True

A cached object is found by a hash of the kernel's text, LLVM's version, and the processor's name and features; it
carries a hash of itself, and is built anew if that does not fit. Files appear whole, so processes may share the folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import threading
from collections.abc import Collection, Sequence

from weft.base import flags, process
from weft.base.record import Record
from weft.base.typing import Any
from weft.expr.kernel import Kernel
from weft.expr.llvm import print_kernel
from weft.expr.llvm_values import definitions

try:  # hashlib and pathlib take longer to import than a prebuilt kernel to be found
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Compiled", "cache_folder", "compile_kernel", "compile_together", "counters", "key_of"]

MAGIC = b"weft object 5\n"  # the number changes with the passes below
counters = {"compiled": 0, "from_disk": 0, "prebuilt": 0, "rejected": 0}
_lock = process.guard(threading.Lock())


class Compiled(Record):
    """The address of a kernel's function (see weft.expr.llvm) and what keeps it there."""

    address: int
    owner: Any


LEVELS = {"sse4": "x86-64-v2", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
"""LLVM's names of the levels of $WEFT_ISA."""


def processor() -> tuple[str, str]:
    """LLVM's names of the processor and of its features that kernels are compiled for.

    They are this processor's, or those of the level that $WEFT_ISA allows it.
    """
    import llvmlite.binding as llvm

    from weft import _core  # not above: the build compiles kernels before there is one

    _, level, capped = _core.isa()
    if capped:
        return LEVELS[level], features_of(LEVELS[level])
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def features_of(cpu: str) -> str:
    """Features beside those of LLVM's level.

    Without this one LLVM would leave half of each vector register of v4 unused for the sake of old processors: exp
    takes 1.5 times as long.
    """
    return "-prefer-256-bit" if cpu == "x86-64-v4" else ""


def instructions_of(cpu: str, features: str) -> frozenset[str]:
    """Which functions of BY_PROCESSOR are instructions of the processor."""
    words = features.split(",")
    found = {"to_bfloat16"} if "+avx512bf16" in words else set[str]()
    wide = cpu in ("x86-64-v3", "x86-64-v4") or "+neon" in words
    if wide or "+f16c" in words:
        found |= {"from_float16", "to_float16"}
    if wide or "+fma" in words:
        found.add("fma_float32")
    return frozenset(found)


@functools.cache
def _toolchain() -> Any:
    """LLVM for this processor: imported and set up at the first use, some 50 ms."""
    import llvmlite
    import llvmlite.binding as llvm

    class Toolchain:
        def __init__(self) -> None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            self.cpu, self.features = processor()
            self.instructions = instructions_of(self.cpu, self.features)
            target = llvm.Target.from_default_triple()

            # "small": constants are near the code that reads them. The other models load the address of each one, in
            # the loops, too: softmax takes 1.3 times as long. JITLink maps an object's sections in one piece, which
            # this needs; LLVM's older linker maps each for itself, and aborts the process if one comes to lie far off.
            def machine() -> Any:
                return target.create_target_machine(
                    cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
                )

            self.machine = machine()
            self.jit = llvm.create_lljit_compiler(machine(), use_jit_link=True)
            self.identity = f"{llvmlite.__version__} {llvm.llvm_version_info} {self.cpu} {self.features}"
            self.linked = 0

        def compile(self, text: str) -> bytes:
            code: bytes = self.machine.emit_object(self.optimised(text))
            return code

        def assembly(self, text: str) -> str:
            listing: str = self.machine.emit_assembly(self.optimised(text))
            return listing

        def optimised(self, text: str) -> Any:
            return _optimised(text, self.machine, self.instructions)

        def link(self, code: bytes, symbol: str) -> tuple[int, Any]:
            self.linked += 1
            library = (
                llvm.JITLibraryBuilder()
                .add_object_img(code)
                .add_current_process()
                .export_symbol(symbol)
                .link(self.jit, f"{symbol}.{self.linked}")
            )
            return library[symbol], library

    return Toolchain()


def _optimised(text: str, machine: Any, instructions: Collection[str]) -> Any:
    """The text as LLVM's module, after its passes. instructions: functions of BY_PROCESSOR that are instructions."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text + definitions(text, instructions))
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = True
    tuning.loop_interleaving = tuning.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_together(texts: Sequence[str], cpu: str) -> bytes:
    """One object file of kernels with different names, for a kind of processor, to be linked into a library."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cpu, features=features_of(cpu), opt=3, reloc="pic", codemodel="small"
    )
    first, *others = (_optimised(text, machine, instructions_of(cpu, "")) for text in texts)
    for module in others:
        first.link_in(module)
    code: bytes = machine.emit_object(first)
    return code


def key_of(text: str, name: str) -> int:
    """What a kernel compiled with the package is found by: a hash of its text, whatever its name is."""
    plain = text.replace(f"@{name}(", "@kernel(", 1)
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "little")


def _prebuilt(text: str, name: str) -> int:
    """The address of the kernel in the native module, or 0."""
    from weft import _core  # not above: the build compiles kernels before there is one

    address: int = _core.prebuilt_kernel(key_of(text, name))
    return address


def compile_kernel(kernel: Kernel) -> Compiled:
    """The kernel's machine code: compiled with the package, or else from the cache on disk if it is there.

    >>> from weft.expr.kernel import Each, Operand, Store
    >>> from weft.expr.scalar import load
    >>> copy = Kernel("copied", 1, (Operand("int8"),) * 2, (Each((Store(1, load(0, "int8")),)),))
    >>> compile_kernel(copy).address != 0
    True
    """
    text = print_kernel(kernel)
    address = _prebuilt(text, kernel.name)
    if address:
        counters["prebuilt"] += 1
        return Compiled(address, None)
    with _lock:
        tools = _toolchain()
        key = blake2b(MAGIC + f"{tools.identity}\0{text}".encode(), digest_size=32).hexdigest()
        folder = cache_folder()
        code = _read(folder / key) if folder else None
        if code is None:
            code = tools.compile(text)
            counters["compiled"] += 1
            if folder:
                _write(folder / key, code)
        else:
            counters["from_disk"] += 1
        return Compiled(*tools.link(code, kernel.name))


def cache_folder() -> Path | None:
    """Where objects are kept: $WEFT_CACHE_DIR, else weft in the user's folder for caches; None if it cannot be private.

    Code from here is run, so the folder must belong to this user and be writable by nobody else.

    >>> cache_folder() is None or cache_folder().is_dir()
    True
    """
    from pathlib import Path

    try:
        root = (
            flags.get("WEFT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        )
        folder = Path(root) / "weft-kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except (OSError, RuntimeError):
        return None
    private = facts.st_uid == os.geteuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if private else None


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + 32
    code = content[head:]
    if content[: len(MAGIC)] != MAGIC or content[len(MAGIC) : head] != _seal(path, code):
        counters["rejected"] += 1
        return None
    return code


def _write(path: Path, code: bytes) -> None:
    """Whole or not at all; a full disk or a folder that has gone only means that nothing is kept."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(temporary, "xb") as file:
            file.write(MAGIC + _seal(path, code) + code)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _seal(path: Path, code: bytes) -> bytes:
    """What a file holds to show that its code is whole, and that of its key."""
    return blake2b(path.name.encode() + code, digest_size=32).digest()
