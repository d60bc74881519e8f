"""``df.write.format("delta")``: modes, options, what the log says afterwards, and what is refused with nothing changed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.core.errors import (
    InvalidOptionError,
    InvalidTablePropertyError,
    LakelogError,
    PartitionColumnError,
    TableExistsError,
    TransactionActiveError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
    UnsupportedTypeError,
)
from lakelog.spark import DeltaTable, data_files, footers
from lakelog.spark.transaction import transaction
from tests.spark.tables import commit, field, info, latest, make_log, of_kind, parquet_files, rows, save, struct, versions

DEFAULTS = ("spark.databricks.delta.properties.defaults.", "spark.lakelog.properties.defaults.")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "the table")


@contextmanager
def conf(spark: SparkSession, **entries: str) -> Iterator[None]:
    """Session confs for a while; ``__`` in a name stands for a dot."""
    named = {name.replace("__", "."): value for name, value in entries.items()}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in named:
            spark.conf.unset(name)


def frame(spark: SparkSession, *values: tuple[object, ...], schema: str = "id long, p string") -> Any:
    return spark.createDataFrame(list(values), schema)


# modes and the commit's own words, as delta-spark 4.4.0 writes them -----------------------------------------------------


def told(table: str) -> dict[str, Any]:
    """commitInfo without what differs from run to run."""
    found = info(table)
    metrics = {name: value for name, value in found["operationMetrics"].items() if not name.endswith("Bytes")}
    gone = ("timestamp", "engineInfo", "txnId", "operationMetrics")
    return {**{name: value for name, value in found.items() if name not in gone}, "operationMetrics": metrics}


@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_a_first_write_in_each_mode(delta: SparkSession, path: str, mode: str) -> None:
    save(frame(delta, (1, "a"), (2, "b")), path, mode)
    spelled = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}[mode]
    assert told(path) == {
        "operation": "WRITE",
        "operationParameters": {"mode": spelled, "partitionBy": "[]"},
        "isolationLevel": "Serializable",
        "isBlindAppend": mode != "overwrite",
        "operationMetrics": {"numFiles": "1", "numOutputRows": "2"},
    }
    assert info(path)["operationMetrics"]["numOutputBytes"] == str(of_kind(path, "add")[0]["size"])
    assert rows(delta, path) == [(1, "a"), (2, "b")]


def test_append_and_overwrite_of_a_table(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path, partition_by=["p"])
    save(frame(delta, (2, "b")), path)
    partitioned = '["p"]'
    assert told(path) == {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": partitioned},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "1", "numOutputRows": "1"},
    }
    sizes = [of_kind(path, "add", version)[0]["size"] for version in (0, 1)]
    save(frame(delta, (3, "c"), (4, None)), path, "overwrite")
    assert told(path) == {
        "operation": "WRITE",
        "operationParameters": {"mode": "Overwrite", "partitionBy": partitioned},
        "readVersion": 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numFiles": "2", "numOutputRows": "2", "numRemovedFiles": "2"},
    }
    assert info(path)["operationMetrics"]["numRemovedBytes"] == str(sum(sizes))
    assert rows(delta, path) == [(3, "c"), (4, None)]
    removed = of_kind(path, "remove")
    assert sorted(remove["path"] for remove in removed) == sorted(of_kind(path, "add", v)[0]["path"] for v in (0, 1))
    assert all(remove["dataChange"] and remove["extendedFileMetadata"] and remove["deletionTimestamp"] for remove in removed)
    assert sorted(remove["partitionValues"]["p"] for remove in removed) == ["a", "b"]


def test_a_table_is_overwritten_by_what_was_read_from_it(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a"), (2, "b")), path)
    save(delta.read.format("delta").load(path).selectExpr("id + 10 AS id", "p"), path, "overwrite")
    assert rows(delta, path) == [(11, "a"), (12, "b")]
    save(delta.read.format("delta").load(path), path)
    assert rows(delta, path) == [(11, "a"), (11, "a"), (12, "b"), (12, "b")]


def test_error_and_ignore_leave_a_table_alone(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path)
    save(frame(delta, (2, "b")), path, "ignore")
    with pytest.raises(TableExistsError, match=r'the table already exists at version 0.*mode\("append"\) or mode\("overwrite"\)'):
        save(frame(delta, (2, "b")), path, "error")
    assert (versions(path), len(parquet_files(path))) == ([0], 1)


def test_a_cached_frame_shows_what_was_written(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path)
    cached = delta.read.format("delta").load(path).cache()
    assert cached.count() == 1
    save(frame(delta, (2, "b")), path)
    assert delta.read.format("delta").load(path).count() == 2
    cached.unpersist()


# empty frames --------------------------------------------------------------------------------------------------------


def test_an_empty_frame_makes_a_table_with_a_schema_and_no_file(delta: SparkSession, path: str) -> None:
    save(frame(delta), path, partition_by=["p"])
    assert [next(iter(action)) for action in commit(path, 0)] == ["commitInfo", "protocol", "metaData"]
    assert info(path)["operationMetrics"] == {"numFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"}
    assert delta.read.format("delta").load(path).dtypes == [("id", "bigint"), ("p", "string")]
    assert (rows(delta, path), parquet_files(path)) == ([], [])


def test_an_append_of_nothing_is_no_commit(delta: SparkSession, path: str) -> None:
    """As in delta-spark 4.4.0."""
    save(frame(delta, (1, "a")), path)
    save(frame(delta), path)
    save(frame(delta, (5, "e")).where("id < 0"), path)
    assert (versions(path), len(parquet_files(path))) == ([0], 1)


def test_an_overwrite_with_nothing_empties_the_table(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path)
    save(frame(delta), path, "overwrite")
    assert [next(iter(action)) for action in commit(path, 1)] == ["commitInfo", "remove"]
    assert rows(delta, path) == []


def test_tasks_without_rows_leave_no_file_in_the_log(delta: SparkSession, path: str) -> None:
    delta.range(4).repartition(8).where("id = 2").write.format("delta").save(path)
    adds = of_kind(path, "add")
    assert [add["stats"].startswith('{"numRecords":1') for add in adds] == [True]
    assert len(parquet_files(path)) == 1


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_footers_of_many_files_are_read_by_a_job(delta: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("LAKELOG_ENGINE") == "arrow":
        pytest.skip("the Arrow engine's tasks hand their footers over")
    jobs: list[object] = []
    by_job = footers._by_job
    monkeypatch.setattr(footers, "JOB_FROM_FILES", 3)
    monkeypatch.setattr(footers, "_by_job", lambda *given: jobs.append(by_job(*given)) or jobs[-1])
    delta.range(0, 12, 1, 4).write.format("delta").save(path)
    stats = [json.loads(add["stats"]) for add in of_kind(path, "add")]
    assert sorted((told["numRecords"], told["minValues"]["id"], told["maxValues"]["id"]) for told in stats) == [
        (3, first, first + 2) for first in (0, 3, 6, 9)
    ]
    assert [len(found) for found in jobs if isinstance(found, list)] == [4]


# partitioning --------------------------------------------------------------------------------------------------------


def test_partitioning_is_kept_and_another_one_refused_with_both_lists(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a", 1), schema="id long, p string, q int"), path, partition_by=["P", "q"])
    assert of_kind(path, "metaData")[0]["partitionColumns"] == ["p", "q"]
    save(frame(delta, (2, "b", 2), schema="id long, p string, q int"), path)
    save(frame(delta, (3, "c", 3), schema="id long, p string, q int"), path, partition_by=["p", "Q"])
    assert of_kind(path, "add")[0]["partitionValues"] == {"p": "c", "q": "3"}
    for given in (["q"], ["q", "p"], ["id"]):
        said = rf"the table.*partitioned by \(p, q\), the write asks for \({', '.join(given)}\)"
        with pytest.raises(PartitionColumnError, match=said):
            save(frame(delta, (4, "d", 4), schema="id long, p string, q int"), path, partition_by=given)
    assert versions(path) == [0, 1, 2]


@pytest.mark.parametrize("name", ["my-col", "2020", "größe", "x`y", "a.b", "select"])
def test_special_characters_in_the_names_of_partition_columns(delta: SparkSession, path: str, name: str) -> None:
    save(frame(delta, (1, "a")).withColumnRenamed("p", name), path, partition_by=[name])
    save(frame(delta, (2, "b")).withColumnRenamed("p", name), path)
    assert of_kind(path, "metaData", 0)[0]["partitionColumns"] == [name]
    assert rows(delta, path) == [(1, "a"), (2, "b")]


def test_special_characters_in_partition_values(delta: SparkSession, path: str) -> None:
    values = ["a b", "a:b", "50%", "a+b", "x/y", "ü😀", "a=b", "#?", "'\"", "a\\b", "%20", "{}", "tab\tline\n", "__x", None]
    save(frame(delta, *((i, value) for i, value in enumerate(values))), path, partition_by=["p"])
    assert sorted(str(add["partitionValues"]["p"]) for add in of_kind(path, "add")) == sorted(map(str, values))
    assert sorted(rows(delta, path), key=lambda row: int(str(row[0]))) == list(enumerate(values))


# options -------------------------------------------------------------------------------------------------------------


def test_user_metadata_of_the_option_before_that_of_the_session(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path, userMetadata="by option")
    assert info(path)["userMetadata"] == "by option"
    for key in ("spark__databricks__delta__commitInfo__userMetadata", "spark__lakelog__commitInfo__userMetadata"):
        with conf(delta, **{key: "by session"}):
            save(frame(delta, (1, "a")), path)
            assert info(path)["userMetadata"] == "by session"
            save(frame(delta, (1, "a")), path, userMetadata="by option")
            assert info(path)["userMetadata"] == "by option"
            delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
            assert info(path)["userMetadata"] == "by session"
            save(frame(delta, (1, "a")), path)
    save(frame(delta, (1, "a")), path)
    assert "userMetadata" not in info(path)


def test_max_records_per_file(delta: SparkSession, path: str) -> None:
    save(delta.range(10), path, maxRecordsPerFile=4)
    assert sorted(pq.read_metadata(file).num_rows for file in parquet_files(path)) == [2, 4, 4]
    assert len(of_kind(path, "add")) == 3
    with pytest.raises(InvalidOptionError, match="the table: maxRecordsPerFile must be a number of rows, not 'many'"):
        save(delta.range(10), path, maxRecordsPerFile="many")
    assert versions(path) == [0]


def codecs(table: str) -> set[str]:
    return {pq.read_metadata(file).row_group(0).column(0).compression for file in parquet_files(table)}


@pytest.mark.parametrize(("codec", "stored"), [("zstd", "ZSTD"), ("GZIP", "GZIP"), ("none", "UNCOMPRESSED"), ("snappy", "SNAPPY")])
def test_compression(delta: SparkSession, path: str, codec: str, stored: str) -> None:
    save(delta.range(100), path, compression=codec)
    assert codecs(path) == {stored}


def test_compression_of_the_table(delta: SparkSession, path: str) -> None:
    save(delta.range(10), path, **{"delta.parquet.compression.codec": "gzip"})
    save(delta.range(10, 20), path)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id % 2 = 0")
    assert codecs(path) == {"GZIP"}
    save(delta.range(10), path, compression="zstd")
    assert codecs(path) == {"GZIP", "ZSTD"}


def test_a_codec_that_does_not_exist(delta: SparkSession, path: str) -> None:
    with pytest.raises(InvalidOptionError, match="the table: the option compression=zzz names no codec of Parquet"):
        save(delta.range(10), path, compression="zzz")
    assert not Path(path).exists()


def test_an_option_that_comes_later_is_refused_by_name(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path, partition_by=["p"])
    with pytest.raises(UnsupportedOperationError, match="the table: the write option writePartitionColumns=true comes with a later"):
        save(frame(delta, (2, "b")), path, writePartitionColumns="true")
    assert (versions(path), len(parquet_files(path))) == ([0], 1)


def test_options_that_change_nothing_are_taken(delta: SparkSession, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lakelog"):
        save(frame(delta, (1, "a")), path, mergeSchema="false", overwriteSchema="FALSE", dataChange="true", optimizeWrite="false")
        save(frame(delta, (1, "a")), path, "overwrite", ["p"][:0], partitionOverwriteMode="static")
    assert (latest(path), caplog.messages) == (1, [])


def test_an_unknown_option_is_ignored_with_a_warning(delta: SparkSession, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lakelog"):
        save(frame(delta, (1, "a")), path, mergeSchemma="true")
    assert caplog.messages == [
        f"Delta table {path}: the write option mergeschemma is not known and was ignored; the nearest known one is mergeSchema."
    ]
    assert versions(path) == [0]


def test_cluster_by(delta: SparkSession, path: str) -> None:
    frame(delta, (1, "a")).write.format("delta").clusterBy("p").save(path)
    assert DeltaTable.forPath(delta, path).detail().first()["clusteringColumns"] == ["p"]  # type: ignore[index]
    save(frame(delta, (2, "b")), path)
    with pytest.raises(PartitionColumnError, match=r"the table.*\(p\).*\(id\)"):
        frame(delta, (1, "a")).write.format("delta").mode("append").clusterBy("id").save(path)
    assert versions(path) == [0, 1]


# table properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", DEFAULTS)
def test_default_properties_of_the_session(delta: SparkSession, path: str, prefix: str) -> None:
    name = prefix.replace(".", "__")
    with conf(delta, **{f"{name}appendOnly": "true", f"{name}checkpointInterval": "3"}):
        save(frame(delta, (1, "a")), path)
    assert of_kind(path, "metaData")[0]["configuration"] == {"delta.appendOnly": "true", "delta.checkpointInterval": "3"}
    for attempt in (
        lambda: save(frame(delta, (2, "b")), path, "overwrite"),
        lambda: delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 1"),
        lambda: delta.sql(f"DELETE FROM delta.`{path}`"),
    ):
        with pytest.raises(UnsupportedOperationError, match=r"the table: .*append-only \(table property delta.appendOnly = true\)"):
            attempt()
    assert versions(path) == [0]
    for number in range(1, 4):
        save(frame(delta, (number, "b")), path)
    assert (Path(path) / "_delta_log" / f"{3:020d}.checkpoint.parquet").is_file()


def test_defaults_reach_new_tables_alone(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path)
    with conf(delta, spark__lakelog__properties__defaults__appendOnly="true"):
        save(frame(delta, (2, "b")), path, "overwrite")
    assert of_kind(path, "metaData", 0)[0]["configuration"] == {}
    assert of_kind(path, "metaData", 1) == []


def test_default_properties_that_disagree_or_make_no_sense(delta: SparkSession, path: str) -> None:
    ours, theirs = (prefix.replace(".", "__") for prefix in reversed(DEFAULTS))
    with (
        conf(delta, **{f"{ours}appendOnly": "true", f"{theirs}appendOnly": "false"}),
        pytest.raises(InvalidTablePropertyError, match=r"two values for delta.appendOnly: 'false' and 'true'.*databricks.*lakelog"),
    ):
        save(frame(delta, (1, "a")), path)
    for key, value, said in (
        ("appendOnly", "maybe", "delta.appendOnly.*maybe"),
        ("checkpointInterval", "0", "delta.checkpointInterval.*0"),
        ("logRetentionDuration", "interval 1 month", "delta.logRetentionDuration"),
        ("apendOnly", "true", "no table property delta.apendOnly. The nearest is delta.appendOnly"),
        ("minReaderVersion", "two", "delta.minReaderVersion is 'two', not a version number"),
    ):
        with conf(delta, **{f"{ours}{key}": value}), pytest.raises(InvalidTablePropertyError, match=said):
            save(frame(delta, (1, "a")), path)
    with conf(delta, **{f"{theirs}enableDeletionVectors": "true"}), pytest.raises(UnsupportedFeatureError, match="deletionVectors"):
        save(frame(delta, (1, "a")), path)
    assert not Path(path).exists()


def test_protocol_versions_among_the_defaults_are_tolerated(delta: SparkSession, path: str) -> None:
    name = DEFAULTS[0].replace(".", "__")
    with conf(delta, **{f"{name}minReaderVersion": "2", f"{name}minWriterVersion": "5"}):
        save(frame(delta, (1, "a")), path)
    assert of_kind(path, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    assert of_kind(path, "metaData")[0]["configuration"] == {}


def test_properties_by_option_for_a_new_table(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path, **{"delta.appendOnly": "true"})
    assert of_kind(path, "metaData")[0]["configuration"] == {"delta.appendOnly": "true"}
    with pytest.raises(InvalidTablePropertyError, match=r"there is no table property delta\.bogus"):
        save(frame(delta, (1, "a")), path + "2", **{"delta.bogus": "1"})
    assert not Path(path + "2").exists()


# a transaction inside a transaction ----------------------------------------------------------------------------------


def test_a_transaction_inside_another_is_refused(delta: SparkSession, path: str) -> None:
    save(frame(delta, (1, "a")), path)
    said = r"DELETE on Delta table .*the table was started inside another.*OUTER on /outer"
    with transaction("OUTER", "/outer"), pytest.raises(TransactionActiveError, match=said):
        DeltaTable.forPath(delta, path).delete()
    assert versions(path) == [0]
    save(frame(delta, (2, "b")), path)
    assert versions(path) == [0, 1]


def test_a_write_inside_another_through_spark_is_refused(delta: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(frame(delta, (1, "a")), path)
    write_files = data_files.write

    def write_twice(*arguments: Any, **more: Any) -> data_files.NewFiles:
        if arguments[2] == path:
            save(frame(delta, (2, "b")), path + "-inner")
        return write_files(*arguments, **more)

    monkeypatch.setattr(data_files, "write", write_twice)
    with pytest.raises(TransactionActiveError, match="WRITE was started inside another transaction"):
        save(frame(delta, (3, "c")), path)
    assert versions(path) == [0]
    assert not Path(path + "-inner").exists()
    monkeypatch.undo()
    save(frame(delta, (2, "b")), path)
    assert versions(path) == [0, 1]


# what Delta cannot hold, and tables that lakelog does not write ------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT 1 id, null v", "column v is of type void"),
        ("SELECT 1 id, struct(null AS w) v", "column v.w is of type void"),
        ("SELECT 1 id, INTERVAL 1 DAY v", "interval day"),
        ("SELECT 1 id, INTERVAL 1 MONTH v", "interval month"),
        ("SELECT 1 id, array(INTERVAL 1 DAY) v", "interval day"),
        ("SELECT 1 id, 'a' COLLATE UTF8_LCASE v", "column v .*collation"),
        ("SELECT 1 id, array('a' COLLATE UNICODE) v", "v.*collation"),
        ("SELECT 1 id, parse_json('1') v", "column v is of type variant"),
    ],
)
def test_types_that_a_table_cannot_hold(delta: SparkSession, path: str, query: str, said: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=said) as caught:
        save(delta.sql(query), path)
    assert path in str(caught.value)
    assert not Path(path).exists()


def test_user_defined_types_are_refused(delta: SparkSession, path: str) -> None:
    from pyspark.testing.objects import ExamplePoint

    points = delta.createDataFrame([(1, ExamplePoint(1.0, 2.0))], ["id", "v"])
    with pytest.raises(UnsupportedTypeError, match="v"):
        save(points, path)
    assert not Path(path).exists()


PLAIN = struct(field("id", "long"), field("g", "long"))


def listing(table: str, feature: str, **properties: str) -> str:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    return make_log(table, PLAIN, protocol=protocol, **properties)


@pytest.mark.parametrize(
    ("feature", "make"),
    [
        ("materializePartitionColumns", lambda p: listing(p, "materializePartitionColumns")),
        ("icebergCompatV2", lambda p: listing(p, "icebergCompatV2", delta_enableIcebergCompatV2="true")),
        ("fromTheFuture", lambda p: listing(p, "fromTheFuture")),
    ],
)
def test_tables_with_features_that_come_later_are_refused_by_name(
    delta: SparkSession, path: str, feature: str, make: Callable[[str], str]
) -> None:
    make(path)
    for attempt in (
        lambda: save(delta.range(2).selectExpr("id", "id AS g"), path),
        lambda: save(delta.range(2).selectExpr("id", "id AS g"), path, "overwrite"),
        lambda: delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 1"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=feature) as caught:
            attempt()
        assert path in str(caught.value)
    assert (versions(path), parquet_files(path)) == ([0], [])


def test_a_streaming_frame_is_refused(delta: SparkSession, path: str) -> None:
    with pytest.raises((LakelogError, PySparkException), match="streaming"):
        delta.readStream.format("rate").load().write.format("delta").save(path)
    assert not Path(path).exists()
