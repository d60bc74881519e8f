"""A table's schema: Delta's JSON to types and back (PROTOCOL.md, "Schema Serialization Format"), and to Arrow.

A schema string survives the round trip: names, order, nullability and the metadata of every field, known to lakelog or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, cast

import pyarrow as pa

from lakelog.core.errors import ColumnNotFoundError, CorruptLogError, InvalidSchemaError, UnsupportedTypeError
from lakelog.core.records import JSON, load_json, shown

MAX_DEPTH = 80
FORBIDDEN_CHARACTERS = " ,;{}()\n\t="

_ARROW: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
PRIMITIVES = frozenset(_ARROW) | {"variant"}
# Spellings that old writers left in logs.
_ALIASES = {"null": "void", "int": "integer", "bigint": "long", "tinyint": "byte", "smallint": "short"}
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*\)")
_LENGTH = re.compile(r"(?:char|varchar)\(\s*[0-9]+\s*\)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters, by Delta's name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """``precision`` digits in all, ``scale`` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named part of a struct. ``metadata`` is kept as it came, whatever its keys."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, JSON] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in order; a table's schema is one."""

    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.fields)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the top-level columns."""
        return tuple(f.name for f in self.fields)

    def find(self, path: Sequence[str]) -> StructField:
        """The field at a path of exact names, through structs alone.

        Raises:
            ColumnNotFoundError: there is none; names those that there are.
        """
        current: DataType = self
        found: StructField | None = None
        for name in path:
            fields = current.fields if isinstance(current, StructType) else ()
            found = next((f for f in fields if f.name == name), None)
            if found is None:
                raise ColumnNotFoundError(f"There is no column {'.'.join(path)}; there are: {', '.join(f.name for f in fields)}.")
            current = found.type
        if found is None:
            raise ColumnNotFoundError("A column's path has at least one name.")
        return found

    def to_json(self) -> str:
        """The schema string, compact as Spark writes it."""
        return json.dumps(type_to_json(self), ensure_ascii=False, separators=(",", ":"))


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType


def parse_schema(text: str) -> StructType:
    """A schema string as types.

    Raises:
        CorruptLogError: it is not a schema, or is nested more than `MAX_DEPTH` deep.
        UnsupportedTypeError: a type that lakelog does not know; names it.
    """
    try:
        load_json(text.encode())
    except (CorruptLogError, UnicodeEncodeError) as error:
        raise CorruptLogError(f"The schema string is no JSON that can be read: {error}. Restore the log.") from None
    # Python's own parser, for the metadata of a field may hold numbers of any size.
    schema = _parse(json.loads(text), 0, "the schema")
    if not isinstance(schema, StructType):
        raise CorruptLogError(f"The schema string is of type {shown(str(schema))}, not a struct. Restore the log.")
    return schema


def type_to_json(data_type: DataType) -> JSON:
    """A type in the form that schema strings hold."""
    if isinstance(data_type, ArrayType):
        return {"type": "array", "elementType": type_to_json(data_type.element), "containsNull": data_type.contains_null}
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": type_to_json(data_type.key),
            "valueType": type_to_json(data_type.value),
            "valueContainsNull": data_type.value_contains_null,
        }
    if isinstance(data_type, StructType):
        fields: list[JSON] = [
            {"name": f.name, "type": type_to_json(f.type), "nullable": f.nullable, "metadata": dict(f.metadata)} for f in data_type.fields
        ]
        return {"type": "struct", "fields": fields}
    return str(data_type)


def walk(schema: StructType) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every field at any depth with its path; inside arrays and maps the path goes on with element, key and value."""
    yield from _walk(schema, ())


def leaf_columns(schema: StructType) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """What statistics are kept for, in order: fields that are no struct, through structs alone. An array or a map is one leaf."""
    for f in schema.fields:
        if isinstance(f.type, StructType):
            yield from (((f.name, *path), leaf) for path, leaf in leaf_columns(f.type))
        else:
            yield (f.name,), f.type


