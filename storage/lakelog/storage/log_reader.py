"""Reading a table's log: listing, choosing a segment, replaying it, and advancing a snapshot by new commits alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakelog.core.errors import (
    CorruptLogError,
    InvalidTablePropertyError,
    MissingCommitError,
    NotADeltaTableError,
    StorageError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lakelog.core.in_commit_timestamps import is_enabled
from lakelog.core.landed import commit_info_of
from lakelog.core.log_files import LOG_FOLDER, commit_name, version_prefix
from lakelog.core.log_segment import (
    Checkpoint,
    LogListing,
    LogSegment,
    checkpoint_candidates,
    commit_timestamps,
    commits_after,
    select_segment,
)
from lakelog.core.replay import Fold, LogState
from lakelog.core.snapshot import Snapshot
from lakelog.storage.checkpoint_io import load_checkpoint, load_hint
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import LogStore

_LOGGER = logging.getLogger(__name__)

# How often a log with a gap is listed again, as long as the listings differ.
_LISTINGS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitData:
    """A commit file that was read.

    Attributes:
        version: from its name.
        data: the whole file.
        timestamp_ms: when it was written, milliseconds since the epoch.
    """

    version: int
    data: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLog:
    """A snapshot and how its newest commit file was listed, which tells the same table from one made anew at its path.

    Attributes:
        snapshot: the newest version known.
        tip: the commit file's listing; None where it was not listed (our own commit, or deleted by clean-up).
        tip_txn_id: ``commitInfo.txnId`` of the commit file where only that is known of it: our own commit.
        tip_md5: of its content, which saves reading it where a listing tells the same.
    """

    snapshot: Snapshot
    tip: LogListing | None
    tip_txn_id: str | None = None
    tip_md5: str | None = None


class LogReader:
    """Reads the log of one table. Holds no state; safe to share between threads.

    Args:
        root: the table's root, unencoded, without a slash at its end.
        store: where the log is.
        environment: the clock.
    """

    def __init__(self, root: str, store: LogStore, environment: Environment) -> None:
        self.root = root
        self.folder = f"{root}/{LOG_FOLDER}"
        self._store = store
        self._environment = environment

    def load(self, version: int | None = None) -> HeldLog:
        """A version from scratch: from the newest readable checkpoint at or below it, or from version 0.

        The hint in ``_last_checkpoint`` saves listing the whole log. Where it is missing, damaged or wrong, and where the
        checkpoint that it names is, the whole log is listed and the next older readable checkpoint serves.

        Args:
            version: None for the newest.

        Raises:
            NotADeltaTableError: there is no log.
            VersionNotFoundError: names the earliest and the latest version.
            MissingCommitError: a commit that is needed is gone.
            CorruptLogError: a commit is damaged, or no checkpoint that is needed can be read.
            UnsupportedFeatureError: a reader feature is not implemented.
        """
        hint = load_hint(self._store, self.folder)
        if hint is not None and (version is None or version >= hint.version):
            try:
                files = self.listing(hint.version)
                segment = select_segment(files, version=version, checkpoint_hint=hint.version, table=self._table)
                if segment.checkpoint is not None:
                    state = load_checkpoint(self._store, self.folder, segment.checkpoint, root=self.root)
                    return self._replay(state, segment, files)
            except (CorruptLogError, NotADeltaTableError, VersionNotFoundError, UnsupportedFeatureError) as error:
                _LOGGER.debug("%s: listing the whole log, since the hint %s led to: %s", self.root, hint, error)
        files = self.listing()
        for _ in range(_LISTINGS):
            try:
                state, segment = self._base(files, version)
            except MissingCommitError:
                # A listing may miss a commit that landed while it ran, and show the next one.
                before, files = files, self.listing()
                if files == before:
                    raise
            else:
                return self._replay(state, segment, files)
        state, segment = self._base(files, version)
        return self._replay(state, segment, files)

    def refresh(self, held: HeldLog) -> HeldLog:
        """The newest version, reading only commits newer than the held one: one LIST from the held version on, one GET per new commit.

        Raises: as `load`, which takes over when the held version cannot be advanced: commits in between were cleaned
            up, or the table was made anew at the same path.
        """
        version = held.snapshot.version
        try:
            files = self.listing(version)
            names = {file.name: file for file in files}
            tip = names.get(commit_name(version))
            if tip is None or not self._is_tip(held, tip):
                return self.load()
            newer = commits_after(files, version, table=self._table)
            if not newer:
                return HeldLog(snapshot=held.snapshot, tip=tip)
            times = commit_timestamps(files)
            commits = self.read_commits([commit.version for commit in newer], times, files)
            return HeldLog(snapshot=self.advance(held.snapshot, commits), tip=names[newer[-1].name])
        except MissingCommitError:
            return self.load()

    def advance(self, snapshot: Snapshot | None, commits: Iterable[CommitData]) -> Snapshot:
        """The snapshot after some more commits, without any request to the store of its own.

        Args:
            snapshot: None to start from nothing.
            commits: the versions right after the snapshot's, ascending.

        Raises:
            MissingCommitError: a version is skipped.
            CorruptLogError: a commit is damaged, or the result is no table.
            UnsupportedFeatureError: a reader feature is not implemented.
        """
        fold = Fold(LogState() if snapshot is None else snapshot.state, root=self.root)
        timestamp_ms = 0 if snapshot is None else snapshot.timestamp_ms
        for commit in commits:
            fold.add_commit(commit.version, commit.data, self.commit_path(commit.version))
            timestamp_ms = commit.timestamp_ms
        return Snapshot.from_state(fold.finish(), root=self.root, timestamp_ms=timestamp_ms, now_ms=self._environment.now_ms())

    def listing(self, from_version: int = 0) -> list[LogListing]:
        """The log's files whose version is at least ``from_version``.

        Raises:
            NotADeltaTableError: there is no log folder.
        """
        try:
            found = list(self._store.list_from(f"{self.folder}/{version_prefix(from_version)}"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotADeltaTableError(
                f"{self.root} is no Delta table: it has no {LOG_FOLDER} folder. Check the path, or write a table there first."
            ) from error
        return [LogListing(file.name, file.size, file.modification_time_ms, file.content_md5) for file in found]

    def read_commits(self, versions: Sequence[int], timestamps: Mapping[int, int], files: Iterable[LogListing]) -> Iterator[CommitData]:
        """Commit files in the order asked for; several at a time where there are many.

        Args:
            versions: which.
            timestamps: when they were written, by version.
            files: a listing that holds them.

        Raises:
            MissingCommitError: one is gone.
            StorageError: one came with fewer bytes than were listed.
        """
        sizes = {file.name: file.size for file in files}
        yield from self._environment.parallel(lambda version: self._read_commit(version, timestamps, sizes), versions)

    def read_on(self, first: int) -> Iterator[CommitData]:
        """The commit files from ``first`` on until one is missing, without a listing; for a store that is near.

        Raises:
            MissingCommitError: the first is gone.
        """
        now_ms = self._environment.now_ms()
        version = first
        while True:
            try:
                commit = self._read_commit(version, {version: now_ms}, {})
            except MissingCommitError:
                if version == first:
                    raise
                return
            yield commit
            version += 1

    def starts_from_a_readable_checkpoint(self, files: Sequence[LogListing]) -> bool:
        """Whether the oldest complete checkpoint among the files can be loaded."""
        oldest = checkpoint_candidates(files)[-1:]
        try:
            return bool(oldest) and bool(load_checkpoint(self._store, self.folder, oldest[0], root=self.root))
        except (CorruptLogError, UnsupportedFeatureError):
            return False

    def commit_path(self, version: int) -> str:
        """Where the commit file of a version is."""
        return f"{self.folder}/{commit_name(version)}"

    def in_commit_timestamp(self, version: int) -> int | None:
        """``commitInfo.inCommitTimestamp`` of a version's commit file, None where it has none."""
        info = commit_info_of(self._read_commit(version, {}, {}).data)
        return None if info is None else info.in_commit_timestamp

    def commit_file_time(self, version: int) -> int | None:
        """When a version's commit file was written, made to grow from version to version; None where it is not there."""
        return commit_timestamps(self.listing()).get(version)

    def _is_tip(self, held: HeldLog, listed: LogListing) -> bool:
        """Whether the file under the tip's name is the one that was held; of our own commit, never listed, its txnId tells."""
        if held.tip is not None:
            return held.tip == listed
        if held.tip_txn_id is None or (held.tip_md5 is not None and held.tip_md5 == listed.content_md5):
            return True
        info = commit_info_of(self._read_commit(held.snapshot.version, {}, {}).data)
        return info is not None and info.txn_id == held.tip_txn_id

    @property
    def _table(self) -> str:
        return f"Delta table {self.root}"

    def _read_commit(self, version: int, timestamps: Mapping[int, int], sizes: Mapping[str, int]) -> CommitData:
        path = self.commit_path(version)
        try:
            data = self._store.read(path)
        except FileNotFoundError as error:
            raise MissingCommitError(
                f"{self._table}: the commit file {path} was listed and is gone. Log clean-up may have run meanwhile: read the table again."
            ) from error
        listed = sizes.get(commit_name(version), 0)
        if len(data) < listed:
            # The lines that came may make a valid commit, and another one.
            raise StorageError(f"{self._table}: {path} has {listed} bytes and gave {len(data)}, a read cut off. Read the table again.")
        return CommitData(version=version, data=data, timestamp_ms=timestamps.get(version, 0))

    def _base(self, files: Sequence[LogListing], version: int | None) -> tuple[LogState, LogSegment]:
        """The state to start from, and the segment that starts there."""
        unreadable: list[Checkpoint] = []
        failures: list[CorruptLogError | UnsupportedFeatureError] = []
        while True:
            try:
                segment = select_segment(files, version=version, unreadable=unreadable, table=self._table)
            except MissingCommitError as error:
                if not failures:
                    raise
                if isinstance(failures[0], UnsupportedFeatureError):
                    raise failures[0] from error
                raise CorruptLogError(
                    f"{failures[0]}; and without it the log cannot be replayed: {error}. Restore the checkpoint or the older commits."
                ) from error
            if segment.checkpoint is None:
                return LogState(), segment
            try:
                return load_checkpoint(self._store, self.folder, segment.checkpoint, root=self.root), segment
            except (CorruptLogError, UnsupportedFeatureError) as error:
                level = logging.WARNING if isinstance(error, CorruptLogError) else logging.DEBUG
                _LOGGER.log(level, "%s: the checkpoint of version %s is passed over: %s", self.root, segment.checkpoint_version, error)
                unreadable.append(segment.checkpoint)
                failures.append(error)

    def _with_own_time(self, state: LogState) -> LogState:
        """The state of a checkpoint with the in-commit timestamp, which only the commit file of the same version holds."""
        try:
            if state.metadata is None or not is_enabled(state.metadata.configuration):
                return state
            return replace(state, in_commit_timestamp=self.in_commit_timestamp(state.version))
        except (InvalidTablePropertyError, MissingCommitError):
            # The property is the writers' concern, and a commit that was cleaned up took its time along.
            return state

    def _replay(self, state: LogState, segment: LogSegment, files: Sequence[LogListing]) -> HeldLog:
        times = commit_timestamps(files)
        fold = Fold(state, root=self.root)
        for commit in self.read_commits([commit.version for commit in segment.commits], times, files):
            fold.add_commit(commit.version, commit.data, self.commit_path(commit.version))
        state = fold.finish()
        if not segment.commits:
            state = self._with_own_time(state)
        snapshot = Snapshot.from_state(
            state,
            root=self.root,
            timestamp_ms=times.get(segment.version, segment.timestamp_ms),
            now_ms=self._environment.now_ms(),
        )
        name = commit_name(segment.version)
        tips = (file for file in files if file.name == name)
        return HeldLog(snapshot=snapshot, tip=next(tips, None))
