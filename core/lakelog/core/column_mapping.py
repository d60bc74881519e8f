"""Column mapping: the names that columns have in data files, statistics and partition values (PROTOCOL.md, "Column Mapping").

A column of a mapped table has a logical name, which users see and may change, and a physical one, which stays. Everything that the log or a
data file says of a column uses the physical name, at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from lakelog.core.actions import Protocol
from lakelog.core.errors import ColumnNotFoundError, CorruptLogError, InvalidTablePropertyError
from lakelog.core.field_metadata import COLUMN_ID, PARQUET_FIELD_ID, PHYSICAL_NAME, TYPE_CHANGES
from lakelog.core.predicates import And, Column, Constant, Not, Or, Predicate, Unknown
from lakelog.core.records import JSON, shown
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, walk
from lakelog.core.table_properties import COLUMN_MAPPING_MODE


class MappingMode(StrEnum):
    """How a reader finds a column in a data file: by its logical name, its physical name, or its field id."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def mapping_mode(protocol: Protocol, configuration: Mapping[str, str], table: str | None = None) -> MappingMode:
    """The mode in force. The table property counts only where the protocol supports the feature.

    Args:
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: ``delta.columnMapping.mode`` is none of the three.
    """
    version = protocol.min_reader_version
    supported = version == 2 or (version >= 3 and "columnMapping" in (protocol.reader_features or ()))
    if not supported:
        return MappingMode.NONE
    try:
        return MappingMode(COLUMN_MAPPING_MODE.of(configuration))
    except InvalidTablePropertyError as error:
        # No statement mends it: which columns the data files have is not known any more.
        where = "" if table is None else f"Delta table {table}: "
        raise InvalidTablePropertyError(f"{where}{error} Restore the commit that set it, which is the mode of the data files.") from None


def physical_name(field: StructField) -> str:
    """The name that a field's metadata gives it in files, or else its own.

    Raises:
        CorruptLogError: the metadata holds something other than a name.
    """
    name = field.metadata.get(PHYSICAL_NAME)
    if name is None:
        return field.name
    if not isinstance(name, str) or not name:
        raise CorruptLogError(f"The physical name of column {field.name} is {shown(name)}, which is no name. Restore the log.")
    return name


def column_id(field: StructField) -> int | None:
    """The field id that a field's metadata gives it, None for none.

    Raises:
        CorruptLogError: the metadata holds something other than a number of 32 bits.
    """
    found = field.metadata.get(COLUMN_ID)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**31):
        raise CorruptLogError(f"The column id of {field.name} is {shown(found)}, which is no id. Restore the log.")
    return found


def max_column_id(schema: StructType) -> int:
    """The highest id of a field at any depth, 0 where none has one."""
    return max((column_id(field) or 0 for _, field in walk(schema)), default=0)


def physical_schema(schema: StructType, mode: MappingMode) -> StructType:
    """The schema as data files and statistics have it; the same object where the table is not mapped.

    Of a field's metadata two things stay: the field id, under the key from which Spark writes it to Parquet, and the type changes, without
    which old statistics cannot be understood.
    """
    if mode is MappingMode.NONE:
        return schema
    renamed = _physical(schema)
    assert isinstance(renamed, StructType)
    return renamed


def physical_path(schema: StructType, path: Sequence[str], mode: MappingMode) -> tuple[str, ...]:
    """The physical names along a path of exact logical names; inside arrays and maps it goes on with element, key and value.

    Raises:
        ColumnNotFoundError: there is no such column; names those that there are.
    """
    if mode is MappingMode.NONE:
        return tuple(path)
    names: list[str] = []
    current: DataType = schema
    for step in path:
        if isinstance(current, StructType):
            field = next((f for f in current.fields if f.name == step), None)
            if field is None:
                there = ", ".join(f.name for f in current.fields)
                raise ColumnNotFoundError(f"There is no column {'.'.join(path)}; there are: {there}.")
            names.append(physical_name(field))
            current = field.type
            continue
        below = _inside(current, step)
        if below is None:
            raise ColumnNotFoundError(f"There is no column {'.'.join(path)}: {'.'.join(path[: len(names)])} is of type {current}.")
        names.append(step)
        current = below
    return tuple(names)


