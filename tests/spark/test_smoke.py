"""One table's life in a minute: what CI runs on every minor of PySpark that it does not run the whole suite on."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import SchemaMismatchError
from lakelog.spark import DeltaTable

pytestmark = pytest.mark.smoke


@pytest.fixture
def table(delta: SparkSession, tmp_path: Path) -> str:
    """Three versions: four rows in two partitions, two more, one deleted."""
    path = str(tmp_path / "a table")
    schema = "id long, kind string, price double"
    delta.createDataFrame([(1, "tea", 1.0), (2, "ink", 2.0), (3, "tea", None), (4, None, 4.0)], schema).write.format("delta").partitionBy(
        "kind"
    ).save(path)
    delta.createDataFrame([(5, "a:b %", 5.0), (6, "ink", 6.0)], schema).write.format("delta").mode("append").save(path)
    DeltaTable.forPath(delta, path).delete("price = 2.0")
    return path


def ids(delta: SparkSession, query: str) -> list[int]:
    return sorted(row.id for row in delta.sql(query).collect())


def test_rows_as_they_are_and_as_they_were(delta: SparkSession, table: str) -> None:
    assert ids(delta, f"SELECT id FROM delta.`{table}`") == [1, 3, 4, 5, 6]
    assert ids(delta, f"SELECT id FROM delta.`{table}` VERSION AS OF 1") == [1, 2, 3, 4, 5, 6]
    assert ids(delta, f"SELECT id FROM delta.`{table}` WHERE kind = 'a:b %' OR kind IS NULL") == [4, 5]
    first = delta.read.format("delta").option("versionAsOf", 0).load(table)
    assert sorted(row.id for row in first.collect()) == [1, 2, 3, 4]


def test_delete_in_sql_by_partition_and_by_data(delta: SparkSession, table: str) -> None:
    delta.sql(f"DELETE FROM delta.`{table}` WHERE kind = 'tea'")
    delta.sql(f"DELETE FROM delta.`{table}` WHERE price > 5.5")
    assert ids(delta, f"SELECT id FROM delta.`{table}`") == [4, 5]


def test_history_names_what_was_done(delta: SparkSession, table: str) -> None:
    history = DeltaTable.forPath(delta, table).history().select("version", "operation").collect()
    assert [tuple(row) for row in history] == [(2, "DELETE"), (1, "WRITE"), (0, "WRITE")]


def test_an_append_that_does_not_fit_is_refused(delta: SparkSession, table: str) -> None:
    misfit = delta.createDataFrame([("seven", "tea")], "id string, kind string")
    with pytest.raises(SchemaMismatchError, match="id"):
        misfit.write.format("delta").mode("append").save(table)
    assert DeltaTable.forPath(delta, table).history(1).collect()[0].version == 2


def test_another_implementation_reads_the_same(delta: SparkSession, table: str) -> None:
    theirs = deltalake.DeltaTable(table).to_pyarrow_table()
    ours = delta.read.format("delta").load(table)
    assert sorted(zip(theirs["id"].to_pylist(), theirs["kind"].to_pylist(), strict=True)) == sorted(
        (row.id, row.kind) for row in ours.collect()
    )
