"""A commit attempt as a value: what was read, what is to be committed, under which isolation; and its bytes.

The first line of every commit file is ``commitInfo`` with a ``txnId`` of the attempt's own, by which an attempt whose
outcome the store left unknown finds itself again. On most tables the bytes are the same wherever they land. With in-commit
timestamps or row ids they depend on the version and on what landed before it, so the attempt has others at each version that it
is tried at, under the one ``txnId``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lakelog.core import in_commit_timestamps, row_tracking
from lakelog.core.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    serialize_commit,
)
from lakelog.core.commit_info import Operation, commit_info
from lakelog.core.errors import UnsupportedOperationError
from lakelog.core.paths import Strings
from lakelog.core.predicates import Predicate
from lakelog.core.property_checks import unparsable
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import check_writable
from lakelog.core.table_properties import IN_COMMIT_TIMESTAMPS, ISOLATION_LEVEL, MATERIALIZED_ROW_COMMIT_VERSION, MATERIALIZED_ROW_ID

# What a table that does not exist yet counts as having been read at.
NO_VERSION = -1

_DOMAINS = "domainMetadata"
_DRAWN_NAMES = (MATERIALIZED_ROW_ID, MATERIALIZED_ROW_COMMIT_VERSION)


class Isolation(StrEnum):
    """How much of what landed meanwhile stands in an attempt's way, strongest first (``commitInfo.isolationLevel``).

    SERIALIZABLE: the outcome is that of the commits one after the other in the order of their versions.
    WRITE_SERIALIZABLE: that of some order of the writes; a blind append may count as coming after a write that did not see it.
    SNAPSHOT: files that were added are nobody's concern; only for commits that change no data.
    """

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reads:
    """What a transaction read of the table to decide what it commits.

    Attributes:
        predicates: rows for which any one of them is true were read; columns by the exact names of the schema that was read.
        files: strings, ``path`` of the ``add`` actions whose rows were read, as the log spells them; None for none.
        whole_table: everything was read; stands for the predicate TRUE and for every file.
        app_ids: applications whose last transaction version was asked for.
    """

    predicates: tuple[Predicate, ...] = ()
    files: Strings | None = None
    whole_table: bool = False
    app_ids: frozenset[str] = frozenset()

    @property
    def rows(self) -> bool:
        """Whether rows were read, or might have been had there been any."""
        return self.whole_table or bool(self.predicates) or (self.files is not None and len(self.files) > 0)


NOTHING = Reads()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitAttempt:
    """What a transaction wants to commit.

    Attributes:
        read_version: the version that it read; `NO_VERSION` when it creates the table, in which case ``actions`` hold
            the protocol and the metadata.
        actions: without ``commitInfo``.
        operation: for ``commitInfo``.
        engine_info: ``lakelog/<version>``.
        reads: what the actions depend on.
        user_metadata: free text for ``commitInfo``.
        table_id: ``metaData.id`` of the table that was read; None where that is not to be checked.
        joins: where it creates the table and another writer does so first with an equal schema, partitioning, protocol and
            properties, its files are appended to that table.
        keeps_row_ids: every row that it copies or changes keeps its id and, when copied, its version; true of who does neither, as when
            all rows are replaced. None for not told: it counts as true where it does not both add and remove files. ``commitInfo.tags``
            tells it where row tracking is enabled.
        tags: more of ``commitInfo.tags``.
    """

    read_version: int
    actions: tuple[Action, ...]
    operation: Operation
    engine_info: str
    reads: Reads = NOTHING
    user_metadata: str | None = None
    table_id: str | None = None
    joins: bool = False
    keeps_row_ids: bool | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_blind_append(self) -> bool:
        """It changes no file but by adding, and read no row to decide which."""
        return not self.reads.rows and not any(isinstance(action, RemoveFile | AddCDCFile) for action in self.actions)

    @property
    def depends_on_files(self) -> bool:
        """Which files the table has matters to it: it is no blind append, or says something new of a file that is there."""
        return not self.is_blind_append or any(isinstance(action, AddFile) and not action.data_change for action in self.actions)

    @property
    def app_ids(self) -> frozenset[str]:
        """Applications whose transactions it asked for or writes."""
        return self.reads.app_ids | {action.app_id for action in self.actions if isinstance(action, SetTransaction)}

    @property
    def adds_rows(self) -> bool:
        """A file with new or changed rows is added."""
        return any(isinstance(action, AddFile) and action.data_change for action in self.actions)

    @property
    def removes_rows(self) -> bool:
        """A file is removed for the sake of its rows, not to rearrange them."""
        return any(isinstance(action, RemoveFile) and action.data_change for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedCommit:
    """An attempt with what does not change over its retries, and the bytes that `placed` made for a version.

    Attributes:
        attempt: what was prepared.
        isolation: the level that it commits under.
        txn_id: fresh for the attempt, the same over all its retries.
        timestamp_ms: when it was prepared.
        protocol: the ``protocol`` action among its own; None for none.
        metadata: the ``metaData`` action among its own; None for none.
        data: the commit file; empty before `placed`.
        version: the only one at which ``data`` may be put; None where it may be put at any.
    """

    attempt: CommitAttempt
    isolation: Isolation
    txn_id: str
    timestamp_ms: int
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    data: bytes = b""
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a table asks of each commit that its version decides.

    Attributes:
        timestamp: an in-commit timestamp.
        first_timestamp: the first of them on a table that has commits without, so that it must come after the last one's file.
        row_ids: ids for the rows of new files.
    """

    timestamp: bool
    first_timestamp: bool
    row_ids: bool


