"""A write that names its application and a number is done once, however often and by however many it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidOptionError
from lakelog.spark import DeltaTable
from lakelog.spark.exceptions import ConcurrentTransactionException
from tests.spark.racing import hooked_store, just_before, orphans
from tests.spark.tables import info, latest, of_kind, parquet_files, rows, save, versions

DATABRICKS, OURS = "spark.databricks.delta.write.", "spark.lakelog.write."
APP_ID, VERSION, AUTO_RESET = "txnAppId", "txnVersion", "txnVersion.autoReset.enabled"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "the table")


@pytest.fixture
def raced(delta: SparkSession, path: str) -> Iterator[str]:
    """The path, its log behind the store of `just_before`."""
    with hooked_store(delta, path):
        yield path


@contextmanager
def conf(spark: SparkSession, prefix: str = DATABRICKS, **entries: str) -> Iterator[None]:
    """Session confs for a while; ``autoReset`` stands for its long name."""
    names = {prefix + (AUTO_RESET if name == "autoReset" else name): value for name, value in entries.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def write(spark: SparkSession, table: str, number: int, app: str = "nightly", version: object = 1, mode: str = "append") -> None:
    save(spark.range(number, number + 1), table, mode, txnAppId=app, txnVersion=version)


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(int(str(row[0])) for row in rows(spark, table))


def recorded(table: str, app: str = "nightly") -> int | None:
    """The application's number, by another implementation."""
    return deltalake.DeltaTable(table).transaction_version(app)


# by options ----------------------------------------------------------------------------------------------------------


def test_a_write_is_done_once(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path)
    write(delta, path, 10)
    write(delta, path, 11)
    assert (ids(delta, path), versions(path), len(parquet_files(path))) == ([0, 10], [0, 1], 2)
    (txn,) = of_kind(path, "txn")
    assert (txn["appId"], txn["version"]) == ("nightly", 1)
    assert txn["lastUpdated"] <= info(path)["timestamp"]
    assert recorded(path) == 1


def test_numbers_count_upwards_for_each_application(delta: SparkSession, path: str) -> None:
    write(delta, path, 10, version=5)
    for app, version, lands in [
        ("nightly", 4, False),
        ("nightly", 5, False),
        ("nightly", 7, True),
        ("Nightly", 1, True),
        ("nightly", 6, False),
    ]:
        before = latest(path)
        write(delta, path, 10 + version, app, version)
        assert latest(path) - before == int(lands)
    assert ids(delta, path) == [10, 11, 17]
    assert (recorded(path), recorded(path, "Nightly"), recorded(path, "weekly")) == (7, 1, None)


def test_the_write_that_makes_the_table(delta: SparkSession, path: str) -> None:
    for number in (10, 11):
        write(delta, path, number, version=0)
    assert (ids(delta, path), versions(path), recorded(path)) == ([10], [0], 0)


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_what_is_done_is_done_in_every_mode(delta: SparkSession, path: str, mode: str) -> None:
    write(delta, path, 10)
    write(delta, path, 11, mode=mode)
    assert (ids(delta, path), versions(path)) == ([10], [0])


def test_an_overwrite(delta: SparkSession, path: str) -> None:
    save(delta.range(5), path)
    write(delta, path, 10, mode="overwrite")
    save(delta.range(20, 21), path)
    write(delta, path, 11, mode="overwrite")
    assert (ids(delta, path), versions(path), recorded(path)) == ([10, 20], [0, 1, 2], 1)


def test_an_empty_frame_is_remembered(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path)
    save(delta.range(0), path, txnAppId="nightly", txnVersion=3)
    assert (versions(path), recorded(path), of_kind(path, "add")) == ([0, 1], 3, [])
    write(delta, path, 10, version=3)
    assert ids(delta, path) == [0]


def test_options_in_any_letters(delta: SparkSession, path: str, caplog: pytest.LogCaptureFixture) -> None:
    save(delta.range(1), path, TXNAPPID="nightly", txnversion="2")
    assert (recorded(path), caplog.messages) == (2, [])


def test_options_of_write_to(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path)
    named = {APP_ID: "nightly", VERSION: "1"}
    for number in (10, 11):
        delta.range(number, number + 1).writeTo(f"delta.`{path}`").options(**named).append()
    assert (ids(delta, path), recorded(path)) == ([0, 10], 1)


def test_a_repetition_costs_no_job(delta: SparkSession, path: str) -> None:
    write(delta, path, 10)
    dear = delta.range(1).selectExpr("CAST(raise_error('this was computed') AS LONG) AS id")
    dear.write.format("delta").mode("append").options(txnAppId="nightly", txnVersion="1").save(path)
    assert versions(path) == [0]


