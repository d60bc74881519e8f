"""The operations of the Nth-call sweep: everything that a table log does, each with the table that it is done to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakelog.core.actions import Action, AddFile, DomainMetadata, Protocol, RemoveFile, SetTransaction
from lakelog.core.commit import NO_VERSION, CommitAttempt, Reads
from lakelog.core.commit_info import Operation as OperationOf
from lakelog.core.commit_info import delete, write
from lakelog.core.errors import CommitOutcomeUnknown, LakelogError
from lakelog.core.predicates import Column, Comparison, Literal
from lakelog.core.schema import PrimitiveType
from lakelog.core.snapshot import Snapshot
from lakelog.storage.table_log import HistoryEntry, TableLog
from lakelog.storage.testing import Call, Fault
from tests.storage.logs import added, attempt, commit_path, creation, metadata, removed
from tests.storage.sweep import DAY_MS, FIRST, SECOND, Operation, Pending, Violation, World, require, same

_LISTED = ("appendOnly", "invariants", "domainMetadata")
_WITH_DOMAINS = Protocol(min_reader_version=1, min_writer_version=7, writer_features=_LISTED)
_INTERVAL = 4
_APP = "stream"


def ids(path: str, least: int, greatest: int) -> AddFile:
    """A file with rows whose id lies in a range."""
    stats = f'{{"numRecords":2,"minValues":{{"id":{least}}},"maxValues":{{"id":{greatest}}},"nullCount":{{"id":0}}}}'
    return replace(added(path), stats=stats)


def removal(world: World, path: str) -> RemoveFile:
    return removed(path, at=world.clock.now_ms())


def reading(read_version: int, below: int, *actions: Action) -> CommitAttempt:
    """A rewrite of the rows whose id is below a number."""
    condition = Comparison("<", Column(("id",)), Literal(below, PrimitiveType("long")))
    files = pa.array([action.path for action in actions if isinstance(action, RemoveFile)], pa.string())
    return attempt(read_version, *actions, operation=delete([f"id < {below}"]), reads=Reads(predicates=(condition,), files=files))


def nothing(world: World) -> None:
    """No table."""


def small(world: World, configuration: dict[str, str] | None = None) -> None:
    """Version 0 with two files whose ids do not overlap, an application's transaction and a domain."""
    extra = [SetTransaction(app_id=_APP, version=1), DomainMetadata(domain="owner", configuration="{}", removed=False)]
    files = [ids("low", 0, 9), ids("high", 100, 109)]
    world.other(attempt(NO_VERSION, _WITH_DOMAINS, metadata(configuration), *files, *extra), "base-0")


_STAMPING = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", "inCommitTimestamp", "rowTracking"))
_STAMPED = {"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"}


def stamped(world: World) -> None:
    """As `small`, with in-commit timestamps and row ids."""
    files = [ids("low", 0, 9), ids("high", 100, 109)]
    world.other(attempt(NO_VERSION, _STAMPING, metadata(_STAMPED), *files), "base-0")


def long(world: World, versions: int) -> None:
    """As `small`, with a checkpoint every few versions, one file more by version, and one file removed."""
    small(world, {"delta.checkpointInterval": str(_INTERVAL)})
    for version in range(1, versions + 1):
        world.clock.advance_ms(1000)
        actions: list[Action] = [ids(f"base-{version}", 100 * version, 100 * version + 9)]
        if version == 2:
            actions.append(removal(world, "base-1"))
        world.other(attempt(version - 1, *actions), f"base-{version}")


def expired(world: World) -> None:
    """A table whose commits are old, about to reach a checkpoint."""
    long(world, 7)
    world.clock.advance_ms(40 * DAY_MS)


def _create(world: World, log: TableLog, name: str, warm: Any) -> Any:
    return world.commit(log, creation(ids(name, 0, 9)), name)


def _create_or_join(world: World, log: TableLog, name: str, warm: Any) -> Any:
    return world.commit(log, replace(creation(ids(name, 0, 9)), joins=True), name)


def _beside_a_creator(world: World, log: TableLog, name: str) -> None:
    if name == FIRST:
        world.other(creation(ids("other", 0, 9)), "other creator")


def _append(world: World, log: TableLog, name: str, warm: Any) -> Any:
    return world.commit(log, attempt(log.snapshot().version, ids(name, 20, 29)), name)


