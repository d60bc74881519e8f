"""The Arrow engine's write beside the native one: the same files, the same statistics, the same errors, on local tables."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.errors import (
    ConstraintViolationError,
    InvalidOptionError,
    StoreConfigurationError,
    UnsupportedOperationError,
    WriteFailedError,
)
from lakelog.spark import DeltaTable as Table
from lakelog.spark import IdentityGenerator, arrow_write
from lakelog.spark.arrow_writer import WriteTask, write_rows
from lakelog.spark.engine import ENGINE_CONF
from lakelog.spark.executor_access import ExecutorAccess, executor_access
from lakelog.storage.file_access import FileAccess
from tests.spark.tables import commit, of_kind, parquet_files, rows, save, versions

_NAME = re.compile(r"part-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-]c\d{3}(\.[a-z0-9]+)?\.parquet")


@contextmanager
def engine(spark: SparkSession, name: str) -> Iterator[None]:
    before = spark.conf.get(ENGINE_CONF, "auto")
    spark.conf.set(ENGINE_CONF, name)
    try:
        yield
    finally:
        spark.conf.set(ENGINE_CONF, str(before))


@pytest.fixture
def arrow(session: SparkSession) -> Iterator[SparkSession]:
    """The session with the Arrow engine."""
    with engine(session, "arrow"):
        yield session


def both(spark: SparkSession, frame: DataFrame, folder: Path, **options: Any) -> tuple[str, str]:
    """The frame as a table by the native engine, and by the Arrow engine."""
    told = []
    for name in ("native", "arrow"):
        path = str(folder / name)
        with engine(spark, name):
            save(frame, path, **options)
        told.append(path)
    return told[0], told[1]


def stats(table: str) -> list[dict[str, Any]]:
    """Of each file of the newest version, by partition."""
    adds = sorted(of_kind(table, "add"), key=lambda add: json.dumps(add["partitionValues"], sort_keys=True))
    return [json.loads(add["stats"]) for add in adds]


def footer(path: Path) -> pq.FileMetaData:
    return pq.read_metadata(path)


def columns(path: Path) -> list[tuple[Any, ...]]:
    """What the file's schema says of each leaf."""
    schema = footer(path).schema
    return [
        (c.path, c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level, c.length)
        for c in (schema.column(i) for i in range(len(schema)))
    ]


# files ---------------------------------------------------------------------------------------------------------------

EVERY_TYPE = """
    id, cast(id as byte) b, cast(id as short) s, cast(id as int) i, if(id = 3, null, id * 1000000000000) l,
    if(id = 3, null, id % 2 = 0) flag,
    cast(id - 2 as float) f, cast(id - 2 as double) * 1.5 d,
    if(id = 3, null, concat('text ', id)) t, if(id = 0, '', 'x') e, cast(concat('b', id) as binary) bin,
    cast(id * 1.25 as decimal(9,2)) d9, cast(id * -1.25 as decimal(18,4)) d18, cast(id * 1234567.125 as decimal(38,10)) d38,
    date_add(date'1969-12-30', cast(id as int)) day, timestamp'1969-12-31 23:59:58.999999' + make_interval(0,0,0,0,0,0,id) ts,
    cast(timestamp_ntz'0001-01-01 00:00:00.000001' as timestamp_ntz) ntz,
    if(id = 3, null, named_struct('x', id, 'inner', named_struct('y', cast(id as double), 'z', 'q'))) st,
    if(id = 3, null, array(id, null)) a, array(named_struct('x', id)) sa, map('k', id, 'n', null) m,
    map(id, array(map('deep', id))) mm
"""


def every_type(spark: SparkSession) -> DataFrame:
    return spark.range(0, 6, 1, 1).selectExpr(*_split(EVERY_TYPE)).selectExpr("if(true, id, null) id", "* except (id)")


