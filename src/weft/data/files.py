"""Datasets of files: folders of pictures, tar shards, CSV, text, LibSVM, MNIST, CIFAR; and caches.

What has __getitem__ and __len__ is a dataset as it is: lists, NumPy arrays, Hugging Face's `datasets` objects
(`.with_format("numpy")`), memory-mapped arrays.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import itertools
import json
import mmap
import os
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.data import images
from weft.data._nursery import read_packed, span_of
from weft.data.dataset import ArrayDataset, Dataset, StreamDataset
from weft.data.recordio import expand_paths
from weft.data.sample_context import context, enter

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "CSVDataset",
    "CacheDataset",
    "ImageFolder",
    "LibSVMDataset",
    "TarStream",
    "TextLines",
    "read_libsvm",
]

PathLike = str | os.PathLike[str]


class ImageFolder(Dataset):
    """Pictures in one folder for each class: folder/class/.../picture.jpg. Samples are (u8[h, w, 3], class).

    A class is the index of its folder's name in alphabetical order. `classes` lists the names, `paths` and `labels` the
    samples. mode: see weft.data.images.decode. extensions: of the files that count as pictures.
    Raises FileNotFoundError if there are none. A picture that cannot be read raises ValueError with its path when the
    sample is read.

    >>> import pathlib, tempfile
    >>> from weft.data import images
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     _ = (folder / name / "1.png").write_bytes(images.encode(np.zeros((4, 6, 3), np.uint8), ".png"))
    >>> pictures = ImageFolder(folder)
    >>> pictures.classes, pictures[1][0].shape, pictures[1][1]
    (['cat', 'dog'], (4, 6, 3), 1)
    """

    def __init__(
        self, folder: PathLike, *, mode: str = "RGB", extensions: Sequence[str] = images.EXTENSIONS
    ) -> None:
        root = Path(folder)
        self.mode = mode
        self.classes = sorted(each.name for each in root.iterdir() if each.is_dir())
        self.paths: list[str] = []
        self.labels: list[int] = []
        for label, name in enumerate(self.classes):
            paths = sorted(
                str(path)
                for path in (root / name).rglob("*")
                if path.suffix.lower() in extensions and path.is_file()
            )
            self.paths += paths
            self.labels += [label] * len(paths)
        if not self.paths:
            raise FileNotFoundError(f"ImageFolder: {root} has no pictures in folders")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, k: int) -> tuple[np.ndarray, int]:
        return images.read(self.paths[k], self.mode), self.labels[k]


def decode_fields(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a tar sample by their extensions: pictures, numbers (.cls), text (.txt), JSON, arrays (.npy)."""
    decoded: dict[str, Any] = {}
    for name, content in sample.items():
        extension = "." + name.rsplit(".", 1)[-1].lower()
        if not isinstance(content, bytes):
            decoded[name] = content
        elif extension in images.EXTENSIONS:
            decoded[name] = images.decode(content)
        elif extension in (".cls", ".cls2", ".index"):
            decoded[name] = int(content)
        elif extension in (".txt", ".text"):
            decoded[name] = content.decode()
        elif extension == ".json":
            decoded[name] = json.loads(content)
        elif extension == ".npy":
            decoded[name] = np.load(io.BytesIO(content), allow_pickle=False)
        else:
            decoded[name] = content
    return decoded


class _Damaged(tarfile.TarError):
    """A header that is wrong or missing, behind which tarfile would end as at the end of the archive."""


