"""Files of torch.save, read without PyTorch and without running what they hold: ZIP archives, and the older format.

An archive has a pickle, data.pkl, that names storages, and the storages' bytes, one member each. The older format is a
pickle of a number, of a version, of the machine, of the object, of the keys of storages, and then the bytes.
Tensors of one storage share its memory, as they did. Source: PyTorch, torch/serialization.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.interop.archive import Archive, Member
from weft.interop.numpy_files import NAMES as NUMPY_NAMES
from weft.interop.numpy_files import PickledArray
from weft.interop.pickled import Rebuilt, read_pickle, replaced
from weft.interop.source import ITEM_BYTES, Cursor, FileSource, short
from weft.ops import registry

__all__ = ["LEGACY_SIGNATURE", "read_archive", "read_legacy"]

_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_SIGNATURE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of that number

_STORAGES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_DTYPES = {name: name for name in ITEM_BYTES if not name.startswith("float8")} | {
    "float8_e4m3fn": "float8_e4m3",
    "float8_e5m2": "float8_e5m2",
}
_UNTYPED = "uint8 of any type"


class StorageType(NamedTuple):
    """A class of storages; dtype: its elements'."""

    dtype: str


class PickledStorage(NamedTuple):
    """What a pickle says of a storage: its key among the storages, dtype and number of elements."""

    key: str
    dtype: str
    size: int


class StoredTensor(Rebuilt):
    """A tensor of a pickle: a window of a storage. Offset and strides are in elements."""

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any, dtype: str | None = None) -> None:
        if not isinstance(storage, PickledStorage):
            raise ValueError("a tensor without a storage")
        lists = (shape, strides)
        if not all(
            isinstance(each, tuple) and all(type(n) is int and n >= 0 for n in each) for each in lists
        ):
            raise ValueError(f"a tensor of shape {short(shape)}, strides {short(strides)}")
        if type(offset) is not int or offset < 0 or len(shape) != len(strides) or len(shape) > 64:
            raise ValueError(
                f"a tensor of shape {short(shape)}, strides {short(strides)}, offset {short(offset)}"
            )
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides
        self.dtype = storage.dtype if dtype is None else dtype

    def check(self, size: int) -> None:
        """Raise ValueError unless the window is inside of a storage of so many elements."""
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if 0 not in self.shape and last >= size:
            raise ValueError(f"a tensor reaches element {last} of {size}")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> StoredTensor:
    return StoredTensor(storage, offset, shape, strides)


def _tensor_of_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> StoredTensor:
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise DTypeError(f"torch.load: a tensor of dtype {short(dtype)}; weft reads {', '.join(ITEM_BYTES)}")
    return StoredTensor(storage, offset, shape, strides, dtype)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _size(sizes: Any = ()) -> tuple[Any, ...]:
    return tuple(sizes)


def _device(*parts: Any) -> str:
    return ":".join(map(str, parts))


NAMES: dict[str, Any] = {
    **NUMPY_NAMES,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._tensor._rebuild_from_type_v2": lambda function, cls, arguments, state: function.call(*arguments),
    "torch.Size": _size,
    "torch.device": _device,
    "torch.Tensor": StorageType("tensor"),
    "torch.nn.parameter.Parameter": StorageType("parameter"),
    "torch.serialization._get_layout": _device,
    "torch.storage.UntypedStorage": StorageType(_UNTYPED),
    "torch.UntypedStorage": StorageType(_UNTYPED),
    **{f"torch.{name}Storage": StorageType(dtype) for name, dtype in _STORAGES.items()},
    **{f"torch.{name}": dtype for name, dtype in _DTYPES.items()},
}


