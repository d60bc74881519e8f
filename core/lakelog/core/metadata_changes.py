"""What another writer's change of a table's metadata means for an attempt that is under way.

A change of table properties alone leaves the attempt as it is where every key that changed is one of these:

1. `_HARMLESS`: what readers, checkpoints and clean-up act on, and wishes about the layout of files that break no promise when a file
   misses them.
2. ``delta.appendOnly``, unless it is set and the attempt removes rows; ``delta.enableDeletionVectors``, unless it is unset and the
   attempt adds a file that has one.
3. ``delta.constraints.*`` that were dropped; one that was added or changed only where the attempt adds no rows.
4. ``delta.columnMapping.mode`` from ``none`` to ``name`` with ``delta.columnMapping.maxColumnId``, where every column keeps its name as
   physical name, so that the attempt's files and partition values mean the same.
5. Those of in-commit timestamps, and of row tracking but for names of columns that were others before: what a commit holds of either is
   made for the version at which it is put (`lakelog.core.commit.placed`).

Everything else stands in the way: another key, known or not, the schema (but for the marks of 4 and the high-water marks of identity
columns), the partitioning, the format, the table's id, name and description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakelog.core import row_tracking
from lakelog.core.actions import AddFile, Metadata
from lakelog.core.commit import CommitAttempt
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, parse_schema, walk
from lakelog.core.table_properties import (
    APPEND_ONLY,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    COLUMN_MAPPING_MODE,
    COMPRESSION_CODEC,
    CONSTRAINT_PREFIX,
    DELETED_FILE_RETENTION,
    DELETION_VECTORS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
    IN_COMMIT_TIMESTAMPS,
    LOG_RETENTION,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    NUM_INDEXED_COLS,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    ROW_TRACKING,
    SET_TRANSACTION_RETENTION,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    WRITE_STATS_AS_JSON,
    WRITE_STATS_AS_STRUCT,
)

_HARMLESS = frozenset(
    {
        CHECKPOINT_INTERVAL.key,
        CHECKPOINT_POLICY.key,
        COMPRESSION_CODEC.key,
        DELETED_FILE_RETENTION.key,
        ENABLE_EXPIRED_LOG_CLEANUP.key,
        LOG_RETENTION.key,
        NUM_INDEXED_COLS.key,
        RANDOMIZE_FILE_PREFIXES.key,
        RANDOM_PREFIX_LENGTH.key,
        SET_TRANSACTION_RETENTION.key,
        STATS_COLUMNS.key,
        STRING_PREFIX_LENGTH.key,
        WRITE_STATS_AS_JSON.key,
        WRITE_STATS_AS_STRUCT.key,
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpointRetentionDuration",
        "delta.dropFeatureTruncateHistory.retentionDuration",
        "delta.enableFullRetentionRollback",
        "delta.sampleRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)

_MADE_FOR_THE_VERSION = frozenset(
    {
        IN_COMMIT_TIMESTAMPS.key,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
        ROW_TRACKING.key,
        row_tracking.SUSPENDED,
    }
)
_MATERIALIZED = frozenset({MATERIALIZED_ROW_ID, MATERIALIZED_ROW_COMMIT_VERSION})

_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_COLUMN_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_HIGH_WATER_MARK = "delta.identity.highWaterMark"


def hindrance(attempt: CommitAttempt, before: Metadata, after: Metadata) -> str | None:
    """What of the change keeps the attempt from following it, in words (``set delta.enableChangeDataFeed to 'true'``); None for nothing.

    Args:
        attempt: made on a table with the metadata ``before``, and without metadata of its own.
        before: in force until the change.
        after: what the other commit wrote.

    Raises:
        CorruptLogError: a schema cannot be parsed.
        InvalidTablePropertyError: a property that decides cannot be parsed.
    """
    old_schema, new_schema = parse_schema(before.schema_json), parse_schema(after.schema_json)
    maps_columns = _starts_column_mapping(before.configuration, after.configuration) and _keeps_names(new_schema)
    for key in sorted(before.configuration.keys() | after.configuration.keys()):
        old, new = before.configuration.get(key), after.configuration.get(key)
        if old != new and not _passes(attempt, key, before.configuration, after.configuration, maps_columns=maps_columns):
            return f"unset {key}" if new is None else f"set {key} to {new!r}"
    if _bare(old_schema, mapping=maps_columns) != _bare(new_schema, mapping=maps_columns):
        return f"changed the schema ({_difference(old_schema, new_schema)})"
    if before.partition_columns != after.partition_columns:
        return f"changed the partitioning from {list(before.partition_columns)} to {list(after.partition_columns)}"
    for name in ("id", "name", "description"):
        if getattr(before, name) != getattr(after, name):
            return f"changed the table's {name}"
    if _format(before) != _format(after):
        return "changed the table's format"
    return None


def _passes(attempt: CommitAttempt, key: str, before: Mapping[str, str], after: Mapping[str, str], *, maps_columns: bool) -> bool:
    if key in _HARMLESS or key in _MADE_FOR_THE_VERSION:
        return True
    if key == DELETION_VECTORS.key:
        # A file without a deletion vector is as good on a table that may have them.
        adds = (action for action in attempt.actions if isinstance(action, AddFile))
        return DELETION_VECTORS.of(after) or not any(add.deletion_vector for add in adds)
    if key == APPEND_ONLY.key:
        return not (attempt.removes_rows and APPEND_ONLY.of(after))
    if key.startswith(CONSTRAINT_PREFIX):
        return key not in after or not attempt.adds_rows
    if key in _MATERIALIZED:
        return key not in before
    return maps_columns and key in (COLUMN_MAPPING_MODE.key, _MAX_COLUMN_ID)


def _starts_column_mapping(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    return COLUMN_MAPPING_MODE.of(before) == "none" and COLUMN_MAPPING_MODE.of(after) == "name"


def _keeps_names(schema: StructType) -> bool:
    return all(field.metadata.get(_PHYSICAL_NAME) == field.name for _, field in walk(schema))


def _format(metadata: Metadata) -> tuple[str, dict[str, str | None]]:
    """Writers leave out options where there are none, or write them empty, or as null."""
    return metadata.format.provider, dict(metadata.format.options or {})


def _bare(data_type: StructType, *, mapping: bool) -> StructType:
    """The schema without marks that say nothing to a running attempt."""
    return StructType(tuple(_bare_field(field, mapping=mapping) for field in data_type.fields))


def _bare_field(field: StructField, *, mapping: bool) -> StructField:
    dropped = {_HIGH_WATER_MARK}
    if mapping:
        dropped |= {_COLUMN_ID, _PHYSICAL_NAME}
    metadata = {key: value for key, value in field.metadata.items() if key not in dropped}
    return replace(field, type=_bare_type(field.type, mapping=mapping), metadata=metadata)


def _bare_type(data_type: DataType, *, mapping: bool) -> DataType:
    match data_type:
        case StructType():
            return _bare(data_type, mapping=mapping)
        case ArrayType():
            return replace(data_type, element=_bare_type(data_type.element, mapping=mapping))
        case MapType():
            return replace(data_type, key=_bare_type(data_type.key, mapping=mapping), value=_bare_type(data_type.value, mapping=mapping))
        case _:
            return data_type


def _difference(before: StructType, after: StructType) -> str:
    old, new = {field.name: field for field in before.fields}, {field.name: field for field in after.fields}
    told = [
        *(f"column {name} added" for name in new if name not in old),
        *(f"column {name} gone" for name in old if name not in new),
        *(f"column {name} is {field.type} now" for name, field in new.items() if name in old and str(old[name].type) != str(field.type)),
    ]
    return ", ".join(told) or "the columns' order, nullability or metadata"
