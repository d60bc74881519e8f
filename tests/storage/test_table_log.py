from __future__ import annotations

import dataclasses
import threading

import pytest

from lakelog.core.commit_info import write
from lakelog.core.errors import (
    CorruptLogError,
    InvalidTablePropertyError,
    MissingCommitError,
    NotADeltaTableError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.counting import CountingLogStore
from tests.storage.logs import (
    ROOT,
    Waits,
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
    metadata,
    table_log,
)

NO_CHECKPOINTS = {"delta.checkpointInterval": "1000000"}


def file_names(*versions: int) -> set[str]:
    return {f"file-{version}" for version in versions}


@pytest.fixture
def store() -> MemoryLogStore:
    return clocked_store()


@pytest.fixture
def log(store: MemoryLogStore) -> TableLog:
    """Versions 0 to 12, a checkpoint at 10."""
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    return log


def test_every_version_reads_as_it_was(store: MemoryLogStore, log: TableLog) -> None:
    fresh = table_log(store)
    for version in range(13):
        snapshot = fresh.snapshot(version)
        assert snapshot.version == version
        assert keys(fresh, version) == file_names(*range(1, version + 1))
        assert (snapshot.num_files, snapshot.size_in_bytes) == (version, 10 * version)


def test_what_is_held_after_commits_equals_what_a_fresh_reader_replays(store: MemoryLogStore, log: TableLog) -> None:
    log.commit(deletion(12, "file-3", "file-11"))
    held, fresh = log.held, table_log(store).snapshot()
    assert held is not None
    assert held.version == fresh.version == 13
    assert sorted(held.files.to_pylist(), key=str) == sorted(fresh.files.to_pylist(), key=str)
    assert sorted(held.tombstones.to_pylist(), key=str) == sorted(fresh.tombstones.to_pylist(), key=str)
    assert (held.protocol, held.metadata) == (fresh.protocol, fresh.metadata)


def test_after_a_thousand_commits_one_more_costs_one_list_and_one_get() -> None:
    inner = clocked_store()
    writer = table_log(inner)
    writer.commit(creation(configuration=NO_CHECKPOINTS))
    grow(writer, 1000)
    store = CountingLogStore(inner)
    reader = table_log(store)
    assert reader.snapshot().version == 1000

    writer.commit(append(1000, "one-more"))
    store.reset()
    assert reader.refresh().version == 1001
    assert store.paths("GET") == [commit_path(1001)]
    # The listing starts at the held version, so that it does not grow with the log.
    assert store.paths("LIST") == [commit_path(1000).removesuffix(".json")]
    assert reader.snapshot().num_files == 1001


def test_an_unchanged_table_costs_one_list(store: MemoryLogStore, log: TableLog) -> None:
    counting = CountingLogStore(store)
    reader = table_log(counting)
    first = reader.snapshot()
    counting.reset()
    assert reader.snapshot() is first
    assert (counting.count("LIST"), counting.count("GET")) == (1, 0)


def test_an_uncontended_commit_is_one_put_and_no_read(store: MemoryLogStore, log: TableLog) -> None:
    counting = CountingLogStore(store)
    writer = table_log(counting)
    writer.snapshot()
    counting.reset()
    result = writer.commit(append(12, "x"))
    assert counting.paths("PUT") == [commit_path(13)]
    assert (counting.count("GET"), counting.count("LIST")) == (0, 0)
    assert result.snapshot.num_files == 13


def test_a_load_starts_from_the_hinted_checkpoint(store: MemoryLogStore, log: TableLog) -> None:
    counting = CountingLogStore(store)
    assert table_log(counting).snapshot().version == 12
    assert counting.paths("GET") == sorted([hint_path(), checkpoint_path(10), commit_path(11), commit_path(12)])
    assert counting.paths("LIST") == [commit_path(10).removesuffix(".json")]


@pytest.mark.parametrize(
    "hint",
    [
        None,
        b"",
        b"{",
        b'{"version":10,"size":3,"checksum":"00000000000000000000000000000000"}',
        LastCheckpoint(version=7, size=3).to_bytes(),
        LastCheckpoint(version=999, size=3).to_bytes(),
        LastCheckpoint(version=10, size=3, parts=4).to_bytes(),
        LastCheckpoint(version=2**63 - 1, size=3).to_bytes(),
    ],
    ids=["missing", "empty", "torn", "bad checksum", "no checkpoint there", "beyond the log", "parts that are not there", "beyond all"],
)
def test_a_hint_that_is_missing_damaged_or_wrong_only_costs_a_listing(store: MemoryLogStore, log: TableLog, hint: bytes | None) -> None:
    store.delete([hint_path()])
    if hint is not None:
        store.put(hint_path(), hint)
    fresh = table_log(store)
    assert keys(fresh) == file_names(*range(1, 13))
    assert keys(fresh, 11) == file_names(*range(1, 12))


@pytest.mark.parametrize("damage", ["torn", "empty", "gone", "garbage", "another table"])
def test_a_checkpoint_that_cannot_be_read_is_passed_over_for_an_older_one_and_at_last_for_the_commits(
    store: MemoryLogStore, log: TableLog, damage: str
) -> None:
    grow(log, 8)
    whole = store.read(checkpoint_path(20))
    damaged = {"torn": whole[: len(whole) // 2], "empty": b"", "garbage": b"PAR1" + b"x" * 100 + b"PAR1", "another table": b"{}"}

    def spoil(version: int) -> None:
        store.delete([checkpoint_path(version)])
        if damage != "gone":
            store.put(checkpoint_path(version), damaged[damage])

    spoil(20)
    counting = CountingLogStore(store)
    assert keys(table_log(counting)) == file_names(*range(1, 21))
    assert counting.count("GET", checkpoint_path(10)) == 1
    assert counting.count("GET", commit_path(10)) == 0
    spoil(10)
    counting = CountingLogStore(store)
    assert keys(table_log(counting)) == file_names(*range(1, 21))
    assert counting.count("GET", commit_path(0)) == 1


def test_a_checkpoint_that_is_needed_and_cannot_be_read_is_named(store: MemoryLogStore, log: TableLog) -> None:
    store.put(checkpoint_path(10), b"PAR1 but no more")
    store.delete([commit_path(3)])
    with pytest.raises(CorruptLogError, match=r"Delta table /tables/t: the checkpoint 0{18}10\.checkpoint\.parquet cannot be .*Restore"):
        table_log(store).snapshot()


def test_time_travel_below_a_cleaned_up_log_names_what_is_there(store: MemoryLogStore, log: TableLog) -> None:
    store.delete([commit_path(version) for version in range(10)])
    fresh = table_log(store)
    assert keys(fresh, 10) == file_names(*range(1, 11))
    for asked in (9, 13, -1):
        with pytest.raises(VersionNotFoundError, match="10 to 12") as caught:
            fresh.snapshot(asked)
        assert (caught.value.asked, caught.value.earliest, caught.value.latest) == (asked, 10, 12)


def test_a_missing_commit_is_named(store: MemoryLogStore, log: TableLog) -> None:
    store.delete([commit_path(11)])
    with pytest.raises(MissingCommitError, match=r"/tables/t lacks 0{18}11\.json.*restore"):
        table_log(store).snapshot()


def test_a_damaged_commit_is_named(store: MemoryLogStore, log: TableLog) -> None:
    store.put(commit_path(12), store.read(commit_path(12))[:-20])
    with pytest.raises(CorruptLogError, match=r"Delta table /tables/t: /tables/t/_delta_log/0{18}12\.json, line 2: .*restore"):
        table_log(store).snapshot()
    assert table_log(store).snapshot(11).version == 11


def test_a_log_without_metadata_describes_no_table() -> None:
    store = MemoryLogStore()
    store.put(commit_path(0), b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    with pytest.raises(CorruptLogError, match=r"Delta table /tables/t: .* no metaData action.*Restore"):
        table_log(store).snapshot()


def test_a_path_without_a_log_is_no_table() -> None:
    store = MemoryLogStore()
    log = table_log(store)
    assert not log.exists()
    for ask in (log.snapshot, log.history, lambda: log.version_at_timestamp(0)):
        with pytest.raises(NotADeltaTableError, match="/tables/t is no Delta table"):
            ask()
    store.put(f"{ROOT}/_delta_log/_last_vacuum_info", b"{}")
    assert not log.exists()


def test_a_damaged_table_exists(store: MemoryLogStore, log: TableLog) -> None:
    assert log.exists()
    store.delete([checkpoint_path(10), commit_path(0)])
    assert log.exists()


def test_a_reader_feature_that_is_not_implemented_is_refused_by_name(store: MemoryLogStore) -> None:
    protocol = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["novelty"],"writerFeatures":["novelty"]}}\n'
    table_log(store).commit(creation())
    store.put(commit_path(1), protocol)
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table_log(store).snapshot()


def test_a_table_made_anew_at_the_same_path_is_noticed(store: MemoryLogStore, log: TableLog) -> None:
    store.delete([info.path for info in store.list_from(f"{ROOT}/_delta_log/")])
    with pytest.raises(NotADeltaTableError):
        log.snapshot()
    other = table_log(store)
    other.commit(creation())
    grow(other, 12)
    reader = table_log(store)
    reader.snapshot()
    store.delete([info.path for info in store.list_from(f"{ROOT}/_delta_log/")])
    other = table_log(store)
    other.commit(creation())
    for version in range(13):
        other.commit(append(version, f"new-{version}"))
    assert {path.partition("-")[0] for path in keys(reader)} == {"new"}


def test_a_table_made_anew_over_our_own_commit_is_noticed(store: MemoryLogStore) -> None:
    mine = table_log(store)
    mine.commit(creation())
    mine.commit(append(0, "file-of-the-first-table"))
    store.delete([info.path for info in store.list_from(f"{ROOT}/_delta_log/")])
    other = table_log(store)
    other.commit(creation())
    other.commit(append(0, "new"))
    assert keys(mine) == {"new"}


def test_commits_that_were_cleaned_up_while_a_snapshot_was_held_are_read_from_the_checkpoint(store: MemoryLogStore, log: TableLog) -> None:
    reader = table_log(store)
    reader.snapshot()
    grow(log, 10)
    store.delete([commit_path(version) for version in range(20)])
    assert keys(reader) == file_names(*range(1, 23))


def test_properties_that_change_take_effect_with_the_version_that_changes_them(store: MemoryLogStore, log: TableLog) -> None:
    log.commit(attempt(12, metadata({"delta.checkpointInterval": "3"})))
    grow(log, 3)
    assert log.snapshot().version == 16
    assert [version for version in range(17) if _exists(store, checkpoint_path(version))] == [10, 15]


def test_history_is_newest_first_with_times_that_grow(store: MemoryLogStore, log: TableLog) -> None:
    log.commit(attempt(12, operation=write("append"), user_metadata="why not"))
    for version in range(14):
        store.set_modification_time(commit_path(version), 5000)
    entries = log.history(3)
    assert [entry.version for entry in entries] == [13, 12, 11]
    assert [entry.timestamp_ms for entry in entries] == [5013, 5012, 5011]
    info = entries[0].commit_info
    assert info is not None
    assert (info.operation, info.user_metadata, info.read_version, info.engine_info) == ("WRITE", "why not", 12, "lakelog/test")
    assert len(log.history()) == 14


def test_history_of_a_commit_without_commit_info(store: MemoryLogStore, log: TableLog) -> None:
    store.put(commit_path(13), b'{"txn":{"appId":"\\"commitInfo\\"","version":1}}\n')
    assert log.history(1)[0].commit_info is None


def test_a_time_finds_the_version_that_was_newest_then(store: MemoryLogStore, log: TableLog) -> None:
    for version in range(13):
        store.set_modification_time(commit_path(version), 1000 * version)
    assert log.version_at_timestamp(0) == 0
    assert log.version_at_timestamp(3999) == 3
    assert log.version_at_timestamp(4000) == 4
    assert log.version_at_timestamp(12_000) == 12
    for beyond, side in ((-1, "before the earliest"), (12_001, "after the latest")):
        with pytest.raises(VersionNotFoundError, match=side) as caught:
            log.version_at_timestamp(beyond)
        assert (caught.value.earliest, caught.value.latest) == (0, 12)


def test_in_commit_timestamps_decide_where_the_table_has_them() -> None:
    store = MemoryLogStore()
    lines = [
        '{"commitInfo":{"inCommitTimestamp":%d}}',
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}',
        '{"metaData":{"id":"t","format":{"provider":"parquet"},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[]}",'
        '"partitionColumns":[],"configuration":{"delta.enableInCommitTimestamps":"true"}}}',
    ]
    for version in range(8):
        chosen = lines if version == 0 else lines[:1]
        store.put(commit_path(version), ("\n".join(chosen) % (10_000 + 100 * version)).encode())
    log = table_log(store)
    assert log.snapshot().timestamp_ms == 10_700
    assert [log.version_at_timestamp(10_000 + 100 * version + 99) for version in range(7)] == list(range(7))
    assert log.version_at_timestamp(10_700) == 7
    for beyond in (9_999, 10_701):
        with pytest.raises(VersionNotFoundError):
            log.version_at_timestamp(beyond)
    assert [entry.timestamp_ms for entry in log.history(2)] == [10_700, 10_600]


def test_threads_share_a_log(store: MemoryLogStore, log: TableLog) -> None:
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(10):
                log.commit(append(log.snapshot().version, f"t{name}-{number}"))
        except BaseException as error:  # a thread's error would otherwise be lost
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert log.snapshot().version == 52
    assert keys(table_log(store)) == keys(log)
    assert log.snapshot().num_files == 52


def test_tombstones_leave_the_snapshot_once_their_retention_has_passed(store: MemoryLogStore, log: TableLog) -> None:
    waits = Waits()
    log.commit(deletion(12, "file-1"))
    assert table_log(store, waits=waits).snapshot().tombstones.num_rows == 1
    waits.now_ms += 7 * 24 * 3600 * 1000 + 1
    assert table_log(store, waits=waits).snapshot().tombstones.num_rows == 0


def test_a_snapshot_cannot_be_changed(log: TableLog) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        log.snapshot().root = "/elsewhere"  # type: ignore[misc]


def _exists(store: MemoryLogStore, path: str) -> bool:
    return path in {info.path for info in store.list_from(path)}


def test_a_table_of_equal_shape_swapped_in_over_our_own_commit_is_noticed(store: MemoryLogStore) -> None:
    mine = table_log(store)
    mine.commit(creation())
    mine.commit(append(0, "file-of-mine"))
    store.delete([info.path for info in store.list_from(f"{ROOT}/_delta_log/")])
    other = table_log(store)
    other.commit(creation())
    other.commit(append(0, "file-others!"))
    assert keys(mine) == {"file-others!"}
    assert keys(mine) == {"file-others!"}


def test_a_commit_file_without_a_byte_is_no_commit(store: MemoryLogStore, log: TableLog) -> None:
    store.put(commit_path(12), b"")
    with pytest.raises(CorruptLogError, match="empty"):
        table_log(store).snapshot()


@pytest.mark.parametrize("text", ["x", "-1", "9" * 5000])
def test_an_enablement_version_that_is_none_is_told_in_few_words(store: MemoryLogStore, text: str) -> None:
    table_log(store).commit(creation(configuration={"delta.inCommitTimestampEnablementVersion": text}))
    turned_on = store.read(commit_path(0)).replace(b'"configuration":{', b'"configuration":{"delta.enableInCommitTimestamps":"true",')
    store.put(commit_path(0), turned_on)
    with pytest.raises(InvalidTablePropertyError, match="not a version") as caught:
        table_log(store).version_at_timestamp(1_700_000_000_000)
    assert len(str(caught.value)) < 500


def test_a_partition_column_that_the_schema_lacks_makes_no_table(store: MemoryLogStore) -> None:
    bad = dataclasses.replace(metadata(), partition_columns=("gone",))
    with pytest.raises(CorruptLogError, match=r"partition columns \['gone'\], which the schema does not have"):
        table_log(store).commit(dataclasses.replace(creation(), actions=(creation().actions[0], bad)))
