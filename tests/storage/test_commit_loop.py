from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from lakelog.core.actions import DomainMetadata, Protocol, SetTransaction
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    CorruptLogError,
    MetadataChangedException,
    ProtocolChangedException,
    UnsupportedOperationError,
)
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import PutOutcome, Unknown
from lakelog.storage.table_log import NO_VERSION, TableLog
from tests.storage.logs import (
    ENGINE,
    FaultyLogStore,
    Waits,
    added,
    append,
    attempt,
    clocked_store,
    commit_path,
    creation,
    deletion,
    grow,
    keys,
    metadata,
    table_log,
)
from tests.storage.memory import MemoryLogStore

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
    with pytest.raises(ConcurrentWriteException):
        log.commit(deletion(0, "b"))
    assert log.snapshot().version == 1


def test_anything_else_than_a_blind_append_names_what_landed_and_the_remedy(store: MemoryLogStore) -> None:
    log, other = table_log(store), table_log(store)
    log.snapshot()
    other.commit(append(0, "a"))
    with pytest.raises(ConcurrentWriteException) as caught:
        log.commit(deletion(0, "b"))
    message = str(caught.value)
    assert "/tables/t" in message
    assert "version 1 (WRITE by lakelog/test: 1 file added, 0 removed)" in message
    assert "Read the table again" in message
    assert table_log(store).snapshot().version == 1


@pytest.mark.parametrize(
    ("landed", "mine", "error"),
    [
        (metadata({"delta.appendOnly": "false"}), added("a"), MetadataChangedException),
        (Protocol(min_reader_version=1, min_writer_version=2), added("a"), ProtocolChangedException),
        (SetTransaction(app_id="x", version=1), SetTransaction(app_id="x", version=2), ConcurrentTransactionException),
        (
            DomainMetadata(domain="d", configuration="1", removed=False),
            DomainMetadata(domain="d", configuration="2", removed=False),
            ConcurrentTransactionException,
        ),
        (added("b"), metadata({"k": "v"}), ConcurrentWriteException),
    ],
)
def test_a_blind_append_does_not_follow_what_changes_its_ground(
    store: MemoryLogStore, landed: SetTransaction, mine: SetTransaction, error: type[Exception]
) -> None:
    log = table_log(store)
    log.snapshot()
    table_log(store).commit(attempt(0, landed))
    with pytest.raises(error, match=r"Delta table /tables/t: version 1 .* landed after version 0"):
        log.commit(attempt(0, mine, blind=True))
    assert log.snapshot().version == 1


def test_of_two_creators_one_is_told_that_the_table_is_there() -> None:
    store = clocked_store()
    table_log(store).commit(creation(added("first")))
    with pytest.raises(ConcurrentWriteException, match=r"another writer created the table first: version 0 .*Run the write again"):
        table_log(store).commit(creation(added("second")))
    assert keys(table_log(store)) == {"first"}


def test_a_creator_does_not_put_a_version_0_that_clean_up_has_deleted() -> None:
    store = clocked_store()
    log = table_log(store)
    log.commit(creation())
    grow(log, 12)
    store.delete([commit_path(version) for version in range(10)])
    with pytest.raises(ConcurrentWriteException, match="another writer created the table first: version 12"):
        table_log(store).commit(creation())
    store.delete([commit_path(version) for version in range(10, 13)])
    with pytest.raises(ConcurrentWriteException, match="versions 10 to 10"):
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
    with pytest.raises(ConcurrentWriteException, match="version 1"):
        table_log(faulty).commit(deletion(0, "a"))


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


@pytest.mark.parametrize("landed", [True, False])
def test_an_interrupt_inside_the_put_never_passes_for_a_failed_commit(store: MemoryLogStore, landed: bool) -> None:
    def interrupt(*_: str) -> PutOutcome | None:
        if _[0] in ("put_if_absent", commit_path(1)):
            raise KeyboardInterrupt
        return None

    faulty = FaultyLogStore(store, after=interrupt) if landed else FaultyLogStore(store, before=interrupt)
    with pytest.raises(CommitOutcomeUnknown if landed else KeyboardInterrupt):
        table_log(faulty).commit(append(0, "a"))
    assert table_log(store).snapshot().version == int(landed)


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
        append(0).__class__(
            read_version=0, actions=deletion(0, "a").actions, operation=append(0).operation, is_blind_append=True, engine_info=ENGINE
        ),
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
    with pytest.raises(ConcurrentWriteException, match="the newest is 0"):
        table_log(store).commit(append(7, "a"))


def test_a_writer_that_slept_through_clean_up_does_not_land_in_the_gap(store: MemoryLogStore) -> None:
    waits = Waits()
    sleeper, other = table_log(store, waits=waits), table_log(store)
    sleeper.snapshot()
    for version in range(20):
        other.commit(append(version, f"file-{version}"))
    store.delete([commit_path(version) for version in range(20)])
    waits.now_ms += 2 * 24 * 3600 * 1000
    with pytest.raises(CorruptLogError, match="clean-up"):
        sleeper.commit(append(0, "late"))
    assert table_log(store).snapshot().version == 20
