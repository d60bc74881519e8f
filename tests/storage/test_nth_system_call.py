"""The local store with its first, second, ... call of the operating system failing, or being its process's last."""

from __future__ import annotations

import builtins
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from lakelog.core.commit import CommitAttempt
from lakelog.core.errors import CommitOutcomeUnknown, LakelogError
from lakelog.storage import local
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import AlreadyExists, Created, PutOutcome, Unknown
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing import SimulatedCrash, VirtualClock
from tests.storage.logs import added, append, commit_path, creation, deletion
from tests.storage.sweep import replayed, shown

_T = TypeVar("_T")

_STEPS = ("open", "fsync", "link", "unlink", "replace", "mkdir", "stat", "listdir")
_BODY = b"a line of a commit\n" * 2000
FAILURES = ("disk full", "input/output error", "error after the effect", "crash before", "crash after")


class Machine:
    """The operating system under the local store, one of whose steps goes wrong.

    Attributes:
        steps: how many there were.
        met: whether the one that goes wrong was among them.
    """

    def __init__(self, number: int, failure: str) -> None:
        self.steps = 0
        self.met = False
        self._number = number
        self._failure = failure

    @contextmanager
    def under(self) -> Iterator[None]:
        """Let the local store run on it."""
        names = {name: getattr(os, name) for name in dir(os)} | {name: self._wrapped(name) for name in _STEPS}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "os", SimpleNamespace(**names))
            patch.setattr(local, "open", self._open_file, raising=False)
            yield

    def _wrapped(self, name: str) -> Callable[..., Any]:
        # What a power failure would take is for tests of the order of steps; here nothing is lost but time.
        real = getattr(os, name) if name != "fsync" else lambda descriptor: None

        def undone(value: Any) -> None:
            if name == "open":
                os.close(value)

        return lambda *arguments, **named: self._step(lambda: real(*arguments, **named), undone=undone)

    def _open_file(self, *arguments: Any, **named: Any) -> Any:
        file = builtins.open(*arguments, **named)  # noqa: SIM115
        if not file.writable():
            return file
        write = file.write

        def halfway() -> None:
            write(_BODY[:100])
            file.flush()

        machine = self

        class File:
            def __enter__(self) -> File:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, data: bytes) -> int:
                return machine._step(lambda: write(data), instead=halfway)

            def flush(self) -> None:
                file.flush()

        return File()

    def _step(
        self, do: Callable[[], _T], *, instead: Callable[[], None] = lambda: None, undone: Callable[[_T], None] = lambda value: None
    ) -> _T:
        self.steps += 1
        if self.steps < self._number or (self.steps > self._number and not self._failure.startswith("crash")):
            return do()
        if self.steps > self._number:
            raise SimulatedCrash
        self.met = True
        match self._failure:
            case "disk full":
                instead()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "input/output error":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "error after the effect":
                undone(do())
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "crash before":
                instead()
                raise SimulatedCrash
        undone(do())
        raise SimulatedCrash


def visible(folder: Path) -> dict[str, bytes]:
    """What the store shows of a folder, each file as it is read and as large as it is listed."""
    store = LocalLogStore()
    try:
        infos = list(store.list_from(f"{folder}/"))
    except FileNotFoundError:
        return {}
    found = {info.name: store.read(info.path) for info in infos}
    assert {info.name: info.size for info in infos} == {name: len(data) for name, data in found.items()}
    return found


def tried(machine: Machine, work: Callable[[], _T]) -> _T | Exception | SimulatedCrash:
    """What came of it."""
    with machine.under():
        try:
            return work()
        except (LakelogError, OSError, SimulatedCrash) as error:
            return error


def every_step(failure: str, attempt: Callable[[Machine, int], None]) -> None:
    """Let one step after the other go wrong until there is none left."""
    for number in range(1, 200):
        machine = Machine(number, failure)
        attempt(machine, number)
        if not machine.met:
            assert number > 4
            return
    raise AssertionError("there is no end")


@pytest.mark.parametrize("failure", FAILURES)
def test_put_if_absent_shows_the_whole_file_or_none(tmp_path: Path, failure: str) -> None:
    def attempt(machine: Machine, number: int) -> None:
        folder = tmp_path / str(number) / "_delta_log"
        path = f"{folder}/{0:020d}.json"
        outcome = tried(machine, lambda: LocalLogStore().put_if_absent(path, _BODY))
        left = visible(folder)
        assert left in ({}, {f"{0:020d}.json": _BODY})
        if isinstance(outcome, OSError):
            assert not left
        elif not isinstance(outcome, SimulatedCrash):
            assert isinstance(outcome, Unknown) or (outcome == Created() and left)
        again: PutOutcome = LocalLogStore().put_if_absent(path, b"another writer's")
        assert again == (AlreadyExists() if left else Created())
        assert visible(folder) == (left or {f"{0:020d}.json": b"another writer's"})

    every_step(failure, attempt)


