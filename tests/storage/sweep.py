"""One operation, one fault at one store call, and what must hold afterwards: the engine of the Nth-call sweep.

A `World` is a table in memory beside an archive of every commit file that was ever made, and the data files of a writer who removes what it
wrote when its commit is known to have failed, and only then. An `Operation` is what a user does to it. `sweep` runs the operation with a
fault at its first, second, ... store call until it no longer meets the fault, and raises `Violation` where a promise is broken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakelog.core.actions import AddFile
from lakelog.core.commit import CommitAttempt
from lakelog.core.errors import CommitOutcomeUnknown, DeltaConcurrentModificationException, LakelogError
from lakelog.core.snapshot import Snapshot
from lakelog.storage.log_store import Created, LogStore, PutOutcome
from lakelog.storage.table_log import CommitResult, TableLog
from lakelog.storage.testing import Call, Fault, FaultInjectingLogStore, MemoryLogStore, SimulatedCrash, VirtualClock
from tests.simulation.stamps import Stamps
from tests.simulation.world import Row
from tests.storage.logs import ROOT

FOLDER = f"{ROOT}/_delta_log/"
DAY_MS = 24 * 3600 * 1000
# What delta.deletedFileRetentionDuration is unless set.
_TOMBSTONES_MS = 7 * DAY_MS
# Row ids go by the number of rows alone.
_ROW = Row(0, 0, 0, "")
# A dead process does nothing more, so its first fault is not repeated.
_CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
# Far more calls than any operation here makes.
_ENDLESS = 500
_DOUBTS = (Fault.FAIL_AFTER, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE)
# Of the five ways in which a read fails, one.
_FELT_BY_READS = (Fault.FAIL_BEFORE, Fault.TORN, Fault.DELAY, Fault.CRASH_BEFORE)


FIRST, SECOND = "first", "second"


class Violation(AssertionError):
    """A promise that was broken."""


def require(held: bool, what: str) -> None:
    if not held:
        raise Violation(what)


class ArchivedLogStore(MemoryLogStore):
    """A store that remembers every body that a commit file has ever had."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock.now_ms)
        self.bodies: dict[str, list[bytes]] = {}

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, data)
        if isinstance(outcome, Created):
            self._remember(path, data)
        return outcome

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self._remember(path, data)

    def copy(self, clock: VirtualClock) -> ArchivedLogStore:
        """The same files with the same times, and the same archive."""
        twin = ArchivedLogStore(clock)
        for path, (data, time_ms) in self.content().items():
            twin.put(path, data)
            twin.set_modification_time(path, time_ms)
        twin.bodies = {path: list(bodies) for path, bodies in self.bodies.items()}
        return twin

    def content(self) -> dict[str, tuple[bytes, int]]:
        """Bytes and time of every file in the log folder."""
        try:
            infos = list(self.list_from(FOLDER))
        except FileNotFoundError:
            return {}
        return {info.path: (self.read(info.path), info.modification_time_ms) for info in infos}

    def _remember(self, path: str, data: bytes) -> None:
        if path.endswith(".json"):
            self.bodies.setdefault(path, []).append(bytes(data))


