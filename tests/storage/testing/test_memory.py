"""The times of the store in memory."""

from __future__ import annotations

from lakelog.storage.testing.memory import MemoryLogStore


def times(store: MemoryLogStore) -> list[int]:
    return [info.modification_time_ms for info in store.list_from("memory://t/")]


def test_the_memory_store_is_told_the_time() -> None:
    store = MemoryLogStore(clock=iter([5, 7]).__next__)
    store.put("memory://t/1", b"")
    store.put("memory://t/2", b"")
    store.set_modification_time("memory://t/1", 9)
    assert times(store) == [9, 7]


def test_without_a_clock_writes_are_a_second_apart() -> None:
    store = MemoryLogStore()
    store.put("memory://t/1", b"")
    store.put_if_absent("memory://t/2", b"")
    store.put_if_absent("memory://t/1", b"")
    store.put("memory://t/1", b"")
    assert times(store) == [3000, 2000]