class _CheckedTarInfo(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        offset = tarfile.fileobj.tell()
        try:
            return super().fromtarfile(tarfile)
        except _EMPTY_HEADERS as error:
            raise _Damaged(f"it ends at byte {offset} without an end mark") from error
        except _WRONG_HEADERS as error:
            raise _Damaged(f"the header at byte {offset}: {error}") from error


_EMPTY_HEADERS = (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]
_WRONG_HEADERS = (tarfile.InvalidHeaderError, tarfile.SubsequentHeaderError)  # type: ignore[attr-defined]


class TarStream(StreamDataset):
    """Samples of tar files in WebDataset's layout: files of one name before the first dot are fields of one sample.

    shards: paths or patterns. A sample is a dictionary of the fields' bytes by what follows the first dot, with
    "__key__", the name; decode: a function of it, by default decode_fields; None leaves the bytes.
    shuffle_shards: the order of the shards is another one each epoch, from the seed. num_parts, part_index: every
    num_parts-th shard only.
    Raises ValueError for a shard that is cut off or damaged, with its path; also between its files, so a shard needs
    the end mark that every program for tar files writes. Raises ValueError for a part without shards.
    """

    def __init__(
        self,
        shards: PathLike | Sequence[PathLike],
        *,
        decode: Callable[[dict[str, Any]], Any] | None = decode_fields,
        shuffle_shards: bool = False,
        seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        if not 0 <= part_index < num_parts:
            raise ValueError(f"TarStream: part_index {part_index} is not one of num_parts={num_parts}")
        paths = expand_paths(shards)
        self.shards = paths[part_index::num_parts]
        if not self.shards:
            raise ValueError(
                f"TarStream: part {part_index} of {num_parts} has no shard: there are {len(paths)}"
            )
        self.decode, self.shuffle_shards, self.seed = decode, shuffle_shards, seed

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(0)

    def iterate(self, epoch: int) -> Iterator[Any]:
        shards = self.shards
        if self.shuffle_shards:
            generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            shards = [shards[k] for k in generator.permutation(len(shards))]
        samples = itertools.chain.from_iterable(map(self._samples, shards))
        return samples if self.decode is None else map(self.decode, samples)

    def _samples(self, shard: str) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        try:
            with tarfile.open(shard, "r|*", tarinfo=_CheckedTarInfo) as tar:
                for member in tar:
                    folder, _, base = member.name.rpartition("/")
                    stem, dot, field = base.partition(".")
                    if not member.isfile() or not dot:
                        continue
                    key = f"{folder}/{stem}" if folder else stem
                    if sample and sample["__key__"] != key:
                        yield sample
                        sample = {}
                    content = tar.extractfile(member)
                    assert content is not None
                    sample["__key__"] = key
                    sample[field] = content.read()
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(f"TarStream: {shard} is damaged: {error}") from error
        if sample:
            yield sample


class CSVDataset(ArrayDataset):
    """The rows of a CSV file of numbers.

    Samples are f32[columns]; or, with labels, the index of a column or several, (f32[other columns], label of
    label_dtype). skip_rows: the number of lines with titles. Raises ValueError, with the file and line, for text that
    is not a number, a line of another length, or a value that is none of an integer type: nan, a fraction; IndexError
    for a label's column that the file does not have.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.csv"
    >>> _ = path.write_text("a,b,class" + chr(10) + "1,2,0" + chr(10) + "3,4,1" + chr(10))
    >>> x, label = CSVDataset(path, labels=2, skip_rows=1)[1]
    >>> x.tolist(), int(label)
    ([3.0, 4.0], 1)
    """

    def __init__(
        self,
        path: PathLike,
        labels: int | Sequence[int] | None = None,
        *,
        delimiter: str = ",",
        skip_rows: int = 0,
        dtype: Any = np.float32,
        label_dtype: Any = np.int64,
    ) -> None:
        columns = [] if labels is None else [labels] if isinstance(labels, int) else list(labels)
        x, y = read_csv(path, dtype, columns, label_dtype, delimiter=delimiter, skip_rows=skip_rows)
        if labels is None:
            super().__init__(x)
        else:
            super().__init__(x, y[:, 0] if isinstance(labels, int) else y)


def read_csv(
    path: PathLike,
    dtype: Any,
    labels: Sequence[int] = (),
    label_dtype: Any = np.int64,
    *,
    delimiter: str = ",",
    skip_rows: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """A CSV file as an array of dtype[rows, columns], and the columns of labels as label_dtype[rows, labels].

    Raises ValueError and IndexError as CSVDataset does.
    """
    dtype, label_dtype = np.dtype(dtype), np.dtype(label_dtype)
    lines = _csv_lines(path, skip_rows)
    first = next(lines, None)
    lines.close()
    if first is None:
        raise ValueError(f"{os.fspath(path)}: it has no rows")
    width = len(first[1].split(delimiter))
    for k in labels:
        if not -width <= k < width:
            raise IndexError(f"{os.fspath(path)}: no column {k} for labels: it has {width}")
    label_columns = [k % width for k in labels]
    values: dict[int, list[Any]] = {k: [] for k in label_columns}

    def keep(column: int) -> Callable[[str], float]:
        def convert(text: str) -> float:
            values[column].append(_number_of(text, label_dtype))
            return 0.0

        return convert

    try:
        table = np.loadtxt(
            path,
            dtype if dtype.kind in "iu" else np.float64,
            comments=None,
            delimiter=delimiter,
            skiprows=skip_rows,
            ndmin=2,
            encoding="utf-8",
            converters={k: keep(k) for k in values},
        )
        x = np.delete(table, label_columns, axis=1).astype(dtype, copy=False)
        y = np.empty((len(table), len(label_columns)), label_dtype)
        for place, k in enumerate(label_columns):
            y[:, place] = values[k]
    except (ValueError, OverflowError) as error:
        raise ValueError(
            _csv_error(path, delimiter, skip_rows, dtype, label_columns, label_dtype, error)
        ) from None
    return x, y


def _csv_lines(path: PathLike, skip_rows: int) -> Generator[tuple[int, str], None, None]:
    """The lines of a CSV file that have something, numbered from 1."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if number > skip_rows and line.strip():
                yield number, line.rstrip("\r\n")


def _number_of(text: str, dtype: np.dtype[Any]) -> Any:
    """A number for an array of this type. Raises ValueError for text that is none, or none of this type."""
    if dtype.kind not in "iub":
        return float(text)
    try:
        value = int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError(f"{text.strip()} is not of type {dtype}") from None
        value = int(number)
    if dtype.kind != "b" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"{text.strip()} is not of type {dtype}")
    return value


def _csv_error(
    path: PathLike,
    delimiter: str,
    skip_rows: int,
    dtype: Any,
    labels: list[int],
    label_dtype: Any,
    error: Exception,
) -> str:
    """The text of an error: the first line that is not as it should be."""
    width = None
    for number, line in _csv_lines(path, skip_rows):
        cells = line.split(delimiter)
        width = width or len(cells)
        where = f"{os.fspath(path)}:{number}"
        if len(cells) != width:
            return f"{where}: {len(cells)} columns, the lines before have {width}"
        for k, cell in enumerate(cells):
            try:
                _number_of(cell, label_dtype if k in labels else dtype)
            except ValueError as problem:
                return f"{where}: column {k}: {problem}"
    return f"{os.fspath(path)}: {error}"


class TextLines(Dataset):
    """The lines of a text file, without their ends; found through an index of offsets, not held in memory.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.txt"
    >>> _ = path.write_bytes(bytes([111, 110, 101, 10, 116, 119, 111, 10]))
    >>> list(TextLines(path))
    ['one', 'two']
    """

    def __init__(self, path: PathLike, encoding: str = "utf-8") -> None:
        self.path, self.encoding = os.fspath(path), encoding
        self._open()
        pieces, begin = [], 0
        while begin < len(self._map):  # in pieces: as much memory as the index takes
            piece = np.frombuffer(self._map[begin : begin + (1 << 24)], np.uint8)
            pieces.append(np.flatnonzero(piece == 10) + begin)
            begin += len(piece)
        ends = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
        if len(self._map) and (not len(ends) or ends[-1] != len(self._map) - 1):
            ends = np.append(ends, len(self._map))
        self.ends = ends

    def _open(self) -> None:
        with open(self.path, "rb") as file:
            empty = os.fstat(file.fileno()).st_size == 0
            self._map: Any = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_map"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, k: int) -> str:
        end = int(self.ends[k])
        k %= len(self.ends)
        begin = int(self.ends[k - 1]) + 1 if k else 0
        line: bytes = self._map[begin:end]
        return line.removesuffix(b"\r").decode(self.encoding)


def read_libsvm(path: PathLike, columns: int, *, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Read a LibSVM file, lines "label[,label...] index:value ...": (f32[n, columns], labels f32[n] or f32[n, k]).

    first: the index of the first column, 0 or 1. Raises ValueError for a file without rows, and, with the line,
    for another form or an index beyond the columns.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.libsvm"
    >>> _ = path.write_text("1 0:5 2:7" + chr(10))
    >>> x, labels = read_libsvm(path, 3)
    >>> x.tolist(), labels.tolist()
    ([[5.0, 0.0, 7.0]], [1.0])
    """
    labels: list[list[float]] = []
    rows: list[int] = []
    column_indices: list[int] = []
    values: list[float] = []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            try:
                has_label = ":" not in words[0]
                labels.append([float(each) for each in words[0].split(",")] if has_label else [])
                for word in words[has_label:]:
                    index, value = word.split(":")
                    rows.append(len(labels) - 1)
                    column_indices.append(int(index) - first)
                    values.append(float(value))
                    if not 0 <= column_indices[-1] < columns:
                        raise ValueError(f"index {index} is not one of {columns} columns")
            except ValueError as error:
                raise ValueError(f"{os.fspath(path)}:{number}: {error}") from None
    if not labels:
        raise ValueError(f"{os.fspath(path)}: it has no rows")
    x = np.zeros((len(labels), columns), np.float32)
    x[rows, column_indices] = values
    if len({len(each) for each in labels}) > 1:
        raise ValueError(f"{os.fspath(path)}: lines have different numbers of labels")
    y = np.array(labels, np.float32).reshape(len(labels), len(labels[0]))
    return x, y[:, 0] if y.shape[1] == 1 else y


class LibSVMDataset(ArrayDataset):
    """The rows of a LibSVM file as dense arrays: samples (f32[columns], label).

    Arguments and errors are those of read_libsvm.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.libsvm"
    >>> _ = path.write_text("1 1:5 3:7" + chr(10))
    >>> LibSVMDataset(path, 3, first=1)[0][0].tolist()
    [5.0, 0.0, 7.0]
    """

    def __init__(self, path: PathLike, columns: int, *, first: int = 0) -> None:
        super().__init__(*read_libsvm(path, columns, first=first))


def read_idx(path: PathLike) -> np.ndarray:
    """An array of a file in MNIST's format, compressed (.gz) or not. Raises ValueError for another file."""
    content = Path(path).read_bytes()
    if os.fspath(path).endswith(".gz"):
        content = gzip.decompress(content)
    kinds = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in kinds:
        raise ValueError(f"{os.fspath(path)}: not a file of MNIST's format")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    dtype = np.dtype(kinds[content[2]])
    begin = 4 + 4 * content[3]
    if len(content) != begin + int(np.prod(shape)) * dtype.itemsize:
        raise ValueError(f"{os.fspath(path)}: {len(content)} bytes do not hold an array of shape {shape}")
    array = np.frombuffer(content, dtype, offset=begin).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def _first_existing(folder: PathLike, *names: str) -> Path:
    for name in names:
        for each in (Path(folder) / name, Path(folder) / f"{name}.gz"):
            if each.exists():
                return each
    raise FileNotFoundError(f"{os.fspath(folder)} has none of {', '.join(names)}")


class MNIST(ArrayDataset):
    """MNIST, or another data set in its format: samples (u8[28, 28, 1], label).

    folder: has the files train-images-idx3-ubyte, train-labels-idx1-ubyte, and t10k-... for train=False, also with the
    suffix .gz. Nothing is downloaded. Raises FileNotFoundError, and ValueError for files of another format.
    """

    def __init__(self, folder: PathLike, train: bool = True) -> None:
        name = "train" if train else "t10k"
        pictures = read_idx(_first_existing(folder, f"{name}-images-idx3-ubyte", f"{name}-images.idx3-ubyte"))
        labels = read_idx(_first_existing(folder, f"{name}-labels-idx1-ubyte", f"{name}-labels.idx1-ubyte"))
        super().__init__(pictures[..., None], labels.astype(np.int64))


class CIFAR10(ArrayDataset):
    """CIFAR-10: samples (u8[32, 32, 3], label).

    folder: has the files of the binary version, data_batch_1.bin to data_batch_5.bin, and test_batch.bin for
    train=False. Nothing is downloaded. Raises FileNotFoundError, and ValueError for files of another size.
    """

    label_bytes = 1
    parts: tuple[tuple[str, ...], tuple[str, ...]] = (
        tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
        ("test_batch.bin",),
    )

    def __init__(self, folder: PathLike, train: bool = True) -> None:
        size_bytes = self.label_bytes + 3072
        tables = []
        for name in self.parts[0 if train else 1]:
            path = _first_existing(folder, name)
            content = path.read_bytes()
            if not content or len(content) % size_bytes:
                raise ValueError(f"{path}: {len(content)} bytes are not a multiple of {size_bytes}")
            tables.append(np.frombuffer(content, np.uint8).reshape(-1, size_bytes))
        table = np.concatenate(tables)
        pictures = table[:, self.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        super().__init__(np.ascontiguousarray(pictures), table[:, self.label_bytes - 1].astype(np.int64))


class CIFAR100(CIFAR10):
    """CIFAR-100: samples (u8[32, 32, 3], fine label), from train.bin or test.bin of the binary version, as CIFAR10."""

    label_bytes = 2
    parts = (("train.bin",), ("test.bin",))


# -- caches --

MAGIC = b"weftcac2"
CHECKED_SAMPLES = 3  # of a file that is there, at the beginning


class CacheDataset(Dataset):
    """The samples of a dataset, each made once: in memory (of each process), or in one file.

    path: the file, of all samples as they are after decoding, mapped into memory: all processes share it, and programs
    later. It is written at once when it is not there, by one process, and takes the name when it is whole.
    What is random in the dataset is then the same for ever; put it into the loader's transform. check: of an existing
    file the first, the middle and the last sample are made again and compared with the dataset's, which finds a file of
    other content; False, for a dataset that draws random numbers in another way than by data.rng(): only the number of
    samples is compared.
    Raises ValueError for a file of another number of samples, of other samples, or of another kind, and for a sample
    whose bytes have changed since they were written, which is checked when this process first reads it. Arrays from a
    file are read-only.

    >>> calls = []
    >>> from weft.data import MapDataset
    >>> cached = CacheDataset(MapDataset([1, 2], lambda x: calls.append(x) or 10 * x))
    >>> cached[1], cached[1], calls
    (20, 20, [2])
    """

    def __init__(self, dataset: Any, path: PathLike | None = None, *, check: bool = True) -> None:
        self.dataset, self.path = dataset, None if path is None else os.fspath(path)
        self._samples: dict[int, Any] = {}
        self.size = len(dataset)
        if self.path is not None:
            is_new = not os.path.exists(self.path)
            if is_new:
                self._write()
            self._open()
            if check and not is_new:
                self._compare()

    def _write(self) -> None:
        assert self.path is not None
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(self.path):  # another process was first
                return
            part = f"{self.path}.{os.getpid()}.part"
            try:
                with open(part, "wb") as file:
                    file.write(MAGIC)
                    spans = [_append(file, self._make(k)) for k in range(self.size)]
                    offset = file.tell()
                    file.write(np.array(spans, np.int64).tobytes())
                    file.write(struct.pack("<QQ", offset, self.size))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(part, self.path)
            except BaseException:
                if os.path.exists(part):
                    os.unlink(part)
                raise
            finally:
                if os.path.exists(lock.name):
                    os.unlink(lock.name)

    def _make(self, k: int) -> Any:
        """A sample of the dataset; data.rng() draws the same numbers each time."""
        outer = context.sample, context.generator, context.stream
        enter(0, 0, k)
        try:
            return self.dataset[k]
        finally:
            context.sample, context.generator, context.stream = outer

    def _compare(self) -> None:
        """Raises ValueError if some of the samples are not the dataset's."""
        last = self.size - 1
        for k in sorted(
            {last * part // (CHECKED_SAMPLES - 1) for part in range(CHECKED_SAMPLES)} if self.size else ()
        ):
            file = io.BytesIO()
            _, size_bytes, begin, checksum = self._spans[k].tolist()
            file.seek(begin)  # where arrays begin depends on it
            if _append(file, self._make(k))[1:] != (size_bytes, begin, checksum):
                raise ValueError(
                    f"CacheDataset: {self.path}: sample {k} is not that of the dataset, so the file is of another "
                    "one, or of an earlier version: delete it (check=False for a dataset of random samples)"
                )

    def _open(self) -> None:
        assert self.path is not None
        with open(self.path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._memory = np.frombuffer(memory, np.uint8)
        if memory[:8] != MAGIC:
            kind = "a cache of an earlier version: delete it" if memory[:7] == MAGIC[:7] else "not a cache"
            raise ValueError(f"CacheDataset: {self.path} is {kind}")
        offset, size = struct.unpack("<QQ", memory[-16:])
        if size != self.size:
            raise ValueError(f"CacheDataset: {self.path} has {size} samples, the dataset {self.size}")
        self._spans = self._memory[offset:-16].view(np.int64).reshape(size, 4)
        self._is_checked = np.zeros(size, np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        return {
            k: v
            for k, v in self.__dict__.items()
            if k not in ("_memory", "_spans", "_samples", "_is_checked")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._samples = {}
        if self.path is not None:
            self._open()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, k: int) -> Any:
        if not -self.size <= k < self.size:
            raise IndexError(f"CacheDataset: index {k} is not one of {self.size} samples")
        k %= self.size
        if self.path is not None:
            offset, size_bytes, begin, checksum = self._spans[k].tolist()
            if not self._is_checked[k]:
                if not begin <= offset <= offset + size_bytes <= len(self._memory) or checksum != zlib.crc32(
                    self._memory[begin : offset + size_bytes].data
                ):
                    raise ValueError(f"CacheDataset: {self.path}: sample {k} is damaged: delete the file")
                self._is_checked[k] = True
            return read_packed(self._memory, offset, size_bytes)
        if k not in self._samples:
            self._samples[k] = self.dataset[k]
        return self._samples[k]


def _append(file: Any, sample: Any) -> tuple[int, int, int, int]:
    """Write a sample; returns (offset, bytes) of its pickle, where the sample begins, and the checksum of all of it."""
    first, checksum = file.tell(), 0

    def write(content: Any) -> None:
        nonlocal checksum
        checksum = zlib.crc32(content, checksum)
        file.write(content)

    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(sample, protocol=5, buffer_callback=buffers.append)
    spans = []
    for each in buffers:
        raw = each.raw()
        begin, end = span_of(file.tell(), raw.nbytes)
        write(b"\0" * (begin - file.tell()))
        write(raw)
        spans.append((begin, end))
    packed = pickle.dumps((spans, body))
    offset = file.tell()
    write(packed)
    pad = -file.tell() % 8  # the table of spans at the end has integers of 8 bytes
    file.write(b"\0" * pad)
    return offset, len(packed), first, checksum