def as_nullable(data_type: DataType) -> DataType:
    """The type with every part of it nullable, as new tables get it from a DataFrame."""
    if isinstance(data_type, ArrayType):
        return ArrayType(as_nullable(data_type.element), True)
    if isinstance(data_type, MapType):
        return MapType(as_nullable(data_type.key), as_nullable(data_type.value), True)
    if isinstance(data_type, StructType):
        return nullable_schema(data_type)
    return data_type


def nullable_schema(schema: StructType) -> StructType:
    """A schema with every part of it nullable."""
    return StructType(tuple(StructField(f.name, as_nullable(f.type), True, f.metadata) for f in schema.fields))


def check_creatable(schema: StructType, *, table: str, any_name: bool = False) -> None:
    """Refuse a schema that a new table cannot have.

    Args:
        any_name: with column mapping a name may hold any character, for no data file has it.

    Raises:
        InvalidSchemaError: no column, a name with a character of `FORBIDDEN_CHARACTERS`, or names that differ by case alone.
        UnsupportedTypeError: a type that Delta cannot hold here; names column and type.
    """
    if not schema.fields:
        raise InvalidSchemaError(f"Delta table {table}: the data has no column. Write at least one.")
    _check_names(schema, (), table, any_name=any_name)
    for path, f in walk(schema):
        if "__COLLATIONS" in f.metadata:
            raise UnsupportedTypeError(
                f"Delta table {table}: column {'.'.join(path)} is a string with a collation, which the table would lose. Write it "
                "as a plain string: cast(... AS STRING COLLATE UTF8_BINARY)."
            )
        for inner, part in _parts(f.type, path):
            if (remedy := _UNWRITTEN.get(str(part))) is not None:
                raise UnsupportedTypeError(
                    f"Delta table {table}: column {'.'.join(inner)} is of type {part}, which cannot be written; {remedy}."
                )


_UNWRITTEN = {
    "void": "cast it to the type it is to have, or leave it out",
    "variant": "store it as a string until a later release writes variants",
    "struct<>": "give the struct a field, or leave it out",
}


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type: timestamps in microseconds, ``timestamp`` in UTC.

    Raises:
        UnsupportedTypeError: variant.
    """
    if isinstance(data_type, PrimitiveType):
        if data_type.name not in _ARROW:
            raise UnsupportedTypeError(f"The type {data_type.name} has no Arrow form here.")
        return _ARROW[data_type.name]
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", to_arrow_type(data_type.element), data_type.contains_null))
    if isinstance(data_type, MapType):
        value = pa.field("value", to_arrow_type(data_type.value), data_type.value_contains_null)
        # pa.map_ takes a field for its items, which its stubs do not know.
        return pa.map_(to_arrow_type(data_type.key), cast("pa.DataType", value))
    return pa.struct([pa.field(f.name, to_arrow_type(f.type), f.nullable) for f in data_type.fields])


def to_arrow(schema: StructType) -> pa.Schema:
    """A table's schema in Arrow."""
    return pa.schema(list(cast(pa.StructType, to_arrow_type(schema))))


def _parse(told: object, depth: int, where: str) -> DataType:
    if depth > MAX_DEPTH:
        raise CorruptLogError(f"The schema is nested more than {MAX_DEPTH} deep at {where}.")
    if isinstance(told, str):
        return _parse_name(told, where)
    if not isinstance(told, dict):
        raise CorruptLogError(f"The type of {where} is {shown(told)}, which is no type. Restore the log.")
    try:
        kind = told["type"]
        if kind == "struct":
            return StructType(tuple(_parse_field(f, depth) for f in told["fields"]))
        if kind == "array":
            return ArrayType(_parse(told["elementType"], depth + 1, f"{where}.element"), _flag(told["containsNull"], where))
        if kind == "map":
            key = _parse(told["keyType"], depth + 1, f"{where}.key")
            value = _parse(told["valueType"], depth + 1, f"{where}.value")
            return MapType(key, value, _flag(told["valueContainsNull"], where))
    except (KeyError, TypeError) as error:
        raise CorruptLogError(f"The type of {where} is incomplete ({error}). Restore the log.") from None
    raise UnsupportedTypeError(
        f"{where} is of type {shown(kind)}, which Delta cannot hold or this lakelog does not know. Cast it to another type."
    )


