"""Bugs of other projects that this one could have had, each under its number there.

Not here, with what brings them: delta 1410 and 1734 (a lock table in DynamoDB beside the log: the store for S3); delta-rs 3645, 3835, 3989
and 4290 (VACUUM) and 3392 (the change data feed after VACUUM).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.core.actions import AddFile
from lakelog.core.commit import CommitAttempt, Reads
from lakelog.core.commit_info import Operation, write
from lakelog.core.errors import ConcurrentAppendException, ConcurrentDeleteReadException, CorruptLogError, VersionNotFoundError
from lakelog.core.predicates import Column, Comparison, Literal
from lakelog.core.schema import PrimitiveType
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, LogStore, PutOutcome, Unknown
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing import Call, Fault, FaultInjectingLogStore, MemoryLogStore
from tests.storage.logs import (
    FaultyLogStore,
    Waits,
    added,
    append,
    attempt,
    checkpoint_path,
    clocked_store,
    commit_path,
    creation,
    deletion,
    grow,
    hint_path,
    keys,
    removed,
    table_log,
)

_DAY_MS = 24 * 3600 * 1000


def txn_ids(store: LogStore, versions: int) -> list[str]:
    return [json.loads(store.read(commit_path(version)).splitlines()[0])["commitInfo"]["txnId"] for version in range(versions)]


def ids(path: str, least: int, greatest: int) -> AddFile:
    stats = f'{{"numRecords":2,"minValues":{{"id":{least}}},"maxValues":{{"id":{greatest}}},"nullCount":{{"id":0}}}}'
    return replace(added(path), stats=stats)


def overwrite(read_version: int, below: int, old: str, new: AddFile) -> CommitAttempt:
    """Replaces the rows whose id is below a number, all of them in one file."""
    condition = Comparison("<", Column(("id",)), Literal(below, PrimitiveType("long")))
    reads = Reads(predicates=(condition,), files=pa.array([old], pa.string()))
    operation = write("overwrite", predicate=f"id < {below}")
    return attempt(read_version, removed(old), new, operation=operation, reads=reads)


def test_delta_rs_3622_of_two_overwrites_that_overlap_the_second_is_refused() -> None:
    store = clocked_store()
    table_log(store).commit(creation(ids("low", 0, 9), ids("high", 100, 109)))
    first, second = table_log(store), table_log(store)
    first.snapshot()
    second.snapshot()
    first.commit(overwrite(0, 10, "low", ids("first", 0, 5)))
    with pytest.raises((ConcurrentAppendException, ConcurrentDeleteReadException), match="version 1"):
        second.commit(overwrite(0, 8, "low", ids("second", 0, 7)))
    assert keys(table_log(store)) == {"first", "high"}


def test_delta_rs_3622_an_overwrite_of_everything_does_not_pass_over_an_append() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("old")))
    table_log(store).commit(append(0, "appended"))
    whole = attempt(0, removed("old"), added("new"), operation=write("overwrite"), reads=Reads(whole_table=True))
    with pytest.raises(ConcurrentAppendException, match="appended"):
        log.commit(whole)
    assert keys(table_log(store)) == {"old", "appended"}


def test_delta_rs_268_540_a_writer_that_is_suspended_inside_its_put_commits_once() -> None:
    """There a lock ran out in the pause, another writer finished the commit, and the first made it again one version on."""
    store = clocked_store()
    table_log(store).commit(creation())

    class Suspended(FaultyLogStore):
        late: tuple[str, bytes] | None = None

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if self.late is None and path == commit_path(1):
                self.late = (path, data)
                # The request arrives while nobody listens, the table goes on, and the writer wakes up to a broken connection.
                self.inner.put_if_absent(path, data)
                grow(table_log(self.inner), 3)
                return Unknown(ConnectionResetError("connection reset by peer"))
            return self.inner.put_if_absent(path, data)

    result = table_log(Suspended(store)).commit(append(0, "mine"))
    assert result.version == 1
    assert table_log(store).snapshot().version == 4
    assert len(set(txn_ids(store, 5))) == 5
    assert sum(b"mine" in store.read(commit_path(version)) for version in range(5)) == 1


def test_delta_rs_268_540_a_request_that_wakes_up_after_its_version_was_taken_replaces_nothing() -> None:
    store = clocked_store()
    table_log(store).commit(creation())
    sent: list[str] = []

    def late_and_overtaken(call: Call) -> Fault | None:
        if call.path == commit_path(1) and not sent:
            sent.append(call.verb)
            return Fault.LATE
        if call.verb == "read" and len(sent) == 1:
            sent.append(call.verb)
            table_log(store).commit(append(0, "other"))
        return None

    asleep = FaultInjectingLogStore(store, late_and_overtaken)
    log = table_log(asleep)
    assert log.commit(attempt(0, added("mine"))).version == 2
    asleep.settle()
    assert sent == ["put_if_absent", "read"]
    assert keys(table_log(store)) == {"mine", "other"}
    assert sum(b"mine" in store.read(commit_path(version)) for version in range(3)) == 1


class RetryingClient(FaultyLogStore):
    """As an SDK: the first answer is lost, it sends the same request again on its own, and hands on that the file exists."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.inner.put_if_absent(path, data)
        return self.inner.put_if_absent(path, data)


