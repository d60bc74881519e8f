"""Table properties: one descriptor per ``delta.*`` key, and typed access to a table's configuration (PROTOCOL.md, "Table Properties").

A value is checked when it is set. One that another writer left in a table and that cannot be parsed stops every writer
(`lakelog.core.property_checks.check_stored`), and a reader where it decides on what is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from lakelog.core.errors import InvalidTablePropertyError
from lakelog.core.records import shown
from lakelog.core.statistics import parse_column_names

T = TypeVar("T")

_MILLISECONDS: Mapping[str, Decimal] = {
    "microsecond": Decimal("0.001"),
    "millisecond": Decimal(1),
    "second": Decimal(1_000),
    "minute": Decimal(60_000),
    "hour": Decimal(3_600_000),
    "day": Decimal(86_400_000),
    "week": Decimal(604_800_000),
}
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_INT32_MAX = 2**31 - 1
_INTERVAL = "an interval such as 'interval 30 days'"
_TERM = re.compile(r"\s*'?([+-]?[0-9]+(?:\.[0-9]+)?)'?\s+([a-z]+?)s?(?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Generic[T]):
    """A key, how its text is read, and what counts when it is unset.

    Attributes:
        form: what a value looks like, for the error message.
        unit: what a value that is a number counts; empty for others.
        legacy_key: counts where ``key`` is unset.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    form: str
    unit: str = ""
    legacy_key: str | None = None

    def of(self, configuration: Mapping[str, str], table: str | None = None) -> T:
        """The typed value.

        Args:
            table: the root of the table that holds the value, for the message; None for a value that is not in a table yet.

        Raises:
            InvalidTablePropertyError: the value cannot be parsed; names key, value and form, and of a table's how to mend it.
        """
        key = self.key if self.legacy_key is None or self.key in configuration else self.legacy_key
        text = configuration.get(key)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except (ValueError, InvalidTablePropertyError) as error:
            told = str(error).rstrip(".")
            fault = f"table property {key} is {shown(text)}, but must be {self.form}: {told}."
            if table is None:
                raise InvalidTablePropertyError(f"The {fault}") from None
            raise InvalidTablePropertyError(
                f"Delta table {table}: the {fault} Mend it with ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('{key}' = '...'), or "
                f"take it out with ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('{key}')."
            ) from None

    def or_default(self, configuration: Mapping[str, str]) -> T:
        """The typed value; the default where it cannot be parsed. For metadata that are being replaced, in which no client acted on it."""
        try:
            return self.of(configuration)
        except InvalidTablePropertyError:
            return self.default


# Beyond it, numbers leave what a Decimal holds.
_LONGEST_TEXT = 1000
# Far below what would overflow when it is taken from the clock.
_LONGEST_INTERVAL_MS = 100_000 * 366 * 86_400_000


