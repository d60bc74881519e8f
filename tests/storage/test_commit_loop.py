from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.core.actions import Action, AddFile, DomainMetadata, Protocol, RemoveFile, SetTransaction, serialize_commit
from lakelog.core.commit import CommitAttempt, Reads
from lakelog.core.commit_info import delete
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
    StorageError,
    StoreConfigurationError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
)
from lakelog.core.predicates import Column, Comparison, Literal
from lakelog.core.schema import PrimitiveType
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import PutOutcome, Unknown
from lakelog.storage.table_log import NO_VERSION, TableLog
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.logs import (
    ENGINE,
    FaultyLogStore,
    Waits,
    added,
    append,
    attempt,
    checkpoint_path,
    clocked_store,
    commit_path,
    creation,
    deletion,
    grow,
    hint_path,
    keys,
    metadata,
    removed,
    table_log,
)

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
TIMED_OUT = Unknown(TimeoutError("no answer"))


@pytest.fixture
def store() -> MemoryLogStore:
    store = clocked_store()
    table_log(store).commit(creation())
    return store


def first_line(store: MemoryLogStore, version: int) -> dict[str, object]:
    line = json.loads(store.read(commit_path(version)).splitlines()[0])
    info = line["commitInfo"]
    assert isinstance(info, dict)
    return info


def test_commit_info_is_the_first_line(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.commit(append(0, "a"))
    log.commit(deletion(1, "a"))
    created, appended, deleted = (first_line(store, version) for version in range(3))
    assert "readVersion" not in created
    assert (appended["operation"], appended["readVersion"], appended["isBlindAppend"]) == ("WRITE", 0, True)
    assert (deleted["operation"], deleted["readVersion"], deleted["isBlindAppend"]) == ("DELETE", 1, False)
    assert {info["engineInfo"] for info in (created, appended, deleted)} == {ENGINE}
    assert appended["txnId"] != deleted["txnId"]


def test_a_blind_append_follows_what_landed(store: MemoryLogStore) -> None:
    log, other = table_log(store), table_log(store)
    log.snapshot()
    for version in range(3):
        other.commit(append(version, f"other-{version}"))
    result = log.commit(append(0, "mine"))
    assert result.version == 4
    assert set(result.snapshot.files["path"].to_pylist()) == {"other-0", "other-1", "other-2", "mine"} == keys(table_log(store))
    assert first_line(store, 4)["readVersion"] == 0


def test_what_landed_is_checked_even_when_the_log_has_seen_it_already(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.commit(append(0, "a"))
    with pytest.raises(ConcurrentAppendException):
        log.commit(deletion(0, "b"))
    assert log.snapshot().version == 1


def test_a_conflict_names_what_was_read_what_landed_and_the_remedy(store: MemoryLogStore) -> None:
    log, other = table_log(store), table_log(store)
    log.snapshot()
    other.commit(append(0, "a"))
    with pytest.raises(ConcurrentAppendException) as caught:
        log.commit(deletion(0, "b"))
    assert str(caught.value) == (
        "Delta table /tables/t: DELETE read the whole table at version 0, but version 1 (WRITE by lakelog/test: 1 file added, 0 removed) "
        "landed first and added files that may hold such rows: a. Nothing was committed. Read the table again and run it again."
    )
    assert (caught.value.winner_version, caught.value.rule) == (1, "rows_read")
    assert table_log(store).snapshot().version == 1


def reading_ids(read_version: int, below: int, *actions: Action) -> CommitAttempt:
    """A deletion of ids below a number, which read the files that it removes."""
    condition = Comparison("<", Column(("id",)), Literal(below, PrimitiveType("long")))
    files = pa.array([action.path for action in actions if isinstance(action, RemoveFile)], pa.string())
    return attempt(read_version, *actions, operation=delete([f"id < {below}"]), reads=Reads(predicates=(condition,), files=files))


def ids(path: str, least: int, greatest: int) -> AddFile:
    stats = f'{{"numRecords":2,"minValues":{{"id":{least}}},"maxValues":{{"id":{greatest}}},"nullCount":{{"id":0}}}}'
    return replace(added(path), stats=stats)


def test_a_deletion_follows_what_it_would_not_have_read(store: MemoryLogStore) -> None:
    log, other = table_log(store), table_log(store)
    other.commit(attempt(0, ids("low", 0, 9), ids("high", 100, 109)))
    log.snapshot()
    other.commit(attempt(1, ids("higher", 200, 209)))
    other.commit(attempt(2, removed("high")))
    assert log.commit(reading_ids(1, 10, removed("low"), ids("rest", 5, 9))).version == 4
    assert keys(table_log(store)) == {"rest", "higher"}
    assert first_line(store, 4)["readVersion"] == 1


@pytest.mark.parametrize(
    ("landed", "error"),
    [
        (ids("late", 3, 300), ConcurrentAppendException),
        (removed("low"), ConcurrentDeleteReadException),
        (replace(added("late"), stats=None), ConcurrentAppendException),
    ],
)
def test_a_deletion_does_not_follow_what_it_should_have_read(
    store: MemoryLogStore, landed: Action, error: type[DeltaConcurrentModificationException]
) -> None:
    log = table_log(store)
    table_log(store).commit(attempt(0, ids("low", 0, 9)))
    log.snapshot()
    table_log(store).commit(attempt(1, landed))
    with pytest.raises(error):
        log.commit(reading_ids(1, 10, removed("low")))
    assert log.snapshot().version == 2


def test_write_serializable_lets_a_write_pass_appends_that_read_nothing() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("old"), configuration={"delta.isolationLevel": "WriteSerializable"}))
    table_log(store).commit(append(0, "appended"))
    assert log.commit(deletion(0, "old")).version == 2
    assert keys(table_log(store)) == {"appended"}
    assert first_line(store, 2)["isolationLevel"] == "WriteSerializable"
    with pytest.raises(ConcurrentDeleteReadException):
        log.commit(deletion(1, "appended"))


