"""What a commit that landed first means for an attempt: an ordered list of rules, each named after what it protects.

A rule looks at one attempt beside one winner under one isolation level and says what stands in the way, or nothing. The first to
object decides. An attempt against which no rule objects, for any commit that landed since it read the table, may be put at the next
free version as it is. The order and the outcomes are delta-spark's (its ConflictChecker), finer in three places:

- `rows_read` holds full predicates against the statistics of the winner's files, where delta-spark looks at partition values alone;
- it passes over files that were added with ``dataChange`` false by a commit that removed files too: their rows were there before, in
  the removed files, at which `files_read` and `files_removed` look; and over files that were in the table already and were added once
  more with ``dataChange`` false, as to give them row ids;
- `metadata` goes by a list of harmless properties (`lakelog.core.metadata_changes`), `protocol` lets new features pass.

It is stricter in one: `write_order` keeps WriteSerializable true to its name where delta-spark lets histories pass that equal no order of
the writes.

| rule          | Serializable | WriteSerializable                                 | SnapshotIsolation |
|---------------|--------------|---------------------------------------------------|-------------------|
| creation      | always       | always                                            | always            |
| protocol      | always       | always                                            | always            |
| metadata      | always       | always                                            | always            |
| domains       | always       | always                                            | always            |
| transactions  | always       | always                                            | always            |
| rows_read     | always       | unless the winner is a blind append, or when the attempt changes the metadata | never |
| write_order   | never        | where the attempt was let past an append that the winner had read | never |
| files_read    | always       | always                                            | always            |
| files_removed | always       | always                                            | always            |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile
from lakelog.core.column_mapping import physical_predicate
from lakelog.core.commit import NO_VERSION, CommitAttempt, Isolation
from lakelog.core.data_skipping import NO_ROW, classify
from lakelog.core.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from lakelog.core.landed import LandedCommit
from lakelog.core.metadata_changes import hindrance
from lakelog.core.paths import Strings, canonical_keys
from lakelog.core.predicate_text import predicate_text
from lakelog.core.predicates import TRUE, disjunction
from lakelog.core.row_tracking import DOMAIN as ROW_TRACKING
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import feature_names

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contest:
    """One attempt beside one commit that landed first.

    Attributes:
        attempt: what wants to be committed.
        winner: the commit that landed.
        isolation: the attempt's.
        before: the table just before the winner; None where the attempt creates the table.
        root: the table's root, unencoded.
        overlooked: the version of the first blind append whose rows the attempt would have read and was let past; None for none.
    """

    attempt: CommitAttempt
    winner: LandedCommit
    isolation: Isolation
    before: Snapshot | None
    root: str
    overlooked: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Why an attempt must not follow a winner.

    Attributes:
        kind: the error that says so.
        winner_did: what of the winner stands in the way: ``added files that may hold such rows: a.parquet``.
        partition: of a file that decided, ``p=1, q=null``; None where it has none or no file decided.
        rule: the name of the rule that objected; `first_conflict` fills it in.
    """

    kind: type[DeltaConcurrentModificationException]
    winner_did: str
    partition: str | None = None
    rule: str = ""

    def error(self, contest: Contest) -> DeltaConcurrentModificationException:
        """The error for the user: what was read, which commit won, what it changed, what to do."""
        attempt, name = contest.attempt, contest.attempt.operation.name
        read = "found no table" if attempt.read_version == NO_VERSION else f"read {_read(attempt)} at version {attempt.read_version}"
        again = "Run it again to write to that table" if attempt.read_version == NO_VERSION else "Read the table again and run it again"
        return self.kind(
            f"Delta table {contest.root}: {name} {read}, but {contest.winner.describe()} landed first and {self.winner_did}. "
            f"Nothing was committed. {again}.",
            winner_version=contest.winner.version,
            rule=self.rule,
            partition=self.partition,
        )


Rule: TypeAlias = Callable[[Contest], Conflict | None]


def creation(contest: Contest) -> Conflict | None:
    """That a table is made once."""
    if contest.attempt.read_version != NO_VERSION:
        return None
    return Conflict(kind=ConcurrentWriteException, winner_did="created the table")


