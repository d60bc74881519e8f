"""What core says takes a feature out of a table, committed to a log."""

from __future__ import annotations

import pytest

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.commit import NO_VERSION
from lakelog.core.commit_info import Operation
from lakelog.core.errors import DeltaConcurrentModificationException
from lakelog.core.feature_removal import removal
from lakelog.core.table_change import table_change
from lakelog.storage.table_log import TableLog
from tests.storage.logs import ROOT, SCHEMA, append, attempt, clocked_store, metadata, table_log

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)


def made(*, features: tuple[str, ...] = (), **properties: str) -> TableLog:
    wanted = metadata({f"delta.{key}": value for key, value in properties.items()})
    change = table_change(None, wanted, table=ROOT, new_uuid=lambda: "x", features=features)
    log = table_log(clocked_store())
    log.commit(attempt(NO_VERSION, *change.actions))
    log.commit(append(0, "a", "b"))
    return log


def drop(log: TableLog, feature: str) -> None:
    snapshot = log.snapshot()
    plan = removal(snapshot, feature)
    assert plan.before == ()
    log.commit(attempt(snapshot.version, *plan.actions, operation=Operation(name="DROP FEATURE")))


def test_times_in_commits_end_with_their_feature() -> None:
    log = made(enableInCommitTimestamps="true")
    drop(log, "inCommitTimestamp")
    log.commit(append(2, "c"))
    infos = [entry.commit_info for entry in reversed(log.history())]
    assert [info is not None and info.in_commit_timestamp is not None for info in infos] == [True, True, False, False]
    assert log.snapshot().protocol == PLAIN
    assert log.snapshot().metadata.configuration == {}
    assert log.version_at_timestamp(log.history()[1].timestamp_ms) == 2


def test_row_ids_end_with_their_feature_and_begin_again_with_it() -> None:
    log = made(enableRowTracking="true")
    assert log.snapshot().files["baseRowId"].to_pylist() == [0, 1]
    drop(log, "rowTracking")
    log.commit(append(2, "c"))
    assert log.snapshot().files["baseRowId"].to_pylist() == [None] * 3
    assert not log.snapshot().domains
    there = log.snapshot()
    change = table_change(there, there.metadata, table=ROOT, new_uuid=lambda: "y", features=("rowTracking",))
    log.commit(attempt(there.version, *change.actions))
    log.commit(append(4, "d"))
    ids = dict(zip(log.snapshot().files["path"].to_pylist(), log.snapshot().files["baseRowId"].to_pylist(), strict=True))
    assert ids["d"] == 0


@pytest.mark.parametrize("feature", ["checkConstraints", "columnMapping"])
def test_a_feature_that_comes_into_use_meanwhile_is_not_dropped(feature: str) -> None:
    """Both winners are such as an append may follow."""
    log = made(features=(feature,))
    there = log.snapshot()
    plan = removal(there, feature)
    used = {"checkConstraints": {"delta.constraints.c": "id > 0"}, "columnMapping": {"delta.columnMapping.mode": "name"}}[feature]
    change = table_change(there, Metadata(id="table", schema_string=SCHEMA, configuration=used), table=ROOT, new_uuid=lambda: "z")
    log.commit(attempt(there.version, *change.actions))
    with pytest.raises(DeltaConcurrentModificationException):
        log.commit(attempt(there.version, *plan.actions, operation=Operation(name="DROP FEATURE")))
    assert log.snapshot().version == there.version + 1
