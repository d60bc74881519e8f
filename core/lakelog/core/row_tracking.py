"""Row tracking: ids for rows that they keep over the versions of a table (PROTOCOL.md, "Row Tracking").

A file's first row has the file's ``baseRowId``, the next one the next; ``defaultRowCommitVersion`` is the version that added the file. The
highest id that was ever given stands in the metadata domain ``delta.rowTracking``. What a commit writes of this depends on what landed
before it, so an attempt is stamped anew for each version that it is tried at.

Where the protocol supports the feature every commit gives ids, whether or not ``delta.enableRowTracking`` says that all rows have one;
only ``delta.rowTrackingSuspended`` stops that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError, UnsupportedOperationError
from lakelog.core.paths import canonical_key
from lakelog.core.records import COMPACT_JSON, INT64_MAX, shown
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_properties import ROW_TRACKING

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
# In ``commitInfo.tags``: whether every row that was copied or changed kept its id.
PRESERVED = "delta.rowTracking.preserved"

_HIGH_WATER_MARK = "rowIdHighWaterMark"
# Of a table without a row: ids start at 0.
_NO_ID = -1

# A file's path and the unique id of its deletion vector, or "".
_Key = tuple[str, str]
# ``baseRowId`` and ``defaultRowCommitVersion``.
_Ids = tuple[int | None, int | None]
_UNKNOWN: _Ids = (None, None)


def is_supported(protocol: Protocol) -> bool:
    """Whether writers must know of row ids."""
    return FEATURE in (protocol.writer_features or ())


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether all rows of the table have ids that readers may ask for.

    Raises:
        InvalidTablePropertyError: the property's value is neither true nor false.
    """
    return is_supported(protocol) and ROW_TRACKING.of(metadata.configuration)


def was_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """The same of metadata that are being replaced, where a value that cannot be parsed promised nothing."""
    return is_supported(protocol) and ROW_TRACKING.or_default(metadata.configuration)


def gives_ids(protocol: Protocol, metadata: Metadata, table: str) -> bool:
    """Whether commits give ids to the files that they add.

    Args:
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: a property cannot be parsed, or row tracking is enabled and suspended at once.
    """
    if not is_supported(protocol):
        return False
    text = metadata.configuration.get(SUSPENDED, "false")
    if text.lower() not in ("true", "false"):
        raise InvalidTablePropertyError(f"Delta table {table}: the table property {SUSPENDED} is {shown(text)}, but must be true or false.")
    if text.lower() == "false":
        return True
    if ROW_TRACKING.of(metadata.configuration):
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table properties {ROW_TRACKING.key} and {SUSPENDED} are both true, but a table whose rows all have "
            f"ids must give them to new rows. Unset {SUSPENDED}."
        )
    return False


def high_water_mark(snapshot: Snapshot | None) -> int:
    """The highest row id that the table ever gave, -1 for none.

    Raises:
        CorruptLogError: the domain does not tell, or tells a number that no id can be.
    """
    if snapshot is None:
        return _NO_ID
    domain = snapshot.domains.get(DOMAIN)
    if domain is None:
        return _highest(snapshot)
    try:
        told = orjson.loads(domain.configuration)
        mark = told.get(_HIGH_WATER_MARK) if isinstance(told, dict) else None
    except orjson.JSONDecodeError:
        mark = None
    if type(mark) is not int or not _NO_ID <= mark <= INT64_MAX:
        raise CorruptLogError(
            f"Delta table {snapshot.root}: the metadata domain {DOMAIN} holds {shown(domain.configuration)}, which does not tell the "
            f"highest row id as {_HIGH_WATER_MARK}. Restore the commit that wrote it."
        )
    return mark


def backfill(snapshot: Snapshot) -> tuple[AddFile, ...]:
    """The table's files that lack a row id or a version, to be added once more with ``dataChange`` false; a commit stamps them.

    A commit that enables row tracking does this of itself for the files that are there when it lands (`lakelog.core.commit.placed`).
    """
    files = snapshot.files
    lacking = pc.or_(pc.is_null(files["baseRowId"]), pc.is_null(files["defaultRowCommitVersion"]))
    if not pc.any(lacking).as_py():
        return ()
    return tuple(snapshot.add_files(pc.indices_nonzero(lacking)))


def files_without_ids(snapshot: Snapshot, actions: Iterable[Action]) -> tuple[AddFile, ...]:
    """Those of `backfill` that the actions neither add nor remove: what a commit that enables row tracking adds again beside them."""
    lacking = backfill(snapshot)
    if not lacking:
        return ()
    named = {_canonical(action.key, snapshot.root) for action in actions if isinstance(action, AddFile | RemoveFile)}
    return tuple(add for add in lacking if _canonical(add.key, snapshot.root) not in named)