@dataclass(slots=True)
class World:
    """A table, its commits so far, and the data files that exist.

    Attributes:
        inner: the store that works.
        clock: everybody's.
        data: paths of data files that exist.
        acknowledged: the version of every commit that its writer was told of, by the writer's own name for it.
    """

    inner: ArchivedLogStore
    clock: VirtualClock
    data: set[str] = field(default_factory=set)
    acknowledged: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> World:
        clock = VirtualClock(seed=1)
        return cls(ArchivedLogStore(clock), clock)

    def fork(self) -> World:
        """A twin. Its identities are others than those that made this one."""
        clock = VirtualClock(self.clock.now_ms(), seed=2)
        return World(self.inner.copy(clock), clock, set(self.data), dict(self.acknowledged))

    def log(self, store: LogStore | None = None) -> TableLog:
        return TableLog(ROOT, self.inner if store is None else store, self.clock.environment())

    def commit(self, log: TableLog, attempt: CommitAttempt, name: str) -> CommitResult:
        """As the Spark adapter commits: files first, removed again on a failure that is known to be one."""
        written = {action.path for action in attempt.actions if isinstance(action, AddFile)} - self.data
        self.data |= written
        try:
            result = log.commit(replace(attempt, user_metadata=name))
        except CommitOutcomeUnknown as unknown:
            raise Pending(unknown, name, written) from unknown
        except (LakelogError, OSError):
            self.data -= written
            raise
        self.acknowledged[name] = result.version
        return result

    def resolve(self, pending: Pending) -> int | None:
        """Settle an unknown outcome, as the adapter does."""
        version = pending.unknown.resolve()
        if version is None:
            self.data -= pending.written
        else:
            self.acknowledged[pending.name] = version
        return version

    def other(self, attempt: CommitAttempt, name: str) -> CommitResult:
        """Another writer, whom nothing goes wrong for."""
        return self.commit(self.log(), attempt, name)

    def commits(self) -> dict[int, bytes]:
        """Every commit ever made."""
        return {int(path[len(FOLDER) :].removesuffix(".json")): bodies[-1] for path, bodies in self.inner.bodies.items()}

    def landed(self, name: str) -> list[int]:
        """The versions that a named commit holds."""
        return [version for version, info in _infos(self.commits()).items() if info.get("userMetadata") == name]


class Pending(Exception):
    """A commit whose outcome nobody knows yet, with the files that stay for it."""

    def __init__(self, unknown: CommitOutcomeUnknown, name: str, written: set[str]) -> None:
        super().__init__(str(unknown))
        self.unknown = unknown
        self.name = name
        self.written = written


Table = dict[str, Any]


def replayed(commits: Mapping[int, bytes], version: int, now_ms: int) -> Table:
    """What the commits up to a version say, by dictionaries alone."""
    files: dict[str, tuple[object, ...]] = {}
    tombstones: dict[str, int] = {}
    table: Table = {"version": version, "transactions": {}, "domains": {}}
    for number in range(version + 1):
        for line in commits[number].splitlines():
            ((kind, value),) = json.loads(line).items()
            if kind == "add":
                files[value["path"]] = (value["size"], value.get("stats"), value.get("baseRowId"), value.get("defaultRowCommitVersion"))
                tombstones.pop(value["path"], None)
            elif kind == "remove":
                require(value["path"] in files, f"version {number} removes {value['path']}, which is not in the table")
                del files[value["path"]]
                tombstones[value["path"]] = value["deletionTimestamp"]
            elif kind == "metaData":
                table["metadata"] = (value["id"], value["schemaString"], value["configuration"])
            elif kind == "protocol":
                table["protocol"] = (value["minReaderVersion"], value["minWriterVersion"])
            elif kind == "txn":
                table["transactions"][value["appId"]] = value["version"]
            elif kind == "domainMetadata":
                table["domains"].pop(value["domain"], None)
                if not value["removed"]:
                    table["domains"][value["domain"]] = value["configuration"]
    table["files"] = files
    table["tombstones"] = {path for path, time_ms in tombstones.items() if time_ms >= now_ms - _TOMBSTONES_MS}
    return table


def shown(snapshot: Snapshot) -> Table:
    """A snapshot in the terms of `replayed`."""
    files = snapshot.files.select(["path", "size", "stats", "baseRowId", "defaultRowCommitVersion"]).to_pydict()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "version": snapshot.version,
        "files": {row[0]: row[1:] for row in zip(*files.values(), strict=True)},
        "tombstones": set(snapshot.tombstones["path"].to_pylist()),
        "transactions": {app_id: item.version for app_id, item in snapshot.transactions.items()},
        "domains": {name: item.configuration for name, item in snapshot.domains.items()},
        "metadata": (metadata.id, metadata.schema_string, dict(metadata.configuration)),
        "protocol": (protocol.min_reader_version, protocol.min_writer_version),
    }


