"""The keys under which Delta keeps what a column promises in its field's metadata, and schemas without them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakelog.core.schema import ArrayType, DataType, MapType, StructType

COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
NESTED_IDS = "delta.columnMapping.nested.ids"
PARQUET_FIELD_ID = "parquet.field.id"
GENERATION_EXPRESSION = "delta.generationExpression"
INVARIANTS = "delta.invariants"
IDENTITY_START = "delta.identity.start"
IDENTITY_STEP = "delta.identity.step"
IDENTITY_HIGH_WATER_MARK = "delta.identity.highWaterMark"
IDENTITY_ALLOWS_EXPLICIT = "delta.identity.allowExplicitInsert"
CURRENT_DEFAULT = "CURRENT_DEFAULT"
EXISTS_DEFAULT = "EXISTS_DEFAULT"
TYPE_CHANGES = "delta.typeChanges"
# Where Spark keeps the declared type of a string with a length.
CHAR_VARCHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
COLLATIONS = "__COLLATIONS"
COMMENT = "comment"

_MAPPING = frozenset({COLUMN_ID, PHYSICAL_NAME, NESTED_IDS, PARQUET_FIELD_ID})
_PROMISES = frozenset(
    {
        *(GENERATION_EXPRESSION, INVARIANTS, TYPE_CHANGES, CURRENT_DEFAULT, EXISTS_DEFAULT),
        *(IDENTITY_START, IDENTITY_STEP, IDENTITY_HIGH_WATER_MARK, IDENTITY_ALLOWS_EXPLICIT),
    }
)


def without_keys(schema: StructType, keys: Collection[str]) -> StructType:
    """The schema without some keys in the metadata of its fields, at any depth; the same object where no field has one."""
    bare = _without(schema, frozenset(keys))
    assert isinstance(bare, StructType)
    return bare


def user_schema(schema: StructType) -> StructType:
    """The schema as a reader is shown it: what concerns writers and the files alone is left out, so that it does not travel with the
    data into other tables."""
    return without_keys(schema, _MAPPING | _PROMISES)


def _without(data_type: DataType, keys: frozenset[str]) -> DataType:
    match data_type:
        case StructType(fields):
            bare = []
            for field in fields:
                metadata = {k: v for k, v in field.metadata.items() if k not in keys} if keys & field.metadata.keys() else field.metadata
                inner = _without(field.type, keys)
                bare.append(field if metadata is field.metadata and inner is field.type else replace(field, type=inner, metadata=metadata))
            return data_type if all(a is b for a, b in zip(bare, fields, strict=True)) else StructType(tuple(bare))
        case ArrayType(element):
            inner = _without(element, keys)
            return data_type if inner is element else replace(data_type, element=inner)
        case MapType(key, value):
            bare_key, bare_value = _without(key, keys), _without(value, keys)
            return data_type if bare_key is key and bare_value is value else replace(data_type, key=bare_key, value=bare_value)
        case _:
            return data_type
