"""A LogStore that counts what is asked of another one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome

Verb = Literal["GET", "PUT", "LIST", "DELETE"]


class CountingLogStore(LogStore):
    """Passes every call on and counts it by verb and path, whether it succeeds or not.

    ``put_if_absent`` and ``put`` are both PUT; LIST counts under the path that was asked for; DELETE counts every path.
    """

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner
        self._counts: Counter[tuple[Verb, str]] = Counter()
        self._lock = threading.Lock()

    def count(self, verb: Verb, path: str | None = None) -> int:
        """How often, for one path or for all of them."""
        with self._lock:
            return sum(times for (counted, of), times in self._counts.items() if counted == verb and path in (None, of))

    def paths(self, verb: Verb) -> list[str]:
        """The paths that were asked for, sorted, each as often as it was asked for."""
        with self._lock:
            return sorted(path for counted, path in self._counts.elements() if counted == verb)

    def reset(self) -> None:
        """Forget what was counted."""
        with self._lock:
            self._counts.clear()

    def read(self, path: str) -> bytes:
        self._add("GET", path)
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._add("PUT", path)
        return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._add("PUT", path)
        self.inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        self._add("LIST", path)
        return self.inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            self._add("DELETE", path)
        self.inner.delete(paths)

    def _add(self, verb: Verb, path: str) -> None:
        with self._lock:
            self._counts[verb, path] += 1
