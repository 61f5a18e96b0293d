"""Make RecordIO files of pictures: python -m weft.tools.im2rec PREFIX ROOT.

Two steps, as with MXNet's tool. With --list: PREFIX.lst, a line "index<TAB>label<TAB>path" for each picture in ROOT;
with --recursive the folders are the classes. Without: the pictures of PREFIX*.lst (a line may have several labels) are
decoded, resized and encoded by several threads and written, in the order of the list, into PREFIX.rec and PREFIX.idx,
or into --shards files PREFIX-00000-of-00004.rec of about as many records. What cannot be read is reported and left out;
--strict ends there.

>>> import tempfile, pathlib
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> (folder / "pictures" / "cat").mkdir(parents=True)
>>> _ = (folder / "pictures" / "cat" / "a.png").write_bytes(b"")
>>> main([str(folder / "all"), str(folder / "pictures"), "--list", "--recursive"])
0
>>> (folder / "all.lst").read_text()
'0\\t0.000000\\tcat/a.png\\n'
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from weft.data import images
from weft.data.recordio import IndexedRecordWriter, IRHeader, expand_paths, pack

MAX_PENDING = 16  # pictures that each thread may be ahead of the writer
MODES = {1: "RGB", 0: "L"}

Entry = tuple[int, list[float], str]


def find(root: Path, recursive: bool, extensions: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(path below the root, class) of each picture, in alphabetical order."""
    classes: dict[str, int] = {}
    for path in sorted(root.rglob("*") if recursive else root.iterdir()):
        if path.suffix.lower() in extensions and path.is_file():
            folder = str(path.parent.relative_to(root))
            yield str(path.relative_to(root)), classes.setdefault(folder, len(classes)) if recursive else 0


