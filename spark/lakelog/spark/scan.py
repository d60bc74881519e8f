"""Frames over a snapshot that Python holds: a version of a table, or files that no version names yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.actions import AddFile, Metadata, Protocol
from lakelog.core.file_columns import rows_to_files
from lakelog.core.replay import FILES_SCHEMA
from lakelog.core.snapshot import Snapshot
from lakelog.spark import jvm, reading
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.reading import Travel


def frame_of(context: Context, spark: SparkSession, held: HeldSnapshot) -> DataFrame:
    """The rows of a held snapshot, whatever is committed meanwhile."""
    root = context.hadoop_root(held.snapshot.root)
    frame = jvm.table_frame(spark, reading.describe(held, Travel(), root, context.engine(spark, held.snapshot.root).engine))
    return jvm.pinned(frame, spark, root, held.id)


def with_files(context: Context, snapshot: Snapshot, protocol: Protocol, metadata: Metadata, adds: Sequence[AddFile]) -> HeldSnapshot:
    """New files alone as a snapshot of their table, so that they can be read before any commit names them."""
    batches = [rows_to_files([dict(add.to_json()) for add in adds], snapshot.root)] if adds else []
    return with_metadata(context, snapshot, protocol, metadata, pa.Table.from_batches(batches, FILES_SCHEMA))


def with_metadata(
    context: Context, snapshot: Snapshot, protocol: Protocol, metadata: Metadata, files: pa.Table | None = None
) -> HeldSnapshot:
    """A snapshot as it would be under other metadata, with other files where they are given."""
    state = replace(snapshot.state, protocol=protocol, metadata=metadata, files=snapshot.files if files is None else files)
    now_ms = context.environment.now_ms()
    return context.logs.hold(Snapshot.from_state(state, root=snapshot.root, timestamp_ms=snapshot.timestamp_ms, now_ms=now_ms))
