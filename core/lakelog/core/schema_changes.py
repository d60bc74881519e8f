"""ALTER TABLE on a schema: a column added, dropped, renamed, moved or changed, at any depth. Schemas in, schemas out.

A path names a field through structs by their fields' names, through arrays by ``element``, through maps by ``key`` and ``value``. Letter
case does not matter in what is asked; what is answered has the schema's own spelling. What data files hold is never rewritten, so only
changes are let pass under which old files still read right (PROTOCOL.md, "Column Mapping", "Type Widening").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakelog.core.errors import ColumnNotFoundError, InvalidSchemaError, SchemaMismatchError, UnsupportedOperationError
from lakelog.core.field_metadata import CHAR_VARCHAR_TYPE
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, walk
from lakelog.core.statistics import parse_column_names
from lakelog.core.type_widening import is_widening, physically_same

ColumnPath: TypeAlias = tuple[str, ...]

_PARTS = ("element", "key", "value")
_LENGTH = re.compile(r"(char|varchar)\(\s*([0-9]+)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a column goes among its siblings: behind one of them, or first where ``after`` is None."""

    after: str | None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {quoted(self.after)}"


def column_text(path: Sequence[str]) -> str:
    """A path as SQL and the history spell it; a name with a dot is in backticks."""
    return ".".join(f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name for name in path)


