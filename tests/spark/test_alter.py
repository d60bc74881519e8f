"""ALTER TABLE: each statement is one commit with delta-spark's line in the history, each refusal names its cause and commits nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog.core.errors import (
    ColumnNotFoundError,
    ConcurrentAppendException,
    ConstraintViolationError,
    InvalidExpressionError,
    InvalidRequestError,
    InvalidTablePropertyError,
    LakelogError,
    PartitionColumnError,
    SchemaMismatchError,
    UnsupportedOperationError,
    UnsupportedTypeError,
)
from lakelog.spark import alter as module
from lakelog.spark.session import context_of
from tests.spark.tables import Action, field, info, latest, make_log, of_kind, rows, save, struct
from tests.spark.told import check_ours, register


@pytest.fixture
def table(delta: SparkSession, tmp_path: Path) -> str:
    """Four rows in two partitions, with a struct, an array of structs and a map."""
    path = str(tmp_path / "t")
    frame = delta.range(4).selectExpr(
        "id",
        "CAST(id AS tinyint) AS small",
        "named_struct('city', CAST(id AS string), 'size', CAST(1 AS int)) AS place",
        "array(named_struct('x', CAST(id AS int))) AS items",
        "map('k', CAST(id AS int)) AS counts",
        "id % 2 AS part",
    )
    save(frame, path, partition_by=["part"])
    return path


def alter(spark: SparkSession, path: str, change: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` {change}")


def mapped(spark: SparkSession, path: str) -> str:
    alter(spark, path, "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    return path


def schema(path: str) -> dict[str, Action]:
    """The newest schema's fields by name, as JSON."""
    for version in range(latest(path), -1, -1):
        if found := of_kind(path, "metaData", version):
            return {each["name"]: each for each in json.loads(found[0]["schemaString"])["fields"]}
    raise AssertionError("no metadata")


def properties(path: str) -> dict[str, str]:
    for version in range(latest(path), -1, -1):
        if found := of_kind(path, "metaData", version):
            made: dict[str, str] = found[0]["configuration"]
            return made
    raise AssertionError("no metadata")


def told(path: str) -> tuple[str, dict[str, Any]]:
    """The newest operation with its parameters, JSON in them parsed."""
    commit = info(path)
    parameters = {}
    for name, value in commit["operationParameters"].items():
        parameters[name] = json.loads(value) if isinstance(value, str) and value.startswith(("[", "{")) else value
    return commit["operation"], parameters


def refused(act: Callable[[], object], path: str, kind: type[LakelogError], *parts: str) -> None:
    """That a statement fails with our error, which names the table and all of the parts, and that no version came of it."""
    before = latest(path)
    with pytest.raises(kind) as caught:
        act()
    message = check_ours(caught)
    assert path in message
    for part in parts:
        assert part in message, message
    assert latest(path) == before


# columns that come and go ------------------------------------------------------------------------------------------------