def test_the_number_survives_a_checkpoint(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path, **{"delta.checkpointInterval": "2"})
    write(delta, path, 10, version=8)
    save(delta.range(1, 2), path)
    assert list((Path(path) / "_delta_log").glob("*.checkpoint.parquet"))
    for version in range(2):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    with hooked_store(delta, path):
        write(delta, path, 11, version=8)
        assert (ids(delta, path), versions(path), recorded(path)) == ([0, 1, 10], [2], 8)
        write(delta, path, 12, version=9)
    assert (ids(delta, path), recorded(path)) == ([0, 1, 10, 12], 9)


def test_another_implementations_number_is_honoured(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path)
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("nightly", 4)])
    deltalake.write_deltalake(path, deltalake.DeltaTable(path).to_pyarrow_table(), mode="append", commit_properties=properties)
    write(delta, path, 10, version=4)
    assert (ids(delta, path), latest(path)) == ([0, 0], 1)
    write(delta, path, 10, version=5)
    assert (ids(delta, path), recorded(path)) == ([0, 0, 10], 5)


# what makes no sense -------------------------------------------------------------------------------------------------

MEANINGLESS = [
    ({"txnAppId": "nightly"}, "txnAppId came alone. Give txnVersion too, or neither"),
    ({"txnVersion": "1"}, "txnVersion came alone. Give txnAppId too, or neither"),
    ({"txnAppId": "", "txnVersion": "1"}, "txnAppId is empty. Name the application"),
    *(
        (
            {"txnAppId": "nightly", "txnVersion": version},
            f"txnVersion must be a whole number from 0 to 9223372036854775807, not '{version}'",
        )
        for version in ("one", "", "1.0", "1e3", "-1", "9223372036854775808", "٣", "1_000")
    ),
]


@pytest.mark.parametrize(("options", "said"), MEANINGLESS)
@pytest.mark.parametrize("there", [True, False])
def test_meaningless_options(delta: SparkSession, path: str, options: dict[str, str], said: str, there: bool) -> None:
    if there:
        save(delta.range(1), path)
    before = (versions(path), parquet_files(path))
    with pytest.raises(InvalidOptionError) as caught:
        save(delta.range(1), path, **options)
    assert f"Delta table {path}: " in str(caught.value)
    assert "write option" in str(caught.value)
    assert said in str(caught.value)
    assert (versions(path), parquet_files(path)) == before


@pytest.mark.parametrize(("options", "said"), MEANINGLESS)
def test_meaningless_confs(delta: SparkSession, path: str, options: dict[str, str], said: str) -> None:
    save(delta.range(1), path)
    with conf(delta, **options):
        for act in (lambda: save(delta.range(1), path), lambda: delta.sql(f"DELETE FROM delta.`{path}`")):
            with pytest.raises(InvalidOptionError) as caught:
                act()
            assert f"Delta table {path}: " in str(caught.value)
            assert "session conf" in str(caught.value)
            assert said in str(caught.value)
    assert versions(path) == [0]


def test_the_largest_number(delta: SparkSession, path: str) -> None:
    for number in (10, 11):
        write(delta, path, number, version=2**63 - 1)
    assert (ids(delta, path), recorded(path)) == ([10], 2**63 - 1)


def test_two_spellings_that_disagree(delta: SparkSession, path: str) -> None:
    save(delta.range(1), path)
    disagree = pytest.raises(InvalidOptionError, match=r"the table: .*txnVersion.*'1' and '2'\. Unset one of .*spark\.lakelog")
    with conf(delta, txnAppId="nightly", txnVersion="1"), conf(delta, OURS, txnVersion="2"), disagree:
        save(delta.range(1), path)
    assert versions(path) == [0]


# by session ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [DATABRICKS, OURS])
def test_by_the_session(delta: SparkSession, path: str, prefix: str) -> None:
    with conf(delta, prefix, txnAppId="nightly", txnVersion="1"):
        for number in (10, 11):
            save(delta.range(number, number + 1), path)
        delta.sql(f"INSERT INTO delta.`{path}` VALUES (12L)")
        delta.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (13L)")
        assert delta.sql(f"DELETE FROM delta.`{path}`").collect()[0][0] == 0
        DeltaTable.forPath(delta, path).delete("id = 10")
        assert (ids(delta, path), versions(path)) == ([10], [0])
        delta.conf.set(prefix + VERSION, "2")
        delta.sql(f"INSERT INTO delta.`{path}` VALUES (14L)")
        delta.conf.set(prefix + VERSION, "3")
        assert delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 10").collect()[0][0] == 1
        assert (ids(delta, path), versions(path), recorded(path)) == ([14], [0, 1, 2], 3)
    save(delta.range(1), path)
    assert (latest(path), of_kind(path, "txn")) == (3, [])


def test_options_outrank_the_session(delta: SparkSession, path: str) -> None:
    with conf(delta, txnAppId="nightly", txnVersion="1", autoReset="true"):
        write(delta, path, 10, "weekly", 7)
        assert (recorded(path, "weekly"), recorded(path)) == (7, None)
        assert delta.conf.get(DATABRICKS + VERSION) == "1"