def same(snapshot: Snapshot, world: World, version: int, whose: str) -> None:
    found, expected = shown(snapshot), replayed(world.commits(), version, world.clock.now_ms())
    for part in expected:
        require(
            found[part] == expected[part],
            f"{whose}: {part} of version {version} should be {expected[part]}, found {found[part]}",
        )


def check(world: World, *, versions: Sequence[int] = ()) -> None:
    """Everything that must hold of a table between operations.

    Args:
        versions: old ones that must still read as they were.
    """
    for path, bodies in world.inner.bodies.items():
        require(len(set(bodies)) == 1, f"{path} was replaced")
    commits = world.commits()
    for path, (data, _) in world.inner.content().items():
        if path.endswith(".json"):
            require(data == world.inner.bodies[path][0], f"{path} has changed")
    require(sorted(commits) == list(range(len(commits))), f"the versions {sorted(commits)} are not contiguous")
    if not commits:
        return
    newest = max(commits)
    infos = _infos(commits)
    identities = Counter(info.get("txnId") for info in infos.values())
    require(max(identities.values()) == 1, f"a txnId was committed twice: {identities.most_common(1)}")
    _check_stamps(commits)
    names = Counter(info["userMetadata"] for info in infos.values())
    require(max(names.values()) == 1, f"a commit was applied twice: {names.most_common(1)}")
    for name, version in world.acknowledged.items():
        require(infos.get(version, {}).get("userMetadata") == name, f"{name} was acknowledged at version {version} and is not there")
    fresh = _read(world.log)
    same(fresh, world, newest, "a fresh reader")
    gone = set(fresh.files["path"].to_pylist()) - world.data
    require(not gone, f"the data files {sorted(gone)} of live rows were deleted")
    for version in versions:
        same(_read(world.log, version), world, version, "time travel")


def _check_stamps(commits: Mapping[int, bytes]) -> None:
    """In-commit timestamps and row ids, of all versions."""
    actions = {version: [next(iter(json.loads(line).items())) for line in data.splitlines()] for version, data in commits.items()}
    adds = [value for made in actions.values() for kind, value in made if kind == "add"]
    rows = {add["path"]: [_ROW] * int(json.loads(add.get("stats") or "{}").get("numRecords", 0)) for add in adds}
    stamps, features, configuration = Stamps(rows), frozenset[str](), {}
    for version, made in sorted(actions.items()):
        for kind, value in made:
            if kind == "protocol":
                features = frozenset(value.get("writerFeatures") or ())
            elif kind == "metaData":
                configuration = value["configuration"]
        try:
            stamps.land(version, made, features=features, configuration=configuration, copies=False)
        except AssertionError as error:
            raise Violation(str(error)) from error


def _read(log: Callable[[], TableLog], version: int | None = None) -> Snapshot:
    try:
        return log().snapshot(version)
    except (LakelogError, OSError) as error:
        raise Violation(f"the table cannot be read: {error!r}") from error


