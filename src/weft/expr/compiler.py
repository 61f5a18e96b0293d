"""Kernels as machine code of this processor: through LLVM, with a cache of objects on disk.

>>> from weft.expr.compiler import compile_kernel
>>> from weft.expr.kernel import Each, Kernel, Operand, Store
>>> from weft.expr.scalar import load
>>> x = load(0, "float32")
>>> twice = Kernel("twice", 1, (Operand("float32"),) * 2, (Each((Store(1, x + x),)),))
>>> compile_kernel(twice).address > 0
True

A cached object is found by a hash of the kernel's text, LLVM's version, and the processor's name and features; it
carries a hash of itself, and is rebuilt if that does not fit. Files appear whole, so processes may share the folder.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from weft.base import flags, process
from weft.base.record import Record
from weft.base.typing import Any, ClassVar
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

__all__ = [
    "Compiled",
    "cache_folder",
    "compile_kernel",
    "compile_together",
    "counters",
    "key_of",
    "write_whole",
]

MAGIC = b"weft object 6\n"  # the number changes with the passes below
counters = {"compiled": 0, "from_disk": 0, "prebuilt": 0, "rejected": 0}
spent_s = {"print": 0.0, "parse": 0.0, "optimize": 0.0, "emit": 0.0, "link": 0.0}
"""Processor time of what compiling consists of, over all threads."""
_lock = process.guard(threading.RLock())  # a finalizer may come back here, from a collection inside
_making: dict[str, _Making] = {}  # code that some thread is making now, by key


class _Making:
    """Code that one thread makes, and others wait for."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.code: bytes | None = None


class _AtWork:
    """What threads are in while they compile. A fork waits until none is: LLVM has locks of its own.

    A lock for process.guard: acquired when no thread compiles, and then none begins.
    """

    PATIENCE_S = 1.0  # that threads wait for a fork that has found one of them, and may have given up

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads, self._is_held, self._wanted_until = 0, False, 0.0

    def acquire(self, blocking: bool = False) -> bool:
        with self._changed:
            if self._threads:
                self._wanted_until = time.monotonic() + self.PATIENCE_S
                return False
            self._is_held = True
            return True

    def release(self) -> None:
        with self._changed:
            self._is_held, self._wanted_until = False, 0.0
            self._changed.notify_all()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        with self._changed:
            while self._is_held or time.monotonic() < self._wanted_until:
                self._changed.wait(0.01)
            self._threads += 1
        try:
            yield
        finally:
            with self._changed:
                self._threads -= 1


_at_work = process.guard(_AtWork())


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    begin = time.thread_time()
    try:
        yield
    finally:
        spent_s[what] += time.thread_time() - begin


