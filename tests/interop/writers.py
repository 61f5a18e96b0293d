"""Writes small files of other frameworks without them: pickles with calls by name, archives, GGUF."""

import io
import pickle
import struct
import zipfile

import numpy as np


class Name:
    """A global, which the pickle refers to."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """function(*arguments), and then its state."""

    def __init__(self, function, *arguments, state=None):
        self.function, self.arguments, self.state = function, arguments, state


class Storage:
    """The elements of a tensor of PyTorch, beside the pickle."""

    def __init__(self, key, kind, array):
        self.key, self.kind, self.array = key, kind, array

    def persistent_id(self, is_legacy):
        rest = (None,) if is_legacy else ()
        return ("storage", Name("torch", f"{self.kind}Storage"), self.key, "cpu", self.array.size, *rest)


class Pickler(pickle._Pickler):
    is_legacy = False

    def persistent_id(self, obj):
        return obj.persistent_id(self.is_legacy) if isinstance(obj, Storage) else None

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Name):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Call):
            self.save(obj.function)
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
            if obj.state is not None:
                self.save(obj.state)
                self.write(pickle.BUILD)
        else:
            super().save(obj, save_persistent_id)


def pickled(obj, protocol=2, is_legacy=False):
    file = io.BytesIO()
    pickler = Pickler(file, protocol)
    pickler.is_legacy = is_legacy
    pickler.dump(obj)
    return file.getvalue()


_KINDS = {
    "float32": "Float",
    "float64": "Double",
    "int64": "Long",
    "bool": "Bool",
    "float16": "Half",
    "uint8": "Byte",
}


def storage(key, array):
    return Storage(key, _KINDS[array.dtype.name], array.ravel())


def tensor(storage, shape, strides=None, offset=0):
    """A tensor over a storage, as torch.save writes it."""
    if strides is None:
        strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
    return Call(
        Name("torch._utils", "_rebuild_tensor_v2"),
        storage,
        offset,
        shape,
        strides,
        False,
        Call(Name("collections", "OrderedDict")),
    )


def storages_of(obj):
    match obj:
        case Storage():
            yield obj
        case dict():
            for part in obj.values():
                yield from storages_of(part)
        case list() | tuple():
            for part in obj:
                yield from storages_of(part)
        case Call():
            yield from storages_of(obj.arguments)


def torch_archive(obj, folder="archive", compression=zipfile.ZIP_STORED, more=()):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(f"{folder}/data.pkl", pickled(obj))
        archive.writestr(f"{folder}/byteorder", "little")
        for each in {s.key: s for s in storages_of(obj)}.values():
            archive.writestr(f"{folder}/data/{each.key}", each.array.tobytes())
        for name, content in more:
            archive.writestr(name, content)
    return file.getvalue()


def torch_legacy(obj):
    storages = {s.key: s for s in storages_of(obj)}
    machine = {
        "protocol_version": 1001,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    parts = [
        pickled(part, is_legacy=True) for part in (0x1950A86A20F9469CFC6C, 1001, machine, obj, list(storages))
    ]
    parts += [struct.pack("<q", s.array.size) + s.array.tobytes() for s in storages.values()]
    return b"".join(parts)


def gguf(tensors, metadata=(), alignment=32):
    """A GGUF file: tensors by name (shape, type, bytes); metadata: pairs (key, type, packed value)."""

    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, kind, packed in metadata:
        head += text(key) + struct.pack("<I", kind) + packed
    at, data = 0, b""
    for name, (shape, kind, content) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, at)
        content += bytes(-len(content) % alignment)
        data, at = data + content, at + len(content)
    return head + bytes(-len(head) % alignment) + data


_MXNET = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}


def mxnet_params(arrays, version=2):
    """A .params file of dense arrays, in a version of the arrays' format."""
    magic = {1: 0xF993FAC8, 2: 0xF993FAC9, 3: 0xF993FACA}
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for x in arrays.values():
        if version:
            parts.append(struct.pack("<I", magic[version]) + (struct.pack("<i", 0) if version > 1 else b""))
            parts.append(struct.pack(f"<i{x.ndim}q", x.ndim, *x.shape))
        else:
            parts.append(struct.pack(f"<{1 + x.ndim}I", x.ndim, *x.shape))
        parts.append(struct.pack("<iii", 1, 0, _MXNET[x.dtype.name]) + x.tobytes())
    return b"".join(parts) + names_of(arrays)


def names_of(arrays):
    names = [name.encode() for name in arrays]
    return struct.pack("<Q", len(names)) + b"".join(struct.pack("<Q", len(n)) + n for n in names)


def mxnet_sparse(kind, stored, shape, *indices):
    """One sparse array, in a file without names; kind: 1 rows, 2 compressed rows."""
    parts = [struct.pack("<QQQ", 0x112, 0, 1), struct.pack("<Ii", 0xF993FAC9, kind)]
    parts += [struct.pack(f"<i{len(s)}q", len(s), *s) for s in (stored.shape, shape)]
    parts.append(struct.pack("<iii", 1, 0, 0))
    parts += [struct.pack("<ii1q", 6, 1, len(each)) for each in indices]
    return b"".join([*parts, stored.tobytes(), *(each.tobytes() for each in indices), struct.pack("<Q", 0)])
