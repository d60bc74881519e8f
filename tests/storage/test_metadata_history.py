"""What versions said of the table's metadata, as far as the log keeps them, and a history that is cut off on purpose."""

from __future__ import annotations

from lakelog.core.actions import Metadata
from lakelog.storage.testing.memory import MemoryLogStore
from tests.storage.logs import Waits, attempt, clocked_store, commit_path, creation, grow, metadata, table_log

HOUR = 3600 * 1000


def owners(history: list[tuple[int, Metadata]]) -> list[tuple[int, str | None]]:
    return [(version, there.configuration.get("owner")) for version, there in history]


def changed(store: MemoryLogStore) -> Waits:
    """Versions 0 to 12: version 2 has another owner, version 5 yet another."""
    waits = Waits()
    log = table_log(store, waits=waits)
    log.commit(creation(configuration={"owner": "first"}))
    grow(log, 1)
    log.commit(attempt(1, metadata({"owner": "second"})))
    grow(log, 2)
    log.commit(attempt(4, metadata({"owner": "third"})))
    grow(log, 7)
    return waits


def test_each_change_of_the_metadata_and_what_was_in_force_before_them() -> None:
    store = clocked_store()
    changed(store)
    assert owners(list(table_log(store).metadata_history())) == [(0, "first"), (0, "first"), (2, "second"), (5, "third")]
    # Commits that a checkpoint stands for may be gone, and some of those older than it may be there still.
    store.delete([commit_path(version) for version in (*range(4), *range(6, 10))])
    assert owners(list(table_log(store).metadata_history())) == [(10, "third"), (5, "third")]


def test_a_key_spelt_with_escapes_is_found() -> None:
    store = clocked_store()
    changed(store)
    text = store.read(commit_path(5)).replace(b'"metaData"', b'"meta\\u0044ata"')
    store.put(commit_path(5), text)
    assert owners(list(table_log(store).metadata_history()))[-1] == (5, "third")


def test_a_history_is_cut_off_to_the_hour_and_not_to_the_day() -> None:
    store = clocked_store()
    waits = changed(store)
    waits.now_ms += 25 * HOUR
    log = table_log(store, waits=waits)
    assert log.clean_up() == []
    assert log.clean_up(retention_ms=26 * HOUR) == []
    assert log.clean_up(retention_ms=24 * HOUR)
    assert owners(list(log.metadata_history())) == [(10, "third")]
    assert log.snapshot().version == 12
