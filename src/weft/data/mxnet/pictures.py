"""Iterators over RecordIO files of pictures: parsing, decoding, augmentation and batching in worker threads.

The records are found through the mapped file, pictures are decoded by libjpeg-turbo (of simplejpeg), cropped, mirrored
and normalised by one native pass straight into the batch; all of it without the GIL.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import _core
from weft.arrays.creation import asarray
from weft.data import images
from weft.data import transforms as T
from weft.data.dataset import Dataset
from weft.data.fetch import FetchTask, note_sample
from weft.data.loader import DataLoader
from weft.data.mxnet.iterators import DataBatch, DataDesc, DataIter
from weft.data.recordio import IRHeader, Path, RecordDataset, unpack
from weft.data.sample_context import context, empty, enter, stream
from weft.data.sampler import RandomSampler, Sampler, SequentialSampler

__all__ = ["ImageDetRecordIter", "ImageRecordIter"]

FILTERS = {0: "nearest", 1: "linear", 2: "cubic", 3: "area", 4: "cubic", 9: "area", 10: "area"}


class _PaddedSampler(Sampler):
    """An order filled up to a multiple of the batch's size with its first indices."""

    def __init__(self, sampler: Sampler, batch_size: int) -> None:
        self.sampler, self.batch_size = sampler, batch_size

    def order(self, epoch: int) -> Any:
        order = np.fromiter(self.sampler.order(epoch), np.int64)
        missing = -len(order) % self.batch_size
        return np.concatenate([order, np.resize(order, missing)])

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size) * self.batch_size

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def check_state_dict(self, state: Any) -> None:
        self.sampler.check_state_dict(state)

    def load_state_dict(self, state: Any) -> None:
        self.sampler.load_state_dict(state)


