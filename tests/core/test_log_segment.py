"""Which files make a version: the numbered guarantees of `log_segment`, and its errors."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import LakelogError, MissingCommitError, NotADeltaTableError, VersionNotFoundError
from lakelog.core.log_files import ClassicCheckpoint, CommitFile, CompactedFile, MultiPartCheckpoint, V2Checkpoint
from lakelog.core.log_segment import (
    LogListing,
    available_versions,
    checkpoint_candidates,
    commit_timestamps,
    commits_after,
    select_segment,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def listing(*names: str, size: int = 1, time: int = 0) -> list[LogListing]:
    return [LogListing(name, size, time) for name in names]


def commits(versions: Iterable[int]) -> list[LogListing]:
    return [LogListing(CommitFile(version).name, 1, 1000 * version) for version in versions]


def checkpoints(*versions: int) -> list[LogListing]:
    return [LogListing(ClassicCheckpoint(version).name, 1, 1000 * version + 1) for version in versions]


def versions_of(found: Iterable[CommitFile]) -> list[int]:
    return [file.version for file in found]


@given(
    present=st.sets(st.integers(0, 9)),
    at=st.sets(st.integers(0, 9), max_size=3),
    parts=st.sets(st.sampled_from([1, 2, 3])),
    parts_at=st.integers(0, 9),
    wanted=st.none() | st.integers(-1, 11),
    order=st.randoms(use_true_random=False),
)
def test_the_guarantees_hold_for_any_listing(
    present: set[int], at: set[int], parts: set[int], parts_at: int, wanted: int | None, order: st.DataObject
) -> None:
    files = commits(present) + checkpoints(*at) + listing(*(MultiPartCheckpoint(parts_at, part, 3).name for part in parts))
    order.shuffle(files)  # type: ignore[attr-defined]
    complete = at | ({parts_at} if len(parts) == 3 else set())
    known = present | complete
    version = max(known, default=None) if wanted is None else wanted

    def rebuildable(target: int) -> bool:
        base = max((checkpoint for checkpoint in complete if checkpoint <= target), default=-1)
        return target >= 0 and set(range(base + 1, target + 1)) <= present and (base >= 0 or 0 in present)

    try:
        segment = select_segment(files, version=wanted)
    except LakelogError:
        assert version is None or not rebuildable(version)
        return
    assert version is not None
    assert rebuildable(version)
    assert segment.version == version
    first = 0 if segment.checkpoint_version is None else segment.checkpoint_version + 1
    assert versions_of(segment.commits) == list(range(first, version + 1))
    assert segment.checkpoint_version == max((checkpoint for checkpoint in complete if checkpoint <= version), default=None)
    if segment.checkpoint is not None and isinstance(segment.checkpoint[0], MultiPartCheckpoint):
        assert segment.checkpoint == tuple(MultiPartCheckpoint(parts_at, part, 3) for part in (1, 2, 3))


def test_the_newest_version_starts_from_the_newest_checkpoint() -> None:
    segment = select_segment(commits(range(13)) + checkpoints(5, 10))
    assert segment.version == 12
    assert segment.checkpoint == (ClassicCheckpoint(10),)
    assert versions_of(segment.commits) == [11, 12]
    assert segment.timestamp_ms == 12_000


def test_an_older_version_starts_from_an_older_checkpoint() -> None:
    segment = select_segment(commits(range(13)) + checkpoints(5, 10), version=9)
    assert (segment.checkpoint, versions_of(segment.commits)) == ((ClassicCheckpoint(5),), [6, 7, 8, 9])


def test_a_checkpoint_of_the_version_itself_needs_no_commit() -> None:
    segment = select_segment(checkpoints(10), version=10)
    assert (segment.checkpoint, segment.commits, segment.timestamp_ms) == ((ClassicCheckpoint(10),), (), 10_001)


def test_empty_and_incomplete_checkpoints_are_passed_over() -> None:
    files = commits(range(12)) + checkpoints(4)
    files += listing(ClassicCheckpoint(8).name, size=0)
    files += listing(MultiPartCheckpoint(9, 1, 2).name)
    files += listing(MultiPartCheckpoint(10, 1, 2).name) + listing(MultiPartCheckpoint(10, 2, 2).name, size=0)
    # One part each of two sets with different numbers of parts.
    files += listing(MultiPartCheckpoint(11, 1, 2).name, MultiPartCheckpoint(11, 2, 3).name)
    assert select_segment(files).checkpoint == (ClassicCheckpoint(4),)


def test_candidates_come_newest_first_and_the_preferred_of_a_version_before_the_others() -> None:
    parts = (MultiPartCheckpoint(7, 1, 2), MultiPartCheckpoint(7, 2, 2))
    top = V2Checkpoint(7, UUID, "parquet")
    files = checkpoints(3, 7, 9) + listing(parts[1].name, top.name, parts[0].name)
    assert checkpoint_candidates(files, version=8) == [(top,), parts, (ClassicCheckpoint(7),), (ClassicCheckpoint(3),)]
    assert checkpoint_candidates(files)[0] == (ClassicCheckpoint(9),)


def test_an_unreadable_checkpoint_falls_back_to_the_one_before_and_then_to_the_commits() -> None:
    files = commits(range(8)) + checkpoints(3, 6)
    first, second = checkpoint_candidates(files)
    segment = select_segment(files, unreadable=[first])
    assert (segment.checkpoint, versions_of(segment.commits)) == (second, [4, 5, 6, 7])
    segment = select_segment(files, unreadable=[first, second])
    assert (segment.checkpoint, versions_of(segment.commits)) == (None, list(range(8)))


def test_an_unreadable_only_base_is_a_missing_commit() -> None:
    files = commits(range(6, 8)) + checkpoints(6)
    with pytest.raises(MissingCommitError, match=r"00000000000000000000\.json, which version 7 needs"):
        select_segment(files, unreadable=checkpoint_candidates(files))


def test_a_gap_is_named() -> None:
    files = commits([0, 1, 3])
    with pytest.raises(MissingCommitError, match=r"the log of /t lacks 00000000000000000002\.json, which version 3 needs"):
        select_segment(files, table="/t")
    assert select_segment(files, version=1).version == 1


def test_a_gap_as_wide_as_versions_go_is_found_at_once() -> None:
    with pytest.raises(MissingCommitError, match=r"00000000000000000001\.json"):
        select_segment(commits([0, 2**63 - 1]))


def test_a_gap_before_the_checkpoint_does_no_harm() -> None:
    assert versions_of(select_segment(commits([0, 1, 6, 7]) + checkpoints(5)).commits) == [6, 7]


@pytest.mark.parametrize("asked", [-1, 4, 13])
def test_a_version_out_of_range_names_the_range(asked: int) -> None:
    with pytest.raises(VersionNotFoundError, match=f"/t has no version {asked}: the versions that can be read are 5 to 12") as caught:
        select_segment(commits(range(3, 13)) + checkpoints(5, 10), version=asked, table="/t")
    assert (caught.value.asked, caught.value.earliest, caught.value.latest) == (asked, 5, 12)


@pytest.mark.parametrize("names", [[], ["_last_checkpoint"], [ClassicCheckpoint(1).name + ".tmp"], [CompactedFile(0, 3).name]])
def test_a_folder_without_log_is_no_table(names: list[str]) -> None:
    with pytest.raises(NotADeltaTableError, match="/t is no Delta table"):
        select_segment(listing(*names), table="/t")


def test_commits_without_anything_to_start_from() -> None:
    with pytest.raises(MissingCommitError, match="starts with commit 4"):
        available_versions(commits([4, 5]))
    with pytest.raises(MissingCommitError, match="listed from version 4 on"):
        select_segment(commits([4, 5]), checkpoint_hint=4)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (commits(range(4)), (0, 3)),
        (commits(range(4)) + checkpoints(2), (0, 3)),
        (commits(range(1, 8)) + checkpoints(3, 6), (3, 7)),
        (checkpoints(6), (6, 6)),
        (commits(range(3)) + checkpoints(5), (0, 5)),
    ],
)
def test_the_versions_that_can_be_read(files: list[LogListing], expected: tuple[int, int]) -> None:
    assert available_versions(files) == expected


def test_a_refresh_sees_the_newer_commits_alone() -> None:
    files = commits(range(5)) + checkpoints(4)
    assert versions_of(commits_after(files, 2)) == [3, 4]
    assert commits_after(files, 4) == ()
    with pytest.raises(MissingCommitError, match=r"00000000000000000005\.json"):
        commits_after(commits([4, 6]), 4)


def test_commit_times_are_made_to_grow() -> None:
    files = [LogListing(CommitFile(version).name, 1, time) for version, time in enumerate([100, 90, 101, 500, 500])]
    assert commit_timestamps(reversed(files)) == {0: 100, 1: 101, 2: 102, 3: 500, 4: 501}
