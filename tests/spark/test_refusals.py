"""Statements that come with a later release are refused by name before Spark acts; other providers are served as ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.errors import InvalidOptionError, NotADeltaTableError, UnsupportedOperationError
from tests.spark.told import check_ours, register


@pytest.fixture(scope="module")
def table(delta: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten rows in two partitions, which no test here may change."""
    path = str(tmp_path_factory.mktemp("refusals") / "t")
    delta.range(10).selectExpr("id", "id % 2 AS part").write.format("delta").partitionBy("part").save(path)
    return path


@pytest.fixture(scope="module")
def other(delta: SparkSession) -> str:
    """A Parquet table of the metastore, which no refusal may harm."""
    delta.sql("CREATE TABLE refusals_parquet USING parquet AS SELECT 1L AS id, 0L AS part")
    return "refusals_parquet"


@pytest.fixture(scope="module")
def known(delta: SparkSession, table: str) -> str:
    """The same Delta table as the metastore knows it."""
    register(delta, "refusals_delta", table)
    return "refusals_delta"


def state(spark: SparkSession, path: str) -> object:
    """Everything that a refused statement must leave as it was."""
    files = sorted((str(f), f.stat().st_mtime_ns) for f in Path(path).rglob("*") if f.is_file())
    tables = sorted(tuple(row) for row in spark.sql("SHOW TABLES").collect())
    described = {name: spark.sql(f"DESCRIBE EXTENDED {name}").collect() for _, name, temporary in tables if not temporary}
    return files, tables, described


def refused(spark: SparkSession, path: str, act: Callable[[], object]) -> str:
    before = state(spark, path)
    with pytest.raises(UnsupportedOperationError) as caught:
        act()
    message = check_ours(caught)
    assert message.startswith("lakelog does not support ")
    assert state(spark, path) == before
    return message


CREATIONS = {
    "CREATE TABLE x (id long) USING delta": "CREATE TABLE",
    "CREATE TABLE x USING delta LOCATION '{path}'": "CREATE TABLE",
    "CREATE TABLE IF NOT EXISTS x (id long) USING lakelog": "CREATE TABLE",
    "CREATE TABLE x USING delta AS SELECT 1 AS a": "CREATE TABLE AS SELECT",
    "CREATE TABLE x (id long) USING DELTA PARTITIONED BY (id) LOCATION '/tmp/nowhere'": "CREATE TABLE",
    "CREATE OR REPLACE TABLE {other} (id long) USING delta": "REPLACE TABLE",
    "CREATE OR REPLACE TABLE {other} USING delta AS SELECT 1 AS a": "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE IDENTIFIER('{other}') USING delta AS SELECT 1 AS a": "REPLACE TABLE AS SELECT",
    "REPLACE TABLE {other} (id long) USING delta": "REPLACE TABLE",
    "REPLACE TABLE {other} USING delta AS SELECT 1 AS a": "REPLACE TABLE AS SELECT",
    "CREATE TABLE delta.`{path}2` (id long)": "CREATE TABLE",
    "CREATE TABLE delta.`{path}2` USING delta AS SELECT 1 AS a": "CREATE TABLE AS SELECT",
    "CREATE TABLE delta.`{path}` (id long) USING parquet": "CREATE TABLE",
    "CREATE OR REPLACE TABLE delta.`{path}` AS SELECT 1 AS a": "REPLACE TABLE AS SELECT",
    "CREATE TABLE x LIKE {other} USING delta": "CREATE TABLE LIKE",
    "CREATE TABLE x LIKE {known}": "CREATE TABLE LIKE",
    "CREATE TABLE delta.`{path}2` LIKE {other}": "CREATE TABLE LIKE",
}


@pytest.mark.parametrize("statement", CREATIONS)
def test_creating(delta: SparkSession, table: str, other: str, known: str, statement: str) -> None:
    message = refused(delta, table, lambda: delta.sql(statement.format(path=table, other=other, known=known)))
    assert f"does not support {CREATIONS[statement]} for Delta tables yet on " in message
    assert "df.write" in message


def test_creating_where_delta_is_the_default_source(delta: SparkSession, table: str) -> None:
    delta.conf.set("spark.sql.sources.default", "delta")
    try:
        assert "CREATE TABLE " in refused(delta, table, lambda: delta.sql("CREATE TABLE x (id long)"))
    finally:
        delta.conf.unset("spark.sql.sources.default")


ALTERATIONS = (
    "SET LOCATION '/tmp/nowhere'",
    "SET SERDEPROPERTIES ('a' = 'b')",
    "RENAME TO elsewhere",
    "ADD PARTITION (part = 3)",
    "DROP PARTITION (part = 1)",
    "PARTITION (part = 1) RENAME TO PARTITION (part = 7)",
    "RECOVER PARTITIONS",
)


