"""A store that does not tell whether a commit landed: the data files stay until ``resolve()`` knows, whichever way it turns out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import CommitOutcomeUnknown
from lakelog.spark import DeltaTable
from lakelog.storage.log_store import LogStore, PutOutcome, Unknown
from tests.spark.racing import HookedLogStore, hooked_store, orphans
from tests.spark.tables import info, parquet_files, rows, save, versions

AUTO_RESET = "spark.databricks.delta.write.txnVersion.autoReset.enabled"
APP_ID, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"

Attempt = Callable[[SparkSession, str], object]


def append(spark: SparkSession, table: str) -> None:
    save(spark.range(100, 103), table)


def overwrite(spark: SparkSession, table: str) -> None:
    save(spark.range(100, 103), table, "overwrite")


def delete_in_sql(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")


def delete_in_python(spark: SparkSession, table: str) -> None:
    DeltaTable.forPath(spark, table).delete("id = 3")


# attempt -> the ids that it leaves of 0 to 9
ATTEMPTS: dict[Attempt, list[int]] = {
    append: [*range(10), 100, 101, 102],
    overwrite: [100, 101, 102],
    delete_in_sql: [0, 1, 2, 4, 5, 6, 7, 8, 9],
    delete_in_python: [0, 1, 2, 4, 5, 6, 7, 8, 9],
}


@pytest.fixture
def path(delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where a table may be made, behind a store that a test can take down; no time passes between attempts."""
    monkeypatch.setattr("lakelog.storage.commit_loop._SETTLE_DELAY_S", 0.0)
    where = str(tmp_path / "the table")
    with hooked_store(delta, where):
        yield where


@pytest.fixture
def table(delta: SparkSession, path: str) -> str:
    save(delta.range(10), path)
    return path


def down(*, arrives: bool = False) -> None:
    """No request is answered from now on; the first one arrives or none does."""

    def put(store: LogStore, path: str, data: bytes) -> PutOutcome:
        if arrives:
            store.put_if_absent(path, data)
        return Unknown(TimeoutError("no answer"))

    def read(_store: LogStore, _path: str) -> bytes:
        raise TimeoutError("no answer")

    HookedLogStore.put_of_test = staticmethod(put)
    HookedLogStore.read_of_test = staticmethod(read)


def up() -> None:
    HookedLogStore.put_of_test = HookedLogStore.read_of_test = None


def unknown(spark: SparkSession, table: str, attempt: Attempt, *, arrives: bool = False) -> CommitOutcomeUnknown:
    """The error of an attempt whose commit nobody answered; the store is up again."""
    before = len(parquet_files(table))
    # What the attempt reads it has read before: only the commit goes unanswered.
    reached: list[str] = []

    def put(store: LogStore, path: str, data: bytes) -> PutOutcome:
        reached.append(path)
        down(arrives=arrives)
        assert HookedLogStore.put_of_test is not None
        return HookedLogStore.put_of_test(store, path, data)

    HookedLogStore.put_of_test = staticmethod(put)
    try:
        with pytest.raises(CommitOutcomeUnknown, match=r"the table: nobody can tell whether version \d was committed") as caught:
            attempt(spark, table)
    finally:
        up()
    assert len(reached) == 1
    assert len(parquet_files(table)) == before + 1
    return caught.value


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(int(str(row[0])) for row in rows(spark, table))


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("arrives", [True, False])
def test_it_lands(delta: SparkSession, table: str, attempt: Attempt, arrives: bool) -> None:
    error = unknown(delta, table, attempt, arrives=arrives)
    assert (error.version, versions(table)) == (1, [0, 1] if arrives else [0])
    for _ in range(2):
        assert error.resolve() == 1
        assert ids(delta, table) == ATTEMPTS[attempt]
    assert (versions(table), orphans(table)) == ([0, 1], [])
    assert info(table)["txnId"] == error.txn_id


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_another_commit_takes_its_place(delta: SparkSession, table: str, attempt: Attempt) -> None:
    error = unknown(delta, table, attempt)
    save(delta.range(50, 51), table)
    assert len(orphans(table)) == 1
    for _ in range(2):
        assert error.resolve() is None
        assert (versions(table), orphans(table)) == ([0, 1], [])
        assert ids(delta, table) == [*range(10), 50]
    attempt(delta, table)
    assert ids(delta, table) == sorted(ATTEMPTS[attempt] + ([] if attempt is overwrite else [50]))
    assert (versions(table), orphans(table)) == ([0, 1, 2], [])


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("lands", [True, False])
def test_the_store_is_down_still(delta: SparkSession, table: str, attempt: Attempt, lands: bool) -> None:
    error = unknown(delta, table, attempt)
    down()
    with pytest.raises(CommitOutcomeUnknown, match="the table: nobody can tell whether version 1") as caught:
        error.resolve()
    up()
    assert (caught.value.version, caught.value.txn_id) == (1, error.txn_id)
    assert len(orphans(table)) == 1
    if not lands:
        save(delta.range(50, 51), table)
    # The younger error is as good as the first.
    assert caught.value.resolve() == (1 if lands else None)
    assert orphans(table) == []
    assert error.resolve() == (1 if lands else None)
    assert ids(delta, table) == (ATTEMPTS[attempt] if lands else [*range(10), 50])


