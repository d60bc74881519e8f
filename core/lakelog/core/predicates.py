"""The language in which scans, pruning and conflict checks speak: comparisons of columns with literals, under Kleene logic.

A predicate is a tree of frozen values, and its meaning is Spark SQL's: a comparison with null is null, and only rows for which the
whole is *true* match. Floating point follows Spark, not IEEE: NaN equals itself and is larger than everything else, and
-0.0 equals 0.0. Strings and binaries compare as unsigned bytes (UTF-8 for strings), false is less than true.

What cannot be said here is `Unknown`; pruning then keeps the file, and rows must be evaluated by an engine that knows the expression.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, cast
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.compute

from lakelog.core.errors import ColumnNotFoundError, UnsupportedOperationError
from lakelog.core.schema import DataType, DecimalType, PrimitiveType

# The stubs of pyarrow tell arrays apart by element type, which is known here at run time alone.
Values: TypeAlias = Any
Scalar: TypeAlias = Any
pc: Any = pyarrow.compute

Operator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]

Value: TypeAlias = int | float | Decimal | str | bytes | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its path of exact field names: ``("a", "b")`` is field ``b`` of the struct column ``a``."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(f"`{name}`" if "." in name else name for name in self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A typed constant.

    ``value`` is an int for the integral types, for date (days since 1970-01-01) and for timestamp and timestamp_ntz
    (microseconds since 1970-01-01T00:00:00, in UTC for timestamp); a float for float and double; a Decimal for decimal; a str, bytes
    or bool for theirs; None for a null of any type.
    """

    value: Value
    type: DataType


