"""``ALTER TABLE ... REPLACE COLUMNS``: a table's columns as a whole, each with what the table's column of that name carries."""

from __future__ import annotations

from dataclasses import replace

from lakelog.core.errors import SchemaMismatchError, UnsupportedOperationError
from lakelog.core.field_metadata import COMMENT, IDENTITY_START
from lakelog.core.schema import ArrayType, DataType, MapType, StructType
from lakelog.core.schema_changes import (
    ColumnPath,
    check_retyped,
    column_text,
    needs_mapping,
    not_null_columns,
    nothing_there,
    retyped,
)


def replaced(schema: StructType, given: StructType, *, mapped: bool, widen: bool, table: str) -> StructType:
    """``REPLACE COLUMNS``: the columns of ``given`` in its order, each with what the table's column of that name carries.

    Args:
        mapped: whether the table has column mapping, without which no column may be left out.
        widen: whether it has type widening enabled.

    Raises:
        UnsupportedOperationError: a column is left out that must not be, or columns are both left out and added, which may have been
            meant as a rename; the table has an identity column.
        SchemaMismatchError: a type or nullability that old files do not keep to.
    """
    if any(IDENTITY_START in field.metadata for field in schema.fields):
        raise UnsupportedOperationError(
            f"Delta table {table}: REPLACE COLUMNS is not possible with an identity column. Use ADD, DROP and ALTER COLUMN instead."
        )
    return _replaced(schema, given, (), mapped=mapped, widen=widen, table=table)


def _replaced(schema: StructType, given: StructType, path: ColumnPath, *, mapped: bool, widen: bool, table: str) -> StructType:
    known = {field.name.lower(): field for field in schema.fields}
    new = [field.name for field in given.fields if field.name.lower() not in known]
    wanted = {field.name.lower() for field in given.fields}
    gone = [field.name for field in schema.fields if field.name.lower() not in wanted]
    where = f"in {column_text(path)} " if path else ""
    if gone and new:
        raise UnsupportedOperationError(
            f"Delta table {table}: REPLACE COLUMNS {where}leaves out {', '.join(gone)} and adds {', '.join(new)}: it does not say whether "
            "columns are to be renamed. Use RENAME COLUMN, or leave out and add in two statements."
        )
    if gone and not mapped:
        raise UnsupportedOperationError(needs_mapping(table, f"REPLACE COLUMNS {where}without {', '.join(gone)}"))
    fields = []
    for field in given.fields:
        before = known.get(field.name.lower())
        here = (*path, before.name if before else field.name)
        if before is None:
            if strict := not_null_columns(field):
                names = ", ".join(column_text((*path, *inner)) for inner in strict)
                raise UnsupportedOperationError(nothing_there(table, names))
            fields.append(field)
            continue
        if before.nullable and not field.nullable:
            raise SchemaMismatchError(
                f"Delta table {table}: column {column_text(here)} may hold nulls. Use ALTER COLUMN {column_text(here)} SET NOT NULL, which "
                "looks at the rows.",
                differences=(f"{column_text(here)}: nullable -> not null",),
            )
        made = replace(before, nullable=field.nullable)
        if COMMENT in field.metadata:
            made = replace(made, metadata={**made.metadata, COMMENT: field.metadata[COMMENT]})
        inner = _replaced_type(before.type, field.type, here, mapped=mapped, widen=widen, table=table)
        fields.append(retyped(replace(made, type=inner), replace(field, type=inner), here, widen=widen, table=table))
    return StructType(tuple(fields))


def _replaced_type(old: DataType, new: DataType, path: ColumnPath, *, mapped: bool, widen: bool, table: str) -> DataType:
    match old, new:
        case StructType(), StructType():
            return _replaced(old, new, path, mapped=mapped, widen=widen, table=table)
        case ArrayType(element, _), ArrayType(given, _):
            return replace(old, element=_replaced_type(element, given, (*path, "element"), mapped=mapped, widen=widen, table=table))
        case MapType(key, value, _), MapType(new_key, new_value, _):
            return replace(
                old,
                key=_replaced_type(key, new_key, (*path, "key"), mapped=mapped, widen=widen, table=table),
                value=_replaced_type(value, new_value, (*path, "value"), mapped=mapped, widen=widen, table=table),
            )
        case _:
            if old != new:
                check_retyped(old, new, path, widen=widen, table=table)
            return new
