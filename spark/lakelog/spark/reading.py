"""Which version of which table a read means, and how the JVM is told of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import orjson

from lakelog.core.errors import InvalidOptionError
from lakelog.core.schema import StructField, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.spark.delta_logs import DeltaLogs, HeldSnapshot

_AT_VERSION = re.compile(r"^(?P<path>.+)@[vV](?P<version>\d+)$")
_AT_TIMESTAMP = re.compile(r"^(?P<path>.+)@(?P<timestamp>\d{17})$")
_REFUSED_READ_OPTIONS = {"readchangefeed": "the change data feed", "readchangedata": "the change data feed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """A version asked for by number or by time; neither means the newest.

    Attributes:
        version: the version.
        timestamp_ms: milliseconds since the epoch: the newest version committed at or before.
    """

    version: int | None = None
    timestamp_ms: int | None = None


def travel_of(path: str, options: Mapping[str, str], zone: str) -> tuple[str, Travel]:
    """The path without its suffix ``@v3`` or ``@yyyyMMddHHmmssSSS``, and the version that suffix or options ask for.

    Args:
        path: as the user gave it.
        options: reader options, names in lower case.
        zone: the session's time zone.

    Raises:
        InvalidOptionError: a number or time that cannot be parsed, or more than one of suffix and options.
    """
    for name, feature in _REFUSED_READ_OPTIONS.items():
        if options.get(name, "false").lower() == "true":
            raise InvalidOptionError(f"Delta table {path}: reading {feature} comes with a later release; leave out the option {name}.")
    asked: list[Travel] = []
    if found := _AT_VERSION.match(path):
        path, asked = found["path"], [Travel(version=int(found["version"]))]
    elif found := _AT_TIMESTAMP.match(path):
        stamp = datetime.strptime(found["timestamp"], "%Y%m%d%H%M%S%f").replace(tzinfo=ZoneInfo(zone))
        path, asked = found["path"], [Travel(timestamp_ms=_milliseconds(stamp))]
    if "versionasof" in options:
        asked.append(Travel(version=_version(options["versionasof"], path)))
    if "timestampasof" in options:
        asked.append(Travel(timestamp_ms=parse_timestamp(options["timestampasof"], zone, path)))
    if len(asked) > 1:
        raise InvalidOptionError(
            f"Delta table {path}: the version is asked for more than once; give one of versionAsOf, timestampAsOf and the suffix @v of "
            "the path."
        )
    return path, asked[0] if asked else Travel()


def _version(text: str, path: str) -> int:
    try:
        version = int(text)
    except ValueError:
        version = -1
    if version < 0:
        raise InvalidOptionError(f"Delta table {path}: versionAsOf must be a version number, 0 or more, not {text!r}.")
    return version


def parse_timestamp(text: str, zone: str, path: str) -> int:
    """Milliseconds since the epoch of ``2024-01-31``, ``2024-01-31 10:00:00[.123]`` or an ISO time with a zone.

    Raises:
        InvalidOptionError: the text is none of these.
    """
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidOptionError(
            f"Delta table {path}: {text!r} is no timestamp; write it as 2024-01-31 or 2024-01-31 10:00:00.123, with +01:00 or Z for a zone "
            f"other than the session's ({zone})."
        ) from None
    return _milliseconds(stamp if stamp.tzinfo else stamp.replace(tzinfo=ZoneInfo(zone)))


def _milliseconds(stamp: datetime) -> int:
    delta = stamp - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def resolve(logs: DeltaLogs, root: str, travel: Travel) -> HeldSnapshot:
    """The snapshot that a read means.

    Raises:
        NotADeltaTableError: there is no table at the root.
        VersionNotFoundError: the version or time is not in the log; names the earliest and the latest.
    """
    if travel.timestamp_ms is not None:
        log = logs.log(root)
        return logs.at(root, log.version_at_timestamp(travel.timestamp_ms))
    return logs.newest(root) if travel.version is None else logs.at(root, travel.version)


def describe(held: HeldSnapshot, travel: Travel, hadoop_root: str) -> str:
    """What the JVM needs for a relation and for a table of the catalog, as JSON."""
    snapshot = held.snapshot
    partitions = StructType(tuple(_partition_field(snapshot, name) for name in snapshot.partition_columns))
    pinned = travel != Travel()
    told = {
        "root": hadoop_root,
        "version": str(snapshot.version) if pinned else None,
        "schemaId": schema_id(snapshot),
        "schema": snapshot.schema.to_json(),
        "partitions": partitions.to_json(),
        "bytes": snapshot.size_in_bytes,
        "properties": {"provider": "delta", "location": hadoop_root, **snapshot.metadata.configuration},
    }
    return orjson.dumps(told).decode()


def _partition_field(snapshot: Snapshot, name: str) -> StructField:
    return snapshot.schema.find((name,))


def schema_id(snapshot: Snapshot) -> str:
    """Equal for equal schemas and partition columns."""
    text = snapshot.schema.to_json() + "\n" + "\n".join(snapshot.partition_columns)
    return hashlib.sha256(text.encode()).hexdigest()
