"""A table's schema merged with that of data, as ``mergeSchema`` does it.

Nothing is lost: a column keeps its place, name, nullability and metadata, and its values keep their meaning. New columns come last in
their struct, nullable. What does not merge stays as the table has it, for `lakelog.core.schema_compare` to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakelog.core.field_metadata import user_schema
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, nullable_schema
from lakelog.core.type_widening import evolves, physically_same

VOID = PrimitiveType("void")


def merged(table: StructType, data: StructType, *, widen: bool) -> StructType:
    """The table's schema with what the data has more of, at any depth: in structs, and in arrays and maps of structs.

    Names are matched without regard to case, and the table's spelling stays. A type becomes the data's where every reader reads old files
    so (byte to short to integer), where ``widen`` allows it (`lakelog.core.type_widening.evolves`), and where the table has void, which
    holds nothing but nulls. New columns without a type of their own (void, also as fields of structs) are left out, as they hold nothing
    either: a later write that gives them a type brings them in. The same object where nothing is new.

    Args:
        table: the table's schema.
        data: the data's. Of two names that differ by case alone the first counts.
        widen: type widening is enabled on the table.
    """
    result = _merged_struct(table, data, widen=widen)
    return table if result == table else result


def untyped_fields(table: StructType, data: StructType) -> tuple[str, ...]:
    """The data's fields that `merged` leaves out for want of a type, dots between the names of a path."""
    return tuple(_untyped_fields(table, data, ""))


def _merged_struct(table: StructType, data: StructType, *, widen: bool) -> StructType:
    given = _by_name(data)
    known = {field.name.lower() for field in table.fields}
    kept = [_merged_field(field, given.get(field.name.lower()), widen=widen) for field in table.fields]
    new = (field for name, field in given.items() if name not in known and field.type != VOID)
    return StructType((*kept, *(_new_field(field) for field in new)))


def _merged_field(field: StructField, given: StructField | None, *, widen: bool) -> StructField:
    return field if given is None else replace(field, type=_merged_type(field.type, given.type, widen=widen))


def _merged_type(table: DataType, data: DataType, *, widen: bool) -> DataType:
    match table, data:
        case StructType(), StructType():
            return _merged_struct(table, data, widen=widen)
        case ArrayType(), ArrayType():
            return replace(table, element=_merged_type(table.element, data.element, widen=widen))
        case MapType(), MapType():
            key, value = (_merged_type(a, b, widen=widen) for a, b in ((table.key, data.key), (table.value, data.value)))
            return replace(table, key=key, value=value)
        case _:
            if table == VOID:
                return _new_field(StructField("", data)).type
            return data if physically_same(table, data) or (widen and evolves(table, data)) else table


def _new_field(field: StructField) -> StructField:
    (bare,) = nullable_schema(user_schema(StructType((field,)))).fields
    return replace(bare, type=_without_void(bare.type))


def _without_void(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields):
            # A struct of nothing else stays, for `lakelog.core.schema.check_creatable` to refuse by name.
            typed = tuple(replace(f, type=_without_void(f.type)) for f in fields if f.type != VOID)
            return StructType(typed) if typed else data_type
        case ArrayType(element):
            return replace(data_type, element=_without_void(element))
        case MapType(key, value):
            return replace(data_type, key=_without_void(key), value=_without_void(value))
        case _:
            return data_type


def _untyped_fields(table: DataType, data: DataType, path: str) -> Iterator[str]:
    match table, data:
        case StructType(), StructType():
            known = _by_name(table)
            for name, field in _by_name(data).items():
                if name in known:
                    yield from _untyped_fields(known[name].type, field.type, f"{path}{field.name}.")
                elif field.type == VOID:
                    yield path + field.name
                else:
                    yield from _untyped_fields(StructType(), field.type, f"{path}{field.name}.")
        case ArrayType(), ArrayType():
            yield from _untyped_fields(table.element, data.element, f"{path}element.")
        case MapType(), MapType():
            yield from _untyped_fields(table.key, data.key, f"{path}key.")
            yield from _untyped_fields(table.value, data.value, f"{path}value.")
        case _:
            # Nothing is known of a new array's or map's parts.
            for step in ("element", "key", "value"):
                if (part := getattr(data, step, None)) is not None:
                    yield from _untyped_fields(StructType(), part, f"{path}{step}.")


def _by_name(struct: StructType) -> dict[str, StructField]:
    found: dict[str, StructField] = {}
    for field in struct.fields:
        found.setdefault(field.name.lower(), field)
    return found
