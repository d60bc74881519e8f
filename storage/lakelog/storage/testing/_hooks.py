"""What an implementer gives to the conformance tests, and what the tests themselves are made of."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar, TypeVar
from unittest import SkipTest

from lakelog.storage.log_store import AlreadyExists, Created, LogStore, Unknown

__all__ = [
    "ATOMIC",
    "CONTRACT",
    "LISTED",
    "ONE_WINNER",
    "ConformanceHooks",
    "assert_read",
    "body",
    "create",
    "eager_switching",
    "in_threads",
    "names_from",
    "read_or_none",
    "version",
]

_T = TypeVar("_T")

# How messages begin: the contract's numbers, so that the docstring of lakelog.storage.log_store can be looked up.
ATOMIC = "Guarantee 1 of LogStore (atomic visibility) is broken: "
ONE_WINNER = "Guarantee 2 of LogStore (one creator wins) is broken: "
LISTED = "Guarantee 3 of LogStore (a finished write is listed) is broken: "
CONTRACT = "The contract of LogStore is broken: "

_ATTEMPTS = 20


class ConformanceHooks:
    """What a subclass says about its store. `make_store` and `make_folder` it must; a slow store may lower the numbers.

    Attributes:
        writers: threads that race for one file.
        rounds: files that they race for.
        processes: processes that race, and that are killed.
        files_per_process: files that the processes race for.
        large_bytes: the largest body.
        watched_bytes: the bodies that are written while readers watch.
        long_listing: files in the longest listing; above the page of a listing request.
        seed: decides when processes are killed.
        patience_seconds: after so long without an answer a thread or a process counts as hanging.
    """

    writers: ClassVar[int] = 16
    rounds: ClassVar[int] = 25
    processes: ClassVar[int] = 4
    files_per_process: ClassVar[int] = 50
    large_bytes: ClassVar[int] = 8 << 20
    watched_bytes: ClassVar[int] = 1 << 20
    long_listing: ClassVar[int] = 1_100
    seed: ClassVar[int] = 0
    patience_seconds: ClassVar[float] = 120.0

    def make_store(self) -> LogStore:
        """A store over the place under test. Stores of two calls see each other's files; it may be the same object."""
        raise NotImplementedError(f"{type(self).__name__} must override make_store().")

    def make_folder(self) -> str:
        """The absolute path, without ``/`` at its end, of a folder that holds no file yet and need not exist: another for every test."""
        raise NotImplementedError(f"{type(self).__name__} must override make_folder().")

    def store_factory(self) -> Callable[[], LogStore] | None:
        """What makes a store in a child process: a class, a module's function or a ``functools.partial`` of one, for it is pickled.

        None where the store lives in one process; the tests over processes are skipped then.
        """
        return None

    def crashing_stores(self) -> Iterator[LogStore]:
        """Stores over the place under test of which the k-th, from 0, dies after k steps of its first write or delete.

        A step is whatever the medium does at once: a file created, a name linked, a request sent. Who dies does nothing more, not even
        in a ``finally``, and its call raises ``lakelog.storage.testing.SimulatedCrash``. The last store may come through. Asked for anew
        by each test; where there are none, the tests of crashes are skipped.
        """
        return iter(())

    def _factory(self) -> Callable[[], LogStore]:
        factory = self.store_factory()
        if factory is None:
            raise SkipTest("store_factory() is None: this store lives in one process.")
        return factory

    def _in_threads(self, count: int, work: Callable[[int, threading.Barrier], _T]) -> list[_T]:
        return in_threads(count, work, self.patience_seconds)


def version(number: int) -> str:
    """The name of a commit file."""
    return f"{number:020d}.json"


def body(label: str, size: int) -> bytes:
    """So many bytes that repeat a label: a part of them, or two of them mixed, is no body."""
    line = f"{label}\n".encode()
    return (line * (size // len(line) + 1))[:size]


def names_from(store: LogStore, path: str) -> list[str]:
    """The names of a listing, none where there is no folder."""
    try:
        return [info.name for info in store.list_from(path)]
    except FileNotFoundError:
        return []


def read_or_none(store: LogStore, path: str) -> bytes | None:
    """The bytes, or None where there is no file."""
    try:
        return store.read(path)
    except FileNotFoundError:
        return None


def assert_read(store: LogStore, path: str, expected: bytes, guarantee: str, when: str) -> None:
    """The file holds these bytes, all of them."""
    found = read_or_none(store, path)
    assert found is not None, f"{guarantee}{when}, read of {path} raised FileNotFoundError."
    assert found == expected, (
        f"{guarantee}{when}, {path} holds {len(found)} bytes beginning {found[:40]!r} "
        f"instead of {len(expected)} beginning {expected[:40]!r}."
    )


def create(store: LogStore, path: str, data: bytes) -> bool:
    """``put_if_absent`` as a commit does it, until its outcome is known: whether the file is there by this call, with these bytes.

    The bytes must be nobody else's.
    """
    in_doubt = False
    for _ in range(_ATTEMPTS):
        outcome = store.put_if_absent(path, data)
        match outcome:
            case Created():
                return True
            case AlreadyExists() if not in_doubt:
                return False
            case AlreadyExists() | Unknown():
                in_doubt = True
                found = read_or_none(store, path)
                if found is not None:
                    return found == data
            case _:
                raise AssertionError(
                    f"{CONTRACT}put_if_absent answered {outcome!r}; its answers are Created(), AlreadyExists() and Unknown(cause)."
                )
    raise AssertionError(f"{CONTRACT}put_if_absent of {path} answered Unknown {_ATTEMPTS} times, and no file was there after any of them.")


@contextmanager
def eager_switching() -> Iterator[None]:
    """Let threads take turns so often that a window of a few instructions is met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int, threading.Barrier], _T], patience_seconds: float) -> list[_T]:
    """Run the work in so many threads at once, given each one's number and a barrier of all; the first true error of any comes out."""
    barrier = threading.Barrier(count, timeout=patience_seconds)

    def run(number: int) -> _T:
        try:
            return work(number, barrier)
        except BaseException:
            barrier.abort()
            raise

    with eager_switching(), ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, number) for number in range(count)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    # Those who waited for the one that failed have nothing to say.
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
