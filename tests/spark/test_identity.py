"""Identity columns: numbers without a duplicate, the mark that the next ones start from, and writers that race for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.errors import ConstraintViolationError, MetadataChangedException, SchemaMismatchError, UnsupportedOperationError
from lakelog.core.field_metadata import IDENTITY_ALLOWS_EXPLICIT, IDENTITY_HIGH_WATER_MARK, IDENTITY_START, IDENTITY_STEP
from lakelog.core.schema import PrimitiveType, StructField, StructType, parse_schema
from lakelog.core.schema_compare import IdentityColumn
from lakelog.spark import DeltaTable, IdentityGenerator
from lakelog.spark.identity import advanced, identity_text
from tests.core.schema_models import compare_for_write
from tests.spark.racing import hooked_store, just_before
from tests.spark.tables import Action, commit, field, latest, make_log, of_kind, rows, save, struct, versions

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 6}
VALUE = field("v", "long")


@pytest.fixture
def path(tmp_path: object) -> str:
    return str(tmp_path) + "/the table"


def identity(start: int = 1, step: int = 1, *, mark: int | None = None, by_default: bool = False, name: str = "i") -> Action:
    known = {IDENTITY_START: start, IDENTITY_STEP: step, IDENTITY_ALLOWS_EXPLICIT: by_default}
    return field(name, "long", **known, **({} if mark is None else {IDENTITY_HIGH_WATER_MARK: mark}))


def table(path: str, *fields: Action, partition_by: Sequence[str] = ()) -> str:
    return make_log(path, struct(*fields), partition_by=partition_by, protocol=PROTOCOL)


def mark(path: str, column: str = "i") -> object:
    """The newest high-water mark in the log."""
    found = [of_kind(path, "metaData", version) for version in versions(path)]
    newest = [told for told in found if told][-1][0]
    return parse_schema(newest["schemaString"]).find((column,)).metadata.get(IDENTITY_HIGH_WATER_MARK)


def numbers(spark: SparkSession, path: str, column: str = "i") -> list[int]:
    return sorted(row[0] for row in spark.read.format("delta").load(path).select(column).collect())


@pytest.mark.parametrize(("start", "step"), [(1, 1), (10, -3), (-5, 7), (0, 1000)])
def test_numbers_follow_start_and_step_without_a_duplicate(delta: SparkSession, path: str, start: int, step: int) -> None:
    table(path, identity(start, step), VALUE)
    for tasks in (1, 3):
        delta.range(0, 100, 1, tasks).selectExpr("id AS v").write.format("delta").mode("append").save(path)
        found = numbers(delta, path)
        assert len(set(found)) == len(found)
        assert all((number - start) % step == 0 for number in found)
        assert mark(path) == (max(found) if step > 0 else min(found))
    first = {row[0] for row in rows(delta, path) if row[0] in range(start, start + 100 * step, step)}
    assert len(first) == 100


def test_the_metadata_comes_in_the_same_commit_and_only_then(delta: SparkSession, path: str) -> None:
    table(path, identity(by_default=True), VALUE)
    save(delta.sql("SELECT 1L v"), path)
    assert [next(iter(action)) for action in commit(path, 1)][:2] == ["commitInfo", "metaData"]
    save(delta.sql("SELECT 1000L i, 2L v"), path)
    assert of_kind(path, "metaData") == []
    assert mark(path) == 1
    save(delta.range(0).selectExpr("id AS v"), path)
    assert of_kind(path, "metaData") == []
    save(delta.sql("SELECT 3L v"), path)
    assert rows(delta, path) == [(1, 1), (1000, 2), (2, 3)]


def test_given_numbers_are_refused_where_the_table_makes_them(delta: SparkSession, path: str) -> None:
    table(path, identity(), VALUE)
    with pytest.raises(SchemaMismatchError, match=r"the table: (?s:.)*column i: .*GENERATED ALWAYS AS IDENTITY"):
        save(delta.sql("SELECT 5L i, 1L v"), path)
    assert versions(path) == [0]


def test_the_mark_goes_on_from_what_other_writers_left(delta: SparkSession, path: str) -> None:
    table(path, identity(1, 2, mark=41), VALUE)
    save(delta.sql("SELECT 1L v"), path)
    assert numbers(delta, path) == [43]


def test_two_columns_count_each_for_itself(delta: SparkSession, path: str) -> None:
    table(path, identity(name="up"), VALUE, identity(0, -1, name="down"))
    save(delta.sql("SELECT 7L v UNION ALL SELECT 7L"), path)
    assert rows(delta, path) == [(1, 7, 0), (2, 7, -1)]
    assert (mark(path, "up"), mark(path, "down")) == (2, -1)


def test_rows_behind_filters_limits_unions_and_shuffles_have_numbers_of_their_own(delta: SparkSession, path: str) -> None:
    table(path, identity(), VALUE, field("p", "long"), partition_by=["p"])
    some = delta.range(0, 200, 1, 4).selectExpr("id AS v", "id % 3 AS p")
    for frame in (some.where("v % 2 = 0"), some.limit(50), some.union(some), some.repartition(3), some.coalesce(2), some.orderBy("v")):
        frame.write.format("delta").mode("append").save(path)
    found = numbers(delta, path)
    assert len(found) == 100 + 50 + 400 + 3 * 200
    assert len(set(found)) == len(found)
    assert mark(path) == max(found)


def test_an_overwrite_goes_on_counting(delta: SparkSession, path: str) -> None:
    table(path, identity(), VALUE)
    save(delta.sql("SELECT 1L v"), path)
    save(delta.sql("SELECT 2L v"), path, "overwrite")
    assert rows(delta, path) == [(2, 2)]


@pytest.mark.parametrize(("start", "step", "mark"), [(1, 2**62, None), (-1, -(2**62), None), (0, 1, 2**63 - 3), (-(2**63), 2**62, None)])
def test_numbers_that_a_bigint_cannot_hold_are_refused(delta: SparkSession, path: str, start: int, step: int, mark: int | None) -> None:
    table(path, identity(start, step, mark=mark), VALUE)
    with pytest.raises(
        ConstraintViolationError, match=r"the table: the identity column i has run out of numbers.*nothing was written\. Give"
    ):
        save(delta.range(10).selectExpr("id AS v"), path)
    assert versions(path) == [0]


def test_a_mark_at_the_very_end_is_refused_before_any_job() -> None:
    schema = parse_schema(json.dumps(struct(identity(mark=2**63 - 1))))
    (plan,) = compare_for_write(schema, StructType(), table_name="/t")
    assert isinstance(plan, IdentityColumn)
    with pytest.raises(ConstraintViolationError, match="Delta table /t: the identity column i has run out of numbers"):
        identity_text(plan, "NULL", table="/t")


def test_two_writers_of_one_mark_conflict(delta: SparkSession, path: str) -> None:
    table(path, identity(), VALUE)
    with hooked_store(delta, path):
        just_before(lambda: save(delta.range(5).selectExpr("id AS v"), path))
        with pytest.raises(MetadataChangedException):
            save(delta.range(3).selectExpr("id AS v"), path)
    assert latest(path) == 1
    assert numbers(delta, path) == [1, 2, 3, 4, 5]
    assert mark(path) == 5


def test_files_without_statistics_are_refused(tmp_path: Path) -> None:
    told = struct(identity(), VALUE)
    schema = parse_schema(json.dumps(told))
    metadata = Metadata(id="x", schema_string=json.dumps(told), partition_columns=(), configuration={}, created_time=0)
    protocol = Protocol(min_reader_version=1, min_writer_version=6)
    plans = compare_for_write(schema, StructType((StructField("v", PrimitiveType("long")),)), table_name="/t")
    columns = pa.table({"i": pa.array([3, 9, 5]), "v": pa.array([1, 1, 1])})
    footers = []
    for statistics in (True, False):
        file = tmp_path / f"{statistics}.parquet"
        pq.write_table(columns, file, write_statistics=statistics)
        footers.append(pq.read_metadata(file))
    marked = advanced(metadata, protocol, plans, footers[:1], table="/t")
    assert marked is not None
    assert parse_schema(marked.schema_json).find(("i",)).metadata[IDENTITY_HIGH_WATER_MARK] == 9
    with pytest.raises(UnsupportedOperationError, match=r"Delta table /t: .*identity column i.*parquet\.column\.statistics\.enabled"):
        advanced(metadata, protocol, plans, footers, table="/t")


def test_rows_that_the_plan_itself_holds(delta: SparkSession, tmp_path: Path) -> None:
    """Spark evaluates these on the driver, where there is no task."""
    path = str(tmp_path / "t")
    made = DeltaTable.create(delta).location(path).addColumn("x", "int")
    made.addColumn("id", "long", generatedAlwaysAs=IdentityGenerator(5, 5)).execute()
    delta.sql("SELECT * FROM VALUES (1), (2), (3) AS t(x)").write.format("delta").mode("append").save(path)
    delta.sql("SELECT 4 AS x").write.format("delta").mode("append").save(path)
    assert sorted(tuple(row) for row in delta.read.format("delta").load(path).collect()) == [(1, 5), (2, 10), (3, 15), (4, 20)]


@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="Spark 4.0 wants every column of an INSERT")
def test_an_insert_of_some_columns_lets_the_table_make_the_others(delta: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(delta).location(path).addColumn("x", "int").addColumn("twice", "int", generatedAlwaysAs="x * 2")
    made.addColumn("id", "long", generatedByDefaultAs=IdentityGenerator()).execute()
    delta.sql(f"INSERT INTO delta.`{path}` (x) VALUES (1), (2)")
    delta.sql(f"INSERT INTO delta.`{path}` (x, id) VALUES (3, 77)")
    delta.sql(f"INSERT INTO delta.`{path}` BY NAME SELECT 4 AS x")
    found = sorted(tuple(row) for row in delta.read.format("delta").load(path).collect())
    assert found == [(1, 2, 1), (2, 4, 2), (3, 6, 77), (4, 8, 3)]
