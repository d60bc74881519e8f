"""Replay: a fold of commits and checkpoints into columnar state (PROTOCOL.md, "Action Reconciliation").

The newest reference to a logical file wins, the newest ``protocol`` and ``metaData``, the newest ``txn`` per
application and ``domainMetadata`` per domain. Within one commit a later line counts as newer. Many commits are folded
at once: their file actions gather in chunks of Arrow columns and meet the base state in one anti-join.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction, parse_commit, serialize_commit
from lakelog.core.errors import CorruptLogError, MissingCommitError
from lakelog.core.file_columns import (
    FILES_SCHEMA,
    ROWS_PER_CHUNK,
    TOMBSTONES_SCHEMA,
    JsonRow,
    MisfitError,
    rows_to_files,
    rows_to_tombstones,
)
from lakelog.core.records import INT64_MAX, check_json

__all__ = ["FILES_SCHEMA", "TOMBSTONES_SCHEMA", "Fold", "LogState"]


# Tables grow by a chunk per refresh; past this many, or with so few rows, kernels lose more to chunk overhead than a copy costs.
_MAX_CHUNKS = 64
_FEW_ROWS = 4096
# Up to so many rows, all told, a dictionary of their keys costs less than the calls of the kernels.
_ROWS_AT_HAND = 256
_FEW_CHUNKS = 8

_NO_FILES = pa.Table.from_batches([], schema=FILES_SCHEMA)
_NO_TOMBSTONES = pa.Table.from_batches([], schema=TOMBSTONES_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """What the log says up to and including a version. Immutable; `Fold` makes the next one.

    Attributes:
        version: the newest version folded in, -1 for the empty state.
        files: live files, `FILES_SCHEMA`.
        tombstones: removed files, `TOMBSTONES_SCHEMA`.
        transactions: newest ``txn`` per application id.
        domains: live metadata domains by name.
        in_commit_timestamp: ``commitInfo.inCommitTimestamp`` of the newest commit in milliseconds, None where it has none.
    """

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: pa.Table = field(default_factory=lambda: _NO_FILES)
    tombstones: pa.Table = field(default_factory=lambda: _NO_TOMBSTONES)
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    in_commit_timestamp: int | None = None

    def without_expired(self, *, now_ms: int, retention_ms: int) -> LogState:
        """The state without tombstones whose ``deletionTimestamp`` plus retention lies before now; one without a time has expired."""
        if not self.tombstones.num_rows:
            return self
        if self.tombstones.num_rows <= _ROWS_AT_HAND:
            times = self.tombstones["deletionTimestamp"].to_pylist()
            if all(time is not None and time >= now_ms - retention_ms for time in times):
                return self
        # A row whose time is null does not pass the filter.
        cutoff = pa.scalar(now_ms - retention_ms, pa.int64())
        unexpired = pc.greater_equal(self.tombstones["deletionTimestamp"], cutoff)
        if unexpired.null_count == 0 and pc.all(unexpired).as_py():
            return self
        return replace(self, tombstones=self.tombstones.filter(unexpired))


class Fold:
    """Gathers commits in ascending order on top of a base state; `finish` gives the new state.

    Args:
        base: the state to start from.
        root: the table's root, unencoded; file keys are canonical in relation to it, and messages name it.
    """

    def __init__(self, base: LogState, *, root: str) -> None:
        self._base = base
        self._root = root
        self._version = base.version
        self._protocol = base.protocol
        self._metadata = base.metadata
        self._transactions = dict(base.transactions)
        self._domains = dict(base.domains)
        self._in_commit_timestamp = base.in_commit_timestamp
        self._files = _Gatherer(FILES_SCHEMA)
        self._tombstones = _Gatherer(TOMBSTONES_SCHEMA)
        self._pending = _Pending()
        self._sequence = 0

    def add_commit(self, version: int, data: bytes, source: str) -> None:
        """Fold a commit file in.

        Args:
            version: must be the one after the newest so far.
            data: the file's bytes.
            source: the file's path, for messages.

        Raises:
            MissingCommitError: ``version`` is not the next one.
            CorruptLogError: a line is not a valid action; names the source and the line.
        """
        if version != self._version + 1:
            raise MissingCommitError(
                f"Delta table {self._root}: commit {self._version + 1} is missing from the log (the next one is {version}). "
                "Restore the file, or read an older version."
            )
        if not data.strip():
            raise CorruptLogError(f"{source} is empty: a writer was cut off or the file was torn. Restore it, or read an older version.")
        self._in_commit_timestamp = None
        pending = self._pending
        pending.sources.append((data, source))
        for line in io.BytesIO(data):
            if line.isspace():
                continue
            self._sequence += 1
            try:
                self._add_line(line, pending)
            except (orjson.JSONDecodeError, CorruptLogError, MisfitError) as error:
                self._explain(str(error))
            if len(pending.adds) + len(pending.removes) >= ROWS_PER_CHUNK:
                self._flush()
                pending = self._pending
                pending.sources.append((data, source))
        self._version = version

    def add_actions(self, version: int, actions: Iterable[Action]) -> None:
        """Fold the actions of one commit in, as `add_commit` does with its bytes."""
        self.add_commit(version, serialize_commit(actions), f"version {version}")

    def finish(self) -> LogState:
        """The state after everything added so far.

        Raises:
            CorruptLogError: a file action has a field that is missing or of the wrong type; names the source and the line.
        """
        self._flush()
        files, tombstones = self._base.files, self._base.tombstones
        gathered = self._files.num_rows + self._tombstones.num_rows
        if gathered and gathered + files.num_rows + tombstones.num_rows <= _ROWS_AT_HAND:
            adds, removes = self._files.rows(), self._tombstones.rows()
            seen = adds.keys() | removes.keys()
            files = _replaced(files, seen, self._files, [at for key, (at, when) in adds.items() if when > removes.get(key, _NEVER)[1]])
            newer = [at for key, (at, when) in removes.items() if when > adds.get(key, _NEVER)[1]]
            tombstones = _replaced(tombstones, seen, self._tombstones, newer)
        elif gathered:
            added, removed = _newest(self._files.table()), _newest(self._tombstones.table())
            keys = pa.chunked_array([*added["key"].chunks, *removed["key"].chunks], type=pa.string())
            files = _append(_without(files, keys), _newer(added, removed), FILES_SCHEMA)
            tombstones = _append(_without(tombstones, keys), _newer(removed, added), TOMBSTONES_SCHEMA)
        return LogState(
            version=self._version,
            protocol=self._protocol,
            metadata=self._metadata,
            files=files,
            tombstones=tombstones,
            transactions=self._transactions,
            domains=self._domains,
            in_commit_timestamp=self._in_commit_timestamp,
        )

    def _add_line(self, line: bytes, pending: _Pending) -> None:
        action = orjson.loads(line)
        if not isinstance(action, dict) or len(action) != 1:
            raise MisfitError("an action must be an object with one key")
        check_json(line, action)
        ((kind, value),) = action.items()
        if kind == "add":
            pending.adds.append(value)
            pending.add_sequences.append(self._sequence)
        elif kind == "remove":
            pending.removes.append(value)
            pending.remove_sequences.append(self._sequence)
        elif kind == "protocol":
            self._protocol = Protocol.from_json(value)
        elif kind == "metaData":
            self._metadata = Metadata.from_json(value)
        elif kind == "txn":
            transaction = SetTransaction.from_json(value)
            self._transactions[transaction.app_id] = transaction
        elif kind == "domainMetadata":
            domain = DomainMetadata.from_json(value)
            if domain.removed:
                self._domains.pop(domain.domain, None)
            else:
                self._domains[domain.domain] = domain
        elif kind == "commitInfo" and isinstance(value, dict):
            timestamp = value.get("inCommitTimestamp")
            self._in_commit_timestamp = timestamp if type(timestamp) is int and timestamp <= INT64_MAX else None

    def _flush(self) -> None:
        pending, self._pending = self._pending, _Pending()
        try:
            if pending.adds:
                self._files.append(rows_to_files(pending.adds, self._root), pending.add_sequences)
            if pending.removes:
                self._tombstones.append(rows_to_tombstones(pending.removes, self._root), pending.remove_sequences)
        except MisfitError as error:
            self._pending = pending
            self._explain(str(error))

    def _explain(self, reason: str) -> NoReturn:
        """Raise the error that names file and line: the codec of single actions is slower and says more."""
        remedy = "The file is damaged: restore it, or read a version before it."
        source = self._pending.sources[-1][1]
        for data, name in self._pending.sources:
            try:
                parse_commit(data, name)
            except CorruptLogError as error:
                raise CorruptLogError(f"Delta table {self._root}: {error}. {remedy}") from error
        raise CorruptLogError(f"Delta table {self._root}: {source}: {reason}. {remedy}")


class _Pending:
    """Rows that are not columns yet, each with its place in the order of all lines, and the commits they came from."""

    __slots__ = ("add_sequences", "adds", "remove_sequences", "removes", "sources")

    def __init__(self) -> None:
        self.adds: list[JsonRow] = []
        self.add_sequences: list[int] = []
        self.removes: list[JsonRow] = []
        self.remove_sequences: list[int] = []
        self.sources: list[tuple[bytes, str]] = []


class _Gatherer:
    """Batches of file actions, each row with its ``sequence``."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []
        self.num_rows = 0
        self._sequences: list[list[int]] = []

    def append(self, batch: pa.RecordBatch, sequences: list[int]) -> None:
        self.batches.append(batch)
        self.num_rows += batch.num_rows
        self._sequences.append(sequences)

    def rows(self) -> dict[str, tuple[int, int]]:
        """The newest row of each key: its place among all rows, and its sequence."""
        keys = (cast(str, key) for batch in self.batches for key in batch.column("key").to_pylist())
        sequences = (sequence for some in self._sequences for sequence in some)
        return {key: (at, sequence) for at, (key, sequence) in enumerate(zip(keys, sequences, strict=True))}

    def table(self) -> pa.Table:
        schema = self.schema.append(pa.field("sequence", pa.int64()))
        batches = (
            pa.RecordBatch.from_arrays([*batch.columns, pa.array(sequences, pa.int64())], schema=schema)
            for batch, sequences in zip(self.batches, self._sequences, strict=True)
        )
        return pa.Table.from_batches(batches, schema=schema)