@pytest.mark.parametrize("change", ALTERATIONS)
def test_altering_by_path(delta: SparkSession, table: str, change: str) -> None:
    message = refused(delta, table, lambda: delta.sql(f"ALTER TABLE delta.`{table}` {change}"))
    assert "ALTER TABLE" in message
    assert f"delta.`{table}`" in message


@pytest.mark.parametrize("change", ALTERATIONS)
def test_altering_by_name(delta: SparkSession, table: str, known: str, change: str) -> None:
    message = refused(delta, table, lambda: delta.sql(f"ALTER TABLE {known} {change}"))
    assert "ALTER TABLE" in message
    assert known in message


@pytest.mark.parametrize("named", ["by path", "by name"])
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("TRUNCATE TABLE {t}", "TRUNCATE TABLE"),
        ("TRUNCATE TABLE {t} PARTITION (part = 1)", "TRUNCATE TABLE"),
        ("COMMENT ON TABLE {t} IS 'x'", "COMMENT ON TABLE"),
        ("MSCK REPAIR TABLE {t}", "MSCK REPAIR TABLE"),
        ("ANALYZE TABLE {t} COMPUTE STATISTICS", "ANALYZE TABLE"),
        ("LOAD DATA INPATH '/tmp/nowhere' INTO TABLE {t}", "LOAD DATA"),
        ("SHOW PARTITIONS {t}", "SHOW PARTITIONS"),
        ("DESCRIBE HISTORY {t}", "history()"),
        ("DESCRIBE DETAIL {t}", "detail()"),
        ("UPDATE {t} SET id = 1", "UPDATE"),
        ("UPDATE {t} AS x SET x.nope = 1 WHERE x.id = 3", "UPDATE"),
        ("MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", "MERGE"),
        ("MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", "MERGE"),
        ("INSERT OVERWRITE {t} PARTITION (part = 1) SELECT 1", "INSERT OVERWRITE of a part"),
        ("INSERT INTO {t} REPLACE WHERE id > 5 SELECT 1, 1", "INSERT OVERWRITE of a part"),
    ],
)
def test_other_statements(delta: SparkSession, table: str, known: str, statement: str, told: str, named: str) -> None:
    name = f"delta.`{table}`" if named == "by path" else known
    message = refused(delta, table, lambda: delta.sql(statement.format(t=name)))
    assert told in message
    assert name in message


@pytest.mark.parametrize("end", ["", " PURGE"])
@pytest.mark.parametrize("condition", ["", "IF EXISTS "])
def test_dropping_by_path(delta: SparkSession, table: str, condition: str, end: str) -> None:
    assert "DROP TABLE" in refused(delta, table, lambda: delta.sql(f"DROP TABLE {condition}delta.`{table}`{end}"))


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_save_as_table(delta: SparkSession, table: str, mode: str) -> None:
    writer = delta.range(2).write.format("delta").mode(mode)
    assert "TABLE AS SELECT for Delta tables yet on new_one" in refused(delta, table, lambda: writer.saveAsTable("new_one"))
    assert "TABLE AS SELECT" in refused(delta, table, lambda: writer.option("path", table).saveAsTable("new_one"))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_save_as_table_in_the_place_of_another(delta: SparkSession, table: str, other: str, mode: str) -> None:
    refused(delta, table, lambda: delta.range(2).write.format("delta").mode(mode).saveAsTable(other))
    assert delta.table(other).collect() == [(1, 0)]


@pytest.mark.parametrize("verb", ["create", "replace", "createOrReplace"])
def test_write_to_as_ddl(delta: SparkSession, table: str, other: str, verb: str) -> None:
    refused(delta, table, lambda: getattr(delta.range(2).writeTo(other).using("delta"), verb)())
    refused(delta, table, lambda: getattr(delta.range(2).writeTo(f"delta.`{table}`").using("delta"), verb)())


def test_catalog_create_table(delta: SparkSession, table: str) -> None:
    refused(delta, table, lambda: delta.catalog.createTable("new_one", path=table, source="delta"))


def test_overwrites_of_a_part(delta: SparkSession, table: str) -> None:
    writer = delta.range(2).selectExpr("id", "id AS part").writeTo(f"delta.`{table}`")
    assert "dynamic partition overwrite" in refused(delta, table, writer.overwritePartitions)
    assert "INSERT OVERWRITE of a part" in refused(delta, table, lambda: writer.overwrite(F.col("id") > 1))


