"""Rows that a table refuses: NOT NULL, CHECK, invariants and lengths, at any depth; what is said of them, and that nothing is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.actions import Metadata
from lakelog.core.constraints import Constraint
from lakelog.core.errors import ConstraintViolationError, CorruptLogError, InvalidExpressionError
from lakelog.core.field_metadata import CHAR_VARCHAR_TYPE, INVARIANTS
from lakelog.core.schema import StructType, parse_schema
from lakelog.spark import DeltaTable, jvm
from lakelog.spark.checks import enforced
from lakelog.spark.violations import explained
from tests.core.schema_models import compare_for_write
from tests.spark.tables import Action, array, field, make_log, mapping, parquet_files, rows, save, struct, versions

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 6}
LONG = field("id", "long")


@pytest.fixture
def path(tmp_path: object) -> str:
    return str(tmp_path) + "/the table"


def table(path: str, *fields: Action, partition_by: Sequence[str] = (), **constraints: str) -> str:
    """An empty table with CHECK constraints."""
    properties = {f"delta_constraints_{name}": sql for name, sql in constraints.items()}
    return make_log(path, struct(*fields), partition_by=partition_by, protocol=PROTOCOL, **properties)


def refused(path: str, write: Callable[[], object], *told: str) -> str:
    """The message of the violation, which names the table and what is told, and after which nothing is new."""
    before = versions(path), parquet_files(path)
    with pytest.raises(ConstraintViolationError) as caught:
        write()
    message = str(caught.value)
    for part in (f"Delta table {path}: ", "Nothing was committed.", *told):
        assert part in message
    assert (versions(path), parquet_files(path)) == before
    return message


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    before = {key: spark.conf.get(key, None) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


# CHECK ---------------------------------------------------------------------------------------------------------------


def test_a_check_refuses_false_and_null_and_lets_the_rest_through(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("v", "string"), positive="id > 0", known="v IN ('a', 'b')")
    save(delta.sql("SELECT 1L id, 'a' v UNION ALL SELECT 2L, 'b'"), path)
    assert rows(delta, path) == [(1, "a"), (2, "b")]
    drop = f"drop the constraint: ALTER TABLE delta.`{path}` DROP CONSTRAINT"
    refused(
        path, lambda: save(delta.sql("SELECT -1L id, 'a' v"), path), "CHECK constraint positive id > 0", " - id : -1\n", f"{drop} positive"
    )
    refused(path, lambda: save(delta.sql("SELECT CAST(NULL AS BIGINT) id, 'a' v"), path), "CHECK constraint positive", " - id : null\n")
    refused(path, lambda: save(delta.sql("SELECT 1L id, 'c' v"), path, "overwrite"), "CHECK constraint known", " - v : c\n")
    assert rows(delta, path) == [(1, "a"), (2, "b")]


def test_up_to_five_rows_are_shown_of_the_columns_that_count(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("v", "string"), small="ID < 990")
    message = refused(path, lambda: save(delta.range(1000).withColumn("v", F.lit("secret")), path), "CHECK constraint small")
    assert message.count("\n - id : ") == 5
    assert "secret" not in message
    few = delta.range(1000).withColumn("v", F.lit("x")).where("id < 500 OR id = 995").coalesce(1)
    assert refused(path, lambda: save(few, path), " - id : 995\n").count("\n - ") == 1
    shuffled = delta.range(1000).repartition(2).withColumn("v", F.lit("x"))
    message = refused(path, lambda: shuffled.write.format("delta").mode("append").save(path), " - id : 99")
    assert message.count("\n - ") == 1


@pytest.mark.parametrize("case_sensitive", ["true", "false"])
def test_conditions_speak_of_columns_in_any_case_with_dots_and_backticks(delta: SparkSession, path: str, case_sensitive: str) -> None:
    inner = struct(field("Zip.Code", "string"), field("City", "string"))
    fields = (field("a.b`c", "long"), field("S", inner), field("L", array(struct(field("X", "long")))))
    table(path, *fields, one="`A.B``C` > 0", two="s.`zip.code` = 'z' AND S.CITY IS NOT NULL", three="forall(l, i -> I.x < 10)")
    given = "SELECT 1L `A.B``c`, named_struct('zip.code', '{}', 'CITY', 'c') s, array(named_struct('x', {}L)) l"
    with conf(delta, spark__sql__caseSensitive=case_sensitive):
        metadata, schema = _metadata_of(path)
        assert _checked(delta, delta.sql(given.format("z", 1)), metadata, schema).collect()[0][0] == 1
        for sql, name in ((given.format("y", 1), "two"), (given.format("z", 10), "three")):
            frame = _checked(delta, delta.sql(sql), metadata, schema)
            assert f"CHECK constraint {name} " in str(_violation(frame, path))


def _metadata_of(path: str) -> tuple[Metadata, StructType]:
    """What the log says, for names that a table without column mapping cannot be written with."""
    with open(f"{path}/_delta_log/{0:020d}.json", encoding="utf-8") as file:
        told = [json.loads(line) for line in file]
    metadata = Metadata.from_json(told[1]["metaData"])
    return metadata, parse_schema(metadata.schema_json)


def _checked(delta: SparkSession, frame: DataFrame, metadata: Metadata, schema: StructType, *extra: Constraint) -> DataFrame:
    given = parse_schema(jvm.schema_json(frame))
    plans = compare_for_write(schema, given, table_name="/t")
    return enforced(delta, frame, given, metadata, plans, root="/t", extra=extra)


def _violation(frame: DataFrame, path: str) -> ConstraintViolationError:
    with pytest.raises(Exception, match="lakelog constraint") as caught:
        frame.collect()
    found = explained(caught.value, path, "a test", frame)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_frame_without_anything_to_do_is_written_as_it_is(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("n", "long", nullable=False))
    metadata, schema = _metadata_of(path)
    frame = delta.range(3).selectExpr("id", "id AS n")
    assert _checked(delta, frame, metadata, schema) is frame
    nullable = delta.range(3).selectExpr("id", "nullif(id, 5) AS n")
    assert _checked(delta, nullable, metadata, schema) is not nullable


def test_a_condition_that_the_write_demands_besides(delta: SparkSession, path: str) -> None:
    table(path, LONG)
    metadata, schema = _metadata_of(path)
    demanded = Constraint(name="", expression="id >= 2", kind="replaceWhere")
    frame = _checked(delta, delta.range(4), metadata, schema, demanded)
    message = str(_violation(frame, path))
    assert "replaceWhere id >= 2" in message
    assert "- id : 0" in message
    assert _checked(delta, delta.range(2, 4), metadata, schema, demanded).count() == 2


def test_rows_that_a_limit_cuts_off_are_not_checked(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("v", "string"), small="id < 10")
    frame = delta.range(0, 1000, 1, 4).withColumn("v", F.lit("x")).limit(10)
    frame.write.format("delta").mode("append").save(path)
    assert len(rows(delta, path)) == 10


def test_a_struct_column_is_no_table_of_that_name(delta: SparkSession, path: str) -> None:
    table(path, field("s", struct(field("x", "long"))), field("x", "long"), c="s.x > 5")
    delta.sql("SELECT named_struct('x', 9L) s, 1L x").createOrReplaceTempView("s")
    save(delta.table("s"), path)
    assert rows(delta, path) == [((9,), 1)]


def test_checks_see_defaults_casts_and_what_is_missing(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("d", "long", CURRENT_DEFAULT="7"), field("n", "string"), c="d = 7 AND id < 100 AND n IS NULL")
    save(delta.sql("SELECT CAST(1 AS TINYINT) id"), path)
    assert rows(delta, path) == [(1, 7, None)]
    refused(path, lambda: save(delta.sql("SELECT CAST(1 AS TINYINT) id, 8 d"), path), " - d : 8, id : 1, n : null\n")


def test_a_partitioned_table_is_checked_too(delta: SparkSession, path: str) -> None:
    table(path, LONG, field("p", "string"), partition_by=["p"], c="p <> 'b' AND id > 0")
    save(delta.sql("SELECT 1L id, 'a' p"), path)
    refused(path, lambda: save(delta.sql("SELECT 1L id, 'b' p"), path), "CHECK constraint c ", " - p : b, id : 1\n")
    refused(path, lambda: save(delta.sql("SELECT 1L id, CAST(NULL AS STRING) p"), path), " - p : null, id : 1\n")


def test_texts_of_any_kind_arrive_in_the_message(delta: SparkSession, path: str) -> None:
    table(path, field("v", "string"), field("n", "double"), c='v = "it\'s" -- a remark')
    odd = "${x} \\ \"quoted\" 'single' \n line é 😀 lakelog constraint abc 1 {"
    frame = delta.createDataFrame([(odd, math.nan)], "v string, n double")
    refused(path, lambda: save(frame, path), f" - v : {odd}\n")
    long = delta.createDataFrame([("x" * 10_000, 1.0)], "v string, n double")
    message = refused(path, lambda: save(long, path), "(10000 characters)")
    assert len(message) < 1500
    save(delta.createDataFrame([("it's", -0.0)], "v string, n double"), path)


def test_exotic_values_pass_and_are_told(delta: SparkSession, path: str) -> None:
    kinds = (
        field("n", "double"),
        field("d", "decimal(38,38)"),
        field("t", "timestamp"),
        field("b", "binary"),
        field("m", mapping("string", "long")),
    )
    table(path, *kinds, c="n = n AND d > -1 AND t > TIMESTAMP '0001-01-01 00:00:00'", e="b IS NULL OR length(b) < 4")
    sql = "SELECT double('{n}') n, CAST('{d}' AS DECIMAL(38,38)) d, TIMESTAMP '{t}' t, CAST('{b}' AS BINARY) b, map('k', 1L) m"
    digits = "0." + "1" * 38
    save(delta.sql(sql.format(n="NaN", d=digits, t="9999-12-31 23:59:59.999999", b="abc")), path)
    save(delta.sql(sql.format(n="-0.0", d=digits, t="0001-01-02 00:00:00", b="")), path)
    found = {str(row[0]): row for row in rows(delta, path)}
    assert set(found) == {"nan", "-0.0"}
    assert {row[1] for row in found.values()} == {Decimal(digits)}
    early = sql.format(n="NaN", d=digits, t="0001-01-01 00:00:00", b="abc")
    refused(path, lambda: save(delta.sql(early), path), "CHECK constraint c ", f"d : {digits}", "n : NaN", "t : 0001-01-01T00:00:00")
    refused(path, lambda: save(delta.sql(sql.format(n="1", d=digits, t="2024-01-01 00:00:00", b="abcd")), path), "CHECK constraint e ")


def test_ansi_decides_between_null_and_an_error(delta: SparkSession, path: str) -> None:
    table(path, field("v", "string"), c="CAST(v AS INT) > 0")
    bad = delta.sql("SELECT 'no number' v")
    with conf(delta, spark__sql__ansi__enabled="false"):
        refused(path, lambda: save(bad, path), "CHECK constraint c ", " - v : no number\n")
    with conf(delta, spark__sql__ansi__enabled="true"), pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        save(bad, path)
    assert versions(path) == [0]


def test_the_sessions_zone_decides_the_day(delta: SparkSession, path: str) -> None:
    table(path, field("t", "timestamp"), c="to_date(t) = DATE '2024-01-01'")
    frame = delta.createDataFrame([(1704067200,)], "s long").selectExpr("timestamp_seconds(s) t")
    with conf(delta, spark__sql__session__timeZone="UTC"):
        save(frame, path)
    with conf(delta, spark__sql__session__timeZone="America/New_York"):
        refused(path, lambda: save(frame, path), "CHECK constraint c ", "2023-12-31T19:00:00")


def test_an_expression_that_cannot_be_evaluated_is_named(delta: SparkSession, path: str) -> None:
    table(path, LONG, good="id > 0", bad="gone > 0")
    with pytest.raises(InvalidExpressionError, match=r"the table: CHECK constraint bad \(gone > 0\).*gone"):
        save(delta.range(3), path)
    assert versions(path) == [0]
    other = table(path + "2", LONG, bad="id >")
    with pytest.raises(InvalidExpressionError, match=r"the table2: CHECK constraint bad \(id >\)"):
        save(delta.range(3), other)


@pytest.mark.parametrize("told", ["garbage", "{}", '{"expression": 1}'])
def test_an_invariant_that_cannot_be_read(delta: SparkSession, path: str, told: str) -> None:
    make_log(path, struct(field("id", "long", **{INVARIANTS: told})), protocol={"minReaderVersion": 1, "minWriterVersion": 2})
    widened = f"ALTER TABLE delta.`{path}` ALTER COLUMN id TYPE decimal(20, 0)"
    for act in (lambda: save(delta.range(3), path), lambda: save(delta.range(3), path, "overwrite"), lambda: delta.sql(widened)):
        with pytest.raises(CorruptLogError, match=r"Delta table .*: The invariant of column id is .*says no expression\.") as caught:
            act()
        assert f"Delta table {path}: " in str(caught.value)
    assert versions(path) == [0]


def test_an_invariant_is_a_condition(delta: SparkSession, path: str) -> None:
    told = json.dumps({"expression": {"expression": "id > 3"}})
    make_log(path, struct(field("id", "long", **{INVARIANTS: told})), protocol={"minReaderVersion": 1, "minWriterVersion": 2})
    save(delta.range(4, 6), path)
    refused(path, lambda: save(delta.range(3, 5), path), "the invariant of column id (id > 3)", " - id : 3\n")


# NOT NULL ------------------------------------------------------------------------------------------------------------

REQUIRED = field("x", "long", nullable=False)


@pytest.mark.parametrize(
    ("kind", "good", "bad", "name"),
    [
        ({"type": "array", "elementType": "long", "containsNull": False}, "array(1L)", "array(1L, NULL)", "c.element"),
        (array(struct(REQUIRED)), "array(NULL, named_struct('x', 1L))", "array(named_struct('x', NULL))", "c.element.x"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
            "map('k', 1L)",
            "map('k', NULL)",
            "c.value",
        ),
        (mapping("string", struct(REQUIRED)), "map('k', NULL)", "map('k', named_struct('x', NULL))", "c.value.x"),
        (struct(field("s", struct(REQUIRED))), "named_struct('s', NULL)", "named_struct('s', named_struct('x', NULL))", "c.s.x"),
    ],
    ids=["element", "struct in array", "map value", "struct in map", "struct in struct"],
)
def test_nulls_are_found_at_any_depth(delta: SparkSession, path: str, kind: object, good: str, bad: str, name: str) -> None:
    table(path, LONG, field("c", kind))
    for value in (good, "NULL"):
        save(delta.sql(f"SELECT 1L id, {value} c"), path)
    message = refused(path, lambda: save(delta.sql(f"SELECT 42L id, {bad} c"), path), f"NOT NULL constraint violated for column: {name}.")
    assert "id : 42" in message
    assert len(rows(delta, path)) == 2


# char(n) and varchar(n) ----------------------------------------------------------------------------------------------


def declared(name: str, kind: object, text: str) -> Action:
    return field(name, kind, **{CHAR_VARCHAR_TYPE: text})


def test_char_is_padded_and_varchar_loses_spaces_beyond_its_length(delta: SparkSession, path: str) -> None:
    inner = struct(field("a", "string"), field("b", array("string")))
    table(
        path,
        declared("c", "string", "char(4)"),
        declared("v", "string", "varchar(3)"),
        declared("s", inner, "struct<a:char(2),b:array<varchar(2)>>"),
        declared("m", mapping("string", "string"), "map<char(2),varchar(2)>"),
    )
    save(delta.sql("SELECT 'é😀' c, 'ab   ' v, named_struct('a', 'x', 'b', array('y ', NULL)) s, map('k', 'v') m"), path)
    save(delta.sql("SELECT 'abcd  ' c, '' v, NULL s, NULL m"), path)
    raw = delta.read.parquet(path).collect()
    assert sorted(tuple(row) for row in raw if row.s is None) == [("abcd", "", None, None)]
    assert [tuple(row) for row in raw if row.s is not None] == [("é😀  ", "ab ", ("x ", ["y ", None]), {"k ": "v"})]


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("c", "'abcde'", 'Value "abcde" exceeds char/varchar type length limitation: 4. Column c '),
        (
            "v",
            "repeat('x', 10000)",
            "exceeds char/varchar type length limitation: 3. Column v may hold no more characters than that, 10000 ",
        ),
        ("s", "named_struct('a', array('ok', 'bad'))", 'Value "bad" exceeds char/varchar type length limitation: 2. Column s.a.element '),
        ("m", "map('key', 'v')", 'Value "key" exceeds char/varchar type length limitation: 2. Column m.key '),
        ("m", "map('k', 'value')", 'Value "value" exceeds char/varchar type length limitation: 2. Column m.value '),
    ],
)
def test_strings_beyond_their_length_are_refused(delta: SparkSession, path: str, column: str, value: str, told: str) -> None:
    table(
        path,
        declared("c", "string", "char(4)"),
        declared("v", "string", "varchar(3)"),
        declared("s", struct(field("a", array("string"))), "struct<a:array<varchar(2)>>"),
        declared("m", mapping("string", "string"), "map<char(2),varchar(2)>"),
    )
    refused(path, lambda: save(delta.sql(f"SELECT {value} {column}"), path), told)
    with conf(delta, spark__sql__legacy__charVarcharAsString="true"):
        save(delta.sql(f"SELECT {value} {column}"), path)


@pytest.mark.parametrize("value", ["''", "'__HIVE_DEFAULT_PARTITION__'", "trim(' ')"])
def test_what_a_partition_column_takes_for_null_is_refused_where_it_is_not_null(delta: SparkSession, tmp_path: Path, value: str) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(delta).location(path).addColumn("id", "int").addColumn("p", "string", nullable=False).partitionedBy("p").execute()
    with pytest.raises(ConstraintViolationError, match="NOT NULL constraint violated for column: p"):
        delta.sql(f"SELECT 1 id, {value} p").write.format("delta").mode("append").save(path)
    delta.sql("SELECT 1 id, 'x' p").write.format("delta").mode("append").save(path)
    assert delta.read.format("delta").load(path).collect() == [(1, "x")]
