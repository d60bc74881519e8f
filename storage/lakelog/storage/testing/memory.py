"""A LogStore in a dictionary: the contract without a disk, for tests of what stands on it."""

from __future__ import annotations

import errno
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile

from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome


class MemoryLogStore(LogStore):
    """Every file is a pair of bytes and time; folders are prefixes and exist while a file is in them.

    Args:
        clock: gives each write its modification time in milliseconds; by default writes are one second apart from 1 s on.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        # The same in order, so that a listing looks only at what it gives.
        self._names: list[str] = []
        self._lock = threading.Lock()
        self._writes = 0
        self._clock = clock

    def read(self, path: str) -> bytes:
        with self._lock:
            if path not in self._files:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return self._files[path][0]

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with self._lock:
            if path in self._files:
                return AlreadyExists()
            self._store(path, data)
            return Created()

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._store(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        folder = path.rpartition("/")[0] + "/"
        with self._lock:
            names = self._names
            first = bisect_left(names, folder)
            if first == len(names) or not names[first].startswith(folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
            start = bisect_left(names, path, first)
            below = takewhile(lambda known: known.startswith(folder), islice(names, start, None))
            return iter([self._info(known) for known in below if "/" not in known[len(folder) :]])

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                if self._files.pop(path, None) is not None:
                    del self._names[bisect_left(self._names, path)]

    def set_modification_time(self, path: str, time_ms: int) -> None:
        """Age a file, or make it younger, as copying a table does."""
        with self._lock:
            self._files[path] = (self._files[path][0], time_ms)

    def _store(self, path: str, data: bytes) -> None:
        self._writes += 1
        if path not in self._files:
            insort(self._names, path)
        self._files[path] = (bytes(data), self._clock() if self._clock else self._writes * 1000)

    def _info(self, path: str) -> FileInfo:
        data, time_ms = self._files[path]
        return FileInfo(path=path, size=len(data), modification_time_ms=time_ms)
