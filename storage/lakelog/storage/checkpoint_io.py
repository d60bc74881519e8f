"""Checkpoints as Parquet bytes: what `lakelog.core.checkpoint` says, read from and written to a LogStore."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.core.checkpoint import CHECKPOINT_SCHEMA, checkpoint_table, read_checkpoint
from lakelog.core.errors import CorruptLogError, UnsupportedFeatureError
from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.core.log_files import LAST_CHECKPOINT, CheckpointFile, V2Checkpoint, checkpoint_name
from lakelog.core.replay import LogState
from lakelog.core.snapshot import Snapshot
from lakelog.storage.log_store import LogStore

# Rows that are Arrow columns of the checkpoint's own schema at one time.
_BATCH_ROWS = 65_536

_FEW_ROWS = 1024

# Readers that prune by row groups (deltalake, DuckDB) gain from several; one of this size costs little to open.
_ROW_GROUP_ROWS = 131_072

# Every row is an action of its own, with a path or a name that no other has: more of them in a file are a bomb of run lengths.
_ROWS_PER_BYTE = 16

_PARSED_STATS = "stats_parsed"
# Derived from columns that are read anyway.
_DERIVED = frozenset({_PARSED_STATS, "partitionValues_parsed"})


def load_checkpoint(store: LogStore, folder: str, files: Sequence[CheckpointFile], *, root: str) -> LogState:
    """The state in a complete checkpoint.

    Args:
        store: where the log is.
        folder: the log folder.
        files: the checkpoint's only file, or all its parts.
        root: the table's root, for messages and file keys.

    Raises:
        CorruptLogError: a file is gone, cut short or not a checkpoint.
        UnsupportedFeatureError: the checkpoint follows the V2 spec.
        OSError: the store cannot read.
    """
    version = files[0].version
    if any(isinstance(file, V2Checkpoint) for file in files):
        raise UnsupportedFeatureError(
            f"Delta table {root}: the checkpoint {files[0].name} follows the V2 spec (table feature v2Checkpoint), "
            "which this lakelog does not read. Use a newer lakelog, or drop the feature from the table.",
            features=["v2Checkpoint"],
        )
    return read_checkpoint(_batches(store, folder, files, root), version=version, root=root)


def save_checkpoint(store: LogStore, folder: str, snapshot: Snapshot, *, now_ms: int) -> LastCheckpoint:
    """Write the snapshot as a classic checkpoint of one file, then the hint at it.

    Raises:
        OSError: the store cannot write; a reader never sees a part of either file.
        InvalidTablePropertyError: see `checkpoint_table`.
    """
    table = checkpoint_table(snapshot, now_ms=now_ms)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, CHECKPOINT_SCHEMA, compression="snappy", write_page_checksum=True) as writer:
        writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
    data = buffer.getvalue()
    store.put(f"{folder}/{checkpoint_name(snapshot.version)}", data)
    hint = LastCheckpoint(version=snapshot.version, size=table.num_rows, size_in_bytes=len(data), num_of_add_files=snapshot.num_files)
    store.put(f"{folder}/{LAST_CHECKPOINT}", hint.to_bytes())
    return hint


def load_hint(store: LogStore, folder: str) -> LastCheckpoint | None:
    """What ``_last_checkpoint`` says, None where it is missing or damaged."""
    try:
        return LastCheckpoint.from_bytes(store.read(f"{folder}/{LAST_CHECKPOINT}"))
    except (OSError, CorruptLogError):
        # A hint and no more: whatever is wrong with it, the listing tells the same.
        return None


def _batches(store: LogStore, folder: str, files: Sequence[CheckpointFile], root: str) -> Iterator[pa.RecordBatch]:
    for file in files:
        try:
            data = store.read(f"{folder}/{file.name}")
        except FileNotFoundError as error:
            raise CorruptLogError(f"Delta table {root}: the checkpoint {file.name} is gone") from error
        try:
            yield from _parquet_batches(data)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLogError(f"Delta table {root}: the checkpoint {file.name} cannot be read: {error}") from error


def _parquet_batches(data: bytes) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
        schema = parquet.schema_arrow
        rows = parquet.metadata.num_rows
        if rows > len(data) * _ROWS_PER_BYTE:
            raise ValueError(f"{len(data)} bytes cannot hold the {rows} actions that it claims")
        for group in range(parquet.metadata.num_row_groups):
            columns = _columns(schema, with_parsed_stats=_lacks_json_stats(schema, parquet.metadata.row_group(group)))
            # Few rows are read sooner than threads are told of them.
            threads = rows > _FEW_ROWS
            yield from parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=columns, use_threads=threads)


def _columns(schema: pa.Schema, *, with_parsed_stats: bool) -> list[str]:
    """Column paths to read: everything but what is derived, unless struct statistics are the only ones."""
    left_out = _DERIVED - {_PARSED_STATS} if with_parsed_stats else _DERIVED
    names: list[str] = []
    for field in schema:
        if field.name == "add" and pa.types.is_struct(field.type):
            names.extend(f"add.{child.name}" for child in field.type if child.name not in left_out)
        else:
            names.append(field.name)
    return names


def _lacks_json_stats(schema: pa.Schema, group: pq.RowGroupMetaData) -> bool:
    """Whether some ``add`` row has statistics in struct form and may have none as JSON."""
    index = schema.get_field_index("add")
    if index < 0 or not pa.types.is_struct(schema.field(index).type):
        return False
    names = {child.name for child in schema.field(index).type}
    if _PARSED_STATS not in names:
        return False
    if "stats" not in names:
        return True
    nulls = {}
    for position in range(group.num_columns):
        column = group.column(position)
        if column.path_in_schema in ("add.path", "add.stats"):
            statistics = column.statistics
            if statistics is None or statistics.null_count is None:
                return True
            nulls[column.path_in_schema] = statistics.null_count
    return nulls.get("add.path") != nulls.get("add.stats")
