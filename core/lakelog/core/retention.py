"""What log clean-up may delete (PROTOCOL.md, "Metadata Cleanup")."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.core.log_files import (
    ChecksumFile,
    ClassicCheckpoint,
    CommitFile,
    CompactedFile,
    LogFile,
    MultiPartCheckpoint,
    V2Checkpoint,
    parse_log_file,
    sort_key,
)
from lakelog.core.log_segment import LogListing, checkpoint_candidates, commit_timestamps

_DAY_MS = 24 * 60 * 60 * 1000


def log_files_to_delete(listing: Sequence[LogListing], *, now_ms: int, log_retention_ms: int, to_the_day: bool = True) -> list[str]:
    """The names of the log files that nobody needs any more, in an order in which they may be deleted one by one.

    The cutoff is ``now_ms - log_retention_ms``, or midnight UTC before that. The newest complete checkpoint at or below the
    newest commit that is not newer than the cutoff stays, with its commit and everything after; the commits,
    checkpoints (complete or not) and checksums before it go, and compacted files that start at or before it. Without
    such a checkpoint nothing goes.

    Args:
        listing: the whole log folder, in any order.
        now_ms: milliseconds since the epoch.
        log_retention_ms: the table's ``delta.logRetentionDuration``.
        to_the_day: go back to midnight, so that one pass of clean-up a day has all that there is to do.
    """
    cutoff_ms = now_ms - log_retention_ms
    if to_the_day:
        cutoff_ms = cutoff_ms // _DAY_MS * _DAY_MS
    expired = [version for version, time in commit_timestamps(listing).items() if time <= cutoff_ms]
    if not expired:
        return []
    candidates = checkpoint_candidates(listing, version=expired[-1])
    if not candidates:
        return []
    base = candidates[0][0].version
    files = sorted((parse_log_file(item.name) for item in listing), key=sort_key)
    return [file.name for file in files if _is_covered(file, base)]


def _is_covered(file: LogFile, checkpoint_version: int) -> bool:
    match file:
        case CommitFile(version) | ChecksumFile(version):
            return version < checkpoint_version
        case ClassicCheckpoint(version) | MultiPartCheckpoint(version) | V2Checkpoint(version):
            return version < checkpoint_version
        case CompactedFile(start, _):
            return start <= checkpoint_version
        case _:
            return False
