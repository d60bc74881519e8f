"""What data fits a table, how its columns are built, and which partitionings are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import PartitionColumnError, SchemaMismatchError
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.schema_compare import (
    ArrayColumn,
    CastColumn,
    ColumnPlan,
    CopyColumn,
    MapColumn,
    NullColumn,
    StructColumn,
    check_partition_columns,
    check_same_partitioning,
    compare_for_write,
)

LONG, INTEGER, STRING, VOID = (PrimitiveType(n) for n in ("long", "integer", "string", "void"))


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


def differences(table: StructType, data: StructType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        compare_for_write(table, data, table_name="/t")
    assert all(f"\n  - {one}\n" in str(caught.value) for one in caught.value.differences)
    assert "/t" in str(caught.value)
    return caught.value.differences


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    table = struct(a=LONG, b=STRING, c=INTEGER)
    plans = compare_for_write(table, struct(B=STRING, A=INTEGER), table_name="/t")
    a, b, c = table.fields
    assert plans == (CastColumn(field=a, source="A"), CopyColumn(field=b, source="B"), NullColumn(field=c))


def test_nested_fields_are_filled_and_widened() -> None:
    table = struct(s=struct(x=LONG, y=STRING), l=ArrayType(LONG), m=MapType(STRING, LONG))
    data = struct(s=struct(X=INTEGER), l=ArrayType(INTEGER), m=MapType(STRING, INTEGER))
    s, items, m = compare_for_write(table, data, table_name="/t")
    x, y = StructField("x", LONG), StructField("y", STRING)
    assert isinstance(s, StructColumn)
    assert s.children == (CastColumn(field=x, source="X"), NullColumn(field=y))
    assert isinstance(items, ArrayColumn)
    assert isinstance(items.element, CastColumn)
    assert isinstance(m, MapColumn)
    assert (type(m.key), type(m.value)) == (CopyColumn, CastColumn)


def test_nested_types_that_differ_in_nullability_alone_are_copied() -> None:
    table = struct(l=ArrayType(struct(x=LONG), False))
    (plan,) = compare_for_write(table, struct(l=ArrayType(struct(x=LONG), True)), table_name="/t")
    assert isinstance(plan, CopyColumn)


def test_every_difference_is_told() -> None:
    table = StructType((StructField("x", INTEGER), StructField("need", LONG, nullable=False), StructField("s", struct(i=INTEGER))))
    assert differences(table, struct(x=STRING, more=LONG, s=struct(i=STRING, j=LONG))) == (
        "column more: the table has no such column, the data has long",
        "column x: the table has integer, the data has string",
        "column need: the table has long NOT NULL, the data has no such column",
        "column s.j: the table has no such column, the data has long",
        "column s.i: the table has integer, the data has string",
    )


def test_data_columns_that_differ_by_case_alone_are_refused() -> None:
    (one,) = differences(struct(a=LONG), struct(a=LONG, A=LONG))
    assert "but for case" in one


@pytest.mark.parametrize(
    ("wanted", "given_type", "fits"),
    [
        (LONG, INTEGER, True),
        (INTEGER, LONG, False),
        (PrimitiveType("short"), PrimitiveType("byte"), True),
        (PrimitiveType("double"), PrimitiveType("float"), True),
        (PrimitiveType("double"), LONG, False),
        (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz"), False),
        (STRING, LONG, False),
        (DecimalType(10, 2), DecimalType(8, 1), True),
        (DecimalType(10, 2), DecimalType(9, 0), False),
        (DecimalType(10, 2), DecimalType(10, 3), False),
        (DecimalType(10, 0), INTEGER, True),
        (DecimalType(9, 0), INTEGER, False),
        (struct(a=LONG), VOID, True),
        (ArrayType(LONG), LONG, False),
    ],
)
def test_types_widen_only_where_nothing_is_lost(wanted: DataType, given_type: DataType, fits: bool) -> None:
    table, data = struct(a=wanted), struct(a=given_type)
    if fits:
        assert compare_for_write(table, data, table_name="/t") == (CastColumn(field=table.fields[0], source="a"),)
    else:
        assert differences(table, data) == (f"column a: the table has {wanted}, the data has {given_type}",)


_plain = st.sampled_from(["string", "long", "date", "double"]).map(PrimitiveType) | st.just(DecimalType(10, 2))
_types = st.recursive(
    _plain,
    lambda inner: (
        inner.map(ArrayType)
        | st.builds(MapType, inner, inner)
        | st.dictionaries(st.sampled_from("abcd"), inner, min_size=1).map(lambda fields: struct(**fields))
    ),
    max_leaves=8,
)
_schemas = st.dictionaries(st.sampled_from("uvwxyz"), _types, min_size=1).map(lambda fields: struct(**fields))


@given(_schemas, st.permutations("uvwxyz"))
def test_a_table_takes_its_own_columns_in_any_order(table: StructType, order: list[str]) -> None:
    shuffled = StructType(tuple(sorted(table.fields, key=lambda f: order.index(f.name))))
    plans = compare_for_write(table, shuffled, table_name="/t")
    assert plans == tuple(CopyColumn(field=f, source=f.name) for f in table.fields)


@given(_schemas, _schemas)
def test_the_plans_follow_the_table_or_each_difference_names_a_column(table: StructType, data: StructType) -> None:
    told: tuple[str, ...] = ()
    plans: tuple[ColumnPlan, ...] | None
    try:
        plans = compare_for_write(table, data, table_name="/t")
    except SchemaMismatchError as error:
        told, plans = error.differences, None
    if plans is None:
        assert told
        assert all(d.startswith("column ") for d in told)
    else:
        assert tuple(p.field for p in plans) == table.fields
        assert set(data.names) <= set(table.names)


def test_partition_columns_are_spelled_as_the_schema_spells_them() -> None:
    schema = struct(Year=INTEGER, v=LONG)
    assert check_partition_columns(schema, ["year"], table_name="/t") == ("Year",)
    assert check_partition_columns(schema, [], table_name="/t") == ()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["w"], "no such column. Partition by some of: a, l, m"),
        (["a", "A"], "given twice"),
        (["l"], "array<long>"),
        (["m"], "void"),
    ],
)
def test_partition_columns_that_cannot_partition_are_refused(columns: list[str], told: str) -> None:
    with pytest.raises(PartitionColumnError, match="Delta table /t: ") as caught:
        check_partition_columns(struct(a=LONG, l=ArrayType(LONG), m=VOID), columns, table_name="/t")
    assert told in str(caught.value)


def test_a_table_of_partition_columns_alone_is_refused() -> None:
    with pytest.raises(PartitionColumnError, match="all columns"):
        check_partition_columns(struct(a=LONG, b=LONG), ["b", "a"], table_name="/t")


def test_the_same_partitioning_is_told_by_name_but_for_case() -> None:
    assert check_same_partitioning(["Year", "m"], ["year", "M"], table_name="/t") == ("Year", "m")
    with pytest.raises(PartitionColumnError, match=r"\(m, Year\).*\(Year, m\)"):
        check_same_partitioning(["Year", "m"], ["m", "Year"], table_name="/t")
