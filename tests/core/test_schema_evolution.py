"""What mergeSchema makes of a table's schema and data's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from lakelog.core.errors import UnsupportedTypeError
from lakelog.core.field_metadata import COMMENT, GENERATION_EXPRESSION, PHYSICAL_NAME
from lakelog.core.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_creatable,
    nullable_schema,
)
from lakelog.core.schema_compare import DifferenceKind, StructColumn, compared
from lakelog.core.schema_evolution import VOID, merged, untyped_fields
from tests.core.schema_models import random_schema

BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, STRING = (
    PrimitiveType(n) for n in ("byte", "short", "integer", "long", "float", "double", "string")
)


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


def test_new_columns_come_last_in_the_datas_order() -> None:
    table = struct(name=STRING, age=INTEGER)
    assert merged(table, struct(z=LONG, NAME=STRING, address=STRING), widen=False) == struct(
        name=STRING, age=INTEGER, z=LONG, address=STRING
    )


def test_new_fields_merge_inside_structs_arrays_and_maps() -> None:
    table = struct(s=struct(x=LONG), l=ArrayType(struct(x=LONG)), m=MapType(struct(x=LONG), ArrayType(struct(x=LONG))))
    more = struct(Y=STRING, X=LONG)
    both = struct(x=LONG, Y=STRING)
    data = struct(M=MapType(more, ArrayType(more)), L=ArrayType(more), S=more)
    assert merged(table, data, widen=False) == struct(s=both, l=ArrayType(both), m=MapType(both, ArrayType(both)))


def test_the_tables_nullability_and_metadata_stay_and_new_columns_are_nullable() -> None:
    table = StructType((StructField("a", INTEGER, nullable=False, metadata={GENERATION_EXPRESSION: "1"}),))
    data = StructType(
        (
            StructField("a", INTEGER, metadata={COMMENT: "the data's"}),
            StructField(
                "s",
                StructType((StructField("x", ArrayType(LONG, contains_null=False), nullable=False),)),
                nullable=False,
                metadata={COMMENT: "new", PHYSICAL_NAME: "elsewhere", GENERATION_EXPRESSION: "2"},
            ),
        )
    )
    assert merged(table, data, widen=False) == StructType(
        (*table.fields, StructField("s", struct(x=ArrayType(LONG)), metadata={COMMENT: "new"}))
    )


def test_nothing_new_is_the_same_object() -> None:
    table = struct(a=LONG, s=struct(x=LONG))
    assert merged(table, struct(S=struct(X=LONG)), widen=True) is table
    assert merged(table, table, widen=False) is table


@pytest.mark.parametrize(
    ("before", "data", "after"),
    [
        (BYTE, SHORT, SHORT),
        (BYTE, INTEGER, INTEGER),
        (SHORT, INTEGER, INTEGER),
        (SHORT, BYTE, SHORT),
        (INTEGER, BYTE, INTEGER),
        (INTEGER, LONG, INTEGER),
        (FLOAT, DOUBLE, FLOAT),
        (DecimalType(10, 2), DecimalType(12, 2), DecimalType(10, 2)),
        (INTEGER, STRING, INTEGER),
        (INTEGER, VOID, INTEGER),
        (VOID, STRING, STRING),
        (VOID, VOID, VOID),
        (ArrayType(SHORT), ArrayType(INTEGER), ArrayType(INTEGER)),
        (MapType(BYTE, SHORT), MapType(SHORT, INTEGER), MapType(SHORT, INTEGER)),
        (ArrayType(INTEGER), ArrayType(VOID), ArrayType(INTEGER)),
    ],
)
def test_types_merge_where_every_reader_reads_old_files_so(before: DataType, data: DataType, after: DataType) -> None:
    assert merged(struct(a=before), struct(a=data), widen=False) == struct(a=after)


@pytest.mark.parametrize(
    ("before", "data", "after"),
    [
        (INTEGER, LONG, LONG),
        (LONG, INTEGER, LONG),
        (FLOAT, DOUBLE, DOUBLE),
        (INTEGER, DOUBLE, INTEGER),
        (DecimalType(10, 2), DecimalType(12, 4), DecimalType(12, 4)),
        (MapType(STRING, ArrayType(INTEGER)), MapType(STRING, ArrayType(LONG)), MapType(STRING, ArrayType(LONG))),
    ],
)
def test_type_widening_lets_more_types_merge(before: DataType, data: DataType, after: DataType) -> None:
    assert merged(struct(a=before), struct(a=data), widen=True) == struct(a=after)


def test_new_columns_without_a_type_are_left_out_and_told() -> None:
    table = struct(a=LONG, s=struct(x=LONG), l=ArrayType(struct(x=LONG)))
    data = struct(
        b=VOID, a=VOID, s=struct(y=VOID, x=VOID), l=ArrayType(struct(w=VOID)), n=struct(p=LONG, q=VOID), k=ArrayType(struct(p=LONG, q=VOID))
    )
    schema = merged(table, data, widen=False)
    assert schema == StructType((*table.fields, *struct(n=struct(p=LONG), k=ArrayType(struct(p=LONG))).fields))
    assert untyped_fields(table, data) == ("b", "s.y", "l.element.w", "n.q", "k.element.q")
    plans, differences = compared(schema, data, table_name="/t", drop_void=True)
    assert differences == ()
    # A struct is rebuilt without the field, not copied with it.
    (n,) = (plan for plan in plans if plan.field.name == "n")
    assert isinstance(n, StructColumn)
    assert [child.field.name for child in n.children] == ["p"]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (ArrayType(VOID), "new.element"),
        (MapType(VOID, LONG), "new.key"),
        (MapType(STRING, struct(x=VOID)), "new.value.x"),
        (struct(x=VOID), "new.x"),
    ],
)
def test_what_holds_nothing_else_is_refused_by_name(kind: DataType, path: str) -> None:
    schema = merged(struct(a=LONG), struct(new=kind), widen=False)
    with pytest.raises(UnsupportedTypeError, match=f"Delta table /t: column {path} is of type void.* cast it to the type it is to have"):
        check_creatable(schema, table="/t")


_schemas = st.integers(0, 2**40).map(random_schema)


def _names(data_type: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    match data_type:
        case StructType(fields):
            for field in fields:
                yield (*path, field.name)
                yield from _names(field.type, (*path, field.name))
        case ArrayType(element):
            yield from _names(element, (*path, "element"))
        case MapType(key, value):
            yield from _names(key, (*path, "key"))
            yield from _names(value, (*path, "value"))
        case _:
            return


@given(_schemas, _schemas, st.booleans())
def test_a_merged_schema_has_all_of_the_tables_fields_in_their_order(table: StructType, data: StructType, widen: bool) -> None:
    both = merged(table, data, widen=widen)
    assert both.names[: len(table.fields)] == table.names
    assert [f.nullable for f in both.fields][: len(table.fields)] == [f.nullable for f in table.fields]
    # New names come behind, and only the data's.
    kept = list(_names(table))
    assert [path for path in _names(both) if path in set(kept)] == kept
    assert {n.lower() for n in both.names} == {n.lower() for n in (*table.names, *data.names)}


@given(_schemas, _schemas, st.booleans())
def test_merging_again_changes_nothing(table: StructType, data: StructType, widen: bool) -> None:
    both = merged(table, data, widen=widen)
    assert merged(both, data, widen=widen) is both
    assert merged(both, table, widen=widen) is both


@given(_schemas, _schemas, st.booleans())
def test_what_does_not_conflict_fits_the_merged_schema(table: StructType, data: StructType, widen: bool) -> None:
    table = nullable_schema(table)
    both = merged(table, data, widen=widen)
    _, differences = compared(both, data, table_name="/t")
    conflicts = [difference.text for difference in differences]
    assert all("the table has no such column" not in text for text in conflicts)
    # Merging makes no conflict.
    told = [difference.text for difference in compared(table, data, table_name="/t")[1] if difference.kind is not DifferenceKind.NEW]
    assert set(conflicts) <= set(told)
    # The table's own rows go into the merged schema whatever the data was.
    assert compared(both, table, table_name="/t")[1] == ()
    event("fits" if not conflicts else "conflicts")


@given(_schemas, _schemas)
def test_a_table_without_columns_takes_the_datas_schema(data: StructType, other: StructType) -> None:
    assert merged(StructType(), data, widen=False) == nullable_schema(data)
    assert untyped_fields(other, data) == ()
