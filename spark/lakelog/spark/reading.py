"""Which version of which table a read means, and how the JVM is told of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import orjson

from lakelog.core.column_mapping import MappingMode, physical_schema
from lakelog.core.errors import InvalidOptionError
from lakelog.core.field_metadata import CURRENT_DEFAULT, user_schema
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, parse_schema
from lakelog.core.snapshot import Snapshot
from lakelog.spark.delta_logs import DeltaLogs, HeldSnapshot
from lakelog.spark.engine import Engine

_AT_VERSION = re.compile(r"^(?P<path>.+)@[vV](?P<version>\d+)$")
_AT_TIMESTAMP = re.compile(r"^(?P<path>.+)@(?P<timestamp>\d{17})$")


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


def version_named(path: str) -> str | None:
    """What the suffix of a path asks for, in words; None where it has none."""
    if found := _AT_VERSION.match(path):
        return f"version {int(found['version'])}"
    found = _AT_TIMESTAMP.match(path)
    return None if found is None else f"the version of the time {found['timestamp']}"


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


def describe(held: HeldSnapshot, travel: Travel, hadoop_root: str, engine: Engine) -> str:
    """What the JVM needs for a relation and for a table of the catalog, as JSON."""
    snapshot = held.snapshot
    schema = user_schema(snapshot.schema)
    mapped = snapshot.mapping is not MappingMode.NONE
    pinned = travel != Travel()
    told = {
        "root": hadoop_root,
        "version": str(snapshot.version) if pinned else None,
        "engine": str(engine),
        "schemaId": schema_id(snapshot),
        "schema": schema.to_json(),
        "columns": _catalog_schema(snapshot.schema, schema).to_json(),
        "partitions": StructType(tuple(schema.find((name,)) for name in snapshot.partition_columns)).to_json(),
        "physical": snapshot.physical_schema.to_json() if mapped else None,
        "byId": snapshot.mapping is MappingMode.ID,
        "bytes": snapshot.size_in_bytes,
        "properties": {"provider": "delta", "location": hadoop_root, **snapshot.metadata.configuration, **_comment(snapshot)},
    }
    return orjson.dumps(told).decode()


def _comment(snapshot: Snapshot) -> dict[str, str]:
    """The table's description, under the name that Spark's catalog has for it."""
    description = snapshot.metadata.description
    return {} if description is None else {"comment": description}


def _catalog_schema(schema: StructType, shown: StructType) -> StructType:
    """What readers are shown, and the defaults of top-level columns, which Spark puts in where an INSERT leaves a column out."""
    defaults = [{k: v for k, v in field.metadata.items() if k == CURRENT_DEFAULT} for field in schema.fields]
    return StructType(
        tuple(
            replace(field, metadata={**field.metadata, **default}) if default else field
            for field, default in zip(shown.fields, defaults, strict=True)
        )
    )


def schema_id(snapshot: Snapshot) -> str:
    """Equal for tables that plans cannot tell apart by schema: what readers are shown, where it stands in files, partition columns."""
    return _schema_id(snapshot.metadata.schema_json, snapshot.mapping, snapshot.partition_columns)


@lru_cache(maxsize=256)
def _schema_id(schema_json: str, mode: MappingMode, partition_columns: tuple[str, ...]) -> str:
    schema = parse_schema(schema_json)
    where = "" if mode is MappingMode.NONE else f"{mode} {physical_schema(schema, mode).to_json()}"
    text = "\n".join((user_schema(schema).to_json(), where, *partition_columns))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """What a plan was made of: columns with their types, and where files have them.

    Attributes:
        fields: by name, the field as readers see it and as files have it, without metadata.
        partition_columns: in the table's order.
    """

    fields: Mapping[str, tuple[StructField, StructField]]
    partition_columns: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Analysed:
        """Of a table as a plan sees it."""
        pairs = zip(_bare(snapshot.schema).fields, _bare(snapshot.physical_schema).fields, strict=True)
        return cls(fields={field.name: (field, there) for field, there in pairs}, partition_columns=snapshot.partition_columns)

    def still_reads(self, snapshot: Snapshot) -> bool:
        """Whether a plan that was made then reads the table as it is now: its columns are all there, of the same types and under the same
        names in files, and partition values are found by the same columns."""
        now = Analysed.of(snapshot)
        if self.partition_columns != now.partition_columns:
            return False
        for name, (before, there_before) in self.fields.items():
            field, there = now.fields.get(name, (None, None))
            # A plan that may meet nulls does not mind that there are none any more.
            if field is None or there is None or (field.nullable and not before.nullable):
                return False
            if (field.type, there.name, there.type) != (before.type, there_before.name, there_before.type):
                return False
        return True


def _bare(schema: StructType) -> StructType:
    return StructType(tuple(StructField(field.name, _bare_type(field.type), field.nullable) for field in schema.fields))


def _bare_type(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return _bare(data_type)
        case ArrayType(element):
            return replace(data_type, element=_bare_type(element))
        case MapType(key, value):
            return replace(data_type, key=_bare_type(key), value=_bare_type(value))
        case _:
            return data_type
