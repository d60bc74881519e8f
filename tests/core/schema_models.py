"""Schemas for laws that hold for any two of them."""

from __future__ import annotations

from random import Random

from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.schema_compare import ColumnPlan, compared, mismatch

_PLAIN: tuple[DataType, ...] = (
    *(PrimitiveType(name) for name in ("byte", "short", "integer", "long", "float", "double", "string")),
    DecimalType(10, 2),
    DecimalType(12, 2),
)


def random_schema(seed: int) -> StructType:
    """A schema nested up to three deep; two of them often fit. From a seed, since strategies that nest as deep take seconds."""
    return _struct(Random(seed), 3)


def _struct(chance: Random, depth: int) -> StructType:
    fields = []
    # Names in either letter case, but no two that differ by case alone in one struct.
    for name in chance.sample("abcd", chance.randint(1, 3)):
        # Most fields of a name are of one type, so that two schemas often fit.
        kind = _PLAIN["abcd".index(name)] if chance.random() < 0.6 else _type(chance, depth)
        fields.append(StructField(chance.choice((name, name.upper())), kind, chance.random() < 0.7))
    return StructType(tuple(fields))


def _type(chance: Random, depth: int) -> DataType:
    match chance.randint(0, 4 if depth else 0):
        case 1:
            return ArrayType(_type(chance, depth - 1))
        case 2:
            return MapType(_type(chance, depth - 1), _type(chance, depth - 1))
        case 3 | 4:
            return _struct(chance, depth - 1)
        case _:
            return chance.choice(_PLAIN)


def compare_for_write(table: StructType, data: StructType, *, table_name: str) -> tuple[ColumnPlan, ...]:
    """The plans of a write whose data fits its table; its differences as the error that a write raises."""
    plans, differences = compared(table, data, table_name=table_name)
    if differences:
        raise mismatch(differences, table_name=table_name, remedy="Select the columns.")
    return plans