def test_streams(delta: SparkSession, table: str, tmp_path: Path) -> None:
    rate = delta.readStream.format("rate").load()
    assert "reading a stream" in refused(delta, table, lambda: delta.readStream.format("delta").load(table))
    assert "reading a stream" in refused(delta, table, lambda: delta.readStream.table(f"delta.`{table}`"))
    writer = rate.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    message = refused(delta, table, lambda: writer.start(table))
    assert "writing a stream" in message
    assert "foreachBatch" in message
    assert "CREATE TABLE" in refused(delta, table, lambda: writer.toTable("new_one"))


def test_writes_to_an_old_version(delta: SparkSession, table: str) -> None:
    before = state(delta, table)
    for statement in ("INSERT INTO delta.`{t}@v0` VALUES (1, 1)", "DELETE FROM delta.`{t}@v0` WHERE id = 1"):
        with pytest.raises(UnsupportedOperationError, match="Leave out the version"):
            delta.sql(statement.format(t=table))
    assert state(delta, table) == before


def test_a_relative_path_in_sql(delta: SparkSession) -> None:
    with pytest.raises(UnsupportedOperationError, match="absolute path") as caught:
        delta.sql("SELECT * FROM delta.`some/where`")
    check_ours(caught)


def test_a_path_without_a_table(delta: SparkSession, tmp_path: Path) -> None:
    reads: list[Callable[[], DataFrame]] = [
        lambda: delta.read.format("delta").load(str(tmp_path)),
        lambda: delta.sql(f"SELECT * FROM delta.`{tmp_path}`"),
    ]
    for read in reads:
        with pytest.raises(NotADeltaTableError, match=r"is no Delta table.*Check the path") as caught:
            read()
        assert str(tmp_path) in check_ours(caught)


def test_no_path(delta: SparkSession) -> None:
    for act in (delta.read.format("delta").load, delta.range(1).write.format("delta").save):
        with pytest.raises(InvalidOptionError, match="needs the path") as caught:
            act()
        check_ours(caught)


def test_a_stray_table_named_history_is_described(delta: SparkSession) -> None:
    delta.sql("CREATE TABLE history (id long) USING parquet")
    try:
        assert delta.sql("DESCRIBE history id").collect()[0].info_value == "id"
    finally:
        delta.sql("DROP TABLE history")


def test_reading_statements_are_served(delta: SparkSession, table: str, known: str) -> None:
    for name in (f"delta.`{table}`", known):
        assert [row.col_name for row in delta.sql(f"DESCRIBE TABLE {name}").collect()][:2] == ["id", "part"]
        assert "PARTITIONED BY (part)" in delta.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
        assert [row.col_name for row in delta.sql(f"SHOW COLUMNS IN {name}").collect()] == ["id", "part"]
        assert delta.sql(f"SELECT count(*) FROM {name}").collect() == [(10,)]
        delta.sql(f"REFRESH TABLE {name}")


def test_other_providers_are_unharmed(delta: SparkSession, tmp_path: Path) -> None:
    delta.sql("CREATE TABLE plain (id long, part long) USING parquet PARTITIONED BY (part)")
    try:
        delta.sql("INSERT INTO plain PARTITION (part = 1) VALUES (1)")
        delta.sql("ALTER TABLE plain ADD COLUMN extra string")
        delta.sql("ALTER TABLE plain SET TBLPROPERTIES ('a' = 'b')")
        delta.sql("COMMENT ON TABLE plain IS 'x'")
        delta.sql("MSCK REPAIR TABLE plain")
        assert [row.partition for row in delta.sql("SHOW PARTITIONS plain").collect()] == ["part=1"]
        delta.sql("CREATE TABLE copied USING parquet AS SELECT id FROM plain")
        delta.sql("CREATE TABLE alike LIKE plain")
        delta.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT 1 AS a")
        delta.sql("CREATE OR REPLACE VIEW seen_for_ever AS SELECT id FROM plain")
        delta.range(3).write.mode("overwrite").saveAsTable("copied")
        assert delta.table("copied").count() == 3
        delta.range(1).write.format("parquet").mode("append").saveAsTable("copied")
        delta.sql("TRUNCATE TABLE copied")
        assert delta.table("copied").count() == 0
        delta.sql("ALTER TABLE copied RENAME TO renamed")
        assert delta.sql("SELECT count(*) FROM seen_for_ever").collect() == [(1,)]
        delta.range(3).write.parquet(str(tmp_path / "p"))
        assert delta.sql(f"SELECT count(*) FROM parquet.`{tmp_path / 'p'}`").collect() == [(3,)]
    finally:
        delta.sql("DROP VIEW IF EXISTS seen_for_ever")
        for name in ("plain", "copied", "alike", "renamed"):
            delta.sql(f"DROP TABLE IF EXISTS {name}")
