"""A commit attempt as a value, its bytes, and what the commits that landed before it mean for it.

The first line of every commit file is ``commitInfo`` with a ``txnId`` of the attempt's own, by which an attempt whose
outcome the store left unknown finds itself again.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from lakelog.core.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    parse_line,
    serialize_commit,
)
from lakelog.core.commit_info import Operation, commit_info
from lakelog.core.errors import (
    ConcurrentTransactionException,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
    UnsupportedOperationError,
)
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import check_writable

# What a table that does not exist yet counts as having been read at.
NO_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAttempt:
    """What a transaction wants to commit.

    Attributes:
        read_version: the version that it read; `NO_VERSION` when it creates the table, in which case ``actions`` hold
            the protocol and the metadata.
        actions: without ``commitInfo``.
        operation: for ``commitInfo``.
        is_blind_append: it only adds files, and read nothing to decide which.
        engine_info: ``lakelog/<version>``.
        user_metadata: free text for ``commitInfo``.
        isolation_level: for ``commitInfo``.
    """

    read_version: int
    actions: tuple[Action, ...]
    operation: Operation
    is_blind_append: bool
    engine_info: str
    user_metadata: str | None = None
    isolation_level: str = "Serializable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """An attempt with its ``commitInfo``. The bytes do not depend on the version at which they land.

    Attributes:
        attempt: what was prepared.
        txn_id: fresh for the attempt, the same over all its retries.
        timestamp_ms: when it was prepared.
        data: the commit file.
    """

    attempt: CommitAttempt
    txn_id: str
    timestamp_ms: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCommit:
    """What another attempt must know of a commit that landed.

    Attributes:
        version: where it landed.
        txn_id: its ``commitInfo.txnId``.
        operation: its ``commitInfo.operation``.
        engine_info: its ``commitInfo.engineInfo``.
        changes_protocol: it holds a ``protocol`` action.
        changes_metadata: it holds a ``metaData`` action.
        app_ids: applications whose ``txn`` it wrote.
        domains: metadata domains that it wrote.
        added: number of ``add`` actions.
        removed: number of ``remove`` actions.
    """

    version: int
    txn_id: str | None
    operation: str | None
    engine_info: str | None
    changes_protocol: bool
    changes_metadata: bool
    app_ids: frozenset[str]
    domains: frozenset[str]
    added: int
    removed: int

    def describe(self) -> str:
        """``version 7 (WRITE by lakelog/0.1: 1 file added, 0 removed)``."""
        operation, engine = self.operation or "an unnamed operation", self.engine_info or "an unnamed engine"
        files = f"{self.added} file{'' if self.added == 1 else 's'} added, {self.removed} removed"
        return f"version {self.version} ({operation} by {engine}: {files})"


def prepare(attempt: CommitAttempt, *, timestamp_ms: int, txn_id: str) -> PreparedCommit:
    """The attempt's bytes, ``commitInfo`` first.

    Args:
        attempt: what to commit.
        timestamp_ms: the clock.
        txn_id: a fresh UUID.

    Raises:
        ValueError: the actions break the protocol's rules for one commit (two protocols, a path added twice, a table
            created without metadata, a blind append that removes), which is the caller's mistake.
    """
    _check_shape(attempt)
    info = commit_info(
        attempt.operation,
        timestamp_ms=timestamp_ms,
        read_version=None if attempt.read_version == NO_VERSION else attempt.read_version,
        isolation_level=attempt.isolation_level,
        is_blind_append=attempt.is_blind_append,
        txn_id=txn_id,
        engine_info=attempt.engine_info,
        user_metadata=attempt.user_metadata,
    )
    data = serialize_commit([info, *attempt.actions])
    return PreparedCommit(attempt=attempt, txn_id=txn_id, timestamp_ms=timestamp_ms, data=data)


def check_allowed(attempt: CommitAttempt, snapshot: Snapshot) -> None:
    """That the table as read lets lakelog make this commit.

    Raises:
        UnsupportedFeatureError: a writer feature that is active on the table is not implemented.
        UnsupportedOperationError: the table is append-only and the attempt removes data.
    """
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root)
    removes_data = any(isinstance(action, RemoveFile) and action.data_change for action in attempt.actions)
    if removes_data and snapshot.properties.append_only:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: {attempt.operation.name} removes data, but the table is append-only "
            "(table property delta.appendOnly = true). Unset the property first."
        )


def landed_commit(version: int, data: bytes, source: str) -> LandedCommit:
    """What a commit file says to those who come after it; its files are counted, not held.

    Raises:
        CorruptLogError: a line is not a valid action; names the source.
    """
    info = CommitInfo()
    kinds: Counter[str] = Counter()
    app_ids: set[str] = set()
    domains: set[str] = set()
    for line in io.BytesIO(data):
        if line.isspace():
            continue
        try:
            action = orjson.loads(line)
            ((kind, value),) = action.items()
            if kind == "commitInfo":
                info = CommitInfo.from_json(value)
            elif kind == "txn":
                app_ids.add(SetTransaction.from_json(value).app_id)
            elif kind == "domainMetadata":
                domains.add(DomainMetadata.from_json(value).domain)
        except (ValueError, AttributeError, CorruptLogError) as error:
            raise CorruptLogError(f"{source} is damaged: {error}. Restore the file.") from error
        kinds[kind] += 1
    return LandedCommit(
        version=version,
        txn_id=info.txn_id,
        operation=info.operation,
        engine_info=info.engine_info,
        changes_protocol=kinds["protocol"] > 0,
        changes_metadata=kinds["metaData"] > 0,
        app_ids=frozenset(app_ids),
        domains=frozenset(domains),
        added=kinds["add"],
        removed=kinds["remove"],
    )


def commit_info_of(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of a commit file, None where it has none or is damaged. Only the lines that may hold it are parsed."""
    for line in io.BytesIO(data):
        if b'"commitInfo"' not in line:
            continue
        try:
            action = parse_line(line)
        except CorruptLogError:
            continue
        if isinstance(action, CommitInfo):
            return action
    return None


