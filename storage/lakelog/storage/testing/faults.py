"""A LogStore that fails as networks, servers and disks do, at moments that a schedule decides and a seed repeats."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias, TypeVar

from lakelog.core.errors import StorageError
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome, Unknown
from lakelog.storage.testing.clock import VirtualClock

__all__ = ["Call", "Fault", "FaultInjectingLogStore", "NthCall", "Schedule", "SeededFaults", "SimulatedCrash", "Verb"]

_T = TypeVar("_T")

Verb: TypeAlias = Literal["read", "put_if_absent", "put", "list_from", "delete"]

# How many calls a late request stays under way at most.
_LATEST = 8
_LONGEST_DELAY_MS = 60_000


class Fault(Enum):
    """What happens to one call. "Unsure" is ``Unknown`` from ``put_if_absent`` and an ``OSError`` from the other verbs."""

    FAIL_BEFORE = "fail before"
    """Nothing is done; ``OSError``."""
    FAIL_AFTER = "fail after"
    """Done, then the server fails; unsure."""
    LOST_REQUEST = "lost request"
    """Nothing is done; unsure, for the caller cannot tell this from a lost answer."""
    LOST_ANSWER = "lost answer"
    """Done; unsure."""
    LATE = "late"
    """Unsure now, and done some calls later, when others have gone on. What only reads is lost."""
    DUPLICATE = "duplicate"
    """Done and answered; some calls later the network delivers the same request again."""
    TORN = "torn"
    """A read gives a part of the bytes as if it were all; a listing breaks off with ``OSError``; a write does nothing, ``OSError``."""
    DELAY = "delay"
    """The clock moves on by up to a minute, then all goes well."""
    CRASH_BEFORE = "crash before"
    """The process dies: `SimulatedCrash`, nothing done."""
    CRASH_AFTER = "crash after"
    """Done, and the process dies before it hears of it: `SimulatedCrash`."""


class SimulatedCrash(BaseException):
    """The process died here. No ``Exception``, so that no handler of errors goes on living."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a store.

    Args:
        number: from 1, in the order in which the calls began.
        verb: the method.
        path: the argument; a ``delete`` of several paths is one call for each.
    """

    number: int
    verb: Verb
    path: str


Schedule: TypeAlias = Callable[[Call], Fault | None]
"""Says what happens to a call; None: nothing unusual."""


class SeededFaults:
    """The schedule that draws a fault for every call.

    Args:
        seed: decides every draw; the same calls meet the same faults.
        rates: how often each fault comes, from 0 to 1; together at most 1.

    Raises:
        ValueError: the rates are no such numbers.
    """

    def __init__(self, seed: int, rates: Mapping[Fault, float]) -> None:
        if any(rate < 0 for rate in rates.values()) or sum(rates.values()) > 1 + 1e-9:
            raise ValueError(f"Rates of faults are shares of all calls, each at least 0 and together at most 1; not {dict(rates)}.")
        self._random = random.Random(seed)
        # In the enumeration's order, so that a seed means the same however the mapping was put together.
        self._rates = [(fault, rates[fault]) for fault in Fault if fault in rates]

    def __call__(self, call: Call) -> Fault | None:
        drawn = self._random.random()
        for fault, rate in self._rates:
            if drawn < rate:
                return fault
            drawn -= rate
        return None


@dataclass(frozen=True, slots=True)
class NthCall:
    """The schedule of a sweep: one fault at one call, counted from 1."""

    number: int
    fault: Fault

    def __call__(self, call: Call) -> Fault | None:
        return self.fault if call.number == self.number else None


class FaultInjectingLogStore(LogStore):
    """Passes calls on to a store that works, except for what the schedule says.

    Give every simulated process a wrapper of its own around one shared store, or let all share one: calls are counted by wrapper.

    Args:
        inner: the store that works.
        schedule: asked once for every call, before it.
        seed: decides how late a late request is, where a torn body ends and how long a delay takes.
        clock: what `Fault.DELAY` moves on.

    Attributes:
        calls: all of them so far, those that failed too.
    """

    def __init__(self, inner: LogStore, schedule: Schedule, *, seed: int = 0, clock: VirtualClock | None = None) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self._schedule = schedule
        self._clock = clock
        self._random = random.Random(seed)
        # A schedule may itself ask the store, to let another client act at this very moment.
        self._lock = threading.RLock()
        self._under_way: list[tuple[int, Callable[[], object]]] = []

    def settle(self) -> None:
        """Deliver every request that is still under way."""
        with self._lock:
            due, self._under_way = self._under_way, []
        _deliver(due)

    def read(self, path: str) -> bytes:
        fault = self._begin("read", path)
        if fault is None:
            return self.inner.read(path)
        if fault is Fault.TORN:
            data = self.inner.read(path)
            return data[: self._random.randrange(len(data))] if data else data
        return self._do(fault, path, lambda: self.inner.read(path), changes=False)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        fault = self._begin("put_if_absent", path)
        if fault in (Fault.FAIL_AFTER, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE):
            try:
                return self._do(fault, path, lambda: self.inner.put_if_absent(path, data))
            except OSError as error:
                return Unknown(error)
        return self._do(fault, path, lambda: self.inner.put_if_absent(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._do(self._begin("put", path), path, lambda: self.inner.put(path, data))

    def list_from(self, path: str) -> Iterator[FileInfo]:
        fault = self._begin("list_from", path)
        if fault is None:
            return self.inner.list_from(path)
        if fault is Fault.TORN:
            files = list(self.inner.list_from(path))
            return _break_off(files[: self._random.randint(0, len(files))], path)
        return self._do(fault, path, lambda: self.inner.list_from(path), changes=False)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._delete(path)

    def _delete(self, path: str) -> None:
        self._do(self._begin("delete", path), path, lambda: self.inner.delete([path]))

    def _begin(self, verb: Verb, path: str) -> Fault | None:
        with self._lock:
            call = Call(len(self.calls) + 1, verb, path)
            self.calls.append(call)
            due: Sequence[tuple[int, Callable[[], object]]] = ()
            if self._under_way:
                due = [request for request in self._under_way if request[0] <= call.number]
                self._under_way = [request for request in self._under_way if request[0] > call.number]
            fault = self._schedule(call)
        if due:
            _deliver(due)
        return fault

    def _do(self, fault: Fault | None, path: str, request: Callable[[], _T], *, changes: bool = True) -> _T:
        match fault:
            case None:
                return request()
            case Fault.FAIL_BEFORE | Fault.TORN:
                raise _error(errno.EIO, path)
            case Fault.FAIL_AFTER:
                with suppress(OSError):
                    request()
                raise _error(errno.EIO, path)
            case Fault.LOST_REQUEST:
                raise _error(errno.ETIMEDOUT, path)
            case Fault.LOST_ANSWER:
                with suppress(OSError):
                    request()
                raise _error(errno.ETIMEDOUT, path)
            case Fault.LATE:
                if changes:
                    self._send_later(request)
                raise _error(errno.ETIMEDOUT, path)
            case Fault.DUPLICATE:
                answer = request()
                if changes:
                    self._send_later(request)
                return answer
            case Fault.DELAY:
                if self._clock is None:
                    raise ValueError("Fault.DELAY moves a clock on; give FaultInjectingLogStore one: clock=VirtualClock().")
                self._clock.advance_ms(self._random.randint(1, _LONGEST_DELAY_MS))
                return request()
            case Fault.CRASH_BEFORE:
                raise SimulatedCrash(path)
            case Fault.CRASH_AFTER:
                with suppress(OSError):
                    request()
                raise SimulatedCrash(path)

    def _send_later(self, request: Callable[[], object]) -> None:
        with self._lock:
            self._under_way.append((len(self.calls) + self._random.randint(1, _LATEST), request))


def _deliver(requests: Sequence[tuple[int, Callable[[], object]]]) -> None:
    for _, request in sorted(requests, key=lambda numbered: numbered[0]):
        # Whoever asked has long stopped listening.
        with suppress(OSError, StorageError):
            request()


def _break_off(files: list[FileInfo], path: str) -> Iterator[FileInfo]:
    yield from files
    raise _error(errno.EIO, path)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