class _Code:
    """Linked code. It is unloaded when other code is linked, not by the thread that drops it.

    llvmlite locks its library by means of Python, which Ctrl-C can leave halfway on the main thread: the lock would
    stay held, and the next thread that compiles would wait for ever. So the main thread never enters llvmlite:
    compiling runs on another one (call_away_from_signals), and a finalizer, which may run anywhere, only appends.
    """

    unused: ClassVar[collections.deque[Any]] = collections.deque()

    def __init__(self, library: Any) -> None:
        self._library = library

    def __del__(self, append: Callable[[Any], None] = unused.append) -> None:
        append(self._library)


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
    """Which functions of BY_PROCESSOR are instructions of the processor, and that LLVM makes vectors for it."""
    words = features.split(",")
    names = {"vectors"}
    if "+avx512bf16" in words:
        names.add("to_bfloat16")
    wide = cpu in ("x86-64-v3", "x86-64-v4") or "+neon" in words
    if wide or "+f16c" in words:
        names |= {"from_float16", "to_float16"}
    if wide or "+fma" in words:
        names.add("fma_float32")
    return frozenset(names)


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
            # this needs; LLVM's older linker maps each for itself, and aborts the process if one is placed far off.
            def machine() -> Any:
                return target.create_target_machine(
                    cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
                )

            self.machine = machine()
            self.local = threading.local()  # a machine for each thread: it keeps what it is doing
            self.new_machine = machine
            self.jit = llvm.create_lljit_compiler(machine(), use_jit_link=True)
            self.identity = f"{llvmlite.__version__} {llvm.llvm_version_info} {self.cpu} {self.features}"
            self.linked = 0

        def compile(self, text: str) -> bytes:
            """Machine code. Threads do not wait for each other."""
            machine = getattr(self.local, "machine", None)
            if machine is None:
                machine = self.local.machine = self.new_machine()
            module = optimised_module(text, machine, self.instructions)
            try:
                with _timed("emit"):
                    return emitted(module, machine)
            finally:
                module.close()

        def assembly(self, text: str) -> str:
            listing: str = self.machine.emit_assembly(self.optimised(text))
            return listing

        def optimised(self, text: str) -> Any:
            return optimised_module(text, self.machine, self.instructions)

        def link(self, code: bytes, symbol: str) -> tuple[int, Any]:
            self.linked += 1
            _Code.unused.clear()
            library = (
                llvm.JITLibraryBuilder()
                .add_object_img(code)
                .add_current_process()
                .export_symbol(symbol)
                .link(self.jit, f"{symbol}.{self.linked}")
            )
            return library[symbol], _Code(library)

    return Toolchain()


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without llvmlite's lock, under which only one thread at a time is in LLVM.

    LLVM itself requires only that threads do not share a context, a module or a target machine. Where llvmlite does not
    have it so, the function with the lock.
    """
    from llvmlite.binding import ffi

    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def optimised_module(text: str, machine: Any, instructions: Collection[str], context: Any = None) -> Any:
    """The text as LLVM's module, after its passes. instructions: functions of BY_PROCESSOR that are instructions.

    context: the module's, of its own if none is given.
    """
    import llvmlite.binding as llvm
    from llvmlite.binding.context import create_context

    with _timed("parse"):
        module = llvm.parse_assembly(text + definitions(text, instructions), context or create_context())
        module.verify()
    with _timed("optimize"):
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = True
        tuning.slp_vectorization = not _narrows(text)
        tuning.loop_interleaving = tuning.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, tuning)
        _unlocked("LLVMPY_RunNewModulePassManager")(builder.getModulePassManager(), module, builder)
    return module


def _narrows(text: str) -> bool:
    """Whether integers are cast to smaller ones.

    LLVM 22's vectors of straight-line code (SLP) compute what comes before such a cast in the smaller type, where that
    is wrong, too: sums of three remainders were others than their terms.
    """
    return any(" trunc i" in line and not line.endswith(" to i1") for line in text.splitlines())


def emitted(module: Any, machine: Any) -> bytes:
    """The module as an object file."""
    import ctypes

    from llvmlite.binding import ffi

    with ffi.OutputString() as problem:
        memory = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, problem)
        if not memory:
            raise RuntimeError(str(problem))
    try:
        begin, size = ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory)
        return ctypes.string_at(begin, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


def compile_together(texts: Sequence[str], cpu: str) -> bytes:
    """One object file of kernels with different names, for a kind of processor, to be linked into a library."""
    import llvmlite.binding as llvm
    from llvmlite.binding.context import create_context

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cpu, features=features_of(cpu), opt=3, reloc="pic", codemodel="small"
    )
    context = create_context()
    first, *others = (optimised_module(text, machine, instructions_of(cpu, ""), context) for text in texts)
    for module in others:
        first.link_in(module)
    code: bytes = machine.emit_object(first)
    return code


def key_of(text: str, name: str) -> int:
    """What a kernel compiled with the package is found by: a hash of its text, whatever its name is."""
    plain = text.replace(f"@{name}(", "@kernel(", 1)
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "little")


def compile_kernel(kernel: Kernel) -> Compiled:
    """The kernel's machine code: compiled with the package, or else from the cache on disk if it is there.

    >>> from weft.expr.kernel import Each, Operand, Store
    >>> from weft.expr.scalar import load
    >>> copy = Kernel("copied", 1, (Operand("int8"),) * 2, (Each((Store(1, load(0, "int8")),)),))
    >>> compile_kernel(copy).address != 0
    True
    """
    from weft import _core  # not above: the build compiles kernels before there is one

    with _timed("print"):
        text = print_kernel(kernel, checked=flags.get("WEFT_CHECK_LOOPS"))
    if address := _core.prebuilt_kernel(key_of(text, kernel.name)):
        counters["prebuilt"] += 1
        return Compiled(address, None)
    with _lock:
        tools = _toolchain()
    code = code_of(text, tools)
    with _lock, _timed("link"):
        return Compiled(*tools.link(code, kernel.name))


def code_of(text: str, tools: Any) -> bytes:
    """The code of a text, by tools.compile or from the disk: of several threads that need the same, one compiles it.

    tools: of a target; its identity says what the code depends on beside the text.
    """
    key = blake2b(MAGIC + f"{tools.identity}\0{text}".encode(), digest_size=32).hexdigest()
    while True:
        with _lock:
            making = _making.get(key)
            is_ours = making is None
            if making is None:
                making = _making[key] = _Making()
        if is_ours:
            break
        making.over.wait()
        if making.code is not None:
            return making.code
        # The other thread has failed, or was interrupted: this one finds out by itself.
    try:
        with _at_work.inside():
            making.code = _compiled_or_read(key, text, tools)
        return making.code
    finally:
        with _lock:
            _making.pop(key, None)
        making.over.set()


def _compiled_or_read(key: str, text: str, tools: Any) -> bytes:
    folder = cache_folder()
    code = _read(folder / key) if folder else None
    if code is not None:
        with _lock:
            counters["from_disk"] += 1
        return code
    compiled: bytes = tools.compile(text)
    with _lock:
        counters["compiled"] += 1
    if folder:
        path = folder / key
        write_whole(path, MAGIC + _seal(path, compiled) + compiled)
    return compiled


# Of a fork's child: the threads that were making code are not there.
os.register_at_fork(after_in_child=_making.clear)


def cache_folder() -> Path | None:
    """Where objects are kept: $WEFT_CACHE_DIR, else weft in the user's folder for caches; None if it cannot be private.

    Code from here is run, so the folder must belong to this user and not be writable by others.

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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; a full disk or a folder that has gone only means that nothing is kept."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _seal(path: Path, code: bytes) -> bytes:
    """What a file holds to show that its code is whole, and that of its key."""
    return blake2b(path.name.encode() + code, digest_size=32).digest()
