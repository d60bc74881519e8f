"""The commit loop: one attempt, put where it is the next version, settled whatever the store answers.

Each version is settled before the next is tried. An answer that is not known is never taken for a conflict: the
version is read back and its ``commitInfo.txnId`` compared, and where nothing is there the same bytes go to the same
place again, since the first request may still arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.core.commit import NO_VERSION, PreparedCommit, commit_info_of, conflict, landed_commit
from lakelog.core.errors import CommitOutcomeUnknown, ConcurrentWriteException, NotADeltaTableError, StorageError
from lakelog.core.log_files import CommitFile, parse_log_file
from lakelog.core.log_segment import available_versions, commits_after
from lakelog.core.snapshot import Snapshot
from lakelog.storage.environment import Environment
from lakelog.storage.log_reader import CommitData, LogReader
from lakelog.storage.log_store import AlreadyExists, Created, LogStore, Unknown

_LOGGER = logging.getLogger(__name__)

# How often an unknown answer is looked into before the outcome is given up as unknown.
_SETTLE_ATTEMPTS = 6
# How many versions a blind append may lose to others. Each loss means that another writer won.
_MAX_LOSSES = 10_000

_LONGEST_DELAY_S = 5.0
_SETTLE_DELAY_S = 0.1
_LOSS_DELAY_S = 0.002
_LONGEST_LOSS_DELAY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """A commit that landed.

    Attributes:
        version: where.
        snapshot: the table at that version.
    """

    version: int
    snapshot: Snapshot


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
            CorruptLogError: a commit that landed meanwhile is damaged, or the attempt's own actions make no table.
            StorageError, OSError: the store refused; nothing was committed.
        """
        read_version = prepared.attempt.read_version
        current = base
        if base is not None and base.version < read_version:
            raise ConcurrentWriteException(
                f"Delta table {self._reader.root}: this transaction read version {read_version}, but the newest is {base.version}: "
                "the table was made anew meanwhile. Read it again and run the operation again."
            )
        if base is not None and base.version > read_version:
            self._check(prepared, range(read_version + 1, base.version + 1))
        if base is None:
            self._refuse_existing(prepared)
        for losses in range(_MAX_LOSSES):
            version = NO_VERSION + 1 if current is None else current.version + 1
            own = CommitData(version=version, data=prepared.data, timestamp_ms=prepared.timestamp_ms)
            following = self._reader.advance(current, [own])
            if self._put(version, prepared):
                return CommitResult(version=version, snapshot=following)
            winners = self._check(prepared, range(version, self._newest(version) + 1))
            current = self._reader.advance(current, winners)
            self._wait(_LOSS_DELAY_S, losses, _LONGEST_LOSS_DELAY_S)
        raise ConcurrentWriteException(
            f"Delta table {self._reader.root}: {_MAX_LOSSES} commits of other writers landed first. Run the operation again."
        )

    def _put(self, version: int, prepared: PreparedCommit) -> bool:
        """Whether the attempt is what ``version`` holds; an interrupt travels on only when it certainly is not."""
        try:
            return self._settle(version, prepared)
        except (CommitOutcomeUnknown, StorageError, OSError):
            raise
        except BaseException as interrupt:
            self._settle_interrupt(version, prepared, interrupt)
            raise

    def _settle(self, version: int, prepared: PreparedCommit) -> bool:
        """Put until the answer is known.

        Raises:
            StorageError, OSError: the store refused, and no earlier request can have arrived.
            CommitOutcomeUnknown: it stays unknown.
        """
        path = self._reader.commit_path(version)
        cause: BaseException | None = None
        for attempt in range(_SETTLE_ATTEMPTS):
            try:
                outcome = self._store.put_if_absent(path, prepared.data)
            except (StorageError, OSError):
                if cause is None:
                    raise
                # This request did nothing, but an earlier one may still arrive.
                outcome = Unknown(cause if isinstance(cause, Exception) else RuntimeError(str(cause)))
            if isinstance(outcome, Created):
                return True
            if isinstance(outcome, Unknown):
                cause = outcome.cause
                _LOGGER.warning("%s: the outcome of version %d is unknown: %s", self._reader.root, version, cause)
                self._wait(_SETTLE_DELAY_S, attempt, _LONGEST_DELAY_S)
            try:
                return self._holds(version, prepared)
            except FileNotFoundError as error:
                cause = cause or error
            except (StorageError, OSError) as error:
                cause = error
                if isinstance(outcome, AlreadyExists):
                    self._wait(_SETTLE_DELAY_S, attempt, _LONGEST_DELAY_S)
        raise self._unknown(version, prepared, cause) from cause

    def _settle_interrupt(self, version: int, prepared: PreparedCommit, interrupt: BaseException) -> None:
        """Return when the interrupted put certainly left nothing, so that the interrupt itself may travel on."""
        try:
            if self._holds(version, prepared):
                raise self._unknown(version, prepared, interrupt) from interrupt
        except FileNotFoundError:
            return
        except (StorageError, OSError) as error:
            raise self._unknown(version, prepared, interrupt) from error

    def _holds(self, version: int, prepared: PreparedCommit) -> bool:
        info = commit_info_of(self._store.read(self._reader.commit_path(version)))
        return info is not None and info.txn_id == prepared.txn_id

    def _unknown(self, version: int, prepared: PreparedCommit, cause: BaseException | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"Delta table {self._reader.root}: nobody can tell whether version {version} was committed ({cause}). The data files stay. "
            f"Look for txnId {prepared.txn_id} in {self._reader.commit_path(version)} once the store answers again: "
            "if it is there, the commit landed; if another commit is there, run the operation again.",
            version=version,
            txn_id=prepared.txn_id,
        )

    def _newest(self, version: int) -> int:
        """The newest commit from ``version`` on; ``version`` itself is known to be there."""
        listed = {file.version for item in self._reader.listing(version) if isinstance(file := parse_log_file(item.name), CommitFile)}
        newest = version
        while newest + 1 in listed:
            newest += 1
        return newest

    def _refuse_existing(self, prepared: PreparedCommit) -> None:
        """Raise when the table that the attempt creates is there: clean-up may have deleted version 0, so that it could be put again."""
        try:
            files = self._reader.listing()
            earliest, latest = available_versions(files, table=f"Delta table {self._reader.root}")
        except NotADeltaTableError:
            return
        commits = commits_after(files, latest - 1)
        self._check(prepared, [commit.version for commit in commits])
        raise ConcurrentWriteException(
            f"Delta table {self._reader.root}: the table is there already, with versions {earliest} to {latest}. "
            "Run the write again to add to that table."
        )

    def _check(self, prepared: PreparedCommit, versions: Sequence[int]) -> list[CommitData]:
        """The commits of other writers, none of which stands in the attempt's way."""
        winners = []
        for winner in self._reader.read_commits(versions, dict.fromkeys(versions, self._environment.now_ms())):
            landed = landed_commit(winner.version, winner.data, self._reader.commit_path(winner.version))
            error = conflict(prepared.attempt, landed, root=self._reader.root)
            if error is not None:
                raise error
            winners.append(winner)
        return winners

    def _wait(self, first_s: float, attempt: int, longest_s: float) -> None:
        # Full jitter: writers that met once do not meet in step again.
        self._environment.sleep(min(longest_s, first_s * 2 ** min(attempt, 20)) * self._environment.random())