def test_a_harmless_property_aborts_nobody_and_an_unknown_one_does(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.snapshot()
    table_log(store).commit(attempt(0, metadata({"delta.checkpointInterval": "7"})))
    result = log.commit(append(0, "a"))
    assert (result.version, result.snapshot.properties.checkpoint_interval) == (2, 7)
    table_log(store).commit(attempt(2, metadata({"delta.checkpointInterval": "7", "delta.newIn2030": "1"})))
    with pytest.raises(MetadataChangedException, match=r"set delta\.newIn2030 to '1'"):
        log.commit(append(2, "b"))


def test_each_change_of_metadata_is_held_against_the_one_before_it(store: MemoryLogStore) -> None:
    log, other = table_log(store), table_log(store)
    log.snapshot()
    other.commit(attempt(0, metadata({"delta.enableChangeDataFeed": "true"})))
    other.commit(attempt(1, metadata()))
    with pytest.raises(MetadataChangedException, match="version 1 "):
        log.commit(append(0, "a"))
    # The same when the log has read past the changes since.
    log.snapshot()
    with pytest.raises(MetadataChangedException, match="version 1 "):
        log.commit(append(0, "a"))
    assert log.commit(append(2, "a")).version == 3


def test_a_feature_that_came_meanwhile_is_refused_by_name(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.snapshot()
    upgrade = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants", "materializePartitionColumns")
    )
    store.put_if_absent(commit_path(1), serialize_commit([upgrade]))
    with pytest.raises(UnsupportedFeatureError, match="materializePartitionColumns"):
        log.commit(append(0, "a"))
    with pytest.raises(FileNotFoundError):
        store.read(commit_path(2))


def test_a_feature_that_lakelog_writes_stops_nobody(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.snapshot()
    upgrade = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("vacuumProtocolCheck",),
        writer_features=("appendOnly", "invariants", "vacuumProtocolCheck"),
    )
    table_log(store).commit(attempt(0, upgrade))
    result = log.commit(append(0, "a"))
    assert (result.version, result.snapshot.protocol) == (2, upgrade)


@pytest.mark.parametrize(
    ("landed", "mine", "error"),
    [
        (metadata({"delta.enableChangeDataFeed": "true"}), added("a"), MetadataChangedException),
        (Protocol(min_reader_version=1, min_writer_version=1), added("a"), ProtocolChangedException),
        (PROTOCOL, PROTOCOL, ProtocolChangedException),
        (SetTransaction(app_id="x", version=1), SetTransaction(app_id="x", version=2), ConcurrentTransactionException),
        (metadata({"delta.checkpointInterval": "7"}), metadata({"k": "v"}), MetadataChangedException),
    ],
)
def test_a_blind_append_does_not_follow_what_changes_its_ground(
    store: MemoryLogStore, landed: SetTransaction, mine: SetTransaction, error: type[Exception]
) -> None:
    log = table_log(store)
    log.snapshot()
    table_log(store).commit(attempt(0, landed))
    with pytest.raises(error, match=r"Delta table /tables/t: WRITE read the table at version 0, but version 1 .* landed first"):
        log.commit(attempt(0, mine))
    assert log.snapshot().version == 1


def test_a_metadata_domain_is_written_by_one() -> None:
    store = clocked_store()
    log = table_log(store)
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",))
    log.commit(attempt(NO_VERSION, listed, metadata()))
    log.snapshot()
    table_log(store).commit(attempt(0, DomainMetadata(domain="d", configuration="1", removed=False)))
    with pytest.raises(ConcurrentTransactionException, match=r"read the table at version 0, but version 1 .* same metadata domain d"):
        log.commit(attempt(0, DomainMetadata(domain="d", configuration="2", removed=False)))
    assert log.snapshot().version == 1


def test_a_metadata_domain_needs_its_feature(store: MemoryLogStore) -> None:
    log = table_log(store)
    with pytest.raises(
        UnsupportedOperationError, match=r"^Delta table /tables/t: WRITE writes the metadata domain d, but .*domainMetadata.* Add"
    ):
        log.commit(attempt(0, DomainMetadata(domain="d", configuration="1", removed=False)))
    assert log.snapshot().version == 0


def test_of_two_creators_one_is_told_that_the_table_is_there() -> None:
    store = clocked_store()
    table_log(store).commit(creation(added("first")))
    with pytest.raises(ConcurrentWriteException, match=r"found no table, but version 0 .* landed first and created the table\..*Run it"):
        table_log(store).commit(creation(added("second")))
    assert keys(table_log(store)) == {"first"}


def test_a_creator_that_joins_appends_to_an_equal_table() -> None:
    store = clocked_store()
    table_log(store).commit(creation(added("first")))
    table_log(store).commit(append(0, "more"))
    result = table_log(store).commit(replace(creation(added("second")), joins=True))
    assert (result.version, keys(table_log(store))) == (2, {"first", "more", "second"})
    assert "metaData" not in store.read(commit_path(2)).decode()
    assert (first_line(store, 2)["readVersion"], first_line(store, 2)["isBlindAppend"]) == (1, True)


def test_a_creator_joins_after_its_put_was_answered_that_the_table_is_there() -> None:
    store = clocked_store()

    def overtaken(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent" and path == commit_path(0):
            table_log(store).commit(creation(added("first")))
        return None

    result = table_log(FaultyLogStore(store, overtaken)).commit(replace(creation(added("second")), joins=True))
    assert (result.version, keys(table_log(store))) == (1, {"first", "second"})


def test_of_two_creators_for_one_application_the_second_is_told_so() -> None:
    store = clocked_store()
    mine = replace(creation(added("a"), SetTransaction(app_id="nightly", version=3)), joins=True)
    table_log(store).commit(mine)
    with pytest.raises(ConcurrentTransactionException, match="same application nightly"):
        table_log(store).commit(mine)
    assert table_log(store).snapshot().version == 0


@pytest.mark.parametrize(
    "other",
    [
        creation(configuration={"delta.appendOnly": "true"}),
        replace(creation(), actions=(PROTOCOL, replace(metadata(), partition_columns=("id",)))),
        replace(creation(), actions=(replace(PROTOCOL, min_writer_version=3), metadata())),
    ],
)
def test_a_creator_does_not_join_another_table(other: CommitAttempt) -> None:
    store = clocked_store()
    table_log(store).commit(other)
    with pytest.raises(ConcurrentWriteException, match="created the table"):
        table_log(store).commit(replace(creation(added("second")), joins=True))
    assert keys(table_log(store)) == set()


def test_a_creator_does_not_put_a_version_0_that_clean_up_has_deleted() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    store.delete([commit_path(version) for version in range(10)])
    with pytest.raises(ConcurrentWriteException, match=r"version 12 .* landed first and created the table"):
        table_log(store).commit(creation())
    store.delete([commit_path(version) for version in range(10, 13)])
    with pytest.raises(ConcurrentWriteException, match="the table is there already, at version 10"):
        table_log(store).commit(creation())
    assert table_log(store).snapshot().version == 10


def test_creators_and_appenders_race_on_a_local_folder(tmp_path: Path) -> None:
    root = f"{tmp_path}/a table"
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def work(name: int) -> None:
        log = TableLog(root, LocalLogStore())
        barrier.wait()
        try:
            log.commit(creation(added(f"{name}-0")))
        except ConcurrentWriteException:
            outcomes.append("lost")
        else:
            outcomes.append("won")
        for number in range(1, 6):
            log.commit(append(log.snapshot().version, f"{name}-{number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]
    snapshot = TableLog(root, LocalLogStore()).snapshot()
    assert snapshot.version == 40
    assert snapshot.num_files == 41


def test_a_commit_whose_answer_was_lost_is_found_by_its_txn_id(store: MemoryLogStore) -> None:
    waits = Waits()
    log = table_log(FaultyLogStore(store, after=lambda path: TIMED_OUT), waits=waits)
    result = log.commit(deletion(0, "a"))
    assert result.version == 1
    assert table_log(store).snapshot().version == 1
    assert len(waits.slept) == 1


def test_a_commit_that_an_earlier_request_of_its_own_made_is_no_conflict(store: MemoryLogStore) -> None:
    puts: list[str] = []

    def lost_then_delayed(verb: str, path: str) -> PutOutcome | None:
        # The first request times out and arrives only after the version was read back.
        if verb == "put_if_absent":
            puts.append(path)
        if verb == "read" and len(puts) == 1:
            puts.append("read back")
            raise FileNotFoundError(path)
        return None

    log = table_log(FaultyLogStore(store, lost_then_delayed, after=lambda path: TIMED_OUT if len(puts) == 1 else None))
    assert log.commit(deletion(0, "a")).version == 1
    assert table_log(store).snapshot().version == 1


def test_a_put_that_never_arrives_is_repeated_with_the_same_bytes_at_the_same_version(store: MemoryLogStore) -> None:
    lost = iter([TIMED_OUT, TIMED_OUT])
    puts: list[str] = []

    def lose(verb: str, path: str) -> PutOutcome | None:
        if verb != "put_if_absent":
            return None
        puts.append(path)
        return next(lost, None)

    assert table_log(FaultyLogStore(store, lose)).commit(append(0, "a")).version == 1
    assert puts == [commit_path(1)] * 3


def test_another_commit_behind_an_unknown_answer_is_a_conflict(store: MemoryLogStore) -> None:
    def overtaken(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent":
            table_log(store).commit(append(0, "other"))
            return TIMED_OUT
        return None

    faulty = FaultyLogStore(store, overtaken)
    with pytest.raises(ConcurrentAppendException, match="version 1"):
        table_log(faulty).commit(deletion(0, "a"))


class Outage:
    """A store that loses what is put while it lasts, or carries it out and loses the answer."""

    def __init__(self, store: MemoryLogStore, *, carried_out: bool = False) -> None:
        self.over = False
        self.store = FaultyLogStore(store, self._before, self._after)
        self._carried_out = carried_out

    def _before(self, verb: str, path: str) -> PutOutcome | None:
        if self.over:
            return None
        if verb == "read" and path == commit_path(1):
            raise OSError("connection reset")
        return TIMED_OUT if verb == "put_if_absent" and not self._carried_out else None

    def _after(self, path: str) -> PutOutcome | None:
        return None if self.over else TIMED_OUT


def unknown_outcome(outage: Outage) -> CommitOutcomeUnknown:
    log = table_log(outage.store)
    log.snapshot()
    with pytest.raises(CommitOutcomeUnknown) as caught:
        log.commit(append(0, "mine"))
    return caught.value


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_unknown_outcome_is_settled_later(store: MemoryLogStore, carried_out: bool) -> None:
    outage = Outage(store, carried_out=carried_out)
    unknown = unknown_outcome(outage)
    with pytest.raises(CommitOutcomeUnknown, match="nobody can tell"):
        unknown.resolve()
    outage.over = True
    assert unknown.resolve() == 1
    assert unknown.resolve() == 1
    assert keys(table_log(store)) == {"mine"}
    assert table_log(store).snapshot().version == 1


def test_an_unknown_outcome_that_another_commit_has_overtaken_is_settled_as_lost(store: MemoryLogStore) -> None:
    outage = Outage(store)
    unknown = unknown_outcome(outage)
    table_log(store).commit(append(0, "other"))
    outage.over = True
    assert unknown.resolve() is None
    assert keys(table_log(store)) == {"other"}


def test_an_unknown_outcome_is_not_put_into_the_past(store: MemoryLogStore) -> None:
    outage = Outage(store)
    unknown = unknown_outcome(outage)
    other = table_log(store)
    for version in range(12):
        other.commit(append(version, f"other-{version}"))
    store.delete([commit_path(version) for version in range(10)])
    outage.over = True
    with pytest.raises(CommitOutcomeUnknown):
        unknown.resolve()
    with pytest.raises(FileNotFoundError):
        store.read(commit_path(1))


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_read_that_was_cut_off_is_no_other_writer(store: MemoryLogStore, cut: int) -> None:
    cuts = iter([cut])

    class Torn(FaultyLogStore):
        def read(self, path: str) -> bytes:
            data = super().read(path)
            length = next(cuts, None) if path == commit_path(1) else None
            return data if length is None else data[:length]

    log = table_log(Torn(store, after=lambda path: TIMED_OUT))
    log.snapshot()
    assert log.commit(append(0, "a")).version == 1
    assert table_log(store).snapshot().version == 1


def test_an_outcome_that_stays_unknown_says_where_to_look(store: MemoryLogStore) -> None:
    def down(verb: str, path: str) -> PutOutcome | None:
        return TIMED_OUT if verb == "put_if_absent" else None

    waits = Waits()
    log = table_log(FaultyLogStore(store, down), waits=waits)
    log.snapshot()
    with pytest.raises(CommitOutcomeUnknown, match="data files stay") as caught:
        log.commit(append(0, "a"))
    assert caught.value.version == 1
    assert caught.value.txn_id in str(caught.value)
    assert commit_path(1) in str(caught.value)
    assert 2 <= len(waits.slept) <= 10


def test_a_refusal_after_an_unknown_answer_is_still_unknown(store: MemoryLogStore) -> None:
    answers = iter([TIMED_OUT])

    def fail(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent":
            answer = next(answers, None)
            if answer is None:
                raise OSError("disk full")
            return answer
        return None

    with pytest.raises(CommitOutcomeUnknown):
        table_log(FaultyLogStore(store, fail)).commit(append(0, "a"))


def test_a_version_that_is_taken_and_cannot_be_read_leaves_the_outcome_unknown(store: MemoryLogStore) -> None:
    def fail(verb: str, path: str) -> PutOutcome | None:
        if verb == "read" and path == commit_path(1):
            raise OSError("connection reset")
        return None

    log = table_log(FaultyLogStore(store, fail))
    log.snapshot()
    table_log(store).commit(append(0, "other"))
    with pytest.raises(CommitOutcomeUnknown, match="connection reset"):
        log.commit(append(0, "a"))


def test_a_read_that_fails_once_does_not_decide(store: MemoryLogStore) -> None:
    failures = iter([OSError("connection reset")])

    def fail(verb: str, path: str) -> PutOutcome | None:
        if verb == "read" and path == commit_path(1) and (error := next(failures, None)):
            raise error
        return None

    log = table_log(FaultyLogStore(store, fail))
    log.snapshot()
    table_log(store).commit(append(0, "other"))
    assert log.commit(append(0, "a")).version == 2


def test_a_store_that_refuses_leaves_the_table_as_it_was(store: MemoryLogStore) -> None:
    def full(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent":
            raise OSError("no space left on device")
        return None

    log = table_log(FaultyLogStore(store, full))
    with pytest.raises(OSError, match="no space left"):
        log.commit(append(0, "a"))
    assert log.snapshot().version == 0


class NearLogStore(FaultyLogStore):
    near = True


@pytest.mark.parametrize(
    ("kind", "landed", "error"),
    [
        (FaultyLogStore, True, CommitOutcomeUnknown),
        # The request may be under way.
        (FaultyLogStore, False, CommitOutcomeUnknown),
        (NearLogStore, True, CommitOutcomeUnknown),
        (NearLogStore, False, KeyboardInterrupt),
    ],
)
def test_an_interrupt_inside_the_put_never_passes_for_a_failed_commit(
    store: MemoryLogStore, kind: type[FaultyLogStore], landed: bool, error: type[BaseException]
) -> None:
    def interrupt(*_: str) -> PutOutcome | None:
        if _[0] in ("put_if_absent", commit_path(1)):
            raise KeyboardInterrupt
        return None

    with pytest.raises(error):
        table_log(kind(store, after=interrupt) if landed else kind(store, before=interrupt)).commit(append(0, "a"))
    assert table_log(store).snapshot().version == int(landed)


def test_an_interrupt_beside_anothers_commit_travels_on(store: MemoryLogStore) -> None:
    def interrupt(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent":
            table_log(store).commit(append(0, "other"))
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        table_log(FaultyLogStore(store, interrupt)).commit(append(0, "a"))


def test_a_second_interrupt_while_the_first_is_looked_into_settles_nothing(store: MemoryLogStore) -> None:
    def interrupt(verb: str, path: str) -> PutOutcome | None:
        if path == commit_path(1):
            raise KeyboardInterrupt
        return None

    log = table_log(NearLogStore(store, interrupt))
    log.snapshot()
    with pytest.raises(CommitOutcomeUnknown):
        log.commit(append(0, "a"))


@pytest.mark.parametrize("error", [TimeoutError("no answer"), ConnectionResetError("reset"), OSError("EIO"), StorageError("what now")])
def test_a_store_that_raises_after_the_effect_has_committed(store: MemoryLogStore, error: Exception) -> None:
    """Against the contract, which has Unknown for that."""
    errors = iter([error])

    def fail(path: str) -> PutOutcome | None:
        if (raised := next(errors, None)) is not None:
            raise raised
        return None

    assert table_log(FaultyLogStore(store, after=fail)).commit(append(0, "a")).version == 1
    assert keys(table_log(store)) == {"a"}


def test_a_time_out_that_lasts_is_an_unknown_outcome(store: MemoryLogStore) -> None:
    def fail(verb: str, path: str) -> PutOutcome | None:
        if verb == "put_if_absent":
            raise TimeoutError("no answer")
        return None

    with pytest.raises(CommitOutcomeUnknown, match="no answer"):
        table_log(FaultyLogStore(store, fail)).commit(append(0, "a"))


def test_a_refusal_where_nothing_can_be_read_is_an_unknown_outcome(store: MemoryLogStore) -> None:
    def fail(verb: str, path: str) -> PutOutcome | None:
        if path == commit_path(1):
            raise OSError("EIO")
        return None

    log = table_log(FaultyLogStore(store, fail))
    log.snapshot()
    with pytest.raises(CommitOutcomeUnknown, match="EIO"):
        log.commit(append(0, "a"))


def test_a_table_that_was_made_anew_is_not_the_one_that_was_read(store: MemoryLogStore) -> None:
    waits = Waits()
    log = table_log(store, waits=waits)
    read = log.snapshot()
    store.delete([commit_path(0)])
    table_log(store).commit(replace(creation(), actions=(PROTOCOL, replace(metadata(), id="another"))))
    waits.now_ms += 61_000
    with pytest.raises(ConcurrentWriteException, match="made anew"):
        log.commit(replace(append(0, "a"), table_id=read.metadata.id))
    assert table_log(store).snapshot().version == 0


def test_an_unknown_outcome_is_not_put_behind_a_gap(store: MemoryLogStore) -> None:
    table_log(store).commit(append(0, "before"))

    def lost(verb: str, path: str) -> PutOutcome | None:
        return TIMED_OUT if verb == "put_if_absent" else None

    faulty = FaultyLogStore(store, lost)
    log = table_log(faulty)
    log.snapshot()
    with pytest.raises(CommitOutcomeUnknown) as caught:
        log.commit(append(1, "mine"))
    faulty.before = lambda verb, path: None
    store.delete([commit_path(1)])
    with pytest.raises(CommitOutcomeUnknown, match="made anew"):
        caught.value.resolve()
    assert table_log(store).snapshot().version == 0


def test_an_interrupt_while_an_answer_is_awaited_never_passes_for_a_failed_commit(store: MemoryLogStore) -> None:
    reads = iter([KeyboardInterrupt()])

    def interrupt(verb: str, path: str) -> PutOutcome | None:
        if verb == "read" and path == commit_path(1) and (error := next(reads, None)):
            raise error
        return None

    with pytest.raises(CommitOutcomeUnknown):
        table_log(FaultyLogStore(store, interrupt, after=lambda path: TIMED_OUT)).commit(append(0, "a"))
    assert table_log(store).snapshot().version == 1


def test_an_attempt_that_makes_no_valid_table_is_never_put(store: MemoryLogStore) -> None:
    log = table_log(store)
    for bad in (
        attempt(0, added("../../elsewhere")),
        attempt(0, metadata().__class__(id="t", schema_string="{", configuration={})),
    ):
        with pytest.raises(CorruptLogError):
            log.commit(bad)
    for twice in (
        attempt(0, added("a"), added("a")),
        attempt(0, metadata(), metadata()),
        attempt(NO_VERSION, added("a")),
    ):
        with pytest.raises(ValueError, match=r"commit|append"):
            log.commit(twice)
    assert log.snapshot().version == 0


def test_a_damaged_winner_is_named_and_nothing_is_put_after_it(store: MemoryLogStore) -> None:
    log = table_log(store)
    log.snapshot()
    store.put(commit_path(1), b'{"add":')
    with pytest.raises(CorruptLogError, match=r"0{19}1\.json"):
        log.commit(append(0, "a"))
    with pytest.raises(FileNotFoundError):
        store.read(commit_path(2))


def test_an_append_only_table_keeps_its_data() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation(added("a"), configuration={"delta.appendOnly": "true"}))
    with pytest.raises(UnsupportedOperationError, match=r"/tables/t: DELETE removes data.*delta\.appendOnly"):
        log.commit(deletion(0, "a"))
    assert log.commit(append(0, "b")).version == 1


def test_a_version_that_the_table_does_not_have_was_not_read(store: MemoryLogStore) -> None:
    with pytest.raises(ConcurrentWriteException, match="read version 7, but the table was made anew"):
        table_log(store).commit(append(7, "a"))


def test_a_writer_that_slept_through_clean_up_does_not_land_in_the_gap(store: MemoryLogStore) -> None:
    waits = Waits()
    sleeper, other = table_log(store, waits=waits), table_log(store)
    sleeper.snapshot()
    for version in range(20):
        other.commit(append(version, f"file-{version}"))
    store.delete([commit_path(version) for version in range(20)])
    waits.now_ms += 2 * 24 * 3600 * 1000
    with pytest.raises(ConcurrentWriteException, match=r"read version 0, and what landed since is not all there.*clean-up"):
        sleeper.commit(append(0, "late"))
    assert table_log(store).snapshot().version == 20


def test_no_commit_follows_the_last_version_that_a_name_can_hold(store: MemoryLogStore) -> None:
    last = 2**63 - 1
    log = table_log(store)
    log.commit(append(0, "a"))
    log.checkpoint()
    store.put(checkpoint_path(last), store.read(checkpoint_path(1)))
    store.delete([hint_path(), commit_path(0), commit_path(1), checkpoint_path(1)])
    with pytest.raises(UnsupportedOperationError, match="no version can follow 9223372036854775807"):
        table_log(store).commit(append(last, "b"))


class Captive(MemoryLogStore):
    """Puts the next commit and says that nobody can tell; then something else answers some reads of it in the store's stead."""

    page = b""
    pages = 0
    doubt: Unknown | None = None

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, data)
        doubt, self.doubt = self.doubt, None
        return outcome if doubt is None else doubt

    def read(self, path: str) -> bytes:
        data = super().read(path)
        if self.pages and path == commit_path(1):
            self.pages -= 1
            # A tail of the file is lines of actions too.
            return self.page or data[data.index(b"\n") + 1 :]
        return data


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b'{"error": "no"}\n', b"\x1f\x8b\x08"])
@pytest.mark.parametrize("pages", [1, 2, 3])
@pytest.mark.parametrize("change", [append, deletion])
def test_what_answers_in_the_stores_stead_is_no_other_commit(page: bytes, pages: int, change: Callable[..., CommitAttempt]) -> None:
    store = Captive()
    log = table_log(store)
    log.commit(creation(added("a")))
    store.page, store.pages, store.doubt = page, pages, TIMED_OUT
    result = log.commit(change(0, "a" if change is deletion else "b"))
    assert result.version == 1
    fresh = table_log(store)
    assert fresh.snapshot().version == 1
    assert keys(fresh) == (set() if change is deletion else {"a", "b"})


@pytest.mark.parametrize("change", [append, deletion])
def test_the_tail_of_ones_own_commit_is_no_other_commit(change: Callable[..., CommitAttempt]) -> None:
    """Cut off once, the size that the listing tells shows it; cut off twice, nobody can tell."""
    store = Captive()
    log = table_log(store)
    log.commit(creation(added("a")))
    store.pages, store.doubt = 1, TIMED_OUT
    assert log.commit(change(0, "a")).version == 1

    store = Captive()
    log = table_log(store)
    log.commit(creation(added("a")))
    store.pages, store.doubt = 2, TIMED_OUT
    with pytest.raises(CommitOutcomeUnknown) as caught:
        log.commit(change(0, "a"))
    assert caught.value.resolve() == 1
    assert table_log(store).snapshot().version == 1


def test_a_page_that_stays_leaves_the_outcome_unknown() -> None:
    store = Captive()
    log = table_log(store)
    log.commit(creation())
    store.page, store.pages, store.doubt = b"<html>", 1000, TIMED_OUT
    with pytest.raises(CommitOutcomeUnknown, match="no commit") as caught:
        log.commit(append(0, "a"))
    store.pages = 0
    assert caught.value.resolve() == 1


def test_a_store_that_wants_to_be_left_alone_is() -> None:
    class Busy(MemoryLogStore):
        left = 5

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if path == commit_path(1) and self.left:
                self.left -= 1
                return Unknown(ConnectionError("slow down"), retry_after_s=2.0)
            return super().put_if_absent(path, data)

    waits = Waits()
    store = Busy()
    log = table_log(store, waits=waits)
    log.commit(creation())
    assert log.commit(append(0, "a")).version == 1
    assert len([wait for wait in waits.slept if wait >= 2.0]) == 5


@pytest.mark.parametrize("refusal", [PermissionError("denied"), StoreConfigurationError("the session token has expired")])
def test_who_may_not_write_and_may_not_read_either_has_committed_nothing(refusal: Exception) -> None:
    class Expired(MemoryLogStore):
        expired = False

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if self.expired:
                raise refusal
            return super().put_if_absent(path, data)

        def read(self, path: str) -> bytes:
            if self.expired:
                raise refusal
            return super().read(path)

    store = Expired()
    log = table_log(store)
    log.commit(creation())
    store.expired = True
    with pytest.raises(type(refusal), match=str(refusal)):
        log.commit(append(0, "a"))
