"""Commits that hold their own time (PROTOCOL.md, "In-Commit Timestamps").

Where the table property ``delta.enableInCommitTimestamps`` is true, each ``commitInfo`` has an ``inCommitTimestamp`` that is later than
that of the version before. A table that had commits before tells in two more properties since which version, and when that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakelog.core.actions import Metadata
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError
from lakelog.core.records import INT64_MAX, shown
from lakelog.core.table_properties import (
    IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
    IN_COMMIT_TIMESTAMPS,
)

# Digits of a version in a file's name.
_LONGEST_VERSION = 20


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether commits hold their time. The property alone decides, as in delta-spark, which reads no commit without a time then.

    Raises:
        InvalidTablePropertyError: the property's value is neither true nor false.
    """
    return IN_COMMIT_TIMESTAMPS.of(configuration)


def first_version(configuration: Mapping[str, str], table: str) -> int | None:
    """The version from which on commits hold their own time; None where the table does not have that on.

    Args:
        configuration: of the table's newest metadata.
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: the property that tells the version tells none, or the one that turns it on cannot be parsed.
    """
    if not IN_COMMIT_TIMESTAMPS.of(configuration, table):
        return None
    text = configuration.get(IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION, "0")
    if not text.isdecimal() or len(text) > _LONGEST_VERSION:
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION} is {shown(text)}, not a version"
        )
    return int(text)


def next_timestamp(now_ms: int, previous_ms: int | None, table: str) -> int:
    """The clock's time, or the millisecond after the version before where the clock does not come after that.

    Args:
        now_ms: the clock, milliseconds since the epoch.
        previous_ms: the time of the version before: its own, or that of its file where it holds none; None where there is none.
        table: the table's root, for messages.

    Raises:
        CorruptLogError: no time comes after that of the version before.
    """
    if previous_ms is None or now_ms > previous_ms:
        return now_ms
    if previous_ms >= INT64_MAX:
        raise CorruptLogError(
            f"Delta table {table}: the newest commit says of itself that it was made {previous_ms} ms after 1970, and no "
            "commit can come after that. Restore that commit, or make a new table."
        )
    return previous_ms + 1


def with_enablement(metadata: Metadata, before: Metadata | None, *, version: int, timestamp_ms: int) -> Metadata:
    """The metadata that a commit writes, telling since when the table's commits hold their time where it is they that tell.

    Args:
        metadata: the commit's own, with the feature on.
        before: in force until then; None where the commit makes the table.
        version: the commit's.
        timestamp_ms: the commit's ``inCommitTimestamp``.
    """
    if before is None:
        return metadata
    if not IN_COMMIT_TIMESTAMPS.or_default(before.configuration):
        told = {IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION: str(version), IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP: str(timestamp_ms)}
    else:
        # Metadata made from nothing, as by a replacement of the table, must not make the older commits lose their files' times.
        told = {
            key: before.configuration[key]
            for key in (IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION, IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP)
            if key in before.configuration
        }
    if told.items() <= metadata.configuration.items():
        return metadata
    return replace(metadata, configuration={**metadata.configuration, **told})
