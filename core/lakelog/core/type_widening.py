"""Types that widen without a rewrite of files, and the history that a table keeps of them (PROTOCOL.md, "Type Widening")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lakelog.core.errors import CorruptLogError
from lakelog.core.field_metadata import TYPE_CHANGES
from lakelog.core.records import JSON, shown
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

_INTEGERS = ("byte", "short", "integer", "long")
# The types that Parquet stores as the same INT32.
_SMALL = _INTEGERS[:3]
# The narrowest decimal that readers of Parquet make of an integer.
_AS_DECIMAL: Mapping[str, DecimalType] = {**{name: DecimalType(10, 0) for name in _SMALL}, "long": DecimalType(20, 0)}


def is_widening(before: DataType, after: DataType) -> bool:
    """Whether the protocol lets a column go from one plain type to the other with its files as they are.

    Byte to short to integer to long; float to double; byte, short and integer to double; date to timestamp_ntz; decimals to those with
    no fewer digits on either side of the point; integers to decimals that hold all of them. Not from a type to itself, and not structs,
    arrays or maps, whose parts widen.
    """
    if evolves(before, after):
        return True
    if not isinstance(before, PrimitiveType):
        return False
    if isinstance(after, DecimalType):
        least = _AS_DECIMAL.get(before.name)
        return least is not None and _holds(after, least)
    return before.name in _SMALL and after == PrimitiveType("double")


def evolves(before: DataType, after: DataType) -> bool:
    """Whether a write that merges schemas may widen so, as delta-spark has it: what `is_widening` allows, but for integers that would
    become decimals or doubles, which is rarely meant."""
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before != after and _holds(after, before)
    if not (isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType)):
        return False
    if before.name in _INTEGERS and after.name in _INTEGERS:
        return _INTEGERS.index(before.name) < _INTEGERS.index(after.name)
    return (before.name, after.name) in (("float", "double"), ("date", "timestamp_ntz"))


def physically_same(before: DataType, after: DataType) -> bool:
    """Whether files hold both types alike and the second has all values of the first, so that any reader reads them: byte to short to
    integer. Such a change needs no table feature."""
    return evolves(before, after) and isinstance(after, PrimitiveType) and after.name in _SMALL


def record(field: StructField, before: DataType) -> StructField:
    """The field with what changed since it had the type ``before`` appended to its ``delta.typeChanges``.

    Parts of arrays and maps are told by a ``fieldPath`` such as ``value.element``. Fields of structs have their own record, see
    `recorded`; other changes than `is_widening` are not recorded. The same object where nothing widened.

    Raises:
        CorruptLogError: what the field has recorded so far is no list.
    """
    changes = [_change(old, new, path) for path, old, new in _changed_parts(before, field.type, ()) if is_widening(old, new)]
    if not changes:
        return field
    earlier = field.metadata.get(TYPE_CHANGES, [])
    if not isinstance(earlier, list):
        raise CorruptLogError(
            f"The column {field.name} has {shown(earlier)} as {TYPE_CHANGES}, which is no list. Restore the commit that wrote the schema."
        )
    return replace(field, metadata={**field.metadata, TYPE_CHANGES: [*earlier, *changes]})


def recorded(schema: StructType, before: StructType) -> StructType:
    """A schema with the changes of every field since ``before`` recorded, at any depth. Fields are told by name, letter case aside.

    Raises:
        CorruptLogError: what a field has recorded so far is no list.
    """
    known = {field.name.lower(): field for field in before.fields}
    fields = []
    for field in schema.fields:
        old = known.get(field.name.lower())
        fields.append(field if old is None else record(replace(field, type=_recorded_inside(field.type, old.type)), old.type))
    return StructType(tuple(fields))


def _recorded_inside(data_type: DataType, before: DataType) -> DataType:
    match data_type, before:
        case StructType(), StructType():
            return recorded(data_type, before)
        case ArrayType(), ArrayType():
            return replace(data_type, element=_recorded_inside(data_type.element, before.element))
        case MapType(), MapType():
            key, value = _recorded_inside(data_type.key, before.key), _recorded_inside(data_type.value, before.value)
            return replace(data_type, key=key, value=value)
        case _:
            return data_type


def _changed_parts(before: DataType, after: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType, DataType]]:
    match before, after:
        case ArrayType(), ArrayType():
            yield from _changed_parts(before.element, after.element, (*path, "element"))
        case MapType(), MapType():
            yield from _changed_parts(before.key, after.key, (*path, "key"))
            yield from _changed_parts(before.value, after.value, (*path, "value"))
        case _:
            yield path, before, after


def _change(before: DataType, after: DataType, path: tuple[str, ...]) -> Mapping[str, JSON]:
    told: dict[str, JSON] = {"fromType": str(before), "toType": str(after)}
    if path:
        told["fieldPath"] = ".".join(path)
    return told


def _holds(wide: DecimalType, narrow: DecimalType) -> bool:
    return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
