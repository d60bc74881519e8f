"""The commit loop: one attempt, put where it is the next version, settled whatever the store answers.

Each version is settled before the next is tried. What happens at a version N, by the answer of ``put_if_absent`` and, where that does not
tell, by what is read back:

|  # | answer  | read back                    | what follows                                                                  |
|----|---------|------------------------------|-------------------------------------------------------------------------------|
|  1 | created | -                            | landed                                                                        |
|  2 | exists  | ours, by ``txnId`` or bytes  | landed: an earlier request of ours did it                                     |
|  3 | exists  | another's, no rule objects   | the attempt follows it: all that landed since is looked at, then the next free version |
|  4 | exists  | another's, a rule objects    | the rule's error; nothing was committed, the data files may go                |
|  5 | exists  | another's, the attempt creates the table | as 3 where the tables are equal and the attempt joins, else as 4  |
|  6 | exists  | cannot be read, or torn      | the same bytes to the same version again, then as 2 to 6                      |
|  7 | unknown | ours                         | landed                                                                        |
|  8 | unknown | another's                    | as 3 to 5: a late request of ours cannot replace it                           |
|  9 | unknown | nothing there                | the same bytes to the same version again: the first request may still arrive  |
| 10 | unknown | cannot be read, or torn      | as 9                                                                          |
| 11 | refused | as 7, 8, 10                  | as 7, 8, 10; a time-out or a lost connection is an unknown answer at once     |
| 12 | refused | nothing there                | nothing unknown before: the store's error, nothing was committed; else as 9   |
| 13 | any     | still not known after `_SETTLE_ATTEMPTS` | `CommitOutcomeUnknown`; the data files stay, its ``resolve()`` goes on here |
| 14 | an interrupt | another's               | the interrupt travels on: nothing was committed                               |
| 15 | an interrupt | nothing there           | store near, nothing unknown before: as 14; else as 16, the request may still arrive |
| 16 | an interrupt | anything else           | `CommitOutcomeUnknown`, caused by the interrupt                               |

"exists" is never taken for a conflict before the version was read, and no N + 1 is tried before N is settled: the bytes at N may be ours.

What is put at N is made for N where the table has in-commit timestamps or row ids, which follow from what landed before; on other tables
it is the same at every N. Either way one N gets the same bytes however often it is put, and all have the attempt's one ``txnId``: "ours"
at N is what was made for N, and when the bytes for N + 1 are made, N is known to hold another's.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from lakelog.core.commit import (
    NO_VERSION,
    CommitAttempt,
    Demands,
    PreparedCommit,
    check_allowed,
    demands,
    isolation_of,
    joined,
    placed,
    prepare,
)
from lakelog.core.conflicts import Trial
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MissingCommitError,
    NotADeltaTableError,
    StorageError,
    StoreConfigurationError,
    UnsupportedOperationError,
)
from lakelog.core.landed import LandedCommit, commit_info_of, is_commit, landed_commit
from lakelog.core.log_files import CommitFile, commit_name, parse_log_file
from lakelog.core.log_segment import LogListing, available_versions
from lakelog.core.records import INT64_MAX
from lakelog.core.snapshot import Snapshot
from lakelog.storage.environment import Environment
from lakelog.storage.log_reader import CommitData, LogReader
from lakelog.storage.log_store import AlreadyExists, Created, LogStore, Unknown

_LOGGER = logging.getLogger(__name__)

# How often an unknown answer is looked into before the outcome is given up as unknown.
_SETTLE_ATTEMPTS = 6
# How many versions an attempt may lose to others. Each loss means that another writer won.
_MAX_LOSSES = 10_000

_LONGEST_DELAY_S = 5.0
_SETTLE_DELAY_S = 0.1
_LOSS_DELAY_S = 0.002
_LONGEST_LOSS_DELAY_S = 0.3
# The longest wait after a loss in multiples of what an attempt takes, so that about as many writers find a turn each.
_MOST_TURNS = 32
# Commits that may wait to be folded; each attempt folds them again.
_MOST_PASSED = 64

_Winner: TypeAlias = tuple[CommitData, LandedCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """A commit that landed.

    Attributes:
        version: where.
        snapshot: the table at that version.
        content_md5: of the commit file, in hexadecimal digits; None where the store is near.
    """

    version: int
    snapshot: Snapshot
    content_md5: str | None = None


class _Ours(Exception):
    """A commit that was taken for another's is the attempt itself.

    Args:
        version: where it landed.
    """

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """A version that another has.

    Attributes:
        data: what was read of it.
        doubted: an answer to a request of the attempt's own was unknown before.
    """

    data: bytes
    doubted: bool

    @property
    def is_certain(self) -> bool:
        """Whether nothing but another's commit can be there."""
        return not self.doubted or ((info := commit_info_of(self.data)) is not None and info.txn_id is not None)


