"""Log clean-up never takes what a version that is kept needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.log_files import ChecksumFile, ClassicCheckpoint, CommitFile, CompactedFile, LogFile, MultiPartCheckpoint
from lakelog.core.log_segment import LogListing, available_versions, select_segment
from lakelog.core.retention import log_files_to_delete

DAY = 24 * 60 * 60 * 1000


def at(day: float, *files: LogFile, size: int = 1) -> list[LogListing]:
    return [LogListing(file.name, size, int(day * DAY)) for file in files]


def one_commit_a_day(days: int, *checkpoint_days: int) -> list[LogListing]:
    files = [entry for day in range(days) for entry in at(day + 0.5, CommitFile(day), ChecksumFile(day))]
    return files + [entry for day in checkpoint_days for entry in at(day + 0.5, ClassicCheckpoint(day))]


def deleted(files: list[LogListing], *, now: float, keep: float) -> list[str]:
    return log_files_to_delete(files, now_ms=int(now * DAY), log_retention_ms=int(keep * DAY))


def test_everything_before_the_newest_expired_checkpoint_goes_oldest_first() -> None:
    files = one_commit_a_day(40, 10, 20, 30)
    before = [file.name for day in range(20) for file in (CommitFile(day), ChecksumFile(day))]
    before.insert(22, ClassicCheckpoint(10).name)
    # Commit 24 is the newest that is older than midnight of day 25.
    assert deleted(files, now=55.7, keep=30) == before


def test_the_cutoff_is_midnight() -> None:
    files = one_commit_a_day(12, 5, 10)
    assert CommitFile(9).name not in deleted(files, now=40.99, keep=30)
    assert CommitFile(9).name in deleted(files, now=41.0, keep=30)


def test_nothing_goes_without_an_expired_checkpoint() -> None:
    assert deleted(one_commit_a_day(40), now=100, keep=30) == []
    assert deleted(one_commit_a_day(40, 35), now=60, keep=30) == []
    assert deleted(one_commit_a_day(40, 10), now=30, keep=30) == []
    assert deleted([], now=30, keep=30) == []


def test_incomplete_checkpoints_hold_nothing_and_go() -> None:
    files = one_commit_a_day(40, 10) + at(20, MultiPartCheckpoint(20, 1, 2)) + at(21, ClassicCheckpoint(21), size=0)
    assert max(deleted(files, now=100, keep=30)) < CommitFile(10).name
    files += at(30, ClassicCheckpoint(30))
    gone = deleted(files, now=100, keep=30)
    assert MultiPartCheckpoint(20, 1, 2).name in gone
    assert ClassicCheckpoint(21).name in gone


def test_compacted_files_that_start_before_the_checkpoint_go() -> None:
    files = one_commit_a_day(40, 10) + at(1, CompactedFile(4, 8), CompactedFile(8, 12), CompactedFile(10, 12), CompactedFile(11, 12))
    gone = deleted(files, now=100, keep=30)
    assert [name for name in gone if "compacted" in name] == [
        CompactedFile(4, 8).name,
        CompactedFile(8, 12).name,
        CompactedFile(10, 12).name,
    ]


def test_strangers_and_the_hint_stay() -> None:
    files = one_commit_a_day(40, 10) + [LogListing(name, 1, 0) for name in ("_last_checkpoint", "notes.txt", "_sidecars")]
    assert not {"_last_checkpoint", "notes.txt", "_sidecars"} & set(deleted(files, now=100, keep=30))


def test_a_commit_file_that_a_copy_made_young_keeps_what_follows_it() -> None:
    files = [*at(90, CommitFile(0)), *at(1, CommitFile(1), CommitFile(2), ClassicCheckpoint(2), CommitFile(3))]
    assert deleted(files, now=100, keep=30) == []


@given(
    days=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    checkpoints=st.sets(st.integers(0, 29), max_size=5),
    now=st.integers(0, 120),
    keep=st.integers(0, 60),
    stop=st.integers(0, 100),
)
def test_kept_versions_stay_readable_even_when_the_deletion_stops_midway(
    days: list[int], checkpoints: set[int], now: int, keep: int, stop: int
) -> None:
    files = [entry for version, day in enumerate(days) for entry in at(day, CommitFile(version))]
    files += [entry for version in checkpoints if version < len(days) for entry in at(days[version], ClassicCheckpoint(version))]
    gone = deleted(files, now=now, keep=keep)
    kept_whole = [version for version in range(len(days)) if CommitFile(version).name not in gone]
    left = [file for file in files if file.name not in gone[:stop]]
    for version in kept_whole:
        assert select_segment(left, version=version).version == version
    # Old enough and behind the cutoff, or it would not have gone.
    cutoff = (now - keep) * DAY
    assert all(file.modification_time_ms <= cutoff for file in files if file.name in gone)
    assert available_versions(left)[1] == len(days) - 1
