"""Reads, compresses and writes a folder of files: a pipeline on the engine, without tensors.

Four operations for each file of Python's own standard library:

    read --plain--> compress --packed--+--> write     NAME.xz, a file of its own
                                       +--> append    archive.xz and index.jsonl, in the order of the input

What orders them is what they declare, nothing else:

    plain, packed   two variables for each file: its content before and after compression. They order the
                    operations of one file. Different files share neither, so they go side by side.
    archive         one variable for the archive and its index. Every append writes it, so appends run one at
                    a time, in the order of their pushes, in whatever order the files were compressed.

Reading and writing are asynchronous: a thread pool does them, and no thread of the engine is held.
Compression holds a compute worker, but not the GIL. `size_bytes` keeps the main thread from running ahead by
more than a few megabytes. One name on the list has no file: it costs its own outputs and no others.

    python examples/engine_pipeline.py [--files 400] [--workers 2] [--out FOLDER]
"""

import argparse
import itertools
import json
import lzma
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft.engine import Engine, EngineError

LIBRARY = Path(os.__file__).parent
MISSING = "no_such_module.py"
MAX_PENDING_BYTES = 4_000_000
DISK_THREADS = 4
ROUNDS = 2  # of loop and engine in turn; the faster run of each counts


# -- the work itself; it knows nothing of the engine --


def compress(data):
    """`data` as one stream of an .xz file; such streams may follow each other in one file."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": max(4096, len(data))}]
    return lzma.compress(data, filters=filters)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class Archive:
    """All streams in one file, and for each a line of JSON that says where it is. One thread at a time."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.data = (folder / "archive.xz").open("wb")
        self.index = (folder / "index.jsonl").open("w")
        self.end = 0

    def append(self, name, packed):
        self.data.seek(self.end)  # over what an append that failed may have left
        self.data.write(packed)
        self.index.write(json.dumps({"name": name, "offset": self.end, "size": len(packed)}) + "\n")
        self.end += len(packed)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.data.close()
        self.index.close()


def run_as_loop(source, names, out):
    """The job as a plain loop, to compare with."""
    with Archive(out) as archive:
        for name in names:
            try:
                plain = (source / name).read_bytes()
            except OSError:
                continue
            packed = compress(plain)
            write(out / f"{name}.xz", packed)
            archive.append(name, packed)


# -- the same job on the engine --


class Content:
    """What the operations of one file hand on to each other. `peak`: most bytes of all of them at once."""

    held, peak, lock = 0, 0, threading.Lock()

    def __init__(self):
        self.data = b""

    def set(self, data):
        with Content.lock:
            Content.held += len(data) - len(self.data)
            Content.peak = max(Content.peak, Content.held)
        self.data = data


def on(pool, work):
    """`work()` as an asynchronous function: a thread of the pool runs it and then completes the operation.

    This is how anything that has futures or callbacks is used with the engine.
    """

    def start(run_context, on_complete):
        pool.submit(work).add_done_callback(lambda future: on_complete(future.exception()))

    return start


class Pipeline:
    """Pushes the job onto an engine, file by file."""

    def __init__(self, engine, disk, source, out, archive, on_done):
        self.engine, self.disk, self.source, self.out, self.on_done = engine, disk, source, out, on_done
        self.archive, self.archive_variable = archive, engine.new_variable()

    def add(self, name):
        """Push the operations of one file. None need have run when this returns; the variables order them."""
        engine, path = self.engine, self.source / name
        size_bytes = path.stat().st_size if path.exists() else 0
        plain, packed = Content(), Content()
        plain_variable, packed_variable = engine.new_variable(), engine.new_variable()

        def compress_plain(run_context):  # changes both contents, so it mutates both variables
            packed.set(compress(plain.data))
            plain.set(b"")

        engine.push_async(
            on(self.disk, lambda: plain.set(path.read_bytes())),
            mutate_vars=[plain_variable],
            name=f"read {name}",
        )
        engine.push(
            compress_plain,
            mutate_vars=[plain_variable, packed_variable],
            name=f"compress {name}",
            size_bytes=size_bytes,  # what it keeps in memory until it has finished
        )
        engine.push_async(
            on(self.disk, lambda: write(self.out / f"{name}.xz", packed.data)),
            const_vars=[packed_variable],
            name=f"write {name}",
            size_bytes=size_bytes,  # at most
        )
        engine.push(
            lambda run_context: self.archive.append(name, packed.data),
            const_vars=[packed_variable],
            # Not mutate_vars: the append of a file that could not be read is skipped, which poisons the
            # archive, and all later appends would be skipped too. But they need nothing from that one.
            overwrite_vars=[self.archive_variable],
            name=f"append {name}",
            queue="io",  # it may block on the disk; compute workers have better things to do
            size_bytes=size_bytes,
            on_done=self.on_done,
        )
        # After everyone who uses it has finished, failed or been skipped: this is how memory returns.
        engine.delete_variable(packed_variable, on_deleted=lambda: packed.set(b""))


