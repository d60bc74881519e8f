"""The suite refuses what it is there to refuse: each bad store fails the test that names its fault, with a message that teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.testing import LogStoreConformance
from tests.storage.testing import bad_stores as bad
from tests.storage.testing.dying import dying_stores


class Suite(LogStoreConformance):
    def __init__(self, kind: type[LogStore], folder: str) -> None:
        self.kind = kind
        self.folder = folder

    def make_store(self) -> LogStore:
        return self.kind()

    def make_folder(self) -> str:
        return self.folder

    def store_factory(self) -> Callable[[], LogStore]:
        return self.kind

    def crashing_stores(self) -> Iterator[LogStore]:
        return dying_stores(self.kind)


THREADS = "test_of_threads_that_race_exactly_one_creates_the_file"
PROCESSES = "test_of_processes_that_race_exactly_one_creates_the_file"
EXCHANGE = "test_what_one_process_writes_another_lists_and_reads"
KILLED = "test_killed_writers_leave_whole_files_and_every_acknowledged_one"
WATCHED = "test_a_reader_beside_a_writer_meets_whole_files_alone"
LISTED_BESIDE = "test_a_listing_beside_writers_shows_every_finished_write"
PUT_THREADS = "test_of_threads_that_put_the_last_bytes_are_one_threads"
DIES_CREATING = "test_a_writer_that_dies_in_put_if_absent_leaves_the_whole_file_or_none"
DIES_PUTTING = "test_a_writer_that_dies_in_put_leaves_the_old_file_or_the_new"
ONCE = "test_put_if_absent_creates_once_and_never_replaces"
PUT = "test_put_creates_and_replaces"
LOOKED_BEFORE = "test_a_store_that_has_looked_before_sees_what_another_one_writes"
BYTES = "test_bytes_come_back_as_they_went"
ABSENT = "test_reading_what_is_absent_is_file_not_found"
NO_FOLDER = "test_a_listing_of_no_folder_is_file_not_found_at_once"
ORDER = "test_listings_ascend_by_code_point"
BOUNDS = "test_bounds_are_exact_and_inclusive_and_need_not_exist"
FLAT = "test_listings_are_flat_and_of_one_folder"
LONG = "test_a_listing_longer_than_a_page_is_whole"
TRUE = "test_sizes_and_times_of_a_listing_are_true"
NAMES = "test_a_name_in_a_path_is_these_characters_and_nothing_else"
FOLDERS = "test_a_folder_in_a_path_is_these_characters_and_nothing_else"
DELETED = "test_deleted_files_are_gone_and_may_be_created_again"
DELETE_ABSENT = "test_deleting_what_is_absent_is_no_error"

ATOMIC, WINNER, FINISHED, OTHER = "Guarantee 1", "Guarantee 2", "Guarantee 3", "contract of LogStore"

CAUGHT: list[tuple[type[LogStore], str, str]] = [
    (bad.LooksThenPuts, THREADS, WINNER),
    (bad.LooksThenPuts, PROCESSES, WINNER),
    (bad.LocksInItsProcess, PROCESSES, WINNER),
    (bad.RenamesOver, ONCE, WINNER),
    (bad.RenamesOver, THREADS, WINNER),
    (bad.CreatesThenWrites, WATCHED, ATOMIC),
    (bad.WritesInPlace, WATCHED, ATOMIC),
    (bad.DeletesThenPuts, WATCHED, ATOMIC),
    (bad.DeletesThenPuts, DIES_PUTTING, ATOMIC),
    (bad.ShowsTemporaries, DIES_CREATING, ATOMIC),
    (bad.ShowsTemporaries, WATCHED, ATOMIC),
    (bad.LeavesItsLock, DIES_CREATING, WINNER),
    (bad.AnswersBeforeItWrites, LISTED_BESIDE, FINISHED),
    (bad.AnswersBeforeItWrites, EXCHANGE, FINISHED),
    (bad.AnswersBeforeItWrites, KILLED, FINISHED),
    (bad.SaysCreatedToItsOwnBytes, ONCE, OTHER),
    (bad.AnswersTrue, ONCE, OTHER),
    (bad.NeverKnows, ONCE, OTHER),
    (bad.PutsNothing, PUT, FINISHED),
    (bad.CutsLargeBodies, BYTES, OTHER),
    (bad.ReadsNothingWhereNothingIs, ABSENT, OTHER),
    (bad.ReadsBuffers, BYTES, OTHER),
    (bad.SwallowsDeletes, DELETED, OTHER),
    (bad.SwallowsDeletes, DELETE_ABSENT, OTHER),
    (bad.DeletesAPage, LONG, OTHER),
    (bad.InsistsOnWhatItDeletes, DELETE_ABSENT, OTHER),
    (bad.DecodesPaths, NAMES, OTHER),
    (bad.CutsPathsAtTheQuery, FOLDERS, OTHER),
    (bad.ListsUnsorted, ORDER, OTHER),
    (bad.ListsByUtf16, ORDER, OTHER),
    (bad.ListsFromAfterTheBound, BOUNDS, OTHER),
    (bad.ListsByPrefix, BOUNDS, OTHER),
    (bad.ListsRecursively, FLAT, OTHER),
    (bad.ListsFolders, FLAT, OTHER),
    (bad.ListsAPage, LONG, FINISHED),
    (bad.ListsLazily, NO_FOLDER, OTHER),
    (bad.ListsNothingWhereNothingIs, NO_FOLDER, OTHER),
    (bad.ListsAList, "test_a_listing_is_an_iterator", OTHER),
    (bad.ListsWhatItRemembers, LISTED_BESIDE, FINISHED),
    (bad.ListsWhatItRemembers, LOOKED_BEFORE, FINISHED),
    (bad.ReadsWhatItRemembers, LOOKED_BEFORE, FINISHED),
    (bad.ListsSeconds, TRUE, OTHER),
    (bad.ListsBareNames, TRUE, OTHER),
    (bad.ListsNoSizes, TRUE, OTHER),
]


@pytest.mark.parametrize(("kind", "test", "guarantee"), CAUGHT, ids=[f"{kind.__name__}-{test[5:35]}" for kind, test, _ in CAUGHT])
def test_a_bad_store_is_caught(tmp_path: Path, kind: type[LogStore], test: str, guarantee: str) -> None:
    with pytest.raises(AssertionError) as caught:
        getattr(Suite(kind, f"{tmp_path}/t/_delta_log"), test)()
    assert guarantee in str(caught.value)


def test_no_bad_store_is_forgotten() -> None:
    kinds = {
        kind for kind in vars(bad).values() if isinstance(kind, type) and issubclass(kind, LocalLogStore) and kind is not LocalLogStore
    }
    assert kinds == {kind for kind, _, _ in CAUGHT}
