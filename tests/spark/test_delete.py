"""DELETE in its three cases: by partitions alone, by what statistics prove, and by rewriting the files that hold matches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lakelog.core.errors import ConcurrentAppendException, UnsupportedOperationError
from lakelog.spark import DeltaTable
from lakelog.spark import delete as delete_module
from tests.spark.tables import info, latest, of_kind, parquet_files, rows, save, versions

JANUARY, FEBRUARY = date(2024, 1, 1), date(2024, 2, 1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "the table")


@pytest.fixture
def three_files(delta: SparkSession, path: str) -> str:
    """ids 0 to 9, 10 to 19 and 20 to 29, a file each; ``v`` is null for every id that 5 divides."""
    for start in (0, 10, 20):
        save(delta.range(start, start + 10).selectExpr("id", "IF(id % 5 = 0, NULL, id % 3) AS v", "CONCAT('n', id) AS name"), path)
    return path


def deleted(spark: SparkSession, table: str, where: str = "") -> int:
    """Run DELETE FROM; its result column."""
    found = spark.sql(f"DELETE FROM delta.`{table}` {where}").collect()
    assert found[0].asDict().keys() == {"num_affected_rows"}
    return int(found[0].num_affected_rows)


def live(table: str) -> set[str]:
    """Paths of the live files, by another implementation."""
    return {Path(uri).name for uri in deltalake.DeltaTable(table).file_uris()}


def spoil(table: str, name: str) -> None:
    """Fill a file with bytes that no reader takes for Parquet; its length stays."""
    (found,) = Path(table).rglob(name)
    found.write_bytes(b"\0" * found.stat().st_size)
    found.with_name(f".{found.name}.crc").unlink(missing_ok=True)


def named(table: str, version: int) -> str:
    (add,) = of_kind(table, "add", version)
    return Path(str(add["path"])).name


@contextmanager
def no_data_file_is_there(table: str) -> Iterator[None]:
    """Every data file is away; the folders of partitions too."""
    away = Path(table).with_name("away")
    away.mkdir()
    for entry in Path(table).iterdir():
        if entry.name != "_delta_log":
            shutil.move(entry, away / entry.name)
    yield
    for entry in away.iterdir():
        shutil.move(entry, Path(table) / entry.name)
    away.rmdir()


# metadata alone ------------------------------------------------------------------------------------------------------


@pytest.fixture
def partitioned(delta: SparkSession, path: str) -> str:
    frame = delta.createDataFrame(
        [(1, "a", JANUARY), (2, "b", FEBRUARY), (3, None, None), (4, "x y/ü:%", JANUARY), (5, "a", FEBRUARY)],
        "id long, p string, d date",
    )
    save(frame, path, partition_by=["p", "d"])
    return path


def starts_with_a(value: str | None) -> bool | None:
    return None if value is None else value.startswith("a")


CONDITIONS: list[tuple[str, Callable[[], Column | str | None], list[int]]] = [
    ("equality", lambda: "p = 'a'", [2, 3, 4]),
    ("null", lambda: "p IS NULL", [1, 2, 4, 5]),
    ("null is no match", lambda: "p <> 'a'", [1, 3, 5]),
    ("special characters", lambda: "p = 'x y/ü:%'", [1, 2, 3, 5]),
    ("two columns", lambda: "p = 'a' AND d > DATE'2024-01-15'", [1, 2, 3, 4]),
    ("a function of the value", lambda: "upper(p) IN ('A', 'B') OR year(d) < 2000", [3, 4]),
    ("the day of today", lambda: "d < current_date()", [3]),
    ("a Python function", lambda: F.udf(lambda value: starts_with_a(value), BooleanType())(F.col("p")), [2, 3, 4]),
    ("a column", lambda: F.col("d").isNull(), [1, 2, 4, 5]),
    ("no condition", lambda: None, []),
    ("true", lambda: "true", []),
]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize(("condition", "left"), [pytest.param(c, left, id=name) for name, c, left in CONDITIONS])
def test_a_delete_by_partitions_opens_no_file(
    delta: SparkSession, partitioned: str, condition: Callable[[], Column | str | None], left: list[int]
) -> None:
    with no_data_file_is_there(partitioned):
        DeltaTable.forPath(delta, partitioned).delete(condition())
    assert [row[0] for row in rows(delta, partitioned)] == left
    metrics = info(partitioned)["operationMetrics"]
    gone = 5 - len(left)
    assert {name: metrics[name] for name in ("numRemovedFiles", "numAddedFiles", "numDeletedRows", "numCopiedRows")} == {
        "numRemovedFiles": str(gone),
        "numAddedFiles": "0",
        "numDeletedRows": str(gone),
        "numCopiedRows": "0",
    }
    assert not of_kind(partitioned, "add")


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        ("boolean", "true"),
        ("tinyint", "-3Y"),
        ("smallint", "300S"),
        ("int", "-70000"),
        ("bigint", "5000000000L"),
        ("float", "float(1.5)"),
        ("double", "-2.5e300D"),
        ("decimal(38,18)", "12345678901234567890.123456789012345678BD"),
        ("string", "'a=b'"),
        ("binary", "X'00ff41'"),
        ("date", "DATE'1582-10-04'"),
        ("timestamp", "TIMESTAMP'2024-03-31 02:30:00.123456'"),
        ("timestamp_ntz", "TIMESTAMP_NTZ'1900-01-01 00:00:00.000001'"),
    ],
)
def test_partition_values_of_every_type(delta: SparkSession, path: str, kind: str, literal: str) -> None:
    save(delta.sql(f"SELECT 1 id, CAST(NULL AS {kind}) p UNION ALL SELECT 2, {literal}"), path, partition_by=["p"])
    with no_data_file_is_there(path):
        assert deleted(delta, path, f"WHERE p = {literal}") == 1
    assert rows(delta, path) == [(1, None)]
    with no_data_file_is_there(path):
        assert deleted(delta, path, "WHERE p IS NULL") == 1
    assert rows(delta, path) == []


def test_a_delete_of_all_of_an_empty_table_is_no_commit(delta: SparkSession, partitioned: str) -> None:
    assert deleted(delta, partitioned) == 5
    assert info(partitioned)["operationParameters"] == {"predicate": '["true"]'}
    assert deleted(delta, partitioned) == 0
    assert versions(partitioned) == [0, 1]


# rows ----------------------------------------------------------------------------------------------------------------


def test_only_files_with_matches_are_written_again(delta: SparkSession, three_files: str) -> None:
    before = [named(three_files, version) for version in range(3)]
    assert deleted(delta, three_files, "WHERE id IN (11, 12)") == 2
    assert set(before) - live(three_files) == {before[1]}
    assert sorted(row[0] for row in rows(delta, three_files)) == [i for i in range(30) if i not in (11, 12)]
    told = info(three_files)
    assert {name: told[name] for name in ("operation", "readVersion", "isolationLevel", "isBlindAppend")} == {
        "operation": "DELETE",
        "readVersion": 2,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
    }
    (predicate,) = json.loads(told["operationParameters"]["predicate"])
    assert "id" in predicate
    assert "11" in predicate
    (add,), (remove,) = of_kind(three_files, "add"), of_kind(three_files, "remove")
    metrics = told["operationMetrics"]
    assert {name: value for name, value in metrics.items() if not name.endswith("Ms")} == {
        "numRemovedFiles": "1",
        "numRemovedBytes": str(remove["size"]),
        "numAddedFiles": "1",
        "numAddedBytes": str(add["size"]),
        "numAddedChangeFiles": "0",
        "numCopiedRows": "8",
        "numDeletedRows": "2",
        "numDeletionVectorsAdded": "0",
        "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
    }
    assert {"executionTimeMs", "scanTimeMs", "rewriteTimeMs"} <= metrics.keys()
    assert json.loads(add["stats"])["numRecords"] == 8


def test_false_and_null_are_kept(delta: SparkSession, three_files: str) -> None:
    expected = [row for row in rows(delta, three_files) if row[1] != 1]
    assert deleted(delta, three_files, "WHERE v = 1") == 30 - len(expected)
    assert rows(delta, three_files) == expected
    assert sum(row[1] is None for row in expected) == 6


def test_no_match_is_no_commit(delta: SparkSession, three_files: str) -> None:
    for where in ("WHERE id = 999", "WHERE v = 77", "WHERE name = 'nobody' AND id % 2 = 0", "WHERE false", "WHERE v = NULL"):
        assert deleted(delta, three_files, where) == 0
    DeltaTable.forPath(delta, three_files).delete(F.col("id") < 0)
    assert versions(three_files) == [0, 1, 2]


def test_files_that_statistics_prove_to_match_go_unread(delta: SparkSession, three_files: str) -> None:
    proven, other = named(three_files, 1), named(three_files, 2)
    spoil(three_files, proven)
    assert deleted(delta, three_files, "WHERE id BETWEEN 5 AND 19") == 15
    assert sorted(row[0] for row in rows(delta, three_files)) == [0, 1, 2, 3, 4, *range(20, 30)]
    assert (proven in live(three_files), other in live(three_files)) == (False, True)


def test_files_that_statistics_rule_out_go_unread(delta: SparkSession, three_files: str) -> None:
    spoil(three_files, named(three_files, 2))
    assert deleted(delta, three_files, "WHERE id = 3") == 1


def test_files_wholly_matched_are_not_written_again(delta: SparkSession, three_files: str) -> None:
    """What statistics cannot prove, counting can."""
    assert deleted(delta, three_files, "WHERE id + 0 BETWEEN 10 AND 19") == 10
    assert (of_kind(three_files, "add"), len(of_kind(three_files, "remove"))) == ([], 1)


def test_proofs_never_rest_on_floating_bounds(delta: SparkSession, path: str) -> None:
    save(delta.sql("SELECT double(v) AS d FROM VALUES (1.0), (2.0) AS t(v) UNION ALL SELECT double('NaN')"), path)
    assert deleted(delta, path, "WHERE d <= 2.0") == 2
    assert [str(row[0]) for row in rows(delta, path)] == ["nan"]


def test_a_table_of_another_writer_loses_proven_files_unread(delta: SparkSession, path: str) -> None:
    for start in (0, 10):
        table = pa.table({"id": pa.array(range(start, start + 10), pa.int64()), "s": [f"k{i:03}" for i in range(start, start + 10)]})
        deltalake.write_deltalake(path, table, mode="append")
    first = named(path, 0)
    spoil(path, first)
    assert deleted(delta, path, "WHERE s < 'k010' AND id >= 0") == 10
    assert [row[0] for row in rows(delta, path)] == list(range(10, 20))
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 10


@pytest.mark.parametrize("name", ["golden-basic-with-inserts-deletes-checkpoint", "golden-basic-decimal-table"])
def test_tables_of_delta_spark(delta: SparkSession, golden: Path, tmp_path: Path, name: str) -> None:
    """Half of a golden table goes by its first data column; what is left is what a plain filter leaves."""
    folder = next(t["folder"] for t in json.loads((golden / "manifest.json").read_text())["tables"] if t["name"] == name)
    table = str(tmp_path / "copy")
    shutil.copytree(golden / folder, table)
    frame = delta.read.format("delta").load(table)
    column = frame.columns[0]
    values = sorted(row[0] for row in frame.select(column).collect() if row[0] is not None)
    middle = values[len(values) // 2 - 1]
    kept = sorted((tuple(row) for row in frame.where(f"NOT (`{column}` > '{middle}') OR `{column}` IS NULL").collect()), key=repr)
    before = frame.count()
    assert 0 < len(kept) < before
    assert deleted(delta, table, f"WHERE `{column}` > '{middle}'") in (before - len(kept), -1)
    assert rows(delta, table) == kept


# subqueries, and conditions that do not answer the same twice --------------------------------------------------------

SUBQUERIES = [
    "id IN (SELECT k FROM s3_other)",
    "id IN (SELECT k FROM s3_nothing)",
    "id NOT IN (SELECT k FROM s3_other)",
    "id NOT IN (SELECT k FROM s3_with_null)",
    "v NOT IN (SELECT k FROM s3_other)",
    "EXISTS (SELECT 1 FROM s3_other)",
    "EXISTS (SELECT 1 FROM s3_nothing)",
    "EXISTS (SELECT 1 FROM s3_other o WHERE o.k = t.id AND o.k > 12)",
    "NOT EXISTS (SELECT 1 FROM s3_other o WHERE o.k = t.v)",
    "id > (SELECT max(k) FROM s3_other)",
    "id = (SELECT max(k) FROM s3_other o WHERE o.k <= t.id)",
    "(id IN (SELECT k FROM s3_other) OR v = 2) AND name <> 'n8'",
    "id IN (SELECT id FROM {target} WHERE v = 1)",
    "id > (SELECT avg(id) FROM {target})",
]


@pytest.fixture
def others(delta: SparkSession) -> Iterator[None]:
    delta.sql("SELECT CAST(k AS BIGINT) k FROM VALUES (0), (1), (2), (12), (13), (21) AS t(k)").createOrReplaceTempView("s3_other")
    delta.sql("SELECT CAST(k AS BIGINT) k FROM VALUES (3), (NULL) AS t(k)").createOrReplaceTempView("s3_with_null")
    delta.sql("SELECT CAST(1 AS BIGINT) k WHERE false").createOrReplaceTempView("s3_nothing")
    yield
    for name in ("s3_other", "s3_with_null", "s3_nothing"):
        delta.catalog.dropTempView(name)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("condition", SUBQUERIES)
def test_subqueries_as_over_parquet(delta: SparkSession, three_files: str, tmp_path: Path, condition: str) -> None:
    plain = str(tmp_path / "plain")
    delta.read.format("delta").load(three_files).write.parquet(plain)
    over_plain = condition.format(target=f"parquet.`{plain}`")
    gone = delta.sql(f"SELECT id FROM parquet.`{plain}` t WHERE {over_plain}").collect()
    left = sorted({row[0] for row in rows(delta, three_files)} - {row.id for row in gone})
    count = delta.sql(f"DELETE FROM delta.`{three_files}` t WHERE {condition.format(target=f'delta.`{three_files}`')}").collect()[0][0]
    assert (count, sorted(row[0] for row in rows(delta, three_files))) == (len(gone), left)
    assert latest(three_files) == (3 if gone else 2)


@pytest.mark.usefixtures("others")
def test_a_subquery_over_partition_columns_opens_no_file(delta: SparkSession, path: str) -> None:
    save(delta.range(5).selectExpr("id", "id % 3 AS p"), path, partition_by=["p"])
    with no_data_file_is_there(path):
        assert deleted(delta, path, "WHERE p IN (SELECT k FROM s3_other WHERE k > 0)") == 3
    assert rows(delta, path) == [(0, 0), (3, 0)]


def test_a_condition_that_does_not_answer_the_same_twice(delta: SparkSession, path: str) -> None:
    save(delta.range(500).selectExpr("id", "id % 2 AS p"), path, partition_by=["p"])
    for where in ("WHERE rand() < 0.5", "WHERE rand() < 0.5 AND p = 1", "WHERE p >= 0 AND uuid() < '8'"):
        before = {row[0] for row in rows(delta, path)}
        gone = deleted(delta, path, where)
        after = {row[0] for row in rows(delta, path)}
        assert after <= before
        assert (len(before) - len(after), len(rows(delta, path))) == (gone, len(after))
        assert 0 < gone < len(before)


# how it is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [lambda: "t.id >= 10", lambda: F.col("t.id") >= 10, lambda: "id >= 10", lambda: F.expr("t.id >= 10 AND t.name IS NOT NULL")],
)
def test_a_table_under_an_alias(delta: SparkSession, three_files: str, condition: Callable[[], Any]) -> None:
    DeltaTable.forPath(delta, three_files).alias("t").delete(condition())
    assert sorted(row[0] for row in rows(delta, three_files)) == list(range(10))


def test_what_is_no_condition(delta: SparkSession, three_files: str) -> None:
    with pytest.raises(TypeError, match="condition must be a str or Column, not int"):
        DeltaTable.forPath(delta, three_files).delete(5)  # type: ignore[arg-type]
    assert versions(three_files) == [0, 1, 2]


def test_columns_with_dots_and_other_letters(delta: SparkSession, path: str) -> None:
    save(delta.range(4).selectExpr("id AS `a.b`", "id AS `größe`", "named_struct('x.y', id) AS s"), path)
    assert deleted(delta, path, "WHERE `a.b` = 1 OR `größe` = 2") == 2
    assert deleted(delta, path, "WHERE s.`x.y` = 3") == 1
    assert [row[0] for row in rows(delta, path)] == [0]


def test_an_old_version_is_not_changed(delta: SparkSession, three_files: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"the table: DELETE was aimed at version 1\. Leave out the version"):
        delta.sql(f"DELETE FROM delta.`{three_files}@v1` WHERE id = 1")
    assert versions(three_files) == [0, 1, 2]


# another writer meanwhile --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "theirs"), [("WHERE id = 3", 3), ("WHERE id < 10", 4), ("", 100)])
def test_a_commit_between_finding_and_committing(
    delta: SparkSession, three_files: str, monkeypatch: pytest.MonkeyPatch, where: str, theirs: int
) -> None:
    committed = delete_module.commit

    def late(*args: Any) -> Any:
        late = pa.table({"id": pa.array([theirs], pa.int64()), "v": pa.array([None], pa.int64()), "name": ["late"]})
        deltalake.write_deltalake(three_files, late, mode="append")
        return committed(*args)

    monkeypatch.setattr(delete_module, "commit", late)
    said = r"the table: DELETE read the rows where .* at version 2, but version 3 \(WRITE.*landed first.*Read the table again"
    with pytest.raises(ConcurrentAppendException, match=said):
        delta.sql(f"DELETE FROM delta.`{three_files}` {where}")
    assert versions(three_files) == [0, 1, 2, 3]
    assert sorted(row[0] for row in rows(delta, three_files)) == sorted([*range(30), theirs])
    assert {file.name for file in parquet_files(three_files)} == live(three_files)


def test_a_view_that_is_the_table(delta: SparkSession, path: str) -> None:
    delta.range(4).write.format("delta").save(path)
    delta.sql(f"CACHE TABLE cached AS SELECT * FROM delta.`{path}`")
    delta.sql(f"CREATE OR REPLACE TEMPORARY VIEW the_table USING delta OPTIONS (path '{path}')")
    try:
        assert delta.sql("DELETE FROM the_table WHERE id = 1").collect() == [(1,)]
        assert sorted(row.id for row in delta.read.format("delta").load(path).collect()) == [0, 2, 3]
    finally:
        delta.sql("UNCACHE TABLE cached")
        delta.catalog.dropTempView("the_table")
        delta.catalog.dropTempView("cached")
