"""The cache of compiled kernels: what is found again, what is not trusted, many users at once, failing disks."""

import os
import resource
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.expr import compiler
from weft.expr.compiler import MAGIC, _toolchain, cache_folder, compile_kernel, counters
from weft.expr.kernel import Kernel
from weft.expr.llvm import print_kernel
from weft.expr.scalar import load

from .support import Runner, check, plus, pointwise

CHILD_LIMIT_S = 60


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of this test."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    return cache_folder()


@pytest.fixture
def counted():
    """What the counters have counted since the test began or this was last called."""
    before = dict(counters)

    def since():
        nonlocal before
        after = dict(counters)
        change = {name: after[name] - before[name] for name in after}
        before = after
        return change

    return since


COMPILED = {"compiled": 1, "from_disk": 0, "prebuilt": 0, "rejected": 0}
FOUND = {"compiled": 0, "from_disk": 1, "prebuilt": 0, "rejected": 0}
REJECTED = {"compiled": 1, "from_disk": 0, "prebuilt": 0, "rejected": 1}


def only_file(folder):
    (file,) = folder.iterdir()
    return file


def test_the_second_time_it_comes_from_disk(folder, counted):
    check(1)
    assert counted() == COMPILED
    file = only_file(folder)
    content, time = file.read_bytes(), file.stat().st_mtime_ns
    for _ in range(3):
        check(1)
        assert counted() == FOUND
    assert only_file(folder) == file
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (content, time)
    assert content.startswith(MAGIC)
    assert file.stat().st_size < 20_000


def test_another_process_finds_it(folder):
    check(1)
    report = run_child(IMPORTS + "check(1); print(counters)")
    assert "'compiled': 0, 'from_disk': 1, 'prebuilt': 0, 'rejected': 0" in report


def test_the_key_is_the_text(folder, counted):
    """Another constant, name, or layout is another file; an equal kernel built anew is not."""
    x = load(0, "float64")
    kernels = [
        plus(1),
        plus(2),
        plus(1, "other"),
        pointwise("plus", ["float64"], [x + 1], inner="any"),
        pointwise("plus", ["float64"], [x - 1]),
    ]
    for kernel in kernels:
        compile_kernel(kernel)
    assert counted() == {"compiled": 5, "from_disk": 0, "prebuilt": 0, "rejected": 0}
    assert len(list(folder.iterdir())) == 5
    assert print_kernel(plus(1)) == print_kernel(plus(1))
    again = Kernel("plus", 1, kernels[0].operands, kernels[0].stages)
    compile_kernel(again)
    assert counted() == FOUND


def test_the_key_is_the_toolchain_too(folder, counted, monkeypatch):
    check(1)
    counted()
    tools = compiler._toolchain()
    monkeypatch.setattr(tools, "identity", tools.identity + " +something")
    check(1)
    assert counted() == COMPILED
    assert len(list(folder.iterdir())) == 2


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE = {
    "empty": lambda content: b"",
    "cut in the head": lambda content: content[:20],
    "head only": lambda content: content[: len(MAGIC) + 32],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "a bit of the head": lambda content: flipped(content, 3),
    "a bit of the seal": lambda content: flipped(content, len(MAGIC) + 5),
    "a bit of the code": lambda content: flipped(content, len(content) // 2),
    "the last bit": lambda content: flipped(content, len(content) - 1),
    "zeros": lambda content: bytes(len(content)),
    "foreign": lambda content: b"\x7fELF" + os.urandom(500),
    "no head": lambda content: content[len(MAGIC) + 32 :],
    "other version": lambda content: b"weft object 0\n" + content[len(MAGIC) :],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_built_anew(damage, folder, counted):
    check(1)
    file = only_file(folder)
    content = file.read_bytes()
    file.write_bytes(DAMAGE[damage](content))
    counted()
    check(1)
    assert counted() == REJECTED
    assert only_file(folder).read_bytes() == content
    check(1)
    assert counted() == FOUND


def test_the_file_of_another_kernel_is_not_taken(folder, counted):
    """Though it is whole, and its function has the same name."""
    check(1)
    first = only_file(folder)
    check(2)
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    counted()
    check(2)
    assert counted() == REJECTED


def test_a_folder_in_the_place_of_a_file(folder, counted):
    check(1)
    file = only_file(folder)
    file.unlink()
    file.mkdir()
    for _ in range(2):
        counted()
        check(1)
        assert counted() == COMPILED
    assert list(folder.iterdir()) == [file]


def test_what_a_dead_process_left_does_not_matter(folder, counted):
    check(1)
    file = only_file(folder)
    file.unlink()
    left = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    left.write_bytes(b"half")
    check(1)
    check(1)
    counted()
    check(1)
    assert counted() == FOUND
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_folder_others_may_write_to_is_not_used(mode, folder, counted):
    check(1)
    folder.chmod(mode)
    counted()
    assert cache_folder() is None
    for _ in range(2):
        check(1)
        check(2)
        assert counted() == {"compiled": 2, "from_disk": 0, "prebuilt": 0, "rejected": 0}
    assert len(list(folder.iterdir())) == 1
    folder.chmod(0o755)
    check(1)
    assert counted() == FOUND


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_not_used(folder, counted):
    os.chown(folder, 12345, -1)
    assert cache_folder() is None
    check(1)
    assert counted() == COMPILED
    assert not list(folder.iterdir())


@pytest.mark.parametrize("place", ["a file", "below a file", "does not exist yet", "/proc/none"])
def test_folders_that_cannot_be_made(place, tmp_path, monkeypatch, counted):
    (tmp_path / "file").write_text("")
    root = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "deeper",
        "does not exist yet": tmp_path / "a" / "b",
    }.get(place, place)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(root))
    check(1)
    check(1)
    made = place == "does not exist yet"
    assert (cache_folder() is not None) == made
    assert counted() == {"compiled": 1 if made else 2, "from_disk": int(made), "prebuilt": 0, "rejected": 0}


