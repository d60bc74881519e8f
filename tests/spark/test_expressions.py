"""SQL that a table keeps: what it refers to, and what it may not hold."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidExpressionError
from lakelog.core.field_metadata import CURRENT_DEFAULT, GENERATION_EXPRESSION
from lakelog.core.schema import ArrayType, DecimalType, PrimitiveType, StructField, StructType
from lakelog.spark.expressions import check_columns, check_condition, check_expression, references

LONG, STRING, DOUBLE = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("double")
ADDRESS = StructType((StructField("City", STRING), StructField("zip.code", STRING)))
SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("a.b`c", DOUBLE),
        StructField("address", ADDRESS),
        StructField("items", ArrayType(StructType((StructField("price", LONG),)))),
        StructField("ts", PrimitiveType("timestamp")),
    )
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("id > 0", [("id",)]),
        ("ID > 0 AND id < 9 AND Address.City = 'x'", [("ID",), ("id",), ("Address", "City")]),
        ("`a.b``c` > 1", [("a.b`c",)]),
        ("address.`zip.code` IS NULL", [("address", "zip.code")]),
        ("address['City'] = 'x'", [("address",)]),
        ("forall(items, i -> I.price > id AND exists(items, j -> j.price = i.price))", [("items",), ("id",)]),
        ("1 = 1", []),
    ],
)
def test_references_are_the_names_in_the_letters_of_the_text(delta: SparkSession, sql: str, expected: list[tuple[str, ...]]) -> None:
    assert list(references(delta, sql)) == expected


def test_a_text_that_is_no_expression_is_named(delta: SparkSession) -> None:
    with pytest.raises(InvalidExpressionError, match=r"'id >' is no SQL expression.*Correct it"):
        references(delta, "id >")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("id + 1", LONG),
        ("`A.B``C` * 2", DOUBLE),
        ("ADDRESS.CITY", STRING),
        ("address.`zip.code`", STRING),
        ("items.price", ArrayType(LONG)),
        ("cast(id as decimal(38,38))", DecimalType(38, 38)),
        ("current_timestamp()", PrimitiveType("timestamp")),
        ("aggregate(items, 0L, (acc, i) -> acc + i.price)", LONG),
    ],
)
@pytest.mark.parametrize("case_sensitive", [False, True])
def test_an_expression_over_a_row_has_a_type_in_any_case(delta: SparkSession, sql: str, expected: object, case_sensitive: bool) -> None:
    delta.conf.set("spark.sql.caseSensitive", str(case_sensitive))
    try:
        assert str(check_expression(delta, sql, SCHEMA, "/t", "CHECK constraint c")) == str(expected)
    finally:
        delta.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("id >", "id >"),
        ("missing > 0", "missing"),
        ("address.street = 'x'", "street"),
        ("no_such_function(id) > 0", "no_such_function"),
        ("sum(id) > 0", "an aggregate"),
        ("id > (SELECT 1)", "a subquery"),
        ("id IN (SELECT 1)", "a subquery"),
        ("row_number() OVER (ORDER BY id) > 0", "a window function"),
        ("explode(array(id))", "makes rows"),
        ("rand() > id", "rand("),
        ("uuid() = 'x'", "uuid("),
        ("lakelog_test_udf(id) > 0", "user-defined"),
        ("id + 'a'.b > 0", "id"),
        ("*", "more than one value"),
    ],
)
def test_what_one_row_does_not_tell_is_refused(delta: SparkSession, sql: str, named: str) -> None:
    delta.udf.register("lakelog_test_udf", lambda x: x, "long")
    with pytest.raises(InvalidExpressionError) as caught:
        check_condition(delta, sql, SCHEMA, "/data/t", "CHECK constraint positive")
    message = str(caught.value)
    assert "/data/t" in message
    assert "CHECK constraint positive" in message
    assert named in message
    assert message.count("\n") == 0


def test_a_function_written_in_sql_is_one_of_the_users(delta: SparkSession) -> None:
    delta.sql("CREATE OR REPLACE TEMPORARY FUNCTION lakelog_more(x BIGINT) RETURNS BIGINT RETURN x + 1")
    try:
        with pytest.raises(InvalidExpressionError, match="a user-defined function, which other writers do not have: lakelog_more"):
            check_condition(delta, "lakelog_more(id) > 0", SCHEMA, "/t", "CHECK constraint c")
    finally:
        delta.sql("DROP TEMPORARY FUNCTION lakelog_more")
    check_condition(delta, "abs(id) > 0", SCHEMA, "/t", "CHECK constraint c")


def test_a_session_variable_is_no_column(delta: SparkSession) -> None:
    delta.sql("DECLARE OR REPLACE VARIABLE lakelog_limit BIGINT DEFAULT 5")
    try:
        with pytest.raises(InvalidExpressionError, match="a session variable"):
            check_condition(delta, "id > lakelog_limit", SCHEMA, "/t", "CHECK constraint c")
    finally:
        delta.sql("DROP TEMPORARY VARIABLE lakelog_limit")


def test_a_condition_is_boolean(delta: SparkSession) -> None:
    check_condition(delta, "id > 0", SCHEMA, "/t", "CHECK constraint c")
    with pytest.raises(InvalidExpressionError, match=r"Delta table /t: CHECK constraint c \(id \+ 1\) is of type long, not boolean"):
        check_condition(delta, "id + 1", SCHEMA, "/t", "CHECK constraint c")


def with_column(name: str, kind: PrimitiveType, key: str, sql: str) -> StructType:
    return StructType((*SCHEMA.fields, StructField(name, kind, True, {key: sql})))


def test_generation_expressions_have_the_columns_type_and_stand_on_ordinary_columns(delta: SparkSession) -> None:
    good = with_column("twice", LONG, GENERATION_EXPRESSION, "id * 2")
    check_columns(delta, good, "/t")
    with pytest.raises(InvalidExpressionError, match=r"Delta table /t: .*column twice \(id \* 2\) is of type long.*CAST\(id \* 2 AS int\)"):
        check_columns(delta, with_column("twice", PrimitiveType("integer"), GENERATION_EXPRESSION, "id * 2"), "/t")
    for sql in ("twice + 1", "more + 1"):
        more = StructType((*good.fields, StructField("more", LONG, True, {GENERATION_EXPRESSION: sql})))
        with pytest.raises(InvalidExpressionError, match="column more"):
            check_columns(delta, more, "/t")
    for sql in ("current_timestamp()", "now()", "localtimestamp()"):
        with pytest.raises(InvalidExpressionError, match="depends on when"):
            check_columns(delta, with_column("at", PrimitiveType("timestamp"), GENERATION_EXPRESSION, sql), "/t")
    with pytest.raises(InvalidExpressionError, match="for whom"):
        check_columns(delta, with_column("by", STRING, GENERATION_EXPRESSION, "current_user()"), "/t")


def test_defaults_are_constants_that_become_the_columns_type(delta: SparkSession) -> None:
    for kind, sql in (
        (LONG, "1"),
        (STRING, "'it''s'"),
        (PrimitiveType("timestamp"), "current_timestamp()"),
        (DOUBLE, "CAST('NaN' AS DOUBLE)"),
    ):
        check_columns(delta, with_column("d", kind, CURRENT_DEFAULT, sql), "/t")
    for sql in ("id + 1", "rand()", "(SELECT 1)", "1 +"):
        with pytest.raises(InvalidExpressionError, match="the default of column d"):
            check_columns(delta, with_column("d", LONG, CURRENT_DEFAULT, sql), "/t")
    with pytest.raises(InvalidExpressionError, match=r"the default of column d .*CAST"):
        check_columns(delta, with_column("d", PrimitiveType("date"), CURRENT_DEFAULT, "array(1)"), "/t")
