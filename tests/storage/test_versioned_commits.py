"""Commits whose bytes depend on the version: in-commit timestamps and row ids, over stores that fail and among other writers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from lakelog.core.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, parse_commit, serialize_commit
from lakelog.core.commit import CommitAttempt, Reads
from lakelog.core.commit_info import Operation, delete
from lakelog.core.errors import ConcurrentAppendException, ConcurrentDeleteDeleteException, UnsupportedOperationError
from lakelog.core.row_tracking import backfill, high_water_mark
from lakelog.storage.log_store import PutOutcome, Unknown
from lakelog.storage.table_log import NO_VERSION
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.logs import (
    FaultyLogStore,
    Waits,
    added,
    append,
    attempt,
    clocked_store,
    commit_path,
    deletion,
    grow,
    metadata,
    removed,
    table_log,
)

START = 1_700_000_000_000
FEATURES = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", "inCommitTimestamp", "rowTracking"))
PLAIN = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",))
TIMES, ROWS = {"delta.enableInCommitTimestamps": "true"}, {"delta.enableRowTracking": "true"}
BOTH = {**TIMES, **ROWS}
SINCE, SINCE_MS = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"
UPGRADE = Operation(name="SET TBLPROPERTIES")


def creation(*actions: Action, configuration: Mapping[str, str] = BOTH, protocol: Protocol = FEATURES) -> CommitAttempt:
    return attempt(NO_VERSION, protocol, metadata(configuration), *actions)


def change(read_version: int, configuration: Mapping[str, str], *more: Action) -> CommitAttempt:
    return attempt(read_version, metadata(configuration), *more, operation=UPGRADE)


@pytest.fixture
def store() -> MemoryLogStore:
    """A table with both features; files are a second apart, while the clock of `Waits` stands still."""
    store = clocked_store()
    table_log(store).commit(creation())
    return store


def actions_of(store: MemoryLogStore, version: int) -> list[Action]:
    return parse_commit(store.read(commit_path(version)), f"version {version}")


def info_of(store: MemoryLogStore, version: int) -> CommitInfo:
    info = actions_of(store, version)[0]
    assert isinstance(info, CommitInfo)
    return info


def time_of(store: MemoryLogStore, version: int) -> int | None:
    return info_of(store, version).in_commit_timestamp


def ids_of(store: MemoryLogStore, version: int) -> dict[str, tuple[int | None, int | None]]:
    found = (action for action in actions_of(store, version) if isinstance(action, AddFile | RemoveFile))
    return {action.path: (action.base_row_id, action.default_row_commit_version) for action in found}


def configuration_of(store: MemoryLogStore, version: int) -> Mapping[str, str]:
    return next(action.configuration for action in actions_of(store, version) if isinstance(action, Metadata))


# among other writers ------------------------------------------------------------------------------------------------------


def test_who_follows_has_a_later_time_and_higher_ids(store: MemoryLogStore) -> None:
    log, other = table_log(store, waits=Waits(START + 5)), table_log(store, waits=Waits(START + 90))
    log.snapshot()
    for version in range(3):
        other.commit(append(version, f"other-{version}"))
    result = log.commit(append(0, "mine"))
    assert [time_of(store, version) for version in range(5)] == [START, START + 90, START + 91, START + 92, START + 93]
    assert [ids_of(store, version) for version in range(1, 5)] == [
        {"other-0": (0, 1)},
        {"other-1": (1, 2)},
        {"other-2": (2, 3)},
        {"mine": (3, 4)},
    ]
    assert (result.snapshot.timestamp_ms, high_water_mark(result.snapshot)) == (START + 93, 3)
    assert high_water_mark(table_log(store).snapshot()) == 3


def test_who_loses_version_after_version_is_stamped_for_each(store: MemoryLogStore) -> None:
    others = iter(range(1, 4))
    tried: list[bytes] = []

    def before(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent" and (version := next(others, None)) is not None:
            table_log(store, waits=Waits(START + 1000 * version)).commit(append(version - 1, f"other-{version}"))
        return None

    class Noting(FaultyLogStore):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            tried.append(data)
            return super().put_if_absent(path, data)

    result = table_log(Noting(store, before)).commit(append(0, "mine"))
    assert result.version == 4
    assert len(tried) == len(set(tried)) == 4
    lines = [[json.loads(line) for line in data.splitlines()] for data in tried]
    assert len({line[0]["commitInfo"]["txnId"] for line in lines}) == 1
    assert [line[0]["commitInfo"]["inCommitTimestamp"] for line in lines] == [START + 1, START + 1001, START + 2001, START + 3001]
    assert [(line[1]["add"]["baseRowId"], line[1]["add"]["defaultRowCommitVersion"]) for line in lines] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert tried[-1] == store.read(commit_path(4))


def test_a_creator_that_joins_is_stamped_for_where_it_lands() -> None:
    store = clocked_store()
    table_log(store, waits=Waits(START + 70)).commit(creation(added("first")))
    result = table_log(store).commit(replace(creation(added("second")), joins=True))
    assert (result.version, time_of(store, 1), ids_of(store, 1)) == (1, START + 71, {"second": (1, 1)})


def test_two_appends_after_each_other_need_no_look_at_the_log(store: MemoryLogStore) -> None:
    log = table_log(store)
    grow(log, 5)
    assert [time_of(store, version) for version in range(6)] == [START + version for version in range(6)]
    assert high_water_mark(log.snapshot()) == 4


def test_a_removal_tells_the_ids_of_its_file(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.commit(append(0, "a", "b"))
    log.commit(deletion(1, "b"))
    assert ids_of(store, 2) == {"b": (1, 1)}
    assert info_of(store, 2).tags == {"delta.rowTracking.preserved": "true"}
    log.commit(replace(deletion(2, "a"), keeps_row_ids=False))
    assert info_of(store, 3).tags == {"delta.rowTracking.preserved": "false"}


def test_a_file_that_does_not_tell_its_rows_commits_nothing(store: MemoryLogStore) -> None:
    log = table_log(store)
    with pytest.raises(UnsupportedOperationError, match=r"^Delta table /tables/t: .*'a'.*numRecords.*statistics"):
        log.commit(attempt(0, replace(added("a"), stats=None)))
    assert log.snapshot().version == 0


# the store fails ----------------------------------------------------------------------------------------------------------


def test_one_version_gets_the_same_bytes_however_often_it_is_asked(store: MemoryLogStore) -> None:
    waits = Waits(START + 5)
    puts: list[tuple[str, bytes]] = []

    class Losing(FaultyLogStore):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            puts.append((path, data))
            waits.now_ms += 1000
            return Unknown(TimeoutError("no answer")) if len(puts) < 4 else super().put_if_absent(path, data)

    assert table_log(Losing(store), waits=waits).commit(append(0, "mine")).version == 1
    assert len(puts) == 4
    assert len(set(puts)) == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_doubt_is_settled_before_other_bytes_go_to_the_next_version(store: MemoryLogStore, landed: bool) -> None:
    """A request whose answer was lost: either it was the commit, or another writer's is there and the next version gets other bytes."""

    def after(path: str) -> PutOutcome | None:
        return Unknown(TimeoutError("no answer")) if path == commit_path(1) else None

    log = table_log(FaultyLogStore(store, after=after), waits=Waits(START + 5))
    log.snapshot()
    if not landed:
        table_log(store, waits=Waits(START + 50)).commit(append(0, "other"))
    result = log.commit(append(0, "mine"))
    if landed:
        assert (result.version, time_of(store, 1), ids_of(store, 1)) == (1, START + 5, {"mine": (0, 1)})
        assert table_log(store).snapshot().version == 1
    else:
        assert (result.version, time_of(store, 2), ids_of(store, 2)) == (2, START + 51, {"mine": (1, 2)})
        assert ids_of(store, 1) == {"other": (0, 1)}