def isolation_of(attempt: CommitAttempt, snapshot: Snapshot | None) -> Isolation:
    """The level that an attempt commits under: the table's, or `Isolation.SNAPSHOT` for one that only rearranges rows.

    ``delta.isolationLevel`` decides, of the metadata that the attempt commits before that of the table. A table that says
    ``SnapshotIsolation`` is held Serializable: under that level a write would pass over appends that it should have seen.

    Args:
        snapshot: the table that was read, None where the attempt creates it.

    Raises:
        InvalidTablePropertyError: the property's value is none of the levels.
    """
    own = next((action for action in attempt.actions if isinstance(action, Metadata)), None)
    configuration = own.configuration if own is not None else {} if snapshot is None else snapshot.metadata.configuration
    level = Isolation(ISOLATION_LEVEL.of(configuration))
    rearranges = all(isinstance(action, AddFile | RemoveFile) and not action.data_change for action in attempt.actions)
    if rearranges and (level is not Isolation.WRITE_SERIALIZABLE or not attempt.operation.changes_data):
        return Isolation.SNAPSHOT
    return Isolation.SERIALIZABLE if level is Isolation.SNAPSHOT else level


def prepare(attempt: CommitAttempt, *, timestamp_ms: int, txn_id: str, isolation: Isolation) -> PreparedCommit:
    """The attempt, checked; `placed` gives it bytes.

    Args:
        attempt: what to commit.
        timestamp_ms: the clock.
        txn_id: a fresh UUID.
        isolation: from `isolation_of`.

    Raises:
        ValueError: the actions break the protocol's rules for one commit (two protocols, a path added twice, a domain twice, a table
            created without metadata), which is the caller's mistake.
    """
    protocol, metadata = _check_shape(attempt)
    return PreparedCommit(
        attempt=attempt, isolation=isolation, txn_id=txn_id, timestamp_ms=timestamp_ms, protocol=protocol, metadata=metadata
    )


def demands(prepared: PreparedCommit, before: Snapshot | None, *, table: str) -> Demands | None:
    """What the table asks of the attempt once it has landed; None where its bytes are the same at any version.

    Args:
        prepared: from `prepare`.
        before: the table that it is to land on, or one with the same protocol and metadata; None where it makes the table.
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: a property that decides cannot be parsed, or two contradict each other.
    """
    protocol, metadata = _in_force(prepared, before)
    timestamp = in_commit_timestamps.is_enabled(metadata.configuration)
    row_ids = row_tracking.gives_ids(protocol, metadata, table)
    if not timestamp and not row_ids:
        return None
    first = timestamp and before is not None and not IN_COMMIT_TIMESTAMPS.or_default(before.metadata.configuration)
    return Demands(timestamp=timestamp, first_timestamp=first, row_ids=row_ids)