def quoted(name: str) -> str:
    """One name as SQL takes it, in backticks where it needs them."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


def resolved(schema: StructType, path: Sequence[str], *, table: str) -> ColumnPath:
    """A path in the schema's own spelling.

    Raises:
        ColumnNotFoundError: there is no such field; names its siblings.
    """
    current: DataType = schema
    found: list[str] = []
    for name in path:
        known = _children(current)
        match = next((child for child in known if child.lower() == name.lower()), None)
        if match is None:
            inside = f" in {column_text(found)}" if found else ""
            raise ColumnNotFoundError(
                f"Delta table {table}: there is no column {column_text(path)}; there are{inside}: {', '.join(known) or 'none'}. "
                "Name one of these."
            )
        found.append(match)
        current = _child(current, match)
    return tuple(found)


def field_at(schema: StructType, path: Sequence[str]) -> StructField:
    """The field at a path as `resolved` gives it. A part of an array or map comes as a field of that name without metadata."""
    current: DataType = schema
    found: StructField | None = None
    for name in path:
        match current:
            case StructType(fields):
                found = next(field for field in fields if field.name == name)
            case ArrayType(element, contains_null):
                found = StructField(name, element, contains_null)
            case MapType(key, value, value_contains_null):
                found = StructField(name, key, False) if name == "key" else StructField(name, value, value_contains_null)
            case _:
                raise ColumnNotFoundError(f"There is no column {column_text(path)}.")
        current = found.type
    if found is None:
        raise ColumnNotFoundError("A column's path has at least one name.")
    return found


def is_part(schema: StructType, path: Sequence[str]) -> bool:
    """Whether a path as `resolved` gives it ends at the element of an array, or at the key or value of a map."""
    return len(path) > 1 and not isinstance(field_at(schema, path[:-1]).type, StructType)


def added(schema: StructType, parent: Sequence[str], field: StructField, position: Position | None, *, table: str) -> StructType:
    """The schema with a new field in the struct at ``parent``, at its end where no position is given.

    Raises:
        ColumnNotFoundError: ``parent``, or what the field is to follow, is not there.
        InvalidSchemaError: ``parent`` is no struct, or has a field of that name already.
    """
    inside = resolved(schema, parent, table=table)
    path = column_text((*inside, field.name))

    def change(struct: StructType) -> StructType:
        if any(f.name.lower() == field.name.lower() for f in struct.fields):
            raise InvalidSchemaError(f"Delta table {table}: there is a column {path} already. Give the new one another name.")
        return _placed(struct, field, position, path, table)

    return _in_struct(schema, inside, change, f"column {path} cannot be added", table)


def dropped(schema: StructType, path: Sequence[str], *, table: str) -> StructType:
    """The schema without a field.

    Raises:
        ColumnNotFoundError: it is not there.
        UnsupportedOperationError: it is the last field of its struct, or a part of an array or map.
    """
    *parent, name = resolved(schema, path, table=table)

    def change(struct: StructType) -> StructType:
        if len(struct.fields) == 1:
            where = f"of {column_text(parent)}" if parent else "of the table"
            raise UnsupportedOperationError(
                f"Delta table {table}: {column_text(path)} is the last column left {where}, which must keep one. "
                + (f"Drop {column_text(parent)} as a whole, or add another field first." if parent else "Add another column first.")
            )
        return StructType(tuple(field for field in struct.fields if field.name != name))

    return _in_struct(schema, parent, change, f"column {column_text(path)} cannot be dropped", table)


def renamed(schema: StructType, path: Sequence[str], name: str, *, table: str) -> StructType:
    """The schema with another name for a field, whose ids and physical name stay.

    Raises:
        ColumnNotFoundError: it is not there.
        InvalidSchemaError: a sibling has the name already.
        UnsupportedOperationError: it is a part of an array or map.
    """
    *parent, old = resolved(schema, path, table=table)

    def change(struct: StructType) -> StructType:
        if any(field.name != old and field.name.lower() == name.lower() for field in struct.fields):
            raise InvalidSchemaError(
                f"Delta table {table}: column {column_text(path)} cannot be renamed to {quoted(name)}, for there is such a column already. "
                "Choose another name."
            )
        return StructType(tuple(replace(field, name=name) if field.name == old else field for field in struct.fields))

    return _in_struct(schema, parent, change, f"column {column_text(path)} cannot be renamed", table)


def moved(schema: StructType, path: Sequence[str], position: Position, *, table: str) -> StructType:
    """The schema with a field at another place among its siblings.

    Raises:
        ColumnNotFoundError: the field, or what it is to follow, is not there.
        UnsupportedOperationError: it is a part of an array or map.
    """
    *parent, name = resolved(schema, path, table=table)

    def change(struct: StructType) -> StructType:
        if position.after is not None and position.after.lower() == name.lower():
            return struct
        field = next(field for field in struct.fields if field.name == name)
        others = StructType(tuple(field for field in struct.fields if field.name != name))
        return _placed(others, field, position, column_text(path), table)

    return _in_struct(schema, parent, change, f"column {column_text(path)} cannot be moved", table)


def changed(schema: StructType, path: Sequence[str], change: Callable[[StructField], StructField]) -> StructType:
    """The schema with the field at a path, as `resolved` gives it, as the function makes it. Of a part of an array or map only the type
    is taken."""
    made = _changed(schema, tuple(path), change)
    assert isinstance(made, StructType)
    return made


def retyped(field: StructField, given: StructField, path: Sequence[str], *, widen: bool, table: str) -> StructField:
    """A field with the type of another one, and with its limit of length for strings.

    Args:
        field: as it is.
        given: carries the new type; of its metadata the declared char or varchar type counts.
        path: for messages.
        widen: whether the table has type widening enabled.

    Raises:
        SchemaMismatchError: old files could not be read as the new type.
    """
    if given.type != field.type:
        check_retyped(field.type, given.type, path, widen=widen, table=table)
    old, new = field.metadata.get(CHAR_VARCHAR_TYPE), given.metadata.get(CHAR_VARCHAR_TYPE)
    if old == new:
        return replace(field, type=given.type)
    if new is not None and not _lengthens(old, new):
        raise SchemaMismatchError(
            f"Delta table {table}: column {column_text(path)} cannot become {new}, for it is {old or field.type} and may hold longer "
            "strings. Give it a length that all of its strings fit.",
            differences=(f"{column_text(path)}: {old or field.type} -> {new}",),
        )
    metadata = {key: value for key, value in field.metadata.items() if key != CHAR_VARCHAR_TYPE}
    return replace(field, type=given.type, metadata=metadata if new is None else {**metadata, CHAR_VARCHAR_TYPE: new})


def check_retyped(old: DataType, new: DataType, path: Sequence[str], *, widen: bool, table: str) -> None:
    """That old files read right under a new type of the column at a path.

    Args:
        widen: whether the table has type widening enabled.

    Raises:
        SchemaMismatchError: they do not, or the types are of structs, arrays or maps, whose parts change one by one.
    """
    name = column_text(path)
    if isinstance(old, StructType | ArrayType | MapType) or isinstance(new, StructType | ArrayType | MapType):
        raise SchemaMismatchError(
            f"Delta table {table}: column {name} cannot change from {old} to {new} as a whole. Change its parts one by one: "
            f"ALTER COLUMN {column_text((*path, (_children(old) or ('part',))[0]))} TYPE ...",
            differences=(f"{name}: {old} -> {new}",),
        )
    if physically_same(old, new) or (widen and is_widening(old, new)):
        return
    remedy = (
        f"Enable it first: ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')."
        if is_widening(old, new)
        else "Add a column of the new type and fill it, or write the table anew with overwriteSchema."
    )
    told = "takes type widening, which the table does not have enabled" if is_widening(old, new) else "would make old files unreadable"
    raise SchemaMismatchError(
        f"Delta table {table}: changing column {name} from {old} to {new} {told}. {remedy}", differences=(f"{name}: {old} -> {new}",)
    )


def depends_on(reference: Sequence[str], schema: StructType, path: Sequence[str]) -> bool:
    """Whether an expression that speaks of ``reference`` breaks where the field at ``path`` is dropped, renamed or retyped.

    It does where it names the field or something in it. Inside of arrays and maps, where fields are reached in many ways, whatever speaks
    of the whole counts.
    """
    firm: list[str] = []
    for depth, name in enumerate(path, 1):
        if is_part(schema, path[:depth]):
            break
        firm.append(name.lower())
    return [part.lower() for part in reference[: len(firm)]] == firm


def within(path: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the first path is the second one or leads into it, in any letter case."""
    return [part.lower() for part in path[: len(other)]] == [part.lower() for part in other]