def test_a_delete_that_matches_nothing_is_remembered(delta: SparkSession, path: str) -> None:
    save(delta.range(5), path)
    with conf(delta, txnAppId="nightly", txnVersion="1"):
        assert delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 7").collect()[0][0] == 0
        assert (versions(path), recorded(path), of_kind(path, "remove")) == ([0, 1], 1, [])
    save(delta.range(7, 8), path)
    with conf(delta, txnAppId="nightly", txnVersion="1"):
        delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 7")
    assert ids(delta, path) == [0, 1, 2, 3, 4, 7]


@pytest.mark.parametrize("prefix", [DATABRICKS, OURS])
def test_the_session_forgets_a_version_that_was_used(delta: SparkSession, path: str, prefix: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: save(delta.range(5), path),
        lambda: save(delta.range(5), path),
        lambda: delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 3"),
        lambda: delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 333"),
        lambda: delta.sql(f"INSERT INTO delta.`{path}` VALUES (6L)"),
    ]
    with conf(delta, prefix, txnAppId="nightly", txnVersion="", autoReset="true"):
        for version, act in zip((1, 1, 2, 3, 4), acts, strict=True):
            delta.conf.set(prefix + VERSION, str(version))
            act()
            assert delta.conf.get(prefix + VERSION, None) is None
            assert delta.conf.get(prefix + APP_ID) == "nightly"
            # The next write cannot be taken for a repetition by accident.
            with pytest.raises(InvalidOptionError, match="Give txnVersion too"):
                save(delta.range(1), path)
    assert (ids(delta, path), versions(path), recorded(path)) == ([0, 1, 2, 4, 6], [0, 1, 2, 3], 4)


def test_a_version_stays_after_a_failure(delta: SparkSession, path: str) -> None:
    save(delta.range(5), path)
    with conf(delta, txnAppId="nightly", txnVersion="1", autoReset="true"):
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            save(delta.range(1).selectExpr("CAST(1 / id AS LONG) AS id"), path)
        assert delta.conf.get(DATABRICKS + VERSION) == "1"
        save(delta.range(5, 6), path)
        assert delta.conf.get(DATABRICKS + VERSION, None) is None
    assert (ids(delta, path), recorded(path)) == ([*range(6)], 1)


# two at once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_of_two_that_run_at_once_one_lands(delta: SparkSession, raced: str, ours: int, theirs: int, mode: str) -> None:
    save(delta.range(1), raced)
    just_before(lambda: write(delta, raced, 10, version=theirs))
    with pytest.raises(ConcurrentTransactionException, match=r"the table: .*wrote a transaction of the same application nightly") as caught:
        write(delta, raced, 11, version=ours, mode=mode)
    assert (caught.value.winner_version, caught.value.rule) == (1, "transactions")
    assert (ids(delta, raced), versions(raced), orphans(raced)) == ([0, 10], [0, 1], [])
    write(delta, raced, 11, version=ours)
    assert ids(delta, raced) == ([0, 10, 11] if ours > theirs else [0, 10])


def test_applications_do_not_meet(delta: SparkSession, raced: str) -> None:
    save(delta.range(1), raced)
    just_before(lambda: write(delta, raced, 10, "weekly"))
    write(delta, raced, 11)
    assert (ids(delta, raced), recorded(raced), recorded(raced, "weekly")) == ([0, 10, 11], 1, 1)


def test_a_delete_and_a_write_of_one_application(delta: SparkSession, raced: str) -> None:
    save(delta.range(1), raced)
    just_before(lambda: write(delta, raced, 10, version=1))
    with conf(delta, txnAppId="nightly", txnVersion="1", autoReset="true"):
        with pytest.raises(ConcurrentTransactionException):
            delta.sql(f"DELETE FROM delta.`{raced}` WHERE id = 0")
        assert delta.conf.get(DATABRICKS + VERSION) == "1"
    assert ids(delta, raced) == [0, 10]


def test_two_that_make_the_table(delta: SparkSession, raced: str) -> None:
    just_before(lambda: write(delta, raced, 10))
    with pytest.raises(ConcurrentTransactionException, match=r"same application .* Run it again"):
        write(delta, raced, 11)
    assert (ids(delta, raced), versions(raced), orphans(raced)) == ([10], [0], [])
    write(delta, raced, 11)
    assert (ids(delta, raced), versions(raced)) == ([10], [0])


def test_two_applications_that_make_the_table(delta: SparkSession, raced: str) -> None:
    just_before(lambda: write(delta, raced, 10, "weekly"))
    write(delta, raced, 11)
    assert (ids(delta, raced), versions(raced), recorded(raced), recorded(raced, "weekly")) == ([10, 11], [0, 1], 1, 1)
