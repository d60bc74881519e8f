"""ALTER TABLE in the history, spelled as delta-spark spells it."""

from __future__ import annotations

import json

from lakelog.core import table_operations as operations
from lakelog.core.schema import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.schema_changes import Position
from lakelog.core.table_operations import ToldColumn

LONG = PrimitiveType("long")


def test_properties() -> None:
    made = operations.set_properties({"a": "b", "delta.appendOnly": "true"})
    assert (made.name, made.parameters) == ("SET TBLPROPERTIES", {"properties": '{"a":"b","delta.appendOnly":"true"}'})
    made = operations.unset_properties(["a", "b"])
    assert (made.name, made.parameters) == ("UNSET TBLPROPERTIES", {"properties": '["a","b"]', "ifExists": True})


def test_columns_that_come_and_go() -> None:
    field = StructField("b.c", LONG, True, {"comment": "x"})
    made = operations.add_columns(
        [ToldColumn(parent=("a",), field=field, position=Position(after="d e")), ToldColumn(parent=(), field=StructField("n", LONG))]
    )
    assert made.name == "ADD COLUMNS"
    assert json.loads(str(made.parameters["columns"])) == [
        {"column": {"name": "a.`b.c`", "type": "long", "nullable": True, "metadata": {"comment": "x"}}, "position": "AFTER `d e`"},
        {"column": {"name": "n", "type": "long", "nullable": True, "metadata": {}}},
    ]
    made = operations.drop_columns([("a",), ("b", "c.d")])
    assert (made.name, made.parameters) == ("DROP COLUMNS", {"columns": '["a","b.`c.d`"]'})
    made = operations.rename_column(("a", "b"), ("a", "c"))
    assert (made.name, made.parameters) == ("RENAME COLUMN", {"oldColumnPath": "a.b", "newColumnPath": "a.c"})


def test_types_are_told_by_their_kind() -> None:
    kinds = {"s": StructType(), "a": ArrayType(LONG), "m": MapType(LONG, LONG), "d": DecimalType(9, 2), "l": LONG}
    made = operations.replace_columns(StructType(tuple(StructField(name, kind) for name, kind in kinds.items())))
    assert made.name == "REPLACE COLUMNS"
    assert [each["type"] for each in json.loads(str(made.parameters["columns"]))] == ["struct", "array", "map", "decimal(9,2)", "long"]


def test_one_column_or_several_that_change() -> None:
    one = ToldColumn(parent=(), field=StructField("a", LONG, False), position=Position(after=None))
    made = operations.change_columns([one])
    assert made.name == "CHANGE COLUMN"
    assert made.parameters == {"column": '{"name":"a","type":"long","nullable":false,"metadata":{}}', "position": "FIRST"}
    made = operations.change_columns([one, ToldColumn(parent=("x",), field=StructField("b", LONG))])
    assert made.name == "CHANGE COLUMNS"
    assert json.loads(str(made.parameters["columns"])) == [
        {"name": "a", "type": "long", "nullable": False, "metadata": {}, "position": "FIRST"},
        {"name": "x.b", "type": "long", "nullable": True, "metadata": {}},
    ]


def test_constraints_and_clustering() -> None:
    assert operations.add_constraint("c", "a > 0").parameters == {"name": "c", "expr": "a > 0"}
    assert operations.drop_constraint("c", "a > 0").parameters == {"name": "c", "expr": "a > 0", "existed": "true"}
    assert operations.drop_constraint("c", None).parameters == {"name": "c", "existed": "false"}
    made = operations.cluster_by([("a",), ("b", "c")], [])
    assert (made.name, made.parameters) == ("CLUSTER BY", {"oldClusteringColumns": "a,b.c", "newClusteringColumns": ""})
