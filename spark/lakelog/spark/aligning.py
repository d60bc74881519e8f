"""A row in the shape of the table it goes to: columns by name, in the table's order and types, missing ones null or their default.

Everything here is SQL text, which the JVM takes in one trip (`jvm.select_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakelog.core.constraints import Length, Path, quoted
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType
from lakelog.core.schema_compare import (
    ArrayColumn,
    CastColumn,
    ColumnPlan,
    CopyColumn,
    DefaultColumn,
    GeneratedColumn,
    IdentityColumn,
    MapColumn,
    NullColumn,
    StructColumn,
)
from lakelog.spark.expressions import sql_type


@dataclass(frozen=True, slots=True)
class Computed:
    """A column of a projection: an expression, or without one the column of the source's name below it."""

    name: str
    source: str
    text: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """As StoredExpressions.select takes it."""
        return {"name": self.name, "source": self.source, "text": self.text}


def aligned(plan: ColumnPlan) -> Computed:
    """A top-level column from the data's columns; not one that is generated and that the data lacks, nor an identity."""
    if isinstance(plan, GeneratedColumn) and plan.given is not None:
        return aligned(plan.given)
    name = plan.field.name
    if isinstance(plan, CopyColumn):
        return Computed(name, plan.source)
    return Computed(name, name, _built(plan, "" if plan.source is None else quoted(plan.source), 0))


def computed(expression: str, field: StructField) -> str:
    """An expression that the table keeps, cast to a field's type. On lines of its own, for it may end in a comment."""
    return f"CAST((\n{expression}\n) AS {sql_type(field.type)})"


def padded(field: StructField, lengths: Mapping[Path, Length]) -> str | None:
    """A column with each char(n) in it padded with spaces, and spaces beyond the length of a char or a varchar cut off, as Spark does on
    its own tables; None where it holds no such string. What is too long still stays as it is."""
    return _padded(field.type, (field.name,), quoted(field.name), lengths)


def column(name: str) -> Column:
    """A top-level column by its exact name, dots and backticks included."""
    return F.col(quoted(name))


def _built(plan: ColumnPlan, value: str, depth: int) -> str:
    match plan:
        case CopyColumn():
            return value
        case CastColumn():
            return f"CAST({value} AS {sql_type(plan.field.type)})"
        case NullColumn():
            return f"CAST(NULL AS {sql_type(plan.field.type)})"
        case DefaultColumn():
            return computed(plan.expression, plan.field)
        case StructColumn():
            return f"IF({value} IS NULL, NULL, {_struct([(_part(value, child, depth), child.field.name) for child in plan.children])})"
        case ArrayColumn():
            item = f"lakelog_item_{depth}"
            return f"transform({value}, {item} -> {_built(plan.element, item, depth + 1)})"
        case MapColumn():
            key, item = f"lakelog_key_{depth}", f"lakelog_item_{depth}"
            if not isinstance(plan.key, CopyColumn):
                value = f"transform_keys({value}, ({key}, {item}) -> {_built(plan.key, key, depth + 1)})"
            return f"transform_values({value}, ({key}, {item}) -> {_built(plan.value, item, depth + 1)})"
        case GeneratedColumn() | IdentityColumn():
            raise ValueError(f"column {plan.field.name} is computed, not built from the data")


def _part(value: str, child: ColumnPlan, depth: int) -> str:
    return _built(child, "" if child.source is None else f"{value}.{quoted(child.source)}", depth)


def _struct(parts: Sequence[tuple[str, str]]) -> str:
    return f"STRUCT({', '.join(f'{text} AS {quoted(name)}' for text, name in parts)})"


def _padded(data_type: DataType, path: Path, value: str, lengths: Mapping[Path, Length]) -> str | None:
    length = lengths.get(path)
    if length is not None:
        limit = length.limit
        if length.fixed:
            return f"IF(length(rtrim({value})) <= {limit}, rpad({value}, {limit}, ' '), {value})"
        return f"IF(length({value}) > {limit} AND length(rtrim({value})) <= {limit}, substring({value}, 1, {limit}), {value})"
    if not any(path == other[: len(path)] for other in lengths):
        return None
    if isinstance(data_type, StructType):
        names = [(f, f"{value}.{quoted(f.name)}") for f in data_type.fields]
        parts = [(_padded(f.type, (*path, f.name), text, lengths) or text, f.name) for f, text in names]
        return f"IF({value} IS NULL, NULL, {_struct(parts)})"
    key, item = f"lakelog_key_{len(path)}", f"lakelog_item_{len(path)}"
    if isinstance(data_type, ArrayType):
        return f"transform({value}, {item} -> {_padded(data_type.element, (*path, 'element'), item, lengths)})"
    assert isinstance(data_type, MapType)
    keyed, valued = (_padded(t, (*path, n), p, lengths) for t, n, p in ((data_type.key, "key", key), (data_type.value, "value", item)))
    if keyed is not None:
        value = f"transform_keys({value}, ({key}, {item}) -> {keyed})"
    return value if valued is None else f"transform_values({value}, ({key}, {item}) -> {valued})"
