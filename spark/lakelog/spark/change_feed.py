"""Reads of the change data feed: which versions are meant, and the scans that give their rows.

The files that hold the changes of a range become two snapshots that no log has, one of change data files and one of files whose rows count
whole; Spark scans them like any other. What a plan knows of them is an id that says how they were made, so that they can be let go of and
made again: the same commits give the same files in the same order.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from pyspark.sql import SparkSession

from lakelog.core.actions import Metadata
from lakelog.core.change_data import ChangeFold, Changes, as_snapshots, change_schema, check_recorded, check_schemas
from lakelog.core.column_mapping import MappingMode
from lakelog.core.errors import InvalidOptionError, MetadataChangedException, VersionNotFoundError
from lakelog.core.field_metadata import user_schema
from lakelog.core.log_files import LOG_FOLDER, commit_name
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_properties import COLUMN_MAPPING_MODE
from lakelog.spark import reading
from lakelog.spark.confs import PREFIXES, parse_flag, session_conf, session_flag
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.engine import Engine
from lakelog.spark.reading import Travel

OUT_OF_RANGE_CONF = "changeDataFeed.timestampOutOfRange.enabled"
SCHEMA_MODE_CONF = "changeDataFeed.defaultSchemaModeForColumnMappingTable"

_SWITCHES = {"readchangefeed": "readChangeFeed", "readchangedata": "readChangeData"}
_VERSION = re.compile(r"[0-9]{1,18}")
_END_VERSION, _SCHEMA_MODES = "endversion", ("endversion", "latest", "legacy")
_ID = "changes:"
_KEPT = 64


def is_asked_for(options: Mapping[str, str], path: str) -> bool:
    """Whether reader options, names in lower case, ask for the changes of a table and not for its rows.

    Raises:
        InvalidOptionError: the value is neither true nor false.
    """
    flags = [parse_flag(options[name], f"Delta table {path}: the option {shown}") for name, shown in _SWITCHES.items() if name in options]
    return any(flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One end of a range, by version or by time; both are None where it was left out.

    Attributes:
        version: included in the range.
        timestamp_ms: milliseconds since the epoch; a commit of this time is included.
    """

    version: int | None = None
    timestamp_ms: int | None = None


def boundaries(options: Mapping[str, str], path: str, zone: str) -> tuple[Boundary, Boundary]:
    """Start and end of the range that reader options ask for.

    Args:
        options: names in lower case.
        path: the table, for messages.
        zone: the session's time zone.

    Raises:
        InvalidOptionError: no start, two of one end, a version or time that is none, or a version of the table beside them.
    """
    start, end = (_boundary(options, side, path, zone) for side in ("starting", "ending"))
    if start == Boundary():
        raise InvalidOptionError(
            f"Delta table {path}: reading changes needs the option startingVersion or startingTimestamp; startingVersion 0 reads from the "
            "table's beginning."
        )
    if "versionasof" in options or "timestampasof" in options:
        raise InvalidOptionError(
            f"Delta table {path}: changes cannot be read as of a version; leave out versionAsOf and timestampAsOf and give "
            "endingVersion or endingTimestamp instead."
        )
    return start, end


def _boundary(options: Mapping[str, str], side: str, path: str, zone: str) -> Boundary:
    version, timestamp = (options.get(f"{side}{kind}") for kind in ("version", "timestamp"))
    if version is not None and timestamp is not None:
        raise InvalidOptionError(f"Delta table {path}: {side}Version and {side}Timestamp are both given; give one of them.")
    if timestamp is not None:
        return Boundary(timestamp_ms=reading.parse_timestamp(timestamp, zone, path))
    if version is None:
        return Boundary()
    if _VERSION.fullmatch(version.strip()) is None:
        raise InvalidOptionError(f"Delta table {path}: {side}Version must be a version number, 0 or more, not {version!r}.")
    return Boundary(version=int(version))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """What makes a feed: a table's root, the first and the last version, and the version whose schema is read with."""

    root: str
    first: int
    last: int
    read_version: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Feed:
    """The two snapshots of a range, ids included."""

    cdc: HeldSnapshot
    whole: HeldSnapshot


