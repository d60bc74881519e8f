"""What the simulated table holds besides its log: rows of data files, kept in dictionaries, and what each transaction meant to do.

A row has an identity that it keeps when files are rewritten, so that a lost or doubled row is seen as such.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from lakelog.core.actions import AddFile, RemoveFile
from lakelog.core.predicates import And, Column, Comparison, Literal, Predicate
from lakelog.core.schema import PrimitiveType
from lakelog.storage.log_store import Created, FileInfo, LogStore, PutOutcome

ROOT = "/t"
LOG = f"{ROOT}/_delta_log/"
PARTITIONS = ("a", "b", "c")
IDS = 40

_LONG, _STRING = PrimitiveType("long"), PrimitiveType("string")


class Violation(AssertionError):
    """The table broke a promise."""


class Row(NamedTuple):
    """``uid`` is the row's identity; the others are columns of the table."""

    uid: int
    id: int
    v: int
    p: str


@dataclass(frozen=True, slots=True)
class Where:
    """``id between low and high``, and ``p = partition`` where one is given; either may be left out."""

    low: int | None = None
    high: int | None = None
    partition: str | None = None

    def matches(self, row: Row) -> bool:
        return (self.low is None or self.low <= row.id <= self.high) and (self.partition is None or row.p == self.partition)

    def predicate(self) -> Predicate:
        """In core's words, as a query's filter would be told."""
        parts: list[Predicate] = []
        if self.low is not None:
            parts.append(Comparison(">=", Column(("id",)), Literal(self.low, _LONG)))
            parts.append(Comparison("<=", Column(("id",)), Literal(self.high, _LONG)))
        if self.partition is not None:
            parts.append(Comparison("=", Column(("p",)), Literal(self.partition, _STRING)))
        return parts[0] if len(parts) == 1 else And(tuple(parts))


@dataclass(slots=True)
class State:
    """A version of the table as the model has it."""

    rows: dict[int, Row] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    transactions: dict[str, int] = field(default_factory=dict)


Apply = Callable[[State], object]


@dataclass(slots=True, kw_only=True)
class Intent:
    """What one commit attempt meant, and what its client heard of it.

    Attributes:
        name: unique; stands in ``commitInfo.userMetadata``.
        what: the operation in words.
        client: who tried.
        read_version: what it read.
        apply: does the same to a model's state and answers what the operation's caller would be told.
        answer: what the caller was told: rows deleted, count and sum of what was read; None where it was told nothing.
        where: rows that were read to decide; None where none were, `Where()` for all.
        application: ``txn`` that it wrote.
        outcome: ``acknowledged``, ``refused`` (nothing was committed) or ``unknown``, which it is until the client hears.
        version: where it landed, of an acknowledged one.
    """

    name: str
    what: str
    client: str
    read_version: int
    apply: Apply
    answer: object = None
    where: Where | None = None
    application: tuple[str, int] | None = None
    outcome: str = "unknown"
    version: int | None = None


