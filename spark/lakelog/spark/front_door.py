"""What the Java shells hand over, and who answers it. One proxy alone is exposed to the JVM.

py4j's callback server asks nobody for a token, so every call carries a secret made when the session was enabled; a call without it is
refused before anything is looked at. An error is returned as a value: the shell throws it, and on the way back to the user's call it
becomes the Python error again that was raised here.
"""

from __future__ import annotations

import hmac
import itertools
import logging
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import orjson
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.errors import (
    DataFileMissingError,
    InvalidOptionError,
    LakelogError,
    MetadataChangedException,
    SessionNotEnabledError,
    UnsupportedOperationError,
)
from lakelog.core.predicates import TRUE
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_properties import DELETED_FILE_RETENTION
from lakelog.spark import alter, delete, grammar, jvm, listing, reading, write
from lakelog.spark.arrow_scan import ArrowScans, ScanRequest
from lakelog.spark.change_feed import ChangeFeeds, is_asked_for
from lakelog.spark.conditions import parse_filters
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.exceptions import pyspark_error
from lakelog.spark.options import WriteRequest, check_storage
from lakelog.spark.reading import Analysed, Travel
from lakelog.spark.transaction import nested

_log = logging.getLogger(__name__)
_KEPT_ERRORS = 256
_KEPT_FRAMES = 64
_KEPT_SCHEMAS = 1024
_PATH_UNKNOWN = re.compile(
    r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY.*: (delta|lakelog)\b|TABLE_OR_VIEW_NOT_FOUND.*`(delta|lakelog)`\.`[^`]*/|"
    r"SCHEMA_NOT_FOUND.*`(delta|lakelog)`",
    re.DOTALL | re.IGNORECASE,
)
_trips = itertools.count()
_counted = 0


def trips() -> int:
    """How many questions the JVM has asked so far; for tests and benchmarks that count them."""
    return _counted