def placed(
    prepared: PreparedCommit,
    asked: Demands | None,
    *,
    version: int,
    before: Snapshot | None,
    now_ms: int,
    table: str,
    previous_ms: int | None = None,
) -> PreparedCommit:
    """The attempt with its bytes at a version, ``commitInfo`` first. The same object where its bytes serve any version.

    Args:
        prepared: from `prepare`, or from here for another version.
        asked: from `demands`.
        version: where it is to be put.
        before: the table just before that version; None where the attempt makes the table. Looked at only where something is asked.
        now_ms: the clock.
        table: the table's root, for messages.
        previous_ms: when the file of the version before was written, where the first in-commit timestamp must come after that.

    Raises:
        UnsupportedOperationError: a file lacks the statistics that row tracking needs; names it.
        CorruptLogError: what the log says of times or ids leaves none for another commit.
        ValueError: a value that JSON cannot hold, or an action that only lakelog itself may write.
    """
    attempt = prepared.attempt
    if asked is None:
        if prepared.data and prepared.version is None:
            return prepared
        info = _info(prepared, is_blind_append=attempt.is_blind_append, tags=attempt.tags)
        return _with_bytes(prepared, serialize_commit([info, *attempt.actions]), None)
    protocol, metadata = _in_force(prepared, before)
    actions, timestamp_ms, is_blind_append, tags = attempt.actions, None, attempt.is_blind_append, attempt.tags
    if asked.timestamp:
        before_ms = None if before is None else before.timestamp_ms
        timestamp_ms = in_commit_timestamps.next_timestamp(now_ms, before_ms if previous_ms is None else previous_ms, table)
        if prepared.metadata is not None:
            old = None if before is None else before.metadata
            told = in_commit_timestamps.with_enablement(prepared.metadata, old, version=version, timestamp_ms=timestamp_ms)
            actions = tuple(told if action is prepared.metadata else action for action in actions)
    if asked.row_ids:
        if row_tracking.is_enabled(protocol, metadata):
            tags = {row_tracking.PRESERVED: "true" if _keeps_row_ids(attempt) else "false", **tags}
            if before is not None and not row_tracking.was_enabled(before.protocol, before.metadata):
                again = row_tracking.files_without_ids(before, actions)
                actions, is_blind_append = (*actions, *again), is_blind_append and not again
        actions = row_tracking.with_row_ids(actions, version=version, before=before, table=table)
    info = _info(prepared, is_blind_append=is_blind_append, tags=tags, in_commit_timestamp_ms=timestamp_ms)
    return _with_bytes(prepared, serialize_commit([info, *actions]), version)


def check_allowed(attempt: CommitAttempt, snapshot: Snapshot) -> None:
    """That the table lets lakelog make this commit.

    Raises:
        InvalidTablePropertyError: a table property cannot be parsed, and the attempt does not mend one.
        UnsupportedFeatureError: a writer feature that is active on the table is not implemented.
        UnsupportedOperationError: the table is append-only and the attempt removes data, or it writes a metadata domain and the protocol
            has none.
    """
    changes = _changed_keys(attempt, snapshot.metadata) if unparsable(snapshot.metadata.configuration) else ()
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root, changes=changes)
    if (domain := _domain_without_feature(attempt, snapshot.protocol)) is not None:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: {attempt.operation.name} writes the metadata domain {domain}, but the table's protocol does not "
            "list the feature domainMetadata. Add the feature first."
        )
    if attempt.removes_rows and snapshot.properties.append_only:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: {attempt.operation.name} removes data, but the table is append-only "
            "(table property delta.appendOnly = true). Unset the property first."
        )


def joined(attempt: CommitAttempt, snapshot: Snapshot) -> CommitAttempt | None:
    """A creating attempt as an append to the table that another writer created first; None where the two tables differ or it must not."""
    if not attempt.joins:
        return None
    # What the other wrote of the same application may be this very write, and of the same domain would be overwritten unseen.
    domains = {action.domain for action in attempt.actions if isinstance(action, DomainMetadata)}
    if attempt.app_ids & snapshot.transactions.keys() or domains & snapshot.domains.keys():
        return None
    protocol = next(action for action in attempt.actions if isinstance(action, Protocol))
    metadata = next(action for action in attempt.actions if isinstance(action, Metadata))
    there = snapshot.metadata
    same = replace(metadata, id=there.id, created_time=there.created_time, name=there.name, description=there.description)
    # Names drawn by chance for columns that no new file has.
    drawn = {key: there.configuration[key] for key in _DRAWN_NAMES if key in there.configuration and key in same.configuration}
    if drawn:
        same = replace(same, configuration={**same.configuration, **drawn})
    if same != there or protocol != snapshot.protocol:
        return None
    actions = tuple(action for action in attempt.actions if not isinstance(action, Protocol | Metadata))
    return replace(attempt, read_version=snapshot.version, table_id=there.id, actions=actions)


def _with_bytes(prepared: PreparedCommit, data: bytes, version: int | None) -> PreparedCommit:
    return PreparedCommit(
        attempt=prepared.attempt,
        isolation=prepared.isolation,
        txn_id=prepared.txn_id,
        timestamp_ms=prepared.timestamp_ms,
        protocol=prepared.protocol,
        metadata=prepared.metadata,
        data=data,
        version=version,
    )


