"""Event files that TensorBoard reads: scalars, histograms, images, texts and graphs, written without TensorBoard.

>>> import tempfile
>>> from weft.tools.event_file import EventWriter
>>> with tempfile.TemporaryDirectory() as folder, EventWriter(folder) as writer:
...     for step in range(3):
...         writer.add_scalar("loss", 1 / (step + 1), step)

A file is a row of records: length, checksum of the length, content, checksum of the content; a record is a message
Event of TensorFlow's event.proto in the wire format of protocol buffers. Source: TensorFlow, lib/io/record_writer and
core/util/event.proto; CRC-32C: RFC 3720, masked as there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.arrays.tensor import Tensor

__all__ = ["EventWriter"]

DT_STRING = 7
BINS = 64

# The wire format: a key (number of the field, kind), then a varint, 8 bytes, 4 bytes, or bytes with their length.


def varint(n: int) -> bytes:
    """An integer, 7 bits in a byte; negative ones as their 64 bits.

    >>> varint(300)
    b'\\xac\\x02'
    """
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def integer(field: int, n: int) -> bytes:
    """A field that is an integer."""
    return varint(field << 3) + varint(n)


def double(field: int, x: float) -> bytes:
    """A field of 8 bytes."""
    return varint(field << 3 | 1) + struct.pack("<d", x)


def single(field: int, x: float) -> bytes:
    """A field of 4 bytes."""
    return varint(field << 3 | 5) + struct.pack("<f", x)


def data(field: int, content: bytes | str) -> bytes:
    """A field of bytes: text or a message."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def _crc_table() -> list[int]:
    table = []
    for k in range(256):
        for _ in range(8):
            k = k >> 1 ^ (0x82F63B78 if k & 1 else 0)
        table.append(k)
    return table


_TABLE = _crc_table()


