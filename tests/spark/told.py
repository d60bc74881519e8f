"""What the tests of the adapter ask Spark's private handles, in one place."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import LakelogError


@dataclass(frozen=True)
class Execution:
    """One line of Spark's SQL tab."""

    id: int
    description: str
    metrics: dict[str, list[str]]


def executions(spark: SparkSession, since: int = -1) -> list[Execution]:
    """The SQL executions that the SQL tab still shows, with their metrics, oldest first; those with an id above `since`."""
    session = cast(Any, spark)._jsparkSession
    cast(Any, spark.sparkContext)._jsc.sc().listenerBus().waitUntilEmpty()
    store = session.sharedState().statusStore()
    found = store.executionsList()
    told = []
    for i in range(found.length()):
        execution = found.apply(i)
        if execution.executionId() <= since:
            continue
        values = store.executionMetrics(execution.executionId())
        metrics: dict[str, list[str]] = {}
        for j in range(execution.metrics().length()):
            metric = execution.metrics().apply(j)
            value = values.get(metric.accumulatorId())
            if value.isDefined():
                metrics.setdefault(metric.name(), []).append(value.get())
        told.append(Execution(execution.executionId(), execution.description(), metrics))
    return sorted(told, key=lambda execution: execution.id)


def rules(spark: SparkSession) -> dict[str, object]:
    """Class names of everything that `enable` may add to a session."""
    state = cast(Any, spark)._jsparkSession.sessionState()
    analyzer, batches = state.analyzer(), state.optimizer().batches()
    return {
        "strategies": _classes(state.planner().strategies()),
        "hints": _classes(analyzer.hintResolutionRules()),
        "resolution": _classes(analyzer.extendedResolutionRules()),
        "post-hoc": _classes(analyzer.postHocResolutionRules()),
        "checks": _classes(analyzer.extendedCheckRules()),
        "parser": state.sqlParser().getClass().getName(),
        "optimizer": [(batches.apply(i).name(), _classes(batches.apply(i).rules())) for i in range(batches.length())],
        "catalog": state.catalogManager().v2SessionCatalog().getClass().getName(),
    }


def _classes(sequence: Any) -> list[str]:
    return [sequence.apply(i).getClass().getName() for i in range(sequence.length())]


def register(spark: SparkSession, table: str, path: str) -> None:
    """Make a table of the metastore into one whose provider is Delta, as delta-spark leaves it there."""
    jvm: Any = spark.sparkContext._jvm
    catalog = cast(Any, spark)._jsparkSession.sharedState().externalCatalog()
    spark.sql(f"CREATE TABLE {table} (id long) USING parquet LOCATION '{path}'")
    known = catalog.getTable("default", table)
    provider = known.getClass().getDeclaredField("provider")
    provider.setAccessible(True)
    provider.set(known, jvm.scala.Option.apply("delta"))
    catalog.alterTable(known)
    cast(Any, spark)._jsparkSession.sessionState().catalog().invalidateAllCachedTables()


def check_ours(caught: pytest.ExceptionInfo[LakelogError]) -> str:
    """The message of an error, once it is known to show nothing of Java and of how it came here."""
    error = caught.value
    assert error.__cause__ is None
    shown = "".join(traceback.format_exception(error))
    for trace in ("Py4JJavaError", "JVM stacktrace", "org.apache.spark", "LakelogException", ".java:", "direct cause", "During handling"):
        assert trace not in str(error)
        assert trace not in shown, shown
    return str(error)