def run_on_engine(source, names, out, workers, on_done):
    """The job on the engine. Returns its errors, one for each file that failed, and its stats."""
    with (
        ThreadPoolExecutor(DISK_THREADS) as disk,
        Archive(out) as archive,
        Engine(workers=workers, max_pending_bytes=MAX_PENDING_BYTES) as engine,
    ):
        pipeline = Pipeline(engine, disk, source, out, archive, on_done)
        for name in names:
            pipeline.add(name)
        errors = ()
        try:
            engine.wait_for_all()
        except* EngineError as group:  # one error or several
            errors = group.exceptions
        return errors, engine.stats()


# -- the comparison, and what came out --


def progress(total):
    """A function to call, from any thread, when a file is done. Prints a line that counts."""
    done, lock, live = 0, threading.Lock(), sys.stdout.isatty()

    def one_more(error):
        nonlocal done
        with lock:
            done += 1
            if live or done == total:
                print(f"\r{done}/{total} files" if live else f"{done}/{total} files", end="", flush=True)
            if done == total:
                print(flush=True)

    return one_more


def expect(condition, message):
    if not condition:
        sys.exit(f"wrong: {message}")


def check(source, names, out):
    """Every file is in the archive and in a file of its own, byte for byte, and the order is the input's."""
    entries = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    expect([entry["name"] for entry in entries] == names, "the order of the archive")
    archive = (out / "archive.xz").read_bytes()
    for entry in entries:
        packed = archive[entry["offset"] : entry["offset"] + entry["size"]]
        plain = (source / entry["name"]).read_bytes()
        expect(lzma.decompress(packed) == plain, f"{entry['name']} in the archive")
        expect((out / f"{entry['name']}.xz").read_bytes() == packed, f"{entry['name']}.xz")
    whole = b"".join((source / name).read_bytes() for name in names)
    expect(lzma.decompress(archive) == whole, "the archive as a whole")


def library_files(count):
    """The names of up to `count` modules of the standard library."""
    skipped = {"site-packages", "dist-packages", "test", "tests"}
    paths = (path.relative_to(LIBRARY) for path in sorted(LIBRARY.rglob("*.py")) if path.is_file())
    return [str(path) for path in itertools.islice((p for p in paths if not skipped & {*p.parts}), count)]


def main():
    cores = os.cpu_count()
    parser = argparse.ArgumentParser(description="read, compress and write a folder of files on the engine")
    parser.add_argument("--files", type=int, default=400, help="how many files, at least 1 (default: 400)")
    parser.add_argument("--workers", type=int, default=cores, help="compute workers (default: the cores)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: a temporary one)")
    arguments = parser.parse_args()
    if arguments.files < 1:
        parser.error("--files must be at least 1")

    names = library_files(arguments.files)
    middle = len(names) // 2
    listed = [*names[:middle], MISSING, *names[middle:]]
    megabytes = sum((LIBRARY / name).stat().st_size for name in names) / 1e6
    print(f"{len(names)} files of Python's standard library, {megabytes:.1f} MB, and one that does not exist")
    with tempfile.TemporaryDirectory(prefix="weft-pipeline-") as temporary:
        by_loop, by_engine = ((arguments.out or Path(temporary)) / kind for kind in ("loop", "engine"))
        loop_s, engine_s = [], []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            run_as_loop(LIBRARY, listed, by_loop)
            loop_s.append(time.perf_counter() - started)
            on_done = progress(len(listed))
            started = time.perf_counter()
            errors, stats = run_on_engine(LIBRARY, listed, by_engine, arguments.workers, on_done)
            engine_s.append(time.perf_counter() - started)

        failed = [error.operation for error in errors]
        expect(failed == [f"read {MISSING}"], f"these operations failed: {failed}")
        check(LIBRARY, names, by_engine)
        both = [(out / "archive.xz").read_bytes() for out in (by_loop, by_engine)]
        expect(both[0] == both[1], "loop and engine made different archives")

    print(f"checked: {len(names)} files, byte for byte and in the order of the input")
    for error in errors:
        print(f"failed:  {error.operation}: {type(error.__cause__).__name__}, pushed at {error.where}")
    counters = ("pushed", "finished", "failed", "skipped")
    print("engine:  " + ", ".join(f"{stats[name]} {name}" for name in counters))
    allowed = MAX_PENDING_BYTES / 1e6
    print(f"memory:  {Content.peak / 1e6:.1f} MB of contents at most, {allowed:.1f} MB allowed;", end=" ")
    print(f"push waited {stats['stalls']} times")
    print(
        f"time:    loop {min(loop_s):.2f} s, engine with {arguments.workers} workers {min(engine_s):.2f} s,"
    )
    print(f"         {min(loop_s) / min(engine_s):.2f} times as fast on {cores} cores")


if __name__ == "__main__":
    main()
