"""Which types widen, and how a table records that they did."""

from __future__ import annotations

import itertools

import pytest

from lakelog.core.errors import CorruptLogError
from lakelog.core.field_metadata import TYPE_CHANGES
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.type_widening import evolves, is_widening, physically_same, record, recorded

NAMES = ("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "boolean", "binary")
PLAIN: dict[str, DataType] = {name: PrimitiveType(name) for name in NAMES}
DECIMALS: dict[str, DataType] = {
    f"decimal({precision},{scale})": DecimalType(precision, scale) for precision, scale in ((10, 0), (10, 2), (12, 2), (12, 4), (20, 0))
}
TYPES = {**PLAIN, **DECIMALS}
LONG, INTEGER, DOUBLE, FLOAT, STRING = (PLAIN[name] for name in ("long", "integer", "double", "float", "string"))

EVOLVES = {
    ("byte", "short"),
    ("byte", "integer"),
    ("byte", "long"),
    ("short", "integer"),
    ("short", "long"),
    ("integer", "long"),
    ("float", "double"),
    ("date", "timestamp_ntz"),
    ("decimal(10,0)", "decimal(12,2)"),
    ("decimal(10,0)", "decimal(20,0)"),
    ("decimal(10,2)", "decimal(12,2)"),
    ("decimal(10,2)", "decimal(12,4)"),
}
BY_HAND = {
    *((small, "double") for small in ("byte", "short", "integer")),
    *((small, wide) for small in ("byte", "short", "integer") for wide in ("decimal(10,0)", "decimal(12,2)", "decimal(20,0)")),
    ("long", "decimal(20,0)"),
}


def test_the_protocols_list_is_all_that_widens() -> None:
    pairs = list(itertools.product(TYPES, repeat=2))
    assert {pair for pair in pairs if evolves(TYPES[pair[0]], TYPES[pair[1]])} == EVOLVES
    assert {pair for pair in pairs if is_widening(TYPES[pair[0]], TYPES[pair[1]])} == EVOLVES | BY_HAND
    assert {pair for pair in pairs if physically_same(TYPES[pair[0]], TYPES[pair[1]])} == {
        ("byte", "short"),
        ("byte", "integer"),
        ("short", "integer"),
    }


def test_structs_arrays_and_maps_do_not_widen_themselves() -> None:
    assert not is_widening(ArrayType(INTEGER), ArrayType(LONG))
    assert not is_widening(StructType((StructField("a", INTEGER),)), StructType((StructField("a", LONG),)))


def test_a_change_is_appended_to_the_fields_history() -> None:
    field = StructField("a", LONG, metadata={"comment": "c", TYPE_CHANGES: [{"fromType": "short", "toType": "integer"}]})
    assert record(field, INTEGER).metadata == {
        "comment": "c",
        TYPE_CHANGES: [{"fromType": "short", "toType": "integer"}, {"fromType": "integer", "toType": "long"}],
    }
    assert record(field, LONG) is field
    assert record(StructField("a", STRING), LONG).metadata == {}


def test_parts_of_arrays_and_maps_are_told_by_their_path() -> None:
    after = StructField("e", MapType(DOUBLE, ArrayType(MapType(STRING, DecimalType(12, 4)))))
    before = MapType(FLOAT, ArrayType(MapType(STRING, DecimalType(10, 2))))
    assert record(after, before).metadata[TYPE_CHANGES] == [
        {"fromType": "float", "toType": "double", "fieldPath": "key"},
        {"fromType": "decimal(10,2)", "toType": "decimal(12,4)", "fieldPath": "value.element.value"},
    ]


def test_fields_of_structs_keep_their_own_history() -> None:
    def schema(kind: DataType) -> StructType:
        inner = StructType((StructField("x", kind), StructField("y", STRING)))
        return StructType((StructField("S", inner), StructField("l", ArrayType(inner)), StructField("m", MapType(inner, inner))))

    before = StructType(tuple(StructField(f.name.lower(), f.type) for f in schema(INTEGER).fields))
    after = recorded(schema(LONG), before)
    change = [{"fromType": "integer", "toType": "long"}]
    s, items, m = (f.type for f in after.fields)
    assert isinstance(items, ArrayType)
    assert isinstance(m, MapType)
    for inner in (s, items.element, m.key, m.value):
        assert isinstance(inner, StructType)
        assert [f.metadata.get(TYPE_CHANGES) for f in inner.fields] == [change, None]
    assert all(f.metadata == {} for f in after.fields)


def test_a_new_field_has_no_history() -> None:
    after = StructType((StructField("a", INTEGER), StructField("b", LONG)))
    assert recorded(after, StructType((StructField("a", INTEGER),))) == after


def test_a_history_that_is_no_list_is_refused() -> None:
    with pytest.raises(CorruptLogError, match=r"column a has .*nonsense.* as delta.typeChanges.*Restore"):
        record(StructField("a", LONG, metadata={TYPE_CHANGES: "nonsense"}), INTEGER)
