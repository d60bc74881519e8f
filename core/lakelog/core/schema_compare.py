"""What a write's data must look like beside its table, and how each column of the table is built from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from lakelog.core.errors import CorruptLogError, PartitionColumnError, SchemaMismatchError
from lakelog.core.field_metadata import (
    CURRENT_DEFAULT,
    GENERATION_EXPRESSION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
)
from lakelog.core.records import shown
from lakelog.core.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyColumn:
    """The data's value as it is: the types are the same, nullability aside.

    Every plan has ``field``, the table's field to build, and ``source``, the data's field by its exact name within its struct. The
    parts of arrays and maps are fields named ``element``, ``key`` and ``value``, from sources of the same names.
    """

    field: StructField
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CastColumn:
    """The data's value cast to the field's type, which loses nothing."""

    field: StructField
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NullColumn:
    """Null of the field's type: the data has no such field."""

    field: StructField
    source: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultColumn:
    """The field's default, a SQL expression without columns: the data has no such field. Also inside structs."""

    field: StructField
    expression: str
    source: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedColumn:
    """A top-level column that the table computes from others by a SQL expression over the table's columns.

    Attributes:
        source: the data's column; None when the data has none and the value is computed.
        given: how the data's values are brought into shape before they are checked against the expression; None with ``source``.
    """

    field: StructField
    source: str | None
    given: ColumnPlan | None
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityColumn:
    """A top-level column of numbers that the table hands out: the data has no such column.

    Attributes:
        start: the first number ever.
        step: between one number and the next; not 0, may be negative.
        high_water_mark: the number furthest along that any version handed out; None before the first.
    """

    field: StructField
    start: int
    step: int
    high_water_mark: int | None
    source: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructColumn:
    """A struct of the children, in the table's order; null where the data's is."""

    field: StructField
    source: str
    children: tuple[ColumnPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayColumn:
    """The data's array with each element rebuilt."""

    field: StructField
    source: str
    element: ColumnPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MapColumn:
    """The data's map with each key and each value rebuilt."""

    field: StructField
    source: str
    key: ColumnPlan
    value: ColumnPlan


ColumnPlan: TypeAlias = (
    CopyColumn | CastColumn | NullColumn | DefaultColumn | StructColumn | ArrayColumn | MapColumn | GeneratedColumn | IdentityColumn
)

_VOID = PrimitiveType("void")

# Decimal digits that hold every value of the integer type.
_WHOLE_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDER = {("float", "double")} | {(a, b) for a in _WHOLE_DIGITS for b in _WHOLE_DIGITS if _WHOLE_DIGITS[a] < _WHOLE_DIGITS[b]}


class DifferenceKind(StrEnum):
    """What is wrong with a column of the data."""

    NEW = "the table has no such column"
    TYPE = "its type does not fit"
    MISSING = "the table's column is NOT NULL and the data has none"
    AMBIGUOUS = "two columns of the data differ by case alone"
    GIVEN = "the table alone makes its values"
    LAYOUT = "the write names another partitioning or clustering than the table's"


@dataclass(frozen=True, slots=True)
class Difference:
    """A column, or a field of one, by which the data does not fit the table.

    Attributes:
        text: a sentence without its stop, ``column a.b: the table has integer, the data has string``.
    """

    kind: DifferenceKind
    text: str


def compared(
    table: StructType, data: StructType, *, table_name: str, drop_void: bool = False
) -> tuple[tuple[ColumnPlan, ...], tuple[Difference, ...]]:
    """A plan for each column of the table, in the table's order, and every difference; the plans count only where there is none.

    Names match without regard to case and order. Fields that the data lacks get their default, or become null, at any depth. Types widen
    where nothing is lost: byte to short to integer to long, float to double, integers and decimals to decimals that hold all their
    digits, void to anything. That a nullable source feeds a NOT NULL column is no difference here; its rows are checked as they are
    written. Columns that the table computes are left to it where the data lacks them.

    Differences are columns that the table lacks, types that do not fit, NOT NULL columns that the data lacks, data columns that differ by
    case alone, values for columns that are GENERATED ALWAYS AS IDENTITY.

    Args:
        drop_void: fields of the data that the table lacks are no difference where their type is void; no plan reads them.

    Raises:
        CorruptLogError: the metadata of an identity column makes no sense.
    """
    comparison = _Comparison(table_name=table_name, drop_void=drop_void)
    plans = tuple(comparison.computed(plan) for plan in comparison.fields(table, data, ""))
    return plans, tuple(comparison.differences)


def mismatch(differences: Sequence[Difference], *, table_name: str, remedy: str) -> SchemaMismatchError:
    """The error that lists the differences, one a line, and says what to do."""
    return SchemaMismatchError(
        f"Delta table {table_name}: the data's schema does not fit the table's:\n"
        + "".join(f"  - {difference.text}\n" for difference in differences)
        + remedy,
        differences=tuple(difference.text for difference in differences),
    )


def check_partition_columns(schema: StructType, columns: Sequence[str], *, table_name: str | None = None) -> tuple[str, ...]:
    """The columns that a new table is to be partitioned by, spelled as its schema spells them.

    Raises:
        PartitionColumnError: a column that is absent, given twice or of a type that cannot partition; or no column would be left.
    """
    known = {f.name.lower(): f for f in schema.fields}
    chosen: dict[str, StructField] = {}
    for name in columns:
        found = known.get(name.lower())
        if found is None:
            raise PartitionColumnError(
                f"{_prefix(table_name)}Cannot partition by {name!r}, there is no such column. "
                f"Partition by some of: {_listed(schema.names)}."
            )
        if name.lower() in chosen:
            raise PartitionColumnError(f"{_prefix(table_name)}The partition column {found.name!r} is given twice. Give it once.")
        if not isinstance(found.type, PrimitiveType | DecimalType) or found.type in (_VOID, PrimitiveType("variant")):
            raise PartitionColumnError(
                f"{_prefix(table_name)}Cannot partition by {found.name!r} of type {found.type}. Partition by a column of a plain "
                "type, such as string, integer or date."
            )
        chosen[name.lower()] = found
    if chosen and len(chosen) == len(schema.fields):
        raise PartitionColumnError(
            f"{_prefix(table_name)}Cannot partition by all columns ({_listed(schema.names)}), data files need one. Leave one out."
        )
    return tuple(f.name for f in chosen.values())


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """One walk over a table's schema and the data's, which gathers what differs."""

    table_name: str
    drop_void: bool
    differences: list[Difference] = field(default_factory=list)

    def fields(self, table: StructType, data: StructType, prefix: str) -> tuple[ColumnPlan, ...]:
        sources: dict[str, StructField] = {}
        known = {f.name.lower() for f in table.fields}
        for f in data.fields:
            other = sources.setdefault(f.name.lower(), f)
            path = f"{prefix}{f.name}"
            if other is not f:
                self.differs(DifferenceKind.AMBIGUOUS, path, f"the data also has {prefix}{other.name}, which is the same name but for case")
            elif f.name.lower() not in known and not (self.drop_void and f.type == _VOID):
                self.differs(DifferenceKind.NEW, path, f"the table has no such column, the data has {f.type}")
        return tuple(self.plan(f, sources.get(f.name.lower()), prefix) for f in table.fields)

    def plan(self, target: StructField, source: StructField | None, prefix: str) -> ColumnPlan:
        path = f"{prefix}{target.name}"
        if source is None:
            return self.absent(target, path, is_column=not prefix)
        if _same(target.type, source.type):
            return CopyColumn(field=target, source=source.name)
        wanted, given = target.type, source.type
        if isinstance(wanted, StructType) and isinstance(given, StructType):
            children = self.fields(wanted, given, f"{path}.")
            return StructColumn(field=target, source=source.name, children=children)
        if isinstance(wanted, ArrayType) and isinstance(given, ArrayType):
            part = self.part("element", wanted.element, given.element, path, nullable=wanted.contains_null)
            return ArrayColumn(field=target, source=source.name, element=part)
        if isinstance(wanted, MapType) and isinstance(given, MapType):
            key = self.part("key", wanted.key, given.key, path, nullable=False)
            value = self.part("value", wanted.value, given.value, path, nullable=wanted.value_contains_null)
            return MapColumn(field=target, source=source.name, key=key, value=value)
        if not _widens(given, wanted):
            self.differs(DifferenceKind.TYPE, path, f"the table has {wanted}, the data has {given}")
        return CastColumn(field=target, source=source.name)

    def part(self, name: str, wanted: DataType, given: DataType, path: str, *, nullable: bool) -> ColumnPlan:
        return self.plan(StructField(name, wanted, nullable), StructField(name, given), f"{path}.")

    def absent(self, target: StructField, path: str, *, is_column: bool) -> ColumnPlan:
        default = target.metadata.get(CURRENT_DEFAULT)
        if default is not None:
            return DefaultColumn(field=target, expression=str(default))
        if not target.nullable and not (is_column and _is_computed(target)):
            self.differs(DifferenceKind.MISSING, path, f"the table has {target.type} NOT NULL, the data has no such column")
        return NullColumn(field=target)

    def computed(self, plan: ColumnPlan) -> ColumnPlan:
        """The plan of a top-level column, replaced where the table computes the values."""
        target = plan.field
        if (expression := target.metadata.get(GENERATION_EXPRESSION)) is not None:
            given = None if plan.source is None else plan
            return GeneratedColumn(field=target, source=plan.source, given=given, expression=str(expression))
        if not _is_identity(target):
            return plan
        if plan.source is None:
            return _identity(target, self.table_name)
        if target.metadata.get(IDENTITY_ALLOWS_EXPLICIT) is not True:
            self.differs(
                DifferenceKind.GIVEN, target.name, "the table makes its values (GENERATED ALWAYS AS IDENTITY), the data gives them"
            )
        return plan

    def differs(self, kind: DifferenceKind, path: str, text: str) -> None:
        self.differences.append(Difference(kind, f"column {path}: {text}"))


def _is_identity(target: StructField) -> bool:
    return IDENTITY_START in target.metadata


def _is_computed(target: StructField) -> bool:
    return GENERATION_EXPRESSION in target.metadata or _is_identity(target)


def _identity(target: StructField, table_name: str) -> IdentityColumn:
    told = {key: target.metadata.get(key) for key in (IDENTITY_START, IDENTITY_STEP, IDENTITY_HIGH_WATER_MARK)}
    start, step, mark = told.values()
    if not isinstance(start, int) or not isinstance(step, int) or step == 0 or not isinstance(mark, int | None):
        raise CorruptLogError(
            f"Delta table {table_name}: the identity column {target.name} has the metadata {shown(told)}, by which no number follows. "
            "Restore the commit that wrote the table's metadata."
        )
    return IdentityColumn(field=target, start=start, step=step, high_water_mark=mark)


def _same(one: DataType, other: DataType) -> bool:
    """Whether types are alike in all but nullability and metadata; the names of nested fields count, their case too."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        pairs = zip(one.fields, other.fields, strict=False)
        return len(one.fields) == len(other.fields) and all(a.name == b.name and _same(a.type, b.type) for a, b in pairs)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.element, other.element)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same(one.key, other.key) and _same(one.value, other.value)
    return one == other


def _widens(given: DataType, wanted: DataType) -> bool:
    if given == _VOID:
        return True
    if isinstance(wanted, DecimalType):
        if isinstance(given, DecimalType):
            return wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
        return isinstance(given, PrimitiveType) and wanted.precision - wanted.scale >= _WHOLE_DIGITS.get(given.name, 39)
    return isinstance(given, PrimitiveType) and isinstance(wanted, PrimitiveType) and (given.name, wanted.name) in _WIDER


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _prefix(table_name: str | None) -> str:
    return "" if table_name is None else f"Delta table {table_name}: "
