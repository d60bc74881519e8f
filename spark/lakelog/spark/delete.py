"""DELETE in its three ways: by partitions alone, by what statistics prove, and by rewriting the files that hold matches.

Where the condition refers to partition columns alone no data file is opened: Spark evaluates it over the partition values. Otherwise
statistics set aside files that cannot match and files that match wholly; Spark finds the matches in the rest, and only files that hold
both kinds of rows are written again, keeping the rows for which the condition is false or null. A condition with a subquery, or one
that need not answer the same twice, is evaluated once and the rows are told apart by their positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from lakelog.core import commit_info
from lakelog.core.actions import AddFile, RemoveFile
from lakelog.core.commit import CommitAttempt, Reads
from lakelog.core.errors import UnsupportedOperationError
from lakelog.core.table_features import check_row_delete, check_writable
from lakelog.spark import data_files, jvm, listing
from lakelog.spark.conditions import Node, predicate_of
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.idempotent import IdempotentWrite
from lakelog.spark.options import parquet_options, user_metadata
from lakelog.spark.transaction import commit, transaction, written_files

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What the JVM says of a DELETE's condition.

    Attributes:
        tree: as ExpressionText tells it; None with a subquery.
        sql: for the history.
        deterministic: whether it answers the same every time.
        subquery: whether it holds one.
        columns: top-level columns of the table that it refers to.
        version: the old version that the statement was aimed at, if any.
    """

    tree: Node | None
    sql: str
    deterministic: bool
    subquery: bool
    columns: tuple[str, ...]
    version: str | None

    @classmethod
    def parse(cls, told: str) -> Condition:
        """From RowSearch.describe()."""
        fields = orjson.loads(told)
        return cls(
            tree=fields["condition"],
            sql=fields["sql"],
            deterministic=fields["deterministic"],
            subquery=fields["subquery"],
            columns=tuple(fields["columns"]),
            version=fields["version"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    reads: Reads
    removed: Mask
    added: tuple[AddFile, ...]
    written: tuple[str, ...]
    metrics: Mapping[str, int]
    deleted_rows: int


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
        by_partition = condition.deterministic and set(condition.columns) <= set(snapshot.partition_columns)
        outcome = _by_partition(held, condition, search) if by_partition else _by_rows(context, spark, held, condition, search)
        # An idempotent DELETE is remembered also where nothing matched: run again it must not find what came later.
        if not outcome.removed.any() and asked.app_id is None:
            return 0
        with written_files(outcome.written):
            now = context.environment.now_ms()
            attempt = CommitAttempt(
                read_version=snapshot.version,
                actions=(*asked.actions(now), *_removals(held, outcome.removed, now), *outcome.added),
                operation=commit_info.delete([condition.sql], metrics={**outcome.metrics, "executionTimeMs": now - started}),
                engine_info=context.engine_info,
                reads=asked.reading(outcome.reads),
                table_id=snapshot.metadata.id,
                user_metadata=user_metadata(spark),
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


def _by_partition(held: HeldSnapshot, condition: Condition, search: Any) -> _Outcome:
    removed = np.frombuffer(bytes(search.partitionMatches(held.id)), np.uint8) != 0
    return _outcome(held, _reads(held, condition, removed), removed, np.zeros(len(removed), np.int64), {})


def _reads(held: HeldSnapshot, condition: Condition, read: Mask) -> Reads:
    """What the statement depends on: the rows that its condition speaks of, and the files that were looked into; with a condition that
    cannot be told again, everything."""
    if condition.tree is None or condition.subquery or not condition.deterministic:
        return Reads(whole_table=True)
    return Reads(predicates=(predicate_of(condition.tree),), files=held.snapshot.files["path"].filter(pa.array(read)))


def _by_rows(context: Context, spark: SparkSession, held: HeldSnapshot, condition: Condition, search: Any) -> _Outcome:
    snapshot, now_ms = held.snapshot, context.environment.now_ms
    check_row_delete(snapshot.protocol, snapshot.metadata, snapshot.root)
    started = now_ms()
    exact = condition.deterministic and condition.tree is not None
    unread = np.full(snapshot.num_files, listing.MAYBE)
    verdicts = listing.classified(held, predicate_of(cast(Node, condition.tree))) if exact else unread
    whole, candidates = verdicts == listing.ALWAYS, verdicts == listing.MAYBE
    reads = _reads(held, condition, whole | candidates)
    name = f"DELETE on {snapshot.root}"
    finding = f"{name}: find the rows"
    positions = None
    counts = np.zeros(snapshot.num_files, np.int64)
    if candidates.any():
        if exact:
            lines = search.matches(held.id, _bytes(candidates), finding)
        else:
            positions = search.positions(held.id, _bytes(candidates), finding)
            lines = search.matchesOf(positions, finding)
        for line in str(lines).splitlines():
            number, count = line.split("\t")
            counts[int(number)] = int(count)
    found_at = now_ms()
    whole |= (counts > 0) & (counts == listing.row_counts(snapshot))
    rewrite = (counts > 0) & ~whole
    adds: tuple[AddFile, ...] = ()
    written: tuple[str, ...] = ()
    if rewrite.any():
        keep = search.survivors(held.id, _bytes(rewrite)) if positions is None else search.survivorsOf(positions, held.id, _bytes(rewrite))
        options = parquet_options(snapshot.metadata.configuration)
        writing = f"{name}: write the files without them"
        files = data_files.write(context, spark, snapshot.root, jvm.frame_from(keep, spark), snapshot.metadata, options, writing)
        adds, written = files.adds, files.uris
    ended = now_ms()
    metrics = {
        "numAddedFiles": len(adds),
        "numAddedBytes": sum(add.size for add in adds),
        "scanTimeMs": found_at - started,
        "rewriteTimeMs": ended - found_at,
    }
    with written_files(written):
        outcome = _outcome(held, reads, whole | rewrite, counts, metrics)
        if rewrite.any():
            total = listing.row_counts(snapshot)[rewrite]
            copied = {"numCopiedRows": int((total - counts[rewrite]).sum())} if (total != listing.UNKNOWN_ROWS).all() else {}
            outcome = replace(outcome, added=adds, written=written, metrics={**outcome.metrics, **copied})
    return outcome


def _outcome(held: HeldSnapshot, reads: Reads, removed: Mask, counts: npt.NDArray[np.int64], metrics: Mapping[str, int]) -> _Outcome:
    """Rows deleted: the matches counted, and the row counts of files that went unread."""
    unread = removed & (counts == 0)
    rows = listing.row_counts(held.snapshot)[unread]
    known = bool((rows != listing.UNKNOWN_ROWS).all())
    deleted = int(counts[removed].sum()) + int(rows.sum()) if known else listing.UNKNOWN_ROWS
    sizes = held.snapshot.files["size"].to_numpy()[removed]
    return _Outcome(
        reads=reads,
        removed=removed,
        added=(),
        written=(),
        metrics={
            "numRemovedFiles": int(removed.sum()),
            "numRemovedBytes": int(sizes.sum()),
            "numAddedFiles": 0,
            "numAddedBytes": 0,
            "numAddedChangeFiles": 0,
            "numCopiedRows": 0,
            "numDeletionVectorsAdded": 0,
            "numDeletionVectorsRemoved": 0,
            "numDeletionVectorsUpdated": 0,
            "scanTimeMs": 0,
            "rewriteTimeMs": 0,
            **({"numDeletedRows": deleted} if known else {}),
            **metrics,
        },
        deleted_rows=deleted,
    )


def _removals(held: HeldSnapshot, removed: Mask, now_ms: int) -> list[RemoveFile]:
    return [data_files.removal(add, now_ms) for add in held.snapshot.add_files(np.flatnonzero(removed).tolist())]


def _bytes(mask: Mask) -> bytes:
    return mask.astype(np.uint8).tobytes()
