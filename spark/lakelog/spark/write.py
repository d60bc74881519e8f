"""``df.write.format("delta")``: what the write means for the table, then files, then one commit.

An append of rows from elsewhere is blind: it reads nothing of the table. An overwrite depends on what it replaces, an append of rows that
come from the table itself on all of the version that it read: they follow no commit that added or removed such rows, but for blind
appends to a WriteSerializable table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core import commit_info
from lakelog.core.actions import Action, AddCDCFile, AddFile, Metadata
from lakelog.core.change_data import CHANGE_TYPE
from lakelog.core.commit import NO_VERSION, CommitAttempt, Reads
from lakelog.core.constraints import Constraint
from lakelog.core.errors import (
    ConcurrentWriteException,
    InvalidOptionError,
    NotADeltaTableError,
    TableExistsError,
    UnsupportedOperationError,
    UnsupportedTypeError,
)
from lakelog.core.field_metadata import GENERATION_EXPRESSION, IDENTITY_START
from lakelog.core.metadata_update import MetadataUpdate, SchemaRequest, update_for_write
from lakelog.core.schema import StructType, parse_schema
from lakelog.core.table_features import check_writable
from lakelog.spark import data_files, jvm
from lakelog.spark.checks import enforced
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.idempotent import IdempotentWrite
from lakelog.spark.identity import advanced
from lakelog.spark.options import Kind, WriteRequest, default_properties, parquet_options, user_metadata
from lakelog.spark.replacing import Predicated, check_match, replaced_all, replaced_by_match, replaced_partitions, replaced_where
from lakelog.spark.row_changes import Removal
from lakelog.spark.scan import frame_of, with_files, with_metadata
from lakelog.spark.transaction import commit, transaction, written_files

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The table that a write goes to, as it will be.

    Attributes:
        held: as it is; None where the write makes it.
        base: the same files under the new schema, for what a partial overwrite must look for.
        kind: what goes; None where nothing does.
        predicated: the predicate of replaceWhere over `base`.
        alias: what the frame calls itself in a replaceOn.
    """

    held: HeldSnapshot | None
    base: HeldSnapshot | None
    update: MetadataUpdate
    kind: Kind | None
    predicated: Predicated | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What a write left on the medium, and what of the table it takes the place of."""

    adds: tuple[AddFile, ...]
    changes: tuple[AddCDCFile, ...]
    removal: Removal | None
    metadata: Metadata
    uris: tuple[str, ...]
    metrics: Mapping[str, int]


def save(context: Context, spark: SparkSession, request: WriteRequest, frame: DataFrame, *, filled: bool = False) -> HeldSnapshot:
    """Write a frame to a table, which is made if it is not there.

    Args:
        filled: Spark has put nulls into the frame for columns that an INSERT did not name.

    Returns:
        The table's newest snapshot.

    Raises:
        TableExistsError: the mode is ErrorIfExists and the table exists.
        SchemaMismatchError: the frame does not fit the table; lists every difference.
        ConstraintViolationError: rows that the table, or replaceWhere, does not allow; shows some.
        InvalidSchemaError, PartitionColumnError, UnsupportedTypeError, InvalidTablePropertyError: a new table cannot be made so.
        UnsupportedFeatureError: the table needs a writer feature that lakelog does not implement.
        UnsupportedOperationError: the table is append-only and the mode is Overwrite.
        DeltaConcurrentModificationException: another commit stands in the way.
    """
    root = request.root
    with transaction("WRITE", root):
        asked = IdempotentWrite.of(spark, root, request)
        held = _existing(context, root)
        if held is not None and asked.is_done(held.snapshot):
            asked.used(spark)
            return held
        if held is not None and _is_for_new_tables(request):
            return _left_alone(request, held)
        # Rows that were made from the table's own are not blind: what other writers did to those meanwhile matters.
        reads_itself = held is not None and jvm.follows(frame, context.hadoop_root(root))
        if held is not None and reads_itself:
            frame = jvm.pinned(frame, spark, context.hadoop_root(root), held.id)
        if held is not None and filled:
            frame = _without_fillers(held, frame)
        given = _schema(frame, root)
        alias = jvm.frame_alias(frame) if request.replacement is not None and request.replacement.kind is Kind.ON else None
        target = _target(context, spark, request, held, given, alias)
        files = _write(context, spark, request, target, frame, given)
        with written_files(context, files.uris):
            attempt = _attempt(context, spark, request, asked, target, files, reads_itself=reads_itself)
        if held is not None and not attempt.actions:
            return held

        def landed() -> None:
            asked.used(spark)
            jvm.refresh_cached(spark, context.hadoop_root(root))

        try:
            newest = commit(context, root, attempt, files.uris, landed)
        except ConcurrentWriteException as error:
            if error.rule == "creation" and _is_for_new_tables(request):
                return _left_alone(request, context.logs.newest(root))
            raise
    landed()
    return newest


def _is_for_new_tables(request: WriteRequest) -> bool:
    return request.mode in ("ErrorIfExists", "Ignore")


def _left_alone(request: WriteRequest, held: HeldSnapshot) -> HeldSnapshot:
    if request.mode == "Ignore":
        return held
    raise TableExistsError(
        f'Delta table {request.root} already exists at version {held.snapshot.version}, and the save mode is error. Use mode("append") or '
        'mode("overwrite").'
    )


def _without_fillers(held: HeldSnapshot, frame: DataFrame) -> DataFrame:
    """The frame without the columns that the table is to compute, for the statement did not name them."""
    keys = {GENERATION_EXPRESSION, IDENTITY_START}
    computed = {field.name.lower() for field in held.snapshot.schema.fields if keys & field.metadata.keys()}
    return frame.drop(*(name for name in jvm.null_columns(frame) if name.lower() in computed)) if computed else frame


def _existing(context: Context, root: str) -> HeldSnapshot | None:
    try:
        return context.logs.newest(root)
    except NotADeltaTableError:
        return None


def _target(
    context: Context, spark: SparkSession, request: WriteRequest, held: HeldSnapshot | None, given: StructType, alias: str | None
) -> _Target:
    root, replacement = request.root, request.replacement
    snapshot = None if held is None else held.snapshot
    kind = None if replacement is None else replacement.kind
    if kind is Kind.PARTITIONS and (snapshot is None or not snapshot.partition_columns):
        kind = Kind.ALL
    if snapshot is not None:
        check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, root)
        if kind is not None and request.data_change and snapshot.properties.append_only:
            raise UnsupportedOperationError(
                f"Delta table {root}: an overwrite removes data, but the table is append-only (table property delta.appendOnly = true). "
                "Append, or unset the property first."
            )
    if snapshot is not None and request.properties:
        message = (
            "Delta table %s: the write options %s set properties of a new table and were ignored; use ALTER TABLE ... SET TBLPROPERTIES"
        )
        _log.warning(message, root, ", ".join(sorted(request.properties)))
    wanted = SchemaRequest(
        overwrite=kind is not None,
        partition_by=request.partition_by,
        cluster_by=request.cluster_by,
        merge_schema=request.merge_schema,
        overwrite_schema=request.overwrite_schema,
        partial=kind not in (None, Kind.ALL),
        dynamic=replacement is not None and replacement.kind is Kind.PARTITIONS,
        properties={} if snapshot is not None else {**default_properties(context.settings(spark)), **request.properties},
    )
    environment = context.environment
    update = update_for_write(snapshot, given, wanted, table=root, new_uuid=environment.new_uuid, now_ms=environment.now_ms())
    check_writable(update.change.protocol, update.change.metadata, update.schema, root)
    if update.left_out:
        _log.warning("Delta table %s: the columns %s are of no type (void) and were not added", root, ", ".join(update.left_out))
    if not request.data_change and (snapshot is None or update.change.actions):
        raise UnsupportedOperationError(
            f"Delta table {root}: a write with dataChange=false only rearranges rows that the table holds; it cannot make the table or "
            "change its schema. Leave the option out."
        )
    if held is None or kind is None or replacement is None:
        _check_alias(request)
        return _Target(held=held, base=held, update=update, kind=None)
    same = update.change.metadata.schema_json == held.snapshot.metadata.schema_json
    base = held if same or kind is Kind.ALL else with_metadata(context, held.snapshot, update.change.protocol, update.change.metadata)
    if kind in (Kind.USING, Kind.ON):
        check_match(spark, replacement, base.snapshot, given, alias)
    predicated = Predicated(context, spark, base, replacement) if kind is Kind.WHERE else None
    rearranges = kind in (Kind.ALL, Kind.PARTITIONS) or (predicated is not None and predicated.condition.by_partition(base))
    if not request.data_change and not rearranges:
        raise UnsupportedOperationError(
            f"Delta table {root}: the write option {kind} on columns that do not partition the table cannot go with dataChange=false: it "
            "changes which rows a file holds. Leave dataChange out."
        )
    return _Target(held=held, base=base, update=update, kind=kind, predicated=predicated, alias=alias)


def _check_alias(request: WriteRequest) -> None:
    replacement = request.replacement
    if replacement is not None and replacement.kind is Kind.WHERE and replacement.target_alias is not None:
        raise InvalidOptionError(
            f"Delta table {request.root}: the write option targetAlias names a table that is not there yet. Leave it out of the write that "
            "makes the table."
        )


def _schema(frame: DataFrame, root: str) -> StructType:
    if frame.isStreaming:
        raise UnsupportedOperationError(f"Delta table {root}: a streaming DataFrame cannot be written by df.write.")
    try:
        return parse_schema(jvm.schema_json(frame))
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"Delta table {root}: {error}") from None


def _write(context: Context, spark: SparkSession, request: WriteRequest, target: _Target, frame: DataFrame, given: StructType) -> _Files:
    root, update = request.root, target.update
    metadata, protocol = update.change.metadata, update.change.protocol
    name = f"WRITE {request.mode.lower()} to {root}"
    rows = enforced(spark, frame, given, metadata, update.plans, root=root, extra=_rows_must_match(request, target))
    if _is_optimized(request, metadata):
        rows = jvm.rebalanced(rows, spark, metadata.partition_columns, request.optimized_bytes)
    options = parquet_options(metadata.configuration, request.writer_options)
    written = data_files.write(context, spark, root, rows, metadata, options, name, protocol=protocol, data_change=request.data_change)
    uris = written.uris
    with written_files(context, uris):
        metrics = {"numFiles": len(written.adds), "numOutputRows": written.rows, "numOutputBytes": written.bytes}
        metadata = advanced(metadata, protocol, update.plans, written.footers, table=root) or metadata
        removal = _removal(context, spark, request, target, written.adds, name)
    if removal is None:
        return _Files(adds=written.adds, changes=(), removal=None, metadata=metadata, uris=uris, metrics=metrics)
    uris = (*uris, *removal.written)
    changes = removal.changes
    with written_files(context, uris):
        if removal.changes and target.base is not None:
            # One change file in a commit makes readers of the feed look at no other file, so that the new rows must be there too.
            new = frame_of(context, spark, with_files(context, target.base.snapshot, protocol, metadata, written.adds))
            inserted = new.withColumn(CHANGE_TYPE, F.lit("insert"))
            writing = f"{name}: write the new rows as change data"
            more, more_uris = data_files.write_change_files(context, spark, root, inserted, metadata, options, writing, protocol=protocol)
            changes, uris = (*changes, *more), (*uris, *more_uris)
    with written_files(context, uris):
        kept = tuple(replace(add, data_change=request.data_change) for add in removal.added)
        told = ("numRemovedFiles", "numRemovedBytes", "numCopiedRows", "numDeletedRows")
        metrics |= {key: removal.metrics[key] for key in told[: 2 if target.kind is Kind.ALL else 4] if key in removal.metrics}
        metrics["numFiles"] += len(kept)
        metrics["numOutputBytes"] += sum(add.size for add in kept)
        if target.kind is not Kind.ALL:
            metrics["numAddedChangeFiles"] = len(changes)
        return _Files(adds=(*kept, *written.adds), changes=changes, removal=removal, metadata=metadata, uris=uris, metrics=metrics)


def _rows_must_match(request: WriteRequest, target: _Target) -> tuple[Constraint, ...]:
    """What replaceWhere asks of the new rows."""
    replacement = request.replacement
    if replacement is None or replacement.kind is not Kind.WHERE or not replacement.checked:
        return ()
    expression = replacement.text
    if replacement.target_alias is not None and target.predicated is not None:
        # Resolved it names columns without the table's alias, which the new rows do not have.
        expression = target.predicated.condition.sql
    return (Constraint(name="replaceWhere", expression=expression, kind="replaceWhere"),)


def _is_optimized(request: WriteRequest, metadata: Metadata) -> bool:
    if request.optimize_write is not None:
        return request.optimize_write
    keys = ("delta.autoOptimize.optimizeWrite", "delta.autoOptimize")
    return any(metadata.configuration.get(key, "false").lower() == "true" for key in keys)


def _removal(
    context: Context, spark: SparkSession, request: WriteRequest, target: _Target, adds: Sequence[AddFile], name: str
) -> Removal | None:
    base, replacement, change = target.base, request.replacement, target.update.change
    if base is None or target.kind is None or replacement is None:
        return None
    if target.predicated is not None:
        return replaced_where(context, spark, base, target.predicated, name)
    if target.kind is Kind.PARTITIONS:
        return replaced_partitions(base, adds, null_intolerant=replacement.null_intolerant)
    if target.kind is Kind.ALL:
        return replaced_all(base)
    new = with_files(context, base.snapshot, change.protocol, change.metadata, adds)
    return replaced_by_match(context, spark, base, replacement, new, target.alias, name)


def _attempt(
    context: Context,
    spark: SparkSession,
    request: WriteRequest,
    asked: IdempotentWrite,
    target: _Target,
    files: _Files,
    *,
    reads_itself: bool,
) -> CommitAttempt:
    now = context.environment.now_ms()
    change, held, removal = target.update.change, target.held, files.removal
    actions: list[Action] = [*asked.actions(now)]
    # The high-water mark of an identity column may have moved with the rows.
    metadata = any(isinstance(action, Metadata) for action in change.actions) or files.metadata is not change.metadata
    actions += [action for action in change.actions if not isinstance(action, Metadata)]
    if metadata:
        actions.append(files.metadata)
    actions += target.update.domains
    if removal is not None and target.base is not None:
        actions += removal.removals(target.base, now, data_change=request.data_change)
    actions += [*files.changes, *files.adds]
    # An overwrite that finds no table replaces whatever another writer has put there meanwhile.
    reads = removal.reads if removal is not None else Reads(whole_table=request.mode == "Overwrite")
    if reads_itself:
        reads = Reads(whole_table=True)
    text = {} if request.replacement is None else {request.replacement.kind: request.replacement.text}
    return CommitAttempt(
        read_version=NO_VERSION if held is None else held.snapshot.version,
        actions=tuple(actions),
        operation=commit_info.write(
            request.mode,
            files.metadata.partition_columns,
            predicate=text.get(Kind.WHERE),
            replace_on=text.get(Kind.ON),
            replace_using=text.get(Kind.USING),
            is_dynamic_partition_overwrite=True if target.kind is Kind.PARTITIONS else None,
            can_overwrite_schema=True if request.overwrite_schema else None,
            can_merge_schema=True if request.merge_schema else None,
            metrics=files.metrics,
        ),
        engine_info=context.engine_info,
        reads=asked.reading(reads),
        table_id=None if held is None else held.snapshot.metadata.id,
        user_metadata=user_metadata(spark, request.root, request),
        joins=request.mode == "Append",
        keeps_row_ids=request.data_change and (removal is None or not removal.added),
    )
