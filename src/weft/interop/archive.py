"""ZIP archives of untrusted origin, as torch.save and numpy.savez write them: members by name, sizes checked first.

Stored members are read in place, through the mapping of the file. Compressed ones (deflate) are read into memory of the
size that the archive says, which is checked against what that many compressed bytes can hold.
Source: PKWARE, APPNOTE.TXT, .ZIP File Format Specification.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from typing import NamedTuple

from weft.interop.source import FileSource, short

__all__ = ["SIGNATURE", "Archive", "Member"]

SIGNATURE = b"PK\x03\x04"
MAX_EXPANSION = 1040  # deflate: 258 bytes in 2 bits, at most
MAX_MEMBERS = 1_000_000
_LOCAL_HEADER_BYTES = 30


class Member(NamedTuple):
    """A file in an archive. header: where its local header begins; stored_bytes: its size in the archive."""

    name: str
    header: int
    stored_bytes: int
    size_bytes: int
    is_stored: bool


class Archive:
    """The members of an archive by name, in its order. Raises FileFormatError for what is not one."""

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.members: dict[str, Member] = {}
        with open(os.dup(source.fd), "rb") as file:
            try:
                entries = zipfile.ZipFile(file).infolist()
            except Exception as error:  # BadZipFile, NotImplementedError, ValueError, struct.error and others
                first = source.read(0, min(8, source.size_bytes), "the beginning")
                raise source.fail(
                    f"begins with {first!r}, as archives of torch.save and numpy.savez do, but is not a ZIP archive: "
                    f"{type(error).__name__}: {error}"
                ) from None
        if len(entries) > MAX_MEMBERS:
            raise source.fail(f"{len(entries)} members are more than {MAX_MEMBERS}")
        for entry in entries:
            if entry.filename.endswith("/"):  # is_dir fails for a name without characters
                continue
            if entry.flag_bits & 1:
                raise source.fail(f"member {short(entry.filename)} is encrypted")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise source.fail(
                    f"member {short(entry.filename)} is compressed by method {entry.compress_type}"
                )
            if entry.filename in self.members:
                raise source.fail(f"member {short(entry.filename)} is there twice")
            member = Member(
                entry.filename,
                entry.header_offset,
                entry.compress_size,
                entry.file_size,
                entry.compress_type == zipfile.ZIP_STORED,
            )
            self._check(member)
            self.members[member.name] = member

    def _check(self, member: Member) -> None:
        about = f"member {short(member.name)}"
        self.source.require(member.header, _LOCAL_HEADER_BYTES + member.stored_bytes, about)
        if member.is_stored and member.stored_bytes != member.size_bytes:
            raise self.source.fail(
                f"{about}: {member.stored_bytes} bytes for {member.size_bytes}, not compressed"
            )
        if member.size_bytes > MAX_EXPANSION * member.stored_bytes + 64:
            raise self.source.fail(f"{about}: {member.size_bytes} bytes cannot be in {member.stored_bytes}")

    def begin_of(self, member: Member) -> int:
        """Where the bytes of a member begin in the file."""
        about = f"member {short(member.name)}"
        header = self.source.read(member.header, _LOCAL_HEADER_BYTES, about)
        if header[:4] != SIGNATURE:
            raise self.source.fail(f"{about} does not begin at byte {member.header}")
        name_bytes, extra_bytes = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        begin = member.header + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
        self.source.require(begin, member.stored_bytes, about)
        return begin

    def read(self, member: Member, most: int | None = None) -> bytes:
        """The bytes of a member, or the first ones of it. Raises FileFormatError if they are not what was said."""
        about = f"member {short(member.name)}"
        begin = self.begin_of(member)
        size_bytes = member.size_bytes if most is None else min(most, member.size_bytes)
        if member.is_stored:
            return self.source.read(begin, size_bytes, about)
        inflater = zlib.decompressobj(-15)
        result = io.BytesIO()
        for at in range(begin, begin + member.stored_bytes, 1 << 20):
            data = self.source.read(at, min(1 << 20, begin + member.stored_bytes - at), about)
            try:
                result.write(inflater.decompress(data, size_bytes - result.tell() + 1))
            except zlib.error as error:
                raise self.source.fail(f"{about}: {error}") from None
            if result.tell() >= size_bytes:
                break
        if result.tell() < size_bytes or (most is None and result.tell() != size_bytes):
            raise self.source.fail(f"{about}: its data does not have {size_bytes} bytes")
        return result.getvalue()[:size_bytes]
