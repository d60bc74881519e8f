"""Table properties: one descriptor per ``delta.*`` key, and typed access to a table's configuration (PROTOCOL.md, "Table Properties").

A value is checked when it is set. One that another writer left in a table and that cannot be parsed is an error where it decides on
something, and nowhere else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from lakelog.core.errors import InvalidTablePropertyError, UnsupportedFeatureError
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
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_INT32_MAX = 2**31 - 1
_LATER = "comes with a later release of lakelog"
_TERM = re.compile(r"\s*'?([+-]?[0-9]+(?:\.[0-9]+)?)'?\s+([a-z]+?)s?(?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Generic[T]):
    """A key, how its text is read, and what counts when it is unset.

    Attributes:
        form: what a value looks like, for the error message.
        legacy_key: counts where ``key`` is unset.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    form: str
    legacy_key: str | None = None

    def of(self, configuration: Mapping[str, str]) -> T:
        """The typed value.

        Raises:
            InvalidTablePropertyError: the value cannot be parsed; names key, value and form.
        """
        key = self.key if self.legacy_key is None or self.key in configuration else self.legacy_key
        text = configuration.get(key)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except (ValueError, InvalidTablePropertyError) as error:
            told = str(error).rstrip(".")
            raise InvalidTablePropertyError(f"The table property {key} is {shown(text)}, but must be {self.form}: {told}.") from None


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
        if _WHOLE_NUMBER.fullmatch(text) is None:
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
    return Property(key=f"delta.{name}", parse=parse_interval, default=default, form="an interval such as 'interval 30 days'")


def _integer_property(name: str, default: int, least: int) -> Property[int]:
    return Property(key=f"delta.{name}", parse=_at_least(least), default=default, form=f"a whole number of at least {least}")


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
CHECKPOINT_INTERVAL = _integer_property("checkpointInterval", 10, 1)
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
NUM_INDEXED_COLS = _integer_property("dataSkippingNumIndexedCols", 32, -1)
RANDOMIZE_FILE_PREFIXES = _boolean_property("randomizeFilePrefixes", False)
RANDOM_PREFIX_LENGTH = _integer_property("randomPrefixLength", 2, 1)
ROW_TRACKING = _boolean_property("enableRowTracking", False)
SET_TRANSACTION_RETENTION: Property[int | None] = Property(
    key="delta.setTransactionRetentionDuration", parse=_optional_interval, default=None, form="an interval such as 'interval 30 days'"
)
STATS_COLUMNS: Property[str | None] = Property(
    key="delta.dataSkippingStatsColumns", parse=_column_names, default=None, form="a list of column names separated by commas"
)
STRING_PREFIX_LENGTH = _integer_property("dataSkippingStringPrefixLength", 32, 1)
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

_MIN_READER_VERSION = "delta.minReaderVersion"
_MIN_WRITER_VERSION = "delta.minWriterVersion"
_IGNORE_PROTOCOL_DEFAULTS = "delta.ignoreProtocolDefaults"
_FEATURE_PREFIX = "delta.feature."
_DIRECTIVE_KEYS = (_MIN_READER_VERSION, _MIN_WRITER_VERSION, _IGNORE_PROTOCOL_DEFAULTS)
_HIGHEST_READER_VERSION, _HIGHEST_WRITER_VERSION = 3, 7

