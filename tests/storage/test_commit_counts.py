"""What one commit asks of the store, counted: on an object store each of these is a round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakelog.core.errors import ConcurrentAppendException, ConcurrentWriteException, MissingCommitError
from lakelog.storage.log_store import FileInfo, LogStore
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.counting import CountingLogStore
from tests.storage.logs import ROOT, Waits, append, checkpoint_path, commit_path, creation, deletion, grow, hint_path, keys, table_log

DAY_MS = 24 * 60 * 60 * 1000
NO_CHECKPOINTS = {"delta.checkpointInterval": "1000"}


@pytest.fixture
def store() -> CountingLogStore:
    """A table at version 5 without a checkpoint."""
    store = CountingLogStore(MemoryLogStore())
    log = table_log(store)
    log.commit(creation(configuration=NO_CHECKPOINTS))
    grow(log, 5)
    store.reset()
    return store


def asked(store: CountingLogStore) -> dict[str, int]:
    return {verb: store.count(verb) for verb in ("PUT", "GET", "LIST", "DELETE")}


def held(store: CountingLogStore) -> TableLog:
    log = table_log(store)
    log.snapshot()
    store.reset()
    return log


def test_an_uncontended_commit_of_a_held_snapshot_is_one_put_and_nothing_else(store: CountingLogStore) -> None:
    log = held(store)
    for version in (5, 6, 7):
        store.reset()
        assert log.commit(append(version, f"more-{version}")).version == version + 1
        assert asked(store) == {"PUT": 1, "GET": 0, "LIST": 0, "DELETE": 0}
        assert store.paths("PUT") == [commit_path(version + 1)]


class Summing(MemoryLogStore):
    """Tells a sum in its listings: that of the content, or another, as of objects that are encrypted."""

    true = True

    def list_from(self, path: str) -> Iterator[FileInfo]:
        found = [
            replace(info, content_md5=hashlib.md5(self.read(info.path) if self.true else b"").hexdigest())
            for info in super().list_from(path)
        ]
        return iter(found)


@pytest.mark.parametrize(("true", "reads"), [(True, 0), (False, 1)])
def test_a_commit_of_ones_own_is_known_again_by_its_sum(true: bool, reads: int) -> None:
    summing = Summing()
    summing.true = true
    store = CountingLogStore(summing)
    log = table_log(store)
    log.commit(creation(configuration=NO_CHECKPOINTS))
    log.commit(append(0, "more"))
    store.reset()
    assert log.refresh().version == 1
    assert asked(store) == {"PUT": 0, "GET": reads, "LIST": 1, "DELETE": 0}


def test_a_deletion_costs_no_more(store: CountingLogStore) -> None:
    assert held(store).commit(deletion(5, "file-1")).version == 6
    assert asked(store) == {"PUT": 1, "GET": 0, "LIST": 0, "DELETE": 0}


def test_a_fresh_handle_lists_once_and_reads_each_commit_once(store: CountingLogStore) -> None:
    log = table_log(store)
    assert log.commit(append(log.snapshot().version, "more")).version == 6
    assert asked(store) == {"PUT": 1, "GET": 7, "LIST": 1, "DELETE": 0}
    assert store.paths("GET") == sorted([*(commit_path(version) for version in range(6)), hint_path()])


def test_a_fresh_handle_starts_from_the_checkpoint(store: CountingLogStore) -> None:
    table_log(store).checkpoint()
    grow(table_log(store), 2)
    store.reset()
    log = table_log(store)
    assert log.commit(append(log.snapshot().version, "more")).version == 8
    assert asked(store) == {"PUT": 1, "GET": 4, "LIST": 1, "DELETE": 0}
    assert store.paths("GET") == sorted([commit_path(6), commit_path(7), checkpoint_path(5), hint_path()])
    assert store.paths("LIST") == [commit_path(5).removesuffix(".json")]


def test_an_append_that_read_less_than_is_held_looks_at_what_lies_between_alone(store: CountingLogStore) -> None:
    log = held(store)
    log.commit(append(5, "first"))
    store.reset()
    assert log.commit(append(5, "second")).version == 7
    assert asked(store) == {"PUT": 1, "GET": 1, "LIST": 1, "DELETE": 0}
    assert store.paths("GET") == [commit_path(6)]


@pytest.mark.parametrize("others", [1, 2, 30])
def test_whoever_lost_looks_once_however_many_won(store: CountingLogStore, others: int) -> None:
    log = held(store)
    grow(table_log(store), others)
    store.reset()
    assert log.commit(append(5, "late")).version == 6 + others
    assert store.paths("PUT") == [commit_path(6), commit_path(6 + others)]
    assert store.count("LIST") == 1
    # The first that won too, though it is read before the listing: to learn whose it is.
    assert store.paths("GET") == [commit_path(6 + number) for number in range(others)]


class Near(CountingLogStore):
    near = True


@pytest.mark.parametrize("others", [1, 2, 30])
def test_whoever_lost_on_a_store_that_is_near_reads_on_and_lists_nothing(store: CountingLogStore, others: int) -> None:
    near = Near(store)
    log = held(near)
    grow(table_log(store), others)
    near.reset()
    result = log.commit(append(5, "late"))
    assert result.version == 6 + others
    assert keys(table_log(store)) == set(result.snapshot.files["path"].to_pylist())
    assert near.paths("PUT") == [commit_path(6), commit_path(6 + others)]
    assert near.count("LIST") == 0
    assert near.paths("GET") == sorted([commit_path(6), *(commit_path(6 + number) for number in range(others + 1))])


def test_on_a_store_that_is_near_a_winner_that_was_cleaned_up_leaves_no_gap_to_land_in(store: CountingLogStore) -> None:
    """Between the put and the look at who won: what is missing then is no free version."""

    class CleanedUp(Near):
        def read(self, path: str) -> bytes:
            data = super().read(path)
            if path == commit_path(6):
                self.inner.delete([path])
            return data

    log = held(CleanedUp(store))
    grow(table_log(store), 3)
    with pytest.raises(ConcurrentWriteException, match="clean-up"):
        log.commit(append(5, "late"))


def test_a_conflict_costs_one_put(store: CountingLogStore) -> None:
    log = held(store)
    grow(table_log(store), 1)
    store.reset()
    with pytest.raises(ConcurrentAppendException):
        log.commit(deletion(5, "file-1"))
    assert store.paths("PUT") == [commit_path(6)]


def test_a_commit_that_is_due_a_checkpoint_puts_that_and_the_hint_too() -> None:
    store = CountingLogStore(MemoryLogStore())
    log = table_log(store)
    log.commit(creation(configuration={"delta.checkpointInterval": "10", "delta.enableExpiredLogCleanup": "false"}))
    grow(log, 9)
    store.reset()
    log.commit(append(9, "tenth"))
    assert store.paths("PUT") == sorted([commit_path(10), checkpoint_path(10), hint_path()])
    assert (store.count("GET"), store.count("LIST")) == (0, 0)


def test_clean_up_lists_the_log_once_until_something_can_have_expired() -> None:
    waits = Waits()
    store = CountingLogStore(MemoryLogStore(lambda: waits.now_ms))
    log = table_log(store, waits=waits)
    whole = commit_path(0).removesuffix(".json")

    def listed_for(commits: int) -> int:
        store.reset()
        version = 0 if log.held is None else log.held.version
        for number in range(version, version + commits):
            log.commit(append(number, f"file-{number}"))
        return store.count("LIST", whole)

    log.commit(creation(configuration={"delta.checkpointInterval": "2"}))
    assert listed_for(20) == 1
    assert listed_for(20) == 0
    waits.now_ms += 29 * DAY_MS
    log.snapshot()
    assert listed_for(2) == 0
    waits.now_ms += 2 * DAY_MS
    log.snapshot()
    assert listed_for(2) == 1
    assert store.count("DELETE") > 30


class Skipping(CountingLogStore):
    """Its first listings show the newest commit and not the one before, as listings may while both land."""

    def __init__(self, inner: LogStore, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def list_from(self, path: str) -> Iterator[FileInfo]:
        found = list(super().list_from(path))
        if self.count("LIST") <= self.times:
            # No two such listings are equal: the writers go on.
            found = [info for info in found if info.path != commit_path(4)]
            found.append(FileInfo(path=f"{ROOT}/_delta_log/z", size=self.count("LIST"), modification_time_ms=0))
        return iter(found)


@pytest.mark.parametrize("times", [0, 1, 2, 9])
def test_a_gap_in_a_listing_is_listed_again(store: CountingLogStore, times: int) -> None:
    skipping = Skipping(store, times)
    assert table_log(skipping).snapshot().version == 5
    assert skipping.count("LIST") == times + 1


def test_a_gap_that_stays_is_an_error(store: CountingLogStore) -> None:
    store.inner.delete([commit_path(4)])
    with pytest.raises(MissingCommitError, match=r"lacks 0{19}4\.json"):
        table_log(store).snapshot()
    assert store.count("LIST") == 2
    store.reset()
    with pytest.raises(MissingCommitError, match=r"lacks 0{19}4\.json"):
        table_log(Skipping(store, 100)).snapshot()
    assert store.count("LIST") < 20