class CommitLoop:
    """Puts prepared commits. Holds no state; safe to share between threads.

    Args:
        store: where the log is.
        reader: reads the same log.
        environment: sleep and randomness for the delays between attempts.
    """

    def __init__(self, store: LogStore, reader: LogReader, environment: Environment) -> None:
        self._store = store
        self._reader = reader
        self._environment = environment

    def run(self, prepared: PreparedCommit, base: Snapshot | None) -> CommitResult:
        """Commit at the first free version after the one that the attempt read.

        The snapshot of the result is computed before the commit is put, so that nothing but the put can fail after it.

        Args:
            prepared: the attempt.
            base: the table at the version that the attempt read, or newer; None when the attempt creates the table.

        Raises:
            DeltaConcurrentModificationException: another commit landed that the attempt must not follow; nothing was committed.
            CommitOutcomeUnknown: the commit may have landed or may still land; its data files must stay.
            UnsupportedFeatureError: a commit that landed meanwhile brought a feature that lakelog does not write; nothing was committed.
            UnsupportedOperationError: the table tracks rows, and a file of the attempt does not tell how many it has.
            CorruptLogError: a commit that landed meanwhile is damaged, or the attempt's own actions make no table.
            ValueError: a value that JSON cannot hold, or an action that only lakelog itself may write.
            StorageError, OSError: the store refused; nothing was committed.
        """
        try:
            return self._run(prepared, base)
        except MissingCommitError as error:
            raise ConcurrentWriteException(
                f"Delta table {self._reader.root}: {prepared.attempt.operation.name} read version {prepared.attempt.read_version}, and "
                f"what landed since is not all there to be looked at: {error} Nothing was committed. Read the table again, run it again.",
                rule="clean-up",
            ) from error

    def _run(self, prepared: PreparedCommit, base: Snapshot | None) -> CommitResult:
        current, trial = base, self._trial(prepared)
        if base is not None:
            self._catch_up(prepared, trial, base)
        elif self._table_is_there():
            prepared, current = self._join(prepared)
            trial = self._trial(prepared)
        # What landed after ``current`` and stands in nobody's way. Folded together with the attempt itself: the less lies between
        # learning of the newest version and the put, the fewer others come in between.
        passed: list[CommitData] = []
        for losses in range(_MAX_LOSSES):
            started_ms = self._environment.now_ms()
            asked = demands(prepared, current, table=self._reader.root)
            if asked is not None and passed:
                # Their times and row ids come before the attempt's.
                current, passed = self._reader.advance(current, passed), []
            version = (NO_VERSION if current is None else current.version) + len(passed) + 1
            if version > INT64_MAX:
                raise UnsupportedOperationError(f"Delta table {self._reader.root}: no version can follow {INT64_MAX}. Make a new table.")
            prepared = self._placed(prepared, asked, version, current, started_ms)
            own = CommitData(version=version, data=prepared.data, timestamp_ms=prepared.timestamp_ms)
            following = self._reader.advance(current, [*passed, own])
            lost = self._put(version, prepared)
            if lost is None:
                digest = None if self._store.near else hashlib.md5(prepared.data, usedforsecurity=False).hexdigest()
                return CommitResult(version=version, snapshot=following, content_md5=digest)
            self._wait_after_loss(losses, self._environment.now_ms() - started_ms)
            if current is None:
                prepared, current = self._join(prepared)
                trial = self._trial(prepared)
            else:
                try:
                    current, passed = self._follow(prepared, trial, current, passed, self._since(prepared, version, lost.data))
                except (StorageError, OSError) as error:
                    if lost.is_certain:
                        raise
                    # What was read may have been a part of the attempt's own file.
                    raise self._unknown(version, prepared, error) from error
                except _Ours as ours:
                    return CommitResult(version=ours.version, snapshot=self._reader.load(ours.version).snapshot)
        raise ConcurrentWriteException(
            f"Delta table {self._reader.root}: {_MAX_LOSSES} commits of other writers landed first. Run the operation again."
        )

    def _placed(
        self, prepared: PreparedCommit, asked: Demands | None, version: int, before: Snapshot | None, now_ms: int
    ) -> PreparedCommit:
        """The attempt with its bytes for a version."""
        # Asked once in the life of a table, and by no clock but the store's.
        previous_ms = self._reader.commit_file_time(version - 1) if asked is not None and asked.first_timestamp else None
        return placed(prepared, asked, version=version, before=before, now_ms=now_ms, table=self._reader.root, previous_ms=previous_ms)

    # what landed meanwhile -------------------------------------------------------------------------------------------

    def _trial(self, prepared: PreparedCommit) -> Trial:
        return Trial(prepared.attempt, prepared.isolation, root=self._reader.root)

    def _catch_up(self, prepared: PreparedCommit, trial: Trial, base: Snapshot) -> None:
        """Check what landed between the version that was read and ``base``."""
        read_version = prepared.attempt.read_version
        if base.version < read_version:
            raise made_anew(self._reader.root, prepared.attempt)
        if base.version == read_version:
            return
        winners = list(self._winners(prepared.attempt, read_version + 1, base.version))
        if any(_changes_ground(landed) or landed.may_restate for _, landed in winners):
            self._follow(prepared, trial, self._reader.load(read_version).snapshot, [], winners)
            return
        for _, landed in winners:
            trial.pass_by(landed, base)

    def _follow(
        self, prepared: PreparedCommit, trial: Trial, current: Snapshot, passed: Sequence[CommitData], winners: Iterable[_Winner]
    ) -> tuple[Snapshot, list[CommitData]]:
        """A snapshot, and the commits that came after it; none of the winners stands in the attempt's way."""
        since = list(passed)
        for commit, landed in winners:
            trial.pass_by(landed, current)
            since.append(commit)
            if _changes_ground(landed):
                current, since = self._reader.advance(current, since), []
                check_allowed(prepared.attempt, current)
        if len(since) > _MOST_PASSED:
            current, since = self._reader.advance(current, since), []
        return current, since

    def _winners(self, attempt: CommitAttempt, first: int, last: int) -> Iterator[_Winner]:
        """The commits from ``first`` to ``last``, which are known to have been there."""
        return self._landed(attempt, self._read(range(first, last + 1), self._reader.listing(first)))

    def _since(self, prepared: PreparedCommit, first: int, data: bytes) -> Iterator[_Winner]:
        """The commits from ``first`` to the newest.

        Args:
            data: what was read of ``first`` a moment ago; it is not read again where it is listed with as many bytes.
        """
        if self._store.near:
            return self._others(prepared, self._reader.read_on(first))
        files = self._reader.listing(first)
        newest = self._newest(files, first)
        if any(file.name == commit_name(first) and file.size == len(data) for file in files):
            known = CommitData(version=first, data=data, timestamp_ms=self._environment.now_ms())
            return self._others(prepared, chain([known], self._read(range(first + 1, newest + 1), files)))
        return self._others(prepared, self._read(range(first, newest + 1), files))

    def _others(self, prepared: PreparedCommit, commits: Iterable[CommitData]) -> Iterator[_Winner]:
        """Raises:
        _Ours: one of them is the attempt itself, which something else than the store had hidden when its version was read.
        """
        for commit, landed in self._landed(prepared.attempt, commits):
            if landed.txn_id == prepared.txn_id:
                raise _Ours(commit.version)
            yield commit, landed

    def _read(self, versions: Sequence[int], files: Sequence[LogListing]) -> Iterator[CommitData]:
        return self._reader.read_commits(versions, dict.fromkeys(versions, self._environment.now_ms()), files)

    def _landed(self, attempt: CommitAttempt, commits: Iterable[CommitData]) -> Iterator[_Winner]:
        for commit in commits:
            source = self._reader.commit_path(commit.version)
            columns = attempt.depends_on_files
            yield commit, landed_commit(commit.version, commit.data, source=source, root=self._reader.root, columns=columns)

    def _newest(self, files: Iterable[LogListing], version: int) -> int:
        listed = {file.version for item in files if isinstance(file := parse_log_file(item.name), CommitFile)}
        newest = version
        while newest + 1 in listed:
            newest += 1
        return newest

    # an attempt that creates the table --------------------------------------------------------------------------------

    def _table_is_there(self) -> bool:
        """Asked before version 0 is put: clean-up may have deleted it, so that it could be put again."""
        try:
            available_versions(self._reader.listing(), table=f"Delta table {self._reader.root}")
        except NotADeltaTableError:
            return False
        return True

    def _join(self, prepared: PreparedCommit) -> tuple[PreparedCommit, Snapshot]:
        """The attempt as an append to the table that another writer created.

        Raises:
            ConcurrentTransactionException: that table holds a transaction of the attempt's own application.
            ConcurrentWriteException: the attempt must not, or the tables differ.
        """
        snapshot = self._reader.load().snapshot
        attempt = joined(prepared.attempt, snapshot)
        if attempt is not None:
            check_allowed(attempt, snapshot)
            isolation = isolation_of(attempt, snapshot)
            again = prepare(attempt, timestamp_ms=self._environment.now_ms(), txn_id=prepared.txn_id, isolation=isolation)
            return again, snapshot
        if shared := sorted(prepared.attempt.app_ids & snapshot.transactions.keys()):
            raise ConcurrentTransactionException(
                f"Delta table {self._reader.root}: {prepared.attempt.operation.name} found no table, but another writer made it first and "
                f"wrote a transaction of the same application {', '.join(shared)}. Nothing was committed. Run it again: what is done is "
                "passed over.",
                winner_version=snapshot.version,
                rule="transactions",
            )
        try:
            for _, landed in self._winners(prepared.attempt, snapshot.version, snapshot.version):
                self._trial(prepared).pass_by(landed, None)
        except MissingCommitError:
            pass
        raise ConcurrentWriteException(
            f"Delta table {self._reader.root}: the table is there already, at version {snapshot.version}. "
            "Run the write again to add to that table.",
            winner_version=snapshot.version,
            rule="creation",
        )

    # one version ------------------------------------------------------------------------------------------------------

    def _put(self, version: int, prepared: PreparedCommit) -> _Loss | None:
        """What another has at ``version``, None when the attempt is there; an interrupt travels on only when it certainly is not."""
        doubts: list[Exception] = []
        try:
            other = self._settle(version, prepared, doubts)
            return None if other is None else _Loss(data=other, doubted=bool(doubts))
        except (CommitOutcomeUnknown, StorageError, OSError):
            raise
        except BaseException as interrupt:
            self._settle_interrupt(version, prepared, interrupt, final=self._store.near and not doubts)
            raise

    def _settle(self, version: int, prepared: PreparedCommit, doubts: list[Exception]) -> bytes | None:
        """Put until the answer is known: None when the attempt is there, else the other commit that is.

        Args:
            doubts: why the outcome of earlier requests is not known; grows by those of this call.

        Raises:
            StorageError, OSError: the store refused, and no earlier request can have arrived.
            CommitOutcomeUnknown: it stays unknown.
        """
        path = self._reader.commit_path(version)
        for attempt in range(_SETTLE_ATTEMPTS):
            refusal: Exception | None = None
            try:
                outcome = self._store.put_if_absent(path, prepared.data)
            except (TimeoutError, ConnectionError) as error:
                # By the contract a refusal, but nobody can know that of a request that was sent.
                outcome = Unknown(error)
            except (StorageError, OSError) as error:
                outcome = AlreadyExists()
                refusal = error
            if isinstance(outcome, Created):
                return None
            if isinstance(outcome, Unknown):
                doubts.append(outcome.cause)
                _LOGGER.warning("%s: the outcome of version %d is unknown: %s", self._reader.root, version, outcome.cause)
                self._wait(_SETTLE_DELAY_S, attempt, _LONGEST_DELAY_S, least_s=outcome.retry_after_s or 0.0)
            if refusal is not None and not doubts and isinstance(refusal, StoreConfigurationError | PermissionError):
                # Nothing was sent that could still arrive, and who must not write may not read either.
                raise refusal
            try:
                other = self._other(version, prepared, doubted=bool(doubts))
                if other is not None and refusal is not None and not doubts:
                    raise refusal
                return other
            except FileNotFoundError as error:
                if refusal is not None and not doubts:
                    raise refusal from None
                doubts.append(refusal or (doubts[-1] if doubts else error))
            except (StorageError, OSError) as error:
                if error is refusal:
                    raise
                doubts.append(error)
            if refusal is not None or isinstance(outcome, AlreadyExists):
                self._wait(_SETTLE_DELAY_S, attempt, _LONGEST_DELAY_S)
        raise self._unknown(version, prepared, doubts[-1]) from doubts[-1]

    def _settle_interrupt(self, version: int, prepared: PreparedCommit, interrupt: BaseException, *, final: bool) -> None:
        """Return when the interrupted put certainly left nothing, so that the interrupt itself may travel on.

        Args:
            final: a file that is not there now will not come.
        """
        try:
            lost = self._other(version, prepared, doubted=True) is not None
        except FileNotFoundError:
            lost = final
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            raise self._unknown(version, prepared, interrupt) from error
        if not lost:
            raise self._unknown(version, prepared, interrupt) from interrupt

    def _other(self, version: int, prepared: PreparedCommit, *, doubted: bool) -> bytes | None:
        """What the version holds, None when that is the attempt itself.

        Args:
            doubted: the attempt may be there.

        Raises:
            FileNotFoundError: it holds nothing.
            StorageError: what was read is a part of the attempt's bytes, so the read was cut off; or it is no commit, so that something
                else than the store has answered.
        """
        data = self._store.read(self._reader.commit_path(version))
        if data == prepared.data:
            return None
        info = commit_info_of(data)
        if info is not None and info.txn_id is not None:
            return None if info.txn_id == prepared.txn_id else data
        path = self._reader.commit_path(version)
        if prepared.data.startswith(data):
            raise StorageError(f"{path} gave {len(data)} bytes, which may be the beginning of this commit")
        if info is None and doubted and not is_commit(data):
            raise StorageError(f"{path} gave {len(data)} bytes that are no commit")
        return data

    def _unknown(self, version: int, prepared: PreparedCommit, cause: BaseException | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"Delta table {self._reader.root}: nobody can tell whether version {version} was committed ({cause}). The data files stay. "
            "Call resolve() of this error once the store answers again. Or look for "
            f"txnId {prepared.txn_id} in {self._reader.commit_path(version)}: "
            "if it is there, the commit landed; if another commit is there, run the operation again.",
            version=version,
            txn_id=prepared.txn_id,
            settle=lambda: self._resolve(version, prepared),
        )

    def _resolve(self, version: int, prepared: PreparedCommit) -> int | None:
        before = max(version - 1, 0)
        try:
            listed = [parse_log_file(item.name) for item in self._reader.listing(before)]
        except NotADeltaTableError as error:
            # Of the commit that creates the table there may be nothing yet; of another, the table is gone.
            if version > NO_VERSION + 1:
                raise self._unknown(version, prepared, error) from error
            listed = []
        except (StorageError, OSError) as error:
            raise self._unknown(version, prepared, error) from error
        commits = {file.version for file in listed if isinstance(file, CommitFile)}
        if version not in commits:
            # What would be put now were a commit of the past, or one after a gap.
            if any(found > version for found in commits):
                raise self._unknown(version, prepared, RuntimeError("the log was cleaned up past it; the table's own files tell"))
            if version > NO_VERSION + 1 and before not in commits:
                raise self._unknown(version, prepared, RuntimeError("the version before it is gone, the table was made anew"))
        other = self._settle(version, prepared, [RuntimeError("an earlier request may still arrive")])
        return version if other is None else None

    def _wait_after_loss(self, losses: int, took_ms: int) -> None:
        """Longer where attempts take long, for then as many writers as are waiting must find a turn each."""
        turns_s = took_ms / 1000 * min(_MOST_TURNS, 2 ** min(losses, 20))
        self._wait(max(_LOSS_DELAY_S, turns_s), 0, _LONGEST_LOSS_DELAY_S)

    def _wait(self, first_s: float, attempt: int, longest_s: float, *, least_s: float = 0.0) -> None:
        # Full jitter: writers that met once do not meet in step again.
        chosen_s = min(longest_s, first_s * 2 ** min(attempt, 20)) * self._environment.random()
        self._environment.sleep(max(chosen_s, min(least_s, longest_s)))


def made_anew(root: str, attempt: CommitAttempt) -> ConcurrentWriteException:
    """The error of an attempt that read a table which is not there any more, though another one is."""
    return ConcurrentWriteException(
        f"Delta table {root}: {attempt.operation.name} read version {attempt.read_version}, but the table was made anew meanwhile. "
        "Nothing was committed. Read it again and run the operation again.",
        rule="creation",
    )


def _changes_ground(landed: LandedCommit) -> bool:
    return landed.protocol is not None or landed.metadata is not None
