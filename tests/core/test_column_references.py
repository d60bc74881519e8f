"""Which columns the expressions of a table read."""

from __future__ import annotations

import json

import pytest

from lakelog.core.column_references import Expression, expressions, mentioned
from lakelog.core.field_metadata import GENERATION_EXPRESSION, INVARIANTS
from lakelog.core.schema import PrimitiveType, StructField, StructType

LONG = PrimitiveType("long")


@pytest.mark.parametrize(
    ("expression", "columns", "others"),
    [
        ("a > 0", {("a",)}, ()),
        ("s . X > 0", {("s", "x")}, [("x",), ("s",)]),
        ("arr[i].x = y", {("arr",), ("i",), ("y",)}, [("x",)]),
        ("f(x).g IS NULL", {("x",)}, [("g",), ("f",)]),
        ("year (d) = 1", {("d",)}, [("year",)]),
        ("`a b`.`c``d` = `e.f`", {("a b", "c`d"), ("e.f",)}, ()),
        ("a = 'b''c' AND d = r'e\\' OR f = 'it\\'s g'", {("a",), ("d",), ("f",)}, [("b",), ("c",), ("e",), ("g",), ("s",)]),
        ("a /* b */ > 0 -- c\n or d", {("a",), ("d",)}, [("b",), ("c",)]),
        ('"q" > 1', {("q",)}, ()),
        ("größe > 0", {("größe",)}, ()),
    ],
)
def test_names_are_read_off_the_text(expression: str, columns: set[tuple[str, ...]], others: list[tuple[str, ...]]) -> None:
    found = mentioned(expression)
    assert columns <= found
    assert not found & set(others)


def test_every_kind_of_expression_is_found() -> None:
    schema = StructType(
        (
            StructField("a", LONG, metadata={INVARIANTS: json.dumps({"expression": {"expression": "a > 3"}})}),
            StructField("g", LONG, metadata={GENERATION_EXPRESSION: "a + 1"}),
        )
    )
    found = expressions(schema, {"delta.constraints.pos": "s.b > 0", "delta.appendOnly": "false"})
    assert {one.what: one.constraint for one in found} == {
        "the CHECK constraint pos (s.b > 0)": "pos",
        "the invariant of column a (a > 3)": None,
        "the generated column g (a + 1)": None,
    }
    assert {one.what for one in found if one.reads(("S", "B"))} == {"the CHECK constraint pos (s.b > 0)"}
    assert {one.what for one in found if one.reads(("a",))} == {"the invariant of column a (a > 3)", "the generated column g (a + 1)"}


def test_reading_a_struct_is_reading_its_fields() -> None:
    whole = Expression(what="", columns=frozenset({("s",)}))
    part = Expression(what="", columns=frozenset({("s", "x")}))
    assert whole.reads(("s", "x"))
    assert whole.reads(("s",), fields=False)
    assert part.reads(("s",))
    assert not part.reads(("s",), fields=False)
    assert not part.reads(("s", "y"))
