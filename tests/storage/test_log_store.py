"""What the contract promises, of every store that needs no server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, LogStore
from tests.storage.counting import CountingLogStore
from tests.storage.memory import MemoryLogStore

ODD_NAMES = ["a b.json", "50%.json", "%41.json", "x+y.json", "a:b.json", "é.json", "雪😀.json", "q?#&=.json", "back\\slash.json", "'\"\n"]
# What a name may hold: no separator, no NUL, and nothing that UTF-8 cannot say.
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and not name.endswith(".tmp")
)


class Place:
    """A store and an absent folder in it."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self.store = store
        self.folder = folder

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def names_from(self, name: str) -> list[str]:
        return [info.name for info in self.store.list_from(self.path(name))]


MAKERS: dict[str, Callable[[Path], Place]] = {
    "local": lambda tmp_path: Place(LocalLogStore(), f"{tmp_path}/t/_delta_log"),
    "local-odd-folder": lambda tmp_path: Place(LocalLogStore(), f"{tmp_path}/a b%20:é/_delta_log"),
    "local-uri": lambda tmp_path: Place(LocalLogStore(), f"file://{tmp_path}/t x/_delta_log"),
    "local-hadoop-uri": lambda tmp_path: Place(LocalLogStore(), f"file:{tmp_path}/t/_delta_log"),
    "memory": lambda tmp_path: Place(MemoryLogStore(), f"memory://{tmp_path.name}/_delta_log"),
    "counting": lambda tmp_path: Place(CountingLogStore(MemoryLogStore()), f"memory://{tmp_path.name}/_delta_log"),
}


@pytest.fixture(params=list(MAKERS.values()), ids=list(MAKERS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    maker: Callable[[Path], Place] = request.param
    return maker(tmp_path)


def test_only_the_first_put_creates_and_its_bytes_stay(place: Place) -> None:
    assert place.store.put_if_absent(place.path("1"), b"first") == Created()
    assert place.store.put_if_absent(place.path("1"), b"second") == AlreadyExists()
    assert place.store.read(place.path("1")) == b"first"


def test_put_replaces_and_creates(place: Place) -> None:
    place.store.put(place.path("_last_checkpoint"), b"old and longer")
    place.store.put(place.path("_last_checkpoint"), b"new")
    assert place.store.read(place.path("_last_checkpoint")) == b"new"
    assert place.store.put_if_absent(place.path("_last_checkpoint"), b"x") == AlreadyExists()


@pytest.mark.parametrize("data", [b"", b"\n", bytes(range(256)) * 5000], ids=["empty", "newline", "large"])
def test_bytes_come_back_as_they_went(place: Place, data: bytes) -> None:
    place.store.put_if_absent(place.path("1"), data)
    place.store.put(place.path("2"), data)
    assert place.store.read(place.path("1")) == data
    assert [info.size for info in place.store.list_from(place.path(""))] == [len(data), len(data)]


def test_what_is_absent_is_said_at_once(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.store.read(place.path("1"))
    with pytest.raises(FileNotFoundError):
        place.store.list_from(place.path("1"))
    place.store.put_if_absent(place.path("1"), b"")
    with pytest.raises(FileNotFoundError):
        place.store.read(place.path("2"))
    with pytest.raises(FileNotFoundError):
        place.store.read(place.path("1/below-a-file"))


def test_a_listing_includes_its_bound_and_leaves_out_what_is_below_it(place: Place) -> None:
    for name in ["b", "a", "_x", "B", "aa", "10", "9", "é"]:
        place.store.put_if_absent(place.path(name), b"")
    assert place.names_from("a") == ["a", "aa", "b", "é"]
    assert place.names_from("a\0") == ["aa", "b", "é"]
    assert place.names_from("A") == ["B", "_x", "a", "aa", "b", "é"]
    assert place.names_from("") == ["10", "9", "B", "_x", "a", "aa", "b", "é"]
    assert place.names_from("é0") == []


def test_a_listing_is_flat(place: Place) -> None:
    for name in ["a", "b/inside", "c"]:
        place.store.put_if_absent(place.path(name), b"")
    assert place.names_from("") == ["a", "c"]


def test_odd_names_are_read_listed_and_deleted(place: Place) -> None:
    for name in ODD_NAMES:
        assert place.store.put_if_absent(place.path(name), name.encode()) == Created()
    listed = list(place.store.list_from(place.path("")))
    assert [info.name for info in listed] == sorted(ODD_NAMES)
    assert [place.store.read(info.path).decode() for info in listed] == sorted(ODD_NAMES)
    place.store.delete(info.path for info in listed[1:])
    assert [info.path for info in place.store.list_from(place.path(""))] == [listed[0].path]


def test_deleting_what_is_absent_is_no_error(place: Place) -> None:
    place.store.put_if_absent(place.path("1"), b"")
    place.store.put_if_absent(place.path("2"), b"")
    place.store.delete([place.path("0"), place.path("1"), place.path("1")])
    assert place.names_from("") == ["2"]
    assert place.store.put_if_absent(place.path("1"), b"again") == Created()


def test_threads_that_race_have_one_winner(place: Place) -> None:
    writers, versions = 8, 25
    barrier = threading.Barrier(writers)

    def write(writer: int) -> list[int]:
        won = []
        for version in range(versions):
            barrier.wait()
            if place.store.put_if_absent(place.path(f"{version:020}.json"), b"%d" % writer * 1000) == Created():
                won.append(version)
        return won

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(write, range(writers)))
    assert sorted(version for versions_of_one in won for version in versions_of_one) == list(range(versions))
    for writer, versions_of_one in enumerate(won):
        for version in versions_of_one:
            assert place.store.read(place.path(f"{version:020}.json")) == b"%d" % writer * 1000
    assert place.names_from("") == [f"{version:020}.json" for version in range(versions)]


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


def test_the_memory_store_is_told_the_time() -> None:
    store = MemoryLogStore(clock=iter([5, 7]).__next__)
    store.put("memory://t/1", b"")
    store.put("memory://t/2", b"")
    store.set_modification_time("memory://t/1", 9)
    assert [info.modification_time_ms for info in store.list_from("memory://t/")] == [9, 7]