def protocol(contest: Contest) -> Conflict | None:
    """That what the attempt relied on is still what the protocol promises. Features that were added pass; whether lakelog writes a table
    that has them is for `lakelog.core.commit.check_allowed` to say of the table after the winner."""
    after = contest.winner.protocol
    if after is None:
        return None
    if any(isinstance(action, Protocol) for action in contest.attempt.actions):
        return Conflict(kind=ProtocolChangedException, winner_did="changed the table's protocol, as this transaction does")
    before = None if contest.before is None else contest.before.protocol
    gone = [] if before is None else sorted(set(feature_names(before)) - set(feature_names(after)))
    if gone:
        return Conflict(kind=ProtocolChangedException, winner_did=f"took {', '.join(gone)} out of the table's protocol")
    return None


def metadata(contest: Contest) -> Conflict | None:
    """That the files of the attempt were written for the table as it is."""
    after = contest.winner.metadata
    if after is None or contest.before is None:
        return None
    if any(isinstance(action, Metadata) for action in contest.attempt.actions):
        return Conflict(kind=MetadataChangedException, winner_did="changed the table's metadata, as this transaction does")
    found = hindrance(contest.attempt, contest.before.metadata, after)
    return None if found is None else Conflict(kind=MetadataChangedException, winner_did=found)


def domains(contest: Contest) -> Conflict | None:
    """That a metadata domain is not overwritten unseen. That of row tracking is written with each commit, on what landed before it; only
    who takes it away, with the feature, must have seen the last."""
    written = (action for action in contest.attempt.actions if isinstance(action, DomainMetadata))
    own = {action.domain for action in written if action.domain != ROW_TRACKING or action.removed}
    shared = sorted(own & contest.winner.domains)
    return Conflict(kind=ConcurrentTransactionException, winner_did=f"wrote the same metadata domain {_names(shared)}") if shared else None


def transactions(contest: Contest) -> Conflict | None:
    """That an application's transaction is applied once."""
    shared = sorted(contest.attempt.app_ids & contest.winner.app_ids)
    if not shared:
        return None
    return Conflict(kind=ConcurrentTransactionException, winner_did=f"wrote a transaction of the same application {_names(shared)}")


def rows_read(contest: Contest) -> Conflict | None:
    """That no row is missing from what was read."""
    if contest.isolation is Isolation.SNAPSHOT or _may_come_later(contest):
        return None
    return _unseen_rows(contest)


def write_order(contest: Contest) -> Conflict | None:
    """That the writes have an order. An append that the attempt was let past comes after it there, so what read that append does too; but
    it did not see the attempt's own change."""
    first, winner = contest.overlooked, contest.winner
    if first is None or winner.is_blind_append or not winner.changes_rows:
        return None
    if winner.read_version is not None and winner.read_version < first:
        return None
    did = f"had read version {first}, an append of rows that this transaction would have read"
    return Conflict(kind=ConcurrentAppendException, winner_did=did)


def _may_come_later(contest: Contest) -> bool:
    blind = contest.winner.is_blind_append and not _changes_metadata(contest.attempt)
    return contest.isolation is Isolation.WRITE_SERIALIZABLE and blind


def _unseen_rows(contest: Contest) -> Conflict | None:
    attempt, winner, before = contest.attempt, contest.winner, contest.before
    if before is None:
        return None
    predicate = TRUE if attempt.reads.whole_table else disjunction(*attempt.reads.predicates)
    # A commit that removes nothing rearranges nothing, whatever it says of its files.
    added = winner.added.filter(winner.added["dataChange"]) if winner.removed.num_rows else _not_there(winner, before)
    if not attempt.reads.rows or not added.num_rows:
        return None
    physical = physical_predicate(predicate, before.schema, before.mapping)
    verdicts = classify(added, physical, schema=before.physical_schema, partition_columns=before.physical_partition_columns)
    found = added.filter(pc.greater(verdicts, pa.scalar(NO_ROW, pa.int8())))
    if not found.num_rows:
        return None
    return Conflict(
        kind=ConcurrentAppendException,
        winner_did=f"added files that may hold such rows: {_examples(found['path'])}",
        partition=_partition(found, before),
    )


def _not_there(winner: LandedCommit, before: Snapshot) -> pa.Table:
    """The files that the winner added, but for those that were there and of which it only said something new."""
    if not winner.may_restate:
        return winner.added
    again = pc.and_not(pc.is_in(winner.added["key"], value_set=before.files["key"]), winner.added["dataChange"])
    return winner.added.filter(pc.invert(again))


