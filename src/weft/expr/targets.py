"""What kernels for threads are compiled for: a kind of GPU, or the stand-in of the tests on this processor.

A target defines what a kernel's text calls by name, adds the entry that a driver calls, and has passes, a kind of code
(PTX or an object file) and an identity for the cache on disk. The text itself is the same for all (llvm_threads).

    void NAME(arguments)    the arguments by value, one block of ThreadCode.words words

Images of the stand-in have two constants beside it, NAME.argument_bytes and NAME.threads_of_block.
"""

from __future__ import annotations

import functools
import threading

from weft.base.typing import Any
from weft.expr import compiler
from weft.expr.llvm_threads import ThreadCode
from weft.expr.scalar import HALVES

__all__ = [
    "PTX_FEATURES",
    "Target",
    "compile_threads",
    "has_tensor_cores",
    "ptx_target",
    "standin_target",
    "target_of",
]

PTX_FEATURES = "+ptx80"  # the oldest version that every driver of CUDA 12 and 13 compiles

_NUMBERS = {"thread": "tid.x", "threads": "ntid.x", "block": "ctaid.x", "blocks": "nctaid.x"}
_SHUFFLES = {"down": ("down", 31), "up": ("up", 0), "xor": ("bfly", 31), "index": ("idx", 31)}


class Target:
    """A way to compile kernels for threads; made by ptx_target and standin_target.

    identity: what the code depends on beside its text. compile(text) gives PTX as text, or an object file.
    """

    def __init__(self, identity: str, new_machine: Any, is_ptx: bool, instructions: frozenset[str]) -> None:
        self.identity = identity
        self.is_ptx = is_ptx
        self._new_machine, self._instructions = new_machine, instructions
        self._local = threading.local()  # a machine for each thread

    def whole_text(self, code: ThreadCode) -> str:
        """The kernel's text with the entry and the definitions of this target."""
        return code.text + (_ptx_text(code) if self.is_ptx else _standin_text(code))

    def compile(self, text: str) -> bytes:
        """PTX or an object file of such a text; threads do not wait for each other."""
        machine = getattr(self._local, "machine", None)
        if machine is None:
            machine = self._local.machine = self._new_machine()
        head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
        module = compiler.optimised_module(head + text, machine, self._instructions)
        try:
            if self.is_ptx:
                assembly: str = machine.emit_assembly(module)
                return assembly.encode() + b"\0"
            return compiler.emitted(module, machine)
        finally:
            module.close()


def compile_threads(code: ThreadCode, target: Target) -> bytes:
    """What cuModuleLoadData takes for the kernel, from the cache on disk if it is there.

    >>> from weft.expr.kernel import Each, Kernel, Operand, Store
    >>> from weft.expr.llvm_threads import Schedule
    >>> from weft.expr.scalar import load
    >>> from weft.expr.threads import print_threads
    >>> copy = Kernel("copied", 1, (Operand("int8"),) * 2, (Each((Store(1, load(0, "int8")),)),))
    >>> ptx = compile_threads(print_threads(copy, Schedule("elements", width=16)), ptx_target("sm_80"))
    >>> b".target sm_80" in ptx, b"ld.global.v4.b32" in ptx or b"ld.global.v2.b64" in ptx
    (True, True)
    """
    return compiler.code_of(target.whole_text(code), target)


def target_of(chip: str) -> Target:
    """The target of what the native core calls a device's chip: "sm_90", ..., or "stand-in".

    Code for sm_90 runs on later chips, too, which PTX of this version does not name.
    """
    if chip == "stand-in":
        return standin_target()
    return ptx_target(f"sm_{min(int(chip.removeprefix('sm_')), 90)}")


def has_tensor_cores(chip: str) -> bool:
    """Whether code for a chip may multiply fragments (weft.expr.llvm_tensor_cores)."""
    return chip == "stand-in" or int(chip.removeprefix("sm_")) >= 80


@functools.cache
def ptx_target(chip: str) -> Target:
    """PTX for a chip: "sm_80", "sm_90" and later ones, which a driver compiles for those above, too."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")

    def machine() -> Any:
        return target.create_target_machine(cpu=chip, features=PTX_FEATURES, opt=3)

    identity = f"{llvmlite.__version__} {llvm.llvm_version_info} ptx {chip} {PTX_FEATURES}"
    return Target(
        identity, machine, True, frozenset({"from_float16", "to_float16", "fma_float32", "to_bfloat16"})
    )


@functools.cache
def standin_target() -> Target:
    """Objects for this processor, which the stand-in for a GPU links."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu, features = compiler.processor()

    def machine() -> Any:
        return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")

    identity = f"{llvmlite.__version__} {llvm.llvm_version_info} stand-in {cpu} {features}"
    return Target(identity, machine, False, compiler.instructions_of(cpu, features))