def with_row_ids(actions: Sequence[Action], *, version: int, before: Snapshot | None, table: str) -> tuple[Action, ...]:
    """The actions of a commit as they must stand at a version of a table that `gives_ids`.

    1. A file that is new gets ids above the high-water mark, and the version.
    2. One that is removed, or in the table already and added again, keeps what its newest ``add`` says.
    3. The domain tells the new high-water mark, where it moved.

    Args:
        actions: of the attempt, without ``commitInfo``; a ``baseRowId`` up to the high-water mark is one that a row had before and stays.
        version: where they are to land.
        before: the table just before that; None where they make the table.
        table: the table's root, for messages and paths.

    Raises:
        UnsupportedOperationError: the statistics of a file that needs ids do not have numRecords; names the file.
        CorruptLogError: the high-water mark cannot be read.
        ValueError: the actions hold the domain, which is written here.
    """
    if any(isinstance(action, DomainMetadata) and action.domain == DOMAIN for action in actions):
        raise ValueError(f"the metadata domain {DOMAIN} is written with the commit, not by its actions")
    known = _known(actions, before, table)
    start = mark = high_water_mark(before)
    stamped: list[Action] = []
    for action in actions:
        if not isinstance(action, AddFile | RemoveFile):
            stamped.append(action)
            continue
        base, since = action.base_row_id, action.default_row_commit_version
        if base is None or since is None:
            there = known.get(action.key, _UNKNOWN)
            base, since = there[0] if base is None else base, there[1] if since is None else since
        if isinstance(action, AddFile):
            if base is None or base > start:
                base = mark + 1
                mark += _num_records(action, table)
                if mark > INT64_MAX:
                    raise UnsupportedOperationError(
                        f"Delta table {table}: the rows of {action.path!r} would get ids beyond {INT64_MAX}, the last there is. "
                        "Make a new table."
                    )
            since = version if since is None else since
        stamped.append(_stamped(action, base, since))
    if mark != start:
        stamped.append(_domain(mark))
    return tuple(stamped)


def _stamped(action: AddFile | RemoveFile, base: int | None, since: int | None) -> AddFile | RemoveFile:
    if base == action.base_row_id and since == action.default_row_commit_version:
        return action
    return replace(action, base_row_id=base, default_row_commit_version=since)


def _domain(mark: int) -> DomainMetadata:
    return DomainMetadata(domain=DOMAIN, configuration=COMPACT_JSON.encode({_HIGH_WATER_MARK: mark}), removed=False)


def _known(actions: Iterable[Action], before: Snapshot | None, table: str) -> dict[_Key, _Ids]:
    """What the table says of the files that the actions remove or may add again, as far as the actions do not say it themselves."""
    if before is None:
        return {}
    removed = {action.path: action.key for action in actions if isinstance(action, RemoveFile)}
    wanted: dict[str, list[_Key]] = {}
    others: list[tuple[_Key, _Key]] = []
    for action in actions:
        if not isinstance(action, AddFile | RemoveFile) or not _lacks(action):
            continue
        if isinstance(action, RemoveFile) or not action.data_change:
            wanted.setdefault(_canonical(action.key, table), []).append(action.key)
        if isinstance(action, AddFile) and action.path in removed:
            # The same file with another deletion vector.
            others.append((action.key, removed[action.path]))
            wanted.setdefault(_canonical(removed[action.path], table), []).append(removed[action.path])
    if not wanted:
        return {}
    files = before.files.select(["key", "baseRowId", "defaultRowCommitVersion"])
    found = files.filter(pc.is_in(files["key"], value_set=pa.array(list(wanted), pa.string())))
    known = {key: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in found.to_pylist() for key in wanted[row["key"]]}
    for key, of in others:
        if of in known:
            known.setdefault(key, known[of])
    return known


def _lacks(action: AddFile | RemoveFile) -> bool:
    return action.base_row_id is None or action.default_row_commit_version is None


def _canonical(key: _Key, table: str) -> str:
    path, vector = key
    return f"{canonical_key(path, table)}|{vector}"


def _num_records(add: AddFile, table: str) -> int:
    """Rows in the file, those that a deletion vector marks among them."""
    count = _told_records(add.stats)
    if count is None:
        raise UnsupportedOperationError(
            f"Delta table {table}: row tracking gives each row an id, but the statistics of the file {add.path!r} do not have its number "
            "of rows (numRecords). Write the file again with statistics, or drop the feature rowTracking from the table."
        )
    return count


def _told_records(stats: str | None) -> int | None:
    if stats is None:
        return None
    try:
        told = orjson.loads(stats)
    except orjson.JSONDecodeError:
        return None
    count = told.get("numRecords") if isinstance(told, dict) else None
    return count if type(count) is int and count >= 0 else None


def _highest(snapshot: Snapshot) -> int:
    """What the files themselves tell where the domain is missing, as on a table whose feature was dropped and added again."""
    files = snapshot.files.select(["baseRowId", "stats"])
    if files["baseRowId"].null_count == files.num_rows:
        return _NO_ID
    numbered = files.filter(pc.is_valid(files["baseRowId"])).to_pylist()
    return max(_last_id(row["baseRowId"], row["stats"]) for row in numbered)


def _last_id(base: int, stats: str | None) -> int:
    count = _told_records(stats)
    return base if count is None else base + count - 1
