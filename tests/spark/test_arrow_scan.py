"""Scans of the Arrow engine beside those of Spark's own, over the same local tables: every answer is the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.errors import DataFileMissingError, StorageError, UnsupportedOperationError
from lakelog.spark import DeltaTable
from lakelog.spark.arrow_scan import ArrowScans
from tests.spark.tables import commit, info, latest, of_kind, parquet_files
from tests.spark.test_column_mapping import MODES, WIDE, WIDE_ROWS, make_mapped
from tests.spark.test_scans import files_opened
from tests.spark.test_widened_files import widened

CONF = "spark.lakelog.engine"
T = TypeVar("T")


@pytest.fixture
def by(session: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the engine for what comes next."""
    before = session.conf.get(CONF, None)
    yield lambda engine: session.conf.set(CONF, engine)
    if before is None:
        session.conf.unset(CONF)
    else:
        session.conf.set(CONF, before)


def read(session: SparkSession, path: str, **options: str) -> DataFrame:
    return session.read.format("delta").options(**options).load(path)


def plan_of(frame: DataFrame) -> str:
    return str(cast(Any, frame)._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def same(session: SparkSession, by: Callable[[str], None]) -> Callable[[Callable[[], DataFrame]], list[str]]:
    """Rows by the Arrow engine, after they are found equal to the native ones; the frame is made anew for each."""

    def compared(make: Callable[[], DataFrame]) -> list[str]:
        by("native")
        frame = make()
        assert "MapInArrow" not in plan_of(frame)
        expected = sorted(map(repr, frame.collect()))
        by("arrow")
        frame = make()
        assert "FileScan" not in plan_of(frame)
        found = sorted(map(repr, frame.collect()))
        assert found == expected
        return found

    return compared


TYPES = """SELECT cast(id AS tinyint) b, cast(id AS smallint) sh, cast(id AS int) i, id l, cast(id AS float) / 3 f, id / 3D d, id % 2 = 0 t,
  cast(id AS decimal(5,2)) d5, cast(id AS decimal(18,4)) d18, cast(id AS decimal(38,10)) d38, 'é' || id s, cast('b' || id AS binary) bi,
  date_add(date'1500-01-01', cast(id * 40000 AS int)) da, timestamp_micros(id * 1234567891011 - 9000000000000000) ts,
  cast(timestamp_micros(id * 987654321) AS timestamp_ntz) nt, array(id, null) a, map('k', id, 'n', null) m,
  named_struct('x', id, 'y', named_struct('z', array(named_struct('q', id, 'r', 'r' || id)))) st,
  map(named_struct('n', id), array('v')) mk FROM range(40)"""


def with_nulls(frame: DataFrame) -> DataFrame:
    return frame.select(
        *(F.when(F.col("l") % 5 != i % 5, F.col(c)).alias(c) if c != "l" else F.col(c) for i, c in enumerate(frame.columns))
    )


def test_rows_of_every_type_are_the_same(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t x")
    with_nulls(session.sql(TYPES)).repartition(3).write.format("delta").save(path)
    assert len(same(lambda: read(session, path))) == 40
    for columns in (
        ["a"],
        ["st.y.z.r", "l"],
        ["m['k']", "mk"],
        ["st.x", "st.y.z[0].q"],
        ["size(a)"],
        ["1 c"],
        ["count(*)"],
        ["f", "D", "TS"],
    ):
        same(lambda columns=columns: read(session, path).selectExpr(*columns))


def test_partition_values_of_every_type_are_the_same(session: SparkSession, tmp_path: Path, same: Any) -> None:
    columns = ["b", "i", "l", "f", "d", "t", "d18", "s", "bi", "da", "ts", "nt"]
    path = str(tmp_path / "t")
    frame = with_nulls(session.sql(TYPES).where("l < 12")).select(*(F.col(c).alias(f"p_{c}") for c in columns), "sh", "a")
    frame.write.format("delta").partitionBy(*(f"p_{c}" for c in columns)).save(path)
    assert len(same(lambda: read(session, path))) == 12
    same(lambda: read(session, path).selectExpr("p_ts", "sh").where("p_i > 3 OR p_s IS NULL"))
    same(lambda: read(session, path).where("p_da IS NOT NULL AND sh > 4 AND p_l + sh > 9"))
    same(lambda: read(session, path).groupBy("p_t").count())


FILTERS = [
    "f = double('NaN')",
    "f > 1e30F",
    "NOT f > 1",
    "f <=> NULL",
    "d = 0.0D",
    "d >= 2.5D AND d < double('infinity')",
    "l IN (1, 17, NULL)",
    "l NOT IN (1, 17)",
    "i BETWEEN 3 AND 5 OR s LIKE 'é1%'",
    "s = 'é7'",
    "s LIKE '%7'",
    "bi > X'6231'",
    "t",
    "NOT t",
    "d38 = 7",
    "d5 > 3.25",
    "da < date'1600-01-01'",
    "ts >= timestamp'1690-01-01 00:00:00'",
    "nt = timestamp_ntz'1970-01-01 00:16:27.654321'",
    "st.x > 35",
    "st IS NULL",
    "st.y.z[0].r = 'r4'",
    "a IS NULL AND i IS NOT NULL",
    "coalesce(i, 100) = 100",
    "b = l",
    "rand(1) >= 0",
    "false",
]


def test_filters_keep_the_same_rows(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t")
    frame = with_nulls(session.sql(TYPES)).withColumn("f", F.expr("CASE WHEN l % 7 = 3 THEN float('NaN') WHEN l = 8 THEN -0.0F ELSE f END"))
    frame.repartition(2).write.format("delta").option("parquet.block.size", "600").save(path)

    def left() -> DataFrame:
        return reduce(DataFrame.union, [read(session, path).where(c).select(F.lit(c).alias("c"), "l") for c in FILTERS])

    assert len(same(left)) > 100


@MODES
def test_mapped_columns_are_found(session: SparkSession, tmp_path: Path, same: Any, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p")
    session.sql(WIDE_ROWS).write.format("delta").mode("append").save(table)
    assert len(same(lambda: read(session, table))) == 6
    same(lambda: read(session, table).selectExpr("s.`in ner`.z", "l.x", "m", "ID").where("s.`in ner`.w > 'w2' AND P = 'even'"))


@pytest.mark.parametrize("mode", ["none", "id"])
def test_files_from_before_a_type_was_widened(session: SparkSession, tmp_path: Path, same: Any, mode: str) -> None:
    table = str(tmp_path / "t")
    widened(session, table, mode, in_struct=mode == "id")
    assert len(same(lambda: read(session, table))) > 2


def test_versions_and_columns_that_came_later(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t")
    session.range(5).selectExpr("id", "named_struct('a', id) s").write.format("delta").save(path)
    more = session.range(5, 9).selectExpr("id", "named_struct('a', id, 'b', 'b') s", "id n")
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert len(same(lambda: read(session, path))) == 9
    assert len(same(lambda: read(session, path, versionAsOf="0"))) == 5
    same(lambda: read(session, path).where("n IS NULL OR s.b = 'b'"))
    old, new = f"delta.`{path}@v0`", f"delta.`{path}`"
    assert (
        len(same(lambda: session.sql(f"SELECT x.*, y.n FROM {new} x JOIN {old} y2 ON x.id = y2.id RIGHT JOIN {new} y ON x.id = y.id"))) == 9
    )


def test_joins_subqueries_and_views(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path, small = str(tmp_path / "t"), str(tmp_path / "small")
    session.range(100).selectExpr("id", "id % 10 p").write.format("delta").partitionBy("p").save(path)
    session.range(10).selectExpr("id k", "id % 3 g").write.format("delta").save(small)
    t, s = f"delta.`{path}`", f"delta.`{small}`"
    for text in (
        f"SELECT * FROM {t} WHERE p = (SELECT max(k) FROM {s})",
        f"SELECT * FROM {t} WHERE p IN (SELECT k FROM {s} WHERE g = 0) AND id > (SELECT avg(id) FROM {t})",
        f"SELECT * FROM {t} JOIN {s} ON p = k WHERE g = 1",
        f"SELECT /*+ SHUFFLE_MERGE(x) */ x.id FROM {t} x JOIN {t} y ON x.id = y.id + 1 AND y.p = 3",
        f"SELECT p, count(*), sum(id) FROM {t} GROUP BY p HAVING count(*) > (SELECT min(k) FROM {s})",
        f"SELECT * FROM {t} WHERE NOT EXISTS (SELECT 1 FROM {s} WHERE k = p AND g = 2)",
    ):
        assert same(lambda text=text: session.sql(text)), text

    def viewed() -> DataFrame:
        read(session, path).where("p < 3").createOrReplaceTempView("lakelog_arrow_view")
        return session.sql("SELECT * FROM lakelog_arrow_view WHERE id % 2 = 0 ORDER BY id LIMIT 7")

    assert len(same(viewed)) == 7


def test_a_catalog_table(session: SparkSession, by: Callable[[str], None]) -> None:
    by("arrow")
    builder = DeltaTable.create(session).tableName("arrow_scanned").addColumn("id", "BIGINT").addColumn("c", "CHAR(4)")
    builder.addColumn("p", "STRING").partitionedBy("p").execute()
    try:
        session.sql("INSERT INTO arrow_scanned SELECT id, 'c', 'p' || id % 2 FROM range(6)")
        found = session.table("arrow_scanned").where("c = 'c   ' AND p = 'p1'")
        assert "MapInArrow" in plan_of(found)
        assert sorted(tuple(row) for row in found.collect()) == [(1, "c   ", "p1"), (3, "c   ", "p1"), (5, "c   ", "p1")]
        assert session.sql("DELETE FROM arrow_scanned WHERE id < 3").count() == 1
        assert session.sql("SELECT count(*) FROM arrow_scanned VERSION AS OF 1").first() == (6,)
        assert session.table("arrow_scanned").count() == 3
    finally:
        session.sql("DROP TABLE arrow_scanned")


def test_metadata_of_files_and_rows(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t é%")
    session.range(2000).selectExpr("id", "'x' || id % 3 p").write.format("delta").partitionBy("p").save(path)
    assert len(same(lambda: read(session, path).select("id", "_metadata"))) == 2000
    same(lambda: read(session, path).selectExpr("id", "_metadata.row_index", "_metadata.file_name").where("_metadata.row_index = 7"))
    same(lambda: read(session, path).where("_metadata.file_size > 0 AND p = 'x1'").selectExpr("max(_metadata.file_path)", "count(*)"))


def test_large_files_are_cut_and_small_ones_packed_as_spark_does(session: SparkSession, tmp_path: Path, same: Any, by: Any) -> None:
    path = str(tmp_path / "t")
    session.range(50_000, numPartitions=3).write.format("delta").option("parquet.block.size", "20000").save(path)
    session.range(50_000, 50_040, numPartitions=20).write.format("delta").mode("append").save(path)
    keys = {"maxPartitionBytes": "30000", "openCostInBytes": "1000", "minPartitionNum": "4"}
    for key, value in keys.items():
        session.conf.set(f"spark.sql.files.{key}", value)
    try:
        tasks = []
        for engine in ("native", "arrow"):
            by(engine)
            tasks.append(read(session, path).rdd.getNumPartitions())
        assert tasks[0] == tasks[1] > 5
        assert len(same(lambda: read(session, path).selectExpr("id", "_metadata.row_index", "_metadata.file_block_start"))) == 50_040
        session.conf.set("spark.sql.files.maxPartitionNum", "5")
        assert len(same(lambda: read(session, path).selectExpr("spark_partition_id()").distinct())) < tasks[0]
    finally:
        for key in (*keys, "maxPartitionNum"):
            session.conf.unset(f"spark.sql.files.{key}")


def test_files_are_chosen_before_they_are_opened(session: SparkSession, tmp_path: Path, by: Callable[[str], None]) -> None:
    path = str(tmp_path / "t")
    for start in (0, 10, 20):
        session.range(start, start + 10).selectExpr("id", "id % 2 p").coalesce(1).write.format("delta").mode("append").partitionBy(
            "p"
        ).save(path)
    by("arrow")
    frame = read(session, path)
    for condition, files in {"id = 15": 2, "id = 10": 1, "p = 1": 3, "p = 0 AND id > 20": 1, "id < 0": 0, "p = 5": 0, "true": 6}.items():
        assert files_opened(frame.where(condition)) == files, condition
    assert frame.where("p = 5").count() == 0


def test_a_table_without_rows(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t")
    session.range(5).where("id > 5").selectExpr("id", "id % 2 p").write.format("delta").partitionBy("p").save(path)
    assert same(lambda: read(session, path)) == []
    assert len(same(lambda: read(session, path).selectExpr("count(*)", "max(p)"))) == 1


def test_cached_frames_follow_writes_and_one_query_reads_one_version(
    session: SparkSession, tmp_path: Path, by: Callable[[str], None]
) -> None:
    by("arrow")
    path = str(tmp_path / "t")
    session.range(10).write.format("delta").save(path)
    cached = read(session, path).cache()
    assert cached.count() == 10
    both = read(session, path).unionAll(read(session, path).where("id >= 0"))
    session.range(10, 15).write.format("delta").mode("append").save(path)
    assert (cached.count(), read(session, path, versionAsOf="0").count(), both.count()) == (15, 10, 30)
    cached.unpersist()


@pytest.mark.parametrize(
    "condition",
    ["p = 1", "id % 5 = 0", "id IN (SELECT max(id) FROM {table})", "rand(3) >= 0 AND id < 30"],
    ids=["partitions", "rewritten", "subquery", "positions"],
)
def test_deletes_by_every_way(session: SparkSession, tmp_path: Path, by: Callable[[str], None], condition: str) -> None:
    path = str(tmp_path / "native")
    session.range(60).selectExpr("id", "id % 3 p", "named_struct('n', id) s").write.format("delta").partitionBy("p").save(path)
    other = str(tmp_path / "arrow")
    shutil.copytree(path, other)
    told = []
    for engine, table in (("native", path), ("arrow", other)):
        by(engine)
        text = condition.format(table=f"delta.`{table}`")
        if "{" in condition:
            session.sql(f"DELETE FROM delta.`{table}` WHERE {text}")
        else:
            DeltaTable.forPath(session, table).delete(text)
        metrics = {k: v for k, v in info(table)["operationMetrics"].items() if not k.endswith(("Ms", "Bytes"))}
        told.append((sorted(map(repr, read(session, table).collect())), metrics, latest(table)))
    assert told[0] == told[1]
    assert 0 < len(told[0][0]) < 60


def test_replace_where_and_a_table_overwritten_from_itself(session: SparkSession, tmp_path: Path, by: Callable[[str], None]) -> None:
    by("arrow")
    path = str(tmp_path / "t")
    session.range(10).selectExpr("id", "id % 2 p").write.format("delta").save(path)
    replacing = read(session, path).where("id >= 5").selectExpr("id", "p + 100 p")
    replacing.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 5").save(path)
    read(session, path).where("id > 1").write.format("delta").mode("overwrite").save(path)
    assert sorted(tuple(row) for row in read(session, path).collect()) == [(n, n % 2 + (100 if n >= 5 else 0)) for n in range(2, 10)]


def test_changes_are_the_same(session: SparkSession, tmp_path: Path, same: Any) -> None:
    path = str(tmp_path / "t")
    writer = session.range(20).selectExpr("id", "id % 2 p").write.format("delta").partitionBy("p")
    writer.option("delta.enableChangeDataFeed", "true").save(path)
    DeltaTable.forPath(session, path).delete("id % 5 = 0")
    assert of_kind(path, "cdc")
    session.range(20, 25).selectExpr("id", "id % 2 p").write.format("delta").mode("append").save(path)
    assert len(same(lambda: read(session, path, readChangeFeed="true", startingVersion="0"))) == 29
    same(
        lambda: (
            read(session, path, readChangeFeed="true", startingVersion="1").where("_change_type = 'delete'").select("id", "_commit_version")
        )
    )


def test_missing_and_broken_files_are_told_as_ours(session: SparkSession, tmp_path: Path, by: Callable[[str], None]) -> None:
    by("arrow")
    path = str(tmp_path / "t x")
    session.range(10, numPartitions=2).write.format("delta").save(path)
    frame = read(session, path)
    first, _ = parquet_files(path)
    data = first.read_bytes()
    first.unlink()
    said = rf"Delta table {path}: data file {first} is named by the log but is not there\. Files that no version within delta\.deleted"
    for run in (frame.collect, frame.count, lambda: frame.write.format("delta").save(str(tmp_path / "copy"))):
        with pytest.raises(DataFileMissingError, match=said):
            run()
    assert not (tmp_path / "copy" / "_delta_log").exists()
    with pytest.raises(DataFileMissingError, match=said):
        DeltaTable.forPath(session, path).delete("id % 2 = 1")
    first.write_bytes(b"PAR1" + bytes(len(data) - 8) + b"PAR1")
    with pytest.raises(StorageError, match=rf"Delta table {path}: data file {first} cannot be read: .*Restore the file"):
        frame.collect()
    assert len(commit(path, latest(path))) == len(commit(path, 0))


def test_what_executors_lack_is_said(tmp_path: Path) -> None:
    scans = ArrowScans()
    lacking = "org.apache.spark.api.python.PythonException: Traceback ...\nModuleNotFoundError: No module named '{}'\n\n\tat org.apache"
    assert scans.explained(lacking.format("lakelog")) is None
    scans.used = True
    for module in ("lakelog", "lakelog.spark", "pyarrow", "orjson"):
        assert "PYSPARK_PYTHON" in str(scans.explained(lacking.format(module)))
    assert scans.explained(lacking.format("their_own")) is None
    told = scans.explained("x: PythonException: Traceback\n  File y\nlakelog.core.errors.StorageError: Delta table /t: no\n\n\tat org")
    assert isinstance(told, StorageError)
    assert str(told) == "Delta table /t: no"


def test_batches_of_any_size_and_large_strings(session: SparkSession, tmp_path: Path, by: Callable[[str], None]) -> None:
    by("arrow")
    path = str(tmp_path / "t")
    session.range(30).selectExpr("id", "repeat(cast(id AS string), 500000) s").coalesce(1).write.format("delta").save(path)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        assert read(session, path).selectExpr("sum(length(s))", "count(distinct s)").first() == (500_000 * 50, 30)
    finally:
        session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_the_plan_holds_no_row_and_names_the_scan(session: SparkSession, tmp_path: Path, by: Callable[[str], None]) -> None:
    by("arrow")
    path = str(tmp_path / "t")
    session.range(3).write.format("delta").save(path)
    text = plan_of(read(session, path).where("id > 1"))
    assert "MapInArrow lakelog_scan" in text
    assert json.dumps(path) not in text


@pytest.mark.parametrize(
    ("function", "field"),
    [("input_file_name", "file_path"), ("input_file_block_start", "file_block_start"), ("input_file_block_length", "file_block_length")],
)
def test_what_spark_learns_from_its_own_scans_alone_is_refused(
    session: SparkSession, by: Callable[[str], None], tmp_path: Path, function: str, field: str
) -> None:
    by("arrow")
    path = str(tmp_path / "t")
    session.range(3).write.format("delta").save(path)
    for query in (f"SELECT id, {function}() FROM delta.`{path}`", f"SELECT count(*) FROM delta.`{path}` GROUP BY {function}()"):
        with pytest.raises(UnsupportedOperationError, match=rf"{function}\(\) with the Arrow engine.*{path}.*_metadata\.{field}"):
            session.sql(query).collect()
    with pytest.raises(UnsupportedOperationError, match=function):
        session.sql(f"DELETE FROM delta.`{path}` WHERE {function}() > '1'")
    assert session.sql(f"SELECT _metadata.{field} FROM delta.`{path}`").count() == 3