def physical_paths(schema: StructType, paths: Sequence[Sequence[str]], mode: MappingMode) -> tuple[tuple[str, ...], ...]:
    """The physical names along paths of logical names in any letter case, through structs; paths that lead nowhere are left out."""
    if mode is MappingMode.NONE:
        return tuple(tuple(path) for path in paths)
    found = []
    for path in paths:
        names: list[str] = []
        current: DataType = schema
        for step in path:
            fields = current.fields if isinstance(current, StructType) else ()
            field = next((f for f in fields if f.name.lower() == step.lower()), None)
            if field is None:
                break
            names.append(physical_name(field))
            current = field.type
        if len(names) == len(path):
            found.append(tuple(names))
    return tuple(found)


def physical_columns(schema: StructType, columns: Sequence[str], mode: MappingMode) -> tuple[str, ...]:
    """The physical names of top-level columns, which may be spelt in another case than the schema has them.

    Raises:
        ColumnNotFoundError: the schema has no such column.
    """
    if mode is MappingMode.NONE:
        return tuple(columns)
    names = {field.name.lower(): physical_name(field) for field in schema.fields}
    if absent := [column for column in columns if column.lower() not in names]:
        raise ColumnNotFoundError(f"There is no column {', '.join(absent)}; there are: {', '.join(schema.names)}.")
    return tuple(names[column.lower()] for column in columns)


def physical_predicate(predicate: Predicate, schema: StructType, mode: MappingMode) -> Predicate:
    """The predicate with the physical names of its columns.

    Args:
        predicate: columns by the exact logical names of ``schema``.

    Raises:
        ColumnNotFoundError: it names a column that the schema does not have.
    """
    if mode is MappingMode.NONE:
        return predicate
    match predicate:
        case Constant() | Unknown():
            return predicate
        case And(parts):
            return And(tuple(physical_predicate(part, schema, mode) for part in parts))
        case Or(parts):
            return Or(tuple(physical_predicate(part, schema, mode) for part in parts))
        case Not(part):
            return Not(physical_predicate(part, schema, mode))
        case leaf:
            return replace(leaf, column=Column(physical_path(schema, leaf.column.path, mode)))


def with_mapping(schema: StructType, *, max_id: int, new_uuid: Callable[[], str], keep_names: bool) -> tuple[StructType, int]:
    """The schema in which every field, at any depth, has an id and a physical name, and the highest id ever given.

    What a field has already, it keeps. Ids are given in the order of the schema, a struct before its parts.

    Args:
        max_id: the highest id given so far, ``delta.columnMapping.maxColumnId``.
        new_uuid: unique text, for names of columns of which no data file knows yet.
        keep_names: fields without a physical name get their logical one, as for a table whose data files stand already.

    Raises:
        CorruptLogError: an id or a physical name that is none.
    """
    given = max(max_id, max_column_id(schema))

    def mapped(data_type: DataType) -> DataType:
        nonlocal given
        if isinstance(data_type, ArrayType):
            return replace(data_type, element=mapped(data_type.element))
        if isinstance(data_type, MapType):
            return replace(data_type, key=mapped(data_type.key), value=mapped(data_type.value))
        if not isinstance(data_type, StructType):
            return data_type
        fields = []
        for field in data_type.fields:
            metadata = dict(field.metadata)
            if column_id(field) is None:
                given += 1
                metadata[COLUMN_ID] = given
            if PHYSICAL_NAME not in metadata:
                metadata[PHYSICAL_NAME] = field.name if keep_names else f"col-{new_uuid()}"
            fields.append(replace(field, type=mapped(field.type), metadata=metadata))
        return StructType(tuple(fields))

    made = mapped(schema)
    assert isinstance(made, StructType)
    return made, given


def _inside(data_type: DataType, step: str) -> DataType | None:
    match data_type, step:
        case ArrayType(element), "element":
            return element
        case MapType(key, _), "key":
            return key
        case MapType(_, value), "value":
            return value
        case _:
            return None


def _physical(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(tuple(StructField(physical_name(f), _physical(f.type), f.nullable, _kept(f)) for f in data_type.fields))
    if isinstance(data_type, ArrayType):
        return replace(data_type, element=_physical(data_type.element))
    if isinstance(data_type, MapType):
        return replace(data_type, key=_physical(data_type.key), value=_physical(data_type.value))
    return data_type


def _kept(field: StructField) -> Mapping[str, JSON]:
    kept: dict[str, JSON] = {}
    if (found := column_id(field)) is not None:
        kept[PARQUET_FIELD_ID] = found
    if TYPE_CHANGES in field.metadata:
        kept[TYPE_CHANGES] = field.metadata[TYPE_CHANGES]
    return kept