# Where no row is: before all sequences, which start at 1.
_NEVER = (-1, 0)


def _replaced(base: pa.Table, seen: Set[str], gathered: _Gatherer, chosen: Iterable[int]) -> pa.Table:
    """The rows of the base whose keys were not seen, then the chosen ones in their order."""
    kept = [at for at, key in enumerate(base["key"].to_pylist()) if key not in seen]
    runs = [*_runs(base.to_batches(), kept), *_runs(gathered.batches, sorted(chosen))]
    if len(kept) == base.num_rows == sum(run.num_rows for run in runs):
        return base
    # Plans go over live files again and again, but hardly anything over tombstones.
    whole = len(runs) > (1 if gathered.schema is FILES_SCHEMA else _FEW_CHUNKS)
    table = pa.Table.from_batches(runs, schema=gathered.schema)
    return table.combine_chunks() if whole else table


def _runs(batches: Iterable[pa.RecordBatch], places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Rows by their ascending places as slices, which a kernel's selection from every column would cost more than."""
    start, position = 0, 0
    for batch in batches:
        end = start + batch.num_rows
        while position < len(places) and places[position] < end:
            first = position
            while position < len(places) and places[position] < end and places[position] - places[first] == position - first:
                position += 1
            yield batch.slice(places[first] - start, position - first)
        start = end


def _newest(rows: pa.Table) -> pa.Table:
    """The row with the highest sequence per key."""
    if rows.num_rows < 2:
        return rows
    if pc.count_distinct(rows["key"]).as_py() == rows.num_rows:
        return rows
    newest = rows.select(["key", "sequence"]).group_by("key").aggregate([("sequence", "max")])
    return rows.filter(pc.is_in(rows["sequence"], value_set=newest["sequence_max"]))


def _newer(rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows that no row of ``others`` with the same key comes after."""
    if not rows.num_rows or not others.num_rows:
        return rows
    found = pc.index_in(rows["key"], value_set=others["key"])
    if found.null_count == len(found):
        return rows
    # Any: the stubs do not follow take through a chunked array. Sequences start at 1.
    latest: Any = pc.take(others["sequence"], found)
    return rows.filter(pc.greater(rows["sequence"], latest.fill_null(0)))


def _without(base: pa.Table, keys: pa.ChunkedArray[pa.StringScalar]) -> pa.Table:
    if not base.num_rows:
        return base
    gone = pc.is_in(base["key"], value_set=keys)
    return base.filter(pc.invert(gone)) if pc.any(gone).as_py() else base


def _append(base: pa.Table, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if not rows.num_rows:
        return base
    rows = rows.select(schema.names)
    whole = pa.concat_tables([base, rows]) if base.num_rows else rows
    many = whole.column(0).num_chunks
    return whole.combine_chunks() if many > _MAX_CHUNKS or (many > 1 and whole.num_rows <= _FEW_ROWS) else whole
