"""Columns of every type, random rows and predicates over them, and a straight-line reading of both to compare with."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakelog.core.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from lakelog.core.schema import DataType, DecimalType, PrimitiveType

Row = Mapping[str, Any]


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_MICROS_OF_YEARS = 62_135_596_800_000_000
_TEXT = st.one_of(
    st.text("abz", max_size=3),
    st.builds(
        lambda head, tail: head + tail,
        st.sampled_from(["a" * 31, "a" * 32, "z" * 40]),
        st.text("aé\x7f\uffff\U0001f600\U0010ffff", max_size=40),
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
_DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1.0, 5e-324]), st.floats(-3, 3), st.floats())

# Per column: its type in the table, in Arrow, and its values as literals have them.
COLUMNS: dict[str, tuple[DataType, pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (PrimitiveType(name="byte"), pa.int8(), st.integers(-128, 127)),
    "int": (PrimitiveType(name="integer"), pa.int32(), st.integers(-3, 3)),
    "long": (PrimitiveType(name="long"), pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))),
    "float": (
        PrimitiveType(name="float"),
        pa.float32(),
        st.one_of(_DOUBLES.filter(lambda v: not abs(v) > 1e38 or math.isinf(v)).map(_single)),
    ),
    "double": (PrimitiveType(name="double"), pa.float64(), _DOUBLES),
    "decimal": (DecimalType(precision=9, scale=2), pa.decimal128(9, 2), st.decimals(-99, 99, places=2)),
    "wide": (
        DecimalType(precision=38, scale=10),
        pa.decimal128(38, 10),
        st.integers(-(10**37), 10**37).map(lambda v: Decimal((v < 0, tuple(map(int, str(abs(v)))), -10))),
    ),
    "string": (PrimitiveType(name="string"), pa.string(), _TEXT),
    "binary": (PrimitiveType(name="binary"), pa.binary(), st.binary(max_size=2)),
    "boolean": (PrimitiveType(name="boolean"), pa.bool_(), st.booleans()),
    "date": (PrimitiveType(name="date"), pa.date32(), st.one_of(st.integers(-3, 3), st.integers(-719_162 - 400, 2_932_896 + 400))),
    "timestamp": (
        PrimitiveType(name="timestamp"),
        pa.timestamp("us", "UTC"),
        st.one_of(st.integers(-2_500, 2_500), st.integers(-_MICROS_OF_YEARS - 10**12, 4 * _MICROS_OF_YEARS)),
    ),
    "timestamp_ntz": (PrimitiveType(name="timestamp_ntz"), pa.timestamp("us"), st.integers(-2_500, 2_500)),
}

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


def rows(**options: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in COLUMNS.items()}), **options)


def arrow_table(some_rows: Sequence[Row], *, nested: bool = False) -> pa.Table:
    """The rows as a table; ``nested``: all columns once more, below a struct column ``s``."""
    arrays = []
    for name, (_, arrow, _) in COLUMNS.items():
        values = [row[name] for row in some_rows]
        storage = pa.int32() if pa.types.is_date(arrow) else pa.int64() if pa.types.is_timestamp(arrow) else arrow
        arrays.append(pa.array(values, storage).cast(arrow))
    table = pa.table(arrays, names=list(COLUMNS))
    if nested:
        fields = [pa.field(name, arrow) for name, (_, arrow, _) in COLUMNS.items()]
        table = table.append_column("s", pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=fields))
    return table


@st.composite
def leaves(draw: st.DrawFn, values: Mapping[str, Sequence[Any]] | None = None, prefix: tuple[str, ...] = ()) -> Predicate:
    """A condition on one column; literals are often taken from ``values``, so that they fall on bounds."""
    name = draw(st.sampled_from(sorted(COLUMNS)))
    data_type, _, any_value = COLUMNS[name]
    seen = [value for value in (values or {}).get(name, []) if value is not None]
    choice = st.one_of(st.none(), any_value, st.sampled_from(seen)) if seen else st.one_of(st.none(), any_value)
    column = Column((*prefix, name))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return IsNull(column)
    if kind == 1:
        return IsNotNull(column)
    if kind == 2:
        return In(column, tuple(Literal(value, data_type) for value in draw(st.lists(choice, max_size=3))))
    if kind == 3 and name == "string":
        text = draw(choice) or ""
        return StartsWith(column, text[: draw(st.integers(0, 40))])
    return Comparison(draw(st.sampled_from(OPERATORS)), column, Literal(draw(choice), data_type))


def predicates(
    values: Mapping[str, Sequence[Any]] | None = None, prefix: tuple[str, ...] = (), *, unknown: bool = False
) -> st.SearchStrategy[Predicate]:
    constants = st.sampled_from([Constant(True), Constant(False), Constant(None), *([Unknown("a test")] if unknown else [])])
    return st.recursive(
        st.one_of(leaves(values, prefix), leaves(values, prefix), leaves(values, prefix), constants),
        lambda parts: st.one_of(
            st.lists(parts, max_size=3).map(lambda some: And(tuple(some))),
            st.lists(parts, max_size=3).map(lambda some: Or(tuple(some))),
            parts.map(Not),
        ),
        max_leaves=5,
    )


def truth(predicate: Predicate, row: Row) -> bool | None:
    """What Spark says of one row. The outcome of `Unknown` is null here, as good as any."""
    match predicate:
        case Constant(value):
            return value
        case Unknown():
            return None
        case And(parts):
            found = [truth(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case IsNull(column):
            return row[column.path[-1]] is None
        case IsNotNull(column):
            return row[column.path[-1]] is not None
        case StartsWith(column, prefix):
            text = row[column.path[-1]]
            return None if text is None else text.startswith(prefix)
        case In(column, literals):
            return truth(Or(tuple(Comparison("=", column, literal) for literal in literals)), row)
        case Comparison(op, column, literal):
            return _compared(op, row[column.path[-1]], literal.value)
    raise AssertionError(predicate)


def _compared(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return (left is None) == (right is None) and (left is None or _order(left) == _order(right))
    if left is None or right is None:
        return None
    a, b = _order(left), _order(right)
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def _order(value: Any) -> Any:
    """A key in which Python orders as Spark does."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value
