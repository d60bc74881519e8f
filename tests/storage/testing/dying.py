"""A LogStore over local files that dies between two calls of the operating system."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from lakelog.storage import local
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome
from lakelog.storage.testing.faults import SimulatedCrash

# What changes something on disk.
STEPS = ("open", "mkdir", "fsync", "link", "unlink", "replace", "rename", "rmdir")


class DyingLogStore(LogStore):
    """Passes calls on to a store that writes by the functions of ``os``, and dies when these have done a number of steps.

    Afterwards every one of them dies at once, as a dead process does nothing more: no ``finally`` tidies up.
    """

    def __init__(self, inner: LogStore, steps: int) -> None:
        self.inner = inner
        self.left = steps
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
        renameat2 = local._renameat2()
        with ExitStack() as stack:
            for name in STEPS:
                stack.enter_context(patch.object(os, name, self._step(getattr(os, name))))
            if renameat2 is not None:
                stack.enter_context(patch.object(local, "_renameat2", lambda: self._step(renameat2)))
            yield

    def _step(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if self.left == 0:
                self.died = True
                raise SimulatedCrash
            self.left -= 1
            return function(*arguments, **named)

        return call


def dying_stores(make: Callable[[], LogStore], kind: type[DyingLogStore] = DyingLogStore) -> Iterator[DyingLogStore]:
    """Stores that die after no step, after one, and so on, up to the first that comes through."""
    for steps in itertools.count():
        store = kind(make(), steps)
        yield store
        if not store.died:
            return