def test_the_folder_is_private(folder):
    assert folder.stat().st_mode & 0o777 == 0o700


def test_where_the_folder_is(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "own" / "weft-kernels"
    monkeypatch.delenv("WEFT_CACHE_DIR")
    assert cache_folder() == tmp_path / "xdg" / "weft-kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "weft-kernels"


def test_threads_compile_at_once(folder, counted):
    """The same kernels and different ones; each is compiled once, by the thread that came first."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, list(range(6)) * 8))
    found = counted()
    assert found["compiled"] == 6
    assert found["from_disk"] <= 42  # the others waited for the first
    assert found["prebuilt"] == found["rejected"] == 0
    assert len(list(folder.iterdir())) == 6


def test_many_kernels_of_one_name_live_side_by_side(folder):
    runners = [Runner(plus(number)) for number in range(10)]
    a, out = np.arange(5.0), np.empty(5)
    assert len({run.compiled.address for run in runners}) == 10
    for number in reversed(range(10)):
        runners[number](a, out)
        assert np.array_equal(out, a + number)


def test_code_is_freed_with_its_owner(folder):
    """Made and dropped again and again; what is still held stays right."""
    kept = Runner(plus(0.5))
    for _ in range(50):
        check(1)
    out = np.empty(3)
    kept(np.arange(3.0), out)
    assert np.array_equal(out, np.arange(3.0) + 0.5)


def test_dropping_code_does_not_enter_llvm(folder):
    """Ctrl-C inside of its lock, which is Python, would leave that held: code is unloaded when more is linked."""
    tools = _toolchain()
    unused = tools.link(tools.compile(print_kernel(plus(0.75))), "plus")[1]
    gone = weakref.ref(unused._library)
    del unused
    assert gone() is not None
    tools.link(tools.compile(print_kernel(plus(1.75))), "plus")
    assert gone() is None


# Other processes.

HERE = Path(__file__).parent
IMPORTS = "from support import check; from weft.expr.compiler import cache_folder, counters\n"


def child_code(code):
    return f"import sys; sys.path.insert(0, {str(HERE)!r})\n{code}"


def run_child(code, **options):
    command = [sys.executable, "-c", child_code(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_LIMIT_S, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_compile_at_once(folder):
    """Three start together on the same kernels, each in another order; all are right and nothing half-written stays."""
    code = IMPORTS + "sys.stdin.readline()\n"
    code += "for k in range(12): check((k * 5 + int(sys.argv[1])) % 12)\nprint(counters)"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", child_code(code), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    ends = [(child.communicate(timeout=CHILD_LIMIT_S), child.returncode) for child in children]
    for (out, err), status in ends:
        assert status == 0, err
        assert "'rejected': 0" in out
    assert len(list(folder.iterdir())) == 12
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


def test_a_full_disk_is_tolerated(folder):
    """Nothing can be written beyond some bytes: kernels run, and nothing is left behind."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    report = run_child(
        IMPORTS + "for k in (1, 2, 1): check(k)\nprint(counters)",
        preexec_fn=limit,
    )
    assert "'compiled': 3, 'from_disk': 0, 'prebuilt': 0, 'rejected': 0" in report
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a home")
def test_a_user_without_a_home(folder):
    """No HOME, no entry in the list of users: nowhere to keep kernels, but they run."""
    code = IMPORTS + "import os; check(1); os.setuid(54321)\n"
    code += "for k in ('HOME', 'WEFT_CACHE_DIR', 'XDG_CACHE_HOME'): os.environ.pop(k, 0)\n"
    code += "assert cache_folder() is None; check(1); check(2); print(counters)"
    assert "'compiled': 3" in run_child(code)


def test_a_folder_that_may_only_be_read(folder, counted):
    """What is there is used, and the rest compiled (root writes all the same)."""
    check(1)
    folder.chmod(0o500)
    counted()
    check(1)
    assert counted() == FOUND
    if os.geteuid() != 0:
        check(2)
        assert counted() == COMPILED
        assert len(list(folder.iterdir())) == 1
    folder.chmod(0o700)


@pytest.mark.parametrize("size", [12, 64, 1000])
def test_sums_of_integers_that_are_cast_to_smaller_ones(size):
    """LLVM's vectors of straight-line code took them for smaller than they are, from three terms on."""

    def term(x, low, count):
        number = F.cast(x / (F.abs(x) + 1.0) * 27.0 + 0.0, dtype="int64")
        return F.cast(F.cast(F.remainder(number, count) + low, dtype="int16"), dtype="float32")

    def total(a, b, c):
        return F.sum(term(a, -2, 5) * 100 + term(b, -2, 5) * 10 + term(c, 1, 2))

    rng = np.random.default_rng(size)
    arrays = [(rng.normal(size=size) * 4).astype(np.float32) for _ in range(3)]
    terms = [np.trunc(a / (abs(a) + np.float32(1)) * np.float32(27)).astype(np.int64) for a in arrays]
    wanted = sum(
        weight * (n % count + low).sum()
        for n, weight, low, count in zip(terms, (100, 10, 1), (-2, -2, 1), (5, 5, 2), strict=True)
    )
    assert wf.trace(total, lazy=True)(*map(wf.tensor, arrays)).item() == wanted