@pytest.mark.parametrize("mine", [append(0, "mine"), deletion(0, "old")], ids=["append", "delete"])
def test_trino_27388_27701_an_answer_that_a_client_library_lost_and_asked_for_again_is_no_conflict(mine: CommitAttempt) -> None:
    store = clocked_store()
    table_log(store).commit(creation(added("old")))
    assert table_log(RetryingClient(store)).commit(mine).version == 1
    assert table_log(store).snapshot().version == 1


def test_trino_27388_27701_a_true_conflict_behind_such_a_library_is_one() -> None:
    store = clocked_store()
    table_log(store).commit(creation(added("old")))
    log = table_log(RetryingClient(store))
    log.snapshot()
    table_log(store).commit(append(0, "other"))
    with pytest.raises(ConcurrentAppendException, match="version 1"):
        log.commit(deletion(0, "old"))


def test_hudi_14373_nothing_beside_the_commit_file_decides_who_has_won() -> None:
    """There the answer that a lock file had been made was lost, and its owner waited for itself."""
    store = clocked_store()
    table_log(store).commit(creation())
    before = {info.path for info in store.list_from(commit_path(0))}
    for version in range(3):
        table_log(RetryingClient(store)).commit(append(version, f"file-{version}"))
    after = {info.path for info in store.list_from(commit_path(0))}
    assert after - before == {commit_path(version) for version in (1, 2, 3)}


def test_delta_rs_3505_creators_that_meet_at_version_0_join(tmp_path: Path) -> None:
    root = f"{tmp_path}/a table"
    barrier = threading.Barrier(6)

    def create(name: int) -> int:
        log = TableLog(root, LocalLogStore())
        barrier.wait()
        return log.commit(replace(creation(added(f"file-{name}")), joins=True)).version

    with ThreadPoolExecutor(6) as pool:
        versions = sorted(pool.map(create, range(6)))
    assert versions == list(range(6))
    assert keys(TableLog(root, LocalLogStore())) == {f"file-{name}" for name in range(6)}


def aged_table(waits: Waits, commits: int) -> MemoryLogStore:
    """A table whose commits have all expired; checkpoints at every tenth version."""
    store = MemoryLogStore(lambda: waits.now_ms)
    log = table_log(store, waits=waits)
    log.commit(creation())
    grow(log, commits)
    waits.now_ms += 40 * _DAY_MS
    return store


@pytest.mark.parametrize("commits", [10, 15, 20, 25])
def test_delta_rs_2174_clean_up_keeps_the_newest_checkpoint(commits: int) -> None:
    waits = Waits()
    store = aged_table(waits, commits)
    newest = commits // 10 * 10
    assert table_log(store, waits=waits).clean_up()
    names = {info.path for info in store.list_from(commit_path(0))}
    assert checkpoint_path(newest) in names
    assert {commit_path(version) for version in range(newest, commits + 1)} <= names
    fresh = table_log(store, waits=waits)
    assert keys(fresh) == {f"file-{number}" for number in range(1, commits + 1)}
    assert table_log(store, waits=waits).clean_up() == []


