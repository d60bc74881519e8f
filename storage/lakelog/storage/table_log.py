"""The log of one table over a LogStore: snapshots, history, commits, checkpoints, clean-up."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakelog.core.actions import CommitInfo, Metadata, parse_commit
from lakelog.core.commit import NO_VERSION, CommitAttempt, check_allowed, isolation_of, prepare
from lakelog.core.errors import InvalidTablePropertyError, MissingCommitError, NotADeltaTableError, VersionNotFoundError
from lakelog.core.in_commit_timestamps import first_version
from lakelog.core.landed import commit_info_of
from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.core.log_segment import available_versions, commit_timestamps
from lakelog.core.snapshot import Snapshot
from lakelog.storage.commit_loop import CommitLoop, CommitResult, made_anew
from lakelog.storage.environment import Environment
from lakelog.storage.log_reader import CommitData, HeldLog, LogReader
from lakelog.storage.log_store import LogStore
from lakelog.storage.maintenance import Maintenance

# A snapshot older than this is refreshed before a commit; so is one older than half of what clean-up leaves a commit.
_STALE_MS = 60 * 1000

__all__ = ["NO_VERSION", "CommitAttempt", "CommitResult", "HistoryEntry", "TableLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit of a table's history.

    Attributes:
        version: the version it made.
        timestamp_ms: when, milliseconds since the epoch: in-commit timestamp if it has one, else its file's time, made to
            grow from version to version.
        commit_info: None where the commit holds none.
    """

    version: int
    timestamp_ms: int
    commit_info: CommitInfo | None


