"""What ALTER TABLE says of itself in the history: delta-spark's operation names and parameters (see `lakelog.core.commit_info`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.core.commit_info import Operation, json_text
from lakelog.core.records import JSON
from lakelog.core.schema import ArrayType, MapType, StructField, StructType
from lakelog.core.schema_changes import Position, column_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldColumn:
    """A column as an operation tells it.

    Attributes:
        parent: path of the struct that it is in, empty for a column of the table.
        field: as asked for.
        position: where it was asked to go; None where nothing was said.
    """

    parent: tuple[str, ...]
    field: StructField
    position: Position | None = None


def set_properties(properties: Mapping[str, str]) -> Operation:
    """``SET TBLPROPERTIES``."""
    return Operation(name="SET TBLPROPERTIES", parameters={"properties": json_text(dict(properties))})


def unset_properties(keys: Sequence[str]) -> Operation:
    """``UNSET TBLPROPERTIES``. Spark does not hand on whether IF EXISTS was said."""
    return Operation(name="UNSET TBLPROPERTIES", parameters={"properties": json_text(list(keys)), "ifExists": True})


def add_columns(columns: Sequence[ToldColumn]) -> Operation:
    """``ADD COLUMNS``."""
    told: list[JSON] = [{"column": _column(c), **({} if c.position is None else {"position": str(c.position)})} for c in columns]
    return Operation(name="ADD COLUMNS", parameters={"columns": json_text(told)})


def drop_columns(paths: Sequence[Sequence[str]]) -> Operation:
    """``DROP COLUMNS``."""
    return Operation(name="DROP COLUMNS", parameters={"columns": json_text([column_text(path) for path in paths])})


def rename_column(old: Sequence[str], new: Sequence[str]) -> Operation:
    """``RENAME COLUMN``."""
    return Operation(name="RENAME COLUMN", parameters={"oldColumnPath": column_text(old), "newColumnPath": column_text(new)})


def change_columns(columns: Sequence[ToldColumn]) -> Operation:
    """``CHANGE COLUMN``, or ``CHANGE COLUMNS`` for several."""
    told = [(_column(c), {} if c.position is None else {"position": str(c.position)}) for c in columns]
    if len(told) == 1:
        column, position = told[0]
        return Operation(name="CHANGE COLUMN", parameters={"column": json_text(column), **position})
    return Operation(name="CHANGE COLUMNS", parameters={"columns": json_text([{**column, **position} for column, position in told])})


def replace_columns(schema: StructType) -> Operation:
    """``REPLACE COLUMNS``."""
    told: list[JSON] = [_column(ToldColumn(parent=(), field=field)) for field in schema.fields]
    return Operation(name="REPLACE COLUMNS", parameters={"columns": json_text(told)})


def add_constraint(name: str, expression: str) -> Operation:
    """``ADD CONSTRAINT``."""
    return Operation(name="ADD CONSTRAINT", parameters={"name": name, "expr": expression})


def drop_constraint(name: str, expression: str | None) -> Operation:
    """``DROP CONSTRAINT``.

    Args:
        expression: of the constraint that was dropped; None where there was none.
    """
    told = {"name": name, "existed": "false"} if expression is None else {"name": name, "expr": expression, "existed": "true"}
    return Operation(name="DROP CONSTRAINT", parameters=dict(told))


def cluster_by(old: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> Operation:
    """``CLUSTER BY``."""
    before, after = (",".join(column_text(path) for path in paths) for paths in (old, new))
    return Operation(name="CLUSTER BY", parameters={"oldClusteringColumns": before, "newClusteringColumns": after})


def _column(column: ToldColumn) -> dict[str, JSON]:
    field = column.field
    match field.type:
        case StructType():
            kind = "struct"
        case ArrayType():
            kind = "array"
        case MapType():
            kind = "map"
        case plain:
            kind = str(plain)
    return {"name": column_text((*column.parent, field.name)), "type": kind, "nullable": field.nullable, "metadata": dict(field.metadata)}