def statistics_columns(text: str, path: Sequence[str], to: Sequence[str] | None) -> str:
    """``delta.dataSkippingStatsColumns`` after the column at a path was renamed, or dropped where ``to`` is None."""
    kept = []
    for column in parse_column_names(text):
        if not within(column, path):
            kept.append(column)
        elif to is not None:
            kept.append((*to, *column[len(path) :]))
    return ",".join(".".join(quoted(name) for name in column) for column in kept)


def violation(schema: StructType, path: Sequence[str]) -> str:
    """An SQL condition, true for the rows in which the field at a path is null though what it is in is not."""

    def inside(data_type: DataType, here: str, rest: Sequence[str], depth: int) -> str:
        if not rest:
            return f"{here} IS NULL"
        name, item = rest[0], f"x{depth}"
        match data_type:
            case StructType(fields):
                field = next(field for field in fields if field.name == name)
                part = f"`{name.replace('`', '``')}`"
                if not here:
                    return inside(field.type, part, rest[1:], depth)
                return f"({here} IS NOT NULL AND {inside(field.type, f'{here}.{part}', rest[1:], depth)})"
            case ArrayType(element, _):
                return f"coalesce(exists({here}, {item} -> {inside(element, item, rest[1:], depth + 1)}), false)"
            case MapType(key, value, _):
                items, kind = (f"map_keys({here})", key) if name == "key" else (f"map_values({here})", value)
                return f"coalesce(exists({items}, {item} -> {inside(kind, item, rest[1:], depth + 1)}), false)"
            case _:
                raise ColumnNotFoundError(f"There is no column {column_text(path)}.")

    return inside(schema, "", path, 0)


def not_null_columns(field: StructField) -> list[ColumnPath]:
    """The field and those in it that must not be null, at any depth."""
    paths = [(field.name,)] if not field.nullable else []
    return paths + [path for path, inner in walk(StructType((field,))) if len(path) > 1 and not inner.nullable]