def test_others_have_gone_on(delta: SparkSession, table: str) -> None:
    error = unknown(delta, table, append, arrives=True)
    delta.sql(f"DELETE FROM delta.`{table}` WHERE id = 100")
    save(delta.range(50, 51), table)
    assert error.resolve() == 1
    assert (versions(table), ids(delta, table), orphans(table)) == ([0, 1, 2, 3], [*range(10), 50, 101, 102], [])


@pytest.mark.parametrize("arrives", [True, False])
def test_a_table_that_is_being_made(delta: SparkSession, path: str, arrives: bool) -> None:
    error = unknown(delta, path, append, arrives=arrives)
    assert (error.resolve(), ids(delta, path), versions(path)) == (0, [100, 101, 102], [0])


def test_a_table_that_another_makes_meanwhile(delta: SparkSession, path: str) -> None:
    error = unknown(delta, path, append)
    save(delta.range(2), path)
    assert (error.resolve(), ids(delta, path), orphans(path)) == (None, [0, 1], [])


def test_cached_frames_see_what_landed(delta: SparkSession, table: str) -> None:
    frame = delta.read.format("delta").load(table).cache()
    try:
        assert frame.count() == 10
        error = unknown(delta, table, append)
        assert error.resolve() == 1
        assert frame.count() == 13
    finally:
        frame.unpersist()


def test_an_idempotent_write_is_just_run_again(delta: SparkSession, table: str) -> None:
    def once(spark: SparkSession, where: str) -> None:
        save(spark.range(100, 101), where, txnAppId="nightly", txnVersion=1)

    first = unknown(delta, table, once, arrives=True)
    once(delta, table)
    assert (ids(delta, table), versions(table), first.resolve()) == ([*range(10), 100], [0, 1], 1)


def test_a_late_arrival_of_an_idempotent_write_that_was_run_again(delta: SparkSession, table: str) -> None:
    def once(spark: SparkSession, where: str) -> None:
        save(spark.range(100, 101), where, txnAppId="nightly", txnVersion=1)

    first = unknown(delta, table, once)
    once(delta, table)
    assert (first.resolve(), ids(delta, table), versions(table), orphans(table)) == (None, [*range(10), 100], [0, 1], [])


def test_the_sessions_version_is_kept_until_it_is_known(delta: SparkSession, table: str) -> None:
    confs = {APP_ID: "nightly", VERSION: "1", AUTO_RESET: "true"}
    for name, value in confs.items():
        delta.conf.set(name, value)
    try:
        error = unknown(delta, table, append)
        assert delta.conf.get(VERSION) == "1"
        assert error.resolve() == 1
        assert delta.conf.get(VERSION, None) is None
    finally:
        for name in confs:
            delta.conf.unset(name)


def test_the_thread_is_free_for_other_work(delta: SparkSession, table: str) -> None:
    error = unknown(delta, table, append)
    save(delta.range(1), str(Path(table).with_name("elsewhere")))
    assert error.resolve() == 1
