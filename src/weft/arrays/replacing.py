"""Files that are written whole, or not at all: another file beside them takes their place once it is complete."""

from __future__ import annotations

import errno
import mmap as memory_map
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["replace_file"]

Bytes = bytes | bytearray | memoryview | memory_map.mmap


def replace_file(path: str | os.PathLike[str], chunks: Iterable[Bytes]) -> None:
    """Write chunks to a new file and put it in the place of path in one step, on disk when this returns.

    Until that step, and after any error, an exception of chunks included, what was at path is untouched and nothing
    else is left. The new file has the permissions of the old one, else those of the umask; a symbolic link stays one
    and its target is replaced. Where the file system allows it, the new file has no name before it is whole, so that
    even a killed process leaves nothing; else ".weft-*.tmp" can stay in the folder.
    Raises OSError if writing fails, or if path is a folder, a device or write-protected.
    """
    folder_path, name = os.path.split(os.path.realpath(os.fsdecode(path)))
    folder = os.open(folder_path, os.O_RDONLY | os.O_DIRECTORY)
    temporary = f".weft-{os.getpid()}-{os.urandom(8).hex()}.tmp"
    try:
        old = _replaceable(name, folder, path)
        fd, is_named = _create(
            temporary, folder, 0o666 if old is None else 0o600
        )  # private till it is as the old
        try:
            if old is not None:
                _take_permissions(fd, old)
            for chunk in chunks:
                _write_all(fd, chunk)
            os.fsync(fd)
            if not is_named:
                os.link(f"/proc/self/fd/{fd}", temporary, dst_dir_fd=folder, follow_symlinks=True)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(fd)
        _sync_folder(folder)
    except OSError as error:
        if error.filename in (None, temporary):  # no space, say: name the file that the caller named
            error.filename = os.fsdecode(path)
        raise
    finally:
        os.close(folder)


def _replaceable(name: str, folder: int, path: object) -> os.stat_result | None:
    """The state of the file that will be replaced, None if there is none; OSError if it must not be."""
    try:
        old = os.stat(name or ".", dir_fd=folder)
    except FileNotFoundError:
        return None
    path_text = str(path)
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "save: a folder is in the way", path_text)
    if not stat.S_ISREG(old.st_mode):  # renaming over /dev/null would succeed
        raise OSError(errno.EINVAL, "save: replaces only regular files", path_text)
    if not os.access(name, os.W_OK, dir_fd=folder, effective_ids=True):
        raise PermissionError(errno.EACCES, "save: the file is write-protected", path_text)
    return old


def _create(temporary: str, folder: int, mode: int) -> tuple[int, bool]:
    """A new file for writing in this folder, and whether it has its name already."""
    with suppress(OSError):  # not every file system can; what else is wrong, the second try says
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, mode, dir_fd=folder)
        if os.path.exists(f"/proc/self/fd/{fd}"):  # the way to its name
            return fd, False
        os.close(fd)
    return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode, dir_fd=folder), True


def _take_permissions(fd: int, old: os.stat_result) -> None:
    """Owner first: changing it clears bits of the mode. Only some processes may give files away."""
    with suppress(PermissionError):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _write_all(fd: int, data: Bytes) -> None:
    """A write may take only a part, at the latest after 2 GiB."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(folder: int) -> None:
    """Make the rename last; some file systems have no such call, and need none."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
