"""wf.load: the tensors of a file in any of the formats that weights are stored in, told apart by content.

>>> import tempfile, numpy as np, weft as wf
>>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
...     np.savez(file, w=np.ones((2, 3), np.float32))
...     file.flush()
...     wf.load(file.name)["w"].shape
(2, 3)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from weft.arrays.serialization import load_safetensors
from weft.base.device import Device, as_device
from weft.base.typing import Any
from weft.interop import archive, gguf, megengine, mxnet_params, numpy_files, pytorch
from weft.interop.source import FileSource, open_source, short

__all__ = ["load"]

MAX_INDEX_BYTES = 50_000_000


def load(path: str | os.PathLike[str], device: Device | str | None = None, mmap: bool = True) -> Any:
    """The tensors of a file by name, on a device (None: the current one). The format is told by the content.

    safetensors: by name in the order of their data; what save made of lists or nested dictionaries is as it was.
    An index of shards (model.safetensors.index.json): the tensors of all shards. torch.save (.pt, .pth, .bin, both of
    its formats): the object, made of plain containers and tensors, which share memory as they did. NumPy (.npy, .npz),
    MXNet (.params, .nd), GGUF (quantized blocks as float32), and pickles of NumPy's arrays and MegEngine's tensors.
    Nothing of a file is run: of pickles, only plain containers, numbers, texts and arrays are read, by a machine of
    weft's own. Floats of 8 bits are read as float16, which has all their values.
    With mmap the file is mapped copy-on-write: memory is read when it is first used (only bools at once, to check
    them), and writing to a tensor changes this process's pages, never the file. save may replace the file meanwhile; a
    program that overwrites or truncates it in place changes or breaks (SIGBUS) the tensors. The mapping and one file
    descriptor live as long as the last tensor. Without mmap everything is read now, into memory of each tensor's own;
    so are, in either case, tensors that are not aligned in the file.
    Raises FileFormatError (a ValueError) if the file is corrupt, truncated, a folder or of another format, or if a
    pickle refers to anything else; DTypeError for elements that weft does not have; DeviceError for a device that does
    not exist; OSError if it cannot be opened. Source: the descriptions of the formats, which docs/interop.md lists.

    >>> import tempfile, weft as wf
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     wf.save(file.name, {"x": wf.tensor([1.0, 2.0])})
    ...     x = wf.load(file.name)["x"]
    >>> x.shape, x.dtype.name
    ((2,), 'float32')
    """
    target = as_device(device)
    where = f"load: {os.fsdecode(path)!r}"
    with open_source(path, where, target, mmap) as source:
        beginning = source.read(0, min(32, source.size_bytes), "the beginning")
        for signature, read in _READERS.items():
            if beginning.startswith(signature):
                return read(source)
        if megengine.GRAPH_2 in (beginning[4:8], beginning[8:12]):
            megengine.refuse_graph(source)
        if _is_index(beginning):
            return _read_index(source, os.path.dirname(os.path.realpath(os.fsdecode(path))), mmap)
    return load_safetensors(path, target, mmap)


def _read_archive(source: FileSource) -> Any:
    """An archive of torch.save, or of numpy.savez."""
    members = archive.Archive(source)
    pickles = [m for name, m in members.members.items() if name == "data.pkl" or name.endswith("/data.pkl")]
    if pickles and pickles[0].name.count("/") <= 1:
        return pytorch.read_archive(members, pickles[0])
    if all(name.endswith(".npy") for name in members.members):
        return numpy_files.read_npz(members)
    first = next(iter(members.members), "nothing")
    raise source.fail(f"an archive of {short(first)} ..., neither of torch.save nor of numpy.savez")


_READERS: dict[bytes, Callable[[FileSource], Any]] = {
    archive.SIGNATURE: _read_archive,
    b"PK\x05\x06": _read_archive,  # empty
    pytorch.LEGACY_SIGNATURE: pytorch.read_legacy,
    numpy_files.SIGNATURE: numpy_files.read_npy,
    gguf.SIGNATURE: gguf.read,
    mxnet_params.SIGNATURE: mxnet_params.read,
    megengine.GRAPH: megengine.refuse_graph,
    b"\x80\x02": megengine.read_pickled,
    b"\x80\x03": megengine.read_pickled,
    b"\x80\x04": megengine.read_pickled,
    b"\x80\x05": megengine.read_pickled,
}


def _is_index(beginning: bytes) -> bool:
    """Whether the file begins as JSON text; a safetensors file has a length in its first 8 bytes."""
    return beginning.lstrip(b" \t\r\n")[:1] == b"{" and beginning[8:9] != b"{"


def _read_index(source: FileSource, folder: str, mmap: bool) -> dict[str, Any]:
    """The tensors that an index names, from the files beside it."""
    if source.size_bytes > MAX_INDEX_BYTES:
        raise source.fail(f"an index of {source.size_bytes} bytes is more than {MAX_INDEX_BYTES}")
    try:
        index = json.loads(source.read(0, source.size_bytes, "the index"))
    except (ValueError, RecursionError) as error:
        raise source.fail(f"not an index of shards: {error}") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise source.fail("JSON without weight_map, which is not an index of shards")
    shards: dict[str, dict[str, Any]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or os.path.basename(shard) != shard or shard in ("", ".", ".."):
            raise source.fail(
                f"tensor {short(name)} is in {short(shard)}, which is not a file beside the index"
            )
        if shard not in shards:
            path = os.path.join(folder, shard)
            if shard.endswith(".json"):
                raise source.fail(f"tensor {short(name)} is in {short(shard)}, another index")
            tensors = load(path, source.device, mmap)
            if not isinstance(tensors, dict):
                raise source.fail(f"shard {short(shard)} has no names")
            shards[shard] = tensors
        if name not in shards[shard]:
            raise source.fail(f"tensor {short(name)} is not in {short(shard)}")
    return {name: shards[shard][name] for name, shard in weight_map.items()}