@pytest.mark.parametrize("failure", FAILURES)
def test_put_shows_the_old_file_or_the_new(tmp_path: Path, failure: str) -> None:
    def attempt(machine: Machine, number: int) -> None:
        folder = tmp_path / str(number)
        path = f"{folder}/_last_checkpoint"
        LocalLogStore().put(path, b"old")
        outcome = tried(machine, lambda: LocalLogStore().put(path, _BODY))
        left = visible(folder)["_last_checkpoint"]
        assert left in (b"old", _BODY)
        assert left == _BODY or outcome is not None
        assert set(visible(folder)) == {"_last_checkpoint"}
        LocalLogStore().put(path, b"new")
        assert visible(folder) == {"_last_checkpoint": b"new"}

    every_step(failure, attempt)


def small_table(root: Path) -> Callable[[VirtualClock], CommitAttempt]:
    return lambda clock: creation(added("mine"))


def due_for_a_checkpoint(root: Path) -> Callable[[VirtualClock], CommitAttempt]:
    log = TableLog(str(root), LocalLogStore(), VirtualClock(seed=1).environment())
    log.commit(creation(added("a"), added("b"), configuration={"delta.checkpointInterval": "3"}))
    log.commit(append(0, "c"))
    log.commit(deletion(1, "a"))
    return lambda clock: append(2, "mine")


def overtaken(root: Path) -> Callable[[VirtualClock], CommitAttempt]:
    due_for_a_checkpoint(root)
    return lambda clock: append(1, "mine")


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("table", [small_table, due_for_a_checkpoint, overtaken], ids=lambda table: table.__name__)
def test_a_commit_is_there_or_not_and_its_writer_is_not_deceived(
    tmp_path: Path, table: Callable[[Path], Callable[[VirtualClock], CommitAttempt]], failure: str
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    make = table(template)
    before = visible(template / "_delta_log")

    def attempt(machine: Machine, number: int) -> None:
        root = tmp_path / str(number)
        shutil.copytree(template, root)
        clock = VirtualClock(seed=2)
        mine = replace(make(clock), user_metadata="mine")
        outcome = tried(machine, lambda: TableLog(str(root), LocalLogStore(), clock.environment()).commit(mine))
        check(root, clock)
        if isinstance(outcome, CommitOutcomeUnknown):
            version = outcome.resolve()
            assert landed(root) == ([] if version is None else [version])
        elif isinstance(outcome, OSError | LakelogError):
            assert not landed(root)
        elif not isinstance(outcome, SimulatedCrash):
            assert landed(root) == [outcome.version]
        after = visible(root / "_delta_log")
        assert {name: after[name] for name in before if name.endswith(".json")} == {
            name: data for name, data in before.items() if name.endswith(".json")
        }
        fresh = TableLog(str(root), LocalLogStore(), clock.environment())
        if not fresh.exists():
            fresh.commit(creation())
        fresh.commit(append(fresh.snapshot().version, "again"))
        check(root, clock)
        assert "again" in fresh.snapshot().files["path"].to_pylist()

    every_step(failure, attempt)


def commits(root: Path) -> dict[int, bytes]:
    files = visible(root / "_delta_log")
    return {int(name[:20]): data for name, data in files.items() if name.endswith(".json")}


def landed(root: Path) -> list[int]:
    infos = {version: json.loads(data.splitlines()[0])["commitInfo"] for version, data in commits(root).items()}
    return [version for version, info in infos.items() if info.get("userMetadata") == "mine"]


def check(root: Path, clock: VirtualClock) -> None:
    """The table is what its commits say."""
    found = commits(root)
    assert sorted(found) == list(range(len(found)))
    assert len(landed(root)) <= 1
    if found:
        snapshot = TableLog(str(root), LocalLogStore(), clock.environment()).snapshot()
        assert snapshot.version == max(found)
        assert shown(snapshot) == replayed(found, snapshot.version, clock.now_ms())
        assert Path(commit_path(snapshot.version, str(root))).is_file()
