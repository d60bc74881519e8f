"""The conformance tests over processes, and the programs that their children run."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

from lakelog.storage.log_store import LogStore
from lakelog.storage.testing._hooks import (
    ATOMIC,
    CONTRACT,
    LISTED,
    ONE_WINNER,
    ConformanceHooks,
    assert_read,
    body,
    create,
    read_or_none,
    version,
)

__all__ = ["ProcessTests"]

_BODY_BYTES = 20_000
# Finished writes after which a victim is killed at most, and how far into the writes that follow.
_LATEST_KILL = 20
_KILL_WITHIN_SECONDS = 0.01
_EXCHANGED_FILES = 15

# Children start from nothing: a fork would copy locks that other threads of the parent hold.
_SPAWN = multiprocessing.get_context("spawn")

_Program = Callable[..., object]


class ProcessTests(ConformanceHooks):
    """Several processes with a store each, and writers that are killed."""

    def test_of_processes_that_race_exactly_one_creates_the_file(self) -> None:
        factory, folder = self._factory(), self.make_folder()
        barrier = _SPAWN.Barrier(self.processes, timeout=self.patience_seconds)
        with ExitStack() as stack:
            children = [
                stack.enter_context(_child(_race, factory, folder, writer, self.files_per_process, barrier))
                for writer in range(self.processes)
            ]
            answers = [child.answer(self.patience_seconds) for child in children]
        store = self.make_store()
        for number in range(self.files_per_process):
            path = f"{folder}/{version(number)}"
            winners = [writer for writer in range(self.processes) if answers[writer][number]]
            assert len(winners) == 1, (
                f"{ONE_WINNER}of {self.processes} processes that raced for {path}, {len(winners)} created it (writers {winners}). "
                "A lock of one process excludes nobody in another: the medium itself must refuse a name that is taken."
            )
            assert_read(store, path, _commit(winners[0], number), ONE_WINNER, f"after process {winners[0]} had won the race")

    def test_what_one_process_writes_another_lists_and_reads(self) -> None:
        factory, folder, store = self._factory(), self.make_folder(), self.make_store()
        hint = f"{folder}/_last_checkpoint"
        with _child(_serve, factory) as other:
            for number in range(0, 2 * _EXCHANGED_FILES, 2):
                ours, theirs = f"{folder}/{version(number)}", f"{folder}/{version(number + 1)}"
                create(store, ours, b"ours")
                store.put(hint, b"%d" % number)
                found = other.ask(self.patience_seconds, "list", f"{folder}/")
                assert ours in found, f"{LISTED}a process had created {ours}, and another process' listing does not show it: {found}."
                found = other.ask(self.patience_seconds, "read", ours)
                assert found == b"ours", f"{LISTED}a process had created {ours}, and another process read {found!r}."
                found = other.ask(self.patience_seconds, "read", hint)
                assert found == b"%d" % number, f"{LISTED}a process had put {number} into {hint}, and another process read {found!r}."
                assert other.ask(self.patience_seconds, "create", theirs) is True, (
                    f"{CONTRACT}{theirs} was absent and could not be created."
                )
                assert theirs in [info.path for info in store.list_from(ours)], f"{LISTED}another process' {theirs} is not listed."
                assert_read(store, theirs, theirs.encode(), LISTED, "after another process had created it")
            store.delete([hint])
            found = other.ask(self.patience_seconds, "read", hint)
            assert found is None, f"{CONTRACT}a process had deleted {hint}, and another process still reads {found!r}."

    def test_killed_writers_leave_whole_files_and_every_acknowledged_one(self) -> None:
        factory, folder = self._factory(), self.make_folder()
        barrier = _SPAWN.Barrier(self.processes, timeout=self.patience_seconds)
        chance = random.Random(self.seed)
        with ExitStack() as stack:
            victims = [
                stack.enter_context(_child(_write_until_killed, factory, folder, writer, barrier)) for writer in range(self.processes)
            ]
            acknowledged = [
                _kill_in_a_write(victim, chance.randint(1, _LATEST_KILL), chance.uniform(0, _KILL_WITHIN_SECONDS), self.patience_seconds)
                for victim in victims
            ]
        store = self.make_store()
        whole = _assert_whole(store, folder, self.processes)
        for writer, finished in enumerate(acknowledged):
            for number, created in finished:
                if created:
                    path = f"{folder}/{version(number)}"
                    assert_read(store, path, _commit(writer, number), LISTED, f"after put_if_absent of killed writer {writer} had answered")
            last = finished[-1][0]
            found = read_or_none(store, f"{folder}/_hint_{writer}")
            assert found in (_hint(writer, last), _hint(writer, last + 1)), (
                f"{LISTED}killed writer {writer} had put number {last}, and its file holds {(found or b'nothing')[:40]!r}."
            )
        for number in range(max(whole), max(whole) + 3):
            path = f"{folder}/{version(number)}"
            if create(store, path, b"survivor"):
                assert number not in whole, (
                    f"{ONE_WINNER}after writers were killed, put_if_absent replaced {path}, which a listing had shown."
                )
                assert_read(store, path, b"survivor", LISTED, "after writers were killed and put_if_absent had answered")
            elif number not in whole:
                # A medium that takes requests over a network may carry out a dead writer's last one.
                found = read_or_none(store, path)
                assert found in [_commit(writer, number) for writer in range(self.processes)], (
                    f"{ONE_WINNER}after writers were killed, put_if_absent of {path} was refused, and no writer's file is there: "
                    f"{(found or b'nothing')[:40]!r}. What a dead writer leaves behind must not lock others out."
                )


def _commit(writer: int, number: int) -> bytes:
    return body(f"writer {writer} of file {number}", _BODY_BYTES)


def _hint(writer: int, number: int) -> bytes:
    return body(f"writer {writer} at {number}", _BODY_BYTES + number)


def _assert_whole(store: LogStore, folder: str, writers: int) -> dict[int, bytes]:
    """Everything listed is a whole body of some writer; the commit files' bytes by number."""
    whole = {}
    for info in store.list_from(f"{folder}/"):
        data = read_or_none(store, info.path)
        assert data is not None, f"{LISTED}{info.path} is listed after its writer was killed, and cannot be read."
        assert info.size == len(data), f"{ATOMIC}{info.path} is listed with {info.size} bytes and has {len(data)}."
        if info.name.startswith("_hint_"):
            continue
        assert info.name[:20].isdigit(), f"{ATOMIC}{info.path} is listed, a temporary file of a killed writer; listings must hide it."
        number = int(info.name[:20])
        assert any(data == _commit(writer, number) for writer in range(writers)), (
            f"{ATOMIC}a killed writer left {len(data)} of the {_BODY_BYTES} bytes of {info.path} under its final name."
        )
        whole[number] = data
    return whole


