"""What a commit says about itself, in delta-spark's words (PROTOCOL.md, "Commit Provenance Information").

History tools and other engines look for delta-spark's operation names, parameters and metrics, so these are its own:
a list is JSON text inside a string (``"[\\"month\\"]"``), a flag a bare boolean, a metric a number in a string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelog.core.actions import CommitInfo
from lakelog.core.errors import InvalidOptionError
from lakelog.core.records import COMPACT_JSON, JSON

# Operations that rearrange rows or describe them, as delta-spark's ``changesData`` has it.
_REARRANGING = frozenset(
    {"OPTIMIZE", "REORG", "COMPUTE STATS", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "REMOVE COLUMN MAPPING"}
)

_SAVE_MODES = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "errorifexists": "ErrorIfExists",
    "default": "ErrorIfExists",
    "ignore": "Ignore",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as the history shows it.

    Attributes:
        name: as delta-spark spells it: ``WRITE``, ``DELETE``.
        parameters: in delta-spark's form; lists already JSON text.
        metrics: counts, bytes and milliseconds, as numbers or as text.
    """

    name: str
    parameters: Mapping[str, JSON] = field(default_factory=dict)
    metrics: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def changes_data(self) -> bool:
        """Whether operations of this name are for changing rows, whatever one commit of theirs does."""
        return self.name not in _REARRANGING

    def with_metrics(self, metrics: Mapping[str, int | str]) -> Operation:
        """The same operation with more metrics; equal names take the new value."""
        return replace(self, metrics={**self.metrics, **metrics})


def write(
    mode: str,
    partition_by: Sequence[str] = (),
    *,
    predicate: str | None = None,
    is_dynamic_partition_overwrite: bool | None = None,
    can_overwrite_schema: bool | None = None,
    can_merge_schema: bool | None = None,
    replace_on: str | None = None,
    replace_using: str | None = None,
    metrics: Mapping[str, int | str] | None = None,
) -> Operation:
    """``WRITE``.

    Args:
        mode: Spark's save mode in any spelling: append, overwrite, error, errorifexists, ignore.
        partition_by: the columns the writer named.
        predicate: what an overwrite replaces, as SQL; None for all.
        is_dynamic_partition_overwrite: left out when None, as are the four that follow.
        metrics: numFiles, numOutputBytes, numOutputRows; for an overwrite numRemovedFiles and numRemovedBytes too.

    Raises:
        InvalidOptionError: Spark has no such save mode.
    """
    name = _SAVE_MODES.get(mode.lower())
    if name is None:
        raise InvalidOptionError(f"there is no save mode {mode!r}; use append, overwrite, error or ignore")
    optional: dict[str, JSON] = {
        "predicate": predicate,
        "isDynamicPartitionOverwrite": is_dynamic_partition_overwrite,
        "canOverwriteSchema": can_overwrite_schema,
        "canMergeSchema": can_merge_schema,
        "replaceOnCond": replace_on,
        "replaceUsingCols": replace_using,
    }
    parameters = {"mode": name, "partitionBy": json_text(list(partition_by))}
    return Operation(
        name="WRITE",
        parameters={**parameters, **{key: value for key, value in optional.items() if value is not None}},
        metrics=metrics or {},
    )


def delete(predicate: Sequence[str] = (), *, metrics: Mapping[str, int | str] | None = None) -> Operation:
    """``DELETE``.

    Args:
        predicate: the condition as SQL, in one item per conjunct or one in all; empty for all rows.
        metrics: numRemovedFiles, numRemovedBytes, numAddedFiles, numAddedBytes, numDeletedRows, numCopiedRows,
            numAddedChangeFiles, executionTimeMs, scanTimeMs, rewriteTimeMs.
    """
    return Operation(name="DELETE", parameters={"predicate": json_text(list(predicate))}, metrics=metrics or {})


def commit_info(
    operation: Operation,
    *,
    timestamp_ms: int,
    read_version: int | None,
    isolation_level: str | None,
    is_blind_append: bool,
    txn_id: str,
    engine_info: str,
    user_metadata: str | None = None,
    in_commit_timestamp_ms: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> CommitInfo:
    """The first action of a commit.

    Args:
        timestamp_ms: milliseconds since the epoch.
        read_version: the version the operation read; None (or -1) for the commit that creates the table.
        isolation_level: ``Serializable``, or ``SnapshotIsolation`` for a commit that changes no data.
        txn_id: fresh for every attempt; what tells one's own commit from another's after an unknown outcome.
        engine_info: ``Apache-Spark/4.3.0 lakelog/0.1.0``.
        in_commit_timestamp_ms: only with the feature inCommitTimestamp.
        tags: left out when empty.
    """
    return CommitInfo(
        in_commit_timestamp=in_commit_timestamp_ms,
        timestamp=timestamp_ms,
        operation=operation.name,
        operation_parameters=dict(operation.parameters),
        read_version=None if read_version is None or read_version < 0 else read_version,
        isolation_level=isolation_level,
        is_blind_append=is_blind_append,
        operation_metrics={name: str(value) for name, value in operation.metrics.items()},
        user_metadata=user_metadata,
        tags=dict(tags) if tags else None,
        engine_info=engine_info,
        txn_id=txn_id,
    )


def parameter_texts(values: Mapping[str, JSON]) -> dict[str, str | None]:
    """Operation parameters or metrics as the history's map of strings: text stays, null stays, the rest is JSON text."""
    return {name: value if value is None or isinstance(value, str) else json_text(value) for name, value in values.items()}


def json_text(value: JSON) -> str:
    """Compact JSON with letters of any script as they are."""
    return COMPACT_JSON.encode(value)
