"""`DeltaTable.forName`: which names are Delta tables, and what the others are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidRequestError, LakelogError, NotADeltaTableError
from lakelog.spark import DeltaTable


@pytest.fixture
def named(delta: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table ``shop.orders`` of ten rows, and its path."""
    path = str(tmp_path / "orders of the shop")
    delta.sql("CREATE DATABASE shop")
    DeltaTable.create(delta).tableName("shop.orders").location(path).addColumn("id", "BIGINT").execute()
    delta.range(10).write.format("delta").mode("append").save(path)
    yield path
    delta.sql("DROP DATABASE shop CASCADE")


def test_every_way_to_name_it(delta: SparkSession, named: str) -> None:
    for name in ("shop.orders", "SHOP.`Orders`", "spark_catalog.shop.orders", f"delta.`{named}`", f"spark_catalog.delta.`{named}`"):
        assert DeltaTable.forName(delta, name).toDF().count() == 10
    delta.catalog.setCurrentDatabase("shop")
    try:
        assert DeltaTable.forName(delta, "orders").toDF().count() == 10
    finally:
        delta.catalog.setCurrentDatabase("default")
    with pytest.raises(NotADeltaTableError, match="no table orders in the database default"):
        DeltaTable.forName(delta, "orders")


def test_it_is_the_table(delta: SparkSession, named: str) -> None:
    table = DeltaTable.forName(delta, "shop.orders")
    table.alias("o").delete("id < 4")
    assert table.alias("o").toDF().where("o.id < 5").count() == 1
    assert delta.table("shop.orders").count() == 6
    assert [row.operation for row in table.history().collect()] == ["DELETE", "WRITE", "CREATE TABLE"]
    for found in (table, table.alias("o")):
        row = found.detail().first()
        assert row is not None
        assert (row.name, row.location) == ("spark_catalog.shop.orders", f"file:{named}")
    by_path = DeltaTable.forName(delta, f"delta.`{named}`").detail().first()
    assert by_path is not None
    assert by_path.name is None


def test_it_stays_the_table(delta: SparkSession, named: str) -> None:
    table = DeltaTable.forName(delta, "shop.orders")
    delta.sql("DROP TABLE shop.orders")
    assert table.toDF().count() == 10
    with pytest.raises(NotADeltaTableError, match="no table orders in the database shop"):
        DeltaTable.forName(delta, "shop.orders")


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("shop.seen", NotADeltaTableError, ["shop.seen is not a Delta table: it is a view", "spark.table"]),
        ("passing", NotADeltaTableError, ["passing is not a Delta table: it is a temporary view", "the table behind it"]),
        ("shop.rows", NotADeltaTableError, ["shop.rows is not a Delta table: it is a table of the format parquet", "spark.table"]),
        ("shop.gone", NotADeltaTableError, ["no table gone in the database shop", "current database", "delta.`/path`"]),
        ("gone.orders", NotADeltaTableError, ["no database gone", "Check the name"]),
        ("elsewhere.shop.orders", NotADeltaTableError, ["another catalog than spark_catalog", "spark_catalog.<database>.<table>"]),
        ("spark_catalog.orders", NotADeltaTableError, ["spark_catalog.<database>.<table>"]),
        ("delta.`some/where`", NotADeltaTableError, ["no database delta", "delta.`/path`, from the root on"]),
        ("delta.`/no/table/here`", NotADeltaTableError, ["/no/table/here", "no _delta_log"]),
        ("", InvalidRequestError, ["'' is no name of a table", "backticks"]),
        ("or ders", InvalidRequestError, ["'or ders' is no name of a table", "backticks"]),
    ],
)
def test_names_of_something_else(delta: SparkSession, named: str, name: str, error: type[LakelogError], told: list[str]) -> None:
    delta.sql("CREATE VIEW shop.seen AS SELECT * FROM shop.orders")
    delta.sql("CREATE TABLE shop.rows (id BIGINT) USING parquet")
    delta.range(1).createOrReplaceTempView("passing")
    try:
        with pytest.raises(error) as caught:
            DeltaTable.forName(delta, name)
    finally:
        delta.catalog.dropTempView("passing")
    assert all(part in str(caught.value) for part in told)


def test_a_temporary_view_hides_the_table(delta: SparkSession, named: str) -> None:
    delta.catalog.setCurrentDatabase("shop")
    delta.range(1).createOrReplaceTempView("orders")
    try:
        with pytest.raises(NotADeltaTableError, match="temporary view"):
            DeltaTable.forName(delta, "orders")
    finally:
        delta.catalog.dropTempView("orders")
        delta.catalog.setCurrentDatabase("default")


def test_types_of_arguments(delta: SparkSession) -> None:
    with pytest.raises(TypeError, match="tableOrViewName must be a str"):
        DeltaTable.forName(delta, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sparkSession must be a SparkSession"):
        DeltaTable.forName("spark", "t")  # type: ignore[arg-type]
