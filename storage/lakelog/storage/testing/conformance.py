"""The conformance suite of the LogStore contract: what every store must pass before a table is trusted to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest import SkipTest

from lakelog.storage.log_store import Created, LogStore
from lakelog.storage.testing._hooks import (
    ATOMIC,
    CONTRACT,
    LISTED,
    ONE_WINNER,
    assert_read,
    body,
    create,
    names_from,
    read_or_none,
    version,
)
from lakelog.storage.testing._processes import ProcessTests
from lakelog.storage.testing._threads import ThreadTests
from lakelog.storage.testing.faults import SimulatedCrash

__all__ = ["LogStoreConformance"]

# Ascending by code point. UTF-16 has the emoji before the full-width letter, every locale has "_" and "B" elsewhere, numbers run 9, 10.
_ORDERED = ["10", "9", "B", "_last", "a", "a!", "a.b", "aa", "z", "é", "\uff5a", "😀"]
_ODD_NAMES = [
    " a",
    "a b",
    "a%20b",
    "50%",
    "%41",
    "A",
    "%2F",
    "x+y",
    "a:b",
    "é",
    "雪😀",
    "q?v=1",
    "frag#ment",
    "a&b=c",
    "[x]*{y}",
    "~",
    "$HOME",
    "a;b,c@d!",
    "it's",
    "...",
    "x" * 150,
]
_ODD_FOLDERS = ["a b", "p=1%2F2", "50%", "é雪😀", "q?v", "x#y", "a+b", "[x]*"]
# Far more than two machines' clocks differ, far less than a wrong unit or a time zone makes.
_CLOCK_TOLERANCE_MS = 15 * 60 * 1000
_STORED_AT_ONCE = 16


class LogStoreConformance(ThreadTests, ProcessTests):
    """Subclass it, override `make_store` and `make_folder`, and let pytest or unittest run what begins with ``test_``.

    Every failure names the guarantee of ``lakelog.storage.log_store`` that is broken. A store that passes keeps tables whole under
    concurrent and dying writers, as far as tests can tell: a race that is narrower than they look for is not excluded by passing.
    """

    def test_put_if_absent_creates_once_and_never_replaces(self) -> None:
        store, path = self.make_store(), f"{self.make_folder()}/{version(0)}"
        assert create(store, path, b"first"), f"{CONTRACT}put_if_absent of {path} said it was there, in a folder that held nothing."
        assert_read(store, path, b"first", LISTED, "after put_if_absent had answered")
        for later in (b"second", b"", b"longer than the first was"):
            assert not create(store, path, later), f"{ONE_WINNER}put_if_absent of {path} created it twice."
        assert not create(self.make_store(), path, b"by another store"), f"{ONE_WINNER}another store object created {path} again."
        assert store.put_if_absent(path, b"first") != Created(), (
            f"{CONTRACT}put_if_absent of the very bytes that are there answered Created, which means: by this call."
        )
        assert_read(store, path, b"first", ONE_WINNER, "after later put_if_absent were refused")

    def test_put_creates_and_replaces(self) -> None:
        store, path = self.make_store(), f"{self.make_folder()}/_last_checkpoint"
        for data in (b"old and longer", b"new", b"", b"longest of them all"):
            store.put(path, data)
            assert_read(store, path, data, LISTED, "after put had answered")
            sizes = [info.size for info in store.list_from(path)]
            assert sizes == [len(data)], f"{LISTED}put had replaced {path} by {len(data)} bytes; a listing gives {sizes}."
        assert not create(store, path, b"x"), f"{ONE_WINNER}put_if_absent replaced what put had written to {path}."
        assert_read(store, path, b"longest of them all", ONE_WINNER, "after put_if_absent was refused")

    def test_a_store_that_has_looked_before_sees_what_another_one_writes(self) -> None:
        writer, reader, folder = self.make_store(), self.make_store(), self.make_folder()
        for number in range(3):
            hint, path = f"{folder}/_last_checkpoint", f"{folder}/{version(number)}"
            writer.put(hint, b"%d" % number)
            assert create(writer, path, b"commit")
            assert_read(reader, hint, b"%d" % number, LISTED, "after another store object had replaced it: is there a cache?")
            names = [info.name for info in reader.list_from(f"{folder}/")]
            assert version(number) in names, f"{LISTED}another store object had created {path}, a listing gives {names}: is there a cache?"

    def test_bytes_come_back_as_they_went(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        bodies = [b"", b"\n", b"\r\n\0\xff\xfe", bytes(range(256)) * 300, body("large", self.large_bytes)]
        for number, data in enumerate(bodies):
            created, put = f"{folder}/{version(number)}", f"{folder}/put-{number}"
            create(store, created, data)
            store.put(put, data)
            for path in (created, put):
                assert_read(store, path, data, CONTRACT, "after one write")
                assert type(store.read(path)) is bytes, f"{CONTRACT}read of {path} gave {type(store.read(path)).__name__}, not bytes."
        sizes = [info.size for info in store.list_from(f"{folder}/")]
        assert sizes == [len(data) for data in bodies] * 2, f"{CONTRACT}a listing gave sizes {sizes}."

    def test_reading_what_is_absent_is_file_not_found(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        create(store, f"{folder}/sub/file", b"data")
        for absent in ("file", "sub", "sub/fil", "sub/file2", "sub/file/below", "no/such/folder"):
            found = read_or_none(store, f"{folder}/{absent}")
            assert found is None, f"{CONTRACT}there is no file {folder}/{absent}, and read gave {found!r} instead of FileNotFoundError."

    def test_a_listing_of_no_folder_is_file_not_found_at_once(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        create(store, f"{folder}/file", b"")
        for absent in ("absent/", f"absent/{version(0)}", "file/", "fil/"):
            try:
                # Not iterated on purpose: the call itself must say it.
                store.list_from(f"{folder}/{absent}")
            except FileNotFoundError:
                continue
            raise AssertionError(
                f"{CONTRACT}list_from({folder}/{absent}), a folder that is not there, raised no FileNotFoundError. "
                "A method with yield in it says so at the first element only, which is too late."
            )

    def test_a_listing_is_an_iterator(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        create(store, f"{folder}/file", b"")
        assert isinstance(store.list_from(f"{folder}/"), Iterator), (
            f"{CONTRACT}list_from must give an iterator, for callers take single elements."
        )

    def test_listings_ascend_by_code_point(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        for name in [*_ORDERED[1::2], *reversed(_ORDERED[::2])]:
            create(store, f"{folder}/{name}", name.encode())
        found = names_from(store, f"{folder}/")
        assert sorted(found) == _ORDERED, f"{LISTED}a listing gave {found} of {_ORDERED}."
        assert found == _ORDERED, f"{CONTRACT}names ascend by code point, as their UTF-8 bytes do: {_ORDERED}; not {found}."

    def test_bounds_are_exact_and_inclusive_and_need_not_exist(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        for name in _ORDERED:
            create(store, f"{folder}/{name}", b"")
        between = [f"{name}{after}" for name in _ORDERED for after in (" ", "0", "~")]
        for bound in ["", "0", *_ORDERED, *between, "~", "😁"]:
            found, expected = names_from(store, f"{folder}/{bound}"), [name for name in _ORDERED if name >= bound]
            assert found == expected, (
                f"{CONTRACT}list_from({folder}/{bound!r}) begins with that name, if there is such a file, and leaves out what is below: "
                f"expected {expected}, not {found}."
            )

    def test_listings_are_flat_and_of_one_folder(self) -> None:
        store, folder = self.make_store(), f"{self.make_folder()}/log"
        for name in ("a", "c", "b/inside", "b/deeper/inside", "d/inside"):
            create(store, f"{folder}/{name}", b"")
        for beside in (f"{folder}2/other", f"{folder}-/other", f"{folder}.json", f"{folder.rpartition('/')[0]}/beside"):
            create(store, beside, b"")
        found = names_from(store, f"{folder}/")
        assert found == ["a", "c"], f"{CONTRACT}a listing shows the files of its folder, no folders and nothing in or beside them: {found}."
        found = names_from(store, f"{folder}/b")
        assert found == ["c"], (
            f"{CONTRACT}a bound that is a folder's name lists from there on in the folder that holds it, not in it: {found}."
        )

    def test_a_listing_longer_than_a_page_is_whole(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        names = [version(number) for number in range(self.long_listing)]
        with ThreadPoolExecutor(_STORED_AT_ONCE) as pool:
            list(pool.map(lambda name: store.put(f"{folder}/{name}", b""), names))
        for first in (0, 1, self.long_listing // 2, self.long_listing - 1):
            found = names_from(store, f"{folder}/{names[first]}")
            assert found == names[first:], (
                f"{LISTED}{self.long_listing - first} files from {names[first]} on; a listing gave {len(found)} of them."
            )
        store.delete(f"{folder}/{name}" for name in names[1:])
        found = names_from(store, f"{folder}/")
        assert found == names[:1], (
            f"{CONTRACT}{self.long_listing - 1} files were deleted at once; a listing shows {len(found) - 1} of them still."
        )

    def test_sizes_and_times_of_a_listing_are_true(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        began_ms = time.time_ns() // 1_000_000
        for number in range(3):
            create(store, f"{folder}/{version(number)}", b"x" * number * 1000)
        store.put(f"{folder}/put", b"xyz")
        infos = list(store.list_from(f"{folder}/"))
        paths, sizes = [info.path for info in infos], [info.size for info in infos]
        assert paths == [f"{folder}/{name}" for name in (version(0), version(1), version(2), "put")], (
            f"{CONTRACT}a listing's paths are in the form in which it was asked for, {folder}/...; not {paths}."
        )
        assert sizes == [0, 1000, 2000, 3], f"{CONTRACT}a listing gave sizes {sizes} instead of [0, 1000, 2000, 3]."
        for info in infos:
            time_ms = info.modification_time_ms
            assert type(time_ms) is int, f"{CONTRACT}modification_time_ms of {info.path} is {time_ms!r}, no int."
            assert abs(time_ms - began_ms) < _CLOCK_TOLERANCE_MS, (
                f"{CONTRACT}{info.path} was written at about {began_ms} and is listed with {time_ms}: milliseconds since 1970-01-01 "
                "UTC are asked for. Log clean-up deletes by this time. (Test a store whose clock is a test's own with the true clock.)"
            )
        assert list(store.list_from(f"{folder}/")) == infos, f"{CONTRACT}two listings of the same untouched files differ."

    def test_a_name_in_a_path_is_these_characters_and_nothing_else(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        for name in _ODD_NAMES:
            assert create(store, f"{folder}/{name}", name.encode()), (
                f"{CONTRACT}{name!r} was taken, which no other name means: nothing in a path is encoded, decoded, expanded or cut off."
            )
        infos = list(store.list_from(f"{folder}/"))
        found = [info.name for info in infos]
        assert found == sorted(_ODD_NAMES), f"{CONTRACT}names are listed as they were given: {sorted(_ODD_NAMES)}; not {found}."
        for info in infos:
            assert_read(store, info.path, info.name.encode(), CONTRACT, "given its path from a listing")
            assert names_from(store, info.path)[:1] == [info.name], f"{CONTRACT}list_from({info.path!r}) does not begin there."
        store.delete(info.path for info in infos[1:])
        assert names_from(store, f"{folder}/") == found[:1], f"{CONTRACT}delete, given the paths of a listing, left some."

    def test_a_folder_in_a_path_is_these_characters_and_nothing_else(self) -> None:
        store, parent = self.make_store(), self.make_folder()
        for name in _ODD_FOLDERS:
            create(store, f"{parent}/{name}/_delta_log/{version(0)}", name.encode())
            store.put(f"{parent}/{name}/_delta_log/{version(1)}", name.encode())
        for name in _ODD_FOLDERS:
            folder = f"{parent}/{name}/_delta_log"
            paths = [info.path for info in store.list_from(f"{folder}/{version(0)}")]
            assert paths == [f"{folder}/{version(0)}", f"{folder}/{version(1)}"], f"{CONTRACT}list_from({folder!r}/...) gave {paths}."
            for path in paths:
                assert_read(store, path, name.encode(), CONTRACT, "given its path from a listing")
            store.delete(paths)
            assert names_from(store, f"{folder}/") == [], f"{CONTRACT}delete, given the paths of a listing of {folder!r}, left some."

    def test_deleted_files_are_gone_and_may_be_created_again(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        paths = [f"{folder}/{version(number)}" for number in range(4)]
        for path in paths:
            create(store, path, b"old")
        store.delete(iter([paths[0], paths[2], paths[2]]))
        for path in (paths[0], paths[2]):
            assert read_or_none(store, path) is None, f"{CONTRACT}{path} was deleted and is still read."
        found = names_from(store, f"{folder}/")
        assert found == [version(1), version(3)], f"{CONTRACT}files 0 and 2 of 4 were deleted; a listing gives {found}."
        assert create(store, paths[0], b"new"), f"{CONTRACT}put_if_absent of {paths[0]}, which was deleted, said that it exists."
        store.put(paths[2], b"new")
        for path in (paths[0], paths[2]):
            assert_read(store, path, b"new", LISTED, "written again after it was deleted")

    def test_deleting_what_is_absent_is_no_error(self) -> None:
        store, folder = self.make_store(), self.make_folder()
        requests: list[list[str]] = [
            [],
            [f"{folder}/absent"],
            [f"{folder}/no/folder/absent", f"{folder}/file/below-a-file", f"{folder}/file"],
        ]
        create(store, f"{folder}/file", b"")
        for paths in requests:
            try:
                store.delete(paths)
            except OSError as error:
                raise AssertionError(f"{CONTRACT}delete({paths}) of files that are not there raised {error!r}; it is no error.") from error
        assert names_from(store, f"{folder}/") == [], f"{CONTRACT}a file that was deleted along with absent ones is still there."

    def test_a_writer_that_dies_in_put_if_absent_leaves_the_whole_file_or_none(self) -> None:
        folder = self.make_folder()
        for step, store in enumerate(self._crashing_stores()):
            path, data = f"{folder}/{step}/{version(0)}", body(f"dead {step}", 50_000)
            answered = _finishes(partial(create, store, path, data))
            survivor = self.make_store()
            left = self._left_by_the_dead(survivor, path, step)
            assert left in (None, data), (
                f"{ATOMIC}a writer that died after step {step} left {len(left or b'')} of {len(data)} bytes of {path}."
            )
            assert left is not None or not answered, f"{LISTED}put_if_absent answered, and {path} is not there."
            created = create(survivor, path, b"survivor")
            assert created == (left is None), (
                f"{ONE_WINNER}after a writer died at step {step}, {path} {'was there and was replaced' if created else 'was not there'}"
                f"{'' if created else ' and could not be created: what a dead writer leaves behind must not lock others out'}."
            )
            assert_read(survivor, path, b"survivor" if created else data, ONE_WINNER, f"after a writer had died at step {step}")

    def test_a_writer_that_dies_in_put_leaves_the_old_file_or_the_new(self) -> None:
        folder = self.make_folder()
        old = body("old", 60_000)
        for step, store in enumerate(self._crashing_stores()):
            path, new = f"{folder}/{step}/_last_checkpoint", body(f"new {step}", 50_000)
            self.make_store().put(path, old)
            answered = _finishes(partial(store.put, path, new))
            survivor = self.make_store()
            left = self._left_by_the_dead(survivor, path, step)
            assert left in (old, new), f"{ATOMIC}a put that died after step {step} left neither the old bytes of {path} nor the new."
            assert left == new or not answered, f"{LISTED}put answered, and {path} holds the old bytes."
            survivor.put(path, b"survivor")
            assert_read(survivor, path, b"survivor", CONTRACT, f"put again after a writer had died at step {step}")

    def test_a_writer_that_dies_in_delete_leaves_the_whole_file_or_none(self) -> None:
        folder = self.make_folder()
        for step, store in enumerate(self._crashing_stores()):
            path, data = f"{folder}/{step}/{version(0)}", body(f"file {step}", 50_000)
            create(self.make_store(), path, data)
            answered = _finishes(partial(store.delete, [path]))
            survivor = self.make_store()
            left = self._left_by_the_dead(survivor, path, step)
            assert left is None or (left == data and not answered), f"{ATOMIC}a delete that died after step {step} left a part of {path}."

    def _crashing_stores(self) -> Iterator[LogStore]:
        stores = self.crashing_stores()
        first = next(stores, None)
        if first is None:
            raise SkipTest("crashing_stores() gives none: crashes between the steps of a write are not tested.")
        yield first
        yield from stores

    def _left_by_the_dead(self, store: LogStore, path: str, step: int) -> bytes | None:
        """The file's bytes if there are any, which its folder's listing agrees with."""
        left = read_or_none(store, path)
        expected = [] if left is None else [(path, len(left))]
        try:
            found = [(info.path, info.size) for info in store.list_from(f"{path.rpartition('/')[0]}/")]
        except FileNotFoundError:
            found = []
        assert found == expected, (
            f"{ATOMIC}after a writer died at step {step}, a listing gives {found}, and reading gives {expected}: "
            "listings show whole files alone, and never a temporary name."
        )
        return left


def _finishes(request: Callable[[], object]) -> bool:
    """Whether the request was answered before its writer died."""
    try:
        request()
    except SimulatedCrash:
        return False
    return True