# Keys by prefix that belong to a feature which lakelog does not write yet.
_LATER_PREFIXES: Mapping[str, str] = {
    "delta.coordinatedCommits.": "coordinatedCommits-preview",
    "delta.redirectReaderWriter-preview": "redirectReaderWriter-preview",
    "delta.redirectWriterOnly-preview": "redirectWriterOnly-preview",
    "delta.universalFormat.": "universalFormat",
}
_KNOWN_KEYS = frozenset(descriptor.key for descriptor in DESCRIPTORS)
_SPELLINGS: Mapping[str, str] = {key.lower(): key for key in (*_KNOWN_KEYS, *INTERNAL_KEYS, *_DIRECTIVE_KEYS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What is asked of the protocol by way of properties, which are not stored.

    Attributes:
        features: names as given, of ``delta.feature.<name> = supported``.
        reader_version: ``delta.minReaderVersion``, 1 to 3; None when not given.
        writer_version: ``delta.minWriterVersion``, 1 to 7.
        ignore_defaults: ``delta.ignoreProtocolDefaults``: a new table starts from (1, 1), not from (1, 2).
    """

    features: tuple[str, ...] = ()
    reader_version: int | None = None
    writer_version: int | None = None
    ignore_defaults: bool = False


def canonical_key(key: str) -> str:
    """A key as it is stored: those of Delta are known in any letter case; the user's own stay as they are."""
    lower = key.lower()
    for prefix in (_FEATURE_PREFIX, CONSTRAINT_PREFIX):
        if lower.startswith(prefix):
            return prefix + key[len(prefix) :]
    return _SPELLINGS.get(lower, key)


def canonical(configuration: Mapping[str, str], table: str) -> dict[str, str]:
    """The configuration with its keys as they are stored.

    Raises:
        InvalidTablePropertyError: a key is given twice, in different letter case and with different values.
    """
    spelt: dict[str, str] = {}
    for key, value in configuration.items():
        name = canonical_key(key)
        if spelt.setdefault(name, value) != value:
            raise InvalidTablePropertyError(
                f"Delta table {table}: the table property {name} is given twice, as {shown(spelt[name])} and as {shown(value)}. Leave one out."
            )
    return spelt


def split_directives(configuration: Mapping[str, str], table: str) -> tuple[dict[str, str], Directives]:
    """What is to be stored, and what is asked of the protocol.

    Args:
        configuration: keys from `canonical`.
        table: the table's root, for messages.

    Raises:
        InvalidTablePropertyError: a feature with another value than ``supported``, a version that is none.
    """
    stored = {key: value for key, value in configuration.items() if not _is_directive(key)}
    if len(stored) == len(configuration):
        return stored, Directives()
    features = []
    for key, value in configuration.items():
        if key.startswith(_FEATURE_PREFIX):
            # delta-spark took "enabled" for it once.
            if value.lower() not in ("supported", "enabled"):
                raise InvalidTablePropertyError(
                    f"Delta table {table}: the table property {key} is {shown(value)}, but must be 'supported'. A feature is taken away by "
                    "dropFeatureSupport."
                )
            features.append(key[len(_FEATURE_PREFIX) :])
    ignores = configuration.get(_IGNORE_PROTOCOL_DEFAULTS, "false")
    if ignores.lower() not in ("true", "false"):
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {_IGNORE_PROTOCOL_DEFAULTS} is {shown(ignores)}, but must be true or false."
        )
    return stored, Directives(
        features=tuple(features),
        reader_version=_version(configuration, _MIN_READER_VERSION, _HIGHEST_READER_VERSION, table),
        writer_version=_version(configuration, _MIN_WRITER_VERSION, _HIGHEST_WRITER_VERSION, table),
        ignore_defaults=ignores.lower() == "true",
    )


def _is_directive(key: str) -> bool:
    return key in _DIRECTIVE_KEYS or key.startswith(_FEATURE_PREFIX)


def _version(configuration: Mapping[str, str], key: str, highest: int, table: str) -> int | None:
    text = configuration.get(key)
    if text is None:
        return None
    if _WHOLE_NUMBER.fullmatch(text) is None or not 1 <= int(text) <= highest:
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {key} is {shown(text)}, but must be a whole number from 1 to {highest}."
        )
    return int(text)


def check_properties(configuration: Mapping[str, str], table: str, *, beside: Mapping[str, str] | None = None) -> None:
    """Check properties that a table is to be given. Keys that do not begin with ``delta.`` are the user's own and pass.

    Properties of features that are not there yet are checked by `lakelog.core.table_change`.

    Args:
        configuration: as it would be stored, directives included.
        table: the table's root, for messages.
        beside: the table's other properties, against which those given are held, but which are not checked themselves.

    Raises:
        InvalidTablePropertyError: an unknown ``delta.`` key (names the nearest known one), one that users may not set, a value that
            cannot be parsed, or a log kept for less time than the deleted files it names.
        UnsupportedFeatureError: keys of features that come later.
    """
    for key in configuration:
        _check_key(key, table)
    split_directives(configuration, table)
    try:
        for descriptor in DESCRIPTORS:
            descriptor.of(configuration)
    except InvalidTablePropertyError as error:
        raise InvalidTablePropertyError(f"Delta table {table}: {error}") from None
    if ISOLATION_LEVEL.of(configuration) == "SnapshotIsolation":
        raise InvalidTablePropertyError(
            f"Delta table {table}: the table property {ISOLATION_LEVEL.key} must not be SnapshotIsolation, which checks no append. "
            "Use Serializable."
        )
    if SYMLINK_MANIFEST.of(configuration):
        raise UnsupportedFeatureError(
            f"Delta table {table}: {SYMLINK_MANIFEST.key} = true, a manifest with every commit, {_LATER}. Leave the property out.",
            features=(SYMLINK_MANIFEST.key,),
        )
    if LOG_RETENTION.key in configuration or DELETED_FILE_RETENTION.key in configuration:
        together = {**(beside or {}), **configuration}
        if LOG_RETENTION.of(together) < DELETED_FILE_RETENTION.of(together):
            raise InvalidTablePropertyError(
                f"Delta table {table}: {LOG_RETENTION.key} is shorter than {DELETED_FILE_RETENTION.key}, but the log must be kept at least "
                "as long as the files it names. Lengthen the one or shorten the other."
            )


