"""What data fits a table, how its columns are built, and which partitionings are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import CorruptLogError, PartitionColumnError, SchemaMismatchError
from lakelog.core.field_metadata import (
    CURRENT_DEFAULT,
    GENERATION_EXPRESSION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
)
from lakelog.core.records import JSON
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.schema_compare import (
    ArrayColumn,
    CastColumn,
    ColumnPlan,
    CopyColumn,
    DefaultColumn,
    DifferenceKind,
    GeneratedColumn,
    IdentityColumn,
    MapColumn,
    NullColumn,
    StructColumn,
    check_partition_columns,
    compared,
)
from tests.core.schema_models import compare_for_write

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


def promising(name: str, kind: DataType, *, nullable: bool = True, **metadata: JSON) -> StructField:
    return StructField(name, kind, nullable, metadata)


def test_fields_that_the_data_lacks_get_their_default_at_any_depth() -> None:
    a = promising("a", LONG, nullable=False, **{CURRENT_DEFAULT: "7"})
    x = promising("x", STRING, **{CURRENT_DEFAULT: "'x'"})
    s = StructField("s", StructType((x, StructField("y", LONG))))
    plans = compare_for_write(StructType((a, s)), struct(S=struct(y=LONG)), table_name="/t")
    assert plans == (
        DefaultColumn(field=a, expression="7"),
        StructColumn(
            field=s, source="S", children=(DefaultColumn(field=x, expression="'x'"), CopyColumn(field=StructField("y", LONG), source="y"))
        ),
    )
    # A value that is given counts, null too.
    assert compare_for_write(StructType((a,)), struct(a=VOID), table_name="/t") == (CastColumn(field=a, source="a"),)


def test_generated_columns_are_computed_or_checked() -> None:
    g = promising("g", LONG, nullable=False, **{GENERATION_EXPRESSION: "a + 1"})
    table = StructType((StructField("a", LONG), g))
    assert compare_for_write(table, struct(a=LONG), table_name="/t")[1] == GeneratedColumn(
        field=g, source=None, given=None, expression="a + 1"
    )
    assert compare_for_write(table, struct(a=LONG, G=INTEGER), table_name="/t")[1] == GeneratedColumn(
        field=g, source="G", given=CastColumn(field=g, source="G"), expression="a + 1"
    )
    assert differences(table, struct(g=STRING)) == ("column g: the table has long, the data has string",)


@pytest.mark.parametrize("explicit", [False, True])
def test_identity_columns_are_made_where_the_data_has_none(explicit: bool) -> None:
    made: dict[str, JSON] = {IDENTITY_START: 1, IDENTITY_STEP: -2, IDENTITY_ALLOWS_EXPLICIT: explicit}
    new, used = promising("i", LONG, nullable=False, **made), promising("j", LONG, **made, **{IDENTITY_HIGH_WATER_MARK: -9})
    table = StructType((StructField("a", LONG), new, used))
    assert compare_for_write(table, struct(a=LONG), table_name="/t")[1:] == (
        IdentityColumn(field=new, start=1, step=-2, high_water_mark=None),
        IdentityColumn(field=used, start=1, step=-2, high_water_mark=-9),
    )
    if explicit:
        assert compare_for_write(table, struct(I=INTEGER, j=LONG), table_name="/t")[1:] == (
            CastColumn(field=new, source="I"),
            CopyColumn(field=used, source="j"),
        )
    else:
        assert differences(table, struct(j=LONG)) == (
            "column j: the table makes its values (GENERATED ALWAYS AS IDENTITY), the data gives them",
        )


@pytest.mark.parametrize("broken", [{IDENTITY_STEP: 0}, {IDENTITY_STEP: None}, {IDENTITY_START: "1"}, {IDENTITY_HIGH_WATER_MARK: "x"}])
def test_an_identity_column_by_which_no_number_follows_is_refused(broken: dict[str, JSON]) -> None:
    table = StructType((StructField("a", LONG), promising("i", LONG, **{IDENTITY_START: 1, IDENTITY_STEP: 1, **broken})))
    with pytest.raises(CorruptLogError, match=r"Delta table /t: the identity column i has .*Restore"):
        compare_for_write(table, struct(a=LONG), table_name="/t")


def test_void_that_the_table_lacks_may_be_dropped() -> None:
    table, data = struct(a=LONG, s=struct(x=LONG)), struct(a=LONG, n=VOID, s=struct(x=LONG, v=VOID))
    assert [d.kind for d in compared(table, data, table_name="/t")[1]] == [DifferenceKind.NEW, DifferenceKind.NEW]
    plans, told = compared(table, data, table_name="/t", drop_void=True)
    assert told == ()
    # The struct cannot be copied: it has a field too many.
    assert isinstance(plans[1], StructColumn)
    assert differences(table, struct(a=LONG, n=LONG)) == ("column n: the table has no such column, the data has long",)


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