def _infos(commits: Mapping[int, bytes]) -> dict[int, dict[str, Any]]:
    return {version: json.loads(data.splitlines()[0])["commitInfo"] for version, data in commits.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a user does, first with something going wrong and then again.

    Attributes:
        name: for the test's id.
        prepare: makes the table that is there before.
        run: the operation, given the name of what it commits and what ``warm`` gave; raises what the user would see.
        warm: what the process did before with its log, faultless but for ``outage``.
        outage: what goes wrong while ``warm`` runs for the first time.
        judge: raises `Violation` where what ``run`` gave is not what the table held.
        reads: it must leave the store as it was, and commits nothing.
        maintains: it commits nothing.
        loses: the first run must not land, whatever goes wrong or does not.
        once: a run after one that landed commits nothing.
    """

    name: str
    prepare: Callable[[World], None]
    run: Callable[[World, TableLog, str, Any], Any]
    warm: Callable[[World, TableLog, str], Any] = lambda world, log, name: None
    outage: Callable[[Call], Fault | None] = lambda call: None
    judge: Callable[[World, Any], None] = lambda world, value: None
    reads: bool = False
    maintains: bool = False
    loses: bool = False
    once: bool = False

    def world(self) -> World:
        """A world of its own, ready for the operation."""
        if self.name not in _PREPARED:
            world = World.empty()
            self.prepare(world)
            _PREPARED[self.name] = world
        return _PREPARED[self.name].fork()


_PREPARED: dict[str, World] = {}
_CALLS: dict[str, list[Call]] = {}


def forget_calls() -> None:
    """Ask every operation anew what it asks of the store, as when the code under it has changed."""
    _CALLS.clear()


class LineCuttingLogStore(FaultInjectingLogStore):
    """Tears a commit file after its first line, so that what is left is a commit, and another one."""

    def read(self, path: str) -> bytes:
        data = super().read(path)
        if not path.endswith(".json"):
            return data
        whole = self.inner.read(path)
        return data if data == whole else whole.splitlines(keepends=True)[0]


class Schedule:
    """A fault at one call, or at every call from one on until the store heals."""

    def __init__(self, fault: Fault, *, persistent: bool, before: Callable[[Call], Fault | None]) -> None:
        self.met = False
        self._fault = fault
        self._persistent = persistent
        self._otherwise = before
        self._first = _ENDLESS + 1

    def arm(self, number: int) -> None:
        self._first, self._otherwise = number, lambda call: None

    def heal(self) -> None:
        self._first = _ENDLESS + 1

    def __call__(self, call: Call) -> Fault | None:
        require(call.number <= _ENDLESS, f"{_ENDLESS} calls and no end")
        if call.number < self._first:
            return self._otherwise(call)
        if call.number == self._first:
            self.met = True
            return self._fault
        if not self._persistent:
            return None
        return Fault.CRASH_BEFORE if self._fault in _CRASHES else self._fault


@dataclass(frozen=True, slots=True)
class Case:
    """One run: which call goes wrong and how, and whether what is late arrives before the user goes on or after."""

    operation: Operation
    fault: Fault
    number: int
    persistent: bool
    settled_last: bool = False
    kind: type[FaultInjectingLogStore] = FaultInjectingLogStore

    def __str__(self) -> str:
        held = "from" if self.persistent else "at"
        late = ", late requests arriving last" if self.settled_last else ""
        return f"{self.operation.name}, {self.fault.value} {held} call {self.number}{late}"


def sweep(operation: Operation, fault: Fault, kind: type[FaultInjectingLogStore] = FaultInjectingLogStore) -> int:
    """Run every case of an operation and a fault; how many there were.

    Raises:
        Violation: names the case.
    """
    count = 0
    for case in cases(operation, fault):
        require(run(replace(case, kind=kind)), f"{case}: the fault was not met, so the calls of two runs differ")
        count += 1
    return count


def cases(operation: Operation, fault: Fault) -> Iterator[Case]:
    """Every case that differs from the others: to calls that only read, five faults are one, and a repetition is none."""
    trace = calls(operation)
    for persistent in (False, True):
        for index in range(len(trace)):
            met = trace[index:] if persistent else trace[index : index + 1]
            if fault in _FELT_BY_READS or any(call.verb not in ("read", "list_from") for call in met):
                case = Case(operation, fault, index + 1, persistent, settled_last=fault is Fault.DUPLICATE)
                yield case
                if fault is Fault.LATE:
                    yield replace(case, settled_last=True)


def calls(operation: Operation) -> list[Call]:
    """What the operation asks of the store when nothing goes wrong.

    Raises:
        Violation: a promise was broken though nothing went wrong.
    """
    if operation.name not in _CALLS:
        case = Case(operation, Fault.DELAY, _ENDLESS, persistent=False)
        try:
            _CALLS[operation.name] = _run(case)[1]
        except Violation as violation:
            raise Violation(f"{operation.name}, without a fault: {violation}") from violation
    return _CALLS[operation.name]


def run(case: Case) -> bool:
    """Whether the operation met the fault.

    Raises:
        Violation: a promise was broken.
    """
    try:
        return _run(case)[0]
    except Violation as violation:
        raise Violation(f"{case}: {violation}") from violation


def _run(case: Case) -> tuple[bool, list[Call]]:
    operation, world = case.operation, case.operation.world()
    schedule = Schedule(case.fault, persistent=case.persistent, before=operation.outage)
    store = case.kind(world.inner, schedule, seed=case.number, clock=world.clock)
    old = sorted(world.commits())[-1:]
    log = world.log(store)
    warm = operation.warm(world, log, FIRST)
    before = world.inner.content()
    warmed = len(store.calls)
    schedule.arm(warmed + case.number)
    pending: Pending | None = None
    failure: Exception | None = None
    died = False
    value: Any = None
    try:
        value = operation.run(world, log, FIRST, warm)
    except Pending as unknown:
        pending = unknown
    except SimulatedCrash:
        died = True
    except (LakelogError, OSError) as error:
        failure = error
    schedule.heal()
    asked = store.calls[warmed:]
    _judge_failure(case, failure or pending, asked)
    if not case.settled_last:
        store.settle()
    if operation.reads:
        require(world.inner.content() == before, "a read changed the store")
    else:
        check(world)
    if pending is not None:
        _settle(world, pending)
    elif not (died or failure):
        operation.judge(world, value)
    if world.commits() and not (died and case.persistent):
        # The process lives: what it holds must not have suffered.
        same(_read(lambda: log), world, max(world.commits()), "the same reader")
    refused = failure is not None or operation.loses
    require(not (refused and world.landed(FIRST)), "the operation failed, and its commit is there")
    _again(world, operation)
    store.settle()
    require(not (refused and world.landed(FIRST)), "the operation failed, and its commit arrived later")
    if not operation.reads:
        check(world, versions=old)
    return schedule.met, asked


def _judge_failure(case: Case, failure: Exception | None, asked: Sequence[Call]) -> None:
    """That who may not commit is told of the conflict, nobody else is, and no single doubt ends an operation."""
    conflict = isinstance(failure, DeltaConcurrentModificationException)
    require(case.operation.loses or not conflict, f"a conflict that is none: {failure}")
    met = asked[case.number - 1] if case.number <= len(asked) else None
    harmless = met is None or case.fault in (Fault.DELAY, Fault.DUPLICATE) or (met.verb == "put_if_absent" and case.fault in _DOUBTS)
    if harmless and not case.persistent:
        require(conflict if case.operation.loses else failure is None, f"it ended in {failure!r}")


def _settle(world: World, pending: Pending) -> None:
    try:
        version = world.resolve(pending)
    except (LakelogError, OSError) as error:
        raise Violation(f"the store has healed, and the outcome cannot be resolved: {error!r}") from error
    landed = world.landed(pending.name)
    require(landed == ([] if version is None else [version]), f"resolve() said {version}, and the commit is at {landed}")


def _again(world: World, operation: Operation) -> None:
    """The operation once more, in a new process over the healed store."""
    landed = bool(world.landed(FIRST))
    done = landed and operation.once
    log = world.log()
    try:
        operation.judge(world, operation.run(world, log, SECOND, operation.warm(world, log, SECOND)))
    except (LakelogError, OSError, Pending) as error:
        require(done, f"run again, it failed: {error!r}")
    expected = not (operation.reads or operation.maintains or done)
    found = bool(world.landed(SECOND))
    require(found == expected, f"run again after it had {'landed' if landed else 'not landed'}, it {'landed' if found else 'did not land'}")
