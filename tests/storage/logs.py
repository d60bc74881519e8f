"""Small tables over a store, for tests of the table log: attempts, an environment that never waits, a store that fails on demand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from lakelog.core.actions import Action, AddFile, Metadata, Protocol, RemoveFile
from lakelog.core.commit import NO_VERSION, NOTHING, CommitAttempt, Reads
from lakelog.core.commit_info import Operation, delete, write
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import FileInfo, LogStore, PutOutcome
from lakelog.storage.table_log import CommitResult, TableLog
from lakelog.storage.testing.memory import MemoryLogStore

ROOT = "/tables/t"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
ENGINE = "lakelog/test"


# One for all environments: two writers never draw the same identity.
_IDS = itertools.count(1)


class Waits:
    """An environment whose clock stands still unless moved; sleeps are noted and move nothing."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self.slept: list[float] = []

    def environment(self) -> Environment:
        return Environment(
            now_ms=lambda: self.now_ms,
            sleep=self.slept.append,
            random=lambda: 0.5,
            new_uuid=lambda: f"00000000-0000-0000-0000-{next(_IDS):012d}",
            parallel=map,
        )


class FaultyLogStore(LogStore):
    """Passes calls on unless ``before`` has something else to say: it may raise, or answer in the store's place.

    Args:
        inner: the store that works.
        before: called with verb and path; for ``put_if_absent`` an outcome other than None is the answer, and nothing is written.
        after: called with the path after a ``put_if_absent`` was passed on; an outcome other than None replaces the true one.
    """

    def __init__(
        self,
        inner: LogStore,
        before: Callable[[str, str], PutOutcome | None] = lambda verb, path: None,
        after: Callable[[str], PutOutcome | None] = lambda path: None,
    ) -> None:
        self.inner = inner
        self.before = before
        self.after = after

    def read(self, path: str) -> bytes:
        self.before("read", path)
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        answer = self.before("put_if_absent", path)
        if answer is not None:
            return answer
        outcome = self.inner.put_if_absent(path, data)
        return self.after(path) or outcome

    def put(self, path: str, data: bytes) -> None:
        self.before("put", path)
        self.inner.put(path, data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        self.before("list_from", path)
        return self.inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            self.before("delete", path)
        self.inner.delete(paths)


def clocked_store() -> MemoryLogStore:
    """A store whose writes are one second apart from the environment's time on, so that nothing has expired."""
    clock = itertools.count(1_700_000_000_000, 1000)
    return MemoryLogStore(lambda: next(clock))


def added(path: str, size: int = 10) -> AddFile:
    return AddFile(path=path, partition_values={}, size=size, modification_time=1, data_change=True, stats='{"numRecords":1}')


def removed(path: str, at: int = 1_700_000_000_000) -> RemoveFile:
    return RemoveFile(path=path, deletion_timestamp=at, data_change=True)


def metadata(configuration: Mapping[str, str] | None = None, **more: str) -> Metadata:
    return Metadata(id="table", schema_string=SCHEMA, configuration=dict(configuration or {}), **more)


def attempt(
    read_version: int,
    *actions: Action,
    operation: Operation | None = None,
    reads: Reads = NOTHING,
    user_metadata: str | None = None,
    joins: bool = False,
) -> CommitAttempt:
    return CommitAttempt(
        read_version=read_version,
        actions=actions,
        operation=write("append") if operation is None else operation,
        engine_info=ENGINE,
        reads=reads,
        user_metadata=user_metadata,
        joins=joins,
    )


def creation(*actions: Action, configuration: Mapping[str, str] | None = None) -> CommitAttempt:
    return attempt(NO_VERSION, Protocol(min_reader_version=1, min_writer_version=2), metadata(configuration), *actions)


def append(read_version: int, *paths: str) -> CommitAttempt:
    return attempt(read_version, *(added(path) for path in paths))


def deletion(read_version: int, *paths: str) -> CommitAttempt:
    """Removes the files, having read the whole table."""
    reads = Reads(whole_table=True)
    return attempt(read_version, *(removed(path) for path in paths), operation=delete(["id = 1"]), reads=reads)


def table_log(store: LogStore, root: str = ROOT, waits: Waits | None = None) -> TableLog:
    return TableLog(root, store, (waits or Waits()).environment())


def grow(log: TableLog, commits: int) -> CommitResult:
    """Append so many commits of one file each, named by their version."""
    result = None
    for _ in range(commits):
        version = log.snapshot().version
        result = log.commit(append(version, f"file-{version + 1}"))
    assert result is not None
    return result


def commit_path(version: int, root: str = ROOT) -> str:
    return f"{root}/_delta_log/{version:020d}.json"


def checkpoint_path(version: int, root: str = ROOT) -> str:
    return f"{root}/_delta_log/{version:020d}.checkpoint.parquet"


def hint_path(root: str = ROOT) -> str:
    return f"{root}/_delta_log/_last_checkpoint"


def keys(log: TableLog, version: int | None = None) -> set[str]:
    return {str(path) for path in log.snapshot(version).files["path"].to_pylist()}
