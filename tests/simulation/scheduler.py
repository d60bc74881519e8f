"""Clients that run the real code in turns: each stops at every request to the store, before it and after it, and a seed says who goes on.

A client is a greenlet, so `TableLog` and all below it run unmodified. A client that crashes never goes on: what it would have done next
does not happen, not even in its ``finally`` clauses, for the store does nothing more for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NoReturn, TypeVar

import greenlet

from lakelog.storage.environment import Environment
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome
from lakelog.storage.testing.clock import VirtualClock
from lakelog.storage.testing.faults import SimulatedCrash

_T = TypeVar("_T")

Tell = Callable[[str, str, str, str], None]


class Scheduler:
    """Runs clients in turns until none is left.

    Args:
        chance: decides who goes on.
        restlessness: how often, from 0 to 1, a stop gives another client its turn.
    """

    def __init__(self, chance: random.Random, restlessness: float) -> None:
        self._chance = chance
        self._restlessness = restlessness
        self._ready: list[greenlet.greenlet] = []
        self._hub = greenlet.getcurrent()

    def start(self, body: Callable[[], None]) -> None:
        """Add a client; it begins when its turn comes."""
        self._ready.append(greenlet.greenlet(body, parent=self._hub))

    def stop(self) -> None:
        """Give others a turn, perhaps."""
        if len(self._ready) > 1 and self._chance.random() < self._restlessness:
            self._hub.switch(False)

    def die(self) -> NoReturn:
        """Never go on."""
        self._hub.switch(True)
        raise greenlet.GreenletExit

    def run(self) -> None:
        """Until every client has returned or died. What one of them raises comes out here."""
        while self._ready:
            client = self._ready[int(self._chance.random() * len(self._ready))]
            died = client.switch()
            if client.dead:
                self._ready.remove(client)
            elif died is True:
                self._ready.remove(client)
                client.throw(greenlet.GreenletExit)

    def abandon(self) -> None:
        """End all clients where they are."""
        for client in self._ready:
            client.throw(greenlet.GreenletExit)
        self._ready.clear()


class Process:
    """What one client has to itself: a store that stops at every request, and an environment whose sleep lets others work.

    Args:
        name: for the trace.
        scheduler: of all clients.
        store: shared by all clients.
        clock: moves on by a millisecond with every request.
        environment: by that clock.
        tell: called with client, verb, path and answer after each request; None for no trace.
        on_death: called when it crashes.
    """

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        store: LogStore,
        clock: VirtualClock,
        environment: Environment,
        tell: Tell | None,
        on_death: Callable[[], None],
    ) -> None:
        self.name = name
        self.alive = True
        self.on_death = on_death
        self.store = _Stepped(self, scheduler, store, clock, tell)

        def sleep(seconds: float) -> None:
            clock.sleep(seconds)
            scheduler.stop()

        self.environment = replace(environment, sleep=sleep)


class _Stepped(LogStore):
    def __init__(self, process: Process, scheduler: Scheduler, inner: LogStore, clock: VirtualClock, tell: Tell | None) -> None:
        self._process = process
        self._scheduler = scheduler
        self._inner = inner
        self._clock = clock
        self._tell = tell

    def read(self, path: str) -> bytes:
        return self._step("read", path, self._inner.read, path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._step("put_if_absent", path, self._inner.put_if_absent, path, data)

    def put(self, path: str, data: bytes) -> None:
        self._step("put", path, self._inner.put, path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        return iter(self._step("list_from", path, self._list, path))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._step("delete", path, self._inner.delete, [path])

    def _list(self, path: str) -> list[FileInfo]:
        return list(self._inner.list_from(path))

    def _step(self, verb: str, path: str, request: Callable[..., _T], *arguments: object) -> _T:
        if not self._process.alive:
            raise greenlet.GreenletExit
        self._scheduler.stop()
        self._clock.advance_ms(1)
        try:
            answer = request(*arguments)
        except SimulatedCrash:
            self._process.alive = False
            self._process.on_death()
            if self._tell is not None:
                self._tell(self._process.name, verb, path, "CRASH")
            self._scheduler.die()
        except Exception as error:
            if self._tell is not None:
                self._tell(self._process.name, verb, path, f"{type(error).__name__}: {error}")
            self._scheduler.stop()
            raise
        if self._tell is not None:
            self._tell(self._process.name, verb, path, _shown(answer))
        self._scheduler.stop()
        return answer


def _shown(answer: object) -> str:
    if answer is None:
        return "done"
    if isinstance(answer, bytes):
        return f"{len(answer)} bytes"
    if isinstance(answer, list):
        return f"{len(answer)} files"
    return repr(answer)
