from __future__ import annotations

import logging
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.core.actions import AddFile, DomainMetadata, Metadata, Protocol, SetTransaction
from lakelog.core.commit import NO_VERSION
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError, LakelogError
from lakelog.core.last_checkpoint import LastCheckpoint, json_checksum
from lakelog.core.log_files import MultiPartCheckpoint
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import PutOutcome
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.counting import CountingLogStore
from tests.storage.logs import (
    FaultyLogStore,
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

DAY = 24 * 3600 * 1000


def test_a_checkpoint_every_interval_and_never_at_version_0() -> None:
    store = CountingLogStore(clocked_store())
    log = table_log(store)
    log.commit(creation(configuration={"delta.checkpointInterval": "4"}))
    grow(log, 9)
    assert [path for path in store.paths("PUT") if path.endswith("parquet")] == [checkpoint_path(4), checkpoint_path(8)]
    text = store.read(hint_path())
    hint = LastCheckpoint.from_bytes(text)
    assert (hint.version, hint.size, hint.num_of_add_files) == (8, 10, 8)
    assert hint.size_in_bytes == len(store.read(checkpoint_path(8)))
    assert json_checksum(text.decode()) in text.decode()


@pytest.mark.parametrize("failing", ["checkpoint.parquet", "_last_checkpoint", "list_from", "delete"])
def test_what_fails_after_a_commit_never_fails_it(failing: str, caplog: pytest.LogCaptureFixture) -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 9)
    waits = Waits()

    def fail(verb: str, path: str) -> PutOutcome | None:
        if path.endswith(failing) or verb == failing:
            raise OSError(f"{verb} is broken")
        return None

    broken = FaultyLogStore(store)
    log = table_log(broken, waits=waits)
    log.snapshot()
    broken.before = fail
    waits.now_ms += 100 * DAY if failing == "delete" else 0
    if failing == "delete":
        # Otherwise a writer that has not looked for so long looks first.
        log.snapshot()
    with caplog.at_level(logging.WARNING):
        assert log.commit(append(9, "file-10")).version == 10
    if failing != "delete":
        assert "version 10 is committed" in caplog.text
        assert "is broken" in caplog.text
    assert keys(table_log(store)) == {f"file-{number}" for number in range(1, 11)}


def test_an_interrupt_after_the_commit_does_not_pass_for_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    store = clocked_store()

    def interrupt(verb: str, path: str) -> PutOutcome | None:
        if path.endswith("checkpoint.parquet"):
            raise KeyboardInterrupt
        return None

    log = table_log(FaultyLogStore(store, interrupt))
    log.commit(creation())
    assert grow(log, 10).version == 10
    assert "version 10 is committed" in caplog.text


def test_an_unreadable_property_fails_no_commit_that_has_landed(caplog: pytest.LogCaptureFixture) -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(configuration={"delta.checkpointInterval": "often"}))
    assert "delta.checkpointInterval is 'often'" in caplog.text
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.checkpointInterval is 'often'.*SET TBLPROPERTIES"):
        grow(log, 1)
    assert log.refresh().version == 0


def test_clean_up_deletes_what_a_kept_checkpoint_makes_superfluous() -> None:
    waits = Waits()
    store = MemoryLogStore(lambda: waits.now_ms)
    log = table_log(store, waits=waits)
    log.commit(creation())
    grow(log, 15)
    waits.now_ms += 40 * DAY
    deleted = log.clean_up()
    assert sorted(deleted) == [f"{version:020d}.json" for version in range(10)]
    assert log.clean_up() == []
    fresh = table_log(store, waits=waits)
    assert keys(fresh) == {f"file-{number}" for number in range(1, 16)}
    assert keys(fresh, 10) == {f"file-{number}" for number in range(1, 11)}


def test_clean_up_leaves_the_history_below_a_checkpoint_that_cannot_be_read() -> None:
    waits = Waits()
    store = MemoryLogStore(lambda: waits.now_ms)
    log = table_log(store, waits=waits)
    log.commit(creation())
    grow(log, 15)
    store.put(checkpoint_path(10), store.read(checkpoint_path(10))[:100])
    waits.now_ms += 40 * DAY
    assert log.clean_up() == []
    assert keys(table_log(store, waits=waits), 3) == {"file-1", "file-2", "file-3"}


def test_a_writer_that_waited_does_not_land_in_a_gap_that_clean_up_left() -> None:
    waits = Waits(1_700_000_000_000 // DAY * DAY - 20 * 60_000)
    store = MemoryLogStore(lambda: waits.now_ms)
    waiting, other = table_log(store, waits=waits), table_log(store, waits=waits)
    waiting.commit(creation(configuration={"delta.logRetentionDuration": "interval 0 seconds"}))
    grow(other, 11)
    waits.now_ms += 25 * 60_000
    grow(other, 19)
    with pytest.raises(LakelogError, match=r"listed and is gone|landed after version 0"):
        waiting.commit(append(0, "late"))
    fresh = table_log(store, waits=waits)
    assert (fresh.snapshot().version, "late" in keys(fresh)) == (30, False)
    waiting.commit(append(30, "late"))
    assert "late" in keys(fresh)


def test_clean_up_leaves_a_table_alone_whose_checkpoints_are_protected() -> None:
    waits = Waits()
    store = MemoryLogStore(lambda: waits.now_ms)
    log = table_log(store, waits=waits)
    log.commit(creation())
    grow(log, 11)
    store.put(commit_path(12), b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["checkpointProtection"]}}')
    waits.now_ms += 40 * DAY
    assert log.clean_up() == []


