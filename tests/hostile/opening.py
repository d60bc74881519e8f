"""Opens a log in every way there is: whatever its bytes say, an answer or an error of our own tree comes out.

The Hypothesis tests and the fuzzer (`tests.hostile.fuzz_log`) share `open_everything`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping

from lakelog.core.actions import AddFile
from lakelog.core.commit import CommitAttempt
from lakelog.core.commit_info import parameter_texts, write
from lakelog.core.data_skipping import classify
from lakelog.core.errors import LakelogError
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.paths import absolute_uris, canonical_keys
from lakelog.core.predicates import Column, Comparison, IsNull, Literal, Or, Predicate, pc
from lakelog.core.records import INT64_MAX
from lakelog.core.schema import DecimalType, PrimitiveType, StructType, leaf_columns, nullable_schema, parse_schema, to_arrow, walk
from lakelog.core.snapshot import Snapshot
from lakelog.core.stats_bounds import read_row_counts
from lakelog.core.table_features import check_writable, feature_names
from lakelog.core.table_properties import TableProperties
from lakelog.storage.environment import Environment
from lakelog.storage.table_log import TableLog
from lakelog.storage.testing.memory import MemoryLogStore

ROOT = "/tables/t"
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 400 * 86_400_000

Log = Mapping[str, bytes]
"""The files of a ``_delta_log`` by name."""


def store_of(log: Log, root: str = ROOT) -> MemoryLogStore:
    """A store that holds the log; files are a second apart, in the order of their names."""
    clock = itertools.count(NOW_MS, 1000)
    store = MemoryLogStore(lambda: next(clock))
    for name in sorted(log):
        store.put(f"{root}/_delta_log/{name}", log[name])
    return store


def environment(now_ms: int = NOW_MS) -> Environment:
    """A clock that stands still."""
    ids = itertools.count(1)
    return Environment(
        now_ms=lambda: now_ms,
        sleep=lambda _: None,
        random=lambda: 0.5,
        new_uuid=lambda: f"00000000-0000-0000-0000-{next(ids):012d}",
        parallel=map,
    )


def open_log(log: Log, root: str = ROOT) -> Snapshot:
    """The newest snapshot of a log, by one reader."""
    return TableLog(root, store_of(log, root), environment()).snapshot()


def open_everything(log: Log, root: str = ROOT, *, ways: Collection[str] | None = None) -> dict[str, LakelogError | None]:
    """What became of every way to open the log: None, or the error of our tree. Any other error comes out.

    Args:
        log: the files.
        root: where the table is said to be.
        ways: some of `WAYS`, all of them by default.
    """
    return {name: _outcome(way, log, root) for name, way in _WAYS.items() if ways is None or name in ways}


def _outcome(way: Callable[[Log, str], None], log: Log, root: str) -> LakelogError | None:
    try:
        way(log, root)
    except LakelogError as error:
        refused = error
    else:
        return None
    # A message that cannot be shown is as bad as none.
    assert len(str(refused).encode()) < 20_000
    return refused


def _newest(log: Log, root: str) -> None:
    snapshot = open_log(log, root)
    for look in _LOOKS:
        _look_at(look, snapshot)


def _first(log: Log, root: str) -> None:
    TableLog(root, store_of(log, root), environment()).snapshot(0)


def _exists(log: Log, root: str) -> None:
    TableLog(root, store_of(log, root), environment()).exists()


def _history(log: Log, root: str) -> None:
    for entry in TableLog(root, store_of(log, root), environment()).history():
        if entry.commit_info is not None:
            parameter_texts(entry.commit_info.operation_parameters or {})
            parameter_texts(entry.commit_info.operation_metrics or {})


def _by_time(log: Log, root: str) -> None:
    table = TableLog(root, store_of(log, root), environment())
    for time_ms in (-INT64_MAX, 0, NOW_MS + 1500, INT64_MAX):
        _outcome(lambda *_: table.version_at_timestamp(time_ms) and None, log, root)  # noqa: B023


def _commit(log: Log, root: str) -> None:
    store = store_of(log, root)
    table = TableLog(root, store, environment())
    before = table.snapshot()
    landed = table.commit(_append(before.version))
    assert landed.version == before.version + 1
    after = TableLog(root, store, environment()).snapshot()
    assert after.version == landed.version
    assert {*after.files["key"].to_pylist()} == {*before.files["key"].to_pylist(), "ours|"}


def _commit_after(log: Log, root: str) -> None:
    """An append that has read the version before, so that the newest commit is a winner to be checked."""
    table = TableLog(root, store_of(log, root), environment())
    table.commit(_append(max(0, table.snapshot().version - 1)))


def _checkpoint(log: Log, root: str) -> None:
    store = store_of(log, root)
    table = TableLog(root, store, environment())
    before = table.snapshot()
    table.checkpoint()
    after = TableLog(root, store, environment()).snapshot()
    assert after.version == before.version
    assert sorted(after.files["key"].to_pylist()) == sorted(before.files["key"].to_pylist())
    assert (after.metadata.id, after.protocol.min_reader_version) == (before.metadata.id, before.protocol.min_reader_version)


def _clean_up(log: Log, root: str) -> None:
    store = store_of(log, root)
    table = TableLog(root, store, environment(LATER_MS))
    before = table.snapshot()
    deleted = table.clean_up()
    assert set(deleted) <= set(log)
    after = TableLog(root, store, environment(LATER_MS)).snapshot()
    assert (after.version, after.files["key"].to_pylist()) == (before.version, before.files["key"].to_pylist())


def _refresh(log: Log, root: str) -> None:
    """The newest commit arrives after the rest was read."""
    newest = max((name for name in log if name.endswith(".json")), default=None)
    store = store_of({name: data for name, data in log.items() if name != newest}, root)
    table = TableLog(root, store, environment())
    _outcome(lambda *_: table.snapshot() and None, log, root)
    if newest is not None:
        store.put(f"{root}/_delta_log/{newest}", log[newest])
    table.snapshot()


_WAYS: Mapping[str, Callable[[Log, str], None]] = {
    "newest": _newest,
    "first": _first,
    "exists": _exists,
    "history": _history,
    "by time": _by_time,
    "commit": _commit,
    "commit after": _commit_after,
    "checkpoint": _checkpoint,
    "clean up": _clean_up,
    "refresh": _refresh,
}
WAYS = tuple(_WAYS)


def _append(read_version: int) -> CommitAttempt:
    add = AddFile(path="ours", partition_values={}, size=1, modification_time=1, data_change=True, stats='{"numRecords":1}')
    return CommitAttempt(read_version=read_version, actions=(add,), operation=write("append"), engine_info="lakelog/test")


# --- What is done with a snapshot -------------------------------------------------------------------------------------------------


def _look_at(look: Callable[[Snapshot], object], snapshot: Snapshot) -> None:
    try:
        look(snapshot)
    except LakelogError as error:
        str(error).encode()


def _actions(snapshot: Snapshot) -> None:
    for action in (*snapshot.add_files(), *snapshot.remove_actions(), snapshot.metadata, snapshot.protocol):
        assert type(action).from_json(action.to_json()) == action
        repr(action)


def _totals(snapshot: Snapshot) -> None:
    sizes = snapshot.files["size"].to_pylist()
    assert (snapshot.num_files, snapshot.size_in_bytes) == (len(sizes), sum(sizes))
    counts = read_row_counts(snapshot.files["stats"].combine_chunks()).to_pylist()
    assert all(count is None or count >= 0 for count in counts)


def _uris(snapshot: Snapshot) -> None:
    paths = snapshot.files["path"]
    keys = canonical_keys(paths, snapshot.root).to_pylist()
    for key, uri in zip(keys, absolute_uris(paths, snapshot.root, allow_outside=True).to_pylist(), strict=True):
        assert key.split("/")[0] not in ("", "..")
        assert "\0" not in uri
        assert not {"", ".", ".."} & set(uri.split("/")[3:])
    absolute_uris(paths, snapshot.root)


def _schema(snapshot: Snapshot) -> None:
    schema = snapshot.schema
    assert parse_schema(schema.to_json()) == schema
    assert len(list(walk(schema))) >= len(schema.fields)
    assert str(schema) == str(nullable_schema(schema))
    repr(schema)
    to_arrow(schema)


def _features(snapshot: Snapshot) -> None:
    feature_names(snapshot.protocol)
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root)


def _properties(snapshot: Snapshot) -> None:
    for name, member in vars(TableProperties).items():
        if isinstance(member, property):
            _look_at(lambda s: getattr(s.properties, name), snapshot)  # noqa: B023


def _partitions(snapshot: Snapshot) -> None:
    maps = snapshot.files["partitionValues"]
    for name in snapshot.partition_columns:
        column_type = snapshot.schema.find((name,)).type
        _look_at(lambda _: parse_partition_column(pc.map_lookup(maps, name, "first"), column_type), snapshot)  # noqa: B023


def _plan(snapshot: Snapshot) -> None:
    predicates = list(_predicates(snapshot.schema))
    for predicate in (*predicates, Or(tuple(predicates))):
        _look_at(
            lambda s: classify(s.files, predicate, schema=s.schema, partition_columns=s.partition_columns),  # noqa: B023
            snapshot,
        )


def _predicates(schema: StructType) -> list[Predicate]:
    found: list[Predicate] = []
    for path, leaf in itertools.islice(leaf_columns(schema), 40):
        column = Column(path)
        found.append(IsNull(column))
        value = {"string": "m", "boolean": True, "binary": b"m", "float": 1.5, "double": 1.5}.get(str(leaf), 3)
        if isinstance(leaf, DecimalType):
            value = 3
        if isinstance(leaf, DecimalType | PrimitiveType):
            kind = PrimitiveType("integer") if isinstance(leaf, DecimalType) else leaf
            found.append(Comparison("<", column, Literal(value, kind)))
    return found


_LOOKS: tuple[Callable[[Snapshot], object], ...] = (_actions, _totals, _uris, _schema, _features, _properties, _partitions, _plan)