def check_settable(keys: Iterable[str], table: str) -> None:
    """Refuse keys that no statement may set or unset by itself, in any letter case.

    Raises:
        InvalidTablePropertyError: a CHECK constraint, or a property that lakelog keeps by itself.
    """
    for key in map(canonical_key, keys):
        if key.startswith(CONSTRAINT_PREFIX):
            raise InvalidTablePropertyError(
                f"Delta table {table}: {key} is a CHECK constraint, which is no property to set or unset. Use ALTER TABLE ... ADD CONSTRAINT, "
                "or DROP CONSTRAINT."
            )
        if key in INTERNAL_KEYS:
            raise InvalidTablePropertyError(
                f"Delta table {table}: {key} is not set by users; lakelog keeps it by itself. Leave the property out."
            )


def _check_key(key: str, table: str) -> None:
    lower = key.lower()
    if not lower.startswith("delta.") or key in _KNOWN_KEYS or _is_directive(key):
        return
    check_settable((key,), table)
    feature = next((name for prefix, name in _LATER_PREFIXES.items() if lower.startswith(prefix.lower())), None)
    if feature is not None:
        raise UnsupportedFeatureError(
            f"Delta table {table}: the table property {key} asks for {feature}, which {_LATER}. Leave the property out.",
            features=(feature,),
        )
    nearest = difflib.get_close_matches(lower, sorted(_SPELLINGS), n=1, cutoff=0.0)
    raise InvalidTablePropertyError(
        f"Delta table {table}: there is no table property {key}. The nearest is {_SPELLINGS[nearest[0]]}; a property of your own "
        "must not begin with 'delta.'."
    )


@dataclass(frozen=True, slots=True)
class TableProperties:
    """Typed access to a table's configuration. Each access parses, and raises InvalidTablePropertyError when it cannot.

    Attributes:
        configuration: as the log holds it, unknown keys included.
    """

    configuration: Mapping[str, str]

    @property
    def append_only(self) -> bool:
        return APPEND_ONLY.of(self.configuration)

    @property
    def enable_change_data_feed(self) -> bool:
        return CHANGE_DATA_FEED.of(self.configuration)

    @property
    def checkpoint_interval(self) -> int:
        """Commits between checkpoints."""
        return CHECKPOINT_INTERVAL.of(self.configuration)

    @property
    def log_retention_ms(self) -> int:
        return LOG_RETENTION.of(self.configuration)

    @property
    def deleted_file_retention_ms(self) -> int:
        return DELETED_FILE_RETENTION.of(self.configuration)

    @property
    def enable_expired_log_cleanup(self) -> bool:
        return ENABLE_EXPIRED_LOG_CLEANUP.of(self.configuration)

    @property
    def checkpoint_write_stats_as_json(self) -> bool:
        return WRITE_STATS_AS_JSON.of(self.configuration)

    @property
    def checkpoint_write_stats_as_struct(self) -> bool:
        return WRITE_STATS_AS_STRUCT.of(self.configuration)

    @property
    def data_skipping_num_indexed_cols(self) -> int:
        """Leaf columns that get statistics, from the first; -1 is all of them."""
        return NUM_INDEXED_COLS.of(self.configuration)

    @property
    def data_skipping_stats_columns(self) -> str | None:
        """The comma-separated names as stored, which override the count (`lakelog.core.statistics.parse_column_names`); None when unset."""
        return STATS_COLUMNS.of(self.configuration)

    @property
    def string_prefix_length(self) -> int:
        """Characters that string bounds keep."""
        return STRING_PREFIX_LENGTH.of(self.configuration)

    @property
    def set_transaction_retention_ms(self) -> int | None:
        """None keeps application transactions for ever."""
        return SET_TRANSACTION_RETENTION.of(self.configuration)

    @property
    def randomize_file_prefixes(self) -> bool:
        return RANDOMIZE_FILE_PREFIXES.of(self.configuration)

    @property
    def random_prefix_length(self) -> int:
        return RANDOM_PREFIX_LENGTH.of(self.configuration)

    @property
    def isolation_level(self) -> str:
        """``Serializable``, ``WriteSerializable`` or ``SnapshotIsolation``."""
        return ISOLATION_LEVEL.of(self.configuration)

    @property
    def compression_codec(self) -> str | None:
        """Of data files, in lower case; None leaves it to the session."""
        return COMPRESSION_CODEC.of(self.configuration)

    @property
    def enable_deletion_vectors(self) -> bool:
        return DELETION_VECTORS.of(self.configuration)

    @property
    def enable_row_tracking(self) -> bool:
        return ROW_TRACKING.of(self.configuration)

    @property
    def enable_in_commit_timestamps(self) -> bool:
        return IN_COMMIT_TIMESTAMPS.of(self.configuration)

    @property
    def enable_type_widening(self) -> bool:
        return TYPE_WIDENING.of(self.configuration)

    @property
    def drop_feature_retention_ms(self) -> int:
        """How long the log is kept at least when a feature is dropped with its history."""
        return DROP_FEATURE_RETENTION.of(self.configuration)

    @property
    def column_mapping_mode(self) -> str:
        """``none``, ``id`` or ``name``."""
        return COLUMN_MAPPING_MODE.of(self.configuration)