def _append_after_others(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    for number in range(2):
        world.other(attempt(version + number, ids(f"{name} other {number}", 30, 39)), f"{name} other {number}")
    return world.commit(log, attempt(version, ids(name, 20, 29)), name)


def _ids_below_10(snapshot: Snapshot) -> list[str]:
    rows = snapshot.files.select(["path", "stats"]).to_pylist()
    return [row["path"] for row in rows if json.loads(row["stats"])["minValues"]["id"] < 10]


def _delete(world: World, log: TableLog, name: str, warm: Any) -> Any:
    snapshot = log.snapshot()
    version = snapshot.version
    world.other(attempt(version, ids(f"{name} other", 200, 209)), f"{name} other")
    actions = [removal(world, path) for path in _ids_below_10(snapshot)]
    return world.commit(log, reading(version, 10, *actions, ids(name, 5, 9)), name)


def _delete_too_late(world: World, log: TableLog, name: str, warm: Any) -> Any:
    snapshot = log.snapshot()
    if name == FIRST:
        world.other(attempt(snapshot.version, ids("other", 3, 4)), "other")
    actions = [removal(world, path) for path in _ids_below_10(snapshot)]
    return world.commit(log, reading(snapshot.version, 10, *actions, ids(name, 5, 9)), name)


def _delete_what_is_gone(world: World, log: TableLog, name: str, warm: Any) -> Any:
    snapshot = log.snapshot()
    if name == FIRST:
        world.other(attempt(snapshot.version, removal(world, "low"), ids("rewritten", 0, 9)), "other")
    actions = [removal(world, path) for path in _ids_below_10(snapshot)]
    return world.commit(log, reading(snapshot.version, 10, *actions), name)


def _remove_unread_what_is_gone(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    actions: list[Action] = [ids(name, 20, 29)]
    if name == FIRST:
        world.other(attempt(version, removal(world, "low")), "other")
        actions.append(removal(world, "low"))
    return world.commit(log, attempt(version, *actions), name)


def _summarise_what_is_gone(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    if name == FIRST:
        world.other(attempt(version, removal(world, "low")), "other")
    read = Reads(files=pa.array(["low"], pa.string()))
    return world.commit(log, attempt(version, ids(name, 20, 29), reads=read), name)


def _look_twice(world: World, log: TableLog, name: str) -> Snapshot:
    """An old snapshot of a log that has read on."""
    snapshot = log.snapshot()
    if name == FIRST:
        world.other(attempt(snapshot.version, ids("other", 3, 4)), "other")
        log.snapshot()
    return snapshot


def _delete_by_an_old_snapshot(world: World, log: TableLog, name: str, warm: Snapshot) -> Any:
    actions = [removal(world, path) for path in _ids_below_10(warm)]
    return world.commit(log, reading(warm.version, 10, *actions, ids(name, 5, 9)), name)


def _set_domain_too_late(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    if name == FIRST:
        world.other(attempt(version, DomainMetadata(domain="owner", configuration='{"by":"other"}', removed=False)), "other")
    domain = DomainMetadata(domain="owner", configuration=json.dumps({"by": name}), removed=False)
    return world.commit(log, attempt(version, domain), name)


def _upgrade_too_late(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    upgrade = replace(
        _WITH_DOMAINS, writer_features=(*_LISTED, "vacuumProtocolCheck"), min_reader_version=3, reader_features=("vacuumProtocolCheck",)
    )
    if name == FIRST:
        world.other(attempt(version, upgrade), "other")
    return world.commit(log, attempt(version, upgrade), name)


def cleaned_up(world: World) -> None:
    long(world, 7)
    world.clock.advance_ms(40 * DAY_MS)
    world.log().clean_up()


def _create_anew(world: World, log: TableLog, name: str, warm: Any) -> Any:
    made = creation(ids(name, 0, 9)) if name == FIRST else attempt(log.snapshot().version, ids(name, 0, 9))
    return world.commit(log, made, name)


def _overwrite(world: World, log: TableLog, name: str, warm: Any) -> Any:
    snapshot = log.snapshot()
    actions = [removal(world, path) for path in snapshot.files["path"].to_pylist()]
    whole = attempt(snapshot.version, *actions, ids(name, 0, 9), operation=write("overwrite"), reads=Reads(whole_table=True))
    return world.commit(log, whole, name)


def _set_properties(world: World, log: TableLog, name: str, warm: Any) -> Any:
    domain = DomainMetadata(domain="owner", configuration=json.dumps({"by": name}), removed=False)
    properties = metadata({"delta.checkpointInterval": "7"}, description=name)
    return world.commit(log, attempt(log.snapshot().version, properties, domain), name)


def _append_once(world: World, log: TableLog, name: str, warm: Any) -> Any:
    snapshot = log.snapshot()
    done = snapshot.transactions.get(_APP)
    if done is not None and done.version >= 2:
        return None
    actions = [ids(name, 20, 29), SetTransaction(app_id=_APP, version=2)]
    return world.commit(log, attempt(snapshot.version, *actions, reads=Reads(app_ids=frozenset([_APP]))), name)


def _append_too_late(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    transaction = SetTransaction(app_id=_APP, version=2 if name == FIRST else 3)
    if name == FIRST:
        world.other(attempt(version, ids("other", 20, 29), transaction), "other")
    return world.commit(log, attempt(version, ids(name, 20, 29), transaction), name)


def _append_after_a_change_of_metadata(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    if name == FIRST:
        world.other(attempt(version, metadata({"delta.enableChangeDataFeed": "true"})), "other")
    return world.commit(log, attempt(version, ids(name, 20, 29)), name)


def _turn_on_stamps(world: World, log: TableLog, name: str, warm: Any) -> Any:
    version = log.snapshot().version
    if name == FIRST:
        world.other(attempt(version, ids("other", 20, 29)), "other")
    return world.commit(log, attempt(version, _STAMPING, metadata(_STAMPED), operation=OperationOf(name="SET TBLPROPERTIES")), name)


def _checkpoint(world: World, log: TableLog, name: str, warm: Any) -> Any:
    hint = log.checkpoint()
    require(hint.version == max(world.commits()), f"a checkpoint of version {hint.version}")


def _clean_up(world: World, log: TableLog, name: str, warm: Any) -> list[str]:
    return log.clean_up()


def _left_by_clean_up(world: World, value: list[str]) -> None:
    names = sorted(path.rpartition("/")[2] for path in world.inner.content())
    # A checkpoint of which the store gave a part alone is none to begin with.
    require(not value or names[0].startswith(f"{_INTERVAL:020d}"), f"after clean-up the log begins with {names[0]}")


def _is_newest(world: World, value: Any) -> None:
    same(value, world, max(world.commits()), "the snapshot")


def _followed_by_others(world: World, log: TableLog, name: str) -> None:
    version = log.snapshot().version
    for number in range(2):
        world.other(attempt(version + number, ids(f"{name} other {number}", 30, 39)), f"{name} other {number}")


def _is_history(world: World, value: list[HistoryEntry]) -> None:
    found = {entry.version: None if entry.commit_info is None else entry.commit_info.txn_id for entry in value}
    infos = {version: json.loads(data.splitlines()[0])["commitInfo"]["txnId"] for version, data in world.commits().items()}
    require(found == infos, f"a history of {found} instead of {infos}")


def _at_time(world: World, log: TableLog, name: str, warm: Any) -> int:
    return log.version_at_timestamp(world.inner.content()[commit_path(5)][1] + 500)


def _is_5(world: World, value: int) -> None:
    require(value == 5, f"version {value} at the time of version 5")


def _is_there(world: World, value: bool) -> None:
    require(value, "the table was not there")


def _uncertain(world: World, log: TableLog, name: str) -> Pending | None:
    """A commit of which its writer heard nothing any more."""
    if name != FIRST:
        return None
    try:
        _append(world, log, name, None)
    except Pending as pending:
        return pending
    raise Violation("the outage was none")


def _overtaken(world: World, log: TableLog, name: str) -> Pending | None:
    pending = _uncertain(world, log, name)
    if pending is not None:
        world.other(attempt(0, ids("other", 30, 39)), "other")
    return pending


def _uncertain_creation(world: World, log: TableLog, name: str) -> Pending | None:
    if name != FIRST:
        return None
    try:
        _create(world, log, name, None)
    except Pending as pending:
        return pending
    raise Violation("the outage was none")


def _resolve(world: World, log: TableLog, name: str, warm: Any) -> int | None:
    if warm is None:
        _append(world, log, name, None)
        return None
    try:
        return world.resolve(warm)
    except CommitOutcomeUnknown as unknown:
        raise Pending(unknown, warm.name, warm.written) from unknown
    except (LakelogError, OSError) as error:
        raise Violation(f"resolve() raises what no caller expects of it: {error!r}") from error


def _resolve_creation(world: World, log: TableLog, name: str, warm: Any) -> int | None:
    if warm is None:
        _create(world, log, name, None)
        return None
    return _resolve(world, log, name, warm)


def _is_resolved(world: World, value: int | None) -> None:
    landed = world.landed(FIRST)
    require(bool(world.landed(SECOND)) or landed == ([] if value is None else [value]), f"resolve() said {value}, it is at {landed}")


def _answers_lost(call: Call) -> Fault | None:
    if call.verb == "put_if_absent":
        return Fault.LOST_ANSWER
    return Fault.FAIL_BEFORE if call.verb == "read" and call.path == commit_path(1) else None


def _requests_lost(call: Call) -> Fault | None:
    return Fault.LOST_REQUEST if call.verb == "put_if_absent" else None


def table_of_8(world: World) -> None:
    long(world, 7)


def about_to_be_due(world: World) -> None:
    long(world, _INTERVAL - 1)


OPERATIONS = (
    Operation(name="create", prepare=nothing, run=_create, once=True),
    Operation(name="create with joins", prepare=nothing, run=_create_or_join),
    Operation(name="join", prepare=nothing, warm=_beside_a_creator, run=_create_or_join),
    Operation(name="append", prepare=small, run=_append),
    Operation(name="append after others", prepare=small, run=_append_after_others),
    Operation(name="delete", prepare=small, run=_delete),
    Operation(name="delete too late", prepare=small, run=_delete_too_late, loses=True),
    Operation(name="delete what is gone", prepare=small, run=_delete_what_is_gone, loses=True),
    Operation(name="remove unread what is gone", prepare=small, run=_remove_unread_what_is_gone, loses=True),
    Operation(name="summarise what is gone", prepare=small, run=_summarise_what_is_gone, loses=True),
    Operation(name="delete by an old snapshot", prepare=small, warm=_look_twice, run=_delete_by_an_old_snapshot, loses=True),
    Operation(name="set a domain too late", prepare=small, run=_set_domain_too_late, loses=True),
    Operation(name="upgrade too late", prepare=small, run=_upgrade_too_late, loses=True),
    Operation(name="create over a log that was cleaned up", prepare=cleaned_up, run=_create_anew, loses=True),
    Operation(name="overwrite", prepare=small, run=_overwrite),
    Operation(name="append with times and row ids", prepare=stamped, run=_append),
    Operation(name="append after others with times and row ids", prepare=stamped, run=_append_after_others),
    Operation(name="delete with times and row ids", prepare=stamped, run=_delete),
    Operation(name="turn on times and row ids", prepare=small, run=_turn_on_stamps),
    Operation(name="set properties", prepare=small, run=_set_properties),
    Operation(name="append after a change of metadata", prepare=small, run=_append_after_a_change_of_metadata, loses=True),
    Operation(name="append once", prepare=small, run=_append_once, once=True),
    Operation(name="append once too late", prepare=small, run=_append_too_late, loses=True),
    Operation(name="append with a checkpoint", prepare=about_to_be_due, run=_append),
    Operation(name="append with clean-up", prepare=expired, run=_append),
    Operation(name="checkpoint", prepare=table_of_8, run=_checkpoint, maintains=True),
    Operation(name="clean up", prepare=expired, run=_clean_up, judge=_left_by_clean_up, maintains=True),
    Operation(name="load", prepare=table_of_8, run=lambda world, log, name, warm: log.snapshot(), judge=_is_newest, reads=True),
    Operation(
        name="refresh",
        prepare=table_of_8,
        warm=_followed_by_others,
        run=lambda world, log, name, warm: log.snapshot(),
        judge=_is_newest,
        reads=True,
    ),
    Operation(
        name="time travel",
        prepare=table_of_8,
        run=lambda world, log, name, warm: log.snapshot(3),
        judge=lambda world, value: same(value, world, 3, "the snapshot"),
        reads=True,
    ),
    Operation(name="history", prepare=table_of_8, run=lambda world, log, name, warm: log.history(), judge=_is_history, reads=True),
    Operation(name="version at a time", prepare=table_of_8, run=_at_time, judge=_is_5, reads=True),
    Operation(name="exists", prepare=small, run=lambda world, log, name, warm: log.exists(), judge=_is_there, reads=True),
    Operation(name="resolve what landed", prepare=small, warm=_uncertain, outage=_answers_lost, run=_resolve, judge=_is_resolved),
    Operation(name="resolve what was lost", prepare=small, warm=_uncertain, outage=_requests_lost, run=_resolve, judge=_is_resolved),
    Operation(name="resolve what was overtaken", prepare=small, warm=_overtaken, outage=_requests_lost, run=_resolve, judge=_is_resolved),
    Operation(
        name="resolve what was overtaken with times and row ids",
        prepare=stamped,
        warm=_overtaken,
        outage=_requests_lost,
        run=_resolve,
        judge=_is_resolved,
    ),
    Operation(
        name="resolve a creation that was lost",
        prepare=nothing,
        warm=_uncertain_creation,
        outage=_requests_lost,
        run=_resolve_creation,
        judge=_is_resolved,
        once=True,
    ),
)