@lru_cache(maxsize=256)
def parse_interval(text: str) -> int:
    """``interval 1 week 2 hours`` in milliseconds; the word ``interval`` may be left out.

    Raises:
        ValueError: not an interval, negative, or in months or years, whose length varies.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError("it is no interval that anyone would write")
    rest = re.sub(r"^\s*interval\b", "", text.lower()).rstrip()
    total, position = Decimal(0), 0
    if not rest:
        raise ValueError("it holds no quantity")
    while position < len(rest):
        term = _TERM.match(rest, position)
        if term is None:
            raise ValueError(f"{rest[position:].strip()!r} is not a quantity and a unit")
        if term[2] in ("month", "year"):
            raise ValueError("months and years vary in length, use days or weeks")
        if term[2] not in _MILLISECONDS:
            raise ValueError(f"{term[2]!r} is not one of the units {', '.join(_MILLISECONDS)}")
        total += Decimal(term[1]) * _MILLISECONDS[term[2]]
        position = term.end()
    if total < 0:
        raise ValueError("it is negative")
    if total > _LONGEST_INTERVAL_MS:
        raise ValueError("it is longer than 100,000 years")
    return int(total)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is neither")
    return text.lower() == "true"


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if WHOLE_NUMBER.fullmatch(text) is None:
            raise ValueError("it is no whole number")
        value = int(text)
        if value < least:
            raise ValueError(f"it is less than {least}")
        if value > _INT32_MAX:
            raise ValueError(f"it is more than {_INT32_MAX}")
        return value

    return parse


def _boolean_property(name: str, default: bool) -> Property[bool]:
    return Property(key=f"delta.{name}", parse=_boolean, default=default, form="true or false")


def _interval_property(name: str, default: int) -> Property[int]:
    return Property(key=f"delta.{name}", parse=parse_interval, default=default, form=_INTERVAL, unit="milliseconds")


def _integer_property(name: str, default: int, least: int, unit: str) -> Property[int]:
    return Property(key=f"delta.{name}", parse=_at_least(least), default=default, form=f"a whole number of at least {least}", unit=unit)


def _optional_interval(text: str) -> int | None:
    return parse_interval(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    """The choice that the text spells in any letter case."""

    def parse(text: str) -> str:
        found = next((choice for choice in choices if choice.lower() == text.lower()), None)
        if found is None:
            raise ValueError(f"it is none of {', '.join(choices)}")
        return found

    return parse


def _optional_codec(text: str) -> str | None:
    return _one_of(*_CODECS)(text)


def _column_names(text: str) -> str | None:
    parse_column_names(text)
    return text


def _choice_property(name: str, default: str, *choices: str) -> Property[str]:
    return Property(key=f"delta.{name}", parse=_one_of(*choices), default=default, form=f"one of {', '.join(choices)}")


_CODECS = ("none", "uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "lz4_raw", "zstd")

APPEND_ONLY = _boolean_property("appendOnly", False)
CHANGE_DATA_FEED: Property[bool] = Property(
    key="delta.enableChangeDataFeed", parse=_boolean, default=False, form="true or false", legacy_key="delta.enableChangeDataCapture"
)
CHECKPOINT_INTERVAL = _integer_property("checkpointInterval", 10, 1, "commits")
CHECKPOINT_POLICY = _choice_property("checkpointPolicy", "classic", "classic", "v2")
COLUMN_MAPPING_MODE = _choice_property("columnMapping.mode", "none", "none", "id", "name")
COMPRESSION_CODEC: Property[str | None] = Property(
    key="delta.parquet.compression.codec", parse=_optional_codec, default=None, form="a codec of Parquet"
)
DELETED_FILE_RETENTION = _interval_property("deletedFileRetentionDuration", 7 * 86_400_000)
DELETION_VECTORS = _boolean_property("enableDeletionVectors", False)
DROP_FEATURE_RETENTION = _interval_property("dropFeatureTruncateHistory.retentionDuration", 86_400_000)
ENABLE_EXPIRED_LOG_CLEANUP = _boolean_property("enableExpiredLogCleanup", True)
IN_COMMIT_TIMESTAMPS = _boolean_property("enableInCommitTimestamps", False)
ISOLATION_LEVEL = _choice_property("isolationLevel", "Serializable", "Serializable", "WriteSerializable", "SnapshotIsolation")
LOG_RETENTION = _interval_property("logRetentionDuration", 30 * 86_400_000)
NUM_INDEXED_COLS = _integer_property("dataSkippingNumIndexedCols", 32, -1, "columns")
RANDOMIZE_FILE_PREFIXES = _boolean_property("randomizeFilePrefixes", False)
RANDOM_PREFIX_LENGTH = _integer_property("randomPrefixLength", 2, 1, "characters")
ROW_TRACKING = _boolean_property("enableRowTracking", False)
SET_TRANSACTION_RETENTION: Property[int | None] = Property(
    key="delta.setTransactionRetentionDuration", parse=_optional_interval, default=None, form=_INTERVAL, unit="milliseconds"
)
STATS_COLUMNS: Property[str | None] = Property(
    key="delta.dataSkippingStatsColumns", parse=_column_names, default=None, form="a list of column names separated by commas"
)
STRING_PREFIX_LENGTH = _integer_property("dataSkippingStringPrefixLength", 32, 1, "characters")
SYMLINK_MANIFEST = _boolean_property("compatibility.symlinkFormatManifest.enabled", False)
TYPE_WIDENING = _boolean_property("enableTypeWidening", False)
WRITE_STATS_AS_JSON = _boolean_property("checkpoint.writeStatsAsJson", True)
# PROTOCOL.md's default; delta-spark's code says true, but no reader may rely on the column.
WRITE_STATS_AS_STRUCT = _boolean_property("checkpoint.writeStatsAsStruct", False)

_Descriptor: TypeAlias = Property[bool] | Property[int] | Property[str] | Property[int | None] | Property[str | None]

DESCRIPTORS: tuple[_Descriptor, ...] = (
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    COLUMN_MAPPING_MODE,
    COMPRESSION_CODEC,
    DELETED_FILE_RETENTION,
    DELETION_VECTORS,
    DROP_FEATURE_RETENTION,
    ENABLE_EXPIRED_LOG_CLEANUP,
    IN_COMMIT_TIMESTAMPS,
    ISOLATION_LEVEL,
    LOG_RETENTION,
    NUM_INDEXED_COLS,
    RANDOMIZE_FILE_PREFIXES,
    RANDOM_PREFIX_LENGTH,
    ROW_TRACKING,
    SET_TRANSACTION_RETENTION,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    SYMLINK_MANIFEST,
    TYPE_WIDENING,
    WRITE_STATS_AS_JSON,
    WRITE_STATS_AS_STRUCT,
    # Known, so that their values are checked; nothing here acts on them.
    _boolean_property("autoOptimize", False),
    _boolean_property("autoOptimize.optimizeWrite", False),
    _choice_property("autoOptimize.autoCompact", "false", "true", "false", "auto", "legacy"),
    _boolean_property("enableChangeDataCapture", False),
    _boolean_property("enableFullRetentionRollback", True),
    _boolean_property("enableIcebergCompatV1", False),
    _boolean_property("enableIcebergCompatV2", False),
    _boolean_property("enableIcebergCompatV3", False),
    _boolean_property("enableMaterializePartitionColumnsFeature", False),
    _boolean_property("enableVariantShredding", False),
    _boolean_property("writePartitionColumnsToParquet", False),
    _choice_property("parquet.format.version", "1.0.0", "1.0.0", "2.12.0"),
    _interval_property("checkpointRetentionDuration", 2 * 86_400_000),
    _interval_property("sampleRetentionDuration", 7 * 86_400_000),
)

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
MATERIALIZED_ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
MATERIALIZED_ROW_COMMIT_VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"
CHECKPOINT_PROTECTION_VERSION = "delta.requireCheckpointProtectionBeforeVersion"
# A CHECK constraint by its name; the value is its expression.
CONSTRAINT_PREFIX = "delta.constraints."

# What whoever changes a table keeps in its properties by itself: a user's value would mean something untrue.
INTERNAL_KEYS = frozenset(
    {
        MAX_COLUMN_ID,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
        MATERIALIZED_ROW_ID,
        MATERIALIZED_ROW_COMMIT_VERSION,
        CHECKPOINT_PROTECTION_VERSION,
        "delta.rowTrackingSuspended",
    }
)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """Typed access to a table's configuration. Each access parses, and raises InvalidTablePropertyError when it cannot.

    Attributes:
        configuration: as the log holds it, unknown keys included.
        table: the table's root, for messages; None for properties that are not in a table yet.
    """

    configuration: Mapping[str, str]
    table: str | None = None

    @property
    def append_only(self) -> bool:
        return APPEND_ONLY.of(self.configuration, self.table)

    @property
    def enable_change_data_feed(self) -> bool:
        return CHANGE_DATA_FEED.of(self.configuration, self.table)

    @property
    def checkpoint_interval(self) -> int:
        """Commits between checkpoints."""
        return CHECKPOINT_INTERVAL.of(self.configuration, self.table)

    @property
    def log_retention_ms(self) -> int:
        return LOG_RETENTION.of(self.configuration, self.table)

    @property
    def deleted_file_retention_ms(self) -> int:
        return DELETED_FILE_RETENTION.of(self.configuration, self.table)

    @property
    def enable_expired_log_cleanup(self) -> bool:
        return ENABLE_EXPIRED_LOG_CLEANUP.of(self.configuration, self.table)

    @property
    def checkpoint_write_stats_as_json(self) -> bool:
        return WRITE_STATS_AS_JSON.of(self.configuration, self.table)

    @property
    def checkpoint_write_stats_as_struct(self) -> bool:
        return WRITE_STATS_AS_STRUCT.of(self.configuration, self.table)

    @property
    def data_skipping_num_indexed_cols(self) -> int:
        """Leaf columns that get statistics, from the first; -1 is all of them."""
        return NUM_INDEXED_COLS.of(self.configuration, self.table)

    @property
    def data_skipping_stats_columns(self) -> str | None:
        """The comma-separated names as stored, which override the count (`lakelog.core.statistics.parse_column_names`); None when unset."""
        return STATS_COLUMNS.of(self.configuration, self.table)

    @property
    def string_prefix_length(self) -> int:
        """Characters that string bounds keep."""
        return STRING_PREFIX_LENGTH.of(self.configuration, self.table)

    @property
    def set_transaction_retention_ms(self) -> int | None:
        """None keeps application transactions for ever."""
        return SET_TRANSACTION_RETENTION.of(self.configuration, self.table)

    @property
    def randomize_file_prefixes(self) -> bool:
        return RANDOMIZE_FILE_PREFIXES.of(self.configuration, self.table)

    @property
    def random_prefix_length(self) -> int:
        return RANDOM_PREFIX_LENGTH.of(self.configuration, self.table)

    @property
    def isolation_level(self) -> str:
        """``Serializable``, ``WriteSerializable`` or ``SnapshotIsolation``."""
        return ISOLATION_LEVEL.of(self.configuration, self.table)

    @property
    def compression_codec(self) -> str | None:
        """Of data files, in lower case; None leaves it to the session."""
        return COMPRESSION_CODEC.of(self.configuration, self.table)

    @property
    def enable_deletion_vectors(self) -> bool:
        return DELETION_VECTORS.of(self.configuration, self.table)

    @property
    def enable_row_tracking(self) -> bool:
        return ROW_TRACKING.of(self.configuration, self.table)

    @property
    def enable_in_commit_timestamps(self) -> bool:
        return IN_COMMIT_TIMESTAMPS.of(self.configuration, self.table)

    @property
    def enable_type_widening(self) -> bool:
        return TYPE_WIDENING.of(self.configuration, self.table)

    @property
    def drop_feature_retention_ms(self) -> int:
        """How long the log is kept at least when a feature is dropped with its history."""
        return DROP_FEATURE_RETENTION.of(self.configuration, self.table)

    @property
    def column_mapping_mode(self) -> str:
        """``none``, ``id`` or ``name``."""
        return COLUMN_MAPPING_MODE.of(self.configuration, self.table)