def _kill_in_a_write(victim: _Child, finished: int, then_seconds: float, patience_seconds: float) -> list[tuple[int, bool]]:
    """Let the victim finish some writes, kill it a moment later, and give all it had said: each write's number, and if it created."""
    said = [victim.answer(patience_seconds) for _ in range(finished)]
    moment = time.monotonic() + then_seconds
    while (left := moment - time.monotonic()) > 0 and victim.connection.poll(left):
        said.append(victim.answer(patience_seconds))
    victim.process.kill()
    victim.process.join(patience_seconds)
    said.extend(victim.last_words())
    return said


class _Child:
    """A process with a store of its own, and the wire to it."""

    def __init__(self, program: _Program, *arguments: object) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_run, args=(theirs, program, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, patience_seconds: float, *request: object) -> Any:
        self.connection.send(request)
        return self.answer(patience_seconds)

    def answer(self, patience_seconds: float) -> Any:
        assert self.connection.poll(patience_seconds), f"A child process did not answer within {patience_seconds} seconds."
        try:
            went_well, answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(patience_seconds)
            raise AssertionError(
                f"A child process ended with code {self.process.exitcode} before it answered; what it printed says why. "
                "store_factory() must give what a fresh interpreter can import."
            ) from None
        assert went_well, f"A child process failed:\n{answer}"
        return answer

    def last_words(self) -> Iterator[Any]:
        with ExitStack() as stack:
            stack.callback(self.connection.close)
            while True:
                try:
                    _, answer = self.connection.recv()
                except (EOFError, ConnectionResetError):
                    return
                yield answer


@contextmanager
def _child(program: _Program, *arguments: object) -> Iterator[_Child]:
    child = _Child(program, *arguments)
    try:
        yield child
    finally:
        child.process.kill()
        child.process.join()
        child.process.close()
        child.connection.close()


def _run(connection: Connection, program: _Program, arguments: tuple[object, ...]) -> None:
    """What a child does: one program, whose failure is an answer too."""
    try:
        program(connection, *arguments)
    except BaseException:
        connection.send((False, traceback.format_exc()))


def _race(
    connection: Connection, factory: Callable[[], LogStore], folder: str, writer: int, files: int, barrier: threading.Barrier
) -> None:
    store = factory()
    created = []
    for number in range(files):
        path = f"{folder}/{version(number)}"
        barrier.wait()
        created.append(create(store, path, _commit(writer, number)))
        found = read_or_none(store, path)
        assert found is not None, f"{LISTED}put_if_absent had answered, and read of {path} raised FileNotFoundError."
        assert len(found) == _BODY_BYTES, (
            f"{ATOMIC}after its own put_if_absent a process read {len(found)} of {_BODY_BYTES} bytes of {path}."
        )
    connection.send((True, created))


def _serve(connection: Connection, factory: Callable[[], LogStore]) -> None:
    store = factory()
    while True:
        verb, path = connection.recv()
        match verb:
            case "list":
                connection.send((True, [info.path for info in store.list_from(path)]))
            case "read":
                connection.send((True, read_or_none(store, path)))
            case "create":
                connection.send((True, create(store, path, path.encode())))


def _write_until_killed(
    connection: Connection, factory: Callable[[], LogStore], folder: str, writer: int, barrier: threading.Barrier
) -> None:
    store = factory()
    barrier.wait()
    for number in itertools.count():
        created = create(store, f"{folder}/{version(number)}", _commit(writer, number))
        store.put(f"{folder}/_hint_{writer}", _hint(writer, number))
        connection.send((True, (number, created)))