def _entry(code: ThreadCode, head: str) -> str:
    call = f"  call void @{code.name}.threads(ptr %arguments)\n  ret void"
    gate = _GATE.format(findings=8 * (code.words - 2), count=8 * (code.words - 1)) if code.is_gated else ""
    return f"\ndefine {head} {{\n{gate}{call}\n}}\n"


# All threads go the same way.
_GATE = """entry:
  %gate.findings = getelementptr i8, ptr %arguments, i64 {findings}
  %gate.count = getelementptr i8, ptr %arguments, i64 {count}
  %host = load ptr, ptr %gate.findings
  %count = load i64, ptr %gate.count
  %findings = call ptr @weft_global(ptr %host)
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %is_open = icmp uge i64 %k, %count
  br i1 %is_open, label %open, label %look
look:
  %k.byte = shl i64 %k, 4
  %finding = getelementptr i8, ptr %findings, i64 %k.byte
  %first = load i64, ptr %finding
  %k.next = add nuw i64 %k, 1
  %has_passed = icmp slt i64 %first, 0
  br i1 %has_passed, label %next, label %closed
closed:
  ret void
open:
"""


def _standin_text(code: ThreadCode) -> str:
    """The entry, and declarations: the stand-in defines the functions."""
    lines = [
        _entry(code, f"void @{code.name}(ptr %arguments) convergent"),
        f"@{code.name}.argument_bytes = constant i64 {8 * code.words}",
        f"@{code.name}.threads_of_block = constant i64 {code.threads}",
        *(f"declare i64 @weft_{name}() nounwind willreturn memory(none)" for name in _NUMBERS),
        "declare ptr @weft_shared() nounwind willreturn memory(none)",
        "declare ptr @weft_global(ptr) nounwind willreturn memory(none)",
        "declare void @weft_barrier(i32) convergent nounwind",
    ]
    for how in _SHUFFLES:
        lines += [f"declare i{b} @weft_shuffle_{how}_i{b}(i{b}, i32) convergent nounwind" for b in (32, 64)]
    lines += [_fragments_by_shuffles(dtype) for dtype in HALVES if f"@weft_mma_{dtype}(" in code.text]
    return "\n".join([*lines, ""])


FRAGMENTS = ", ".join(
    [*(f"i32 %a{k}" for k in range(4)), "i32 %b0, i32 %b1", *(f"float %c{k}" for k in range(4))]
)
SUMS = "{ float, float, float, float }"