class World:
    """The data files, the intents, and the history of the log, none of which a client can change behind the checker's back."""

    def __init__(self, chance: random.Random, *, counted: bool = False) -> None:
        self.chance = chance
        # Every file tells how many rows it has.
        self.counted = counted
        self.files: dict[str, tuple[Row, ...]] = {}
        self.bounds: dict[str, tuple[int, int] | None] = {}
        self.intents: dict[str, Intent] = {}
        self.seen: list[tuple[str, int, Facts]] = []
        self._names = 0

    def fresh(self) -> int:
        """A number that was not drawn before."""
        self._names += 1
        return self._names

    def new_row(self, partition: str | None = None) -> Row:
        chance = self.chance
        return Row(self.fresh(), int(chance.random() * IDS), int(chance.random() * 100), partition or PARTITIONS[int(chance.random() * 3)])

    def write(self, rows: Iterable[Row], *, partitioned: bool, data_change: bool = True) -> list[AddFile]:
        """Write data files, one for each partition, with statistics that are honest: exact, wide, or none."""
        groups: dict[str | None, list[Row]] = {}
        for row in rows:
            groups.setdefault(row.p if partitioned else None, []).append(row)
        return [self._write(group, partition, data_change) for partition, group in groups.items()]

    def remove(self, path: str, now_ms: int, *, data_change: bool = True) -> RemoveFile:
        return RemoveFile(path=path, deletion_timestamp=now_ms, data_change=data_change)

    def discard(self, files: Iterable[AddFile]) -> None:
        """Delete data files of an attempt that certainly committed nothing."""
        for file in files:
            del self.files[file.path]

    def may_match(self, path: str, where: Where) -> bool:
        """Whether partition values and statistics leave open that the file holds such rows."""
        if path not in self.files:
            raise Violation(f"the data file {path} of a snapshot was deleted")
        rows, bounds = self.files[path], self.bounds[path]
        if where.partition is not None and path.startswith("p=") and rows[0].p != where.partition:
            return False
        return where.low is None or bounds is None or (bounds[0] <= where.high and where.low <= bounds[1])

    def _write(self, rows: list[Row], partition: str | None, data_change: bool) -> AddFile:
        path = f"f{self.fresh()}" if partition is None else f"p={partition}/f{self.fresh()}"
        self.files[path] = tuple(rows)
        drawn = self.chance.random()
        stats: str | None = None
        self.bounds[path] = None
        if drawn < 0.85:
            slack = 3 if drawn < 0.15 else 0
            low, high = min(row.id for row in rows) - slack, max(row.id for row in rows) + slack
            self.bounds[path] = (low, high)
            stats = _STATS % (len(rows), "false" if slack else "true", low, high)
        elif drawn < 0.92 or self.counted:
            stats = f'{{"numRecords":{len(rows)}}}'
        return AddFile(
            path=path,
            partition_values={} if partition is None else {"p": partition},
            size=100 * len(rows),
            modification_time=1,
            data_change=data_change,
            stats=stats,
        )


_STATS = '{"numRecords":%d,"tightBounds":%s,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}'


class Facts(NamedTuple):
    """What a snapshot says, in a form that can be compared."""

    paths: frozenset[str]
    configuration: Mapping[str, str]
    schema: str | None
    features: frozenset[str]
    transactions: Mapping[str, int]
    row_ids: Mapping[str, tuple[int | None, int | None]] = {}
    row_id_mark: str | None = None
    in_commit_timestamp: int | None = None


class Recorder(LogStore):
    """The store that works. Keeps every commit file as it first came to be, and objects to what no store of a log may see."""

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner
        self.commits: dict[int, bytes] = {}
        self.deleted: set[int] = set()
        self.checkpoints = 0

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = self.inner.put_if_absent(path, data)
        version = version_of(path)
        if version is not None and isinstance(outcome, Created):
            if version in self.commits:
                raise Violation(f"version {version} was deleted by clean-up and came into being a second time")
            self.commits[version] = data
        return outcome

    def put(self, path: str, data: bytes) -> None:
        if version_of(path) is not None:
            raise Violation(f"the commit file {path} was put without asking whether it is there")
        self.checkpoints += path.endswith(".parquet")
        self.inner.put(path, data)

    def list_from(self, path: str) -> Iterable[FileInfo]:
        return self.inner.list_from(path)

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        self.deleted.update(version for path in paths if (version := version_of(path)) is not None)
        self.inner.delete(paths)


def version_of(path: str) -> int | None:
    """The version of a commit file's path, None of another."""
    name = path.rpartition("/")[2]
    return int(name[:20]) if len(name) == 25 and name.endswith(".json") else None


def column_names(schema: str | None) -> tuple[str, ...]:
    return tuple(item["name"] for item in orjson.loads(schema)["fields"]) if schema else ()
