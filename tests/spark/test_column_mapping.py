"""Tables whose columns have other names in files than users give them, in both modes: written, read, pruned, filtered, deleted from."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.column_mapping import with_mapping
from lakelog.core.errors import MetadataChangedException
from lakelog.core.schema import parse_schema
from lakelog.spark import DeltaTable
from tests.spark.tables import (
    Action,
    array,
    commit,
    commit_path,
    engine,
    field,
    info,
    latest,
    make_log,
    mapping,
    of_kind,
    parquet_files,
    rows,
    struct,
)
from tests.spark.test_scans import files_opened

MODES = pytest.mark.parametrize("mode", ["name", "id"])

WIDE = struct(
    field("id", "long"),
    field("p", "string"),
    field("a name, with {marks}", "string"),
    field("s", struct(field("x", "integer"), field("in ner", struct(field("z", "long"), field("w", "string"))))),
    field("l", array(struct(field("x", "integer"), field("y", array("string"))))),
    field("m", mapping("string", struct(field("v", "long")))),
    field("k", mapping(struct(field("n", "integer")), "string")),
    field("d", "date"),
)
WIDE_ROWS = """SELECT id, if(id % 2 = 0, 'even', null) p, 'name ' || id `a name, with {marks}`,
  named_struct('x', int(id), 'in ner', named_struct('z', id * 10, 'w', 'w' || id)) s,
  array(named_struct('x', int(id), 'y', array('y' || id, null)), null) l, map('key', named_struct('v', id)) m,
  map(named_struct('n', int(id)), 'of ' || id) k, date_add(date'2024-01-01', int(id)) d FROM range(6)"""


def mapped(schema: Action) -> Action:
    """The schema with ids, and the physical names col-1, col-2 and so on."""
    numbers = itertools.count(1)
    made, _ = with_mapping(parse_schema(json.dumps(schema)), max_id=0, new_uuid=lambda: str(next(numbers)), keep_names=False)
    told: Action = json.loads(made.to_json())
    return told


def make_mapped(table: str, schema: Action, mode: str, *partition_by: str, **properties: str) -> str:
    """An empty table of an older writer."""
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    given = {"delta_columnMapping_mode": mode, "delta_columnMapping_maxColumnId": "20", **properties}
    return make_log(table, mapped(schema), partition_by=partition_by, protocol=protocol, **given)


def change_metadata(
    table: str, change: Callable[[Action], None], schema: Callable[[list[Action]], list[Action]] = lambda fields: fields
) -> None:
    """A commit of another writer that changes the metadata: all of it, and the fields of its schema."""
    version = latest(table) + 1
    metadata = next(of_kind(table, "metaData", v)[0] for v in range(version - 1, -1, -1) if of_kind(table, "metaData", v))
    told = json.loads(metadata["schemaString"])
    metadata["schemaString"] = json.dumps({**told, "fields": schema(told["fields"])})
    change(metadata)
    commit_path(table, version).write_text(json.dumps({"metaData": metadata}) + "\n", encoding="utf-8")


def rename(table: str, names: Mapping[str, str]) -> None:
    def partitions(metadata: Action) -> None:
        metadata["partitionColumns"] = [names.get(name, name) for name in metadata["partitionColumns"]]

    change_metadata(table, partitions, lambda fields: [{**f, "name": names.get(f["name"], f["name"])} for f in fields])


def read(spark: SparkSession, table: str) -> DataFrame:
    return spark.read.format("delta").load(table)


def append(frame: DataFrame, table: str) -> None:
    frame.coalesce(1).write.format("delta").mode("append").save(table)


def scan_metric(frame: DataFrame, name: str) -> int:
    """A metric of the only scan of a plan, once it has run."""
    frame.collect()
    plan = cast(Any, frame)._jdf.queryExecution().executedPlan()
    plan = plan.finalPhysicalPlan() if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec" else plan
    (scan,) = [plan.collectLeaves().apply(i) for i in range(plan.collectLeaves().size())]
    return int(scan.metrics().apply(name).value())


def plan_text(frame: DataFrame) -> str:
    return str(cast(Any, frame)._jdf.queryExecution().executedPlan().toString())


def garble(file: Path, keep: Callable[[str], bool]) -> None:
    """Overwrite what the file holds of the columns whose path is not kept, so that to read one of them fails."""
    footer = pq.read_metadata(file)
    data = bytearray(file.read_bytes())
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            if not keep(chunk.path_in_schema):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(bytes(data))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@MODES
def test_rows_of_any_shape_come_back_and_lie_under_physical_names(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p")
    frame = session.sql(WIDE_ROWS)
    # The protocol wants ids in files of either mode, whatever the session thinks of them.
    session.conf.set("spark.sql.parquet.fieldId.write.enabled", "false")
    try:
        append(frame, table)
    finally:
        session.conf.unset("spark.sql.parquet.fieldId.write.enabled")
    found = read(session, table)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, frame.collect()))
    assert not any(f.metadata for f in found.schema.fields)
    assert found.schema.simpleString() == frame.schema.simpleString()

    adds = of_kind(table, "add")
    assert sorted(add["path"].rpartition("/")[0] for add in adds) == ["col-2=__HIVE_DEFAULT_PARTITION__", "col-2=even"]
    assert sorted(str(add["partitionValues"]) for add in adds) == ["{'col-2': 'even'}", "{'col-2': None}"]
    even = json.loads(next(add for add in adds if add["partitionValues"] == {"col-2": "even"})["stats"])
    assert even["minValues"] == {
        "col-1": 0,
        "col-3": "name 0",
        "col-4": {"col-5": 0, "col-6": {"col-7": 0, "col-8": "w0"}},
        "col-16": "2024-01-01",
    }
    assert even["nullCount"]["col-4"] == {"col-5": 0, "col-6": {"col-7": 0, "col-8": 0}}
    assert info(table)["operationParameters"]["partitionBy"] == '["p"]'

    for file in parquet_files(table):
        written = pq.read_schema(file)
        assert written.names == ["col-1", "col-3", "col-4", "col-9", "col-12", "col-14", "col-16"]
        assert [f.metadata[b"PARQUET:field_id"] for f in written] == [b"1", b"3", b"4", b"9", b"12", b"14", b"16"]
        nested = written.field("col-4").type
        assert [(f.name, f.metadata[b"PARQUET:field_id"]) for f in nested] == [("col-5", b"5"), ("col-6", b"6")]


@MODES
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_columns_are_read_one_by_one(session: SparkSession, tmp_path: Path, mode: str, vectorized: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p")
    append(session.sql(WIDE_ROWS), table)
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        found = read(session, table).orderBy("id")
        for expression, expected in {
            "p": ["even", None] * 3,
            "s.`in ner`.w": [f"w{i}" for i in range(6)],
            "l[0].x": list(range(6)),
            "l.y": [[[f"y{i}", None], None] for i in range(6)],
            "m['key'].v": list(range(6)),
            "map_keys(k)[0].n": list(range(6)),
            "map_values(k)[0]": [f"of {i}" for i in range(6)],
            "`a name, with {marks}`": [f"name {i}" for i in range(6)],
            "_metadata.file_name like 'part-%'": [True] * 6,
        }.items():
            assert [row[0] for row in found.selectExpr(expression).collect()] == expected, expression
        indices = found.selectExpr("_metadata.row_index").collect()
        assert sorted(row[0] for row in indices) == [0, 0, 1, 1, 2, 2]
    finally:
        session.conf.unset("spark.sql.parquet.enableVectorizedReader")


@MODES
def test_only_the_columns_asked_for_are_read_from_the_file(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode)
    append(session.sql(WIDE_ROWS), table)
    (file,) = parquet_files(table)
    garble(file, lambda path: path in ("col-1", "col-4.col-6.col-7"))
    pruned = read(session, table).selectExpr("id", "s.`in ner`.z").where("z > 20")
    assert sorted(tuple(row) for row in pruned.collect()) == [(3, 30), (4, 40), (5, 50)]
    assert engine(session) == "arrow" or "ReadSchema: struct<id:bigint,s:struct<in ner:struct<z:bigint>>>" in plan_text(pruned)
    with pytest.raises(Exception, match=r"(?i)parquet|page|corrupt|decompress|thrift|protocol|uncompress"):
        read(session, table).selectExpr("s.x").collect()


@MODES
def test_files_are_skipped_by_logical_conditions(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p")
    for number in range(3):
        append(session.sql(WIDE_ROWS).where(f"id div 2 = {number}"), table)
    found = read(session, table)
    assert len(found.inputFiles()) == 6
    for condition, files in {
        "id = 3": 1,
        "ID >= 4": 2,
        "s.`in ner`.z = 20": 1,
        "p = 'even'": 3,
        "p is null and s.x < 2": 1,
        "`a name, with {marks}` = 'name 5'": 1,
        "d < '2024-01-02'": 1,
        "id = 99": 0,
        "s.`in ner` is not null": 6,
    }.items():
        assert files_opened(found.where(condition)) == files, condition
        expected = session.sql(WIDE_ROWS).where(condition).selectExpr("id").collect()
        assert sorted(found.where(condition).selectExpr("id").collect()) == sorted(expected), condition


def test_filters_reach_the_row_groups(session: SparkSession, tmp_path: Path) -> None:
    if engine(session) == "arrow":
        pytest.skip("the rows that leave Spark's own scan are counted")
    schema = struct(field("a b", "long"), field("s", struct(field("c.d", "long"))))
    by_mode = {}
    for mode in ("name", "id"):
        table = make_mapped(str(tmp_path / mode), schema, mode)
        frame = session.range(200_000, numPartitions=1).selectExpr("id `a b`", "named_struct('c.d', id) s")
        frame.write.format("delta").mode("append").option("parquet.block.size", str(200_000)).save(table)
        (file,) = parquet_files(table)
        assert pq.read_metadata(file).num_row_groups > 3
        found = read(session, table)
        for condition in ("`a b` = 7", "s.`c.d` = 7", "`a b` in (7, 8) or s.`c.d` = 9", "not (`a b` <> 7)"):
            filtered = found.where(condition)
            by_mode[mode, condition] = scan_metric(filtered, "numOutputRows")
            assert filtered.count() == (3 if "or" in condition else 1)
    assert all(count < 100_000 for (mode, _), count in by_mode.items() if mode == "name"), by_mode
    # A name in the file may belong to another column: nothing but ids may decide.
    assert all(count == 200_000 for (mode, _), count in by_mode.items() if mode == "id"), by_mode


def test_statistics_are_kept_for_the_columns_that_the_property_names_logically(session: SparkSession, tmp_path: Path) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, "name", delta_dataSkippingStatsColumns="S.`in ner`,d,gone")
    append(session.sql(WIDE_ROWS), table)
    (add,) = of_kind(table, "add")
    assert json.loads(add["stats"])["minValues"] == {"col-4": {"col-6": {"col-7": 0, "col-8": "w0"}}, "col-16": "2024-01-01"}


@MODES
def test_columns_that_exchange_their_names_keep_their_values(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long"), field("b", "long"), field("p", "string")), mode, "p")
    append(session.sql("SELECT id a, id + 100 b, 'x' p FROM range(4)"), table)
    append(session.sql("SELECT id a, id + 100 b, 'y' p FROM range(4, 8)"), table)
    before = read(session, table)
    rename(table, {"a": "b", "b": "a", "p": "q"})
    found = read(session, table)
    assert found.columns == ["b", "a", "q"]
    assert [tuple(row) for row in found.where("a = 105").collect()] == [(5, 105, "y")]
    assert files_opened(found.where("a = 105")) == files_opened(found.where("b = 1")) == files_opened(found.where("q = 'x'")) == 1
    assert found.where("a < 100").count() == 0
    with pytest.raises(MetadataChangedException, match="Read the table again"):
        before.where("a = 1").collect()
    append(session.sql("SELECT 9L b, 109L a, 'x' q"), table)
    assert [tuple(row) for row in read(session, table).where("b > 7").collect()] == [(9, 109, "x")]


def test_a_frame_outlives_changes_that_leave_its_columns_where_they_are(session: SparkSession, tmp_path: Path) -> None:
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long"), field("b", "long")), "name")
    append(session.sql("SELECT 1L a, 2L b"), table)
    before = read(session, table).select("a")
    new = {**field("c", "string"), "metadata": {"delta.columnMapping.id": 21, "delta.columnMapping.physicalName": "col-21", "comment": "x"}}
    change_metadata(table, lambda metadata: metadata.update(description="told"), lambda fields: [*fields, new])
    append(session.sql("SELECT 3L a, 4L b, 'c' c"), table)
    assert sorted(row["a"] for row in before.collect()) == [1, 3]
    assert rows(session, table) == [(1, 2, None), (3, 4, "c")]
    assert read(session, table).where("c is null").count() == 1


@MODES
def test_a_dropped_column_is_gone_and_a_new_one_of_its_name_is_another(session: SparkSession, tmp_path: Path, mode: str) -> None:
    nested = struct(field("x", "long"), field("y", "long"))
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long"), field("s", nested)), mode)
    append(session.sql("SELECT 1L a, named_struct('x', 2L, 'y', 3L) s"), table)

    def anew(fields: list[Action]) -> list[Action]:
        x, y = fields[1]["type"]["fields"]
        again = {**y, "type": "string", "metadata": {"delta.columnMapping.id": 21, "delta.columnMapping.physicalName": "col-21"}}
        return [{**fields[1], "type": struct(x, again)}]

    change_metadata(table, lambda _: None, anew)
    assert rows(session, table) == [((2, None),)]
    append(session.sql("SELECT named_struct('x', 4L, 'y', 'five') s"), table)
    assert rows(session, table) == [((2, None),), ((4, "five"),)]
    assert [row[0] for row in read(session, table).where("s.y = 'five'").select("s.x").collect()] == [4]


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_by_id_a_columns_name_in_the_file_says_nothing(session: SparkSession, tmp_path: Path, vectorized: str) -> None:
    schema = struct(field("a", "long"), field("b", "long"), field("s", struct(field("x", "string"))), field("new", "string"))
    table = make_mapped(str(tmp_path / "t"), schema, "id")

    def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field[Any]:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    # Names of one column on the other, and of nothing known.
    parts = [numbered("col-2", pa.int64(), 1), numbered("col-1", pa.int64(), 2)]
    inner = numbered("what", pa.struct([numbered("ever", pa.string(), 4)]), 3)
    values = [pa.array([1, 2]), pa.array([101, 102]), pa.array([{"ever": "p"}, {"ever": "q"}], inner.type)]
    file = Path(table) / "theirs.parquet"
    pq.write_table(pa.Table.from_arrays(values, schema=pa.schema([*parts, inner])), file)
    action = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1, "dataChange": True}
    commit_path(table, 1).write_text(json.dumps({"add": action}) + "\n", encoding="utf-8")
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        assert rows(session, table) == [(1, 101, ("p",), None), (2, 102, ("q",), None)]
        assert [row["b"] for row in read(session, table).where("a = 2").collect()] == [102]
        assert [row["a"] for row in read(session, table).where("b > 101 and s.x = 'q'").collect()] == [2]
    finally:
        session.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_a_file_without_ids_is_refused_where_ids_decide(session: SparkSession, tmp_path: Path) -> None:
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long")), "id")
    file = Path(table) / "theirs.parquet"
    pq.write_table(pa.table({"col-1": [1]}), file)
    footer = pq.read_metadata(file)
    assert footer.num_rows == 1
    action = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1, "dataChange": True}
    commit_path(table, 1).write_text(json.dumps({"add": action}) + "\n", encoding="utf-8")
    with pytest.raises(Exception, match=r"(?i)field id"):
        read(session, table).collect()


def test_the_mode_is_ignored_where_the_protocol_does_not_know_it(session: SparkSession, tmp_path: Path) -> None:
    table = make_log(
        str(tmp_path / "t"),
        mapped(struct(field("a", "long"), field("p", "string"))),
        partition_by=["p"],
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        delta_columnMapping_mode="name",
    )
    file = Path(table) / "theirs.parquet"
    pq.write_table(pa.table({"a": [1], "col-1": [2]}), file)
    action = {"path": file.name, "partitionValues": {"p": "x"}, "size": file.stat().st_size, "modificationTime": 1, "dataChange": True}
    commit_path(table, 1).write_text(json.dumps({"add": action}) + "\n", encoding="utf-8")
    assert rows(session, table) == [(1, "x")]


@MODES
@pytest.mark.parametrize(
    "condition",
    [
        "id = 3",
        "p = 'even'",
        "p is null and s.x > 2",
        "s.`in ner`.w = 'w4'",
        "id in (select max(id) from {table})",
        "rand() >= 0 and id = 1",
    ],
)
def test_rows_are_deleted_by_logical_conditions(session: SparkSession, tmp_path: Path, mode: str, condition: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p")
    for number in range(2):
        append(session.sql(WIDE_ROWS).where(f"id div 3 = {number}"), table)
    where = condition.format(table=f"delta.`{table}`")
    gone = {row["id"] for row in read(session, table).where(where).collect()}
    assert gone
    session.sql(f"DELETE FROM delta.`{table}` WHERE {where}")
    expected = session.sql(WIDE_ROWS).where(~F.col("id").isin(gone))
    assert sorted(map(repr, read(session, table).collect())) == sorted(map(repr, expected.collect()))
    assert all(set(add["partitionValues"]) == {"col-2"} for add in of_kind(table, "add") + of_kind(table, "remove"))
    for file in parquet_files(table):
        assert pq.read_schema(file).names[:2] == ["col-1", "col-3"]


@MODES
def test_plans_of_one_table_are_one_plan(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long"), field("b", "long")), mode)
    append(session.sql("SELECT id a, id * 2 b FROM range(5)"), table)
    assert read(session, table).sameSemantics(read(session, table))
    assert read(session, table).semanticHash() == read(session, table).semanticHash()
    cached = read(session, table).cache()
    try:
        assert cached.count() == 5
        assert "InMemoryTableScan" in plan_text(read(session, table).where("a = 1"))
        append(session.sql("SELECT 5L a, 10L b"), table)
        assert read(session, table).count() == 6
    finally:
        cached.unpersist()
    joined = read(session, table).alias("l").join(read(session, table).alias("r"), F.col("l.a") == F.col("r.b"))
    assert sorted(tuple(row) for row in joined.collect()) == [(0, 0, 0, 0), (2, 4, 1, 2), (4, 8, 2, 4)]
    other = make_mapped(str(tmp_path / "o"), struct(field("a", "long"), field("b", "long")), mode)
    assert not read(session, table).sameSemantics(read(session, other))


def test_a_comment_or_a_mark_of_identity_makes_no_other_plan(session: SparkSession, tmp_path: Path) -> None:
    table = make_mapped(str(tmp_path / "t"), struct(field("a", "long"), field("b", "long")), "name")
    append(session.sql("SELECT 1L a, 2L b"), table)
    cached = read(session, table).cache()
    try:
        assert cached.count() == 1
        mark = {"delta.identity.highWaterMark": 7}
        change_metadata(table, lambda _: None, lambda fields: [fields[0], {**fields[1], "metadata": {**fields[1]["metadata"], **mark}}])
        assert "InMemoryTableScan" in plan_text(read(session, table))
    finally:
        cached.unpersist()


@MODES
def test_by_sql_and_through_a_checkpoint(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p", delta_checkpointInterval="2")
    for number in range(3):
        session.sql(f"INSERT INTO delta.`{table}` SELECT * FROM ({WIDE_ROWS}) WHERE id div 2 = {number}")
    assert (Path(table) / "_delta_log" / f"{2:020d}.checkpoint.parquet").exists()
    for version in (0, 1):
        os.remove(commit_path(table, version))
    assert sorted(map(repr, session.sql(f"SELECT * FROM delta.`{table}`").collect())) == sorted(map(repr, session.sql(WIDE_ROWS).collect()))
    assert session.sql(f"SELECT id FROM delta.`{table}` WHERE s.`in ner`.z >= 40 AND p = 'even'").collect()[0][0] == 4
    assert DeltaTable.forPath(session, table).toDF().where("p is null").count() == 3
    assert commit(table, 3)[0]["commitInfo"]["operation"] == "WRITE"


def test_defaults_reach_inserts_and_stay_out_of_frames(session: SparkSession, tmp_path: Path) -> None:
    marks = {"CURRENT_DEFAULT": "42L", "EXISTS_DEFAULT": "42L", "comment": "told"}
    table = make_log(str(tmp_path / "t"), struct(field("a", "long"), field("b", "long", **marks)))
    file = Path(table) / "theirs.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    action = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1, "dataChange": True}
    commit_path(table, 1).write_text(json.dumps({"add": action}) + "\n", encoding="utf-8")
    found = read(session, table)
    assert [dict(f.metadata) for f in found.schema.fields] == [{}, {"comment": "told"}]
    # A file from before the column was there has no value for it, whatever Spark would make of EXISTS_DEFAULT.
    assert rows(session, table) == [(1, None)]


@MODES
def test_change_data_lies_under_physical_names_too(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = make_mapped(str(tmp_path / "t"), WIDE, mode, "p", delta_enableChangeDataFeed="true")
    append(session.sql(WIDE_ROWS), table)
    session.sql(f"DELETE FROM delta.`{table}` WHERE s.x = 3")
    (change,) = of_kind(table, "cdc")
    assert change["path"].startswith("_change_data/col-2=__HIVE_DEFAULT_PARTITION__/")
    assert (change["partitionValues"], change["dataChange"]) == ({"col-2": None}, False)
    file = Path(table, change["path"])
    assert change["size"] == file.stat().st_size
    written = pq.ParquetFile(file).read()
    assert written.column_names == ["col-1", "col-3", "col-4", "col-9", "col-12", "col-14", "col-16", "_change_type"]
    assert (written["col-1"].to_pylist(), written["_change_type"].to_pylist()) == ([3], ["delete"])
    assert written.schema.field("col-1").metadata[b"PARQUET:field_id"] == b"1"
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "2").load(table)
    assert [tuple(row) for row in feed.select("id", "p", "s.`in ner`.w", "_change_type").collect()] == [(3, None, "w3", "delete")]


@MODES
def test_a_table_made_by_a_write_is_mapped_from_its_first_file_on(session: SparkSession, tmp_path: Path, mode: str) -> None:
    table = str(tmp_path / "t")
    frame = session.sql(WIDE_ROWS)
    frame.coalesce(1).write.format("delta").partitionBy("p").option("delta.columnMapping.mode", mode).save(table)
    assert sorted(map(repr, read(session, table).collect())) == sorted(map(repr, frame.collect()))
    (metadata,) = of_kind(table, "metaData")
    physical = {f["name"]: f["metadata"]["delta.columnMapping.physicalName"] for f in json.loads(metadata["schemaString"])["fields"]}
    assert all(name.startswith("col-") for name in physical.values())
    assert {name for add in of_kind(table, "add") for name in add["partitionValues"]} == {physical["p"]}
    frame.where("id = 1").write.format("delta").mode("overwrite").save(table)
    assert [row["id"] for row in read(session, table).where("s.`in ner`.z = 10 and p is null").collect()] == [1]