def _parse_field(told: object, depth: int) -> StructField:
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        raise CorruptLogError(f"A field of the schema has no name: {shown(told)}. Restore the log.")
    name = str(told["name"])
    where = f"column {name[:100]}"
    metadata = told.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise CorruptLogError(f"The metadata of {where} is no object. Restore the log.")
    return StructField(name, _parse(told["type"], depth + 1, where), _flag(told.get("nullable", True), where), metadata)


def _parse_name(name: str, where: str) -> DataType:
    if name in PRIMITIVES:
        return PrimitiveType(name)
    if name in _ALIASES:
        return PrimitiveType(_ALIASES[name])
    if name == "decimal":
        return DecimalType(10, 0)
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise UnsupportedTypeError(f"{where} is of type {name}; decimals have 1 to 38 digits, and no more after the point than in all.")
        return DecimalType(precision, scale)
    if _LENGTH.fullmatch(name):
        return PrimitiveType("string")
    raise UnsupportedTypeError(
        f"{where} is of type {shown(name)}, which Delta cannot hold or this lakelog does not know. Cast it to another type."
    )


def _flag(told: object, where: str) -> bool:
    if not isinstance(told, bool):
        raise CorruptLogError(f"The nullability of {where} is {shown(told)}, neither true nor false. Restore the log.")
    return told


def _walk(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], StructField]]:
    if isinstance(data_type, StructType):
        for f in data_type.fields:
            yield (*path, f.name), f
            yield from _walk(f.type, (*path, f.name))
    elif isinstance(data_type, ArrayType):
        yield from _walk(data_type.element, (*path, "element"))
    elif isinstance(data_type, MapType):
        yield from _walk(data_type.key, (*path, "key"))
        yield from _walk(data_type.value, (*path, "value"))


def _parts(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """A field's type and those of the parts of arrays and maps in it; structs inside have fields of their own."""
    yield path, data_type
    if isinstance(data_type, ArrayType):
        yield from _parts(data_type.element, (*path, "element"))
    elif isinstance(data_type, MapType):
        yield from _parts(data_type.key, (*path, "key"))
        yield from _parts(data_type.value, (*path, "value"))


def _check_names(data_type: DataType, path: tuple[str, ...], table: str, *, any_name: bool) -> None:
    if isinstance(data_type, ArrayType):
        _check_names(data_type.element, (*path, "element"), table, any_name=any_name)
    elif isinstance(data_type, MapType):
        _check_names(data_type.key, (*path, "key"), table, any_name=any_name)
        _check_names(data_type.value, (*path, "value"), table, any_name=any_name)
    elif isinstance(data_type, StructType):
        seen: dict[str, str] = {}
        for f in data_type.fields:
            name = ".".join((*path, f.name))
            if not f.name or (not any_name and any(c in FORBIDDEN_CHARACTERS for c in f.name)):
                fault = f"holds one of the characters {FORBIDDEN_CHARACTERS!r}" if f.name else "is empty"
                raise InvalidSchemaError(
                    f"Delta table {table}: the column name {name!r} {fault}, which Parquet readers refuse. Rename the column, or use "
                    "column mapping, which allows such names: the table property delta.columnMapping.mode = name."
                )
            if f.name.lower() in seen:
                raise InvalidSchemaError(
                    f"Delta table {table}: the column names {'.'.join((*path, seen[f.name.lower()]))!r} and {name!r} are the same but for "
                    "case, which Delta does not tell apart. Rename one."
                )
            seen[f.name.lower()] = f.name
            _check_names(f.type, (*path, f.name), table, any_name=any_name)
