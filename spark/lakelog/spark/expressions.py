"""SQL expressions that a table keeps: conditions of constraints, generation expressions, defaults.

Spark's own parser and analyzer read them, under the settings of the session that asks: with ``spark.sql.ansi.enabled`` an overflow or a
text that is no number is an error, without it null; ``spark.sql.session.timeZone`` decides which day a timestamp falls on. Names of
columns match in any case, also where ``spark.sql.caseSensitive`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.core.constraints import enclosed, invariant_expression, quoted
from lakelog.core.errors import InvalidExpressionError, UnsupportedTypeError
from lakelog.core.field_metadata import CURRENT_DEFAULT, GENERATION_EXPRESSION, INVARIANTS
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, parse_schema, walk
from lakelog.spark import jvm

_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

# What no kept expression may hold: part as the JVM names it -> what it is.
_FORBIDDEN: Mapping[str, str] = {
    "subquery": "a subquery",
    "aggregate": "an aggregate",
    "window": "a window function",
    "generator": "a function that makes rows",
    "function": "a user-defined function, which other writers do not have",
    "variable": "a session variable",
    "nondeterministic": "a part that answers differently each time",
    "shape": "more than one value of one row",
}
_MOMENTARY = "a part whose answer depends on when, or for whom, it runs"


def references(spark: SparkSession, sql: str) -> tuple[tuple[str, ...], ...]:
    """The columns that an expression speaks of, each once, as the parts of their names in the letters of the text.

    A part may be a column, a field of a struct or both in a row: ``address.city``. Parameters of lambda functions are not among them.

    Raises:
        InvalidExpressionError: the text is no expression.
    """
    return references_of(spark, (sql,))[0]


def references_of(spark: SparkSession, texts: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The `references` of several expressions, in one trip to the JVM.

    Raises:
        InvalidExpressionError: one of the texts is no expression.
    """
    try:
        told = orjson.loads(jvm.expression_references(spark, orjson.dumps(texts).decode()))
    except PySparkException as error:
        which = texts[0] if len(texts) == 1 else next(text for text in texts if not _is_expression(spark, text))
        raise InvalidExpressionError(f"{which!r} is no SQL expression that Spark can parse: {reason(error)}. Correct it.") from None
    return tuple(tuple(tuple(parts) for parts in found) for found in told)


def check_expression(
    spark: SparkSession, sql: str, schema: StructType, table: str, what: str, *, momentary: bool = True, columns: bool = True
) -> DataType:
    """The type of an expression over one row of a table, when a table may keep it.

    Args:
        schema: the columns that it may refer to.
        what: what the expression is for, such as ``CHECK constraint positive``; messages name it.
        momentary: whether it may ask for the time or the user, ``current_timestamp()``.
        columns: whether it may refer to columns.

    Raises:
        InvalidExpressionError: it cannot be parsed or resolved (a column or a function that is not there), holds a subquery, an
            aggregate, a window function, a function that makes rows, a user-defined function, a session variable or a part that
            answers differently each time; names the part.
    """
    asked = f"Delta table {table}: {what} ({' '.join(sql.split())})"
    try:
        told = orjson.loads(jvm.expression_facts(spark, sql, _plain(schema).to_json()))
    except PySparkException as error:
        raise InvalidExpressionError(
            f"{asked} is no expression over the table's columns ({', '.join(schema.names)}): {reason(error)}. Correct it."
        ) from None
    forbidden = {**_FORBIDDEN, **({} if momentary else {"momentary": _MOMENTARY})}
    for part, meaning in forbidden.items():
        if part in told:
            raise InvalidExpressionError(
                f"{asked} holds {meaning}: {told[part]}. Use only functions of Spark that tell the same of the same row."
            )
    if told["columns"] and not columns:
        raise InvalidExpressionError(f"{asked} refers to a column ({', '.join(told['columns'])}), which it must not. Use a constant.")
    return _type(told["type"])


def check_condition(spark: SparkSession, sql: str, schema: StructType, table: str, what: str) -> None:
    """Check the condition of a constraint.

    Raises:
        InvalidExpressionError: as `check_expression`, or it is not boolean.
    """
    found = check_expression(spark, sql, schema, table, what)
    if str(found) not in ("boolean", "void"):
        raise InvalidExpressionError(f"Delta table {table}: {what} ({sql}) is of type {found}, not boolean. Make it a condition.")


def check_columns(spark: SparkSession, schema: StructType, table: str) -> None:
    """Check what the columns of a schema promise of their values: every generation expression, and every default, at the top level.

    A generation expression is over columns that are not generated themselves, says the same whenever and for whomever it runs, and is of
    the column's very type. A default refers to no column; it is cast to the column's type as the values of an INSERT are.

    Raises:
        InvalidExpressionError: one is not so; names the column.
    """
    ordinary = StructType(tuple(f for f in schema.fields if GENERATION_EXPRESSION not in f.metadata))
    for field in schema.fields:
        generation, default = field.metadata.get(GENERATION_EXPRESSION), field.metadata.get(CURRENT_DEFAULT)
        if generation is not None:
            _check_generation(spark, str(generation), ordinary, field, table)
        if default is not None:
            what = f"the default of column {field.name}"
            for sql in (str(default), f"CAST((\n{default}\n) AS {sql_type(field.type)})"):
                check_expression(spark, sql, StructType(), table, what, columns=False)


def check_invariants(spark: SparkSession, schema: StructType, table: str) -> None:
    """Check the invariants of a schema's columns, at any depth.

    Raises:
        InvalidExpressionError: one is no condition over the columns; names the column.
        CorruptLogError: one says no expression.
    """
    for path, field in walk(schema):
        if INVARIANTS in field.metadata:
            check_condition(spark, invariant_expression(field, path), schema, table, f"the invariant of column {'.'.join(path)}")


def reason(error: PySparkException) -> str:
    """The first line of what Spark says, without the plan and the place in the text."""
    text = str(error).strip().split("\n", 1)[0]
    return text.split(" SQLSTATE:")[0].rstrip(". ;")


def sql_type(data_type: DataType) -> str:
    """A type as Spark's SQL writes it."""
    if isinstance(data_type, StructType):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{sql_type(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{sql_type(data_type.key)},{sql_type(data_type.value)}>"
    return _SQL_NAMES.get(str(data_type), str(data_type))


def _check_generation(spark: SparkSession, sql: str, ordinary: StructType, field: StructField, table: str) -> None:
    what = f"the generation expression of column {field.name}"
    found = check_expression(spark, sql, ordinary, table, what, momentary=False)
    # Their texts leave out nullability, which Spark's functions change as they like.
    if str(found) != str(field.type):
        raise InvalidExpressionError(
            f"Delta table {table}: {what} ({sql}) is of type {found}, the column of type {field.type}. Cast the expression: "
            f"CAST({enclosed(sql) if '--' in sql else sql} AS {sql_type(field.type)})."
        )


def _is_expression(spark: SparkSession, text: str) -> bool:
    try:
        references(spark, text)
    except InvalidExpressionError:
        return False
    return True


def _plain(schema: StructType) -> StructType:
    """The schema without metadata, which Spark's analyzer would act upon."""
    return StructType(tuple(StructField(f.name, f.type, f.nullable) for f in schema.fields))


def _type(told: object) -> DataType:
    """The type that the JVM spelled as a schema string does; one that no table can hold goes by its name."""
    try:
        field = {"name": "value", "type": told, "nullable": True, "metadata": {}}
        return parse_schema(orjson.dumps({"type": "struct", "fields": [field]}).decode()).fields[0].type
    except UnsupportedTypeError:
        return PrimitiveType(str(told))