def test_columns_are_added_where_they_are_asked_for(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD COLUMNS (note string COMMENT 'what' AFTER id, code varchar(3))")
    assert latest(table) == 1
    assert list(schema(table)) == ["id", "note", "small", "place", "items", "counts", "part", "code"]
    assert schema(table)["note"]["metadata"] == {"comment": "what"}
    assert schema(table)["code"]["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    assert told(table) == (
        "ADD COLUMNS",
        {
            "columns": [
                {"column": {"name": "note", "type": "string", "nullable": True, "metadata": {"comment": "what"}}, "position": "AFTER id"},
                {
                    "column": {
                        "name": "code",
                        "type": "string",
                        "nullable": True,
                        "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
                    }
                },
            ]
        },
    )
    assert not of_kind(table, "protocol")
    assert delta.read.format("delta").load(table).where("note IS NULL").count() == 4


def test_fields_are_added_at_any_depth(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD COLUMNS (place.zip int FIRST, items.element.y int)")
    frame = delta.read.format("delta").load(table)
    assert frame.select("place.*").columns == ["zip", "city", "size"]
    assert frame.selectExpr("items[0].y AS y", "items[0].x AS x", "place.city").orderBy("x").first() == (None, 0, "0")
    assert told(table)[1]["columns"][0] == {
        "column": {"name": "place.zip", "type": "integer", "nullable": True, "metadata": {}},
        "position": "FIRST",
    }


def test_what_is_not_added(delta: SparkSession, table: str) -> None:
    refused(
        lambda: alter(delta, table, "ADD COLUMN strict int NOT NULL"),
        table,
        UnsupportedOperationError,
        "column strict cannot be added as NOT NULL",
        "SET NOT NULL",
    )
    refused(
        lambda: alter(delta, table, "ADD COLUMN wide struct<a: int NOT NULL>"), table, UnsupportedOperationError, "column wide.a cannot be"
    )
    refused(
        lambda: alter(delta, table, "ADD COLUMN n int DEFAULT 3"),
        table,
        UnsupportedOperationError,
        "column n",
        "ALTER COLUMN ... SET DEFAULT",
    )
    refused(lambda: alter(delta, table, "ADD COLUMN `a b` int"), table, LakelogError, "a b", "column mapping")
    for change in ("ADD COLUMNS (c interval day)", "REPLACE COLUMNS (c interval day)"):
        refused(lambda change=change: alter(delta, table, change), table, UnsupportedTypeError, f"Delta table {table}: ", "interval day")
    with pytest.raises(AnalysisException, match="FIELD_ALREADY_EXISTS"):
        alter(delta, table, "ADD COLUMN ID int")


def test_columns_are_dropped_and_renamed_without_a_rewrite(delta: SparkSession, table: str) -> None:
    for change, name in (("DROP COLUMN small", "DROP COLUMN small"), ("RENAME COLUMN id TO ident", "RENAME COLUMN id")):
        refused(
            lambda change=change: alter(delta, table, change),  # type: ignore[misc]
            table,
            UnsupportedOperationError,
            f"{name} needs column mapping",
            "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        )
    mapped(delta, table)
    assert of_kind(table, "protocol")[0]["minReaderVersion"] == 2
    assert "columnMapping" in of_kind(table, "protocol")[0]["writerFeatures"]
    alter(delta, table, "DROP COLUMNS (small, PLACE.size)")
    assert told(table) == ("DROP COLUMNS", {"columns": ["small", "place.size"]})
    alter(delta, table, "RENAME COLUMN id TO `the.id`")
    assert told(table) == ("RENAME COLUMN", {"oldColumnPath": "id", "newColumnPath": "`the.id`"})
    alter(delta, table, "RENAME COLUMN part TO half")
    assert of_kind(table, "metaData")[0]["partitionColumns"] == ["half"]
    alter(delta, table, "RENAME COLUMN items.element.x TO y")
    assert latest(table) == 5
    assert not of_kind(table, "add")
    frame = delta.read.format("delta").load(table)
    assert frame.columns == ["the.id", "place", "items", "counts", "half"]
    assert [tuple(row) for row in frame.selectExpr("`the.id`", "place.city", "items.y", "half").orderBy("`the.id`").collect()] == [
        (0, "0", [0], 0),
        (1, "1", [1], 1),
        (2, "2", [2], 0),
        (3, "3", [3], 1),
    ]
    alter(delta, table, "ADD COLUMN small string")
    assert delta.read.format("delta").load(table).where("small IS NOT NULL").count() == 0


def test_what_is_not_dropped(delta: SparkSession, table: str) -> None:
    mapped(delta, table)
    refused(lambda: alter(delta, table, "DROP COLUMN part"), table, UnsupportedOperationError, "column part partitions", "overwriteSchema")
    refused(
        lambda: alter(delta, table, "DROP COLUMN items.element.x"),
        table,
        UnsupportedOperationError,
        "items.element.x is the last column left",
    )
    refused(lambda: alter(delta, table, "DROP COLUMN items.element"), table, UnsupportedOperationError, "not a struct")
    alter(delta, table, "DROP COLUMN IF EXISTS nothing")
    assert latest(table) == 1
    alter(delta, table, "ADD CONSTRAINT c CHECK (place.size > 0 AND id < 100)")
    for column in ("place", "place.size", "id"):
        refused(
            lambda column=column: alter(delta, table, f"DROP COLUMN {column}"),  # type: ignore[misc]
            table,
            UnsupportedOperationError,
            f"column {column} cannot be dropped, for the CHECK constraint c (place.size > 0 AND id < 100) refers to it",
            "DROP CONSTRAINT",
        )
    refused(lambda: alter(delta, table, "RENAME COLUMN id TO x"), table, UnsupportedOperationError, "column id cannot be renamed")
    alter(delta, table, "DROP COLUMN place.city")


def test_generated_columns_and_clustering_hold_on_to_their_columns(delta: SparkSession, tmp_path: Path) -> None:
    path = make_log(
        str(tmp_path / "g"),
        struct(
            field("a", "long", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}),
            field(
                "b",
                "long",
                **{"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "b", "delta.generationExpression": "a + 1"},
            ),
            field("c", "long", **{"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "c"}),
        ),
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        delta_columnMapping_mode="name",
        delta_columnMapping_maxColumnId="3",
    )
    alter(delta, path, "CLUSTER BY (c)")
    assert told(path) == ("CLUSTER BY", {"oldClusteringColumns": "", "newClusteringColumns": "c"})
    refused(lambda: alter(delta, path, "DROP COLUMN c"), path, UnsupportedOperationError, "clustered by c", "CLUSTER BY NONE")
    for change in ("DROP COLUMN a", "RENAME COLUMN a TO x"):
        refused(
            lambda change=change: alter(delta, path, change),  # type: ignore[misc]
            path,
            UnsupportedOperationError,
            "for the generated column b (a + 1) refers to it",
            "DROP COLUMN",
        )
    refused(lambda: alter(delta, path, "ALTER COLUMN b TYPE decimal(20,0)"), path, UnsupportedOperationError, "generated as a + 1")
    refused(lambda: alter(delta, path, "ALTER COLUMN b SET DEFAULT 3"), path, UnsupportedOperationError, "computed from other columns")
    alter(delta, path, "RENAME COLUMN c TO d")
    alter(delta, path, "CLUSTER BY (a, d)")
    assert told(path)[1] == {"oldClusteringColumns": "d", "newClusteringColumns": "a,d"}
    alter(delta, path, "CLUSTER BY NONE")
    alter(delta, path, "DROP COLUMN b")
    alter(delta, path, "DROP COLUMN a")
    assert list(schema(path)) == ["d"]
    refused(lambda: alter(delta, path, "DROP COLUMN d"), path, UnsupportedOperationError, "d is the last column left of the table")


def test_clustering_by_what_partitions(delta: SparkSession, table: str) -> None:
    refused(lambda: alter(delta, table, "CLUSTER BY (id)"), table, PartitionColumnError, "partitioned by (part)")
    alter(delta, table, "CLUSTER BY NONE")
    assert latest(table) == 0


def test_replacing_columns(delta: SparkSession, table: str) -> None:
    every = "place struct<city: string, size: int, zip: int>, items array<struct<x: int>>, counts map<string, int>, part long"
    alter(delta, table, f"REPLACE COLUMNS (small smallint COMMENT 'c', id long, {every}, extra int)")
    assert told(table)[0] == "REPLACE COLUMNS"
    assert list(schema(table)) == ["small", "id", "place", "items", "counts", "part", "extra"]
    assert (schema(table)["small"]["type"], schema(table)["small"]["metadata"]) == ("short", {"comment": "c"})
    assert delta.read.format("delta").load(table).where("extra IS NULL AND place.zip IS NULL AND small = id").count() == 4
    refused(lambda: alter(delta, table, "REPLACE COLUMNS (id long, part long)"), table, UnsupportedOperationError, "needs column mapping")
    mapped(delta, table)
    refused(lambda: alter(delta, table, "REPLACE COLUMNS (id long, p long)"), table, UnsupportedOperationError, "Use RENAME COLUMN")
    refused(lambda: alter(delta, table, "REPLACE COLUMNS (id long)"), table, UnsupportedOperationError, "column part partitions")
    alter(delta, table, "REPLACE COLUMNS (part long, id long)")
    assert rows(delta, table) == [(0, 0), (0, 2), (1, 1), (1, 3)]


# changes of a column -----------------------------------------------------------------------------------------------------


def test_comments_and_positions(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ALTER COLUMN place.size COMMENT 'in acres'")
    assert told(table) == (
        "CHANGE COLUMN",
        {"column": {"name": "place.size", "type": "integer", "nullable": True, "metadata": {"comment": "in acres"}}},
    )
    alter(delta, table, "ALTER COLUMN id AFTER place")
    assert told(table)[1]["position"] == "AFTER place"
    alter(delta, table, "ALTER COLUMN place.size FIRST")
    assert told(table)[1]["position"] == "FIRST"
    alter(delta, table, "CHANGE COLUMN id id long COMMENT 'who'")
    assert list(schema(table)) == ["small", "place", "id", "items", "counts", "part"]
    assert schema(table)["id"]["metadata"] == {"comment": "who"}
    frame = delta.read.format("delta").load(table)
    assert frame.select("place.*").columns == ["size", "city"]
    assert frame.where("id = 3").select("small", "place.city").first() == (3, "3")
    refused(
        lambda: alter(delta, table, "ALTER COLUMN counts.value COMMENT 'x'"),
        table,
        UnsupportedOperationError,
        "counts.value is a part of an array or map",
        "Change counts instead",
    )


def test_types_widen(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ALTER COLUMN small TYPE int")
    assert (schema(table)["small"]["type"], schema(table)["small"]["metadata"]) == ("integer", {})
    refused(
        lambda: alter(delta, table, "ALTER COLUMN small TYPE bigint"),
        table,
        SchemaMismatchError,
        "changing column small from integer to long takes type widening",
        "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    )
    refused(lambda: alter(delta, table, "ALTER COLUMN id TYPE string"), table, SchemaMismatchError, "column id from long to string")
    alter(delta, table, "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    assert "typeWidening" in of_kind(table, "protocol")[0]["writerFeatures"]
    alter(delta, table, "ALTER COLUMN small TYPE bigint")
    assert schema(table)["small"]["metadata"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    alter(delta, table, "ALTER COLUMN counts.value TYPE bigint")
    assert schema(table)["counts"]["metadata"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "fieldPath": "value"}]}
    assert told(table)[1]["column"]["name"] == "counts.value"
    wide = ("9L AS id", "99999999999L AS small", "place", "items", "map('k', 99999999999L) AS counts", "9L AS part")
    save(delta.read.format("delta").load(table).limit(1).selectExpr(*wide), table)
    frame = delta.read.format("delta").load(table)
    assert [tuple(row) for row in frame.selectExpr("small", "counts['k']").orderBy("small").collect()] == [
        *((n, n) for n in range(4)),
        (99999999999, 99999999999),
    ]
    refused(
        lambda: alter(delta, table, "ALTER COLUMN part TYPE decimal(20, 0)"),
        table,
        UnsupportedOperationError,
        "column part partitions",
        "overwriteSchema",
    )
    alter(delta, table, "ADD COLUMN code varchar(3)")
    alter(delta, table, "ALTER COLUMN code TYPE varchar(9)")
    assert schema(table)["code"]["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(9)"}
    alter(delta, table, "ADD CONSTRAINT c CHECK (small >= 0)")
    refused(lambda: alter(delta, table, "ALTER COLUMN small TYPE decimal(20, 0)"), table, UnsupportedOperationError, "constraint c (small")


def test_not_null_looks_at_the_rows(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ALTER COLUMN id SET NOT NULL")
    assert schema(table)["id"]["nullable"] is False
    assert told(table) == ("CHANGE COLUMN", {"column": {"name": "id", "type": "long", "nullable": False, "metadata": {}}})
    assert info(table)["isBlindAppend"] is False
    alter(delta, table, "ALTER COLUMN place.city SET NOT NULL")
    alter(delta, table, "CHANGE COLUMN items.element.x SET NOT NULL")
    alter(delta, table, "ALTER COLUMN id DROP NOT NULL")
    assert schema(table)["id"]["nullable"] is True
    alter(delta, table, "ADD COLUMNS (empty int, items.element.y int)")
    refused(
        lambda: alter(delta, table, "ALTER COLUMN empty SET NOT NULL"),
        table,
        ConstraintViolationError,
        "column empty cannot be made NOT NULL, for 4 rows of the table hold a null there",
        "WHERE `empty` IS NULL",
        '{"empty":null}',
    )
    refused(
        lambda: alter(delta, table, "ALTER COLUMN items.element.y SET NOT NULL"),
        table,
        ConstraintViolationError,
        "column items.element.y cannot be made NOT NULL",
        '"y":null',
    )
    refused(
        lambda: alter(delta, table, "ALTER COLUMN items.element SET NOT NULL"),
        table,
        UnsupportedOperationError,
        "a part of an array or map",
    )
    refused(lambda: alter(delta, table, "ALTER COLUMN nothing SET NOT NULL"), table, ColumnNotFoundError, "there are: id, small")
    before = latest(table)
    with pytest.raises(UnsupportedOperationError, match="Give each column a statement of its own"):
        alter(delta, table, "ALTER COLUMN small SET NOT NULL, part COMMENT 'x'")
    assert latest(table) == before


def test_several_columns_in_one_commit(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ALTER COLUMN id COMMENT 'a', small TYPE smallint, part COMMENT 'b'")
    assert latest(table) == 1
    name, parameters = told(table)
    assert name == "CHANGE COLUMNS"
    assert [(each["name"], each["type"]) for each in parameters["columns"]] == [
        ("id", "long"),
        ("small", "short"),
        ("part", "long"),
    ]


def test_defaults(delta: SparkSession, table: str) -> None:
    refused(
        lambda: alter(delta, table, "ALTER COLUMN id SET DEFAULT 3"), table, InvalidRequestError, "allowColumnDefaults", "addFeatureSupport"
    )
    alter(delta, table, "SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
    alter(delta, table, "ALTER COLUMN id SET DEFAULT 40 + 2")
    assert schema(table)["id"]["metadata"] == {"CURRENT_DEFAULT": "40 + 2"}
    alter(delta, table, "ALTER COLUMN id COMMENT 'kept'")
    assert schema(table)["id"]["metadata"] == {"CURRENT_DEFAULT": "40 + 2", "comment": "kept"}
    alter(delta, table, "ALTER COLUMN id DROP DEFAULT")
    assert schema(table)["id"]["metadata"] == {"comment": "kept"}
    before = latest(table)
    with pytest.raises((InvalidExpressionError, AnalysisException)):
        alter(delta, table, "ALTER COLUMN id SET DEFAULT 'abc'")
    with pytest.raises((InvalidExpressionError, AnalysisException)):
        alter(delta, table, "ALTER COLUMN id SET DEFAULT small + 1")
    assert latest(table) == before
    refused(
        lambda: alter(delta, table, "ALTER COLUMN place.size SET DEFAULT 1"), table, UnsupportedOperationError, "a part of another column"
    )


def test_identity_columns(delta: SparkSession, tmp_path: Path) -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 10, "delta.identity.allowExplicitInsert": True}
    path = make_log(
        str(tmp_path / "i"),
        struct(field("n", "long", **identity), field("a", "long")),
        protocol={"minReaderVersion": 1, "minWriterVersion": 6},
    )
    refused(lambda: alter(delta, path, "ALTER COLUMN n DROP NOT NULL"), path, UnsupportedOperationError, "column n is an identity column")
    refused(lambda: alter(delta, path, "REPLACE COLUMNS (n long, a long)"), path, UnsupportedOperationError, "REPLACE COLUMNS", "identity")
    refused(lambda: alter(delta, path, "ALTER COLUMN a SYNC IDENTITY"), path, UnsupportedOperationError, "column a is no identity column")
    alter(delta, path, "ALTER COLUMN n COMMENT 'fine'")
    alter(delta, path, "ALTER COLUMN n SYNC IDENTITY")
    assert not of_kind(path, "metaData")
    save(delta.sql("SELECT 24L AS n, 1L AS a"), path)
    alter(delta, path, "ALTER COLUMN n SYNC IDENTITY")
    assert schema(path)["n"]["metadata"]["delta.identity.highWaterMark"] == 31
    assert told(path)[0] == "CHANGE COLUMN"


# properties, constraints, features ---------------------------------------------------------------------------------------


def test_properties(delta: SparkSession, table: str) -> None:
    alter(delta, table, "SET TBLPROPERTIES ('owner.team' = 'a', 'delta.appendonly' = 'true', 'comment' = 'hello')")
    assert properties(table) == {"owner.team": "a", "delta.appendOnly": "true"}
    assert of_kind(table, "metaData")[0]["description"] == "hello"
    assert told(table) == ("SET TBLPROPERTIES", {"properties": {"owner.team": "a", "delta.appendOnly": "true", "comment": "hello"}})
    shown = {row.key: row.value for row in delta.sql(f"SHOW TBLPROPERTIES delta.`{table}`").collect()}
    assert shown["owner.team"] == "a"
    assert shown["delta.appendOnly"] == "true"
    alter(delta, table, "UNSET TBLPROPERTIES ('delta.appendOnly', 'comment', 'nothing')")
    assert properties(table) == {"owner.team": "a"}
    assert told(table) == ("UNSET TBLPROPERTIES", {"properties": ["delta.appendOnly", "comment", "nothing"], "ifExists": True})
    assert "description" not in of_kind(table, "metaData")[0]


def test_a_statement_that_changes_nothing_is_in_the_history_alone(delta: SparkSession, table: str) -> None:
    alter(delta, table, "SET TBLPROPERTIES ('a' = 'b')")
    alter(delta, table, "SET TBLPROPERTIES ('a' = 'b')")
    assert latest(table) == 2
    assert told(table)[0] == "SET TBLPROPERTIES"
    assert not of_kind(table, "metaData")
    assert not of_kind(table, "protocol")


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("'delta.appendOnli' = 'true'", ("delta.appendOnli", "delta.appendOnly")),
        ("'delta.appendOnly' = 'perhaps'", ("delta.appendOnly", "true or false")),
        ("'delta.constraints.c' = 'id > 0'", ("delta.constraints.c", "ADD CONSTRAINT")),
        ("'delta.columnMapping.maxColumnId' = '7'", ("delta.columnMapping.maxColumnId", "Leave the property out")),
    ],
)
def test_properties_that_are_none(delta: SparkSession, table: str, given: str, parts: tuple[str, ...]) -> None:
    refused(lambda: alter(delta, table, f"SET TBLPROPERTIES ({given})"), table, InvalidTablePropertyError, *parts)


def test_column_mapping_is_entered_by_name_alone(delta: SparkSession, table: str) -> None:
    refused(
        lambda: alter(delta, table, "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"),
        table,
        UnsupportedOperationError,
        "cannot be changed from none to id",
        "Use name",
    )
    mapped(delta, table)
    assert all(each["metadata"]["delta.columnMapping.physicalName"] == name for name, each in schema(table).items())
    refused(
        lambda: alter(delta, table, "UNSET TBLPROPERTIES ('delta.columnMapping.mode')"),
        table,
        UnsupportedOperationError,
        "cannot be changed from name to none",
    )


def test_row_tracking_gives_ids_to_the_rows_that_are_there(delta: SparkSession, table: str) -> None:
    alter(delta, table, "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    assert latest(table) == 1
    adds = of_kind(table, "add")
    assert sorted(add["baseRowId"] for add in adds) == [0, 2]
    assert not any(add["dataChange"] for add in adds)
    assert len(rows(delta, table)) == 4


def test_in_commit_timestamps_begin_with_the_statement(delta: SparkSession, table: str) -> None:
    alter(delta, table, "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    assert info(table)["inCommitTimestamp"] > 0
    assert properties(table)["delta.inCommitTimestampEnablementVersion"] == "1"
    assert told(table)[0] == "SET TBLPROPERTIES"


def test_constraints(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD CONSTRAINT Positive CHECK (id >= 0 AND place.city <> 'x)')")
    assert properties(table) == {"delta.constraints.positive": "id >= 0 AND place.city <> 'x)'"}
    assert [protocol["minWriterVersion"] for protocol in of_kind(table, "protocol")] == [3]
    assert told(table) == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id >= 0 AND place.city <> 'x)'"})
    assert info(table)["isBlindAppend"] is False
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT POSITIVE CHECK (id > 0)"),
        table,
        InvalidRequestError,
        "POSITIVE is there already",
        "DROP",
    )
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT __CHAR_VARCHAR_STRING_LENGTH_CHECK__ CHECK (id >= 0)"),
        table,
        InvalidRequestError,
        "keeps for itself. Choose another name",
    )
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT most CHECK (id < 2)"),
        table,
        ConstraintViolationError,
        "the CHECK constraint most (id < 2) cannot be added, for 2 rows of the table do not meet it",
        "DELETE FROM",
        '{"id":2}',
        '{"id":3}',
    )
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT n CHECK (nullif(id, 1) >= 0)"),
        table,
        ConstraintViolationError,
        "for 1 row of the table does not meet it. Mend",
        '{"id":1}',
    )
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT most CHECK (nothing < 2)"),
        table,
        InvalidExpressionError,
        "most (nothing < 2)",
        "nothing",
    )
    refused(lambda: alter(delta, table, "ADD CONSTRAINT most CHECK (id + 1)"), table, InvalidExpressionError, "not boolean", "condition")
    refused(lambda: alter(delta, table, "ADD CONSTRAINT most CHECK (rand() < 2)"), table, InvalidExpressionError, "answers differently")
    alter(delta, table, "DROP CONSTRAINT positive")
    assert told(table)[1] == {"name": "positive", "expr": "id >= 0 AND place.city <> 'x)'", "existed": "true"}
    assert properties(table) == {}
    refused(lambda: alter(delta, table, "DROP CONSTRAINT positive"), table, InvalidRequestError, "no constraint positive", "IF EXISTS")
    alter(delta, table, "DROP CONSTRAINT IF EXISTS positive")
    assert told(table)[1] == {"name": "positive", "existed": "false"}
    assert not of_kind(table, "metaData")


def test_a_condition_that_ends_in_a_comment(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD CONSTRAINT c CHECK (id >= 0 -- not negative\n)")
    assert properties(table) == {"delta.constraints.c": "id >= 0 -- not negative"}
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT most CHECK (id < 2 -- few\n)"),
        table,
        ConstraintViolationError,
        "WHERE NOT coalesce((id < 2 -- few\n), false)",
    )
    with pytest.raises(ConstraintViolationError, match="not negative"):
        save(delta.read.format("delta").load(table).withColumn("id", -F.col("id") - 1), table)
    save(delta.read.format("delta").load(table), table)


def test_constraints_of_another_kind(delta: SparkSession, table: str) -> None:
    if delta.version.startswith("4.0"):
        pytest.skip("Spark 4.0 does not parse constraints")
    refused(
        lambda: alter(delta, table, "ADD CONSTRAINT k PRIMARY KEY (id) NOT ENFORCED"),
        table,
        UnsupportedOperationError,
        "does not support ALTER TABLE ... ADD CONSTRAINT",
        "ADD CONSTRAINT name CHECK (condition)",
    )
    refused(lambda: alter(delta, table, "ADD CHECK (id >= 0)"), table, UnsupportedOperationError, "ADD CONSTRAINT name CHECK (condition)")
    if delta.version.startswith("4.1"):
        return  # Spark 4.1 says itself that it finds no such table.
    named = "ALTER TABLE IDENTIFIER(:t) ADD CONSTRAINT c CHECK (id >= 0)"
    refused(
        lambda: delta.sql(named, args={"t": f"delta.`{table}`"}),
        table,
        UnsupportedOperationError,
        "write the table's name out, not as IDENTIFIER()",
    )


def test_a_constraint_whose_name_begins_with_a_digit(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD CONSTRAINT 1c CHECK (id >= 0)")
    assert properties(table) == {"delta.constraints.1c": "id >= 0"}
    alter(delta, table, "ADD CONSTRAINT two CHECK (small < 100 AND id < 100)")
    mapped(delta, table)
    refused(
        lambda: alter(delta, table, "DROP COLUMN id"),
        table,
        UnsupportedOperationError,
        "the CHECK constraint 1c (id >= 0), the CHECK constraint two (small < 100 AND id < 100) refer to it",
    )
    alter(delta, table, "DROP CONSTRAINT 1c")
    assert "delta.constraints.1c" not in properties(table)


def test_a_table_s_comment_is_shown(delta: SparkSession, table: str) -> None:
    register(delta, "commented", table)
    try:
        alter(delta, table, "SET TBLPROPERTIES ('comment' = 'what it is')")
        shown = {row.col_name: row.data_type for row in delta.sql("DESCRIBE EXTENDED commented").collect()}
        assert shown["Comment"] == "what it is"
        alter(delta, table, "UNSET TBLPROPERTIES ('comment')")
        assert "Comment" not in {row.col_name for row in delta.sql("DESCRIBE EXTENDED commented").collect()}
    finally:
        delta.sql("DROP TABLE commented")


def test_features_are_dropped(delta: SparkSession, table: str) -> None:
    alter(delta, table, "ADD CONSTRAINT c CHECK (id >= 0)")
    refused(lambda: alter(delta, table, "DROP FEATURE checkConstraints"), table, LakelogError, "checkConstraints")
    alter(delta, table, "DROP CONSTRAINT c")
    alter(delta, table, "DROP FEATURE checkConstraints")
    assert told(table) == ("DROP FEATURE", {"featureName": "checkConstraints", "truncateHistory": False})
    refused(lambda: alter(delta, table, "DROP FEATURE nothing"), table, LakelogError, "nothing")


# tables of the metastore, and other writers ------------------------------------------------------------------------------


def test_a_table_of_the_metastore_is_altered_by_its_name(delta: SparkSession, table: str) -> None:
    register(delta, "alter_known", table)
    try:
        delta.sql("ALTER TABLE alter_known ADD COLUMN note string")
        delta.sql("ALTER TABLE default.alter_known ADD CONSTRAINT c CHECK (id >= 0)")
        delta.sql("ALTER TABLE spark_catalog.default.alter_known ALTER COLUMN id SET NOT NULL")
        delta.sql("ALTER TABLE alter_known SET TBLPROPERTIES ('a' = 'b')")
        assert latest(table) == 4
        assert "note" in delta.table("alter_known").columns
        described = {row.col_name: row.data_type for row in delta.sql("DESCRIBE alter_known").collect()}
        assert described["note"] == "string"
        refused(lambda: delta.sql("ALTER TABLE alter_known DROP COLUMN note"), table, UnsupportedOperationError, "needs column mapping")
    finally:
        delta.sql("DROP TABLE alter_known")


def test_changes_of_several_kinds_take_a_statement_each(delta: SparkSession, table: str) -> None:
    both = [{"kind": "SetProperty", "key": "a", "value": "b"}, {"kind": "RenameColumn", "column": ["id"], "name": "x"}]
    with pytest.raises(UnsupportedOperationError, match=r"RenameColumn, SetProperty.* take a statement each") as caught:
        module.alter(context_of(delta), delta, table, both)
    assert str(caught.value).startswith(f"Delta table {table}: ")
    with pytest.raises(UnsupportedOperationError, match="ADD CONSTRAINT name CHECK"):
        module.alter(context_of(delta), delta, table, [{"kind": "AddConstraint"}])
    assert latest(table) == 0


def test_an_append_between_the_look_and_the_commit_is_seen(delta: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = module._check_rows

    def look_and_let_another_write(*given: Any) -> None:
        looked(*given)
        other = str(given[0].root)
        add = of_kind(other, "add", 0)[0]
        commit = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True}}
        lines = [commit, {"add": {**add, "path": add["path"].replace("part-", "part-9"), "stats": '{"numRecords":1}'}}]
        Path(other, "_delta_log", f"{1:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    monkeypatch.setattr(module, "_check_rows", look_and_let_another_write)
    with pytest.raises(ConcurrentAppendException) as caught:
        alter(delta, table, "ADD CONSTRAINT c CHECK (id >= 0)")
    assert "ADD CONSTRAINT" in str(caught.value)
    assert latest(table) == 1


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMNS (n int)",
        "RENAME COLUMN id TO x",
        "DROP COLUMN small",
        "ALTER COLUMN id COMMENT 'x'",
        "ALTER COLUMN id SET NOT NULL",
        "REPLACE COLUMNS (id bigint)",
        "SET TBLPROPERTIES ('a' = 'b')",
        "UNSET TBLPROPERTIES ('a')",
        "ADD CONSTRAINT c CHECK (id >= 0)",
        "DROP CONSTRAINT IF EXISTS c",
        "DROP FEATURE checkConstraints",
        "CLUSTER BY NONE",
    ],
)
def test_an_old_version_is_not_altered(delta: SparkSession, table: str, change: str) -> None:
    refused(
        lambda: alter(delta, f"{table}@v0", change),
        table,
        UnsupportedOperationError,
        "ALTER TABLE was aimed at version 0. Leave out the version: only the newest can be changed.",
    )


def test_an_old_version_is_not_altered_by_a_name_that_is_computed(delta: SparkSession, table: str) -> None:
    refused(
        lambda: delta.sql("ALTER TABLE IDENTIFIER(:t) ADD COLUMNS (n int)", args={"t": f"delta.`{table}@v0`"}),
        table,
        UnsupportedOperationError,
        "ALTER TABLE was aimed at version 0. Leave out the version",
    )


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("delta.appendOnly", "true"),
        ("delta.checkpointInterval", "10"),
        ("delta.columnMapping.mode", "name"),
        ("delta.deletedFileRetentionDuration", "interval 1 day"),
        ("delta.enableChangeDataFeed", "true"),
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.enableRowTracking", "true"),
        ("delta.isolationLevel", "Serializable"),
        ("delta.logRetentionDuration", "interval 30 days"),
    ],
)
def test_a_property_that_cannot_be_parsed_is_mended_before_anything_else(delta: SparkSession, tmp_path: Path, key: str, good: str) -> None:
    frame = delta.range(2)
    for number, mend in enumerate((f"SET TBLPROPERTIES ('{key}' = '{good}')", f"UNSET TBLPROPERTIES ('{key}')")):
        path = make_log(str(tmp_path / str(number)), struct(field("id", "long")), **{key.replace(".", "_"): "perhaps"})
        assert rows(delta, path) == []
        parts = (f"Delta table {path}: the table property {key} is 'perhaps', but must be ", f"UNSET TBLPROPERTIES ('{key}')")
        for act in (
            lambda path=path: save(frame, path),
            lambda path=path: save(frame, path, "overwrite"),
            lambda path=path: delta.sql(f"DELETE FROM delta.`{path}`"),
            lambda path=path: alter(delta, path, "ADD COLUMN n int"),
            lambda path=path: alter(delta, path, "SET TBLPROPERTIES ('a' = 'b')"),
        ):
            refused(act, path, InvalidTablePropertyError, *parts)
        alter(delta, path, mend)
        assert properties(path).get(key) == (None if number else good)
        save(frame, path)
        assert sorted(rows(delta, path)) == [(0,), (1,)]


def test_a_mapping_that_cannot_be_parsed_stops_reads_too(delta: SparkSession, tmp_path: Path) -> None:
    mode = {"delta_columnMapping_mode": "perhaps"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    path = make_log(str(tmp_path / "t"), struct(field("id", "long")), protocol=protocol, **mode)
    for act in (lambda: rows(delta, path), lambda: save(delta.range(2), path), lambda: alter(delta, path, "ADD COLUMN n int")):
        refused(act, path, InvalidTablePropertyError, "delta.columnMapping.mode is 'perhaps'", "Restore the commit")
