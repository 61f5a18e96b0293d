"""Exported folders with faults behind their digests, loaded by libweft.so.1 in a process without weft.

    python -m tests.interop.native_folders LIBRARY FOLDER KIND FIRST COUNT WORK

KIND: plan, whose own digest fits again, or code, whose digest the plan holds. Writes the seed of each file to
WORK/seed before it is loaded, so that the one that ended the process is known.
"""

import ctypes
import random
import resource
import shutil
import sys
from pathlib import Path

from tests.interop.mutations import mutated

MAGIC = b"weft program 1\n"
MASK = 2**64 - 1
SPARE_BYTES = 1 << 28  # of address space, for all that a faulty file may ask for
RESIDENT_KIB = 100_000


def digest(content):
    """As digest_of in native/program/archive.h."""
    state = 0xCBF29CE484222325 ^ len(content)
    padded = content + bytes(-len(content) % 8)
    for word in memoryview(padded).cast("Q"):
        state = (state ^ word) * 0x9E3779B97F4A7C15 & MASK
        state ^= state >> 29
    return state.to_bytes(8, "little")


def sealed(content):
    return MAGIC + digest(content) + content


def faulty(kind, plan, code, rng):
    """Content of the plan and of the code, one of them with faults."""
    if kind == "plan":
        return mutated(plan, rng), code
    changed = mutated(code, rng)
    return plan.replace(digest(code), digest(changed), 1), changed


def main(library, folder, kind, first, count, work):
    library = ctypes.CDLL(library)
    library.weft_last_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    assert library.weft_program_load(folder.encode(), ctypes.byref(handle)) == 0, library.weft_last_error()
    library.weft_program_free(handle)
    copy = Path(work) / "folder"
    shutil.copytree(folder, copy)
    (plan_file,) = copy.glob("plan.*")
    (code_file,) = copy.glob("code.*")
    plan, code = plan_file.read_bytes()[len(MAGIC) + 8 :], code_file.read_bytes()
    assert sealed(plan) == plan_file.read_bytes()
    assert plan.count(digest(code)) == 1
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = 0
    with open(Path(work) / "seed", "w") as seeds:
        for seed in range(int(first), int(first) + int(count)):
            seeds.seek(0)
            seeds.write(f"{seed}\n")
            seeds.flush()
            changed = faulty(kind, plan, code, random.Random(seed))
            plan_file.write_bytes(sealed(changed[0]))
            code_file.write_bytes(changed[1])
            status = library.weft_program_load(str(copy).encode(), ctypes.byref(handle))
            if status == 0:
                loaded += 1
                library.weft_program_free(handle)
                continue
            text = library.weft_last_error().decode(errors="replace")
            assert status == 3, (seed, status, text)
            assert str(copy) in text, (seed, text)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < RESIDENT_KIB, grown
    print(loaded)


if __name__ == "__main__":
    main(*sys.argv[1:])
