"""The conformance tests over threads: races for one file, listings and readers beside writers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from lakelog.storage.log_store import LogStore
from lakelog.storage.testing._hooks import (
    ATOMIC,
    LISTED,
    ONE_WINNER,
    ConformanceHooks,
    assert_read,
    body,
    create,
    names_from,
    read_or_none,
    version,
)

__all__ = ["ThreadTests"]

_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")
_BODY_BYTES = 20_000
_WATCHED_FILES = 20
# The writer goes on until every watcher has looked so often, for a machine may be too busy to let them look at all.
_LOOKS = 20
_MOST_WATCHED_FILES = 100
_LISTED_FILES = 30


class ThreadTests(ConformanceHooks):
    """Many threads, some of which share a store."""

    def test_of_threads_that_race_exactly_one_creates_the_file(self) -> None:
        folder = self.make_folder()
        shared, own = self.make_store(), [self.make_store() for _ in range(self.writers)]
        bodies = [
            [body(f"writer {writer} of file {number}", _BODY_BYTES) for writer in range(self.writers)] for number in range(self.rounds)
        ]

        def race(writer: int, barrier: threading.Barrier) -> list[bool]:
            created = []
            for number in range(self.rounds):
                store, path = shared if number % 2 else own[writer], f"{folder}/{version(number)}"
                barrier.wait()
                created.append(create(store, path, bodies[number][writer]))
                found = read_or_none(store, path)
                assert found is not None, f"{LISTED}put_if_absent had answered, and read of {path} raised FileNotFoundError."
                assert found in bodies[number], (
                    f"{ATOMIC}after its own put_if_absent a writer read {len(found)} bytes of {path}, where all write {_BODY_BYTES}: "
                    "the file must get its name only when all its bytes are in it."
                )
            return created

        created = self._in_threads(self.writers, race)
        store = self.make_store()
        for number in range(self.rounds):
            path = f"{folder}/{version(number)}"
            winners = [writer for writer in range(self.writers) if created[writer][number]]
            assert len(winners) == 1, (
                f"{ONE_WINNER}of {self.writers} threads that raced for {path}, {len(winners)} created it (writers {winners}). "
                "put_if_absent must be one step of the medium that fails if the name is taken; a look followed by a write is two."
            )
            assert_read(store, path, bodies[number][winners[0]], ONE_WINNER, f"after writer {winners[0]} had won the race")

    def test_of_threads_that_put_the_last_bytes_are_one_threads(self) -> None:
        folder = self.make_folder()
        store = self.make_store()
        bodies = [body(f"writer {writer}", _BODY_BYTES + 1000 * writer) for writer in range(self.writers)]

        def put(writer: int, barrier: threading.Barrier) -> None:
            for number in range(self.rounds):
                barrier.wait()
                store.put(f"{folder}/{number}", bodies[writer])

        self._in_threads(self.writers, put)
        for number in range(self.rounds):
            found = read_or_none(store, f"{folder}/{number}")
            assert found is not None, f"{LISTED}{self.writers} puts had answered, and read of {folder}/{number} raised FileNotFoundError."
            assert found in bodies, (
                f"{ATOMIC}{self.writers} puts at once left {len(found)} bytes that none of them wrote: {found[:40]!r}..."
            )

    def test_folders_come_into_being_under_many_threads(self) -> None:
        folder = self.make_folder()
        store = self.make_store()

        def write(writer: int, barrier: threading.Barrier) -> bool:
            barrier.wait()
            return create(store, f"{folder}/a/b/c/{writer}", b"%d" % writer)

        assert self._in_threads(self.writers, write) == [True] * self.writers
        found = names_from(store, f"{folder}/a/b/c/")
        assert found == sorted(map(str, range(self.writers))), f"{LISTED}files of {self.writers} threads in one new folder: {found}."

    def test_a_listing_beside_writers_shows_every_finished_write(self) -> None:
        folder = self.make_folder()
        store = self.make_store()
        writers, listers = 3, 2
        finished: set[str] = set()
        done = threading.Semaphore(0)
        create(store, f"{folder}/{version(0)}", b"0")

        def work(number: int, barrier: threading.Barrier) -> None:
            barrier.wait()
            if number < writers:
                try:
                    for round_ in range(_LISTED_FILES):
                        name = version(1 + round_ * writers + number)
                        if round_ % 2:
                            store.put(f"{folder}/{name}", name.encode())
                        else:
                            create(store, f"{folder}/{name}", name.encode())
                        finished.add(name)
                finally:
                    for _ in range(listers):
                        done.release()
                return
            over = 0
            while over < writers:
                over += done.acquire(blocking=False)
                # A copy by one call of C: no writer adds to it meanwhile.
                expected = finished.copy()
                found = names_from(store, f"{folder}/")
                missing = sorted(expected.difference(found))
                assert not missing, f"{LISTED}the writes of {missing[:5]} had answered before a listing of {folder} that lacks them."
                assert found == sorted(found), f"{LISTED}a listing beside writers is out of order: {found}."

        self._in_threads(writers + listers, work)

    def test_a_reader_beside_a_writer_meets_whole_files_alone(self) -> None:
        watched = _Watched(self.make_store(), self.make_folder(), self.watched_bytes)
        looks: list[Callable[[], None]] = [
            watched.write,
            watched.check_listing,
            watched.check_listing,
            watched.check_read,
            watched.check_read,
        ]
        looked = [0] * len(looks)

        def watch(number: int, barrier: threading.Barrier) -> None:
            barrier.wait()
            if number == len(looks):
                watched.write_while(lambda: min(looked) < _LOOKS)
                return
            try:
                while not watched.over.is_set():
                    looks[number]()
                    looked[number] += 1
            except BaseException:
                # Nobody need write for a watcher that has seen enough.
                watched.over.set()
                raise
            watched.check_listing()

        self._in_threads(len(looks) + 1, watch)


class _Watched:
    """A folder in which commits are created one after another and a hint is replaced, and what may be seen of it."""

    def __init__(self, store: LogStore, folder: str, size: int) -> None:
        self.over = threading.Event()
        self._store = store
        self._folder = folder
        self._hint = f"{folder}/_last_checkpoint"
        self._size = size
        self._under_way = 0
        self.write()

    def write_while(self, wanted: Callable[[], bool]) -> None:
        try:
            while self._under_way < _WATCHED_FILES or (wanted() and self._under_way < _MOST_WATCHED_FILES and not self.over.is_set()):
                self.write()
        finally:
            self.over.set()

    def write(self) -> None:
        number = self._under_way
        create(self._store, f"{self._folder}/{version(number)}", self._commit(number))
        self._store.put(self._hint, self._generation(number))
        self._under_way = number + 1

    def check_listing(self) -> None:
        for info in self._store.list_from(f"{self._folder}/"):
            # Sizes tell the number, so that a part of one body is no other's size.
            if info.name == "_last_checkpoint":
                whole = self._size_of(self._number_of(info.size))
                assert info.size == whole, f"{ATOMIC}while put replaced {info.path}, a listing gave it {info.size} bytes."
                continue
            assert _COMMIT_NAME.fullmatch(info.name), (
                f"{ATOMIC}a listing shows {info.path}, which nobody was asked to write; hide temporary files."
            )
            whole = self._size_of(int(info.name[:20]))
            assert info.size == whole, (
                f"{ATOMIC}a listing gave {info.path} {info.size} of its {whole} bytes: the name came before they did."
            )

    def check_read(self) -> None:
        number = self._under_way
        path = f"{self._folder}/{version(number)}"
        found = read_or_none(self._store, path)
        assert found is None or found == self._commit(number), (
            f"{ATOMIC}while put_if_absent made {path}, a reader met {len(found)} of its {self._size_of(number)} bytes."
        )
        found = read_or_none(self._store, self._hint)
        assert found is not None, f"{ATOMIC}while put replaced {self._hint}, it was gone: read raised FileNotFoundError."
        assert found == self._generation(self._number_of(len(found))), (
            f"{ATOMIC}while put replaced {self._hint}, a reader met {len(found)} bytes that are neither the old ones nor the new."
        )

    def _commit(self, number: int) -> bytes:
        return body(f"file {number}", self._size_of(number))

    def _generation(self, number: int) -> bytes:
        return body(f"generation {number}", self._size_of(number))

    def _size_of(self, number: int) -> int:
        return self._size + 1000 * number

    def _number_of(self, size: int) -> int:
        return max(0, (size - self._size) // 1000)
