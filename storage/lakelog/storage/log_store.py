"""The LogStore contract: five verbs over the bytes of a table's log, and three guarantees that every implementation gives.

1. *Atomic visibility.* A file is seen wholly or not at all: no reader and no listing ever meets a part of what
   ``put_if_absent`` or ``put`` writes, nor what a crashed writer left behind.
2. *One creator wins.* Of any number of ``put_if_absent`` on one path, in any threads, processes and machines, at most one
   creates the file, and nobody else's bytes replace it afterwards.
3. *A finished write is listed.* Once a write has answered, every later ``read`` finds the file and every later
   ``list_from`` that covers its name shows it; a name that a listing has shown was a whole file.

Paths are absolute and not percent-encoded: ``/tmp/x y/_delta_log/00000000000000000000.json``, or
``s3a://bucket/some key/_delta_log/...``. A ``%`` or a ``+`` in a path is that character and nothing else. A file's path is its
folder's, ``/``, and its name.

Stores are safe to share between threads. Foreign errors are translated inside the store: what is documented as ``Raises:`` is
what comes out, besides ``OSError`` for the troubles of the medium (a full disk, a missing permission), after which nothing is visible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

__all__ = ["AlreadyExists", "Created", "FileInfo", "LogStore", "PutOutcome", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One file of a listing.

    Args:
        path: the whole path, in the form in which the listing was asked for, so that it can be given back to the store.
        size: bytes.
        modification_time_ms: milliseconds since 1970-01-01 UTC, by the store's clock.
        content_md5: what may be the MD5 of the bytes, in hexadecimal digits, where the listing tells such a sum; who finds the sum of
            the bytes that are expected need not read them.
    """

    path: str
    size: int
    modification_time_ms: int
    content_md5: str | None = None

    @property
    def name(self) -> str:
        """The path's last part."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Created:
    """The file is there with our bytes, and this call made it."""


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    """The file was there before; nothing was written. Who made it is not said: it may be an earlier attempt of the caller's own."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell whether the file was made (a time-out, a connection reset, a server error after the request was sent).

    This is no conflict. The caller reads the path back and compares, and repeats the same bytes if the file is not there;
    until that is settled, nothing that the bytes refer to may be deleted.

    Args:
        cause: what went wrong, for the message in case it is never settled.
        retry_after_s: how long the store wants to be left alone, where it says so.
    """

    cause: Exception
    retry_after_s: float | None = None


PutOutcome: TypeAlias = Created | AlreadyExists | Unknown
"""The answer of ``put_if_absent``: a closed set, to be matched wholly."""


class LogStore(ABC):
    """Where a table's log lives. The module's docstring holds the guarantees and the form of paths.

    Attributes:
        near: the medium is this machine's. A call that has ended does nothing later, and a ``read`` takes no more than a moment and is not
            cut off, so that a caller who wants the next few files reads on until one is missing. Of other stores it lists them first,
            which tells how many there are and how long each is.
    """

    near: ClassVar[bool] = False

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole content of one file.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the file with these bytes unless one is there; folders above it come into being as needed.

        There is no default on purpose: a test for existence followed by a write is not an implementation.

        Raises:
            StorageError: the store has no way to make one creator win; nothing was written.
            OSError: the medium refused, and the file certainly does not exist because of this call. A doubt is ``Unknown``.
        """

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Create or replace the file atomically: a reader sees the old bytes or the new ones. The last writer wins.

        For files whose loss or replacement is harmless: ``_last_checkpoint``, checkpoints, checksums. Never for a commit.

        Raises:
            OSError: the medium refused; the file holds its old bytes, or the new ones if the doubt is about durability alone.
        """

    @abstractmethod
    def list_from(self, path: str) -> Iterator[FileInfo]:
        """The files of the path's folder whose names are equal to or above the path's name, in ascending order of name.

        The bound is inclusive and need not exist. Names compare by code point, which is the order of their UTF-8 bytes.
        Flat: neither folders nor what is in them. A path that ends in ``/`` lists the whole folder.

        A listing is no snapshot. A file that vanishes while it runs may be left out, and of two files written while it runs
        it may show the later without the earlier: who finds a gap lists again before calling it one.

        Raises:
            FileNotFoundError: there is no such folder, said by this call and not at the first element. A store without folders
                may say so of a folder that holds no file at all.
        """

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error. Not atomic over several: after an error any of them may be gone.

        Raises:
            OSError: the medium refused.
        """
