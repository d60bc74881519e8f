"""`DeltaTable` under delta-spark's names: history and detail in its columns, arguments checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog.core.errors import InvalidOptionError
from lakelog.spark import DeltaTable

HISTORY = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string, operationParameters map<string,string>, "
    "job struct<jobId:string,jobName:string,jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>, "
    "notebook struct<notebookId:string>, clusterId string, readVersion bigint, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string,string>, userMetadata string, engineInfo string"
)
DETAIL = (
    "format string, id string, name string, description string, location string, createdAt timestamp, lastModified timestamp, "
    "partitionColumns array<string>, clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint, properties map<string,string>, "
    "minReaderVersion int, minWriterVersion int, tableFeatures array<string>, readableBy array<string>, writableBy array<string>, "
    "engine string, engineReason string, logStore string"
)


@pytest.fixture
def path(delta: SparkSession, tmp_path: Path) -> str:
    """Three versions: a partitioned write, an append with userMetadata, a delete."""
    made = str(tmp_path / "a table")
    delta.range(10).selectExpr("id", "id % 2 AS part").write.format("delta").partitionBy("part").save(made)
    frame = delta.range(10, 12).selectExpr("id", "id % 2 AS part")
    frame.write.format("delta").mode("append").option("userMetadata", "two more").save(made)
    DeltaTable.forPath(delta, made).delete("id = 3")
    return made


def columns(text: str) -> list[str]:
    """``name type`` of each column, whatever stands between them."""
    return [c.strip() for c in text.split(", ")]


def test_history(delta: SparkSession, path: str) -> None:
    history = DeltaTable.forPath(delta, path).history()
    assert [f"{name} {kind}" for name, kind in history.dtypes] == columns(HISTORY)
    rows = history.collect()
    assert [(row.version, row.operation, row.readVersion, row.isBlindAppend) for row in rows] == [
        (2, "DELETE", 1, False),
        (1, "WRITE", 0, True),
        (0, "WRITE", None, True),
    ]
    assert rows[0].operationParameters["predicate"].startswith('["(id = ')
    assert rows[0].operationMetrics["numDeletedRows"] == "1"
    assert rows[1].userMetadata == "two more"
    assert rows[2].operationParameters == {"mode": "ErrorIfExists", "partitionBy": '["part"]'}
    assert rows[0].timestamp > rows[1].timestamp > rows[2].timestamp
    assert all("lakelog" in row.engineInfo for row in rows)
    assert [row.version for row in DeltaTable.forPath(delta, path).history(2).collect()] == [2, 1]


def test_detail(delta: SparkSession, path: str) -> None:
    detail = DeltaTable.forPath(delta, path).detail()
    assert [f"{name} {kind}" for name, kind in detail.dtypes] == columns(DETAIL)
    row = detail.collect()[0]
    assert set(row.writableBy) < set(row.readableBy)
    assert any(engine.startswith("Trino") for engine in row.writableBy)
    assert (row.format, row.name, row.location) == ("delta", None, f"file:{path}")
    assert (row.partitionColumns, row.clusteringColumns, row.properties) == (["part"], [], {})
    assert (row.minReaderVersion, row.minWriterVersion, row.tableFeatures) == (1, 2, ["appendOnly", "invariants"])
    assert (row.engine, row.engineReason, row.logStore) == ("native", "Spark reads file itself", "local")
    files = delta.read.format("delta").load(path).inputFiles()
    assert row.numFiles == len(files)
    assert row.sizeInBytes == sum(Path("/" + f.removeprefix("file:").lstrip("/").replace("%20", " ")).stat().st_size for f in files)
    assert row.createdAt <= row.lastModified


def test_is_delta_table(delta: SparkSession, path: str, tmp_path: Path) -> None:
    assert DeltaTable.isDeltaTable(delta, path)
    assert not DeltaTable.isDeltaTable(delta, str(tmp_path))
    assert not DeltaTable.isDeltaTable(delta, str(tmp_path / "nowhere"))


def test_alias_and_to_df(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    assert table.alias("t").toDF().where("t.id > 8").count() == 3
    table.alias("t").delete("t.id = 11")
    table.delete(F.col("id") == 10)
    assert sorted(row.id for row in table.toDF().collect()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_hadoop_conf(delta: SparkSession, path: str) -> None:
    assert DeltaTable.forPath(delta, path, {"fs.some.key": "x", "dfs.other": "y"}).toDF().count() == 11
    with pytest.raises(InvalidOptionError, match=r"fs\.\* and dfs\.\* alone, not 'spark.x'"):
        DeltaTable.forPath(delta, path, {"spark.x": "y"})


def test_arguments_of_the_wrong_type(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    wrong: dict[str, Callable[[], object]] = {
        "sparkSession must be a SparkSession, not str": lambda: DeltaTable.forPath("spark", path),  # type: ignore[arg-type]
        "path must be a str, not int": lambda: DeltaTable.forPath(delta, 1),  # type: ignore[arg-type]
        "hadoopConf must be a Mapping, not list": lambda: DeltaTable.forPath(delta, path, ["x"]),  # type: ignore[arg-type]
        "identifier must be a str, not int": lambda: DeltaTable.isDeltaTable(delta, 1),  # type: ignore[arg-type]
        "aliasName must be a str, not int": lambda: table.alias(1),  # type: ignore[arg-type]
        "condition must be a str or Column, not int": lambda: table.delete(1),  # type: ignore[arg-type]
        "limit must be a int, not str": lambda: table.history("1"),  # type: ignore[arg-type]
    }
    for message, act in wrong.items():
        with pytest.raises(TypeError, match=message):
            act()