class Augmenter:
    """Everything between a record's bytes and its place in the batch."""

    def __init__(self, shape: Sequence[int], options: dict[str, Any], boxes: bool) -> None:
        self.channels, self.height, self.width = shape
        if self.channels not in (1, 3):
            raise ValueError(f"ImageRecordIter: data_shape has 1 or 3 channels, got {tuple(shape)}")
        self.mode = "RGB" if self.channels == 3 else "L"
        self.options, self.boxes = options, boxes
        filter = options["inter_method"]
        if filter not in FILTERS:
            raise ValueError(f"ImageRecordIter: inter_method must be one of {sorted(FILTERS)}, got {filter}")
        self.filter = FILTERS[filter]
        changes: list[T.Transform] = []
        aspect = options["max_aspect_ratio"]
        fill = options["fill_value"]
        if options["max_rotate_angle"] or options["max_shear_ratio"]:
            shear = math.degrees(math.atan(options["max_shear_ratio"]))
            changes.append(T.RandomAffine(options["max_rotate_angle"], shear=shear, fill=fill))
        if options["pad"]:
            changes.append(T.Pad(options["pad"], fill))
        self.geometry = T.Compose(changes) if changes else None
        colours: list[T.Transform] = []
        jitter = [options[name] for name in ("brightness", "contrast", "saturation")]
        if any(jitter):
            colours.append(T.ColorJitter(*jitter))
        if options["pca_noise"]:
            colours.append(T.Lighting(options["pca_noise"]))
        self.colours = T.Compose(colours) if colours else None
        self.random_crop = None
        if options["random_resized_crop"]:
            area = options["min_random_area"], options["max_random_area"]
            ratio = (options["min_aspect_ratio"] or 1 / (1 + aspect)), (1 + aspect if aspect < 1 else aspect)
            self.random_crop = T.RandomResizedCrop((self.height, self.width), area, ratio, self.filter)
        scale = options["scale"]
        self.mean = np.array(options["mean"][: self.channels], np.float32)
        self.scale = np.array([scale / std for std in options["std"][: self.channels]], np.float32)

    def __call__(self, record: bytes) -> Any:
        """(header, picture, y, x, whether mirrored): the picture is still larger than the crop."""
        header, content = unpack(record)
        random_stream = stream()
        options = self.options
        min_size = None
        if options["resize"] > 0 and self.geometry is None:
            min_size = (options["resize"], options["resize"])
        item = T.Item(images.decode_in_scratch(content, self.mode, min_size=min_size))
        if self.boxes:
            item.boxes, header = boxes_of(header, item.size)
        if options["resize"] > 0 and min(item.size) != options["resize"]:
            T.ShortestEdgeResize(options["resize"], filter=self.filter).apply(item, random_stream)
        if self.geometry is not None:
            self.geometry.apply(item, random_stream)
        h, w = self.height, self.width
        if self.random_crop is not None:
            self.random_crop.apply(item, random_stream)
        elif item.size[0] < h or item.size[1] < w:  # made larger until the crop fits
            factor = max(h / item.size[0], w / item.size[1])
            size = max(h, round(item.size[0] * factor)), max(w, round(item.size[1] * factor))
            item.resize_part((0, 0, *item.size), size, self.filter)
        if self.boxes and item.size != (h, w):  # a detector sees all of its picture
            item.resize_part((0, 0, *item.size), (h, w), self.filter)
        if self.colours is not None:
            self.colours.apply(item, random_stream)
        down, right = item.size[0] - h, item.size[1] - w
        y, x = (
            (random_stream.below(down + 1), random_stream.below(right + 1))
            if options["rand_crop"]
            else (down // 2, right // 2)
        )
        mirror = options["mirror"] or (options["rand_mirror"] and random_stream.uniform() < 0.5)
        if self.boxes and mirror:
            item.flip(1)
            mirror = False
        return header, item, y, x, mirror

    def write(self, decoded: Any, destination: np.ndarray) -> None:
        """Normalise a picture into its place."""
        _, item, y, x, mirror = decoded
        if destination.dtype == np.float32:
            _core.image_normalize(item.image, destination, y, x, mirror, self.mean, self.scale, True)
            return
        part = item.image[y : y + self.height, x : x + self.width]
        destination[...] = (part[:, ::-1] if mirror else part).transpose(2, 0, 1).astype(destination.dtype)


def boxes_of(header: IRHeader, size: tuple[int, int]) -> tuple[np.ndarray, IRHeader]:
    """Boxes in pixels, x0, y0, x1, y1, class and what else an object has; of a label as im2rec packs it for detection.

    A label is: the width of its head, the width of an object, the rest of the head, then objects: class, x0, y0, x1,
    y1 (shares of the picture), anything.
    """
    label = np.atleast_1d(np.asarray(header.label, np.float32))
    if len(label) < 2 or label[0] < 2 or label[1] < 5 or (len(label) - int(label[0])) % int(label[1]):
        raise ValueError(
            f"ImageDetRecordIter: record {header.id} has no label for detection: {label[:8].tolist()}"
        )
    head, width = int(label[0]), int(label[1])
    objects = label[head:].reshape(-1, width)
    scale = np.array([size[1], size[0]] * 2, np.float32)
    boxes = np.concatenate([objects[:, 1:5] * scale, objects[:, :1], objects[:, 5:]], axis=1)
    return boxes, header._replace(label=label[:head])


class _Pictures(Dataset):
    """Batches made in one go: each picture is normalised into its place while it is still in the cache."""

    def __init__(
        self,
        records: RecordDataset,
        augmenter: Augmenter,
        label_width: int,
        dtype: str,
        label_pad: tuple[int, float],
    ) -> None:
        self.records, self.augmenter, self.label_width = records, augmenter, label_width
        self.dtype, self.label_pad = np.dtype(dtype), label_pad

    def __len__(self) -> int:
        return len(self.records)

    def gather(self, indices: Sequence[int]) -> Any:
        assert context.sample is not None
        seed, epoch, number, _ = context.sample
        augmenter = self.augmenter
        data = empty((len(indices), augmenter.channels, augmenter.height, augmenter.width), self.dtype)
        labels = []
        for destination, index in zip(data, indices, strict=True):
            enter(seed, epoch, index)
            try:
                decoded = augmenter(self.records.record(index))
                augmenter.write(decoded, destination)
                labels.append(self._boxes(decoded) if augmenter.boxes else self._label(decoded[0]))
            except Exception as error:
                raise note_sample(error, index, FetchTask(seed, epoch, number, None)) from None
        if not augmenter.boxes:
            return data, np.array(labels, np.float32).reshape(
                -1, *[self.label_width] * (self.label_width > 1)
            )
        width = self.label_pad[0] + 4
        table = np.full((len(indices), width), self.label_pad[1], np.float32)
        for row, label in zip(table, labels, strict=True):
            row[: len(label)] = label
        return data, table

    def _label(self, header: IRHeader) -> np.ndarray:
        label = np.atleast_1d(np.asarray(header.label, np.float32))
        if len(label) != self.label_width:
            raise ValueError(
                f"ImageRecordIter: record {header.id} has {len(label)} labels, label_width is {self.label_width}"
            )
        return label

    def _boxes(self, decoded: Any) -> np.ndarray:
        header, item, *_ = decoded
        boxes = item.boxes
        scale = np.array([self.augmenter.width, self.augmenter.height] * 2, np.float32)
        objects = np.concatenate([boxes[:, 4:5], boxes[:, :4] / scale, boxes[:, 5:]], axis=1)
        label = np.concatenate([header.label, objects.ravel()])
        shape = (self.augmenter.channels, self.augmenter.height, self.augmenter.width)
        return np.concatenate([np.array([*shape, len(label)], np.float32), label])


def _check_options(data_shape: Sequence[int], batch_size: int, dtype: str, std: Sequence[float]) -> None:
    if dtype not in ("float32", "uint8", "int8"):
        raise ValueError(f"ImageRecordIter: dtype must be 'float32', 'uint8' or 'int8', got {dtype!r}")
    if len(data_shape) != 3 or min(data_shape) < 1:
        raise ValueError(f"ImageRecordIter: data_shape is (channels, height, width), got {tuple(data_shape)}")
    if operator.index(batch_size) < 1:
        raise ValueError(f"ImageRecordIter: batch_size must be at least 1, got {batch_size}")
    if 0 in std:
        raise ValueError(f"ImageRecordIter: std_r, std_g, std_b are not 0, got {', '.join(map(str, std))}")


class ImageRecordIter(DataIter):
    """Batches of pictures of a RecordIO file: f32[batch_size, c, h, w], and labels f32[batch_size].

    path_imgrec, path_imgidx: the file, and its index (by default beside it; without one it is read through once).
    data_shape: (channels, height, width). preprocess_threads: worker threads; prefetch_buffer: batches ahead. shuffle,
    seed: another order each epoch. num_parts, part_index: one part of the file. round_batch: the last batch is filled
    up with the epoch's first samples, which `pad` counts, in either case, and each epoch has every sample.
    Augmentation, in this order: resize (the shorter edge), max_rotate_angle, max_shear_ratio, pad and fill_value,
    random_resized_crop with min/max_random_area and min/max_aspect_ratio, brightness, contrast, saturation, pca_noise,
    rand_crop (else the middle), rand_mirror or mirror. A picture smaller than data_shape is made larger.
    Then (x - mean) / std * scale, channels in the order RGB, for dtype float32; of "uint8" and "int8" the pixels.
    What is random follows from (seed, epoch, index), whatever the number of threads. state_dict() and load_state_dict()
    go on exactly, in the middle of an epoch.
    Raises ValueError for a picture that does not decode, with the sample's index; skip_corrupt leaves corrupt records
    of a file without index out.
    """

    _boxes = False

    def __init__(
        self,
        path_imgrec: Path,
        data_shape: Sequence[int],
        batch_size: int,
        *,
        path_imgidx: Path | None = None,
        label_width: int = 1,
        preprocess_threads: int = 4,
        prefetch_buffer: int = 4,
        shuffle: bool = False,
        seed: int | None = None,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        dtype: str = "float32",
        resize: int = -1,
        rand_crop: bool = False,
        random_resized_crop: bool = False,
        min_random_area: float = 1.0,
        max_random_area: float = 1.0,
        max_aspect_ratio: float = 0.0,
        min_aspect_ratio: float | None = None,
        rand_mirror: bool = False,
        mirror: bool = False,
        max_rotate_angle: float = 0,
        max_shear_ratio: float = 0.0,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        pca_noise: float = 0.0,
        pad: int = 0,
        fill_value: int = 255,
        inter_method: int = 1,
        mean_r: float = 0.0,
        mean_g: float = 0.0,
        mean_b: float = 0.0,
        std_r: float = 1.0,
        std_g: float = 1.0,
        std_b: float = 1.0,
        scale: float = 1.0,
        skip_corrupt: bool = False,
        data_name: str = "data",
        label_name: str = "softmax_label",
        label_pad_width: int = 0,
        label_pad_value: float = -1.0,
    ) -> None:
        super().__init__(batch_size)
        _check_options(data_shape, batch_size, dtype, (std_r, std_g, std_b))
        options = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        options["mean"], options["std"] = (mean_r, mean_g, mean_b), (std_r, std_g, std_b)
        augmenter = Augmenter(data_shape, options, self._boxes)
        files = {"skip_corrupt": skip_corrupt, "num_parts": num_parts, "part_index": part_index}
        records = RecordDataset(path_imgrec, path_imgidx, **files)  # type: ignore[arg-type]
        if self._boxes:
            label_pad_width = max([label_pad_width, *map(records.label_width, range(len(records)))])
        self.dataset = _Pictures(records, augmenter, label_width, dtype, (label_pad_width, label_pad_value))
        self.num_data = len(records)
        if not self.num_data:
            part = f"part {part_index} of {num_parts}"
            raise ValueError(f"ImageRecordIter: {path_imgrec} has no records in {part}")
        sampler: Sampler = RandomSampler(self.num_data, seed) if shuffle else SequentialSampler(self.num_data)
        order = _PaddedSampler(sampler, batch_size)
        self._pad = -self.num_data % batch_size
        self.loader = DataLoader(
            self.dataset,
            order,
            batch_size=batch_size,
            drop_last=True,
            seed=getattr(sampler, "seed", seed),
            num_workers=max(1, preprocess_threads),
            prefetch=max(1, -(-prefetch_buffer // max(1, preprocess_threads))),
        )
        self.provide_data = [DataDesc(data_name, (batch_size, *data_shape), np.dtype(dtype))]
        label_shape = (batch_size, label_width) if label_width > 1 else (batch_size,)
        if self._boxes:
            label_shape = (batch_size, label_pad_width + 4)
        self.provide_label = [DataDesc(label_name, label_shape, np.float32)]
        self._batches: Any = None
        self._ended = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.loader)

    def reset(self) -> None:
        """Begin the next epoch."""
        self._batches, self._ended = None, False

    def iter_next(self) -> bool:
        if self._ended:
            return False
        self.current = None  # its memory is free for the next batches
        if self._batches is None:
            self._batches = iter(self.loader)
        batch = next(self._batches, None)
        if batch is None:
            self._ended = True
            return False
        data, label = batch
        last = self.loader._batch in (0, len(self.loader))
        pad = self._pad if last else 0
        self.current = DataBatch(
            [asarray(data)],
            [asarray(label)],
            pad,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return True

    def state_dict(self) -> dict[str, Any]:
        """The position of the iterator: the state of its loader."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was saved."""
        self.loader.load_state_dict(state)
        self._batches, self._ended = None, False

    def close(self) -> None:
        """End the threads."""
        self._batches = None
        self.loader.close()


class ImageDetRecordIter(ImageRecordIter):
    """ImageRecordIter for detection: boxes move with the pictures, which are resized to data_shape as a whole.

    Labels f32[batch_size, n], filled up with label_pad_value; n is the same for all batches, 4 more than the longest
    label of the file (or part), for which all headers are read, or than label_pad_width where that is more: channels,
    height, width, the number of values that follow, then the label as it is packed: the width of its head, that of an
    object, the rest of the head, objects of class, x0, y0, x1, y1 (shares of the picture) and anything. Objects that an
    augmentation moves out of the picture are left out.
    """

    _boxes = True
