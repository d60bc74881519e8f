"""Schema strings to types and back, and what a new table may look like."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import ColumnNotFoundError, CorruptLogError, InvalidSchemaError, UnsupportedTypeError
from lakelog.core.schema import (
    MAX_DEPTH,
    PRIMITIVES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_creatable,
    leaf_columns,
    nullable_schema,
    parse_schema,
    to_arrow,
    walk,
)

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")

metadata = st.dictionaries(
    st.text(max_size=5), st.one_of(st.none(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.lists(st.booleans()))
)


def _decimals() -> st.SearchStrategy[DataType]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


def _structs(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, st.text(min_size=1, max_size=6), types, st.booleans(), metadata)
    return st.lists(fields, max_size=4).map(lambda f: StructType(tuple(f)))


types: st.SearchStrategy[DataType] = st.recursive(
    st.one_of(st.sampled_from(sorted(PRIMITIVES)).map(PrimitiveType), _decimals()),
    lambda inner: st.one_of(st.builds(ArrayType, inner, st.booleans()), st.builds(MapType, inner, inner, st.booleans()), _structs(inner)),
    max_leaves=12,
)


@given(_structs(types))
def test_a_schema_survives_the_round_trip(schema: StructType) -> None:
    assert parse_schema(schema.to_json()) == schema


def test_every_golden_schema_survives_as_json(golden: Path) -> None:
    tables = json.loads((golden / "manifest.json").read_text())["tables"]
    schemas = [schema for table in tables for schema in table.get("schemas", [])]
    assert len(schemas) > 100
    for schema in schemas:
        assert json.loads(parse_schema(json.dumps(schema)).to_json()) == schema


@pytest.mark.parametrize("text", ["", "{", "[]", '"long"', '{"type":"struct"}', '{"type":"struct","fields":[{"type":"long"}]}', "null"])
def test_what_is_no_schema_is_a_damaged_log(text: str) -> None:
    with pytest.raises(CorruptLogError):
        parse_schema(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 10_000])
def test_a_nesting_bomb_is_refused(depth: int) -> None:
    inner = '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth
    with pytest.raises(CorruptLogError):
        parse_schema('{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":' + inner + "}]}")


@pytest.mark.parametrize("name", ["interval day", "geometry(4326)", "decimal(39,1)", "decimal(5,6)", "string collate UNICODE"])
def test_a_type_that_is_not_known_is_named(name: str) -> None:
    text = json.dumps({"type": "struct", "fields": [{"name": "x", "type": name, "nullable": True, "metadata": {}}]})
    with pytest.raises(UnsupportedTypeError) as refused:
        parse_schema(text)
    assert name in str(refused.value)
    assert "column x" in str(refused.value)


def test_find_follows_structs_and_names_what_there_is() -> None:
    schema = StructType((StructField("a", StructType((StructField("b.c", LONG),))), StructField("d", ArrayType(LONG))))
    assert schema.find(("a", "b.c")).type == LONG
    with pytest.raises(ColumnNotFoundError, match="there are: a, d"):
        schema.find(("z",))
    with pytest.raises(ColumnNotFoundError):
        schema.find(("d", "element"))
    with pytest.raises(ColumnNotFoundError):
        schema.find(())


def test_walk_and_leaves() -> None:
    inner = StructType((StructField("x", LONG), StructField("y", ArrayType(StructType((StructField("z", LONG),))))))
    schema = StructType((StructField("s", inner), StructField("m", MapType(STRING, inner))))
    assert [".".join(path) for path, _ in walk(schema)] == [
        "s", "s.x", "s.y", "s.y.element.z", "m", "m.value.x", "m.value.y", "m.value.y.element.z",
    ]  # fmt: skip
    assert [".".join(path) for path, _ in leaf_columns(schema)] == ["s.x", "s.y", "m"]


def test_nullable_at_every_depth() -> None:
    schema = StructType((StructField("a", ArrayType(MapType(STRING, StructType((StructField("b", LONG, False),)), False), False), False),))
    assert "false" not in nullable_schema(schema).to_json()


def _named(*names: str) -> StructType:
    return StructType(tuple(StructField(name, LONG) for name in names))


@pytest.mark.parametrize("character", " ,;{}()\n\t=")
def test_names_that_parquet_readers_refuse(character: str) -> None:
    nested = StructType((StructField("a", ArrayType(_named(f"b{character}"))),))
    for schema in (_named(f"a{character}"), nested):
        with pytest.raises(InvalidSchemaError, match="column mapping"):
            check_creatable(schema, table="/t")


@pytest.mark.parametrize("name", ["a.b", "a-b", "größe", "表", "a`b", "a'b", "50%", "🙂"])
def test_names_that_are_allowed(name: str) -> None:
    check_creatable(_named(name), table="/t")


def test_names_that_differ_by_case_alone() -> None:
    with pytest.raises(InvalidSchemaError, match="'Id' and 'ID'"):
        check_creatable(_named("Id", "ID"), table="/t")


def test_no_column() -> None:
    with pytest.raises(InvalidSchemaError, match="/t"):
        check_creatable(StructType(()), table="/t")


@pytest.mark.parametrize("name", ["void", "variant"])
def test_types_that_cannot_be_written(name: str) -> None:
    schema = StructType((StructField("a", ArrayType(StructType((StructField("b", PrimitiveType(name)),)))),))
    with pytest.raises(UnsupportedTypeError, match=r"a\.element\.b"):
        check_creatable(schema, table="/t")


def test_a_collation_is_not_lost_in_silence() -> None:
    schema = StructType((StructField("s", STRING, True, {"__COLLATIONS": {"s": "icu.UNICODE_CI"}}),))
    assert parse_schema(schema.to_json()) == schema
    with pytest.raises(UnsupportedTypeError, match="column s is a string with a collation"):
        check_creatable(schema, table="/t")


def test_arrow() -> None:
    schema = StructType(
        (
            StructField("t", PrimitiveType("timestamp"), False),
            StructField("n", PrimitiveType("timestamp_ntz")),
            StructField("d", DecimalType(10, 2)),
            StructField("m", MapType(STRING, ArrayType(LONG))),
        )
    )
    arrow = to_arrow(schema)
    assert arrow.field("t") == pa.field("t", pa.timestamp("us", "UTC"), nullable=False)
    assert arrow.field("n").type == pa.timestamp("us")
    assert arrow.field("d").type == pa.decimal128(10, 2)
    assert pa.types.is_map(arrow.field("m").type)