@dataclass(frozen=True, slots=True)
class Constant:
    """True, false or (None) null for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that this language has no words for; ``reason`` says which, for messages."""

    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op literal``. ``<=>`` is equality that takes null for a value and never answers null."""

    op: Operator
    column: Column
    literal: Literal


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (values)``: null when nothing equals and one of the values, or the column, is null; of no values, false."""

    column: Column
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The string column begins with ``prefix``; null where the column is null."""

    column: Column
    prefix: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column


@dataclass(frozen=True, slots=True)
class IsNotNull:
    column: Column


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


Predicate: TypeAlias = Constant | Unknown | Comparison | In | StartsWith | IsNull | IsNotNull | And | Or | Not

TRUE = Constant(True)
FALSE = Constant(False)


def conjunction(*parts: Predicate) -> Predicate:
    """All of ``parts``; nested Ands become one flat And, so that a long chain is no deep tree. Of nothing: TRUE."""
    flat = [leaf for part in parts for leaf in (part.parts if isinstance(part, And) else (part,))]
    return TRUE if not flat else flat[0] if len(flat) == 1 else And(tuple(flat))


def disjunction(*parts: Predicate) -> Predicate:
    """Any of ``parts``; nested Ors become one flat Or. Of nothing: FALSE."""
    flat = [leaf for part in parts for leaf in (part.parts if isinstance(part, Or) else (part,))]
    return FALSE if not flat else flat[0] if len(flat) == 1 else Or(tuple(flat))


def references(predicate: Predicate) -> frozenset[Column]:
    """The columns that the predicate reads. An `Unknown` may read others: see `has_unknown`."""
    match predicate:
        case And(parts) | Or(parts):
            return frozenset[Column]().union(*(references(part) for part in parts))
        case Not(part):
            return references(part)
        case Constant() | Unknown():
            return frozenset()
        case leaf:
            return frozenset({leaf.column})


def has_unknown(predicate: Predicate) -> bool:
    """Whether an `Unknown` sits anywhere in the tree, so that rows cannot be evaluated here."""
    match predicate:
        case And(parts) | Or(parts):
            return any(has_unknown(part) for part in parts)
        case Not(part):
            return has_unknown(part)
        case other:
            return isinstance(other, Unknown)


def negate(predicate: Predicate) -> Predicate:
    """``NOT predicate`` with the NOT pushed down to where bounds can use it; the same under three-valued logic.

    Spark's total order of floating point makes ``NOT (x < y)`` and ``x >= y`` one thing, NaN included.
    """
    match predicate:
        case Constant(value):
            return Constant(None if value is None else not value)
        case And(parts):
            return Or(tuple(negate(part) for part in parts))
        case Or(parts):
            return And(tuple(negate(part) for part in parts))
        case Not(part):
            return part
        case IsNull(column):
            return IsNotNull(column)
        case IsNotNull(column):
            return IsNull(column)
        case Comparison(op, column, literal) if op in _OPPOSITE:
            return Comparison(_OPPOSITE[op], column, literal)
        case other:
            return Not(other)


_OPPOSITE: dict[str, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


# --- Comparing values of one family ---------------------------------------------------------------------------------------------

Family: TypeAlias = OneOf["integral", "decimal", "fractional", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"]

# Holds every decimal of 38 digits at every scale, and every long.
WIDE_DECIMAL = pa.decimal256(76, 38)

_FAMILIES: dict[str, Family] = {
    "byte": "integral",
    "short": "integral",
    "integer": "integral",
    "long": "integral",
    "float": "fractional",
    "double": "fractional",
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}

STORAGE: dict[Family, pa.DataType] = {
    "integral": pa.int64(),
    "decimal": WIDE_DECIMAL,
    "fractional": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.int64(),
    "timestamp": pa.int64(),
    "timestamp_ntz": pa.int64(),
}


def family_of(data_type: DataType) -> Family | None:
    """How values of the type compare; None for a type without an order (struct, array, map, void, variant)."""
    if isinstance(data_type, DecimalType):
        return "decimal"
    return _FAMILIES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def common_family(left: Family, right: Family) -> Family | None:
    """The family in which two compare without rounding; None where Spark would have to cast, and cast to what is for Spark to say."""
    if {left, right} == {"integral", "decimal"}:
        return "decimal"
    return left if left == right else None


def literal_scalar(literal: Literal, family: Family) -> Scalar:
    """The literal as an Arrow scalar of the family's storage type; null stays null.

    Raises:
        UnsupportedOperationError: the value does not belong to the literal's type.
    """
    value = literal.value
    try:
        if value is not None and family == "fractional":
            value = float(value)
            if isinstance(literal.type, PrimitiveType) and literal.type.name == "float" and math.isfinite(value):
                value = struct.unpack("<f", struct.pack("<f", value))[0]
        elif value is not None and family == "decimal" and not isinstance(value, Decimal):
            value = Decimal(value) if isinstance(value, int) else value
        return pa.scalar(value, STORAGE[family])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UnsupportedOperationError(f"{literal.value!r} is no value of type {literal.type} in a predicate: {error}") from error


# --- Rows -----------------------------------------------------------------------------------------------------------------------


def evaluate_rows(predicate: Predicate, table: pa.Table | pa.RecordBatch) -> pa.BooleanArray:
    """The predicate's truth for each row: true, false or null.

    Args:
        predicate: its columns are found in ``table`` by exact name, below structs too; a field of a null struct is null.
        table: rows, in Arrow types that correspond to the literals' types.

    Raises:
        ColumnNotFoundError: a column is absent.
        UnsupportedOperationError: the predicate holds an `Unknown`, or compares a column with a literal of another kind.
    """
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    truths = [_evaluate(predicate, batch) for batch in batches]
    return cast(pa.BooleanArray, pa.concat_arrays(truths) if truths else pa.array([], pa.bool_()))


def _evaluate(predicate: Predicate, table: pa.RecordBatch) -> Values:
    match predicate:
        case Constant(value):
            return pa.nulls(table.num_rows, pa.bool_()) if value is None else pa.repeat(pa.scalar(value), table.num_rows)
        case Unknown(reason):
            raise UnsupportedOperationError(f"this condition cannot be evaluated without Spark: {reason}")
        case And(parts) | Or(parts):
            both = isinstance(predicate, And)
            result = _evaluate(Constant(both), table)
            for part in parts:
                result = (pc.and_kleene if both else pc.or_kleene)(result, _evaluate(part, table))
            return result
        case Not(part):
            return pc.invert(_evaluate(part, table))
        case leaf:
            return _evaluate_leaf(leaf, _find_column(leaf.column, table))


def _evaluate_leaf(leaf: Comparison | In | StartsWith | IsNull | IsNotNull, values: Values) -> Values:
    match leaf:
        case IsNull():
            return pc.is_null(values)
        case IsNotNull():
            return pc.is_valid(values)
        case StartsWith(column, prefix):
            literal = Literal(prefix, PrimitiveType("string"))
            return pc.starts_with(_storage(values, column, literal)[0], prefix)
        case In(column, literals):
            return _is_in(values, column, literals)
        case Comparison(op, column, literal):
            return compare(op, *_storage(values, column, literal))


def compare(op: Operator, values: Values, scalar: Scalar) -> Values:
    """``values op scalar`` in Spark's order; both of one family's storage type."""
    if op == "<=>":
        if not scalar.is_valid:
            return pc.is_null(values)
        return pc.fill_null(compare("=", values, scalar), False)
    if op == "!=":
        return pc.invert(compare("=", values, scalar))
    if op in {">", ">="}:
        return pc.invert(compare("<=" if op == ">" else "<", values, scalar))
    if not scalar.is_valid:
        return pa.nulls(len(values), pa.bool_())
    if pa.types.is_floating(values.type) and math.isnan(scalar.as_py()):
        nan = pc.is_nan(values)
        other = pc.invert(nan)
        return nan if op == "=" else other if op == "<" else pc.or_kleene(nan, other)
    # Arrow answers false for every comparison of NaN with a number, which for these three is Spark's answer too.
    return _ARROW[op](values, scalar)


_ARROW = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}


def _is_in(values: Values, column: Column, literals: tuple[Literal, ...]) -> Values:
    if not literals:
        return pa.repeat(pa.scalar(False), len(values))
    pairs = [_storage(values, column, literal) for literal in literals]
    # False where there is a value, null where there is none.
    result = pc.and_kleene(pc.is_null(values), pa.scalar(None, pa.bool_()))
    if not pa.types.is_floating(pairs[0][0].type) and len({stored.type for stored, _ in pairs}) == 1:
        present = [scalar for _, scalar in pairs if scalar.is_valid]
        stored = pairs[0][0]
        result = pc.or_kleene(result, pc.is_in(stored, pa.array([scalar.as_py() for scalar in present], stored.type), skip_nulls=True))
        return result if len(present) == len(pairs) else pc.or_kleene(result, pa.scalar(None, pa.bool_()))
    for stored, scalar in pairs:
        result = pc.or_kleene(result, compare("=", stored, scalar))
    return result


def _find_column(column: Column, table: pa.RecordBatch) -> Values:
    head, *rest = column.path
    positions = table.schema.get_all_field_indices(head)
    if len(positions) != 1:
        raise ColumnNotFoundError(f"column {column} is not among the columns {', '.join(table.schema.names)}")
    values = table.column(positions[0])
    for name in rest:
        position = values.type.get_field_index(name) if pa.types.is_struct(values.type) else -1
        if position < 0:
            raise ColumnNotFoundError(f"column {column}: there is no field {name} in {values.type}")
        values = pc.struct_field(values, [position])
    return values


def _storage(values: Values, column: Column, literal: Literal) -> tuple[Values, Scalar]:
    family = _arrow_family(values.type)
    wanted = family_of(literal.type)
    common = common_family(family, wanted) if family is not None and wanted is not None else None
    if common is None:
        raise UnsupportedOperationError(f"column {column} of type {values.type} cannot be compared with a literal of type {literal.type}")
    if pa.types.is_timestamp(values.type):
        values = _floor_to_micros(values)
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(STORAGE[common]), literal_scalar(literal, common)


def _floor_to_micros(values: Values) -> Values:
    if values.type.unit != "ns":
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return pc.floor_temporal(values.cast(pa.timestamp("ns")), unit="microsecond").cast(pa.timestamp("us")).cast(pa.int64())


def _arrow_family(arrow: pa.DataType) -> Family | None:
    if pa.types.is_dictionary(arrow):
        return _arrow_family(arrow.value_type)
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    return next((family for family, tests in _ARROW_FAMILIES.items() if any(test(arrow) for test in tests)), None)


_ARROW_FAMILIES: dict[Family, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integral": (pa.types.is_integer,),
    "fractional": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal,),
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "binary": (pa.types.is_binary, pa.types.is_large_binary),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date32,),
}