def _fragments_by_shuffles(dtype: str) -> str:
    """A product of fragments where there is no instruction for it: each lane reads the elements that its sums need.

    With g = lane / 4, t = lane % 4: rows g and g + 8 are of the lanes 4 g ... 4 g + 3, column 2 t of 8 t ... 8 t + 3,
    column 2 t + 1 of the four behind them.
    """
    lines: list[str] = []

    def emit(instruction: str) -> str:
        lines.append(f"  %x{len(lines)} = {instruction}")
        return f"%x{len(lines) - 1}"

    def shuffled(word: str, lane: str) -> str:
        return emit(f"call i32 @weft_shuffle_index_i32(i32 {word}, i32 {lane})")

    def halves(word: str) -> list[str]:
        if dtype == "bfloat16":
            words = [emit(f"shl i32 {word}, 16"), emit(f"and i32 {word}, -65536")]
            return [emit(f"bitcast i32 {x} to float") for x in words]
        pair = emit(f"bitcast i32 {word} to <2 x half>")
        parts = [emit(f"extractelement <2 x half> {pair}, i64 {k}") for k in (0, 1)]
        return [emit(f"call float @from_float16(half {x})") for x in parts]

    thread = emit(f"trunc i64 {emit('call i64 @weft_thread()')} to i32")
    rows = emit(f"and i32 {thread}, 28")
    columns = emit(f"shl i32 {emit(f'and i32 {thread}, 3')}, 3")
    sums = [f"%c{k}" for k in range(4)]
    for upper in (0, 1):  # the elements from 8 on
        for t in range(4):
            row, column = emit(f"add i32 {rows}, {t}"), emit(f"add i32 {columns}, {t}")
            a = [halves(shuffled(f"%a{2 * upper + k}", row)) for k in (0, 1)]
            b = [halves(shuffled(f"%b{upper}", x)) for x in (column, emit(f"add i32 {column}, 4"))]
            for k in range(4):
                for x, y in zip(a[k // 2], b[k % 2], strict=True):
                    sums[k] = emit(f"call float @fma_float32(float {x}, float {y}, float {sums[k]})")
    result = "poison"
    for k, x in enumerate(sums):
        result = emit(f"insertvalue {SUMS} {result}, float {x}, {k}")
    body = "\n".join([*lines, f"  ret {SUMS} {result}"])
    return f"define internal {SUMS} @weft_mma_{dtype}({FRAGMENTS}) convergent {{\n{body}\n}}"


def _fragments_by_instruction(dtype: str) -> str:
    """A product of fragments as PTX's instruction."""
    kind, name = {"bfloat16": ("i32", "bf16"), "float16": ("<2 x half>", "f32.f32")}[dtype]
    intrinsic = f"llvm.nvvm.mma.m16n8k16.row.col.{name}"
    words = [f"%{x}" for x in ("a0", "a1", "a2", "a3", "b0", "b1")]
    lines = []
    if dtype == "float16":
        lines = [f"  {x}.pair = bitcast i32 {x} to {kind}" for x in words]
        words = [f"{x}.pair" for x in words]
    arguments = ", ".join([*(f"{kind} {x}" for x in words), *(f"float %c{k}" for k in range(4))])
    body = "\n".join([*lines, f"  %r = call {SUMS} @{intrinsic}({arguments})", f"  ret {SUMS} %r"])
    types = ", ".join([kind] * 6 + ["float"] * 4)
    return (
        f"declare {SUMS} @{intrinsic}({types}) convergent\n"
        f"define internal {SUMS} @weft_mma_{dtype}({FRAGMENTS}) alwaysinline convergent {{\n{body}\n}}"
    )


def _ptx_text(code: ThreadCode) -> str:
    """The entry, and the functions as intrinsics of PTX."""
    argument = f"ptr byval([{max(code.words, 1)} x i64]) align 8 %arguments"
    # Without a number of blocks in flight the assembler spills to have more of them.
    blocks = max(code.in_flight // code.threads, 1)
    bounds = f'"nvvm.reqntid"="{code.threads}" "nvvm.minctasm"="{blocks}"'
    lines = [
        _entry(code, f"ptx_kernel void @{code.name}({argument}) convergent {bounds}"),
        "@weft_shared_memory = external addrspace(3) global [0 x i8], align 16",
        "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent",
    ]

    def define(head: str, *body: str) -> None:
        lines.append(f"define internal {head} alwaysinline convergent {{\n  " + "\n  ".join(body) + "\n}")

    for name, register in _NUMBERS.items():
        intrinsic = f"llvm.nvvm.read.ptx.sreg.{register}"
        lines.append(f"declare i32 @{intrinsic}()")
        define(
            f"i64 @weft_{name}()", f"%x = call i32 @{intrinsic}()", "%y = zext i32 %x to i64", "ret i64 %y"
        )
    define(
        "ptr @weft_shared()",
        "%p = addrspacecast ptr addrspace(3) @weft_shared_memory to ptr",
        "ret ptr %p",
    )
    define(
        "ptr @weft_global(ptr %p)",
        "%g = addrspacecast ptr %p to ptr addrspace(1)",
        "%q = addrspacecast ptr addrspace(1) %g to ptr",
        "ret ptr %q",
    )
    define(
        "void @weft_barrier(i32 %number)",
        "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
        "ret void",
    )
    for how, (name, clamp) in _SHUFFLES.items():
        shuffle = f"llvm.nvvm.shfl.sync.{name}.i32"
        lines.append(f"declare i32 @{shuffle}(i32, i32, i32, i32) convergent")
        define(
            f"i32 @weft_shuffle_{how}_i32(i32 %v, i32 %k)",
            f"%r = call i32 @{shuffle}(i32 -1, i32 %v, i32 %k, i32 {clamp})",
            "ret i32 %r",
        )
        define(
            f"i64 @weft_shuffle_{how}_i64(i64 %v, i32 %k)",
            "%low = trunc i64 %v to i32",
            "%upper = lshr i64 %v, 32",
            "%high = trunc i64 %upper to i32",
            f"%a = call i32 @weft_shuffle_{how}_i32(i32 %low, i32 %k)",
            f"%b = call i32 @weft_shuffle_{how}_i32(i32 %high, i32 %k)",
            "%c = zext i32 %a to i64",
            "%d = zext i32 %b to i64",
            "%e = shl i64 %d, 32",
            "%r = or i64 %c, %e",
            "ret i64 %r",
        )
    lines += [_fragments_by_instruction(dtype) for dtype in HALVES if f"@weft_mma_{dtype}(" in code.text]
    return "\n".join(["", *lines, ""])