# times --------------------------------------------------------------------------------------------------------------------


def test_turned_on_later_it_comes_after_the_files_before() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(configuration={}))
    grow(log, 3)
    # The files are those of a store whose clock is ahead, a second apart.
    result = log.commit(change(3, TIMES))
    assert time_of(store, 4) == START + 3001 == result.snapshot.timestamp_ms
    assert configuration_of(store, 4) == {**TIMES, SINCE: "4", SINCE_MS: str(START + 3001)} == result.snapshot.metadata.configuration
    grow(log, 2)
    log.commit(change(6, {**TIMES, "k": "v"}))
    assert configuration_of(store, 7) == {**TIMES, SINCE: "4", SINCE_MS: str(START + 3001), "k": "v"}
    told = [None] * 4 + [START + 3001 + more for more in range(4)]
    assert [time_of(store, version) for version in range(8)] == told
    history = table_log(store).history()
    assert [entry.timestamp_ms for entry in reversed(history)] == [START, START + 1000, START + 2000, START + 3000, *told[4:]]


def test_turned_on_after_a_winner_it_tells_the_version_where_it_landed() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(configuration={}))
    log.snapshot()
    table_log(store).commit(append(0, "other"))
    log.commit(change(0, TIMES))
    assert (time_of(store, 1), time_of(store, 2)) == (None, START + 1001)
    assert configuration_of(store, 2) == {**TIMES, SINCE: "2", SINCE_MS: str(START + 1001)}