def checksum(content: bytes) -> int:
    """CRC-32C, masked.

    >>> hex(checksum(b"123456789"))
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def png(pixels: Any) -> bytes:
    """An image uint8[h, w, c] with 1, 3 or 4 channels as a PNG file.

    >>> png(np.zeros((2, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, channels = pixels.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


_numbers = itertools.count()


def _array(x: Any) -> Any:
    """The value as a NumPy array of a type that NumPy computes with."""
    array = np.asarray(x.numpy() if isinstance(x, Tensor) else x)
    return array.astype(np.float64) if array.dtype.kind not in "biuf" else array


class EventWriter:
    """Writes one event file into a folder; close() it, or use it in a ``with`` block.

    folder: made if it is not there; runs in folders beside each other are compared by TensorBoard. tensorboard
    --logdir folder shows it, also while it grows: flush() writes what is there. Any thread may add. Values are read at
    once: a tensor is waited for.
    Raises ValueError after close().
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self.path = self.folder / name
        self._lock = threading.Lock()
        self._file = open(self.path, "wb")  # noqa: SIM115 - closed by close()
        self._event(data(3, "brain.Event:2"), 0)
        self.flush()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write everything and end."""
        with self._lock:
            self._file.close()

    def flush(self) -> None:
        """Write everything that was added."""
        with self._lock:
            self._file.flush()

    def _event(self, message: bytes, step: int) -> None:
        content = double(1, time.time()) + integer(2, int(step)) + message
        length = struct.pack("<Q", len(content))
        record = length + struct.pack("<I", checksum(length)) + content + struct.pack("<I", checksum(content))
        with self._lock:
            if self._file.closed:
                raise ValueError("EventWriter: it is closed")
            self._file.write(record)

    def _value(self, tag: str, message: bytes, step: int) -> None:
        self._event(data(5, data(1, data(1, tag) + message)), step)

    def add_scalar(self, tag: str, value: Any, step: int = 0) -> None:
        """A number: a Python number, or a tensor or array of one element. Raises ValueError for others."""
        array = _array(value)
        if array.size != 1:
            raise ValueError(f"add_scalar: {tag} needs one element, got {array.size}")
        self._value(tag, single(2, float(array.reshape(()))), step)

    def add_scalars(self, values: Mapping[str, Any], step: int = 0, prefix: str = "") -> None:
        """Several numbers by their tags, with a prefix before each."""
        for tag, value in values.items():
            self.add_scalar(f"{prefix}{tag}", value, step)

    def add_histogram(self, tag: str, values: Any, step: int = 0, bins: int = BINS) -> None:
        """A histogram of the elements of an array; those that are not finite are left out."""
        x = _array(values).astype(np.float64).ravel()
        x = x[np.isfinite(x)]
        counts, edges = np.histogram(x, bins) if x.size else (np.zeros(1), np.array([0.0, 1.0]))
        numbers = (
            (1, float(x.min()) if x.size else 0.0),
            (2, float(x.max()) if x.size else 0.0),
            (3, float(x.size)),
            (4, float(x.sum())),
            (5, float((x * x).sum())),
        )
        message = b"".join(double(field, number) for field, number in numbers)
        message += data(6, np.asarray(edges[1:], "<f8").tobytes()) + data(
            7, np.asarray(counts, "<f8").tobytes()
        )
        self._value(tag, data(5, message), step)

    def add_image(self, tag: str, image: Any, step: int = 0, layout: str = "chw") -> None:
        """A picture with 1, 3 or 4 channels: uint8, or floats from 0 to 1, which are cut off there.

        layout: "chw", "hwc" or "hw". Raises ValueError for other shapes and layouts.
        """
        if layout not in ("chw", "hwc", "hw"):
            raise ValueError(f"add_image: layout must be chw, hwc or hw, got {layout!r}")
        x = _array(image)
        if x.ndim != len(layout):
            raise ValueError(f"add_image: {tag} has {x.ndim} dimensions, {layout} {len(layout)}")
        x = x[..., None] if layout == "hw" else x.transpose(1, 2, 0) if layout == "chw" else x
        if x.shape[2] not in (1, 3, 4):
            raise ValueError(f"add_image: {tag} has {x.shape[2]} channels; accepted: 1, 3, 4")
        if x.dtype != np.uint8:
            x = (np.nan_to_num(x.astype(np.float64)).clip(0, 1) * 255 + 0.5).astype(np.uint8)
        height, width, channels = x.shape
        message = integer(1, height) + integer(2, width) + integer(3, channels) + data(4, png(x))
        self._value(tag, data(4, message), step)

    def add_text(self, tag: str, text: str, step: int = 0) -> None:
        """A text, in Markdown."""
        shape = data(2, integer(1, 1))  # of one dimension of size 1
        tensor = integer(1, DT_STRING) + data(2, shape) + data(8, text)
        metadata = data(1, data(1, "text"))
        self._value(f"{tag}/text_summary", data(9, metadata) + data(8, tensor), step)

    def add_graph(self, thing: Any, *inputs: Any, **shapes: Any) -> None:
        """The graph of a traced function, of a Module or function called with inputs, or of a Symbol with shapes.

        Modules become TensorBoard's scopes. Raises what weft.tools.draw raises.
        """
        from weft.tools.graph import programs_of  # not needed to log numbers

        nodes: list[bytes] = []
        for name, graph, _ in programs_of(thing, *inputs, **shapes):
            nodes += _nodes_of(name, graph)
        self._event(data(4, b"".join(data(1, node) for node in nodes) + data(4, integer(1, 22))), 0)


def _nodes_of(program: str, graph: Any) -> list[bytes]:
    """NodeDef messages of a graph."""
    counts: dict[str, int] = {}
    name_of: dict[int, str] = {}
    messages = []

    def unique(name: str) -> str:
        count = counts[name] = counts.get(name, -1) + 1
        return f"{name}_{count}" if count else name

    def node(name: str, op: str, inputs: Iterable[str], types: Sequence[Any], text: str) -> bytes:
        shapes = b"".join(
            data(7, b"".join(data(2, integer(1, int(n))) for n in t.shape))
            for t in types
            if _is_fixed(t.shape)
        )
        attributes = {"_output_shapes": data(1, shapes)} | ({"attributes": data(2, text)} if text else {})
        content = data(1, name) + data(2, op) + b"".join(data(3, i) for i in inputs)
        return content + b"".join(data(5, data(1, key) + data(2, value)) for key, value in attributes.items())

    for k, value in enumerate(graph.inputs):
        name = name_of[id(value)] = unique(f"{program}/inputs/x{k}")
        messages.append(node(name, "Input", (), [value.type], ""))
    for each in graph.nodes:
        if each.op is None:
            continue
        module = getattr(each.where, "module", "").replace(".", "/")
        name = unique("/".join(part for part in (program, module, each.op.name) if part))
        reads = [name_of[id(v)] for v in each.inputs if v is not None and id(v) in name_of]
        text = ", ".join(f"{key}={value!r}" for key, value in each.op.values().items())
        messages.append(node(name, each.op.name, reads, [v.type for v in each.outputs], text))
        for k, value in enumerate(each.outputs):
            name_of[id(value)] = f"{name}:{k}" if k else name
    for k, value in enumerate(graph.outputs):
        if value is not None and id(value) in name_of:
            messages.append(
                node(unique(f"{program}/result"), "Result", [name_of[id(value)]], [value.type], f"{k}")
            )
    return messages


def _is_fixed(shape: Sequence[Any]) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return all(isinstance(n, int) for n in shape)
    return False