@pytest.mark.parametrize(("wanted", "left"), [("true", 10), ("false", 0)])
def test_clean_up_follows_a_checkpoint_when_the_table_wants_it(wanted: str, left: int) -> None:
    waits = Waits()
    store = MemoryLogStore(lambda: waits.now_ms)
    log = table_log(store, waits=waits)
    log.commit(creation(configuration={"delta.enableExpiredLogCleanup": wanted}))
    grow(log, 12)
    waits.now_ms += 40 * DAY
    for version in range(13, 21):
        log.commit(append(version - 1, f"file-{version}"))
    oldest = min(info.path for info in store.list_from(commit_path(0)))
    assert oldest == min(commit_path(left), checkpoint_path(left) if left else commit_path(left))


def test_all_parts_of_a_multi_part_checkpoint_are_read_and_a_part_that_is_torn_spoils_it() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    table = pq.read_table(pa.BufferReader(store.read(checkpoint_path(10))))
    store.delete([checkpoint_path(10), hint_path()])
    folder = checkpoint_path(10).rpartition("/")[0]
    parts = [f"{folder}/{MultiPartCheckpoint(10, part, 3).name}" for part in (1, 2, 3)]
    for number, path in enumerate(parts):
        sink = pa.BufferOutputStream()
        pq.write_table(table.slice(number * 4, 4), sink)
        store.put(path, sink.getvalue().to_pybytes())
    counting = CountingLogStore(store)
    assert keys(table_log(counting)) == {f"file-{number}" for number in range(1, 13)}
    assert counting.count("GET", commit_path(10)) == 0
    store.put(parts[1], store.read(parts[1])[:-9])
    assert keys(table_log(store)) == {f"file-{number}" for number in range(1, 13)}
    store.delete([commit_path(0)])
    with pytest.raises(CorruptLogError, match=r"0{18}10\.checkpoint\.0{9}2\.0{9}3\.parquet"):
        table_log(store).snapshot()


def test_a_store_that_cannot_be_read_is_not_taken_for_a_damaged_checkpoint() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 10)

    def fail(verb: str, path: str) -> PutOutcome | None:
        if verb == "read" and path == checkpoint_path(10):
            raise PermissionError("not yours")
        return None

    with pytest.raises(PermissionError):
        table_log(FaultyLogStore(store, fail)).snapshot()


def data_file(folder: Path, name: str, values: list[int]) -> AddFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), path)
    stats = f'{{"numRecords":{len(values)},"minValues":{{"id":{min(values)}}},"maxValues":{{"id":{max(values)}}},"nullCount":{{"id":0}}}}'
    return AddFile(
        path=name.replace(" ", "%20"), partition_values={}, size=path.stat().st_size, modification_time=1, data_change=True, stats=stats
    )


@pytest.mark.parametrize("with_stats", [True, False])
def test_deltalake_reads_our_checkpoints(tmp_path: Path, with_stats: bool) -> None:
    root = tmp_path / "a table"
    log = TableLog(str(root), LocalLogStore())
    off = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "false"}
    log.commit(creation(configuration={} if with_stats else off))
    for version in range(1, 10):
        log.commit(attempt(version - 1, data_file(root, f"part {version}.parquet", [version, 10 * version])))
    log.commit(deletion(9, "part%203.parquet"))
    log.commit(attempt(10, SetTransaction(app_id="stream", version=7, last_updated=1)))
    log.checkpoint()
    # With the commits gone, only the checkpoint can answer.
    for version in range(11):
        Path(commit_path(version, str(root))).unlink()
    table = deltalake.DeltaTable(str(root))
    assert table.version() == 11
    rows = [value for version in (1, 2, 4, 5, 6, 7, 8, 9) for value in (version, 10 * version)]
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == sorted(rows)
    assert table.transaction_version("stream") == 7
    assert len(table.get_add_actions()) == 8


def test_we_read_deltalakes_checkpoints(tmp_path: Path) -> None:
    for value in range(12):
        rows = pa.table({"id": pa.array([value], pa.int64()), "p": pa.array([f"a b/{value % 3}"])})
        deltalake.write_deltalake(str(tmp_path), rows, mode="append", partition_by=["p"])
    table = deltalake.DeltaTable(str(tmp_path))
    table.delete("id = 4")
    table.create_checkpoint()
    for version in range(table.version()):
        Path(commit_path(version, str(tmp_path))).unlink()
    snapshot = TableLog(str(tmp_path), LocalLogStore()).snapshot()
    adds = pa.table(table.get_add_actions(flatten=True))
    assert sorted(snapshot.files["size"].to_pylist()) == sorted(adds["size_bytes"].to_pylist())
    assert snapshot.partition_columns == ("p",)
    assert snapshot.tombstones.num_rows == 1
    assert {add.partition_values["p"] for add in snapshot.add_files([0, 1, 2, 3, 4, 5])} <= {f"a b/{number}" for number in range(3)}
    assert all('"numRecords":1' in (add.stats or "") for add in snapshot.add_files())


def test_domains_and_metadata_survive_a_checkpoint(tmp_path: Path) -> None:
    log = TableLog(str(tmp_path), LocalLogStore())
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",))
    log.commit(attempt(NO_VERSION, listed, metadata({"delta.checkpointInterval": "2"})))
    full: Metadata = metadata({"k": "v", "delta.checkpointInterval": "2"}, name="n", description="é")
    log.commit(attempt(0, full, DomainMetadata(domain="d", configuration="x", removed=False)))
    log.commit(append(1, "a"))
    Path(commit_path(0, str(tmp_path))).unlink()
    Path(commit_path(1, str(tmp_path))).unlink()
    snapshot = TableLog(str(tmp_path), LocalLogStore()).snapshot()
    assert snapshot.metadata == full
    assert set(snapshot.domains) == {"d"}