def _split(text: str) -> list[str]:
    """At commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def test_every_type_as_spark_writes_it(session: SparkSession, tmp_path: Path) -> None:
    native, arrow = both(session, every_type(session), tmp_path)
    (theirs,), (ours,) = parquet_files(native), parquet_files(arrow)
    assert _NAME.fullmatch(ours.name)
    assert ours.name.endswith("-c000.snappy.parquet")
    assert [c[:3] + c[4:] for c in columns(ours)] == [c[:3] + c[4:] for c in columns(theirs)]
    assert stats(arrow) == stats(native)
    assert str(rows(session, arrow)) == str(rows(session, native)), "as text, for no NaN equals another"
    (add,) = of_kind(arrow, "add")
    assert add["size"] == ours.stat().st_size
    assert add["modificationTime"] == ours.stat().st_mtime_ns // 1_000_000
    told = footer(ours)
    assert told.metadata is not None
    assert told.metadata.keys() == (footer(theirs).metadata or {}).keys()
    assert told.num_row_groups == 1


def test_other_readers(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    save(every_type(arrow).drop("mm"), path)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 6
    (file,) = parquet_files(path)
    assert arrow.read.parquet(str(file)).collect() == arrow.read.format("delta").load(path).collect()


VALUES = {
    "floats without NaN": "SELECT double(v) d, float(v) f FROM VALUES (-0.0), (0.0D), (1.5D), (null) t(v)",
    "NaN": "SELECT v d, float(v) f, named_struct('x', v) s, array(v) a FROM VALUES (double('NaN')), (-1.0D) t(v)",
    "nothing but NaN": "SELECT double('NaN') d",
    "infinity": "SELECT v d FROM VALUES (double('Infinity')), (double('-Infinity')), (0.0D) t(v)",
    "zeros": "SELECT v d FROM VALUES (0.0D), (-0.0D) t(v)",
    "nulls": "SELECT cast(null as int) i, cast(null as string) s, cast(null as double) d, cast(null as timestamp) t, 1 one",
    "empty strings": "SELECT v s FROM VALUES (''), ('') t(v)",
    "long strings": "SELECT repeat(v, 50) s FROM VALUES ('a'), ('ab'), ('\u00e9'), ('\U0001f600') t(v)",
    "far dates": "SELECT v d FROM VALUES (date'0001-01-01'), (date'9999-12-31'), (date'1582-10-10') t(v)",
    "old timestamps": "SELECT v t FROM VALUES (timestamp'0001-01-02 00:00:00'), (timestamp'1582-10-04 12:00:00.123456') t(v)",
    "far timestamps": "SELECT v t FROM VALUES (timestamp'9999-12-31 23:59:59.999999'), (timestamp'1969-12-31 23:59:59.999999') t(v)",
    "zoneless": "SELECT v t FROM VALUES (timestamp_ntz'1900-01-01 00:00:00'), (timestamp_ntz'2500-06-30 00:00:00.5') t(v)",
    "decimals": "SELECT v a, cast(v as decimal(38,3)) b FROM VALUES (-99999.999BD), (0.001BD), (null) t(v)",
    "integers": "SELECT v l, cast(v % 100 as byte) b FROM VALUES (9223372036854775807L), (-9223372036854775808L) t(v)",
    "booleans": "SELECT v b FROM VALUES (true), (false) t(v)",
    "binary": "SELECT v b FROM VALUES (X''), (X'00FF') t(v)",
}


@pytest.mark.parametrize("what", VALUES)
def test_statistics_are_those_of_the_native_engine(session: SparkSession, tmp_path: Path, what: str) -> None:
    native, arrow = both(session, session.sql(VALUES[what]), tmp_path)
    assert stats(arrow) == stats(native)
    assert str(rows(session, arrow)) == str(rows(session, native)), "as text, for no NaN equals another"


@pytest.mark.parametrize("condition", ["d > 100", "d = double('NaN')", "s.f > 100", "NOT d <= 2", "d IN (double('NaN'), 7)", "d < 0.5"])
def test_sparks_own_reader_finds_nan(session: SparkSession, tmp_path: Path, condition: str) -> None:
    """To Spark NaN is greater than all; a footer that tells bounds without it would hide it."""
    source = session.sql("SELECT d, named_struct('f', cast(d AS float)) s FROM VALUES (0D), (1D), (double('NaN')), (2D) t(d)").coalesce(1)
    native, arrow = both(session, source, tmp_path)
    found = [session.read.format("delta").load(path).where(condition).count() for path in (arrow, native)]
    assert found == [1, 1]
    assert session.read.parquet(arrow).where(condition).count() == 1


def test_a_nan_that_comes_late_begins_a_new_file(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    values = "CASE WHEN id = 2500 THEN double('NaN') WHEN id % 7 = 0 THEN null ELSE id END"
    source = arrow.range(0, 3000, 1, 1).selectExpr("id", f"{values} d")
    arrow.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        source.write.format("delta").option("parquet.block.row.count.limit", "1000").save(path)
    finally:
        arrow.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    told = sorted(stats(path), key=lambda file: int(file["minValues"]["id"]))
    assert [file["numRecords"] for file in told] == [2000, 1000]
    assert [file["maxValues"].get("d") for file in told] == [1999.0, None]
    assert [file["minValues"]["d"] for file in told] == [1.0, 2000.0]
    assert sum(file["nullCount"]["d"] for file in told) == 429
    arrow.conf.set("spark.lakelog.engine", "native")
    frame = arrow.read.format("delta").load(path)
    assert frame.count() == 3000
    assert [row.id for row in frame.where("d > 5000").collect()] == [2500]


def test_a_column_may_be_called_as_the_folders_of_another(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    arrow.range(2).selectExpr("id", "'a' p").write.format("delta").partitionBy("p").save(path)
    arrow.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    arrow.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN p TO q")
    arrow.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (p STRING)")
    arrow.sql("SELECT 7L id, 'b' q, 'new' p").write.format("delta").mode("append").save(path)
    found = arrow.read.format("delta").load(path).orderBy("id").collect()
    assert [tuple(row[name] for name in ("id", "q", "p")) for row in found] == [(0, "a", None), (1, "a", None), (7, "b", "new")]


def test_another_time_zone(session: SparkSession, tmp_path: Path) -> None:
    session.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        native, arrow = both(session, session.sql("SELECT timestamp'1969-12-31 23:59:59.5' t, date'1969-12-31' d"), tmp_path)
        assert str(rows(session, arrow)) == str(rows(session, native)), "as text, for no NaN equals another"
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    assert stats(arrow) == stats(native)


def test_long_offsets(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    arrow.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        save(arrow.sql("SELECT 'a' s, X'01' b, array('b') a, map('k', named_struct('x', 'c')) m"), path, partition_by=["s"])
    finally:
        arrow.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert [str(c[2]) for c in columns(parquet_files(path)[0])] == ["None", "String", "String", "String"]


def test_an_empty_frame_writes_no_file(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    arrow.range(0, 3, 1, 2).where("id > 5").write.format("delta").save(path)
    assert parquet_files(path) == []
    arrow.range(0, 3, 1, 8).where("id = 1").write.format("delta").mode("append").save(path)
    assert len(parquet_files(path)) == 1
    assert rows(arrow, path) == [(1,)]


def test_one_sql_execution_under_the_writes_name(arrow: SparkSession, tmp_path: Path) -> None:
    store: Any = arrow._jsparkSession.sharedState().statusStore()  # type: ignore[attr-defined]
    before = int(store.executionsCount())
    save(arrow.range(3), str(tmp_path / "t"))
    told = store.executionsList()
    names = [str(told.apply(i).description()) for i in range(before, int(told.length()))]
    assert [name for name in names if "write" in name.lower() and str(tmp_path / "t") in name], names


# options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "uncompressed", "snappy", "gzip", "zstd", "lz4_raw"])
def test_compression(session: SparkSession, tmp_path: Path, codec: str) -> None:
    native, arrow = both(session, session.range(100), tmp_path, compression=codec)
    (theirs,), (ours,) = parquet_files(native), parquet_files(arrow)
    assert ours.name[len("part-00000-") + 36 :] == theirs.name[len("part-00000-") + 36 :]
    assert footer(ours).row_group(0).column(0).compression == footer(theirs).row_group(0).column(0).compression


def test_the_tables_codec(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    arrow.range(9).write.format("delta").option("delta.parquet.compression.codec", "zstd").save(path)
    save(arrow.range(9), path)
    assert {file.name.split(".", 1)[1] for file in parquet_files(path)} == {"zstd.parquet"}


def test_a_codec_that_pyarrow_lacks(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(UnsupportedOperationError, match=rf"{path}.*lzo.*snappy, zstd, gzip"):
        save(arrow.range(9), path, compression="lzo")
    assert versions(path) == []


def test_rows_per_file(session: SparkSession, tmp_path: Path) -> None:
    native, arrow = both(session, session.range(25), tmp_path, maxRecordsPerFile=10)
    assert sorted(file.name[-len("c000.snappy.parquet") :] for file in parquet_files(arrow)) == [
        f"c{i:03d}.snappy.parquet" for i in range(3)
    ]
    assert sorted(map(repr, stats(arrow))) == sorted(map(repr, stats(native)))


def test_options_of_the_parquet_writer(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {"parquet.block.row.count.limit": "10000", "parquet.enable.dictionary": "false", "parquet.bloom.filter.enabled#id": "true"}
    arrow.range(0, 30_000, 1, 1).write.format("delta").options(**options).save(path)
    told = footer(parquet_files(path)[0])
    assert told.num_row_groups == 3
    assert not told.row_group(0).column(0).has_dictionary_page
    with pytest.raises(InvalidOptionError, match=r"parquet\.block\.size has the value 'big'"):
        arrow.range(3).write.format("delta").option("parquet.block.size", "big").mode("append").save(path)


def test_encryption_is_not_left_aside(arrow: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"parquet\.encryption\.footer\.key asks for encrypted"):
        arrow.range(3).write.format("delta").option("parquet.encryption.footer.key", "k1").save(str(tmp_path / "t"))


# partitions ----------------------------------------------------------------------------------------------------------

PARTITIONED = """
    SELECT id, p, q, cast(id % 3 as int) n, date_add(date'2024-02-28', cast(id % 2 as int)) day,
        timestamp'1969-12-31 23:59:59.5' + make_interval(0,0,0,0,0,0,id % 2) at, 'x' v
    FROM (SELECT id, element_at(array('a b', 'c/d=e%', 'f:g', '-', null, '\u00e4\u00f6', 'A'), cast(id % 7 as int) + 1) p,
        if(id % 5 = 0, null, id % 5) q FROM range(0, 200, 1, 1))
