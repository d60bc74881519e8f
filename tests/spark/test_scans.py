"""What a scan opens and what it answers: pruning, statistics written, time zones, metadata columns, caches, several scans in one query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, cast

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.spark import DeltaTable
from tests.spark.rows import texts
from tests.spark.tables import engine


@pytest.fixture
def conf(delta: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets entries of the session's conf for one test."""
    before: dict[str, str | None] = {}

    def setter(key: str, value: str) -> None:
        before.setdefault(key, delta.conf.get(key, None))
        delta.conf.set(key, value)

    yield setter
    for key, value in before.items():
        if value is None:
            delta.conf.unset(key)
        else:
            delta.conf.set(key, value)


def read(session: SparkSession, path: str, **options: str) -> DataFrame:
    return session.read.format("delta").options(**options).load(path)


def statistics(path: str) -> list[dict[str, Any]]:
    """Parsed ``stats`` of every add in the log, in the log's order."""
    lines = [line for file in sorted(Path(path, "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    return [json.loads(action["add"]["stats"]) for action in map(json.loads, lines) if "add" in action]


def files_opened(frame: DataFrame) -> int:
    """Files that the scans of a plan list once it has run."""
    frame.collect()
    plan = cast(Any, frame)._jdf.queryExecution().executedPlan()
    plan = plan.finalPhysicalPlan() if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec" else plan
    leaves = plan.collectLeaves()
    return sum(opened_by(leaves.apply(i)) for i in range(leaves.size()))


def opened_by(leaf: Any) -> int:
    """Of one scan: Spark's own counts them, one of the Arrow engine has them in its tasks, one of no files is a table without rows."""
    kind = leaf.getClass().getSimpleName()
    if kind == "LocalTableScanExec":
        return 0
    if kind != "RDDScanExec":
        return int(leaf.metrics().apply("numFiles").value())
    return len({uri for row in leaf.executeCollect() for uri in json.loads(str(row.getUTF8String(0).toString()))["uris"]})


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def ids_where(frame: DataFrame, conditions: Sequence[str]) -> dict[str, list[int]]:
    """What each condition leaves, all in one job."""
    rows = reduce(DataFrame.union, [frame.where(c).select("id", F.lit(c).alias("c")) for c in conditions]).collect()
    return {c: sorted(row["id"] for row in rows if row["c"] == c) for c in conditions}


def test_a_filter_on_one_of_a_thousand_files_opens_one(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(0, 1000, 1, 2).selectExpr("id", "lpad(id, 4, '0') name").write.format("delta").option("maxRecordsPerFile", "1").save(path)
    assert len(read(delta, path).inputFiles()) == 1000
    for condition in ("id = 700", "700 = id", "id in (700)", "name = '0700'", "id > 998", "cast(id as decimal(20,0)) <=> 7 and id = 7"):
        assert files_opened(read(delta, path).where(condition)) == 1, condition
    assert files_opened(read(delta, path).where("id < 0")) == 0
    assert files_opened(read(delta, path).where("id is not null")) == 1000


def test_a_filter_on_a_partition_opens_its_files(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(20).selectExpr("id", "id % 5 p", "date_add(date'2024-01-01', int(id % 5)) d").coalesce(1).write.format("delta").partitionBy(
        "p", "d"
    ).save(path)
    for condition, files in {"p = 1": 1, "p % 2 = 0": 3, "year(d) = 2024 and p > 2": 2, "d = '2024-01-02'": 1, "p is null": 0}.items():
        assert files_opened(read(delta, path).where(condition)) == files, condition
    assert read(delta, path).where("p = 1").count() == 4
    assert read(delta, path).where("p = 9").selectExpr("count(*)", "max(p)").first() == (0, None)


def test_statistics_say_what_the_rows_hold(delta: SparkSession, tmp_path: Path, conf: Callable[[str, str], None]) -> None:
    conf("spark.sql.session.timeZone", "America/Los_Angeles")
    conf("spark.sql.parquet.outputTimestampType", "INT96")
    conf("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    conf("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY")
    path = str(tmp_path / "t")
    delta.sql(
        """SELECT cast(id AS byte) b, cast(id AS decimal(20, 3)) / 8 q, cast(id AS decimal(9, 2)) dec, repeat('x', 40) || id long_text,
          '' || id short_text, timestamp_micros(1001 + id * 1000) ts, timestamp_ntz'1969-12-31 23:59:59.999999' ntz, date'1000-02-03' old,
          if(id = 1, double('NaN'), id + 0.5D) nan, cast(if(id = 0, -0.0D, -1D) AS float) zero, if(id = 0, null, id) some,
          cast(null AS int) never, array(1, null) arr, map('k', id) m, named_struct('x', id, 'y', named_struct('z', 'd.e')) s,
          if(id = 1, null, named_struct('v', id)) maybe, id = 1 flag, cast('ab' AS binary) bin
        FROM range(2)"""
    ).coalesce(1).write.format("delta").save(path)
    (stats,) = statistics(path)
    low, high, nulls = stats["minValues"], stats["maxValues"], stats["nullCount"]
    assert stats["numRecords"] == 2
    assert (low["b"], high["b"]) == (0, 1)
    assert (low["dec"], high["dec"], high["q"]) == (0.0, 1.0, 0.125)
    assert (low["long_text"], high["long_text"]) == ("x" * 32, "x" * 32 + "\x7f")
    assert (low["short_text"], high["short_text"]) == ("0", "1")
    assert (low["ts"], high["ts"]) == ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")
    assert (low["ntz"], high["ntz"]) == ("1969-12-31T23:59:59.999",) * 2
    assert (low["old"], high["old"]) == ("1000-02-03",) * 2
    assert "nan" not in high
    assert (low["zero"], high["zero"]) == (-1.0, 0.0)
    assert (low["s"], high["s"]) == ({"x": 0, "y": {"z": "d.e"}}, {"x": 1, "y": {"z": "d.e"}})
    assert nulls["maybe"] == {"v": 1}
    assert (nulls["some"], nulls["never"], nulls["nan"], nulls["s"]) == (1, 2, 0, {"x": 0, "y": {"z": 0}})
    for absent in ("never", "arr", "m", "flag", "bin"):
        assert absent not in low
        assert absent not in high
    assert "arr" not in nulls
    assert "m" not in nulls
    (file,) = Path(path).glob("*.parquet")
    footer = pq.read_metadata(file)
    assert "INT96" not in {footer.schema.column(i).physical_type for i in range(footer.num_columns)}
    assert not {key for key in footer.metadata if b"legacy" in key}
    assert deltalake.DeltaTable(path).to_pyarrow_table(columns=["old"])["old"].to_pylist()[0].isoformat() == "1000-02-03"


def test_which_columns_get_statistics(delta: SparkSession, tmp_path: Path, conf: Callable[[str, str], None]) -> None:
    wide = delta.range(3).selectExpr("named_struct('x', id, 'y', id) s", *(f"id c{i}" for i in range(40)))
    wide.coalesce(1).write.format("delta").save(str(tmp_path / "first"))
    (first,) = statistics(str(tmp_path / "first"))
    assert list(first["minValues"]) == ["s", *(f"c{i}" for i in range(30))]
    conf("spark.databricks.delta.properties.defaults.dataSkippingStatsColumns", "c39,s.y,`C1`")
    wide.coalesce(1).write.format("delta").save(str(tmp_path / "named"))
    (named,) = statistics(str(tmp_path / "named"))
    assert named["minValues"] == {"s": {"y": 0}, "c1": 0, "c39": 0}
    assert files_opened(read(delta, str(tmp_path / "named")).where("c5 = 7")) == 1


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def test_filters_on_time_in_any_session_zone(delta: SparkSession, tmp_path: Path, conf: Callable[[str, str], None], zone: str) -> None:
    conf("spark.sql.session.timeZone", zone)
    path = str(tmp_path / "t")
    # Instants from 1969-12-31 on, an hour apart, with microseconds that statistics cannot tell.
    frame = delta.range(30).selectExpr(
        "id",
        "timestamp_micros(id * 3600000000L + 123456) ts",
        "timestamp_micros(id * 3600000000L) p",
        "cast(timestamp_micros(id * 3600000000L) as timestamp_ntz) n",
    )
    frame.coalesce(1).write.format("delta").option("maxRecordsPerFile", "4").partitionBy("p").save(path)
    kept, plain = read(delta, path), frame.localCheckpoint()
    conditions = (
        "p = '1970-01-01 05:00:00'",
        "p >= timestamp'1970-01-01 05:00:00'",
        "ts > '1970-01-01 05:00:00'",
        "ts = '1970-01-01 05:00:00.123456'",
        "ts <= '1970-01-01 05:00:00.123455'",
        "date(p) = '1970-01-01'",
        "date(ts) = '1969-12-31'",
        "hour(p) = 3",
        "n > timestamp'1970-01-01 05:00:00'",
        "cast(p as timestamp_ntz) = n",
        "p > date'1970-01-01'",
        "cast(ts as string) like '1970-01-01 0%'",
    )
    assert ids_where(kept, conditions) == ids_where(plain, conditions)


def test_nan_and_signed_zero_in_filters(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = delta.sql(
        """SELECT id, d, d p FROM (SELECT id, CASE id WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D WHEN 3 THEN 5D
          WHEN 4 THEN double('-Infinity') END d FROM range(6))"""
    ).localCheckpoint()
    frame.coalesce(1).write.format("delta").partitionBy("p").save(path)
    frame.coalesce(1).write.format("delta").mode("append").save(path)
    tests = (
        "= 0.0D",
        "= -0.0D",
        "= double('NaN')",
        "> 5",
        ">= 5",
        "< 0",
        "<= -0.0D",
        "!= 0",
        "is null",
        "<=> null",
        "in (0.0D, double('NaN'))",
        "between -1 and 1",
    )
    conditions = [text for test in tests for column in "pd" for text in (f"{column} {test}", f"not ({column} {test})")]
    assert ids_where(read(delta, path), conditions) == ids_where(frame.union(frame), conditions)


def test_names_with_dots_and_other_letters_prune_in_any_case(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = delta.range(9).selectExpr(
        "id", "id `a.b`", "named_struct('c.d', id, 'e', named_struct('f.g', id)) `s.t`", "id % 3 `ü.p`", "'k' || id `Größe`"
    )
    frame.coalesce(1).write.format("delta").option("maxRecordsPerFile", "1").partitionBy("`ü.p`").save(path)
    for condition in ("`a.b` = 3", "`A.B` = 3", "`s.t`.`c.d` = 3", "`S.t`.E.`F.g` = 3", "`größe` = 'k3'", "`Ü.P` = 0 and `a.b` = 3"):
        assert (ids(read(delta, path).where(condition)), files_opened(read(delta, path).where(condition))) == ([3], 1), condition
    DeltaTable.forPath(delta, path).delete("`A.B` = 3 or `S.T`.e.`F.G` = 4")
    DeltaTable.forPath(delta, path).delete("`Ü.P` = 2")
    assert ids(read(delta, path)) == [0, 1, 6, 7]


def test_metadata_columns_and_columns_of_their_names(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = delta.range(10).selectExpr("id", "id % 2 p", "'file' || id file_path", "100 row_index")
    frame.coalesce(1).write.format("delta").partitionBy("p").save(path)
    table = read(delta, path)
    name = table.where("p = 1").select("_metadata.file_path").first()
    assert name is not None
    assert ids(table.where(F.col("_metadata.file_path") == name[0])) == [1, 3, 5, 7, 9]
    assert ids(table.where("_metadata.row_index = 0")) == [0, 1]
    assert ids(table.where("_metadata.file_size > 0 and file_path = 'file3'")) == [3]
    assert {(row["n"], row["s"]) for row in table.selectExpr("_metadata.file_name n", "_metadata.file_size s").collect()} == {
        (file.name, file.stat().st_size) for file in Path(path).rglob("*.parquet")
    }


def test_partition_columns_keep_their_place_and_nested_columns_are_pruned(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = delta.range(10).selectExpr(
        "id", "id % 2 p", "named_struct('x', id, 'y', named_struct('w', id)) s", "id % 3 q", "array(named_struct('u', id, 'v', id + 1)) a"
    )
    frame.write.format("delta").partitionBy("q", "p").save(path)
    table = read(delta, path)
    assert table.columns == frame.columns
    assert texts(table.toArrow()) == texts(frame.toArrow())
    for columns in (["s.y.w", "p", "id"], ["a.v", "q", "id"], ["s.x", "id"]):
        narrow = table.selectExpr(*columns).where("id > 2")
        assert sorted(map(str, narrow.collect())) == sorted(map(str, frame.selectExpr(*columns).where("id > 2").collect()))
    assert files_opened(table.where("s.y.w = 4").select("s.x")) == 1


def test_several_scans_in_one_query(delta: SparkSession, tmp_path: Path) -> None:
    facts, small = str(tmp_path / "facts"), str(tmp_path / "small")
    delta.range(100).selectExpr("id", "id % 10 p").write.format("delta").partitionBy("p").save(facts)
    delta.range(10).selectExpr("id k", "id % 3 g").coalesce(1).write.format("delta").save(small)
    table = read(delta, facts)
    assert table.alias("x").join(table.alias("y"), F.expr("x.id = y.id + 1")).count() == 99
    assert table.where("p = 1").join(read(delta, facts).where("p = 2"), "id").count() == 0
    assert table.where("p = 1").union(table.where("p = 2")).count() == 20
    pruned = table.join(F.broadcast(read(delta, small).where("g = 1")), F.expr("p = k"))
    assert pruned.count() == 30
    assert engine(delta) == "arrow" or "dynamicpruning" in cast(Any, pruned)._jdf.queryExecution().executedPlan().toString()
    for condition, rows in {
        f"p = (SELECT max(k) FROM delta.`{small}`)": 10,
        f"p IN (SELECT k FROM delta.`{small}` WHERE g = 0)": 40,
        f"id > (SELECT avg(id) FROM delta.`{facts}`) AND p = (SELECT min(p) FROM delta.`{facts}`)": 5,
        f"NOT EXISTS (SELECT 1 FROM delta.`{small}` WHERE k = p AND g = 2)": 70,
    }.items():
        assert delta.sql(f"SELECT * FROM delta.`{facts}` WHERE {condition}").count() == rows, condition


def test_cached_frames_follow_writes_and_versions_do_not_mix(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    delta.range(10).selectExpr("id", "id % 2 p").write.format("delta").partitionBy("p").save(path)
    cached, first = read(delta, path).where("p = 0").cache(), read(delta, path, versionAsOf="0").cache()
    assert (cached.count(), first.count(), read(delta, path).count()) == (5, 10, 10)
    delta.range(10, 14).selectExpr("id", "id % 2 p").write.format("delta").mode("append").save(path)
    assert (cached.count(), first.count(), read(delta, path).count()) == (7, 10, 14)
    DeltaTable.forPath(delta, path).delete("id = 2")
    assert (cached.count(), first.count(), read(delta, path, versionAsOf="1").count()) == (6, 10, 14)
    assert read(delta, path, versionAsOf="0").exceptAll(read(delta, path)).count() == 1
    assert read(delta, path).unionAll(read(delta, path, versionAsOf="0")).count() == 23
    cached.unpersist()
    first.unpersist()


def test_columns_that_came_later(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}]}))
    deltalake.write_deltalake(path, pa.table({"id": [3], "s": [{"x": 3, "y": 5}], "b": ["z"]}), mode="append", schema_mode="merge")
    table = read(delta, path)
    for condition, found in {
        "b is null": [1, 2],
        "b = 'z'": [3],
        "s.y is null": [1, 2],
        "s.y = 5": [3],
        "not (b = 'q')": [3],
        "b <=> null": [1, 2],
    }.items():
        assert ids(table.where(condition)) == found, condition
    assert read(delta, path, versionAsOf="0").columns == ["id", "s"]


def test_tables_without_rows(delta: SparkSession, tmp_path: Path) -> None:
    empty, hollow = str(tmp_path / "empty"), str(tmp_path / "hollow")
    delta.createDataFrame([], "id int, s struct<b: string>, p string").write.format("delta").partitionBy("p").save(empty)
    assert read(delta, empty).where("p = 'x' and s.b = 'y'").collect() == []
    assert read(delta, empty).selectExpr("count(*)", "sum(id)").first() == (0, None)
    assert statistics(empty) == []
    deltalake.write_deltalake(hollow, pa.table({"id": pa.array([7], pa.int64())}))
    # A file without rows in the log, as other writers leave it.
    (file,) = Path(hollow).glob("*.parquet")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), file)
    log = Path(hollow, "_delta_log", f"{0:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"] |= {"size": file.stat().st_size, "stats": '{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{"id":0}}'}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert read(delta, hollow).collect() == []
    assert read(delta, hollow).where("id = 1 or id is null").count() == 0