def write_lists(options: argparse.Namespace) -> int:
    """PREFIX.lst, or for chunks and ratios PREFIX_0.lst, PREFIX_0_train.lst, ..."""
    pictures = list(find(Path(options.root), options.recursive, options.exts))
    if not pictures:
        print(f"im2rec: no pictures in {options.root}", file=sys.stderr)
        return 1
    entries = list(enumerate(pictures))
    if options.shuffle:
        random.Random(options.seed).shuffle(entries)
    size = -(-len(entries) // options.chunks)
    for chunk in range(options.chunks):
        part = entries[chunk * size : (chunk + 1) * size]
        name = f"{options.prefix}{f'_{chunk}' if options.chunks > 1 else ''}"
        test, train = (round(len(part) * ratio) for ratio in (options.test_ratio, options.train_ratio))
        spans = {"_test": part[:test], "_train": part[test : test + train], "_val": part[test + train :]}
        if options.train_ratio == 1 and not options.test_ratio:
            spans = {"": part}
        for suffix, lines in spans.items():
            if lines:
                text = "".join(f"{k}\t{label:f}\t{path}\n" for k, (path, label) in lines)
                Path(f"{name}{suffix}.lst").write_text(text)
    return 0


def read_list(path: Path) -> list[Entry]:
    """(index, labels, path) of each line. Raises ValueError with the line for what is none."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("\t")
        if not line.strip():
            continue
        try:
            if len(words) < 3:
                raise ValueError("needs an index, a label and a path, divided by tabs")
            entries.append((int(words[0]), [float(word) for word in words[1:-1]], words[-1]))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return entries


def record(options: argparse.Namespace, entry: Entry) -> bytes:
    """The record of a line of the list."""
    index, labels, name = entry
    label = np.array(labels, np.float32) if len(labels) > 1 or options.pack_label else labels[0]
    header = IRHeader(0, label, index, 0)
    content = (Path(options.root) / name).read_bytes()
    if options.pass_through:
        return pack(header, content)
    image = images.decode(content, MODES[options.color])
    h, w = image.shape[:2]
    if options.center_crop and h != w:
        edge = min(h, w)
        y, x = (h - edge) // 2, (w - edge) // 2
        image = image[y : y + edge, x : x + edge]
        h = w = edge
    if options.resize and min(h, w) != options.resize:
        scale = options.resize / min(h, w)
        image = images.resize(image, (max(1, round(h * scale)), max(1, round(w * scale))))
    return pack(header, images.encode(image, options.encoding, quality=options.quality))


def write_records(options: argparse.Namespace) -> int:
    """The records of all lists PREFIX*.lst; returns 1 if pictures were left out."""
    lists = [Path(f"{options.prefix}.lst")]
    if not lists[0].exists():
        lists = [Path(each) for each in expand_paths(f"{options.prefix}*.lst")]
    left_out = 0
    for each in lists:
        entries = read_list(each)
        size = max(1, -(-len(entries) // options.shards))
        for shard in range(options.shards):
            name = str(each.with_suffix(""))
            if options.shards > 1:
                name += f"-{shard:05d}-of-{options.shards:05d}"
            left_out += write_shard(options, name, entries[shard * size : (shard + 1) * size])
    if left_out:
        print(f"im2rec: {left_out} pictures were left out", file=sys.stderr)
    return 1 if left_out else 0


def write_shard(options: argparse.Namespace, name: str, entries: list[Entry]) -> int:
    left_out = 0
    pending: deque[tuple[Entry, Future[bytes]]] = deque()
    with (
        ThreadPoolExecutor(options.num_thread) as threads,
        IndexedRecordWriter(f"{name}.rec", f"{name}.idx") as writer,
    ):
        remaining = iter(entries)
        while True:
            for entry in remaining:
                pending.append((entry, threads.submit(record, options, entry)))
                if len(pending) >= MAX_PENDING * options.num_thread:
                    break
            if not pending:
                return left_out
            entry, future = pending.popleft()
            try:
                writer.write_idx(entry[0], future.result())
            except (OSError, ValueError) as error:
                if options.strict or (isinstance(error, OSError) and error.filename is None):
                    threads.shutdown(wait=False, cancel_futures=True)
                    raise
                left_out += 1
                print(f"im2rec: {entry[2]}: {error}", file=sys.stderr)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weft.tools.im2rec", description="Make RecordIO files of pictures, or lists for them."
    )
    parser.add_argument("prefix", help="beginning of the names of lists and files")
    parser.add_argument("root", help="the pictures' folder")
    group = parser.add_argument_group("lists")
    group.add_argument("--list", action="store_true", help="write PREFIX.lst instead of records")
    group.add_argument("--recursive", action="store_true", help="also in folders, which are the classes")
    group.add_argument(
        "--exts", nargs="+", default=list(images.EXTENSIONS), help="endings of pictures' names"
    )
    group.add_argument("--chunks", type=int, default=1, help="lists of about the same size")
    group.add_argument("--train-ratio", type=float, default=1.0, help="share of PREFIX_train.lst")
    group.add_argument("--test-ratio", type=float, default=0.0, help="share of PREFIX_test.lst")
    group.add_argument("--no-shuffle", dest="shuffle", action="store_false", help="in alphabetical order")
    group.add_argument("--seed", type=int, default=100, help="of the lists' order (default: 100)")
    group = parser.add_argument_group("records")
    group.add_argument("--pass-through", action="store_true", help="the files' bytes as they are")
    group.add_argument("--resize", type=int, default=0, help="the shorter edge in pixels; 0: as it is")
    group.add_argument("--center-crop", action="store_true", help="the middle square")
    group.add_argument("--quality", type=int, default=95, help="of JPEG, 1 to 100 (default: 95)")
    group.add_argument("--encoding", default=".jpg", choices=[".jpg", ".png"])
    group.add_argument("--color", type=int, default=1, choices=sorted(MODES), help="1: colours, 0: grey")
    group.add_argument("--num-thread", type=int, default=1, help="threads (default: 1)")
    group.add_argument("--shards", type=int, default=1, help="files of about the same number of records")
    group.add_argument("--pack-label", action="store_true", help="labels as an array, also a single one")
    group.add_argument("--strict", action="store_true", help="end at the first picture that cannot be read")
    return parser


def main(arguments: Any = None) -> int:
    """The tool; returns the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in ("chunks", "num_thread", "shards"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return write_lists(options) if options.list else write_records(options)


if __name__ == "__main__":
    sys.exit(main())
