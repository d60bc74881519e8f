from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import ColumnNotFoundError, UnsupportedOperationError
from lakelog.core.predicates import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
    conjunction,
    disjunction,
    evaluate_rows,
    has_unknown,
    negate,
    references,
)
from lakelog.core.schema import DecimalType, PrimitiveType

from .predicate_models import arrow_table, predicates, rows, truth

A, B = Column(("a",)), Column(("b",))
INT, DOUBLE, STRING = PrimitiveType(name="integer"), PrimitiveType(name="double"), PrimitiveType(name="string")


@given(st.data())
def test_rows_evaluate_as_the_straight_line_model(data: st.DataObject) -> None:
    some_rows = data.draw(rows(max_size=6))
    values = {name: [row[name] for row in some_rows] for name in (some_rows[0] if some_rows else ())}
    predicate = data.draw(predicates(values))
    assert evaluate_rows(predicate, arrow_table(some_rows)).to_pylist() == [truth(predicate, row) for row in some_rows]


@given(st.data())
def test_a_pushed_down_negation_means_the_same(data: st.DataObject) -> None:
    some_rows = data.draw(rows(min_size=1, max_size=3))
    predicate = data.draw(predicates({name: [row[name] for row in some_rows] for name in some_rows[0]}))
    for row in some_rows:
        assert truth(negate(predicate), row) == truth(Not(predicate), row)


def test_fields_of_a_null_struct_are_null() -> None:
    table = pa.table({"s": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())]))})
    column = Column(("s", "a"))
    assert evaluate_rows(IsNull(column), table).to_pylist() == [False, True, True]
    assert evaluate_rows(Comparison("=", column, Literal(1, INT)), table).to_pylist() == [True, None, None]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("=", [True, False, None]),
        ("<", [False, True, None]),
        ("<=", [True, True, None]),
        (">", [False, False, None]),
        ("<=>", [True, False, False]),
    ],
)
def test_nan_equals_itself_and_is_the_largest(op: Any, expected: list[bool | None]) -> None:
    table = pa.table({"a": pa.array([math.nan, math.inf, None])})
    assert evaluate_rows(Comparison(op, A, Literal(math.nan, DOUBLE)), table).to_pylist() == expected


def test_negative_zero_is_zero() -> None:
    table = pa.table({"a": [0.0, -0.0]})
    for zero in (0.0, -0.0):
        assert evaluate_rows(Comparison("=", A, Literal(zero, DOUBLE)), table).to_pylist() == [True, True]
        assert evaluate_rows(In(A, (Literal(zero, DOUBLE),)), table).to_pylist() == [True, True]
        assert evaluate_rows(Comparison("<", A, Literal(zero, DOUBLE)), table).to_pylist() == [False, False]


def test_strings_are_ordered_by_their_utf8_bytes() -> None:
    # In UTF-16, as in Java's String, the emoji would come before U+FFFD.
    table = pa.table({"a": ["\U0001f600", "\ufffd"]})
    assert evaluate_rows(Comparison(">", A, Literal("\ufffd", STRING)), table).to_pylist() == [True, False]


def test_an_in_list_with_null_is_never_false() -> None:
    table = pa.table({"a": pa.array([1, 2, None], pa.int32())})
    assert evaluate_rows(In(A, (Literal(1, INT), Literal(None, INT))), table).to_pylist() == [True, None, None]
    assert evaluate_rows(In(A, (Literal(1, INT), Literal(7, INT))), table).to_pylist() == [True, False, None]


def test_integers_and_decimals_compare_exactly() -> None:
    table = pa.table({"a": pa.array([2**53, 2**53 + 1], pa.int64())})
    literal = Literal(Decimal(2**53 + 1), DecimalType(precision=20, scale=0))
    assert evaluate_rows(Comparison("=", A, literal), table).to_pylist() == [False, True]


def test_a_literal_of_another_kind_is_refused_naming_column_and_types() -> None:
    with pytest.raises(UnsupportedOperationError, match=r"column a of type int64 cannot be compared with .*double"):
        evaluate_rows(Comparison("=", A, Literal(1.0, DOUBLE)), pa.table({"a": [1]}))
    with pytest.raises(UnsupportedOperationError, match="'x' is no value of type"):
        evaluate_rows(Comparison("=", A, Literal("x", INT)), pa.table({"a": [1]}))


def test_absent_columns_are_named() -> None:
    with pytest.raises(ColumnNotFoundError, match="column b is not among the columns a"):
        evaluate_rows(IsNull(B), pa.table({"a": [1]}))
    with pytest.raises(ColumnNotFoundError, match=r"column a\.x: there is no field x in int64"):
        evaluate_rows(IsNull(Column(("a", "x"))), pa.table({"a": [1]}))


def test_what_is_unknown_cannot_be_evaluated() -> None:
    with pytest.raises(UnsupportedOperationError, match=r"rand\(\) < 1"):
        evaluate_rows(Unknown("rand() < 1"), pa.table({"a": [1]}))
    assert has_unknown(And((TRUE, Not(Unknown("x")))))
    assert not has_unknown(Or((TRUE, Not(FALSE))))


def test_references_are_the_columns_of_all_parts() -> None:
    assert references(And((Not(IsNull(A)), Or((StartsWith(B, "x"), TRUE))))) == {A, B}


def test_chains_are_flat() -> None:
    parts = [IsNull(A)] * 5_000
    chain = TRUE
    for part in parts:
        chain = conjunction(chain, part) if chain != TRUE else part
    assert chain == And(tuple(parts))
    assert conjunction() == TRUE
    assert disjunction() == FALSE
    assert disjunction(IsNull(B)) == IsNull(B)
    assert disjunction(Or((IsNull(A),)), IsNull(B)) == Or((IsNull(A), IsNull(B)))


def test_chunks_dictionaries_and_nanoseconds_are_understood() -> None:
    micros = PrimitiveType(name="timestamp_ntz")
    chunked = pa.chunked_array([pa.array([-1], pa.timestamp("ns")), pa.array([1_000], pa.timestamp("ns"))])
    assert evaluate_rows(Comparison("=", A, Literal(-1, micros)), pa.table({"a": chunked})).to_pylist() == [True, False]
    words = pa.array(["x", None, "y"]).dictionary_encode()
    assert evaluate_rows(Comparison("=", A, Literal("y", STRING)), pa.table({"a": words})).to_pylist() == [False, None, True]
    assert evaluate_rows(Constant(None), pa.table({"a": words})).to_pylist() == [None] * 3
    assert evaluate_rows(TRUE, pa.table({"a": pa.chunked_array([], pa.int64())})).to_pylist() == []
