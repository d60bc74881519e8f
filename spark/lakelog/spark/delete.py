"""DELETE: one commit that takes out the rows for which a condition is true."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from lakelog.core import commit_info
from lakelog.core.commit import CommitAttempt
from lakelog.core.errors import UnsupportedOperationError
from lakelog.core.table_features import check_writable
from lakelog.spark import jvm
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.idempotent import IdempotentWrite
from lakelog.spark.options import user_metadata
from lakelog.spark.row_changes import Condition, removal
from lakelog.spark.transaction import commit, transaction, written_files


def delete(context: Context, spark: SparkSession, root: str, told: str, search: Any) -> int:
    """Delete the rows for which the condition is true; commit once, or not at all when none matches and the session names no application.

    Args:
        root: the table's root, unencoded.
        told: the condition, from RowSearch.describe().
        search: the JVM's RowSearch.

    Returns:
        How many rows were deleted; -1 when whole files went whose row count the log does not tell.

    Raises:
        UnsupportedOperationError: the table is append-only, or an old version was named.
        UnsupportedFeatureError: a writer feature is active that is not implemented.
        DeltaConcurrentModificationException: another commit landed meanwhile; the table is as it left it.
    """
    condition = Condition.parse(told)
    with transaction("DELETE", root):
        asked = IdempotentWrite.of(spark, root)
        started = context.environment.now_ms()
        held = context.logs.newest(root)
        if asked.is_done(held.snapshot):
            asked.used(spark)
            return 0
        _check(held, condition)
        snapshot = held.snapshot
        outcome = removal(context, spark, held, condition, search, f"DELETE on {root}")
        # An idempotent DELETE is remembered also where nothing matched: run again it must not find what came later.
        if not outcome.removed.any() and asked.app_id is None:
            return 0
        with written_files(context, outcome.written):
            now = context.environment.now_ms()
            attempt = CommitAttempt(
                read_version=snapshot.version,
                actions=(*asked.actions(now), *outcome.removals(held, now), *outcome.added, *outcome.changes),
                operation=commit_info.delete([condition.sql], metrics={**outcome.metrics, "executionTimeMs": now - started}),
                engine_info=context.engine_info,
                reads=asked.reading(outcome.reads),
                table_id=snapshot.metadata.id,
                user_metadata=user_metadata(spark, root),
            )

        def landed() -> None:
            asked.used(spark)
            jvm.refresh_cached(spark, context.hadoop_root(root))

        commit(context, root, attempt, outcome.written, landed)
    landed()
    return outcome.deleted_rows


def _check(held: HeldSnapshot, condition: Condition) -> None:
    snapshot = held.snapshot
    if condition.version is not None:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: DELETE was aimed at version {condition.version}. Leave out the version: "
            "only the newest can be changed."
        )
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root)
    if snapshot.properties.append_only:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: DELETE removes data, but the table is append-only (table property delta.appendOnly = true). "
            "Unset the property first."
        )