def test_an_append_follows_who_turned_it_on() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(configuration={}))
    log.snapshot()
    table_log(store, waits=Waits(START + 9000)).commit(change(0, BOTH))
    log.commit(append(0, "mine"))
    assert (time_of(store, 1), time_of(store, 2), ids_of(store, 2)) == (START + 9000, START + 9001, {"mine": (0, 2)})
    assert info_of(store, 2).tags == {"delta.rowTracking.preserved": "true"}


def test_turned_off_commits_hold_none(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.snapshot()
    table_log(store).commit(change(0, {}))
    log.commit(append(0, "a"))
    assert [time_of(store, version) for version in range(3)] == [START, None, None]
    assert log.snapshot().state.in_commit_timestamp is None


def test_time_travel_goes_by_the_commits_own_times() -> None:
    store, waits = clocked_store(), Waits()
    log = table_log(store, waits=waits)
    log.commit(creation(configuration={}))
    grow(log, 2)
    waits.now_ms = START + 10_000
    log.commit(change(2, TIMES))
    for _ in range(3):
        waits.now_ms += 10_000
        grow(log, 1)
    fresh = table_log(store)
    # By the files: 0, 1 and 2 s; by themselves 10 to 40 s, though their files are of 3 to 6 s.
    asked = {0: 0, 1500: 1, 2000: 2, 9999: 2, 10_000: 3, 19_999: 3, 20_000: 4, 35_000: 5, 40_000: 6}
    assert {after: fresh.version_at_timestamp(START + after) for after in asked} == asked


def test_a_log_that_held_an_older_version_learns_of_it_before_it_looks() -> None:
    store, waits = clocked_store(), Waits()
    log, stale = table_log(store, waits=waits), table_log(store)
    log.commit(creation(configuration={}))
    stale.snapshot()
    waits.now_ms = START + 10_000
    log.commit(change(0, TIMES))
    assert stale.version_at_timestamp(START + 5000) == 0


@pytest.mark.parametrize("with_commit", [True, False])
def test_a_version_that_is_a_checkpoint_has_its_own_time(store: MemoryLogStore, with_commit: bool) -> None:
    log = table_log(store, waits=Waits(START + 77))
    log.commit(append(0, "a"))
    log.checkpoint()
    if not with_commit:
        store.delete([commit_path(0), commit_path(1)])
    fresh = table_log(store, waits=Waits(START + 5))
    snapshot = fresh.snapshot()
    assert snapshot.state.in_commit_timestamp == (START + 77 if with_commit else None)
    if with_commit:
        assert snapshot.timestamp_ms == START + 77
        fresh.commit(append(1, "b"))
        assert time_of(store, 2) == START + 78


def test_a_plain_table_reads_no_commit_beside_its_checkpoint() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(configuration={}))
    log.commit(append(0, "a"))
    log.checkpoint()
    reads: list[str] = []

    def before(verb: str, path: str) -> None:
        if verb == "read":
            reads.append(path)

    table_log(FaultyLogStore(store, before)).snapshot()
    assert not [path for path in reads if path.endswith(".json")]