class TableLog:
    """The log of one table. Keeps the newest snapshot it has seen; safe to share between threads.

    Args:
        root: the table's root, unencoded, e.g. ``/tmp/x y`` or ``s3a://bucket/some key``.
        store: where the log is.
        environment: clock, sleep and randomness; the machine's own by default.
    """

    def __init__(self, root: str, store: LogStore, environment: Environment | None = None) -> None:
        self.root = root.rstrip("/") or "/"
        self._environment = Environment.system() if environment is None else environment
        self._reader = LogReader(self.root, store, self._environment)
        self._loop = CommitLoop(store, self._reader, self._environment)
        self._maintenance = Maintenance(store, self._reader, self._environment)
        self._held: HeldLog | None = None
        self._refreshed_ms = 0
        self._lock = threading.RLock()

    def exists(self) -> bool:
        """Whether there is a Delta table at the root, readable or not."""
        try:
            with suppress(MissingCommitError):
                available_versions(self._reader.listing())
        except NotADeltaTableError:
            return False
        return True

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, the newest by default.

        The newest costs one LIST and one GET per commit since the last call. Any version is read whose log is there,
        whatever the retention says.

        Raises:
            NotADeltaTableError: there is no log.
            VersionNotFoundError: names the earliest and the latest version.
            CorruptLogError: the log is damaged; names the file.
            UnsupportedFeatureError: a reader feature is not implemented.
        """
        if version is None:
            return self.refresh()
        with self._lock:
            held = self._held
        if held is not None and held.snapshot.version == version:
            return held.snapshot
        return self._reader.load(version).snapshot

    def refresh(self) -> Snapshot:
        """The newest snapshot. Raises as `snapshot`."""
        with self._lock:
            try:
                now_ms = self._environment.now_ms()
                self._held = self._reader.load() if self._held is None else self._reader.refresh(self._held)
                self._refreshed_ms = now_ms
            except NotADeltaTableError:
                self._held = None
                raise
            return self._held.snapshot

    @property
    def held(self) -> Snapshot | None:
        """The newest snapshot seen so far, without asking the store."""
        with self._lock:
            return None if self._held is None else self._held.snapshot

    def version_at_timestamp(self, timestamp_ms: int) -> int:
        """The newest version committed at or before a time.

        In-commit timestamps decide from the version on at which the table has them, before it the commit files' times,
        made to grow from version to version (PROTOCOL.md, "In-Commit Timestamps").

        Args:
            timestamp_ms: milliseconds since the epoch.

        Raises:
            VersionNotFoundError: the time lies before the earliest version that can be read, or after the latest.
            NotADeltaTableError: there is no log.
        """
        files = self._reader.listing()
        earliest, latest = available_versions(files, table=f"Delta table {self.root}")
        times = {version: time for version, time in commit_timestamps(files).items() if version >= earliest}
        found = self._newest_at(timestamp_ms, times)
        if found is None or (found == latest and timestamp_ms > self._timestamp_of(latest, times)):
            side = "before the earliest" if found is None else "after the latest"
            raise VersionNotFoundError(
                f"Delta table {self.root}: the time {_iso(timestamp_ms)} lies {side} commit; versions {earliest} to {latest} were "
                f"committed between {_iso(self._timestamp_of(earliest, times))} and {_iso(self._timestamp_of(latest, times))}. "
                "Ask for a time between the two, or for a version.",
                earliest=earliest,
                latest=latest,
            )
        return found

    def first_version_since(self, timestamp_ms: int) -> int | None:
        """The oldest version committed at or after a time whose commit file is there; None where the time lies after the latest commit.

        Args:
            timestamp_ms: milliseconds since the epoch.

        Raises:
            NotADeltaTableError: there is no log.
        """
        times = commit_timestamps(self._reader.listing())
        before = self._newest_at(timestamp_ms - 1, times)
        return min((version for version in times if before is None or version > before), default=None)

    def commits(self, first: int, last: int) -> Iterator[CommitData]:
        """The commit files of a range that includes both ends, ascending, each with its file's time, made to grow from version to version.

        Raises:
            VersionNotFoundError: a version of the range is not there, or its commit file was cleaned up; names which are there.
            NotADeltaTableError: there is no log.
        """
        files = self._reader.listing()
        times = commit_timestamps(files)
        absent = next((version for version in range(first, last + 1) if version not in times), None)
        if absent is not None:
            there = f"those of versions {min(times)} to {max(times)} are" if times else "none is"
            raise VersionNotFoundError(
                f"Delta table {self.root}: the commit of version {absent} is not in the log, {there}. Ask for versions that are there.",
                asked=absent,
                earliest=min(times, default=None),
                latest=max(times, default=None),
            )
        return self._reader.read_commits(range(first, last + 1), times, files)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits whose files are there, newest first.

        Args:
            limit: at most so many; None for all.

        Raises:
            NotADeltaTableError: there is no log.
        """
        files = self._reader.listing()
        available_versions(files, table=f"Delta table {self.root}")
        times = commit_timestamps(files)
        versions = sorted(times, reverse=True)[:limit]
        entries = []
        for commit in self._reader.read_commits(versions, times, files):
            info = commit_info_of(commit.data)
            in_commit = None if info is None else info.in_commit_timestamp
            timestamp_ms = commit.timestamp_ms if in_commit is None else in_commit
            entries.append(HistoryEntry(version=commit.version, timestamp_ms=timestamp_ms, commit_info=info))
        return entries

    def commit(self, attempt: CommitAttempt) -> CommitResult:
        """Commit an attempt, then write a checkpoint and clean up where the table's properties say so.

        An attempt against which no rule of `lakelog.core.conflicts` objects follows whatever landed since it read the table.

        Raises:
            DeltaConcurrentModificationException: another commit landed that the attempt must not follow; nothing was committed.
            CommitOutcomeUnknown: nobody can tell whether it landed; the data files must stay. Its ``resolve()`` settles it later.
            UnsupportedFeatureError: the table has an active writer feature that is not implemented.
            UnsupportedOperationError: the table is append-only; or it tracks rows, and a file does not tell how many it has.
            InvalidTablePropertyError: the table's isolation level is none, or another property that decides cannot be parsed.
            ValueError: the actions make no valid commit.
            StorageError, OSError: the store refused; nothing was committed.
        """
        environment = self._environment
        base = None if attempt.read_version == NO_VERSION else self._base(attempt.read_version)
        if base is not None:
            if attempt.table_id not in (None, base.metadata.id):
                raise made_anew(self.root, attempt)
            check_allowed(attempt, base)
        isolation = isolation_of(attempt, base)
        prepared = prepare(attempt, timestamp_ms=environment.now_ms(), txn_id=environment.new_uuid(), isolation=isolation)
        result = self._loop.run(prepared, base)
        # The commit has landed. An interrupt only cuts short what follows: a caller that saw it would take the commit for failed.
        with suppress(KeyboardInterrupt):
            with self._lock:
                if self._held is None or self._held.snapshot.version < result.version or attempt.read_version == NO_VERSION:
                    self._held = HeldLog(snapshot=result.snapshot, tip=None, tip_txn_id=prepared.txn_id, tip_md5=result.content_md5)
                    self._refreshed_ms = prepared.timestamp_ms
            self._maintenance.after_commit(result.snapshot)
        return result

    def checkpoint(self) -> LastCheckpoint:
        """Write a checkpoint of the newest version now.

        Raises:
            OSError: the store cannot write.
            InvalidTablePropertyError: a property that decides what to write cannot be parsed.
        """
        return self._maintenance.checkpoint(self.snapshot())

    def clean_up(self, *, retention_ms: int | None = None) -> list[str]:
        """Delete log files past ``delta.logRetentionDuration``; the names deleted. Only what a kept checkpoint makes superfluous goes.

        Args:
            retention_ms: counts in place of the property, to the millisecond and not to the day.

        Raises:
            OSError: the store cannot list or delete.
            InvalidTablePropertyError: the retention cannot be parsed.
        """
        return self._maintenance.clean_up(self.snapshot(), retention_ms=retention_ms)

    def metadata_history(self) -> Iterator[tuple[int, Metadata]]:
        """The metadata that is in force at the earliest version that can be read, and that of each commit that is there and changes it.

        Raises:
            NotADeltaTableError: there is no log.
            CorruptLogError: the log is damaged; names the file.
        """
        files = self._reader.listing()
        earliest, _ = available_versions(files, table=f"Delta table {self.root}")
        yield earliest, self.snapshot(earliest).metadata
        times = commit_timestamps(files)
        for commit in self._reader.read_commits(sorted(times), times, files):
            # A key may be spelt with escapes; the other lines cannot hold one and are many.
            lines = (line for line in commit.data.split(b"\n") if b"metaData" in line or b"\\u" in line)
            actions = parse_commit(b"\n".join(lines), self._reader.commit_path(commit.version))
            yield from ((commit.version, action) for action in actions if isinstance(action, Metadata))

    def _base(self, read_version: int) -> Snapshot:
        """The table at the version that an attempt read, or newer, as long as it is not stale.

        Clean-up may have deleted the commits after a version that nobody has looked at for long, and a commit would then
        land where another one was.
        """
        with self._lock:
            held = self._held
            age_ms = self._environment.now_ms() - self._refreshed_ms
        if held is None or held.snapshot.version < read_version or age_ms > _fresh_for_ms(held.snapshot):
            return self.refresh()
        return held.snapshot

    def _newest_at(self, timestamp_ms: int, times: dict[int, int]) -> int | None:
        first = self._first_in_commit_version(times)
        versions = sorted(times)
        if first is not None and (recent := [version for version in versions if version >= first]):
            start = self._reader.in_commit_timestamp(recent[0])
            if start is not None and timestamp_ms >= start:
                low, high = 0, len(recent) - 1
                while low < high:
                    middle = (low + high + 1) // 2
                    if self._timestamp_of(recent[middle], times) <= timestamp_ms:
                        low = middle
                    else:
                        high = middle - 1
                return recent[low]
            versions = [version for version in versions if version < first]
        return max((version for version in versions if times[version] <= timestamp_ms), default=None)

    def _timestamp_of(self, version: int, times: dict[int, int]) -> int:
        first = self._first_in_commit_version(times)
        if first is not None and version >= first:
            timestamp = self._reader.in_commit_timestamp(version)
            if timestamp is not None:
                return timestamp
        return times.get(version, 0)

    def _first_in_commit_version(self, listed: Collection[int]) -> int | None:
        """The version from which on commits hold their own time, None where the table does not have that on at the newest listed."""
        snapshot = self.held
        if snapshot is None or snapshot.version < max(listed, default=0):
            snapshot = self.refresh()
        return first_version(snapshot.metadata.configuration, self.root)


def _iso(timestamp_ms: int) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"


def _fresh_for_ms(snapshot: Snapshot) -> int:
    try:
        return min(_STALE_MS, snapshot.properties.log_retention_ms // 2)
    except InvalidTablePropertyError:
        return 0