def needs_mapping(table: str, asked: str) -> str:
    """What a user reads whose table has no column mapping and needs it for what was asked."""
    return (
        f"Delta table {table}: {asked} needs column mapping, which the table does not have. Enable it first: ALTER TABLE delta.`{table}` "
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'). Clients without that feature can then read and write the table no more."
    )


def nothing_there(table: str, names: str) -> str:
    """What a user reads who adds a column that must not be null: the rows that are there have no value for it."""
    return (
        f"Delta table {table}: column {names} cannot be added as NOT NULL, for the rows that are there have no value for it. Add it "
        "without NOT NULL, fill it, then ALTER COLUMN ... SET NOT NULL."
    )


def _children(data_type: DataType) -> tuple[str, ...]:
    match data_type:
        case StructType():
            return data_type.names
        case ArrayType():
            return _PARTS[:1]
        case MapType():
            return _PARTS[1:]
        case _:
            return ()


def _child(data_type: DataType, name: str) -> DataType:
    match data_type:
        case StructType():
            return data_type.find((name,)).type
        case ArrayType(element, _):
            return element
        case MapType(key, value, _):
            return key if name == "key" else value
        case _:
            raise ColumnNotFoundError(f"{data_type} has no part {name}.")


def _in_struct(schema: StructType, path: Sequence[str], change: Callable[[StructType], StructType], refused: str, table: str) -> StructType:
    """The schema with the struct at a path changed."""
    if not path:
        return change(schema)
    found = field_at(schema, path)
    if not isinstance(found.type, StructType):
        raise UnsupportedOperationError(
            f"Delta table {table}: {refused}, for {column_text(path)} is of type {found.type}, not a struct. Only the fields of structs "
            f"can be added, dropped, renamed and moved; those in an array are below {column_text((*path, 'element'))}, those in a map "
            f"below {column_text((*path, 'key'))} and {column_text((*path, 'value'))}."
        )
    struct = found.type
    return changed(schema, path, lambda field: replace(field, type=change(struct)))


def _placed(struct: StructType, field: StructField, position: Position | None, path: str, table: str) -> StructType:
    fields = struct.fields
    index = len(fields) if position is None else 0
    if position is not None and position.after is not None:
        after = position.after.lower()
        index = next((i for i, sibling in enumerate(fields, 1) if sibling.name.lower() == after), 0)
        if not index:
            raise ColumnNotFoundError(
                f"Delta table {table}: column {path} cannot be placed after {quoted(position.after)}, which is not there; there are: "
                f"{', '.join(struct.names)}. Name one of these."
            )
    return StructType((*fields[:index], field, *fields[index:]))


def _changed(data_type: DataType, path: ColumnPath, change: Callable[[StructField], StructField]) -> DataType:
    name, rest = path[0], path[1:]
    match data_type:
        case StructType(fields):
            return StructType(tuple(_changed_field(field, rest, change) if field.name == name else field for field in fields))
        case ArrayType(element, contains_null):
            return replace(data_type, element=_changed_field(StructField(name, element, contains_null), rest, change).type)
        case MapType(key, value, value_contains_null):
            if name == "key":
                return replace(data_type, key=_changed_field(StructField(name, key, False), rest, change).type)
            return replace(data_type, value=_changed_field(StructField(name, value, value_contains_null), rest, change).type)
        case _:
            raise ColumnNotFoundError(f"{data_type} has no part {name}.")


def _changed_field(field: StructField, rest: ColumnPath, change: Callable[[StructField], StructField]) -> StructField:
    return change(field) if not rest else replace(field, type=_changed(field.type, rest, change))


def _lengthens(old: object, new: object) -> bool:
    """Whether every string of the old declared type fits the new one."""
    before, after = _LENGTH.fullmatch(str(old)), _LENGTH.fullmatch(str(new))
    if before is None or after is None:
        return False
    return int(before[2]) <= int(after[2]) if after[1] == "varchar" else before[1] == "char" and int(before[2]) == int(after[2])