def files_read(contest: Contest) -> Conflict | None:
    """That no row is gone from what was read."""
    removed, reads = contest.winner.removed, contest.attempt.reads
    found = removed if reads.whole_table else _among(removed, reads.files, contest.root)
    return _lost(found, contest, ConcurrentDeleteReadException, "removed files that were read")


def files_removed(contest: Contest) -> Conflict | None:
    """That a file is removed once: of two writers who remove it, the second would bring back in its own files what the first took out. Nor
    does one that only says something new of a file bring it back."""
    own = pa.array([action.path for action in contest.attempt.actions if isinstance(action, RemoveFile | AddFile)], pa.string())
    found = _among(contest.winner.removed, own, contest.root)
    return _lost(found, contest, ConcurrentDeleteDeleteException, "removed files that this transaction removes")


RULES: tuple[Rule, ...] = (creation, protocol, metadata, domains, transactions, rows_read, write_order, files_read, files_removed)
"""In the order in which they are asked."""


def first_conflict(contest: Contest) -> Conflict | None:
    """What the first rule to object says, None where the attempt may follow the winner.

    Raises:
        ColumnNotFoundError: a predicate of the attempt names a column that the table does not have, which is the caller's mistake.
        CorruptLogError: a partition value or a schema of the winner cannot be parsed.
        InvalidTablePropertyError: a property that decides cannot be parsed.
    """
    for rule in RULES:
        found = rule(contest)
        if found is not None:
            return Conflict(kind=found.kind, winner_did=found.winner_did, partition=found.partition, rule=rule.__name__)
    return None


class Trial:
    """An attempt on its way past the commits that landed first, which are shown to it in the order of their versions.

    Args:
        attempt: what wants to be committed.
        isolation: its level.
        root: the table's root, unencoded.
    """

    def __init__(self, attempt: CommitAttempt, isolation: Isolation, *, root: str) -> None:
        self._attempt = attempt
        self._isolation = isolation
        self._root = root
        self._overlooked: int | None = None

    def pass_by(self, winner: LandedCommit, before: Snapshot | None) -> None:
        """Look at the next winner.

        Args:
            winner: the commit.
            before: the table just before it; None where the attempt creates the table.

        Raises:
            DeltaConcurrentModificationException: the attempt must not follow it.
        """
        contest = Contest(
            attempt=self._attempt, winner=winner, isolation=self._isolation, before=before, root=self._root, overlooked=self._overlooked
        )
        found = first_conflict(contest)
        if found is not None:
            raise found.error(contest)
        if self._overlooked is None and _may_come_later(contest) and _unseen_rows(contest) is not None:
            self._overlooked = winner.version


def _changes_metadata(attempt: CommitAttempt) -> bool:
    return any(isinstance(action, Metadata) for action in attempt.actions)


def _lost(found: pa.Table, contest: Contest, kind: type[DeltaConcurrentModificationException], did: str) -> Conflict | None:
    if not found.num_rows:
        return None
    return Conflict(kind=kind, winner_did=f"{did}: {_examples(found['path'])}", partition=_partition(found, contest.before))


def _among(removed: pa.Table, paths: Strings | None, root: str) -> pa.Table:
    """The removed files whose path, in canonical form, is one of ``paths``; deletion vectors do not matter."""
    if paths is None or not len(paths) or not removed.num_rows:
        return removed.slice(0, 0)
    return removed.filter(pc.is_in(canonical_keys(removed["path"], root), value_set=canonical_keys(paths, root)))


def _examples(paths: pa.ChunkedArray[Any]) -> str:
    more = len(paths) - _EXAMPLES
    return _names(paths.slice(0, _EXAMPLES).to_pylist()) + (f" and {more} more" if more > 0 else "")


def _names(names: Sequence[str | None]) -> str:
    return ", ".join(str(name) for name in names)


def _partition(files: pa.Table, before: Snapshot | None) -> str | None:
    values = files["partitionValues"][0].as_py()
    if not values:
        return None
    logical = {} if before is None else dict(zip(before.physical_partition_columns, before.partition_columns, strict=True))
    return ", ".join(f"{logical.get(column, column)}={'null' if value is None else value}" for column, value in values)


def _read(attempt: CommitAttempt) -> str:
    reads = attempt.reads
    if reads.whole_table:
        return "the whole table"
    if reads.predicates:
        return f"the rows where {predicate_text(disjunction(*reads.predicates))}"
    if reads.files is not None and len(reads.files):
        return f"{len(reads.files)} file{'' if len(reads.files) == 1 else 's'}"
    return "the table"
