"""A frame in the shape of the table it goes to: columns by name, in the table's order and types, missing ones null at any depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType
from lakelog.core.schema_compare import (
    ArrayColumn,
    CastColumn,
    ColumnPlan,
    CopyColumn,
    MapColumn,
    NullColumn,
    StructColumn,
)

NOT_NULL_VIOLATED = "lakelog: NOT NULL violated: "

_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def aligned(frame: DataFrame, given: StructType, schema: StructType, plans: Sequence[ColumnPlan]) -> DataFrame:
    """The frame with exactly the table's columns; the frame itself where it has them already, for each column costs a trip to the JVM.

    A null in a field that is NOT NULL, also inside structs, makes the job fail with a message that starts with `NOT_NULL_VIOLATED`.

    Args:
        given: the frame's schema.
        schema: the table's.
        plans: how each of the table's columns is made, in its order.
    """
    as_it_is = given.names == schema.names and all(isinstance(plan, CopyColumn) and _never_violated(plan.field) for plan in plans)
    if as_it_is:
        return frame
    built = [_built(plan, F.lit(None) if plan.source is None else column(plan.source)) for plan in plans]
    checked = [_checked(value, field) for value, field in zip(built, schema.fields, strict=True)]
    return frame.select(*(value.alias(field.name) for value, field in zip(checked, schema.fields, strict=True)))


def column(name: str) -> Column:
    """A top-level column by its exact name, dots and backticks included."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A name in backticks, as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def _checked(value: Column, field: StructField) -> Column:
    checked: Column | None = None
    for path, violated in _violations(value, field, field.name):
        failure = F.raise_error(F.lit(NOT_NULL_VIOLATED + path))
        checked = F.when(violated, failure) if checked is None else checked.when(violated, failure)
    return value if checked is None else checked.otherwise(value)


def _never_violated(field: StructField) -> bool:
    parts = field.type.fields if isinstance(field.type, StructType) else ()
    return field.nullable and all(_never_violated(part) for part in parts)


def _violations(value: Column, field: StructField, path: str) -> Iterator[tuple[str, Column]]:
    if not field.nullable:
        yield path, value.isNull()
    if isinstance(field.type, StructType):
        for part in field.type.fields:
            for inner, violated in _violations(value.getField(part.name), part, f"{path}.{part.name}"):
                yield inner, value.isNotNull() & violated


def _built(plan: ColumnPlan, value: Column) -> Column:
    match plan:
        case CopyColumn():
            return value
        case CastColumn():
            return value.cast(sql_type(plan.field.type))
        case NullColumn():
            return F.lit(None).cast(sql_type(plan.field.type))
        case StructColumn():
            return F.when(value.isNotNull(), F.struct(*(_part(value, child).alias(child.field.name) for child in plan.children)))
        case ArrayColumn():
            return F.transform(value, lambda item: _built(plan.element, item))
        case MapColumn():
            keyed = F.transform_keys(value, lambda key, _: _built(plan.key, key))
            return F.transform_values(keyed, lambda _, item: _built(plan.value, item))


def _part(value: Column, child: ColumnPlan) -> Column:
    return _built(child, F.lit(None) if child.source is None else value.getField(child.source))


def sql_type(data_type: DataType) -> str:
    """A type as Spark's SQL writes it."""
    if isinstance(data_type, StructType):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{sql_type(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{sql_type(data_type.key)},{sql_type(data_type.value)}>"
    return _SQL_NAMES.get(str(data_type), str(data_type))