class ChangeFeeds:
    """The feeds that plans refer to, held or made again.

    Args:
        context: table logs and sessions.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._feeds: OrderedDict[tuple[_Range, str], _Feed] = OrderedDict()
        self._lock = threading.Lock()

    def described(self, spark: SparkSession, path: str, options: Mapping[str, str]) -> str:
        """What the JVM needs for a read of changes, as JSON: the schema, and a scan per kind of file.

        The range is settled here: commits that land later are not part of it, whenever the frame is computed.

        Args:
            path: as the user gave it.
            options: reader options, names in lower case.

        Raises:
            InvalidOptionError: the options make no range.
            NotADeltaTableError: there is no table at the path.
            VersionNotFoundError: the range starts after the latest version, or a commit of it is not in the log any more.
            ChangeDataNotRecordedError: a version of the range did not record its changes.
            SchemaMismatchError: the schema changed inside the range in a way that one schema cannot show.
        """
        zone = self._context.zone(spark)
        start, end = boundaries(options, path, zone)
        path, travel = reading.travel_of(path, {}, zone)
        if travel != Travel():
            raise InvalidOptionError(
                f"Delta table {path}: changes cannot be read as of a version; leave out the path's suffix and give endingVersion or "
                "endingTimestamp instead."
            )
        root = self._context.root(spark, path)
        newest = self._context.logs.newest(root).snapshot
        span = self._span(spark, newest, start, end)
        if span is None:
            return orjson.dumps({"scans": [], "schema": user_schema(change_schema(newest.schema, table=root)).to_json()}).decode()
        feed = self._read(spark, newest, *span)
        engine = self._context.engine(spark, root).engine
        scans = [self._scan(held, engine) for held in (feed.cdc, feed.whole) if held.snapshot.num_files] or [self._scan(feed.whole, engine)]
        schema = orjson.loads(scans[0]["relation"])["schema"]
        return orjson.dumps({"scans": scans, "schema": schema}).decode()

    def find(self, snapshot_id: str) -> HeldSnapshot | None:
        """The snapshot behind an id that `described` gave out, made again where it is not held; None for ids of other snapshots.

        Raises:
            MetadataChangedException: the log does not say any more what it said when the id was given out.
            VersionNotFoundError: a commit of the range is not in the log any more.
        """
        if not snapshot_id.startswith(_ID):
            return None
        root, first, last, read_version, digest, kind = orjson.loads(snapshot_id.removeprefix(_ID))
        asked = _Range(root=root, first=first, last=last, read_version=read_version)
        feed = self._held(asked, digest)
        if feed is None:
            read = self._context.logs.pinned(root, read_version).snapshot
            feed = self._hold(asked, self._fold(read, first, last), read)
            if feed.cdc.id.rpartition(",")[0] != snapshot_id.rpartition(",")[0]:
                raise MetadataChangedException(
                    f"Delta table {root}: the log of versions {first} to {last} is not what it was when this DataFrame was made: the table "
                    "was made anew at its path, or its log was changed by hand. Read the changes again."
                )
        return feed.cdc if kind == "cdc" else feed.whole

    def all_held(self) -> list[HeldSnapshot]:
        """What is held."""
        with self._lock:
            return [held for feed in self._feeds.values() for held in (feed.cdc, feed.whole)]

    def _span(self, spark: SparkSession, newest: Snapshot, start: Boundary, end: Boundary) -> tuple[int, int] | None:
        """First and last version; None for a range without commits."""
        root, latest = newest.root, newest.version
        lenient = session_flag(spark, root, OUT_OF_RANGE_CONF)
        log = self._context.logs.log(root)
        first = start.version if start.timestamp_ms is None else log.first_version_since(start.timestamp_ms)
        if first is None or first > latest:
            if lenient:
                return None
            what = f"version {first}" if first is not None else "a time after its latest commit"
            raise VersionNotFoundError(
                f"Delta table {root}: the changes are asked for from {what} on, and the latest version is {latest}. Start at that "
                f"version or before it, or set the session conf spark.databricks.delta.{OUT_OF_RANGE_CONF} to true to read no rows.",
                asked=first,
                latest=latest,
            )
        if end.timestamp_ms is None:
            last = latest if end.version is None else end.version
        elif lenient and log.first_version_since(end.timestamp_ms) is None:
            last = latest
        else:
            last = log.version_at_timestamp(end.timestamp_ms)
        if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms <= end.timestamp_ms and last == first - 1:
            return None
        if last < first:
            raise InvalidOptionError(
                f"Delta table {root}: the changes are asked for from version {first} to version {last}, which lies before it. Give an end "
                "that is not before the start."
            )
        return first, min(last, latest)

    def _read(self, spark: SparkSession, newest: Snapshot, first: int, last: int) -> _Feed:
        changes = self._fold(newest, first, last)
        start = self._metadata_at_start(changes, newest)
        check_recorded(start, changes, table=newest.root)
        at_end = changes.metadata[-1][1] if changes.metadata else start
        mapped = any(COLUMN_MAPPING_MODE.of(m.configuration, newest.root) != MappingMode.NONE for m in (start, at_end, newest.metadata))
        read = newest
        if mapped and last < newest.version and self._schema_mode(spark, newest.root) == _END_VERSION:
            read = self._context.logs.pinned(newest.root, last).snapshot
        check_schemas(start, changes, read)
        asked = _Range(root=newest.root, first=first, last=last, read_version=read.version)
        return self._hold(asked, changes, read)

    @staticmethod
    def _schema_mode(spark: SparkSession, root: str) -> str:
        mode = (session_conf(spark, root, SCHEMA_MODE_CONF) or _END_VERSION).lower()
        if mode not in _SCHEMA_MODES:
            raise InvalidOptionError(
                f"Delta table {root}: the session conf {PREFIXES[0]}{SCHEMA_MODE_CONF} must be endVersion, latest or legacy, not {mode!r}."
            )
        return mode

    def _fold(self, read: Snapshot, first: int, last: int) -> Changes:
        fold = ChangeFold(read.root, partitioned=bool(read.partition_columns))
        for commit in self._context.logs.log(read.root).commits(first, last):
            source = f"{read.root}/{LOG_FOLDER}/{commit_name(commit.version)}"
            fold.add_commit(commit.version, commit.data, timestamp_ms=commit.timestamp_ms, source=source)
        return fold.finish()

    def _metadata_at_start(self, changes: Changes, newest: Snapshot) -> Metadata:
        """The metadata in force at the range's first version; the log is replayed only where the range does not tell it."""
        if changes.metadata and changes.metadata[0][0] == changes.first:
            return changes.metadata[0][1]
        if not changes.metadata and changes.last == newest.version:
            return newest.metadata
        return self._context.logs.pinned(newest.root, changes.first).snapshot.metadata

    def _held(self, asked: _Range, digest: str) -> _Feed | None:
        with self._lock:
            found = self._feeds.get((asked, digest))
            if found is not None:
                self._feeds.move_to_end((asked, digest))
            return found

    def _hold(self, asked: _Range, changes: Changes, read: Snapshot) -> _Feed:
        cdc, whole = as_snapshots(changes, read)
        text = f"{changes.digest}\n{cdc.metadata.schema_json}\n{whole.partition_columns}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        known = self._held(asked, digest)
        if known is not None:
            return known
        parts = [asked.root, asked.first, asked.last, asked.read_version, digest]
        feed = _Feed(
            cdc=HeldSnapshot(id=_ID + orjson.dumps([*parts, "cdc"]).decode(), snapshot=cdc),
            whole=HeldSnapshot(id=_ID + orjson.dumps([*parts, "whole"]).decode(), snapshot=whole),
        )
        with self._lock:
            feed = self._feeds.setdefault((asked, digest), feed)
            while len(self._feeds) > _KEPT:
                self._feeds.popitem(last=False)
        return feed

    def _scan(self, held: HeldSnapshot, engine: Engine) -> dict[str, str]:
        snapshot = held.snapshot
        relation = reading.describe(held, Travel(version=snapshot.version), self._context.hadoop_root(snapshot.root), engine)
        return {"snapshot": held.id, "relation": relation}
