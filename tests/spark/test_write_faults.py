"""Writes and deletes that fail: the table is as it was, readers see nothing, and files go only where the outcome is known."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from lakelog.core.errors import CommitOutcomeUnknown, ConcurrentDeleteReadException, LakelogError, TransactionActiveError, WriteFailedError
from lakelog.spark import arrow_write, data_files
from lakelog.spark import delete as delete_module
from lakelog.spark import write as write_module
from lakelog.spark.session import context_of
from lakelog.storage import configure
from lakelog.storage.log_store import AlreadyExists, Created, LogStore, PutOutcome, Unknown
from tests.spark.tables import info, latest, of_kind, parquet_files, rows, save, versions
from tests.storage.faults import FaultyLogStore

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

Attempt = Callable[[SparkSession, str], None]


def append(spark: SparkSession, table: str) -> None:
    save(spark.range(100, 103), table)


def overwrite(spark: SparkSession, table: str) -> None:
    save(spark.range(100, 103), table, "overwrite")


def delete_rows(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")


ATTEMPTS = [append, overwrite, delete_rows]


@pytest.fixture
def table(delta: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "the table")
    save(delta.range(10), path)
    return path


@pytest.fixture
def faulty(delta: SparkSession, table: str) -> Iterator[type[FaultyLogStore]]:
    """The table's log behind a store of the test's own."""
    configure({"file": {"logstore.class": f"{FaultyLogStore.__module__}.FaultyLogStore"}})
    context_of(delta).logs.forget(table)
    yield FaultyLogStore
    FaultyLogStore.put_of_test = None
    configure({"file": {}})
    context_of(delta).logs.forget(table)


def untouched(spark: SparkSession, table: str) -> bool:
    """Version 0 alone, its rows, and no file beside those of the log."""
    assert versions(table) == [0]
    assert rows(spark, table) == [(i,) for i in range(10)]
    return [file.name for file in parquet_files(table)] == [Path(str(add["path"])).name for add in of_kind(table, "add", 0)]


# the job fails -------------------------------------------------------------------------------------------------------


def fails_at_the_end(value: int) -> int:
    if value == 2_999:
        raise RuntimeError("the value is not wanted")
    return value


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_task_that_raises(delta: SparkSession, table: str, mode: str) -> None:
    frame = delta.range(0, 3_000, 1, 1).select(F.udf(lambda value: fails_at_the_end(value), LongType())("id").alias("id"))
    with pytest.raises(PythonException, match="the value is not wanted"):
        frame.write.format("delta").mode(mode).option("maxRecordsPerFile", 300).save(table)
    assert untouched(delta, table)


def test_a_task_that_raises_while_a_table_is_made(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    frame = delta.range(0, 3_000, 1, 1).select(F.udf(lambda value: fails_at_the_end(value), LongType())("id").alias("id"))
    with pytest.raises(PythonException, match="the value is not wanted"):
        frame.write.format("delta").save(path)
    assert (versions(path), parquet_files(path)) == ([], [])
    delta.range(2).write.format("delta").save(path)
    assert rows(delta, path) == [(0,), (1,)]


def test_a_condition_that_raises(delta: SparkSession, table: str) -> None:
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        delta.sql(f"DELETE FROM delta.`{table}` WHERE 1 / (id - 7) > 0")
    assert untouched(delta, table)


def test_a_full_disk(delta: SparkSession, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        path = str(disk / "table")
        save(delta.range(10), path)
        big = delta.range(0, 2_000_000, 1, 1).selectExpr("id * 7919 AS id")
        with pytest.raises(WriteFailedError, match="No space left"):
            big.write.format("delta").mode("append").option("compression", "none").save(path)
        assert untouched(delta, path)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def cancel_when_running(spark: SparkSession, table: str, files_before: int) -> threading.Thread:
    """Cancels all jobs as soon as a task has begun a file."""

    def run() -> None:
        waiting = threading.Event()
        while len(list(Path(table).glob("*.parquet"))) <= files_before and not waiting.wait(0.02):
            pass
        spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_cancelled_job(delta: SparkSession, table: str) -> None:
    thread = cancel_when_running(delta, table, 1)
    endless = delta.range(0, 1 << 45, 1, 2).selectExpr("id * 7919 AS id")
    with pytest.raises(WriteFailedError, match="cancelled"):
        endless.write.format("delta").mode("append").option("maxRecordsPerFile", 50_000).save(table)
    thread.join()
    assert versions(table) == [0]
    assert rows(delta, table) == [(i,) for i in range(10)]


# between writing and committing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("error", [OSError("the footer cannot be read"), KeyboardInterrupt("stop")])
def test_a_footer_that_cannot_be_read(
    delta: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, attempt: Attempt, error: BaseException
) -> None:
    def unreadable(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(data_files, "read_footers", unreadable)
    monkeypatch.setattr(arrow_write, "_file", unreadable)
    with pytest.raises(type(error), match=str(error)):
        attempt(delta, table)
    assert untouched(delta, table)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_error_between_writing_and_committing(
    delta: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, attempt: Attempt
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of ideas")

    for module in (write_module, delete_module):
        monkeypatch.setattr(module, "user_metadata", broken)
    with pytest.raises(RuntimeError, match="out of ideas"):
        attempt(delta, table)
    monkeypatch.undo()
    assert untouched(delta, table)


# the store -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_store_that_refuses(delta: SparkSession, table: str, faulty: type[FaultyLogStore], attempt: Attempt) -> None:
    def refuse(_store: LogStore, _path: str, _data: bytes) -> PutOutcome:
        raise OSError(28, "No space left on device")

    faulty.put_of_test = staticmethod(refuse)
    with pytest.raises(OSError, match="No space left on device"):
        attempt(delta, table)
    assert untouched(delta, table)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_answer_that_was_lost_is_settled(delta: SparkSession, table: str, faulty: type[FaultyLogStore], attempt: Attempt) -> None:
    def lost(store: LogStore, path: str, data: bytes) -> PutOutcome:
        store.put_if_absent(path, data)
        return Unknown(ConnectionResetError("reset by peer"))

    faulty.put_of_test = staticmethod(lost)
    attempt(delta, table)
    faulty.put_of_test = None
    assert versions(table) == [0, 1]
    left = {append: [*range(10), 100, 101, 102], overwrite: [100, 101, 102], delete_rows: [0, 1, 2, 4, 5, 6, 7, 8, 9]}[attempt]
    assert sorted(int(str(row[0])) for row in rows(delta, table)) == left


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_request_that_got_lost_is_repeated(delta: SparkSession, table: str, faulty: type[FaultyLogStore], attempt: Attempt) -> None:
    asked: list[str] = []

    def lost_once(store: LogStore, path: str, data: bytes) -> PutOutcome:
        asked.append(path)
        return Unknown(TimeoutError("no answer")) if len(asked) == 1 else store.put_if_absent(path, data)

    faulty.put_of_test = staticmethod(lost_once)
    attempt(delta, table)
    assert (versions(table), len(asked)) == ([0, 1], 2)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_files_stay_while_the_outcome_is_unknown(
    delta: SparkSession, table: str, faulty: type[FaultyLogStore], monkeypatch: pytest.MonkeyPatch, attempt: Attempt
) -> None:
    late: list[tuple[str, bytes]] = []

    def late_answer(_store: LogStore, path: str, data: bytes) -> PutOutcome:
        late.append((path, data))
        return Unknown(TimeoutError("no answer"))

    monkeypatch.setattr("lakelog.storage.commit_loop._SETTLE_DELAY_S", 0.0)
    faulty.put_of_test = staticmethod(late_answer)
    with pytest.raises(CommitOutcomeUnknown, match=r"the table: nobody can tell whether version 1 was committed.*The data files stay"):
        attempt(delta, table)
    assert versions(table) == [0]
    assert rows(delta, table) == [(i,) for i in range(10)]
    assert len(parquet_files(table)) == 2
    # The request arrives after all: every file that it names is there.
    path, data = late[0]
    Path(path).write_bytes(data)
    assert all((Path(table) / str(add["path"])).is_file() for add in of_kind(table, "add"))
    assert len(rows(delta, table)) == {append: 13, overwrite: 3, delete_rows: 9}[attempt]


@pytest.mark.parametrize("landed", [True, False])
def test_a_store_that_raises_what_it_must_not(delta: SparkSession, table: str, faulty: type[FaultyLogStore], landed: bool) -> None:
    def broken(store: LogStore, path: str, data: bytes) -> PutOutcome:
        if landed:
            store.put_if_absent(path, data)
        raise KeyboardInterrupt("pressed")

    faulty.put_of_test = staticmethod(broken)
    # The request may be under way: the store does not say that it is near.
    with pytest.raises(CommitOutcomeUnknown):
        append(delta, table)
    faulty.put_of_test = None
    assert latest(table) == int(landed)
    assert len(rows(delta, table)) == (13 if landed else 10)


@pytest.mark.parametrize("attempt", [overwrite, delete_rows])
def test_another_winner(delta: SparkSession, table: str, faulty: type[FaultyLogStore], attempt: Attempt) -> None:
    (add,) = of_kind(table, "add", 0)
    removal = {"remove": {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}}

    def beaten(store: LogStore, path: str, _data: bytes) -> PutOutcome:
        store.put_if_absent(path, json.dumps(removal).encode() + b"\n")
        return AlreadyExists()

    faulty.put_of_test = staticmethod(beaten)
    with pytest.raises(ConcurrentDeleteReadException, match=r"the table: .* but version 1 .*landed first and removed files that were read"):
        attempt(delta, table)
    faulty.put_of_test = None
    assert (versions(table), len(parquet_files(table))) == ([0, 1], 1)
    assert rows(delta, table) == []


def test_an_append_follows_a_winner(delta: SparkSession, table: str, faulty: type[FaultyLogStore]) -> None:
    theirs: list[str] = []

    def beaten_once(store: LogStore, path: str, data: bytes) -> PutOutcome:
        if not theirs:
            theirs.append(path)
            first = (Path(table) / "_delta_log" / f"{0:020d}.json").read_bytes().splitlines()[0]
            assert store.put_if_absent(path, first + b"\n") == Created()
        return store.put_if_absent(path, data)

    faulty.put_of_test = staticmethod(beaten_once)
    append(delta, table)
    assert versions(table) == [0, 1, 2]
    assert info(table)["readVersion"] == 0
    assert len(rows(delta, table)) == 13


def test_a_failure_leaves_no_transaction_behind(delta: SparkSession, table: str, faulty: type[FaultyLogStore]) -> None:
    def refuse(_store: LogStore, _path: str, _data: bytes) -> PutOutcome:
        raise OSError("no")

    faulty.put_of_test = staticmethod(refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="no") as caught:
            append(delta, table)
        assert not isinstance(caught.value, TransactionActiveError)
    faulty.put_of_test = None
    append(delta, table)
    assert versions(table) == [0, 1]


def test_a_log_that_is_read_only(delta: SparkSession, table: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    log = Path(table) / "_delta_log"
    log.chmod(0o500)
    try:
        with pytest.raises((OSError, LakelogError)):
            append(delta, table)
    finally:
        log.chmod(0o700)
    assert untouched(delta, table)
