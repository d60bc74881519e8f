"""Laws of listings that no example shows, and the store that counts. The contract is tested in ``tests/storage/testing``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.storage.local import LocalLogStore
from lakelog.storage.testing import MemoryLogStore
from tests.storage.counting import CountingLogStore

# What a name may hold: no separator, no NUL, and nothing that UTF-8 cannot say.
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and not name.endswith(".tmp")
)


@given(names=st.sets(NAMES, min_size=1, max_size=8), bound=NAMES)
def test_listings_agree_with_sorting(tmp_path_factory: pytest.TempPathFactory, names: set[str], bound: str) -> None:
    stores = [(LocalLogStore(), str(tmp_path_factory.mktemp("listing"))), (MemoryLogStore(), "memory://listing")]
    for store, folder in stores:
        for name in names:
            store.put_if_absent(f"{folder}/{name}", b"")
        assert [info.name for info in store.list_from(f"{folder}/{bound}")] == sorted(name for name in names if name >= bound)


def test_the_counting_store_counts_by_verb_and_path() -> None:
    store = CountingLogStore(MemoryLogStore())
    store.put_if_absent("memory://t/1", b"")
    store.put_if_absent("memory://t/1", b"")
    store.put("memory://t/2", b"")
    list(store.list_from("memory://t/1"))
    with pytest.raises(FileNotFoundError):
        store.read("memory://t/3")
    store.delete(["memory://t/1", "memory://t/2"])
    assert [store.count(verb) for verb in ("GET", "PUT", "LIST", "DELETE")] == [1, 3, 1, 2]
    assert store.count("PUT", "memory://t/1") == 2
    assert store.paths("PUT") == ["memory://t/1", "memory://t/1", "memory://t/2"]
    store.reset()
    assert store.count("PUT") == 0
