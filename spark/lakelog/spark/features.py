"""Table features by name: added to a table's protocol, and taken out of it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakelog.core.actions import Action, Protocol
from lakelog.core.commit import CommitAttempt
from lakelog.core.commit_info import Operation, json_text
from lakelog.core.errors import FeatureInHistoryError, InvalidRequestError
from lakelog.core.feature_removal import last_use, removal
from lakelog.core.protocol_update import with_versions
from lakelog.core.records import JSON
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import table_change
from lakelog.core.table_features import check_writable, feature_named
from lakelog.core.table_properties import DROP_FEATURE_RETENTION, LOG_RETENTION
from lakelog.spark import jvm
from lakelog.spark.context import Context
from lakelog.spark.options import user_metadata
from lakelog.spark.transaction import commit, transaction

_HOUR_MS = 60 * 60 * 1000


def add_feature_support(context: Context, spark: SparkSession, root: str, name: str) -> None:
    """Let a table have a feature, with what it depends on; nothing is committed where it has it.

    Args:
        root: the table's root, unencoded.
        name: the feature's, in any letter case.

    Raises:
        InvalidRequestError: there is no such feature, or it comes with a clause of its own.
        UnsupportedFeatureError: it comes with a later release.
        DeltaConcurrentModificationException: another commit stands in the way.
    """
    with transaction("UPGRADE PROTOCOL", root):
        snapshot = _newest(context, root)
        feature = feature_named(name, root)
        if feature.name == "clustering":
            raise InvalidRequestError(
                f"Delta table {root}: the table feature clustering cannot be added by itself, for it needs columns to cluster by. Make the "
                "table with clusterBy(...), or replace it with one that has them."
            )
        change = table_change(snapshot, snapshot.metadata, table=root, new_uuid=context.environment.new_uuid, features=(feature.name,))
        _raise(context, spark, snapshot, change.protocol, change.actions)


def upgrade_protocol(context: Context, spark: SparkSession, root: str, reader: int, writer: int) -> None:
    """Let a table have all features that a pair of protocol versions implies; nothing is committed where it has them.

    Args:
        root: the table's root, unencoded.
        reader: 1 to 3.
        writer: 1 to 7.

    Raises:
        InvalidRequestError: there are no such versions.
        DeltaConcurrentModificationException: another commit stands in the way.
    """
    with transaction("UPGRADE PROTOCOL", root):
        snapshot = _newest(context, root)
        try:
            protocol = with_versions(snapshot.protocol, reader, writer)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"Delta table {root}: {error}") from None
        _raise(context, spark, snapshot, protocol, () if protocol is snapshot.protocol else (protocol,))


def drop_feature_support(context: Context, spark: SparkSession, root: str, name: str, truncate_history: bool = False) -> None:
    """Take a feature out of a table's protocol, with what it left in the table.

    A feature of writers alone is gone at once. For one of readers the first call takes it out of use; when the log keeps no version that
    used it any more, which ``truncate_history`` hastens to ``delta.dropFeatureTruncateHistory.retentionDuration``, another call takes it
    out of the protocol.

    Args:
        root: the table's root, unencoded.
        name: the feature's, in any letter case.
        truncate_history: cut the log off before the versions that are older than that.

    Raises:
        FeatureInHistoryError: versions that the log keeps use it; says when to call again.
        InvalidRequestError: the table does not have it, something depends on it or calls for it; the table is untouched.
        UnsupportedFeatureError: it comes with a later release, or data files would have to be rewritten; the table is untouched.
        DeltaConcurrentModificationException: another commit stands in the way.
    """
    with transaction("DROP FEATURE", root):
        snapshot = _newest(context, root)
        plan = removal(snapshot, name, truncate_history=truncate_history)
        if plan.before:
            cleared = Operation(name="DOMAIN METADATA CLEANUP") if not plan.reads_history else _disabled(snapshot, plan.before)
            snapshot = _commit(context, spark, snapshot, cleared, plan.before)
            plan = removal(snapshot, name, truncate_history=truncate_history)
        if plan.reads_history:
            _check_history(context, snapshot, plan.feature, truncate_history)
        parameters: dict[str, JSON] = {"featureName": plan.feature, "truncateHistory": truncate_history}
        _commit(context, spark, snapshot, Operation(name="DROP FEATURE", parameters=parameters), plan.actions)


def _newest(context: Context, root: str) -> Snapshot:
    snapshot = context.logs.newest(root).snapshot
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, root)
    return snapshot


def _raise(context: Context, spark: SparkSession, snapshot: Snapshot, protocol: Protocol, actions: tuple[Action, ...]) -> None:
    if actions:
        told: dict[str, JSON] = {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        }
        _commit(context, spark, snapshot, Operation(name="UPGRADE PROTOCOL", parameters={"newProtocol": json_text(told)}), actions)


def _disabled(snapshot: Snapshot, actions: tuple[Action, ...]) -> Operation:
    """What takes a feature out of use, in the history's words: the properties that it unsets."""
    after = next((action.configuration for action in actions if hasattr(action, "configuration")), {})
    gone = sorted(set(snapshot.metadata.configuration) - set(after))
    return Operation(name="UNSET TBLPROPERTIES", parameters={"properties": json_text(gone), "ifExists": True})


def _check_history(context: Context, snapshot: Snapshot, feature: str, truncate: bool) -> None:
    """That no version which the log keeps uses the feature, once what may go has gone.

    Raises:
        FeatureInHistoryError: one does.
    """
    log = context.logs.log(snapshot.root)
    # A log can be cut off only where a checkpoint stands.
    log.checkpoint()
    properties = snapshot.properties
    if truncate:
        log.clean_up(retention_ms=min(properties.drop_feature_retention_ms, properties.log_retention_ms))
    elif properties.enable_expired_log_cleanup:
        log.clean_up()
    used = last_use(feature, log.metadata_history())
    if used is not None:
        raise FeatureInHistoryError(
            f"Delta table {snapshot.root}: the table feature {feature} is out of use since version {used + 1}, but the log keeps versions "
            f"up to {used} that use it, and a client without the feature would read them wrongly. Wait until they are past "
            f"{LOG_RETENTION.key} ({_hours(properties.log_retention_ms)}) and call dropFeatureSupport({feature!r}) again; or wait for "
            f"{DROP_FEATURE_RETENTION.key} ({_hours(properties.drop_feature_retention_ms)}) and call it with truncateHistory=True, which "
            "deletes the history before that.",
            version=used,
        )


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / _HOUR_MS:g} hours"


def _commit(context: Context, spark: SparkSession, snapshot: Snapshot, operation: Operation, actions: tuple[Action, ...]) -> Snapshot:
    attempt = CommitAttempt(
        read_version=snapshot.version,
        actions=actions,
        operation=operation,
        engine_info=context.engine_info,
        table_id=snapshot.metadata.id,
        user_metadata=user_metadata(spark, snapshot.root),
    )

    def landed() -> None:
        jvm.refresh_cached(spark, context.hadoop_root(snapshot.root))

    held = commit(context, snapshot.root, attempt, (), landed)
    landed()
    return held.snapshot
