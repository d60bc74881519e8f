"""The stores that this distribution has, under the suite that it gives to the authors of others."""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
import time
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import SkipTest
from unittest.mock import patch

import pytest

from lakelog.storage import local, testing
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.testing import Fault, FaultInjectingLogStore, LogStoreConformance, MemoryLogStore, NthCall
from tests.storage.counting import CountingLogStore
from tests.storage.testing.dying import dying_stores


class OnDisk(LogStoreConformance):
    """In a folder of the test's own."""

    folder = "/t/_delta_log"

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def make_folder(self) -> str:
        return f"{self.root}{self.folder}"


class TestLocalLogStore(OnDisk):
    def make_store(self) -> LogStore:
        return LocalLogStore()

    def store_factory(self) -> Callable[[], LogStore]:
        return LocalLogStore

    def crashing_stores(self) -> Iterator[LogStore]:
        return dying_stores(LocalLogStore)


class TestLocalLogStoreByUri(TestLocalLogStore):
    folder = "/a b%20:é#?/_delta_log"

    def make_folder(self) -> str:
        return f"file://{super().make_folder()}"

    # They cost most and depend least on how a path is written.
    test_of_processes_that_race_exactly_one_creates_the_file = None
    test_killed_writers_leave_whole_files_and_every_acknowledged_one = None
    test_a_reader_beside_a_writer_meets_whole_files_alone = None


def without_links() -> LogStore:
    """A local store of a process that is refused hard links from then on."""

    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)

    os.link = link
    return LocalLogStore()


@pytest.mark.skipif(local._renameat2() is None, reason="this C library has no renameat2")
class TestLocalLogStoreWithoutLinks(OnDisk):
    @pytest.fixture(autouse=True)
    def refuse_links(self) -> Iterator[None]:
        with patch.object(os, "link"):
            without_links()
            yield

    def make_store(self) -> LogStore:
        return LocalLogStore()

    def store_factory(self) -> Callable[[], LogStore]:
        return without_links

    def crashing_stores(self) -> Iterator[LogStore]:
        return dying_stores(LocalLogStore)


class InMemory(LogStoreConformance):
    """In a dictionary of one process, where a crash comes before or after a whole write."""

    def make_store(self) -> LogStore:
        if not hasattr(self, "store"):
            self.store = MemoryLogStore(clock=lambda: time.time_ns() // 1_000_000)
        return self.store

    def make_folder(self) -> str:
        return "memory://t/_delta_log"

    def crashing_stores(self) -> Iterator[LogStore]:
        for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            yield FaultInjectingLogStore(self.make_store(), NthCall(1, fault))

    test_of_processes_that_race_exactly_one_creates_the_file = None
    test_what_one_process_writes_another_lists_and_reads = None
    test_killed_writers_leave_whole_files_and_every_acknowledged_one = None


class TestMemoryLogStore(InMemory):
    pass


class TestFaultInjectingLogStoreWithoutFaults(InMemory):
    def make_store(self) -> LogStore:
        return FaultInjectingLogStore(super().make_store(), lambda call: None)


class TestFaultInjectingLogStoreOfLostAnswers(InMemory):
    """`Unknown` is an answer that a store may give: the suite reads back, as a commit does."""

    def make_store(self) -> LogStore:
        return FaultInjectingLogStore(super().make_store(), lambda call: _lost(call.verb, call.number))


def _lost(verb: str, number: int) -> Fault | None:
    if verb != "put_if_absent":
        return None
    return (Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.FAIL_AFTER, None)[number % 4]


class TestCountingLogStore(InMemory):
    def make_store(self) -> LogStore:
        return CountingLogStore(super().make_store())


def test_the_store_and_the_folder_are_the_subclass_to_say() -> None:
    class Empty(LogStoreConformance):
        pass

    for hook in (Empty().make_store, Empty().make_folder):
        with pytest.raises(NotImplementedError, match="Empty must override make_"):
            hook()


def test_what_a_store_cannot_be_asked_is_skipped_with_the_reason() -> None:
    class Alone(LogStoreConformance):
        def make_store(self) -> LogStore:
            return MemoryLogStore()

        def make_folder(self) -> str:
            return "memory://t"

    suite = Alone()
    for test in (
        suite.test_of_processes_that_race_exactly_one_creates_the_file,
        suite.test_what_one_process_writes_another_lists_and_reads,
        suite.test_killed_writers_leave_whole_files_and_every_acknowledged_one,
    ):
        with pytest.raises(SkipTest, match=r"store_factory\(\) is None"):
            test()
    for test in (
        suite.test_a_writer_that_dies_in_put_if_absent_leaves_the_whole_file_or_none,
        suite.test_a_writer_that_dies_in_put_leaves_the_old_file_or_the_new,
        suite.test_a_writer_that_dies_in_delete_leaves_the_whole_file_or_none,
    ):
        with pytest.raises(SkipTest, match=r"crashing_stores\(\) gives none"):
            test()


def no_store() -> LogStore:
    raise ConnectionError("nobody listens at localhost:9000")


def no_process() -> LogStore:
    os._exit(7)


@pytest.mark.parametrize(
    ("factory", "message"),
    [(no_store, r"(?s)A child process failed:.*nobody listens at localhost:9000"), (no_process, r"ended with code 7 before it answered")],
)
def test_a_child_that_cannot_say_anything_is_a_failure_that_says_why(tmp_path: Path, factory: Callable[[], LogStore], message: str) -> None:
    class Suite(LogStoreConformance):
        def make_store(self) -> LogStore:
            return LocalLogStore()

        def make_folder(self) -> str:
            return str(tmp_path)

        def store_factory(self) -> Callable[[], LogStore]:
            return factory

    with pytest.raises(AssertionError, match=message):
        Suite().test_what_one_process_writes_another_lists_and_reads()


def test_the_suite_runs_under_unittest_too() -> None:
    class Case(InMemory, unittest.TestCase):
        pass

    names = [name for name in unittest.TestLoader().getTestCaseNames(Case) if callable(getattr(Case, name))]
    result = unittest.TestSuite(map(Case, names)).run(unittest.TestResult())
    assert result.testsRun == len(names) > 15
    assert (result.failures, result.errors, result.skipped) == ([], [], [])


def test_the_example_for_implementers_is_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class VaultLogStore(LocalLogStore):
        def __init__(self, options: object) -> None:
            super().__init__()

    lake = types.ModuleType("mycompany.lake")
    monkeypatch.setattr(lake, "VaultLogStore", VaultLogStore, raising=False)
    monkeypatch.setitem(sys.modules, "mycompany", types.ModuleType("mycompany"))
    monkeypatch.setitem(sys.modules, "mycompany.lake", lake)
    example = re.search(r"::\n\n((?: {4}.*\n|\n)+)", testing.__doc__ or "")
    assert example is not None
    names: dict[str, type] = {}
    exec(textwrap.dedent(example[1]), names)
    suite = names["TestVaultLogStore"]()
    suite.folder = f"{tmp_path}/t/_delta_log"
    suite.test_put_if_absent_creates_once_and_never_replaces()
    assert isinstance(suite.store_factory()(), VaultLogStore)
    assert isinstance(suite, LogStoreConformance)
