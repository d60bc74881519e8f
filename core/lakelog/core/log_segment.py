"""Which files of the log make a version (PROTOCOL.md, "Delta Log Entries" and "Checkpoints").

`select_segment` guarantees of what it returns:

1. the commits are contiguous;
2. the checkpoint is complete: every part is listed and none is empty;
3. it is the newest such checkpoint at or below the version, but for the ones the caller has found unreadable;
4. nothing older than what is needed is named: the first commit follows the checkpoint, or is version 0;
5. the last commit is exactly the version asked for, or the checkpoint is.

Names that the protocol does not know, checksums and compacted files play no part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakelog.core.errors import MissingCommitError, NotADeltaTableError, VersionNotFoundError
from lakelog.core.log_files import (
    CheckpointFile,
    ClassicCheckpoint,
    CommitFile,
    MultiPartCheckpoint,
    V2Checkpoint,
    parse_log_file,
    sort_key,
)

Checkpoint: TypeAlias = tuple[CheckpointFile, ...]


@dataclass(frozen=True, slots=True)
class LogListing:
    """A file in the log folder: its name without folder, bytes, milliseconds since the epoch, and what may be the MD5 of its content."""

    name: str
    size: int
    modification_time_ms: int
    content_md5: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The files that make ``version``.

    Attributes:
        version: the version that the segment ends at.
        checkpoint: the files of the checkpoint to start from, parts in order; None to start from nothing.
        commits: the commits to apply on top, oldest first.
        timestamp_ms: modification time of the commit file of ``version``; that of the checkpoint where clean-up has
            deleted the commit.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[CommitFile, ...]
    timestamp_ms: int

    @property
    def checkpoint_version(self) -> int | None:
        """The version of the checkpoint, None without one."""
        return None if self.checkpoint is None else self.checkpoint[0].version


def select_segment(
    files: Sequence[LogListing],
    *,
    version: int | None = None,
    checkpoint_hint: int | None = None,
    unreadable: Collection[Checkpoint] = (),
    table: str = "the table",
) -> LogSegment:
    """The files that make a version of the table.

    Args:
        files: the log folder's listing, in any order.
        version: the version wanted, None for the newest.
        checkpoint_hint: the version from which on ``files`` was listed, None when the whole folder was. With a hint, any
            error below may come from the part that was not listed: list the whole folder and ask again.
        unreadable: checkpoints of `checkpoint_candidates` that must not be used.
        table: the table's name, for messages.

    Raises:
        NotADeltaTableError: neither a commit nor a checkpoint is there.
        VersionNotFoundError: the version is below the earliest or above the latest that can be rebuilt.
        MissingCommitError: a commit that is needed is gone.
    """
    log = _read_listing(files)
    earliest, latest = _available(log, table, checkpoint_hint)
    wanted = latest if version is None else version
    if not earliest <= wanted <= latest:
        raise VersionNotFoundError(
            f"{table} has no version {wanted}: the versions that can be read are {earliest} to {latest}",
            asked=wanted,
            earliest=earliest,
            latest=latest,
        )
    usable = (candidate for candidate in log.checkpoints if candidate[0].version <= wanted and candidate not in unreadable)
    checkpoint = next(usable, None)
    first = 0 if checkpoint is None else checkpoint[0].version + 1
    commits = _contiguous(log, first, wanted, table)
    time = log.commit_times.get(wanted)
    if time is None:
        time = max(log.times[file.name] for file in checkpoint or ())
    return LogSegment(version=wanted, checkpoint=checkpoint, commits=commits, timestamp_ms=time)


def checkpoint_candidates(files: Iterable[LogListing], *, version: int | None = None) -> list[Checkpoint]:
    """The complete checkpoints at or below ``version`` (all when None), newest first.

    Several of one version stand in the order of preference of `lakelog.core.log_files.sort_key`: V2, then multi-part,
    then classic.
    """
    return [candidate for candidate in _read_listing(files).checkpoints if version is None or candidate[0].version <= version]


def available_versions(files: Iterable[LogListing], *, table: str = "the table") -> tuple[int, int]:
    """The earliest and the latest version that can be rebuilt from the whole folder's listing.

    The earliest is 0 while commit 0 is there, else the oldest complete checkpoint's; a gap between the two shows only
    when a version behind it is asked for.

    Raises:
        NotADeltaTableError: neither a commit nor a checkpoint is there.
        MissingCommitError: there are commits, but nothing to start from.
    """
    return _available(_read_listing(files), table, None)


def commits_after(files: Iterable[LogListing], version: int, *, table: str = "the table") -> tuple[CommitFile, ...]:
    """The commits newer than ``version``, oldest first: what an incremental refresh has to read.

    Raises:
        MissingCommitError: there are newer commits or checkpoints, but not every commit up to the newest commit.
    """
    log = _read_listing(files)
    newer = [found for found in log.commit_times if found > version]
    return _contiguous(log, version + 1, max(newer, default=version), table)


def commit_timestamps(files: Iterable[LogListing]) -> dict[int, int]:
    """Milliseconds since the epoch by version for every commit that is listed, oldest first.

    File modification times, made to grow: a commit that is not younger than the one before counts 1 ms after it, as
    delta-spark does where in-commit timestamps are off.
    """
    times: dict[int, int] = {}
    previous: int | None = None
    for version, time in sorted(_read_listing(files).commit_times.items()):
        previous = time if previous is None else max(time, previous + 1)
        times[version] = previous
    return times


@dataclass(frozen=True, slots=True)
class _Log:
    commit_times: dict[int, int]
    checkpoints: list[Checkpoint]
    times: dict[str, int]


def _read_listing(files: Iterable[LogListing]) -> _Log:
    commit_times: dict[int, int] = {}
    times: dict[str, int] = {}
    whole: list[Checkpoint] = []
    parts: defaultdict[tuple[int, int], list[MultiPartCheckpoint]] = defaultdict(list)
    for listing in files:
        match file := parse_log_file(listing.name):
            case CommitFile(version):
                commit_times[version] = listing.modification_time_ms
            case ClassicCheckpoint() | V2Checkpoint() if listing.size > 0:
                whole.append((file,))
                times[listing.name] = listing.modification_time_ms
            case MultiPartCheckpoint(version, _, count) if listing.size > 0:
                parts[version, count].append(file)
                times[listing.name] = listing.modification_time_ms
            case _:
                pass
    for (_, count), found in parts.items():
        if len(found) == count:
            whole.append(tuple(sorted(found, key=sort_key)))
    whole.sort(key=lambda checkpoint: sort_key(checkpoint[0]), reverse=True)
    return _Log(commit_times, whole, times)


def _available(log: _Log, table: str, checkpoint_hint: int | None) -> tuple[int, int]:
    if not log.commit_times and not log.checkpoints:
        raise NotADeltaTableError(f"{table} is no Delta table: its _delta_log folder holds neither a commit nor a checkpoint")
    latest = max([*log.commit_times, *(checkpoint[0].version for checkpoint in log.checkpoints)])
    if 0 in log.commit_times:
        return 0, latest
    if log.checkpoints:
        return log.checkpoints[-1][0].version, latest
    oldest = min(log.commit_times)
    where = "" if checkpoint_hint is None else f" (listed from version {checkpoint_hint} on)"
    raise MissingCommitError(
        f"the log of {table}{where} starts with commit {oldest} and holds no complete checkpoint; "
        "no version can be read until the older commits or a checkpoint are restored"
    )


def _contiguous(log: _Log, first: int, last: int, table: str) -> tuple[CommitFile, ...]:
    found = sorted(version for version in log.commit_times if first <= version <= last)
    if len(found) != last + 1 - first:
        missing = next((want for want, version in enumerate(found, start=first) if want != version), first + len(found))
        raise MissingCommitError(
            f"the log of {table} lacks {CommitFile(missing).name}, which version {last} needs; "
            f"restore the file, or read a version before {missing}"
        )
    return tuple(CommitFile(version) for version in found)
