"""Taking rows out of a table in three ways: by partitions alone, by what statistics prove, and by rewriting the files that hold both kinds.

Where the condition refers to partition columns alone no data file is opened: Spark evaluates it over the partition values. Otherwise
statistics set aside files that cannot match and files that match wholly; Spark finds the matches in the rest, and only files that hold
both kinds of rows are written again, keeping the rows for which the condition is false or null. A condition with a subquery, or one
that need not answer the same twice, is evaluated once and the rows are told apart by their positions.

On a table with a change data feed a rewritten file alone does not tell which rows went, so the rows that went are written as change data,
those of the files that went as a whole too: once a commit holds one change file it holds all changes (PROTOCOL.md, "Add CDC File").
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
from pyspark.sql import functions as F

from lakelog.core.actions import AddCDCFile, AddFile, RemoveFile
from lakelog.core.change_data import CHANGE_TYPE, needs_change_files
from lakelog.core.commit import Reads
from lakelog.spark import data_files, jvm, listing
from lakelog.spark.conditions import Node, predicate_of
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.options import parquet_options
from lakelog.spark.transaction import written_files

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What the JVM says of the condition of a row-level command.

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

    def by_partition(self, held: HeldSnapshot) -> bool:
        """Whether partition values alone answer it."""
        return self.deterministic and set(self.columns) <= set(held.snapshot.partition_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What taking rows out comes to, before any commit.

    Attributes:
        reads: what the decision depends on.
        removed: per file of the snapshot, whether it goes.
        added: files that hold the rows that stay of files that go.
        changes: the rows that went, where the table has a change data feed and a file was rewritten.
        written: absolute URIs of all files written.
        metrics: in delta-spark's names.
        deleted_rows: how many rows went; `listing.UNKNOWN_ROWS` where the log does not tell.
    """

    reads: Reads
    removed: Mask
    added: tuple[AddFile, ...] = ()
    changes: tuple[AddCDCFile, ...] = ()
    written: tuple[str, ...] = ()
    metrics: Mapping[str, int]
    deleted_rows: int

    def removals(self, held: HeldSnapshot, now_ms: int, *, data_change: bool = True) -> list[RemoveFile]:
        """The tombstones of the files that go."""
        gone = held.snapshot.add_files(np.flatnonzero(self.removed).tolist())
        return [data_files.removal(add, now_ms, data_change=data_change) for add in gone]


def removal_of_all(held: HeldSnapshot, reads: Reads) -> Removal:
    """Every file goes, none is opened."""
    return _summed(held, reads, np.ones(held.snapshot.num_files, np.bool_), np.zeros(held.snapshot.num_files, np.int64), {})


def removal_of_files(held: HeldSnapshot, reads: Reads, removed: Mask) -> Removal:
    """Some files go, none is opened."""
    return _summed(held, reads, removed, np.zeros(len(removed), np.int64), {})


def removal(context: Context, spark: SparkSession, held: HeldSnapshot, condition: Condition, search: Any, name: str) -> Removal:
    """Find and take out the rows for which the condition is true.

    Args:
        search: the JVM's RowSearch for the same condition.
        name: what Spark's UI calls the jobs: ``DELETE on /tmp/t``.

    Raises:
        ConstraintViolationError, WriteFailedError: the files that stay in part could not be written again; nothing is left behind.
    """
    if condition.by_partition(held):
        removed = np.frombuffer(bytes(search.partitionMatches(held.id)), np.uint8) != 0
        return removal_of_files(held, _reads(held, condition, removed), removed)
    return _by_rows(context, spark, held, condition, search, name)


def _reads(held: HeldSnapshot, condition: Condition, read: Mask) -> Reads:
    """What the statement depends on: the rows that its condition speaks of, and the files that were looked into; with a condition that
    cannot be told again, everything."""
    if condition.tree is None or condition.subquery or not condition.deterministic:
        return Reads(whole_table=True)
    return Reads(predicates=(predicate_of(condition.tree),), files=held.snapshot.files["path"].filter(pa.array(read)))


def _by_rows(context: Context, spark: SparkSession, held: HeldSnapshot, condition: Condition, search: Any, name: str) -> Removal:
    snapshot, now_ms = held.snapshot, context.environment.now_ms
    started = now_ms()
    exact = condition.deterministic and condition.tree is not None
    unread = np.full(snapshot.num_files, listing.MAYBE)
    verdicts = listing.classified(held, predicate_of(cast(Node, condition.tree))) if exact else unread
    whole, candidates = verdicts == listing.ALWAYS, verdicts == listing.MAYBE
    reads = _reads(held, condition, whole | candidates)
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
    if not rewrite.any():
        return _summed(held, reads, whole, counts, {"scanTimeMs": found_at - started})
    kept = search.survivors(held.id, _bytes(rewrite)) if positions is None else search.survivorsOf(positions, held.id, _bytes(rewrite))
    options = parquet_options(snapshot.metadata.configuration)
    writing = f"{name}: write the files without them"
    files = data_files.write(
        context, spark, snapshot.root, jvm.frame_from(kept, spark), snapshot.metadata, options, writing, protocol=snapshot.protocol
    )
    with written_files(context, files.uris):
        changes, change_uris = _changes(context, spark, held, search, positions, whole | rewrite, name)
    with written_files(context, (*files.uris, *change_uris)):
        total = listing.row_counts(snapshot)[rewrite]
        metrics = {
            "numAddedFiles": len(files.adds),
            "numAddedBytes": files.bytes,
            "numAddedChangeFiles": len(changes),
            "scanTimeMs": found_at - started,
            "rewriteTimeMs": now_ms() - found_at,
            **({"numCopiedRows": int((total - counts[rewrite]).sum())} if (total != listing.UNKNOWN_ROWS).all() else {}),
        }
        outcome = _summed(held, reads, whole | rewrite, counts, metrics)
        return replace(outcome, added=files.adds, changes=changes, written=(*files.uris, *change_uris))


def _changes(
    context: Context, spark: SparkSession, held: HeldSnapshot, search: Any, positions: Any, removed: Mask, name: str
) -> tuple[tuple[AddCDCFile, ...], tuple[str, ...]]:
    snapshot = held.snapshot
    if not needs_change_files(snapshot.metadata.configuration, rewrites=True):
        return (), ()
    gone = search.matched(held.id, _bytes(removed)) if positions is None else search.matchedOf(positions, held.id, _bytes(removed))
    frame = jvm.frame_from(gone, spark).withColumn(CHANGE_TYPE, F.lit("delete"))
    options = parquet_options(snapshot.metadata.configuration)
    writing = f"{name}: write the rows that went as change data"
    return data_files.write_change_files(
        context, spark, snapshot.root, frame, snapshot.metadata, options, writing, protocol=snapshot.protocol
    )


def _summed(held: HeldSnapshot, reads: Reads, removed: Mask, counts: npt.NDArray[np.int64], metrics: Mapping[str, int]) -> Removal:
    """Rows deleted: the matches counted, and the row counts of files that went unread."""
    unread = removed & (counts == 0)
    rows = listing.row_counts(held.snapshot)[unread]
    known = bool((rows != listing.UNKNOWN_ROWS).all())
    deleted = int(counts[removed].sum()) + int(rows.sum()) if known else listing.UNKNOWN_ROWS
    sizes = held.snapshot.files["size"].to_numpy()[removed]
    return Removal(
        reads=reads,
        removed=removed,
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


def _bytes(mask: Mask) -> bytes:
    return mask.astype(np.uint8).tobytes()
