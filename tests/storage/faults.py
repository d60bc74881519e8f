"""A LogStore whose answers a test decides: chosen by a dotted path in the settings, as a user's own store is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome

Put = Callable[[LogStore, str, bytes], PutOutcome]


class FaultyLogStore(LogStore):
    """A local store whose ``put_if_absent`` is the class's `put_of_test` while that is set."""

    put_of_test: Put | None = None

    def __init__(self, options: Mapping[str, object]) -> None:
        self._inner = LocalLogStore(options)

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        decide = type(self).put_of_test
        return self._inner.put_if_absent(path, data) if decide is None else decide(self._inner, path, data)

    def put(self, path: str, data: bytes) -> None:
        self._inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        return self._inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        self._inner.delete(paths)
