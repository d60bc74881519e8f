"""A commit attempt as a value: what was read, what is to be committed, under which isolation; and its bytes.

The first line of every commit file is ``commitInfo`` with a ``txnId`` of the attempt's own, by which an attempt whose
outcome the store left unknown finds itself again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

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
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import check_writable
from lakelog.core.table_properties import ISOLATION_LEVEL

# What a table that does not exist yet counts as having been read at.
NO_VERSION = -1


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
    """

    read_version: int
    actions: tuple[Action, ...]
    operation: Operation
    engine_info: str
    reads: Reads = field(default=NOTHING)
    user_metadata: str | None = None
    table_id: str | None = None
    joins: bool = False

    @property
    def is_blind_append(self) -> bool:
        """It changes no file but by adding, and read no row to decide which."""
        return not self.reads.rows and not any(isinstance(action, RemoveFile | AddCDCFile) for action in self.actions)

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
    """An attempt with its ``commitInfo``. The bytes do not depend on the version at which they land.

    Attributes:
        attempt: what was prepared.
        isolation: the level that it commits under.
        txn_id: fresh for the attempt, the same over all its retries.
        timestamp_ms: when it was prepared.
        data: the commit file.
    """

    attempt: CommitAttempt
    isolation: Isolation
    txn_id: str
    timestamp_ms: int
    data: bytes


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
    """The attempt's bytes, ``commitInfo`` first.

    Args:
        attempt: what to commit.
        timestamp_ms: the clock.
        txn_id: a fresh UUID.
        isolation: from `isolation_of`.

    Raises:
        ValueError: the actions break the protocol's rules for one commit (two protocols, a path added twice, a table
            created without metadata), which is the caller's mistake.
    """
    _check_shape(attempt)
    info = commit_info(
        attempt.operation,
        timestamp_ms=timestamp_ms,
        read_version=None if attempt.read_version == NO_VERSION else attempt.read_version,
        isolation_level=isolation.value,
        is_blind_append=attempt.is_blind_append,
        txn_id=txn_id,
        engine_info=attempt.engine_info,
        user_metadata=attempt.user_metadata,
    )
    data = serialize_commit([info, *attempt.actions])
    return PreparedCommit(attempt=attempt, isolation=isolation, txn_id=txn_id, timestamp_ms=timestamp_ms, data=data)


def check_allowed(attempt: CommitAttempt, snapshot: Snapshot) -> None:
    """That the table lets lakelog make this commit.

    Raises:
        UnsupportedFeatureError: a writer feature that is active on the table is not implemented.
        UnsupportedOperationError: the table is append-only and the attempt removes data.
    """
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root)
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
    if same != there or protocol != snapshot.protocol:
        return None
    actions = tuple(action for action in attempt.actions if not isinstance(action, Protocol | Metadata))
    return replace(attempt, read_version=snapshot.version, table_id=there.id, actions=actions)


def _check_shape(attempt: CommitAttempt) -> None:
    kinds = Counter(type(action) for action in attempt.actions)
    for kind in (Protocol, Metadata):
        if kinds[kind] > 1:
            raise ValueError(f"a commit holds at most one {kind.kind} action, found {kinds[kind]}")
        if attempt.read_version == NO_VERSION and not kinds[kind]:
            raise ValueError(f"a commit that creates a table holds a {kind.kind} action")
    if kinds[CommitInfo]:
        raise ValueError("commitInfo is made when the attempt is prepared")
    for added in (True, False):
        keys = _paths(attempt.actions, AddFile if added else RemoveFile)
        if len(set(keys)) != len(keys):
            twice = next(path for path, count in Counter(keys).items() if count > 1)
            raise ValueError(f"the commit {'adds' if added else 'removes'} {twice!r} twice")


def _paths(actions: Iterable[Action], kind: type[AddFile] | type[RemoveFile]) -> list[str]:
    return [action.path for action in actions if isinstance(action, AddFile | RemoveFile) and isinstance(action, kind)]