def conflict(attempt: CommitAttempt, winner: LandedCommit, *, root: str) -> DeltaConcurrentModificationException | None:
    """Why the attempt must not be repeated after ``winner``, None when it may.

    A blind append of files alone passes any commit that leaves protocol, metadata and its own transaction ids and
    domains as they were; everything else read something that the winner may have changed.
    """
    landed = f"Delta table {root}: {winner.describe()} landed after version {attempt.read_version}, which this transaction read"
    again = "Read the table again and run the operation again."
    if attempt.read_version == NO_VERSION:
        return ConcurrentWriteException(
            f"Delta table {root}: another writer created the table first: {winner.describe()}. Run the write again to add to that table."
        )
    if winner.changes_protocol:
        return ProtocolChangedException(f"{landed}, and changed the table's protocol. {again}")
    if winner.changes_metadata:
        return MetadataChangedException(f"{landed}, and changed the table's metadata. {again}")
    own_apps = {action.app_id for action in attempt.actions if isinstance(action, SetTransaction)}
    if shared := sorted(own_apps & winner.app_ids):
        return ConcurrentTransactionException(f"{landed}, and wrote for the same application {shared}. {again}")
    own_domains = {action.domain for action in attempt.actions if isinstance(action, DomainMetadata)}
    if shared := sorted(own_domains & winner.domains):
        return ConcurrentTransactionException(f"{landed}, and wrote the same metadata domain {shared}. {again}")
    if not attempt.is_blind_append or any(isinstance(action, Metadata | Protocol) for action in attempt.actions):
        return ConcurrentWriteException(
            f"{landed}, and {attempt.operation.name} is not a blind append that could follow any other commit. {again}"
        )
    return None


def _check_shape(attempt: CommitAttempt) -> None:
    kinds = Counter(type(action) for action in attempt.actions)
    for kind in (Protocol, Metadata):
        if kinds[kind] > 1:
            raise ValueError(f"a commit holds at most one {kind.kind} action, found {kinds[kind]}")
        if attempt.read_version == NO_VERSION and not kinds[kind]:
            raise ValueError(f"a commit that creates a table holds a {kind.kind} action")
    if kinds[CommitInfo]:
        raise ValueError("commitInfo is made when the attempt is prepared")
    if attempt.is_blind_append and kinds[RemoveFile]:
        raise ValueError("a blind append removes no file")
    for added in (True, False):
        keys = _paths(attempt.actions, AddFile if added else RemoveFile)
        if len(set(keys)) != len(keys):
            twice = next(path for path, count in Counter(keys).items() if count > 1)
            raise ValueError(f"the commit {'adds' if added else 'removes'} {twice!r} twice")


def _paths(actions: Iterable[Action], kind: type[AddFile] | type[RemoveFile]) -> list[str]:
    return [action.path for action in actions if isinstance(action, AddFile | RemoveFile) and isinstance(action, kind)]