# row ids ------------------------------------------------------------------------------------------------------------------


def test_ids_come_back_from_a_checkpoint(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.commit(append(0, "a", "b"))
    log.commit(attempt(1, replace(removed("a"), extended_file_metadata=True), operation=delete(["x"]), reads=Reads(whole_table=True)))
    log.checkpoint()
    store.delete([commit_path(version) for version in range(3)])
    fresh = table_log(store)
    snapshot = fresh.snapshot()
    assert [(file.base_row_id, file.default_row_commit_version) for file in snapshot.add_files()] == [(1, 1)]
    assert [(file.base_row_id, file.default_row_commit_version) for file in snapshot.remove_actions()] == [(0, 1)]
    fresh.commit(append(2, "c"))
    assert ids_of(store, 3) == {"c": (2, 3)}


def test_turned_on_over_files_that_came_meanwhile_all_have_ids() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("a"), protocol=PLAIN, configuration={}))
    log.snapshot()
    table_log(store).commit(append(0, "b"))
    result = log.commit(change(0, ROWS, FEATURES))
    assert ids_of(store, 2) == {"a": (0, 2), "b": (1, 2)}
    assert info_of(store, 2).is_blind_append is False
    assert not result.snapshot.files["baseRowId"].null_count
    assert high_water_mark(result.snapshot) == 1


def test_turned_on_while_a_file_goes_it_does_not_come_back() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("a"), added("b"), protocol=PLAIN, configuration={}))
    before = log.snapshot()
    table_log(store).commit(deletion(0, "a"))
    log.commit(change(0, ROWS, FEATURES))
    assert ids_of(store, 2) == {"b": (0, 2)}
    # Who names the files itself is told.
    other = clocked_store()
    log = table_log(other)
    log.commit(creation(added("a"), added("b"), protocol=PLAIN, configuration={}))
    table_log(other).commit(deletion(0, "a"))
    with pytest.raises(ConcurrentDeleteDeleteException):
        log.commit(change(0, ROWS, FEATURES, *backfill(before)))
    assert log.snapshot().version == 1


@pytest.mark.parametrize("seen", [True, False])
def test_who_read_the_files_follows_who_gave_them_ids(seen: bool) -> None:
    """Files that were there are no new rows; and what removes one of them says its id."""
    store = clocked_store()
    log, other = table_log(store), table_log(store)
    log.commit(creation(added("a"), added("b"), configuration={}, protocol=PLAIN))
    other.commit(attempt(0, FEATURES, operation=UPGRADE))
    read = log.snapshot()
    assert read.version == 1
    other.commit(attempt(1, *backfill(read), operation=Operation(name="ROW TRACKING BACKFILL")))
    if seen:
        log.snapshot()
    log.commit(deletion(1, "a"))
    assert (ids_of(store, 2), ids_of(store, 3)) == ({"a": (0, 2), "b": (1, 2)}, {"a": (0, 2)})


def test_a_file_that_was_not_there_is_new_whatever_it_says() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("a")))
    read = log.snapshot()
    odd = [*(replace(file, data_change=False) for file in read.add_files()), replace(added("b"), data_change=False)]
    store.put_if_absent(commit_path(1), serialize_commit([CommitInfo(operation="ODD", in_commit_timestamp=START + 1), *odd]))
    log.snapshot()
    with pytest.raises(ConcurrentAppendException, match=r"added files that may hold such rows: b\. "):
        log.commit(deletion(0, "a"))
