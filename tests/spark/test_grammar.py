"""Statements that Spark does not parse itself, read from the tokens of its lexer; all others reach Spark's parser as they are."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from lakelog.spark.front_door import trips
from lakelog.spark.grammar import Statement, Token, parse


@pytest.fixture(scope="module")
def own(delta: SparkSession) -> Any:
    jvm: Any = delta.sparkContext._jvm
    return jvm.lakelog.OwnParser


def read(own: Any, sql: str) -> Statement | None:
    return parse(sql, [Token(*token) for token in orjson.loads(str(own.tokens(sql)))])


@pytest.mark.parametrize(
    ("sql", "table", "change"),
    [
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0)", ("t",), {"kind": "AddConstraint", "name": "c", "expression": "a > 0"}),
        (
            "alter table delta.`/x y/``z` add constraint `a b` check ( (a  >\n0) AND f(')') = ')(' /* ( */ ) enforced;",
            ("delta", "/x y/`z"),
            {"kind": "AddConstraint", "name": "a b", "expression": "(a  >\n0) AND f(')') = ')(' /* ( */"},
        ),
        ("ALTER TABLE a.b.c DROP CONSTRAINT x", ("a", "b", "c"), {"kind": "DropConstraint", "name": "x", "ifExists": False}),
        ("ALTER TABLE t DROP CONSTRAINT IF EXISTS x CASCADE", ("t",), {"kind": "DropConstraint", "name": "x", "ifExists": True}),
        ("ALTER TABLE t DROP FEATURE columnMapping", ("t",), {"kind": "DropFeature", "name": "columnMapping", "truncateHistory": False}),
        (
            "ALTER TABLE t DROP FEATURE 'typeWidening-preview' TRUNCATE HISTORY",
            ("t",),
            {"kind": "DropFeature", "name": "typeWidening-preview", "truncateHistory": True},
        ),
        (
            "-- a note\nALTER TABLE t ALTER COLUMN a.`b.c`.element SET NOT NULL",
            ("t",),
            {"kind": "UpdateColumnNullability", "column": ["a", "b.c", "element"], "nullable": False},
        ),
        ("ALTER TABLE t CHANGE a SET NOT NULL", ("t",), {"kind": "UpdateColumnNullability", "column": ["a"], "nullable": False}),
        ("ALTER TABLE table ALTER COLUMN x SYNC IDENTITY", ("table",), {"kind": "SyncIdentity", "column": ["x"]}),
    ],
)
def test_what_is_read(own: Any, sql: str, table: tuple[str, ...], change: dict[str, object]) -> None:
    found = read(own, sql)
    assert found is not None
    assert found.table == table
    assert found.change == change
    assert found.command.startswith("ALTER TABLE ... ")


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD CONSTRAINT c CHECK ()",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT ENFORCED",
        "ALTER TABLE t ADD CONSTRAINT c CHECK a > 0",
        "ALTER TABLE t ADD CONSTRAINT CHECK (a > 0)",
        "ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY (a)",
        "ALTER TABLE IDENTIFIER('t') ADD CONSTRAINT c CHECK (a > 0)",
        "ALTER TABLE t. DROP CONSTRAINT c",
        "ALTER TABLE t DROP CONSTRAINT",
        "ALTER TABLE t DROP CONSTRAINT c d",
        "ALTER TABLE t `DROP` CONSTRAINT c",
        "ALTER TABLE t DROP FEATURE",
        "ALTER TABLE t DROP COLUMN feature",
        "ALTER TABLE t ALTER COLUMN a SET NOT NULL, b SET NOT NULL",
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT 3",
        "ALTER TABLE t ALTER COLUMN a DROP NOT NULL",
        "ALTER VIEW t ADD CONSTRAINT c CHECK (a > 0)",
        "ALTER",
        "SELECT 1",
        "",
    ],
)
def test_what_is_left_to_spark(own: Any, sql: str) -> None:
    assert read(own, sql) is None


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("  -- x\n /* alter */ /* b */ Alter TABLE", "ALTER"),
        ("/* open", ""),
        ("--", ""),
        ("", ""),
        ("SELECT", "SELECT"),
        ("(SELECT 1)", ""),
        ("ALTERED x", "ALTERED"),
    ],
)
def test_the_first_word(own: Any, sql: str, word: str) -> None:
    assert str(own.firstWord(sql)) == word


def test_only_statements_with_a_first_word_of_ours_are_told_to_python(delta: SparkSession) -> None:
    delta.range(1).createOrReplaceTempView("altered")
    before = trips()
    assert delta.sql("SELECT /* ALTER TABLE */ id FROM altered WHERE id < :most", {"most": 1}).collect() == [(0,)]
    assert delta.sql("/* ALTER */ WITH x AS (SELECT 1 AS a) SELECT a FROM x").collect() == [(1,)]
    assert trips() == before


def test_spark_s_own_errors_stay_as_they_are(delta: SparkSession) -> None:
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        delta.sql("ALTER")
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        delta.sql("SELEC 1")
    with pytest.raises(AnalysisException, match="UNBOUND_SQL_PARAMETER"):
        delta.sql("SELECT :nobody").collect()


def test_tables_of_others_are_spark_s(delta: SparkSession) -> None:
    delta.sql("CREATE TABLE grammar_other (id long) USING parquet")
    try:
        delta.sql("ALTER TABLE grammar_other ADD COLUMN more int")
        assert delta.table("grammar_other").columns == ["id", "more"]
        for statement in (
            "ADD CONSTRAINT c CHECK (id > 0)",
            "DROP FEATURE x",
            "ALTER COLUMN id SYNC IDENTITY",
            "ALTER COLUMN id SET NOT NULL",
        ):
            with pytest.raises(AnalysisException) as caught:
                delta.sql(f"ALTER TABLE grammar_other {statement}")
            assert "lakelog" not in str(caught.value)
    finally:
        delta.sql("DROP TABLE grammar_other")
