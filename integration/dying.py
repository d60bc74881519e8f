"""A LogStore over a service of AWS' kind that dies between two requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from botocore.client import BaseClient

from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome
from lakelog.storage.testing import SimulatedCrash

__all__ = ["dying_stores"]


class _DyingLogStore(LogStore):
    """Passes calls on to a store that asks by botocore's clients, and dies when its writes have asked so often.

    Afterwards every request dies before it is sent, as a dead process sends nothing more.
    """

    def __init__(self, inner: LogStore, requests: int) -> None:
        self.inner = inner
        self.left = requests
        self.died = False

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with self._mortal():
            return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        with self._mortal():
            self.inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        return self.inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        with self._mortal():
            self.inner.delete(paths)

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        ask = BaseClient._make_api_call

        def ask_or_die(client: BaseClient, operation: str, arguments: Any) -> Any:
            if self.left == 0:
                self.died = True
                raise SimulatedCrash
            self.left -= 1
            return ask(client, operation, arguments)

        with patch.object(BaseClient, "_make_api_call", ask_or_die):
            yield


def dying_stores(make: Callable[[], LogStore]) -> Iterator[LogStore]:
    """Stores that die after no request, after one, and so on, up to the first that comes through."""
    for requests in itertools.count():
        store = _DyingLogStore(make(), requests)
        yield store
        if not store.died:
            return