def _changed_keys(attempt: CommitAttempt, there: Metadata) -> tuple[str, ...]:
    """The keys of table properties that an attempt sets to another value or unsets, among those that are there."""
    own = next((action for action in attempt.actions if isinstance(action, Metadata)), there)
    return tuple(key for key, value in there.configuration.items() if own.configuration.get(key) != value)


def _domain_without_feature(attempt: CommitAttempt, protocol: Protocol | None) -> str | None:
    """A metadata domain of the attempt that neither the table's protocol nor the attempt's own allows."""
    if protocol is not None and _DOMAINS in (protocol.writer_features or ()):
        return None
    domain = next((action.domain for action in attempt.actions if isinstance(action, DomainMetadata) and not action.removed), None)
    if domain is None:
        return None
    own = next((action for action in attempt.actions if isinstance(action, Protocol)), None)
    return None if own is not None and _DOMAINS in (own.writer_features or ()) else domain


def _in_force(prepared: PreparedCommit, before: Snapshot | None) -> tuple[Protocol, Metadata]:
    """What the table's protocol and metadata are once the attempt has landed."""
    protocol, metadata = prepared.protocol, prepared.metadata
    if before is not None:
        protocol, metadata = protocol or before.protocol, metadata or before.metadata
    if protocol is None or metadata is None:
        raise ValueError("an attempt that makes no table needs one to land on")
    return protocol, metadata


def _keeps_row_ids(attempt: CommitAttempt) -> bool:
    if attempt.keeps_row_ids is not None:
        return attempt.keeps_row_ids
    kinds = set(map(type, attempt.actions))
    return not {AddFile, RemoveFile} <= kinds


def _info(
    prepared: PreparedCommit, *, is_blind_append: bool, tags: Mapping[str, str], in_commit_timestamp_ms: int | None = None
) -> CommitInfo:
    attempt = prepared.attempt
    return commit_info(
        attempt.operation,
        timestamp_ms=prepared.timestamp_ms,
        read_version=None if attempt.read_version == NO_VERSION else attempt.read_version,
        isolation_level=prepared.isolation.value,
        is_blind_append=is_blind_append,
        txn_id=prepared.txn_id,
        engine_info=attempt.engine_info,
        user_metadata=attempt.user_metadata,
        in_commit_timestamp_ms=in_commit_timestamp_ms,
        tags=tags,
    )


def _check_shape(attempt: CommitAttempt) -> tuple[Protocol | None, Metadata | None]:
    """The attempt's own protocol and metadata."""
    kinds = dict(Counter(map(type, attempt.actions)))
    for kind in (Protocol, Metadata):
        if kinds.get(kind, 0) > 1:
            raise ValueError(f"a commit holds at most one {kind.kind} action, found {kinds[kind]}")
        if attempt.read_version == NO_VERSION and kind not in kinds:
            raise ValueError(f"a commit that creates a table holds a {kind.kind} action")
    if CommitInfo in kinds:
        raise ValueError("commitInfo is made when the attempt is prepared")
    for added in (True, False):
        keys = _paths(attempt.actions, AddFile if added else RemoveFile)
        if len(set(keys)) != len(keys):
            twice = next(path for path, count in Counter(keys).items() if count > 1)
            raise ValueError(f"the commit {'adds' if added else 'removes'} {twice!r} twice")
    if kinds.get(DomainMetadata, 0) > 1:
        domains = Counter(action.domain for action in attempt.actions if isinstance(action, DomainMetadata))
        domain, count = domains.most_common(1)[0]
        if count > 1:
            raise ValueError(f"a commit writes a metadata domain once, {domain} stands {count} times in it")
    if attempt.read_version == NO_VERSION and (found := _domain_without_feature(attempt, None)) is not None:
        raise ValueError(f"a table that is created with the metadata domain {found} lists the feature {_DOMAINS}")
    if Protocol not in kinds and Metadata not in kinds:
        return None, None
    protocol = next((action for action in attempt.actions if isinstance(action, Protocol)), None)
    return protocol, next((action for action in attempt.actions if isinstance(action, Metadata)), None)


def _paths(actions: Iterable[Action], kind: type[AddFile] | type[RemoveFile]) -> list[str]:
    return [action.path for action in actions if isinstance(action, AddFile | RemoveFile) and isinstance(action, kind)]
