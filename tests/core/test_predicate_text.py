from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given

from lakelog.core.predicate_text import predicate_text
from lakelog.core.predicates import (
    FALSE,
    TRUE,
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
from lakelog.core.schema import DecimalType, PrimitiveType
from tests.core.predicate_models import predicates

A, B = Column(("a",)), Column(("s", "b.c"))
INT, STRING = PrimitiveType("integer"), PrimitiveType("string")


def equals(value: object, kind: str = "integer") -> Comparison:
    return Comparison("=", A, Literal(value, PrimitiveType(kind)))  # type: ignore[arg-type]


def numbers(count: int) -> tuple[Literal, ...]:
    return tuple(Literal(number, INT) for number in range(count))


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (TRUE, "true"),
        (FALSE, "false"),
        (Constant(None), "null"),
        (Unknown("udf(a)"), "<udf(a)>"),
        (Comparison("<=>", B, Literal(None, STRING)), "s.`b.c` <=> null"),
        (equals(True, "boolean"), "a = true"),
        (equals(-7), "a = -7"),
        (equals(0.5, "double"), "a = 0.5"),
        (equals("it's", "string"), "a = 'it\\'s'"),
        (equals("x" * 60, "string"), f"a = '{'x' * 60}'"),
        (equals("x" * 61, "string"), f"a = '{'x' * 60}...'"),
        (equals(b"\x00\xff", "binary"), "a = X'00ff'"),
        (equals(b"\x00" * 31, "binary"), f"a = X'{'00' * 30}...'"),
        (equals(19000, "date"), "a = date'2022-01-08'"),
        (equals(5, "timestamp"), "a = timestamp'1970-01-01 00:00:00.000005'"),
        (equals(5, "timestamp_ntz"), "a = timestamp_ntz'1970-01-01 00:00:00.000005'"),
        (Comparison("<", A, Literal(Decimal("1.50"), DecimalType(5, 2))), "a < 1.50"),
        (In(A, ()), "a IN ()"),
        (In(A, numbers(5)), "a IN (0, 1, 2, 3, 4)"),
        (In(A, numbers(6)), "a IN (0, 1, 2, 3, 4, ...)"),
        (StartsWith(A, "ab"), "a LIKE 'ab%'"),
        (IsNull(A), "a IS NULL"),
        (IsNotNull(A), "a IS NOT NULL"),
        (Not(IsNull(A)), "NOT a IS NULL"),
        (Not(And((equals(1), equals(2)))), "NOT (a = 1 AND a = 2)"),
        (And((equals(1), Or((IsNull(A), equals(2))), Not(equals(3)))), "a = 1 AND (a IS NULL OR a = 2) AND NOT a = 3"),
        (Or((And((equals(1), equals(2))), equals(3))), "(a = 1 AND a = 2) OR a = 3"),
        (And(tuple(equals(n) for n in range(8))), " AND ".join(f"a = {n}" for n in range(8))),
        (Or(tuple(equals(n) for n in range(9))), " OR ".join([*(f"a = {n}" for n in range(8)), "..."])),
        (And(()), "true"),
        (Or(()), "false"),
        (Not(And(())), "NOT true"),
        (Or((Or(()), equals(1))), "false OR a = 1"),
    ],
)
def test_a_predicate_in_words(predicate: Predicate, text: str) -> None:
    assert predicate_text(predicate) == text


@given(predicates(unknown=True))
def test_any_predicate_has_words(predicate: Predicate) -> None:
    text = predicate_text(predicate)
    assert text
    assert "()" not in text.replace(" IN ()", "")
