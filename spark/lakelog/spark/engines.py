"""Which known engines can read or write a table."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakelog.core import known_engines
from lakelog.core.errors import SessionNotEnabledError
from lakelog.core.known_engines import EngineSupport
from lakelog.spark.session import context_of
from lakelog.spark.table import DeltaTable


def who_can_read(table: DeltaTable | str) -> tuple[EngineSupport, ...]:
    """What each known engine can do with a table as its newest version is.

    The facts are about releases of a date and from a source, which each names: see `lakelog.core.known_engines`.

    Args:
        table: a table, or the path of one in the active Spark session.

    Raises:
        NotADeltaTableError: no Delta table is at the path.
        SessionNotEnabledError: a path was given, and no session is active.
    """
    if isinstance(table, DeltaTable):
        spark, path = table._spark, table._path
    elif isinstance(table, str):
        active = SparkSession.getActiveSession()
        if active is None:
            raise SessionNotEnabledError(f"There is no active Spark session to find {table} in. Give a DeltaTable instead.")
        spark, path = active, table
    else:
        raise TypeError(f"table must be a DeltaTable or a str, not {type(table).__name__}")
    context = context_of(spark)
    return known_engines.who_can_read(context.logs.newest(context.root(spark, path)).snapshot.protocol)
