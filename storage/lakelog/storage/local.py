"""The LogStore for folders that this machine mounts: ``file:`` and plain paths.

Assumptions: a POSIX filesystem where ``link`` fails if the new name exists, ``rename`` replaces atomically, and ``fsync`` of a
file and of its folder makes both survive a crash. Whether other machines may write too depends on the filesystem: what excludes
is the filesystem's own ``link``, never a lock of this process.

How one creator wins. ``T`` is a temporary file in the same folder under a name that nobody else has, ``N`` the final name.

    1. write T, fsync T        nobody lists T: its name starts with a dot and ends in ``.tmp``
    2. remove ``.N.crc``       a Hadoop checksum left by a file that is gone would make Hadoop's reader refuse the new N
    3. link T to N             the commit point; fails if N exists, so of many writers one passes
    4. fsync the folder
    5. remove T

A crash before 3 leaves N absent and T hidden; after 3, N whole and T hidden. A full disk shows in 1, before anything is visible. A
link over a network may be done and its answer lost: T then has two names, which is looked up before anyone is told that N was there.

Where links are refused, step 3 is ``renameat2(RENAME_NOREPLACE)``; where that is missing too, the write is refused by name. Creating N
and then writing it would show readers a part of it, and a test for existence followed by a rename would lose races.

Files that killed writers leave behind (``.<name>.<hex>.tmp``) are never listed and never removed here: another process may be at step 1.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome, Unknown

__all__ = ["LocalLogStore", "local_path", "remove_with_checksum"]


class LocalLogStore(LogStore):
    """Commits by ``link`` in the table's own folder; safe across threads and processes. See the module for the proof.

    Args:
        options: the store takes none; the argument is what the registry gives every store.

    Raises:
        StoreConfigurationError: an option was given.
    """

    near = True

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        if options:
            raise StoreConfigurationError(f"The local LogStore takes no options; remove {', '.join(sorted(options))}.")

    def read(self, path: str) -> bytes:
        try:
            with open(local_path(path), "rb") as file:
                return file.read()
        except (NotADirectoryError, IsADirectoryError) as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        target = local_path(path)
        if os.path.lexists(target):
            return AlreadyExists()
        with _temporary_file(target, data) as temporary:
            _remove_checksum(target)
            try:
                created = _link(temporary, target)
            except _Doubt as doubt:
                return Unknown(doubt.cause)
            if not created:
                return AlreadyExists()
        try:
            _sync_folder(os.path.dirname(target))
        except OSError as error:
            return Unknown(error)
        return Created()

    def put(self, path: str, data: bytes) -> None:
        target = local_path(path)
        with _temporary_file(target, data) as temporary:
            # Before, not after: the old file is as good without its checksum, the new one is unreadable to Hadoop beside it.
            _remove_checksum(target)
            os.replace(temporary, target)
        _sync_folder(os.path.dirname(target))

    def list_from(self, path: str) -> Iterator[FileInfo]:
        folder_as_asked, _, first = path.rpartition("/")
        folder = local_path(folder_as_asked + "/")
        try:
            names = _stable_names(folder, first)
        except NotADirectoryError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        return _file_infos(folder, folder_as_asked, names)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            remove_with_checksum(local_path(path))


def local_path(path: str) -> str:
    """The operating system's path of a log store path: ``/a b``, ``file:/a b`` and ``file:///a b`` are all ``/a b``. Nothing is decoded.

    Raises:
        StorageError: the path is relative or names a host.
    """
    bare = path
    if bare[:5].lower() == "file:":
        bare = bare[5:]
        if bare.startswith("//"):
            bare = bare[2:]
    if not bare.startswith("/"):
        raise StorageError(f"{path!r} is not an absolute local path; write it as /folder/... or file:///folder/...")
    return bare


def remove_with_checksum(local: str) -> None:
    """Delete a file of the operating system, and ``.<name>.crc`` where Hadoop's local filesystem keeps its checksum, if they are there.

    Raises:
        OSError: the medium refused.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(local)
    _remove_checksum(local)


_LINKS_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV})
_RENAME_REFUSED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_FOLDER_SYNC_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


class _Doubt(Exception):
    """Nobody can tell whether the final name was made."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def _temporary_file(target: str, data: bytes) -> Iterator[str]:
    """A file beside the target that holds the bytes durably; its temporary name is gone afterwards, whatever happens."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        with _create(temporary) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        # What the caller must learn is what went wrong above, or that the file is there.
        with suppress(OSError):
            os.unlink(temporary)


@contextmanager
def _create(path: str) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))
        descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_folder(folder: str) -> None:
    """The folder and those above it, each durably named by the one that holds it."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(above)


def _link(temporary: str, target: str) -> bool:
    """Give the temporary file its final name; False if the name was taken.

    Raises:
        _Doubt: it may or may not have happened.
        StorageError: the filesystem offers no way that excludes others.
    """
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno in _LINKS_REFUSED:
            return _rename_without_replacing(temporary, target, refusal=error)
        try:
            linked = os.stat(temporary).st_nlink > 1
        except OSError:
            raise _Doubt(error) from error
        if linked:
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _rename_without_replacing(temporary: str, target: str, *, refusal: OSError) -> bool:
    rename = _renameat2()
    code = errno.ENOSYS if rename is None else rename(temporary, target)
    if code == 0:
        return True
    if code == errno.EEXIST:
        return False
    if code in _RENAME_REFUSED:
        raise StorageError(
            f"Cannot create {target}: its filesystem refuses hard links ({refusal.strerror}) and has no rename "
            f"that spares an existing file ({os.strerror(code)}), so two writers could overwrite each other's commits. Move the table to a "
            "filesystem with hard links (ext4, xfs, btrfs, zfs, apfs), or name a LogStore of your own in spark.lakelog.file.logstore.class."
        ) from refusal
    error = OSError(code, os.strerror(code), target)
    try:
        os.lstat(temporary)
    except FileNotFoundError:
        return True
    except OSError:
        raise _Doubt(error) from error
    raise error


@cache
def _renameat2() -> Callable[[str, str], int] | None:
    """Linux' rename that never replaces, answering an errno or 0; None where the C library lacks it."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int

    def rename(source: str, target: str) -> int:
        answer = function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
        return 0 if answer == 0 else ctypes.get_errno()

    return rename


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _FOLDER_SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def _remove_checksum(target: str) -> None:
    folder, name = os.path.split(target)
    try:
        os.unlink(os.path.join(folder, f".{name}.crc"))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        # A name too long to have a checksum beside it has none.
        if error.errno != errno.ENAMETOOLONG:
            raise


def _stable_names(folder: str, first: str) -> list[str]:
    """The sorted names from ``first`` on, of which no version is missing that came before one that is there.

    A large folder is read in pieces. A commit that lands in a piece already read is missed while its successor is seen in a later
    one. The second reading starts after both and shows the first. What came after all that the first reading has is left for the next
    listing: the second may have seen that without its predecessors, and a third would have the same doubt where writers never rest.
    """
    names = set(_names(folder, first))
    newest = max((name for name in names if name[0].isdigit()), default="")
    return [name for name in _names(folder, first) if name in names or name < newest]


def _names(folder: str, first: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name >= first and not (name.startswith(".") and name.endswith(".tmp")))


def _file_infos(folder: str, folder_as_asked: str, names: list[str]) -> Iterator[FileInfo]:
    for name in names:
        try:
            status = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield FileInfo(path=f"{folder_as_asked}/{name}", size=status.st_size, modification_time_ms=status.st_mtime_ns // 1_000_000)