"""


@pytest.mark.parametrize("by", [["p"], ["p", "q"], ["n", "day"], ["at"]])
def test_partitions(session: SparkSession, tmp_path: Path, by: list[str]) -> None:
    native, arrow = both(session, session.sql(PARTITIONED), tmp_path, partition_by=by)
    theirs, ours = (sorted(str(f.parent.relative_to(t)) for f in parquet_files(t)) for t in (native, arrow))
    assert ours == theirs
    assert stats(arrow) == stats(native)
    assert [add["partitionValues"] for add in sorted(of_kind(arrow, "add"), key=repr)]
    assert str(rows(session, arrow)) == str(rows(session, native)), "as text, for no NaN equals another"
    assert all(_NAME.fullmatch(file.name) and ".c000." in file.name for file in parquet_files(arrow))


def test_many_partitions_across_batches(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    arrow.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        frame = arrow.range(0, 300, 1, 2).selectExpr("id", "id % 11 p")
        frame.write.format("delta").partitionBy("p").option("maxRecordsPerFile", 5).save(path)
    finally:
        arrow.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert rows(arrow, path) == sorted(((i, i % 11) for i in range(300)), key=repr)
    assert max(s["numRecords"] for s in stats(path)) == 5
    # Of each task's rows of a partition all files but the last are full.
    assert len(parquet_files(path)) == sum(
        -(-len([i for i in part if i % 11 == p]) // 5) for part in (range(150), range(150, 300)) for p in range(11)
    )


# column mapping, change data, rewrites ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(session: SparkSession, tmp_path: Path, mode: str) -> None:
    frame = session.sql("SELECT 1L `a b`, named_struct('x;y', 'q', 'n', array(named_struct('deep', 1.5D))) s, map('k', 2) m, 'p' `part,ed`")
    path = str(tmp_path / "t")
    frame.write.format("delta").option("delta.columnMapping.mode", mode).partitionBy("part,ed").save(path)
    with engine(session, "arrow"):
        save(frame, path, partition_by=["part,ed"])
    theirs, ours = (footer(Path(path) / of_kind(path, "add", version)[0]["path"]).schema for version in (0, 1))
    # The same names, ids and nesting; what the frame knows not to be null is the native engine's to say.
    told = [re.sub(r"required|optional|spark_schema|\[.*\]|schema|<.*>", "", str(schema)).split() for schema in (theirs, ours)]
    assert told[0] == told[1]
    assert stats(path) == [json.loads(of_kind(path, "add", 0)[0]["stats"])]
    assert rows(session, path) == rows(session, path)[:1] * 2


def test_change_data_and_rewrites(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = arrow.range(0, 20, 1, 1).selectExpr("id", "id % 2 p")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").partitionBy("p").save(path)
    arrow.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 4)")
    cdc = [action["cdc"]["path"] for action in commit(path, 1) if "cdc" in action]
    assert sorted(re.sub(r"part-.*", "", p) for p in cdc) == ["_change_data/p=0/", "_change_data/p=1/"]
    assert all("parquet-cpp" in footer(Path(path) / p).created_by for p in cdc)
    assert {len(c) for c in map(columns, [Path(path) / p for p in cdc])} == {2}
    changes = arrow.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    assert sorted((r["id"], r["p"], r["_change_type"]) for r in changes.collect()) == [(3, 1, "delete"), (4, 0, "delete")]
    assert all("parquet-cpp" in footer(Path(path) / add["path"]).created_by for add in of_kind(path, "add", 1))
    arrow.range(100, 102).selectExpr("id", "1L p").write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(path)
    arrow.range(200, 201).selectExpr("id", "0L p").write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(
        path
    )
    assert rows(arrow, path) == [(100, 1), (101, 1), (200, 0)]
    assert all("parquet-cpp" in footer(file).created_by for file in parquet_files(path))


def test_identities_and_generated_columns_come_out_the_same(session: SparkSession, tmp_path: Path) -> None:
    made = []
    for name in ("native", "arrow"):
        path = str(tmp_path / name)
        with engine(session, name):
            columns = Table.create(session).location(path).addColumn("k", "long", generatedAlwaysAs=IdentityGenerator(5, 3))
            columns.addColumn("v", "long").addColumn("g", "long", generatedAlwaysAs="v * 2").addColumn("c", "char(4)").execute()
            for _ in range(2):
                frame = session.range(0, 1000, 1, 4).selectExpr("id v", "'a' c").where("v % 3 <> 0")
                frame.write.format("delta").mode("append").save(path)
        made.append(path)
    assert rows(session, made[0]) == rows(session, made[1])
    marks = [
        json.loads(of_kind(path, "metaData")[0]["schemaString"])["fields"][0]["metadata"]["delta.identity.highWaterMark"] for path in made
    ]
    assert marks[0] == marks[1]


# failures --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(arrow: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "the table")
    save(arrow.range(10), path)
    return path


def test_a_violated_constraint(arrow: SparkSession, table: str) -> None:
    arrow.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (id < 20000)").collect()
    files = parquet_files(table)
    with pytest.raises(
        ConstraintViolationError, match=r"CHECK constraint small \(?id < 20000\)? violated(?s:.*)id : 20000(?s:.*)id : 20004"
    ):
        arrow.range(0, 25_000, 1, 1).write.format("delta").mode("append").option("maxRecordsPerFile", 1000).save(table)
    assert parquet_files(table) == files


def test_rows_that_cannot_be_computed(arrow: SparkSession, table: str) -> None:
    files = parquet_files(table)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        arrow.range(0, 30_000, 1, 1).selectExpr("1 div (id - 25000) id").write.format("delta").mode("append").save(table)
    assert parquet_files(table) == files


def test_files_of_tasks_that_were_through(arrow: SparkSession, table: str) -> None:
    files = parquet_files(table)
    # The two small tasks are long through when the third fails.
    rows_of_three = arrow.range(0, 10, 1, 2).union(arrow.range(100, 1_000_000, 1, 1))
    frame = rows_of_three.selectExpr("if(id = 999999, raise_error('stop here'), id) id")
    with pytest.raises(Exception, match="stop here"):
        frame.write.format("delta").mode("append").save(table)
    assert parquet_files(table) == files


def test_a_file_that_cannot_be_written(arrow: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(WriteFailedError, match=rf"Delta table {path}: the job failed.*File name too long.*partition by another column"):
        save(arrow.range(3).selectExpr("id", "repeat('x', 300) p"), path, partition_by=["p"])
    assert (parquet_files(path), versions(path)) == ([], [])


def test_executors_without_lakelog(arrow: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ModuleNotFoundError("No module named 'lakelog'")

    monkeypatch.setattr(arrow_write, "partial", lambda *_: absent)
    with pytest.raises(StoreConfigurationError, match=r"executors' Python has no module lakelog.*PYSPARK_PYTHON"):
        save(arrow.range(3), table)
    assert versions(table) == [0]


# a task by itself ------------------------------------------------------------------------------------------------------


def task(folder: Path) -> WriteTask:
    return WriteTask(
        access=ExecutorAccess(FileAccess(kind="file")),
        folder=folder.as_uri(),
        schema=pa.schema({"x": pa.int64()}),
        key_values={},
        partition_columns=("p",),
        extension=".parquet",
        parquet={},
        group_bytes=1 << 20,
        group_rows=1 << 20,
        max_rows=2,
    )


def batch(value: str | None, count: int = 3) -> pa.RecordBatch:
    return pa.record_batch({"x": list(range(count)), "p": pa.array([value] * count, pa.string())})


def test_a_task_that_fails_removes_what_it_wrote(tmp_path: Path) -> None:
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        yield batch("b")
        seen.extend(parquet_files(str(tmp_path)))
        raise ConnectionError("the rows stop")

    with pytest.raises(ConnectionError, match="the rows stop"):
        list(write_rows(task(tmp_path), batches()))
    assert {file.parent.name for file in seen} == {"p=a", "p=b"}
    assert parquet_files(str(tmp_path)) == []


@pytest.mark.parametrize("more", [b"", b"\xff\xff\xff\xfc"])
def test_a_connection_that_ends_is_no_end_of_the_rows(tmp_path: Path, more: bytes) -> None:
    def worker(infile: io.BufferedReader) -> list[pa.RecordBatch]:
        return list(write_rows(task(tmp_path), iter([batch(None), batch("b", 0), batch("b", 1)])))

    answers = worker(io.BufferedReader(io.BytesIO(more)))
    assert [answer.num_rows for answer in answers] == ([3] if more else [])
    assert len(parquet_files(str(tmp_path))) == (3 if more else 0)


def test_credentials_travel_in_one_broadcast_alone(session: SparkSession) -> None:
    access = FileAccess(kind="s3", bucket="b").with_secrets({"secret_key": "planted-secret"})
    found = executor_access(session, access)
    assert found.get().secrets == {"secret_key": "planted-secret"}
    assert executor_access(session, access).secrets is found.secrets
    assert executor_access(session, access.with_secrets({"secret_key": "another"})).secrets is not found.secrets
    assert b"planted-secret" not in cloudpickle.dumps(found)
    assert "planted-secret" not in repr(found)
