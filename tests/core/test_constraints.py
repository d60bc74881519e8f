"""What a table demands of its rows, as SQL conditions."""

from __future__ import annotations

import json

import pytest

from lakelog.core.constraints import (
    Length,
    check_constraints,
    constraints_of,
    declared_lengths,
    generated_constraint,
    length_constraints,
    not_null_constraints,
)
from lakelog.core.errors import CorruptLogError
from lakelog.core.field_metadata import CHAR_VARCHAR_TYPE, INVARIANTS
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def invariant(sql: str) -> str:
    return json.dumps({"expression": {"expression": sql}})


def test_not_null_at_any_depth_speaks_where_the_field_is() -> None:
    inner = StructType((StructField("x", LONG, False), StructField("y", LONG)))
    schema = StructType(
        (
            StructField("a", LONG, False),
            StructField("s", inner),
            StructField("l", ArrayType(inner, False)),
            StructField("m", MapType(STRING, ArrayType(LONG, False), False)),
            StructField("k", MapType(inner, LONG)),
            StructField("free", ArrayType(StructType((StructField("x", LONG),)))),
        )
    )
    assert {c.name: " ".join(c.expression.split()) for c in not_null_constraints(schema)} == {
        "a": "`a` IS NOT NULL",
        "s.x": "`s` IS NULL OR (`s`.`x` IS NOT NULL)",
        "l.element": "`l` IS NULL OR forall(`l`, lakelog_item_1 -> lakelog_item_1 IS NOT NULL)",
        "l.element.x": "`l` IS NULL OR forall(`l`, lakelog_item_2 -> lakelog_item_2 IS NULL OR (lakelog_item_2.`x` IS NOT NULL))",
        "m.value": "`m` IS NULL OR forall(map_values(`m`), lakelog_item_1 -> lakelog_item_1 IS NOT NULL)",
        "m.value.element": "`m` IS NULL OR forall(map_values(`m`), lakelog_item_2 -> "
        "lakelog_item_2 IS NULL OR forall(lakelog_item_2, lakelog_item_1 -> lakelog_item_1 IS NOT NULL))",
        "k.key.x": "`k` IS NULL OR forall(map_keys(`k`), lakelog_item_2 -> lakelog_item_2 IS NULL OR (lakelog_item_2.`x` IS NOT NULL))",
    }
    assert [c.path for c in not_null_constraints(schema)][:3] == [("a",), ("s", "x"), ("l", "element")]
    assert {c.columns for c in not_null_constraints(schema)} == {("a",), ("s",), ("l",), ("m",), ("k",)}


def test_names_are_quoted_wherever_they_come_from() -> None:
    field = StructField("a.b`c", StructType((StructField("x y", LONG, False),)), False)
    top, nested = not_null_constraints(StructType((field,)))
    assert top.expression == "`a.b``c` IS NOT NULL"
    assert nested.expression == "`a.b``c` IS NULL OR (`a.b``c`.`x y` IS NOT NULL)"
    assert nested.path == ("a.b`c", "x y")


def test_check_constraints_keep_the_letters_of_their_names() -> None:
    configuration = {"delta.constraints.Positive": "id > 0", "DELTA.CONSTRAINTS.small": "id < 9", "delta.appendOnly": "true"}
    assert check_constraints(configuration) == {"small": "id < 9", "Positive": "id > 0"}


def test_all_that_a_table_demands_in_the_order_of_its_checks() -> None:
    schema = StructType(
        (
            StructField("id", LONG, False, {INVARIANTS: invariant("id > 3")}),
            StructField("c", STRING, True, {CHAR_VARCHAR_TYPE: "char(3)"}),
            StructField("s", StructType((StructField("x", LONG, True, {INVARIANTS: invariant("s.x > id")}),))),
        )
    )
    found = constraints_of({"delta.constraints.pos": "id > 0"}, schema)
    assert [(c.kind, c.name, c.expression) for c in found] == [
        ("not null", "id", "`id` IS NOT NULL"),
        ("length", "c", "`c` IS NULL OR length(`c`) <= 3"),
        ("invariant", "id", "id > 3"),
        ("invariant", "s.x", "s.x > id"),
        ("check", "pos", "id > 0"),
    ]
    assert [c.columns for c in found] == [("id",), ("c",), None, None, None]


@pytest.mark.parametrize("told", ["no json", "{}", '{"expression": "id > 3"}', "null", 7])
def test_an_invariant_that_cannot_be_read_is_named(told: object) -> None:
    schema = StructType((StructField("id", LONG, True, {INVARIANTS: told}),))  # type: ignore[dict-item]
    with pytest.raises(CorruptLogError, match=r"invariant of column id .*Restore the log"):
        constraints_of({}, schema)


@pytest.mark.parametrize(
    ("data_type", "declared", "expected"),
    [
        (STRING, "char(3)", {("c",): Length(True, 3)}),
        (STRING, "varchar(10)", {("c",): Length(False, 10)}),
        (STRING, "string", {}),
        (ArrayType(STRING), "array<varchar(5)>", {("c", "element"): Length(False, 5)}),
        (MapType(STRING, STRING), "map<char(1),varchar(2)>", {("c", "key"): Length(True, 1), ("c", "value"): Length(False, 2)}),
        (
            StructType((StructField("d", DecimalType(10, 2)), StructField("a b,c:d", STRING), StructField("q`t", ArrayType(STRING)))),
            "struct<d:decimal(10,2),a b,c:d:char(3),`q``t`:array<varchar(4)>>",
            {("c", "a b,c:d"): Length(True, 3), ("c", "q`t", "element"): Length(False, 4)},
        ),
    ],
)
def test_declared_lengths_are_found_by_their_paths(data_type: DataType, declared: str, expected: object) -> None:
    schema = StructType((StructField("c", data_type, True, {CHAR_VARCHAR_TYPE: declared}), StructField("plain", STRING)))
    assert declared_lengths(schema) == expected


@pytest.mark.parametrize(
    ("data_type", "declared"), [(STRING, "char(3"), (ArrayType(STRING), "char(3)"), (STRING, ""), (STRING, "char(3) x")]
)
def test_a_declaration_that_is_not_of_the_type_is_named(data_type: DataType, declared: str) -> None:
    with pytest.raises(CorruptLogError, match=r"Column c is of type .*Restore the log"):
        length_constraints(StructType((StructField("c", data_type, True, {CHAR_VARCHAR_TYPE: declared}),)))


def test_given_values_of_a_generated_column_are_compared_nulls_too() -> None:
    found = generated_constraint(StructField("twice", LONG), "id * 2 -- twice", "bigint")
    assert (found.kind, found.name, found.expression) == ("generated", "twice", "`twice` <=> CAST((\nid * 2 -- twice\n) AS bigint)")


def test_lengths_print_as_sql() -> None:
    assert [str(Length(True, 3)), str(Length(False, 4))] == ["char(3)", "varchar(4)"]
