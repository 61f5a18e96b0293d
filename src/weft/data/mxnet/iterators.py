"""Iterators in MXNet's style, for loops that are written for them: next() gives a DataBatch, reset() begins again.

>>> import numpy as np
>>> it = NDArrayIter(np.arange(5.0), np.arange(5), batch_size=2)
>>> [(batch.data[0].numpy().tolist(), batch.pad) for batch in it]
[([0.0, 1.0], 0), ([2.0, 3.0], 0), ([4.0, 0.0], 1)]
"""

from __future__ import annotations

import operator
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import random
from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.data.files import PathLike, read_csv, read_idx, read_libsvm

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "LibSVMIter",
    "MNISTIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]


class DataDesc(NamedTuple):
    """Describes an array of an iterator's batches: its name, its shape with the batch first, its dtype, and its axes.

    >>> DataDesc("data", (32, 3, 224, 224)).layout
    'NCHW'
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any = np.float32
    layout: str = "NCHW"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The position of "N" in a layout; 0 for None."""
        return 0 if layout is None else layout.find("N")


class DataBatch:
    """A batch of an iterator.

    data, label: lists of tensors. pad: the number of samples at the end that only fill up the batch, to be ignored.
    index: the samples' indices, or None. bucket_key, provide_data, provide_label: for batches of several sizes.

    >>> batch = NDArrayIter(np.arange(6.0), batch_size=4).next()
    >>> batch.data[0].shape, batch.pad
    ((4,), 0)
    """

    def __init__(
        self,
        data: list[Any],
        label: list[Any] | None = None,
        pad: int = 0,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        self.data, self.pad, self.index = data, pad, index
        self.label: list[Any] | Any = label
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __repr__(self) -> str:
        shapes = [[tuple(x.shape) for x in part or ()] for part in (self.data, self.label)]
        return f"DataBatch(data {shapes[0]}, label {shapes[1]}, pad {self.pad})"


class DataIter:
    """Base of iterators over batches, with MXNet's interface.

    A subclass writes next(), which returns a DataBatch and raises StopIteration at the end of an epoch, and reset(),
    which begins the next epoch.

    >>> class Ones(DataIter):
    ...     count = 0
    ...     def reset(self):
    ...         self.count = 0
    ...     def next(self):
    ...         if self.count == 2:
    ...             raise StopIteration
    ...         self.count += 1
    ...         return DataBatch([np.ones(3)])
    >>> len(list(Ones(batch_size=3)))
    2
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size
        self.current: DataBatch | None = None
        self.provide_data: list[DataDesc] = []
        self.provide_label: list[DataDesc] = []

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Begin again."""

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last one."""
        if not self.iter_next():
            raise StopIteration
        assert self.current is not None
        return self.current

    def iter_next(self) -> bool:
        """Go on to the next batch, `current`; False after the last one."""
        raise NotImplementedError(f"{type(self).__name__}: has no next()")

    def _current(self) -> DataBatch:
        if self.current is None:
            raise ValueError(f"{type(self).__name__}: there is no batch before next()")
        return self.current

    def getdata(self) -> list[Any]:
        """The current batch's data."""
        return self._current().data

    def getlabel(self) -> list[Any] | None:
        """The current batch's labels."""
        return self._current().label

    def getindex(self) -> Any:
        """The current batch's indices."""
        return self._current().index

    def getpad(self) -> int:
        """The number of samples at the end of the current batch that only fill it up."""
        return self._current().pad


def _named_arrays(arrays: Any, name: str) -> list[tuple[str, np.ndarray]]:
    """Names and arrays of an array, a list of arrays, or a dictionary."""
    if arrays is None:
        return []
    if isinstance(arrays, Mapping):
        pairs = list(arrays.items())
    elif isinstance(arrays, list | tuple) and not all(isinstance(each, int | float) for each in arrays):
        pairs = [(name if len(arrays) == 1 else f"_{k}_{name}", each) for k, each in enumerate(arrays)]
    else:
        pairs = [(name, arrays)]
    return [(key, each.numpy() if isinstance(each, Tensor) else np.asarray(each)) for key, each in pairs]


class NDArrayIter(DataIter):
    """Batches of arrays, along their first axis.

    data, label: an array, a list of arrays, or a dictionary of them by name. last_batch_handle, for samples at the end
    that do not fill a batch: "pad" fills it up with the epoch's first samples (the batch's `pad` is their number),
    "discard" leaves it out, "roll_over" puts them at the beginning of the next epoch. shuffle: another order after each
    reset(), from weft.random.
    Raises ValueError for arrays of different lengths, or fewer samples than a batch has.

    >>> batches = NDArrayIter(np.arange(5.0), np.arange(5), batch_size=2)
    >>> [(batch.label[0].tolist(), batch.pad) for batch in batches]
    [([0, 1], 0), ([2, 3], 0), ([4, 0], 1)]
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        super().__init__(batch_size)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                f"NDArrayIter: last_batch_handle must be 'pad', 'discard' or 'roll_over', got {last_batch_handle!r}"
            )
        self.data, self.label = _named_arrays(data, data_name), _named_arrays(label, label_name)
        sizes = {len(array) for _, array in [*self.data, *self.label]}
        if len(sizes) != 1:
            raise ValueError(f"NDArrayIter: arrays have lengths {sorted(sizes)}")
        self.num_data = sizes.pop()
        if not 1 <= batch_size <= self.num_data:
            raise ValueError(f"NDArrayIter: batch_size {batch_size} for {self.num_data} samples")
        self.shuffle, self.last_batch_handle = shuffle, last_batch_handle
        self.provide_data = self._descriptions(self.data)
        self.provide_label = self._descriptions(self.label)
        self._carried_over = np.empty(0, np.int64)
        self._order = np.empty(0, np.int64)
        self._begin_epoch()

    def _descriptions(self, arrays: list[tuple[str, np.ndarray]]) -> list[DataDesc]:
        return [DataDesc(name, (self.batch_size, *x.shape[1:]), x.dtype) for name, x in arrays]

    def _begin_epoch(self) -> None:
        order = np.arange(self.num_data)
        if self.shuffle:
            order = np.random.Generator(np.random.PCG64(int(random.randint(0, 2**62)))).permutation(order)
        self._order, self._carried_over = np.concatenate([self._carried_over, order]), self._carried_over[:0]
        self._cursor = 0

    def reset(self) -> None:
        self._begin_epoch()

    def hard_reset(self) -> None:
        """Begin again, without samples that were carried over."""
        self._carried_over = self._carried_over[:0]
        self._begin_epoch()

    def iter_next(self) -> bool:
        begin, size = self._cursor, self.batch_size
        indices = self._order[begin : begin + size]
        self._cursor = begin + size
        pad = size - len(indices)
        if not len(indices):
            return False
        if pad:
            if self.last_batch_handle == "discard":
                return False
            if self.last_batch_handle == "roll_over":
                self._carried_over = indices
                return False
            indices = np.concatenate([indices, self._order[:pad]])
        data, label = ([asarray(x[indices]) for _, x in arrays] for arrays in (self.data, self.label))
        self.current = DataBatch(data, label, pad, indices, None, self.provide_data, self.provide_label)
        return True


class CSVIter(NDArrayIter):
    """Batches of the rows of a CSV file of numbers.

    data_shape: the shape that each row gets. label_csv: another file with the labels, one in each row; without it the
    labels are 0. label_shape: the shape of a label. round_batch: the last batch is filled up with the first samples,
    which `pad` counts, in either case, and each epoch has every sample. Raises ValueError for text that is not a
    number, with its line.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.csv"
    >>> _ = path.write_text("1,2" + chr(10) + "3,4" + chr(10))
    >>> CSVIter(path, (2,), batch_size=2).next().data[0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    def __init__(
        self,
        data_csv: PathLike,
        data_shape: Sequence[int],
        label_csv: PathLike | None = None,
        label_shape: Sequence[int] = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        dtype: Any = np.float32,
        data_name: str = "data",
        label_name: str = "label",
    ) -> None:
        x = _shaped(read_csv(data_csv, dtype)[0], data_shape, data_csv)
        y: np.ndarray = np.zeros((len(x), *label_shape), np.float32)
        if label_csv is not None:
            y = _shaped(read_csv(label_csv, np.float32)[0], label_shape, label_csv)
        y = y[:, 0] if tuple(label_shape) == (1,) else y
        super().__init__({data_name: x}, {label_name: y}, batch_size)


def part_slice(owner: str, num_parts: int, part_index: int) -> slice:
    """Every num_parts-th sample. Raises ValueError for a part that there is not."""
    if not 0 <= operator.index(part_index) < operator.index(num_parts):
        raise ValueError(f"{owner}: part_index {part_index} is not one of num_parts={num_parts}")
    return slice(part_index, None, num_parts)


def _shaped(table: np.ndarray, shape: Sequence[int], path: PathLike) -> np.ndarray:
    if table.shape[1] != int(np.prod(shape)):
        raise ValueError(f"{path}: rows of {table.shape[1]} numbers do not have the shape {tuple(shape)}")
    return table.reshape(len(table), *shape)


class LibSVMIter(NDArrayIter):
    """Batches of the rows of a LibSVM file, as dense arrays (MXNet's are sparse).

    data_shape: (columns,); columns are numbered from 0, as in MXNet. label_libsvm: another file with the labels, one in
    each row; label_shape: the shape of a label. round_batch: as CSVIter's. Raises ValueError for a wrong line, or a
    part_index that is not one of num_parts.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "some.libsvm"
    >>> _ = path.write_text("1 0:5 2:7" + chr(10))
    >>> LibSVMIter(path, (3,), batch_size=1).next().data[0].tolist()
    [[5.0, 0.0, 7.0]]
    """

    def __init__(
        self,
        data_libsvm: PathLike,
        data_shape: Sequence[int],
        label_libsvm: PathLike | None = None,
        label_shape: Sequence[int] = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        num_parts: int = 1,
        part_index: int = 0,
        data_name: str = "data",
        label_name: str = "label",
    ) -> None:
        x, y = read_libsvm(data_libsvm, int(np.prod(data_shape)))
        if label_libsvm is not None:
            y = read_libsvm(label_libsvm, int(np.prod(label_shape)))[0].reshape(-1, *label_shape)
        part = part_slice("LibSVMIter", num_parts, part_index)
        super().__init__({data_name: x[part]}, {label_name: y[part]}, batch_size)


class MNISTIter(NDArrayIter):
    """Batches of MNIST's files: f32[n, 1, 28, 28] in 0..1 (flat: [n, 784]), labels f32[n]; the rest is left out."""

    def __init__(
        self,
        image: PathLike,
        label: PathLike,
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int | None = None,
        num_parts: int = 1,
        part_index: int = 0,
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        part = part_slice("MNISTIter", num_parts, part_index)
        x = read_idx(image)[part].astype(np.float32) / 256
        y = read_idx(label)[part].astype(np.float32)
        if shuffle and seed is not None:
            order = np.random.Generator(np.random.PCG64(seed)).permutation(len(x))
            x, y, shuffle = x[order], y[order], False
        x = x.reshape(len(x), -1) if flat else x[:, None]
        super().__init__({data_name: x}, {label_name: y}, batch_size, shuffle, "discard")


class ResizeIter(DataIter):
    """An iterator whose epochs have `size` batches of another one, which is reset when it ends before that.

    reset_internal: whether reset() also resets the other iterator.

    >>> len(list(ResizeIter(NDArrayIter(np.arange(4.0), batch_size=2), size=5)))
    5
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self.provide_data, self.provide_label = data_iter.provide_data, data_iter.provide_label
        self._delivered = 0

    def reset(self) -> None:
        self._delivered = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self._delivered == self.size:
            return False
        try:
            self.current = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current = self.data_iter.next()
        self._delivered += 1
        return True


class PrefetchingIter(DataIter):
    """One or several iterators, each read one batch ahead in a thread of its own.

    A batch has the data and labels of all iterators. rename_data, rename_label: for each iterator a dictionary from its
    names to new ones. An exception of an iterator is raised by next(). close() ends the threads, and so does deleting
    the last reference.

    >>> ahead = PrefetchingIter(NDArrayIter(np.arange(4.0), batch_size=2))
    >>> [batch.data[0].tolist() for batch in ahead]
    [[0.0, 1.0], [2.0, 3.0]]
    >>> ahead.close()
    """

    def __init__(
        self,
        iters: DataIter | Sequence[DataIter],
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.iters = [iters] if isinstance(iters, DataIter) else list(iters)
        super().__init__(self.iters[0].batch_size)
        unchanged: list[Mapping[str, str]] = [{}] * len(self.iters)
        self.provide_data = self._renamed(
            [each.provide_data for each in self.iters], rename_data or unchanged
        )
        self.provide_label = self._renamed(
            [each.provide_label for each in self.iters], rename_label or unchanged
        )
        self._requests: list[queue.SimpleQueue[str | None]] = [queue.SimpleQueue() for _ in self.iters]
        self._results: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in self.iters]
        self._ended = self._closed = False
        for k, each in enumerate(self.iters):
            arguments = (each, self._requests[k], self._results[k])
            threading.Thread(
                target=_prefetch, args=arguments, daemon=True, name=f"weft-data-prefetch-{k}"
            ).start()
        self._request("next")

    @staticmethod
    def _renamed(descriptions: list[list[DataDesc]], names: Sequence[Mapping[str, str]]) -> list[DataDesc]:
        return [
            each._replace(name=table.get(each.name, each.name))
            for group, table in zip(descriptions, names, strict=True)
            for each in (DataDesc(*pair) for pair in group)
        ]

    def _request(self, request: str | None) -> None:
        for each in self._requests:
            each.put(request)

    def reset(self) -> None:
        if not self._ended:
            for each in self._results:
                each.get()
        self._ended = False
        self._request("reset")
        self._request("next")

    def iter_next(self) -> bool:
        if self._ended:
            return False
        batches = [each.get() for each in self._results]
        errors = [each for each in batches if isinstance(each, BaseException)]
        if errors:
            self._ended = True
            if all(isinstance(each, StopIteration) for each in batches):
                return False
            other = next((each for each in errors if not isinstance(each, StopIteration)), None)
            raise other or ValueError("PrefetchingIter: iterators have different numbers of batches")
        self._request("next")
        first = batches[0]
        self.current = DataBatch(
            [x for batch in batches for x in batch.data],
            [x for batch in batches for x in batch.label or ()],
            first.pad,
            first.index,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return True

    def close(self) -> None:
        """End the threads."""
        if not self._closed:
            self._closed = self._ended = True
            self._request(None)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


def _prefetch(
    source: DataIter, requests: queue.SimpleQueue[str | None], results: queue.SimpleQueue[Any]
) -> None:
    while (request := requests.get()) is not None:
        try:
            if request == "reset":
                source.reset()
            else:
                results.put(source.next())
        except BaseException as error:
            results.put(error)