class _Loader:
    """Storages of one file, each read once."""

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.storages: dict[str, PickledStorage] = {}
        self._flat: dict[tuple[str, str], Any] = {}

    def persistent(self, key: Any) -> PickledStorage:
        """The storage that a pickle refers to by ("storage", class, key, device, number of elements, ...)."""
        match key:
            case ("storage" | b"storage", StorageType() as kind, str() as name, _, int() as size, *rest):
                pass
            case _:
                raise ValueError(f"a storage described by {short(key)}")
        if rest and rest[0] is not None:
            raise ValueError("a view of a storage, which PyTorch before 0.4 wrote")
        if kind.dtype not in (*ITEM_BYTES, _UNTYPED) or size < 0:
            raise ValueError(f"a storage of {kind.dtype} with {short(size)} elements")
        storage = PickledStorage(name, kind.dtype, size)
        if self.storages.setdefault(name, storage) != storage:
            raise ValueError(f"storage {short(name)} is described twice, differently")
        return storage

    def begin_of(self, storage: PickledStorage, size_bytes: int) -> int:
        """Where the storage's bytes begin."""
        raise NotImplementedError

    def size_bytes_of(self, storage: PickledStorage) -> int:
        """The size of a storage."""
        return storage.size * ITEM_BYTES["uint8" if storage.dtype == _UNTYPED else storage.dtype]

    def tensor(self, stored: Rebuilt) -> Any:
        """The tensor of what the pickle says."""
        if isinstance(stored, PickledArray):
            array = stored.array(self.source)
            return self.source.tensor_of(array, array.dtype.name, "an array")
        if not isinstance(stored, StoredTensor):
            raise self.source.fail(f"holds {type(stored).__name__} itself")
        if stored.dtype == _UNTYPED:
            raise self.source.fail("a tensor of an untyped storage has no dtype")
        what = f"storage {short(stored.storage.key)}"
        item_bytes = ITEM_BYTES[stored.dtype]
        size = self.size_bytes_of(stored.storage) // item_bytes
        try:
            stored.check(size)
        except ValueError as error:
            raise self.source.fail(f"{what}: {error}") from None
        shape, strides, offset = stored.shape, stored.strides, stored.offset
        if 0 in shape:
            return self.source.tensor_over(bytearray(), 0, shape, stored.dtype, what)
        key = (stored.storage.key, stored.dtype)
        if key not in self._flat:
            begin = self.begin_of(stored.storage, size * item_bytes)
            self._flat[key] = self.source.tensor(begin, (size,), stored.dtype, what)
        flat = self._flat[key]
        if strides == _dense(shape):
            count = math.prod(shape)
            part = flat if count == size else flat[offset : offset + count]
            return part.reshape(shape)
        return registry.function("as_strided")(flat, shape=shape, strides=strides, offset=offset)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class _ArchiveLoader(_Loader):
    def __init__(self, archive: Archive, pickle: Member) -> None:
        super().__init__(archive.source)
        self.archive, self.folder = archive, pickle.name.removesuffix("data.pkl")

    def begin_of(self, storage: PickledStorage, size_bytes: int) -> int:
        name = f"{self.folder}data/{storage.key}"
        member = self.archive.members.get(name)
        if member is None:
            raise self.source.fail(f"there is no member {short(name)}")
        if not member.is_stored or member.size_bytes < size_bytes:
            raise self.source.fail(
                f"member {short(name)} has {member.size_bytes} bytes, {'stored' if member.is_stored else 'compressed'}"
                f"; the storage takes {size_bytes}"
            )
        return self.archive.begin_of(member)


def read_archive(archive: Archive, pickle: Member) -> Any:
    """The object of an archive of torch.save."""
    source = archive.source
    loader = _ArchiveLoader(archive, pickle)
    order = archive.members.get(f"{loader.folder}byteorder")
    if order is not None and archive.read(order, 16) != b"little":
        raise source.fail("its numbers are big endian; weft reads little endian")
    if any(name.startswith(f"{loader.folder}code/") for name in archive.members):
        raise source.fail("a TorchScript program, not a file of torch.save; save its state_dict()")
    value, _ = read_pickle(archive.read(pickle), source.where, NAMES, loader.persistent)
    return replaced(value, loader.tensor, source.where)


class _LegacyLoader(_Loader):
    def __init__(self, source: FileSource) -> None:
        super().__init__(source)
        self.begins: dict[str, int] = {}

    def begin_of(self, storage: PickledStorage, size_bytes: int) -> int:
        if storage.key not in self.begins:
            raise self.source.fail(f"storage {short(storage.key)} is not among those of the file")
        return self.begins[storage.key]

    def find_storages(self, keys: Any, at: int) -> None:
        """Where each storage of the list begins; a number of elements is before each."""
        cursor = Cursor(self.source, at)
        if not isinstance(keys, list):
            raise self.source.fail(f"storages are {short(keys)}, not a list of keys")
        for key in keys:
            storage = self.storages.get(key) if isinstance(key, str) else None
            if storage is None or key in self.begins:
                raise self.source.fail(
                    f"storage {short(key)} is not what the pickle refers to, or is there twice"
                )
            size = cursor.number("q", f"the size of storage {short(key)}")
            if size != storage.size:
                raise self.source.fail(
                    f"storage {short(key)} has {size} elements, the pickle says {storage.size}"
                )
            size_bytes = self.size_bytes_of(storage)
            self.source.require(cursor.at, size_bytes, f"storage {short(key)}")
            self.begins[key] = cursor.at
            cursor.at += size_bytes


def read_legacy(source: FileSource) -> Any:
    """The object of a file that torch.save wrote without an archive."""
    data = source.view()
    where = source.where
    magic, at = read_pickle(data, where, {})
    version, at = read_pickle(data, where, {}, at=at)
    machine, at = read_pickle(data, where, {}, at=at)
    if magic != _MAGIC or version != 1001:
        raise source.fail(f"a file of torch.save of version {short(version)}; weft reads 1001")
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise source.fail("its numbers are big endian; weft reads little endian")
    loader = _LegacyLoader(source)
    value, at = read_pickle(data, where, NAMES, loader.persistent, at=at)
    keys, at = read_pickle(data, where, {}, at=at)
    loader.find_storages(keys, at)
    return replaced(value, loader.tensor, where)
