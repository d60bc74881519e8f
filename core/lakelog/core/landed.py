"""What a commit that landed says to the attempts that come after it.

File actions become Arrow columns chunk by chunk, so that a commit of a million files costs their text and not their objects.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction, UnknownAction, parse_commit, parse_line
from lakelog.core.errors import CorruptLogError
from lakelog.core.file_columns import (
    FILES_SCHEMA,
    ROWS_PER_CHUNK,
    TOMBSTONES_SCHEMA,
    JsonRow,
    MisfitError,
    rows_to_files,
    rows_to_tombstones,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandedCommit:
    """A commit of another writer.

    Attributes:
        version: where it landed.
        txn_id: its ``commitInfo.txnId``.
        operation: its ``commitInfo.operation``.
        engine_info: its ``commitInfo.engineInfo``.
        read_version: its ``commitInfo.readVersion``; None where it says nothing.
        is_blind_append: what its ``commitInfo`` says of itself; False where it says nothing, or removes files all the same.
        protocol: its ``protocol`` action.
        metadata: its ``metaData`` action.
        app_ids: applications whose ``txn`` it wrote.
        domains: metadata domains that it wrote or removed.
        num_added: how many ``add`` actions it holds.
        num_removed: how many ``remove`` actions.
        added: its ``add`` actions, `FILES_SCHEMA` and a last column ``dataChange``.
        removed: its ``remove`` actions, `TOMBSTONES_SCHEMA`.
    """

    version: int
    txn_id: str | None
    operation: str | None
    engine_info: str | None
    read_version: int | None
    is_blind_append: bool
    protocol: Protocol | None
    metadata: Metadata | None
    app_ids: frozenset[str]
    domains: frozenset[str]
    num_added: int
    num_removed: int
    added: pa.Table
    removed: pa.Table

    @property
    def changes_rows(self) -> bool:
        """Whether it adds or removes a file for the sake of its rows; one that says nothing of a file does."""
        # Any: the stubs do not know a table's column by its type.
        told: list[Any] = [self.added["dataChange"], self.removed["dataChange"]]
        return any(pc.any(flags.fill_null(True)).as_py() for flags in told)

    @property
    def may_restate(self) -> bool:
        """It adds files for no change of data and removes none: files that were there before, of which it says something new."""
        flags: Any = self.added["dataChange"]
        # Where the columns were not asked for, nobody asks about files.
        return not self.num_removed and self.num_added > 0 and not pc.all(flags, min_count=0).as_py()

    def describe(self) -> str:
        """``version 7 (WRITE by lakelog/0.1: 1 file added, 0 removed)``."""
        operation, engine = self.operation or "an unnamed operation", self.engine_info or "an unnamed engine"
        files = f"{self.num_added} file{'' if self.num_added == 1 else 's'} added, {self.num_removed} removed"
        return f"version {self.version} ({operation} by {engine}: {files})"


ADDED_SCHEMA = FILES_SCHEMA.append(pa.field("dataChange", pa.bool_()))


_NOTHING_ADDED, _NOTHING_REMOVED = pa.Table.from_batches([], ADDED_SCHEMA), pa.Table.from_batches([], TOMBSTONES_SCHEMA)


def landed_commit(version: int, data: bytes, *, source: str, root: str, columns: bool = True) -> LandedCommit:
    """Parse a commit file.

    Args:
        version: from its name.
        data: its bytes.
        source: its path, for messages.
        root: the table's root, unencoded.
        columns: whether `added` and `removed` are wanted, as by every attempt that depends on files. Without them both are empty, and what
            is wrong inside a file action is left for replay to find.

    Raises:
        CorruptLogError: a line is not a valid action; names the source.
    """
    info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_ids: set[str] = set()
    domains: set[str] = set()
    files = _Files(root)
    counts = {"add": 0, "remove": 0}
    if not data.strip():
        raise CorruptLogError(f"{source} is empty: a writer was cut off or the file was torn. Restore it.")
    try:
        for line in io.BytesIO(data):
            if line.isspace():
                continue
            action = orjson.loads(line)
            if not isinstance(action, dict) or len(action) != 1:
                raise CorruptLogError("an action must be an object with one key")
            ((kind, value),) = action.items()
            if kind in counts:
                counts[kind] += 1
                if columns:
                    files.append(kind, value)
            elif kind == "commitInfo" and isinstance(value, dict) and info is None:
                info = CommitInfo.from_json(value)
            elif kind == "protocol":
                protocol = Protocol.from_json(value)
            elif kind == "metaData":
                metadata = Metadata.from_json(value)
            elif kind == "txn":
                app_ids.add(SetTransaction.from_json(value).app_id)
            elif kind == "domainMetadata":
                domains.add(DomainMetadata.from_json(value).domain)
        added, removed = files.tables() if columns else (_NOTHING_ADDED, _NOTHING_REMOVED)
    except MisfitError as error:
        # The codec of single actions says which line and which field.
        parse_commit(data, source)
        raise CorruptLogError(f"{source} is damaged: {error}. Restore the file.") from error
    except (orjson.JSONDecodeError, CorruptLogError) as error:
        raise CorruptLogError(f"{source} is damaged: {error}. Restore the file.") from error
    info = info or CommitInfo()
    return LandedCommit(
        version=version,
        txn_id=info.txn_id,
        operation=info.operation,
        engine_info=info.engine_info,
        read_version=info.read_version,
        is_blind_append=bool(info.is_blind_append) and not counts["remove"],
        protocol=protocol,
        metadata=metadata,
        app_ids=frozenset(app_ids),
        domains=frozenset(domains),
        num_added=counts["add"],
        num_removed=counts["remove"],
        added=added,
        removed=removed,
    )


def commit_info_of(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of a commit file, None where it has none or is damaged. Only the lines that may hold it are parsed."""
    for line in io.BytesIO(data):
        if b'"commitInfo"' not in line:
            continue
        try:
            action = parse_line(line)
        except CorruptLogError:
            continue
        if isinstance(action, CommitInfo):
            return action
    return None


def is_commit(data: bytes) -> bool:
    """Whether the bytes are lines of actions, of which at least one is known. What a proxy, say, answers in a store's stead is none."""
    try:
        return any(not isinstance(action, UnknownAction) for action in parse_commit(data, ""))
    except CorruptLogError:
        return False


class _Files:
    def __init__(self, root: str) -> None:
        self._root = root
        self._rows: dict[str, list[JsonRow]] = {"add": [], "remove": []}
        self._batches: dict[str, list[pa.RecordBatch]] = {"add": [], "remove": []}

    def append(self, kind: str, value: object) -> None:
        rows = self._rows[kind]
        rows.append(cast(JsonRow, value))
        if len(rows) >= ROWS_PER_CHUNK:
            self._flush(kind)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        for kind in self._rows:
            self._flush(kind)
        added = pa.Table.from_batches(self._batches["add"], schema=ADDED_SCHEMA)
        return added, pa.Table.from_batches(self._batches["remove"], schema=TOMBSTONES_SCHEMA)

    def _flush(self, kind: str) -> None:
        rows = self._rows[kind]
        if not rows:
            return
        if kind == "add":
            batch = rows_to_files(rows, self._root)
            # Where a writer leaves it out, rows may have been added.
            changes: pa.Array[Any] = pa.array([row.get("dataChange") is not False for row in rows], pa.bool_())
            batch = pa.RecordBatch.from_arrays([*batch.columns, changes], schema=ADDED_SCHEMA)
        else:
            batch = rows_to_tombstones(rows, self._root)
        self._batches[kind].append(batch)
        self._rows[kind] = []
