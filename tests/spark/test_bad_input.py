"""What does not fit a table: each with one clear error that names table, asked and remedy, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakelog.core.errors import (
    ConstraintViolationError,
    CorruptLogError,
    DataFileMissingError,
    InvalidSchemaError,
    LakelogError,
    MissingCommitError,
    NotADeltaTableError,
    PartitionColumnError,
    SchemaMismatchError,
    UnknownSchemeError,
    UnsupportedOperationError,
    VersionNotFoundError,
    WriteFailedError,
)
from lakelog.spark import DeltaTable
from lakelog.spark.session import context_of
from tests.spark.tables import array, commit_path, field, make_log, mapping, of_kind, parquet_files, rows, save, struct, versions


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "the table")


@pytest.fixture
def table(delta: SparkSession, path: str) -> str:
    for start in (0, 10):
        save(delta.range(start, start + 3).selectExpr("id", "CONCAT('n', id) AS name"), path)
    return path


def refused(kind: type[BaseException], said: str, action: Callable[[], object]) -> None:
    with pytest.raises(kind, match=said):
        action()


# the table itself ----------------------------------------------------------------------------------------------------


def test_a_path_without_a_table(delta: SparkSession, path: str) -> None:
    Path(path).mkdir()
    for action in (
        lambda: delta.read.format("delta").load(path),
        lambda: delta.sql(f"SELECT * FROM delta.`{path}`"),
        lambda: DeltaTable.forPath(delta, path),
        lambda: delta.sql(f"DELETE FROM delta.`{path}`"),
    ):
        with pytest.raises((NotADeltaTableError, AnalysisException)) as caught:
            action()
        assert path in str(caught.value)
    refused(NotADeltaTableError, "the table", lambda: delta.read.format("delta").load(path).collect())
    assert not DeltaTable.isDeltaTable(delta, path)
    assert list(Path(path).iterdir()) == []


def test_a_version_that_does_not_exist(delta: SparkSession, table: str) -> None:
    with pytest.raises(VersionNotFoundError, match=r"the table.*7") as caught:
        delta.read.format("delta").option("versionAsOf", 7).load(table)
    assert (caught.value.asked, caught.value.earliest, caught.value.latest) == (7, 0, 1)
    assert "0" in str(caught.value)
    assert "1" in str(caught.value)


def test_a_data_file_that_is_gone(delta: SparkSession, table: str) -> None:
    gone = Path(table) / str(of_kind(table, "add", 0)[0]["path"])
    gone.unlink()
    for action in (
        lambda: delta.read.format("delta").load(table).collect(),
        lambda: delta.sql(f"DELETE FROM delta.`{table}` WHERE id = 1"),
        lambda: DeltaTable.forPath(delta, table).delete("id + 1 = 2"),
    ):
        with pytest.raises(DataFileMissingError, match=r"the table: data file .* delta.deletedFileRetentionDuration \(7 days\)") as caught:
            action()
        assert gone.name in str(caught.value)
    assert versions(table) == [0, 1]
    assert {file.name for file in parquet_files(table)} == {Path(str(of_kind(table, "add", 1)[0]["path"])).name}


def test_a_column_that_does_not_exist(delta: SparkSession, table: str) -> None:
    for action in (
        lambda: delta.read.format("delta").load(table).select("nmae"),
        lambda: delta.sql(f"DELETE FROM delta.`{table}` WHERE nmae = 'n1'"),
        lambda: DeltaTable.forPath(delta, table).delete("nmae = 'n1'"),
    ):
        refused(AnalysisException, r"(?s)UNRESOLVED_COLUMN.*`nmae`.*`name`", action)
    assert versions(table) == [0, 1]


def forget(spark: SparkSession, table: str) -> None:
    context_of(spark).logs.forget(table)


def test_a_corrupt_line(delta: SparkSession, table: str) -> None:
    log = commit_path(table, 1)
    log.write_bytes(log.read_bytes() + b'{"add": {"path": \n')
    forget(delta, table)
    lines = len(log.read_bytes().splitlines())
    for action in (
        lambda: delta.read.format("delta").load(table).collect(),
        lambda: save(delta.range(1).selectExpr("id"), table),
        lambda: save(delta.range(1).selectExpr("id"), table, "overwrite"),
        lambda: delta.sql(f"DELETE FROM delta.`{table}`"),
    ):
        refused(CorruptLogError, rf"{log.name}.*line {lines}", action)
    assert (versions(table), len(parquet_files(table))) == ([0, 1], 2)


def test_a_missing_commit(delta: SparkSession, table: str) -> None:
    save(delta.range(1).selectExpr("id"), table)
    commit_path(table, 1).unlink()
    forget(delta, table)
    for action in (
        lambda: delta.read.format("delta").load(table).collect(),
        lambda: save(delta.range(1).selectExpr("id"), table),
        lambda: delta.sql(f"DELETE FROM delta.`{table}`"),
    ):
        refused(MissingCommitError, "the table.*1", action)
    assert (versions(table), len(parquet_files(table))) == ([0, 2], 3)


# new tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "partition_by", "kind", "said"),
    [
        ("SELECT 1 a, 2 b", ["c"], PartitionColumnError, r"the table: Cannot partition by 'c', there is no such column.*: a, b"),
        ("SELECT 1 a, 2 b", ["a", "b"], PartitionColumnError, r"the table: Cannot partition by all columns \(a, b\)"),
        ("SELECT 1 a, 2 b", ["a", "A"], PartitionColumnError, "the table: The partition column 'a' is given twice"),
        ("SELECT 1 a, array(2) b", ["b"], PartitionColumnError, "the table: Cannot partition by 'b' of type array"),
        ("SELECT 1 AS `a b`", [], InvalidSchemaError, "the table.*a b.*column mapping"),
        ("SELECT struct(1 AS `x=y`) AS s", [], InvalidSchemaError, "the table.*x=y.*column mapping"),
        ("SELECT 1 a, 2 A", [], InvalidSchemaError, "the table.*case"),
    ],
)
def test_schemas_that_no_table_can_have(
    delta: SparkSession, path: str, query: str, partition_by: list[str], kind: type[LakelogError], said: str
) -> None:
    refused(kind, f"(?s){said}", lambda: save(delta.sql(query), path, partition_by=partition_by))
    assert not Path(path).exists()


def test_a_frame_without_columns(delta: SparkSession, path: str) -> None:
    with pytest.raises((InvalidSchemaError, AnalysisException)):
        save(delta.range(1).select(), path)
    assert versions(path) == []


# schemas that do not match -------------------------------------------------------------------------------------------


def test_every_difference_is_listed(delta: SparkSession, path: str) -> None:
    save(delta.sql("SELECT 1L id, 'a' name, 1 n, named_struct('x', 1L, 'y', 's') s, array(1) a, map('k', 1.5D) m"), path)
    misfit = delta.sql("SELECT '1' id, 1 name, 5L n, named_struct('x', 'no', 'z', 1) s, array('a') a, map('k', 'v') m, 1 more, true again")
    with pytest.raises(SchemaMismatchError, match="the table: the data's schema does not fit") as caught:
        save(misfit, path)
    assert [difference.split(":")[0] for difference in caught.value.differences] == [
        "column more",
        "column again",
        "column id",
        "column name",
        "column n",
        "column s.z",
        "column s.x",
        "column a.element",
        "column m.value",
    ]
    assert "column id: the table has long, the data has string" in str(caught.value)
    assert "column more: the table has no such column, the data has integer" in str(caught.value)
    assert (versions(path), len(parquet_files(path))) == ([0], 1)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("table_type", "value"),
    [
        ("int", "5L"),
        ("float", "1.5D"),
        ("double", "1.5"),
        ("double", "1"),
        ("string", "1"),
        ("date", "'2024-01-01'"),
        ("timestamp", "DATE'2024-01-01'"),
        ("timestamp", "TIMESTAMP_NTZ'2024-01-01 00:00:00'"),
        ("decimal(10,2)", "CAST(1 AS DECIMAL(11,2))"),
        ("decimal(10,2)", "1.234"),
        ("decimal(10,2)", "5L"),
        ("binary", "'a'"),
        ("boolean", "1"),
    ],
)
def test_types_that_would_lose_something(delta: SparkSession, tmp_path: Path, table_type: str, value: str, mode: str) -> None:
    table = make_log(str(tmp_path / "t"), struct(field("v", {"int": "integer"}.get(table_type, table_type))))
    refused(SchemaMismatchError, "column v: the table has ", lambda: save(delta.sql(f"SELECT {value} v"), table, mode))
    assert (versions(table), parquet_files(table)) == ([0], [])


@pytest.mark.parametrize(
    ("table_type", "value", "read"),
    [
        ("long", "CAST(-5 AS BYTE)", -5),
        ("short", "7Y", 7),
        ("integer", "-300S", -300),
        ("long", "2147483647", 2147483647),
        ("double", "CAST(1.5 AS FLOAT)", 1.5),
        ("decimal(38,2)", "CAST('12345.67' AS DECIMAL(7,2))", Decimal("12345.67")),
        ("decimal(12,4)", "CAST('-1.5' AS DECIMAL(5,1))", Decimal("-1.5000")),
        ("decimal(20,0)", "9223372036854775807L", Decimal(9223372036854775807)),
        ("decimal(5,2)", "-128Y", Decimal("-128.00")),
        ("string", "NULL", None),
        (struct(field("x", "long")), "named_struct('X', 5)", (5,)),
        (struct(field("x", "long")), "NULL", None),
        (array("long"), "array(1, NULL)", [1, None]),
        (mapping("string", "double"), "map('k', CAST(0.5 AS FLOAT))", {"k": 0.5}),
        (array(struct(field("x", "long"), field("y", "string"))), "array(named_struct('x', 1S), NULL)", [(1, None), None]),
    ],
)
def test_types_that_widen(delta: SparkSession, tmp_path: Path, table_type: Any, value: str, read: object) -> None:
    table = make_log(str(tmp_path / "t"), struct(field("id", "long"), field("v", table_type)))
    save(delta.sql(f"SELECT {value} AS v, 1 AS id"), table)
    assert rows(delta, table) == [(1, read)]


def test_missing_columns_are_null_at_any_depth(delta: SparkSession, path: str) -> None:
    inner = struct(field("a", "long"), field("b", "string"))
    make_log(
        path,
        struct(
            field("id", "long"),
            field("absent", "string"),
            field("s", struct(field("in", inner), field("c", "date"))),
            field("l", array(inner)),
            field("m", mapping("string", inner)),
            field("p", "string"),
        ),
        partition_by=["p"],
    )
    save(
        delta.sql(
            "SELECT named_struct('in', named_struct('a', 1)) s, array(named_struct('a', 2)) l, map('k', named_struct('b', 'x')) m, 7 id"
        ),
        path,
    )
    assert rows(delta, path) == [(7, None, ((1, None), None), [(2, None)], {"k": (None, "x")}, None)]


def test_order_and_case_do_not_matter(delta: SparkSession, path: str) -> None:
    save(delta.sql("SELECT 1L Id, 'a' Name, named_struct('x', 1, 'Y', 2) s"), path)
    save(delta.sql("SELECT named_struct('y', 20, 'X', 10) S, 'b' NAME, 2L iD"), path)
    assert rows(delta, path) == [(1, "a", (1, 2)), (2, "b", (10, 20))]
    assert delta.read.format("delta").load(path).columns == ["Id", "Name", "s"]
    refused(SchemaMismatchError, "same name but for case", lambda: save(delta.sql("SELECT 1L id, 2L ID"), path))
    assert versions(path) == [0, 1]


# NOT NULL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def strict(path: str) -> str:
    """``k`` and ``s.x`` are NOT NULL."""
    inner = struct(field("x", "long", nullable=False))
    return make_log(path, struct(field("k", "long", nullable=False), field("v", "string"), field("s", inner)))


def test_not_null_columns_that_are_absent(delta: SparkSession, strict: str) -> None:
    with pytest.raises(SchemaMismatchError, match="column k: the table has long NOT NULL, the data has no such column"):
        save(delta.sql("SELECT 'a' v"), strict)
    assert (versions(strict), parquet_files(strict)) == ([0], [])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT IF(id = 900, NULL, id) k, 'a' v FROM range(1000)", "k"),
        ("SELECT id k, IF(id = 900, named_struct('x', NULL), named_struct('x', id)) s FROM range(1000)", "s.x"),
    ],
)
def test_nulls_in_not_null_columns(delta: SparkSession, strict: str, query: str, column: str, mode: str) -> None:
    message = rf"the table: NOT NULL constraint violated for column: {column}\. (?s:.)*Nothing was committed\. Fill it or filter"
    with pytest.raises(ConstraintViolationError, match=message):
        delta.sql(query).coalesce(1).write.format("delta").mode(mode).save(strict)
    assert (versions(strict), parquet_files(strict)) == ([0], [])


def test_not_null_columns_that_hold_values(delta: SparkSession, strict: str) -> None:
    save(delta.sql("SELECT 1L k, NULL v, NULL s UNION ALL SELECT 2L, 'b', named_struct('x', 5L)"), strict)
    assert rows(delta, strict) == [(1, None, None), (2, "b", (5,))]
    delta.sql(f"DELETE FROM delta.`{strict}` WHERE k = 1")
    assert rows(delta, strict) == [(2, "b", (5,))]


@pytest.mark.parametrize("path", ["hdfs://nowhere/t", "foo://bucket/t", "abfss://a@b/t", "wasb://a@b/t"])
def test_a_scheme_that_no_store_serves(delta: SparkSession, path: str) -> None:
    for act in (
        lambda: delta.read.format("delta").load(path),
        lambda: delta.range(1).write.format("delta").save(path),
        lambda: DeltaTable.isDeltaTable(delta, path),
    ):
        with pytest.raises(UnknownSchemeError) as caught:
            act()
        assert path.split(":")[0] in str(caught.value)
        assert "logstore.class" in str(caught.value)


def test_a_write_to_a_path_that_reads_as_an_old_version(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(2).write.format("delta").save(path)
    with pytest.raises(UnsupportedOperationError, match="a write to an old version") as caught:
        delta.range(2).write.format("delta").mode("append").save(path + "@v0")
    assert path in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_a_partition_value_that_no_folder_can_be_named_by(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(WriteFailedError, match=f"{path}.*255 bytes.*partition by another column") as caught:
        delta.sql("SELECT 1 AS id, repeat('x', 10000) AS p").write.format("delta").partitionBy("p").save(path)
    assert len(str(caught.value)) < 2000
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_a_codec_that_spark_comes_without(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(WriteFailedError, match=f"{path}.*choose snappy, zstd"):
        delta.range(3).write.format("delta").option("compression", "brotli").save(path)
    assert not (tmp_path / "t" / "_delta_log").exists()
