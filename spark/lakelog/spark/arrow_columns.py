"""Columns of a Parquet file as pyarrow reads them, made those of a table: found by name or id, reordered, widened, filled with nulls.

Runs on executors: no pyspark, nothing of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.field_metadata import PARQUET_FIELD_ID
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, to_arrow_type

_ARROW_FIELD_ID = b"PARQUET:field_id"
# 1582-10-15 in days and 1900-01-01 in microseconds: from then on nothing differs, not by calendar and not by the zones of old.
_GREGORIAN_DAY = -141_427
_ZONES_US = -2_208_988_800_000_000


def find(there: StructField, fields: list[pa.Field[Any]], *, by_id: bool) -> int | None:
    """Where a field stands among those that a file has at that place.

    Args:
        there: as files have it. Where ids decide and it has one, the name says nothing.
    """
    identity = there.metadata.get(PARQUET_FIELD_ID) if by_id else None
    if identity is not None:
        told = str(identity).encode()
        return next((i for i, field in enumerate(fields) if (field.metadata or {}).get(_ARROW_FIELD_ID) == told), None)
    exact = next((i for i, field in enumerate(fields) if field.name == there.name), None)
    lower = there.name.lower()
    return exact if exact is not None else next((i for i, field in enumerate(fields) if field.name.lower() == lower), None)


def leaves(there: StructType, file: pa.Schema, *, by_id: bool) -> list[int]:
    """The numbers of the Parquet columns that hold the wanted fields, in the file's order.

    Args:
        there: the wanted columns as files have them, of nested ones the wanted parts alone.
        file: all that the file has.
    """
    return sorted(_wanted(there, list(file), 0, by_id))


def leaf_of(path: tuple[str, ...], wanted: StructType, there: StructType, file: pa.Schema, *, by_id: bool) -> tuple[int, DataType] | None:
    """The Parquet column of a field that is no struct, list or map, and the field's type; None where the file has none.

    Args:
        path: the field's names in ``wanted``, through structs.
        wanted: columns as the table has them.
        there: the same as files have them.
        file: all that the file has.
    """
    fields, start = list(file), 0
    outer: DataType = wanted
    inner: DataType = there
    for name in path:
        if not isinstance(outer, StructType) or not isinstance(inner, StructType) or name not in outer.names:
            return None
        at = outer.names.index(name)
        position = find(inner.fields[at], fields, by_id=by_id)
        if position is None:
            return None
        start += sum(_width(field.type) for field in fields[:position])
        found = fields[position].type
        outer, inner = outer.fields[at].type, inner.fields[at].type
        fields = _fields(found) if pa.types.is_struct(found) else []
    return None if pa.types.is_nested(found) else (start, outer)


def has_ids(file: pa.Schema) -> bool:
    """Whether a column of the file, none inside another counted, has a field id."""
    return any(_ARROW_FIELD_ID in (field.metadata or {}) for field in file)


def width(file: pa.Schema) -> int:
    """How many Parquet columns a schema stands for."""
    return sum(_width(field.type) for field in file)


def _wanted(there: StructType, fields: list[pa.Field[Any]], start: int, by_id: bool) -> Iterator[int]:
    starts = [start]
    for field in fields:
        starts.append(starts[-1] + _width(field.type))
    for wanted in there.fields:
        position = find(wanted, fields, by_id=by_id)
        if position is not None:
            yield from _below(wanted.type, fields[position].type, starts[position], by_id)


def _below(there: DataType, found: pa.DataType, start: int, by_id: bool) -> Iterator[int]:
    match there:
        case StructType() if pa.types.is_struct(found):
            # Of a struct without any wanted field one column tells where it is null.
            yield from list(_wanted(there, _fields(found), start, by_id)) or [start]
        case ArrayType(element) if _is_list(found):
            yield from _below(element, cast(Any, found).value_type, start, by_id)
        case MapType(key, value) if pa.types.is_map(found):
            pair = cast(Any, found)
            yield from _below(key, pair.key_type, start, by_id)
            yield from _below(value, pair.item_type, start + _width(pair.key_type), by_id)
        case _:
            yield from range(start, start + _width(found))


def _width(found: pa.DataType) -> int:
    if pa.types.is_struct(found):
        return sum(_width(field.type) for field in _fields(found))
    if pa.types.is_map(found):
        return _width(cast(Any, found).key_type) + _width(cast(Any, found).item_type)
    return _width(cast(Any, found).value_type) if _is_list(found) else 1


def _is_list(found: pa.DataType) -> bool:
    return pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)


def _fields(found: pa.DataType) -> list[pa.Field[Any]]:
    struct = cast(pa.StructType, found)
    return [struct.field(i) for i in range(struct.num_fields)]


def nulls(count: int, data_type: DataType) -> Any:
    """So many nulls of a type."""
    return cast(Any, pa).nulls(count, to_arrow_type(data_type))


def conform(values: Any, wanted: DataType, there: DataType, *, by_id: bool) -> Any:
    """Values of a file in the Arrow type of ``wanted`` (`to_arrow_type`), with its fields alone and in its order.

    Args:
        values: an array.
        wanted: the type as the table has it, parts of structs left out where nobody asks for them; all of it nullable.
        there: the same under the names and ids that files have.

    Raises:
        pyarrow.ArrowException: the file's type cannot be read as the wanted one, or a value does not fit.
    """
    target = to_arrow_type(wanted)
    if values.type == target:
        return values
    match wanted, there:
        case StructType(), StructType() if pa.types.is_struct(values.type):
            fields = _fields(values.type)
            children = []
            for field, inside in zip(wanted.fields, there.fields, strict=True):
                position = find(inside, fields, by_id=by_id)
                if position is None:
                    children.append(nulls(len(values), field.type))
                else:
                    children.append(conform(values.field(position), field.type, inside.type, by_id=by_id))
            mask = values.is_null() if values.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(cast(Any, target)), mask=mask)
        case ArrayType(element), ArrayType(inside) if _is_list(values.type):
            if not pa.types.is_list(values.type):
                values = values.cast(pa.list_(cast(Any, values.type).value_field))
            child = conform(values.values, element, inside, by_id=by_id)
            return _rebuilt(target, values, child)
        case MapType(key, value), MapType(key_there, value_there) if pa.types.is_map(values.type):
            keys = conform(values.keys, key, key_there, by_id=by_id)
            items = conform(values.items, value, value_there, by_id=by_id)
            pair = cast(Any, target)
            entries = pa.StructArray.from_arrays([keys, items], fields=[pair.key_field, pair.item_field])
            return _rebuilt(target, values, entries)
        case _:
            return _leaf(values, target)


def in_julian_calendar(footer: Mapping[bytes, bytes]) -> bool:
    """Whether old dates and times of a file are by the calendar of Spark 2, which Spark converts as it reads them.

    Args:
        footer: the keys and values of the file's footer.
    """
    version = footer.get(b"org.apache.spark.version", b"")
    return bool({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"} & set(footer)) or version[:2] in (b"1.", b"2.")


def has_old_time(values: Any) -> bool:
    """Whether an array holds, at any depth, a date or a time that the two calendars say differently."""
    kind = values.type
    if pa.types.is_struct(kind):
        return any(has_old_time(child) for child in values.flatten())
    if pa.types.is_map(kind):
        return has_old_time(values.keys) or has_old_time(values.items)
    if _is_list(kind):
        return has_old_time(values.flatten())
    if not pa.types.is_temporal(kind):
        return False
    least = pc.min(values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
    return least is not None and least < (_GREGORIAN_DAY if pa.types.is_date32(kind) else _ZONES_US)


def _rebuilt(target: pa.DataType, values: Any, child: Any) -> Any:
    """A list or map with another child of the same length; the buffers stay."""
    return cast(Any, pa.Array).from_buffers(target, len(values), values.buffers()[:2], values.null_count, values.offset, [child])


def _leaf(values: Any, target: pa.DataType) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(target) and not pa.types.is_string(values.type):
        # Spark takes the bytes as they are, also those that are no UTF-8.
        return pc.cast(values, target, safe=False) if _is_text(values.type) else _refused(values.type, target)
    if pa.types.is_nested(values.type) or pa.types.is_nested(target):
        return _refused(values.type, target)
    if pa.types.is_boolean(values.type) != pa.types.is_boolean(target):
        return _refused(values.type, target)
    if _is_text(values.type) and not (_is_text(target) or pa.types.is_fixed_size_binary(target)):
        return _refused(values.type, target)
    return pc.cast(values, target)


def _is_text(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    # Arrow counts a decimal among the binaries of fixed size.
    return any(test(kind) for test in tests) and not pa.types.is_decimal(kind)


def _refused(found: pa.DataType, target: pa.DataType) -> Any:
    raise pa.ArrowInvalid(f"the file has {found}, the table {target}")
