"""Columns that the table computes, and columns that have a default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import ConstraintViolationError, InvalidExpressionError
from lakelog.core.field_metadata import CURRENT_DEFAULT, GENERATION_EXPRESSION
from tests.spark.tables import Action, array, commit, field, make_log, mapping, parquet_files, rows, save, struct, versions

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["generatedColumns", "allowColumnDefaults", "invariants"]}
LONG = field("id", "long")


@pytest.fixture
def path(tmp_path: object) -> str:
    return str(tmp_path) + "/the table"


def generated(name: str, kind: object, sql: str, *, nullable: bool = True) -> Action:
    return field(name, kind, nullable=nullable, **{GENERATION_EXPRESSION: sql})


def default(name: str, kind: object, sql: str) -> Action:
    return field(name, kind, **{CURRENT_DEFAULT: sql})


def table(path: str, *fields: Action, partition_by: Sequence[str] = ()) -> str:
    return make_log(path, struct(*fields), partition_by=partition_by, protocol=PROTOCOL)


def test_a_generated_column_is_computed_when_absent_and_checked_when_given(delta: SparkSession, path: str) -> None:
    table(path, LONG, generated("twice", "long", "ID * 2 -- twice it"))
    save(delta.sql("SELECT 1L id"), path)
    save(delta.sql("SELECT 4L Twice, 2L id UNION ALL SELECT NULL, NULL"), path)
    assert rows(delta, path) == [(1, 2), (2, 4), (None, None)]
    before = versions(path), parquet_files(path)
    for wrong in ("5L", "CAST(NULL AS BIGINT)"):
        with pytest.raises(ConstraintViolationError) as caught:
            save(delta.sql(f"SELECT 2L id, {wrong} twice"), path)
        message = str(caught.value)
        assert f"Delta table {path}: the data's values of generated column twice are not those that the table computes" in message
        assert " - twice : " in message
        assert "Leave the column out of the data" in message
    assert (versions(path), parquet_files(path)) == before


def test_it_is_computed_from_columns_that_are_cast_or_have_a_default(delta: SparkSession, path: str) -> None:
    table(path, generated("g", "string", "concat(CAST(id AS STRING), d)"), LONG, default("d", "string", '"it\'s"'))
    save(delta.sql("SELECT CAST(7 AS SMALLINT) id"), path)
    save(delta.sql("SELECT 8L id, CAST(NULL AS STRING) d"), path)
    assert rows(delta, path) == [("7it's", 7, "it's"), (None, 8, None)]


def test_a_table_partitioned_by_a_generated_column(delta: SparkSession, path: str) -> None:
    table(path, field("t", "timestamp"), generated("day", "date", "CAST(t AS DATE)"), partition_by=["day"])
    save(delta.sql("SELECT TIMESTAMP '0001-01-01 12:00:00' t UNION ALL SELECT TIMESTAMP '9999-12-31 12:00:00' UNION ALL SELECT NULL"), path)
    days = [row[0] for row in delta.read.format("delta").load(path).select("day").collect()]
    assert sorted(days, key=str) == [date(1, 1, 1), date(9999, 12, 31), None]


def test_exotic_values_are_equal_to_themselves(delta: SparkSession, path: str) -> None:
    table(
        path,
        field("n", "double"),
        generated("same", "double", "n"),
        generated("neg", "double", "-n"),
        generated("s", "string", "repeat('x', 10000)"),
    )
    save(delta.sql("SELECT double('NaN') n UNION ALL SELECT 0.0D UNION ALL SELECT double('-Infinity')"), path)
    computed = delta.read.format("delta").load(path)
    save(computed, path)
    found = rows(delta, path)
    assert len(found) == 6
    assert all(len(str(row[3])) == 10_000 for row in found)
    negatives = sorted(str(row[2]) for row in found)
    assert negatives == ["-0.0", "-0.0", "inf", "inf", "nan", "nan"]
    assert sum(math.isnan(row[1]) for row in found) == 2  # type: ignore[arg-type]


def test_a_generated_column_that_is_not_null(delta: SparkSession, path: str) -> None:
    table(path, LONG, generated("g", "long", "nullif(id, 3)", nullable=False))
    save(delta.range(3), path)
    with pytest.raises(ConstraintViolationError, match=r"NOT NULL constraint violated for column: g\."):
        save(delta.range(5), path)
    assert versions(path) == [0, 1]


def test_an_expression_that_cannot_be_evaluated_is_named(delta: SparkSession, path: str) -> None:
    table(path, LONG, generated("g", "long", "gone + 1"))
    with pytest.raises(InvalidExpressionError, match=r"the table: the generation expression of column g \(gone \+ 1\).*gone"):
        save(delta.range(3), path)
    assert versions(path) == [0]


def test_defaults_fill_what_the_data_lacks_and_nothing_else(delta: SparkSession, path: str) -> None:
    inner = struct(field("x", "long"), field("y", "long"))
    table(
        path,
        LONG,
        default("n", "double", "CAST('NaN' AS DOUBLE)"),
        default("a", array("long"), "array(1, 2)"),
        default("m", mapping("string", "long"), "map('k', 1L)"),
        field("s", inner),
    )
    save(delta.sql("SELECT 1L id, named_struct('x', 5L) s"), path)
    save(delta.sql("SELECT 2L id, CAST(NULL AS DOUBLE) n, CAST(NULL AS ARRAY<BIGINT>) a, NULL m"), path)
    first, second = rows(delta, path)
    assert math.isnan(first[1])  # type: ignore[arg-type]
    assert first[2:] == ([1, 2], {"k": 1}, (5, None))
    assert second == (2, None, None, None, None)


def test_all_expressions_of_a_write_see_one_instant(delta: SparkSession, path: str) -> None:
    table(
        path,
        LONG,
        default("a", "timestamp", "current_timestamp()"),
        default("b", "timestamp", "now()"),
        default("c", "date", "current_date()"),
    )
    delta.range(0, 1000, 1, 4).write.format("delta").mode("append").save(path)
    told = delta.read.format("delta").load(path)
    assert told.select("a", "b", "c").distinct().count() == 1
    a, b, c = told.select("a", "b", "c").first()  # type: ignore[misc]
    assert isinstance(a, datetime)
    assert (a, a.date()) == (b, c)


def test_the_metadata_of_a_write_without_identities_stays(delta: SparkSession, path: str) -> None:
    table(path, LONG, generated("twice", "long", "id * 2"), default("d", "long", "1"))
    save(delta.range(3), path)
    assert {key for action in commit(path, 1) for key in action} == {"commitInfo", "add"}
