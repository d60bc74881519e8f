"""What a read of changes asks the table log: the first version since a time, and the commits of a range."""

from __future__ import annotations

import pytest

from lakelog.core.errors import NotADeltaTableError, VersionNotFoundError
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.logs import ROOT, clocked_store, commit_path, creation, grow, table_log


@pytest.fixture
def store() -> MemoryLogStore:
    return clocked_store()


@pytest.fixture
def log(store: MemoryLogStore) -> TableLog:
    """Versions 0 to 12, a second apart, a checkpoint at 10."""
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    for version in range(13):
        store.set_modification_time(commit_path(version), 1000 * version)
    return log


def test_the_first_version_since_a_time(store: MemoryLogStore, log: TableLog) -> None:
    asked = {-5: 0, 0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, 12_000: 12, 12_001: None}
    assert {time: log.first_version_since(time) for time in asked} == asked
    for version in range(3):
        store.delete([commit_path(version)])
    assert log.first_version_since(0) == 3


def test_times_that_stand_still_are_made_to_grow(store: MemoryLogStore, log: TableLog) -> None:
    for version in range(13):
        store.set_modification_time(commit_path(version), 1000)
    assert [log.first_version_since(1000 + version) for version in range(13)] == list(range(13))
    assert [commit.timestamp_ms for commit in log.commits(3, 5)] == [1003, 1004, 1005]


def test_in_commit_timestamps_decide_where_the_table_has_them() -> None:
    store = MemoryLogStore()
    info = '{"commitInfo":{"inCommitTimestamp":%d}}'
    rest = (
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}\n'
        '{"metaData":{"id":"t","format":{"provider":"parquet"},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[]}",'
        '"partitionColumns":[],"configuration":{"delta.enableInCommitTimestamps":"true"}}}'
    )
    for version in range(4):
        text = info % (10_000 + 100 * version)
        store.put(commit_path(version), (f"{text}\n{rest}" if version == 0 else text).encode())
    log = table_log(store)
    assert [log.first_version_since(time) for time in (0, 10_000, 10_001, 10_300, 10_301)] == [0, 0, 1, 3, None]


def test_the_commits_of_a_range(store: MemoryLogStore, log: TableLog) -> None:
    found = list(log.commits(9, 12))
    assert [commit.version for commit in found] == [9, 10, 11, 12]
    assert [commit.data for commit in found] == [store.read(commit_path(version)) for version in range(9, 13)]
    assert [commit.timestamp_ms for commit in found] == [9000, 10_000, 11_000, 12_000]


def test_a_commit_that_is_not_there_is_named(store: MemoryLogStore, log: TableLog) -> None:
    for version in range(5):
        store.delete([commit_path(version)])
    for first, last, absent in ((4, 6, 4), (12, 13, 13)):
        with pytest.raises(VersionNotFoundError, match=rf"{ROOT}.*version {absent} is not in the log, those of versions 5 to 12") as caught:
            log.commits(first, last)
        assert (caught.value.asked, caught.value.earliest, caught.value.latest) == (absent, 5, 12)
    with pytest.raises(NotADeltaTableError):
        table_log(MemoryLogStore()).commits(0, 0)
