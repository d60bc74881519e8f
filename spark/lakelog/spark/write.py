"""``df.write.format("delta")``: what the write means for the table, then files, then one commit.

An append of rows from elsewhere is blind: it reads nothing of the table. An overwrite, and an append of rows that come from the table
itself, depend on all of the version that they read: they follow no commit that added or removed files, but for blind appends to a
WriteSerializable table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from lakelog.core import commit_info
from lakelog.core.actions import Action, Metadata, Protocol
from lakelog.core.commit import NO_VERSION, CommitAttempt, Reads
from lakelog.core.errors import (
    ConcurrentWriteException,
    NotADeltaTableError,
    TableExistsError,
    UnsupportedOperationError,
    UnsupportedTypeError,
)
from lakelog.core.schema import StructType, check_creatable, nullable_schema, parse_schema, walk
from lakelog.core.schema_compare import check_partition_columns, check_same_partitioning, compare_for_write
from lakelog.core.table_features import check_writable, protocol_for_new_table
from lakelog.core.table_properties import check_properties
from lakelog.spark import data_files, jvm
from lakelog.spark.aligning import aligned
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.idempotent import IdempotentWrite
from lakelog.spark.options import WriteRequest, default_properties, parquet_options, user_metadata
from lakelog.spark.transaction import commit, transaction, written_files

# Where Spark keeps the declared type of a string with a length.
_LENGTH_KEY = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The table that a write goes to, as it will be."""

    held: HeldSnapshot | None
    metadata: Metadata
    protocol: Protocol | None
    frame: DataFrame


def save(context: Context, spark: SparkSession, request: WriteRequest, frame: DataFrame) -> HeldSnapshot:
    """Write a frame to a table, which is made if it is not there.

    Returns:
        The table's newest snapshot.

    Raises:
        TableExistsError: the mode is ErrorIfExists and the table exists.
        SchemaMismatchError: the frame does not fit the table; lists every difference.
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
        target = _new_table(context, spark, request, frame) if held is None else _known_table(spark, request, held, frame)
        options = parquet_options(target.metadata.configuration, request.writer_options)
        written = data_files.write(context, spark, root, target.frame, target.metadata, options, f"WRITE {request.mode.lower()} to {root}")
        with written_files(written.uris):
            reads = asked.reading(Reads(whole_table=request.mode == "Overwrite" or reads_itself))
            attempt = _attempt(context, spark, request, asked.actions(context.environment.now_ms()), reads, target, written)
        if held is not None and not attempt.actions:
            return held

        def landed() -> None:
            asked.used(spark)
            jvm.refresh_cached(spark, context.hadoop_root(root))

        try:
            newest = commit(context, root, attempt, written.uris, landed)
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


def _existing(context: Context, root: str) -> HeldSnapshot | None:
    try:
        return context.logs.newest(root)
    except NotADeltaTableError:
        return None


def _new_table(context: Context, spark: SparkSession, request: WriteRequest, frame: DataFrame) -> _Target:
    root = request.root
    schema = nullable_schema(_schema(frame, root))
    check_creatable(schema, table=root)
    _check_lengths(schema, root)
    columns = check_partition_columns(schema, request.partition_by or (), table_name=root)
    properties = {**default_properties(context.settings(spark)), **request.properties}
    check_properties(properties, root)
    metadata = Metadata(
        id=context.environment.new_uuid(),
        schema_string=schema.to_json(),
        partition_columns=columns,
        configuration=properties,
        created_time=context.environment.now_ms(),
    )
    return _Target(held=None, metadata=metadata, protocol=protocol_for_new_table(schema, properties), frame=frame)


def _known_table(spark: SparkSession, request: WriteRequest, held: HeldSnapshot, frame: DataFrame) -> _Target:
    snapshot, root = held.snapshot, request.root
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, root)
    _check_lengths(snapshot.schema, root)
    if request.mode == "Overwrite" and snapshot.properties.append_only:
        raise UnsupportedOperationError(
            f"Delta table {root}: an overwrite removes data, but the table is append-only (table property delta.appendOnly = true). "
            "Append, or unset the property first."
        )
    if request.partition_by is not None:
        check_same_partitioning(snapshot.partition_columns, request.partition_by, table_name=root)
    given = _schema(frame, root)
    plans = compare_for_write(snapshot.schema, given, table_name=root)
    return _Target(held=held, metadata=snapshot.metadata, protocol=None, frame=aligned(frame, given, snapshot.schema, plans))


def _check_lengths(schema: StructType, root: str) -> None:
    """Refuse char and varchar columns: the table would promise a length that nobody checks."""
    for path, field in walk(schema):
        bounded = field.metadata.get(_LENGTH_KEY)
        if bounded is not None:
            name = ".".join(path)
            raise UnsupportedTypeError(
                f"Delta table {root}: column {name} is of type {bounded}, whose length lakelog does not check yet. Write it as a string "
                f"without that mark: F.col({name!r}).alias({name!r}, metadata={{}})."
            )


def _schema(frame: DataFrame, root: str) -> StructType:
    if frame.isStreaming:
        raise UnsupportedOperationError(f"Delta table {root}: a streaming DataFrame cannot be written by df.write.")
    try:
        return parse_schema(jvm.schema_json(frame))
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"Delta table {root}: {error}") from None


def _attempt(
    context: Context,
    spark: SparkSession,
    request: WriteRequest,
    first: Sequence[Action],
    reads: Reads,
    target: _Target,
    written: data_files.NewFiles,
) -> CommitAttempt:
    actions = list(first)
    metrics: Mapping[str, int] = {"numFiles": len(written.adds), "numOutputRows": written.rows, "numOutputBytes": written.bytes}
    if target.held is None:
        assert target.protocol is not None
        actions += [target.protocol, target.metadata]
    elif request.mode == "Overwrite":
        gone = target.held.snapshot.add_files()
        now = context.environment.now_ms()
        actions += [data_files.removal(add, now) for add in gone]
        metrics = {**metrics, "numRemovedFiles": len(gone), "numRemovedBytes": sum(add.size for add in gone)}
    actions += written.adds
    return CommitAttempt(
        read_version=NO_VERSION if target.held is None else target.held.snapshot.version,
        actions=tuple(actions),
        operation=commit_info.write(request.mode, target.metadata.partition_columns, metrics=metrics),
        engine_info=context.engine_info,
        reads=reads,
        table_id=None if target.held is None else target.held.snapshot.metadata.id,
        user_metadata=user_metadata(spark, request),
        joins=request.mode == "Append",
    )
