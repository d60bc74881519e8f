"""Names of tables in Spark's session catalog, whose metastore knows a Delta table's place and nothing more: the log says the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.core.errors import InvalidRequestError, NotADeltaTableError
from lakelog.spark import jvm

# What the session catalog lets a table be called.
_TABLE_NAME = re.compile(r"[A-Za-z0-9_]+")


class Kind(StrEnum):
    """What a name stands for."""

    PATH = "path"
    TABLE = "table"
    VIEW = "view"
    TEMPORARY_VIEW = "temporary view"
    ABSENT = "absent"
    NO_DATABASE = "no database"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A name as Spark resolves it, now.

    Attributes:
        text: as it was given.
        kind: what it stands for.
        location: of a path or a table; of a free name the place that a managed table of that name gets.
        database: in the session catalog; None for a path, a temporary view and a name of another catalog.
        table: the name without its qualifiers, where ``database`` is not None.
        provider: of a table.
        delta: whether that provider is Delta.
        managed: whether the table's files are dropped with it.
    """

    text: str
    kind: Kind
    location: str = ""
    database: str | None = None
    table: str = ""
    provider: str = ""
    delta: bool = False
    managed: bool = False

    @property
    def qualified(self) -> str:
        """With catalog and database, as delta-spark's ``detail`` shows it."""
        return f"spark_catalog.{self.database}.{self.table}"


def resolved(spark: SparkSession, name: str) -> TableName:
    """What a name stands for: a temporary view, a table or view of the session catalog, or ``delta.`/path` ``.

    Raises:
        InvalidRequestError: the text is no name of a table.
    """
    try:
        told = orjson.loads(jvm.table_name(spark, name))
    except PySparkException as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise InvalidRequestError(
            f"{name!r} is no name of a table: {reason} Put names with special characters in backticks; a path is written delta.`/path`."
        ) from None
    kind = Kind(told["kind"])
    return TableName(
        text=name,
        kind=kind,
        location=told["parts"][-1] if kind is Kind.PATH else told.get("location", ""),
        database=told.get("database"),
        table=told.get("table", ""),
        provider=told.get("provider", ""),
        delta=told.get("delta", False),
        managed=told.get("managed", False),
    )


def delta_table(spark: SparkSession, name: str) -> TableName:
    """What a name stands for, when that is a Delta table: its path, or an entry of the session catalog.

    Raises:
        NotADeltaTableError: it is a view, a table of another format, a name of another catalog, or nothing.
        InvalidRequestError: the text is no name of a table.
    """
    found = resolved(spark, name)
    if found.kind is Kind.PATH or (found.kind is Kind.TABLE and found.delta):
        return found
    raise NotADeltaTableError(f"{name} is not a Delta table: {explained(found)}")


def explained(found: TableName) -> str:
    """What a name that is no Delta table is instead, and what to do."""
    match found.kind:
        case Kind.TABLE:
            return f"it is a table of the format {found.provider}. Give the name of a Delta table, or read it with spark.table."
        case Kind.VIEW | Kind.TEMPORARY_VIEW:
            return f"it is a {found.kind.value}. Give the name of the table behind it, or read the view with spark.table."
        case Kind.NO_DATABASE:
            return (
                f"there is no database {found.database} in Spark's catalog. Check the name; a path is written delta.`/path`, from the root "
                "on."
            )
        case Kind.ELSEWHERE:
            return (
                "it belongs to another catalog than spark_catalog, the one whose tables lakelog serves. Name it "
                "spark_catalog.<database>.<table>, or use its path."
            )
        case _:
            return (
                f"there is no table {found.table} in the database {found.database} of Spark's catalog. Check the name and the current "
                "database; a path is written delta.`/path`."
            )


def check_registrable(found: TableName) -> None:
    """That a table can be entered in the session catalog under a name.

    Raises:
        NotADeltaTableError: there is no such database, or the name belongs to another catalog.
        InvalidRequestError: the session catalog does not let tables be called so.
    """
    if found.kind in (Kind.NO_DATABASE, Kind.ELSEWHERE):
        raise NotADeltaTableError(f"Delta table {found.text} cannot be created: {explained(found)}")
    if _TABLE_NAME.fullmatch(found.table) is None:
        raise InvalidRequestError(
            f"Delta table {found.text} cannot be created: Spark's catalog takes names of letters, digits and _ alone, not {found.table!r}. "
            "Choose another name, or leave tableName out and give a location."
        )


def register(spark: SparkSession, name: TableName, *, location: str, managed: bool) -> str | None:
    """Enter a Delta table in the session catalog.

    Args:
        name: a free one.
        location: as Hadoop spells the table's root.
        managed: whether Spark is to drop the files with the table.

    Returns:
        What went wrong, None for nothing.
    """
    assert name.database is not None
    try:
        jvm.register_table(spark, name.database, name.table, location, managed=managed)
    except PySparkException as error:
        return str(error).strip().split("\n", 1)[0]
    except Py4JJavaError as error:
        return jvm.root_cause(error)
    return None