@pytest.mark.parametrize("seen", [0, 3, 10, 14])
def test_delta_rs_3057_a_snapshot_held_over_a_clean_up_is_brought_up_to_date(seen: int) -> None:
    waits = Waits()
    store = MemoryLogStore(lambda: waits.now_ms)
    writer, holder = table_log(store, waits=waits), table_log(store, waits=waits)
    writer.commit(creation())
    if seen:
        grow(writer, seen)
    assert holder.snapshot().version == seen
    grow(writer, 15 - seen)
    waits.now_ms += 40 * _DAY_MS
    assert table_log(store, waits=waits).clean_up()
    snapshot = holder.snapshot()
    assert snapshot.version == 15
    assert set(snapshot.files["path"].to_pylist()) == {f"file-{number}" for number in range(1, 16)}
    assert holder.commit(append(15, "after")).version == 16
    with pytest.raises(VersionNotFoundError) as caught:
        table_log(store, waits=waits).snapshot(seen if seen < 10 else 5)
    assert (caught.value.earliest, caught.value.latest) == (10, 16)


def without_metadata(data: bytes) -> bytes:
    """A checkpoint that is good Parquet and no state of a table."""
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(table.filter(table["metaData"].is_null()), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-9], lambda data: data[:7], lambda data: b"x" * len(data), without_metadata],
    ids=["footer cut", "nearly empty", "overwritten", "no metadata"],
)
def test_delta_rs_2258_a_damaged_checkpoint_is_replaced_by_an_older_one_and_commits(damage: Callable[[bytes], bytes]) -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 23)
    # What only the older checkpoint can tell.
    store.delete([commit_path(version) for version in range(10)])
    store.put(checkpoint_path(20), damage(store.read(checkpoint_path(20))))
    assert keys(table_log(store)) == {f"file-{number}" for number in range(1, 24)}
    assert keys(table_log(store), 21) == {f"file-{number}" for number in range(1, 22)}
    assert table_log(store).commit(append(23, "more")).version == 24


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":"ten"}', b'{"version":10}}', b"\xff\xfe", b'{"version":30,"size":3}'])
def test_delta_rs_3297_a_hint_that_is_no_valid_json_or_wrong_is_survived(text: bytes) -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    store.put(hint_path(), text)
    assert keys(table_log(store)) == {f"file-{number}" for number in range(1, 13)}


def test_delta_rs_3297_a_commit_that_is_no_valid_json_matters_only_above_the_checkpoint() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    store.put(commit_path(5), b'{"add":')
    assert keys(table_log(store)) == {f"file-{number}" for number in range(1, 13)}
    store.put(commit_path(11), b'{"add":')
    with pytest.raises(CorruptLogError, match=r"0{18}11\.json"):
        table_log(store).snapshot()
    assert keys(table_log(store), 10) == {f"file-{number}" for number in range(1, 11)}


def compaction(read_version: int, *old: str, into: str) -> CommitAttempt:
    """Rows of several files in one, none of them changed."""
    removes = [replace(removed(path), data_change=False) for path in old]
    reads = Reads(files=pa.array(list(old), pa.string()))
    return attempt(read_version, *removes, replace(added(into), data_change=False), operation=Operation(name="OPTIMIZE"), reads=reads)


@pytest.mark.parametrize("fault", [None, Fault.LOST_ANSWER, Fault.LATE, Fault.DUPLICATE])
def test_delta_rs_1348_rows_are_compacted_once_whatever_the_store_answers(fault: Fault | None) -> None:
    """There a rename overwrote one of two commits of a version, and the rows of both were in the table."""
    store = clocked_store()
    table_log(store).commit(creation(added("a"), added("b")))
    unsure = FaultInjectingLogStore(store, lambda call: fault if call.verb == "put_if_absent" and len(puts(unsure)) == 1 else None)
    first, second = table_log(unsure), table_log(store)
    first.snapshot()
    second.snapshot()
    assert first.commit(compaction(0, "a", "b", into="first")).version == 1
    with pytest.raises(ConcurrentDeleteReadException):
        second.commit(compaction(0, "a", "b", into="second"))
    unsure.settle()
    assert second.commit(append(1, "c")).version == 2
    assert keys(table_log(store)) == {"first", "c"}


def puts(store: FaultInjectingLogStore) -> list[Call]:
    return [call for call in store.calls if call.verb == "put_if_absent"]


def test_delta_rs_1348_the_local_store_renames_over_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/_delta_log/{0:020d}.json"
    fsync = os.fsync
    others = iter([b"other"])

    def overtaken(descriptor: int) -> None:
        # Between the look and the link another writer takes the name.
        for data in others:
            assert LocalLogStore().put_if_absent(path, data) == Created()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", overtaken)
    assert LocalLogStore().put_if_absent(path, b"mine") == AlreadyExists()
    assert LocalLogStore().read(path) == b"other"