class FrontDoor:
    """Answers the shells for all sessions of one JVM.

    Args:
        context: table logs and sessions.
        secret: what every call must carry.
    """

    def __init__(self, context: Context, secret: str) -> None:
        self._context = context
        self._secret = secret
        self._changes = ChangeFeeds(context)
        self._scans = ArrowScans()
        self._handed: deque[DataFrame] = deque(maxlen=_KEPT_FRAMES)
        self.open = True
        self.disabled: set[str] = set()
        self._errors: OrderedDict[str, BaseException] = OrderedDict()
        self._error_ids = itertools.count(1)
        self._analysed: OrderedDict[str, Analysed] = OrderedDict()
        self._lock = threading.Lock()
        self._answers: Mapping[str, Callable[[SparkSession, Any, Any, Any], object]] = {
            "read": self._read,
            "write": self._write,
            "insert": self._insert,
            "list": self._list,
            "scan": self._scan,
            "table": self._table,
            "exists": self._exists,
            "refuse": self._refuse,
            "newest": self._newest,
            "delete": self._delete,
            "parse": self._parse,
            "alter": self._alter,
        }

    def apply(self, header: str, first: Any, second: Any, third: Any) -> object:
        """One call from the JVM: ``secret, verb, session id, what this thread changes already`` by lines, two strings, one object."""
        global _counted
        told, _, rest = str(header).partition("\n")
        if not hmac.compare_digest(told.encode(), self._secret.encode()):
            _log.warning("refused a call to the callback channel that did not carry this session's secret")
            return "\0\nlakelog: this channel serves its own Spark driver alone"
        _counted = next(_trips) + 1
        verb, session_id, outer = rest.split("\n")
        try:
            if session_id in self.disabled:
                raise SessionNotEnabledError(CLOSED)
            if outer:
                raise nested(verb.upper(), outer.upper())
            return self._answers[verb](self._context.session(session_id), first, second, third)
        except BaseException as error:
            return "\0" + self._keep(error)

    def _keep(self, error: BaseException) -> str:
        """``id NEWLINE message``; the error can be had back by its id, in the form that users of PySpark catch."""
        if not isinstance(error, LakelogError):
            _log.debug("an error behind the front door", exc_info=error)
        with self._lock:
            identity = str(next(self._error_ids))
            self._errors[identity] = pyspark_error(error)
            while len(self._errors) > _KEPT_ERRORS:
                self._errors.popitem(last=False)
        return f"{identity}\n{str(error) or type(error).__name__}"

    def error(self, identity: str) -> BaseException | None:
        """The Python error behind a Java one. Without an id the door was closed."""
        if not identity:
            return SessionNotEnabledError(CLOSED)
        with self._lock:
            return self._errors.get(identity)

    def explained(self, message: str) -> BaseException | None:
        """Our error for one of Spark's that concerns a table of ours, else None.

        A path in SQL while no session is enabled, what executors of the Arrow engine said, and a file that does not exist and belongs to a
        table that is held.
        """
        if not self.open and _PATH_UNKNOWN.search(message):
            return SessionNotEnabledError(CLOSED)
        if (told := self._scans.explained(message)) is not None:
            return told
        if "FILE_NOT_EXIST" not in message and "FileNotFoundException" not in message:
            return None
        for held in (*self._context.logs.all_held(), *self._changes.all_held()):
            root = held.snapshot.root
            found = listing.named_file(message, held.snapshot)
            if found is not None:
                return DataFileMissingError(
                    f"Delta table {root}: data file {found} is named by the log but is not there. {_why_missing(held.snapshot)}"
                )
        return None

    def close(self) -> None:
        """No session is enabled any more; forget the errors kept for callers."""
        with self._lock:
            self.open = False
            self._errors.clear()

    # what the shells ask ---------------------------------------------------------------------------------------------

    def _read(self, spark: SparkSession, options: str, _second: object, _third: object) -> str:
        given = _lowered(options)
        path = self._path(given, "read")
        check_storage(path, given)
        if is_asked_for(given, path):
            return self._changes.described(spark, path, given)
        path, travel = reading.travel_of(path, given, self._context.zone(spark))
        return self._described(spark, path, travel)

    def _described(self, spark: SparkSession, path: str, travel: Travel) -> str:
        root = self._context.root(spark, path)
        held = reading.resolve(self._context.logs, root, travel)
        return self._tell(spark, held, travel)

    def _tell(self, spark: SparkSession, held: HeldSnapshot, travel: Travel) -> str:
        with self._lock:
            self._analysed[reading.schema_id(held.snapshot)] = Analysed.of(held.snapshot)
            while len(self._analysed) > _KEPT_SCHEMAS:
                self._analysed.popitem(last=False)
        root = held.snapshot.root
        return reading.describe(held, travel, self._context.hadoop_root(root), self._context.engine(spark, root).engine)

    def _write(self, spark: SparkSession, options: str, mode: str, dataset: Any) -> str:
        given = _lowered(options)
        path = self._path(given, "write")
        check_storage(path, given)
        if reading.travel_of(path, {}, self._context.zone(spark))[1] != Travel():
            raise UnsupportedOperationError(refusal("a write to an old version", path))
        frame = jvm.frame_from(dataset, spark)
        return self._saved(spark, path, mode, given, frame)

    def _saved(self, spark: SparkSession, path: str, mode: str, given: Mapping[str, str], frame: DataFrame, *, filled: bool = False) -> str:
        request = WriteRequest.parse(spark, self._context.root(spark, path), mode, given)
        return self._tell(spark, write.save(self._context, spark, request, frame, filled=filled), Travel())

    def _insert(self, spark: SparkSession, root: str, how: str, dataset: Any) -> None:
        mode, _, options = how.partition("\n")
        given = _lowered(options or "{}")
        self._saved(spark, root, mode, given, jvm.frame_from(dataset, spark), filled=True)

    def _list(self, _spark: SparkSession, wanted: str, known: str, _third: object) -> bytes:
        root, version, schema_id, snapshot_id, filters = orjson.loads(wanted)
        held = self._snapshot(self._context.local_root(root), version, snapshot_id)
        self._check_schema(held, schema_id)
        predicate = TRUE if filters == "[]" else parse_filters(filters)
        return listing.answer(held, predicate, with_files=held.id not in orjson.loads(known))

    def _scan(self, spark: SparkSession, asked: str, _second: object, wanted: bytes) -> Any:
        root, version, schema_id, snapshot_id, columns, types, filters, packing = orjson.loads(asked)
        held = self._snapshot(self._context.local_root(root), version, snapshot_id)
        self._check_schema(held, schema_id)
        snapshot = held.snapshot
        access = self._context.access(snapshot.root)
        frame = self._scans.planned(
            spark, snapshot, access, ScanRequest.parse(columns, types, filters, packing, bytes(wanted)), _why_missing(snapshot)
        )
        if frame is None:
            return None
        # The JVM finds it by a name that is gone once nobody holds the object here.
        self._handed.append(frame)
        return jvm.dataset_of(frame)

    def _snapshot(self, root: str, version: str | None, snapshot_id: str | None) -> HeldSnapshot:
        held = (self._context.logs.find(snapshot_id) or self._changes.find(snapshot_id)) if snapshot_id else None
        if held is not None:
            return held
        return self._context.logs.pinned(root, int(version)) if version is not None else self._context.logs.newest(root)

    def _check_schema(self, held: HeldSnapshot, analysed: str) -> None:
        if reading.schema_id(held.snapshot) == analysed:
            return
        with self._lock:
            before = self._analysed.get(analysed)
        if before is None or not before.still_reads(held.snapshot):
            raise MetadataChangedException(
                f"Delta table {held.snapshot.root}: the schema changed since this DataFrame was made, and version {held.snapshot.version} "
                "cannot be read with the old one. Read the table again."
            )

    def _table(self, spark: SparkSession, path: str, travel: str | None, _third: object) -> str:
        asked = Travel()
        if travel is not None:
            kind, _, value = travel.partition("\n")
            if kind == "timestamp":
                asked = Travel(timestamp_ms=int(value) // 1000)
            else:
                _, asked = reading.travel_of(path, {"versionasof": value}, self._context.zone(spark))
        else:
            path, asked = reading.travel_of(path, {}, self._context.zone(spark))
        return self._described(spark, path, asked)

    def _exists(self, spark: SparkSession, path: str, _second: object, _third: object) -> bool:
        return self._context.logs.exists(self._context.root(spark, path))

    def _refuse(self, _spark: SparkSession, statement: str, table: str, _third: object) -> NoReturn:
        raise UnsupportedOperationError(refusal(statement, table))

    def _newest(self, _spark: SparkSession, path: str, statement: str, _third: object) -> None:
        """That a statement which changes a table by its path does not name a version of it."""
        if (asked := reading.version_named(path)) is not None:
            raise UnsupportedOperationError(
                f"Delta table {path.rpartition('@')[0]}: {statement} was aimed at {asked}. Leave out the version: "
                "only the newest can be changed."
            )

    def _delete(self, spark: SparkSession, root: str, told: str, search: Any) -> int:
        return delete.delete(self._context, spark, self._context.local_root(root), told, search)

    def _parse(self, _spark: SparkSession, text: str, tokens: str, _third: object) -> str | None:
        found = grammar.parse(text, [grammar.Token(*token) for token in orjson.loads(tokens)])
        if found is None:
            return None
        return orjson.dumps({"table": found.table, "command": found.command, "change": found.change}).decode()

    def _alter(self, spark: SparkSession, root: str, changes: str, _third: object) -> None:
        alter.alter(self._context, spark, self._context.local_root(root), orjson.loads(changes))

    @staticmethod
    def _path(options: Mapping[str, str], verb: str) -> str:
        path = options.get("path")
        if not path:
            raise InvalidOptionError(
                f'format("delta") needs the path of the table to {verb}: give it to load(), save() or option("path", ...).'
            )
        return path


class Channel:
    """What py4j can reach of a `FrontDoor`: its `apply`, and nothing else whatever name a stranger asks for."""

    __slots__ = ("_door",)

    class Java:
        """What py4j implements on the JVM's side."""

        implements = ("scala.Function4",)

    def __init__(self, door: FrontDoor) -> None:
        self._door = door

    def __getattribute__(self, name: str) -> object:
        if name == "apply":
            return object.__getattribute__(self, "_door").apply
        if name in ("Java", "__class__"):
            return object.__getattribute__(self, name)
        raise AttributeError(name)


CLOSED = "This Spark session does not serve Delta tables: lakelog is not enabled, or was disabled. Call lakelog.spark.enable(spark) first."

_REMEDIES = {
    "DESCRIBE HISTORY": "DeltaTable.forPath(spark, path).history() shows it.",
    "DESCRIBE DETAIL": "DeltaTable.forPath(spark, path).detail() shows it.",
    "ALTER TABLE ... ADD CONSTRAINT": "Give it a name and a condition, and write the table's name out, "
    "not as IDENTIFIER(): ALTER TABLE table ADD CONSTRAINT name CHECK (condition).",
    "SET NOT NULL for one of several columns": "Give each column a statement of its own, and write the table's name "
    "out, not as IDENTIFIER().",
    "SHOW PARTITIONS": "Select the distinct values of the partition columns.",
    "a relative path in SQL": "Give the absolute path of the table.",
    "reading a stream": 'Read it with spark.read.format("delta").',
    "writing a stream": 'Use foreachBatch and write each batch with df.write.format("delta").',
    "a dynamic partition overwrite": "Delete the partitions first, then append.",
    "DELETE from a view that is not the table itself": "Delete from the table: DELETE FROM delta.`path`.",
    "UPDATE": "Until then, overwrite the table with the changed rows.",
    "MERGE": "Until then, join in a DataFrame and overwrite the table.",
    "TRUNCATE TABLE": "DELETE FROM without a condition does the same.",
    "a write to an old version": "Leave out the version: writes go to the newest one.",
    "input_file_name() with the Arrow engine": "Select _metadata.file_path.",
    "input_file_block_start() with the Arrow engine": "Select _metadata.file_block_start.",
    "input_file_block_length() with the Arrow engine": "Select _metadata.file_block_length.",
    "INSERT OVERWRITE of a part of the table": "Delete the rows first, then append.",
}


def refusal(statement: str, table: str) -> str:
    """What a user reads of a statement that comes with a later release."""
    where = f" on {table}" if table else ""
    remedy = _REMEDIES.get(
        statement,
        'Write with df.write.format("delta").save(path) and read with delta.`path`; the metastore and the table were not touched.',
    )
    return f"lakelog does not support {statement} for Delta tables yet{where}. {remedy}"


def _why_missing(snapshot: Snapshot) -> str:
    days = DELETED_FILE_RETENTION.or_default(snapshot.metadata.configuration) / 86_400_000
    return (
        f"Files that no version within delta.deletedFileRetentionDuration ({days:g} days) needs may have been removed by VACUUM; others "
        "were deleted by hand. Read a newer version, or restore the file."
    )


def _lowered(options: str) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in orjson.loads(options).items()}
